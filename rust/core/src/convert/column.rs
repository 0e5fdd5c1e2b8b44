//! A column under construction: one slot per row, whatever happens to the row.
//!
//! Invariant: `append` makes the column, and all columns inside it, exactly one slot longer, also
//! when the value does not fit. The slot then holds a placeholder, and the row is taken out of the
//! batch when it is finished. So no column ever has to be rolled back.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields};
use iceberg::spec::{Literal, NestedField, PrimitiveLiteral, StructType, Type};

use super::misfit::{Misfit, Reason};
use super::primitive::Primitives;
use super::shape::{Record, Rules, Shape, Source};
use super::value::Value;
use crate::error::{Result, SinkError};
use crate::limits::NESTING_MAX;
use crate::schema::metadata::MetadataColumn;
use crate::schema::names::Names;
use crate::schema::types::shows_type;
use crate::wire::{ArrayCell, Cell, MapCell, StructCell};

/// Slots that a new column has room for before it grows.
pub(super) const CAPACITY: usize = 1_024;

/// One column with everything inside of it.
#[derive(Debug)]
pub(super) struct Column {
    name: String,
    type_name: String,
    required: bool,
    default: Option<PrimitiveLiteral>,
    pub(super) validity: NullBufferBuilder,
    pub(super) slots: Slots,
    /// How many values the batch before had, and of how many bytes.
    before: (usize, usize),
}

/// The values of a column.
#[derive(Debug)]
pub(super) enum Slots {
    Primitive(Primitives),
    Struct(StructSlots),
    List(Vec<i32>, Box<Column>),
    Map(Vec<i32>, Box<Column>, Box<Column>),
}

/// The fields of a struct column, or the columns of the table.
#[derive(Debug)]
pub(super) struct StructSlots {
    pub(super) columns: Vec<Column>,
    names: Names,
    /// Whether a field that the table has not is an error.
    refuse_unknown: bool,
    /// For the map at hand, which columns have their slot already.
    filled: Vec<bool>,
}

/// What is wrong with an offset beyond 31 bits.
fn too_large(source: &'static str) -> Misfit {
    Misfit::new(Reason::OutOfRange, source).detail("the batch has no room for so many elements")
}

impl Column {
    /// Creates an empty column for `field` of the table.
    pub(super) fn new(field: &NestedField, rules: Rules<'_>) -> Result<Self> {
        let slots = match field.field_type.as_ref() {
            Type::Primitive(primitive) => Slots::Primitive(Primitives::new(primitive)?),
            Type::Struct(fields) => Slots::Struct(StructSlots::new(fields, rules)?),
            Type::List(list) => {
                Slots::List(vec![0], Box::new(Column::new(&list.element_field, rules)?))
            }
            Type::Map(map) => Slots::Map(
                vec![0],
                Box::new(Column::new(&map.key_field, rules)?),
                Box::new(Column::new(&map.value_field, rules)?),
            ),
        };
        Ok(Column {
            name: field.name.clone(),
            type_name: field.field_type.to_string(),
            required: field.required,
            default: write_default(field)?,
            validity: NullBufferBuilder::new(CAPACITY),
            slots,
            before: (0, 0),
        })
    }

    /// Returns the column's own name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Tells whether the column has no nulls.
    pub(super) fn is_required(&self) -> bool {
        self.required
    }

    /// Tells whether a record without the field is as one whose field is null.
    pub(super) fn missing_is_null(&self) -> bool {
        self.default.is_none()
    }

    /// Returns the number of slots.
    pub(super) fn len(&self) -> usize {
        self.validity.len()
    }

    /// Returns how many bytes of memory the column holds.
    pub(super) fn bytes(&self) -> usize {
        let slots = match &self.slots {
            Slots::Primitive(primitives) => primitives.bytes(),
            Slots::Struct(fields) => fields.columns.iter().map(Column::bytes).sum(),
            Slots::List(offsets, element) => offsets.capacity() * 4 + element.bytes(),
            Slots::Map(offsets, key, value) => offsets.capacity() * 4 + key.bytes() + value.bytes(),
        };
        slots + self.validity.allocated_size()
    }

    /// Makes room for about what the batch before had: values are not moved as they become more, and
    /// little room is left over. Only once rows come, for many tables are idle.
    pub(super) fn reserve(&mut self) {
        let (rows, heap) = self.before;
        match &mut self.slots {
            Slots::Primitive(primitives) => {
                primitives.reserve(and_some(rows), and_some(heap));
            }
            Slots::Struct(fields) => fields.columns.iter_mut().for_each(Column::reserve),
            Slots::List(offsets, element) => {
                offsets.reserve(and_some(rows));
                element.reserve();
            }
            Slots::Map(offsets, key, value) => {
                offsets.reserve(and_some(rows));
                key.reserve();
                value.reserve();
            }
        }
    }

