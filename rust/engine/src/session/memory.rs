//! Keeping the memory of a task within its part of the process's pool.
//!
//! Within a `put` files may be ended early, which turns rows into uploads, but nothing may be
//! sealed: records that this `put` rejected are not with the dead letter queue yet (R4). A frame is
//! taken only while there is room: what is held is never more than what the pool allows and one frame.
//!
//! A task that has to give back comes down to its low water, all that it holds taken together, for only
//! then does it go on. Ending files is enough, as long as most of what is held is rows: the largest are
//! ended first, so that the files that end early are worth having, and the rest goes on growing. What
//! describes ended files goes only with a segment; when that is too much, or all there is to give, tables
//! are sealed before their time.

use std::time::{Duration, Instant};

use frazil_core::control::writer::TableIndex;
use frazil_core::limits::FRAME_BUFFER_KEPT;
use frazil_core::memory::{Answer, ROOM_WANTED, Use};
use frazil_core::metrics::TaskMetric;
use frazil_core::{Result, SinkError};

use super::Inner;
use super::table::TableSlot;
use crate::memory::Standing;

/// How long a frame waits for memory before Connect is asked to deliver it again later.
const ROOM_WAIT: Duration = Duration::from_secs(2);
const ROOM_POLL: Duration = Duration::from_millis(5);
/// Decoded rows whose memory is kept for the next frame.
const DECODED_KEPT: usize = 8 << 20;
/// Bytes of rows that become uploads before the pool hears of it.
const SHRINK_STEP: u64 = 1 << 20;
/// The part of a task's share that descriptions of ended files may take.
const ENDED_PART: u64 = 4;

impl Inner {
    /// Returns the bytes that the task holds.
    pub(super) fn memory_held(&self) -> u64 {
        self.note_memory();
        self.context.account.held()
    }

    /// Tells the pool what the task holds. What is on its way counts itself.
    fn note_memory(&self) {
        let mut held = [
            (Use::Frames, self.frame_buffer),
            (Use::Decoding, self.decoded_bytes),
            (Use::Builders, 0),
            (Use::Gathered, 0),
            (Use::OpenFiles, 0),
            (Use::EndedFiles, 0),
        ];
        for (what, bytes) in self.tables.iter().flat_map(TableSlot::uses) {
            let place = held.iter_mut().find(|(one, _)| *one == what);
            place.into_iter().for_each(|(_, sum)| *sum += bytes);
        }
        self.context.account.note(&held);
    }

    /// Notes what one decoded frame takes.
    pub(super) fn decoded(&mut self, bytes: usize) {
        self.decoded_bytes = bytes as u64;
        let decoded = (Use::Decoding, self.decoded_bytes);
        self.context.account.note(&[decoded]);
    }

    /// Gives the task's place up.
    pub(super) fn leave_memory(&mut self) {
        (self.frame_buffer, self.decoded_bytes) = (0, 0);
        self.note_memory();
        self.context.account.leave();
    }

    fn standing(&self, bytes: u64) -> Standing {
        self.note_memory();
        self.context.account.ask(bytes)
    }

    /// Java hands a frame over in a buffer of `bytes`.
    pub(super) fn frame_begins(&mut self, bytes: u64) {
        self.frame_buffer = bytes;
    }

    /// A frame was taken, or not: what only it needed is let go.
    pub(super) fn frame_ends(&mut self) {
        self.frame_buffer = self.frame_buffer.min(FRAME_BUFFER_KEPT as u64);
        let mut decoded = 0;
        if let Some(decoder) = &mut self.decoder {
            if decoder.bytes() > DECODED_KEPT {
                decoder.release();
            }
            decoded = decoder.bytes();
        }
        self.decoded_bytes = decoded as u64;
    }

