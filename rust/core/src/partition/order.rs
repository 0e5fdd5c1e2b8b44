//! The order of rows: which of two comes first by a sort order.

use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, make_array};
use arrow_ord::sort::{SortColumn, SortOptions, lexsort_to_indices};
use arrow_schema::ArrowError;
use iceberg::spec::{NullOrder, PrimitiveType, Schema, SortDirection, SortOrder, Transform};

use super::{locate, values};
use crate::error::{Result, SinkError};

/// One field of a sort order, resolved against the schema.
#[derive(Debug)]
struct Field {
    transform: Transform,
    source: PrimitiveType,
    position: Vec<usize>,
    options: SortOptions,
}

/// Sorts the rows of batches of one schema.
///
/// Numbers compare by value (floats as Iceberg has it: -NaN first, NaN last, -0 before 0), texts and
/// bytes byte by byte. Rows that compare equal keep their order.
#[derive(Debug)]
pub struct RowOrder {
    fields: Vec<Field>,
}

impl RowOrder {
    /// Resolves `order` against `schema`. Batches must have the columns of `schema` in its order.
    ///
    /// # Errors
    ///
    /// `SORT_UNSUPPORTED` for a column inside of a list or map, or a transform that is not known.
    pub fn new(order: &SortOrder, schema: &Schema) -> Result<Self> {
        let fields = order.fields.iter().map(|field| {
            let unsupported = |reason: &str| {
                SinkError::config(
                    "SORT_UNSUPPORTED",
                    format!(
                        "rows cannot be sorted by column {}: {reason}",
                        field.source_id
                    ),
                )
            };
            let (position, source) = locate(schema.as_struct(), field.source_id)
                .ok_or_else(|| unsupported("it is inside of a list or map"))?;
            values::supported(field.transform, &source).map_err(unsupported)?;
            Ok(Field {
                transform: field.transform,
                source,
                position,
                options: SortOptions {
                    descending: field.direction == SortDirection::Descending,
                    nulls_first: field.null_order == NullOrder::First,
                },
            })
        });
        Ok(RowOrder {
            fields: fields.collect::<Result<_>>()?,
        })
    }

    /// Returns the numbers of the rows of `batch` in their order; `None` when they are in it
    /// already.
    pub fn sort(&self, batch: &RecordBatch) -> Result<Option<UInt32Array>> {
        let rows = u32::try_from(batch.num_rows())
            .map_err(|_| SinkError::internal("a batch of more than 2^32 rows"))?;
        let mut columns = Vec::with_capacity(self.fields.len() + 1);
        for field in &self.fields {
            columns.push(SortColumn {
                values: field.values(batch)?,
                options: Some(field.options),
            });
        }
        // What compares equal is told apart by where it stands.
        columns.push(SortColumn {
            values: std::sync::Arc::new(UInt32Array::from_iter_values(0..rows)),
            options: None,
        });
        let indices = lexsort_to_indices(&columns, None).map_err(failed)?;
        let mut expected = 0..rows;
        let in_order = indices
            .values()
            .iter()
            .all(|row| expected.next() == Some(*row));
        Ok((!in_order).then_some(indices))
    }
}

impl Field {
    /// Returns what is compared, null also where a struct around the column is.
    fn values(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let (array, nulls) = values::resolve(&self.position, batch)?;
        let array = match self.transform {
            Transform::Identity => array,
            transform => values::transformed(transform, &self.source, &array)?,
        };
        if nulls.as_ref().map(|nulls| nulls.null_count()) == array.nulls().map(|n| n.null_count()) {
            return Ok(array);
        }
        let data = array.to_data().into_builder().nulls(nulls).build();
        data.map(make_array).map_err(failed)
    }
}

fn failed(error: ArrowError) -> SinkError {
    SinkError::internal("rows could not be sorted").caused_by(error)
}
