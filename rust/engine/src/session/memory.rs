//! Keeping the memory of a task within its budget.
//!
//! Within a `put` files may be ended early, which turns rows into uploads, but nothing may be
//! sealed: records that this `put` rejected are not with the dead letter queue yet (R4). Between
//! two puts the table that holds most is sealed. A frame is taken only while there is room: what is
//! held never exceeds the budget by more than one frame.

use std::time::{Duration, Instant};

use frazil_core::{Result, SinkError};

use super::Inner;
use super::table::TableSlot;

/// How long a frame waits for uploads before Connect is asked to deliver it again later.
const UPLOAD_WAIT: Duration = Duration::from_secs(2);
const UPLOAD_POLL: Duration = Duration::from_millis(5);

impl Inner {
    /// Returns the bytes held in rows, open files and uploads.
    pub(super) fn memory_held(&self) -> u64 {
        self.tables.iter().map(TableSlot::bytes).sum()
    }

    /// A put begins: gives memory back by a commit before its time, when there is too much.
    pub(super) fn relieve(&mut self) -> Result<()> {
        if !self.back_pressure.observe(self.memory_held()) {
            return Ok(());
        }
        let largest = self
            .tables
            .iter_mut()
            .filter(|table| self.machine.may_seal(table.index()))
            .max_by_key(|table| table.open_bytes());
        match largest {
            Some(table) => table.seal(&self.context, &mut self.machine, false),
            // Commits are held up: the rows wait for theirs in the storage.
            None => self.shrink_to_budget(),
        }
    }

    /// Ends files when the budget is exceeded and not by uploads alone, which need time and not
    /// smaller files. The table that holds most goes first.
    pub(super) fn shrink_to_budget(&mut self) -> Result<()> {
        let budget = self.config.memory_bytes_max;
        let held = self.memory_held();
        self.back_pressure.observe(held);
        let resident: u64 = self.tables.iter().map(TableSlot::resident_bytes).sum();
        let mut excess = resident.saturating_sub(budget / 2);
        if held <= budget || excess == 0 {
            return Ok(());
        }
        let mut order: Vec<&mut TableSlot> = self.tables.iter_mut().collect();
        order.sort_by_key(|table| std::cmp::Reverse(table.resident_bytes()));
        for table in order {
            let before = table.resident_bytes();
            table.shrink(&self.context, &mut self.machine, excess)?;
            excess = excess.saturating_sub(before);
            if excess == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Waits a little for uploads when there is no room for a frame.
    ///
    /// # Errors
    ///
    /// `MEMORY_FULL` (retriable) when there is none still. Nothing was taken then.
    pub(super) fn make_room(&mut self) -> Result<()> {
        let budget = self.config.memory_bytes_max;
        if self.memory_held() <= budget {
            return Ok(());
        }
        self.shrink_to_budget()?;
        let limit = (Instant::now() + UPLOAD_WAIT).min(self.context.waits_until.get());
        while self.memory_held() > budget {
            if Instant::now() >= limit {
                return Err(SinkError::retriable(
                    "MEMORY_FULL",
                    "uploads are slower than the records; they are taken when there is room: check \
                     the storage, or raise `frazil.memory.max-bytes`",
                )
                .with("held", self.memory_held())
                .with("budget", budget));
            }
            std::thread::sleep(UPLOAD_POLL);
        }
        Ok(())
    }
}
