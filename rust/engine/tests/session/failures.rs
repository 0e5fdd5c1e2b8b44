//! Records that do not fit, and a catalog or storage that fails.

use frazil_core::ErrorKind;

use crate::bed::{Bed, bad_order, loose_order, p};
use frazil_core::wire::testing::FrameBuilder;

fn mixed(good_before: i64, bad: i64) -> FrameBuilder {
    let good = (good_before..bad).map(|offset| loose_order(0, offset));
    FrameBuilder::schemaless()
        .in_columns()
        .rows(good)
        .row(bad_order(0, bad))
        .row(loose_order(0, bad + 1))
}

#[test]
fn a_record_that_does_not_fit_is_rejected_and_the_others_are_written() {
    let bed = Bed::new("db.orders")
        .with("errors.tolerance", "all")
        .with("errors.deadletterqueue.topic.name", "dead");
    let task = bed.task();
    task.put(0..2);
    task.tick();
    let effects = task.try_put(&mixed(2, 4)).unwrap();
    let rejected = &effects.rejected;
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    assert_eq!((rejected[0].row, rejected[0].offset), (2, 4));
    assert_eq!(rejected[0].partition, p(0));
    assert_eq!(rejected[0].table, "db.orders");
    assert!(!rejected[0].message.contains("no number"), "{rejected:?}");
    task.until_durable(6);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 5]);
}

#[test]
fn records_that_never_fit_hold_no_memory() {
    let bed = Bed::new("db.orders")
        .slow()
        .with("errors.tolerance", "all")
        .with("frazil.errors.drop", "true");
    let task = bed.task();
    task.put(0..1);
    task.session.memory_held();
    let mut offset = 1;
    for _ in 0..200 {
        let rows = (offset..offset + 250).map(|offset| bad_order(0, offset));
        let effects = task
            .try_put(&FrameBuilder::schemaless().in_columns().rows(rows))
            .unwrap();
        assert_eq!(effects.rejected.len(), 250);
        offset += 250;
    }
    assert!(task.session.memory_held() < 4 << 20);
    task.session.close();
    assert_eq!(bed.ids("db.orders"), [0]);
}

// Promise: without tolerance nothing is committed from the first bad record on
#[test]
fn without_tolerance_nothing_is_committed_from_the_bad_record_on() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.put(0..3);
    task.until_durable(3);
    task.put(3..5);
    let error = task.try_put(&mixed(5, 6)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    let report = error.report();
    assert!(
        report.contains("orders-0") && report.contains("offset=6"),
        "{report}"
    );
    let again = task.try_orders(0, 8..9).unwrap_err();
    assert_eq!(again.code(), error.code(), "the session has ended");
    let tick = task.control(&frazil_core::wire::Request::Tick);
    assert_eq!(tick.unwrap_err().code(), error.code());
    assert_eq!(task.pre_commit(0, 8), Some(3), "the offset stands still");
    task.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 2]);
    // A bad record that is the first of its frame.
    let task = bed.task();
    let first = FrameBuilder::schemaless().in_columns().row(bad_order(0, 3));
    task.tick();
    assert!(task.try_put(&first.row(loose_order(0, 4))).is_err());
    assert_eq!(task.pre_commit(0, 5), Some(3));
    task.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 2]);
}

#[test]
fn the_first_record_of_a_table_must_say_what_it_looks_like() {
    let bed = Bed::new("db.orders")
        .with("errors.tolerance", "all")
        .with("errors.deadletterqueue.topic.name", "dead");
    let task = bed.task();
    task.tick();
    let empty = frazil_core::wire::testing::Value::object([]);
    let row = frazil_core::wire::testing::Row::new("orders", 0, 0).value(empty);
    let effects = task
        .try_put(&FrameBuilder::schemaless().in_columns().row(row))
        .unwrap();
    assert_eq!(effects.rejected.len(), 1);
    assert_eq!(effects.rejected[0].code, "TABLE_SCHEMA_UNKNOWN");
    assert!(!bed.exists("db.orders"));
    task.put(1..2);
    task.until_durable(2);
    assert_eq!(bed.ids("db.orders"), [1]);
}

#[test]
fn a_busy_catalog_moves_no_offset_and_the_batch_is_taken_later() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.tick();
    let lock = bed.lock_catalog();
    let error = task.try_orders(0, 4..7).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retriable, "{error:?}");
    assert_eq!(task.pre_commit(0, 4), Some(4));
    drop(lock);
    task.put(4..7);
    assert_eq!(task.pre_commit(0, 7), Some(4));
    task.until_durable(7);
    assert_eq!(bed.ids("db.orders"), [4, 5, 6]);
}

#[test]
fn a_commit_that_takes_long_is_waited_for() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.put(0..2);
    task.until_durable(2);
    task.put(2..4);
    let lock = bed.lock_catalog();
    for _ in 0..30 {
        task.tick();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(task.pre_commit(0, 4), Some(2));
    drop(lock);
    task.until_durable(4);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3]);
}

// Promise: rows whose upload failed are read again
#[test]
fn rows_whose_upload_failed_are_read_again() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.put(0..2);
    task.until_durable(2);
    let data = bed.data_directory("db.orders");
    let aside = data.with_extension("aside");
    std::fs::rename(&data, &aside).unwrap();
    std::fs::write(&data, b"in the way").unwrap();
    task.put(2..5);
    let (offset, effects) = task.until_rewound();
    assert_eq!(offset, 2, "the last durable one");
    let told = effects
        .log
        .iter()
        .any(|(_, line)| line.contains("STORAGE_"));
    assert!(told, "{:?}", effects.log);
    assert_eq!(task.pre_commit(0, 5), Some(2));
    std::fs::remove_file(&data).unwrap();
    std::fs::rename(&aside, &data).unwrap();
    task.deliver(2, 6);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4, 5]);
}
