//! Single values on the wire of Protobuf, and messages that stand for one value.

use super::types::Scalar;
use crate::convert::temporal::days_of;
use crate::decode::bytes::{Cursor, malformed, zigzag};
use crate::decode::columns::ColumnBuilder;
use crate::decode::refused::Refused;
use crate::limits::NESTING_MAX;

/// Field numbers have 29 bits.
pub(super) const NUMBER_MAX: u32 = (1 << 29) - 1;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Digits by which the scale of a decimal may be changed.
const RESCALE_MAX: u32 = 38;

/// How a value lies in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Varint,
    Fixed64,
    Bytes,
    Start,
    End,
    Fixed32,
}

/// Reads the number of the next field and how its value lies.
#[inline]
pub(super) fn tag(cursor: &mut Cursor<'_>) -> Result<(u32, Wire), Refused> {
    let tag = cursor.varint()?;
    let number = u32::try_from(tag >> 3).ok();
    let number = number.filter(|number| (1..=NUMBER_MAX).contains(number));
    let number = number.ok_or_else(|| cursor.bad("a field number is out of bounds"))?;
    let wire = match tag & 7 {
        0 => Wire::Varint,
        1 => Wire::Fixed64,
        2 => Wire::Bytes,
        3 => Wire::Start,
        4 => Wire::End,
        5 => Wire::Fixed32,
        _ => return Err(cursor.bad("a field has a wire type that does not exist")),
    };
    Ok((number, wire))
}

/// Reads bytes behind their length, and where they begin.
#[inline]
pub(super) fn counted<'d>(cursor: &mut Cursor<'d>) -> Result<(&'d [u8], usize), Refused> {
    let length = usize::try_from(cursor.varint()?).unwrap_or(usize::MAX);
    let start = cursor.position();
    Ok((cursor.take(length)?, start))
}

/// Skips the value of a field.
pub(super) fn skip(cursor: &mut Cursor<'_>, number: u32, wire: Wire) -> Result<(), Refused> {
    match wire {
        Wire::Varint => cursor.varint().map(|_| ()),
        Wire::Fixed64 => cursor.take(8).map(|_| ()),
        Wire::Fixed32 => cursor.take(4).map(|_| ()),
        Wire::Bytes => counted(cursor).map(|_| ()),
        Wire::Start => skip_group(cursor, number),
        Wire::End => Err(cursor.bad("a group ends that did not begin")),
    }
}

fn skip_group(cursor: &mut Cursor<'_>, number: u32) -> Result<(), Refused> {
    let mut open = vec![number];
    while let Some(innermost) = open.last().copied() {
        let (number, wire) = tag(cursor)?;
        match wire {
            Wire::End if number == innermost => {
                open.pop();
            }
            Wire::Start if open.len() < NESTING_MAX => open.push(number),
            Wire::Start => return Err(cursor.bad("groups nest too deeply")),
            _ => skip(cursor, number, wire)?,
        }
    }
    Ok(())
}

/// Returns how values of a type lie in the bytes.
#[inline]
pub(super) fn wire(scalar: Scalar) -> Wire {
    match scalar {
        Scalar::Int32
        | Scalar::Sint32
        | Scalar::Uint32
        | Scalar::Int64
        | Scalar::Sint64
        | Scalar::Uint64
        | Scalar::Bool => Wire::Varint,
        Scalar::Sfixed32 | Scalar::Fixed32 | Scalar::Float => Wire::Fixed32,
        Scalar::Sfixed64 | Scalar::Fixed64 | Scalar::Double => Wire::Fixed64,
        Scalar::Text | Scalar::Bytes => Wire::Bytes,
    }
}

#[cold]
pub(super) fn out_of_range(cursor: &Cursor<'_>) -> Refused {
    let message = "a number is outside of what its type in the schema holds";
    Refused::new("VALUE_OUT_OF_RANGE", message).at(cursor.position())
}

/// Reads a signed number of 32 bits.
#[inline]
pub(super) fn int32(scalar: Scalar, cursor: &mut Cursor<'_>) -> Result<i32, Refused> {
    let value = match scalar {
        Scalar::Sint32 => zigzag(cursor.varint()?),
        Scalar::Sfixed32 => return Ok(i32::from_le_bytes(cursor.array()?)),
        _ => cursor.varint()?.cast_signed(),
    };
    i32::try_from(value).map_err(|_| out_of_range(cursor))
}

