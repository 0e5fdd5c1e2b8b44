//! The queue of one table: which segments may be committed next, and in which order.
//!
//! Keeps: the segments of a session are committed in the order of their numbers (R2, R9), and
//! after a rejection nothing more of that session is (R15). Does not: load tables, commit, or wait.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::segment::Segment;
use crate::rules::{Rule, enforced};

/// Sessions that a queue remembers, ended ones and others. They are forgotten oldest first (ids are
/// ordered by time). What comes of an ended one even later is refused by the table's own offsets; a
/// living one says itself where it stands ([`Segment::first_unacked`]).
const SESSIONS_MAX: usize = 1_024;

/// What became of a segment that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It will be in a batch.
    Accepted,
    /// It is here already.
    Duplicate,
    /// It was committed before; its session may not have heard of it.
    Done,
    /// Segments before it are missing, the first of them with this number; it waits for them.
    Held {
        /// The number that is next in turn.
        missing: u64,
    },
    /// Its session has ended; it will never be committed.
    Dead,
    /// There is no room for it: it has to be sent again later.
    Full,
}

/// A segment that waits for its commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The segment.
    pub segment: Segment,
    /// Whether its session waits for the commit, which is not to wait for the interval then.
    pub urgent: bool,
    /// When it is too old to be committed (R11).
    pub expires_at_ms: u64,
    /// About how many bytes it takes in memory.
    pub bytes: usize,
}

/// The segments of one table that wait for a commit.
#[derive(Debug, Default)]
pub struct TableQueue {
    expected: BTreeMap<Uuid, u64>,
    dead: BTreeSet<Uuid>,
    held: BTreeMap<(Uuid, u64), Waiting>,
    ready: Vec<Waiting>,
    bytes: usize,
}

impl TableQueue {
    /// Takes a segment in, if its session lives and its turn may come.
    pub fn offer(&mut self, waiting: Waiting) -> Offer {
        let (session, sequence) = (waiting.segment.session, waiting.segment.seq);
        if self.is_dead(session) {
            return Offer::Dead;
        }
        if !enforced(Rule::SegmentOrder) {
            self.bytes += waiting.bytes;
            self.ready.push(waiting);
            return Offer::Accepted;
        }
        let first_unacked = waiting.segment.first_unacked;
        let expected = match self.expected.get(&session) {
            Some(expected) => (*expected).max(first_unacked),
            None => first_unacked,
        };
        self.remember(session, expected);
        if sequence < expected {
            return Offer::Done;
        }
        self.drop_held(session, expected);
        self.bytes += waiting.bytes;
        let earlier = self.held.insert((session, sequence), waiting);
        self.release(session);
        match earlier {
            Some(earlier) => {
                self.bytes = self.bytes.saturating_sub(earlier.bytes);
                Offer::Duplicate
            }
            None if self.held.contains_key(&(session, sequence)) => Offer::Held {
                missing: self.expected.get(&session).copied().unwrap_or(expected),
            },
            None => Offer::Accepted,
        }
    }

    /// A living session has heard of all its segments below `first_unacked`, maybe from another
    /// coordinator: what waits for those need not wait any more.
    pub fn heard(&mut self, session: Uuid, first_unacked: u64) {
        let Some(expected) = self.expected.get_mut(&session) else {
            return;
        };
        if *expected < first_unacked {
            *expected = first_unacked;
            self.drop_held(session, first_unacked);
            self.release(session);
        }
    }

    fn remember(&mut self, session: Uuid, expected: u64) {
        self.expected.insert(session, expected);
        if self.expected.len() <= SESSIONS_MAX {
            return;
        }
        let idle = self.expected.keys().find(|known| {
            let mut own = self.held.range((**known, 0)..=(**known, u64::MAX));
            **known != session && own.next().is_none()
        });
        if let Some(idle) = idle.copied() {
            self.expected.remove(&idle);
        }
    }

