//! Tests of whole frames: what lands, and what is refused with which code.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use iceberg::spec::{
    ListType, Literal, MapType, NestedField, PrimitiveType, Schema, StructType, Type,
};
use proptest::prelude::*;

use super::batch::{ConvertOptions, TableConverter};
use crate::error::SinkError;
use crate::schema::MetadataColumn;
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Frame, LogicalType, SourceKind, SourceSchema};

fn primitive(primitive: PrimitiveType) -> Type {
    Type::Primitive(primitive)
}

fn list(element: Type, required: bool) -> Type {
    Type::List(ListType {
        element_field: Arc::new(NestedField::list_element(101, element, required)),
    })
}

fn map(key: Type, value: Type) -> Type {
    Type::Map(MapType {
        key_field: Arc::new(NestedField::map_key_element(102, key)),
        value_field: Arc::new(NestedField::map_value_element(103, value, false)),
    })
}

fn structure(fields: Vec<NestedField>) -> Type {
    Type::Struct(StructType::new(fields.into_iter().map(Arc::new).collect()))
}

fn table(fields: Vec<NestedField>) -> Arc<Schema> {
    let fields = fields.into_iter().map(Arc::new);
    Arc::new(Schema::builder().with_fields(fields).build().unwrap())
}

fn column(field_type: Type) -> Arc<Schema> {
    table(vec![NestedField::optional(1, "v", field_type)])
}

/// Converts all rows of `frames`; returns the batch and the refused rows.
fn convert(
    schema: &Arc<Schema>,
    options: &ConvertOptions,
    frames: &[FrameBuilder],
) -> (RecordBatch, Vec<(u32, SinkError)>) {
    let mut converter = TableConverter::new(Arc::clone(schema), options).unwrap();
    let mut refused = Vec::new();
    for frame in frames {
        let bytes = frame.encode();
        let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
        let rows: Vec<u32> = (0..u32::try_from(decoded.rows()).unwrap()).collect();
        let mut reject = |row, error| refused.push((row, error));
        converter.append(&decoded, &rows, &mut reject).unwrap();
    }
    let rows = converter.rows();
    let batch = converter.finish().unwrap();
    assert_eq!(batch.num_rows(), rows);
    assert_eq!(converter.rows(), 0);
    (batch, refused)
}

fn codes(refused: &[(u32, SinkError)]) -> Vec<(u32, &'static str)> {
    refused
        .iter()
        .map(|(row, error)| (*row, error.code()))
        .collect()
}

fn schemaless(values: impl IntoIterator<Item = Value>) -> FrameBuilder {
    let rows = values.into_iter().enumerate();
    FrameBuilder::schemaless()
        .rows(rows.map(|(offset, value)| Row::new("t", 0, offset as i64).value(value)))
}

fn structs(id: u32, schema: SourceSchema, values: impl IntoIterator<Item = Value>) -> FrameBuilder {
    let rows = values.into_iter().enumerate();
    FrameBuilder::with_value_schema(id, schema)
        .rows(rows.map(|(offset, value)| Row::new("t", 0, offset as i64).value(value)))
}

/// Lands one schemaless value in the column `v`: its text, or the code.
fn land(field_type: &Type, value: Value) -> String {
    let frame = schemaless([Value::object([("v", value)])]);
    landed(&column(field_type.clone()), frame)
}

/// Lands one value with a schema in the column `v`.
fn land_with(field_type: &Type, schema: SourceSchema, value: Value) -> String {
    let schema = SourceSchema::structure([("v", schema.optional())]);
    let frame = structs(1, schema, [Value::Struct(vec![value])]);
    landed(&column(field_type.clone()), frame)
}

fn landed(schema: &Arc<Schema>, frame: FrameBuilder) -> String {
    let (batch, refused) = convert(schema, &ConvertOptions::default(), &[frame]);
    match refused.first() {
        Some((_, error)) => {
            assert_eq!(batch.num_rows(), 0);
            error.code().to_owned()
        }
        None => show(batch.column(0), 0),
    }
}

