//! Columns of data files as the table has them now: by field ids, promoted, with nulls for columns that came
//! later.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, RecordBatch, StructArray, new_null_array};
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, FieldRef, Fields, SchemaRef};
use frazil_core::{Result, SinkError};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

/// Returns the columns of `batch` as those of `schema`, in its order, each nullable.
///
/// # Errors
///
/// `ROW_UNREADABLE` when a column has a type that is none from before a promotion.
pub(crate) fn aligned(batch: &RecordBatch, schema: &SchemaRef) -> Result<Vec<ArrayRef>> {
    let (fields, columns) = (batch.schema_ref().fields(), batch.columns());
    let column = |field: &FieldRef| match find(fields, columns, field) {
        Some((column, from)) => array(&column, &from, field),
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
    };
    schema.fields().iter().map(column).collect()
}

fn id(field: &Field) -> Option<&String> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY)
}

fn find(fields: &Fields, columns: &[ArrayRef], wanted: &Field) -> Option<(ArrayRef, FieldRef)> {
    let wanted = id(wanted)?;
    let mut all = fields.iter().zip(columns);
    let (field, column) = all.find(|(field, _)| id(field) == Some(wanted))?;
    Some((Arc::clone(column), Arc::clone(field)))
}

fn array(from: &ArrayRef, field: &Field, wanted: &Field) -> Result<ArrayRef> {
    let made: Option<ArrayRef> = match (from.data_type(), wanted.data_type()) {
        (have, want) if have == want => return Ok(Arc::clone(from)),
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let from = from.as_struct();
            let columns =
                fields
                    .iter()
                    .map(|field| match find(from.fields(), from.columns(), field) {
                        Some((column, own)) => array(&column, &own, field),
                        None => Ok(new_null_array(field.data_type(), from.len())),
                    });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let nulls = from.nulls().cloned();
            let made = StructArray::try_new_with_length(fields.clone(), columns, nulls, from.len());
            made.ok().map(|made| Arc::new(made) as ArrayRef)
        }
        (DataType::List(own), DataType::List(element)) => {
            let list = from.as_list::<i32>();
            let values = array(list.values(), own, element)?;
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            let made = ListArray::try_new(Arc::clone(element), offsets, values, nulls);
            made.ok().map(|made| Arc::new(made) as ArrayRef)
        }
        (DataType::Map(_, _), DataType::Map(entries, sorted)) => {
            let map = from.as_map();
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(unfit(field, wanted));
            };
            // The names of entries are each library's own; key and value come in this order.
            let columns = map.entries().columns().iter().zip(map.entries().fields());
            let columns = columns
                .zip(fields)
                .map(|((column, own), field)| array(column, own, field));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let made = StructArray::try_new(fields.clone(), columns, None).ok();
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            let made = made.and_then(|made| {
                MapArray::try_new(Arc::clone(entries), offsets, made, nulls, *sorted).ok()
            });
            made.map(|made| Arc::new(made) as ArrayRef)
        }
        (have, want) if is_promotion(have, want) => {
            let exact = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            cast_with_options(from, want, &exact).ok()
        }
        _ => None,
    };
    made.ok_or_else(|| unfit(field, wanted))
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

fn unfit(from: &Field, to: &Field) -> SinkError {
    SinkError::fatal(
        "ROW_UNREADABLE",
        "a data file has a column of a type that is not the table's, so that its rows cannot be written again: \
         rewrite it with another engine; where a change takes values from it, let the source send whole rows",
    )
    .with("column", to.name())
    .with("type", from.data_type())
    .with("expected", to.data_type())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::types::{Int32Type, Int64Type};
    use arrow_array::{Int32Array, Int64Array, StringArray};
    use arrow_schema::Schema;

    use super::*;

    fn field(name: &str, id: i32, kind: DataType) -> Field {
        let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]);
        Field::new(name, kind, true).with_metadata(id)
    }

    #[test]
    fn columns_are_found_by_their_ids_and_promoted() {
        let inner = Fields::from(vec![field("old", 4, DataType::Int32)]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![Some(1), None])),
            Arc::new(StringArray::from(vec!["a", "b"])),
            Arc::new(StructArray::new(
                inner.clone(),
                vec![Arc::new(Int32Array::from(vec![7, 8]))],
                None,
            )),
        ];
        let schema = Schema::new(vec![
            field("was", 1, DataType::Int32),
            field("text", 2, DataType::Utf8),
            field("s", 3, DataType::Struct(inner)),
        ]);
        let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
        let inner = Fields::from(vec![
            field("more", 5, DataType::Utf8),
            field("new", 4, DataType::Int64),
        ]);
        let now = Arc::new(Schema::new(vec![
            field("text", 2, DataType::Utf8),
            field("is", 1, DataType::Int64),
            field("later", 9, DataType::Utf8),
            field("s", 3, DataType::Struct(inner)),
        ]));
        let made = aligned(&batch, &now).unwrap();
        let texts: Vec<_> = made[0].as_string::<i32>().iter().flatten().collect();
        assert_eq!(texts, ["a", "b"]);
        let numbers: Vec<_> = made[1].as_primitive::<Int64Type>().iter().collect();
        assert_eq!(numbers, [Some(1), None]);
        assert_eq!(made[2].null_count(), 2);
        let inner = made[3].as_struct();
        assert_eq!(inner.column(0).null_count(), 2);
        let numbers = inner.column(1).as_primitive::<Int64Type>().values();
        assert_eq!(numbers, &Int64Array::from(vec![7, 8]).values().clone());
    }

    #[test]
    fn a_list_of_numbers_is_promoted() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None])]);
        let of = |kind| {
            field(
                "list",
                1,
                DataType::List(Arc::new(field("element", 2, kind))),
            )
        };
        let schema = Schema::new(vec![field("list", 1, list.data_type().clone())]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(list)]).unwrap();
        let now = Arc::new(Schema::new(vec![of(DataType::Int64)]));
        let made = aligned(&batch, &now).unwrap();
        let values = made[0].as_list::<i32>().value(0);
        let values: Vec<_> = values.as_primitive::<Int64Type>().iter().collect();
        assert_eq!(values, [Some(1), None]);
    }

    #[test]
    fn a_type_that_is_no_promotion_is_refused() {
        let schema = Arc::new(Schema::new(vec![field("n", 1, DataType::Int64)]));
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_new(schema, vec![column]).unwrap();
        let now = Arc::new(Schema::new(vec![field("n", 1, DataType::Int32)]));
        let error = aligned(&batch, &now).unwrap_err();
        assert_eq!(error.code(), "ROW_UNREADABLE");
    }
}
