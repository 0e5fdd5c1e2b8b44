//! The Connect schema of an Avro schema: what Confluent's `AvroConverter` makes of it.
//!
//! It is the same in kinds, names, parameters and optionality, so that a topic lands in the same
//! columns behind the converter and decoded here. On top, logical types that the converter drops
//! keep their meaning: times and timestamps in microseconds and nanoseconds, timestamps without
//! zone, and UUIDs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::schema::{AvroField, AvroSchema, AvroType, Shape, TypeId, invalid, parameters};
use crate::decode::defaults::default_text;
use crate::error::{Result, SinkError};
use crate::limits::{NESTING_MAX, SCHEMA_FIELDS_MAX};
use crate::wire::schema::logical_names;
use crate::wire::{LogicalType, SourceField, SourceKind, SourceSchema};

const NAMESPACE: &str = "io.confluent.connect.avro";
const DEFAULT_NAME: &str = "io.confluent.connect.avro.ConnectDefault";
const UNION: &str = "io.confluent.connect.avro.Union";
const MAP_ENTRY: &str = "MapEntry";
/// The precision that a converter gives a decimal without one.
const PRECISION_UNKNOWN: i64 = 64;

/// Returns the Connect schema of `schema`.
pub(crate) fn connect_schema(schema: &AvroSchema) -> Result<SourceSchema> {
    let mut walk = Walk {
        schema,
        open: Vec::new(),
        left: SCHEMA_FIELDS_MAX,
    };
    walk.typed(schema.root(), false, None)
}

/// Which member of a union is the only one beside null.
pub(crate) fn only_member(schema: &AvroSchema, members: &[TypeId]) -> Result<Option<TypeId>> {
    Ok(match members {
        [one] => Some(*one),
        [first, second] => match (&schema.get(*first)?.shape, &schema.get(*second)?.shape) {
            (Shape::Null, _) => Some(*second),
            (_, Shape::Null) => Some(*first),
            _ => None,
        },
        _ => None,
    })
}

/// Returns the fields of the entries when `of` is an array that stands for a map whose keys are not
/// text: the key's and the value's.
pub(crate) fn map_entry(schema: &AvroSchema, items: TypeId) -> Result<Option<[TypeId; 2]>> {
    let entry = schema.get(items)?;
    let Shape::Record(fields) = &entry.shape else {
        return Ok(None);
    };
    let is_entry = entry.text("connect.internal.type") == Some(MAP_ENTRY)
        || entry.name.as_deref() == Some("io.confluent.connect.avro.MapEntry");
    if !is_entry {
        return Ok(None);
    }
    match fields.as_slice() {
        [key, value] if key.name == "key" && value.name == "value" => Ok(Some([key.of, value.of])),
        _ => Err(invalid(
            "a map that is a list of entries in Avro has other fields than `key` and `value`",
        )),
    }
}

struct Walk<'s> {
    schema: &'s AvroSchema,
    /// The records around the type.
    open: Vec<TypeId>,
    left: usize,
}

