//! Merges manifests of a table, as `frazil_core::commit::merge` chooses them.
//!
//! Entries stay what they are: the file with its metrics, the snapshot that added it, its sequence
//! numbers and row ids. What an entry inherits from the manifest list is written down in it, since
//! the list says something else of the new manifest. The old manifests stay where they are: the
//! snapshots before this one list them, and go when these expire.
//!
//! No commit depends on it: when it does not work the list is written as it is. It does not depend on
//! room in the memory of the process either, for a list that only grows costs more with every commit:
//! where there is little, fewer are merged at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use frazil_core::commit::merge::{MergeSettings, groups, merged_name};
use frazil_core::limits::{MANIFEST_MERGE_MEMORY, MANIFEST_TABLE_TURNS};
use frazil_core::memory::Use;
use frazil_core::{ErrorKind, Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, FormatVersion, Manifest, ManifestContentType,
    ManifestEntry, ManifestFile, ManifestMetadata, ManifestStatus, ManifestWriterBuilder,
    TableMetadata,
};
use uuid::Uuid;

use super::looks::Looks;
use super::manifest::metadata_location;
use super::{Scratch, format_error};
use crate::memory::Memory;
use crate::storage::TableStorage;

/// Commits of a table that do not try after one that could not.
const PAUSE_COMMITS: u32 = 50;

/// Tells when the manifests of a table are merged again after a failure, and for how long they were not.
#[derive(Debug, Default)]
pub(super) struct MergePause {
    left: AtomicU32,
    /// Commits one after another that had something to merge, and could not.
    without: AtomicU32,
}

impl MergePause {
    fn is_over(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    fn begin(&self) {
        self.left.store(PAUSE_COMMITS, Ordering::Relaxed);
    }

    /// A commit merged something, or not. Tells now and then that it has been too long.
    fn merged(&self, any: bool) -> bool {
        if any {
            self.without.store(0, Ordering::Relaxed);
            return false;
        }
        let without = self.without.fetch_add(1, Ordering::Relaxed);
        without % PAUSE_COMMITS == PAUSE_COMMITS - 1
    }
}

/// What one commit merges: its attempts list the same new manifests.
#[derive(Debug, Default)]
pub(super) struct Merger {
    /// The manifests that were made, by the paths of those that they stand for.
    made: BTreeMap<Vec<String>, Vec<ManifestFile>>,
    number: usize,
}

/// Where a merge happens.
pub(super) struct Place<'a> {
    pub(super) storage: &'a TableStorage,
    pub(super) metadata: &'a TableMetadata,
    pub(super) looks: &'a Looks,
    pub(super) pause: &'a MergePause,
    pub(super) memory: &'a Arc<Memory>,
    pub(super) wid: &'a str,
    pub(super) commit_id: Uuid,
    pub(super) snapshot_id: i64,
}

impl Place<'_> {
    /// A commit, of a table whose list had `listed` manifests, merged something or not.
    fn merged(&self, any: bool, listed: usize) {
        if self.pause.merged(any) {
            tracing::warn!(
                location = self.metadata.location(),
                manifests = listed,
                "manifests of the table were not merged for {PAUSE_COMMITS} commits that should have \
                 done so: its list grows with each commit. Others merged theirs then, or the memory of \
                 the process was used up: raise `frazil.memory.max.bytes`"
            );
        }
    }
}

