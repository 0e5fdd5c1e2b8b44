//! From the changes of a commit to its manifests: deletes are written, entries that they stand for are
//! taken off, and files that have no row left are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use frazil_core::change::window::{KnownOrders, LeftRow};
use frazil_core::commit::recover::state_of;
use frazil_core::commit::state::WriterState;
use frazil_core::commit::summary::FileChanges;
use frazil_core::commit::validate::RejectReason;
use frazil_core::control::segment::partition_number;
use frazil_core::index::Location;
use frazil_core::index::bases::Base;
use frazil_core::index::changed::{LocatedChanges, Pending, SegmentChanges as RunOf};
use frazil_core::index::files::IndexedFile;
use frazil_core::index::pieces::Pieces;
use frazil_core::index::resolve::Resolution;
use frazil_core::index::truncations::{Truncations, Unsure};
use frazil_core::{Result, SinkError};
use iceberg::spec::{DataFile, ManifestFile, SchemaRef, Struct};

use super::super::Layout;
use super::super::manifest::{build as build_manifest, metadata_location};
use super::super::replace::{Removed, ReplacePlace, replace_entries};
use super::super::rewrite::EntryKey;
use super::complete::{Budget, Completed, Making, complete};
use super::segments::NewManifest;
use super::{
    Built, ChangedAttempt, ChangedTable, SegmentChanges, Unbuilt, Written, WrittenManifest,
};
use crate::catalog::LoadedTable;
use crate::delete::{FileDeletes, KnownDeletes, write_deletes};
use crate::failpoint;
use crate::index::Tracked;
use crate::keyrun::KeyRun;
use crate::memory::{Draw, Memory};
use crate::runtime::compute;
use crate::writer::beside_data;

/// Changes that are held at a time, of all segments of a commit. Tests see many pieces.
const PIECE_ROWS: usize = if cfg!(test) { 4 } else { 128 << 10 };
/// Those of one segment at least.
const PIECE_ROWS_MIN: usize = if cfg!(test) { 1 } else { 512 };

/// The deleted rows of files that a commit deletes rows of.
pub(super) type Known = BTreeMap<Arc<str>, KnownDeletes>;

/// Resolves `parts`, the changes of the attempt's segments, and writes what they come to.
pub(super) async fn build(
    making: (&ChangedTable, &Arc<Memory>),
    (tracked, orders): (&mut Tracked, &KnownOrders),
    attempt: &ChangedAttempt<'_>,
    old: Vec<ManifestFile>,
    (parts, completed): (&[&SegmentChanges], &mut Option<Completed>),
    mut held: Draw,
) -> Result<(Built, Written), Unbuilt> {
    let mut located = compute(|| locate(tracked, orders, attempt, parts, &mut held)).await?;
    let paths = located.files().into_iter();
    let paths: BTreeSet<Arc<str>> = paths
        .filter_map(|number| path_of(tracked, number))
        .collect();
    let (live, storage) = (&tracked.live, &attempt.loaded.storage);
    let kept = |path: &str| tracked.kept.deletes(path);
    let known = live.deletes_of(storage, &paths, kept).await?;
    let vectors = known.values().map(|known| known.vector.memory_bytes());
    held.resize(held.bytes() + vectors.sum::<usize>() as u64);
    let found = (&known, &mut located);
    let made = (parts, completed);
    let files = make_rows(making, (tracked, orders), attempt, made, found).await?;
    note_leaving((tracked, parts), &known, &mut located);
    failpoint::pass("commit.after-complete")?;
    let vector_of = |number| {
        let known = known.get(&path_of(tracked, number)?)?;
        Some(&known.vector)
    };
    let (made, noted) = compute(|| located.resolve(tracked.index(), vector_of)).await?;
    tracked.check_room(made.delta.len())?;
    failpoint::pass("commit.after-resolve")?;
    let mut work = Work {
        attempt,
        parts,
        files: FileChanges::default(),
        new: Vec::new(),
        written: Vec::new(),
        number: 0,
    };
    work.add_segments(&made).await?;
    work.add_completed(files).await?;
    let (deletes, removed) = work.deletes(tracked, &made, &known)?;
    let deletes = work.write_deletes(deletes).await?;
    failpoint::pass("commit.after-deletes")?;
    let old = work.replace(tracked, old, &removed).await?;
    failpoint::pass("commit.after-replace")?;
    for (path, bytes) in work.written {
        tracked.keep_manifest(&path, bytes);
    }
    // Until it is known whether the table has it.
    let vectors = deletes.iter().map(|(_, known)| known.vector.memory_bytes());
    let waits = made.delta.memory_bytes() + noted.memory_bytes() + vectors.sum::<usize>();
    held.resize(waits as u64);
    let pending = Written {
        _held: held,
        pending: Pending {
            commit_id: attempt.commit_id,
            snapshot_id: attempt.snapshot_id,
            delta: made.delta,
            noted,
            counts: made.counts,
        },
        deletes,
    };
    let built = Built {
        new: work.new,
        old,
        files: work.files,
    };
    Ok((built, pending))
}

