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
//! The tasks of other processes take part over a control topic, if the connector has one: then one
//! process coordinates for all ([`remote`]). Otherwise each process commits for its own tasks.
//!
//! Sessions share a hub when they write as the same connector to the same catalog with the same
//! settings. Tables are independent: a slow or blocked one holds nothing of the others. The hub orders and
//! groups; whether a segment may be committed is decided by [`crate::commit`] on the table itself,
//! so that two hubs (two workers) are as safe as one.

mod clock;
mod remote;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use frazil_core::SinkError;
use frazil_core::commit::action::RollbackPolicy;
use frazil_core::commit::location::StateLocation;
use frazil_core::config::{CatalogConfig, Coordination, DynamicTables, SinkConfig};
use frazil_core::control::absent::AbsentRecords;
use frazil_core::control::channel::ChannelSettings;
use frazil_core::control::coordinator::CoordinatorSettings;
use frazil_core::control::message::{TableName, TableStamp};
use frazil_core::limits::HELD_BYTES_MAX;
use frazil_core::metrics::ConnectorMetric;
use frazil_core::wire::ChannelRecord;
use iceberg::TableIdent;
use once_cell::sync::Lazy;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::catalog::{Catalog, LoadedTable};
use crate::commit::{Cancel, ChangedTable, Lists, Looks, TableCommitter};
use crate::memory::Memory;
use crate::metrics::ConnectorMetrics;
use crate::runtime::Runtime;
use clock::{HubClock, milliseconds};
use remote::Link;
use table::{Actor, TableSettings};

pub use clock::host_name;
pub use table::TableHub;

static HUBS: Lazy<Mutex<BTreeMap<HubKey, Weak<Hub>>>> = Lazy::new(Mutex::default);

/// What became of a segment.
#[derive(Debug)]
pub enum Verdict {
    /// It is in a snapshot.
    Durable(After),
    /// It can never be committed: the session has to start over from its durable offsets.
    Rejected {
        /// Why.
        reason: String,
        /// The records that are errors, if that is why.
        absent: AbsentRecords,
    },
    /// It waited for its commit for too long: the session has to start over.
    Expired,
    /// The offsets were reset after the session began: the task must stop.
    Fenced {
        /// The table's writer epoch.
        epoch: u64,
    },
    /// The task must stop.
    Failed(SinkError),
}

/// A table after a commit.
#[derive(Debug)]
pub enum After {
    /// Nothing is known; the commit may be an old one.
    Unknown,
    /// The table, as this process committed it.
    Table(Box<LoadedTable>),
    /// What is known of a table that another process committed to: a task that has another one open
    /// has to load it again.
    Stamp(TableStamp),
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
    /// Where the writer's state is kept.
    pub state_location: StateLocation,
    /// What to do when a branch was rolled back behind the writer's last commit.
    pub rollback: RollbackPolicy,
    /// Whether the tasks of all processes agree over the control topic.
    pub over_topic: bool,
    /// How long a segment may wait for its commit: far below the age at which the orphan job takes
    /// its files (R11).
    pub segment_ttl: Duration,
    /// What tells this catalog and its credentials from others.
    pub catalog: [u8; 32],
    /// The tables that records name, when they do: those that another process has named first are
    /// committed here too.
    pub dynamic: Option<DynamicTables>,
    /// The tables of the configuration that have changes.
    pub changed: Vec<(String, ChangedTable)>,
}

impl HubConfig {
    /// Takes what concerns the hub from a task's configuration.
    pub fn of(config: &SinkConfig) -> Self {
        HubConfig {
            wid: config.wid.clone(),
            connector: config.connector.clone(),
            block_max: Duration::from_millis(config.control.table_block_max_ms),
            state_bytes_max: config.control.state_bytes_max,
            state_location: config.control.state_location,
            rollback: config.control.rollback,
            over_topic: config.control.coordination == Coordination::Topic,
            segment_ttl: Duration::from_millis(config.control.segment_ttl_ms),
            catalog: fingerprint(&config.catalog),
            dynamic: config.dynamic.clone(),
            changed: config
                .tables
                .iter()
                .filter_map(|table| Some((table.name.clone(), ChangedTable::of(table)?)))
                .collect(),
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
            self.state_location,
            self.rollback,
            self.over_topic,
            self.segment_ttl,
            self.catalog,
            self.dynamic.as_ref().map(DynamicTables::fingerprint),
            self.changed.clone(),
        )
    }
}

