//! The changes that a commit found to lack values which no row has: read again, they are errors of their
//! records.

use std::collections::BTreeSet;

use frazil_core::limits::ABSENT_RECORDS_MAX;
use frazil_core::offsets::TopicPartition;

/// Changes that are kept in mind until they come again. What one rejection names, and the segments that are on
/// their way then, are a few times less.
const KNOWN_MAX: usize = 4 * ABSENT_RECORDS_MAX;
/// As long as some are known, changes that are read before a seal: a segment that lacks more than a rejection
/// names would be read and written again for each part of them.
const READ_MAX: usize = ABSENT_RECORDS_MAX / 2;
/// What one takes in memory, about.
const ENTRY_BYTES: u64 = 64;

/// Changes without values.
#[derive(Debug, Default)]
pub(super) struct Absent {
    known: BTreeSet<(TopicPartition, i64)>,
    /// Changes that were read since the last seal.
    read: usize,
}

impl Absent {
    /// Tells whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Tells whether the change at a place is one.
    pub(super) fn contains(&self, partition: &TopicPartition, offset: i64) -> bool {
        self.known.contains(&(partition.clone(), offset))
    }

    /// Takes in some, and forgets those that do not come again; tells whether any is new.
    pub(super) fn note(
        &mut self,
        places: Vec<(TopicPartition, i64)>,
        comes_again: impl Fn(&TopicPartition, i64) -> bool,
    ) -> bool {
        self.known
            .retain(|(partition, offset)| comes_again(partition, *offset));
        let before = self.known.len();
        let room = KNOWN_MAX.saturating_sub(before);
        self.known.extend(places.into_iter().take(room));
        self.known.len() > before
    }

    /// Forgets all: their topics are others now.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Some changes were read, whatever became of them.
    pub(super) fn count(&mut self, changes: usize) {
        self.read = self.read.saturating_add(changes);
    }

    /// What was read is in a segment, or comes again.
    pub(super) fn begin(&mut self) {
        self.read = 0;
    }

    /// Tells whether what was read should become a segment, for more of it may lack values than a rejection
    /// names.
    pub(super) fn asks_for_seal(&self) -> bool {
        !self.known.is_empty() && self.read >= READ_MAX
    }

    /// Returns about how many bytes they take.
    pub(super) fn bytes(&self) -> u64 {
        self.known.len() as u64 * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(offsets: std::ops::Range<i64>) -> Vec<(TopicPartition, i64)> {
        let partition = TopicPartition::new("orders", 0);
        offsets.map(|offset| (partition.clone(), offset)).collect()
    }

    #[test]
    fn what_does_not_come_again_makes_room() {
        let mut absent = Absent::default();
        let most = KNOWN_MAX as i64;
        assert!(absent.note(places(0..most), |_, _| true));
        assert!(!absent.note(places(5..6), |_, _| true), "it is known");
        assert!(!absent.note(places(most..most + 9), |_, _| true), "no room");
        assert!(absent.note(places(most..most + 9), |_, offset| offset >= 5));
        let partition = TopicPartition::new("orders", 0);
        let has = |offset| absent.contains(&partition, offset);
        assert!(!has(4) && has(5) && has(most + 4) && !has(most + 5));
        assert_eq!(absent.bytes(), KNOWN_MAX as u64 * ENTRY_BYTES);
    }

    #[test]
    fn segments_are_short_while_changes_lack_values() {
        let mut absent = Absent::default();
        absent.count(READ_MAX);
        assert!(!absent.asks_for_seal(), "none is known");
        absent.note(places(0..1), |_, _| true);
        assert!(absent.asks_for_seal());
        absent.begin();
        absent.count(READ_MAX - 1);
        assert!(!absent.asks_for_seal());
        absent.count(1);
        assert!(absent.asks_for_seal());
        absent.clear();
        assert!(absent.is_empty() && !absent.asks_for_seal());
    }
}
