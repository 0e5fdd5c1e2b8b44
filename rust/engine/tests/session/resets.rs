//! Offset resets: what tasks of before and after write.

use std::time::{Duration, Instant};

use frazil_core::SinkError;
use frazil_core::commit::anchor::{Anchor, anchor_key};
use frazil_core::commit::location::StoredIn;
use frazil_core::commit::recover::{state_of, stored_state_of};
use frazil_core::commit::state::property_key;
use frazil_core::wire::{LogLevel, Request, SourceTopic};
use frazil_engine::admin::Repair;
use uuid::Uuid;

use crate::bed::{Bed, Task, p};

const TABLE: &str = "db.orders";

/// Lets time pass until the task fails.
fn until_failed(task: &Task) -> SinkError {
    let limit = Instant::now() + Duration::from_secs(40);
    loop {
        match task.control(&Request::Tick) {
            Ok(_) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return error,
        }
        assert!(Instant::now() < limit, "the task lives");
    }
}

fn ends(task: Task) {
    task.session.close();
}

/// The offsets of all rows: first those of epoch 0, then those that came since.
fn twice(first: std::ops::Range<i64>, second: std::ops::Range<i64>) -> Vec<i64> {
    let mut all: Vec<i64> = first.chain(second).collect();
    all.sort_unstable();
    all
}

fn stored_epoch(bed: &Bed, table: &str) -> u64 {
    let wid = bed.config().wid;
    stored_state_of(&bed.load(table).metadata, &wid, "main")
        .unwrap()
        .map_or(0, |state| state.epoch)
}

// Promise: after an offset reset by Connect's REST the records from the new offset on are written again, once
// Injection: 55
#[test]
fn a_reset_back_is_written_again_once() {
    let bed = Bed::new(TABLE);
    let task = bed.task_of_now();
    task.put(0..10);
    task.until_durable(10);
    ends(task);
    let admin = bed.admin();
    assert_eq!(admin.epoch().unwrap(), 0);
    assert_eq!(admin.reset([(p(0), Some(4))]).unwrap(), 1);
    assert_eq!(admin.reset([(p(0), Some(4))]).unwrap(), 1, "one reset");
    assert_eq!(admin.epoch().unwrap(), 1);
    assert_eq!(bed.snapshots(TABLE), 2, "a reset moves the branch once");
    let task = bed.task_of_now();
    task.put(4..8);
    task.until_durable(8);
    assert_eq!(bed.ids(TABLE), twice(0..10, 4..8));
    assert_eq!(stored_epoch(&bed, TABLE), 1);
    // The next task finds what this one wrote.
    ends(task);
    let task = bed.task_of_now();
    task.deliver(4, 12);
    assert_eq!(bed.ids(TABLE), twice(0..10, 4..12));
    assert_eq!(admin.reset([(p(0), Some(4))]).unwrap(), 2, "a new reset");
}

// Injection: 55
#[test]
fn deleting_all_offsets_reads_everything_again_and_forward_skips() {
    let bed = Bed::new(TABLE);
    let task = bed.task_of_now();
    task.put(0..5);
    task.until_durable(5);
    ends(task);
    assert_eq!(bed.admin().reset([]).unwrap(), 1);
    let task = bed.task_of_now();
    task.put(0..5);
    task.until_durable(5);
    ends(task);
    assert_eq!(bed.ids(TABLE), twice(0..5, 0..5));
    assert_eq!(bed.admin().reset([(p(0), Some(8))]).unwrap(), 2);
    let task = bed.task_of_now();
    task.put(8..10);
    task.until_durable(10);
    assert_eq!(bed.ids(TABLE), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 8, 9]);
}

// Promise: when Kafka refuses the new offsets after the tables took the reset, no record is lost or skipped
// Injection: 55
#[test]
fn a_reset_that_kafka_then_refuses_loses_nothing() {
    let bed = Bed::new(TABLE);
    let task = bed.task_of_now();
    task.put(0..5);
    task.until_durable(5);
    ends(task);
    for asked in [Some(2), Some(900), None] {
        bed.admin().reset([(p(0), asked)]).unwrap();
    }
    // The group's offset is where it was.
    let task = bed.task_of_now();
    task.put(5..9);
    task.until_durable(9);
    assert_eq!(bed.ids(TABLE), (0..9).collect::<Vec<_>>());
}

