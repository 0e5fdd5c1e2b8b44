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
    /// The row that a key had until an earlier commit removed it ([`KnownOrders::left`]), by its place in its
    /// file.
    ///
    /// [`KnownOrders::left`]: crate::change::window::KnownOrders::left
    Left(KeyNumber, u32),
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

impl Incomplete {
    /// Returns about how many bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bases.capacity() * size_of::<Base>()
    }
}

/// What a key takes in a map, about.
const KEY_BYTES: usize = 64;

/// The record of a change: its segment, source partition and offset.
type Record = (u32, u32, i64);

/// The changes of the keys whose rows lack values, or may be what others take values from.
#[derive(Debug, Default)]
pub(super) struct Bases {
    keys: BTreeMap<KeyNumber, Vec<Version>>,
    /// The keys that rows had before, by the records of their changes.
    moved: BTreeMap<Record, KeyNumber>,
    /// The orders of the last changes of these keys that the table has.
    known: BTreeMap<KeyNumber, Box<[u8]>>,
    left: BTreeMap<KeyNumber, u32>,
    incomplete: Vec<(KeyNumber, Incomplete)>,
    /// What all of that takes, about.
    bytes: usize,
}

/// A row that a key had, or that it had none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    what: What,
    /// What orders it in its source.
    order: Option<Box<[u8]>>,
    /// The record that it came in; none of the table's own row.
    record: Option<Record>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A complete row.
    Whole(Base),
    /// A row that lacks values.
    Lacking(Base),
    /// A row that is marked as deleted: all its values are those of the row below it.
    Marked,
    /// There is none.
    Removed,
}

