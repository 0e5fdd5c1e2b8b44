//! Judges a column by its first values.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use parquet::basic::Type as PhysicalType;

use super::ColumnEncoding;

/// Values that a column is judged by, and fewer than which it is not.
const VALUES: usize = 8_192;
const VALUES_MIN: usize = 512;
/// Values of a row group, about: what a dictionary grows to is estimated for so many.
const GROUP_VALUES: usize = 500_000;
/// Numbers whose differences share a width in the file.
const RUN: usize = 64;
/// What part of its width a number may need as a difference.
const DELTA_PART: f64 = 0.8;
/// What part of a text the beginning of the one before has to be, for it to be left out.
const PREFIX_PART: f64 = 0.5;

/// What there is to choose from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub(super) physical: PhysicalType,
    /// Differences and lengths apart; else only dictionaries and plain values.
    pub(super) deltas: bool,
    /// A dictionary; without it only when hardly any value is new.
    pub(super) dictionary: bool,
}

/// Returns the encoding for a column that begins with `array`; none when it has too few values.
pub(super) fn choose(choice: Choice, array: &ArrayRef) -> Option<ColumnEncoding> {
    let rows = (0..array.len()).filter(|row| array.is_valid(*row));
    let rows: Vec<usize> = rows.take(VALUES).collect();
    if rows.len() < VALUES_MIN {
        return None;
    }
    match array.data_type() {
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            let values = rows.iter().map(|row| array.value(*row).as_bytes());
            Some(texts(choice, values.collect()))
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            Some(texts(
                choice,
                rows.iter().map(|row| array.value(*row)).collect(),
            ))
        }
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary();
            let values: Vec<_> = rows.iter().map(|row| array.value(*row)).collect();
            Some(match repeats(choice, &values) {
                true => ColumnEncoding::Dictionary,
                false => ColumnEncoding::Plain,
            })
        }
        _ => numbers(choice, array, &rows),
    }
}

fn repeats<T: std::hash::Hash + Eq>(choice: Choice, values: &[T]) -> bool {
    let distinct = distinct(values);
    // What outgrew a page before repeats too seldom, unless the rows are others now.
    let parts = if choice.dictionary { 2 } else { 64 };
    distinct * parts <= values.len()
}

fn distinct<T: std::hash::Hash + Eq>(values: &[T]) -> usize {
    values.iter().collect::<HashSet<_>>().len()
}

fn texts(choice: Choice, values: Vec<&[u8]>) -> ColumnEncoding {
    if repeats(choice, &values) {
        return ColumnEncoding::Dictionary;
    }
    if !choice.deltas {
        return ColumnEncoding::Plain;
    }
    let pairs = values.iter().zip(values.iter().skip(1));
    let shared: usize = pairs.map(|(one, next)| shared(one, next)).sum();
    let bytes: usize = values.iter().map(|value| value.len()).sum();
    if shared as f64 > PREFIX_PART * bytes as f64 {
        ColumnEncoding::DeltaByteArray
    } else {
        ColumnEncoding::DeltaLengthByteArray
    }
}

/// Returns how many bytes two texts begin with alike.
fn shared(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(a, b)| a == b).count()
}

fn numbers(choice: Choice, array: &ArrayRef, rows: &[usize]) -> Option<ColumnEncoding> {
    let width = array.data_type().primitive_width()?;
    let data = array.to_data();
    let bytes = data.buffers().first()?.as_slice();
    let start = data.offset() * width;
    let values: Vec<&[u8]> = rows
        .iter()
        .filter_map(|row| bytes.get(start + row * width..start + (row + 1) * width))
        .collect();
    let repeats = repeats(choice, &values);
    let is_whole = matches!(choice.physical, PhysicalType::INT32 | PhysicalType::INT64);
    if !choice.deltas || !is_whole {
        return Some(match repeats {
            true => ColumnEncoding::Dictionary,
            false => ColumnEncoding::Plain,
        });
    }
    // Those of decimals are wider in memory than in the file.
    let low = |bytes: &[u8]| {
        let mut low = [0; 8];
        let taken = bytes.len().min(8);
        low[..taken].copy_from_slice(&bytes[..taken]);
        match taken {
            4 => i64::from(i32::from_le_bytes([low[0], low[1], low[2], low[3]])),
            _ => i64::from_le_bytes(low),
        }
    };
    let whole: Vec<i64> = values.iter().map(|value| low(value)).collect();
    let plain_bits = match choice.physical {
        PhysicalType::INT32 => 32.0,
        _ => 64.0,
    };
    let delta_bits = delta_bits(&whole);
    let index_bits = f64::from(grown(&whole).next_power_of_two().ilog2());
    Some(if repeats && index_bits <= delta_bits {
        ColumnEncoding::Dictionary
    } else if delta_bits <= DELTA_PART * plain_bits {
        ColumnEncoding::DeltaBinaryPacked
    } else if repeats {
        ColumnEncoding::Dictionary
    } else {
        ColumnEncoding::Plain
    })
}

/// Returns how many different values a row group has if new ones come on as they do in the second
/// half: each moment is new, each status is not.
fn grown(values: &[i64]) -> usize {
    let half = values.len() / 2;
    let first = distinct(values.get(..half).unwrap_or_default());
    let all = distinct(values);
    all + (all - first) * GROUP_VALUES / values.len().max(1) * 2
}

/// Returns the bits that a number needs as a difference from the one before, on average.
fn delta_bits(values: &[i64]) -> f64 {
    let pairs = values.iter().zip(values.iter().skip(1));
    let deltas: Vec<i64> = pairs.map(|(one, next)| next.wrapping_sub(*one)).collect();
    let bits = deltas.chunks(RUN).map(|run| {
        let least = run.iter().min().copied().unwrap_or_default();
        let most = run.iter().max().copied().unwrap_or_default();
        let range = most.wrapping_sub(least).cast_unsigned();
        f64::from(u64::BITS - range.leading_zeros()) * run.len() as f64
    });
    bits.sum::<f64>() / deltas.len().max(1) as f64
}
