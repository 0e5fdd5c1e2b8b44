//! The rows inside of envelopes, as records of their own: what `convert` takes.
//!
//! Columns are borrowed as they lie in the frame; only those in which a source left values out are
//! copied, with nulls in their place. Records without a schema are copied without their envelope.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::changes::{Changes, Image};
use super::place::{Located, Place};
use super::plan::{ChangePlan, RowShape, Shape};
use crate::error::{Result, SinkError};
use crate::wire::column::span;
use crate::wire::frame::{Part, Parts};
use crate::wire::tagged::{self, Context, TaggedRows};
use crate::wire::tagged_build::TaggedBuilder;
use crate::wire::{Cell, ColumnData, Frame, SourceColumn, SourceKind};

/// The rows of one image.
#[derive(Debug)]
pub struct ImageRows {
    place: Place,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The keys of the frame.
    Keys,
    /// The column of a struct, some of whose fields are other ones.
    Columns {
        shape: Arc<Shape>,
        image: Image,
        blanked: Vec<(usize, Blanked)>,
    },
    /// Values with tags that point into the heap of the frame.
    Raw {
        offsets: Vec<[u8; 4]>,
        data: Vec<u8>,
    },
    /// Values with tags, and their heap.
    Copied(TaggedBuilder, String),
}

/// A column in which some values are null in place of what they were.
#[derive(Debug)]
struct Blanked {
    validity: Vec<u8>,
    null_count: usize,
    /// Of texts and bytes; others keep their data, which nobody looks at below a null.
    data: Option<(Vec<[u8; 4]>, Heap)>,
}

#[derive(Debug)]
enum Heap {
    Text(String),
    Bytes(Vec<u8>),
}

impl ImageRows {
    pub(super) fn of(
        changes: &Changes,
        plan: &mut ChangePlan,
        frame: &Frame<'_>,
        image: Image,
    ) -> Result<ImageRows> {
        let shape = plan.shape(frame);
        let envelope = &plan.config.envelope;
        let place = match image {
            Image::After => Some(&envelope.after),
            Image::Deleted => envelope.deleted_row(),
            Image::Key | Image::None => None,
        };
        let Some(place) = place else {
            return Ok(ImageRows {
                place: Place::Key(String::new()),
                kind: Kind::Keys,
            });
        };
        let place = place.clone();
        let located = place.locate(frame);
        let marked = changes.has_marks();
        let kind = match (located, frame.tagged_values(), &place) {
            (Located::Column(column, ""), ..) if column.schema().kind() == SourceKind::Struct => {
                let blanked = match marked {
                    true => blanked_columns(changes, (&shape, image), column)?,
                    false => Vec::new(),
                };
                Kind::Columns {
                    shape,
                    image,
                    blanked,
                }
            }
            (Located::Value(path), Some(values), Place::Value(_)) => {
                let rewrite = Rewrite {
                    changes: marked.then_some(changes),
                    image,
                    path,
                    without: &envelope.without,
                    is_list: envelope.rows_are_lists,
                };
                raw_rows(changes, values, frame.rows(), &rewrite)?
            }
            _ => copied_rows(changes, plan, frame, image, &located),
        };
        Ok(ImageRows { place, kind })
    }

    /// Returns `frame`, which this was made of, with the rows in place of its values.
    ///
    /// # Errors
    ///
    /// `INTERNAL` when it was made of another frame.
    pub fn frame<'b>(&'b self, frame: &'b Frame<'b>) -> Result<Frame<'b>> {
        let value = match &self.kind {
            Kind::Keys => return Ok(frame.keys_as_values()),
            Kind::Raw { offsets, data } => {
                let text = frame.tagged_values().map(|(_, context)| context.text);
                Part::Tagged(TaggedRows::of(offsets, data), text.unwrap_or_default())
            }
            Kind::Copied(values, heap) => Part::Tagged(values.rows(), heap),
            Kind::Columns {
                shape,
                image,
                blanked,
            } => {
                let Located::Column(column, _) = self.place.locate(frame) else {
                    return Err(SinkError::internal("rows are of another frame"));
                };
                let (schema, column) = columns(shape.of_image(*image), blanked, column);
                Part::Columns(schema, Some(column))
            }
        };
        Ok(frame.with_parts(Parts {
            value: Some(value),
            ..Parts::default()
        }))
    }
}

/// Rows without a field: what is marked as deleted has nothing of its own but where its record came from.
#[derive(Debug)]
pub struct EmptyRows(TaggedBuilder);

impl EmptyRows {
    /// Makes as many as `frame` has rows.
    pub fn of(frame: &Frame<'_>) -> EmptyRows {
        let mut values = TaggedBuilder::default();
        for _ in 0..frame.rows() {
            let at = values.open(tagged::MAP);
            values.close(at, 0);
            values.end_row();
        }
        EmptyRows(values)
    }

