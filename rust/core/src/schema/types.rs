//! From a source's schema, or a value without one, to the types of a new table or column.
//!
//! What each source becomes is in `docs/types.md`, which is made from `schema::contract`; the tests
//! compare it with this module. Everything that has no column type of its own becomes a `string`
//! that holds all of it: decimals of more than 38 digits as their digits, structs without fields,
//! lists of values that have no type in common and maps whose keys have none as JSON.
//!
//! Without a schema, nulls, empty lists and empty maps show no type, and so get no column until a
//! value shows one. Maps with text keys are structs: they are the objects of JSON.

use std::collections::BTreeSet;
use std::sync::Arc;

use iceberg::spec::PrimitiveType as Primitive;
use iceberg::spec::{ListType, MapType, NestedField, NestedFieldRef, Schema, StructType, Type};

use super::defaults::{self, with_default};
use super::ids::FieldIds;
use super::metadata::{self, MetadataColumn};
use super::semantic::{self, Semantic};
use crate::convert::decimal::Decimal;
use crate::error::{Result, SinkError};
use crate::limits::NESTING_MAX;
use crate::wire::{Cell, LogicalType, MapCell, SourceKind, SourceSchema};

/// The digits of a decimal column when the source does not say.
const DECIMAL_PRECISION_MAX: u32 = 38;
/// The parameter that says how many digits the decimals of a schema have.
pub(super) const PRECISION_PARAMETER: &str = "connect.decimal.precision";

/// How the schema of a new table is made.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// Makes every column optional, whatever the source says.
    pub force_optional: bool,
    /// Columns to add behind those of the record.
    pub metadata_columns: Vec<MetadataColumn>,
    /// Whether the table will have format version 3, which has nanoseconds and defaults.
    pub is_v3: bool,
}

impl CreateOptions {
    fn rules(&self) -> TypeRules {
        TypeRules {
            force_optional: self.force_optional,
            is_v3: self.is_v3,
        }
    }
}

/// Returns the schema of a new table for values like `value`, whose schema is taken from the value
/// itself. Tell tombstones apart before.
pub fn table_schema(value: Cell<'_>, options: &CreateOptions) -> Result<Schema> {
    let mut fields = match value {
        Cell::Struct(record) => struct_fields(record.schema(), options.rules(), 1)?,
        Cell::Map(record) => inferred_fields(&record, options.rules(), 1)?,
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

/// What decides the type of a new column beside its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TypeRules {
    /// Makes every field optional, also those inside of structs, lists and maps.
    pub force_optional: bool,
    /// Whether the table has format version 3, which has nanoseconds and defaults.
    pub is_v3: bool,
}

impl From<bool> for TypeRules {
    fn from(force_optional: bool) -> Self {
        TypeRules {
            force_optional,
            is_v3: false,
        }
    }
}

/// Returns the type of a column for values of `source`, its fields not yet numbered.
pub fn type_of(source: &SourceSchema, rules: impl Into<TypeRules>) -> Result<Type> {
    typed(source, rules.into(), 1)
}

/// Returns the type that `value` shows, its fields not yet numbered; `None` if it shows none.
pub fn type_of_value(value: Cell<'_>) -> Result<Option<Type>> {
    inferred(value, 1)
}

fn typed(source: &SourceSchema, rules: TypeRules, depth: usize) -> Result<Type> {
    check_depth(depth)?;
    if let Some(logical) = source.logical() {
        return logical_type(source, logical).map(Type::Primitive);
    }
    if let Some(primitive) = semantic_type(Semantic::of(source), rules) {
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
            let element_type = typed(element, rules, depth + 1)?;
            let required = !element.optional && !rules.force_optional;
            return Ok(list_of(element_type, required));
        }
        SourceKind::Map => {
            let (key, value) = (child(source.key())?, child(source.value())?);
            let key_type = typed(key, rules, depth + 1)?;
            let value_type = typed(value, rules, depth + 1)?;
            let required = !value.optional && !rules.force_optional;
            return Ok(map_of(key_type, value_type, required));
        }
        // As JSON: Parquet has no groups without fields.
        SourceKind::Struct if source.fields().is_empty() => Primitive::String,
        SourceKind::Struct => {
            let fields = struct_fields(source, rules, depth)?;
            return Ok(Type::Struct(StructType::new(fields)));
        }
    }))
}

