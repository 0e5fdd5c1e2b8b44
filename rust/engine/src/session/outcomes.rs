//! What became of segments: durable, rejected, failed; and starting over.
//!
//! Keeps: nothing is sealed by a session that has failed or has to start over, since a segment could
//! carry its table past a row that is missing (R4, R15).

use std::time::{Duration, Instant};

use frazil_core::offsets::TopicPartition;
use frazil_core::wire::{Effects, LogLevel};
use frazil_core::{ErrorKind, Result, SinkError};
use uuid::Uuid;

use super::table::TableSlot;
use super::{DRAIN_WAIT, Inbound, Inner, PUT_WAIT};
use crate::failpoint;
use crate::hub::{Outcome, Verdict};

/// Rejections within [`REJECTION_WINDOW`] after which the task gives up.
const REJECTIONS_MAX: usize = 5;
const REJECTION_WINDOW: Duration = Duration::from_secs(600);

/// Why a session has to start over.
#[derive(Debug)]
pub(super) enum Redo {
    /// A table took rows of the same offsets from somebody else, or is another table now.
    Rejected(String),
    /// The storage or the catalog failed, and may not the next time.
    Failed(String),
    /// A partition came back while rows of its last stay wait for their commit.
    Returned,
}

impl Redo {
    fn reason(&self) -> &str {
        match self {
            Redo::Rejected(reason) | Redo::Failed(reason) => reason,
            Redo::Returned => "a partition came back before its rows were committed",
        }
    }
}

impl Inner {
    /// A put begins.
    pub(super) fn tick(&mut self, effects: &mut Effects) -> Result<()> {
        self.context.waits_until.set(Instant::now() + PUT_WAIT);
        self.drained_until = None;
        self.progress.put_begins();
        self.drain_inbox();
        self.check()?;
        if let Some(redo) = self.redo.take() {
            return self.start_over(&redo, effects);
        }
        match self.seal_what_is_due() {
            Ok(()) => Ok(()),
            Err(error) => self.recover(error, effects),
        }
    }

    fn seal_what_is_due(&mut self) -> Result<()> {
        for table in &mut self.tables {
            if table.is_due(&self.hub, &self.progress) {
                table.seal(&self.context, &mut self.progress)?;
            }
        }
        self.relieve()
    }

    /// Gives partitions up: seals their rows and waits a little for the commits, so that the next
    /// owner does not read them again.
    pub(super) fn revoke(&mut self, partitions: &[TopicPartition]) -> Result<()> {
        if partitions
            .iter()
            .any(|partition| self.progress.holds(partition))
        {
            self.drain()?;
        }
        self.progress.revoke(partitions);
        Ok(())
    }

    /// Seals everything and waits for the commits.
    pub(super) fn drain(&mut self) -> Result<()> {
        self.drain_inbox();
        if self.failed.is_some() || self.redo.is_some() {
            return Ok(());
        }
        for table in &mut self.tables {
            if table.may_seal(&self.progress)
                && let Err(error) = table.seal(&self.context, &mut self.progress)
            {
                if error.kind() != ErrorKind::Retriable {
                    return Err(error);
                }
                self.start_over_later(Redo::Failed(error.report()));
                return Ok(());
            }
        }
        let limit = *self
            .drained_until
            .get_or_insert_with(|| Instant::now() + DRAIN_WAIT);
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

    pub(super) fn drain_inbox(&mut self) {
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
                    self.start_over_later(Redo::Failed(failure.error.report()));
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
                self.failing_since = None;
                if self
                    .progress
                    .durable(outcome.session, table.index(), outcome.sequence)
                {
                    self.request_commit = true;
                    failpoint::cut("session.after-result");
                }
                table.committed(loaded.map(|loaded| *loaded));
            }
            Verdict::Rejected(reason) => self.start_over_later(Redo::Rejected(reason)),
            Verdict::Failed(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &SinkError) {
        self.failed
            .get_or_insert((error.kind(), error.code(), error.report()));
    }

    /// The next put starts over. The first reason counts.
    pub(super) fn start_over_later(&mut self, redo: Redo) {
        self.redo.get_or_insert(redo);
    }

    /// Goes on after `error`, when it may pass: if a table has not the rows any more that it should
    /// have, the session starts over; otherwise nothing has changed, and Connect delivers the batch
    /// again.
    pub(super) fn recover(&mut self, error: SinkError, effects: &mut Effects) -> Result<()> {
        let lost = self.tables.iter().any(TableSlot::is_spoiled);
        if error.kind() != ErrorKind::Retriable || !lost {
            return Err(error);
        }
        effects.rejected.clear();
        self.start_over(&Redo::Failed(error.report()), effects)
    }

    /// Discards what is open and unacknowledged, and asks the framework to deliver it again.
    fn start_over(&mut self, redo: &Redo, effects: &mut Effects) -> Result<()> {
        self.redo = None;
        match redo {
            Redo::Rejected(reason) => self.count_rejection(reason)?,
            Redo::Failed(reason) => self.count_failure(reason)?,
            Redo::Returned => {}
        }
        let old = self.progress.session();
        let session = Uuid::now_v7();
        let rewinds = self.progress.redo(session);
        for table in &mut self.tables {
            table.start_over(old, session, &self.context);
        }
        // Not through the ring, which another task's answer might empty: this belongs to the rewinds.
        let line = format!(
            "the session starts over from its durable offsets connector={} task={} \
             session={session} rewinds={} reason={}",
            self.config.connector,
            self.config.task,
            rewinds.len(),
            redo.reason()
        );
        effects.log.push((LogLevel::Warn, line));
        effects.rewinds = rewinds;
        Ok(())
    }

    fn count_rejection(&mut self, reason: &str) -> Result<()> {
        let now = Instant::now();
        self.rejections
            .retain(|at| now.duration_since(*at) < REJECTION_WINDOW);
        self.rejections.push(now);
        if self.rejections.len() <= REJECTIONS_MAX {
            return Ok(());
        }
        Err(SinkError::fatal(
            "WRITER_CONFLICT",
            format!(
                "started over {REJECTIONS_MAX} times in {} minutes; another live writer uses \
                 writer id `{}`: stop it, or set `frazil.writer.id`; last reason: {reason}",
                REJECTION_WINDOW.as_secs() / 60,
                self.config.writer_id
            ),
        ))
    }

    fn count_failure(&mut self, reason: &str) -> Result<()> {
        let now = Instant::now();
        let since = *self.failing_since.get_or_insert(now);
        let limit = Duration::from_millis(self.config.control.table_block_max_ms);
        if now.duration_since(since) < limit {
            return Ok(());
        }
        Err(SinkError::fatal(
            "SEGMENTS_FAIL",
            format!(
                "no segment became durable for {} minutes; check the storage; last reason: {reason}",
                limit.as_secs() / 60
            ),
        ))
    }
}
