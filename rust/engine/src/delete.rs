//! Delete files: written for the rows that a commit deletes, and read back.
//!
//! Format version 3 has deletion vectors, all of a commit in one Puffin file; version 2 has position
//! delete files, one for each data file. Either way a data file has at most one of them that is
//! live: a new one holds all deleted rows, and the commit removes the old one from the manifests.
//!
//! Architecture Invariant: a delete file that cannot be read, or says something else than its entry,
//! is an error. Rows never come back because their deletes were not understood.

mod live;
mod load;
mod positions;
#[cfg(test)]
mod tests;
mod vectors;

pub(crate) use live::is_same_partition;
pub use live::{Entries, KnownDeletes, LiveDelete, LiveFile, LiveFiles};
pub use load::{load_positions, load_vector};
pub use positions::write_positions;
pub use vectors::write_vectors;

use frazil_core::delete::DeletionVector;
use frazil_core::{Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{DataFile, DataFileBuilder, DataFileFormat, FormatVersion, Struct};

use crate::storage::TableStorage;

/// Position delete files that are written at once.
const WRITES: usize = 16;

/// A data file and all rows of it that are deleted.
#[derive(Debug, Clone)]
pub struct FileDeletes {
    /// The location of the data file.
    pub data_file: String,
    /// The partition spec that the data file was written with, which its deletes have too.
    pub spec_id: i32,
    /// The data file's partition.
    pub partition: Struct,
    /// The deleted rows.
    pub vector: DeletionVector,
}

impl FileDeletes {
    /// Begins the entry of the delete file at `path`.
    fn entry(&self, path: &str, format: DataFileFormat, bytes: u64) -> DataFileBuilder {
        let mut entry = DataFileBuilder::default();
        entry
            .content(iceberg::spec::DataContentType::PositionDeletes)
            .file_path(path.to_owned())
            .file_format(format)
            .partition(self.partition.clone())
            .partition_spec_id(self.spec_id)
            .record_count(self.vector.len())
            .file_size_in_bytes(bytes)
            .referenced_data_file(Some(self.data_file.clone()));
        entry
    }
}

fn described(entry: &DataFileBuilder) -> Result<DataFile> {
    entry
        .build()
        .map_err(|error| SinkError::internal("a delete file cannot be described").caused_by(error))
}

/// Writes the deletes of a commit to a table of format `version` and returns their entries, in the
/// same order: deletion vectors in one file, or one position delete file for each data file. Names
/// begin with `prefix`, which no other commit has.
pub async fn write_deletes(
    storage: &TableStorage,
    version: FormatVersion,
    prefix: &str,
    deletes: &[FileDeletes],
) -> Result<Vec<DataFile>> {
    if deletes.is_empty() {
        return Ok(Vec::new());
    }
    if version >= FormatVersion::V3 {
        let location = format!("{prefix}-deletes.puffin");
        return write_vectors(storage, &location, deletes).await;
    }
    let numbered = deletes.iter().enumerate();
    let writes = numbered.map(|(number, one)| async move {
        let location = format!("{prefix}-{number}-deletes.parquet");
        write_positions(storage, &location, one).await
    });
    let writes: Vec<_> = writes.collect();
    let writes = futures::stream::iter(writes).buffered(WRITES);
    writes.try_collect().await
}
