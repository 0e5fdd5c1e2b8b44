//! Columns that hold where a record came from, and what came with its value.

use std::sync::Arc;

use iceberg::spec::{NestedField, NestedFieldRef, PrimitiveType, Type};

use super::types::{type_of, type_of_value};
pub use crate::config::{MetadataColumn, MetadataSource};
use crate::route::source::walk;
use crate::wire::{Cell, Frame, SourceKind, SourceSchema};

/// Returns the type of a metadata column in a new table. Where records decide it, text stands in
/// until one has.
pub fn type_of_column(column: &MetadataColumn) -> Type {
    let primitive = match column.source {
        MetadataSource::Topic | MetadataSource::Headers => PrimitiveType::String,
        MetadataSource::Partition => PrimitiveType::Int,
        MetadataSource::Offset => PrimitiveType::Long,
        MetadataSource::Timestamp => PrimitiveType::Timestamptz,
        MetadataSource::Deleted => PrimitiveType::Boolean,
        MetadataSource::Key | MetadataSource::KeyField(_) => {
            let decided = column.field_type.clone();
            return decided.unwrap_or(Type::Primitive(PrimitiveType::String));
        }
    };
    Type::Primitive(primitive)
}

/// Returns a metadata column, not yet numbered: required in a new table where every record has it,
/// optional in one that has rows already.
pub fn field(column: &MetadataColumn, required: bool) -> NestedFieldRef {
    let always = matches!(
        column.source,
        MetadataSource::Topic
            | MetadataSource::Partition
            | MetadataSource::Offset
            | MetadataSource::Deleted
    );
    let field_type = type_of_column(column);
    Arc::new(NestedField::new(
        0,
        &column.name,
        field_type,
        required && always,
    ))
}

/// Returns `columns` with the types that `row` shows of those whose type its key decides, and
/// whether it showed them all. A key that is null counts as text.
pub fn resolved(
    columns: &[MetadataColumn],
    frame: &Frame<'_>,
    row: u32,
) -> (Vec<MetadataColumn>, bool) {
    let mut complete = true;
    let resolved = columns.iter().map(|column| {
        let mut column = column.clone();
        let shown = match &column.source {
            MetadataSource::Key => Some(key_type(frame, row)),
            MetadataSource::KeyField(path) => key_field_type(frame, row, path),
            _ => return column,
        };
        complete &= shown.is_some();
        column.field_type = shown;
        column
    });
    (resolved.collect(), complete)
}

/// Bytes stay bytes; everything else becomes text.
fn key_type(frame: &Frame<'_>, row: u32) -> Type {
    let is_binary = match frame.key_schema() {
        Some(schema) => schema.kind() == SourceKind::Bytes && schema.logical().is_none(),
        None => matches!(frame.key(row as usize), Cell::Bytes(_)),
    };
    Type::Primitive(match is_binary {
        true => PrimitiveType::Binary,
        false => PrimitiveType::String,
    })
}

fn key_field_type(frame: &Frame<'_>, row: u32, path: &str) -> Option<Type> {
    if let Some(schema) = frame
        .key_schema()
        .filter(|schema| schema.kind() == SourceKind::Struct)
    {
        return type_of(schema_at(schema, path)?, true).ok();
    }
    let cell = walk(frame.key(row as usize), path).ok()?;
    type_of_value(cell).ok().flatten()
}

/// Returns the schema of the field at `path`.
pub(crate) fn schema_at<'s>(
    mut schema: &'s SourceSchema,
    mut path: &str,
) -> Option<&'s SourceSchema> {
    while !path.is_empty() {
        if let Some((_, field)) = schema.field(path) {
            return Some(&field.schema);
        }
        let (head, rest) = path.split_once('.')?;
        schema = &schema.field(head)?.1.schema;
        path = rest;
    }
    Some(schema)
}
