//! Partitioning, order, place, branch and columns of tables, from the configuration.

use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{LogLevel, SourceKind, SourceSchema};
use frazil_core::{ErrorKind, SinkError};
use iceberg::spec::{FormatVersion, NullOrder, SortDirection, Transform};

use crate::bed::{Bed, TOPIC, Task};

const TABLE: &str = "db.orders";
const EVOLVE: (&str, &str) = ("iceberg.tables.partition-spec-policy", "evolve");

fn by(text: &str) -> (&str, &str) {
    ("iceberg.tables.default-partition-by", text)
}

/// How many files have how many partition values.
fn files_by_width(bed: &Bed) -> Vec<(usize, u64)> {
    let mut widths: Vec<(usize, u64)> = Vec::new();
    for file in bed.files(TABLE, "main") {
        let width = file.partition().fields().len();
        match widths.iter_mut().find(|(known, _)| *known == width) {
            Some((_, rows)) => *rows += file.record_count(),
            None => widths.push((width, file.record_count())),
        }
    }
    widths.sort_unstable();
    widths
}

/// A task that commits as soon as it holds so many rows.
fn task(bed: &Bed, rows: i64, more: &[(&str, &str)]) -> Task {
    let rows = rows.to_string();
    let mut settings = vec![("iceberg.table.db.orders.commit-rows", rows.as_str())];
    settings.extend_from_slice(more);
    bed.task_with(&settings)
}

/// Writes the orders `offsets` of partition 0 in one commit of a task.
fn write(bed: &Bed, offsets: std::ops::Range<i64>, more: &[(&str, &str)]) {
    let new = offsets.end - offsets.start;
    let task = task(bed, new, more);
    task.put(offsets.clone());
    task.until_durable(offsets.end);
    task.session.close();
}

fn refused(bed: &Bed, more: &[(&str, &str)]) -> SinkError {
    bed.open_with(more).err().expect("the task does not start")
}

