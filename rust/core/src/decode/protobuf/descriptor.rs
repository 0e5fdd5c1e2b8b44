//! A `FileDescriptorProto` in base64, which is how some serializers register a schema: the same tree
//! that a `.proto` text becomes.
//!
//! Confluent's registry turns such a schema into text; others give it back as it came. Types of map
//! entries stay among the messages, since those serializers count them in message indexes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::invalid;
use super::parse::{Enum, Field, File, Label, Message, NUMBER_MAX};
use crate::decode::bytes::Cursor;
use crate::decode::refused::Refused;
use crate::error::{Result, SinkError};
use crate::limits::{NESTING_MAX, SCHEMA_FIELDS_MAX};

/// The number of `confluent.field_meta` among the options of a field.
const FIELD_META: u32 = 1088;

/// What numbers of `FieldDescriptorProto.Type` are called in texts; groups and what has a name of
/// its own are none.
const SCALARS: [(u64, &str); 15] = [
    (1, "double"),
    (2, "float"),
    (3, "int64"),
    (4, "uint64"),
    (5, "int32"),
    (6, "fixed64"),
    (7, "fixed32"),
    (8, "bool"),
    (9, "string"),
    (12, "bytes"),
    (13, "uint32"),
    (15, "sfixed32"),
    (16, "sfixed64"),
    (17, "sint32"),
    (18, "sint64"),
];
const GROUP: u64 = 10;

/// Returns the bytes of a descriptor when `text` is one and no `.proto` text, which has blanks.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    let decoded = BASE64.decode(text).ok()?;
    (!decoded.is_empty()).then_some(decoded)
}

/// Reads a file.
pub(super) fn file(bytes: &[u8]) -> Result<File> {
    let mut left = SCHEMA_FIELDS_MAX;
    let mut file = File {
        is_proto2: true,
        ..File::default()
    };
    for part in parts(bytes)? {
        match part {
            (2, Part::Bytes(bytes)) => file.package = text(bytes)?,
            (3, Part::Bytes(bytes)) => file.imports.push(text(bytes)?),
            (4, Part::Bytes(bytes)) => file.messages.push(message(bytes, 1, &mut left)?),
            (5, Part::Bytes(bytes)) => file.enums.push(enumeration(bytes, &mut left)?),
            (12, Part::Bytes(bytes)) => file.is_proto2 = text(bytes)? == "proto2",
            (14, _) => file.is_proto2 = false,
            _ => {}
        }
    }
    if file.is_proto2 {
        file.messages.iter_mut().for_each(label_optional);
    }
    Ok(file)
}

/// Labels what a text of `proto2` labels: there, a field that is not there has no value.
fn label_optional(message: &mut Message) {
    for field in &mut message.fields {
        if (field.label, field.oneof, &field.key) == (Label::None, None, &None) {
            field.label = Label::Optional;
        }
    }
    message.messages.iter_mut().for_each(label_optional);
}

/// The value of a field.
#[derive(Debug, Clone, Copy)]
enum Part<'d> {
    Number(u64),
    Bytes(&'d [u8]),
}

/// Cuts a message into its fields.
fn parts(bytes: &[u8]) -> Result<Vec<(u32, Part<'_>)>> {
    let mut cursor = Cursor::new(bytes);
    let mut parts = Vec::new();
    while cursor.remaining() > 0 {
        let part = part(&mut cursor);
        parts.extend(part.map_err(|_| invalid("a Protobuf descriptor is cut off or broken"))?);
    }
    Ok(parts)
}

fn part<'d>(cursor: &mut Cursor<'d>) -> std::result::Result<Option<(u32, Part<'d>)>, Refused> {
    let tag = cursor.varint()?;
    let number = u32::try_from(tag >> 3).map_err(|_| cursor.bad("a field has no number"))?;
    let part = match tag & 7 {
        0 => Part::Number(cursor.varint()?),
        1 => {
            cursor.array::<8>()?;
            return Ok(None);
        }
        2 => {
            let length = usize::try_from(cursor.varint()?).unwrap_or(usize::MAX);
            Part::Bytes(cursor.take(length)?)
        }
        5 => {
            cursor.array::<4>()?;
            return Ok(None);
        }
        _ => return Err(cursor.bad("a field has no wire type")),
    };
    Ok(Some((number, part)))
}

