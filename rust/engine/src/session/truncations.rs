//! Truncations of the source's table: which of them can be applied.
//!
//! What came before one is known by the offsets of its own partition alone. So a table that has changes of
//! another partition is not emptied: the record is refused. Where a task does not know yet what others have
//! committed, the commit rejects the segment, and the session, which starts over, loads the table.

use std::collections::BTreeSet;

use frazil_core::SinkError;
use frazil_core::change::{Change, Op};
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::Frame;
use uuid::Uuid;

use super::table::TableSlot;

/// The source partitions that a table has changes of, or will have.
#[derive(Debug, Default)]
pub(super) struct Sources {
    table: Option<Uuid>,
    partitions: BTreeSet<TopicPartition>,
}

impl Sources {
    /// The table was loaded, and has changes of `partitions`.
    pub(super) fn loaded(&mut self, table: Uuid, partitions: impl Iterator<Item = TopicPartition>) {
        if self.table.replace(table) != Some(table) {
            self.partitions.clear();
        }
        self.partitions.extend(partitions);
    }

    /// Takes in where the changes of a frame come from.
    fn add(&mut self, frame: &Frame<'_>, changes: &[Change]) {
        let mut last: Option<&TopicPartition> = None;
        for change in changes {
            let Some(partition) = source_of(frame, change) else {
                continue;
            };
            // The changes of a run stand together.
            if last.is_some_and(|last| std::ptr::eq(last, partition)) {
                continue;
            }
            if !self.partitions.contains(partition) {
                self.partitions.insert(partition.clone());
            }
            last = Some(partition);
        }
    }

    /// Returns another partition than that of `change`.
    fn other(&self, frame: &Frame<'_>, change: &Change) -> Option<&TopicPartition> {
        let own = source_of(frame, change);
        self.partitions.iter().find(|one| Some(*one) != own)
    }
}

fn source_of<'f>(frame: &'f Frame<'_>, change: &Change) -> Option<&'f TopicPartition> {
    let (run, _) = frame.source(change.row as usize)?;
    Some(&run.partition)
}

impl TableSlot {
    /// Takes the truncations out of `wanted`, and refuses them, that cannot be applied.
    pub(super) fn set_truncations_aside(
        &self,
        frame: &Frame<'_>,
        wanted: &mut Vec<Change>,
        refuse: &mut dyn FnMut(u32, SinkError),
    ) {
        let Some(reading) = &self.reading else {
            return;
        };
        let mut sources = reading.sources.borrow_mut();
        sources.add(frame, wanted);
        wanted.retain(|change| {
            let other = match change.op {
                Op::Truncate => sources.other(frame, change),
                _ => None,
            };
            let Some(other) = other else {
                return true;
            };
            refuse(change.row, unsure(other));
            false
        });
    }
}

fn unsure(other: &TopicPartition) -> SinkError {
    SinkError::data(
        "CHANGE_TRUNCATE_UNSURE",
        "the source's table was truncated, and the table here has changes of another partition, of which \
         nobody knows whether they came before: send all changes of the source's table through one partition \
         of one topic, or set `iceberg.table.<name>.truncate` to `ignore` and empty the table by hand",
    )
    .with("other", other)
}
