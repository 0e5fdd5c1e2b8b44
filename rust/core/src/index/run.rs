//! A run: keys in order, each with its row, packed into as few bits as the largest needs.
//!
//! ```text
//! directory   2^bucket_bits + 1 numbers of 4 bytes: where each bucket begins
//! entries     rest of the key, file + 1 (0: the key is gone), row; no gaps between bits
//! padding     16 bytes, so that an entry can be read in one piece
//! ```
//!
//! A key lies in the bucket that its first bits name, and an entry keeps only the others: with a
//! million keys that saves 16 bits of each. Keys are spread evenly, so a bucket has about 24; one
//! that somebody filled on purpose is searched by halves all the same.

use bytes::Bytes;

use super::Location;
use crate::error::{Result, SinkError};

/// Keys per bucket when a run is as full as it may be.
const BUCKET_KEYS_MAX: usize = 32;
const BUCKET_BITS_MAX: u32 = 28;
const PADDING: usize = 16;

/// How the entries of a run are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Bits of a key.
    pub key_bits: u32,
    /// Those that name the bucket.
    pub bucket_bits: u32,
    /// Bits of a file's number plus one.
    pub file_bits: u32,
    /// Bits of a row.
    pub row_bits: u32,
}

impl Packing {
    /// Returns the packing of at most `count` keys of `key_bits` bits, in files and rows up to those
    /// of `highest`.
    pub fn of(key_bits: u32, count: usize, highest: Location) -> Self {
        let mut bucket_bits = 0;
        while bucket_bits < BUCKET_BITS_MAX.min(key_bits) && count > BUCKET_KEYS_MAX << bucket_bits
        {
            bucket_bits += 1;
        }
        let width = |value: u64| 64 - value.leading_zeros();
        Packing {
            key_bits,
            bucket_bits,
            file_bits: width(u64::from(highest.file) + 1),
            row_bits: width(u64::from(highest.row)),
        }
    }

    fn rest_bits(&self) -> u32 {
        self.key_bits.saturating_sub(self.bucket_bits)
    }

    fn entry_bits(&self) -> u64 {
        u64::from(self.rest_bits() + self.file_bits + self.row_bits)
    }

    fn directory_bytes(&self) -> usize {
        4 * ((1 << self.bucket_bits) + 1)
    }

    /// Returns the bytes of a run of `count` entries.
    pub fn bytes(&self, count: usize) -> Option<usize> {
        let bits = self.entry_bits().checked_mul(count as u64)?;
        let entries = usize::try_from(bits.div_ceil(8)).ok()?;
        entries.checked_add(self.directory_bytes() + PADDING)
    }

    /// Tells whether these are numbers that a run may have.
    pub fn is_valid(&self) -> bool {
        self.bucket_bits <= BUCKET_BITS_MAX.min(self.key_bits)
            && self.key_bits <= 96
            && self.file_bits <= 33
            && self.row_bits <= 32
    }
}

/// Where the bytes of a run are.
#[derive(Debug, Clone)]
pub enum Region {
    /// In memory of this process.
    Owned(Vec<u8>),
    /// In a mapped file, or in bytes that others keep as well.
    Shared(Bytes),
}

impl Region {
    fn bytes(&self) -> &[u8] {
        match self {
            Region::Owned(bytes) => bytes,
            Region::Shared(bytes) => bytes,
        }
    }
}

/// Keys in order, with their rows.
#[derive(Debug, Clone)]
pub struct Run {
    packing: Packing,
    count: usize,
    region: Region,
}

/// An entry: a key, and where its row lies; `None` when the key is gone.
pub type Entry = (u128, Option<Location>);

impl Run {
    /// Returns a run without keys.
    pub fn empty(key_bits: u32) -> Self {
        let none = Location { file: 0, row: 0 };
        let packing = Packing::of(key_bits, 0, none);
        Run {
            packing,
            count: 0,
            region: Region::Owned(Vec::new()),
        }
    }

