//! An Avro schema as the schema that Confluent's AvroConverter makes of it.
//!
//! Read from its JSON: what the converter goes by (`connect.name`, `connect.type`,
//! `connect.parameters`) stands on schemas of scalars, and parsers of Avro drop it there.

use std::collections::BTreeMap;

use frazil_core::limits::NESTING_MAX;
use frazil_core::wire::{LogicalType, SourceKind, SourceSchema};
use serde_json::{Map, Value};

/// The precision that the converter takes for "not said".
const PRECISION_UNSAID: u64 = 64;

/// Parses the text of an `.avsc` file.
pub(super) fn parse(text: &str) -> Result<SourceSchema, String> {
    let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut names = Names::default();
    schema(&json, "", &mut names, 1)
}

/// The named schemas so far, by full name.
#[derive(Default)]
struct Names {
    known: BTreeMap<String, Value>,
    /// The records that the place at hand is in.
    around: Vec<String>,
}

impl Names {
    fn is_around(&self, name: &str) -> bool {
        self.around.iter().any(|around| around == name)
    }
}

fn schema(
    json: &Value,
    namespace: &str,
    names: &mut Names,
    depth: usize,
) -> Result<SourceSchema, String> {
    if depth > NESTING_MAX {
        return Err("the schema nests too deeply; it has no column type".into());
    }
    match json {
        Value::String(name) => named(name, &Map::new(), namespace, names, depth),
        Value::Array(branches) => union(branches, namespace, names, depth),
        Value::Object(object) => match object.get("type") {
            Some(Value::String(name)) => named(name, object, namespace, names, depth),
            Some(inner) => schema(inner, namespace, names, depth + 1),
            None => Err("a schema without `type`".into()),
        },
        _ => Err("a schema is neither a name, a list nor an object".into()),
    }
}

fn named(
    name: &str,
    object: &Map<String, Value>,
    namespace: &str,
    names: &mut Names,
    depth: usize,
) -> Result<SourceSchema, String> {
    let child = |key: &str, names: &mut Names| {
        let inner = object.get(key).ok_or(format!("{name} without `{key}`"))?;
        schema(inner, namespace, names, depth + 1)
    };
    let plain = match name {
        "boolean" => scalar(SourceKind::Boolean, object),
        "int" | "long" => integer(name, object),
        "float" => scalar(SourceKind::Float32, object),
        "double" => scalar(SourceKind::Float64, object),
        "string" => scalar(SourceKind::String, object),
        "bytes" => bytes(object)?,
        "null" => return Err("null is no type of its own; use a union with it".into()),
        "array" => attributes(SourceSchema::array(child("items", names)?), object),
        "map" => {
            let key = SourceSchema::scalar(SourceKind::String);
            attributes(SourceSchema::map(key, child("values", names)?), object)
        }
        "record" | "error" | "enum" | "fixed" => {
            return declared(name, object, namespace, names, depth);
        }
        reference => {
            let full = full_name(reference, namespace);
            // Where a record contains itself, Java hands over text (docs/types.md).
            if [full.as_str(), reference]
                .iter()
                .any(|name| names.is_around(name))
            {
                return Ok(SourceSchema::scalar(SourceKind::String));
            }
            let known = names.known.get(&full);
            let known = known.or_else(|| names.known.get(reference));
            let known = known
                .cloned()
                .ok_or(format!("no schema is named `{full}`"))?;
            let space = namespace_of(&full).to_owned();
            return schema(&known, &space, names, depth + 1);
        }
    };
    Ok(plain)
}

