//! From the changes of a commit to the rows that it deletes.
//!
//! The coordinator resolves on the snapshot that it commits on, in three steps: [`Located::add`] finds the
//! last change of each key and the row that the key had, a piece of the changes at a time, so that only 28
//! bytes of each key stay; the caller loads the deletion vectors of the [files](Located::files) touched; [`Located::resolve`] tells the rows to delete per file and
//! how the index changes. The [delta](super::table::Delta) is applied when the commit has succeeded
//! and dropped when it has not: then the same changes are located again, on the snapshot that won.

use std::collections::{BTreeMap, BTreeSet};

use super::Location;
use super::files::{IndexedFile, NamedRows};
use super::key::KeyNumber;
use super::table::{Delta, Index, Moved, Packed};
use crate::commit::summary::FileChanges;
use crate::control::segment::FileCounts;
use crate::delete::DeletionVector;
use crate::error::{Result, SinkError};
use crate::rules::{Rule, enforced};

/// What a change does to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The row of the key goes.
    Delete,
    /// The row of the key is now this one of the commit's new files, which are numbered from 0.
    Upsert(Location),
    /// The row of the key is one that the commit has yet to make: see [`Located::complete`].
    Complete,
}

/// One change of one key. Its order is whatever the source gives changes an order by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyChange<O> {
    /// The key.
    pub key: KeyNumber,
    /// Its place in the order of the source.
    pub order: O,
    /// What happens.
    pub change: Change,
}

/// What tells which change of a key counts.
pub trait Ranking<O> {
    /// Tells whether a change is known to be older than one of the same key that came before it.
    fn is_older(&self, order: &O, than: &O) -> bool;

    /// Tells whether the orders of two changes say which one is older. Where they do not, the one
    /// counts that comes later.
    fn is_alike(&self, _one: &O, _other: &O) -> bool {
        true
    }

    /// Tells whether the source orders a change at all. One that it does not order leaves the order of its
    /// key as it was: the null after a delete says nothing about what comes later.
    fn has_order(&self, _order: &O) -> bool {
        true
    }

    /// Tells whether a change is older than what the table is known to have of its key.
    fn is_stale(&self, _key: KeyNumber, _order: &O) -> bool {
        false
    }

    /// Tells whether the commit empties the table after a change.
    fn is_emptied(&self, _order: &O) -> bool {
        false
    }
}

impl<O, F: Fn(&O, &O) -> bool> Ranking<O> for F {
    fn is_older(&self, order: &O, than: &O) -> bool {
        self(order, than)
    }
}

/// Kinds of orders that changes of one key may have, such as of several sources, and of which the
/// newest is kept in mind.
const KINDS_MAX: usize = 16;

/// What became of the changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys that the table did not have.
    pub inserted: u64,
    /// Keys whose row was replaced.
    pub updated: u64,
    /// Keys whose row was deleted.
    pub deleted: u64,
    /// Deletes of keys that the table did not have.
    pub missing: u64,
    /// Changes that a later one of the same commit made void.
    pub superseded: u64,
    /// Changes that are older than what the table had of their key.
    pub stale: u64,
    /// Whether all rows went that were not newer.
    pub emptied: bool,
    /// How many that were, once the commit's files are known.
    pub emptied_rows: u64,
    /// Rows that took values from the row that they replace.
    pub completed: u64,
    /// Values that became null because no row had them.
    pub nulled: u64,
}

impl Counts {
    /// Counts the rows that went because the table was emptied, and for no change of their key: by what
    /// becomes of its `files`.
    pub fn count_emptied(&mut self, files: &FileChanges) {
        if !self.emptied {
            return;
        }
        let rows =
            |counts: &FileCounts| i128::from(counts.records) - i128::from(counts.position_deletes);
        let less = rows(&files.removed) - rows(&files.added);
        let less = less + i128::from(self.inserted) - i128::from(self.deleted);
        self.emptied_rows = u64::try_from(less).unwrap_or_default();
    }
}

/// The last change of a key.
#[derive(Debug, Clone, Copy)]
struct Winner {
    /// The key and the new row, by its number in the index to come.
    moved: Moved,
    old: Packed,
}

/// What was found of a key that changes.
#[derive(Debug)]
pub struct Found<'c, O> {
    /// The key.
    pub key: KeyNumber,
    /// The change that counts.
    pub change: &'c O,
    /// The last order of each kind that its changes have.
    pub orders: &'c [&'c O],
    /// The row that the index has of the key.
    pub old: Option<Location>,
}