/// Shows a value as it is stored.
fn show(array: &dyn Array, row: usize) -> String {
    if array.is_null(row) {
        return "null".to_owned();
    }
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let all = |array: &dyn Array| {
        let items = (0..array.len()).map(|item| show(array, item));
        items.collect::<Vec<_>>().join(",")
    };
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float32 => array.as_primitive::<Float32Type>().value(row).to_string(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Decimal128(..) => array.as_primitive::<Decimal128Type>().value_as_string(row),
        DataType::Date32 => array.as_primitive::<Date32Type>().value(row).to_string(),
        DataType::Time64(_) => array
            .as_primitive::<Time64MicrosecondType>()
            .value(row)
            .to_string(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => array
            .as_primitive::<TimestampMicrosecondType>()
            .value(row)
            .to_string(),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => array
            .as_primitive::<TimestampNanosecondType>()
            .value(row)
            .to_string(),
        DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        DataType::FixedSizeBinary(_) => hex(array.as_fixed_size_binary().value(row)),
        DataType::LargeBinary => hex(array.as_binary::<i64>().value(row)),
        DataType::List(_) => format!("[{}]", all(&array.as_list::<i32>().value(row))),
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let keys = all(entries.column(0));
            format!("{{{keys}:{}}}", all(entries.column(1)))
        }
        DataType::Struct(_) => {
            let fields = array.as_struct().columns().iter();
            let fields = fields.map(|field| show(field, row)).collect::<Vec<_>>();
            format!("({})", fields.join(","))
        }
        other => panic!("unexpected {other}"),
    }
}

const RANGE: &str = "VALUE_OUT_OF_RANGE";
const LOSS: &str = "VALUE_PRECISION_LOSS";
const NOT: &str = "VALUE_NOT_CONVERTIBLE";
const FORM: &str = "VALUE_MALFORMED";
const UNIT: &str = "VALUE_UNIT_UNKNOWN";
const LENGTH: &str = "VALUE_WRONG_LENGTH";
const UUID: &str = "f24f9b64-81fa-49d1-b74e-8c09a6e31c56";
const UUID_HEX: &str = "f24f9b6481fa49d1b74e8c09a6e31c56";

fn targets() -> [Type; 17] {
    [
        primitive(PrimitiveType::Boolean),
        primitive(PrimitiveType::Int),
        primitive(PrimitiveType::Long),
        primitive(PrimitiveType::Float),
        primitive(PrimitiveType::Double),
        Type::decimal(10, 2).unwrap(),
        primitive(PrimitiveType::Date),
        primitive(PrimitiveType::Time),
        primitive(PrimitiveType::Timestamp),
        primitive(PrimitiveType::Timestamptz),
        primitive(PrimitiveType::String),
        primitive(PrimitiveType::Uuid),
        primitive(PrimitiveType::Fixed(3)),
        primitive(PrimitiveType::Binary),
        list(primitive(PrimitiveType::Int), false),
        map(
            primitive(PrimitiveType::String),
            primitive(PrimitiveType::Int),
        ),
        structure(vec![NestedField::optional(
            110,
            "x",
            primitive(PrimitiveType::Int),
        )]),
    ]
}

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
        (text("TRUE"), ["true", FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, "TRUE", FORM, NOT, NOT, NOT, NOT, NOT]),
        (text("yes"), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, "yes", FORM, NOT, NOT, NOT, NOT, NOT]),
        (text(""), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, "", FORM, NOT, NOT, NOT, NOT, NOT]),
        (text("12"), [FORM, "12", "12", "12", "12", "12.00", FORM, FORM, FORM, FORM, "12", FORM, NOT, NOT, NOT, NOT, NOT]),
        (text("2.50"), [FORM, FORM, FORM, "2.5", "2.5", "2.50", FORM, FORM, FORM, FORM, "2.50", FORM, NOT, NOT, NOT, NOT, NOT]),
        (text("2024-01-02"), [FORM, FORM, FORM, FORM, FORM, FORM, "19724", FORM, FORM, FORM, "2024-01-02", FORM, NOT, NOT, NOT, NOT, NOT]),
        (text("10:11:12"), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, "36672000000", FORM, FORM, "10:11:12", FORM, NOT, NOT, NOT, NOT, NOT]),
        (text("2024-01-02T12:04:05+01:00"), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, "1704193445000000", "1704193445000000", "2024-01-02T12:04:05+01:00", FORM, NOT, NOT, NOT, NOT, NOT]),
        (text("2024-01-02T11:04:05.1234567"), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, LOSS, LOSS, "2024-01-02T11:04:05.1234567", FORM, NOT, NOT, NOT, NOT, NOT]),
        (text(UUID), [FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, FORM, UUID, UUID_HEX, NOT, NOT, NOT, NOT, NOT]),
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
    // The same numbers without a name have no unit; a name on the wrong kind is no name.
    assert_eq!(land_with(&timestamp, long.clone(), value(1)), UNIT);
    assert_eq!(
        land_with(&timestamp, dbz(&int, "time.Timestamp"), Value::Int32(1)),
        UNIT
    );
    let decimal = SourceSchema::structure([
        ("scale", SourceSchema::scalar(SourceKind::Int32)),
        ("value", SourceSchema::scalar(SourceKind::Bytes)),
    ]);
    let decimal = dbz(&decimal, "data.VariableScaleDecimal");
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

