//! The bytes of a row's key: what the primary-key index stores, compares and hashes.
//!
//! | class of the column | types | bytes |
//! |---|---|---|
//! | integer | int, long | two's complement, big-endian, as few bytes as hold it; none for 0 |
//! | decimal | decimal | the same of the unscaled number; the scale is the column's |
//! | boolean | boolean | 0 or 1 |
//! | time | time | as an integer, microseconds |
//! | moment | date, timestamps with and without zone | as an integer, nanoseconds since the epoch |
//! | text | string | UTF-8 |
//! | bytes | binary, fixed | as they are |
//! | uuid | uuid | 16 bytes |
//!
//! In a key of several columns each value but the last has its length before it (one byte, or 0x80
//! and more as in LEB128) where its class does not fix it; so no two keys have the same bytes. The
//! columns stand in the order of their field ids.
//!
//! Nothing in the bytes tells the type: the schema does. That makes them stable when a column is
//! promoted, for each promotion that Iceberg has for these types stays within a class and keeps the
//! number (int to long; decimals to more digits at the same scale; date to timestamp or
//! timestamp_ns). An index carries the [fingerprint](KeyPlan::fingerprint) of the classes, and is of
//! no use for a table with another one.
//!
//! Equality is that of the values: texts by their bytes (no normal form, no trimming, case counts), 1.50
//! and 1.5 in a decimal column alike. A key without a value in one of its columns is an error of the
//! record, and columns of floats cannot be keys.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};
use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};

use crate::convert::scalar;
use crate::convert::temporal::{NANOS_PER_DAY, NANOS_PER_MICRO};
use crate::convert::value::Value;
use crate::convert::{Misfit, Reason};
use crate::error::{Result, SinkError};
use crate::limits::KEY_BYTES_MAX;
use crate::schema::semantic::Semantic;
use crate::wire::Cell;

/// What a key column's values are to the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Int,
    Long,
    Decimal {
        precision: u32,
        scale: u32,
    },
    Boolean,
    Time,
    Date,
    /// Nanoseconds of the column's unit.
    Timestamp(i64),
    Text,
    Bytes,
    Fixed(usize),
    Uuid,
}

/// A column of the key.
#[derive(Debug, Clone)]
struct KeyColumn {
    field_id: i32,
    /// The column's dotted path.
    path: Arc<str>,
    class: Class,
}

/// How keys of one table become bytes.
#[derive(Debug, Clone)]
pub struct KeyPlan {
    columns: Vec<KeyColumn>,
    fingerprint: String,
}

impl Class {
    /// Returns the class of a column of this type; `None` for floats.
    pub(super) fn of(primitive: &PrimitiveType) -> Option<Class> {
        Some(match primitive {
            PrimitiveType::Int => Class::Int,
            PrimitiveType::Long => Class::Long,
            PrimitiveType::Decimal { precision, scale } => Class::Decimal {
                precision: *precision,
                scale: *scale,
            },
            PrimitiveType::Boolean => Class::Boolean,
            PrimitiveType::Time => Class::Time,
            PrimitiveType::Date => Class::Date,
            PrimitiveType::Timestamp | PrimitiveType::Timestamptz => {
                Class::Timestamp(NANOS_PER_MICRO)
            }
            PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs => Class::Timestamp(1),
            PrimitiveType::String => Class::Text,
            PrimitiveType::Binary => Class::Bytes,
            PrimitiveType::Fixed(length) => Class::Fixed(usize::try_from(*length).ok()?),
            PrimitiveType::Uuid => Class::Uuid,
            PrimitiveType::Float | PrimitiveType::Double => return None,
        })
    }

    /// Appends the name of the class.
    pub(super) fn write_name(self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Class::Int | Class::Long => out.write_str("integer"),
            Class::Decimal { scale, .. } => write!(out, "decimal{scale}"),
            Class::Boolean => out.write_str("boolean"),
            Class::Time => out.write_str("time"),
            Class::Date | Class::Timestamp(_) => out.write_str("moment"),
            Class::Text => out.write_str("text"),
            Class::Bytes => out.write_str("bytes"),
            Class::Fixed(length) => write!(out, "fixed{length}"),
            Class::Uuid => out.write_str("uuid"),
        };
    }

    /// Returns the most bytes that a value can take, in this class or one that the column may be
    /// promoted to: that must not change how a table's keys become numbers.
    fn bytes_max(self) -> Option<usize> {
        match self {
            Class::Int | Class::Long | Class::Time => Some(8),
            Class::Boolean => Some(1),
            Class::Decimal { .. } => Some(16),
            // Days and microseconds count in nanoseconds, which may take more than 64 bits.
            Class::Date | Class::Timestamp(_) => Some(10),
            Class::Text | Class::Bytes => None,
            Class::Fixed(length) => Some(length),
            Class::Uuid => Some(16),
        }
    }

    /// Tells whether values of this class all have the same number of bytes.
    pub(super) fn is_fixed(self) -> bool {
        matches!(self, Class::Boolean | Class::Uuid | Class::Fixed(_))
    }
}

