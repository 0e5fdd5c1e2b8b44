//! Connect schemas as Java registers them: one canonical byte form, parsed once per schema.
//!
//! Invariant: a schema that parses has at most `SCHEMA_FIELDS_MAX` nodes, nests at most
//! `NESTING_MAX` deep, has the children that its kind needs, and a Decimal has its scale.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::read::Reader;
use super::write::Writer;
use crate::error::{Result, SinkError};
use crate::limits::{NESTING_MAX, SCHEMA_FIELDS_MAX, SCHEMAS_MAX};

/// The version of the canonical schema bytes.
pub const SCHEMA_VERSION: u8 = 1;

const FLAG_OPTIONAL: u8 = 1;
const FLAG_NAME: u8 = 1 << 1;
const FLAG_VERSION: u8 = 1 << 2;
const FLAG_DOC: u8 = 1 << 3;
const FLAG_DEFAULT: u8 = 1 << 4;
const FLAG_PARAMETERS: u8 = 1 << 5;
const FLAG_DEFAULT_TEXT: u8 = 1 << 6;
const FLAGS_KNOWN: u8 = (1 << 7) - 1;

/// The physical kind of a Connect schema (`org.apache.kafka.connect.data.Schema.Type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// An 8-bit signed integer.
    Int8,
    /// A 16-bit signed integer.
    Int16,
    /// A 32-bit signed integer.
    Int32,
    /// A 64-bit signed integer.
    Int64,
    /// A 32-bit IEEE 754 number.
    Float32,
    /// A 64-bit IEEE 754 number.
    Float64,
    /// True or false.
    Boolean,
    /// Unicode text.
    String,
    /// Raw bytes.
    Bytes,
    /// A list; `SourceSchema::value` is the schema of its elements.
    Array,
    /// A map; `SourceSchema::key` and `value` are the schemas of its entries.
    Map,
    /// A record; `SourceSchema::fields` are its fields.
    Struct,
}

impl SourceKind {
    const ALL: [SourceKind; 12] = [
        SourceKind::Int8,
        SourceKind::Int16,
        SourceKind::Int32,
        SourceKind::Int64,
        SourceKind::Float32,
        SourceKind::Float64,
        SourceKind::Boolean,
        SourceKind::String,
        SourceKind::Bytes,
        SourceKind::Array,
        SourceKind::Map,
        SourceKind::Struct,
    ];

    fn from_number(number: u8) -> Option<Self> {
        let index = usize::from(number).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    fn number(self) -> u8 {
        let index = Self::ALL.iter().position(|kind| *kind == self);
        index
            .and_then(|index| u8::try_from(index + 1).ok())
            .unwrap_or(0)
    }

    /// Returns Connect's name of this kind, such as `int32`.
    pub fn name(self) -> &'static str {
        match self {
            SourceKind::Int8 => "int8",
            SourceKind::Int16 => "int16",
            SourceKind::Int32 => "int32",
            SourceKind::Int64 => "int64",
            SourceKind::Float32 => "float32",
            SourceKind::Float64 => "float64",
            SourceKind::Boolean => "boolean",
            SourceKind::String => "string",
            SourceKind::Bytes => "bytes",
            SourceKind::Array => "array",
            SourceKind::Map => "map",
            SourceKind::Struct => "struct",
        }
    }
}

/// Connect's four built-in logical types. Their values travel as such, not as their base type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogicalType {
    /// `org.apache.kafka.connect.data.Decimal` on bytes.
    Decimal {
        /// Digits after the point; may be negative.
        scale: i32,
    },
    /// `org.apache.kafka.connect.data.Date` on int32.
    Date,
    /// `org.apache.kafka.connect.data.Time` on int32.
    Time,
    /// `org.apache.kafka.connect.data.Timestamp` on int64.
    Timestamp,
}

/// The schema names of the built-in logical types.
pub mod logical_names {
    /// Decimal on bytes; the parameter `scale` is its scale.
    pub const DECIMAL: &str = "org.apache.kafka.connect.data.Decimal";
    /// Days since the epoch on int32.
    pub const DATE: &str = "org.apache.kafka.connect.data.Date";
    /// Milliseconds since midnight on int32.
    pub const TIME: &str = "org.apache.kafka.connect.data.Time";
    /// Milliseconds since the epoch on int64.
    pub const TIMESTAMP: &str = "org.apache.kafka.connect.data.Timestamp";
}

