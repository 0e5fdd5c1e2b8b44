//! What went wrong elsewhere, each by its symptom.

use iceberg::spec::PrimitiveType;

use super::fixture::{
    Encoding, Sample, Seen, Shown, Table, key, lines, plan, planned, records, run,
};
use crate::change::resolve::{Resolution, Squash, Stored};
use crate::change::{
    ChangeConfig, ChangePlan, Changes, Envelope, Image, OldRow, Op, Order, TruncatePolicy,
    Unavailable,
};
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Frame, SourceKind, SourceSchema};

const KEY_WITH_SCHEMA: &str = r#"{"schema":{"type":"struct","fields":[
    {"field":"id","type":"int64"}]},"payload":{"id":1}}"#;
const LEFT_OUT: &str = "__debezium_unavailable_value";

fn id() -> Table {
    key(&[("id", PrimitiveType::Long)])
}

fn debezium() -> ChangePlan {
    plan("debezium", id())
}

/// A record of Debezium about key 1.
fn change(op: &str, row: &str, source: &str) -> String {
    let (before, after) = match op {
        "d" => (row, "null"),
        "t" => ("null", "null"),
        _ => ("null", row),
    };
    format!(
        r#"{{"before":{before},"after":{after},"source":{{"name":"s",{source}}},"op":"{op}","ts_ms":5}}"#
    )
}

