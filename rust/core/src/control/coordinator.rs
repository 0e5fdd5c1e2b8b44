//! The coordinator of one table: which segments are committed when, and what their sessions hear.
//!
//! ```text
//!           offer                   poll                    settle
//!  session ──────► queue ──(round)──────► commit in flight ────────► told
//!                    ▲                          │ blocked
//!                    └──────── back-off ◄───────┘
//! ```
//!
//! A table gets one snapshot per interval: a segment that is late for the commit of its interval
//! waits for the next one, so never longer than an interval and a gather. Only a session that waits
//! for its commit (an *urgent* segment) does not wait for the interval.
//!
//! Keeps R9 and R15 (through [`TableQueue`]) and R11. A session hears of its segments in their
//! order. One commit at a time; what it commits is decided on the table itself, so that two
//! coordinators of one table are as safe as one.
//!
//! Time: `now_ms` never goes back, and processes that agree on it agree on the intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

pub use super::queue::Offer;
use super::queue::{TableQueue, Waiting};
use super::segment::Segment;
use crate::commit::outcome::{SegmentOutcome, final_code};
use crate::commit::validate::RejectReason;
use crate::error::SinkError;
use crate::limits::HELD_BYTES_MAX;
use crate::rules::{Rule, enforced};

/// How long a table waits for the other sessions' segments of the same interval: at least this, if
/// the interval is four times as long.
const GATHER_MIN_MS: u64 = 1_000;
/// Long intervals may gather longer, up to this part of them.
const GATHER_PART: u64 = 30;
/// Pauses between attempts on a table that refuses commits.
const BLOCKED_PAUSE_MS: (u64, u64) = (1_000, 60_000);

/// What a coordinator has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinatorSettings {
    /// Milliseconds between two commits of the table.
    pub interval_ms: u64,
    /// How long the table may refuse commits before the sessions fail.
    pub block_max_ms: u64,
    /// Bytes of waiting segments beyond which no more are taken.
    pub held_bytes_max: usize,
}

impl CoordinatorSettings {
    /// Returns the settings for a commit interval, with everything else as usual.
    pub fn with_interval(interval_ms: u64) -> Self {
        CoordinatorSettings {
            interval_ms: interval_ms.max(1),
            block_max_ms: 900_000,
            held_bytes_max: HELD_BYTES_MAX,
        }
    }

    fn round(&self, now_ms: u64) -> u64 {
        now_ms / self.interval_ms.max(1)
    }

    fn gather_ms(&self) -> u64 {
        (self.interval_ms / 4).min(GATHER_MIN_MS.max(self.interval_ms / GATHER_PART))
    }
}

/// What became of a segment.
#[derive(Debug)]
pub enum Verdict {
    /// The table has its rows.
    Durable {
        /// The snapshot that brought them; `None` when the table had them before.
        snapshot_id: Option<i64>,
    },
    /// It can never be committed; its session is dead.
    Rejected(RejectReason),
    /// It waited too long (R11); its session is dead.
    Expired,
    /// The offsets were reset after its session began.
    Fenced {
        /// The table's writer epoch.
        epoch: u64,
    },
    /// The table refused commits for too long.
    Failed(SinkError),
}

impl Verdict {
    /// Tells whether the table has the segment's rows.
    pub fn is_durable(&self) -> bool {
        matches!(self, Verdict::Durable { .. })
    }
}

/// A verdict and whom it is for.
#[derive(Debug)]
pub struct Told {
    /// The session that sealed the segment.
    pub session: Uuid,
    /// The segment's number.
    pub seq: u64,
    /// What became of it.
    pub verdict: Verdict,
}

/// What a coordinator wants.
#[derive(Debug)]
pub enum Next {
    /// Nothing before this time or the next input; `None` means that only an input matters.
    Wait {
        /// When to ask again.
        until_ms: Option<u64>,
    },
    /// Commit these segments and [`settle`](TableCoordinator::settle) them.
    Commit(Vec<Segment>),
    /// Tell the sessions, and ask again.
    Tell(Vec<Told>),
}

