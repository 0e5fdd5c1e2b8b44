//! Records without a schema, built field by field into columns.
//!
//! Each field is a column with the type of its first value; one value of another type turns the
//! column of this block into tagged values. So the usual block, whose fields keep their types, is
//! copied column by column (`convert::maps`), and nothing is lost of one that is not.
//!
//! Keeps: a row that is abandoned leaves nothing. Names stay from block to block, so that they are
//! found in the order in which they come; the records of a block have theirs in the order of that
//! block, which is the order that new columns of a table get.

use std::collections::BTreeMap;

use super::json::nested::write_number;
use super::json::number::Number;
use super::refused::Refused;
use crate::limits::SCHEMA_FIELDS_MAX;
use crate::wire::maps::{MapColumn, MapRows, MapValues, PLAIN_SCHEMAS};
use crate::wire::tagged::Context;
use crate::wire::tagged_build::TaggedBuilder;
use crate::wire::{ColumnData, SourceColumn};

/// Names that are kept although a block did not have them.
const NAMES_KEPT: usize = 512;

/// Names with which a block ends before its next record.
const NAMES_MAX: usize = 4_096;

const ABSENT: u8 = 0;
const VALUE: u8 = 1;
const NULL: u8 = 2;
const ALL: [u8; 64] = [VALUE; 64];

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// None has been seen yet.
    Unknown,
    Bool,
    Int,
    Float,
    Text,
    Tagged,
}

/// The values of one field.
#[derive(Debug)]
pub(crate) struct FieldColumn {
    name: Box<str>,
    /// The name as JSON has it most often: quoted, between comma and colon.
    pattern: Option<Box<[u8]>>,
    kind: Kind,
    /// A byte per row.
    states: Vec<u8>,
    bools: Vec<u8>,
    numbers: Vec<[u8; 8]>,
    offsets: Vec<[u8; 4]>,
    text: String,
    tagged: TaggedBuilder,
    /// What is worked out when the block ends.
    validity: Vec<u8>,
    null_count: usize,
    is_always_present: bool,
    /// It stands in the order of the block at hand.
    is_listed: bool,
}

/// The columns of a block.
#[derive(Debug, Default)]
pub(crate) struct MapsBuilder {
    columns: Vec<FieldColumn>,
    indexes: BTreeMap<Box<str>, usize>,
    /// The columns of the block at hand, in the order in which they came.
    order: Vec<usize>,
    heap: String,
    rows: usize,
    /// A byte per row, 1 where there is no record.
    nulls: Vec<u8>,
}

impl FieldColumn {
    fn new(name: &str) -> Self {
        let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
        let pattern = name.bytes().all(plain).then(|| format!(",\"{name}\":"));
        FieldColumn {
            name: name.into(),
            pattern: pattern.map(|pattern| pattern.into_bytes().into()),
            kind: Kind::Unknown,
            states: Vec::new(),
            bools: Vec::new(),
            numbers: Vec::new(),
            offsets: vec![[0; 4]],
            text: String::new(),
            tagged: TaggedBuilder::default(),
            validity: Vec::new(),
            null_count: 0,
            is_always_present: false,
            is_listed: false,
        }
    }

