//! The ways in which changes come: structs, bytes, routes, rules, schemas that grow.

use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{SourceKind, SourceSchema};

use super::*;

const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";

#[test]
fn structs_with_a_schema_change_rows() {
    let rows = SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("note", SourceSchema::scalar(SourceKind::String).optional()),
    ]);
    let envelope = SourceSchema::structure([
        ("before", rows.clone().optional()),
        ("after", rows.optional()),
        ("op", SourceSchema::scalar(SourceKind::String)),
    ]);
    let key = SourceSchema::structure([("id", SourceSchema::scalar(SourceKind::Int64))]);
    let bed = bed("cdc");
    let task = bed.task();
    let typed = Typed::new(&task, envelope, key);
    let of = |offset: i64, op: &str, id: i64, note: Option<&str>| {
        let full = note.map(|note| Value::Struct(vec![Value::Int64(id), Value::text(note)]));
        let fields = vec![Value::Null, full.unwrap_or(Value::Null), Value::text(op)];
        at(0, offset)
            .key(Value::Struct(vec![Value::Int64(id)]))
            .value(Value::Struct(fields))
    };
    typed.put(vec![
        of(0, "c", 1, Some("a")),
        of(1, "c", 2, Some("a")),
        of(2, "u", 1, Some("b")),
        of(3, "d", 2, None),
    ]);
    task.until_durable(4);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "b")]));
    typed.put(vec![of(4, "d", 1, None), of(5, "c", 3, Some("c"))]);
    task.until_durable(6);
    assert_eq!(seen(&bed, TABLE), notes(&[(3, "c")]));
}

// Promise: the changes themselves can be kept in a second table, one row each
#[test]
fn a_log_of_changes_lies_beside_the_table() {
    let rows = SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("note", SourceSchema::scalar(SourceKind::String).optional()),
    ]);
    let envelope = SourceSchema::structure([
        ("after", rows.optional()),
        ("op", SourceSchema::scalar(SourceKind::String)),
    ]);
    let key = SourceSchema::structure([("id", SourceSchema::scalar(SourceKind::Int64))]);
    let bed = Bed::new("db.orders,db.log")
        .with("iceberg.table.db.orders.mode", "cdc")
        .with("iceberg.table.db.orders.id-columns", "id");
    let task = bed.task();
    let typed = Typed::new(&task, envelope, key);
    let of = |offset: i64, op: &str, id: i64, note: Option<&str>| {
        let full = note.map(|note| Value::Struct(vec![Value::Int64(id), Value::text(note)]));
        let fields = vec![full.unwrap_or(Value::Null), Value::text(op)];
        at(0, offset)
            .key(Value::Struct(vec![Value::Int64(id)]))
            .value(Value::Struct(fields))
    };
    let tombstone = at(0, 3).key(Value::Struct(vec![Value::Int64(1)]));
    typed.put([
        of(0, "c", 1, Some("a")),
        of(1, "u", 1, Some("b")),
        of(2, "d", 1, None),
        tombstone,
        of(4, "c", 2, Some("c")),
    ]);
    task.until_durable(5);
    assert_eq!(seen(&bed, TABLE), notes(&[(2, "c")]));
    let ops = bed.texts("db.log", "op");
    let ops: Vec<&str> = ops
        .iter()
        .map(|op| op.as_deref().expect("an operation"))
        .collect();
    assert_eq!(ops, ["c", "c", "d", "u"]);
}