type HubKey = (
    String,
    String,
    Duration,
    usize,
    StateLocation,
    RollbackPolicy,
    bool,
    Duration,
    [u8; 32],
    Option<[u8; 32]>,
    Vec<(String, ChangedTable)>,
);

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
    /// Names this process in the tables: `<host>/<8 hexadecimal digits>`.
    id: String,
    clock: HubClock,
    runtime: Arc<Runtime>,
    catalog: Arc<dyn Catalog>,
    tables: Mutex<BTreeMap<TableKey, Arc<TableHub>>>,
    /// The control topic, if the tasks of all processes agree there.
    link: Option<Arc<Link>>,
    cancel: Cancel,
    /// What its tables share of looks at manifests.
    looks: Looks,
    /// What they share of the room for manifest lists.
    lists: Lists,
    metrics: Arc<ConnectorMetrics>,
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
        let hub = Hub::new(config, Arc::clone(runtime), catalog);
        hubs.insert(key, Arc::downgrade(&hub));
        hub
    }

    fn new(config: HubConfig, runtime: Arc<Runtime>, catalog: Arc<dyn Catalog>) -> Arc<Hub> {
        let (host, id) = (host_name(), Uuid::now_v7());
        let metrics = ConnectorMetrics::of(&config.connector);
        let leads = i64::from(!config.over_topic);
        metrics.values.set(ConnectorMetric::Coordinator, leads);
        // The upper bits of such an id are the time, which two processes may have in common.
        let (_, random) = id.as_u64_pair();
        Arc::new_cyclic(|hub| {
            let settings = ChannelSettings {
                wid: config.wid.clone(),
                id,
                host: host.clone(),
                segment_ttl_ms: milliseconds(config.segment_ttl),
            };
            Hub {
                id: format!("{host}/{:08x}", random & 0xffff_ffff),
                clock: HubClock::start(),
                runtime,
                catalog,
                tables: Mutex::default(),
                link: config
                    .over_topic
                    .then(|| Arc::new(Link::new(Weak::clone(hub), settings))),
                cancel: Cancel::default(),
                looks: Looks::of_a_connector(),
                lists: Lists::default(),
                metrics,
                config,
            }
        })
    }

    /// Returns the catalog that the hub commits to.
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.catalog
    }

    /// Returns the name that each commit of this process leaves in the table.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the number of the commit interval that runs now: all tasks agree on its boundaries.
    pub fn round(&self, interval: Duration) -> u64 {
        self.clock.now_ms() / milliseconds(interval).max(1)
    }

    /// Returns how long the interval that runs now still lasts.
    pub fn until_next_round(&self, interval: Duration) -> Duration {
        let interval_ms = milliseconds(interval).max(1);
        Duration::from_millis(interval_ms - self.clock.now_ms() % interval_ms)
    }

    /// Returns the part that serves `key`; its actor starts with the first caller. `changes` is said of
    /// a table with changes, by every caller.
    pub fn table(
        self: &Arc<Self>,
        key: TableKey,
        interval: Duration,
        changes: Option<ChangedTable>,
    ) -> Arc<TableHub> {
        let mut tables = lock(&self.tables);
        if let Some(table) = tables.get(&key) {
            return Arc::clone(table);
        }
        let config = &self.config;
        let committer = TableCommitter::new(
            Arc::clone(&self.catalog),
            key.ident.0.clone(),
            key.branch.clone(),
            config.wid.clone(),
            config.connector.clone(),
        )
        .with_hub_id(self.id.clone())
        .with_state_bytes_max(config.state_bytes_max)
        .with_state_location(config.state_location)
        .with_rollback(config.rollback)
        .with_looks(self.looks.of_another_table())
        .with_lists(&self.lists)
        .with_metrics(self.metrics.table(&label(&key)))
        .with_cancel(self.cancel.clone());
        let committer = match changes {
            Some(changes) => committer.with_changes(changes, Memory::of_process()),
            None => committer,
        };
        let settings = TableSettings {
            clock: self.clock,
            coordinator: CoordinatorSettings {
                block_max_ms: milliseconds(config.block_max),
                // Inside a process nobody sends a segment again.
                held_bytes_max: match config.over_topic {
                    true => HELD_BYTES_MAX,
                    false => usize::MAX,
                },
                ..CoordinatorSettings::with_interval(milliseconds(interval))
            },
            ttl_ms: milliseconds(config.segment_ttl),
            link: self.link.clone(),
        };
        let table = Arc::new(TableHub::new(key.clone(), committer, settings));
        tables.insert(key, Arc::clone(&table));
        let known = &self.metrics.values;
        known.set_count(ConnectorMetric::Tables, tables.len() as u64);
        let actor = Actor {
            hub: Arc::downgrade(self),
            table: Arc::clone(&table),
        };
        self.runtime.handle().spawn(actor.run());
        table
    }

    fn all_tables(&self) -> impl Iterator<Item = Arc<TableHub>> {
        let tables: Vec<Arc<TableHub>> = lock(&self.tables).values().cloned().collect();
        tables.into_iter()
    }

    /// Returns the part that serves the table called `name`; when no record of this process has
    /// named it yet, opens one, if records may.
    fn table_named(self: &Arc<Self>, name: &TableName) -> Option<Arc<TableHub>> {
        let ident = name.ident()?;
        let key = TableKey {
            ident: TableIdentKey(ident.clone()),
            branch: name.branch.clone(),
        };
        if let Some(table) = lock(&self.tables).get(&key) {
            return Some(Arc::clone(table));
        }
        let config = self.config.dynamic.as_ref()?.find(&ident, &name.branch)?;
        if !self.may_open(&ident, &name.branch) {
            return None;
        }
        tracing::info!(connector = %self.config.connector, table = %config.name,
            "another worker's records named this table");
        let interval = Duration::from_millis(config.commit_interval_ms);
        Some(self.table(key, interval, ChangedTable::of(&config)))
    }

    /// Tells whether a table that records name is open already, or may be.
    pub(crate) fn may_open(&self, ident: &TableIdent, branch: &str) -> bool {
        let Some(dynamic) = &self.config.dynamic else {
            return false;
        };
        let key = TableKey {
            ident: TableIdentKey(ident.clone()),
            branch: branch.to_owned(),
        };
        let tables = lock(&self.tables);
        tables.contains_key(&key) || tables.len() < dynamic.plan().tables_max
    }

    fn count_exchange(&self, link: &Link, received: usize, sent: usize) {
        let values = &self.metrics.values;
        let (leads, ignored) = link.with(|channel| {
            let ignored: u64 = channel.ignored().values().sum();
            (channel.is_leader(), ignored)
        });
        values.set(ConnectorMetric::Coordinator, i64::from(leads));
        values.set_count(ConnectorMetric::ControlIgnored, ignored);
        values.add(ConnectorMetric::ControlReceived, received as u64);
        values.add(ConnectorMetric::ControlSent, sent as u64);
    }

    /// A process other than this one committed until now.
    fn elected(&self) {
        self.metrics.values.add(ConnectorMetric::Elections, 1);
    }

    /// Takes in what the control topic brought, and whether this process has its partition; returns
    /// the messages to send.
    pub(crate) fn exchange(&self, leader: bool, records: &[ChannelRecord]) -> Vec<Vec<u8>> {
        let Some(link) = &self.link else {
            return Vec::new();
        };
        let now_ms = self.clock.now_ms();
        link.with(|channel| channel.leadership(leader, now_ms));
        link.dispatch();
        for record in records {
            let age_ms = i64::try_from(record.age_ms).unwrap_or(i64::MAX);
            link.with(|channel| channel.record(record.offset, age_ms, &record.value, now_ms));
            link.dispatch();
        }
        let messages = link.with(|channel| channel.outbox(now_ms));
        link.dispatch();
        link.say_ignored();
        self.count_exchange(link, records.len(), messages.len());
        messages
    }
}

/// Returns what the metrics call a table.
fn label(key: &TableKey) -> String {
    let TableIdentKey(ident) = &key.ident;
    match key.branch.as_str() {
        "main" => ident.to_string(),
        branch => format!("{ident}@{branch}"),
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // Nobody waits for the outcomes any more; the next owner asks the tables.
        self.cancel.cancel();
        for table in lock(&self.tables).values() {
            table.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks is changed in single steps: a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