impl KeyPlan {
    /// Makes the plan of the columns with `field_ids` in `schema`; `None` when there are none.
    ///
    /// # Errors
    ///
    /// `CHANGE_KEY_UNSUPPORTED` for a column that cannot be a key.
    pub fn of(
        schema: &Schema,
        field_ids: impl IntoIterator<Item = i32>,
    ) -> Result<Option<KeyPlan>> {
        let mut columns = Vec::new();
        for field_id in field_ids {
            let field = schema.field_by_id(field_id);
            let (Some(field), Some(path)) = (field, schema.name_by_field_id(field_id)) else {
                return Err(SinkError::internal(
                    "a key names a field that is not in the schema",
                ));
            };
            columns.push(KeyColumn {
                field_id,
                path: path.into(),
                class: class_of(field, path)?,
            });
        }
        columns.sort_by_key(|column| column.field_id);
        columns.dedup_by_key(|column| column.field_id);
        if columns.is_empty() {
            return Ok(None);
        }
        let mut fingerprint = String::new();
        for column in &columns {
            if !fingerprint.is_empty() {
                fingerprint.push(' ');
            }
            let _ = write!(fingerprint, "{}:", column.field_id);
            column.class.write_name(&mut fingerprint);
        }
        Ok(Some(KeyPlan {
            columns,
            fingerprint,
        }))
    }

    /// Makes a plan of no columns: all keys are alike.
    pub(super) fn none() -> KeyPlan {
        KeyPlan {
            columns: Vec::new(),
            fingerprint: String::new(),
        }
    }

    /// Returns what has to be equal for two plans to give a row the same bytes: field ids and classes,
    /// such as `1:integer 4:text`.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the most bytes that a key has, also when its columns are promoted; `None` when there is no
    /// limit but that of all keys.
    pub fn bytes_max(&self) -> Option<usize> {
        let last = self.columns.len().saturating_sub(1);
        let mut bytes = 0usize;
        for (index, column) in self.columns.iter().enumerate() {
            let length = usize::from(index < last && !column.class.is_fixed());
            bytes = bytes.saturating_add(column.class.bytes_max()?.saturating_add(length));
        }
        Some(bytes)
    }

    /// Returns the dotted paths of the columns, in the order of the bytes.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.columns.iter().map(|column| &column.path)
    }

    /// Returns the field ids of the columns, in the order of the bytes.
    pub fn field_ids(&self) -> impl ExactSizeIterator<Item = i32> {
        self.columns.iter().map(|column| column.field_id)
    }

    /// Tells whether bytes can be values of the column of this index.
    pub(super) fn takes_bytes(&self, index: usize) -> bool {
        let column = self.columns.get(index);
        column.is_some_and(|column| {
            matches!(column.class, Class::Bytes | Class::Fixed(_) | Class::Uuid)
        })
    }

    /// Tells whether the column of this index holds values that are written as texts.
    pub(super) fn is_text(&self, index: usize) -> bool {
        let column = self.columns.get(index);
        column.is_some_and(|column| matches!(column.class, Class::Text | Class::Uuid))
    }

    /// Appends the key whose values `cell` gives by the index of the column; nothing on an error.
    ///
    /// # Errors
    ///
    /// `CHANGE_KEY_NULL`, `CHANGE_KEY_TOO_LONG`, and the codes of values that do not fit a column.
    pub(super) fn encode_cells<'c>(
        &self,
        cell: impl Fn(usize) -> (Cell<'c>, Semantic),
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        let mut written = Ok(());
        for (index, column) in self.columns.iter().enumerate() {
            let (cell, semantic) = cell(index);
            written = match read(column.class, cell, semantic, scratch) {
                Ok(Some(read)) => {
                    if let Read::Number(number) = read {
                        put_number(number, &mut scratch.bytes);
                    }
                    self.push(index, column, &scratch.bytes, out)
                }
                Ok(None) => Err(key_null(&column.path)),
                Err(reason) => Err(Misfit::new(reason, cell.type_name())
                    .inside(&column.path)
                    .into()),
            };
            if written.is_err() {
                break;
            }
        }
        finished(written, start, out)
    }

    /// Prepares to encode rows of `columns`: those of a batch or file of the table, in the order of
    /// [`KeyPlan::field_ids`].
    ///
    /// # Errors
    ///
    /// `INTERNAL` when the arrays are not of the columns' types.
    pub fn rows<'p>(&'p self, columns: &'p [ArrayRef]) -> Result<KeyRows<'p>> {
        let mut pairs = self.columns.iter().zip(columns);
        let fits = columns.len() == self.columns.len()
            && pairs.all(|(key, array)| fits_array(key.class, array));
        match fits {
            true => Ok(KeyRows {
                plan: self,
                columns,
            }),
            false => Err(SinkError::internal(
                "the columns given for a key are not of the key's types",
            )),
        }
    }

    fn push(
        &self,
        index: usize,
        column: &KeyColumn,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if bytes.len() > KEY_BYTES_MAX {
            return Err(key_too_long(bytes.len()));
        }
        if index + 1 < self.columns.len() && !column.class.is_fixed() {
            put_length(bytes.len(), out);
        }
        out.extend_from_slice(bytes);
        Ok(())
    }
}

