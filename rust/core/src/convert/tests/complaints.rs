//! What users of the Apache sink complained about, where it concerns types: each with the value
//! that is right.

use super::*;
use crate::schema::{CreateOptions, table_schema};

/// Makes a table for the value and lands it: the type of the column `v`, and what is stored.
fn created(schema: SourceSchema, value: Value, options: &CreateOptions) -> (String, String) {
    let frame = structs(
        1,
        SourceSchema::structure([("v", schema)]),
        [Value::Struct(vec![value])],
    );
    stored(frame, options)
}

fn inferred(value: Value) -> (String, String) {
    stored(
        schemaless([Value::object([("v", value)])]),
        &CreateOptions::default(),
    )
}

fn stored(frame: FrameBuilder, options: &CreateOptions) -> (String, String) {
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let table = Arc::new(table_schema(decoded.value(0), options).unwrap());
    let column = table.as_struct().fields()[0].field_type.to_string();
    (column, landed(&table, frame))
}

fn pair(column: &str, shown: &str) -> (String, String) {
    (column.to_owned(), shown.to_owned())
}

// Promise: a value that does not fit is refused with its column, and the records around it land (complaint 9)
// Complaint: 9
#[test]
fn complaint_9_one_bad_record_is_refused_alone() {
    // T5
    let column = column(primitive(PrimitiveType::Int));
    let values = [Value::Int64(1), Value::text("abc"), Value::Int64(3)];
    let frame = schemaless(values.map(|value| Value::object([("v", value)])));
    let (batch, refused) = convert(&column, &ConvertOptions::default(), &[frame]);
    assert_eq!(show(batch.column(0), 0), "1");
    assert_eq!(show(batch.column(0), 1), "3");
    assert_eq!(codes(&refused), [(1, FORM)]);
    let report = refused[0].1.report();
    assert!(
        report.contains("column=v, source_type=string, column_type=int, length=3"),
        "{report}"
    );
    assert!(!report.contains("abc"), "{report}");
}

// Promise: Debezium's microseconds, nanoseconds and days are timestamps, times and dates (complaint 13)
// Complaint: 13
#[test]
fn complaint_13_units_of_debezium_are_kept() {
    let options = CreateOptions::default();
    let of = |kind, name: &str, value| {
        created(
            SourceSchema::scalar(kind).named(&format!("io.debezium.time.{name}")),
            value,
            &options,
        )
    };
    // T8
    assert_eq!(
        of(
            SourceKind::Int64,
            "MicroTimestamp",
            Value::Int64(1_700_000_000_123_456)
        ),
        pair("timestamp", "1700000000123456")
    );
    assert_eq!(
        of(
            SourceKind::Int64,
            "NanoTimestamp",
            Value::Int64(1_700_000_000_123_456_000)
        ),
        pair("timestamp", "1700000000123456")
    );
    assert_eq!(
        of(SourceKind::Int32, "Date", Value::Int32(19_782)),
        pair("date", "19782")
    );
    assert_eq!(
        of(SourceKind::Int64, "MicroTime", Value::Int64(28_290_888_123)),
        pair("time", "28290888123")
    );
    let micros = SourceSchema::scalar(SourceKind::Int64).named("io.debezium.time.MicroTimestamp");
    let value = Value::Int64(1_700_000_000_123_456);
    let zoned = primitive(PrimitiveType::Timestamptz);
    assert_eq!(land_with(&zoned, micros, value), "1700000000123456");
}

