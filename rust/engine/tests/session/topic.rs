//! Several workers that agree over a control topic: one commits for all.
//!
//! The workers are hubs of one process, told apart by the spelling of their catalog's location; the
//! topic is a list that loses and repeats what is sent to it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frazil_core::control::message::{
    Body, Hello, ManifestRef, Message, Ranges, SegmentMessage, TableName,
};
use frazil_core::control::segment::KeyRunRef;
use frazil_core::wire::testing::{Row, Value, decode_effects, encode_request};
use frazil_core::wire::{ChannelRecord, Effects, Request};
use frazil_engine::channel::ControlChannel;
use uuid::Uuid;

use crate::bed::{Bed, TOPIC, Task, ident, p};
use crate::changes;

const TABLE: &str = "db.orders";
/// How often Java asks a channel.
const POLL: Duration = Duration::from_millis(25);
/// How much later a message comes than others that somebody sends before it.
const LATE: Duration = Duration::from_secs(1);

/// A control topic of one partition, and the workers that use it.
struct Cluster {
    log: Arc<Mutex<Vec<Vec<u8>>>>,
    leader: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
    lines: Arc<Mutex<Vec<String>>>,
    /// What somebody sends before a message, which comes late then.
    before: Arc<Mutex<Before>>,
    pump: Option<JoinHandle<()>>,
}

/// Makes other messages of one.
type Before = Option<Box<dyn Fn(&[u8]) -> Vec<Vec<u8>> + Send>>;

/// What the topic does to messages.
#[derive(Clone, Copy)]
struct Faults {
    lost_percent: u64,
    copies: usize,
}

const NO_FAULTS: Faults = Faults {
    lost_percent: 0,
    copies: 1,
};

/// The settings that make a worker of its own.
fn worker(bed: &Bed, index: usize) -> Vec<(&'static str, String)> {
    let uri = &bed.settings(&[])["iceberg.catalog.uri"];
    let (directory, file) = uri.rsplit_once('/').unwrap();
    vec![
        ("frazil.internal.coordination", "topic".to_owned()),
        (
            "iceberg.catalog.uri",
            format!("{directory}{}/{file}", "/.".repeat(index)),
        ),
    ]
}

fn settings(bed: &Bed, index: usize, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut settings = bed.settings(more);
    for (key, value) in worker(bed, index) {
        settings.insert(key.to_owned(), value);
    }
    settings
}

fn task(bed: &Bed, index: usize, partitions: &[i32]) -> Task {
    let own = worker(bed, index);
    let own: Vec<(&str, &str)> = own.iter().map(|(key, value)| (*key, &**value)).collect();
    let task = bed.open_with(&own).unwrap();
    task.assign(partitions);
    task
}

