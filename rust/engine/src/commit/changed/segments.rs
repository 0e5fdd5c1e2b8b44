//! What the segments of a commit change: their key runs, and the new files that these are about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use frazil_core::commit::validate::RejectReason;
use frazil_core::control::message::Ranges;
use frazil_core::control::segment::{SealedManifest, Segment};
use frazil_core::index::files::{IndexedFile, NamedRows};
use frazil_core::index::orders::Keys;
use frazil_core::index::pieces::MoreChanges;
use frazil_core::memory::Use;
use frazil_core::{Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{DataFile, Manifest, SchemaRef};
use sha2::{Digest, Sha256};

use super::super::format_error;
use super::super::sealed::is_data_path;
use super::{ChangedAttempt, Unbuilt};
use crate::catalog::LoadedTable;
use crate::index::Tracked;
use crate::keyrun::{Effect, KeyRun, KeyRunBounds, KeyRunIdentity, StoredRun, fetch_key_run};
use crate::memory::{Draw, Memory};
use crate::redact;
use crate::runtime::compute;

/// What a new file takes in memory while its commit is made, about: its entry with metrics.
const FILE_BYTES: usize = 2_048;
/// Changes that are looked at, at a time.
const CHECKED_ROWS: usize = 8_192;
/// Segments that are read at the same time.
const READS: usize = 4;

/// What a segment changes.
#[derive(Debug)]
pub(in super::super) struct SegmentChanges {
    /// What its keys are.
    keys: Keys,
    pub(super) manifests: Vec<NewManifest>,
    /// The files of these, one manifest after the other.
    pub(super) files: Vec<IndexedFile>,
    pub(super) run: StoredRun,
    /// What all of that takes.
    _held: Draw,
}

impl SegmentChanges {
    /// Returns a data file by its number among all of the segment.
    pub(super) fn data_file(&self, number: u32) -> Option<&DataFile> {
        let mut files = self.manifests.iter().flat_map(|one| &one.files);
        files.nth(usize::try_from(number).ok()?)
    }
}

/// A manifest of a segment, and its files.
#[derive(Debug)]
pub(super) struct NewManifest {
    pub(super) sealed: SealedManifest,
    pub(super) bytes: Bytes,
    pub(super) schema: SchemaRef,
    pub(super) files: Vec<DataFile>,
}

/// Reads what the attempt's segments change, as far as `read` does not have it. What it has by other keys
/// than those of the index, which an earlier attempt had, is read and judged anew. What it has of segments of
/// other commits is let go: those of one call may be many times what one commit has memory for.
pub(super) async fn read(
    tracked: &Tracked,
    attempt: &ChangedAttempt<'_>,
    memory: &Arc<Memory>,
    read: &mut BTreeMap<usize, SegmentChanges>,
) -> Result<(), Unbuilt> {
    let batch: BTreeSet<usize> = attempt.segments.iter().map(|(index, _)| *index).collect();
    read.retain(|index, known| batch.contains(index) && known.keys == *tracked.keys());
    let missing = attempt.segments.iter();
    let missing = missing.filter(|(index, _)| !read.contains_key(index));
    let reads = missing.map(|(index, segment)| async move {
        let changes = read_one(tracked, attempt, memory, segment).await;
        changes
            .map(|changes| (*index, changes))
            .map_err(|error| match error {
                Unread::Failed(error) => Unbuilt::Failed(error),
                Unread::Unusable(reason) => Unbuilt::Unusable(*index, reason),
            })
    });
    let reads: Vec<_> = reads.collect();
    let mut reads = futures::stream::iter(reads).buffered(READS);
    while let Some((index, changes)) = reads.try_next().await? {
        read.insert(index, changes);
    }
    Ok(())
}

enum Unread {
    Failed(SinkError),
    Unusable(RejectReason),
}

async fn read_one(
    tracked: &Tracked,
    attempt: &ChangedAttempt<'_>,
    memory: &Arc<Memory>,
    segment: &Segment,
) -> Result<SegmentChanges, Unread> {
    let LoadedTable {
        metadata, storage, ..
    } = attempt.loaded;
    let announced = segment.key_run.as_ref();
    let announced = announced.ok_or(Unread::Unusable(RejectReason::Inconsistent))?;
    let unusable = |reason: String| {
        Unread::Unusable(RejectReason::KeysUnusable {
            path: announced.path.clone(),
            reason,
        })
    };
    if !is_data_path(metadata, &announced.path) {
        return Err(unusable("it is not below the table's data location".into()));
    }
    let mut manifests = Vec::with_capacity(segment.manifests.len());
    for sealed in &segment.manifests {
        manifests.push(read_manifest(attempt.loaded, sealed).await?);
    }
    let files = manifests.iter().flat_map(|manifest| &manifest.files);
    let files = files.map(|file| IndexedFile::new(file.file_path(), file.record_count()));
    let files: Vec<IndexedFile> = files.collect::<Result<_>>().map_err(Unread::Failed)?;
    let file_rows: Arc<[u64]> = files.iter().map(|file| u64::from(file.rows)).collect();
    let keys = tracked.keys().clone();
    let identity = KeyRunIdentity {
        table: segment.table_uuid,
        wid: attempt.wid.to_owned(),
        session: segment.session,
        seq: segment.seq,
        form: keys.form,
        key: keys.key.clone(),
        ranges: Ranges::of(segment),
    };
    let bounds = KeyRunBounds {
        partitions: segment.ranges.len(),
        file_rows: Arc::clone(&file_rows),
    };
    let run = match fetch_key_run(storage, announced, &identity, bounds).await {
        Err(error) if is_gone(&error) => return Err(unusable(error.report())),
        run => run.map_err(Unread::Failed)?,
    };
    match compute(|| names_all_rows(&run, &file_rows)).await {
        Ok(true) => {}
        Ok(false) => return Err(unusable("not every row of its files has one key".into())),
        Err(error) => return Err(unusable(error.report())),
    }
    let mut pending = run.pending().iter();
    if !pending.all(|file| is_data_path(metadata, &file.path)) {
        return Err(unusable(
            "its pending files are not below the table's data location".into(),
        ));
    }
    let listed = manifests.iter().map(|manifest| manifest.bytes.len());
    let bytes = run.memory_bytes() + listed.sum::<usize>() + files.len() * FILE_BYTES;
    Ok(SegmentChanges {
        keys,
        manifests,
        files,
        run,
        _held: memory.draw(Use::Commits, bytes as u64),
    })
}

/// Tells whether each row of the files is that of one change: a row without a key would be there for ever,
/// and one with two would have only one of them.
///
/// # Errors
///
/// `KEY_RUN_UNUSABLE`.
fn names_all_rows(run: &StoredRun, file_rows: &[u64]) -> Result<bool> {
    let mut named = NamedRows::new(file_rows.iter().copied());
    let mut pending = NamedRows::new(run.pending().iter().map(|file| file.rows));
    let mut changes = run.changes(CHECKED_ROWS)?;
    let mut part = KeyRun::default();
    while changes.more(&mut part)? {
        let all = part.changes().iter().all(|change| match change.effect {
            Effect::Upsert(at) => named.name(at),
            Effect::Pending(at) | Effect::Mark(at) => pending.name(at),
            Effect::Delete | Effect::Truncate => true,
        });
        if !all {
            return Ok(false);
        }
        part.clear();
    }
    Ok(named.is_complete() && pending.is_complete())
}

/// Tells whether no waiting brings a file back: then the session writes its rows again.
fn is_gone(error: &SinkError) -> bool {
    error.code() == "STORAGE_NOT_FOUND" || error.code() == "KEY_RUN_UNUSABLE"
}

async fn read_manifest(
    loaded: &LoadedTable,
    sealed: &SealedManifest,
) -> Result<NewManifest, Unread> {
    let path = &sealed.manifest.manifest_path;
    let changed = || Unread::Unusable(RejectReason::ManifestChanged { path: path.clone() });
    let bytes = match loaded.storage.get(path).await {
        Ok(bytes) => bytes,
        Err(error) if is_gone(&error) => return Err(changed()),
        Err(error) => return Err(Unread::Failed(error)),
    };
    let digest: [u8; 32] = Sha256::digest(&bytes).into();
    if digest != sealed.sha256 {
        return Err(changed());
    }
    // It is the one that was sealed: another time it reads no better.
    let manifest = Manifest::parse_avro(&bytes).map_err(|error| {
        let error = format_error(error).with("file", redact::foreign(path));
        Unread::Failed(error)
    })?;
    let (entries, own) = manifest.into_parts();
    let files = entries.iter().map(|entry| entry.data_file().clone());
    Ok(NewManifest {
        sealed: sealed.clone(),
        files: files.collect(),
        schema: own.schema().clone(),
        bytes,
    })
}
