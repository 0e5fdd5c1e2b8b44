//! Writes the manifest of sealed files: before any commit, so that a commit only has to list it.

use std::collections::BTreeSet;

use bytes::Bytes;
use frazil_core::control::message::Ranges;
use frazil_core::control::segment::{FileCounts, SealedManifest, partition_number};
use frazil_core::{Result, SinkError};
use iceberg::spec::{
    DataContentType, DataFile, FormatVersion, ManifestFile, ManifestWriterBuilder, PartitionSpec,
    SchemaRef, TableMetadata,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Scratch, avro, format_error};
use crate::storage::TableStorage;

/// Entries of a manifest's Avro metadata.
pub(super) const TABLE_UUID: &str = "frazil.table-uuid";
pub(super) const WID: &str = "frazil.wid";
pub(super) const SESSION: &str = "frazil.session";
pub(super) const SEQUENCE: &str = "frazil.seq";
pub(super) const RANGES_DIGEST: &str = "frazil.ranges-sha256";
pub(super) const RANGES: &str = "frazil.ranges";

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
    /// The offsets of the segment, which its manifests vouch for.
    pub ranges: Ranges,
}

/// Returns the directory of the table's metadata files, without a slash at its end.
pub fn metadata_location(metadata: &TableMetadata) -> String {
    match metadata.properties().get("write.metadata.path") {
        Some(path) => path.trim_end_matches('/').to_owned(),
        None => format!("{}/metadata", metadata.location().trim_end_matches('/')),
    }
}

/// A manifest in memory.
pub(super) struct Built {
    /// The entry for a manifest list, without path and length.
    pub(super) manifest: ManifestFile,
    pub(super) bytes: Vec<u8>,
    pub(super) counts: FileCounts,
    pub(super) partitions: BTreeSet<u64>,
}

/// Builds the manifest of `files`, all of them data files or all of them delete files, that belong
/// to `spec`. Snapshot id and sequence numbers are left to the commit.
pub(super) async fn build(
    format_version: FormatVersion,
    schema: SchemaRef,
    spec: &PartitionSpec,
    files: Vec<DataFile>,
) -> Result<Built> {
    // A negative number stands for "inherited from the snapshot".
    build_at(format_version, schema, spec, files, -1).await
}

/// As [`build`], of files with the data sequence number `sequence`.
pub(super) async fn build_at(
    format_version: FormatVersion,
    schema: SchemaRef,
    spec: &PartitionSpec,
    files: Vec<DataFile>,
    sequence: i64,
) -> Result<Built> {
    let (counts, partitions) = measure(spec, &files)?;
    let content = files.first().map(DataFile::content_type);
    let content =
        content.ok_or_else(|| SinkError::internal("a manifest needs at least one file"))?;
    let scratch = Scratch::new();
    let output = scratch.io.new_output(Scratch::PATH).map_err(format_error)?;
    let builder = ManifestWriterBuilder::new(output, None, schema, spec.clone());
    let deletes = content != DataContentType::Data;
    let mut writer = match (format_version, deletes) {
        (FormatVersion::V1, _) => {
            return Err(SinkError::internal("a v1 table was to be written"));
        }
        (FormatVersion::V2, false) => builder.build_v2_data(),
        (FormatVersion::V2, true) => builder.build_v2_deletes(),
        (FormatVersion::V3, false) => builder.build_v3_data(),
        (FormatVersion::V3, true) => builder.build_v3_deletes(),
    };
    for file in files {
        writer.add_file(file, sequence).map_err(format_error)?;
    }
    let manifest = writer.write_manifest_file().await.map_err(format_error)?;
    Ok(Built {
        manifest,
        bytes: scratch.bytes().await?,
        counts,
        partitions,
    })
}

/// The schema and the partition spec that files were written with. A column may have been promoted
/// since, and partition values have the type that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layout {
    /// The id of the schema.
    pub schema_id: i32,
    /// The id of the partition spec.
    pub spec_id: i32,
}

impl Layout {
    /// Returns the layout that new files of a table have.
    pub fn of(metadata: &TableMetadata) -> Self {
        Layout {
            schema_id: metadata.current_schema_id(),
            spec_id: metadata.default_partition_spec_id(),
        }
    }
}

/// Writes the manifest of `files`, all of them data files or all of them delete files, that were
/// written with `layout`.
pub async fn write_manifest(
    storage: &TableStorage,
    metadata: &TableMetadata,
    layout: Layout,
    files: Vec<DataFile>,
    identity: &ManifestIdentity,
) -> Result<SealedManifest> {
    let Layout { schema_id, spec_id } = layout;
    let spec = metadata.partition_spec_by_id(spec_id).ok_or_else(|| {
        SinkError::internal("the table has no such partition spec").with("spec", spec_id)
    })?;
    let schema = metadata.schema_by_id(schema_id).ok_or_else(|| {
        SinkError::internal("the table has no such schema").with("schema", schema_id)
    })?;
    let schema = schema.clone();
    let built = build(metadata.format_version(), schema, spec, files).await?;
    let bytes = avro::with_metadata(&built.bytes, &own_metadata(metadata, identity))?;
    let ManifestIdentity {
        wid,
        session,
        seq,
        index,
        ..
    } = identity;
    let mut manifest = built.manifest;
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
        counts: built.counts,
        partitions: built.partitions,
        sha256,
    })
}

/// What a manifest says of the segment that it belongs to. The offsets stand in the first one when
/// they are too long for a message.
fn own_metadata(
    metadata: &TableMetadata,
    identity: &ManifestIdentity,
) -> Vec<(&'static str, String)> {
    let mut entries = vec![
        (TABLE_UUID, metadata.uuid().to_string()),
        (WID, identity.wid.clone()),
        (SESSION, identity.session.to_string()),
        (SEQUENCE, identity.seq.to_string()),
        (RANGES_DIGEST, identity.ranges.digest()),
    ];
    if identity.index == 0 && !identity.ranges.fit() {
        entries.push((RANGES, identity.ranges.to_text()));
    }
    entries
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
        partitions.insert(partition_number(spec.spec_id(), file.partition()));
    }
    Ok((counts, partitions))
}