    /// Takes the bytes of a run.
    ///
    /// # Errors
    ///
    /// `INDEX_CORRUPT` when the bytes are not those of such a run.
    pub fn open(packing: Packing, count: usize, region: Region) -> Result<Self> {
        let run = Run {
            packing,
            count,
            region,
        };
        let length = run.region.bytes().len();
        let fits = match count {
            0 => length == 0,
            _ => packing.is_valid() && packing.bytes(count) == Some(length),
        };
        if !fits || !run.is_ordered() {
            return Err(SinkError::fatal(
                "INDEX_CORRUPT",
                "a run of the primary-key index is malformed; it is built anew",
            ));
        }
        Ok(run)
    }

    fn is_ordered(&self) -> bool {
        let mut last = 0;
        let buckets = 1usize << self.packing.bucket_bits.min(BUCKET_BITS_MAX);
        self.count == 0
            || (0..=buckets).all(|bucket| {
                let begin = self.begin(bucket);
                let fits = begin >= last && begin <= self.count;
                last = begin;
                fits && (bucket != 0 || begin == 0) && (bucket != buckets || begin == self.count)
            })
    }

    /// Returns the number of entries, gone ones included.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns how the entries are packed.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Returns the bytes, as [`Run::open`] takes them.
    pub fn bytes(&self) -> &[u8] {
        self.region.bytes()
    }

    /// Returns the bytes of memory of this process that the run holds.
    pub fn heap_bytes(&self) -> usize {
        match &self.region {
            Region::Owned(bytes) => bytes.capacity(),
            Region::Shared(_) => 0,
        }
    }

    /// Looks a key up: `None` when the run does not have it, `Some(None)` when it is gone.
    pub fn get(&self, key: u128) -> Option<Option<Location>> {
        if self.count == 0 {
            return None;
        }
        let rest_bits = self.packing.rest_bits();
        let bucket = (key >> rest_bits) as usize;
        let rest = key & mask(rest_bits);
        let (mut low, mut high) = (self.begin(bucket), self.begin(bucket + 1));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.rest(middle).cmp(&rest) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(self.location(middle)),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Returns all entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        let rest_bits = self.packing.rest_bits();
        let mut bucket = 0;
        (0..self.count).map(move |index| {
            while self.begin(bucket + 1) <= index {
                bucket += 1;
            }
            let key = ((bucket as u128) << rest_bits) | self.rest(index);
            (key, self.location(index))
        })
    }

    /// Returns where a bucket begins; past the end, where the entries end.
    fn begin(&self, bucket: usize) -> usize {
        let bytes = self.region.bytes().get(4 * bucket..);
        let first = bytes.and_then(|bytes| bytes.first_chunk::<4>());
        first.map_or(self.count, |bytes| u32::from_le_bytes(*bytes) as usize)
    }

    fn rest(&self, index: usize) -> u128 {
        let at = index as u64 * self.packing.entry_bits();
        self.bits(at, self.packing.rest_bits())
    }

    fn location(&self, index: usize) -> Option<Location> {
        let packing = &self.packing;
        let at = index as u64 * packing.entry_bits() + u64::from(packing.rest_bits());
        let bits = self.bits(at, packing.file_bits + packing.row_bits);
        let file = bits & mask(packing.file_bits);
        let row = (bits >> packing.file_bits) & mask(packing.row_bits);
        let file = u32::try_from(file.checked_sub(1)?).ok()?;
        let row = u32::try_from(row).ok()?;
        Some(Location { file, row })
    }

    /// Reads at most 120 bits at bit `at` of the entries. The length was checked when the run was
    /// opened, so they are there.
    fn bits(&self, at: u64, width: u32) -> u128 {
        let byte = self.packing.directory_bytes() + (at / 8) as usize;
        let bytes = self.region.bytes().get(byte..);
        let window = bytes.and_then(|bytes| bytes.first_chunk::<16>());
        let window = window.map_or(0, |bytes| u128::from_le_bytes(*bytes));
        (window >> (at % 8)) & mask(width)
    }
}

