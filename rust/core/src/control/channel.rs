//! The control topic as one process of a connector sees it.
//!
//! ```text
//!  sessions ─ submit ─► ┌─────────┐ ─ outbox ─► topic ─ record ─► Channel of the coordinator
//!           ◄─ Told ─── │ Channel │                                 │ Offer, Remote
//!                       └─────────┘ ◄─ RESULT ─ topic ◄─ answer ─ coordinators of the tables
//! ```
//!
//! The topic is transport only. Whatever it loses is sent again: on the HELLO of a new coordinator,
//! when one asks for it, and after a while. Whatever it repeats or mixes up is seen to be known.
//! What a coordinator does with a segment is decided on the table, so two of them are harmless.
//!
//! Keeps: R12, a coordinator obeys no record before its own HELLO; R15, nothing of a session and
//! table is sent after one of their segments was lost; a session hears of its segments in their order, because it
//! counts them that way.
//!
//! Segments of the process that coordinates do not take the way over the topic.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::message::{
    Answer, Body, Hello, Ignored, Message, ResultMessage, SegmentMessage, TableName,
};
use super::segment::Segment;
use crate::rules::{Rule, enforced};

/// How long a result is waited for before a segment is sent again, at least; and the number of
/// commit intervals.
const RESEND_MS_MIN: u64 = 30_000;
const RESEND_INTERVALS: u64 = 2;
/// The least time between two answers to HELLOs, which may come from leaders that change all the
/// time or from anybody who may write to the topic.
const HELLO_ANSWER_MS: u64 = 1_000;
/// How long the own HELLO may take to come back before it is sent again.
const HELLO_RESEND_MS: u64 = 5_000;
/// One that took longer than this says too little about the broker's clock: another one is sent.
const HELLO_WAY_MS_MAX: u64 = 60_000;

/// What a channel has to know of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSettings {
    /// The writer id's hash.
    pub wid: String,
    /// The process, by a number that no other has.
    pub id: Uuid,
    /// The host that it runs on.
    pub host: String,
    /// How long a segment may wait for its commit (R11).
    pub segment_ttl_ms: u64,
}

/// What the process has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It coordinates from now on.
    Promoted,
    /// It does not coordinate any more: its coordinators step down.
    Demoted,
    /// Offer a segment of one of its own sessions to the table's coordinator.
    Offer {
        /// The segment.
        segment: Arc<Segment>,
        /// Whether its session waits for the commit.
        urgent: bool,
        /// How long it may still wait.
        expires_in_ms: u64,
    },
    /// Check a segment of another process and offer it to the table's coordinator.
    Remote(Box<RemoteSegment>),
    /// What the session has with the coordinators is urgent.
    Drain {
        /// The session.
        session: Uuid,
    },
    /// The session has left all coordinators.
    Leave {
        /// The session.
        session: Uuid,
    },
    /// One of its own sessions has to hear what became of a segment.
    Told {
        /// The session.
        session: Uuid,
        /// The table.
        table: TableName,
        /// The segment's number.
        seq: u64,
        /// What became of it; never [`Answer::Missing`].
        answer: Answer,
    },
}

/// A segment of another process.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteSegment {
    /// The session that sealed it.
    pub session: Uuid,
    /// That session's writer epoch.
    pub epoch: u64,
    /// What the message says.
    pub message: SegmentMessage,
    /// How long it may still wait.
    pub expires_in_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Follower,
    /// Its HELLO is on its way.
    Electing {
        since_ms: u64,
        sent_at_ms: u64,
    },
    /// Its HELLO has this offset.
    Leading {
        term: i64,
    },
}

/// A session of this process.
#[derive(Debug)]
struct Member {
    task: u32,
    epoch: u64,
    /// Something of it may be with a coordinator elsewhere.
    was_sent: bool,
    lanes: BTreeMap<TableName, Lane>,
}

/// The segments of one session and table, of which it has not heard.
#[derive(Debug)]
struct Lane {
    resend_ms: u64,
    /// A segment of it was lost: the session starts over under another id, and nothing after that
    /// segment may be committed. What it has handed over of other tables may be.
    dead: bool,
    /// The number that the session hears of next.
    next: u64,
    unacked: BTreeMap<u64, Unacked>,
}

