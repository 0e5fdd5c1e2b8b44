//! How tables grow, and what they cannot follow.

use std::sync::Arc;

use iceberg::spec::{ListType, MapType, NestedField, PrimitiveType, Schema, StructType, Type};

use super::relation::is_promotion;
use super::*;
use crate::schema::MetadataColumn;
use crate::schema::tests::show;
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Cell, Frame, LogicalType, SourceKind, SourceSchema};

fn scalar(kind: SourceKind) -> SourceSchema {
    SourceSchema::scalar(kind)
}

fn primitive(primitive: PrimitiveType) -> Type {
    Type::Primitive(primitive)
}

fn long() -> Type {
    primitive(PrimitiveType::Long)
}

fn decimal(precision: u32, scale: u32) -> PrimitiveType {
    PrimitiveType::Decimal { precision, scale }
}

fn schema(fields: impl IntoIterator<Item = NestedField>) -> Schema {
    let fields = fields.into_iter().map(Arc::new);
    Schema::builder().with_fields(fields).build().unwrap()
}

/// `id` is the key.
fn table() -> Schema {
    let inner = StructType::new(vec![Arc::new(NestedField::optional(3, "x", long()))]);
    let fields = [
        NestedField::required(1, "id", long()),
        NestedField::optional(2, "s", Type::Struct(inner)),
    ];
    Schema::builder()
        .with_fields(fields.map(Arc::new))
        .with_identifier_field_ids([1])
        .with_schema_id(4)
        .build()
        .unwrap()
}

fn full() -> EvolutionRules {
    EvolutionRules {
        mode: EvolutionMode::Full,
        ..EvolutionRules::default()
    }
}

fn with_values<T>(values: Vec<Value>, check: impl FnOnce(Vec<Cell<'_>>) -> T) -> T {
    let rows = values.into_iter().enumerate();
    let frame = FrameBuilder::schemaless()
        .rows(rows.map(|(offset, value)| Row::new("t", 0, offset as i64).value(value)));
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &frame.schemas()).unwrap();
    check((0..decoded.rows()).map(|row| decoded.value(row)).collect())
}

/// What `table` has to gain for values without a schema.
fn for_values(rules: &EvolutionRules, table: &Schema, values: Vec<Value>) -> Evolution {
    with_values(values, |cells| {
        cells
            .into_iter()
            .fold(Evolution::default(), |so_far, cell| {
                rules.with_value(table, &so_far, cell).unwrap()
            })
    })
}

fn lines(evolution: &Evolution) -> Vec<String> {
    evolution.changes.iter().map(ToString::to_string).collect()
}

fn compared(table: &Schema, source: &SourceSchema) -> Vec<String> {
    lines(&full().compare(table, source).evolution)
}

fn broken(rules: &EvolutionRules, table: &Schema, source: &SourceSchema) -> Vec<(String, String)> {
    let found = rules.compare(table, source).breaks;
    let show = |found: &Break| (found.column.clone(), format!("{:?}", found.kind));
    found.iter().map(show).collect()
}

#[test]
fn a_table_grows_by_what_a_value_has_more() {
    let value = Value::object([
        ("id", Value::Int64(1)),
        (
            "s",
            Value::object([("x", Value::Int64(1)), ("y", Value::text("y"))]),
        ),
        (
            "new",
            Value::Array(vec![
                Value::object([("a", Value::Int64(1))]),
                Value::object([("b", Value::Bool(true))]),
            ]),
        ),
        ("unknown", Value::Null),
        ("ID", Value::Int64(1)),
        ("s.x", Value::Int64(1)),
    ]);
    let evolution = for_values(&full(), &table(), vec![value]);
    let grown = evolution.apply(&table(), 10).unwrap();
    assert_eq!(
        show(&grown),
        [
            "1 id* long",
            "2 s struct",
            "3 s.x long",
            "11 s.y string",
            "12 new list",
            "13 new.element struct",
            "14 new.element.a long",
            "15 new.element.b boolean",
        ]
    );
    assert_eq!(grown.identifier_field_ids().collect::<Vec<_>>(), [1]);
    // A second task that wants the same finds it done.
    assert_eq!(show(&evolution.apply(&grown, 14).unwrap()), show(&grown));
    let nothing = Value::object([("id", Value::Int64(1)), ("s", Value::Null)]);
    assert!(for_values(&full(), &table(), vec![nothing]).is_empty());
}

