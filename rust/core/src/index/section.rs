//! An index as bytes: one section for its files and one for each shard.
//!
//! ```text
//! files   FZIF · version · form · shard bits · 0 · number of files · (rows · length · path)*   · CRC-32
//! shard   FZIS · version · form · shard bits · bucket bits · file bits · row bits · 0 · 0
//!         · number of the shard · keys · the run's bytes                                       · CRC-32
//! ```
//!
//! Numbers of more than one byte are little-endian, 4 bytes. A shard's bytes are used where they lie,
//! so a section may be a mapped file. Nothing of an index with a wrong byte is used: it is built anew.

use bytes::Bytes;

use super::files::{Files, IndexedFile};
use super::key::KeyForm;
use super::run::{Packing, Region, Run};
use super::shard::Shard;
use super::table::Index;
use crate::error::{Result, SinkError};
use crate::limits::INDEX_SHARD_BITS_MAX;

/// The blob type of the section of the files.
pub const FILES_BLOB: &str = "frazil-key-index-files-v1";
/// The blob type of the section of a shard.
pub const SHARD_BLOB: &str = "frazil-key-index-shard-v1";

const FILES_MAGIC: &[u8; 4] = b"FZIF";
const SHARD_MAGIC: &[u8; 4] = b"FZIS";
const VERSION: u8 = 1;
const SHARD_HEAD: usize = 20;

/// Whether bytes of a section are kept where they are, or copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Where they are: in a mapped file.
    Mapped,
    /// In memory of the index's own.
    Copied,
}

/// Makes the section of the files of an index that was [compacted](Index::compact).
pub fn files_section(index: &Index) -> Result<Vec<u8>> {
    let files = index.files();
    if files.next() as usize != files.len() {
        return Err(not_compact());
    }
    let mut bytes = FILES_MAGIC.to_vec();
    let shard_bits = index.shard_bits() as u8;
    bytes.extend_from_slice(&[VERSION, index.form().code(), shard_bits, 0]);
    bytes.extend_from_slice(&files.next().to_le_bytes());
    for (_, file) in files.iter() {
        bytes.extend_from_slice(&file.rows.to_le_bytes());
        bytes.extend_from_slice(&length(file.path.len())?.to_le_bytes());
        bytes.extend_from_slice(file.path.as_bytes());
    }
    Ok(signed(bytes))
}

/// Makes the section of a shard of an index that was [compacted](Index::compact).
pub fn shard_section(index: &Index, number: u32) -> Result<Vec<u8>> {
    let shard = index.shards().get(number as usize);
    let run = shard.and_then(Shard::run).ok_or_else(not_compact)?;
    let packing = run.packing();
    let mut bytes = Vec::with_capacity(SHARD_HEAD + run.bytes().len() + 4);
    bytes.extend_from_slice(SHARD_MAGIC);
    bytes.extend_from_slice(&[VERSION, index.form().code(), index.shard_bits() as u8]);
    let widths = [packing.bucket_bits, packing.file_bits, packing.row_bits];
    bytes.extend(widths.map(|bits| bits as u8));
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&length(run.len())?.to_le_bytes());
    bytes.extend_from_slice(run.bytes());
    Ok(signed(bytes))
}

fn length(length: usize) -> Result<u32> {
    u32::try_from(length).map_err(|_| SinkError::internal("a part of an index is too long"))
}

fn signed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn not_compact() -> SinkError {
    SinkError::internal("an index has to be compacted before it is stored")
}

/// Puts an index together from its sections.
#[derive(Debug)]
pub struct Loader {
    form: KeyForm,
    shard_bits: u32,
    files: Files,
    shards: Vec<Option<Shard>>,
}

