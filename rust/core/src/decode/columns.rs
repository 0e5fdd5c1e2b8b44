//! Columns of decoded values, built row by row and owned by the decoder.
//!
//! ```text
//!  ColumnsBuilder            one per schema of a side (value or key); its memory serves block after block
//!   └ root: ColumnBuilder    one value per row: usually a struct, whose fields are ColumnBuilders again
//!  ColumnsBuilder::column    → SourceColumn<'_>: the very type of a frame that Java encoded
//! ```
//!
//! The layout of each column is that of `docs/wire-format.md`, "Columns": little-endian values of
//! fixed width, `n + 1` offsets and a heap for texts and bytes, a bitmap only when there are nulls,
//! zero or empty data for null rows, and nulls below a null struct. So whatever reads frames
//! (`route`, the column rules, `evolve`, `convert`) reads decoded values by the same code, and
//! `convert::fast` copies whole columns.
//!
//! How a decoder fills one row:
//!
//! ```text
//!  let (root, budget) = columns.row();
//!  root.field(0)?.push_i64(7);           // struct fields in any order, each at most once;
//!  root.field_anew(0)?.push_i64(8);      // or again, where the last one wins
//!  let list = root.field(1)?;
//!  for … { list.element(budget)?.push_str("a"); }
//!  list.end_list();
//!  root.end_struct();                    // fields without a value become null
//!  columns.end_row();                    // or abandon_row(): the row is null and leaves no trace
//! ```
//!
//! Keeps: every `push_…`, `end_…` and `push_null` makes a column exactly one value longer, also
//! when the decoder's plan is wrong and the value is of another kind; then [`ColumnsBuilder::column`]
//! is an internal error, and nothing of the block is used. A row that is abandoned takes all it put
//! into lists, maps and heaps with it, whatever was pushed so far: the length of each column
//! says where its rows end.
//!
//! Bounded: values of fixed width cost at most 8 bytes and a bit, so a block without lists is a small
//! multiple of rows × columns. What lists and maps multiply is paid for out of a [`Budget`].
//!
//! Not here: what the bytes mean, and which rows are bad (`decode`).

use std::sync::Arc;

use super::refused::Refused;
use crate::error::{Result, SinkError};
use crate::limits::{BLOCK_SLOTS_MAX, NESTING_MAX, SCHEMA_FIELDS_MAX};
use crate::wire::{Cell, ColumnData, LogicalType, SourceColumn, SourceKind, SourceSchema};

/// The columns of one schema under construction.
#[derive(Debug)]
pub struct ColumnsBuilder {
    schema: Arc<SourceSchema>,
    root: ColumnBuilder,
    budget: Budget,
    rows: usize,
}

/// How many values the lists and maps of one block may still have, all columns together.
#[derive(Debug)]
pub struct Budget {
    left: usize,
}

impl Budget {
    fn full() -> Self {
        Budget {
            left: BLOCK_SLOTS_MAX,
        }
    }

    /// Takes room for `slots` values.
    pub fn spend(&mut self, slots: usize) -> Result<(), Refused> {
        match self.left.checked_sub(slots) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Refused::new(
                "DECODE_TOO_LARGE",
                "the lists and maps of the records have more values than fit in memory at once",
            )),
        }
    }
}

/// One column under construction.
#[derive(Debug)]
pub struct ColumnBuilder {
    schema: Arc<SourceSchema>,
    rows: usize,
    null_count: usize,
    /// Bits of the rows that have a value; empty while no row is null.
    validity: Vec<u8>,
    /// Values of fixed width that one row takes, lists and maps counted as one.
    slots: usize,
    /// Something was pushed that the column cannot hold.
    broken: bool,
    data: Data,
}

type Offsets = Vec<[u8; 4]>;