/// The changes of a commit with the rows that they replace.
#[derive(Debug)]
pub struct Located {
    generation: u64,
    first_new: u32,
    new_files: Vec<IndexedFile>,
    /// The rows of these that were named.
    named: NamedRows,
    /// In the order of their keys; one part for each piece of the changes.
    winners: Vec<Vec<Winner>>,
    /// The last key that came.
    last: Option<KeyNumber>,
    /// Keys whose rows are yet to be made: until then they are as if deleted.
    awaited: usize,
    /// New rows that a later change of the same commit replaced, by the number of their file.
    superseded: BTreeMap<u32, DeletionVector>,
    /// The rows that stay when the table is emptied.
    kept: Option<BTreeSet<Location>>,
    /// What became of the changes so far.
    pub counts: Counts,
}

/// The deletes of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct FileDeletes {
    /// All deleted rows of the file, those of earlier commits included.
    pub vector: DeletionVector,
    /// The rows that this commit deletes.
    pub added: u64,
}

/// What a commit has to write, and how the index changes with it.
#[derive(Debug)]
pub struct Resolution {
    /// The rows to delete in files that stay, by the file's number; those of new files included.
    pub deletes: BTreeMap<u32, FileDeletes>,
    /// Files of the table that have no row left.
    pub dropped: Vec<u32>,
    /// New files without a row that counts, by their number among the new ones: not to be added.
    pub unneeded: Vec<u32>,
    /// The number that the first new file has in `deletes`.
    pub first_new: u32,
    /// What became of the changes.
    pub counts: Counts,
    /// How the index changes.
    pub delta: Delta,
}

