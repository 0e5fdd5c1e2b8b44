//! How much the process grows by while tasks fill their pool, beside what is accounted.
//!
//! `docs/memory.md` has the run of a whole worker; this is its native half, without Java and Kafka.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use frazil_core::memory::{Limit, LimitKind};
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::testing::{FrameBuilder, Row, Value, decode_effects, encode_request};
use frazil_core::wire::{Request, SourceKind, SourceSchema};
use frazil_core::{ErrorKind, Result};
use frazil_engine::Session;
use frazil_engine::memory::Memory;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const TOPIC: &str = "orders";
const NOTES: usize = 997;
const NOTE_BYTES: usize = 900;
const FRAME_ROWS: i64 = 250;
/// Between two looks at the process.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a run is about.
#[derive(Clone, Copy)]
struct Size {
    tasks: i32,
    places: i64,
    rows_of_a_task: i64,
    pool: u64,
}

/// Returns the bytes of memory that the process has and that are no file's.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .strip_suffix(" kB")
        .unwrap()
        .parse()
        .unwrap();
    kib << 10
}

fn notes() -> Vec<String> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut digit = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        char::from_digit((random % 16) as u32, 16).unwrap()
    };
    (0..NOTES)
        .map(|_| (0..NOTE_BYTES).map(|_| digit()).collect())
        .collect()
}

fn settings(folder: &TempDir, size: Size) -> BTreeMap<String, String> {
    let path = folder.path().display();
    [
        ("name", "orders".to_owned()),
        ("topics", TOPIC.to_owned()),
        ("tasks.max", size.tasks.to_string()),
        ("iceberg.catalog.type", "sql".to_owned()),
        ("iceberg.catalog.uri", format!("sqlite:{path}/catalog.db")),
        (
            "iceberg.catalog.warehouse",
            format!("file://{path}/warehouse"),
        ),
        ("iceberg.tables", "db.orders".to_owned()),
        ("iceberg.tables.auto-create-enabled", "true".to_owned()),
        ("iceberg.tables.default-partition-by", "place".to_owned()),
        (
            "iceberg.tables.metadata-columns",
            "_partition,_offset".to_owned(),
        ),
        (
            "iceberg.control.commit.interval-ms",
            "2000000000".to_owned(),
        ),
        (
            "value.converter",
            "org.apache.kafka.connect.converters.ByteArrayConverter".to_owned(),
        ),
        ("frazil.value.format", "json".to_owned()),
        ("frazil.memory.max.bytes", size.pool.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// Does what Connect does with one task, until it has taken all its rows.
fn run(session: &Session, task: i32, size: Size, notes: &[String]) {
    let schema = SourceSchema::scalar(SourceKind::Bytes).optional();
    let id = session.register_schema(&schema.to_bytes()).unwrap();
    let assign = Request::Assign(vec![TopicPartition::new(TOPIC, task)]);
    session.control(&encode_request(&assign)).unwrap();
    let (mut offset, mut frame) = (0, Vec::new());
    while offset < size.rows_of_a_task {
        let begun = session.control(&encode_request(&Request::Tick)).unwrap();
        if decode_effects(&begun).unwrap().pause {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        if frame.is_empty() {
            let rows = (offset..offset + FRAME_ROWS).map(|offset| {
                let number = offset * i64::from(size.tasks) + i64::from(task);
                let place = offset % size.places;
                let note = &notes[number as usize % NOTES];
                let text = format!("{{\"id\":{number},\"place\":{place},\"note\":\"{note}\"}}");
                Row::new(TOPIC, task, offset).value(Value::Bytes(text.into_bytes()))
            });
            frame = FrameBuilder::with_value_schema(id, schema.clone())
                .rows(rows)
                .encode();
        }
        if is_taken(session.put(&frame)) {
            offset += FRAME_ROWS;
            frame = Vec::new();
        }
    }
}

/// Says that a run is over, also when one of its tasks failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn is_taken(result: Result<Vec<u8>>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::Retriable => false,
        Err(error) => panic!("{error:?}"),
    }
}

/// Runs all tasks and returns by how much the process grew, and how much was accounted at most.
fn grown(size: Size) -> (u64, u64) {
    let notes = notes();
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::new(Some(Limit {
        bytes: 16 << 30,
        kind: LimitKind::Machine,
    }));
    let before = resident();
    let done = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut most = before;
            while !done.load(Ordering::Relaxed) {
                most = most.max(resident());
                thread::sleep(LOOK_EVERY);
            }
            most
        });
        let over = Over(&done);
        let tasks: Vec<_> = (0..size.tasks)
            .map(|task| {
                let mut settings = settings(&folder, size);
                settings.insert("frazil.internal.task".to_owned(), task.to_string());
                let session = Session::open_in(&memory, settings).expect("the task starts");
                let notes = &notes;
                scope.spawn(move || {
                    run(&session, task, size, notes);
                    session.close();
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        drop(over);
        looks.join().unwrap()
    });
    (most - before, memory.usage().peak)
}

// Promise: with 800 partitions on each of 8 tasks and little memory, the process grows by no more than 1.3 of
// what is accounted, and what is accounted is the pool and a frame of each task
#[test]
fn a_process_grows_by_what_is_accounted() {
    let size = Size {
        tasks: 8,
        places: 800,
        rows_of_a_task: 50_000,
        pool: 384 * MIB,
    };
    let (growth, peak) = grown(size);
    println!(
        "grown by {} MiB, accounted {} MiB: {:.2}",
        growth / MIB,
        peak / MIB,
        growth as f64 / peak as f64
    );
    assert!(peak >= size.pool / 2, "there was no pressure");
    assert!(
        peak <= size.pool + 4 * MIB * 8,
        "{peak} bytes were accounted"
    );
    assert!(
        growth as f64 <= 1.3 * peak as f64,
        "{growth} of {peak} bytes"
    );
}
