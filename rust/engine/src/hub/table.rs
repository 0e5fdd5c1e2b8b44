//! The part of a hub that serves one table: its coordinator, and the loop that commits.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use frazil_core::SinkError;
use frazil_core::commit::outcome::{SegmentOutcome, final_code};
use frazil_core::control::coordinator::{self, CoordinatorSettings, Next, TableCoordinator, Told};
use frazil_core::control::message::{Answer, TableName, TableStamp};
use frazil_core::control::segment::Segment;
use frazil_core::metrics::TableMetric;
use frazil_core::panics::panic_error;
use futures::FutureExt;
use tokio::sync::Notify;
use uuid::Uuid;

use super::clock::HubClock;
use super::remote::Link;
use super::{After, Hub, Outcome, OutcomeSink, TableKey, Verdict, lock};
use crate::catalog::LoadedTable;
use crate::commit::{Sight, TableCommitter};
use crate::failpoint;
use crate::metrics::TableMetrics;

pub(super) use frazil_core::control::coordinator::Offer;

/// The part of the hub that serves one table.
pub struct TableHub {
    key: TableKey,
    name: TableName,
    clock: HubClock,
    interval_ms: u64,
    ttl_ms: u64,
    coordinator: Mutex<TableCoordinator>,
    sessions: Mutex<BTreeMap<Uuid, OutcomeSink>>,
    /// The control topic, if segments go over it.
    link: Option<Arc<Link>>,
    committer: TableCommitter,
    wake: Notify,
}

impl fmt::Debug for TableHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableHub")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// What a table's part takes over from its hub.
pub(super) struct TableSettings {
    pub(super) clock: HubClock,
    pub(super) coordinator: CoordinatorSettings,
    pub(super) ttl_ms: u64,
    pub(super) link: Option<Arc<Link>>,
}

impl TableHub {
    pub(super) fn new(key: TableKey, committer: TableCommitter, settings: TableSettings) -> Self {
        TableHub {
            name: TableName::new(&key.ident.0, key.branch.clone()),
            key,
            clock: settings.clock,
            interval_ms: settings.coordinator.interval_ms,
            ttl_ms: settings.ttl_ms,
            coordinator: Mutex::new(TableCoordinator::new(settings.coordinator)),
            sessions: Mutex::default(),
            link: settings.link,
            committer,
            wake: Notify::new(),
        }
    }

    /// Returns the table and branch.
    pub fn key(&self) -> &TableKey {
        &self.key
    }

    /// Returns where what happens to the table is counted.
    pub(crate) fn metrics(&self) -> &Arc<TableMetrics> {
        self.committer.metrics()
    }

    pub(super) fn committer(&self) -> &TableCommitter {
        &self.committer
    }

    /// Registers where the outcomes of `session` go: that of `task`, which writes with `epoch`.
    pub fn join(&self, session: Uuid, task: usize, epoch: u64, outcomes: OutcomeSink) {
        lock(&self.sessions).insert(session, outcomes);
        if let Some(link) = &self.link {
            let task = u32::try_from(task).unwrap_or(u32::MAX);
            let name = self.name.clone();
            link.with(|channel| channel.join(session, task, epoch, name, self.interval_ms));
        }
    }

    /// `session` holds rows of its segment `sequence` since interval `round`: the commit of that
    /// interval waits for them.
    pub fn opened(&self, session: Uuid, sequence: u64, round: u64) {
        let since_ms = round.saturating_mul(self.interval_ms);
        lock(&self.coordinator).opened(session, sequence, since_ms);
    }

    /// Hands over a segment that this process has just sealed, and what it knows of it. An `urgent`
    /// one does not wait for the interval.
    pub fn submit(&self, segment: Segment, sight: Sight, urgent: bool) {
        if self.commits(segment.session) {
            self.committer.saw(segment.session, segment.seq, sight);
        }
        let Some(link) = &self.link else {
            let (session, sequence) = (segment.session, segment.seq);
            let offer = self.offer(segment, urgent, self.ttl_ms);
            if let Some(answer) = self.answer_to(offer) {
                self.answer(session, sequence, answer);
            }
            return;
        };
        let now_ms = self.clock.now_ms();
        lock(&self.coordinator).handed_over(segment.session, segment.seq);
        link.with(|channel| {
            channel.submit(Arc::new(segment), urgent, now_ms);
            channel.offer(now_ms);
        });
        link.dispatch();
    }

    /// Tells whether this process commits for `session`, which is one of its own.
    fn commits(&self, session: Uuid) -> bool {
        let is_here = lock(&self.sessions).contains_key(&session);
        let leads = |link: &Arc<Link>| link.with(|channel| channel.is_leader());
        is_here && self.link.as_ref().is_none_or(leads)
    }

