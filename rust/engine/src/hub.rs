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
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use frazil_core::SinkError;
use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::config::{CatalogConfig, SinkConfig};
use frazil_core::control::coordinator::{
    self, CoordinatorSettings, Next, Offer, TableCoordinator, Told,
};
use frazil_core::control::segment::Segment;
use iceberg::TableIdent;
use once_cell::sync::Lazy;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::catalog::{Catalog, LoadedTable};
use crate::commit::{Cancel, TableCommitter};
use crate::runtime::Runtime;

/// How long a segment may wait for its commit: far below the age at which the orphan job takes its
/// files.
const SEGMENT_TTL_MS: u64 = 3_600_000;

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
            self.catalog,
        )
    }
}

type HubKey = (String, String, Duration, usize, [u8; 32]);

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

/// The clock of the commit intervals: the wall clock at the start, so that all processes agree on
/// the boundaries, and from there without the jumps that a wall clock makes.
#[derive(Debug, Clone, Copy)]
struct HubClock {
    wall_ms: u64,
    started: Instant,
}

impl HubClock {
    fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        HubClock {
            // A clock before 1970 only makes the boundaries this process's own.
            wall_ms: wall.map_or(0, |wall| u64::try_from(wall.as_millis()).unwrap_or(0)),
            started: Instant::now(),
        }
    }

    fn now_ms(&self) -> u64 {
        let passed = u64::try_from(self.started.elapsed().as_millis());
        self.wall_ms.saturating_add(passed.unwrap_or(u64::MAX))
    }
}

/// The meeting point of the tasks of one connector.
#[derive(Debug)]
pub struct Hub {
    config: HubConfig,
    id: Uuid,
    clock: HubClock,
    runtime: Arc<Runtime>,
    catalog: Arc<dyn Catalog>,
    tables: Mutex<BTreeMap<TableKey, Arc<TableHub>>>,
    cancel: Cancel,
}

