//! What a task shows of itself: counted as it happens, or looked up a few times a second.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use frazil_core::metrics::{ConnectorMetric, TaskMetric};
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::Frame;

use super::Inner;
use super::table::TableSlot;
use crate::metrics::{Behind, wall_ms};

/// The least time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(450);

/// What only the metrics want to know of a task.
#[derive(Debug, Default)]
pub(super) struct Shown {
    looked: Option<Instant>,
    paused: Option<Instant>,
}

/// Since when the rows of a table wait that are in no snapshot.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    open_ms: Option<i64>,
    /// Those of segments, by their numbers.
    sealed: VecDeque<(u64, i64)>,
}

impl Waiting {
    /// Rows were taken at `now_ms`.
    pub(super) fn took(&mut self, now_ms: i64) {
        self.open_ms.get_or_insert(now_ms);
    }

    /// The rows that were open became the segment `sequence`.
    pub(super) fn sealed(&mut self, sequence: u64) {
        if let Some(since_ms) = self.open_ms.take() {
            self.sealed.push_back((sequence, since_ms));
        }
    }

    /// The segment `sequence` is in a snapshot; returns since when its oldest row waited.
    pub(super) fn durable(&mut self, sequence: u64) -> Option<i64> {
        let mut waited = None;
        while let Some((first, since_ms)) = self.sealed.front().copied()
            && first <= sequence
        {
            self.sealed.pop_front();
            waited = (first == sequence).then_some(since_ms);
        }
        waited
    }

    fn since_ms(&self) -> Option<i64> {
        let sealed = self.sealed.front().map(|(_, since_ms)| *since_ms);
        sealed.or(self.open_ms)
    }
}

impl Inner {
    /// Counts a frame of `bytes` that Java handed over.
    pub(super) fn count_frame(&self, frame: &Frame<'_>, bytes: usize) {
        let metrics = &self.context.metrics;
        metrics.add(TaskMetric::RecordsReceived, frame.rows() as u64);
        metrics.add(TaskMetric::BytesReceived, bytes as u64);
    }

    /// Counts the rows that were read before: those that are not `new` and that Java could encode.
    pub(super) fn count_repeated(&self, frame: &Frame<'_>, new: &[bool]) {
        let rows = new.iter().enumerate();
        let repeated = rows.filter(|(row, new)| !**new && !frame.is_skipped(*row));
        let repeated = repeated.count() as u64;
        if repeated > 0 {
            let metrics = &self.context.metrics;
            metrics.add(TaskMetric::RecordsRepeated, repeated);
        }
    }

    /// Counts a schema that was asked of the registry.
    pub(super) fn count_registry(&self, failed: bool) {
        let values = &self.context.metrics.connector().values;
        values.add(ConnectorMetric::RegistryRequests, 1);
        values.add(ConnectorMetric::RegistryErrors, u64::from(failed));
    }

    /// Bytes became rows since `begun`.
    pub(super) fn count_decoding(&self, begun: Instant) {
        let metrics = &self.context.metrics;
        metrics.add_time(TaskMetric::DecodeTime, begun.elapsed());
    }

    /// Rows became columns since `begun`, when `written` was counted of the time to write.
    pub(super) fn count_converting(&self, begun: Instant, written: i64) {
        let metrics = &self.context.metrics;
        let writing = metrics.values.get(TaskMetric::WriteTime) - written;
        let writing = Duration::from_nanos(u64::try_from(writing).unwrap_or(0));
        let converting = begun.elapsed().saturating_sub(writing);
        metrics.add_time(TaskMetric::ConvertTime, converting);
    }

    /// Notes whether the consumer has to be paused.
    pub(super) fn note_pause(&mut self, is_paused: bool) {
        let metrics = &self.context.metrics;
        match (self.shown.paused, is_paused) {
            (None, true) => {
                self.shown.paused = Some(Instant::now());
                metrics.add(TaskMetric::Pauses, 1);
            }
            (Some(since), false) => {
                self.shown.paused = None;
                metrics.add_time(TaskMetric::PausedTime, since.elapsed());
            }
            _ => return,
        }
        metrics.values.set(TaskMetric::Paused, i64::from(is_paused));
    }

    /// Looks at the state of the task, now and then.
    pub(super) fn look(&mut self) {
        let looked = self.shown.looked;
        if looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.shown.looked = Some(Instant::now());
        let progress = self.machine.progress();
        let (mut lag, mut oldest) = (BTreeMap::<&TopicPartition, u64>::new(), None);
        let (mut blocked, mut in_flight) = (0, 0);
        let task = self.context.metrics.number();
        for table in &self.tables {
            let of_table = progress.lag(table.index());
            let since_ms = table.waiting.since_ms();
            table.hub().metrics().behind(
                task,
                Some(Behind {
                    rows: table.open_rows(),
                    offsets: of_table.values().sum(),
                    since_ms,
                }),
            );
            for (partition, offsets) in of_table {
                let most = lag.entry(partition).or_insert(0);
                *most = offsets.max(*most);
            }
            oldest = [oldest, since_ms].into_iter().flatten().min();
            blocked += u64::from(progress.is_blocked(table.index()));
            in_flight += progress.unacked(table.index()) as u64;
        }
        let values = &self.context.metrics.values;
        values.set_count(TaskMetric::LagOffsets, lag.values().sum());
        values.set_since(TaskMetric::LagSince, oldest);
        values.set_count(TaskMetric::Tables, self.tables.len() as u64);
        values.set_count(TaskMetric::TablesBlocked, blocked);
        values.set_count(TaskMetric::SegmentsInFlight, in_flight);
        values.set_count(TaskMetric::Partitions, progress.assigned().count() as u64);
        let account = &self.context.account;
        values.set_count(TaskMetric::MemoryHeld, account.held());
        values.set_count(TaskMetric::MemoryShare, account.memory().share());
        let left_out = self.routes.left_out();
        values.set_count(TaskMetric::RecordsUnmatched, left_out.unmatched());
        values.set_count(TaskMetric::RecordsNull, left_out.nulls());
        values.set_count(TaskMetric::RecordsUnchanging, left_out.unchanging());
        values.set_since(TaskMetric::LastSeen, Some(wall_ms()));
    }

    /// The task ends: nothing of what it held waits in it any more.
    pub(super) fn stop_counting(&self) {
        let task = self.context.metrics.number();
        let hubs = self.tables.iter().map(TableSlot::hub);
        hubs.for_each(|hub| hub.metrics().behind(task, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_row_that_waits_is_known_until_its_segment_is_in_a_snapshot() {
        let mut waiting = Waiting::default();
        waiting.sealed(0);
        assert_eq!(waiting.since_ms(), None, "a segment without rows");
        for (sequence, now_ms) in [(1, 10), (2, 20)] {
            waiting.took(now_ms);
            waiting.took(now_ms + 5);
            waiting.sealed(sequence);
        }
        waiting.took(30);
        assert_eq!(waiting.since_ms(), Some(10));
        assert_eq!(waiting.durable(0), None);
        assert_eq!(waiting.durable(1), Some(10));
        assert_eq!(waiting.since_ms(), Some(20));
        assert_eq!(waiting.durable(2), Some(20));
        assert_eq!(waiting.since_ms(), Some(30));
    }
}