// Promise: a task that outlived an offset reset writes nothing more, and stops
// Injection: 55
#[test]
fn a_task_from_before_a_reset_is_stopped() {
    let bed = Bed::new("db.orders,db.more").slow();
    let zombie = bed.task_of_now();
    zombie.put(0..4);
    bed.task_of_now().deliver_by_closing(0, 3);
    assert_eq!(bed.ids(TABLE), [0, 1, 2]);
    assert_eq!(bed.admin().reset([]).unwrap(), 1);
    zombie.revoke(&[0]);
    assert_eq!(until_failed(&zombie).code(), "WRITER_FENCED");
    for table in [TABLE, "db.more"] {
        assert_eq!(bed.ids(table), [0, 1, 2], "{table}");
    }
    bed.task_of_now().deliver_by_closing(0, 4);
    assert_eq!(bed.ids(TABLE), twice(0..3, 0..4));
    // Its configuration is that of before the reset: it is refused on the table, too.
    let stale = bed.task();
    stale.tick();
    let refused = stale.try_orders(0, 0..5).err();
    let refused = refused.unwrap_or_else(|| {
        stale.revoke(&[0]);
        until_failed(&stale)
    });
    assert_eq!(refused.code(), "WRITER_FENCED");
    assert_eq!(bed.ids(TABLE), twice(0..3, 0..4));
}