/// Orders with one field more.
fn wide(task: &Task, offsets: std::ops::Range<i64>) -> FrameBuilder {
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

// Promise: when the configuration asks for another partitioning than the table has, the table's is
// kept and that is said once, unless the policy is `evolve` or `fail`
#[test]
fn the_partitioning_of_a_table_is_kept_unless_asked_otherwise() {
    let bed = Bed::new(TABLE).slow();
    write(&bed, 0..3, &[]);
    let second = task(&bed, 4, &[by("bucket(4, id)")]);
    second.put(3..6);
    let mut log = second.tick().log;
    second.put(6..7);
    log.extend(second.tick().log);
    second.until_durable(7);
    second.session.close();
    let told = |(level, line): &&(LogLevel, String)| {
        *level == LogLevel::Warn && line.contains("partitioned otherwise")
    };
    assert_eq!(log.iter().filter(told).count(), 1, "{log:?}");
    assert_eq!(bed.ids(TABLE), (0..7).collect::<Vec<_>>());
    assert_eq!(files_by_width(&bed), [(0, 7)]);
    let policy = ("iceberg.table.db.orders.partition-spec-policy", "fail");
    let error = refused(&bed, &[by("bucket(4, id)"), policy]);
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(error.code(), "PARTITION_SPEC_DIFFERS");
    assert!(bed.open_with(&[policy]).is_ok(), "nothing is asked for");
}

// Promise: with the policy `evolve` the table gets the configured partitioning for new files, and
// each row is there once
// Complaint: 55
#[test]
fn the_partitioning_of_a_table_is_changed_when_asked() {
    let bed = Bed::new(TABLE).slow();
    write(&bed, 0..3, &[]);
    let second = task(&bed, 6, &[by("bucket(4, id)"), EVOLVE]);
    second.put(2..9); // The group may be behind.
    second.until_durable(9);
    second.session.close();
    assert_eq!(bed.ids(TABLE), (0..9).collect::<Vec<_>>());
    assert_eq!(files_by_width(&bed), [(0, 3), (1, 6)]);
    write(&bed, 9..12, &[by("truncate(id, 5), bucket(id, 4)"), EVOLVE]);
    let metadata = bed.load(TABLE).metadata;
    let spec = metadata.default_partition_spec();
    let fields = spec.fields().iter();
    let fields: Vec<_> = fields
        .map(|field| (field.field_id, field.transform))
        .collect();
    assert_eq!(
        fields,
        [(1001, Transform::Truncate(5)), (1000, Transform::Bucket(4))]
    );
    assert_eq!(bed.ids(TABLE), (0..12).collect::<Vec<_>>());
    assert_eq!(files_by_width(&bed), [(0, 3), (1, 6), (2, 3)]);
}

#[test]
fn tasks_that_change_the_partitioning_at_once_change_it_once() {
    let bed = Bed::new(TABLE).slow();
    write(&bed, 0..3, &[]);
    let rows = ("iceberg.table.db.orders.commit-rows", "5");
    std::thread::scope(|scope| {
        for partition in 1..5 {
            let bed = &bed;
            scope.spawn(move || {
                let task = bed.open_with(&[by("bucket(4, id)"), EVOLVE, rows]).unwrap();
                task.assign(&[partition]);
                task.tick();
                let first = i64::from(partition) * 100;
                task.try_orders(partition, first..first + 5).unwrap();
                until_durable(&task, partition, first + 5);
                task.session.close();
            });
        }
    });
    let metadata = bed.load(TABLE).metadata;
    assert_eq!(metadata.partition_specs_iter().len(), 2);
    assert_eq!(metadata.default_partition_spec_id(), 1);
    let later = (1..5).flat_map(|partition| partition * 100..partition * 100 + 5);
    assert_eq!(bed.ids(TABLE), (0..3).chain(later).collect::<Vec<_>>());
}

/// As [`Task::until_durable`], for any partition.
fn until_durable(task: &Task, partition: i32, offset: i64) {
    let limit = Instant::now() + Duration::from_secs(60);
    while task.pre_commit(partition, offset) != Some(offset) {
        assert_eq!(task.tick().rewinds, vec![]);
        assert!(Instant::now() < limit, "{offset} is not durable");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// Promise: when the partitioning changes under open rows, the segment goes on over both, and each
// row is there once
#[test]
fn a_change_under_open_rows_loses_and_doubles_none() {
    let bed = Bed::new(TABLE)
        .slow()
        .with("iceberg.tables.evolve-schema-enabled", "true");
    write(&bed, 0..2, &[]);
    let early = task(&bed, 7, &[]);
    early.put(2..5); // Open under the old spec.
    let rows = ("iceberg.table.db.orders.commit-rows", "3");
    let other = bed.open_with(&[by("bucket(4, id)"), EVOLVE, rows]).unwrap();
    other.assign(&[1]);
    other.tick();
    other.try_orders(1, 100..103).unwrap();
    until_durable(&other, 1, 103);
    other.session.close();
    let before = bed.snapshots(TABLE);
    // A new column has the table loaded again while rows are open.
    early.tick();
    early.try_put(&wide(&early, 5..9)).unwrap();
    early.until_durable(9);
    early.session.close();
    assert_eq!(bed.snapshots(TABLE), before + 1, "one segment over both");
    assert_eq!(bed.ids(TABLE), [0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102]);
    assert_eq!(files_by_width(&bed), [(0, 5), (1, 7)]);
    let again = task(&bed, 1, &[by("bucket(4, id)"), EVOLVE]);
    again.put(3..10);
    again.until_durable(10);
    again.session.close();
    assert_eq!(
        bed.ids(TABLE),
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100, 101, 102]
    );
}

#[test]
fn a_partition_column_that_comes_with_a_record_is_waited_for() {
    let bed = Bed::new(TABLE)
        .slow()
        .with("iceberg.tables.evolve-schema-enabled", "true");
    write(&bed, 0..2, &[]);
    let second = task(&bed, 5, &[by("place"), EVOLVE]);
    second.put(2..4);
    assert_eq!(bed.load(TABLE).metadata.partition_specs_iter().len(), 1);
    second.try_put(&wide(&second, 4..7)).unwrap();
    second.until_durable(7);
    second.session.close();
    assert_eq!(bed.ids(TABLE), (0..7).collect::<Vec<_>>());
    assert_eq!(files_by_width(&bed), [(0, 4), (1, 3)]);
    let error = refused(
        &bed,
        &[
            by("nowhere"),
            EVOLVE,
            ("iceberg.tables.evolve-schema-enabled", "false"),
        ],
    );
    assert_eq!(error.code(), "PARTITION_COLUMN_MISSING");
}

// Promise: an id column that an existing table does not have is an error at the start (T12)
// Complaint: 17
#[test]
fn an_unknown_id_column_is_an_error_at_the_start() {
    let bed = Bed::new(TABLE).slow();
    write(&bed, 0..2, &[]);
    let error = refused(&bed, &[("iceberg.table.db.orders.id-columns", "nope")]);
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Config, "ID_COLUMN_MISSING")
    );
    let report = error.report();
    assert!(report.contains("`nope`"), "{report}");
    assert!(report.contains(TABLE), "{report}");
    bed.open_with(&[("iceberg.table.db.orders.id-columns", "id")])
        .map(drop)
        .expect("the table has that one");
}

