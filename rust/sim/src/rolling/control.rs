//! The control topic, who owns its partition, and the end of each process around the real
//! [`Channel`].
//!
//! A channel is handed only the records that it looks at: by [`Channel`]'s contract a follower takes
//! nothing of a record but a HELLO and the results of its own sessions, and a leader nothing that
//! was written before it led. All of them are counted as read, though.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use frazil_core::control::channel::{Channel, ChannelSettings, Event as Wanted, RemoteSegment};
use frazil_core::control::coordinator::Offer;
use frazil_core::control::message::{Answer, Body, Message, TableName};
use frazil_core::control::segment::Segment;
use uuid::Uuid;

use super::hub::{self, Hub};
use super::tables::manifest;
use super::world::{At, Event, World};
use super::{Fault, SEGMENT_TTL_MS, verdict_of};
use crate::names::WID;

/// Messages that a process's queue holds, and their bytes: those of `ControlChannel.java`.
const OUTBOX_MAX: (usize, usize) = (50_000, 8 << 20);

/// A record of the topic.
#[derive(Debug, Clone)]
struct Record {
    offset: i64,
    written_ms: u64,
    bytes: Rc<[u8]>,
}

/// A process's end of the topic.
#[derive(Debug)]
pub(super) struct End {
    pub(super) channel: Channel,
    inbox: VecDeque<Record>,
    /// When what was sent last comes to the topic: a producer keeps its order.
    sent_ms: u64,
    /// Segments of others whose manifests are being read.
    checking: BTreeSet<(Uuid, usize, u64)>,
}

/// The control partition and the group whose member owns it. The assignor is sticky: the owner
/// stays whoever comes, and who leaves tells the group.
#[derive(Debug, Default)]
pub(super) struct Election {
    members: BTreeSet<usize>,
    owner: Option<usize>,
    term: u64,
    next_offset: i64,
}

/// Opens the end of a process.
pub(super) fn open(w: &mut World, process: usize) -> End {
    let at = w.at(process);
    let id = (process as u128) << 32 | u128::from(at.life);
    let settings = ChannelSettings {
        wid: WID.to_owned(),
        id: Uuid::from_u128(id),
        host: format!("host-{process}"),
        segment_ttl_ms: SEGMENT_TTL_MS,
    };
    w.after(0, Event::Exchange(at));
    w.election.members.insert(process);
    if w.election.owner.is_none() {
        elect(w);
    }
    End {
        channel: Channel::new(settings),
        inbox: VecDeque::new(),
        sent_ms: 0,
        checking: BTreeSet::new(),
    }
}

/// The last task has left: sends what is left, and leaves the group.
pub(super) fn close(w: &mut World, process: usize) {
    let (at, now_ms) = (w.at(process), w.clock(process));
    if let Some(mut hub) = w.take_hub(at) {
        if let Some(end) = &mut hub.end {
            end.channel.leadership(false, now_ms);
            send(w, end, now_ms);
        }
        pump(w, at, &mut hub);
        w.give_back(at, hub);
    }
    w.election.members.remove(&process);
    if w.election.owner == Some(process) {
        w.election.owner = None;
        elect(w);
    }
}

/// The group rebalances: each member hears of it with its next heartbeat.
fn elect(w: &mut World) {
    w.election.term += 1;
    let heard = (0..w.election.members.len()).map(|_| w.draw(w.pace.control_heartbeat));
    let heard_ms = heard.max().unwrap_or(0);
    let slow_ms = match w.size.fault {
        Fault::SlowElection => 20_000,
        _ => 0,
    };
    let in_ms = heard_ms + slow_ms + w.draw(w.pace.broker);
    w.after(in_ms, Event::Elected(w.election.term));
}

/// The rebalance is over.
pub(super) fn elected(w: &mut World, term: u64) {
    if w.election.term != term || w.election.members.is_empty() {
        return;
    }
    w.counts.elections += 1;
    let place = w.rng.index(w.election.members.len());
    w.election.owner = w.election.members.iter().nth(place).copied();
}

/// A process reads what has come, and sends.
pub(super) fn exchange(w: &mut World, at: At) {
    let Some(mut hub) = w.take_hub(at) else {
        return;
    };
    let now_ms = w.clock(at.process);
    let leads = w.election.owner == Some(at.process) || w.size.fault == Fault::EveryoneLeads;
    if let Some(end) = &mut hub.end {
        end.channel.leadership(leads, now_ms);
    }
    pump(w, at, &mut hub);
    while let Some(record) = hub.end.as_mut().and_then(|end| end.inbox.pop_front()) {
        if let Some(end) = &mut hub.end {
            let age_ms = (w.now_ms - record.written_ms) as i64;
            end.channel
                .record(record.offset, age_ms, &record.bytes, now_ms);
        }
        pump(w, at, &mut hub);
    }
    if let Some(end) = &mut hub.end {
        send(w, end, now_ms);
    }
    pump(w, at, &mut hub);
    w.give_back(at, hub);
    let in_ms = w.draw(w.pace.exchange);
    w.after(in_ms, Event::Exchange(at));
}

fn send(w: &mut World, end: &mut End, now_ms: u64) {
    let mut messages = end.channel.outbox(now_ms);
    let (messages_max, bytes_max) = OUTBOX_MAX;
    let (mut taken, mut bytes, all) = (0, 0, messages.len());
    messages.retain(|message| {
        let fits = taken < messages_max && bytes + message.len() <= bytes_max;
        (taken, bytes) = (taken + usize::from(fits), bytes + message.len());
        fits
    });
    w.counts.dropped += (all - messages.len()) as u64;
    if !messages.is_empty() {
        end.sent_ms = end.sent_ms.max(w.now_ms + w.draw(w.pace.broker));
        w.after(end.sent_ms - w.now_ms, Event::Written(messages));
    }
}