impl Merger {
    /// Returns the manifests that take the place of `old` in the list of a new snapshot.
    pub(super) async fn merge(
        &mut self,
        place: &Place<'_>,
        old: Vec<ManifestFile>,
    ) -> Vec<ManifestFile> {
        let groups = groups(
            &old,
            &MergeSettings::of(place.metadata),
            place.metadata.format_version() >= FormatVersion::V3,
        );
        if groups.is_empty() || !place.pause.is_over() {
            return old;
        }
        // A list that others keep from being merged now is merged by a later commit.
        let Some(_turn) = place.looks.merge() else {
            place.merged(false, old.len());
            return old;
        };
        let mut merged = BTreeMap::new();
        for group in groups {
            let room = place.memory.room().max(MANIFEST_MERGE_MEMORY);
            let group = fitting(&group, &old, room);
            let manifests: Vec<&ManifestFile> =
                group.iter().filter_map(|at| old.get(*at)).collect();
            if manifests.len() < 2 {
                continue;
            }
            let bytes = manifests.iter().map(|one| merge_bytes(one)).sum();
            let _held = place.memory.draw(Use::Commits, bytes);
            match self.made(place, &manifests).await {
                Ok(made) => {
                    merged.extend(group.iter().map(|at| (*at, Vec::new())));
                    merged.extend(group.first().map(|at| (*at, made)));
                }
                Err(error) => {
                    place.pause.begin();
                    tracing::warn!(location = place.metadata.location(), reason = %error.report(),
                        "manifests of the table cannot be merged; its list stays as long as it is");
                    if error.kind() == ErrorKind::Retriable {
                        break;
                    }
                }
            }
        }
        place.merged(!merged.is_empty(), old.len());
        let places = old.into_iter().enumerate();
        places
            .flat_map(|(at, manifest)| merged.remove(&at).unwrap_or_else(|| vec![manifest]))
            .collect()
    }

    async fn made(
        &mut self,
        place: &Place<'_>,
        manifests: &[&ManifestFile],
    ) -> Result<Vec<ManifestFile>> {
        let paths = manifests.iter().map(|one| one.manifest_path.clone());
        let paths: Vec<String> = paths.collect();
        let mut made = match self.made.remove(&paths) {
            Some(made) => made,
            None => self.write(place, manifests).await?,
        };
        for manifest in &mut made {
            // Each attempt is a snapshot of its own; those that were merged by themselves keep theirs.
            if manifest.sequence_number < 0 {
                manifest.added_snapshot_id = place.snapshot_id;
            }
        }
        self.made.insert(paths, made.clone());
        Ok(made)
    }

    /// Reads `manifests` and writes one for each schema that they were written with: bounds and
    /// partition values have the types of that.
    async fn write(
        &mut self,
        place: &Place<'_>,
        manifests: &[&ManifestFile],
    ) -> Result<Vec<ManifestFile>> {
        let reads: Vec<_> = manifests.iter().map(|one| read(place, one)).collect();
        let reads = futures::stream::iter(reads).buffered(MANIFEST_TABLE_TURNS);
        let reads: Vec<Manifest> = reads.try_collect().await?;
        let mut alike: Vec<(ManifestMetadata, Vec<(&ManifestFile, Manifest)>)> = Vec::new();
        for (listed, read) in manifests.iter().copied().zip(reads) {
            let own = read.metadata();
            let known = alike.iter_mut().find(|(known, _)| {
                known.schema_id() == own.schema_id()
                    && known.partition_spec() == own.partition_spec()
            });
            match known {
                Some((_, members)) => members.push((listed, read)),
                None => alike.push((own.clone(), vec![(listed, read)])),
            }
        }
        let mut made = Vec::new();
        for (own, members) in alike {
            made.push(match members.as_slice() {
                [(alone, _)] => (*alone).clone(),
                _ => self.write_one(place, &own, &members).await?,
            });
        }
        Ok(made)
    }

    async fn write_one(
        &mut self,
        place: &Place<'_>,
        own: &ManifestMetadata,
        members: &[(&ManifestFile, Manifest)],
    ) -> Result<ManifestFile> {
        let scratch = Scratch::new();
        let output = scratch.io.new_output(Scratch::PATH).map_err(format_error)?;
        let (schema, spec) = (own.schema().clone(), own.partition_spec().clone());
        let builder = ManifestWriterBuilder::new(output, None, schema, spec);
        let is_deletes = members
            .iter()
            .any(|(listed, _)| listed.content == ManifestContentType::Deletes);
        let mut writer = match (place.metadata.format_version(), is_deletes) {
            (FormatVersion::V1, _) => {
                return Err(SinkError::internal("a v1 table was to be written"));
            }
            (FormatVersion::V2, false) => builder.build_v2_data(),
            (FormatVersion::V2, true) => builder.build_v2_deletes(),
            (FormatVersion::V3, false) => builder.build_v3_data(),
            (FormatVersion::V3, true) => builder.build_v3_deletes(),
        };
        let mut first_row_id = None;
        for (listed, manifest) in members {
            let mut inherited = Inherited::of(listed);
            // Entries that an older snapshot took off are of no use to this one.
            for entry in manifest.entries().iter().filter(|entry| entry.is_alive()) {
                let kept = inherited.entry(entry, own)?;
                let (files, snapshot, sequence) = (kept.file, kept.snapshot_id, kept.sequence);
                first_row_id = first_row_id.into_iter().chain(files.first_row_id()).min();
                writer
                    .add_existing_file(files, snapshot, sequence, Some(kept.file_sequence))
                    .map_err(format_error)?;
            }
        }
        let mut made = writer.write_manifest_file().await.map_err(format_error)?;
        check_counts(&made, members)?;
        let bytes = scratch.bytes().await?;
        let name = merged_name(place.wid, place.commit_id, self.number, own.schema_id());
        self.number += 1;
        made.manifest_path = format!("{}/{name}", metadata_location(place.metadata));
        made.manifest_length = bytes.len() as i64;
        // All entries have their row ids: the list gives out none for them.
        made.first_row_id = first_row_id.and_then(|id| u64::try_from(id).ok());
        place
            .storage
            .put(&made.manifest_path, Bytes::from(bytes))
            .await?;
        Ok(made)
    }
}

