//! Rows that the commit finishes: values that the source left out, and deleted rows that stay.

use std::collections::BTreeSet;

use arrow_array::types::Int64Type;
use frazil_core::wire::testing::{FrameBuilder, Value};
use frazil_core::wire::{SourceKind, SourceSchema};

use super::*;
use crate::bed::p;

const LEFT_OUT: &str = "__debezium_unavailable_value";
const SOFT: &str = "iceberg.tables.default-soft-delete-column";
const ABSENT: &str = "iceberg.tables.default-unavailable-values";

/// A row with a long text and a number.
fn wide(id: i64, note: &str, size: i64) -> Value {
    Value::object([
        ("id", Value::Int64(id)),
        ("note", Value::text(note)),
        ("size", Value::Int64(size)),
    ])
}

fn update(offset: i64, id: i64, note: &str, size: i64) -> Row {
    change((0, offset), "u", Value::Null, wide(id, note, size), offset)
}

fn create(offset: i64, id: i64, note: &str, size: i64) -> Row {
    change((0, offset), "c", Value::Null, wide(id, note, size), offset)
}

/// A row: note, size, and whether it is marked as deleted, where the table says it.
type Wide = (Option<String>, i64, Option<bool>);

/// What readers see, by id.
fn wides(bed: &Bed) -> BTreeMap<i64, Wide> {
    let (data, deletes) = live(bed, TABLE);
    let storage = bed.load(TABLE).storage;
    let mut rows = BTreeMap::new();
    for file in data {
        let bytes = bed.wait(storage.get(&file)).expect("a data file");
        let mut place = 0;
        for batch in batches(bytes) {
            let column = |name: &str| batch.column_by_name(name).cloned();
            let ids = column("id").expect("a column");
            let (notes, sizes) = (column("note"), column("size").expect("a column"));
            let marks = column("_deleted");
            for index in 0..batch.num_rows() {
                let is_deleted = deletes.get(&file).is_some_and(|rows| rows.contains(place));
                place += 1;
                if is_deleted {
                    continue;
                }
                let note = notes.as_ref().filter(|notes| !notes.is_null(index));
                let note = note.map(|notes| notes.as_string::<i32>().value(index).to_owned());
                let size = sizes.as_primitive::<Int64Type>().value(index);
                let mark = marks.as_ref().map(|marks| marks.as_boolean().value(index));
                let id = ids.as_primitive::<Int64Type>().value(index);
                assert_eq!(
                    rows.insert(id, (note, size, mark)),
                    None,
                    "row {id} is there twice"
                );
            }
        }
    }
    rows
}

fn wide_rows(rows: &[(i64, &str, i64)]) -> BTreeMap<i64, Wide> {
    let row = |(id, note, size): &(i64, &str, i64)| (*id, (Some((*note).to_owned()), *size, None));
    rows.iter().map(row).collect()
}

fn marked(rows: &[(i64, &str, i64, bool)]) -> BTreeMap<i64, Wide> {
    let row = |(id, note, size, mark): &(i64, &str, i64, bool)| {
        (*id, (Some((*note).to_owned()), *size, Some(*mark)))
    };
    rows.iter().map(row).collect()
}

// Promise: a value that the source left out of an update (TOAST) is kept, from the same commit or from the table's own row
#[test]
fn values_that_the_source_left_out_are_kept() {
    for version in ["2", "3"] {
        let bed = bed("cdc").with(VERSION, version);
        let task = bed.task();
        put(
            &task,
            [
                create(0, 1, "one", 1),
                create(1, 2, "two", 1),
                // In the commit that brings the row.
                update(2, 2, LEFT_OUT, 2),
                create(3, 3, "three", 1),
            ],
        );
        task.until_durable(4);
        assert_eq!(
            wides(&bed),
            wide_rows(&[(1, "one", 1), (2, "two", 2), (3, "three", 1)]),
            "v{version}"
        );
        put(
            &task,
            [
                update(4, 1, LEFT_OUT, 5),
                // The value of the change before, be it left out of that as well.
                update(5, 2, "new", 6),
                update(6, 2, LEFT_OUT, 7),
                update(7, 3, LEFT_OUT, 8),
                update(8, 3, LEFT_OUT, 9),
            ],
        );
        task.until_durable(9);
        assert_eq!(
            wides(&bed),
            wide_rows(&[(1, "one", 5), (2, "new", 7), (3, "three", 9)]),
            "v{version}"
        );
        // What is left out of a change that a later one replaces is never asked for.
        put(
            &task,
            [update(9, 1, LEFT_OUT, 10), update(10, 1, "last", 11)],
        );
        task.until_durable(11);
        let rows = [(1, "last", 11), (2, "new", 7), (3, "three", 9)];
        assert_eq!(wides(&bed), wide_rows(&rows), "v{version}");
        task.session.close();
    }
}

