//! Where the values of a key come from, and where not.

use iceberg::spec::PrimitiveType;

use super::fixture::{
    Encoding, Sample, Seen, Table, key, lines, plan, planned, records, run, table,
};
use crate::change::{ChangeConfig, ChangePlan, Envelope};
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Frame, SourceKind, SourceSchema};

fn id() -> Table {
    key(&[("id", PrimitiveType::Long)])
}

fn text_id() -> Table {
    key(&[("id", PrimitiveType::String)])
}

fn keys(seen: &[Seen]) -> Vec<Vec<u8>> {
    let key = |seen: &Seen| match seen {
        Seen::Change(shown) => shown.key.clone(),
        other => panic!("{other:?}"),
    };
    seen.iter().map(key).collect()
}

/// What records with and without values come to, with these keys.
fn with_keys(plan: &mut ChangePlan, rows: &[(Value, Value)]) -> Vec<String> {
    let rows = rows.iter().zip(0..);
    let rows = rows.map(|((key, value), offset)| {
        Row::new("t", 0, offset)
            .key(key.clone())
            .value(value.clone())
    });
    let built = FrameBuilder::schemaless().rows(rows);
    let bytes = built.encode();
    let frame = Frame::decode(&bytes, &built.schemas()).unwrap();
    let mut changes = crate::change::Changes::default();
    let rows: Vec<u32> = (0..u32::try_from(frame.rows()).unwrap()).collect();
    plan.evaluate(&frame, &rows, &mut changes).unwrap();
    let refused = changes.take_refused();
    let refused = refused
        .into_iter()
        .map(|(row, error)| (row, error.code().to_owned()));
    let done = changes.changes().iter();
    let done = done.map(|change| (change.row, change.op.letter().to_owned()));
    let mut all: Vec<(u32, String)> = refused.chain(done).collect();
    all.sort();
    all.into_iter().map(|(_, told)| told).collect()
}

// Promise: a record's key that is bytes nobody read is never taken for the base64 of them: a delete by it
// is refused
#[test]
fn a_key_of_unread_bytes_deletes_nothing() {
    let bytes = || Value::Bytes(b"abc".to_vec());
    let row = || Value::object([("id", Value::text("abc"))]);
    let other = || Value::object([("v", Value::text("x"))]);
    for preset in ["upsert", "tabular-cdc"] {
        for table in [text_id(), id()] {
            let told = with_keys(&mut plan(preset, table), &[(bytes(), Value::Null)]);
            assert_eq!(told, ["CHANGE_KEY_BYTES"], "{preset}");
        }
    }
    let rows = [(bytes(), row()), (bytes(), other())];
    let told = with_keys(&mut plan("upsert", text_id()), &rows);
    assert_eq!(told, ["u", "CHANGE_KEY_BYTES"]);
    // Of a column of bytes they are the value.
    let binary = key(&[("id", PrimitiveType::Binary)]);
    let told = with_keys(&mut plan("upsert", binary), &[(bytes(), Value::Null)]);
    assert_eq!(told, ["d"]);
}

