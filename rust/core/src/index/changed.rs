//! The changes of the segments of one commit: from their key runs to the rows that the commit deletes, and
//! what is remembered of them once the table has it.

use std::collections::{BTreeSet, VecDeque};

use uuid::Uuid;

use super::Location;
use super::files::IndexedFile;
use super::ranks::{At, Ranks, Truncation};
use super::resolve::{Change, Counts, KeyChange, Located, Resolution};
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

/// The changes of a commit, each key's last one found, with the rows that they replace.
#[derive(Debug)]
pub struct LocatedChanges {
    located: Located,
    /// The truncations of the commit, once its first piece has come.
    truncations: Option<Vec<Truncation>>,
    noted: Noted,
}

/// The orders of a commit's changes: as many as are remembered, the last ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noted {
    keys: VecDeque<(KeyNumber, Box<[u8]>)>,
    /// The bytes that the keys take among what is remembered.
    key_bytes: usize,
    /// The orders of truncations, as far as they have one.
    truncations: Vec<Option<Box<[u8]>>>,
}

impl LocatedChanges {
    /// Begins with no change; `files` are those of all segments, one segment after the other.
    pub fn begin(index: &Index, files: Vec<IndexedFile>) -> Self {
        LocatedChanges {
            located: Located::begin(index, files),
            truncations: None,
            noted: Noted::default(),
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
        located.add(index, &runs, &ranks, |key, at| {
            if let Some(order) = ranks.order(at) {
                noted.take(key, order, known);
            }
        })
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.located.memory_bytes() + self.noted.memory_bytes()
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
        self.key_bytes
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
