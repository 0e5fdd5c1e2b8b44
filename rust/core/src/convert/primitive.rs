//! The values of a column that is not nested.

use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, LargeBinaryArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::ArrowError;
use iceberg::spec::{PrimitiveLiteral, PrimitiveType};

use super::column::CAPACITY;
use super::misfit::Reason;
use super::scalar;
use super::temporal::NANOS_PER_MICRO;
use super::value::Value;
use crate::error::{Result, SinkError};

/// The time zone of `timestamptz` columns, as the Iceberg crate writes it.
const UTC: &str = "+00:00";

/// Values without their validity.
#[derive(Debug)]
pub(super) enum Primitives {
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>),
    Long(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal {
        values: Vec<i128>,
        precision: u8,
        scale: u8,
    },
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp {
        values: Vec<i64>,
        zoned: bool,
    },
    TimestampNanos {
        values: Vec<i64>,
        zoned: bool,
    },
    Text(Texts),
    Uuid(Vec<u8>),
    Fixed {
        data: Vec<u8>,
        length: i32,
    },
    Binary(Blobs),
}

/// Texts one behind the other.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) offsets: Vec<i32>,
    pub(super) text: String,
}

impl Default for Texts {
    fn default() -> Self {
        Texts {
            offsets: vec![0],
            text: String::new(),
        }
    }
}

/// Byte strings one behind the other.
#[derive(Debug)]
pub(super) struct Blobs {
    pub(super) offsets: Vec<i64>,
    pub(super) data: Vec<u8>,
}

impl Default for Blobs {
    fn default() -> Self {
        Blobs {
            offsets: vec![0],
            data: Vec::new(),
        }
    }
}

impl Texts {
    /// Ends a text where the heap ends; takes it back if an offset cannot say so.
    fn close(&mut self) -> Result<(), Reason> {
        match i32::try_from(self.text.len()) {
            Ok(end) => {
                self.offsets.push(end);
                Ok(())
            }
            Err(_) => {
                self.take_back();
                Err(Reason::OutOfRange)
            }
        }
    }

    /// Removes what stands behind the last whole text.
    fn take_back(&mut self) {
        let end = self.offsets.last().copied().unwrap_or(0);
        self.text.truncate(usize::try_from(end).unwrap_or(0));
    }
}

impl Blobs {
    /// Ends a byte string where the heap ends; takes it back if an offset cannot say so.
    fn close(&mut self) -> Result<(), Reason> {
        match i64::try_from(self.data.len()) {
            Ok(end) => {
                self.offsets.push(end);
                Ok(())
            }
            Err(_) => {
                self.truncate(self.offsets.len());
                Err(Reason::OutOfRange)
            }
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        let end = self.data.len().checked_add(bytes.len());
        let end = end.and_then(|end| i64::try_from(end).ok());
        self.offsets.push(end.ok_or(Reason::OutOfRange)?);
        self.data.extend_from_slice(bytes);
        Ok(())
    }

    /// Keeps the first `count - 1` byte strings: those between the first `count` offsets.
    pub(super) fn truncate(&mut self, count: usize) {
        self.offsets.truncate(count);
        let end = self.offsets.last().copied().unwrap_or(0);
        self.data.truncate(usize::try_from(end).unwrap_or(0));
    }
}

impl Primitives {
    pub(super) fn new(primitive: &PrimitiveType) -> Result<Self> {
        Ok(match primitive {
            PrimitiveType::Boolean => Primitives::Boolean(BooleanBufferBuilder::new(CAPACITY)),
            PrimitiveType::Int => Primitives::Int(Vec::new()),
            PrimitiveType::Long => Primitives::Long(Vec::new()),
            PrimitiveType::Float => Primitives::Float(Vec::new()),
            PrimitiveType::Double => Primitives::Double(Vec::new()),
            PrimitiveType::Decimal { precision, scale } => {
                match (u8::try_from(*precision), u8::try_from(*scale)) {
                    (Ok(precision @ 1..=38), Ok(scale)) if scale <= precision => {
                        Primitives::Decimal {
                            values: Vec::new(),
                            precision,
                            scale,
                        }
                    }
                    _ => return Err(unsupported(primitive)),
                }
            }
            PrimitiveType::Date => Primitives::Date(Vec::new()),
            PrimitiveType::Time => Primitives::Time(Vec::new()),
            PrimitiveType::Timestamp | PrimitiveType::Timestamptz => Primitives::Timestamp {
                values: Vec::new(),
                zoned: *primitive == PrimitiveType::Timestamptz,
            },
            PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs => {
                Primitives::TimestampNanos {
                    values: Vec::new(),
                    zoned: *primitive == PrimitiveType::TimestamptzNs,
                }
            }
            PrimitiveType::String => Primitives::Text(Texts::default()),
            PrimitiveType::Uuid => Primitives::Uuid(Vec::new()),
            PrimitiveType::Fixed(length) => Primitives::Fixed {
                data: Vec::new(),
                length: match i32::try_from(*length) {
                    Ok(length) if length > 0 => length,
                    _ => return Err(unsupported(primitive)),
                },
            },
            PrimitiveType::Binary => Primitives::Binary(Blobs::default()),
        })
    }