/// Returns the type that a meaning asks for, `None` when the kind decides.
fn semantic_type(semantic: Semantic, rules: TypeRules) -> Option<Primitive> {
    Some(match semantic {
        Semantic::EpochDay | Semantic::DateText => Primitive::Date,
        Semantic::MilliOfDay | Semantic::MicroOfDay | Semantic::NanoOfDay | Semantic::TimeText => {
            Primitive::Time
        }
        Semantic::EpochNano if rules.is_v3 => Primitive::TimestampNs,
        Semantic::InstantNano if rules.is_v3 => Primitive::TimestamptzNs,
        Semantic::EpochMilli
        | Semantic::EpochMicro
        | Semantic::EpochNano
        | Semantic::TimestampText => Primitive::Timestamp,
        Semantic::ZonedTimestampText | Semantic::InstantMicro | Semantic::InstantNano => {
            Primitive::Timestamptz
        }
        Semantic::UuidText => Primitive::Uuid,
        Semantic::VariableScaleDecimal => Primitive::String,
        Semantic::Plain | Semantic::Schemaless | Semantic::TemporalParts | Semantic::Geometry => {
            return None;
        }
    })
}

fn child(schema: Option<&Arc<SourceSchema>>) -> Result<&Arc<SourceSchema>> {
    schema.ok_or_else(|| unsupported("an array or map schema has no element schema"))
}

fn list_of(element_type: Type, required: bool) -> Type {
    Type::List(ListType {
        element_field: Arc::new(NestedField::list_element(0, element_type, required)),
    })
}

fn map_of(key_type: Type, value_type: Type, required: bool) -> Type {
    Type::Map(MapType {
        key_field: Arc::new(NestedField::map_key_element(0, key_type)),
        value_field: Arc::new(NestedField::map_value_element(0, value_type, required)),
    })
}

fn logical_type(source: &SourceSchema, logical: LogicalType) -> Result<Primitive> {
    Ok(match logical {
        LogicalType::Date => Primitive::Date,
        LogicalType::Time => Primitive::Time,
        LogicalType::Timestamp => Primitive::Timestamptz,
        LogicalType::Decimal { scale } => {
            let precision = match source.parameters.get(PRECISION_PARAMETER) {
                None => None,
                Some(text) => match text.parse() {
                    Ok(precision @ 1..) => Some(precision),
                    _ => {
                        return Err(unsupported(
                            "`connect.decimal.precision` is not a number of digits",
                        ));
                    }
                },
            };
            decimal_type(precision, scale)
        }
    })
}

/// Returns the type of decimals with `precision` digits, of which `scale` stand after the point: a
/// decimal that holds each of them without rounding, else `string`. Zeros that a negative scale
/// leaves out are digits of the column.
fn decimal_type(precision: Option<u32>, scale: i32) -> Primitive {
    let fraction = scale.max(0).unsigned_abs();
    let zeros = scale.min(0).unsigned_abs();
    // Without a precision, as many digits as there can be.
    let digits = match precision {
        Some(precision) => precision.saturating_add(zeros).max(fraction),
        None => DECIMAL_PRECISION_MAX.max(fraction),
    };
    if digits > DECIMAL_PRECISION_MAX {
        return Primitive::String;
    }
    Primitive::Decimal {
        precision: digits,
        scale: fraction,
    }
}

/// Returns the fields of a struct schema in their order, not yet numbered.
fn struct_fields(
    source: &SourceSchema,
    rules: TypeRules,
    depth: usize,
) -> Result<Vec<NestedFieldRef>> {
    check_depth(depth)?;
    let mut fields = Vec::with_capacity(source.fields().len());
    for field in source.fields() {
        let field_type = typed(&field.schema, rules, depth + 1).map_err(|error| {
            error
                .with("field", &field.name)
                .with("source_type", semantic::type_name(&field.schema))
        })?;
        let required = !field.schema.optional && !rules.force_optional;
        let new = NestedField::new(0, &field.name, field_type, required);
        fields.push(Arc::new(described(new, &field.schema, rules)));
    }
    check_names(&fields)?;
    Ok(fields)
}