#[test]
fn two_values_that_bring_one_column_bring_all_of_its_fields() {
    let with = |name, value| {
        Value::object([
            ("id", Value::Int64(1)),
            ("n", Value::object([(name, value)])),
        ])
    };
    let values = vec![with("a", Value::Int64(1)), with("b", Value::text("b"))];
    let grown = for_values(&full(), &table(), values).apply(&table(), 3);
    assert_eq!(
        show(&grown.unwrap())[3..],
        ["4 n struct", "5 n.a long", "6 n.b string"]
    );
}

#[test]
fn a_table_grows_by_what_a_schema_has_more_in_its_order() {
    let mut documented = scalar(SourceKind::String);
    documented.doc = Some("why".to_owned());
    let source = SourceSchema::structure([
        ("first", documented),
        ("id", scalar(SourceKind::Int64)),
        (
            "s",
            SourceSchema::structure([("z", scalar(SourceKind::Int32))]),
        ),
        (
            "bad",
            SourceSchema::logical_type(LogicalType::Decimal { scale: 1 })
                .with_parameter("connect.decimal.precision", "many"),
        ),
        ("c", scalar(SourceKind::String)),
    ]);
    let compared = full().compare(&table(), &source);
    let left_out: Vec<_> = compared.left_out.iter().map(|(name, _)| name).collect();
    assert_eq!(left_out, ["bad"]);
    let grown = compared.evolution.apply(&table(), 3).unwrap();
    assert_eq!(
        show(&grown)[3..],
        ["4 first string", "5 s.z int", "6 c string"]
    );
    let doc = grown
        .field_by_name("first")
        .and_then(|field| field.doc.as_deref());
    assert_eq!(doc, Some("why"));
    let gone = schema([NestedField::required(1, "id", long())]);
    let error = compared.evolution.apply(&gone, 5).unwrap_err();
    assert_eq!(error.code(), "SCHEMA_CONFLICT");
}

#[test]
fn metadata_columns_are_added_to_a_table_that_has_rows() {
    let evolution = Evolution::for_metadata(&table(), &MetadataColumn::coordinates());
    let grown = evolution.apply(&table(), 3).unwrap();
    assert_eq!(
        show(&grown)[3..],
        ["4 _topic string", "5 _partition int", "6 _offset long"]
    );
    assert!(Evolution::for_metadata(&grown, &MetadataColumn::coordinates()).is_empty());
}

/// A list of structs and a map to structs, each with an int `x`.
fn nested() -> Schema {
    let inner = |id| {
        let x = NestedField::optional(id, "x", primitive(PrimitiveType::Int));
        Type::Struct(StructType::new(vec![Arc::new(x)]))
    };
    let key = NestedField::map_key_element(6, primitive(PrimitiveType::String));
    schema([
        NestedField::optional(
            1,
            "l",
            Type::List(ListType {
                element_field: Arc::new(NestedField::list_element(3, inner(4), true)),
            }),
        ),
        NestedField::optional(
            2,
            "m",
            Type::Map(MapType {
                key_field: Arc::new(key),
                value_field: Arc::new(NestedField::map_value_element(7, inner(8), true)),
            }),
        ),
    ])
}

