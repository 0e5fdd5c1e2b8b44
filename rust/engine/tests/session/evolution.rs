//! Tables that follow their records, and records that their table cannot follow.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use frazil_core::ErrorKind;
use frazil_core::wire::Effects;
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{SourceKind, SourceSchema};
use frazil_engine::catalog::CreateTable;
use iceberg::spec::{FormatVersion, NestedField, PrimitiveType, Schema, StructType, Type};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::bed::{Bed, TOPIC, Task, ident};

const FULL: (&str, &str) = ("iceberg.tables.evolve-schema-mode", "full");

fn primitive(primitive: PrimitiveType) -> Type {
    Type::Primitive(primitive)
}

/// Makes a table whose first field is its key.
fn create(bed: &Bed, table: &str, fields: Vec<NestedField>) {
    let catalog = bed.catalog();
    let ident = ident(table);
    let schema = Schema::builder()
        .with_fields(fields.into_iter().map(Arc::new))
        .with_identifier_field_ids([1])
        .build()
        .unwrap();
    let creation = CreateTable {
        schema,
        partition_spec: None,
        sort_order: None,
        location: None,
        properties: BTreeMap::new(),
        format_version: FormatVersion::V2,
    };
    bed.wait(async {
        let _ = catalog.create_namespace(&ident.namespace).await;
        catalog.create_table(&ident, creation).await.unwrap()
    });
}

/// Puts rows of `schema`, made from their offsets, to partition 0.
fn put(
    task: &Task,
    schema: &SourceSchema,
    offsets: Range<i64>,
    row: impl Fn(i64) -> Vec<Value>,
) -> Effects {
    task.tick();
    let id = task.session.register_schema(&schema.to_bytes()).unwrap();
    let rows = offsets.map(|offset| Row::new(TOPIC, 0, offset).value(Value::Struct(row(offset))));
    task.try_put(&FrameBuilder::with_value_schema(id, schema.clone()).rows(rows))
        .unwrap()
}

/// A frame of records without a schema, from offset `first` on.
fn loose(first: i64, values: Vec<Vec<(&str, Value)>>) -> FrameBuilder {
    let rows = (first..)
        .zip(values)
        .map(|(offset, value)| Row::new(TOPIC, 0, offset).value(Value::object(value)));
    FrameBuilder::schemaless().in_columns().rows(rows)
}

fn with_quantity(kind: SourceKind) -> SourceSchema {
    SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("qty", SourceSchema::scalar(kind).optional()),
    ])
}

/// The numbers of a column, whatever width its files have, sorted.
fn numbers(bed: &Bed, table: &str, column: &str) -> Vec<i64> {
    let mut numbers = Vec::new();
    for batch in bed.batches(table, "main") {
        let Some(column) = batch.column_by_name(column) else {
            continue;
        };
        match column.as_primitive_opt::<Int64Type>() {
            Some(wide) => numbers.extend(wide.iter().flatten()),
            None => {
                let narrow = column.as_primitive::<Int32Type>();
                numbers.extend(narrow.iter().flatten().map(i64::from));
            }
        }
    }
    numbers.sort_unstable();
    numbers
}

/// The columns of a table, each with a star when it is required.
fn columns(bed: &Bed, table: &str) -> Vec<String> {
    let loaded = bed.load(table);
    let fields = loaded.metadata.current_schema().as_struct().fields();
    let show = |field: &Arc<NestedField>| {
        let star = if field.required { "*" } else { "" };
        format!("{}{star} {}", field.name, field.field_type)
    };
    fields.iter().map(show).collect()
}

