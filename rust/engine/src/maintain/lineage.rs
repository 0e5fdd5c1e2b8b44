//! The columns that keep the history of a row which moves to another file, in format version 3.

use std::sync::Arc;

use frazil_core::{Result, SinkError};
use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};

/// Field ids and names that Iceberg's specification reserves.
pub(super) const ROW_ID: i32 = 2_147_483_540;
pub(super) const LAST_UPDATED: i32 = 2_147_483_539;
/// The names of the columns, by which their metrics are switched off: no reader skips files by them.
pub(super) const COLUMNS: [&str; 2] = ["_row_id", "_last_updated_sequence_number"];

/// Returns `schema` with these columns behind its own.
///
/// # Errors
///
/// `TABLE_SCHEMA_UNSUPPORTED` when it has columns of these names itself.
pub(super) fn with_lineage(schema: &Schema) -> Result<Schema> {
    let long = || Type::Primitive(PrimitiveType::Long);
    let [row_id, last_updated] = COLUMNS;
    let lineage = [(ROW_ID, row_id), (LAST_UPDATED, last_updated)];
    let lineage = lineage.map(|(id, name)| Arc::new(NestedField::optional(id, name, long())));
    let fields = schema.as_struct().fields().iter().cloned().chain(lineage);
    let made = Schema::builder()
        .with_schema_id(schema.schema_id())
        .with_fields(fields)
        .build();
    made.map_err(|error| {
        SinkError::fatal(
            "TABLE_SCHEMA_UNSUPPORTED",
            "the table's schema cannot be written as Parquet: it has a column with a name that is reserved \
             for the history of rows",
        )
        .caused_by(error)
    })
}
