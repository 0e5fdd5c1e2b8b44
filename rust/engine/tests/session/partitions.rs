//! Partitions that come and go, tasks that end, and other writers.

use std::time::Duration;

use frazil_core::wire::{LogLevel, Request};
use frazil_engine::hub::{Hub, HubConfig};
use frazil_engine::runtime::Runtime;
use std::sync::Arc;

use crate::bed::{Bed, order, p};

// Promise: a task that died leaves nothing twice and nothing out
#[test]
fn a_task_that_died_leaves_nothing_twice_and_nothing_out() {
    let bed = Bed::new("db.orders").with("iceberg.table.db.orders.commit-rows", "5");
    let first = bed.task();
    first.put(0..5);
    first.until_durable(5);
    first.put(5..8);
    drop(first);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4]);
    let second = bed.task();
    second.put(2..8);
    second.until_durable(8);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4, 5, 6, 7]);
}

// Promise: offsets that somebody moved back skip what the tables hold, and the log says how to read it again
#[test]
fn records_below_a_moved_offset_are_skipped_with_the_command_that_reads_them_again() {
    let bed = Bed::new("db.orders").slow();
    let first = bed.task();
    first.put(0..5);
    first.session.close();
    let second = bed.task();
    second.put(1..6);
    let mut log = second.tick().log;
    second.try_orders(0, 2..7).unwrap();
    log.extend(second.tick().log);
    let told: Vec<&String> = log
        .iter()
        .filter(|(level, _)| *level == LogLevel::Warn)
        .map(|(_, line)| line)
        .filter(|line| line.contains("orders-0 is read from offset 1"))
        .collect();
    assert_eq!(told.len(), 1, "{log:?}");
    assert!(told[0].contains("PATCH /connectors/"), "{told:?}");
    second.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn an_offset_that_was_moved_back_stops_the_task_when_it_shall() {
    let bed = Bed::new("db.orders").with("frazil.offsets.external.change", "fail");
    let first = bed.task();
    first.put(0..3);
    first.until_durable(3);
    first.put(3..6);
    first.until_durable(6);
    first.session.close();
    let crashed = bed.task();
    crashed.put(3..7); // From where the group was before the last commit.
    crashed.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4, 5, 6]);
    let moved = bed.task();
    moved.tick();
    let error = moved.try_orders(0, 1..7).unwrap_err();
    assert_eq!(error.code(), "OFFSETS_MOVED");
    assert_eq!(moved.pre_commit(0, 7), Some(1), "the offset stands still");
}

// Promise: a topic that was deleted and created again is noticed before its records are taken for others
#[test]
fn a_topic_that_was_created_again_is_noticed() {
    let bed = Bed::new("db.orders").slow();
    let first = bed.task();
    first.put(0..5);
    first.session.close();
    let second = bed.task();
    second.tick();
    let hours = 2 * 3_600_000;
    let newer = (0..3).map(|offset| order(0, offset).timestamp(1_700_000_000_000 + hours));
    let error = second.try_put(&second.frame().rows(newer)).unwrap_err();
    assert_eq!(error.code(), "TOPIC_RECREATED");
    assert!(error.report().contains("orders-0"), "{error:?}");
    second.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4]);
}

#[test]
fn a_closed_task_has_committed_what_it_had() {
    let bed = Bed::new("db.orders").slow();
    let task = bed.task();
    task.put(0..4);
    task.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3]);
    assert_eq!(
        task.try_orders(0, 4..5).unwrap_err().code(),
        "SESSION_CLOSED"
    );
    task.session.close();
}

#[test]
fn revoked_partitions_are_committed_before_they_go() {
    let bed = Bed::new("db.orders").slow();
    let task = bed.task_with(&[]);
    task.assign(&[1]);
    task.put(0..4);
    task.try_orders(1, 100..102).unwrap();
    task.revoke(&[0]);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 100, 101]);
    assert_eq!(task.pre_commit(1, 102), Some(102));
    assert_eq!(task.pre_commit(0, 4), None, "it is another task's now");
    // The next owner begins at the group's offset, which is behind.
    let next = bed.task();
    next.put(0..6);
    next.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4, 5, 100, 101]);
}

// Promise: a partition that returns over uncommitted rows loses none of them
#[test]
fn a_partition_that_returns_over_uncommitted_rows_loses_none_of_them() {
    let bed = Bed::new("db.orders").with("iceberg.control.commit.interval-ms", "5000");
    let task = bed.task();
    task.put(0..2);
    task.revoke(&[0]);
    task.assign(&[0]);
    task.put(2..5);
    let lock = bed.lock_catalog();
    task.revoke(&[0]); // The commit does not come through in time.
    task.assign(&[0]);
    assert_eq!(task.pre_commit(0, 2), None, "what is held says nothing now");
    drop(lock);
    let begun = task.until_it_says("came back");
    assert_eq!(
        begun.rewinds,
        vec![],
        "it has just come: Connect reads from W"
    );
    task.try_orders(0, 2..5).unwrap();
    assert_eq!(task.pre_commit(0, 5), Some(5), "the commit was heard of");
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4]);
}

