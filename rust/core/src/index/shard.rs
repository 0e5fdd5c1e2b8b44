//! One part of the keys: a large run, and a small one with the changes since.
//!
//! A change is written into the small run, which is made anew for that; once it has a sixteenth of
//! the large one's keys, both become one. So an index takes little more memory than its keys, and a
//! commit rewrites little more than what it changes.

use std::iter::Peekable;

use super::Location;
use super::run::{Entry, Run, RunBuilder};
use crate::error::Result;

/// The part of the large run that the small one may be.
const RECENT_PART: usize = 16;
/// Changes that are kept apart in any case.
const RECENT_MIN: usize = 4_096;

/// One part of the keys of an index.
#[derive(Debug, Clone)]
pub struct Shard {
    base: Run,
    recent: Run,
}

impl Shard {
    /// Returns a shard without keys.
    pub fn empty(key_bits: u32) -> Self {
        Self::of(Run::empty(key_bits))
    }

    /// Returns a shard with the keys of a run.
    pub fn of(base: Run) -> Self {
        let recent = Run::empty(base.packing().key_bits);
        Shard { base, recent }
    }

    /// Returns the one run of a shard that has no recent changes.
    pub fn run(&self) -> Option<&Run> {
        self.recent.is_empty().then_some(&self.base)
    }

    /// Looks a key up.
    pub fn get(&self, key: u128) -> Option<Location> {
        match self.recent.get(key) {
            Some(location) => location,
            None => self.base.get(key).flatten(),
        }
    }

    /// Returns the number of entries, those that stand for a gone key included.
    pub fn len(&self) -> usize {
        self.base.len() + self.recent.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory that the shard holds.
    pub fn heap_bytes(&self) -> usize {
        self.base.heap_bytes() + self.recent.heap_bytes()
    }

    /// Returns the bytes that it has in files.
    pub fn shared_bytes(&self) -> usize {
        let held = |run: &Run| run.bytes().len().saturating_sub(run.heap_bytes());
        held(&self.base) + held(&self.recent)
    }

    /// Returns the keys that are there, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u128, Location)> + '_ {
        let all = Merged::new(self.base.iter(), self.recent.iter());
        all.filter_map(|(key, location)| Some((key, location?)))
    }

    /// Applies changes, which are in order and have each key once. No file or row is above those of
    /// `highest`.
    pub fn apply(&mut self, changes: &[Entry], highest: Location) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let count = self.recent.len() + changes.len();
        let key_bits = self.base.packing().key_bits;
        let mut builder = RunBuilder::new(key_bits, count, highest)?;
        for (key, location) in Merged::new(self.recent.iter(), changes.iter().copied()) {
            // That a key is gone is news only to a run that has it.
            if location.is_some() || self.base.get(key).is_some() {
                builder.push((key, location))?;
            }
        }
        self.recent = builder.finish();
        match self.recent.len() > RECENT_MIN.max(self.base.len() / RECENT_PART) {
            true => self.rewrite(highest, Some),
            false => Ok(()),
        }
    }

    /// Makes one run of the keys, each at the place that `moved` returns for it; `None` ends it.
    pub fn rewrite(
        &mut self,
        highest: Location,
        mut moved: impl FnMut(Location) -> Option<Location>,
    ) -> Result<()> {
        let mut builder = RunBuilder::new(self.base.packing().key_bits, self.len(), highest)?;
        for (key, location) in self.iter() {
            if let Some(location) = moved(location) {
                builder.push((key, Some(location)))?;
            }
        }
        *self = Shard::of(builder.finish());
        Ok(())
    }

    /// Cuts the shard in two by the first bit of the keys, which the keys of both then lack.
    pub fn cut(&self, highest: Location) -> Result<[Shard; 2]> {
        let key_bits = self.base.packing().key_bits.saturating_sub(1);
        let half = |bit: u128| -> Result<Shard> {
            let ours = || self.iter().filter(move |(key, _)| key >> key_bits == bit);
            let mut builder = RunBuilder::new(key_bits, ours().count(), highest)?;
            for (key, location) in ours() {
                builder.push((key & ((1 << key_bits) - 1), Some(location)))?;
            }
            Ok(Shard::of(builder.finish()))
        };
        Ok([half(0)?, half(1)?])
    }
}

/// Entries of two sources in order; of a key that both have, that of the newer one.
struct Merged<A: Iterator<Item = Entry>, B: Iterator<Item = Entry>> {
    older: Peekable<A>,
    newer: Peekable<B>,
}

impl<A: Iterator<Item = Entry>, B: Iterator<Item = Entry>> Merged<A, B> {
    fn new(older: A, newer: B) -> Self {
        Merged {
            older: older.peekable(),
            newer: newer.peekable(),
        }
    }
}

impl<A: Iterator<Item = Entry>, B: Iterator<Item = Entry>> Iterator for Merged<A, B> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let (Some(older), Some(newer)) = (self.older.peek(), self.newer.peek()) else {
            return self.older.next().or_else(|| self.newer.next());
        };
        match older.0.cmp(&newer.0) {
            std::cmp::Ordering::Less => self.older.next(),
            std::cmp::Ordering::Greater => self.newer.next(),
            std::cmp::Ordering::Equal => {
                self.older.next();
                self.newer.next()
            }
        }
    }
}
