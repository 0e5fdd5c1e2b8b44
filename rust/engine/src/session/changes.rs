//! Changes of rows: what the records of a frame do to a table, and what is known of them until the
//! seal.
//!
//! ```text
//!  prepare  evaluate ─► rows behind the changes ─► masks ─► the table follows their schema
//!  append   landings ─► new rows ─► converter ─► batches, each row with the number of its change ─► files
//!                  └──► rows that lack values ─► pending files (`pending`)
//!           all changes ─► the open key run
//!  seal     numbers and files ─► where each new row lies ─► a key run in a file
//! ```
//!
//! Keeps: each record that was read is a change of the open run, was skipped and counted, or was
//! refused; each row of a file belongs to one change, and has its key.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use frazil_core::change::{Change, ChangePlan, Changes, Image, ImageRows, OldRow, Op, PendingFile};
use frazil_core::config::{EvolutionMode, TableConfig};
use frazil_core::control::task::TaskMachine;
use frazil_core::index::{KeyForm, KeyHasher, KeyNumber, Location};
use frazil_core::layout::changed::change_plan;
use frazil_core::limits::KEY_RUN_ROWS_MAX;
use frazil_core::offsets::{SourceRange, TopicPartition};
use frazil_core::wire::Frame;
use frazil_core::{Result, SinkError};
use iceberg::spec::DataFile;

use super::absent::Absent;
use super::creation::refusal;
use super::pending::{Landing, Numbers, Part, Wanted, has_deleted_rows};
use super::rows::{AppendRows, await_rows, note_written, rows_beyond_bounds};
use super::table::{SessionContext, TableSlot};
use super::truncations::Sources;
use crate::catalog::LoadedTable;
use crate::hub::Hub;
use crate::index::key_columns;
use crate::keyrun::{Effect, KeyRun, RunChange};

/// Where a new row lies until its segment is sealed.
const NOWHERE: Location = Location {
    file: u32::MAX,
    row: u32::MAX,
};
/// How long a seal waits for the second record of a change of a key; what asks for one by its size takes memory
/// meanwhile.
pub(super) const NEW_KEY_AWAITED: Duration = Duration::from_secs(5);
pub(super) const NEW_KEY_AWAITED_FULL: Duration = Duration::from_secs(1);
/// Deletes from a table that does not exist.
const NO_TABLE: &str = "no-table";

/// How a slot reads changes.
#[derive(Debug)]
pub(super) struct Reading {
    /// Tells operations and rows apart before the table is known.
    keyless: ChangePlan,
    /// What the frame at hand changes, until it is appended.
    evaluated: Option<Evaluated>,
    /// Records that changed nothing, by the reason, since they were last asked for.
    skipped: BTreeMap<&'static str, u64>,
    /// Where the changes of the table come from.
    pub(super) sources: RefCell<Sources>,
    /// Changes that lack values which no row has.
    pub(super) absent: Absent,
}

/// What some rows of a frame change.
#[derive(Debug)]
pub(super) struct Evaluated {
    rows: Vec<u32>,
    pub(super) changes: Changes,
    /// The new rows, as records of their own.
    pub(super) after: ImageRows,
    /// The rows that were deleted, where they stay and the records have them.
    pub(super) deleted: Option<ImageRows>,
    /// Which rows have one.
    pub(super) upserts: Vec<u32>,
}

/// The changes of an open table.
#[derive(Debug)]
pub(super) struct OpenChanges {
    pub(super) plan: ChangePlan,
    hasher: KeyHasher,
    form: KeyForm,
    pub(super) run: KeyRun,
    /// For each row that the converter holds, its change in the run.
    numbers: Vec<u32>,
    /// The source partitions of the run.
    partitions: Vec<TopicPartition>,
    /// Since when the record is awaited that says which key a removed row has now.
    awaits_since: Option<Instant>,
}

