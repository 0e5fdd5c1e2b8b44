//! Which of two changes of a key is the later one.
//!
//! By their orders in the source, where these say it; changes without one, of the same source
//! partition, by their offsets; else the one that arrives later.

use std::collections::BTreeMap;

use super::KeyNumber;
use super::changed::SegmentChanges;
use super::resolve::Ranking;
use crate::change::keyrun::{Effect, KeyRun, RunChange};
use crate::change::window::{KnownOrders, LeftRow};
use crate::change::{Order, is_older};
use crate::offsets::TopicPartition;
use crate::rules::{Rule, enforced};

/// A change, by the place of its run and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) run: u32,
    pub(super) index: u32,
}

/// A place where the source's table was emptied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Truncation {
    order: Option<Box<[u8]>>,
    /// The source partition, by its number in the commit, and the offset.
    place: Option<(u32, i64)>,
}

impl Truncation {
    /// Returns what orders it in its source.
    pub(super) fn order(&self) -> Option<Order<'_>> {
        self.order.as_deref().map(Order::of)
    }
}

/// A piece of the changes of a commit, to be compared.
pub(super) struct Ranks<'a> {
    runs: Vec<&'a KeyRun>,
    /// A number for each source partition of each run, the same for the same partition.
    partitions: Vec<Vec<u32>>,
    known: &'a KnownOrders,
    /// Where the source's table was emptied.
    truncations: &'a [Truncation],
}

impl<'a> Ranks<'a> {
    /// Makes them of the changes `parts` of the segments, in a commit with these truncations.
    pub(super) fn new(
        parts: &[SegmentChanges<'a>],
        known: &'a KnownOrders,
        truncations: &'a [Truncation],
    ) -> Self {
        let mut numbers: BTreeMap<&TopicPartition, u32> = BTreeMap::new();
        let partitions = parts.iter().map(|part| {
            let partitions = part.ranges.iter().map(|range| {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                *numbers.entry(&range.partition).or_insert(next)
            });
            partitions.collect()
        });
        Ranks {
            partitions: partitions.collect(),
            runs: parts.iter().map(|part| part.run).collect(),
            known,
            truncations,
        }
    }

    /// Tells whether the commit empties the table.
    pub(super) fn empties(&self) -> bool {
        !self.truncations.is_empty()
    }

    /// Finds the truncations among the first changes of a commit: they have no key, and so stand before the
    /// changes of the first. One that was sent again says nothing new.
    pub(super) fn find_truncations(&self) -> Vec<Truncation> {
        let mut all = Vec::new();
        for (run, changes) in (0u32..).zip(&self.runs) {
            for (index, change) in (0u32..).zip(changes.changes()) {
                if change.key.0 > 0 {
                    break;
                }
                let at = At { run, index };
                let order = self.order(&at);
                let is_known = order.is_some_and(|order| self.known.knows_truncation(order));
                if change.effect == Effect::Truncate && !is_known {
                    all.push(Truncation {
                        order: order.map(|order| Box::from(order.bytes())),
                        place: self.place(&at),
                    });
                }
            }
        }
        all
    }

    /// Tells whether a truncation removes what a change did.
    fn is_before(&self, change: &At, truncation: &Truncation) -> bool {
        match (self.order(change), truncation.order()) {
            (Some(order), Some(emptied)) if order.compare(&emptied).is_some() => {
                !is_older(Some(emptied), Some(order))
            }
            _ => match (self.place(change), truncation.place) {
                (Some((one, offset)), Some((other, emptied))) if one == other => offset < emptied,
                // A commit with such a change does not empty the table (`truncations`).
                _ => false,
            },
        }
    }

    /// Tells whether a change came after the table was emptied without an order: what orders the rows that
    /// went says nothing about it.
    fn begins_anew(&self, change: &At) -> bool {
        let mut unordered = self.truncations.iter();
        unordered.any(|one| one.order.is_none() && !self.is_before(change, one))
    }

    /// Returns the keys whose last change is known to be newer than all truncations.
    pub(super) fn survivors(&self) -> impl Iterator<Item = KeyNumber> {
        let is_newer = |order: Order<'_>| {
            let mut all = self.truncations.iter();
            all.all(|one| is_older(one.order(), Some(order)))
        };
        let known = self.known.iter();
        known.filter_map(move |(key, order)| is_newer(order).then_some(key))
    }

    fn find(&self, at: &At) -> Option<(&KeyRun, &RunChange)> {
        let run = self.runs.get(at.run as usize)?;
        Some((run, run.changes().get(at.index as usize)?))
    }

    /// Returns what orders a change in its source.
    pub(super) fn order(&self, at: &At) -> Option<Order<'_>> {
        let (run, change) = self.find(at)?;
        run.order(change)
    }

    /// Returns the order of the last change of a key that the table is known to have.
    pub(super) fn known_order(&self, key: KeyNumber) -> Option<Order<'_>> {
        self.known.last_order(key)
    }

    /// Returns the row that a key had until a change gave the row another key.
    pub(super) fn left(&self, key: KeyNumber) -> Option<&LeftRow> {
        self.known.left(key)
    }

    /// Returns the source partition of a change and its offset.
    fn place(&self, at: &At) -> Option<(u32, i64)> {
        let (_, change) = self.find(at)?;
        let partitions = self.partitions.get(at.run as usize)?;
        let partition = partitions.get(change.partition as usize)?;
        Some((*partition, change.offset))
    }
}

impl Ranking<At> for Ranks<'_> {
    fn is_older(&self, one: &At, than: &At) -> bool {
        match (self.order(one), self.order(than)) {
            _ if !enforced(Rule::NewerWins) => false,
            (Some(one), Some(than)) => is_older(Some(one), Some(than)),
            (None, None) => match (self.place(one), self.place(than)) {
                (Some((partition, offset)), Some((other, than))) => {
                    partition == other && offset < than
                }
                _ => false,
            },
            _ => false,
        }
    }

    fn is_alike(&self, one: &At, other: &At) -> bool {
        match (self.order(one), self.order(other)) {
            (Some(one), Some(other)) => one.compare(&other).is_some(),
            (None, None) => {
                let partition = |at| self.place(at).map(|(partition, _)| partition);
                partition(one) == partition(other)
            }
            _ => false,
        }
    }

    fn has_order(&self, at: &At) -> bool {
        self.order(at).is_some()
    }

    fn is_stale(&self, key: KeyNumber, at: &At) -> bool {
        let order = self.order(at).filter(|_| enforced(Rule::Stale));
        order.is_some_and(|order| self.known.is_stale(key, order)) && !self.begins_anew(at)
    }

    fn is_emptied(&self, at: &At) -> bool {
        self.truncations.iter().any(|one| self.is_before(at, one))
    }
}