fn orders() -> Arc<Schema> {
    let line = structure(vec![
        NestedField::required(20, "sku", primitive(PrimitiveType::String)),
        NestedField::optional(21, "count", primitive(PrimitiveType::Int)),
    ]);
    let tags = map(
        primitive(PrimitiveType::String),
        primitive(PrimitiveType::Int),
    );
    table(vec![
        NestedField::required(1, "id", primitive(PrimitiveType::Int)),
        NestedField::optional(2, "name", primitive(PrimitiveType::String)),
        NestedField::optional(3, "lines", list(line, true)),
        NestedField::optional(4, "tags", tags),
        NestedField::optional(5, "at", primitive(PrimitiveType::Timestamptz)),
    ])
}

fn order(id: Value, lines: Vec<Value>, tag: Value) -> Value {
    Value::object([
        ("id", id),
        ("name", Value::text("Zoë")),
        ("lines", Value::Array(lines)),
        ("tags", Value::object([("a", Value::Int64(1)), ("b", tag)])),
    ])
}

fn line(sku: Value, count: Value) -> Value {
    Value::object([("count", count), ("sku", sku)])
}

#[test]
fn a_refused_row_leaves_no_trace_in_any_column() {
    let good = |id| {
        order(
            Value::Int64(id),
            vec![line(Value::text("s"), Value::Int64(2))],
            Value::Null,
        )
    };
    let frame = schemaless([
        good(1),
        order(
            Value::text("x"),
            vec![line(Value::text("s"), Value::Int64(2))],
            Value::Null,
        ),
        order(
            Value::Int64(3),
            vec![
                line(Value::text("s"), Value::Int64(2)),
                line(Value::Null, Value::Int64(2)),
            ],
            Value::Null,
        ),
        order(
            Value::Int64(4),
            vec![line(Value::text("s"), Value::Float64(0.5))],
            Value::Null,
        ),
        order(Value::Int64(5), vec![], Value::Int64(1 << 40)),
        Value::text("no record"),
        Value::Null,
        Value::object([("name", Value::text("no id"))]),
        good(8),
    ]);
    let (batch, refused) = convert(
        &orders(),
        &ConvertOptions::default(),
        &[frame.clone(), frame],
    );
    let once = [
        (1, FORM),
        (2, "REQUIRED_FIELD_NULL"),
        (3, LOSS),
        (4, RANGE),
        (5, "VALUE_NOT_A_RECORD"),
        (6, "VALUE_NOT_A_RECORD"),
        (7, "REQUIRED_FIELD_NULL"),
    ];
    assert_eq!(codes(&refused), [once, once].concat());
    assert_eq!(
        refused[1].1.context()[0],
        ("column", "lines.element.sku".to_owned())
    );
    assert_eq!(
        refused[3].1.context()[0],
        ("column", "tags.value".to_owned())
    );
    let ids: Vec<_> = (0..4).map(|row| show(batch.column(0), row)).collect();
    assert_eq!(ids, ["1", "8", "1", "8"]);
    for row in 0..4 {
        assert_eq!(show(batch.column(1), row), "Zoë");
        assert_eq!(show(batch.column(2), row), "[(s,2)]");
        assert_eq!(show(batch.column(3), row), "{a,b:1,null}");
        assert_eq!(show(batch.column(4), row), "null");
    }
    assert!(
        !refused[0].1.report().contains("Zo"),
        "{}",
        refused[0].1.report()
    );
}