impl Loader {
    /// Begins with the section of the files.
    ///
    /// # Errors
    ///
    /// `INDEX_CORRUPT`.
    pub fn new(section: &[u8]) -> Result<Self> {
        let body = verified(section, FILES_MAGIC)?;
        let mut reader = Reader(body);
        let [version, form, shard_bits, _] = reader.bytes4()?;
        let form = form_of(version, form)?;
        let shard_bits = u32::from(shard_bits);
        if shard_bits > INDEX_SHARD_BITS_MAX {
            return Err(corrupt("it has too many shards"));
        }
        let count = reader.number()?;
        let mut files = Files::default();
        // Each takes bytes, so a count that is too high ends with them.
        for _ in 0..count {
            let rows = reader.number()?;
            let path = reader.text()?;
            let file = IndexedFile::new(path, rows.into())?;
            files
                .add(file)
                .map_err(|_| corrupt("it has a file twice"))?;
        }
        match reader.0.is_empty() {
            true => Ok(Loader {
                form,
                shard_bits,
                files,
                shards: (0..1u32 << shard_bits).map(|_| None).collect(),
            }),
            false => Err(corrupt("bytes follow its files")),
        }
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> u32 {
        1 << self.shard_bits
    }

    /// Adds the section of a shard.
    ///
    /// # Errors
    ///
    /// `INDEX_CORRUPT`.
    pub fn add(&mut self, section: &Bytes, keep: Keep) -> Result<()> {
        let body = verified(section, SHARD_MAGIC)?;
        let mut reader = Reader(body);
        let [version, form, shard_bits, bucket_bits] = reader.bytes4()?;
        let [file_bits, row_bits, _, _] = reader.bytes4()?;
        let (number, count) = (reader.number()?, reader.number()?);
        if form_of(version, form)? != self.form || u32::from(shard_bits) != self.shard_bits {
            return Err(corrupt("a shard is not one of its own"));
        }
        let packing = Packing {
            key_bits: self.form.bits() - self.shard_bits,
            bucket_bits: bucket_bits.into(),
            file_bits: file_bits.into(),
            row_bits: row_bits.into(),
        };
        let region = match keep {
            Keep::Mapped => Region::Shared(section.slice_ref(reader.0)),
            Keep::Copied => Region::Owned(reader.0.to_vec()),
        };
        let run = Run::open(packing, count as usize, region)?;
        match self.shards.get_mut(number as usize) {
            Some(place @ None) => *place = Some(Shard::of(run)),
            _ => return Err(corrupt("a shard is there twice")),
        }
        Ok(())
    }

    /// Ends with all shards.
    ///
    /// # Errors
    ///
    /// `INDEX_CORRUPT` when one is missing.
    pub fn finish(self) -> Result<Index> {
        let shards: Option<Vec<Shard>> = self.shards.into_iter().collect();
        let shards = shards.ok_or_else(|| corrupt("a shard is missing"))?;
        Ok(Index::of(self.form, shards, self.files))
    }
}

/// Returns what lies between magic number and checksum, if both are right.
fn verified<'s>(section: &'s [u8], magic: &[u8; 4]) -> Result<&'s [u8]> {
    let (signed, crc) = section
        .split_last_chunk::<4>()
        .ok_or_else(|| corrupt("it is cut short"))?;
    if crc32fast::hash(signed) != u32::from_le_bytes(*crc) {
        return Err(corrupt("its checksum is wrong"));
    }
    signed
        .strip_prefix(magic)
        .ok_or_else(|| corrupt("it does not begin as one does"))
}

fn form_of(version: u8, form: u8) -> Result<KeyForm> {
    match (version, KeyForm::of_code(form)) {
        (VERSION, Some(form)) => Ok(form),
        _ => Err(corrupt("it has a version or form that is not known")),
    }
}

fn corrupt(what: &str) -> SinkError {
    SinkError::fatal(
        "INDEX_CORRUPT",
        format!("the stored primary-key index cannot be used: {what}; it is built anew"),
    )
}

struct Reader<'s>(&'s [u8]);

impl<'s> Reader<'s> {
    fn bytes4(&mut self) -> Result<[u8; 4]> {
        let (first, rest) = self
            .0
            .split_first_chunk::<4>()
            .ok_or_else(|| corrupt("it is cut short"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u32> {
        self.bytes4().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'s str> {
        let length = self.number()? as usize;
        let (text, rest) = self
            .0
            .split_at_checked(length)
            .ok_or_else(|| corrupt("it is cut short"))?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| corrupt("a file's name is no text"))
    }
}

#[cfg(test)]
#[path = "section_tests.rs"]
mod tests;