impl Cluster {
    fn start(bed: &Bed, workers: usize, faults: Faults) -> Cluster {
        let channels: Vec<Arc<ControlChannel>> = (0..workers)
            .map(|index| {
                let role = [("frazil.internal.role", "channel")];
                ControlChannel::open(&settings(bed, index, &role)).unwrap()
            })
            .collect();
        let mut cluster = Cluster {
            log: Arc::default(),
            leader: Arc::default(),
            ended: Arc::default(),
            lines: Arc::default(),
            before: Arc::default(),
            pump: None,
        };
        let (log, leader) = (Arc::clone(&cluster.log), Arc::clone(&cluster.leader));
        let (ended, lines) = (Arc::clone(&cluster.ended), Arc::clone(&cluster.lines));
        let before = Arc::clone(&cluster.before);
        cluster.pump = Some(std::thread::spawn(move || {
            let mut read = vec![0; channels.len()];
            let mut random = 0x9e37_79b9_u64;
            let mut late: Vec<(Instant, Vec<u8>)> = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let now = Instant::now();
                let due = late.extract_if(.., |(at, _)| *at <= now);
                log.lock().unwrap().extend(due.map(|(_, message)| message));
                for (index, channel) in channels.iter().enumerate() {
                    let is_leader = leader.load(Ordering::Relaxed) == index;
                    let effects = exchange(channel, is_leader, &log, &mut read[index]);
                    let mut lines = lines.lock().unwrap();
                    lines.extend(effects.log.into_iter().map(|(_, line)| line));
                    for message in effects.messages {
                        let others = before.lock().unwrap().as_ref().map(|one| one(&message));
                        let others = others.unwrap_or_default();
                        if !others.is_empty() {
                            log.lock().unwrap().extend(others);
                            late.push((Instant::now() + LATE, message));
                            continue;
                        }
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        if (random >> 33) % 100 >= faults.lost_percent {
                            let copies = vec![message; faults.copies];
                            log.lock().unwrap().extend(copies);
                        }
                    }
                }
                std::thread::sleep(POLL);
            }
        }));
        cluster
    }

    /// The worker with this index gets the control partition.
    fn lead(&self, index: usize) {
        self.leader.store(index, Ordering::Relaxed);
    }

    /// Somebody writes to the topic.
    fn send(&self, bytes: Vec<u8>) {
        self.log.lock().unwrap().push(bytes);
    }

    fn has_logged(&self, text: &str) -> bool {
        let lines = self.lines.lock().unwrap();
        lines.iter().any(|line| line.contains(text))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(pump) = self.pump.take() {
            let ended = pump.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

fn exchange(
    channel: &ControlChannel,
    leader: bool,
    log: &Mutex<Vec<Vec<u8>>>,
    read: &mut usize,
) -> Effects {
    let log = log.lock().unwrap();
    let records = log.iter().enumerate().skip(*read);
    let records = records.map(|(offset, value)| ChannelRecord {
        offset: offset as i64,
        age_ms: 0,
        value: value.clone(),
    });
    let request = Request::Channel {
        leader,
        now_ms: 0,
        records: records.collect(),
    };
    *read = log.len();
    drop(log);
    let answer = channel.control(&encode_request(&request)).unwrap();
    decode_effects(&answer).unwrap()
}

/// What Connect does with one partition.
struct Delivery {
    task: Task,
    partition: i32,
    position: i64,
    durable: i64,
}

impl Delivery {
    fn new(bed: &Bed, worker: usize, partition: i32) -> Delivery {
        Delivery {
            task: task(bed, worker, &[partition]),
            partition,
            position: 0,
            durable: 0,
        }
    }

    /// One round of the consumer's loop, which delivers up to `count` records below `end`.
    fn turn(&mut self, count: i64, end: i64) {
        self.turn_noted(count, end, "fine");
    }

    fn turn_noted(&mut self, count: i64, end: i64, note: &str) {
        let begun = self.task.tick();
        if let Some((_, offset)) = begun.rewinds.first() {
            self.position = *offset;
            return;
        }
        let next = end.min(self.position + count);
        let rows = (self.position..next).map(|offset| {
            let id = i64::from(self.partition) * 1_000_000 + offset;
            let value = Value::Struct(vec![Value::Int64(id), Value::text(note)]);
            Row::new(TOPIC, self.partition, offset).value(value)
        });
        let taken = self.task.try_put(&self.task.frame().rows(rows)).unwrap();
        match taken.rewinds.first() {
            Some((_, offset)) => self.position = *offset,
            None => self.position = next,
        }
        if let Some(durable) = self.task.pre_commit(self.partition, self.position) {
            assert!(durable >= self.durable, "the offset went back");
            self.durable = durable;
        }
    }
}

/// Delivers for a while, `count` records at a time; returns how long it took.
fn run(deliveries: &mut [Delivery], time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        for delivery in deliveries.iter_mut() {
            delivery.turn(3, i64::MAX);
        }
        std::thread::sleep(Duration::from_millis(40));
    }
}

// Promise: Workers that agree over a control topic commit each record once, with one snapshot per interval, though the topic loses and repeats messages and the leader changes.
// Case: 32
#[test]
fn one_worker_commits_for_all_though_the_topic_loses_and_repeats_messages() {
    let bed = Bed::new(TABLE).with("iceberg.control.commit.interval-ms", "2000");
    let faults = Faults {
        lost_percent: 30,
        copies: 3,
    };
    let cluster = Cluster::start(&bed, 2, faults);
    let mut deliveries: Vec<Delivery> = (0..4)
        .map(|partition| Delivery::new(&bed, partition as usize % 2, partition))
        .collect();
    let begun = Instant::now();
    run(&mut deliveries, Duration::from_secs(7));
    cluster.lead(1);
    run(&mut deliveries, Duration::from_secs(7));
    let intervals = begun.elapsed().as_millis() as usize / 2_000;
    let snapshots = bed.snapshots(TABLE);
    assert!(
        (3..=intervals + 3).contains(&snapshots),
        "{snapshots} snapshots in {intervals} intervals"
    );
    // The rest becomes durable while the leader changes all the time, which has messages repeated.
    let limit = Instant::now() + Duration::from_secs(120);
    let mut leader = 1;
    let mut next_leader = Instant::now();
    while deliveries.iter().any(|one| one.durable < one.position) {
        assert!(Instant::now() < limit, "messages are lost for good");
        if Instant::now() >= next_leader {
            leader = 1 - leader;
            cluster.lead(leader);
            next_leader = Instant::now() + Duration::from_secs(3);
        }
        for delivery in &mut deliveries {
            let end = delivery.position;
            delivery.turn(3, end);
        }
        std::thread::sleep(Duration::from_millis(40));
    }
    let expected: Vec<i64> = deliveries
        .iter()
        .flat_map(|one| {
            (0..one.position).map(|offset| i64::from(one.partition) * 1_000_000 + offset)
        })
        .collect();
    assert!(expected.len() > 400);
    assert_eq!(bed.ids(TABLE), expected);
    deliveries.iter().for_each(|one| one.task.session.close());
}

#[test]
fn a_revoked_task_of_another_worker_does_not_wait_for_the_interval() {
    let bed = Bed::new(TABLE).slow();
    let _cluster = Cluster::start(&bed, 2, NO_FAULTS);
    let task = task(&bed, 1, &[0]);
    task.put(0..5);
    task.tick();
    task.revoke(&[0]);
    assert_eq!(bed.ids(TABLE), [0, 1, 2, 3, 4]);
    // The process that committed left its name.
    let loaded = bed.load(TABLE);
    let key = format!("frazil.w.{}", bed.config().wid);
    let state: serde_json::Value =
        serde_json::from_str(&loaded.metadata.properties()[&key]).unwrap();
    let hub = state["h"].as_str().unwrap();
    let (host, digits) = hub.rsplit_once('/').unwrap();
    assert_eq!(digits.len(), 8, "{hub}");
    assert_eq!(host, frazil_engine::hub::host_name());
    task.session.close();
}

#[test]
fn no_message_makes_a_coordinator_commit_what_no_task_has_sealed() {
    let bed = Bed::new(TABLE).with("iceberg.control.commit.interval-ms", "2000000000");
    let cluster = Cluster::start(&bed, 2, NO_FAULTS);
    let task = task(&bed, 0, &[0]);
    task.put(0..5);
    task.revoke(&[0]);
    assert_eq!(bed.snapshots(TABLE), 1);
    let loaded = bed.load(TABLE);
    let location = loaded.metadata.location().to_owned();
    let snapshot = loaded.metadata.current_snapshot().unwrap();
    let version = loaded.metadata.format_version();
    let manifests = frazil_engine::commit::manifests_of(&loaded.storage, snapshot, version);
    let committed = bed.wait(manifests).unwrap().remove(0);
    let bytes = bed
        .wait(loaded.storage.get(&committed.manifest_path))
        .unwrap();
    let manifest = |path: String| ManifestRef {
        path,
        len: bytes.len() as u64,
        spec_id: 0,
        files: 1,
        rows: 5,
        sha256: sha2::Sha256::digest(&bytes).into(),
    };
    use sha2::Digest;
    let segment = |manifest: ManifestRef| SegmentMessage {
        table: TableName::new(&ident(TABLE), "main"),
        uuid: loaded.metadata.uuid(),
        seq: 0,
        first_unacked: 0,
        urgent: true,
        sealed_ago_ms: 0,
        ttl_ms: 3_600_000,
        rows: 5,
        bytes: 100,
        ranges: Some(Ranges {
            ranges: vec![frazil_core::offsets::SourceRange {
                partition: p(0),
                start: Some(5),
                end: 10,
                lowest: Some(5),
                timestamp_max_ms: None,
            }],
            ..Ranges::default()
        }),
        manifests: vec![manifest],
        key_run: None,
    };
    let wid = bed.config().wid;
    let send = |wid: &str, segment: SegmentMessage| {
        let message = Message {
            wid: wid.to_owned(),
            session: Uuid::now_v7(),
            epoch: 0,
            task: 0,
            host: "elsewhere".to_owned(),
            body: Body::Segment(Box::new(segment)),
        };
        cluster.send(message.encode().unwrap());
    };
    let copy = format!("{location}/elsewhere/x-m.avro");
    bed.wait(loaded.storage.put(&copy, bytes.clone())).unwrap();
    // A real manifest by another name, at another place, with other offsets, of another writer, of
    // a table that the connector does not write; and what is no message at all.
    send(&wid, segment(manifest(committed.manifest_path.clone())));
    send(&wid, segment(manifest(copy)));
    send(
        &wid,
        segment(manifest(format!(
            "{location}/metadata/../elsewhere/x-m.avro"
        ))),
    );
    send(&wid, segment(manifest("file:///etc/passwd".to_owned())));
    send(
        "0123456789abcdef",
        segment(manifest(committed.manifest_path.clone())),
    );
    let mut other = segment(manifest(committed.manifest_path));
    other.table.name = "secrets".to_owned();
    send(&wid, other);
    cluster.send(b"\xff\xfe{".to_vec());
    cluster.send(vec![b'x'; 600_000]);
    let hello = Message {
        wid,
        session: Uuid::nil(),
        epoch: 0,
        task: 0,
        host: "elsewhere".to_owned(),
        body: Body::Hello(Hello {
            coordinator: Uuid::now_v7(),
            election: 1,
        }),
    };
    cluster.send(hello.encode().unwrap());
    let limit = Instant::now() + Duration::from_secs(20);
    let reasons = [
        "garbage",
        "oversized",
        "unknown table",
        "forged or changed manifest",
    ];
    while !reasons.iter().all(|reason| cluster.has_logged(reason)) {
        assert!(Instant::now() < limit, "not all were counted");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The coordinator goes on all the same.
    task.assign(&[0]);
    task.tick();
    task.try_orders(0, 5..8).unwrap();
    task.revoke(&[0]);
    assert_eq!(bed.snapshots(TABLE), 2);
    assert_eq!(bed.ids(TABLE), [0, 1, 2, 3, 4, 5, 6, 7]);
    task.session.close();
}

/// Makes the keys of a segment others.
type Tampered = fn(Option<&KeyRunRef>) -> Option<KeyRunRef>;

/// Another message about the segment of this one, if it is about one.
fn tampered(wid: &str, bytes: &[u8], change: Tampered) -> Option<Vec<u8>> {
    let message = Message::decode(wid, bytes).ok()?;
    let Body::Segment(segment) = &message.body else {
        return None;
    };
    let mut segment = segment.clone();
    segment.key_run = change(segment.key_run.as_ref());
    let body = Body::Segment(segment);
    Some(Message { body, ..message }.encode().unwrap())
}

// Promise: A message that gives a segment keys of changes which it does not have, or takes them away, ends no session, and its rows are committed.
#[test]
fn no_message_gives_or_takes_keys_of_changes() {
    let made_up: Tampered = |_| {
        Some(KeyRunRef {
            path: "file:///etc/passwd".to_owned(),
            len: 9,
            sha256: [0; 32],
            rows: 5,
        })
    };
    let more: Tampered = |run| {
        let run = run.cloned().unwrap();
        let rows = run.rows + 1;
        Some(KeyRunRef { rows, ..run })
    };
    let cases: [(&str, Tampered); 4] = [
        ("append", made_up),
        ("upsert", made_up),
        ("upsert", more),
        ("upsert", |_| None),
    ];
    for (mode, change) in cases {
        let bed = match mode {
            "append" => Bed::new(TABLE),
            mode => changes::bed(mode),
        };
        let bed = bed.with("tasks.max", "2");
        let cluster = Cluster::start(&bed, 2, NO_FAULTS);
        // The process that commits hears of the other one's segments from the topic alone.
        let task = task(&bed, 1, &[0]);
        let put = |offsets: Range<i64>| {
            let rows = offsets.map(|id| changes::upsert_at((0, id), id, Some("x")));
            changes::put(&task, rows);
        };
        // What comes before the coordinator's HELLO is not looked at, so there is one by then.
        put(0..1);
        task.until_durable(1);
        // It comes before the first message that the task sends about its next segment.
        let (wid, sent) = (bed.config().wid, AtomicBool::new(false));
        *cluster.before.lock().unwrap() = Some(Box::new(move |bytes| {
            let other = tampered(&wid, bytes, change);
            let other = other.filter(|_| !sent.swap(true, Ordering::Relaxed));
            other.into_iter().collect()
        }));
        put(1..5);
        task.until_durable(5);
        assert_eq!(bed.ids(TABLE), [0, 1, 2, 3, 4], "{mode}");
        let limit = Instant::now() + Duration::from_secs(20);
        while !cluster.has_logged("forged or changed manifest") {
            assert!(Instant::now() < limit, "{mode}: nobody saw it");
            std::thread::sleep(POLL);
        }
        task.session.close();
    }
}

// Promise: A coordinator commits to a table that only records of another worker have named.
#[test]
fn a_table_that_only_another_worker_was_told_of_is_committed() {
    let bed = Bed::new("").with("iceberg.tables.name-template", "lake.p${value.note}");
    let cluster = Cluster::start(&bed, 2, NO_FAULTS);
    cluster.lead(0);
    let mut deliveries = [Delivery::new(&bed, 1, 0), Delivery::new(&bed, 0, 1)];
    let limit = Instant::now() + Duration::from_secs(40);
    while deliveries.iter().any(|delivery| delivery.durable < 6) {
        assert!(Instant::now() < limit, "still at {}", deliveries[0].durable);
        for (delivery, note) in deliveries.iter_mut().zip(["zero", "one"]) {
            delivery.turn_noted(3, 6, note);
        }
        std::thread::sleep(Duration::from_millis(40));
    }
    assert_eq!(bed.ids("lake.pzero"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(bed.ids("lake.pone").len(), 6);
    // The next coordinator hears of a table that its own records never named.
    cluster.lead(1);
    drop(deliveries);
    let mut later = Delivery::new(&bed, 0, 0);
    later.position = 6;
    while later.durable < 9 {
        assert!(Instant::now() < limit, "still at {}", later.durable);
        later.turn_noted(3, 9, "two");
        std::thread::sleep(Duration::from_millis(40));
    }
    assert_eq!(bed.ids("lake.ptwo"), [6, 7, 8]);
}

// Promise: the changes of all workers are committed by the one that leads, deletes alone too, and by the next leader after it
// Case: 32
#[test]
fn changes_of_several_workers_go_through_the_topic() {
    for version in ["2", "3"] {
        let bed = changes::bed("upsert")
            .with("tasks.max", "2")
            .with("iceberg.tables.auto-create-props.format-version", version);
        let cluster = Cluster::start(&bed, 2, NO_FAULTS);
        let tasks = [task(&bed, 0, &[0]), task(&bed, 1, &[1])];
        let until_durable = |offset: i64| {
            for (partition, task) in (0..).zip(&tasks) {
                task.until_all_durable(&[(p(partition), offset)]);
            }
        };
        let put = |first: i64, note: Option<&str>, ids: i64| {
            for (partition, task) in (0..).zip(&tasks) {
                let rows = (0..ids).map(|id| {
                    let own = i64::from(partition) * 100 + id;
                    changes::upsert_at((partition, first + id), own, note)
                });
                changes::put(task, rows);
            }
            until_durable(first + ids);
        };
        put(0, Some("first"), 5);
        put(5, Some("second"), 5);
        cluster.lead(1);
        put(10, None, 2);
        put(12, Some("third"), 1);
        let mut model = BTreeMap::new();
        for of in [0, 100] {
            model.insert(of, "third".to_owned());
            model.extend((2..5).map(|id| (of + id, "second".to_owned())));
        }
        assert_eq!(changes::seen(&bed, TABLE), model, "v{version}");
        tasks.iter().for_each(|task| task.session.close());
    }
}