impl Bases {
    /// Takes in the changes of `parts`: of each key all. What there is to find is known when all have come.
    pub(super) fn add(&mut self, index: &Index, ranks: &Ranks<'_>, parts: &[SegmentChanges<'_>]) {
        let mut keys = BTreeSet::new();
        for (segment, part) in (0u32..).zip(parts) {
            for change in part.run.changes() {
                let is_pending = matches!(change.effect, Effect::Pending(_) | Effect::Mark(_));
                if change.moves {
                    let (partition, offset) = change.record();
                    self.moved.insert((segment, partition, offset), change.key);
                    self.bytes += KEY_BYTES;
                }
                if is_pending || change.moves {
                    keys.insert(change.key);
                }
            }
        }
        if keys.is_empty() {
            return;
        }
        let survivors: Option<BTreeSet<KeyNumber>> = match ranks.empties() {
            true => Some(ranks.survivors().collect()),
            false => None,
        };
        let runs: Vec<&KeyRun> = parts.iter().map(|part| part.run).collect();
        for key in keys {
            let stays = survivors.as_ref().is_none_or(|keys| keys.contains(&key));
            let stored = index.get(key).filter(|_| stays);
            let versions = lay_out(key, stored, &runs, ranks);
            let orders = versions.iter().filter_map(|version| version.order.as_ref());
            let orders: usize = orders.map(|one| one.len()).sum();
            self.bytes += KEY_BYTES + versions.capacity() * size_of::<Version>() + orders;
            self.keys.insert(key, versions);
            if let Some(order) = ranks.known_order(key) {
                self.bytes += KEY_BYTES + order.bytes().len();
                self.known.insert(key, Box::from(order.bytes()));
            }
            if let Some(left) = ranks.left(key) {
                self.bytes += KEY_BYTES;
                self.left.insert(key, left.row);
            }
        }
    }

    /// Takes in a row that is to be made, the last of its key: the change at `at`.
    pub(super) fn add_incomplete(&mut self, key: KeyNumber, segment: u32, change: &RunChange) {
        let (at, is_mark) = match change.effect {
            Effect::Pending(at) => (at, false),
            Effect::Mark(at) => (at, true),
            Effect::Delete | Effect::Upsert(_) | Effect::Truncate => return,
        };
        let row = Incomplete {
            key,
            segment,
            at,
            is_mark,
            record: change.record(),
            bases: Vec::new(),
        };
        self.bytes += size_of::<(KeyNumber, Incomplete)>();
        self.incomplete.push((key, row));
    }

    /// Finds where the rows that are to be made take their values from.
    pub(super) fn finish(mut self) -> Vec<Incomplete> {
        let incomplete = std::mem::take(&mut self.incomplete);
        let find = |(key, mut row): (KeyNumber, Incomplete)| {
            let (partition, offset) = row.record;
            let record = (row.segment, partition, offset);
            let versions = self.keys.get(&key).map_or(&[][..], Vec::as_slice);
            let own = versions.iter().position(|one| one.record == Some(record));
            let place = own.unwrap_or(versions.len());
            row.bases = self.follow(key, place);
            row
        };
        incomplete.into_iter().map(find).collect()
    }

    /// Returns about how many bytes of memory they take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    fn versions(&self, key: KeyNumber) -> &[Version] {
        self.keys.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Returns the rows that the row at `place` among those of its key takes its values from, the nearest first,
    /// up to one that is complete. Each row is followed once: without orders, keys that are swapped could go
    /// around for ever. A key may have any number of changes that lack values, each of which is a step.
    fn follow(&self, key: KeyNumber, place: usize) -> Vec<Base> {
        let mut bases = Vec::new();
        let mut seen = BTreeSet::new();
        // What is below a place of a key is yet to be looked at; the last one first, and the others where it
        // ends without a complete row.
        let mut to_do: Vec<(KeyNumber, usize)> = Vec::new();
        let mut next = Some((key, place));
        loop {
            if let Some((key, place)) = next.take().filter(|row| seen.insert(*row)) {
                let version = self.versions(key).get(place);
                if let Some(before) = self.came_before(key, place) {
                    to_do.push((key, before + 1));
                } else {
                    match version.and_then(|version| self.left(version)) {
                        Some((_, Left::Before(base))) => {
                            bases.push(base);
                            return bases;
                        }
                        Some((old, Left::At(at))) => to_do.extend([(key, place), (old, at)]),
                        None => to_do.push((key, place)),
                    }
                }
            }
            let Some((key, place)) = to_do.pop() else {
                return bases;
            };
            match self.below(key, place) {
                Some((_, What::Whole(base))) => {
                    bases.push(base);
                    return bases;
                }
                Some((at, What::Lacking(base))) => {
                    bases.push(base);
                    next = Some((key, at));
                }
                Some((_, What::Marked | What::Removed)) | None => {}
            }
        }
    }

    /// Returns what is next below `place` among the rows of a key, and where: a mark is none.
    fn below(&self, key: KeyNumber, place: usize) -> Option<(usize, What)> {
        let versions = self.versions(key).iter().enumerate().take(place);
        let mut below = versions.rev().map(|(at, version)| (at, version.what));
        below.find(|(_, what)| *what != What::Marked)
    }

    /// Returns where below `place` is the same change, delivered before: its row has the values then.
    /// Between them may be changes without an order, which are older, as all that is delivered again.
    fn came_before(&self, key: KeyNumber, place: usize) -> Option<usize> {
        let versions = self.versions(key);
        let order = versions.get(place)?.order.as_ref()?;
        let below = versions.get(..place)?;
        let before = below.iter().rposition(|one| one.order.is_some())?;
        let version = below.get(before)?;
        let has_row = matches!(version.what, What::Whole(_) | What::Lacking(_));
        (has_row && version.order.as_ref() == Some(order)).then_some(before)
    }

    /// Returns the key that the row of a change had before, and where it left it: at the first of the
    /// changes that stand for that.
    fn left(&self, version: &Version) -> Option<(KeyNumber, Left)> {
        let record = version.record?;
        let old = *self.moved.get(&record)?;
        let order = version.order.as_ref();
        let versions = self.versions(old);
        let is_own = |one: &Version| {
            let removes = matches!(one.what, What::Removed | What::Marked);
            let same_order = order.is_some() && one.order.as_ref() == order;
            removes && (one.record == Some(record) || same_order)
        };
        if let Some(place) = versions.iter().position(is_own) {
            return Some((old, Left::At(place)));
        }
        // The source's own delete of the old key was committed before: its row was kept and marked, or it
        // is known where it was.
        if order.is_none() || self.known.get(&old) != order {
            return None;
        }
        let stored = versions.first().filter(|first| first.record.is_none());
        let before = match stored.map(|stored| stored.what) {
            Some(What::Whole(base)) => base,
            _ => Base::Left(old, *self.left.get(&old)?),
        };
        Some((old, Left::Before(before)))
    }
}

