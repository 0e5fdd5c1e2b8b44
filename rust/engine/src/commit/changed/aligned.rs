//! Columns of data files as the table has them now: by field ids, promoted. What a file does not have, because
//! the table got it later, is what readers take for it: the field's initial default, or null.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray,
    Float32Array, Float64Array, Int32Array, Int64Array, ListArray, MapArray, RecordBatch,
    StringArray, StructArray, UInt32Array, new_null_array,
};
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, Fields};
use arrow_select::take::take;
use frazil_core::{Result, SinkError};
use iceberg::spec::{Literal, NestedFieldRef, PrimitiveLiteral, Type};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

/// A row has values that are none of its table.
pub(super) const UNREADABLE: &str = "ROW_UNREADABLE";

/// A field of the table, and what it is in Arrow.
type Wanted<'a> = (&'a NestedFieldRef, &'a Field);

/// Returns the columns of `batch` that are wanted, in their order, each nullable.
///
/// # Errors
///
/// `ROW_UNREADABLE` when a column has a type that is none from before a promotion, or a default that no value
/// of its type is.
pub(super) fn aligned<'a>(
    batch: &RecordBatch,
    wanted: impl IntoIterator<Item = Wanted<'a>>,
) -> Result<Vec<ArrayRef>> {
    let (fields, columns) = (batch.schema_ref().fields(), batch.columns());
    let wanted = wanted.into_iter();
    let columns = wanted.map(|one| child((fields, columns), one, batch.num_rows()));
    columns.collect()
}

fn id(field: &Field) -> Option<&String> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY)
}

/// Returns the field that is wanted among those of a file or of a struct.
fn child(
    (fields, columns): (&Fields, &[ArrayRef]),
    wanted: Wanted<'_>,
    rows: usize,
) -> Result<ArrayRef> {
    let mut all = fields.iter().zip(columns);
    let found = id(wanted.1).and_then(|id_of| all.find(|(field, _)| id(field) == Some(id_of)));
    match found {
        Some((field, column)) => array(column, field, wanted),
        None => missing(wanted, rows),
    }
}

fn array(from: &ArrayRef, field: &Field, wanted: Wanted<'_>) -> Result<ArrayRef> {
    let (of, to) = wanted;
    let misfit = || unfit(field, to);
    let made: Option<ArrayRef> = match (from.data_type(), to.data_type(), of.field_type.as_ref()) {
        (have, want, _) if have == want => return Ok(Arc::clone(from)),
        (DataType::Struct(_), DataType::Struct(fields), Type::Struct(of)) => {
            let from = from.as_struct();
            let own = (from.fields(), from.columns());
            let wanted = of.fields().iter().zip(fields);
            let columns = wanted.map(|(of, field)| child(own, (of, field), from.len()));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let nulls = from.nulls().cloned();
            let made = StructArray::try_new_with_length(fields.clone(), columns, nulls, from.len());
            made.ok().map(|made| Arc::new(made) as ArrayRef)
        }
        (DataType::List(own), DataType::List(element), Type::List(of)) => {
            let list = from.as_list::<i32>();
            let values = array(list.values(), own, (&of.element_field, element))?;
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            let made = ListArray::try_new(Arc::clone(element), offsets, values, nulls);
            made.ok().map(|made| Arc::new(made) as ArrayRef)
        }
        (DataType::Map(_, _), DataType::Map(entries, sorted), Type::Map(of)) => {
            let map = from.as_map();
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(misfit());
            };
            // The names of entries are each library's own; key and value come in this order.
            let columns = map.entries().columns().iter().zip(map.entries().fields());
            let of = [&of.key_field, &of.value_field];
            let columns = columns.zip(fields).zip(of);
            let columns =
                columns.map(|(((column, own), field), of)| array(column, own, (of, field)));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let made = StructArray::try_new(fields.clone(), columns, None).ok();
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            let made = made.and_then(|made| {
                MapArray::try_new(Arc::clone(entries), offsets, made, nulls, *sorted).ok()
            });
            made.map(|made| Arc::new(made) as ArrayRef)
        }
        (have, want, _) if is_promotion(have, want) => exact(from, want),
        _ => None,
    };
    made.ok_or_else(misfit)
}

fn exact(from: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    let exact = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(from, to, &exact).ok()
}

