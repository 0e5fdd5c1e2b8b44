//! Topics that get more partitions: later changes of a key come through another one.

use std::ops::Range;

use frazil_core::wire::testing::decode_validation;
use frazil_core::wire::{Request, SourceTopic};
use uuid::Uuid;

use super::*;

const ACCEPT: &str = "frazil.partitions.accept";

/// Tells `task` that its topic has so many partitions, and gives it these.
fn tell(task: &Task, partitions: u32, assigned: Range<i32>) {
    let topic = SourceTopic {
        name: TOPIC.into(),
        id: Uuid::from_u128(1),
        partitions,
    };
    task.control(&Request::Topics(vec![topic])).unwrap();
    task.assign(&assigned.collect::<Vec<_>>());
}

fn task_of(bed: &Bed, more: &[(&str, &str)], partitions: i32) -> Task {
    let task = bed.open_with(more).expect("the task starts");
    tell(&task, partitions.unsigned_abs(), 0..partitions);
    task
}

fn refusal(task: &Task, record: Row) -> String {
    let frame = FrameBuilder::schemaless().with_headers().rows([record]);
    let error = task.try_put(&frame).expect_err("it is refused");
    assert_eq!(error.code(), "TOPIC_PARTITIONS_ADDED");
    error.report()
}

fn end(task: Task, partition: i32, offset: i64) {
    task.until_durable_in(partition, offset);
    task.session.close();
}

// Promise: a task whose table has changes stops when partitions were added to its topic, since Kafka keeps no order between the old and the new partition of a key, and goes on when `frazil.partitions.accept` says that it is meant
// Case: 16
#[test]
fn added_partitions_stop_a_table_with_changes_until_they_are_accepted() {
    let bed = bed("upsert");
    let task = task_of(&bed, &[], 3);
    put(&task, [upsert_at((2, 0), 1, Some("a"))]);
    task.until_durable_in(2, 1);
    // While it runs.
    tell(&task, 6, 3..6);
    let report = refusal(&task, upsert_at((5, 0), 1, Some("b")));
    for part in [
        TABLE,
        TOPIC,
        "6 partitions",
        "had 3",
        "`frazil.partitions.accept=6`",
    ] {
        assert!(report.contains(part), "{report}");
    }
    task.session.close();
    // And when it starts again, also with records of the old partitions.
    let task = task_of(&bed, &[], 6);
    refusal(&task, upsert_at((2, 1), 1, Some("b")));
    task.session.close();
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "a")]));
    // At `validate` too, where the connector has asked the cluster.
    let bed = bed.with("frazil.internal.topic-partitions", "other=9, orders=6");
    let problems = |bed: &Bed| decode_validation(&bed.validate()).expect("it follows the format");
    let refused = problems(&bed);
    assert!(
        matches!(&refused[..], [(key, _, message)] if key == ACCEPT
        && message.contains("TOPIC_PARTITIONS_ADDED")),
        "{refused:?}"
    );
    let bed = bed.with(ACCEPT, "6");
    assert_eq!(problems(&bed), []);
    let bed = bed.with(ACCEPT, "1");
    let task = task_of(&bed, &[(ACCEPT, "6")], 6);
    put(&task, [upsert_at((5, 0), 1, Some("b"))]);
    end(task, 5, 1);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "b")]));
    // It is known now, and no more are meant.
    let task = task_of(&bed, &[], 6);
    put(&task, [upsert_at((5, 1), 1, Some("c"))]);
    end(task, 5, 2);
    let task = task_of(&bed, &[(ACCEPT, "6")], 7);
    refusal(&task, upsert_at((6, 0), 1, Some("d")));
    task.session.close();
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "c")]));
}

#[test]
fn added_partitions_stop_no_table_that_is_appended_to() {
    let bed = bed("append");
    for (partitions, offset) in [(3, 0), (6, 1)] {
        let task = task_of(&bed, &[], partitions);
        put(&task, [upsert_at((0, offset), offset, Some("a"))]);
        end(task, 0, offset + 1);
    }
    assert_eq!(bed.ids(TABLE), [0, 1]);
}
