//! A frame: at most `BLOCK_ROWS_MAX` records of one value schema and one key schema.
//!
//! Invariant: offsets rise strictly inside a run, runs cover the rows exactly once and in order.
//! Offsets, topics and partitions are those that Kafka gave, before any transform (KIP-793).
//! The offsets of a partition may start lower in a later run or frame: Connect delivers again.

use std::sync::Arc;

use super::column::SourceColumn;
use super::maps::MapRows;
use super::read::Reader;
use super::schema::{SourceKind, SourceSchema};
use super::tagged::{Context, TaggedRows};
use super::value::{self, Cell, MapCell};
use crate::error::{Result, SinkError};
use crate::limits::{BLOCK_ROWS_MAX, FRAME_BYTES_MAX};
use crate::offsets::TopicPartition;

/// The first four bytes of a frame, `FRZF`.
pub const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"FRZF");
/// The version of the frame layout.
pub const FRAME_VERSION: u16 = 1;

const RUN_CONTIGUOUS: u32 = 1;
const RUN_RENAMED: u32 = 1 << 1;
pub(crate) const FLAG_SKIPPED: u16 = 1;
pub(crate) const MODE_NONE: u8 = 0;
pub(crate) const MODE_COLUMNS: u8 = 1;
pub(crate) const MODE_TAGGED: u8 = 2;
pub(crate) const MODE_MAPS: u8 = 3;

#[derive(Debug, Clone, Copy)]
enum Offsets<'a> {
    Contiguous(i64),
    Explicit(&'a [[u8; 8]]),
}

/// Rows of one topic partition that follow each other in a frame.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// The topic and partition.
    pub partition: TopicPartition,
    /// The index of the first row in the frame.
    pub first_row: usize,
    /// The number of rows, at least 1.
    pub rows: usize,
    /// The topic as transforms left it, where they changed it and the session asked for it.
    renamed: Option<Arc<str>>,
    offsets: Offsets<'a>,
}

impl<'a> Run<'a> {
    /// Returns the rows of the run from `first` to before `end` of the frame, as a run of a frame
    /// that begins at `first`; `None` when there are none.
    fn cut(&self, first: usize, end: usize) -> Option<Run<'a>> {
        let from = self.first_row.max(first);
        let to = (self.first_row + self.rows).min(end);
        let rows = to.checked_sub(from).filter(|rows| *rows > 0)?;
        let skip = from - self.first_row;
        let offsets = match &self.offsets {
            Offsets::Contiguous(_) => Offsets::Contiguous(self.offset(skip)),
            Offsets::Explicit(offsets) => Offsets::Explicit(offsets.get(skip..skip + rows)?),
        };
        Some(Run {
            partition: self.partition.clone(),
            first_row: from - first,
            rows,
            renamed: self.renamed.clone(),
            offsets,
        })
    }

    /// Returns the topic that the records are routed by: as transforms left it.
    pub fn topic(&self) -> &str {
        self.renamed.as_deref().unwrap_or(&self.partition.topic)
    }

    /// Returns the offset of the run's row `index`, counted from `first_row`.
    #[inline]
    pub fn offset(&self, index: usize) -> i64 {
        match &self.offsets {
            Offsets::Contiguous(base) => {
                base.saturating_add(i64::try_from(index).unwrap_or(i64::MAX))
            }
            Offsets::Explicit(offsets) => offsets
                .get(index)
                .copied()
                .map_or(i64::MAX, i64::from_le_bytes),
        }
    }

    /// Returns the offset of the frame's row `row`, which must belong to this run.
    #[inline]
    pub fn offset_of(&self, row: u32) -> i64 {
        self.offset((row as usize).saturating_sub(self.first_row))
    }

    /// Returns the lowest offset.
    pub fn first_offset(&self) -> i64 {
        self.offset(0)
    }

    /// Returns the highest offset.
    pub fn last_offset(&self) -> i64 {
        self.offset(self.rows.saturating_sub(1))
    }

    /// Tells whether the offsets have no gaps.
    pub fn is_contiguous(&self) -> bool {
        matches!(self.offsets, Offsets::Contiguous(_))
    }
}