    /// Appends `value`, or nothing and says why.
    pub(super) fn push(&mut self, value: Value<'_>) -> Result<(), Reason> {
        let value = match value {
            Value::BareText(text) if !self.is_bytes() => Value::Text(text),
            value => value,
        };
        match self {
            Primitives::Boolean(values) => values.append(scalar::to_bool(value)?),
            Primitives::Int(values) => values.push(scalar::to_i32(value)?),
            Primitives::Long(values) => values.push(scalar::to_i64(value)?),
            Primitives::Float(values) => values.push(scalar::to_f32(value)?),
            Primitives::Double(values) => values.push(scalar::to_f64(value)?),
            Primitives::Decimal {
                values,
                precision,
                scale,
            } => {
                let (precision, scale) = (u32::from(*precision), u32::from(*scale));
                values.push(scalar::to_decimal(value, precision, scale)?);
            }
            Primitives::Date(values) => values.push(scalar::to_date(value)?),
            Primitives::Time(values) => values.push(scalar::to_time(value)?),
            Primitives::Timestamp { values, .. } => {
                values.push(scalar::to_timestamp(value, NANOS_PER_MICRO)?);
            }
            Primitives::TimestampNanos { values, .. } => {
                values.push(scalar::to_timestamp(value, 1)?);
            }
            Primitives::Text(texts) => {
                if let Err(reason) = scalar::write_text(value, &mut texts.text) {
                    texts.take_back();
                    return Err(reason);
                }
                texts.close()?;
            }
            Primitives::Uuid(data) => data.extend_from_slice(&scalar::to_uuid(value)?),
            Primitives::Fixed { data, length } => {
                let before = data.len();
                let written = scalar::write_bytes(value, data).and_then(|()| {
                    match usize::try_from(*length) == Ok(data.len() - before) {
                        true => Ok(()),
                        false => Err(Reason::WrongLength),
                    }
                });
                if written.is_err() {
                    data.truncate(before);
                }
                written?;
            }
            Primitives::Binary(blobs) => {
                if let Err(reason) = scalar::write_bytes(value, &mut blobs.data) {
                    blobs.truncate(blobs.offsets.len());
                    return Err(reason);
                }
                blobs.close()?;
            }
        }
        Ok(())
    }

    fn is_bytes(&self) -> bool {
        matches!(self, Primitives::Fixed { .. } | Primitives::Binary(_))
    }

