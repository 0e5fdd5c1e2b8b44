//! Frames, requests and effects for tests without a JVM. It mirrors what Java writes and reads.
//!
//! ```
//! use frazil_core::wire::testing::{FrameBuilder, Row, Value};
//! use frazil_core::wire::{Frame, SourceKind, SourceSchema};
//!
//! let schema = SourceSchema::structure([("id", SourceSchema::scalar(SourceKind::Int64))]);
//! let frame = FrameBuilder::with_value_schema(1, schema)
//!     .row(Row::new("orders", 0, 7).value(Value::Struct(vec![Value::Int64(42)])));
//! let bytes = frame.encode();
//! let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
//! assert_eq!(decoded.source(0).map(|(_, offset)| offset), Some(7));
//! ```

mod maps;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::effects::{self, Effects, LogLevel, ParkedError, Rejected, ValidationLevel};
use super::frame::{FRAME_MAGIC, FRAME_VERSION, MODE_COLUMNS, MODE_MAPS, MODE_NONE, MODE_TAGGED};
use super::read::Reader;
use super::request::{REQUEST_VERSION, Request};
use super::schema::{SourceKind, SourceSchema};
use super::tagged;
use super::write::Writer;
use crate::error::{ErrorKind, Result};
use crate::offsets::TopicPartition;

/// An owned value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An 8-bit integer.
    Int8(i8),
    /// A 16-bit integer.
    Int16(i16),
    /// A 32-bit integer.
    Int32(i32),
    /// A 64-bit integer.
    Int64(i64),
    /// A 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float64(f64),
    /// Text.
    String(String),
    /// Raw bytes.
    Bytes(Vec<u8>),
    /// An unscaled number (written as 16 bytes) and its scale. In a column only the schema's scale
    /// counts.
    Decimal(i128, i32),
    /// Days since the epoch.
    Date(i32),
    /// Milliseconds since midnight.
    Time(i32),
    /// Milliseconds since the epoch.
    Timestamp(i64),
    /// Nanoseconds since midnight; only without a schema.
    ClockTime(i64),
    /// Seconds and nanoseconds since the epoch, and whether it is a point in time; only without a
    /// schema.
    Moment(i64, i32, bool),
    /// A UUID; only without a schema.
    Uuid([u8; 16]),
    /// A list.
    Array(Vec<Value>),
    /// A map.
    Map(Vec<(Value, Value)>),
    /// A struct's fields in the order of its schema; only where a schema says struct.
    Struct(Vec<Value>),
}

impl Value {
    /// Makes a text.
    pub fn text(text: &str) -> Self {
        Value::String(text.to_owned())
    }

    /// Makes a schemaless map with text keys.
    pub fn object<'n>(entries: impl IntoIterator<Item = (&'n str, Value)>) -> Self {
        let entries = entries.into_iter();
        Value::Map(
            entries
                .map(|(name, value)| (Value::text(name), value))
                .collect(),
        )
    }
}

/// A record of a test frame.
#[derive(Debug, Clone)]
pub struct Row {
    topic: String,
    renamed: Option<String>,
    partition: i32,
    offset: i64,
    timestamp_ms: Option<i64>,
    key: Value,
    value: Value,
    headers: Vec<(Value, Value)>,
    skipped: bool,
}

impl Row {
    /// Makes a record without key, value, timestamp and headers.
    pub fn new(topic: &str, partition: i32, offset: i64) -> Self {
        Row {
            topic: topic.to_owned(),
            renamed: None,
            partition,
            offset,
            timestamp_ms: None,
            key: Value::Null,
            value: Value::Null,
            headers: Vec::new(),
            skipped: false,
        }
    }

    /// Sets the value.
    #[must_use]
    pub fn value(mut self, value: Value) -> Self {
        self.value = value;
        self
    }

    /// Gives the record the topic that a transform gave it.
    #[must_use]
    pub fn renamed(mut self, topic: &str) -> Self {
        self.renamed = Some(topic.to_owned());
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: Value) -> Self {
        self.key = key;
        self
    }