// Promise: Fields are added, promoted and made optional inside of list elements and map values too, by a schema and by a value alike.
// Complaint: 15
#[test]
fn what_lies_in_lists_and_maps_changes_as_columns_do() {
    let inner = SourceSchema::structure([
        ("x", scalar(SourceKind::Int64)),
        ("y", scalar(SourceKind::String)),
    ])
    .optional();
    let source = SourceSchema::structure([
        ("l", SourceSchema::array(inner.clone())),
        ("m", SourceSchema::map(scalar(SourceKind::String), inner)),
    ]);
    let wanted = [
        "make l.element optional",
        "promote l.element.x int -> long",
        "add l.element.y string",
        "make m.value optional",
        "promote m.value.x int -> long",
        "add m.value.y string",
    ];
    assert_eq!(compared(&nested(), &source), wanted);
    let inner = || {
        let fields = [("x", Value::Int64(1 << 40)), ("y", Value::text("y"))];
        Value::object(fields)
    };
    let value = Value::object([
        ("l", Value::Array(vec![Value::Null, inner()])),
        ("m", Value::object([("k", Value::Null), ("j", inner())])),
    ]);
    let evolution = for_values(&full(), &nested(), vec![value]);
    assert_eq!(lines(&evolution), wanted);
    let grown = evolution.apply(&nested(), 8).unwrap();
    assert_eq!(
        show(&grown),
        [
            "1 l list",
            "2 m map",
            "3 l.element struct",
            "4 l.element.x long",
            "6 m.key* string",
            "7 m.value struct",
            "8 m.value.x long",
            "9 l.element.y string",
            "10 m.value.y string",
        ]
    );
    assert_eq!(lines(&full().compare(&grown, &source).evolution), [""; 0]);
}

#[test]
fn keys_of_maps_never_change() {
    let source = SourceSchema::structure([(
        "m",
        SourceSchema::map(scalar(SourceKind::Int64), scalar(SourceKind::String)),
    )]);
    let table = schema([NestedField::optional(
        1,
        "m",
        Type::Map(MapType {
            key_field: Arc::new(NestedField::map_key_element(
                2,
                primitive(PrimitiveType::Int),
            )),
            value_field: Arc::new(NestedField::map_value_element(
                3,
                primitive(PrimitiveType::String),
                false,
            )),
        }),
    )]);
    assert_eq!(compared(&table, &source), [""; 0]);
    let found = broken(&full(), &table, &source);
    assert_eq!(found, [("m.key".to_owned(), "Type".to_owned())]);
}

fn decimal_source(scale: i32, precision: Option<&str>) -> SourceSchema {
    let source = SourceSchema::logical_type(LogicalType::Decimal { scale });
    match precision {
        Some(digits) => source.with_parameter("connect.decimal.precision", digits),
        None => source,
    }
}

/// How a column of one type meets a source: `promote …`, `open` (values decide), `differs` or
/// nothing.
fn meets(column: PrimitiveType, source: SourceSchema, is_v3: bool) -> String {
    let table = schema([NestedField::optional(1, "v", primitive(column))]);
    let mut rules = full();
    rules.facts.is_v3 = is_v3;
    let found = rules.compare(&table, &SourceSchema::structure([("v", source)]));
    match (found.evolution.changes.first(), found.breaks.first()) {
        (Some(change), None) => change.to_string(),
        (None, Some(broken)) => format!("differs: {}", broken.to),
        (None, None) if found.by_value => "open".to_owned(),
        (None, None) => String::new(),
        (Some(_), Some(_)) => panic!("{found:?}"),
    }
}

