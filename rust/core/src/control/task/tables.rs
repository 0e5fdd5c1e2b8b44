//! What a task knows of its tables: which one it writes, and where that one stands.
//!
//! A table's offsets are read when it is loaded, for each partition of the task once; again when
//! partitions came from other tasks. Once rows are missing in its open files, or may be, a table is
//! *spoiled*: nothing is sealed before the session has started over.

use std::collections::BTreeMap;
use std::fmt;

use uuid::Uuid;

use super::{ExternalChange, TaskMachine};
use crate::control::writer::TableIndex;
use crate::error::{Result, SinkError};
use crate::offsets::TopicPartition;
use crate::rules::{Rule, enforced};

/// A record that a table holds, by its offset, cannot be this much newer than all it holds.
const NEWER_MAX_MS: i64 = 3_600_000;

/// Where the task stands with one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TableState {
    /// The table that this session writes, whatever becomes of its name.
    uuid: Option<Uuid>,
    loaded: bool,
    /// Other tasks may have committed, or changed it, since it was loaded.
    stale: bool,
    /// Rows that the session counts on may be missing from the open files.
    pub(super) spoiled: bool,
    /// What its state said of each partition when the bound was read.
    held: BTreeMap<TopicPartition, Held>,
    /// Where the session before had read to when a commit of the table found errors among its records.
    pub(super) again_to: Option<BTreeMap<TopicPartition, i64>>,
}

impl TableState {
    /// `partitions` came from other tasks.
    pub(super) fn others_may_have_committed(&mut self, partitions: &[TopicPartition]) {
        self.stale = true;
        for partition in partitions {
            self.held.remove(partition);
        }
    }
}

/// What has to be loaded of a table before it takes rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadDue {
    /// Nothing.
    No,
    /// The table: no rows are open in it.
    Table,
    /// What it says of offsets: rows stay open in it as it was.
    Offsets,
}

/// What a table's state says of one partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// T: one past the last offset that the table holds.
    pub bound: Option<i64>,
    /// The lowest offset that the connector needed when it wrote the state.
    pub watermark: Option<i64>,
    /// The newest timestamp of the records below the bound.
    pub newest_ms: Option<i64>,
}

/// A table as it was loaded, and what its state says there.
#[derive(Clone, Copy)]
pub struct Standing<'a> {
    /// The table's UUID.
    pub uuid: Uuid,
    /// The writer epoch of the state; 0 without a state.
    pub epoch: u64,
    /// What the state says of a partition.
    pub held: &'a dyn Fn(&TopicPartition) -> Held,
}

impl fmt::Debug for Standing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing")
            .field("uuid", &self.uuid)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// Something that people should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The first records of a partition are in a table already, and skipped.
    Replayed {
        /// The connector's name.
        connector: String,
        /// The table.
        table: String,
        /// The partition.
        partition: TopicPartition,
        /// Where it is read from.
        first: i64,
        /// T: one past the last offset that the table holds.
        bound: i64,
    },
    /// A table takes no more rows, the others do.
    Blocked {
        /// The table.
        table: String,
        /// What has to be seen to.
        reason: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Blocked { table, reason } => write!(
                f,
                "table {table} takes no more rows until the task starts anew; the other tables go \
                 on, and the group's offset waits for it: {reason}"
            ),
            Notice::Replayed {
                connector,
                table,
                partition,
                first,
                bound,
            } => write!(
                f,
                "{partition} is read from offset {first}, and table {table} holds its rows up to \
                 {bound}: up to {} records are skipped. That is normal after a crash. To read them \
                 again on purpose, stop the connector and {}",
                bound.saturating_sub(*first),
                rest_command(connector, partition, *first)
            ),
        }
    }
}

impl TaskMachine {
    /// Tells what has to be loaded of `table` before it takes rows of this task's partitions.
    pub fn load_due(&self, table: TableIndex) -> LoadDue {
        let Some(state) = self.tables.get(table) else {
            return LoadDue::No;
        };
        if !state.loaded {
            return LoadDue::Table;
        }
        match state.stale || self.progress.lacks_bounds(table) {
            false => LoadDue::No,
            true if self.progress.has_open(table) => LoadDue::Offsets,
            true => LoadDue::Table,
        }
    }