#[derive(Debug)]
struct Unacked {
    segment: Arc<Segment>,
    urgent: bool,
    sealed_at_ms: u64,
    sent_at_ms: Option<u64>,
    /// What became of it, while the session has not heard of an earlier one.
    answer: Option<Answer>,
}

/// The transport of one process.
#[derive(Debug)]
pub struct Channel {
    settings: ChannelSettings,
    role: Role,
    elections: u64,
    members: BTreeMap<Uuid, Member>,
    draining: BTreeSet<Uuid>,
    /// Messages that are ready.
    outbox: Vec<Vec<u8>>,
    events: VecDeque<Event>,
    /// When all unacknowledged segments are sent again, and when they last were.
    hello_at_ms: Option<u64>,
    hello_answered_ms: Option<u64>,
    /// What is between the clocks of this host and the broker's, or less, so that no record is taken
    /// for younger than it is: when it sent its HELLO this process knows, and the broker wrote it
    /// after that.
    age_base_ms: Option<i64>,
    /// The offset of the last record.
    last_offset: Option<i64>,
    ignored: BTreeMap<Ignored, u64>,
}

impl Channel {
    /// Creates the channel of a process that has no session yet.
    pub fn new(settings: ChannelSettings) -> Self {
        Channel {
            settings,
            role: Role::Follower,
            elections: 0,
            members: BTreeMap::new(),
            draining: BTreeSet::new(),
            outbox: Vec::new(),
            events: VecDeque::new(),
            hello_at_ms: None,
            hello_answered_ms: None,
            age_base_ms: None,
            last_offset: None,
            ignored: BTreeMap::new(),
        }
    }

    /// Tells whether this process coordinates.
    pub fn is_leader(&self) -> bool {
        self.role != Role::Follower
    }

    /// `session` of `task`, which writes with `epoch`, hands over segments of `table` from now on.
    pub fn join(
        &mut self,
        session: Uuid,
        task: u32,
        epoch: u64,
        table: TableName,
        interval_ms: u64,
    ) {
        let member = self.members.entry(session).or_insert_with(|| Member {
            task,
            epoch,
            was_sent: false,
            lanes: BTreeMap::new(),
        });
        member.lanes.entry(table).or_insert_with(|| Lane {
            resend_ms: RESEND_MS_MIN.max(interval_ms.saturating_mul(RESEND_INTERVALS)),
            dead: false,
            next: 0,
            unacked: BTreeMap::new(),
        });
    }

    /// Takes a sealed segment of a session of this process.
    pub fn submit(&mut self, segment: Arc<Segment>, urgent: bool, now_ms: u64) {
        let table = TableName::new(&segment.table, segment.branch.clone());
        let Some(member) = self.members.get_mut(&segment.session) else {
            return;
        };
        let Some(lane) = member.lanes.get_mut(&table).filter(|lane| !lane.dead) else {
            return;
        };
        if segment.seq >= lane.next {
            lane.unacked.entry(segment.seq).or_insert(Unacked {
                segment,
                urgent,
                sealed_at_ms: now_ms,
                sent_at_ms: None,
                answer: None,
            });
        }
    }

    /// `session` waits for the commits of what it has handed over.
    pub fn drain(&mut self, session: Uuid) {
        let Some(member) = self.members.get_mut(&session) else {
            return;
        };
        for unacked in member
            .lanes
            .values_mut()
            .flat_map(|lane| lane.unacked.values_mut())
        {
            unacked.urgent = true;
            if unacked.sent_at_ms.is_some() {
                self.draining.insert(session);
            }
        }
    }

    /// `session` hands over nothing of `table` any more, and does not wait for answers.
    pub fn leave(&mut self, session: Uuid, table: &TableName) {
        let Some(member) = self.members.get_mut(&session) else {
            return;
        };
        member.lanes.remove(table);
        if !member.lanes.is_empty() {
            return;
        }
        let (was_sent, epoch, task) = (member.was_sent, member.epoch, member.task);
        self.members.remove(&session);
        self.draining.remove(&session);
        if was_sent && !self.is_leader() {
            self.send(session, epoch, task, Body::Bye);
        }
    }

