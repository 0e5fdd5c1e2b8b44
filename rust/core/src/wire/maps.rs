//! Records without a schema, stored column by column: what a decoder makes of JSON objects.
//!
//! To look at, each row is a map as Java would have sent it. A column has the name of a field and
//! its values: of one type in all rows that have one, or each with its tag. A row that has no such
//! field differs from one whose field is null.

use super::column::SourceColumn;
use super::tagged::{Context, TaggedRows};
use super::value::{Cell, MapCell, MapEntry};

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
