//! From a frame of bytes to frames of values, part by part.

use std::collections::BTreeMap;
use std::ops::Range;

use super::columns::ColumnsBuilder;
use super::envelope::Envelope;
use super::json::{self, lexer::Scratch};
use super::maps::MapsBuilder;
use super::refused::Refused;
use super::{Format, Opened, Raw, SCHEMALESS};
use crate::error::{Result, SinkError};
use crate::wire::column::{Offsets, span};
use crate::wire::tagged_build::TaggedBuilder;
use crate::wire::{Cell, ColumnData, Decoded, Frame, SchemaRegistry, Slice};

/// Schemas of one side whose columns are kept.
const SLOTS_MAX: usize = 64;

/// Decodes the values, the keys or both of a task's frames.
#[derive(Debug)]
pub struct FrameDecoder {
    value: Option<Side>,
    key: Option<Side>,
    rows: Range<usize>,
    skipped: Vec<u8>,
    /// Keys that are not decoded, of a part that is not the whole.
    copied_key: Option<ColumnsBuilder>,
    refused: BTreeMap<u32, SinkError>,
}

/// One side of records: values or keys.
#[derive(Debug)]
pub struct Side {
    name: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Plain(Plain),
    Columns(Box<Slots>),
}

/// Values without a schema.
#[derive(Debug)]
enum Plain {
    /// JSON objects.
    Maps(Box<MapsBuilder>, Scratch),
    /// JSON of any type.
    Tagged(TaggedBuilder, String, Scratch),
}

/// The columns of the schemas that a format has met.
#[derive(Debug)]
struct Slots {
    format: Box<dyn Format>,
    by_schema: BTreeMap<usize, Slot>,
    /// Takes values whose schema is none.
    plain: Plain,
    /// The schema of the part at hand, once a row has one.
    current: Option<usize>,
    /// Rows of the part that came before any had a schema.
    leading_nulls: usize,
}

#[derive(Debug)]
struct Slot {
    /// The schema's id in the session.
    id: u32,
    columns: ColumnsBuilder,
}

