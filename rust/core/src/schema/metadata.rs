//! Columns that hold where a record came from.

use std::sync::Arc;

use iceberg::spec::{NestedField, NestedFieldRef, PrimitiveType, Type};

/// A column that Frazil fills from the record's original coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetadataColumn {
    /// `_topic string`.
    Topic,
    /// `_partition int`.
    Partition,
    /// `_offset long`.
    Offset,
}

impl MetadataColumn {
    /// All of them in the order in which they are added to a new table.
    pub const ALL: [MetadataColumn; 3] = [
        MetadataColumn::Topic,
        MetadataColumn::Partition,
        MetadataColumn::Offset,
    ];

    /// Returns the column's name.
    pub fn name(self) -> &'static str {
        match self {
            MetadataColumn::Topic => "_topic",
            MetadataColumn::Partition => "_partition",
            MetadataColumn::Offset => "_offset",
        }
    }

    /// Returns the column's type in a new table.
    pub fn primitive_type(self) -> PrimitiveType {
        match self {
            MetadataColumn::Topic => PrimitiveType::String,
            MetadataColumn::Partition => PrimitiveType::Int,
            MetadataColumn::Offset => PrimitiveType::Long,
        }
    }

    /// Returns the column of a new table, not yet numbered.
    pub fn field(self) -> NestedFieldRef {
        Arc::new(NestedField::required(
            0,
            self.name(),
            Type::Primitive(self.primitive_type()),
        ))
    }
}
