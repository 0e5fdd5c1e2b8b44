//! Any Connect schema and value: what is read back from a new table is what went in.
//!
//! What is expected is worked out here from the schema's definition, with `chrono` as a second
//! calendar, and not with the code under test. `PROPTEST_CASES=1000000` runs that many cases.

use std::cell::Cell as Counter;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};
use proptest::prelude::*;
use proptest::strategy::Union;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::schema::{CreateOptions, table_schema};

const DAY_MS: i64 = 86_400_000;
/// 0001-01-01 and 9999-12-31 in seconds: the years that texts of sources have.
const SECONDS: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;

fn scalar(kind: SourceKind) -> SourceSchema {
    SourceSchema::scalar(kind)
}

fn debezium(kind: SourceKind, name: &str) -> SourceSchema {
    scalar(kind).named(&format!("io.debezium.{name}"))
}

fn any_leaf() -> impl Strategy<Value = SourceSchema> {
    use SourceKind::{Boolean, Bytes, Float32, Float64, Int8, Int16, Int32, Int64, String};
    let plain = [
        Boolean, Bytes, Float32, Float64, Int8, Int16, Int32, Int64, String,
    ];
    let mut known: Vec<SourceSchema> = plain.into_iter().map(scalar).collect();
    for logical in [LogicalType::Date, LogicalType::Time, LogicalType::Timestamp] {
        known.push(SourceSchema::logical_type(logical));
    }
    for (kind, name) in [
        (Int32, "time.Date"),
        (Int32, "time.Time"),
        (Int64, "time.MicroTime"),
        (Int64, "time.NanoTime"),
        (Int64, "time.Timestamp"),
        (Int64, "time.MicroTimestamp"),
        (Int64, "time.NanoTimestamp"),
        (String, "time.ZonedTimestamp"),
        (String, "time.IsoDate"),
        (String, "time.IsoTime"),
        (String, "time.IsoTimestamp"),
        (String, "data.Uuid"),
        (String, "data.Json"),
        (Bytes, "data.Bits"),
        (Int32, "time.Year"),
    ] {
        known.push(debezium(kind, name));
    }
    let scaled = SourceSchema::structure([("scale", scalar(Int32)), ("value", scalar(Bytes))]);
    known.push(scaled.named("io.debezium.data.VariableScaleDecimal"));
    let decimal = (-4..45_i32, prop::option::of(1..45_u32)).prop_map(|(scale, precision)| {
        let schema = SourceSchema::logical_type(LogicalType::Decimal { scale });
        match precision {
            Some(digits) => schema.with_parameter("connect.decimal.precision", &digits.to_string()),
            None => schema,
        }
    });
    prop_oneof![8 => prop::sample::select(known), 1 => decimal]
}

fn any_schema() -> impl Strategy<Value = SourceSchema> {
    let maybe = |schema: BoxedStrategy<SourceSchema>| {
        (schema, any::<bool>()).prop_map(|(schema, optional)| match optional {
            true => schema.optional(),
            false => schema,
        })
    };
    let leaf = maybe(any_leaf().boxed());
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let key = prop::sample::select(vec![
            scalar(SourceKind::String),
            scalar(SourceKind::Int32),
            scalar(SourceKind::Boolean),
        ]);
        let fields = prop::collection::vec(inner.clone(), 0..4);
        let nested = prop_oneof![
            inner.clone().prop_map(SourceSchema::array),
            (key, inner).prop_map(|(key, value)| SourceSchema::map(key, value)),
            fields.prop_map(|fields| SourceSchema::structure(
                ["a", "b", "c"].into_iter().zip(fields)
            )),
        ];
        (nested, any::<bool>()).prop_map(|(schema, optional)| match optional {
            true => schema.optional(),
            false => schema,
        })
    })
}

/// Returns any value of `schema`; mostly one that its column can hold.
fn value_of(schema: &SourceSchema) -> BoxedStrategy<Value> {
    let value = present_value_of(schema);
    match schema.optional {
        true => prop_oneof![1 => Just(Value::Null), 6 => value].boxed(),
        false => value,
    }
}

