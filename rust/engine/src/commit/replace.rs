//! The manifests of a new snapshot that takes entries away from those of its parent.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use frazil_core::control::segment::FileCounts;
use frazil_core::limits::MANIFEST_TABLE_TURNS;
use frazil_core::{Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{ManifestContentType, ManifestFile, TableMetadata};
use uuid::Uuid;

use super::manifest::metadata_location;
use super::rewrite::{EntryKey, rewrite};
use crate::storage::TableStorage;

/// The snapshot does not have what a commit removes.
pub(super) const ENTRIES_GONE: &str = "COMMIT_ENTRIES_GONE";

/// The entries that a commit removes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Data files.
    pub data: BTreeSet<EntryKey>,
    /// Delete files and deletion vectors.
    pub deletes: BTreeSet<EntryKey>,
}

impl Removed {
    fn of(&self, content: ManifestContentType) -> &BTreeSet<EntryKey> {
        match content {
            ManifestContentType::Data => &self.data,
            ManifestContentType::Deletes => &self.deletes,
        }
    }
}

/// What takes the place of the parent's manifests.
#[derive(Debug)]
pub struct Replaced {
    /// The manifests, in the order of the parent's.
    pub manifests: Vec<ManifestFile>,
    /// What the removed entries take away from the totals of a summary.
    pub counts: FileCounts,
    /// The manifests that were written, by their locations.
    pub written: Vec<(String, Bytes)>,
}

/// Where the manifests of a new snapshot come from and go to.
#[derive(Clone, Copy)]
pub struct ReplacePlace<'a> {
    /// The table's files.
    pub storage: &'a TableStorage,
    /// The table.
    pub metadata: &'a TableMetadata,
    /// The commit.
    pub commit_id: Uuid,
    /// Its snapshot.
    pub snapshot_id: i64,
    /// The manifests that may have the entries; `None` when that is not known.
    pub among: Option<&'a BTreeSet<Arc<str>>>,
    /// What is known of the bytes of a manifest.
    pub kept: &'a (dyn Fn(&str) -> Option<Bytes> + Sync),
}

impl std::fmt::Debug for ReplacePlace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplacePlace")
            .field("commit_id", &self.commit_id)
            .field("snapshot_id", &self.snapshot_id)
            .finish_non_exhaustive()
    }
}

impl ReplacePlace<'_> {
    fn may_have(&self, listed: &ManifestFile) -> bool {
        let path = listed.manifest_path.as_str();
        self.among.is_none_or(|among| among.contains(path))
    }

    async fn bytes(&self, listed: &ManifestFile) -> Result<Bytes> {
        match (self.kept)(&listed.manifest_path) {
            Some(bytes) => Ok(bytes),
            None => self.storage.get(&listed.manifest_path).await,
        }
    }

    /// Names the new manifest number `number`, which takes the place of `old`. Manifests of others stay
    /// theirs: what they have in them may be more than a later merge knows.
    fn name(&self, old: &ManifestFile, number: usize) -> String {
        let place = metadata_location(self.metadata);
        let (commit_id, snapshot_id) = (self.commit_id, self.snapshot_id);
        let file = old.manifest_path.rsplit('/').next();
        let is_ours = file.is_some_and(|name| name.starts_with("frazil-"));
        let begin = if is_ours { "frazil" } else { "rewritten" };
        format!("{place}/{begin}-{commit_id}-{snapshot_id}-{number}-m.avro")
    }
}

/// Writes new manifests for those of `old` that have entries of `removed`; the others stay.
///
/// # Errors
///
/// `COMMIT_ENTRIES_GONE` when the snapshot does not have all the entries: it is not the one that the
/// commit was resolved on.
pub async fn replace_entries(
    place: &ReplacePlace<'_>,
    old: Vec<ManifestFile>,
    removed: &Removed,
) -> Result<Replaced> {
    let rewrites = old.into_iter().enumerate();
    let rewrites = rewrites.map(|(number, listed)| rewrite_one(place, number, listed, removed));
    let rewrites: Vec<_> = rewrites.collect();
    let mut rewrites = futures::stream::iter(rewrites).buffered(MANIFEST_TABLE_TURNS);
    let mut replaced = Replaced {
        manifests: Vec::new(),
        counts: FileCounts::default(),
        written: Vec::new(),
    };
    let mut gone = 0;
    while let Some((manifest, made)) = rewrites.try_next().await? {
        if let Some(Made {
            removed,
            counts,
            bytes,
        }) = made
        {
            gone += removed;
            replaced.counts.add(&counts);
            let path = manifest.manifest_path.clone();
            replaced.written.push((path, bytes));
        }
        replaced.manifests.push(manifest);
    }
    let wanted = removed.data.len() + removed.deletes.len();
    match gone == wanted {
        true => Ok(replaced),
        false => Err(SinkError::retriable(
            ENTRIES_GONE,
            "files that a commit removes are not in the snapshot that it was made for; it is resolved again",
        )
        .with("removed", gone)
        .with("wanted", wanted)),
    }
}

/// What was made of a manifest.
struct Made {
    removed: usize,
    counts: FileCounts,
    bytes: Bytes,
}

async fn rewrite_one(
    place: &ReplacePlace<'_>,
    number: usize,
    listed: ManifestFile,
    removed: &Removed,
) -> Result<(ManifestFile, Option<Made>)> {
    let wanted = removed.of(listed.content);
    if wanted.is_empty() || !place.may_have(&listed) {
        return Ok((listed, None));
    }
    let bytes = place.bytes(&listed).await?;
    let version = place.metadata.format_version();
    let is_removed = |key: &EntryKey| wanted.contains(key);
    let Some(made) = rewrite(&listed, &bytes, version, place.snapshot_id, is_removed)? else {
        return Ok((listed, None));
    };
    let mut manifest = made.manifest;
    manifest.manifest_path = place.name(&listed, number);
    manifest.manifest_length = made.bytes.len() as i64;
    let bytes = Bytes::from(made.bytes);
    let path = &manifest.manifest_path;
    place.storage.put(path, bytes.clone()).await?;
    let made = Made {
        removed: made.removed.len(),
        counts: made.counts,
        bytes,
    };
    Ok((manifest, Some(made)))
}
