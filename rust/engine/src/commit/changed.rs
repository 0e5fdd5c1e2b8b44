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
//! table shows its snapshot ([`Changes::settle`]). What others committed is followed by difference; the
//! index is built anew only when the table does not descend from what was followed ([`IndexCounts`]).

mod aligned;
mod complete;
mod deletes;
mod segments;
mod sources;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use frazil_core::change::AbsentPolicy;
use frazil_core::change::window::KnownOrders;
use frazil_core::commit::plan::Base;
use frazil_core::commit::summary::FileChanges;
use frazil_core::commit::validate::RejectReason;
use frazil_core::config::TableConfig;
use frazil_core::control::segment::Segment;
use frazil_core::index::changed::Pending;
use frazil_core::index::orders::Orders;
use frazil_core::index::resolve::Counts;
use frazil_core::index::table::INDEX_TOO_LARGE;
use frazil_core::layout::identifier::key_plan;
use frazil_core::limits::{COMMIT_CHANGES_MAX, ORDER_WINDOW_BYTES_MAX, ORDER_WINDOW_MS};
use frazil_core::memory::Use;
use frazil_core::metrics::TableMetric;
use frazil_core::{Result, SinkError};
use iceberg::spec::{ManifestFile, TableMetadata};
use uuid::Uuid;

use super::now_ms;
use super::replace::ENTRIES_GONE;
use crate::catalog::LoadedTable;
use crate::delete::KnownDeletes;
use crate::index::{ROW_MISSING, Tracked};
use crate::memory::{Draw, Memory};
use crate::metrics::TableMetrics;
use crate::runtime::compute;

use complete::Completed;
use segments::SegmentChanges;

/// What the attempts of one call keep of one another.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// What was read of segments, by their indexes.
    segments: BTreeMap<usize, SegmentChanges>,
    /// The rows that lacked values, as the last attempt made them.
    completed: Option<Completed>,
}

/// Memory of one change while its commit is made, about: as it is stored, where its row is, its order, and
/// the row that it deletes.
const CHANGE_BYTES: u64 = 160;
/// The same where rows may lack values: the changes of their keys, the rows below them, and where they lie.
const LACKING_BYTES: u64 = 480;
/// Changes that a commit may have, whatever else is in memory.
const CHANGES_MIN: u64 = if cfg!(test) { 100 } else { 16 << 10 };

/// What the configuration says of a table with changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedTable {
    /// The columns of the key; the table's identifier fields when there are none.
    pub id_columns: Vec<String>,
    /// Whether these are found in any case.
    pub case_insensitive: bool,
    /// What becomes of values that no row has.
    pub absent: AbsentPolicy,
    /// Whether there may be rows that lack values.
    pub may_lack: bool,
    /// What the configuration says of how files are written.
    pub write_props: BTreeMap<String, String>,
}