    /// `table` was loaded or created, or its offsets were read again.
    ///
    /// # Errors
    ///
    /// `TABLE_REPLACED` (retriable) when it is not the table that the session began to write: the
    /// session has to start over. `RESET_UNSEEN` (retriable) when it holds offsets from before the
    /// reset that this task began after. `WRITER_FENCED` when its offsets were reset after the task began.
    pub fn table_loaded(&mut self, table: TableIndex, standing: &Standing<'_>) -> Result<()> {
        self.require_same(table, standing.uuid)?;
        if enforced(Rule::EpochFixed) {
            if standing.epoch > self.epoch {
                return Err(self.fence(table, standing.epoch));
            }
            self.require_reset(table, standing)?;
        } else {
            self.epoch = self.settings.epoch.max(standing.epoch);
        }
        let lacking: Vec<TopicPartition> = self
            .progress
            .assigned()
            .filter(|partition| self.progress.bound(table, partition).is_none())
            .cloned()
            .collect();
        for partition in lacking {
            let held = (standing.held)(&partition);
            self.progress.set_bound(table, &partition, held.bound);
            if let Some(state) = self.tables.get_mut(table) {
                state.held.insert(partition, held);
            }
        }
        if let Some(state) = self.tables.get_mut(table) {
            state.loaded = true;
            state.stale = false;
        }
        Ok(())
    }

    /// A catalog may answer with metadata from before the reset: by its offsets the records that are
    /// to be read again would be skipped.
    fn require_reset(&self, table: TableIndex, standing: &Standing<'_>) -> Result<()> {
        let mut assigned = self.progress.assigned();
        if standing.epoch == self.epoch
            || assigned.all(|partition| (standing.held)(partition).bound.is_none())
        {
            return Ok(());
        }
        Err(SinkError::retriable(
            "RESET_UNSEEN",
            "the table's offsets were reset, and its metadata does not say so yet; it is read again",
        )
        .with("table", self.table_name(table))
        .with("epoch", standing.epoch)
        .with("own", self.epoch))
    }

    /// The offsets that the session knows of its table say nothing about another one of that name.
    ///
    /// # Errors
    ///
    /// As [`table_loaded`](Self::table_loaded).
    pub fn require_same(&mut self, table: TableIndex, uuid: Uuid) -> Result<()> {
        let Some(state) = self.tables.get_mut(table) else {
            return Ok(());
        };
        if *state.uuid.get_or_insert(uuid) == uuid {
            return Ok(());
        }
        Err(self
            .replaced(table, "another one has its name")
            .with("uuid", uuid))
    }

    /// The table that the session writes is gone: returns the error that makes it start over.
    pub fn replaced(&mut self, table: TableIndex, how: &str) -> SinkError {
        self.spoil(table);
        SinkError::retriable(
            "TABLE_REPLACED",
            format!("the table is not the one that this task began to write: {how}"),
        )
    }

    /// `table` has another schema, partition spec or settings than when it was loaded: it is loaded
    /// again.
    pub fn table_changed(&mut self, table: TableIndex) {
        if let Some(state) = self.tables.get_mut(table) {
            state.stale = true;
        }
    }

    /// `table` takes no more rows in this session, for this reason.
    pub fn block(&mut self, table: TableIndex, reason: String) {
        self.progress.block(table);
        let table = self.table_name(table).to_owned();
        self.notices.push(Notice::Blocked { table, reason });
    }

    /// Tells whether `table` [takes no more rows](Self::block).
    pub fn is_blocked(&self, table: TableIndex) -> bool {
        self.progress.is_blocked(table)
    }

    /// `table`, which [is blocked](Self::block), was to get the row of `partition` at `offset`.
    pub fn awaits(&mut self, table: TableIndex, partition: &TopicPartition, offset: i64) {
        self.progress.awaits(table, partition, offset);
    }

