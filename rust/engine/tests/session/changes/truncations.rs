//! Truncations of the source's table.

use frazil_core::wire::testing::Value;

use super::*;

/// What Debezium writes for a truncation.
fn truncated(place: (i32, i64), lsn: i64) -> Row {
    let source = Value::object([
        ("connector", Value::text("postgresql")),
        ("name", Value::text("px")),
        ("lsn", Value::Int64(lsn)),
        ("sequence", Value::text(&format!(r#"["{lsn}","{lsn}"]"#))),
    ]);
    let value = Value::object([
        ("before", Value::Null),
        ("after", Value::Null),
        ("source", source),
        ("op", Value::text("t")),
        ("ts_ms", Value::Int64(1_700_000_000_000 + lsn)),
    ]);
    at(place.0, place.1).value(value)
}

fn created_at(place: (i32, i64), id: i64, note: &str, lsn: i64) -> Row {
    change(place, "c", Value::Null, row(id, note), lsn)
}

fn bed_of(tolerant_too: bool) -> Bed {
    let bed = bed("cdc").with("iceberg.tables.default-truncate", "truncate");
    match tolerant_too {
        true => tolerant(bed),
        false => bed,
    }
}

// Promise: A truncation empties a table whose changes come through one partition; where there are changes of several it is an error of its record, and no row goes.
// Case: 14
#[test]
fn a_truncation_is_applied_where_one_partition_has_all_changes() {
    let bed = bed_of(true);
    let task = bed.task();
    task.assign(&[0, 1]);
    put(&task, [created(0, 1, "a"), created(1, 2, "b")]);
    let effects = put(&task, [truncated((0, 2), 2), created(3, 3, "c")]);
    assert_eq!(rejected(&effects), []);
    task.until_durable(4);
    assert_eq!(seen(&bed, TABLE), notes(&[(3, "c")]));
    // In one frame, and from then on.
    let effects = put(
        &task,
        [
            truncated((0, 4), 4),
            created(5, 5, "e"),
            created_at((1, 0), 4, "d", 3),
        ],
    );
    assert_eq!(rejected(&effects), [(4, "CHANGE_TRUNCATE_UNSURE")]);
    let message = &effects.rejected[0].message;
    assert!(message.contains("orders-1"), "{message}");
    let effects = put(&task, [truncated((0, 6), 6)]);
    assert_eq!(rejected(&effects), [(6, "CHANGE_TRUNCATE_UNSURE")]);
    task.until_durable(7);
    let all = notes(&[(3, "c"), (4, "d"), (5, "e")]);
    assert_eq!(seen(&bed, TABLE), all);
    task.session.close();
    // A task that has the one partition alone reads the other one from the table.
    let task = bed.task();
    task.assign(&[0]);
    let effects = put(&task, [created(7, 7, "f"), truncated((0, 8), 8)]);
    assert_eq!(rejected(&effects), [(8, "CHANGE_TRUNCATE_UNSURE")]);
    task.session.close();
}

// Promise: Without tolerance a truncation that cannot be applied stops the task before it.
#[test]
fn without_tolerance_such_a_truncation_stops_the_task() {
    let bed = bed_of(false);
    let task = bed.task();
    task.assign(&[0, 1]);
    put(&task, [created(0, 1, "a"), created_at((1, 0), 2, "b", 9)]);
    task.tick();
    let frame = FrameBuilder::schemaless().in_columns().with_headers();
    let error = task.try_put(&frame.rows([truncated((0, 1), 5)]));
    let error = error.expect_err("no tolerance");
    assert_eq!(error.code(), "CHANGE_TRUNCATE_UNSURE");
    assert!(error.report().contains("offset=1"), "{}", error.report());
    task.session.close();
}

// Promise: A truncation whose segment comes to the commit with changes of another partition is not applied: the session reads it again, and it is an error of its record.
#[test]
fn a_truncation_that_others_came_behind_is_read_again() {
    let bed = bed_of(true).slow();
    let bed = bed.with("iceberg.table.db.orders.commit-rows", "3");
    let task = bed.task();
    task.assign(&[0, 1]);
    // Without a place in the order of the source.
    let plain = |partition: i32, offset: i64, op: &str, after: Value| {
        let value = Value::object([("op", Value::text(op)), ("after", after)]);
        at(partition, offset).value(value)
    };
    let of_one = || [plain(0, 0, "c", row(1, "a")), plain(0, 1, "t", Value::Null)];
    let of_other = || [plain(1, 0, "c", row(2, "b"))];
    assert_eq!(rejected(&put(&task, of_one())), []);
    assert_eq!(rejected(&put(&task, of_other())), []);
    task.until_rewound();
    let effects = put(&task, of_one());
    assert_eq!(rejected(&effects), [(1, "CHANGE_TRUNCATE_UNSURE")]);
    put(&task, of_other());
    task.revoke(&[0, 1]);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "a"), (2, "b")]));
    task.session.close();
}