    /// Sets the timestamp.
    #[must_use]
    pub fn timestamp(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    /// Marks the record as rejected by Java.
    #[must_use]
    pub fn skipped(mut self) -> Self {
        self.skipped = true;
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: Value) -> Self {
        self.headers.push((Value::text(name), value));
        self
    }
}

/// Builds the bytes of one frame.
#[derive(Debug, Clone, Default)]
pub struct FrameBuilder {
    value_schema: Option<(u32, Arc<SourceSchema>)>,
    key_schema: Option<(u32, Arc<SourceSchema>)>,
    with_headers: bool,
    in_columns: bool,
    rows: Vec<Row>,
}

impl FrameBuilder {
    /// Starts a frame of values without a schema.
    pub fn schemaless() -> Self {
        Self::default()
    }

    /// Starts a frame of values with `schema`, registered as `id`.
    pub fn with_value_schema(id: u32, schema: impl Into<Arc<SourceSchema>>) -> Self {
        FrameBuilder {
            value_schema: Some((id, schema.into())),
            ..Self::default()
        }
    }

    /// Gives the keys a schema, registered as `id`.
    #[must_use]
    pub fn key_schema(mut self, id: u32, schema: impl Into<Arc<SourceSchema>>) -> Self {
        self.key_schema = Some((id, schema.into()));
        self
    }

    /// Writes values without a schema in columns where Java does: when all are plain records.
    #[must_use]
    pub fn in_columns(mut self) -> Self {
        self.in_columns = true;
        self
    }

    /// Writes headers.
    #[must_use]
    pub fn with_headers(mut self) -> Self {
        self.with_headers = true;
        self
    }

    /// Adds a record.
    #[must_use]
    pub fn row(mut self, row: Row) -> Self {
        self.rows.push(row);
        self
    }

