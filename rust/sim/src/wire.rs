//! The control topic and what the engine does around the real [`Channel`] of each process.
//!
//! The topic has one partition. What a producer sends may be lost, written twice, or overtaken by
//! what others send; the topic may be deleted and created again. Somebody owns its partition and
//! coordinates; who has lost it learns so late, so that there may be two.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use frazil_core::SinkError;
use frazil_core::control::channel::{Channel, ChannelSettings, Event, RemoteSegment};
use frazil_core::control::coordinator::{Offer, Told, Verdict as Decided};
use frazil_core::control::message::{Answer, TableName};
use frazil_core::control::segment::Segment;
use frazil_core::control::task::Verdict;
use uuid::Uuid;

use crate::hub::{self, Hub, TTL_MS};
use crate::names::{CANARY, WID, session_index};
use crate::native::{Inbound, manifest};
use crate::say;
use crate::swarm::{BRANCHES, Transport};
use crate::world::World;

/// Records that the topic keeps; who reads slower misses some.
const RETENTION: usize = 200;

/// What a producer could not write for this long, it drops.
pub(crate) const PRODUCER_MS: u64 = 120_000;

/// A record of the topic, or on its way to it.
#[derive(Debug, Clone)]
struct Record {
    written_ms: u64,
    bytes: Rc<[u8]>,
}

/// The topic and who owns its partition.
#[derive(Debug, Default)]
pub(crate) struct Topic {
    /// Sent and not written, by process.
    sent: Vec<VecDeque<Record>>,
    log: VecDeque<Record>,
    first: i64,
    owner: usize,
    /// Deletions so far.
    life: u32,
}

/// A process's end of the topic.
#[derive(Debug)]
pub(crate) struct End {
    channel: Channel,
    position: i64,
    life: u32,
}

impl Topic {
    /// Makes an empty topic for `processes`.
    pub(crate) fn new(processes: usize) -> Self {
        Topic {
            sent: vec![VecDeque::new(); processes],
            ..Topic::default()
        }
    }

    fn end(&self) -> i64 {
        self.first + self.log.len() as i64
    }

    /// Somebody else owns the partition.
    pub(crate) fn elect(&mut self, process: usize) {
        self.owner = process;
    }

    /// The topic is deleted and created again.
    pub(crate) fn delete(&mut self) {
        self.log.clear();
        self.first = 0;
        self.life += 1;
    }

    /// Nothing of `process` is sent any more.
    pub(crate) fn crash(&mut self, process: usize) {
        self.sent[process].clear();
    }

    fn write(&mut self, bytes: Rc<[u8]>, now_ms: u64) {
        self.log.push_back(Record {
            written_ms: now_ms,
            bytes,
        });
        if self.log.len() > RETENTION {
            self.log.pop_front();
            self.first += 1;
        }
    }
}

/// Makes the end of a process that starts; it reads what is written from now on.
pub(crate) fn join_topic(w: &World, process: usize, hub_id: u32) -> Option<Box<End>> {
    if w.plan.transports[process] == Transport::Local {
        return None;
    }
    let settings = ChannelSettings {
        wid: WID.to_owned(),
        id: Uuid::from_u128(u128::from(hub_id)),
        host: format!("host-{process}"),
        segment_ttl_ms: TTL_MS,
    };
    Some(Box::new(End {
        channel: Channel::new(settings),
        position: w.topic.end(),
        life: w.topic.life,
    }))
}

fn table_name(w: &World, table: usize) -> TableName {
    TableName::new(
        &w.names.tables[table],
        BRANCHES[w.plan.tables[table].branch],
    )
}

/// A session begins.
pub(crate) fn join(w: &mut World, process: usize, session: Uuid, (task, epoch): (usize, u64)) {
    let Some(mut end) = w.processes[process].end.take() else {
        return;
    };
    for table in 0..w.plan.tables.len() {
        let interval_ms = w.plan.tables[table].interval_ms;
        let name = table_name(w, table);
        end.channel
            .join(session, task as u32, epoch, name, interval_ms);
    }
    w.processes[process].end = Some(end);
}

/// A session is gone, or waits for its commits.
pub(crate) fn leave(w: &mut World, process: usize, session: Uuid) {
    let Some(mut end) = w.processes[process].end.take() else {
        return;
    };
    for table in 0..w.plan.tables.len() {
        end.channel.leave(session, &table_name(w, table));
    }
    pump(w, process, end);
}

/// A session waits for its commits.
pub(crate) fn drain(w: &mut World, process: usize, session: Uuid) {
    if let Some(end) = &mut w.processes[process].end {
        end.channel.drain(session);
    }
}