    /// Tells whether this process owns the control partition, and so coordinates.
    pub fn leadership(&mut self, leader: bool, now_ms: u64) {
        if leader == self.is_leader() {
            return;
        }
        for unacked in self.all_unacked() {
            unacked.sent_at_ms = None;
        }
        if leader {
            self.events.push_back(Event::Promoted);
            self.elect(now_ms);
        } else {
            self.role = Role::Follower;
            self.events.push_back(Event::Demoted);
        }
    }

    /// The topic that the last messages went to is gone, and the offset of the HELLO means nothing.
    fn begin_anew(&mut self, now_ms: u64) {
        for unacked in self.all_unacked() {
            unacked.sent_at_ms = None;
        }
        if self.is_leader() {
            self.elect(now_ms);
        }
    }

    fn elect(&mut self, now_ms: u64) {
        self.elections += 1;
        self.role = Role::Electing {
            since_ms: now_ms,
            sent_at_ms: now_ms,
        };
        self.say_hello();
    }

    fn say_hello(&mut self) {
        let hello = Hello {
            coordinator: self.settings.id,
            election: self.elections,
        };
        self.send(Uuid::nil(), 0, 0, Body::Hello(hello));
    }

    /// Reads a record of the control topic: its offset, its age, and its value. Records come in the
    /// order of their offsets; one that does not is of a topic that was made anew.
    pub fn record(&mut self, offset: i64, age_ms: i64, bytes: &[u8], now_ms: u64) {
        let before = self.last_offset.replace(offset);
        if before.is_some_and(|before| offset <= before) {
            self.begin_anew(now_ms);
        }
        let message = match Message::decode(&self.settings.wid, bytes) {
            Ok(message) => message,
            Err(ignored) => return self.ignore(ignored),
        };
        let told_ms = age_ms;
        let base_ms = age_ms.min(self.age_base_ms.unwrap_or(age_ms));
        let age_ms = u64::try_from(age_ms.saturating_sub(base_ms)).unwrap_or(0);
        match message.body {
            Body::Hello(hello) => self.hello(&hello, (offset, told_ms), now_ms),
            Body::Result(result) => self.hear(message.session, result),
            Body::Segment(segment) => {
                if self.obeys(message.session, offset) {
                    self.remote(message.session, message.epoch, *segment, age_ms);
                }
            }
            Body::Drain => {
                if self.obeys(message.session, offset) {
                    let session = message.session;
                    self.events.push_back(Event::Drain { session });
                }
            }
            Body::Bye => {
                if self.obeys(message.session, offset) {
                    let session = message.session;
                    self.events.push_back(Event::Leave { session });
                }
            }
        }
    }

    /// Tells whether the coordinator in this process has to look at a record of `session`.
    fn obeys(&mut self, session: Uuid, offset: i64) -> bool {
        // What this process sent before it became coordinator, it has offered to itself since.
        if !self.is_leader() || self.members.contains_key(&session) {
            return false;
        }
        let begun = matches!(self.role, Role::Leading { term } if offset > term);
        if enforced(Rule::FromLogEnd) && !begun {
            self.ignore(Ignored::BeforeHello);
            return false;
        }
        true
    }

    fn hello(&mut self, hello: &Hello, (offset, age_ms): (i64, i64), now_ms: u64) {
        let own = hello.coordinator == self.settings.id;
        match self.role {
            Role::Electing { since_ms, .. } if own && hello.election == self.elections => {
                let way_ms = now_ms.saturating_sub(since_ms);
                if way_ms > HELLO_WAY_MS_MAX {
                    return self.elect(now_ms);
                }
                let way_ms = i64::try_from(way_ms).unwrap_or(i64::MAX);
                self.age_base_ms = Some(age_ms.saturating_sub(way_ms));
                self.role = Role::Leading { term: offset };
            }
            Role::Follower if !own => {
                let next_ms = self.hello_answered_ms.map_or(now_ms, |answered_ms| {
                    now_ms.max(answered_ms.saturating_add(HELLO_ANSWER_MS))
                });
                self.hello_at_ms.get_or_insert(next_ms);
            }
            _ => {}
        }
    }