fn seen(plan: &mut ChangePlan, texts: &[String]) -> Vec<Seen> {
    let keyed: Vec<(&str, &str)> = texts.iter().map(|text| (r#"{"id":1}"#, &**text)).collect();
    run(plan, &records(&keyed), Encoding::Java)
}

fn shown(seen: &Seen) -> &Shown {
    match seen {
        Seen::Change(shown) => shown,
        other => panic!("{other:?}"),
    }
}

/// The outcome of one commit of these changes, by the offset of the row that stays.
fn outcome(seen: &[Seen], stored: Option<Stored<'_>>) -> Option<(Option<u32>, bool)> {
    let mut squash = Squash::default();
    for change in seen {
        let Seen::Change(change) = change else {
            continue;
        };
        let order = change.order.as_deref().map(Order::of);
        match change.op {
            "d" => squash.delete(&change.key, order),
            _ => squash.put(&change.key, order, u32::try_from(change.offset).unwrap()),
        }
    }
    let grouped = squash.group();
    let Resolution { outcomes, .. } = grouped.resolve(&[stored]);
    outcomes
        .first()
        .map(|outcome| (outcome.row, outcome.removes_stored))
}

// Promise: created, updated twice and deleted in one commit: the row is absent
#[test]
fn a_deleted_row_does_not_stay_as_its_last_update() {
    let texts: Vec<String> = ["c", "u", "u", "d"]
        .iter()
        .zip(1..)
        .map(|(op, lsn)| change(op, r#"{"id":1,"v":"x"}"#, &format!(r#""lsn":{lsn}"#)))
        .collect();
    let seen = seen(&mut debezium(), &texts);
    assert_eq!(outcome(&seen, None), Some((None, false)));
}

// Promise: a delete whose row before has only its key removes the row: rows are found by key, never by
// the row before
// Case: 2
#[test]
fn a_delete_with_nothing_but_its_key_before_it_finds_its_row() {
    let texts = [change("d", r#"{"id":1}"#, r#""lsn":9"#)];
    let seen = seen(&mut debezium(), &texts);
    let stored = Stored {
        has_row: true,
        order: None,
    };
    assert_eq!(outcome(&seen, Some(stored)), Some((None, true)));
}

// Promise: inserted, deleted and inserted again at one time: the last row stays
#[test]
fn a_row_that_comes_back_in_one_transaction_stays() {
    let row = |text: &str| format!(r#"{{"id":1,"v":"{text}"}}"#);
    let texts = [
        change("c", &row("hello"), r#""lsn":1"#),
        change("d", &row("hello"), r#""lsn":1"#),
        change("c", &row("hallo"), r#""lsn":1"#),
    ];
    let seen = seen(&mut debezium(), &texts);
    assert_eq!(outcome(&seen, None), Some((Some(2), false)));
    assert_eq!(shown(&seen[2]).fields["v"], "\"hallo\"");
}

// Promise: an insert that is sent again replaces its row and makes no second one
// Case: 8
#[test]
fn an_insert_that_is_sent_again_makes_no_duplicate() {
    let texts = [change("c", r#"{"id":1,"v":"x"}"#, r#""lsn":7"#)];
    let seen = seen(&mut debezium(), &texts);
    let order = shown(&seen[0]).order.clone().unwrap();
    let stored = Stored {
        has_row: true,
        order: Some(Order::of(&order)),
    };
    assert_eq!(outcome(&seen, Some(stored)), Some((Some(0), true)));
}

// Promise: a row of a snapshot that arrives late neither overwrites a newer row nor brings back a deleted
// one
#[test]
fn a_late_row_of_a_snapshot_changes_nothing() {
    let texts = [
        change(
            "u",
            r#"{"id":1,"v":"new"}"#,
            r#""sequence":"[\"5\",\"7\"]","lsn":7,"snapshot":"false""#,
        ),
        change(
            "r",
            r#"{"id":1,"v":"old"}"#,
            r#""sequence":"[\"5\",\"9\"]","lsn":9,"snapshot":"incremental""#,
        ),
    ];
    let seen = seen(&mut debezium(), &texts);
    assert_eq!(outcome(&seen, None), Some((Some(0), false)));
    let order = shown(&seen[0]).order.clone().unwrap();
    for has_row in [true, false] {
        let stored = Stored {
            has_row,
            order: Some(Order::of(&order)),
        };
        assert_eq!(outcome(&seen[1..], Some(stored)), None);
    }
}

// Promise: an update that was open when an incremental snapshot read its row, and is sent after that row,
// stays, though its place in the log is before
#[test]
fn an_update_after_a_row_of_an_incremental_snapshot_stays() {
    let at = |commit: i64, lsn: i64| {
        format!(r#""connector":"postgresql","sequence":"[\"{commit}\",\"{lsn}\"]","lsn":{lsn}"#)
    };
    let texts = [
        change("r", r#"{"id":1,"v":"old"}"#, &at(800, 900)),
        change("u", r#"{"id":1,"v":"new"}"#, &at(910, 700)),
    ];
    let seen = seen(&mut debezium(), &texts);
    assert_eq!(outcome(&seen, None), Some((Some(1), false)));
    let order = shown(&seen[0]).order.clone().unwrap();
    let stored = Stored {
        has_row: true,
        order: Some(Order::of(&order)),
    };
    assert_eq!(outcome(&seen[1..], Some(stored)), Some((Some(1), true)));
}

// Promise: a record without a key is an error of that record
#[test]
fn a_record_without_a_key_is_refused() {
    let text = change("c", r#"{"v":"x"}"#, r#""lsn":7"#);
    let seen = run(&mut debezium(), &records(&[("", &text)]), Encoding::Java);
    assert_eq!(lines(&seen), ["0 refuse CHANGE_KEY_NULL"]);
}

// Promise: changes need a table with a key; without one the configuration is refused with what to set
#[test]
fn changes_of_a_table_without_a_key_are_refused_at_the_start() {
    let config = ChangeConfig::new(Envelope::preset("debezium").unwrap());
    let error = super::fixture::unplanned(config);
    assert_eq!(error.code(), "CHANGE_KEY_MISSING");
    assert!(error.message().contains("id-columns"));
}

// Promise: a truncation stops, is applied with its order or is skipped and counted, with and without
// schemas; it is never a row of nulls
#[test]
fn a_truncation_is_no_row() {
    let text = change("t", "", r#""lsn":7"#);
    let with_schema = r#"{"schema":{"type":"struct","fields":[
        {"field":"before","type":"struct","fields":[{"field":"id","type":"int64"}],"optional":true},
        {"field":"after","type":"struct","fields":[{"field":"id","type":"int64"}],"optional":true},
        {"field":"source","type":"struct","fields":[{"field":"lsn","type":"int64"}],"optional":false},
        {"field":"op","type":"string"}],"name":"x.Envelope"},
        "payload":{"before":null,"after":null,"source":{"lsn":7},"op":"t"}}"#;
    for (text, encoding) in [
        (&*text, Encoding::Java),
        (&*text, Encoding::Json),
        (with_schema, Encoding::Envelope),
    ] {
        for (policy, expected) in [
            (TruncatePolicy::Fail, "0 refuse CHANGE_TRUNCATE"),
            (TruncatePolicy::Ignore, "0 skip truncate"),
            (TruncatePolicy::Apply, "0 t -"),
        ] {
            let mut config = ChangeConfig::new(Envelope::preset("debezium").unwrap());
            config.truncate = policy;
            let seen = run(
                &mut planned(config, id()),
                &records(&[("", text)]),
                encoding,
            );
            assert_eq!(lines(&seen), [expected], "{encoding:?}");
            if let Seen::Change(truncation) = &seen[0] {
                assert_eq!(truncation.image, Image::None);
                assert!(truncation.order.is_some());
            }
        }
    }
}

// Promise: an operation that the format does not have is refused, never taken for an insert; and so is a
// record of another shape
#[test]
fn unknown_operations_and_shapes_are_refused() {
    let texts = [
        change("x", r#"{"id":1}"#, r#""lsn":7"#),
        r#"{"id":1,"v":"x"}"#.to_owned(),
        r#"{"op":7,"after":{"id":1}}"#.to_owned(),
        r#"{"op":"c","after":null}"#.to_owned(),
        r#"{"op":"c","after":[1]}"#.to_owned(),
    ];
    let seen = seen(&mut debezium(), &texts);
    assert_eq!(
        lines(&seen),
        [
            "0 refuse CHANGE_OP_UNKNOWN",
            "1 refuse CHANGE_OP_MISSING",
            "2 refuse CHANGE_OP_UNKNOWN",
            "3 refuse CHANGE_ROW_MISSING",
            "4 refuse CHANGE_ROW_NOT_A_RECORD",
        ]
    );
    // With a schema, it tells for all its records.
    let plain = r#"{"schema":{"type":"struct","fields":[{"field":"id","type":"int64"}]},"payload":{"id":1}}"#;
    let seen = run(
        &mut debezium(),
        &records(&[("", plain)]),
        Encoding::Envelope,
    );
    assert_eq!(lines(&seen), ["0 refuse CHANGE_ENVELOPE_UNKNOWN"]);
}

#[test]
fn an_error_shows_nothing_of_the_record() {
    let text = change(
        "secret-op",
        r#"{"id":"secret-key"}"#,
        r#""lsn":"secret-lsn""#,
    );
    let late = change("c", r#"{"id":"secret-key"}"#, r#""lsn":7"#);
    let source = r#""connector":"postgresql","lsn":"secret-lsn""#;
    let order = change("c", r#"{"id":1}"#, source);
    let built = FrameBuilder::schemaless().rows([&text, &late, &order].iter().zip(0..).map(
        |(text, offset)| {
            let json = serde_json::from_str(text).unwrap();
            Row::new("t", 0, offset).value(super::fixture::of_json(&json))
        },
    ));
    let bytes = built.encode();
    let frame = Frame::decode(&bytes, &built.schemas()).unwrap();
    let mut changes = Changes::default();
    debezium()
        .evaluate(&frame, &[0, 1, 2], &mut changes)
        .unwrap();
    let refused = changes.take_refused();
    let codes: Vec<&str> = refused.iter().map(|(_, error)| error.code()).collect();
    assert_eq!(
        codes,
        [
            "CHANGE_OP_UNKNOWN",
            "VALUE_MALFORMED",
            "CHANGE_ORDER_INVALID"
        ]
    );
    for (_, error) in refused {
        assert!(!error.report().contains("secret"), "{error:?}");
    }
}

// Promise: with soft deletes, a deleted row stays and is marked; a row that comes again is not; deleted
// twice with a tombstone is deleted once
// Case: 17
#[test]
fn a_softly_deleted_row_that_comes_again_is_no_longer_deleted() {
    let mut config = ChangeConfig::new(Envelope::preset("debezium").unwrap());
    config.soft_delete = Some("_deleted".to_owned());
    let mut plan = planned(config, id());
    let texts = [
        change("d", r#"{"id":1}"#, r#""lsn":1"#),
        String::new(),
        change("d", r#"{"id":1}"#, r#""lsn":1"#),
        change("c", r#"{"id":1,"v":"x"}"#, r#""lsn":2"#),
    ];
    let seen = seen(&mut plan, &texts);
    assert_eq!(seen[1].line(), "1 skip tombstone");
    assert_eq!(shown(&seen[0]).old_row, OldRow::Whole);
    assert_eq!(shown(&seen[3]).old_row, OldRow::NotNeeded);
    let mut squash = Squash::default();
    for (change, row) in [0, 2, 3].iter().map(|index| shown(&seen[*index])).zip(0..) {
        let order = change.order.as_deref().map(Order::of);
        match change.old_row {
            OldRow::Whole => squash.mark_deleted(&change.key, order, row),
            _ => squash.put(&change.key, order, row),
        }
    }
    let known = Stored {
        has_row: true,
        order: None,
    };
    let resolution = squash.group().resolve(&[Some(known)]);
    let outcome = &resolution.outcomes[0];
    assert_eq!((outcome.row, outcome.removes_stored), (Some(2), true));
    assert_eq!(resolution.dropped, [0, 1]);
}

fn of_type(name: &str) -> SourceSchema {
    let scalar = SourceSchema::scalar;
    let array = |kind| SourceSchema::array(scalar(kind));
    match name {
        "bytes" => scalar(SourceKind::Bytes),
        "texts" => array(SourceKind::String),
        "ints" => array(SourceKind::Int32),
        "longs" => array(SourceKind::Int64),
        "hstore" => SourceSchema::map(scalar(SourceKind::String), scalar(SourceKind::String)),
        "uuid" => scalar(SourceKind::String).named("io.debezium.data.Uuid"),
        "json" => scalar(SourceKind::String).named("io.debezium.data.Json"),
        _ => scalar(SourceKind::String),
    }
    .optional()
}

/// What stands in the place of a value of each type, and a value that is not left out but is like it.
fn left_out(name: &str) -> (Value, Value) {
    let numbers = |wrap: fn(u8) -> Value| Value::Array(LEFT_OUT.bytes().map(wrap).collect());
    let text = || Value::text(LEFT_OUT);
    match name {
        "bytes" => (
            Value::Bytes(LEFT_OUT.as_bytes().to_vec()),
            Value::Bytes(LEFT_OUT.as_bytes()[1..].to_vec()),
        ),
        "texts" => (
            Value::Array(vec![text()]),
            Value::Array(vec![text(), text()]),
        ),
        "ints" => (
            numbers(|byte| Value::Int32(i32::from(byte))),
            Value::Array(vec![Value::Int32(95)]),
        ),
        "longs" => (
            numbers(|byte| Value::Int64(i64::from(byte))),
            Value::Array(vec![]),
        ),
        "hstore" => (
            Value::Map(vec![(text(), text())]),
            Value::Map(vec![(text(), Value::Null)]),
        ),
        "hstore_json" => (
            Value::text(&format!("{{\"{LEFT_OUT}\":\"{LEFT_OUT}\"}}")),
            Value::text(&format!("{{\"{LEFT_OUT}\":null}}")),
        ),
        "base64" => (
            Value::text("X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
            Value::text("X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ"),
        ),
        _ => (text(), Value::text(&format!("{LEFT_OUT} "))),
    }
}

const TYPES: [&str; 9] = [
    "base64",
    "bytes",
    "hstore",
    "hstore_json",
    "ints",
    "json",
    "longs",
    "texts",
    "uuid",
];

/// A block of three rows: with values that are like those left out, all left out, and every other.
fn block_of_types(with_schema: bool) -> (Vec<u8>, FrameBuilder) {
    let row = SourceSchema::structure(
        [("id", SourceSchema::scalar(SourceKind::Int64))]
            .into_iter()
            .chain(TYPES.iter().map(|name| (*name, of_type(name)))),
    );
    let schema = SourceSchema::structure([
        ("after", row.optional()),
        ("op", SourceSchema::scalar(SourceKind::String)),
    ]);
    let rows = (0..3).map(|number: i64| {
        let value = |(name, index): (&&str, i64)| {
            let (out, like) = left_out(name);
            match number == 1 || (number == 2 && index % 2 == 0) {
                true => out,
                false => like,
            }
        };
        let fields = || TYPES.iter().zip(0..).map(value);
        let value = match with_schema {
            true => {
                let row = [Value::Int64(number)].into_iter().chain(fields());
                Value::Struct(vec![Value::Struct(row.collect()), Value::text("u")])
            }
            false => {
                let named = TYPES.iter().copied().zip(fields());
                let row = [("id", Value::Int64(number))].into_iter().chain(named);
                Value::object([("after", Value::object(row)), ("op", Value::text("u"))])
            }
        };
        Row::new("t", 0, number).value(value)
    });
    let built = match with_schema {
        true => FrameBuilder::with_value_schema(3, schema),
        false => FrameBuilder::schemaless(),
    };
    let built = built.rows(rows);
    (built.encode(), built)
}

// Promise: a value that the source left out is recognised in each type, and never lands as a text, an
// empty list or a zero; what is only like it is kept
// Case: 18, 20
#[test]
fn values_left_out_are_recognised_in_every_type() {
    for with_schema in [true, false] {
        let (bytes, built) = block_of_types(with_schema);
        let frame = Frame::decode(&bytes, &built.schemas()).unwrap();
        let (mut plan, mut changes) = (debezium(), Changes::default());
        plan.evaluate(&frame, &[0, 1, 2], &mut changes).unwrap();
        let names: Vec<Vec<String>> = changes
            .changes()
            .iter()
            .map(|change| {
                let mut names: Vec<String> =
                    changes.unavailable(change).map(str::to_owned).collect();
                names.sort();
                names
            })
            .collect();
        let half: Vec<&str> = TYPES.iter().step_by(2).copied().collect();
        assert_eq!(names[0], Vec::<String>::new(), "{with_schema}");
        assert_eq!(names[1], TYPES);
        assert_eq!(names[2], half);
        let images = changes.image(&mut plan, &frame, Image::After).unwrap();
        let rows = images.frame(&frame).unwrap();
        for (row, left) in names.iter().enumerate() {
            for name in TYPES {
                let now = crate::change::place::walk(rows.value(row), name);
                let before = crate::change::place::walk(frame.value(row), &format!("after.{name}"));
                match left.iter().any(|left| left == name) {
                    true => assert!(now.is_null(), "{name} of row {row}"),
                    false => assert_eq!(
                        crate::decode::testing::show(now),
                        crate::decode::testing::show(before)
                    ),
                }
            }
        }
    }
}

// Promise: a text that happens to be the placeholder is stored as it is where the source leaves nothing
// out (MySQL), and where recognising is switched off
// Case: 19
#[test]
fn a_text_like_the_placeholder_is_kept_where_nothing_is_left_out() {
    let row = format!(r#"{{"id":1,"v":"{LEFT_OUT}"}}"#);
    let of = |connector: &str| change("u", &row, &format!(r#""connector":"{connector}""#));
    let texts = [of("mysql"), of("postgresql"), of("oracle")];
    let found = seen(&mut debezium(), &texts);
    assert_eq!(shown(&found[0]).fields["v"], format!("{LEFT_OUT:?}"));
    assert_eq!(shown(&found[0]).unavailable, Vec::<String>::new());
    for left in &found[1..] {
        assert_eq!(shown(left).unavailable, ["v"]);
        assert_eq!(shown(left).fields["v"], "null");
        assert_eq!(shown(left).old_row, OldRow::Columns);
    }
    let mut config = ChangeConfig::new(Envelope::preset("debezium").unwrap());
    config.unavailable = None;
    let found = seen(&mut planned(config.clone(), id()), &texts);
    assert_eq!(shown(&found[1]).old_row, OldRow::NotNeeded);
    config.unavailable = Some(Unavailable {
        placeholder: "(kept)".to_owned(),
        ..Unavailable::default()
    });
    let other = change(
        "u",
        r#"{"id":1,"v":"(kept)"}"#,
        r#""connector":"postgresql""#,
    );
    let found = seen(&mut planned(config, id()), &[other]);
    assert_eq!(shown(&found[0]).unavailable, ["v"]);
}

// Promise: an update whose row before has another key removes the old row too
#[test]
fn an_update_of_the_key_leaves_no_old_row() {
    let text = |before: &str| {
        format!(r#"{{"before":{before},"after":{{"id":2}},"source":{{"lsn":1}},"op":"u"}}"#)
    };
    let texts = [
        text(r#"{"id":1}"#),
        text(r#"{"id":2}"#),
        text(r#"{"id":null}"#),
        text("null"),
        text(r#"{"other":1}"#),
    ];
    let seen = seen(&mut debezium(), &texts);
    let old: Vec<Option<&[u8]>> = seen
        .iter()
        .map(|seen| shown(seen).old_key.as_deref())
        .collect();
    assert_eq!(old, [Some(&[1][..]), None, None, None, None]);
    assert!(seen.iter().all(|seen| shown(seen).key == [2]));
}

// Promise: an old key that stands in a header is only used with an order, so a late record cannot remove
// a row that came to the old key since
#[test]
fn an_old_key_in_a_header_needs_an_order() {
    let header = |text: &str| vec![("__debezium.oldkey".to_owned(), text.to_owned())];
    let sample = |source: &str, key: &str| Sample {
        value: Some(change("c", r#"{"id":2}"#, source).into_bytes()),
        headers: header(key),
        ..Sample::default()
    };
    let wrapped = r#"{"schema":{"type":"struct"},"payload":{"id":1}}"#;
    for (sample, old) in [
        (sample(r#""lsn":1"#, r#"{"id":1}"#), Some(vec![1])),
        (sample(r#""lsn":1"#, wrapped), Some(vec![1])),
        (sample(r#""lsn":1"#, r#"{"id":2}"#), None),
        (sample(r#""lsn":1"#, r#"{"other":1}"#), None),
        (sample(r#""lsn":1"#, r#"{"id":"1"}"#), None),
        (sample(r#""lsn":1"#, r#"{"id":1.5}"#), None),
        (sample(r#""x":1"#, r#"{"id":1}"#), None),
    ] {
        let seen = run(&mut debezium(), &[sample], Encoding::Java);
        assert_eq!(shown(&seen[0]).old_key, old);
    }
}

// Promise: columns of the key are found in any case when the table is read so
#[test]
fn columns_of_the_key_in_another_case() {
    let text = r#"{"after":{"ID":1,"v":2},"op":"u"}"#;
    let with_schema = r#"{"schema":{"type":"struct","fields":[
        {"field":"after","type":"struct","fields":[{"field":"ID","type":"int64"}],"optional":true},
        {"field":"op","type":"string"}]},"payload":{"after":{"ID":1},"op":"u"}}"#;
    let mut config = ChangeConfig::new(Envelope::preset("debezium").unwrap());
    for (case_insensitive, expected) in [(false, None), (true, Some(vec![1]))] {
        config.case_insensitive = case_insensitive;
        for (text, encoding) in [
            (text, Encoding::Java),
            (text, Encoding::Json),
            (with_schema, Encoding::Envelope),
        ] {
            let mut plan = planned(config.clone(), id());
            let seen = run(&mut plan, &records(&[("", text)]), encoding);
            let key = match &seen[0] {
                Seen::Change(shown) => Some(shown.key.clone()),
                _ => None,
            };
            assert_eq!(key, expected, "{encoding:?}");
        }
    }
}

#[test]
fn an_old_key_in_a_header_in_another_case() {
    let sample = Sample {
        value: Some(change("c", r#"{"id":2}"#, r#""lsn":1"#).into_bytes()),
        headers: vec![("__debezium.oldkey".to_owned(), r#"{"ID":1}"#.to_owned())],
        ..Sample::default()
    };
    let mut config = ChangeConfig::new(Envelope::preset("debezium").unwrap());
    for (case_insensitive, old) in [(false, None), (true, Some(vec![1]))] {
        config.case_insensitive = case_insensitive;
        let mut plan = planned(config.clone(), id());
        let seen = run(&mut plan, std::slice::from_ref(&sample), Encoding::Java);
        assert_eq!(shown(&seen[0]).old_key, old);
    }
}

// Promise: what the source left out of the row of a delete is never written for the value either: a soft
// delete takes it from the table's row
#[test]
fn values_left_out_of_deleted_rows_are_not_written() {
    let row = format!(r#"{{"id":1,"v":"{LEFT_OUT}","w":"kept"}}"#);
    let source = r#""connector":"oracle","scn":"7""#;
    let plain = change("d", &row, source);
    let with_schema = format!(
        r#"{{"schema":{{"type":"struct","fields":[
            {{"field":"before","type":"struct","optional":true,"fields":[
                {{"field":"id","type":"int64"}},{{"field":"v","type":"string","optional":true}},
                {{"field":"w","type":"string","optional":true}}]}},
            {{"field":"op","type":"string"}}]}},"payload":{{"before":{row},"op":"d"}}}}"#
    );
    let unwrapped = format!(
        r#"{{"id":1,"v":"{LEFT_OUT}","w":"kept","__deleted":"true","__source_connector":"oracle"}}"#
    );
    for (preset, text, encoding) in [
        ("debezium", &plain, Encoding::Java),
        ("debezium", &plain, Encoding::Json),
        ("debezium", &with_schema, Encoding::Envelope),
        ("debezium-unwrapped", &unwrapped, Encoding::Java),
        ("debezium-unwrapped", &unwrapped, Encoding::Json),
    ] {
        let mut config = ChangeConfig::new(Envelope::preset(preset).unwrap());
        config.deleted_is_whole = true;
        for (soft, old_row) in [(None, OldRow::NotNeeded), (Some("x"), OldRow::Columns)] {
            config.soft_delete = soft.map(str::to_owned);
            let mut plan = planned(config.clone(), id());
            let seen = run(&mut plan, &records(&[("", text)]), encoding);
            let deleted = shown(&seen[0]);
            assert_eq!((deleted.op, deleted.image), ("d", Image::Deleted));
            assert_eq!(deleted.unavailable, ["v"], "{preset} {encoding:?}");
            assert_eq!(deleted.fields["v"], "null", "{preset} {encoding:?}");
            assert_eq!(deleted.fields["w"], "\"kept\"");
            assert_eq!(deleted.old_row, old_row);
        }
    }
}

// Promise: an update whose row before has values that are left out is not taken for one that lacks them
#[test]
fn values_left_out_of_the_row_before_an_update_say_nothing() {
    let source = r#""source":{"connector":"oracle","scn":"7"}"#;
    let before = format!(r#"{{"id":1,"v":"{LEFT_OUT}"}}"#);
    let update = format!(r#"{{"before":{before},"after":{{"id":1,"v":"x"}},{source},"op":"u"}}"#);
    let delete = format!(r#"{{"before":{before},"after":null,{source},"op":"d"}}"#);
    let schema = r#"{"type":"struct","fields":[
        {"field":"before","type":"struct","optional":true,"fields":[
            {"field":"id","type":"int64"},{"field":"v","type":"string","optional":true}]},
        {"field":"after","type":"struct","optional":true,"fields":[
            {"field":"id","type":"int64"},{"field":"v","type":"string","optional":true}]},
        {"field":"op","type":"string"}]}"#;
    let wrapped =
        [&update, &delete].map(|payload| format!(r#"{{"schema":{schema},"payload":{payload}}}"#));
    let plain = [update.clone(), delete.clone()];
    for (texts, encoding) in [
        (&plain, Encoding::Java),
        (&plain, Encoding::Json),
        (&wrapped, Encoding::Envelope),
    ] {
        let key = match encoding {
            Encoding::Envelope => KEY_WITH_SCHEMA,
            _ => r#"{"id":1}"#,
        };
        let texts = texts.each_ref().map(|text| (key, text.as_str()));
        let seen = run(&mut debezium(), &records(&texts), encoding);
        assert_eq!(
            shown(&seen[0]).unavailable,
            Vec::<String>::new(),
            "{encoding:?}"
        );
        assert_eq!(shown(&seen[0]).old_row, OldRow::NotNeeded);
        assert_eq!(shown(&seen[1]).unavailable, ["v"], "{encoding:?}");
    }
}

#[test]
fn a_block_is_read_anew_each_time() {
    let (mut plan, mut changes) = (debezium(), Changes::default());
    let left = format!(r#"{{"id":1,"v":"{LEFT_OUT}"}}"#);
    for (row, count) in [(&*left, 1), (r#"{"id":1,"v":"x"}"#, 0)] {
        let text = change("u", row, r#""connector":"postgresql""#);
        super::fixture::each_frame(&records(&[("", &text)]), Encoding::Java, |frame| {
            plan.evaluate(frame, &[0], &mut changes).unwrap();
            let change = changes.changes()[0];
            assert_eq!((change.row, change.op), (0, Op::Update));
            assert!(!change.is_snapshot());
            assert_eq!(changes.unavailable(&change).count(), count);
        });
    }
}

// Promise: rows of tables that routing did not send here are not looked at
#[test]
fn only_the_rows_that_were_asked_for_are_read() {
    let good = change("c", r#"{"id":1}"#, r#""lsn":1"#);
    let bad = r#"{"op":"?"}"#;
    let texts = [("", &*good), ("", bad), ("", &*good), ("", bad)];
    super::fixture::each_frame(&records(&texts), Encoding::Json, |frame| {
        let (mut plan, mut changes) = (debezium(), Changes::default());
        plan.evaluate(frame, &[0, 2], &mut changes).unwrap();
        assert_eq!(changes.changes().len(), 2);
        assert!(changes.take_refused().is_empty());
        let images = changes.image(&mut plan, frame, Image::After).unwrap();
        let rows = images.frame(frame).unwrap();
        assert!(rows.is_tombstone(1) && rows.is_tombstone(3));
        assert!(!rows.is_tombstone(0) && !rows.is_tombstone(2));
        assert_eq!(rows.source(2).map(|(_, offset)| offset), Some(2));
    });
}