// Promise: a table is created with the configured identifier, sort order, place, comment and
// properties
// Complaint: 17, 18, 51
#[test]
fn a_table_is_created_as_configured() {
    let bed = Bed::new("db.orders,db.plain").slow();
    let place = bed.place("elsewhere");
    let settings = [
        ("iceberg.table.db.orders.id-columns", "id"),
        ("iceberg.table.db.orders.sort-by", "note desc, id"),
        ("iceberg.table.db.orders.location", place.as_str()),
        ("iceberg.table.db.orders.comment", "what was ordered"),
        ("iceberg.tables.auto-create-props.owner", "everybody"),
        ("iceberg.table.db.orders.auto-create-props.owner", "shop"),
        (
            "iceberg.table.db.orders.auto-create-props.format-version",
            "3",
        ),
        ("iceberg.table.db.orders.partition-by", "bucket(2, id)"),
    ];
    let task = bed.task_with(&settings);
    task.put(0..4);
    let metadata = bed.load(TABLE).metadata;
    let schema = metadata.current_schema();
    assert_eq!(schema.identifier_field_ids().collect::<Vec<_>>(), [1]);
    assert!(schema.field_by_name("id").unwrap().required);
    assert_eq!(metadata.location(), place.trim_end_matches('/'));
    assert_eq!(metadata.format_version(), FormatVersion::V3);
    let property = |key: &str| metadata.properties().get(key).map(String::as_str);
    assert_eq!(property("comment"), Some("what was ordered"));
    assert_eq!(property("owner"), Some("shop"));
    let order = metadata.default_sort_order();
    let fields = order.fields.iter();
    let fields: Vec<_> = fields
        .map(|field| (field.source_id, field.direction, field.null_order))
        .collect();
    assert_eq!(
        fields,
        [
            (2, SortDirection::Descending, NullOrder::Last),
            (1, SortDirection::Ascending, NullOrder::First),
        ]
    );
    let plain = bed.load("db.plain").metadata;
    let owner = plain.properties().get("owner").map(String::as_str);
    assert_eq!(owner, Some("everybody"));
    assert!(plain.default_sort_order().is_unsorted());
    assert_eq!(plain.current_schema().identifier_field_ids().count(), 0);
}

