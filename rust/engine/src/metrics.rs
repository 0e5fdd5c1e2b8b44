//! What this process counts for operators: where `frazil_core::metrics` gets its values from.
//!
//! ```text
//!  stores ──────────────► WORKER ────────────┐
//!  catalog, hub ────────► ConnectorMetrics ──┤  one answer to one request
//!  committers, slots ───► TableMetrics ──────┼──────────────────────────► Java's MBeans
//!  session ─────────────► TaskMetrics ───────┘
//! ```
//!
//! Keeps: counting is a relaxed addition, never a lock that another thread holds for long, and nothing
//! that the engine decides depends on it. A snapshot takes no lock of a session, so that a task which
//! is stuck can be looked at.

mod catalog;
mod events;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use frazil_core::memory::Use;
use frazil_core::metrics::{
    Bean, ConnectorMetric, Kind, Named, OTHER_TABLES, TABLES_MAX, TableMetric, TaskMetric, UNKNOWN,
    WorkerMetric, encode,
};
use frazil_core::wire::Effects;
use once_cell::sync::Lazy;

use crate::commit::now_ms;
use crate::memory::Memory;

pub(crate) use catalog::CountedCatalog;
pub(crate) use events::{CommitEvent, Phases};
pub(crate) use store::counted;

use events::Events;

/// What concerns the whole process.
pub(crate) static WORKER: Lazy<Values<WorkerMetric>> = Lazy::new(Values::new);

static CONNECTORS: Lazy<Mutex<BTreeMap<String, Weak<ConnectorMetrics>>>> =
    Lazy::new(Mutex::default);
static TASKS: AtomicU64 = AtomicU64::new(0);

/// The values of the metrics of one family.
#[derive(Debug)]
pub(crate) struct Values<M> {
    values: Box<[AtomicI64]>,
    family: PhantomData<fn(M)>,
}

impl<M: Named> Values<M> {
    pub(crate) fn new() -> Self {
        let metrics = M::FAMILY.metrics.iter();
        let first = metrics.map(|metric| match metric.kind {
            Kind::Since => AtomicI64::new(UNKNOWN),
            _ => AtomicI64::new(0),
        });
        Values {
            values: first.collect(),
            family: PhantomData,
        }
    }

    pub(crate) fn add(&self, metric: M, count: u64) {
        if let Some(value) = self.values.get(metric.index()) {
            value.fetch_add(whole(count), Ordering::Relaxed);
        }
    }

