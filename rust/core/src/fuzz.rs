//! Bytes that nobody has checked, through everything that reads them: what the programs of `fuzz/` run
//! and the tests run again on every input of `fuzz/inputs`.
//!
//! An input is good when nothing panics, recurses without end or takes memory without bound, and
//! when what comes out keeps the promises of `decode`: each row is a value, nothing, or one error
//! with a code; a decoder's plan fits its schema; whatever is decoded converts, or is refused, row by
//! row.

mod compare;
mod schemas;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::convert::{ConvertOptions, TableConverter};
use crate::decode::avro::AvroDecoder;
use crate::decode::confluent::Part;
use crate::decode::json_schema::JsonSchemaDecoder;
use crate::decode::protobuf::ProtobufDecoder;
use crate::decode::registered::{IdPlace, RegisteredFormat, RegisteredKind, RegistrySchema};
use crate::decode::{ColumnsBuilder, FrameDecoder, Raw, Side};
use crate::error::SinkError;
use crate::limits::BLOCK_ROWS_MAX;
use crate::schema::types::{CreateOptions, table_schema, type_of};
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Cell, Frame, Request, SchemaRegistry, SourceKind, SourceSchema};

/// What reads the bytes of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// JSON without a schema, compared with `serde_json`; records stand between bytes of 255.
    Json,
    /// JSON with its schema, likewise.
    JsonEnvelope,
    /// The first byte chooses a schema; then records, each behind its length of one byte.
    Avro,
    /// Likewise.
    Protobuf,
    /// The first byte chooses a schema; then records between bytes of 255.
    JsonSchema,
    /// The first byte chooses the format and where ids are; then pairs of a header and a value.
    Framing,
    /// A frame as Java writes it behind its schemas, a schema or a request, by the first byte.
    Wire,
    /// The first byte chooses the language; then a schema and, behind bytes of 255, those it uses.
    Schema,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 8] = [
        Target::Json,
        Target::JsonEnvelope,
        Target::Avro,
        Target::Protobuf,
        Target::JsonSchema,
        Target::Framing,
        Target::Wire,
        Target::Schema,
    ];

    /// Returns the name of its program and of the folder of its inputs.
    pub fn name(self) -> &'static str {
        match self {
            Target::Json => "json",
            Target::JsonEnvelope => "json-envelope",
            Target::Avro => "avro",
            Target::Protobuf => "protobuf",
            Target::JsonSchema => "json-schema",
            Target::Framing => "framing",
            Target::Wire => "wire",
            Target::Schema => "schema",
        }
    }

    /// Reads `input`.
    ///
    /// # Panics
    ///
    /// When a promise is broken.
    pub fn run(self, input: &[u8]) {
        match self {
            Target::Json => {
                let texts: Vec<&[u8]> = input.split(|byte| *byte == u8::MAX).collect();
                let records = rows(&texts);
                drive(Side::json_values(true), &records, compare::check);
                drive(Side::json_values(false), &records, compare::check);
            }
            Target::JsonEnvelope => {
                let texts: Vec<&[u8]> = input.split(|byte| *byte == u8::MAX).collect();
                drive(Side::envelope_values(true), &rows(&texts), |_, _| {});
            }
            Target::Avro => registered(RegisteredKind::Avro, input),
            Target::Protobuf => registered(RegisteredKind::Protobuf, input),
            Target::JsonSchema => registered(RegisteredKind::JsonSchema, input),
            Target::Framing => framing(input),
            Target::Wire => wire(input),
            Target::Schema => schema(input),
        }
    }
}

/// One record: its value and, perhaps, a header that names its schema.
struct Record<'r> {
    value: Option<&'r [u8]>,
    header: Option<(&'static str, &'r [u8])>,
}

fn rows<'r>(values: &[&'r [u8]]) -> Vec<Record<'r>> {
    let record = |value: &&'r [u8]| Record {
        value: Some(value),
        header: None,
    };
    values.iter().take(BLOCK_ROWS_MAX).map(record).collect()
}

