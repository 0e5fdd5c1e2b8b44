//! One table of a task: from rows to sealed files.
//!
//! Keeps: every row that was appended is in the segment that the next seal makes, and the segment's
//! offsets are exactly those rows' (through [`TaskMachine`]). A new schema or partition spec
//! closes the open files first; the segment goes on over both. Whatever moves rows tells the machine
//! before and after, so that nothing is sealed once rows are missing.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frazil_core::config::{NullValues, SinkConfig, TableConfig};
use frazil_core::control::message::TableStamp;
use frazil_core::control::segment::Segment;
use frazil_core::control::task::TaskMachine;
use frazil_core::control::writer::TableIndex;
use frazil_core::convert::ColumnRules;
use frazil_core::memory::Use;
use frazil_core::metrics::{TableMetric, TaskMetric};
use frazil_core::{Result, SinkError};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::Inbound;
use super::changes::{NEW_KEY_AWAITED, NEW_KEY_AWAITED_FULL, OpenChanges, Reading};
use super::counting::Waiting;
use super::creation::refusal;
use super::masking::Mask;
use super::open::{OpenTable, segment_name, writer_settings};
use super::rows::{AppendRows, await_rows, note_written, rows_beyond_bounds, stop_at};
use super::sealing::{ClosedFiles, SealWork};
use super::spec::SpecSettled;
use crate::catalog::{Catalog, LoadedTable};
use crate::commit::{ChangedTable, Layout};
use crate::failpoint;
use crate::hub::{After, Hub, Outcome, TableHub, TableIdentKey, TableKey};
use crate::keyrun::NAME_ENDS;
use crate::memory::{Account, Draw};
use crate::metrics::{TaskMetrics, wall_ms};
use crate::runtime::Runtime;
use crate::storage::may_pass;
use crate::writer::{TableWriter, beside_data};

/// What the tables of a session share.
#[derive(Debug)]
pub(crate) struct SessionContext {
    pub(crate) config: Arc<SinkConfig>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) inbox: mpsc::UnboundedSender<Inbound>,
    /// When the session was opened.
    pub(crate) started: Instant,
    /// The ids of the source topics, as far as they are known.
    pub(crate) topic_ids: RefCell<BTreeMap<Arc<str>, Uuid>>,
    /// How many tables the session has.
    pub(crate) tables: Cell<usize>,
    /// When this put has waited long enough for others.
    pub(crate) waits_until: Cell<Instant>,
    /// The task's place in the memory of the process.
    pub(crate) account: Account,
    pub(crate) metrics: Arc<TaskMetrics>,
}

impl SessionContext {
    /// Returns the time for the machine: it only rises.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Waits for a catalog, all waits of a put together no longer than a put may take.
    pub(super) fn wait<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let left = self
            .waits_until
            .get()
            .saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(SinkError::retriable(
                "TIMED_OUT",
                format!(
                    "{what} has to wait for the next call: this one took its part of \
                         `max.poll.interval.ms`"
                ),
            ));
        }
        self.runtime.wait(what, left, work)
    }
}

/// A segment that could not be made durable.
#[derive(Debug)]
pub(crate) struct SealFailure {
    /// The session, and the segment's number.
    pub(crate) segment: (Uuid, u64),
    pub(crate) table: TableIndex,
    pub(crate) error: SinkError,
}