// Promise: no number is cut, wrapped or rounded, and no text is taken for false (complaint 14)
// Complaint: 14
#[test]
fn complaint_14_no_value_changes() {
    // T9 and the measured conversions of the Apache sink.
    let at = |kind, value| land(&primitive(kind), value);
    assert_eq!(at(PrimitiveType::Int, Value::Int64(3_000_000_000)), RANGE);
    assert_eq!(at(PrimitiveType::Int, Value::Float64(2.5)), LOSS);
    assert_eq!(at(PrimitiveType::Long, Value::Float64(1.9)), LOSS);
    assert_eq!(at(PrimitiveType::Long, Value::Float64(1e30)), RANGE);
    assert_eq!(at(PrimitiveType::Long, Value::Float64(f64::NAN)), NOT);
    assert_eq!(
        at(PrimitiveType::Double, Value::Int64(9_007_199_254_740_993)),
        LOSS
    );
    assert_eq!(at(PrimitiveType::Boolean, Value::text("yes")), FORM);
    assert_eq!(at(PrimitiveType::Date, Value::Timestamp(-1)), "-1");
    assert_eq!(
        at(PrimitiveType::Date, Value::Int64(1_704_153_600_000)),
        UNIT
    );
    assert_eq!(
        at(PrimitiveType::Timestamp, Value::Int64(1_700_000_000)),
        UNIT
    );
    let whole = Type::decimal(38, 0).unwrap();
    assert_eq!(land(&whole, Value::Float64(1e20)), "100000000000000000000");
    let cents = Type::decimal(9, 2).unwrap();
    assert_eq!(land(&cents, Value::text("1.005")), LOSS);
    assert_eq!(land(&cents, Value::Float64(12.3456)), LOSS);
    assert_eq!(land(&cents, Value::Int64(10_000_000)), RANGE);
}

// Promise: a UUID lands in a uuid column from text and from bytes (complaint 16)
// Complaint: 16
#[test]
fn complaint_16_uuids_land() {
    // T11
    let column = primitive(PrimitiveType::Uuid);
    assert_eq!(land(&column, Value::text(UUID)), UUID_HEX);
    let bytes = uuid::Uuid::try_parse(UUID).unwrap().into_bytes().to_vec();
    assert_eq!(land(&column, Value::Bytes(bytes)), UUID_HEX);
    for name in ["uuid", "io.debezium.data.Uuid"] {
        let schema = SourceSchema::scalar(SourceKind::String).named(name);
        let made = created(schema, Value::text(UUID), &CreateOptions::default());
        assert_eq!(made, pair("uuid", UUID_HEX));
    }
}

