//! Avro schemas, parsed from their JSON.
//!
//! Types lie in one list and name each other by index, so that a recursive schema is no cycle of
//! pointers. Aliases are checked and left alone: they rename what a *reader* looks for, and the
//! reader here is the table, which goes by the names of the writer.
//!
//! Invariant: a schema that parses has at most `SCHEMA_FIELDS_MAX` types, each name is defined once
//! and before it is used, an enum has symbols, a union has members of different types and none of
//! them is a union.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::error::{Result, SinkError};
use crate::limits::{NESTING_MAX, SCHEMA_FIELDS_MAX};

/// The index of a type in its schema.
pub(crate) type TypeId = usize;

/// The largest `fixed`: its values lie in a record.
const FIXED_BYTES_MAX: u64 = 64 << 20;

/// A parsed schema.
#[derive(Debug, Clone)]
pub(crate) struct AvroSchema {
    types: Vec<AvroType>,
    root: TypeId,
}

/// A type with what is said about it.
#[derive(Debug, Clone)]
pub(crate) struct AvroType {
    pub(crate) shape: Shape,
    /// The full name of a record, enum or fixed.
    pub(crate) name: Option<String>,
    /// All attributes of the JSON object, with the ones that Avro defines.
    pub(crate) attributes: Map<String, Value>,
}

/// What values of a type are made of.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum(Vec<String>),
    Array(TypeId),
    Map(TypeId),
    Union(Vec<TypeId>),
    Record(Vec<AvroField>),
    /// A record whose fields are not parsed yet. None is left in a parsed schema.
    Open,
}

/// A field of a record.
#[derive(Debug, Clone)]
pub(crate) struct AvroField {
    pub(crate) name: String,
    pub(crate) of: TypeId,
    pub(crate) doc: Option<String>,
    /// The default, which may be null.
    pub(crate) default: Option<Value>,
    /// `connect.parameters` of the field.
    pub(crate) parameters: BTreeMap<String, String>,
}

impl AvroSchema {
    /// Parses a schema; `references` are the schemas whose names it uses, those that others use
    /// first.
    pub(crate) fn parse(text: &str, references: &[&str]) -> Result<AvroSchema> {
        let mut parser = Parser::default();
        for reference in references {
            parser.parse(&json(reference)?, "", 1)?;
        }
        let root = parser.parse(&json(text)?, "", 1)?;
        Ok(AvroSchema {
            types: parser.types,
            root,
        })
    }

    pub(crate) fn root(&self) -> TypeId {
        self.root
    }

    /// Returns a type; ids come from this schema, so it is always there.
    pub(crate) fn get(&self, id: TypeId) -> Result<&AvroType> {
        let found = self.types.get(id);
        found.ok_or_else(|| SinkError::internal("an Avro type is not in its schema"))
    }
}

impl AvroType {
    /// Returns an attribute that is text.
    pub(crate) fn text(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute)?.as_str()
    }

    /// Returns the name without its namespace.
    pub(crate) fn simple_name(&self) -> Option<&str> {
        let name = self.name.as_deref()?;
        Some(name.rsplit_once('.').map_or(name, |(_, simple)| simple))
    }

    /// Returns what the type is called in the schema.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.shape {
            Shape::Null => "null",
            Shape::Boolean => "boolean",
            Shape::Int => "int",
            Shape::Long => "long",
            Shape::Float => "float",
            Shape::Double => "double",
            Shape::Bytes => "bytes",
            Shape::String => "string",
            Shape::Fixed(_) => "fixed",
            Shape::Enum(_) => "enum",
            Shape::Array(_) => "array",
            Shape::Map(_) => "map",
            Shape::Union(_) => "union",
            Shape::Record(_) | Shape::Open => "record",
        }
    }
}

fn json(text: &str) -> Result<Value> {
    // The name of a primitive type may stand without quotes.
    let text = text.trim();
    if primitive(text).is_some() {
        return Ok(Value::String(text.to_owned()));
    }
    serde_json::from_str(text).map_err(|error| {
        invalid("the Avro schema is no JSON")
            .with("line", error.line())
            .with("column", error.column())
    })
}

/// Returns the error of a schema that does not follow the specification.
pub(crate) fn invalid(message: impl Into<String>) -> SinkError {
    SinkError::data("SCHEMA_INVALID", message)
}

fn primitive(name: &str) -> Option<Shape> {
    Some(match name {
        "null" => Shape::Null,
        "boolean" => Shape::Boolean,
        "int" => Shape::Int,
        "long" => Shape::Long,
        "float" => Shape::Float,
        "double" => Shape::Double,
        "bytes" => Shape::Bytes,
        "string" => Shape::String,
        _ => return None,
    })
}

#[derive(Debug, Default)]
struct Parser {
    types: Vec<AvroType>,
    names: BTreeMap<String, TypeId>,
}