#[test]
fn lost_partitions_hold_nothing_back() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.assign(&[1]);
    task.put(0..2);
    task.try_orders(1, 10..12).unwrap();
    task.control(&Request::Lost(vec![p(1)])).unwrap();
    task.until_durable(2);
    let ids = bed.ids("db.orders");
    assert!(ids.starts_with(&[0, 1]), "{ids:?}");
    // The new owner of the lost partition.
    let other = bed.open().unwrap();
    other.assign(&[1]);
    other.tick();
    other.try_orders(1, 10..13).unwrap();
    other.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 10, 11, 12]);
}

// Promise: rows that another writer committed first are not written again
#[test]
fn rows_that_another_writer_committed_first_are_not_written_again() {
    let bed = Bed::new("db.orders").slow();
    let zombie = bed.task_with(&[("iceberg.table.db.orders.commit-rows", "6")]);
    zombie.put(0..5);
    let other = bed.task_with(&[("iceberg.table.db.orders.commit-rows", "3")]);
    other.put(0..3);
    other.until_durable(3);
    zombie.put(5..6);
    let (offset, effects) = zombie.until_rewound();
    assert_eq!(offset, 0, "nothing of this session is in the table");
    let told = effects
        .log
        .iter()
        .any(|(level, line)| *level == LogLevel::Warn && line.contains("another session"));
    assert!(told, "{:?}", effects.log);
    // Until the framework has gone back, what it delivers does not count.
    zombie.try_orders(0, 6..9).unwrap();
    assert_eq!(zombie.pre_commit(0, 9), Some(0));
    assert_eq!(bed.ids("db.orders"), [0, 1, 2]);
    zombie.deliver(0, 9);
    assert_eq!(bed.ids("db.orders"), (0..9).collect::<Vec<_>>());
}

#[test]
fn two_writers_of_one_id_are_told_apart_in_the_end() {
    let bed = Bed::new("db.orders").slow();
    let (zombie, other) = (bed.task(), bed.task());
    let mut codes = Vec::new();
    for round in 0..6 {
        let first = 2 * round;
        zombie.put(first..first + 2);
        other.put(first..first + 1);
        other.revoke(&[0]);
        other.assign(&[0]);
        zombie.revoke(&[0]); // No assignment follows: two connectors are in two groups.
        let begun = zombie.control(&Request::Tick);
        if let Err(error) = &begun {
            let own = format!("connector `{}` task 0", bed.config().connector);
            assert!(error.message().contains(&own), "{error}");
            assert!(error.message().contains("was made by connector"), "{error}");
        }
        codes.push(begun.err().map(|error| error.code()));
    }
    let mut expected = vec![None; 5];
    expected.push(Some("WRITER_CONFLICT"));
    assert_eq!(codes, expected);
    assert_eq!(bed.ids("db.orders"), [0, 2, 4, 6, 8, 10], "never twice");
}

#[test]
fn partitions_that_another_task_had_are_continued_without_a_restart() {
    let bed = Bed::new("db.orders").slow();
    let task = bed.task();
    task.put(0..2); // Rows stay open while partition 1 moves here.
    let other = bed.open().unwrap();
    other.assign(&[1]);
    other.tick();
    other.try_orders(1, 100..104).unwrap();
    other.session.close();
    task.assign(&[1]);
    assert_eq!(task.tick().rewinds, vec![]);
    let effects = task.try_orders(1, 100..106).unwrap();
    assert_eq!(effects.rewinds, vec![]);
    task.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 100, 101, 102, 103, 104, 105]);
}

#[test]
fn a_cancelled_task_seals_nothing() {
    let bed = Bed::new("db.orders").slow();
    let task = bed.task();
    task.put(0..4);
    task.control(&Request::Cancel).unwrap();
    assert_eq!(task.pre_commit(0, 4), Some(0));
    task.session.close();
    assert_eq!(bed.snapshots("db.orders"), 0);
}

#[test]
fn tasks_share_a_hub_only_with_the_same_catalog_and_settings() {
    let bed = Bed::new("db.orders");
    let runtime = Runtime::shared().unwrap();
    let join = |config: HubConfig| Hub::join(config, &runtime, bed.catalog());
    let config = bed.config();
    let first = join(HubConfig::of(&config));
    assert!(Arc::ptr_eq(&first, &join(HubConfig::of(&config))));
    let mut secret = config.clone();
    let properties = &mut secret.catalog.properties;
    properties.insert("token".to_owned(), "new".to_owned());
    let other = join(HubConfig::of(&secret));
    assert!(!Arc::ptr_eq(&first, &other));
    let mut patient = HubConfig::of(&config);
    patient.block_max += Duration::from_secs(1);
    assert!(!Arc::ptr_eq(&first, &join(patient)));
}
