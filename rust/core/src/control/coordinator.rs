//! The queue of one table: which segments may be committed next, and in which order.
//!
//! Keeps: the segments of a session are committed in the order of their numbers (R2, R9), and
//! after a rejection nothing more of that session is (R15). Does not: load tables, commit, or wait.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::segment::Segment;

/// Ended sessions that a queue remembers. They are forgotten oldest first (ids are ordered by
/// time); what comes of one even later is refused by the table's own offsets.
const DEAD_MAX: usize = 1_024;

/// What became of a segment that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It will be in a batch.
    Accepted,
    /// It came before, or it has its outcome already.
    Duplicate,
    /// Segments before it are missing; it waits for them.
    Held,
    /// Its session was rejected; it will never be committed.
    Dead,
}

/// The segments of one table that wait for a commit.
#[derive(Debug, Default)]
pub struct TableQueue {
    expected: BTreeMap<Uuid, u64>,
    dead: BTreeSet<Uuid>,
    held: BTreeMap<(Uuid, u64), Segment>,
    ready: Vec<Segment>,
}

impl TableQueue {
    /// Takes a segment in, if its session lives and its turn may come.
    pub fn offer(&mut self, segment: Segment) -> Offer {
        if self.dead.contains(&segment.session) {
            return Offer::Dead;
        }
        let sequence = segment.seq;
        let expected = match self.expected.get(&segment.session) {
            Some(expected) => (*expected).max(segment.first_unacked),
            None => segment.first_unacked,
        };
        self.expected.insert(segment.session, expected);
        if sequence < expected {
            return Offer::Duplicate;
        }
        let session = segment.session;
        let earlier = self.held.insert((session, sequence), segment);
        self.release(session);
        match earlier {
            Some(_) => Offer::Duplicate,
            None if self.held.contains_key(&(session, sequence)) => Offer::Held,
            None => Offer::Accepted,
        }
    }

    /// Returns the segments that may be committed now, sessions in the order of arrival and the
    /// segments of a session in the order of their numbers, and forgets them.
    pub fn take_batch(&mut self) -> Vec<Segment> {
        std::mem::take(&mut self.ready)
    }

    /// Tells whether a batch is ready.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Tells whether `session` was ended: none of its segments may be committed any more (R15).
    pub fn is_dead(&self, session: Uuid) -> bool {
        self.dead.contains(&session)
    }

    /// Ends a session, after a rejection or because its task is gone: returns what it still had here.
    pub fn end_session(&mut self, session: Uuid) -> Vec<Segment> {
        self.dead.insert(session);
        if self.dead.len() > DEAD_MAX {
            self.dead.pop_first();
        }
        self.expected.remove(&session);
        let (mut dropped, kept): (Vec<Segment>, Vec<Segment>) = std::mem::take(&mut self.ready)
            .into_iter()
            .partition(|segment| segment.session == session);
        self.ready = kept;
        let mut rest = self.held.split_off(&(session, 0));
        let later = rest.split_off(&(session, u64::MAX));
        dropped.extend(rest.into_values());
        self.held.extend(later);
        dropped
    }

    /// Moves what is next in turn from `held` to `ready`.
    fn release(&mut self, session: Uuid) {
        let Some(expected) = self.expected.get_mut(&session) else {
            return;
        };
        while let Some(segment) = self.held.remove(&(session, *expected)) {
            *expected += 1;
            self.ready.push(segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use iceberg::TableIdent;

    use super::*;

    fn segment(session: u128, seq: u64, first_unacked: u64) -> Segment {
        Segment {
            session: Uuid::from_u128(session),
            seq,
            first_unacked,
            epoch: 0,
            table: TableIdent::from_strs(["db", "t"]).expect("a name"),
            table_uuid: Uuid::nil(),
            branch: "main".to_owned(),
            ranges: Vec::new(),
            watermarks: BTreeMap::new(),
            topic_ids: BTreeMap::new(),
            manifests: Vec::new(),
            rows: 0,
            bytes: 0,
        }
    }

    fn batch(queue: &mut TableQueue) -> Vec<(u128, u64)> {
        let batch = queue.take_batch();
        batch
            .iter()
            .map(|segment| (segment.session.as_u128(), segment.seq))
            .collect()
    }

    #[test]
    fn segments_of_a_session_leave_in_the_order_of_their_numbers() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 1, 0)), Offer::Held);
        assert!(!queue.is_ready());
        assert_eq!(queue.offer(segment(2, 0, 0)), Offer::Accepted);
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Accepted);
        assert_eq!(batch(&mut queue), vec![(2, 0), (1, 0), (1, 1)]);
        assert_eq!(batch(&mut queue), vec![]);
    }

    #[test]
    fn a_segment_is_taken_once() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Accepted);
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Duplicate);
        assert_eq!(queue.offer(segment(1, 2, 0)), Offer::Held);
        assert_eq!(queue.offer(segment(1, 2, 0)), Offer::Duplicate);
        assert_eq!(batch(&mut queue), vec![(1, 0)]);
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Duplicate);
    }

    #[test]
    fn a_new_coordinator_begins_at_the_first_number_without_outcome() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 5, 4)), Offer::Held);
        assert_eq!(queue.offer(segment(1, 4, 4)), Offer::Accepted);
        assert_eq!(batch(&mut queue), vec![(1, 4), (1, 5)]);
    }

    #[test]
    fn an_ended_session_gives_nothing_more() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Accepted);
        assert_eq!(queue.offer(segment(1, 2, 0)), Offer::Held);
        assert_eq!(queue.offer(segment(0, 1, 0)), Offer::Held);
        assert_eq!(queue.offer(segment(2, 1, 0)), Offer::Held);
        let dropped = queue.end_session(Uuid::from_u128(1));
        assert_eq!(
            dropped
                .iter()
                .map(|segment| segment.seq)
                .collect::<Vec<_>>(),
            vec![0, 2]
        );
        assert_eq!(queue.offer(segment(1, 1, 1)), Offer::Dead);
        assert!(queue.is_dead(Uuid::from_u128(1)) && !queue.is_dead(Uuid::from_u128(2)));
        assert_eq!(queue.offer(segment(0, 0, 0)), Offer::Accepted);
        assert_eq!(queue.offer(segment(2, 0, 0)), Offer::Accepted);
        assert_eq!(batch(&mut queue), vec![(0, 0), (0, 1), (2, 0), (2, 1)]);
    }
}