/// Makes the rows that lack values; returns the files that have them.
async fn make_rows(
    (table, memory): (&ChangedTable, &Arc<Memory>),
    (tracked, orders): (&Tracked, &KnownOrders),
    attempt: &ChangedAttempt<'_>,
    (parts, completed): (&[&SegmentChanges], &mut Option<Completed>),
    (known, located): (&Known, &mut LocatedChanges),
) -> Result<Vec<DataFile>, Unbuilt> {
    // Before anything is written: a later attempt would write it again.
    tracked.check_room(located.keys())?;
    let making = Making {
        table,
        memory,
        budget: Budget::of(memory.room()),
        tracked,
        attempt,
        parts,
        known,
        orders,
    };
    let Some(completed) = complete(making, located.incomplete(), completed).await? else {
        return Ok(Vec::new());
    };
    let files = completed.files.iter();
    let files = files.map(|file| IndexedFile::new(file.file_path(), file.record_count()));
    let files = files.collect::<Result<Vec<_>>>()?;
    located.complete(files, &completed.rows, completed.nulled)?;
    Ok(completed.files.clone())
}

/// Keeps in mind where the rows lie that get another key with a later record.
fn note_leaving(
    (tracked, parts): (&Tracked, &[&SegmentChanges]),
    known: &Known,
    located: &mut LocatedChanges,
) {
    let of_table = |at: Location| {
        let path = path_of(tracked, at.file)?;
        let mut deletes = known.get(&path).into_iter();
        let is_gone = deletes.any(|known| known.vector.contains(u64::from(at.row)));
        let live = tracked.live.data.get(&path).filter(|_| !is_gone)?;
        let (bytes, row) = (live.bytes, at.row);
        Some(LeftRow { path, bytes, row })
    };
    // The table may never list the file of such a row.
    let of_commit = |segment: u32, at: Location| {
        let file = parts.get(segment as usize)?.data_file(at.file)?;
        Some(LeftRow {
            path: Arc::from(file.file_path()),
            bytes: file.file_size_in_bytes(),
            row: at.row,
        })
    };
    for leaving in located.take_leaving() {
        let row = match leaving.row {
            Some(Base::Table(at)) => of_table(at),
            Some(Base::New(segment, at)) => of_commit(segment, at),
            Some(Base::Pending(..) | Base::Left(..)) | None => None,
        };
        located.leave(leaving, row);
    }
}

pub(super) fn path_of(tracked: &Tracked, number: u32) -> Option<Arc<str>> {
    let file = tracked.index().files().get(number);
    file.map(|file| Arc::clone(&file.path))
}