/// A source with one field of each kind that is copied as a whole.
fn wide_source(optional: bool) -> SourceSchema {
    let kinds = [
        SourceKind::Boolean,
        SourceKind::Int8,
        SourceKind::Int16,
        SourceKind::Int32,
        SourceKind::Int64,
        SourceKind::Float32,
        SourceKind::Float64,
        SourceKind::String,
        SourceKind::Bytes,
    ];
    let logical = [LogicalType::Date, LogicalType::Timestamp];
    let scalars = kinds.into_iter().map(SourceSchema::scalar);
    let schemas = scalars.chain(logical.into_iter().map(SourceSchema::logical_type));
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    SourceSchema::structure(
        names
            .into_iter()
            .zip(schemas)
            .map(|(name, schema)| (name, if optional { schema.optional() } else { schema })),
    )
}

fn wide_table(required: bool) -> Arc<Schema> {
    let types = [
        PrimitiveType::Boolean,
        PrimitiveType::Int,
        PrimitiveType::Int,
        PrimitiveType::Long,
        PrimitiveType::Long,
        PrimitiveType::Float,
        PrimitiveType::Double,
        PrimitiveType::String,
        PrimitiveType::Binary,
        PrimitiveType::Date,
        PrimitiveType::Timestamptz,
    ];
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    let fields = types.into_iter().zip(names).zip(1..);
    table(
        fields
            .map(|((t, name), id)| NestedField::new(id, name, primitive(t), required))
            .collect(),
    )
}

fn wide_row(seed: i64) -> Vec<Value> {
    vec![
        Value::Bool(seed % 2 == 0),
        Value::Int8(seed as i8),
        Value::Int16(seed as i16),
        Value::Int32(seed as i32),
        Value::Int64(seed),
        Value::Float32(seed as f32),
        Value::Float64(seed as f64),
        Value::String(format!("é{seed}")),
        Value::Bytes(seed.to_le_bytes().to_vec()),
        Value::Date(seed as i32),
        Value::Timestamp(seed),
    ]
}

#[test]
fn whole_columns_land_as_single_values_do() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    let mut rows: Vec<Vec<Value>> = (-3..60).map(wide_row).collect();
    for (index, row) in rows.iter_mut().enumerate() {
        row[index % 11] = if index % 3 == 0 {
            Value::Null
        } else {
            row[index % 11].clone()
        };
    }
    let columnar = structs(
        1,
        wide_source(true),
        rows.iter().cloned().map(Value::Struct),
    );
    let single = schemaless(
        rows.iter()
            .map(|row| Value::object(names.into_iter().zip(row.iter().cloned()))),
    );
    for required in [false, true] {
        let table = wide_table(required);
        let (fast, refused_fast) = convert(
            &table,
            &ConvertOptions::default(),
            std::slice::from_ref(&columnar),
        );
        let (slow, refused_slow) = convert(
            &table,
            &ConvertOptions::default(),
            std::slice::from_ref(&single),
        );
        assert_eq!(fast, slow);
        assert_eq!(codes(&refused_fast), codes(&refused_slow));
        assert_eq!(refused_fast.is_empty(), !required);
    }
}

#[test]
fn chosen_rows_land_in_their_order() {
    let frame = structs(
        1,
        wide_source(false),
        (0..10).map(|seed| Value::Struct(wide_row(seed))),
    );
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let mut converter = TableConverter::new(wide_table(true), &ConvertOptions::default()).unwrap();
    for rows in [&[7, 2, 9][..], &[3, 4, 5], &[], &[0]] {
        converter
            .append(&decoded, rows, &mut |_, error| panic!("{error:?}"))
            .unwrap();
    }
    assert_eq!(converter.rows(), 7);
    assert!(converter.bytes() > 7 * 50, "{}", converter.bytes());
    let batch = converter.finish().unwrap();
    let column = |index| {
        (0..7)
            .map(|row| show(batch.column(index), row))
            .collect::<Vec<_>>()
    };
    assert_eq!(column(4), ["7", "2", "9", "3", "4", "5", "0"]);
    assert_eq!(column(7), ["é7", "é2", "é9", "é3", "é4", "é5", "é0"]);
    assert_eq!(
        column(0),
        ["false", "true", "false", "false", "true", "false", "true"]
    );
}

