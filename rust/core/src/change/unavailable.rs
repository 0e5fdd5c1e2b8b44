//! Values that the source left out of an update because they did not change (PostgreSQL keeps long
//! ones beside the row and does not log them again): what stands in their place.
//!
//! A value is only taken for one when it is exactly what Debezium writes for its type: the text, its
//! UTF-8 as bytes or as their base64 or hexadecimal text, the JSON object of the text by itself, a list
//! of the text alone, a list of integers that are its bytes, or a map from the text to itself.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use crate::wire::column::span;
use crate::wire::{Cell, ColumnData, SourceColumn};

/// What stands in the place of a value.
#[derive(Debug)]
pub(super) struct Placeholder {
    text: String,
    /// The text, and what it is in other encodings.
    texts: Vec<String>,
}

impl Placeholder {
    pub(super) fn new(text: &str) -> Self {
        let hex = text.bytes().map(|byte| format!("{byte:02x}"));
        Placeholder {
            text: text.to_owned(),
            texts: vec![
                text.to_owned(),
                STANDARD.encode(text),
                URL_SAFE.encode(text),
                hex.collect(),
                format!("{{\"{text}\":\"{text}\"}}"),
            ],
        }
    }

    fn is_text(&self, text: &str) -> bool {
        self.texts.iter().any(|known| known == text)
    }

    /// Tells whether the value was left out.
    pub(super) fn is(&self, cell: Cell<'_>) -> bool {
        match cell {
            Cell::String(text) => self.is_text(text),
            Cell::Bytes(bytes) => bytes == self.text.as_bytes(),
            Cell::Array(list) => {
                let only = |cell| matches!(cell, Cell::String(text) if text == self.text);
                (list.len() == 1 && list.iter().all(only)) || self.is_bytes(&list)
            }
            Cell::Map(map) => {
                let same = |cell| matches!(cell, Cell::String(text) if text == self.text);
                map.len() == 1
                    && map
                        .entries()
                        .all(|entry| same(entry.key) && same(entry.value))
            }
            _ => false,
        }
    }

    /// Tells whether a list has the bytes of the text.
    fn is_bytes(&self, list: &crate::wire::ArrayCell<'_>) -> bool {
        let number = |cell| match cell {
            Cell::Int8(number) => i64::from(number),
            Cell::Int16(number) => i64::from(number),
            Cell::Int32(number) => i64::from(number),
            Cell::Int64(number) => number,
            _ => i64::MIN,
        };
        let bytes = self.text.bytes().map(i64::from);
        list.len() == self.text.len() && list.iter().map(number).eq(bytes)
    }

    /// Hands out the rows of a column whose values were left out.
    pub(super) fn rows(&self, column: &SourceColumn<'_>, mut each: impl FnMut(usize)) {
        if let ColumnData::String { offsets, text } = column.data() {
            for row in 0..column.rows() {
                let value = text.get(span(offsets, row)).unwrap_or_default();
                if self.is_text(value) && !column.is_null(row) {
                    each(row);
                }
            }
            return;
        }
        for row in (0..column.rows()).filter(|row| self.is(column.cell(*row))) {
            each(row);
        }
    }
}
