//! Transforms, computed on whole Arrow columns.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, PrimitiveArray, RecordBatch,
    StringArray,
};
use arrow_buffer::NullBuffer;
use iceberg::spec::{Literal, PrimitiveLiteral, PrimitiveType, Transform};

use super::human::civil;
use super::murmur::{bucket, hash_decimal, hash_long, murmur3};
use crate::error::{Result, SinkError};

const MICROS_PER_HOUR: i64 = 3_600_000_000;
const MICROS_PER_DAY: i64 = 24 * MICROS_PER_HOUR;

/// The partition values of one field for all rows of a batch.
pub(super) struct Values {
    column: Column,
    /// Also null where a struct around the source column is null.
    nulls: Option<NullBuffer>,
}

enum Column {
    Void,
    Bool(BooleanArray),
    Int(Int32Array),
    Long(Int64Array),
    Decimal(PrimitiveArray<Decimal128Type>),
    Float(Float32Array),
    Double(Float64Array),
    /// At most `1` code points of each string.
    Text(Text, Option<usize>),
    /// At most `1` bytes of each value.
    Bytes(Bytes, Option<usize>),
    Uuid(FixedSizeBinaryArray),
}

enum Text {
    Small(StringArray),
    Large(LargeStringArray),
}

enum Bytes {
    Small(BinaryArray),
    Large(LargeBinaryArray),
    Fixed(FixedSizeBinaryArray),
}

/// Tells whether `transform` can be applied to `source`, and if not, why.
pub(super) fn supported(transform: Transform, source: &PrimitiveType) -> Result<(), &'static str> {
    use PrimitiveType as T;
    let nanos = matches!(source, T::TimestampNs | T::TimestamptzNs);
    let timestamp = nanos || matches!(source, T::Timestamp | T::Timestamptz);
    match transform {
        Transform::Identity | Transform::Void => Ok(()),
        Transform::Year | Transform::Month | Transform::Day if timestamp || *source == T::Date => {
            Ok(())
        }
        Transform::Hour if timestamp => Ok(()),
        Transform::Bucket(_) if nanos => {
            Err("buckets of nanosecond timestamps differ between engines; use a microsecond column")
        }
        Transform::Bucket(0) | Transform::Truncate(0) => Err("its parameter must be at least 1"),
        Transform::Bucket(n) | Transform::Truncate(n) if i32::try_from(n).is_err() => {
            Err("its parameter is larger than an int")
        }
        Transform::Bucket(_) if !matches!(source, T::Boolean | T::Float | T::Double) => Ok(()),
        Transform::Truncate(_)
            if matches!(
                source,
                T::Int | T::Long | T::Decimal { .. } | T::String | T::Binary
            ) =>
        {
            Ok(())
        }
        Transform::Unknown => Err("its transform is not known to this version"),
        _ => Err("its transform cannot be applied to the type of its source column"),
    }
}

impl Values {
    /// Applies `transform` to the column at `position`.
    pub(super) fn compute(
        transform: Transform,
        source: &PrimitiveType,
        position: &[usize],
        batch: &RecordBatch,
    ) -> Result<Self> {
        if transform == Transform::Void {
            return Ok(Values {
                column: Column::Void,
                nulls: None,
            });
        }
        let (array, nulls) = resolve(position, batch)?;
        let column = match transform {
            Transform::Identity => identity(source, &array)?,
            Transform::Bucket(n) => Column::Int(buckets(source, &array, parameter(n)?)?),
            Transform::Truncate(n) => truncate(source, &array, parameter(n)?)?,
            Transform::Year | Transform::Month | Transform::Day | Transform::Hour => {
                Column::Int(temporal(transform, source, &array)?)
            }
            Transform::Void | Transform::Unknown => return Err(mismatch(source, &array)),
        };
        Ok(Values { column, nulls })
    }