/// Returns about how much memory it takes to merge a manifest with others: all its entries, each with its
/// metrics in hash tables, and the bytes that are read and written.
fn merge_bytes(manifest: &ManifestFile) -> u64 {
    const PER_BYTE: u64 = 8;
    PER_BYTE.saturating_mul(u64::try_from(manifest.manifest_length).unwrap_or(0))
}

/// Returns the oldest manifests of a group, which has them as the list does, as far as they can be merged
/// in `room` bytes of memory.
fn fitting<'a>(group: &'a [usize], list: &[ManifestFile], room: u64) -> &'a [usize] {
    let (mut bytes, mut first) = (0_u64, group.len());
    for (at, place) in group.iter().enumerate().rev() {
        bytes = bytes.saturating_add(list.get(*place).map_or(0, merge_bytes));
        if bytes > room {
            break;
        }
        first = at;
    }
    group.split_at_checked(first).map_or(&[], |(_, fits)| fits)
}

async fn read(place: &Place<'_>, listed: &ManifestFile) -> Result<Manifest> {
    let bytes = u64::try_from(listed.manifest_length).unwrap_or(u64::MAX);
    let _turn = place.looks.turn(bytes).await;
    let bytes = place.storage.get(&listed.manifest_path).await?;
    let manifest = Manifest::parse_avro(&bytes).map_err(format_error)?;
    match manifest.metadata().partition_spec().spec_id() == listed.partition_spec_id {
        true => Ok(manifest),
        false => Err(unfit("a manifest has another partition spec than its list")),
    }
}

/// An entry with all that it says by itself.
struct Kept {
    file: DataFile,
    snapshot_id: i64,
    sequence: i64,
    file_sequence: i64,
}

/// What the entries of a manifest take over from its place in the list.
struct Inherited<'a> {
    listed: &'a ManifestFile,
    next_row_id: Option<u64>,
}

impl<'a> Inherited<'a> {
    fn of(listed: &'a ManifestFile) -> Self {
        Inherited {
            listed,
            next_row_id: listed.first_row_id,
        }
    }

    /// Writes down what `entry`, the next one of the manifest, inherits.
    fn entry(&mut self, entry: &ManifestEntry, own: &ManifestMetadata) -> Result<Kept> {
        let is_data = entry.content_type() == DataContentType::Data;
        if is_data != (self.listed.content == ManifestContentType::Data) {
            return Err(unfit("a manifest has entries that its list does not count"));
        }
        let added = entry.status() == ManifestStatus::Added;
        let number = |own: Option<i64>| match own {
            None if added => Some(self.listed.sequence_number),
            own => own,
        };
        let snapshot_id = entry.snapshot_id().or(Some(self.listed.added_snapshot_id));
        let sequence = number(entry.sequence_number());
        let file_sequence = number(entry.file_sequence_number);
        let (Some(snapshot_id), Some(sequence), Some(file_sequence)) =
            (snapshot_id, sequence, file_sequence)
        else {
            return Err(unfit("an entry of a manifest has no sequence number"));
        };
        let file = entry.data_file();
        let mut row_id = file.first_row_id();
        if let (None, Some(next)) = (row_id, &mut self.next_row_id) {
            row_id = i64::try_from(*next).ok();
            *next = next.saturating_add(file.record_count());
        }
        Ok(Kept {
            file: with_row_id(file, row_id, own.partition_spec().spec_id())?,
            snapshot_id,
            sequence,
            file_sequence,
        })
    }
}