    /// Adds records.
    #[must_use]
    pub fn rows(mut self, rows: impl IntoIterator<Item = Row>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// Returns the schema lookup that `Frame::decode` takes.
    pub fn schemas(&self) -> impl Fn(u32) -> Option<Arc<SourceSchema>> + use<> {
        let known: BTreeMap<_, _> = [&self.value_schema, &self.key_schema]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        move |id| known.get(&id).cloned()
    }

    /// Returns the bytes of the frame.
    ///
    /// # Panics
    ///
    /// When a value does not fit its schema.
    pub fn encode(&self) -> Vec<u8> {
        let mut heap = Heap::default();
        let value = self.records(&mut heap);
        let value = value
            .unwrap_or_else(|| self.values(&mut heap, &self.value_schema, |row| row.value.clone()));
        let key = self.values(&mut heap, &self.key_schema, |row| row.key.clone());
        let headers = match self.with_headers {
            true => self.values(&mut heap, &None, |row| Value::Map(row.headers.clone())),
            false => (MODE_NONE, Vec::new()),
        };
        let mut topics: Vec<&str> = Vec::new();
        let (run_count, runs) = self.runs(&mut topics);
        let mut writer = Writer::default();
        writer.u32(FRAME_MAGIC);
        writer.bytes.extend_from_slice(&FRAME_VERSION.to_le_bytes());
        let any_skipped = self.rows.iter().any(|row| row.skipped);
        writer.bytes.extend_from_slice(&[u8::from(any_skipped), 0]);
        writer.u32(0);
        writer.length(self.rows.len());
        writer.u32(self.value_schema.as_ref().map_or(0, |(id, _)| *id));
        writer.u32(self.key_schema.as_ref().map_or(0, |(id, _)| *id));
        writer.length(topics.len());
        writer.length(run_count);
        writer.length(heap.names.len());
        writer
            .bytes
            .extend_from_slice(&[value.0, key.0, headers.0, 0]);
        topics.iter().for_each(|topic| writer.text(topic));
        writer.bytes.extend_from_slice(&runs);
        self.rows
            .iter()
            .for_each(|row| writer.i64(row.timestamp_ms.unwrap_or(i64::MIN)));
        if any_skipped {
            for eight in self.rows.chunks(8) {
                let bit = |(index, row): (usize, &Row)| u8::from(row.skipped) << index;
                writer.u8(eight.iter().enumerate().map(bit).sum());
            }
        }
        heap.names.iter().for_each(|name| writer.text(name));
        writer.text(&heap.text);
        for section in [value.1, key.1, headers.1] {
            writer.bytes.extend_from_slice(&section);
        }
        let length = u32::try_from(writer.bytes.len()).unwrap_or(u32::MAX);
        let mut bytes = writer.bytes;
        bytes.splice(8..12, length.to_le_bytes());
        bytes
    }

    /// Returns the values in columns, where they are to be and can be.
    fn records(&self, heap: &mut Heap) -> Option<(u8, Vec<u8>)> {
        let values: Vec<Value> = self.rows.iter().map(|row| row.value.clone()).collect();
        let any = values.iter().any(|value| *value != Value::Null);
        let wanted = self.in_columns && self.value_schema.is_none() && any;
        Some((MODE_MAPS, wanted.then(|| maps::written(&values, heap))??))
    }

    fn values(
        &self,
        heap: &mut Heap,
        schema: &Option<(u32, Arc<SourceSchema>)>,
        of: impl Fn(&Row) -> Value,
    ) -> (u8, Vec<u8>) {
        let values: Vec<Value> = self.rows.iter().map(of).collect();
        let mut writer = Writer::default();
        if values.iter().all(|value| *value == Value::Null) {
            return (MODE_NONE, writer.bytes);
        }
        if let Some((_, schema)) = schema {
            write_column(&mut writer, schema, &values.iter().collect::<Vec<_>>());
            return (MODE_COLUMNS, writer.bytes);
        }
        write_rows(&mut writer, heap, values.iter().collect());
        (MODE_TAGGED, writer.bytes)
    }

    fn runs<'s>(&'s self, topics: &mut Vec<&'s str>) -> (usize, Vec<u8>) {
        let (mut writer, mut count) = (Writer::default(), 0);
        let same = |a: &Row, b: &Row| {
            (&a.topic, &a.renamed, a.partition) == (&b.topic, &b.renamed, b.partition)
                && a.offset < b.offset
        };
        let mut index_of = |topic: &'s str| {
            let known = topics.iter().position(|known| *known == topic);
            if known.is_none() {
                topics.push(topic);
            }
            known.unwrap_or(topics.len() - 1)
        };
        let mut first_row = 0;
        for run in self.rows.chunk_by(same) {
            let Some(first) = run.first() else { continue };
            writer.length(index_of(&first.topic));
            writer.i32(first.partition);
            writer.length(first_row);
            writer.length(run.len());
            let contiguous = run
                .iter()
                .zip(first.offset..)
                .all(|(row, at)| row.offset == at);
            writer.u32(u32::from(contiguous) | u32::from(first.renamed.is_some()) << 1);
            if let Some(renamed) = &first.renamed {
                writer.length(index_of(renamed));
            }
            let written = if contiguous { 1 } else { run.len() };
            run.iter()
                .take(written)
                .for_each(|row| writer.i64(row.offset));
            first_row += run.len();
            count += 1;
        }
        (count, writer.bytes)
    }
}

#[derive(Default)]
struct Heap {
    text: String,
    names: Vec<String>,
}

fn write_rows(writer: &mut Writer, heap: &mut Heap, values: Vec<&Value>) {
    let mut data = Writer::default();
    writer.length(0);
    for value in values {
        write_tagged(&mut data, heap, value);
        writer.length(data.bytes.len());
    }
    writer.bytes.extend_from_slice(&data.bytes);
}