#[derive(Debug, Clone)]
enum Values<'a> {
    None,
    /// Nothing but rows, for records that bring no field of their own.
    Empty,
    Columns(SourceColumn<'a>),
    /// Values with a tag, and what they point into.
    Tagged(TaggedRows<'a>, Arc<Context<'a>>),
    /// Records in columns: those that a decoder made, and plain ones of Java.
    Maps(MapRows<'a>),
}

/// Values or keys that were decoded from bytes.
#[derive(Debug, Clone)]
pub enum Decoded<'a> {
    /// With a schema, which has this id in the session.
    Columns(u32, SourceColumn<'a>),
    /// Records without a schema.
    Maps(MapRows<'a>),
    /// Values of any type without a schema.
    Tagged(TaggedValues<'a>),
    /// No row has a value.
    Nulls,
}

/// Values without a schema, each with its tag.
#[derive(Debug, Clone)]
pub struct TaggedValues<'a> {
    pub(crate) rows: TaggedRows<'a>,
    pub(crate) context: Arc<Context<'a>>,
}

/// The rows of a frame from `first` on, in place of all.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'p> {
    /// The first row.
    pub first: usize,
    /// The number of rows.
    pub rows: usize,
    /// Rows that are not to be looked at: a bitmap as in a frame, of the rows of the part.
    pub skipped: &'p [u8],
}

/// Values, keys or headers in place of a frame's own.
#[derive(Debug, Default)]
pub(crate) struct Parts<'a> {
    pub(crate) value: Option<Part<'a>>,
    pub(crate) key: Option<Part<'a>>,
    /// As [`Part::Tagged`].
    pub(crate) headers: Option<(TaggedRows<'a>, &'a str)>,
}

/// Values or keys.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    /// None at all.
    Nothing,
    /// With a schema; without a column all are null.
    Columns(Arc<SourceSchema>, Option<SourceColumn<'a>>),
    /// Without a schema, with the texts that they point into. Names are those of the values that they
    /// stand in place of.
    Tagged(TaggedRows<'a>, &'a str),
}

impl<'a> Part<'a> {
    fn in_place_of(self, old: &Values<'a>, id: u32) -> WithSchema<'a> {
        match self {
            Part::Nothing => (None, Values::None),
            Part::Columns(schema, column) => (
                Some((id, schema)),
                column.map_or(Values::None, Values::Columns),
            ),
            Part::Tagged(rows, text) => {
                let names = old.tagged().map(|(_, context)| context.names.clone());
                let names = names.unwrap_or_default();
                (
                    None,
                    Values::Tagged(rows, Arc::new(Context { text, names })),
                )
            }
        }
    }
}

impl<'a> Values<'a> {
    fn tagged(&self) -> Option<(&TaggedRows<'a>, &Context<'a>)> {
        match self {
            Values::Tagged(rows, context) => Some((rows, context)),
            _ => None,
        }
    }
}

/// A decoded frame. It borrows the bytes and copies none of the values.
#[derive(Debug, Clone)]
pub struct Frame<'a> {
    rows: usize,
    value_schema: Option<(u32, Arc<SourceSchema>)>,
    key_schema: Option<(u32, Arc<SourceSchema>)>,
    runs: Vec<Run<'a>>,
    timestamps: &'a [[u8; 8]],
    skipped: Option<&'a [u8]>,
    context: Arc<Context<'a>>,
    value: Values<'a>,
    key: Values<'a>,
    headers: Values<'a>,
    values_are_keys: bool,
}

struct Header {
    has_skipped: bool,
    rows: usize,
    value_schema: u32,
    key_schema: u32,
    topics: usize,
    runs: usize,
    names: usize,
    value_mode: u8,
    key_mode: u8,
    header_mode: u8,
}