/// Finds the last change of each key of the attempt's segments, piece by piece; counts in `held` what it
/// takes.
fn locate(
    tracked: &Tracked,
    orders: &KnownOrders,
    attempt: &ChangedAttempt<'_>,
    parts: &[&SegmentChanges],
    held: &mut Draw,
) -> Result<LocatedChanges, Unbuilt> {
    let files = parts.iter().flat_map(|part| &part.files).cloned();
    let mut located = LocatedChanges::begin(tracked.index(), files.collect());
    let step = (PIECE_ROWS / parts.len().max(1)).max(PIECE_ROWS_MIN);
    let sources = parts.iter().map(|part| part.run.changes(step));
    let mut pieces = Pieces::new(sources.collect::<Result<Vec<_>>>()?);
    let mut truncations = None;
    while let Some(runs) = pieces.next_piece()? {
        let segments = attempt.segments.iter().zip(parts).zip(&runs);
        let changes = segments.map(|(((_, segment), part), run)| RunOf {
            run,
            ranges: &segment.ranges,
            files: &part.files,
        });
        let changes: Vec<RunOf<'_>> = changes.collect();
        if truncations.is_none() {
            truncations = Some(find_truncations(attempt, orders, &changes)?);
        }
        if let Some(Err(unsure)) = truncations.as_ref().map(|all| all.check(&changes)) {
            return Err(refused(attempt, unsure));
        }
        located.add(tracked.index(), orders, &changes)?;
        let read: usize = runs.iter().map(KeyRun::memory_bytes).sum();
        let bytes = located.memory_bytes() + pieces.memory_bytes() + read;
        held.resize(bytes as u64);
    }
    located.finish();
    held.resize(located.memory_bytes() as u64);
    Ok(located)
}

/// Finds the truncations in the first piece of the attempt's changes; one of which nobody knows what came
/// before it refuses its segment.
fn find_truncations(
    attempt: &ChangedAttempt<'_>,
    orders: &KnownOrders,
    parts: &[RunOf<'_>],
) -> Result<Truncations, Unbuilt> {
    let state = state_of(&attempt.loaded.metadata, attempt.wid, attempt.branch)?;
    let bounds = state.iter().flat_map(WriterState::bounds);
    let of_table = bounds.map(|(partition, _)| partition);
    let found = Truncations::begin(parts, orders, of_table);
    found.map_err(|unsure| refused(attempt, unsure))
}

fn refused(attempt: &ChangedAttempt<'_>, unsure: Unsure) -> Unbuilt {
    let Unsure {
        segment,
        partition,
        other,
    } = unsure;
    match attempt.segments.get(segment) {
        Some((index, _)) => {
            let reason = RejectReason::TruncationUnsure { partition, other };
            Unbuilt::Unusable(*index, reason)
        }
        None => SinkError::internal("a truncation is of no segment").into(),
    }
}

/// What an attempt writes.
struct Work<'a> {
    attempt: &'a ChangedAttempt<'a>,
    parts: &'a [&'a SegmentChanges],
    files: FileChanges,
    new: Vec<ManifestFile>,
    /// The manifests of the attempt and of its segments, by their locations.
    written: Vec<(String, Bytes)>,
    number: usize,
}

/// The deletes of one file, with the layout of the manifest that lists it.
struct LaidOut {
    layout: Layout,
    schema: SchemaRef,
    deletes: FileDeletes,
}

