//! The index of a table together with the files of the snapshot that it is true to.
//!
//! Of a new snapshot the manifests are read that were not there before, and the keys of data files that are
//! new. How it follows, and when it is built anew, is decided in [`frazil_core::index::follow`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use frazil_core::change::KeyPlan;
use frazil_core::delete::DeletionVector;
use frazil_core::index::catch_up::Caught;
use frazil_core::index::follow::Followed;
use frazil_core::index::orders::Keys;
use frazil_core::index::table::{Allowed, Delta, check_bytes};
use frazil_core::index::{Index, KeyForm, KeyHasher};
use frazil_core::limits::MANIFEST_TABLE_TURNS;
use frazil_core::memory::Use;
use frazil_core::{Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{ManifestFile, TableMetadata};

use super::kept::Kept;
use super::{Ahead, Reader, Reading, catch_up};
use crate::delete::{Entries, KnownDeletes, LiveFile, LiveFiles};
use crate::failpoint;
use crate::memory::{Draw, Memory};
use crate::runtime::compute;
use crate::storage::TableStorage;

/// The index of a table, its files, and what else its commits go on with.
#[derive(Debug)]
pub(crate) struct Tracked {
    plan: Arc<KeyPlan>,
    hasher: KeyHasher,
    followed: Followed,
    pub(crate) live: LiveFiles,
    pub(crate) kept: Kept,
    memory: Arc<Memory>,
    drawn: Draw,
}

impl Tracked {
    /// Begins with nothing: the first snapshot that is followed is read as a whole.
    pub(crate) fn new(metadata: &TableMetadata, plan: KeyPlan, memory: &Arc<Memory>) -> Self {
        let keys = keys_of(metadata, &plan);
        let hasher = KeyHasher::new(keys.form, keys.table);
        let followed = Followed::new(keys);
        Tracked {
            hasher,
            plan: Arc::new(plan),
            followed: match cfg!(test) {
                true => followed.with_dead_min(100),
                false => followed,
            },
            live: LiveFiles::default(),
            kept: Kept::default(),
            memory: Arc::clone(memory),
            drawn: memory.draw(Use::KeyIndex, 0),
        }
    }

    /// Returns why it is of no use for the table as it is now, whose `branch` has the head `head`.
    pub(crate) fn unfit(
        &self,
        metadata: &Arc<TableMetadata>,
        (branch, head): (&str, Option<i64>),
        plan: &KeyPlan,
    ) -> Option<&'static str> {
        let keys = keys_of(metadata, plan);
        self.followed.unfit(metadata, (branch, head), &keys)
    }

    /// Returns where the row of each key is.
    pub(crate) fn index(&self) -> &Index {
        self.followed.index()
    }

    /// Returns what its keys are.
    pub(crate) fn keys(&self) -> &Keys {
        self.followed.keys()
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
        self.followed.is_whole()
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
        // The files may be those of neither snapshot when it fails.
        self.followed.set_out();
        self.live.follow(manifests, entries)?;
        if self.live.equality_deletes > 0 {
            return Err(has_equality_deletes(self.live.equality_deletes));
        }
        let (followed, live) = (&mut self.followed, &self.live.data);
        let of = |file: &LiveFile| (file.rows, file.sequence);
        let new = compute(|| followed.follow(head, live, of)).await?;
        let readings = new.iter().map(|file| Reading {
            number: file.number,
            path: Arc::clone(&file.path),
            bytes: live.get(&file.path).map_or(0, |live| live.bytes),
            rows: file.rows,
        });
        let readings: Vec<Reading> = readings.collect();
        let mut whole = 0;
        let read = match new.is_empty() {
            true => Ok(false),
            false => self.read_keys(storage, &readings, &mut whole).await,
        };
        match &read {
            Ok(has_several_rows) => self.followed.has_read(*has_several_rows),
            // A later try goes on with the others.
            Err(_) => self
                .followed
                .read_failed(new.get(whole..).unwrap_or_default()),
        }
        self.count();
        *files_read += whole as u64;
        read.map(|_| ())
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

    /// Reads the keys of new files, and tells whether there may be several live rows of a key.
    async fn read_keys(
        &mut self,
        storage: &TableStorage,
        new: &[Reading],
        whole: &mut usize,
    ) -> Result<bool> {
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
        let index = self.followed.index_mut();
        let caught = catch_up(&reader, index, new.to_vec(), &vectors, check, whole).await?;
        tracing::info!(
            table = %self.keys().table,
            files = new.len(),
            keys = caught.keys,
            ms = begun.elapsed().as_millis() as u64,
            index_bytes = self.index().memory().heap,
            "keys of data files were read"
        );
        self.warn_of_duplicates(storage, &caught).await
    }

    /// Returns about how many bytes it takes when the keys of `rows` more rows are in the index.
    fn bytes_with_rows(&self, rows: u64) -> u64 {
        let files = self.index().files();
        let rows_max = files.iter().map(|(_, file)| u64::from(file.rows)).max();
        let keys = (self.index().entries() as u64).saturating_add(rows);
        let (number, form) = (u64::from(files.next()), self.index().form());
        let index = Index::bytes_for(form, keys, number, rows_max.unwrap_or_default());
        index.saturating_add((self.live.memory_bytes() + self.kept.memory_bytes()) as u64)
    }

    /// Says when live rows have the same key, and tells whether some may. A row that somebody deleted in the
    /// same snapshot is none.
    async fn warn_of_duplicates(&self, storage: &TableStorage, caught: &Caught) -> Result<bool> {
        let path_of = |number: u32| {
            let file = self.index().files().get(number);
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
            tracing::warn!(table = %self.keys().table, at_least = live,
                "the table has several rows with one key, which another writer left; the newest of \
                 them counts, the others stay until they are deleted elsewhere");
        }
        Ok(live > 0 || caught.duplicates > caught.named.len() as u64)
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
        self.followed.apply(delta, snapshot_id)?;
        for (path, known) in deletes {
            self.kept.keep_deletes(path, known);
        }
        self.count();
        Ok(())
    }

    /// Keeps the bytes of a manifest, which a later snapshot may list.
    pub(crate) fn keep_manifest(&mut self, path: &str, bytes: Bytes) {
        self.kept.keep_manifest(path, bytes);
    }

    /// Checks that there is memory for the index with the changes of so many keys.
    ///
    /// # Errors
    ///
    /// Those of [`check_bytes`].
    pub(crate) fn check_room(&self, keys: usize) -> Result<()> {
        let others = self.live.memory_bytes() + self.kept.memory_bytes();
        let needed = self.index().bytes_with(keys).saturating_add(others as u64);
        check_bytes(needed, self.allowed())
    }

    fn allowed(&self) -> Allowed {
        allowed(&self.memory, &self.drawn)
    }

    /// Counts the memory that it takes now.
    fn count(&mut self) {
        let bytes =
            self.index().memory().heap + self.live.memory_bytes() + self.kept.memory_bytes();
        self.drawn.resize(bytes as u64);
    }
}

/// What the numbers of the keys of a table are numbers of.
fn keys_of(metadata: &TableMetadata, plan: &KeyPlan) -> Keys {
    Keys {
        table: metadata.uuid(),
        form: KeyForm::of(plan.bytes_max()),
        key: plan.fingerprint().to_owned(),
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
