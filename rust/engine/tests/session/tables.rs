//! Tables of all kinds.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{SourceKind, SourceSchema};
use frazil_core::{ErrorKind, Result};
use frazil_engine::catalog::CreateTable;
use iceberg::spec::{FormatVersion, NestedField, PrimitiveType, Schema, Type};
use std::collections::BTreeMap;

use crate::bed::{Bed, TOPIC, Task, ident, order};

fn creation(format_version: FormatVersion) -> CreateTable {
    let long = Type::Primitive(PrimitiveType::Long);
    let text = Type::Primitive(PrimitiveType::String);
    CreateTable {
        schema: Schema::builder()
            .with_fields([
                NestedField::required(1, "id", long).into(),
                NestedField::optional(2, "note", text).into(),
            ])
            .build()
            .unwrap(),
        partition_spec: None,
        sort_order: None,
        location: None,
        properties: BTreeMap::new(),
        format_version,
    }
}

pub(crate) fn create(bed: &Bed, table: &str, format_version: FormatVersion) -> Result<()> {
    let catalog = bed.catalog();
    let ident = ident(table);
    bed.wait(async {
        catalog.create_namespace(&ident.namespace).await?;
        catalog.create_table(&ident, creation(format_version)).await
    })?;
    Ok(())
}

pub(crate) fn drop_table(bed: &Bed, table: &str) {
    let catalog = bed.catalog();
    bed.wait(catalog.drop_table(&ident(table))).unwrap();
}

#[test]
fn a_missing_table_is_an_error_when_it_may_not_be_made() {
    let bed = Bed::new("db.orders").with("iceberg.tables.auto-create-enabled", "false");
    let error = bed.open().err().expect("no table, no start");
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Config, "TABLE_MISSING")
    );
    assert!(error.message().contains("db.orders"), "{error:?}");
}

// Promise: a table of format version 1 is refused with the reason
#[test]
fn a_table_of_version_1_is_refused() {
    let bed = Bed::new("db.orders");
    create(&bed, "db.orders", FormatVersion::V1).unwrap();
    let error = bed.open().err().expect("version 1 is not written");
    assert_eq!(error.code(), "TABLE_FORMAT_V1");
}

#[test]
fn tables_of_both_versions_are_written() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let bed = Bed::new("db.orders").slow();
        create(&bed, "db.orders", version).unwrap();
        let task = bed.task();
        task.put(0..3);
        task.session.close();
        assert_eq!(bed.ids("db.orders"), [0, 1, 2]);
        assert_eq!(bed.load("db.orders").metadata.format_version(), version);
    }
}

fn new_order(task: &Task, offsets: std::ops::Range<i64>) -> FrameBuilder {
    let schema = SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("note", SourceSchema::scalar(SourceKind::String).optional()),
        ("place", SourceSchema::scalar(SourceKind::String).optional()),
    ]);
    let id = task.session.register_schema(&schema.to_bytes()).unwrap();
    FrameBuilder::with_value_schema(id, schema).rows(offsets.map(|offset| {
        let value = vec![
            Value::Int64(offset),
            Value::text("new"),
            Value::text("here"),
        ];
        Row::new(TOPIC, 0, offset).value(Value::Struct(value))
    }))
}

// Promise: columns that come in the middle of an interval lose no value
#[test]
fn columns_that_come_within_a_segment_share_its_commit() {
    let bed = Bed::new("db.orders")
        .slow()
        .with("iceberg.tables.evolve-schema-enabled", "true");
    let task = bed.task();
    task.put(0..2);
    let effects = task.try_put(&new_order(&task, 2..4)).unwrap();
    assert_eq!(effects.rejected, vec![]);
    task.put(4..5);
    task.session.close();
    assert_eq!(bed.snapshots("db.orders"), 1);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3, 4]);
    let here = Some("here".to_owned());
    assert_eq!(
        bed.texts("db.orders", "place"),
        [None, None, None, here.clone(), here]
    );
}

#[test]
fn new_fields_are_left_out_when_the_schema_is_fixed() {
    let bed = Bed::new("db.orders").slow();
    let task = bed.task();
    task.put(0..2);
    task.try_put(&new_order(&task, 2..4)).unwrap();
    task.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3]);
    let schema = bed.load("db.orders").metadata.current_schema().clone();
    assert!(schema.field_by_name("place").is_none());
}