/// The changes of a sealed segment.
#[derive(Debug)]
pub(super) struct SealedChanges {
    pub(super) run: KeyRun,
    pub(super) form: KeyForm,
    /// The columns of the key and their classes.
    pub(super) key: String,
    partitions: Vec<TopicPartition>,
}

impl Reading {
    pub(super) fn new(config: &TableConfig) -> Option<Reading> {
        let changes = config.changes.clone()?;
        Some(Reading {
            keyless: ChangePlan::keyless(changes),
            evaluated: None,
            skipped: BTreeMap::new(),
            sources: RefCell::default(),
            absent: Absent::default(),
        })
    }

    /// Forgets the frame at hand.
    pub(super) fn clear(&mut self) {
        self.evaluated = None;
    }

    /// Returns how many records changed nothing since this was asked last, by the reason.
    pub(super) fn take_skipped(&mut self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.skipped)
    }

    fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }
}

impl Evaluated {
    fn of(plan: &mut ChangePlan, frame: &Frame<'_>, rows: &[u32]) -> Result<Evaluated> {
        let mut changes = Changes::default();
        plan.evaluate(frame, rows, &mut changes)?;
        let after = changes.image(plan, frame, Image::After)?;
        let stay = plan.config().soft_delete.is_some() && has_deleted_rows(&changes);
        let deleted = match stay {
            true => Some(changes.image(plan, frame, Image::Deleted)?),
            false => None,
        };
        let upserts = changes.changes().iter();
        let upserts = upserts.filter(|change| change.image == Image::After);
        Ok(Evaluated {
            rows: rows.to_vec(),
            upserts: upserts.map(|change| change.row).collect(),
            changes,
            after,
            deleted,
        })
    }
}

impl OpenChanges {
    /// Begins to take changes of a table; `None` when rows are appended to it.
    ///
    /// # Errors
    ///
    /// When it has no key that rows can be found by.
    pub(super) fn new(loaded: &LoadedTable, config: &TableConfig) -> Result<Option<OpenChanges>> {
        let Some(plan) = change_plan(&loaded.metadata, config)? else {
            return Ok(None);
        };
        let form = KeyForm::of(plan.key().bytes_max());
        Ok(Some(OpenChanges {
            hasher: KeyHasher::new(form, loaded.metadata.uuid()),
            form,
            plan,
            run: KeyRun::default(),
            numbers: Vec::new(),
            partitions: Vec::new(),
            awaits_since: None,
        }))
    }

    /// Takes over the changes of the same table under another schema, whose rows are all in files.
    ///
    /// # Errors
    ///
    /// `CHANGE_KEY_CHANGED` when its keys are others now.
    pub(super) fn continues(&mut self, before: OpenChanges) -> Result<()> {
        let same = self.form == before.form
            && self.plan.key().fingerprint() == before.plan.key().fingerprint();
        if !same && !before.run.is_empty() {
            return Err(SinkError::fatal(
                "CHANGE_KEY_CHANGED",
                "the columns of the key are others than those by which changes were gathered: \
                 restart the task, which reads these records again",
            ));
        }
        self.run = before.run;
        self.numbers = before.numbers;
        self.partitions = before.partitions;
        self.awaits_since = before.awaits_since;
        Ok(())
    }

    /// Returns the bytes of memory that the changes take.
    pub(super) fn bytes(&self) -> usize {
        self.run.memory_bytes() + self.numbers.capacity() * size_of::<u32>()
    }

    /// Tells whether the changes should become a segment: half of what one may have is there.
    pub(super) fn is_full(&self) -> bool {
        self.run.len() >= KEY_RUN_ROWS_MAX / 2
    }

    /// Tells whether the next record most likely has the row that the last one removed: what it lacks is in
    /// that one, so that both should be in one commit. It is not waited for if it does not come within `most`.
    pub(super) fn awaits_row(&self, most: Duration) -> bool {
        let since = self.awaits_since.filter(|_| !self.is_full());
        since.is_some_and(|since| since.elapsed() < most)
    }

