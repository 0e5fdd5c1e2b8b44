//! Records become Arrow columns: exactly, or not at all.
//!
//! `batch` takes the rows of frames and gives record batches, `follow` says what the table lacks for
//! them; `column` and `primitive` hold the columns under construction, `fast` copies whole columns
//! that need no conversion, `maps` takes records without a schema that lie in columns; `scalar` says what each column type takes, with `number`, `decimal`,
//! `temporal`, `geometry` and `json` below it; `shape` is what is worked out once per source schema.
//!
//! Architecture Invariant: no value changes silently. A value that a column cannot hold exactly is
//! a [`misfit::Misfit`], its row is rejected, and no trace of the row is in any column.

pub mod batch;
mod beside;
mod column;
pub mod columns;
pub mod decimal;
mod fast;
mod follow;
pub mod geometry;
pub mod json;
mod maps;
mod masked;
mod masking;
pub mod misfit;
pub mod number;
pub mod parts;
mod primitive;
pub mod scalar;
mod shape;
pub mod temporal;
#[cfg(test)]
mod tests;
pub mod value;

pub use batch::{ConvertOptions, Stop, TableConverter};
pub use columns::ColumnRules;
pub use masking::Masked;
pub use misfit::{Misfit, Reason};