// Promise: Every promotion of the Iceberg specification is made for a source that needs it: int to long, float to double, decimal to more digits, on version 3 date to timestamp; and no other.
#[test]
fn promotions_are_those_of_the_specification() {
    use PrimitiveType as P;
    let of = scalar;
    let named = |kind, name| scalar(kind).named(name);
    let clock = || named(SourceKind::Int64, "io.debezium.time.MicroTimestamp");
    let cases = [
        (P::Int, of(SourceKind::Int64), "promote v int -> long"),
        (
            P::Float,
            of(SourceKind::Float64),
            "promote v float -> double",
        ),
        (
            decimal(9, 2),
            decimal_source(2, Some("12")),
            "promote v decimal(9, 2) -> decimal(12, 2)",
        ),
        (
            decimal(9, 2),
            decimal_source(1, Some("9")),
            "promote v decimal(9, 2) -> decimal(10, 2)",
        ),
        (decimal(9, 2), decimal_source(2, Some("9")), ""),
        (decimal(9, 2), decimal_source(2, None), "open"),
        (decimal(38, 2), decimal_source(2, None), ""),
        (
            decimal(9, 2),
            decimal_source(3, Some("9")),
            "differs: decimal",
        ),
        (decimal(9, 2), of(SourceKind::Int32), "open"),
        (decimal(12, 2), of(SourceKind::Int32), ""),
        (P::Long, of(SourceKind::Int32), ""),
        (P::Double, of(SourceKind::Float32), ""),
        (P::Double, of(SourceKind::Int32), ""),
        (P::String, of(SourceKind::Int64), ""),
        (P::Timestamp, of(SourceKind::String), ""),
        (P::Uuid, of(SourceKind::String), ""),
        (P::Long, of(SourceKind::Float64), "differs: float64"),
        (P::Int, of(SourceKind::String), "differs: string"),
        (P::Int, of(SourceKind::Boolean), "differs: boolean"),
        (P::Date, clock(), "differs: io.debezium.time.MicroTimestamp"),
        (
            P::Int,
            SourceSchema::array(of(SourceKind::Int32)),
            "differs: array",
        ),
    ];
    for (column, source, expected) in cases {
        let shown = format!("{column} from {}", source.kind().name());
        assert_eq!(meets(column, source, false), expected, "{shown}");
    }
    assert_eq!(
        meets(P::Date, clock(), true),
        "promote v date -> timestamp",
        "format version 3 has it"
    );
    let all = [
        P::Boolean,
        P::Int,
        P::Long,
        P::Float,
        P::Double,
        P::Date,
        P::Time,
        P::Timestamp,
        P::Timestamptz,
        P::TimestampNs,
        P::String,
        P::Uuid,
        P::Binary,
        decimal(9, 2),
        decimal(10, 2),
        decimal(10, 3),
    ];
    let count = |is_v3| {
        let pairs = all
            .iter()
            .flat_map(|from| all.iter().map(move |to| (from, to)));
        pairs
            .filter(|(from, to)| is_promotion(from, to, is_v3))
            .count()
    };
    assert_eq!((count(false), count(true)), (3, 5));
}

#[test]
fn a_date_that_places_rows_stays_a_date() {
    let source = SourceSchema::structure([(
        "v",
        scalar(SourceKind::Int64).named("io.debezium.time.Timestamp"),
    )]);
    let table = schema([NestedField::optional(
        1,
        "v",
        primitive(PrimitiveType::Date),
    )]);
    let mut rules = full();
    rules.facts.is_v3 = true;
    rules.facts.fixed_dates.insert(1);
    let found = rules.compare(&table, &source);
    assert!(
        found.evolution.is_empty() && found.breaks.len() == 1,
        "{found:?}"
    );
}

// Promise: A number without a schema that its column is too narrow for promotes the column, as far as the number fits the wider type exactly.
#[test]
fn numbers_ask_for_the_type_that_holds_them() {
    use PrimitiveType as P;
    let wanted = |column: PrimitiveType, value: Value| {
        let table = schema([NestedField::optional(1, "v", primitive(column))]);
        let value = Value::object([("v", value)]);
        let rules = full();
        let probe = Probe::new(&rules, &table).unwrap();
        let lacks = with_values(vec![value.clone()], |cells| probe.lacks_in(cells[0]));
        let lines = lines(&for_values(&rules, &table, vec![value]));
        assert_eq!(lacks, !lines.is_empty(), "the probe and the walk differ");
        lines.join("; ")
    };
    assert_eq!(
        wanted(P::Int, Value::Int64(3_000_000_000)),
        "promote v int -> long"
    );
    assert_eq!(wanted(P::Int, Value::Float64(3e9)), "promote v int -> long");
    for value in [
        Value::Int64(7),
        Value::Int32(i32::MIN),
        Value::Float64(2.5),
        Value::Float64(1e30),
        Value::text("no number"),
        Value::Null,
    ] {
        assert_eq!(wanted(P::Int, value), "");
    }
    assert_eq!(
        wanted(P::Float, Value::Float64(0.123_456_789_012)),
        "promote v float -> double"
    );
    assert_eq!(wanted(P::Float, Value::Float64(0.5)), "");
    assert_eq!(
        wanted(decimal(4, 2), Value::Decimal(1_234_567, 3)),
        "",
        "a digit would go"
    );
    assert_eq!(
        wanted(decimal(4, 2), Value::Decimal(1_234_560, 3)),
        "promote v decimal(4, 2) -> decimal(6, 2)"
    );
    assert_eq!(
        wanted(decimal(4, 2), Value::Int64(1_000)),
        "promote v decimal(4, 2) -> decimal(6, 2)"
    );
    assert_eq!(wanted(P::Long, Value::Float64(2.5)), "");
}