pub(super) fn present_value_of(schema: &SourceSchema) -> BoxedStrategy<Value> {
    if let Some(logical) = schema.logical() {
        return logical_value(schema, logical);
    }
    let name = schema.name.as_deref().unwrap_or_default();
    let debezium = name.strip_prefix("io.debezium.").and_then(debezium_value);
    if let Some(value) = debezium {
        return value;
    }
    match schema.kind() {
        SourceKind::Boolean => any::<bool>().prop_map(Value::Bool).boxed(),
        SourceKind::Int8 => any::<i8>().prop_map(Value::Int8).boxed(),
        SourceKind::Int16 => any::<i16>().prop_map(Value::Int16).boxed(),
        SourceKind::Int32 => any::<i32>().prop_map(Value::Int32).boxed(),
        SourceKind::Int64 => any::<i64>().prop_map(Value::Int64).boxed(),
        SourceKind::Float32 => any::<u32>()
            .prop_map(|bits| Value::Float32(f32::from_bits(bits)))
            .boxed(),
        SourceKind::Float64 => any::<u64>()
            .prop_map(|bits| Value::Float64(f64::from_bits(bits)))
            .boxed(),
        SourceKind::String => ".{0,12}".prop_map(Value::String).boxed(),
        SourceKind::Bytes => prop::collection::vec(any::<u8>(), 0..12)
            .prop_map(Value::Bytes)
            .boxed(),
        SourceKind::Array => {
            let items = prop::collection::vec(value_of(schema.value().unwrap()), 0..4);
            items.prop_map(Value::Array).boxed()
        }
        SourceKind::Map => {
            let entry = (
                value_of(schema.key().unwrap()),
                value_of(schema.value().unwrap()),
            );
            let entries = prop::collection::vec(entry, 0..4);
            entries.prop_map(Value::Map).boxed()
        }
        SourceKind::Struct => {
            let fields = schema.fields().iter();
            let fields: Vec<_> = fields.map(|field| value_of(&field.schema)).collect();
            fields.prop_map(Value::Struct).boxed()
        }
    }
}

fn logical_value(schema: &SourceSchema, logical: LogicalType) -> BoxedStrategy<Value> {
    match logical {
        LogicalType::Date => any::<i32>().prop_map(Value::Date).boxed(),
        LogicalType::Time => prop_oneof![
            40 => 0..86_400_000_i32,
            1 => any::<i32>(),
        ]
        .prop_map(Value::Time)
        .boxed(),
        LogicalType::Timestamp => prop_oneof![
            40 => any::<i64>().prop_map(|ms| ms / 1_000),
            1 => any::<i64>(),
        ]
        .prop_map(Value::Timestamp)
        .boxed(),
        LogicalType::Decimal { scale } => {
            let digits = precision_of(schema).unwrap_or(38).min(38);
            let bound = 10_i128.pow(digits);
            prop_oneof![40 => -(bound - 1)..bound, 1 => any::<i128>()]
                .prop_map(move |unscaled| Value::Decimal(unscaled, scale))
                .boxed()
        }
    }
}