    fn is_null(&self, row: usize) -> bool {
        matches!(self.column, Column::Void)
            || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends bytes that are equal for two rows exactly when their values are.
    pub(super) fn append_key(&self, row: usize, key: &mut Vec<u8>) {
        if self.is_null(row) {
            key.push(0);
            return;
        }
        key.push(1);
        match &self.column {
            Column::Void => {}
            Column::Bool(array) => key.push(u8::from(array.value(row))),
            Column::Int(array) => key.extend(array.value(row).to_le_bytes()),
            Column::Long(array) => key.extend(array.value(row).to_le_bytes()),
            Column::Decimal(array) => key.extend(array.value(row).to_le_bytes()),
            Column::Float(array) => key.extend(canonical(array.value(row)).to_le_bytes()),
            Column::Double(array) => key.extend(canonical_double(array.value(row)).to_le_bytes()),
            Column::Text(array, width) => {
                append_bytes(prefix(array.value(row), *width).as_bytes(), key);
            }
            Column::Bytes(array, width) => append_bytes(head(array.value(row), *width), key),
            Column::Uuid(array) => key.extend(array.value(row)),
        }
    }

    /// Returns the value of one row.
    pub(super) fn literal(&self, row: usize) -> Option<Literal> {
        if self.is_null(row) {
            return None;
        }
        let value = match &self.column {
            Column::Void => return None,
            Column::Bool(array) => PrimitiveLiteral::Boolean(array.value(row)),
            Column::Int(array) => PrimitiveLiteral::Int(array.value(row)),
            Column::Long(array) => PrimitiveLiteral::Long(array.value(row)),
            Column::Decimal(array) => PrimitiveLiteral::Int128(array.value(row)),
            Column::Float(array) => PrimitiveLiteral::Float(canonical(array.value(row)).into()),
            Column::Double(array) => {
                PrimitiveLiteral::Double(canonical_double(array.value(row)).into())
            }
            Column::Text(array, width) => {
                PrimitiveLiteral::String(prefix(array.value(row), *width).to_string())
            }
            Column::Bytes(array, width) => {
                PrimitiveLiteral::Binary(head(array.value(row), *width).to_vec())
            }
            Column::Uuid(array) => {
                let bytes = array.value(row).iter();
                PrimitiveLiteral::UInt128(
                    bytes.fold(0, |value, byte| (value << 8) | u128::from(*byte)),
                )
            }
        };
        Some(Literal::Primitive(value))
    }
}

impl Text {
    fn value(&self, row: usize) -> &str {
        match self {
            Text::Small(array) => array.value(row),
            Text::Large(array) => array.value(row),
        }
    }
}

impl Bytes {
    fn value(&self, row: usize) -> &[u8] {
        match self {
            Bytes::Small(array) => array.value(row),
            Bytes::Large(array) => array.value(row),
            Bytes::Fixed(array) => array.value(row),
        }
    }
}

/// Gives all NaNs one bit pattern, so that they share a partition.
fn canonical(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

fn canonical_double(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

fn append_bytes(bytes: &[u8], key: &mut Vec<u8>) {
    key.extend((bytes.len() as u64).to_le_bytes());
    key.extend(bytes);
}

/// Returns the first `width` code points.
fn prefix(text: &str, width: Option<usize>) -> &str {
    let Some(width) = width else { return text };
    match text.char_indices().nth(width) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

fn head(bytes: &[u8], width: Option<usize>) -> &[u8] {
    width.and_then(|width| bytes.get(..width)).unwrap_or(bytes)
}

fn parameter(n: u32) -> Result<i32> {
    i32::try_from(n).map_err(|_| SinkError::internal("a transform's parameter exceeds an int"))
}

/// Walks to the column at `position` and joins the nulls of the structs around it.
pub(super) fn resolve(
    position: &[usize],
    batch: &RecordBatch,
) -> Result<(ArrayRef, Option<NullBuffer>)> {
    let absent = || SinkError::internal("a batch lacks the source column of a partition field");
    let (first, rest) = position.split_first().ok_or_else(absent)?;
    let mut array = batch.columns().get(*first).ok_or_else(absent)?.clone();
    let mut nulls = array.nulls().cloned();
    for index in rest {
        let parent = array.as_struct_opt().ok_or_else(absent)?;
        let child = parent.columns().get(*index).ok_or_else(absent)?.clone();
        nulls = NullBuffer::union(nulls.as_ref(), child.nulls());
        array = child;
    }
    Ok((array, nulls))
}

/// Returns the transformed values of a column as a column.
pub(super) fn transformed(
    transform: Transform,
    source: &PrimitiveType,
    array: &ArrayRef,
) -> Result<ArrayRef> {
    let column = match transform {
        Transform::Bucket(n) => Column::Int(buckets(source, array, parameter(n)?)?),
        Transform::Truncate(n) => truncate(source, array, parameter(n)?)?,
        Transform::Year | Transform::Month | Transform::Day | Transform::Hour => {
            Column::Int(temporal(transform, source, array)?)
        }
        Transform::Identity | Transform::Void | Transform::Unknown => {
            return Err(mismatch(source, array));
        }
    };
    let valid = |row: usize| array.is_valid(row);
    let rows = 0..array.len();
    Ok(match column {
        Column::Int(values) => Arc::new(values),
        Column::Long(values) => Arc::new(values),
        Column::Decimal(values) => Arc::new(values),
        Column::Text(text, width) => {
            let values = rows.map(|row| valid(row).then(|| prefix(text.value(row), width)));
            Arc::new(values.collect::<StringArray>())
        }
        Column::Bytes(bytes, width) => {
            let values = rows.map(|row| valid(row).then(|| head(bytes.value(row), width)));
            Arc::new(values.collect::<BinaryArray>())
        }
        // No transform but identity makes these.
        Column::Void | Column::Bool(_) | Column::Float(_) | Column::Double(_) | Column::Uuid(_) => {
            return Err(mismatch(source, array));
        }
    })
}

fn mismatch(source: &PrimitiveType, array: &ArrayRef) -> SinkError {
    SinkError::internal(format!(
        "a partition source of type {source} arrived as Arrow {}",
        array.data_type()
    ))
}

fn typed<'a, T: ArrowPrimitiveType>(
    source: &PrimitiveType,
    array: &'a ArrayRef,
) -> Result<&'a PrimitiveArray<T>> {
    array
        .as_primitive_opt::<T>()
        .ok_or_else(|| mismatch(source, array))
}

/// Returns a column whose values are longs inside: time and timestamps too.
fn longs(source: &PrimitiveType, array: &ArrayRef) -> Result<Int64Array> {
    use PrimitiveType as T;
    Ok(match source {
        T::Time => typed::<Time64MicrosecondType>(source, array)?.reinterpret_cast(),
        T::Timestamp | T::Timestamptz => {
            typed::<TimestampMicrosecondType>(source, array)?.reinterpret_cast()
        }
        T::TimestampNs | T::TimestamptzNs => {
            typed::<TimestampNanosecondType>(source, array)?.reinterpret_cast()
        }
        _ => typed::<Int64Type>(source, array)?.clone(),
    })
}

/// Returns a column whose values are ints inside: dates too.
fn ints(source: &PrimitiveType, array: &ArrayRef) -> Result<Int32Array> {
    Ok(match source {
        PrimitiveType::Date => typed::<Date32Type>(source, array)?.reinterpret_cast(),
        _ => typed::<Int32Type>(source, array)?.clone(),
    })
}

fn text(source: &PrimitiveType, array: &ArrayRef) -> Result<Text> {
    if let Some(array) = array.as_string_opt::<i32>() {
        return Ok(Text::Small(array.clone()));
    }
    let large = array.as_string_opt::<i64>();
    Ok(Text::Large(
        large.ok_or_else(|| mismatch(source, array))?.clone(),
    ))
}

fn bytes(source: &PrimitiveType, array: &ArrayRef) -> Result<Bytes> {
    if let Some(array) = array.as_binary_opt::<i32>() {
        return Ok(Bytes::Small(array.clone()));
    }
    if let Some(array) = array.as_fixed_size_binary_opt() {
        return Ok(Bytes::Fixed(array.clone()));
    }
    let large = array.as_binary_opt::<i64>();
    Ok(Bytes::Large(
        large.ok_or_else(|| mismatch(source, array))?.clone(),
    ))
}

fn identity(source: &PrimitiveType, array: &ArrayRef) -> Result<Column> {
    use PrimitiveType as T;
    let wrong = || mismatch(source, array);
    Ok(match source {
        T::Boolean => Column::Bool(array.as_boolean_opt().ok_or_else(wrong)?.clone()),
        T::Int | T::Date => Column::Int(ints(source, array)?),
        T::Float => Column::Float(typed::<Float32Type>(source, array)?.clone()),
        T::Double => Column::Double(typed::<Float64Type>(source, array)?.clone()),
        T::Decimal { .. } => Column::Decimal(typed(source, array)?.clone()),
        T::String => Column::Text(text(source, array)?, None),
        T::Uuid => Column::Uuid(array.as_fixed_size_binary_opt().ok_or_else(wrong)?.clone()),
        T::Fixed(_) | T::Binary => Column::Bytes(bytes(source, array)?, None),
        T::Long | T::Time | T::Timestamp | T::Timestamptz | T::TimestampNs | T::TimestamptzNs => {
            Column::Long(longs(source, array)?)
        }
    })
}

fn buckets(source: &PrimitiveType, array: &ArrayRef, n: i32) -> Result<Int32Array> {
    use PrimitiveType as T;
    Ok(match source {
        T::Int | T::Date => {
            ints(source, array)?.unary(|value| bucket(hash_long(i64::from(value)), n))
        }
        T::Long | T::Time | T::Timestamp | T::Timestamptz => {
            longs(source, array)?.unary(|value| bucket(hash_long(value), n))
        }
        T::Decimal { .. } => {
            typed::<Decimal128Type>(source, array)?.unary(|value| bucket(hash_decimal(value), n))
        }
        T::String => {
            let text = text(source, array)?;
            each(array, |row| bucket(murmur3(text.value(row).as_bytes()), n))
        }
        T::Uuid | T::Fixed(_) | T::Binary => {
            let bytes = bytes(source, array)?;
            each(array, |row| bucket(murmur3(bytes.value(row)), n))
        }
        _ => return Err(mismatch(source, array)),
    })
}

fn each(array: &ArrayRef, value: impl Fn(usize) -> i32) -> Int32Array {
    (0..array.len())
        .map(|row| array.is_valid(row).then(|| value(row)))
        .collect()
}

fn truncate(source: &PrimitiveType, array: &ArrayRef, width: i32) -> Result<Column> {
    use PrimitiveType as T;
    // Wraps below the smallest number, as Java does.
    Ok(match source {
        T::Int => Column::Int(
            ints(source, array)?.unary(|value| value.wrapping_sub(value.rem_euclid(width))),
        ),
        T::Long => {
            let width = i64::from(width);
            Column::Long(
                longs(source, array)?.unary(|value| value.wrapping_sub(value.rem_euclid(width))),
            )
        }
        T::Decimal { .. } => {
            let width = i128::from(width);
            Column::Decimal(
                typed::<Decimal128Type>(source, array)?
                    .unary(|value| value.wrapping_sub(value.rem_euclid(width))),
            )
        }
        T::String => Column::Text(text(source, array)?, usize::try_from(width).ok()),
        T::Binary => Column::Bytes(bytes(source, array)?, usize::try_from(width).ok()),
        _ => return Err(mismatch(source, array)),
    })
}

fn temporal(transform: Transform, source: &PrimitiveType, array: &ArrayRef) -> Result<Int32Array> {
    if *source == PrimitiveType::Date {
        return Ok(ints(source, array)?.unary(|days| of_days(transform, i64::from(days))));
    }
    let nanos = matches!(
        source,
        PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs
    );
    let units = if nanos { 1_000 } else { 1 };
    let values = longs(source, array)?;
    Ok(if transform == Transform::Hour {
        // 2^63 microseconds are 2.6 thousand million hours: the far ends do not fit an int.
        values.try_unary(|value| {
            i32::try_from(value.div_euclid(MICROS_PER_HOUR * units)).map_err(|_| {
                SinkError::fatal(
                    "PARTITION_VALUE_OUT_OF_RANGE",
                    "a timestamp is so far from 1970 that its hour does not fit an int; \
                     partition the table by day or keep such records out",
                )
            })
        })?
    } else {
        values.unary(|value| of_days(transform, value.div_euclid(MICROS_PER_DAY * units)))
    })
}

/// Returns year, month or day of a day counted from the epoch; days of timestamps always fit.
fn of_days(transform: Transform, days: i64) -> i32 {
    let ordinal = match transform {
        Transform::Year => civil(days).0 - 1970,
        Transform::Month => {
            let (year, month, _) = civil(days);
            (year - 1970) * 12 + month - 1
        }
        _ => days,
    };
    ordinal as i32
}
