//! What comes with values: defaults of their schemas, keys, headers, and rules on all of it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type};
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{LogicalType, SourceKind, SourceSchema};
use frazil_engine::compat::{self, Effect, TableFindings};
use iceberg::spec::Literal;
use sha2::{Digest, Sha256};

use crate::bed::{Bed, TOPIC, Task};

const TABLE: &str = "db.orders";
const SALT: &str = "sixteen letters or more";

fn frame(
    task: &Task,
    first: i64,
    schema: Option<&SourceSchema>,
    values: Vec<Value>,
) -> FrameBuilder {
    let rows = (first..)
        .zip(values)
        .map(|(offset, value)| Row::new(TOPIC, 0, offset).value(value));
    let frame = match schema {
        Some(schema) => {
            let id = task.session.register_schema(&schema.to_bytes()).unwrap();
            FrameBuilder::with_value_schema(id, schema.clone())
        }
        None => FrameBuilder::schemaless(),
    };
    frame.rows(rows)
}

fn put(task: &Task, first: i64, schema: Option<&SourceSchema>, values: Vec<Value>) {
    task.tick();
    let effects = task.try_put(&frame(task, first, schema, values)).unwrap();
    assert_eq!(effects.rejected, vec![]);
}

// Promise: in a table of format version 3, a new field's default is what older rows read as and what
// records without the field get, while null stays null
// Complaint: 39
#[test]
fn defaults_of_a_source_are_carried_to_the_table() {
    let bed = Bed::new(TABLE)
        .slow()
        .with("iceberg.tables.evolve-schema-mode", "full")
        .with("iceberg.tables.auto-create-props.format-version", "3");
    let task = bed.task();
    let id = || SourceSchema::scalar(SourceKind::Int64);
    let mut seven = id().optional();
    (seven.has_default, seven.default) = (true, Some("7".to_owned()));
    let old = SourceSchema::structure([("id", id())]);
    let new = SourceSchema::structure([("id", id()), ("v", seven)]);
    let row = |id: i64| Value::Struct(vec![Value::Int64(id)]);
    let with = |id: i64, v: Value| Value::Struct(vec![Value::Int64(id), v]);
    put(&task, 0, Some(&old), vec![row(0)]);
    put(
        &task,
        1,
        Some(&new),
        vec![with(1, Value::Int64(1)), with(2, Value::Null)],
    );
    put(&task, 3, Some(&old), vec![row(3)]);
    task.session.close();
    let metadata = bed.load(TABLE).metadata;
    let field = metadata.current_schema().field_by_name("v").unwrap();
    assert_eq!(field.initial_default, Some(Literal::long(7)));
    assert_eq!(field.write_default, Some(Literal::long(7)));
    assert!(!field.required);
    let mut found = Vec::new();
    for batch in bed.batches(TABLE, "main") {
        // Files from before have no such column: readers take the initial default.
        if let Some(column) = batch.column_by_name("v") {
            found.extend(column.as_primitive::<Int64Type>().iter());
        }
    }
    found.sort_unstable();
    assert_eq!(found, [None, Some(1), Some(7)]);
}