#[derive(Debug, Default)]
enum Flight {
    #[default]
    None,
    /// A commit runs.
    Committing {
        since_ms: u64,
        pause_ms: u64,
        /// Somebody else coordinates the table by now: what is blocked is theirs to try again.
        abandoned: bool,
    },
    /// The table refused; the same segments are tried again.
    Blocked {
        segments: Vec<Segment>,
        since_ms: u64,
        pause_ms: u64,
        until_ms: u64,
    },
}

/// Coordinates the commits of one table and branch.
#[derive(Debug)]
pub struct TableCoordinator {
    settings: CoordinatorSettings,
    queue: TableQueue,
    flight: Flight,
    /// When the segments that are with the commit, or blocked, are too old, and their bytes.
    away: BTreeMap<(Uuid, u64), (u64, usize)>,
    /// The interval in which the first row came of each announced segment that was not offered yet.
    open: BTreeMap<(Uuid, u64), u64>,
    /// The interval of the last offer of each session that announces nothing.
    offered: BTreeMap<Uuid, u64>,
    announcing: BTreeSet<Uuid>,
    /// Since when a segment is ready.
    ready_since_ms: Option<u64>,
    /// The interval of the last commit that was not urgent.
    last_round: Option<u64>,
}

impl TableCoordinator {
    /// Creates the coordinator of a table that nobody has offered anything for.
    pub fn new(settings: CoordinatorSettings) -> Self {
        TableCoordinator {
            settings,
            queue: TableQueue::default(),
            flight: Flight::None,
            away: BTreeMap::new(),
            open: BTreeMap::new(),
            offered: BTreeMap::new(),
            announcing: BTreeSet::new(),
            ready_since_ms: None,
            last_round: None,
        }
    }

    /// `session` holds rows of its segment `sequence` since `now_ms`: the commit of that interval
    /// waits for them.
    pub fn opened(&mut self, session: Uuid, sequence: u64, now_ms: u64) {
        let round = self.settings.round(now_ms);
        self.announcing.insert(session);
        self.offered.remove(&session);
        self.open.entry((session, sequence)).or_insert(round);
    }

    /// The announced segment `sequence` of `session` was sealed and went to another coordinator.
    pub fn handed_over(&mut self, session: Uuid, sequence: u64) {
        self.open.remove(&(session, sequence));
    }

    /// Tells what an offer of the segment `seq` of `session` would come to, if that is known without
    /// looking at its files.
    pub fn known(&mut self, session: Uuid, seq: u64, urgent: bool) -> Option<Offer> {
        if self.queue.is_dead(session) {
            return Some(Offer::Dead);
        }
        if let Some(waiting) = self.queue.get_mut(session, seq) {
            waiting.urgent |= urgent;
            return Some(Offer::Duplicate);
        }
        if self.away.contains_key(&(session, seq)) {
            return Some(Offer::Duplicate);
        }
        self.queue.is_done(session, seq).then_some(Offer::Done)
    }

    /// Takes in a segment that may wait for `expires_in_ms`. An `urgent` one does not wait for the
    /// interval.
    pub fn offer(
        &mut self,
        segment: Segment,
        urgent: bool,
        expires_in_ms: u64,
        now_ms: u64,
    ) -> Offer {
        let was_ready = self.queue.is_ready();
        self.queue.heard(segment.session, segment.first_unacked);
        let offer = self.admit(segment, urgent, expires_in_ms, now_ms);
        if !was_ready && self.queue.is_ready() {
            self.ready_since_ms = Some(now_ms);
        }
        offer
    }

