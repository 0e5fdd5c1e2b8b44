//! Which records of a put are new.

use std::collections::BTreeMap;

use crate::control::writer::WriterProgress;
use crate::offsets::TopicPartition;

/// Tells the new records of one put from those that were delivered before and those that will come
/// again. A partition may have several runs of records, and their offsets may overlap.
#[derive(Debug)]
pub struct Intake<'a> {
    progress: &'a WriterProgress,
    open: bool,
    next: BTreeMap<TopicPartition, i64>,
}

/// The new records of one run.
#[derive(Debug)]
pub struct RunIntake<'a> {
    next: Option<&'a mut i64>,
}

impl<'a> Intake<'a> {
    pub(super) fn new(progress: &'a WriterProgress, open: bool) -> Self {
        Intake {
            progress,
            open,
            next: BTreeMap::new(),
        }
    }

    /// Begins a run of records of `partition`.
    pub fn run(&mut self, partition: &TopicPartition) -> RunIntake<'_> {
        // What a partition delivers before a rewind that was asked for comes again (R16), and so does
        // what it delivers before one that is still to come.
        if !self.open || self.progress.is_rewinding(partition) {
            return RunIntake { next: None };
        }
        let known = self.progress.next(partition).unwrap_or(i64::MIN);
        RunIntake {
            next: Some(self.next.entry(partition.clone()).or_insert(known)),
        }
    }
}

impl RunIntake<'_> {
    /// Tells whether the record at `offset` is new. Ask once for each record, in their order.
    pub fn is_new(&mut self, offset: i64) -> bool {
        let Some(next) = self.next.as_deref_mut() else {
            return false;
        };
        let new = offset >= *next;
        if new {
            *next = offset.saturating_add(1);
        }
        new
    }
}