// Promise: bits and unsigned numbers of 64 bits land as they are, and a boolean's column takes no number
// Case: 54
#[test]
fn bits_and_large_unsigned_numbers_stay_what_they_are() {
    let bed = Bed::new(TABLE)
        .slow()
        .with("errors.tolerance", "all")
        .with("errors.deadletterqueue.topic.name", "dead");
    let task = bed.task();
    let of = |flag: SourceKind| {
        let bits = SourceSchema::scalar(SourceKind::Bytes).named("io.debezium.data.Bits");
        let unsigned = SourceSchema::logical_type(LogicalType::Decimal { scale: 0 })
            .with_parameter("connect.decimal.precision", "20");
        SourceSchema::structure([
            ("id", SourceSchema::scalar(SourceKind::Int64)),
            ("bits", bits.with_parameter("length", "12")),
            ("unsigned", unsigned),
            ("flag", SourceSchema::scalar(flag)),
        ])
    };
    let row = |id: i64, bits: &[u8], unsigned: u64, flag: Value| {
        Value::Struct(vec![
            Value::Int64(id),
            Value::Bytes(bits.to_vec()),
            Value::Decimal(i128::from(unsigned), 0),
            flag,
        ])
    };
    let values = vec![
        row(0, &[0x01, 0x0a], u64::MAX, Value::Bool(true)),
        row(1, &[0x00, 0x00], 0, Value::Bool(false)),
        row(2, &[0xff, 0x0f], 1 << 63, Value::Bool(true)),
    ];
    put(&task, 0, Some(&of(SourceKind::Boolean)), values);
    let number = vec![row(3, &[0, 0], 3, Value::Int16(1))];
    let later = frame(&task, 3, Some(&of(SourceKind::Int16)), number);
    let refused = task.try_put(&later).unwrap().rejected;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].offset, 3);
    assert_eq!(refused[0].code, "VALUE_NOT_CONVERTIBLE");
    assert!(refused[0].message.contains("column=flag"), "{refused:?}");
    task.session.close();
    let mut found = Vec::new();
    for batch in bed.batches(TABLE, "main") {
        let column = |name: &str| batch.column_by_name(name).expect("a column");
        let ids = column("id").as_primitive::<Int64Type>();
        let bits = column("bits").as_binary::<i32>();
        let unsigned = column("unsigned").as_primitive::<Decimal128Type>();
        for at in 0..batch.num_rows() {
            found.push((ids.value(at), bits.value(at).to_vec(), unsigned.value(at)));
        }
    }
    found.sort();
    let wanted = [
        (0, vec![0x01, 0x0a], i128::from(u64::MAX)),
        (1, vec![0x00, 0x00], 0),
        (2, vec![0xff, 0x0f], 1 << 63),
    ];
    assert_eq!(found, wanted);
}