/// A table in the configuration of a task, and what the task holds of it.
#[derive(Debug)]
pub(crate) struct TableSlot {
    pub(super) index: TableIndex,
    pub(super) config: Arc<TableConfig>,
    hub: Arc<TableHub>,
    pub(super) open: Option<OpenTable>,
    /// The table after a commit, to be used once no rows are open.
    pub(super) newer: Option<LoadedTable>,
    /// What it gets to see of records.
    pub(super) rules: Option<ColumnRules>,
    /// What the rules leave of the frame at hand, until its rows are appended.
    pub(super) masks: Vec<Mask>,
    /// How changes are read; `None` when rows are appended.
    pub(super) reading: Option<Reading>,
    /// What was done about its partitioning.
    pub(super) spec_settled: Cell<SpecSettled>,
    /// What people should know of this table and were not told yet.
    pub(super) notices: RefCell<Vec<String>>,
    /// Since when its rows wait for a commit.
    pub(super) waiting: Waiting,
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
            hub: hub.table(key, interval, ChangedTable::of(&config)),
            rules: ColumnRules::new(
                &config.columns,
                &config.metadata_columns,
                config.case_insensitive,
            ),
            masks: Vec::new(),
            reading: Reading::new(&config),
            config,
            open: None,
            newer: None,
            spec_settled: Cell::default(),
            notices: RefCell::default(),
            waiting: Waiting::default(),
        }
    }

    pub(crate) fn index(&self) -> TableIndex {
        self.index
    }

    /// Returns what people should know of this table, once.
    pub(crate) fn take_notices(&self) -> Vec<String> {
        self.notices.take()
    }

    pub(super) fn hub(&self) -> &TableHub {
        &self.hub
    }

    /// Returns the rows that are in no segment yet.
    pub(super) fn open_rows(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.rows)
    }

    pub(crate) fn key(&self) -> &TableKey {
        self.hub.key()
    }

    /// Tells whether a record without a value says something to this table.
    pub(crate) fn takes_tombstones(&self) -> bool {
        self.reading.is_some()
    }

    /// Returns how many records changed nothing since this was asked last, by the reason.
    pub(crate) fn take_skipped(&mut self) -> BTreeMap<&'static str, u64> {
        self.reading
            .as_mut()
            .map_or_else(BTreeMap::new, Reading::take_skipped)
    }

    pub(crate) fn null_values(&self) -> NullValues {
        self.config.null_values
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.config.commit_interval_ms)
    }

    /// Sends the outcomes of `session` to the session's inbox.
    pub(crate) fn join(&self, session: Uuid, context: &SessionContext) {
        let inbox = context.inbox.clone();
        let config = &context.config;
        self.hub.join(
            session,
            config.task,
            config.control.epoch,
            Box::new(move |outcome: Outcome| {
                // A session that is gone asks its table when it starts again.
                let _ = inbox.send(Inbound::Outcome(outcome));
            }),
        );
    }

    /// `session` waits for the commits of what it has handed over.
    pub(crate) fn drain(&self, session: Uuid) {
        self.hub.drain(session);
    }

    pub(crate) fn leave(&mut self, session: Uuid) {
        self.open = None;
        self.waiting = Waiting::default();
        self.forget_frame();
        self.hub.leave(session);
    }

    /// Drops what is open: its records come again.
    pub(crate) fn start_over(&mut self, old: Uuid, session: Uuid, context: &SessionContext) {
        self.leave(old);
        self.newer = None;
        if let Some(reading) = &mut self.reading {
            reading.absent.begin();
        }
        self.join(session, context);
    }

    /// Returns the bytes that this table holds, by use.
    pub(crate) fn uses(&self) -> [(Use, u64); 4] {
        let open = self.open.as_ref();
        let mut uses = open.map_or([(Use::Builders, 0); 4], OpenTable::uses);
        if let (Some(reading), [(_, builders), ..]) = (&self.reading, &mut uses) {
            *builders += reading.absent.bytes();
        }
        uses
    }

    /// Returns the bytes that describe files which ended: a seal begins to give them back.
    pub(crate) fn ended_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, OpenTable::ended_bytes)
    }

    /// Returns the bytes of rows and open files, without those that are on their way.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, OpenTable::resident_bytes)
    }

    /// Tells whether the table's interval, rows or bytes ask for a commit now: `Some(true)` for one
    /// that does not wait for the interval.
    pub(crate) fn due(&self, hub: &Hub, machine: &TaskMachine) -> Option<bool> {
        let may_seal = machine.may_seal(self.index);
        let open = self.open.as_ref().filter(|_| may_seal)?;
        let limits = &self.config;
        let changes = open.changes.as_ref();
        let is_full = changes.is_some_and(OpenChanges::is_full)
            || limits.commit_rows.is_some_and(|rows| open.rows >= rows)
            || limits
                .commit_bytes
                .is_some_and(|bytes| open.data_bytes() >= bytes);
        let most = match is_full {
            true => NEW_KEY_AWAITED_FULL,
            false => NEW_KEY_AWAITED,
        };
        if changes.is_some_and(|changes| changes.awaits_row(most)) {
            return None;
        }
        let reading = self.reading.as_ref();
        if machine.hastens(self.index) || reading.is_some_and(|one| one.absent.asks_for_seal()) {
            return Some(true);
        }
        let round = hub.round(self.interval());
        if open.opened_round.is_some_and(|opened| opened < round) {
            return Some(false);
        }
        is_full.then_some(true)
    }

    /// Converts the rows that are new to this table. Rows that do not fit are put into `rejected`
    /// and leave no trace.
    pub(crate) fn append(
        &mut self,
        context: &SessionContext,
        hub: &Hub,
        machine: &mut TaskMachine,
        new: &AppendRows<'_>,
        rejected: &mut BTreeMap<u32, SinkError>,
    ) -> Result<()> {
        if self.reading.is_some() {
            return self.append_changes(context, hub, machine, new, rejected);
        }
        let mask = self.take_mask(new.frame, new.rows)?;
        let seen = mask.as_ref().map(|mask| mask.frame(new.frame));
        let frame = seen.as_ref().unwrap_or(new.frame);
        let name = &self.config.name;
        let mut refuse = |row: u32, error: SinkError| {
            rejected
                .entry(row)
                .or_insert_with(|| error.with("table", name));
        };
        let Some(open) = &mut self.open else {
            if let Some(mask) = &mask {
                let judged = mask.refused_of(new.rows);
                judged.for_each(|(row, error)| refuse(row, error));
            }
            for row in new.rows {
                refuse(*row, refusal(&self.config, frame, *row));
            }
            return Ok(());
        };
        let mut rows = rows_beyond_bounds(machine, self.index, new)?;
        if machine.is_blocked(self.index) {
            await_rows(machine, self.index, new.frame, &rows);
            return Ok(());
        }
        let mut refused_here = BTreeSet::new();
        if let Some(mask) = &mask {
            for (row, error) in mask.refused_of(&rows) {
                refuse(row, error);
            }
            rows = mask.keep(&rows);
        }
        open.converter.append(frame, &rows, &mut |row, error| {
            refused_here.insert(row);
            refuse(row, error);
        })?;
        if let Some(stop) = open.converter.take_stop() {
            let rest = rows.split_off(rows.partition_point(|row| *row < stop.row));
            stop_at(machine, &self.config, self.index, new.frame, stop)?;
            await_rows(machine, self.index, new.frame, &rest);
        }
        let written = AppendRows {
            frame: new.frame,
            rows: &rows,
        };
        let appended = note_written(machine, self.index, &written, &refused_here);
        open.rows += appended;
        self.appended(context, hub, machine, appended > 0)
    }

    /// Rows of a frame were taken, if `any`: the commit of this interval waits for them.
    pub(super) fn appended(
        &mut self,
        context: &SessionContext,
        hub: &Hub,
        machine: &mut TaskMachine,
        any: bool,
    ) -> Result<()> {
        let interval = self.interval();
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        if any {
            self.waiting.took(wall_ms());
        }
        if any && open.opened_round.is_none() {
            let round = hub.round(interval);
            open.opened_round = Some(round);
            let sequence = machine.progress().next_sequence(self.index);
            self.hub.opened(machine.session(), sequence, round);
        }
        // Rows that were rejected take room too.
        if open.converter.is_full() {
            self.flush(context, machine)?;
        }
        Ok(())
    }

    /// Runs what moves rows. When it fails, some may be missing.
    pub(super) fn guarded(
        &mut self,
        machine: &mut TaskMachine,
        run: impl FnOnce(&mut Self, &TaskMachine) -> Result<()>,
    ) -> Result<()> {
        machine.moving(self.index)?;
        run(self, machine).map_err(|error| error.with("table", &self.config.name))?;
        machine.moved(self.index);
        Ok(())
    }

    /// Ends open files to give back about `bytes`; they stay part of the open segment.
    pub(crate) fn shrink(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        bytes: u64,
    ) -> Result<()> {
        self.guarded(machine, |table, machine| {
            table.write_out(context, machine)?;
            let Some(open) = &mut table.open else {
                return Ok(());
            };
            let keep = open.resident_bytes().saturating_sub(bytes);
            let mut keep = usize::try_from(keep).unwrap_or(usize::MAX);
            if let Some(pending) = open.pending.writer_mut() {
                pending.shrink_to(keep)?;
                keep = keep.saturating_sub(pending.gathered_bytes() + pending.file_bytes());
            }
            match &mut open.writer {
                Some(writer) => writer.shrink_to(keep),
                None => Ok(()),
            }
        })
    }

    /// Hands the converted rows to the table's writer.
    fn flush(&mut self, context: &SessionContext, machine: &mut TaskMachine) -> Result<()> {
        self.guarded(machine, |table, machine| table.write_out(context, machine))
    }

    fn write_out(&mut self, context: &SessionContext, machine: &TaskMachine) -> Result<()> {
        let begun = Instant::now();
        let written = self.write_rows(context, machine);
        let metrics = &context.metrics;
        metrics.add_time(TaskMetric::WriteTime, begun.elapsed());
        written
    }

    fn write_rows(&mut self, context: &SessionContext, machine: &TaskMachine) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let batch = open.converter.finish()?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = match &mut open.changes {
            Some(changes) => changes.numbered(&batch)?,
            None => batch,
        };
        let writer = match &mut open.writer {
            Some(writer) => writer,
            None => {
                let settings = writer_settings(context, &self.config, open, machine, self.index);
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
    pub(super) fn close_files(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
    ) -> Result<()> {
        self.guarded(machine, |table, machine| {
            table.write_out(context, machine)?;
            if let Some(open) = &mut table.open {
                open.pending.close()?;
            }
            if let Some(open) = &mut table.open
                && let Some(writer) = open.writer.take()
            {
                open.closed.push(ClosedFiles {
                    layout: Layout::of(&open.loaded.metadata),
                    files: writer.seal()?,
                });
            }
            Ok(())
        })
    }

    /// Makes a segment of the open rows and sends it, once its files are durable, to the hub. An
    /// `urgent` one, and one that takes the last place in flight, does not wait for the interval.
    pub(crate) fn seal(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        urgent: bool,
    ) -> Result<()> {
        self.close_files(context, machine)?;
        let held = context.account.draw(Use::Sealed, self.ended_bytes());
        let Some(sealed) = machine.seal(self.index) else {
            return Ok(());
        };
        let Some(open) = &mut self.open else {
            return Err(SinkError::internal("rows are open in a table that is not"));
        };
        self.waiting.sealed(sealed.sequence);
        if let Some(reading) = &mut self.reading {
            reading.absent.begin();
        }
        let rows = std::mem::take(&mut open.rows);
        open.opened_round = None;
        let changes = match &mut open.changes {
            Some(changes) => {
                let name = segment_name(context, sealed.session, sealed.sequence);
                let metadata = &open.loaded.metadata;
                let mut properties = metadata.properties().clone();
                properties.extend(self.config.write_props.clone());
                let name = format!("{name}{NAME_ENDS}");
                let location = beside_data(metadata.location(), &properties, name)?;
                Some((changes.seal(), location))
            }
            None => None,
        };
        let work = SealWork {
            files: std::mem::take(&mut open.closed),
            pending: open.pending.take(),
            changes,
            loaded: open.loaded.clone(),
            wid: context.config.wid.clone(),
            branch: self.config.branch.clone(),
            topic_ids: context.topic_ids.borrow().clone(),
            rows,
            epoch: machine.epoch(),
            sealed,
        };
        let urgent = urgent || machine.is_congested(self.index);
        self.spawn(context, work, held, urgent);
        Ok(())
    }

    fn spawn(&self, context: &SessionContext, work: SealWork, held: Draw, urgent: bool) {
        let segment = (work.sealed.session, work.sealed.sequence);
        let index = self.index;
        let hub = Arc::clone(&self.hub);
        let inbox = context.inbox.clone();
        let table = self.config.name.clone();
        let task = context.runtime.handle().spawn(work.run());
        context.runtime.handle().spawn(async move {
            let result = task.await;
            drop(held);
            let error = match result {
                Ok(Ok((segment, sight))) => {
                    count_segment(&hub, &segment);
                    hub.submit(segment, sight, urgent);
                    return failpoint::cut("seal.after-submit");
                }
                Ok(Err(error)) => may_pass(error),
                Err(_) => SinkError::internal("sealing a segment panicked"),
            };
            let error = error.with("table", table);
            // A session that is gone needs no news: its records are read again.
            let _ = inbox.send(Inbound::SealFailed(SealFailure {
                segment,
                table: index,
                error,
            }));
        });
    }

    /// The segment `sequence` is in a snapshot.
    pub(super) fn count_durable(&mut self, sequence: u64) {
        let metrics = self.hub.metrics();
        metrics.add(TableMetric::Durable, 1);
        if let Some(since_ms) = self.waiting.durable(sequence) {
            let waited = u64::try_from(wall_ms() - since_ms).unwrap_or(0);
            let waited = Duration::from_millis(waited);
            metrics.values().add_time(TableMetric::DurableTime, waited);
        }
    }

    /// A commit of this table succeeded, and this is known of the table after it.
    pub(crate) fn committed(&mut self, machine: &mut TaskMachine, after: After) {
        let Some(open) = &self.open else {
            return;
        };
        let before = TableStamp::of(&open.loaded.metadata);
        match after {
            After::Unknown => {}
            After::Table(loaded) => {
                if TableStamp::of(&loaded.metadata) != before {
                    self.newer = Some(*loaded);
                }
            }
            After::Stamp(stamp) => {
                if stamp != before {
                    machine.table_changed(self.index);
                }
            }
        }
    }
}

fn count_segment(hub: &TableHub, segment: &Segment) {
    let files = segment.manifests.iter().map(|one| one.counts.data_files);
    for (metric, count) in [
        (TableMetric::Segments, 1),
        (TableMetric::RowsWritten, segment.rows),
        (TableMetric::FilesWritten, files.sum()),
        (TableMetric::BytesWritten, segment.bytes),
    ] {
        hub.metrics().add(metric, count);
    }
}