#[test]
fn a_row_that_lacks_values_lands_in_the_partition_of_its_own_values() {
    let bed = bed("cdc").with("iceberg.tables.default-partition-by", "note,size");
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1), create(1, 2, "two", 1)]);
    task.until_durable(2);
    put(&task, [update(2, 1, LEFT_OUT, 2)]);
    task.until_durable(3);
    assert_eq!(wides(&bed), wide_rows(&[(1, "one", 2), (2, "two", 1)]));
    let (data, _) = live(&bed, TABLE);
    let of_row = data.iter().filter(|path| path.contains("note=one/size=2"));
    assert_eq!(of_row.count(), 1, "{data:?}");
}

// Promise: a row that gets another key keeps the values that the source left out of the change
#[test]
fn a_row_that_changes_its_key_keeps_its_values() {
    let bed = bed("cdc");
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1), create(1, 2, "two", 2)]);
    task.until_durable(2);
    let key = |id: i64| Value::object([("id", Value::Int64(id))]);
    let delete = removed(2, 1).header("__debezium.newkey", key(9));
    let created = change((0, 4), "c", Value::Null, wide(9, LEFT_OUT, 3), 2);
    put(
        &task,
        [
            delete,
            at(0, 3).key(key(1)),
            created.header("__debezium.oldkey", key(1)),
            // And by the row before.
            change((0, 5), "u", wide(2, LEFT_OUT, 2), wide(8, LEFT_OUT, 4), 5),
        ],
    );
    task.until_durable(6);
    assert_eq!(wides(&bed), wide_rows(&[(8, "two", 4), (9, "one", 3)]));
}

#[test]
fn a_row_keeps_its_values_where_a_commit_lies_between_the_records_of_its_new_key() {
    let bed = bed("cdc");
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1)]);
    task.until_durable(1);
    let key = |id: i64| Value::object([("id", Value::Int64(id))]);
    put(&task, [removed(1, 1).header("__debezium.newkey", key(9))]);
    task.until_durable(2);
    assert_eq!(wides(&bed), wide_rows(&[]));
    let created = change((0, 2), "c", Value::Null, wide(9, LEFT_OUT, 3), 1);
    put(&task, [created.header("__debezium.oldkey", key(1))]);
    task.until_durable(3);
    assert_eq!(wides(&bed), wide_rows(&[(9, "one", 3)]));
}

// Promise: a row that gets another key keeps the values that it had then, also where they changed in the same commit and its new row comes in another one
#[test]
fn a_row_keeps_the_values_that_changed_with_its_key() {
    // A commit that is full waits a second for the new row, and comes between.
    let bed = tolerant(bed("cdc")).with("iceberg.table.db.orders.commit-rows", "1");
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1)]);
    task.until_durable(1);
    let key = |id: i64| Value::object([("id", Value::Int64(id))]);
    let leaves = |offset, id, to| removed(offset, id).header("__debezium.newkey", key(to));
    let comes = |offset, id, from, place| {
        let row = wide(id, LEFT_OUT, 3);
        let created = change((0, offset), "c", Value::Null, row, place);
        created.header("__debezium.oldkey", key(from))
    };
    put(&task, [update(1, 1, "two", 2), leaves(2, 1, 9)]);
    task.until_durable(3);
    put(&task, [comes(3, 9, 1, 2)]);
    task.until_durable(4);
    assert_eq!(wides(&bed), wide_rows(&[(9, "two", 3)]));
    // A row that came and went in one commit.
    put(&task, [create(4, 5, "five", 5), leaves(5, 5, 6)]);
    task.until_durable(6);
    put(&task, [comes(6, 6, 5, 5)]);
    task.until_durable(7);
    assert_eq!(wides(&bed), wide_rows(&[(6, "five", 3), (9, "two", 3)]));
    // Of a row that nobody can read any more its new row is an error, and takes no older one.
    put(
        &task,
        [
            create(7, 1, "again", 1),
            update(8, 1, LEFT_OUT, 2),
            leaves(9, 1, 7),
        ],
    );
    task.until_durable(10);
    let (refused, _) = delivered(&task, (10, 11), &|| vec![comes(10, 7, 1, 9)]);
    assert_eq!(refused, BTreeSet::from([10]));
    assert_eq!(wides(&bed), wide_rows(&[(6, "five", 3), (9, "two", 3)]));
}