    fn admit(&mut self, segment: Segment, urgent: bool, expires_in_ms: u64, now_ms: u64) -> Offer {
        let (session, seq) = (segment.session, segment.seq);
        self.open.remove(&(session, seq));
        if let Some(known) = self.known(session, seq, urgent) {
            return known;
        }
        let bytes = segment.memory_bytes();
        if self.held_bytes().saturating_add(bytes) > self.settings.held_bytes_max {
            return Offer::Full;
        }
        if !self.announcing.contains(&session) {
            self.offered.insert(session, self.settings.round(now_ms));
        }
        self.queue.offer(Waiting {
            segment,
            urgent,
            expires_at_ms: now_ms.saturating_add(expires_in_ms),
            bytes,
        })
    }

    /// `session` waits for its commits: what it has here is urgent.
    pub fn drain(&mut self, session: Uuid) {
        let own = self.queue.iter_mut();
        own.filter(|waiting| waiting.segment.session == session)
            .for_each(|waiting| waiting.urgent = true);
    }

    /// Forgets `session` and what it still had waiting; returns how many segments that were. A
    /// commit in flight may still succeed; the table's state tells later.
    pub fn leave(&mut self, session: Uuid) -> usize {
        self.open.retain(|(opened_by, _), _| *opened_by != session);
        self.announcing.remove(&session);
        self.offered.remove(&session);
        self.queue.end_session(session).len()
    }

    /// Somebody else coordinates the table from now on: forgets what waits, and returns how many
    /// segments that were. A commit in flight goes on.
    pub fn step_down(&mut self) -> usize {
        let mut blocked = 0;
        match &mut self.flight {
            Flight::None => {}
            Flight::Committing { abandoned, .. } => *abandoned = true,
            Flight::Blocked { segments, .. } => {
                blocked = segments.len();
                self.away.clear();
                self.flight = Flight::None;
            }
        }
        self.offered.clear();
        self.last_round = None;
        blocked + self.queue.clear()
    }

    /// Returns about how many bytes the segments take that are here.
    pub fn held_bytes(&self) -> usize {
        self.queue.bytes() + self.away.values().map(|(_, bytes)| bytes).sum::<usize>()
    }

    /// Tells whether nothing is here: neither a segment that waits nor a commit.
    pub fn is_idle(&self) -> bool {
        !self.queue.is_ready() && matches!(self.flight, Flight::None)
    }

    /// Says what to do at `now_ms`.
    pub fn poll(&mut self, now_ms: u64) -> Next {
        if matches!(self.flight, Flight::Committing { .. }) {
            return Next::Wait { until_ms: None };
        }
        let expired = self.expire(now_ms);
        if !expired.is_empty() {
            return Next::Tell(expired);
        }
        if let Flight::Blocked { until_ms, .. } = &self.flight {
            let until_ms = *until_ms;
            if now_ms >= until_ms {
                return self.retry();
            }
            return self.wait(Some(until_ms));
        }
        match self.due_ms(now_ms) {
            Some(due_ms) if due_ms <= now_ms => self.commit(now_ms),
            due_ms => self.wait(due_ms),
        }
    }

    fn wait(&mut self, until_ms: Option<u64>) -> Next {
        let waiting = self.queue.iter_mut().map(|waiting| waiting.expires_at_ms);
        let away = self.away.values().map(|(expires_at_ms, _)| *expires_at_ms);
        let expiry = waiting.chain(away).min();
        Next::Wait {
            until_ms: until_ms.into_iter().chain(expiry).min(),
        }
    }

    /// Returns when the ready segments are to be committed.
    fn due_ms(&self, now_ms: u64) -> Option<u64> {
        let ready_since_ms = self.ready_since_ms.filter(|_| self.queue.is_ready())?;
        if self.queue.ready().iter().any(|waiting| waiting.urgent) {
            return Some(now_ms);
        }
        let interval_ms = self.settings.interval_ms.max(1);
        let round = self.settings.round(now_ms);
        let begin_ms = round.saturating_mul(interval_ms);
        if self.last_round == Some(round) {
            return Some(begin_ms.saturating_add(interval_ms));
        }
        if !self.awaits(round) {
            return Some(now_ms);
        }
        Some(
            begin_ms
                .max(ready_since_ms)
                .saturating_add(self.settings.gather_ms()),
        )
    }