    /// Rows of the open files of `table` may be missing, or rows be in them that are to come again.
    pub fn spoil(&mut self, table: TableIndex) {
        if let Some(state) = self.tables.get_mut(table) {
            state.spoiled = true;
        }
    }

    /// A frame failed half-way: one table may have rows of it that another has not.
    pub fn spoil_all(&mut self) {
        for state in &mut self.tables {
            state.spoiled = true;
        }
    }

    /// Tells whether the session has to start over before `table` may be sealed.
    pub fn is_spoiled(&self, table: TableIndex) -> bool {
        self.tables.get(table).is_some_and(|state| state.spoiled)
    }

    /// The driver begins to move rows of `table` to files: should that fail, some are missing.
    ///
    /// # Errors
    ///
    /// `INTERNAL` when they may be missing already.
    pub fn moving(&mut self, table: TableIndex) -> Result<()> {
        if self.is_spoiled(table) {
            return Err(SinkError::internal(
                "a table was used between a failure and a new start",
            ));
        }
        self.spoil(table);
        Ok(())
    }

    /// The rows that [were to be moved](Self::moving) are in the files, all of them.
    pub fn moved(&mut self, table: TableIndex) {
        if let Some(state) = self.tables.get_mut(table) {
            state.spoiled = false;
        }
    }

    /// Returns T: `table` holds every row of `partition` below it.
    pub fn bound(&self, table: TableIndex, partition: &TopicPartition) -> Option<i64> {
        self.progress.bound(table, partition).flatten()
    }

    /// Tells whether `table` holds the row of `partition` at `offset`, should it have one.
    pub fn is_covered(&self, table: TableIndex, partition: &TopicPartition, offset: i64) -> bool {
        self.bound(table, partition)
            .is_some_and(|bound| offset < bound)
    }

    /// Tells whether the record of `partition` at `offset` may be read again: `table` does not have it, and it,
    /// or a row before it, is not durable.
    pub fn may_come_again(
        &self,
        table: TableIndex,
        partition: &TopicPartition,
        offset: i64,
    ) -> bool {
        let is_held = self.progress.may_come_again(partition, offset);
        is_held && !self.is_covered(table, partition, offset)
    }

    /// Records of `partition` are skipped, since `table` [holds](Self::is_covered) them, the first
    /// of them at offset `first`, the oldest of time `oldest_ms`: looks whether they can be what the
    /// table got at those offsets, and whether somebody moved the group's offset.
    ///
    /// # Errors
    ///
    /// `TOPIC_RECREATED` when they are much newer than everything in the table; `OFFSETS_MOVED` when
    /// the offset was moved back and the settings say that this is no change to go along with.
    pub fn covered(
        &mut self,
        table: TableIndex,
        partition: &TopicPartition,
        first: i64,
        oldest_ms: Option<i64>,
    ) -> Result<()> {
        let state = self.tables.get(table);
        let held = state.and_then(|state| state.held.get(partition).copied());
        let held = held.unwrap_or_default();
        if let (Some(oldest), Some(newest)) = (oldest_ms, held.newest_ms)
            && oldest > newest.saturating_add(NEWER_MAX_MS)
        {
            return Err(self.topic_recreated(table, partition, first));
        }
        // Nothing of these records is to come: Connect should not wait for its next flush.
        self.commit_wanted = true;
        if !self.progress.tell_replay(partition) {
            return Ok(());
        }
        let moved = held.watermark.is_some_and(|watermark| first < watermark);
        if moved && self.settings.external_change == ExternalChange::Fail {
            return Err(self.offsets_moved(partition, first));
        }
        let notice = Notice::Replayed {
            connector: self.settings.connector.clone(),
            table: self.table_name(table).to_owned(),
            partition: partition.clone(),
            first,
            bound: held.bound.unwrap_or(first),
        };
        self.notices.push(notice);
        Ok(())
    }

    fn topic_recreated(
        &self,
        table: TableIndex,
        partition: &TopicPartition,
        offset: i64,
    ) -> SinkError {
        SinkError::fatal(
            "TOPIC_RECREATED",
            format!(
                "the topic seems to be another one than the table's offsets tell of: a record at an \
                 offset that the table holds is more than an hour newer than all it holds; set \
                 `frazil.writer.id` to a new id, or stop the connector and {}",
                rest_command(&self.settings.connector, partition, offset)
            ),
        )
        .with("table", self.table_name(table))
        .with("partition", partition)
        .with("offset", offset)
    }

