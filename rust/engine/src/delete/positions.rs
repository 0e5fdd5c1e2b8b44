//! Position delete files of format version 2: each names the rows of one data file, in order.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use frazil_core::{Result, SinkError};
use iceberg::metadata_columns::{
    RESERVED_FIELD_ID_DELETE_FILE_PATH as PATH, RESERVED_FIELD_ID_DELETE_FILE_POS as POS,
};
use iceberg::spec::{DataFile, DataFileFormat, Datum};
use parquet::arrow::ArrowWriter;
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use parquet::file::properties::WriterProperties;

use super::{FileDeletes, described};
use crate::storage::TableStorage;

/// The columns, as Iceberg's specification names them.
pub(super) const PATH_COLUMN: &str = "file_path";
pub(super) const POS_COLUMN: &str = "pos";
/// Rows of a batch: each repeats the path.
const BATCH_ROWS: usize = 8_192;

/// Writes the position delete file of one data file to `location` and returns its entry.
pub async fn write_positions(
    storage: &TableStorage,
    location: &str,
    deletes: &FileDeletes,
) -> Result<DataFile> {
    let (bytes, metadata) = encode(deletes).map_err(|error| {
        SinkError::fatal(
            "PARQUET_ENCODE_FAILED",
            "deleted rows could not be encoded as Parquet",
        )
        .caused_by(error)
    })?;
    let length = bytes.len() as u64;
    storage.put(location, Bytes::from(bytes)).await?;
    let path = Datum::string(&deletes.data_file);
    let (first, last) = (deletes.vector.positions().next(), deletes.vector.last());
    let (Some(first), Some(last)) = (first, last) else {
        return Err(SinkError::internal(
            "a delete file without rows was written",
        ));
    };
    // Lengths below 2^63 are checked when a position is deleted.
    let bound = |row: u64| Datum::long(i64::try_from(row).unwrap_or(i64::MAX));
    let rows = deletes.vector.len();
    let mut sizes = HashMap::new();
    let mut offsets = Vec::new();
    for group in metadata.row_groups() {
        for (id, column) in [PATH, POS].into_iter().zip(group.columns()) {
            *sizes.entry(id).or_default() += u64::try_from(column.compressed_size()).unwrap_or(0);
        }
        offsets.extend(group.columns().first().map(|one| one.byte_range().0 as i64));
    }
    let mut entry = deletes.entry(location, DataFileFormat::Parquet, length);
    // Both bounds of the path are the whole path: that tells readers that the file is about one data
    // file alone.
    entry
        .column_sizes(sizes)
        .value_counts([(PATH, rows), (POS, rows)].into())
        .null_value_counts([(PATH, 0), (POS, 0)].into())
        .lower_bounds([(PATH, path.clone()), (POS, bound(first))].into())
        .upper_bounds([(PATH, path), (POS, bound(last))].into())
        .split_offsets(Some(offsets));
    described(&entry)
}

fn schema() -> SchemaRef {
    let column = |name: &str, kind, id: i32| {
        let id = [(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())];
        Field::new(name, kind, false).with_metadata(id.into())
    };
    Arc::new(Schema::new(vec![
        column(PATH_COLUMN, DataType::Utf8, PATH),
        column(POS_COLUMN, DataType::Int64, POS),
    ]))
}

fn encode(deletes: &FileDeletes) -> parquet::errors::Result<(Vec<u8>, ParquetMetaData)> {
    let schema = schema();
    let kind = KeyValue::new("delete-type".to_owned(), "position".to_owned());
    let properties = WriterProperties::builder()
        .set_created_by(concat!("frazil version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![kind]))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        // A cut path would not be a bound that names the file.
        .set_statistics_truncate_length(None)
        .build();
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        .with_skip_arrow_metadata(true);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new_with_options(&mut bytes, schema.clone(), options)?;
    let mut positions = deletes.vector.positions();
    loop {
        let rows: Vec<i64> = positions
            .by_ref()
            .take(BATCH_ROWS)
            .map(|row| i64::try_from(row).unwrap_or(i64::MAX))
            .collect();
        if rows.is_empty() {
            break;
        }
        let paths = std::iter::repeat_n(deletes.data_file.as_str(), rows.len());
        let paths: ArrayRef = Arc::new(StringArray::from_iter_values(paths));
        let rows: ArrayRef = Arc::new(Int64Array::from(rows));
        writer.write(&RecordBatch::try_new(schema.clone(), vec![paths, rows])?)?;
    }
    let metadata = writer.close()?;
    Ok((bytes, metadata))
}
