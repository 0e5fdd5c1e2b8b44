//! The primary-key index: where the row of each key of a table lies.
//!
//! A table with changes knows the file and the row that a key is in, so that an update deletes that
//! row by its position, and readers get positions and nothing to join. The index is packed: a key
//! takes about ten bytes when it has at most eight, and about fifteen otherwise.
//!
//! | module | what |
//! |---|---|
//! | [`key`] | keys as numbers: exact for keys of at most 8 bytes, 96 bits of SHA-256 for others |
//! | [`run`] | a sorted, packed array of keys and rows, in memory or mapped |
//! | [`shard`] | a large run and the changes since, cut by the first bits of the number |
//! | [`files`] | the data files that rows lie in |
//! | [`table`] | the index of one table: look up, change, follow files, remap |
//! | [`catch_up`] | keys of files that others, or an earlier process, added |
//! | [`resolve`] | the changes of a commit → rows to delete, and the index after it |
//! | [`bases`] | where rows of a commit that lack values take them from |
//! | [`changed`] | the same of the key runs of a commit's segments, and what is remembered of it |
//! | [`follow`] | how the index follows its table from snapshot to snapshot |
//! | [`orders`] | what is remembered of the orders of changes, and when it is forgotten |
//! | [`pieces`] | the key runs of a commit, a bounded piece of the keys at a time |
//! | [`truncations`] | which truncations of the source's table can be applied |
//! | [`section`] | the index as checksummed bytes, to be stored and read back |
//!
//! Architecture Invariant: an entry is a hint about the past. It counts only if its file is live and
//! no deletion vector of the file has its row, so a row that others deleted needs no lookup by key.

pub mod bases;
pub mod catch_up;
pub mod changed;
pub mod files;
pub mod follow;
pub mod key;
pub mod orders;
pub mod pieces;
mod ranks;
pub mod resolve;
pub mod run;
pub mod section;
pub mod shard;
pub mod table;
pub mod truncations;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod test_support;

pub use key::{KeyForm, KeyHasher, KeyNumber};
pub use table::Index;

/// Where a row lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The number of the data file within the index.
    pub file: u32,
    /// The row's place in the file, from 0.
    pub row: u32,
}
