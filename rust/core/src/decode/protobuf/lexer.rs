//! The words of a `.proto` text.

use super::invalid;
use crate::error::Result;

/// One word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// A name, with the dots in it and in front of it.
    Name(String),
    /// A number, as it stands.
    Number(String),
    Text(String),
    Symbol(char),
}

/// Cuts a text into words; comments and blanks are left out.
pub(super) fn words(text: &str) -> Result<Vec<Word>> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() || first == '\u{feff}' {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        } else if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.split_once("*/");
            rest = end
                .ok_or_else(|| invalid("a comment of a .proto text has no end"))?
                .1;
        } else if first == '"' || first == '\'' {
            let (text, after) = quoted(rest, first)?;
            words.push(Word::Text(text));
            rest = after;
        } else if first.is_ascii_digit() {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            words.push(Word::Number(number.to_owned()));
            rest = after;
        } else if first.is_ascii_alphabetic() || first == '_' || is_leading_dot(rest) {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            words.push(Word::Name(name.to_owned()));
            rest = after;
        } else {
            words.push(Word::Symbol(first));
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
    }
    Ok(words)
}

fn is_leading_dot(rest: &str) -> bool {
    let mut letters = rest.chars();
    letters.next() == Some('.')
        && letters
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
}

/// Takes the text in front of `rest`. What a backslash stands for is not worked out but for the
/// quote: no name that counts has one.
fn quoted(rest: &str, quote: char) -> Result<(String, &str)> {
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => text.extend(letters.next().map(|(_, escaped)| escaped)),
            letter if letter == quote => {
                return Ok((text, rest.get(at + 1..).unwrap_or_default()));
            }
            letter => text.push(letter),
        }
    }
    Err(invalid("a text inside of a .proto text has no end"))
}
