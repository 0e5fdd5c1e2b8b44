//! The committer of one table and branch: what callers hold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frazil_core::Result;
use frazil_core::commit::action::{CommitLimits, RollbackPolicy};
use frazil_core::commit::attempt::Remembered;
use frazil_core::commit::location::StateLocation;
use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::commit::owner::OwnerWatch;
use frazil_core::commit::plan::{self, CommitIdentity};
use frazil_core::commit::recover::state_of;
use frazil_core::commit::remembered::Trust;
use frazil_core::commit::state::WriterState;
use frazil_core::control::segment::Segment;
use frazil_core::limits::{REMEMBERED_FOR, STATE_BYTES_MAX};
use iceberg::TableIdent;
use uuid::Uuid;

use super::changed::{ChangedTable, Changes};
use super::kept::{KeptList, Lists, Seen, Sight};
use super::looks::Looks;
use super::merge::MergePause;
use super::run::Run;
use super::wait::Cancel;
use crate::catalog::{Catalog, LoadedTable};
use crate::failpoint;
use crate::memory::Memory;
use crate::metrics::TableMetrics;

/// Attempts in a row of a commit of changes that cannot be built, such as when the files of the table
/// contradict its manifests, before it counts as refused: a few minutes.
const UNBUILT_MAX: u32 = 8;

/// How long and how often the loop tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSettings {
    /// Lost races in one call before it gives up for now.
    pub conflicts_max: u32,
    /// The first pause after a lost race.
    pub conflict_pause_min: Duration,
    /// The longest pause after a lost race.
    pub conflict_pause_max: Duration,
    /// The first pause when the catalog or the storage gave no clear answer.
    pub unknown_pause_min: Duration,
    /// The longest pause when the catalog or the storage gave no clear answer.
    pub unknown_pause_max: Duration,
    /// Whether the table may have one committer only. Appends may have several.
    pub one_owner: bool,
    /// What to do when the branch was rolled back behind the writer's last commit.
    pub rollback: RollbackPolicy,
    /// Where the writer's state is kept.
    pub state_location: StateLocation,
}

impl Default for CommitSettings {
    fn default() -> Self {
        let limits = CommitLimits::default();
        CommitSettings {
            conflicts_max: limits.conflicts_max,
            conflict_pause_min: Duration::from_millis(limits.conflict_pause_min_ms),
            conflict_pause_max: Duration::from_millis(limits.conflict_pause_max_ms),
            unknown_pause_min: Duration::from_millis(limits.unknown_pause_min_ms),
            unknown_pause_max: Duration::from_millis(limits.unknown_pause_max_ms),
            one_owner: limits.one_owner,
            rollback: limits.rollback,
            state_location: limits.state_location,
        }
    }
}

impl CommitSettings {
    pub(super) fn limits(&self) -> CommitLimits {
        let limits = CommitLimits::default();
        let ms = |pause: Duration| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        CommitLimits {
            conflicts_max: self.conflicts_max,
            conflict_pause_min_ms: ms(self.conflict_pause_min),
            conflict_pause_max_ms: ms(self.conflict_pause_max),
            unknown_pause_min_ms: ms(self.unknown_pause_min),
            unknown_pause_max_ms: ms(self.unknown_pause_max),
            unbuilt_max: None,
            changes_max: limits.changes_max,
            one_owner: self.one_owner,
            rollback: self.rollback,
            state_location: self.state_location,
        }
    }
}

/// Commits the segments of one writer to one branch of one table.
#[derive(Debug)]
pub struct TableCommitter {
    pub(super) catalog: Arc<dyn Catalog>,
    pub(super) ident: TableIdent,
    pub(super) identity: CommitIdentity,
    pub(super) settings: CommitSettings,
    pub(super) cancel: Cancel,
    pub(super) looks: Looks,
    pub(super) merge_pause: MergePause,
    /// What its merges draw from.
    pub(super) memory: Arc<Memory>,
    pub(super) metrics: Arc<TableMetrics>,
    /// The manifest list of the last commit.
    pub(super) list: KeptList,
    /// Manifests that need not be looked for.
    pub(super) seen: Seen,
    /// One commit at a time: two of one process would only race each other.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// The table as it was seen last.
    latest: std::sync::Mutex<Option<LoadedTable>>,
    /// When this process's own commit left it like that; `None` when it was only loaded.
    committed_at: std::sync::Mutex<Option<Instant>>,
    /// Whether a commit may begin with that.
    trust: std::sync::Mutex<Trust>,
    /// What a table with changes needs; `None` for one that is appended to.
    pub(super) changes: Option<Changes>,
    /// What was seen of other processes since this one owns the table.
    watch: std::sync::Mutex<OwnerWatch>,
}