/// What comes of the bytes of a row before they are decoded.
enum Next<'r> {
    Null,
    /// Bytes without a schema that are known to be a text.
    Text(&'r str),
    Value(Raw<'r>, Option<Opened>),
    Refused(Refused),
}

impl Plain {
    fn of(records: bool) -> Self {
        match records {
            true => Plain::Maps(Box::default(), Scratch::default()),
            false => Plain::tagged(),
        }
    }

    fn tagged() -> Self {
        Plain::Tagged(TaggedBuilder::default(), String::new(), Scratch::default())
    }

    fn clear(&mut self) {
        match self {
            Plain::Maps(maps, _) => maps.clear(),
            Plain::Tagged(values, heap, _) => {
                values.clear();
                heap.clear();
            }
        }
    }

    fn release(&mut self) {
        *self = Plain::of(matches!(self, Plain::Maps(..)));
    }

    /// Tells whether the part should end before its next row.
    fn is_full(&self) -> bool {
        match self {
            Plain::Maps(maps, _) => maps.is_wide(),
            Plain::Tagged(..) => false,
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        match self {
            Plain::Maps(maps, scratch) => json::record(bytes, maps, scratch),
            Plain::Tagged(values, heap, scratch) => json::any_value(bytes, values, heap, scratch),
        }
    }

    fn push_text(&mut self, text: &str) -> Result<(), Refused> {
        match self {
            Plain::Maps(maps, scratch) => json::record_of_text(text, maps, scratch),
            Plain::Tagged(..) => self.push(text.as_bytes()),
        }
    }

    fn push_null(&mut self) {
        match self {
            Plain::Maps(maps, _) => maps.null_row(),
            Plain::Tagged(values, ..) => values.end_row(),
        }
    }

    fn finish(&mut self) {
        if let Plain::Maps(maps, _) = self {
            maps.finish();
        }
    }

    fn decoded(&self) -> Decoded<'_> {
        match self {
            Plain::Maps(maps, _) => Decoded::Maps(maps.records()),
            Plain::Tagged(values, heap, _) => Decoded::Tagged(values.values(heap)),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Plain::Maps(maps, scratch) => maps.bytes() + scratch.text.capacity(),
            Plain::Tagged(values, heap, _) => values.bytes() + heap.capacity(),
        }
    }
}

impl Side {
    /// Values that are JSON without a schema; all are `records`, or some may be anything else.
    pub fn json_values(records: bool) -> Self {
        Side {
            name: "value",
            kind: Kind::Plain(Plain::of(records)),
        }
    }

    /// Keys that are JSON without a schema.
    pub fn json_keys() -> Self {
        Side {
            name: "key",
            kind: Kind::Plain(Plain::tagged()),
        }
    }

    /// Values that are JSON with their schemas; see [`json_values`](Self::json_values).
    pub fn envelope_values(records: bool) -> Self {
        Side::values(Box::new(Envelope::default()), records)
    }

    /// Keys that are JSON with their schemas.
    pub fn envelope_keys() -> Self {
        Side::keys(Box::new(Envelope::default()))
    }

    /// Values of a format that has schemas; those without one are JSON, as of
    /// [`json_values`](Self::json_values).
    pub fn values(format: Box<dyn Format>, records: bool) -> Self {
        Side::with_schemas("value", format, Plain::of(records))
    }

    /// Keys of a format that has schemas.
    pub fn keys(format: Box<dyn Format>) -> Self {
        Side::with_schemas("key", format, Plain::tagged())
    }

    fn with_schemas(name: &'static str, format: Box<dyn Format>, plain: Plain) -> Self {
        let slots = Slots {
            format,
            by_schema: BTreeMap::new(),
            plain,
            current: None,
            leading_nulls: 0,
        };
        Side {
            name,
            kind: Kind::Columns(Box::new(slots)),
        }
    }

    /// Returns the format, when it has schemas.
    pub fn format(&mut self) -> Option<&mut dyn Format> {
        match &mut self.kind {
            Kind::Columns(slots) => Some(slots.format.as_mut()),
            Kind::Plain(_) => None,
        }
    }

    fn clear(&mut self) {
        match &mut self.kind {
            Kind::Plain(plain) => plain.clear(),
            Kind::Columns(slots) => slots.clear(),
        }
    }

    fn release(&mut self) {
        match &mut self.kind {
            Kind::Plain(plain) => plain.release(),
            Kind::Columns(slots) => {
                slots.clear();
                slots.by_schema.clear();
                slots.plain.release();
            }
        }
    }

    /// Looks at a value, which may be known to be a `text`; says whether it needs a part of its own.
    fn look<'f>(
        &mut self,
        cell: Cell<'f>,
        text: Option<&'f str>,
        raw: impl Fn(&'f [u8]) -> Raw<'f>,
    ) -> (Next<'f>, bool) {
        let bytes = match cell {
            Cell::Null => return (Next::Null, false),
            Cell::Bytes(bytes) => bytes,
            other => {
                let message = "the converter made something else than bytes: native decoding needs \
                               `org.apache.kafka.connect.converters.ByteArrayConverter`";
                let refused = Refused::new("DECODE_NO_BYTES", message);
                return (
                    Next::Refused(refused.types(other.type_name(), "bytes")),
                    false,
                );
            }
        };
        match &mut self.kind {
            Kind::Plain(plain) => {
                let value = text.map_or_else(|| Next::Value(raw(bytes), None), Next::Text);
                (value, plain.is_full())
            }
            Kind::Columns(slots) => match slots.format.open(raw(bytes)) {
                Ok(None) => (Next::Null, false),
                Ok(Some(opened)) => {
                    let ends = slots.ends_before(&opened);
                    (Next::Value(raw(bytes), Some(opened)), ends)
                }
                Err(refused) => (Next::Refused(refused), false),
            },
        }
    }

    /// Adds the value of a row; one that is refused is null.
    fn push(
        &mut self,
        next: Next<'_>,
        schemas: &mut SchemaRegistry,
    ) -> Result<Result<(), Refused>> {
        let (raw, opened) = match next {
            Next::Null => {
                self.push_null();
                return Ok(Ok(()));
            }
            Next::Refused(refused) => {
                self.push_null();
                return Ok(Err(refused));
            }
            Next::Text(text) => match &mut self.kind {
                Kind::Plain(plain) => return Ok(plain.push_text(text)),
                Kind::Columns(_) => return Err(SinkError::internal("a value was not opened")),
            },
            Next::Value(raw, opened) => (raw, opened),
        };
        match (&mut self.kind, opened) {
            (Kind::Plain(plain), _) => Ok(plain.push(raw.bytes)),
            (Kind::Columns(slots), Some(opened)) => slots.push(raw, &opened, schemas),
            (Kind::Columns(_), None) => Err(SinkError::internal("a value was not opened")),
        }
    }

    fn push_null(&mut self) {
        match &mut self.kind {
            Kind::Plain(plain) => plain.push_null(),
            Kind::Columns(slots) => slots.push_null(),
        }
    }

    fn finish(&mut self) {
        match &mut self.kind {
            Kind::Plain(plain) => plain.finish(),
            Kind::Columns(slots) => slots.plain.finish(),
        }
    }

    fn decoded(&self) -> Result<Decoded<'_>> {
        let slots = match &self.kind {
            Kind::Plain(plain) => return Ok(plain.decoded()),
            Kind::Columns(slots) => slots,
        };
        Ok(match slots.current {
            None => Decoded::Nulls,
            Some(SCHEMALESS) => slots.plain.decoded(),
            Some(number) => {
                let slot = slots.by_schema.get(&number);
                let slot = slot.ok_or_else(lost_columns)?;
                Decoded::Columns(slot.id, slot.columns.column()?)
            }
        })
    }

    fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Plain(plain) => plain.bytes(),
            Kind::Columns(slots) => {
                let columns = slots.by_schema.values().map(|slot| slot.columns.bytes());
                columns.sum::<usize>() + slots.plain.bytes()
            }
        }
    }
}