    /// A put begins: gives memory back, when there is too little.
    pub(super) fn relieve(&mut self) -> Result<()> {
        let standing = self.standing(ROOM_WANTED);
        let gives_back = self.back_pressure.observe(&standing);
        self.log_memory(&standing);
        self.observe_stall(&standing);
        if !gives_back {
            return Ok(());
        }
        let holdings = self.tables.iter().map(|table| Holding {
            table: table.index(),
            resident: table.resident_bytes(),
            ended: table.ended_bytes(),
            // When commits are held up, the rows wait for theirs in the storage.
            may_seal: self.machine.may_seal(table.index()),
        });
        let early = sealed_early(&standing, holdings.collect());
        for table in &early {
            if let Some(table) = self.tables.get_mut(*table) {
                table.seal(&self.context, &mut self.machine, false)?;
            }
        }
        let standing = match early.is_empty() {
            true => standing,
            false => self.standing(ROOM_WANTED),
        };
        self.shrink(&standing)
    }

    /// Pauses while more waits for commits that do not come than the task may hold in memory. The files of
    /// these rows are in the storage, so that memory alone would let them be ever more; if the task ends,
    /// all of them are written again.
    fn observe_stall(&mut self, standing: &Standing) {
        let now = Instant::now();
        let machine = &self.machine;
        let tables = self.tables.iter_mut();
        let waiting: u64 = tables.map(|table| table.stalled_bytes(machine, now)).sum();
        let stalls = waiting > standing.share;
        if self.back_pressure.stall(stalls) {
            let what = match stalls {
                true => "the task pauses: its tables are not committed, check the catalog",
                false => "the task goes on: its tables are committed",
            };
            tracing::warn!(connector = %self.config.connector, task = self.config.task,
                waiting, share = standing.share, "{what}");
        }
    }

    /// Ends files when the task has to give back.
    pub(super) fn shrink_to_share(&mut self) -> Result<()> {
        let standing = self.standing(ROOM_WANTED);
        match self.back_pressure.observe(&standing) {
            true => self.shrink(&standing),
            false => Ok(()),
        }
    }

    /// Ends files, so that all that does not go by itself is down at the low water. The table that holds
    /// most goes first.
    fn shrink(&mut self, standing: &Standing) -> Result<()> {
        let mut excess = standing.excess();
        let mut order: Vec<(u64, usize)> = self
            .tables
            .iter()
            .enumerate()
            .map(|(at, table)| (table.resident_bytes(), at))
            .collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        for (_, at) in order {
            while excess > 0
                && let Some(table) = self.tables.get_mut(at)
            {
                let step = excess.min(SHRINK_STEP);
                let given = table.shrink(&self.context, &mut self.machine, step)?;
                // Rows that became uploads are no rows any more: the pool hears of it at once.
                self.note_memory();
                if given == 0 {
                    break;
                }
                excess = excess.saturating_sub(given);
            }
        }
        Ok(())
    }

    /// Waits a little for uploads, or for other tasks, when there is no room for a frame of `bytes`.
    ///
    /// # Errors
    ///
    /// `MEMORY_FULL` (retriable) when there is none still. Nothing was taken then.
    pub(super) fn make_room(&mut self, bytes: u64) -> Result<()> {
        let limit = (Instant::now() + ROOM_WAIT).min(self.context.waits_until.get());
        loop {
            let standing = self.standing(bytes);
            if standing.answer == Answer::Granted {
                return Ok(());
            }
            if self.back_pressure.observe(&standing) {
                self.shrink(&standing)?;
            }
            if Instant::now() >= limit {
                return Err(self.no_room(&standing));
            }
            std::thread::sleep(ROOM_POLL);
        }
    }

    fn no_room(&self, standing: &Standing) -> SinkError {
        self.context.metrics.add(TaskMetric::MemoryFull, 1);
        let account = &self.context.account;
        let pool = account.memory().usage();
        SinkError::retriable(
            "MEMORY_FULL",
            "uploads are slower than the records; they are taken when there is room: check the \
             storage, or raise `frazil.memory.max.bytes`",
        )
        .with("held", standing.held)
        .with("share", standing.share)
        .with("uses", account.uses())
        .with("pool", pool.capacity)
        .with("pool-held", pool.held)
    }

