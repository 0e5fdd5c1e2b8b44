//! Column metrics of a data file: sizes, counts and bounds that readers skip files by.
//!
//! A wrong bound loses rows silently, so bounds are only ever derived in directions that keep
//! them valid. Parquet's own statistics cut long values, but a cut minimum is still a lower bound
//! and a cut maximum has been incremented; each row group contributes, exact or not. Where a
//! row group has values but no statistics, the file gets no bound. Floats are bounded here,
//! because a row group of NaNs has no statistics.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch};
use frazil_core::{Result, SinkError};
use iceberg::spec::{Datum, PrimitiveType};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use super::properties::MetricsMode;
use super::schema::{FileSchema, Leaf};

/// The metrics of one file, by field id.
#[derive(Debug, Default)]
pub(super) struct ColumnMetrics {
    pub(super) column_sizes: HashMap<i32, u64>,
    pub(super) value_counts: HashMap<i32, u64>,
    pub(super) null_value_counts: HashMap<i32, u64>,
    pub(super) nan_value_counts: HashMap<i32, u64>,
    pub(super) lower_bounds: HashMap<i32, Datum>,
    pub(super) upper_bounds: HashMap<i32, Datum>,
}

/// What has to be seen while a file is written: the floats.
#[derive(Debug, Default)]
pub(super) struct Observed(HashMap<i32, Floats>);

#[derive(Debug, Default)]
struct Floats {
    nans: u64,
    range: Option<(f64, f64)>,
}

impl Observed {
    /// Looks at the rows of a batch that goes into the file.
    pub(super) fn observe(&mut self, schema: &FileSchema, batch: &RecordBatch) {
        for leaf in schema.leaves.iter().filter(|leaf| is_float(&leaf.kind)) {
            let Some((first, rest)) = leaf.position.split_first() else {
                continue;
            };
            let mut array = batch.column(*first).clone();
            // A value below a null struct is not a value.
            let mut nulls = array.nulls().cloned();
            for index in rest {
                let child = array.as_struct().column(*index).clone();
                nulls = arrow_buffer::NullBuffer::union(nulls.as_ref(), child.nulls());
                array = child;
            }
            let floats = self.0.entry(leaf.id).or_default();
            let valid = |row: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
            let rows = (0..array.len()).filter(valid);
            if let Some(array) = array.as_primitive_opt::<Float32Type>() {
                rows.for_each(|row| floats.see(f64::from(array.value(row))));
            } else if let Some(array) = array.as_primitive_opt::<Float64Type>() {
                rows.for_each(|row| floats.see(array.value(row)));
            }
        }
    }
}

impl Floats {
    fn see(&mut self, value: f64) {
        if value.is_nan() {
            self.nans += 1;
            return;
        }
        self.range = Some(match self.range {
            None => (value, value),
            Some((low, high)) => (low.min(value), high.max(value)),
        });
    }
}

fn is_float(kind: &PrimitiveType) -> bool {
    matches!(kind, PrimitiveType::Float | PrimitiveType::Double)
}

/// Derives the metrics of a finished file.
pub(super) fn column_metrics(
    schema: &FileSchema,
    metadata: &ParquetMetaData,
    observed: &Observed,
    mode: impl Fn(&str, usize) -> MetricsMode,
) -> Result<ColumnMetrics> {
    let mut metrics = ColumnMetrics::default();
    for (index, leaf) in schema.leaves.iter().enumerate() {
        let groups = metadata.row_groups().iter();
        let chunks: Vec<_> = groups.map(|group| group.column(index)).collect();
        let size = chunks.iter().map(|chunk| chunk.compressed_size());
        let size = size.map(i64::unsigned_abs).sum();
        metrics.column_sizes.insert(leaf.id, size);
        let mode = mode(&leaf.name, index);
        if mode == MetricsMode::None {
            continue;
        }
        let values = chunks.iter().map(|chunk| chunk.num_values().unsigned_abs());
        metrics.value_counts.insert(leaf.id, values.sum());
        let nulls: Option<u64> = chunks.iter().map(|chunk| nulls(chunk)).sum();
        if let Some(nulls) = nulls {
            metrics.null_value_counts.insert(leaf.id, nulls);
        }
        if leaf.is_repeated() {
            continue;
        }
        if let Some(floats) = observed.0.get(&leaf.id) {
            metrics.nan_value_counts.insert(leaf.id, floats.nans);
        }
        let length = match mode {
            MetricsMode::None | MetricsMode::Counts => continue,
            MetricsMode::Truncate(length) => length,
            MetricsMode::Full => usize::MAX,
        };
        let (lower, upper) = if is_float(&leaf.kind) {
            float_bounds(leaf, observed)?
        } else {
            bounds(leaf, &chunks, length)?
        };
        lower.map(|bound| metrics.lower_bounds.insert(leaf.id, bound));
        upper.map(|bound| metrics.upper_bounds.insert(leaf.id, bound));
    }
    Ok(metrics)
}