fn write_tagged(writer: &mut Writer, heap: &mut Heap, value: &Value) {
    match value {
        Value::Null => writer.u8(tagged::NULL),
        Value::Bool(false) => writer.u8(tagged::FALSE),
        Value::Bool(true) => writer.u8(tagged::TRUE),
        Value::String(text) => {
            writer.u8(tagged::STRING);
            writer.length(heap.text.len());
            writer.length(text.len());
            heap.text.push_str(text);
        }
        Value::Bytes(bytes) => {
            writer.u8(tagged::BYTES);
            writer.length(bytes.len());
            writer.bytes.extend_from_slice(bytes);
        }
        Value::Decimal(unscaled, scale) => {
            writer.u8(tagged::DECIMAL);
            writer.i32(*scale);
            writer.length(16);
            writer.bytes.extend_from_slice(&unscaled.to_be_bytes());
        }
        Value::Array(items) => nested(writer, tagged::LIST, items.len(), |writer| {
            items
                .iter()
                .for_each(|item| write_tagged(writer, heap, item));
        }),
        Value::Map(entries) => nested(writer, tagged::MAP, entries.len(), |writer| {
            for (key, value) in entries {
                match key {
                    Value::String(name) => write_name(writer, heap, name),
                    _ => write_tagged(writer, heap, key),
                }
                write_tagged(writer, heap, value);
            }
        }),
        Value::ClockTime(nanos) => {
            writer.u8(tagged::CLOCK_TIME);
            writer.i64(*nanos);
        }
        Value::Moment(seconds, nanos, zoned) => {
            writer.u8(if *zoned {
                tagged::INSTANT
            } else {
                tagged::LOCAL
            });
            writer.i64(*seconds);
            writer.i32(*nanos);
        }
        Value::Uuid(bytes) => {
            writer.u8(tagged::UUID);
            writer.bytes.extend_from_slice(bytes);
        }
        Value::Struct(_) => unreachable!("a struct needs a schema"),
        scalar => {
            writer.u8(match scalar {
                Value::Int8(_) => tagged::INT8,
                Value::Int16(_) => tagged::INT16,
                Value::Int32(_) => tagged::INT32,
                Value::Int64(_) => tagged::INT64,
                Value::Float32(_) => tagged::FLOAT32,
                Value::Float64(_) => tagged::FLOAT64,
                Value::Date(_) => tagged::DATE,
                Value::Time(_) => tagged::TIME,
                _ => tagged::TIMESTAMP,
            });
            write_fixed(writer, scalar);
        }
    }
}

fn nested(writer: &mut Writer, tag: u8, count: usize, items: impl FnOnce(&mut Writer)) {
    let mut inner = Writer::default();
    items(&mut inner);
    writer.u8(tag);
    writer.length(inner.bytes.len());
    writer.length(count);
    writer.bytes.extend_from_slice(&inner.bytes);
}

fn name_index(heap: &mut Heap, name: &str) -> usize {
    let known = heap.names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        heap.names.push(name.to_owned());
        heap.names.len() - 1
    })
}

fn write_name(writer: &mut Writer, heap: &mut Heap, name: &str) {
    writer.u8(tagged::NAME);
    writer.length(name_index(heap, name));
}

