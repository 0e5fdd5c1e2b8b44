//! Commits of compactions: new files take the place of old ones that have the same rows.
//!
//! ```text
//!  follow ─► inputs there? ─► deletes since ─► delete files of outputs ─► replace entries ─► list ─► submit
//!    ▲            │ no: dropped                                                                     │
//!    └────────────────────────────── conflict: on the snapshot that won ◄───────────────────────────┘
//! ```
//!
//! Rows that were deleted since the files were read are deleted in the new ones by the same commit. A row
//! is never written by it that is not live on the very snapshot that the commit builds on. An attempt that
//! is not applied leaves files that nobody lists, for the orphan job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use frazil_core::commit::action::Entropy;
use frazil_core::commit::outcome::{descends_from, has_moved, is_in_history};
use frazil_core::commit::plan::{self, Base};
use frazil_core::commit::summary::FileChanges;
use frazil_core::commit::upkeep::{self, Upkeep};
use frazil_core::control::segment::partition_number;
use frazil_core::delete::DeletionVector;
use frazil_core::limits::MANIFEST_TABLE_TURNS;
use frazil_core::maintain::moved::Moved;
use frazil_core::{ErrorKind, Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{DataFile, FormatVersion, ManifestFile, SchemaRef, Struct, TableMetadata};
use uuid::Uuid;

use super::Layout;
use super::committer::TableCommitter;
use super::list::{old_manifests, write_manifest_list};
use super::manifest::{build, build_at, metadata_location};
use super::replace::{ENTRIES_GONE, Removed, ReplacePlace, replace_entries};
use super::rewrite::EntryKey;
use super::run::{now_ms, request};
use super::wait::{Random, pause};
use crate::catalog::{CommitOutcome, LoadedTable, TableCommit};
use crate::delete::{Entries, FileDeletes, KnownDeletes, LiveFiles, write_deletes};
use crate::failpoint;
use crate::writer::beside_data;

/// Attempts before what was written is given up.
const ATTEMPTS: u32 = 10;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The job, as the summaries of its snapshots name it.
const JOB: &str = "rewrite_data_files";

/// The files of a branch, as one snapshot has them.
#[derive(Debug)]
pub(crate) struct Sighted {
    pub(crate) live: LiveFiles,
    pub(crate) snapshot_id: i64,
    /// The snapshot's sequence number.
    pub(crate) sequence: i64,
    /// The table's format version then.
    pub(crate) version: FormatVersion,
}

impl Sighted {
    fn new(version: FormatVersion) -> Self {
        Sighted {
            live: LiveFiles::default(),
            snapshot_id: 0,
            sequence: 0,
            version,
        }
    }

    /// Becomes true to the head that `base` builds on, which has these manifests.
    async fn follow(
        &mut self,
        loaded: &LoadedTable,
        base: &Base,
        manifests: &[ManifestFile],
    ) -> Result<()> {
        let reads = self.live.unseen(manifests).map(|listed| async move {
            let bytes = loaded.storage.get(&listed.manifest_path).await?;
            Entries::parse(listed, &bytes)
        });
        let reads: Vec<_> = reads.collect();
        let reads = futures::stream::iter(reads).buffered(MANIFEST_TABLE_TURNS);
        let entries = reads.try_collect().await?;
        if let Err(error) = self.live.follow(manifests, entries) {
            self.live = LiveFiles::default();
            return Err(error);
        }
        self.version = base.format_version;
        if let Some(head) = &base.parent {
            self.snapshot_id = head.snapshot_id();
            self.sequence = head.sequence_number();
        }
        Ok(())
    }
}

/// New files and those whose place they take.
#[derive(Debug)]
pub(crate) struct Compacted {
    /// The table that they were made for.
    pub(crate) table: Uuid,
    /// Its format version then.
    pub(crate) version: FormatVersion,
    /// The snapshot whose rows they have.
    pub(crate) read_at: i64,
    /// Its sequence number, which the new files get as theirs: deletes that came later apply to them as they
    /// did to the old ones.
    pub(crate) sequence: i64,
    /// How the new files were written.
    pub(crate) layout: Layout,
    pub(crate) partition: Struct,
    /// The old files with their deleted rows, in the order in which they were read.
    pub(crate) inputs: Vec<(Arc<str>, KnownDeletes)>,
    pub(crate) outputs: Vec<DataFile>,
    pub(crate) moved: Moved,
}

/// What became of new files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// The table has them.
    Done {
        snapshot_id: i64,
        /// Rows that were deleted while they were written.
        carried: u64,
        attempts: u32,
    },
    /// The table does not have them, and is as it was.
    Dropped(&'static str),
}

/// What one attempt came to.
enum Tried {
    Over(Replacement),
    /// Others were faster, or there was no clear answer; the snapshot that may still come.
    Again(SinkError, Option<i64>),
}

/// A request that is built.
struct Attempt {
    commit: TableCommit,
    manifest_list: (String, Bytes),
    carried: u64,
}

impl TableCommitter {
    /// Reads which files the branch has; `None` when it has no snapshot.
    pub(crate) async fn sight(&self) -> Result<Option<(LoadedTable, Sighted)>> {
        let loaded = self.reload().await?;
        let base = plan::base(&loaded.metadata, &self.identity.branch);
        if base.head.is_none() {
            return Ok(None);
        }
        let manifests = old_manifests(&loaded.storage, &base, Some(&self.list)).await?;
        let mut sighted = Sighted::new(base.format_version);
        sighted.follow(&loaded, &base, &manifests).await?;
        Ok(Some((loaded, sighted)))
    }

    /// Loads the table.
    pub(crate) async fn reload(&self) -> Result<LoadedTable> {
        let loaded = self.catalog.load_table(&self.ident).await?;
        plan::check_table(&loaded.metadata)?;
        Ok(loaded)
    }

    /// Tells whether a commit is under way.
    pub(crate) fn is_committing(&self) -> bool {
        self.turn.try_lock().is_err()
    }

    /// Puts new files in the place of old ones, if the branch has these still. `sighted` is true to it
    /// afterwards.
    ///
    /// # Errors
    ///
    /// What the catalog or the store says. The table has the new files or not; it has each row once.
    pub(crate) async fn replace_files(
        &self,
        compacted: &Compacted,
        sighted: &mut Sighted,
    ) -> Result<Replacement> {
        let commit_id = Uuid::now_v7();
        // Those of which it is not known whether they were applied.
        let mut unclear = Vec::new();
        let mut last = None;
        for attempt in 1..=ATTEMPTS {
            // What is new is read before anybody has to wait for this commit.
            let loaded = self.catalog.load_table(&self.ident).await?;
            self.follow(&loaded, sighted).await?;
            let tried = {
                let _turn = self.turn.lock().await;
                let loaded = self.catalog.load_table(&self.ident).await?;
                let head = |id: &&i64| {
                    let branch = &self.identity.branch;
                    loaded.metadata.snapshot_by_id(**id).is_some()
                        && is_in_history(&loaded.metadata, branch, **id)
                };
                if let Some(snapshot_id) = unclear.iter().find(head) {
                    return Ok(Replacement::Done {
                        snapshot_id: *snapshot_id,
                        carried: 0,
                        attempts: attempt - 1,
                    });
                }
                self.try_replace(&loaded, compacted, sighted, (commit_id, attempt))
                    .await?
            };
            match tried {
                Tried::Over(replacement) => return Ok(replacement),
                Tried::Again(error, may_come) => {
                    tracing::debug!(table = %self.ident, attempt, reason = %error.report(),
                        "a compaction is committed anew");
                    unclear.extend(may_come);
                    last = Some(error);
                }
            }
            let waiting = tokio::time::sleep(pause(attempt, PAUSE_MIN, PAUSE_MAX));
            if self.cancel.or(waiting).await.is_none() {
                return Ok(Replacement::Dropped("the connector stops"));
            }
        }
        match last {
            Some(error) if !unclear.is_empty() => Err(error),
            _ => Ok(Replacement::Dropped("other writers won every race")),
        }
    }

    async fn follow(&self, loaded: &LoadedTable, sighted: &mut Sighted) -> Result<()> {
        let base = plan::base(&loaded.metadata, &self.identity.branch);
        let manifests = old_manifests(&loaded.storage, &base, Some(&self.list)).await?;
        sighted.follow(loaded, &base, &manifests).await
    }

    async fn try_replace(
        &self,
        loaded: &LoadedTable,
        compacted: &Compacted,
        sighted: &mut Sighted,
        (commit_id, attempt): (Uuid, u32),
    ) -> Result<Tried> {
        let metadata = &loaded.metadata;
        plan::check_table(metadata)?;
        let branch = &self.identity.branch;
        if let Some(why) = compacted.unfit(metadata, branch) {
            return Ok(Tried::Over(Replacement::Dropped(why)));
        }
        let base = plan::base(metadata, branch);
        let old = old_manifests(&loaded.storage, &base, Some(&self.list)).await?;
        sighted.follow(loaded, &base, &old).await?;
        let snapshot_id = Random.snapshot_id();
        let work = Work {
            loaded,
            base: &base,
            compacted,
            live: &sighted.live,
            name: format!("frazil-{}-{commit_id}-{snapshot_id}", self.identity.wid),
            commit_id,
            snapshot_id,
            attempt,
            branch,
        };
        let made = match work.make(old).await {
            Ok(Ok(made)) => made,
            Ok(Err(why)) => return Ok(Tried::Over(Replacement::Dropped(why))),
            Err(error) if error.code() == ENTRIES_GONE => return Ok(Tried::Again(error, None)),
            Err(error) => return Err(error),
        };
        failpoint::pass("maintain.before-submit")?;
        let outcome = self.catalog.commit(loaded, made.commit).await;
        failpoint::pass("maintain.after-submit")?;
        match outcome {
            CommitOutcome::Committed(now) => {
                // The next commit of this process begins with it.
                self.remember(&now);
                self.committed();
                let (location, bytes) = made.manifest_list;
                self.list.set(location, bytes);
                self.follow(&now, sighted).await?;
                Ok(Tried::Over(Replacement::Done {
                    snapshot_id,
                    carried: made.carried,
                    attempts: attempt,
                }))
            }
            CommitOutcome::Unknown(error) => Ok(Tried::Again(error, Some(snapshot_id))),
            CommitOutcome::Conflict(error) if error.kind() == ErrorKind::Retriable => {
                Ok(Tried::Again(error, None))
            }
            CommitOutcome::Refused(error) => {
                let now = self.catalog.load_table(&self.ident).await?;
                match has_moved(metadata, &now.metadata) {
                    true => Ok(Tried::Again(error, None)),
                    false => Err(error),
                }
            }
            CommitOutcome::Conflict(error) | CommitOutcome::Unauthorized(error) => Err(error),
        }
    }
}

impl Compacted {
    /// Says why the files are of no use for the table as it is now.
    fn unfit(&self, metadata: &TableMetadata, branch: &str) -> Option<&'static str> {
        if metadata.uuid() != self.table {
            return Some("the table was replaced");
        }
        if metadata.format_version() != self.version {
            return Some("the table was upgraded");
        }
        if metadata.snapshot_for_ref(branch).is_none() {
            return Some("the branch is gone");
        }
        if !descends_from(metadata, branch, self.read_at) {
            return Some("the branch was rolled back");
        }
        let is_known = metadata.partition_spec_by_id(self.layout.spec_id).is_some()
            && metadata.schema_by_id(self.layout.schema_id).is_some();
        (!is_known)
            .then_some("the table has forgotten the schema or the partition spec of the files")
    }
}

