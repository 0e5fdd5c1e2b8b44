//! Records that come as bytes and are decoded natively.

use frazil_core::ErrorKind;
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{SourceKind, SourceSchema};

use crate::bed::{Bed, TOPIC, Task, p};

const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";

fn bed(format: &str) -> Bed {
    Bed::new("db.orders")
        .with("errors.tolerance", "all")
        .with("errors.deadletterqueue.topic.name", "dead")
        .with("value.converter", BYTES)
        .with("frazil.value.format", format)
}

/// A frame of values as ByteArrayConverter hands them over, from `first` on.
fn bytes_from(task: &Task, first: i64, texts: &[String]) -> FrameBuilder {
    let schema = SourceSchema::scalar(SourceKind::Bytes).optional();
    let id = task
        .session
        .register_schema(&schema.to_bytes())
        .expect("registered");
    let rows = texts.iter().zip(first..);
    FrameBuilder::with_value_schema(id, schema).rows(rows.map(|(text, offset)| {
        Row::new(TOPIC, 0, offset).value(Value::Bytes(text.as_bytes().to_vec()))
    }))
}

fn json(id: i64) -> String {
    format!("{{\"id\":{id},\"note\":\"fine\"}}")
}

fn envelope(id: i64, more: bool) -> String {
    let extra = r#",{"type":"int32","optional":true,"field":"extra"}"#;
    let (field, value) = if more {
        (extra, ",\"extra\":5")
    } else {
        ("", "")
    };
    format!(
        "{{\"schema\":{{\"type\":\"struct\",\"fields\":[{{\"type\":\"int64\",\"field\":\"id\"}}{field}]}},\
         \"payload\":{{\"id\":{id}{value}}}}}"
    )
}

// Promise: native decoding: one malformed record never fails its block; it is set aside by its own row and offset
#[test]
fn a_malformed_record_is_set_aside_and_the_others_land() {
    let bed = bed("json");
    let task = bed.task();
    task.tick();
    let texts = [
        json(0),
        "{\"id\":".to_owned(),
        json(2),
        "[1]".to_owned(),
        String::new(),
        json(5),
    ];
    let effects = task.try_put(&bytes_from(&task, 0, &texts)).expect("taken");
    let seen: Vec<_> = effects
        .rejected
        .iter()
        .map(|rejected| (rejected.row, rejected.offset, rejected.code.as_str()))
        .collect();
    assert_eq!(
        seen,
        [(1, 1, "JSON_MALFORMED"), (3, 3, "VALUE_NOT_A_RECORD")]
    );
    assert_eq!(effects.rejected[0].partition, p(0));
    assert!(
        effects.rejected[0].message.contains("byte=6"),
        "{:?}",
        effects.rejected[0]
    );
    task.until_durable(6);
    assert_eq!(bed.ids("db.orders"), [0, 2, 5]);
}

#[test]
fn without_tolerance_a_malformed_record_stops_the_task() {
    let bed = Bed::new("db.orders")
        .with("value.converter", BYTES)
        .with("frazil.value.format", "json");
    let task = bed.task();
    task.tick();
    let error = task
        .try_put(&bytes_from(&task, 0, &[json(0), "{".to_owned(), json(2)]))
        .expect_err("no tolerance");
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Data, "JSON_MALFORMED")
    );
    assert!(error.report().contains("offset=1"), "{}", error.report());
    task.session.close();
    assert!(bed.ids("db.orders").is_empty());
}

// Promise: native decoding: records that come again are neither written nor reported twice
#[test]
fn what_comes_again_is_not_taken_again() {
    let bed = bed("json");
    let task = bed.task();
    let texts = [json(0), "broken".to_owned(), json(2)];
    task.tick();
    assert_eq!(
        task.try_put(&bytes_from(&task, 0, &texts))
            .expect("taken")
            .rejected
            .len(),
        1
    );
    let more = [texts.as_slice(), &[json(3), "broken too".to_owned()]].concat();
    task.tick();
    let effects = task.try_put(&bytes_from(&task, 0, &more)).expect("taken");
    let rows: Vec<_> = effects
        .rejected
        .iter()
        .map(|rejected| rejected.row)
        .collect();
    assert_eq!(rows, [4]);
    task.until_durable(5);
    assert_eq!(bed.ids("db.orders"), [0, 2, 3]);
}

