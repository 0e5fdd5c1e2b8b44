//! The changes of the segments of one commit: from their key runs to the rows that the commit deletes, and
//! what is remembered of them once the table has it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uuid::Uuid;

use super::Location;
use super::bases::{Base, Bases, Incomplete, row_below};
use super::files::IndexedFile;
use super::orders::Orders;
use super::ranks::{At, Ranks, Truncation};
use super::resolve::{Change, Counts, Found, KeyChange, Located, Resolution};
use super::table::{Delta, Index};
use crate::change::Order;
use crate::change::keyrun::{Effect, KeyRun, RunChange};
use crate::change::window::{KnownOrders, LeftRow};
use crate::commit::outcome::is_made_by;
use crate::commit::view::TableView;
use crate::delete::DeletionVector;
use crate::error::Result;
use crate::index::KeyNumber;
use crate::offsets::SourceRange;
use crate::rules::{Rule, enforced};

/// What one segment changes, or a piece of that.
#[derive(Debug, Clone)]
pub struct SegmentChanges<'a> {
    /// Its changes, sorted.
    pub run: &'a KeyRun,
    /// Its offsets, by which its changes name their source partitions.
    pub ranges: &'a [SourceRange],
    /// Its files, by which its changes name their rows.
    pub files: &'a [IndexedFile],
}

/// What an order takes, about.
const ORDER_BYTES: usize = 64;

/// The changes of a commit, each key's last one found, with the rows that they replace.
#[derive(Debug)]
pub struct LocatedChanges {
    located: Located,
    /// The truncations of the commit, once its first piece has come.
    truncations: Option<Vec<Truncation>>,
    noted: Noted,
    bases: Bases,
    incomplete: Vec<Incomplete>,
    leaving: Vec<Leaving>,
}

/// A row that goes because it gets another key, which another record tells that the commit does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The key that it had.
    pub key: KeyNumber,
    /// What orders the change that removes it there.
    order: Box<[u8]>,
    /// The record of that, by its segment.
    record: (u32, i64),
    /// The row; `None` when the key had none, or one that is yet to be made.
    pub row: Option<Base>,
}

/// The orders of a commit's changes: as many as are remembered, the last ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noted {
    keys: VecDeque<(KeyNumber, Box<[u8]>)>,
    /// The bytes that the keys take among what is remembered.
    key_bytes: usize,
    /// The orders of truncations, as far as they have one.
    truncations: Vec<Option<Box<[u8]>>>,
    /// Rows that left their keys, with the order of the change.
    left: Vec<(KeyNumber, Box<[u8]>, Option<LeftRow>)>,
}

impl LocatedChanges {
    /// Begins with no change; `files` are those of all segments, one segment after the other.
    pub fn begin(index: &Index, files: Vec<IndexedFile>) -> Self {
        LocatedChanges {
            located: Located::begin(index, files),
            truncations: None,
            noted: Noted::default(),
            bases: Bases::default(),
            incomplete: Vec::new(),
            leaving: Vec::new(),
        }
    }

