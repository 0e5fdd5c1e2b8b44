//! The Connect schema of a message type, as Confluent's `ProtobufConverter` makes it with its
//! defaults, together with the plan that fills its columns.
//!
//! All fields are optional; a oneof is a struct of its members; wrappers are their values. Points in
//! time and times of day keep their nanoseconds, which the converter cuts to milliseconds.

use std::sync::Arc;

use super::plan::{FieldPlan, Kind, MessagePlan, Mode, Slot};
use super::types::{EnumType, FieldType, MessageType, Of, Scalar, Types};
use crate::error::{Result, SinkError};
use crate::limits::{NESTING_MAX, SCHEMA_FIELDS_MAX};
use crate::wire::{LogicalType, SourceField, SourceKind, SourceSchema};

const NAMESPACE: &str = "io.confluent.connect.protobuf";

/// Compiles a message type.
pub(super) fn compile(types: &Types, root: usize) -> Result<(SourceSchema, Kind)> {
    let mut compiler = Compiler {
        types,
        open: Vec::new(),
        left: SCHEMA_FIELDS_MAX,
    };
    // A record that is a wrapper is its value; other well-known types are what they are made of.
    if let Some(scalar) = wrapped(&types.message(root)?.full_name) {
        return Ok((scalar_schema(scalar), Kind::Wrapper(scalar)));
    }
    compiler.message(root)
}

fn wrapped(full_name: &str) -> Option<Scalar> {
    Some(match full_name.strip_prefix("google.protobuf.")? {
        "DoubleValue" => Scalar::Double,
        "FloatValue" => Scalar::Float,
        "Int64Value" => Scalar::Int64,
        "UInt64Value" => Scalar::Uint64,
        "Int32Value" => Scalar::Int32,
        "UInt32Value" => Scalar::Uint32,
        "BoolValue" => Scalar::Bool,
        "StringValue" => Scalar::Text,
        "BytesValue" => Scalar::Bytes,
        _ => return None,
    })
}

fn scalar_schema(scalar: Scalar) -> SourceSchema {
    SourceSchema::scalar(match scalar {
        Scalar::Int32 | Scalar::Sint32 | Scalar::Sfixed32 => SourceKind::Int32,
        Scalar::Uint32
        | Scalar::Fixed32
        | Scalar::Int64
        | Scalar::Sint64
        | Scalar::Sfixed64
        | Scalar::Uint64
        | Scalar::Fixed64 => SourceKind::Int64,
        Scalar::Float => SourceKind::Float32,
        Scalar::Double => SourceKind::Float64,
        Scalar::Bool => SourceKind::Boolean,
        Scalar::Text => SourceKind::String,
        Scalar::Bytes => SourceKind::Bytes,
    })
}

/// What the converter notes of a number that is no plain one.
fn type_parameter(scalar: Scalar) -> Option<&'static str> {
    Some(match scalar {
        Scalar::Sint32 => "sint32",
        Scalar::Sfixed32 => "sfixed32",
        Scalar::Uint32 => "uint32",
        Scalar::Fixed32 => "fixed32",
        Scalar::Sint64 => "sint64",
        Scalar::Sfixed64 => "sfixed64",
        Scalar::Uint64 => "uint64",
        Scalar::Fixed64 => "fixed64",
        _ => return None,
    })
}

struct Compiler<'t> {
    types: &'t Types,
    /// The messages around the field.
    open: Vec<usize>,
    left: usize,
}

