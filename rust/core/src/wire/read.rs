//! A little-endian cursor over untrusted bytes.
//!
//! Invariant: it never reads past its end, and hands out counts only when the bytes that they
//! announce can be there.

use crate::error::{Result, SinkError};

/// Returns the error of bytes that do not follow the format.
pub(crate) fn corrupt(what: &'static str, at: usize, problem: &str) -> SinkError {
    SinkError::fatal(
        "WIRE_CORRUPT",
        format!(
            "{what}: {problem} at byte {at}; the jar and its native library do not match or memory is damaged, restart the worker"
        ),
    )
}

/// A cursor over the bytes of one message.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`; `what` names the message in errors.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Reader { bytes, at: 0, what }
    }

    /// Returns the error `problem` at the current position.
    pub(crate) fn corrupt(&self, problem: &str) -> SinkError {
        corrupt(self.what, self.at, problem)
    }

    /// Returns how many bytes are left.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Returns how many bytes were read.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    #[cold]
    fn ended(&self) -> SinkError {
        self.corrupt("bytes end too early")
    }

    /// Takes `count` bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| self.ended())?;
        self.at += count;
        Ok(taken)
    }

    /// Takes `count` values of `N` bytes each.
    pub(crate) fn array<const N: usize>(&mut self, count: usize) -> Result<&'a [[u8; N]]> {
        let length = count
            .checked_mul(N)
            .ok_or_else(|| self.corrupt("count overflows"))?;
        let (chunks, _) = self.take(length)?.as_chunks::<N>();
        Ok(chunks)
    }

    #[inline]
    fn one<const N: usize>(&mut self) -> Result<[u8; N]> {
        let chunk = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk());
        let chunk = *chunk.ok_or_else(|| self.ended())?;
        self.at += N;
        Ok(chunk)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.one()?))
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.one()?))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.one()?))
    }

    #[inline]
    pub(crate) fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_le_bytes(self.one()?))
    }

    #[inline]
    pub(crate) fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.one()?))
    }

    #[inline]
    pub(crate) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.one()?))
    }

    /// Reads a `u32` length or index.
    #[inline]
    pub(crate) fn length(&mut self) -> Result<usize> {
        let length = self.u32()?;
        usize::try_from(length).map_err(|_| self.corrupt("length overflows"))
    }

    /// Reads a `u32` count of items that take at least `bytes_each_min` bytes (1 or more) each.
    pub(crate) fn count(&mut self, bytes_each_min: usize) -> Result<usize> {
        let count = self.length()?;
        if count > self.remaining() / bytes_each_min.max(1) {
            return Err(self.corrupt("count is larger than the bytes left"));
        }
        Ok(count)
    }

    /// Reads a `u32` length and that many bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    /// Reads a `u32` length and that many bytes of UTF-8.
    pub(crate) fn text(&mut self) -> Result<&'a str> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.corrupt("text is not UTF-8"))
    }

    /// Reads `count + 1` offsets that start at 0 and never fall; returns them and the last one.
    pub(crate) fn offsets(&mut self, count: usize) -> Result<(&'a [[u8; 4]], usize)> {
        let offsets = self.array::<4>(count.saturating_add(1))?;
        let number =
            |offset: Option<&[u8; 4]>| offset.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        // All of them are looked at, so that it takes many at a time.
        let pairs = offsets.iter().zip(offsets.iter().skip(1));
        let falls = pairs.fold(false, |falls, (one, next)| {
            falls | (u32::from_le_bytes(*next) < u32::from_le_bytes(*one))
        });
        if falls || number(offsets.first()) != 0 {
            return Err(self.corrupt("offsets do not rise from 0"));
        }
        let last = number(offsets.last());
        let last = usize::try_from(last).map_err(|_| self.corrupt("offset overflows"))?;
        Ok((offsets, last))
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(&self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            _ => Err(self.corrupt("bytes are left over")),
        }
    }
}

/// Returns the offset at `index`, or 0 past the end.
pub(crate) fn offset_at(offsets: &[[u8; 4]], index: usize) -> usize {
    let offset = offsets.get(index).copied().map_or(0, u32::from_le_bytes);
    usize::try_from(offset).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_past_the_end() {
        let bytes = [3, 0, 0, 0, b'a', b'b'];
        let reader = || Reader::new(&bytes, "test");
        let code = |error: SinkError| error.code();
        assert_eq!(reader().take(7).map_err(code), Err("WIRE_CORRUPT"));
        assert_eq!(reader().take(usize::MAX).map_err(code), Err("WIRE_CORRUPT"));
        assert_eq!(reader().bytes().map_err(code), Err("WIRE_CORRUPT"));
        assert_eq!(reader().array::<4>(2).map_err(code), Err("WIRE_CORRUPT"));
        assert_eq!(reader().take(6).map_err(code), Ok(&bytes[..]));
    }

    #[test]
    fn a_count_fits_the_bytes_that_are_left() {
        let bytes = [3, 0, 0, 0, 1, 2, 3, 4, 5, 6];
        let count = |each| Reader::new(&bytes, "test").count(each);
        assert_eq!(count(2).ok(), Some(3));
        assert_eq!(
            count(3).expect_err("9 bytes are needed").code(),
            "WIRE_CORRUPT"
        );
    }
}
