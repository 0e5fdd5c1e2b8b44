//! Starting over: when, from where, and how often.

use uuid::Uuid;

use super::TaskMachine;
use super::tables::TableState;
use crate::control::writer::TableIndex;
use crate::error::{ErrorKind, Result, SinkError};
use crate::offsets::TopicPartition;

/// Why a session has to start over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redo {
    /// A table took rows of the same offsets from somebody else, or is another table now.
    Rejected(String),
    /// A commit of this table found records that are errors, and that the session knows now.
    SetAside(TableIndex, String),
    /// A segment waited too long for its commit.
    Expired,
    /// The storage or the catalog failed, and may not the next time.
    Failed(String),
    /// A partition came back while rows of its last stay wait for their commit.
    Returned,
    /// A topic was deleted and made again.
    TopicMadeAgain,
}

/// How a put begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// The session goes on.
    Open,
    /// The session has to start over and waits for the answers to what it has handed over: its
    /// coordinators should not wait for the interval. Records that come meanwhile come again.
    Drains,
    /// It still waits.
    Waits,
    /// Another session began.
    Anew(StartOver),
}

/// A session ended and another one began: the driver drops all open files, and the framework reads
/// again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartOver {
    /// The session that ended: the coordinator forgets what it still has of it.
    pub ended: Uuid,
    /// The session that began.
    pub session: Uuid,
    /// Where the framework has to read again from.
    pub rewinds: Vec<(TopicPartition, i64)>,
    /// Why.
    pub reason: String,
}

impl TaskMachine {
    /// Goes on after `error`, when it may pass: if a table has not the rows any more that it should
    /// have, the session takes nothing in any more, and starts over with the next put; otherwise
    /// nothing has changed, and the framework delivers the batch again.
    ///
    /// # Errors
    ///
    /// `error` itself, when it is no reason to start over.
    pub fn recover(&mut self, error: SinkError) -> Result<()> {
        let lost = self.tables.iter().any(|table| table.spoiled);
        if error.kind() != ErrorKind::Retriable || !lost {
            return Err(error);
        }
        self.start_over_later(Redo::Failed(error.report()));
        Ok(())
    }

    /// Segment `sequence` of `table` and `session` was not handed over, since its files could not be
    /// made durable.
    pub fn seal_failed(
        &mut self,
        session: Uuid,
        table: TableIndex,
        sequence: u64,
        error: &SinkError,
    ) {
        if session == self.session() {
            self.progress.lost(table, sequence);
            self.failed_for_now(error);
        }
    }

    /// Says to wait while the session, which has to start over, may hear of segments, but not for
    /// ever: a table that takes no commits must not stop the others.
    pub(super) fn wait_for_answers(&mut self, now_ms: u64) -> Option<Begun> {
        if !self.progress.awaits_answers() {
            return None;
        }
        let Some(until_ms) = self.answers_until else {
            self.answers_until = Some(now_ms.saturating_add(self.settings.answers_max_ms));
            return Some(Begun::Drains);
        };
        (now_ms < until_ms).then_some(Begun::Waits)
    }

    /// Something failed between two puts: the next one starts over, unless `error` does not pass.
    pub fn failed_for_now(&mut self, error: &SinkError) {
        match error.kind() {
            ErrorKind::Retriable => self.start_over_later(Redo::Failed(error.report())),
            _ => self.fail(error),
        }
    }

    /// A source topic was deleted and made again: what is held, and what is known of the tables'
    /// offsets, is of another topic. The next put starts over.
    pub fn topics_changed(&mut self) {
        self.start_over_later(Redo::TopicMadeAgain);
    }

    /// The next put starts over. The first reason counts.
    pub(super) fn start_over_later(&mut self, redo: Redo) {
        self.redo.get_or_insert(redo);
    }

    /// Discards what is open and unacknowledged.
    pub(super) fn start_over(&mut self, redo: Redo, now_ms: u64, fresh: Uuid) -> Result<StartOver> {
        self.redo = None;
        self.answers_until = None;
        let counted = match &redo {
            Redo::Rejected(reason) => self.count_rejection(reason, now_ms),
            Redo::Failed(reason) => self.count_failure(reason, now_ms),
            Redo::SetAside(..) | Redo::Expired | Redo::Returned | Redo::TopicMadeAgain => Ok(()),
        };
        if let Err(error) = counted {
            self.fail(&error);
            return Err(error);
        }
        let ended = self.session();
        // A record whose dead letter may still fail comes again, whatever stands around it (R4).
        let settled = !self.awaits_dead_letters();
        let read_to = self.progress.positions();
        let rewinds = self.progress.redo(fresh, settled);
        for table in &mut self.tables {
            *table = TableState::default();
        }
        if let Redo::SetAside(table, _) = redo
            && let Some(table) = self.tables.get_mut(table)
        {
            table.again_to = Some(read_to);
        }
        Ok(StartOver {
            ended,
            session: fresh,
            rewinds,
            reason: redo.into_reason(),
        })
    }

    fn count_rejection(&mut self, reason: &str, now_ms: u64) -> Result<()> {
        let (most, window) = (
            self.settings.rejections_max,
            self.settings.rejection_window_ms,
        );
        self.rejections
            .retain(|at| now_ms.saturating_sub(*at) < window);
        self.rejections.push(now_ms);
        if self.rejections.len() <= most {
            return Ok(());
        }
        Err(SinkError::fatal(
            "WRITER_CONFLICT",
            format!(
                "started over {most} times in {} minutes; another live writer uses writer id `{}` \
                 beside {}: stop one of the two, or set `frazil.writer.id`; last reason: {reason}",
                window / 60_000,
                self.settings.writer_id,
                self.settings.owner,
            ),
        ))
    }

    fn count_failure(&mut self, reason: &str, now_ms: u64) -> Result<()> {
        let since = *self.failing_since.get_or_insert(now_ms);
        let limit = self.settings.block_max_ms;
        if now_ms.saturating_sub(since) < limit {
            return Ok(());
        }
        Err(SinkError::fatal(
            "SEGMENTS_FAIL",
            format!(
                "no segment became durable for {} minutes; check the storage; last reason: {reason}",
                limit / 60_000
            ),
        ))
    }

    /// The table's offsets were reset after this task began: this task may never write it again.
    pub(super) fn fenced(&mut self, table: TableIndex, epoch: u64) {
        let error = self.fence(table, epoch);
        self.fail(&error);
    }

    pub(super) fn fence(&self, table: TableIndex, epoch: u64) -> SinkError {
        SinkError::fatal(
            "WRITER_FENCED",
            "the table's offsets were reset after this task started; restart the connector",
        )
        .with("table", self.table_name(table))
        .with("epoch", epoch)
        .with("own", self.epoch)
    }

    /// The table took no commit for too long.
    pub(super) fn blocked(&mut self, table: TableIndex, reason: String) {
        let error = SinkError::fatal("TABLE_BLOCKED", reason).with("table", self.table_name(table));
        self.fail(&error);
    }
}

impl Redo {
    fn into_reason(self) -> String {
        match self {
            Redo::Rejected(reason) | Redo::SetAside(_, reason) | Redo::Failed(reason) => reason,
            Redo::Expired => "a segment waited too long for its commit".to_owned(),
            Redo::Returned => "a partition came back before its rows were committed".to_owned(),
            Redo::TopicMadeAgain => "a topic was deleted and made again".to_owned(),
        }
    }
}