    /// Appends a slot that no finished row shows: null, or a zero where null is not allowed.
    pub(super) fn append_placeholder(&mut self) {
        self.append_slot_of_nothing();
        if self.required {
            self.validity.append_non_null();
        } else {
            self.validity.append_null();
        }
    }

    /// Makes the slots, not the validity, one longer.
    fn append_slot_of_nothing(&mut self) {
        match &mut self.slots {
            Slots::Primitive(primitives) => primitives.push_zero(),
            Slots::Struct(fields) => fields.append_placeholders(),
            Slots::List(offsets, _) | Slots::Map(offsets, _, _) => {
                offsets.push(offsets.last().copied().unwrap_or(0));
            }
        }
    }

    /// Appends the value of a field that the record does not have: the column's write default, if
    /// it has one. A field that is there and null stays null.
    pub(super) fn append_missing(&mut self) -> Result<(), Misfit> {
        if let (Some(default), Slots::Primitive(primitives)) = (&self.default, &mut self.slots)
            && primitives.push_literal(default)
        {
            self.validity.append_non_null();
            return Ok(());
        }
        self.append_null()
    }

    /// Appends the absence of a value.
    pub(super) fn append_null(&mut self) -> Result<(), Misfit> {
        self.append_placeholder();
        if self.required {
            return Err(self.located(Misfit::new(Reason::RequiredNull, "null")));
        }
        Ok(())
    }

    /// Appends `cell`; on a misfit, a placeholder.
    pub(super) fn append(
        &mut self,
        cell: Cell<'_>,
        shape: &Shape,
        depth: usize,
    ) -> Result<(), Misfit> {
        if depth > NESTING_MAX {
            self.append_placeholder();
            return Err(self.located(Misfit::new(Reason::TooDeep, cell.type_name())));
        }
        if cell.is_null() {
            return self.append_null();
        }
        let outcome = match &mut self.slots {
            Slots::Primitive(primitives) => {
                let outcome = Value::read(cell, shape.semantic())
                    .and_then(|value| primitives.push(value.ok_or(Reason::RequiredNull)?));
                if let Err(reason) = outcome {
                    primitives.push_zero();
                    Err(misfit(reason, cell))
                } else {
                    Ok(())
                }
            }
            Slots::Struct(fields) => fields.append(cell, shape, depth),
            Slots::List(offsets, element) => match cell {
                Cell::Array(list) => append_list(offsets, element, &list, shape, depth),
                _ => {
                    offsets.push(offsets.last().copied().unwrap_or(0));
                    Err(misfit(Reason::NotConvertible, cell))
                }
            },
            Slots::Map(offsets, key, value) => match cell {
                Cell::Map(map) => append_map(offsets, (key, value), &map, shape, depth),
                _ => {
                    offsets.push(offsets.last().copied().unwrap_or(0));
                    Err(misfit(Reason::NotConvertible, cell))
                }
            },
        };
        self.validity.append_non_null();
        outcome.map_err(|misfit| self.located(misfit))
    }

    fn located(&self, misfit: Misfit) -> Misfit {
        misfit.target(&self.type_name).inside(&self.name)
    }

    /// Returns the Arrow array of `field`'s type and leaves the column empty.
    pub(super) fn finish(&mut self, field: &Field) -> Result<ArrayRef> {
        let heap = match &self.slots {
            Slots::Primitive(primitives) => primitives.heap(),
            _ => 0,
        };
        self.before = (self.len(), heap);
        let nulls = self.validity.finish();
        let array: Result<ArrayRef, arrow_schema::ArrowError> = match &mut self.slots {
            Slots::Primitive(primitives) => primitives.finish(nulls),
            Slots::Struct(fields) => {
                let DataType::Struct(children) = field.data_type() else {
                    return Err(mismatch(field));
                };
                let arrays = fields.finish(children)?;
                StructArray::try_new(children.clone(), arrays, nulls)
                    .map(|array| Arc::new(array) as ArrayRef)
            }
            Slots::List(offsets, element) => {
                let DataType::List(child) = field.data_type() else {
                    return Err(mismatch(field));
                };
                let values = element.finish(child)?;
                let offsets = OffsetBuffer::new(std::mem::replace(offsets, vec![0]).into());
                ListArray::try_new(Arc::clone(child), offsets, values, nulls)
                    .map(|array| Arc::new(array) as ArrayRef)
            }
            Slots::Map(offsets, key, value) => {
                let DataType::Map(entries, ordered) = field.data_type() else {
                    return Err(mismatch(field));
                };
                let DataType::Struct(children) = entries.data_type() else {
                    return Err(mismatch(field));
                };
                let [key_field, value_field] = children.as_ref() else {
                    return Err(mismatch(field));
                };
                let arrays = vec![key.finish(key_field)?, value.finish(value_field)?];
                let offsets = OffsetBuffer::new(std::mem::replace(offsets, vec![0]).into());
                StructArray::try_new(children.clone(), arrays, None)
                    .and_then(|rows| {
                        MapArray::try_new(Arc::clone(entries), offsets, rows, nulls, *ordered)
                    })
                    .map(|array| Arc::new(array) as ArrayRef)
            }
        };
        array.map_err(|error| {
            SinkError::internal("a column's parts do not fit together")
                .with("column", &self.name)
                .caused_by(error)
        })
    }
}

