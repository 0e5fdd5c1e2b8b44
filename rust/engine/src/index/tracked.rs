//! The index of a table together with the files of the snapshot that it is true to.
//!
//! Of a new snapshot the manifests are read that were not there before, and the keys of data files that are
//! new. How it follows, and when it is built anew, is decided in [`frazil_core::index::follow`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use frazil_core::change::KeyPlan;
use frazil_core::index::catch_up::Caught;
use frazil_core::index::follow::{Followed, NewFile};
use frazil_core::index::orders::Keys;
use frazil_core::index::table::{Delta, check_bytes};
use frazil_core::index::{Index, KeyForm, KeyHasher};
use frazil_core::limits::MANIFEST_TABLE_TURNS;
use frazil_core::memory::Use;
use frazil_core::{Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{ManifestFile, TableMetadata};

use super::kept::Kept;
use super::{Reader, Reading, catch_up};
use crate::delete::{Entries, KnownDeletes, LiveFiles};
use crate::failpoint;
use crate::memory::{Draw, Memory};
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
    drawn: Option<Draw>,
    drawn_bytes: u64,
}

impl Tracked {
    /// Begins with nothing: the first snapshot that is followed is read as a whole.
    pub(crate) fn new(metadata: &TableMetadata, plan: KeyPlan, memory: &Arc<Memory>) -> Self {
        let keys = keys_of(metadata, &plan);
        Tracked {
            hasher: KeyHasher::new(keys.form, keys.table),
            plan: Arc::new(plan),
            followed: Followed::new(keys),
            live: LiveFiles::default(),
            kept: Kept::default(),
            memory: Arc::clone(memory),
            drawn: None,
            drawn_bytes: 0,
        }
    }

    /// Tells whether it is of use for the table as it is now, whose `branch` has the head `head`.
    pub(crate) fn fits(
        &self,
        metadata: &Arc<TableMetadata>,
        (branch, head): (&str, Option<i64>),
        plan: &KeyPlan,
    ) -> bool {
        let keys = keys_of(metadata, plan);
        self.followed.may_follow(metadata, (branch, head), &keys)
    }

    /// Returns where the row of each key is.
    pub(crate) fn index(&self) -> &Index {
        self.followed.index()
    }

    /// Returns what its keys are.
    pub(crate) fn keys(&self) -> &Keys {
        self.followed.keys()
    }

    /// Tells whether it is true to a snapshot, after an error as well.
    pub(crate) fn is_whole(&self) -> bool {
        self.followed.is_whole()
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
        self.live.follow(manifests, entries)?;
        if self.live.equality_deletes > 0 {
            return Err(has_equality_deletes(self.live.equality_deletes));
        }
        let live = &self.live.data;
        let new = self
            .followed
            .follow(head, live, |file| (file.rows, file.sequence))?;
        let read = match new.is_empty() {
            true => Ok(false),
            false => self.read_keys(storage, &new).await,
        };
        match read {
            Ok(has_several_rows) => self.followed.has_read(has_several_rows),
            Err(error) => {
                self.followed.read_failed(&new);
                return Err(error);
            }
        }
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

    /// Reads the keys of new files, and tells whether there may be several live rows of a key.
    async fn read_keys(&mut self, storage: &TableStorage, new: &[NewFile]) -> Result<bool> {
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
        let files = new.iter().map(|file| {
            let bytes = self.live.data.get(&file.path).map_or(0, |live| live.bytes);
            Reading {
                file: file.clone(),
                bytes,
            }
        });
        let (files, index) = (files.collect(), self.followed.index_mut());
        let caught = catch_up(&reader, index, files, &vectors, check).await?;
        let heap = self.index().memory().heap;
        check(heap)?;
        tracing::info!(
            table = %self.keys().table,
            files = new.len(),
            keys = caught.keys,
            ms = begun.elapsed().as_millis() as u64,
            index_bytes = heap,
            "keys of data files were read"
        );
        self.warn_of_duplicates(storage, &caught).await
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

    /// Returns how many bytes of memory the index may have.
    pub(crate) fn room(&self) -> usize {
        room(&self.memory, self.drawn_bytes)
    }

    /// Counts the memory that it takes now.
    fn count(&mut self) {
        let bytes =
            self.index().memory().heap + self.live.memory_bytes() + self.kept.memory_bytes();
        self.drawn_bytes = bytes as u64;
        self.drawn = Some(self.memory.draw(Use::KeyIndex, bytes as u64));
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
