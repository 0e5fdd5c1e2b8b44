//! When rows are committed, and what the offsets say meanwhile.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use frazil_core::wire::testing::{Row, Value};
use frazil_core::wire::{Effects, Request};

use crate::bed::{Bed, TOPIC, order, p};

#[test]
fn a_table_is_made_from_its_first_record_and_filled_at_the_interval() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    assert!(!bed.exists("db.orders"), "nothing is made before a record");
    let effects = task.put(0..3);
    assert_eq!(effects.rejected, vec![]);
    assert_eq!(task.pre_commit(0, 3), Some(0), "open rows hold the offset");
    let asked = task.tick();
    assert!(asked.timeout_ms.is_some_and(|timeout| timeout <= 500));
    task.until_durable(3);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2]);
    assert_eq!(bed.snapshots("db.orders"), 1);
    task.put(3..5);
    task.until_durable(5);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4]);
    assert_eq!(bed.snapshots("db.orders"), 2);
    assert_eq!(
        bed.texts("db.orders", "note"),
        vec![Some("fine".to_owned()); 5]
    );
}

#[test]
fn a_commit_is_announced_so_that_connect_asks_for_the_offset() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.put(0..1);
    task.tick();
    let limit = Instant::now() + Duration::from_secs(20);
    while !task.tick().request_commit {
        assert!(Instant::now() < limit, "no commit was asked for");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(task.pre_commit(0, 1), Some(1));
}

// Complaint: 24
#[test]
fn enough_rows_are_committed_before_the_interval_ends() {
    let bed = Bed::new("db.orders")
        .slow()
        .with("iceberg.table.db.orders.commit-rows", "5");
    let task = bed.task();
    task.put(0..4);
    task.tick();
    std::thread::sleep(Duration::from_millis(300));
    task.tick();
    assert_eq!(task.pre_commit(0, 4), Some(0));
    assert_eq!(bed.snapshots("db.orders"), 0);
    task.put(4..6);
    task.until_durable(6);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4, 5]);
}

// Complaint: 24
#[test]
fn enough_bytes_are_committed_before_the_interval_ends() {
    let bed = Bed::new("db.orders")
        .slow()
        .with("iceberg.table.db.orders.commit-bytes", "1048576");
    let task = bed.task();
    let large = |offset| {
        let text = "x".repeat(400 << 10);
        let value = Value::Struct(vec![Value::Int64(offset), Value::text(&text)]);
        task.frame().row(Row::new(TOPIC, 0, offset).value(value))
    };
    for offset in 0..2 {
        task.tick();
        task.try_put(&large(offset)).unwrap();
    }
    task.tick();
    std::thread::sleep(Duration::from_millis(300));
    task.tick();
    assert_eq!(bed.snapshots("db.orders"), 0, "800 KiB are too few");
    task.try_put(&large(2)).unwrap();
    task.until_durable(3);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2]);
}

// Complaint: 24
#[test]
fn each_table_has_its_own_interval_and_the_offset_follows_the_slower() {
    let bed = Bed::new("db.fast,db.slow").with("iceberg.table.db.slow.commit-interval-ms", "6000");
    let task = bed.task();
    // Intervals begin at the same times in all processes: the slow one has just begun.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    std::thread::sleep(Duration::from_millis(
        6_100 - since.as_millis() as u64 % 6_000,
    ));
    task.put(0..4);
    let limit = Instant::now() + Duration::from_secs(20);
    while bed.snapshots("db.fast") == 0 {
        task.tick();
        assert!(Instant::now() < limit);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(bed.ids("db.fast"), [0, 1, 2, 3]);
    assert_eq!(bed.snapshots("db.slow"), 0, "the slow one is not due");
    task.tick();
    assert_eq!(task.pre_commit(0, 4), Some(0));
    task.put(4..6);
    task.until_durable(6);
    assert_eq!(bed.ids("db.fast"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(bed.ids("db.slow"), [0, 1, 2, 3, 4, 5]);
    assert!(bed.snapshots("db.fast") > bed.snapshots("db.slow"));
}

// Promise: records that Connect delivers again are written once
#[test]
fn records_that_come_again_are_written_once() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.put(0..4);
    task.put(0..4);
    task.put(2..6);
    // A frame whose runs overlap, as no Connect sends it.
    let overlapping = [6, 7, 8, 7, 8, 9].map(|offset| order(0, offset));
    task.try_put(&task.frame().rows(overlapping)).unwrap();
    task.until_durable(10);
    assert_eq!(bed.ids("db.orders"), (0..10).collect::<Vec<_>>());
    task.put(0..10);
    task.until_durable(10);
    assert_eq!(bed.ids("db.orders"), (0..10).collect::<Vec<_>>());
}

#[test]
fn tombstones_and_skipped_records_move_the_offset_and_make_no_table() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.tick();
    let tombstones = task.frame().row(Row::new(TOPIC, 0, 0));
    task.try_put(&tombstones.row(Row::new(TOPIC, 0, 1).skipped()))
        .unwrap();
    task.tick();
    assert_eq!(task.pre_commit(0, 2), Some(2));
    assert!(!bed.exists("db.orders"));
    let mixed = [
        order(0, 2),
        Row::new(TOPIC, 0, 3),
        order(0, 4),
        Row::new(TOPIC, 0, 5).skipped(),
    ];
    task.try_put(&task.frame().rows(mixed)).unwrap();
    assert_eq!(task.pre_commit(0, 6), Some(2));
    task.until_durable(6);
    assert_eq!(bed.ids("db.orders"), [2, 4]);
}