    /// Drops what is held below `expected`: its session has heard of it from another coordinator.
    fn drop_held(&mut self, session: Uuid, expected: u64) {
        let own = self.held.range((session, 0)..(session, expected));
        let below: Vec<(Uuid, u64)> = own.map(|(key, _)| *key).collect();
        for key in below {
            if let Some(dropped) = self.held.remove(&key) {
                self.bytes = self.bytes.saturating_sub(dropped.bytes);
            }
        }
    }

    /// Returns the segments that may be committed now, sessions in the order of arrival and the
    /// segments of a session in the order of their numbers, and forgets them.
    pub fn take_batch(&mut self) -> Vec<Waiting> {
        let batch = std::mem::take(&mut self.ready);
        let bytes: usize = batch.iter().map(|waiting| waiting.bytes).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        batch
    }

    /// Tells whether a batch is ready.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns what the next batch holds.
    pub fn ready(&self) -> &[Waiting] {
        &self.ready
    }

    /// Returns about how many bytes the waiting segments take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Tells whether `session` was ended: none of its segments may be committed any more (R15).
    pub fn is_dead(&self, session: Uuid) -> bool {
        enforced(Rule::DeadSession) && self.dead.contains(&session)
    }

    /// Tells whether the segment `sequence` of `session` had its turn.
    pub fn is_done(&self, session: Uuid, sequence: u64) -> bool {
        let expected = self.expected.get(&session).copied();
        enforced(Rule::SegmentOrder) && expected.is_some_and(|expected| sequence < expected)
    }

    /// Returns the waiting segment `sequence` of `session`.
    pub fn get_mut(&mut self, session: Uuid, sequence: u64) -> Option<&mut Waiting> {
        let is_it = |waiting: &Waiting| {
            (waiting.segment.session, waiting.segment.seq) == (session, sequence)
        };
        match self.held.get_mut(&(session, sequence)) {
            Some(held) => Some(held),
            None => self.ready.iter_mut().find(|waiting| is_it(waiting)),
        }
    }

