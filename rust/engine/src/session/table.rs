//! One table of a task: from rows to sealed files.
//!
//! Keeps: every row that was appended is in the segment that the next seal makes, and the segment's
//! offsets are exactly those rows' (through [`WriterProgress`]). A new schema or partition spec
//! closes the open files first; the segment goes on over both. Once rows are missing, or may be,
//! the table is *spoiled*: nothing is sealed before the session has started over.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frazil_core::commit::plan::check_table;
use frazil_core::commit::recover::state_of;
use frazil_core::commit::state::WriterState;
use frazil_core::config::{SinkConfig, TableConfig};
use frazil_core::control::writer::{TableIndex, WriterProgress};
use frazil_core::convert::{ConvertOptions, TableConverter};
use frazil_core::limits;
use frazil_core::schema::evolve::Evolution;
use frazil_core::wire::Frame;
use frazil_core::{Result, SinkError};
use iceberg::spec::TableMetadata;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::Inbound;
use super::creation::creation_of;
use super::rows::{AppendRows, note_written, rows_beyond_bounds};
use super::sealing::{ClosedFiles, SealWork};
use crate::catalog::{Catalog, LoadedTable};
use crate::commit::create::{evolve_schema, load_or_create};
use crate::failpoint;
use crate::hub::{Hub, Outcome, TableHub, TableIdentKey, TableKey};
use crate::runtime::Runtime;
use crate::writer::{TableWriter, TableWriterConfig};

/// The least time that a catalog gets for an answer.
const CATALOG_WAIT_MIN: Duration = Duration::from_secs(5);

/// What the tables of a session share.
#[derive(Debug)]
pub(crate) struct SessionContext {
    pub(crate) config: Arc<SinkConfig>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) inbox: mpsc::UnboundedSender<Inbound>,
    /// When this put has waited long enough for others.
    pub(crate) waits_until: Cell<Instant>,
}

impl SessionContext {
    /// Waits for a catalog, all waits of a put together no longer than a put may take.
    fn wait<T>(&self, what: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let left = self
            .waits_until
            .get()
            .saturating_duration_since(Instant::now());
        self.runtime.wait(what, left.max(CATALOG_WAIT_MIN), work)
    }
}

/// A segment that could not be made durable.
#[derive(Debug)]
pub(crate) struct SealFailure {
    pub(crate) session: Uuid,
    pub(crate) error: SinkError,
}

/// A table in the configuration of a task, and what the task holds of it.
#[derive(Debug)]
pub(crate) struct TableSlot {
    index: TableIndex,
    config: Arc<TableConfig>,
    hub: Arc<TableHub>,
    open: Option<OpenTable>,
    /// The table after a commit, to be used once no rows are open.
    newer: Option<LoadedTable>,
    /// Other tasks may have committed since the table was loaded: load it again.
    stale: bool,
    /// Rows that the session counts on may be missing from the open files.
    spoiled: bool,
    /// The table that this session writes, whatever becomes of its name.
    uuid: Option<Uuid>,
    /// Bytes of sealed files that are not handed over yet.
    sealing_bytes: Arc<AtomicU64>,
}

/// A loaded table and the rows that are open.
#[derive(Debug)]
struct OpenTable {
    loaded: LoadedTable,
    state: Option<WriterState>,
    converter: TableConverter,
    writer: Option<TableWriter>,
    /// Files of the open segment that were closed early, for a new schema or spec.
    closed: Vec<ClosedFiles>,
    /// The commit interval in which the oldest open row came.
    opened_round: Option<u64>,
    rows: u64,
}

impl TableSlot {
    /// Makes the slot of the table `config` at `index`, served by `hub`.
    pub(crate) fn new(index: TableIndex, config: Arc<TableConfig>, hub: &Arc<Hub>) -> Self {
        let key = TableKey {
            ident: TableIdentKey(config.ident.clone()),
            branch: config.branch.clone(),
        };
        let interval = Duration::from_millis(config.commit_interval_ms);
        TableSlot {
            index,
            hub: hub.table(key, interval),
            config,
            open: None,
            newer: None,
            stale: false,
            spoiled: false,
            uuid: None,
            sealing_bytes: Arc::default(),
        }
    }

    pub(crate) fn index(&self) -> TableIndex {
        self.index
    }

