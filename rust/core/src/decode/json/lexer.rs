//! The tokens of a JSON text (RFC 8259), strictly: what it is, or at which byte it stops being JSON.
//!
//! Keeps: the position always lies between characters, and moves on with every token, so that a walk
//! through any text ends. Nothing here recurses or allocates but into the scratch space.

use super::number::{self, Number};
use crate::decode::refused::Refused;

/// What is used for texts with escapes and for numbers of many digits; keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) text: String,
    pub(crate) digits: Vec<u8>,
}

/// A value, or the beginning of one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Token<'s> {
    Null,
    Bool(bool),
    Number(Number<'s>),
    Text(&'s str),
    Array,
    Object,
}

impl Token<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Token::Null => "null",
            Token::Bool(_) => "boolean",
            Token::Number(_) => "number",
            Token::Text(_) => "string",
            Token::Array => "array",
            Token::Object => "object",
        }
    }
}

/// A place in a JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

#[cold]
pub(super) fn malformed(message: &'static str, at: usize) -> Refused {
    Refused::new("JSON_MALFORMED", message).at(at)
}

impl<'t> Lexer<'t> {
    /// Begins with the first byte; a byte order mark is left out.
    pub(crate) fn new(bytes: &'t [u8]) -> Result<Self, Refused> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Lexer::of(text)),
            Err(error) => Err(malformed("the text is not UTF-8", error.valid_up_to())),
        }
    }

    /// Begins with the first byte of what is known to be a text; a byte order mark is left out.
    pub(crate) fn of(text: &'t str) -> Self {
        Lexer {
            at: if text.starts_with('\u{feff}') { 3 } else { 0 },
            text,
        }
    }

    /// Begins in the middle of a text that was looked at before.
    pub(crate) fn within(text: &'t str, at: usize) -> Self {
        Lexer { text, at }
    }

    /// Goes on at the byte `at`, where a value begins.
    pub(crate) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Skips blanks and returns the next byte.
    #[inline]
    pub(crate) fn next_byte(&mut self) -> Option<u8> {
        match self.peek() {
            Some(b' ' | b'\n' | b'\t' | b'\r') => {
                self.skip_blanks();
                self.peek()
            }
            byte => byte,
        }
    }

    /// Moves over `pattern` if it stands here, as it is.
    #[inline]
    pub(crate) fn take(&mut self, pattern: &[u8]) -> bool {
        let is_here = begins_with(self.rest(), pattern);
        if is_here {
            self.at += pattern.len();
        }
        is_here
    }

    /// Moves over `byte`, which has to come next, blanks aside.
    #[inline]
    pub(crate) fn expect(&mut self, byte: u8, message: &'static str) -> Result<(), Refused> {
        if self.next_byte() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(malformed(message, self.at))
    }

    /// Checks that nothing but blanks is left.
    pub(crate) fn finish(&mut self) -> Result<(), Refused> {
        match self.next_byte() {
            None => Ok(()),
            Some(_) => Err(malformed("something follows the end of the value", self.at)),
        }
    }

    /// Moves to the next element of a list, behind its comma; false at its end, which is moved over.
    #[inline]
    pub(crate) fn next_element(&mut self, is_first: bool) -> Result<bool, Refused> {
        match self.next_byte() {
            Some(b']') => {
                self.at += 1;
                Ok(false)
            }
            Some(_) if is_first => Ok(true),
            Some(b',') => {
                self.at += 1;
                match self.next_byte() {
                    Some(b']') => Err(malformed("an element is missing behind a comma", self.at)),
                    _ => Ok(true),
                }
            }
            _ => Err(malformed(
                "a comma or the end of an array is missing",
                self.at,
            )),
        }
    }

    /// Moves to the next name of an object, behind its comma; false at its end, which is moved over.
    #[inline]
    pub(crate) fn next_name(&mut self, is_first: bool) -> Result<bool, Refused> {
        match self.next_byte() {
            Some(b'}') => {
                self.at += 1;
                return Ok(false);
            }
            Some(b'"') if is_first => return Ok(true),
            Some(b',') if !is_first => self.at += 1,
            _ if is_first => return Err(malformed("the name of a field is missing", self.at)),
            _ => {
                return Err(malformed(
                    "a comma or the end of an object is missing",
                    self.at,
                ));
            }
        }
        match self.next_byte() {
            Some(b'"') => Ok(true),
            _ => Err(malformed(
                "the name of a field is missing behind a comma",
                self.at,
            )),
        }
    }

    /// Reads a name at its opening quote, and moves behind the colon.
    pub(crate) fn name<'s>(&mut self, scratch: &'s mut String) -> Result<&'s str, Refused>
    where
        't: 's,
    {
        self.at += 1;
        let name = self.string(scratch)?;
        self.expect(b':', "a colon is missing behind the name of a field")?;
        Ok(name)
    }

    /// Reads a scalar, or moves behind the bracket that begins an array or object.
    #[inline]
    pub(crate) fn value<'s>(&mut self, scratch: &'s mut Scratch) -> Result<Token<'s>, Refused>
    where
        't: 's,
    {
        let Some(byte) = self.next_byte() else {
            return Err(malformed("a value is missing", self.at));
        };
        match byte {
            b'"' => {
                self.at += 1;
                self.string(&mut scratch.text).map(Token::Text)
            }
            b'-' | b'0'..=b'9' => {
                let start = self.at;
                let (number, length) = number::read(self.text, start, &mut scratch.digits)?;
                self.at += length;
                Ok(Token::Number(number))
            }
            b'{' => {
                self.at += 1;
                Ok(Token::Object)
            }
            b'[' => {
                self.at += 1;
                Ok(Token::Array)
            }
            b't' if self.take(b"true") => Ok(Token::Bool(true)),
            b'f' if self.take(b"false") => Ok(Token::Bool(false)),
            b'n' if self.take(b"null") => Ok(Token::Null),
            _ => Err(malformed("this is no value", self.at)),
        }
    }

    /// Reads the rest of a string behind its opening quote.
    #[inline]
    fn string<'s>(&mut self, scratch: &'s mut String) -> Result<&'s str, Refused>
    where
        't: 's,
    {
        let start = self.at;
        self.at = special_from(self.text.as_bytes(), start);
        match self.peek() {
            Some(b'"') => {
                let text = self.text.get(start..self.at);
                self.at += 1;
                text.ok_or_else(Refused::internal)
            }
            _ => self.string_with_escapes(start, scratch),
        }
    }

    #[cold]
    fn string_with_escapes<'s>(
        &mut self,
        start: usize,
        scratch: &'s mut String,
    ) -> Result<&'s str, Refused> {
        scratch.clear();
        let mut from = start;
        loop {
            let plain = self.text.get(from..self.at).ok_or_else(Refused::internal)?;
            scratch.push_str(plain);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(scratch);
                }
                Some(b'\\') => scratch.push(self.escape()?),
                Some(_) => {
                    return Err(malformed(
                        "a control character in a string is not escaped",
                        self.at,
                    ));
                }
                None => return Err(malformed("a string has no end", self.at)),
            }
            from = self.at;
            self.at = special_from(self.text.as_bytes(), from);
        }
    }

    fn escape(&mut self) -> Result<char, Refused> {
        let start = self.at;
        let letter = self.text.as_bytes().get(start + 1).copied();
        self.at = start + 2;
        Ok(match letter {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex().ok_or_else(|| bad_escape(start))?;
                let code = match first {
                    0xD800..0xDC00 => {
                        let second = match self.take(b"\\u") {
                            true => self.hex().ok_or_else(|| bad_escape(start))?,
                            false => 0,
                        };
                        if !(0xDC00..0xE000).contains(&second) {
                            return Err(lone_surrogate(start));
                        }
                        0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
                    }
                    code => code,
                };
                char::from_u32(code).ok_or_else(|| lone_surrogate(start))?
            }
            _ => {
                self.at = start;
                return Err(bad_escape(start));
            }
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }
}

