//! One Parquet file that is being written.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use frazil_core::{Result, SinkError};
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Struct};
use parquet::errors::ParquetError;
use tokio::task::JoinHandle;

use super::columns::ColumnsWriter;
use super::cores::Cores;
use super::encoding::{Lessons, learn, writer_properties};
use super::metrics::{Observed, column_metrics};
use super::properties::FileProperties;
use super::schema::FileSchema;
use super::upload::Upload;

/// What all files of a table writer share.
#[derive(Debug)]
pub(super) struct Format {
    pub(super) schema: FileSchema,
    pub(super) properties: FileProperties,
    pub(super) spec_id: i32,
    pub(super) lessons: Arc<Lessons>,
}

/// A file whose encoding has ended and whose upload goes on.
#[derive(Debug)]
pub(super) struct FinishedFile {
    pub(super) data_file: DataFile,
    /// The numbers of the rows in their order, where batches had some.
    pub(super) numbers: Vec<u32>,
    pub(super) upload: JoinHandle<Result<()>>,
}

/// Encodes batches into one file. Dropped before [`DataFileWriter::finish`], it aborts the upload.
pub(super) struct DataFileWriter {
    writer: ColumnsWriter<Upload>,
    location: String,
    observed: Observed,
    rows: u64,
    numbers: Vec<u32>,
    /// A row came before one that was written earlier.
    is_out_of_order: bool,
}

impl DataFileWriter {
    /// Opens a file at `location`, one of `many` or not; `sample` is what it begins with.
    pub(super) fn open(
        format: &Format,
        location: String,
        upload: Upload,
        sample: &RecordBatch,
        many: bool,
    ) -> Result<Self> {
        let properties = writer_properties(
            &format.properties,
            &format.schema,
            &format.lessons,
            sample,
            many,
        );
        let writer = ColumnsWriter::new(
            upload,
            format.schema.parquet.root_schema_ptr(),
            format.schema.arrow.clone(),
            Arc::new(properties),
            Cores::of_process(),
        )
        .map_err(encode_error)?;
        Ok(DataFileWriter {
            writer,
            location,
            observed: Observed::default(),
            rows: 0,
            numbers: Vec::new(),
            is_out_of_order: false,
        })
    }

    /// Encodes a batch of the file's schema, whose rows have these numbers.
    pub(super) fn write(
        &mut self,
        format: &Format,
        batch: &RecordBatch,
        numbers: Option<&UInt32Array>,
    ) -> Result<()> {
        self.observed.observe(&format.schema, batch);
        self.writer.write(batch).map_err(encode_error)?;
        self.rows += batch.num_rows() as u64;
        if let Some(numbers) = numbers {
            self.numbers.extend_from_slice(numbers.values());
        }
        Ok(())
    }

    /// Ends the row group; the next rows begin another one.
    pub(super) fn end_row_group(&mut self) -> Result<()> {
        self.writer.end_group().map_err(encode_error)
    }

    /// The next rows are not in order with those before.
    pub(super) fn break_order(&mut self) {
        self.is_out_of_order = true;
    }

    /// Returns about how large the file would be if it ended now.
    pub(super) fn size(&self) -> u64 {
        self.writer.size() as u64
    }

    /// Returns the bytes of memory that the open row group and the unfilled part hold.
    pub(super) fn memory(&self) -> usize {
        let numbers = self.numbers.capacity() * size_of::<u32>();
        self.writer.memory() + self.writer.sink().buffered() + numbers
    }

    /// Writes the footer and describes the file, which is sorted by the table's order `order_id` if
    /// nothing broke it.
    pub(super) fn finish(
        mut self,
        format: &Format,
        partition: &Struct,
        order_id: Option<i32>,
    ) -> Result<FinishedFile> {
        let metadata = self.writer.finish().map_err(encode_error)?;
        learn(&format.lessons, &format.schema, &metadata);
        let upload = self.writer.sink_mut();
        let task = upload.finish()?;
        let properties = &format.properties;
        let mode = |name: &str, index| properties.metrics_mode(name, index);
        let metrics = column_metrics(&format.schema, &metadata, &self.observed, mode)?;
        let groups = metadata.row_groups().iter();
        let offsets = groups.filter_map(|group| group.columns().first());
        let offsets = offsets.map(|column| column.byte_range().0 as i64).collect();
        let mut builder = DataFileBuilder::default();
        if let Some(order_id) = order_id.filter(|_| !self.is_out_of_order) {
            builder.sort_order_id(order_id);
        }
        let data_file = builder
            .content(DataContentType::Data)
            .file_path(self.location)
            .file_format(DataFileFormat::Parquet)
            .partition(partition.clone())
            .partition_spec_id(format.spec_id)
            .record_count(self.rows)
            .file_size_in_bytes(upload.written())
            .column_sizes(metrics.column_sizes)
            .value_counts(metrics.value_counts)
            .null_value_counts(metrics.null_value_counts)
            .nan_value_counts(metrics.nan_value_counts)
            .lower_bounds(metrics.lower_bounds)
            .upper_bounds(metrics.upper_bounds)
            .split_offsets(Some(offsets))
            .build()
            .map_err(|error| {
                SinkError::internal("a data file could not be described").caused_by(error)
            })?;
        Ok(FinishedFile {
            data_file,
            numbers: self.numbers,
            upload: task,
        })
    }
}

fn encode_error(error: ParquetError) -> SinkError {
    SinkError::fatal(
        "PARQUET_ENCODE_FAILED",
        "rows could not be encoded as Parquet",
    )
    .caused_by(error)
}
