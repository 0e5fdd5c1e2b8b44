//! The grammar of `partition-by`: the Apache sink's, and SQL's order of arguments beside it, with
//! errors where that sink would create an unpartitioned table.
//!
//! ```text
//! list := term ("," term)*
//! term := column | identity(column) | void(column)
//!       | year[s](column) | month[s](column) | day[s](column) | hour[s](column)
//!       | bucket(column, count) | bucket(count, column)
//!       | truncate(column, width) | truncate(width, column)
//! ```
//!
//! Of two numbers the first is the column.

use iceberg::spec::Transform;

use super::suggest;

/// Bytes of a whole list.
const TEXT_BYTES_MAX: usize = 1_024;

/// One field of a partition spec as configured: a column and how it becomes a partition value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionTerm {
    /// The source column; dots name nested columns.
    pub column: String,
    /// The transform.
    pub transform: Transform,
}

/// Parses the list of terms in `text`; an empty text is an unpartitioned table. The error says what
/// is wrong and how to write it, without naming the key.
pub fn parse(text: &str) -> Result<Vec<PartitionTerm>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    // So that messages can show any part of it.
    if text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(format!(
            "must have at most {TEXT_BYTES_MAX} bytes and no control characters"
        ));
    }
    let mut terms: Vec<PartitionTerm> = Vec::new();
    for part in split_outside_parentheses(text)? {
        let term = parse_term(part.trim())?;
        if terms.contains(&term) {
            return Err(format!("`{}` is there twice; drop one", part.trim()));
        }
        terms.push(term);
    }
    Ok(terms)
}