impl TableCommitter {
    /// Creates a committer of writer `wid` for `branch` of the table `ident`.
    pub fn new(
        catalog: Arc<dyn Catalog>,
        ident: TableIdent,
        branch: impl Into<String>,
        wid: impl Into<String>,
        connector: impl Into<String>,
    ) -> Self {
        TableCommitter {
            catalog,
            ident,
            identity: CommitIdentity {
                wid: wid.into(),
                connector: connector.into(),
                hub_id: String::new(),
                branch: branch.into(),
                state_bytes_max: STATE_BYTES_MAX,
            },
            settings: CommitSettings::default(),
            cancel: Cancel::default(),
            looks: Looks::default(),
            merge_pause: MergePause::default(),
            memory: Memory::of_process(),
            metrics: TableMetrics::detached(),
            list: Lists::default().of_a_table(),
            seen: Seen::default(),
            turn: tokio::sync::Mutex::new(()),
            latest: std::sync::Mutex::default(),
            committed_at: std::sync::Mutex::default(),
            trust: std::sync::Mutex::default(),
            changes: None,
            watch: std::sync::Mutex::default(),
        }
    }

    /// Makes it the committer of a table with changes, whose index draws from `memory`. It is the only
    /// one of its writer: another process that commits too is an error.
    #[must_use]
    pub fn with_changes(mut self, table: ChangedTable, memory: Arc<Memory>) -> Self {
        let metrics = Arc::clone(&self.metrics);
        self.changes = Some(Changes::new(table, memory, metrics));
        self
    }

    /// Tells whether records change the table's rows.
    pub(crate) fn has_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// Counts what it does there. To be called before [`with_changes`](Self::with_changes).
    #[must_use]
    pub(crate) fn with_metrics(mut self, metrics: Arc<TableMetrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Returns where it counts.
    pub(crate) fn metrics(&self) -> &Arc<TableMetrics> {
        &self.metrics
    }

    /// Sets the id of the process, which each commit leaves in the table.
    #[must_use]
    pub fn with_hub_id(mut self, hub_id: impl Into<String>) -> Self {
        self.identity.hub_id = hub_id.into();
        self
    }

    /// Sets the longest property that may hold the state.
    #[must_use]
    pub fn with_state_bytes_max(mut self, bytes: usize) -> Self {
        self.identity.state_bytes_max = bytes;
        self
    }

    /// Sets what to do when the branch was rolled back behind the writer's last commit.
    #[must_use]
    pub fn with_rollback(mut self, policy: RollbackPolicy) -> Self {
        self.settings.rollback = policy;
        self
    }

    /// Sets where the writer's state is kept.
    #[must_use]
    pub fn with_state_location(mut self, location: StateLocation) -> Self {
        self.settings.state_location = location;
        self
    }

    /// Sets what ends the waiting of this committer.
    #[must_use]
    pub fn with_cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }

    /// Lets the tables of a process share the turns to look at manifests.
    #[must_use]
    pub(crate) fn with_looks(mut self, looks: Looks) -> Self {
        self.looks = looks;
        self
    }

    /// Lets the tables of a process share the room for their manifest lists.
    #[must_use]
    pub(crate) fn with_lists(mut self, lists: &Lists) -> Self {
        self.list = lists.of_a_table();
        self
    }

    /// Takes in what this process knows of the segment `seq` of `session`, for it has written or
    /// read its manifests, and commits it. Nothing depends on it but what a commit asks catalog and
    /// storage for.
    pub fn saw(&self, session: Uuid, seq: u64, sight: Sight) {
        self.seen.add(session, seq, sight);
    }

    /// Forgets what is known of the segments of `session`, which has ended.
    pub(crate) fn forget(&self, session: Uuid) {
        self.seen.forget(session);
    }

    /// Forgets what is known of all segments: another process commits them.
    pub(crate) fn forget_all(&self) {
        self.seen.clear();
    }

    /// Returns the number of segments of which something is known.
    #[cfg(test)]
    pub(crate) fn known_segments(&self) -> usize {
        self.seen.len()
    }

    /// Returns the turns to look at manifests of this table.
    pub(crate) fn looks(&self) -> &Looks {
        &self.looks
    }

    /// Returns what became of the index of a table with changes so far.
    #[cfg(test)]
    pub(super) async fn index_counts(&self) -> super::changed::IndexCounts {
        match &self.changes {
            Some(changes) => changes.index_counts().await,
            None => super::changed::IndexCounts::default(),
        }
    }

