//! One task as a state machine: everything that it decides about offsets.
//!
//! ```text
//!            tick ── start over? ◄─ wait ◄── rejected, expired, failed, spoiled, returned
//!             │
//!  begins ─► load_due ─► table_loaded ─► intake ─► covered │ wrote ─► read
//!                                                            │
//!  pre_commit ◄── outcome ◄───────────── seal ◄── may_seal ◄─┘
//! ```
//!
//! The session of the engine and the tasks of the simulator drive the same machine. It has no
//! files, records, clocks or ids: those are the driver's, which hands in what the machine asks for.
//!
//! A session that has to start over first hears what becomes of the segments that it has handed over:
//! were the tables loaded while one of them is still being committed, the next session would write
//! the same rows again, be rejected, and start over again.
//!
//! Keeps, beyond the ledger of [`writer`](super::writer): nothing is sealed, and no offset moves,
//! once the session has failed or has to start over (R15), while a dead letter is not acknowledged
//! (R4), or when rows of a table may be missing; the epoch is the one of the settings (R7).

mod intake;
mod recovery;
mod tables;

use std::sync::Arc;

use uuid::Uuid;

use super::writer::{Sealed, TableIndex, WriterProgress};
use crate::error::{Result, SinkError};
use crate::offsets::TopicPartition;
use crate::rules::{Rule, enforced};

pub use intake::{Intake, RunIntake};
use recovery::Redo;
pub use recovery::{Begun, StartOver};
use tables::TableState;
pub use tables::{Held, LoadDue, Notice, Standing};

/// What a task does when somebody moved its group's offsets, and not through Connect's REST.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExternalChange {
    /// Says so and skips what the tables hold already.
    #[default]
    Warn,
    /// Stops.
    Fail,
}

/// What a machine needs to know of its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSettings {
    /// The connector's name.
    pub connector: String,
    /// The connector, task and host, as one text: what tells this writer from another one.
    pub owner: String,
    /// The writer id.
    pub writer_id: String,
    /// The names of the tables, in the order of their indexes.
    pub tables: Vec<String>,
    /// The writer epoch, fixed for the life of the task.
    pub epoch: u64,
    /// Segments of one table that may wait for their outcome.
    pub segments_in_flight_max: usize,
    /// Rejections within [`rejection_window_ms`](Self::rejection_window_ms) after which the task
    /// gives up.
    pub rejections_max: usize,
    /// The time in which rejections are counted.
    pub rejection_window_ms: u64,
    /// How long segments may fail before the task gives up.
    pub block_max_ms: u64,
    /// How long a revoked or stopped task waits for its last commits.
    pub drain_max_ms: u64,
    /// How long a session that has to start over waits for the answers to its segments.
    pub answers_max_ms: u64,
    /// What to do about offsets that somebody moved.
    pub external_change: ExternalChange,
}

/// What a coordinator says of a segment.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// Its rows are in the table.
    Durable,
    /// It will never be committed, for this reason: its session starts over.
    Rejected(String),
    /// It has records that are errors, for this reason: its session starts over and sets them aside, which it
    /// could not do before.
    SetAside(String),
    /// It waited too long and will not be committed (R11): its session starts over.
    Expired,
    /// The offsets were reset after this task began.
    Fenced {
        /// The writer epoch of the table.
        epoch: u64,
    },
    /// The table refused it for too long, for this reason: the task has to stop.
    Blocked(String),
    /// The task has to stop.
    Failed(Arc<SinkError>),
}

/// The decisions of one task.
#[derive(Debug, Clone)]
pub struct TaskMachine {
    settings: TaskSettings,
    progress: WriterProgress,
    tables: Vec<TableState>,
    epoch: u64,
    /// Why the session has to start over, found between two puts.
    redo: Option<Redo>,
    /// The end of the wait for what becomes of the segments of a session that has to start over.
    answers_until: Option<u64>,
    /// The error that ended the session.
    failed: Option<Arc<SinkError>>,
    /// When segments were rejected lately.
    rejections: Vec<u64>,
    /// Since when no segment could be made durable, for a reason that may pass.
    failing_since: Option<u64>,
    /// The end of the wait for the last commits, while nothing new came since it began.
    drain_until: Option<u64>,
    dead_letters_pending: bool,
    commit_wanted: bool,
    notices: Vec<Notice>,
}

impl TaskMachine {
    /// Begins session `session` of a task.
    pub fn new(settings: TaskSettings, session: Uuid) -> Self {
        TaskMachine {
            progress: WriterProgress::new(session, settings.tables.len()),
            tables: vec![TableState::default(); settings.tables.len()],
            epoch: settings.epoch,
            redo: None,
            answers_until: None,
            failed: None,
            rejections: Vec::new(),
            failing_since: None,
            drain_until: None,
            dead_letters_pending: false,
            commit_wanted: false,
            notices: Vec::new(),
            settings,
        }
    }

