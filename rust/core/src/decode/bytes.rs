//! A cursor over the bytes of one record, which nobody has checked.
//!
//! Invariant: it never reads past its end and never panics. An error is one of the record.

use super::refused::Refused;

/// The code of bytes that do not follow their format.
pub(crate) const MALFORMED: &str = "DECODE_MALFORMED";

/// Returns the refusal of bytes that do not follow their format.
#[cold]
pub(crate) fn malformed(problem: &'static str) -> Refused {
    Refused::new(MALFORMED, problem)
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    /// Returns the refusal `problem` at the current position.
    #[cold]
    pub(crate) fn bad(&self, problem: &'static str) -> Refused {
        malformed(problem).at(self.at)
    }

    /// Returns how many bytes are left.
    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Returns how many bytes were read.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Returns all bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Refused> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| self.bad("the bytes end too early"))?;
        self.at += count;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let taken = self.take(N)?;
        <[u8; N]>::try_from(taken).map_err(|_| self.bad("the bytes end too early"))
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Refused> {
        let byte = self.bytes.get(self.at).copied();
        let byte = byte.ok_or_else(|| self.bad("the bytes end too early"))?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads a base-128 number of at most 64 bits.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Refused> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.u8()?;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return Err(self.bad("a number has more than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// Reads a number whose lowest bit is its sign.
    #[inline]
    pub(crate) fn zigzag(&mut self) -> Result<i64, Refused> {
        Ok(zigzag(self.varint()?))
    }

    /// Reads a signed number of at most 32 bits.
    #[inline]
    pub(crate) fn zigzag32(&mut self) -> Result<i32, Refused> {
        let value = self.zigzag()?;
        i32::try_from(value).map_err(|_| self.bad("a number has more than 32 bits"))
    }

    /// Reads a signed length that the bytes left can hold.
    #[inline]
    pub(crate) fn length(&mut self) -> Result<usize, Refused> {
        let length = self.zigzag()?;
        let length = usize::try_from(length).map_err(|_| self.bad("a length is below 0"))?;
        match length <= self.remaining() {
            true => Ok(length),
            false => Err(self.bad("a length is beyond the end of the bytes")),
        }
    }
}

/// Decodes a number whose lowest bit is its sign.
#[inline]
pub(crate) fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_sign_and_limit() {
        // The table of the Avro specification.
        for (bytes, value) in [
            (&[0x00][..], 0),
            (&[0x01], -1),
            (&[0x02], 1),
            (&[0x03], -2),
            (&[0x04], 2),
            (&[0x7f], -64),
            (&[0x80, 0x01], 64),
            (&[0xfe, 0xff, 0xff, 0xff, 0x0f], i64::from(i32::MAX)),
            (&[0xff, 0xff, 0xff, 0xff, 0x0f], i64::from(i32::MIN)),
        ] {
            assert_eq!(Cursor::new(bytes).zigzag(), Ok(value));
            assert_eq!(Cursor::new(bytes).zigzag32().map(i64::from), Ok(value));
        }
        let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Cursor::new(&longest).zigzag(), Ok(i64::MIN));
        assert!(Cursor::new(&longest).zigzag32().is_err());
        let overflow = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(Cursor::new(&overflow).varint().is_err());
        assert!(Cursor::new(&[0xff; 11]).varint().is_err());
        assert!(Cursor::new(&[0x80]).varint().is_err());
    }

    #[test]
    fn lengths_lie_inside_of_the_bytes() {
        assert_eq!(Cursor::new(&[4, 1, 2]).length(), Ok(2));
        assert!(Cursor::new(&[6, 1, 2]).length().is_err());
        assert!(Cursor::new(&[1]).length().is_err());
        assert!(Cursor::new(&[0xff; 10]).length().is_err());
    }
}
