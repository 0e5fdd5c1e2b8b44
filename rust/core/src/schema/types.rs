//! From a source's schema, or a value without one, to the types of a new table or column.
//!
//! | Connect | Iceberg |
//! |---|---|
//! | BOOLEAN | boolean |
//! | INT8, INT16, INT32 | int |
//! | INT64 | long |
//! | FLOAT32, FLOAT64 | float, double |
//! | STRING, BYTES | string, binary |
//! | Decimal | decimal(`connect.decimal.precision` or 38, scale) |
//! | Date, Time, Timestamp | date, time, timestamptz |
//! | `io.debezium.time.` Date, IsoDate | date |
//! | … Time, MicroTime, NanoTime, IsoTime | time |
//! | … Timestamp, MicroTimestamp, NanoTimestamp, IsoTimestamp | timestamp |
//! | … ZonedTimestamp | timestamptz |
//! | `io.debezium.data.` Uuid | uuid |
//! | … VariableScaleDecimal | string |
//! | any other name | as its kind |
//! | ARRAY, MAP, STRUCT | list, map, struct |
//!
//! Without a schema: text string, boolean, integers long, floats double, decimals
//! `decimal(max(digits, scale), scale)`, bytes binary, dates, times, timestamps timestamptz, lists
//! of their first element that has a type, maps struct. Nulls, empty lists and empty maps have no
//! type, and so no column until a value shows one.

use std::collections::BTreeSet;
use std::sync::Arc;

use iceberg::spec::PrimitiveType as Primitive;
use iceberg::spec::{ListType, MapType, NestedField, NestedFieldRef, Schema, StructType, Type};

use super::ids::FieldIds;
use super::metadata::{self, MetadataColumn};
use super::semantic::{self, Semantic};
use crate::convert::decimal::Decimal;
use crate::error::{Result, SinkError};
use crate::limits::NESTING_MAX;
use crate::wire::{Cell, LogicalType, MapCell, SourceKind, SourceSchema};

/// The digits of a decimal column when the source does not say.
const DECIMAL_PRECISION_MAX: u32 = 38;
const PRECISION_PARAMETER: &str = "connect.decimal.precision";

/// How the schema of a new table is made.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// Makes every column optional, whatever the source says.
    pub force_optional: bool,
    /// Columns to add behind those of the record.
    pub metadata_columns: Vec<MetadataColumn>,
}

/// Returns the schema of a new table for values like `value`, whose schema is taken from the value
/// itself. Tell tombstones apart before.
pub fn table_schema(value: Cell<'_>, options: &CreateOptions) -> Result<Schema> {
    let mut fields = match value {
        Cell::Struct(record) => struct_fields(record.schema(), options.force_optional, 1)?,
        Cell::Map(record) => inferred_fields(&record, 1)?,
        other => {
            return Err(SinkError::data(
                "VALUE_NOT_A_RECORD",
                "a table needs records that are structs or maps: use a converter or transform \
                 that makes one (HoistField wraps a single value)",
            )
            .with("source_type", other.type_name()));
        }
    };
    for column in &options.metadata_columns {
        fields.push(metadata::field(column, true));
    }
    check_names(&fields)?;
    if fields.is_empty() {
        return Err(SinkError::data(
            "SCHEMA_EMPTY",
            "the first record has no field with a value, so it gives the new table no column",
        ));
    }
    build(FieldIds::after(0).number(&fields)?)
}

/// Builds a schema from numbered fields.
fn build(fields: Vec<NestedFieldRef>) -> Result<Schema> {
    Schema::builder()
        .with_fields(fields)
        .build()
        .map_err(|error| {
            SinkError::data(
                "SCHEMA_CONFLICT",
                "the record's fields make no valid schema",
            )
            .caused_by(error)
        })
}

/// Returns the type of a column for values of `source`, its fields not yet numbered.
pub fn type_of(source: &SourceSchema, force_optional: bool) -> Result<Type> {
    typed(source, force_optional, 1)
}

/// Returns the type that `value` shows, its fields not yet numbered; `None` if it shows none.
pub fn type_of_value(value: Cell<'_>) -> Result<Option<Type>> {
    inferred(value, 1)
}

