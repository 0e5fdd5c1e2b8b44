//! Takes the changes of a frame: their rows are converted, final ones and pending ones, and all changes go
//! into the open run.
//!
//! Keeps: of a record all is taken, its row and the mark of the row that it leaves, or nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use frazil_core::change::{Change, EmptyRows, Image};
use frazil_core::control::task::TaskMachine;
use frazil_core::convert::Stop;
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::Frame;
use frazil_core::{Result, SinkError};

use super::changes::Evaluated;
use super::open::{segment_name, writer_settings};
use super::pending::{
    Block, Frames, Landing, Needed, Numbers, Wanted, pending_settings, unavailable,
};
use super::rows::{AppendRows, await_rows, stop_at};
use super::table::{SessionContext, TableSlot};
use crate::writer::TableWriter;

impl TableSlot {
    /// Tells what becomes of the row of each change, and refuses those of which nobody can.
    pub(super) fn landings(
        &self,
        frame: &Frame<'_>,
        evaluated: &Evaluated,
        wanted: Vec<Change>,
        refuse: &mut dyn FnMut(u32, SinkError),
    ) -> Result<Vec<Wanted>> {
        let Some(open) = &self.open else {
            return Ok(Vec::new());
        };
        let changes = open.changes.as_ref();
        let changes =
            changes.ok_or_else(|| SinkError::internal("a table with changes has no key"))?;
        let config = changes.plan.config();
        let key: Vec<i32> = changes.plan.key().field_ids().collect();
        let needed = Needed {
            is_soft: config.soft_delete.is_some(),
            key: &key,
            orders: &|name| config.is_ordered_by(name),
        };
        let mut landed = Vec::with_capacity(wanted.len());
        for change in wanted {
            let landing = Landing::of(&evaluated.changes, &change, &open.converter, &needed);
            let marks_old = needed.is_soft && evaluated.changes.old_key(&change).is_some();
            let landing = landing.and_then(|landing| {
                let is_final = matches!(landing, Landing::None | Landing::Final) && !marks_old;
                match self.is_absent(frame, &change) {
                    true if !is_final => {
                        let columns: Vec<&str> = evaluated.changes.unavailable(&change).collect();
                        Err(unavailable(&columns))
                    }
                    _ => Ok(landing),
                }
            });
            match landing {
                Ok(landing) => landed.push(Wanted {
                    marks_old,
                    change,
                    landing,
                }),
                Err(error) => refuse(change.row, error),
            }
        }
        Ok(landed)
    }

    /// Tells whether a commit found no row that has the values which a change lacks.
    fn is_absent(&self, frame: &Frame<'_>, change: &Change) -> bool {
        let Some(reading) = self.reading.as_ref().filter(|one| !one.absent.is_empty()) else {
            return false;
        };
        let source = frame.source(change.row as usize);
        source.is_some_and(|(run, offset)| reading.absent.contains(&run.partition, offset))
    }

    /// Takes in that the table has no rows with the values that the changes at `places` lack; tells whether
    /// that is news, for which there is room.
    pub(super) fn note_absent(
        &mut self,
        places: Vec<(TopicPartition, i64)>,
        machine: &TaskMachine,
    ) -> bool {
        let table = self.index;
        let Some(reading) = &mut self.reading else {
            return false;
        };
        let comes_again = |partition: &TopicPartition, offset: i64| {
            machine.may_come_again(table, partition, offset)
        };
        reading.absent.note(places, comes_again)
    }