impl Walk<'_> {
    fn typed(
        &mut self,
        id: TypeId,
        optional: bool,
        field: Option<&AvroField>,
    ) -> Result<SourceSchema> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            let message = format!("an Avro schema has more than {SCHEMA_FIELDS_MAX} fields");
            SinkError::data("SCHEMA_TOO_LARGE", message)
        })?;
        if self.open.contains(&id) || self.open.len() >= NESTING_MAX {
            let message = format!(
                "an Avro schema nests deeper than {NESTING_MAX} levels or contains itself; \
                 recursive schemas have no column type"
            );
            return Err(SinkError::data("SCHEMA_TOO_DEEP", message));
        }
        let of = self.schema.get(id)?;
        self.open.push(id);
        let typed = self.of_shape(of, optional, field);
        self.open.pop();
        typed
    }

    fn of_shape(
        &mut self,
        of: &AvroType,
        optional: bool,
        field: Option<&AvroField>,
    ) -> Result<SourceSchema> {
        let schema = match &of.shape {
            Shape::Null | Shape::Open => {
                let message = "an Avro type is null and nothing else: there is no column for it";
                return Err(SinkError::data("SCHEMA_TYPE_UNSUPPORTED", message));
            }
            Shape::Union(members) => return self.union(members, optional),
            Shape::Boolean => SourceSchema::scalar(SourceKind::Boolean),
            Shape::Int => int(of)?,
            Shape::Long => long(of),
            Shape::Float => SourceSchema::scalar(SourceKind::Float32),
            Shape::Double => SourceSchema::scalar(SourceKind::Float64),
            Shape::String => text(of),
            Shape::Bytes => bytes(of)?,
            Shape::Fixed(size) => fixed(of, *size)?,
            Shape::Enum(symbols) => symbol(of, symbols),
            Shape::Array(items) => match map_entry(self.schema, *items)? {
                Some([key, value]) => {
                    let key = self.typed(key, false, None)?;
                    SourceSchema::map(key, self.typed(value, false, None)?)
                }
                None => SourceSchema::array(self.typed(*items, false, None)?),
            },
            Shape::Map(values) => SourceSchema::map(
                SourceSchema::scalar(SourceKind::String),
                self.typed(*values, false, None)?,
            ),
            Shape::Record(fields) => self.record(of, fields)?,
        };
        annotated(schema, of, optional, field)
    }

    fn union(&mut self, members: &[TypeId], optional: bool) -> Result<SourceSchema> {
        if let Some(only) = only_member(self.schema, members)? {
            return self.typed(only, optional || members.len() > 1, None);
        }
        let mut fields: Vec<SourceField> = Vec::with_capacity(members.len());
        let mut optional = optional;
        for member in members {
            let of = self.schema.get(*member)?;
            if matches!(of.shape, Shape::Null) {
                optional = true;
                continue;
            }
            let name = of.simple_name().unwrap_or(of.type_name()).to_owned();
            if fields.iter().any(|field| field.name == name) {
                let message = "two types of an Avro union have the same name but for the namespace";
                return Err(SinkError::data("SCHEMA_NAME_DUPLICATE", message).with("field", name));
            }
            let member = self.typed(*member, true, None)?;
            fields.push(SourceField {
                name,
                schema: Arc::new(member),
            });
        }
        let mut union = SourceSchema::structure([]).named(UNION);
        union.optional = optional;
        Ok(union.with_fields(fields))
    }

    fn record(&mut self, of: &AvroType, fields: &[AvroField]) -> Result<SourceSchema> {
        let mut typed = Vec::with_capacity(fields.len());
        let mut record = SourceSchema::structure([]);
        if let Some(doc) = of.text("doc") {
            record = record.with_parameter(&format!("{NAMESPACE}.record.doc"), doc);
        }
        for field in fields {
            if let Some(doc) = &field.doc {
                let name = format!("{NAMESPACE}.field.doc.{}", field.name);
                record = record.with_parameter(&name, doc);
            }
            let schema = self.typed(field.of, false, Some(field));
            let mut schema = schema.map_err(|error| error.with("field", &field.name))?;
            extend(&mut schema.parameters, &field.parameters);
            typed.push(SourceField {
                name: field.name.clone(),
                schema: Arc::new(schema),
            });
        }
        Ok(record.with_fields(typed))
    }
}

fn extend(parameters: &mut BTreeMap<String, String>, more: &BTreeMap<String, String>) {
    for (name, value) in more {
        parameters.insert(name.clone(), value.clone());
    }
}

fn int(of: &AvroType) -> Result<SourceSchema> {
    if let Some(logical) = of.text("logicalType") {
        return Ok(if logical.eq_ignore_ascii_case("date") {
            SourceSchema::logical_type(LogicalType::Date)
        } else if logical.eq_ignore_ascii_case("time-millis") {
            SourceSchema::logical_type(LogicalType::Time)
        } else {
            SourceSchema::scalar(SourceKind::Int32)
        });
    }
    Ok(SourceSchema::scalar(match of.text("connect.type") {
        None => SourceKind::Int32,
        Some("int8") => SourceKind::Int8,
        Some("int16") => SourceKind::Int16,
        Some(_) => {
            return Err(invalid(
                "`connect.type` of an Avro int is neither `int8` nor `int16`",
            ));
        }
    }))
}

fn long(of: &AvroType) -> SourceSchema {
    let Some(logical) = of.text("logicalType") else {
        return SourceSchema::scalar(SourceKind::Int64);
    };
    if logical.eq_ignore_ascii_case("timestamp-millis") {
        return SourceSchema::logical_type(LogicalType::Timestamp);
    }
    let meaning = match logical {
        "time-micros" => "io.debezium.time.MicroTime",
        "timestamp-micros" | "timestamp-nanos" => logical,
        "local-timestamp-millis" => "io.debezium.time.Timestamp",
        "local-timestamp-micros" => "io.debezium.time.MicroTimestamp",
        "local-timestamp-nanos" => "io.debezium.time.NanoTimestamp",
        _ => "",
    };
    let schema = SourceSchema::scalar(SourceKind::Int64);
    // The name that a converter wrote says more.
    match meaning.is_empty() || of.text("connect.name").is_some() {
        true => schema,
        false => schema.named(meaning),
    }
}

fn text(of: &AvroType) -> SourceSchema {
    let schema = SourceSchema::scalar(SourceKind::String);
    let is_uuid = of.text("logicalType") == Some("uuid");
    match is_uuid && of.text("connect.name").is_none() {
        true => schema.named("uuid"),
        false => schema,
    }
}

