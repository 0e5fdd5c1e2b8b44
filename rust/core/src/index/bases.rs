//! Where rows that lack values take them from: from the row below, by the order of the changes of its key.
//!
//! ```text
//!  key 7:  table ─ put ─ lacks a ─ lacks b        the row of the commit is the last; it takes b from the
//!                   ▲───────┴────────┘            one below, and what that lacks from the one below it
//! ```
//!
//! The changes of a key are laid out as they count: one that is older than others goes in below them. Below
//! all of them is the table's own row. A row that had another key before takes its values from the row that
//! this key had where the change removed it; where the same change was delivered before, from the row of
//! then, which has them.

use std::collections::{BTreeMap, BTreeSet};

use super::changed::SegmentChanges;
use super::ranks::{At, Ranks};
use super::resolve::Ranking;
use super::table::Index;
use super::{KeyNumber, Location};
use crate::change::keyrun::{Effect, KeyRun, RunChange};

/// A row that has values. Files of segments are numbered by segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// A row of a data file of the segment of this index.
    New(u32, Location),
    /// A row of a pending file of the segment of this index, which lacks some values itself.
    Pending(u32, Location),
    /// A row of the table, if nobody deleted it.
    Table(Location),
}

/// A row that a commit has yet to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incomplete {
    /// Its key.
    pub key: KeyNumber,
    /// The index of its segment.
    pub segment: u32,
    /// Its row in the segment's pending files.
    pub at: Location,
    /// Whether it only marks a row as deleted: then there is none without a base.
    pub is_mark: bool,
    /// The record that it came in, by the place of its source partition among the segment's ranges.
    pub record: (u32, i64),
    /// Where to look for each value that it lacks, in this order.
    pub bases: Vec<Base>,
}

/// Finds where the rows of `winners` take their values from.
pub(super) fn find_bases<'w>(
    index: &Index,
    ranks: &Ranks<'_>,
    parts: &[SegmentChanges<'_>],
    winners: impl Iterator<Item = (KeyNumber, &'w At)>,
) -> Vec<Incomplete> {
    let mut winners = winners.peekable();
    if winners.peek().is_none() {
        return Vec::new();
    }
    let survivors = match ranks.truncations().is_empty() {
        true => None,
        false => Some(ranks.survivors().collect()),
    };
    let mut finder = Finder {
        index,
        ranks,
        runs: parts.iter().map(|part| part.run).collect(),
        moved: moves(parts),
        survivors,
        laid_out: BTreeMap::new(),
    };
    winners
        .filter_map(|(key, at)| finder.find(key, at))
        .collect()
}

/// The record of a change: its segment, source partition and offset.
type Record = (u32, u32, i64);

/// Returns the keys that rows had before, by the records of their changes.
fn moves(parts: &[SegmentChanges<'_>]) -> BTreeMap<Record, KeyNumber> {
    let mut moved = BTreeMap::new();
    for (segment, part) in (0u32..).zip(parts) {
        let changes = part.run.changes();
        let pending = changes.iter().filter_map(|change| match change.effect {
            Effect::Pending(_) => Some((change.record(), change.key)),
            _ => None,
        });
        let pending: BTreeMap<(u32, i64), KeyNumber> = pending.collect();
        if pending.is_empty() {
            continue;
        }
        for change in changes {
            let removes = matches!(change.effect, Effect::Delete | Effect::Mark(_));
            let (partition, offset) = change.record();
            let own = pending.get(&(partition, offset));
            if removes && own.is_some_and(|own| *own != change.key) {
                moved.insert((segment, partition, offset), change.key);
            }
        }
    }
    moved
}

/// A row that a key had, or that it had none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// The table's own row.
    Stored(Location),
    Change(At),
}

struct Finder<'a> {
    index: &'a Index,
    ranks: &'a Ranks<'a>,
    runs: Vec<&'a KeyRun>,
    moved: BTreeMap<Record, KeyNumber>,
    /// The keys whose rows stay where the commit empties the table.
    survivors: Option<BTreeSet<KeyNumber>>,
    laid_out: BTreeMap<KeyNumber, Vec<Version>>,
}