    /// Gives it another pool of memory than the process's.
    #[cfg(test)]
    #[must_use]
    pub(super) fn with_memory(mut self, memory: Arc<Memory>) -> Self {
        self.memory = memory;
        self
    }

    /// Sets how long and how often the loop tries.
    #[must_use]
    pub fn with_settings(mut self, settings: CommitSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Returns the table.
    pub fn ident(&self) -> &TableIdent {
        &self.ident
    }

    /// Returns the table as the last commit left it or found it; `None` before the first.
    pub fn latest(&self) -> Option<LoadedTable> {
        lock(&self.latest).clone()
    }

    pub(super) fn remember(&self, table: &LoadedTable) {
        *lock(&self.latest) = Some(table.clone());
        *lock(&self.committed_at) = None;
    }

    /// The remembered table is what the commit of this process has just made of it.
    pub(super) fn committed(&self) {
        *lock(&self.committed_at) = Some(Instant::now());
    }

    /// Returns the table that a commit of `segments` may begin with in place of loading it: as the
    /// last commit of this process left it, a short while ago. It must have a schema as new as that
    /// of the files, for nothing else would be a commit of the newer one.
    pub(super) fn remembered(&self, segments: &[Segment]) -> Option<LoadedTable> {
        let committed_at = *lock(&self.committed_at);
        committed_at.filter(|at| at.elapsed() < REMEMBERED_FOR)?;
        let latest = self
            .latest()
            .filter(|_| lock(&self.trust).begins_with_it())?;
        let current = latest.metadata.current_schema_id();
        let schema = |segment: &Segment| self.seen.schema(segment.session, segment.seq);
        let known = |segment: &Segment| schema(segment).is_some_and(|schema| schema <= current);
        if !segments.iter().all(known) {
            return None;
        }
        // It stands in for the load.
        failpoint::pass("commit.after-load").ok()?;
        Some(latest)
    }

    /// Takes in what the remembered table turned out to be.
    pub(super) fn learn(&self, was: Option<Remembered>) {
        lock(&self.trust).learn(was);
    }

    /// Begins a new term as the owner of the table: what other processes committed before it is
    /// history. To be called when this process becomes the committer once more.
    pub fn begin_term(&self) {
        *lock(&self.watch) = OwnerWatch::default();
        // Others have changed the table since.
        lock(&self.trust).learn(Some(Remembered::Stale));
        if let Some(changes) = &self.changes {
            changes.take_over();
        }
    }

    /// Ends the term: another process commits from now on, and keeps an index of its own.
    pub fn end_term(&self) {
        if let Some(changes) = &self.changes {
            changes.let_go();
        }
    }

    pub(super) fn limits(&self) -> CommitLimits {
        let mut limits = self.settings.limits();
        if let Some(changes) = &self.changes {
            limits.changes_max = changes.changes_max();
            limits.one_owner = true;
            limits.unbuilt_max = Some(UNBUILT_MAX);
        }
        limits
    }

    pub(super) fn watch(&self) -> OwnerWatch {
        lock(&self.watch).clone()
    }

    pub(super) fn keep_watch(&self, watch: OwnerWatch) {
        *lock(&self.watch) = watch;
    }

    /// Returns the writer's id.
    pub(crate) fn wid(&self) -> &str {
        &self.identity.wid
    }

    /// Returns what ends its waiting.
    pub(crate) fn cancel_token(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Tells whether its waiting has ended.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Does `work` until its waiting ends; `None` then.
    pub(crate) async fn cancel_or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.cancel.or(work).await
    }

    /// Returns the branch.
    pub fn branch(&self) -> &str {
        &self.identity.branch
    }

    /// Loads the table and returns it with the writer's state of the branch: where T comes from.
    pub async fn load(&self) -> Result<(LoadedTable, Option<WriterState>)> {
        let loaded = self.catalog.load_table(&self.ident).await?;
        plan::check_table(&loaded.metadata)?;
        let state = state_of(&loaded.metadata, &self.identity.wid, &self.identity.branch)?;
        Ok((loaded, state))
    }

    /// Commits `segments` and says of each, by its index, what became of it. Waits through failures
    /// of catalog and storage that may pass, until it is cancelled.
    pub async fn commit(&self, segments: Vec<Segment>) -> Vec<(usize, SegmentOutcome)> {
        let _turn = self.turn.lock().await;
        Run::new(self, segments).outcomes().await
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