impl Parser {
    fn parse(&mut self, json: &Value, namespace: &str, depth: usize) -> Result<TypeId> {
        if depth > NESTING_MAX {
            let message = format!("an Avro schema nests deeper than {NESTING_MAX} levels");
            return Err(SinkError::data("SCHEMA_TOO_DEEP", message));
        }
        match json {
            Value::String(name) => match primitive(name) {
                Some(shape) => self.add(shape, None, Map::new()),
                None => self.named(name, namespace),
            },
            Value::Array(members) => self.union(members, namespace, depth),
            Value::Object(object) => self.object(object, namespace, depth),
            _ => Err(invalid("an Avro type is neither text, list nor object")),
        }
    }

    fn add(
        &mut self,
        shape: Shape,
        name: Option<String>,
        attributes: Map<String, Value>,
    ) -> Result<TypeId> {
        if self.types.len() >= SCHEMA_FIELDS_MAX {
            let message = format!("an Avro schema has more than {SCHEMA_FIELDS_MAX} types");
            return Err(SinkError::data("SCHEMA_TOO_LARGE", message));
        }
        self.types.push(AvroType {
            shape,
            name,
            attributes,
        });
        Ok(self.types.len() - 1)
    }

    /// Finds the type called `name`, first in the namespace around it.
    fn named(&self, name: &str, namespace: &str) -> Result<TypeId> {
        let full = full_name(name, namespace);
        let found = self.names.get(&full).or_else(|| self.names.get(name));
        found.copied().ok_or_else(|| {
            invalid("an Avro schema names a type that is not defined before").with("type", full)
        })
    }

    fn define(&mut self, name: String, id: TypeId) -> Result<()> {
        match self.names.insert(name.clone(), id) {
            None => Ok(()),
            Some(_) => {
                Err(invalid("an Avro schema defines a name more than once").with("type", name))
            }
        }
    }

    fn union(&mut self, members: &[Value], namespace: &str, depth: usize) -> Result<TypeId> {
        let mut ids = Vec::with_capacity(members.len().min(64));
        let mut seen = BTreeSet::new();
        for member in members {
            let id = self.parse(member, namespace, depth + 1)?;
            let of = self.types.get(id);
            let of = of.ok_or_else(|| SinkError::internal("an Avro type is not in its schema"))?;
            if matches!(of.shape, Shape::Union(_)) {
                return Err(invalid("a union of an Avro schema holds a union"));
            }
            let name = of.name.as_deref().unwrap_or(of.type_name());
            if !seen.insert(name.to_owned()) {
                return Err(
                    invalid("a union of an Avro schema holds one type twice").with("type", name)
                );
            }
            ids.push(id);
        }
        if ids.is_empty() {
            return Err(invalid("a union of an Avro schema is empty"));
        }
        self.add(Shape::Union(ids), None, Map::new())
    }