// Promise: A column that is promoted in the middle of an interval, also one that partitions the table, loses no value, and both kinds of files go into one commit.
#[test]
fn a_column_promoted_within_a_segment_shares_its_commit() {
    let bed = Bed::new("db.orders")
        .slow()
        .with(FULL.0, FULL.1)
        .with("iceberg.tables.default-partition-by", "qty");
    let task = bed.task();
    let row = |offset| vec![Value::Int64(offset), Value::Int32(offset as i32)];
    put(&task, &with_quantity(SourceKind::Int32), 0..2, row);
    let row = |offset| vec![Value::Int64(offset), Value::Int64(3_000_000_000 + offset)];
    let effects = put(&task, &with_quantity(SourceKind::Int64), 2..4, row);
    assert_eq!(effects.rejected, vec![]);
    let row = |offset| vec![Value::Int64(offset), Value::Int32(offset as i32)];
    put(&task, &with_quantity(SourceKind::Int32), 4..5, row);
    task.session.close();
    assert_eq!(bed.snapshots("db.orders"), 1);
    assert_eq!(columns(&bed, "db.orders"), ["id* long", "qty long"]);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4]);
    assert_eq!(
        numbers(&bed, "db.orders", "qty"),
        [0, 1, 4, 3_000_000_002, 3_000_000_003]
    );
}

// Promise: A record that is refused for one column changes nothing of the table for another.
#[test]
fn a_refused_record_changes_no_table() {
    let bed = Bed::new("db.orders")
        .slow()
        .with(FULL.0, FULL.1)
        .with("errors.tolerance", "all")
        .with("frazil.errors.drop", "true");
    let int = primitive(PrimitiveType::Int);
    create(
        &bed,
        "db.orders",
        vec![
            NestedField::required(1, "id", primitive(PrimitiveType::Long)),
            NestedField::required(2, "note", primitive(PrimitiveType::String)),
            NestedField::optional(3, "qty", int),
        ],
    );
    let before = columns(&bed, "db.orders");
    let task = bed.task();
    let frame = loose(
        0,
        vec![
            vec![
                ("id", Value::text("no number")),
                ("qty", Value::Int64(1 << 40)),
                ("new", Value::Int64(1)),
            ],
            vec![("id", Value::Int64(1)), ("note", Value::text("fine"))],
        ],
    );
    task.tick();
    let effects = task.try_put(&frame).unwrap();
    let codes: Vec<_> = effects.rejected.iter().map(|r| r.code.as_str()).collect();
    assert_eq!(codes, ["SCHEMA_BREAKING_CHANGE"]);
    assert_eq!(columns(&bed, "db.orders"), before);
    // The same changes for a record that fits.
    let value = vec![
        ("id", Value::Int64(2)),
        ("qty", Value::Int64(1 << 40)),
        ("new", Value::Int64(1)),
    ];
    let effects = task.try_put(&loose(2, vec![value])).unwrap();
    assert_eq!(effects.rejected, vec![]);
    task.session.close();
    assert_eq!(
        columns(&bed, "db.orders"),
        ["id* long", "note string", "qty long", "new long"]
    );
    assert_eq!(bed.ids("db.orders"), [1, 2]);
    assert_eq!(numbers(&bed, "db.orders", "qty"), [1 << 40]);
}

// Promise: The record that brings a nested field keeps its value when the struct becomes optional at the same time (Apache's sink loses it).
// Complaint: 15
#[test]
fn the_record_that_changes_a_struct_keeps_its_value() {
    let bed = Bed::new("db.orders").slow().with(FULL.0, FULL.1);
    let x = NestedField::optional(3, "x", primitive(PrimitiveType::Long));
    let inner = Type::Struct(StructType::new(vec![Arc::new(x)]));
    create(
        &bed,
        "db.orders",
        vec![
            NestedField::required(1, "id", primitive(PrimitiveType::Long)),
            NestedField::required(2, "s", inner),
        ],
    );
    let source = SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        (
            "s",
            SourceSchema::structure([
                ("x", SourceSchema::scalar(SourceKind::Int64)),
                ("y", SourceSchema::scalar(SourceKind::String)),
            ])
            .optional(),
        ),
    ]);
    let task = bed.task();
    put(&task, &source, 0..2, |offset| {
        let inner = Value::Struct(vec![Value::Int64(1), Value::text("keep")]);
        vec![Value::Int64(offset), inner]
    });
    task.session.close();
    let mut kept = 0;
    for batch in bed.batches("db.orders", "main") {
        let structs = batch.column_by_name("s").unwrap().as_struct();
        let y = structs.column_by_name("y").unwrap().as_string::<i32>();
        kept += y.iter().filter(|y| *y == Some("keep")).count();
        assert_eq!(structs.null_count(), 0);
    }
    assert_eq!(kept, 2);
}