    /// Takes in a table that appeared later, and returns its index. Its bounds have to be
    /// [loaded](Self::load_due) before its first row, as those of any other.
    pub fn add_table(&mut self, name: &str) -> TableIndex {
        self.settings.tables.push(name.to_owned());
        self.tables.push(TableState::default());
        self.progress.add_table()
    }

    /// Returns the id of the current session.
    pub fn session(&self) -> Uuid {
        self.progress.session()
    }

    /// Returns the writer epoch that segments carry.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the ledger of offsets.
    pub fn progress(&self) -> &WriterProgress {
        &self.progress
    }

    /// Fails when the session has ended.
    ///
    /// # Errors
    ///
    /// The error that ended it.
    pub fn check(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.again()),
            None => Ok(()),
        }
    }

    /// Ends the session with `error`, unless it has ended: it seals nothing any more and its
    /// offsets stand still.
    pub fn fail(&mut self, error: &SinkError) {
        self.failed.get_or_insert_with(|| Arc::new(error.again()));
    }

    /// A put begins: the framework has done the rewinds that it was asked for. `fresh` is the id of
    /// the next session. Hand outcomes in before.
    ///
    /// # Errors
    ///
    /// The error that ended the session; `WRITER_CONFLICT` and `SEGMENTS_FAIL` when it started over
    /// too often.
    pub fn tick(&mut self, now_ms: u64, fresh: Uuid) -> Result<Begun> {
        self.drain_until = None;
        self.progress.put_begins();
        self.check()?;
        let Some(redo) = self.redo.clone() else {
            return Ok(Begun::Open);
        };
        match self.wait_for_answers(now_ms) {
            Some(wait) => Ok(wait),
            None => self.start_over(redo, now_ms, fresh).map(Begun::Anew),
        }
    }

    /// Tells whether records are taken in. When not, those that come are delivered again: tell of
    /// them by [`begins`](Self::begins) only.
    pub fn is_open(&self) -> bool {
        !self.is_held()
    }

    /// Takes over partitions. Other tasks may have committed rows of them: every table is loaded
    /// again.
    pub fn assign(&mut self, partitions: &[TopicPartition]) {
        // Whoever had them may still get rows committed: a rejection that this leads to tells of no
        // second writer. Two connectors are in two groups, and their conflicts move no partition.
        self.rejections.clear();
        if self.progress.assign(partitions) {
            self.start_over_later(Redo::Returned);
        }
        for table in &mut self.tables {
            table.others_may_have_committed(partitions);
        }
        self.commit_wanted = true;
    }

    /// Gives partitions up, [drained](Self::drain) or not. What their tables still hold may be
    /// committed later all the same.
    pub fn revoke(&mut self, partitions: &[TopicPartition]) {
        self.progress.revoke(partitions);
    }

    /// Partitions went to another task without a farewell.
    pub fn lost(&mut self, partitions: &[TopicPartition]) {
        self.progress.revoke(partitions);
    }

    /// Records of `partition` came, the first of them at offset `first`.
    pub fn begins(&mut self, partition: &TopicPartition, first: i64) {
        self.drain_until = None;
        self.progress.begins(partition, first);
    }

    /// Begins to tell the new records of a put from those that came before.
    pub fn intake(&self) -> Intake<'_> {
        Intake::new(&self.progress, self.is_open())
    }

    /// The records from offset `first` to offset `last`, with timestamps up to `newest_ms`, were
    /// read, whatever became of them: each is a row that a table [holds](Self::wrote) or
    /// [held](Self::covered) before, was rejected, or has no row.
    pub fn read(
        &mut self,
        partition: &TopicPartition,
        (first, last): (i64, i64),
        newest_ms: Option<i64>,
    ) {
        if self.is_held() {
            return self.begins(partition, first);
        }
        self.progress.read(partition, first, last);
        self.progress.seen(partition, newest_ms);
    }

    /// `table` holds, in open files, rows of `partition` from offset `lowest` to offset `highest`.
    pub fn wrote(
        &mut self,
        table: TableIndex,
        partition: &TopicPartition,
        (lowest, highest): (i64, i64),
        newest_ms: Option<i64>,
    ) {
        self.progress
            .wrote(table, partition, (lowest, highest), newest_ms);
    }

    /// Says whether a record that was read waits for the dead letter queue's acknowledgement: until
    /// it came nothing is sealed and no offset moves (R4).
    pub fn set_dead_letters_pending(&mut self, pending: bool) {
        self.dead_letters_pending = pending;
    }

    /// Tells whether a seal of `table` would make a segment now.
    pub fn may_seal(&self, table: TableIndex) -> bool {
        self.progress.has_open(table)
            && !self.is_congested(table)
            && !self.is_held()
            && !self.awaits_dead_letters()
            && !self.is_spoiled(table)
    }

    /// Tells whether no more segments of `table` may be on their way: those that are should not wait
    /// for the interval.
    pub fn is_congested(&self, table: TableIndex) -> bool {
        self.progress.unacked(table) >= self.settings.segments_in_flight_max
    }

    /// Tells whether all records are read again that a commit of `table` found errors among: they have waited
    /// for their commit before, and do not wait for another interval.
    pub fn hastens(&self, table: TableIndex) -> bool {
        let state = self.tables.get(table);
        let to = state.and_then(|state| state.again_to.as_ref());
        to.is_some_and(|to| self.progress.has_read(to))
    }

    /// Turns the open rows of `table` into a segment; `None` when it [may not](Self::may_seal).
    pub fn seal(&mut self, table: TableIndex) -> Option<Sealed> {
        if !self.may_seal(table) {
            return None;
        }
        if let Some(state) = self.tables.get_mut(table) {
            let progress = &self.progress;
            state.again_to.take_if(|to| progress.has_read(to));
        }
        self.progress.seal(table)
    }

    /// A coordinator answers for segment `sequence` of `table` and session `session`. What concerns
    /// another session, or not the oldest segment, counts nothing (R6). Returns whether rows became
    /// durable by it.
    pub fn outcome(
        &mut self,
        session: Uuid,
        table: TableIndex,
        sequence: u64,
        verdict: Verdict,
    ) -> bool {
        if session != self.session() && enforced(Rule::OutcomeNamed) {
            return false;
        }
        match verdict {
            Verdict::Durable => return self.durable(session, table, sequence),
            Verdict::Rejected(reason) => {
                self.progress.lost(table, sequence);
                self.start_over_later(Redo::Rejected(reason));
            }
            Verdict::SetAside(reason) => {
                self.progress.lost(table, sequence);
                self.start_over_later(Redo::SetAside(table, reason));
            }
            Verdict::Expired => {
                self.progress.lost(table, sequence);
                self.start_over_later(Redo::Expired);
            }
            Verdict::Fenced { epoch } => self.fenced(table, epoch),
            Verdict::Blocked(reason) => self.blocked(table, reason),
            Verdict::Failed(error) => self.fail(&error),
        }
        false
    }

    fn durable(&mut self, session: Uuid, table: TableIndex, sequence: u64) -> bool {
        self.failing_since = None;
        let counted = self.progress.durable(session, table, sequence);
        self.commit_wanted |= counted;
        counted
    }

    /// Answers Connect's `preCommit` for one partition: the offset that may be committed, or `None`
    /// when nothing is known yet (the framework then keeps its own).
    pub fn pre_commit(&mut self, partition: &TopicPartition, asked: i64) -> Option<i64> {
        match self.is_held() || self.awaits_dead_letters() {
            true => self.progress.durable_offset(partition, asked),
            false => self.progress.pre_commit(partition, asked),
        }
    }

    /// Tells, once, that Connect should ask for offsets soon.
    pub fn take_commit_wanted(&mut self) -> bool {
        std::mem::take(&mut self.commit_wanted)
    }

    /// Returns what people should know, once.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Tells whether giving up `partitions` needs a [`drain`](Self::drain) first.
    pub fn must_drain(&self, partitions: &[TopicPartition]) -> bool {
        partitions
            .iter()
            .any(|partition| self.progress.holds(partition))
    }

    /// The task gives partitions up or stops. Returns whether to seal every table that
    /// [may be](Self::may_seal) and to wait, at most [as long as is left](Self::drain_left).
    pub fn drain(&mut self, now_ms: u64) -> bool {
        if self.failed.is_some() || (self.redo.is_some() && !self.progress.awaits_answers()) {
            return false;
        }
        self.drain_until
            .get_or_insert(now_ms.saturating_add(self.settings.drain_max_ms));
        true
    }

    /// Returns how many milliseconds to wait still for the outcomes of the last segments; `None`
    /// when nothing is to be waited for.
    pub fn drain_left(&self, now_ms: u64) -> Option<u64> {
        let waits = match self.redo {
            Some(_) => self.progress.awaits_answers(),
            None => self.progress.holds_any(),
        };
        if self.failed.is_some() || !waits {
            return None;
        }
        let left = self.drain_until?.saturating_sub(now_ms);
        (left > 0).then_some(left)
    }

    /// Tells whether the session has failed or has to start over.
    fn is_held(&self) -> bool {
        self.failed.is_some() || self.redo.is_some()
    }

    pub(super) fn awaits_dead_letters(&self) -> bool {
        self.dead_letters_pending && enforced(Rule::DeadLettersFirst)
    }

    fn table_name(&self, table: TableIndex) -> &str {
        self.settings.tables.get(table).map_or("", String::as_str)
    }
}

#[cfg(test)]
#[path = "task/property_tests.rs"]
mod property_tests;
#[cfg(test)]
#[path = "task/tests.rs"]
mod tests;
