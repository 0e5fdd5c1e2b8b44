//! The index of a table together with the files of the snapshot that it is true to.
//!
//! It follows a table by difference: of a new snapshot the manifests are read that were not there
//! before, and the keys of data files that are new. What its own commits change it is
//! [told](Tracked::apply), so that nothing of them is read again. Only a table that went back, to a
//! snapshot before the one that was followed last, is read anew: rows that were deleted may be there
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use frazil_core::change::KeyPlan;
use frazil_core::commit::outcome::descends_from;
use frazil_core::delete::DeletionVector;
use frazil_core::index::catch_up::Caught;
use frazil_core::index::files::IndexedFile;
use frazil_core::index::table::{Allowed, Delta, check_bytes};
use frazil_core::index::{Index, KeyForm, KeyHasher};
use frazil_core::limits::MANIFEST_TABLE_TURNS;
use frazil_core::memory::Use;
use frazil_core::{Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{ManifestFile, TableMetadata};
use uuid::Uuid;

use super::kept::Kept;
use super::{Ahead, Reader, Reading, catch_up};
use crate::delete::{Entries, KnownDeletes, LiveFiles};
use crate::failpoint;
use crate::memory::{Draw, Memory};
use crate::runtime::compute;
use crate::storage::TableStorage;

/// Rows of files that are gone from which on their keys are taken out of the index, when they are a
/// quarter of it.
const DEAD_ROWS_MIN: u64 = if cfg!(test) { 100 } else { 1 << 16 };

/// The index of a table, its files, and what else its commits go on with.
#[derive(Debug)]
pub(crate) struct Tracked {
    table: Uuid,
    plan: Arc<KeyPlan>,
    hasher: KeyHasher,
    pub(crate) index: Index,
    pub(crate) live: LiveFiles,
    pub(crate) kept: Kept,
    /// The snapshot that was followed last.
    snapshot: Option<i64>,
    /// Rows of files that are gone, whose keys may still take memory.
    dead_rows: u64,
    /// Whether the index has the keys of all its files.
    is_whole: bool,
    /// How many of the newest rows it needs; all when `None`.
    rows_needed: Option<u64>,
    memory: Arc<Memory>,
    drawn: Draw,
}

impl Tracked {
    /// Begins with nothing: the first snapshot that is followed is read as a whole.
    pub(crate) fn new(table: Uuid, plan: KeyPlan, memory: &Arc<Memory>) -> Self {
        let form = KeyForm::of(plan.bytes_max());
        Tracked {
            table,
            hasher: KeyHasher::new(form, table),
            plan: Arc::new(plan),
            index: Index::new(form),
            live: LiveFiles::default(),
            kept: Kept::default(),
            snapshot: None,
            dead_rows: 0,
            is_whole: true,
            rows_needed: None,
            memory: Arc::clone(memory),
            drawn: memory.draw(Use::KeyIndex, 0),
        }
    }

    /// Knows only the newest files: as many as have `rows` rows.
    pub(crate) fn within(mut self, rows: Option<u64>) -> Self {
        self.rows_needed = rows;
        self
    }

    /// Tells whether the first row of a key stays, so that only whether there is one matters.
    pub(crate) fn keeps_first(&self) -> bool {
        self.rows_needed.is_some()
    }

    /// Returns the sequence number of the oldest files whose keys it has.
    fn oldest(&self) -> i64 {
        let Some(needed) = self.rows_needed else {
            return i64::MIN;
        };
        let files = self.live.data.values();
        let mut files: Vec<(i64, u64)> = files.map(|file| (file.sequence, file.rows)).collect();
        files.sort_unstable_by_key(|(sequence, _)| std::cmp::Reverse(*sequence));
        let mut rows = 0u64;
        let enough = files.into_iter().find(|(_, more)| {
            rows = rows.saturating_add(*more);
            rows >= needed
        });
        enough.map_or(i64::MIN, |(sequence, _)| sequence)
    }

    /// Returns why it is of no use for the table as it is now.
    pub(crate) fn unfit(
        &self,
        metadata: &TableMetadata,
        branch: &str,
        plan: &KeyPlan,
    ) -> Option<&'static str> {
        if !self.is_whole {
            return Some("something went wrong half-way");
        }
        if self.table != metadata.uuid() {
            return Some("the table was replaced");
        }
        let is_same = self.plan.fingerprint() == plan.fingerprint();
        if !is_same || self.index.form() != KeyForm::of(plan.bytes_max()) {
            return Some("the columns of the key are others");
        }
        let descends = |id: i64| descends_from(metadata, branch, id);
        let is_lost = !self.snapshot.is_none_or(descends);
        is_lost.then_some("the branch does not descend from the snapshot that was followed last")
    }

    /// Returns how keys become bytes.
    pub(crate) fn plan(&self) -> &KeyPlan {
        &self.plan
    }

    /// Returns how the bytes of keys become numbers.
    pub(crate) fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// Tells whether it is true to a snapshot, after an error as well.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Becomes true to the snapshot `head` with these manifests. The data files whose keys are read for it
    /// are counted in `files_read`, also before an error.
    ///
    /// # Errors
    ///
    /// What the table or the store says, and `INDEX_TOO_LARGE`. It is of use afterwards if it
    /// [is whole](Self::is_whole).
    pub(crate) async fn follow(
        &mut self,
        storage: &TableStorage,
        manifests: &[ManifestFile],
        head: Option<i64>,
        files_read: &mut u64,
    ) -> Result<()> {
        let entries = self.read_unseen(storage, manifests).await?;
        self.is_whole = false;
        self.live.follow(manifests, entries)?;
        if self.live.equality_deletes > 0 {
            return Err(has_equality_deletes(self.live.equality_deletes));
        }
        // Of rows that were deleted until then nothing is read.
        self.snapshot = head;
        compute(|| self.drop_gone()).await?;
        let new = self.add_new()?;
        let mut whole = 0;
        let read = match new.is_empty() {
            true => Ok(()),
            false => self.read_keys(storage, &new, &mut whole).await,
        };
        // A later try goes on with the others.
        for file in new.iter().skip(whole) {
            self.index.drop_file(file.number);
        }
        self.is_whole = true;
        self.count();
        *files_read += whole as u64;
        read
    }

    async fn read_unseen(
        &self,
        storage: &TableStorage,
        manifests: &[ManifestFile],
    ) -> Result<Vec<Entries>> {
        let reads = self.live.unseen(manifests).map(|listed| {
            let kept = self.kept.manifest(&listed.manifest_path);
            async move {
                let bytes = match kept {
                    Some(bytes) => bytes,
                    None => storage.get(&listed.manifest_path).await?,
                };
                Entries::parse(listed, &bytes)
            }
        });
        let reads: Vec<_> = reads.collect();
        let reads = futures::stream::iter(reads).buffered(MANIFEST_TABLE_TURNS);
        reads.try_collect().await
    }

    /// Forgets files that are not live any more, or too old to matter.
    fn drop_gone(&mut self) -> Result<()> {
        let (files, oldest) = (self.index.files().iter(), self.oldest());
        let is_needed = |path: &Arc<str>| {
            let file = self.live.data.get(path);
            file.is_some_and(|file| file.sequence >= oldest)
        };
        let gone = files.filter(|(_, file)| !is_needed(&file.path));
        let gone: Vec<u32> = gone.map(|(number, _)| number).collect();
        for number in gone {
            let rows = self.index.drop_file(number).map_or(0, |file| file.rows);
            self.dead_rows = self.dead_rows.saturating_add(u64::from(rows));
        }
        self.shrink()
    }

    /// Takes keys of files that are gone out of the index when they are a part of it that counts. A row
    /// that is gone with its file may have left its key before.
    fn shrink(&mut self) -> Result<()> {
        let entries = self.index.entries() as u64;
        if self.dead_rows < DEAD_ROWS_MIN || self.dead_rows < entries / 4 {
            return Ok(());
        }
        self.dead_rows = 0;
        if self.index.dead_entries() as u64 >= entries / 4 {
            self.index.compact()?;
        }
        Ok(())
    }

    /// Adds the files that are not known yet, the oldest first; their keys are to be read.
    fn add_new(&mut self) -> Result<Vec<Reading>> {
        let oldest = self.oldest();
        let files = self.live.data.iter();
        let files = files.filter(|(_, file)| file.sequence >= oldest);
        let new = files.filter(|(path, _)| self.index.files().number(path).is_none());
        let mut new: Vec<_> = new.collect();
        new.sort_by_key(|(path, file)| (file.sequence, Arc::clone(path)));
        let mut added = Vec::with_capacity(new.len());
        for (path, file) in new {
            let indexed = IndexedFile::new(Arc::clone(path), file.rows)?;
            added.push(Reading {
                number: self.index.add_file(indexed)?,
                path: Arc::clone(path),
                bytes: file.bytes,
                rows: file.rows,
            });
        }
        Ok(added)
    }

    async fn read_keys(
        &mut self,
        storage: &TableStorage,
        new: &[Reading],
        whole: &mut usize,
    ) -> Result<()> {
        failpoint::pass("index.before-read")?;
        let begun = Instant::now();
        let paths: BTreeSet<Arc<str>> = new.iter().map(|file| Arc::clone(&file.path)).collect();
        let kept = |path: &str| self.kept.deletes(path);
        let known = self.live.deletes_of(storage, &paths, kept).await?;
        let vectors = new.iter().filter_map(|file| {
            let known = known.get(&file.path)?;
            Some((file.number, &known.vector))
        });
        let vectors: BTreeMap<u32, &DeletionVector> = vectors.collect();
        let deleted = vectors.values().map(|vector| vector.len());
        let rows = new.iter().map(|file| file.rows);
        let rows = rows.sum::<u64>().saturating_sub(deleted.sum());
        let ahead = Ahead::within(self.allowed().now, new);
        let batches = ahead.batch_bytes(rows);
        let needed = self.bytes_with_rows(rows);
        let needed = needed.saturating_add(batches + ahead.pending_bytes(rows));
        check_bytes(needed, self.allowed())?;
        let reader = Reader {
            storage,
            plan: &self.plan,
            hasher: &self.hasher,
            ahead,
        };
        let _batches = self.memory.draw(Use::Commits, batches);
        let others = self.live.memory_bytes() + self.kept.memory_bytes();
        let (memory, drawn) = (&self.memory, &mut self.drawn);
        let check = |bytes: usize| {
            let bytes = (bytes + others) as u64;
            check_bytes(bytes, allowed(memory, drawn))?;
            drawn.resize(bytes);
            Ok(())
        };
        let index = &mut self.index;
        let caught = catch_up(&reader, index, new.to_vec(), &vectors, check, whole).await?;
        tracing::info!(
            table = %self.table,
            files = new.len(),
            keys = caught.keys,
            ms = begun.elapsed().as_millis() as u64,
            index_bytes = self.index.memory().heap,
            "keys of data files were read"
        );
        self.warn_of_duplicates(storage, &caught).await
    }

    /// Returns about how many bytes it takes when the keys of `rows` more rows are in the index.
    fn bytes_with_rows(&self, rows: u64) -> u64 {
        let files = self.index.files();
        let rows_max = files.iter().map(|(_, file)| u64::from(file.rows)).max();
        let keys = (self.index.entries() as u64).saturating_add(rows);
        let (number, form) = (u64::from(files.next()), self.index.form());
        let index = Index::bytes_for(form, keys, number, rows_max.unwrap_or_default());
        index.saturating_add((self.live.memory_bytes() + self.kept.memory_bytes()) as u64)
    }

    /// Says when live rows have the same key. A row that somebody deleted in the same snapshot is none.
    async fn warn_of_duplicates(&self, storage: &TableStorage, caught: &Caught) -> Result<()> {
        let path_of = |number: u32| {
            let file = self.index.files().get(number);
            file.map(|file| Arc::clone(&file.path))
        };
        let older = caught.named.iter().map(|one| one.older);
        let paths: BTreeSet<Arc<str>> = older.filter_map(|at| path_of(at.file)).collect();
        let kept = |path: &str| self.kept.deletes(path);
        let known = self.live.deletes_of(storage, &paths, kept).await?;
        let is_live = |at: frazil_core::index::Location| {
            let known = path_of(at.file).and_then(|path| known.get(&path));
            !known.is_some_and(|known| known.vector.contains(u64::from(at.row)))
        };
        let live = caught.named.iter().filter(|one| is_live(one.older)).count();
        if live > 0 {
            tracing::warn!(table = %self.table, at_least = live,
                "the table has several rows with one key, which another writer left; the newest of \
                 them counts, the others stay until they are deleted elsewhere");
        }
        Ok(())
    }

    /// Takes in what a commit of this process, the snapshot `snapshot_id`, has changed.
    ///
    /// # Errors
    ///
    /// The delta was made for another state; it is of no use then.
    pub(crate) fn apply(
        &mut self,
        delta: Delta,
        deletes: Vec<(Arc<str>, KnownDeletes)>,
        snapshot_id: i64,
    ) -> Result<()> {
        self.is_whole = false;
        let dropped = delta.dropped().iter();
        let rows = dropped.filter_map(|number| Some(self.index.files().get(*number)?.rows));
        let rows = rows.map(u64::from).sum();
        self.dead_rows = self.dead_rows.saturating_add(rows);
        self.index.apply(delta)?;
        self.shrink()?;
        self.is_whole = true;
        for (path, known) in deletes {
            self.kept.keep_deletes(path, known);
        }
        self.snapshot = Some(snapshot_id);
        self.count();
        Ok(())
    }

    /// Keeps the bytes of a manifest, which a later snapshot may list.
    pub(crate) fn keep_manifest(&mut self, path: &str, bytes: Bytes) {
        self.kept.keep_manifest(path, bytes);
    }

    /// Checks that there is memory for the index with the keys of `delta`.
    ///
    /// # Errors
    ///
    /// Those of [`check_bytes`].
    pub(crate) fn check_room(&self, delta: &Delta) -> Result<()> {
        let others = self.live.memory_bytes() + self.kept.memory_bytes();
        let needed = self.index.bytes_with(delta).saturating_add(others as u64);
        check_bytes(needed, self.allowed())
    }

    fn allowed(&self) -> Allowed {
        allowed(&self.memory, &self.drawn)
    }

    /// Counts the memory that it takes now.
    fn count(&mut self) {
        let bytes = self.index.memory().heap + self.live.memory_bytes() + self.kept.memory_bytes();
        self.drawn.resize(bytes as u64);
    }
}

/// What there is beside what is drawn already.
fn allowed(memory: &Memory, drawn: &Draw) -> Allowed {
    Allowed {
        now: memory.room().saturating_add(drawn.bytes()),
        ever: memory.lasting_room().saturating_add(drawn.bytes()),
    }
}

fn has_equality_deletes(files: usize) -> SinkError {
    SinkError::fatal(
        "TABLE_HAS_EQUALITY_DELETES",
        "another writer left equality deletes in the table, so that the place of a row does not tell whether it is there; have them applied by a compaction of another engine, then changes go on",
    )
    .with("files", files)
}
