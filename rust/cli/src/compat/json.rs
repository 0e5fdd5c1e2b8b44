//! A JSON Schema as the schema that Confluent's JsonSchemaConverter makes of it.

use frazil_core::limits::NESTING_MAX;
use frazil_core::wire::{LogicalType, SourceKind, SourceSchema};
use serde_json::{Map, Value};

/// Keywords that say something about the shape of a value which no column type can.
const REFUSED: [&str; 8] = [
    "allOf",
    "anyOf",
    "not",
    "if",
    "patternProperties",
    "dependentSchemas",
    "$dynamicRef",
    "prefixItems",
];

/// Parses the text of a JSON Schema. Properties that are not required are optional when the
/// converter is told so.
pub(super) fn parse(text: &str, optional_when_not_required: bool) -> Result<SourceSchema, String> {
    let root: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut reader = Reader {
        root: &root,
        optional_when_not_required,
        around: Vec::new(),
    };
    reader.schema(&root, 1)
}

struct Reader<'r> {
    root: &'r Value,
    optional_when_not_required: bool,
    /// The objects that the place at hand is in.
    around: Vec<&'r Value>,
}

impl<'r> Reader<'r> {
    fn schema(&mut self, json: &'r Value, depth: usize) -> Result<SourceSchema, String> {
        if depth > NESTING_MAX {
            return Err(
                "the schema is recursive or nests too deeply; it has no column type".into(),
            );
        }
        // Where an object contains itself, Java hands over text (docs/types.md).
        if self.around.iter().any(|around| std::ptr::eq(*around, json)) {
            return Ok(SourceSchema::scalar(SourceKind::String));
        }
        let object = json.as_object().ok_or("a schema is no object")?;
        if let Some(word) = REFUSED.iter().find(|word| object.contains_key(**word)) {
            return Err(format!("`{word}` has no column type"));
        }
        if let Some(reference) = text(object, "$ref") {
            return self.schema(self.resolve(reference)?, depth + 1);
        }
        if let Some(branches) = object.get("oneOf").and_then(Value::as_array) {
            return self.one_of(branches, depth);
        }
        let (kind, is_optional) = kind(object)?;
        let made = self.of_kind(kind, json, object, depth)?;
        let mut made = attributes(made, object);
        made.has_default = object.contains_key("default");
        Ok(match is_optional {
            true => made.optional(),
            false => made,
        })
    }