/// A field of a struct schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceField {
    /// The field's name.
    pub name: String,
    /// The field's schema.
    pub schema: Arc<SourceSchema>,
}

/// A node of a Connect schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSchema {
    kind: SourceKind,
    /// Whether null is allowed.
    pub optional: bool,
    /// The semantic name, such as `io.debezium.time.MicroTimestamp`.
    pub name: Option<String>,
    /// The version that the producer gave.
    pub version: Option<i32>,
    /// The documentation.
    pub doc: Option<String>,
    /// The parameters, such as a Decimal's `scale`.
    pub parameters: BTreeMap<String, String>,
    /// Whether the schema has a default. Frazil never substitutes it for a null.
    pub has_default: bool,
    /// The default of a scalar other than bytes, as text: digits for numbers, days for dates,
    /// milliseconds for times and timestamps. It becomes the default of a column of format version 3.
    pub default: Option<String>,
    fields: Vec<SourceField>,
    key: Option<Arc<SourceSchema>>,
    value: Option<Arc<SourceSchema>>,
    logical: Option<LogicalType>,
}

impl SourceSchema {
    fn of(kind: SourceKind) -> Self {
        SourceSchema {
            kind,
            optional: false,
            name: None,
            version: None,
            doc: None,
            parameters: BTreeMap::new(),
            has_default: false,
            default: None,
            fields: Vec::new(),
            key: None,
            value: None,
            logical: None,
        }
    }

    /// Creates a required schema of a scalar `kind`; of another kind, one without children.
    pub fn scalar(kind: SourceKind) -> Self {
        let mut schema = Self::of(kind);
        let string = || Arc::new(Self::of(SourceKind::String));
        if matches!(kind, SourceKind::Array | SourceKind::Map) {
            schema.value = Some(string());
        }
        if kind == SourceKind::Map {
            schema.key = Some(string());
        }
        schema
    }

    /// Creates a required schema of a built-in logical type.
    pub fn logical_type(logical: LogicalType) -> Self {
        let (kind, name) = match logical {
            LogicalType::Decimal { .. } => (SourceKind::Bytes, logical_names::DECIMAL),
            LogicalType::Date => (SourceKind::Int32, logical_names::DATE),
            LogicalType::Time => (SourceKind::Int32, logical_names::TIME),
            LogicalType::Timestamp => (SourceKind::Int64, logical_names::TIMESTAMP),
        };
        let mut schema = Self::of(kind).named(name);
        if let LogicalType::Decimal { scale } = logical {
            schema = schema.with_parameter("scale", &scale.to_string());
        }
        schema.version = Some(1);
        schema.logical = Some(logical);
        schema
    }

    /// Creates a required array of `element`.
    pub fn array(element: SourceSchema) -> Self {
        let mut schema = Self::of(SourceKind::Array);
        schema.value = Some(Arc::new(element));
        schema
    }

    /// Creates a required map from `key` to `value`.
    pub fn map(key: SourceSchema, value: SourceSchema) -> Self {
        let mut schema = Self::of(SourceKind::Map);
        schema.key = Some(Arc::new(key));
        schema.value = Some(Arc::new(value));
        schema
    }

