//! Values without a schema: each carries a tag that says what it is.
//!
//! Texts lie in one heap per frame, so that UTF-8 is proved once; values point into it. Names that
//! repeat (keys of schemaless maps) are interned per frame. Lists and maps carry their length in
//! bytes, so that skipping one is a single step.
//!
//! Invariant: `TaggedRows::decode` walks every value. What it accepted reads without an error
//! later, so the `unwrap_or` fallbacks below are never taken.

use super::read::{Reader, offset_at};
use super::value::{ArrayCell, Cell, MapCell, MapEntry};
use crate::error::{Result, SinkError};
use crate::limits::NESTING_MAX;

pub(crate) const NULL: u8 = 0;
pub(crate) const FALSE: u8 = 1;
pub(crate) const TRUE: u8 = 2;
pub(crate) const INT8: u8 = 3;
pub(crate) const INT16: u8 = 4;
pub(crate) const INT32: u8 = 5;
pub(crate) const INT64: u8 = 6;
pub(crate) const FLOAT32: u8 = 7;
pub(crate) const FLOAT64: u8 = 8;
pub(crate) const STRING: u8 = 9;
pub(crate) const BYTES: u8 = 10;
pub(crate) const DECIMAL: u8 = 11;
pub(crate) const DATE: u8 = 12;
pub(crate) const TIME: u8 = 13;
pub(crate) const TIMESTAMP: u8 = 14;
pub(crate) const LIST: u8 = 15;
pub(crate) const MAP: u8 = 16;
pub(crate) const NAME: u8 = 17;
pub(crate) const CLOCK_TIME: u8 = 18;
pub(crate) const LOCAL: u8 = 19;
pub(crate) const INSTANT: u8 = 20;
pub(crate) const UUID: u8 = 21;
/// A decimal number of at most 17 digits; only in what a decoder of this library made.
pub(crate) const NUMBER: u8 = 22;

/// What tagged values of one frame point into.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context<'a> {
    pub(crate) text: &'a str,
    pub(crate) names: Vec<&'a str>,
}

/// One tagged value per row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaggedRows<'a> {
    offsets: &'a [[u8; 4]],
    data: &'a [u8],
}

impl<'a> TaggedRows<'a> {
    pub(crate) fn decode(
        reader: &mut Reader<'a>,
        rows: usize,
        context: &Context<'a>,
    ) -> Result<Self> {
        let (offsets, length) = reader.offsets(rows)?;
        let data = reader.take(length)?;
        let tagged = TaggedRows { offsets, data };
        for row in 0..rows {
            let mut value = Reader::new(tagged.row(row), "tagged value");
            check(&mut value, context, 1)?;
            value.finish()?;
        }
        Ok(tagged)
    }

    /// Makes rows of values that were taken from rows that are checked.
    pub(crate) fn of(offsets: &'a [[u8; 4]], data: &'a [u8]) -> Self {
        TaggedRows { offsets, data }
    }

    /// Returns `rows` of these from `first` on.
    pub(crate) fn slice(&self, first: usize, rows: usize) -> Self {
        let offsets = self
            .offsets
            .get(first..first.saturating_add(rows).saturating_add(1));
        TaggedRows {
            offsets: offsets.unwrap_or_default(),
            data: self.data,
        }
    }

    /// Returns the bytes of one row's value, `None` past the last row.
    pub(crate) fn checked_row(&self, row: usize) -> Option<&'a [u8]> {
        (row + 1 < self.offsets.len()).then(|| self.row(row))
    }

    fn row(&self, row: usize) -> &'a [u8] {
        let (start, end) = (
            offset_at(self.offsets, row),
            offset_at(self.offsets, row + 1),
        );
        self.data.get(start..end).unwrap_or_default()
    }

    pub(crate) fn cell<'c>(&self, context: &'c Context<'a>, row: usize) -> Cell<'c>
    where
        'a: 'c,
    {
        value(&mut Reader::new(self.row(row), "tagged value"), context).unwrap_or(Cell::Null)
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.row(row).first().is_none_or(|tag| *tag == NULL)
    }
}

/// Takes the bytes of one whole value, with all that is in it.
pub(crate) fn raw<'a>(reader: &mut Reader<'a>, context: &Context<'a>) -> Result<&'a [u8]> {
    let start = reader.clone();
    let before = reader.position();
    value(reader, context)?;
    start.clone().take(reader.position().saturating_sub(before))
}

/// Reads the value whose bytes [`raw`] took.
pub(crate) fn read<'c, 'a: 'c>(raw: &'a [u8], context: &'c Context<'a>) -> Result<Cell<'c>> {
    value(&mut Reader::new(raw, "tagged value"), context)
}

/// Returns the bytes of the value of the last entry of a map whose key is the string `name`; `None`
/// when `raw`, which [`raw`] took, is no map that has one.
pub(crate) fn entry<'a>(map: &'a [u8], context: &Context<'a>, name: &str) -> Option<&'a [u8]> {
    let mut found = None;
    for_entries(map, context, |key, value| {
        if matches!(read(key, context), Ok(Cell::String(key)) if key == name) {
            found = Some(value);
        }
    })?;
    found
}

/// Hands out the bytes of key and value of each entry of a map; `None` when it is none.
pub(crate) fn for_entries<'a>(
    map: &'a [u8],
    context: &Context<'a>,
    mut each: impl FnMut(&'a [u8], &'a [u8]),
) -> Option<()> {
    let mut reader = Reader::new(map, "tagged value");
    if reader.u8().ok()? != MAP {
        return None;
    }
    let (_, count) = (reader.length().ok()?, reader.length().ok()?);
    for _ in 0..count {
        let key = raw(&mut reader, context).ok()?;
        each(key, raw(&mut reader, context).ok()?);
    }
    Some(())
}

