//! What column rules leave of one frame: values with a schema are copied only where they are hashed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::columns::{Act, Judge, Plan};
use super::masked::{self, Root, TaggedValues};
use super::misfit::{Misfit, Reason};
use super::scalar::write_text;
use super::value::Value;
use crate::error::{Result, SinkError};
use crate::schema::semantic::Semantic;
use crate::wire::column::span;
use crate::wire::frame::{Part, Parts};
use crate::wire::read::offset_at;
use crate::wire::tagged::{Context, TaggedRows};
use crate::wire::{Cell, ColumnData, Frame, SourceColumn, SourceSchema};

/// Hashes values with the salt.
#[derive(Debug, Clone)]
pub(super) struct Hasher {
    salted: Sha256,
    text: String,
}

/// The hashed values of one column.
#[derive(Debug, Default)]
pub(super) struct Texts {
    offsets: Vec<[u8; 4]>,
    text: String,
}

/// A frame as the rules leave it.
#[derive(Debug, Default)]
pub struct Masked {
    pub(super) value: Left,
    pub(super) key: Left,
    pub(super) headers: Option<TaggedValues>,
    refused: BTreeMap<u32, SinkError>,
}

/// What is left of values or keys.
#[derive(Debug, Default)]
pub(super) enum Left {
    #[default]
    Whole,
    Nothing,
    /// The texts are in the order in which [`Act`]s are walked.
    Columns(Arc<SourceSchema>, Arc<Act>, Vec<Texts>),
    Tagged(TaggedValues),
}

/// Which values of a column are wanted, and the row of the frame that each belongs to.
pub(super) struct Wanted {
    owners: Vec<Option<u32>>,
}

impl Wanted {
    pub(super) fn of(count: usize, rows: &[u32]) -> Self {
        let mut owners = vec![None; count];
        for row in rows {
            if let Some(owner) = owners.get_mut(usize::try_from(*row).unwrap_or(usize::MAX)) {
                *owner = Some(*row);
            }
        }
        Wanted { owners }
    }

    pub(super) fn owner(&self, index: usize) -> Option<u32> {
        self.owners.get(index).copied().flatten()
    }

    /// Returns the same for the elements of lists or maps.
    fn elements(&self, offsets: &[[u8; 4]]) -> Self {
        let rows = offsets.len().saturating_sub(1);
        let mut owners = vec![None; offset_at(offsets, rows)];
        for row in 0..rows {
            let owner = self.owner(row);
            for element in span(offsets, row) {
                if let Some(slot) = owners.get_mut(element) {
                    *slot = owner;
                }
            }
        }
        Wanted { owners }
    }
}

/// Walks columns and hashes values.
struct Hashing<'m> {
    hasher: &'m mut Hasher,
    texts: &'m mut Vec<Texts>,
    refused: &'m mut BTreeMap<u32, SinkError>,
    path: Vec<String>,
}

impl Hashing<'_> {
    fn walk(&mut self, column: &SourceColumn<'_>, act: &Act, wanted: &Wanted) {
        match (act, column.data()) {
            (Act::Keep, _) => {}
            (Act::Hash(_), _) => self.hash(column, wanted),
            (Act::Struct(_, acts), ColumnData::Struct(children)) => {
                let fields = column.schema().fields();
                for (index, act) in acts {
                    if let (Some(child), Some(field)) = (children.get(*index), fields.get(*index)) {
                        self.below(&field.name, child, act, wanted);
                    }
                }
            }
            (Act::List(_, act), ColumnData::Array { offsets, elements }) => {
                self.below("element", elements, act, &wanted.elements(offsets));
            }
            (
                Act::Map(_, key, value),
                ColumnData::Map {
                    offsets,
                    keys,
                    values,
                },
            ) => {
                let wanted = wanted.elements(offsets);
                self.below("key", keys, key, &wanted);
                self.below("value", values, value, &wanted);
            }
            // An act is made for the schema that the column has.
            _ => {}
        }
    }

    fn below(&mut self, step: &str, column: &SourceColumn<'_>, act: &Act, wanted: &Wanted) {
        self.path.push(step.to_owned());
        self.walk(column, act, wanted);
        self.path.pop();
    }

    fn hash(&mut self, column: &SourceColumn<'_>, wanted: &Wanted) {
        let semantic = Semantic::of(column.schema());
        let mut texts = Texts::default();
        texts.offsets.reserve(column.rows() + 1);
        texts.offsets.push([0; 4]);
        for index in 0..column.rows() {
            if let Some(row) = wanted.owner(index) {
                let cell = column.cell(index);
                if let Err(reason) = self.hasher.hash(cell, semantic, &mut texts.text) {
                    let steps = self.path.iter().rev();
                    let misfit =
                        steps.fold(unhashable(reason, cell), |misfit, step| misfit.inside(step));
                    self.refused.entry(row).or_insert_with(|| misfit.into());
                }
            }
            let end = u32::try_from(texts.text.len()).unwrap_or(u32::MAX);
            texts.offsets.push(end.to_le_bytes());
        }
        self.texts.push(texts);
    }
}

/// Describes a value that has no canonical form.
pub(super) fn unhashable(reason: Reason, cell: Cell<'_>) -> Misfit {
    super::column::misfit(reason, cell).target("hash")
}