    /// Creates a required struct with `fields`.
    pub fn structure<'n>(fields: impl IntoIterator<Item = (&'n str, SourceSchema)>) -> Self {
        let mut schema = Self::of(SourceKind::Struct);
        schema.fields = fields
            .into_iter()
            .map(|(name, schema)| SourceField {
                name: name.to_owned(),
                schema: Arc::new(schema),
            })
            .collect();
        schema
    }

    /// Allows null.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Gives the semantic name. A name does not by itself make a logical type.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with_parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Makes it the built-in logical type that its name says, if it is one on the right kind.
    pub(crate) fn with_logical(mut self) -> Result<Self> {
        self.logical = logical_type(&self)?;
        Ok(self)
    }

    /// Returns this struct with other fields.
    pub(crate) fn with_fields(&self, fields: Vec<SourceField>) -> Self {
        SourceSchema {
            fields,
            ..self.clone()
        }
    }

    /// Returns this list or map with other schemas of what is in it.
    pub(crate) fn with_children(
        &self,
        key: Option<Arc<SourceSchema>>,
        value: Option<Arc<SourceSchema>>,
    ) -> Self {
        SourceSchema {
            key,
            value,
            ..self.clone()
        }
    }

    /// Returns the physical kind.
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Returns the built-in logical type, when it is one on the right kind.
    pub fn logical(&self) -> Option<LogicalType> {
        self.logical
    }

    /// Returns the fields of a struct, else none.
    pub fn fields(&self) -> &[SourceField] {
        &self.fields
    }

    /// Returns the index and field called `name`.
    pub fn field(&self, name: &str) -> Option<(usize, &SourceField)> {
        let found = |field: &(usize, &SourceField)| field.1.name == name;
        self.fields.iter().enumerate().find(found)
    }

    /// Returns the schema of a map's keys.
    pub fn key(&self) -> Option<&Arc<SourceSchema>> {
        self.key.as_ref()
    }

    /// Returns the schema of an array's elements or a map's values.
    pub fn value(&self) -> Option<&Arc<SourceSchema>> {
        self.value.as_ref()
    }

    /// Parses the canonical bytes that Java's `SchemaWriter` writes.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "schema");
        let version = reader.u8()?;
        if version != SCHEMA_VERSION {
            let message = format!(
                "schema bytes have version {version}, this library reads {SCHEMA_VERSION}; \
                 install the jar and the native library of one release"
            );
            return Err(SinkError::fatal("WIRE_VERSION", message));
        }
        let mut nodes_left = SCHEMA_FIELDS_MAX;
        let schema = parse_node(&mut reader, 1, &mut nodes_left)?;
        reader.finish()?;
        Ok(schema)
    }

    /// Returns the canonical bytes: what `parse` reads and what identifies the schema.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(SCHEMA_VERSION);
        write_node(&mut writer, self);
        writer.bytes
    }
}

fn parse_node(reader: &mut Reader, depth: usize, nodes_left: &mut usize) -> Result<SourceSchema> {
    if depth > NESTING_MAX {
        let message = format!("a schema nests deeper than {NESTING_MAX} levels");
        return Err(SinkError::data("SCHEMA_TOO_DEEP", message));
    }
    *nodes_left = nodes_left.checked_sub(1).ok_or_else(|| {
        let message = format!("a schema has more than {SCHEMA_FIELDS_MAX} fields on all levels");
        SinkError::data("SCHEMA_TOO_LARGE", message)
    })?;
    let kind = SourceKind::from_number(reader.u8()?);
    let kind = kind.ok_or_else(|| reader.corrupt("schema kind is unknown"))?;
    let flags = reader.u8()?;
    if flags & !FLAGS_KNOWN != 0 {
        return Err(reader.corrupt("schema flag is unknown"));
    }
    let has = |flag: u8| flags & flag != 0;
    let mut schema = SourceSchema::of(kind);
    schema.optional = has(FLAG_OPTIONAL);
    schema.has_default = has(FLAG_DEFAULT);
    if has(FLAG_NAME) {
        schema.name = Some(reader.text()?.to_owned());
    }
    if has(FLAG_VERSION) {
        schema.version = Some(reader.i32()?);
    }
    if has(FLAG_DOC) {
        schema.doc = Some(reader.text()?.to_owned());
    }
    if has(FLAG_PARAMETERS) {
        for _ in 0..reader.count(8)? {
            let name = reader.text()?.to_owned();
            schema.parameters.insert(name, reader.text()?.to_owned());
        }
    }
    if has(FLAG_DEFAULT_TEXT) {
        schema.default = Some(reader.text()?.to_owned());
    }
    schema.logical = logical_type(&schema)?;
    if kind == SourceKind::Map {
        schema.key = Some(Arc::new(parse_node(reader, depth + 1, nodes_left)?));
    }
    if matches!(kind, SourceKind::Map | SourceKind::Array) {
        schema.value = Some(Arc::new(parse_node(reader, depth + 1, nodes_left)?));
    }
    if kind == SourceKind::Struct {
        for _ in 0..reader.count(6)? {
            let name = reader.text()?.to_owned();
            let field = Arc::new(parse_node(reader, depth + 1, nodes_left)?);
            schema.fields.push(SourceField {
                name,
                schema: field,
            });
        }
    }
    Ok(schema)
}

