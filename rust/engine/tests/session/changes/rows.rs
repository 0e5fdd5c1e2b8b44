//! What is left of the rows of a table.

use std::collections::BTreeMap;

use frazil_core::offsets::TopicPartition;
use frazil_core::wire::testing::{Row, Value};

use super::*;
use crate::bed::p;

#[test]
fn a_segment_says_which_key_each_change_is_about_and_where_its_row_lies() {
    let bed = bed("upsert").slow();
    let task = bed.task();
    put(
        &task,
        [
            upsert(0, 7, Some("a")),
            upsert(1, 8, Some("b")),
            upsert(2, 7, None),
            upsert(3, 9, Some("c")),
            upsert(4, 7, Some("d")),
        ],
    );
    task.session.close();
    let mut runs = key_runs(&bed, TABLE);
    assert_eq!(runs.len(), 1);
    let mut run = runs.remove(0);
    assert!(run.is_sorted_by_key(|change| change.0));
    let key = |id| number(&bed, TABLE, id);
    // Of one key they stand as they came.
    let of_seven: Vec<i64> = run.iter().filter(|c| c.0 == key(7)).map(|c| c.2).collect();
    assert_eq!(of_seven, [0, 2, 4]);
    run.sort_by_key(|change| change.2);
    assert_eq!(
        run,
        [
            (key(7), 1, 0, Some((0, 0))),
            (key(8), 1, 1, Some((0, 1))),
            (key(7), 0, 2, None),
            (key(9), 1, 3, Some((0, 2))),
            (key(7), 1, 4, Some((0, 3))),
        ]
    );
}

// Promise: upserts and deletes by key leave exactly the last row of each key, in tables of format version 2 and 3
#[test]
fn the_last_change_of_each_key_is_what_readers_see() {
    for version in ["2", "3"] {
        let bed = bed("upsert").with(VERSION, version);
        let task = bed.task();
        put(
            &task,
            [
                upsert(0, 1, Some("a")),
                upsert(1, 2, Some("a")),
                upsert(2, 3, Some("a")),
                upsert(3, 1, Some("b")),
            ],
        );
        task.until_durable(4);
        assert_eq!(seen(&bed, TABLE), notes(&[(1, "b"), (2, "a"), (3, "a")]));
        put(
            &task,
            [
                upsert(4, 2, None),
                upsert(5, 3, Some("c")),
                upsert(6, 9, None),
            ],
        );
        task.until_durable(7);
        assert_eq!(
            seen(&bed, TABLE),
            notes(&[(1, "b"), (3, "c")]),
            "v{version}"
        );
        put(
            &task,
            [
                upsert(7, 2, Some("d")),
                upsert(8, 1, None),
                upsert(9, 3, None),
            ],
        );
        task.until_durable(10);
        assert_eq!(seen(&bed, TABLE), notes(&[(2, "d")]), "v{version}");
        task.session.close();
    }
}

// Promise: changes of Debezium end in the source's rows: inserts, updates, deletes, tombstones, changed keys
#[test]
fn changes_of_debezium_end_in_the_rows_of_the_source() {
    let bed = bed("cdc");
    let task = bed.task();
    let tombstone = at(0, 4).key(Value::object([("id", Value::Int64(2))]));
    put(
        &task,
        [
            change((0, 0), "r", Value::Null, row(1, "snapshot"), 10),
            created(1, 2, "two"),
            updated(2, 1, "changed"),
            removed(3, 2),
            tombstone,
            created(5, 5, "five"),
        ],
    );
    // What stands behind a delete says nothing more.
    task.until_it_says("1 without a value");
    task.until_durable(6);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "snapshot"), (5, "five")]));
    // The update at 2 was older than the row of the snapshot; a change at its place or later counts.
    let key_change = change((0, 6), "u", row(5, "five"), row(6, "six"), 20);
    put(
        &task,
        [
            key_change,
            change((0, 7), "u", Value::Null, row(1, "newer"), 21),
        ],
    );
    task.until_durable(8);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "newer"), (6, "six")]));
    put(
        &task,
        [change((0, 8), "u", Value::Null, row(6, "late"), 15)],
    );
    task.until_durable(9);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "newer"), (6, "six")]));
}

// Promise: an update that moves a row to another partition leaves one row, in the new partition
// Case: 3
#[test]
fn an_update_may_move_a_row_to_another_partition() {
    for version in ["2", "3"] {
        let bed = bed("cdc")
            .with(VERSION, version)
            .with("iceberg.tables.default-partition-by", "note");
        let task = bed.task();
        put(
            &task,
            (0..6).map(|n| created(n, n, ["a", "b"][n as usize % 2])),
        );
        task.until_durable(6);
        put(
            &task,
            [updated(6, 0, "b"), updated(7, 1, "c"), removed(8, 2)],
        );
        task.until_durable(9);
        let rows = [(0, "b"), (1, "c"), (3, "b"), (4, "a"), (5, "b")];
        assert_eq!(seen(&bed, TABLE), notes(&rows), "v{version}");
        task.session.close();
    }
}

// Promise: a task that is killed and starts again changes nothing twice, whatever is delivered again
#[test]
fn a_killed_task_goes_on_as_if_nothing_was() {
    let bed = bed("upsert");
    let records = |range: std::ops::Range<i64>| {
        range.map(|n| {
            upsert(
                n,
                n % 7,
                (n % 5 != 3).then_some(["x", "y", "z"][n as usize % 3]),
            )
        })
    };
    let task = bed.task();
    put(&task, records(0..20));
    task.until_durable(20);
    put(&task, records(20..30));
    drop(task);
    let again = bed.task();
    put(&again, records(0..30));
    put(&again, records(30..40));
    again.until_durable(40);
    let mut model = BTreeMap::new();
    for n in 0..40i64 {
        match n % 5 != 3 {
            true => model.insert(n % 7, ["x", "y", "z"][n as usize % 3].to_owned()),
            false => model.remove(&(n % 7)),
        };
    }
    assert_eq!(seen(&bed, TABLE), model);
}

