//! Column rules on what has no schema: each row's value, key or headers are written anew without
//! what is left out.

use std::collections::BTreeMap;

use super::columns::{Fate, Judge, Node, Refusal};
use super::masking::{Wanted, unhashable};
use super::misfit::Misfit;
use crate::error::{Result, SinkError};
use crate::schema::semantic::Semantic;
use crate::wire::read::Reader;
use crate::wire::tagged::{self, Context, TaggedRows};
use crate::wire::tagged_build::TaggedBuilder;
use crate::wire::{Cell, MapRows};

/// Values as the rules leave them.
#[derive(Debug)]
pub(super) struct TaggedValues {
    offsets: Vec<[u8; 4]>,
    data: Vec<u8>,
    /// The texts that they had, and those of hashes.
    text: String,
}

impl TaggedValues {
    /// Returns the rows, and the texts that they point into.
    pub(super) fn parts(&self) -> (TaggedRows<'_>, &str) {
        (TaggedRows::of(&self.offsets, &self.data), &self.text)
    }
}

/// Writes the wanted ones of records that lie in columns as values with tags, with their texts.
pub(super) fn tagged_of(
    maps: &MapRows<'_>,
    rows: usize,
    wanted: &Wanted,
) -> (TaggedBuilder, String) {
    let (mut values, mut text) = (TaggedBuilder::default(), String::new());
    for row in 0..rows {
        if wanted.owner(row).is_some() {
            values.cell(maps.record(row), &mut text);
        }
        values.end_row();
    }
    (values, text)
}

/// What becomes of a row's value.
pub(super) struct Root<'n> {
    /// The rules for what is in it, and whether what no rule names stays; `None` when it is hashed.
    inside: Option<(&'n Node, bool)>,
    /// Whether it is a record, of which something has to be left.
    is_record: bool,
}

impl<'n> Root<'n> {
    pub(super) fn of_records(node: &'n Node, includes_all: bool) -> Self {
        Root {
            inside: Some((node, includes_all)),
            is_record: true,
        }
    }

    /// What comes with a record: its key or its headers.
    pub(super) fn beside(node: &'n Node) -> Self {
        Root {
            inside: Some((node, true)),
            is_record: false,
        }
    }

    pub(super) fn hashed() -> Self {
        Root {
            inside: None,
            is_record: false,
        }
    }

    fn fate(&self, tag: Option<u8>) -> Fate<'n> {
        match (self.inside, tag) {
            (None, _) => Fate::Hash,
            (Some((node, included)), Some(tagged::MAP)) => Fate::Inside(node, included),
            (Some((node, included)), Some(tagged::LIST)) if !self.is_record => {
                Fate::Inside(node, included)
            }
            // The converter says that such a value is no record.
            _ => Fate::Keep,
        }
    }
}

/// Where values are written to.
struct Out {
    data: Vec<u8>,
    /// The texts of the values, and those that are added to them.
    text: String,
    /// Whether anything of the row at hand is left.
    is_left: bool,
}

/// Writes the values of the wanted rows anew; all others become null.
pub(super) fn rewrite(
    judge: &mut Judge<'_>,
    (values, context): (&TaggedRows<'_>, &Context<'_>),
    wanted: &Wanted,
    root: &Root<'_>,
    refused: &mut BTreeMap<u32, SinkError>,
) -> Result<TaggedValues> {
    let mut offsets = vec![[0; 4]];
    let mut out = Out {
        data: Vec::new(),
        text: context.text.to_owned(),
        is_left: false,
    };
    let mut index = 0;
    while let Some(bytes) = values.checked_row(index) {
        let start = out.data.len();
        if let Some(row) = wanted.owner(index) {
            out.is_left = false;
            let written = write(
                judge,
                bytes,
                context,
                &root.fate(bytes.first().copied()),
                &mut out,
            )?;
            let error = match written {
                Err(misfit) => Some(misfit.into()),
                Ok(()) if root.is_record && !out.is_left => Some(Refusal::NothingLeft.error()),
                Ok(()) => None,
            };
            if let Some(error) = error {
                out.data.truncate(start);
                refused.entry(row).or_insert(error);
            }
        }
        if out.data.len() == start {
            out.data.push(tagged::NULL);
        }
        let end = u32::try_from(out.data.len()).map_err(|_| {
            SinkError::internal("the values of a frame outgrew it under column rules")
        })?;
        offsets.push(end.to_le_bytes());
        index += 1;
    }
    Ok(TaggedValues {
        offsets,
        data: out.data,
        text: out.text,
    })
}

/// Writes one value; nothing when it is dropped.
fn write(
    judge: &mut Judge<'_>,
    bytes: &[u8],
    context: &Context<'_>,
    fate: &Fate<'_>,
    out: &mut Out,
) -> Result<Result<(), Misfit>> {
    match fate {
        Fate::Drop => return Ok(Ok(())),
        Fate::Keep => out.data.extend_from_slice(bytes),
        Fate::Hash => {
            let cell = tagged::read(bytes, context)?;
            if cell.is_null() {
                out.data.push(tagged::NULL);
            } else {
                let start = out.text.len();
                if let Err(reason) = judge.hasher.hash(cell, Semantic::Schemaless, &mut out.text) {
                    return Ok(Err(unhashable(reason, cell)));
                }
                out.data.push(tagged::STRING);
                push_length(&mut out.data, start);
                push_length(&mut out.data, out.text.len() - start);
            }
        }
        Fate::Inside(node, included) => {
            return write_inside(judge, bytes, context, (node, *included), out);
        }
    }
    out.is_left = true;
    Ok(Ok(()))
}

fn write_inside(
    judge: &mut Judge<'_>,
    bytes: &[u8],
    context: &Context<'_>,
    (node, included): (&Node, bool),
    out: &mut Out,
) -> Result<Result<(), Misfit>> {
    let mut reader = Reader::new(bytes, "tagged value");
    let tag = reader.u8()?;
    if !matches!(tag, tagged::LIST | tagged::MAP) {
        // Of a null nothing is left out: it stays what it is.
        if included || tag == tagged::NULL {
            out.data.extend_from_slice(bytes);
            out.is_left = true;
        }
        return Ok(Ok(()));
    }
    let (_, count) = (reader.length()?, reader.length()?);
    out.is_left |= count == 0;
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