#[derive(Debug)]
enum Data {
    Bool(Vec<u8>),
    Int8(Vec<[u8; 1]>),
    Int16(Vec<[u8; 2]>),
    /// Also dates and times.
    Int32(Vec<[u8; 4]>),
    /// Also timestamps.
    Int64(Vec<[u8; 8]>),
    Float32(Vec<[u8; 4]>),
    Float64(Vec<[u8; 8]>),
    Text(Offsets, String),
    /// Also decimals.
    Bytes(Offsets, Vec<u8>),
    Struct(Vec<ColumnBuilder>),
    List(Offsets, Box<ColumnBuilder>),
    Map(Offsets, Box<ColumnBuilder>, Box<ColumnBuilder>),
}

impl ColumnsBuilder {
    /// Makes the columns of `schema`, without rows.
    ///
    /// # Errors
    ///
    /// `SCHEMA_TOO_DEEP` and `SCHEMA_TOO_LARGE`, of kind `Data`: a decoder refuses the rows that have this schema.
    pub fn new(schema: &Arc<SourceSchema>) -> Result<Self> {
        let mut nodes_left = SCHEMA_FIELDS_MAX;
        Ok(ColumnsBuilder {
            schema: Arc::clone(schema),
            root: ColumnBuilder::new(schema, 1, &mut nodes_left)?,
            budget: Budget::full(),
            rows: 0,
        })
    }

    /// Returns the schema.
    pub fn schema(&self) -> &Arc<SourceSchema> {
        &self.schema
    }

    /// Returns the number of finished rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the column that takes the value of the row at hand.
    pub fn row(&mut self) -> (&mut ColumnBuilder, &mut Budget) {
        (&mut self.root, &mut self.budget)
    }

    /// Ends the row: exactly one value was pushed to the root.
    pub fn end_row(&mut self) {
        self.rows += 1;
        if self.root.rows != self.rows {
            self.root.truncate(self.rows - 1);
            self.root.push_null();
            self.root.broken = true;
        }
    }

    /// Drops whatever was pushed since the row before ended; the row becomes null.
    pub fn abandon_row(&mut self) {
        self.root.truncate(self.rows);
        self.push_null_row();
    }

    /// Adds a row without a value.
    pub fn push_null_row(&mut self) {
        self.root.push_null();
        self.end_row();
    }

    /// Forgets all rows; the memory stays for the next ones.
    pub fn clear(&mut self) {
        self.root.truncate(0);
        self.rows = 0;
        self.budget = Budget::full();
    }

    /// Returns about how many bytes of memory are held.
    pub fn bytes(&self) -> usize {
        self.root.bytes()
    }

    /// Returns all rows as a column of a frame.
    ///
    /// # Errors
    ///
    /// `INTERNAL` when a decoder pushed what its schema does not say.
    pub fn column(&self) -> Result<SourceColumn<'_>> {
        self.root.column().ok_or_else(|| {
            SinkError::internal("a decoder pushed values that are not of its schema")
        })
    }
}

impl ColumnBuilder {
    fn new(schema: &Arc<SourceSchema>, depth: usize, nodes_left: &mut usize) -> Result<Self> {
        if depth > NESTING_MAX {
            let message = format!("a schema nests deeper than {NESTING_MAX} levels");
            return Err(SinkError::data("SCHEMA_TOO_DEEP", message));
        }
        *nodes_left = nodes_left.checked_sub(1).ok_or_else(|| {
            let message =
                format!("a schema has more than {SCHEMA_FIELDS_MAX} fields on all levels");
            SinkError::data("SCHEMA_TOO_LARGE", message)
        })?;
        let mut child = |schema: Option<&Arc<SourceSchema>>| {
            let schema = schema.ok_or_else(|| SinkError::internal("a schema has no element"))?;
            ColumnBuilder::new(schema, depth + 1, nodes_left).map(Box::new)
        };
        let start = || vec![[0; 4]];
        let data = match schema.kind() {
            SourceKind::Boolean => Data::Bool(Vec::new()),
            SourceKind::Int8 => Data::Int8(Vec::new()),
            SourceKind::Int16 => Data::Int16(Vec::new()),
            SourceKind::Int32 => Data::Int32(Vec::new()),
            SourceKind::Int64 => Data::Int64(Vec::new()),
            SourceKind::Float32 => Data::Float32(Vec::new()),
            SourceKind::Float64 => Data::Float64(Vec::new()),
            SourceKind::String => Data::Text(start(), String::new()),
            SourceKind::Bytes => Data::Bytes(start(), Vec::new()),
            SourceKind::Array => Data::List(start(), child(schema.value())?),
            SourceKind::Map => Data::Map(start(), child(schema.key())?, child(schema.value())?),
            SourceKind::Struct => {
                let fields = schema.fields().iter();
                let fields = fields.map(|field| child(Some(&field.schema)).map(|child| *child));
                Data::Struct(fields.collect::<Result<_>>()?)
            }
        };
        let slots = match &data {
            Data::Struct(fields) => fields.iter().map(|field| field.slots).sum::<usize>() + 1,
            _ => 1,
        };
        Ok(ColumnBuilder {
            schema: Arc::clone(schema),
            rows: 0,
            null_count: 0,
            validity: Vec::new(),
            slots,
            broken: false,
            data,
        })
    }