#[test]
fn records_that_are_decoded_here_change_rows() {
    let bed = bed("cdc")
        .with("value.converter", BYTES)
        .with("frazil.value.format", "json")
        .with("key.converter", BYTES)
        .with("frazil.key.format", "json");
    let task = bed.task();
    let schema = SourceSchema::scalar(SourceKind::Bytes).optional();
    let id = task
        .session
        .register_schema(&schema.to_bytes())
        .expect("registered");
    let bytes = |text: String| Value::Bytes(text.into_bytes());
    let of = |offset: i64, op: &str, id: i64, note: &str| {
        let after = match op {
            "d" => "null".to_owned(),
            _ => format!("{{\"id\":{id},\"note\":\"{note}\"}}"),
        };
        let value = format!("{{\"before\":null,\"after\":{after},\"op\":\"{op}\"}}");
        at(0, offset)
            .key(bytes(format!("{{\"id\":{id}}}")))
            .value(bytes(value))
    };
    let put = |rows: Vec<Row>| {
        task.tick();
        let frame = FrameBuilder::with_value_schema(id, schema.clone())
            .key_schema(id, schema.clone())
            .with_headers()
            .rows(rows);
        task.try_put(&frame).expect("taken")
    };
    put(vec![
        of(0, "c", 1, "a"),
        of(1, "c", 2, "b"),
        of(2, "u", 2, "c"),
    ]);
    task.until_durable(3);
    put(vec![of(3, "d", 1, ""), of(4, "u", 2, "d")]);
    task.until_durable(5);
    assert_eq!(seen(&bed, TABLE), notes(&[(2, "d")]));
}

#[test]
fn a_table_follows_the_rows_and_not_their_envelope() {
    let bed = bed("cdc").with("iceberg.tables.evolve-schema-enabled", "true");
    let task = bed.task();
    put(&task, [created(0, 1, "a")]);
    let wide = Value::object([
        ("id", Value::Int64(2)),
        ("note", Value::text("b")),
        ("more", Value::Int64(5)),
    ]);
    put(
        &task,
        [
            change((0, 1), "c", Value::Null, wide, 1),
            updated(2, 1, "c"),
        ],
    );
    task.until_durable(3);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "c"), (2, "b")]));
    let schema = bed.load(TABLE).metadata.current_schema().clone();
    let names: Vec<&str> = schema
        .as_struct()
        .fields()
        .iter()
        .map(|f| f.name.as_str())
        .collect();
    assert_eq!(names, ["id", "note", "more"]);
}

#[test]
fn column_rules_apply_to_the_rows_of_changes() {
    let bed = bed("cdc")
        .with("iceberg.tables.columns.exclude", "secret")
        .with("iceberg.tables.columns.hash", "note")
        .with("iceberg.tables.columns.hash-salt", "0123456789abcdef");
    let task = bed.task();
    let wide = |id: i64| {
        Value::object([
            ("id", Value::Int64(id)),
            ("note", Value::text("visible")),
            ("secret", Value::text("hidden")),
        ])
    };
    put(&task, [change((0, 0), "c", Value::Null, wide(1), 1)]);
    put(
        &task,
        [change((0, 1), "u", Value::Null, wide(1), 2), removed(2, 7)],
    );
    task.until_durable(3);
    let rows = seen(&bed, TABLE);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[&1].len(), 64, "a hash");
    let schema = bed.load(TABLE).metadata.current_schema().clone();
    assert!(schema.field_by_name("secret").is_none());
}

// Case: 39
#[test]
fn records_may_name_the_tables_whose_rows_they_change() {
    let bed = Bed::new("")
        .with("iceberg.tables.name-template", "lake.${value.source.table}")
        .with(MODE, "cdc")
        .with("iceberg.tables.default-id-columns", "id");
    let task = bed.task();
    let of = |offset: i64, table: &str, op: &str, id: i64, note: &str| {
        let source = Value::object([("table", Value::text(table))]);
        let after = if op == "d" {
            Value::Null
        } else {
            row(id, note)
        };
        let value = Value::object([
            ("after", after),
            ("op", Value::text(op)),
            ("source", source),
        ]);
        at(0, offset)
            .key(Value::object([("id", Value::Int64(id))]))
            .value(value)
    };
    put(
        &task,
        [
            of(0, "a", "c", 1, "x"),
            of(1, "b", "c", 1, "y"),
            of(2, "a", "u", 1, "z"),
            of(3, "b", "d", 1, ""),
            // A tombstone has no value to be routed by, and says nothing.
            at(0, 4).key(Value::object([("id", Value::Int64(1))])),
            of(5, "b", "c", 2, "w"),
        ],
    );
    task.until_durable(6);
    assert_eq!(seen(&bed, "lake.a"), notes(&[(1, "z")]));
    assert_eq!(seen(&bed, "lake.b"), notes(&[(2, "w")]));
}

