//! What one task knows about its partitions: which offsets it has read, which of them are rows that
//! no snapshot holds yet, and hence which offset Connect may commit.
//!
//! Keeps: the durable offset of a partition never passes a row that is open or unacknowledged, and
//! never moves while a rewind is pending (R5, R16). Does not: see records, files or clocks.
//!
//! ```text
//!            admit            wrote            seal             outcome
//!  run ─────────────► rows ─────────► open ─────────► unacked ─────────► durable
//!                                                        │ rejected
//!                                                        ▼
//!                                     redo: new session, rewind to durable
//! ```

use std::collections::{BTreeMap, VecDeque};

use uuid::Uuid;

use crate::offsets::{SourceRange, TopicPartition};
use crate::rules::{Rule, enforced};

/// The index of a table in the task's configuration.
pub type TableIndex = usize;

/// Where a task stands with one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Partition {
    /// The next offset expected; `None` until the first record or offset request.
    next: Option<i64>,
    /// Where this session began to read; `None` until the first record or offset request.
    start: Option<i64>,
    /// The offset below which everything is durable; `None` until it is known.
    durable: Option<i64>,
    /// A rewind was asked for and the framework has not done it yet.
    rewinding: bool,
    /// The newest timestamp of the records that were read, rows or not.
    newest_ms: Option<i64>,
    /// It was said, or needs no saying, that tables hold the first records already.
    replay_told: bool,
}

impl Partition {
    /// What the framework delivers and asks before it has done a rewind says nothing (R16).
    fn is_frozen(&self) -> bool {
        self.rewinding && enforced(Rule::FrozenRewind)
    }
}

/// The rows of one partition that a table holds in open files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OpenRows {
    lowest: i64,
    highest: i64,
    timestamp_max_ms: Option<i64>,
}

/// A sealed segment that waits for its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unacked {
    sequence: u64,
    lowest: BTreeMap<TopicPartition, i64>,
}

/// What one table holds of this session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Table {
    sequence: u64,
    open: BTreeMap<TopicPartition, OpenRows>,
    sealed_to: BTreeMap<TopicPartition, i64>,
    unacked: VecDeque<Unacked>,
    /// The first segment that will never be committed, and neither will those after it.
    lost_from: Option<u64>,
    bound: BTreeMap<TopicPartition, Option<i64>>,
    /// The table takes no more rows in this session.
    is_blocked: bool,
    /// The lowest row of each partition that came since.
    awaited: BTreeMap<TopicPartition, i64>,
}

/// What a sealed segment says about its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The session.
    pub session: Uuid,
    /// The number of this segment in its session and table, from 0.
    pub sequence: u64,
    /// The lowest number of this session and table that has no outcome yet.
    pub first_unacked: u64,
    /// The claims, one per partition that has rows in the segment.
    pub ranges: Vec<SourceRange>,
    /// The offset that Connect was told last of each of these partitions: the connector needs
    /// nothing below it.
    pub watermarks: BTreeMap<TopicPartition, i64>,
}

/// The offsets that a task has read, holds and has made durable.
#[derive(Debug, Clone)]
pub struct WriterProgress {
    session: Uuid,
    partitions: BTreeMap<TopicPartition, Partition>,
    tables: Vec<Table>,
}

impl WriterProgress {
    /// Begins session `session` of a task with `tables` tables.
    pub fn new(session: Uuid, tables: usize) -> Self {
        WriterProgress {
            session,
            partitions: BTreeMap::new(),
            tables: vec![Table::default(); tables],
        }
    }

    /// Takes another table in and returns its index. The session holds nothing of it yet.
    pub fn add_table(&mut self) -> TableIndex {
        self.tables.push(Table::default());
        self.tables.len() - 1
    }

    /// Returns the id of the current session.
    pub fn session(&self) -> Uuid {
        self.session
    }

    /// Takes over partitions. Returns `true` when the session still holds rows of one of them from
    /// an earlier assignment: the caller must then [`redo`](Self::redo).
    #[must_use]
    pub fn assign(&mut self, partitions: &[TopicPartition]) -> bool {
        let leftovers = partitions.iter().any(|partition| self.holds(partition));
        for partition in partitions {
            self.partitions
                .insert(partition.clone(), Partition::default());
            for table in &mut self.tables {
                table.bound.remove(partition);
                table.sealed_to.remove(partition);
            }
        }
        leftovers
    }

