//! Bytes of values and keys become columns: the native side of `frazil.value.format`.
//!
//! ```text
//!  frame of bytes ─► Side (value, key) ─► Format ─► ColumnsBuilder ─► frame of columns ─► route, convert, …
//! ```
//!
//! A frame whose values are bytes is cut into parts, each of rows that follow each other and have
//! one schema; each part is a frame as Java would have made it of records with that schema, and
//! nothing behind this module knows the difference. A record whose bytes are refused is a row
//! without a value that is reported, as a record that does not fit its table is; the others of its
//! block land.
//!
//! To add a format: implement [`Format`]. `columns` says how values are pushed.
//!
//! Not here: where schemas of a registry come from (`engine::registry`).

pub mod avro;
pub(crate) mod bytes;
pub mod columns;
pub mod confluent;
mod defaults;
mod envelope;
pub mod frames;
pub(crate) mod json;
pub mod json_schema;
mod maps;
pub mod protobuf;
pub mod refused;
pub mod registered;
#[cfg(test)]
pub(crate) mod testing;

use std::ops::Range;
use std::sync::Arc;

pub use columns::{Budget, ColumnBuilder, ColumnsBuilder};
pub use frames::{FrameDecoder, Side};
pub use refused::Refused;

use crate::error::Result as SinkResult;
use crate::wire::{MapCell, SourceSchema};
use confluent::SchemaKey;
use registered::RegistrySchema;

/// The bytes of one value or key that is not null, with the headers of its record when the session
/// asks for them.
#[derive(Debug, Clone, Copy)]
pub struct Raw<'a> {
    /// The topic of the record.
    pub topic: &'a str,
    /// The bytes as the producer wrote them.
    pub bytes: &'a [u8],
    /// The headers of the record.
    pub headers: Option<MapCell<'a>>,
}

/// Where the data of one record are and by what schema they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Which schema: the number of [`Format::schema`], or [`SCHEMALESS`]. The same for records that
    /// have the same schema; never used again for another one.
    pub schema: usize,
    /// Where the data lie in the bytes.
    pub data: Range<usize>,
}

/// The number of values that have no schema: they are JSON.
pub const SCHEMALESS: usize = usize::MAX;

/// How bytes of one format become values of a schema.
///
/// Knows nothing of frames, tables and other records; keeps the plans of the schemas it met, a
/// bounded number of them.
pub trait Format: std::fmt::Debug + Send {
    /// Begins a block: what was not to be had for the one before is asked for again.
    fn begin_block(&mut self) {}

    /// Returns the schema that must be [learned](Format::learn) before the record can be opened, if
    /// there is one.
    fn wants(&mut self, _raw: Raw<'_>) -> Option<SchemaKey> {
        None
    }

    /// Takes a schema that was wanted, or why there is none; that is an error of each record that
    /// names it.
    fn learn(&mut self, _key: SchemaKey, _fetched: SinkResult<RegistrySchema>) {}

    /// Looks at the envelope of a record: says which schema it has and where its data are.
    /// `None` stands for null.
    fn open(&mut self, raw: Raw<'_>) -> Result<Option<Opened>, Refused>;

    /// Returns the schema with the number that [`Format::open`] returned last.
    fn schema(&self, number: usize) -> Option<&Arc<SourceSchema>>;

    /// Pushes exactly one value, which may be null, to the root of `out`, whose schema is
    /// that of `opened`. After an error the driver abandons the row.
    fn decode(
        &mut self,
        raw: Raw<'_>,
        opened: &Opened,
        out: &mut ColumnsBuilder,
    ) -> Result<(), Refused>;
}
