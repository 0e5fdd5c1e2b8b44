//! Reads the key columns of a data file, and nothing else of it.

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::Fields;
use frazil_core::{Result, SinkError};
use futures::TryStreamExt;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::ParquetRecordBatchStream;
use parquet::arrow::{PARQUET_FIELD_ID_META_KEY, ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::ParquetError;

use crate::rows::StoredFile;
use crate::storage::{TableStorage, find_sink_error};

/// Rows whose keys are read at a time.
pub(super) const BATCH_ROWS: usize = 8_192;
/// Rows that are read at a time of a file of which all columns are read.
const WHOLE_ROWS: usize = 1_024;

/// The key columns of a data file, batch by batch.
pub(crate) struct KeyColumns {
    batches: ParquetRecordBatchStream<StoredFile>,
    location: String,
    field_ids: Vec<i32>,
    next_row: u64,
}

impl KeyColumns {
    /// Opens the data file at `location`, which has `bytes` bytes.
    ///
    /// # Errors
    ///
    /// `INDEX_FILE_UNREADABLE`, or what the store says.
    pub(crate) async fn open(
        storage: &TableStorage,
        location: &str,
        bytes: u64,
        field_ids: &[i32],
    ) -> Result<Self> {
        let unusable = |error: ParquetError| unusable(location, error);
        let builder = reader(storage, location, bytes).await?;
        let schema = builder.parquet_schema();
        let leaves = (0..schema.num_columns()).filter(|leaf| {
            let info = schema.column(*leaf).self_type().get_basic_info().clone();
            info.has_id() && field_ids.contains(&info.id())
        });
        let mask = ProjectionMask::leaves(schema, leaves.collect::<Vec<_>>());
        let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
        Ok(KeyColumns {
            batches: builder.build().map_err(unusable)?,
            location: location.to_owned(),
            field_ids: field_ids.to_vec(),
            next_row: 0,
        })
    }

    /// Returns the first row and the columns, in the order of their field ids, of the next batch;
    /// `None` after the last.
    ///
    /// # Errors
    ///
    /// `INDEX_KEY_MISSING` when the file does not have a column, or what the store says.
    pub(crate) async fn next(&mut self) -> Result<Option<(u64, Vec<ArrayRef>)>> {
        let batch = self.batches.try_next().await;
        let Some(batch) = batch.map_err(|error| unusable(&self.location, error))? else {
            return Ok(None);
        };
        let columns = self.field_ids.iter().map(|id| {
            let column = column_of(&batch, *id);
            column.ok_or_else(|| missing(&self.location, *id))
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let first = self.next_row;
        self.next_row += batch.num_rows() as u64;
        Ok(Some((first, columns)))
    }

    /// Returns the number of rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.next_row
    }
}

/// Calls `each` with the first row and the columns with `field_ids`, in this order, of each batch of
/// the data file at `location`, which has `bytes` bytes. Returns the number of rows.
///
/// # Errors
///
/// `INDEX_KEY_MISSING` when the file does not have a column, what the store says, or what `each` says.
pub async fn read_key_columns(
    storage: &TableStorage,
    location: &str,
    bytes: u64,
    field_ids: &[i32],
    mut each: impl FnMut(u64, &[ArrayRef]) -> Result<()>,
) -> Result<u64> {
    let mut columns = KeyColumns::open(storage, location, bytes, field_ids).await?;
    while let Some((first, columns)) = columns.next().await? {
        each(first, &columns)?;
    }
    Ok(columns.rows())
}

/// Begins to read the data file at `location`, which has `bytes` bytes, as a whole.
async fn reader(
    storage: &TableStorage,
    location: &str,
    bytes: u64,
) -> Result<ParquetRecordBatchStreamBuilder<StoredFile>> {
    let file = StoredFile::new(storage, location, bytes);
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = ParquetRecordBatchStreamBuilder::new_with_options(file, options).await;
    builder.map_err(|error| unusable(location, error))
}

/// All rows of a data file, batch by batch.
pub(crate) struct WholeRows {
    batches: ParquetRecordBatchStream<StoredFile>,
    location: String,
}

/// Opens the data file at `location`, which has `bytes` bytes, to read all of it in batches of few rows.
///
/// # Errors
///
/// `INDEX_FILE_UNREADABLE`, or what the store says.
pub(crate) async fn whole_rows(
    storage: &TableStorage,
    location: &str,
    bytes: u64,
) -> Result<WholeRows> {
    let builder = reader(storage, location, bytes).await?;
    let batches = builder.with_batch_size(WHOLE_ROWS).build();
    Ok(WholeRows {
        batches: batches.map_err(|error| unusable(location, error))?,
        location: location.to_owned(),
    })
}

impl WholeRows {
    /// Returns the next rows; `None` after the last.
    ///
    /// # Errors
    ///
    /// `INDEX_FILE_UNREADABLE`, or what the store says.
    pub(crate) async fn try_next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.batches.try_next().await;
        batch.map_err(|error| unusable(&self.location, error))
    }
}

/// Returns the columns of a batch with these field ids, in this order.
pub(crate) fn key_columns(
    batch: &RecordBatch,
    field_ids: impl Iterator<Item = i32>,
) -> Option<Vec<ArrayRef>> {
    field_ids.map(|id| column_of(batch, id)).collect()
}

/// Returns the column of a batch with this field id, also of one in structs.
pub(crate) fn column_of(batch: &RecordBatch, id: i32) -> Option<ArrayRef> {
    find(
        batch.schema_ref().fields(),
        batch.columns(),
        &id.to_string(),
    )
}

/// Finds a column by its field id, also in structs.
fn find(fields: &Fields, columns: &[ArrayRef], id: &str) -> Option<ArrayRef> {
    fields.iter().zip(columns).find_map(|(field, column)| {
        let own = field.metadata().get(PARQUET_FIELD_ID_META_KEY);
        if own.is_some_and(|own| own == id) {
            return Some(column.clone());
        }
        let inner = column.as_struct_opt()?;
        find(inner.fields(), inner.columns(), id)
    })
}

fn missing(location: &str, id: i32) -> SinkError {
    SinkError::fatal(
        "INDEX_KEY_MISSING",
        "a data file of a table with changes lacks a column of the key; rewrite the file with another engine",
    )
    .with("file", crate::redact::foreign(location))
    .with("field_id", id)
}

pub(super) fn unusable(location: &str, error: ParquetError) -> SinkError {
    match find_sink_error(&error) {
        Some(store) => store.again(),
        None => unreadable(location).caused_by(error),
    }
}

/// Returns the error of a data file whose keys cannot be known.
pub(super) fn unreadable(location: &str) -> SinkError {
    SinkError::fatal(
        "INDEX_FILE_UNREADABLE",
        "a data file of a table with changes is no Parquet file that can be read, so its keys are not known; restore or rewrite it",
    )
    .with("file", crate::redact::foreign(location))
}
