//! What the commit loop asks a loaded table: the loop runs over table metadata in a worker and over
//! the simulator's tables, by the same code.

use std::sync::Arc;

use iceberg::spec::TableMetadata;
use uuid::Uuid;

use super::outcome;
use super::plan::check_table;
use super::recover::state_of;
use super::state::WriterState;
use crate::error::Result;

/// A table as one load, or the answer to one commit, showed it.
pub trait TableView: Clone {
    /// Returns the table's UUID.
    fn uuid(&self) -> Uuid;

    /// Refuses tables that Frazil does not write.
    fn check(&self) -> Result<()>;

    /// Returns the state of writer `wid` for `branch`; `None` when it never committed to it.
    fn writer_state(&self, wid: &str, branch: &str) -> Result<Option<WriterState>>;

    /// Tells whether `now` is this table after a change that may make a catalog refuse a commit
    /// that was built on `self`.
    fn has_moved(&self, now: &Self) -> bool;

    /// Tells whether `snapshot_id` is the head of `branch` or one of its ancestors.
    fn is_in_history(&self, branch: &str, snapshot_id: i64) -> bool;

    /// Tells whether what is known of `snapshot_id` holds for the head of `branch` ([`outcome::descends_from`]).
    fn descends_from(&self, branch: &str, snapshot_id: i64) -> bool {
        self.has_snapshot(snapshot_id) && self.is_in_history(branch, snapshot_id)
    }

    /// Tells whether the table has the snapshot, on any branch or none.
    fn has_snapshot(&self, snapshot_id: i64) -> bool;

    /// Tells whether the table has the partition spec.
    fn has_spec(&self, spec_id: i32) -> bool;
}

impl TableView for Arc<TableMetadata> {
    fn uuid(&self) -> Uuid {
        self.as_ref().uuid()
    }

    fn check(&self) -> Result<()> {
        check_table(self)
    }

    fn writer_state(&self, wid: &str, branch: &str) -> Result<Option<WriterState>> {
        state_of(self, wid, branch)
    }

    fn has_moved(&self, now: &Self) -> bool {
        outcome::has_moved(self, now)
    }

    fn is_in_history(&self, branch: &str, snapshot_id: i64) -> bool {
        outcome::is_in_history(self, branch, snapshot_id)
    }

    fn descends_from(&self, branch: &str, snapshot_id: i64) -> bool {
        outcome::descends_from(self, branch, snapshot_id)
    }

    fn has_snapshot(&self, snapshot_id: i64) -> bool {
        self.snapshot_by_id(snapshot_id).is_some()
    }

    fn has_spec(&self, spec_id: i32) -> bool {
        self.partition_spec_by_id(spec_id).is_some()
    }
}
