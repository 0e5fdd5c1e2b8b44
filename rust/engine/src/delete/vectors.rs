//! Deletion vectors: one Puffin file for all of a commit.

use bytes::Bytes;
use frazil_core::Result;
use frazil_core::delete::puffin::{Blob, PuffinFile};
use iceberg::spec::{DataFile, DataFileFormat};

use super::{FileDeletes, described};
use crate::storage::TableStorage;

/// Writes one Puffin file with the vectors of `deletes` to `location` and returns their entries, in
/// the same order.
pub async fn write_vectors(
    storage: &TableStorage,
    location: &str,
    deletes: &[FileDeletes],
) -> Result<Vec<DataFile>> {
    let mut file = PuffinFile::new();
    let mut places = Vec::with_capacity(deletes.len());
    for one in deletes {
        let blob = Blob::deletion_vector(&one.data_file, one.vector.len());
        places.push(file.add(blob, &one.vector.to_blob()?));
    }
    let (bytes, _) = file.finish()?;
    let length = bytes.len() as u64;
    storage.put(location, Bytes::from(bytes)).await?;
    let entries = deletes.iter().zip(places);
    entries
        .map(|(one, place)| {
            let mut entry = one.entry(location, DataFileFormat::Puffin, length);
            entry
                .content_offset(i64::try_from(place.offset).ok())
                .content_size_in_bytes(i64::try_from(place.length).ok());
            described(&entry)
        })
        .collect()
}