fn declared(
    kind: &str,
    object: &Map<String, Value>,
    namespace: &str,
    names: &mut Names,
    depth: usize,
) -> Result<SourceSchema, String> {
    let name = text(object, "name").ok_or(format!("{kind} without `name`"))?;
    let full = full_name(name, text(object, "namespace").unwrap_or(namespace));
    (names.known).insert(full.clone(), Value::Object(object.clone()));
    match kind {
        "enum" => return Ok(scalar(SourceKind::String, object)),
        "fixed" => return bytes(object),
        _ => {}
    }
    let space = namespace_of(&full).to_owned();
    let fields = object.get("fields").and_then(Value::as_array);
    let fields = fields.ok_or(format!("record `{full}` without `fields`"))?;
    let mut made = Vec::with_capacity(fields.len());
    names.around.push(full.clone());
    for field in fields {
        let field = field.as_object().ok_or("a field is no object")?;
        let name = text(field, "name").ok_or("a field without `name`")?;
        let of = field
            .get("type")
            .ok_or(format!("field `{name}` without `type`"))?;
        let inner = schema(of, &space, names, depth + 1);
        let mut inner = inner.map_err(|error| format!("field `{name}`: {error}"))?;
        inner.has_default = field.contains_key("default");
        if inner.doc.is_none() {
            inner.doc = text(field, "doc").map(str::to_owned);
        }
        made.push((name, inner));
    }
    names.around.pop();
    let record = SourceSchema::structure(made).named(&full);
    Ok(attributes(record, object))
}

/// A union with null is an optional schema; one of several types a struct with a field for each.
fn union(
    branches: &[Value],
    namespace: &str,
    names: &mut Names,
    depth: usize,
) -> Result<SourceSchema, String> {
    let is_null = |branch: &&Value| {
        let inner = branch.get("type").unwrap_or(branch);
        inner.as_str() == Some("null")
    };
    let optional = branches.iter().any(|branch| is_null(&branch));
    let others: Vec<&Value> = branches.iter().filter(|branch| !is_null(branch)).collect();
    let made = match others.as_slice() {
        [] => return Err("a union of nothing but null has no column type".into()),
        [one] => schema(one, namespace, names, depth + 1)?,
        several => {
            let mut fields = Vec::with_capacity(several.len());
            for branch in several {
                let inner = schema(branch, namespace, names, depth + 1)?.optional();
                fields.push((branch_name(branch), inner));
            }
            let fields = fields.iter().map(|(name, inner)| (*name, inner.clone()));
            SourceSchema::structure(fields).named("io.confluent.connect.avro.Union")
        }
    };
    Ok(match optional {
        true => made.optional(),
        false => made,
    })
}

fn branch_name(branch: &Value) -> &str {
    let name = branch.get("name").or_else(|| branch.get("type"));
    let name = name.unwrap_or(branch).as_str().unwrap_or("union");
    name.rsplit('.').next().unwrap_or(name)
}

fn integer(name: &str, object: &Map<String, Value>) -> SourceSchema {
    let logical = match (name, text(object, "logicalType")) {
        ("int", Some("date")) => Some(LogicalType::Date),
        ("int", Some("time-millis")) => Some(LogicalType::Time),
        ("long", Some("timestamp-millis")) => Some(LogicalType::Timestamp),
        _ => None,
    };
    match (logical, text(object, "connect.type"), name) {
        (Some(logical), _, _) => SourceSchema::logical_type(logical),
        (None, Some("int8"), _) => scalar(SourceKind::Int8, object),
        (None, Some("int16"), _) => scalar(SourceKind::Int16, object),
        (None, _, "int") => scalar(SourceKind::Int32, object),
        (None, _, _) => scalar(SourceKind::Int64, object),
    }
}

fn bytes(object: &Map<String, Value>) -> Result<SourceSchema, String> {
    if text(object, "logicalType") != Some("decimal") {
        return Ok(scalar(SourceKind::Bytes, object));
    }
    let number = |key: &str| object.get(key).and_then(Value::as_u64);
    let scale = i32::try_from(number("scale").unwrap_or(0)).map_err(|_| "a scale is too large")?;
    let decimal = SourceSchema::logical_type(LogicalType::Decimal { scale });
    Ok(match number("precision") {
        Some(precision) if precision != PRECISION_UNSAID => {
            decimal.with_parameter("connect.decimal.precision", &precision.to_string())
        }
        _ => decimal,
    })
}

