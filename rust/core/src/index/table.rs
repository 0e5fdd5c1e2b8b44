//! The index of one table.

use std::collections::BTreeMap;

use super::Location;
use super::files::{Files, IndexedFile};
use super::key::{KeyForm, KeyNumber};
use super::run::Entry;
use super::shard::Shard;
use crate::error::{Result, SinkError};
use crate::limits::{INDEX_SHARD_BITS_MAX, INDEX_SHARD_KEYS_MAX};

/// Where the row of each key lies.
#[derive(Debug, Clone)]
pub struct Index {
    form: KeyForm,
    /// 2^n shards, by the first n bits of a key.
    shards: Vec<Shard>,
    files: Files,
    /// Changes with every change of the index.
    generation: u64,
    shard_keys_max: usize,
}

/// The memory of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes on the heap.
    pub heap: usize,
    /// Bytes in mapped files.
    pub shared: usize,
}

/// What a commit does to an index once it has succeeded. Dropped, it does nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// The state of the index that it was made for.
    pub(super) generation: u64,
    /// New files; the first gets the next number.
    pub(super) added: Vec<IndexedFile>,
    /// Files that are gone.
    pub(super) dropped: Vec<u32>,
    /// Keys and their new places, in order, each key once; in parts, as they were found.
    pub(super) changes: Vec<Vec<Moved>>,
}

/// A key and its new place in few bytes, for a commit may have millions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moved {
    key: [u32; 3],
    to: Packed,
}

/// A place, or none, in 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Packed([u32; 2]);

/// The number that no file has (see [`Files::add`]).
const NO_FILE: u32 = u32::MAX;

impl Packed {
    pub(super) fn of(location: Option<Location>) -> Self {
        let place = location.map_or([NO_FILE, 0], |at| [at.file, at.row]);
        Packed(place)
    }

    pub(super) fn location(self) -> Option<Location> {
        let [file, row] = self.0;
        (file != NO_FILE).then_some(Location { file, row })
    }
}

impl Moved {
    pub(super) fn of(key: KeyNumber, to: Option<Location>) -> Self {
        // A key has 96 bits at most.
        let word = |by: u32| (key.0 >> by) as u32;
        Moved {
            key: [word(64), word(32), word(0)],
            to: Packed::of(to),
        }
    }

    pub(super) fn entry(&self) -> (KeyNumber, Option<Location>) {
        let key = self.key.iter();
        let key = key.fold(0u128, |key, word| (key << 32) | u128::from(*word));
        (KeyNumber(key), self.to.location())
    }
}

impl Delta {
    /// Returns the number of keys that change.
    pub fn len(&self) -> usize {
        self.changes.iter().map(Vec::len).sum()
    }

    /// Returns whether no key changes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the files that are gone.
    pub fn dropped(&self) -> &[u32] {
        &self.dropped
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let changes = self.changes.iter().map(Vec::capacity).sum::<usize>();
        changes * size_of::<Moved>()
            + self
                .added
                .iter()
                .map(IndexedFile::memory_bytes)
                .sum::<usize>()
    }
}

/// The code of an index for which there is no memory.
pub const INDEX_TOO_LARGE: &str = "INDEX_TOO_LARGE";

/// The bytes that an index may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// Now.
    pub now: u64,
    /// Once others have given back what they need not have.
    pub ever: u64,
}

/// Checks that an index of `needed` bytes may be there.
///
/// # Errors
///
/// `INDEX_TOO_LARGE` when it may never be, `INDEX_WAITS_FOR_MEMORY` (retriable) when others have what it
/// needs, both with the numbers.
pub fn check_bytes(needed: u64, allowed: Allowed) -> Result<()> {
    if needed <= allowed.now {
        return Ok(());
    }
    let error = match needed > allowed.ever {
        true => SinkError::fatal(
            "INDEX_TOO_LARGE",
            "the primary-key index of a table needs more memory than the process has for it: set `frazil.memory.max.bytes` higher by what is missing (and the container's memory by twice that), or have fewer tables with changes on one worker",
        ),
        false => SinkError::retriable(
            "INDEX_WAITS_FOR_MEMORY",
            "the primary-key index of a table waits for memory that tasks hold; they give it back",
        ),
    };
    Err(error.with("bytes", needed).with("allowed", allowed.ever))
}

/// Rows that a compaction moved: for each file that it replaced, where its rows are now.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    /// Runs of rows in order, by the old file's number.
    spans: BTreeMap<u32, Vec<Span>>,
}

/// Rows that moved together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first of them in the old file.
    pub row: u32,
    /// Their number.
    pub count: u32,
    /// Where the first of them is now.
    pub to: Location,
}