#[test]
fn rows_say_where_they_came_from() {
    let bed = Bed::new("db.orders").slow().with(
        "iceberg.tables.metadata-columns",
        "_topic,_partition,_offset",
    );
    let task = bed.task();
    task.assign(&[3]);
    task.tick();
    let rows = [order(0, 5), order(0, 7), order(3, 1)];
    task.try_put(&task.frame().rows(rows)).unwrap();
    task.session.close();
    let mut sources = Vec::new();
    for batch in bed.batches("db.orders", "main") {
        let topics = batch.column_by_name("_topic").unwrap().as_string::<i32>();
        let partitions = batch.column_by_name("_partition").unwrap();
        let offsets = batch.column_by_name("_offset").unwrap();
        for row in 0..batch.num_rows() {
            assert_eq!(topics.value(row), TOPIC);
            sources.push((
                partitions.as_primitive::<Int32Type>().value(row),
                offsets.as_primitive::<Int64Type>().value(row),
            ));
        }
        assert_eq!(topics.null_count(), 0);
    }
    sources.sort_unstable();
    assert_eq!(sources, [(0, 5), (0, 7), (3, 1)]);
}

#[test]
fn a_partitioned_table_gets_a_file_for_each_partition() {
    let bed = Bed::new("db.orders")
        .slow()
        .with("iceberg.tables.default-partition-by", "truncate(id, 10)");
    let task = bed.task();
    task.put(0..35);
    task.session.close();
    assert_eq!(bed.ids("db.orders"), (0..35).collect::<Vec<_>>());
    let files = bed.files("db.orders", "main");
    let mut rows: Vec<u64> = files.iter().map(|file| file.record_count()).collect();
    rows.sort_unstable();
    assert_eq!(rows, [5, 10, 10, 10]);
}

#[test]
fn a_branch_gets_the_rows_and_main_gets_none() {
    let bed = Bed::new("db.orders")
        .slow()
        .with("iceberg.tables.default-commit-branch", "audit");
    let task = bed.task();
    task.put(0..3);
    task.session.close();
    let rows: usize = bed
        .batches("db.orders", "audit")
        .iter()
        .map(|batch| batch.num_rows())
        .sum();
    assert_eq!(rows, 3);
    assert!(bed.files("db.orders", "main").is_empty());
    let again = bed.task();
    again.put(0..5);
    again.session.close();
    let files = bed.files("db.orders", "audit");
    let rows: u64 = files.iter().map(|file| file.record_count()).sum();
    assert_eq!(rows, 5, "the branch knows its offsets");
}

// Promise: a table that is replaced under open rows gets those rows, and the task says so
// Case: 35
#[test]
fn a_table_made_anew_under_open_rows_gets_them_and_says_so() {
    let bed = Bed::new("db.orders");
    let task = bed.task();
    task.put(0..3);
    task.until_durable(3);
    task.put(3..5);
    drop_table(&bed, "db.orders");
    create(&bed, "db.orders", FormatVersion::V2).unwrap();
    let (offset, effects) = task.until_rewound();
    assert_eq!(offset, 3, "what was durable went with the old table");
    let told = effects
        .log
        .iter()
        .any(|(_, line)| line.contains("replaced"));
    assert!(told, "{:?}", effects.log);
    task.deliver(3, 6);
    assert_eq!(bed.ids("db.orders"), [3, 4, 5]);
}

// Case: 35
#[test]
fn offsets_of_a_dropped_table_are_not_held_against_its_successor() {
    let bed = Bed::new("db.orders").slow();
    let task = bed.task();
    task.put(0..3);
    task.revoke(&[0]);
    task.assign(&[0]);
    task.put(1..3); // Below T: another table than the one that knows them must get them.
    assert_eq!(bed.ids("db.orders"), [0, 1, 2]);
    drop_table(&bed, "db.orders");
    create(&bed, "db.orders", FormatVersion::V2).unwrap();
    task.assign(&[1]); // Other tasks may have committed: the table is loaded again.
    task.tick();
    task.try_orders(0, 3..4).unwrap();
    let (offset, _) = task.until_rewound();
    task.deliver_by_closing(offset, 4);
    assert_eq!(bed.ids("db.orders").last(), Some(&3));
}
