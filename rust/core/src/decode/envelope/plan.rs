//! How a payload of one schema is decoded: worked out once, used per record.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::convert::decimal::Decimal;
use crate::decode::columns::{Budget, ColumnBuilder};
use crate::decode::json::lexer::{Lexer, Scratch, Token};
use crate::decode::json::number::Number;
use crate::decode::json::skip;
use crate::decode::refused::Refused;
use crate::wire::{LogicalType, SourceKind, SourceSchema};

/// Milliseconds of a day: the largest number that Connect takes as a time.
const DAY_MS: i64 = 86_400_000;

/// How values of one schema are decoded.
#[derive(Debug)]
pub(crate) struct Plan {
    kind: Kind,
    optional: bool,
    type_name: &'static str,
}

#[derive(Debug)]
enum Kind {
    Bool,
    Int(SourceKind),
    Float32,
    Float64,
    Text,
    Bytes,
    Decimal(i32),
    Date,
    Time,
    Timestamp,
    List(Box<Plan>),
    /// Maps whose keys are texts are objects, others lists of pairs.
    Object(Box<Plan>),
    Pairs(Box<Plan>, Box<Plan>),
    Struct(Fields),
}

#[derive(Debug)]
struct Fields {
    list: Vec<Field>,
    indexes: BTreeMap<Box<str>, usize>,
}

#[derive(Debug)]
struct Field {
    name: Box<str>,
    /// The name as it stands behind a comma in a text that has no blanks.
    pattern: Box<[u8]>,
    plan: Plan,
}

impl Plan {
    /// Works out how values of `schema` are decoded.
    pub(crate) fn of(schema: &SourceSchema) -> Plan {
        let child = |child: Option<&std::sync::Arc<SourceSchema>>| match child {
            Some(child) => Box::new(Plan::of(child)),
            None => Box::new(Plan::of(&SourceSchema::scalar(SourceKind::String))),
        };
        let kind = match (schema.logical(), schema.kind()) {
            (Some(LogicalType::Decimal { scale }), _) => Kind::Decimal(scale),
            (Some(LogicalType::Date), _) => Kind::Date,
            (Some(LogicalType::Time), _) => Kind::Time,
            (Some(LogicalType::Timestamp), _) => Kind::Timestamp,
            (None, SourceKind::Boolean) => Kind::Bool,
            (None, SourceKind::Float32) => Kind::Float32,
            (None, SourceKind::Float64) => Kind::Float64,
            (None, SourceKind::String) => Kind::Text,
            (None, SourceKind::Bytes) => Kind::Bytes,
            (None, SourceKind::Array) => Kind::List(child(schema.value())),
            (None, SourceKind::Map) => {
                let is_text = schema
                    .key()
                    .is_some_and(|key| key.kind() == SourceKind::String);
                match is_text {
                    true => Kind::Object(child(schema.value())),
                    false => Kind::Pairs(child(schema.key()), child(schema.value())),
                }
            }
            (None, SourceKind::Struct) => Kind::Struct(Fields::of(schema)),
            (None, kind) => Kind::Int(kind),
        };
        Plan {
            kind,
            optional: schema.optional,
            type_name: schema.kind().name(),
        }
    }

    /// Decodes the value that comes next into `out`: exactly one is pushed, or none on an error.
    pub(crate) fn decode(
        &self,
        lexer: &mut Lexer<'_>,
        out: &mut ColumnBuilder,
        budget: &mut Budget,
        scratch: &mut Scratch,
    ) -> Result<(), Refused> {
        lexer.skip_blanks();
        let at = lexer.position();
        let token = lexer.value(scratch)?;
        match (&self.kind, token) {
            (_, Token::Null) if self.optional => out.push_null(),
            (_, Token::Null) => return Err(self.missing().at(at)),
            (Kind::Struct(fields), Token::Object) => {
                return fields.decode(lexer, out, budget, scratch);
            }
            (Kind::List(element), Token::Array) => {
                return decode_list(element, lexer, out, budget, scratch);
            }
            (Kind::Object(values), Token::Object) => {
                return decode_object(values, lexer, out, budget, scratch);
            }
            (Kind::Pairs(keys, values), Token::Array) => {
                return decode_pairs((keys, values), lexer, out, budget, scratch);
            }
            (Kind::Float32, Token::Number(_)) => {
                let text = lexer.text().get(at..lexer.position());
                let value = text.and_then(|text| text.parse::<f32>().ok());
                match value {
                    Some(value) if value.is_finite() => out.push_f32(value),
                    _ => return Err(self.out_of_range().at(at)),
                }
            }
            (_, token) => return self.scalar(token, out).map_err(|refused| refused.at(at)),
        }
        Ok(())
    }