#[test]
fn the_widest_of_several_numbers_counts() {
    let table = schema([NestedField::optional(1, "v", primitive(decimal(4, 2)))]);
    let value = |unscaled| Value::object([("v", Value::Decimal(unscaled, 2))]);
    let values = vec![value(123_456), value(12_345_678), value(12_345)];
    assert_eq!(
        lines(&for_values(&full(), &table, values)),
        ["promote v decimal(4, 2) -> decimal(8, 2)"]
    );
}

// Promise: A required column becomes optional when a source has no field for it or allows null there; a key column never does.
#[test]
fn required_columns_become_optional_but_keys() {
    let table = || {
        let fields = [
            NestedField::required(1, "id", long()),
            NestedField::required(2, "gone", long()),
            NestedField::required(3, "maybe", long()),
            NestedField::required(4, "kept", long())
                .with_write_default(iceberg::spec::Literal::long(7)),
        ];
        Schema::builder()
            .with_fields(fields.map(Arc::new))
            .with_identifier_field_ids([1])
            .build()
            .unwrap()
    };
    let source = SourceSchema::structure([
        ("order_id", scalar(SourceKind::Int64)),
        ("maybe", scalar(SourceKind::Int64).optional()),
    ]);
    assert_eq!(
        compared(&table(), &source),
        [
            "add order_id long",
            "make maybe optional",
            "make gone optional"
        ]
    );
    let key = (
        "id".to_owned(),
        "KeyRemoved { instead: Some(\"order_id\") }".to_owned(),
    );
    assert_eq!(
        broken(&full(), &table(), &source),
        std::slice::from_ref(&key)
    );
    let add_only = EvolutionRules {
        mode: EvolutionMode::AddOnly,
        ..EvolutionRules::default()
    };
    let found = broken(&add_only, &table(), &source);
    let of = |column: &str, kind: &str| (column.to_owned(), kind.to_owned());
    assert_eq!(found, [of("maybe", "Optional"), key, of("gone", "Removed")]);

    let optional_key = SourceSchema::structure([
        ("id", scalar(SourceKind::Int64).optional()),
        ("gone", scalar(SourceKind::Int64)),
        ("maybe", scalar(SourceKind::Int64)),
    ]);
    assert_eq!(compared(&table(), &optional_key), [""; 0]);
    assert_eq!(
        broken(&full(), &table(), &optional_key),
        [of("id", "KeyOptional")]
    );

    let value = Value::object([("id", Value::Null), ("maybe", Value::Null)]);
    assert_eq!(
        lines(&for_values(&full(), &table(), vec![value])),
        ["make maybe optional", "make gone optional"]
    );
}

#[test]
fn a_mode_that_only_adds_only_adds() {
    let table = schema([NestedField::required(1, "v", primitive(PrimitiveType::Int))]);
    let source = SourceSchema::structure([
        ("v", scalar(SourceKind::Int64).optional()),
        ("w", scalar(SourceKind::Int32)),
    ]);
    let rules = |mode| EvolutionRules {
        mode,
        ..EvolutionRules::default()
    };
    let changes = |mode| lines(&rules(mode).compare(&table, &source).evolution);
    assert_eq!(changes(EvolutionMode::Off), [""; 0]);
    assert_eq!(changes(EvolutionMode::AddOnly), ["add w int"]);
    assert_eq!(
        changes(EvolutionMode::Full),
        ["make v optional", "promote v int -> long", "add w int"]
    );
    let value = || Value::object([("v", Value::Int64(1 << 40)), ("w", Value::Int32(1))]);
    let of_value = |mode| lines(&for_values(&rules(mode), &table, vec![value()]));
    assert_eq!(of_value(EvolutionMode::Off), [""; 0]);
    assert_eq!(of_value(EvolutionMode::AddOnly), ["add w long"]);
    assert_eq!(
        of_value(EvolutionMode::Full),
        ["promote v int -> long", "add w long"]
    );
}