    /// Takes a piece of the changes, in the order of the segments: of each key all, and none of keys that came
    /// before. Finds the last change of each key and the row that the key had. `known` is what is
    /// remembered of earlier commits.
    ///
    /// # Errors
    ///
    /// Runs that do not describe their segments.
    pub fn add(
        &mut self,
        index: &Index,
        known: &KnownOrders,
        parts: &[SegmentChanges<'_>],
    ) -> Result<()> {
        let LocatedChanges {
            located,
            truncations,
            noted,
            bases,
            leaving,
            ..
        } = self;
        // They have the lowest key, and so come with the first piece.
        let is_first = truncations.is_none();
        let truncations =
            truncations.get_or_insert_with(|| Ranks::new(parts, known, &[]).find_truncations());
        let ranks = Ranks::new(parts, known, truncations);
        if is_first && !truncations.is_empty() {
            let kept = ranks.survivors().filter_map(|key| index.get(key));
            located.empty(kept);
            let orders = truncations.iter().map(Truncation::order);
            let orders = orders.map(|order| order.map(|order| Box::from(order.bytes())));
            noted.truncations.extend(orders);
        }
        let runs = key_changes(parts);
        let runs: Vec<&[KeyChange<At>]> = runs.iter().map(Vec::as_slice).collect();
        bases.add(index, &ranks, parts);
        located.add(index, &runs, &ranks, |found| {
            for order in found.orders.iter().filter_map(|at| ranks.order(at)) {
                noted.take(found.key, order, known);
            }
            let Some(change) = change_at(parts, found.change) else {
                return;
            };
            bases.add_incomplete(found.key, found.change.run, change);
            if change.leaves && change.effect == Effect::Delete {
                leaving.extend(Leaving::of(&found, change, parts, &ranks));
            }
        })
    }

    /// All changes have come: finds where the rows that are yet to be made take their values from.
    pub fn finish(&mut self) {
        self.incomplete = std::mem::take(&mut self.bases).finish();
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let incomplete = self.incomplete.iter().map(Incomplete::memory_bytes);
        self.located.memory_bytes()
            + self.noted.memory_bytes()
            + self.bases.memory_bytes()
            + self.leaving.capacity() * (size_of::<Leaving>() + ORDER_BYTES)
            + incomplete.sum::<usize>()
    }

    /// Returns the files of the table whose deletion vectors are needed.
    pub fn files(&self) -> BTreeSet<u32> {
        let bases = self.incomplete.iter().flat_map(|one| &one.bases);
        let of_table = bases.filter_map(|base| match base {
            Base::Table(at) => Some(at.file),
            Base::New(..) | Base::Pending(..) | Base::Left(..) => None,
        });
        self.located.files().into_iter().chain(of_table).collect()
    }

    /// Returns the rows that go because they get another key, in the order of their records.
    pub fn take_leaving(&mut self) -> Vec<Leaving> {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.sort_by_key(|one| one.record);
        leaving
    }

    /// Keeps in mind where a row lies that left its key, once the table has the commit.
    pub fn leave(&mut self, leaving: Leaving, row: Option<LeftRow>) {
        self.noted.left.push((leaving.key, leaving.order, row));
    }

    /// Returns how many keys change.
    pub fn keys(&self) -> usize {
        self.located.keys()
    }

    /// Returns the rows that are yet to be made, by their keys.
    pub fn incomplete(&self) -> &[Incomplete] {
        &self.incomplete
    }

    /// Takes in the rows that were made, as [`Located::complete`] does, and counts them.
    ///
    /// # Errors
    ///
    /// As [`Located::complete`].
    pub fn complete(
        &mut self,
        files: Vec<IndexedFile>,
        rows: &BTreeMap<KeyNumber, Location>,
        nulled: u64,
    ) -> Result<()> {
        self.incomplete = Vec::new();
        self.located.counts.completed = rows.len() as u64;
        self.located.counts.nulled = nulled;
        self.located.complete(files, rows)
    }

    /// Tells what to write, as [`Located::resolve`] does, and what to remember once the table has it.
    ///
    /// # Errors
    ///
    /// The index does not fit the files.
    pub fn resolve<'v>(
        self,
        index: &Index,
        vector_of: impl Fn(u32) -> Option<&'v DeletionVector>,
    ) -> Result<(Resolution, Noted)> {
        let made = self.located.resolve(index, vector_of)?;
        Ok((made, self.noted))
    }
}

impl Leaving {
    /// Finds out what row leaves the key `found` with its last change. `None` where the commit has the record
    /// that gives it another key, or where nobody will know by its order that it is this row.
    fn of(
        found: &Found<'_, At>,
        change: &RunChange,
        parts: &[SegmentChanges<'_>],
        ranks: &Ranks<'_>,
    ) -> Option<Self> {
        let order = ranks.order(found.change)?;
        if is_answered(found.key, change, order, parts) {
            return None;
        }
        // Of a table that is emptied nothing is kept in mind.
        let stored = found.old.filter(|_| !ranks.empties());
        Some(Leaving {
            key: found.key,
            order: Box::from(order.bytes()),
            record: (found.change.run, change.offset),
            row: row_below(found.key, stored, found.change, parts, ranks),
        })
    }
}

/// Tells whether another record of the commit says that it has the row of `key` that `change` removes.
fn is_answered(
    key: KeyNumber,
    change: &RunChange,
    order: Order<'_>,
    parts: &[SegmentChanges<'_>],
) -> bool {
    parts.iter().any(|part| {
        let mut of_key = part.run.of_key(key);
        of_key.any(|one| {
            let other = part.run.order(one);
            let is_there = other.is_some_and(|other| other.is_at_place_of(&order));
            one.effect == change.effect && !one.leaves && is_there
        })
    })
}

fn change_at<'p>(parts: &[SegmentChanges<'p>], at: &At) -> Option<&'p RunChange> {
    let part = parts.get(at.run as usize)?;
    part.run.changes().get(at.index as usize)
}