fn text(bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| invalid("a name in a Protobuf descriptor is not UTF-8"))?;
    Ok(text.to_owned())
}

fn spend(left: &mut usize) -> Result<()> {
    *left = left.checked_sub(1).ok_or_else(|| {
        let message = format!("a Protobuf descriptor has more than {SCHEMA_FIELDS_MAX} fields");
        SinkError::data("SCHEMA_TOO_LARGE", message)
    })?;
    Ok(())
}

/// A message that stands for the entries of a map has these.
struct Entry {
    name: String,
    key: String,
    of: String,
}

fn message(bytes: &[u8], depth: usize, left: &mut usize) -> Result<Message> {
    if depth > NESTING_MAX {
        let message = format!("a Protobuf descriptor nests deeper than {NESTING_MAX} levels");
        return Err(SinkError::data("SCHEMA_TOO_DEEP", message));
    }
    spend(left)?;
    let mut message = Message::default();
    let mut fields = Vec::new();
    let mut entries = Vec::new();
    for part in parts(bytes)? {
        match part {
            (1, Part::Bytes(bytes)) => message.name = text(bytes)?,
            (2, Part::Bytes(bytes)) => {
                spend(left)?;
                fields.push(field(bytes)?);
            }
            (3, Part::Bytes(bytes)) => {
                let inner = self::message(bytes, depth + 1, left)?;
                if is_entry(bytes)? {
                    entries.extend(entry(&inner));
                }
                message.messages.push(inner);
            }
            (4, Part::Bytes(bytes)) => message.enums.push(enumeration(bytes, left)?),
            (8, Part::Bytes(bytes)) => {
                for part in parts(bytes)? {
                    if let (1, Part::Bytes(bytes)) = part {
                        message.oneofs.push(text(bytes)?);
                    }
                }
            }
            _ => {}
        }
    }
    message.fields = fields;
    finish(&mut message, &entries);
    Ok(message)
}

/// Tells whether the option `map_entry` is set.
fn is_entry(bytes: &[u8]) -> Result<bool> {
    for part in parts(bytes)? {
        if let (7, Part::Bytes(options)) = part {
            let options = parts(options)?;
            return Ok({ options.iter() }.any(|part| matches!(part, (7, Part::Number(1)))));
        }
    }
    Ok(false)
}

fn entry(inner: &Message) -> Option<Entry> {
    let of = |number| {
        let field = inner.fields.iter().find(|field| field.number == number);
        field.map(|field| field.of.clone())
    };
    Some(Entry {
        name: inner.name.clone(),
        key: of(1)?,
        of: of(2)?,
    })
}

/// Makes maps of lists of entries, and leaves out the oneofs that `optional` stands behind, which
/// come last.
fn finish(message: &mut Message, entries: &[Entry]) {
    let suffix = |entry: &Entry| format!(".{}.{}", message.name, entry.name);
    let known: Vec<(String, &Entry)> = { entries.iter() }
        .map(|entry| (suffix(entry), entry))
        .collect();
    let mut oneofs = 0;
    for field in &mut message.fields {
        let entry = known
            .iter()
            .find(|(suffix, _)| field.of.ends_with(suffix.as_str()));
        if let (Label::Repeated, Some((_, entry))) = (field.label, entry) {
            field.label = Label::None;
            field.key = Some(entry.key.clone());
            field.of = entry.of.clone();
        }
        oneofs = oneofs.max(field.oneof.map_or(0, |oneof| oneof + 1));
    }
    message.oneofs.truncate(oneofs);
}