fn debezium_value(name: &str) -> Option<BoxedStrategy<Value>> {
    let often = |often: BoxedStrategy<i64>| {
        Union::new_weighted(vec![(40, often), (1, any::<i64>().boxed())])
    };
    let at = || (SECONDS, 0..1_000_000_u32);
    Some(match name {
        "time.Date" | "time.Year" => any::<i32>().prop_map(Value::Int32).boxed(),
        "time.Time" => prop_oneof![40 => 0..86_400_000_i32, 1 => any::<i32>()]
            .prop_map(Value::Int32)
            .boxed(),
        "time.MicroTime" => often((0..DAY_MS * 1_000).boxed())
            .prop_map(Value::Int64)
            .boxed(),
        "time.NanoTime" => often(
            (0..DAY_MS * 1_000)
                .prop_map(|micros| micros * 1_000)
                .boxed(),
        )
        .prop_map(Value::Int64)
        .boxed(),
        "time.Timestamp" => often(any::<i64>().prop_map(|ms| ms / 1_000).boxed())
            .prop_map(Value::Int64)
            .boxed(),
        "time.MicroTimestamp" => any::<i64>().prop_map(Value::Int64).boxed(),
        "time.NanoTimestamp" => often(any::<i64>().prop_map(|nanos| nanos / 1_000 * 1_000).boxed())
            .prop_map(Value::Int64)
            .boxed(),
        "time.ZonedTimestamp" => (at(), -14..15_i64)
            .prop_map(|((seconds, micros), hours)| {
                let offset = format!("{}{:02}:00", if hours < 0 { '-' } else { '+' }, hours.abs());
                let local = DateTime::from_timestamp(seconds, micros * 1_000).unwrap();
                Value::String(format!("{}{offset}", local.format("%Y-%m-%dT%H:%M:%S%.6f")))
            })
            .boxed(),
        "time.IsoDate" => at()
            .prop_map(|(seconds, _)| {
                let at = DateTime::from_timestamp(seconds, 0).unwrap();
                Value::String(at.format("%Y-%m-%dZ").to_string())
            })
            .boxed(),
        "time.IsoTime" => at()
            .prop_map(|(seconds, micros)| {
                let at = DateTime::from_timestamp(seconds, micros * 1_000).unwrap();
                Value::String(at.format("%H:%M:%S%.6f").to_string())
            })
            .boxed(),
        "time.IsoTimestamp" => at()
            .prop_map(|(seconds, micros)| {
                let at = DateTime::from_timestamp(seconds, micros * 1_000).unwrap();
                Value::String(at.format("%Y-%m-%dT%H:%M:%S%.6f").to_string())
            })
            .boxed(),
        "data.Uuid" => any::<u128>()
            .prop_map(|bits| Value::String(uuid::Uuid::from_u128(bits).to_string()))
            .boxed(),
        "data.VariableScaleDecimal" => (any::<i128>(), -30..60_i32)
            .prop_map(|(unscaled, scale)| {
                let bytes = unscaled.to_be_bytes().to_vec();
                Value::Struct(vec![Value::Int32(scale), Value::Bytes(bytes)])
            })
            .boxed(),
        _ => return None,
    })
}

fn precision_of(schema: &SourceSchema) -> Option<u32> {
    let digits = schema.parameters.get("connect.decimal.precision")?;
    Some(digits.parse().unwrap())
}

/// Returns what a new column for `schema` has to show for `value`, or the code it is refused with.
fn expected(
    schema: &SourceSchema,
    value: &Value,
    nanoseconds: bool,
) -> Result<String, &'static str> {
    if *value == Value::Null {
        return Ok("null".to_owned());
    }
    if let Some(LogicalType::Decimal { scale }) = schema.logical() {
        return expected_decimal(schema, value, scale);
    }
    let name = schema.name.as_deref().unwrap_or_default();
    if let Some(name) = name.strip_prefix("io.debezium.") {
        return expected_debezium(name, value, nanoseconds);
    }
    Ok(match (schema.kind(), value) {
        (_, Value::Bool(value)) => value.to_string(),
        (_, Value::Int8(value)) => value.to_string(),
        (_, Value::Int16(value)) => value.to_string(),
        (_, Value::Int32(value)) => value.to_string(),
        (_, Value::Int64(value)) => value.to_string(),
        (_, Value::Float32(value)) => value.to_string(),
        (_, Value::Float64(value)) => value.to_string(),
        (_, Value::String(value)) => value.clone(),
        (_, Value::Bytes(bytes)) => hex(bytes),
        (_, Value::Date(days)) => days.to_string(),
        (_, Value::Time(ms)) => time_of_day(i128::from(*ms) * 1_000_000)?,
        (_, Value::Timestamp(ms)) => long(i128::from(*ms) * 1_000)?,
        (SourceKind::Array, Value::Array(items)) => {
            let element = schema.value().unwrap();
            format!(
                "[{}]",
                all(
                    items.iter().map(|item| (element.as_ref(), item)),
                    nanoseconds
                )?
            )
        }
        (SourceKind::Map, Value::Map(entries)) => {
            let (key, of) = (schema.key().unwrap(), schema.value().unwrap());
            // In the order in which the converter meets them, so that the first code is the same.
            let mut shown = (Vec::new(), Vec::new());
            for (name, value) in entries {
                shown.0.push(expected(key, name, nanoseconds)?);
                shown.1.push(expected(of, value, nanoseconds)?);
            }
            format!("{{{}:{}}}", shown.0.join(","), shown.1.join(","))
        }
        (SourceKind::Struct, Value::Struct(fields)) if fields.is_empty() => "{}".to_owned(),
        (SourceKind::Struct, Value::Struct(fields)) => {
            let schemas = schema.fields().iter().map(|field| field.schema.as_ref());
            format!("({})", all(schemas.zip(fields), nanoseconds)?)
        }
        (kind, other) => panic!("{other:?} is no {kind:?}"),
    })
}