impl Moves {
    /// Adds a file that is replaced and the rows of it that are kept, in order.
    ///
    /// # Errors
    ///
    /// Spans that are out of order or overlap.
    pub fn add(&mut self, file: u32, spans: Vec<Span>) -> Result<()> {
        let mut end = 0u64;
        for span in &spans {
            if u64::from(span.row) < end || span.to.row.checked_add(span.count).is_none() {
                return Err(SinkError::internal("moved rows are out of order"));
            }
            end = u64::from(span.row) + u64::from(span.count);
        }
        self.spans.insert(file, spans);
        Ok(())
    }

    /// Returns where a row is after the move; `None` when it is not kept.
    fn of(&self, location: Location) -> Option<Location> {
        let Some(spans) = self.spans.get(&location.file) else {
            return Some(location);
        };
        let after = spans.partition_point(|span| span.row <= location.row);
        let span = spans.get(after.checked_sub(1)?)?;
        let by = location.row.checked_sub(span.row)?;
        (by < span.count).then(|| Location {
            file: span.to.file,
            row: span.to.row.saturating_add(by),
        })
    }
}

impl Index {
    /// Returns an index without keys.
    pub fn new(form: KeyForm) -> Self {
        Self::of(form, vec![Shard::empty(form.bits())], Files::default())
    }

    pub(super) fn of(form: KeyForm, shards: Vec<Shard>, files: Files) -> Self {
        Index {
            form,
            shards,
            files,
            generation: 0,
            shard_keys_max: INDEX_SHARD_KEYS_MAX,
        }
    }

    /// Cuts shards that have more keys than this.
    #[must_use]
    pub fn with_shard_keys_max(mut self, keys: usize) -> Self {
        self.shard_keys_max = keys.max(1);
        self
    }

    /// Returns how keys become numbers.
    pub fn form(&self) -> KeyForm {
        self.form
    }

    /// Returns the live files.
    pub fn files(&self) -> &Files {
        &self.files
    }

    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Returns the bits of a key that name its shard.
    pub fn shard_bits(&self) -> u32 {
        self.shards.len().trailing_zeros()
    }

    fn rest_bits(&self) -> u32 {
        self.form.bits() - self.shard_bits()
    }

    /// Returns the state that deltas are made for.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks a key up. The row may have been deleted since by somebody else: see
    /// [the module](super).
    pub fn get(&self, key: KeyNumber) -> Option<Location> {
        let rest_bits = self.rest_bits();
        let shard = self.shards.get((key.0 >> rest_bits) as usize)?;
        let found = shard.get(key.0 & ((1 << rest_bits) - 1))?;
        self.files.get(found.file).map(|_| found)
    }

