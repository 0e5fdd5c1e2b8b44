//! The commit hub: all tasks of a connector in this process hand their segments to one place, so
//! that each table gets one snapshot per interval, whatever the number of tasks.
//!
//! ```text
//!  session A ─┐ segment              ┌─ outcome ─► session A
//!  session B ─┼────────► table actor ┤
//!  session C ─┘   (queue, gather,    └─ outcome ─► session B …
//!                  commit, retry)
//! ```
//!
//! Sessions share a hub when they write as the same connector to the same catalog with the same
//! settings. Tables are independent: a slow or blocked one holds nothing of the others. The hub orders and
//! groups; whether a segment may be committed is decided by [`crate::commit`] on the table itself,
//! so that two hubs (two workers) are as safe as one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use frazil_core::SinkError;
use frazil_core::commit::action::RollbackPolicy;
use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::commit::validate::RejectReason;
use frazil_core::config::{CatalogConfig, SinkConfig};
use frazil_core::control::coordinator::{Offer, TableQueue};
use frazil_core::control::segment::Segment;
use iceberg::TableIdent;
use once_cell::sync::Lazy;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::catalog::{Catalog, LoadedTable};
use crate::commit::{Cancel, TableCommitter};
use crate::runtime::Runtime;

/// How long a table waits for the other tasks' segments of the same interval, at most.
const GATHER_MAX: Duration = Duration::from_millis(1_000);
/// Waits between attempts on a table that refuses commits.
const BLOCKED_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

static HUBS: Lazy<Mutex<BTreeMap<HubKey, Weak<Hub>>>> = Lazy::new(Mutex::default);

/// What became of a segment.
#[derive(Debug)]
pub enum Verdict {
    /// It is in a snapshot; the table as it was after that commit, when this hub made it.
    Durable(Option<Box<LoadedTable>>),
    /// It can never be committed: the session has to start over from its durable offsets.
    Rejected(String),
    /// The task must stop.
    Failed(SinkError),
}

/// The answer of the hub to a session.
#[derive(Debug)]
pub struct Outcome {
    /// The session that sealed the segment.
    pub session: Uuid,
    /// The table and branch, as the session registered it.
    pub table: TableKey,
    /// The segment's number.
    pub sequence: u64,
    /// What became of it.
    pub verdict: Verdict,
}

/// A table and the branch that is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableKey {
    /// `namespace.name`.
    pub ident: TableIdentKey,
    /// The branch.
    pub branch: String,
}

/// [`TableIdent`] with an order, so that it can be a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableIdentKey(pub TableIdent);

impl PartialOrd for TableIdentKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TableIdentKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0.namespace().as_ref(), self.0.name())
            .cmp(&(other.0.namespace().as_ref(), other.0.name()))
    }
}

/// What a hub needs to know about its connector.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The writer id's hash: the key of the state in the tables.
    pub wid: String,
    /// The connector's name.
    pub connector: String,
    /// How long a table may refuse commits before the tasks fail.
    pub block_max: Duration,
    /// The longest table property that may hold source offsets.
    pub state_bytes_max: usize,
    /// What to do when a branch was rolled back behind the writer's last commit.
    pub rollback: RollbackPolicy,
    /// What tells this catalog and its credentials from others.
    pub catalog: [u8; 32],
}

impl HubConfig {
    /// Takes what concerns the hub from a task's configuration.
    pub fn of(config: &SinkConfig) -> Self {
        HubConfig {
            wid: config.wid.clone(),
            connector: config.connector.clone(),
            block_max: Duration::from_millis(config.control.table_block_max_ms),
            state_bytes_max: config.control.state_bytes_max,
            rollback: config.control.rollback,
            catalog: fingerprint(&config.catalog),
        }
    }

    /// Two connectors of one writer id may have different catalogs, and a restarted connector other
    /// credentials than the tasks that still end: they must not commit through each other's.
    fn key(&self) -> HubKey {
        (
            self.wid.clone(),
            self.connector.clone(),
            self.block_max,
            self.state_bytes_max,
            self.rollback,
            self.catalog,
        )
    }
}

