//! The configuration as Java hands it over: a map of strings.

use std::collections::BTreeMap;

use super::read::Reader;
use crate::error::Result;

/// The smallest entry: two empty strings.
const ENTRY_BYTES_MIN: usize = 8;

/// Decodes a string map: `u32` count, then per entry a key and a value, each `u32` length and UTF-8.
///
/// # Errors
///
/// `WIRE_CORRUPT` for bytes that are cut short or left over, text that is not UTF-8, and a key that
/// comes twice.
pub fn decode_string_map(bytes: &[u8]) -> Result<BTreeMap<String, String>> {
    let mut reader = Reader::new(bytes, "configuration");
    let mut map = BTreeMap::new();
    for _ in 0..reader.count(ENTRY_BYTES_MIN)? {
        let key = reader.text()?.to_owned();
        let value = reader.text()?.to_owned();
        if map.insert(key, value).is_some() {
            return Err(reader.corrupt("a key comes twice"));
        }
    }
    reader.finish()?;
    Ok(map)
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
        let sent = encode(&[("name", "orders"), ("a.b", "€🦀"), ("empty", "")]);
        let map = decode_string_map(&sent).unwrap();
        assert_eq!(map.len(), 3);
        assert_eq!(map["a.b"], "€🦀");
        assert_eq!(map["empty"], "");
        assert!(decode_string_map(&encode(&[])).unwrap().is_empty());
    }

    #[test]
    fn every_cut_of_a_map_is_an_error() {
        let bytes = encode(&[("name", "orders"), ("k", "v")]);
        for length in 0..bytes.len() {
            let error = decode_string_map(&bytes[..length]).unwrap_err();
            assert_eq!(error.code(), "WIRE_CORRUPT", "cut at {length}");
        }
    }

    #[test]
    fn a_length_beyond_the_end_a_surplus_a_repeat_and_bad_text_are_errors() {
        let mut huge = encode(&[("k", "v")]);
        huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut many = encode(&[("k", "v")]);
        many[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut surplus = encode(&[("k", "v")]);
        surplus.push(0);
        let mut text = encode(&[("k", "v")]);
        text[8] = 0xff;
        for bytes in [huge, many, surplus, text, encode(&[("k", "v"), ("k", "w")])] {
            let error = decode_string_map(&bytes).unwrap_err();
            assert_eq!(error.code(), "WIRE_CORRUPT");
        }
    }
}