    fn object(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<TypeId> {
        let kind = object.get("type");
        let kind = match kind {
            Some(Value::String(kind)) => kind.as_str(),
            // Some writers wrap a type once more.
            Some(inner @ (Value::Object(_) | Value::Array(_))) => {
                return self.parse(inner, namespace, depth + 1);
            }
            _ => return Err(invalid("an Avro type has no attribute `type`")),
        };
        if let Some(shape) = primitive(kind) {
            return self.add(shape, None, object.clone());
        }
        match kind {
            "array" => {
                let items = self.inner(object, "items", namespace, depth)?;
                self.add(Shape::Array(items), None, object.clone())
            }
            "map" => {
                let values = self.inner(object, "values", namespace, depth)?;
                self.add(Shape::Map(values), None, object.clone())
            }
            "fixed" => {
                let size = object.get("size").and_then(Value::as_u64);
                let size = size.filter(|size| *size <= FIXED_BYTES_MAX);
                let size = size.and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or_else(|| invalid("an Avro fixed has no size in bytes"))?;
                self.add_named(Shape::Fixed(size), object, namespace)
            }
            "enum" => {
                let symbols = symbols(object)?;
                self.add_named(Shape::Enum(symbols), object, namespace)
            }
            "record" | "error" => self.record(object, namespace, depth),
            name => self.named(name, namespace),
        }
    }

    fn inner(
        &mut self,
        object: &Map<String, Value>,
        attribute: &str,
        namespace: &str,
        depth: usize,
    ) -> Result<TypeId> {
        let inner = object.get(attribute).ok_or_else(|| {
            invalid(format!(
                "an Avro array or map has no attribute `{attribute}`"
            ))
        })?;
        self.parse(inner, namespace, depth + 1)
    }

    fn add_named(
        &mut self,
        shape: Shape,
        object: &Map<String, Value>,
        namespace: &str,
    ) -> Result<TypeId> {
        let name = defined_name(object, namespace)?;
        let mut attributes = object.clone();
        attributes.remove("fields");
        let id = self.add(shape, Some(name.clone()), attributes)?;
        self.define(name, id)?;
        Ok(id)
    }

    fn record(
        &mut self,
        object: &Map<String, Value>,
        namespace: &str,
        depth: usize,
    ) -> Result<TypeId> {
        let name = defined_name(object, namespace)?;
        let inside = name.rsplit_once('.').map_or("", |(inside, _)| inside);
        let inside = inside.to_owned();
        // Known before its fields: they may name it.
        let id = self.add_named(Shape::Open, object, namespace)?;
        let fields = object.get("fields").and_then(Value::as_array);
        let fields = fields.ok_or_else(|| invalid("an Avro record has no list of fields"))?;
        let mut parsed = Vec::with_capacity(fields.len().min(SCHEMA_FIELDS_MAX));
        let mut seen = BTreeSet::new();
        for field in fields {
            let field = self.field(field, &inside, depth)?;
            if !seen.insert(field.name.clone()) {
                return Err(
                    invalid("an Avro record has two fields of one name").with("field", field.name)
                );
            }
            parsed.push(field);
        }
        if let Some(record) = self.types.get_mut(id) {
            record.shape = Shape::Record(parsed);
        }
        Ok(id)
    }

    fn field(&mut self, field: &Value, namespace: &str, depth: usize) -> Result<AvroField> {
        let attributes = field.as_object();
        let attributes =
            attributes.ok_or_else(|| invalid("a field of an Avro record is no object"))?;
        let name = attributes.get("name").and_then(Value::as_str);
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| invalid("a field of an Avro record has no name"))?;
        let of = attributes.get("type");
        let of = of.ok_or_else(|| invalid("a field has no type").with("field", name))?;
        let of = self
            .parse(of, namespace, depth + 1)
            .map_err(|error| error.with("field", name))?;
        check_aliases(attributes)?;
        Ok(AvroField {
            name: name.to_owned(),
            of,
            doc: text(attributes, "doc"),
            default: attributes.get("default").cloned(),
            parameters: parameters(attributes),
        })
    }
}

fn symbols(object: &Map<String, Value>) -> Result<Vec<String>> {
    let symbols = object.get("symbols").and_then(Value::as_array);
    let symbols = symbols
        .map(|symbols| {
            let texts = symbols.iter().map(|symbol| symbol.as_str());
            texts.map(|text| text.map(str::to_owned)).collect()
        })
        .unwrap_or(None)
        .filter(|symbols: &Vec<String>| !symbols.is_empty());
    let symbols = symbols.ok_or_else(|| invalid("an Avro enum has no list of symbols"))?;
    let distinct: BTreeSet<&String> = symbols.iter().collect();
    match distinct.len() == symbols.len() {
        true => Ok(symbols),
        false => Err(invalid("an Avro enum has a symbol twice")),
    }
}

fn text(object: &Map<String, Value>, attribute: &str) -> Option<String> {
    let value = object.get(attribute)?.as_str()?;
    Some(value.to_owned())
}

/// Returns `connect.parameters`, of which only texts count.
pub(crate) fn parameters(object: &Map<String, Value>) -> BTreeMap<String, String> {
    let parameters = object.get("connect.parameters").and_then(Value::as_object);
    let texts = parameters
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| {
            let value = value.as_str()?;
            Some((name.clone(), value.to_owned()))
        });
    texts.collect()
}

fn check_aliases(object: &Map<String, Value>) -> Result<()> {
    let are_names = |aliases: &Value| {
        let aliases = aliases.as_array();
        aliases.is_some_and(|aliases| aliases.iter().all(Value::is_string))
    };
    match object.get("aliases") {
        None | Some(Value::Null) => Ok(()),
        Some(aliases) if are_names(aliases) => Ok(()),
        Some(_) => Err(invalid("`aliases` in an Avro schema is no list of names")),
    }
}

/// Returns the full name that an object defines.
fn defined_name(object: &Map<String, Value>, namespace: &str) -> Result<String> {
    check_aliases(object)?;
    let name = object.get("name").and_then(Value::as_str);
    let name = name.filter(|name| !name.is_empty() && primitive(name).is_none());
    let name = name.ok_or_else(|| {
        invalid("an Avro record, enum or fixed has no name, or that of a primitive type")
    })?;
    let own = object.get("namespace").and_then(Value::as_str);
    Ok(full_name(name, own.unwrap_or(namespace)))
}

/// A name with a dot is a full one.
fn full_name(name: &str, namespace: &str) -> String {
    match name.contains('.') || namespace.is_empty() {
        // A leading dot is how some writers spell the namespace that has no name.
        true => name.strip_prefix('.').unwrap_or(name).to_owned(),
        false => format!("{namespace}.{name}"),
    }
}