// Promise: where no row has a value that the source left out, its record is an error, or the value becomes null
#[test]
fn a_value_that_no_row_has_is_an_error_of_its_record() {
    let bed = tolerant(bed("cdc"));
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1)]);
    task.until_durable(1);
    put(
        &task,
        [
            update(1, 7, LEFT_OUT, 2),
            update(2, 1, LEFT_OUT, 3),
            update(3, 8, LEFT_OUT, 4),
        ],
    );
    // The commit finds that out: the session reads the records again, and then they are errors.
    let begun = std::time::Instant::now();
    let rewinds = loop {
        let rewinds = task.tick().rewinds;
        if !rewinds.is_empty() {
            break rewinds;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(40));
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert_eq!(rewinds, vec![(p(0), 1)]);
    let effects = put(
        &task,
        [
            update(1, 7, LEFT_OUT, 2),
            update(2, 1, LEFT_OUT, 3),
            update(3, 8, LEFT_OUT, 4),
        ],
    );
    assert_eq!(
        rejected(&effects),
        [
            (1, "CHANGE_VALUE_UNAVAILABLE"),
            (3, "CHANGE_VALUE_UNAVAILABLE")
        ]
    );
    let message = &effects.rejected[0].message;
    assert!(message.contains("columns=note"), "{message}");
    task.until_durable(4);
    assert_eq!(wides(&bed), wide_rows(&[(1, "one", 3)]));
}

#[test]
fn a_value_that_no_row_has_becomes_null_where_it_may() {
    let bed = bed("cdc").with(ABSENT, "null");
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1)]);
    task.until_durable(1);
    put(
        &task,
        [update(1, 7, LEFT_OUT, 2), update(2, 1, LEFT_OUT, 3)],
    );
    task.until_durable(3);
    let mut expected = wide_rows(&[(1, "one", 3)]);
    expected.insert(7, (None, 2, None));
    assert_eq!(wides(&bed), expected);
}

#[test]
fn a_key_that_the_source_left_out_is_an_error_of_its_record() {
    let bed = tolerant(bed("cdc")).with("iceberg.tables.default-id-columns", "id,note");
    let task = bed.task();
    let effects = put(&task, [create(0, 1, "one", 1), update(1, 1, LEFT_OUT, 2)]);
    assert_eq!(rejected(&effects), [(1, "CHANGE_VALUE_UNAVAILABLE")]);
}

#[test]
fn another_placeholder_can_be_named() {
    let bed = bed("cdc").with("iceberg.tables.default-unavailable-placeholder", "__gone");
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1), create(1, 2, LEFT_OUT, 1)]);
    task.until_durable(2);
    put(&task, [update(2, 1, "__gone", 2)]);
    task.until_durable(3);
    assert_eq!(wides(&bed), wide_rows(&[(1, "one", 2), (2, LEFT_OUT, 1)]));
}