    /// Appends a default of the table's schema; false if it is not of the column's type.
    pub(super) fn push_literal(&mut self, literal: &PrimitiveLiteral) -> bool {
        match (self, literal) {
            (Primitives::Boolean(values), PrimitiveLiteral::Boolean(value)) => {
                values.append(*value);
            }
            (Primitives::Int(values) | Primitives::Date(values), PrimitiveLiteral::Int(value)) => {
                values.push(*value);
            }
            (
                Primitives::Long(values)
                | Primitives::Time(values)
                | Primitives::Timestamp { values, .. }
                | Primitives::TimestampNanos { values, .. },
                PrimitiveLiteral::Long(value),
            ) => values.push(*value),
            (Primitives::Float(values), PrimitiveLiteral::Float(value)) => values.push(value.0),
            (Primitives::Double(values), PrimitiveLiteral::Double(value)) => values.push(value.0),
            (Primitives::Decimal { values, .. }, PrimitiveLiteral::Int128(value)) => {
                values.push(*value);
            }
            (Primitives::Text(texts), PrimitiveLiteral::String(value)) => {
                texts.text.push_str(value);
                return texts.close().is_ok();
            }
            (Primitives::Uuid(data), PrimitiveLiteral::UInt128(value)) => {
                data.extend_from_slice(&value.to_be_bytes());
            }
            (Primitives::Binary(blobs), PrimitiveLiteral::Binary(value)) => {
                return blobs.push(value).is_ok();
            }
            (Primitives::Fixed { data, length }, PrimitiveLiteral::Binary(value))
                if usize::try_from(*length) == Ok(value.len()) =>
            {
                data.extend_from_slice(value);
            }
            _ => return false,
        }
        true
    }

    /// Appends a zero or nothing, for a slot that no row shows.
    pub(super) fn push_zero(&mut self) {
        match self {
            Primitives::Boolean(values) => values.append(false),
            Primitives::Int(values) | Primitives::Date(values) => values.push(0),
            Primitives::Long(values)
            | Primitives::Time(values)
            | Primitives::Timestamp { values, .. }
            | Primitives::TimestampNanos { values, .. } => values.push(0),
            Primitives::Float(values) => values.push(0.0),
            Primitives::Double(values) => values.push(0.0),
            Primitives::Decimal { values, .. } => values.push(0),
            Primitives::Text(texts) => {
                texts
                    .offsets
                    .push(texts.offsets.last().copied().unwrap_or(0));
            }
            Primitives::Uuid(data) => data.extend_from_slice(&[0; 16]),
            Primitives::Fixed { data, length } => {
                let length = usize::try_from(*length).unwrap_or(0);
                data.resize(data.len() + length, 0);
            }
            Primitives::Binary(blobs) => {
                blobs
                    .offsets
                    .push(blobs.offsets.last().copied().unwrap_or(0));
            }
        }
    }

    /// Makes room for `rows` values, all together of `heap` bytes where their lengths differ.
    pub(super) fn reserve(&mut self, rows: usize, heap: usize) {
        match self {
            Primitives::Boolean(values) => values.reserve(rows),
            Primitives::Int(values) | Primitives::Date(values) => values.reserve(rows),
            Primitives::Long(values)
            | Primitives::Time(values)
            | Primitives::Timestamp { values, .. }
            | Primitives::TimestampNanos { values, .. } => values.reserve(rows),
            Primitives::Float(values) => values.reserve(rows),
            Primitives::Double(values) => values.reserve(rows),
            Primitives::Decimal { values, .. } => values.reserve(rows),
            Primitives::Text(texts) => {
                texts.offsets.reserve(rows);
                texts.text.reserve(heap);
            }
            Primitives::Uuid(data) | Primitives::Fixed { data, .. } => data.reserve(heap),
            Primitives::Binary(blobs) => {
                blobs.offsets.reserve(rows);
                blobs.data.reserve(heap);
            }
        }
    }

