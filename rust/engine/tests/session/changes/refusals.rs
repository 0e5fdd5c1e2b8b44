//! Records that change nothing, and those that cannot be applied.

use frazil_core::ErrorKind;
use frazil_core::delete::DeletionVector;
use frazil_core::wire::testing::{FrameBuilder, Value};

use super::*;
use crate::bed::p;

// Promise: a change that cannot be applied is an error of its record, named by table, column and offset, and the others land
#[test]
fn a_change_that_cannot_be_applied_is_set_aside() {
    let bed = tolerant(bed("cdc"));
    let task = bed.task();
    let keyless = Value::object([("note", Value::text("no id"))]);
    let of = |offset: i64, op: &str, after: Value| {
        at(0, offset).value(Value::object([("op", Value::text(op)), ("after", after)]))
    };
    let effects = put(
        &task,
        [
            created(0, 1, "a"),
            of(1, "c", keyless),
            of(2, "x", row(2, "b")),
            of(3, "c", Value::Null),
            of(4, "t", Value::Null),
            change(
                (0, 6),
                "c",
                Value::Null,
                Value::object([("id", Value::text("seven"))]),
                6,
            ),
            created(7, 8, "h"),
        ],
    );
    assert_eq!(
        rejected(&effects),
        [
            (1, "CHANGE_KEY_NULL"),
            (2, "CHANGE_OP_UNKNOWN"),
            (3, "CHANGE_ROW_MISSING"),
            (4, "CHANGE_TRUNCATE"),
            (6, "VALUE_MALFORMED"),
        ]
    );
    assert!(effects.rejected.iter().all(|one| one.partition == p(0)));
    let message = &effects.rejected[0].message;
    assert!(
        message.contains("column=id") && message.contains("table=db.orders"),
        "{message}"
    );
    task.until_durable(8);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "a"), (8, "h")]));
}

#[test]
fn without_tolerance_such_a_change_stops_the_task_before_it() {
    let bed = bed("upsert");
    let task = bed.task();
    let keyless = at(0, 1).value(Value::object([("note", Value::text("x"))]));
    task.tick();
    let frame = FrameBuilder::schemaless()
        .in_columns()
        .rows([upsert(0, 1, Some("a")), keyless]);
    let error = task.try_put(&frame).expect_err("no tolerance");
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Data, "CHANGE_KEY_NULL")
    );
    assert!(error.report().contains("offset=1"), "{}", error.report());
    task.session.close();
    assert_eq!(bed.snapshots(TABLE), 0);
}

#[test]
fn the_key_of_a_new_row_is_in_the_row() {
    // A key that only the record's key has would not be in the table.
    let bed = tolerant(bed("upsert"));
    let task = bed.task();
    put(&task, [upsert(0, 1, Some("a"))]);
    let value = || Value::object([("note", Value::text("b"))]);
    let apart = |offset: i64| at(0, offset).key(Value::Int64(2)).value(value());
    let effects = put(&task, [apart(1)]);
    assert_eq!(rejected(&effects), [(1, "CHANGE_KEY_NULL")]);
    task.session.close();
    // As a column it is.
    let bed = tolerant(super::bed("upsert")).with("iceberg.tables.key-columns", "id");
    let task = bed.task();
    let keyed = |offset: i64, note: &str| {
        let value = Value::object([("note", Value::text(note))]);
        at(0, offset)
            .key(Value::object([("id", Value::Int64(2))]))
            .value(value)
    };
    let effects = put(&task, [keyed(0, "a"), keyed(1, "b")]);
    assert_eq!(rejected(&effects), []);
    task.until_durable(2);
    assert_eq!(seen(&bed, TABLE), notes(&[(2, "b")]));
}

#[test]
fn deletes_from_a_table_that_is_not_there_change_nothing() {
    let bed = bed("upsert");
    let task = bed.task();
    put(&task, [upsert(0, 1, None), upsert(1, 2, None)]);
    task.tick_until_logged("records changed nothing: 2 no-table");
    assert!(!bed.exists(TABLE));
    put(&task, [upsert(2, 1, Some("a"))]);
    task.until_durable(3);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "a")]));
}

// Promise: heartbeats, ends of transactions and changes of a schema make no rows and no tables
// Case: 15
#[test]
fn records_about_the_stream_make_no_rows_and_no_tables() {
    let bed = tolerant(bed("cdc"));
    let task = bed.task();
    let heartbeat = Value::object([("ts_ms", Value::Int64(5))]);
    let transaction = Value::object([
        ("status", Value::text("BEGIN")),
        ("id", Value::text("571:53195829")),
        ("event_count", Value::Null),
        ("data_collections", Value::Null),
        ("ts_ms", Value::Int64(5)),
    ]);
    let effects = put(
        &task,
        [at(0, 0).value(heartbeat), at(0, 1).value(transaction)],
    );
    assert_eq!(rejected(&effects), []);
    let said = task.until_it_says("records changed nothing");
    let said = said
        .log
        .iter()
        .map(|(_, line)| line.as_str())
        .collect::<String>();
    assert!(
        said.contains("1 heartbeat") && said.contains("1 transaction"),
        "{said}"
    );
    assert!(!bed.exists(TABLE));
    put(&task, [created(2, 1, "a")]);
    task.until_durable(3);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "a")]));
}

// Promise: texts are keys by their bytes: case, trailing blanks and Unicode forms count
// Case: 12
#[test]
fn keys_are_equal_when_their_values_are() {
    let bed = tolerant(bed("upsert"));
    let task = bed.task();
    let of = |offset: i64, id: Value| {
        let value = Value::object([("id", id), ("note", Value::text("x"))]);
        at(0, offset).value(value)
    };
    let ids = [
        "a",
        "A",
        "a ",
        "",
        "\u{e9}",
        "e\u{301}",
        "a key of more than eight bytes",
    ];
    let records = ids.iter().chain(&ids).zip(0..);
    let effects = put(
        &task,
        records.map(|(id, offset)| of(offset, Value::text(id))),
    );
    assert_eq!(rejected(&effects), []);
    let effects = put(&task, [of(14, Value::Null)]);
    assert_eq!(rejected(&effects), [(14, "CHANGE_KEY_NULL")]);
    task.until_durable(15);
    let (data, deletes) = live(&bed, TABLE);
    let deleted: u64 = deletes.values().map(DeletionVector::len).sum();
    let rows: u64 = bed
        .files(TABLE, "main")
        .iter()
        .filter(|file| data.contains(&file.file_path().to_owned()))
        .map(|file| file.record_count())
        .sum();
    assert_eq!(rows - deleted, ids.len() as u64);
}

// Promise: a row that would lie under another key than its change stops the task before it is committed
#[test]
fn a_row_with_another_key_than_its_record_is_not_committed() {
    // The column `id` comes from `other`, and the record's key has an `id` too.
    let bed = bed("upsert").with("iceberg.tables.key-columns", "other:id");
    let task = bed.task();
    let key = Value::object([("other", Value::Int64(5)), ("id", Value::Int64(7))]);
    let value = Value::object([("note", Value::text("a"))]);
    put(&task, [at(0, 0).key(key).value(value)]);
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(40);
    let error = loop {
        match task.control(&frazil_core::wire::Request::Tick) {
            Err(error) => break error,
            Ok(_) => assert!(std::time::Instant::now() < limit, "nothing was said"),
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Fatal, "CHANGE_KEY_DIFFERS")
    );
    task.session.close();
    assert_eq!(bed.snapshots(TABLE), 0);
}
