//! The primary-key index of a table: built from its data files, and kept true to its newest snapshot.

mod audit;
mod catch;
mod kept;
mod keys;
mod rows;
mod tracked;

pub use audit::{Audit, RowPlace, audit};
use catch::{Ahead, Reader, Reading, catch_up};
pub use keys::read_key_columns;
pub(crate) use keys::{key_columns, read_footer};
pub(crate) use rows::{ROW_MISSING, RowFile};
pub(crate) use tracked::Tracked;
