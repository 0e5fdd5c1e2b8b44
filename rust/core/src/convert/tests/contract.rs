//! Every cell of the type table: what it says is what the converter does.

use proptest::prelude::*;

use super::roundtrip::present_value_of;
use super::*;
use crate::schema::contract::{self, Meaning};
use crate::schema::types::{TypeRules, type_of, type_of_value};
use crate::schema::{CreateOptions, table_schema};

mod documents;

/// A row of the table.
struct Source {
    name: String,
    /// None for a Java class without a schema.
    schema: Option<SourceSchema>,
    meaning: Meaning,
    samples: Vec<Value>,
}

/// A column of the table: its notation, its type, and its heading in the documentation.
fn table_targets() -> Vec<(&'static str, Type, Option<&'static str>)> {
    let optional = |id, name: &str, kind| NestedField::optional(id, name, primitive(kind));
    let structure = structure(vec![
        optional(110, "x", PrimitiveType::Int),
        optional(111, "y", PrimitiveType::String),
    ]);
    let strings_to_ints = map(
        primitive(PrimitiveType::String),
        primitive(PrimitiveType::Int),
    );
    let ints = list(primitive(PrimitiveType::Int), false);
    #[rustfmt::skip]
    let targets = vec![
        ("boolean", primitive(PrimitiveType::Boolean), Some("boolean")),
        ("int", primitive(PrimitiveType::Int), Some("int")),
        ("long", primitive(PrimitiveType::Long), Some("long")),
        ("float", primitive(PrimitiveType::Float), Some("float")),
        ("double", primitive(PrimitiveType::Double), Some("double")),
        ("decimal(9, 2)", Type::decimal(9, 2).unwrap(), Some("decimal")),
        ("decimal(38, 0)", Type::decimal(38, 0).unwrap(), None),
        ("string", primitive(PrimitiveType::String), Some("string")),
        ("uuid", primitive(PrimitiveType::Uuid), Some("uuid")),
        ("binary", primitive(PrimitiveType::Binary), Some("binary")),
        ("fixed[4]", primitive(PrimitiveType::Fixed(4)), Some("fixed")),
        ("date", primitive(PrimitiveType::Date), Some("date")),
        ("time", primitive(PrimitiveType::Time), Some("time")),
        ("timestamp", primitive(PrimitiveType::Timestamp), Some("timestamp")),
        ("timestamptz", primitive(PrimitiveType::Timestamptz), Some("timestamptz")),
        ("timestamp_ns", primitive(PrimitiveType::TimestampNs), Some("timestamp_ns")),
        ("timestamptz_ns", primitive(PrimitiveType::TimestamptzNs), Some("timestamptz_ns")),
        ("list<int>", ints, Some("list")),
        ("map<string, int>", strings_to_ints, Some("map")),
        ("struct<x int, y string>", structure, Some("struct")),
    ];
    targets
}

fn with_schema(name: &str, schema: SourceSchema, samples: Vec<Value>) -> Source {
    Source {
        name: name.to_owned(),
        meaning: Meaning::of(&schema),
        schema: Some(schema),
        samples,
    }
}

fn without_schema(name: &str, meaning: Meaning, samples: Vec<Value>) -> Source {
    Source {
        name: format!("any {name}"),
        schema: None,
        meaning,
        samples,
    }
}

fn texts() -> Vec<Value> {
    let texts = [
        "true",
        "7",
        "2.50",
        "2024-02-29",
        "10:11:12",
        "2024-02-29T10:11:12+01:00",
        UUID,
        "AQIDBA==",
        "",
    ];
    texts.into_iter().map(Value::text).collect()
}

/// Returns a text that belongs to the source, and those for all targets.
fn texts_after(first: &str) -> Vec<Value> {
    let mut all = vec![Value::text(first)];
    all.extend(texts());
    all
}

fn debezium(kind: SourceKind, name: &str, samples: Vec<Value>) -> Source {
    let schema = SourceSchema::scalar(kind).named(&format!("io.debezium.{name}"));
    with_schema(
        &format!("{}:io.debezium.{name}", kind.name()),
        schema,
        samples,
    )
}

