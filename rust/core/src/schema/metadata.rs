//! Columns that hold where a record came from.

use std::sync::Arc;

use iceberg::spec::{NestedField, NestedFieldRef, PrimitiveType, Type};

pub use crate::config::MetadataColumn;

/// Returns the type of a metadata column in a new table.
pub fn primitive_type(column: MetadataColumn) -> PrimitiveType {
    match column {
        MetadataColumn::Topic => PrimitiveType::String,
        MetadataColumn::Partition => PrimitiveType::Int,
        MetadataColumn::Offset => PrimitiveType::Long,
    }
}

/// Returns a metadata column, not yet numbered: required in a new table, optional in one that has
/// rows already.
pub fn field(column: MetadataColumn, required: bool) -> NestedFieldRef {
    let field_type = Type::Primitive(primitive_type(column));
    Arc::new(NestedField::new(0, column.name(), field_type, required))
}