impl<'a> Frame<'a> {
    /// Decodes a frame; `schema` finds a registered schema by its id.
    pub fn decode(
        bytes: &'a [u8],
        schema: &dyn Fn(u32) -> Option<Arc<SourceSchema>>,
    ) -> Result<Frame<'a>> {
        let mut reader = Reader::new(bytes, "frame");
        let header = decode_header(&mut reader, bytes.len())?;
        let value_schema = find_schema(header.value_schema, schema)?;
        let key_schema = find_schema(header.key_schema, schema)?;
        let topics = (0..header.topics)
            .map(|_| reader.text().map(Arc::from))
            .collect::<Result<Vec<Arc<str>>>>()?;
        let runs = decode_runs(&mut reader, &topics, &header)?;
        let timestamps = reader.array(header.rows)?;
        let skipped = match header.has_skipped {
            true => Some(reader.take(header.rows.div_ceil(8))?),
            false => None,
        };
        let context = Arc::new(Context {
            names: decode_names(&mut reader, header.names)?,
            text: reader.text()?,
        });
        let rows = header.rows;
        let value = match (header.value_mode, &value_schema) {
            (MODE_MAPS, None) => Values::Maps(MapRows::decode(&mut reader, rows, &context)?),
            (mode, schema) => decode_values(&mut reader, mode, rows, schema.as_ref(), &context)?,
        };
        let key = decode_values(
            &mut reader,
            header.key_mode,
            rows,
            key_schema.as_ref(),
            &context,
        )?;
        let headers = decode_values(&mut reader, header.header_mode, rows, None, &context)?;
        reader.finish()?;
        let frame = Frame {
            rows,
            value_schema,
            key_schema,
            runs,
            timestamps,
            skipped,
            context,
            value,
            key,
            headers,
            values_are_keys: false,
        };
        frame.check_headers(&reader)?;
        Ok(frame)
    }

    /// Returns the frame with the keys in place of the values: what rows without a value are made
    /// of. A key that is no record gives a row without fields of its own.
    #[must_use]
    pub fn keys_as_values(&self) -> Frame<'a> {
        let is_record = |kind| matches!(kind, SourceKind::Struct | SourceKind::Map);
        let records = match (&self.key, self.key_schema()) {
            (Values::None | Values::Empty, _) => false,
            (Values::Columns(_), Some(schema)) => is_record(schema.kind()),
            (Values::Columns(_), None) => false,
            (Values::Tagged(..) | Values::Maps(_), _) => {
                (0..self.rows).any(|row| matches!(self.key(row), Cell::Map(_)))
            }
        };
        Frame {
            rows: self.rows,
            value_schema: self.key_schema.clone().filter(|_| records),
            key_schema: self.key_schema.clone(),
            runs: self.runs.clone(),
            timestamps: self.timestamps,
            skipped: self.skipped,
            context: Arc::clone(&self.context),
            value: match records {
                true => self.key.clone(),
                false => Values::Empty,
            },
            key: self.key.clone(),
            headers: self.headers.clone(),
            values_are_keys: true,
        }
    }

    /// Tells whether the keys are in place of the values.
    pub fn values_are_keys(&self) -> bool {
        self.values_are_keys
    }

    /// Returns the frame with values that are neither structs nor maps as records of one field,
    /// `name`. Nulls stay as they are, and so do values without a schema, which
    /// [`BareValues`](super::BareValues) is for.
    #[must_use]
    pub fn with_values_in(mut self, name: &str) -> Frame<'a> {
        let Some((_, schema)) = &mut self.value_schema else {
            return self;
        };
        if matches!(schema.kind(), SourceKind::Struct | SourceKind::Map) {
            return self;
        }
        let record = Arc::new(SourceSchema::structure([(
            name,
            SourceSchema::clone(schema).optional(),
        )]));
        if let Values::Columns(column) = &mut self.value {
            *column = column.clone().in_struct(&record);
        }
        *schema = record;
        self
    }

    fn check_headers(&self, reader: &Reader<'_>) -> Result<()> {
        let fits = |row| matches!(self.cell(&self.headers, row), Cell::Map(_) | Cell::Null);
        match (0..self.rows).all(fits) {
            true => Ok(()),
            false => Err(reader.corrupt("headers are not a map")),
        }
    }

    /// Returns the frame with other values, keys or headers. Schemas keep their ids.
    pub(crate) fn with_parts<'b>(&self, parts: Parts<'b>) -> Frame<'b>
    where
        'a: 'b,
    {
        let mut frame: Frame<'b> = self.clone();
        if let Some(value) = parts.value {
            let id = self.value_schema_id();
            (frame.value_schema, frame.value) = value.in_place_of(&self.value, id);
        }
        if let Some(key) = parts.key {
            let id = self.key_schema_id();
            (frame.key_schema, frame.key) = key.in_place_of(&self.key, id);
        }
        if let Some((rows, text)) = parts.headers {
            (_, frame.headers) = Part::Tagged(rows, text).in_place_of(&self.headers, 0);
        }
        frame
    }

    /// Returns the values that have no schema, and what they point into.
    pub(crate) fn tagged_values(&self) -> Option<(&TaggedRows<'a>, &Context<'a>)> {
        self.value.tagged()
    }

    /// Returns the keys that have no schema, and what they point into.
    pub(crate) fn tagged_keys(&self) -> Option<(&TaggedRows<'a>, &Context<'a>)> {
        self.key.tagged()
    }

    /// Returns the headers, and what they point into.
    pub(crate) fn tagged_headers(&self) -> Option<(&TaggedRows<'a>, &Context<'a>)> {
        self.headers.tagged()
    }

    /// Returns the records without a schema that lie in columns.
    pub fn maps(&self) -> Option<&MapRows<'a>> {
        match &self.value {
            Values::Maps(maps) => Some(maps),
            _ => None,
        }
    }

    /// Returns rows of the frame with values, and keys where given, that were decoded from its own;
    /// `value` and `key` are of the rows of `part`. Keys that have columns have to be given where a
    /// part is not the whole.
    pub fn decoded<'b>(
        &self,
        part: &Slice<'b>,
        value: Option<Decoded<'b>>,
        key: Option<Decoded<'b>>,
        schema: &dyn Fn(u32) -> Option<Arc<SourceSchema>>,
    ) -> Result<Frame<'b>>
    where
        'a: 'b,
    {
        let mut frame: Frame<'b> = self.clone();
        frame.skipped = Some(part.skipped);
        if let Some(value) = value {
            (frame.value_schema, frame.value) = decoded_values(value, schema)?;
        }
        let decodes_key = key.is_some();
        if let Some(key) = key {
            (frame.key_schema, frame.key) = decoded_values(key, schema)?;
        }
        if part.first == 0 && part.rows == self.rows {
            return Ok(frame);
        }
        let end = part.first + part.rows;
        frame.rows = part.rows;
        frame.timestamps = self.timestamps.get(part.first..end).unwrap_or_default();
        let runs = self.runs.iter();
        frame.runs = runs.filter_map(|run| run.cut(part.first, end)).collect();
        if let Values::Tagged(rows, _) = &mut frame.headers {
            *rows = rows.slice(part.first, part.rows);
        }
        match &mut frame.key {
            Values::Tagged(rows, _) if !decodes_key => {
                *rows = rows.slice(part.first, part.rows);
            }
            Values::Columns(column) if column.rows() != part.rows => {
                return Err(SinkError::internal(
                    "the keys of a part are those of the whole",
                ));
            }
            _ => {}
        }
        Ok(frame)
    }

    /// Returns the number of records.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the runs in the order of their rows.
    pub fn runs(&self) -> &[Run<'a>] {
        &self.runs
    }

    /// Returns the run of `row` with the row's offset.
    pub fn source(&self, row: usize) -> Option<(&Run<'a>, i64)> {
        let after = self.runs.partition_point(|run| run.first_row <= row);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let index = row - run.first_row;
        (index < run.rows).then(|| (run, run.offset(index)))
    }

    /// Returns the record timestamp of `row` in milliseconds since the epoch, when it has one.
    #[inline]
    pub fn timestamp(&self, row: usize) -> Option<i64> {
        let timestamp = self.timestamps.get(row).copied().map(i64::from_le_bytes);
        timestamp.filter(|ms| *ms != i64::MIN)
    }

    /// Tells whether Java rejected `row` and reported it. Its value is null, but it is no tombstone:
    /// only its offset counts.
    #[inline]
    pub fn is_skipped(&self, row: usize) -> bool {
        let byte = self.skipped.and_then(|bitmap| bitmap.get(row / 8));
        byte.is_some_and(|byte| byte >> (row % 8) & 1 == 1)
    }

    /// Tells whether the value of `row` is null: a tombstone, unless the row is skipped.
    #[inline]
    pub fn is_tombstone(&self, row: usize) -> bool {
        match &self.value {
            Values::None => true,
            Values::Empty => false,
            Values::Columns(column) => column.is_null(row),
            Values::Tagged(tagged, _) => tagged.is_null(row),
            Values::Maps(maps) => maps.is_null(row),
        }
    }

    /// Tells whether a value may be null; where none may, rows need not be asked one by one.
    pub fn may_have_tombstones(&self) -> bool {
        match &self.value {
            Values::Columns(column) => column.null_count() > 0,
            Values::Maps(maps) => maps.has_nulls(),
            _ => true,
        }
    }

    /// Returns the value of `row`.
    pub fn value(&self, row: usize) -> Cell<'_> {
        self.cell(&self.value, row)
    }

    /// Returns the key of `row`.
    pub fn key(&self, row: usize) -> Cell<'_> {
        self.cell(&self.key, row)
    }

    /// Returns the headers of `row`, names may repeat; `None` when the session takes no headers.
    pub fn headers(&self, row: usize) -> Option<MapCell<'_>> {
        match self.cell(&self.headers, row) {
            Cell::Map(headers) => Some(headers),
            _ => None,
        }
    }

    fn cell<'c>(&'c self, values: &'c Values<'a>, row: usize) -> Cell<'c> {
        match values {
            Values::None => Cell::Null,
            Values::Empty => Cell::Map(MapCell::empty(&self.context)),
            Values::Columns(column) => column.cell(row),
            Values::Tagged(tagged, context) => tagged.cell(context, row),
            Values::Maps(maps) => maps.record(row),
        }
    }

    /// Returns the schema of the values; `None` when they have none.
    pub fn value_schema(&self) -> Option<&Arc<SourceSchema>> {
        self.value_schema.as_ref().map(|(_, schema)| schema)
    }

    /// Returns the schema of the keys; `None` when they have none.
    pub fn key_schema(&self) -> Option<&Arc<SourceSchema>> {
        self.key_schema.as_ref().map(|(_, schema)| schema)
    }

    /// Returns the registered id of the value schema, 0 for none: a key for caches of plans.
    pub fn value_schema_id(&self) -> u32 {
        self.value_schema.as_ref().map_or(0, |(id, _)| *id)
    }

    /// Returns the registered id of the key schema, 0 for none.
    pub fn key_schema_id(&self) -> u32 {
        self.key_schema.as_ref().map_or(0, |(id, _)| *id)
    }

    /// Returns the values as one column, when they have a schema and are not all null.
    pub fn value_column(&self) -> Option<&SourceColumn<'a>> {
        match &self.value {
            Values::Columns(column) => Some(column),
            _ => None,
        }
    }

    /// Tells whether there are keys, be they all null.
    pub fn has_keys(&self) -> bool {
        !matches!(self.key, Values::None)
    }

    /// Returns the keys as one column, when they have a schema and are not all null.
    pub fn key_column(&self) -> Option<&SourceColumn<'a>> {
        match &self.key {
            Values::Columns(column) => Some(column),
            _ => None,
        }
    }

    /// Returns the columns of the value's fields, when the values are structs. Rows that are
    /// tombstones are null in each.
    pub fn columns(&self) -> Option<&[SourceColumn<'a>]> {
        self.value_column().map(SourceColumn::children)
    }

    /// Returns the interned names that `MapEntry::name_index` counts.
    pub fn names(&self) -> &[&str] {
        match &self.value {
            Values::Tagged(_, context) => value::names(context),
            Values::Maps(maps) => maps.names(),
            _ => &[],
        }
    }
}