fn connect_sources() -> Vec<Source> {
    use SourceKind::{Boolean, Bytes, Float32, Float64, Int8, Int16, Int32, Int64, String};
    let scalar = SourceSchema::scalar;
    let logical = SourceSchema::logical_type;
    let decimal = |scale| logical(LogicalType::Decimal { scale });
    let plain = |kind: SourceKind, samples| with_schema(kind.name(), scalar(kind), samples);
    let bytes = || vec![Value::Bytes(vec![1, 2, 3, 4]), Value::Bytes(vec![0xAB; 16])];
    vec![
        plain(Boolean, vec![Value::Bool(true), Value::Bool(false)]),
        plain(Int8, vec![Value::Int8(-7)]),
        plain(Int16, vec![Value::Int16(300)]),
        plain(Int32, vec![Value::Int32(7), Value::Int32(i32::MAX)]),
        plain(Int64, vec![Value::Int64(7), Value::Int64(i64::MIN)]),
        plain(Float32, vec![Value::Float32(4.0), Value::Float32(f32::NAN)]),
        plain(Float64, vec![Value::Float64(4.0), Value::Float64(1e300)]),
        plain(String, texts()),
        plain(Bytes, bytes()),
        with_schema(
            "decimal(0)",
            decimal(0),
            vec![Value::Decimal(7, 0), Value::Decimal(i128::MAX, 0)],
        ),
        with_schema(
            "decimal(2)",
            decimal(2),
            vec![Value::Decimal(700, 2), Value::Decimal(1, 2)],
        ),
        with_schema(
            "decimal(10)",
            decimal(10),
            vec![Value::Decimal(10_000_000_000, 10)],
        ),
        with_schema("decimal(-3)", decimal(-3), vec![Value::Decimal(5, -3)]),
        with_schema(
            "decimal(9,2)",
            decimal(2).with_parameter("connect.decimal.precision", "9"),
            vec![Value::Decimal(700, 2)],
        ),
        with_schema(
            "decimal(40,2)",
            decimal(2).with_parameter("connect.decimal.precision", "40"),
            vec![Value::Decimal(700, 2)],
        ),
        with_schema(
            "date",
            logical(LogicalType::Date),
            vec![Value::Date(-1), Value::Date(i32::MAX)],
        ),
        with_schema(
            "time",
            logical(LogicalType::Time),
            vec![Value::Time(1), Value::Time(-1)],
        ),
        with_schema(
            "timestamp",
            logical(LogicalType::Timestamp),
            vec![
                Value::Timestamp(86_400_000),
                Value::Timestamp(-1),
                Value::Timestamp(i64::MAX),
            ],
        ),
        with_schema(
            "string:uuid",
            scalar(String).named("uuid"),
            texts_after(UUID),
        ),
        with_schema(
            "int64:timestamp-micros",
            scalar(Int64).named("timestamp-micros"),
            vec![Value::Int64(86_400_000_000), Value::Int64(-1)],
        ),
        with_schema(
            "int64:timestamp-nanos",
            scalar(Int64).named("timestamp-nanos"),
            vec![Value::Int64(86_400_000_000_000), Value::Int64(-1)],
        ),
        with_schema(
            "array<int32?>",
            SourceSchema::array(scalar(Int32).optional()),
            vec![
                Value::Array(vec![Value::Int32(1), Value::Null]),
                Value::Array(vec![]),
            ],
        ),
        with_schema(
            "array<string?>",
            SourceSchema::array(scalar(String).optional()),
            vec![Value::Array(vec![Value::text("7")])],
        ),
        with_schema(
            "map<string,int32?>",
            SourceSchema::map(scalar(String), scalar(Int32).optional()),
            vec![Value::object([("x", Value::Int32(1))])],
        ),
        with_schema(
            "map<int32,int32?>",
            SourceSchema::map(scalar(Int32), scalar(Int32).optional()),
            vec![Value::Map(vec![(Value::Int32(1), Value::Int32(10))])],
        ),
        with_schema(
            "struct<x int32?, y string?>",
            SourceSchema::structure([
                ("x", scalar(Int32).optional()),
                ("y", scalar(String).optional()),
            ]),
            vec![Value::Struct(vec![Value::Int32(1), Value::text("one")])],
        ),
        with_schema(
            "struct<>",
            SourceSchema::structure([]),
            vec![Value::Struct(vec![])],
        ),
    ]
}

