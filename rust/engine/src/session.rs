//! One task: the data path joined together, from a frame to a segment, and back to offsets.
//!
//! ```text
//!  TICK    a put begins: outcomes of commits, rewinds, seals that are due, back-pressure
//!  put     one frame: decode → read → route → convert → (8,192 rows) → partition → Parquet
//!  control assign, revoke, preCommit
//! ```
//!
//! Everything runs on the task's thread, under one lock, except uploads and commits, which report
//! to an inbox that the next call reads. A `put` has two halves: whatever may fail for a reason
//! outside the record (catalog, storage, schema change) happens before the first offset moves, so
//! that Connect may deliver the same batch again.

mod backpressure;
mod creation;
mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use frazil_core::config::SinkConfig;
use frazil_core::control::writer::WriterProgress;
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::{Effects, Frame, LogLevel, Rejected, Request, SchemaRegistry};
use frazil_core::{ErrorKind, Result, SinkError};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::catalog::{self, Catalog};
use crate::hub::{Hub, HubConfig, Outcome, Verdict};
use crate::logs::{self, Severity};
use crate::runtime::Runtime;
use backpressure::BackPressure;
use table::{AppendRows, SealFailure, SessionContext, TableSlot};

/// How long opening a catalog or loading a table may take on the task's thread.
pub(crate) const CATALOG_WAIT: Duration = Duration::from_secs(60);
/// How long a revoked or stopped task waits for its last commits. Below Connect's default
/// `task.shutdown.graceful.timeout.ms` of 5 s.
const DRAIN_WAIT: Duration = Duration::from_millis(3_500);
/// The longest time between two ticks of an idle task.
const TICK_MAX: Duration = Duration::from_millis(500);
const TICK_MIN: Duration = Duration::from_millis(20);
/// Restarts of a session within [`REDO_WINDOW`] before the task gives up.
const REDO_MAX: usize = 5;
const REDO_WINDOW: Duration = Duration::from_secs(600);

