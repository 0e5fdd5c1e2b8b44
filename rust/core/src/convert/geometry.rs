//! Well-known binary of `io.debezium.data.geometry` structs, for `binary` columns.
//!
//! The reference system is a field of its own in the source (`srid`). It is written into the bytes
//! as extended well-known binary has it, unless they have one already or the source has none, so
//! that a column of bytes keeps it. A point without bytes is made from its coordinates.

use super::misfit::Reason;
use crate::wire::{Cell, StructCell};

const LITTLE_ENDIAN: u8 = 1;
const POINT: u32 = 1;
const HAS_SRID: u32 = 0x2000_0000;

/// Appends the bytes of `record`.
pub fn write_wkb(record: &StructCell<'_>, out: &mut Vec<u8>) -> Result<(), Reason> {
    let srid = match record.get("srid") {
        None | Some(Cell::Null) => None,
        Some(Cell::Int32(srid)) => Some(srid),
        Some(_) => return Err(Reason::NotConvertible),
    };
    match record.get("wkb") {
        Some(Cell::Bytes(wkb)) => write_bytes(wkb, srid, out),
        None | Some(Cell::Null) => write_point(record, srid, out),
        Some(_) => Err(Reason::NotConvertible),
    }
}

fn write_bytes(wkb: &[u8], srid: Option<i32>, out: &mut Vec<u8>) -> Result<(), Reason> {
    let Some(srid) = srid else {
        out.extend_from_slice(wkb);
        return Ok(());
    };
    let Some(([order, kind @ ..], rest)) = wkb.split_first_chunk::<5>() else {
        return Err(Reason::Malformed);
    };
    let little = *order == LITTLE_ENDIAN;
    let kind = match order {
        0 => u32::from_be_bytes(*kind),
        &LITTLE_ENDIAN => u32::from_le_bytes(*kind),
        _ => return Err(Reason::Malformed),
    };
    let number = |number: u32| match little {
        true => number.to_le_bytes(),
        false => number.to_be_bytes(),
    };
    let srid = number(u32::from_ne_bytes(srid.to_ne_bytes()));
    if kind & HAS_SRID != 0 {
        // Two reference systems that differ: which one counts is not for a sink to say.
        if rest.get(..4) != Some(&srid) {
            return Err(Reason::Ambiguous);
        }
        out.extend_from_slice(wkb);
        return Ok(());
    }
    out.push(*order);
    out.extend_from_slice(&number(kind | HAS_SRID));
    out.extend_from_slice(&srid);
    out.extend_from_slice(rest);
    Ok(())
}

fn write_point(
    record: &StructCell<'_>,
    srid: Option<i32>,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let (Some(Cell::Float64(x)), Some(Cell::Float64(y))) = (record.get("x"), record.get("y"))
    else {
        return Err(Reason::NotConvertible);
    };
    out.push(LITTLE_ENDIAN);
    match srid {
        None => out.extend_from_slice(&POINT.to_le_bytes()),
        Some(srid) => {
            out.extend_from_slice(&(POINT | HAS_SRID).to_le_bytes());
            out.extend_from_slice(&srid.to_le_bytes());
        }
    }
    out.extend_from_slice(&x.to_le_bytes());
    out.extend_from_slice(&y.to_le_bytes());
    Ok(())
}
