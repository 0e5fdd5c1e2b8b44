//! Defaults of fields in schemas that are JSON.

use serde_json::Value;

use crate::wire::{SourceKind, SourceSchema};

/// Returns a default as [`SourceSchema::default`] has it; `None` where it is none of a scalar other
/// than bytes.
pub(super) fn default_text(default: &Value, schema: &SourceSchema) -> Option<String> {
    use SourceKind::{Boolean, Float32, Float64, Int8, Int16, Int32, Int64, String};
    match (schema.kind(), default) {
        (Boolean, Value::Bool(value)) => Some(value.to_string()),
        (Int8 | Int16 | Int32 | Int64, Value::Number(value)) => {
            value.as_i64().map(|value| value.to_string())
        }
        (Float32 | Float64, Value::Number(value)) => Some(value.to_string()),
        (String, Value::String(text)) => Some(text.clone()),
        _ => None,
    }
}