    pub(crate) fn key(&self) -> &TableKey {
        self.hub.key()
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.config.commit_interval_ms)
    }

    /// Sends the outcomes of `session` to the session's inbox.
    pub(crate) fn join(&self, session: Uuid, context: &SessionContext) {
        let inbox = context.inbox.clone();
        self.hub.join(
            session,
            Box::new(move |outcome: Outcome| {
                // A session that is gone asks its table when it starts again.
                let _ = inbox.send(Inbound::Outcome(outcome));
            }),
        );
    }

    pub(crate) fn leave(&mut self, session: Uuid) {
        self.open = None;
        self.hub.leave(session);
    }

    /// Drops what is open: its records come again.
    pub(crate) fn start_over(&mut self, old: Uuid, session: Uuid, context: &SessionContext) {
        self.leave(old);
        self.newer = None;
        self.stale = false;
        self.spoiled = false;
        self.uuid = None;
        self.join(session, context);
    }

    /// Partitions came that another task had: what the table says of their offsets is read again.
    pub(crate) fn others_may_have_committed(&mut self) {
        self.stale = true;
    }

    /// Rows of the open files may be missing, or rows be in them that are to come again.
    pub(crate) fn spoil(&mut self) {
        self.spoiled = true;
    }

    /// Tells whether the session has to start over before this table may be sealed.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.spoiled
    }

    /// Returns the bytes that this table holds in memory, uploads included.
    pub(crate) fn bytes(&self) -> u64 {
        self.open_bytes() + self.sealing_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that a seal would begin to give back.
    pub(crate) fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, OpenTable::bytes)
    }

    /// Returns the bytes of rows and open files, without those that are on their way.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, OpenTable::resident_bytes)
    }

    /// Tells whether there are open rows and room for one more segment in flight.
    pub(crate) fn may_seal(&self, progress: &WriterProgress) -> bool {
        progress.has_open(self.index)
            && progress.unacked(self.index) < limits::SEGMENTS_IN_FLIGHT_MAX
    }

    /// Tells whether the table's interval, rows or bytes ask for a commit now.
    pub(crate) fn is_due(&self, hub: &Hub, progress: &WriterProgress) -> bool {
        let Some(open) = &self.open else { return false };
        if !self.may_seal(progress) {
            return false;
        }
        let round = hub.round(self.interval());
        open.opened_round.is_some_and(|opened| opened < round)
            || self
                .config
                .commit_rows
                .is_some_and(|rows| open.rows >= rows)
            || self
                .config
                .commit_bytes
                .is_some_and(|bytes| open.data_bytes() >= bytes)
    }

    /// Does whatever may fail for reasons outside the records: loads or creates the table, follows
    /// its schema, reads its offsets. No offset has moved when this fails.
    pub(crate) fn prepare(
        &mut self,
        context: &SessionContext,
        progress: &mut WriterProgress,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<()> {
        self.prepare_table(context, progress, frame, rows)
            .map_err(|error| error.with("table", &self.config.name))
    }

    fn prepare_table(
        &mut self,
        context: &SessionContext,
        progress: &mut WriterProgress,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<()> {
        if !progress.has_open(self.index) {
            if std::mem::take(&mut self.stale) {
                self.open = None;
                self.newer = None;
            }
            if let Some(newer) = self.newer.take() {
                self.open = Some(self.opened(context, newer)?);
            }
        } else if self.stale {
            self.refresh_state(context)?;
        }
        if self.open.is_none() {
            let Some(loaded) = self.load_or_create(context, frame, rows)? else {
                return Ok(());
            };
            self.open = Some(self.opened(context, loaded)?);
        }
        self.follow_schema(context, progress, frame, rows)?;
        let Some(open) = &self.open else {
            return Ok(());
        };
        for run in frame.runs() {
            if progress.bound(self.index, &run.partition).is_none() {
                let bound = open
                    .state
                    .as_ref()
                    .and_then(|state| state.bound(&run.partition));
                progress.set_bound(self.index, &run.partition, bound);
            }
        }
        Ok(())
    }

    /// Reads the offsets that the table has now, while rows are open: those of partitions that came
    /// from other tasks count.
    fn refresh_state(&mut self, context: &SessionContext) -> Result<()> {
        let catalog = &context.catalog;
        let loaded = context.wait("loading a table", catalog.load_table(&self.config.ident));
        let loaded = match loaded {
            Err(error) if error.code() == "TABLE_NOT_FOUND" && self.config.auto_create => {
                self.spoiled = true;
                return Err(table_replaced("it was dropped").caused_by(error));
            }
            Err(error) if error.code() == "TABLE_NOT_FOUND" => return Err(table_missing(error)),
            loaded => loaded?,
        };
        self.require_same(&loaded)?;
        let state = state_of(&loaded.metadata, &context.config.wid, &self.config.branch)?;
        if let Some(open) = &mut self.open {
            open.state = state;
        }
        self.stale = false;
        self.committed(Some(loaded));
        Ok(())
    }

    /// The offsets that the session knows of its table say nothing about another one of that name.
    fn require_same(&mut self, loaded: &LoadedTable) -> Result<()> {
        let now = loaded.metadata.uuid();
        let known = *self.uuid.get_or_insert(now);
        if known == now {
            return Ok(());
        }
        self.spoiled = true;
        Err(table_replaced("another one has its name").with("uuid", now))
    }

    fn opened(&mut self, context: &SessionContext, loaded: LoadedTable) -> Result<OpenTable> {
        check_table(&loaded.metadata)?;
        self.require_same(&loaded)?;
        let state = state_of(&loaded.metadata, &context.config.wid, &self.config.branch)?;
        let options = ConvertOptions {
            case_insensitive: self.config.case_insensitive,
            evolve: self.config.evolve,
            force_optional: self.config.force_optional,
            metadata_columns: self.config.metadata_columns.clone(),
        };
        let converter =
            TableConverter::new(Arc::clone(loaded.metadata.current_schema()), &options)?;
        Ok(OpenTable {
            loaded,
            state,
            converter,
            writer: None,
            closed: Vec::new(),
            opened_round: None,
            rows: 0,
        })
    }

    /// Returns the table; creates it from the first record that has a schema. `None` when it does
    /// not exist and no record of the frame says what it should look like.
    fn load_or_create(
        &self,
        context: &SessionContext,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<Option<LoadedTable>> {
        let catalog = &*context.catalog;
        let ident = &self.config.ident;
        let loaded = match context.wait("loading a table", catalog.load_table(ident)) {
            Ok(loaded) => loaded,
            Err(error) if error.code() != "TABLE_NOT_FOUND" => return Err(error),
            Err(error) if !self.config.auto_create => return Err(table_missing(error)),
            Err(_) => {
                let Some(creation) = creation_of(&self.config, frame, rows)? else {
                    return Ok(None);
                };
                let work = load_or_create(catalog, ident, || Ok(creation.clone()));
                let created = context.wait("creating a table", work)?;
                tracing::info!(connector = %context.config.connector, table = %self.config.name,
                    uuid = %created.metadata.uuid(), "table created");
                created
            }
        };
        let missing = Evolution::for_metadata(
            loaded.metadata.current_schema(),
            &self.config.metadata_columns,
        );
        if missing.is_empty() || !self.config.evolve {
            return Ok(Some(loaded));
        }
        self.add_columns(context, &missing).map(Some)
    }

    /// Adds the columns that the frame's records have and the table has not, when allowed.
    fn follow_schema(
        &mut self,
        context: &SessionContext,
        progress: &WriterProgress,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<()> {
        if !self.config.evolve {
            return Ok(());
        }
        let evolution = self
            .open
            .as_mut()
            .and_then(|open| open.converter.evolution(frame, rows));
        let Some(evolution) = evolution else {
            return Ok(());
        };
        let loaded = self.add_columns(context, &evolution)?;
        self.require_same(&loaded)?;
        self.close_files(context, progress)?;
        let mut open = self.opened(context, loaded)?;
        if let Some(before) = self.open.take() {
            // The session works on with the bounds it has: they are as old as its rows.
            open.closed = before.closed;
            open.opened_round = before.opened_round;
            open.rows = before.rows;
        }
        self.open = Some(open);
        Ok(())
    }

    fn add_columns(&self, context: &SessionContext, evolution: &Evolution) -> Result<LoadedTable> {
        let work = evolve_schema(&*context.catalog, &self.config.ident, |metadata| {
            let before = metadata.current_schema();
            let after = evolution.apply(before, metadata.last_column_id())?;
            Ok((after.as_struct() != before.as_struct()).then_some(after))
        });
        let loaded = context.wait("adding columns", work)?;
        tracing::info!(connector = %context.config.connector, table = %self.config.name,
            columns = evolution.additions.len(), "columns added");
        Ok(loaded)
    }

    /// Converts the rows that are new to this table. Rows that do not fit are put into `rejected`
    /// and leave no trace.
    pub(crate) fn append(
        &mut self,
        context: &SessionContext,
        hub: &Hub,
        progress: &mut WriterProgress,
        new: &AppendRows<'_>,
        rejected: &mut BTreeMap<u32, SinkError>,
    ) -> Result<()> {
        let name = &self.config.name;
        let mut refuse = |row: u32, error: SinkError| {
            rejected
                .entry(row)
                .or_insert_with(|| error.with("table", name));
        };
        let Some(open) = &mut self.open else {
            for row in new.rows {
                refuse(*row, no_schema());
            }
            return Ok(());
        };
        let rows = rows_beyond_bounds(progress, self.index, new);
        let mut refused_here = BTreeSet::new();
        open.converter.append(new.frame, &rows, &mut |row, error| {
            refused_here.insert(row);
            refuse(row, error);
        })?;
        let written = AppendRows {
            frame: new.frame,
            rows: &rows,
        };
        let sequence = progress.next_sequence(self.index);
        let appended = note_written(progress, self.index, &written, &refused_here);
        open.rows += appended;
        if appended > 0 && open.opened_round.is_none() {
            let round = hub.round(Duration::from_millis(self.config.commit_interval_ms));
            open.opened_round = Some(round);
            self.hub.opened(progress.session(), sequence, round);
        }
        // Rows that were rejected take room too.
        if open.converter.is_full() {
            self.flush(context, progress)?;
        }
        Ok(())
    }

    /// Runs what moves rows. When it fails, some may be missing.
    fn guarded(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if std::mem::replace(&mut self.spoiled, true) {
            return Err(SinkError::internal(
                "a table was used between a failure and a new start",
            ));
        }
        run(self).map_err(|error| error.with("table", &self.config.name))?;
        self.spoiled = false;
        Ok(())
    }

    /// Ends open files to give back about `bytes`; they stay part of the open segment.
    pub(crate) fn shrink(
        &mut self,
        context: &SessionContext,
        progress: &WriterProgress,
        bytes: u64,
    ) -> Result<()> {
        self.guarded(|table| {
            table.write_out(context, progress)?;
            let Some(open) = &mut table.open else {
                return Ok(());
            };
            let keep = open.resident_bytes().saturating_sub(bytes);
            match &mut open.writer {
                Some(writer) => writer.shrink_to(usize::try_from(keep).unwrap_or(usize::MAX)),
                None => Ok(()),
            }
        })
    }

    /// Hands the converted rows to the table's writer.
    fn flush(&mut self, context: &SessionContext, progress: &WriterProgress) -> Result<()> {
        self.guarded(|table| table.write_out(context, progress))
    }

    fn write_out(&mut self, context: &SessionContext, progress: &WriterProgress) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let batch = open.converter.finish()?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let writer = match &mut open.writer {
            Some(writer) => writer,
            None => {
                let settings = writer_settings(context, &self.config, open, progress, self.index);
                open.writer.insert(TableWriter::new(
                    settings,
                    open.loaded.storage.clone(),
                    context.runtime.handle().clone(),
                )?)
            }
        };
        writer.write(batch)
    }

    /// Closes the open files; they stay part of the open segment.
    fn close_files(&mut self, context: &SessionContext, progress: &WriterProgress) -> Result<()> {
        self.guarded(|table| {
            table.write_out(context, progress)?;
            if let Some(open) = &mut table.open
                && let Some(writer) = open.writer.take()
            {
                open.closed.push(ClosedFiles {
                    spec_id: open.loaded.metadata.default_partition_spec_id(),
                    files: writer.seal()?,
                });
            }
            Ok(())
        })
    }

    /// Makes a segment of the open rows and sends it, once its files are durable, to the hub.
    pub(crate) fn seal(
        &mut self,
        context: &SessionContext,
        progress: &mut WriterProgress,
    ) -> Result<()> {
        self.close_files(context, progress)?;
        let held = self.open_bytes();
        let Some(sealed) = progress.seal(self.index) else {
            return Ok(());
        };
        let Some(open) = &mut self.open else {
            return Err(SinkError::internal("rows are open in a table that is not"));
        };
        let rows = std::mem::take(&mut open.rows);
        open.opened_round = None;
        let work = SealWork {
            files: std::mem::take(&mut open.closed),
            loaded: open.loaded.clone(),
            wid: context.config.wid.clone(),
            branch: self.config.branch.clone(),
            rows,
            sealed,
        };
        self.sealing_bytes.fetch_add(held, Ordering::Relaxed);
        self.spawn(context, work, held);
        Ok(())
    }

    fn spawn(&self, context: &SessionContext, work: SealWork, held: u64) {
        let session = work.sealed.session;
        let hub = Arc::clone(&self.hub);
        let inbox = context.inbox.clone();
        let sealing_bytes = Arc::clone(&self.sealing_bytes);
        let table = self.config.name.clone();
        let task = context.runtime.handle().spawn(work.run());
        context.runtime.handle().spawn(async move {
            let result = task.await;
            sealing_bytes.fetch_sub(held, Ordering::Relaxed);
            let error = match result {
                Ok(Ok(segment)) => {
                    hub.submit(segment);
                    return failpoint::cut("seal.after-submit");
                }
                Ok(Err(error)) => error,
                Err(_) => SinkError::internal("sealing a segment panicked"),
            };
            let error = error.with("table", table);
            // A session that is gone needs no news: its records are read again.
            let _ = inbox.send(Inbound::SealFailed(SealFailure { session, error }));
        });
    }

    /// A commit of this table succeeded; `loaded` is the table after it.
    pub(crate) fn committed(&mut self, loaded: Option<LoadedTable>) {
        let (Some(open), Some(loaded)) = (&self.open, loaded) else {
            return;
        };
        let (before, after) = (&open.loaded.metadata, &loaded.metadata);
        if before.current_schema_id() != after.current_schema_id()
            || before.default_partition_spec_id() != after.default_partition_spec_id()
            || write_properties_differ(before, after)
        {
            self.newer = Some(loaded);
        }
    }
}

impl OpenTable {
    /// Memory, uploads included.
    fn bytes(&self) -> u64 {
        let writer = self.writer.as_ref().map_or(0, TableWriter::bytes);
        let closed = self.closed.iter().map(|closed| closed.files.in_flight());
        (self.converter.bytes() + writer + closed.sum::<usize>()) as u64
    }

    /// Memory without uploads.
    fn resident_bytes(&self) -> u64 {
        let writer = self.writer.as_ref();
        let writer = writer.map_or(0, |writer| {
            writer.bytes().saturating_sub(writer.in_flight())
        });
        (self.converter.bytes() + writer) as u64
    }

    /// Bytes of the open segment, in memory or in files.
    fn data_bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|closed| closed.files.bytes()).sum();
        let writer = self.writer.as_ref().map_or(0, TableWriter::data_bytes);
        self.converter.bytes() as u64 + writer + closed
    }
}