/// The native state of one Connect task.
#[derive(Debug)]
pub struct Session {
    inner: Mutex<Inner>,
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
    progress: WriterProgress,
    tables: Vec<TableSlot>,
    outcomes: mpsc::UnboundedReceiver<Inbound>,
    back_pressure: BackPressure,
    /// Why the session has to start over, found between two puts.
    redo: Option<String>,
    redone: Vec<Instant>,
    /// The rest of this put belongs to a session that is over.
    discarding: bool,
    /// The error that ended this session.
    failed: Option<(ErrorKind, &'static str, String)>,
    request_commit: bool,
}

impl Session {
    /// Opens the native side of a task: reads its configuration, reaches the catalog, and looks at
    /// every table that exists.
    ///
    /// # Errors
    ///
    /// Of kind `Config` for what the user must change (unknown key, missing table, wrong
    /// credentials), `Retriable` when the catalog does not answer.
    pub fn open(settings: BTreeMap<String, String>) -> Result<Arc<Session>> {
        logs::install();
        let config = Arc::new(crate::preflight::start(&settings)?);
        let runtime = Runtime::shared()?;
        let catalog = runtime.wait("opening the catalog", CATALOG_WAIT, async {
            let catalog = catalog::open(&config.catalog)?;
            crate::preflight::check_tables(&config, &catalog).await?;
            Ok(catalog)
        })?;
        let inner = Inner::new(config, runtime, catalog);
        tracing::info!(connector = %inner.config.connector, task = inner.config.task,
            session = %inner.progress.session(), wid = %inner.config.wid, "task started");
        Ok(Arc::new(Session {
            inner: Mutex::new(inner),
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
        let mut inner = self.lock()?;
        inner.check()?;
        let effects = inner.put(frame);
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
        let mut inner = self.lock()?;
        let request = Request::decode(request)?;
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
        if let Ok(mut inner) = self.inner.lock() {
            inner.close();
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
    fn new(config: Arc<SinkConfig>, runtime: Arc<Runtime>, catalog: Arc<dyn Catalog>) -> Inner {
        let hub = Hub::join(HubConfig::of(&config), &runtime, Arc::clone(&catalog));
        let (sender, outcomes) = mpsc::unbounded_channel();
        let session = Uuid::now_v7();
        let tables: Vec<TableSlot> = config
            .tables
            .iter()
            .enumerate()
            .map(|(index, table)| TableSlot::new(index, Arc::new(table.clone()), &hub))
            .collect();
        let context = SessionContext {
            config: Arc::clone(&config),
            runtime,
            catalog,
            inbox: sender,
        };
        for table in &tables {
            table.join(session, &context);
        }
        Inner {
            progress: WriterProgress::new(session, tables.len()),
            back_pressure: BackPressure::new(config.memory_bytes_max),
            config,
            context,
            hub,
            schemas: SchemaRegistry::default(),
            tables,
            outcomes,
            redo: None,
            redone: Vec::new(),
            discarding: false,
            failed: None,
            request_commit: false,
        }
    }

    fn check(&self) -> Result<()> {
        match &self.failed {
            Some((kind, code, message)) => Err(SinkError::new(*kind, code, message.clone())),
            None => Ok(()),
        }
    }

    /// A session that returned an error other than a retriable one seals nothing any more: a
    /// segment sealed now could carry its table past the record that was not written (R4).
    fn remember_failure(&mut self, result: Result<Effects>) -> Result<Effects> {
        if let Err(error) = &result
            && error.kind() != ErrorKind::Retriable
        {
            self.failed = Some((error.kind(), error.code(), error.message().to_owned()));
        }
        result
    }

    fn put(&mut self, bytes: &[u8]) -> Result<Effects> {
        let mut effects = Effects::default();
        let schemas = &self.schemas;
        let frame = Frame::decode(bytes, &|id| schemas.get(id))?;
        if self.discarding || frame.rows() == 0 {
            return Ok(effects);
        }
        let rows = new_rows(&self.progress, &frame);
        for table in &mut self.tables {
            table.prepare(&self.context, &mut self.progress, &frame, &rows)?;
        }
        for run in frame.runs() {
            self.progress
                .read(&run.partition, run.first_offset(), run.last_offset());
        }
        let mut rejected: BTreeMap<u32, SinkError> = BTreeMap::new();
        let rows = AppendRows {
            frame: &frame,
            rows: &rows,
        };
        for table in &mut self.tables {
            table.append(
                &self.context,
                &self.hub,
                &mut self.progress,
                &rows,
                &mut rejected,
            )?;
        }
        self.report_rejected(&frame, rejected, &mut effects)?;
        Ok(effects)
    }

    fn report_rejected(
        &self,
        frame: &Frame<'_>,
        rejected: BTreeMap<u32, SinkError>,
        effects: &mut Effects,
    ) -> Result<()> {
        for (row, error) in rejected {
            let Some((run, offset)) = frame.source(row as usize) else {
                return Err(SinkError::internal(
                    "a row that the frame does not have was rejected",
                ));
            };
            let error = error
                .with("connector", &self.config.connector)
                .with("partition", &run.partition)
                .with("offset", offset);
            if !self.config.errors.tolerate_all {
                return Err(error);
            }
            effects.rejected.push(Rejected {
                row,
                partition: run.partition.clone(),
                offset,
                code: error.code().to_owned(),
                message: error.report(),
            });
        }
        Ok(())
    }

    fn control(&mut self, request: Request) -> Result<Effects> {
        let mut effects = Effects::default();
        match request {
            Request::Tick => self.tick(&mut effects)?,
            Request::Assign(partitions) => {
                if self.progress.assign(&partitions) {
                    self.redo = Some("a partition returned before its rows were committed".into());
                }
                for table in &mut self.tables {
                    table.others_may_have_committed();
                }
                self.request_commit = true;
            }
            Request::Revoke(partitions) => self.revoke(&partitions)?,
            Request::Lost(partitions) => self.progress.revoke(&partitions),
            Request::PreCommit(asked) => {
                // Outcomes that came meanwhile count; failures wait for the next put.
                self.drain_inbox();
                for (partition, offset) in asked {
                    if let Some(durable) = self.progress.pre_commit(&partition, offset) {
                        effects.durable.push((partition, durable));
                    }
                }
            }
            Request::Cancel => {
                self.failed.get_or_insert((
                    ErrorKind::Fatal,
                    "SESSION_CANCELLED",
                    "the task gave this session up".to_owned(),
                ));
            }
        }
        self.finish_effects(&mut effects);
        Ok(effects)
    }

    /// A put begins.
    fn tick(&mut self, effects: &mut Effects) -> Result<()> {
        self.progress.put_begins();
        self.discarding = false;
        self.drain_inbox();
        self.check()?;
        if let Some(reason) = self.redo.take() {
            self.start_over(&reason, effects)?;
            return Ok(());
        }
        for table in &mut self.tables {
            if table.is_due(&self.hub, &self.progress) {
                table.seal(&self.context, &mut self.progress)?;
            }
        }
        let held: u64 = self.tables.iter().map(TableSlot::bytes).sum();
        if self.back_pressure.observe(held) {
            self.seal_largest()?;
        }
        Ok(())
    }

    /// Over budget: the table that holds most is sealed before its interval ends.
    fn seal_largest(&mut self) -> Result<()> {
        let largest = self
            .tables
            .iter_mut()
            .filter(|table| table.may_seal(&self.progress))
            .max_by_key(|table| table.open_bytes());
        match largest {
            Some(table) => table.seal(&self.context, &mut self.progress),
            None => Ok(()),
        }
    }

    /// Gives partitions up: seals their rows and waits a little for the commits, so that the next
    /// owner does not read them again.
    fn revoke(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        if partitions
            .iter()
            .any(|partition| self.progress.holds(partition))
        {
            self.drain()?;
        }
        self.progress.revoke(partitions);
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        if self.failed.is_some() || self.redo.is_some() {
            return Ok(());
        }
        for table in &mut self.tables {
            if table.may_seal(&self.progress) {
                table.seal(&self.context, &mut self.progress)?;
            }
        }
        let limit = Instant::now() + DRAIN_WAIT;
        while self.progress.holds_any() && self.failed.is_none() && self.redo.is_none() {
            let left = limit.saturating_duration_since(Instant::now());
            let outcomes = &mut self.outcomes;
            let inbound = self
                .context
                .runtime
                .handle()
                .block_on(async { tokio::time::timeout(left, outcomes.recv()).await });
            match inbound {
                Ok(Some(inbound)) => self.receive(inbound),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }

    fn drain_inbox(&mut self) {
        while let Ok(inbound) = self.outcomes.try_recv() {
            self.receive(inbound);
        }
    }

    fn receive(&mut self, inbound: Inbound) {
        match inbound {
            Inbound::Outcome(outcome) => self.receive_outcome(outcome),
            Inbound::SealFailed(failure) => {
                if failure.session != self.progress.session() {
                    return;
                }
                if failure.error.kind() == ErrorKind::Retriable {
                    self.redo.get_or_insert(failure.error.report());
                } else {
                    self.fail(&failure.error);
                }
            }
        }
    }

    fn receive_outcome(&mut self, outcome: Outcome) {
        if outcome.session != self.progress.session() {
            return;
        }
        let Some(table) = self
            .tables
            .iter_mut()
            .find(|table| *table.key() == outcome.table)
        else {
            return;
        };
        match outcome.verdict {
            Verdict::Durable(loaded) => {
                if self
                    .progress
                    .durable(outcome.session, table.index(), outcome.sequence)
                {
                    self.request_commit = true;
                }
                table.committed(loaded.map(|loaded| *loaded));
            }
            Verdict::Rejected(reason) => {
                self.redo.get_or_insert(reason);
            }
            Verdict::Failed(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &SinkError) {
        self.failed
            .get_or_insert((error.kind(), error.code(), error.report()));
    }

    /// Discards what is open and unacknowledged, and asks the framework to deliver it again.
    fn start_over(&mut self, reason: &str, effects: &mut Effects) -> Result<()> {
        let now = Instant::now();
        self.redone
            .retain(|at| now.duration_since(*at) < REDO_WINDOW);
        self.redone.push(now);
        if self.redone.len() > REDO_MAX {
            return Err(SinkError::fatal(
                "WRITER_CONFLICT",
                format!(
                    "started over {REDO_MAX} times in {} minutes; another live writer uses writer \
                     id `{}`: stop it, or set `frazil.writer.id`; last reason: {reason}",
                    REDO_WINDOW.as_secs() / 60,
                    self.config.writer_id
                ),
            ));
        }
        let old = self.progress.session();
        let session = Uuid::now_v7();
        let rewinds = self.progress.redo(session);
        for table in &mut self.tables {
            table.start_over(old, session, &self.context);
        }
        self.discarding = true;
        tracing::warn!(connector = %self.config.connector, task = self.config.task, %session,
            rewinds = rewinds.len(), reason, "the session starts over from its durable offsets");
        effects.rewinds = rewinds;
        Ok(())
    }

    fn finish_effects(&mut self, effects: &mut Effects) {
        effects.request_commit = std::mem::take(&mut self.request_commit);
        effects.pause = self.back_pressure.is_paused();
        effects.resume = self.back_pressure.take_resumed();
        let next = self
            .tables
            .iter()
            .filter(|table| self.progress.has_open(table.index()))
            .map(|table| self.hub.until_next_round(table.interval()))
            .min()
            .unwrap_or(TICK_MAX);
        effects.timeout_ms = u64::try_from(next.clamp(TICK_MIN, TICK_MAX).as_millis()).ok();
        let (lines, dropped) = logs::drain();
        effects.log = lines
            .into_iter()
            .map(|line| (level(line.severity), line.text))
            .collect();
        effects.log_dropped = dropped;
    }

    fn close(&mut self) {
        if let Err(error) = self.drain() {
            tracing::error!(connector = %self.config.connector, task = self.config.task,
                reason = %error.report(), "the last segments could not be sealed; they are read again");
        }
        let session = self.progress.session();
        for table in &mut self.tables {
            table.leave(session);
        }
        self.failed.get_or_insert((
            ErrorKind::Fatal,
            "SESSION_CLOSED",
            "the native session is closed".to_owned(),
        ));
    }
}

/// Returns the rows that were not read before, that Java could encode, and that are not tombstones:
/// an append table has nothing to do for those.
fn new_rows(progress: &WriterProgress, frame: &Frame<'_>) -> Vec<u32> {
    let mut rows = Vec::with_capacity(frame.rows());
    for run in frame.runs() {
        let next = progress.next(&run.partition).unwrap_or(i64::MIN);
        for index in 0..run.rows {
            let row = run.first_row + index;
            if run.offset(index) >= next && !frame.is_skipped(row) && !frame.is_tombstone(row) {
                rows.extend(u32::try_from(row));
            }
        }
    }
    rows
}

fn level(severity: Severity) -> LogLevel {
    match severity {
        Severity::Error => LogLevel::Error,
        Severity::Warn => LogLevel::Warn,
        Severity::Info => LogLevel::Info,
    }
}
