//! Puffin files: Iceberg's container for blobs, such as deletion vectors and statistics.
//!
//! ```text
//! PFA1 · blob · blob · … · footer
//! footer:  PFA1 · JSON · length of the JSON, 4 bytes · flags, 4 bytes · PFA1      little-endian
//! ```
//!
//! The caller keeps the bytes: a file may be far larger than what is in memory of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Result, SinkError};
use crate::limits::PUFFIN_FOOTER_BYTES_MAX;

/// What a file begins with, and what its footer begins and ends with.
pub const MAGIC: [u8; 4] = *b"PFA1";
/// The type of a deletion vector.
pub const DELETION_VECTOR: &str = "deletion-vector-v1";
/// The property of a deletion vector that names its data file.
pub const REFERENCED_DATA_FILE: &str = "referenced-data-file";
/// The property of a deletion vector that says how many rows it deletes.
pub const CARDINALITY: &str = "cardinality";
/// The field id of a row's position, which deletion vectors say they are made of.
const POSITION_FIELD: i32 = i32::MAX - 2;
/// The bytes behind the JSON of a footer.
const TAIL_BYTES: usize = 12;
/// The flag of a compressed JSON.
const COMPRESSED: u32 = 1;

/// What a footer says of one blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Blob {
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The field ids of the columns that it was made of.
    pub fields: Vec<i32>,
    /// The snapshot that it was made of; -1 when it is not of one.
    pub snapshot_id: i64,
    /// The sequence number of that snapshot; -1 when it is not of one.
    pub sequence_number: i64,
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub length: u64,
    /// How its bytes are compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression_codec: Option<String>,
    /// Whatever else is known of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

impl Blob {
    /// Describes a deletion vector of `cardinality` rows of the data file at `path`; the writer gives
    /// it its place.
    pub fn deletion_vector(path: &str, cardinality: u64) -> Self {
        Blob {
            kind: DELETION_VECTOR.to_owned(),
            fields: vec![POSITION_FIELD],
            snapshot_id: -1,
            sequence_number: -1,
            offset: 0,
            length: 0,
            compression_codec: None,
            properties: BTreeMap::from([
                (REFERENCED_DATA_FILE.to_owned(), path.to_owned()),
                (CARDINALITY.to_owned(), cardinality.to_string()),
            ]),
        }
    }
}

/// The footer of a file that is read or written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// The blobs.
    pub blobs: Vec<Blob>,
    /// Properties of the file, such as `created-by`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// Where a blob lies in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub length: u64,
}

/// Gives the blobs of a new file their places, and makes its footer.
#[derive(Debug)]
pub struct Layout {
    footer: Footer,
    end: u64,
}

impl Default for Layout {
    fn default() -> Self {
        Self::new()
    }
}

impl Layout {
    /// Begins a file, which begins with [`MAGIC`].
    pub fn new() -> Self {
        let version = concat!("frazil ", env!("CARGO_PKG_VERSION"));
        let properties = [("created-by".to_owned(), version.to_owned())];
        Layout {
            footer: Footer {
                blobs: Vec::new(),
                properties: properties.into(),
            },
            end: MAGIC.len() as u64,
        }
    }

    /// Places a blob of `length` bytes behind those before it.
    pub fn place(&mut self, mut blob: Blob, length: u64) -> Place {
        let place = Place {
            offset: self.end,
            length,
        };
        blob.offset = place.offset;
        blob.length = place.length;
        self.footer.blobs.push(blob);
        self.end += length;
        place
    }

    /// Returns the blobs that have a place.
    pub fn blobs(&self) -> &[Blob] {
        &self.footer.blobs
    }

    /// Returns where the last blob ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the footer, which follows the last blob.
    pub fn finish(self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec(&self.footer).map_err(|error| {
            SinkError::internal("the footer of a Puffin file cannot be written").caused_by(error)
        })?;
        let length = i32::try_from(json.len())
            .map_err(|_| SinkError::internal("the footer of a Puffin file is larger than 2 GiB"))?;
        let flags = 0u32;
        let mut footer = Vec::with_capacity(json.len() + MAGIC.len() + TAIL_BYTES);
        footer.extend_from_slice(&MAGIC);
        footer.extend_from_slice(&json);
        footer.extend_from_slice(&length.to_le_bytes());
        footer.extend_from_slice(&flags.to_le_bytes());
        footer.extend_from_slice(&MAGIC);
        Ok(footer)
    }
}

