//! The index of a table together with the files of the snapshot that it is true to.
//!
//! It follows a table by difference: of a new snapshot the manifests are read that were not there
//! before, and the keys of data files that are new. What its own commits change it is
//! [told](Tracked::apply), so that nothing of them is read again. Only a table that went back, to a
//! snapshot before the one that was followed last, is read anew: rows that were deleted may be there
//! again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use frazil_core::change::KeyPlan;
use frazil_core::commit::outcome::is_in_history;
use frazil_core::index::catch_up::Caught;
use frazil_core::index::files::IndexedFile;
use frazil_core::index::table::{Delta, check_bytes};
use frazil_core::index::{Index, KeyForm, KeyHasher};
use frazil_core::limits::MANIFEST_TABLE_TURNS;
use frazil_core::memory::Use;
use frazil_core::{Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{ManifestFile, TableMetadata};
use uuid::Uuid;

use super::kept::Kept;
use super::{Reader, Reading, catch_up};
use crate::delete::{Entries, KnownDeletes, LiveFiles};
use crate::failpoint;
use crate::memory::{Draw, Memory};
use crate::storage::TableStorage;

/// Rows of files that are gone from which on their keys are taken out of the index, when they are a
/// quarter of it.
const DEAD_ROWS_MIN: u64 = 1 << 16;

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
    memory: Arc<Memory>,
    drawn: Option<Draw>,
    drawn_bytes: u64,
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
            memory: Arc::clone(memory),
            drawn: None,
            drawn_bytes: 0,
        }
    }

    /// Tells whether it is of use for the table as it is now.
    pub(crate) fn fits(&self, metadata: &TableMetadata, branch: &str, plan: &KeyPlan) -> bool {
        let in_history =
            |id: i64| metadata.snapshot_by_id(id).is_some() && is_in_history(metadata, branch, id);
        self.is_whole
            && self.table == metadata.uuid()
            && self.plan.fingerprint() == plan.fingerprint()
            && self.index.form() == KeyForm::of(plan.bytes_max())
            && self.snapshot.is_none_or(in_history)
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

    /// Becomes true to the snapshot `head` with these manifests.
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
    ) -> Result<()> {
        let entries = self.read_unseen(storage, manifests).await?;
        self.is_whole = false;
        self.live.follow(manifests, entries)?;
        if self.live.equality_deletes > 0 {
            return Err(has_equality_deletes(self.live.equality_deletes));
        }
        self.drop_gone()?;
        let new = self.add_new()?;
        if !new.is_empty()
            && let Err(error) = self.read_keys(storage, &new).await
        {
            // A later try reads them again.
            for file in &new {
                self.index.drop_file(file.number);
            }
            self.is_whole = true;
            return Err(error);
        }
        self.is_whole = true;
        self.snapshot = head;
        self.count();
        Ok(())
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

    /// Forgets files that are not live any more.
    fn drop_gone(&mut self) -> Result<()> {
        let files = self.index.files().iter();
        let gone = files.filter(|(_, file)| !self.live.data.contains_key(&file.path));
        let gone: Vec<u32> = gone.map(|(number, _)| number).collect();
        for number in gone {
            let rows = self.index.drop_file(number).map_or(0, |file| file.rows);
            self.dead_rows = self.dead_rows.saturating_add(u64::from(rows));
        }
        let entries = self.index.entries() as u64;
        if self.dead_rows > DEAD_ROWS_MIN && self.dead_rows > entries / 4 {
            self.index.compact()?;
            self.dead_rows = 0;
        }
        Ok(())
    }

    /// Adds the files that are not known yet, the oldest first; their keys are to be read.
    fn add_new(&mut self) -> Result<Vec<Reading>> {
        let files = self.live.data.iter();
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

    async fn read_keys(&mut self, storage: &TableStorage, new: &[Reading]) -> Result<()> {
        failpoint::pass("index.before-read")?;
        let begun = Instant::now();
        let paths: BTreeSet<Arc<str>> = new.iter().map(|file| Arc::clone(&file.path)).collect();
        let kept = |path: &str| self.kept.deletes(path);
        let known = self.live.deletes_of(storage, &paths, kept).await?;
        let vectors = new.iter().filter_map(|file| {
            let known = known.get(&file.path)?;
            Some((file.number, &known.vector))
        });
        let vectors = vectors.collect();
        let reader = Reader {
            storage,
            plan: &self.plan,
            hasher: &self.hasher,
        };
        let allowed = room(&self.memory, self.drawn_bytes);
        let check = |bytes: usize| check_bytes(bytes, allowed);
        let index = &mut self.index;
        let caught = catch_up(&reader, index, new.to_vec(), &vectors, check).await?;
        check(self.index.memory().heap)?;
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
        self.index.apply(delta)?;
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

    /// Returns how many bytes of memory the index may have.
    pub(crate) fn room(&self) -> usize {
        room(&self.memory, self.drawn_bytes)
    }

    /// Counts the memory that it takes now.
    fn count(&mut self) {
        let bytes = self.index.memory().heap + self.live.memory_bytes() + self.kept.memory_bytes();
        self.drawn_bytes = bytes as u64;
        self.drawn = Some(self.memory.draw(Use::KeyIndex, bytes as u64));
    }
}

/// What there is beside what is drawn already.
fn room(memory: &Memory, drawn: u64) -> usize {
    let room = memory.room().saturating_add(drawn);
    usize::try_from(room).unwrap_or(usize::MAX)
}

fn has_equality_deletes(files: usize) -> SinkError {
    SinkError::fatal(
        "TABLE_HAS_EQUALITY_DELETES",
        "another writer left equality deletes in the table, so that the place of a row does not tell whether it is there; have them applied by a compaction of another engine, then changes go on",
    )
    .with("files", files)
}