/// Keys of the rows of a batch.
#[derive(Debug, Clone, Copy)]
pub struct KeyRows<'p> {
    plan: &'p KeyPlan,
    columns: &'p [ArrayRef],
}

impl KeyRows<'_> {
    /// Writes the key of `row` to `out`, in place of what is there; the bytes are those that the
    /// record had that the row was made of.
    ///
    /// # Errors
    ///
    /// `CHANGE_KEY_NULL` and `CHANGE_KEY_TOO_LONG`.
    pub fn encode<'o>(&self, row: usize, out: &'o mut Vec<u8>) -> Result<&'o [u8]> {
        out.clear();
        for (index, (column, array)) in self.plan.columns.iter().zip(self.columns).enumerate() {
            if row >= array.len() || array.is_null(row) {
                out.clear();
                return Err(key_null(&column.path));
            }
            let is_last = index + 1 == self.columns.len();
            if is_last || column.class.is_fixed() {
                encode_row(column.class, array, row, out);
            } else {
                let start = out.len();
                encode_row(column.class, array, row, out);
                let end = out.len();
                put_length(end - start, out);
                let length_bytes = out.len() - end;
                if let Some(part) = out.get_mut(start..) {
                    part.rotate_right(length_bytes);
                }
            }
        }
        finished(Ok(()), 0, out)?;
        Ok(out)
    }
}

/// Memory that is used again for each value.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) bytes: Vec<u8>,
    text: String,
}

/// A value as its column has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// A number; of a moment, nanoseconds since the epoch.
    Number(i128),
    /// The bytes that are in the scratch.
    Bytes,
}

fn class_of(field: &NestedField, path: &str) -> Result<Class> {
    let class = match field.field_type.as_ref() {
        Type::Primitive(primitive) => Class::of(primitive),
        _ => None,
    };
    class.ok_or_else(|| {
        let message = format!(
            "column `{path}` of type {} cannot be part of a key: use whole numbers, decimals, \
             texts, bytes, dates, times or UUIDs",
            field.field_type
        );
        SinkError::config("CHANGE_KEY_UNSUPPORTED", message).with("column", path)
    })
}

