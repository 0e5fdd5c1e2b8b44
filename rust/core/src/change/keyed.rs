//! Where the values of a key, or of what orders changes, stand in the records of a frame.

use super::columns::ColumnNames;
use super::place::{Located, only_row};
use crate::schema::semantic::Semantic;
use crate::wire::{Cell, Frame, SourceKind};

/// A value of a key, and what its schema says that it means.
pub(super) type Keyed<'f> = (Cell<'f>, Semantic);

/// No value.
pub(super) const NOTHING: Keyed<'static> = (Cell::Null, Semantic::Schemaless);

/// Where some columns of the table stand below one place.
pub(super) struct KeySource<'f> {
    pub(super) base: Located<'f>,
    names: &'f [ColumnNames],
    /// The columns that a schema tells.
    columns: Vec<Option<Located<'f>>>,
    /// Whether rows are lists of one row.
    in_list: bool,
    /// Whether what is no record is the value of the only column.
    bare: bool,
}

impl<'f> KeySource<'f> {
    pub(super) fn new(base: Located<'f>, names: &'f [ColumnNames], in_list: bool) -> Self {
        let find = |names: &'f ColumnNames| match base {
            Located::Column(column, "") if column.schema().kind() == SourceKind::Struct => {
                names.locate(column)
            }
            _ => None,
        };
        KeySource {
            base,
            names,
            columns: names.iter().map(find).collect(),
            in_list,
            bare: false,
        }
    }

    /// As it is, but what is no record is the value of the only column if `bare`.
    pub(super) fn bare(self, bare: bool) -> Self {
        KeySource { bare, ..self }
    }

    /// Returns the value of column `index`, null when it is not here.
    pub(super) fn cell(&self, frame: &'f Frame<'f>, row: usize, index: usize) -> Keyed<'f> {
        if let Some(Some(located)) = self.columns.get(index) {
            return (located.cell(frame, row), located.semantic());
        }
        let mut base = self.base.cell(frame, row);
        if self.in_list {
            base = only_row(base);
        }
        match (&base, self.names.get(index)) {
            (Cell::Struct(_) | Cell::Map(_), Some(names)) => {
                (names.cell(base), self.base.semantic())
            }
            (Cell::Struct(_) | Cell::Map(_) | Cell::Array(_), _) => NOTHING,
            _ if self.bare && self.columns.len() == 1 => (base, self.base.semantic()),
            _ => NOTHING,
        }
    }

    /// Tells whether the row has a value for column `index` here.
    pub(super) fn has(&self, frame: &'f Frame<'f>, row: usize, index: usize) -> bool {
        !self.cell(frame, row, index).0.is_null()
    }
}
