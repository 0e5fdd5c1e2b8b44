//! Borrows the caller's frame and reads the configuration's string map.
//!
//! Why the one `unsafe` here is sound: a direct buffer's memory lives as long as the Java object,
//! which the native's local reference keeps alive for the whole call; the slice borrows that
//! reference, so it cannot outlive it. It is read-only and of `u8`, so neither aliasing by Rust nor
//! alignment is a question. Java's only writer is the task thread, and that thread is in this call.
//!
//! Nothing here trusts a length that it has not compared with what is there.

use std::collections::BTreeMap;

use frazil_core::error::{Result, SinkError};
use jni::Env;
use jni::objects::JByteBuffer;
use jni::sys::jint;

use crate::exceptions::Failure;

/// Borrows the first `length` bytes of a direct buffer until `buffer` goes out of scope.
pub(crate) fn direct<'a>(
    env: &Env,
    buffer: &'a JByteBuffer<'_>,
    length: jint,
) -> Result<&'a [u8], Failure> {
    let length = usize::try_from(length)
        .map_err(|_| SinkError::fatal("FRAME_LENGTH", "the frame's length is negative"))?;
    let (Ok(capacity), Ok(address)) = (
        env.get_direct_buffer_capacity(buffer),
        env.get_direct_buffer_address(buffer),
    ) else {
        return Err(SinkError::fatal("FRAME_BUFFER", "the frame is no direct buffer").into());
    };
    if length > capacity {
        return Err(SinkError::fatal(
            "FRAME_LENGTH",
            "the frame's length exceeds the buffer's capacity",
        )
        .with("length", length)
        .with("capacity", capacity)
        .into());
    }
    // SAFETY: `buffer` is a local reference of this call, so the JVM keeps its memory alive for
    // `'a`; `length <= capacity` was checked above; `u8` needs no alignment; and the Java caller
    // owns the only other reference and blocks in this call, so nobody writes meanwhile.
    Ok(unsafe { std::slice::from_raw_parts(address, length) })
}

/// Reads a string map: `u32` count, then per entry a key and a value, each `u32` length and UTF-8.
pub(crate) fn string_map(mut bytes: &[u8]) -> Result<BTreeMap<String, String>> {
    let count = take_u32(&mut bytes)?;
    let mut map = BTreeMap::new();
    for _ in 0..count {
        let key = take_string(&mut bytes)?;
        let value = take_string(&mut bytes)?;
        if map.insert(key, value).is_some() {
            return Err(malformed("a key comes twice"));
        }
    }
    if bytes.is_empty() {
        Ok(map)
    } else {
        Err(malformed("bytes follow the last entry"))
    }
}

/// Returns the error of a number that Java's `int` cannot hold.
pub(crate) fn too_large(what: &str) -> SinkError {
    SinkError::internal(format!("{what} does not fit a Java int"))
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32> {
    let (head, rest) = bytes
        .split_first_chunk::<4>()
        .ok_or_else(|| malformed("it is cut short"))?;
    *bytes = rest;
    Ok(u32::from_le_bytes(*head))
}

fn take_string(bytes: &mut &[u8]) -> Result<String> {
    let length = take_u32(bytes)? as usize;
    let (head, rest) = bytes
        .split_at_checked(length)
        .ok_or_else(|| malformed("it is cut short"))?;
    *bytes = rest;
    match std::str::from_utf8(head) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(malformed("a string is not UTF-8")),
    }
}

fn malformed(why: &str) -> SinkError {
    SinkError::fatal(
        "CONFIG_MALFORMED",
        format!("the configuration's bytes cannot be read: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = (pairs.len() as u32).to_le_bytes().to_vec();
        for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    #[test]
    fn a_map_comes_back_as_it_was_sent() {
        let map = string_map(&encode(&[
            ("name", "orders"),
            ("a.b", "€🦀"),
            ("empty", ""),
        ]))
        .unwrap();
        assert_eq!(map.len(), 3);
        assert_eq!(map["a.b"], "€🦀");
        assert_eq!(map["empty"], "");
    }

    #[test]
    fn every_cut_of_a_map_is_an_error() {
        let bytes = encode(&[("name", "orders"), ("k", "v")]);
        for length in 0..bytes.len() {
            let error = string_map(&bytes[..length]).unwrap_err();
            assert_eq!(error.code(), "CONFIG_MALFORMED", "cut at {length}");
        }
    }

    #[test]
    fn a_length_beyond_the_end_a_surplus_a_repeat_and_bad_text_are_errors() {
        let mut huge = encode(&[("k", "v")]);
        huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut surplus = encode(&[("k", "v")]);
        surplus.push(0);
        let mut text = encode(&[("k", "v")]);
        text[8] = 0xff;
        for bytes in [huge, surplus, text, encode(&[("k", "v"), ("k", "w")])] {
            assert_eq!(string_map(&bytes).unwrap_err().code(), "CONFIG_MALFORMED");
        }
    }
}