    fn resolve(&self, reference: &str) -> Result<&'r Value, String> {
        let pointer = reference
            .strip_prefix('#')
            .ok_or(format!("`{reference}` lies outside of the file"))?;
        let found = self.root.pointer(pointer);
        found.ok_or(format!("nothing lies at `{reference}`"))
    }

    /// One of null and a type is an optional type; of several types, a struct with a field for each.
    fn one_of(&mut self, branches: &'r [Value], depth: usize) -> Result<SourceSchema, String> {
        let is_null = |branch: &&Value| branch.get("type").and_then(Value::as_str) == Some("null");
        let optional = branches.iter().any(|branch| is_null(&branch));
        let others: Vec<&Value> = branches.iter().filter(|branch| !is_null(branch)).collect();
        let made = match others.as_slice() {
            [one] => self.schema(one, depth + 1)?,
            _ => return Err("`oneOf` of more than null and one type has no column type".into()),
        };
        Ok(match optional {
            true => made.optional(),
            false => made,
        })
    }

    fn of_kind(
        &mut self,
        kind: &str,
        json: &'r Value,
        object: &'r Map<String, Value>,
        depth: usize,
    ) -> Result<SourceSchema, String> {
        let connect = text(object, "connect.type");
        let parameter = |name: &str| {
            let parameters = object.get("connect.parameters");
            parameters
                .and_then(|all| all.get(name))
                .and_then(Value::as_str)
        };
        let scalar = SourceSchema::scalar;
        Ok(match (text(object, "title"), kind, connect) {
            (Some("org.apache.kafka.connect.data.Date"), ..) => {
                SourceSchema::logical_type(LogicalType::Date)
            }
            (Some("org.apache.kafka.connect.data.Time"), ..) => {
                SourceSchema::logical_type(LogicalType::Time)
            }
            (Some("org.apache.kafka.connect.data.Timestamp"), ..) => {
                SourceSchema::logical_type(LogicalType::Timestamp)
            }
            (Some("org.apache.kafka.connect.data.Decimal"), ..) => {
                let scale = parameter("scale").and_then(|scale| scale.parse().ok());
                let scale = scale.ok_or("a decimal without the parameter `scale`")?;
                SourceSchema::logical_type(LogicalType::Decimal { scale })
            }
            (_, "boolean", _) => scalar(SourceKind::Boolean),
            (_, "integer", Some("int8")) => scalar(SourceKind::Int8),
            (_, "integer", Some("int16")) => scalar(SourceKind::Int16),
            (_, "integer", Some("int32")) => scalar(SourceKind::Int32),
            (_, "integer", _) => scalar(SourceKind::Int64),
            (_, "number", Some("float32")) => scalar(SourceKind::Float32),
            (_, "number", _) => scalar(SourceKind::Float64),
            (_, "string", Some("bytes")) => scalar(SourceKind::Bytes),
            (_, "string", _) => scalar(SourceKind::String),
            (_, "array", _) => {
                let items = object.get("items").ok_or("an array without `items`")?;
                SourceSchema::array(self.schema(items, depth + 1)?)
            }
            (_, "object", Some("map")) => self.map(object, depth)?,
            (_, "object", _) if object.contains_key("properties") => {
                self.around.push(json);
                let made = self.structure(object, depth)?;
                self.around.pop();
                made
            }
            (_, "object", _) => self.map(object, depth)?,
            (_, other, _) => return Err(format!("`{other}` has no column type")),
        })
    }

    fn map(
        &mut self,
        object: &'r Map<String, Value>,
        depth: usize,
    ) -> Result<SourceSchema, String> {
        let values = object
            .get("additionalProperties")
            .filter(|value| value.is_object());
        let values = values.ok_or("an object with neither properties nor a type for them")?;
        let key = SourceSchema::scalar(SourceKind::String);
        Ok(SourceSchema::map(key, self.schema(values, depth + 1)?))
    }

    fn structure(
        &mut self,
        object: &'r Map<String, Value>,
        depth: usize,
    ) -> Result<SourceSchema, String> {
        let properties = object.get("properties").and_then(Value::as_object);
        let required = object.get("required").and_then(Value::as_array);
        let is_required = |name: &str| {
            required.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(name)))
        };
        let mut fields = Vec::new();
        for (name, property) in properties.into_iter().flatten() {
            let made = self.schema(property, depth + 1);
            let made = made.map_err(|error| format!("property `{name}`: {error}"))?;
            let made = match self.optional_when_not_required && !is_required(name) {
                true => made.optional(),
                false => made,
            };
            let index = property.get("connect.index").and_then(Value::as_u64);
            fields.push((index.unwrap_or(u64::MAX), name.as_str(), made));
        }
        fields.sort_by_key(|(index, ..)| *index);
        let fields = fields.into_iter().map(|(_, name, made)| (name, made));
        Ok(SourceSchema::structure(fields))
    }
}

/// Returns the type of an object, and whether it may be null.
fn kind(object: &Map<String, Value>) -> Result<(&str, bool), String> {
    match object.get("type") {
        Some(Value::String(kind)) => Ok((kind, false)),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            let is_optional = kinds.contains(&"null");
            let mut others = kinds.iter().filter(|kind| **kind != "null");
            match (others.next(), others.next()) {
                (Some(kind), None) => Ok((kind, is_optional)),
                _ => Err("several types at once have no column type".into()),
            }
        }
        None if object.contains_key("properties") => Ok(("object", false)),
        None if object.contains_key("enum") => Ok(("string", false)),
        _ => Err("a schema without `type`".into()),
    }
}

fn attributes(mut made: SourceSchema, object: &Map<String, Value>) -> SourceSchema {
    if made.logical().is_none()
        && let Some(title) = text(object, "title")
    {
        made = made.named(title);
    }
    if let Some(parameters) = object.get("connect.parameters").and_then(Value::as_object) {
        for (name, value) in parameters {
            made = made.with_parameter(name, value.as_str().unwrap_or_default());
        }
    }
    made.doc = text(object, "description").map(str::to_owned);
    made
}