    /// Returns `frame`, which this was made of, with these rows in place of its values.
    pub fn frame<'b>(&'b self, frame: &'b Frame<'b>) -> Frame<'b> {
        frame.with_parts(Parts {
            value: Some(Part::Tagged(self.0.rows(), "")),
            ..Parts::default()
        })
    }
}

fn columns<'b>(
    shape: &RowShape,
    blanked: &'b [(usize, Blanked)],
    column: &SourceColumn<'b>,
) -> (Arc<crate::wire::SourceSchema>, SourceColumn<'b>) {
    let children = column.children();
    let all: Vec<usize> = (0..children.len()).collect();
    let (schema, kept) = match &shape.row {
        Some((schema, kept)) => (Arc::clone(schema), kept.as_slice()),
        None => (column.shared_schema(), all.as_slice()),
    };
    if shape.row.is_none() && blanked.is_empty() {
        return (schema, column.clone());
    }
    let child = |index: &usize| {
        let child = children.get(*index)?;
        let found = blanked.iter().find(|(blanked, _)| blanked == index);
        Some(found.map_or_else(|| child.clone(), |(_, blanked)| blanked.column(child)))
    };
    let data = ColumnData::Struct(kept.iter().filter_map(child).collect());
    let column = column.with_data(&schema, data);
    (schema, column)
}

fn blanked_columns(
    changes: &Changes,
    (shape, image): (&Shape, Image),
    column: &SourceColumn<'_>,
) -> Result<Vec<(usize, Blanked)>> {
    let shape = shape.of_image(image);
    let mut blanked = Vec::new();
    for (name_index, name) in changes.names().iter().enumerate() {
        let candidate = shape.candidates.iter().find(|(_, field)| field == name);
        let Some((index, _)) = candidate else {
            continue;
        };
        let is_marked = |row: usize| {
            changes.marks_of(row).any(|marked| marked == name_index) && changes.is_of(row, image)
        };
        if let Some(child) = column.children().get(*index)
            && (0..child.rows()).any(is_marked)
        {
            blanked.push((*index, Blanked::of(child, is_marked)?));
        }
    }
    Ok(blanked)
}

impl Blanked {
    fn of(column: &SourceColumn<'_>, is_marked: impl Fn(usize) -> bool) -> Result<Blanked> {
        let rows = column.rows();
        let mut validity = vec![0; rows.div_ceil(8)];
        let mut null_count = 0;
        let is_null = |row: usize| column.is_null(row) || is_marked(row);
        for row in 0..rows {
            match (is_null(row), validity.get_mut(row / 8)) {
                (false, Some(byte)) => *byte |= 1 << (row % 8),
                _ => null_count += 1,
            }
        }
        let data = match column.data() {
            ColumnData::String { offsets, text } => {
                let (mut ends, mut kept) = (vec![[0; 4]], String::new());
                for row in 0..rows {
                    if !is_null(row) {
                        kept.push_str(text.get(span(offsets, row)).unwrap_or_default());
                    }
                    ends.push(length(kept.len())?);
                }
                Some((ends, Heap::Text(kept)))
            }
            ColumnData::Bytes { offsets, data } => {
                let (mut ends, mut kept) = (vec![[0; 4]], Vec::new());
                for row in 0..rows {
                    if !is_null(row) {
                        let bytes = data.get(span(offsets, row)).unwrap_or_default();
                        kept.extend_from_slice(bytes);
                    }
                    ends.push(length(kept.len())?);
                }
                Some((ends, Heap::Bytes(kept)))
            }
            _ => None,
        };
        Ok(Blanked {
            validity,
            null_count,
            data,
        })
    }

    fn column<'b>(&'b self, column: &SourceColumn<'b>) -> SourceColumn<'b> {
        let data = match &self.data {
            Some((offsets, Heap::Text(text))) => ColumnData::String { offsets, text },
            Some((offsets, Heap::Bytes(data))) => ColumnData::Bytes { offsets, data },
            None => column.data().clone(),
        };
        let nulls = (Some(self.validity.as_slice()), self.null_count);
        SourceColumn::of_parts(&column.shared_schema(), column.rows(), nulls, data)
    }
}

/// How values with tags become rows.
struct Rewrite<'r> {
    /// Where some values are left out.
    changes: Option<&'r Changes>,
    image: Image,
    path: &'r str,
    without: &'r BTreeSet<String>,
    is_list: bool,
}

