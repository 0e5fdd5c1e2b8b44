//! Where records go: tables that they name, tables by pattern, records that no table is for, records
//! without a value, and what comes with a value.

use std::time::Duration;

use frazil_core::ErrorKind;
use frazil_core::config::SinkConfig;
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{Effects, FrameParts, SourceKind, SourceSchema};

use crate::bed::{Bed, TOPIC, Task, ident, order_schema, p};

const TEMPLATE: &str = "iceberg.tables.name-template";

/// A connector whose records name their tables by their note.
fn dynamic() -> Bed {
    Bed::new("").with(TEMPLATE, "lake.${value.note}")
}

fn tolerant(bed: Bed) -> Bed {
    bed.with("errors.tolerance", "all")
        .with("errors.deadletterqueue.topic.name", "dead")
}

/// A record whose id is its offset and that is for table `lake.<note>`.
fn noted(offset: i64, note: &str) -> Row {
    let value = Value::Struct(vec![Value::Int64(offset), Value::text(note)]);
    Row::new(TOPIC, 0, offset)
        .value(value)
        .timestamp(1_700_000_000_000 + offset)
}

fn put(task: &Task, rows: impl IntoIterator<Item = Row>) -> Effects {
    let begun = task.tick();
    assert_eq!(begun.rewinds, vec![], "no rewind was expected");
    task.try_put(&task.frame().rows(rows))
        .expect("the frame is taken")
}

fn codes(effects: &Effects) -> Vec<(u32, &str)> {
    let rejected = effects.rejected.iter();
    rejected
        .map(|rejected| (rejected.row, rejected.code.as_str()))
        .collect()
}

// Promise: Tables that records name are written exactly once each, over a restart that delivers everything again and brings a table more.
#[test]
fn named_tables_hold_each_record_once_over_a_restart() {
    let bed = dynamic();
    let task = bed.task();
    put(
        &task,
        (0..6).map(|offset| noted(offset, ["a", "b"][offset as usize % 2])),
    );
    task.until_durable(6);
    put(&task, [noted(6, "a")]);
    drop(task);
    let again = bed.task();
    put(
        &again,
        (0..6).map(|offset| noted(offset, ["a", "b"][offset as usize % 2])),
    );
    put(&again, [noted(6, "a"), noted(7, "c"), noted(8, "A")]);
    again.until_durable(9);
    assert_eq!(bed.ids("lake.a"), [0, 2, 4, 6, 8]);
    assert_eq!(bed.ids("lake.b"), [1, 3, 5]);
    assert_eq!(bed.ids("lake.c"), [7]);
}

// Promise: A table that a record names late holds back the offsets of its own rows and no others.
#[test]
fn a_late_table_holds_only_its_own_offsets_back() {
    let bed = dynamic().with("iceberg.table.lake.slow.commit-interval-ms", "2000000000");
    let task = bed.task();
    put(&task, (0..3).map(|offset| noted(offset, "quick")));
    task.until_durable(3);
    put(
        &task,
        [noted(3, "quick"), noted(4, "slow"), noted(5, "quick")],
    );
    task.until_durable_of(4, 6);
    std::thread::sleep(Duration::from_millis(2_500));
    task.tick();
    assert_eq!(task.pre_commit(0, 6), Some(4));
    assert_eq!(bed.ids("lake.quick"), [0, 1, 2, 3, 5]);
    task.session.close();
    assert_eq!(bed.ids("lake.slow"), [4]);
}

#[test]
fn a_record_without_a_table_is_an_error_of_the_record() {
    let bed = tolerant(dynamic().with("iceberg.tables.dynamic-allow", "lake.a,lake.b"));
    let task = bed.task();
    let null = Value::Struct(vec![Value::Int64(2), Value::Null]);
    let effects = put(
        &task,
        [
            noted(0, "a"),
            noted(1, "secret"),
            Row::new(TOPIC, 0, 2).value(null),
            noted(3, "x/y"),
            noted(4, "b"),
        ],
    );
    let expected = [
        (1, "ROUTE_UNMATCHED"),
        (2, "ROUTE_UNMATCHED"),
        (3, "ROUTE_NAME_INVALID"),
    ];
    assert_eq!(codes(&effects), expected);
    assert!(
        effects
            .rejected
            .iter()
            .all(|rejected| !rejected.message.contains("secret"))
    );
    task.until_durable(5);
    assert_eq!((bed.ids("lake.a"), bed.ids("lake.b")), (vec![0], vec![4]));

    let strict = dynamic().with("iceberg.tables.dynamic-allow", "lake.a");
    let task = strict.task();
    task.tick();
    let frame = task.frame().rows([noted(0, "a"), noted(1, "b")]);
    let error = task.try_put(&frame).unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Data, "ROUTE_UNMATCHED")
    );
    task.session.close();
    assert_eq!(strict.snapshots("lake.a"), 0, "nothing is sealed over it");
}

