use std::sync::Arc;

use iceberg::spec::{Schema, StructType};

use super::*;
use crate::schema::evolve::{Evolution, EvolutionMode, EvolutionRules};
use crate::schema::types::{CreateOptions, table_schema};
use crate::wire::Frame;
use crate::wire::testing::{FrameBuilder, Row, Value as Sent};

fn with(mut source: SourceSchema, text: &str) -> SourceSchema {
    (source.has_default, source.default) = (true, Some(text.to_owned()));
    source
}

fn scalar(kind: SourceKind) -> SourceSchema {
    SourceSchema::scalar(kind)
}

fn named(kind: SourceKind, name: &str) -> SourceSchema {
    scalar(kind).named(&format!("io.debezium.{name}"))
}

fn decimal(scale: i32, precision: &str) -> SourceSchema {
    SourceSchema::logical_type(LogicalType::Decimal { scale })
        .with_parameter("connect.decimal.precision", precision)
}

fn rules(is_v3: bool) -> EvolutionRules {
    let mut rules = EvolutionRules {
        mode: EvolutionMode::Full,
        ..EvolutionRules::default()
    };
    rules.facts.is_v3 = is_v3;
    rules
}

fn table() -> Schema {
    let id = NestedField::required(1, "id", Type::Primitive(PrimitiveType::Long));
    Schema::builder()
        .with_fields([Arc::new(id)])
        .build()
        .unwrap()
}

fn record(v: SourceSchema) -> SourceSchema {
    SourceSchema::structure([("id", scalar(SourceKind::Int64)), ("v", v)])
}

/// Returns the table with the column `v` as records with a source of it make it.
fn evolved(source: &SourceSchema, is_v3: bool) -> Schema {
    let compared = rules(is_v3).compare(&table(), &record(source.clone()));
    compared.evolution.apply(&table(), 1).unwrap()
}

fn created(source: &SourceSchema, is_v3: bool) -> Schema {
    let frame = FrameBuilder::with_value_schema(1, record(source.clone()));
    let frame =
        frame.row(Row::new("t", 0, 0).value(Sent::Struct(vec![Sent::Int64(1), Sent::Null])));
    let bytes = frame.encode();
    let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let options = CreateOptions {
        is_v3,
        ..CreateOptions::default()
    };
    table_schema(frame.value(0), &options).unwrap()
}

/// Defaults that a source may have, each with what the column gets.
fn cases() -> Vec<(SourceSchema, Option<Literal>)> {
    use SourceKind as K;
    let logical = SourceSchema::logical_type;
    let uuid = "f24f9b64-81fa-49d1-b74e-8c09a6e31c56";
    vec![
        (with(scalar(K::Int8), "-7"), Some(Literal::int(-7))),
        (with(scalar(K::Int32), "7"), Some(Literal::int(7))),
        (with(scalar(K::Int64), "-9"), Some(Literal::long(-9))),
        (with(scalar(K::Float32), "0.5"), Some(Literal::float(0.5))),
        (
            with(scalar(K::Float64), "1.0E10"),
            Some(Literal::double(1e10)),
        ),
        (with(scalar(K::Boolean), "true"), Some(Literal::bool(true))),
        (with(scalar(K::String), "new"), Some(Literal::string("new"))),
        (with(scalar(K::String), ""), Some(Literal::string(""))),
        (
            with(decimal(2, "9"), "12.50"),
            Some(Literal::decimal(1_250)),
        ),
        (
            with(logical(LogicalType::Date), "-1"),
            Some(Literal::date(-1)),
        ),
        (
            with(logical(LogicalType::Time), "1"),
            Some(Literal::time(1_000)),
        ),
        (
            with(logical(LogicalType::Timestamp), "1700000000123"),
            Some(Literal::timestamptz(1_700_000_000_123_000)),
        ),
        (
            with(logical(LogicalType::Timestamp), "-1000"),
            Some(Literal::timestamptz(-1_000_000)),
        ),
        (
            with(named(K::Int64, "time.MicroTimestamp"), "5"),
            Some(Literal::timestamp(5)),
        ),
        (
            with(named(K::String, "data.Uuid"), uuid),
            Some(Literal::uuid(uuid.parse().unwrap())),
        ),
        (scalar(K::Int32), None),
        (with(scalar(K::Int32), "no number"), None),
        (with(scalar(K::Float64), "NaN"), None),
        (with(scalar(K::Float64), "Infinity"), None),
        (
            with(decimal(0, "38"), &"9".repeat(38)),
            Some(Literal::decimal(10_i128.pow(38) - 1)),
        ),
        // What metadata cannot say.
        (with(logical(LogicalType::Date), "2147483647"), None),
        (
            with(logical(LogicalType::Timestamp), "9223372036854775"),
            None,
        ),
        (with(logical(LogicalType::Timestamp), "-1"), None),
        (with(named(K::Int64, "time.NanoTimestamp"), "1"), None),
        (with(scalar(K::Bytes), "00"), None),
    ]
}

