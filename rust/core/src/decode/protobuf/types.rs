//! Message types with their fields' types found: what `.proto` texts say, by index.

use std::collections::BTreeMap;

use super::parse::{self, Label};
use super::{invalid, known};
use crate::error::{Result, SinkError};
use crate::limits::SCHEMA_FIELDS_MAX;

/// The types of a schema and of all that it refers to.
#[derive(Debug, Default)]
pub(super) struct Types {
    pub(super) messages: Vec<MessageType>,
    pub(super) enums: Vec<EnumType>,
    names: BTreeMap<String, Named>,
}

#[derive(Debug, Clone, Copy)]
enum Named {
    Message(usize),
    Enum(usize),
}

#[derive(Debug)]
pub(super) struct MessageType {
    pub(super) full_name: String,
    pub(super) fields: Vec<FieldType>,
    /// The names of the oneofs.
    pub(super) oneofs: Vec<String>,
    /// The messages inside, in their order.
    inner: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct EnumType {
    pub(super) name: String,
    pub(super) values: Vec<(String, i32)>,
    /// Whether numbers without a value count as if there were none.
    pub(super) is_closed: bool,
}

#[derive(Debug)]
pub(super) struct FieldType {
    pub(super) name: String,
    pub(super) number: u32,
    pub(super) of: Of,
    pub(super) key: Option<Scalar>,
    pub(super) is_repeated: bool,
    /// Whether a record without the field has no value, and not the type's default.
    pub(super) is_optional: bool,
    pub(super) is_required: bool,
    pub(super) oneof: Option<usize>,
    pub(super) parameters: Vec<(String, String)>,
}

/// What a field is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Scalar(Scalar),
    Message(usize),
    Enum(usize),
}

/// A type without parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Int32,
    Sint32,
    Sfixed32,
    Uint32,
    Fixed32,
    Int64,
    Sint64,
    Sfixed64,
    Uint64,
    Fixed64,
    Float,
    Double,
    Bool,
    Text,
    Bytes,
}

impl Scalar {
    fn of(name: &str) -> Option<Scalar> {
        Some(match name {
            "int32" => Scalar::Int32,
            "sint32" => Scalar::Sint32,
            "sfixed32" => Scalar::Sfixed32,
            "uint32" => Scalar::Uint32,
            "fixed32" => Scalar::Fixed32,
            "int64" => Scalar::Int64,
            "sint64" => Scalar::Sint64,
            "sfixed64" => Scalar::Sfixed64,
            "uint64" => Scalar::Uint64,
            "fixed64" => Scalar::Fixed64,
            "float" => Scalar::Float,
            "double" => Scalar::Double,
            "bool" => Scalar::Bool,
            "string" => Scalar::Text,
            "bytes" => Scalar::Bytes,
            _ => return None,
        })
    }
}

/// Parses a schema with those that it refers to, and returns the types and the index of the message
/// that `indexes` name.
pub(super) fn types(
    text: &str,
    references: &[(&str, &str)],
    indexes: &[u32],
) -> Result<(Types, usize)> {
    let mut files = BTreeMap::new();
    let main = parse::file(text)?;
    let mut wanted: Vec<String> = main.imports.clone();
    let mut order = Vec::new();
    while let Some(name) = wanted.pop() {
        if files.contains_key(&name) {
            continue;
        }
        let text = references.iter().find(|(known, _)| *known == name);
        let text = match text {
            Some((_, text)) => *text,
            // What is only imported for its options says nothing about bytes.
            None => match known::file(&name) {
                Some(text) => text,
                None => continue,
            },
        };
        let file = parse::file(text)?;
        wanted.extend(file.imports.iter().cloned());
        files.insert(name.clone(), file);
        order.push(name);
    }
    let mut types = Types::default();
    for file in order.iter().filter_map(|name| files.get(name)) {
        types.declare_file(file)?;
    }
    let top = types.declare_file(&main)?;
    for file in order.iter().filter_map(|name| files.get(name)) {
        types.resolve_file(file)?;
    }
    types.resolve_file(&main)?;
    let root = types.find(&top, indexes)?;
    Ok((types, root))
}

fn joined(scope: &str, name: &str) -> String {
    match scope.is_empty() {
        true => name.to_owned(),
        false => format!("{scope}.{name}"),
    }
}

impl Types {
    fn declare(&mut self, name: String, named: Named) -> Result<()> {
        match self.names.insert(name.clone(), named) {
            None => Ok(()),
            Some(_) => Err(invalid("a .proto text defines a name twice").with("type", name)),
        }
    }

    fn declare_file(&mut self, file: &parse::File) -> Result<Vec<usize>> {
        for of in &file.enums {
            self.declare_enum(of, &file.package, file.is_proto2)?;
        }
        let messages = file.messages.iter();
        messages
            .map(|message| self.declare_message(message, &file.package, file.is_proto2))
            .collect()
    }

    fn declare_enum(&mut self, of: &parse::Enum, scope: &str, is_closed: bool) -> Result<()> {
        let index = self.enums.len();
        self.enums.push(EnumType {
            name: of.name.clone(),
            values: of.values.clone(),
            is_closed,
        });
        self.declare(joined(scope, &of.name), Named::Enum(index))
    }

