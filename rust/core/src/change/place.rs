//! Where something stands in a record: in its value, key or headers.

use serde::Deserialize;

use crate::schema::semantic::Semantic;
use crate::wire::{Cell, Frame, SourceColumn, SourceKind};

/// A place in a record, written `value`, `value.<path>`, `key`, `key.<path>` or `header.<name>`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Place {
    /// The value, or what its dotted path leads to.
    Value(String),
    /// The key, or what its dotted path leads to.
    Key(String),
    /// The last header of this name.
    Header(String),
}

impl Place {
    /// Reads a place.
    pub fn parse(text: &str) -> Option<Place> {
        let (kind, rest) = text.split_once('.').unwrap_or((text, ""));
        if rest.is_empty() && text.contains('.') {
            return None;
        }
        let rest = rest.to_owned();
        match kind {
            "value" => Some(Place::Value(rest)),
            "key" => Some(Place::Key(rest)),
            "header" if !rest.is_empty() => Some(Place::Header(rest)),
            _ => None,
        }
    }

    /// Finds what the rows of `frame` have in common: the column, where a schema tells it.
    pub(super) fn locate<'f>(&'f self, frame: &'f Frame<'_>) -> Located<'f> {
        let column = |column: Option<&'f SourceColumn<'f>>, path: &'f str| {
            column.map(|column| descend(column, path))
        };
        match self {
            Place::Header(name) => Located::Header(name),
            Place::Value(path) => {
                column(frame.value_column(), path).unwrap_or(Located::Value(path))
            }
            Place::Key(path) => column(frame.key_column(), path).unwrap_or(Located::Key(path)),
        }
    }
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Place::parse(&text).ok_or_else(|| {
            format!("`{text}` is no place: write `value.<path>`, `key.<path>` or `header.<name>`")
        })
    }
}

/// A place in the records of one frame.
#[derive(Debug, Clone, Copy)]
pub(super) enum Located<'f> {
    /// No row has it.
    Absent,
    /// A column, and the path that is left below it.
    Column(&'f SourceColumn<'f>, &'f str),
    Value(&'f str),
    Key(&'f str),
    Header(&'f str),
}

impl<'f> Located<'f> {
    /// Returns what stands there in `row`, null when nothing does.
    pub(super) fn cell(&self, frame: &'f Frame<'_>, row: usize) -> Cell<'f> {
        match self {
            Located::Absent => Cell::Null,
            Located::Column(column, path) => walk(column.cell(row), path),
            Located::Value(path) => walk(frame.value(row), path),
            Located::Key(path) => walk(frame.key(row), path),
            Located::Header(name) => {
                let headers = frame.headers(row);
                let found = headers.and_then(|headers| headers.get(name));
                found.unwrap_or(Cell::Null)
            }
        }
    }

    /// Tells what the values mean, where it is the same for all rows.
    pub(super) fn semantic(&self) -> Semantic {
        match self {
            Located::Column(column, "") => Semantic::of(column.schema()),
            Located::Column(..) => Semantic::Plain,
            _ => Semantic::Schemaless,
        }
    }
}

/// Goes down as far as the schema tells, once for all rows.
fn descend<'f>(column: &'f SourceColumn<'f>, path: &'f str) -> Located<'f> {
    let Some((column, path)) = column.descend(path) else {
        return Located::Absent;
    };
    match (path, column.schema().kind()) {
        ("", _) | (_, SourceKind::Map) => Located::Column(column, path),
        _ => Located::Absent,
    }
}

/// Follows `path` below `cell`; null where it does not lead anywhere. A name that has dots in it is
/// found too.
pub(super) fn walk<'c>(mut cell: Cell<'c>, mut path: &str) -> Cell<'c> {
    while !path.is_empty() {
        if let Some(found) = field(&cell, path) {
            return found;
        }
        let Some((head, rest)) = path.split_once('.') else {
            return Cell::Null;
        };
        let Some(below) = field(&cell, head) else {
            return Cell::Null;
        };
        (cell, path) = (below, rest);
    }
    cell
}

/// Returns the row of a list that has one, where rows are lists; what else there is by itself.
pub(super) fn only_row(cell: Cell<'_>) -> Cell<'_> {
    match cell {
        Cell::Array(list) if list.len() == 1 => list.get(0),
        other => other,
    }
}

/// Returns the field `name` of a record.
pub(super) fn field<'c>(cell: &Cell<'c>, name: &str) -> Option<Cell<'c>> {
    match cell {
        Cell::Struct(fields) => fields.get(name),
        Cell::Map(entries) => entries.get(name),
        _ => None,
    }
}
