//! Rows of frames and the tables that they come to: the inputs of the Apache sink's own tests, and
//! what goes beyond them.

use std::sync::Arc;

use super::*;
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Frame, SourceKind, SourceSchema};

fn plan(targets: Targets) -> Router {
    Router::new(Arc::new(RoutePlan {
        targets,
        unmatched: Unmatched::Fail,
        tables_max: 10,
    }))
}

fn matching(source: &str, patterns: &[Option<&str>]) -> Router {
    plan(Targets::Matching {
        source: RouteSource::parse(source).unwrap(),
        patterns: patterns
            .iter()
            .map(|pattern| pattern.map(|pattern| Pattern::new(pattern).unwrap()))
            .collect(),
    })
}

fn named(source: Option<&str>, pattern: Option<&str>, template: Option<&str>) -> Router {
    let pattern = pattern.map(|pattern| Pattern::new(pattern).unwrap());
    plan(Targets::Named(NameRules {
        source: source.map(|source| RouteSource::parse(source).unwrap()),
        template: template.map(|text| names::parse_template(text, pattern.as_ref()).unwrap()),
        pattern,
        case: NameCase::Lower,
        dots: NameDots::Nested,
        default_namespace: Vec::new(),
        allowed: None,
    }))
}

fn builder() -> FrameBuilder {
    FrameBuilder::schemaless()
}

fn row(offset: i64, value: Value) -> Row {
    Row::new("Orders", 0, offset).value(value)
}

fn data(value: Value) -> Value {
    Value::object([("id", Value::Int64(1)), ("data", value)])
}

fn place(to: &To) -> String {
    match to {
        To::Every => "every".to_owned(),
        To::Configured(index) => format!("#{index}"),
        To::Named(table) => table.name.clone(),
    }
}

/// The groups as text: `table: rows`, then `unmatched: rows`, then `code: row`.
fn routes(router: &mut Router, frame: &FrameBuilder) -> Vec<String> {
    let bytes = frame.encode();
    let schemas = frame.schemas();
    let frame = Frame::decode(&bytes, &schemas).unwrap();
    let rows: Vec<u32> = (0..frame.rows() as u32).collect();
    let routed = router.route(&frame, &rows);
    let mut lines: Vec<String> = routed
        .groups
        .iter()
        .map(|group| format!("{}: {:?}", place(&group.to), group.rows))
        .collect();
    if !routed.unmatched.is_empty() {
        lines.push(format!("unmatched: {:?}", routed.unmatched));
    }
    lines.extend(
        routed
            .refused
            .iter()
            .map(|(row, error)| format!("{}: {row}", error.code())),
    );
    lines
}

#[test]
fn without_a_route_every_record_goes_to_every_table() {
    let frame = builder()
        .row(row(0, data(Value::Null)))
        .row(row(1, Value::text("x")));
    assert_eq!(routes(&mut plan(Targets::All), &frame), ["every: [0, 1]"]);
}

// Promise: A record goes to each table whose `route-regex` matches its route field as a whole; one that matches none is an error, not dropped.
#[test]
fn a_pattern_takes_whole_values_and_several_tables_may_match() {
    let frame = builder().rows([
        row(0, data(Value::text("lis"))),
        row(1, data(Value::text("list"))),
        row(2, data(Value::Null)),
        row(3, Value::object([("id", Value::Int64(1))])),
        row(4, data(Value::Int32(7))),
        row(5, data(Value::text("none"))),
    ]);
    let mut router = matching("value.data", &[Some("lis"), Some("lis.*|7"), None]);
    assert_eq!(
        routes(&mut router, &frame),
        ["#0: [0]", "#1: [0, 1, 4]", "unmatched: [2, 3, 5]"]
    );
    assert_eq!(router.unmatched_error().code(), "ROUTE_UNMATCHED");
}

#[test]
fn a_record_names_its_table_in_lower_case() {
    let frame = builder().rows([
        row(0, data(Value::text("DB.TBL"))),
        row(1, data(Value::text("db.tbl"))),
        row(2, data(Value::text("no_namespace"))),
        row(3, data(Value::Null)),
        row(4, data(Value::text("db.other"))),
    ]);
    assert_eq!(
        routes(&mut named(Some("value.data"), None, None), &frame),
        [
            "db.other: [4]",
            "db.tbl: [0, 1]",
            "unmatched: [3]",
            "ROUTE_NAME_INVALID: 2"
        ]
    );
}

