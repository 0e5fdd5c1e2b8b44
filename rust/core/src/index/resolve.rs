//! From the changes of a commit to the rows that it deletes.
//!
//! The coordinator resolves on the snapshot that it commits on, in three steps: [`locate`] finds the
//! last change of each key and the row that the key had; the caller loads the deletion vectors of
//! the [files](Located::files) touched; [`Located::resolve`] tells the rows to delete per file and
//! how the index changes. The [delta](super::table::Delta) is applied when the commit has succeeded
//! and dropped when it has not: then the same changes are located again, on the snapshot that won.

use std::collections::{BTreeMap, BTreeSet};

use super::Location;
use super::files::{IndexedFile, NamedRows};
use super::key::KeyNumber;
use super::table::{Delta, Index};
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
    key: KeyNumber,
    /// The new row, by its number in the index to come.
    new: Option<Location>,
    old: Option<Location>,
}

/// The changes of a commit with the rows that they replace.
#[derive(Debug)]
pub struct Located<O> {
    generation: u64,
    first_new: u32,
    new_files: Vec<IndexedFile>,
    winners: Vec<Winner>,
    /// The last orders of keys: of each the last one of each kind.
    orders: Vec<(KeyNumber, O)>,
    /// New rows that a later change of the same commit replaced.
    superseded: Vec<Location>,
    /// The rows that stay when the table is emptied.
    kept: Option<BTreeSet<Location>>,
    counts: Counts,
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

/// Finds the last change of each key and the row that it had.
///
/// `runs` come in the order of their segments; a run is sorted by key, and changes of one key are in
/// the order in which they arrived. The later of two counts unless `ranking` says that it is older
/// than the other. Every row of `new_files` belongs to one change.
///
/// # Errors
///
/// Runs that do not describe the new files.
pub fn locate<O: Clone>(
    index: &Index,
    new_files: Vec<IndexedFile>,
    runs: &[&[KeyChange<O>]],
    ranking: &impl Ranking<O>,
) -> Result<Located<O>> {
    check_runs(&new_files, runs)?;
    let first_new = index.files().next();
    // Stable: changes of one key stay in the order of runs and within them. Sorted runs cost little.
    let mut all: Vec<&KeyChange<O>> = runs.iter().copied().flatten().collect();
    all.sort_by_key(|change| change.key);
    let row_of = |change: &KeyChange<O>| match change.change {
        Change::Delete => None,
        Change::Upsert(at) => Some(Location {
            file: at.file.saturating_add(first_new),
            ..at
        }),
    };
    let mut located = Located {
        generation: index.generation(),
        first_new,
        new_files,
        winners: Vec::new(),
        orders: Vec::new(),
        superseded: Vec::new(),
        kept: None,
        counts: Counts::default(),
    };
    let mut newest: Vec<&KeyChange<O>> = Vec::new();
    for group in all.chunk_by(|one, two| one.key == two.key) {
        newest.clear();
        for change in group.iter().copied() {
            let loser = if ranking.is_stale(change.key, &change.order) {
                located.counts.stale += 1;
                Some(change)
            } else if ranking.is_emptied(&change.order)
                || newest
                    .iter()
                    .any(|one| ranking.is_older(&change.order, &one.order))
            {
                located.counts.superseded += 1;
                Some(change)
            } else {
                let before = newest.last().copied();
                newest.retain(|one| !ranking.is_alike(&change.order, &one.order));
                if newest.len() >= KINDS_MAX {
                    newest.remove(0);
                }
                newest.push(change);
                located.counts.superseded += u64::from(before.is_some());
                before
            };
            located.superseded.extend(loser.and_then(row_of));
        }
        let ordered = newest.iter().filter(|one| ranking.has_order(&one.order));
        let orders = ordered.map(|one| (one.key, one.order.clone()));
        located.orders.extend(orders);
        located.winners.extend(newest.last().map(|winner| Winner {
            key: winner.key,
            new: row_of(winner),
            old: index.get(winner.key),
        }));
    }
    Ok(located)
}

fn check_runs<O>(new_files: &[IndexedFile], runs: &[&[KeyChange<O>]]) -> Result<()> {
    let mut named = NamedRows::new(new_files.iter().map(|file| u64::from(file.rows)));
    for run in runs {
        if !run.is_sorted_by_key(|change| change.key) {
            return Err(malformed("it is not in order"));
        }
        for change in *run {
            let Change::Upsert(at) = change.change else {
                continue;
            };
            if !named.name(at) {
                return Err(malformed(
                    "it names a row that no new file has, or one twice",
                ));
            }
        }
    }
    match named.is_complete() {
        true => Ok(()),
        false => Err(malformed("a new file has rows without a key")),
    }
}

fn malformed(what: &str) -> SinkError {
    SinkError::internal(format!("a key run does not describe its segment: {what}"))
}

impl<O> Located<O> {
    /// Returns the last order of each kind that the changes of a key have.
    pub fn orders(&self) -> impl Iterator<Item = (KeyNumber, &O)> {
        self.orders.iter().map(|(key, order)| (*key, order))
    }

    /// Empties the table before the changes: all its rows go but those at `kept`.
    pub fn empty(&mut self, kept: impl IntoIterator<Item = Location>) {
        self.kept = Some(kept.into_iter().collect());
        self.counts.emptied = true;
    }

    /// Returns the files of the table whose deletion vectors are needed.
    pub fn files(&self) -> BTreeSet<u32> {
        let old = self.winners.iter().filter_map(|winner| winner.old);
        let kept = self.kept.iter().flatten().copied();
        old.chain(kept).map(|row| row.file).collect()
    }

    /// Tells what to write. `vector_of` returns the deletion vector that a file of the table has,
    /// with the rows of its position delete files; `None` means that the file has no deleted row.
    ///
    /// # Errors
    ///
    /// The index does not fit the files.
    pub fn resolve<'v>(
        self,
        index: &Index,
        vector_of: impl Fn(u32) -> Option<&'v DeletionVector>,
    ) -> Result<Resolution> {
        if self.generation != index.generation() {
            return Err(SinkError::internal(
                "an index changed while a commit was resolved",
            ));
        }
        let mut counts = self.counts;
        let mut rows: BTreeMap<u32, DeletionVector> = BTreeMap::new();
        let mut delete = |row: Location| rows.entry(row.file).or_default().insert(row.row.into());
        let mut changes = Vec::with_capacity(self.winners.len());
        let mut left: BTreeMap<u32, u32> = BTreeMap::new();
        for Winner { key, new, old } in self.winners {
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
            if let Some(old) = old {
                *left.entry(old.file).or_default() += 1;
            }
            if new.is_some() || old.is_some() {
                changes.push((key, new));
            }
        }
        for row in self.superseded {
            delete(row)?;
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
                left,
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