#[test]
fn a_timestamp_out_of_range_is_refused_alone() {
    let schema =
        SourceSchema::structure([("v", SourceSchema::logical_type(LogicalType::Timestamp))]);
    let values = [1, i64::MAX, 3].map(|ms| Value::Struct(vec![Value::Timestamp(ms)]));
    let table = column(primitive(PrimitiveType::Timestamp));
    let (batch, refused) = convert(
        &table,
        &ConvertOptions::default(),
        &[structs(1, schema, values)],
    );
    assert_eq!(codes(&refused), [(1, RANGE)]);
    assert_eq!(
        [show(batch.column(0), 0), show(batch.column(0), 1)],
        ["1000", "3000"]
    );
}

#[test]
fn names_match_by_the_rule_of_the_table() {
    let table = table(vec![NestedField::optional(
        1,
        "v",
        primitive(PrimitiveType::Long),
    )]);
    let both = [("v", Value::Int64(1)), ("V", Value::Int64(7))];
    let exact = ConvertOptions::default();
    let folded = ConvertOptions {
        case_insensitive: true,
        ..exact.clone()
    };
    let frame = schemaless([Value::object(both.clone())]);
    let (batch, _) = convert(&table, &exact, std::slice::from_ref(&frame));
    assert_eq!(show(batch.column(0), 0), "1");
    // T21
    let (_, refused) = convert(&table, &folded, &[frame]);
    assert_eq!(codes(&refused), [(0, "FIELD_NAME_AMBIGUOUS")]);
    let long = || SourceSchema::scalar(SourceKind::Int64);
    let frame = structs(
        1,
        SourceSchema::structure([("v", long()), ("V", long())]),
        [Value::Struct(vec![Value::Int64(1), Value::Int64(7)])],
    );
    let (_, refused) = convert(&table, &folded, &[frame]);
    assert_eq!(codes(&refused), [(0, "FIELD_NAME_AMBIGUOUS")]);
    let frame = structs(
        1,
        SourceSchema::structure([("V", long())]),
        [Value::Struct(vec![Value::Int64(7)])],
    );
    let (batch, _) = convert(&table, &folded, &[frame]);
    assert_eq!(show(batch.column(0), 0), "7");
}

#[test]
fn metadata_columns_hold_where_a_record_came_from() {
    let fields = vec![
        NestedField::optional(1, "v", primitive(PrimitiveType::Long)),
        NestedField::required(2, "_topic", primitive(PrimitiveType::String)),
        NestedField::required(3, "_partition", primitive(PrimitiveType::Int)),
        NestedField::required(4, "_offset", primitive(PrimitiveType::Long)),
    ];
    let options = ConvertOptions {
        metadata_columns: MetadataColumn::ALL.to_vec(),
        ..ConvertOptions::default()
    };
    let value = || Value::object([("v", Value::Int64(1))]);
    let frame = FrameBuilder::schemaless().rows([
        Row::new("a", 0, 5).value(value()),
        Row::new("a", 0, 9).value(Value::object([("_offset", Value::Int64(1))])),
        Row::new("b", 3, 2).value(value()),
    ]);
    let (batch, refused) = convert(&table(fields), &options, &[frame]);
    assert_eq!(codes(&refused), [(1, "FIELD_NAME_AMBIGUOUS")]);
    let row = |row| {
        (1..4)
            .map(|c| show(batch.column(c), row))
            .collect::<Vec<_>>()
    };
    assert_eq!(row(0), ["a", "0", "5"]);
    assert_eq!(row(1), ["b", "3", "2"]);
    let error = TableConverter::new(column(primitive(PrimitiveType::Long)), &options).unwrap_err();
    assert_eq!(error.code(), "METADATA_COLUMN_MISSING");
}