// Case: 38
#[test]
fn one_segment_may_have_files_of_two_schemas() {
    let bed = bed("cdc")
        .slow()
        .with("iceberg.tables.evolve-schema-enabled", "true");
    let task = bed.task();
    put(
        &task,
        [created(0, 1, "a"), created(1, 2, "a"), created(2, 3, "a")],
    );
    let wide = |id: i64, note: &str| {
        Value::object([
            ("id", Value::Int64(id)),
            ("note", Value::text(note)),
            ("more", Value::Int64(5)),
        ])
    };
    put(
        &task,
        [
            change((0, 3), "u", Value::Null, wide(1, "b"), 3),
            removed(4, 2),
            change((0, 5), "c", Value::Null, wide(4, "d"), 5),
        ],
    );
    task.session.close();
    let runs = key_runs(&bed, TABLE);
    assert_eq!(runs.len(), 1, "one segment");
    let files: std::collections::BTreeSet<i32> = runs[0]
        .iter()
        .filter_map(|change| Some(change.3?.0))
        .collect();
    assert_eq!(files.len(), 2);
    assert_eq!(seen(&bed, TABLE), notes(&[(1, "b"), (3, "a"), (4, "d")]));
}

// Promise: after a column of the key was renamed, records of before the rename update and delete its rows
// Case: 27
#[test]
fn a_renamed_column_of_the_key_goes_on() {
    let bed = bed("upsert");
    let task = bed.task();
    put(
        &task,
        [
            upsert(0, 1, Some("a")),
            upsert(1, 2, Some("b")),
            upsert(2, 3, Some("c")),
        ],
    );
    task.until_durable(3);
    task.session.close();
    let schema = bed.load(TABLE).metadata.current_schema().as_ref().clone();
    let renamed = schema.as_struct().fields().iter().map(|field| {
        let mut field = field.as_ref().clone();
        if field.name == "id" {
            field.name = "order_id".to_owned();
        }
        std::sync::Arc::new(field)
    });
    let id = schema.field_by_name("id").expect("a column").id;
    let renamed = iceberg::spec::Schema::builder()
        .with_schema_id(schema.schema_id() + 1)
        .with_identifier_field_ids([id])
        .with_fields(renamed)
        .build()
        .expect("a schema");
    bed.change(TABLE, iceberg::TableUpdate::AddSchema { schema: renamed });
    let known = bed.load(TABLE).metadata;
    let ids = known.schemas_iter().map(|schema| schema.schema_id());
    let schema_id = ids.max().expect("a schema");
    bed.change(TABLE, iceberg::TableUpdate::SetCurrentSchema { schema_id });
    let mapping = format!(r#"[{{"field-id":{id},"names":["id"]}}]"#);
    bed.set_property(TABLE, "schema.name-mapping.default", Some(&mapping));
    let task = bed.task_with(&[("iceberg.tables.default-id-columns", "order_id")]);
    let effects = put(&task, [upsert(3, 1, Some("A")), upsert(4, 2, None)]);
    assert_eq!(rejected(&effects), []);
    task.until_durable(5);
    let (data, deletes) = live(&bed, TABLE);
    let deleted: u64 = deletes.values().map(DeletionVector::len).sum();
    let files = bed.files(TABLE, "main");
    let files = files
        .iter()
        .filter(|file| data.contains(&file.file_path().to_owned()));
    let rows: u64 = files.map(|file| file.record_count()).sum();
    assert_eq!((rows, deleted), (4, 2));
}
