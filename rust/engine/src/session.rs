//! One task: the data path joined together, from a frame to a segment, and back to offsets.
//!
//! ```text
//!  TICK    a put begins: outcomes of commits, rewinds, seals that are due, back-pressure
//!  put     one frame: decode → new rows → (bytes → values) → route → convert → (8,192 rows) → partition → Parquet
//!  control assign, revoke, preCommit
//! ```
//!
//! Everything runs on the task's thread, under one lock, except uploads and commits, which report
//! to an inbox that the next call reads. A `put` has two halves: whatever may fail for a reason
//! outside the record (catalog, storage, schema change) happens before the first offset moves, so
//! that Connect may deliver the same batch again.

mod absent;
mod backpressure;
mod changes;
mod counting;
mod creation;
mod decoding;
mod delivery;
mod loading;
mod masking;
mod memory;
mod open;
mod outcomes;
mod pending;
mod routes;
mod rows;
mod sealing;
mod spec;
mod table;
mod taking;
mod truncations;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use frazil_core::config::SinkConfig;
use frazil_core::control::task::{TaskMachine, TaskSettings};
use frazil_core::decode::{FrameDecoder, Gatherer};
use frazil_core::limits;
use frazil_core::metrics::TaskMetric;
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::{Effects, LogLevel, Request, SchemaRegistry};
use frazil_core::{ErrorKind, Result, SinkError};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::catalog::{self, Catalog};
use crate::failpoint;
use crate::hub::{Hub, HubConfig, Outcome, host_name};
use crate::logs;
use crate::memory::{Account, Memory};
use crate::metrics::{ConnectorMetrics, CountedCatalog, TaskMetrics};
use crate::registry::Registry;
use crate::runtime::Runtime;
use backpressure::BackPressure;
use counting::Shown;
pub(crate) use open::converter;
use routes::Routes;
use table::{SealFailure, SessionContext, TableSlot};

/// How long the start of a task may wait for its catalog.
const OPEN_WAIT: Duration = Duration::from_secs(60);
/// The part of `max.poll.interval.ms` that one `put`, with all its frames, may wait for catalogs,
/// uploads and other tasks on the task's thread. Java waits for dead letters as long again: together
/// they are a quarter. After the whole the group takes the partitions away.
const PUT_PART: u32 = 8;
/// How long a revoked or stopped task waits for its last commits. Below Connect's default
/// `task.shutdown.graceful.timeout.ms` of 5 s, also when both happen one after the other.
const DRAIN_WAIT: Duration = Duration::from_millis(3_500);
/// How long a session that starts over waits for what becomes of its segments: about as long as the
/// election of another coordinator takes.
const ANSWERS_WAIT: Duration = Duration::from_secs(8);
/// Rejections within [`REJECTION_WINDOW`] after which the task gives up.
const REJECTIONS_MAX: usize = 5;
const REJECTION_WINDOW: Duration = Duration::from_secs(600);
/// The longest time between two ticks of an idle task.
const TICK_MAX: Duration = Duration::from_millis(500);
/// The time between two ticks of a task that waits for answers.
const TICK_WAITING: Duration = Duration::from_millis(50);
const TICK_MIN: Duration = Duration::from_millis(20);

/// The native state of one Connect task.
#[derive(Debug)]
pub struct Session {
    inner: Mutex<Inner>,
    metrics: Arc<TaskMetrics>,
}

/// What reaches a session from other threads.
#[derive(Debug)]
pub(crate) enum Inbound {
    Outcome(Outcome),
    SealFailed(SealFailure),
}

#[derive(Debug)]
struct Inner {
    config: Arc<SinkConfig>,
    context: SessionContext,
    hub: Arc<Hub>,
    schemas: SchemaRegistry,
    /// Reads what Connect hands through as bytes.
    decoder: Option<FrameDecoder>,
    gatherer: Option<Gatherer>,
    /// Where the schemas are that records name.
    registry: Option<Registry>,
    /// Decides everything about offsets.
    machine: TaskMachine,
    tables: Vec<TableSlot>,
    routes: Routes,
    outcomes: mpsc::UnboundedReceiver<Inbound>,
    back_pressure: BackPressure,
    /// Bytes of the buffer that Java hands frames over in.
    frame_buffer: u64,
    /// Bytes that the last frame was decoded into.
    decoded_bytes: u64,
    /// Connect asked for offsets since the last put.
    pre_committed: bool,
    shown: Shown,
}