    /// Returns how the name stands in a text, behind a comma, if it needs no escapes.
    #[inline]
    pub(crate) fn pattern(&self) -> Option<&[u8]> {
        self.pattern.as_deref()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn clear(&mut self) {
        self.truncate(0);
        self.kind = Kind::Unknown;
        self.is_listed = false;
    }

    fn truncate(&mut self, rows: usize) {
        if self.states.len() <= rows && self.kind != Kind::Tagged {
            return;
        }
        self.states.truncate(rows);
        match self.kind {
            Kind::Unknown => {}
            Kind::Bool => self.bools.truncate(rows),
            Kind::Int | Kind::Float => self.numbers.truncate(rows),
            Kind::Text => {
                self.offsets.truncate(rows + 1);
                self.text.truncate(offset(self.offsets.last()));
            }
            Kind::Tagged => self.tagged.truncate(rows),
        }
    }

    /// Makes the column `row` long: the value of `row` comes next.
    #[inline]
    fn begin(&mut self, row: usize) {
        if self.states.len() != row {
            self.catch_up(row);
        }
    }

    #[cold]
    fn catch_up(&mut self, row: usize) {
        // The record had the field before: the last one counts.
        self.truncate(row);
        while self.states.len() < row {
            self.push_nothing(ABSENT);
        }
    }

    fn push_nothing(&mut self, state: u8) {
        self.states.push(state);
        match self.kind {
            Kind::Unknown => {}
            Kind::Bool => self.bools.push(0),
            Kind::Int | Kind::Float => self.numbers.push([0; 8]),
            Kind::Text => self
                .offsets
                .push(self.offsets.last().copied().unwrap_or([0; 4])),
            Kind::Tagged => self.tagged.end_row(),
        }
    }

    /// Gives the column the type of its first value.
    #[cold]
    fn settle(&mut self, kind: Kind) {
        let rows = self.states.len();
        self.kind = kind;
        match kind {
            Kind::Unknown => {}
            Kind::Bool => {
                self.bools.clear();
                self.bools.resize(rows, 0);
            }
            Kind::Int | Kind::Float => {
                self.numbers.clear();
                self.numbers.resize(rows, [0; 8]);
            }
            Kind::Text => {
                self.text.clear();
                self.offsets.clear();
                self.offsets.resize(rows + 1, [0; 4]);
            }
            Kind::Tagged => {
                self.tagged.clear();
                (0..rows).for_each(|_| self.tagged.end_row());
            }
        }
    }

    /// Tells whether a value of `kind` may be pushed as such.
    #[inline]
    fn takes(&mut self, kind: Kind) -> bool {
        if self.kind == Kind::Unknown {
            self.settle(kind);
        }
        self.kind == kind
    }

    /// Turns the values so far into tagged ones.
    #[cold]
    fn tag(&mut self, heap: &mut String) {
        if self.kind == Kind::Tagged {
            return;
        }
        let mut tagged = std::mem::take(&mut self.tagged);
        tagged.clear();
        let rows = self.states.len();
        let column = self.typed(rows, (None, 0));
        for (row, state) in self.states.iter().enumerate() {
            match (&column, *state) {
                (Some(column), VALUE) => tagged.cell(column.cell(row), heap),
                _ => tagged.null(),
            }
            tagged.end_row();
        }
        drop(column);
        self.tagged = tagged;
        self.kind = Kind::Tagged;
    }

    fn typed<'a>(
        &'a self,
        rows: usize,
        nulls: (Option<&'a [u8]>, usize),
    ) -> Option<SourceColumn<'a>> {
        let schemas = &*PLAIN_SCHEMAS;
        let (schema, data) = match self.kind {
            Kind::Bool => (&schemas.bool, ColumnData::Bool(&self.bools)),
            Kind::Int => (&schemas.int, ColumnData::Int64(&self.numbers)),
            Kind::Float => (&schemas.float, ColumnData::Float64(&self.numbers)),
            Kind::Text => {
                let (offsets, text) = (self.offsets.as_slice(), self.text.as_str());
                (&schemas.text, ColumnData::String { offsets, text })
            }
            Kind::Unknown | Kind::Tagged => return None,
        };
        Some(SourceColumn::of_parts(schema, rows, nulls, data))
    }

    /// Ends the block at `rows` rows.
    fn finish(&mut self, rows: usize) {
        self.begin(rows);
        self.validity.clear();
        self.null_count = 0;
        let chunks = self.states.chunks(ALL.len());
        self.is_always_present = true;
        if chunks.clone().all(|chunk| ALL.starts_with(chunk)) {
            return;
        }
        self.is_always_present = !self.states.contains(&ABSENT);
        for eight in self.states.chunks(8) {
            let bit = |(index, state): (usize, &u8)| u8::from(*state == VALUE) << index;
            self.validity.push(eight.iter().enumerate().map(bit).sum());
        }
        self.null_count = self.states.iter().filter(|state| **state != VALUE).count();
    }