fn mask(width: u32) -> u128 {
    1u128.checked_shl(width).map_or(u128::MAX, |bit| bit - 1)
}

/// Packs entries that come in order into a run.
#[derive(Debug)]
pub struct RunBuilder {
    packing: Packing,
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet.
    open: u128,
    open_bits: u32,
    count: usize,
    /// The next bucket that has no beginning yet.
    bucket: usize,
    last: Option<u128>,
}

impl RunBuilder {
    /// Begins a run of at most `count` entries, in files and rows up to those of `highest`.
    ///
    /// # Errors
    ///
    /// More entries than a run may have.
    pub fn new(key_bits: u32, count: usize, highest: Location) -> Result<Self> {
        let packing = Packing::of(key_bits, count, highest);
        let bytes = packing.bytes(count);
        let bytes = bytes.filter(|_| u32::try_from(count).is_ok());
        let bytes = bytes.ok_or_else(|| SinkError::internal("a run of an index is too long"))?;
        let mut builder = RunBuilder {
            packing,
            bytes: Vec::with_capacity(bytes),
            open: 0,
            open_bits: 0,
            count: 0,
            bucket: 0,
            last: None,
        };
        builder.bytes.resize(packing.directory_bytes(), 0);
        Ok(builder)
    }

    /// Adds an entry whose key is above that of the one before.
    ///
    /// # Errors
    ///
    /// An entry that is out of order or does not fit the bits.
    pub fn push(&mut self, (key, location): Entry) -> Result<()> {
        let packing = self.packing;
        let (file, row) = match location {
            Some(location) => (u64::from(location.file) + 1, u64::from(location.row)),
            None => (0, 0),
        };
        let fits = key <= mask(packing.key_bits)
            && u128::from(file) <= mask(packing.file_bits)
            && u128::from(row) <= mask(packing.row_bits)
            && self.last.is_none_or(|last| last < key)
            && self.count < u32::MAX as usize;
        if !fits {
            return Err(SinkError::internal("an entry of an index is out of order"));
        }
        self.last = Some(key);
        let rest_bits = packing.rest_bits();
        self.begin_buckets((key >> rest_bits) as usize);
        let rest = key & mask(rest_bits);
        // In two pieces, so that each fits beside the open bits.
        let low = rest_bits.min(48);
        self.put(rest & mask(low), low);
        self.put(rest >> low, rest_bits - low);
        self.put(u128::from(file), packing.file_bits);
        self.put(u128::from(row), packing.row_bits);
        self.count += 1;
        Ok(())
    }

    /// Ends the run.
    pub fn finish(mut self) -> Run {
        if self.count == 0 {
            return Run::empty(self.packing.key_bits);
        }
        self.begin_buckets(1 << self.packing.bucket_bits);
        while self.open_bits > 0 {
            self.flush_byte();
        }
        self.bytes.resize(self.bytes.len() + PADDING, 0);
        self.bytes.shrink_to_fit();
        Run {
            packing: self.packing,
            count: self.count,
            region: Region::Owned(self.bytes),
        }
    }

    /// Notes that all buckets up to `bucket` begin at the next entry, unless they began before.
    fn begin_buckets(&mut self, bucket: usize) {
        let begin = (self.count as u32).to_le_bytes();
        while self.bucket <= bucket {
            let place = self.bytes.get_mut(4 * self.bucket..4 * self.bucket + 4);
            if let Some(place) = place {
                place.copy_from_slice(&begin);
            }
            self.bucket += 1;
        }
    }

    fn put(&mut self, value: u128, width: u32) {
        self.open |= value << self.open_bits;
        self.open_bits += width;
        while self.open_bits >= 8 {
            self.flush_byte();
        }
    }

    fn flush_byte(&mut self) {
        self.bytes.push(self.open as u8);
        self.open >>= 8;
        self.open_bits = self.open_bits.saturating_sub(8);
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
