//! Rows of data files, as they are read back.

mod aligned;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use frazil_core::{Result, SinkError};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

pub(crate) use aligned::{UNREADABLE, aligned};

use crate::storage::TableStorage;

/// Bytes at the end of a file that are read at once.
const FOOTER_BYTES: usize = 64 << 10;
/// Ranges of a file that are read at the same time.
const RANGES: usize = 8;
/// Bytes between two ranges that are read together all the same, and of such a read.
const GAP_BYTES: u64 = 16 << 10;
const JOINED_BYTES: u64 = 8 << 20;

/// A Parquet file in a store.
#[derive(Debug, Clone)]
pub(crate) struct StoredFile {
    storage: TableStorage,
    location: String,
    bytes: u64,
    /// Whether it is read page by page.
    by_pages: bool,
}

impl StoredFile {
    /// Names the file at `location`, which has `bytes` bytes.
    pub(crate) fn new(storage: &TableStorage, location: &str, bytes: u64) -> Self {
        StoredFile {
            storage: storage.clone(),
            location: location.to_owned(),
            bytes,
            by_pages: false,
        }
    }

    /// Lets it be read page by page.
    pub(crate) fn by_pages(mut self) -> Self {
        self.by_pages = true;
        self
    }

    pub(crate) fn location(&self) -> &str {
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
    let mut file = StoredFile::new(storage, location, bytes);
    let reader = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER_BYTES));
    reader.load_and_finish(&mut file, bytes).await
}

/// Puts the numbers of the rows of `batch` behind its columns.
pub(crate) fn numbered(batch: &RecordBatch, numbers: Vec<u32>) -> Result<RecordBatch> {
    let number = Arc::new(Field::new("number", DataType::UInt32, false));
    let fields = batch.schema_ref().fields().iter().cloned().chain([number]);
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let numbers: ArrayRef = Arc::new(UInt32Array::from(numbers));
    let columns = batch.columns().iter().cloned().chain([numbers]);
    RecordBatch::try_new(schema, columns.collect())
        .map_err(|error| SinkError::internal("rows cannot be numbered").caused_by(error))
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