/// Gives `field` what its source says of it: its doc, and its default where the table can have one.
pub(super) fn described(
    field: NestedField,
    source: &SourceSchema,
    rules: TypeRules,
) -> NestedField {
    let field = match &source.doc {
        Some(doc) => field.with_doc(doc),
        None => field,
    };
    match rules.is_v3 {
        true => with_default(field, source),
        false => field,
    }
}

fn inferred(value: Cell<'_>, depth: usize) -> Result<Option<Type>> {
    check_depth(depth)?;
    Ok(Some(Type::Primitive(match value {
        Cell::Null => return Ok(None),
        Cell::Bool(_) => Primitive::Boolean,
        Cell::Int8(_) | Cell::Int16(_) | Cell::Int32(_) | Cell::Int64(_) => Primitive::Long,
        Cell::Float32(_) | Cell::Float64(_) | Cell::Number { .. } => Primitive::Double,
        Cell::String(_) => Primitive::String,
        Cell::Bytes(_) => Primitive::Binary,
        Cell::Date { .. } => Primitive::Date,
        Cell::Time { .. } | Cell::ClockTime { .. } => Primitive::Time,
        Cell::Timestamp { .. } | Cell::Moment { zoned: true, .. } => Primitive::Timestamptz,
        Cell::Moment { zoned: false, .. } => Primitive::Timestamp,
        Cell::Uuid(_) => Primitive::Uuid,
        Cell::Decimal { unscaled, scale } => match Decimal::from_be_bytes(unscaled, scale) {
            Ok(decimal) => decimal_type(Some(decimal.precision()), scale),
            // More digits than a decimal column has, in any case.
            Err(_) => Primitive::String,
        },
        Cell::Array(list) => {
            if let Some(element) = list.element_schema() {
                let element_type = typed(element, TypeRules::from(true), depth + 1)?;
                return Ok(Some(list_of(element_type, false)));
            }
            return Ok(match common_type(list.iter(), depth + 1)? {
                Common::None => None,
                Common::Type(element_type) => Some(list_of(element_type, false)),
                Common::Mixed => Some(Type::Primitive(Primitive::String)),
            });
        }
        Cell::Map(map) => return inferred_map(&map, depth),
        Cell::Struct(record) => {
            return typed(record.schema(), TypeRules::from(true), depth).map(Some);
        }
    })))
}

/// What the types of several values have in common.
enum Common {
    /// No value shows a type.
    None,
    /// A type that holds all of them.
    Type(Type),
    /// No type holds all of them.
    Mixed,
}

fn common_type<'c>(values: impl Iterator<Item = Cell<'c>>, depth: usize) -> Result<Common> {
    let mut common = Common::None;
    for value in values {
        let Some(next) = inferred(value, depth)? else {
            continue;
        };
        common = match common {
            Common::None => Common::Type(next),
            Common::Type(known) => match unify(&known, &next) {
                Some(unified) => Common::Type(unified),
                None => return Ok(Common::Mixed),
            },
            Common::Mixed => return Ok(Common::Mixed),
        };
    }
    Ok(common)
}

/// Returns the type of a map without a schema: a struct when its keys are text.
fn inferred_map(map: &MapCell<'_>, depth: usize) -> Result<Option<Type>> {
    if map
        .entries()
        .all(|entry| matches!(entry.key, Cell::String(_)))
    {
        let fields = inferred_fields(map, TypeRules::from(true), depth)?;
        return Ok(match fields.is_empty() {
            true => None,
            false => Some(Type::Struct(StructType::new(fields))),
        });
    }
    let null_key = map.entries().any(|entry| entry.key.is_null());
    let keys = common_type(map.entries().map(|entry| entry.key), depth + 1)?;
    let values = common_type(map.entries().map(|entry| entry.value), depth + 1)?;
    Ok(match (keys, values) {
        (_, Common::None) => None,
        (Common::Type(key), Common::Type(value)) if !null_key => Some(map_of(key, value, false)),
        _ => Some(Type::Primitive(Primitive::String)),
    })
}

