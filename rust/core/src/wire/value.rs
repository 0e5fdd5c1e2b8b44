//! One value of a record as the converter sees it, wherever it lies in the frame.
//!
//! A [`Cell`] borrows from its frame and is `Copy`; nothing is allocated to look at a value.
//! Java's conversions are already done: logical types arrive as `Decimal`, `Date`, `Time` and
//! `Timestamp`, and a name that a schemaless map repeats arrives as the same `&str`.

use super::column::SourceColumn;
use super::maps::MapRows;
use super::schema::{SourceField, SourceSchema};
use super::tagged::{Context, TaggedItems};

/// A value. `Date`, `Time` and `Timestamp` are floored, so 1 ms before the epoch is 1969-12-31.
#[derive(Debug, Clone, Copy)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An 8-bit integer.
    Int8(i8),
    /// A 16-bit integer.
    Int16(i16),
    /// A 32-bit integer.
    Int32(i32),
    /// A 64-bit integer.
    Int64(i64),
    /// A 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float64(f64),
    /// Text.
    String(&'a str),
    /// Raw bytes.
    Bytes(&'a [u8]),
    /// An exact decimal number, `unscaled / 10^scale`.
    Decimal {
        /// Two's complement, big-endian, at least one byte.
        unscaled: &'a [u8],
        /// Digits after the point; may be negative.
        scale: i32,
    },
    /// A number of a text such as JSON, exact, that a 64-bit float would hold with other digits.
    Number {
        /// The digits with their sign, at most 17.
        unscaled: i64,
        /// Digits after the point; may be negative.
        scale: i32,
    },
    /// A day.
    Date {
        /// Days since 1970-01-01.
        days: i32,
    },
    /// A time of day.
    Time {
        /// Milliseconds since midnight, as Java gave them: the range is not checked.
        ms: i32,
    },
    /// A moment.
    Timestamp {
        /// Milliseconds since the epoch, UTC.
        ms: i64,
    },
    /// A time of day of `java.time`, without a schema.
    ClockTime {
        /// Nanoseconds since midnight.
        nanos: i64,
    },
    /// A timestamp of `java.time`, without a schema.
    Moment {
        /// Seconds since the epoch.
        seconds: i64,
        /// Nanoseconds of the second.
        nanos: i32,
        /// Whether it is a point in time, not the reading of a clock without zone.
        zoned: bool,
    },
    /// The 16 bytes of a `java.util.UUID`, without a schema.
    Uuid(&'a [u8]),
    /// A list.
    Array(ArrayCell<'a>),
    /// A map, ordered as Java iterated it.
    Map(MapCell<'a>),
    /// A record with a schema.
    Struct(StructCell<'a>),
}

impl Cell<'_> {
    /// Tells whether there is no value.
    pub fn is_null(&self) -> bool {
        matches!(self, Cell::Null)
    }

    /// Returns the name of this value's type for messages; never the value.
    pub fn type_name(&self) -> &'static str {
        match self {
            Cell::Null => "null",
            Cell::Bool(_) => "boolean",
            Cell::Int8(_) => "int8",
            Cell::Int16(_) => "int16",
            Cell::Int32(_) => "int32",
            Cell::Int64(_) => "int64",
            Cell::Float32(_) => "float32",
            Cell::Float64(_) => "float64",
            Cell::String(_) => "string",
            Cell::Bytes(_) => "bytes",
            Cell::Decimal { .. } => "decimal",
            Cell::Number { .. } => "number",
            Cell::Date { .. } => "date",
            Cell::Time { .. } => "time",
            Cell::Timestamp { .. } => "timestamp",
            Cell::ClockTime { .. } => "time",
            Cell::Moment { .. } => "timestamp",
            Cell::Uuid(_) => "uuid",
            Cell::Array(_) => "array",
            Cell::Map(_) => "map",
            Cell::Struct(_) => "struct",
        }
    }
}

/// Where the items of a list or map lie.
#[derive(Debug, Clone, Copy)]
enum Items<'a, C> {
    Columns {
        of: C,
        start: usize,
        len: usize,
    },
    Tagged(TaggedItems<'a>),
    /// The fields of one row that has a column for each; of maps only.
    Row {
        of: &'a MapRows<'a>,
        row: usize,
    },
}

/// A list. Prefer `iter`: `get` of a schemaless list walks the items before it.
#[derive(Debug, Clone, Copy)]
pub struct ArrayCell<'a>(Items<'a, &'a SourceColumn<'a>>);

impl<'a> ArrayCell<'a> {
    pub(crate) fn of_column(of: &'a SourceColumn<'a>, start: usize, len: usize) -> Self {
        ArrayCell(Items::Columns { of, start, len })
    }

    pub(crate) fn of_tagged(items: TaggedItems<'a>) -> Self {
        ArrayCell(Items::Tagged(items))
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Items::Columns { len, .. } => *len,
            Items::Tagged(items) => items.len(),
            Items::Row { .. } => 0,
        }
    }

    /// Tells whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the element at `index`, null past the end.
    pub fn get(&self, index: usize) -> Cell<'a> {
        self.iter_from(index).next().unwrap_or(Cell::Null)
    }

    /// Walks the elements.
    pub fn iter(&self) -> impl Iterator<Item = Cell<'a>> + use<'a> {
        self.iter_from(0)
    }

    fn iter_from(&self, index: usize) -> impl Iterator<Item = Cell<'a>> + use<'a> {
        let mut items = *self;
        let mut next = index;
        if let Items::Tagged(tagged) = &mut items.0 {
            tagged.skip_items(index);
        }
        let end = self.len();
        std::iter::from_fn(move || {
            let index = next;
            next = next.saturating_add(1);
            match &mut items.0 {
                _ if index >= end => None,
                Items::Columns { of, start, .. } => Some(of.cell(*start + index)),
                Items::Tagged(tagged) => tagged.next_value(),
                Items::Row { .. } => None,
            }
        })
    }

    /// Returns the schema of the elements when the list has one.
    pub fn element_schema(&self) -> Option<&'a SourceSchema> {
        match self.0 {
            Items::Columns { of, .. } => Some(of.schema()),
            Items::Tagged(_) | Items::Row { .. } => None,
        }
    }
}