    /// Makes sure of room for the changes of `rows` records.
    ///
    /// # Errors
    ///
    /// `SEGMENT_FULL` (retriable) when there is none before the next seal.
    fn check_room(&self, rows: usize) -> Result<()> {
        // A change of a key counts twice.
        if self.run.len().saturating_add(rows.saturating_mul(2)) <= KEY_RUN_ROWS_MAX {
            return Ok(());
        }
        Err(SinkError::retriable(
            "SEGMENT_FULL",
            "more changes came than a segment may have, and commits are held up; they are taken when \
             there is room",
        )
        .with("changes", self.run.len()))
    }

    pub(super) fn push(
        &mut self,
        changes: &Changes,
        wanted: &Wanted,
        frame: &Frame<'_>,
        pending: &mut Numbers,
    ) -> Result<()> {
        let change = &wanted.change;
        if change.awaits_new_key {
            self.awaits_since.get_or_insert_with(Instant::now);
        } else if changes.old_key(change).is_some() {
            self.awaits_since = None;
        }
        let source = frame.source(change.row as usize);
        let (run, offset) =
            source.ok_or_else(|| SinkError::internal("a change is of no row of its frame"))?;
        let at = (self.partition(&run.partition)?, offset);
        let order = changes.order(change);
        if let Some(old) = changes.old_key(change) {
            let effect = match wanted.marks_old {
                true => {
                    pending.insert((Part::Mark, change.row), self.next_number()?);
                    Effect::Mark(NOWHERE)
                }
                false => Effect::Delete,
            };
            let moves = matches!(wanted.landing, Landing::Pending(_));
            let removed = RunChange::new(self.hasher.number(old)?, effect, at).moving(moves);
            self.run.push(&removed, changes.old_order(change))?;
        }
        let key = match change.op {
            Op::Truncate => KeyNumber(0),
            _ => self.number(changes, change)?,
        };
        let number = self.next_number()?;
        let effect = match &wanted.landing {
            Landing::None if change.op == Op::Truncate => Effect::Truncate,
            Landing::None => Effect::Delete,
            Landing::Final => {
                self.numbers.push(number);
                Effect::Upsert(NOWHERE)
            }
            Landing::Mark => {
                pending.insert((Part::Mark, change.row), number);
                Effect::Mark(NOWHERE)
            }
            Landing::Pending(_) => {
                let part = wanted.landing.part(change).unwrap_or(Part::After);
                pending.insert((part, change.row), number);
                Effect::Pending(NOWHERE)
            }
        };
        let entry = RunChange::new(key, effect, at).of_snapshot(change.is_snapshot());
        let entry = entry.leaving(effect == Effect::Delete && change.awaits_new_key);
        self.run.push(&entry, order)
    }

    fn next_number(&self) -> Result<u32> {
        u32::try_from(self.run.len())
            .map_err(|_| SinkError::internal("a segment has too many changes"))
    }

    fn number(&self, changes: &Changes, change: &Change) -> Result<KeyNumber> {
        self.hasher.number(changes.key(change))
    }

    fn partition(&mut self, partition: &TopicPartition) -> Result<u32> {
        let known = self.partitions.iter().position(|known| known == partition);
        let index = known.unwrap_or_else(|| {
            self.partitions.push(partition.clone());
            self.partitions.len() - 1
        });
        u32::try_from(index).map_err(|_| SinkError::internal("a task has too many partitions"))
    }