fn debezium_sources() -> Vec<Source> {
    use SourceKind::{Bytes, Int32, Int64, String};
    let day = 86_400_000;
    let text = |name: &str, sample: &str| debezium(String, name, texts_after(sample));
    let long = |name: &str, samples: [i64; 2]| {
        debezium(Int64, name, samples.into_iter().map(Value::Int64).collect())
    };
    vec![
        debezium(Int32, "time.Date", vec![Value::Int32(-1)]),
        debezium(Int32, "time.Time", vec![Value::Int32(1), Value::Int32(-1)]),
        long("time.MicroTime", [1, 86_400_000_000]),
        long("time.NanoTime", [1_000, 1]),
        long("time.Timestamp", [day, -1]),
        long("time.MicroTimestamp", [day * 1_000, -1]),
        long("time.NanoTimestamp", [day * 1_000_000, -1]),
        text("time.ZonedTimestamp", "2023-11-14T00:00:00Z"),
        text("time.ZonedTime", "10:11:12Z"),
        text("time.IsoDate", "2017-09-15Z"),
        text("time.IsoTime", "10:11:12.5Z"),
        text("time.IsoTimestamp", "2023-11-14T22:13:20.123456"),
        debezium(Int32, "time.Year", vec![Value::Int32(2024)]),
        long("time.MicroDuration", [7, -7]),
        long("time.NanoDuration", [7, -7]),
        text("time.Interval", "P1Y2M3DT4H5M6S"),
        text("data.Uuid", UUID),
        text("data.Json", r#"{"a": [1, null]}"#),
        text("data.Xml", "<a b='1'/>"),
        text("data.Enum", "small"),
        text("data.EnumSet", "a,b"),
        text("data.Ltree", "top.science"),
        text("data.Tsvector", "'a':1"),
        debezium(
            Bytes,
            "data.Bits",
            vec![Value::Bytes(vec![1, 2, 3, 4]), Value::Bytes(vec![1; 16])],
        ),
        vector("DoubleVector", SourceKind::Float64, Value::Float64(4.0)),
        vector("FloatVector", SourceKind::Float32, Value::Float32(4.0)),
        sparse_vector(),
        scaled_decimal(),
        parts("StructuredDate", "day", 0),
        parts("StructuredTime", "hour", 4),
        parts("StructuredTimestamp", "day", 4),
        parts("StructuredZonedTimestamp", "day", 5),
        geometry("Point", true),
        geometry("Geometry", false),
        geometry("Geography", false),
    ]
}

fn vector(name: &str, kind: SourceKind, sample: Value) -> Source {
    let name = format!("io.debezium.data.{name}");
    let schema = SourceSchema::array(SourceSchema::scalar(kind)).named(&name);
    with_schema(
        &format!("array:{name}"),
        schema,
        vec![Value::Array(vec![sample])],
    )
}

fn sparse_vector() -> Source {
    let name = "io.debezium.data.SparseDoubleVector";
    let scalar = SourceSchema::scalar;
    let vector = SourceSchema::map(scalar(SourceKind::Int16), scalar(SourceKind::Float64));
    let schema = SourceSchema::structure([
        ("dimensions", scalar(SourceKind::Int16)),
        ("vector", vector),
    ]);
    let entries = vec![(Value::Int16(1), Value::Float64(0.5))];
    let sample = Value::Struct(vec![Value::Int16(3), Value::Map(entries)]);
    with_schema(&format!("struct:{name}"), schema.named(name), vec![sample])
}

fn scaled_decimal() -> Source {
    let name = "io.debezium.data.VariableScaleDecimal";
    let schema = SourceSchema::structure([
        ("scale", SourceSchema::scalar(SourceKind::Int32)),
        ("value", SourceSchema::scalar(SourceKind::Bytes)),
    ]);
    let seven = Value::Struct(vec![Value::Int32(1), Value::Bytes(vec![70])]);
    with_schema(&format!("struct:{name}"), schema.named(name), vec![seven])
}

/// A struct of year, month and day when `first` is `day`, and of as many `more` parts.
fn parts(name: &str, first: &str, more: usize) -> Source {
    use SourceKind::{Int8, Int32, Int64};
    let name = format!("io.debezium.time.{name}");
    let mut fields = Vec::new();
    let mut sample = Vec::new();
    let mut add = |field, kind, value| {
        fields.push((field, SourceSchema::scalar(kind).optional()));
        sample.push(value);
    };
    if first == "day" {
        add("year", Int32, Value::Int32(2024));
        add("month", Int8, Value::Int8(2));
        add("day", Int8, Value::Int8(29));
    }
    let clock = [
        ("hour", Int8, Value::Int8(0)),
        ("minute", Int8, Value::Int8(0)),
        ("second", Int8, Value::Int8(0)),
        ("picoseconds", Int64, Value::Int64(0)),
        ("offsetSeconds", Int32, Value::Int32(0)),
    ];
    for (field, kind, value) in clock.into_iter().take(more) {
        add(field, kind, value);
    }
    add("specialValue", SourceKind::String, Value::Null);
    let schema = SourceSchema::structure(fields).named(&name);
    with_schema(
        &format!("struct:{name}"),
        schema,
        vec![Value::Struct(sample)],
    )
}

fn geometry(name: &str, point: bool) -> Source {
    let name = format!("io.debezium.data.geometry.{name}");
    let scalar = SourceSchema::scalar;
    let mut fields = vec![
        ("wkb", scalar(SourceKind::Bytes).optional()),
        ("srid", scalar(SourceKind::Int32).optional()),
    ];
    let mut sample = vec![Value::Bytes(vec![1, 2, 3, 4]), Value::Null];
    if point {
        for (index, axis) in ["x", "y"].into_iter().enumerate() {
            fields.insert(index, (axis, scalar(SourceKind::Float64)));
            sample.insert(index, Value::Float64(1.0));
        }
    }
    let schema = SourceSchema::structure(fields).named(&name);
    with_schema(
        &format!("struct:{name}"),
        schema,
        vec![Value::Struct(sample)],
    )
}

fn schemaless_sources() -> Vec<Source> {
    use Meaning as M;
    let bytes = vec![Value::Bytes(vec![1, 2, 3, 4]), Value::Bytes(vec![0xAB; 16])];
    vec![
        without_schema("boolean", M::Boolean, vec![Value::Bool(true)]),
        without_schema("int8", M::Integer, vec![Value::Int8(-7)]),
        without_schema("int16", M::Integer, vec![Value::Int16(300)]),
        without_schema("int32", M::Integer, vec![Value::Int32(7)]),
        without_schema(
            "int64",
            M::Integer,
            vec![Value::Int64(7), Value::Int64(i64::MAX)],
        ),
        without_schema(
            "float32",
            M::Float,
            vec![Value::Float32(4.0), Value::Float32(1.5)],
        ),
        without_schema(
            "float64",
            M::Float,
            vec![Value::Float64(4.0), Value::Float64(f64::INFINITY)],
        ),
        without_schema("string", M::BareText, texts()),
        without_schema("bytes", M::Bytes, bytes),
        without_schema(
            "decimal",
            M::Decimal,
            vec![Value::Decimal(70, 1), Value::Decimal(i128::MIN, 3)],
        ),
        without_schema(
            "java.util.Date",
            M::Timestamp,
            vec![Value::Timestamp(-1), Value::Timestamp(i64::MIN)],
        ),
        without_schema("list", M::List, vec![Value::Array(vec![Value::Int64(1)])]),
        without_schema("map", M::Map, vec![Value::object([("x", Value::Int64(1))])]),
    ]
}

/// Classes that are not Connect's, but whose values transforms put into maps.
fn java_sources() -> Vec<Source> {
    let day = Value::Date(19_782);
    let clock = [Value::ClockTime(3_600_000_000_000), Value::ClockTime(1)];
    let moments = |zoned| {
        vec![
            Value::Moment(86_400, 0, zoned),
            Value::Moment(-1, 999_999_999, zoned),
            Value::Moment(-1, 999_000_000, zoned),
        ]
    };
    let uuid = Value::Uuid(uuid::Uuid::try_parse(UUID).unwrap().into_bytes());
    vec![
        without_schema("java.time.LocalDate", Meaning::Date, vec![day]),
        without_schema("java.time.LocalTime", Meaning::Time, clock.to_vec()),
        without_schema(
            "java.time.LocalDateTime",
            Meaning::Timestamp,
            moments(false),
        ),
        without_schema(
            "java.time.OffsetDateTime",
            Meaning::Timestamp,
            moments(true),
        ),
        without_schema("java.time.ZonedDateTime", Meaning::Timestamp, moments(true)),
        without_schema("java.time.Instant", Meaning::Timestamp, moments(true)),
        without_schema("java.util.UUID", Meaning::Uuid, vec![uuid]),
    ]
}

fn sources() -> Vec<Source> {
    let mut sources = connect_sources();
    sources.extend(debezium_sources());
    sources.extend(schemaless_sources());
    sources.extend(java_sources());
    sources
}

impl Source {
    /// Puts a sample into a column: what is stored, or the code.
    fn outcome(&self, target: &Type, sample: &Value) -> Result<String, String> {
        let shown = match &self.schema {
            Some(schema) => land_with(target, schema.clone(), sample.clone()),
            None => land(target, sample.clone()),
        };
        match shown.starts_with("VALUE_") || shown.starts_with("FIELD_") {
            true => Err(shown),
            false => Ok(shown),
        }
    }

    /// Returns the type of a new column.
    fn new_type(&self, is_v3: bool) -> Type {
        if let Some(schema) = &self.schema {
            let rules = TypeRules {
                force_optional: true,
                is_v3,
            };
            return type_of(schema, rules).unwrap();
        }
        let frame = schemaless([self.samples[0].clone()]);
        let bytes = frame.encode();
        let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
        type_of_value(frame.value(0)).unwrap().unwrap()
    }
}

/// Shows a type as the documentation does; inside of structs, names and types.
fn notation(column: &Type) -> String {
    match column {
        Type::Primitive(primitive) => primitive.to_string(),
        Type::List(list) => format!("list<{}>", notation(&list.element_field.field_type)),
        Type::Map(map) => format!(
            "map<{}, {}>",
            notation(&map.key_field.field_type),
            notation(&map.value_field.field_type)
        ),
        Type::Struct(fields) => {
            let fields = fields.fields().iter();
            let fields =
                fields.map(|field| format!("{} {}", field.name, notation(&field.field_type)));
            format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

// Promise: every cell of docs/types.md is what the converter does
#[test]
fn every_cell_is_what_the_converter_does() {
    for source in sources() {
        for (name, target, _) in table_targets() {
            let cell = format!("{} into {name}", source.name);
            let outcomes = source
                .samples
                .iter()
                .map(|sample| source.outcome(&target, sample));
            let outcomes: Vec<_> = outcomes.collect();
            match contract::lands(source.meaning, &target) {
                Ok(()) => {
                    assert!(outcomes.iter().any(Result::is_ok), "{cell}: {outcomes:?}");
                    let limits = contract::limits(source.meaning, &target);
                    let known = |code: &String| limits.iter().any(|limit| limit.code() == code);
                    let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
                    for code in refused {
                        assert!(target.is_nested() || known(code), "{cell}: {code}");
                    }
                }
                Err(reason) => {
                    for outcome in outcomes {
                        assert_eq!(outcome, Err(reason.code().to_owned()), "{cell}");
                    }
                }
            }
        }
    }
}

/// Returns any value of a source.
fn value_of(source: &Source) -> BoxedStrategy<Value> {
    if let Some(schema) = &source.schema {
        return present_value_of(schema);
    }
    match source.meaning {
        Meaning::Integer => any::<i64>().prop_map(Value::Int64).boxed(),
        Meaning::Float => any::<f64>().prop_map(Value::Float64).boxed(),
        Meaning::BareText => "[-+0-9T:. eZ=A-F/]{0,14}".prop_map(Value::String).boxed(),
        Meaning::Decimal => (any::<i128>(), -50..50_i32)
            .prop_map(|(unscaled, scale)| Value::Decimal(unscaled, scale))
            .boxed(),
        Meaning::Timestamp if source.name.contains("java.time") => {
            let parts = (any::<i64>(), 0..1_000_000_000_i32, any::<bool>());
            parts
                .prop_map(|(seconds, nanos, zoned)| Value::Moment(seconds, nanos, zoned))
                .boxed()
        }
        Meaning::Timestamp => any::<i64>().prop_map(Value::Timestamp).boxed(),
        Meaning::Time => any::<i64>().prop_map(Value::ClockTime).boxed(),
        _ => prop::sample::select(source.samples.clone()).boxed(),
    }
}

proptest! {
    // Promise: no value of any source lands where docs/types.md says that it is refused, and none is
    // refused for another reason than the table gives
    #[test]
    fn any_value_obeys_its_cell(
        (index, value) in (0..sources().len()).prop_flat_map(|index| {
            (Just(index), value_of(&sources()[index]))
        }),
    ) {
        let source = &sources()[index];
        // A map without entries has no keys that could be of a wrong type.
        prop_assume!(value != Value::Map(vec![]));
        for (name, target, _) in table_targets() {
            let outcome = source.outcome(&target, &value);
            let cell = format!("{} into {name}: {outcome:?}", source.name);
            match (contract::lands(source.meaning, &target), outcome) {
                (Ok(()), Ok(_)) => {}
                (Ok(()), Err(code)) => {
                    let limits = contract::limits(source.meaning, &target);
                    let known = limits.iter().any(|limit| limit.code() == code);
                    prop_assert!(target.is_nested() || known, "{}", cell);
                }
                (Err(reason), outcome) => {
                    prop_assert_eq!(outcome, Err(reason.code().to_owned()), "{}", cell);
                }
            }
        }
    }
}

#[test]
fn every_limit_of_a_cell_is_met_by_some_value() {
    let target = |kind| primitive(kind);
    let timestamp = || target(PrimitiveType::Timestamp);
    let decimal = || Type::decimal(9, 2).unwrap();
    #[rustfmt::skip]
    let cases = [
        (Value::text("yes"), target(PrimitiveType::Boolean), FORM),
        (Value::Int64(1 << 31), target(PrimitiveType::Int), RANGE),
        (Value::Timestamp(1 << 31), target(PrimitiveType::Int), RANGE),
        (Value::Moment(1 << 62, 0, true), target(PrimitiveType::Long), RANGE),
        (Value::Moment(0, 1, true), target(PrimitiveType::Long), LOSS),
        (Value::Float64(0.5), target(PrimitiveType::Long), LOSS),
        (Value::Float64(1e19), target(PrimitiveType::Long), RANGE),
        (Value::Float64(f64::NAN), target(PrimitiveType::Long), NOT),
        (Value::Decimal(5, 1), target(PrimitiveType::Long), LOSS),
        (Value::Decimal(1 << 64, 0), target(PrimitiveType::Long), RANGE),
        (Value::text("1.0"), target(PrimitiveType::Long), FORM),
        (Value::text("9223372036854775808"), target(PrimitiveType::Long), RANGE),
        (Value::Int64((1 << 53) + 1), target(PrimitiveType::Double), LOSS),
        (Value::Float64(1e300), target(PrimitiveType::Float), RANGE),
        (Value::Float64(0.123_456_789), target(PrimitiveType::Float), LOSS),
        (Value::Decimal(1, -400), target(PrimitiveType::Double), RANGE),
        (Value::Decimal(i128::MAX, 0), target(PrimitiveType::Double), LOSS),
        (Value::text("1e400"), target(PrimitiveType::Double), RANGE),
        (Value::text("0.12345678901234567890"), target(PrimitiveType::Double), LOSS),
        (Value::text("inf"), target(PrimitiveType::Double), FORM),
        (Value::Int64(10_000_000), decimal(), RANGE),
        (Value::Float64(1e9), decimal(), RANGE),
        (Value::Float64(0.125), decimal(), LOSS),
        (Value::Float64(f64::INFINITY), decimal(), NOT),
        (Value::Decimal(10_000_000, 0), decimal(), RANGE),
        (Value::Decimal(1, 3), decimal(), LOSS),
        (Value::text("1,5"), decimal(), FORM),
        (Value::text("10000000"), decimal(), RANGE),
        (Value::text("0.001"), decimal(), LOSS),
        (Value::text("f24f9b6481fa49d1b74e8c09a6e31c56"), target(PrimitiveType::Uuid), FORM),
        (Value::Bytes(vec![0; 15]), target(PrimitiveType::Uuid), LENGTH),
        (Value::Bytes(vec![0; 3]), target(PrimitiveType::Fixed(4)), LENGTH),
        (Value::text("AQID"), target(PrimitiveType::Fixed(4)), LENGTH),
        (Value::text("AQID!"), target(PrimitiveType::Fixed(4)), FORM),
        (Value::text("hello!"), target(PrimitiveType::Binary), FORM),
        (Value::text("AQIDBA"), target(PrimitiveType::Binary), FORM),
        (Value::text("_-8="), target(PrimitiveType::Binary), FORM),
        (Value::Time(86_400_000), target(PrimitiveType::Time), RANGE),
        (Value::text("24:00:00"), target(PrimitiveType::Time), FORM),
        (Value::text("10:11:12.0000001"), target(PrimitiveType::Time), LOSS),
        (Value::Timestamp(i64::MAX), target(PrimitiveType::Date), RANGE),
        (Value::Date(i32::MAX), timestamp(), RANGE),
        (Value::Timestamp(i64::MAX), timestamp(), RANGE),
        (Value::text("yesterday"), timestamp(), FORM),
        (Value::text("2024-01-02T11:04:05.1234567"), timestamp(), LOSS),
        (Value::text("+300000-01-01T00:00:00"), timestamp(), RANGE),
        (Value::text("2263-01-01"), target(PrimitiveType::TimestampNs), RANGE),
        (Value::text("2024-02-30"), target(PrimitiveType::Date), FORM),
        (Value::text("2024-02-29T00:00:01Z"), target(PrimitiveType::Date), LOSS),
        (Value::text("+9999999-01-01"), target(PrimitiveType::Date), RANGE),
        (Value::Time(-1), target(PrimitiveType::String), RANGE),
        (Value::Timestamp(i64::MAX), target(PrimitiveType::String), RANGE),
    ];
    for (value, target, code) in cases {
        assert_eq!(
            land(&target, value.clone()),
            code,
            "{value:?} into {target}"
        );
    }
}

#[test]
fn a_new_column_takes_what_it_was_made_for() {
    for source in sources() {
        for is_v3 in [false, true] {
            let sample = source.samples[0].clone();
            let frame = match &source.schema {
                Some(schema) => structs(
                    1,
                    SourceSchema::structure([("v", schema.clone())]),
                    [Value::Struct(vec![sample])],
                ),
                None => schemaless([Value::object([("v", sample)])]),
            };
            let bytes = frame.encode();
            let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
            let options = CreateOptions {
                is_v3,
                ..CreateOptions::default()
            };
            let table = Arc::new(table_schema(decoded.value(0), &options).unwrap());
            let column = &table.as_struct().fields()[0].field_type;
            assert_eq!(notation(column), notation(&source.new_type(is_v3)));
            let (batch, refused) = convert(&table, &ConvertOptions::default(), &[frame]);
            assert_eq!(codes(&refused), [], "{} into {column}", source.name);
            assert!(!batch.column(0).is_null(0), "{}", source.name);
        }
    }
}

#[test]
fn every_name_of_debezium_has_a_meaning_on_its_own_kind_only() {
    for source in debezium_sources() {
        let schema = source.schema.unwrap();
        let name = schema.name.clone().unwrap();
        let wrong = SourceSchema::scalar(SourceKind::Boolean).named(&name);
        assert_eq!(Meaning::of(&wrong), Meaning::Boolean, "{name}");
        assert_eq!(
            type_of(&wrong, true).unwrap().to_string(),
            "boolean",
            "{name}"
        );
    }
}

#[test]
fn a_mapping_of_another_version_is_refused() {
    assert!(contract::check_mapping(None).is_ok());
    assert!(contract::check_mapping(Some(&"1".to_owned())).is_ok());
    for version in ["2", "0", "", "one"] {
        let error = contract::check_mapping(Some(&version.to_owned())).unwrap_err();
        assert_eq!(error.code(), "MAPPING_VERSION_UNKNOWN", "{version}");
    }
}
