//! Column rules on values without a schema: each row's value is written anew without what is left
//! out.

use std::collections::BTreeMap;

use super::columns::{Fate, Judge, Node, Wanted, unhashable};
use super::misfit::Misfit;
use crate::error::{Result, SinkError};
use crate::schema::semantic::Semantic;
use crate::wire::Cell;
use crate::wire::read::Reader;
use crate::wire::tagged::{self, Context, TaggedRows};

/// Values as the rules leave them, and the texts that they point into.
#[derive(Debug)]
pub(super) struct TaggedValues {
    offsets: Vec<[u8; 4]>,
    data: Vec<u8>,
    text: String,
}

impl TaggedValues {
    pub(super) fn rows(&self) -> TaggedRows<'_> {
        TaggedRows::of(&self.offsets, &self.data)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Writes the values of the wanted rows anew; all others become null.
pub(super) fn rewrite(
    judge: &mut Judge<'_>,
    (values, context): (&TaggedRows<'_>, &Context<'_>),
    wanted: &Wanted,
    refused: &mut BTreeMap<u32, SinkError>,
) -> Result<TaggedValues> {
    let mut out = TaggedValues {
        offsets: vec![[0; 4]],
        data: Vec::new(),
        text: context.text.to_owned(),
    };
    let mut index = 0;
    while let Some(bytes) = values.checked_row(index) {
        let start = out.data.len();
        if let Some(row) = wanted.owner(index) {
            let root = match bytes.first() {
                Some(&tagged::MAP) => Fate::Inside(judge.root, judge.includes_all),
                // The converter says that such a value is no record.
                _ => Fate::Keep,
            };
            if let Err(misfit) = write(judge, bytes, context, &root, &mut out)? {
                out.data.truncate(start);
                refused.insert(row, misfit.into());
            }
        }
        if out.data.len() == start {
            out.data.push(tagged::NULL);
        }
        let end = u32::try_from(out.data.len()).map_err(|_| {
            SinkError::internal("the values of a frame outgrew it under column rules")
        })?;
        out.offsets.push(end.to_le_bytes());
        index += 1;
    }
    Ok(out)
}

/// Writes one value; nothing when it is dropped.
fn write(
    judge: &mut Judge<'_>,
    bytes: &[u8],
    context: &Context<'_>,
    fate: &Fate<'_>,
    out: &mut TaggedValues,
) -> Result<Result<(), Misfit>> {
    match fate {
        Fate::Keep => out.data.extend_from_slice(bytes),
        Fate::Drop => {}
        Fate::Hash => {
            let cell = tagged::read(bytes, context)?;
            if cell.is_null() {
                out.data.push(tagged::NULL);
                return Ok(Ok(()));
            }
            let start = out.text.len();
            if let Err(reason) = judge.hasher.hash(cell, Semantic::Schemaless, &mut out.text) {
                return Ok(Err(unhashable(reason, cell)));
            }
            out.data.push(tagged::STRING);
            push_length(&mut out.data, start);
            push_length(&mut out.data, out.text.len() - start);
        }
        Fate::Inside(node, included) => {
            return write_inside(judge, bytes, context, (node, *included), out);
        }
    }
    Ok(Ok(()))
}

fn write_inside(
    judge: &mut Judge<'_>,
    bytes: &[u8],
    context: &Context<'_>,
    (node, included): (&Node, bool),
    out: &mut TaggedValues,
) -> Result<Result<(), Misfit>> {
    let mut reader = Reader::new(bytes, "tagged value");
    let tag = reader.u8()?;
    if !matches!(tag, tagged::LIST | tagged::MAP) {
        if included {
            out.data.extend_from_slice(bytes);
        }
        return Ok(Ok(()));
    }
    let (_, count) = (reader.length()?, reader.length()?);
    out.data.push(tag);
    let header = out.data.len();
    out.data.extend_from_slice(&[0; 8]);
    let mut kept = 0;
    let mut outcome = Ok(());
    for _ in 0..count {
        let start = out.data.len();
        let mut name = "element";
        if tag == tagged::MAP {
            let key = tagged::raw(&mut reader, context)?;
            out.data.extend_from_slice(key);
            name = match tagged::read(key, context)? {
                Cell::String(name) => name,
                // Such a key is nobody's field: the converter says what is wrong with it.
                _ => "",
            };
        }
        let value = tagged::raw(&mut reader, context)?;
        let before = out.data.len();
        let fate = judge.fate(node, included, name);
        let written = write(judge, value, context, &fate, out)?;
        outcome = outcome.and(written.map_err(|misfit| misfit.inside(name)));
        match out.data.len() == before {
            true => out.data.truncate(start),
            false => kept += 1,
        }
    }
    let length = out.data.len() - header - 8;
    let mut lengths = Vec::with_capacity(8);
    push_length(&mut lengths, length);
    push_length(&mut lengths, kept);
    if let Some(place) = out.data.get_mut(header..header + 8) {
        place.copy_from_slice(&lengths);
    }
    Ok(outcome)
}

/// Appends a length, which is below that of a frame.
fn push_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}
