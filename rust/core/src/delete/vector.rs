//! The deleted rows of one data file, as format version 3 keeps them: a *deletion vector*.
//!
//! A vector is a bitmap of row positions. In a file it is a blob:
//!
//! ```text
//! length of magic and bitmap   4 bytes, big-endian
//! magic                        d1 d3 39 64
//! number of 32-bit bitmaps     8 bytes, little-endian
//! for each, keys ascending     key, 4 bytes, little-endian; a Roaring bitmap in its portable form
//! CRC-32 of magic and bitmap   4 bytes, big-endian
//! ```

use roaring::{RoaringBitmap, RoaringTreemap};

use crate::error::{Result, SinkError};
use crate::limits::DELETION_VECTOR_BYTES_MAX;

const MAGIC: [u8; 4] = [0xd1, 0xd3, 0x39, 0x64];
/// Bytes around magic and bitmap: the length and the checksum.
const FRAME_BYTES: usize = 8;
/// The highest position that a row can have: Iceberg counts rows with 63 bits.
const POSITION_MAX: u64 = i64::MAX as u64;

/// What the entry of a vector and its data file say, and the vector has to agree with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// The number of deleted rows.
    pub cardinality: Option<u64>,
    /// The number of rows of the data file, deleted ones included.
    pub rows: Option<u64>,
}

/// The positions of the deleted rows of one data file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeletionVector {
    rows: RoaringTreemap,
}

impl DeletionVector {
    /// Creates a vector of no row.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the vector of the first `rows` rows without those of `kept`.
    pub fn all_but(rows: u64, kept: impl IntoIterator<Item = u64>) -> Self {
        let mut all = RoaringTreemap::new();
        all.insert_range(0..rows.min(POSITION_MAX));
        for row in kept {
            all.remove(row);
        }
        DeletionVector { rows: all }
    }

    /// Adds a row and returns whether it was not deleted before.
    ///
    /// # Errors
    ///
    /// A position that no row can have.
    pub fn insert(&mut self, position: u64) -> Result<bool> {
        if position > POSITION_MAX {
            return Err(
                SinkError::internal("a row position has more than 63 bits").with("row", position)
            );
        }
        Ok(self.rows.insert(position))
    }

    /// Adds the rows of another vector.
    pub fn union(&mut self, other: &DeletionVector) {
        self.rows |= &other.rows;
    }

    /// Returns whether the row is deleted.
    pub fn contains(&self, position: u64) -> bool {
        self.rows.contains(position)
    }

    /// Returns how many of the deleted rows are at `position` or before it.
    pub fn count_to(&self, position: u64) -> u64 {
        self.rows.rank(position)
    }

    /// Returns the rows that are deleted here and not in `older`; `None` when `older` has one that is not
    /// deleted here.
    pub fn without(&self, older: &DeletionVector) -> Option<DeletionVector> {
        let is_newer = older.rows.is_subset(&self.rows);
        is_newer.then(|| DeletionVector {
            rows: &self.rows - &older.rows,
        })
    }

    /// Returns the number of deleted rows.
    pub fn len(&self) -> u64 {
        self.rows.len()
    }

    /// Returns whether no row is deleted.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the last deleted row.
    pub fn last(&self) -> Option<u64> {
        self.rows.max()
    }

