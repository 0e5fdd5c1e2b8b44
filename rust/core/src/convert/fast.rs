//! Whole columns that need no conversion: copied, not looked at value by value.

use std::ops::Range;

use arrow_buffer::BooleanBufferBuilder;

use super::column::{Column, Slots};
use super::number::f64_at_scale;
use super::primitive::{Blobs, Primitives, Texts};
use super::shape::Shape;
use crate::schema::semantic::Semantic;
use crate::wire::column::{Offsets, span};
use crate::wire::read::offset_at;
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
        rows: &Rows<'_>,
    ) -> bool {
        if !rows.are_inside(source.rows()) || (self.is_required() && source.null_count() > 0) {
            return false;
        }
        let Slots::Primitive(primitives) = &mut self.slots else {
            return false;
        };
        if !copy(source.data(), primitives, shape.semantic(), rows) {
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

/// The rows to copy. What is known of them is found out once for all columns.
pub(super) struct Rows<'r> {
    all: &'r [u32],
    /// The first row when the rows follow each other.
    first: Option<usize>,
    /// The highest row.
    highest: Option<usize>,
}

impl<'r> Rows<'r> {
    pub(super) fn of(all: &'r [u32]) -> Self {
        let first = all.first().copied();
        let pairs = all.iter().zip(all.iter().skip(1));
        let follows = pairs.fold(true, |all, (row, next)| {
            all & (row.wrapping_add(1) == *next)
        });
        Rows {
            all,
            first: first.filter(|_| follows).map(index),
            highest: all.iter().copied().max().map(index),
        }
    }

    /// Tells whether all are rows of a column that has `count`.
    fn are_inside(&self, count: usize) -> bool {
        self.highest.is_none_or(|highest| highest < count)
    }

    /// Returns the rows as a range when they follow each other.
    fn range(&self) -> Option<Range<usize>> {
        self.first.map(|first| first..first + self.all.len())
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
        match self.range().and_then(|range| values.get(range)) {
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
            truths(values, out, rows);
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
        (
            source,
            Primitives::Decimal {
                values: out,
                precision,
                scale,
            },
        ) => return decimals(source, out, (*precision, *scale), rows),
        (ColumnData::String { offsets, text }, Primitives::Text(out)) => {
            return texts(offsets, text, out, rows);
        }
        (ColumnData::Bytes { offsets, data }, Primitives::Binary(out)) => {
            return binary(offsets, data, out, rows);
        }
        _ => return false,
    }
    true
}

fn truths(values: &[u8], out: &mut BooleanBufferBuilder, rows: &Rows<'_>) {
    match rows.range().and_then(|range| values.get(range)) {
        Some(values) => bools(values, out),
        None => {
            for row in rows.iter() {
                out.append(values.get(row).is_some_and(|value| *value != 0));
            }
        }
    }
}

/// Copies bytes, unless they would outgrow their offsets.
fn binary(offsets: Offsets<'_>, data: &[u8], out: &mut Blobs, rows: &Rows<'_>) -> bool {
    let before = out.offsets.len();
    for row in rows.iter() {
        let bytes = data.get(span(offsets, row)).unwrap_or_default();
        if out.push(bytes).is_err() {
            out.truncate(before);
            return false;
        }
    }
    true
}

/// Copies doubles and decimals as unscaled numbers of a precision and scale, unless one does not fit.
fn decimals(
    source: &ColumnData<'_>,
    out: &mut Vec<i128>,
    (precision, scale): (u8, u8),
    rows: &Rows<'_>,
) -> bool {
    let bound = 10_i128.pow(u32::from(precision));
    // The magnitude: the least number of 16 bytes has no absolute value in `i128`.
    let fitting =
        |unscaled: i128| (unscaled.unsigned_abs() < bound.unsigned_abs()).then_some(unscaled);
    match source {
        ColumnData::Float64(values) => gather_all(out, rows, |row| {
            let value = values.get(row).copied().unwrap_or_default();
            let unscaled = f64_at_scale(f64::from_le_bytes(value), u32::from(scale))?;
            fitting(i128::from(unscaled))
        }),
        ColumnData::Decimal {
            scale: source,
            offsets,
            data,
        } if *source == i32::from(scale) => gather_all(out, rows, |row| {
            fitting(unscaled(data.get(span(offsets, row)).unwrap_or_default())?)
        }),
        _ => false,
    }
}

/// Appends what `of` makes of each row, unless it makes nothing of one of them.
fn gather_all<T>(out: &mut Vec<T>, rows: &Rows<'_>, of: impl Fn(usize) -> Option<T>) -> bool {
    let before = out.len();
    for row in rows.iter() {
        match of(row) {
            Some(value) => out.push(value),
            None => {
                out.truncate(before);
                return false;
            }
        }
    }
    true
}

/// Reads a big-endian number in two's complement; no bytes, which null rows have, are 0.
fn unscaled(bytes: &[u8]) -> Option<i128> {
    let mut wide = match bytes.first() {
        Some(first) if *first >= 0x80 => [u8::MAX; 16],
        _ => [0; 16],
    };
    let start = wide.len().checked_sub(bytes.len())?;
    wide.get_mut(start..)?.copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
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

/// Appends booleans of a byte each, 0 or 1, eight at a time.
fn bools(values: &[u8], out: &mut BooleanBufferBuilder) {
    const BYTES: usize = 32;
    // Brings the lowest bit of byte `n` to bit `n` of the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    for block in values.chunks(8 * BYTES) {
        let mut packed = [0; BYTES];
        for (packed, eight) in packed.iter_mut().zip(block.chunks(8)) {
            let mut bytes = [0; 8];
            let pairs = bytes.iter_mut().zip(eight);
            pairs.for_each(|(byte, value)| *byte = *value);
            [.., *packed] = u64::from_le_bytes(bytes).wrapping_mul(GATHER).to_le_bytes();
        }
        out.append_packed_range(0..block.len(), &packed);
    }
}

/// Copies texts, unless the heap would outgrow its offsets.
fn texts(offsets: Offsets<'_>, text: &str, out: &mut Texts, rows: &Rows<'_>) -> bool {
    if let Some(copied) = texts_in_a_row(offsets, text, out, rows) {
        return copied;
    }
    let bytes: usize = rows.iter().map(|row| span(offsets, row).len()).sum();
    if i32::try_from(out.text.len().saturating_add(bytes)).is_err() {
        return false;
    }
    let mut end = out.offsets.last().copied().unwrap_or(0);
    for row in rows.iter() {
        let span = span(offsets, row);
        // In range: the sum was checked above.
        end = end.saturating_add(i32::try_from(span.len()).unwrap_or(i32::MAX));
        out.text.push_str(text.get(span).unwrap_or_default());
        out.offsets.push(end);
    }
    true
}

/// As [`texts`], of rows that follow each other: one copy, and offsets that move by one number.
/// Does nothing and returns `None` where the rows do not.
fn texts_in_a_row(
    offsets: Offsets<'_>,
    text: &str,
    out: &mut Texts,
    rows: &Rows<'_>,
) -> Option<bool> {
    let range = rows.range()?;
    let start = offset_at(offsets, range.start);
    let whole = text.get(start..offset_at(offsets, range.end))?;
    let ends = offsets.get(range.start + 1..=range.end)?;
    let before = out.offsets.last().copied().unwrap_or(0);
    if i32::try_from(out.text.len().saturating_add(whole.len())).is_err() {
        return Some(false);
    }
    // Each end lies between the first and the last, and both fit where they go.
    let shift = before.wrapping_sub(i32::try_from(start).ok()?);
    out.text.push_str(whole);
    let ends = ends
        .iter()
        .map(|end| i32::from_le_bytes(*end).wrapping_add(shift));
    out.offsets.extend(ends);
    Some(true)
}