/// Batches end with the frame in which they are full.
fn and_some(before: usize) -> usize {
    before.saturating_add(before / 16)
}

/// Describes why `cell` does not fit, without its value.
pub(super) fn misfit(reason: Reason, cell: Cell<'_>) -> Misfit {
    let misfit = Misfit::new(reason, cell.type_name());
    match cell {
        Cell::String(text) => misfit.length(text.len()),
        Cell::Bytes(bytes) => misfit.length(bytes.len()),
        Cell::Decimal { unscaled, .. } => misfit.length(unscaled.len()),
        Cell::Array(list) => misfit.length(list.len()),
        Cell::Map(map) => misfit.length(map.len()),
        _ => misfit,
    }
}

/// Returns what a record without the field gets; only scalars have such a default.
fn write_default(field: &NestedField) -> Result<Option<PrimitiveLiteral>> {
    match &field.write_default {
        None => Ok(None),
        Some(Literal::Primitive(literal)) => Ok(Some(literal.clone())),
        Some(_) => Err(SinkError::fatal(
            "TABLE_TYPE_UNSUPPORTED",
            "a nested column with a write default cannot be written: drop the default",
        )
        .with("column", &field.name)),
    }
}

fn mismatch(field: &Field) -> SinkError {
    SinkError::internal("the Arrow schema does not match the table's").with("column", field.name())
}

fn append_list(
    offsets: &mut Vec<i32>,
    element: &mut Column,
    list: &ArrayCell<'_>,
    shape: &Shape,
    depth: usize,
) -> Result<(), Misfit> {
    let shape = match shape {
        Shape::List(element) => element,
        _ => &Shape::Schemaless,
    };
    let mut outcome = Ok(());
    for cell in list.iter() {
        outcome = element.append(cell, shape, depth + 1);
        if outcome.is_err() {
            break;
        }
    }
    close_slot(offsets, element.len(), "array", outcome)
}

fn append_map(
    offsets: &mut Vec<i32>,
    (key, value): (&mut Column, &mut Column),
    map: &MapCell<'_>,
    shape: &Shape,
    depth: usize,
) -> Result<(), Misfit> {
    let (key_shape, value_shape) = match shape {
        Shape::Map(key, value) => (key.as_ref(), value.as_ref()),
        _ => (&Shape::Schemaless, &Shape::Schemaless),
    };
    let mut outcome = Ok(());
    for entry in map.entries() {
        outcome = key.append(entry.key, key_shape, depth + 1);
        // Both sides grow together, or the lengths of keys and values would differ for good.
        let of_value = value.append(entry.value, value_shape, depth + 1);
        outcome = outcome.and(of_value);
        if outcome.is_err() {
            break;
        }
    }
    close_slot(offsets, key.len(), "map", outcome)
}

/// Ends a list or map at element `end`. Past 31 bits the slot stays empty and the row is refused;
/// the elements behind it belong to no row.
fn close_slot(
    offsets: &mut Vec<i32>,
    end: usize,
    source: &'static str,
    outcome: Result<(), Misfit>,
) -> Result<(), Misfit> {
    match i32::try_from(end) {
        Ok(end) => {
            offsets.push(end);
            outcome
        }
        Err(_) => {
            offsets.push(offsets.last().copied().unwrap_or(0));
            outcome.and(Err(too_large(source)))
        }
    }
}

impl StructSlots {
    /// Creates empty columns for `fields`.
    pub(super) fn new(fields: &StructType, rules: Rules<'_>) -> Result<Self> {
        let names = Names::of(fields.fields(), rules.names())?;
        let columns = fields.fields().iter();
        let columns = columns.map(|field| Column::new(field, rules));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(StructSlots {
            filled: vec![false; columns.len()],
            columns,
            names,
            refuse_unknown: rules.refuse_unknown,
        })
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.names.find(name)
    }

    fn append_placeholders(&mut self) {
        for column in &mut self.columns {
            column.append_placeholder();
        }
    }