/// Messages come to the topic.
pub(super) fn written(w: &mut World, messages: Vec<Vec<u8>>) {
    for bytes in messages {
        w.counts.messages += 1;
        w.counts.message_bytes += bytes.len() as u64;
        let Ok(message) = Message::decode(WID, &bytes) else {
            continue;
        };
        let record = Record {
            offset: w.election.next_offset,
            written_ms: w.now_ms,
            bytes: bytes.into(),
        };
        w.election.next_offset += 1;
        let run = w.sessions.get(&message.session);
        let run = run.and_then(|run| w.runs[*run].as_ref());
        let own = run.map(|run| run.process);
        for (process, state) in w.processes.iter_mut().enumerate() {
            let end = state.hub.as_mut().and_then(|hub| hub.end.as_mut());
            let Some(end) = end else { continue };
            let looks = match message.body {
                Body::Hello(_) => true,
                Body::Result(_) => own == Some(process),
                Body::Segment(_) | Body::Drain | Body::Bye => end.channel.is_leader(),
            };
            if looks {
                end.inbox.push_back(record.clone());
            }
        }
    }
}

/// Carries out what the channel of a process wants.
pub(super) fn pump(w: &mut World, at: At, hub: &mut Hub) {
    while let Some(event) = hub.end.as_mut().and_then(|end| end.channel.next_event()) {
        match event {
            Wanted::Promoted => {}
            Wanted::Demoted => hub::step_down(hub),
            Wanted::Offer {
                segment,
                urgent,
                expires_in_ms,
            } => {
                let segment = Segment::clone(&segment);
                let name = TableName::new(&segment.table, segment.branch.clone());
                let (session, seq) = (segment.session, segment.seq);
                let offer = hub::offer(w, at, hub, segment, (urgent, expires_in_ms));
                answer(hub, (session, name, seq), hub::answer_to(offer));
            }
            Wanted::Remote(remote) => receive(w, at, hub, *remote),
            Wanted::Drain { session } => hub::drain_here(w, at, hub, session),
            Wanted::Leave { session } => hub::leave_here(w, at, hub, session),
            Wanted::Told {
                session,
                table,
                seq,
                answer,
            } => {
                let table = w.names.iter().position(|name| *name == table);
                if let (Some(table), Some(verdict)) = (table, verdict_of(answer)) {
                    w.deliver(session, table, seq, verdict);
                }
            }
        }
    }
}

fn answer(hub: &mut Hub, of: (Uuid, TableName, u64), answer: Option<Answer>) {
    if let (Some(end), Some(answer)) = (&mut hub.end, answer) {
        end.channel.answer(of.0, of.1, of.2, answer);
    }
}

/// Begins to read the manifests of another process's segment, unless it is known.
fn receive(w: &mut World, at: At, hub: &mut Hub, remote: RemoteSegment) {
    let RemoteSegment {
        session,
        epoch,
        message,
        expires_in_ms,
    } = remote;
    let Some(table) = w.names.iter().position(|name| *name == message.table) else {
        return;
    };
    let known = hub.coordinators[table].known(session, message.seq, message.urgent);
    if let Some(known) = known {
        hub::wake(w, at, hub, table, 0);
        return answer(
            hub,
            (session, message.table, message.seq),
            hub::answer_to(known),
        );
    }
    let Some(end) = &mut hub.end else { return };
    if !end.checking.insert((session, table, message.seq)) {
        return;
    }
    let read_ms = w.draw(w.pace.store);
    let over_ms = hub.turns.take(table, w.now_ms, read_ms);
    let ranges = message.ranges.unwrap_or_default();
    let read = message.manifests.into_iter();
    let segment = Segment {
        session,
        seq: message.seq,
        first_unacked: message.first_unacked,
        epoch,
        table: w.idents[table].clone(),
        table_uuid: message.uuid,
        branch: message.table.branch,
        ranges: ranges.ranges,
        watermarks: ranges.watermarks,
        topic_ids: ranges.topic_ids,
        manifests: read.map(|one| manifest(one.path, one.rows)).collect(),
        key_run: message.key_run,
        rows: message.rows,
        bytes: message.bytes,
    };
    let terms = (message.urgent, expires_in_ms);
    let checked = Event::Checked(at, Box::new(segment), terms);
    w.after(over_ms - w.now_ms, checked);
}

/// The manifests of another process's segment were read.
pub(super) fn checked(w: &mut World, at: At, segment: Segment, terms: (bool, u64)) {
    let Some(mut hub) = w.take_hub(at) else {
        return;
    };
    let (session, seq, table) = (segment.session, segment.seq, hub::table_of(&segment));
    let mut leads = false;
    if let Some(end) = &mut hub.end {
        leads = end.channel.is_leader();
        end.checking.remove(&(session, table, seq));
    }
    if leads {
        let name = w.names[table].clone();
        let offer = hub::offer(w, at, &mut hub, segment, terms);
        if let Offer::Held { missing } = offer {
            let end = hub.end.as_ref();
            if end.is_some_and(|end| !end.checking.contains(&(session, table, missing))) {
                answer(
                    &mut hub,
                    (session, name.clone(), missing),
                    Some(Answer::Missing),
                );
            }
        }
        answer(&mut hub, (session, name, seq), hub::answer_to(offer));
        pump(w, at, &mut hub);
    }
    w.give_back(at, hub);
}