fn bad_escape(at: usize) -> Refused {
    malformed("an escape in a string is none of JSON's", at)
}

fn lone_surrogate(at: usize) -> Refused {
    malformed("a string has half of a surrogate pair", at)
}

/// Tells whether `text` begins with `pattern`, a name in most cases: too short to be worth a call.
#[inline]
fn begins_with(text: &[u8], pattern: &[u8]) -> bool {
    let Some(text) = text.get(..pattern.len()) else {
        return false;
    };
    match (text.first_chunk::<8>(), pattern.first_chunk::<8>()) {
        (Some(first), Some(wanted)) if pattern.len() <= 16 => {
            first == wanted && text.last_chunk::<8>() == pattern.last_chunk::<8>()
        }
        (Some(first), Some(wanted)) => first == wanted && text == pattern,
        _ => match (text.first_chunk::<4>(), pattern.first_chunk::<4>()) {
            (Some(first), Some(wanted)) => {
                first == wanted && text.last_chunk::<4>() == pattern.last_chunk::<4>()
            }
            _ => text == pattern,
        },
    }
}

const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;

/// Returns the place of the next quote, backslash or control character from `at` on, or the end.
#[inline]
fn special_from(bytes: &[u8], mut at: usize) -> usize {
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*eight);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        // The lowest byte that is marked is right, whatever borrows do above it.
        let marks = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        match marks & HIGHS {
            0 => at += 8,
            marks => return at + (marks.trailing_zeros() / 8) as usize,
        }
    }
    let rest = bytes.get(at..).unwrap_or_default().iter();
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    rest.clone()
        .position(is_special)
        .map_or(bytes.len(), |index| at + index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_found_at_the_beginning_only() {
        let text: Vec<u8> = (0..60).collect();
        for length in 0..40 {
            let pattern = &text[..length];
            assert!(begins_with(&text, pattern) && begins_with(pattern, pattern));
            assert!(length == 0 || !begins_with(&text[..length - 1], pattern));
            for at in 0..length {
                let mut other = text.clone();
                other[at] = 99;
                assert!(!begins_with(&other, pattern), "{length} {at}");
            }
        }
    }

    #[test]
    fn what_ends_plain_text_is_found_wherever_it_stands() {
        for length in 0..40 {
            let plain: Vec<u8> = (0..length).map(|index| b'a' + index % 20).collect();
            assert_eq!(special_from(&plain, 0), plain.len());
            for at in 0..plain.len() {
                for special in [b'"', b'\\', 0, 0x1F] {
                    let mut bytes = plain.clone();
                    bytes[at] = special;
                    assert_eq!(special_from(&bytes, 0), at);
                    assert_eq!(special_from(&bytes, at + 1), plain.len());
                }
                for plain_byte in [0x20, 0x21, 0x7F, 0x80, 0xA2, 0xDC, 0xFF] {
                    let mut bytes = plain.clone();
                    bytes[at] = plain_byte;
                    assert_eq!(special_from(&bytes, 0), plain.len(), "{plain_byte}");
                }
            }
        }
    }
}