/// Moves a value from the bytes to `column`.
#[inline]
pub(super) fn scalar(
    scalar: Scalar,
    cursor: &mut Cursor<'_>,
    column: &mut ColumnBuilder,
) -> Result<(), Refused> {
    match scalar {
        Scalar::Int32 | Scalar::Sint32 | Scalar::Sfixed32 => {
            column.push_i32(int32(scalar, cursor)?);
        }
        Scalar::Uint32 => {
            let value = u32::try_from(cursor.varint()?).map_err(|_| out_of_range(cursor))?;
            column.push_i64(i64::from(value));
        }
        Scalar::Fixed32 => column.push_i64(i64::from(u32::from_le_bytes(cursor.array()?))),
        Scalar::Int64 => column.push_i64(cursor.varint()?.cast_signed()),
        Scalar::Sint64 => column.push_i64(zigzag(cursor.varint()?)),
        Scalar::Sfixed64 => column.push_i64(i64::from_le_bytes(cursor.array()?)),
        Scalar::Uint64 => {
            let value = i64::try_from(cursor.varint()?).map_err(|_| out_of_range(cursor))?;
            column.push_i64(value);
        }
        Scalar::Fixed64 => {
            let value = u64::from_le_bytes(cursor.array()?);
            column.push_i64(i64::try_from(value).map_err(|_| out_of_range(cursor))?);
        }
        Scalar::Float => column.push_f32(f32::from_le_bytes(cursor.array()?)),
        Scalar::Double => column.push_f64(f64::from_le_bytes(cursor.array()?)),
        Scalar::Bool => column.push_bool(cursor.varint()? != 0),
        Scalar::Text => {
            let (bytes, _) = counted(cursor)?;
            let text = std::str::from_utf8(bytes);
            column.push_str(text.map_err(|_| cursor.bad("text is not UTF-8"))?);
        }
        Scalar::Bytes => column.push_bytes(counted(cursor)?.0),
    }
    Ok(())
}

/// Pushes the value of a field that is not there.
pub(super) fn default(scalar: Scalar, column: &mut ColumnBuilder) {
    match scalar {
        Scalar::Int32 | Scalar::Sint32 | Scalar::Sfixed32 => column.push_i32(0),
        Scalar::Uint32
        | Scalar::Fixed32
        | Scalar::Int64
        | Scalar::Sint64
        | Scalar::Sfixed64
        | Scalar::Uint64
        | Scalar::Fixed64 => column.push_i64(0),
        Scalar::Float => column.push_f32(0.0),
        Scalar::Double => column.push_f64(0.0),
        Scalar::Bool => column.push_bool(false),
        Scalar::Text => column.push_str(""),
        Scalar::Bytes => column.push_bytes(&[]),
    }
}

/// Moves the value of a message whose only field is `value`.
pub(super) fn wrapper(of: Scalar, bytes: &[u8], column: &mut ColumnBuilder) -> Result<(), Refused> {
    let mut cursor = Cursor::new(bytes);
    let mut value = None;
    while cursor.remaining() > 0 {
        let (number, wire) = tag(&mut cursor)?;
        if number == 1 {
            if wire != self::wire(of) {
                return Err(cursor.bad("a field has another wire type than its type in the schema"));
            }
            value = Some(cursor.clone());
        }
        skip(&mut cursor, number, wire)?;
    }
    match &mut value {
        Some(cursor) => scalar(of, cursor, column)?,
        None => default(of, column),
    }
    Ok(())
}

/// Reads the numbers of a message whose fields are `first` of 64 bits, if so, and others of 32 bits.
fn numbers<const N: usize>(bytes: &[u8], first_is_long: bool) -> Result<[i64; N], Refused> {
    let mut cursor = Cursor::new(bytes);
    let mut values = [0; N];
    while cursor.remaining() > 0 {
        let (number, wire) = tag(&mut cursor)?;
        let index = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .wrapping_sub(1);
        match values.get_mut(index) {
            Some(value) if wire == Wire::Varint => {
                *value = match index == 0 && first_is_long {
                    true => cursor.varint()?.cast_signed(),
                    false => i64::from(int32(Scalar::Int32, &mut cursor)?),
                };
            }
            Some(_) => {
                return Err(cursor.bad("a field has another wire type than its type in the schema"));
            }
            None => skip(&mut cursor, number, wire)?,
        }
    }
    Ok(values)
}

