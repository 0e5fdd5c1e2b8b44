//! The data files that an index points into, by number.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Location;
use crate::error::{Result, SinkError};

/// A data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedFile {
    /// Its location, as the table's metadata has it.
    pub path: Arc<str>,
    /// Its rows, deleted ones included.
    pub rows: u32,
}

impl IndexedFile {
    /// Describes a file.
    ///
    /// # Errors
    ///
    /// `INDEX_FILE_TOO_LONG` when it has more rows than an index counts.
    pub fn new(path: impl Into<Arc<str>>, rows: u64) -> Result<Self> {
        let path = path.into();
        match u32::try_from(rows) {
            Ok(rows) => Ok(IndexedFile { path, rows }),
            Err(_) => Err(SinkError::fatal(
                "INDEX_FILE_TOO_LONG",
                "a data file of a table with changes has more than 4,294,967,295 rows; rewrite it into smaller ones with another engine",
            )
            .with("rows", rows)),
        }
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.path.len() + size_of::<Self>()
    }
}

/// The rows of new files, each of which belongs to one change.
#[derive(Debug)]
pub struct NamedRows {
    /// For each file its rows, and a bit for each that was named.
    files: Vec<(u64, Vec<u64>)>,
    left: u64,
}

impl NamedRows {
    /// Begins with files of these numbers of rows.
    pub fn new(rows: impl Iterator<Item = u64>) -> Self {
        // Room is made for what is named: a number may be a claim.
        let files: Vec<_> = rows.map(|rows| (rows, Vec::new())).collect();
        let left = files
            .iter()
            .fold(0u64, |sum, (rows, _)| sum.saturating_add(*rows));
        NamedRows { files, left }
    }

    /// Names a row; `false` when there is none, or it was named before.
    pub fn name(&mut self, at: Location) -> bool {
        let file = usize::try_from(at.file).ok();
        let Some((rows, bits)) = file.and_then(|file| self.files.get_mut(file)) else {
            return false;
        };
        if u64::from(at.row) >= *rows {
            return false;
        }
        let (word, bit) = ((at.row / 64) as usize, 1u64 << (at.row % 64));
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        match bits.get_mut(word) {
            Some(bits) if *bits & bit == 0 => {
                *bits |= bit;
                self.left = self.left.saturating_sub(1);
                true
            }
            _ => false,
        }
    }

    /// Tells whether all rows were named.
    pub fn is_complete(&self) -> bool {
        self.left == 0
    }
}

/// The live data files of an index. A number is never given twice, so that an entry of a file that
/// is gone points to nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    files: BTreeMap<u32, IndexedFile>,
    numbers: BTreeMap<Arc<str>, u32>,
    next: u32,
    /// The most rows that a file had.
    rows_max: u32,
}

impl Files {
    /// Adds a file and returns its number.
    ///
    /// # Errors
    ///
    /// The file is there already, or there are no numbers left.
    pub fn add(&mut self, file: IndexedFile) -> Result<u32> {
        if self.numbers.contains_key(&file.path) {
            return Err(SinkError::internal(
                "a data file is added to an index twice",
            ));
        }
        let number = self.next;
        // One less than there are numbers: an entry holds the number plus one.
        self.next = number
            .checked_add(1)
            .filter(|next| *next < u32::MAX)
            .ok_or_else(|| SinkError::internal("an index has no number left for a file"))?;
        self.rows_max = self.rows_max.max(file.rows);
        self.numbers.insert(file.path.clone(), number);
        self.files.insert(number, file);
        Ok(number)
    }

    /// Removes a file.
    pub fn remove(&mut self, number: u32) -> Option<IndexedFile> {
        let file = self.files.remove(&number)?;
        self.numbers.remove(&file.path);
        Some(file)
    }

    /// Returns a live file.
    pub fn get(&self, number: u32) -> Option<&IndexedFile> {
        self.files.get(&number)
    }

    /// Returns the number of a live file.
    pub fn number(&self, path: &str) -> Option<u32> {
        self.numbers.get(path).copied()
    }

    /// Returns the live files in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &IndexedFile)> {
        self.files.iter().map(|(number, file)| (*number, file))
    }

    /// Returns the number of live files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the number that the next file gets.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Returns a location that no row's file number or place is above.
    pub fn highest(&self) -> Location {
        Location {
            file: self.next.saturating_sub(1),
            row: self.rows_max.saturating_sub(1),
        }
    }

    /// Returns the files with numbers from 0 without gaps, and the new number of each.
    pub fn renumbered(&self) -> Result<(Files, BTreeMap<u32, u32>)> {
        let mut files = Files::default();
        let mut numbers = BTreeMap::new();
        for (number, file) in &self.files {
            numbers.insert(*number, files.add(file.clone())?);
        }
        Ok((files, numbers))
    }

    /// Returns about how many bytes the files take in memory.
    pub fn heap_bytes(&self) -> usize {
        let paths: usize = self.files.values().map(|file| file.path.len() + 96).sum();
        paths + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_named_once() {
        let at = |file, row| Location { file, row };
        let mut named = NamedRows::new([3, 0, 130].into_iter());
        assert!(!named.is_complete());
        for row in [2, 0, 1] {
            assert!(named.name(at(0, row)));
            assert!(!named.name(at(0, row)), "again");
        }
        for nowhere in [at(0, 3), at(1, 0), at(2, 130), at(3, 0)] {
            assert!(!named.name(nowhere));
        }
        assert!((0..129).rev().all(|row| named.name(at(2, row))));
        assert!(!named.is_complete());
        assert!(named.name(at(2, 129)) && named.is_complete());
        // A number of rows may be a claim.
        assert!(!NamedRows::new([u64::MAX, u64::MAX].into_iter()).is_complete());
        assert!(NamedRows::new([0].into_iter()).is_complete());
    }
}