#[test]
fn a_map_with_a_schema_keeps_the_meaning_of_its_values() {
    let value = SourceSchema::scalar(SourceKind::Int64).named("io.debezium.time.MicroTimestamp");
    let schema = SourceSchema::map(SourceSchema::scalar(SourceKind::String), value);
    let frame = structs(
        1,
        schema,
        [Value::object([
            ("v", Value::Int64(7)),
            ("w", Value::Int64(8)),
        ])],
    );
    let table = column(primitive(PrimitiveType::Timestamp));
    let (batch, refused) = convert(&table, &ConvertOptions::default(), &[frame]);
    assert_eq!(codes(&refused), []);
    assert_eq!(show(batch.column(0), 0), "7");
}

#[test]
fn a_missing_field_gets_the_write_default_and_a_null_stays_null() {
    let text = NestedField::optional(1, "v", primitive(PrimitiveType::String))
        .with_write_default(Literal::string("dflt"));
    let number = NestedField::required(2, "n", primitive(PrimitiveType::Long))
        .with_write_default(Literal::long(7));
    let frame = schemaless([
        Value::object([]),
        Value::object([("v", Value::Null), ("n", Value::Int64(1))]),
        Value::object([("n", Value::Null)]),
    ]);
    let (batch, refused) = convert(
        &table(vec![text, number]),
        &ConvertOptions::default(),
        &[frame],
    );
    assert_eq!(codes(&refused), [(2, "REQUIRED_FIELD_NULL")]);
    let row = |row| [show(batch.column(0), row), show(batch.column(1), row)];
    assert_eq!(row(0), ["dflt", "7"]);
    assert_eq!(row(1), ["null", "1"]);
}

#[test]
fn a_schemaless_record_that_brings_nothing_asks_for_nothing() {
    let nested = structure(vec![NestedField::optional(
        2,
        "x",
        primitive(PrimitiveType::Long),
    )]);
    let table = column(list(nested, false));
    let options = ConvertOptions {
        evolve: true,
        ..ConvertOptions::default()
    };
    let mut converter = TableConverter::new(table, &options).unwrap();
    let with = |name| {
        let element = Value::object([(name, Value::Int64(1))]);
        Value::object([("v", Value::Array(vec![element])), ("none", Value::Null)])
    };
    let frame = schemaless([with("x"), with("y")]);
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
    assert_eq!(converter.evolution(&decoded, &[0]), None);
    let evolution = converter.evolution(&decoded, &[0, 1]).unwrap();
    let [addition] = evolution.additions.as_slice() else {
        panic!("{evolution:?}");
    };
    assert_eq!(addition.parent, ["v", "element"]);
    assert_eq!(addition.field.name, "y");
}

#[test]
fn with_evolution_no_field_is_dropped_unseen() {
    let evolve = ConvertOptions {
        evolve: true,
        ..ConvertOptions::default()
    };
    let nested = structure(vec![NestedField::optional(
        2,
        "x",
        primitive(PrimitiveType::Long),
    )]);
    let table = column(nested);
    let with = |y: Value| Value::object([("v", Value::object([("x", Value::Int64(1)), ("y", y)]))]);
    let empty = Value::Array(vec![Value::Null]);
    let frame = schemaless([with(Value::Null), with(empty), with(Value::text("keep"))]);
    let (batch, refused) = convert(&table, &evolve, std::slice::from_ref(&frame));
    assert_eq!(batch.num_rows(), 2);
    assert_eq!(codes(&refused), [(2, "FIELD_NOT_IN_TABLE")]);
    let (batch, refused) = convert(&table, &ConvertOptions::default(), &[frame]);
    assert_eq!((batch.num_rows(), refused.len()), (3, 0));
}

