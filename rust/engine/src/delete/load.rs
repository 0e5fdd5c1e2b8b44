//! Reads the deleted rows of a data file: what a new delete file of it has to hold as well.

use std::collections::BTreeMap;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use frazil_core::delete::DeletionVector;
use frazil_core::delete::vector::Expected;
use frazil_core::limits::DELETION_VECTOR_BYTES_MAX;
use frazil_core::{Result, SinkError};
use iceberg::spec::{DataContentType, DataFile, DataFileFormat};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use super::positions::{PATH_COLUMN, POS_COLUMN};
use crate::redact;
use crate::storage::TableStorage;

/// Reads the deletion vector that `entry` describes; its data file has `rows` rows.
///
/// # Errors
///
/// `DELETION_VECTOR_CORRUPT`, naming the file and the byte of it, or what the store says.
pub async fn load_vector(
    storage: &TableStorage,
    entry: &DataFile,
    rows: u64,
) -> Result<DeletionVector> {
    let place = entry.content_offset().zip(entry.content_size_in_bytes());
    let place = place.and_then(|(offset, length)| {
        let (offset, length) = (u64::try_from(offset).ok()?, u64::try_from(length).ok()?);
        let end = offset.checked_add(length)?;
        (length <= DELETION_VECTOR_BYTES_MAX as u64).then_some(offset..end)
    });
    let is_vector = entry.content_type() == DataContentType::PositionDeletes
        && entry.file_format() == DataFileFormat::Puffin;
    let Some(place) = place.filter(|_| is_vector) else {
        return Err(unusable("its entry does not say where it is", entry));
    };
    let offset = place.start;
    let blob = storage.get_range(entry.file_path(), place).await?;
    let expected = Expected {
        cardinality: Some(entry.record_count()),
        rows: Some(rows),
    };
    DeletionVector::parse(&blob, &expected).map_err(|error| {
        error
            .with("file", redact::foreign(entry.file_path()))
            .with("offset", offset)
    })
}

/// Reads the position delete file that `entry` describes: the deleted rows of each data file that it
/// names and `wanted` accepts.
///
/// # Errors
///
/// `DELETE_FILE_UNUSABLE`, or what the store says.
pub async fn load_positions(
    storage: &TableStorage,
    entry: &DataFile,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, DeletionVector>> {
    if entry.content_type() != DataContentType::PositionDeletes
        || entry.file_format() != DataFileFormat::Parquet
    {
        return Err(unusable("it is none of Parquet", entry));
    }
    let bytes = storage.get(entry.file_path()).await?;
    let malformed = |error: &dyn std::fmt::Display| unusable(&error.to_string(), entry);
    // What another writer noted about its Arrow types does not matter.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options)
        .and_then(|builder| builder.build())
        .map_err(|error| malformed(&error))?;
    let mut found: BTreeMap<String, DeletionVector> = BTreeMap::new();
    let mut rows = 0u64;
    for batch in reader {
        let batch = batch.map_err(|error| malformed(&error))?;
        let paths = batch.column_by_name(PATH_COLUMN);
        let paths = paths.and_then(|column| column.as_string_opt::<i32>());
        let positions = batch.column_by_name(POS_COLUMN);
        let positions = positions.and_then(|column| column.as_primitive_opt::<Int64Type>());
        let (Some(paths), Some(positions)) = (paths, positions) else {
            return Err(unusable("it does not have the columns of one", entry));
        };
        if paths.null_count() > 0 || positions.null_count() > 0 {
            return Err(unusable("it has a row without path or position", entry));
        }
        rows += batch.num_rows() as u64;
        for (path, position) in paths.iter().flatten().zip(positions.values()) {
            if !wanted(path) {
                continue;
            }
            let position = u64::try_from(*position)
                .map_err(|_| unusable("it deletes a row before the first", entry))?;
            if !found.contains_key(path) {
                found.insert(path.to_owned(), DeletionVector::new());
            }
            if let Some(vector) = found.get_mut(path) {
                vector.insert(position)?;
            }
        }
    }
    match rows == entry.record_count() {
        true => Ok(found),
        false => Err(
            unusable("it has another number of rows than its entry says", entry).with("rows", rows),
        ),
    }
}

fn unusable(what: &str, entry: &DataFile) -> SinkError {
    SinkError::fatal(
        "DELETE_FILE_UNUSABLE",
        format!("a delete file of the table cannot be used: {what}; restore it, or roll the table back to a snapshot before it"),
    )
    .with("file", redact::foreign(entry.file_path()))
}
