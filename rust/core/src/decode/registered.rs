//! Formats whose records name a schema in a registry: Avro, Protobuf and JSON Schema.
//!
//! A registry is I/O, so a block is decoded in two steps: [`Format::wants`] tells for each record
//! which schema is not known yet; the session fetches them and hands them to [`Format::learn`]; then
//! every record opens. What a registry says of an id never changes, so it is kept; that it does not
//! know one may change, so it is kept for one block only ([`Format::begin_block`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::avro::AvroDecoder;
use super::confluent::{self, Framed, Part, SchemaKey};
use super::json_schema::JsonSchemaDecoder;
use super::protobuf::ProtobufDecoder;
use super::refused::Refused;
use super::{ColumnsBuilder, Format, Opened, Raw};
use crate::error::Result;
use crate::limits::WRITER_SCHEMAS_MAX;
use crate::wire::{Cell, MapCell, SourceSchema};

/// The formats of records with a schema in a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisteredKind {
    /// Avro's binary encoding.
    Avro,
    /// Protobuf, with Confluent's message indexes.
    Protobuf,
    /// JSON by a JSON Schema.
    JsonSchema,
}

impl RegisteredKind {
    /// Returns what registries call it.
    pub fn name(self) -> &'static str {
        match self {
            RegisteredKind::Avro => "AVRO",
            RegisteredKind::Protobuf => "PROTOBUF",
            RegisteredKind::JsonSchema => "JSON",
        }
    }
}

/// Where a record says which schema it was written with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdPlace {
    /// In a header, else at the start of its bytes.
    HeaderOrFrame,
    /// At the start of its bytes.
    Frame,
    /// Nowhere: it has the newest schema of a subject, in which `${topic}` is its topic.
    Latest {
        /// The subject.
        subject: String,
    },
}

/// A schema as a registry gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrySchema {
    /// What identifies it, whatever it was asked by.
    pub id: SchemaKey,
    /// `AVRO`, `PROTOBUF` or `JSON`, where the registry says so.
    pub kind: Option<String>,
    /// Its text.
    pub text: String,
    /// Name and text of the schemas that it uses, those that others use first.
    pub references: Vec<(String, String)>,
}

/// See the module.
#[derive(Debug)]
pub struct RegisteredFormat {
    kind: RegisteredKind,
    part: Part,
    place: IdPlace,
    /// The topic of the record before and its subject, where records have the newest schema.
    subject: Option<(Box<str>, Arc<str>)>,
    known: BTreeMap<SchemaKey, Known>,
    /// What the registry did not know a moment ago.
    unknown: BTreeMap<SchemaKey, Refused>,
    decoders: Vec<Decoder>,
    /// The schema of the record before, its message indexes, and its decoder.
    last: Option<(SchemaKey, Box<[u8]>, usize)>,
}

/// What is known of a schema.
#[derive(Debug)]
enum Known {
    /// It is another one.
    As(SchemaKey),
    /// Its decoder, or why there is none.
    One(Result<usize, Refused>),
    /// The decoders of its message types, by their indexes.
    Several(
        Arc<RegistrySchema>,
        BTreeMap<Box<[u8]>, Result<usize, Refused>>,
    ),
}

#[derive(Debug)]
enum Decoder {
    Avro(AvroDecoder),
    Protobuf(ProtobufDecoder),
    Json(JsonSchemaDecoder),
}

impl Decoder {
    fn schema(&self) -> &Arc<SourceSchema> {
        match self {
            Decoder::Avro(decoder) => decoder.schema(),
            Decoder::Protobuf(decoder) => decoder.schema(),
            Decoder::Json(decoder) => decoder.schema(),
        }
    }
}

/// Where a record's schema and data are.
#[derive(Debug)]
struct Located<'a> {
    key: SchemaKey,
    /// The message indexes as they stand; empty for other formats than Protobuf.
    indexes: &'a [u8],
    body: &'a [u8],
}

impl RegisteredFormat {
    /// Makes a format that knows no schema yet.
    pub fn new(kind: RegisteredKind, part: Part, place: IdPlace) -> Self {
        RegisteredFormat {
            kind,
            part,
            place,
            subject: None,
            known: BTreeMap::new(),
            unknown: BTreeMap::new(),
            decoders: Vec::new(),
            last: None,
        }
    }