// Promise: the default that a source has for a field becomes the initial and the write default of
// its column, in a table of format version 3 and in no other (complaint 39)
// Complaint: 39
#[test]
fn defaults_of_sources_become_those_of_columns() {
    for (source, expected) in cases() {
        for is_v3 in [true, false] {
            for table in [evolved(&source, is_v3), created(&source, is_v3)] {
                let field = table.field_by_name("v").unwrap();
                let expected = expected.clone().filter(|_| is_v3);
                assert_eq!(field.initial_default, expected, "{source:?}");
                assert_eq!(field.write_default, expected, "{source:?}");
                // As a catalog stores it and gives it back.
                let json = serde_json::to_string(&table).unwrap();
                let again: Schema = serde_json::from_str(&json).unwrap();
                assert_eq!(again, table, "{json}");
            }
        }
    }
}

#[test]
fn fields_inside_of_new_structs_have_defaults_too() {
    let inner = SourceSchema::structure([("x", with(scalar(SourceKind::Int32), "7"))]);
    let list = SourceSchema::array(inner.clone());
    for (source, path) in [(inner, "v.x"), (list, "v.element.x")] {
        for table in [evolved(&source, true), created(&source, true)] {
            let field = table.field_by_name(path).unwrap();
            assert_eq!(field.initial_default, Some(Literal::int(7)), "{path}");
        }
    }
}

// Promise: a column that is promoted keeps its default, in its new type
#[test]
fn a_default_follows_its_column_to_a_wider_type() {
    use PrimitiveType as P;
    let decimals = |precision| P::Decimal {
        precision,
        scale: 2,
    };
    let micros = 19_723 * MICROS_PER_DAY;
    let cases = [
        (P::Int, Literal::int(7), P::Long, Some(Literal::long(7))),
        (
            P::Float,
            Literal::float(0.5),
            P::Double,
            Some(Literal::double(0.5)),
        ),
        (
            decimals(9),
            Literal::decimal(1_250),
            decimals(20),
            Some(Literal::decimal(1_250)),
        ),
        (
            P::Date,
            Literal::date(19_723),
            P::Timestamp,
            Some(Literal::timestamp(micros)),
        ),
        // Crate `iceberg` reads no default of nanoseconds.
        (P::Date, Literal::date(19_723), P::TimestampNs, None),
    ];
    for (from, default, to, expected) in cases {
        let mut field = NestedField::optional(2, "v", Type::Primitive(from))
            .with_initial_default(default.clone())
            .with_write_default(default);
        *field.field_type = Type::Primitive(to);
        follow(&mut field);
        assert_eq!(field.initial_default, expected);
        assert_eq!(field.write_default, expected);
        let schema = Schema::builder().with_fields([Arc::new(field)]).build();
        let json = serde_json::to_string(&schema.unwrap()).unwrap();
        assert_eq!(json.contains("initial-default"), expected.is_some());
    }
}

/// Tells, by their paths, which fields are required.
fn required(fields: &StructType, path: &str, out: &mut Vec<(String, bool)>) {
    for field in fields.fields() {
        let path = format!("{path}{}", field.name);
        out.push((path.clone(), field.required));
        if let Type::Struct(inside) = field.field_type.as_ref() {
            required(inside, &format!("{path}."), out);
        }
    }
}

// Promise: one rule says which columns are required: the source in a new table and inside of new
// structs, while a column that is added to a table is optional (complaint 40)
// Complaint: 40
#[test]
fn complaint_40_one_rule_says_which_columns_are_required() {
    let int = || scalar(SourceKind::Int32);
    let inner = SourceSchema::structure([("must", int()), ("may", int().optional())]);
    let source = SourceSchema::structure([("a", inner.clone()), ("b", inner.optional())]);
    let fields = |table: &Schema| {
        let mut out = Vec::new();
        required(table.as_struct(), "", &mut out);
        out.into_iter()
            .filter_map(|(path, required)| Some((path.strip_prefix("v")?.to_owned(), required)))
            .collect::<Vec<_>>()
    };
    let (new, added) = (created(&source, false), evolved(&source, false));
    let (new, added) = (fields(&new), fields(&added));
    assert_eq!(new[0], (String::new(), true));
    assert_eq!(added[0], (String::new(), false));
    assert_eq!(new[1..], added[1..]);
    let must: Vec<&str> = new[1..]
        .iter()
        .filter(|(_, required)| *required)
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(must, [".a", ".a.must", ".b.must"]);
    // The keys of a record that is a map are no field's promise: all is optional, either way.
    let inner = SourceSchema::structure([("must", int())]);
    let map = SourceSchema::map(scalar(SourceKind::String), inner);
    let value = Sent::Map(vec![(Sent::text("v"), Sent::Struct(vec![Sent::Int32(1)]))]);
    let frame = FrameBuilder::with_value_schema(1, map).row(Row::new("t", 0, 0).value(value));
    let bytes = frame.encode();
    let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let new = table_schema(frame.value(0), &CreateOptions::default()).unwrap();
    let added = rules(false)
        .with_value(&table(), &Evolution::default(), frame.value(0))
        .unwrap();
    let added = added.apply(&table(), 1).unwrap();
    assert_eq!(fields(&new), fields(&added));
    assert!(fields(&new).iter().all(|(_, required)| !required));
}