/// Returns `file` with the row id of its first row.
fn with_row_id(file: &DataFile, row_id: Option<i64>, spec_id: i32) -> Result<DataFile> {
    if file.first_row_id() == row_id {
        return Ok(file.clone());
    }
    let mut builder = DataFileBuilder::default();
    builder
        .content(file.content_type())
        .file_path(file.file_path().to_owned())
        .file_format(file.file_format())
        .partition(file.partition().clone())
        .partition_spec_id(spec_id)
        .record_count(file.record_count())
        .file_size_in_bytes(file.file_size_in_bytes())
        .column_sizes(file.column_sizes().clone())
        .value_counts(file.value_counts().clone())
        .null_value_counts(file.null_value_counts().clone())
        .nan_value_counts(file.nan_value_counts().clone())
        .lower_bounds(file.lower_bounds().clone())
        .upper_bounds(file.upper_bounds().clone())
        .key_metadata(file.key_metadata().map(<[u8]>::to_vec))
        .split_offsets(file.split_offsets().map(<[i64]>::to_vec))
        .equality_ids(file.equality_ids())
        .first_row_id(row_id)
        .referenced_data_file(file.referenced_data_file())
        .content_offset(file.content_offset())
        .content_size_in_bytes(file.content_size_in_bytes());
    if let Some(sort_order_id) = file.sort_order_id() {
        builder.sort_order_id(sort_order_id);
    }
    builder
        .build()
        .map_err(|_| SinkError::internal("a data file cannot be copied"))
}

/// Checks that the new manifest has as many files and rows as the list says of the old ones.
fn check_counts(made: &ManifestFile, members: &[(&ManifestFile, Manifest)]) -> Result<()> {
    let files = |one: &ManifestFile| {
        Some(u64::from(one.added_files_count?) + u64::from(one.existing_files_count?))
    };
    let rows = |one: &ManifestFile| one.added_rows_count?.checked_add(one.existing_rows_count?);
    let wanted: Option<(u64, u64)> =
        members
            .iter()
            .try_fold((0, 0), |sum: (u64, u64), (one, _)| {
                Some((
                    sum.0.checked_add(files(one)?)?,
                    sum.1.checked_add(rows(one)?)?,
                ))
            });
    match wanted.is_some() && wanted == files(made).zip(rows(made)) {
        true => Ok(()),
        false => Err(unfit("manifests have other files than their list counts")),
    }
}

fn unfit(what: &'static str) -> SinkError {
    SinkError::fatal("METADATA_FORMAT", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_merged_as_there_is_room_for() {
        let manifest = |length| ManifestFile {
            manifest_path: String::new(),
            manifest_length: length,
            partition_spec_id: 0,
            content: iceberg::spec::ManifestContentType::Data,
            sequence_number: 0,
            min_sequence_number: 0,
            added_snapshot_id: 0,
            added_files_count: None,
            existing_files_count: None,
            deleted_files_count: None,
            added_rows_count: None,
            existing_rows_count: None,
            deleted_rows_count: None,
            partitions: None,
            key_metadata: None,
            first_row_id: None,
        };
        let list = [10, 90, 20, 30].map(manifest);
        let group = [0, 2, 3];
        assert_eq!(fitting(&group, &list, 480), [0, 2, 3]);
        assert_eq!(fitting(&group, &list, 479), [2, 3], "the oldest");
        assert_eq!(fitting(&group, &list, 399), [3]);
        assert_eq!(fitting(&group, &list, 100), [0; 0]);
    }

    #[test]
    fn that_nothing_was_merged_is_said_after_a_while_and_again() {
        let pause = MergePause::default();
        let said = |commits: u32| (0..commits).filter(|_| pause.merged(false)).count();
        assert_eq!(said(PAUSE_COMMITS - 1), 0);
        assert!(!pause.merged(true));
        assert_eq!(said(PAUSE_COMMITS - 1), 0, "one was merged since");
        assert_eq!(said(1), 1);
        assert_eq!(said(2 * PAUSE_COMMITS), 2);
    }
}
