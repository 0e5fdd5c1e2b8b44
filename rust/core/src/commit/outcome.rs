//! What became of a segment, and how to tell it from table metadata after an unclear answer.

use std::sync::Arc;

use iceberg::spec::{SnapshotRef, TableMetadata};
use uuid::Uuid;

use super::recover::history;
use super::state::WriterState;
use super::validate::RejectReason;
use crate::error::SinkError;

/// What became of a segment.
#[derive(Debug, Clone)]
pub enum SegmentOutcome {
    /// Its rows are in the table.
    Durable {
        /// The snapshot that brought them.
        snapshot_id: i64,
    },
    /// The table had its rows already.
    Covered,
    /// Its files may not be committed; its session is dead.
    Rejected(RejectReason),
    /// The offsets were reset after its session began.
    Fenced {
        /// The writer epoch of the table.
        epoch: u64,
    },
    /// The table takes no commit; nothing is known to be lost, the same segment may be tried again.
    Blocked(Arc<SinkError>),
}

impl SegmentOutcome {
    /// Tells whether the table holds the segment's rows.
    pub fn is_done(&self) -> bool {
        matches!(
            self,
            SegmentOutcome::Durable { .. } | SegmentOutcome::Covered
        )
    }
}

/// The codes of refusals that no waiting cures. A repeated attempt could even do harm: a catalog
/// that does not store the offsets takes the rows again each time.
const FINAL_CODES: [&str; 5] = [
    "TABLE_ROLLED_BACK",
    "TABLE_OWNED_ELSEWHERE",
    "STATE_NOT_STORED",
    "STATE_TOO_LARGE",
    "INDEX_TOO_LARGE",
];

/// Returns the code of a refusal that no waiting cures, if `report` is that of one: the tasks stop at
/// once.
pub fn final_code(report: &str) -> Option<&'static str> {
    FINAL_CODES.into_iter().find(|code| report.contains(code))
}

/// Tells whether `state` was written by the commit `commit_id`.
pub fn is_made_by(state: Option<&WriterState>, commit_id: Uuid) -> bool {
    state.is_some_and(|state| state.commit_id == commit_id)
}

/// Tells whether the table moved in a way that may make a catalog refuse a commit that was built
/// on `base`: some answer 400 to a stale sequence number instead of 409.
pub fn has_moved(base: &TableMetadata, now: &TableMetadata) -> bool {
    base.uuid() != now.uuid()
        || base.last_sequence_number() != now.last_sequence_number()
        || base.next_row_id() != now.next_row_id()
        || base.current_schema_id() != now.current_schema_id()
        || base.default_partition_spec_id() != now.default_partition_spec_id()
        || base.format_version() != now.format_version()
}

/// Tells whether `snapshot_id` is the head of `branch` or one of its ancestors; those of the main
/// branch when there is no such branch yet, since its first commit would build on them. A snapshot
/// from before the oldest ancestor that has not expired passes for one.
pub fn is_in_history(metadata: &TableMetadata, branch: &str, snapshot_id: i64) -> bool {
    let mut oldest = None;
    for snapshot in history(metadata, branch) {
        if snapshot.snapshot_id() == snapshot_id {
            return true;
        }
        oldest = Some(snapshot);
    }
    let is_cut = oldest.is_some_and(|oldest| oldest.parent_snapshot_id().is_some());
    let before = |asked: &SnapshotRef| {
        oldest.is_some_and(|oldest| asked.sequence_number() < oldest.sequence_number())
    };
    is_cut && metadata.snapshot_by_id(snapshot_id).is_some_and(before)
}

/// Tells whether what is known of the snapshot `snapshot_id` holds for its descendant, the head of `branch`:
/// it is in its history, or was the parent of the oldest snapshot there that has not expired. Of one that
/// expired longer ago nobody can tell whether the branch was rolled back behind it.
pub fn descends_from(metadata: &TableMetadata, branch: &str, snapshot_id: i64) -> bool {
    let is_there = metadata.snapshot_by_id(snapshot_id).is_some();
    let oldest = || history(metadata, branch).last();
    match is_there {
        true => is_in_history(metadata, branch, snapshot_id),
        false => oldest().is_some_and(|one| one.parent_snapshot_id() == Some(snapshot_id)),
    }
}

/// Returns the error of a branch that was rolled back behind the writer's last commit, snapshot
/// `snapshot_id`.
pub fn rolled_back(snapshot_id: i64) -> SinkError {
    SinkError::fatal(
        "TABLE_ROLLED_BACK",
        "the branch was rolled back behind the last commit of this connector; reset the connector's offsets to write the rows again that went, or set `frazil.rollback.policy=warn` to go on without them",
    )
    .with("snapshot", snapshot_id)
}
