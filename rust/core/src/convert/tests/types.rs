//! What each column type takes from each kind of value.

use iceberg::spec::{PrimitiveType, Type};

use super::*;

#[test]
fn every_kind_of_value_meets_every_column_type() {
    let text = Value::text;
    let uuid_bytes = vec![0xAB; 16];
    #[rustfmt::skip]
    let cases: Vec<(Value, [&str; 17])> = vec![
        // boolean int long float double decimal(10,2) date time timestamp timestamptz string uuid fixed[3] binary list map struct
        (Value::Null, ["null"; 17]),
        (Value::Bool(true), ["true", NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, "true", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Int8(-7), [NOT, "-7", "-7", "-7", "-7", "-7.00", UNIT, UNIT, UNIT, UNIT, "-7", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Int16(300), [NOT, "300", "300", "300", "300", "300.00", UNIT, UNIT, UNIT, UNIT, "300", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Int32(7), [NOT, "7", "7", "7", "7", "7.00", UNIT, UNIT, UNIT, UNIT, "7", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Int64(3_000_000_000), [NOT, RANGE, "3000000000", "3000000000", "3000000000", RANGE, UNIT, UNIT, UNIT, UNIT, "3000000000", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Int64(9_007_199_254_740_993), [NOT, RANGE, "9007199254740993", LOSS, LOSS, RANGE, UNIT, UNIT, UNIT, UNIT, "9007199254740993", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Float32(1.5), [NOT, LOSS, LOSS, "1.5", "1.5", "1.50", UNIT, UNIT, UNIT, UNIT, "1.5", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Float64(4.0), [NOT, "4", "4", "4", "4", "4.00", UNIT, UNIT, UNIT, UNIT, "4.0", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Float64(12.3456), [NOT, LOSS, LOSS, "12.3456", "12.3456", LOSS, UNIT, UNIT, UNIT, UNIT, "12.3456", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Float64(1e30), [NOT, RANGE, RANGE, "1000000000000000000000000000000", "1000000000000000000000000000000", RANGE, UNIT, UNIT, UNIT, UNIT, "1e30", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Float64(f64::NAN), [NOT, NOT, NOT, "NaN", "NaN", NOT, UNIT, UNIT, UNIT, UNIT, "NaN", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Decimal(1250, 3), [NOT, LOSS, LOSS, "1.25", "1.25", "1.25", UNIT, UNIT, UNIT, UNIT, "1.250", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Decimal(1, -2), [NOT, "100", "100", "100", "100", "100.00", UNIT, UNIT, UNIT, UNIT, "100", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Decimal(1005, 3), [NOT, LOSS, LOSS, "1.005", "1.005", LOSS, UNIT, UNIT, UNIT, UNIT, "1.005", NOT, NOT, NOT, NOT, NOT, NOT]),
        (text("TRUE"), ["true", FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, "TRUE", FORM, "4d1504", "4d1504", NOT, NOT, NOT]),
        (text("yes"), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, "yes", FORM, FORM, FORM, NOT, NOT, NOT]),
        (text(""), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, "", FORM, LENGTH, "", NOT, NOT, NOT]),
        (text("12"), [FORM, "12", "12", "12", "12", "12.00", FORM, FORM, FORM, FORM, "12", FORM, FORM, FORM, NOT, NOT, NOT]),
        (text("2.50"), [FORM, FORM, FORM, "2.5", "2.5", "2.50", FORM, FORM, FORM, FORM, "2.50", FORM, FORM, FORM, NOT, NOT, NOT]),
        (text("2024-01-02"), [FORM, FORM, FORM, FORM, FORM, FORM, "19724", FORM, "1704153600000000", "1704153600000000", "2024-01-02", FORM, FORM, FORM, NOT, NOT, NOT]),
        (text("10:11:12"), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, "36672000000", FORM, FORM, "10:11:12", FORM, FORM, FORM, NOT, NOT, NOT]),
        (text("2024-01-02T12:04:05+01:00"), [FORM, FORM, FORM, FORM, FORM, FORM, LOSS, FORM, "1704193445000000", "1704193445000000", "2024-01-02T12:04:05+01:00", FORM, FORM, FORM, NOT, NOT, NOT]),
        (text("2024-01-02T11:04:05.1234567"), [FORM, FORM, FORM, FORM, FORM, FORM, LOSS, FORM, LOSS, LOSS, "2024-01-02T11:04:05.1234567", FORM, FORM, FORM, NOT, NOT, NOT]),
        (text(UUID), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, UUID, UUID_HEX, FORM, FORM, NOT, NOT, NOT]),
        (Value::Bytes(b"abc".to_vec()), [NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, "YWJj", LENGTH, "616263", "616263", NOT, NOT, NOT]),
        (Value::Bytes(uuid_bytes), [NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, "q6urq6urq6urq6urq6urqw==", "abababababababababababababababab", LENGTH, "abababababababababababababababab", NOT, NOT, NOT]),
        (Value::Date(1), [NOT, "1", "1", NOT, NOT, NOT, "1", NOT, "86400000000", "86400000000", "1970-01-02", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Time(1_000), [NOT, "1000", "1000", NOT, NOT, NOT, NOT, "1000000", NOT, NOT, "00:00:01", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Time(86_400_000), [NOT, "86400000", "86400000", NOT, NOT, NOT, NOT, RANGE, NOT, NOT, RANGE, NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Timestamp(-1), [NOT, "-1", "-1", NOT, NOT, NOT, "-1", NOT, "-1000", "-1000", "1969-12-31T23:59:59.999Z", NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Timestamp(i64::MAX), [NOT, RANGE, "9223372036854775807", NOT, NOT, NOT, RANGE, NOT, RANGE, RANGE, RANGE, NOT, NOT, NOT, NOT, NOT, NOT]),
        (Value::Array(vec![Value::Int64(1), Value::Null]), [NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, "[1,null]", NOT, NOT, NOT, "[1,null]", NOT, NOT]),
        (Value::Array(vec![]), [NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, "[]", NOT, NOT, NOT, "[]", NOT, NOT]),
        (Value::object([("x", Value::Int64(1))]), [NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, NOT, r#"{"x":1}"#, NOT, NOT, NOT, NOT, "{x:1}", "(1)"]),
    ];
    let targets = targets();
    for (value, expected) in cases {
        for (target, expected) in targets.iter().zip(expected) {
            assert_eq!(
                land(target, value.clone()),
                expected,
                "{value:?} into {target}"
            );
        }
    }
}

#[test]
fn debezium_names_give_numbers_their_unit() {
    let long = SourceSchema::scalar(SourceKind::Int64);
    let int = SourceSchema::scalar(SourceKind::Int32);
    let dbz =
        |schema: &SourceSchema, name: &str| schema.clone().named(&format!("io.debezium.{name}"));
    let timestamp = primitive(PrimitiveType::Timestamp);
    let timestamptz = primitive(PrimitiveType::Timestamptz);
    let time = primitive(PrimitiveType::Time);
    let string = primitive(PrimitiveType::String);
    let micros = dbz(&long, "time.MicroTimestamp");
    let nanos = dbz(&long, "time.NanoTimestamp");
    let value = Value::Int64;
    // T8: microseconds stay microseconds in both kinds of timestamp column.
    assert_eq!(
        land_with(&timestamp, micros.clone(), value(1_700_000_000_123_456)),
        "1700000000123456"
    );
    assert_eq!(
        land_with(&timestamptz, micros.clone(), value(1_700_000_000_123_456)),
        "1700000000123456"
    );
    assert_eq!(
        land_with(&string, micros.clone(), value(1_700_000_000_123_456)),
        "2023-11-14T22:13:20.123456"
    );
    assert_eq!(
        land_with(&primitive(PrimitiveType::Long), micros, value(5)),
        "5"
    );
    assert_eq!(land_with(&timestamp, nanos.clone(), value(1_000)), "1");
    assert_eq!(land_with(&timestamp, nanos.clone(), value(1_001)), LOSS);
    assert_eq!(
        land_with(&primitive(PrimitiveType::TimestampNs), nanos, value(1_001)),
        "1001"
    );
    assert_eq!(
        land_with(&timestamp, dbz(&long, "time.Timestamp"), value(-1)),
        "-1000"
    );
    assert_eq!(
        land_with(&timestamp, dbz(&long, "time.Timestamp"), value(i64::MAX)),
        RANGE
    );
    assert_eq!(
        land_with(&time, dbz(&int, "time.Time"), Value::Int32(1)),
        "1000"
    );
    assert_eq!(
        land_with(&time, dbz(&long, "time.MicroTime"), value(1)),
        "1"
    );
    assert_eq!(
        land_with(&time, dbz(&long, "time.MicroTime"), value(-1)),
        RANGE
    );
    assert_eq!(
        land_with(&time, dbz(&long, "time.NanoTime"), value(1_500)),
        LOSS
    );
    assert_eq!(
        land_with(
            &primitive(PrimitiveType::Date),
            dbz(&int, "time.Date"),
            Value::Int32(-1)
        ),
        "-1"
    );
}

#[test]
fn a_bare_number_and_a_name_on_the_wrong_kind_have_no_unit() {
    let timestamp = primitive(PrimitiveType::Timestamp);
    let long = SourceSchema::scalar(SourceKind::Int64);
    let wrong = SourceSchema::scalar(SourceKind::Int32).named("io.debezium.time.Timestamp");
    assert_eq!(land_with(&timestamp, long, Value::Int64(1)), UNIT);
    assert_eq!(land_with(&timestamp, wrong, Value::Int32(1)), UNIT);
}

#[test]
fn a_decimal_with_its_own_scale_lands_exactly() {
    let string = primitive(PrimitiveType::String);
    let decimal = SourceSchema::structure([
        ("scale", SourceSchema::scalar(SourceKind::Int32)),
        ("value", SourceSchema::scalar(SourceKind::Bytes)),
    ]);
    let decimal = decimal.named("io.debezium.data.VariableScaleDecimal");
    let number = Value::Struct(vec![Value::Int32(2), Value::Bytes(vec![0x04, 0xD2])]);
    assert_eq!(land_with(&string, decimal.clone(), number.clone()), "12.34");
    assert_eq!(
        land_with(
            &Type::decimal(10, 3).unwrap(),
            decimal.clone(),
            number.clone()
        ),
        "12.340"
    );
    assert_eq!(
        land_with(&Type::decimal(10, 1).unwrap(), decimal, number),
        LOSS
    );
}

#[test]
fn a_timestamp_in_parts_is_one_timestamp() {
    let optional = |kind| SourceSchema::scalar(kind).optional();
    let schema = SourceSchema::structure([
        ("year", optional(SourceKind::Int32)),
        ("month", optional(SourceKind::Int8)),
        ("day", optional(SourceKind::Int8)),
        ("hour", optional(SourceKind::Int8)),
        ("minute", optional(SourceKind::Int8)),
        ("second", optional(SourceKind::Int8)),
        ("picoseconds", optional(SourceKind::Int64)),
        ("offsetSeconds", optional(SourceKind::Int32)),
        ("specialValue", optional(SourceKind::String)),
    ]);
    let schema = schema.named("io.debezium.time.StructuredZonedTimestamp");
    let parts = |year, [month, day, hour, minute, second]: [i8; 5], picos, offset| {
        let mut all = vec![Value::Int32(year)];
        all.extend([month, day, hour, minute, second].map(Value::Int8));
        all.extend([Value::Int64(picos), Value::Int32(offset), Value::Null]);
        Value::Struct(all)
    };
    let timestamp = primitive(PrimitiveType::Timestamptz);
    let at = |value| land_with(&timestamp, schema.clone(), value);
    let right = parts(2023, [5, 18, 7, 14, 21], 260_514_000_000, -28_800);
    assert_eq!(at(right.clone()), "1684422861260514");
    assert_eq!(at(parts(2023, [5, 18, 7, 14, 21], 1_000, 0)), LOSS);
    assert_eq!(at(parts(2023, [5, 18, 7, 14, 21], 1, 0)), LOSS);
    assert_eq!(at(parts(0, [0, 0, 0, 0, 0], 0, 0)), RANGE);
    assert_eq!(at(parts(2023, [2, 29, 0, 0, 0], 0, 0)), RANGE);
    assert_eq!(at(parts(2023, [5, 18, 24, 0, 0], 0, 0)), RANGE);
    assert_eq!(at(parts(300_000, [5, 18, 0, 0, 0], 0, 0)), RANGE);
    let mut infinity = vec![Value::Null; 8];
    infinity.push(Value::text("POSITIVE_INFINITY"));
    assert_eq!(at(Value::Struct(infinity)), RANGE);
    assert_eq!(at(Value::Struct(vec![Value::Null; 9])), NOT);
    let date = primitive(PrimitiveType::Date);
    assert_eq!(land_with(&date, schema.clone(), right), LOSS);
    let midnight = parts(1969, [12, 31, 1, 0, 0], 0, 3_600);
    assert_eq!(land_with(&date, schema, midnight), "-1");
}

#[test]
fn a_connect_timestamp_is_a_date_only_at_midnight() {
    let schema = SourceSchema::logical_type(LogicalType::Timestamp);
    let date = primitive(PrimitiveType::Date);
    assert_eq!(
        land_with(&date, schema.clone(), Value::Timestamp(86_400_000)),
        "1"
    );
    assert_eq!(land_with(&date, schema, Value::Timestamp(-1)), LOSS);
    let schema = SourceSchema::logical_type(LogicalType::Decimal { scale: 2 });
    let decimal = Type::decimal(10, 2).unwrap();
    assert_eq!(
        land_with(&decimal, schema, Value::Decimal(-1250, 2)),
        "-12.50"
    );
}

#[test]
fn the_numbers_that_the_peer_changes_land_right() {
    // T9
    let decimal = Type::decimal(38, 0).unwrap();
    assert_eq!(
        land(&decimal, Value::Float64(1e20)),
        "100000000000000000000"
    );
    assert_eq!(
        land(&primitive(PrimitiveType::Int), Value::Float64(2.5)),
        LOSS
    );
    assert_eq!(
        land(&primitive(PrimitiveType::Date), Value::Timestamp(-1)),
        "-1"
    );
    assert_eq!(
        land(&primitive(PrimitiveType::Boolean), Value::text("yes")),
        FORM
    );
    // T11
    assert_eq!(
        land(&primitive(PrimitiveType::Uuid), Value::text(UUID)),
        UUID_HEX
    );
}

#[test]
fn strings_take_timestamps_bytes_and_lists_of_structs() {
    // T14
    let string = primitive(PrimitiveType::String);
    let timestamp = SourceSchema::logical_type(LogicalType::Timestamp);
    assert_eq!(
        land_with(&string, timestamp, Value::Timestamp(1_700_000_000_123)),
        "2023-11-14T22:13:20.123Z"
    );
    let bytes = SourceSchema::scalar(SourceKind::Bytes);
    assert_eq!(
        land_with(&string, bytes, Value::Bytes(vec![65, 66])),
        "QUI="
    );
    let structs = SourceSchema::array(SourceSchema::structure([
        ("x", SourceSchema::scalar(SourceKind::Int32)),
        (
            "t",
            SourceSchema::scalar(SourceKind::Int64)
                .named("io.debezium.time.MicroTimestamp")
                .optional(),
        ),
    ]));
    let value = Value::Array(vec![Value::Struct(vec![Value::Int32(1), Value::Int64(0)])]);
    assert_eq!(
        land_with(&string, structs, value),
        r#"[{"x":1,"t":"1970-01-01T00:00:00"}]"#
    );
    let odd = Value::object([
        ("q\"", Value::Float64(f64::INFINITY)),
        ("d", Value::Decimal(12_345_678_901_234_567_890_123, 3)),
        ("b", Value::Bytes(vec![0xFF])),
    ]);
    assert_eq!(
        land(&string, odd),
        r#"{"q\"":"Infinity","d":12345678901234567890.123,"b":"/w=="}"#
    );
}
