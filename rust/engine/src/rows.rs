//! Rows of data files, as they are read back.

mod aligned;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use frazil_core::{Result, SinkError};
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

pub(crate) use aligned::aligned;

use crate::storage::TableStorage;

/// Bytes at the end of a file that are read at once.
const FOOTER_BYTES: usize = 64 << 10;

/// A Parquet file in a store.
#[derive(Debug)]
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
}

impl AsyncFileReader for StoredFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        let read = async move {
            let bytes = self.storage.get_range(&self.location, range).await;
            bytes.map_err(|error| ParquetError::External(Box::new(error)))
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

/// Puts numbers of the rows of `batch`, from `first` on, behind its columns.
pub(crate) fn numbered(batch: &RecordBatch, first: usize) -> Result<RecordBatch> {
    let first = u32::try_from(first).map_err(|_| SinkError::internal("too many rows"))?;
    let numbers: UInt32Array = (first..)
        .take(batch.num_rows())
        .collect::<Vec<u32>>()
        .into();
    let number = Arc::new(Field::new("number", DataType::UInt32, false));
    let fields = batch.schema_ref().fields().iter().cloned().chain([number]);
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let numbers: ArrayRef = Arc::new(numbers);
    let columns = batch.columns().iter().cloned().chain([numbers]);
    RecordBatch::try_new(schema, columns.collect())
        .map_err(|error| SinkError::internal("rows cannot be numbered").caused_by(error))
}