    /// Returns the schema of the values.
    pub fn schema(&self) -> &Arc<SourceSchema> {
        &self.schema
    }

    /// Returns the number of values.
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn valid(&mut self) {
        if !self.validity.is_empty() {
            self.set_bit();
        }
        self.rows += 1;
    }

    fn set_bit(&mut self) {
        let index = self.rows / 8;
        if index >= self.validity.len() {
            self.validity.push(0);
        }
        if let Some(byte) = self.validity.get_mut(index) {
            *byte |= 1 << (self.rows % 8);
        }
    }

    fn null(&mut self) {
        if self.validity.is_empty() {
            self.validity.resize(self.rows / 8 + 1, u8::MAX);
            if let Some(last) = self.validity.last_mut() {
                *last = (1 << (self.rows % 8)) - 1;
            }
        } else if self.rows / 8 >= self.validity.len() {
            self.validity.push(0);
        }
        self.null_count += 1;
        self.rows += 1;
    }

    /// Adds no value.
    pub fn push_null(&mut self) {
        match &mut self.data {
            Data::Bool(values) => values.push(0),
            Data::Int8(values) => values.push([0; 1]),
            Data::Int16(values) => values.push([0; 2]),
            Data::Int32(values) | Data::Float32(values) => values.push([0; 4]),
            Data::Int64(values) | Data::Float64(values) => values.push([0; 8]),
            Data::Text(offsets, _)
            | Data::Bytes(offsets, _)
            | Data::List(offsets, _)
            | Data::Map(offsets, ..) => offsets.push(offsets.last().copied().unwrap_or([0; 4])),
            Data::Struct(fields) => {
                for field in fields {
                    field.truncate(self.rows);
                    field.push_null();
                }
            }
        }
        // Elements of a list that was begun belong to no row.
        self.drop_unfinished();
        self.null();
    }

    /// Begins a list or map again that is not ended.
    pub fn restart(&mut self) {
        self.drop_unfinished();
    }

    fn drop_unfinished(&mut self) {
        match &mut self.data {
            Data::List(offsets, elements) => elements.truncate(last(offsets)),
            Data::Map(offsets, keys, values) => {
                keys.truncate(last(offsets));
                values.truncate(last(offsets));
            }
            _ => {}
        }
    }

    /// Keeps the column in step although the plan was wrong.
    #[cold]
    fn misplaced(&mut self) {
        self.broken = true;
        self.push_null();
    }

