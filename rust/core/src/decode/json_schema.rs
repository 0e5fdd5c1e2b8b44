//! JSON by a JSON Schema of a registry.
//!
//! What comes is what Confluent's `JsonSchemaConverter` makes with its defaults, but a property that
//! the schema does not require is optional, and an object that has nothing but
//! `additionalProperties` of a type is a map. Values are read by the same code as payloads of
//! Connect's JSON envelope: of another type than the schema says, they are refused.
//!
//! Not here: validation. What a schema says beyond types (lengths, ranges, patterns) is the
//! producer's affair.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::columns::{Budget, ColumnBuilder};
use super::envelope::plan::Plan;
use super::json::lexer::{Lexer, Scratch};
use super::refused::Refused;
use crate::decode::defaults::default_text;
use crate::error::{Result, SinkError};
use crate::limits::{NESTING_MAX, SCHEMA_FIELDS_MAX};
use crate::wire::{SourceField, SourceKind, SourceSchema};

const ENUM: &str = "io.confluent.connect.json.Enum";

/// Decodes JSON of one schema.
#[derive(Debug)]
pub struct JsonSchemaDecoder {
    schema: Arc<SourceSchema>,
    plan: Plan,
    scratch: Scratch,
}

impl JsonSchemaDecoder {
    /// Compiles a schema. `references` are name and text of the schemas that it refers to.
    ///
    /// # Errors
    ///
    /// Of kind `Data`: `SCHEMA_INVALID`, `SCHEMA_TOO_DEEP` (also for a schema that contains itself),
    /// `SCHEMA_TOO_LARGE`, `SCHEMA_TYPE_UNSUPPORTED`.
    pub fn new(text: &str, references: &[(&str, &str)]) -> Result<JsonSchemaDecoder> {
        let mut files = BTreeMap::new();
        for (name, text) in references {
            files.insert((*name).to_owned(), parse(text)?);
        }
        files.insert(String::new(), parse(text)?);
        let mut walk = Walk {
            files: &files,
            open: Vec::new(),
            left: SCHEMA_FIELDS_MAX,
        };
        let root = files
            .get("")
            .ok_or_else(|| SinkError::internal("a schema is lost"))?;
        let schema = walk.typed(root, "", false)?;
        Ok(JsonSchemaDecoder {
            plan: Plan::of(&schema),
            schema: Arc::new(schema),
            scratch: Scratch::default(),
        })
    }

    /// Returns the Connect schema of the values.
    pub fn schema(&self) -> &Arc<SourceSchema> {
        &self.schema
    }

    /// Moves the value that `bytes` are, whole, to `column`. After an error the row is to be
    /// abandoned.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        column: &mut ColumnBuilder,
        budget: &mut Budget,
    ) -> Result<(), Refused> {
        let mut lexer = Lexer::new(bytes)?;
        self.plan
            .decode(&mut lexer, column, budget, &mut self.scratch)?;
        lexer.finish()
    }
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| {
        invalid("the JSON Schema is no JSON")
            .with("line", error.line())
            .with("column", error.column())
    })
}

fn invalid(message: impl Into<String>) -> SinkError {
    SinkError::data("SCHEMA_INVALID", message)
}

fn unsupported(message: impl Into<String>) -> SinkError {
    SinkError::data("SCHEMA_TYPE_UNSUPPORTED", message)
}

/// What the members of an object are.
#[derive(Debug, Default)]
struct Properties<'f> {
    /// By `connect.index`, then by name.
    list: Vec<(Option<i64>, &'f str, &'f Value, &'f str)>,
    required: Vec<&'f str>,
}

struct Walk<'f> {
    files: &'f BTreeMap<String, Value>,
    /// File and path of the references around the schema.
    open: Vec<String>,
    left: usize,
}