fn lost_columns() -> SinkError {
    SinkError::internal("a decoder lost the columns of a schema")
}

impl Slots {
    fn clear(&mut self) {
        if let Some(slot) = self.current.and_then(|at| self.by_schema.get_mut(&at)) {
            slot.columns.clear();
        }
        if self.by_schema.len() > SLOTS_MAX {
            self.by_schema.clear();
        }
        self.plain.clear();
        self.current = None;
        self.leading_nulls = 0;
    }

    /// Tells whether a value needs another part than the one at hand.
    fn ends_before(&self, opened: &Opened) -> bool {
        match self.current {
            Some(SCHEMALESS) if opened.schema == SCHEMALESS => self.plain.is_full(),
            Some(current) => current != opened.schema,
            None => false,
        }
    }

    fn push_null(&mut self) {
        match self.current {
            None => self.leading_nulls += 1,
            Some(SCHEMALESS) => self.plain.push_null(),
            Some(number) => {
                if let Some(slot) = self.by_schema.get_mut(&number) {
                    slot.columns.push_null_row();
                }
            }
        }
    }

    fn push(
        &mut self,
        raw: Raw<'_>,
        opened: &Opened,
        schemas: &mut SchemaRegistry,
    ) -> Result<Result<(), Refused>> {
        if opened.schema == SCHEMALESS {
            return Ok(self.push_plain(raw, opened));
        }
        if !self.by_schema.contains_key(&opened.schema) {
            match self.new_slot(opened.schema, schemas) {
                Ok(slot) => {
                    self.by_schema.insert(opened.schema, slot);
                }
                Err(error) if error.kind() == crate::ErrorKind::Data => {
                    self.push_null();
                    let message = error.message().to_owned();
                    return Ok(Err(Refused::new(error.code(), message)));
                }
                Err(error) => return Err(error),
            }
        }
        let slot = self.by_schema.get_mut(&opened.schema);
        let slot = slot.ok_or_else(lost_columns)?;
        if self.current.is_none() {
            self.current = Some(opened.schema);
            (0..self.leading_nulls).for_each(|_| slot.columns.push_null_row());
        }
        let decoded = self.format.decode(raw, opened, &mut slot.columns);
        match decoded {
            Ok(()) => slot.columns.end_row(),
            Err(refused) => {
                slot.columns.abandon_row();
                return Ok(Err(refused));
            }
        }
        Ok(Ok(()))
    }