/// The properties that the writer obeys; the state of writers is not among them.
fn write_properties_differ(before: &TableMetadata, after: &TableMetadata) -> bool {
    let relevant = |metadata: &TableMetadata| -> BTreeMap<String, String> {
        metadata
            .properties()
            .iter()
            .filter(|(key, _)| key.starts_with("write."))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    relevant(before) != relevant(after)
}

/// Retriable: the session starts over with the table that is there.
fn table_replaced(how: &str) -> SinkError {
    SinkError::retriable(
        "TABLE_REPLACED",
        format!("the table is not the one that this task began to write: {how}"),
    )
}

fn table_missing(error: SinkError) -> SinkError {
    SinkError::config(
        "TABLE_MISSING",
        "the table is gone; create it again, or set `iceberg.tables.auto-create-enabled=true`",
    )
    .caused_by(error)
}

fn no_schema() -> SinkError {
    SinkError::data(
        "TABLE_SCHEMA_UNKNOWN",
        "the table does not exist and the record has no field to create it from; create the table, \
         or send a record with fields first",
    )
}

fn writer_settings(
    context: &SessionContext,
    config: &TableConfig,
    open: &OpenTable,
    progress: &WriterProgress,
    table: TableIndex,
) -> TableWriterConfig {
    let metadata = &open.loaded.metadata;
    let file_prefix = format!(
        "frazil-{}-{}-{}-{}",
        context.config.wid,
        progress.session().simple(),
        progress.next_sequence(table),
        open.closed.len(),
    );
    let mut settings = TableWriterConfig::new(
        Arc::clone(metadata.current_schema()),
        Arc::clone(metadata.default_partition_spec()),
        metadata.location(),
        file_prefix,
    );
    settings.properties = metadata.properties().clone();
    settings.properties.extend(config.write_props.clone());
    // The limit is the task's, and its tables share it.
    let tables = context.config.tables.len().max(1);
    settings.writers_max_open = (context.config.writers_open_max / tables).max(1);
    settings
}