impl Finder<'_> {
    fn find(&mut self, key: KeyNumber, at: &At) -> Option<Incomplete> {
        let change = *self.change(at)?;
        let (row, is_mark) = match change.effect {
            Effect::Pending(row) => (row, false),
            Effect::Mark(row) => (row, true),
            Effect::Delete | Effect::Upsert(_) | Effect::Truncate => return None,
        };
        let mut bases = Vec::new();
        self.follow(key, *at, &mut bases, &mut BTreeSet::new());
        Some(Incomplete {
            key,
            segment: at.run,
            at: row,
            is_mark,
            record: change.record(),
            bases,
        })
    }

    fn change(&self, at: &At) -> Option<&RunChange> {
        let run = self.runs.get(at.run as usize)?;
        run.changes().get(at.index as usize)
    }

    /// Adds the rows that the row of the change `at` takes its values from; tells whether one is complete.
    /// Each change is followed once: without orders, keys that are swapped could go around for ever.
    fn follow(
        &mut self,
        key: KeyNumber,
        at: At,
        bases: &mut Vec<Base>,
        seen: &mut BTreeSet<(u32, u32)>,
    ) -> bool {
        if !seen.insert((at.run, at.index)) {
            return false;
        }
        let versions = self.versions(key);
        let own = versions.iter().position(|one| *one == Version::Change(at));
        let mut place = own.unwrap_or(versions.len());
        if let Some(before) = self.came_before(key, &versions, place, &at) {
            place = before + 1;
        } else if let Some((old, left)) = self.left(&at) {
            let complete = match left {
                Left::At(place) => self.below(old, place, bases, seen),
                Left::Marked(row) => {
                    bases.push(Base::Table(row));
                    true
                }
            };
            if complete {
                return true;
            }
        }
        self.below(key, place, bases, seen)
    }

    /// As [`follow`](Self::follow), of what is below `place` among the changes of a key.
    fn below(
        &mut self,
        key: KeyNumber,
        place: usize,
        bases: &mut Vec<Base>,
        seen: &mut BTreeSet<(u32, u32)>,
    ) -> bool {
        let versions = self.versions(key);
        for version in versions.iter().take(place).rev() {
            let at = match version {
                Version::Stored(row) => {
                    bases.push(Base::Table(*row));
                    return true;
                }
                Version::Change(at) => *at,
            };
            match self.change(&at).map(|change| change.effect) {
                Some(Effect::Upsert(row)) => {
                    bases.push(Base::New(at.run, row));
                    return true;
                }
                Some(Effect::Pending(row)) => {
                    bases.push(Base::Pending(at.run, row));
                    return self.follow(key, at, bases, seen);
                }
                // All its values are those of the row below it.
                Some(Effect::Mark(_)) => {}
                Some(Effect::Delete | Effect::Truncate) | None => return false,
            }
        }
        false
    }

    /// Returns where below `place` is the change `at`, delivered before: its row has the values then.
    /// Between them may be changes without an order, which are older, as all that is delivered again.
    fn came_before(
        &self,
        key: KeyNumber,
        versions: &[Version],
        place: usize,
        at: &At,
    ) -> Option<usize> {
        let order = self.ranks.order(at)?;
        let order_of = |version: &Version| match version {
            Version::Stored(_) => self.ranks.known_order(key),
            Version::Change(at) => self.ranks.order(at),
        };
        let below = versions.get(..place)?.iter();
        let before = below.clone().rposition(|one| order_of(one).is_some())?;
        let version = versions.get(before)?;
        let has_row = match version {
            Version::Stored(_) => true,
            Version::Change(at) => {
                let effect = self.change(at).map(|change| change.effect);
                matches!(effect, Some(Effect::Upsert(_) | Effect::Pending(_)))
            }
        };
        (has_row && order_of(version) == Some(order)).then_some(before)
    }

    /// Returns the key that the row of a change had before, and where it left it: at the first of the
    /// changes that stand for that.
    fn left(&mut self, at: &At) -> Option<(KeyNumber, Left)> {
        let change = self.change(at)?;
        let (partition, offset) = change.record();
        let old = *self.moved.get(&(at.run, partition, offset))?;
        let order = self.ranks.order(at);
        let versions = self.versions(old);
        let is_own = |version: &Version| {
            let Version::Change(other) = version else {
                return false;
            };
            self.change(other).is_some_and(|removal| {
                let same_record = other.run == at.run && removal.record() == (partition, offset);
                let same_order = order.is_some() && self.ranks.order(other) == order;
                let removes = matches!(removal.effect, Effect::Delete | Effect::Mark(_));
                removes && (same_record || same_order)
            })
        };
        if let Some(place) = versions.iter().position(is_own) {
            return Some((old, Left::At(place)));
        }
        // The source's own delete of the old key was committed before, and its row was kept and marked.
        let was_marked = order.is_some() && self.ranks.known_order(old) == order;
        let stored = versions.first().filter(|_| was_marked);
        match stored {
            Some(Version::Stored(row)) => Some((old, Left::Marked(*row))),
            _ => None,
        }
    }

    /// Returns the changes of a key as they count, the oldest first.
    fn versions(&mut self, key: KeyNumber) -> Vec<Version> {
        if let Some(known) = self.laid_out.get(&key) {
            return known.clone();
        }
        let mut versions = Vec::new();
        let survives = |survivors: &BTreeSet<KeyNumber>| survivors.contains(&key);
        if self.survivors.as_ref().is_none_or(survives)
            && let Some(row) = self.index.get(key)
        {
            versions.push(Version::Stored(row));
        }
        for (run, changes) in (0u32..).zip(&self.runs) {
            let changes = changes.changes();
            let first = changes.partition_point(|change| change.key < key);
            let of_key = changes.iter().enumerate().skip(first);
            for (index, _) in of_key.take_while(|(_, change)| change.key == key) {
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                self.lay(key, At { run, index }, &mut versions);
            }
        }
        self.laid_out.insert(key, versions.clone());
        versions
    }

    /// Puts a change above those that are older.
    fn lay(&self, key: KeyNumber, at: At, versions: &mut Vec<Version>) {
        // What the table has is newer.
        if self.ranks.is_stale(key, &at) || self.ranks.is_emptied(&at) {
            return;
        }
        let is_truncation = self.change(&at).map(|change| change.effect) == Some(Effect::Truncate);
        if is_truncation {
            return;
        }
        let mut place = versions.len();
        for (index, version) in versions.iter().enumerate().rev() {
            let Version::Change(other) = version else {
                break;
            };
            if self.ranks.is_older(&at, other) {
                place = index;
            } else if self.ranks.is_alike(&at, other) || !self.ranks.has_order(&at) {
                break;
            }
        }
        versions.insert(place, Version::Change(at));
    }
}

/// Where a row left the key that it had before.
enum Left {
    /// Below this place among the changes of the key.
    At(usize),
    /// It is there still, marked as deleted.
    Marked(Location),
}

#[cfg(test)]
#[path = "bases_tests.rs"]
mod tests;