// Promise: values without a schema that are no records land in the column of
// `iceberg.tables.value-column`
#[test]
fn bare_values_without_a_schema_land() {
    let bed = Bed::new(TABLE)
        .slow()
        .with("iceberg.tables.value-column", "payload");
    let task = bed.task();
    put(&task, 0, None, vec![Value::text("one"), Value::text("")]);
    put(
        &task,
        2,
        None,
        vec![Value::object([("payload", Value::text("three"))])],
    );
    task.session.close();
    let mut found: Vec<String> = bed.texts(TABLE, "payload").into_iter().flatten().collect();
    found.sort();
    assert_eq!(found, ["", "one", "three"]);
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(format!("{SALT}{text}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

// Promise: what column rules name reaches no column of the table by way of keys or headers
#[test]
fn nothing_masked_comes_by_keys_or_headers() {
    let bed = Bed::new(TABLE)
        .slow()
        .with("iceberg.tables.metadata-columns", "_key,_headers,_offset")
        .with("iceberg.tables.columns.exclude", "phone,_offset")
        .with("iceberg.tables.columns.hash", "email")
        .with("iceberg.tables.columns.hash-salt", SALT);
    let task = bed.task();
    task.tick();
    let person = || {
        Value::object([
            ("id", Value::Int64(1)),
            ("email", Value::text("ada@x.org")),
            ("phone", Value::text("555")),
        ])
    };
    let row = Row::new(TOPIC, 0, 0)
        .value(person())
        .key(person())
        .header("email", Value::text("ada@x.org"))
        .header("phone", Value::text("555"));
    let frame = FrameBuilder::schemaless().with_headers().row(row);
    let effects = task.try_put(&frame).unwrap();
    assert_eq!(effects.rejected, vec![]);
    task.session.close();
    let hashed = hash("ada@x.org");
    assert_eq!(bed.texts(TABLE, "email"), [Some(hashed.clone())]);
    assert_eq!(
        bed.texts(TABLE, "_key"),
        [Some(format!(r#"{{"id":1,"email":"{hashed}"}}"#))]
    );
    assert_eq!(
        bed.texts(TABLE, "_headers"),
        [Some(format!(r#"[{{"key":"email","value":"{hashed}"}}]"#))]
    );
    let metadata = bed.load(TABLE).metadata;
    let schema = metadata.current_schema();
    for name in ["phone", "_offset"] {
        assert!(schema.field_by_name(name).is_none(), "{name}");
    }
}

fn findings(bed: &Bed, source: &SourceSchema) -> TableFindings {
    let source = Arc::new(source.clone());
    let (config, catalog) = (bed.config(), bed.catalog());
    let tables = compat::tables(&config, TOPIC, &[]).expect("the topic has a table");
    let mut found = bed
        .wait(compat::check(&tables, &catalog, &source))
        .expect("the catalog answers");
    assert_eq!(found.len(), 1);
    found.remove(0)
}

// Promise: `frazil compat` sees of a schema what the table's column rules leave of it
#[test]
fn compat_sees_what_column_rules_leave() {
    let bed = Bed::new(TABLE)
        .slow()
        .with("iceberg.tables.evolve-schema-mode", "full");
    let long = || SourceSchema::scalar(SourceKind::Int64);
    let text = || SourceSchema::scalar(SourceKind::String).optional();
    let old = SourceSchema::structure([("id", long()), ("phone", long().optional())]);
    let new = SourceSchema::structure([
        ("id", long()),
        ("phone", text()),
        ("secret", text()),
        ("born", long().optional()),
    ]);
    let task = bed.task();
    let row = Value::Struct(vec![Value::Int64(0), Value::Int64(555)]);
    put(&task, 0, Some(&old), vec![row]);
    task.session.close();
    let seen = findings(&bed, &new);
    assert!(seen.is_blocked());
    let columns = |seen: &TableFindings| {
        let columns = seen.findings.iter().map(|finding| finding.column.clone());
        columns.collect::<Vec<_>>()
    };
    assert_eq!(columns(&seen), ["secret", "born", "phone"]);
    let bed = bed
        .with("iceberg.tables.columns.exclude", "secret,phone")
        .with("iceberg.tables.columns.hash", "born")
        .with("iceberg.tables.columns.hash-salt", SALT);
    let seen = findings(&bed, &new);
    assert_eq!(columns(&seen), ["born"]);
    let to = "string".to_owned();
    assert_eq!(seen.findings[0].effect, Effect::Add { to });
    let bed = bed
        .with("iceberg.tables.columns.include", "other")
        .with("iceberg.tables.columns.exclude", "")
        .with("iceberg.tables.columns.hash", "");
    let nothing = findings(&bed, &new);
    let reason = match &nothing.findings[0].effect {
        Effect::Block { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason.contains("COLUMN_RULES_LEAVE_NOTHING"), "{reason}");
}

// Promise: `frazil compat` compares a schema with the tables that its topic goes to, and says so when
// only the records know
#[test]
fn compat_looks_at_the_tables_of_the_topic() {
    let names = |bed: &Bed, topic: &str, named: &[&str]| {
        let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
        let tables = compat::tables(&bed.config(), topic, &named);
        tables.map(|tables| {
            tables
                .into_iter()
                .map(|table| table.name)
                .collect::<Vec<_>>()
        })
    };
    let all = Bed::new("db.a,db.b");
    assert_eq!(names(&all, "any", &[]).unwrap(), ["db.a", "db.b"]);
    assert_eq!(names(&all, "any", &["db.b"]).unwrap(), ["db.b"]);
    let matching = Bed::new("db.a,db.b")
        .with("iceberg.tables.route-source", "topic")
        .with("iceberg.table.db.a.route-regex", "left.*")
        .with("iceberg.table.db.b.route-regex", ".*right");
    assert_eq!(names(&matching, "left", &[]).unwrap(), ["db.a"]);
    assert_eq!(
        names(&matching, "left-right", &[]).unwrap(),
        ["db.a", "db.b"]
    );
    let by_topic = Bed::new("").with("iceberg.tables.name-template", "raw.${topic}");
    assert_eq!(names(&by_topic, "Orders", &[]).unwrap(), ["raw.orders"]);
    let by_value = Bed::new("").with("iceberg.tables.name-template", "raw.${value.kind}");
    assert_eq!(names(&by_value, "any", &["raw.x"]).unwrap(), ["raw.x"]);
    for refused in [
        names(&matching, "other", &[]),
        names(&matching, "left", &["db.c"]),
        names(&by_value, "any", &[]),
        names(&by_value, "any", &["noname"]),
    ] {
        assert_eq!(refused.unwrap_err().code(), "COMPAT_TABLE_UNKNOWN");
    }
}
