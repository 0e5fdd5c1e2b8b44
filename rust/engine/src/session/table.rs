//! One table of a task: from rows to sealed files.
//!
//! Keeps: every row that was appended is in the segment that the next seal makes, and the segment's
//! offsets are exactly those rows' (through [`WriterProgress`]). A new schema or partition spec
//! closes the open files first; the segment goes on over both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frazil_core::commit::{WriterState, state_of};
use frazil_core::config::{SinkConfig, TableConfig};
use frazil_core::control::segment::Segment;
use frazil_core::control::writer::{Sealed, TableIndex, WriterProgress};
use frazil_core::convert::{ConvertOptions, TableConverter};
use frazil_core::limits;
use frazil_core::wire::Frame;
use frazil_core::{Result, SinkError};
use iceberg::spec::DataFile;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{CATALOG_WAIT, Inbound};
use crate::catalog::{Catalog, LoadedTable};
use crate::commit;
use crate::hub::{Hub, Outcome, TableHub, TableIdentKey, TableKey};
use crate::runtime::Runtime;
use crate::writer::{SealedFiles, TableWriter, TableWriterConfig};

/// What the tables of a session share.
#[derive(Debug)]
pub(crate) struct SessionContext {
    pub(crate) config: Arc<SinkConfig>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) inbox: mpsc::UnboundedSender<Inbound>,
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
    closed: Vec<SealedFiles>,
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
        self.join(session, context);
    }

    /// Returns the bytes that this table holds in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.open_bytes() + self.sealing_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that a seal would begin to give back.
    pub(crate) fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, OpenTable::bytes)
    }

    /// Tells whether there are open rows and room for one more segment in flight.
    pub(crate) fn may_seal(&self, progress: &WriterProgress) -> bool {
        progress.has_open(self.index) && progress.unacked(self.index) < limits::SEGMENTS_IN_FLIGHT_MAX
    }

    /// Tells whether the table's interval, rows or bytes ask for a commit now.
    pub(crate) fn is_due(&self, hub: &Hub, progress: &WriterProgress) -> bool {
        let Some(open) = &self.open else { return false };
        if !self.may_seal(progress) {
            return false;
        }
        let round = hub.round(self.interval());
        open.opened_round.is_some_and(|opened| opened < round)
            || self.config.commit_rows.is_some_and(|rows| open.rows >= rows)
            || self.config.commit_bytes.is_some_and(|bytes| open.bytes() >= bytes)
    }

    /// Does whatever may fail for reasons outside the records: loads or creates the table, follows
    /// its schema, reads its offsets. No offset has moved when this fails.
    pub(crate) fn prepare(
        &mut self,
        context: &SessionContext,
        progress: &mut WriterProgress,
        frame: &Frame<'_>,
    ) -> Result<()> {
        self.prepare_table(context, progress, frame)
            .map_err(|error| error.with("table", &self.config.name))
    }

    fn prepare_table(
        &mut self,
        context: &SessionContext,
        progress: &mut WriterProgress,
        frame: &Frame<'_>,
    ) -> Result<()> {
        if !progress.has_open(self.index)
            && let Some(newer) = self.newer.take()
        {
            self.open = Some(self.opened(context, newer)?);
        }
        if self.open.is_none() {
            let Some(loaded) = self.load_or_create(context, frame)? else {
                return Ok(());
            };
            self.open = Some(self.opened(context, loaded)?);
        }
        self.follow_schema(context, progress, frame)?;
        let Some(open) = &self.open else { return Ok(()) };
        for run in frame.runs() {
            if progress.bound(self.index, &run.partition).is_none() {
                let bound = open.state.as_ref().and_then(|state| state.bound(&run.partition));
                progress.set_bound(self.index, &run.partition, bound);
            }
        }
        Ok(())
    }

    fn opened(&self, context: &SessionContext, loaded: LoadedTable) -> Result<OpenTable> {
        commit::check_writable(&loaded.metadata)?;
        let state = state_of(&loaded.metadata, &context.config.wid, &self.config.branch)?;
        let converter = TableConverter::new(
            loaded.metadata.current_schema(),
            ConvertOptions::of(&self.config),
        )?;
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
    ) -> Result<Option<LoadedTable>> {
        let catalog = &context.catalog;
        let ident = &self.config.ident;
        let loaded = context
            .runtime
            .wait("loading a table", CATALOG_WAIT, catalog.load_table(ident));
        match loaded {
            Ok(loaded) => return Ok(Some(loaded)),
            Err(error) if error.code() != "TABLE_NOT_FOUND" => return Err(error),
            Err(error) if !self.config.auto_create => {
                return Err(SinkError::fatal(
                    "TABLE_MISSING",
                    "the table is gone; create it again, or set \
                     `iceberg.tables.auto-create-enabled=true`",
                )
                .caused_by(error));
            }
            Err(_) => {}
        }
        let Some(creation) = commit::creation_of(&self.config, frame)? else {
            return Ok(None);
        };
        let created = context.runtime.wait(
            "creating a table",
            CATALOG_WAIT,
            commit::create_table(&**catalog, ident, creation),
        )?;
        tracing::info!(connector = %context.config.connector, table = %self.config.name,
            "table created");
        Ok(Some(created))
    }

    /// Adds the columns that the frame's records have and the table has not, when allowed.
    fn follow_schema(
        &mut self,
        context: &SessionContext,
        progress: &WriterProgress,
        frame: &Frame<'_>,
    ) -> Result<()> {
        if !self.config.evolve {
            return Ok(());
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some(evolution) = open.converter.unknown_fields(frame)? else {
            return Ok(());
        };
        let loaded = context.runtime.wait(
            "adding columns",
            CATALOG_WAIT,
            commit::evolve_table(&*context.catalog, &open.loaded, &evolution),
        )?;
        tracing::info!(connector = %context.config.connector, table = %self.config.name,
            columns = %evolution, "columns added");
        self.close_files(context, progress)?;
        let Some(before) = self.open.take() else { return Ok(()) };
        let mut open = self.opened(context, loaded)?;
        open.closed = before.closed;
        open.opened_round = before.opened_round;
        open.rows = before.rows;
        // The bounds that the session works with stay: they are at least as old as its rows.
        self.open = Some(open);
        Ok(())
    }

    /// Converts the rows of `frame` that are new to this table. Rows that do not fit are put into
    /// `rejected` and leave no trace.
    pub(crate) fn append(
        &mut self,
        context: &SessionContext,
        hub: &Hub,
        progress: &mut WriterProgress,
        frame: &Frame<'_>,
        rows: &[u32],
        rejected: &mut BTreeMap<u32, SinkError>,
    ) -> Result<()> {
        let name = &self.config.name;
        let mut refuse = |row: u32, error: SinkError| {
            rejected.entry(row).or_insert_with(|| error.with("table", name));
        };
        let Some(open) = &mut self.open else {
            for row in rows {
                refuse(*row, no_schema());
            }
            return Ok(());
        };
        let rows = rows_beyond_bounds(progress, self.index, frame, rows);
        let mut refused_here = std::collections::BTreeSet::new();
        open.converter.append(frame, &rows, &mut |row, error| {
            refused_here.insert(row);
            refuse(row, error);
        })?;
        let mut appended = 0;
        for run in frame.runs() {
            let range = run.first_row..run.first_row + run.rows;
            let mut written: Option<(i64, i64)> = None;
            let mut newest = None;
            for row in rows.iter().filter(|row| range.contains(&(**row as usize))) {
                if refused_here.contains(row) {
                    continue;
                }
                let offset = run.offset(*row as usize - run.first_row);
                written = Some((written.map_or(offset, |(low, _)| low.min(offset)), offset));
                newest = newest.max(frame.timestamp(*row as usize));
                appended += 1;
            }
            if let Some(range) = written {
                progress.wrote(self.index, &run.partition, range, newest);
            }
        }
        if appended == 0 {
            return Ok(());
        }
        open.rows += appended;
        if open.opened_round.is_none() {
            let round = hub.round(Duration::from_millis(self.config.commit_interval_ms));
            open.opened_round = Some(round);
            self.hub.opened(progress.session(), round);
        }
        if open.converter.rows() >= limits::BATCH_ROWS {
            self.flush(context, progress)?;
        }
        Ok(())
    }

    /// Hands the converted rows to the table's writer.
    fn flush(&mut self, context: &SessionContext, progress: &WriterProgress) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.converter.rows() == 0 {
            return Ok(());
        }
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
        writer
            .write(&batch)
            .map_err(|error| error.with("table", &self.config.name))
    }

    /// Closes the open files; they stay part of the open segment.
    fn close_files(&mut self, context: &SessionContext, progress: &WriterProgress) -> Result<()> {
        self.flush(context, progress)?;
        if let Some(open) = &mut self.open
            && let Some(writer) = open.writer.take()
        {
            open.closed.push(writer.seal()?);
        }
        Ok(())
    }

    /// Makes a segment of the open rows and sends it, once its files are durable, to the hub.
    pub(crate) fn seal(
        &mut self,
        context: &SessionContext,
        progress: &mut WriterProgress,
    ) -> Result<()> {
        let held = self.open_bytes();
        self.close_files(context, progress)?;
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
                Ok(Ok(segment)) => return hub.submit(segment),
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
            || before.properties_differ(after)
        {
            self.newer = Some(loaded);
        }
    }
}

