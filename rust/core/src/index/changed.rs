//! The changes of the segments of one commit: from their key runs to the rows that the commit deletes, and
//! what is remembered of them once the table has it.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::Location;
use super::files::IndexedFile;
use super::orders::Orders;
use super::ranks::{At, Ranks};
use super::resolve::{Change, Counts, KeyChange, Located, Resolution, locate};
use super::table::{Delta, Index};
use crate::change::Order;
use crate::change::keyrun::{Effect, KeyRun};
use crate::change::window::KnownOrders;
use crate::commit::outcome::is_made_by;
use crate::commit::view::TableView;
use crate::delete::DeletionVector;
use crate::error::Result;
use crate::index::KeyNumber;
use crate::offsets::SourceRange;
use crate::rules::{Rule, enforced};

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
}

/// The orders of a commit's changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noted {
    keys: Vec<(KeyNumber, Box<[u8]>)>,
    /// The orders of truncations, as far as they have one.
    truncations: Vec<Option<Box<[u8]>>>,
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
        let boxed = |at: &At| ranks.order(at).map(|order| Box::from(order.bytes()));
        let orders = located.orders();
        let keys = orders.filter_map(|(key, at)| Some((key, boxed(at)?)));
        let noted = Noted {
            keys: keys.collect(),
            truncations: ranks.truncations().iter().map(boxed).collect(),
        };
        Ok(LocatedChanges { located, noted })
    }

    /// Returns the files of the table whose deletion vectors are needed.
    pub fn files(&self) -> BTreeSet<u32> {
        self.located.files()
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
        Noted {
            keys: keys
                .map(|(key, order)| (key, Box::from(&order[..])))
                .collect(),
            truncations: Vec::new(),
        }
    }

    /// Remembers them.
    pub fn note(&self, known: &mut KnownOrders, now_ms: i64) {
        // First: one without an order makes those of before count no more.
        for order in &self.truncations {
            known.note_truncation(order.as_deref().map(Order::of), now_ms);
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
    /// commit, and it tells whether its snapshot is in the history of `branch`. Then the index changes by the
    /// delta; otherwise what came of it is read from the table's files.
    ///
    /// # Errors
    ///
    /// The table's state cannot be read.
    pub fn settle<V: TableView>(
        &self,
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
        if let Some(made_in) = made_in.or(skipped(Rule::NotedWhenThere, snapshot_id)) {
            orders.commit(self.commit_id, made_in, |known| {
                self.noted.note(known, now_ms);
            });
        }
        Ok(is_there || skipped(Rule::IndexWhenThere, snapshot_id).is_some())
    }
}

/// Returns `snapshot_id` where a rule is off.
fn skipped(rule: Rule, snapshot_id: i64) -> Option<i64> {
    (!enforced(rule)).then_some(snapshot_id)
}