// Promise: Two tasks that change a table at once make one column, and neither loses a value.
#[test]
fn two_tasks_that_change_a_table_at_once_make_one_column() {
    let bed = Bed::new("db.orders").slow().with(FULL.0, FULL.1);
    let first = bed.task();
    let row = |offset| vec![Value::Int64(offset), Value::Int32(0)];
    put(&first, &with_quantity(SourceKind::Int32), 0..1, row);
    let second = bed.open().unwrap();
    second.assign(&[1]);
    second.tick();
    let wide = SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("qty", SourceSchema::scalar(SourceKind::Int64).optional()),
        ("place", SourceSchema::scalar(SourceKind::String).optional()),
    ]);
    std::thread::scope(|scope| {
        for (partition, task) in [(0, &first), (1, &second)] {
            let wide = &wide;
            scope.spawn(move || {
                let id = task.session.register_schema(&wide.to_bytes()).unwrap();
                for offset in 10..14 {
                    let value = vec![
                        Value::Int64(i64::from(partition) * 100 + offset),
                        Value::Int64(1 << 40),
                        Value::text("here"),
                    ];
                    let row = Row::new(TOPIC, partition, offset).value(Value::Struct(value));
                    let frame = FrameBuilder::with_value_schema(id, wide.clone()).row(row);
                    let effects = task.try_put(&frame).unwrap();
                    assert_eq!(effects.rejected, vec![]);
                }
            });
        }
    });
    first.session.close();
    second.session.close();
    assert_eq!(
        columns(&bed, "db.orders"),
        ["id* long", "qty long", "place string"]
    );
    let mut ids = vec![0];
    ids.extend(10..14);
    ids.extend(110..114);
    assert_eq!(bed.ids("db.orders"), ids);
    let places = bed.texts("db.orders", "place");
    let here = places.iter().filter(|place| place.is_some());
    assert_eq!(here.count(), 8);
}

#[test]
fn a_frame_that_brings_more_columns_than_one_change_may_add_needs_two() {
    let bed = Bed::new("db.orders")
        .slow()
        .with(FULL.0, FULL.1)
        .with("iceberg.tables.evolve-schema-max-columns-per-commit", "2")
        .with("errors.tolerance", "all")
        .with("frazil.errors.drop", "true");
    let task = bed.task();
    task.put(0..1);
    let one = || Value::Int64(1);
    let frame = loose(
        1,
        vec![
            vec![("id", one()), ("a", one()), ("b", one())],
            vec![("id", one()), ("c", one())],
            vec![("id", one()), ("x", one()), ("y", one()), ("z", one())],
        ],
    );
    let effects = task.try_put(&frame).unwrap();
    let rejected = &effects.rejected;
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    assert_eq!(rejected[0].code, "SCHEMA_COLUMNS_MAX");
    assert!(rejected[0].message.contains("max-columns-per-commit"));
    task.session.close();
    assert_eq!(
        columns(&bed, "db.orders"),
        ["id* long", "note string", "a long", "b long", "c long"]
    );
    assert_eq!(bed.ids("db.orders"), [0, 1, 1]);
    assert_eq!(bed.longs("db.orders", "c"), [1]);
}

// Promise: A renamed source field goes on in its column when the table's name mapping says so.
#[test]
fn a_renamed_field_lands_in_the_column_of_the_name_mapping() {
    let bed = Bed::new("db.orders").slow().with(FULL.0, FULL.1);
    bed.task().put(0..1);
    let task = bed.task();
    task.put(0..1);
    task.session.close();
    let mapping = r#"[{"field-id":1,"names":["id","order_id"]},{"field-id":2,"names":["note"]}]"#;
    bed.set_property("db.orders", "schema.name-mapping.default", Some(mapping));
    let renamed = SourceSchema::structure([
        ("order_id", SourceSchema::scalar(SourceKind::Int64)),
        ("note", SourceSchema::scalar(SourceKind::String).optional()),
    ]);
    let task = bed.task();
    let effects = put(&task, &renamed, 1..3, |offset| {
        vec![Value::Int64(offset), Value::text("fine")]
    });
    assert_eq!(effects.rejected, vec![]);
    task.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 2]);
    assert_eq!(columns(&bed, "db.orders"), ["id* long", "note string"]);
}