fn all<'v>(
    items: impl Iterator<Item = (&'v SourceSchema, &'v Value)>,
    nanoseconds: bool,
) -> Result<String, &'static str> {
    let shown = items.map(|(schema, value)| expected(schema, value, nanoseconds));
    Ok(shown.collect::<Result<Vec<_>, _>>()?.join(","))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn long(number: i128) -> Result<String, &'static str> {
    i64::try_from(number).map_or(Err(RANGE), |number| Ok(number.to_string()))
}

fn time_of_day(nanos: i128) -> Result<String, &'static str> {
    if !(0..i128::from(DAY_MS) * 1_000_000).contains(&nanos) {
        return Err(RANGE);
    }
    micros(nanos)
}

fn micros(nanos: i128) -> Result<String, &'static str> {
    match nanos % 1_000 {
        0 => long(nanos / 1_000),
        _ => Err(LOSS),
    }
}

fn expected_decimal(
    schema: &SourceSchema,
    value: &Value,
    scale: i32,
) -> Result<String, &'static str> {
    let Value::Decimal(unscaled, _) = value else {
        panic!("{value:?} is no decimal");
    };
    let zeros = u32::try_from(-scale).unwrap_or(0);
    let fraction = u32::try_from(scale).unwrap_or(0);
    let digits = match precision_of(schema) {
        Some(digits) => (digits + zeros).max(fraction),
        None => 38.max(fraction),
    };
    let shown = plain(*unscaled, scale);
    if digits > 38 {
        return Ok(shown);
    }
    let count = match unscaled.unsigned_abs() {
        0 => 0,
        _ => unscaled.unsigned_abs().to_string().len() + zeros as usize,
    };
    match count <= digits as usize {
        true => Ok(shown),
        false => Err(RANGE),
    }
}

/// All digits of a number, by text alone.
fn plain(unscaled: i128, scale: i32) -> String {
    let digits = unscaled.unsigned_abs().to_string();
    let sign = if unscaled < 0 { "-" } else { "" };
    let Ok(places @ 1..) = usize::try_from(scale) else {
        let zeros = if unscaled == 0 {
            0
        } else {
            scale.unsigned_abs() as usize
        };
        return format!("{sign}{digits}{}", "0".repeat(zeros));
    };
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{sign}{whole}.{fraction}")
}

