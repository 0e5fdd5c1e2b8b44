//! The formats that come as files, each with what its producer writes.

use iceberg::spec::PrimitiveType;

use super::fixture::{Encoding, Seen, Shown, Table, key, plan, planned, records, run};
use crate::change::{ChangeConfig, Envelope, Image, Order, PRESETS, Place};

fn id() -> Table {
    key(&[("id", PrimitiveType::Long)])
}

/// What records come to, by Java's converter and natively: operation, key, old key, and fields.
fn told(preset: &str, texts: &[(&str, &str)]) -> Vec<String> {
    let mut plan = plan(preset, id());
    let seen = run(&mut plan, &records(texts), Encoding::Java);
    assert_eq!(run(&mut plan, &records(texts), Encoding::Json), seen);
    seen.iter().map(tell).collect()
}

fn tell(seen: &Seen) -> String {
    let Seen::Change(shown) = seen else {
        return seen.line();
    };
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | i64::from(*byte))
    };
    let mut text = format!("{} {}", shown.op, number(&shown.key));
    if let Some(old) = &shown.old_key {
        text.push_str(&format!(" from {}", number(old)));
    }
    if shown.image != Image::None {
        let fields = shown.fields.iter();
        let fields = fields.map(|(name, value)| format!(" {name}={value}"));
        text.extend(fields);
    }
    text
}

#[test]
fn every_preset_can_be_read_and_has_its_own_name() {
    for (name, _) in PRESETS {
        let envelope = Envelope::preset(name).unwrap();
        assert_eq!(envelope.name, *name);
        assert!(!envelope.doc.is_empty());
    }
    let error = Envelope::preset("debesium").unwrap_err();
    assert_eq!(error.code(), "CHANGE_ENVELOPE_INVALID");
    assert!(error.message().contains("`debezium`"), "{error}");
    assert!(Envelope::preset("debezium").unwrap().needs_headers());
    assert!(!Envelope::preset("upsert").unwrap().needs_headers());
}

#[test]
fn a_description_with_an_unknown_word_is_refused() {
    for broken in [
        r#"{"name":"x","doc":"x","after":"value","tombstone":"delet"}"#,
        r#"{"name":"x","doc":"x","after":"valu","tombstone":"delete"}"#,
        r#"{"name":"x","doc":"x","after":"value","tombstone":"delete","keys":"key"}"#,
        r#"{"name":"x","doc":"x","after":"value.","tombstone":"delete"}"#,
        r#"{"name":"x","doc":"x","after":"value","tombstone":"delete",
            "order":{"alternatives":[{"parts":["number value.x"]}]}}"#,
        r#"{"name":"x","doc":"x","after":"value","tombstone":"delete",
            "order":{"alternatives":[{"parts":["gtid? value.x"]}]}}"#,
        r#"{"name":"x","doc":"x","after":"value","tombstone":"delete",
            "order":{"alternatives":[{"connector":["x"],"parts":["integer value.x"]}]}}"#,
    ] {
        let error = Envelope::parse(broken).unwrap_err();
        assert_eq!(error.code(), "CHANGE_ENVELOPE_INVALID", "{broken}");
    }
}