    /// Returns the number of segments of which it is remembered when they were seen.
    #[cfg(test)]
    pub(crate) fn known_segments(&self) -> usize {
        self.committer.known_segments()
    }

    /// Offers a segment to the coordinator.
    pub(super) fn offer(&self, segment: Segment, urgent: bool, expires_in_ms: u64) -> Offer {
        let now_ms = self.clock.now_ms();
        let offer = lock(&self.coordinator).offer(segment, urgent, expires_in_ms, now_ms);
        self.wake.notify_one();
        offer
    }

    /// Tells what an offer of a segment would come to, without its files.
    pub(super) fn known(&self, session: Uuid, sequence: u64, urgent: bool) -> Option<Offer> {
        let known = lock(&self.coordinator).known(session, sequence, urgent);
        if urgent {
            self.wake.notify_one();
        }
        known
    }

    /// Returns what a session has to hear at once of the segment that it offered.
    pub(super) fn answer_to(&self, offer: Offer) -> Option<Answer> {
        match offer {
            Offer::Accepted | Offer::Duplicate | Offer::Held { .. } => None,
            Offer::Done => Some(Answer::Durable {
                snapshot_id: None,
                stamp: self.stamp(),
            }),
            Offer::Dead => Some(Answer::unseen("its session has ended")),
            // Over the topic it comes again; the segments of this process are few by their limit.
            Offer::Full if self.link.is_some() => None,
            Offer::Full => Some(Answer::unseen("too many segments wait for their commit")),
        }
    }

    /// `session` waits for its commits: they do not wait for the interval.
    pub fn drain(&self, session: Uuid) {
        match &self.link {
            None => self.drain_here(session),
            Some(link) => {
                let now_ms = self.clock.now_ms();
                link.with(|channel| {
                    channel.drain(session);
                    channel.offer(now_ms);
                });
                link.dispatch();
            }
        }
    }

    pub(super) fn drain_here(&self, session: Uuid) {
        lock(&self.coordinator).drain(session);
        self.wake.notify_one();
    }

    /// Forgets `session` and what it still had waiting. A commit in flight may still succeed; the
    /// table's state tells later.
    pub fn leave(&self, session: Uuid) {
        lock(&self.sessions).remove(&session);
        if let Some(link) = &self.link {
            link.with(|channel| channel.leave(session, &self.name));
        }
        self.leave_here(session);
    }

    pub(super) fn leave_here(&self, session: Uuid) {
        let dropped = lock(&self.coordinator).leave(session);
        self.committer.forget(session);
        if dropped > 0 {
            tracing::info!(table = %self.key.ident.0, session = %session, segments = dropped,
                "segments dropped with their session; their files stay for the orphan job");
        }
        self.wake.notify_one();
    }

    /// Another process coordinates from now on.
    pub(super) fn step_down(&self) {
        self.committer.end_term();
        let dropped = lock(&self.coordinator).step_down();
        self.committer.forget_all();
        if dropped > 0 {
            tracing::info!(table = %self.key.ident.0, segments = dropped,
                "another process commits from now on; it gets the waiting segments again");
        }
    }

    /// Tells a session of this process what became of a segment.
    pub(super) fn answer(&self, session: Uuid, sequence: u64, answer: Answer) {
        let verdict = match answer {
            Answer::Durable { stamp, .. } => Verdict::Durable(self.after(stamp)),
            Answer::Rejected { reason, absent } => Verdict::Rejected { reason, absent },
            Answer::Expired => Verdict::Expired,
            Answer::Fenced { epoch } => Verdict::Fenced { epoch },
            Answer::Blocked { reason } => {
                let code = final_code(&reason).unwrap_or("TABLE_BLOCKED");
                let error = SinkError::fatal(code, reason);
                Verdict::Failed(error.with("table", &self.key.ident.0))
            }
            Answer::Missing => return,
        };
        if let Some(outcomes) = lock(&self.sessions).get(&session) {
            outcomes(Outcome {
                session,
                table: self.key.clone(),
                sequence,
                verdict,
            });
        }
    }

    /// Returns the table as this process committed it, if that is what the stamp says.
    fn after(&self, stamp: Option<TableStamp>) -> After {
        let Some(stamp) = stamp else {
            return After::Unknown;
        };
        match self.committer.latest() {
            Some(latest) if TableStamp::of(&latest.metadata) == stamp => {
                After::Table(Box::new(latest))
            }
            _ => After::Stamp(stamp),
        }
    }