/// One attempt, on one snapshot.
struct Work<'a> {
    loaded: &'a LoadedTable,
    base: &'a Base,
    compacted: &'a Compacted,
    live: &'a LiveFiles,
    /// What the names of its files begin with.
    name: String,
    commit_id: Uuid,
    snapshot_id: i64,
    attempt: u32,
    branch: &'a str,
}

/// The deletes of an attempt.
struct Deletes {
    /// The deleted rows of each new file.
    of_outputs: Vec<DeletionVector>,
    removed: Removed,
}

impl Work<'_> {
    /// Writes what the snapshot consists of, or says why there is none.
    async fn make(&self, old: Vec<ManifestFile>) -> Result<Result<Attempt, &'static str>> {
        let inputs = &self.compacted.inputs;
        if !inputs
            .iter()
            .all(|(path, _)| self.live.data.contains_key(path))
        {
            return Ok(Err("a file was replaced or emptied meanwhile"));
        }
        let Some(deletes) = self.deletes().await? else {
            return Ok(Err("deleted rows came back meanwhile"));
        };
        let mut files = FileChanges::default();
        let new = self.new_manifests(&deletes.of_outputs, &mut files).await?;
        let old = self.replaced(old, &deletes.removed, &mut files).await?;
        let LoadedTable {
            metadata, storage, ..
        } = self.loaded;
        let (snapshot_id, attempt, commit_id) = (self.snapshot_id, self.attempt, self.commit_id);
        let manifest_list = format!(
            "{}/snap-{snapshot_id}-{attempt}-{commit_id}.avro",
            metadata_location(metadata)
        );
        let written =
            write_manifest_list(storage, self.base, snapshot_id, new, old, &manifest_list).await?;
        let upkeep = Upkeep {
            branch: self.branch,
            job: JOB,
            commit_id,
            snapshot_id,
            now_ms: now_ms(),
            files: &files,
            manifest_list: &manifest_list,
            row_range: written.row_range,
        };
        let commit = request(upkeep::replace(metadata, self.base, &upkeep)?);
        let carried = deletes.of_outputs.iter().map(DeletionVector::len).sum();
        Ok(Ok(Attempt {
            commit,
            manifest_list: (manifest_list, written.bytes),
            carried,
        }))
    }

    /// Finds the deleted rows of the new files, and the deletes that go with the old ones; `None` when rows
    /// came back.
    async fn deletes(&self) -> Result<Option<Deletes>> {
        let inputs = &self.compacted.inputs;
        let paths: BTreeSet<Arc<str>> = inputs.iter().map(|(path, _)| Arc::clone(path)).collect();
        let before: BTreeMap<&str, &KnownDeletes> = inputs
            .iter()
            .map(|(path, known)| (&**path, known))
            .collect();
        let kept = |path: &str| before.get(path).map(|known| (*known).clone());
        let mut known = self
            .live
            .deletes_of(&self.loaded.storage, &paths, kept)
            .await?;
        let mut now = Vec::with_capacity(inputs.len());
        let mut removed = Removed::default();
        for (path, _) in inputs {
            let known = known.remove(path).unwrap_or_default();
            removed.data.insert(EntryKey::of_file(&**path));
            removed.deletes.extend(known.replaced);
            removed.deletes.extend(self.live.own_deletes(path));
            now.push(known.vector);
        }
        let of_outputs = self.compacted.moved.deleted_since(&now)?;
        Ok(of_outputs.map(|of_outputs| Deletes {
            of_outputs,
            removed,
        }))
    }

    /// Writes the manifests of the new files, without those that have no row left, and of their deletes.
    async fn new_manifests(
        &self,
        deleted: &[DeletionVector],
        files: &mut FileChanges,
    ) -> Result<Vec<ManifestFile>> {
        let LoadedTable {
            metadata, storage, ..
        } = self.loaded;
        let Layout { schema_id, spec_id } = self.compacted.layout;
        let lost = || SinkError::internal("the layout of new files is not known");
        let spec = metadata.partition_spec_by_id(spec_id).ok_or_else(lost)?;
        let schema: &SchemaRef = metadata.schema_by_id(schema_id).ok_or_else(lost)?;
        let outputs = self.compacted.outputs.iter().zip(deleted);
        let needed: Vec<_> = outputs
            .filter(|(file, deleted)| deleted.len() < file.record_count())
            .collect();
        let deletes = needed.iter().filter(|(_, deleted)| !deleted.is_empty());
        let deletes: Vec<FileDeletes> = deletes
            .map(|(file, deleted)| FileDeletes {
                data_file: file.file_path().to_owned(),
                spec_id,
                partition: self.compacted.partition.clone(),
                vector: (*deleted).clone(),
            })
            .collect();
        let name = self.name.clone();
        let prefix = beside_data(metadata.location(), metadata.properties(), name)?;
        let version = metadata.format_version();
        let deletes = write_deletes(storage, version, &prefix, &deletes).await?;
        let data: Vec<DataFile> = needed.iter().map(|(file, _)| (*file).clone()).collect();
        let mut made = Vec::new();
        if !data.is_empty() {
            let sequence = self.compacted.sequence;
            made.push(build_at(version, schema.clone(), spec, data, sequence).await?);
        }
        if !deletes.is_empty() {
            made.push(build(version, schema.clone(), spec, deletes).await?);
        }
        let mut manifests = Vec::with_capacity(made.len());
        for (number, built) in made.into_iter().enumerate() {
            let mut manifest = built.manifest;
            let place = metadata_location(metadata);
            manifest.manifest_path = format!("{place}/{}-c{number}-m.avro", self.name);
            manifest.manifest_length = built.bytes.len() as i64;
            let bytes = Bytes::from(built.bytes);
            storage.put(&manifest.manifest_path, bytes).await?;
            files.added.add(&built.counts);
            files.partitions.extend(built.partitions);
            manifests.push(manifest);
        }
        Ok(manifests)
    }

    /// Takes the old files and their deletes off the manifests of the parent.
    async fn replaced(
        &self,
        mut old: Vec<ManifestFile>,
        removed: &Removed,
        files: &mut FileChanges,
    ) -> Result<Vec<ManifestFile>> {
        // Those without a live entry stay behind with the parent.
        let none = |count: Option<u32>| count == Some(0);
        old.retain(|one| !(none(one.added_files_count) && none(one.existing_files_count)));
        let among = self.live.manifests_of(&removed.data, &removed.deletes);
        let place = ReplacePlace {
            storage: &self.loaded.storage,
            metadata: &self.loaded.metadata,
            commit_id: self.commit_id,
            snapshot_id: self.snapshot_id,
            among: Some(&among),
            kept: &|_| None,
        };
        let replaced = replace_entries(&place, old, removed).await?;
        files.removed = replaced.counts;
        let Layout { spec_id, .. } = self.compacted.layout;
        let partition = &self.compacted.partition;
        files
            .partitions
            .insert(partition_number(spec_id, partition));
        Ok(replaced.manifests)
    }
}