// Promise: Records that no table is for are dropped only when the configuration says so, and then counted in the log.
#[test]
fn unmatched_records_are_dropped_when_asked_for_and_counted() {
    let bed = Bed::new("lake.a,lake.b,lake.none")
        .with("iceberg.tables.route-field", "note")
        .with("iceberg.table.lake.a.route-regex", "lis|both")
        .with("iceberg.table.lake.b.route-regex", "lis.+|both")
        .with("iceberg.tables.unmatched-behavior", "drop");
    let task = bed.task();
    let notes = ["lis", "list", "both", "other", "lis"];
    let effects = put(
        &task,
        (0..).zip(notes).map(|(offset, note)| noted(offset, note)),
    );
    assert_eq!(codes(&effects), []);
    task.tick_until_logged("1 without a table, 0 without a value");
    task.until_durable(5);
    assert_eq!(bed.ids("lake.a"), [0, 2, 4]);
    assert_eq!(bed.ids("lake.b"), [1, 2]);
    assert!(!bed.exists("lake.none"));
}

#[test]
fn a_missing_table_that_may_not_be_made_gets_no_record() {
    let bed = dynamic();
    let task = bed.task();
    put(&task, [noted(0, "a")]);
    task.until_durable(1);
    drop(task);
    let bed = tolerant(bed.with("iceberg.tables.auto-create-enabled", "false"));
    let task = bed.task();
    let effects = put(
        &task,
        [noted(1, "a"), noted(2, "missing"), noted(3, "missing")],
    );
    assert_eq!(
        codes(&effects),
        [(1, "ROUTE_UNMATCHED"), (2, "ROUTE_UNMATCHED")]
    );
    task.until_durable(4);
    assert_eq!(bed.ids("lake.a"), [0, 1]);
    assert!(!bed.exists("lake.missing"));
}

// Promise: Records cannot make more tables than the configuration allows.
#[test]
fn records_name_only_so_many_tables() {
    let bed = tolerant(dynamic().with("iceberg.tables.dynamic-tables-max", "2"));
    let task = bed.task();
    let effects = put(
        &task,
        [noted(0, "a"), noted(1, "b"), noted(2, "c"), noted(3, "a")],
    );
    assert_eq!(codes(&effects), [(2, "ROUTE_TABLES_TOO_MANY")]);
    task.until_durable(4);
    assert_eq!(
        (bed.ids("lake.a"), bed.ids("lake.b")),
        (vec![0, 3], vec![1])
    );
    assert!(!bed.exists("lake.c"));
}

// Promise: Offsets that are reset through Connect are read again into tables that records named, too.
#[test]
fn a_reset_reaches_tables_that_records_named() {
    let bed = dynamic();
    let task = bed.task();
    put(&task, (0..3).map(|offset| noted(offset, "a")));
    task.until_durable(3);
    task.session.close();
    drop(task);
    let admin = bed.admin();
    assert_eq!(admin.states().unwrap()[0].name, "lake.a");
    assert_eq!(admin.reset([(p(0), Some(1))]).unwrap(), 1);
    let task = bed.task_of_now();
    put(&task, (1..4).map(|offset| noted(offset, "a")));
    task.until_durable(4);
    assert_eq!(bed.ids("lake.a"), [0, 1, 1, 2, 2, 3]);
}

fn key_schema() -> SourceSchema {
    SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("tenant", SourceSchema::scalar(SourceKind::String)),
    ])
}

fn key(id: i64) -> Value {
    Value::Struct(vec![Value::Int64(id), Value::text("t1")])
}

fn keyed(task: &Task) -> FrameBuilder {
    let id = task
        .session
        .register_schema(&key_schema().to_bytes())
        .unwrap();
    FrameBuilder::with_value_schema(task.schema, order_schema()).key_schema(id, key_schema())
}

fn null_values(behavior: &str) -> Bed {
    tolerant(Bed::new("db.orders").with("iceberg.tables.null-value-behavior", behavior))
}

