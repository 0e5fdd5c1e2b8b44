//! Commits to tables with changes: what the changes of the segments delete is found on the very
//! snapshot that the commit builds on, by the index that the committer keeps.
//!
//! ```text
//!  base ─► follow ─► locate ─► load deletes ─► resolve ─► write deletes ─► replace entries ─► list
//!            ▲       (key runs of the segments)                                              │
//!            └────────── conflict: the same segments on the snapshot that won ◄──────────────┘
//! ```
//!
//! An attempt that is not applied leaves the index as it was, and files that nobody lists. Whether one
//! was applied is read from the table like everything else: the change of the index waits until a
//! table shows its snapshot ([`Changes::settle`]).

mod deletes;
mod segments;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use frazil_core::change::window::KnownOrders;
use frazil_core::commit::plan::Base;
use frazil_core::commit::summary::FileChanges;
use frazil_core::commit::validate::RejectReason;
use frazil_core::config::TableConfig;
use frazil_core::control::segment::Segment;
use frazil_core::index::changed::Pending;
use frazil_core::index::orders::Orders;
use frazil_core::index::resolve::Counts;
use frazil_core::layout::identifier::key_plan;
use frazil_core::limits::{ORDER_WINDOW_BYTES_MAX, ORDER_WINDOW_MS};
use frazil_core::memory::Use;
use frazil_core::{ErrorKind, Result, SinkError};
use iceberg::spec::{ManifestFile, TableMetadata};
use uuid::Uuid;

use super::now_ms;
use super::replace::ENTRIES_GONE;
use crate::catalog::LoadedTable;
use crate::delete::KnownDeletes;
use crate::index::Tracked;
use crate::memory::Memory;
pub(super) use segments::SegmentChanges;

/// What the configuration says of a table with changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedTable {
    /// The columns of the key; the table's identifier fields when there are none.
    pub id_columns: Vec<String>,
    /// Whether these are found in any case.
    pub case_insensitive: bool,
}

impl ChangedTable {
    /// Takes what concerns commits from the configuration of a table; `None` when it is appended to.
    pub fn of(config: &TableConfig) -> Option<Self> {
        config.changes.as_ref()?;
        Some(ChangedTable {
            id_columns: config.id_columns.clone(),
            case_insensitive: config.case_insensitive,
        })
    }
}

/// What a committer of a table with changes keeps from one commit to the next.
#[derive(Debug)]
pub(super) struct Changes {
    table: ChangedTable,
    memory: Arc<Memory>,
    held: tokio::sync::Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    tracked: Option<Tracked>,
    /// What the last attempt changes, until it is known whether it was applied.
    pending: Option<Written>,
    /// The orders of the last changes of keys.
    orders: Orders,
}

/// What an attempt changes once it is applied.
#[derive(Debug)]
struct Written {
    pending: Pending,
    /// The deleted rows of data files as the attempt has written them.
    deletes: Vec<(Arc<str>, KnownDeletes)>,
}

/// One attempt.
pub(super) struct ChangedAttempt<'a> {
    pub(super) loaded: &'a LoadedTable,
    pub(super) base: &'a Base,
    pub(super) wid: &'a str,
    pub(super) branch: &'a str,
    pub(super) commit_id: Uuid,
    pub(super) snapshot_id: i64,
    /// The segments with their indexes among all of the call.
    pub(super) segments: &'a [(usize, &'a Segment)],
}

/// The manifests of an attempt.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) new: Vec<ManifestFile>,
    pub(super) old: Vec<ManifestFile>,
    pub(super) files: FileChanges,
}

/// Why an attempt could not be built.
#[derive(Debug)]
pub(super) enum Unbuilt {
    Failed(SinkError),
    /// The files of the segment of this index are of no use.
    Unusable(usize, RejectReason),
}

impl From<SinkError> for Unbuilt {
    fn from(error: SinkError) -> Self {
        Unbuilt::Failed(error)
    }
}

impl Changes {
    pub(super) fn new(table: ChangedTable, memory: Arc<Memory>) -> Self {
        Changes {
            table,
            memory,
            held: tokio::sync::Mutex::new(Held {
                tracked: None,
                pending: None,
                orders: Orders::new(ORDER_WINDOW_MS, ORDER_WINDOW_BYTES_MAX),
            }),
        }
    }