// Promise: the rows of a file are in the table's sort order, and the file says so
#[test]
fn files_are_sorted_and_say_so() {
    let bed = Bed::new(TABLE).slow();
    let first = task(&bed, 300, &[("iceberg.tables.default-sort-by", "id desc")]);
    first.put(0..200);
    first.put(200..300);
    first.until_durable(300);
    first.session.close();
    let files = bed.files(TABLE, "main");
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].sort_order_id(), Some(1));
    let batches = bed.batches(TABLE, "main");
    let found: Vec<i64> = batches
        .iter()
        .flat_map(|batch| {
            let ids = batch.column_by_name("id").unwrap();
            ids.as_primitive::<Int64Type>().values().to_vec()
        })
        .collect();
    assert_eq!(found, (0..300).rev().collect::<Vec<_>>());
    // The table's own order is followed without any configuration, another one has no id there.
    write(&bed, 300..310, &[]);
    write(&bed, 310..320, &[("iceberg.tables.default-sort-by", "id")]);
    let mut files = bed.files(TABLE, "main");
    files.sort_by_key(|file| (file.record_count(), file.sort_order_id().is_none()));
    let ids: Vec<_> = files.iter().map(|file| file.sort_order_id()).collect();
    assert_eq!(ids, [Some(1), None, Some(1)]);
}

// Promise: a commit branch works on a table that has this connector's commits on main already: the
// branch begins with them, and the next records land once
#[test]
fn a_branch_goes_on_from_the_commits_on_main() {
    let bed = Bed::new(TABLE).slow();
    write(&bed, 0..4, &[]);
    let dev = ("iceberg.tables.default-commit-branch", "dev");
    let second = task(&bed, 3, &[dev]);
    second.put(2..7); // The group may be behind.
    second.until_durable(7);
    second.session.close();
    let rows = |branch: &str| -> u64 {
        let files = bed.files(TABLE, branch);
        files.iter().map(|file| file.record_count()).sum()
    };
    assert_eq!((rows("main"), rows("dev")), (4, 7));
    let third = task(&bed, 2, &[dev]);
    third.put(5..9);
    third.until_durable(9);
    third.session.close();
    assert_eq!((rows("main"), rows("dev")), (4, 9));
    let metadata = bed.load(TABLE).metadata;
    let head = |branch: &str| metadata.snapshot_for_ref(branch).unwrap();
    let on_main = head("main").snapshot_id();
    let mut parents = std::iter::successors(Some(head("dev")), |snapshot| {
        metadata.snapshot_by_id(snapshot.parent_snapshot_id()?)
    });
    assert!(parents.any(|snapshot| snapshot.snapshot_id() == on_main));
}

// Promise: fields that column rules leave out never become columns, and hashed ones only as hashes
#[test]
fn columns_follow_their_rules_before_the_schema_does() {
    let bed = Bed::new(TABLE)
        .slow()
        .with("iceberg.tables.evolve-schema-enabled", "true");
    let salt = "sixteen letters and more";
    let rules = [
        ("iceberg.table.db.orders.columns.exclude", "place"),
        ("iceberg.table.db.orders.columns.hash", "note"),
        ("iceberg.table.db.orders.columns.hash-salt", salt),
    ];
    let task = task(&bed, 5, &rules);
    task.put(0..2);
    let effects = task.try_put(&wide(&task, 2..4)).unwrap();
    assert_eq!(effects.rejected, vec![]);
    let loose = |offset: i64| {
        let value = [
            ("id", Value::Int64(offset)),
            ("note", Value::text("new")),
            ("place", Value::text("here")),
        ];
        Row::new(TOPIC, 0, offset).value(Value::object(value))
    };
    task.try_put(&FrameBuilder::schemaless().in_columns().row(loose(4)))
        .unwrap();
    task.until_durable(5);
    task.session.close();
    assert_eq!(bed.ids(TABLE), [0, 1, 2, 3, 4]);
    let schema = bed.load(TABLE).metadata.current_schema().clone();
    let fields = schema.as_struct().fields().iter();
    assert_eq!(
        fields.map(|field| field.name.as_str()).collect::<Vec<_>>(),
        ["id", "note"]
    );
    let mut notes = bed.texts(TABLE, "note");
    assert!(notes.iter().flatten().all(|note| note.len() == 64));
    notes.dedup();
    assert_eq!(notes.len(), 2, "two of `fine`, three of `new`");
}