/// A file of small blobs, made in memory.
#[derive(Debug)]
pub struct PuffinFile {
    layout: Layout,
    bytes: Vec<u8>,
}

impl Default for PuffinFile {
    fn default() -> Self {
        Self::new()
    }
}

impl PuffinFile {
    /// Begins a file.
    pub fn new() -> Self {
        PuffinFile {
            layout: Layout::new(),
            bytes: MAGIC.to_vec(),
        }
    }

    /// Adds a blob.
    pub fn add(&mut self, blob: Blob, bytes: &[u8]) -> Place {
        self.bytes.extend_from_slice(bytes);
        self.layout.place(blob, bytes.len() as u64)
    }

    /// Returns the whole file and the length of its footer.
    pub fn finish(self) -> Result<(Vec<u8>, u64)> {
        let footer = self.layout.finish()?;
        let mut bytes = self.bytes;
        bytes.extend_from_slice(&footer);
        Ok((bytes, footer.len() as u64))
    }
}

/// What the last bytes of a file tell.
#[derive(Debug, PartialEq, Eq)]
pub enum Tail {
    /// The footer.
    Footer(Footer),
    /// The footer is longer: these many last bytes are needed.
    Needs(u64),
}

/// Reads the footer out of `tail`, the last bytes of a file of `file_length` bytes.
///
/// # Errors
///
/// `PUFFIN_CORRUPT`, or `PUFFIN_UNSUPPORTED` when the footer is compressed.
pub fn read_footer(tail: &[u8], file_length: u64) -> Result<Tail> {
    let needs = |bytes: u64| match file_length >= bytes {
        true => Ok(Tail::Needs(bytes)),
        false => Err(corrupt("it is cut short")),
    };
    let Some((body, end)) = tail.split_last_chunk::<TAIL_BYTES>() else {
        return needs(TAIL_BYTES as u64 + 2 * MAGIC.len() as u64);
    };
    let [l0, l1, l2, l3, f0, f1, f2, f3, magic @ ..] = *end;
    if magic != MAGIC {
        return Err(corrupt("it does not end as a Puffin file does"));
    }
    match u32::from_le_bytes([f0, f1, f2, f3]) {
        0 => {}
        COMPRESSED => {
            return Err(SinkError::fatal(
                "PUFFIN_UNSUPPORTED",
                "the footer of a Puffin file is compressed, which is not supported; write it without compression",
            ));
        }
        _ => return Err(corrupt("it has flags that nobody knows")),
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > PUFFIN_FOOTER_BYTES_MAX {
        return Err(corrupt("its footer is too long"));
    }
    let Some(begin) = body.len().checked_sub(length + MAGIC.len()) else {
        return needs((length + MAGIC.len() + TAIL_BYTES) as u64);
    };
    let (before, footer) = body.split_at(begin);
    let json = footer
        .strip_prefix(&MAGIC)
        .ok_or_else(|| corrupt("its footer does not begin as one does"))?;
    let footer: Footer = serde_json::from_slice(json)
        .map_err(|error| corrupt("its footer is malformed").caused_by(error))?;
    let blobs_end = file_length.saturating_sub((tail.len() - before.len()) as u64);
    let fits = |blob: &Blob| {
        let end = blob.offset.checked_add(blob.length);
        blob.offset >= MAGIC.len() as u64 && end.is_some_and(|end| end <= blobs_end)
    };
    match footer.blobs.iter().all(fits) {
        true => Ok(Tail::Footer(footer)),
        false => Err(corrupt("a blob lies outside of it")),
    }
}

fn corrupt(what: &str) -> SinkError {
    SinkError::fatal(
        "PUFFIN_CORRUPT",
        format!("a Puffin file cannot be used: {what}; restore the file"),
    )
}

#[cfg(test)]
#[path = "puffin_tests.rs"]
mod tests;