    fn push_plain(&mut self, raw: Raw<'_>, opened: &Opened) -> Result<(), Refused> {
        if self.current.is_none() {
            self.current = Some(SCHEMALESS);
            (0..self.leading_nulls).for_each(|_| self.plain.push_null());
        }
        let data = raw.bytes.get(opened.data.clone()).unwrap_or_default();
        let pushed = self.plain.push(data);
        pushed.map_err(|refused| refused.behind(opened.data.start))
    }

    fn new_slot(&self, number: usize, schemas: &mut SchemaRegistry) -> Result<Slot> {
        let schema = self.format.schema(number);
        let schema = schema.ok_or_else(|| SinkError::internal("a decoder lost a schema"))?;
        let columns = ColumnsBuilder::new(schema)?;
        let id = schemas.register(&schema.to_bytes())?;
        Ok(Slot { id, columns })
    }
}

impl FrameDecoder {
    /// Decodes the sides that are given; the others stay as they come.
    pub fn new(value: Option<Side>, key: Option<Side>) -> Self {
        FrameDecoder {
            value,
            key,
            rows: 0..0,
            skipped: Vec::new(),
            copied_key: None,
            refused: BTreeMap::new(),
        }
    }

    /// Returns the side of the values, when they are decoded.
    pub fn value(&mut self) -> Option<&mut Side> {
        self.value.as_mut()
    }

    /// Returns the side of the keys, when they are decoded.
    pub fn key(&mut self) -> Option<&mut Side> {
        self.key.as_mut()
    }

    /// Returns about how many bytes of memory are held from frame to frame.
    pub fn bytes(&self) -> usize {
        let sides = [&self.value, &self.key].into_iter().flatten();
        sides.map(Side::bytes).sum()
    }

    /// Forgets the part at hand with all memory that was kept for the next one.
    pub fn release(&mut self) {
        for side in [&mut self.value, &mut self.key].into_iter().flatten() {
            side.release();
        }
        self.copied_key = None;
        self.rows = 0..0;
    }

    /// Decodes rows of `frame` from `first` on, as many as have one schema, and returns where they end.
    /// Rows that are not `wanted` are skipped.
    /// [`part`](Self::part) and [`take_refused`](Self::take_refused) say what came of them.
    ///
    /// # Errors
    ///
    /// None because of a record. `SCHEMAS_TOO_MANY`, and `INTERNAL`.
    pub fn decode(
        &mut self,
        frame: &Frame<'_>,
        first: usize,
        wanted: &dyn Fn(usize) -> bool,
        schemas: &mut SchemaRegistry,
    ) -> Result<usize> {
        self.begin(first);
        let texts = self.texts(frame, first);
        let mut row = first;
        while row < frame.rows() {
            if frame.is_skipped(row) || !wanted(row) {
                self.push_null(row - first);
                row += 1;
                continue;
            }
            let text = texts.and_then(|(offsets, text)| text.get(span(offsets, row)));
            // Of a text nobody asks where it came from.
            let (topic, headers) = match text {
                Some(_) if self.key.is_none() => ("", None),
                _ => (topic_of(frame, row), frame.headers(row)),
            };
            let raw = |bytes| Raw {
                topic,
                bytes,
                headers,
            };
            let value = self.value.as_mut();
            let value = value.map(|side| side.look(frame.value(row), text, raw));
            let key = self.key.as_mut();
            let key = key.map(|side| side.look(frame.key(row), None, raw));
            let cuts = |looked: &Option<(Next<'_>, bool)>| matches!(looked, Some((_, true)));
            if row > first && (cuts(&value) || cuts(&key)) {
                break;
            }
            for (side, next) in [(&mut self.value, value), (&mut self.key, key)] {
                let (Some(side), Some((next, _))) = (side.as_mut(), next) else {
                    continue;
                };
                if let Err(refused) = side.push(next, schemas)? {
                    let error = SinkError::from(refused).with("side", side.name);
                    self.refused.entry(number(row - first)).or_insert(error);
                }
            }
            row += 1;
        }
        self.rows = first..row;
        self.finish(frame)?;
        Ok(row)
    }

    /// Returns the values as one text, if they are, with where each lies: to check all of them at once
    /// takes half of the time. A value that is no text by itself lies on no boundaries of this one.
    fn texts<'f>(&self, frame: &'f Frame<'_>, first: usize) -> Option<(Offsets<'f>, &'f str)> {
        let is_plain = |side: &Side| matches!(side.kind, Kind::Plain(Plain::Maps(..)));
        if first > 0 || !self.value.as_ref().is_some_and(is_plain) {
            return None;
        }
        match frame.value_column()?.data() {
            ColumnData::Bytes { offsets, data } => Some((offsets, std::str::from_utf8(data).ok()?)),
            _ => None,
        }
    }