    fn remote(&mut self, session: Uuid, epoch: u64, message: SegmentMessage, age_ms: u64) {
        let ttl_ms = message.ttl_ms.min(self.settings.segment_ttl_ms);
        let waited_ms = message.sealed_ago_ms.saturating_add(age_ms);
        let expires_in_ms = ttl_ms.saturating_sub(waited_ms);
        if expires_in_ms == 0 && enforced(Rule::Expiry) {
            // Its manifests may be gone by now: nothing is looked at, and nothing of it may follow.
            self.events.push_back(Event::Leave { session });
            return self.answer(session, message.table, message.seq, Answer::Expired);
        }
        self.events.push_back(Event::Remote(Box::new(RemoteSegment {
            session,
            epoch,
            message,
            expires_in_ms,
        })));
    }

    /// Takes in what a coordinator of this process says of a segment: for a session here, or for one
    /// elsewhere as long as this process coordinates.
    pub fn answer(&mut self, session: Uuid, table: TableName, seq: u64, answer: Answer) {
        let result = ResultMessage { table, seq, answer };
        if self.members.contains_key(&session) {
            self.hear(session, result);
        } else if self.is_leader() {
            self.send(session, 0, 0, Body::Result(result));
        }
    }

    fn hear(&mut self, session: Uuid, result: ResultMessage) {
        let ResultMessage { table, seq, answer } = result;
        let Some(member) = self.members.get_mut(&session) else {
            return;
        };
        let Some(lane) = member.lanes.get_mut(&table) else {
            return;
        };
        if !lane.unacked.contains_key(&seq) {
            return;
        }
        let told = |seq, answer| Event::Told {
            session,
            table: table.clone(),
            seq,
            answer,
        };
        match answer {
            Answer::Missing => lane.send_again(seq..),
            Answer::Durable { .. } => {
                if let Some(unacked) = lane.unacked.get_mut(&seq) {
                    unacked.answer = Some(answer);
                }
                let heard = lane.take_heard();
                self.events
                    .extend(heard.into_iter().map(|(seq, answer)| told(seq, answer)));
                // The result of an earlier one was lost; a coordinator has it, and says so again.
                lane.send_again(..seq);
            }
            lost => {
                lane.unacked.remove(&seq);
                lane.next = lane.next.max(seq.saturating_add(1));
                if enforced(Rule::DeadSession) {
                    lane.dead = true;
                    lane.unacked.clear();
                }
                self.events.push_back(told(seq, lost));
            }
        }
    }

    /// Returns what the process has to do next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the messages that have to be sent now, and offers again what the coordinator in this
    /// process has not answered.
    pub fn outbox(&mut self, now_ms: u64) -> Vec<Vec<u8>> {
        self.flush(now_ms);
        std::mem::take(&mut self.outbox)
    }

    /// Offers at once what the sessions of this process handed over, if it coordinates.
    pub fn offer(&mut self, now_ms: u64) {
        if self.is_leader() {
            self.flush(now_ms);
        }
    }