    /// Forgets which records lack what no row has: their topics are others now.
    pub(super) fn forget_absent(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.absent.clear();
        }
    }

    /// Converts the new rows and adds the changes to the open run; returns those that were taken.
    pub(super) fn take_changes(
        &mut self,
        (context, machine): (&SessionContext, &mut TaskMachine),
        new: &AppendRows<'_>,
        evaluated: &Evaluated,
        mut wanted: Vec<Wanted>,
        refuse: &mut dyn FnMut(u32, SinkError),
    ) -> Result<Vec<Change>> {
        let source = new.frame;
        let image = evaluated.after.frame(source)?;
        let mask = self.take_mask(&image, &evaluated.upserts)?;
        let masked = mask.as_ref().map(|mask| mask.frame(&image));
        let frame = masked.as_ref().unwrap_or(&image);
        let mut refused = BTreeSet::new();
        if let Some(mask) = &mask {
            let upserts = wanted.iter().filter(|one| one.change.image == Image::After);
            let upserts: Vec<u32> = upserts.map(|one| one.change.row).collect();
            for (row, error) in mask.refused_of(&upserts) {
                refused.insert(row);
                refuse(row, error);
            }
            wanted.retain(|one| !refused.contains(&one.change.row));
        }
        let mut block = self.convert_pending(source, frame, evaluated, &wanted)?;
        if let Some(stop) = block.stop.take() {
            self.stop_before(machine, source, stop, &mut wanted)?;
        }
        let Some(open) = &mut self.open else {
            return Ok(Vec::new());
        };
        let upserts = wanted.iter().filter(|one| one.landing == Landing::Final);
        let upserts = upserts.map(|one| one.change.row);
        let upserts = upserts.filter(|row| !block.refused.contains_key(row));
        let upserts: Vec<u32> = upserts.collect();
        open.converter.append(frame, &upserts, &mut |row, error| {
            refused.insert(row);
            refuse(row, error);
        })?;
        if let Some(stop) = open.converter.take_stop() {
            self.stop_before(machine, source, stop, &mut wanted)?;
        }
        for (row, error) in std::mem::take(&mut block.refused) {
            if wanted.iter().any(|one| one.change.row == row) {
                refused.insert(row);
                refuse(row, error);
            }
        }
        wanted.retain(|one| !refused.contains(&one.change.row));
        let mut numbers = Numbers::new();
        if let Some(open) = &mut self.open {
            let changes = open.changes.as_mut();
            let changes = changes
                .ok_or_else(|| SinkError::internal("a table with changes was opened to append"))?;
            for one in &wanted {
                changes.push(&evaluated.changes, one, source, &mut numbers)?;
            }
            open.rows = changes.run.len() as u64;
        }
        let taken: BTreeSet<u32> = wanted.iter().map(|one| one.change.row).collect();
        self.write_pending(context, machine, block, (&numbers, &taken))?;
        Ok(wanted.into_iter().map(|one| one.change).collect())
    }

    /// A record tells of a change that the table cannot follow: the rest waits.
    fn stop_before(
        &self,
        machine: &mut TaskMachine,
        source: &Frame<'_>,
        stop: Stop,
        wanted: &mut Vec<Wanted>,
    ) -> Result<()> {
        let rest = wanted.split_off(wanted.partition_point(|one| one.change.row < stop.row));
        let rest: Vec<u32> = rest.iter().map(|one| one.change.row).collect();
        stop_at(machine, &self.config, self.index, source, stop)?;
        await_rows(machine, self.index, source, &rest);
        Ok(())
    }

    /// Converts the rows that only the commit can finish.
    fn convert_pending(
        &mut self,
        source: &Frame<'_>,
        after: &Frame<'_>,
        evaluated: &Evaluated,
        wanted: &[Wanted],
    ) -> Result<Block> {
        let is_pending =
            |one: &Wanted| one.marks_old || !matches!(one.landing, Landing::None | Landing::Final);
        if !wanted.iter().any(is_pending) {
            return Ok(Block::default());
        }
        let deleted = evaluated.deleted.as_ref();
        let deleted = deleted.map(|rows| rows.frame(source)).transpose()?;
        let deletes = wanted
            .iter()
            .filter(|one| one.change.image == Image::Deleted);
        let deletes: Vec<u32> = deletes.map(|one| one.change.row).collect();
        let mask = match &deleted {
            Some(deleted) => self.take_mask(deleted, &deletes)?,
            None => None,
        };
        let masked = mask.as_ref().zip(deleted.as_ref());
        let masked = masked.map(|(mask, deleted)| mask.frame(deleted));
        let empty = EmptyRows::of(source);
        let frames = Frames {
            after,
            deleted: masked.as_ref().or(deleted.as_ref()),
            nothing: &empty.frame(source),
        };
        let Some(open) = &mut self.open else {
            return Ok(Block::default());
        };
        let table = (&*open.loaded.metadata, &*self.config);
        let mut block = open
            .pending
            .convert(table, wanted, &frames, &open.converter)?;
        if let Some(mask) = &mask {
            block.refused.extend(mask.refused_of(&deletes));
        }
        Ok(block)
    }

    fn write_pending(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        block: Block,
        (numbers, taken): (&Numbers, &BTreeSet<u32>),
    ) -> Result<()> {
        if block.is_empty() {
            return Ok(());
        }
        self.guarded(machine, |table, machine| {
            let (index, config) = (table.index, Arc::clone(&table.config));
            let Some(open) = &mut table.open else {
                return Ok(());
            };
            let settings = writer_settings(context, &config, open, machine, index);
            let sequence = machine.progress().next_sequence(index);
            let segment = segment_name(context, machine.session(), sequence);
            let (storage, runtime) = (open.loaded.storage.clone(), context.runtime.handle());
            let writer = |number: usize| {
                let settings = pending_settings(settings.clone(), &segment, number)?;
                TableWriter::new(settings, storage.clone(), runtime.clone())
            };
            let is_taken = |row: u32| taken.contains(&row);
            open.pending.write(block, numbers, is_taken, writer)
        })
    }
}