type WithSchema<'a> = (Option<(u32, Arc<SourceSchema>)>, Values<'a>);

fn decoded_values<'a>(
    decoded: Decoded<'a>,
    schema: &dyn Fn(u32) -> Option<Arc<SourceSchema>>,
) -> Result<WithSchema<'a>> {
    Ok(match decoded {
        Decoded::Columns(id, column) => (find_schema(id, schema)?, Values::Columns(column)),
        Decoded::Maps(maps) => (None, Values::Maps(maps)),
        Decoded::Tagged(tagged) => (None, Values::Tagged(tagged.rows, tagged.context)),
        Decoded::Nulls => (None, Values::None),
    })
}

fn decode_header(reader: &mut Reader<'_>, length: usize) -> Result<Header> {
    if length > FRAME_BYTES_MAX {
        return Err(reader.corrupt("frame is larger than its limit"));
    }
    if reader.u32()? != FRAME_MAGIC {
        return Err(reader.corrupt("frame has the wrong first bytes"));
    }
    let version = reader.u16()?;
    if version != FRAME_VERSION {
        let message = format!(
            "a frame has version {version}, this library reads {FRAME_VERSION}; \
             install the jar and the native library of one release"
        );
        return Err(SinkError::fatal("WIRE_VERSION", message));
    }
    let flags = reader.u16()?;
    if flags & !FLAG_SKIPPED != 0 {
        return Err(reader.corrupt("frame flag is unknown"));
    }
    if reader.length()? != length {
        return Err(reader.corrupt("frame length differs"));
    }
    let header = Header {
        has_skipped: flags & FLAG_SKIPPED != 0,
        rows: reader.length()?,
        value_schema: reader.u32()?,
        key_schema: reader.u32()?,
        topics: reader.length()?,
        runs: reader.length()?,
        names: reader.length()?,
        value_mode: reader.u8()?,
        key_mode: reader.u8()?,
        header_mode: reader.u8()?,
    };
    let reserved = reader.u8()?;
    let rows = header.rows;
    if rows > BLOCK_ROWS_MAX || header.topics > rows * 2 || header.runs > rows || reserved != 0 {
        return Err(reader.corrupt("frame counts are out of bounds"));
    }
    Ok(header)
}