// Promise: a record whose key says another key than its row is refused: a record without a value would
// delete by it, so a key that is a whole JSON text is found out by the first row
#[test]
fn a_key_that_contradicts_its_row_is_refused() {
    let row = |id: &str| Value::object([("id", Value::text(id))]);
    let json = || Value::text(r#"{"id":"a"}"#);
    let told = with_keys(
        &mut plan("upsert", text_id()),
        &[
            (Value::text("a"), row("a")),
            (json(), row("a")),
            (Value::object([("id", Value::text("b"))]), row("a")),
            // Another thing than the key, and none.
            (Value::object([("at", Value::text("b"))]), row("a")),
            (Value::Null, row("a")),
        ],
    );
    let no = "CHANGE_KEY_CONTRADICTS";
    assert_eq!(told, ["u", no, no, "u", "u"]);
    let row = || Value::object([("id", Value::Int64(7))]);
    let rows = [
        (Value::text("7"), row()),
        (Value::Int64(8), row()),
        // No key of this table: a delete by it is refused where it comes.
        (Value::text("order-7"), row()),
        (Value::text("order-7"), Value::Null),
    ];
    let told = with_keys(&mut plan("upsert", id()), &rows);
    assert_eq!(told, ["u", no, "u", "VALUE_MALFORMED"]);
    let record = r#"{"id":"a","op":"U"}"#;
    let seen = run(
        &mut plan("tabular-cdc", text_id()),
        &records(&[(r#""b""#, record), (r#""a""#, record)]),
        Encoding::Java,
    );
    assert_eq!(seen[0], Seen::Refused(0, no));
    assert!(matches!(seen[1], Seen::Change(_)));
}

/// A key of the columns `tenant` and `id`.
fn tenants() -> Table {
    key(&[("tenant", PrimitiveType::Int), ("id", PrimitiveType::Long)])
}

// Promise: the key of a delete takes no value from the row before, which the source may have made up, unless
// such rows are said to be whole
#[test]
fn a_delete_does_not_believe_the_row_before() {
    let debezium = r#"{"before":{"tenant":0,"id":1},"after":null,"op":"d"}"#;
    let unwrapped = r#"{"tenant":0,"id":1,"__deleted":"true"}"#;
    let apache = r#"{"_cdc":{"op":"D","key":{"id":1}},"tenant":0,"id":1}"#;
    for (preset, text) in [
        ("debezium", debezium),
        ("debezium-unwrapped", unwrapped),
        ("apache-cdc", apache),
    ] {
        let mut config = ChangeConfig::new(Envelope::preset(preset).unwrap());
        for (is_whole, expected) in [(false, "0 refuse CHANGE_KEY_UNSURE"), (true, "0 d 0/1")] {
            config.deleted_is_whole = is_whole;
            for encoding in [Encoding::Java, Encoding::Json] {
                let samples = records(&[(r#"{"id":1}"#, text)]);
                let seen = run(&mut planned(config.clone(), tenants()), &samples, encoding);
                assert_eq!(lines(&seen), [expected], "{preset} {encoding:?}");
            }
        }
        // What the record's key has is sure, and what nothing has is missing.
        let samples = records(&[(r#"{"id":1,"tenant":3}"#, text)]);
        let of_key = run(&mut plan(preset, tenants()), &samples, Encoding::Java);
        if preset != "apache-cdc" {
            assert_eq!(lines(&of_key), ["0 d 3/1"]);
        }
    }
    let without = records(&[(r#"{"id":1}"#, r#"{"before":{"id":1},"op":"d"}"#)]);
    let seen = run(&mut plan("debezium", tenants()), &without, Encoding::Java);
    assert_eq!(lines(&seen), ["0 refuse CHANGE_KEY_NULL"]);
    // Maxwell's row of a delete is that of the binlog.
    let maxwell = records(&[("", r#"{"type":"delete","data":{"tenant":1,"id":1}}"#)]);
    let seen = run(&mut plan("maxwell", tenants()), &maxwell, Encoding::Java);
    assert_eq!(lines(&seen), ["0 d 1/1"]);
}

// Promise: nor does an update: a row before it with another key than its record's removes no row, unless
// such rows are said to be whole
#[test]
fn an_update_does_not_believe_the_row_before() {
    let text = r#"{"before":{"tenant":7,"id":1},"after":{"tenant":2,"id":1},"op":"u"}"#;
    let same = text.replace(r#""tenant":7"#, r#""tenant":2"#);
    let short = (r#"{"id":1}"#, text);
    let samples = records(&[
        short,
        (r#"{"id":1}"#, &same),
        (r#"{"id":1,"tenant":2}"#, text),
    ]);
    let mut config = ChangeConfig::new(Envelope::preset("debezium").unwrap());
    let seen = run(
        &mut planned(config.clone(), tenants()),
        &samples,
        Encoding::Java,
    );
    assert_eq!(
        lines(&seen),
        ["0 refuse CHANGE_KEY_UNSURE", "1 u 2/1", "2 u 2/1 from 7/1"]
    );
    config.deleted_is_whole = true;
    let seen = run(
        &mut planned(config, tenants()),
        &samples[..1],
        Encoding::Java,
    );
    assert_eq!(lines(&seen), ["0 u 2/1 from 7/1"]);
}

// Promise: a column of the key that was renamed is found under the names of the table's name mapping, in the
// row, the record's key and the header: updates and deletes go on
#[test]
fn a_renamed_column_of_the_key_is_found() {
    let renamed =
        || key(&[("order_id", PrimitiveType::Long)]).mapped(r#"[{"field-id":1,"names":["id"]}]"#);
    let moved = Sample {
        offset: 2,
        key: Some(br#"{"id":2}"#.to_vec()),
        value: Some(
            br#"{"after":{"id":2},"source":{"connector":"oracle","scn":"7"},"op":"c"}"#.to_vec(),
        ),
        headers: vec![("__debezium.oldkey".to_owned(), r#"{"id":1}"#.to_owned())],
    };
    let mut samples = records(&[
        (r#"{"id":1}"#, r#"{"after":{"id":1},"op":"u"}"#),
        (r#"{"id":1}"#, r#"{"before":{"id":1},"op":"d"}"#),
    ]);
    samples.push(moved);
    for encoding in [Encoding::Java, Encoding::Json] {
        let seen = run(&mut plan("debezium", renamed()), &samples, encoding);
        assert_eq!(keys(&seen), [vec![1], vec![1], vec![2]]);
        assert!(matches!(&seen[2], Seen::Change(shown) if shown.old_key == Some(vec![1])));
    }
    let row = SourceSchema::structure([("id", SourceSchema::scalar(SourceKind::Int64))]);
    let built = FrameBuilder::with_value_schema(1, row.clone())
        .key_schema(2, row)
        .rows([Row::new("t", 0, 0)
            .key(Value::Struct(vec![Value::Int64(5)]))
            .value(Value::Struct(vec![Value::Int64(5)]))]);
    let bytes = built.encode();
    let frame = Frame::decode(&bytes, &built.schemas()).unwrap();
    let mut changes = crate::change::Changes::default();
    let mut plan = plan("upsert", renamed());
    plan.evaluate(&frame, &[0], &mut changes).unwrap();
    assert_eq!(changes.key(&changes.changes()[0]), [5]);
}

// Promise: a name that the mapping gives to another column is not taken for the key
#[test]
fn a_name_that_went_to_another_column_is_not_the_key() {
    let columns = [("id", PrimitiveType::Long), ("old", PrimitiveType::Long)];
    let swapped = r#"[{"field-id":1,"names":["key"]},{"field-id":2,"names":["id"]}]"#;
    for case_insensitive in [false, true] {
        let mut config = ChangeConfig::new(Envelope::preset("upsert").unwrap());
        config.case_insensitive = case_insensitive;
        let mut plan = planned(config, table(&columns, 1).mapped(swapped));
        let rows = [("", r#"{"id":1,"key":2}"#), ("", r#"{"id":1}"#)];
        let seen = run(&mut plan, &records(&rows), Encoding::Java);
        assert!(matches!(&seen[0], Seen::Change(shown) if shown.key == [2]));
        assert_eq!(seen[1], Seen::Refused(1, "CHANGE_KEY_NULL"));
    }
}
