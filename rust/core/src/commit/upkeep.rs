//! Plans the commits of maintenance: snapshots that change files and no row.
//!
//! They are of no writer: neither its name nor its offsets are in them, and no property is set. So
//! the state of every writer is after them what it was before, wherever it is kept.

use iceberg::spec::{Operation, Summary, TableMetadata};
use uuid::Uuid;

use super::plan::{Base, CommitPlan, Placed, refused, requirements, snapshot};
use super::summary::{FileChanges, MAINTENANCE, MAINTENANCE_ID, counters};
use crate::error::Result;

/// One attempt to replace files by others with the same rows.
#[derive(Debug, Clone)]
pub struct Upkeep<'a> {
    /// The branch.
    pub branch: &'a str,
    /// The job, such as `rewrite_data_files`.
    pub job: &'static str,
    /// The id of the commit, the same for all attempts.
    pub commit_id: Uuid,
    /// The snapshot's id, another one for each attempt.
    pub snapshot_id: i64,
    /// The time, in milliseconds since the epoch.
    pub now_ms: i64,
    /// What becomes of the table's files.
    pub files: &'a FileChanges,
    /// The location of the manifest list.
    pub manifest_list: &'a str,
    /// The first row id and the number of row ids given out; required in format version 3.
    pub row_range: Option<(u64, u64)>,
}

/// Plans the commit on `metadata`: a snapshot of the operation `replace`.
///
/// # Errors
///
/// `SNAPSHOT_REFUSED`.
pub fn replace(metadata: &TableMetadata, base: &Base, upkeep: &Upkeep<'_>) -> Result<CommitPlan> {
    let FileChanges {
        added,
        removed,
        partitions,
    } = upkeep.files;
    let parent = base.parent.as_ref().map(|parent| parent.summary());
    let mut entries = counters(added, removed, parent);
    entries.insert("changed-partition-count", partitions.len().to_string());
    entries.insert("engine-name", "frazil".into());
    entries.insert("engine-version", env!("CARGO_PKG_VERSION").into());
    entries.insert(MAINTENANCE, upkeep.job.into());
    entries.insert(MAINTENANCE_ID, upkeep.commit_id.to_string());
    let entries = entries.into_iter();
    let summary = Summary {
        operation: Operation::Replace,
        additional_properties: entries
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    };
    let placed = Placed {
        snapshot_id: upkeep.snapshot_id,
        now_ms: upkeep.now_ms,
        manifest_list: upkeep.manifest_list,
        row_range: upkeep.row_range,
    };
    let snapshot = snapshot(metadata, base, &placed, summary)?;
    let built = metadata
        .clone()
        .into_builder(None)
        .set_branch_snapshot(snapshot, upkeep.branch)
        .and_then(|builder| builder.build());
    Ok(CommitPlan {
        requirements: requirements(metadata, base, upkeep.branch),
        updates: built
            .map_err(|error| refused(upkeep.branch, error))?
            .changes,
    })
}
