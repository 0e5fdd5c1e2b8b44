//! Reads the key columns of a data file, and nothing else of it.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::Fields;
use bytes::Bytes;
use frazil_core::{Result, SinkError};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStream};
use parquet::arrow::{PARQUET_FIELD_ID_META_KEY, ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use crate::storage::{TableStorage, find_sink_error};

/// Rows whose keys are read at a time.
pub(super) const BATCH_ROWS: usize = 8_192;
/// Bytes at the end of a file that are read at once.
const FOOTER_BYTES: usize = 64 << 10;

/// Ranges of a file that are read at the same time.
const RANGES: usize = 8;
/// Bytes between two ranges that are read together all the same, and of such a read.
const GAP_BYTES: u64 = 16 << 10;
const JOINED_BYTES: u64 = 8 << 20;

/// A Parquet file in a store.
#[derive(Clone)]
pub(super) struct StoredFile {
    storage: TableStorage,
    location: String,
    bytes: u64,
    /// Whether it is read page by page.
    by_pages: bool,
}

impl StoredFile {
    /// Names the file at `location`, which has `bytes` bytes, to be read page by page or as a whole.
    pub(super) fn new(storage: &TableStorage, location: &str, bytes: u64, by_pages: bool) -> Self {
        StoredFile {
            storage: storage.clone(),
            location: location.to_owned(),
            bytes,
            by_pages,
        }
    }

    pub(super) fn location(&self) -> &str {
        &self.location
    }
}

/// Joins ranges, ascending, that lie close by one another: each with how many of `ranges` it has.
fn joined(ranges: &[Range<u64>]) -> Vec<(Range<u64>, usize)> {
    let mut all: Vec<(Range<u64>, usize)> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some((last, count))
                if range.start >= last.end
                    && range.start - last.end <= GAP_BYTES
                    && range.end - last.start <= JOINED_BYTES =>
            {
                last.end = range.end;
                *count += 1;
            }
            _ => all.push((range.clone(), 1)),
        }
    }
    all
}

impl AsyncFileReader for StoredFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        let read = async move {
            let bytes = self.storage.get_range(&self.location, range).await;
            bytes.map_err(|error| ParquetError::External(Box::new(error)))
        };
        read.boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        let (storage, location) = (self.storage.clone(), self.location.clone());
        let read = async move {
            let reads = joined(&ranges).into_iter().map(|(joined, count)| {
                let (storage, location) = (&storage, &location);
                async move {
                    let bytes = storage.get_range(location, joined.clone()).await;
                    let bytes = bytes.map_err(|error| ParquetError::External(Box::new(error)));
                    bytes.map(|bytes| (joined.start, count, bytes))
                }
            });
            let reads: Vec<_> = reads.collect();
            let mut reads = futures::stream::iter(reads).buffered(RANGES);
            let (mut all, mut next) = (Vec::with_capacity(ranges.len()), ranges.iter());
            while let Some((start, count, bytes)) = reads.try_next().await? {
                let parts = next.by_ref().take(count);
                let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
                all.extend(parts.map(|part| bytes.slice(at(part.start)..at(part.end))));
            }
            Ok(all)
        };
        read.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let read = async move {
            let bytes = self.bytes;
            let pages = match self.by_pages {
                true => PageIndexPolicy::Optional,
                false => PageIndexPolicy::Skip,
            };
            let reader = ParquetMetaDataReader::new()
                .with_prefetch_hint(self.by_pages.then_some(FOOTER_BYTES))
                .with_offset_index_policy(pages);
            reader.load_and_finish(self, bytes).await.map(Arc::new)
        };
        read.boxed()
    }
}

/// Reads what the Parquet file at `location`, which has `bytes` bytes, says of itself at its end.
pub(crate) async fn read_footer(
    storage: &TableStorage,
    location: &str,
    bytes: u64,
) -> ParquetResult<ParquetMetaData> {
    let mut file = StoredFile::new(storage, location, bytes, false);
    let reader = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER_BYTES));
    reader.load_and_finish(&mut file, bytes).await
}

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
        let file = StoredFile::new(storage, location, bytes, false);
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchStreamBuilder::new_with_options(file, options).await;
        let builder = builder.map_err(unusable)?;
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

/// Returns the columns of a batch with these field ids, in this order.
pub(crate) fn key_columns(
    batch: &RecordBatch,
    field_ids: impl Iterator<Item = i32>,
) -> Option<Vec<ArrayRef>> {
    field_ids.map(|id| column_of(batch, id)).collect()
}

fn column_of(batch: &RecordBatch, id: i32) -> Option<ArrayRef> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_lie_close_by_one_another_are_read_together() {
        let far = JOINED_BYTES;
        let ranges = [
            0..100,
            100..300,
            1_000..2_000,
            2_000 + GAP_BYTES + 1..3_000 + GAP_BYTES,
            far..2 * far - 10,
            2 * far - 10..2 * far + 10,
            // Not in order: each for itself.
            5..10,
        ];
        let expected = [
            (0..2_000, 3),
            (2_000 + GAP_BYTES + 1..3_000 + GAP_BYTES, 1),
            (far..2 * far - 10, 1),
            (2 * far - 10..2 * far + 10, 1),
            (5..10, 1),
        ];
        assert_eq!(joined(&ranges), expected);
    }
}