    fn offsets_moved(&self, partition: &TopicPartition, offset: i64) -> SinkError {
        SinkError::fatal(
            "OFFSETS_MOVED",
            format!(
                "the group's offset was moved back, and not through Connect: to read again, stop \
                 the connector and {}; to go on and skip what the tables hold, set \
                 `frazil.offsets.external.change=warn`",
                rest_command(&self.settings.connector, partition, offset)
            ),
        )
        .with("partition", partition)
        .with("offset", offset)
    }
}

/// What moves an offset so that tables know of it.
fn rest_command(connector: &str, partition: &TopicPartition, offset: i64) -> String {
    format!(
        "send PATCH /connectors/{connector}/offsets with \
         {{\"offsets\":[{{\"partition\":{{\"kafka_topic\":\"{}\",\"kafka_partition\":{}}},\
         \"offset\":{{\"kafka_offset\":{offset}}}}}]}}",
        partition.topic, partition.partition
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::task::TaskSettings;

    fn machine(epoch: u64) -> TaskMachine {
        let settings = TaskSettings {
            connector: "c".into(),
            owner: "c task 0".into(),
            writer_id: "c".into(),
            tables: vec!["db.t".into()],
            epoch,
            segments_in_flight_max: 4,
            rejections_max: 5,
            rejection_window_ms: 600_000,
            block_max_ms: 900_000,
            drain_max_ms: 3_500,
            answers_max_ms: 8_000,
            external_change: ExternalChange::Warn,
        };
        let mut machine = TaskMachine::new(settings, Uuid::from_u128(1));
        machine.assign(&[TopicPartition::new("t", 0)]);
        machine
    }

    fn loaded(machine: &mut TaskMachine, epoch: u64, bound: Option<i64>) -> Result<()> {
        let held = |_: &TopicPartition| Held {
            bound,
            ..Held::default()
        };
        machine.table_loaded(
            0,
            &Standing {
                uuid: Uuid::from_u128(7),
                epoch,
                held: &held,
            },
        )
    }

    // Promise: A catalog that still answers with a table from before an offset reset makes no record be skipped.
    #[test]
    fn offsets_from_before_a_reset_are_not_believed() {
        let mut task = machine(1);
        let error = loaded(&mut task, 0, Some(40)).unwrap_err();
        assert_eq!(error.code(), "RESET_UNSEEN");
        assert_eq!(task.load_due(0), LoadDue::Table);
        loaded(&mut task, 1, Some(22)).unwrap();
        assert_eq!(task.bound(0, &TopicPartition::new("t", 0)), Some(22));
        loaded(&mut machine(1), 0, None).unwrap();
    }

    // Promise: What a table that appears later holds of the offsets is read before it takes a row, and again after a new start.
    #[test]
    fn a_table_that_comes_later_is_loaded_first() {
        let mut task = machine(0);
        loaded(&mut task, 0, Some(3)).unwrap();
        let later = task.add_table("db.later");
        assert_eq!((later, task.load_due(later)), (1, LoadDue::Table));
        let held = |_: &TopicPartition| Held {
            bound: Some(40),
            ..Held::default()
        };
        let standing = Standing {
            uuid: Uuid::from_u128(8),
            epoch: 0,
            held: &held,
        };
        task.table_loaded(later, &standing).unwrap();
        assert_eq!(task.load_due(later), LoadDue::No);
        let partition = TopicPartition::new("t", 0);
        assert!(task.is_covered(later, &partition, 39) && !task.is_covered(later, &partition, 40));
        assert_eq!(
            task.bound(0, &partition),
            Some(3),
            "each table knows its own"
        );
        task.assign(&[TopicPartition::new("t", 1)]);
        assert_eq!(
            task.load_due(later),
            LoadDue::Table,
            "another task may have written"
        );
    }
}