fn typed(source: &SourceSchema, force_optional: bool, depth: usize) -> Result<Type> {
    check_depth(depth)?;
    if let Some(logical) = source.logical() {
        return logical_type(source, logical).map(Type::Primitive);
    }
    let primitive = match Semantic::of(source) {
        Semantic::EpochDay | Semantic::DateText => Some(Primitive::Date),
        Semantic::MilliOfDay | Semantic::MicroOfDay | Semantic::NanoOfDay | Semantic::TimeText => {
            Some(Primitive::Time)
        }
        Semantic::EpochMilli
        | Semantic::EpochMicro
        | Semantic::EpochNano
        | Semantic::TimestampText => Some(Primitive::Timestamp),
        Semantic::ZonedTimestampText => Some(Primitive::Timestamptz),
        Semantic::UuidText => Some(Primitive::Uuid),
        Semantic::VariableScaleDecimal => Some(Primitive::String),
        Semantic::Plain | Semantic::Schemaless => None,
    };
    if let Some(primitive) = primitive {
        return Ok(Type::Primitive(primitive));
    }
    Ok(Type::Primitive(match source.kind() {
        SourceKind::Boolean => Primitive::Boolean,
        SourceKind::Int8 | SourceKind::Int16 | SourceKind::Int32 => Primitive::Int,
        SourceKind::Int64 => Primitive::Long,
        SourceKind::Float32 => Primitive::Float,
        SourceKind::Float64 => Primitive::Double,
        SourceKind::String => Primitive::String,
        SourceKind::Bytes => Primitive::Binary,
        SourceKind::Array => {
            let element = child(source.value())?;
            let element_type = typed(element, force_optional, depth + 1)?;
            let required = !element.optional && !force_optional;
            return Ok(list_of(element_type, required));
        }
        SourceKind::Map => {
            let (key, value) = (child(source.key())?, child(source.value())?);
            let key_type = typed(key, force_optional, depth + 1)?;
            let value_type = typed(value, force_optional, depth + 1)?;
            let required = !value.optional && !force_optional;
            let value_field = NestedField::map_value_element(0, value_type, required);
            return Ok(Type::Map(MapType {
                key_field: Arc::new(NestedField::map_key_element(0, key_type)),
                value_field: Arc::new(value_field),
            }));
        }
        SourceKind::Struct => {
            let fields = struct_fields(source, force_optional, depth)?;
            return Ok(Type::Struct(StructType::new(fields)));
        }
    }))
}

fn child(schema: Option<&Arc<SourceSchema>>) -> Result<&Arc<SourceSchema>> {
    schema.ok_or_else(|| unsupported("an array or map schema has no element schema"))
}

fn list_of(element_type: Type, required: bool) -> Type {
    Type::List(ListType {
        element_field: Arc::new(NestedField::list_element(0, element_type, required)),
    })
}

fn logical_type(source: &SourceSchema, logical: LogicalType) -> Result<Primitive> {
    Ok(match logical {
        LogicalType::Date => Primitive::Date,
        LogicalType::Time => Primitive::Time,
        LogicalType::Timestamp => Primitive::Timestamptz,
        LogicalType::Decimal { scale } => {
            let precision = match source.parameters.get(PRECISION_PARAMETER) {
                None => DECIMAL_PRECISION_MAX,
                Some(text) => text
                    .parse()
                    .map_err(|_| unsupported("`connect.decimal.precision` is not a number"))?,
            };
            let scale = u32::try_from(scale)
                .map_err(|_| unsupported("a decimal with a negative scale has no column type"))?;
            if !(1..=DECIMAL_PRECISION_MAX).contains(&precision) || scale > precision {
                return Err(unsupported(&format!(
                    "decimal({precision}, {scale}) has more digits than a column can hold \
                     (38, and never fewer than the scale)"
                )));
            }
            Primitive::Decimal { precision, scale }
        }
    })
}

/// Returns the fields of a struct schema in their order, not yet numbered.
fn struct_fields(
    source: &SourceSchema,
    force_optional: bool,
    depth: usize,
) -> Result<Vec<NestedFieldRef>> {
    check_depth(depth)?;
    if source.fields().is_empty() {
        return Err(unsupported("a struct without fields has no column type"));
    }
    let mut fields = Vec::with_capacity(source.fields().len());
    for field in source.fields() {
        let field_type = typed(&field.schema, force_optional, depth + 1).map_err(|error| {
            error
                .with("field", &field.name)
                .with("source_type", semantic::type_name(&field.schema))
        })?;
        let required = !field.schema.optional && !force_optional;
        fields.push(new_field(
            &field.name,
            field_type,
            required,
            field.schema.doc.as_deref(),
        ));
    }
    check_names(&fields)?;
    Ok(fields)
}