    /// Says that the task pauses, and how much native memory the process has come to need, now and then.
    fn log_memory(&mut self, standing: &Standing) {
        if let Some(pauses) = self.back_pressure.take_news(Instant::now()) {
            let what = match pauses {
                true => "the task pauses until there is memory",
                false => "the task goes on: there is memory",
            };
            tracing::info!(connector = %self.config.connector, task = self.config.task,
                held = standing.held, share = standing.share,
                uses = %self.context.account.uses(), "{what}");
        }
        if let Some(usage) = self.context.account.memory().news() {
            tracing::info!(connector = %self.config.connector, task = self.config.task,
                pool = usage.capacity, peak = usage.peak, held = usage.held, uses = %usage.uses,
                "native memory of the process");
        }
    }
}

/// What one table holds.
#[derive(Debug, Clone, Copy)]
struct Holding {
    table: TableIndex,
    /// Rows and open files.
    resident: u64,
    /// What describes files that ended.
    ended: u64,
    may_seal: bool,
}

/// Returns the tables to seal before their time, those with most descriptions first: when all tables'
/// together are too many, or when ending files would not give back enough.
fn sealed_early(standing: &Standing, mut tables: Vec<Holding>) -> Vec<TableIndex> {
    let resident: u64 = tables.iter().map(|one| one.resident).sum();
    let ended: u64 = tables.iter().map(|one| one.ended).sum();
    let most = standing.share / ENDED_PART;
    let mut missing = match ended > most {
        // Some are left, so that the next ones do not mean another round of commits at once.
        true => ended - most / 2,
        false => 0,
    };
    missing = missing.max(standing.excess().saturating_sub(resident));
    tables.retain(|one| one.may_seal && one.ended > 0);
    tables.sort_by_key(|one| std::cmp::Reverse(one.ended));
    let mut chosen = Vec::new();
    for one in tables {
        if missing == 0 {
            break;
        }
        missing = missing.saturating_sub(one.ended);
        chosen.push(one.table);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(held: u64) -> Standing {
        Standing {
            answer: Answer::GiveBack,
            held,
            leaving: 0,
            share: 400,
            low_water: 300,
        }
    }

    fn tables(held: &[(u64, u64)]) -> Vec<Holding> {
        let tables = held.iter().enumerate();
        let holding = |(table, (resident, ended)): (usize, &(u64, u64))| Holding {
            table,
            resident: *resident,
            ended: *ended,
            may_seal: true,
        };
        tables.map(holding).collect()
    }

    #[test]
    fn tables_are_sealed_early_for_what_they_have_together() {
        let few = tables(&[(300, 50), (0, 40), (20, 10)]);
        assert_eq!(sealed_early(&standing(420), few), Vec::<usize>::new());
        // A hundred is a quarter of the share: none of the tables has it alone.
        let many = tables(&[(60, 15), (60, 30), (60, 20), (60, 25), (60, 11)]);
        assert_eq!(sealed_early(&standing(401), many), [1, 3]);
        let one = tables(&[(60, 0), (0, 101)]);
        assert_eq!(sealed_early(&standing(401), one), [1]);
    }

    #[test]
    fn tables_are_sealed_early_when_ending_files_is_not_enough() {
        let held = tables(&[(10, 40), (9, 50), (0, 0)]);
        assert_eq!(
            sealed_early(&standing(319), held.clone()),
            Vec::<usize>::new()
        );
        assert_eq!(sealed_early(&standing(320), held.clone()), [1]);
        assert_eq!(sealed_early(&standing(370), held.clone()), [1, 0]);
        assert_eq!(
            sealed_early(&standing(900), held),
            [1, 0],
            "no more have any"
        );
    }

    #[test]
    fn a_table_whose_commits_are_held_up_is_not_sealed() {
        let mut held = tables(&[(0, 200), (0, 90)]);
        held[0].may_seal = false;
        assert_eq!(sealed_early(&standing(400), held), [1]);
    }
}