    fn begin(&mut self, first: usize) {
        self.rows = first..first;
        self.skipped.clear();
        self.copied_key = None;
        self.refused.clear();
        for side in [&mut self.value, &mut self.key].into_iter().flatten() {
            side.clear();
        }
    }

    /// Adds a row of the part that is not looked at.
    fn push_null(&mut self, row: usize) {
        for side in [&mut self.value, &mut self.key].into_iter().flatten() {
            side.push_null();
        }
        set_bit(&mut self.skipped, row);
    }

    fn finish(&mut self, frame: &Frame<'_>) -> Result<()> {
        for side in [&mut self.value, &mut self.key].into_iter().flatten() {
            side.finish();
        }
        for row in self.refused.keys() {
            set_bit(
                &mut self.skipped,
                usize::try_from(*row).unwrap_or(usize::MAX),
            );
        }
        self.skipped.resize(self.rows.len().div_ceil(8), 0);
        let is_whole = self.rows.len() == frame.rows();
        let (Some(column), None, false) = (frame.key_column(), &self.key, is_whole) else {
            return Ok(());
        };
        let schema = frame.key_schema();
        let schema = schema.ok_or_else(|| SinkError::internal("keys in columns have no schema"))?;
        let mut copy = ColumnsBuilder::new(schema)?;
        for row in self.rows.clone() {
            let (root, budget) = copy.row();
            root.push_cell(column.cell(row), budget)?;
            copy.end_row();
        }
        self.copied_key = Some(copy);
        Ok(())
    }

    /// Returns the rows that were decoded last, out of `frame`, as a frame of their own.
    pub fn part<'b>(&'b self, frame: &Frame<'b>, schemas: &SchemaRegistry) -> Result<Frame<'b>> {
        let part = Slice {
            first: self.rows.start,
            rows: self.rows.len(),
            skipped: &self.skipped,
        };
        let decoded = |side: &'b Option<Side>| side.as_ref().map(Side::decoded).transpose();
        let mut key = match frame.has_keys() {
            true => decoded(&self.key)?,
            false => None,
        };
        if let Some(copied) = &self.copied_key {
            key = Some(Decoded::Columns(frame.key_schema_id(), copied.column()?));
        }
        frame.decoded(&part, decoded(&self.value)?, key, &|id| schemas.get(id))
    }

    /// Returns the rows of the part whose bytes were refused, with the reason. They are skipped rows
    /// of its frame.
    pub fn take_refused(&mut self) -> BTreeMap<u32, SinkError> {
        std::mem::take(&mut self.refused)
    }
}

/// Returns the topic of a row, as Kafka gave it.
fn topic_of<'f>(frame: &'f Frame<'_>, row: usize) -> &'f str {
    let source = frame.source(row);
    source.map_or("", |(run, _)| &run.partition.topic)
}

fn number(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}

fn set_bit(bits: &mut Vec<u8>, row: usize) {
    if bits.len() <= row / 8 {
        bits.resize(row / 8 + 1, 0);
    }
    if let Some(byte) = bits.get_mut(row / 8) {
        *byte |= 1 << (row % 8);
    }
}