/// Finds the last change of each key of `runs`, which are all changes of a commit, and the row that it had;
/// tells `each` the keys that change and the order of the last change of each that has one.
///
/// # Errors
///
/// Those of [`Located::add`] and [`Located::resolve`].
pub fn locate<O>(
    index: &Index,
    new_files: Vec<IndexedFile>,
    runs: &[&[KeyChange<O>]],
    ranking: &impl Ranking<O>,
    each: impl FnMut(Found<'_, O>),
) -> Result<Located> {
    let mut located = Located::begin(index, new_files);
    located.add(index, runs, ranking, each)?;
    located.check_complete()?;
    Ok(located)
}

fn malformed(what: &str) -> SinkError {
    SinkError::internal(format!("a key run does not describe its segment: {what}"))
}

impl Located {
    /// Begins with no change. Every row of `new_files` belongs to one.
    pub fn begin(index: &Index, new_files: Vec<IndexedFile>) -> Self {
        let rows = new_files.iter().map(|file| u64::from(file.rows));
        Located {
            generation: index.generation(),
            first_new: index.files().next(),
            named: NamedRows::new(rows),
            new_files,
            winners: Vec::new(),
            last: None,
            awaited: 0,
            superseded: BTreeMap::new(),
            kept: None,
            counts: Counts::default(),
        }
    }

    /// Finds the last change of each key of a piece of the changes, all of whose keys are above those of the
    /// pieces before, and the row that it had; tells `each` the keys that change and the last order of
    /// each kind that their changes have.
    ///
    /// `runs` come in the order of their segments; a run is sorted by key, and changes of one key are in
    /// the order in which they arrived. The later of two counts unless `ranking` says that it is older
    /// than the other.
    ///
    /// # Errors
    ///
    /// Runs that do not describe the new files.
    pub fn add<O>(
        &mut self,
        index: &Index,
        runs: &[&[KeyChange<O>]],
        ranking: &impl Ranking<O>,
        mut each: impl FnMut(Found<'_, O>),
    ) -> Result<()> {
        self.check_runs(runs)?;
        // Stable: changes of one key stay in the order of runs and within them. Sorted runs cost little.
        let mut all: Vec<&KeyChange<O>> = runs.iter().copied().flatten().collect();
        all.sort_by_key(|change| change.key);
        self.last = all.last().map(|change| change.key).or(self.last);
        let mut winners = Vec::new();
        let mut newest: Vec<&KeyChange<O>> = Vec::new();
        let mut orders: Vec<&O> = Vec::new();
        for group in all.chunk_by(|one, two| one.key == two.key) {
            newest.clear();
            self.fold(group, &mut newest, ranking)?;
            orders.clear();
            let ordered = newest.iter().filter(|one| ranking.has_order(&one.order));
            orders.extend(ordered.map(|one| &one.order));
            if let Some(winner) = newest.last() {
                let old = index.get(winner.key);
                each(Found {
                    key: winner.key,
                    change: &winner.order,
                    orders: &orders,
                    old,
                });
                self.awaited += usize::from(winner.change == Change::Complete);
                winners.push(Winner {
                    moved: Moved::of(winner.key, self.row_of(winner)),
                    old: Packed::of(old),
                });
            }
        }
        winners.shrink_to_fit();
        self.winners.push(winners);
        Ok(())
    }

    /// Takes the changes of one key in their order: `newest` are those that count, of each kind of orders
    /// the last, and the one that counts most comes last.
    fn fold<'c, O>(
        &mut self,
        group: &[&'c KeyChange<O>],
        newest: &mut Vec<&'c KeyChange<O>>,
        ranking: &impl Ranking<O>,
    ) -> Result<()> {
        for change in group.iter().copied() {
            let loser = if ranking.is_stale(change.key, &change.order) {
                self.counts.stale += 1;
                Some(change)
            } else if ranking.is_emptied(&change.order)
                || newest
                    .iter()
                    .any(|one| ranking.is_older(&change.order, &one.order))
            {
                self.counts.superseded += 1;
                Some(change)
            } else {
                let before = newest.last().copied();
                newest.retain(|one| !ranking.is_alike(&change.order, &one.order));
                if newest.len() >= KINDS_MAX {
                    newest.remove(0);
                }
                newest.push(change);
                self.counts.superseded += u64::from(before.is_some());
                before
            };
            if let Some(row) = loser.and_then(|loser| self.row_of(loser)) {
                let rows = self.superseded.entry(row.file).or_default();
                rows.insert(row.row.into())?;
            }
        }
        Ok(())
    }

    /// Returns the new row of a change, by its number in the index to come.
    fn row_of<O>(&self, change: &KeyChange<O>) -> Option<Location> {
        match change.change {
            Change::Delete | Change::Complete => None,
            Change::Upsert(at) => Some(Location {
                file: at.file.saturating_add(self.first_new),
                ..at
            }),
        }
    }

    fn check_runs<O>(&mut self, runs: &[&[KeyChange<O>]]) -> Result<()> {
        for run in runs {
            let first = run.first().map(|change| change.key);
            let follows = first.is_none() || self.last.is_none() || first > self.last;
            if !follows || !run.is_sorted_by_key(|change| change.key) {
                return Err(malformed("it is not in order"));
            }
            for change in *run {
                let Change::Upsert(at) = change.change else {
                    continue;
                };
                if !self.named.name(at) {
                    return Err(malformed(
                        "it names a row that no new file has, or one twice",
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_complete(&self) -> Result<()> {
        match self.named.is_complete() {
            true => Ok(()),
            false => Err(malformed("a new file has rows without a key")),
        }
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let winners = self.winners.iter().map(Vec::capacity).sum::<usize>();
        let superseded = self.superseded.values().map(DeletionVector::memory_bytes);
        let kept = self.kept.as_ref().map_or(0, BTreeSet::len);
        winners * size_of::<Winner>()
            + superseded.sum::<usize>()
            + kept * 2 * size_of::<Location>()
            + self
                .new_files
                .iter()
                .map(IndexedFile::memory_bytes)
                .sum::<usize>()
    }

    /// Returns how many keys change.
    pub fn keys(&self) -> usize {
        self.winners.iter().map(Vec::len).sum()
    }

    /// Takes in the rows that were made, in `files`, which come behind the commit's other new files. A key
    /// that none was made for has no row afterwards.
    ///
    /// # Errors
    ///
    /// A row is of no key whose row was to be made, or there are too many files.
    pub fn complete(
        &mut self,
        files: Vec<IndexedFile>,
        rows: &BTreeMap<KeyNumber, Location>,
    ) -> Result<()> {
        let first = u32::try_from(self.new_files.len()).ok();
        let first = first.and_then(|count| self.first_new.checked_add(count));
        let first = first.ok_or_else(|| SinkError::internal("a commit has too many files"))?;
        let mut made = 0;
        for winner in self.winners.iter_mut().flatten() {
            let (key, new) = winner.moved.entry();
            let Some(at) = rows.get(&key).filter(|_| new.is_none()) else {
                continue;
            };
            let at = Location {
                file: at.file.saturating_add(first),
                ..*at
            };
            winner.moved = Moved::of(key, Some(at));
            made += 1;
        }
        let total: u64 = files.iter().map(|file| u64::from(file.rows)).sum();
        let fits = made == rows.len() && made <= self.awaited;
        if !fits || u64::try_from(made) != Ok(total) {
            return Err(SinkError::internal("a row was made that no key waits for"));
        }
        self.awaited = 0;
        self.new_files.extend(files);
        Ok(())
    }

    /// Empties the table before the changes: all its rows go but those at `kept`.
    pub fn empty(&mut self, kept: impl IntoIterator<Item = Location>) {
        self.kept = Some(kept.into_iter().collect());
        self.counts.emptied = true;
    }

    /// Returns the files of the table whose deletion vectors are needed.
    pub fn files(&self) -> BTreeSet<u32> {
        let old = self.winners.iter().flatten();
        let old = old.filter_map(|winner| winner.old.location());
        let kept = self.kept.iter().flatten().copied();
        old.chain(kept).map(|row| row.file).collect()
    }

    /// Tells what to write. `vector_of` returns the deletion vector that a file of the table has,
    /// with the rows of its position delete files; `None` means that the file has no deleted row.
    ///
    /// # Errors
    ///
    /// The index does not fit the files, or new files have rows of no change.
    pub fn resolve<'v>(
        self,
        index: &Index,
        vector_of: impl Fn(u32) -> Option<&'v DeletionVector>,
    ) -> Result<Resolution> {
        self.check_complete()?;
        if self.generation != index.generation() {
            return Err(SinkError::internal(
                "an index changed while a commit was resolved",
            ));
        }
        if self.awaited > 0 {
            return Err(SinkError::internal("a row of a commit was not made"));
        }
        let mut counts = self.counts;
        let mut rows = self.superseded;
        let mut delete = |row: Location| rows.entry(row.file).or_default().insert(row.row.into());
        let mut changes = Vec::with_capacity(self.winners.len());
        // Part by part, so that each goes as soon as it was seen.
        for part in self.winners {
            let mut moved = Vec::with_capacity(part.len());
            for winner in part {
                let (old, (_, new)) = (winner.old.location(), winner.moved.entry());
                // A row that somebody deleted is not there, whatever the index remembers.
                let live = old.filter(|old| {
                    let vector = vector_of(old.file);
                    let is_gone = vector.is_some_and(|vector| vector.contains(u64::from(old.row)));
                    !is_gone || !enforced(Rule::LiveRow)
                });
                if let Some(live) = live {
                    delete(live)?;
                }
                match (new, live) {
                    (Some(_), None) => counts.inserted += 1,
                    (Some(_), Some(_)) => counts.updated += 1,
                    (None, Some(_)) => counts.deleted += 1,
                    (None, None) => counts.missing += 1,
                }
                if new.is_some() || old.is_some() {
                    moved.push(winner.moved);
                }
            }
            changes.push(moved);
        }
        let mut made = Resolution {
            deletes: BTreeMap::new(),
            dropped: Vec::new(),
            unneeded: Vec::new(),
            first_new: self.first_new,
            counts,
            delta: Delta {
                generation: self.generation,
                added: self.new_files,
                dropped: Vec::new(),
                changes,
            },
        };
        if let Some(kept) = self.kept {
            made.empty(index, &kept, &mut rows);
        }
        for (number, rows) in rows {
            made.add_file(index, number, rows, vector_of(number))?;
        }
        Ok(made)
    }
}

impl Resolution {
    /// Drops the files without a row that stays, and adds the other rows of those with one to `rows`.
    fn empty(
        &mut self,
        index: &Index,
        kept: &BTreeSet<Location>,
        rows: &mut BTreeMap<u32, DeletionVector>,
    ) {
        for (number, file) in index.files().iter() {
            let at = |row| Location { file: number, row };
            let mut kept = kept.range(at(0)..=at(u32::MAX)).peekable();
            if kept.peek().is_none() {
                rows.remove(&number);
                self.dropped.push(number);
                self.delta.dropped.push(number);
                continue;
            }
            let kept = kept.map(|row| u64::from(row.row));
            let others = DeletionVector::all_but(file.rows.into(), kept);
            rows.entry(number).or_default().union(&others);
        }
    }

    fn add_file(
        &mut self,
        index: &Index,
        number: u32,
        rows: DeletionVector,
        old: Option<&DeletionVector>,
    ) -> Result<()> {
        let new = number.checked_sub(self.first_new);
        let file = match new {
            Some(new) => self.delta.added.get(new as usize),
            None => index.files().get(number),
        };
        let total = file.map(|file| u64::from(file.rows));
        let total = total.ok_or_else(|| SinkError::internal("a deleted row has no file"))?;
        let mut vector = rows;
        if let Some(old) = old.filter(|_| enforced(Rule::OneDelete)) {
            vector.union(old);
        }
        let added = vector
            .len()
            .saturating_sub(old.map_or(0, DeletionVector::len));
        if vector.last().is_some_and(|last| last >= total) {
            return Err(SinkError::internal("a deleted row is not in its file"));
        }
        match (vector.len() == total, new) {
            (false, _) => {
                self.deletes.insert(number, FileDeletes { vector, added });
            }
            (true, None) => {
                self.dropped.push(number);
                self.delta.dropped.push(number);
            }
            (true, Some(new)) => {
                self.unneeded.push(new);
                self.delta.dropped.push(number);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