    /// Tells whether a session still owes a segment to the commit of interval `round`: it announced
    /// rows of an earlier interval, or it offered a segment in the interval before.
    fn awaits(&self, round: u64) -> bool {
        let before = round.saturating_sub(1);
        self.open.values().any(|opened| *opened < round)
            || (round > 0 && self.offered.values().any(|offered| *offered == before))
    }

    fn commit(&mut self, now_ms: u64) -> Next {
        let batch = self.queue.take_batch();
        self.ready_since_ms = None;
        if !batch.iter().any(|waiting| waiting.urgent) {
            self.last_round = Some(self.settings.round(now_ms));
        }
        let round = self.settings.round(now_ms);
        self.offered.retain(|_, offered| *offered + 1 >= round);
        self.flight = Flight::Committing {
            since_ms: now_ms,
            pause_ms: BLOCKED_PAUSE_MS.0,
            abandoned: false,
        };
        let mut segments = Vec::with_capacity(batch.len());
        for waiting in batch {
            let key = (waiting.segment.session, waiting.segment.seq);
            self.away
                .insert(key, (waiting.expires_at_ms, waiting.bytes));
            segments.push(waiting.segment);
        }
        Next::Commit(segments)
    }

    /// Tries the blocked segments again, but for those of sessions that ended meanwhile: were they
    /// committed after a rejected one of their session, the table would have a hole (R15).
    fn retry(&mut self) -> Next {
        let Flight::Blocked {
            segments,
            since_ms,
            pause_ms,
            ..
        } = std::mem::take(&mut self.flight)
        else {
            return Next::Wait { until_ms: None };
        };
        let (dead, living): (Vec<Segment>, Vec<Segment>) = segments
            .into_iter()
            .partition(|segment| self.queue.is_dead(segment.session));
        let flight = match living.is_empty() {
            true => Flight::None,
            false => Flight::Committing {
                since_ms,
                pause_ms,
                abandoned: false,
            },
        };
        if dead.is_empty() {
            self.flight = flight;
            return Next::Commit(living);
        }
        let rejected = dead.iter().map(|segment| {
            self.away.remove(&(segment.session, segment.seq));
            told(segment, Verdict::Rejected(RejectReason::SessionRejected))
        });
        let rejected = rejected.collect();
        if !living.is_empty() {
            // Asked again, the living ones are due at once.
            self.flight = Flight::Blocked {
                segments: living,
                since_ms,
                pause_ms,
                until_ms: 0,
            };
        }
        Next::Tell(rejected)
    }

    /// Takes the outcomes of a commit in, by the indexes of its segments, and returns what the
    /// sessions have to hear, each in the order of its segments.
    pub fn settle(
        &mut self,
        batch: &[Segment],
        outcomes: Vec<(usize, SegmentOutcome)>,
        now_ms: u64,
    ) -> Vec<Told> {
        let (since_ms, pause_ms, abandoned) = match std::mem::take(&mut self.flight) {
            Flight::Committing {
                since_ms,
                pause_ms,
                abandoned,
            } => (since_ms, pause_ms, abandoned),
            _ => (now_ms, BLOCKED_PAUSE_MS.0, false),
        };
        let mut news = Vec::new();
        let mut blocked: Vec<Segment> = Vec::new();
        let mut reason = None;
        for (index, outcome) in outcomes {
            let Some(segment) = batch.get(index) else {
                continue;
            };
            let session = segment.session;
            let behind = blocked.iter().any(|earlier| earlier.session == session);
            match outcome {
                SegmentOutcome::Blocked(error) => {
                    reason.get_or_insert(error);
                    blocked.push(segment.clone());
                }
                // A session hears of its segments in their order; this one is asked for again.
                outcome if behind && outcome.is_done() => blocked.push(segment.clone()),
                outcome => news.extend(self.decided(segment, outcome)),
            }
        }
        let Some(reason) = reason.filter(|_| !abandoned) else {
            self.away.clear();
            return news;
        };
        let kept: BTreeSet<(Uuid, u64)> = blocked.iter().map(|s| (s.session, s.seq)).collect();
        self.away.retain(|key, _| kept.contains(key));
        let waited_ms = now_ms.saturating_sub(since_ms);
        let is_final = final_code(reason.code()).is_some();
        if is_final || waited_ms >= self.settings.block_max_ms {
            news.extend(self.give_up(&blocked, waited_ms, &reason));
            return news;
        }
        self.flight = Flight::Blocked {
            segments: blocked,
            since_ms,
            pause_ms: pause_ms.saturating_mul(2).min(BLOCKED_PAUSE_MS.1),
            until_ms: now_ms.saturating_add(pause_ms),
        };
        news
    }