    fn flush(&mut self, now_ms: u64) {
        if let Role::Electing {
            since_ms,
            sent_at_ms,
        } = self.role
            && now_ms >= sent_at_ms.saturating_add(HELLO_RESEND_MS)
        {
            if now_ms.saturating_sub(since_ms) > HELLO_WAY_MS_MAX {
                self.elect(now_ms);
            } else {
                // Of an earlier one of this election the echo may come yet.
                self.role = Role::Electing {
                    since_ms,
                    sent_at_ms: now_ms,
                };
                self.say_hello();
            }
        }
        if self.hello_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.hello_at_ms = None;
            self.hello_answered_ms = Some(now_ms);
            for unacked in self.all_unacked() {
                unacked.sent_at_ms = None;
            }
        }
        self.send_due(now_ms);
        for session in std::mem::take(&mut self.draining) {
            let Some(member) = self.members.get(&session) else {
                continue;
            };
            let (epoch, task) = (member.epoch, member.task);
            match self.is_leader() {
                true => self.events.push_back(Event::Drain { session }),
                false => self.send(session, epoch, task, Body::Drain),
            }
        }
    }

    fn send_due(&mut self, now_ms: u64) {
        let ttl_ms = self.settings.segment_ttl_ms;
        let leads = self.is_leader();
        let mut due: Vec<(Uuid, u64, u32, SegmentMessage)> = Vec::new();
        for (session, member) in &mut self.members {
            for lane in member.lanes.values_mut() {
                let (resend_ms, next) = (lane.resend_ms, lane.next);
                for unacked in lane.unacked.values_mut().filter(|one| one.answer.is_none()) {
                    let sent_at_ms = unacked.sent_at_ms;
                    if sent_at_ms.is_some_and(|at_ms| now_ms < at_ms.saturating_add(resend_ms)) {
                        continue;
                    }
                    unacked.sent_at_ms = Some(now_ms);
                    // What the session has heard of is behind it, also for a new coordinator.
                    if unacked.segment.first_unacked < next {
                        Arc::make_mut(&mut unacked.segment).first_unacked = next;
                    }
                    let (segment, urgent) = (&unacked.segment, unacked.urgent);
                    let waited_ms = now_ms.saturating_sub(unacked.sealed_at_ms);
                    if leads {
                        self.events.push_back(Event::Offer {
                            segment: Arc::clone(segment),
                            urgent,
                            expires_in_ms: ttl_ms.saturating_sub(waited_ms),
                        });
                        continue;
                    }
                    member.was_sent = true;
                    let message = SegmentMessage::new(segment, urgent, waited_ms, ttl_ms);
                    due.push((*session, member.epoch, member.task, message));
                }
            }
        }
        for (session, epoch, task, message) in due {
            self.send(session, epoch, task, Body::Segment(Box::new(message)));
        }
    }

    /// Returns when [`outbox`](Self::outbox) has something at the latest, without further inputs.
    pub fn outbox_at_ms(&self) -> Option<u64> {
        if !self.outbox.is_empty() || !self.draining.is_empty() {
            return Some(0);
        }
        let lanes = self
            .members
            .values()
            .flat_map(|member| member.lanes.values());
        let segments = lanes.flat_map(|lane| {
            let waiting = lane.unacked.values().filter(|one| one.answer.is_none());
            waiting.map(|one| {
                one.sent_at_ms
                    .map_or(0, |at_ms| at_ms.saturating_add(lane.resend_ms))
            })
        });
        let hello = match self.role {
            Role::Electing { sent_at_ms, .. } => Some(sent_at_ms.saturating_add(HELLO_RESEND_MS)),
            _ => self.hello_at_ms,
        };
        segments.chain(hello).min()
    }

    /// Returns how many segments of this process's sessions have no answer.
    pub fn unanswered(&self) -> usize {
        let lanes = self
            .members
            .values()
            .flat_map(|member| member.lanes.values());
        lanes.map(|lane| lane.unacked.len()).sum()
    }

    /// Counts a record that is not obeyed.
    pub fn ignore(&mut self, ignored: Ignored) {
        *self.ignored.entry(ignored).or_default() += 1;
    }

    /// Returns how many records were not obeyed, by the reason.
    pub fn ignored(&self) -> &BTreeMap<Ignored, u64> {
        &self.ignored
    }

    fn all_unacked(&mut self) -> impl Iterator<Item = &mut Unacked> {
        let members = self.members.values_mut();
        members.flat_map(|member| {
            member
                .lanes
                .values_mut()
                .flat_map(|lane| lane.unacked.values_mut())
        })
    }

    fn send(&mut self, session: Uuid, epoch: u64, task: u32, body: Body) {
        let message = Message {
            wid: self.settings.wid.clone(),
            session,
            epoch,
            task,
            host: self.settings.host.clone(),
            body,
        };
        match message.encode() {
            Ok(bytes) => self.outbox.push(bytes),
            Err(reason) => self.ignore(reason),
        }
    }
}

impl Lane {
    /// Sends the segments with numbers in `range` again that have no answer.
    fn send_again(&mut self, range: impl std::ops::RangeBounds<u64>) {
        for (_, unacked) in self.unacked.range_mut(range) {
            unacked.sent_at_ms = None;
        }
    }

    /// Takes the answers that the session may hear now.
    fn take_heard(&mut self) -> Vec<(u64, Answer)> {
        let mut heard = Vec::new();
        while let Some(first) = self.unacked.first_entry()
            && *first.key() == self.next
            && let Some(answer) = first.get().answer.clone()
        {
            let seq = *first.key();
            first.remove();
            self.next = seq.saturating_add(1);
            heard.push((seq, answer));
        }
        heard
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