    fn declare_message(
        &mut self,
        message: &parse::Message,
        scope: &str,
        is_proto2: bool,
    ) -> Result<usize> {
        let full_name = joined(scope, &message.name);
        let index = self.messages.len();
        if index >= SCHEMA_FIELDS_MAX {
            let message = format!("a .proto text has more than {SCHEMA_FIELDS_MAX} messages");
            return Err(SinkError::data("SCHEMA_TOO_LARGE", message));
        }
        self.messages.push(MessageType {
            full_name: full_name.clone(),
            fields: Vec::new(),
            oneofs: message.oneofs.clone(),
            inner: Vec::new(),
        });
        self.declare(full_name.clone(), Named::Message(index))?;
        for of in &message.enums {
            self.declare_enum(of, &full_name, is_proto2)?;
        }
        let inner = message.messages.iter();
        let inner = inner
            .map(|inner| self.declare_message(inner, &full_name, is_proto2))
            .collect::<Result<Vec<_>>>()?;
        if let Some(declared) = self.messages.get_mut(index) {
            declared.inner = inner;
        }
        Ok(index)
    }

    fn resolve_file(&mut self, file: &parse::File) -> Result<()> {
        for message in &file.messages {
            self.resolve_message(message, &file.package, file.is_proto2)?;
        }
        Ok(())
    }

    fn resolve_message(
        &mut self,
        message: &parse::Message,
        scope: &str,
        is_proto2: bool,
    ) -> Result<()> {
        let full_name = joined(scope, &message.name);
        let fields = message.fields.iter();
        let fields = fields
            .map(|field| {
                let resolved = self.field(field, &full_name, is_proto2);
                resolved.map_err(|error| error.with("field", &field.name))
            })
            .collect::<Result<Vec<_>>>()?;
        check_fields(&fields)?;
        for inner in &message.messages {
            self.resolve_message(inner, &full_name, is_proto2)?;
        }
        if let Some(Named::Message(index)) = self.names.get(&full_name)
            && let Some(declared) = self.messages.get_mut(*index)
        {
            declared.fields = fields;
        }
        Ok(())
    }

    fn field(&self, field: &parse::Field, scope: &str, is_proto2: bool) -> Result<FieldType> {
        let key = match &field.key {
            None => None,
            Some(key) => {
                let scalar = Scalar::of(key);
                let is_key =
                    |key: &Scalar| !matches!(key, Scalar::Float | Scalar::Double | Scalar::Bytes);
                Some(scalar.filter(is_key).ok_or_else(|| {
                    invalid("the keys of a map in a .proto text are of no type that they may have")
                })?)
            }
        };
        if (key.is_some() || field.oneof.is_some()) && field.label != Label::None {
            return Err(invalid(
                "a map or a member of a oneof in a .proto text has a label",
            ));
        }
        Ok(FieldType {
            name: field.name.clone(),
            number: field.number,
            of: self.named(&field.of, scope)?,
            is_repeated: field.label == Label::Repeated || key.is_some(),
            key,
            is_optional: field.label == Label::Optional,
            is_required: field.label == Label::Required && is_proto2,
            oneof: field.oneof,
            parameters: field.parameters.clone(),
        })
    }

    /// Finds a type by its name, from the scope that it stands in outwards.
    fn named(&self, name: &str, scope: &str) -> Result<Of> {
        if let Some(scalar) = Scalar::of(name) {
            return Ok(Of::Scalar(scalar));
        }
        let found = match name.strip_prefix('.') {
            Some(full) => self.names.get(full),
            None => {
                let mut scope = scope;
                loop {
                    match (self.names.get(&joined(scope, name)), scope.is_empty()) {
                        (Some(found), _) => break Some(found),
                        (None, true) => break None,
                        (None, false) => {
                            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
                        }
                    }
                }
            }
        };
        match found {
            Some(Named::Message(index)) => Ok(Of::Message(*index)),
            Some(Named::Enum(index)) => Ok(Of::Enum(*index)),
            None => {
                Err(invalid("a .proto text names a type that is not defined").with("type", name))
            }
        }
    }

    /// Finds the message at the end of the steps: the first among those of the file.
    fn find(&self, top: &[usize], indexes: &[u32]) -> Result<usize> {
        let mut among = top;
        let mut found = None;
        for index in indexes {
            let index = usize::try_from(*index).ok();
            let message = index.and_then(|index| among.get(index));
            let of = message.and_then(|message| self.messages.get(*message));
            let (Some(message), Some(of)) = (message, of) else {
                found = None;
                break;
            };
            found = Some(*message);
            among = &of.inner;
        }
        found.ok_or_else(|| {
            invalid("the record's message indexes lead to no message of its .proto text")
        })
    }

    pub(super) fn message(&self, index: usize) -> Result<&MessageType> {
        let found = self.messages.get(index);
        found.ok_or_else(|| SinkError::internal("a message type is not in its schema"))
    }

    pub(super) fn enumeration(&self, index: usize) -> Result<&EnumType> {
        let found = self.enums.get(index);
        found.ok_or_else(|| SinkError::internal("an enum type is not in its schema"))
    }
}

impl MessageType {
    /// Returns the name without its package.
    pub(super) fn name(&self) -> &str {
        let simple = self.full_name.rsplit_once('.');
        simple.map_or(self.full_name.as_str(), |(_, simple)| simple)
    }
}

fn check_fields(fields: &[FieldType]) -> Result<()> {
    let mut numbers: Vec<u32> = fields.iter().map(|field| field.number).collect();
    numbers.sort_unstable();
    let mut names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    names.sort_unstable();
    let twice = numbers
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a == b))
        || names
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a == b));
    match twice {
        false => Ok(()),
        true => Err(invalid(
            "a message of a .proto text has two fields of one number or name",
        )),
    }
}