    /// Goes through all waiting segments, those that may be committed now first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.ready.iter_mut().chain(self.held.values_mut())
    }

    /// Ends a session, after a rejection or because its task is gone: returns what it still had here.
    pub fn end_session(&mut self, session: Uuid) -> Vec<Segment> {
        self.dead.insert(session);
        if self.dead.len() > SESSIONS_MAX {
            self.dead.pop_first();
        }
        if enforced(Rule::DeadSession) {
            self.expected.remove(&session);
        }
        let (mut dropped, kept): (Vec<Waiting>, Vec<Waiting>) = std::mem::take(&mut self.ready)
            .into_iter()
            .partition(|waiting| waiting.segment.session == session);
        self.ready = kept;
        let mut rest = self.held.split_off(&(session, 0));
        let later = rest.split_off(&(session, u64::MAX));
        dropped.extend(rest.into_values());
        self.held.extend(later);
        let bytes: usize = dropped.iter().map(|waiting| waiting.bytes).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        dropped.into_iter().map(|waiting| waiting.segment).collect()
    }

    /// Forgets everything but the sessions that have ended: somebody else coordinates the table
    /// from now on. Returns how many segments waited.
    pub fn clear(&mut self) -> usize {
        let dropped = self.held.len() + self.ready.len();
        let dead = std::mem::take(&mut self.dead);
        *self = TableQueue {
            dead,
            ..TableQueue::default()
        };
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
    use super::*;
    use crate::commit::test_support;

    fn segment(session: u128, seq: u64, first_unacked: u64) -> Waiting {
        let mut segment = test_support::segment(seq, Vec::new());
        segment.session = Uuid::from_u128(session);
        segment.first_unacked = first_unacked;
        Waiting {
            segment,
            urgent: false,
            expires_at_ms: u64::MAX,
            bytes: 10,
        }
    }

    fn batch(queue: &mut TableQueue) -> Vec<(u128, u64)> {
        let batch = queue.take_batch();
        batch
            .iter()
            .map(|waiting| (waiting.segment.session.as_u128(), waiting.segment.seq))
            .collect()
    }

    const HELD: Offer = Offer::Held { missing: 0 };

    #[test]
    fn what_a_session_has_heard_elsewhere_is_waited_for_no_more() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 1, 0)), Offer::Held { missing: 0 });
        queue.heard(Uuid::from_u128(1), 0);
        queue.heard(Uuid::from_u128(2), 1);
        assert!(!queue.is_ready());
        queue.heard(Uuid::from_u128(1), 1);
        assert!(queue.is_ready());
        assert_eq!(queue.offer(segment(1, 1, 1)), Offer::Done);
    }

    #[test]
    fn segments_of_a_session_leave_in_the_order_of_their_numbers() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 1, 0)), HELD);
        assert!(!queue.is_ready());
        assert_eq!(queue.offer(segment(2, 0, 0)), Offer::Accepted);
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Accepted);
        assert_eq!(queue.bytes(), 30);
        assert_eq!(batch(&mut queue), vec![(2, 0), (1, 0), (1, 1)]);
        assert_eq!(batch(&mut queue), vec![]);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn a_segment_is_taken_once() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Accepted);
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Done);
        assert_eq!(queue.offer(segment(1, 2, 0)), Offer::Held { missing: 1 });
        assert_eq!(queue.offer(segment(1, 2, 0)), Offer::Duplicate);
        assert_eq!(queue.bytes(), 20);
        assert_eq!(batch(&mut queue), vec![(1, 0)]);
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Done);
    }

    #[test]
    fn a_new_coordinator_begins_at_the_first_number_without_outcome() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 5, 4)), Offer::Held { missing: 4 });
        assert_eq!(queue.offer(segment(1, 4, 4)), Offer::Accepted);
        assert_eq!(batch(&mut queue), vec![(1, 4), (1, 5)]);
    }

    #[test]
    fn what_another_coordinator_has_settled_is_not_waited_for() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 1, 0)), HELD);
        assert_eq!(queue.offer(segment(1, 3, 0)), HELD);
        assert_eq!(queue.offer(segment(1, 4, 3)), Offer::Accepted);
        assert_eq!(queue.bytes(), 20, "the second segment is forgotten");
        assert_eq!(batch(&mut queue), vec![(1, 3), (1, 4)]);
    }

    #[test]
    fn an_ended_session_gives_nothing_more() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Accepted);
        assert_eq!(queue.offer(segment(1, 2, 0)), Offer::Held { missing: 1 });
        assert_eq!(queue.offer(segment(0, 1, 0)), HELD);
        assert_eq!(queue.offer(segment(2, 1, 0)), HELD);
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
        assert_eq!(queue.bytes(), 40);
        assert_eq!(batch(&mut queue), vec![(0, 0), (0, 1), (2, 0), (2, 1)]);
    }

    #[test]
    fn the_oldest_sessions_are_forgotten() {
        let mut queue = TableQueue::default();
        for session in 0..=SESSIONS_MAX as u128 {
            assert_eq!(queue.offer(segment(session, 0, 0)), Offer::Accepted);
        }
        assert_eq!(queue.expected.len(), SESSIONS_MAX);
        assert_eq!(queue.offer(segment(1, 1, 1)), Offer::Accepted);
    }

    #[test]
    fn a_coordinator_that_steps_down_keeps_only_who_is_dead() {
        let mut queue = TableQueue::default();
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Accepted);
        assert_eq!(queue.offer(segment(2, 1, 0)), HELD);
        queue.end_session(Uuid::from_u128(3));
        assert_eq!(queue.clear(), 2);
        assert_eq!((queue.is_ready(), queue.bytes()), (false, 0));
        assert_eq!(queue.offer(segment(3, 0, 0)), Offer::Dead);
        assert_eq!(queue.offer(segment(1, 0, 0)), Offer::Accepted);
    }
}