impl Session {
    /// Opens the native side of a task: reads its configuration, reaches the catalog, and looks at
    /// every table that exists.
    ///
    /// # Errors
    ///
    /// Of kind `Config` for what the user must change (unknown key, missing table, wrong
    /// credentials, no memory left), `Retriable` when the catalog does not answer.
    pub fn open(settings: BTreeMap<String, String>) -> Result<Arc<Session>> {
        Self::open_in(&Memory::of_process(), settings)
    }

    /// As [`open`](Self::open), with another pool of memory than the process's.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in(
        memory: &Arc<Memory>,
        settings: BTreeMap<String, String>,
    ) -> Result<Arc<Session>> {
        logs::install();
        let config = Arc::new(crate::preflight::start(&settings)?);
        let account = memory.join(&config)?;
        let runtime = Runtime::shared()?;
        let connector = ConnectorMetrics::of(&config.connector);
        let metrics = TaskMetrics::new(Arc::clone(&connector), config.task, account.memory());
        let catalog = runtime.wait("opening the catalog", OPEN_WAIT, async {
            let catalog = CountedCatalog::around(catalog::open(&config.catalog)?, &connector);
            for notice in crate::preflight::check_tables(&config, &catalog).await? {
                tracing::warn!(connector = %config.connector, "{}", notice.message);
            }
            Ok(catalog)
        })?;
        let registry = config.registry.as_ref().map(Registry::open).transpose()?;
        let counted = Arc::clone(&metrics);
        let inner = Inner::new(config, runtime, (catalog, registry), account, counted);
        tracing::info!(connector = %inner.config.connector, task = inner.config.task,
            session = %inner.machine.session(), wid = %inner.config.wid, "task started");
        Ok(Arc::new(Session {
            inner: Mutex::new(inner),
            metrics,
        }))
    }

    /// Registers a source schema and returns its id, from 1.
    ///
    /// # Errors
    ///
    /// `WIRE_…` for bytes that are no schema, `TOO_MANY_SCHEMAS` beyond the limit.
    pub fn register_schema(&self, bytes: &[u8]) -> Result<u32> {
        let mut inner = self.lock()?;
        inner.check()?;
        inner.schemas.register(bytes)
    }

    /// Takes one frame of records in and answers with effects.
    ///
    /// # Errors
    ///
    /// `Retriable`: nothing of the frame was taken, the same batch may come again. `Data`: a record
    /// does not fit and the connector tolerates no errors. Otherwise the task must stop.
    pub fn put(&self, frame: &[u8]) -> Result<Vec<u8>> {
        self.put_from(frame, frame.len())
    }

    /// As [`put`](Self::put), of a frame that lies in a buffer of `buffer_bytes`.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn put_from(&self, frame: &[u8], buffer_bytes: usize) -> Result<Vec<u8>> {
        let mut inner = self.lock()?;
        inner.check()?;
        inner.frame_begins(buffer_bytes as u64);
        let begun = Instant::now();
        let effects = inner.put(frame);
        self.metrics.add_time(TaskMetric::PutTime, begun.elapsed());
        inner.frame_ends();
        inner
            .remember_failure(effects)
            .map(|effects| effects.encode())
    }

    /// Answers a control request with effects.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put); `preCommit` requests never fail.
    pub fn control(&self, request: &[u8]) -> Result<Vec<u8>> {
        let request = Request::decode(request)?;
        if request == Request::Metrics {
            // Without the lock: whoever asks wants to see a task that is stuck, too.
            return Ok(self.metrics.answer().encode());
        }
        let mut inner = self.lock()?;
        if !matches!(request, Request::PreCommit(_) | Request::Cancel) {
            inner.check()?;
        }
        let effects = inner.control(request);
        inner
            .remember_failure(effects)
            .map(|effects| effects.encode())
    }

    /// Ends the session: seals what is open, waits a little for the commits, and forgets the rest,
    /// which the next task reads again. Errors were reported by the calls before.
    pub fn close(&self) {
        match self.inner.lock() {
            Ok(mut inner) => inner.close(),
            // A call panicked: nothing of what it left is sealed, but the hub must not wait for it.
            Err(poisoned) => poisoned.into_inner().abandon(),
        }
    }

    /// Returns the bytes of memory that the session holds in rows, open files and uploads.
    pub fn memory_held(&self) -> u64 {
        match self.inner.lock() {
            Ok(inner) => inner.memory_held(),
            Err(_) => 0,
        }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner>> {
        self.inner.lock().map_err(|_| {
            SinkError::fatal(
                "SESSION_POISONED",
                "the native session failed earlier; restart the task",
            )
        })
    }
}

