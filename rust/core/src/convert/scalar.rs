//! Each column type from each kind of value: exactly, or not at all.
//!
//! `schema::contract` says which is which; the tests compare it with this module cell by cell.
//!
//! A bare number is never a date, time or timestamp (the Apache sink takes milliseconds, or days):
//! a wrong unit would pass unseen. Timestamps without a zone are UTC, and a point in time lands in
//! a `timestamp` column as its UTC clock reading.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::decimal::{self, Decimal};
use super::geometry;
use super::json;
use super::misfit::Reason;
use super::number;
use super::parts;
use super::temporal;
use super::value::{Value, time_of_day};
use crate::wire::Cell;

/// Returns the value of a `boolean` column.
pub fn to_bool(value: Value<'_>) -> Result<bool, Reason> {
    match value {
        Value::Bool(value) => Ok(value),
        Value::Text(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::Text(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        Value::Text(_) => Err(Reason::Malformed),
        _ => Err(Reason::NotConvertible),
    }
}

/// Returns the value of a `long` column.
pub fn to_i64(value: Value<'_>) -> Result<i64, Reason> {
    match value {
        Value::Int(value) => Ok(value),
        Value::Float(value) => number::f64_to_i64(f64::from(value)),
        Value::Double(value) => number::f64_to_i64(value),
        Value::Text(text) => number::parse_i64(text),
        Value::Decimal(value) | Value::Number(value) => value.to_i64(),
        Value::Date { days } => Ok(i64::from(days)),
        Value::Time { raw, .. } | Value::Timestamp { raw, .. } => raw,
        Value::WideDecimal { .. } => Err(Reason::OutOfRange),
        _ => Err(Reason::NotConvertible),
    }
}

/// Returns the value of an `int` column.
pub fn to_i32(value: Value<'_>) -> Result<i32, Reason> {
    number::i64_to_i32(to_i64(value)?)
}

/// Returns the value of a `double` column.
pub fn to_f64(value: Value<'_>) -> Result<f64, Reason> {
    match value {
        Value::Int(value) => number::i64_to_f64(value),
        Value::Float(value) => Ok(f64::from(value)),
        Value::Double(value) => Ok(value),
        Value::Text(text) => number::parse_f64(text),
        Value::Decimal(value) => number::decimal_to_f64(value),
        Value::Number(value) => number::nearest_f64(value),
        // A double has no more than 17 digits that count.
        Value::WideDecimal { .. } => Err(Reason::PrecisionLoss),
        _ => Err(Reason::NotConvertible),
    }
}

/// Returns the value of a `float` column.
pub fn to_f32(value: Value<'_>) -> Result<f32, Reason> {
    match value {
        Value::Int(value) => number::i64_to_f32(value),
        Value::Float(value) => Ok(value),
        Value::Double(value) => number::f64_to_f32(value),
        Value::Text(text) => number::parse_f32(text),
        Value::Decimal(value) => number::decimal_to_f32(value),
        Value::Number(value) => number::f64_to_f32(number::nearest_f64(value)?),
        Value::WideDecimal { .. } => Err(Reason::PrecisionLoss),
        _ => Err(Reason::NotConvertible),
    }
}

/// Returns the unscaled value of a `decimal(precision, scale)` column.
pub fn to_decimal(value: Value<'_>, precision: u32, scale: u32) -> Result<i128, Reason> {
    if let Value::Double(value) = value
        && let Some(unscaled) = number::f64_at_scale(value, scale)
        && let Ok(target) = i32::try_from(scale)
    {
        let unscaled = i128::from(unscaled);
        return Decimal {
            unscaled,
            scale: target,
        }
        .fit(precision, scale);
    }
    let decimal = match value {
        Value::Int(value) => Decimal {
            unscaled: i128::from(value),
            scale: 0,
        },
        Value::Float(value) => number::f32_to_decimal(value)?,
        Value::Double(value) => number::f64_to_decimal(value)?,
        Value::Text(text) => Decimal::parse(text)?,
        Value::Decimal(value) | Value::Number(value) => value,
        Value::WideDecimal { .. } => return Err(Reason::OutOfRange),
        _ => return Err(Reason::NotConvertible),
    };
    decimal.fit(precision, scale)
}

/// Tells why a value that is neither text nor a date or time is none.
fn not_temporal(value: Value<'_>) -> Reason {
    match value {
        Value::Int(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Decimal(_)
        | Value::Number(_)
        | Value::WideDecimal { .. } => Reason::UnitUnknown,
        _ => Reason::NotConvertible,
    }
}

/// Returns the days of a `date` column.
pub fn to_date(value: Value<'_>) -> Result<i32, Reason> {
    match value {
        Value::Date { days } => Ok(days),
        Value::Text(text) => temporal::parse_date(text),
        Value::Parts(record) => temporal::date_of(parts::timestamp(&record)?),
        Value::Timestamp {
            nanos, may_be_date, ..
        } => {
            if may_be_date {
                temporal::day_of(nanos)
            } else {
                temporal::date_of(nanos)
            }
        }
        _ => Err(not_temporal(value)),
    }
}

/// Returns the microseconds of a `time` column.
pub fn to_time(value: Value<'_>) -> Result<i64, Reason> {
    let nanos = match value {
        Value::Time { nanos, .. } => time_of_day(nanos)?,
        Value::Text(text) => temporal::parse_time(text)?,
        Value::Parts(record) => parts::time(&record)?,
        _ => return Err(not_temporal(value)),
    };
    temporal::exact_units(i128::from(nanos), temporal::NANOS_PER_MICRO)
}

/// Returns a timestamp column's value in units of `unit_nanos`.
pub fn to_timestamp(value: Value<'_>, unit_nanos: i64) -> Result<i64, Reason> {
    let nanos = match value {
        Value::Timestamp { nanos, .. } => nanos,
        Value::Date { days } => i128::from(days) * i128::from(temporal::NANOS_PER_DAY),
        Value::Text(text) => temporal::parse_timestamp(text)?,
        Value::Parts(record) => parts::timestamp(&record)?,
        _ => return Err(not_temporal(value)),
    };
    temporal::exact_units(nanos, unit_nanos)
}

/// Returns the bytes of a `uuid` column.
pub fn to_uuid(value: Value<'_>) -> Result<[u8; 16], Reason> {
    match value {
        Value::Bytes(bytes) | Value::Uuid(bytes) => {
            bytes.try_into().map_err(|_| Reason::WrongLength)
        }
        // The parser also takes braces, URNs and bare digits; only the form of RFC 9562 is meant.
        Value::Text(text) if text.len() == 36 => uuid::Uuid::try_parse(text)
            .map(uuid::Uuid::into_bytes)
            .map_err(|_| Reason::Malformed),
        Value::Text(_) => Err(Reason::Malformed),
        _ => Err(Reason::NotConvertible),
    }
}

/// Appends the bytes of a `binary` column. Text with a schema is refused: its encoding is not
/// known. Text without one is what JSON has for bytes, which Connect writes as base64; only that is
/// taken, with its padding.
pub fn write_bytes(value: Value<'_>, out: &mut Vec<u8>) -> Result<(), Reason> {
    match value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::BareText(text) => BASE64
            .decode_vec(text, out)
            .map_err(|_| Reason::Malformed)?,
        Value::Geometry(record) => geometry::write_wkb(&record, out)?,
        _ => return Err(Reason::NotConvertible),
    }
    Ok(())
}

/// Appends the text of a `string` column.
pub fn write_text(value: Value<'_>, out: &mut String) -> Result<(), Reason> {
    match value {
        Value::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::Float(value) => number::write_f32(value, out),
        Value::Double(value) => number::write_f64(value, out),
        Value::Text(text) | Value::BareText(text) => out.push_str(text),
        Value::Bytes(bytes) => BASE64.encode_string(bytes, out),
        Value::Uuid(bytes) => write_uuid(bytes, out)?,
        Value::Decimal(value) | Value::Number(value) => value.write_plain(out),
        Value::WideDecimal { unscaled, scale } => decimal::write_wide(unscaled, scale, out)?,
        Value::Date { days } => temporal::write_date(days, out),
        Value::Time { nanos, .. } => temporal::write_time(time_of_day(nanos)?, out),
        Value::Timestamp { nanos, zoned, .. } => temporal::write_timestamp(nanos, zoned, out)?,
        Value::Nested(cell) => json::write(cell, None, out, 1)?,
        Value::Geometry(record) | Value::Parts(record) => {
            json::write(Cell::Struct(record), None, out, 1)?;
        }
    }
    Ok(())
}

fn write_uuid(bytes: &[u8], out: &mut String) -> Result<(), Reason> {
    let uuid = uuid::Uuid::from_slice(bytes).map_err(|_| Reason::WrongLength)?;
    let mut buffer = uuid::Uuid::encode_buffer();
    out.push_str(uuid.hyphenated().encode_lower(&mut buffer));
    Ok(())
}
