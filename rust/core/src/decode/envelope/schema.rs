//! Schemas as JsonConverter writes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::decode::defaults::default_text;
use crate::decode::refused::Refused;
use crate::limits::NESTING_MAX;
use crate::wire::{SourceField, SourceKind, SourceSchema};

/// Reads the text of a schema.
pub(super) fn read(text: &str) -> Result<Arc<SourceSchema>, Refused> {
    let json: Value = serde_json::from_str(text).map_err(|_| invalid("is no JSON"))?;
    let schema = node(&json, 1)?;
    // Through the canonical bytes: they know the limits and the logical types.
    let schema = SourceSchema::parse(&schema.to_bytes());
    schema.map(Arc::new).map_err(|error| {
        let message = error.message().to_owned();
        Refused::new(error.code(), message)
    })
}

#[cold]
fn invalid(what: &str) -> Refused {
    let message = format!("the schema of the record {what}; correct the producer");
    Refused::new("JSON_SCHEMA_INVALID", message)
}

fn node(json: &Value, depth: usize) -> Result<SourceSchema, Refused> {
    if depth > NESTING_MAX {
        let message = format!("a schema nests deeper than {NESTING_MAX} levels");
        return Err(Refused::new("SCHEMA_TOO_DEEP", message));
    }
    let kind = json.get("type").and_then(Value::as_str);
    let scalar = |kind| Ok(SourceSchema::scalar(kind));
    let child = |name: &str, missing: &str| match json.get(name) {
        None | Some(Value::Null) => Err(invalid(missing)),
        Some(child) => node(child, depth + 1),
    };
    let mut schema = match kind.ok_or_else(|| invalid("has no `type`"))? {
        "boolean" => scalar(SourceKind::Boolean),
        "int8" => scalar(SourceKind::Int8),
        "int16" => scalar(SourceKind::Int16),
        "int32" => scalar(SourceKind::Int32),
        "int64" => scalar(SourceKind::Int64),
        "float" => scalar(SourceKind::Float32),
        "double" => scalar(SourceKind::Float64),
        "bytes" => scalar(SourceKind::Bytes),
        "string" => scalar(SourceKind::String),
        "array" => Ok(SourceSchema::array(child(
            "items",
            "has an array without `items`",
        )?)),
        "map" => Ok(SourceSchema::map(
            child("keys", "has a map without `keys`")?,
            child("values", "has a map without `values`")?,
        )),
        "struct" => structure(json, depth),
        _ => Err(invalid("has an unknown `type`")),
    }?;
    schema.optional = json
        .get("optional")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    schema.name = json.get("name").and_then(Value::as_str).map(str::to_owned);
    let version = json.get("version").and_then(Value::as_i64);
    schema.version = version.and_then(|version| i32::try_from(version).ok());
    schema.doc = json.get("doc").and_then(Value::as_str).map(str::to_owned);
    // A null is no default: JsonConverter reads it as if there was none.
    let default = json.get("default").filter(|default| !default.is_null());
    schema.has_default = default.is_some();
    schema.default = default.and_then(|default| default_text(default, &schema));
    for (name, value) in json
        .get("parameters")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let value = value
            .as_str()
            .ok_or_else(|| invalid("has a parameter that is no text"))?;
        schema.parameters.insert(name.clone(), value.to_owned());
    }
    Ok(schema)
}

fn structure(json: &Value, depth: usize) -> Result<SourceSchema, Refused> {
    let fields = json.get("fields").and_then(Value::as_array);
    let mut names = BTreeSet::new();
    let mut list = Vec::new();
    for field in fields.ok_or_else(|| invalid("has a struct whose `fields` are no array"))? {
        let name = field.get("field").and_then(Value::as_str);
        let name = name.ok_or_else(|| invalid("has a field without a name"))?;
        if !names.insert(name) {
            return Err(invalid("has two fields with the same name"));
        }
        list.push(SourceField {
            name: name.to_owned(),
            schema: Arc::new(node(field, depth + 1)?),
        });
    }
    Ok(SourceSchema::structure([]).with_fields(list))
}