    /// Adds a boolean.
    pub fn push_bool(&mut self, value: bool) {
        match &mut self.data {
            Data::Bool(values) => values.push(u8::from(value)),
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Adds an 8-bit integer.
    pub fn push_i8(&mut self, value: i8) {
        match &mut self.data {
            Data::Int8(values) => values.push(value.to_le_bytes()),
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Adds a 16-bit integer.
    pub fn push_i16(&mut self, value: i16) {
        match &mut self.data {
            Data::Int16(values) => values.push(value.to_le_bytes()),
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Adds a 32-bit integer; to a Date days since the epoch, to a Time milliseconds since midnight.
    pub fn push_i32(&mut self, value: i32) {
        match &mut self.data {
            Data::Int32(values) => values.push(value.to_le_bytes()),
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Adds a 64-bit integer; to a Timestamp milliseconds since the epoch.
    pub fn push_i64(&mut self, value: i64) {
        match &mut self.data {
            Data::Int64(values) => values.push(value.to_le_bytes()),
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Adds a 32-bit float.
    pub fn push_f32(&mut self, value: f32) {
        match &mut self.data {
            Data::Float32(values) => values.push(value.to_le_bytes()),
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Adds a 64-bit float.
    pub fn push_f64(&mut self, value: f64) {
        match &mut self.data {
            Data::Float64(values) => values.push(value.to_le_bytes()),
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Adds text.
    pub fn push_str(&mut self, value: &str) {
        match &mut self.data {
            Data::Text(offsets, text) => {
                text.push_str(value);
                self.broken |= !close(offsets, text.len());
            }
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Adds bytes; to a Decimal its unscaled number, big-endian two's complement, at least one byte.
    pub fn push_bytes(&mut self, value: &[u8]) {
        let is_decimal = matches!(self.schema.logical(), Some(LogicalType::Decimal { .. }));
        match &mut self.data {
            Data::Bytes(offsets, data) if !(is_decimal && value.is_empty()) => {
                data.extend_from_slice(value);
                self.broken |= !close(offsets, data.len());
            }
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Lets `write` append text, for what is made piece by piece. After an error the value is not
    /// there: push another or abandon the row.
    pub fn push_str_with(
        &mut self,
        write: impl FnOnce(&mut String) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let Data::Text(offsets, text) = &mut self.data else {
            self.misplaced();
            return Ok(());
        };
        let start = last(offsets);
        if let Err(refused) = write(text) {
            text.truncate(start);
            return Err(refused);
        }
        self.broken |= text.len() < start || !close(offsets, text.len());
        self.valid();
        Ok(())
    }

    /// Lets `write` append bytes, as [`Self::push_str_with`].
    pub fn push_bytes_with(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let Data::Bytes(offsets, data) = &mut self.data else {
            self.misplaced();
            return Ok(());
        };
        let start = last(offsets);
        if let Err(refused) = write(data) {
            data.truncate(start);
            return Err(refused);
        }
        let is_decimal = matches!(self.schema.logical(), Some(LogicalType::Decimal { .. }));
        self.broken |= data.len() < start + usize::from(is_decimal) || !close(offsets, data.len());
        self.valid();
        Ok(())
    }

    /// Returns the number of a struct's fields.
    pub fn field_count(&self) -> usize {
        match &self.data {
            Data::Struct(fields) => fields.len(),
            _ => 0,
        }
    }

    /// Returns the field at `index` of a struct, `None` when there is none.
    pub fn field(&mut self, index: usize) -> Option<&mut ColumnBuilder> {
        match &mut self.data {
            Data::Struct(fields) => fields.get_mut(index),
            _ => None,
        }
    }

    /// Returns the field at `index` without the value that this row may have given it already.
    pub fn field_anew(&mut self, index: usize) -> Option<&mut ColumnBuilder> {
        let rows = self.rows;
        let field = self.field(index)?;
        if field.rows > rows {
            field.truncate(rows);
        } else {
            field.drop_unfinished();
        }
        Some(field)
    }

    /// Tells whether this row has given the field at `index` its value.
    pub fn has_field(&self, index: usize) -> bool {
        match &self.data {
            Data::Struct(fields) => fields
                .get(index)
                .is_some_and(|field| field.rows > self.rows),
            _ => false,
        }
    }

    /// Ends a struct; fields without a value become null.
    pub fn end_struct(&mut self) {
        let end = self.rows + 1;
        let Data::Struct(fields) = &mut self.data else {
            return self.misplaced();
        };
        for field in fields {
            if field.rows < end {
                field.push_null();
            } else if field.rows > end {
                field.truncate(end);
                self.broken = true;
            }
        }
        self.valid();
    }

    /// Returns the column that takes the next element of a list.
    pub fn element(&mut self, budget: &mut Budget) -> Result<&mut ColumnBuilder, Refused> {
        match &mut self.data {
            Data::List(_, elements) => {
                budget.spend(elements.slots)?;
                Ok(elements)
            }
            _ => Err(Refused::internal()),
        }
    }

    /// Ends a list: what was pushed since the last one are its elements.
    pub fn end_list(&mut self) {
        match &mut self.data {
            Data::List(offsets, elements) => self.broken |= !close(offsets, elements.rows),
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Returns the columns that take key and value of the next entry of a map: one of each.
    pub fn entry(
        &mut self,
        budget: &mut Budget,
    ) -> Result<(&mut ColumnBuilder, &mut ColumnBuilder), Refused> {
        match &mut self.data {
            Data::Map(_, keys, values) => {
                budget.spend(keys.slots + values.slots)?;
                Ok((keys, values))
            }
            _ => Err(Refused::internal()),
        }
    }

    /// Ends a map: what was pushed since the last one are its entries.
    pub fn end_map(&mut self) {
        match &mut self.data {
            Data::Map(offsets, keys, values) => {
                self.broken |= keys.rows != values.rows || !close(offsets, keys.rows);
            }
            _ => return self.misplaced(),
        }
        self.valid();
    }

    /// Copies a value of a frame, which must be of this column's schema.
    pub fn push_cell(&mut self, cell: Cell<'_>, budget: &mut Budget) -> Result<(), Refused> {
        match cell {
            Cell::Null => self.push_null(),
            Cell::Bool(value) => self.push_bool(value),
            Cell::Int8(value) => self.push_i8(value),
            Cell::Int16(value) => self.push_i16(value),
            Cell::Int32(value) | Cell::Date { days: value } | Cell::Time { ms: value } => {
                self.push_i32(value);
            }
            Cell::Int64(value) | Cell::Timestamp { ms: value } => self.push_i64(value),
            Cell::Float32(value) => self.push_f32(value),
            Cell::Float64(value) => self.push_f64(value),
            Cell::String(value) => self.push_str(value),
            Cell::Bytes(value)
            | Cell::Decimal {
                unscaled: value, ..
            } => self.push_bytes(value),
            Cell::Array(list) => {
                for item in list.iter() {
                    self.element(budget)?.push_cell(item, budget)?;
                }
                self.end_list();
            }
            Cell::Map(map) => {
                for entry in map.entries() {
                    let (key, value) = self.entry(budget)?;
                    key.push_cell(entry.key, budget)?;
                    value.push_cell(entry.value, budget)?;
                }
                self.end_map();
            }
            Cell::Struct(record) => {
                for index in 0..record.fields().len() {
                    match self.field(index) {
                        Some(field) => field.push_cell(record.field(index), budget)?,
                        None => self.broken = true,
                    }
                }
                self.end_struct();
            }
            Cell::ClockTime { .. } | Cell::Moment { .. } | Cell::Uuid(_) | Cell::Number { .. } => {
                self.misplaced();
            }
        }
        Ok(())
    }

    /// Makes the column `rows` long, where it is longer, with everything inside of it.
    pub fn truncate(&mut self, rows: usize) {
        match &mut self.data {
            Data::Bool(values) => values.truncate(rows),
            Data::Int8(values) => values.truncate(rows),
            Data::Int16(values) => values.truncate(rows),
            Data::Int32(values) | Data::Float32(values) => values.truncate(rows),
            Data::Int64(values) | Data::Float64(values) => values.truncate(rows),
            Data::Text(offsets, text) => {
                offsets.truncate(rows + 1);
                text.truncate(last(offsets));
            }
            Data::Bytes(offsets, data) => {
                offsets.truncate(rows + 1);
                data.truncate(last(offsets));
            }
            Data::Struct(fields) => fields.iter_mut().for_each(|field| field.truncate(rows)),
            Data::List(offsets, _) | Data::Map(offsets, ..) => offsets.truncate(rows + 1),
        }
        self.drop_unfinished();
        if rows < self.rows {
            self.truncate_validity(rows);
        }
    }

    fn truncate_validity(&mut self, rows: usize) {
        self.rows = rows;
        if self.validity.is_empty() {
            return;
        }
        self.validity.truncate(rows.div_ceil(8));
        if let (Some(last), true) = (self.validity.last_mut(), !rows.is_multiple_of(8)) {
            *last &= (1 << (rows % 8)) - 1;
        }
        let ones = self.validity.iter().map(|byte| byte.count_ones() as usize);
        self.null_count = rows.saturating_sub(ones.sum());
        if self.null_count == 0 {
            self.validity.clear();
        }
    }

    fn bytes(&self) -> usize {
        let data = match &self.data {
            Data::Bool(values) => values.capacity(),
            Data::Int8(values) => values.capacity(),
            Data::Int16(values) => values.capacity() * 2,
            Data::Int32(values) | Data::Float32(values) => values.capacity() * 4,
            Data::Int64(values) | Data::Float64(values) => values.capacity() * 8,
            Data::Text(offsets, text) => offsets.capacity() * 4 + text.capacity(),
            Data::Bytes(offsets, data) => offsets.capacity() * 4 + data.capacity(),
            Data::Struct(fields) => fields.iter().map(ColumnBuilder::bytes).sum(),
            Data::List(offsets, elements) => offsets.capacity() * 4 + elements.bytes(),
            Data::Map(offsets, keys, values) => {
                offsets.capacity() * 4 + keys.bytes() + values.bytes()
            }
        };
        data + self.validity.capacity()
    }

    /// Returns the values so far; `None` when something was pushed that does not belong here.
    fn column(&self) -> Option<SourceColumn<'_>> {
        if self.broken {
            return None;
        }
        let data = match (&self.data, self.schema.logical()) {
            (Data::Bool(values), _) => ColumnData::Bool(values),
            (Data::Int8(values), _) => ColumnData::Int8(values),
            (Data::Int16(values), _) => ColumnData::Int16(values),
            (Data::Int32(values), Some(LogicalType::Date)) => ColumnData::Date(values),
            (Data::Int32(values), Some(LogicalType::Time)) => ColumnData::Time(values),
            (Data::Int32(values), _) => ColumnData::Int32(values),
            (Data::Int64(values), Some(LogicalType::Timestamp)) => ColumnData::Timestamp(values),
            (Data::Int64(values), _) => ColumnData::Int64(values),
            (Data::Float32(values), _) => ColumnData::Float32(values),
            (Data::Float64(values), _) => ColumnData::Float64(values),
            (Data::Text(offsets, text), _) => ColumnData::String { offsets, text },
            (Data::Bytes(offsets, data), Some(LogicalType::Decimal { scale })) => {
                ColumnData::Decimal {
                    scale,
                    offsets,
                    data,
                }
            }
            (Data::Bytes(offsets, data), _) => ColumnData::Bytes { offsets, data },
            (Data::Struct(fields), _) => {
                let fields = fields.iter().map(ColumnBuilder::column);
                ColumnData::Struct(fields.collect::<Option<_>>()?)
            }
            (Data::List(offsets, elements), _) => ColumnData::Array {
                offsets,
                elements: Box::new(elements.column()?),
            },
            (Data::Map(offsets, keys, values), _) => ColumnData::Map {
                offsets,
                keys: Box::new(keys.column()?),
                values: Box::new(values.column()?),
            },
        };
        let validity = (self.null_count > 0).then_some(self.validity.as_slice());
        let nulls = (validity, self.null_count);
        Some(SourceColumn::of_parts(&self.schema, self.rows, nulls, data))
    }
}

/// Returns where the last value ends.
fn last(offsets: &[[u8; 4]]) -> usize {
    let last = offsets.last().copied().map_or(0, u32::from_le_bytes);
    usize::try_from(last).unwrap_or(usize::MAX)
}

/// Ends a value at `end`; false when offsets cannot say that.
fn close(offsets: &mut Offsets, end: usize) -> bool {
    let fits = u32::try_from(end);
    let before = offsets.last().copied().unwrap_or([0; 4]);
    offsets.push(fits.map_or(before, u32::to_le_bytes));
    fits.is_ok()
}

#[cfg(test)]
mod tests;