fn find_schema(
    id: u32,
    schema: &dyn Fn(u32) -> Option<Arc<SourceSchema>>,
) -> Result<Option<(u32, Arc<SourceSchema>)>> {
    if id == 0 {
        return Ok(None);
    }
    let found = schema(id).ok_or_else(|| {
        let message = format!("schema id {id} was never registered in this session");
        SinkError::fatal("WIRE_SCHEMA_UNKNOWN", message)
    })?;
    Ok(Some((id, found)))
}

fn decode_runs<'a>(
    reader: &mut Reader<'a>,
    topics: &[Arc<str>],
    header: &Header,
) -> Result<Vec<Run<'a>>> {
    let mut runs = Vec::with_capacity(header.runs);
    let mut next_row = 0;
    for _ in 0..header.runs {
        let topic = topics.get(reader.length()?);
        let topic = topic.ok_or_else(|| reader.corrupt("topic index is unknown"))?;
        let partition = TopicPartition::new(Arc::clone(topic), reader.i32()?);
        let first_row = reader.length()?;
        let rows = reader.length()?;
        if first_row != next_row || rows == 0 || rows > header.rows - next_row {
            return Err(reader.corrupt("runs do not cover the rows in order"));
        }
        next_row += rows;
        let flags = reader.u32()?;
        if flags & !(RUN_CONTIGUOUS | RUN_RENAMED) != 0 {
            return Err(reader.corrupt("run flag is unknown"));
        }
        let renamed = match flags & RUN_RENAMED {
            0 => None,
            _ => {
                let topic = topics.get(reader.length()?).map(Arc::clone);
                Some(topic.ok_or_else(|| reader.corrupt("topic index is unknown"))?)
            }
        };
        let offsets = match flags & RUN_CONTIGUOUS {
            RUN_CONTIGUOUS => {
                let base = reader.i64()?;
                let end = i64::try_from(rows)
                    .ok()
                    .and_then(|rows| base.checked_add(rows));
                end.ok_or_else(|| reader.corrupt("offsets overflow"))?;
                Offsets::Contiguous(base)
            }
            _ => Offsets::Explicit(rising(reader, rows)?),
        };
        runs.push(Run {
            partition,
            first_row,
            rows,
            renamed,
            offsets,
        });
    }
    match next_row == header.rows {
        true => Ok(runs),
        false => Err(reader.corrupt("runs do not cover the rows")),
    }
}