    /// Returns the deleted rows in order.
    pub fn positions(&self) -> impl Iterator<Item = u64> + '_ {
        self.rows.iter()
    }

    /// Returns about how many bytes the vector takes in memory.
    pub fn memory_bytes(&self) -> usize {
        64 + self.rows.serialized_size()
    }

    /// Returns the blob. Runs are stored as runs, as Iceberg's Java library does.
    ///
    /// # Errors
    ///
    /// A vector that is too long for other readers.
    pub fn to_blob(&self) -> Result<Vec<u8>> {
        let mut rows = self.rows.clone();
        rows.optimize();
        let length = MAGIC.len() + rows.serialized_size();
        if length + FRAME_BYTES > DELETION_VECTOR_BYTES_MAX {
            return Err(SinkError::fatal(
                "DELETION_VECTOR_TOO_LARGE",
                "so many rows of a data file are deleted that the vector is larger than 2 GiB; rewrite the file with another engine",
            )
            .with("bytes", length));
        }
        let mut blob = Vec::with_capacity(length + FRAME_BYTES);
        blob.extend_from_slice(&(length as u32).to_be_bytes());
        blob.extend_from_slice(&MAGIC);
        rows.serialize_into(&mut blob).map_err(|error| {
            SinkError::internal("a deletion vector cannot be written").caused_by(error)
        })?;
        let crc = crc32fast::hash(blob.get(4..).unwrap_or_default());
        blob.extend_from_slice(&crc.to_be_bytes());
        Ok(blob)
    }

    /// Reads a blob, all of it.
    ///
    /// # Errors
    ///
    /// `DELETION_VECTOR_CORRUPT` with what is wrong and at which byte of the blob.
    pub fn parse(blob: &[u8], expected: &Expected) -> Result<Self> {
        let framed = blob.split_first_chunk::<4>().and_then(|(length, rest)| {
            let (body, crc) = rest.split_last_chunk::<4>()?;
            Some((u32::from_be_bytes(*length), body, u32::from_be_bytes(*crc)))
        });
        let (length, body, crc) = framed.ok_or_else(|| corrupt("it is cut short", blob.len()))?;
        if blob.len() > DELETION_VECTOR_BYTES_MAX || usize::try_from(length) != Ok(body.len()) {
            return Err(corrupt("its length is not that of its bytes", 0));
        }
        let bitmaps = body
            .strip_prefix(&MAGIC)
            .ok_or_else(|| corrupt("its magic number is another", 4))?;
        if crc32fast::hash(body) != crc {
            return Err(corrupt("its checksum is wrong", blob.len() - 4));
        }
        let vector = DeletionVector {
            rows: parse_bitmaps(bitmaps, blob.len() - 4)?,
        };
        vector.check(expected)?;
        Ok(vector)
    }

    /// Checks the vector against what is known of it.
    pub fn check(&self, expected: &Expected) -> Result<()> {
        if let Some(cardinality) = expected.cardinality
            && cardinality != self.len()
        {
            return Err(
                corrupt("it has another number of rows than its entry says", 0)
                    .with("rows", self.len())
                    .with("said", cardinality),
            );
        }
        let last = self.last();
        let end = expected.rows.unwrap_or(POSITION_MAX + 1);
        match last {
            Some(last) if last >= end => Err(corrupt(
                "it deletes rows that its data file does not have",
                0,
            )
            .with("last_row", last)
            .with("rows", end)),
            _ => Ok(()),
        }
    }
}

impl FromIterator<u64> for DeletionVector {
    /// Collects positions, which must be below 2^63.
    fn from_iter<I: IntoIterator<Item = u64>>(positions: I) -> Self {
        DeletionVector {
            rows: positions.into_iter().collect(),
        }
    }
}

/// Reads the bitmaps of a blob whose bitmaps end at byte `end`.
fn parse_bitmaps(bytes: &[u8], end: usize) -> Result<RoaringTreemap> {
    let mut rest = bytes;
    let at = |rest: &[u8]| end - rest.len();
    let cut = |rest: &[u8]| corrupt("its bitmaps are cut short", at(rest));
    let (count, after) = rest.split_first_chunk::<8>().ok_or_else(|| cut(rest))?;
    rest = after;
    let mut bitmaps: Vec<(u32, RoaringBitmap)> = Vec::new();
    // Each takes bytes, so a count that is too high ends with them.
    for _ in 0..u64::from_le_bytes(*count) {
        let (key, after) = rest.split_first_chunk::<4>().ok_or_else(|| cut(rest))?;
        let key = u32::from_le_bytes(*key);
        if bitmaps.last().is_some_and(|(last, _)| *last >= key) {
            return Err(corrupt("its bitmaps are not in order", at(rest)));
        }
        rest = after;
        let begin = at(rest);
        let bitmap = RoaringBitmap::deserialize_from(&mut rest)
            .map_err(|error| corrupt("one of its bitmaps is malformed", begin).caused_by(error))?;
        bitmaps.push((key, bitmap));
    }
    match rest.is_empty() {
        true => Ok(RoaringTreemap::from_bitmaps(bitmaps)),
        false => Err(corrupt("bytes follow its bitmaps", at(rest))),
    }
}

fn corrupt(what: &str, byte: usize) -> SinkError {
    SinkError::fatal(
        "DELETION_VECTOR_CORRUPT",
        format!("a deletion vector of the table cannot be used: {what}; restore the file, or roll the table back to a snapshot before it"),
    )
    .with("byte", byte)
}

#[cfg(test)]
#[path = "vector_tests.rs"]
mod tests;