// Promise: a reset fences a task that goes on without having heard of it, also one whose rows are new to the
// table and whose process remembers the table from its last commit
#[test]
fn a_commit_from_before_a_reset_is_refused_after_it() {
    let bed = Bed::new("db.orders").slow();
    let bed = bed.with("iceberg.table.db.orders.commit-rows", "4");
    let zombie = bed.task_of_now();
    zombie.put(0..4);
    zombie.until_durable(4);
    zombie.put(4..6);
    assert_eq!(bed.admin().reset([(p(0), Some(4))]).unwrap(), 1);
    zombie.revoke(&[0]);
    assert_eq!(until_failed(&zombie).code(), "WRITER_FENCED");
    assert_eq!(bed.ids(TABLE), [0, 1, 2, 3]);
    bed.task_of_now().deliver_by_closing(4, 6);
    assert_eq!(bed.ids(TABLE), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_reset_that_reached_one_table_is_completed() {
    let bed = Bed::new("db.orders,db.more");
    let task = bed.task_of_now();
    task.put(0..4);
    task.until_durable(4);
    ends(task);
    let wid = bed.config().wid;
    let mut anchor = Anchor::default();
    assert!(anchor.append(Default::default(), 1, 0));
    // What a reset leaves that was cut off after its first table.
    bed.set_property("db.more", &anchor_key(&wid), Some(&anchor.write().unwrap()));
    let effective = |table: &str| state_of(&bed.load(table).metadata, &wid, "main").unwrap();
    assert_eq!(effective(TABLE).unwrap().bound(&p(0)), Some(4));
    assert_eq!(bed.admin().epoch().unwrap(), 1);
    assert_eq!(effective(TABLE).unwrap().bound(&p(0)), None);
    let task = bed.task_of_now();
    task.put(0..4);
    task.until_durable(4);
    for table in [TABLE, "db.more"] {
        assert_eq!(bed.ids(table), twice(0..4, 0..4), "{table}");
    }
}

#[test]
fn a_connector_without_tables_has_nothing_to_reset() {
    let bed = Bed::new(TABLE);
    assert_eq!(bed.admin().reset([]).unwrap(), 0);
    assert_eq!(bed.admin().epoch().unwrap(), 0);
    assert!(!bed.exists(TABLE));
}

#[test]
fn a_catalog_that_does_not_answer_is_an_error_and_never_epoch_0() {
    let bed = Bed::new(TABLE);
    let task = bed.task_of_now();
    task.put(0..4);
    task.until_durable(4);
    ends(task);
    bed.admin().reset([]).unwrap();
    let admin = bed.admin();
    let lock = bed.lock_catalog();
    let error = admin.epoch().expect_err("the catalog is locked");
    assert_eq!(error.kind(), frazil_core::ErrorKind::Retriable, "{error:?}");
    drop(lock);
    assert_eq!(admin.epoch().unwrap(), 1);
}

fn written(bed: &Bed, ends_at: &[i64]) {
    let mut from = 0;
    for end in ends_at {
        let task = bed.task_of_now();
        task.put(from..*end);
        task.until_durable(*end);
        ends(task);
        from = *end;
    }
}

// Promise: after a rollback of the table the connector goes on and says so, or stops, as `frazil.rollback.policy` says; an offset reset writes the rows again
// Injection: 59
#[test]
fn a_rollback_is_noticed_and_reset_writes_its_rows_again() {
    let bed = Bed::new(TABLE);
    written(&bed, &[4, 8]);
    bed.roll_back(TABLE);
    assert_eq!(bed.ids(TABLE), [0, 1, 2, 3]);
    let careful = bed.task_with(&[("frazil.rollback.policy", "fail")]);
    careful.put(8..9);
    careful.revoke(&[0]);
    assert_eq!(until_failed(&careful).code(), "TABLE_ROLLED_BACK");
    ends(careful);
    let task = bed.task_of_now();
    task.put(8..10);
    let mut warned = 0;
    let limit = Instant::now() + Duration::from_secs(40);
    while task.pre_commit(0, 10) != Some(10) {
        let log = task.tick().log;
        warned += log
            .iter()
            .filter(|(level, line)| *level == LogLevel::Warn && line.contains("rolled back"))
            .count();
        assert!(Instant::now() < limit, "not durable");
        std::thread::sleep(Duration::from_millis(20));
    }
    ends(task);
    assert_eq!(bed.ids(TABLE), [0, 1, 2, 3, 8, 9]);
    // Other tests of the process may have fetched the line; one line at most.
    assert!(warned <= 1, "{warned}");
    bed.roll_back(TABLE);
    bed.admin().reset([(p(0), Some(4))]).unwrap();
    let strict = [
        ("frazil.rollback.policy", "fail"),
        ("frazil.internal.epoch", "1"),
    ];
    let task = bed.task_with(&strict);
    task.put(4..10);
    task.until_durable(10);
    assert_eq!(bed.ids(TABLE), (0..10).collect::<Vec<_>>());
}

// Promise: a state property that was removed or damaged by hand is rebuilt from the snapshots or stops the task, and `frazil state repair` writes it anew
// Injection: 60
#[test]
fn a_removed_or_damaged_property_is_repaired_or_stops_the_task() {
    let bed = Bed::new(TABLE);
    written(&bed, &[4, 8]);
    let key = property_key(&bed.config().wid, "main");
    let admin = bed.admin();
    assert_eq!(admin.repair(TABLE, false).unwrap(), Repair::Sound);
    bed.set_property(TABLE, &key, None);
    let task = bed.task_of_now();
    task.deliver(5, 10);
    ends(task);
    assert_eq!(bed.ids(TABLE), (0..10).collect::<Vec<_>>());
    bed.set_property(TABLE, &key, Some("{\"v\":1"));
    let task = bed.open().expect("the tables are not read at the start");
    task.assign(&[0]);
    task.tick();
    assert_eq!(
        task.try_orders(0, 10..11).unwrap_err().code(),
        "STATE_INVALID"
    );
    ends(task);
    assert_eq!(admin.repair(TABLE, false).unwrap(), Repair::Rebuilt);
    let task = bed.task_of_now();
    task.deliver(5, 12);
    ends(task);
    assert_eq!(bed.ids(TABLE), (0..12).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_proved_is_given_up_only_on_request() {
    let bed = Bed::new(TABLE);
    written(&bed, &[4]);
    let key = property_key(&bed.config().wid, "main");
    bed.set_property(TABLE, &key, Some("nonsense"));
    bed.forget_snapshots(TABLE);
    let admin = bed.admin();
    assert_eq!(admin.repair(TABLE, false).unwrap_err().code(), "STATE_LOST");
    assert_eq!(admin.repair(TABLE, true).unwrap(), Repair::Discarded);
    let task = bed.task_of_now();
    task.put(0..6);
    task.until_durable(6);
    assert_eq!(bed.ids(TABLE), (0..6).collect::<Vec<_>>());
}

/// A connector that keeps its offsets in the snapshots' summaries.
fn in_summaries(tables: &str) -> Bed {
    Bed::new(tables).with("frazil.state.location", "summary")
}

fn has_properties(bed: &Bed, table: &str) -> bool {
    let metadata = bed.load(table).metadata;
    metadata
        .properties()
        .keys()
        .any(|key| key.starts_with("frazil.w.") || key.starts_with("frazil.a."))
}

// Promise: resets, rollback and expiry mean the same where the offsets are kept in the snapshots' summaries
// Injection: 55, 58, 59
#[test]
fn offsets_in_summaries_are_reset_rolled_back_and_outlive_expiry() {
    let bed = in_summaries("db.orders,db.more");
    written(&bed, &[4, 8]);
    let admin = bed.admin();
    assert_eq!(admin.reset([(p(0), Some(4))]).unwrap(), 1);
    assert_eq!(admin.reset([(p(0), Some(4))]).unwrap(), 1, "one reset");
    assert_eq!(admin.epoch().unwrap(), 1);
    for table in [TABLE, "db.more"] {
        assert_eq!(
            bed.snapshots(table),
            3,
            "a reset is a snapshot without rows"
        );
        assert_eq!(bed.ids(table), (0..8).collect::<Vec<_>>());
    }
    let stale = bed.task();
    stale.tick();
    let refused = stale.try_orders(0, 8..9).err();
    let refused = refused.unwrap_or_else(|| {
        stale.revoke(&[0]);
        until_failed(&stale)
    });
    assert_eq!(refused.code(), "WRITER_FENCED");
    let task = bed.task_of_now();
    task.put(4..10);
    task.until_durable(10);
    ends(task);
    assert_eq!(bed.ids(TABLE), twice(0..8, 4..10));
    bed.roll_back(TABLE);
    let careful = [
        ("frazil.rollback.policy", "fail"),
        ("frazil.internal.epoch", "1"),
    ];
    let careful = bed.task_with(&careful);
    careful.put(10..11);
    careful.revoke(&[0]);
    assert_eq!(until_failed(&careful).code(), "TABLE_ROLLED_BACK");
    ends(careful);
    let task = bed.task_of_now();
    task.deliver(6, 12);
    ends(task);
    assert_eq!(bed.ids(TABLE), [0, 1, 2, 3, 10, 11], "as with a property");
    assert!(!has_properties(&bed, TABLE) && !has_properties(&bed, "db.more"));
    assert_eq!(admin.repair(TABLE, false).unwrap(), Repair::Sound);
    let said = String::from_utf8_lossy(&bed.validate()).into_owned();
    assert!(said.contains("in the summaries of its snapshots"), "{said}");
}

// Promise: a connector may move its offsets from properties into summaries and back while it runs
#[test]
fn offsets_move_between_property_and_summary() {
    let bed = Bed::new(TABLE);
    let mut from = 0;
    for location in ["auto", "summary", "auto", "property", "auto", "summary"] {
        let task = bed.task_with(&[("frazil.state.location", location)]);
        task.deliver((from - 2).max(0), from + 4);
        ends(task);
        from += 4;
        assert_eq!(bed.ids(TABLE), (0..from).collect::<Vec<_>>(), "{location}");
        let wid = bed.config().wid;
        let state = stored_state_of(&bed.load(TABLE).metadata, &wid, "main").unwrap();
        let expected = match (location, from) {
            ("summary", _) | ("auto", 12) => StoredIn::Summary,
            _ => StoredIn::Property,
        };
        assert_eq!(state.unwrap().stored_in, expected, "{location} at {from}");
    }
}

// Promise: the state property of another table, copied with its other properties, is ignored
// Injection: 60
#[test]
fn a_copied_property_is_ignored() {
    let bed = Bed::new("db.orders,db.copy");
    written(&bed, &[4]);
    let key = property_key(&bed.config().wid, "main");
    let value = bed.load(TABLE).metadata.properties()[&key].clone();
    bed.set_property("db.copy", &key, Some(&value));
    bed.forget_snapshots("db.copy");
    let task = bed.task_of_now();
    task.put(0..6);
    task.until_durable(6);
    assert_eq!(bed.ids(TABLE), (0..6).collect::<Vec<_>>());
    assert_eq!(bed.ids("db.copy"), (0..6).collect::<Vec<_>>());
}

// Injection: 54
// Case: 31
#[test]
fn a_topic_that_was_made_again_begins_anew() {
    let bed = Bed::new(TABLE);
    let with_id = |id: u128| {
        let task = bed.open().unwrap();
        let topic = SourceTopic {
            name: "orders".into(),
            id: Uuid::from_u128(id),
            partitions: 1,
        };
        task.control(&Request::Topics(vec![topic])).unwrap();
        task.assign(&[0]);
        task
    };
    written(&bed, &[5]);
    let task = with_id(1);
    task.deliver(3, 8);
    ends(task);
    assert_eq!(bed.ids(TABLE), (0..8).collect::<Vec<_>>());
    let task = with_id(2);
    task.put(0..3);
    task.until_durable(3);
    ends(task);
    assert_eq!(bed.ids(TABLE), twice(0..8, 0..3));
    // A task that does not know ids goes on with the topic that has the name now.
    let task = bed.task_of_now();
    task.deliver(0, 5);
    assert_eq!(bed.ids(TABLE), twice(0..8, 0..5));
}

// Promise: beginning at the end of the topics is refused for tables that have records of the connector
#[test]
fn latest_is_refused_once_there_are_rows() {
    let bed = Bed::new(TABLE).with("consumer.override.auto.offset.reset", "latest");
    let complaint = || String::from_utf8_lossy(&bed.validate()).contains("`latest` would skip");
    assert!(!complaint());
    written(&bed, &[4]);
    assert!(complaint());
}