/// Numbers the files of all segments through.
fn key_changes(parts: &[SegmentChanges<'_>]) -> Vec<Vec<KeyChange<At>>> {
    let mut first_file = 0u32;
    let mut runs = Vec::with_capacity(parts.len());
    for (run, part) in (0u32..).zip(parts) {
        let changes = (0u32..).zip(part.run.changes());
        let changes = changes.filter_map(|(index, change)| {
            let what = match change.effect {
                Effect::Delete => Change::Delete,
                Effect::Upsert(at) => Change::Upsert(Location {
                    file: at.file.saturating_add(first_file),
                    row: at.row,
                }),
                Effect::Pending(_) | Effect::Mark(_) => Change::Complete,
                Effect::Truncate => return None,
            };
            Some(KeyChange {
                key: change.key,
                order: At { run, index },
                change: what,
            })
        });
        runs.push(changes.collect());
        let files = u32::try_from(part.files.len()).unwrap_or(u32::MAX);
        first_file = first_file.saturating_add(files);
    }
    runs
}

impl Noted {
    /// The orders of some keys.
    #[cfg(test)]
    pub(super) fn of<'o>(keys: impl IntoIterator<Item = (KeyNumber, &'o [u8; 10])>) -> Self {
        let keys = keys.into_iter();
        let keys: VecDeque<(KeyNumber, Box<[u8]>)> = keys
            .map(|(key, order)| (key, Box::from(&order[..])))
            .collect();
        let bytes = keys.iter();
        let bytes = bytes.map(|(_, order)| KnownOrders::bytes_of(Order::of(order)));
        Noted {
            key_bytes: bytes.sum(),
            keys,
            ..Noted::default()
        }
    }

    /// The order of a truncation.
    #[cfg(test)]
    pub(super) fn of_truncation(order: &[u8; 10]) -> Self {
        Noted {
            truncations: vec![Some(Box::from(&order[..]))],
            ..Noted::default()
        }
    }

    /// A row that left a key, and the order of that.
    #[cfg(test)]
    pub(super) fn of_left(key: KeyNumber, order: &[u8; 10]) -> Self {
        let row = LeftRow {
            path: "a".into(),
            bytes: 1,
            row: 0,
        };
        let order: Box<[u8]> = Box::from(&order[..]);
        Noted {
            keys: VecDeque::from([(key, order.clone())]),
            left: vec![(key, order, Some(row))],
            ..Noted::default()
        }
    }

    /// Takes the order of a key, which is above those before. What is more than `known` holds would be
    /// forgotten with the first of it.
    fn take(&mut self, key: KeyNumber, order: Order<'_>, known: &KnownOrders) {
        self.keys.push_back((key, Box::from(order.bytes())));
        self.key_bytes += KnownOrders::bytes_of(order);
        while self.key_bytes > known.bytes_max() {
            let Some((_, order)) = self.keys.pop_front() else {
                break;
            };
            let bytes = KnownOrders::bytes_of(Order::of(&order));
            self.key_bytes = self.key_bytes.saturating_sub(bytes);
        }
    }

    /// Returns about how many bytes of memory they take.
    pub fn memory_bytes(&self) -> usize {
        let left = size_of::<(KeyNumber, Box<[u8]>, Option<LeftRow>)>() + ORDER_BYTES;
        self.key_bytes + self.left.capacity() * left
    }

    /// Remembers them.
    pub(super) fn note(&self, known: &mut KnownOrders, now_ms: i64) {
        // First: one without an order makes those of before count no more.
        for order in &self.truncations {
            known.note_truncation(order.as_deref().map(Order::of), now_ms);
        }
        for (key, order, row) in &self.left {
            known.note_left(*key, Order::of(order), row.clone(), now_ms);
        }
        for (key, order) in &self.keys {
            known.note(*key, Order::of(order), now_ms);
        }
        known.expire(now_ms);
    }
}

/// What an attempt to commit changes, until it is known whether it was applied.
#[derive(Debug)]
pub struct Pending {
    /// The commit, of which other attempts change the same.
    pub commit_id: Uuid,
    /// The attempt's snapshot.
    pub snapshot_id: i64,
    /// How the index changes.
    pub delta: Delta,
    /// What is remembered.
    pub noted: Noted,
    /// What became of the changes.
    pub counts: Counts,
}

impl Pending {
    /// Reads from the table what became of the attempt: its orders are remembered when the table has its
    /// commit, and kept in case that it comes to have it; and it tells whether its snapshot is in the history of `branch`. Then the index changes by the
    /// delta; otherwise what came of it is read from the table's files.
    ///
    /// # Errors
    ///
    /// The table's state cannot be read.
    pub fn settle<V: TableView>(
        &mut self,
        table: &V,
        (wid, branch): (&str, &str),
        orders: &mut Orders,
        now_ms: i64,
    ) -> Result<bool> {
        let state = table.writer_state(wid, branch)?;
        let snapshot_id = self.snapshot_id;
        let is_there = table.has_snapshot(snapshot_id) && table.is_in_history(branch, snapshot_id);
        // Another attempt of the same commit made the same changes, in a snapshot of its own.
        let made = state.filter(|state| is_made_by(Some(state), self.commit_id));
        let made_in = made.map(|state| state.snapshot_id);
        let made_in = Some(snapshot_id).filter(|_| is_there).or(made_in);
        let noted = std::mem::take(&mut self.noted);
        match made_in.or(skipped(Rule::NotedWhenThere, snapshot_id)) {
            Some(made_in) => orders.commit(self.commit_id, made_in, &noted, now_ms),
            None => orders.expect(self.commit_id, noted),
        }
        Ok(is_there || skipped(Rule::IndexWhenThere, snapshot_id).is_some())
    }
}

/// Returns `snapshot_id` where a rule is off.
fn skipped(rule: Rule, snapshot_id: i64) -> Option<i64> {
    (!enforced(rule)).then_some(snapshot_id)
}