// Promise: of two topics with the same keys and without an order, what arrives last counts
// Case: 9
#[test]
fn of_two_topics_with_the_same_keys_the_last_arrival_counts() {
    let bed = bed("upsert").with("topics", "orders,returns");
    let task = bed.task();
    let returns = TopicPartition::new("returns", 0);
    task.control(&frazil_core::wire::Request::Assign(vec![returns.clone()]))
        .expect("assigned");
    let returned = |offset: i64, id: i64, note: &str| {
        let record = Row::new("returns", 0, offset);
        record
            .key(Value::object([("id", Value::Int64(id))]))
            .value(row(id, note))
    };
    let until = |orders: i64, others: i64| {
        task.until_all_durable(&[(p(0), orders), (returns.clone(), others)]);
    };
    put(
        &task,
        [
            upsert(0, 1, Some("ordered")),
            returned(0, 1, "returned"),
            returned(1, 2, "returned"),
            upsert(1, 2, Some("ordered")),
        ],
    );
    until(2, 2);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "returned"), (2, "ordered")]));
    put(&task, [upsert(2, 1, Some("again")), returned(2, 2, "back")]);
    until(3, 3);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "again"), (2, "back")]));
}

// Case: 9
#[test]
fn two_tasks_change_rows_of_one_table() {
    let bed = bed("cdc")
        .with("tasks.max", "2")
        .with("frazil.coordination", "local");
    let one = bed.task();
    let two = bed
        .open_with(&[("frazil.internal.task", "1")])
        .expect("it starts");
    two.assign(&[1]);
    let of = |partition: i32, offset: i64, id: i64, note: &str| {
        change((partition, offset), "u", Value::Null, row(id, note), offset)
    };
    for round in 0..3 {
        let notes: Vec<String> = (0..10).map(|n| format!("{round}-{n}")).collect();
        let first = round * 10;
        put(
            &one,
            (0..10).map(|n| of(0, first + n, n, &notes[n as usize])),
        );
        put(
            &two,
            (0..10).map(|n| of(1, first + n, 100 + n, &notes[n as usize])),
        );
    }
    one.until_durable(30);
    two.until_all_durable(&[(p(1), 30)]);
    let rows = seen(&bed, TABLE);
    assert_eq!(rows.len(), 20);
    assert!(
        rows.iter()
            .all(|(id, note)| *note == format!("2-{}", id % 100))
    );
}

#[test]
fn rows_that_are_sorted_keep_their_changes() {
    let bed = bed("upsert")
        .slow()
        .with("iceberg.tables.default-sort-by", "note desc");
    let task = bed.task();
    let letters = ["c", "a", "e", "b", "d"];
    let records = (0..25).map(|n| upsert(n, n % 10, Some(letters[n as usize % 5])));
    put(&task, records);
    put(&task, [upsert(25, 3, None), upsert(26, 4, Some("z"))]);
    task.session.close();
    let mut model: BTreeMap<i64, String> = (0..25)
        .map(|n| (n % 10, letters[n as usize % 5].to_owned()))
        .collect();
    model.remove(&3);
    model.insert(4, "z".to_owned());
    assert_eq!(seen(&bed, TABLE), model);
}

// Promise: random changes, restarts and replays end in the rows of a model
#[test]
fn random_changes_end_in_the_rows_of_a_model() {
    for (seed, version) in [(1u64, "2"), (2, "3"), (3, "2")] {
        let bed = bed("cdc")
            .with(VERSION, version)
            .with("frazil.writers.max-open", "2")
            .with("iceberg.tables.default-sort-by", "note")
            .with("iceberg.tables.default-partition-by", "bucket(id, 3)");
        let mut random = seed;
        let mut next = move |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut records: Vec<Row> = Vec::new();
        let mut model: BTreeMap<i64, String> = BTreeMap::new();
        let (mut task, mut durable) = (bed.task(), 0);
        for round in 0..8 {
            let first = records.len();
            for _ in 0..next(60) + 1 {
                let offset = records.len() as i64;
                let (id, note) = (next(20) as i64, format!("{round}-{offset}"));
                let record = match (next(10), model.remove(&id)) {
                    (0..3, Some(_)) => removed(offset, id),
                    (3, Some(old)) => {
                        let to = 20 + next(20) as i64;
                        model.insert(to, note.clone());
                        change((0, offset), "u", row(id, &old), row(to, &note), offset)
                    }
                    (_, old) => {
                        model.insert(id, note.clone());
                        let before = old.map_or(Value::Null, |old| row(id, &old));
                        change((0, offset), "u", before, row(id, &note), offset)
                    }
                };
                records.push(record);
            }
            if next(3) == 0 {
                drop(task);
                task = bed.task();
                let from = next(durable as u64 + 1) as usize;
                put(&task, records[from..].iter().cloned());
            } else {
                put(&task, records[first..].iter().cloned());
            }
            if next(2) == 0 || round == 7 {
                durable = records.len() as i64;
                task.until_durable(durable);
                assert_eq!(seen(&bed, TABLE), model, "seed {seed}, round {round}");
            }
        }
        task.session.close();
    }
}