fn two_tables(bed: Bed) -> Bed {
    let fields = |note| {
        vec![
            NestedField::required(1, "id", primitive(PrimitiveType::Long)),
            NestedField::optional(2, "note", primitive(note)),
        ]
    };
    create(&bed, "db.numbers", fields(PrimitiveType::Long));
    create(&bed, "db.texts", fields(PrimitiveType::String));
    bed
}

fn note(kind: SourceKind) -> SourceSchema {
    SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("note", SourceSchema::scalar(kind).optional()),
    ])
}

fn number(offset: i64) -> Vec<Value> {
    vec![Value::Int64(offset), Value::Int64(offset)]
}

fn text(offset: i64) -> Vec<Value> {
    vec![Value::Int64(offset), Value::text("words")]
}

// Promise: A change that a table cannot follow is one error with the column, both types, the record's place and what to do; by `dlq` the record is refused.
// Complaint: 36
#[test]
fn a_breaking_change_is_told_once_with_all_that_helps() {
    let bed = two_tables(Bed::new("db.numbers,db.texts"))
        .slow()
        .with(FULL.0, FULL.1)
        .with("errors.tolerance", "all")
        .with("errors.deadletterqueue.topic.name", "dead");
    let task = bed.task();
    put(&task, &note(SourceKind::Int64), 0..2, number);
    let effects = put(&task, &note(SourceKind::String), 2..4, text);
    let places: Vec<_> = effects.rejected.iter().map(|r| r.offset).collect();
    assert_eq!(places, [2, 3]);
    let message = &effects.rejected[0].message;
    for part in [
        "SCHEMA_BREAKING_CHANGE",
        "column=note",
        "from=long",
        "to=string",
        "table=db.numbers",
        "orders-0",
        "offset=2",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("words"), "{message}");
    task.session.close();
    assert_eq!(bed.ids("db.numbers"), [0, 1]);
    // What a column holds exactly all the same lands.
    let task = bed.task();
    let row = |offset| vec![Value::Int64(offset), Value::text("7")];
    assert_eq!(
        put(&task, &note(SourceKind::String), 4..5, row).rejected,
        vec![]
    );
    task.session.close();
    assert_eq!(numbers(&bed, "db.numbers", "note"), [0, 1, 7]);
}

// Promise: By `fail` the task stops at a change that a table cannot follow, whatever Connect tolerates.
#[test]
fn by_policy_the_task_stops_at_a_breaking_change() {
    let bed = two_tables(Bed::new("db.numbers,db.texts"))
        .slow()
        .with(FULL.0, FULL.1)
        .with("iceberg.tables.breaking-change-policy", "fail")
        .with("errors.tolerance", "all")
        .with("frazil.errors.drop", "true");
    let task = bed.task();
    let schema = note(SourceKind::String);
    let id = task.session.register_schema(&schema.to_bytes()).unwrap();
    let row = Row::new(TOPIC, 0, 0).value(Value::Struct(text(0)));
    let error = task
        .try_put(&FrameBuilder::with_value_schema(id, schema).row(row))
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Fatal, "SCHEMA_BREAKING_CHANGE")
    );
    let report = error.report();
    for part in ["db.numbers", "`note`", "orders-0", "offset=0"] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

