//! Protobuf's wire format, decoded by a plan that is compiled once per message type.
//!
//! ```text
//! .proto texts ─► Types ─┬► SourceSchema   what ProtobufConverter would give (connect)
//!                        └► Kind           which field goes to which column (plan)
//! bytes of a record ─► Kind ─► ColumnBuilder
//! ```

mod connect;
mod descriptor;
mod known;
mod lexer;
mod parse;
mod plan;
#[cfg(test)]
mod tests;
mod types;
mod value;

use std::sync::Arc;

use super::columns::{Budget, ColumnBuilder};
use super::refused::Refused;
use crate::error::{Result, SinkError};
use crate::wire::SourceSchema;
use plan::{Decoding, Kind, Scratch};

/// Decodes messages of one type.
#[derive(Debug)]
pub struct ProtobufDecoder {
    schema: Arc<SourceSchema>,
    kind: Kind,
    scratch: Scratch,
}

impl ProtobufDecoder {
    /// Compiles the message type that `indexes` lead to, of a `.proto` text or of a descriptor in base64. `references` are name
    /// and text of the files that it imports.
    ///
    /// # Errors
    ///
    /// Of kind `Data`: `SCHEMA_INVALID`, `SCHEMA_TOO_DEEP` (also for a message that contains
    /// itself), `SCHEMA_TOO_LARGE`, `SCHEMA_TYPE_UNSUPPORTED`.
    pub fn new(
        text: &str,
        references: &[(&str, &str)],
        indexes: &[u32],
    ) -> Result<ProtobufDecoder> {
        let (types, root) = types::types(text, references, indexes)?;
        let (schema, kind) = connect::compile(&types, root)?;
        Ok(ProtobufDecoder {
            schema: Arc::new(schema),
            kind,
            scratch: Scratch::default(),
        })
    }

    /// Returns the Connect schema of the values.
    pub fn schema(&self) -> &Arc<SourceSchema> {
        &self.schema
    }

    /// Moves the message that `bytes` are, whole, to `column`. After an error the row is to be
    /// abandoned.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        column: &mut ColumnBuilder,
        budget: &mut Budget,
    ) -> Result<(), Refused> {
        self.scratch.clear();
        let mut decoding = Decoding {
            budget,
            scratch: &mut self.scratch,
        };
        decoding
            .whole(&self.kind, bytes, column)
            .map_err(|refused| refused.at(0))
    }
}

/// Returns the error of a text that is no `.proto` file.
fn invalid(message: impl Into<String>) -> SinkError {
    SinkError::data("SCHEMA_INVALID", message)
}
