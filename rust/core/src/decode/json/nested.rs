//! JSON values as tagged values: what is nested in a record, and keys.

use super::lexer::{Lexer, Scratch, Token};
use super::number::Number;
use crate::decode::refused::Refused;
use crate::limits::NESTING_MAX;
use crate::wire::tagged;
use crate::wire::tagged_build::TaggedBuilder;

/// Where tagged values are written, with the texts that they point into.
pub(crate) struct Out<'o> {
    pub(crate) values: &'o mut TaggedBuilder,
    pub(crate) heap: &'o mut String,
}

pub(crate) fn too_deep(at: usize) -> Refused {
    let message = format!("the value nests deeper than {NESTING_MAX} levels");
    Refused::new("VALUE_TOO_DEEP", message).at(at)
}

/// Writes the value whose first token is `token`, up to its end.
pub(crate) fn write(
    lexer: &mut Lexer<'_>,
    token: Token<'_>,
    out: &mut Out<'_>,
    depth: usize,
) -> Result<(), Refused> {
    match token {
        Token::Null => out.values.null(),
        Token::Bool(value) => out.values.bool(value),
        Token::Text(text) => out.values.text(text, out.heap),
        Token::Number(number) => write_number(number, out.values),
        Token::Array => return write_array(lexer, out, depth),
        Token::Object => return write_object(lexer, out, depth),
    }
    Ok(())
}

pub(crate) fn write_number(number: Number<'_>, out: &mut TaggedBuilder) {
    match number {
        Number::Int(value) => out.i64(value),
        Number::Float(value) => out.f64(value),
        Number::Digits { unscaled, scale } => out.number(unscaled, scale),
        Number::Decimal { unscaled, scale } => out.decimal(unscaled, scale),
    }
}

fn write_array(lexer: &mut Lexer<'_>, out: &mut Out<'_>, depth: usize) -> Result<(), Refused> {
    if depth > NESTING_MAX {
        return Err(too_deep(lexer.position()));
    }
    let mut scratch = Scratch::default();
    let at = out.values.open(tagged::LIST);
    let mut count = 0;
    while lexer.next_element(count == 0)? {
        let token = lexer.value(&mut scratch)?;
        write(lexer, token, out, depth + 1)?;
        count += 1;
    }
    out.values.close(at, count);
    Ok(())
}

/// An entry of the object at hand: where its name lies in the heap, and where it begins.
#[derive(Clone, Copy)]
struct Entry {
    name: (usize, usize),
    from: usize,
}

fn write_object(lexer: &mut Lexer<'_>, out: &mut Out<'_>, depth: usize) -> Result<(), Refused> {
    if depth > NESTING_MAX {
        return Err(too_deep(lexer.position()));
    }
    let mut scratch = Scratch::default();
    let at = out.values.open(tagged::MAP);
    let mut entries: Vec<Entry> = Vec::new();
    while lexer.next_name(entries.is_empty())? {
        let name = lexer.name(&mut scratch.text)?;
        entries.push(Entry {
            name: (out.heap.len(), name.len()),
            from: out.values.data.len(),
        });
        out.values.text(name, out.heap);
        let token = lexer.value(&mut scratch)?;
        write(lexer, token, out, depth + 1)?;
    }
    let count = keep_last(&entries, out);
    out.values.close(at, count);
    Ok(())
}

/// Of entries with the same name only the last stays; returns how many there are then.
fn keep_last(entries: &[Entry], out: &mut Out<'_>) -> usize {
    let heap: &str = out.heap;
    let name = |entry: &Entry| heap.get(entry.name.0..entry.name.0 + entry.name.1);
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|index| entries.get(*index).and_then(name));
    let repeats = |pair: &[usize]| match pair {
        [left, right] => {
            let (left, right) = (entries.get(*left), entries.get(*right));
            left.and_then(name) == right.and_then(name)
        }
        _ => false,
    };
    if !order.windows(2).any(repeats) {
        return entries.len();
    }
    // The order is stable: of equal names, all but the last are followed by one of them.
    let dropped: Vec<usize> = order
        .windows(2)
        .filter(|pair| repeats(pair))
        .filter_map(|pair| pair.first().copied())
        .collect();
    let data = &mut out.values.data;
    let end = data.len();
    let start = entries.first().map_or(end, |entry| entry.from);
    let old = data.split_off(start.min(end));
    let mut kept = 0;
    for (index, entry) in entries.iter().enumerate() {
        if dropped.contains(&index) {
            continue;
        }
        let to = entries.get(index + 1).map_or(end, |next| next.from);
        data.extend_from_slice(old.get(entry.from - start..to - start).unwrap_or_default());
        kept += 1;
    }
    kept
}