// Promise: By `block-table` a table stops at a change that it cannot follow and the others go on; the group's offset waits, and once the change is seen to, no row is missing or there twice.
// Complaint: 36
#[test]
fn by_policy_a_table_stops_at_a_breaking_change_and_others_go_on() {
    let bed = two_tables(Bed::new("db.numbers,db.texts"))
        .with(FULL.0, FULL.1)
        .with("iceberg.tables.breaking-change-policy", "block-table");
    let task = bed.task();
    put(&task, &note(SourceKind::Int64), 0..2, number);
    let effects = put(&task, &note(SourceKind::String), 2..4, text);
    assert_eq!(effects.rejected, vec![]);
    let told = |effects: &Effects| {
        let mut lines = effects.log.iter();
        lines.any(|(_, line)| {
            ["db.numbers", "`note`", "offset=2", "takes no more rows"]
                .iter()
                .all(|part| line.contains(part))
        })
    };
    let ticked = task.tick();
    assert!(told(&effects) || told(&ticked), "{effects:?} {ticked:?}");
    // Also rows that it could take: they come after one that it could not.
    put(&task, &note(SourceKind::Int64), 4..6, number);
    task.until_durable_at_most(6, 2);
    task.session.close();
    assert_eq!(bed.ids("db.numbers"), [0, 1]);
    assert_eq!(bed.ids("db.texts"), [0, 1, 2, 3, 4, 5]);

    let fixed = [
        ("iceberg.tables.breaking-change-policy", "dlq"),
        ("errors.tolerance", "all"),
        ("frazil.errors.drop", "true"),
    ];
    let task = bed.task_with(&fixed);
    let effects = put(&task, &note(SourceKind::String), 2..4, text);
    assert_eq!(effects.rejected.len(), 2);
    put(&task, &note(SourceKind::Int64), 4..6, number);
    task.until_durable(6);
    task.session.close();
    assert_eq!(bed.ids("db.numbers"), [0, 1, 4, 5]);
    assert_eq!(bed.ids("db.texts"), [0, 1, 2, 3, 4, 5]);
}

// Promise: A record without a required column's field makes the column optional where the table may follow, and is refused by the column's name where not.
// Complaint: 35
#[test]
fn a_missing_required_field_makes_the_column_optional_or_is_named() {
    for (mode, code) in [
        ("full", None),
        ("add-only", Some("SCHEMA_BREAKING_CHANGE")),
        ("off", Some("REQUIRED_FIELD_NULL")),
    ] {
        let bed = Bed::new("db.orders")
            .slow()
            .with(FULL.0, mode)
            .with("errors.tolerance", "all")
            .with("frazil.errors.drop", "true");
        create(
            &bed,
            "db.orders",
            vec![
                NestedField::required(1, "id", primitive(PrimitiveType::Long)),
                NestedField::required(2, "note", primitive(PrimitiveType::String)),
            ],
        );
        let task = bed.task();
        let source = SourceSchema::structure([("id", SourceSchema::scalar(SourceKind::Int64))]);
        let effects = put(&task, &source, 0..1, |offset| vec![Value::Int64(offset)]);
        let of_schema: Vec<_> = effects.rejected.iter().map(|r| r.code.as_str()).collect();
        assert_eq!(of_schema, Vec::from_iter(code), "{mode}");
        let effects = task.try_put(&loose(1, vec![vec![("id", Value::Int64(1))]]));
        let rejected = effects.unwrap().rejected;
        let of_value: Vec<_> = rejected.iter().map(|r| r.code.as_str()).collect();
        assert_eq!(of_value, Vec::from_iter(code), "{mode}");
        assert!(rejected.iter().all(|r| r.message.contains("`note`")));
        task.session.close();
        let ids: &[i64] = if code.is_none() { &[0, 1] } else { &[] };
        assert_eq!(bed.ids("db.orders"), ids, "{mode}");
    }
}

// Promise: A renamed key is refused, and the error names the field that may be its new name.
#[test]
fn a_renamed_key_is_a_breaking_change() {
    let bed = two_tables(Bed::new("db.texts"))
        .slow()
        .with(FULL.0, FULL.1)
        .with("errors.tolerance", "all")
        .with("frazil.errors.drop", "true");
    let renamed = SourceSchema::structure([
        ("order_id", SourceSchema::scalar(SourceKind::Int64)),
        ("note", SourceSchema::scalar(SourceKind::String).optional()),
    ]);
    let task = bed.task();
    let effects = put(&task, &renamed, 0..1, text);
    let [rejected] = effects.rejected.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(rejected.code, "SCHEMA_BREAKING_CHANGE");
    for part in ["`id`", "`order_id`", "schema.name-mapping.default"] {
        assert!(rejected.message.contains(part), "{rejected:?}");
    }
    assert_eq!(columns(&bed, "db.texts"), ["id* long", "note string"]);
}
