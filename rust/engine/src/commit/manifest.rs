//! Writes the manifest of sealed files: before any commit, so that a commit only has to list it.

use std::collections::BTreeSet;

use bytes::Bytes;
use frazil_core::control::segment::{FileCounts, SealedManifest, partition_number};
use frazil_core::{Result, SinkError};
use iceberg::spec::{
    DataContentType, DataFile, FormatVersion, ManifestWriterBuilder, PartitionSpec, TableMetadata,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Scratch, avro, format_error};
use crate::storage::TableStorage;

/// Who wrote a manifest; part of its name and of its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestIdentity {
    /// The writer's id: 16 hexadecimal digits.
    pub wid: String,
    /// The session.
    pub session: Uuid,
    /// The segment's `seq`.
    pub seq: u64,
    /// The manifest's number within the segment.
    pub index: u32,
}

/// Returns the directory of the table's metadata files, without a slash at its end.
pub fn metadata_location(metadata: &TableMetadata) -> String {
    match metadata.properties().get("write.metadata.path") {
        Some(path) => path.trim_end_matches('/').to_owned(),
        None => format!("{}/metadata", metadata.location().trim_end_matches('/')),
    }
}

/// Writes the manifest of `files`, all of them data files or all of them delete files, that belong
/// to partition spec `spec_id`. Snapshot id and sequence numbers are left to the commit.
pub async fn write_manifest(
    storage: &TableStorage,
    metadata: &TableMetadata,
    spec_id: i32,
    files: Vec<DataFile>,
    identity: &ManifestIdentity,
) -> Result<SealedManifest> {
    let spec = metadata.partition_spec_by_id(spec_id).ok_or_else(|| {
        SinkError::internal("the table has no such partition spec").with("spec", spec_id)
    })?;
    let (counts, partitions) = measure(spec, &files)?;
    let content = files.first().map(DataFile::content_type);
    let content =
        content.ok_or_else(|| SinkError::internal("a manifest needs at least one file"))?;
    let scratch = Scratch::new();
    let output = scratch.io.new_output(Scratch::PATH).map_err(format_error)?;
    let schema = metadata.current_schema().clone();
    let builder = ManifestWriterBuilder::new(output, None, schema, spec.as_ref().clone());
    let deletes = content != DataContentType::Data;
    let mut writer = match (metadata.format_version(), deletes) {
        (FormatVersion::V1, _) => {
            return Err(SinkError::internal("a v1 table was to be written"));
        }
        (FormatVersion::V2, false) => builder.build_v2_data(),
        (FormatVersion::V2, true) => builder.build_v2_deletes(),
        (FormatVersion::V3, false) => builder.build_v3_data(),
        (FormatVersion::V3, true) => builder.build_v3_deletes(),
    };
    for file in files {
        // A negative number stands for "inherited from the snapshot".
        writer.add_file(file, -1).map_err(format_error)?;
    }
    let mut manifest = writer.write_manifest_file().await.map_err(format_error)?;
    let ManifestIdentity {
        wid,
        session,
        seq,
        index,
    } = identity;
    let bytes = avro::with_metadata(
        &scratch.bytes().await?,
        &[
            ("frazil.table-uuid", metadata.uuid().to_string()),
            ("frazil.wid", wid.clone()),
            ("frazil.session", session.to_string()),
            ("frazil.seq", seq.to_string()),
        ],
    )?;
    manifest.manifest_path = format!(
        "{}/frazil-{wid}-{session}-{seq}-{index}-m.avro",
        metadata_location(metadata)
    );
    manifest.manifest_length = bytes.len() as i64;
    let sha256 = Sha256::digest(&bytes).into();
    storage
        .put(&manifest.manifest_path, Bytes::from(bytes))
        .await?;
    Ok(SealedManifest {
        manifest,
        counts,
        partitions,
        sha256,
    })
}

/// Sums up what the files add to a snapshot, and checks what `iceberg`'s writer would panic about.
fn measure(spec: &PartitionSpec, files: &[DataFile]) -> Result<(FileCounts, BTreeSet<u64>)> {
    let mut counts = FileCounts::default();
    let mut partitions = BTreeSet::new();
    for file in files {
        if file.partition().fields().len() != spec.fields().len() {
            return Err(SinkError::internal(
                "a file's partition values do not fit its partition spec",
            )
            .with("spec", spec.spec_id()));
        }
        counts.add(&FileCounts::of_file(file));
        partitions.insert(partition_number(spec.spec_id(), file));
    }
    Ok((counts, partitions))
}
