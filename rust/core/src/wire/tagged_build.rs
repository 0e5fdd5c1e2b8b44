//! Building tagged values: what `tagged` reads.

use std::sync::Arc;

use super::frame::TaggedValues;
use super::tagged::{self, Context, TaggedRows};
use super::value::Cell;

/// Tagged values of rows, one behind the other, with the texts that they point into.
#[derive(Debug, Clone)]
pub(crate) struct TaggedBuilder {
    offsets: Vec<[u8; 4]>,
    pub(crate) data: Vec<u8>,
}

impl Default for TaggedBuilder {
    fn default() -> Self {
        TaggedBuilder {
            offsets: vec![[0; 4]],
            data: Vec::new(),
        }
    }
}

impl TaggedBuilder {
    /// Forgets all rows; the memory stays.
    pub(crate) fn clear(&mut self) {
        self.truncate(0);
    }

    /// Returns the number of rows that are ended.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Keeps `rows` rows, and nothing of one that is not ended.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        let end = self.offsets.last().copied().map_or(0, u32::from_le_bytes);
        self.data
            .truncate(usize::try_from(end).unwrap_or(usize::MAX));
    }

    /// Ends a row, whose value was written since the last one; null when none was.
    pub(crate) fn end_row(&mut self) {
        let start = self.offsets.last().copied().map_or(0, u32::from_le_bytes);
        if u32::try_from(self.data.len()) == Ok(start) {
            self.data.push(tagged::NULL);
        }
        self.offsets.push(length(self.data.len()));
    }

    pub(crate) fn null(&mut self) {
        self.data.push(tagged::NULL);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.data
            .push(if value { tagged::TRUE } else { tagged::FALSE });
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.fixed(tagged::INT64, value.to_le_bytes());
    }

    pub(crate) fn f64(&mut self, value: f64) {
        self.fixed(tagged::FLOAT64, value.to_le_bytes());
    }

    /// Writes a decimal number of at most 17 digits.
    pub(crate) fn number(&mut self, unscaled: i64, scale: i32) {
        self.fixed(tagged::NUMBER, unscaled.to_le_bytes());
        self.data.extend_from_slice(&scale.to_le_bytes());
    }

    /// Writes a decimal, whose unscaled number has at least one byte.
    pub(crate) fn decimal(&mut self, unscaled: &[u8], scale: i32) {
        self.fixed(tagged::DECIMAL, scale.to_le_bytes());
        self.raw(unscaled);
    }

    /// Writes a text that lies in the heap from `start` on.
    pub(crate) fn text_at(&mut self, start: usize, bytes: usize) {
        self.fixed(tagged::STRING, length(start));
        self.data.extend_from_slice(&length(bytes));
    }

    /// Writes a text and puts it into the heap.
    pub(crate) fn text(&mut self, value: &str, heap: &mut String) {
        self.text_at(heap.len(), value.len());
        heap.push_str(value);
    }

    /// Begins a list or map (`tagged::LIST`, `tagged::MAP`); returns what `close` needs.
    pub(crate) fn open(&mut self, tag: u8) -> usize {
        self.data.push(tag);
        let at = self.data.len();
        self.data.extend_from_slice(&[0; 8]);
        at
    }

    /// Ends a list or map of `count` items or entries.
    pub(crate) fn close(&mut self, at: usize, count: usize) {
        let bytes = self.data.len().saturating_sub(at + 8);
        if let Some(place) = self.data.get_mut(at..at + 4) {
            place.copy_from_slice(&length(bytes));
        }
        if let Some(place) = self.data.get_mut(at + 4..at + 8) {
            place.copy_from_slice(&length(count));
        }
    }

    fn fixed<const N: usize>(&mut self, tag: u8, bytes: [u8; N]) {
        self.data.push(tag);
        self.data.extend_from_slice(&bytes);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(&length(bytes.len()));
        self.data.extend_from_slice(bytes);
    }

    /// Copies a value.
    pub(crate) fn cell(&mut self, cell: Cell<'_>, heap: &mut String) {
        match cell {
            Cell::Null => self.null(),
            Cell::Bool(value) => self.bool(value),
            Cell::Int8(value) => self.fixed(tagged::INT8, value.to_le_bytes()),
            Cell::Int16(value) => self.fixed(tagged::INT16, value.to_le_bytes()),
            Cell::Int32(value) => self.fixed(tagged::INT32, value.to_le_bytes()),
            Cell::Int64(value) => self.i64(value),
            Cell::Float32(value) => self.fixed(tagged::FLOAT32, value.to_le_bytes()),
            Cell::Float64(value) => self.f64(value),
            Cell::String(value) => self.text(value, heap),
            Cell::Bytes(value) => {
                self.data.push(tagged::BYTES);
                self.raw(value);
            }
            Cell::Decimal { unscaled, scale } => self.decimal(unscaled, scale),
            Cell::Number { unscaled, scale } => self.number(unscaled, scale),
            Cell::Date { days } => self.fixed(tagged::DATE, days.to_le_bytes()),
            Cell::Time { ms } => self.fixed(tagged::TIME, ms.to_le_bytes()),
            Cell::Timestamp { ms } => self.fixed(tagged::TIMESTAMP, ms.to_le_bytes()),
            Cell::ClockTime { nanos } => self.fixed(tagged::CLOCK_TIME, nanos.to_le_bytes()),
            Cell::Moment {
                seconds,
                nanos,
                zoned,
            } => {
                let tag = if zoned {
                    tagged::INSTANT
                } else {
                    tagged::LOCAL
                };
                self.fixed(tag, seconds.to_le_bytes());
                self.data.extend_from_slice(&nanos.to_le_bytes());
            }
            Cell::Uuid(bytes) => {
                self.data.push(tagged::UUID);
                self.data.extend_from_slice(bytes);
            }
            Cell::Array(list) => {
                let at = self.open(tagged::LIST);
                for item in list.iter() {
                    self.cell(item, heap);
                }
                self.close(at, list.len());
            }
            Cell::Map(map) => {
                let at = self.open(tagged::MAP);
                for entry in map.entries() {
                    self.cell(entry.key, heap);
                    self.cell(entry.value, heap);
                }
                self.close(at, map.len());
            }
            Cell::Struct(record) => {
                let at = self.open(tagged::MAP);
                let fields = record.fields();
                for (index, field) in fields.iter().enumerate() {
                    self.text(&field.name, heap);
                    self.cell(record.field(index), heap);
                }
                self.close(at, fields.len());
            }
        }
    }

    /// Returns the rows, whose values follow the format because this wrote them.
    pub(crate) fn rows(&self) -> TaggedRows<'_> {
        TaggedRows::of(&self.offsets, &self.data)
    }

    /// Returns the rows as values of a frame.
    pub(crate) fn values<'a>(&'a self, heap: &'a str) -> TaggedValues<'a> {
        let context = Context {
            text: heap,
            names: Vec::new(),
        };
        TaggedValues {
            rows: self.rows(),
            context: Arc::new(context),
        }
    }

    /// Returns about how many bytes of memory are held.
    pub(crate) fn bytes(&self) -> usize {
        self.offsets.capacity() * 4 + self.data.capacity()
    }
}

/// Frames are far below what a length can say.
fn length(value: usize) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes()
}