fn nulls(chunk: &ColumnChunkMetaData) -> Option<u64> {
    chunk.statistics().and_then(|stats| stats.null_count_opt())
}

/// Minus zero is below zero in some engines and equal to it in others: bounds hold for both.
fn float_bounds(leaf: &Leaf, observed: &Observed) -> Result<(Option<Datum>, Option<Datum>)> {
    let range = observed.0.get(&leaf.id).and_then(|floats| floats.range);
    let Some((low, high)) = range else {
        return Ok((None, None));
    };
    let low = if low == 0.0 { -0.0 } else { low };
    let high = if high == 0.0 { 0.0 } else { high };
    Ok(if leaf.kind == PrimitiveType::Float {
        // Both came from a float, so they fit one exactly.
        (
            Some(Datum::float(low as f32)),
            Some(Datum::float(high as f32)),
        )
    } else {
        (Some(Datum::double(low)), Some(Datum::double(high)))
    })
}

/// A value that is ordered as its column is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Bool(bool),
    Int(i32),
    Long(i64),
    Decimal(i128),
    /// Strings too: UTF-8 is ordered as its code points are.
    Bytes(Vec<u8>),
}

fn bounds(
    leaf: &Leaf,
    chunks: &[&ColumnChunkMetaData],
    length: usize,
) -> Result<(Option<Datum>, Option<Datum>)> {
    let (mut lower, mut upper) = (None::<Value>, None::<Value>);
    for chunk in chunks {
        if nulls(chunk).is_some_and(|nulls| nulls >= chunk.num_values().unsigned_abs()) {
            continue;
        }
        let stats = chunk.statistics();
        let value = |bytes: Option<&[u8]>| value(&leaf.kind, chunk.column_type(), bytes?);
        let min = stats.and_then(|stats| value(stats.min_bytes_opt()));
        let max = stats.and_then(|stats| value(stats.max_bytes_opt()));
        let (Some(min), Some(max)) = (min, max) else {
            return Ok((None, None));
        };
        lower = Some(lower.map_or(min.clone(), |lower| lower.min(min)));
        upper = Some(upper.map_or(max.clone(), |upper| upper.max(max)));
    }
    let lower = lower.and_then(|value| cut_lower(&leaf.kind, value, length));
    let upper = upper.and_then(|value| cut_upper(&leaf.kind, value, length));
    Ok((datum(leaf, lower)?, datum(leaf, upper)?))
}

fn value(kind: &PrimitiveType, physical: PhysicalType, bytes: &[u8]) -> Option<Value> {
    use PrimitiveType as T;
    Some(match (kind, physical) {
        (T::Boolean, _) => Value::Bool(*bytes.first()? != 0),
        (T::Decimal { .. }, PhysicalType::INT32) => {
            Value::Decimal(i32::from_le_bytes(bytes.try_into().ok()?).into())
        }
        (T::Decimal { .. }, PhysicalType::INT64) => {
            Value::Decimal(i64::from_le_bytes(bytes.try_into().ok()?).into())
        }
        (T::Decimal { .. }, _) => Value::Decimal(big_endian(bytes)?),
        (T::Int | T::Date, PhysicalType::INT32) => {
            Value::Int(i32::from_le_bytes(bytes.try_into().ok()?))
        }
        (_, PhysicalType::INT64) => Value::Long(i64::from_le_bytes(bytes.try_into().ok()?)),
        (
            T::String | T::Binary | T::Fixed(_) | T::Uuid,
            PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY,
        ) => Value::Bytes(bytes.to_vec()),
        _ => return None,
    })
}

