//! Rows of a Parquet file by their places, some at a time: page by page, and the columns that are wanted alone.

use futures::TryStreamExt;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::ParquetRecordBatchStream;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

use arrow_array::RecordBatch;
use frazil_core::{Result, SinkError};

use super::keys::{BATCH_ROWS, StoredFile, unusable};
use crate::storage::TableStorage;

/// A file has fewer rows than is known of it.
pub(crate) const ROW_MISSING: &str = "ROW_MISSING";

/// Bytes of a batch of rows, about, when they are as large as others of their file.
const BATCH_BYTES: usize = if cfg!(test) { 256 } else { 4 << 20 };

/// A Parquet file of which rows are read.
pub(crate) struct RowFile {
    file: StoredFile,
    metadata: ArrowReaderMetadata,
}

/// How many rows are read at once, and what they take, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit {
    pub(crate) rows: usize,
    /// Bytes of the pages, and of what is in these rows.
    pub(crate) bytes: usize,
}

impl RowFile {
    /// Opens the file at `location`, which has `bytes` bytes.
    ///
    /// # Errors
    ///
    /// `INDEX_FILE_UNREADABLE`, or what the store says.
    pub(crate) async fn open(storage: &TableStorage, location: &str, bytes: u64) -> Result<Self> {
        let mut file = StoredFile::new(storage, location, bytes, true);
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load_async(&mut file, options).await;
        let metadata = metadata.map_err(|error| unusable(location, error))?;
        Ok(RowFile { file, metadata })
    }

    /// Returns the number of its rows.
    pub(crate) fn rows(&self) -> u64 {
        let rows = self.metadata.metadata().file_metadata().num_rows();
        u64::try_from(rows).unwrap_or_default()
    }

    /// Returns the bytes that what is known of it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.metadata.metadata().memory_size()
    }

    /// Tells how many of `rows`, ascending, to read at once, so that their pages take no more than `bytes_max`
    /// and their values neither, as far as the file tells: one at least. Of the columns with these field ids.
    pub(crate) fn fit(&self, rows: &[u32], wanted: impl Fn(i32) -> bool, bytes_max: usize) -> Fit {
        let metadata = self.metadata.metadata();
        let roots = self.roots(wanted);
        let schema = self.metadata.parquet_schema();
        let leaves = (0..schema.num_columns())
            .filter(|leaf| roots.contains(&schema.get_column_root_idx(*leaf)));
        let leaves: Vec<usize> = leaves.collect();
        let (mut read, mut held, mut first) = (0.0, 0.0, 0);
        let (mut fit, most) = (Fit { rows: 0, bytes: 0 }, bytes_max as f64);
        let mut rest = rows.iter().peekable();
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let end = first + usize::try_from(group.num_rows()).unwrap_or_default();
            let index = metadata.offset_index().and_then(|index| index.get(number));
            let mut columns: Vec<Chunk<'_>> = leaves
                .iter()
                .filter_map(|leaf| {
                    let pages = index.and_then(|pages| pages.get(*leaf));
                    Chunk::of(group, *leaf, pages)
                })
                .collect();
            while let Some(row) = rest.next_if(|row| (**row as usize) < end) {
                let before = read;
                for column in &mut columns {
                    let (pages, values) = column.bytes_of((*row as usize).saturating_sub(first));
                    read += pages;
                    held += values;
                }
                // The other rows of a page come with it.
                let is_over = held > most || (read > most && read > before);
                if fit.rows > 0 && is_over {
                    return fit;
                }
                fit.rows += 1;
                fit.bytes = (read + held) as usize;
            }
            first = end;
        }
        // A row that is not there is found when it is read.
        match rest.peek() {
            Some(_) => Fit {
                rows: rows.len(),
                ..fit
            },
            None => fit,
        }
    }

    /// Begins to read `rows`, ascending and each once: the columns with these field ids. Pages without such a row
    /// are not read. `fit` is what is known of them.
    ///
    /// # Errors
    ///
    /// `ROW_MISSING` when the file has fewer rows, or `INDEX_FILE_UNREADABLE`.
    pub(crate) fn read(
        &self,
        rows: &[u32],
        wanted: impl Fn(i32) -> bool,
        fit: Fit,
    ) -> Result<Rows> {
        let total = usize::try_from(self.rows()).unwrap_or_default();
        let last = rows.last().map_or(0, |row| *row as usize);
        if last >= total && !rows.is_empty() {
            let error = row_missing(self.file.location());
            return Err(error.with("row", last).with("rows", total));
        }
        let each = (fit.bytes / fit.rows.max(1)).max(1);
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), self.roots(wanted));
        let ranges = rows.iter().map(|row| *row as usize..*row as usize + 1);
        let selection = RowSelection::from_consecutive_ranges(ranges, total);
        let (file, metadata) = (self.file.clone(), self.metadata.clone());
        let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(file, metadata)
            .with_projection(mask)
            .with_row_selection(selection)
            .with_batch_size((BATCH_BYTES / each).clamp(1, BATCH_ROWS));
        let batches = builder.build();
        Ok(Rows {
            batches: batches.map_err(|error| unusable(self.file.location(), error))?,
            location: self.file.location().to_owned(),
            expected: rows.len(),
            read: 0,
        })
    }

    /// Returns the columns with these field ids, by their places.
    fn roots(&self, wanted: impl Fn(i32) -> bool) -> Vec<usize> {
        let fields = self.metadata.parquet_schema().root_schema().get_fields();
        let fields = fields.iter().enumerate().filter(|(_, field)| {
            let info = field.get_basic_info();
            info.has_id() && wanted(info.id())
        });
        fields.map(|(place, _)| place).collect()
    }
}

