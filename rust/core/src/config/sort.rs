//! The grammar of `sort-by`: the terms of `partition-by`, each with a direction and a place for its
//! nulls.
//!
//! ```text
//! list := entry ("," entry)*
//! entry := term ["asc" | "desc"] ["nulls" ("first" | "last")]
//! ```
//!
//! As in Spark, nulls come first in a rising order and last in a falling one, unless it says.

use iceberg::spec::Transform;

use super::partition::{parse_term, split_outside_parentheses};

/// Bytes of a whole list.
const TEXT_BYTES_MAX: usize = 1_024;

/// One field of a sort order as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortTerm {
    /// The source column; dots name nested columns.
    pub column: String,
    /// What of the column is compared.
    pub transform: Transform,
    /// Whether the largest value comes first.
    pub descending: bool,
    /// Whether nulls come before all values.
    pub nulls_first: bool,
}

/// Parses the list in `text`; an empty text is no order. The error says what is wrong and how to
/// write it, without naming the key.
pub fn parse(text: &str) -> Result<Vec<SortTerm>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    if text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(format!(
            "must have at most {TEXT_BYTES_MAX} bytes and no control characters"
        ));
    }
    let mut terms: Vec<SortTerm> = Vec::new();
    for part in split_outside_parentheses(text)? {
        let part = part.trim();
        let term = parse_entry(part)?;
        let again =
            |known: &SortTerm| known.column == term.column && known.transform == term.transform;
        if terms.iter().any(again) {
            return Err(format!("`{part}` is there twice; drop one"));
        }
        terms.push(term);
    }
    Ok(terms)
}

fn parse_entry(text: &str) -> Result<SortTerm, String> {
    let end = match text.find(')') {
        Some(end) => end + 1,
        None => text.find(char::is_whitespace).unwrap_or(text.len()),
    };
    let (term, words) = text.split_at_checked(end).unwrap_or((text, ""));
    let term = parse_term(term)?;
    if term.transform == Transform::Void {
        return Err(format!("`{text}` is the same for all rows; drop it"));
    }
    let words: Vec<String> = words
        .split_whitespace()
        .map(str::to_ascii_lowercase)
        .collect();
    let mut words = words.iter().map(String::as_str).peekable();
    let descending = match words.peek() {
        Some(&"asc") => words.next().is_none(),
        Some(&"desc") => words.next().is_some(),
        _ => false,
    };
    let nulls_first = match (words.next(), words.next(), words.next()) {
        (None, ..) => !descending,
        (Some("nulls"), Some("first"), None) => true,
        (Some("nulls"), Some("last"), None) => false,
        _ => {
            return Err(format!(
                "`{text}` has more than a column or transform, `asc` or `desc`, and `nulls first` \
                 or `nulls last`"
            ));
        }
    };
    Ok(SortTerm {
        column: term.column,
        transform: term.transform,
        descending,
        nulls_first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(column: &str, transform: Transform, descending: bool, nulls_first: bool) -> SortTerm {
        SortTerm {
            column: column.to_owned(),
            transform,
            descending,
            nulls_first,
        }
    }

    #[test]
    fn directions_and_nulls_parse() {
        let text = "a, b desc,c.d ASC NULLS LAST, day(ts) desc nulls first,bucket(4, id) asc,\
                    truncate(s, 3)nulls last";
        assert_eq!(
            parse(text).unwrap(),
            [
                term("a", Transform::Identity, false, true),
                term("b", Transform::Identity, true, false),
                term("c.d", Transform::Identity, false, false),
                term("ts", Transform::Day, true, true),
                term("id", Transform::Bucket(4), false, true),
                term("s", Transform::Truncate(3), false, false),
            ]
        );
        assert_eq!(parse(" ").unwrap(), []);
    }

    #[test]
    fn anything_else_is_an_error() {
        for (text, part) in [
            ("a up", "more than a column"),
            ("a desc asc", "more than a column"),
            ("a nulls", "more than a column"),
            ("a nulls first desc", "more than a column"),
            ("a, a desc", "twice"),
            ("void(a)", "same for all rows"),
            ("week(a)", "unknown transform"),
            ("a,,b", "empty entry"),
            ("day(a", "`(` without `)`"),
            ("a\0", "no control characters"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
