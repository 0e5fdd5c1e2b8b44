//! What happens to a sealed segment off the task's thread: uploads end, manifests are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use frazil_core::Result;
use frazil_core::control::message::Ranges;
use frazil_core::control::segment::Segment;
use frazil_core::control::writer::Sealed;
use iceberg::spec::DataFile;
use uuid::Uuid;

use crate::catalog::LoadedTable;
use crate::commit::{Layout, ManifestIdentity, write_manifest};
use crate::failpoint;
use crate::writer::SealedFiles;

/// Files of one schema and partition spec.
#[derive(Debug)]
pub(super) struct ClosedFiles {
    pub(super) layout: Layout,
    pub(super) files: SealedFiles,
}

/// What remains to be done for a sealed segment, off the task's thread.
pub(super) struct SealWork {
    pub(super) files: Vec<ClosedFiles>,
    pub(super) loaded: LoadedTable,
    pub(super) wid: String,
    pub(super) branch: String,
    pub(super) topic_ids: BTreeMap<Arc<str>, Uuid>,
    pub(super) rows: u64,
    pub(super) epoch: u64,
    pub(super) sealed: Sealed,
}

impl SealWork {
    pub(super) async fn run(self) -> Result<Segment> {
        failpoint::pass("task.after-seal")?;
        let mut by_layout: BTreeMap<Layout, Vec<DataFile>> = BTreeMap::new();
        for files in self.files {
            let data_files = files.files.wait().await?;
            by_layout
                .entry(files.layout)
                .or_default()
                .extend(data_files);
        }
        let bytes = by_layout
            .values()
            .flatten()
            .map(DataFile::file_size_in_bytes)
            .sum();
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
            rows: self.rows,
            bytes,
        };
        for (layout, files) in by_layout {
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
        Ok(segment)
    }
}