    /// Adds to a metric of kind time.
    pub(crate) fn add_time(&self, metric: M, time: Duration) {
        self.add(metric, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn set(&self, metric: M, value: i64) {
        if let Some(known) = self.values.get(metric.index()) {
            known.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_count(&self, metric: M, count: u64) {
        self.set(metric, whole(count));
    }

    /// Sets the moment of a metric of kind since.
    pub(crate) fn set_since(&self, metric: M, at_ms: Option<i64>) {
        self.set(metric, at_ms.unwrap_or(UNKNOWN));
    }

    /// Returns the raw value: nanoseconds of a time.
    pub(crate) fn get(&self, metric: M) -> i64 {
        let value = self.values.get(metric.index());
        value.map_or(0, |value| value.load(Ordering::Relaxed))
    }

    /// Returns all values as a snapshot has them.
    fn read(&self) -> Vec<i64> {
        let metrics = M::FAMILY.metrics.iter().zip(&self.values);
        let read = metrics.map(|(metric, value)| match metric.kind {
            Kind::Time => value.load(Ordering::Relaxed) / 1_000_000,
            _ => value.load(Ordering::Relaxed),
        });
        read.collect()
    }
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A connector in this process; it lasts while a task or a channel of it does.
#[derive(Debug)]
pub(crate) struct ConnectorMetrics {
    name: String,
    pub(crate) values: Values<ConnectorMetric>,
    tables: Mutex<Tables>,
    events: Arc<Events>,
}

#[derive(Debug, Default)]
struct Tables {
    own: BTreeMap<String, Arc<TableMetrics>>,
    /// What those beyond the limit share.
    others: Option<Arc<TableValues>>,
}

impl ConnectorMetrics {
    /// Returns those of the connector called `name`.
    pub(crate) fn of(name: &str) -> Arc<ConnectorMetrics> {
        let mut connectors = lock(&CONNECTORS);
        connectors.retain(|_, one| one.strong_count() > 0);
        if let Some(known) = connectors.get(name).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(ConnectorMetrics {
            name: name.to_owned(),
            values: Values::new(),
            tables: Mutex::default(),
            events: Arc::default(),
        });
        connectors.insert(name.to_owned(), Arc::downgrade(&new));
        new
    }

    /// Returns those of a table: its own, or with too many tables those that the others share.
    pub(crate) fn table(&self, name: &str) -> Arc<TableMetrics> {
        let mut tables = lock(&self.tables);
        if let Some(known) = tables.own.get(name) {
            return Arc::clone(known);
        }
        let is_own = tables.own.len() < TABLES_MAX;
        let values = match is_own {
            true => Arc::default(),
            false => Arc::clone(tables.others.get_or_insert_with(Arc::default)),
        };
        let table = Arc::new(TableMetrics {
            connector: self.name.clone(),
            name: name.to_owned(),
            shared: values,
            events: Arc::clone(&self.events),
        });
        if is_own {
            tables.own.insert(name.to_owned(), Arc::clone(&table));
        }
        table
    }

    fn beans(&self, beans: &mut Vec<Bean>) {
        let dropped = self.events.dropped();
        self.values
            .set_count(ConnectorMetric::EventsDropped, dropped);
        beans.push(Bean {
            family: ConnectorMetric::FAMILY,
            keys: vec![self.name.clone()],
            values: self.values.read(),
        });
        let tables = lock(&self.tables);
        let own = tables
            .own
            .iter()
            .map(|(name, table)| (name.as_str(), &table.shared));
        let others = tables.others.iter().map(|others| (OTHER_TABLES, others));
        beans.extend(own.chain(others).map(|(name, table)| Bean {
            family: TableMetric::FAMILY,
            keys: vec![self.name.clone(), name.to_owned()],
            values: table.read(),
        }));
    }
}

/// One table of a connector in this process.
#[derive(Debug)]
pub(crate) struct TableMetrics {
    connector: String,
    name: String,
    shared: Arc<TableValues>,
    events: Arc<Events>,
}

#[derive(Debug)]
struct TableValues {
    values: Values<TableMetric>,
    /// How far each task is behind, by its number and the table.
    behind: Mutex<BTreeMap<(u64, String), Behind>>,
}

impl Default for TableValues {
    fn default() -> Self {
        TableValues {
            values: Values::new(),
            behind: Mutex::default(),
        }
    }
}

/// What a task holds of a table that is in no snapshot yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Rows that are in no segment yet.
    pub(crate) rows: u64,
    /// Offsets from the lowest such row to what was read last.
    pub(crate) offsets: u64,
    /// Since when the oldest row waits, in milliseconds since 1970.
    pub(crate) since_ms: Option<i64>,
}

impl TableMetrics {
    /// Makes metrics that nobody reads.
    pub(crate) fn detached() -> Arc<TableMetrics> {
        Arc::new(TableMetrics {
            connector: String::new(),
            name: String::new(),
            shared: Arc::default(),
            events: Arc::default(),
        })
    }

    pub(crate) fn values(&self) -> &Values<TableMetric> {
        &self.shared.values
    }

    pub(crate) fn add(&self, metric: TableMetric, count: u64) {
        self.shared.values.add(metric, count);
    }

    /// Notes how far the task of this number is behind; `None` when it has left.
    pub(crate) fn behind(&self, task: u64, behind: Option<Behind>) {
        let mut known = lock(&self.shared.behind);
        let key = (task, self.name.clone());
        match behind.filter(|behind| *behind != Behind::default()) {
            Some(behind) => known.insert(key, behind),
            None => known.remove(&key),
        };
    }

    /// Counts a commit that came through, and writes its event.
    pub(crate) fn committed(&self, event: &CommitEvent<'_>) {
        event.count(&self.shared.values);
        self.events.push(event.line(&self.connector, &self.name));
    }
}

impl TableValues {
    fn read(&self) -> Vec<i64> {
        let behind = lock(&self.behind);
        let sum = |of: fn(&Behind) -> u64| behind.values().map(of).sum();
        self.values
            .set_count(TableMetric::OpenRows, sum(|one| one.rows));
        self.values
            .set_count(TableMetric::LagOffsets, sum(|one| one.offsets));
        let oldest = behind.values().filter_map(|one| one.since_ms).min();
        self.values.set_since(TableMetric::LagSince, oldest);
        self.values.read()
    }
}

/// One task.
#[derive(Debug)]
pub(crate) struct TaskMetrics {
    number: u64,
    keys: Vec<String>,
    pub(crate) values: Values<TaskMetric>,
    connector: Arc<ConnectorMetrics>,
    memory: Arc<Memory>,
}

impl TaskMetrics {
    /// Makes those of task `task`, which draws from `memory`.
    pub(crate) fn new(
        connector: Arc<ConnectorMetrics>,
        task: usize,
        memory: &Arc<Memory>,
    ) -> Arc<TaskMetrics> {
        Arc::new(TaskMetrics {
            number: TASKS.fetch_add(1, Ordering::Relaxed),
            keys: vec![connector.name.clone(), task.to_string()],
            values: Values::new(),
            connector,
            memory: Arc::clone(memory),
        })
    }

    /// Returns the number that no other task of the process has, of the same name or not.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn connector(&self) -> &ConnectorMetrics {
        &self.connector
    }

    pub(crate) fn add(&self, metric: TaskMetric, count: u64) {
        self.values.add(metric, count);
    }

    pub(crate) fn add_time(&self, metric: TaskMetric, time: Duration) {
        self.values.add_time(metric, time);
    }

    /// Returns the answer to a request for metrics: the snapshot, and after it the events that wait.
    pub(crate) fn answer(&self) -> Effects {
        let mut messages = vec![encode(&self.beans())];
        messages.extend(self.connector.events.take().map(String::into_bytes));
        Effects {
            messages,
            ..Effects::default()
        }
    }

    fn beans(&self) -> Vec<Bean> {
        note_memory(&self.memory);
        let mut beans = vec![
            Bean {
                family: WorkerMetric::FAMILY,
                keys: Vec::new(),
                values: WORKER.read(),
            },
            Bean {
                family: TaskMetric::FAMILY,
                keys: self.keys.clone(),
                values: self.values.read(),
            },
        ];
        self.connector.beans(&mut beans);
        beans
    }
}

fn note_memory(memory: &Memory) {
    let usage = memory.usage();
    WORKER.set_count(WorkerMetric::MemoryLimit, usage.capacity);
    WORKER.set_count(WorkerMetric::MemoryHeld, usage.held);
    WORKER.set_count(WorkerMetric::MemoryPeak, usage.peak);
    for what in Use::ALL {
        let metric = match what {
            Use::Frames => WorkerMetric::MemoryFrames,
            Use::Decoding => WorkerMetric::MemoryDecoding,
            Use::Builders => WorkerMetric::MemoryBuilders,
            Use::Gathered => WorkerMetric::MemoryGathered,
            Use::OpenFiles => WorkerMetric::MemoryOpenFiles,
            Use::EndedFiles => WorkerMetric::MemoryEndedFiles,
            Use::Uploads => WorkerMetric::MemoryUploads,
            Use::Sealed => WorkerMetric::MemorySealed,
            Use::Commits => WorkerMetric::MemoryCommits,
            Use::KeyIndex => WorkerMetric::MemoryKeyIndex,
            Use::Rewrites => WorkerMetric::MemoryRewrites,
        };
        WORKER.set_count(metric, memory.held_for(what));
    }
}

/// Returns the wall clock in milliseconds since 1970.
pub(crate) fn wall_ms() -> i64 {
    now_ms()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Single insertions and removals: a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
