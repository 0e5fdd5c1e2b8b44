//! Tests of whole frames: what lands, and what is refused with which code.

mod complaints;
mod contract;
mod random;
mod roundtrip;
mod types;

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

use super::batch::{ConvertOptions, TableConverter};
use crate::config::EvolutionMode;
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
    assert!(!refused[0].1.report().contains("Zo"));
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
fn the_least_decimals_are_refused_as_others_out_of_range_are() {
    let kind = Type::decimal(38, 0).unwrap();
    let with_schema = |unscaled| {
        let decimal = SourceSchema::logical_type(LogicalType::Decimal { scale: 0 });
        land_with(&kind, decimal, Value::Decimal(unscaled, 0))
    };
    for unscaled in [i128::MIN, i128::MIN + 1, i128::MAX, -10_i128.pow(38)] {
        assert_eq!(with_schema(unscaled), "VALUE_OUT_OF_RANGE");
        assert_eq!(
            land(&kind, Value::Decimal(unscaled, 0)),
            "VALUE_OUT_OF_RANGE"
        );
    }
    assert_eq!(
        with_schema(1 - 10_i128.pow(38)),
        format!("-{}", "9".repeat(38))
    );
}

#[test]
fn tombstones_are_no_rows() {
    let only = structs(1, wide_source(false), [Value::Null, Value::Null]);
    let mixed = structs(
        1,
        wide_source(false),
        [Value::Null, Value::Struct(wide_row(5)), Value::Null],
    );
    for required in [false, true] {
        let frames = [only.clone(), mixed.clone()];
        let (batch, refused) = convert(&wide_table(required), &ConvertOptions::default(), &frames);
        assert_eq!(batch.num_rows(), 1);
        assert_eq!(show(batch.column(4), 0), "5");
        let rows = [0, 1, 0, 2].map(|row| (row, "VALUE_NOT_A_RECORD"));
        assert_eq!(codes(&refused), rows);
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

// Promise: rows that follow each other are converted together to what each of them is alone
#[test]
fn rows_that_follow_each_other_land_as_single_rows_do() {
    let values = (0..200).map(|seed| match seed % 41 {
        40 => Value::Null,
        _ => Value::Struct(wide_row(seed * seed)),
    });
    let frame = structs(1, wide_source(true), values);
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let rows: Vec<u32> = (0..200).filter(|row| row % 41 != 40).collect();
    let gather = |pieces: &[&[u32]]| {
        let options = ConvertOptions::default();
        let mut converter = TableConverter::new(wide_table(false), &options).unwrap();
        for rows in pieces {
            let mut refuse = |_, error| panic!("{error:?}");
            converter.append(&decoded, rows, &mut refuse).unwrap();
        }
        converter.finish().unwrap()
    };
    let single: Vec<&[u32]> = rows.chunks(1).collect();
    let single = gather(&single);
    let follows = |one: &u32, next: &u32| one + 1 == *next;
    let runs: Vec<&[u32]> = rows.chunk_by(follows).collect();
    assert_eq!(gather(&runs), single);
    assert_eq!(gather(&[&rows]), single);
    for length in [2, 7, 8, 9, 33] {
        let pieces: Vec<&[u32]> = rows.chunks(length).collect();
        assert_eq!(gather(&pieces), single, "{length}");
    }
}

// Promise: a batch makes room for what the one before had, and never for so much that it would be full
#[test]
fn a_batch_makes_room_for_about_what_the_one_before_had() {
    let schema = table(vec![NestedField::optional(
        1,
        "t",
        primitive(PrimitiveType::String),
    )]);
    let text = SourceSchema::scalar(SourceKind::String).optional();
    let frame = |length: usize| {
        let value = Value::Struct(vec![Value::text(&"x".repeat(length))]);
        let source = SourceSchema::structure([("t", text.clone())]);
        structs(1, source, vec![value; 100])
    };
    let fill = |converter: &mut TableConverter, length: usize| {
        let frame = frame(length);
        let bytes = frame.encode();
        let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
        let rows: Vec<u32> = (0..100).collect();
        let mut refuse = |_, error| panic!("{error:?}");
        converter.append(&decoded, &rows, &mut refuse).unwrap();
        converter.bytes()
    };
    let mut converter = TableConverter::new(schema, &ConvertOptions::default()).unwrap();
    let idle = converter.bytes();
    for _ in 0..9 {
        fill(&mut converter, 100);
    }
    let needed = 900 * (100 + 4);
    converter.finish().unwrap();
    assert!(
        converter.bytes() <= idle + 1_000,
        "an idle table has no room"
    );
    let held = fill(&mut converter, 100);
    assert!(
        held > needed && held < needed * 5 / 4 + idle,
        "{held} of {needed}"
    );
    // Seven megabytes grow to more than is given to the next batch.
    for _ in 0..7 {
        fill(&mut converter, 10_000);
    }
    converter.finish().unwrap();
    fill(&mut converter, 10);
    assert!(!converter.is_full() && converter.bytes() < 1 << 20);
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
        metadata_columns: MetadataColumn::coordinates(),
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

// Complaint: 19, 35
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
        evolution: EvolutionMode::Full,
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
    let additions: Vec<_> = evolution.additions().collect();
    let [addition] = additions.as_slice() else {
        panic!("{evolution:?}");
    };
    assert_eq!(addition.parent, ["v", "element"]);
    assert_eq!(addition.field.name, "y");
}

#[test]
fn with_evolution_no_field_is_dropped_unseen() {
    let evolve = ConvertOptions {
        evolution: EvolutionMode::Full,
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

// Complaint: 15
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
        evolution: EvolutionMode::Full,
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
