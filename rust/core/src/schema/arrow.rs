//! The Arrow form of a table's schema, with the field ids that Parquet needs.

use std::sync::Arc;

use arrow_schema::SchemaRef as ArrowSchemaRef;
use iceberg::spec::{PrimitiveType, Schema, Type};

use crate::error::{Result, SinkError};

/// Returns the Arrow schema of the rows of a table: `PARQUET:field_id` on every field; `time`,
/// `timestamp` and `timestamptz` in microseconds (the last in `+00:00`), `uuid` as 16 fixed bytes,
/// `binary` as large binary, decimals in 128 bits.
pub fn arrow_schema(schema: &Schema) -> Result<ArrowSchemaRef> {
    for field in schema.field_id_to_fields().values() {
        if let Type::Primitive(PrimitiveType::Fixed(length)) = field.field_type.as_ref()
            && i32::try_from(*length).is_err()
        {
            return Err(SinkError::fatal(
                "TABLE_TYPE_UNSUPPORTED",
                "a fixed column of 2 GiB or more cannot be written: make it binary",
            )
            .with("column", &field.name));
        }
    }
    let converted = iceberg::arrow::schema_to_arrow_schema(schema).map_err(|error| {
        SinkError::fatal(
            "TABLE_TYPE_UNSUPPORTED",
            "the table has a column type that cannot be written",
        )
        .caused_by(error)
    })?;
    Ok(Arc::new(converted))
}
