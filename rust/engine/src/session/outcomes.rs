//! Carrying out what the machine decides between records: seals, drains, and starting over.
//!
//! Keeps: nothing is sealed by a session that has failed or has to start over, since a segment could
//! carry its table past a row that is missing (R4, R15).

use std::sync::Arc;
use std::time::{Duration, Instant};

use frazil_core::control::task::{Begun, StartOver, Verdict};
use frazil_core::metrics::TaskMetric;
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::{Effects, LogLevel};
use frazil_core::{ErrorKind, Result};
use uuid::Uuid;

use super::{Inbound, Inner, PUT_PART};
use crate::failpoint;
use crate::hub::{self, Outcome};

impl Inner {
    /// A put begins.
    pub(super) fn tick(&mut self, effects: &mut Effects) -> Result<()> {
        if std::mem::take(&mut self.pre_committed) {
            failpoint::pass("task.after-pre-commit")?;
        }
        let put_wait = Duration::from_millis(self.config.poll_interval_ms) / PUT_PART;
        self.context.waits_until.set(Instant::now() + put_wait);
        self.drain_inbox();
        let begun = self.machine.tick(self.context.now_ms(), Uuid::now_v7())?;
        match begun {
            Begun::Open => match self.seal_what_is_due() {
                Ok(()) => Ok(()),
                Err(error) => self.machine.recover(error),
            },
            Begun::Drains => {
                let session = self.machine.session();
                self.tables.iter().for_each(|table| table.drain(session));
                Ok(())
            }
            Begun::Waits => Ok(()),
            Begun::Anew(start_over) => {
                self.start_over(start_over, effects);
                Ok(())
            }
        }
    }

    fn seal_what_is_due(&mut self) -> Result<()> {
        for table in &mut self.tables {
            if let Some(urgent) = table.due(&self.hub, &self.machine) {
                table.seal(&self.context, &mut self.machine, urgent)?;
            }
        }
        self.relieve()
    }

    /// Gives partitions up: seals their rows and waits a little for the commits, so that the next
    /// owner does not read them again.
    pub(super) fn revoke(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        if self.machine.must_drain(partitions) {
            self.drain()?;
        }
        self.machine.revoke(partitions);
        Ok(())
    }

    /// Seals everything and waits for the commits.
    pub(super) fn drain(&mut self) -> Result<()> {
        self.drain_inbox();
        if !self.machine.drain(self.context.now_ms()) {
            return Ok(());
        }
        for table in &mut self.tables {
            table.drain(self.machine.session());
            if self.machine.may_seal(table.index())
                && let Err(error) = table.seal(&self.context, &mut self.machine, true)
            {
                self.machine.failed_for_now(&error);
                return match error.kind() {
                    ErrorKind::Retriable => Ok(()),
                    _ => Err(error),
                };
            }
        }
        while let Some(left) = self.machine.drain_left(self.context.now_ms()) {
            let left = Duration::from_millis(left);
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

    pub(super) fn drain_inbox(&mut self) {
        while let Ok(inbound) = self.outcomes.try_recv() {
            self.receive(inbound);
        }
    }

    fn receive(&mut self, inbound: Inbound) {
        match inbound {
            Inbound::Outcome(outcome) => self.receive_outcome(outcome),
            Inbound::SealFailed(failure) => {
                self.context.metrics.add(TaskMetric::SealFailures, 1);
                let (session, sequence) = failure.segment;
                self.machine
                    .seal_failed(session, failure.table, sequence, &failure.error);
            }
        }
    }

    fn receive_outcome(&mut self, outcome: Outcome) {
        let Some(table) = self
            .tables
            .iter_mut()
            .find(|table| *table.key() == outcome.table)
        else {
            return;
        };
        let verdict = match outcome.verdict {
            hub::Verdict::Durable(after) => {
                if outcome.session == self.machine.session() {
                    table.count_durable(outcome.sequence);
                    table.committed(&mut self.machine, after);
                }
                Verdict::Durable
            }
            hub::Verdict::Rejected { reason, absent } => {
                // Read again, these records are errors. A reason that says nothing new counts as others do.
                match table.note_absent(absent.records(), &self.machine) {
                    true => Verdict::SetAside(reason),
                    false => Verdict::Rejected(reason),
                }
            }
            hub::Verdict::Expired => Verdict::Expired,
            hub::Verdict::Fenced { epoch } => Verdict::Fenced { epoch },
            hub::Verdict::Failed(error) => Verdict::Failed(Arc::new(error)),
        };
        let is_durable = matches!(verdict, Verdict::Durable);
        let (session, sequence) = (outcome.session, outcome.sequence);
        self.machine
            .outcome(session, table.index(), sequence, verdict);
        if is_durable {
            failpoint::cut("session.after-result");
        }
    }

    /// Drops what is open, and asks the framework to deliver it again.
    fn start_over(&mut self, begun: StartOver, effects: &mut Effects) {
        self.context.metrics.add(TaskMetric::StartOvers, 1);
        for table in &mut self.tables {
            table.start_over(begun.ended, begun.session, &self.context);
        }
        // Not through the ring, which another task's answer might empty: this belongs to the rewinds.
        let line = format!(
            "the session starts over from its durable offsets connector={} task={} session={} \
             rewinds={} reason={}",
            self.config.connector,
            self.config.task,
            begun.session,
            begun.rewinds.len(),
            begun.reason
        );
        effects.log.push((LogLevel::Warn, line));
        effects.rewinds = begun.rewinds;
    }
}
