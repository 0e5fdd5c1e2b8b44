//! Dates and times that come as structs of their parts (`io.debezium.time.StructuredTimestamp` and
//! its like), for columns of dates, times and timestamps.
//!
//! What a source can say and a calendar cannot, such as infinity, day 0 or hour 24, is out of range.

use super::misfit::Reason;
use super::temporal::{self, NANOS_PER_DAY, NANOS_PER_SECOND};
use crate::wire::{Cell, StructCell};

/// The infinities of the source.
const SPECIAL: &str = "specialValue";
const PICOS_PER_NANO: i64 = 1_000;

/// Returns nanoseconds since the epoch, the offset applied; a date is its midnight.
pub fn timestamp(record: &StructCell<'_>) -> Result<i128, Reason> {
    if record.get("year").is_none() {
        return Err(Reason::NotConvertible);
    }
    finite(record)?;
    let (year, month) = (part(record, "year")?, part(record, "month")?);
    let days = temporal::days_of(year, month, part(record, "day")?).ok_or(Reason::OutOfRange)?;
    let nanos = match record.get("hour") {
        None => 0,
        Some(_) => time_of_day(record)?,
    };
    let offset = match record.get("offsetSeconds") {
        None | Some(Cell::Null) => 0,
        Some(_) => part(record, "offsetSeconds")?,
    };
    let local = i128::from(days) * i128::from(NANOS_PER_DAY) + i128::from(nanos);
    Ok(local - i128::from(offset) * i128::from(NANOS_PER_SECOND))
}

/// Returns nanoseconds since midnight.
pub fn time(record: &StructCell<'_>) -> Result<i64, Reason> {
    match record.get("year") {
        None => finite(record).and_then(|()| time_of_day(record)),
        Some(_) => Err(Reason::NotConvertible),
    }
}

fn finite(record: &StructCell<'_>) -> Result<(), Reason> {
    match record.get(SPECIAL) {
        None | Some(Cell::Null) => Ok(()),
        Some(_) => Err(Reason::OutOfRange),
    }
}

fn time_of_day(record: &StructCell<'_>) -> Result<i64, Reason> {
    let (hour, minute) = (part(record, "hour")?, part(record, "minute")?);
    let second = part(record, "second")?;
    let in_day = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
    let fraction = fraction(record)?;
    if !in_day || !(0..NANOS_PER_SECOND).contains(&fraction) {
        return Err(Reason::OutOfRange);
    }
    Ok(((hour * 60 + minute) * 60 + second) * NANOS_PER_SECOND + fraction)
}

/// Returns the nanoseconds of the second; sources of several ages have other units.
fn fraction(record: &StructCell<'_>) -> Result<i64, Reason> {
    if record.get("nanos").is_some() {
        return part(record, "nanos");
    }
    match part(record, "picoseconds")? {
        picos if picos % PICOS_PER_NANO == 0 => Ok(picos / PICOS_PER_NANO),
        _ => Err(Reason::PrecisionLoss),
    }
}

fn part(record: &StructCell<'_>, name: &str) -> Result<i64, Reason> {
    match record.get(name) {
        Some(Cell::Int8(value)) => Ok(i64::from(value)),
        Some(Cell::Int16(value)) => Ok(i64::from(value)),
        Some(Cell::Int32(value)) => Ok(i64::from(value)),
        Some(Cell::Int64(value)) => Ok(value),
        _ => Err(Reason::NotConvertible),
    }
}