/// An entry of a map.
#[derive(Debug, Clone, Copy)]
pub struct MapEntry<'a> {
    /// The key.
    pub key: Cell<'a>,
    /// The index of the key in `Frame::names` when it is an interned string.
    pub name_index: Option<usize>,
    /// The value.
    pub value: Cell<'a>,
}

/// A map. Prefer `entries`: `entry` of a schemaless map walks the entries before it.
#[derive(Debug, Clone, Copy)]
pub struct MapCell<'a>(Items<'a, (&'a SourceColumn<'a>, &'a SourceColumn<'a>)>);

impl<'a> MapCell<'a> {
    pub(crate) fn of_columns(
        of: (&'a SourceColumn<'a>, &'a SourceColumn<'a>),
        start: usize,
        len: usize,
    ) -> Self {
        MapCell(Items::Columns { of, start, len })
    }

    /// A map without entries.
    pub(crate) fn empty(context: &'a Context<'a>) -> Self {
        MapCell(Items::Tagged(TaggedItems::empty(context)))
    }

    pub(crate) fn of_tagged(items: TaggedItems<'a>) -> Self {
        MapCell(Items::Tagged(items))
    }

    pub(crate) fn of_row(of: &'a MapRows<'a>, row: usize) -> Self {
        MapCell(Items::Row { of, row })
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match &self.0 {
            Items::Columns { len, .. } => *len,
            Items::Tagged(items) => items.len(),
            Items::Row { of, row } => of.count(*row),
        }
    }

    /// Tells whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns key and value of the entry at `index`, nulls past the end.
    pub fn entry(&self, index: usize) -> (Cell<'a>, Cell<'a>) {
        let entry = self.entries().nth(index);
        entry.map_or((Cell::Null, Cell::Null), |entry| (entry.key, entry.value))
    }

    /// Walks the entries.
    pub fn entries(&self) -> impl Iterator<Item = MapEntry<'a>> + use<'a> {
        let mut items = *self;
        let mut next = 0;
        let end = match &self.0 {
            Items::Row { of, .. } => of.columns().len(),
            _ => self.len(),
        };
        std::iter::from_fn(move || {
            let index = next;
            next += 1;
            match &mut items.0 {
                Items::Row { of, row } => {
                    let entry = of.next_entry(*row, index)?;
                    next = entry.name_index.map_or(end, |index| index + 1);
                    Some(entry)
                }
                _ if index >= end => None,
                Items::Columns { of, start, .. } => Some(MapEntry {
                    key: of.0.cell(*start + index),
                    name_index: None,
                    value: of.1.cell(*start + index),
                }),
                Items::Tagged(tagged) => tagged.next_entry(),
            }
        })
    }

    /// Returns the value of the last entry whose key is the string `name`.
    pub fn get(&self, name: &str) -> Option<Cell<'a>> {
        let named = |entry: &MapEntry| matches!(entry.key, Cell::String(key) if key == name);
        self.entries().filter(named).last().map(|entry| entry.value)
    }

    /// Returns the schemas of keys and values when the map has them.
    pub fn entry_schemas(&self) -> Option<(&'a SourceSchema, &'a SourceSchema)> {
        match self.0 {
            Items::Columns { of, .. } => Some((of.0.schema(), of.1.schema())),
            Items::Tagged(_) | Items::Row { .. } => None,
        }
    }
}

/// A record with a schema: one row of a struct column.
#[derive(Debug, Clone, Copy)]
pub struct StructCell<'a> {
    column: &'a SourceColumn<'a>,
    row: usize,
}

impl<'a> StructCell<'a> {
    pub(crate) fn new(column: &'a SourceColumn<'a>, row: usize) -> Self {
        StructCell { column, row }
    }

    /// Returns the schema of the struct.
    pub fn schema(&self) -> &'a SourceSchema {
        self.column.schema()
    }

    /// Returns the fields of the schema, in the order of `field`.
    pub fn fields(&self) -> &'a [SourceField] {
        self.column.schema().fields()
    }

    /// Returns the value of the field at `index`, null past the last one.
    pub fn field(&self, index: usize) -> Cell<'a> {
        let column = self.column.children().get(index);
        column.map_or(Cell::Null, |column| column.cell(self.row))
    }

    /// Returns the value of the field called `name`.
    pub fn get(&self, name: &str) -> Option<Cell<'a>> {
        let (index, _) = self.column.schema().field(name)?;
        Some(self.field(index))
    }
}

/// The interned names of a frame, for messages and caches.
pub(crate) fn names<'c>(context: &'c Context<'_>) -> &'c [&'c str] {
    &context.names
}
