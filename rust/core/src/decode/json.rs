//! JSON without a schema: records as `JsonConverter` with `schemas.enable=false` makes them, but
//! exact.
//!
//! | JSON | value |
//! |---|---|
//! | whole number | 64-bit integer; wider ones decimals (the converter cuts them to 64 bits) |
//! | other number | double; with digits that a double would not keep, those digits |
//! | object, array | map, list |
//!
//! Of names that repeat in an object the last counts, as with the converter. No bytes and `null` are
//! a record without a value. Stricter than the converter: nothing may follow the value, texts are
//! UTF-8, half a surrogate pair is refused.

pub(crate) mod lexer;
pub(crate) mod nested;
pub(crate) mod number;
#[cfg(test)]
mod tests;

use lexer::{Lexer, Scratch, Token};
use nested::Out;

use super::maps::MapsBuilder;
use super::refused::Refused;
use crate::limits::NESTING_MAX;
use crate::wire::tagged_build::TaggedBuilder;

/// Nesting of values that are skipped: a schema as JSON takes more than one level for each of its own.
const SKIPPED_DEPTH_MAX: usize = 4 * NESTING_MAX;

/// How many columns on from the expected one a name is looked for before it is read.
const AHEAD: usize = 3;

/// Adds one record to `maps`; on an error, a row without one.
pub(crate) fn record(
    bytes: &[u8],
    maps: &mut MapsBuilder,
    scratch: &mut Scratch,
) -> Result<(), Refused> {
    match Lexer::new(bytes) {
        Ok(lexer) => record_at(lexer, maps, scratch),
        Err(refused) => {
            maps.abandon_row();
            Err(refused)
        }
    }
}

/// As [`record`], of what is known to be a text.
pub(crate) fn record_of_text(
    text: &str,
    maps: &mut MapsBuilder,
    scratch: &mut Scratch,
) -> Result<(), Refused> {
    record_at(Lexer::of(text), maps, scratch)
}

fn record_at(
    lexer: Lexer<'_>,
    maps: &mut MapsBuilder,
    scratch: &mut Scratch,
) -> Result<(), Refused> {
    match read_record(lexer, maps, scratch) {
        Ok(true) => maps.end_row(),
        Ok(false) => maps.null_row(),
        Err(refused) => {
            maps.abandon_row();
            return Err(refused);
        }
    }
    Ok(())
}

fn read_record(
    mut lexer: Lexer<'_>,
    maps: &mut MapsBuilder,
    scratch: &mut Scratch,
) -> Result<bool, Refused> {
    if lexer.text().is_empty() {
        return Ok(false);
    }
    let is_record = match lexer.value(scratch)? {
        Token::Null => false,
        Token::Object => {
            read_object(&mut lexer, maps, scratch)?;
            true
        }
        other => {
            let message = "the record's value is no JSON object";
            let refused = Refused::new("VALUE_NOT_A_RECORD", message);
            return Err(refused.types(other.type_name(), "object").at(0));
        }
    };
    lexer.finish()?;
    Ok(is_record)
}

/// Reads the fields of a record. Records tend to have their fields in the same order, so that
/// the next name is first compared with the next column's.
fn read_object(
    lexer: &mut Lexer<'_>,
    maps: &mut MapsBuilder,
    scratch: &mut Scratch,
) -> Result<(), Refused> {
    let mut expected = 0;
    let mut is_first = true;
    loop {
        let index = match guess(lexer, maps, expected, is_first) {
            Some(index) => index,
            None => {
                if !lexer.next_name(is_first)? {
                    return Ok(());
                }
                // Where blanks stand behind commas, only these are in the way.
                match guess(lexer, maps, expected, true) {
                    Some(index) => index,
                    None => {
                        let at = lexer.position();
                        let name = lexer.name(&mut scratch.text)?;
                        maps.find(name).map_err(|refused| refused.at(at))?
                    }
                }
            }
        };
        is_first = false;
        expected = index + 1;
        let token = lexer.value(scratch)?;
        match token {
            Token::Text(text) => maps.text(index, text),
            Token::Number(number) => maps.number(index, number),
            Token::Bool(value) => maps.bool(index, value),
            Token::Null => maps.null(index),
            token @ (Token::Array | Token::Object) => {
                maps.tagged(index, |values, heap| {
                    nested::write(lexer, token, &mut Out { values, heap }, 2)
                })?;
            }
        }
    }
}

/// Moves over the name of one of the next columns, with its colon and, unless it is `bare`, the comma in
/// front of it.
#[inline]
fn guess(lexer: &mut Lexer<'_>, maps: &MapsBuilder, expected: usize, bare: bool) -> Option<usize> {
    (expected..expected + AHEAD).find(|index| {
        let pattern = maps.column(*index).and_then(|column| column.pattern());
        let pattern = pattern.and_then(|pattern| pattern.get(usize::from(bare)..));
        pattern.is_some_and(|pattern| lexer.take(pattern))
    })
}

/// Adds one value of any type as a tagged one, such as a key; on an error, null.
pub(crate) fn any_value(
    bytes: &[u8],
    values: &mut TaggedBuilder,
    heap: &mut String,
    scratch: &mut Scratch,
) -> Result<(), Refused> {
    let (rows, texts) = (values.len(), heap.len());
    let read = read_any(
        bytes,
        &mut Out {
            values: &mut *values,
            heap: &mut *heap,
        },
        scratch,
    );
    if read.is_err() {
        values.truncate(rows);
        heap.truncate(texts);
    }
    values.end_row();
    read
}

fn read_any(bytes: &[u8], out: &mut Out<'_>, scratch: &mut Scratch) -> Result<(), Refused> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut lexer = Lexer::new(bytes)?;
    let token = lexer.value(scratch)?;
    nested::write(&mut lexer, token, out, 1)?;
    lexer.finish()
}

/// Moves over the value that comes next.
pub(crate) fn skip(lexer: &mut Lexer<'_>, scratch: &mut Scratch) -> Result<(), Refused> {
    let token = lexer.value(scratch)?;
    skip_rest(lexer, is_nested(token), scratch, 1)
}

/// Tells an array (true) from an object (false); `None` for a scalar.
fn is_nested(token: Token<'_>) -> Option<bool> {
    match token {
        Token::Array => Some(true),
        Token::Object => Some(false),
        _ => None,
    }
}

fn skip_rest(
    lexer: &mut Lexer<'_>,
    nested: Option<bool>,
    scratch: &mut Scratch,
    depth: usize,
) -> Result<(), Refused> {
    let Some(is_array) = nested else {
        return Ok(());
    };
    if depth > SKIPPED_DEPTH_MAX {
        return Err(nested::too_deep(lexer.position()));
    }
    let mut is_first = true;
    loop {
        let goes_on = match is_array {
            true => lexer.next_element(is_first)?,
            false => lexer.next_name(is_first)?,
        };
        if !goes_on {
            return Ok(());
        }
        is_first = false;
        if !is_array {
            lexer.name(&mut scratch.text)?;
        }
        let inner = is_nested(lexer.value(scratch)?);
        skip_rest(lexer, inner, scratch, depth + 1)?;
    }
}