// Promise: A route path that meets a value without fields is an error of that record, never a crash.
#[test]
fn paths_go_through_structs_and_maps_and_nothing_else() {
    let inner =
        SourceSchema::structure([("kind", SourceSchema::scalar(SourceKind::String).optional())]);
    let schema = SourceSchema::structure([
        ("after", inner.optional()),
        ("a.b", SourceSchema::scalar(SourceKind::String)),
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("ratio", SourceSchema::scalar(SourceKind::Float64)),
    ]);
    let value = |inner: Value| {
        Value::Struct(vec![
            inner,
            Value::text("db.dotted"),
            Value::Int64(5),
            Value::Float64(0.5),
        ])
    };
    let frame = FrameBuilder::with_value_schema(1, schema).rows([
        row(0, value(Value::Struct(vec![Value::text("db.x")]))),
        row(1, value(Value::Struct(vec![Value::Null]))),
        row(2, value(Value::Null)),
        row(3, Value::Null),
    ]);
    let by = |path: &str| routes(&mut named(Some(path), None, None), &frame);
    assert_eq!(
        by("value.after.kind"),
        ["db.x: [0]", "unmatched: [1, 2, 3]"]
    );
    assert_eq!(by("value.a.b"), ["db.dotted: [0, 1, 2]", "unmatched: [3]"]);
    assert_eq!(by("value.nope.kind"), ["unmatched: [0, 1, 2, 3]"]);
    let refused = by("value.id.x");
    assert_eq!(refused[0], "unmatched: [3]");
    assert!(
        refused[1..]
            .iter()
            .all(|line| line.starts_with("ROUTE_PATH_INVALID")),
        "{refused:?}"
    );
    assert!(by("value.ratio")[1].starts_with("ROUTE_VALUE_UNSUPPORTED"));
    assert!(by("value.after")[1].starts_with("ROUTE_VALUE_UNSUPPORTED"));

    let frame = builder().rows([
        row(
            0,
            Value::object([("after", Value::object([("kind", Value::text("db.x"))]))]),
        ),
        row(1, Value::object([("after", Value::text("flat"))])),
        row(2, Value::object([("after.kind", Value::text("db.y"))])),
        row(3, Value::text("no record")),
    ]);
    assert_eq!(
        routes(&mut named(Some("value.after.kind"), None, None), &frame),
        [
            "db.x: [0]",
            "db.y: [2]",
            "ROUTE_PATH_INVALID: 1",
            "ROUTE_PATH_INVALID: 3"
        ]
    );
}

// Promise: Records are routed by the topic that transforms left, and their offsets stay those of the topic that they were read from.
// Complaint: 20
#[test]
fn topics_route_as_transforms_left_them() {
    let frame = builder().rows([
        row(0, data(Value::Null)),
        row(1, data(Value::Null)).renamed("db.TBL"),
        row(2, data(Value::Null)).renamed("db.TBL"),
        row(3, data(Value::Null)),
        Row::new("db.tbl", 0, 0).value(data(Value::Null)),
    ]);
    let mut router = named(Some("topic"), None, None);
    assert_eq!(
        routes(&mut router, &frame),
        [
            "db.tbl: [1, 2, 4]",
            "ROUTE_NAME_INVALID: 0",
            "ROUTE_NAME_INVALID: 3"
        ]
    );
    let bytes = frame.encode();
    let decoded = Frame::decode(&bytes, &|_| None).unwrap();
    let topics: Vec<_> = decoded
        .runs()
        .iter()
        .map(|run| run.partition.topic.to_string())
        .collect();
    assert_eq!(topics, ["Orders", "Orders", "Orders", "db.tbl"]);
    assert_eq!(decoded.source(2).unwrap().1, 2);
    assert_eq!(
        routes(
            &mut matching("topic", &[Some("Orders"), Some(r"db\..*")]),
            &frame
        ),
        ["#0: [0, 3]", "#1: [1, 2, 4]"]
    );
}

#[test]
fn keys_and_headers_route_too() {
    let key = SourceSchema::structure([("tenant", SourceSchema::scalar(SourceKind::String))]);
    let of = |tenant: &str| Value::Struct(vec![Value::text(tenant)]);
    let frame = builder().key_schema(1, key).with_headers().rows([
        row(0, data(Value::Null))
            .key(of("db.a"))
            .header("to", Value::text("db.x"))
            .header("to", Value::text("db.y")),
        row(1, data(Value::Null)).key(of("db.b")),
        row(2, data(Value::Null)),
    ]);
    assert_eq!(
        routes(&mut named(Some("key.tenant"), None, None), &frame),
        ["db.a: [0]", "db.b: [1]", "unmatched: [2]"]
    );
    assert_eq!(
        routes(&mut named(Some("header.to"), None, None), &frame),
        ["db.y: [0]", "unmatched: [1, 2]"]
    );
    let frame = builder().row(row(0, data(Value::Null)).key(Value::text("db.k")));
    assert_eq!(
        routes(&mut named(Some("key"), None, None), &frame),
        ["db.k: [0]"]
    );
}