impl<'f> Walk<'f> {
    /// Returns the Connect schema of `schema`, which stands in `file`.
    fn typed(&mut self, schema: &'f Value, file: &'f str, optional: bool) -> Result<SourceSchema> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            let message = format!("a JSON Schema has more than {SCHEMA_FIELDS_MAX} parts");
            SinkError::data("SCHEMA_TOO_LARGE", message)
        })?;
        let object = schema.as_object();
        let object = object
            .ok_or_else(|| unsupported("a JSON Schema that takes anything has no column type"))?;
        if let Some(reference) = object.get("$ref") {
            return self.referred(reference, file, optional);
        }
        for word in ["oneOf", "anyOf"] {
            if let Some(members) = object.get(word).and_then(Value::as_array) {
                return self.one_of(members, file, optional);
            }
        }
        let kind = match object.get("type") {
            Some(Value::Array(kinds)) => {
                let is_null = |kind: &&Value| kind.as_str() == Some("null");
                let others: Vec<&Value> = kinds.iter().filter(|kind| !is_null(kind)).collect();
                let [only] = others.as_slice() else {
                    return Err(unsupported(
                        "a JSON Schema names several types for one value, which have no column type",
                    ));
                };
                let optional = optional || others.len() < kinds.len();
                let typed = self.of_kind(object, only.as_str(), file)?;
                return annotated(typed, object, optional);
            }
            kind => kind.and_then(Value::as_str),
        };
        let typed = self.of_kind(object, kind, file)?;
        annotated(typed, object, optional)
    }

    fn of_kind(
        &mut self,
        object: &'f Map<String, Value>,
        kind: Option<&str>,
        file: &'f str,
    ) -> Result<SourceSchema> {
        let connect = object.get("connect.type").and_then(Value::as_str);
        let scalar = SourceSchema::scalar;
        Ok(match (kind, connect) {
            (Some("boolean"), _) => scalar(SourceKind::Boolean),
            (Some("integer" | "number"), Some(connect)) => scalar(number(connect)?),
            (Some("integer"), None) => scalar(SourceKind::Int64),
            (Some("number"), None) => scalar(SourceKind::Float64),
            (Some("string"), Some("bytes")) => scalar(SourceKind::Bytes),
            (Some("string") | None, _) if object.contains_key("enum") => symbols(object)?,
            (Some("string"), _) => scalar(SourceKind::String),
            (None, _) if object.get("const").is_some_and(Value::is_string) => {
                scalar(SourceKind::String)
            }
            (Some("array"), Some("map")) => {
                return Err(unsupported(
                    "a map that is a list of entries in JSON is not decoded",
                ));
            }
            (Some("array"), _) => {
                let items = object.get("items").filter(|items| items.is_object());
                let items = items.ok_or_else(|| {
                    unsupported("an array of a JSON Schema does not say what its items are")
                })?;
                SourceSchema::array(self.typed(items, file, false)?)
            }
            (Some("object") | None, _) => self.object(object, connect == Some("map"), file)?,
            (Some(_), _) => {
                return Err(unsupported(
                    "a JSON Schema has a type that has no column type",
                ));
            }
        })
    }

    fn object(
        &mut self,
        object: &'f Map<String, Value>,
        is_map: bool,
        file: &'f str,
    ) -> Result<SourceSchema> {
        let mut properties = Properties::default();
        self.collect(object, file, &mut properties, 1)?;
        let additional = object
            .get("additionalProperties")
            .filter(|more| more.is_object());
        if is_map || (properties.list.is_empty() && additional.is_some()) {
            let values = additional.ok_or_else(|| {
                unsupported("a map of a JSON Schema does not say what its values are")
            })?;
            let values = self.typed(values, file, false)?;
            let keys = SourceSchema::scalar(SourceKind::String);
            return Ok(SourceSchema::map(keys, values));
        }
        if properties.list.is_empty() && !object.contains_key("properties") {
            return Err(unsupported(
                "an object of a JSON Schema does not say what is in it",
            ));
        }
        properties
            .list
            .sort_by_key(|(index, name, ..)| (index.unwrap_or(i64::MAX), *name));
        let mut fields: Vec<SourceField> = Vec::with_capacity(properties.list.len());
        for (_, name, schema, file) in properties.list {
            if fields.iter().any(|field| field.name == name) {
                continue;
            }
            let optional = !properties.required.contains(&name);
            let typed = self.typed(schema, file, optional);
            fields.push(SourceField {
                name: name.to_owned(),
                schema: Arc::new(typed.map_err(|error| error.with("field", name))?),
            });
        }
        Ok(SourceSchema::structure([]).with_fields(fields))
    }

    /// Collects the properties of an object and of all that it is a combination of.
    fn collect(
        &mut self,
        object: &'f Map<String, Value>,
        file: &'f str,
        into: &mut Properties<'f>,
        depth: usize,
    ) -> Result<()> {
        if depth > NESTING_MAX {
            return Err(too_deep());
        }
        let own = object.get("properties").and_then(Value::as_object);
        for (name, schema) in own.into_iter().flatten() {
            let index = schema.get("connect.index").and_then(Value::as_i64);
            into.list.push((index, name, schema, file));
        }
        if into.list.len() > SCHEMA_FIELDS_MAX {
            let message = format!("a JSON Schema has more than {SCHEMA_FIELDS_MAX} parts");
            return Err(SinkError::data("SCHEMA_TOO_LARGE", message));
        }
        let required = object.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        into.required.extend(required);
        let all = object.get("allOf").and_then(Value::as_array);
        for part in all.into_iter().flatten() {
            self.left = self.left.checked_sub(1).ok_or_else(too_deep)?;
            let mut part = (part, file);
            for _ in 0..NESTING_MAX {
                let Some(reference) = part.0.get("$ref").and_then(Value::as_str) else {
                    break;
                };
                let (_, found, file) = self.find(reference, part.1)?;
                part = (found, file);
            }
            let inner = part.0.as_object();
            let inner = inner.ok_or_else(|| invalid("a part of a JSON Schema is no object"))?;
            self.collect(inner, part.1, into, depth + 1)?;
        }
        Ok(())
    }

    fn one_of(
        &mut self,
        members: &'f [Value],
        file: &'f str,
        optional: bool,
    ) -> Result<SourceSchema> {
        let is_null = |member: &&Value| member.get("type").and_then(Value::as_str) == Some("null");
        let others: Vec<&Value> = members.iter().filter(|member| !is_null(member)).collect();
        match others.as_slice() {
            [only] => self.typed(only, file, optional || others.len() < members.len()),
            _ => Err(unsupported(
                "a JSON Schema takes one of several types for a value, which have no column type",
            )),
        }
    }

    fn referred(
        &mut self,
        reference: &'f Value,
        file: &'f str,
        optional: bool,
    ) -> Result<SourceSchema> {
        let reference = reference.as_str();
        let reference = reference.ok_or_else(|| invalid("`$ref` of a JSON Schema is no text"))?;
        let (place, found, file) = self.find(reference, file)?;
        if self.open.contains(&place) || self.open.len() >= NESTING_MAX {
            return Err(too_deep());
        }
        self.open.push(place);
        let typed = self.typed(found, file, optional);
        self.open.pop();
        typed
    }

    /// Finds what a reference in `file` leads to, and the file that it stands in.
    fn find(&self, reference: &str, file: &'f str) -> Result<(String, &'f Value, &'f str)> {
        let (name, path) = reference.split_once('#').unwrap_or((reference, ""));
        let files = self.files;
        let found = match name.is_empty() {
            true => files.get_key_value(file),
            false => files
                .get_key_value(name)
                .or_else(|| by_id(files, name))
                .or_else(|| files.get_key_value(name.rsplit('/').next().unwrap_or(name))),
        };
        let target = found.and_then(|(file, root)| {
            let target = match path.is_empty() {
                true => Some(root),
                false => root.pointer(path),
            };
            target.map(|target| (format!("{file}#{path}"), target, file.as_str()))
        });
        target.ok_or_else(|| {
            invalid("a JSON Schema refers to something that is not there")
                .with("reference", reference)
        })
    }
}