    fn scalar(&self, token: Token<'_>, out: &mut ColumnBuilder) -> Result<(), Refused> {
        match (&self.kind, token) {
            (Kind::Bool, Token::Bool(value)) => out.push_bool(value),
            (Kind::Text, Token::Text(value)) => out.push_str(value),
            (Kind::Int(kind), Token::Number(Number::Int(value))) => {
                self.int(*kind, value, out)?;
            }
            (Kind::Float64, Token::Number(number)) => out.push_f64(self.double(number)?),
            (Kind::Float64, Token::Text(text)) => match special(text) {
                Some(value) => out.push_f64(value),
                None => return Err(self.mismatch(token)),
            },
            (Kind::Float32, Token::Text(text)) => match special(text) {
                #[expect(clippy::cast_possible_truncation, reason = "NaN and infinities")]
                Some(value) => out.push_f32(value as f32),
                None => return Err(self.mismatch(token)),
            },
            (Kind::Bytes, Token::Text(text)) => {
                out.push_bytes_with(|bytes| decode_base64(text, bytes))?;
            }
            (Kind::Decimal(_), Token::Text(text)) => {
                out.push_bytes_with(|bytes| match text.is_empty() {
                    true => Err(self.mismatch(token)),
                    false => decode_base64(text, bytes),
                })?;
            }
            (Kind::Decimal(scale), Token::Number(number)) => {
                out.push_bytes(&self.decimal(number, *scale)?);
            }
            (Kind::Date, Token::Number(Number::Int(days))) => {
                out.push_i32(i32::try_from(days).map_err(|_| self.out_of_range())?);
            }
            (Kind::Time, Token::Number(Number::Int(ms))) => {
                let in_day = (0..=DAY_MS).contains(&ms);
                let ms = i32::try_from(ms).ok().filter(|_| in_day);
                out.push_i32(ms.ok_or_else(|| self.out_of_range())?);
            }
            (Kind::Timestamp, Token::Number(Number::Int(ms))) => out.push_i64(ms),
            (
                Kind::Int(_) | Kind::Date | Kind::Time | Kind::Timestamp,
                Token::Number(Number::Decimal { scale: 0, .. }),
            ) => {
                return Err(self.out_of_range());
            }
            (_, token) => return Err(self.mismatch(token)),
        }
        Ok(())
    }

    fn int(&self, kind: SourceKind, value: i64, out: &mut ColumnBuilder) -> Result<(), Refused> {
        let out_of_range = |_| self.out_of_range();
        match kind {
            SourceKind::Int8 => out.push_i8(i8::try_from(value).map_err(out_of_range)?),
            SourceKind::Int16 => out.push_i16(i16::try_from(value).map_err(out_of_range)?),
            SourceKind::Int32 => out.push_i32(i32::try_from(value).map_err(out_of_range)?),
            _ => out.push_i64(value),
        }
        Ok(())
    }