    fn append(&mut self, cell: Cell<'_>, shape: &Shape, depth: usize) -> Result<(), Misfit> {
        match (cell, shape) {
            (Cell::Struct(record), Shape::Record(fields)) => {
                self.append_record(&record, fields, depth)
            }
            (Cell::Map(map), Shape::Entries(shapes)) => self.append_entries(&map, shapes, depth),
            (Cell::Map(map), _) => self.append_entries(&map, &[], depth),
            _ => {
                self.append_placeholders();
                Err(misfit(Reason::NotConvertible, cell))
            }
        }
    }

    fn append_record(
        &mut self,
        record: &StructCell<'_>,
        fields: &Record,
        depth: usize,
    ) -> Result<(), Misfit> {
        let mut outcome = Ok(());
        for (index, column) in self.columns.iter_mut().enumerate() {
            let source = fields.fields.get(index).unwrap_or(&Source::Missing);
            let appended = match source {
                Source::Missing => column.append_missing(),
                Source::Ambiguous => column.append_ambiguous(),
                Source::Field(field, shape) => {
                    column.append(record.field(*field), shape, depth + 1)
                }
            };
            outcome = outcome.and(appended);
        }
        if self.refuse_unknown {
            for (index, name) in &fields.unknown {
                let cell = record.field(*index);
                if !cell.is_null() {
                    let unknown = misfit(Reason::UnknownField, cell).inside(name);
                    outcome = outcome.and(Err(unknown));
                }
            }
        }
        outcome
    }

    /// Appends the entries of a map, in whatever order they come. `shapes` is empty when the
    /// values have no schema.
    fn append_entries(
        &mut self,
        map: &MapCell<'_>,
        shapes: &[Shape],
        depth: usize,
    ) -> Result<(), Misfit> {
        self.begin_entries(&[]);
        let mut outcome = Ok(());
        for entry in map.entries() {
            let Cell::String(name) = entry.key else {
                outcome = outcome.and(Err(key_is_not_text(entry.key)));
                continue;
            };
            let found = self.names.find(name);
            let shape = found
                .and_then(|found| shapes.get(found))
                .unwrap_or(&SCHEMALESS);
            outcome = outcome.and(self.append_entry(found, name, entry.value, shape, depth));
        }
        outcome.and(self.fill_the_rest())
    }

    /// Starts a map: no column has its slot yet, but those that are filled from elsewhere.
    pub(super) fn begin_entries(&mut self, from_elsewhere: &[Option<MetadataColumn>]) {
        self.filled.fill(false);
        for (filled, metadata) in self.filled.iter_mut().zip(from_elsewhere) {
            *filled = metadata.is_some();
        }
    }

    /// Appends one entry of a map to the column `found` for its name.
    pub(super) fn append_entry(
        &mut self,
        found: Option<usize>,
        name: &str,
        value: Cell<'_>,
        shape: &Shape,
        depth: usize,
    ) -> Result<(), Misfit> {
        let column = found.and_then(|found| self.columns.get_mut(found));
        let filled = found.and_then(|found| self.filled.get_mut(found));
        match (column, filled) {
            (Some(column), Some(filled)) => {
                if std::mem::replace(filled, true) {
                    return Err(misfit(Reason::Ambiguous, value).inside(name));
                }
                column.append(value, shape, depth + 1)
            }
            _ if self.refuse_unknown && shows_type(value) => {
                Err(misfit(Reason::UnknownField, value).inside(name))
            }
            _ => Ok(()),
        }
    }

    /// Appends null to the columns that no entry of the map was for.
    pub(super) fn fill_the_rest(&mut self) -> Result<(), Misfit> {
        let mut outcome = Ok(());
        for (column, filled) in self.columns.iter_mut().zip(&self.filled) {
            if !filled {
                outcome = outcome.and(column.append_missing());
            }
        }
        outcome
    }

    pub(super) fn finish(&mut self, fields: &Fields) -> Result<Vec<ArrayRef>> {
        if fields.len() != self.columns.len() {
            return Err(SinkError::internal(
                "the Arrow schema has other fields than the table",
            ));
        }
        let columns = self.columns.iter_mut().zip(fields);
        columns
            .map(|(column, field)| column.finish(field))
            .collect()
    }
}

impl Column {
    pub(super) fn append_ambiguous(&mut self) -> Result<(), Misfit> {
        self.append_placeholder();
        Err(self.located(Misfit::new(Reason::Ambiguous, "struct")))
    }
}

/// Describes a map that cannot be a record because of `key`.
pub(super) fn key_is_not_text(key: Cell<'_>) -> Misfit {
    misfit(Reason::NotConvertible, key).detail("a record's map needs keys that are text")
}

/// The shape of a column whose values have no schema.
pub(super) const SCHEMALESS: Shape = Shape::Schemaless;