/// Returns a `google.protobuf.Timestamp` in nanoseconds since the epoch.
pub(super) fn timestamp(bytes: &[u8]) -> Result<i64, Refused> {
    let [seconds, nanos] = numbers(bytes, true)?;
    if !(0..NANOS_PER_SECOND).contains(&nanos) {
        return Err(malformed(
            "the nanoseconds of a timestamp are no part of a second",
        ));
    }
    let whole = i128::from(seconds) * i128::from(NANOS_PER_SECOND) + i128::from(nanos);
    i64::try_from(whole).map_err(|_| {
        let message = "a timestamp is outside of the years 1678 to 2261";
        Refused::new("VALUE_OUT_OF_RANGE", message)
    })
}

/// Returns a `google.type.Date` in days since the epoch.
pub(super) fn date(bytes: &[u8]) -> Result<i32, Refused> {
    let [year, month, day] = numbers(bytes, false)?;
    let days = days_of(year, month, day).and_then(|days| i32::try_from(days).ok());
    days.ok_or_else(|| malformed("year, month and day of a date are no day of the calendar"))
}

/// Returns a `google.type.TimeOfDay` in nanoseconds since midnight.
pub(super) fn time_of_day(bytes: &[u8]) -> Result<i64, Refused> {
    let [hours, minutes, seconds, nanos] = numbers(bytes, false)?;
    let fits = (0..24).contains(&hours)
        && (0..60).contains(&minutes)
        && (0..60).contains(&seconds)
        && (0..NANOS_PER_SECOND).contains(&nanos);
    match fits {
        true => Ok(((hours * 60 + minutes) * 60 + seconds) * NANOS_PER_SECOND + nanos),
        false => Err(malformed(
            "hours, minutes and seconds of a time are no time of day",
        )),
    }
}

/// Moves a `confluent.type.Decimal` to a column of scale `wanted`, exactly.
pub(super) fn decimal(
    bytes: &[u8],
    wanted: i32,
    column: &mut ColumnBuilder,
) -> Result<(), Refused> {
    let (mut digits, mut scale): (&[u8], i32) = (&[], 0);
    let mut cursor = Cursor::new(bytes);
    while cursor.remaining() > 0 {
        match tag(&mut cursor)? {
            (1, Wire::Bytes) => digits = counted(&mut cursor)?.0,
            (3, Wire::Varint) => scale = int32(Scalar::Int32, &mut cursor)?,
            (number, wire) => skip(&mut cursor, number, wire)?,
        }
    }
    if digits.is_empty() {
        return Err(malformed("a decimal has no digits"));
    }
    if scale == wanted {
        column.push_bytes(digits);
        return Ok(());
    }
    let rescaled = unscaled(digits).and_then(|unscaled| rescaled(unscaled, scale, wanted));
    let rescaled = rescaled.ok_or_else(|| {
        let message =
            "a decimal has another scale than its field, and cannot be given that exactly";
        Refused::new("VALUE_PRECISION_LOSS", message)
    })?;
    column.push_bytes(&rescaled.to_be_bytes());
    Ok(())
}

fn unscaled(digits: &[u8]) -> Option<i128> {
    let is_negative = digits.first()? & 0x80 != 0;
    let fill = if is_negative { 0xff } else { 0 };
    let mut bytes = [fill; 16];
    let start = bytes.len().checked_sub(digits.len())?;
    bytes.get_mut(start..)?.copy_from_slice(digits);
    Some(i128::from_be_bytes(bytes))
}

fn rescaled(unscaled: i128, scale: i32, wanted: i32) -> Option<i128> {
    let places = i64::from(wanted) - i64::from(scale);
    let factor = u32::try_from(places.unsigned_abs()).ok();
    let factor = factor.filter(|places| *places <= RESCALE_MAX)?;
    let factor = 10_i128.checked_pow(factor)?;
    match places >= 0 {
        true => unscaled.checked_mul(factor),
        false if unscaled % factor == 0 => Some(unscaled / factor),
        false => None,
    }
}
