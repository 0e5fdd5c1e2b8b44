//! Records without a schema, stored column by column: what a decoder makes of JSON objects, and what
//! Java sends of plain ones.
//!
//! To look at, each row is a map as Java would have sent it. A column has the name of a field and
//! its values: of one type in all rows that have one, or each with its tag. A row that has no such
//! field differs from one whose field is null.

use std::sync::{Arc, LazyLock};

use super::column::SourceColumn;
use super::read::Reader;
use super::schema::{SourceKind, SourceSchema};
use super::tagged::{Context, TaggedRows};
use super::value::{Cell, MapCell, MapEntry};
use crate::error::Result;

/// What a column of plain records has, by its kind.
pub(crate) const KIND_NOTHING: u8 = 0;
pub(crate) const KIND_BOOLEAN: u8 = 1;
pub(crate) const KIND_INT64: u8 = 2;
pub(crate) const KIND_FLOAT64: u8 = 3;
pub(crate) const KIND_STRING: u8 = 4;
pub(crate) const KIND_TAGGED: u8 = 5;

/// The schemas of values of one type in records that have none.
#[derive(Debug)]
pub(crate) struct PlainSchemas {
    pub(crate) bool: Arc<SourceSchema>,
    pub(crate) int: Arc<SourceSchema>,
    pub(crate) float: Arc<SourceSchema>,
    pub(crate) text: Arc<SourceSchema>,
}

/// One of each.
pub(crate) static PLAIN_SCHEMAS: LazyLock<PlainSchemas> = LazyLock::new(|| {
    let schema = |kind| Arc::new(SourceSchema::scalar(kind).optional());
    PlainSchemas {
        bool: schema(SourceKind::Boolean),
        int: schema(SourceKind::Int64),
        float: schema(SourceKind::Float64),
        text: schema(SourceKind::String),
    }
});

/// The values of a field.
#[derive(Debug, Clone)]
pub(crate) enum MapValues<'a> {
    /// All values have one type; nulls are nulls or absent.
    Typed(SourceColumn<'a>),
    /// Each value has its own type.
    Tagged(TaggedRows<'a>),
    /// No row has a value.
    Null,
}

/// A field of the records of a frame.
#[derive(Debug, Clone)]
pub struct MapColumn<'a> {
    pub(crate) values: MapValues<'a>,
    /// A byte per row, not 0 where the record has the field; `None` when all have.
    pub(crate) present: Option<&'a [u8]>,
}

/// Records without a schema.
#[derive(Debug, Clone)]
pub struct MapRows<'a> {
    rows: usize,
    /// A byte per row, 1 where there is no record; `None` when there is everywhere.
    nulls: Option<&'a [u8]>,
    columns: Vec<MapColumn<'a>>,
    /// The names of the columns, and the texts of tagged values.
    context: Context<'a>,
}

impl<'a> MapColumn<'a> {
    fn decode(reader: &mut Reader<'a>, rows: usize, context: &Context<'a>) -> Result<Self> {
        let schemas = &*PLAIN_SCHEMAS;
        let kind = reader.u8()?;
        let present = flags(reader, rows)?;
        let schema = match kind {
            KIND_NOTHING | KIND_TAGGED => None,
            KIND_BOOLEAN => Some(&schemas.bool),
            KIND_INT64 => Some(&schemas.int),
            KIND_FLOAT64 => Some(&schemas.float),
            KIND_STRING => Some(&schemas.text),
            _ => return Err(reader.corrupt("kind of column is unknown")),
        };
        let values = match schema {
            Some(schema) => MapValues::Typed(SourceColumn::decode(reader, schema, rows, 1)?),
            None if kind == KIND_TAGGED => {
                MapValues::Tagged(TaggedRows::decode(reader, rows, context)?)
            }
            None => MapValues::Null,
        };
        let has_value = |row| match &values {
            MapValues::Typed(values) => !values.is_null(row),
            MapValues::Tagged(values) => !values.is_null(row),
            MapValues::Null => false,
        };
        let absent = |present: &[u8]| {
            let mut rows = present.iter().enumerate();
            rows.any(|(row, present)| *present == 0 && has_value(row))
        };
        match present.is_some_and(absent) {
            true => Err(reader.corrupt("record without a field has its value")),
            false => Ok(MapColumn { values, present }),
        }
    }
}

