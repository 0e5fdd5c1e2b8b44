//! What a record is routed by: its topic, or a text in its value, key or headers.

use std::fmt::Write;

use crate::error::{Result, SinkError};
use crate::wire::{Cell, Frame, Run, SourceColumn};

/// Where the text stands that a record is routed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteSource {
    /// The record's topic, as transforms left it.
    Topic,
    /// A field of the value, by its dotted path.
    Value(String),
    /// The whole key.
    Key,
    /// A field of the key, by its dotted path.
    KeyField(String),
    /// The last header of this name.
    Header(String),
}

impl RouteSource {
    /// Reads `topic`, `key`, `key.<path>`, `value.<path>` or `header.<name>`.
    pub fn parse(text: &str) -> Option<RouteSource> {
        match text {
            "topic" => return Some(RouteSource::Topic),
            "key" => return Some(RouteSource::Key),
            _ => {}
        }
        let (kind, rest) = text.split_once('.')?;
        let rest = rest.to_owned();
        match kind {
            _ if rest.is_empty() => None,
            "value" => Some(RouteSource::Value(rest)),
            "key" => Some(RouteSource::KeyField(rest)),
            "header" => Some(RouteSource::Header(rest)),
            _ => None,
        }
    }

    /// Tells whether all records of a run have the same text.
    pub fn is_topic(&self) -> bool {
        *self == RouteSource::Topic
    }

    /// Tells whether the record's key is looked at.
    pub fn needs_key(&self) -> bool {
        matches!(self, RouteSource::Key | RouteSource::KeyField(_))
    }

    /// Tells whether the record's headers are looked at.
    pub fn needs_headers(&self) -> bool {
        matches!(self, RouteSource::Header(_))
    }

    /// Finds what the rows of `frame` have in common.
    pub(super) fn locate<'f>(&'f self, frame: &'f Frame<'_>) -> Located<'f> {
        match self {
            RouteSource::Topic => Located::Topic,
            RouteSource::Header(name) => Located::Header(name),
            RouteSource::Key => Located::Key(""),
            RouteSource::Value(path) => {
                let column = frame.value_column().map(|column| descend(column, path));
                column.unwrap_or(Located::Value(path))
            }
            RouteSource::KeyField(path) => {
                let column = frame.key_column().map(|column| descend(column, path));
                column.unwrap_or(Located::Key(path))
            }
        }
    }
}

/// A source in one frame.
#[derive(Debug, Clone, Copy)]
pub(super) enum Located<'f> {
    Topic,
    Header(&'f str),
    /// No row has it.
    Absent,
    /// A column, and the path that is left below it.
    Column(&'f SourceColumn<'f>, &'f str),
    Value(&'f str),
    Key(&'f str),
}

/// Goes down as far as the schema tells, once for all rows.
fn descend<'f>(column: &'f SourceColumn<'f>, path: &'f str) -> Located<'f> {
    match column.descend(path) {
        Some((column, path)) => Located::Column(column, path),
        None => Located::Absent,
    }
}

/// Follows `path` below `cell`. A name that has dots in it is found too.
pub(crate) fn walk<'c>(mut cell: Cell<'c>, mut path: &str) -> Result<Cell<'c>> {
    while !path.is_empty() {
        let get = |name: &str| match &cell {
            Cell::Struct(fields) => Some(fields.get(name)),
            Cell::Map(entries) => Some(entries.get(name)),
            _ => None,
        };
        if cell.is_null() {
            return Ok(Cell::Null);
        }
        let Some(whole) = get(path) else {
            return Err(not_a_struct(&cell));
        };
        if let Some(found) = whole {
            return Ok(found);
        }
        let Some((head, rest)) = path.split_once('.') else {
            return Ok(Cell::Null);
        };
        let below = get(head).flatten().unwrap_or(Cell::Null);
        (cell, path) = (below, rest);
    }
    Ok(cell)
}

impl Located<'_> {
    /// Appends the text of `row` to `out`; `false` when the record has none.
    ///
    /// # Errors
    ///
    /// `ROUTE_PATH_INVALID` and `ROUTE_VALUE_UNSUPPORTED` for the record.
    pub(super) fn write(
        &self,
        frame: &Frame<'_>,
        run: &Run<'_>,
        row: usize,
        out: &mut String,
    ) -> Result<bool> {
        let cell = match self {
            Located::Topic => {
                out.push_str(run.topic());
                return Ok(true);
            }
            Located::Absent => return Ok(false),
            Located::Header(name) => {
                let headers = frame.headers(row);
                headers
                    .and_then(|headers| headers.get(name))
                    .unwrap_or(Cell::Null)
            }
            Located::Column(column, path) => walk(column.cell(row), path)?,
            Located::Value(path) => walk(frame.value(row), path)?,
            Located::Key(path) => walk(frame.key(row), path)?,
        };
        // Writing to a string cannot fail.
        let _ = match cell {
            Cell::Null => return Ok(false),
            Cell::String(text) => out.write_str(text),
            Cell::Bool(truth) => write!(out, "{truth}"),
            Cell::Int8(number) => write!(out, "{number}"),
            Cell::Int16(number) => write!(out, "{number}"),
            Cell::Int32(number) => write!(out, "{number}"),
            Cell::Int64(number) => write!(out, "{number}"),
            other => return Err(no_text(&other)),
        };
        Ok(true)
    }
}

fn not_a_struct(cell: &Cell<'_>) -> SinkError {
    SinkError::data(
        "ROUTE_PATH_INVALID",
        format!(
            "the path that the record is routed by leads into a value of type {}, which has no \
             fields; correct `iceberg.tables.route-field`",
            cell.type_name()
        ),
    )
}

fn no_text(cell: &Cell<'_>) -> SinkError {
    SinkError::data(
        "ROUTE_VALUE_UNSUPPORTED",
        format!(
            "the record is routed by a value of type {}; only texts, whole numbers and booleans \
             name tables",
            cell.type_name()
        ),
    )
}