/// Returns a field of `rows` rows of a file that does not have it.
fn missing((of, to): Wanted<'_>, rows: usize) -> Result<ArrayRef> {
    let one = match (&of.initial_default, of.field_type.as_ref(), to.data_type()) {
        (None, _, _) => return Ok(new_null_array(to.data_type(), rows)),
        // The default of a struct is the empty one: each of its fields has its own.
        (Some(Literal::Struct(_)), Type::Struct(of), DataType::Struct(fields)) => {
            let wanted = of.fields().iter().zip(fields);
            let columns = wanted.map(|(of, field)| missing((of, field), rows));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let made = StructArray::try_new_with_length(fields.clone(), columns, None, rows);
            return Ok(Arc::new(made.map_err(|_| undefaulted(to))?));
        }
        (Some(Literal::Primitive(value)), _, kind) => one_of(value, kind),
        (Some(_), _, _) => None,
    };
    let one = one.ok_or_else(|| undefaulted(to))?;
    let all = UInt32Array::from(vec![0; rows]);
    take(&one, &all, None).map_err(|error| undefaulted(to).caused_by(error))
}

/// Returns a value as an array of one row; `None` when the type has no such value.
fn one_of(value: &PrimitiveLiteral, kind: &DataType) -> Option<ArrayRef> {
    let one: ArrayRef = match (value, kind) {
        (PrimitiveLiteral::Boolean(value), _) => Arc::new(BooleanArray::from(vec![*value])),
        (PrimitiveLiteral::Int(value), _) => Arc::new(Int32Array::from(vec![*value])),
        // Times are numbers of the unit that their type has.
        (PrimitiveLiteral::Long(value), _) => Arc::new(Int64Array::from(vec![*value])),
        (PrimitiveLiteral::Float(value), _) => Arc::new(Float32Array::from(vec![value.0])),
        (PrimitiveLiteral::Double(value), _) => Arc::new(Float64Array::from(vec![value.0])),
        (PrimitiveLiteral::String(value), _) => Arc::new(StringArray::from(vec![&**value])),
        (PrimitiveLiteral::Int128(value), DataType::Decimal128(precision, scale)) => {
            let one = Decimal128Array::from(vec![*value]);
            Arc::new(one.with_precision_and_scale(*precision, *scale).ok()?)
        }
        (PrimitiveLiteral::UInt128(value), DataType::FixedSizeBinary(_)) => {
            let bytes = value.to_be_bytes();
            Arc::new(FixedSizeBinaryArray::try_from_iter([bytes].into_iter()).ok()?)
        }
        (PrimitiveLiteral::Binary(value), DataType::FixedSizeBinary(_)) => {
            Arc::new(FixedSizeBinaryArray::try_from_iter([value].into_iter()).ok()?)
        }
        (PrimitiveLiteral::Binary(value), _) => Arc::new(BinaryArray::from(vec![&**value])),
        _ => return None,
    };
    exact(&one, kind)
}

/// Tells whether values of a type are values of another one: of Iceberg's promotions, and where Arrow has
/// several types for one of Iceberg's.
fn is_promotion(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, Date32, Decimal128, FixedSizeBinary, Float32, Float64, Int32, Int64, LargeBinary,
        LargeUtf8, Time64, Timestamp, Utf8,
    };
    match (from, to) {
        (Int32, Int64) | (Float32, Float64) | (Date32, Timestamp(..)) => true,
        (Decimal128(small, scale), Decimal128(large, same)) => small <= large && scale == same,
        (Binary | LargeBinary | FixedSizeBinary(_), Binary | LargeBinary) => true,
        (Utf8 | LargeUtf8, Utf8 | LargeUtf8) => true,
        (Binary | LargeBinary, Utf8) => true,
        (Timestamp(unit, zone), Timestamp(other, same)) => {
            unit == other && zone.is_some() == same.is_some()
        }
        (Time64(unit), Time64(other)) => unit == other,
        _ => false,
    }
}

fn undefaulted(to: &Field) -> SinkError {
    SinkError::fatal(
        UNREADABLE,
        "a row that a change takes values from is from before a column whose initial default cannot be read: \
         rewrite its file with another engine, or let the source send whole rows",
    )
    .with("column", to.name())
    .with("type", to.data_type())
}

fn unfit(from: &Field, to: &Field) -> SinkError {
    SinkError::fatal(
        UNREADABLE,
        "a row that a change takes values from has a column of a type that is not the table's: rewrite its \
         file with another engine, or let the source send whole rows",
    )
    .with("column", to.name())
    .with("type", from.data_type())
    .with("expected", to.data_type())
}

#[cfg(test)]
#[path = "aligned_tests.rs"]
mod tests;