    fn is_used(&self) -> bool {
        self.states.iter().any(|state| *state != ABSENT)
    }

    fn column_of(&self, rows: usize) -> MapColumn<'_> {
        let validity = (self.null_count > 0).then_some(self.validity.as_slice());
        let values = match self.kind {
            Kind::Unknown => MapValues::Null,
            Kind::Tagged => MapValues::Tagged(self.tagged.rows()),
            _ => match self.typed(rows, (validity, self.null_count)) {
                Some(column) => MapValues::Typed(column),
                None => MapValues::Null,
            },
        };
        MapColumn {
            values,
            present: (!self.is_always_present).then_some(self.states.as_slice()),
        }
    }
}

impl MapsBuilder {
    /// Tells whether there are so many names that another block should begin.
    pub(crate) fn is_wide(&self) -> bool {
        self.columns.len() >= NAMES_MAX && self.rows > 0
    }

    /// Forgets all rows, and names when they are many and not used.
    pub(crate) fn clear(&mut self) {
        if self.columns.len() > NAMES_KEPT {
            let is_wide = self.columns.len() >= NAMES_MAX;
            self.columns.retain(|column| !is_wide && column.is_used());
            self.indexes.clear();
            for (index, column) in self.columns.iter().enumerate() {
                self.indexes.insert(column.name.clone(), index);
            }
        }
        self.columns.iter_mut().for_each(FieldColumn::clear);
        self.order.clear();
        self.heap.clear();
        self.nulls.clear();
        self.rows = 0;
    }

    /// Returns the column at `index`, which is where names are expected.
    #[inline]
    pub(crate) fn column(&self, index: usize) -> Option<&FieldColumn> {
        self.columns.get(index)
    }

    /// Returns the index of the column called `name`, a new one if there is none.
    pub(crate) fn find(&mut self, name: &str) -> Result<usize, Refused> {
        if let Some(index) = self.indexes.get(name) {
            return Ok(*index);
        }
        let index = self.columns.len();
        if index >= SCHEMA_FIELDS_MAX {
            return Err(Refused::new(
                "DECODE_TOO_WIDE",
                format!(
                    "records that follow each other have more than {SCHEMA_FIELDS_MAX} names of fields"
                ),
            ));
        }
        self.columns.push(FieldColumn::new(name));
        self.indexes.insert(name.into(), index);
        Ok(index)
    }

    fn begin(&mut self, index: usize) -> Option<&mut FieldColumn> {
        let column = self.columns.get_mut(index)?;
        // By its own flag: a column may lose what it has got of the first row, and begins again.
        if !column.is_listed {
            column.is_listed = true;
            self.order.push(index);
        }
        column.begin(self.rows);
        Some(column)
    }

    /// Gives the field its value in the row at hand: null.
    pub(crate) fn null(&mut self, index: usize) {
        if let Some(column) = self.begin(index) {
            column.push_nothing(NULL);
        }
    }

    pub(crate) fn bool(&mut self, index: usize, value: bool) {
        let Some(column) = self.begin(index) else {
            return;
        };
        if column.takes(Kind::Bool) {
            column.bools.push(u8::from(value));
            column.states.push(VALUE);
        } else {
            self.tagged(index, |out, _| {
                out.bool(value);
                Ok(())
            })
            .unwrap_or_default();
        }
    }

