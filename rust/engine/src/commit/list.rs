//! Writes the manifest list of a new snapshot: the head's manifests and the new ones.
//!
//! In format version 3 the list gives row ids to the new data manifests, from the table's
//! `next-row-id` on. A manifest that has its first row id keeps it; nothing is ever renumbered.

use bytes::Bytes;
use frazil_core::commit::plan::Base;
use frazil_core::{Result, SinkError};
use iceberg::spec::{FormatVersion, ManifestFile, ManifestList, ManifestListWriter, SnapshotRef};

use super::{Scratch, format_error};
use crate::storage::TableStorage;

/// Writes the list to `location` and returns the first row id and the number of row ids given out,
/// which only format version 3 has.
pub(super) async fn write_manifest_list(
    storage: &TableStorage,
    base: &Base,
    snapshot_id: i64,
    new: Vec<ManifestFile>,
    old: Vec<ManifestFile>,
    location: &str,
) -> Result<Option<(u64, u64)>> {
    let scratch = Scratch::new();
    let output = scratch
        .io
        .new_output(Scratch::PATH)
        .map_err(format_error)?
        .writer()
        .await
        .map_err(format_error)?;
    let parent = base.parent_id();
    let sequence_number = base.sequence_number;
    let mut writer = match base.format_version {
        FormatVersion::V1 => {
            return Err(SinkError::internal("a v1 table was to be written"));
        }
        FormatVersion::V2 => ManifestListWriter::v2(output, snapshot_id, parent, sequence_number),
        FormatVersion::V3 => ManifestListWriter::v3(
            output,
            snapshot_id,
            parent,
            sequence_number,
            base.first_row_id,
        ),
    };
    let new = new.into_iter().map(|mut manifest| {
        manifest.added_snapshot_id = snapshot_id;
        manifest
    });
    // The new ones first, as Iceberg's own writers do: their rows begin at the snapshot's first id.
    writer.add_manifests(new.chain(old)).map_err(format_error)?;
    let next_row_id = writer.next_row_id();
    writer.close().await.map_err(format_error)?;
    let bytes = scratch.bytes().await?;
    storage.put(location, Bytes::from(bytes)).await?;
    match (base.first_row_id, next_row_id) {
        (Some(first), Some(next)) => Ok(Some((first, next.saturating_sub(first)))),
        _ => Ok(None),
    }
}

/// Reads the list that a new snapshot goes on with.
pub(super) async fn old_manifests(
    storage: &TableStorage,
    base: &Base,
) -> Result<Vec<ManifestFile>> {
    match &base.parent {
        Some(parent) => manifests_of(storage, parent, base.format_version).await,
        None => Ok(Vec::new()),
    }
}

/// Reads the manifest list of a snapshot.
pub async fn manifests_of(
    storage: &TableStorage,
    snapshot: &SnapshotRef,
    version: FormatVersion,
) -> Result<Vec<ManifestFile>> {
    let bytes = storage.get(snapshot.manifest_list()).await?;
    let list = match ManifestList::parse_with_version(&bytes, version) {
        Ok(list) => list,
        // A table that was upgraded keeps the lists of its older snapshots.
        Err(error) => ManifestList::parse_with_version(&bytes, FormatVersion::V1)
            .map_err(|_| format_error(error).with("snapshot", snapshot.snapshot_id()))?,
    };
    Ok(list.consume_entries().into_iter().collect())
}