    fn stamp(&self) -> Option<TableStamp> {
        let latest = self.committer.latest()?;
        Some(TableStamp::of(&latest.metadata))
    }

    /// Returns the table to check the files of another process against.
    pub(super) async fn loaded(&self, uuid: Uuid, fresh: bool) -> Result<LoadedTable, SinkError> {
        match self.committer.latest() {
            Some(latest) if !fresh && latest.metadata.uuid() == uuid => Ok(latest),
            _ => Ok(self.committer.load().await?.0),
        }
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }
}

/// The loop that commits one table.
pub(super) struct Actor {
    pub(super) hub: Weak<Hub>,
    pub(super) table: Arc<TableHub>,
}

impl Actor {
    pub(super) async fn run(self) {
        loop {
            let now_ms = self.table.clock.now_ms();
            let next = lock(&self.table.coordinator).poll(now_ms);
            match next {
                Next::Commit(batch) => self.commit(&batch).await,
                Next::Tell(news) => self.tell(news),
                // Without a hub nobody waits for outcomes any more.
                Next::Wait { .. } if self.hub.strong_count() == 0 => return,
                Next::Wait { until_ms } => self.wait(now_ms, until_ms).await,
            }
        }
    }

    async fn wait(&self, now_ms: u64, until_ms: Option<u64>) {
        let woken = self.table.wake.notified();
        let Some(until_ms) = until_ms else {
            return woken.await;
        };
        let pause = Duration::from_millis(until_ms.saturating_sub(now_ms));
        // Whatever ends the wait, the coordinator is asked again.
        let _ = tokio::time::timeout(pause, woken).await;
    }

    async fn commit(&self, batch: &[Segment]) {
        let outcomes = match failpoint::pass("hub.before-commit") {
            Ok(()) => self.attempt(batch).await,
            Err(error) => blocked(batch, error),
        };
        let refused = outcomes.iter().find_map(|(_, outcome)| match outcome {
            SegmentOutcome::Blocked(reason) => Some(reason),
            _ => None,
        });
        if let Some(reason) = refused {
            let metrics = self.table.metrics();
            metrics.add(TableMetric::CommitFailures, 1);
            metrics.values().set(TableMetric::Refusing, 1);
            tracing::warn!(table = %self.table.key.ident.0, reason = %reason.report(),
                "the table refuses commits; its offsets wait");
        }
        let now_ms = self.table.clock.now_ms();
        let news = lock(&self.table.coordinator).settle(batch, outcomes, now_ms);
        // Over the topic a result may be lost; inside a process nothing is.
        let is_lost = failpoint::pass("hub.before-result").is_err();
        if !is_lost || self.table.link.is_none() {
            self.tell(news);
        }
        if failpoint::pass("hub.after-result").is_err() {
            tracing::warn!(table = %self.table.key.ident.0, "a chaos run failed after a result");
        }
    }

    /// Commits a batch. A bug that panics must not end this loop, for then nobody would ever hear of
    /// the table again; what became of the batch is read from the table at the next attempt.
    async fn attempt(&self, batch: &[Segment]) -> Vec<(usize, SegmentOutcome)> {
        let committing = self.table.committer.commit(batch.to_vec());
        let committed = AssertUnwindSafe(committing).catch_unwind().await;
        committed.unwrap_or_else(|panic| blocked(batch, panic_error(&*panic, None)))
    }

    fn tell(&self, news: Vec<Told>) {
        for told in news {
            let answer = self.answer(told.verdict);
            match &self.table.link {
                None => self.table.answer(told.session, told.seq, answer),
                Some(link) => {
                    let name = self.table.name.clone();
                    link.with(|channel| channel.answer(told.session, name, told.seq, answer));
                }
            }
        }
        if let Some(link) = &self.table.link {
            link.dispatch();
        }
    }

    fn answer(&self, verdict: coordinator::Verdict) -> Answer {
        match verdict {
            coordinator::Verdict::Durable { snapshot_id } => Answer::Durable {
                snapshot_id,
                stamp: self.table.stamp(),
            },
            coordinator::Verdict::Rejected(reason) => Answer::rejected(&reason),
            coordinator::Verdict::Expired => Answer::Expired,
            coordinator::Verdict::Fenced { epoch } => Answer::Fenced { epoch },
            coordinator::Verdict::Failed(error) => Answer::Blocked {
                reason: Answer::reason(error.message()),
            },
        }
    }
}

fn blocked(batch: &[Segment], error: SinkError) -> Vec<(usize, SegmentOutcome)> {
    let error = Arc::new(error);
    (0..batch.len())
        .map(|index| (index, SegmentOutcome::Blocked(Arc::clone(&error))))
        .collect()
}
