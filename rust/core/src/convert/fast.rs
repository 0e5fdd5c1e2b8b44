//! Whole columns that need no conversion: copied, not looked at value by value.

use super::column::{Column, Slots};
use super::primitive::{Primitives, Texts};
use super::shape::Shape;
use crate::schema::semantic::Semantic;
use crate::wire::column::{Offsets, span};
use crate::wire::{ColumnData, SourceColumn};

/// Microseconds of a millisecond.
const MICROS_PER_MILLI: i64 = 1_000;

impl Column {
    /// Appends `rows` of `source` if that is a copy; else does nothing and returns false. Rows that
    /// are null have a zero in `source`, so their slots are right too.
    pub(super) fn append_rows(
        &mut self,
        source: &SourceColumn<'_>,
        shape: &Shape,
        rows: &[u32],
    ) -> bool {
        let rows = Rows::of(rows, source.rows());
        if !rows.inside || (self.is_required() && source.null_count() > 0) {
            return false;
        }
        let Slots::Primitive(primitives) = &mut self.slots else {
            return false;
        };
        if !copy(source.data(), primitives, shape.semantic(), &rows) {
            return false;
        }
        if source.null_count() == 0 {
            self.validity.append_n_non_nulls(rows.all.len());
        } else {
            for row in rows.iter() {
                if source.is_null(row) {
                    self.validity.append_null();
                } else {
                    self.validity.append_non_null();
                }
            }
        }
        true
    }
}

/// The rows to copy.
struct Rows<'r> {
    all: &'r [u32],
    /// The first row when the rows follow each other.
    first: Option<usize>,
    /// Whether all are rows of the column.
    inside: bool,
}

impl<'r> Rows<'r> {
    fn of(all: &'r [u32], count: usize) -> Self {
        let follows = all.windows(2).all(|pair| match pair {
            [before, after] => before.checked_add(1) == Some(*after),
            _ => false,
        });
        let first = all.first().copied().filter(|_| follows);
        Rows {
            all,
            first: first.map(index),
            inside: all.iter().all(|row| index(*row) < count),
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.all.iter().copied().map(index)
    }

    /// Appends the values of the rows, each turned by `turn`.
    fn gather<const N: usize, T>(
        &self,
        values: &[[u8; N]],
        out: &mut Vec<T>,
        turn: impl Fn([u8; N]) -> T,
    ) {
        let slice = self
            .first
            .and_then(|first| values.get(first..first + self.all.len()));
        match slice {
            Some(slice) => out.extend(slice.iter().map(|value| turn(*value))),
            None => out.extend(
                self.iter()
                    .map(|row| turn(values.get(row).copied().unwrap_or([0; N]))),
            ),
        }
    }
}

fn index(row: u32) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}

fn copy(
    source: &ColumnData<'_>,
    target: &mut Primitives,
    semantic: Semantic,
    rows: &Rows<'_>,
) -> bool {
    match (source, target) {
        (ColumnData::Bool(values), Primitives::Boolean(out)) => {
            for row in rows.iter() {
                out.append(values.get(row).is_some_and(|value| *value != 0));
            }
        }
        (ColumnData::Int8(values), Primitives::Int(out)) => {
            rows.gather(values, out, |value| i32::from(i8::from_le_bytes(value)));
        }
        (ColumnData::Int16(values), Primitives::Int(out)) => {
            rows.gather(values, out, |value| i32::from(i16::from_le_bytes(value)));
        }
        (ColumnData::Int32(values), Primitives::Int(out))
        | (ColumnData::Date(values), Primitives::Date(out)) => {
            rows.gather(values, out, i32::from_le_bytes);
        }
        (ColumnData::Int32(values), Primitives::Date(out)) if semantic == Semantic::EpochDay => {
            rows.gather(values, out, i32::from_le_bytes);
        }
        (ColumnData::Int32(values), Primitives::Long(out)) => {
            rows.gather(values, out, |value| i64::from(i32::from_le_bytes(value)));
        }
        (ColumnData::Int64(values), Primitives::Long(out)) => {
            rows.gather(values, out, i64::from_le_bytes);
        }
        (ColumnData::Int64(values), Primitives::Timestamp { values: out, .. })
            if matches!(semantic, Semantic::EpochMicro | Semantic::InstantMicro) =>
        {
            rows.gather(values, out, i64::from_le_bytes);
        }
        (ColumnData::Int64(values), Primitives::TimestampNanos { values: out, .. })
            if matches!(semantic, Semantic::EpochNano | Semantic::InstantNano) =>
        {
            rows.gather(values, out, i64::from_le_bytes);
        }
        (ColumnData::Timestamp(values), Primitives::Timestamp { values: out, .. }) => {
            return milliseconds(values, out, rows);
        }
        (ColumnData::Float32(values), Primitives::Float(out)) => {
            rows.gather(values, out, f32::from_le_bytes);
        }
        (ColumnData::Float64(values), Primitives::Double(out)) => {
            rows.gather(values, out, f64::from_le_bytes);
        }
        (ColumnData::String { offsets, text }, Primitives::Text(out)) => {
            return texts(offsets, text, out, rows);
        }
        (ColumnData::Bytes { offsets, data }, Primitives::Binary(out)) => {
            let before = out.offsets.len();
            for row in rows.iter() {
                let bytes = data.get(span(offsets, row)).unwrap_or_default();
                if out.push(bytes).is_err() {
                    out.truncate(before);
                    return false;
                }
            }
        }
        _ => return false,
    }
    true
}

/// Copies milliseconds as microseconds, unless one of them is out of range.
fn milliseconds(values: &[[u8; 8]], out: &mut Vec<i64>, rows: &Rows<'_>) -> bool {
    let bound = i64::MAX / MICROS_PER_MILLI;
    let mut fits = true;
    let before = out.len();
    for row in rows.iter() {
        let ms = i64::from_le_bytes(values.get(row).copied().unwrap_or_default());
        fits &= (-bound..=bound).contains(&ms);
        out.push(ms.wrapping_mul(MICROS_PER_MILLI));
    }
    if !fits {
        out.truncate(before);
    }
    fits
}

/// Copies texts, unless the heap would outgrow its offsets.
fn texts(offsets: Offsets<'_>, text: &str, out: &mut Texts, rows: &Rows<'_>) -> bool {
    let bytes: usize = rows.iter().map(|row| span(offsets, row).len()).sum();
    if i32::try_from(out.text.len().saturating_add(bytes)).is_err() {
        return false;
    }
    let whole = rows.first.and_then(|first| {
        let last = first + rows.all.len() - 1;
        text.get(span(offsets, first).start..span(offsets, last).end)
    });
    if let Some(whole) = whole {
        out.text.push_str(whole);
    }
    let mut end = out.offsets.last().copied().unwrap_or(0);
    for row in rows.iter() {
        let span = span(offsets, row);
        // In range: the sum was checked above.
        end = end.saturating_add(i32::try_from(span.len()).unwrap_or(i32::MAX));
        if whole.is_none() {
            out.text.push_str(text.get(span).unwrap_or_default());
        }
        out.offsets.push(end);
    }
    true
}