impl ChangedTable {
    /// Takes what concerns commits from the configuration of a table; `None` when it is appended to.
    pub fn of(config: &TableConfig) -> Option<Self> {
        let changes = config.changes.as_ref()?;
        let unavailable = changes.unavailable.as_ref();
        Some(ChangedTable {
            absent: unavailable.map_or(AbsentPolicy::default(), |one| one.absent),
            may_lack: unavailable.is_some() || changes.soft_delete.is_some(),
            write_props: config.write_props.clone(),
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
    metrics: Arc<TableMetrics>,
    held: tokio::sync::Mutex<Held>,
    /// Whether another process commits now.
    is_elsewhere: AtomicBool,
}

/// What became of the index so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct IndexCounts {
    /// How often it was begun with nothing.
    pub(crate) built: u64,
    /// Data files whose keys were read.
    pub(crate) files_read: u64,
    /// Commits of this process that it was told of.
    pub(crate) applied: u64,
}

#[derive(Debug)]
struct Held {
    tracked: Option<Tracked>,
    /// What the last attempt changes, until it is known whether it was applied.
    pending: Option<Written>,
    /// The orders of the last changes of keys.
    orders: Orders,
    /// What these take.
    orders_held: Draw,
    metrics: Arc<TableMetrics>,
    counts: IndexCounts,
}

/// What an attempt changes once it is applied.
#[derive(Debug)]
struct Written {
    pending: Pending,
    /// The deleted rows of data files as the attempt has written them.
    deletes: Vec<(Arc<str>, KnownDeletes)>,
    /// What all of that takes.
    _held: Draw,
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
    pub(super) fn new(
        table: ChangedTable,
        memory: Arc<Memory>,
        metrics: Arc<TableMetrics>,
    ) -> Self {
        Changes {
            table,
            memory: Arc::clone(&memory),
            metrics: Arc::clone(&metrics),
            held: tokio::sync::Mutex::new(Held {
                tracked: None,
                pending: None,
                orders: Orders::new(ORDER_WINDOW_MS, ORDER_WINDOW_BYTES_MAX),
                orders_held: memory.draw(Use::KeyIndex, 0),
                metrics,
                counts: IndexCounts::default(),
            }),
            is_elsewhere: AtomicBool::new(false),
        }
    }

    /// Brings the index to the snapshot that an attempt builds on, which has the manifests `old`. A first time
    /// it takes minutes, for which nobody should wait who has a turn with the catalog.
    pub(super) async fn prepare(
        &self,
        attempt: &ChangedAttempt<'_>,
        old: &[ManifestFile],
    ) -> Result<()> {
        let mut held = self.held.lock().await;
        let (wid, branch) = (attempt.wid, attempt.branch);
        compute(|| held.settle(&attempt.loaded.metadata, wid, branch)).await?;
        let tracked = self.follow(&mut held, attempt, old).await?;
        self.keep(&mut held, tracked);
        Ok(())
    }

    /// Keeps the index for the next attempt, unless another process commits from now on.
    fn keep(&self, held: &mut Held, tracked: Tracked) {
        if !self.is_elsewhere.load(Ordering::Relaxed) {
            held.tracked = Some(tracked);
        }
    }

    /// Builds an attempt on a snapshot with the manifests `old`. What is read of the segments stays in
    /// `read` for the next attempt, and the rows that were made.
    pub(super) async fn build(
        &self,
        attempt: &ChangedAttempt<'_>,
        old: Vec<ManifestFile>,
        read: &mut Read,
    ) -> Result<Built, Unbuilt> {
        let metadata = &attempt.loaded.metadata;
        let mut held = self.held.lock().await;
        compute(|| held.settle(metadata, attempt.wid, attempt.branch)).await?;
        // Whatever ends this half-way takes the index with it: it is built anew from the table.
        let mut tracked = self.follow(&mut held, attempt, &old).await?;
        let writer = (attempt.wid, attempt.branch, attempt.base.parent_id());
        let keys = tracked.keys().clone();
        held.orders.follow(metadata, writer, keys, now_ms())?;
        held.count_orders();
        let made = self
            .resolve(&mut tracked, held.orders.known(), attempt, old, read)
            .await;
        // Where the table does not have what is known of it, all of it is read anew.
        // And one that is too large gives its memory back.
        let is_wrong = |error: &Unbuilt| match error {
            Unbuilt::Failed(error) => {
                [ENTRIES_GONE, ROW_MISSING, INDEX_TOO_LARGE].contains(&error.code())
            }
            Unbuilt::Unusable(..) => false,
        };
        if !made.as_ref().is_err_and(is_wrong) {
            self.keep(&mut held, tracked);
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
            ..
        } = &self.table;
        let plan = key_plan(metadata.current_schema(), id_columns, *case_insensitive)?;
        let head = attempt.base.parent_id();
        let (known, unfit) = match held.tracked.take() {
            Some(known) => {
                let unfit = known.unfit(metadata, (attempt.branch, head), &plan);
                (Some(known).filter(|_| unfit.is_none()), unfit)
            }
            None => (None, Some("there is none")),
        };
        let mut tracked = known.unwrap_or_else(|| {
            held.counts.built += 1;
            self.metrics.add(TableMetric::IndexBuilds, 1);
            tracing::info!(
                location = metadata.location(),
                reason = unfit,
                "the primary-key index is built from the table's files"
            );
            Tracked::new(metadata, plan, &self.memory)
        });
        let read = &mut held.counts.files_read;
        match tracked.follow(storage, old, head, read).await {
            Ok(()) => {
                note_index(&self.metrics, &tracked);
                Ok(tracked)
            }
            Err(error) => {
                // One without room gives its memory back.
                if tracked.is_whole() && error.code() != INDEX_TOO_LARGE {
                    self.keep(held, tracked);
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
        read: &mut Read,
    ) -> Result<(Built, Written), Unbuilt> {
        let Read {
            segments,
            completed,
        } = read;
        segments::read(tracked, attempt, &self.memory, segments).await?;
        let parts: Vec<&SegmentChanges> = attempt
            .segments
            .iter()
            .filter_map(|(index, _)| segments.get(index))
            .collect();
        let held = self.memory.draw(Use::Commits, 0);
        let made_for = (&self.table, &self.memory);
        deletes::build(
            made_for,
            (tracked, orders),
            attempt,
            old,
            (&parts, completed),
            held,
        )
        .await
    }

    /// Takes in what the table shows of the last attempt.
    pub(super) async fn settle(&self, metadata: &Arc<TableMetadata>, wid: &str, branch: &str) {
        let mut held = self.held.lock().await;
        if let Err(error) = compute(|| held.settle(metadata, wid, branch)).await {
            tracing::warn!(location = metadata.location(), reason = %error.report(),
                "the index of the table is built anew with its next commit");
        }
    }

    /// Returns how many changes one commit may have: what half of the free memory is enough for.
    pub(super) fn changes_max(&self) -> u64 {
        let each = match self.table.may_lack {
            true => LACKING_BYTES,
            false => CHANGE_BYTES,
        };
        let enough = self.memory.room() / 2 / each;
        enough.clamp(CHANGES_MIN, COMMIT_CHANGES_MAX)
    }

    /// Returns what became of the index so far.
    #[cfg(test)]
    pub(super) async fn index_counts(&self) -> IndexCounts {
        self.held.lock().await.counts
    }

    /// This process commits from now on.
    pub(super) fn take_over(&self) {
        self.is_elsewhere.store(false, Ordering::Relaxed);
    }

    /// Lets the index go: another process commits from now on.
    pub(super) fn let_go(&self) {
        self.is_elsewhere.store(true, Ordering::Relaxed);
        // A commit that is under way lets it go when it ends.
        if let Ok(mut held) = self.held.try_lock() {
            held.let_go();
        }
    }

    /// A commit has ended: lets go what it put back while another process took over.
    pub(super) async fn ended(&self) {
        if self.is_elsewhere.load(Ordering::Relaxed) {
            self.held.lock().await.let_go();
        }
    }
}

impl Held {
    fn let_go(&mut self) {
        self.tracked = None;
        self.pending = None;
    }

    /// Counts the memory that the orders take now.
    fn count_orders(&mut self) {
        self.orders_held.resize(self.orders.memory_bytes() as u64);
    }

    /// Applies the last attempt if the table has it, and forgets it otherwise: the index stays what it was,
    /// and what came of the attempt all the same is read from the table's files.
    fn settle(&mut self, metadata: &Arc<TableMetadata>, wid: &str, branch: &str) -> Result<()> {
        let Some(Written {
            mut pending,
            deletes,
            _held,
        }) = self.pending.take()
        else {
            return Ok(());
        };
        let is_there = pending.settle(metadata, (wid, branch), &mut self.orders, now_ms())?;
        self.count_orders();
        if !is_there {
            return Ok(());
        }
        let Some(mut tracked) = self.tracked.take() else {
            return Ok(());
        };
        tell(&self.metrics, metadata, &pending);
        tracked.apply(pending.delta, deletes, pending.snapshot_id)?;
        note_index(&self.metrics, &tracked);
        self.counts.applied += 1;
        self.tracked = Some(tracked);
        Ok(())
    }
}

/// Counts and logs what a commit has changed.
fn tell(metrics: &TableMetrics, metadata: &TableMetadata, pending: &Pending) {
    let Counts {
        inserted,
        updated,
        deleted,
        missing,
        superseded,
        stale,
        emptied,
        emptied_rows,
        completed,
        nulled,
    } = pending.counts;
    for (metric, count) in [
        (TableMetric::Inserted, inserted),
        (TableMetric::Updated, updated),
        (TableMetric::Deleted, deleted),
        (TableMetric::Missing, missing),
        (TableMetric::Superseded, superseded),
        (TableMetric::Stale, stale),
        (TableMetric::Truncated, emptied_rows),
    ] {
        metrics.add(metric, count);
    }
    tracing::info!(
        location = metadata.location(),
        snapshot_id = pending.snapshot_id,
        inserted,
        updated,
        deleted,
        missing,
        superseded,
        stale,
        completed,
        "changes applied"
    );
    if nulled > 0 {
        tracing::warn!(
            location = metadata.location(),
            snapshot_id = pending.snapshot_id,
            values = nulled,
            "values that the source left out are in no row of the table and became null"
        );
    }
    if emptied {
        tracing::info!(
            location = metadata.location(),
            snapshot_id = pending.snapshot_id,
            rows = emptied_rows,
            "a truncation of the source's table removed rows"
        );
    }
}

fn note_index(metrics: &TableMetrics, tracked: &Tracked) {
    let values = metrics.values();
    values.set_count(TableMetric::IndexKeys, tracked.index().entries() as u64);
    values.set_count(
        TableMetric::IndexBytes,
        tracked.index().memory().heap as u64,
    );
}

/// A manifest that was written, and its bytes.
struct WrittenManifest {
    manifest: ManifestFile,
    bytes: Bytes,
}