/// Hands a segment over. Returns it when the process has no channel.
pub(crate) fn submit(
    w: &mut World,
    process: usize,
    segment: Segment,
    urgent: bool,
) -> Option<Segment> {
    let now_ms = w.clock(process);
    let Some(end) = &mut w.processes[process].end else {
        return Some(segment);
    };
    end.channel.submit(Arc::new(segment), urgent, now_ms);
    None
}

/// Tells a session what a coordinator of `process` decided. Returns it when there is no channel.
pub(crate) fn tell(w: &mut World, hub: &mut Hub, table: usize, told: Told) -> Option<Told> {
    let Some(mut end) = w.processes[hub.process].end.take() else {
        return Some(told);
    };
    let answer = match told.verdict {
        Decided::Durable { snapshot_id } => Answer::Durable {
            snapshot_id,
            stamp: None,
        },
        Decided::Rejected(reason) => Answer::rejected(&reason),
        Decided::Expired => Answer::Expired,
        Decided::Fenced { epoch } => Answer::Fenced { epoch },
        Decided::Failed(error) => Answer::Blocked {
            reason: Answer::reason(&error.report()),
        },
    };
    let name = table_name(w, table);
    end.channel.answer(told.session, name, told.seq, answer);
    pump_with(w, hub, &mut end);
    w.processes[hub.process].end = Some(end);
    None
}

/// Does one thing at a process's end of the topic. Returns whether there was something to do.
pub(crate) fn step(w: &mut World, process: usize) -> bool {
    let Some(mut end) = w.processes[process].end.take() else {
        return false;
    };
    let now_ms = w.clock(process);
    let owns = w.topic.owner == process;
    if end.channel.is_leader() != owns && w.rng.chance(300) {
        say!(w, "process {process} leads: {owns}");
        end.channel.leadership(owns, now_ms);
        w.dispatched();
        pump(w, process, end);
        return true;
    }
    if end.life != w.topic.life {
        (end.life, end.position) = (w.topic.life, w.topic.first);
    }
    end.position = end.position.max(w.topic.first);
    if end.position < w.topic.end() && w.rng.chance(700) {
        for _ in 0..w.rng.between(1, 32) {
            if end.position < w.topic.end() {
                read(w, process, &mut end, now_ms);
            }
        }
        pump(w, process, end);
        return true;
    }
    let worked = end
        .channel
        .outbox_at_ms()
        .is_some_and(|at_ms| at_ms <= now_ms);
    if worked {
        w.dispatched();
        for bytes in end.channel.outbox(now_ms) {
            send(w, process, &bytes);
        }
    }
    pump(w, process, end);
    worked
}

fn read(w: &mut World, process: usize, end: &mut End, now_ms: u64) {
    let record = w.topic.log[(end.position - w.topic.first) as usize].clone();
    // By a clock that nobody sets: a jump would make all records too old, or none.
    let age_ms = (w.now_ms - record.written_ms) as i64;
    let offset = end.position;
    say!(w, "process {process} reads record {offset} of age {age_ms}");
    end.channel.record(offset, age_ms, &record.bytes, now_ms);
    end.position += 1;
    w.dispatched();
}

fn send(w: &mut World, process: usize, bytes: &[u8]) {
    let canary = CANARY.as_bytes();
    if bytes.windows(canary.len()).any(|window| window == canary) {
        w.ledger
            .violated("S26", "a secret is in a message".to_owned());
    }
    if w.tracing {
        let text = String::from_utf8_lossy(bytes);
        let about = |key: &str| {
            text.find(key)
                .map_or("", |at| &text[at..(at + 24).min(text.len())])
        };
        say!(
            w,
            "process {process} sends {} {}",
            about("\"type\""),
            about("\"seq\"")
        );
    }
    let record = Record {
        written_ms: w.now_ms,
        bytes: bytes.into(),
    };
    w.topic.sent[process].push_back(record);
}

/// A broker writes what a process has sent. Returns whether there was something.
pub(crate) fn write(w: &mut World) -> bool {
    let first = w.rng.index(w.topic.sent.len());
    let processes = (0..w.topic.sent.len()).map(|turn| (first + turn) % w.topic.sent.len());
    let waiting = processes
        .into_iter()
        .find(|process| !w.topic.sent[*process].is_empty());
    let Some(process) = waiting else {
        return false;
    };
    for _ in 0..w.rng.between(1, 16) {
        if !write_one(w, process) {
            break;
        }
    }
    true
}

fn write_one(w: &mut World, process: usize) -> bool {
    let chances = w.plan.chances;
    let queue = &mut w.topic.sent[process];
    if queue.len() > 1 && w.rng.chance(chances.hold) {
        queue.rotate_left(1);
    }
    let Some(Record { written_ms, bytes }) = queue.pop_front() else {
        return false;
    };
    w.dispatched();
    if w.now_ms - written_ms > PRODUCER_MS {
        return true;
    }
    if w.rng.chance(chances.lose) {
        return true;
    }
    if w.rng.chance(chances.double) {
        w.topic.write(Rc::clone(&bytes), w.now_ms);
    }
    if w.rng.chance(chances.lose / 8) {
        w.topic.write(Rc::from(&b"{\"v\":1,\"wid\":"[..]), w.now_ms);
    }
    w.topic.write(bytes, w.now_ms);
    true
}