fn expected_debezium(name: &str, value: &Value, nanoseconds: bool) -> Result<String, &'static str> {
    let raw = match value {
        Value::Int32(raw) => i128::from(*raw),
        Value::Int64(raw) => i128::from(*raw),
        _ => 0,
    };
    let text = match value {
        Value::String(text) => text.as_str(),
        _ => "",
    };
    Ok(match (name, value) {
        ("time.Time", _) => time_of_day(raw * 1_000_000)?,
        ("time.MicroTime", _) => time_of_day(raw * 1_000)?,
        ("time.NanoTime", _) => time_of_day(raw)?,
        ("time.Timestamp", _) => long(raw * 1_000)?,
        ("time.NanoTimestamp", _) if nanoseconds => raw.to_string(),
        ("time.NanoTimestamp", _) => micros(raw)?,
        ("time.ZonedTimestamp", _) => {
            let at = DateTime::parse_from_rfc3339(text).unwrap();
            at.timestamp_micros().to_string()
        }
        ("time.IsoTimestamp", _) => {
            let at = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f").unwrap();
            at.and_utc().timestamp_micros().to_string()
        }
        ("time.IsoDate", _) => {
            let date = NaiveDate::parse_from_str(text, "%Y-%m-%dZ").unwrap();
            date.to_epoch_days().to_string()
        }
        ("time.IsoTime", _) => {
            let time = NaiveTime::parse_from_str(text, "%H:%M:%S%.f").unwrap();
            (time - NaiveTime::MIN)
                .num_microseconds()
                .unwrap()
                .to_string()
        }
        ("data.Uuid", _) => text.replace('-', ""),
        ("data.VariableScaleDecimal", Value::Struct(fields)) => {
            let [Value::Int32(scale), Value::Bytes(bytes)] = fields.as_slice() else {
                panic!("{fields:?} is no decimal");
            };
            let unscaled = i128::from_be_bytes(bytes.as_slice().try_into().unwrap());
            plain(unscaled, *scale)
        }
        (_, Value::Bytes(bytes)) => hex(bytes),
        (_, Value::String(text)) => text.clone(),
        _ => raw.to_string(),
    })
}

/// Makes a table for records of `schema`, writes `values` and compares what is in it; returns how
/// many landed.
fn check(
    schema: &SourceSchema,
    values: &[Value],
    nanoseconds: bool,
) -> Result<usize, TestCaseError> {
    let record = SourceSchema::structure([("v", schema.clone())]);
    let rows = values
        .iter()
        .map(|value| Value::Struct(vec![value.clone()]));
    let frame = structs(1, record, rows);
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let options = CreateOptions {
        is_v3: nanoseconds,
        ..CreateOptions::default()
    };
    let table = Arc::new(table_schema(decoded.value(0), &options).unwrap());
    let (batch, refused) = convert(&table, &ConvertOptions::default(), &[frame]);
    let mut codes = refused.iter();
    let mut row = 0;
    for value in values {
        match expected(schema, value, nanoseconds) {
            Ok(shown) => {
                prop_assert!(
                    row < batch.num_rows(),
                    "{:?} was refused: {:?}",
                    value,
                    refused
                );
                prop_assert_eq!(show(batch.column(0), row), shown);
                row += 1;
            }
            Err(code) => {
                prop_assert_eq!(codes.next().map(|(_, error)| error.code()), Some(code));
            }
        }
    }
    prop_assert_eq!(row, batch.num_rows());
    prop_assert!(codes.next().is_none());
    Ok(row)
}

// Promise: any Connect schema and value is read back from a new table as it was, or refused where
// docs/types.md says so
#[test]
fn any_value_of_any_schema_is_read_back() {
    let rows = any_schema().prop_flat_map(|schema| {
        let values = prop::collection::vec(value_of(&schema), 1..5);
        (Just(schema), values, any::<bool>())
    });
    let (total, landed) = (Counter::new(0_usize), Counter::new(0_usize));
    let mut runner = TestRunner::new(Config::default());
    let outcome = runner.run(&rows, |(schema, values, nanoseconds)| {
        let count = check(&schema, &values, nanoseconds)?;
        total.set(total.get() + values.len());
        landed.set(landed.get() + count);
        Ok(())
    });
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    assert!(
        landed.get() * 10 >= total.get() * 9,
        "{} of {} records landed",
        landed.get(),
        total.get()
    );
}