/// Where a row left the key that it had before.
enum Left {
    /// Below this place among the rows of the key.
    At(usize),
    /// An earlier commit removed it or marked it as deleted.
    Before(Base),
}

/// Returns the row that a key had below the removal at `at`: the table's own, or one of the commit. `None` when
/// it had none, or one that lacks values.
pub(super) fn row_below(
    key: KeyNumber,
    stored: Option<Location>,
    at: &At,
    parts: &[SegmentChanges<'_>],
    ranks: &Ranks<'_>,
) -> Option<Base> {
    let runs: Vec<&KeyRun> = parts.iter().map(|part| part.run).collect();
    let change = runs
        .get(at.run as usize)?
        .changes()
        .get(at.index as usize)?;
    let (partition, offset) = change.record();
    let own = Some((at.run, partition, offset));
    let versions = lay_out(key, stored, &runs, ranks);
    let place = versions.iter().rposition(|version| version.record == own)?;
    let order = versions.get(place)?.order.as_ref();
    let below = versions.get(..place)?.iter().rev();
    for version in below {
        match version.what {
            What::Whole(base) => return Some(base),
            What::Marked => {}
            // The same removal, delivered before.
            What::Removed if order.is_some() && version.order.as_ref() == order => {}
            What::Lacking(_) | What::Removed => return None,
        }
    }
    None
}

/// Lays the changes of a key out as they count, the oldest first, above the table's own row.
fn lay_out(
    key: KeyNumber,
    stored: Option<Location>,
    runs: &[&KeyRun],
    ranks: &Ranks<'_>,
) -> Vec<Version> {
    let boxed = |order: Option<crate::change::Order<'_>>| order.map(|one| Box::from(one.bytes()));
    let mut laid: Vec<(At, Version)> = Vec::new();
    for (run, changes) in (0u32..).zip(runs) {
        let changes = changes.changes();
        let first = changes.partition_point(|change| change.key < key);
        let of_key = changes.iter().enumerate().skip(first);
        for (index, change) in of_key.take_while(|(_, change)| change.key == key) {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let at = At { run, index };
            let what = match change.effect {
                Effect::Upsert(row) => What::Whole(Base::New(run, row)),
                Effect::Pending(row) => What::Lacking(Base::Pending(run, row)),
                Effect::Mark(_) => What::Marked,
                Effect::Delete => What::Removed,
                Effect::Truncate => continue,
            };
            // What the table has is newer, or gone.
            if ranks.is_stale(key, &at) || ranks.is_emptied(&at) {
                continue;
            }
            let (partition, offset) = change.record();
            let version = Version {
                what,
                order: boxed(ranks.order(&at)),
                record: Some((run, partition, offset)),
            };
            laid.insert(place_of(&at, &laid, ranks), (at, version));
        }
    }
    let stored = stored.map(|row| Version {
        what: What::Whole(Base::Table(row)),
        order: boxed(ranks.known_order(key)),
        record: None,
    });
    let laid = laid.into_iter().map(|(_, version)| version);
    stored.into_iter().chain(laid).collect()
}

/// Returns where a change goes in: below those that it is older than.
fn place_of(at: &At, laid: &[(At, Version)], ranks: &Ranks<'_>) -> usize {
    let mut place = laid.len();
    for (index, (other, _)) in laid.iter().enumerate().rev() {
        if ranks.is_older(at, other) {
            place = index;
        } else if ranks.is_alike(at, other) || !ranks.has_order(at) {
            break;
        }
    }
    place
}

#[cfg(test)]
#[path = "bases_tests.rs"]
mod tests;
