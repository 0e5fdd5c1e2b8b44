//! Upkeep of tables: small files are joined, and files of which many rows are deleted are written
//! again (`docs/maintenance.md`).
//!
//! ```text
//!  sight ─► core::maintain::compact::plan ─► for each group: read and write ─► commit::compacted
//! ```
//!
//! It runs in the process that commits the table, beside the commits, or once by `frazil maintain`. Two
//! that run at a time are harmless: each commit asserts the head of the branch, and new files whose
//! old ones are gone are dropped.
//!
//! Architecture Invariant: nothing here touches the offsets in a table, and nothing deletes a file.

mod lineage;
mod pace;
mod read;
mod rewrite;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use frazil_core::config::{SinkConfig, TableConfig};
use frazil_core::maintain::compact::{CandidateFile, CompactionSettings, Group, plan};
use frazil_core::memory::Use;
use frazil_core::{Result, SinkError};
use iceberg::spec::{DataFile, DataFileFormat, FormatVersion, Struct};
use uuid::Uuid;

pub use pace::Pace;

use crate::catalog::{Catalog, LoadedTable};
use crate::commit::{Compacted, Layout, Replacement, Sighted, TableCommitter};
use crate::delete::KnownDeletes;
use crate::failpoint;
use crate::memory::Memory;
use read::Input;
use rewrite::{Rewriting, Rewritten, cancelled, needs};

/// How a table is looked after.
#[derive(Debug, Clone)]
pub struct Maintenance {
    /// What the configuration says of the table.
    pub config: TableConfig,
    /// Files of so many of its last commits are left alone.
    pub hot_commits: i64,
    /// Whether it is only told what would be done.
    pub dry_run: bool,
    /// How fast it goes.
    pub pace: Pace,
    /// The memory it draws from.
    pub memory: Arc<Memory>,
}

/// What a run found and did.
#[derive(Debug, Default)]
pub struct Report {
    /// Data files before.
    pub files: usize,
    /// Their length.
    pub bytes: u64,
    /// Delete files and deletion vectors before.
    pub delete_files: usize,
    /// Why nothing was done, where that is not for want of something to do.
    pub skipped: Option<&'static str>,
    /// The groups, in the order in which they were written again.
    pub groups: Vec<GroupReport>,
}

/// A group of files of one partition.
#[derive(Debug)]
pub struct GroupReport {
    /// The group as it was planned.
    pub group: Group,
    /// What became of it.
    pub outcome: GroupOutcome,
}

/// What became of a group.
#[derive(Debug)]
pub enum GroupOutcome {
    /// Nothing yet: it was only asked for.
    Planned,
    /// The table has new files in its place.
    Done {
        /// The snapshot.
        snapshot_id: i64,
        /// The new files.
        files: usize,
        /// Their length.
        bytes: u64,
        /// Rows that were deleted while they were written, and are in the new files too.
        carried: u64,
    },
    /// Others changed the table so that the new files are of no use, or there was no room to make any.
    Dropped(&'static str),
    /// It could not be done.
    Failed(SinkError),
}

impl Report {
    /// Tells whether something could not be done.
    pub fn has_failed(&self) -> bool {
        let mut outcomes = self.groups.iter().map(|one| &one.outcome);
        outcomes.any(|outcome| matches!(outcome, GroupOutcome::Failed(_)))
    }