    /// Returns the bytes of all values where their lengths are not the same in each table.
    pub(super) fn heap(&self) -> usize {
        match self {
            Primitives::Text(texts) => texts.text.len(),
            Primitives::Uuid(data) | Primitives::Fixed { data, .. } => data.len(),
            Primitives::Binary(blobs) => blobs.data.len(),
            _ => 0,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Primitives::Boolean(values) => values.capacity() / 8,
            Primitives::Int(values) | Primitives::Date(values) => values.capacity() * 4,
            Primitives::Float(values) => values.capacity() * 4,
            Primitives::Double(values) => values.capacity() * 8,
            Primitives::Long(values)
            | Primitives::Time(values)
            | Primitives::Timestamp { values, .. }
            | Primitives::TimestampNanos { values, .. } => values.capacity() * 8,
            Primitives::Decimal { values, .. } => values.capacity() * 16,
            Primitives::Text(texts) => texts.text.capacity() + texts.offsets.capacity() * 4,
            Primitives::Uuid(data) | Primitives::Fixed { data, .. } => data.capacity(),
            Primitives::Binary(blobs) => blobs.data.capacity() + blobs.offsets.capacity() * 8,
        }
    }

    /// Returns the array and leaves no values.
    pub(super) fn finish(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Primitives::Boolean(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Primitives::Int(values) => primitive::<Int32Type>(values, nulls)?,
            Primitives::Long(values) => primitive::<Int64Type>(values, nulls)?,
            Primitives::Float(values) => primitive::<Float32Type>(values, nulls)?,
            Primitives::Double(values) => primitive::<Float64Type>(values, nulls)?,
            Primitives::Decimal {
                values,
                precision,
                scale,
            } => {
                let values = std::mem::take(values).into();
                let array = PrimitiveArray::<Decimal128Type>::try_new(values, nulls)?;
                let scale = i8::try_from(*scale)
                    .map_err(|_| ArrowError::InvalidArgumentError("scale".to_owned()))?;
                Arc::new(array.with_precision_and_scale(*precision, scale)?)
            }
            Primitives::Date(values) => primitive::<Date32Type>(values, nulls)?,
            Primitives::Time(values) => primitive::<Time64MicrosecondType>(values, nulls)?,
            Primitives::Timestamp { values, zoned } => {
                let values = std::mem::take(values).into();
                let array = PrimitiveArray::<TimestampMicrosecondType>::try_new(values, nulls)?;
                Arc::new(array.with_timezone_opt(zoned.then_some(UTC)))
            }
            Primitives::TimestampNanos { values, zoned } => {
                let values = std::mem::take(values).into();
                let array = PrimitiveArray::<TimestampNanosecondType>::try_new(values, nulls)?;
                Arc::new(array.with_timezone_opt(zoned.then_some(UTC)))
            }
            Primitives::Text(texts) => {
                let texts = std::mem::take(texts);
                let offsets = OffsetBuffer::new(texts.offsets.into());
                let text = Buffer::from_vec(texts.text.into_bytes());
                Arc::new(StringArray::try_new(offsets, text, nulls)?)
            }
            Primitives::Uuid(data) => {
                let data = Buffer::from_vec(std::mem::take(data));
                Arc::new(FixedSizeBinaryArray::try_new(16, data, nulls)?)
            }
            Primitives::Fixed { data, length } => {
                let data = Buffer::from_vec(std::mem::take(data));
                Arc::new(FixedSizeBinaryArray::try_new(*length, data, nulls)?)
            }
            Primitives::Binary(blobs) => {
                let blobs = std::mem::take(blobs);
                let offsets = OffsetBuffer::new(blobs.offsets.into());
                Arc::new(LargeBinaryArray::try_new(
                    offsets,
                    Buffer::from_vec(blobs.data),
                    nulls,
                )?)
            }
        })
    }
}

fn primitive<T: arrow_array::ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let values = std::mem::take(values).into();
    Ok(Arc::new(PrimitiveArray::<T>::try_new(values, nulls)?))
}

fn unsupported(primitive: &PrimitiveType) -> SinkError {
    SinkError::fatal(
        "TABLE_TYPE_UNSUPPORTED",
        format!("a column of type {primitive} cannot be written"),
    )
}