// Promise: A record without a value is skipped and counted, becomes a row of its key, or is an error of the record, as the configuration says.
#[test]
fn records_without_a_value_are_what_the_configuration_says() {
    let rows = || {
        let value = Value::Struct(vec![Value::Int64(0), Value::text("fine")]);
        [
            Row::new(TOPIC, 0, 0).key(key(0)).value(value),
            Row::new(TOPIC, 0, 1).key(key(41)),
            Row::new(TOPIC, 0, 2),
        ]
    };
    for (behavior, ids, rejected) in [
        ("skip", vec![0], vec![]),
        ("key-row", vec![0, 41], vec![(2, "VALUE_NOT_A_RECORD")]),
        ("fail", vec![0], vec![(1, "VALUE_NULL"), (2, "VALUE_NULL")]),
        ("dlq", vec![0], vec![(1, "VALUE_NULL"), (2, "VALUE_NULL")]),
    ] {
        // A key column takes its value from the key either way.
        let bed = match behavior {
            "key-row" => null_values(behavior).with("iceberg.tables.key-columns", "tenant"),
            _ => null_values(behavior),
        };
        let task = bed.task();
        let parts = task.tick().parts;
        assert_eq!(parts.keys, behavior == "key-row", "{behavior}");
        let effects = task.try_put(&keyed(&task).rows(rows())).unwrap();
        assert_eq!(codes(&effects), rejected, "{behavior}");
        if behavior == "skip" {
            task.tick_until_logged("0 without a table, 2 without a value");
        }
        task.until_durable(3);
        assert_eq!(bed.ids("db.orders"), ids, "{behavior}");
    }
}

#[test]
fn a_key_that_is_no_record_gives_a_row_of_its_own_column() {
    let bed = null_values("key-row").with("iceberg.tables.metadata-columns", "_key:k");
    let task = bed.task();
    task.tick();
    let schema = SourceSchema::scalar(SourceKind::String);
    let id = task.session.register_schema(&schema.to_bytes()).unwrap();
    let loose = SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64).optional()),
        ("note", SourceSchema::scalar(SourceKind::String).optional()),
    ]);
    let value_id = task.session.register_schema(&loose.to_bytes()).unwrap();
    let frame = FrameBuilder::with_value_schema(value_id, loose).key_schema(id, schema);
    let value = Value::Struct(vec![Value::Int64(1), Value::text("fine")]);
    let frame = frame
        .row(Row::new(TOPIC, 0, 0).key(Value::text("k0")).value(value))
        .row(Row::new(TOPIC, 0, 1).key(Value::text("k1")));
    assert_eq!(codes(&task.try_put(&frame).unwrap()), []);
    task.until_durable(2);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(bed.texts("db.orders", "k"), [some("k0"), some("k1")]);
    assert_eq!(bed.ids("db.orders"), [1]);
}

// Promise: Topic, partition, offset, timestamp, key, headers and fields of the key become columns when asked for, under the names asked for, and never by themselves.
#[test]
fn what_comes_with_a_value_becomes_columns_when_asked_for() {
    let bed = Bed::new("db.orders")
        .with(
            "iceberg.tables.metadata-columns",
            "_topic,_partition:part,_offset,_timestamp,_key,_headers",
        )
        .with("iceberg.tables.key-columns", "id:key_id,tenant");
    let task = bed.task();
    let all = FrameParts {
        keys: true,
        headers: true,
        topics: false,
    };
    assert_eq!(task.tick().parts, all);
    let value = || Value::Struct(vec![Value::Int64(7), Value::text("fine")]);
    let frame = keyed(&task).with_headers().rows([
        Row::new(TOPIC, 0, 0)
            .key(key(70))
            .value(value())
            .timestamp(1_700_000_000_123)
            .header("trace", Value::text("t\"1"))
            .header("trace", Value::Int32(2)),
        Row::new(TOPIC, 0, 1).value(value()),
    ]);
    assert_eq!(codes(&task.try_put(&frame).unwrap()), []);
    task.until_durable(2);
    let schema = bed.load("db.orders").metadata.current_schema().clone();
    let columns: Vec<String> = schema
        .as_struct()
        .fields()
        .iter()
        .map(|field| {
            format!(
                "{} {}{}",
                field.name,
                field.field_type,
                if field.required { "!" } else { "" }
            )
        })
        .collect();
    assert_eq!(
        columns,
        [
            "id long!",
            "note string",
            "_topic string!",
            "part int!",
            "_offset long!",
            "_timestamp timestamptz",
            "_key string",
            "_headers string",
            "key_id long",
            "tenant string",
        ]
    );
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        bed.texts("db.orders", "_key"),
        [None, some("{\"id\":70,\"tenant\":\"t1\"}")]
    );
    assert_eq!(
        bed.texts("db.orders", "_headers"),
        [
            some("[]"),
            some("[{\"key\":\"trace\",\"value\":\"t\\\"1\"},{\"key\":\"trace\",\"value\":2}]")
        ]
    );
    assert_eq!(bed.texts("db.orders", "tenant"), [None, some("t1")]);
    assert_eq!(bed.longs("db.orders", "key_id"), [70]);
    assert_eq!(bed.longs("db.orders", "_offset"), [0, 1]);

    let plain = Bed::new("db.orders");
    let task = plain.task();
    assert_eq!(task.tick().parts, FrameParts::default());
    task.try_put(
        &keyed(&task).with_headers().row(
            Row::new(TOPIC, 0, 0)
                .key(key(1))
                .value(value())
                .header("trace", Value::text("t")),
        ),
    )
    .unwrap();
    task.until_durable(1);
    assert_eq!(
        plain
            .load("db.orders")
            .metadata
            .current_schema()
            .as_struct()
            .fields()
            .len(),
        2
    );
}