// Promise: rows with their key in the record's key are upserts, and a record without a value deletes
#[test]
fn plain_upserts_and_tombstones() {
    let told = told(
        "upsert",
        &[
            ("7", r#"{"v":1}"#),
            (r#"{"id":8}"#, r#"{"v":1}"#),
            ("", r#"{"id":9,"v":1}"#),
            ("7", ""),
            (r#"{"id":8}"#, ""),
            ("", r#"{"v":1}"#),
            ("", ""),
        ],
    );
    assert_eq!(
        told,
        [
            "u 7 v=Int64(1)",
            "u 8 v=Int64(1)",
            "u 9 id=Int64(9) v=Int64(1)",
            "d 7 value=Int64(7)",
            "d 8 id=Int64(8)",
            "5 refuse CHANGE_KEY_NULL",
            "6 refuse CHANGE_KEY_NULL",
        ]
    );
}

/// What an unwrapped row of these own fields comes to: its order, and its columns.
fn unwrapped(fields: &str) -> (Option<Vec<u8>>, Vec<String>) {
    let text = format!(r#"{{"id":1,"__v":0,{fields},"__deleted":"false","__op":"u"}}"#);
    let mut plan = plan("debezium-unwrapped", id());
    let seen = run(&mut plan, &records(&[("", &text)]), Encoding::Java);
    assert_eq!(
        run(&mut plan, &records(&[("", &text)]), Encoding::Json),
        seen
    );
    match seen.into_iter().next() {
        Some(Seen::Change(shown)) => (shown.order, shown.fields.into_keys().collect()),
        other => panic!("{other:?}"),
    }
}

// Promise: what ExtractNewRecordState adds under its default prefix orders the changes, named with and
// without `source`, and never becomes a column
#[test]
fn fields_that_the_transform_adds_order_and_are_no_columns() {
    for fields in [
        r#""NAMEsequence":"[\"5\",\"7\"]""#,
        r#""NAMElsn":7,"NAMEts_us":1,"NAMEts_ns":1,"NAMEtxId":5,"NAMEtable":"t""#,
        r#""NAMEcommit_lsn":"00000027:00000ac0:0002","NAMEchange_lsn":"00000027:00000ac0:0001""#,
        r#""NAMEcommit_scn":"9","NAMEscn":"7","NAMErs_id":"x","NAMEssn":0"#,
        r#""NAMEscn":"7""#,
        r#""NAMEgtid":"0-1-7","NAMEserver_id":1"#,
        r#""NAMEserver_id":1,"NAMEfile":"bin.000002","NAMEpos":154,"NAMErow":0,"NAMEquery":null"#,
    ] {
        let long = unwrapped(&fields.replace("NAME", "__source_"));
        let short = unwrapped(&fields.replace("NAME", "__"));
        assert!(long.0.is_some(), "{fields}");
        assert_eq!(long.0, short.0, "{fields}");
        for (_, columns) in [long, short] {
            assert_eq!(columns, ["__v", "id"], "{fields}");
        }
    }
    let (order, columns) = unwrapped(
        r#""__transaction_id":"5","__transaction_total_order":1,"__id":"5","__total_order":1,
            "__ts_ms":1,"__ts_us":1,"__ts_ns":1,"__name":"s","__connector":"x","__db":null"#,
    );
    assert_eq!(
        (order, columns),
        (None, vec!["__v".to_owned(), "id".to_owned()])
    );
    let names = ["postgresql", "mysql"].map(|connector| {
        let name = format!(r#""__connector":"{connector}","__lsn":7"#);
        unwrapped(&name).0
    });
    assert!(names[0].is_some() && names[1].is_none());
}

// Promise: where a row does not say what it is, it may be of a snapshot, and nothing is dropped for it
#[test]
fn a_row_that_does_not_tell_its_operation_may_be_of_a_snapshot() {
    let order = |fields: &str| {
        let text = format!(r#"{{"id":1,{fields},"__deleted":"false"}}"#);
        let mut plan = plan("debezium-unwrapped", id());
        let seen = run(&mut plan, &records(&[("", &text)]), Encoding::Java);
        match seen.into_iter().next() {
            Some(Seen::Change(shown)) => shown.order,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(order(r#""__source_lsn":7"#), None);
    let first = order(r#""__source_sequence":"[\"5\",\"900\"]""#);
    let second = order(r#""__source_sequence":"[\"5\",\"7\"]""#);
    assert!(first.is_some() && first == second);
}

// Promise: AWS DMS: load, insert, update and delete; control records are skipped
#[test]
fn dms() {
    let record = |data: &str, operation: &str| {
        format!(
            r#"{{"data":{data},"metadata":{{"record-type":"data","operation":"{operation}","schema-name":"s","table-name":"t"}}}}"#
        )
    };
    let (load, insert) = (
        record(r#"{"id":1}"#, "load"),
        record(r#"{"id":2}"#, "insert"),
    );
    let update = r#"{"data":{"id":3,"v":1},"before-image":{"id":2},"metadata":{"record-type":"data","operation":"update"}}"#;
    let same = r#"{"data":{"id":3,"v":1},"before-image":{"v":0},"metadata":{"record-type":"data","operation":"update"}}"#;
    let delete = record(r#"{"id":3}"#, "delete");
    let control =
        r#"{"data":null,"metadata":{"record-type":"control","operation":"create-table"}}"#;
    let other = record(r#"{"id":3}"#, "merge");
    let told = told(
        "dms",
        &[
            ("\"s.t.1\"", &load),
            ("\"s.t.2\"", &insert),
            ("\"s.t.3\"", update),
            ("\"s.t.3\"", same),
            ("\"s.t.3\"", &delete),
            ("", control),
            ("", &other),
        ],
    );
    assert_eq!(
        told,
        [
            "r 1 id=Int64(1)",
            "c 2 id=Int64(2)",
            "u 3 from 2 id=Int64(3) v=Int64(1)",
            "u 3 id=Int64(3) v=Int64(1)",
            "d 3 id=Int64(3)",
            "5 skip control",
            "6 refuse CHANGE_OP_UNKNOWN",
        ]
    );
}

// Promise: Maxwell: inserts, updates with what they changed, deletes, bootstraps; DDL is skipped
#[test]
fn maxwell() {
    let record = |kind: &str, rest: &str| {
        format!(r#"{{"database":"d","table":"t","type":"{kind}","ts":1,"xid":2,{rest}}}"#)
    };
    let insert = record("insert", r#""data":{"id":1,"v":"a"}"#);
    let update = record("update", r#""data":{"id":1,"v":"b"},"old":{"v":"a"}"#);
    let moved = record("update", r#""data":{"id":2,"v":"b"},"old":{"id":1}"#);
    let delete = record("delete", r#""data":{"id":2,"v":"b"}"#);
    let bootstrap = record("bootstrap-insert", r#""data":{"id":5,"v":"c"}"#);
    let (start, ddl) = (
        record("bootstrap-start", r#""data":{}"#),
        record("table-alter", r#""sql":"x""#),
    );
    let keyed = r#"{"database":"d","table":"t","pk.id":1}"#;
    let told = told(
        "maxwell",
        &[
            (keyed, &insert),
            (keyed, &update),
            (keyed, &moved),
            (keyed, &delete),
            (keyed, &bootstrap),
            ("", &start),
            ("", &ddl),
        ],
    );
    assert_eq!(
        told,
        [
            r#"c 1 id=Int64(1) v="a""#,
            r#"u 1 id=Int64(1) v="b""#,
            r#"u 2 from 1 id=Int64(2) v="b""#,
            r#"d 2 id=Int64(2) v="b""#,
            r#"r 5 id=Int64(5) v="c""#,
            "5 skip control",
            "6 skip schema-change",
        ]
    );
}

/// The orders of rows of Maxwell with these fields beside.
fn maxwell_orders(fields: &[&str]) -> Vec<Option<Vec<u8>>> {
    let record =
        |fields: &&str| format!(r#"{{"type":"insert","xid":2,{fields},"data":{{"id":1}}}}"#);
    let texts: Vec<String> = fields.iter().map(record).collect();
    let keyed: Vec<(&str, &str)> = texts.iter().map(|text| ("", &**text)).collect();
    let seen = run(&mut plan("maxwell", id()), &records(&keyed), Encoding::Java);
    let natively = run(&mut plan("maxwell", id()), &records(&keyed), Encoding::Json);
    assert_eq!(seen, natively);
    let order = |seen: Seen| match seen {
        Seen::Change(Shown { order, .. }) => order,
        other => panic!("{other:?}"),
    };
    seen.into_iter().map(order).collect()
}

// Promise: Maxwell's rows are ordered by position when it writes it; the rows of a transaction at one
// position, of which the last is numbered no more, count as they arrive
#[test]
fn maxwell_is_ordered_by_position_when_it_writes_it() {
    let orders = maxwell_orders(&[
        r#""server_id":1,"position":"m.000009:900","xoffset":1"#,
        r#""server_id":1,"position":"m.000010:4","xoffset":0"#,
        r#""server_id":1,"position":"m.000010:4","xoffset":1"#,
        r#""server_id":1,"position":"m.000010:4","commit":true"#,
    ]);
    assert!(orders[0].is_some() && orders[0] < orders[1]);
    assert!(orders[1] == orders[2] && orders[2] == orders[3]);
}

// Promise: the positions of two servers are never compared, nor those of nobody knows which: after Maxwell
// went on at another server nothing is dropped
#[test]
fn positions_of_two_servers_are_not_compared() {
    let orders = maxwell_orders(&[
        r#""position":"m.000009:900","server_id":1"#,
        r#""position":"m.000002:4","server_id":2"#,
        r#""position":"m.000009:901","server_id":1"#,
    ]);
    let order = |index: usize| orders[index].as_deref().map(Order::of).expect("an order");
    assert_eq!(order(0).compare(&order(1)), None);
    assert_eq!(order(0).compare(&order(2)), Some(std::cmp::Ordering::Less));
    let nobodys = maxwell_orders(&[
        r#""position":"m.000009:900""#,
        r#""position":"m.000002:4","server_id":null"#,
        r#""position":"m.000002:4[3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9]","server_id":1"#,
    ]);
    assert_eq!(nobodys, [None, None, None]);
}

// Promise: Canal's flat messages of one row; one of several is refused with what to change
#[test]
fn canal() {
    let record = |kind: &str, data: &str, old: &str| {
        format!(
            r#"{{"data":{data},"database":"d","table":"t","isDdl":false,"old":{old},"type":"{kind}"}}"#
        )
    };
    let insert = record("INSERT", r#"[{"id":"1","v":"a"}]"#, "null");
    let update = record("UPDATE", r#"[{"id":"1","v":"b"}]"#, r#"[{"v":"a"}]"#);
    let moved = record("UPDATE", r#"[{"id":"2","v":"b"}]"#, r#"[{"id":"1"}]"#);
    let delete = record("DELETE", r#"[{"id":"2","v":"b"}]"#, "null");
    let several = record("INSERT", r#"[{"id":"1"},{"id":"2"}]"#, "null");
    let ddl = record("ALTER", "null", "null");
    let told = told(
        "canal",
        &[
            ("", &insert),
            ("", &update),
            ("", &moved),
            ("", &delete),
            ("", &several),
            ("", &ddl),
        ],
    );
    assert_eq!(
        told,
        [
            r#"c 1 id="1" v="a""#,
            r#"u 1 id="1" v="b""#,
            r#"u 2 from 1 id="2" v="b""#,
            r#"d 2 id="2" v="b""#,
            "4 refuse CHANGE_ROWS_NOT_ONE",
            "5 skip schema-change",
        ]
    );
}

// Promise: columns of the key are found in any case in Canal's rows too
#[test]
fn canal_in_any_case() {
    let moved = r#"{"data":[{"ID":"2","v":"b"}],"old":[{"ID":"1"}],"type":"UPDATE"}"#;
    let mut config = ChangeConfig::new(Envelope::preset("canal").unwrap());
    for (case_insensitive, expected) in [
        (false, "0 refuse CHANGE_KEY_NULL"),
        (true, r#"u 2 from 1 ID="2" v="b""#),
    ] {
        config.case_insensitive = case_insensitive;
        for encoding in [Encoding::Java, Encoding::Json] {
            let mut plan = planned(config.clone(), id());
            let seen = run(&mut plan, &records(&[("", moved)]), encoding);
            assert_eq!(tell(&seen[0]), expected, "{encoding:?}");
        }
    }
}

// Promise: what the transforms of the Apache sink write (`_cdc.op`) is read, and an unknown operation is
// never an insert
#[test]
fn apache_cdc() {
    let record = |op: &str| {
        format!(r#"{{"_cdc":{{"key":{{"id":1}},"offset":5,"op":"{op}","ts":1}},"id":1,"v":"a"}}"#)
    };
    let texts = ["I", "U", "D", "X"].map(record);
    let keyed: Vec<(&str, &str)> = texts.iter().map(|text| ("", &**text)).collect();
    let told = told("apache-cdc", &keyed);
    for (told, op) in told.iter().zip(["c", "u", "d"]) {
        assert!(told.starts_with(&format!("{op} 1 _cdc=")), "{told}");
        assert!(told.ends_with(r#"id=Int64(1) v="a""#), "{told}");
    }
    assert_eq!(told[3], "3 refuse CHANGE_OP_UNKNOWN");
}

// Promise: a field that tells the operation, as the Tabular sink's `cdc-field` names it
#[test]
fn tabular_cdc() {
    let config = plan("tabular-cdc", id()).config().clone();
    let config = config.with_op_at(Place::parse("value.meta.what").unwrap());
    let record = |op: &str| format!(r#"{{"id":1,"meta":{{"what":"{op}"}}}}"#);
    let texts = ["I", "u", "DELETE", "nope"].map(record);
    let mut keyed: Vec<(&str, &str)> = texts.iter().map(|text| ("1", &**text)).collect();
    keyed.push(("1", r#"{"id":1}"#));
    let seen = run(&mut planned(config, id()), &records(&keyed), Encoding::Java);
    let told: Vec<String> = seen.iter().map(|seen| tell(seen)[..3].to_owned()).collect();
    assert_eq!(told[..3], ["c 1", "u 1", "d 1"]);
    assert_eq!(seen[3], Seen::Refused(3, "CHANGE_OP_UNKNOWN"));
    assert_eq!(seen[4], Seen::Refused(4, "CHANGE_OP_MISSING"));
}

// Promise: a row whose only column is `ts_ms` is no heartbeat, behind ExtractNewRecordState either
#[test]
fn a_row_that_looks_like_a_heartbeat_is_one_only_with_its_key() {
    let row = r#"{"ts_ms":5}"#;
    let samples = records(&[
        (r#"{"ts_ms":5}"#, row),
        (r#"{"serverName":"px"}"#, row),
        ("", row),
    ]);
    let mut plan = plan("debezium-unwrapped", key(&[("ts_ms", PrimitiveType::Long)]));
    for encoding in [Encoding::Java, Encoding::Json] {
        let seen = run(&mut plan, &samples, encoding);
        let told: Vec<String> = seen.iter().map(tell).collect();
        let expected = [
            "u 5 ts_ms=Int64(5)",
            "1 skip heartbeat",
            "u 5 ts_ms=Int64(5)",
        ];
        assert_eq!(told, expected, "{encoding:?}");
    }
}