impl OpenTable {
    fn bytes(&self) -> u64 {
        let writer = self.writer.as_ref().map_or(0, TableWriter::bytes);
        let closed: usize = self.closed.iter().map(SealedFiles::bytes).sum();
        (self.converter.bytes() + writer + closed) as u64
    }
}

/// What remains to be done for a sealed segment, off the task's thread.
struct SealWork {
    files: Vec<SealedFiles>,
    loaded: LoadedTable,
    wid: String,
    branch: String,
    rows: u64,
    sealed: Sealed,
}

impl SealWork {
    async fn run(self) -> Result<Segment> {
        let mut by_spec: BTreeMap<i32, Vec<DataFile>> = BTreeMap::new();
        for files in self.files {
            let spec_id = files.spec_id();
            by_spec.entry(spec_id).or_default().extend(files.wait().await?);
        }
        let bytes = by_spec.values().flatten().map(DataFile::file_size_in_bytes).sum();
        let mut manifests = Vec::with_capacity(by_spec.len());
        for (spec_id, files) in by_spec {
            let identity = commit::ManifestIdentity {
                wid: self.wid.clone(),
                session: self.sealed.session,
                seq: self.sealed.sequence,
                number: manifests.len(),
            };
            manifests.push(commit::write_manifest(&self.loaded, spec_id, files, &identity).await?);
        }
        Ok(Segment {
            session: self.sealed.session,
            seq: self.sealed.sequence,
            first_unacked: self.sealed.first_unacked,
            epoch: 0,
            table: self.loaded.ident.clone(),
            table_uuid: self.loaded.metadata.uuid(),
            branch: self.branch,
            ranges: self.sealed.ranges,
            watermarks: BTreeMap::new(),
            manifests,
            rows: self.rows,
            bytes,
        })
    }
}

/// Returns the rows that the table does not hold yet.
fn rows_beyond_bounds(
    progress: &WriterProgress,
    table: TableIndex,
    frame: &Frame<'_>,
    rows: &[u32],
) -> Vec<u32> {
    let mut beyond = Vec::with_capacity(rows.len());
    for run in frame.runs() {
        let bound = progress.bound(table, &run.partition).flatten().unwrap_or(i64::MIN);
        let range = run.first_row..run.first_row + run.rows;
        beyond.extend(rows.iter().copied().filter(|row| {
            let row = *row as usize;
            range.contains(&row) && run.offset(row - run.first_row) >= bound
        }));
    }
    beyond
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
    TableWriterConfig {
        metadata: Arc::clone(&open.loaded.metadata),
        write_properties: config.write_props.clone(),
        file_prefix: format!(
            "frazil-{}-{}-{}-{}",
            context.config.wid,
            progress.session().simple(),
            progress.next_sequence(table),
            open.closed.len(),
        ),
        writers_open_max: context.config.writers_open_max,
    }
}
