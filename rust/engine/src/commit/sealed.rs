//! Rebuilds a segment that another process sealed, from its message and its manifests.
//!
//! The message is a claim: anybody who may write to the control topic can make it. What it names
//! counts only if the manifest lies where the table's metadata lies, is byte for byte the one that
//! was announced, says itself that this session sealed it for this table with these offsets, and
//! lists new files below the table's data. The same is asked of the file with the keys of its changes; a
//! segment that only deletes has nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use frazil_core::commit::validate::RejectReason;
use frazil_core::control::channel::RemoteSegment;
use frazil_core::control::message::{ManifestRef, Ranges};
use frazil_core::control::segment::{KeyRunRef, SealedManifest, Segment};
use frazil_core::limits::{KEY_RUN_BYTES_MAX, KEY_RUN_ROWS_MAX};
use frazil_core::{ErrorKind, SinkError};
use iceberg::spec::{Manifest, ManifestStatus, TableMetadata};
use sha2::{Digest, Sha256};

use super::avro;
use super::manifest::{
    RANGES, RANGES_DIGEST, SEQUENCE, SESSION, TABLE_UUID, WID, build, metadata_location,
};
use crate::catalog::LoadedTable;
use crate::keyrun::read_owner;

/// Bytes of a manifest that is read for another process.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// Why a segment cannot be rebuilt.
#[derive(Debug)]
pub enum Unsealed {
    /// The message is not what a task of this connector would have sent.
    Forged(&'static str),
    /// The files are not there, or do not fit the table any more: the session has to write them
    /// again.
    Lost(String),
    /// Nothing is known yet.
    Failed(SinkError),
}

impl From<SinkError> for Unsealed {
    fn from(error: SinkError) -> Self {
        match error.kind() {
            ErrorKind::Retriable => Unsealed::Failed(error),
            _ => Unsealed::Lost(error.report()),
        }
    }
}

/// A segment that was rebuilt.
#[derive(Debug)]
pub struct Resealed {
    /// The segment.
    pub segment: Segment,
    /// The newest schema that its files were written with.
    pub schema_id: i32,
}

/// Rebuilds the segment of `remote`, which writer `wid` has sealed for the table `loaded`: one that
/// records change, or else one that is appended to.
///
/// # Errors
///
/// Why it cannot be.
pub async fn read_sealed(
    loaded: &LoadedTable,
    wid: &str,
    remote: &RemoteSegment,
    with_changes: bool,
) -> Result<Resealed, Unsealed> {
    let message = &remote.message;
    if message.key_run.is_some() != with_changes {
        return Err(Unsealed::Forged(
            "rows of a table with changes are changes, and others have none",
        ));
    }
    let now = loaded.metadata.uuid();
    if message.uuid != now {
        return Err(Unsealed::Lost(
            RejectReason::TableReplaced { now }.to_string(),
        ));
    }
    let mut segment = Segment {
        session: remote.session,
        seq: message.seq,
        first_unacked: message.first_unacked,
        epoch: remote.epoch,
        table: loaded.ident.clone(),
        table_uuid: message.uuid,
        branch: message.table.branch.clone(),
        ranges: Vec::new(),
        watermarks: BTreeMap::new(),
        topic_ids: BTreeMap::new(),
        manifests: Vec::new(),
        key_run: message.key_run.clone(),
        rows: 0,
        bytes: message.bytes,
    };
    let mut ranges = message.ranges.clone();
    let mut schema_id = 0;
    for manifest in &message.manifests {
        let bytes = fetch(loaded, manifest).await?;
        let said =
            avro::metadata(&bytes).ok_or(Unsealed::Forged("its manifest is no Avro file"))?;
        let stated = stated_ranges(wid, remote, &said)?;
        if ranges.is_none() {
            ranges = stated;
        }
        check_digest(&said, ranges.as_ref())?;
        let (sealed, schema) = rebuild(loaded, manifest, &bytes).await?;
        schema_id = schema_id.max(schema);
        segment.rows = segment.rows.saturating_add(manifest.rows);
        segment.manifests.push(sealed);
    }
    if let Some(run) = &message.key_run {
        let stated = check_keys(loaded, wid, remote, run, ranges.as_ref()).await?;
        ranges = ranges.or(stated);
        segment.rows = run.rows;
    }
    let ranges = ranges.ok_or(Unsealed::Forged("its offsets are missing"))?;
    segment.ranges = ranges.ranges;
    segment.watermarks = ranges.watermarks;
    segment.topic_ids = ranges.topic_ids;
    Ok(Resealed { segment, schema_id })
}

/// Reads the manifest, if it is the announced one.
async fn fetch(loaded: &LoadedTable, manifest: &ManifestRef) -> Result<bytes::Bytes, Unsealed> {
    let metadata = &loaded.metadata;
    let own = format!("{}/metadata", metadata.location().trim_end_matches('/'));
    if !is_below(&manifest.path, &metadata_location(metadata)) && !is_below(&manifest.path, &own) {
        return Err(Unsealed::Forged(
            "its manifest is not among the table's metadata",
        ));
    }
    if manifest.len > MANIFEST_BYTES_MAX {
        return Err(Unsealed::Forged("its manifest is too long"));
    }
    let changed = || {
        Unsealed::Lost(format!(
            "manifest `{}` is gone or was changed",
            manifest.path
        ))
    };
    let bytes = match loaded.storage.get(&manifest.path).await {
        Ok(bytes) => bytes,
        Err(error) if error.code() == "STORAGE_NOT_FOUND" => return Err(changed()),
        Err(error) => return Err(Unsealed::Failed(error)),
    };
    let digest: [u8; 32] = Sha256::digest(&bytes).into();
    match bytes.len() as u64 == manifest.len && digest == manifest.sha256 {
        true => Ok(bytes),
        false => Err(changed()),
    }
}

/// Checks whose changes the key run has and that it vouches for the segment's offsets, `ranges` as far as
/// they are known; else returns those that it carries, if it carries any. Whether all its bytes are the
/// announced ones shows when they are read, to be committed.
async fn check_keys(
    loaded: &LoadedTable,
    wid: &str,
    remote: &RemoteSegment,
    run: &KeyRunRef,
    ranges: Option<&Ranges>,
) -> Result<Option<Ranges>, Unsealed> {
    if !is_data_path(&loaded.metadata, &run.path) {
        return Err(Unsealed::Forged("its keys are not among the table's data"));
    }
    if run.len > KEY_RUN_BYTES_MAX || run.rows > KEY_RUN_ROWS_MAX as u64 {
        return Err(Unsealed::Forged("it has too many keys"));
    }
    let owner = match read_owner(&loaded.storage, run).await {
        Err(error) if error.code() == "STORAGE_NOT_FOUND" => {
            return Err(Unsealed::Lost(error.report()));
        }
        owner => owner?,
    };
    let RemoteSegment {
        session, message, ..
    } = remote;
    if !owner.is(message.uuid, wid, (*session, message.seq)) {
        return Err(Unsealed::Forged("its keys belong to another segment"));
    }
    if owner.rows() != Some(run.rows) {
        return Err(Unsealed::Forged("it has another number of keys"));
    }
    let stated = match ranges {
        Some(_) => None,
        None => owner.ranges()?,
    };
    match ranges.or(stated.as_ref()) {
        Some(ranges) if !owner.vouches_for(ranges) => {
            Err(Unsealed::Forged("its offsets are not those of its keys"))
        }
        _ => Ok(stated),
    }
}

/// Checks whose manifest it is, and returns the offsets that it carries, if it carries any.
fn stated_ranges(
    wid: &str,
    remote: &RemoteSegment,
    said: &BTreeMap<String, String>,
) -> Result<Option<Ranges>, Unsealed> {
    let expected = [
        (TABLE_UUID, remote.message.uuid.to_string()),
        (WID, wid.to_owned()),
        (SESSION, remote.session.to_string()),
        (SEQUENCE, remote.message.seq.to_string()),
    ];
    if expected
        .iter()
        .any(|(key, value)| said.get(*key) != Some(value))
    {
        return Err(Unsealed::Forged("its manifest belongs to another segment"));
    }
    match said.get(RANGES).map(|text| Ranges::from_text(text)) {
        Some(None) => Err(Unsealed::Forged(
            "the offsets in its manifest are malformed",
        )),
        stated => Ok(stated.flatten()),
    }
}

fn check_digest(said: &BTreeMap<String, String>, ranges: Option<&Ranges>) -> Result<(), Unsealed> {
    let digest = ranges.map(Ranges::digest);
    match digest.is_some() && said.get(RANGES_DIGEST) == digest.as_ref() {
        true => Ok(()),
        false => Err(Unsealed::Forged(
            "its offsets are not those of its manifest",
        )),
    }
}

/// Makes what its sealing made of the manifest: the entry for a manifest list, and the counts; and
/// the id of its schema.
async fn rebuild(
    loaded: &LoadedTable,
    announced: &ManifestRef,
    bytes: &[u8],
) -> Result<(SealedManifest, i32), Unsealed> {
    let metadata = &loaded.metadata;
    let spec = metadata
        .partition_spec_by_id(announced.spec_id)
        .ok_or_else(|| {
            Unsealed::Lost(format!(
                "partition spec {} is not in the table any more",
                announced.spec_id
            ))
        })?;
    let parsed = Manifest::parse_avro(bytes);
    let (entries, own) = parsed
        .map_err(|_| Unsealed::Forged("its manifest cannot be read"))?
        .into_parts();
    if own.partition_spec.spec_id() != announced.spec_id
        || own.partition_spec.fields() != spec.fields()
    {
        return Err(Unsealed::Forged("its manifest has another partition spec"));
    }
    let mut files = Vec::with_capacity(entries.len());
    for entry in &entries {
        let file = entry.data_file();
        if entry.status() != ManifestStatus::Added || entry.snapshot_id.is_some() {
            return Err(Unsealed::Forged("its manifest is that of a commit"));
        }
        if !is_data_path(metadata, file.file_path()) {
            return Err(Unsealed::Lost(
                "its files are not below the table's data location".to_owned(),
            ));
        }
        files.push(file.clone());
    }
    let rows = files
        .iter()
        .try_fold(0u64, |rows, file| rows.checked_add(file.record_count()));
    if rows != Some(announced.rows) || files.len() as u64 != announced.files {
        return Err(Unsealed::Forged("its manifest has other counts"));
    }
    let built = build(
        metadata.format_version(),
        Arc::clone(&own.schema),
        spec,
        files,
    )
    .await?;
    let mut manifest = built.manifest;
    manifest.manifest_path = announced.path.clone();
    manifest.manifest_length = bytes.len() as i64;
    let sealed = SealedManifest {
        manifest,
        counts: built.counts,
        partitions: built.partitions,
        sha256: announced.sha256,
    };
    Ok((sealed, own.schema_id))
}

/// Tells whether a file at `path` may be one of the table's data files.
pub(super) fn is_data_path(metadata: &TableMetadata, path: &str) -> bool {
    const PLACES: [&str; 3] = [
        "write.data.path",
        "write.object-storage.path",
        "write.folder-storage.path",
    ];
    let named = PLACES
        .iter()
        .filter_map(|key| metadata.properties().get(*key));
    is_below(path, metadata.location()) || named.into_iter().any(|place| is_below(path, place))
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory.trim_end_matches('/'))
        .is_some_and(|rest| {
            rest.starts_with('/') && !rest.split('/').any(|part| part == "." || part == "..")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_its_directory() {
        for directory in ["s3://b/t/metadata", "s3://b/t/metadata/"] {
            assert!(is_below("s3://b/t/metadata/x-m.avro", directory));
            assert!(!is_below("s3://b/t/metadata-2/x-m.avro", directory));
            assert!(!is_below("s3://b/t/metadata", directory));
            assert!(!is_below("s3://b/t/metadata/../../u/metadata/x", directory));
            assert!(!is_below("s3://c/t/metadata/x", directory));
        }
    }
}
