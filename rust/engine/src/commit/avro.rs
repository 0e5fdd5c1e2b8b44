//! Adds entries to the metadata in the header of an Avro file, and reads them back.
//!
//! `iceberg`'s manifest writer takes none, and a manifest shall say which session wrote it. The
//! header of an Avro container file is: the four bytes `Obj\x01`, a map of bytes, a sync marker.

use std::collections::BTreeMap;

use frazil_core::{Result, SinkError};
use sha2::{Digest, Sha256};

const MAGIC: &[u8] = b"Obj\x01";

/// Returns `file` with `entries` put before the entries that its header has.
pub(super) fn with_metadata(file: &[u8], entries: &[(&str, String)]) -> Result<Vec<u8>> {
    let rest = file.strip_prefix(MAGIC).ok_or_else(malformed)?;
    let (count, rest) = take_long(rest)?;
    // A negative count is followed by the length of the block, which readers may use to skip it.
    let (count, rest) = match count {
        1.. => (count, rest),
        0 => return Err(malformed()),
        _ => (
            count.checked_neg().ok_or_else(malformed)?,
            take_long(rest)?.1,
        ),
    };
    let mut out = Vec::with_capacity(file.len() + 64 * entries.len());
    out.extend_from_slice(MAGIC);
    put_long(&mut out, count + entries.len() as i64);
    for (key, value) in entries {
        put_long(&mut out, key.len() as i64);
        out.extend_from_slice(key.as_bytes());
        put_long(&mut out, value.len() as i64);
        out.extend_from_slice(value.as_bytes());
    }
    out.extend_from_slice(rest);
    Ok(out)
}

/// Returns an Avro file with these entries in its header and `count` records, encoded in `block`.
pub(super) fn container(entries: &BTreeMap<String, String>, block: &[u8], count: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(block.len() + 64 * (entries.len() + 1));
    out.extend_from_slice(MAGIC);
    put_long(&mut out, entries.len() as i64);
    for (key, value) in entries {
        put_long(&mut out, key.len() as i64);
        out.extend_from_slice(key.as_bytes());
        put_long(&mut out, value.len() as i64);
        out.extend_from_slice(value.as_bytes());
    }
    out.push(0);
    // Any 16 bytes will do that are not likely to be among the records.
    let digest = Sha256::digest(block);
    let sync = digest.split_at(16).0;
    out.extend_from_slice(sync);
    put_long(&mut out, count as i64);
    put_long(&mut out, block.len() as i64);
    out.extend_from_slice(block);
    out.extend_from_slice(sync);
    out
}

/// Returns the entries of the header of `file` that are text; `None` when it has no such header.
pub(super) fn metadata(file: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut rest = file.strip_prefix(MAGIC)?;
    let mut entries = BTreeMap::new();
    loop {
        let (mut count, after) = take_long(rest).ok()?;
        rest = after;
        if count == 0 {
            return Some(entries);
        }
        if count < 0 {
            count = count.checked_neg()?;
            rest = take_long(rest).ok()?.1;
        }
        // Each round takes a byte at least, so a count that is too high ends with the bytes.
        for _ in 0..count {
            let (key, after) = take_bytes(rest)?;
            let (value, after) = take_bytes(after)?;
            rest = after;
            if let (Ok(key), Ok(value)) = (std::str::from_utf8(key), std::str::from_utf8(value)) {
                entries.insert(key.to_owned(), value.to_owned());
            }
        }
    }
}

fn take_bytes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = take_long(bytes).ok()?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

fn malformed() -> SinkError {
    SinkError::internal("the header of a new manifest is not that of an Avro file")
}

/// Reads a zigzag, base-128 number.
fn take_long(bytes: &[u8]) -> Result<(i64, &[u8])> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let (_, rest) = bytes.split_at(index + 1);
            return Ok(((value >> 1) as i64 ^ -((value & 1) as i64), rest));
        }
    }
    Err(malformed())
}

fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_out_as_they_come_in() {
        for value in [0, 1, -1, 63, 64, -64, -65, 8_191, 1 << 40, -(1 << 40)] {
            let mut bytes = Vec::new();
            put_long(&mut bytes, value);
            bytes.push(7);
            assert_eq!(take_long(&bytes).unwrap(), (value, &[7u8][..]));
        }
    }

    #[test]
    fn entries_come_first_and_the_rest_is_untouched() {
        for count in [&[0x02][..], &[0x01, 0x0a]] {
            let file = [MAGIC, count, b"\x02k\x02v\x00", b"tail"].concat();
            let made = with_metadata(&file, &[("a", "bc".into())]).unwrap();
            assert_eq!(
                made,
                [MAGIC, b"\x04", b"\x02a\x04bc", b"\x02k\x02v\x00tail"].concat()
            );
        }
    }

    #[test]
    fn entries_are_read_back() {
        for count in [&[0x02][..], &[0x01, 0x0a]] {
            let file = [MAGIC, count, b"\x02k\x02v\x00", b"tail"].concat();
            let made = with_metadata(&file, &[("a", "bc".into())]).unwrap();
            let read = metadata(&made).unwrap();
            assert_eq!(read.len(), 2);
            assert_eq!((&*read["a"], &*read["k"]), ("bc", "v"));
        }
        let cut = [MAGIC, b"\x7f\x02k\x02v"].concat();
        let long = [MAGIC, b"\x02\xfe\xff\xff\xff\x0fk"].concat();
        let negative = [MAGIC, b"\x02\x01k\x02v\x00"].concat();
        for file in [b"", &cut[..], &long, &negative] {
            assert_eq!(metadata(file), None);
        }
    }

    #[test]
    fn anything_else_is_an_error() {
        for file in [
            &b""[..],
            b"Obj",
            b"Obj\x01",
            b"Obj\x01\x00",
            b"PAR1\x02",
            b"Obj\x01\xff\xff",
        ] {
            assert_eq!(with_metadata(file, &[]).unwrap_err().code(), "INTERNAL");
        }
    }
}