#[test]
fn required_columns_and_columns_of_all_types_keep_their_values() {
    let text = SourceSchema::scalar(SourceKind::String);
    let rows = SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("note", text.clone()),
        ("size", SourceSchema::scalar(SourceKind::Int64)),
        ("blob", SourceSchema::scalar(SourceKind::Bytes)),
        ("tags", SourceSchema::array(text.clone())),
        ("more", SourceSchema::map(text.clone(), text.clone())),
    ]);
    let envelope = SourceSchema::structure([
        ("before", rows.clone().optional()),
        ("after", rows.optional()),
        ("op", text),
    ]);
    let key = SourceSchema::structure([("id", SourceSchema::scalar(SourceKind::Int64))]);
    let bed = bed("cdc");
    let task = bed.task();
    let register = |schema: &SourceSchema| {
        let registered = task.session.register_schema(&schema.to_bytes());
        registered.expect("registered")
    };
    let (value_id, key_id) = (register(&envelope), register(&key));
    let of = |offset: i64, op: &str, size: i64, text: &str| {
        let row = Value::Struct(vec![
            Value::Int64(1),
            Value::text(text),
            Value::Int64(size),
            Value::Bytes(text.as_bytes().to_vec()),
            Value::Array(vec![Value::text(text)]),
            Value::Map(vec![(Value::text(text), Value::text(text))]),
        ]);
        at(0, offset)
            .key(Value::Struct(vec![Value::Int64(1)]))
            .value(Value::Struct(vec![Value::Null, row, Value::text(op)]))
    };
    let put = |rows: Vec<Row>| {
        task.tick();
        let frame = FrameBuilder::with_value_schema(value_id, envelope.clone())
            .key_schema(key_id, key.clone())
            .with_headers()
            .rows(rows);
        task.try_put(&frame).expect("taken")
    };
    put(vec![of(0, "c", 1, "kept")]);
    task.until_durable(1);
    assert_eq!(rejected(&put(vec![of(1, "u", 2, LEFT_OUT)])), []);
    task.until_durable(2);
    assert_eq!(wides(&bed), wide_rows(&[(1, "kept", 2)]));
    let (data, _) = live(&bed, TABLE);
    assert_eq!(data.len(), 1, "{data:?}");
    let bytes = bed.wait(bed.load(TABLE).storage.get(&data[0]));
    let batch = batches(bytes.expect("a data file")).remove(0);
    let column = |name: &str| batch.column_by_name(name).expect("a column").clone();
    assert!(
        !batch
            .schema()
            .field_with_name("note")
            .expect("a column")
            .is_nullable()
    );
    let blob = column("blob");
    assert_eq!(blob.as_binary::<i32>().value(0), b"kept");
    let tags = column("tags").as_list::<i32>().value(0);
    assert_eq!(tags.as_string::<i32>().value(0), "kept");
    let more = column("more").as_map().value(0);
    assert_eq!(more.column(1).as_string::<i32>().value(0), "kept");
}

// Promise: with soft deletes a deleted row stays with its last values and is marked, and one that comes again is not
#[test]
fn deleted_rows_stay_where_they_are_to() {
    for version in ["2", "3"] {
        let bed = bed("cdc").with(VERSION, version).with(SOFT, "_deleted");
        let task = bed.task();
        put(
            &task,
            [
                create(0, 1, "one", 1),
                create(1, 2, "two", 2),
                create(2, 3, "three", 3),
                create(3, 4, "four", 4),
                // In the commit that brings the row.
                removed(4, 4),
                // There is no row to mark.
                removed(5, 5),
            ],
        );
        task.until_durable(6);
        assert_eq!(
            wides(&bed),
            marked(&[
                (1, "one", 1, false),
                (2, "two", 2, false),
                (3, "three", 3, false),
                (4, "four", 4, true)
            ]),
            "v{version}"
        );
        put(
            &task,
            [
                removed(6, 1),
                update(7, 2, LEFT_OUT, 7),
                removed(8, 2),
                removed(9, 3),
                create(10, 3, "again", 10),
                removed(11, 4),
            ],
        );
        task.until_durable(12);
        let mut rows = [
            (1, "one", 1, true),
            (2, "two", 7, true),
            (3, "again", 10, false),
            (4, "four", 4, true),
        ];
        assert_eq!(wides(&bed), marked(&rows), "v{version}");
        put(
            &task,
            [create(12, 1, "back", 12), update(13, 4, LEFT_OUT, 13)],
        );
        task.until_durable(14);
        rows[0] = (1, "back", 12, false);
        rows[3] = (4, "four", 13, false);
        assert_eq!(wides(&bed), marked(&rows), "v{version}");
        task.session.close();
    }
}