    fn framed<'a>(&mut self, raw: Raw<'a>) -> Result<Framed<'a>, Refused> {
        match &self.place {
            IdPlace::Latest { subject } => Ok(Framed {
                key: SchemaKey::Subject(match &self.subject {
                    Some((topic, subject)) if **topic == *raw.topic => Arc::clone(subject),
                    _ => {
                        let subject: Arc<str> = subject.replace("${topic}", raw.topic).into();
                        self.subject = Some((raw.topic.into(), Arc::clone(&subject)));
                        subject
                    }
                }),
                body: raw.bytes,
                // Without a frame there is nothing that names another message than the first.
                indexes_in: Some(&[0]),
            }),
            IdPlace::Frame => confluent::from_bytes(raw.bytes),
            IdPlace::HeaderOrFrame => {
                if let Some(headers) = raw.headers.filter(|headers| !headers.is_empty()) {
                    let header = |name: &str| header_bytes(headers, name);
                    let framed = confluent::from_headers(self.part, &header, raw.bytes);
                    if let Some(framed) = framed? {
                        return Ok(framed);
                    }
                }
                confluent::from_bytes(raw.bytes)
            }
        }
    }

    fn located<'a>(&mut self, raw: Raw<'a>) -> Result<Located<'a>, Refused> {
        let framed = self.framed(raw)?;
        let (indexes, body) = match (self.kind, framed.indexes_in) {
            (RegisteredKind::Avro | RegisteredKind::JsonSchema, _) => (&[][..], framed.body),
            (RegisteredKind::Protobuf, Some(indexes)) => {
                (confluent::split_indexes(indexes)?.0, framed.body)
            }
            (RegisteredKind::Protobuf, None) => {
                confluent::split_indexes(framed.body).map_err(|refused| {
                    refused.behind(raw.bytes.len().saturating_sub(framed.body.len()))
                })?
            }
        };
        Ok(Located {
            key: framed.key,
            indexes,
            body,
        })
    }

    /// Returns the decoder of a schema that was learned.
    fn decoder_of(&mut self, at: &Located<'_>) -> Result<usize, Refused> {
        if let Some((key, indexes, decoder)) = &self.last
            && *key == at.key
            && **indexes == *at.indexes
        {
            return Ok(*decoder);
        }
        let own = match self.known.get(&at.key) {
            Some(Known::As(own)) => own.clone(),
            _ => at.key.clone(),
        };
        let decoder = match self.known.get(&own) {
            Some(Known::One(decoder)) => decoder.clone(),
            Some(Known::Several(schema, decoders)) => match decoders.get(at.indexes) {
                Some(decoder) => decoder.clone(),
                None => {
                    let schema = Arc::clone(schema);
                    let decoder = self.compile(&schema, at.indexes);
                    // Indexes that lead nowhere are many: they are not worth their memory.
                    if let (Some(Known::Several(_, decoders)), true) =
                        (self.known.get_mut(&own), decoder.is_ok())
                    {
                        decoders.insert(at.indexes.into(), decoder.clone());
                    }
                    decoder
                }
            },
            Some(Known::As(_)) | None => match self.unknown.get(&at.key) {
                Some(refused) => return Err(refused.clone()),
                None => Err(Refused::internal()),
            },
        }?;
        self.last = Some((at.key.clone(), at.indexes.into(), decoder));
        Ok(decoder)
    }

    fn check_kind(&self, schema: &RegistrySchema) -> Result<(), Refused> {
        let own = self.kind.name();
        match schema.kind.as_ref().filter(|kind| *kind != own) {
            None => Ok(()),
            Some(kind) => {
                let message = format!("the record's schema is {kind} and not {own}");
                Err(Refused::new("DECODE_SCHEMA_MISMATCH", message))
            }
        }
    }

    fn compile(&mut self, schema: &RegistrySchema, indexes: &[u8]) -> Result<usize, Refused> {
        if self.decoders.len() >= WRITER_SCHEMAS_MAX {
            return Err(too_many());
        }
        let references = schema.references.iter();
        let files: Vec<(&str, &str)> = references
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        let decoder = match self.kind {
            RegisteredKind::Avro => {
                let texts: Vec<&str> = files.iter().map(|(_, text)| *text).collect();
                AvroDecoder::new(&schema.text, &texts).map(Decoder::Avro)
            }
            RegisteredKind::Protobuf => {
                let indexes = confluent::indexes(indexes)?;
                ProtobufDecoder::new(&schema.text, &files, &indexes).map(Decoder::Protobuf)
            }
            RegisteredKind::JsonSchema => {
                JsonSchemaDecoder::new(&schema.text, &files).map(Decoder::Json)
            }
        };
        self.decoders.push(decoder.map_err(Refused::from_schema)?);
        Ok(self.decoders.len() - 1)
    }
}