fn write_fixed(writer: &mut Writer, value: &Value) {
    let out = &mut writer.bytes;
    match value {
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Int8(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Int16(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Int32(value) | Value::Date(value) | Value::Time(value) => {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Value::Int64(value) | Value::Timestamp(value) => {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Value::Float32(value) => out.extend_from_slice(&value.to_bits().to_le_bytes()),
        Value::Float64(value) => out.extend_from_slice(&value.to_bits().to_le_bytes()),
        other => unreachable!("{other:?} is not of fixed width"),
    }
}

fn write_column(writer: &mut Writer, schema: &SourceSchema, values: &[&Value]) {
    let nulls = values
        .iter()
        .filter(|value| ***value == Value::Null)
        .count();
    writer.length(nulls);
    if nulls > 0 {
        for eight in values.chunks(8) {
            let bit = |(index, value): (usize, &&Value)| u8::from(**value != Value::Null) << index;
            writer.u8(eight.iter().enumerate().map(bit).sum());
        }
    }
    match schema.kind() {
        SourceKind::String | SourceKind::Bytes => {
            let decimals: Vec<[u8; 16]> = values.iter().map(|value| decimal(value)).collect();
            let bytes: Vec<&[u8]> = values
                .iter()
                .zip(&decimals)
                .map(|(value, decimal)| match value {
                    Value::String(text) => text.as_bytes(),
                    Value::Bytes(bytes) => bytes.as_slice(),
                    Value::Decimal(..) => decimal.as_slice(),
                    Value::Null => &[],
                    other => unreachable!("{other:?} does not fit {schema:?}"),
                })
                .collect();
            write_offsets(writer, bytes.iter().map(|bytes| bytes.len()));
            bytes
                .iter()
                .for_each(|bytes| writer.bytes.extend_from_slice(bytes));
        }
        SourceKind::Struct | SourceKind::Array | SourceKind::Map => {
            write_children(writer, schema, values);
        }
        kind => {
            let zero = match kind {
                SourceKind::Boolean => Value::Bool(false),
                SourceKind::Int8 => Value::Int8(0),
                SourceKind::Int16 => Value::Int16(0),
                SourceKind::Int32 | SourceKind::Float32 => Value::Int32(0),
                _ => Value::Int64(0),
            };
            for value in values {
                write_fixed(writer, if **value == Value::Null { &zero } else { value });
            }
        }
    }
}

fn write_children(writer: &mut Writer, schema: &SourceSchema, values: &[&Value]) {
    match schema.kind() {
        SourceKind::Struct => {
            for (index, field) in schema.fields().iter().enumerate() {
                let field_of = |value: &&'_ Value| match value {
                    Value::Struct(fields) => fields.get(index).cloned().unwrap_or(Value::Null),
                    _ => Value::Null,
                };
                let owned: Vec<Value> = values.iter().map(field_of).collect();
                write_column(writer, &field.schema, &owned.iter().collect::<Vec<_>>());
            }
        }
        SourceKind::Array => {
            let items: Vec<&[Value]> = values
                .iter()
                .map(|value| match value {
                    Value::Array(items) => items.as_slice(),
                    _ => &[],
                })
                .collect();
            write_offsets(writer, items.iter().map(|items| items.len()));
            let items: Vec<&Value> = items.into_iter().flatten().collect();
            schema
                .value()
                .iter()
                .for_each(|schema| write_column(writer, schema, &items));
        }
        _ => {
            let entries: Vec<&[(Value, Value)]> = values
                .iter()
                .map(|value| match value {
                    Value::Map(entries) => entries.as_slice(),
                    _ => &[],
                })
                .collect();
            write_offsets(writer, entries.iter().map(|entries| entries.len()));
            let keys: Vec<&Value> = entries
                .iter()
                .copied()
                .flatten()
                .map(|(key, _)| key)
                .collect();
            let values: Vec<&Value> = entries
                .iter()
                .copied()
                .flatten()
                .map(|(_, value)| value)
                .collect();
            schema
                .key()
                .iter()
                .for_each(|schema| write_column(writer, schema, &keys));
            schema
                .value()
                .iter()
                .for_each(|schema| write_column(writer, schema, &values));
        }
    }
}

fn decimal(value: &Value) -> [u8; 16] {
    match value {
        Value::Decimal(unscaled, _) => unscaled.to_be_bytes(),
        _ => [0; 16],
    }
}

fn write_offsets(writer: &mut Writer, lengths: impl Iterator<Item = usize>) {
    let mut end = 0;
    writer.length(end);
    for length in lengths {
        end += length;
        writer.length(end);
    }
}

/// Returns the bytes that Java's `Requests` writes.
pub fn encode_request(request: &Request) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u8(REQUEST_VERSION);
    let (kind, partitions) = match request {
        Request::Assign(partitions) => (1, Some(partitions)),
        Request::Revoke(partitions) => (2, Some(partitions)),
        Request::Lost(partitions) => (3, Some(partitions)),
        Request::PreCommit(_) => (4, None),
        Request::Tick => (5, None),
        Request::Cancel => (6, None),
        Request::AlterOffsets(_) => (8, None),
        Request::Epoch => (9, None),
        Request::Metrics => (11, None),
        Request::Topics(_) => (10, None),
        Request::Channel { .. } => (7, None),
    };
    writer.u8(kind);
    let partition = |writer: &mut Writer, partition: &TopicPartition| {
        writer.text(&partition.topic);
        writer.i32(partition.partition);
    };
    if let Some(partitions) = partitions {
        writer.length(partitions.len());
        partitions.iter().for_each(|of| partition(&mut writer, of));
    }
    if let Request::PreCommit(positions) = request {
        writer.length(positions.len());
        for (of, offset) in positions {
            partition(&mut writer, of);
            writer.i64(*offset);
        }
    }
    if let Request::Topics(topics) = request {
        writer.length(topics.len());
        for topic in topics {
            writer.text(&topic.name);
            writer.bytes.extend_from_slice(topic.id.as_bytes());
            writer.i32(topic.partitions.cast_signed());
        }
    }
    if let Request::AlterOffsets(offsets) = request {
        writer.length(offsets.len());
        for (tp, offset) in offsets {
            partition(&mut writer, tp);
            writer.u8(u8::from(offset.is_some()));
            writer.i64(offset.unwrap_or(0));
        }
    }
    if let Request::Channel {
        leader,
        now_ms,
        records,
    } = request
    {
        writer.u8(u8::from(*leader));
        writer.i64(now_ms.cast_signed());
        writer.length(records.len());
        for record in records {
            writer.i64(record.offset);
            writer.i64(record.age_ms.cast_signed());
            writer.length(record.value.len());
            writer.bytes.extend_from_slice(&record.value);
        }
    }
    writer.bytes
}

/// Decodes effects as Java does.
pub fn decode_effects(bytes: &[u8]) -> Result<Effects> {
    let mut reader = Reader::new(bytes, "effects");
    if reader.u8()? != effects::EFFECTS_VERSION {
        return Err(reader.corrupt("effects have an unknown version"));
    }
    let flags = reader.u8()?;
    let has = |flag: u8| flags & flag != 0;
    let mut decoded = Effects {
        pause: has(effects::FLAG_PAUSE),
        resume: has(effects::FLAG_RESUME),
        request_commit: has(effects::FLAG_REQUEST_COMMIT),
        parts: effects::FrameParts {
            keys: has(effects::FLAG_KEYS),
            headers: has(effects::FLAG_HEADERS),
            topics: has(effects::FLAG_TOPICS),
        },
        ..Effects::default()
    };
    if has(effects::FLAG_TIMEOUT) {
        decoded.timeout_ms = Some(reader.i64()?.cast_unsigned());
    }
    if has(effects::FLAG_ERROR) {
        let kinds = [
            ErrorKind::Retriable,
            ErrorKind::Data,
            ErrorKind::Config,
            ErrorKind::Fatal,
        ];
        let number = reader.u8()?;
        let kind = kinds.into_iter().find(|kind| kind.number() == number);
        decoded.error = Some(ParkedError {
            kind: kind.ok_or_else(|| reader.corrupt("error kind is unknown"))?,
            code: reader.text()?.to_owned(),
            message: reader.text()?.to_owned(),
        });
    }
    decoded.durable = positions(&mut reader)?;
    decoded.rewinds = positions(&mut reader)?;
    for _ in 0..reader.count(28)? {
        let row = reader.u32()?;
        let (partition, offset) = position(&mut reader)?;
        decoded.rejected.push(Rejected {
            row,
            partition,
            offset,
            code: reader.text()?.to_owned(),
            table: reader.text()?.to_owned(),
            column: reader.text()?.to_owned(),
            message: reader.text()?.to_owned(),
        });
    }
    for _ in 0..reader.count(5)? {
        let levels = [
            LogLevel::Error,
            LogLevel::Warn,
            LogLevel::Info,
            LogLevel::Debug,
        ];
        let level = levels.get(usize::from(reader.u8()?)).copied();
        let level = level.ok_or_else(|| reader.corrupt("log level is unknown"))?;
        decoded.log.push((level, reader.text()?.to_owned()));
    }
    decoded.log_dropped = reader.i64()?.cast_unsigned();
    for _ in 0..reader.count(4)? {
        decoded.messages.push(reader.bytes()?.to_vec());
    }
    reader.finish()?;
    Ok(decoded)
}

fn positions(reader: &mut Reader<'_>) -> Result<Vec<(TopicPartition, i64)>> {
    let count = reader.count(16)?;
    (0..count).map(|_| position(reader)).collect()
}

fn position(reader: &mut Reader<'_>) -> Result<(TopicPartition, i64)> {
    let topic = reader.text()?;
    let partition = reader.i32()?;
    Ok((TopicPartition::new(topic, partition), reader.i64()?))
}

/// Decodes the answer of `validate` as Java does.
pub fn decode_validation(bytes: &[u8]) -> Result<Vec<(String, ValidationLevel, String)>> {
    let mut reader = Reader::new(bytes, "validation");
    if reader.u8()? != effects::EFFECTS_VERSION {
        return Err(reader.corrupt("validation has an unknown version"));
    }
    let mut problems = Vec::new();
    for _ in 0..reader.count(9)? {
        let key = reader.text()?.to_owned();
        let level = match reader.u8()? {
            0 => ValidationLevel::Error,
            1 => ValidationLevel::Warning,
            _ => return Err(reader.corrupt("validation level is unknown")),
        };
        problems.push((key, level, reader.text()?.to_owned()));
    }
    reader.finish()?;
    Ok(problems)
}
