//! JSON with its schema in every record, as Connect's JsonConverter writes it:
//! `{"schema":…,"payload":…}`.
//!
//! The schema is read once and found again by its bytes; the payload is decoded by a plan made of it.
//! What comes is what JsonConverter with `schemas.enable=true` makes of the same bytes, except that
//! it turns a value of another type than the schema says into 0, false or null, and cuts numbers that
//! are too large: here the record is refused. A null stays null, as with the converter's
//! `replace.null.with.default=false`; fields that the schema has not are left out, as there.

pub(super) mod plan;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use plan::Plan;

use super::columns::ColumnsBuilder;
use super::json::lexer::{Lexer, Scratch, Token};
use super::json::skip;
use super::refused::Refused;
use super::{Format, Opened, Raw, SCHEMALESS};
use crate::wire::SourceSchema;

/// Schemas that one side of a task remembers.
const PLANS_MAX: usize = 1_000;
/// How the bytes of a record begin, and what stands between schema and payload, most often.
const BEGIN: &[u8] = b"{\"schema\":";
const BETWEEN: &[u8] = b",\"payload\":";

/// The schemas met so far.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    /// Numbers by the text of the schema.
    numbers: BTreeMap<Arc<[u8]>, usize>,
    plans: BTreeMap<usize, Known>,
    /// The schema of the record before.
    last: Option<(Arc<[u8]>, usize)>,
    next: usize,
    scratch: Scratch,
}

#[derive(Debug)]
struct Known {
    schema: Arc<SourceSchema>,
    plan: Plan,
}

impl Envelope {
    /// Finds the payload of a record that has the schema of the one before, without looking at it.
    fn same(&self, bytes: &[u8]) -> Option<Opened> {
        let (text, number) = self.last.as_ref()?;
        let rest = bytes.strip_prefix(BEGIN)?.strip_prefix(text.as_ref())?;
        let payload = rest.strip_prefix(BETWEEN)?;
        Some(Opened {
            schema: *number,
            data: bytes.len() - payload.len()..bytes.len(),
        })
    }

    fn number(&mut self, text: &str, at: usize) -> Result<usize, Refused> {
        if let Some(number) = self.numbers.get(text.as_bytes()) {
            return Ok(*number);
        }
        if text == "null" {
            return Ok(SCHEMALESS);
        }
        let schema = schema::read(text).map_err(|refused| refused.at(at))?;
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
            self.numbers.clear();
            self.last = None;
        }
        let number = self.next;
        self.next += 1;
        let plan = Plan::of(&schema);
        self.plans.insert(number, Known { schema, plan });
        self.numbers.insert(text.as_bytes().into(), number);
        Ok(number)
    }

    /// Finds schema and payload wherever they stand.
    fn search(&mut self, bytes: &[u8]) -> Result<Option<Opened>, Refused> {
        let mut lexer = Lexer::new(bytes)?;
        if lexer.value(&mut self.scratch)? != Token::Object {
            return Err(no_envelope(0));
        }
        let (mut schema, mut payload) = (None, None);
        let mut is_first = true;
        while lexer.next_name(is_first)? {
            is_first = false;
            let at = lexer.position();
            let part = match lexer.name(&mut self.scratch.text)? {
                "schema" => &mut schema,
                "payload" => &mut payload,
                _ => return Err(no_envelope(at)),
            };
            lexer.skip_blanks();
            let start = lexer.position();
            skip(&mut lexer, &mut self.scratch)?;
            *part = Some(start..lexer.position());
        }
        lexer.finish()?;
        let (Some(schema), Some(data)) = (schema, payload) else {
            return Err(no_envelope(0));
        };
        let at = schema.start;
        let text = lexer.text().get(schema).ok_or_else(Refused::internal)?;
        let number = self.number(text, at)?;
        if number == SCHEMALESS {
            let is_null = lexer.text().get(data.clone()) == Some("null");
            return Ok((!is_null).then_some(Opened {
                schema: SCHEMALESS,
                data,
            }));
        }
        if let Some((text, number)) = self.numbers.get_key_value(text.as_bytes()) {
            self.last = Some((Arc::clone(text), *number));
        }
        let schema = number;
        Ok(Some(Opened { schema, data }))
    }
}

fn no_envelope(at: usize) -> Refused {
    let message = "the record is no JSON object of `schema` and `payload` and nothing else: for JSON \
                   without a schema use the format `json`";
    Refused::new("JSON_NO_ENVELOPE", message).at(at)
}

impl Format for Envelope {
    fn open(&mut self, raw: Raw<'_>) -> Result<Option<Opened>, Refused> {
        if raw.bytes.is_empty() {
            return Ok(None);
        }
        match self.same(raw.bytes) {
            Some(opened) => Ok(Some(opened)),
            None => self.search(raw.bytes),
        }
    }

    fn schema(&self, number: usize) -> Option<&Arc<SourceSchema>> {
        self.plans.get(&number).map(|known| &known.schema)
    }

    fn decode(
        &mut self,
        raw: Raw<'_>,
        opened: &Opened,
        out: &mut ColumnsBuilder,
    ) -> Result<(), Refused> {
        let known = self
            .plans
            .get(&opened.schema)
            .ok_or_else(Refused::internal)?;
        let mut lexer = Lexer::new(raw.bytes)?;
        lexer.seek(opened.data.start);
        let (root, budget) = out.row();
        known
            .plan
            .decode(&mut lexer, root, budget, &mut self.scratch)?;
        // Only a payload that was found without a look at it ends with the bytes.
        if opened.data.end == raw.bytes.len() {
            lexer.expect(b'}', "the end of the record is missing")?;
            lexer.finish()?;
        }
        Ok(())
    }
}