fn scalar(kind: SourceKind, object: &Map<String, Value>) -> SourceSchema {
    attributes(SourceSchema::scalar(kind), object)
}

/// Adds what the converter left in the schema of Connect's own.
fn attributes(mut made: SourceSchema, object: &Map<String, Value>) -> SourceSchema {
    if let Some(name) = text(object, "connect.name") {
        made = made.named(name);
    }
    if let Some(parameters) = object.get("connect.parameters").and_then(Value::as_object) {
        for (name, value) in parameters {
            made = made.with_parameter(name, value.as_str().unwrap_or_default());
        }
    }
    let doc = text(object, "connect.doc").or_else(|| text(object, "doc"));
    made.doc = doc.map(str::to_owned);
    made
}

fn text<'o>(object: &'o Map<String, Value>, key: &str) -> Option<&'o str> {
    object.get(key).and_then(Value::as_str)
}

fn full_name(name: &str, namespace: &str) -> String {
    match name.contains('.') || namespace.is_empty() {
        true => name.to_owned(),
        false => format!("{namespace}.{name}"),
    }
}

fn namespace_of(full: &str) -> &str {
    full.rsplit_once('.').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::tests::shown;

    #[test]
    fn every_kind_of_schema_is_what_the_converter_makes_of_it() {
        let schema = parse(
            r#"{"type":"record","name":"Order","namespace":"shop","doc":"d","fields":[
              {"name":"id","type":"long","doc":"the key"},
              {"name":"small","type":{"type":"int","connect.type":"int16"}},
              {"name":"f","type":"float"}, {"name":"b","type":"boolean"},
              {"name":"note","type":["null","string"],"default":null},
              {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
              {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
              {"name":"micros","type":{"type":"long","connect.name":"io.debezium.time.MicroTimestamp"}},
              {"name":"day","type":{"type":"int","logicalType":"date"}},
              {"name":"kind","type":{"type":"enum","name":"Kind","symbols":["A"]}},
              {"name":"again","type":"Kind"},
              {"name":"hash","type":{"type":"fixed","name":"Hash","size":16}},
              {"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[
                 {"name":"sku","type":"string"}]}}},
              {"name":"first","type":["null","shop.Line"]},
              {"name":"tags","type":{"type":"map","values":["int","null"]}},
              {"name":"either","type":["int","string"]}]}"#,
        )
        .unwrap();
        assert_eq!(
            shown(&schema),
            "{id: int64, small: int16, f: float32, b: boolean, note: string?, price: decimal, \
             at: timestamp, micros: io.debezium.time.MicroTimestamp, day: date, kind: string, \
             again: string, hash: bytes, lines: array<{sku: string}>, first: {sku: string}?, \
             tags: map<int32?>, either: {int: int32?, string: string?}}"
        );
        assert_eq!(schema.fields()[0].schema.doc.as_deref(), Some("the key"));
        assert!(schema.fields()[4].schema.has_default);
        let precision = schema.fields()[5]
            .schema
            .parameters
            .get("connect.decimal.precision");
        assert_eq!(precision.map(String::as_str), Some("9"));
    }

    #[test]
    fn a_record_is_text_where_it_contains_itself() {
        let node = r#"{"type":"record","name":"N","namespace":"a","fields":[
            {"name":"v","type":"int"}, {"name":"n","type":["null","N"]},
            {"name":"all","type":{"type":"array","items":"a.N"}}]}"#;
        let shown = shown(&parse(node).unwrap());
        assert_eq!(shown, "{v: int32, n: string?, all: array<string>}");
    }

    #[test]
    fn what_is_no_schema_says_where() {
        for (text, part) in [
            ("{", "EOF"),
            (r#"{"type":"record","name":"R"}"#, "`fields`"),
            (
                r#"{"type":"record","name":"R","fields":[{"name":"x","type":"Nope"}]}"#,
                "`x`",
            ),
            (r#"{"type":"array"}"#, "`items`"),
            ("7", "neither"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