/// The part of the hub that serves one table.
pub struct TableHub {
    key: TableKey,
    coordinator: Mutex<TableCoordinator>,
    sessions: Mutex<BTreeMap<Uuid, OutcomeSink>>,
    wake: Notify,
    clock: HubClock,
    interval_ms: u64,
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
            clock: HubClock::start(),
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
        self.clock.now_ms() / milliseconds(interval)
    }

    /// Returns how long the interval that runs now still lasts.
    pub fn until_next_round(&self, interval: Duration) -> Duration {
        let interval_ms = milliseconds(interval);
        Duration::from_millis(interval_ms - self.clock.now_ms() % interval_ms)
    }

    /// Returns the part that serves `key`; its actor starts with the first caller.
    pub fn table(self: &Arc<Self>, key: TableKey, interval: Duration) -> Arc<TableHub> {
        let mut tables = lock(&self.tables);
        if let Some(table) = tables.get(&key) {
            return Arc::clone(table);
        }
        let table = Arc::new(TableHub {
            key: key.clone(),
            coordinator: Mutex::new(TableCoordinator::new(CoordinatorSettings {
                block_max_ms: milliseconds(self.config.block_max),
                ..CoordinatorSettings::with_interval(milliseconds(interval))
            })),
            sessions: Mutex::default(),
            wake: Notify::new(),
            clock: self.clock,
            interval_ms: milliseconds(interval),
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
        .with_cancel(self.cancel.clone());
        let actor = Actor {
            hub: Arc::downgrade(self),
            table: Arc::clone(&table),
            committer,
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
        let since_ms = round.saturating_mul(self.interval_ms);
        lock(&self.coordinator).opened(session, sequence, since_ms);
    }

    /// Hands a sealed segment over. An `urgent` one does not wait for the interval.
    pub fn submit(&self, segment: Segment, urgent: bool) {
        let (session, sequence) = (segment.session, segment.seq);
        let now_ms = self.clock.now_ms();
        let offer = lock(&self.coordinator).offer(segment, urgent, SEGMENT_TTL_MS, now_ms);
        match offer {
            Offer::Accepted | Offer::Duplicate | Offer::Held { .. } => {}
            Offer::Done => self.answer(session, sequence, Verdict::Durable(None)),
            Offer::Dead => self.answer(session, sequence, session_ended()),
            Offer::Full => self.answer(session, sequence, no_room()),
        }
        self.wake.notify_one();
    }

    /// `session` waits for its commits: they do not wait for the interval.
    pub fn drain(&self, session: Uuid) {
        lock(&self.coordinator).drain(session);
        self.wake.notify_one();
    }

    /// Forgets `session` and what it still had waiting. A commit in flight may still succeed; the
    /// table's state tells later.
    pub fn leave(&self, session: Uuid) {
        lock(&self.sessions).remove(&session);
        let dropped = lock(&self.coordinator).leave(session);
        if dropped > 0 {
            tracing::info!(table = %self.key.ident.0, session = %session, segments = dropped,
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
}

fn session_ended() -> Verdict {
    Verdict::Rejected("its session was rejected".to_owned())
}

fn no_room() -> Verdict {
    Verdict::Rejected("too many segments wait for their commit".to_owned())
}

/// The loop that commits one table.
struct Actor {
    hub: Weak<Hub>,
    table: Arc<TableHub>,
    committer: TableCommitter,
}

impl Actor {
    async fn run(self) {
        loop {
            let now_ms = self.table.clock.now_ms();
            let next = lock(&self.table.coordinator).poll(now_ms);
            match next {
                Next::Commit(batch) => self.commit(&batch).await,
                Next::Tell(news) => self.tell(news),
                // Without a hub nobody waits for outcomes any more.
                Next::Wait { .. } if self.hub.strong_count() == 0 => return,
                Next::Wait { until_ms } => self.wait(now_ms, until_ms).await,
            }
        }
    }

    async fn wait(&self, now_ms: u64, until_ms: Option<u64>) {
        let woken = self.table.wake.notified();
        let Some(until_ms) = until_ms else {
            return woken.await;
        };
        let pause = Duration::from_millis(until_ms.saturating_sub(now_ms));
        // Whatever ends the wait, the coordinator is asked again.
        let _ = tokio::time::timeout(pause, woken).await;
    }

    async fn commit(&self, batch: &[Segment]) {
        let outcomes = self.committer.commit(batch.to_vec()).await;
        let refused = outcomes.iter().find_map(|(_, outcome)| match outcome {
            SegmentOutcome::Blocked(reason) => Some(reason),
            _ => None,
        });
        if let Some(reason) = refused {
            tracing::warn!(table = %self.table.key.ident.0, reason = %reason.report(),
                "the table refuses commits; its offsets wait");
        }
        let now_ms = self.table.clock.now_ms();
        let news = lock(&self.table.coordinator).settle(batch, outcomes, now_ms);
        self.tell(news);
    }

    fn tell(&self, news: Vec<Told>) {
        for told in news {
            let verdict = self.verdict(told.verdict);
            self.table.answer(told.session, told.seq, verdict);
        }
    }

    fn verdict(&self, verdict: coordinator::Verdict) -> Verdict {
        match verdict {
            coordinator::Verdict::Durable { snapshot_id } => {
                let latest = snapshot_id.and_then(|_| self.committer.latest());
                Verdict::Durable(latest.map(Box::new))
            }
            coordinator::Verdict::Rejected(reason) => Verdict::Rejected(reason.to_string()),
            coordinator::Verdict::Expired => {
                Verdict::Rejected("it waited for its commit for too long".to_owned())
            }
            coordinator::Verdict::Fenced { epoch } => Verdict::Failed(
                SinkError::fatal(
                    "WRITER_FENCED",
                    "the table's offsets were reset after this task started; restart the task",
                )
                .with("table", &self.table.key.ident.0)
                .with("epoch", epoch),
            ),
            coordinator::Verdict::Failed(error) => Verdict::Failed(error),
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks is changed in single steps: a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
