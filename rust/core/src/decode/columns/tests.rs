//! What builders give is what frames give.

use super::*;
use crate::wire::Frame;
use crate::wire::testing::{FrameBuilder, Row, Value};

fn scalar(kind: SourceKind) -> SourceSchema {
    SourceSchema::scalar(kind).optional()
}

fn schema() -> Arc<SourceSchema> {
    let logical = |logical| SourceSchema::logical_type(logical).optional();
    let inner = SourceSchema::structure([
        ("x", scalar(SourceKind::Int32)),
        ("y", scalar(SourceKind::String)),
    ]);
    Arc::new(SourceSchema::structure([
        ("flag", scalar(SourceKind::Boolean)),
        ("i8", scalar(SourceKind::Int8)),
        ("i16", scalar(SourceKind::Int16)),
        ("i32", scalar(SourceKind::Int32)),
        ("i64", scalar(SourceKind::Int64)),
        ("f32", scalar(SourceKind::Float32)),
        ("f64", scalar(SourceKind::Float64)),
        ("text", scalar(SourceKind::String)),
        ("bytes", scalar(SourceKind::Bytes)),
        ("price", logical(LogicalType::Decimal { scale: 2 })),
        ("day", logical(LogicalType::Date)),
        ("time", logical(LogicalType::Time)),
        ("moment", logical(LogicalType::Timestamp)),
        ("inner", inner.clone().optional()),
        ("list", SourceSchema::array(inner.optional()).optional()),
        (
            "map",
            SourceSchema::map(
                SourceSchema::scalar(SourceKind::String),
                SourceSchema::array(scalar(SourceKind::Int64)).optional(),
            )
            .optional(),
        ),
    ]))
}

fn value(seed: i64) -> Value {
    let inner = |seed: i32| Value::Struct(vec![Value::Int32(seed), Value::text("é")]);
    Value::Struct(vec![
        Value::Bool(seed % 2 == 0),
        Value::Int8(-1),
        Value::Int16(-2),
        Value::Int32(-3),
        Value::Int64(seed),
        Value::Float32(0.5),
        Value::Float64(0.25),
        Value::text("grün"),
        Value::Bytes(vec![1, 2, 3]),
        Value::Decimal(1234, 2),
        Value::Date(3),
        Value::Time(4),
        Value::Timestamp(5),
        inner(1),
        Value::Array(vec![inner(2), Value::Null, inner(3)]),
        Value::Map(vec![
            (
                Value::text("a"),
                Value::Array(vec![Value::Int64(7), Value::Null]),
            ),
            (Value::text("b"), Value::Null),
        ]),
    ])
}

fn nulls() -> Value {
    Value::Struct(vec![Value::Null; 16])
}

fn frame(values: impl IntoIterator<Item = Value>) -> FrameBuilder {
    let rows = values.into_iter().zip(0..);
    FrameBuilder::with_value_schema(1, schema())
        .rows(rows.map(|(value, offset)| Row::new("t", 0, offset).value(value)))
}

/// Pushes the rows of `frame` and says what the columns look like.
fn copied(columns: &mut ColumnsBuilder, frame: &FrameBuilder) -> String {
    let bytes = frame.encode();
    let frame = Frame::decode(&bytes, &frame.schemas()).expect("a frame");
    for row in 0..frame.rows() {
        let (root, budget) = columns.row();
        root.push_cell(frame.value(row), budget).expect("room");
        columns.end_row();
    }
    format!("{:?}", columns.column().expect("columns"))
}

fn seen(frame: &FrameBuilder) -> String {
    let bytes = frame.encode();
    let frame = Frame::decode(&bytes, &frame.schemas()).expect("a frame");
    format!("{:?}", frame.value_column().expect("columns"))
}

// Promise: native decoding: decoded columns are those that Java would have sent, nulls and nesting included
#[test]
fn columns_that_are_built_are_those_of_a_frame() {
    let mut columns = ColumnsBuilder::new(&schema()).expect("columns");
    let of = [
        vec![value(1), value(2)],
        vec![value(1), nulls(), Value::Null, value(4), nulls()],
        (0..20)
            .map(|row| {
                if row % 3 == 0 {
                    Value::Null
                } else {
                    value(row)
                }
            })
            .collect(),
        vec![nulls(), value(9)],
    ];
    for values in of {
        columns.clear();
        let frame = frame(values);
        assert_eq!(copied(&mut columns, &frame), seen(&frame));
    }
}

