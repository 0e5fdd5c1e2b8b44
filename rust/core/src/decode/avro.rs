//! Avro's binary encoding, decoded by a plan that is compiled once per writer schema.
//!
//! ```text
//! schema text ─► AvroSchema ─┬► SourceSchema   what AvroConverter would give (connect)
//!                            └► Plan           which bytes go to which column (plan)
//! bytes of a record ─► Plan ─► ColumnBuilder
//! ```
//!
//! The reader's schema is the table: each writer schema has a [`SourceSchema`] of its own, and the
//! difference between two of them is evolution as with any other source.

mod connect;
mod plan;
mod schema;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::bytes::Cursor;
use super::columns::{Budget, ColumnBuilder};
use super::refused::Refused;
use crate::error::Result;
use crate::wire::SourceSchema;
use plan::{Decoding, Plan, Scratch};
use schema::AvroSchema;

/// Decodes what was written with one schema.
#[derive(Debug)]
pub struct AvroDecoder {
    schema: Arc<SourceSchema>,
    plan: Plan,
    scratch: Scratch,
}

impl AvroDecoder {
    /// Compiles a schema. `references` are the texts of the schemas whose names it uses, those that
    /// others use first.
    ///
    /// # Errors
    ///
    /// Of kind `Data`: `SCHEMA_INVALID`, `SCHEMA_TOO_DEEP` (also for a schema that contains itself),
    /// `SCHEMA_TOO_LARGE`, `SCHEMA_TYPE_UNSUPPORTED`, `SCHEMA_NAME_DUPLICATE`.
    pub fn new(text: &str, references: &[&str]) -> Result<AvroDecoder> {
        let schema = AvroSchema::parse(text, references)?;
        let source = connect::connect_schema(&schema)?;
        Ok(AvroDecoder {
            schema: Arc::new(source),
            plan: plan::compile(&schema, schema.root(), 1)?,
            scratch: Scratch::default(),
        })
    }

    /// Returns the Connect schema of the values.
    pub fn schema(&self) -> &Arc<SourceSchema> {
        &self.schema
    }

    /// Moves the value that `bytes` are, whole, to `column`. After an error the row is to be
    /// abandoned.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        column: &mut ColumnBuilder,
        budget: &mut Budget,
    ) -> Result<(), Refused> {
        self.scratch.clear();
        let mut decoding = Decoding {
            bytes,
            cursor: Cursor::new(bytes),
            budget,
            scratch: &mut self.scratch,
        };
        decoding
            .value(&self.plan, column)
            .map_err(|refused| refused.at(decoding.cursor.position()))?;
        match decoding.cursor.remaining() {
            0 => Ok(()),
            _ => Err(decoding.cursor.bad("bytes are left behind the value")),
        }
    }
}
