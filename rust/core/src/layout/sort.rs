//! Sort orders: of a table that is created, and the one that files are written in.

use iceberg::spec::{NullOrder, Schema, SortDirection, SortField, SortOrder, TableMetadata};

use super::{column_missing, find, may_come};
use crate::config::{SortTerm, TableConfig};
use crate::error::{Result, SinkError};
use crate::partition::RowOrder;

/// The order that the rows of a file are written in.
#[derive(Debug)]
pub struct FileOrder {
    /// How two rows compare.
    pub rows: RowOrder,
    /// The id under which the table knows this order, for files that are sorted throughout.
    pub id: Option<i32>,
}

/// Returns the sort order of a table that is created with `schema`, `None` for an unsorted one.
///
/// # Errors
///
/// `CREATE_COLUMN_MISSING`, `SORT_BY_INVALID`.
pub fn of_new_table(schema: &Schema, config: &TableConfig) -> Result<Option<SortOrder>> {
    if config.layout.sort_by.is_empty() {
        return Ok(None);
    }
    let order =
        order(schema, config).map_err(|column| super::spec::not_in_record("sort-by", &column))?;
    let order = bound(order, schema)?;
    RowOrder::new(&order, schema).map(|_| Some(order))
}

/// Returns the order that files of an existing table are written in: the configured one, else the
/// table's own. `None` for no order, which is also the answer while a configured column is not
/// there yet.
///
/// # Errors
///
/// Why the table's own order cannot be followed.
pub fn of_table(metadata: &TableMetadata, config: &TableConfig) -> Result<Option<FileOrder>> {
    let schema = metadata.current_schema();
    if config.layout.sort_by.is_empty() {
        let own = metadata.default_sort_order();
        if own.is_unsorted() {
            return Ok(None);
        }
        return file_order(own, Some(own.order_id), schema).map(Some);
    }
    let Ok(wanted) = order(schema, config) else {
        return Ok(None);
    };
    let mut known = metadata.sort_orders_iter();
    let known = known.find(|known| known.fields == wanted);
    file_order(
        &bound(wanted, schema)?,
        known.map(|order| order.order_id),
        schema,
    )
    .map(Some)
}

/// Checks an existing table at the start of a task.
pub fn check(schema: &Schema, config: &TableConfig) -> Result<()> {
    if config.layout.sort_by.is_empty() {
        return Ok(());
    }
    match order(schema, config) {
        Ok(fields) => RowOrder::new(&bound(fields, schema)?, schema).map(|_| ()),
        Err(_) if may_come(config) => Ok(()),
        Err(column) => Err(column_missing("SORT_COLUMN_MISSING", "sort-by", &column)),
    }
}

fn file_order(order: &SortOrder, id: Option<i64>, schema: &Schema) -> Result<FileOrder> {
    Ok(FileOrder {
        rows: RowOrder::new(order, schema)?,
        id: id.and_then(|id| i32::try_from(id).ok()),
    })
}

/// Returns the fields of the configured order, or the column that is not there.
fn order(schema: &Schema, config: &TableConfig) -> Result<Vec<SortField>, String> {
    let field = |term: &SortTerm| {
        let source = find(schema, &term.column, config.case_insensitive)
            .ok_or_else(|| term.column.clone())?;
        Ok(SortField {
            source_id: source.id,
            transform: term.transform,
            direction: match term.descending {
                true => SortDirection::Descending,
                false => SortDirection::Ascending,
            },
            null_order: match term.nulls_first {
                true => NullOrder::First,
                false => NullOrder::Last,
            },
        })
    };
    config.layout.sort_by.iter().map(field).collect()
}

fn bound(fields: Vec<SortField>, schema: &Schema) -> Result<SortOrder> {
    SortOrder::builder()
        .with_order_id(1)
        .with_fields(fields)
        .build(schema)
        .map_err(|error| {
            SinkError::config(
                "SORT_BY_INVALID",
                "`sort-by` makes no sort order: name columns of primitive types, and only \
                 transforms that the column's type allows",
            )
            .caused_by(error)
        })
}
