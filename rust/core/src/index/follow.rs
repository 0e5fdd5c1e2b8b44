//! How an index follows its table from snapshot to snapshot.
//!
//! It follows by difference: files that are gone are dropped, and of files that are new the keys are read. What
//! the process's own commits change it is [told](Followed::apply), so that nothing of them is read. It is built
//! anew where the difference does not tell:
//!
//! - after a rollback behind the snapshot that was followed last, for rows may be there again that it has
//!   forgotten;
//! - when several rows had one key and somebody has changed the table since: it knows the newest of them, and
//!   another one may be the newest now.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::files::IndexedFile;
use super::orders::Keys;
use super::table::{Delta, Index};
use crate::commit::view::TableView;
use crate::error::Result;
use crate::rules::{Rule, enforced};

/// Rows of files that are gone from which on their keys are taken out of the index, when they are a quarter
/// of it.
const DEAD_ROWS_MIN: u64 = 1 << 16;

/// An index and the snapshot that it is true to.
#[derive(Debug)]
pub struct Followed {
    keys: Keys,
    index: Index,
    /// The snapshot that was followed last.
    snapshot: Option<i64>,
    /// Whether it has the keys of all its files.
    is_whole: bool,
    /// Whether there may be rows of a key that has a newer one, of which nothing is known.
    has_several_rows: bool,
    /// Rows of files that are gone, whose keys may still take memory.
    dead_rows: u64,
    dead_rows_min: u64,
}

/// A data file that is new to the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// Its number in the index.
    pub number: u32,
    /// Its location.
    pub path: Arc<str>,
    /// Its rows, deleted ones included.
    pub rows: u64,
}

impl Followed {
    /// Begins with nothing: all files of the first snapshot are new.
    pub fn new(keys: Keys) -> Self {
        Followed {
            index: Index::new(keys.form),
            keys,
            snapshot: None,
            is_whole: true,
            has_several_rows: false,
            dead_rows: 0,
            dead_rows_min: DEAD_ROWS_MIN,
        }
    }

    /// Takes keys out of the index from this number of rows of files on that are gone.
    #[must_use]
    pub fn with_dead_min(mut self, rows: u64) -> Self {
        self.dead_rows_min = rows;
        self
    }

    /// Returns the index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the index, for the keys of new files to be put into it.
    pub fn index_mut(&mut self) -> &mut Index {
        &mut self.index
    }

    /// Returns what the numbers of its keys are numbers of.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Tells whether it is true to a snapshot, after an error as well.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns why it may not follow `table`, whose `branch` has the head `head`: then the index is built anew.
    pub fn unfit<V: TableView>(
        &self,
        table: &V,
        (branch, head): (&str, Option<i64>),
        keys: &Keys,
    ) -> Option<&'static str> {
        if !self.is_whole {
            return Some("something went wrong half-way");
        }
        if self.keys.table != keys.table {
            return Some("the table was replaced");
        }
        if self.keys != *keys {
            return Some("the columns of the key are others");
        }
        let descends = |id| table.descends_from(branch, id);
        if !self.snapshot.is_none_or(descends) && enforced(Rule::IndexOfRollback) {
            return Some("the branch does not descend from the snapshot that was followed last");
        }
        let has_changed = self.has_several_rows && self.snapshot != head;
        let is_unsure = has_changed && enforced(Rule::SeveralRows);
        is_unsure.then_some("several rows had one key, and another writer has changed the table")
    }

    /// It is about to follow: whatever goes wrong from here on, until it has done so, makes it of no use.
    pub fn set_out(&mut self) {
        self.is_whole = false;
    }

    /// Becomes true to the snapshot `head`, which has the data files `live`, but for the keys of the files that
    /// are returned, the oldest first: they are to be read, and then told by [`has_read`](Self::has_read) or
    /// [`read_failed`](Self::read_failed). `of` returns the rows of a file and its data sequence number.
    ///
    /// # Errors
    ///
    /// A file with too many rows. The index is of no use then.
    pub fn follow<F>(
        &mut self,
        head: Option<i64>,
        live: &BTreeMap<Arc<str>, F>,
        of: impl Fn(&F) -> (u64, i64),
    ) -> Result<Vec<NewFile>> {
        self.set_out();
        let files = self.index.files().iter();
        let gone = files.filter(|(_, file)| !live.contains_key(&file.path));
        let gone: Vec<u32> = gone.map(|(number, _)| number).collect();
        for number in gone {
            let rows = self.index.drop_file(number).map_or(0, |file| file.rows);
            self.dead_rows = self.dead_rows.saturating_add(u64::from(rows));
        }
        self.shrink()?;
        let known = self.index.files();
        let new = live.iter();
        let new = new.filter(|(path, _)| known.number(path).is_none());
        let new = new.map(|(path, file)| (of(file), path));
        let mut new: Vec<_> = new.collect();
        new.sort_by_key(|((_, sequence), path)| (*sequence, Arc::clone(path)));
        let mut added = Vec::with_capacity(new.len());
        for ((rows, _), path) in new {
            added.push(NewFile {
                number: self
                    .index
                    .add_file(IndexedFile::new(Arc::clone(path), rows)?)?,
                path: Arc::clone(path),
                rows,
            });
        }
        // From here on a rollback to the snapshot before is one, whatever becomes of the reads.
        self.snapshot = head;
        Ok(added)
    }

    /// The keys of all new files are in the index. `has_several_rows` says whether live rows may have one key.
    pub fn has_read(&mut self, has_several_rows: bool) {
        self.is_whole = true;
        self.has_several_rows |= has_several_rows;
    }

    /// The keys of the files `new` could not be read: a later try reads them again.
    pub fn read_failed(&mut self, new: &[NewFile]) {
        for file in new {
            self.index.drop_file(file.number);
        }
        // Some of the keys may have taken the place of rows that are there.
        self.has_read(true);
    }

    /// Takes in what a commit of this process, the snapshot `snapshot_id`, has changed.
    ///
    /// # Errors
    ///
    /// The delta was made for another state; it is of no use then.
    pub fn apply(&mut self, delta: Delta, snapshot_id: i64) -> Result<()> {
        self.is_whole = false;
        let dropped = delta.dropped().iter();
        let rows = dropped.filter_map(|number| Some(self.index.files().get(*number)?.rows));
        let rows = rows.map(u64::from).sum();
        self.dead_rows = self.dead_rows.saturating_add(rows);
        self.index.apply(delta)?;
        self.shrink()?;
        self.is_whole = true;
        self.snapshot = Some(snapshot_id);
        Ok(())
    }

    /// Takes keys of files that are gone out of the index when they are a part of it that counts. A row
    /// that is gone with its file may have left its key before.
    fn shrink(&mut self) -> Result<()> {
        let entries = self.index.entries() as u64;
        if self.dead_rows < self.dead_rows_min || self.dead_rows < entries / 4 {
            return Ok(());
        }
        self.dead_rows = 0;
        if self.dead() >= entries / 4 {
            self.index.compact()?;
        }
        Ok(())
    }

    /// Returns how many entries take memory for nothing, in a pass over all of them.
    pub fn dead(&self) -> u64 {
        self.index.dead_entries() as u64
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
