//! What happens to tables with changes: dropped, expired, refused, without a column of their key.

use std::ops::Range;
use std::time::{Duration, Instant};

use iceberg::TableUpdate;
use iceberg::spec::FormatVersion;

use super::*;
use crate::tables::{create, drop_table};

/// Delivers, as Connect does, what `record` makes of the offsets from `from` on.
fn deliver(task: &Task, offsets: Range<i64>, record: impl Fn(i64) -> Row) {
    task.deliver_frames(offsets.start, offsets.end, |offsets| {
        FrameBuilder::schemaless()
            .with_headers()
            .rows(offsets.map(&record))
    });
}

// Promise: a table with changes that is dropped and made anew gets the changes from then on, and no row of before
// Case: 35
#[test]
fn a_table_with_changes_that_is_made_anew_begins_without_the_old_rows() {
    let bed = bed("upsert");
    let record = |offset: i64| match offset {
        0..2 => upsert(offset, offset, Some("old")),
        2 => upsert(2, 0, Some("new")),
        3 => upsert(3, 3, Some("new")),
        4 => upsert(4, 1, None), // Of the old table: there is nothing to remove.
        _ => upsert(offset, 3, Some("newer")),
    };
    let task = bed.task();
    put(&task, (0..2).map(record));
    task.until_durable(2);
    put(&task, (2..4).map(record));
    drop_table(&bed, TABLE);
    create(&bed, TABLE, FormatVersion::V2).expect("created");
    let (offset, effects) = task.until_rewound();
    assert_eq!(offset, 2, "what was durable went with the old table");
    let mut told = effects.log.iter();
    assert!(told.any(|(_, line)| line.contains("replaced")));
    deliver(&task, 2..6, record);
    assert_eq!(seen(&bed, TABLE), notes(&[(0, "new"), (3, "newer")]));
}

// Promise: snapshots that expire again and again let no restart write a change a second time
// Case: 30
#[test]
fn expired_snapshots_and_restarts_from_the_beginning_change_nothing_twice() {
    let bed = bed("upsert").with(VERSION, "3");
    let record = |offset: i64| match offset % 4 {
        3 => upsert(offset, offset / 2 % 3, None),
        _ => upsert(offset, offset % 3, Some(&format!("of {offset}"))),
    };
    let mut model = BTreeMap::new();
    for round in 0..4 {
        let end = 6 * (round + 1);
        let task = bed.task();
        deliver(&task, 0..end, record);
        task.session.close();
        for offset in end - 6..end {
            match offset % 4 {
                3 => model.remove(&(offset / 2 % 3)),
                _ => model.insert(offset % 3, format!("of {offset}")),
            };
        }
        assert_eq!(seen(&bed, TABLE), model, "round {round}");
        let metadata = bed.load(TABLE).metadata;
        let snapshots = metadata.snapshots().map(|one| one.snapshot_id());
        let old = snapshots.filter(|id| Some(*id) != metadata.current_snapshot_id());
        let snapshot_ids = old.collect();
        bed.change(TABLE, TableUpdate::RemoveSnapshots { snapshot_ids });
    }
    let again = bed.task();
    deliver(&again, 0..24, record);
    assert_eq!(bed.snapshots(TABLE), 1, "nothing was left to commit");
    assert_eq!(seen(&bed, TABLE), model);
}

// Promise: a table with changes whose key lost a column is refused, by the name of the column
// Case: 27
#[test]
fn a_key_without_its_column_is_refused_by_name() {
    let bed = bed("upsert");
    let task = bed.task();
    put(&task, [upsert(0, 1, Some("a"))]);
    task.until_durable(1);
    task.session.close();
    let schema = bed.load(TABLE).metadata.current_schema().as_ref().clone();
    let fields = schema.as_struct().fields().iter();
    let left = iceberg::spec::Schema::builder()
        .with_schema_id(schema.schema_id() + 1)
        .with_fields(fields.filter(|field| field.name != "id").cloned())
        .build()
        .expect("a schema");
    let schema_id = left.schema_id();
    bed.change(TABLE, TableUpdate::AddSchema { schema: left });
    bed.change(TABLE, TableUpdate::SetCurrentSchema { schema_id });
    let refused = bed.open().err().expect("no key, no start");
    assert_eq!(refused.code(), "ID_COLUMN_MISSING");
    let report = refused.report();
    assert!(report.contains(TABLE) && report.contains("id"), "{report}");
    assert_eq!(bed.snapshots(TABLE), 1);
}

// Promise: of many tables with changes, one that the catalog refuses holds up no other
// Case: 37
#[test]
fn a_refused_table_with_changes_holds_up_no_other() {
    let tables: Vec<String> = (0..50).map(|number| format!("db.t{number:02}")).collect();
    let bed = Bed::new(&tables.join(","))
        .with(MODE, "upsert")
        .with("iceberg.tables.default-id-columns", "id");
    let task = bed.task();
    put(&task, (0..3).map(|id| upsert(id, id, Some("a"))));
    task.until_durable(3);
    let catalog = bed.catalog_file();
    catalog
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE UPDATE ON iceberg_tables WHEN OLD.table_name = 't07' \
             BEGIN SELECT RAISE(ABORT, 'not today'); END",
        )
        .expect("a trigger");
    put(&task, [upsert(3, 1, Some("b")), upsert(4, 2, None)]);
    let after = notes(&[(0, "a"), (1, "b")]);
    let limit = Instant::now() + Duration::from_secs(60);
    while tables
        .iter()
        .filter(|table| seen(&bed, table) == after)
        .count()
        < 49
    {
        task.tick();
        assert!(Instant::now() < limit, "some table waits for another one");
        std::thread::sleep(Duration::from_millis(200));
    }
    let before = notes(&[(0, "a"), (1, "a"), (2, "a")]);
    assert_eq!(seen(&bed, "db.t07"), before);
    let offset = task.pre_commit(0, 5);
    assert_ne!(offset, Some(5), "the offset waits for all tables");
    catalog.execute_batch("DROP TRIGGER refuse").expect("gone");
    task.until_durable(5);
    assert_eq!(seen(&bed, "db.t07"), after);
}