fn pump(w: &mut World, process: usize, mut end: Box<End>) {
    // Outside of a hub's own step its hub is at home.
    if let Some(mut hub) = w.processes[process].hub.take() {
        pump_with(w, &mut hub, &mut end);
        w.processes[process].hub = Some(hub);
    }
    w.processes[process].end = Some(end);
}

fn pump_with(w: &mut World, hub: &mut Hub, end: &mut End) {
    while let Some(event) = end.channel.next_event() {
        match event {
            Event::Promoted => {}
            Event::Demoted => hub.step_down(),
            Event::Offer {
                segment,
                urgent,
                expires_in_ms,
            } => offer(
                w,
                hub,
                end,
                Segment::clone(&segment),
                (urgent, expires_in_ms),
            ),
            Event::Remote(remote) => offer_remote(w, hub, end, *remote),
            Event::Drain { session } => hub.drain_all(session),
            Event::Leave { session } => hub.leave(session),
            Event::Told {
                session,
                table,
                seq,
                answer,
            } => heard(w, hub.process, session, &table, (seq, answer)),
        }
    }
}

/// Checks a segment of another process, as its manifests are, and offers it.
fn offer_remote(w: &mut World, hub: &mut Hub, end: &mut End, remote: RemoteSegment) {
    let message = remote.message;
    let Some(ident) = message.table.ident() else {
        return;
    };
    let Some(table) = w.names.table(&ident) else {
        return;
    };
    let session = session_index(remote.session);
    let Some(file) = w.file_at(session, table, message.seq) else {
        return;
    };
    if w.files[file].gone {
        let answer = Answer::unseen("a manifest is gone");
        hub.leave(remote.session);
        return end
            .channel
            .answer(remote.session, message.table, message.seq, answer);
    }
    let manifests = message
        .manifests
        .iter()
        .map(|sealed| {
            manifest(
                file,
                sealed.spec_id,
                sealed.rows,
                sealed.path.ends_with("-d.avro"),
            )
        })
        .collect();
    let Some(ranges) = message.ranges else { return };
    let segment = Segment {
        session: remote.session,
        seq: message.seq,
        first_unacked: message.first_unacked,
        epoch: remote.epoch,
        table: ident,
        table_uuid: message.uuid,
        branch: message.table.branch,
        ranges: ranges.ranges,
        watermarks: ranges.watermarks,
        topic_ids: ranges.topic_ids,
        manifests,
        key_run: message.key_run,
        rows: message.rows,
        bytes: message.bytes,
    };
    offer(w, hub, end, segment, (message.urgent, remote.expires_in_ms));
}

fn offer(w: &mut World, hub: &mut Hub, end: &mut End, segment: Segment, terms: (bool, u64)) {
    let (session, seq) = (segment.session, segment.seq);
    let name = TableName::new(&segment.table, segment.branch.clone());
    let file = w.file_of(&segment);
    let (seq, answer) = match hub::offer(w, hub, segment, terms) {
        Offer::Accepted | Offer::Duplicate | Offer::Full => return,
        Offer::Held { missing } => (missing, Answer::Missing),
        Offer::Dead => (seq, Answer::unseen("its session has ended")),
        Offer::Done => {
            if let Some(index) = file {
                let copy = w.files[index].clone();
                w.ledger.told_durable(&copy, index, None);
            }
            (
                seq,
                Answer::Durable {
                    snapshot_id: None,
                    stamp: None,
                },
            )
        }
    };
    end.channel.answer(session, name, seq, answer);
}

fn heard(w: &mut World, process: usize, session: Uuid, table: &TableName, told: (u64, Answer)) {
    let Some(table) = table.ident().and_then(|ident| w.names.table(&ident)) else {
        return;
    };
    let verdict = match told.1 {
        Answer::Durable { .. } => Verdict::Durable,
        Answer::Rejected { reason, .. } => Verdict::Rejected(reason),
        Answer::Expired => Verdict::Expired,
        Answer::Fenced { epoch } => Verdict::Fenced { epoch },
        Answer::Blocked { reason } => {
            Verdict::Failed(SinkError::fatal("TABLE_BLOCKED", reason).into())
        }
        Answer::Missing => return,
    };
    let session = session_index(session);
    say!(
        w,
        "process {process} hears of session {session} t{table} seq {}: {verdict:?}",
        told.0
    );
    let inbound = Inbound::Outcome {
        session,
        table,
        seq: told.0,
        verdict,
    };
    w.deliver(process, session, inbound);
}
