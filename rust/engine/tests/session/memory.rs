//! Tasks that share the memory of one process.

use std::time::{Duration, Instant};

use frazil_core::ErrorKind;
use frazil_core::memory::TASK_GUARANTEE;
use frazil_core::wire::Effects;
use frazil_core::wire::testing::{Row, Value, decode_effects};

use crate::bed::{Bed, TOPIC, Task};

const MIB: u64 = 1 << 20;
const ROW: usize = 64 << 10;
const ROWS_OF_A_FRAME: i64 = 16;

/// A connector of three tasks, each on a table of its own, that share `bytes`.
fn shared(bytes: u64) -> (Bed, Vec<Task>) {
    let bed = Bed::new("db.orders")
        .slow()
        .with("tasks.max", "3")
        .with("frazil.memory.max.bytes", &bytes.to_string());
    let tasks = (0..3).map(|index| {
        let task = bed.open_with(&[("frazil.internal.task", &index.to_string())]);
        let task = task.expect("there is room");
        task.assign(&[index]);
        task
    });
    let tasks = tasks.collect();
    (bed, tasks)
}

/// Puts a frame of 1 MiB as a call of its own, and returns what both halves of it said.
fn put(task: &Task, partition: i32, offset: &mut i64) -> (Effects, Effects) {
    let begun = task.tick();
    let effects = task.try_put(&task.frame().rows(noise(partition, offset)));
    (begun, effects.expect("the frame is taken"))
}

/// Returns the next records, 1 MiB of texts that do not compress.
fn noise(partition: i32, offset: &mut i64) -> Vec<Row> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64 ^ *offset as u64;
    let mut letter = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        char::from(b'!' + (random % 90) as u8)
    };
    let rows: Vec<Row> = (*offset..*offset + ROWS_OF_A_FRAME)
        .map(|offset| {
            let text: String = (0..ROW).map(|_| letter()).collect();
            let value = Value::Struct(vec![Value::Int64(offset), Value::text(&text)]);
            Row::new(TOPIC, partition, offset).value(value)
        })
        .collect();
    *offset += ROWS_OF_A_FRAME;
    rows
}

// Promise: one busy task has the memory that idle ones do not want, and gives it back when they do; a task
// below 32 MiB is never kept waiting
#[test]
fn a_busy_task_gives_way_to_those_that_begin() {
    let (bed, tasks) = shared(6 * TASK_GUARANTEE);
    let mut offsets = [0; 3];
    // More than its share of 64 MiB, less than what is left beside two guarantees.
    while tasks[0].session.memory_held() < 122 * MIB {
        let (begun, effects) = put(&tasks[0], 0, &mut offsets[0]);
        assert!(!begun.pause && !effects.pause, "there is room");
    }
    let mut given_back = u64::MAX;
    while tasks[1].session.memory_held() < 50 * MIB {
        let held = tasks[1].session.memory_held();
        let (begun, effects) = put(&tasks[1], 1, &mut offsets[1]);
        if held < TASK_GUARANTEE - 2 * MIB {
            assert!(!begun.pause && !effects.pause, "paused at {held}");
        }
        tasks[0].tick();
        given_back = given_back.min(tasks[0].session.memory_held());
    }
    // The last of it may still be on its way to the store.
    let limit = Instant::now() + Duration::from_secs(20);
    while given_back > 64 * MIB {
        assert!(
            Instant::now() < limit,
            "{given_back} bytes are above a share"
        );
        std::thread::sleep(Duration::from_millis(20));
        tasks[0].tick();
        given_back = given_back.min(tasks[0].session.memory_held());
    }
    let usage = bed.memory.usage();
    // The row group of a file that ends counts twice until all of it is on its way, and until then the other
    // task may have filled up to a guarantee more: on a quiet machine 81 MiB above were seen.
    assert!(
        usage.peak <= usage.capacity + 66 * MIB + TASK_GUARANTEE,
        "{} of {} bytes",
        usage.peak,
        usage.capacity
    );
    for (partition, task) in [0, 1].into_iter().zip(&tasks) {
        task.revoke(&[partition]);
    }
    let mut ids: Vec<i64> = (0..offsets[0]).chain(0..offsets[1]).collect();
    ids.sort_unstable();
    assert_eq!(bed.ids("db.orders"), ids);
    drop(tasks);
    let limit = Instant::now() + Duration::from_secs(20);
    while bed.memory.usage().held > 0 {
        assert!(Instant::now() < limit, "{:?}", bed.memory.usage());
        std::thread::sleep(Duration::from_millis(20));
    }
}