#[test]
fn an_abandoned_row_is_null_and_leaves_no_trace() {
    let mut columns = ColumnsBuilder::new(&schema()).expect("columns");
    copied(&mut columns, &frame([value(1)]));
    let (root, budget) = columns.row();
    root.field(4).expect("i64").push_i64(4);
    root.field(7).expect("text").push_str("left over");
    let map = root.field(15).expect("map");
    let (key, values) = map.entry(budget).expect("room");
    key.push_str("k");
    values.element(budget).expect("room").push_i64(5);
    let list = root.field(14).expect("list").element(budget).expect("room");
    list.field(0).expect("x").push_i32(4);
    columns.abandon_row();
    let with_rest = copied(&mut columns, &frame([value(3)]));
    assert_eq!(with_rest, seen(&frame([value(1), Value::Null, value(3)])));
}

#[test]
fn the_last_value_of_a_field_that_comes_twice_stays() {
    let schema = Arc::new(SourceSchema::structure([
        ("a", scalar(SourceKind::String)),
        (
            "l",
            SourceSchema::array(scalar(SourceKind::Int64)).optional(),
        ),
    ]));
    let mut columns = ColumnsBuilder::new(&schema).expect("columns");
    let (root, budget) = columns.row();
    for text in ["first", "second"] {
        root.field_anew(0).expect("a").push_str(text);
        let list = root.field_anew(1).expect("l");
        list.element(budget).expect("room").push_i64(1);
        list.end_list();
    }
    assert!(root.has_field(0));
    root.end_struct();
    columns.end_row();
    let column = columns.column().expect("columns");
    let Cell::Struct(record) = column.cell(0) else {
        panic!("no struct");
    };
    assert!(matches!(record.field(0), Cell::String("second")));
    assert!(matches!(record.field(1), Cell::Array(list) if list.len() == 1));
}

#[test]
fn a_plan_that_is_wrong_is_an_internal_error_and_no_value() {
    let schema = Arc::new(SourceSchema::structure([("a", scalar(SourceKind::Int64))]));
    let wrong: [fn(&mut ColumnBuilder); 4] = [
        |root| {
            root.field(0).expect("a").push_str("text");
            root.end_struct();
        },
        |root| {
            root.field(0).expect("a").push_i64(1);
            root.field(0).expect("a").push_i64(2);
            root.end_struct();
        },
        |root| root.end_list(),
        |_| {},
    ];
    for push in wrong {
        let mut columns = ColumnsBuilder::new(&schema).expect("columns");
        push(columns.row().0);
        columns.end_row();
        let error = columns.column().expect_err("a wrong plan");
        assert_eq!(error.code(), "INTERNAL");
    }
}

#[test]
fn what_lists_multiply_has_a_limit() {
    let wide = SourceSchema::structure((0..1_000).map(|_| ("f", scalar(SourceKind::Int64))));
    let schema = Arc::new(SourceSchema::array(wide));
    let mut columns = ColumnsBuilder::new(&schema).expect("columns");
    let (root, budget) = columns.row();
    let mut elements = 0;
    let refused = loop {
        match root.element(budget) {
            Ok(element) => element.end_struct(),
            Err(refused) => break refused,
        }
        elements += 1;
    };
    assert_eq!(refused.code(), "DECODE_TOO_LARGE");
    assert_eq!(elements, BLOCK_SLOTS_MAX / 1_001);
    columns.abandon_row();
    assert!(columns.column().expect("columns").is_null(0));
}

#[test]
fn a_schema_beyond_the_limits_has_no_columns() {
    let mut deep = scalar(SourceKind::Int64);
    for _ in 0..NESTING_MAX {
        deep = SourceSchema::array(deep);
    }
    let many =
        SourceSchema::structure((0..SCHEMA_FIELDS_MAX).map(|_| ("f", scalar(SourceKind::Int64))));
    let code = |schema| {
        ColumnsBuilder::new(&Arc::new(schema))
            .map(|_| ())
            .map_err(|error| error.code())
    };
    assert_eq!(code(deep), Err("SCHEMA_TOO_DEEP"));
    assert_eq!(code(many), Err("SCHEMA_TOO_LARGE"));
}