/// Finds the file whose `$id` is `name`.
fn by_id<'f>(files: &'f BTreeMap<String, Value>, name: &str) -> Option<(&'f String, &'f Value)> {
    let is_it =
        |(_, root): &(&String, &Value)| root.get("$id").and_then(Value::as_str) == Some(name);
    files.iter().find(is_it)
}

fn too_deep() -> SinkError {
    SinkError::data(
        "SCHEMA_TOO_DEEP",
        "a JSON Schema contains itself or nests too deeply; recursive schemas have no column type",
    )
}

fn number(connect: &str) -> Result<SourceKind> {
    Ok(match connect {
        "int8" => SourceKind::Int8,
        "int16" => SourceKind::Int16,
        "int32" => SourceKind::Int32,
        "int64" => SourceKind::Int64,
        "float32" => SourceKind::Float32,
        "float64" => SourceKind::Float64,
        "bytes" => SourceKind::Bytes,
        _ => {
            return Err(invalid(
                "`connect.type` of a JSON Schema is no type of numbers",
            ));
        }
    })
}

fn symbols(object: &Map<String, Value>) -> Result<SourceSchema> {
    let symbols = object.get("enum").and_then(Value::as_array);
    let mut schema = SourceSchema::scalar(SourceKind::String).with_parameter(ENUM, "");
    for symbol in symbols.into_iter().flatten() {
        let symbol = symbol.as_str();
        let symbol = symbol
            .ok_or_else(|| unsupported("an enum of a JSON Schema has values that are no texts"))?;
        schema = schema.with_parameter(&format!("{ENUM}.{symbol}"), symbol);
    }
    Ok(schema)
}

/// Adds what any schema may say.
fn annotated(
    mut schema: SourceSchema,
    object: &Map<String, Value>,
    optional: bool,
) -> Result<SourceSchema> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_owned);
    schema.name = text("title");
    schema.doc = text("description");
    let version = object.get("connect.version").and_then(Value::as_i64);
    schema.version = version.and_then(|version| i32::try_from(version).ok());
    let parameters = object.get("connect.parameters").and_then(Value::as_object);
    for (name, value) in parameters.into_iter().flatten() {
        if let Some(value) = value.as_str() {
            schema = schema.with_parameter(name, value);
        }
    }
    let default = object.get("default").filter(|default| !default.is_null());
    schema.has_default = default.is_some();
    schema.default = default.and_then(|default| default_text(default, &schema));
    schema.optional = optional;
    schema.with_logical()
}