impl Format for RegisteredFormat {
    fn begin_block(&mut self) {
        self.unknown.clear();
        if matches!(self.place, IdPlace::Latest { .. }) {
            self.known
                .retain(|key, _| !matches!(key, SchemaKey::Subject(_)));
            self.last = None;
        }
    }

    fn wants(&mut self, raw: Raw<'_>) -> Option<SchemaKey> {
        // A broken frame is an error of its record, when that is opened.
        let key = self.framed(raw).ok()?.key;
        if self.last.as_ref().is_some_and(|(last, ..)| *last == key) {
            return None;
        }
        let is_new = !self.known.contains_key(&key) && !self.unknown.contains_key(&key);
        is_new.then_some(key)
    }

    fn learn(&mut self, key: SchemaKey, fetched: Result<RegistrySchema>) {
        let schema = match fetched {
            Ok(schema) => schema,
            Err(error) => {
                self.unknown.insert(key, Refused::from_schema(error));
                return;
            }
        };
        let id = schema.id.clone();
        if !self.known.contains_key(&id) && self.known.len() >= WRITER_SCHEMAS_MAX * 2 {
            self.unknown.insert(key, too_many());
            return;
        }
        if !self.known.contains_key(&id) {
            let known = match (self.check_kind(&schema), self.kind) {
                (Err(refused), _) => Known::One(Err(refused)),
                (Ok(()), RegisteredKind::Protobuf) => {
                    Known::Several(Arc::new(schema), BTreeMap::new())
                }
                (Ok(()), _) => Known::One(self.compile(&schema, &[])),
            };
            self.known.insert(id.clone(), known);
        }
        if key != id {
            self.known.insert(key, Known::As(id));
        }
    }

    fn open(&mut self, raw: Raw<'_>) -> Result<Option<Opened>, Refused> {
        let at = self.located(raw)?;
        let start = raw.bytes.len().saturating_sub(at.body.len());
        Ok(Some(Opened {
            schema: self.decoder_of(&at)?,
            data: start..raw.bytes.len(),
        }))
    }

    fn schema(&self, number: usize) -> Option<&Arc<SourceSchema>> {
        self.decoders.get(number).map(Decoder::schema)
    }

    fn decode(
        &mut self,
        raw: Raw<'_>,
        opened: &Opened,
        out: &mut ColumnsBuilder,
    ) -> Result<(), Refused> {
        let bytes = raw.bytes.get(opened.data.clone());
        let bytes = bytes.ok_or_else(Refused::internal)?;
        let decoder = self.decoders.get_mut(opened.schema);
        let (column, budget) = out.row();
        let decoded = match decoder.ok_or_else(Refused::internal)? {
            Decoder::Avro(decoder) => decoder.decode(bytes, column, budget),
            Decoder::Protobuf(decoder) => decoder.decode(bytes, column, budget),
            Decoder::Json(decoder) => decoder.decode(bytes, column, budget),
        };
        decoded.map_err(|refused| refused.behind(opened.data.start))
    }
}

#[cold]
fn too_many() -> Refused {
    let message =
        format!("the task has met more than {WRITER_SCHEMAS_MAX} schemas of its registry");
    Refused::new("DECODE_SCHEMAS_TOO_MANY", message)
}

#[cfg(test)]
mod tests;

/// Returns the bytes of the last header called `name`.
fn header_bytes<'a>(headers: MapCell<'a>, name: &str) -> Option<&'a [u8]> {
    match headers.get(name)? {
        Cell::Bytes(bytes) => Some(bytes),
        // Connect's default converter of headers makes text of bytes. Of ASCII it is the same bytes;
        // of others the length no longer fits, which is an error.
        Cell::String(text) => Some(text.as_bytes()),
        Cell::Null => None,
        _ => Some(&[]),
    }
}