    /// Builds an attempt on a snapshot with the manifests `old`. What is read of the segments stays in
    /// `read` for the next attempt.
    pub(super) async fn build(
        &self,
        attempt: &ChangedAttempt<'_>,
        old: Vec<ManifestFile>,
        read: &mut BTreeMap<usize, SegmentChanges>,
    ) -> Result<Built, Unbuilt> {
        let metadata = &attempt.loaded.metadata;
        let mut held = self.held.lock().await;
        held.settle(metadata, attempt.wid, attempt.branch)?;
        // Whatever ends this half-way takes the index with it: it is built anew from the table.
        let mut tracked = self.follow(&mut held, attempt, &old).await?;
        let (writer, keys) = ((attempt.wid, attempt.branch), tracked.keys().clone());
        held.orders.follow(metadata, writer, keys, now_ms())?;
        let made = self
            .resolve(&mut tracked, held.orders.known(), attempt, old, read)
            .await;
        // Where the table does not have what is known of it, all of it is read anew.
        let is_wrong = |error: &Unbuilt| matches!(error, Unbuilt::Failed(error) if error.code() == ENTRIES_GONE);
        if !made.as_ref().is_err_and(is_wrong) {
            held.tracked = Some(tracked);
        }
        let (built, mut pending) = made?;
        let counts = &mut pending.pending.counts;
        counts.count_emptied(&built.files);
        held.pending = Some(pending);
        Ok(built)
    }

    /// Takes the index, true to the snapshot that the attempt builds on.
    async fn follow(
        &self,
        held: &mut Held,
        attempt: &ChangedAttempt<'_>,
        old: &[ManifestFile],
    ) -> Result<Tracked> {
        let LoadedTable {
            metadata, storage, ..
        } = attempt.loaded;
        let ChangedTable {
            id_columns,
            case_insensitive,
        } = &self.table;
        let plan = key_plan(metadata.current_schema(), id_columns, *case_insensitive)?;
        let known = held.tracked.take();
        let head = attempt.base.parent_id();
        let known = known.filter(|known| known.fits(metadata, (attempt.branch, head), &plan));
        let mut tracked = known.unwrap_or_else(|| Tracked::new(metadata, plan, &self.memory));
        match tracked.follow(storage, old, head).await {
            Ok(()) => Ok(tracked),
            Err(error) => {
                if error.kind() == ErrorKind::Retriable && tracked.is_whole() {
                    held.tracked = Some(tracked);
                }
                Err(error)
            }
        }
    }

    async fn resolve(
        &self,
        tracked: &mut Tracked,
        orders: &KnownOrders,
        attempt: &ChangedAttempt<'_>,
        old: Vec<ManifestFile>,
        read: &mut BTreeMap<usize, SegmentChanges>,
    ) -> Result<(Built, Written), Unbuilt> {
        let changes = attempt
            .segments
            .iter()
            .map(|(_, segment)| segment.changes());
        let bytes = segments::CHANGE_BYTES * changes.sum::<u64>();
        let _held = self.memory.draw(Use::Commits, bytes);
        segments::read(tracked, attempt, read).await?;
        let parts: Vec<&SegmentChanges> = attempt
            .segments
            .iter()
            .filter_map(|(index, _)| read.get(index))
            .collect();
        deletes::build(tracked, orders, attempt, old, &parts).await
    }

    /// Takes in what the table shows of the last attempt.
    pub(super) async fn settle(&self, metadata: &Arc<TableMetadata>, wid: &str, branch: &str) {
        let mut held = self.held.lock().await;
        if let Err(error) = held.settle(metadata, wid, branch) {
            tracing::warn!(location = metadata.location(), reason = %error.report(),
                "the index of the table is built anew with its next commit");
        }
    }

    /// Lets the index go: another process commits from now on.
    pub(super) fn let_go(&self) {
        // A commit that is under way follows the table anyway.
        if let Ok(mut held) = self.held.try_lock() {
            held.tracked = None;
            held.pending = None;
        }
    }
}

impl Held {
    /// Applies the last attempt if the table has it, and forgets it otherwise: the index stays as it was, and
    /// what came of the attempt is read from the table's files.
    fn settle(&mut self, metadata: &Arc<TableMetadata>, wid: &str, branch: &str) -> Result<()> {
        let Some(Written { pending, deletes }) = self.pending.take() else {
            return Ok(());
        };
        let is_there = pending.settle(metadata, (wid, branch), &mut self.orders, now_ms())?;
        let tracked = self.tracked.take_if(|_| is_there);
        let Some(mut tracked) = tracked else {
            return Ok(());
        };
        let Counts {
            inserted,
            updated,
            deleted,
            missing,
            superseded,
            stale,
            emptied,
            emptied_rows,
        } = pending.counts;
        tracing::info!(
            location = metadata.location(),
            snapshot_id = pending.snapshot_id,
            inserted,
            updated,
            deleted,
            missing,
            superseded,
            stale,
            "changes applied"
        );
        if emptied {
            tracing::info!(
                location = metadata.location(),
                snapshot_id = pending.snapshot_id,
                rows = emptied_rows,
                "a truncation of the source's table removed rows"
            );
        }
        tracked.apply(pending.delta, deletes, pending.snapshot_id)?;
        self.tracked = Some(tracked);
        Ok(())
    }
}

/// A manifest that was written, and its bytes.
struct WrittenManifest {
    manifest: ManifestFile,
    bytes: Bytes,
}