    fn decided(&mut self, segment: &Segment, outcome: SegmentOutcome) -> Option<Told> {
        let verdict = match outcome {
            SegmentOutcome::Durable { snapshot_id } => Verdict::Durable {
                snapshot_id: Some(snapshot_id),
            },
            SegmentOutcome::Covered => Verdict::Durable { snapshot_id: None },
            SegmentOutcome::Rejected(reason) => Verdict::Rejected(reason),
            SegmentOutcome::Fenced { epoch } => Verdict::Fenced { epoch },
            SegmentOutcome::Blocked(_) => return None,
        };
        if !verdict.is_durable() {
            self.end(segment.session);
        }
        Some(told(segment, verdict))
    }

    /// Ends `session`, which starts over under another id once it has heard why.
    fn end(&mut self, session: Uuid) {
        self.offered.remove(&session);
        self.queue.end_session(session);
    }

    /// Fails the sessions of `blocked`. Their later segments must not pass these.
    fn give_up(
        &mut self,
        blocked: &[Segment],
        elapsed_ms: u64,
        reason: &Arc<SinkError>,
    ) -> Vec<Told> {
        self.away.clear();
        let minutes = elapsed_ms / 60_000;
        let fail = |segment: &Segment| {
            self.end(segment.session);
            let error = match final_code(reason.code()) {
                Some(code) => SinkError::fatal(code, reason.report()),
                None => SinkError::fatal(
                    "TABLE_BLOCKED",
                    format!(
                        "the table refused commits for {minutes} minutes: {}",
                        reason.report()
                    ),
                ),
            };
            let error = error.with("table", &segment.table);
            told(segment, Verdict::Failed(error))
        };
        blocked.iter().map(fail).collect()
    }

    /// Ends the sessions of segments that waited too long: their files may be taken for orphans
    /// one day, so that a commit must never name them after that (R11).
    fn expire(&mut self, now_ms: u64) -> Vec<Told> {
        if !enforced(Rule::Expiry) {
            return Vec::new();
        }
        let waiting = self.queue.iter_mut();
        let waiting = waiting.filter(|waiting| waiting.expires_at_ms <= now_ms);
        let mut expired: Vec<(Uuid, u64)> = waiting
            .map(|waiting| (waiting.segment.session, waiting.segment.seq))
            .collect();
        let away = self.away.iter().filter(|(_, (at_ms, _))| *at_ms <= now_ms);
        expired.extend(away.map(|(key, _)| *key));
        expired.sort_unstable();
        let mut news = Vec::new();
        for (session, seq) in expired {
            if let Flight::Blocked { segments, .. } = &mut self.flight {
                segments.retain(|segment| (segment.session, segment.seq) != (session, seq));
                if segments.is_empty() {
                    self.flight = Flight::None;
                }
            }
            self.away.remove(&(session, seq));
            self.end(session);
            news.push(Told {
                session,
                seq,
                verdict: Verdict::Expired,
            });
        }
        news
    }
}

fn told(segment: &Segment, verdict: Verdict) -> Told {
    Told {
        session: segment.session,
        seq: segment.seq,
        verdict,
    }
}

#[cfg(test)]
#[path = "coordinator_tests.rs"]
mod tests;