/// Delivers rows with the offsets from `first` to `end`, again from wherever the session wants them, until
/// their offset is durable; returns those that were refused, and how often they were delivered.
fn delivered(
    task: &Task,
    (first, end): (i64, i64),
    rows: &dyn Fn() -> Vec<Row>,
) -> (BTreeSet<i64>, usize) {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(40);
    let mut refused = BTreeSet::new();
    let (mut from, mut rounds) = (first, 0);
    loop {
        rounds += 1;
        let rest = rows().into_iter().skip((from - first) as usize);
        let mut rest = rest.peekable();
        while rest.peek().is_some() {
            let effects = put(task, rest.by_ref().take(250));
            for (offset, code) in rejected(&effects) {
                assert_eq!(code, "CHANGE_VALUE_UNAVAILABLE");
                refused.insert(offset);
            }
        }
        loop {
            if let Some((_, offset)) = task.tick().rewinds.first() {
                from = *offset;
                break;
            }
            if task.pre_commit(0, end) == Some(end) {
                return (refused, rounds);
            }
            assert!(std::time::Instant::now() < limit, "refused: {refused:?}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

// Promise: with soft deletes, a delete of a row whose values nobody has is an error of its record, and so is the change that left them out
#[test]
fn a_delete_of_a_row_that_nobody_has_is_set_aside() {
    let bed = tolerant(bed("cdc")).with(SOFT, "_deleted");
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1)]);
    task.until_durable(1);
    let rows = || {
        vec![
            update(1, 7, LEFT_OUT, 2),
            removed(2, 7),
            update(3, 1, LEFT_OUT, 3),
        ]
    };
    let (refused, _) = delivered(&task, (1, 4), &rows);
    assert_eq!(refused, BTreeSet::from([1, 2]));
    assert_eq!(wides(&bed), marked(&[(1, "one", 3, false)]));
}

// Promise: however many changes lack values that no row has, each is an error of its record
#[test]
fn many_changes_without_values_are_set_aside() {
    let bed = tolerant(bed("cdc"));
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1)]);
    task.until_durable(1);
    // The first delivery ends with as many rows as ask for a commit, and the interval ends with nothing here.
    task.session.close();
    let bed = bed
        .slow()
        .with("iceberg.table.db.orders.commit-rows", "5001");
    let task = bed.task();
    let rows = || {
        let lacking = (1..5_001).map(|id| update(id, 10 + id, LEFT_OUT, id));
        lacking.chain([update(5_001, 1, "last", 2)]).collect()
    };
    let (refused, rounds) = delivered(&task, (1, 5_002), &rows);
    assert_eq!(refused, (1..5_001).collect());
    assert_eq!(rounds, 2, "one to find them, one without them");
    assert_eq!(wides(&bed), wide_rows(&[(1, "last", 2)]));
}

#[test]
fn a_row_before_its_delete_that_is_whole_is_kept_as_it_is() {
    let bed = bed("cdc")
        .with(SOFT, "_deleted")
        .with("iceberg.tables.default-before-is-whole", "true");
    let task = bed.task();
    let delete = |offset: i64, before: Value| change((0, offset), "d", before, Value::Null, offset);
    put(&task, [create(0, 1, "one", 1), create(1, 2, "two", 2)]);
    task.until_durable(2);
    put(
        &task,
        [
            delete(2, wide(1, "last", 5)),
            delete(3, wide(2, LEFT_OUT, 6)),
            // Nobody has this row but its delete.
            delete(4, wide(3, "three", 7)),
        ],
    );
    task.until_durable(5);
    let rows = [
        (1, "last", 5, true),
        (2, "two", 6, true),
        (3, "three", 7, true),
    ];
    assert_eq!(wides(&bed), marked(&rows));
}

#[test]
fn a_key_that_a_row_left_stays_marked() {
    let bed = bed("cdc").with(SOFT, "_deleted");
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1), create(1, 2, "two", 2)]);
    task.until_durable(2);
    let key = |id: i64| Value::object([("id", Value::Int64(id))]);
    put(&task, [removed(2, 1).header("__debezium.newkey", key(9))]);
    task.until_durable(3);
    // The row of the old key is there still, also in another commit.
    let created = change((0, 3), "c", Value::Null, wide(9, LEFT_OUT, 3), 2);
    put(
        &task,
        [
            created.header("__debezium.oldkey", key(1)),
            change((0, 4), "u", wide(2, LEFT_OUT, 2), wide(8, LEFT_OUT, 4), 5),
        ],
    );
    task.until_durable(5);
    let rows = [
        (1, "one", 1, true),
        (2, "two", 2, true),
        (8, "two", 4, false),
        (9, "one", 3, false),
    ];
    assert_eq!(wides(&bed), marked(&rows));
}

