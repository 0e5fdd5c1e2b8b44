//! Taking in a frame.
//!
//! The order is what keeps records from being lost. First comes everything that may fail for
//! reasons outside the records; then the rows go to their tables; only then are their offsets
//! read. If a table fails half-way, for a reason that may pass, the session starts over and has the
//! whole frame delivered again. Until it does, nothing more is taken in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use frazil_core::control::task::TaskMachine;
use frazil_core::control::writer::TableIndex;
use frazil_core::metrics::TaskMetric;
use frazil_core::wire::{BareValues, Effects, Frame, Rejected};
use frazil_core::{Result, SinkError};

use super::Inner;
use super::routes::Shares;
use super::rows::AppendRows;
use crate::failpoint;

impl Inner {
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<Effects> {
        let mut effects = Effects::default();
        let frame = {
            let schemas = &self.schemas;
            Frame::decode(bytes, &|id| schemas.get(id))?
        };
        if frame.rows() == 0 {
            return Ok(effects);
        }
        self.count_frame(&frame, bytes.len());
        for run in frame.runs() {
            self.machine.begins(&run.partition, run.first_offset());
        }
        if !self.machine.is_open() {
            effects.pause = true;
            return Ok(effects);
        }
        if let Err(error) = self.take(&frame, bytes.len() as u64, &mut effects) {
            self.machine.recover(error)?;
            // All of the frame comes again.
            effects.rejected.clear();
        }
        effects.pause = self.is_paused();
        Ok(effects)
    }

    fn take(&mut self, frame: &Frame<'_>, bytes: u64, effects: &mut Effects) -> Result<()> {
        let begun = Instant::now();
        let room = self.make_room(bytes);
        let metrics = &self.context.metrics;
        metrics.add_time(TaskMetric::RoomTime, begun.elapsed());
        room?;
        let new = new_rows(&self.machine, frame);
        self.count_repeated(frame, &new);
        match self.decoder.take() {
            None => self.take_rows(frame.clone(), Taken::all(&new), effects)?,
            Some(mut decoder) => {
                let taken = self.take_decoded(&mut decoder, frame, &new, effects);
                self.decoder = Some(decoder);
                taken?;
            }
        }
        failpoint::cut("session.after-append");
        for run in frame.runs() {
            let rows = run.first_row..run.first_row + run.rows;
            let newest_ms = rows.filter_map(|row| frame.timestamp(row)).max();
            let offsets = (run.first_offset(), run.last_offset());
            self.machine.read(&run.partition, offsets, newest_ms);
        }
        Ok(())
    }

    /// Takes those rows of a frame whose values are known. Their offsets are not read yet.
    pub(super) fn take_rows(
        &mut self,
        frame: Frame<'_>,
        taken: Taken<'_>,
        effects: &mut Effects,
    ) -> Result<()> {
        let config = Arc::clone(&self.config);
        let name = config.value_column.as_deref();
        let bare = match name {
            Some(name) => BareValues::of(&frame, name)?,
            None => None,
        };
        let frame = &match (name, &bare) {
            (_, Some(bare)) => bare.frame(&frame),
            (Some(name), None) => frame.with_values_in(name),
            (None, None) => frame,
        };
        let (rows, nulls) = taken.rows(frame);
        let mut shares = self.shares(frame, &rows, &nulls)?;
        shares.refused.extend(taken.refused);
        let keys = (!shares.key_rows.is_empty()).then(|| frame.keys_as_values());
        self.prepare(frame, &shares.rows)?;
        if let Some(keys) = &keys {
            self.prepare(keys, &shares.key_rows)?;
        }
        let before = self.context.metrics.values.get(TaskMetric::WriteTime);
        let begun = Instant::now();
        let appended = self.append((frame, taken.first), keys.as_ref(), shares, effects);
        self.count_converting(begun, before);
        if appended.is_err() {
            // One table may have rows of the frame that another has not.
            self.machine.spoil_all();
        }
        appended
    }

    /// Gets the tables ready that take rows; the others may wait.
    fn prepare(&mut self, frame: &Frame<'_>, shares: &[(TableIndex, Vec<u32>)]) -> Result<()> {
        for (table, rows) in shares {
            if let Some(table) = self.tables.get_mut(*table) {
                table.prepare(&self.context, &mut self.machine, frame, rows)?;
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        (frame, first): (&Frame<'_>, usize),
        keys: Option<&Frame<'_>>,
        shares: Shares,
        effects: &mut Effects,
    ) -> Result<()> {
        let mut rejected = shares.refused;
        let of_values = shares.rows.iter().map(|share| (frame, share));
        let of_keys = shares.key_rows.iter();
        let of_keys = of_keys.filter_map(|share| Some((keys?, share)));
        for (frame, (table, rows)) in of_values.chain(of_keys) {
            if let Some(table) = self.tables.get_mut(*table) {
                table.append(
                    &self.context,
                    &self.hub,
                    &mut self.machine,
                    &AppendRows { frame, rows },
                    &mut rejected,
                )?;
            }
        }
        if rejected.is_empty() && shares.rows.is_empty() && shares.key_rows.is_empty() {
            return Ok(());
        }
        self.shrink_to_share()?;
        self.report_rejected((frame, first), rejected, effects)
    }

    fn report_rejected(
        &self,
        (frame, first): (&Frame<'_>, usize),
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
            let row = u32::try_from(first).unwrap_or(u32::MAX).saturating_add(row);
            let rejected = Rejected::new(row, &run.partition, offset, &error);
            effects.rejected.push(rejected);
        }
        Ok(())
    }
}

/// Rows of a frame, or of a part of one, that are to be taken.
#[derive(Debug)]
pub(super) struct Taken<'n> {
    /// Where the part begins in the frame that Java sent.
    pub(super) first: usize,
    /// For each row of the part, whether it was not read before.
    pub(super) new: &'n [bool],
    /// New rows whose bytes were refused. They are skipped rows of the part.
    pub(super) refused: BTreeMap<u32, SinkError>,
}

impl<'n> Taken<'n> {
    fn all(new: &'n [bool]) -> Self {
        Taken {
            first: 0,
            new,
            refused: BTreeMap::new(),
        }
    }

    /// Returns the rows with a value and those without.
    fn rows(&self, frame: &Frame<'_>) -> (Vec<u32>, Vec<u32>) {
        let (mut rows, mut nulls) = (Vec::with_capacity(frame.rows()), Vec::new());
        let may_be_null = frame.may_have_tombstones();
        for (row, new) in self.new.iter().enumerate() {
            if *new && !frame.is_skipped(row) {
                match may_be_null && frame.is_tombstone(row) {
                    true => nulls.extend(u32::try_from(row)),
                    false => rows.extend(u32::try_from(row)),
                }
            }
        }
        (rows, nulls)
    }
}

/// Says of each row whether it was not read before, and Java could encode it.
fn new_rows(machine: &TaskMachine, frame: &Frame<'_>) -> Vec<bool> {
    let mut new = Vec::with_capacity(frame.rows());
    let mut intake = machine.intake();
    for run in frame.runs() {
        let mut intake = intake.run(&run.partition);
        for index in 0..run.rows {
            let is_new = intake.is_new(run.offset(index));
            new.push(is_new && !frame.is_skipped(run.first_row + index));
        }
    }
    new
}