fn field(bytes: &[u8]) -> Result<Field> {
    let (mut name, mut number, mut label, mut kind) = (String::new(), 0, 0, 0);
    let (mut of, mut oneof, mut is_optional) = (None, None, false);
    let mut parameters = Vec::new();
    for part in parts(bytes)? {
        match part {
            (1, Part::Bytes(bytes)) => name = text(bytes)?,
            (3, Part::Number(value)) => number = value,
            (4, Part::Number(value)) => label = value,
            (5, Part::Number(value)) => kind = value,
            (6, Part::Bytes(bytes)) => of = Some(text(bytes)?),
            (8, Part::Bytes(bytes)) => meta(bytes, &mut parameters)?,
            (9, Part::Number(value)) => oneof = usize::try_from(value).ok(),
            (17, Part::Number(value)) => is_optional = value != 0,
            _ => {}
        }
    }
    if kind == GROUP {
        let message = "a group of a Protobuf descriptor has no column type: use a message";
        return Err(SinkError::data("SCHEMA_TYPE_UNSUPPORTED", message));
    }
    let scalar = SCALARS.iter().find(|(number, _)| *number == kind);
    let of = match (scalar, of) {
        (Some((_, scalar)), _) => (*scalar).to_owned(),
        (None, Some(of)) => of,
        (None, None) => return Err(invalid("a field of a Protobuf descriptor has no type")),
    };
    let number = u32::try_from(number).ok();
    let number = number.filter(|number| (1..=NUMBER_MAX).contains(number));
    let number = number.ok_or_else(|| {
        invalid("the number of a field in a Protobuf descriptor is out of bounds")
    })?;
    let oneof = oneof.filter(|_| !is_optional);
    if oneof.is_some_and(|oneof| oneof >= SCHEMA_FIELDS_MAX) {
        return Err(invalid("a field of a Protobuf descriptor is in no oneof"));
    }
    Ok(Field {
        name,
        number,
        label: match (label, oneof) {
            (3, _) => Label::Repeated,
            (2, _) => Label::Required,
            _ if is_optional => Label::Optional,
            _ => Label::None,
        },
        of,
        key: None,
        oneof,
        parameters,
    })
}

/// Reads the parameters of `confluent.field_meta` out of a field's options.
fn meta(options: &[u8], parameters: &mut Vec<(String, String)>) -> Result<()> {
    for part in parts(options)? {
        let (FIELD_META, Part::Bytes(meta)) = part else {
            continue;
        };
        for part in parts(meta)? {
            let (2, Part::Bytes(entry)) = part else {
                continue;
            };
            let (mut key, mut value) = (String::new(), String::new());
            for part in parts(entry)? {
                match part {
                    (1, Part::Bytes(bytes)) => key = text(bytes)?,
                    (2, Part::Bytes(bytes)) => value = text(bytes)?,
                    _ => {}
                }
            }
            parameters.push((key, value));
        }
    }
    Ok(())
}

fn enumeration(bytes: &[u8], left: &mut usize) -> Result<Enum> {
    spend(left)?;
    let mut of = Enum::default();
    for part in parts(bytes)? {
        match part {
            (1, Part::Bytes(bytes)) => of.name = text(bytes)?,
            (2, Part::Bytes(bytes)) => {
                spend(left)?;
                let (mut name, mut number) = (String::new(), 0);
                for part in parts(bytes)? {
                    match part {
                        (1, Part::Bytes(bytes)) => name = text(bytes)?,
                        // Numbers below 0 take all 64 bits.
                        (2, Part::Number(value)) => number = value.cast_signed(),
                        _ => {}
                    }
                }
                let number = i32::try_from(number).map_err(|_| {
                    invalid(
                        "the number of an enum's value in a Protobuf descriptor is out of bounds",
                    )
                })?;
                of.values.push((name, number));
            }
            _ => {}
        }
    }
    match of.values.is_empty() {
        false => Ok(of),
        true => Err(invalid("an enum of a Protobuf descriptor has no values")),
    }
}