/// Returns the type that holds the values of both types as they are, `None` when there is none.
/// Which numbers a `double` holds shows only when they come: whole numbers beyond 2^53 may not.
pub fn unify(first: &Type, second: &Type) -> Option<Type> {
    match (first, second) {
        _ if first == second => Some(first.clone()),
        (Type::Struct(left), Type::Struct(right)) => {
            unify_structs(left, right).map(|fields| Type::Struct(StructType::new(fields)))
        }
        (Type::List(left), Type::List(right)) => {
            let (left, right) = (&left.element_field, &right.element_field);
            let element_type = unify(&left.field_type, &right.field_type)?;
            Some(list_of(element_type, left.required && right.required))
        }
        (Type::Map(left), Type::Map(right)) => {
            let key_type = unify(&left.key_field.field_type, &right.key_field.field_type)?;
            let (left, right) = (&left.value_field, &right.value_field);
            let value_type = unify(&left.field_type, &right.field_type)?;
            Some(map_of(
                key_type,
                value_type,
                left.required && right.required,
            ))
        }
        (Type::Primitive(left), Type::Primitive(right)) => {
            let unified = unify_primitives(left, right);
            unified
                .or_else(|| unify_primitives(right, left))
                .map(Type::Primitive)
        }
        _ => None,
    }
}

fn unify_structs(left: &StructType, right: &StructType) -> Option<Vec<NestedFieldRef>> {
    let mut fields = left.fields().to_vec();
    for field in right.fields() {
        let known = fields.iter_mut().find(|known| known.name == field.name);
        match known {
            Some(known) => {
                let mut unified = known.as_ref().clone();
                *unified.field_type = unify(&known.field_type, &field.field_type)?;
                defaults::follow(&mut unified);
                unified.required &= field.required;
                *known = Arc::new(unified);
            }
            None => {
                let mut added = field.as_ref().clone();
                added.required = false;
                fields.push(Arc::new(added));
            }
        }
    }
    check_names(&fields).is_ok().then_some(fields)
}

fn unify_primitives(left: &Primitive, right: &Primitive) -> Option<Primitive> {
    let digits_of = |integer: &Primitive| match integer {
        Primitive::Int => Some((10, 0)),
        Primitive::Long => Some((19, 0)),
        Primitive::Decimal { precision, scale } => Some((precision.saturating_sub(*scale), *scale)),
        _ => None,
    };
    match (left, right) {
        (Primitive::Int, Primitive::Long) => Some(Primitive::Long),
        (Primitive::Int | Primitive::Long | Primitive::Float, Primitive::Double) => {
            Some(Primitive::Double)
        }
        (_, Primitive::Decimal { .. }) => {
            let (left, right) = (digits_of(left)?, digits_of(right)?);
            let (whole, scale) = (left.0.max(right.0), left.1.max(right.1));
            let precision = whole.saturating_add(scale);
            (precision <= DECIMAL_PRECISION_MAX).then_some(Primitive::Decimal { precision, scale })
        }
        _ => None,
    }
}

/// Tells whether a value that no column takes would be lost: not so for nulls, empty lists and
/// empty maps, which show no type either.
pub fn shows_type(value: Cell<'_>) -> bool {
    match value {
        Cell::Null => false,
        Cell::Array(list) => list.element_schema().is_some() || list.iter().any(shows_type),
        Cell::Map(map) => map.entries().any(|entry| shows_type(entry.value)),
        _ => true,
    }
}

fn inferred_fields(
    map: &MapCell<'_>,
    rules: TypeRules,
    depth: usize,
) -> Result<Vec<NestedFieldRef>> {
    check_depth(depth)?;
    let value_schema = map.entry_schemas().map(|(_, value)| value);
    let rules = TypeRules {
        force_optional: true,
        ..rules
    };
    let mut fields = Vec::new();
    for entry in map.entries() {
        let Cell::String(name) = entry.key else {
            return Err(
                unsupported("a record that is a map needs keys that are text")
                    .with("source_type", entry.key.type_name()),
            );
        };
        let field_type = match value_schema {
            Some(schema) if !entry.value.is_null() => Some(typed(schema, rules, depth + 1)?),
            _ => inferred(entry.value, depth + 1).map_err(|error| error.with("field", name))?,
        };
        if let Some(field_type) = field_type {
            fields.push(Arc::new(NestedField::optional(0, name, field_type)));
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
