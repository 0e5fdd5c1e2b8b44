//! What happens to a sealed segment off the task's thread: uploads end, manifests are written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use frazil_core::Result;
use frazil_core::control::message::Ranges;
use frazil_core::control::segment::{KeyRunRef, Segment};
use frazil_core::control::writer::Sealed;
use iceberg::spec::DataFile;
use uuid::Uuid;

use super::changes::SealedChanges;
use crate::catalog::LoadedTable;
use crate::commit::{Layout, ManifestIdentity, Sight, write_manifest};
use crate::failpoint;
use crate::keyrun::{KeyRunIdentity, write_key_run};
use crate::storage::TableStorage;
use crate::writer::SealedFiles;

/// Topics whose partitions a segment tells: it has to fit into a message.
const TOPICS_COUNTED_MAX: usize = 256;

/// Files of one schema and partition spec.
#[derive(Debug)]
pub(super) struct ClosedFiles {
    pub(super) layout: Layout,
    pub(super) files: SealedFiles,
}

/// What remains to be done for a sealed segment, off the task's thread.
pub(super) struct SealWork {
    pub(super) files: Vec<ClosedFiles>,
    /// Its rows that the commit finishes.
    pub(super) pending: Vec<SealedFiles>,
    /// What its rows change, and where that goes.
    pub(super) changes: Option<(SealedChanges, String)>,
    pub(super) loaded: LoadedTable,
    pub(super) wid: String,
    pub(super) branch: String,
    pub(super) topic_ids: BTreeMap<Arc<str>, Uuid>,
    /// How many partitions source topics have, as far as it is known.
    pub(super) topic_partitions: BTreeMap<Arc<str>, u32>,
    pub(super) rows: u64,
    pub(super) epoch: u64,
    pub(super) sealed: Sealed,
}

impl SealWork {
    pub(super) async fn run(self) -> Result<(Segment, Sight)> {
        failpoint::pass("task.after-seal")?;
        let mut by_layout: BTreeMap<Layout, Vec<(DataFile, Vec<u32>)>> = BTreeMap::new();
        for files in self.files {
            let data_files = files.files.wait_numbered().await?;
            by_layout
                .entry(files.layout)
                .or_default()
                .extend(data_files);
        }
        let mut pending = Vec::new();
        for files in self.pending {
            pending.extend(files.wait_numbered().await?);
        }
        let all = by_layout.values().flatten().chain(&pending);
        let bytes = all.map(|(file, _)| file.file_size_in_bytes()).sum();
        failpoint::pass("seal.after-data-files")?;
        let mut segment = Segment {
            session: self.sealed.session,
            seq: self.sealed.sequence,
            first_unacked: self.sealed.first_unacked,
            epoch: self.epoch,
            table: self.loaded.ident.clone(),
            table_uuid: self.loaded.metadata.uuid(),
            branch: self.branch,
            ranges: self.sealed.ranges,
            watermarks: self.sealed.watermarks,
            topic_ids: self.topic_ids,
            manifests: Vec::with_capacity(by_layout.len()),
            key_run: None,
            rows: self.rows,
            bytes,
        };
        let layouts = by_layout.keys().map(|layout| layout.schema_id);
        let sight = Sight {
            at: Instant::now(),
            schema_id: layouts.max().unwrap_or_default(),
        };
        // In the order in which the entries of the manifests come to stand.
        let mut numbers = Vec::new();
        for (layout, files) in by_layout {
            let (files, of_files): (Vec<_>, Vec<_>) = files.into_iter().unzip();
            numbers.extend(of_files);
            let identity = ManifestIdentity {
                wid: self.wid.clone(),
                session: segment.session,
                seq: segment.seq,
                index: u32::try_from(segment.manifests.len()).unwrap_or(u32::MAX),
                ranges: Ranges::of(&segment),
            };
            let (storage, metadata) = (&self.loaded.storage, &self.loaded.metadata);
            let manifest = write_manifest(storage, metadata, layout, files, &identity).await?;
            segment.manifests.push(manifest);
        }
        failpoint::pass("seal.after-manifest")?;
        if let Some((mut changes, location)) = self.changes {
            let storage = &self.loaded.storage;
            changes.place(&numbers, &pending, &segment.ranges)?;
            let run = write_keys(storage, changes, &location, &segment, self.wid);
            let mut run = run.await?;
            run.topic_partitions = counted(self.topic_partitions, &segment);
            segment.key_run = Some(run);
        }
        Ok((segment, sight))
    }
}

/// Returns the partitions of the topics that `segment` has changes of. What is beyond the limit is told by
/// another segment.
fn counted(mut all: BTreeMap<Arc<str>, u32>, segment: &Segment) -> BTreeMap<Arc<str>, u32> {
    let ranges = segment.ranges_with_rows();
    let topics: BTreeSet<&Arc<str>> = ranges.map(|range| &range.partition.topic).collect();
    all.retain(|topic, _| topics.contains(topic));
    all.into_iter().take(TOPICS_COUNTED_MAX).collect()
}

/// Writes the keys of the changes of a segment.
async fn write_keys(
    storage: &TableStorage,
    mut changes: SealedChanges,
    location: &str,
    segment: &Segment,
    wid: String,
) -> Result<KeyRunRef> {
    let identity = KeyRunIdentity {
        table: segment.table_uuid,
        wid,
        session: segment.session,
        seq: segment.seq,
        form: changes.form,
        key: changes.key,
        ranges: Ranges::of(segment),
    };
    write_key_run(storage, location, &mut changes.run, &identity).await
}