impl Inner {
    fn new(
        config: Arc<SinkConfig>,
        runtime: Arc<Runtime>,
        (catalog, registry): (Arc<dyn Catalog>, Option<Registry>),
        account: Account,
        metrics: Arc<TaskMetrics>,
    ) -> Inner {
        let hub = Hub::join(HubConfig::of(&config), &runtime, Arc::clone(&catalog));
        let (sender, outcomes) = mpsc::unbounded_channel();
        let session = Uuid::now_v7();
        let tables: Vec<TableSlot> = config
            .tables
            .iter()
            .enumerate()
            .map(|(index, table)| TableSlot::new(index, Arc::new(table.clone()), &hub))
            .collect();
        let started = Instant::now();
        let context = SessionContext {
            config: Arc::clone(&config),
            runtime,
            catalog,
            inbox: sender,
            started,
            topic_ids: RefCell::default(),
            tables: Cell::new(tables.len()),
            waits_until: Cell::new(started + OPEN_WAIT),
            account,
            metrics,
        };
        for table in &tables {
            table.join(session, &context);
        }
        Inner {
            machine: TaskMachine::new(task_settings(&config), session),
            back_pressure: BackPressure::default(),
            frame_buffer: 0,
            decoded_bytes: 0,
            routes: Routes::new(&config.routes),
            decoder: decoding::decoder(&config),
            gatherer: None,
            registry,
            config,
            context,
            hub,
            schemas: SchemaRegistry::default(),
            tables,
            outcomes,
            pre_committed: false,
            shown: Shown::default(),
        }
    }

    fn check(&self) -> Result<()> {
        self.machine.check()
    }

    /// A session that returned an error other than a retriable one seals nothing any more: a
    /// segment sealed now could carry its table past the record that was not written (R4).
    fn remember_failure(&mut self, result: Result<Effects>) -> Result<Effects> {
        if let Err(error) = &result
            && error.kind() != ErrorKind::Retriable
        {
            self.machine.fail(error);
        }
        result
    }

    fn control(&mut self, request: Request) -> Result<Effects> {
        let mut effects = Effects::default();
        match request {
            Request::Tick => {
                self.tick(&mut effects)?;
                self.look();
            }
            Request::Assign(partitions) => self.machine.assign(&partitions),
            Request::Revoke(partitions) => self.revoke(&partitions)?,
            Request::Lost(partitions) => self.machine.lost(&partitions),
            Request::PreCommit(asked) => effects.durable = self.pre_commit(asked),
            Request::TopicIds(ids) => {
                let mut known = self.context.topic_ids.borrow_mut();
                let changed = ids.into_iter().fold(false, |changed, (topic, id)| {
                    let before = known.insert(topic, id);
                    changed || before.is_some_and(|before| before != id)
                });
                drop(known);
                // What is held, and what is known of the tables' offsets, is of another topic.
                if changed {
                    self.machine.topics_changed();
                    self.tables.iter_mut().for_each(TableSlot::forget_absent);
                }
            }
            Request::AlterOffsets(_)
            | Request::Epoch
            | Request::Metrics
            | Request::Channel { .. } => {
                return Err(SinkError::internal(
                    "a request of the connector or its channel was sent to a task's handle",
                ));
            }
            Request::Cancel => self.machine.fail(&SinkError::fatal(
                "SESSION_CANCELLED",
                "the task gave this session up",
            )),
        }
        self.finish_effects(&mut effects);
        Ok(effects)
    }