type HubKey = (String, String, Duration, usize, RollbackPolicy, [u8; 32]);

fn fingerprint(catalog: &CatalogConfig) -> [u8; 32] {
    let mut digest = Sha256::new();
    let kind = format!("{:?}", catalog.kind);
    let properties = catalog
        .properties
        .iter()
        .flat_map(|(key, value)| [key, value]);
    for text in [&catalog.name, &kind].into_iter().chain(properties) {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    }
    digest.finalize().into()
}

/// Takes the outcomes of one session, on a thread of the runtime.
pub type OutcomeSink = Box<dyn Fn(Outcome) + Send + Sync>;

/// The meeting point of the tasks of one connector.
#[derive(Debug)]
pub struct Hub {
    config: HubConfig,
    id: Uuid,
    started: Instant,
    runtime: Arc<Runtime>,
    catalog: Arc<dyn Catalog>,
    tables: Mutex<BTreeMap<TableKey, Arc<TableHub>>>,
    cancel: Cancel,
}

/// The part of the hub that serves one table.
pub struct TableHub {
    key: TableKey,
    queue: Mutex<TableQueue>,
    sessions: Mutex<BTreeMap<Uuid, OutcomeSink>>,
    /// The interval in which the first row came of each session's segments that were not handed
    /// over yet.
    open: Mutex<BTreeMap<(Uuid, u64), u64>>,
    wake: Notify,
    interval: Duration,
}

impl fmt::Debug for TableHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableHub")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// Returns the hub of `config` in this process, created with `catalog` if there is none.
    pub fn join(config: HubConfig, runtime: &Arc<Runtime>, catalog: Arc<dyn Catalog>) -> Arc<Hub> {
        let mut hubs = lock(&HUBS);
        hubs.retain(|_, hub| hub.strong_count() > 0);
        let key = config.key();
        if let Some(hub) = hubs.get(&key).and_then(Weak::upgrade) {
            return hub;
        }
        let hub = Arc::new(Hub {
            id: Uuid::now_v7(),
            started: Instant::now(),
            runtime: Arc::clone(runtime),
            catalog,
            tables: Mutex::default(),
            cancel: Cancel::default(),
            config,
        });
        hubs.insert(key, Arc::downgrade(&hub));
        hub
    }

    /// Returns the catalog that the hub commits to.
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.catalog
    }

    /// Returns the number of the commit interval that runs now: all tasks agree on its boundaries.
    pub fn round(&self, interval: Duration) -> u64 {
        let interval = interval.as_millis().max(1);
        u64::try_from(self.started.elapsed().as_millis() / interval).unwrap_or(u64::MAX)
    }

    /// Returns how long the interval that runs now still lasts.
    pub fn until_next_round(&self, interval: Duration) -> Duration {
        let interval_ms = interval.as_millis().max(1);
        let passed = self.started.elapsed().as_millis() % interval_ms;
        Duration::from_millis(u64::try_from(interval_ms - passed).unwrap_or(u64::MAX))
    }

    /// Returns the part that serves `key`; its actor starts with the first caller.
    pub fn table(self: &Arc<Self>, key: TableKey, interval: Duration) -> Arc<TableHub> {
        let mut tables = lock(&self.tables);
        if let Some(table) = tables.get(&key) {
            return Arc::clone(table);
        }
        let table = Arc::new(TableHub {
            key: key.clone(),
            queue: Mutex::default(),
            sessions: Mutex::default(),
            open: Mutex::default(),
            wake: Notify::new(),
            interval,
        });
        tables.insert(key, Arc::clone(&table));
        let committer = TableCommitter::new(
            Arc::clone(&self.catalog),
            table.key.ident.0.clone(),
            table.key.branch.clone(),
            self.config.wid.clone(),
            self.config.connector.clone(),
        )
        .with_hub_id(self.id.simple().to_string())
        .with_state_bytes_max(self.config.state_bytes_max)
        .with_rollback(self.config.rollback)
        .with_cancel(self.cancel.clone());
        let actor = Actor {
            hub: Arc::downgrade(self),
            table: Arc::clone(&table),
            committer,
            cancel: self.cancel.clone(),
            block_max: self.config.block_max,
        };
        self.runtime.handle().spawn(actor.run());
        table
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // Nobody waits for the outcomes any more; the next owner asks the tables.
        self.cancel.cancel();
        for table in lock(&self.tables).values() {
            table.wake.notify_one();
        }
    }
}

