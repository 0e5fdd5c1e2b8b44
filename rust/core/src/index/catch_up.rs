//! Keys of files that the index did not see: of other writers, or since its base was stored.

use super::Location;
use super::key::KeyNumber;
use super::table::Index;
use crate::delete::DeletionVector;
use crate::error::{Result, SinkError};

/// Keys that are gathered before they are put into the index, 32 bytes each.
pub const PENDING_MAX: usize = 1 << 20;
/// Duplicates that are kept, to be looked at.
const NAMED_MAX: usize = 4_096;

/// Two live rows with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duplicate {
    /// The row in the file that was added earlier; the index forgets it.
    pub older: Location,
    /// The other one.
    pub newer: Location,
}

/// What a catch-up found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caught {
    /// Keys that were added or moved.
    pub keys: u64,
    /// Pairs of live rows with one key.
    pub duplicates: u64,
    /// Some of them.
    pub named: Vec<Duplicate>,
}

/// Takes the keys of added files, file after file, the oldest first. Files that are gone have been
/// dropped from the index before, and new ones added to it.
pub struct CatchUp<'a, F> {
    index: &'a mut Index,
    /// The vector of a file as it is now.
    vector_of: F,
    pending: Vec<(KeyNumber, Location)>,
    pending_max: usize,
    caught: Caught,
}

impl<'a, F: Fn(u32) -> Option<&'a DeletionVector>> CatchUp<'a, F> {
    /// Begins to catch up. `vector_of` returns the deletion vector of a file by its number.
    pub fn new(index: &'a mut Index, vector_of: F) -> Self {
        CatchUp {
            index,
            vector_of,
            pending: Vec::new(),
            pending_max: PENDING_MAX,
            caught: Caught::default(),
        }
    }

    /// Gathers another number of keys before they are put into the index.
    #[must_use]
    pub fn with_pending_max(mut self, keys: usize) -> Self {
        self.pending_max = keys.max(1);
        self
    }

    /// Returns the memory of the index and of the keys that wait for it.
    pub fn heap_bytes(&self) -> usize {
        let waiting = self.pending.capacity() * size_of::<(KeyNumber, Location)>();
        self.index.memory().heap.saturating_add(waiting)
    }

    /// Takes the keys of the rows of `file` from `first_row` on. Deleted rows are left out. Returns
    /// whether the index has grown by it.
    ///
    /// # Errors
    ///
    /// The index does not have the file, or the file does not have the rows.
    pub fn add(&mut self, file: u32, first_row: u32, keys: &[KeyNumber]) -> Result<bool> {
        let rows = self.index.files().get(file).map(|file| file.rows);
        let end = u64::from(first_row) + keys.len() as u64;
        if rows.is_none_or(|rows| end > u64::from(rows)) {
            return Err(SinkError::internal("keys are of rows that no file has"));
        }
        let vector = (self.vector_of)(file);
        let mut has_grown = false;
        for (key, row) in keys.iter().zip(first_row..) {
            if vector.is_some_and(|vector| vector.contains(u64::from(row))) {
                continue;
            }
            self.pending.push((*key, Location { file, row }));
            if self.pending.len() >= self.pending_max {
                self.flush()?;
                has_grown = true;
            }
        }
        Ok(has_grown)
    }

    /// Ends the catch-up.
    pub fn finish(mut self) -> Result<Caught> {
        self.flush()?;
        Ok(self.caught)
    }

    fn flush(&mut self) -> Result<()> {
        // Stable: of one key, the row that came last stays last.
        self.pending.sort_by_key(|(key, _)| *key);
        let mut changes = Vec::with_capacity(self.pending.len());
        for group in self.pending.chunk_by(|one, two| one.0 == two.0) {
            let mut older = group.first().and_then(|(key, _)| self.index.get(*key));
            older = older.filter(|found| {
                let vector = (self.vector_of)(found.file);
                !vector.is_some_and(|vector| vector.contains(u64::from(found.row)))
            });
            for (_, newer) in group {
                if let Some(older) = older.filter(|older| older != newer) {
                    self.caught.duplicates += 1;
                    if self.caught.named.len() < NAMED_MAX {
                        let newer = *newer;
                        self.caught.named.push(Duplicate { older, newer });
                    }
                }
                older = Some(*newer);
            }
            changes.extend(group.last().map(|(key, found)| (*key, Some(*found))));
        }
        self.caught.keys += changes.len() as u64;
        self.pending.clear();
        self.index.put(&changes)
    }
}