/// Returns the bytes of the only item of a list of one.
pub(crate) fn only_item<'a>(list: &'a [u8], context: &Context<'a>) -> Option<&'a [u8]> {
    let mut reader = Reader::new(list, "tagged value");
    if reader.u8().ok()? != LIST {
        return None;
    }
    let (_, count) = (reader.length().ok()?, reader.length().ok()?);
    (count == 1).then(|| raw(&mut reader, context).ok())?
}

/// The items of a list, or keys and values of a map in turn, not yet walked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaggedItems<'a> {
    context: &'a Context<'a>,
    items: &'a [u8],
    len: usize,
}

impl<'a> TaggedItems<'a> {
    pub(crate) const fn empty(context: &'a Context<'a>) -> Self {
        TaggedItems {
            context,
            items: &[],
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn step<T>(&mut self, read: impl FnOnce(&mut Reader<'a>) -> Result<T>) -> Option<T> {
        let mut reader = Reader::new(self.items, "tagged value");
        let value = read(&mut reader).ok()?;
        self.items = self.items.get(reader.position()..)?;
        Some(value)
    }

    pub(crate) fn skip_items(&mut self, count: usize) {
        for _ in 0..count.min(self.len) {
            self.next_value();
        }
    }

    pub(crate) fn next_value(&mut self) -> Option<Cell<'a>> {
        let context = self.context;
        self.step(|reader| value(reader, context))
    }

    pub(crate) fn next_entry(&mut self) -> Option<MapEntry<'a>> {
        let context = self.context;
        self.step(|reader| {
            let mut ahead = reader.clone();
            let interned = ahead.u8()? == NAME;
            let name_index = if interned {
                Some(ahead.length()?)
            } else {
                None
            };
            Ok(MapEntry {
                key: value(reader, context)?,
                name_index,
                value: value(reader, context)?,
            })
        })
    }
}

/// Reads one value; a list or map is taken whole without looking into it.
fn value<'c, 'a: 'c>(reader: &mut Reader<'a>, context: &'c Context<'a>) -> Result<Cell<'c>> {
    Ok(match reader.u8()? {
        NULL => Cell::Null,
        FALSE => Cell::Bool(false),
        TRUE => Cell::Bool(true),
        INT8 => Cell::Int8(i8::from_le_bytes([reader.u8()?])),
        INT16 => Cell::Int16(reader.i16()?),
        INT32 => Cell::Int32(reader.i32()?),
        INT64 => Cell::Int64(reader.i64()?),
        FLOAT32 => Cell::Float32(f32::from_bits(reader.u32()?)),
        FLOAT64 => Cell::Float64(f64::from_bits(reader.i64()?.cast_unsigned())),
        STRING => {
            let (start, length) = (reader.length()?, reader.length()?);
            let text = context.text.get(start..start.saturating_add(length));
            Cell::String(text.ok_or_else(|| reader.corrupt("text lies outside its heap"))?)
        }
        BYTES => Cell::Bytes(reader.bytes()?),
        DECIMAL => {
            let scale = reader.i32()?;
            let unscaled = reader.bytes()?;
            if unscaled.is_empty() {
                return Err(reader.corrupt("decimal has no digits"));
            }
            Cell::Decimal { unscaled, scale }
        }
        DATE => Cell::Date {
            days: reader.i32()?,
        },
        TIME => Cell::Time { ms: reader.i32()? },
        TIMESTAMP => Cell::Timestamp { ms: reader.i64()? },
        CLOCK_TIME => Cell::ClockTime {
            nanos: reader.i64()?,
        },
        tag @ (LOCAL | INSTANT) => Cell::Moment {
            seconds: reader.i64()?,
            nanos: reader.i32()?,
            zoned: tag == INSTANT,
        },
        UUID => Cell::Uuid(reader.take(16)?),
        NUMBER => Cell::Number {
            unscaled: reader.i64()?,
            scale: reader.i32()?,
        },
        LIST => Cell::Array(ArrayCell::of_tagged(items(reader, context, 1)?)),
        MAP => Cell::Map(MapCell::of_tagged(items(reader, context, 2)?)),
        NAME => {
            let name = context.names.get(reader.length()?);
            Cell::String(name.ok_or_else(|| reader.corrupt("name index is unknown"))?)
        }
        _ => return Err(reader.corrupt("tag is unknown")),
    })
}

fn items<'c, 'a: 'c>(
    reader: &mut Reader<'a>,
    context: &'c Context<'a>,
    values_each: usize,
) -> Result<TaggedItems<'c>> {
    let length = reader.length()?;
    let len = reader.length()?;
    let items = reader.take(length)?;
    if len > items.len() / values_each {
        return Err(reader.corrupt("count is larger than the bytes of the list or map"));
    }
    Ok(TaggedItems {
        context,
        items,
        len,
    })
}

/// Walks one value with all that is in it.
fn check<'a>(reader: &mut Reader<'a>, context: &Context<'a>, depth: usize) -> Result<()> {
    if depth > NESTING_MAX {
        let message = format!("a value nests deeper than {NESTING_MAX} levels");
        return Err(SinkError::fatal("WIRE_TOO_DEEP", message));
    }
    let mut ahead = reader.clone();
    let tag = ahead.u8()?;
    if !matches!(tag, LIST | MAP) {
        return value(reader, context).map(|_| ());
    }
    let values_each = if tag == MAP { 2 } else { 1 };
    let nested = items(&mut ahead, context, values_each)?;
    let mut inner = Reader::new(nested.items, "tagged value");
    for _ in 0..nested.len * values_each {
        check(&mut inner, context, depth + 1)?;
    }
    inner.finish()?;
    *reader = ahead;
    Ok(())
}