#[test]
fn records_without_a_value_mark_rows_too() {
    let bed = bed("upsert")
        .with(SOFT, "_deleted")
        .with("iceberg.tables.default-order-columns", "size");
    let task = bed.task();
    let upsert = |offset: i64, id: i64, row: Option<Value>| {
        let record = at(0, offset).key(Value::object([("id", Value::Int64(id))]));
        match row {
            Some(row) => record.value(row),
            None => record,
        }
    };
    put(
        &task,
        [
            upsert(0, 1, Some(wide(1, "a", 10))),
            upsert(1, 2, Some(wide(2, "b", 10))),
        ],
    );
    task.until_durable(2);
    // A delete counts by its arrival, and leaves the order of its key as it was.
    put(
        &task,
        [upsert(2, 1, None), upsert(3, 1, Some(wide(1, "late", 9)))],
    );
    task.until_durable(4);
    let rows = [(1, "a", 10, true), (2, "b", 10, false)];
    assert_eq!(wides(&bed), marked(&rows));
    put(&task, [upsert(4, 1, Some(wide(1, "c", 11)))]);
    task.until_durable(5);
    let rows = [(1, "c", 11, false), (2, "b", 10, false)];
    assert_eq!(wides(&bed), marked(&rows));
}

#[test]
fn a_record_with_a_field_of_the_name_of_the_mark_is_refused() {
    let bed = tolerant(bed("cdc")).with(SOFT, "note");
    let task = bed.task();
    let effects = put(&task, [create(0, 1, "one", 1)]);
    assert_eq!(rejected(&effects), [(0, "SCHEMA_NAME_DUPLICATE")]);
}

// Promise: a task that is killed while rows lack values changes nothing twice, whatever is delivered again
#[test]
fn rows_that_lack_values_are_made_once_whatever_is_delivered_again() {
    let bed = bed("cdc");
    let record = |n: i64| match n {
        0..5 => create(n, n, ["a", "b", "c", "d", "e"][n as usize], 0),
        _ => update(n, n % 5, LEFT_OUT, n),
    };
    let task = bed.task();
    put(&task, (0..12).map(record));
    task.until_durable(12);
    put(&task, (12..18).map(record));
    drop(task);
    let again = bed.task();
    put(&again, (0..23).map(record));
    again.until_durable(23);
    let rows = [
        (0, "a", 20),
        (1, "b", 21),
        (2, "c", 22),
        (3, "d", 18),
        (4, "e", 19),
    ];
    assert_eq!(wides(&bed), wide_rows(&rows));
}

#[test]
fn a_table_that_grows_between_a_row_and_its_commit_keeps_all_values() {
    let bed = bed("cdc")
        .slow()
        .with("iceberg.tables.evolve-schema-enabled", "true")
        .with(SOFT, "_deleted");
    let task = bed.task();
    put(&task, [create(0, 1, "one", 1), create(1, 2, "two", 2)]);
    task.session.close();
    let task = bed.task();
    let grown = Value::object([
        ("id", Value::Int64(3)),
        ("note", Value::text("three")),
        ("size", Value::Int64(3)),
        ("more", Value::text("more")),
    ]);
    put(
        &task,
        [
            update(2, 1, LEFT_OUT, 5),
            removed(3, 2),
            change((0, 4), "c", Value::Null, grown, 4),
            update(5, 1, LEFT_OUT, 6),
        ],
    );
    task.session.close();
    let rows = [
        (1, "one", 6, false),
        (2, "two", 2, true),
        (3, "three", 3, false),
    ];
    assert_eq!(wides(&bed), marked(&rows));
    let schema = bed.load(TABLE).metadata.current_schema().clone();
    assert!(schema.field_by_name("more").is_some());
}