impl Hasher {
    pub(super) fn new(salt: &str) -> Self {
        Hasher {
            salted: Sha256::new_with_prefix(salt),
            text: String::new(),
        }
    }

    /// Appends the hash of `cell`, of null nothing.
    pub(super) fn hash(
        &mut self,
        cell: Cell<'_>,
        semantic: Semantic,
        out: &mut String,
    ) -> Result<(), Reason> {
        let mut hasher = self.salted.clone();
        match Value::read(cell, semantic)? {
            None => return Ok(()),
            Some(Value::Text(text)) => hasher.update(text),
            Some(Value::Bytes(bytes)) => hasher.update(bytes),
            Some(value) => {
                self.text.clear();
                write_text(value, &mut self.text)?;
                hasher.update(&self.text);
            }
        }
        for byte in hasher.finalize() {
            // Writing to a text cannot fail.
            let _ = write!(out, "{byte:02x}");
        }
        Ok(())
    }
}

impl Masked {
    /// Rewrites values without a schema.
    pub(super) fn rewritten(
        &mut self,
        judge: &mut Judge<'_>,
        values: (&TaggedRows<'_>, &Context<'_>),
        wanted: &Wanted,
        root: &Root<'_>,
    ) -> Result<TaggedValues> {
        masked::rewrite(judge, values, wanted, root, &mut self.refused)
    }

    /// Walks the columns of values that have a schema.
    pub(super) fn walked(
        &mut self,
        hasher: &mut Hasher,
        plan: Plan,
        column: Option<&SourceColumn<'_>>,
        (rows, wanted): (&[u32], &Wanted),
    ) -> Left {
        match plan {
            Plan::Whole => Left::Whole,
            Plan::Refused(refusal) => {
                for row in rows {
                    let error = || refusal.error();
                    self.refused.entry(*row).or_insert_with(error);
                }
                Left::Whole
            }
            Plan::Columns(schema, act) => {
                let mut texts = Vec::new();
                if let Some(column) = column {
                    let mut hashing = Hashing {
                        hasher,
                        texts: &mut texts,
                        refused: &mut self.refused,
                        path: Vec::new(),
                    };
                    hashing.walk(column, &act, wanted);
                }
                Left::Columns(schema, act, texts)
            }
        }
    }

    /// Returns those of `rows` that may not be written, each with the reason.
    pub fn refused_of<'m>(
        &'m self,
        rows: &'m [u32],
    ) -> impl Iterator<Item = (u32, SinkError)> + use<'m> {
        rows.iter()
            .filter_map(|row| Some((*row, self.refused.get(row)?.again())))
    }

    /// Returns those of `rows` that may be written.
    pub fn keep(&self, rows: &[u32]) -> Vec<u32> {
        let rows = rows.iter().filter(|row| !self.refused.contains_key(row));
        rows.copied().collect()
    }

    /// Returns `frame`, which this was made of, as the rules leave it.
    pub fn frame<'b>(&'b self, frame: &'b Frame<'_>) -> Frame<'b> {
        frame.with_parts(Parts {
            value: self.value.part(frame.value_column()),
            key: self.key.part(frame.key_column()),
            headers: self.headers.as_ref().map(TaggedValues::parts),
        })
    }
}

impl Left {
    /// Returns what stands in place of `column`; `None` when it stays as it is.
    fn part<'b>(&'b self, column: Option<&'b SourceColumn<'_>>) -> Option<Part<'b>> {
        match self {
            Left::Whole => None,
            Left::Nothing => Some(Part::Nothing),
            Left::Columns(schema, act, texts) => {
                let mut texts = texts.iter();
                let column = column.map(|column| masked_column(column, act, &mut texts));
                Some(Part::Columns(Arc::clone(schema), column))
            }
            Left::Tagged(values) => {
                let (rows, text) = values.parts();
                Some(Part::Tagged(rows, text))
            }
        }
    }
}

fn masked_column<'b>(
    column: &'b SourceColumn<'_>,
    act: &Act,
    texts: &mut std::slice::Iter<'b, Texts>,
) -> SourceColumn<'b> {
    match (act, column.data()) {
        (Act::Hash(schema), _) => {
            let (offsets, text) = texts.next().map_or((&[][..], ""), |texts| {
                (texts.offsets.as_slice(), texts.text.as_str())
            });
            column.with_data(schema, ColumnData::String { offsets, text })
        }
        (Act::Struct(schema, acts), ColumnData::Struct(children)) => {
            let children = acts.iter().filter_map(|(index, act)| {
                children
                    .get(*index)
                    .map(|child| masked_column(child, act, texts))
            });
            let children = children.collect();
            column.with_data(schema, ColumnData::Struct(children))
        }
        (Act::List(schema, act), ColumnData::Array { offsets, elements }) => {
            let (offsets, elements) = (*offsets, Box::new(masked_column(elements, act, texts)));
            column.with_data(schema, ColumnData::Array { offsets, elements })
        }
        (
            Act::Map(schema, key, value),
            ColumnData::Map {
                offsets,
                keys,
                values,
            },
        ) => {
            let keys = Box::new(masked_column(keys, key, texts));
            let values = Box::new(masked_column(values, value, texts));
            let data = ColumnData::Map {
                offsets,
                keys,
                values,
            };
            column.with_data(schema, data)
        }
        _ => column.clone(),
    }
}
