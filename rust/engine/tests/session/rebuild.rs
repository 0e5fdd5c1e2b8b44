//! Tables that are made again from the log of their changes.

use std::collections::BTreeMap;

use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{SourceKind, SourceSchema};
use frazil_core::{Result, SinkError};
use frazil_engine::rebuild::{Rebuild, Rebuilt};

use crate::bed::{Bed, TOPIC, Task, p};
use crate::changes::seen;

const PLACES: &str = "iceberg.tables.metadata-columns";
const COPY: &str = "db.copy";
const LOG: &str = "db.log";

fn bed() -> Bed {
    Bed::new("db.orders,db.log")
        .with("iceberg.table.db.orders.mode", "cdc")
        .with("iceberg.table.db.orders.id-columns", "id")
        .with(PLACES, "_topic,_partition,_offset,_key")
}

/// The settings of a connector that has another table beside the log.
fn copying(bed: &Bed, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut settings = bed.settings(&[
        ("iceberg.tables", "db.copy,db.log"),
        ("iceberg.table.db.copy.mode", "cdc"),
        ("iceberg.table.db.copy.id-columns", "id"),
    ]);
    settings.retain(|key, _| !key.starts_with("iceberg.table.db.orders."));
    settings.extend(
        more.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    settings
}

fn rebuild(settings: &BTreeMap<String, String>, from_first: bool) -> Result<Rebuilt> {
    let rebuild = Rebuild {
        table: COPY.to_owned(),
        log: LOG.to_owned(),
        from_first,
    };
    rebuild.run(settings)
}

fn code(refused: Result<Rebuilt>) -> String {
    let error: SinkError = refused.expect_err("it is refused");
    error.code().to_owned()
}

/// Debezium's records, with a schema.
struct Source {
    task: Task,
    ids: (u32, u32),
    envelope: SourceSchema,
    key: SourceSchema,
}

impl Source {
    fn of(task: Task) -> Source {
        let row = SourceSchema::structure([
            ("id", SourceSchema::scalar(SourceKind::Int64)),
            ("note", SourceSchema::scalar(SourceKind::String).optional()),
        ]);
        let place = SourceSchema::structure([
            ("connector", SourceSchema::scalar(SourceKind::String)),
            ("name", SourceSchema::scalar(SourceKind::String)),
            ("lsn", SourceSchema::scalar(SourceKind::Int64).optional()),
            (
                "sequence",
                SourceSchema::scalar(SourceKind::String).optional(),
            ),
        ]);
        let envelope = SourceSchema::structure([
            ("before", row.clone().optional()),
            ("after", row.optional()),
            ("source", place),
            ("op", SourceSchema::scalar(SourceKind::String)),
        ]);
        let key = SourceSchema::structure([("id", SourceSchema::scalar(SourceKind::Int64))]);
        let register = |schema: &SourceSchema| {
            let id = task.session.register_schema(&schema.to_bytes());
            id.expect("registered")
        };
        Source {
            ids: (register(&envelope), register(&key)),
            task,
            envelope,
            key,
        }
    }

    fn change(&self, place: (i32, i64), op: &str, id: i64, note: &str, lsn: i64) -> Row {
        let row = |note: Value| Value::Struct(vec![Value::Int64(id), note]);
        let (before, after) = match op {
            "d" => (row(Value::Null), Value::Null),
            _ => (Value::Null, row(Value::text(note))),
        };
        let source = Value::Struct(vec![
            Value::text("postgresql"),
            Value::text("px"),
            Value::Int64(lsn),
            Value::text(&format!(r#"["{lsn}","{lsn}"]"#)),
        ]);
        Row::new(TOPIC, place.0, place.1)
            .key(Value::Struct(vec![Value::Int64(id)]))
            .value(Value::Struct(vec![before, after, source, Value::text(op)]))
    }

    /// Has the table take these, in a commit of their own.
    fn send(&self, rows: Vec<Row>, ends: &[(i32, i64)]) {
        self.task.tick();
        let frame = FrameBuilder::with_value_schema(self.ids.0, self.envelope.clone())
            .key_schema(self.ids.1, self.key.clone())
            .with_headers()
            .rows(rows);
        self.task.try_put(&frame).expect("taken");
        for (partition, end) in ends {
            self.task.until_durable_in(*partition, *end);
        }
    }
}

/// A table and its log: some commits of changes in two partitions, deletes and late ones among them.
fn written(bed: &Bed, first: i64) {
    let task = bed.open().expect("the task starts");
    task.assign(&[0, 1]);
    let source = Source::of(task);
    let at = |partition, offset| (partition, first + offset);
    source.send(
        (0..40)
            .map(|n| source.change(at((n % 2) as i32, n / 2), "c", n, "a", 10 + n))
            .collect(),
        &[(0, first + 20), (1, first + 20)],
    );
    source.send(
        vec![
            source.change(at(0, 20), "u", 2, "b", 100),
            source.change(at(0, 21), "d", 4, "", 101),
            // It comes late, and changes nothing.
            source.change(at(0, 22), "u", 2, "old", 60),
            source.change(at(1, 20), "u", 3, "b", 102),
        ],
        &[(0, first + 23), (1, first + 21)],
    );
    source.send(
        vec![
            source.change(at(1, 21), "d", 3, "", 103),
            source.change(at(1, 22), "c", 3, "again", 104),
            source.change(at(0, 23), "c", 99, "new", 105),
        ],
        &[(0, first + 24), (1, first + 23)],
    );
    source.task.session.close();
}

// Promise: `frazil rebuild` makes a current-state table from the log of its changes, and a second run changes nothing
#[test]
fn a_table_is_made_again_from_its_log() {
    let bed = bed();
    written(&bed, 0);
    let settings = copying(&bed, &[]);
    let made = rebuild(&settings, false).expect("it is whole");
    assert_eq!(
        (made.rows, &made.partitions),
        (47, &vec![(p(0), 0, 24), (p(1), 0, 23)])
    );
    let expected = seen(&bed, "db.orders");
    assert_eq!(expected.len(), 40);
    assert_eq!(seen(&bed, COPY), expected);
    assert_eq!(
        bed.load(COPY)
            .metadata
            .current_schema()
            .identifier_field_ids()
            .count(),
        1
    );
    // Again: it is there.
    let again = rebuild(&settings, false).expect("it is whole");
    assert_eq!(again, made);
}

#[test]
fn a_rebuild_that_was_ended_goes_on() {
    let bed = bed();
    written(&bed, 0);
    let settings = copying(&bed, &[]);
    let first = rebuild(&settings, false).expect("it is whole");
    // More has come since, as if the first one had stopped there.
    let task = bed.open().expect("the task starts");
    task.assign(&[0, 1]);
    let source = Source::of(task);
    source.send(
        vec![source.change((0, 24), "u", 2, "later", 200)],
        &[(0, 25)],
    );
    source.task.session.close();
    let second = rebuild(&settings, false).expect("it is whole");
    assert_ne!(second.snapshot_id, first.snapshot_id);
    assert_eq!(seen(&bed, COPY), seen(&bed, "db.orders"));
    assert_eq!(seen(&bed, COPY)[&2], "later");
}

// Promise: a log that does not begin with the topic is refused, and so is one that somebody has deleted rows of
#[test]
fn a_log_that_is_not_whole_is_refused() {
    let bed = bed();
    written(&bed, 5);
    let settings = copying(&bed, &[]);
    let refused = rebuild(&settings, false);
    let report = refused.as_ref().expect_err("it is refused").report();
    for part in [
        "LOG_NOT_WHOLE",
        "offset 5",
        "--from-first",
        "orders-0",
        "log=db.log",
    ] {
        assert!(report.contains(part), "{report}");
    }
    assert!(!bed.exists(COPY));
    rebuild(&settings, true).expect("it is said to be whole");
    assert_eq!(seen(&bed, COPY), seen(&bed, "db.orders"));
}

#[test]
fn a_log_without_places_and_tables_that_are_none_are_refused() {
    let bed = bed().with(PLACES, "_offset");
    written(&bed, 0);
    let settings = copying(&bed, &[]);
    assert_eq!(code(rebuild(&settings, false)), "LOG_COLUMNS_MISSING");
    let settings = copying(
        &bed,
        &[
            ("iceberg.table.db.log.mode", "cdc"),
            ("iceberg.table.db.log.id-columns", "_offset"),
        ],
    );
    assert_eq!(code(rebuild(&settings, false)), "REBUILD_TABLES");
}