#[test]
fn offsets_of_records_that_connect_removed_are_committed() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.tick();
    assert_eq!(task.pre_commit(0, 40), Some(40), "nothing ever came");
    task.put(50..52);
    assert_eq!(task.pre_commit(0, 60), Some(50));
    task.until_durable(60);
    assert_eq!(bed.ids("db.orders"), [50, 51]);
}

// Promise: the tasks of one connector share one snapshot for each table and interval
#[test]
fn tasks_of_one_connector_share_a_snapshot() {
    let bed = Bed::new("db.orders").with("tasks.max", "2");
    let first = bed.task();
    let second = bed.open_with(&[("frazil.internal.task", "1")]).unwrap();
    second.assign(&[1]);
    first.put(0..3);
    second.tick();
    second.try_orders(1, 100..103).unwrap();
    // Both seal at the same boundary of the interval.
    let limit = Instant::now() + Duration::from_secs(20);
    while first.pre_commit(0, 3) != Some(3) || second.pre_commit(1, 103) != Some(103) {
        first.tick();
        second.tick();
        assert!(Instant::now() < limit);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 100, 101, 102]);
    assert_eq!(bed.snapshots("db.orders"), 1);
}

// Promise: a task keeps within its budget of native memory, and every row arrives
// Complaint: 23
#[test]
fn memory_stays_within_its_budget_and_every_row_arrives() {
    const BUDGET: u64 = 32 << 20;
    const ROW: usize = 64 << 10;
    const ROWS_OF_A_FRAME: i64 = 64;
    let bed = Bed::new("db.orders")
        .slow()
        .with("frazil.memory.max.bytes", &BUDGET.to_string());
    let task = bed.task();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut text = || {
        let letter = |_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            char::from(b'!' + (random % 90) as u8)
        };
        (0..ROW).map(letter).collect::<String>()
    };
    // What the consumer does: a pause is told once, and so is its end.
    let (mut is_paused, mut held_max, mut end) = (false, 0, 0);
    let mut follow =
        |effects: &Effects| is_paused = (is_paused || effects.pause) && !effects.resume;
    for frame in 0..20 {
        if frame % 4 == 0 {
            let begun = task.tick();
            assert_eq!(begun.rewinds, vec![]);
            follow(&begun);
        }
        let rows = (end..end + ROWS_OF_A_FRAME).map(|offset| {
            let value = Value::Struct(vec![Value::Int64(offset), Value::text(&text())]);
            Row::new(TOPIC, 0, offset).value(value)
        });
        let frame = task.frame().rows(rows.collect::<Vec<_>>());
        let effects = task.try_put(&frame).expect("there is room in time");
        follow(&effects);
        held_max = held_max.max(task.session.memory_held());
        end += ROWS_OF_A_FRAME;
    }
    let frame_bytes = ROWS_OF_A_FRAME as u64 * ROW as u64;
    assert!(
        held_max <= BUDGET + 2 * frame_bytes,
        "{held_max} bytes were held of {BUDGET}"
    );
    // The row group of a file that ends counts twice until all of it is on its way.
    let peak = bed.memory.usage().peak;
    assert!(peak <= 2 * BUDGET, "{peak} bytes were held of {BUDGET}");
    assert!(peak > BUDGET / 4, "memory is counted: {peak}");
    follow(&task.control(&Request::Revoke(vec![p(0)])).unwrap());
    let limit = Instant::now() + Duration::from_secs(20);
    while is_paused {
        assert!(
            Instant::now() < limit,
            "the consumer goes on once there is room"
        );
        std::thread::sleep(Duration::from_millis(20));
        let effects = task.tick();
        is_paused = is_paused && !effects.resume;
    }
    assert_eq!(bed.ids("db.orders"), (0..end).collect::<Vec<_>>());
    let files = bed.files("db.orders", "main").len();
    assert!(files >= 3, "80 MiB do not wait in 32 for one file: {files}");
}

#[test]
fn few_open_files_are_enough_for_many_partitions() {
    let bed = Bed::new("db.orders")
        .with("iceberg.tables.default-partition-by", "bucket(id, 16)")
        .with("frazil.writers.max-open", "1");
    let task = bed.task();
    task.put(0..200);
    task.until_durable(200);
    assert_eq!(bed.ids("db.orders"), (0..200).collect::<Vec<_>>());
    assert!(bed.files("db.orders", "main").len() >= 16);
}

#[test]
fn offsets_are_answered_only_for_partitions_of_the_task() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.put(0..2);
    let asked = Request::PreCommit(vec![(p(0), 2), (p(7), 9)]);
    let effects = task.control(&asked).unwrap();
    assert_eq!(effects.durable, vec![(p(0), 0)]);
}
