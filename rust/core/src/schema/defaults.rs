//! Connect's default of a field as the default of a new column, which format version 3 has: rows
//! from before read as it, and records that do not have the field get it. A field that is there and
//! null stays null.
//!
//! Only what metadata can say as JSON becomes a default: finite numbers, years of four digits, no
//! nanoseconds. Any other default is left out, and so is that of bytes, lists, maps and structs.

use iceberg::spec::{Literal, NestedField, PrimitiveLiteral, PrimitiveType, Type};
use uuid::Uuid;

use crate::convert::decimal::Decimal;
use crate::convert::misfit::Reason;
use crate::convert::scalar;
use crate::convert::temporal::{NANOS_PER_DAY, NANOS_PER_MICRO};
use crate::convert::value::Value;
use crate::schema::semantic::Semantic;
use crate::wire::{Cell, LogicalType, SourceKind, SourceSchema};

/// 0001-01-01 and 9999-12-31, in days since the epoch.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;
const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = NANOS_PER_DAY / NANOS_PER_MICRO;

/// Gives `field` the default of its source, when the column type holds it exactly.
pub(super) fn with_default(field: NestedField, source: &SourceSchema) -> NestedField {
    let literal = match field.field_type.as_ref() {
        Type::Primitive(primitive) => default_of(primitive, source),
        _ => None,
    };
    match literal.filter(|literal| is_stored(literal, &field.field_type)) {
        Some(literal) => field
            .with_initial_default(literal.clone())
            .with_write_default(literal),
        None => field,
    }
}

/// Makes the defaults of `field`, whose type has changed, defaults of that type; one that the type
/// does not have is left out.
pub(super) fn follow(field: &mut NestedField) {
    for default in [&mut field.initial_default, &mut field.write_default] {
        *default = default
            .take()
            .and_then(|literal| widened(literal, &field.field_type))
            .filter(|literal| is_stored(literal, &field.field_type));
    }
}

/// Tells whether metadata can hold `literal` as a default of a column of this type: whether it
/// comes back from its JSON as it was.
fn is_stored(literal: &Literal, column: &Type) -> bool {
    let is_sayable = match (literal, column) {
        (Literal::Primitive(PrimitiveLiteral::Int(days)), Type::Primitive(PrimitiveType::Date)) => {
            DAYS.contains(&i64::from(*days))
        }
        (
            Literal::Primitive(PrimitiveLiteral::Long(micros)),
            Type::Primitive(PrimitiveType::Timestamp | PrimitiveType::Timestamptz),
        ) => {
            // Crate `iceberg` has no JSON for fractions of a second before the epoch.
            let is_whole = *micros >= 0 || micros % MICROS_PER_SECOND == 0;
            is_whole && DAYS.contains(&micros.div_euclid(MICROS_PER_DAY))
        }
        _ => true,
    };
    let json = || literal.clone().try_into_json(column);
    let again = || Literal::try_from_json(json().ok()?, column).ok()?;
    is_sayable && again().as_ref() == Some(literal)
}

fn widened(literal: Literal, to: &Type) -> Option<Literal> {
    let Type::Primitive(to) = to else {
        return None;
    };
    let Literal::Primitive(value) = &literal else {
        return None;
    };
    match (value, to) {
        (PrimitiveLiteral::Int(value), PrimitiveType::Long) => {
            Some(Literal::long(i64::from(*value)))
        }
        (PrimitiveLiteral::Int(value), PrimitiveType::Double) => {
            Some(Literal::double(f64::from(*value)))
        }
        (PrimitiveLiteral::Int(days), PrimitiveType::Timestamp) => {
            Some(Literal::timestamp(i64::from(*days) * MICROS_PER_DAY))
        }
        (PrimitiveLiteral::Float(value), PrimitiveType::Double) => {
            Some(Literal::double(f64::from(value.0)))
        }
        // The scale stays what it was.
        (PrimitiveLiteral::Int128(_), PrimitiveType::Decimal { .. }) => Some(literal),
        _ => None,
    }
}

fn default_of(column: &PrimitiveType, source: &SourceSchema) -> Option<Literal> {
    let text = source.default.as_deref()?;
    let cell = match (source.logical(), source.kind()) {
        (Some(LogicalType::Decimal { .. }), _) => {
            return literal(column, Value::Decimal(Decimal::parse(text).ok()?)).ok()?;
        }
        (Some(LogicalType::Date), _) => Cell::Date {
            days: text.parse().ok()?,
        },
        (Some(LogicalType::Time), _) => Cell::Time {
            ms: text.parse().ok()?,
        },
        (Some(LogicalType::Timestamp), _) => Cell::Timestamp {
            ms: text.parse().ok()?,
        },
        (None, SourceKind::Boolean) => Cell::Bool(text.parse().ok()?),
        (None, SourceKind::Int8 | SourceKind::Int16 | SourceKind::Int32) => {
            Cell::Int32(text.parse().ok()?)
        }
        (None, SourceKind::Int64) => Cell::Int64(text.parse().ok()?),
        (None, SourceKind::Float32) => Cell::Float32(text.parse().ok()?),
        (None, SourceKind::Float64) => Cell::Float64(text.parse().ok()?),
        (None, SourceKind::String) => Cell::String(text),
        _ => return None,
    };
    literal(column, Value::read(cell, Semantic::of(source)).ok()??).ok()?
}

/// Returns `value` as a column of this type has it; `None` when its type has no defaults here.
fn literal(column: &PrimitiveType, value: Value<'_>) -> Result<Option<Literal>, Reason> {
    use PrimitiveType as P;
    Ok(Some(match column {
        P::Boolean => Literal::bool(scalar::to_bool(value)?),
        P::Int => Literal::int(scalar::to_i32(value)?),
        P::Long => Literal::long(scalar::to_i64(value)?),
        P::Float => Literal::float(scalar::to_f32(value)?),
        P::Double => Literal::double(scalar::to_f64(value)?),
        P::Decimal { precision, scale } => {
            Literal::decimal(scalar::to_decimal(value, *precision, *scale)?)
        }
        P::Date => Literal::date(scalar::to_date(value)?),
        P::Time => Literal::time(scalar::to_time(value)?),
        P::Timestamp => Literal::timestamp(scalar::to_timestamp(value, NANOS_PER_MICRO)?),
        P::Timestamptz => Literal::timestamptz(scalar::to_timestamp(value, NANOS_PER_MICRO)?),
        P::String => {
            let mut text = String::new();
            scalar::write_text(value, &mut text)?;
            Literal::string(text)
        }
        P::Uuid => Literal::uuid(Uuid::from_bytes(scalar::to_uuid(value)?)),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
#[path = "defaults_tests.rs"]
mod tests;