fn finished(written: Result<()>, start: usize, out: &mut Vec<u8>) -> Result<()> {
    let length = out.len().saturating_sub(start);
    let written = written.and_then(|()| match length > KEY_BYTES_MAX {
        true => Err(key_too_long(length)),
        false => Ok(()),
    });
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn key_null(path: &str) -> SinkError {
    let message = format!("column `{path}` is part of the key and the record has no value for it");
    SinkError::data("CHANGE_KEY_NULL", message).with("column", path)
}

fn key_too_long(length: usize) -> SinkError {
    let message = format!("the key is longer than {KEY_BYTES_MAX} bytes");
    SinkError::data("CHANGE_KEY_TOO_LONG", message).with("length", length)
}

/// Reads a value as one of a column of this class; `None` for null.
pub(super) fn read(
    class: Class,
    cell: Cell<'_>,
    semantic: Semantic,
    scratch: &mut Scratch,
) -> Result<Option<Read>, Reason> {
    scratch.bytes.clear();
    let Some(value) = Value::read(cell, semantic)? else {
        return Ok(None);
    };
    // As in the column: JSON has base64 for bytes, and for all else the text itself.
    let value = match value {
        Value::BareText(text) if !matches!(class, Class::Bytes | Class::Fixed(_)) => {
            Value::Text(text)
        }
        value => value,
    };
    let number = match class {
        Class::Int => Some(i128::from(scalar::to_i32(value)?)),
        Class::Long => Some(i128::from(scalar::to_i64(value)?)),
        Class::Decimal { precision, scale } => Some(scalar::to_decimal(value, precision, scale)?),
        Class::Time => Some(i128::from(scalar::to_time(value)?)),
        Class::Date => Some(days(scalar::to_date(value)?)),
        Class::Timestamp(unit) => Some(moment(scalar::to_timestamp(value, unit)?, unit)),
        Class::Boolean | Class::Text | Class::Bytes | Class::Fixed(_) | Class::Uuid => None,
    };
    if let Some(number) = number {
        return Ok(Some(Read::Number(number)));
    }
    let out = &mut scratch.bytes;
    match class {
        Class::Boolean => out.push(u8::from(scalar::to_bool(value)?)),
        Class::Text => {
            scratch.text.clear();
            scalar::write_text(value, &mut scratch.text)?;
            out.extend_from_slice(scratch.text.as_bytes());
        }
        Class::Bytes => scalar::write_bytes(value, out)?,
        Class::Fixed(length) => {
            scalar::write_bytes(value, out)?;
            if out.len() != length {
                return Err(Reason::WrongLength);
            }
        }
        Class::Uuid => out.extend_from_slice(&scalar::to_uuid(value)?),
        _ => return Err(Reason::NotConvertible),
    }
    Ok(Some(Read::Bytes))
}

fn fits_array(class: Class, array: &ArrayRef) -> bool {
    match (class, array.data_type()) {
        (Class::Int, DataType::Int32)
        | (Class::Long, DataType::Int32 | DataType::Int64)
        | (Class::Boolean, DataType::Boolean)
        | (Class::Time, DataType::Time64(TimeUnit::Microsecond))
        | (Class::Date, DataType::Date32)
        | (Class::Text, DataType::Utf8 | DataType::LargeUtf8)
        | (Class::Bytes, DataType::Binary | DataType::LargeBinary)
        | (Class::Uuid, DataType::FixedSizeBinary(16)) => true,
        (Class::Decimal { scale, .. }, DataType::Decimal128(_, array_scale)) => {
            u32::try_from(*array_scale) == Ok(scale)
        }
        (Class::Timestamp(unit), DataType::Timestamp(TimeUnit::Microsecond, _)) => {
            unit == NANOS_PER_MICRO
        }
        (Class::Timestamp(unit), DataType::Timestamp(TimeUnit::Nanosecond, _)) => unit == 1,
        // A file from before the column was promoted.
        (Class::Timestamp(_), DataType::Date32) => true,
        (Class::Fixed(length), DataType::FixedSizeBinary(array_length)) => {
            usize::try_from(*array_length) == Ok(length)
        }
        _ => false,
    }
}

/// Appends the value of `row`, which is not null, of an array that fits the class.
fn encode_row(class: Class, array: &ArrayRef, row: usize, out: &mut Vec<u8>) {
    match array.data_type() {
        DataType::Int32 => {
            put_number(
                i128::from(array.as_primitive::<Int32Type>().value(row)),
                out,
            );
        }
        DataType::Int64 => {
            put_number(
                i128::from(array.as_primitive::<Int64Type>().value(row)),
                out,
            );
        }
        DataType::Boolean => out.push(u8::from(array.as_boolean().value(row))),
        DataType::Decimal128(..) => {
            put_number(array.as_primitive::<Decimal128Type>().value(row), out);
        }
        DataType::Time64(_) => {
            let micros = array.as_primitive::<Time64MicrosecondType>().value(row);
            put_number(i128::from(micros), out);
        }
        DataType::Date32 => put_number(days(array.as_primitive::<Date32Type>().value(row)), out),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            put_number(moment(micros, NANOS_PER_MICRO), out);
        }
        DataType::Timestamp(..) => {
            let nanos = array.as_primitive::<TimestampNanosecondType>().value(row);
            put_number(moment(nanos, 1), out);
        }
        DataType::Utf8 => out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => {
            out.extend_from_slice(array.as_string::<i64>().value(row).as_bytes());
        }
        DataType::Binary => out.extend_from_slice(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => out.extend_from_slice(array.as_binary::<i64>().value(row)),
        DataType::FixedSizeBinary(_) => {
            out.extend_from_slice(array.as_fixed_size_binary().value(row));
        }
        other => debug_assert!(false, "{class:?} was let in as {other}"),
    }
}

fn days(days: i32) -> i128 {
    i128::from(days) * i128::from(NANOS_PER_DAY)
}

fn moment(value: i64, unit_nanos: i64) -> i128 {
    i128::from(value) * i128::from(unit_nanos)
}

/// Appends as few bytes as hold the number, most significant first; none for 0.
fn put_number(number: i128, out: &mut Vec<u8>) {
    if number == 0 {
        return;
    }
    let bytes = number.to_be_bytes();
    let sign = if number < 0 { 0xFF } else { 0 };
    let mut rest: &[u8] = &bytes;
    while let [first, after @ ..] = rest {
        let keeps_sign = after.first().is_some_and(|next| (next ^ sign) & 0x80 == 0);
        if *first != sign || !keeps_sign {
            break;
        }
        rest = after;
    }
    out.extend_from_slice(rest);
}

fn put_length(length: usize, out: &mut Vec<u8>) {
    let mut rest = length;
    while rest >= 0x80 {
        out.push(u8::try_from(rest & 0x7F).unwrap_or(0) | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).unwrap_or(0));
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
