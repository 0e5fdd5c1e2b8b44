//! The queue of one table: which segments may be committed next, and in which order.
//!
//! Keeps: the segments of a session are committed in the order of their numbers (R2, R9), and
//! after a rejection nothing more of that session is (R15). Does not: load tables, commit, or wait.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::segment::Segment;

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
        let sequence = segment.sequence;
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

    /// Ends a session, after a rejection or because its task is gone: returns what it still had here.
    pub fn end_session(&mut self, session: Uuid) -> Vec<Segment> {
        self.dead.insert(session);
        self.expected.remove(&session);
        let mut dropped: Vec<Segment> = Vec::new();
        let (gone, kept) = std::mem::take(&mut self.ready)
            .into_iter()
            .partition(|segment| segment.session == session);
        self.ready = kept;
        dropped.extend::<Vec<Segment>>(gone);
        let held = std::mem::take(&mut self.held);
        for (key, segment) in held {
            if key.0 == session {
                dropped.push(segment);
            } else {
                self.held.insert(key, segment);
            }
        }
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