    /// Returns the double that is nearest, as Java does.
    fn double(&self, number: Number<'_>) -> Result<f64, Refused> {
        let value = match number {
            #[expect(
                clippy::cast_precision_loss,
                reason = "the nearest is what is asked for"
            )]
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
            Number::Digits { unscaled, scale } => {
                let text = format!("{unscaled}e{}", -i64::from(scale));
                text.parse().map_err(|_| Refused::internal())?
            }
            Number::Decimal { unscaled, scale } => {
                let exact =
                    Decimal::from_be_bytes(unscaled, scale).map_err(|_| self.out_of_range())?;
                let text = format!("{}e{}", exact.unscaled, -i64::from(exact.scale));
                text.parse().map_err(|_| Refused::internal())?
            }
        };
        match f64::is_finite(value) {
            true => Ok(value),
            false => Err(self.out_of_range()),
        }
    }

    /// Returns the unscaled number, big-endian.
    fn decimal(&self, number: Number<'_>, scale: i32) -> Result<[u8; 16], Refused> {
        if let (Number::Float(value), Ok(scale)) = (number, u32::try_from(scale))
            && let Some(unscaled) = crate::convert::number::f64_at_scale(value, scale)
        {
            return Ok(i128::from(unscaled).to_be_bytes());
        }
        let exact = match number {
            Number::Int(value) => Decimal {
                unscaled: i128::from(value),
                scale: 0,
            },
            Number::Float(value) => {
                let exact = crate::convert::number::f64_to_decimal(value);
                exact.map_err(|_| self.out_of_range())?
            }
            Number::Digits { unscaled, scale } => Decimal {
                unscaled: i128::from(unscaled),
                scale,
            },
            Number::Decimal { unscaled, scale } => {
                Decimal::from_be_bytes(unscaled, scale).map_err(|_| self.out_of_range())?
            }
        };
        match exact.rescale(scale) {
            Ok(unscaled) => Ok(unscaled.to_be_bytes()),
            Err(reason) => Err(Refused::new(
                reason.code(),
                "a decimal does not have the scale that the schema of the record says",
            )),
        }
    }

    #[cold]
    fn mismatch(&self, token: Token<'_>) -> Refused {
        let message = "the value is not of the type that the schema of the record says";
        Refused::new("DECODE_TYPE_MISMATCH", message).types(token.type_name(), self.type_name)
    }

    #[cold]
    fn out_of_range(&self) -> Refused {
        let message = "the number is outside of the type that the schema of the record says";
        Refused::new("VALUE_OUT_OF_RANGE", message).types("number", self.type_name)
    }

    #[cold]
    fn missing(&self) -> Refused {
        let message = "there is no value, and the schema of the record says that there must be one";
        Refused::new("DECODE_NULL", message).types("null", self.type_name)
    }
}

/// Numbers that JSON has no form for, as JsonConverter writes them.
fn special(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn decode_base64(text: &str, out: &mut Vec<u8>) -> Result<(), Refused> {
    BASE64.decode_vec(text, out).map_err(|_| {
        Refused::new("DECODE_TYPE_MISMATCH", "the text of bytes is no base64")
            .types("string", "bytes")
    })
}

fn decode_list(
    element: &Plan,
    lexer: &mut Lexer<'_>,
    out: &mut ColumnBuilder,
    budget: &mut Budget,
    scratch: &mut Scratch,
) -> Result<(), Refused> {
    let mut is_first = true;
    while lexer.next_element(is_first)? {
        is_first = false;
        let column = out
            .element(budget)
            .map_err(|refused| refused.at(lexer.position()))?;
        let decoded = element.decode(lexer, column, budget, scratch);
        decoded.map_err(|refused| refused.inside("element"))?;
    }
    out.end_list();
    Ok(())
}

/// The entries of a map: of keys that repeat, the last counts.
fn decode_object(
    values: &Plan,
    lexer: &mut Lexer<'_>,
    out: &mut ColumnBuilder,
    budget: &mut Budget,
    scratch: &mut Scratch,
) -> Result<(), Refused> {
    let mut entries: Vec<(String, usize)> = Vec::new();
    while lexer.next_name(entries.is_empty())? {
        let name = lexer.name(&mut scratch.text)?.to_owned();
        let entry = out
            .entry(budget)
            .map_err(|refused| refused.at(lexer.position()))?;
        entry.0.push_str(&name);
        entries.push((name, lexer.position()));
        let decoded = values.decode(lexer, entry.1, budget, scratch);
        decoded.map_err(|refused| refused.inside("value"))?;
    }
    if let Some(kept) = last_ones(&entries) {
        out.restart();
        for (name, at) in kept {
            let (key, value) = out.entry(budget)?;
            key.push_str(name);
            let mut again = Lexer::within(lexer.text(), at);
            values.decode(&mut again, value, budget, scratch)?;
        }
    }
    out.end_map();
    Ok(())
}

/// The entries of a map whose keys are no texts: a list of pairs.
fn decode_pairs(
    (keys, values): (&Plan, &Plan),
    lexer: &mut Lexer<'_>,
    out: &mut ColumnBuilder,
    budget: &mut Budget,
    scratch: &mut Scratch,
) -> Result<(), Refused> {
    const PAIR: &str = "an entry of a map is no array of a key and a value";
    let mut entries: Vec<(String, usize)> = Vec::new();
    let no_pair = |at| Refused::new("DECODE_TYPE_MISMATCH", PAIR).at(at);
    while lexer.next_element(entries.is_empty())? {
        let at = lexer.position();
        lexer.expect(b'[', PAIR).map_err(|_| no_pair(at))?;
        let start = lexer.position();
        let (key, value) = out.entry(budget).map_err(|refused| refused.at(at))?;
        keys.decode(lexer, key, budget, scratch)
            .map_err(|refused| refused.inside("key"))?;
        let text = lexer
            .text()
            .get(start..lexer.position())
            .unwrap_or_default();
        entries.push((text.trim().to_owned(), start));
        lexer.expect(b',', PAIR).map_err(|_| no_pair(at))?;
        values
            .decode(lexer, value, budget, scratch)
            .map_err(|refused| refused.inside("value"))?;
        lexer.expect(b']', PAIR).map_err(|_| no_pair(at))?;
    }
    if let Some(kept) = last_ones(&entries) {
        out.restart();
        for (_, at) in kept {
            let (key, value) = out.entry(budget)?;
            let mut again = Lexer::within(lexer.text(), at);
            keys.decode(&mut again, key, budget, scratch)?;
            again.expect(b',', PAIR)?;
            values.decode(&mut again, value, budget, scratch)?;
        }
    }
    out.end_map();
    Ok(())
}

/// Returns the last entries of each key, in their order; `None` when no key repeats.
fn last_ones(entries: &[(String, usize)]) -> Option<Vec<(&str, usize)>> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<(&str, usize)> = Vec::new();
    for (name, at) in entries.iter().rev() {
        if seen.insert(name.as_str()) {
            kept.push((name, *at));
        }
    }
    kept.reverse();
    (kept.len() < entries.len()).then_some(kept)
}