    fn pre_commit(&mut self, asked: Vec<(TopicPartition, i64)>) -> Vec<(TopicPartition, i64)> {
        // Outcomes that came meanwhile count; failures wait for the next put.
        self.drain_inbox();
        self.pre_committed = true;
        let durable = asked.into_iter().filter_map(|(partition, offset)| {
            let durable = self.machine.pre_commit(&partition, offset)?;
            Some((partition, durable))
        });
        let durable = durable.collect();
        match failpoint::pass("task.before-pre-commit-answer") {
            Ok(()) => durable,
            // As an answer that never arrives: Connect keeps the offsets that it has.
            Err(_) => Vec::new(),
        }
    }

    fn finish_effects(&mut self, effects: &mut Effects) {
        effects.request_commit = self.machine.take_commit_wanted();
        effects.parts = self.config.parts;
        self.say_left_out(effects);
        effects.pause = self.is_paused();
        effects.resume = self.back_pressure.take_resumed();
        let next = self
            .tables
            .iter()
            .filter(|table| self.machine.progress().has_open(table.index()))
            .map(|table| self.hub.until_next_round(table.interval()))
            .min()
            .unwrap_or(TICK_MAX)
            .min(if self.machine.is_open() {
                TICK_MAX
            } else {
                TICK_WAITING
            });
        effects.timeout_ms = u64::try_from(next.clamp(TICK_MIN, TICK_MAX).as_millis()).ok();
        let mut notices: Vec<String> = Vec::new();
        notices.extend(self.machine.take_notices().iter().map(ToString::to_string));
        notices.extend(self.tables.iter().flat_map(TableSlot::take_notices));
        for notice in notices {
            // Not through the ring, as what belongs to this task alone.
            let (connector, task) = (&self.config.connector, self.config.task);
            let line = format!("{notice} connector={connector} task={task}");
            effects.log.push((LogLevel::Warn, line));
        }
        logs::drain_into(effects);
    }

    /// Tells whether records that come now are of no use: memory is short, or all of them come again.
    fn is_paused(&mut self) -> bool {
        self.back_pressure.hold(!self.machine.is_open());
        let is_paused = self.back_pressure.is_paused();
        self.note_pause(is_paused);
        is_paused
    }

    fn close(&mut self) {
        if let Err(error) = self.drain() {
            tracing::error!(connector = %self.config.connector, task = self.config.task,
                reason = %error.report(), "the last segments could not be sealed; they are read again");
        }
        self.say_last_left_out();
        self.abandon();
    }

    /// Lets go of everything that is not with the hub's commit already.
    fn abandon(&mut self) {
        let session = self.machine.session();
        for table in &mut self.tables {
            table.leave(session);
        }
        self.leave_memory();
        self.stop_counting();
        self.machine.fail(&SinkError::fatal(
            "SESSION_CLOSED",
            "the native session is closed",
        ));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Of a session that nobody closed, too, the hub has to forget the rows it waits for.
        self.abandon();
    }
}

fn task_settings(config: &SinkConfig) -> TaskSettings {
    TaskSettings {
        connector: config.connector.clone(),
        owner: format!(
            "connector `{}` task {} on `{}`",
            config.connector,
            config.task,
            host_name()
        ),
        writer_id: config.writer_id.clone(),
        tables: config.tables.iter().map(|t| t.name.clone()).collect(),
        epoch: config.control.epoch,
        segments_in_flight_max: limits::SEGMENTS_IN_FLIGHT_MAX,
        rejections_max: REJECTIONS_MAX,
        rejection_window_ms: millis(REJECTION_WINDOW),
        block_max_ms: config.control.table_block_max_ms,
        drain_max_ms: millis(DRAIN_WAIT),
        answers_max_ms: millis(ANSWERS_WAIT),
        external_change: config.control.external_change,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
