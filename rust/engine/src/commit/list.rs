//! Writes the manifest list of a new snapshot: the head's manifests and the new ones.
//!
//! In format version 3 the list gives row ids to the new data manifests, from the table's
//! `next-row-id` on. A manifest that has its first row id keeps it; nothing is ever renumbered.

use bytes::Bytes;
use frazil_core::commit::plan::Base;
use frazil_core::{Result, SinkError};
use iceberg::spec::{FormatVersion, ManifestFile, ManifestList, ManifestListWriter, SnapshotRef};

use super::kept::KeptList;
use super::{Scratch, format_error};
use crate::storage::TableStorage;

/// A manifest list that was written.
pub(super) struct Written {
    /// The first row id and the number of row ids given out, which only format version 3 has.
    pub(super) row_range: Option<(u64, u64)>,
    pub(super) bytes: Bytes,
}

/// Writes the list to `location`.
pub(super) async fn write_manifest_list(
    storage: &TableStorage,
    base: &Base,
    snapshot_id: i64,
    new: Vec<ManifestFile>,
    old: Vec<ManifestFile>,
    location: &str,
) -> Result<Written> {
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
    let bytes = Bytes::from(scratch.bytes().await?);
    storage.put(location, bytes.clone()).await?;
    let ids = base.first_row_id.zip(next_row_id);
    Ok(Written {
        row_range: ids.map(|(first, next)| (first, next.saturating_sub(first))),
        bytes,
    })
}

/// Returns the list that a new snapshot goes on with: the one that is kept, or else the one in the
/// storage.
pub(super) async fn old_manifests(
    storage: &TableStorage,
    base: &Base,
    kept: Option<&KeptList>,
) -> Result<Vec<ManifestFile>> {
    let Some(parent) = &base.parent else {
        return Ok(Vec::new());
    };
    match kept.and_then(|kept| kept.get(parent.manifest_list())) {
        Some(bytes) => parse(&bytes, parent, base.format_version),
        None => manifests_of(storage, parent, base.format_version).await,
    }
}

/// Reads the manifest list of a snapshot.
pub async fn manifests_of(
    storage: &TableStorage,
    snapshot: &SnapshotRef,
    version: FormatVersion,
) -> Result<Vec<ManifestFile>> {
    let bytes = storage.get(snapshot.manifest_list()).await?;
    parse(&bytes, snapshot, version)
}

fn parse(
    bytes: &[u8],
    snapshot: &SnapshotRef,
    version: FormatVersion,
) -> Result<Vec<ManifestFile>> {
    let list = match ManifestList::parse_with_version(bytes, version) {
        Ok(list) => list,
        // A table that was upgraded keeps the lists of its older snapshots.
        Err(error) => ManifestList::parse_with_version(bytes, FormatVersion::V1)
            .map_err(|_| format_error(error).with("snapshot", snapshot.snapshot_id()))?,
    };
    Ok(list.consume_entries().into_iter().collect())
}