impl Compiler<'_> {
    fn message(&mut self, index: usize) -> Result<(SourceSchema, Kind)> {
        if self.open.contains(&index) || self.open.len() >= NESTING_MAX {
            return Err(SinkError::data(
                "SCHEMA_TOO_DEEP",
                "a message type contains itself or nests too deeply; recursive schemas have no \
                 column type",
            ));
        }
        self.open.push(index);
        let compiled = self.open_message(self.types.message(index)?);
        self.open.pop();
        compiled
    }

    fn open_message(&mut self, of: &MessageType) -> Result<(SourceSchema, Kind)> {
        let mut fields: Vec<SourceField> = Vec::new();
        let mut plans = Vec::with_capacity(of.fields.len());
        for (index, name) in of.oneofs.iter().enumerate() {
            let mut members = Vec::new();
            let own = of.fields.iter().filter(|field| field.oneof == Some(index));
            for (member, field) in own.enumerate() {
                let slot = Slot::Member {
                    oneof: fields.len(),
                    member,
                };
                let (schema, plan) = self.field(field, slot)?;
                members.push(named(&field.name, schema));
                plans.push(plan);
            }
            let union = SourceSchema::structure([]).named(&format!("{NAMESPACE}.Union.{name}"));
            let union = union.with_fields(members).optional();
            fields.push(named(&format!("{name}_{index}"), union));
        }
        for field in of.fields.iter().filter(|field| field.oneof.is_none()) {
            let (schema, plan) = self.field(field, Slot::Column(fields.len()))?;
            fields.push(named(&field.name, schema));
            plans.push(plan);
        }
        let schema = SourceSchema::structure([]).named(of.name());
        let schema = schema.with_fields(fields);
        Ok((
            schema,
            Kind::Message(MessagePlan::new(plans, of.oneofs.len())),
        ))
    }

    fn field(&mut self, field: &FieldType, slot: Slot) -> Result<(SourceSchema, FieldPlan)> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            let message = format!("a message type has more than {SCHEMA_FIELDS_MAX} fields");
            SinkError::data("SCHEMA_TOO_LARGE", message)
        })?;
        let (schema, kind) = self
            .value(field)
            .map_err(|error| error.with("field", &field.name))?;
        let (schema, mode) = match field.key {
            Some(key) => {
                let key_schema = tagged(scalar_schema(key), 1);
                let schema = SourceSchema::map(key_schema, tagged(schema, 2));
                (schema.named(&field.name), Mode::Map(key))
            }
            None if field.is_repeated => (SourceSchema::array(schema.optional()), Mode::Repeated),
            None if matches!(slot, Slot::Member { .. }) || field.is_optional => {
                (schema, Mode::Optional)
            }
            None if field.is_required => (schema, Mode::Required),
            None => (schema, Mode::Implicit),
        };
        let plan = FieldPlan {
            number: field.number,
            name: field.name.as_str().into(),
            slot,
            kind,
            mode,
        };
        Ok((tagged(schema, field.number), plan))
    }

    /// Returns schema and plan of a value of the field's type, be it one of many.
    fn value(&mut self, field: &FieldType) -> Result<(SourceSchema, Kind)> {
        let parameter = |name: &str| {
            let found = field.parameters.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        match field.of {
            Of::Scalar(scalar) => {
                let is_small = matches!(scalar, Scalar::Int32 | Scalar::Sint32 | Scalar::Sfixed32);
                match parameter("connect.type").filter(|_| is_small) {
                    Some("int8") => {
                        Ok((SourceSchema::scalar(SourceKind::Int8), Kind::Int8(scalar)))
                    }
                    Some("int16") => {
                        Ok((SourceSchema::scalar(SourceKind::Int16), Kind::Int16(scalar)))
                    }
                    _ => {
                        let mut schema = scalar_schema(scalar);
                        if let Some(name) = type_parameter(scalar) {
                            schema = schema.with_parameter(&format!("{NAMESPACE}.Type"), name);
                        }
                        Ok((schema, Kind::Scalar(scalar)))
                    }
                }
            }
            Of::Enum(index) => Ok(enumeration(self.types.enumeration(index)?)),
            Of::Message(index) => {
                let of = self.types.message(index)?;
                match of.full_name.as_str() {
                    "google.protobuf.Timestamp" => {
                        let schema = SourceSchema::scalar(SourceKind::Int64);
                        Ok((schema.named("timestamp-nanos"), Kind::Timestamp))
                    }
                    "google.type.Date" => {
                        Ok((SourceSchema::logical_type(LogicalType::Date), Kind::Date))
                    }
                    "google.type.TimeOfDay" => {
                        let schema = SourceSchema::scalar(SourceKind::Int64);
                        let schema = schema.named("io.debezium.time.NanoTime");
                        Ok((schema, Kind::TimeOfDay))
                    }
                    "confluent.type.Decimal" => {
                        let number = |name| parameter(name).and_then(|text| text.parse().ok());
                        let scale = number("scale").unwrap_or(0);
                        let logical = LogicalType::Decimal { scale };
                        let mut schema = SourceSchema::logical_type(logical);
                        if let Some(precision) = number("precision") {
                            let precision = precision.to_string();
                            let name = "connect.decimal.precision";
                            schema = schema.with_parameter(name, &precision);
                        }
                        Ok((schema, Kind::Decimal(scale)))
                    }
                    name => match wrapped(name) {
                        Some(scalar) => Ok((scalar_schema(scalar), Kind::Wrapper(scalar))),
                        None => self.message(index),
                    },
                }
            }
        }
    }
}

fn enumeration(of: &EnumType) -> (SourceSchema, Kind) {
    let prefix = format!("{NAMESPACE}.Enum");
    let mut schema = SourceSchema::scalar(SourceKind::String).named(&of.name);
    schema = schema.with_parameter(&prefix, &of.name);
    for (name, number) in &of.values {
        schema = schema.with_parameter(&format!("{prefix}.{name}"), &number.to_string());
    }
    let values = of.values.iter();
    let mut symbols: Vec<(i32, Box<str>)> = Vec::new();
    for (name, number) in values {
        // Of aliases the first counts.
        if !symbols.iter().any(|(known, _)| known == number) {
            symbols.push((*number, name.as_str().into()));
        }
    }
    let first = symbols.first().map_or(0, |(number, _)| *number);
    symbols.sort_unstable_by_key(|(number, _)| *number);
    let kind = Kind::Enum {
        name: of.name.as_str().into(),
        first,
        symbols,
        is_closed: of.is_closed,
    };
    (schema, kind)
}

fn named(name: &str, schema: SourceSchema) -> SourceField {
    SourceField {
        name: name.to_owned(),
        schema: Arc::new(schema),
    }
}

fn tagged(schema: SourceSchema, number: u32) -> SourceSchema {
    let schema = schema.with_parameter(&format!("{NAMESPACE}.Tag"), &number.to_string());
    schema.optional()
}
