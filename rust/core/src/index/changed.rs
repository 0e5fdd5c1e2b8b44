//! The changes of the segments of one commit: from their key runs to the rows that the commit deletes, and
//! what is remembered of them once the table has it.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::Location;
use super::bases::{Base, Bases, Incomplete};
use super::files::IndexedFile;
use super::ranks::{At, Ranks};
use super::resolve::{Change, Counts, KeyChange, Located, Resolution, locate};
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

/// What one segment changes.
#[derive(Debug, Clone)]
pub struct SegmentChanges<'a> {
    /// Its changes, sorted.
    pub run: &'a KeyRun,
    /// Its offsets, by which its changes name their source partitions.
    pub ranges: &'a [SourceRange],
    /// Its files, by which its changes name their rows.
    pub files: Vec<IndexedFile>,
}

/// The changes of a commit, each key's last one found, with the rows that they replace.
#[derive(Debug)]
pub struct LocatedChanges {
    located: Located<At>,
    noted: Noted,
    incomplete: Vec<Incomplete>,
    leaving: Vec<(KeyNumber, Location)>,
}

/// The orders of a commit's changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noted {
    keys: Vec<(KeyNumber, Box<[u8]>)>,
    /// The orders of truncations, as far as they have one.
    truncations: Vec<Option<Box<[u8]>>>,
    /// Rows that left their keys.
    left: Vec<(KeyNumber, LeftRow)>,
}

impl LocatedChanges {
    /// Finds the last change of each key of `parts`, which come in the order of their segments, and the row
    /// that the key had. `known` is what is remembered of earlier commits.
    ///
    /// # Errors
    ///
    /// Runs that do not describe their segments.
    pub fn find(
        index: &Index,
        known: &KnownOrders,
        parts: &[SegmentChanges<'_>],
    ) -> Result<LocatedChanges> {
        let ranks = Ranks::new(parts, known);
        let runs = key_changes(parts);
        let runs: Vec<&[KeyChange<At>]> = runs.iter().map(Vec::as_slice).collect();
        let files = parts.iter().flat_map(|part| part.files.iter().cloned());
        let mut located = locate(index, files.collect(), &runs, &ranks)?;
        if !ranks.truncations().is_empty() {
            let kept = ranks.survivors().filter_map(|key| index.get(key));
            located.empty(kept);
        }
        let mut bases = Bases::default();
        bases.add(index, &ranks, parts);
        for (key, at) in located.incomplete() {
            if let Some(change) = change_at(parts, at) {
                bases.add_incomplete(key, at.run, change);
            }
        }
        let incomplete = bases.finish();
        let leaving = located
            .removed()
            .filter(|(_, at, _)| change_at(parts, at).is_some_and(|change| change.leaves));
        let leaving = leaving.map(|(key, _, row)| (key, row)).collect();
        let boxed = |at: &At| ranks.order(at).map(|order| Box::from(order.bytes()));
        let changed = located.changed();
        let keys = changed.filter_map(|(key, at)| Some((key, boxed(at)?)));
        let noted = Noted {
            keys: keys.collect(),
            truncations: ranks.truncations().iter().map(boxed).collect(),
            left: Vec::new(),
        };
        Ok(LocatedChanges {
            located,
            noted,
            incomplete,
            leaving,
        })
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

    /// Returns the rows of the table that go because they get another key, which another record tells.
    pub fn leaving(&self) -> &[(KeyNumber, Location)] {
        &self.leaving
    }

    /// Keeps in mind where a row lies that left its key, once the table has the commit.
    pub fn leave(&mut self, key: KeyNumber, row: LeftRow) {
        self.noted.left.push((key, row));
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
        self.incomplete.clear();
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
    /// Remembers them.
    pub fn note(&self, known: &mut KnownOrders, now_ms: i64) {
        // First: one without an order makes those of before count no more.
        for order in &self.truncations {
            known.note_truncation(order.as_deref().map(Order::of), now_ms);
        }
        for (key, row) in &self.left {
            known.note_left(*key, row.clone(), now_ms);
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
    /// Reads from the table what became of the attempt: remembers its orders when the table was last changed
    /// by its commit, and tells whether its snapshot is in the history of `branch`. Then the index changes by
    /// the delta; otherwise what came of it is read from the table's files.
    ///
    /// # Errors
    ///
    /// The table's state cannot be read.
    pub fn settle<V: TableView>(
        &self,
        table: &V,
        (wid, branch): (&str, &str),
        known: &mut KnownOrders,
        now_ms: i64,
    ) -> Result<bool> {
        let state = table.writer_state(wid, branch)?;
        if is_made_by(state.as_ref(), self.commit_id) {
            // Another attempt of the same commit made the same changes.
            self.noted.note(known, now_ms);
        }
        Ok(table.has_snapshot(self.snapshot_id) && table.is_in_history(branch, self.snapshot_id))
    }
}