fn logical_type(schema: &SourceSchema) -> Result<Option<LogicalType>> {
    let name = schema.name.as_deref().unwrap_or_default();
    Ok(match (schema.kind, name) {
        (SourceKind::Bytes, logical_names::DECIMAL) => {
            let scale = schema
                .parameters
                .get("scale")
                .and_then(|scale| scale.parse().ok());
            let scale = scale.ok_or_else(|| {
                let message = "a Decimal schema needs an integer parameter `scale`; \
                               correct the producer or converter";
                SinkError::data("SCHEMA_INVALID", message)
            })?;
            Some(LogicalType::Decimal { scale })
        }
        (SourceKind::Int32, logical_names::DATE) => Some(LogicalType::Date),
        (SourceKind::Int32, logical_names::TIME) => Some(LogicalType::Time),
        (SourceKind::Int64, logical_names::TIMESTAMP) => Some(LogicalType::Timestamp),
        _ => None,
    })
}

fn write_node(writer: &mut Writer, schema: &SourceSchema) {
    let flag = |present: bool, flag: u8| if present { flag } else { 0 };
    writer.u8(schema.kind.number());
    writer.u8(flag(schema.optional, FLAG_OPTIONAL)
        | flag(schema.name.is_some(), FLAG_NAME)
        | flag(schema.version.is_some(), FLAG_VERSION)
        | flag(schema.doc.is_some(), FLAG_DOC)
        | flag(schema.has_default, FLAG_DEFAULT)
        | flag(!schema.parameters.is_empty(), FLAG_PARAMETERS)
        | flag(schema.default.is_some(), FLAG_DEFAULT_TEXT));
    if let Some(name) = &schema.name {
        writer.text(name);
    }
    if let Some(version) = schema.version {
        writer.i32(version);
    }
    if let Some(doc) = &schema.doc {
        writer.text(doc);
    }
    if !schema.parameters.is_empty() {
        writer.length(schema.parameters.len());
        for (name, value) in &schema.parameters {
            writer.text(name);
            writer.text(value);
        }
    }
    if let Some(default) = &schema.default {
        writer.text(default);
    }
    for child in [&schema.key, &schema.value].into_iter().flatten() {
        write_node(writer, child);
    }
    if schema.kind == SourceKind::Struct {
        writer.length(schema.fields.len());
        for field in &schema.fields {
            writer.text(&field.name);
            write_node(writer, &field.schema);
        }
    }
}

/// The schemas of one session by the ids that Java got for them. The same bytes get the same id.
#[derive(Debug, Default)]
pub struct SchemaRegistry {
    ids: BTreeMap<Box<[u8]>, u32>,
    schemas: Vec<Arc<SourceSchema>>,
}

impl SchemaRegistry {
    /// Parses and remembers a schema and returns its id, from 1 on.
    pub fn register(&mut self, bytes: &[u8]) -> Result<u32> {
        if let Some(id) = self.ids.get(bytes) {
            return Ok(*id);
        }
        let schema = SourceSchema::parse(bytes)?;
        if self.schemas.len() >= SCHEMAS_MAX {
            let message = format!(
                "more than {SCHEMAS_MAX} different schemas reached this task; a producer or \
                 transform seems to make a new schema for each record"
            );
            return Err(SinkError::fatal("SCHEMAS_TOO_MANY", message));
        }
        self.schemas.push(Arc::new(schema));
        let id = u32::try_from(self.schemas.len()).unwrap_or(u32::MAX);
        self.ids.insert(bytes.into(), id);
        Ok(id)
    }

    /// Returns the schema with `id`.
    pub fn get(&self, id: u32) -> Option<Arc<SourceSchema>> {
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        self.schemas.get(index).cloned()
    }
}