fn bytes(of: &AvroType) -> Result<SourceSchema> {
    match of.text("logicalType") {
        Some(logical) if logical.eq_ignore_ascii_case("decimal") => decimal(of),
        _ => Ok(SourceSchema::scalar(SourceKind::Bytes)),
    }
}

fn decimal(of: &AvroType) -> Result<SourceSchema> {
    let number = |attribute: &str| match of.attributes.get(attribute) {
        None => Ok(None),
        Some(value) => match value.as_i64().map(i32::try_from) {
            Some(Ok(number)) => Ok(Some(number)),
            _ => Err(invalid(format!(
                "`{attribute}` of a decimal in an Avro schema is no whole number"
            ))),
        },
    };
    let scale = number("scale")?.unwrap_or(0);
    let schema = SourceSchema::logical_type(LogicalType::Decimal { scale });
    Ok(match number("precision")? {
        Some(precision) if i64::from(precision) != PRECISION_UNKNOWN => {
            schema.with_parameter("connect.decimal.precision", &precision.to_string())
        }
        _ => schema,
    })
}

/// Whether the values of a fixed are the bytes of UUIDs.
pub(crate) fn is_uuid_fixed(of: &AvroType, size: usize) -> bool {
    size == 16 && of.text("logicalType") == Some("uuid") && of.text("connect.name").is_none()
}

fn fixed(of: &AvroType, size: usize) -> Result<SourceSchema> {
    if of.text("logicalType") == Some("duration") {
        let message = "an Avro duration has no column type: send its parts as numbers";
        return Err(SinkError::data("SCHEMA_TYPE_UNSUPPORTED", message));
    }
    if is_uuid_fixed(of, size) {
        return Ok(SourceSchema::scalar(SourceKind::String).named("uuid"));
    }
    Ok(bytes(of)?.with_parameter("connect.fixed.size", &size.to_string()))
}

fn symbol(of: &AvroType, symbols: &[String]) -> SourceSchema {
    let simple = of.simple_name().unwrap_or_default();
    let mut schema = SourceSchema::scalar(SourceKind::String);
    if let Some(doc) = of.text("doc") {
        schema = schema.with_parameter(&format!("{NAMESPACE}.enum.doc.{simple}"), doc);
    }
    if let Some(default) = of.text("default") {
        schema = schema.with_parameter(&format!("{NAMESPACE}.enum.default.{simple}"), default);
    }
    let of_name = of.name.as_deref().unwrap_or_default();
    schema = schema.with_parameter(&format!("{NAMESPACE}.Enum"), of_name);
    for symbol in symbols {
        schema = schema.with_parameter(&format!("{NAMESPACE}.Enum.{symbol}"), symbol);
    }
    schema
}

/// Adds what the attributes of any type say.
fn annotated(
    mut schema: SourceSchema,
    of: &AvroType,
    optional: bool,
    field: Option<&AvroField>,
) -> Result<SourceSchema> {
    schema.doc = of.text("connect.doc").map(str::to_owned);
    if let Some(version) = of.attributes.get("connect.version").and_then(Value::as_i64) {
        schema.version = i32::try_from(version).ok().filter(|version| *version >= 0);
    }
    extend(&mut schema.parameters, &parameters(&of.attributes));
    for (name, value) in &of.attributes {
        if name.starts_with("avro") {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            schema = schema.with_parameter(name, &value);
        }
    }
    let own = of.attributes.get("connect.default");
    let of_field = field.and_then(|field| field.default.as_ref());
    let default = of_field.or(own).filter(|default| !default.is_null());
    schema.has_default = default.is_some();
    schema.default = default.and_then(|default| default_text(default, &schema));
    if of_field.is_some() && own.is_none() {
        schema = schema.with_parameter(&format!("{NAMESPACE}.field.default"), "true");
    }
    if let Some(name) = connect_name(&schema, of)
        && !name.starts_with(DEFAULT_NAME)
    {
        match &schema.name {
            None => schema.name = Some(name.to_owned()),
            Some(known) if known == name => {}
            Some(_) => {
                let message = "`connect.name` in an Avro schema is not that of the logical type";
                return Err(invalid(message).with("name", name));
            }
        }
    }
    schema.optional = optional;
    schema.with_logical()
}

fn connect_name<'t>(schema: &SourceSchema, of: &'t AvroType) -> Option<&'t str> {
    if let Some(name) = of.text("connect.name") {
        return Some(name);
    }
    match of.shape {
        Shape::Record(_) | Shape::Enum(_) => of.name.as_deref(),
        // The name of a fixed that is a decimal or a UUID says nothing about its values.
        Shape::Fixed(_) => {
            let names = [Some(logical_names::DECIMAL), Some("uuid")];
            match names.contains(&schema.name.as_deref()) {
                true => None,
                false => of.name.as_deref(),
            }
        }
        _ => None,
    }
}