    /// Gives partitions up. What their tables still hold may be committed later all the same.
    pub fn revoke(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.partitions.remove(partition);
        }
    }

    /// Returns the partitions of this task.
    pub fn assigned(&self) -> impl Iterator<Item = &TopicPartition> {
        self.partitions.keys()
    }

    /// Tells whether a table holds rows of `partition` that are not durable.
    pub fn holds(&self, partition: &TopicPartition) -> bool {
        self.lowest_held(partition).is_some()
    }

    /// Tells whether any table holds rows that are not durable.
    pub fn holds_any(&self) -> bool {
        self.tables
            .iter()
            .any(|table| !table.open.is_empty() || !table.unacked.is_empty())
    }

    /// Segment `sequence` of `table` will never be committed.
    pub fn lost(&mut self, table: TableIndex, sequence: u64) {
        if let Some(table) = self.tables.get_mut(table) {
            let lost_from = table.lost_from.map_or(sequence, |lost| lost.min(sequence));
            table.lost_from = Some(lost_from);
        }
    }

    /// Tells whether a segment may still turn out to be in its table.
    pub fn awaits_answers(&self) -> bool {
        self.tables.iter().any(|table| {
            let lost_from = table.lost_from.unwrap_or(u64::MAX);
            let oldest = table.unacked.front();
            oldest.is_some_and(|unacked| unacked.sequence < lost_from)
        })
    }

    /// Tells whether `table` holds rows in open files.
    pub fn has_open(&self, table: TableIndex) -> bool {
        self.tables
            .get(table)
            .is_some_and(|table| !table.open.is_empty())
    }

    /// Returns how many segments of `table` wait for their outcome.
    pub fn unacked(&self, table: TableIndex) -> usize {
        self.tables
            .get(table)
            .map_or(0, |table| table.unacked.len())
    }

    /// Returns how many offsets were read of which `table` has rows that no result says to be durable,
    /// or that are behind such rows: of each partition the distance to the lowest of them.
    pub fn lag(&self, table: TableIndex) -> BTreeMap<&TopicPartition, u64> {
        let mut lag = BTreeMap::new();
        let Some(table) = self.tables.get(table) else {
            return lag;
        };
        let open = table
            .open
            .iter()
            .map(|(partition, rows)| (partition, rows.lowest));
        let unacked = table.unacked.iter().flat_map(|unacked| &unacked.lowest);
        for (partition, lowest) in unacked
            .map(|(partition, lowest)| (partition, *lowest))
            .chain(open)
        {
            let next = self.next(partition).unwrap_or(lowest);
            let behind = u64::try_from(next.saturating_sub(lowest)).unwrap_or(0);
            let most = lag.entry(partition).or_insert(0);
            *most = behind.max(*most);
        }
        lag
    }

    /// Returns the number that the next segment of `table` will have.
    pub fn next_sequence(&self, table: TableIndex) -> u64 {
        self.tables.get(table).map_or(0, |table| table.sequence)
    }

    /// A new `put` begins: the framework has done the rewinds that were asked for before.
    pub fn put_begins(&mut self) {
        for partition in self.partitions.values_mut() {
            partition.rewinding = false;
        }
    }

    /// Records of `partition` came, the first of them at offset `first`. When it is not known yet
    /// where this session began to read the partition, it is known now: a rewind can go there.
    pub fn begins(&mut self, partition: &TopicPartition, first: i64) {
        if !self.partitions.contains_key(partition) {
            self.partitions
                .insert(partition.clone(), Partition::default());
        }
        // What comes before a rewind says nothing about where the partition goes on after it.
        if let Some(state) = self.partitions.get_mut(partition)
            && !state.is_frozen()
        {
            state.start.get_or_insert(first);
            state.next.get_or_insert(first);
        }
    }

    /// The records from offset `first` to offset `last` were read, whatever became of them: each is
    /// a row that a table [holds](Self::wrote), was rejected, or has no row. Those below the next
    /// offset expected were delivered again: skip them (see [`next`](Self::next)).
    pub fn read(&mut self, partition: &TopicPartition, first: i64, last: i64) {
        self.begins(partition, first);
        if let Some(state) = self.partitions.get_mut(partition)
            && !state.is_frozen()
        {
            let next = last.saturating_add(1);
            state.next = Some(state.next.map_or(next, |known| known.max(next)));
        }
    }

    /// The newest of the records that were read of `partition` has this timestamp.
    pub fn seen(&mut self, partition: &TopicPartition, newest_ms: Option<i64>) {
        if let Some(state) = self.partitions.get_mut(partition)
            && !state.is_frozen()
        {
            state.newest_ms = state.newest_ms.max(newest_ms);
        }
    }

    /// Tells, once for each assignment of `partition`, that its first records are in a table.
    pub fn tell_replay(&mut self, partition: &TopicPartition) -> bool {
        self.partitions
            .get_mut(partition)
            .is_some_and(|state| !std::mem::replace(&mut state.replay_told, true))
    }

    /// Tells whether the framework still has to rewind `partition`: what it delivers of it before
    /// it does will come again (R16).
    pub fn is_rewinding(&self, partition: &TopicPartition) -> bool {
        self.partitions
            .get(partition)
            .is_some_and(Partition::is_frozen)
    }

    /// Returns the next offset expected of `partition`.
    pub fn next(&self, partition: &TopicPartition) -> Option<i64> {
        self.partitions.get(partition).and_then(|state| state.next)
    }

    /// Returns the next offset expected of each partition.
    pub(super) fn positions(&self) -> BTreeMap<TopicPartition, i64> {
        let all = self.partitions.iter();
        let all = all.filter_map(|(partition, state)| Some((partition.clone(), state.next?)));
        all.collect()
    }

    /// Tells whether the partitions are read to these offsets, as far as they are of this task still.
    pub(super) fn has_read(&self, to: &BTreeMap<TopicPartition, i64>) -> bool {
        let mut to = to.iter();
        to.all(|(partition, to)| {
            let state = self.partitions.get(partition);
            state.is_none_or(|state| state.next.is_some_and(|next| next >= *to))
        })
    }

    /// Returns the offset below which `table` holds every row of `partition` already: outer `None`
    /// when the table's state was not read yet for this partition.
    pub fn bound(&self, table: TableIndex, partition: &TopicPartition) -> Option<Option<i64>> {
        self.tables.get(table)?.bound.get(partition).copied()
    }

    /// Tells whether a partition of this task has no [bound](Self::bound) in `table` yet.
    pub fn lacks_bounds(&self, table: TableIndex) -> bool {
        self.tables.get(table).is_some_and(|table| {
            self.partitions
                .keys()
                .any(|partition| !table.bound.contains_key(partition))
        })
    }

    /// Remembers what the table's state says about `partition`.
    pub fn set_bound(&mut self, table: TableIndex, partition: &TopicPartition, bound: Option<i64>) {
        if let Some(table) = self.tables.get_mut(table) {
            table.bound.insert(partition.clone(), bound);
        }
    }

    /// `table` holds, in open files, rows of `partition` from offset `lowest` to offset `highest`.
    pub fn wrote(
        &mut self,
        table: TableIndex,
        partition: &TopicPartition,
        (lowest, highest): (i64, i64),
        timestamp_max_ms: Option<i64>,
    ) {
        let Some(table) = self.tables.get_mut(table) else {
            return;
        };
        let open = table.open.entry(partition.clone()).or_insert(OpenRows {
            lowest,
            highest,
            timestamp_max_ms,
        });
        open.lowest = open.lowest.min(lowest);
        open.highest = open.highest.max(highest);
        open.timestamp_max_ms = open.timestamp_max_ms.max(timestamp_max_ms);
    }

    /// `table` takes no more rows in this session.
    pub fn block(&mut self, table: TableIndex) {
        if let Some(table) = self.tables.get_mut(table) {
            table.is_blocked = true;
        }
    }

    /// Tells whether `table` [takes no more rows](Self::block).
    pub fn is_blocked(&self, table: TableIndex) -> bool {
        self.tables.get(table).is_some_and(|table| table.is_blocked)
    }

    /// `table` was to get the row of `partition` at `offset` and [is blocked](Self::block): nothing
    /// from there on is durable, and no segment of the table claims it.
    pub fn awaits(&mut self, table: TableIndex, partition: &TopicPartition, offset: i64) {
        if let Some(table) = self.tables.get_mut(table) {
            let lowest = table.awaited.entry(partition.clone()).or_insert(offset);
            *lowest = offset.min(*lowest);
        }
    }

    /// Turns the open rows of `table` into a segment. Returns `None` when there are none.
    ///
    /// Call only when the dead letter queue has acknowledged every record read so far (R4).
    pub fn seal(&mut self, table: TableIndex) -> Option<Sealed> {
        let table = self.tables.get_mut(table)?;
        if table.open.is_empty() {
            return None;
        }
        let open = std::mem::take(&mut table.open);
        let mut ranges = Vec::with_capacity(open.len());
        let mut lowest = BTreeMap::new();
        let mut watermarks = BTreeMap::new();
        for (partition, rows) in open {
            let state = self.partitions.get(&partition);
            let start = table
                .sealed_to
                .get(&partition)
                .copied()
                .or_else(|| state.and_then(|state| state.start));
            // A partition that was revoked since has no `next`: the claim ends with its last row.
            let past_rows = rows.highest.saturating_add(1);
            let end = state
                .and_then(|state| state.next)
                .map_or(past_rows, |next| next.max(past_rows));
            let awaited = table.awaited.get(&partition).copied();
            let end = awaited.map_or(end, |awaited| end.min(awaited));
            table.sealed_to.insert(partition.clone(), end);
            lowest.insert(partition.clone(), rows.lowest);
            if let Some(durable) = state.and_then(|state| state.durable) {
                watermarks.insert(partition.clone(), durable);
            }
            let newest_ms = state.and_then(|state| state.newest_ms);
            ranges.push(SourceRange {
                partition,
                start,
                end,
                lowest: Some(rows.lowest),
                timestamp_max_ms: rows.timestamp_max_ms.max(newest_ms),
            });
        }
        let sequence = table.sequence;
        table.sequence += 1;
        table.unacked.push_back(Unacked { sequence, lowest });
        let first_unacked = table
            .unacked
            .front()
            .map_or(sequence, |unacked| unacked.sequence);
        Some(Sealed {
            session: self.session,
            sequence,
            first_unacked,
            ranges,
            watermarks,
        })
    }

    /// The segment `sequence` of `table` and session `session` is in a snapshot. Answers for other
    /// sessions or for segments that are not the oldest are ignored (R6): returns whether it counted.
    pub fn durable(&mut self, session: Uuid, table: TableIndex, sequence: u64) -> bool {
        let Some(table) = self.tables.get_mut(table) else {
            return false;
        };
        let Some(oldest) = table.unacked.front() else {
            return false;
        };
        let named = session == self.session && oldest.sequence == sequence;
        if !named && enforced(Rule::OutcomeNamed) {
            return false;
        }
        table.unacked.pop_front();
        true
    }

    /// Answers Connect's `preCommit` for one partition: the offset that may be committed, or `None`
    /// when nothing is known yet (the framework then keeps its own).
    pub fn pre_commit(&mut self, partition: &TopicPartition, asked: i64) -> Option<i64> {
        if self.is_rewinding(partition) {
            return self.durable_offset(partition, asked);
        }
        let lowest_held = match enforced(Rule::DurableOffset) {
            true => self.lowest_held(partition),
            false => None,
        };
        let state = self.partitions.get_mut(partition)?;
        let next = state.next.map_or(asked, |next| next.max(asked));
        state.next = Some(next);
        state.start.get_or_insert(asked);
        let durable = lowest_held
            .unwrap_or(next)
            .max(state.durable.unwrap_or(i64::MIN));
        state.durable = Some(durable);
        Some(durable.min(asked))
    }

    /// Answers Connect's `preCommit` as [`pre_commit`](Self::pre_commit) does, and moves nothing:
    /// for a session that has failed or has to start over, whose offsets must stand still.
    pub fn durable_offset(&self, partition: &TopicPartition, asked: i64) -> Option<i64> {
        let state = self.partitions.get(partition)?;
        let durable = state.durable.or(state.start)?;
        Some(durable.min(asked))
    }

    /// Discards everything that is open or unacknowledged and begins session `session`. Returns the
    /// rewinds that the framework has to do: each partition's durable offset, or where this session
    /// began when that is not known. Without `settled` no record counts as done only because no table
    /// holds it: it may be a dead letter that is not acknowledged.
    pub fn redo(&mut self, session: Uuid, settled: bool) -> Vec<(TopicPartition, i64)> {
        let mut rewinds = Vec::new();
        let held: BTreeMap<TopicPartition, i64> = self
            .partitions
            .keys()
            .filter_map(|partition| Some((partition.clone(), self.lowest_held(partition)?)))
            .collect();
        for (partition, state) in &mut self.partitions {
            // What was read is durable or settled below the lowest row held, even when Connect has
            // not asked since. Records that are being taken just now are not read yet.
            let read = match (state.next, held.get(partition)) {
                (Some(next), Some(lowest)) => Some(next.min(*lowest)),
                (next, _) => next,
            };
            let read = read.filter(|_| settled);
            let safe = state.durable.or(state.start);
            let target = safe.map(|safe| read.map_or(safe, |read| read.max(safe)));
            if let Some(target) = target {
                rewinds.push((partition.clone(), target));
            }
            *state = Partition {
                durable: target,
                rewinding: target.is_some(),
                // That records come again is the session's own doing now.
                replay_told: true,
                ..Partition::default()
            };
        }
        let tables = self.tables.len();
        self.session = session;
        self.tables = vec![Table::default(); tables];
        rewinds
    }

    /// Tells whether a session that starts over would read the record of `partition` at `offset` again.
    pub(super) fn may_come_again(&self, partition: &TopicPartition, offset: i64) -> bool {
        let next = self.next(partition).unwrap_or(i64::MIN);
        let lowest = self.lowest_held(partition);
        offset >= lowest.map_or(next, |lowest| lowest.min(next))
    }

    fn lowest_held(&self, partition: &TopicPartition) -> Option<i64> {
        self.tables
            .iter()
            .flat_map(|table| {
                let open = table.open.get(partition).map(|rows| rows.lowest);
                let unacked = table
                    .unacked
                    .iter()
                    .filter_map(|unacked| unacked.lowest.get(partition).copied());
                let awaited = table.awaited.get(partition).copied();
                open.into_iter().chain(unacked).chain(awaited)
            })
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(partition: i32) -> TopicPartition {
        TopicPartition::new("t", partition)
    }

    fn session(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn read_rows(progress: &mut WriterProgress, table: TableIndex, offsets: std::ops::Range<i64>) {
        for offset in offsets {
            progress.read(&p(0), offset, offset);
            progress.wrote(table, &p(0), (offset, offset), Some(offset * 10));
        }
    }

    #[test]
    fn the_next_offset_never_goes_back() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        assert_eq!(progress.next(&p(0)), None);
        progress.read(&p(0), 5, 7);
        assert_eq!(progress.next(&p(0)), Some(8));
        progress.read(&p(0), 5, 6);
        assert_eq!(progress.next(&p(0)), Some(8), "delivered again");
        progress.read(&p(0), 9, 9);
        assert_eq!(progress.next(&p(0)), Some(10), "gaps are legal");
    }

    #[test]
    fn the_offset_stays_below_rows_that_are_not_durable() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        assert_eq!(progress.pre_commit(&p(0), 3), Some(3));
        read_rows(&mut progress, 0, 3..8);
        assert_eq!(progress.pre_commit(&p(0), 8), Some(3));
        let sealed = progress.seal(0).expect("rows are open");
        assert_eq!(sealed.ranges[0].start, Some(3));
        assert_eq!(sealed.ranges[0].end, 8);
        assert_eq!(sealed.ranges[0].lowest, Some(3));
        assert_eq!(sealed.ranges[0].timestamp_max_ms, Some(70));
        assert_eq!(progress.pre_commit(&p(0), 8), Some(3));
        assert!(progress.durable(session(1), 0, 0));
        assert_eq!(progress.pre_commit(&p(0), 8), Some(8));
    }

    // Promise: A table that a record names later holds no offset back before it has rows, and then only below them.
    #[test]
    fn a_table_that_comes_later_counts_from_its_first_row_on() {
        let mut progress = WriterProgress::new(session(1), 0);
        assert!(!progress.assign(&[p(0)]));
        progress.read(&p(0), 3, 9);
        assert_eq!(progress.pre_commit(&p(0), 10), Some(10));
        let table = progress.add_table();
        assert!(
            progress.lacks_bounds(table),
            "its bounds are read before its first row"
        );
        progress.set_bound(table, &p(0), Some(12));
        assert_eq!(progress.pre_commit(&p(0), 12), Some(12));
        read_rows(&mut progress, table, 12..14);
        assert_eq!(progress.pre_commit(&p(0), 14), Some(12));
        let sealed = progress.seal(table).expect("rows are open");
        assert_eq!(
            (sealed.ranges[0].start, sealed.ranges[0].end),
            (Some(3), 14)
        );
        assert!(progress.durable(session(1), table, sealed.sequence));
        assert_eq!(progress.pre_commit(&p(0), 14), Some(14));
        assert_eq!(progress.redo(session(2), true), vec![(p(0), 14)]);
        assert!(
            progress.lacks_bounds(table),
            "a new session reads them again"
        );
    }

    #[test]
    fn the_slower_table_holds_the_offset_back() {
        let mut progress = WriterProgress::new(session(1), 2);
        assert!(!progress.assign(&[p(0)]));
        for offset in 0..4 {
            progress.read(&p(0), offset, offset);
            progress.wrote(0, &p(0), (offset, offset), None);
            progress.wrote(1, &p(0), (offset, offset), None);
        }
        let fast = progress.seal(0).expect("rows are open");
        assert!(progress.durable(session(1), 0, fast.sequence));
        assert_eq!(progress.pre_commit(&p(0), 4), Some(0));
        let slow = progress.seal(1).expect("rows are open");
        assert!(progress.durable(session(1), 1, slow.sequence));
        assert_eq!(progress.pre_commit(&p(0), 4), Some(4));
    }

    #[test]
    fn a_blocked_table_holds_the_offset_and_no_segment_claims_its_rows() {
        let mut progress = WriterProgress::new(session(1), 2);
        assert!(!progress.assign(&[p(0)]));
        for offset in 0..6 {
            progress.read(&p(0), offset, offset);
            progress.wrote(0, &p(0), (offset, offset), None);
            match offset {
                0..3 => progress.wrote(1, &p(0), (offset, offset), None),
                _ => {
                    progress.block(1);
                    progress.awaits(1, &p(0), offset);
                }
            }
        }
        assert!(progress.is_blocked(1) && !progress.is_blocked(0));
        for (table, end) in [(0, 6), (1, 3)] {
            let sealed = progress.seal(table).expect("rows are open");
            assert_eq!(sealed.ranges[0].end, end);
            assert!(progress.durable(session(1), table, sealed.sequence));
        }
        assert_eq!(progress.pre_commit(&p(0), 6), Some(3));
        assert!(!progress.holds_any(), "nothing to wait for");
        assert_eq!(progress.redo(session(2), true), vec![(p(0), 3)]);
        assert!(!progress.is_blocked(1), "it is tried again");
    }

    #[test]
    fn a_pending_rewind_freezes_the_offset() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        assert_eq!(progress.pre_commit(&p(0), 2), Some(2));
        read_rows(&mut progress, 0, 2..6);
        assert_eq!(progress.redo(session(2), true), vec![(p(0), 2)]);
        assert_eq!(
            progress.pre_commit(&p(0), 6),
            Some(2),
            "the framework has not rewound yet"
        );
        progress.put_begins();
        assert_eq!(progress.pre_commit(&p(0), 2), Some(2));
        progress.read(&p(0), 2, 2);
        assert_eq!(progress.next(&p(0)), Some(3), "the rows come again");
        assert!(
            !progress.durable(session(1), 0, 0),
            "an answer for the old session counts nothing"
        );
    }

    #[test]
    fn a_rewind_goes_to_the_first_row_that_is_not_durable() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        read_rows(&mut progress, 0, 0..5);
        let sealed = progress.seal(0).expect("rows are open");
        read_rows(&mut progress, 0, 5..9);
        assert!(progress.durable(session(1), 0, sealed.sequence));
        assert_eq!(progress.redo(session(2), true), vec![(p(0), 5)]);
    }

    #[test]
    fn a_rewind_repeats_records_that_were_not_read_to_the_end() {
        let mut progress = WriterProgress::new(session(1), 2);
        assert!(!progress.assign(&[p(0), p(1)]));
        progress.read(&p(0), 0, 4);
        assert_eq!(progress.pre_commit(&p(0), 5), Some(5));
        // A frame of offsets 5 to 9: one table took rows from 8 on, the other one failed.
        progress.begins(&p(0), 5);
        progress.begins(&p(1), 30);
        progress.wrote(0, &p(0), (8, 9), None);
        assert_eq!(progress.redo(session(2), true), vec![(p(0), 5), (p(1), 30)]);
        assert!(progress.is_rewinding(&p(0)) && progress.is_rewinding(&p(1)));
        progress.read(&p(0), 10, 12);
        assert_eq!(progress.next(&p(0)), None, "offset 5 has not come yet");
        assert_eq!(
            progress.redo(session(3), true),
            vec![(p(0), 5), (p(1), 30)],
            "and once more before anything came"
        );
        progress.put_begins();
        assert!(!progress.is_rewinding(&p(0)));
    }

    #[test]
    fn a_rewind_repeats_records_that_are_not_settled() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        progress.read(&p(0), 3, 4);
        progress.wrote(0, &p(0), (4, 4), None);
        assert_eq!(progress.redo(session(2), false), vec![(p(0), 3)]);
    }

    #[test]
    fn an_offset_can_be_asked_for_without_moving_it() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        assert_eq!(progress.durable_offset(&p(0), 4), None);
        progress.begins(&p(0), 4);
        assert_eq!(progress.durable_offset(&p(0), 9), Some(4));
        assert_eq!(progress.pre_commit(&p(0), 6), Some(6));
        assert_eq!(progress.durable_offset(&p(0), 9), Some(6));
        assert_eq!(progress.durable_offset(&p(0), 5), Some(5));
        assert_eq!(progress.durable_offset(&p(1), 5), None, "not ours");
    }

    #[test]
    fn the_lag_of_a_table_is_the_distance_to_its_lowest_row_that_is_not_durable() {
        let mut progress = WriterProgress::new(session(1), 2);
        assert!(!progress.assign(&[p(0)]));
        progress.read(&p(0), 0, 9);
        progress.wrote(0, &p(0), (4, 6), None);
        assert_eq!(progress.lag(0), BTreeMap::from([(&p(0), 6)]));
        progress.seal(0).expect("rows are open");
        progress.wrote(0, &p(0), (8, 8), None);
        assert_eq!(progress.lag(0), BTreeMap::from([(&p(0), 6)]), "in flight");
        assert!(progress.durable(session(1), 0, 0));
        assert_eq!(progress.lag(0), BTreeMap::from([(&p(0), 2)]));
        assert!(progress.lag(1).is_empty() && progress.lag(9).is_empty());
    }

    #[test]
    fn outcomes_count_only_in_order() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        read_rows(&mut progress, 0, 0..2);
        progress.seal(0).expect("rows are open");
        read_rows(&mut progress, 0, 2..4);
        let second = progress.seal(0).expect("rows are open");
        assert_eq!((second.sequence, second.first_unacked), (1, 0));
        assert!(!progress.durable(session(1), 0, 1));
        assert!(progress.durable(session(1), 0, 0));
        assert!(progress.durable(session(1), 0, 1));
    }

    #[test]
    fn a_partition_that_returns_with_rows_still_held_asks_for_a_new_session() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0), p(1)]));
        read_rows(&mut progress, 0, 0..3);
        let sealed = progress.seal(0).expect("rows are open");
        assert_eq!(sealed.ranges[0].end, 3);
        progress.revoke(&[p(0)]);
        assert!(progress.assign(&[p(0)]));
    }

    #[test]
    fn a_revoked_partition_claims_all_its_rows() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        read_rows(&mut progress, 0, 0..7);
        progress.revoke(&[p(0)]);
        assert_eq!(progress.seal(0).expect("rows are open").ranges[0].end, 7);
    }

    #[test]
    fn records_without_rows_move_the_offset() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        progress.read(&p(0), 0, 0);
        assert_eq!(
            progress.pre_commit(&p(0), 11),
            Some(11),
            "filtered and aborted records count"
        );
        assert_eq!(progress.seal(0), None);
    }

    #[test]
    fn an_outcome_of_an_old_session_acknowledges_nothing() {
        let mut progress = WriterProgress::new(session(1), 1);
        assert!(!progress.assign(&[p(0)]));
        read_rows(&mut progress, 0, 0..3);
        progress.seal(0).expect("rows are open");
        assert_eq!(progress.redo(session(2), true), vec![(p(0), 0)]);
        progress.put_begins();
        read_rows(&mut progress, 0, 0..3);
        let again = progress.seal(0).expect("rows are open");
        assert_eq!(again.sequence, 0, "the numbers begin anew");
        assert!(!progress.durable(session(1), 0, 0));
        assert_eq!(progress.pre_commit(&p(0), 3), Some(0));
        assert!(progress.durable(session(2), 0, 0));
        assert_eq!(progress.pre_commit(&p(0), 3), Some(3));
    }
}