    /// Returns all keys whose file is live.
    pub fn iter(&self) -> impl Iterator<Item = (KeyNumber, Location)> + '_ {
        let rest_bits = self.rest_bits();
        let shards = self.shards.iter().enumerate();
        let keys = shards.flat_map(move |(number, shard)| {
            let first = (number as u128) << rest_bits;
            shard
                .iter()
                .map(move |(key, found)| (KeyNumber(first | key), found))
        });
        keys.filter(|(_, found)| self.files.get(found.file).is_some())
    }

    /// Returns the number of entries, those of dropped files included.
    pub fn entries(&self) -> usize {
        self.shards.iter().map(Shard::len).sum()
    }

    /// Returns the memory that the index takes.
    pub fn memory(&self) -> Memory {
        let shards = self.shards.capacity() * size_of::<Shard>();
        let heap: usize = self.shards.iter().map(Shard::heap_bytes).sum();
        Memory {
            heap: heap + shards + self.files.heap_bytes(),
            shared: self.shards.iter().map(Shard::shared_bytes).sum(),
        }
    }

    /// Returns about how many bytes an index of this form takes on the heap that has `keys` keys in `files`
    /// files of at most `rows_max` rows, the rewriting of its largest shard included.
    pub fn bytes_for(form: KeyForm, keys: u64, files: u64, rows_max: u64) -> u64 {
        let width = |value: u64| u64::from(64 - value.leading_zeros());
        // A bucket has 16 to 32 keys, and each of them an entry of 4 bytes in the directory.
        let buckets = keys / 24;
        let rest = u64::from(form.bits()).saturating_sub(width(buckets));
        let entry_bits = rest + width(files) + width(rows_max);
        let bytes = |keys: u64| keys.saturating_mul(entry_bits) / 8 + keys / 6;
        let recent = bytes(keys) / 16;
        let shard = bytes(keys.min(INDEX_SHARD_KEYS_MAX as u64));
        bytes(keys).saturating_add(recent).saturating_add(shard)
    }

    /// Returns how many entries are of files that are gone.
    pub fn dead_entries(&self) -> usize {
        let all = self.shards.iter().flat_map(Shard::iter);
        all.filter(|(_, found)| self.files.get(found.file).is_none())
            .count()
    }

    /// Returns the bytes that the index needs on the heap to take the changes of so many keys, the rewriting of
    /// its largest shard included.
    pub fn bytes_with(&self, keys: usize) -> u64 {
        let entry_bytes = (self.form.bits() as usize).div_ceil(8) + 8;
        let largest = self.shards.iter().map(|shard| shard.len() * entry_bytes);
        let largest = largest.max().unwrap_or_default();
        let new = keys.saturating_mul(entry_bytes);
        let needed = self.memory().heap.saturating_add(largest);
        needed.saturating_add(new) as u64
    }

    /// Adds a file, whose keys a [catch-up](super::catch_up) brings.
    pub fn add_file(&mut self, file: IndexedFile) -> Result<u32> {
        self.generation += 1;
        self.files.add(file)
    }

    /// Drops a file; its keys are gone with it, and leave the memory when their shard is rewritten.
    pub fn drop_file(&mut self, number: u32) -> Option<IndexedFile> {
        self.generation += 1;
        self.files.remove(number)
    }

    /// Applies what a commit changed, once it has succeeded.
    ///
    /// # Errors
    ///
    /// The delta was made for another state of the index. After an error the index is of no use.
    pub fn apply(&mut self, delta: Delta) -> Result<()> {
        if delta.generation != self.generation {
            return Err(SinkError::internal(
                "a change of an index was made for another state of it",
            ));
        }
        for file in delta.added {
            self.files.add(file)?;
        }
        for number in delta.dropped {
            self.files.remove(number);
        }
        self.generation += 1;
        let mut part = Vec::new();
        for changes in delta.changes {
            part.clear();
            part.extend(changes.iter().map(Moved::entry));
            self.put_part(&part)?;
        }
        self.grow()
    }

    /// Puts keys, in order and each once, at their places.
    pub(super) fn put(&mut self, changes: &[(KeyNumber, Option<Location>)]) -> Result<()> {
        self.generation += 1;
        self.put_part(changes)?;
        self.grow()
    }

    fn put_part(&mut self, changes: &[(KeyNumber, Option<Location>)]) -> Result<()> {
        let (rest_bits, highest) = (self.rest_bits(), self.files.highest());
        let mut part: Vec<Entry> = Vec::new();
        for chunk in changes.chunk_by(|one, two| one.0.0 >> rest_bits == two.0.0 >> rest_bits) {
            let number = chunk.first().map_or(0, |(key, _)| key.0 >> rest_bits);
            let shard = self.shards.get_mut(number as usize);
            let shard = shard.ok_or_else(|| SinkError::internal("a key is out of its range"))?;
            part.clear();
            let rest = |key: &KeyNumber| key.0 & ((1 << rest_bits) - 1);
            part.extend(chunk.iter().map(|(key, to)| (rest(key), *to)));
            shard.apply(&part, highest)?;
        }
        Ok(())
    }

    /// Cuts all shards in two while one has too many keys.
    fn grow(&mut self) -> Result<()> {
        while self.shard_bits() < INDEX_SHARD_BITS_MAX
            && self
                .shards
                .iter()
                .any(|shard| shard.len() > self.shard_keys_max)
        {
            let mut cut = Vec::with_capacity(2 * self.shards.len());
            for shard in std::mem::take(&mut self.shards) {
                cut.extend(shard.cut(self.files.highest())?);
            }
            self.shards = cut;
        }
        Ok(())
    }

    /// Follows a compaction whose new files were added: keys point to where their rows are now, and
    /// the replaced files are dropped.
    pub fn remap(&mut self, moves: &Moves) -> Result<()> {
        self.rewrite(self.files.highest(), |location| moves.of(location))?;
        for number in moves.spans.keys() {
            self.files.remove(*number);
        }
        Ok(())
    }

    /// Makes one run of each shard, without keys of dropped files, and numbers the files anew.
    pub fn compact(&mut self) -> Result<()> {
        let (files, numbers) = self.files.renumbered()?;
        self.rewrite(files.highest(), |location| {
            let file = numbers.get(&location.file).copied();
            file.map(|file| Location { file, ..location })
        })?;
        self.files = files;
        Ok(())
    }

    fn rewrite(
        &mut self,
        highest: Location,
        moved: impl Fn(Location) -> Option<Location>,
    ) -> Result<()> {
        self.generation += 1;
        for shard in &mut self.shards {
            shard.rewrite(highest, &moved)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