#[test]
fn the_record_that_brings_a_nested_field_keeps_its_value() {
    // T10
    let nested = structure(vec![NestedField::optional(
        2,
        "x",
        primitive(PrimitiveType::Long),
    )]);
    let table = table(vec![NestedField::required(1, "s", nested)]);
    let source = SourceSchema::structure([(
        "s",
        SourceSchema::structure([
            ("x", SourceSchema::scalar(SourceKind::Int64)),
            ("y", SourceSchema::scalar(SourceKind::String)),
        ])
        .optional(),
    )]);
    let row = || {
        Value::Struct(vec![Value::Struct(vec![
            Value::Int64(1),
            Value::text("keep"),
        ])])
    };
    let frame = structs(1, source, [row(), row()]);
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let options = ConvertOptions {
        evolve: true,
        ..ConvertOptions::default()
    };
    let mut before = TableConverter::new(Arc::clone(&table), &options).unwrap();
    let evolution = before.evolution(&decoded, &[0, 1]).unwrap();
    let grown = Arc::new(evolution.apply(&table, 7).unwrap());
    assert_eq!(grown.field_by_name("s.y").map(|field| field.id), Some(8));
    let mut after = TableConverter::new(Arc::clone(&grown), &options).unwrap();
    assert_eq!(after.evolution(&decoded, &[0, 1]), None);
    let (batch, refused) = convert(&grown, &options, &[frame]);
    assert_eq!(codes(&refused), []);
    assert_eq!(
        [show(batch.column(0), 0), show(batch.column(0), 1)],
        ["(1,keep)", "(1,keep)"]
    );
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i8>().prop_map(Value::Int8),
        any::<i32>().prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        any::<f32>().prop_map(Value::Float32),
        any::<f64>().prop_map(Value::Float64),
        "[-0-9T:. eé]{0,12}".prop_map(Value::String),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bytes),
        (any::<i128>(), any::<i32>()).prop_map(|(unscaled, scale)| Value::Decimal(unscaled, scale)),
        (any::<i64>(), -5..40)
            .prop_map(|(unscaled, scale)| Value::Decimal(i128::from(unscaled), scale)),
        any::<i32>().prop_map(Value::Date),
        any::<i32>().prop_map(Value::Time),
        any::<i64>().prop_map(Value::Timestamp),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let key = "[xyz]".prop_map(Value::String);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key, inner), 0..4).prop_map(Value::Map),
        ]
    })
}

fn any_schema() -> Arc<Schema> {
    let mut fields: Vec<NestedField> = targets()
        .into_iter()
        .zip(1..)
        .map(|(target, id)| NestedField::optional(id, format!("c{id}"), target))
        .collect();
    fields.push(NestedField::required(
        40,
        "r",
        primitive(PrimitiveType::Long),
    ));
    table(fields)
}

proptest! {
    #[test]
    fn any_values_land_or_are_refused(
        rows in prop::collection::vec(prop::collection::vec(any_value(), 18), 1..6),
    ) {
        let names: Vec<String> = (1..18).map(|id| format!("c{id}")).chain(["r".to_owned()]).collect();
        let count = rows.len();
        let frame = schemaless(rows.into_iter().map(|row| {
            Value::object(names.iter().map(String::as_str).zip(row))
        }));
        let (batch, refused) = convert(&any_schema(), &ConvertOptions::default(), &[frame]);
        prop_assert_eq!(batch.num_rows() + refused.len(), count);
        prop_assert_eq!(batch.column(17).null_count(), 0);
    }

    #[test]
    fn integers_land_exactly(value in any::<i64>()) {
        let text = value.to_string();
        prop_assert_eq!(land(&primitive(PrimitiveType::Long), Value::Int64(value)), text.clone());
        prop_assert_eq!(land(&primitive(PrimitiveType::Long), Value::String(text.clone())), text.clone());
        prop_assert_eq!(land(&primitive(PrimitiveType::String), Value::Int64(value)), text.clone());
        prop_assert_eq!(land(&Type::decimal(19, 0).unwrap(), Value::Int64(value)), text);
    }

    #[test]
    fn decimals_land_exactly(unscaled in -(10_i128.pow(20))..10_i128.pow(20), scale in 0..18_u32) {
        let decimal = Type::decimal(38, scale).unwrap();
        let value = Value::Decimal(unscaled, i32::try_from(scale).unwrap());
        let text = land(&primitive(PrimitiveType::String), value.clone());
        prop_assert_eq!(land(&decimal, value), text.clone());
        prop_assert_eq!(land(&decimal, Value::String(text.clone())), text);
    }
}