impl TableHub {
    /// Returns the table and branch.
    pub fn key(&self) -> &TableKey {
        &self.key
    }

    /// Registers where the outcomes of `session` go.
    pub fn join(&self, session: Uuid, outcomes: OutcomeSink) {
        lock(&self.sessions).insert(session, outcomes);
    }

    /// `session` holds rows of its segment `sequence` since interval `round`: the commit of that
    /// interval waits for them.
    pub fn opened(&self, session: Uuid, sequence: u64, round: u64) {
        lock(&self.open).insert((session, sequence), round);
    }

    /// Hands a sealed segment over.
    pub fn submit(&self, segment: Segment) {
        let (session, sequence) = (segment.session, segment.seq);
        lock(&self.open).remove(&(session, sequence));
        let offer = lock(&self.queue).offer(segment);
        if offer == Offer::Dead {
            self.answer(
                session,
                sequence,
                Verdict::Rejected("its session was rejected".to_owned()),
            );
        }
        self.wake.notify_one();
    }

    /// Forgets `session` and what it still had in the queue. A commit in flight may still succeed;
    /// the table's state tells later.
    pub fn leave(&self, session: Uuid) {
        lock(&self.open).retain(|(opened_by, _), _| *opened_by != session);
        lock(&self.sessions).remove(&session);
        let dropped = lock(&self.queue).end_session(session);
        if !dropped.is_empty() {
            tracing::info!(table = %self.key.ident.0, session = %session, segments = dropped.len(),
                "segments dropped with their session; their files stay for the orphan job");
        }
        self.wake.notify_one();
    }

    fn answer(&self, session: Uuid, sequence: u64, verdict: Verdict) {
        if let Some(outcomes) = lock(&self.sessions).get(&session) {
            outcomes(Outcome {
                session,
                table: self.key.clone(),
                sequence,
                verdict,
            });
        }
    }

    /// Tells whether a session holds rows of interval `round` or earlier.
    fn awaits(&self, round: u64) -> bool {
        lock(&self.open).values().any(|opened| *opened < round)
    }
}

/// The loop that commits one table.
struct Actor {
    hub: Weak<Hub>,
    table: Arc<TableHub>,
    committer: TableCommitter,
    cancel: Cancel,
    block_max: Duration,
}

impl Actor {
    async fn run(self) {
        loop {
            if !lock(&self.table.queue).is_ready() {
                if self.hub.strong_count() == 0 {
                    return;
                }
                self.table.wake.notified().await;
                continue;
            }
            self.gather().await;
            let batch = lock(&self.table.queue).take_batch();
            if !batch.is_empty() {
                self.commit(batch).await;
            }
        }
    }

    /// Waits until the other tasks have sealed this interval's rows too, or a little while.
    async fn gather(&self) {
        let Some(round) = self.hub.upgrade().map(|hub| hub.round(self.table.interval)) else {
            return;
        };
        let limit = Instant::now() + GATHER_MAX.min(self.table.interval / 4);
        while self.table.awaits(round) {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero()
                || tokio::time::timeout(left, self.table.wake.notified())
                    .await
                    .is_err()
            {
                return;
            }
        }
    }