fn new_field(name: &str, field_type: Type, required: bool, doc: Option<&str>) -> NestedFieldRef {
    let field = NestedField::new(0, name, field_type, required);
    Arc::new(match doc {
        Some(doc) => field.with_doc(doc),
        None => field,
    })
}

fn inferred(value: Cell<'_>, depth: usize) -> Result<Option<Type>> {
    check_depth(depth)?;
    Ok(Some(Type::Primitive(match value {
        Cell::Null => return Ok(None),
        Cell::Bool(_) => Primitive::Boolean,
        Cell::Int8(_) | Cell::Int16(_) | Cell::Int32(_) | Cell::Int64(_) => Primitive::Long,
        Cell::Float32(_) | Cell::Float64(_) => Primitive::Double,
        Cell::String(_) => Primitive::String,
        Cell::Bytes(_) => Primitive::Binary,
        Cell::Date { .. } => Primitive::Date,
        Cell::Time { .. } => Primitive::Time,
        Cell::Timestamp { .. } => Primitive::Timestamptz,
        Cell::Decimal { unscaled, scale } => inferred_decimal(unscaled, scale)?,
        Cell::Array(list) => {
            if let Some(element) = list.element_schema() {
                return Ok(Some(list_of(typed(element, true, depth + 1)?, false)));
            }
            for element in list.iter() {
                if let Some(element_type) = inferred(element, depth + 1)? {
                    return Ok(Some(list_of(element_type, false)));
                }
            }
            return Ok(None);
        }
        Cell::Map(map) => {
            let fields = inferred_fields(&map, depth)?;
            return Ok(match fields.is_empty() {
                true => None,
                false => Some(Type::Struct(StructType::new(fields))),
            });
        }
        Cell::Struct(record) => return typed(record.schema(), true, depth).map(Some),
    })))
}

fn inferred_decimal(unscaled: &[u8], scale: i32) -> Result<Primitive> {
    let too_wide = || unsupported("a decimal with more than 38 digits has no column type");
    let decimal = Decimal::from_be_bytes(unscaled, scale).map_err(|_| too_wide())?;
    let scale = u32::try_from(scale)
        .map_err(|_| unsupported("a decimal with a negative scale has no column type"))?;
    let precision = decimal.precision().max(scale);
    if precision > DECIMAL_PRECISION_MAX {
        return Err(too_wide());
    }
    Ok(Primitive::Decimal { precision, scale })
}

fn inferred_fields(map: &MapCell<'_>, depth: usize) -> Result<Vec<NestedFieldRef>> {
    check_depth(depth)?;
    let value_schema = map.entry_schemas().map(|(_, value)| value);
    let mut fields = Vec::new();
    for entry in map.entries() {
        let Cell::String(name) = entry.key else {
            return Err(
                unsupported("a map with keys that are not text has no column type")
                    .with("source_type", entry.key.type_name()),
            );
        };
        let field_type = match value_schema {
            Some(schema) if !entry.value.is_null() => Some(typed(schema, true, depth + 1)?),
            _ => inferred(entry.value, depth + 1).map_err(|error| error.with("field", name))?,
        };
        if let Some(field_type) = field_type {
            fields.push(new_field(name, field_type, false, None));
        }
    }
    check_names(&fields)?;
    Ok(fields)
}

/// Refuses two fields of one struct that differ in nothing but case: most engines cannot read them.
fn check_names(fields: &[NestedFieldRef]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for field in fields {
        if !seen.insert(field.name.to_lowercase()) {
            return Err(SinkError::data(
                "SCHEMA_NAME_DUPLICATE",
                "two fields have the same name, or names that differ only in case: rename one",
            )
            .with("field", &field.name));
        }
    }
    Ok(())
}

fn check_depth(depth: usize) -> Result<()> {
    if depth > NESTING_MAX {
        return Err(SinkError::data(
            "SCHEMA_TOO_DEEP",
            format!(
                "a schema nests deeper than {NESTING_MAX} levels; recursive schemas have no column type"
            ),
        ));
    }
    Ok(())
}

fn unsupported(message: &str) -> SinkError {
    SinkError::data("SCHEMA_TYPE_UNSUPPORTED", message)
}