    /// Puts the numbers of their changes behind the rows of a batch, and checks that they have the
    /// keys of these changes: what the index finds by a file's rows is what changes name.
    ///
    /// # Errors
    ///
    /// `CHANGE_KEY_DIFFERS`.
    pub(super) fn numbered(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let numbers = std::mem::take(&mut self.numbers);
        if numbers.len() != batch.num_rows() {
            return Err(SinkError::internal("a row of a batch belongs to no change"));
        }
        let columns = key_columns(batch, self.plan.key().field_ids())
            .ok_or_else(|| SinkError::internal("a batch lacks a column of the key"))?;
        let keys = self.plan.key().rows(&columns)?;
        let mut bytes = Vec::new();
        for (row, number) in numbers.iter().enumerate() {
            let change = self.run.changes().get(*number as usize);
            let encoded = keys
                .encode(row, &mut bytes)
                .map_err(|error| differs(batch, change).caused_by(error))?;
            let key = self.hasher.number(encoded)?;
            if change.is_none_or(|change| change.key != key) {
                return Err(differs(batch, change));
            }
        }
        let number = std::sync::Arc::new(Field::new("number", DataType::UInt32, false));
        let schema = batch.schema_ref();
        let fields = schema.fields().iter().cloned().chain([number]);
        let schema = ArrowSchema::new(fields.collect::<Vec<_>>());
        let numbers: ArrayRef = std::sync::Arc::new(UInt32Array::from(numbers));
        let columns = batch.columns().iter().cloned().chain([numbers]);
        RecordBatch::try_new(schema.into(), columns.collect())
            .map_err(|error| SinkError::internal("rows cannot be numbered").caused_by(error))
    }

    /// Takes the changes out, all of whose rows are in files that have ended.
    pub(super) fn seal(&mut self) -> SealedChanges {
        self.awaits_since = None;
        SealedChanges {
            run: std::mem::take(&mut self.run),
            form: self.form,
            key: self.plan.key().fingerprint().to_owned(),
            partitions: std::mem::take(&mut self.partitions),
        }
    }
}

fn differs(batch: &RecordBatch, change: Option<&RunChange>) -> SinkError {
    let error = SinkError::fatal(
        "CHANGE_KEY_DIFFERS",
        "a new row has another key than its record: two fields of the record have the name of a \
         column of the key, or a column that is filled from elsewhere has; correct the names",
    )
    .with("rows", batch.num_rows());
    match change {
        Some(change) => error.with("offset", change.offset),
        None => error,
    }
}

impl SealedChanges {
    /// Says where the new rows lie, by the numbers of the rows of each file of the segment and of each
    /// file of its `pending` rows, and where the records came from, by the segment's ranges.
    ///
    /// # Errors
    ///
    /// `INTERNAL` when they do not fit together.
    pub(super) fn place(
        &mut self,
        files: &[Vec<u32>],
        pending: &[(DataFile, Vec<u32>)],
        ranges: &[SourceRange],
    ) -> Result<()> {
        let lost = |what: &str| SinkError::internal(format!("a change {what}"));
        let partitions = self.partitions.iter().map(|partition| {
            let found = ranges
                .iter()
                .position(|range| range.partition == *partition);
            let found = found.and_then(|found| u32::try_from(found).ok());
            found.ok_or_else(|| lost("is of no range of its segment"))
        });
        let partitions = partitions.collect::<Result<Vec<u32>>>()?;
        let described = pending.iter().map(|(file, _)| PendingFile {
            path: file.file_path().to_owned(),
            bytes: file.file_size_in_bytes(),
            rows: file.record_count(),
        });
        self.run.set_pending(described.collect());
        let changes = self.run.changes_mut();
        for (file, numbers) in (0u32..).zip(files) {
            for (row, number) in (0u32..).zip(numbers) {
                match changes.get_mut(*number as usize) {
                    Some(change) if change.effect == Effect::Upsert(NOWHERE) => {
                        change.effect = Effect::Upsert(Location { file, row });
                    }
                    _ => return Err(lost("has two rows")),
                }
            }
        }
        for (file, (_, numbers)) in (0u32..).zip(pending) {
            for (row, number) in (0u32..).zip(numbers) {
                let at = Location { file, row };
                let change = changes.get_mut(*number as usize);
                let change = change.ok_or_else(|| lost("has no number"))?;
                change.effect = match change.effect {
                    Effect::Pending(NOWHERE) => Effect::Pending(at),
                    Effect::Mark(NOWHERE) => Effect::Mark(at),
                    _ => return Err(lost("has two rows")),
                };
            }
        }
        for change in changes {
            let (Effect::Upsert(at) | Effect::Pending(at) | Effect::Mark(at)) = change.effect
            else {
                let partition = partitions.get(change.partition as usize);
                change.partition = *partition.ok_or_else(|| lost("is of no partition"))?;
                continue;
            };
            if at == NOWHERE {
                return Err(lost("has no row"));
            }
            let partition = partitions.get(change.partition as usize);
            change.partition = *partition.ok_or_else(|| lost("is of no partition"))?;
        }
        Ok(())
    }
}