impl Fields {
    fn of(schema: &SourceSchema) -> Fields {
        let field = |field: &crate::wire::SourceField| Field {
            name: field.name.as_str().into(),
            pattern: pattern(&field.name),
            plan: Plan::of(&field.schema),
        };
        let names = schema
            .fields()
            .iter()
            .map(|field| field.name.as_str().into());
        Fields {
            list: schema.fields().iter().map(field).collect(),
            indexes: names.zip(0..).collect(),
        }
    }

    /// Moves over the name of the expected field, with its colon and, unless it is `bare`, the comma in
    /// front of it.
    #[inline]
    fn is_next(&self, expected: usize, bare: bool, lexer: &mut Lexer<'_>) -> bool {
        let pattern = self.list.get(expected);
        let pattern = pattern.and_then(|field| field.pattern.get(usize::from(bare)..));
        pattern.is_some_and(|pattern| lexer.take(pattern))
    }

    fn decode(
        &self,
        lexer: &mut Lexer<'_>,
        out: &mut ColumnBuilder,
        budget: &mut Budget,
        scratch: &mut Scratch,
    ) -> Result<(), Refused> {
        let start = lexer.position();
        let (mut expected, mut given, mut is_first) = (0, 0, true);
        loop {
            let index = match self.is_next(expected, is_first, lexer) {
                true => Some(expected),
                false => {
                    if !lexer.next_name(is_first)? {
                        break;
                    }
                    match self.is_next(expected, true, lexer) {
                        true => Some(expected),
                        false => {
                            let name = lexer.name(&mut scratch.text)?;
                            self.indexes.get(name).copied()
                        }
                    }
                }
            };
            is_first = false;
            let Some((index, field)) = index.and_then(|index| Some((index, self.list.get(index)?)))
            else {
                skip(lexer, scratch)?;
                continue;
            };
            expected = index + 1;
            given += usize::from(!out.has_field(index));
            let column = out.field_anew(index).ok_or_else(Refused::internal)?;
            let decoded = field.plan.decode(lexer, column, budget, scratch);
            decoded.map_err(|refused| refused.inside(&field.name))?;
        }
        if given < self.list.len() {
            for (index, field) in self.list.iter().enumerate() {
                if !field.plan.optional && !out.has_field(index) {
                    return Err(field.plan.missing().at(start).inside(&field.name));
                }
            }
        }
        out.end_struct();
        Ok(())
    }
}

/// Returns a name as JSON has it behind a comma; one that needs escapes is never found like that.
fn pattern(name: &str) -> Box<[u8]> {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    match name.bytes().all(plain) {
        true => format!(",\"{name}\":").into_bytes().into(),
        false => Box::from([0, 0].as_slice()),
    }
}