fn text<'o>(object: &'o Map<String, Value>, key: &str) -> Option<&'o str> {
    object.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::tests::shown;

    const ORDER: &str = r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",
      "title":"Order","required":["id"],
      "definitions":{"line":{"type":"object","properties":{"sku":{"type":"string"}}}},
      "properties":{
        "id":{"type":"integer","description":"the key","connect.index":0},
        "lines":{"type":"array","items":{"$ref":"#/definitions/line"},"connect.index":1},
        "note":{"oneOf":[{"type":"null"},{"type":"string"}],"connect.index":2},
        "small":{"type":["integer","null"],"connect.type":"int16","connect.index":3},
        "tags":{"type":"object","additionalProperties":{"type":"number"},"connect.index":4},
        "price":{"type":"number","title":"org.apache.kafka.connect.data.Decimal",
          "connect.type":"bytes","connect.parameters":{"scale":"2"},"connect.index":5}}}"##;

    #[test]
    fn every_kind_of_schema_is_what_the_converter_makes_of_it() {
        let schema = parse(ORDER, false).unwrap();
        let shown: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| {
                (
                    field.name.as_str(),
                    field.schema.kind(),
                    field.schema.optional,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("id", SourceKind::Int64, false),
                ("lines", SourceKind::Array, false),
                ("note", SourceKind::String, true),
                ("small", SourceKind::Int16, true),
                ("tags", SourceKind::Map, false),
                ("price", SourceKind::Bytes, false),
            ]
        );
        let line = schema.fields()[1].schema.value().map(|line| line.kind());
        assert_eq!(line, Some(SourceKind::Struct));
        assert_eq!(schema.fields()[0].schema.doc.as_deref(), Some("the key"));
        let price = &schema.fields()[5].schema;
        assert_eq!(price.logical(), Some(LogicalType::Decimal { scale: 2 }));
        let optional = parse(ORDER, true).unwrap();
        let optional = optional
            .fields()
            .iter()
            .filter(|field| field.schema.optional);
        assert_eq!(optional.count(), 5, "all but the required one");
    }

    // Promise: `frazil compat` reads a JSON Schema that refers to itself as the converter and the shell
    // do: a struct down to where it begins again, and text from there
    #[test]
    fn an_object_is_text_where_it_contains_itself() {
        let node = r##"{"$ref":"#/definitions/node","definitions":{"node":{"type":"object",
            "required":["v"],"properties":{"v":{"type":"integer","connect.index":0},
            "next":{"oneOf":[{"type":"null"},{"$ref":"#/definitions/node"}],"connect.index":1},
            "all":{"type":"array","items":{"$ref":"#/definitions/node"},"connect.index":2},
            "by":{"type":"object","additionalProperties":{"$ref":"#/definitions/other"},"connect.index":3}}},
            "other":{"type":"object","properties":{"back":{"$ref":"#/definitions/node"}}}}}"##;
        let schema = shown(&parse(node, false).unwrap());
        let inside = "{v: int64, next: string?, all: array<string>, by: map<{back: string}>}";
        assert_eq!(schema, inside);
        let root = r##"{"type":"object","properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}"##;
        let schema = shown(&parse(root, true).unwrap());
        assert_eq!(schema, "{left: string?, right: string?}");
        // The same object twice, but not in itself, is two structs.
        let twice = r##"{"type":"object","definitions":{"p":{"type":"object","properties":{
            "x":{"type":"integer"}}}},"properties":{"a":{"$ref":"#/definitions/p"},
            "b":{"$ref":"#/definitions/p"}}}"##;
        let schema = shown(&parse(twice, false).unwrap());
        assert_eq!(schema, "{a: {x: int64}, b: {x: int64}}");
    }

    #[test]
    fn what_has_no_column_type_says_where() {
        for (text, part) in [
            ("{", "EOF"),
            (r#"{"type":"object"}"#, "neither"),
            (
                r#"{"type":"object","properties":{"x":{"anyOf":[]}}}"#,
                "`x`",
            ),
            // Through no object: the converter has no end of it either.
            (r##"{"type":"array","items":{"$ref":"#"}}"##, "recursive"),
            (r##"{"$ref":"other.json"}"##, "outside"),
            (r##"{"$ref":"#/definitions/no"}"##, "nothing"),
            (r#"{"type":["string","integer"]}"#, "several"),
        ] {
            let error = parse(text, false).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