fn raw_rows(
    changes: &Changes,
    (values, context): (&TaggedRows<'_>, &Context<'_>),
    rows: usize,
    rewrite: &Rewrite<'_>,
) -> Result<Kind> {
    let (mut offsets, mut data) = (vec![[0; 4]], Vec::new());
    let mut wanted = changes
        .changes()
        .iter()
        .filter(|c| c.image == rewrite.image);
    let mut next = wanted.next();
    for row in 0..rows {
        let start = data.len();
        if next.is_some_and(|change| usize::try_from(change.row) == Ok(row)) {
            next = wanted.next();
            let value = values.checked_row(row).and_then(|value| {
                let value = raw_at(value, context, rewrite.path)?;
                match rewrite.is_list {
                    true => tagged::only_item(value, context).or(Some(value)),
                    false => Some(value),
                }
            });
            if let Some(value) = value {
                rewrite.write(value, context, row, &mut data)?;
            }
        }
        if data.len() == start {
            data.push(tagged::NULL);
        }
        offsets.push(length(data.len())?);
    }
    Ok(Kind::Raw { offsets, data })
}

impl Rewrite<'_> {
    fn write(
        &self,
        value: &[u8],
        context: &Context<'_>,
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let is_marked = |name: &str| {
            self.changes.is_some_and(|changes| {
                let mut marks = changes.marks_of(row);
                marks.any(|mark| {
                    changes
                        .names()
                        .get(mark)
                        .is_some_and(|marked| &**marked == name)
                })
            })
        };
        let changed = self
            .changes
            .is_some_and(|changes| changes.marks_of(row).next().is_some());
        if self.without.is_empty() && !changed {
            out.extend_from_slice(value);
            return Ok(());
        }
        out.push(tagged::MAP);
        let head = out.len();
        out.extend_from_slice(&[0; 8]);
        let mut count = 0;
        let walked = tagged::for_entries(value, context, |key, value| {
            let name = match tagged::read(key, context) {
                Ok(Cell::String(name)) => name,
                _ => "",
            };
            if self.without.contains(name) {
                return;
            }
            out.extend_from_slice(key);
            match is_marked(name) {
                true => out.push(tagged::NULL),
                false => out.extend_from_slice(value),
            }
            count += 1;
        });
        if walked.is_none() {
            out.truncate(head - 1);
            out.extend_from_slice(value);
            return Ok(());
        }
        let bytes = length(out.len() - head - 8)?;
        let count = length(count)?;
        for (at, part) in [(head, bytes), (head + 4, count)] {
            if let Some(place) = out.get_mut(at..at + 4) {
                place.copy_from_slice(&part);
            }
        }
        Ok(())
    }
}

/// Follows a path below a value with tags.
fn raw_at<'a>(mut value: &'a [u8], context: &Context<'a>, mut path: &str) -> Option<&'a [u8]> {
    while !path.is_empty() {
        if let Some(found) = tagged::entry(value, context, path) {
            return Some(found);
        }
        let (head, rest) = path.split_once('.')?;
        value = tagged::entry(value, context, head)?;
        path = rest;
    }
    Some(value)
}

fn copied_rows(
    changes: &Changes,
    plan: &ChangePlan,
    frame: &Frame<'_>,
    image: Image,
    located: &Located<'_>,
) -> Kind {
    let envelope = &plan.config.envelope;
    let (mut values, mut heap) = (TaggedBuilder::default(), String::new());
    let mut wanted = changes.changes().iter().filter(|c| c.image == image);
    let mut next = wanted.next();
    for row in 0..frame.rows() {
        if next.is_some_and(|change| usize::try_from(change.row) == Ok(row)) {
            next = wanted.next();
            let cell = match located.cell(frame, row) {
                Cell::Array(list) if envelope.rows_are_lists => list.get(0),
                cell => cell,
            };
            let Cell::Map(map) = cell else {
                values.cell(cell, &mut heap);
                values.end_row();
                continue;
            };
            let at = values.open(tagged::MAP);
            let mut count = 0;
            for entry in map.entries() {
                let name = match entry.key {
                    Cell::String(name) => name,
                    _ => "",
                };
                if envelope.without.contains(name) {
                    continue;
                }
                let mut marks = changes.marks_of(row);
                let names = changes.names();
                let is_marked = marks.any(|mark| names.get(mark).is_some_and(|m| &**m == name));
                values.cell(entry.key, &mut heap);
                match is_marked {
                    true => values.null(),
                    false => values.cell(entry.value, &mut heap),
                }
                count += 1;
            }
            values.close(at, count);
        }
        values.end_row();
    }
    Kind::Copied(values, heap)
}

fn length(length: usize) -> Result<[u8; 4]> {
    u32::try_from(length)
        .map(u32::to_le_bytes)
        .map_err(|_| SinkError::internal("the rows of changes outgrew their frame"))
}