/// Cuts `rest` into pieces behind their lengths of one byte; 255 means all that is left.
fn pieces(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some((length, behind)) = rest.split_first() {
        let length = match *length {
            u8::MAX => behind.len(),
            length => usize::from(length).min(behind.len()),
        };
        let (piece, next) = behind.split_at(length);
        pieces.push(piece);
        rest = next;
    }
    pieces
}

/// Decodes a block, walks through all of it, and converts it for a table made of its first record.
fn drive(side: Side, records: &[Record<'_>], mut see: impl FnMut(Cell<'_>, Outcome<'_>)) {
    let bytes = SourceSchema::scalar(SourceKind::Bytes).optional();
    let row = |(record, offset): (&Record<'_>, i64)| {
        let value = record.value;
        let value = value.map_or(Value::Null, |value| Value::Bytes(value.to_vec()));
        let row = Row::new("t", 0, offset).value(value);
        match record.header {
            Some((name, header)) => row.header(name, Value::Bytes(header.to_vec())),
            None => row,
        }
    };
    let built = FrameBuilder::with_value_schema(1, bytes).rows(records.iter().zip(0..).map(row));
    let built = match records.iter().any(|record| record.header.is_some()) {
        true => built.with_headers(),
        false => built,
    };
    let encoded = built.encode();
    let frame = Frame::decode(&encoded, &built.schemas());
    assert!(frame.is_ok(), "the frame: {:?}", frame.err());
    let Ok(frame) = frame else { return };
    let mut schemas = SchemaRegistry::default();
    let mut decoder = FrameDecoder::new(Some(side), None);
    teach(&mut decoder, &frame);
    let mut first = 0;
    while first < frame.rows() {
        let end = decoder.decode(&frame, first, &|_| true, &mut schemas);
        assert!(end.is_ok(), "decode: {:?}", end.err());
        let Ok(end) = end else { return };
        assert!(end > first, "a part has no rows");
        let refused = decoder.take_refused();
        let part = decoder.part(&frame, &schemas);
        assert!(part.is_ok(), "a part: {:?}", part.err());
        let Ok(part) = part else { return };
        assert_eq!(part.rows(), end - first);
        for row in 0..part.rows() {
            let error = u32::try_from(row).ok().and_then(|row| refused.get(&row));
            if let Some(error) = error {
                check(error);
            }
            assert_eq!(part.is_skipped(row), error.is_some());
            walk(part.value(row), 0);
            let bytes = records.get(first + row).and_then(|record| record.value);
            see(part.value(row), (bytes, error));
        }
        convert(&part);
        first = end;
    }
}

/// The bytes of a row, and the error if they were refused.
type Outcome<'r> = (Option<&'r [u8]>, Option<&'r SinkError>);

/// Lets a format that has a registry learn the schemas of the records, as a session does.
fn teach(decoder: &mut FrameDecoder, frame: &Frame<'_>) {
    let Some(format) = decoder.value().and_then(Side::format) else {
        return;
    };
    format.begin_block();
    for row in 0..frame.rows() {
        let Cell::Bytes(bytes) = frame.value(row) else {
            continue;
        };
        let raw = Raw {
            topic: "t",
            bytes,
            headers: frame.headers(row),
        };
        if let Some(key) = format.wants(raw) {
            let fetched = schemas::of_registry(&key);
            format.learn(key, fetched);
        }
    }
}

/// An error of a record says what to do, and is none of ours.
fn check(error: &SinkError) {
    assert_ne!(error.code(), "INTERNAL", "{}", error.message());
    assert_eq!(error.kind(), crate::ErrorKind::Data, "{}", error.code());
}

/// Looks at all that is in a value.
fn walk(cell: Cell<'_>, depth: usize) {
    assert!(
        depth <= 2 * crate::limits::NESTING_MAX,
        "a value is too deep"
    );
    match cell {
        Cell::Array(list) => list.iter().for_each(|item| walk(item, depth + 1)),
        Cell::Map(map) => map.entries().for_each(|entry| {
            walk(entry.key, depth + 1);
            walk(entry.value, depth + 1);
        }),
        Cell::Struct(record) => {
            (0..record.fields().len()).for_each(|index| walk(record.field(index), depth + 1));
        }
        Cell::Decimal { unscaled, .. } => assert!(!unscaled.is_empty(), "a decimal has no digits"),
        _ => {}
    }
}

/// Converts the rows of `part` for the table that its first record would create.
fn convert(part: &Frame<'_>) {
    let is_record = |row: &usize| !part.is_skipped(*row) && !part.is_tombstone(*row);
    let records: Vec<usize> = (0..part.rows()).filter(is_record).collect();
    let Some(first) = records.first() else { return };
    let Ok(schema) = table_schema(part.value(*first), &CreateOptions::default()) else {
        return;
    };
    let options = ConvertOptions::default();
    let Ok(mut converter) = TableConverter::new(Arc::new(schema), &options) else {
        return;
    };
    let rows = records.iter().filter_map(|row| u32::try_from(*row).ok());
    let rows: Vec<u32> = rows.collect();
    let mut refused = 0;
    let appended = converter.append(part, &rows, &mut |_, error| {
        refused += 1;
        check(&error);
    });
    assert!(appended.is_ok(), "append: {:?}", appended.err());
    let batch = converter.finish();
    assert!(batch.is_ok(), "a batch: {:?}", batch.as_ref().err());
    let landed = batch.map_or(0, |batch| batch.num_rows());
    assert_eq!(
        landed + refused,
        rows.len(),
        "a row is neither here nor there"
    );
}

/// Records of one schema, as a registry would name it.
fn registered(kind: RegisteredKind, input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let number = schemas::number(kind, *choice);
    let parts: Vec<&[u8]> = match kind {
        RegisteredKind::JsonSchema => rest.split(|byte| *byte == u8::MAX).collect(),
        _ => pieces(rest),
    };
    let framed = |part: &&[u8]| {
        let mut bytes = vec![0];
        bytes.extend(number.to_be_bytes());
        if kind == RegisteredKind::Protobuf {
            bytes.push(0);
        }
        bytes.extend_from_slice(part);
        bytes
    };
    let values: Vec<Vec<u8>> = parts.iter().map(framed).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let format = RegisteredFormat::new(kind, Part::Value, IdPlace::Frame);
    drive(
        Side::values(Box::new(format), true),
        &rows(&values),
        |_, _| {},
    );
}

const HEADERS: [&str; 4] = [
    "__value_schema_id",
    "apicurio.value.globalId",
    "apicurio.value.contentId",
    "other",
];

/// Frames, ids in headers and message indexes, with a registry that knows some of the ids.
fn framing(input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let kind = match choice % 3 {
        0 => RegisteredKind::Avro,
        1 => RegisteredKind::Protobuf,
        _ => RegisteredKind::JsonSchema,
    };
    let place = match (choice / 3) % 3 {
        0 => IdPlace::Frame,
        1 => IdPlace::HeaderOrFrame,
        _ => IdPlace::Latest {
            subject: "${topic}-value".to_owned(),
        },
    };
    let parts = pieces(rest);
    let record = |pair: &[&'_ [u8]]| -> Option<(Option<usize>, Vec<u8>, Vec<u8>)> {
        let header = pair.first()?;
        let named = header.split_first();
        let name = named.map(|(name, _)| usize::from(*name) % (HEADERS.len() + 1));
        let bytes = named.map_or(&[][..], |(_, bytes)| bytes);
        Some((name, bytes.to_vec(), pair.get(1)?.to_vec()))
    };
    let owned: Vec<_> = parts.chunks(2).filter_map(record).collect();
    let records: Vec<Record<'_>> = owned
        .iter()
        .take(BLOCK_ROWS_MAX)
        .map(|(name, header, value)| Record {
            value: Some(value),
            header: name.and_then(|name| Some((*HEADERS.get(name)?, header.as_slice()))),
        })
        .collect();
    let format = RegisteredFormat::new(kind, Part::Value, place);
    drive(Side::values(Box::new(format), true), &records, |_, _| {});
}

/// What comes over the boundary.
fn wire(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    match choice % 3 {
        0 => {
            let Some((known, bytes)) = frame_schemas(bytes) else {
                return;
            };
            let find = |id: u32| known.get(&id).cloned();
            let Ok(frame) = Frame::decode(bytes, &find) else {
                return;
            };
            for row in 0..frame.rows() {
                walk(frame.value(row), 0);
                walk(frame.key(row), 0);
                if let Some(headers) = frame.headers(row) {
                    walk(Cell::Map(headers), 0);
                }
                frame.source(row);
                frame.timestamp(row);
            }
            convert(&frame);
            convert(&frame.keys_as_values());
        }
        1 => {
            let Ok(schema) = SourceSchema::parse(bytes) else {
                return;
            };
            // The bytes are canonical: they identify the schema.
            let again = SourceSchema::parse(&schema.to_bytes());
            assert_eq!(again.ok().as_ref(), Some(&schema));
            use_schema(&Arc::new(schema));
        }
        _ => {
            if let Err(error) = Request::decode(bytes) {
                assert!(!error.code().is_empty());
            }
        }
    }
}

type Known = BTreeMap<u32, Arc<SourceSchema>>;

/// Takes the schemas in front of a frame: their number, then each behind its length of two bytes.
fn frame_schemas(bytes: &[u8]) -> Option<(Known, &[u8])> {
    let (count, mut rest) = bytes.split_first()?;
    let mut known = Known::new();
    for id in 1..=u32::from(*count % 16) {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let (schema, next) = behind.split_at_checked(length)?;
        if let Ok(schema) = SourceSchema::parse(schema) {
            known.insert(id, Arc::new(schema));
        }
        rest = next;
    }
    Some((known, rest))
}

/// Schemas of producers.
fn schema(input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let texts: Option<Vec<&str>> = rest
        .split(|byte| *byte == u8::MAX)
        .map(|text| std::str::from_utf8(text).ok())
        .collect();
    let Some(texts) = texts else { return };
    let Some((text, others)) = texts.split_first() else {
        return;
    };
    let names: Vec<String> = (0..others.len())
        .map(|number| format!("r{number}"))
        .collect();
    let named = names.iter().map(String::as_str);
    let named: Vec<(&str, &str)> = named.zip(others.iter().copied()).collect();
    let compiled = match choice % 3 {
        0 => AvroDecoder::new(text, others).map(|decoder| Arc::clone(decoder.schema())),
        1 => {
            let index = u32::from(choice / 3) % 3;
            let decoder = ProtobufDecoder::new(text, &named, &[index]);
            decoder.map(|decoder| Arc::clone(decoder.schema()))
        }
        _ => JsonSchemaDecoder::new(text, &named).map(|decoder| Arc::clone(decoder.schema())),
    };
    match compiled {
        Ok(schema) => use_schema(&schema),
        Err(error) => check(&error),
    }
}

/// Makes of a schema what a session makes of it.
fn use_schema(schema: &Arc<SourceSchema>) {
    let built = ColumnsBuilder::new(schema);
    if let Err(error) = &built {
        check(error);
    }
    if let Err(error) = type_of(schema, false) {
        check(&error);
    }
    let mut schemas = SchemaRegistry::default();
    if let Err(error) = schemas.register(&schema.to_bytes()) {
        check(&error);
    }
}

#[cfg(test)]
mod tests;