    #[inline]
    pub(crate) fn text(&mut self, index: usize, value: &str) {
        let Some(column) = self.begin(index) else {
            return;
        };
        if column.takes(Kind::Text) {
            column.text.push_str(value);
            let end = u32::try_from(column.text.len()).unwrap_or(u32::MAX);
            column.offsets.push(end.to_le_bytes());
            column.states.push(VALUE);
        } else {
            self.tagged(index, |out, heap| {
                out.text(value, heap);
                Ok(())
            })
            .unwrap_or_default();
        }
    }

    #[inline]
    pub(crate) fn number(&mut self, index: usize, value: Number<'_>) {
        let Some(column) = self.begin(index) else {
            return;
        };
        match value {
            Number::Int(value) if column.takes(Kind::Int) => {
                column.numbers.push(value.to_le_bytes());
                column.states.push(VALUE);
            }
            Number::Float(value) if column.takes(Kind::Float) => {
                column.numbers.push(value.to_le_bytes());
                column.states.push(VALUE);
            }
            value => self
                .tagged(index, |out, _| {
                    write_number(value, out);
                    Ok(())
                })
                .unwrap_or_default(),
        }
    }

    /// Lets `write` write the value of the field in the row at hand as a tagged one, with the heap for
    /// its texts.
    pub(crate) fn tagged(
        &mut self,
        index: usize,
        write: impl FnOnce(&mut TaggedBuilder, &mut String) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let Some(column) = self.begin(index) else {
            return Err(Refused::internal());
        };
        if column.kind == Kind::Unknown {
            column.settle(Kind::Tagged);
        }
        let Some(column) = self.columns.get_mut(index) else {
            return Err(Refused::internal());
        };
        column.tag(&mut self.heap);
        write(&mut column.tagged, &mut self.heap)?;
        column.tagged.end_row();
        column.states.push(VALUE);
        Ok(())
    }

    /// Ends a record.
    pub(crate) fn end_row(&mut self) {
        self.nulls.push(0);
        self.rows += 1;
    }

    /// Ends a row without a record.
    pub(crate) fn null_row(&mut self) {
        self.nulls.push(1);
        self.rows += 1;
    }

    /// Takes back all that the row at hand has got; there is no record in it.
    pub(crate) fn abandon_row(&mut self) {
        let rows = self.rows;
        self.columns
            .iter_mut()
            .for_each(|column| column.truncate(rows));
        let columns = &mut self.columns;
        self.order.retain(|index| {
            let column = columns.get_mut(*index);
            column.is_some_and(|column| {
                column.is_listed = !column.states.is_empty();
                column.is_listed
            })
        });
        self.null_row();
    }

    /// Returns about how many bytes of memory are held.
    pub(crate) fn bytes(&self) -> usize {
        let of_column = |column: &FieldColumn| {
            let fixed =
                column.states.capacity() + column.bools.capacity() + column.validity.capacity();
            let wide = column.numbers.capacity() * 8 + column.offsets.capacity() * 4;
            fixed + wide + column.text.capacity() + column.tagged.bytes() + column.name.len() * 3
        };
        self.heap.capacity() + self.columns.iter().map(of_column).sum::<usize>()
    }

    /// Ends the block.
    pub(crate) fn finish(&mut self) {
        let rows = self.rows;
        self.columns
            .iter_mut()
            .for_each(|column| column.finish(rows));
    }

    /// Returns the records of the block, which was [finished](Self::finish).
    pub(crate) fn records(&self) -> MapRows<'_> {
        let columns = self.order.iter().filter_map(|at| self.columns.get(*at));
        let used = columns.filter(|column| column.is_used());
        let names = used.clone().map(FieldColumn::name).collect();
        let columns = used.map(|column| column.column_of(self.rows)).collect();
        let nulls = self.nulls.contains(&1).then_some(self.nulls.as_slice());
        let text = &self.heap;
        MapRows::new(self.rows, nulls, columns, Context { text, names })
    }
}

fn offset(offset: Option<&[u8; 4]>) -> usize {
    let offset = offset.copied().map_or(0, u32::from_le_bytes);
    usize::try_from(offset).unwrap_or(usize::MAX)
}
