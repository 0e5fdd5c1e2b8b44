//! Tests of the types of new tables and of how tables grow.

use std::sync::Arc;

use iceberg::spec::{NestedField, PrimitiveType, Schema, Type};

use super::{CreateOptions, MetadataColumn, arrow_schema, table_schema};
use crate::error::Result;
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Cell, Frame, LogicalType, SourceKind, SourceSchema};

fn scalar(kind: SourceKind) -> SourceSchema {
    SourceSchema::scalar(kind)
}

fn with_value<T>(frame: &FrameBuilder, check: impl FnOnce(Cell<'_>) -> T) -> T {
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
    check(decoded.value(0))
}

fn schemaless(value: Value) -> FrameBuilder {
    FrameBuilder::schemaless().row(Row::new("t", 0, 0).value(value))
}

/// Creates the schema of a table for structs of `source`, whose fields all get null values.
fn created(source: SourceSchema, options: &CreateOptions) -> Result<Schema> {
    let row = Value::Struct(vec![Value::Null; source.fields().len()]);
    let frame = FrameBuilder::with_value_schema(1, source).row(Row::new("t", 0, 0).value(row));
    with_value(&frame, |value| table_schema(value, options))
}

fn created_one(source: SourceSchema) -> Result<Type> {
    let schema = created(
        SourceSchema::structure([("v", source)]),
        &CreateOptions::default(),
    )?;
    Ok(schema
        .field_by_name("v")
        .unwrap()
        .field_type
        .as_ref()
        .clone())
}

fn inferred(value: Value) -> Result<Schema> {
    with_value(&schemaless(value), |value| {
        table_schema(value, &CreateOptions::default())
    })
}

/// Shows a schema as `id name type` lines, required ones with a star.
pub(super) fn show(schema: &Schema) -> Vec<String> {
    let mut fields: Vec<_> = schema.field_id_to_fields().values().collect();
    fields.sort_by_key(|field| field.id);
    let show = |field: &&Arc<NestedField>| {
        let star = if field.required { "*" } else { "" };
        let name = schema.name_by_field_id(field.id).unwrap();
        let kind = match field.field_type.as_ref() {
            Type::Struct(_) => "struct".to_owned(),
            other => other.to_string(),
        };
        format!("{} {name}{star} {kind}", field.id)
    };
    fields.iter().map(show).collect()
}

fn assert_types<const N: usize>(cases: [(SourceSchema, &str); N]) {
    for (source, expected) in cases {
        let label = format!("{:?} {:?}", source.kind(), source.name);
        assert_eq!(
            created_one(source).unwrap().to_string(),
            expected,
            "{label}"
        );
    }
}

#[test]
fn connect_types_become_iceberg_types() {
    let long = || scalar(SourceKind::Int64);
    let int = || scalar(SourceKind::Int32);
    let text = || scalar(SourceKind::String);
    let decimal = |scale| SourceSchema::logical_type(LogicalType::Decimal { scale });
    let bounded = |precision| decimal(2).with_parameter("connect.decimal.precision", precision);
    let cases = [
        (scalar(SourceKind::Boolean), "boolean"),
        (scalar(SourceKind::Int8), "int"),
        (scalar(SourceKind::Int16), "int"),
        (int(), "int"),
        (long(), "long"),
        (scalar(SourceKind::Float32), "float"),
        (scalar(SourceKind::Float64), "double"),
        (text(), "string"),
        (scalar(SourceKind::Bytes), "binary"),
        (decimal(4), "decimal(38, 4)"),
        (bounded("10"), "decimal(10, 2)"),
        (SourceSchema::logical_type(LogicalType::Date), "date"),
        (SourceSchema::logical_type(LogicalType::Time), "time"),
        (
            SourceSchema::logical_type(LogicalType::Timestamp),
            "timestamptz",
        ),
    ];
    assert_types(cases);
}

#[test]
fn debezium_types_become_what_they_mean() {
    let long = || scalar(SourceKind::Int64);
    let int = || scalar(SourceKind::Int32);
    let text = || scalar(SourceKind::String);
    assert_types([
        (int().named("io.debezium.time.Date"), "date"),
        (int().named("io.debezium.time.Time"), "time"),
        (long().named("io.debezium.time.MicroTime"), "time"),
        (long().named("io.debezium.time.NanoTime"), "time"),
        (long().named("io.debezium.time.Timestamp"), "timestamp"),
        (long().named("io.debezium.time.MicroTimestamp"), "timestamp"),
        (long().named("io.debezium.time.NanoTimestamp"), "timestamp"),
        (
            text().named("io.debezium.time.ZonedTimestamp"),
            "timestamptz",
        ),
        (text().named("io.debezium.time.ZonedTime"), "string"),
        (text().named("io.debezium.time.IsoDate"), "date"),
        (text().named("io.debezium.time.IsoTime"), "time"),
        (text().named("io.debezium.time.IsoTimestamp"), "timestamp"),
        (text().named("io.debezium.time.Interval"), "string"),
        (int().named("io.debezium.time.Year"), "int"),
        (long().named("io.debezium.time.MicroDuration"), "long"),
        (text().named("io.debezium.data.Uuid"), "uuid"),
        (text().named("io.debezium.data.Json"), "string"),
        (text().named("io.debezium.data.Xml"), "string"),
        (text().named("io.debezium.data.Enum"), "string"),
        (text().named("io.debezium.data.EnumSet"), "string"),
        (
            scalar(SourceKind::Bytes).named("io.debezium.data.Bits"),
            "binary",
        ),
        (text().named("io.debezium.time.MicroTimestamp"), "string"),
        (
            SourceSchema::structure([("scale", int()), ("value", scalar(SourceKind::Bytes))])
                .named("io.debezium.data.VariableScaleDecimal"),
            "string",
        ),
    ]);
}

#[test]
fn a_decimal_column_holds_every_number_of_its_schema() {
    let decimal = |scale| SourceSchema::logical_type(LogicalType::Decimal { scale });
    let bounded = |precision: &str, scale| {
        decimal(scale).with_parameter("connect.decimal.precision", precision)
    };
    assert_types([
        (decimal(-2), "decimal(38, 0)"),
        (decimal(38), "decimal(38, 38)"),
        (decimal(39), "string"),
        (bounded("5", -2), "decimal(7, 0)"),
        (bounded("36", -2), "decimal(38, 0)"),
        (bounded("37", -2), "string"),
        (bounded("38", 38), "decimal(38, 38)"),
        (bounded("39", 2), "string"),
        (bounded("3", 5), "decimal(5, 5)"),
        (bounded("4294967295", -2), "string"),
    ]);
    for precision in ["0", "-1", "many", "", "1.5"] {
        let error = created_one(bounded(precision, 2)).unwrap_err();
        assert_eq!(error.code(), "SCHEMA_TYPE_UNSUPPORTED", "{precision}");
    }
}

#[test]
fn a_struct_without_fields_is_text() {
    let empty = || SourceSchema::structure([]);
    assert_eq!(created_one(empty()).unwrap().to_string(), "string");
    let Type::List(list) = created_one(SourceSchema::array(empty())).unwrap() else {
        panic!("no list");
    };
    assert_eq!(list.element_field.field_type.to_string(), "string");
}

#[test]
fn ids_are_given_level_by_level_and_nullability_is_kept() {
    let point = SourceSchema::structure([
        ("x", scalar(SourceKind::Int32)),
        ("y", scalar(SourceKind::Int32).optional()),
    ]);
    let source = || {
        SourceSchema::structure([
            ("b", SourceSchema::array(point.clone()).optional()),
            ("a", scalar(SourceKind::String)),
            (
                "m",
                SourceSchema::map(
                    scalar(SourceKind::String),
                    scalar(SourceKind::Int64).optional(),
                ),
            ),
        ])
    };
    let with_topic = CreateOptions {
        force_optional: false,
        metadata_columns: MetadataColumn::coordinates().into_iter().take(1).collect(),
        ..CreateOptions::default()
    };
    assert_eq!(
        show(&created(source(), &with_topic).unwrap()),
        [
            "1 b list",
            "2 a* string",
            "3 m* map",
            "4 _topic* string",
            "5 b.element* struct",
            "6 b.element.x* int",
            "7 b.element.y int",
            "8 m.key* string",
            "9 m.value long",
        ]
    );
    let optional = CreateOptions {
        force_optional: true,
        ..CreateOptions::default()
    };
    let schema = created(source(), &optional).unwrap();
    let required: Vec<_> = show(&schema)
        .into_iter()
        .filter(|line| line.contains('*'))
        .collect();
    assert_eq!(required, ["7 m.key* string"]);
}

#[test]
fn a_value_without_a_schema_shows_the_types() {
    let value = Value::object([
        ("t", Value::text("x")),
        ("null", Value::Null),
        ("empty", Value::Array(vec![Value::Null])),
        ("none", Value::Map(vec![])),
        ("i", Value::Int32(1)),
        ("f", Value::Float32(1.0)),
        ("d", Value::Decimal(12345, 7)),
        ("by", Value::Bytes(vec![1])),
        ("at", Value::Timestamp(0)),
        ("l", Value::Array(vec![Value::Null, Value::Int64(1)])),
        (
            "s",
            Value::object([("k", Value::Bool(true)), ("n", Value::Null)]),
        ),
    ]);
    assert_eq!(
        show(&inferred(value).unwrap()),
        [
            "1 t string",
            "2 i long",
            "3 f double",
            "4 d decimal(7, 7)",
            "5 by binary",
            "6 at timestamptz",
            "7 l list",
            "8 s struct",
            "9 l.element long",
            "10 s.k boolean",
        ]
    );
    let code = |value| inferred(value).unwrap_err().code();
    assert_eq!(code(Value::text("x")), "VALUE_NOT_A_RECORD");
    assert_eq!(code(Value::Null), "VALUE_NOT_A_RECORD");
    assert_eq!(code(Value::object([("a", Value::Null)])), "SCHEMA_EMPTY");
    assert_eq!(
        code(Value::object([
            ("v", Value::Int64(1)),
            ("V", Value::Int64(1))
        ])),
        "SCHEMA_NAME_DUPLICATE"
    );
    let keys = Value::Map(vec![(Value::Int64(1), Value::Int64(1))]);
    assert_eq!(code(keys.clone()), "SCHEMA_TYPE_UNSUPPORTED");
    let wide = Value::object([("d", Value::Decimal(i128::MAX, 0)), ("m", keys)]);
    assert_eq!(
        show(&inferred(wide).unwrap()),
        ["1 d string", "2 m map", "3 m.key* long", "4 m.value long"]
    );
    let dotted = Value::object([
        ("a.b", Value::Int64(1)),
        ("a", Value::object([("b", Value::Int64(1))])),
    ]);
    assert_eq!(code(dotted), "SCHEMA_CONFLICT");
}

#[test]
fn the_arrow_form_is_what_readers_expect() {
    let types = [
        PrimitiveType::Uuid,
        PrimitiveType::Time,
        PrimitiveType::Timestamptz,
        PrimitiveType::Decimal {
            precision: 10,
            scale: 2,
        },
        PrimitiveType::Fixed(3),
    ];
    let fields = types.into_iter().zip(1..).map(|(primitive, id)| {
        Arc::new(NestedField::required(
            id,
            format!("c{id}"),
            Type::Primitive(primitive),
        ))
    });
    let arrow = arrow_schema(&Schema::builder().with_fields(fields).build().unwrap()).unwrap();
    let shown: Vec<_> = arrow
        .fields()
        .iter()
        .map(|field| {
            (
                field.metadata()["PARQUET:field_id"].as_str(),
                field.data_type().to_string(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("1", "FixedSizeBinary(16)".to_owned()),
            ("2", "Time64(µs)".to_owned()),
            ("3", "Timestamp(µs, \"+00:00\")".to_owned()),
            ("4", "Decimal128(10, 2)".to_owned()),
            ("5", "FixedSizeBinary(3)".to_owned()),
        ]
    );
}