impl TableSlot {
    /// As [`prepare`](TableSlot::prepare), of a table whose rows records change.
    pub(super) fn prepare_changes(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<()> {
        self.forget_frame();
        if self.is_to_open(context, machine)? {
            let seen = self.seen(frame, rows)?;
            let image = seen.after.frame(frame)?;
            self.with_mask(&image, &seen.upserts, |table, frame, rows| {
                table.open_table(context, machine, frame, rows)
            })?;
            self.masks.clear();
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let Some(changes) = &mut open.changes else {
            return Err(SinkError::internal(
                "a table with changes was opened to append",
            ));
        };
        changes.check_room(rows.len())?;
        let mut evaluated = Evaluated::of(&mut changes.plan, frame, rows)?;
        if self.config.evolution.mode != EvolutionMode::Off {
            // A key that the table does not take yet may fit once it follows.
            // Nor does a value that was left out make a column optional.
            let blanked = evaluated.changes.changes().iter();
            let mut blanked = blanked.filter(|change| change.old_row == OldRow::Columns);
            let retry = evaluated.changes.has_refused() || blanked.next().is_some();
            let seen = match retry {
                true => self.seen(frame, rows)?,
                false => evaluated,
            };
            {
                let image = seen.after.frame(frame)?;
                self.with_mask(&image, &seen.upserts, |table, frame, rows| {
                    table.follow_schema(context, machine, frame, rows)
                })?;
            }
            evaluated = match retry {
                true => {
                    self.masks.clear();
                    self.evaluate(frame, rows)?
                }
                false => seen,
            };
        }
        if let Some(reading) = &mut self.reading {
            reading.evaluated = Some(evaluated);
        }
        Ok(())
    }

    /// Forgets what was prepared and not appended.
    pub(super) fn forget_frame(&mut self) {
        self.masks.clear();
        if let Some(reading) = &mut self.reading {
            reading.clear();
        }
    }

    /// Evaluates rows without their keys.
    fn seen(&mut self, frame: &Frame<'_>, rows: &[u32]) -> Result<Evaluated> {
        let reading = self.reading.as_mut();
        let reading = reading.ok_or_else(|| SinkError::internal("no changes are read here"))?;
        Evaluated::of(&mut reading.keyless, frame, rows)
    }

    fn evaluate(&mut self, frame: &Frame<'_>, rows: &[u32]) -> Result<Evaluated> {
        let open = self.open.as_mut();
        match open.and_then(|open| open.changes.as_mut()) {
            Some(changes) => Evaluated::of(&mut changes.plan, frame, rows),
            None => self.seen(frame, rows),
        }
    }

    fn take_evaluated(&mut self, frame: &Frame<'_>, rows: &[u32]) -> Result<Evaluated> {
        let known = self.reading.as_mut();
        let known = known.and_then(|reading| reading.evaluated.take());
        match known.filter(|known| known.rows == rows) {
            Some(known) => Ok(known),
            None => self.evaluate(frame, rows),
        }
    }

    /// As [`append`](TableSlot::append), of a table whose rows records change.
    pub(super) fn append_changes(
        &mut self,
        context: &SessionContext,
        hub: &Hub,
        machine: &mut TaskMachine,
        new: &AppendRows<'_>,
        rejected: &mut BTreeMap<u32, SinkError>,
    ) -> Result<()> {
        let config = std::sync::Arc::clone(&self.config);
        let mut refuse = |row: u32, error: SinkError| {
            rejected
                .entry(row)
                .or_insert_with(|| error.with("table", &config.name));
        };
        let mut evaluated = self.take_evaluated(new.frame, new.rows)?;
        if self.open.is_none() {
            return self.refuse_changes(new, &mut evaluated, &mut refuse);
        }
        let beyond = rows_beyond_bounds(machine, self.index, new)?;
        if machine.is_blocked(self.index) {
            await_rows(machine, self.index, new.frame, &beyond);
            return Ok(());
        }
        let mut wanted = self.wanted(&mut evaluated, &beyond, &mut refuse);
        self.set_truncations_aside(new.frame, &mut wanted, &mut refuse);
        if let Some(reading) = &mut self.reading {
            reading.absent.count(wanted.len());
        }
        let wanted = self.landings(new.frame, &evaluated, wanted, &mut refuse)?;
        let wanted = self.take_changes((context, machine), new, &evaluated, wanted, &mut refuse)?;
        let rows: Vec<u32> = wanted.iter().map(|change| change.row).collect();
        let written = AppendRows {
            frame: new.frame,
            rows: &rows,
        };
        note_written(machine, self.index, &written, &BTreeSet::new());
        self.appended(context, hub, machine, !rows.is_empty())
    }

    /// There is no table: a new row says why, and there is nothing to delete.
    fn refuse_changes(
        &mut self,
        new: &AppendRows<'_>,
        evaluated: &mut Evaluated,
        refuse: &mut dyn FnMut(u32, SinkError),
    ) -> Result<()> {
        for (row, error) in evaluated.changes.take_refused() {
            refuse(row, error);
        }
        let image = evaluated.after.frame(new.frame)?;
        let mask = self.take_mask(&image, &evaluated.upserts)?;
        let masked = mask.as_ref().map(|mask| mask.frame(&image));
        let frame = masked.as_ref().unwrap_or(&image);
        if let Some(mask) = &mask {
            let judged = mask.refused_of(&evaluated.upserts);
            judged.for_each(|(row, error)| refuse(row, error));
        }
        for row in &evaluated.upserts {
            refuse(*row, refusal(&self.config, frame, *row));
        }
        let changes = evaluated.changes.changes().iter();
        let removals = changes.filter(|change| change.image != Image::After);
        let removals = removals.map(|_| NO_TABLE);
        let skipped = evaluated.changes.skipped().iter();
        let skipped = skipped.map(|(_, skip)| skip.label());
        if let Some(reading) = &mut self.reading {
            removals
                .chain(skipped)
                .for_each(|reason| reading.skip(reason));
        }
        Ok(())
    }

    /// Returns the changes that the table does not have yet, and says what became of other records.
    fn wanted(
        &mut self,
        evaluated: &mut Evaluated,
        beyond: &[u32],
        refuse: &mut dyn FnMut(u32, SinkError),
    ) -> Vec<Change> {
        let is_new = |row: u32| beyond.binary_search(&row).is_ok();
        for (row, error) in evaluated.changes.take_refused() {
            if is_new(row) {
                refuse(row, error);
            }
        }
        let changes = &evaluated.changes;
        for (row, skip) in changes.skipped() {
            if let Some(reading) = self.reading.as_mut().filter(|_| is_new(*row)) {
                reading.skip(skip.label());
            }
        }
        let all = changes.changes().iter();
        all.filter(|one| is_new(one.row)).copied().collect()
    }
}