#[test]
fn bytes_of_a_key_stay_bytes() {
    let bed = Bed::new("db.orders").with("iceberg.tables.metadata-columns", "_key");
    let task = bed.task();
    task.tick();
    let schema = SourceSchema::scalar(SourceKind::Bytes);
    let id = task.session.register_schema(&schema.to_bytes()).unwrap();
    let frame = FrameBuilder::with_value_schema(task.schema, order_schema()).key_schema(id, schema);
    let value = Value::Struct(vec![Value::Int64(7), Value::text("fine")]);
    let row = Row::new(TOPIC, 0, 0)
        .key(Value::Bytes(vec![0, 255]))
        .value(value);
    task.try_put(&frame.row(row)).unwrap();
    task.until_durable(1);
    let schema = bed.load("db.orders").metadata.current_schema().clone();
    assert_eq!(
        schema.field_by_name("_key").unwrap().field_type.to_string(),
        "binary"
    );
}

#[test]
fn records_go_by_the_topic_that_transforms_left() {
    let bed = Bed::new("").with(TEMPLATE, "lake.${topic}");
    let task = bed.task();
    assert!(task.tick().parts.topics);
    put(
        &task,
        [
            noted(0, "x").renamed("sales"),
            noted(1, "x"),
            noted(2, "x").renamed("Sales"),
        ],
    );
    task.until_durable(3);
    assert_eq!(bed.ids("lake.sales"), [0, 2]);
    assert_eq!(
        bed.ids("lake.orders"),
        [1],
        "offsets are those of the topic that was read"
    );
}

#[test]
fn a_name_of_another_branch_is_written_there() {
    let bed = dynamic().with("iceberg.table.lake.b.commit-branch", "dev");
    let config: SinkConfig = bed.config();
    let tables = config.dynamic.unwrap();
    assert!(tables.find(&ident("lake.b"), "main").is_none());
    let task = bed.task();
    put(&task, [noted(0, "a"), noted(1, "b")]);
    task.until_durable(2);
    assert_eq!(bed.ids("lake.a"), [0]);
    assert_eq!(bed.files("lake.b", "dev").len(), 1);
    assert!(bed.ids("lake.b").is_empty());
}

// Promise: Plain texts and bytes land in a column of their own when the configuration names one.
#[test]
fn values_that_are_no_records_get_a_column_when_asked_for() {
    let bed = Bed::new("db.orders").with("iceberg.tables.value-column", "payload");
    let task = bed.task();
    task.tick();
    let schema = SourceSchema::scalar(SourceKind::String);
    let id = task.session.register_schema(&schema.to_bytes()).unwrap();
    let row = |offset, text: Value| Row::new(TOPIC, 0, offset).value(text);
    let frame = FrameBuilder::with_value_schema(id, schema).rows([
        row(0, Value::Null),
        row(1, Value::text("one")),
        row(2, Value::text("two")),
    ]);
    assert_eq!(codes(&task.try_put(&frame).unwrap()), []);
    put(&task, [noted(3, "a record as ever")]);
    task.until_durable(4);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        bed.texts("db.orders", "payload"),
        [None, some("one"), some("two")]
    );
}