// Promise: A record cannot make a table grow beyond the limits on columns: it is refused with the key that raises them.
#[test]
fn limits_keep_columns_out() {
    let source = SourceSchema::structure([
        ("id", scalar(SourceKind::Int64)),
        (
            "n",
            SourceSchema::structure([
                ("a", scalar(SourceKind::Int64)),
                ("b", scalar(SourceKind::Int64)),
            ]),
        ),
    ]);
    let value = || {
        let inner = [("a", Value::Int64(1)), ("b", Value::Int64(1))];
        Value::object([("id", Value::Int64(1)), ("n", Value::object(inner))])
    };
    for (per_commit, in_all, key) in [
        (3, 6, None),
        (2, 6, Some("max-columns-per-commit")),
        (3, 5, Some("max-columns`")),
    ] {
        let rules = EvolutionRules {
            limits: EvolutionLimits { per_commit, in_all },
            ..full()
        };
        let found = rules.compare(&table(), &source);
        let of_value = with_values(vec![value()], |cells| {
            rules.with_value(&table(), &Evolution::default(), cells[0])
        });
        match key {
            None => {
                assert_eq!(found.evolution.fields_added(), 3);
                assert_eq!(of_value.unwrap().fields_added(), 3);
            }
            Some(key) => {
                assert!(found.evolution.is_empty());
                for error in [&found.left_out[0].1, &of_value.unwrap_err()] {
                    assert_eq!(error.code(), "SCHEMA_COLUMNS_MAX");
                    assert!(error.message().contains(key), "{error:?}");
                }
            }
        }
    }
}

#[test]
fn a_name_that_a_partition_field_has_is_no_columns() {
    let mut rules = full();
    rules.facts.partition_names.insert("id_bucket".to_owned());
    let source = SourceSchema::structure([
        ("id", scalar(SourceKind::Int64)),
        ("id_bucket", scalar(SourceKind::Int32)),
    ]);
    assert!(rules.compare(&table(), &source).evolution.is_empty());
    let value = Value::object([("id", Value::Int64(1)), ("id_bucket", Value::Int32(1))]);
    assert!(for_values(&rules, &table(), vec![value]).is_empty());
}

#[test]
fn what_others_did_is_left_as_it_is() {
    let before = schema([
        NestedField::required(1, "v", primitive(PrimitiveType::Int)),
        NestedField::required(2, "d", primitive(decimal(4, 2))),
    ]);
    let source = SourceSchema::structure([
        ("v", scalar(SourceKind::Int64).optional()),
        ("d", decimal_source(2, Some("6"))),
    ]);
    let evolution = full().compare(&before, &source).evolution;
    let wider = schema([
        NestedField::optional(1, "v", long()),
        NestedField::required(2, "d", primitive(decimal(9, 2))),
    ]);
    assert_eq!(show(&evolution.apply(&wider, 2).unwrap()), show(&wider));
    let other = schema([
        NestedField::required(1, "v", primitive(PrimitiveType::String)),
        NestedField::required(2, "d", primitive(decimal(9, 2))),
    ]);
    let error = evolution.apply(&other, 2).unwrap_err();
    assert_eq!(error.code(), "SCHEMA_CONFLICT");
}

#[test]
fn a_break_says_what_changed_and_what_to_do() {
    let broken = Break {
        column: "qty".to_owned(),
        kind: BreakKind::Type,
        from: "int".to_owned(),
        to: "string".to_owned(),
    };
    let error = broken.error();
    assert_eq!(error.code(), "SCHEMA_BREAKING_CHANGE");
    let context: Vec<_> = error
        .context()
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    assert_eq!(
        context,
        [("column", "qty"), ("from", "int"), ("to", "string")]
    );
    for part in ["`qty`", "int", "string", "evolve-schema-mode=full"] {
        assert!(error.message().contains(part), "{part}: {error:?}");
    }
}