/// Takes offsets that rise strictly and leave room for the one after the last.
fn rising<'a>(reader: &mut Reader<'a>, rows: usize) -> Result<&'a [[u8; 8]]> {
    let offsets = reader.array::<8>(rows)?;
    let mut before = None;
    for offset in offsets.iter().copied().map(i64::from_le_bytes) {
        if before.is_some_and(|before| offset <= before) || offset == i64::MAX {
            return Err(reader.corrupt("offsets do not rise"));
        }
        before = Some(offset);
    }
    Ok(offsets)
}

fn decode_names<'a>(reader: &mut Reader<'a>, count: usize) -> Result<Vec<&'a str>> {
    if count > reader.remaining() / 4 {
        return Err(reader.corrupt("count is larger than the bytes left"));
    }
    (0..count).map(|_| reader.text()).collect()
}

fn decode_values<'a>(
    reader: &mut Reader<'a>,
    mode: u8,
    rows: usize,
    schema: Option<&(u32, Arc<SourceSchema>)>,
    context: &Arc<Context<'a>>,
) -> Result<Values<'a>> {
    Ok(match (mode, schema) {
        (MODE_NONE, _) => Values::None,
        (MODE_COLUMNS, Some((_, schema))) => {
            Values::Columns(SourceColumn::decode(reader, schema, rows, 1)?)
        }
        (MODE_TAGGED, None) => {
            let tagged = TaggedRows::decode(reader, rows, context)?;
            Values::Tagged(tagged, Arc::clone(context))
        }
        _ => return Err(reader.corrupt("layout of the values is unknown")),
    })
}