// Promise: dates land in long and string columns, and lists of structs, maps and bytes in string columns (complaint 30)
// Complaint: 30
#[test]
fn complaint_30_dates_become_numbers_and_text() {
    // T14
    let string = primitive(PrimitiveType::String);
    let timestamp = SourceSchema::logical_type(LogicalType::Timestamp);
    let value = Value::Timestamp(1_700_000_000_123);
    assert_eq!(
        land_with(
            &primitive(PrimitiveType::Long),
            timestamp.clone(),
            value.clone()
        ),
        "1700000000123"
    );
    assert_eq!(
        land_with(&string, timestamp, value),
        "2023-11-14T22:13:20.123Z"
    );
    let structs = SourceSchema::array(SourceSchema::structure([(
        "x",
        SourceSchema::scalar(SourceKind::Int32),
    )]));
    let value = Value::Array(vec![Value::Struct(vec![Value::Int32(1)])]);
    assert_eq!(land_with(&string, structs, value), r#"[{"x":1}]"#);
    assert_eq!(land(&string, Value::Bytes(vec![65, 66])), "QUI=");
}

// Promise: timestamps with fractions and offsets in any form land (complaint 31)
// Complaint: 31
#[test]
fn complaint_31_fractions_and_offsets_are_read() {
    for kind in [PrimitiveType::Timestamp, PrimitiveType::Timestamptz] {
        for (offset, micros) in [
            ("", 1_684_394_061_260_514_i64),
            ("Z", 1_684_394_061_260_514),
            ("+00", 1_684_394_061_260_514),
            ("+00:00", 1_684_394_061_260_514),
            ("+0000", 1_684_394_061_260_514),
            ("-08", 1_684_422_861_260_514),
            ("-08:00", 1_684_422_861_260_514),
            ("-0800", 1_684_422_861_260_514),
        ] {
            for middle in ["T", " "] {
                let text = format!("2023-05-18{middle}07:14:21.260514{offset}");
                let shown = land(&primitive(kind.clone()), Value::text(&text));
                assert_eq!(shown, micros.to_string(), "{text}");
            }
        }
    }
}

// Promise: a date lands in a timestamp column as its midnight, an empty text is refused (complaint 32)
// Complaint: 32
#[test]
fn complaint_32_a_date_is_midnight_and_an_empty_text_nothing() {
    for kind in [PrimitiveType::Timestamp, PrimitiveType::Timestamptz] {
        let column = primitive(kind);
        assert_eq!(land(&column, Value::text("2024-01-02")), "1704153600000000");
        assert_eq!(land(&column, Value::text("")), FORM);
        assert_eq!(land(&column, Value::text("1700000000123")), FORM);
    }
    let date = primitive(PrimitiveType::Date);
    assert_eq!(land(&date, Value::text("2024-01-02T00:00:00Z")), "19724");
}

// Promise: a struct without fields lands as JSON (complaint 33)
// Complaint: 33
#[test]
fn complaint_33_a_struct_without_fields_lands() {
    let empty = SourceSchema::structure([]);
    let list = SourceSchema::array(empty.clone());
    let options = CreateOptions::default();
    assert_eq!(
        created(empty, Value::Struct(vec![]), &options),
        pair("string", "{}")
    );
    let (_, shown) = created(list, Value::Array(vec![Value::Struct(vec![])]), &options);
    assert_eq!(shown, "[{}]");
}

// Promise: a decimal without a schema gets a column that holds it (complaint 34)
// Complaint: 34
#[test]
fn complaint_34_small_decimals_get_enough_digits() {
    for (unscaled, scale, column, shown) in [
        (1, 3, "decimal(3, 3)", "0.001"),
        (1, -2, "decimal(3, 0)", "100"),
        (
            1,
            -37,
            "decimal(38, 0)",
            "10000000000000000000000000000000000000",
        ),
        (
            1,
            38,
            "decimal(38, 38)",
            "0.00000000000000000000000000000000000001",
        ),
        (1, 39, "string", "0.000000000000000000000000000000000000001"),
        (1, -38, "string", "100000000000000000000000000000000000000"),
    ] {
        assert_eq!(
            inferred(Value::Decimal(unscaled, scale)),
            pair(column, shown)
        );
    }
}

// Promise: with `schema-force-optional`, fields of structs, lists and maps are optional too (complaint 37)
// Complaint: 37
#[test]
fn complaint_37_force_optional_reaches_every_level() {
    let int = || SourceSchema::scalar(SourceKind::Int32);
    let inner = SourceSchema::structure([("x", int())]);
    let source = SourceSchema::structure([
        ("s", inner.clone()),
        ("l", SourceSchema::array(inner.clone())),
        (
            "m",
            SourceSchema::map(SourceSchema::scalar(SourceKind::String), inner),
        ),
    ]);
    let frame = structs(1, source, []);
    let x = || Value::Struct(vec![Value::Int32(1)]);
    let row = Value::Struct(vec![
        x(),
        Value::Array(vec![x()]),
        Value::Map(vec![(Value::text("k"), x())]),
    ]);
    let frame = frame.row(Row::new("t", 0, 0).value(row));
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let options = CreateOptions {
        force_optional: true,
        ..CreateOptions::default()
    };
    let table = table_schema(decoded.value(0), &options).unwrap();
    for field in table.field_id_to_fields().values() {
        assert_eq!(field.required, field.name == "key", "{}", field.name);
    }
}

// Promise: nanoseconds land in tables of format version 3 (complaint 38)
// Complaint: 38
#[test]
fn complaint_38_nanoseconds_land_in_version_3() {
    let options = CreateOptions {
        is_v3: true,
        ..CreateOptions::default()
    };
    let nanos = SourceSchema::scalar(SourceKind::Int64).named("io.debezium.time.NanoTimestamp");
    let value = Value::Int64(1_700_000_000_123_456_789);
    assert_eq!(
        created(nanos.clone(), value.clone(), &options),
        pair("timestamp_ns", "1700000000123456789")
    );
    // A table of version 2 has no such column: nothing is cut.
    assert_eq!(
        created(nanos, value, &CreateOptions::default()),
        pair("timestamp", LOSS)
    );
    for kind in [PrimitiveType::TimestampNs, PrimitiveType::TimestamptzNs] {
        let text = Value::text("2023-11-14T22:13:20.123456789Z");
        assert_eq!(land(&primitive(kind), text), "1700000000123456789");
    }
    // Well-known binary lands as bytes, with its reference system.
    let geometry = SourceSchema::structure([
        ("wkb", SourceSchema::scalar(SourceKind::Bytes).optional()),
        ("srid", SourceSchema::scalar(SourceKind::Int32).optional()),
    ]);
    let geometry = geometry.named("io.debezium.data.geometry.Geometry");
    let binary = primitive(PrimitiveType::Binary);
    let wkb = |bytes: &[u8], srid| Value::Struct(vec![Value::Bytes(bytes.to_vec()), srid]);
    let point = [1, 1, 0, 0, 0, 7, 8];
    let land = |value| land_with(&binary, geometry.clone(), value);
    assert_eq!(land(wkb(&point, Value::Null)), "01010000000708");
    assert_eq!(
        land(wkb(&point, Value::Int32(4326))),
        "0101000020e61000000708"
    );
    assert_eq!(
        land(wkb(&[0, 0, 0, 0, 1, 9], Value::Int32(1))),
        "00200000010000000109"
    );
    let extended = [1, 1, 0, 0, 0x20, 0xe6, 0x10, 0, 0, 7];
    assert_eq!(
        land(wkb(&extended, Value::Int32(4326))),
        "0101000020e610000007"
    );
    assert_eq!(
        land(wkb(&extended, Value::Int32(1))),
        "FIELD_NAME_AMBIGUOUS"
    );
    assert_eq!(land(wkb(&[2], Value::Int32(1))), FORM);
    assert_eq!(land(Value::Struct(vec![Value::Null, Value::Null])), NOT);
}

#[test]
fn lists_and_maps_without_a_schema_get_the_type_of_all_they_hold() {
    let list = |items: Vec<Value>| inferred(Value::Array(items));
    let shown = |(_, shown): (String, String)| shown;
    let mixed = list(vec![Value::Int64(1), Value::Null, Value::text("a")]);
    assert_eq!(mixed, pair("string", r#"[1,null,"a"]"#));
    assert_eq!(
        shown(list(vec![Value::Int64(1), Value::Float64(2.5)])),
        "[1,2.5]"
    );
    let structs = [("a", Value::Int64(1)), ("b", Value::text("x"))];
    let structs = structs.map(|field| Value::object([field])).to_vec();
    assert_eq!(shown(list(structs)), "[(1,null),(null,x)]");
    let lists = vec![Value::Array(vec![]), Value::Array(vec![Value::Int64(1)])];
    assert_eq!(shown(list(lists)), "[[],[1]]");
    let decimals = vec![Value::Decimal(15, 1), Value::Decimal(12_345, 3)];
    assert_eq!(shown(list(decimals)), "[1.500,12.345]");
    let keyed = vec![
        (Value::Int64(1), Value::Bool(true)),
        (Value::Int64(2), Value::Null),
    ];
    assert_eq!(shown(inferred(Value::Map(keyed))), "{1,2:true,null}");
    let odd = vec![
        (Value::Int64(1), Value::Int64(1)),
        (Value::text("k"), Value::Int64(2)),
    ];
    assert_eq!(
        inferred(Value::Map(odd)),
        pair("string", r#"{"1":1,"k":2}"#)
    );
}

#[test]
fn text_without_a_schema_is_base64_for_columns_of_bytes() {
    let binary = primitive(PrimitiveType::Binary);
    assert_eq!(land(&binary, Value::text("AQID")), "010203");
    assert_eq!(land(&binary, Value::text("")), "");
    assert_eq!(
        land(&primitive(PrimitiveType::Fixed(3)), Value::text("AQID")),
        "010203"
    );
    let text = SourceSchema::scalar(SourceKind::String);
    assert_eq!(land_with(&binary, text, Value::text("AQID")), NOT);
}