// Promise: native decoding: schemas that change inside of a batch reach the table, each record by its own
#[test]
fn the_schema_may_change_inside_of_a_batch() {
    let bed = bed("json-envelope").with("iceberg.tables.evolve-schema-enabled", "true");
    let task = bed.task();
    task.tick();
    let texts = [
        envelope(0, false),
        envelope(1, true),
        "{}".to_owned(),
        envelope(3, false),
        "{\"schema\":null,\"payload\":{\"id\":4,\"extra\":6}}".to_owned(),
        envelope(5, true),
        "{\"schema\":{},\"payload\":{}}".to_owned(),
    ];
    let effects = task.try_put(&bytes_from(&task, 0, &texts)).expect("taken");
    let seen: Vec<_> = effects
        .rejected
        .iter()
        .map(|rejected| (rejected.row, rejected.offset, rejected.code.as_str()))
        .collect();
    assert_eq!(
        seen,
        [(2, 2, "JSON_NO_ENVELOPE"), (6, 6, "JSON_SCHEMA_INVALID")]
    );
    task.until_durable(7);
    assert_eq!(bed.ids("db.orders"), [0, 1, 3, 4, 5]);
}

// Promise: a catalog that fails between two parts of a batch loses nothing, and nothing lands twice
#[test]
fn a_part_that_fails_behind_another_has_all_of_it_delivered_again() {
    let bed = bed("json-envelope")
        .with("iceberg.tables.evolve-schema-enabled", "true")
        .with("iceberg.table.db.orders.commit-rows", "2000000000")
        .slow();
    let task = bed.task();
    task.tick();
    task.try_put(&bytes_from(&task, 0, &[envelope(0, false)]))
        .expect("taken");
    let texts = [
        "bad".to_owned(),
        envelope(2, false),
        envelope(3, true),
        envelope(4, true),
    ];
    let locked = bed.lock_catalog();
    task.tick();
    let failed = task.try_put(&bytes_from(&task, 1, &texts));
    drop(locked);
    // Either the put fails and Connect delivers the batch again, or the session rewinds by itself.
    if let Ok(effects) = &failed {
        assert!(effects.rejected.is_empty(), "{:?}", effects.rejected);
    }
    let (mut reported, mut from) = (Vec::new(), 1);
    for _ in 0..200 {
        let begun = task.tick();
        from = begun.rewinds.first().map_or(from, |(_, offset)| *offset);
        let all = [&[envelope(0, false)], texts.as_slice()].concat();
        let rest = all
            .get(usize::try_from(from).expect("an offset")..)
            .expect("in range");
        let Ok(effects) = task.try_put(&bytes_from(&task, from, rest)) else {
            continue;
        };
        reported.extend(effects.rejected.iter().map(|rejected| rejected.offset));
        if !reported.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(reported, [1]);
    task.session.close();
    assert_eq!(bed.ids("db.orders"), [0, 2, 3, 4]);
}

#[test]
fn routes_and_column_rules_see_decoded_records() {
    let bed = bed("json")
        .with("iceberg.tables", "db.a,db.b")
        .with("iceberg.tables.route-field", "kind")
        .with("iceberg.table.db.a.route-regex", "a")
        .with("iceberg.table.db.b.route-regex", "b")
        .with("iceberg.tables.columns.exclude", "secret,nested.x")
        .with("iceberg.table.db.b.columns.hash", "note")
        .with(
            "iceberg.tables.columns.hash-salt",
            "sixteen letters are enough",
        );
    let task = bed.task();
    task.tick();
    let text = |id: i64, kind: &str| {
        format!(
            "{{\"id\":{id},\"kind\":\"{kind}\",\"note\":\"n\",\"secret\":\"s\",\"nested\":{{\"x\":1,\"y\":2}}}}"
        )
    };
    let texts = [text(0, "a"), text(1, "b"), text(2, "a")];
    let effects = task.try_put(&bytes_from(&task, 0, &texts)).expect("taken");
    assert!(effects.rejected.is_empty(), "{:?}", effects.rejected);
    task.until_durable(3);
    assert_eq!((bed.ids("db.a"), bed.ids("db.b")), (vec![0, 2], vec![1]));
    assert_eq!(bed.texts("db.a", "note"), vec![Some("n".to_owned()); 2]);
    let hashed = bed.texts("db.b", "note");
    assert_eq!(hashed[0].as_ref().map(String::len), Some(64));
    for table in ["db.a", "db.b"] {
        let schema = bed.load(table).metadata.current_schema().clone();
        assert!(schema.field_by_name("secret").is_none());
        assert!(schema.field_by_name("nested.x").is_none());
        assert!(schema.field_by_name("nested.y").is_some());
    }
}