fn big_endian(bytes: &[u8]) -> Option<i128> {
    let sign = if *bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let mut wide = [sign; 16];
    let start = wide.len().checked_sub(bytes.len())?;
    wide[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

/// Cuts a lower bound to `length` code points or bytes: a prefix is never above the whole.
fn cut_lower(kind: &PrimitiveType, value: Value, length: usize) -> Option<Value> {
    let Value::Bytes(mut bytes) = value else {
        return Some(value);
    };
    match kind {
        PrimitiveType::String => {
            let end = prefix(std::str::from_utf8(&bytes).ok()?, length).len();
            bytes.truncate(end);
        }
        PrimitiveType::Binary | PrimitiveType::Fixed(_) => bytes.truncate(length),
        _ => {}
    }
    Some(Value::Bytes(bytes))
}

/// Cuts an upper bound and increments what is left; none when there is nothing above.
fn cut_upper(kind: &PrimitiveType, value: Value, length: usize) -> Option<Value> {
    let Value::Bytes(bytes) = value else {
        return Some(value);
    };
    Some(Value::Bytes(match kind {
        PrimitiveType::String => {
            let text = std::str::from_utf8(&bytes).ok()?;
            let head = prefix(text, length);
            if head.len() == text.len() {
                bytes
            } else {
                increment_text(head)?.into_bytes()
            }
        }
        PrimitiveType::Binary | PrimitiveType::Fixed(_) if bytes.len() > length => {
            increment_bytes(&bytes[..length])?
        }
        _ => bytes,
    }))
}

fn prefix(text: &str, length: usize) -> &str {
    match text.char_indices().nth(length) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Returns the smallest shorter-or-equal text above every text that begins with `text`.
pub(super) fn increment_text(text: &str) -> Option<String> {
    let mut rest = text.to_string();
    while let Some(last) = rest.pop() {
        let next = match last {
            // The code points between are surrogates, which no text has.
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

fn increment_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let keep = bytes.iter().rposition(|byte| *byte != 0xff)? + 1;
    let mut bytes = bytes[..keep].to_vec();
    bytes[keep - 1] += 1;
    Some(bytes)
}

fn datum(leaf: &Leaf, value: Option<Value>) -> Result<Option<Datum>> {
    let Some(value) = value else { return Ok(None) };
    let bytes = match value {
        Value::Bool(value) => vec![u8::from(value)],
        Value::Int(value) => value.to_le_bytes().to_vec(),
        Value::Long(value) => value.to_le_bytes().to_vec(),
        Value::Decimal(value) => value.to_be_bytes().to_vec(),
        Value::Bytes(bytes) => bytes,
    };
    Datum::try_from_bytes(&bytes, leaf.kind.clone())
        .map(Some)
        .map_err(|error| SinkError::internal("a column bound has no value").caused_by(error))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn upper_bounds_of_texts_are_those_of_the_java_library() {
        let upper = |text: &str, length| {
            let value = Value::Bytes(text.as_bytes().to_vec());
            match cut_upper(&PrimitiveType::String, value, length) {
                Some(Value::Bytes(bytes)) => Some(String::from_utf8(bytes).unwrap()),
                _ => None,
            }
        };
        assert_eq!(upper("Iceberg", 7).as_deref(), Some("Iceberg"));
        assert_eq!(
            upper("Iceberg", 3).as_deref(),
            Some("icf".replace('i', "I").as_str())
        );
        assert_eq!(upper("a\u{10ffff}b", 2).as_deref(), Some("b"));
        assert_eq!(upper("\u{10ffff}\u{10ffff}x", 2), None);
        assert_eq!(upper("a\u{d7ff}x", 2).as_deref(), Some("a\u{e000}"));
        assert_eq!(upper("\u{7f}é", 1).as_deref(), Some("\u{80}"));
        assert_eq!(increment_bytes(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(increment_bytes(&[0xff]), None);
    }

    #[test]
    fn decimals_of_any_width_keep_their_sign() {
        assert_eq!(big_endian(&[0xff]), Some(-1));
        assert_eq!(big_endian(&[0x7f, 0]), Some(32_512));
        assert_eq!(big_endian(&i128::MIN.to_be_bytes()), Some(i128::MIN));
        assert_eq!(big_endian(&[0; 17]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn cut_bounds_contain_their_value(text in "[a-c\u{d7ff}\u{e000}\u{10ffff}]{0,6}", length in 1usize..4) {
            for kind in [PrimitiveType::String, PrimitiveType::Binary] {
                let value = Value::Bytes(text.as_bytes().to_vec());
                prop_assert!(cut_lower(&kind, value.clone(), length).is_some_and(|low| low <= value));
                if let Some(high) = cut_upper(&kind, value.clone(), length) {
                    prop_assert!(high >= value);
                }
            }
        }
    }
}