// Promise: a task that gave memory back goes on as soon as its uploads are done, and not with the next commit
#[test]
fn a_task_that_gave_back_goes_on_without_a_commit() {
    let bed = Bed::new("db.orders")
        .slow()
        .with("iceberg.tables.default-partition-by", "bucket(16, id)")
        .with("frazil.memory.max.bytes", &TASK_GUARANTEE.to_string());
    let task = bed.task();
    let mut offset = 0;
    for round in 0..3 {
        let mut effects = task.tick();
        while !effects.pause {
            task.tick();
            let frame = task.frame().rows(noise(0, &mut offset)).encode();
            // What Java hands frames over in stays with it.
            let answer = task.session.put_from(&frame, 4 << 20);
            effects = decode_effects(&answer.expect("the frame is taken")).unwrap();
        }
        let limit = Instant::now() + Duration::from_secs(10);
        while task.tick().pause {
            let held = task.session.memory_held();
            assert!(
                Instant::now() < limit,
                "{held} bytes are held in round {round}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let held = task.session.memory_held();
        let low_water = TASK_GUARANTEE / 4 * 3;
        assert!(held <= low_water, "{held} bytes");
        assert!(held > low_water / 2, "{held} bytes: too many files ended");
    }
    assert_eq!(bed.snapshots("db.orders"), 0, "nothing was committed");
    task.revoke(&[0]);
    // A revoked task waits for its commit only for a while.
    let limit = Instant::now() + Duration::from_secs(30);
    while bed.snapshots("db.orders") == 0 {
        assert!(Instant::now() < limit, "nothing was committed at the end");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(bed.ids("db.orders"), (0..offset).collect::<Vec<_>>());
}

#[test]
fn a_task_without_its_guarantee_does_not_start() {
    let (bed, tasks) = shared(3 * TASK_GUARANTEE);
    let Err(error) = bed.open_with(&[("name", "another")]) else {
        panic!("there are three tasks already");
    };
    assert_eq!(
        (error.code(), error.kind()),
        ("MEMORY_TOO_SMALL", ErrorKind::Config)
    );
    let said = "4 tasks in this process need 4 x 33554432 = 134217728 bytes";
    assert!(error.message().contains(said), "{}", error.message());
    tasks[2].session.close();
    bed.open_with(&[("name", "another")]).expect("one has left");
}

// Promise: `put` waits for at most its part of `max.poll.interval.ms`
#[test]
fn a_put_is_back_long_before_the_group_misses_the_task() {
    let bed = Bed::new("db.orders").with("frazil.internal.poll-interval-ms", "8000");
    let task = bed.task();
    let locked = bed.lock_catalog();
    task.tick();
    let began = Instant::now();
    let error = task
        .try_orders(0, 0..3)
        .expect_err("the catalog does not answer");
    let took = began.elapsed();
    assert_eq!(error.kind(), ErrorKind::Retriable);
    assert!(took < Duration::from_millis(1_800), "{took:?} of 8 s");
    let again = Instant::now();
    let error = task.try_orders(0, 0..3).expect_err("no time is left");
    assert_eq!(error.code(), "TIMED_OUT");
    assert!(again.elapsed() < Duration::from_millis(500));
    drop(locked);
    task.put(0..3);
    task.until_durable(3);
}
