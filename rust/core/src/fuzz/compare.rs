//! JSON as we read it beside JSON as `serde_json` reads it.

use serde_json::Value;

use super::Outcome;
use crate::convert::decimal::Decimal;
use crate::wire::Cell;

/// Nesting that `serde_json` reads.
const DEPTH: usize = 100;

/// Compares what became of the bytes of one record.
pub(super) fn check(cell: Cell<'_>, (bytes, error): Outcome<'_>) {
    let Some(bytes) = bytes else { return };
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let theirs = serde_json::from_slice::<Value>(bytes);
    match (error.map(|error| error.code()), theirs) {
        (None, Ok(theirs)) => assert!(is_same(cell, &theirs), "another value"),
        // No bytes are no record; numbers that no double holds are none to `serde_json`.
        (None, Err(error)) => {
            let is_large = error.to_string().starts_with("number out of range");
            assert!(bytes.is_empty() || is_large, "what is no JSON was taken");
        }
        (Some(code), Ok(_)) => assert_ne!(code, "JSON_MALFORMED", "JSON was refused as none"),
        (Some(_), Err(_)) => {}
    }
}

fn is_same(cell: Cell<'_>, theirs: &Value) -> bool {
    same(cell, theirs, 0)
}

fn same(cell: Cell<'_>, theirs: &Value, depth: usize) -> bool {
    if depth > DEPTH {
        return true;
    }
    match (cell, theirs) {
        (Cell::Null, Value::Null) => true,
        (Cell::Bool(ours), Value::Bool(theirs)) => ours == *theirs,
        (Cell::String(ours), Value::String(theirs)) => ours == theirs,
        (Cell::Array(list), Value::Array(items)) => {
            let pairs = list.iter().zip(items);
            list.len() == items.len() && { pairs }.all(|(ours, item)| same(ours, item, depth + 1))
        }
        (Cell::Map(map), Value::Object(fields)) => {
            map.len() == fields.len()
                && map.entries().all(|entry| match entry.key {
                    Cell::String(name) => fields
                        .get(name)
                        .is_some_and(|field| same(entry.value, field, depth + 1)),
                    _ => false,
                })
        }
        (ours, Value::Number(theirs)) => match (ours, theirs.as_i64()) {
            (Cell::Int64(ours), Some(theirs)) => ours == theirs,
            // `-0` is a double to `serde_json`.
            (Cell::Int64(0), None) => theirs.as_f64() == Some(0.0),
            (Cell::Int64(_), None) | (_, Some(_)) => false,
            (ours, None) => match (double(ours), theirs.as_f64()) {
                (Some(ours), Some(theirs)) => is_near(ours, theirs),
                _ => false,
            },
        },
        _ => false,
    }
}

fn double(cell: Cell<'_>) -> Option<f64> {
    match cell {
        Cell::Float64(value) => Some(value),
        Cell::Number { unscaled, scale } => {
            format!("{unscaled}e{}", -i64::from(scale)).parse().ok()
        }
        Cell::Decimal { unscaled, scale } => match Decimal::from_be_bytes(unscaled, scale) {
            Ok(value) => {
                let text = format!("{:?}e{}", value.unscaled, -i64::from(value.scale));
                text.parse().ok()
            }
            // More digits than decimals have: what they are worth is not compared.
            Err(_) => Some(f64::NAN),
        },
        _ => None,
    }
}

/// `serde_json` is a bit or two off the nearest double for long texts.
fn is_near(ours: f64, theirs: f64) -> bool {
    ours.is_nan() || ours == theirs || (ours - theirs).abs() <= theirs.abs() * 1e-15 || {
        // Below the normal doubles a bit is more.
        theirs.abs() < 1e-300 && (ours - theirs).abs() < 1e-310
    }
}
