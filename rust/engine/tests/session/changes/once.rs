//! Rows that are added once: producers may send them again, and may be started again meanwhile.

use super::*;

const WINDOW: &str = "iceberg.table.db.orders.dedup-window-rows";

fn once() -> Bed {
    bed("append-once")
}

/// An event; its record's key says nothing about its id.
fn event(place: (i32, i64), id: i64, note: &str) -> Row {
    at(place.0, place.1)
        .key(Value::object([("user", Value::text("u"))]))
        .value(row(id, note))
}

/// Runs a task of `bed` that reads these partitions until each is durable up to its end.
fn run(bed: &Bed, rows: Vec<Row>, ends: &[(i32, i64)]) {
    let task = bed.open().expect("the task starts");
    let partitions: Vec<i32> = ends.iter().map(|(partition, _)| *partition).collect();
    task.assign(&partitions);
    put(&task, rows);
    for (partition, end) in ends {
        task.until_durable_in(*partition, *end);
    }
    task.session.close();
}

fn ids(bed: &Bed) -> Vec<i64> {
    let mut ids: Vec<i64> = visible(bed, TABLE).into_iter().map(|(id, _)| id).collect();
    ids.sort_unstable();
    ids
}

// Promise: in the mode `append-once` a record whose id the table has becomes no second row: not in the same commit, not after a restart, and not when it comes through another partition
#[test]
fn a_row_that_is_sent_again_is_there_once() {
    for version in ["2", "3"] {
        let bed = once().with(VERSION, version);
        let first = [(0, 1), (1, 2), (2, 1), (3, 3)];
        let first = first.map(|(offset, id)| event((0, offset), id, "first"));
        run(&bed, first.into(), &[(0, 4)]);
        let expected = notes(&[(1, "first"), (2, "first"), (3, "first")]);
        assert_eq!(seen(&bed, TABLE), expected, "{version}");
        // All of these are there: no data file is added for them.
        let files = live(&bed, TABLE).0;
        let again = vec![event((0, 4), 1, "again"), event((1, 0), 3, "again")];
        run(&bed, again, &[(0, 5), (1, 1)]);
        assert_eq!(live(&bed, TABLE).0, files);
        let mixed = vec![
            event((1, 1), 2, "again"),
            event((1, 2), 4, "new"),
            event((1, 3), 4, "again"),
        ];
        run(&bed, mixed, &[(1, 4)]);
        let expected = notes(&[(1, "first"), (2, "first"), (3, "first"), (4, "new")]);
        assert_eq!(seen(&bed, TABLE), expected, "{version}");
    }
}

#[test]
fn the_first_of_two_tasks_counts() {
    let bed = once();
    let tasks: Vec<Task> = (0..2).map(|_| bed.open().expect("it starts")).collect();
    for (partition, task) in (0..).zip(&tasks) {
        task.assign(&[partition]);
        put(task, (0..5).map(|id| event((partition, id), id, "x")));
    }
    for (partition, task) in (0..).zip(&tasks) {
        task.until_durable_in(partition, 5);
    }
    tasks.into_iter().for_each(|task| task.session.close());
    // `seen` fails when a key has two rows.
    assert_eq!(seen(&bed, TABLE).len(), 5);
}

// Promise: `dedup-window-rows` bounds how many ids are kept in mind: at least so many of the newest rows, also after a restart
#[test]
fn only_so_many_of_the_newest_rows_are_remembered() {
    let bed = once().with(WINDOW, "3");
    for id in 0..5 {
        run(&bed, vec![event((0, id), id, "x")], &[(0, id + 1)]);
    }
    let again = (5..10).zip(0..5);
    let again = again.map(|(offset, id)| event((0, offset), id, "again"));
    run(&bed, again.collect(), &[(0, 10)]);
    assert_eq!(ids(&bed), [0, 0, 1, 1, 2, 3, 4]);
    // In one process too: what is too old is forgotten as rows come.
    let task = bed.task();
    for (offset, id) in (10..16).zip(10..16) {
        put(&task, [event((0, offset), id, "x")]);
        task.until_durable(offset + 1);
    }
    put(
        &task,
        [event((0, 16), 10, "again"), event((0, 17), 15, "again")],
    );
    task.until_durable(18);
    let ids = ids(&bed);
    let count = |id| ids.iter().filter(|one| **one == id).count();
    assert_eq!((count(10), count(15)), (2, 1));
}

#[test]
fn records_without_a_value_or_an_id_add_nothing() {
    let bed = tolerant(once());
    let task = bed.task();
    let effects = put(
        &task,
        [
            event((0, 0), 1, "x"),
            at(0, 1).key(Value::object([("id", Value::Int64(1))])),
            at(0, 2).value(Value::object([("note", Value::text("no id"))])),
        ],
    );
    assert_eq!(rejected(&effects), [(2, "CHANGE_KEY_NULL")]);
    task.until_durable(3);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "x")]));
}