impl Work<'_> {
    /// Lists the new files that have a row that counts.
    async fn add_segments(&mut self, made: &Resolution) -> Result<()> {
        let unneeded: BTreeSet<u32> = made.unneeded.iter().copied().collect();
        let mut number = 0u32;
        let parts = self.parts;
        for manifest in parts.iter().flat_map(|part| &part.manifests) {
            let mut needed = Vec::with_capacity(manifest.files.len());
            for file in &manifest.files {
                if !unneeded.contains(&number) {
                    needed.push(file);
                }
                number = number.saturating_add(1);
            }
            if needed.len() == manifest.files.len() {
                let sealed = &manifest.sealed;
                self.files.added.add(&sealed.counts);
                self.files.partitions.extend(&sealed.partitions);
                self.new.push(sealed.manifest.clone());
                let path = sealed.manifest.manifest_path.clone();
                self.written.push((path, manifest.bytes.clone()));
            } else if !needed.is_empty() {
                let files = needed.into_iter().cloned().collect();
                self.write_manifest(&manifest.schema, manifest.spec_id(), files)
                    .await?;
            }
        }
        Ok(())
    }

    /// Lists the files with the rows that the commit has made.
    async fn add_completed(&mut self, files: Vec<DataFile>) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let metadata = &self.attempt.loaded.metadata;
        let Layout { spec_id, .. } = Layout::of(metadata);
        let schema = Arc::clone(metadata.current_schema());
        self.write_manifest(&schema, spec_id, files).await
    }

    /// Writes a manifest of the commit's own and lists it.
    async fn write_manifest(
        &mut self,
        schema: &SchemaRef,
        spec_id: i32,
        files: Vec<DataFile>,
    ) -> Result<()> {
        let LoadedTable {
            metadata, storage, ..
        } = self.attempt.loaded;
        let spec = metadata.partition_spec_by_id(spec_id).ok_or_else(|| {
            SinkError::internal("the table has no such partition spec").with("spec", spec_id)
        })?;
        let version = metadata.format_version();
        let built = build_manifest(version, Arc::clone(schema), spec, files).await?;
        let ChangedAttempt {
            wid,
            commit_id,
            snapshot_id,
            ..
        } = self.attempt;
        let (place, number) = (metadata_location(metadata), self.number);
        self.number += 1;
        let mut written = WrittenManifest {
            manifest: built.manifest,
            bytes: Bytes::from(built.bytes),
        };
        let path = format!("{place}/frazil-{wid}-{commit_id}-{snapshot_id}-c{number}-m.avro");
        written.manifest.manifest_path.clone_from(&path);
        written.manifest.manifest_length = written.bytes.len() as i64;
        storage.put(&path, written.bytes.clone()).await?;
        self.files.added.add(&built.counts);
        self.files.partitions.extend(&built.partitions);
        self.new.push(written.manifest);
        self.written.push((path, written.bytes));
        Ok(())
    }

    /// Tells which deletes are to be written and which entries go.
    fn deletes(
        &mut self,
        tracked: &Tracked,
        made: &Resolution,
        known: &Known,
    ) -> Result<(Vec<LaidOut>, Removed)> {
        let new: Vec<(&DataFile, &NewManifest)> = self
            .parts
            .iter()
            .flat_map(|part| &part.manifests)
            .flat_map(|manifest| manifest.files.iter().map(move |file| (file, manifest)))
            .collect();
        let mut removed = Removed::default();
        let mut deletes = Vec::with_capacity(made.deletes.len());
        for (number, file) in &made.deletes {
            let vector = file.vector.clone();
            deletes.push(match number.checked_sub(made.first_new) {
                Some(number) => {
                    let found = new.get(number as usize);
                    let (file, manifest) = found.ok_or_else(nowhere)?;
                    let layout = Layout {
                        schema_id: manifest.schema.schema_id(),
                        spec_id: manifest.spec_id(),
                    };
                    let (path, partition) = (file.file_path(), file.partition());
                    laid_out(layout, &manifest.schema, path, partition, vector)
                }
                None => {
                    let path = path_of(tracked, *number).ok_or_else(nowhere)?;
                    let live = tracked.live.data.get(&path).ok_or_else(nowhere)?;
                    let replaced = known.get(&path).map(|known| &known.replaced);
                    removed
                        .deletes
                        .extend(replaced.into_iter().flatten().cloned());
                    let schema = self.schema(live.layout.schema_id);
                    laid_out(live.layout, &schema, &path, &live.partition, vector)
                }
            });
        }
        for number in &made.dropped {
            let path = path_of(tracked, *number).ok_or_else(nowhere)?;
            let live = tracked.live.data.get(&path).ok_or_else(nowhere)?;
            let partition = partition_number(live.layout.spec_id, &live.partition);
            self.files.partitions.insert(partition);
            removed.data.insert(EntryKey::of_file(&*path));
            removed.deletes.extend(match known.get(&path) {
                Some(known) => known.replaced.clone(),
                // The deletes of a file that goes with a truncation were not read.
                None => tracked.live.own_deletes(&path),
            });
        }
        Ok((deletes, removed))
    }

    /// Returns the schema that a manifest was written with; one that the table has forgotten is the
    /// current one but for what no partition value depends on.
    fn schema(&self, schema_id: i32) -> SchemaRef {
        let metadata = &self.attempt.loaded.metadata;
        let schema = metadata.schema_by_id(schema_id);
        schema.unwrap_or(metadata.current_schema()).clone()
    }

    /// Writes and lists the deletes, and tells what they say of each data file.
    async fn write_deletes(
        &mut self,
        deletes: Vec<LaidOut>,
    ) -> Result<Vec<(Arc<str>, KnownDeletes)>> {
        let LoadedTable {
            metadata, storage, ..
        } = self.attempt.loaded;
        let ChangedAttempt {
            wid,
            commit_id,
            snapshot_id,
            ..
        } = self.attempt;
        let name = format!("frazil-{wid}-{commit_id}-{snapshot_id}");
        let prefix = beside_data(metadata.location(), metadata.properties(), name)?;
        let layouts: Vec<(Layout, SchemaRef)> = deletes
            .iter()
            .map(|one| (one.layout, Arc::clone(&one.schema)))
            .collect();
        let deletes: Vec<FileDeletes> = deletes.into_iter().map(|one| one.deletes).collect();
        let version = metadata.format_version();
        let files = write_deletes(storage, version, &prefix, &deletes).await?;
        let mut by_layout: BTreeMap<Layout, (SchemaRef, Vec<DataFile>)> = BTreeMap::new();
        let mut known = Vec::with_capacity(files.len());
        for ((file, of), (layout, schema)) in files.into_iter().zip(deletes).zip(layouts) {
            let key = match version >= iceberg::spec::FormatVersion::V3 {
                true => EntryKey::of_vector(file.file_path(), &of.data_file),
                false => EntryKey::of_file(file.file_path()),
            };
            let deletes = KnownDeletes {
                vector: of.vector,
                replaced: [key].into(),
            };
            known.push((Arc::from(of.data_file), deletes));
            let (_, files) = by_layout.entry(layout).or_insert((schema, Vec::new()));
            files.push(file);
        }
        for (layout, (schema, files)) in by_layout {
            self.write_manifest(&schema, layout.spec_id, files).await?;
        }
        Ok(known)
    }

    /// Takes the entries that go off the parent's manifests. Manifests without an entry that is live
    /// stay behind with the parent.
    async fn replace(
        &mut self,
        tracked: &Tracked,
        mut old: Vec<ManifestFile>,
        removed: &Removed,
    ) -> Result<Vec<ManifestFile>> {
        let none = |count: Option<u32>| count == Some(0);
        old.retain(|one| !(none(one.added_files_count) && none(one.existing_files_count)));
        if removed.data.is_empty() && removed.deletes.is_empty() {
            return Ok(old);
        }
        let among = tracked.live.manifests_of(&removed.data, &removed.deletes);
        let place = ReplacePlace {
            storage: &self.attempt.loaded.storage,
            metadata: &self.attempt.loaded.metadata,
            commit_id: self.attempt.commit_id,
            snapshot_id: self.attempt.snapshot_id,
            among: Some(&among),
            kept: &|path: &str| tracked.kept.manifest(path),
        };
        let replaced = replace_entries(&place, old, removed).await?;
        self.files.removed = replaced.counts;
        self.written.extend(replaced.written);
        Ok(replaced.manifests)
    }
}

impl NewManifest {
    fn spec_id(&self) -> i32 {
        self.sealed.manifest.partition_spec_id
    }
}

fn laid_out(
    layout: Layout,
    schema: &SchemaRef,
    path: &str,
    partition: &Struct,
    vector: frazil_core::delete::DeletionVector,
) -> LaidOut {
    LaidOut {
        layout,
        schema: Arc::clone(schema),
        deletes: FileDeletes {
            data_file: path.to_owned(),
            spec_id: layout.spec_id,
            partition: partition.clone(),
            vector,
        },
    }
}

fn nowhere() -> SinkError {
    SinkError::internal("a file that a commit deletes rows of is not known")
}