/// A column of a row group, of which rows are looked up in their order.
struct Chunk<'m> {
    pages: Option<&'m OffsetIndexMetaData>,
    /// The page of the last row; none was looked up before the first.
    page: Option<usize>,
    rows: f64,
    read: f64,
    /// Bytes of values for each byte that is read.
    ratio: f64,
}

impl<'m> Chunk<'m> {
    fn of(
        group: &'m RowGroupMetaData,
        leaf: usize,
        pages: Option<&'m OffsetIndexMetaData>,
    ) -> Option<Self> {
        let column: &ColumnChunkMetaData = group.columns().get(leaf)?;
        let read = column.compressed_size().max(1) as f64;
        // Of a dictionary each value stands in the file once.
        let values = column.unencoded_byte_array_data_bytes().unwrap_or_default();
        let values = column.uncompressed_size().max(values).max(1) as f64;
        Some(Chunk {
            pages: pages.filter(|pages| !pages.page_locations().is_empty()),
            page: None,
            rows: group.num_rows().max(1) as f64,
            read,
            ratio: values / read,
        })
    }

    /// Returns the bytes that are read for a row, beside those for the row before, and those of its value.
    fn bytes_of(&mut self, row: usize) -> (f64, f64) {
        let Some(pages) = self.pages else {
            let is_first = self.page.replace(0).is_none();
            let read = if is_first { self.read } else { 0.0 };
            return (read, self.read * self.ratio / self.rows);
        };
        let locations = pages.page_locations();
        let start = |page: usize| {
            let location = locations.get(page)?;
            usize::try_from(location.first_row_index).ok()
        };
        let mut page = self.page.unwrap_or(0);
        while start(page + 1).is_some_and(|next| next <= row) {
            page += 1;
        }
        let bytes = locations
            .get(page)
            .map_or(0, |one| one.compressed_page_size);
        let bytes = f64::from(bytes.max(1));
        let end = start(page + 1).map_or(self.rows, |next| next as f64);
        let rows = (end - start(page).unwrap_or(0) as f64).max(1.0);
        let told = pages.unencoded_byte_array_data_bytes();
        let told = told.and_then(|told| told.get(page)).copied();
        let values = (bytes * self.ratio).max(told.unwrap_or_default() as f64);
        let is_same = self.page.replace(page) == Some(page);
        (if is_same { 0.0 } else { bytes }, values / rows)
    }
}

/// Rows of a file as they come.
pub(crate) struct Rows {
    batches: ParquetRecordBatchStream<StoredFile>,
    location: String,
    expected: usize,
    read: usize,
}

impl Rows {
    /// Returns the next rows; `None` after the last.
    ///
    /// # Errors
    ///
    /// `ROW_MISSING` when the file has fewer rows, `INDEX_FILE_UNREADABLE`, or what the store says.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.batches.try_next().await;
        let batch = batch.map_err(|error| unusable(&self.location, error))?;
        self.read += batch.as_ref().map_or(0, RecordBatch::num_rows);
        match batch {
            None if self.read != self.expected => Err(row_missing(&self.location)
                .with("rows", self.read)
                .with("expected", self.expected)),
            batch => Ok(batch),
        }
    }
}

fn row_missing(location: &str) -> SinkError {
    SinkError::retriable(
        ROW_MISSING,
        "a file has fewer rows than the index of its table says; the index is built anew",
    )
    .with("file", crate::redact::foreign(location))
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