// Promise: A name template makes tables of topics, fields, headers and the groups of a pattern.
// Complaint: 20
#[test]
fn templates_put_names_together() {
    let frame = builder().rows([
        row(0, data(Value::text("Eu"))).renamed("shop.public.orders"),
        row(1, data(Value::text("us"))).renamed("shop.public.orders"),
        row(2, data(Value::Null)).renamed("odd"),
    ]);
    assert_eq!(
        routes(&mut named(None, None, Some("raw.${topic}")), &frame),
        ["raw.odd: [2]", "raw.shop.public.orders: [0, 1]"]
    );
    assert_eq!(
        routes(
            &mut named(None, None, Some("raw_${value.data}.${topic}")),
            &frame
        ),
        [
            "raw_eu.shop.public.orders: [0]",
            "raw_us.shop.public.orders: [1]",
            "unmatched: [2]"
        ]
    );
    let pattern = Some(r"(?<server>\w+)\.(\w+)\.(\w+)");
    assert_eq!(
        routes(
            &mut named(Some("topic"), pattern, Some("${server}.${2}_${3}")),
            &frame
        ),
        ["shop.public_orders: [0, 1]", "unmatched: [2]"]
    );
}

#[test]
fn names_that_are_not_allowed_are_unmatched() {
    let mut router = plan(Targets::Named(NameRules {
        source: Some(RouteSource::Topic),
        pattern: None,
        template: None,
        case: NameCase::Lower,
        dots: NameDots::Nested,
        default_namespace: vec!["raw".to_owned()],
        allowed: Some(AllowList::parse(&["raw.*".to_owned()]).unwrap()),
    }));
    let frame = builder().rows([
        row(0, data(Value::Null)),
        row(1, data(Value::Null)).renamed("secret.t"),
    ]);
    assert_eq!(
        routes(&mut router, &frame),
        ["raw.orders: [0]", "unmatched: [1]"]
    );
}

#[test]
fn many_different_texts_are_not_remembered_for_ever() {
    let mut router = named(Some("value.data"), None, None);
    for block in 0..50 {
        let rows = (0..250).map(|index| {
            row(
                index,
                data(Value::String(format!("db.t{}", block * 250 + index))),
            )
        });
        let lines = routes(&mut router, &builder().rows(rows));
        assert_eq!(lines.len(), 250);
    }
}

#[test]
fn no_error_shows_what_the_record_says() {
    let secret = "Geheim/4711";
    let frame = builder().row(row(0, data(Value::text(secret))));
    let bytes = frame.encode();
    let frame = Frame::decode(&bytes, &|_| None).unwrap();
    let routed = named(Some("value.data"), None, None).route(&frame, &[0]);
    let report = routed.refused[0].1.report();
    assert!(
        report.contains("letters=11") && !report.to_lowercase().contains("geheim"),
        "{report}"
    );
}

#[test]
fn a_topic_alone_says_where_its_records_go_as_records_would() {
    let frame = builder().rows([row(0, data(Value::Null))]);
    let patterns = [Some("Ord.*"), None, Some("other"), Some("Orders")];
    for (mut router, expected) in [
        (plan(Targets::All), vec!["every"]),
        (matching("topic", &patterns), vec!["#0", "#3"]),
        (matching("topic", &[Some("other")]), vec![]),
        (named(None, None, Some("raw.${topic}")), vec!["raw.orders"]),
        (
            named(Some("topic"), Some("(Ord)(.*)"), Some("a.${2}_${1}")),
            vec!["a.ers_ord"],
        ),
        (
            named(Some("topic"), Some("other(.*)"), Some("a.${1}")),
            vec![],
        ),
    ] {
        let places = router.plan().of_topic("Orders").unwrap().unwrap();
        let places: Vec<String> = places.iter().map(place).collect();
        assert_eq!(places, expected);
        let lines: Vec<String> = match places.is_empty() {
            true => vec!["unmatched: [0]".to_owned()],
            false => places.iter().map(|place| format!("{place}: [0]")).collect(),
        };
        assert_eq!(routes(&mut router, &frame), lines, "a record of the topic");
    }
    for router in [
        matching("value.data", &[Some("Orders")]),
        named(Some("key"), None, Some("raw.${topic}")),
        named(None, None, Some("raw.${topic}.${header.h}")),
    ] {
        assert_eq!(router.plan().of_topic("Orders").unwrap(), None);
    }
    let unnamed = named(Some("topic"), None, None);
    let error = unnamed.plan().of_topic("Orders").unwrap_err();
    assert_eq!(error.code(), "ROUTE_NAME_INVALID");
}
