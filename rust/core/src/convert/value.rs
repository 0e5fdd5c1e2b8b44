//! One scalar, read with what its schema says it means.

use super::decimal::Decimal;
use super::misfit::Reason;
use super::temporal::{NANOS_PER_DAY, NANOS_PER_MICRO, NANOS_PER_MILLI, NANOS_PER_SECOND};
use crate::schema::semantic::Semantic;
use crate::wire::{Cell, StructCell};

/// A value that is not null, with its unit settled.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// True or false.
    Bool(bool),
    /// An integer that counts nothing in particular.
    Int(i64),
    /// A 32-bit float.
    Float(f32),
    /// A 64-bit float.
    Double(f64),
    /// Text.
    Text(&'a str),
    /// Text without a schema. JSON has no other form for bytes, so it may be base64.
    BareText(&'a str),
    /// Raw bytes.
    Bytes(&'a [u8]),
    /// An exact decimal number.
    Decimal(Decimal),
    /// An exact decimal number that stands for the nearest float where one is wanted.
    Number(Decimal),
    /// A decimal number of more than 128 bits.
    WideDecimal {
        /// Two's complement, big-endian.
        unscaled: &'a [u8],
        /// Digits after the point.
        scale: i32,
    },
    /// A day.
    Date {
        /// Days since the epoch.
        days: i32,
    },
    /// A time of day.
    Time {
        /// Since midnight; the source may send more than a day or less than nothing.
        nanos: i128,
        /// The number as the source sent it; of what is no number there, milliseconds, or why they
        /// are no number.
        raw: Result<i64, Reason>,
    },
    /// A timestamp.
    Timestamp {
        /// Since the epoch.
        nanos: i128,
        /// The number as the source sent it; of what is no number there, milliseconds, or why they
        /// are no number.
        raw: Result<i64, Reason>,
        /// Whether it is a point in time, not the reading of a clock without zone.
        zoned: bool,
        /// Whether it may as well be meant as a date: `java.util.Date` without a schema.
        may_be_date: bool,
    },
    /// The bytes of a UUID.
    Uuid(&'a [u8]),
    /// A list, map or struct.
    Nested(Cell<'a>),
    /// A struct with well-known binary in its field `wkb`.
    Geometry(StructCell<'a>),
    /// A struct of the parts of a date, time or timestamp.
    Parts(StructCell<'a>),
}

impl<'a> Value<'a> {
    /// Reads `cell` as `semantic` says; `None` for null.
    pub fn read(cell: Cell<'a>, semantic: Semantic) -> Result<Option<Self>, Reason> {
        Ok(Some(match cell {
            Cell::Null => return Ok(None),
            Cell::Bool(value) => Value::Bool(value),
            Cell::Int8(value) => Value::Int(i64::from(value)),
            Cell::Int16(value) => Value::Int(i64::from(value)),
            Cell::Int32(value) => integer(i64::from(value), semantic),
            Cell::Int64(value) => integer(value, semantic),
            Cell::Float32(value) => Value::Float(value),
            Cell::Float64(value) => Value::Double(value),
            Cell::String(value) if semantic == Semantic::Schemaless => Value::BareText(value),
            Cell::String(value) => Value::Text(value),
            Cell::Bytes(value) => Value::Bytes(value),
            Cell::Decimal { unscaled, scale } => decimal(unscaled, scale),
            Cell::Number { unscaled, scale } => Value::Number(Decimal {
                unscaled: i128::from(unscaled),
                scale,
            }),
            Cell::Date { days } => Value::Date { days },
            Cell::Time { ms } => time(i64::from(ms), NANOS_PER_MILLI),
            Cell::Timestamp { ms } => Value::Timestamp {
                nanos: i128::from(ms) * i128::from(NANOS_PER_MILLI),
                raw: Ok(ms),
                zoned: true,
                may_be_date: semantic == Semantic::Schemaless,
            },
            Cell::ClockTime { nanos } => Value::Time {
                nanos: i128::from(nanos),
                raw: whole_millis(i128::from(nanos)),
            },
            Cell::Moment {
                seconds,
                nanos,
                zoned,
            } => {
                let nanos = i128::from(seconds) * i128::from(NANOS_PER_SECOND) + i128::from(nanos);
                Value::Timestamp {
                    nanos,
                    raw: whole_millis(nanos),
                    zoned,
                    may_be_date: false,
                }
            }
            Cell::Uuid(bytes) => Value::Uuid(bytes),
            Cell::Struct(record) if semantic == Semantic::VariableScaleDecimal => {
                return variable_scale_decimal(&record);
            }
            Cell::Struct(record) if semantic == Semantic::Geometry => Value::Geometry(record),
            Cell::Struct(record) if semantic == Semantic::TemporalParts => Value::Parts(record),
            Cell::Array(_) | Cell::Map(_) | Cell::Struct(_) => Value::Nested(cell),
        }))
    }
}

fn decimal(unscaled: &[u8], scale: i32) -> Value<'_> {
    match Decimal::from_be_bytes(unscaled, scale) {
        Ok(decimal) => Value::Decimal(decimal),
        Err(_) => Value::WideDecimal { unscaled, scale },
    }
}

fn whole_millis(nanos: i128) -> Result<i64, Reason> {
    let unit = i128::from(NANOS_PER_MILLI);
    match nanos % unit {
        0 => i64::try_from(nanos / unit).map_err(|_| Reason::OutOfRange),
        _ => Err(Reason::PrecisionLoss),
    }
}

fn integer<'a>(raw: i64, semantic: Semantic) -> Value<'a> {
    match semantic {
        Semantic::EpochDay => match i32::try_from(raw) {
            Ok(days) => Value::Date { days },
            Err(_) => Value::Int(raw),
        },
        Semantic::MilliOfDay => time(raw, NANOS_PER_MILLI),
        Semantic::MicroOfDay => time(raw, NANOS_PER_MICRO),
        Semantic::NanoOfDay => time(raw, 1),
        Semantic::EpochMilli => timestamp(raw, NANOS_PER_MILLI, false),
        Semantic::EpochMicro => timestamp(raw, NANOS_PER_MICRO, false),
        Semantic::EpochNano => timestamp(raw, 1, false),
        Semantic::InstantMicro => timestamp(raw, NANOS_PER_MICRO, true),
        Semantic::InstantNano => timestamp(raw, 1, true),
        _ => Value::Int(raw),
    }
}

fn time<'a>(raw: i64, unit_nanos: i64) -> Value<'a> {
    Value::Time {
        nanos: i128::from(raw) * i128::from(unit_nanos),
        raw: Ok(raw),
    }
}

fn timestamp<'a>(raw: i64, unit_nanos: i64, zoned: bool) -> Value<'a> {
    Value::Timestamp {
        nanos: i128::from(raw) * i128::from(unit_nanos),
        raw: Ok(raw),
        zoned,
        may_be_date: false,
    }
}

/// Returns nanoseconds since midnight, if `nanos` is a time of one day.
pub fn time_of_day(nanos: i128) -> Result<i64, Reason> {
    match i64::try_from(nanos) {
        Ok(nanos) if (0..NANOS_PER_DAY).contains(&nanos) => Ok(nanos),
        _ => Err(Reason::OutOfRange),
    }
}

fn variable_scale_decimal<'a>(record: &StructCell<'a>) -> Result<Option<Value<'a>>, Reason> {
    let scale = match record.get("scale") {
        Some(Cell::Int32(scale)) => scale,
        _ => return Err(Reason::NotConvertible),
    };
    match record.get("value") {
        Some(Cell::Bytes(unscaled)) if !unscaled.is_empty() => Ok(Some(decimal(unscaled, scale))),
        _ => Err(Reason::NotConvertible),
    }
}