    async fn commit(&self, mut batch: Vec<Segment>) {
        let blocked_since = Instant::now();
        let (mut pause, pause_max) = BLOCKED_BACKOFF;
        loop {
            let outcomes = self.committer.commit(batch.clone()).await;
            let Some((blocked, reason)) = self.settle_all(&batch, outcomes) else {
                return;
            };
            if self.cancel.is_cancelled() {
                // Nobody waits for the outcomes any more: the last session has gone.
                return;
            }
            if blocked_since.elapsed() >= self.block_max {
                return self.give_up(&blocked, blocked_since.elapsed(), &reason);
            }
            tracing::warn!(table = %self.table.key.ident.0, retry_ms = pause.as_millis() as u64,
                reason = %reason.report(), "the table refuses commits; its offsets wait");
            if self.cancel.or(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
            pause = (pause * 2).min(pause_max);
            batch = self.living(blocked);
            if batch.is_empty() {
                return;
            }
        }
    }

    /// Tells the sessions what became of their segments. Returns those that were blocked, and why.
    fn settle_all(
        &self,
        batch: &[Segment],
        outcomes: Vec<(usize, SegmentOutcome)>,
    ) -> Option<(Vec<Segment>, Arc<SinkError>)> {
        let mut blocked: Vec<Segment> = Vec::new();
        let mut error = None;
        for (index, outcome) in outcomes {
            let Some(segment) = batch.get(index) else {
                continue;
            };
            let behind = blocked
                .iter()
                .any(|earlier| earlier.session == segment.session);
            match outcome {
                SegmentOutcome::Blocked(reason) => {
                    error.get_or_insert(reason);
                    blocked.push(segment.clone());
                }
                // A session hears of its segments in their order; this one is asked for again.
                outcome if behind && outcome.is_done() => blocked.push(segment.clone()),
                outcome => self.settle(segment, outcome),
            }
        }
        Some((blocked, error?))
    }

    /// Drops the segments of sessions that ended meanwhile: were they committed after a rejected
    /// one of their session, the table would have a hole (R15).
    fn living(&self, blocked: Vec<Segment>) -> Vec<Segment> {
        let (dead, living): (Vec<Segment>, Vec<Segment>) = {
            let queue = lock(&self.table.queue);
            blocked
                .into_iter()
                .partition(|segment| queue.is_dead(segment.session))
        };
        for segment in dead {
            let verdict = Verdict::Rejected(RejectReason::SessionRejected.to_string());
            self.table.answer(segment.session, segment.seq, verdict);
        }
        living
    }

    /// Fails the sessions of `blocked`. Their later segments must not pass these.
    fn give_up(&self, blocked: &[Segment], elapsed: Duration, reason: &SinkError) {
        let minutes = elapsed.as_secs() / 60;
        for segment in blocked {
            lock(&self.table.queue).end_session(segment.session);
        }
        for segment in blocked {
            let failed = SinkError::fatal(
                "TABLE_BLOCKED",
                format!(
                    "the table refused commits for {minutes} minutes: {}",
                    reason.report()
                ),
            )
            .with("table", &segment.table);
            self.table
                .answer(segment.session, segment.seq, Verdict::Failed(failed));
        }
    }

    fn settle(&self, segment: &Segment, outcome: SegmentOutcome) {
        let verdict = match outcome {
            SegmentOutcome::Durable { .. } => {
                Verdict::Durable(self.committer.latest().map(Box::new))
            }
            SegmentOutcome::Covered => Verdict::Durable(None),
            SegmentOutcome::Rejected(reason) => Verdict::Rejected(reason.to_string()),
            SegmentOutcome::Fenced { epoch } => Verdict::Failed(
                SinkError::fatal(
                    "WRITER_FENCED",
                    "the table's offsets were reset after this task started; restart the task",
                )
                .with("table", &segment.table)
                .with("epoch", epoch),
            ),
            SegmentOutcome::Blocked(reason) => Verdict::Rejected(reason.report()),
        };
        if !matches!(verdict, Verdict::Durable(_)) {
            lock(&self.table.queue).end_session(segment.session);
        }
        self.table.answer(segment.session, segment.seq, verdict);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks is changed in single steps: a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
