//! Nested values as JSON text, for `string` columns.
//!
//! Compact, in the order of the source. Decimals are numbers with all their digits; bytes are
//! base64, temporal values ISO text; NaN and the infinities, which JSON lacks, are text.

use super::misfit::Reason;
use super::scalar;
use super::value::Value;
use crate::limits::NESTING_MAX;
use crate::schema::semantic::Semantic;
use crate::wire::{Cell, SourceSchema};

/// Appends `cell`, whose schema is `schema` if it has one.
pub fn write(
    cell: Cell<'_>,
    schema: Option<&SourceSchema>,
    out: &mut String,
    depth: usize,
) -> Result<(), Reason> {
    if depth > NESTING_MAX {
        return Err(Reason::TooDeep);
    }
    let semantic = schema.map_or(Semantic::Schemaless, Semantic::of);
    let Some(value) = Value::read(cell, semantic)? else {
        out.push_str("null");
        return Ok(());
    };
    match value {
        Value::Nested(Cell::Array(list)) => {
            out.push('[');
            for (index, element) in list.iter().enumerate() {
                separate(index, out);
                write(element, list.element_schema(), out, depth + 1)?;
            }
            out.push(']');
        }
        Value::Nested(Cell::Map(map)) => {
            let value_schema = map.entry_schemas().map(|(_, value)| value);
            out.push('{');
            for (index, entry) in map.entries().enumerate() {
                separate(index, out);
                write_name(entry.key, out)?;
                write(entry.value, value_schema, out, depth + 1)?;
            }
            out.push('}');
        }
        Value::Nested(Cell::Struct(record)) | Value::Geometry(record) | Value::Parts(record) => {
            out.push('{');
            for (index, field) in record.fields().iter().enumerate() {
                separate(index, out);
                write_string(&field.name, out)?;
                out.push(':');
                write(record.field(index), Some(&field.schema), out, depth + 1)?;
            }
            out.push('}');
        }
        Value::Text(text) | Value::BareText(text) => write_string(text, out)?,
        Value::Float(value) if !value.is_finite() => quote(Value::Float(value), out)?,
        Value::Double(value) if !value.is_finite() => quote(Value::Double(value), out)?,
        Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Decimal(_)
        | Value::Number(_)
        | Value::WideDecimal { .. } => scalar::write_text(value, out)?,
        other => quote(other, out)?,
    }
    Ok(())
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
}

fn write_name(key: Cell<'_>, out: &mut String) -> Result<(), Reason> {
    match Value::read(key, Semantic::Plain)? {
        Some(Value::Text(text)) => write_string(text, out)?,
        Some(Value::Nested(_)) => return Err(Reason::NotConvertible),
        Some(value) => quote(value, out)?,
        None => write_string("null", out)?,
    }
    out.push(':');
    Ok(())
}

/// Appends a value whose text needs no escapes.
fn quote(value: Value<'_>, out: &mut String) -> Result<(), Reason> {
    out.push('"');
    scalar::write_text(value, out)?;
    out.push('"');
    Ok(())
}

fn write_string(text: &str, out: &mut String) -> Result<(), Reason> {
    // Only a writer that fails makes this fail, and memory does not.
    let json = serde_json::to_string(text).map_err(|_| Reason::NotConvertible)?;
    out.push_str(&json);
    Ok(())
}