/// Cuts `text` at the commas that are not inside parentheses.
pub(super) fn split_outside_parentheses(text: &str) -> Result<Vec<&str>, String> {
    let mut parts = Vec::new();
    let mut open = false;
    let mut start = 0;
    for (index, letter) in text.char_indices() {
        match letter {
            '(' if open => return Err(format!("parentheses in parentheses in `{text}`")),
            '(' => open = true,
            ')' if !open => return Err(format!("`)` without `(` in `{text}`")),
            ')' => open = false,
            ',' if !open => {
                parts.push(text.get(start..index).unwrap_or_default());
                start = index + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err(format!("`(` without `)` in `{text}`"));
    }
    parts.push(text.get(start..).unwrap_or_default());
    Ok(parts)
}

/// Parses one term.
pub(super) fn parse_term(term: &str) -> Result<PartitionTerm, String> {
    let Some((name, rest)) = term.split_once('(') else {
        return Ok(PartitionTerm {
            column: column(term, term)?,
            transform: Transform::Identity,
        });
    };
    let Some(inner) = rest.strip_suffix(')') else {
        return Err(format!("text after `)` in `{term}`"));
    };
    let arguments: Vec<&str> = inner.split(',').map(str::trim).collect();
    let name = name.trim().to_ascii_lowercase();
    let transform = match name.as_str() {
        "identity" => Transform::Identity,
        "void" => Transform::Void,
        "year" | "years" => Transform::Year,
        "month" | "months" => Transform::Month,
        "day" | "days" => Transform::Day,
        "hour" | "hours" => Transform::Hour,
        "bucket" => return parse_sized(term, &name, &arguments, Transform::Bucket),
        "truncate" => return parse_sized(term, &name, &arguments, Transform::Truncate),
        _ => return Err(unknown_transform(&name, term, &arguments)),
    };
    match arguments.as_slice() {
        [source] => Ok(PartitionTerm {
            column: column(source, term)?,
            transform,
        }),
        _ => Err(format!(
            "`{name}` takes one column, as in `{name}(ts)`, not `{term}`"
        )),
    }
}

/// Says what may be meant by an unknown transform: the form of another system, or a slip.
fn unknown_transform(name: &str, term: &str, arguments: &[&str]) -> String {
    // Such as `bucket[16]`, as the table format spells it.
    let (word, width) = match name.split_once('[') {
        Some((word, rest)) => (word, rest.strip_suffix(']').and_then(size_of)),
        None => (name, None),
    };
    let known = match word {
        "date" | "to_date" => Some("day"),
        "date_hour" => Some("hour"),
        "trunc" | "substring" | "left" => Some("truncate"),
        "hash" | "mod" | "buckets" => Some("bucket"),
        word => nearest_transform(word),
    };
    let columns = arguments
        .iter()
        .find(|argument| size_of(argument).is_none());
    let sizes = arguments.iter().find_map(|argument| size_of(argument));
    let size = width.or(sizes);
    let meant = match (known, columns, size) {
        (Some(known @ ("bucket" | "truncate")), Some(column), Some(size)) => {
            format!("; did you mean `{known}({column}, {size})`?")
        }
        (Some(known @ ("bucket" | "truncate")), Some(column), None) => {
            format!("; did you mean `{known}({column}, 16)`?")
        }
        (Some(known), Some(column), _) => format!("; did you mean `{known}({column})`?"),
        _ => ".".to_owned(),
    };
    format!(
        "unknown transform `{name}` in `{term}`{meant} There are year, month, day, hour, bucket, \
         truncate, identity and void"
    )
}

fn nearest_transform(word: &str) -> Option<&'static str> {
    const NAMES: [&str; 8] = [
        "year", "month", "day", "hour", "bucket", "truncate", "identity", "void",
    ];
    let near = suggest::nearest(word, NAMES.into_iter(), 0)?;
    // Of a short word, two letters are another word: `week` is no `year`.
    let close = word.len() > 4 || word.len() == near.len() + 1;
    NAMES.into_iter().find(|name| close && *name == near)
}

/// Parses the arguments of a transform that has a width, in either order.
fn parse_sized(
    term: &str,
    name: &str,
    arguments: &[&str],
    transform: fn(u32) -> Transform,
) -> Result<PartitionTerm, String> {
    let [first, second] = arguments else {
        return Err(format!(
            "`{name}` takes a column and a number, as in `{name}(id, 16)`, not `{term}`"
        ));
    };
    let (source, size) = match (size_of(first), size_of(second)) {
        (_, Some(size)) => (first, size),
        (Some(size), None) => (second, size),
        (None, None) => {
            return Err(format!(
                "the number in `{term}` must be a whole number from 1 to {}",
                i32::MAX
            ));
        }
    };
    Ok(PartitionTerm {
        column: column(source, term)?,
        transform: transform(size),
    })
}

/// Reads a bucket count or width: a positive Java `int`, as the table format stores it.
fn size_of(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let size: u32 = text.parse().ok().filter(|_| digits)?;
    (1..=i32::MAX.unsigned_abs())
        .contains(&size)
        .then_some(size)
}

fn column(name: &str, term: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err(match term {
            "" => "an empty entry between commas".to_owned(),
            _ => format!("no column in `{term}`"),
        });
    }
    if name.split('.').any(str::is_empty) {
        return Err(format!("`{name}` is not a column: empty name beside a dot"));
    }
    if name
        .chars()
        .any(|letter| letter.is_control() || letter.is_whitespace())
    {
        return Err(format!(
            "`{term}` is neither a column nor a transform of a column"
        ));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(column: &str, transform: Transform) -> PartitionTerm {
        PartitionTerm {
            column: column.to_owned(),
            transform,
        }
    }

    #[test]
    fn every_transform_parses() {
        let text = "year(ts1), month(ts2),day( ts3 ),hour(ts4), bucket(i, 4), truncate(s,10), s2, \
                    years(a), months(b), days(c), hours(d), identity(e.f), void(g)";
        assert_eq!(
            parse(text).unwrap(),
            [
                term("ts1", Transform::Year),
                term("ts2", Transform::Month),
                term("ts3", Transform::Day),
                term("ts4", Transform::Hour),
                term("i", Transform::Bucket(4)),
                term("s", Transform::Truncate(10)),
                term("s2", Transform::Identity),
                term("a", Transform::Year),
                term("b", Transform::Month),
                term("c", Transform::Day),
                term("d", Transform::Hour),
                term("e.f", Transform::Identity),
                term("g", Transform::Void),
            ]
        );
    }

    #[test]
    fn nothing_is_unpartitioned() {
        assert_eq!(parse("").unwrap(), []);
        assert_eq!(parse("  ").unwrap(), []);
    }

    #[test]
    fn the_largest_width_is_an_int() {
        assert_eq!(
            parse("bucket(i, 2147483647)").unwrap(),
            [term("i", Transform::Bucket(2_147_483_647))]
        );
        assert!(parse("bucket(i, 2147483648)").is_err());
    }

    // Promise: `bucket(16, id)` and `bucket(id, 16)` are the same partitioning (T18)
    #[test]
    fn both_orders_of_arguments_mean_the_same() {
        assert_eq!(
            parse("bucket(16, id),truncate( 3 , name )").unwrap(),
            [
                term("id", Transform::Bucket(16)),
                term("name", Transform::Truncate(3)),
            ]
        );
        assert_eq!(parse("bucket(16,id)"), parse("bucket(id,16)"));
        assert_eq!(
            parse("BUCKET(7, 4)").unwrap(),
            [term("7", Transform::Bucket(4))],
            "of two numbers the first is the column"
        );
    }

    #[test]
    fn forms_of_other_systems_are_refused_with_the_right_one() {
        for (text, meant) in [
            ("date(ts)", "`day(ts)`"),
            ("date_hour(ts)", "`hour(ts)`"),
            ("dayss(ts)", "`day(ts)`"),
            ("bucket[16](id)", "`bucket(id, 16)`"),
            ("truncate[3](name)", "`truncate(name, 3)`"),
            ("buckets(16, id)", "`bucket(id, 16)`"),
            ("bukcet(id)", "`bucket(id, 16)`"),
            ("trunc(name, 3)", "`truncate(name, 3)`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("did you mean"), "{error}");
            assert!(error.contains(meant), "{error}");
        }
        let error = parse("week(ts)").unwrap_err();
        assert!(!error.contains("mean"), "{error}");
    }

    #[test]
    fn anything_else_is_an_error() {
        for (text, part) in [
            ("bucket(id)", "takes a column and a number"),
            ("bucket(id, 0)", "whole number from 1"),
            ("bucket(id, -1)", "whole number from 1"),
            ("bucket(id, +4)", "whole number from 1"),
            ("bucket(id, x)", "whole number from 1"),
            ("bucket(id, 4, 5)", "takes a column and a number"),
            ("bucket(, 4)", "no column"),
            ("day()", "no column"),
            ("day(a, b)", "takes one column"),
            ("week(ts)", "unknown transform `week`"),
            ("(ts)", "unknown transform ``"),
            ("day(ts", "`(` without `)`"),
            ("day ts)", "`)` without `(`"),
            ("day(hour(ts))", "parentheses in parentheses"),
            ("day(ts) x", "text after `)`"),
            ("a,,b", "empty entry"),
            ("a,", "empty entry"),
            ("a b", "neither a column"),
            ("a..b", "empty name beside a dot"),
            ("a, a", "twice"),
            ("a\0", "no control characters"),
            (&"x".repeat(1_025), "at most 1024 bytes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