/// Reads a byte for each row, 0 or 1, where there are some.
fn flags<'a>(reader: &mut Reader<'a>, rows: usize) -> Result<Option<&'a [u8]>> {
    let flags = match reader.u8()? {
        0 => return Ok(None),
        1 => reader.take(rows)?,
        _ => return Err(reader.corrupt("flag is neither 0 nor 1")),
    };
    match flags.iter().fold(0, |all, flag| all | flag) {
        0 | 1 => Ok(Some(flags)),
        _ => Err(reader.corrupt("flag is neither 0 nor 1")),
    }
}

impl MapColumn<'_> {
    /// Tells whether the record of `row` has the field, be it null.
    pub fn is_present(&self, row: usize) -> bool {
        self.present
            .is_none_or(|present| present.get(row).is_some_and(|byte| *byte != 0))
    }

    /// Tells whether all records have the field.
    pub fn is_always_present(&self) -> bool {
        self.present.is_none()
    }
}

impl<'a> MapRows<'a> {
    /// Reads the records of a frame ("Records in columns" in `docs/wire-format.md`); `context` has the
    /// frame's names and texts.
    pub(crate) fn decode(
        reader: &mut Reader<'a>,
        rows: usize,
        context: &Context<'a>,
    ) -> Result<Self> {
        let nulls = flags(reader, rows)?;
        // A name, a kind and whether all have it: what the least column takes.
        let count = reader.count(6)?;
        let mut columns = Vec::with_capacity(count);
        let mut own = Context {
            text: context.text,
            names: Vec::with_capacity(count),
        };
        let mut is_used = vec![false; context.names.len()];
        for _ in 0..count {
            let index = reader.length()?;
            let (Some(name), Some(is_used)) = (context.names.get(index), is_used.get_mut(index))
            else {
                return Err(reader.corrupt("name index is unknown"));
            };
            if std::mem::replace(is_used, true) {
                return Err(reader.corrupt("name has two columns"));
            }
            own.names.push(*name);
            columns.push(MapColumn::decode(reader, rows, context)?);
        }
        Ok(MapRows::new(rows, nulls, columns, own))
    }

    /// Makes rows of columns that are as many as the context's names and have `rows` values each.
    pub(crate) fn new(
        rows: usize,
        nulls: Option<&'a [u8]>,
        columns: Vec<MapColumn<'a>>,
        context: Context<'a>,
    ) -> Self {
        MapRows {
            rows,
            nulls,
            columns,
            context,
        }
    }

    /// Returns the columns.
    pub fn columns(&self) -> &[MapColumn<'a>] {
        &self.columns
    }

    /// Returns the names of the columns.
    pub fn names(&self) -> &[&'a str] {
        &self.context.names
    }

    /// Returns the values of a column whose values have one type, for loops over whole columns.
    pub fn typed(&self, column: usize) -> Option<&SourceColumn<'a>> {
        match &self.columns.get(column)?.values {
            MapValues::Typed(values) => Some(values),
            MapValues::Tagged(_) | MapValues::Null => None,
        }
    }

    /// Returns the value of `row` in a column; null also where the record does not have the field.
    pub fn cell(&self, column: usize, row: usize) -> Cell<'_> {
        match self.columns.get(column).map(|column| &column.values) {
            Some(MapValues::Typed(values)) => values.cell(row),
            Some(MapValues::Tagged(values)) => values.cell(&self.context, row),
            Some(MapValues::Null) | None => Cell::Null,
        }
    }

    /// Tells whether `row` has no record.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        let is_null = |nulls: &[u8]| nulls.get(row).is_none_or(|byte| *byte == 1);
        row >= self.rows || self.nulls.is_some_and(is_null)
    }

    /// Tells whether some row has no record.
    pub(crate) fn has_nulls(&self) -> bool {
        self.nulls.is_some()
    }

    pub(crate) fn record(&self, row: usize) -> Cell<'_> {
        match self.is_null(row) {
            true => Cell::Null,
            false => Cell::Map(MapCell::of_row(self, row)),
        }
    }

    /// Returns how many fields the record of `row` has.
    pub(crate) fn count(&self, row: usize) -> usize {
        let columns = self.columns.iter();
        columns.filter(|column| column.is_present(row)).count()
    }

    /// Returns the first entry of a row from the column `from` on.
    pub(crate) fn next_entry(&self, row: usize, from: usize) -> Option<MapEntry<'_>> {
        let columns = self.columns.iter().enumerate().skip(from);
        let (index, _) = columns
            .into_iter()
            .find(|(_, column)| column.is_present(row))?;
        Some(MapEntry {
            key: Cell::String(self.context.names.get(index)?),
            name_index: Some(index),
            value: self.cell(index, row),
        })
    }
}