    /// Returns how many groups were written again.
    pub fn done(&self) -> usize {
        let outcomes = self.groups.iter().map(|one| &one.outcome);
        outcomes
            .filter(|outcome| matches!(outcome, GroupOutcome::Done { .. }))
            .count()
    }
}

/// Looks after the branch of `committer` once.
///
/// # Errors
///
/// What the catalog or the store says when the table is read. What goes wrong with one group is in the
/// report, and the others go on.
pub async fn run(committer: &TableCommitter, maintenance: &Maintenance) -> Result<Report> {
    let Some((loaded, mut sighted)) = committer.sight().await? else {
        return Ok(Report::default());
    };
    let live = &sighted.live;
    let bytes = live.memory_bytes() as u64;
    let _held = maintenance.memory.draw(Use::Rewrites, bytes);
    let mut report = Report {
        files: live.data.len(),
        bytes: live.data.values().map(|file| file.bytes).sum(),
        delete_files: live.vectors.len() + live.positions().count(),
        ..Report::default()
    };
    let changes = maintenance.config.changes.as_ref();
    if changes.is_some_and(|changes| changes.once_within.is_some()) {
        // New files count as young as their snapshot, and would push younger rows out of the window.
        report.skipped = Some(
            "its rows are added once, and which of them are the newest is told by the ages of files",
        );
        return Ok(report);
    }
    if live.equality_deletes > 0 {
        report.skipped = Some("the table has equality deletes; another engine has to apply them");
        return Ok(report);
    }
    let (paths, groups) = groups(&loaded, &sighted, maintenance);
    for group in groups {
        let begun = Instant::now();
        let outcome = match maintenance.dry_run {
            true => GroupOutcome::Planned,
            false => {
                let files = group.files.iter().filter_map(|at| paths.get(*at));
                let work = compact(committer, maintenance, &mut sighted, &group, files);
                let work = committer.cancel_or(work).await;
                let outcome = work.unwrap_or_else(|| Err(cancelled()));
                outcome.unwrap_or_else(GroupOutcome::Failed)
            }
        };
        tell(committer, &group, &outcome, begun);
        report.groups.push(GroupReport { group, outcome });
        if committer.is_cancelled() {
            break;
        }
    }
    Ok(report)
}

/// Looks after a table once, at full speed: what `frazil maintain` does.
///
/// # Errors
///
/// As [`run`].
pub async fn once(
    sink: &SinkConfig,
    table: &TableConfig,
    catalog: &Arc<dyn Catalog>,
    dry_run: bool,
) -> Result<Report> {
    let committer = TableCommitter::new(
        Arc::clone(catalog),
        table.ident.clone(),
        table.branch.clone(),
        sink.wid.clone(),
        sink.connector.clone(),
    );
    let maintenance = Maintenance {
        config: table.clone(),
        hot_commits: 0,
        dry_run,
        pace: Pace::full(),
        memory: Memory::of_process(),
    };
    run(&committer, &maintenance).await
}

/// Chooses what is to be written again among the files of the branch.
fn groups(
    loaded: &LoadedTable,
    sighted: &Sighted,
    maintenance: &Maintenance,
) -> (Vec<Arc<str>>, Vec<Group>) {
    let live = &sighted.live;
    // After an upgrade to format version 3 rows have no ids before the next commit gives them some: those of
    // a file that was written again meanwhile would be lost.
    let wants_ids = sighted.version >= FormatVersion::V3;
    let files = live.data.iter();
    let files = files.filter(|(_, file)| {
        file.format == DataFileFormat::Parquet && (file.first_row_id.is_some() || !wants_ids)
    });
    let (paths, files): (Vec<Arc<str>>, Vec<CandidateFile>) = files
        .map(|(path, file)| {
            let spec_id = file.layout.spec_id;
            let candidate = CandidateFile {
                spec_id,
                partition: frazil_core::control::segment::partition_number(
                    spec_id,
                    &file.partition,
                ),
                bytes: file.bytes,
                rows: file.rows,
                deleted: live.deleted_rows(path),
                sequence: file.sequence,
            };
            (Arc::clone(path), candidate)
        })
        .unzip();
    let hot = maintenance.hot_commits;
    let settings = CompactionSettings::of(&loaded.metadata, &maintenance.config.write_props, hot);
    (paths, plan(&files, &settings))
}

/// Writes the files of a group again and commits that.
async fn compact(
    committer: &TableCommitter,
    maintenance: &Maintenance,
    sighted: &mut Sighted,
    group: &Group,
    paths: impl Iterator<Item = &Arc<str>>,
) -> Result<GroupOutcome> {
    if maintenance.memory.room() < needs(group.bytes) {
        return Ok(GroupOutcome::Dropped("there is no memory for it now"));
    }
    let loaded = committer.reload().await?;
    let paths: Vec<Arc<str>> = paths.cloned().collect();
    let Some((compacted, rewriting)) =
        begin(committer, maintenance, sighted, &loaded, &paths).await?
    else {
        return Ok(GroupOutcome::Dropped(
            "a file was replaced or emptied meanwhile",
        ));
    };
    failpoint::pass("maintain.after-plan")?;
    let Rewritten { files, moved } = rewriting.run().await?;
    failpoint::pass("maintain.after-write")?;
    let bytes = moved.memory_bytes() as u64;
    let _held = maintenance.memory.draw(Use::Rewrites, bytes);
    let count = files.len();
    let bytes: u64 = files.iter().map(DataFile::file_size_in_bytes).sum();
    let compacted = compacted.with(files, moved);
    let replacement = committer.replace_files(&compacted, sighted).await?;
    Ok(match replacement {
        Replacement::Done {
            snapshot_id,
            carried,
            ..
        } => GroupOutcome::Done {
            snapshot_id,
            files: count,
            bytes,
            carried,
        },
        Replacement::Dropped(why) => GroupOutcome::Dropped(why),
    })
}

/// What is known of a compaction before its files are written.
struct Begun {
    table: Uuid,
    version: FormatVersion,
    read_at: i64,
    sequence: i64,
    layout: Layout,
    partition: Struct,
    inputs: Vec<(Arc<str>, KnownDeletes)>,
}

impl Begun {
    fn with(self, outputs: Vec<DataFile>, moved: frazil_core::maintain::moved::Moved) -> Compacted {
        Compacted {
            table: self.table,
            version: self.version,
            read_at: self.read_at,
            sequence: self.sequence,
            layout: self.layout,
            partition: self.partition,
            inputs: self.inputs,
            outputs,
            moved,
        }
    }
}

/// Reads the deletes of the files, as the snapshot has them that was seen last; `None` when one of the
/// files is gone since they were chosen.
async fn begin(
    committer: &TableCommitter,
    maintenance: &Maintenance,
    sighted: &Sighted,
    loaded: &LoadedTable,
    paths: &[Arc<str>],
) -> Result<Option<(Begun, Rewriting)>> {
    let live = &sighted.live;
    let files: Option<Vec<_>> = paths.iter().map(|path| live.data.get(path)).collect();
    let Some((files, first)) = files.and_then(|files| Some((files.clone(), *files.first()?)))
    else {
        return Ok(None);
    };
    if live.equality_deletes > 0 {
        return Ok(None);
    }
    let metadata = &loaded.metadata;
    let spec = metadata.partition_spec_by_id(first.layout.spec_id);
    let Some(spec) = spec else {
        return Ok(None);
    };
    let wanted: BTreeSet<Arc<str>> = paths.iter().cloned().collect();
    let mut known = live.deletes_of(&loaded.storage, &wanted, |_| None).await?;
    let mut inputs = Vec::with_capacity(files.len());
    let mut deletes = Vec::with_capacity(files.len());
    for (path, file) in paths.iter().zip(files) {
        let known = known.remove(path).unwrap_or_default();
        inputs.push(Input {
            path: Arc::clone(path),
            bytes: file.bytes,
            rows: file.rows,
            deleted: known.vector.clone(),
            first_row_id: file.first_row_id,
            sequence: file.sequence,
        });
        deletes.push((Arc::clone(path), known));
    }
    let rewriting = Rewriting {
        metadata: Arc::clone(metadata),
        storage: loaded.storage.clone(),
        spec: Arc::clone(spec),
        partition: first.partition.clone(),
        inputs,
        config: maintenance.config.clone(),
        file_prefix: format!(
            "frazil-{}-{}-compacted",
            committer.wid(),
            Uuid::now_v7().simple()
        ),
        memory: Arc::clone(&maintenance.memory),
        pace: maintenance.pace.clone(),
        cancel: committer.cancel_token(),
    };
    let begun = Begun {
        table: metadata.uuid(),
        version: sighted.version,
        read_at: sighted.snapshot_id,
        sequence: sighted.sequence,
        layout: Layout {
            schema_id: metadata.current_schema_id(),
            spec_id: first.layout.spec_id,
        },
        partition: first.partition.clone(),
        inputs: deletes,
    };
    Ok(Some((begun, rewriting)))
}

fn tell(committer: &TableCommitter, group: &Group, outcome: &GroupOutcome, begun: Instant) {
    let (table, branch) = (committer.ident(), committer.branch());
    let (files, rows, bytes) = (group.files.len(), group.rows, group.bytes);
    let ms = begun.elapsed().as_millis() as u64;
    match outcome {
        GroupOutcome::Planned => {}
        GroupOutcome::Done {
            snapshot_id,
            files: new_files,
            bytes: new_bytes,
            carried,
        } => tracing::info!(%table, branch, snapshot_id, files, rows, bytes, new_files, new_bytes,
            carried, ms, "files were compacted"),
        GroupOutcome::Dropped(why) => tracing::info!(%table, branch, files, rows, bytes, ms, why,
            "files were not compacted; a later run does"),
        GroupOutcome::Failed(error) => tracing::warn!(%table, branch, files, rows, bytes, ms,
            code = error.code(), reason = %error.report(), "files cannot be compacted"),
    }
}
