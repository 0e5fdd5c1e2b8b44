//! Changes that columns of their rows order.

use std::cmp::Ordering;

use iceberg::spec::PrimitiveType;

use super::fixture::{Encoding, Seen, key, planned, records, run, table, unplanned_of};
use crate::change::{ChangeConfig, Envelope, Order};
use crate::wire::testing::{FrameBuilder, Row, Value};
use crate::wire::{Frame, SourceKind, SourceSchema};

const LESS: Option<Ordering> = Some(Ordering::Less);
const EQUAL: Option<Ordering> = Some(Ordering::Equal);

fn ordered(preset: &str, columns: &[&str]) -> ChangeConfig {
    ChangeConfig::new(Envelope::preset(preset).unwrap()).ordered_by(columns)
}

/// The orders of upserts of key 1 with these values of column `n`, as JSON.
fn orders_of(column: PrimitiveType, values: &[&str]) -> Vec<Vec<u8>> {
    let columns = [("id", PrimitiveType::Long), ("n", column)];
    let texts: Vec<String> = values
        .iter()
        .map(|value| format!(r#"{{"id":1,"n":{value}}}"#))
        .collect();
    let keyed: Vec<(&str, &str)> = texts.iter().map(|text| ("1", &**text)).collect();
    let mut plan = planned(ordered("upsert", &["n"]), table(&columns, 1));
    let seen = run(&mut plan, &records(&keyed), Encoding::Java);
    assert_eq!(run(&mut plan, &records(&keyed), Encoding::Json), seen);
    let order = |seen: Seen| match seen {
        Seen::Change(shown) => shown.order.expect("an order"),
        other => panic!("{other:?}"),
    };
    seen.into_iter().map(order).collect()
}

fn compared(column: PrimitiveType, first: &str, second: &str) -> Option<Ordering> {
    let orders = orders_of(column, &[first, second]);
    Order::of(&orders[0]).compare(&Order::of(&orders[1]))
}

// Promise: columns order changes by the values that the table has, however records write them: numbers and
// decimals in texts by number, times in texts by the moment, texts by their bytes
#[test]
fn columns_order_by_their_values() {
    let decimal = PrimitiveType::Decimal {
        precision: 20,
        scale: 2,
    };
    for (column, first, second, expected) in [
        (PrimitiveType::Long, r#""9""#, r#""10""#, LESS),
        (PrimitiveType::Long, "-1", r#""1""#, LESS),
        (PrimitiveType::Int, r#""10""#, "10", EQUAL),
        (decimal.clone(), r#""9.5""#, r#""10.25""#, LESS),
        (decimal, r#""-2""#, "-1.5", LESS),
        (
            PrimitiveType::Timestamptz,
            r#""2026-11-30T10:00:00Z""#,
            r#""2026-11-30T10:00:00.5Z""#,
            LESS,
        ),
        (
            PrimitiveType::Timestamptz,
            r#""2026-11-30T12:00:00+02:00""#,
            r#""2026-11-30T11:00:00Z""#,
            LESS,
        ),
        (
            PrimitiveType::Date,
            r#""2026-11-30""#,
            r#""2026-12-01""#,
            LESS,
        ),
        (PrimitiveType::Time, r#""09:00""#, r#""09:00:00.5""#, LESS),
        (PrimitiveType::String, r#""10""#, r#""9""#, LESS),
        (PrimitiveType::String, r#""a\u0000b""#, r#""ab""#, LESS),
        (PrimitiveType::String, r#""a""#, r#""a\u0000""#, LESS),
    ] {
        assert_eq!(
            compared(column, first, second),
            expected,
            "{first} {second}"
        );
    }
}

// Promise: changes can be ordered by columns of the row; a record without them is refused, and a delete
// without them counts as it comes
#[test]
fn columns_can_order_the_changes() {
    let columns = [
        ("id", PrimitiveType::Long),
        ("at", PrimitiveType::Date),
        ("n", PrimitiveType::Int),
    ];
    let mut plan = planned(ordered("upsert", &["at", "n"]), table(&columns, 1));
    let rows = [
        r#"{"at":"2026-11-29","n":2}"#,
        r#"{"at":"2026-11-29","n":10}"#,
        r#"{"at":"2026-12-01","n":-1}"#,
        r#"{"at":"x","n":1}"#,
        r#"{"n":1}"#,
        "",
    ];
    let keyed: Vec<(&str, &str)> = rows.iter().map(|row| ("1", *row)).collect();
    let seen = run(&mut plan, &records(&keyed), Encoding::Java);
    assert_eq!(seen[3], Seen::Refused(3, "VALUE_MALFORMED"));
    assert_eq!(seen[4], Seen::Refused(4, "CHANGE_ORDER_MISSING"));
    let order = |index: usize| match &seen[index] {
        Seen::Change(shown) => shown.order.as_deref().map(Order::of),
        other => panic!("{other:?}"),
    };
    let compare = |a: usize, b: usize| order(a).unwrap().compare(&order(b).unwrap());
    assert_eq!((compare(0, 1), compare(1, 2)), (LESS, LESS));
    assert_eq!(order(5), None);
    // The same values of other columns say nothing about these.
    let mut other = planned(ordered("upsert", &["n", "at"]), table(&columns, 1));
    let seen = run(&mut other, &records(&keyed[..1]), Encoding::Java);
    let Seen::Change(shown) = &seen[0] else {
        panic!("{seen:?}");
    };
    let turned = shown.order.as_deref().map(Order::of).unwrap();
    assert_eq!(order(0).unwrap().compare(&turned), None);
}

// Promise: a column that the table does not have yet orders nothing: its records are refused until it is
// there
#[test]
fn a_column_that_is_not_there_orders_nothing() {
    let mut plan = planned(
        ordered("upsert", &["n"]),
        key(&[("id", PrimitiveType::Long)]),
    );
    let seen = run(
        &mut plan,
        &records(&[("1", r#"{"id":1,"n":7}"#), ("1", "")]),
        Encoding::Java,
    );
    assert_eq!(seen[0], Seen::Refused(0, "CHANGE_ORDER_MISSING"));
    assert!(matches!(&seen[1], Seen::Change(shown) if shown.order.is_none()));
    let columns = [("id", PrimitiveType::Long), ("n", PrimitiveType::Double)];
    let error = unplanned_of(ordered("upsert", &["n"]), table(&columns, 1));
    assert_eq!(error.code(), "CHANGE_ORDER_UNSUPPORTED");
}

/// The orders of updates of key 1, then of deletes, each with this row and ordered by `n`.
fn orders_by_column(preset: &str, texts: &[String], is_whole: bool) -> Vec<Option<Vec<u8>>> {
    let mut config = ordered(preset, &["n"]);
    config.deleted_is_whole = is_whole;
    let columns = [("id", PrimitiveType::Long), ("n", PrimitiveType::Long)];
    let mut plan = planned(config, table(&columns, 1));
    let keyed: Vec<(&str, &str)> = texts.iter().map(|text| (r#"{"id":1}"#, &**text)).collect();
    let order = |seen: Seen| match seen {
        Seen::Change(shown) => shown.order,
        other => panic!("{other:?}"),
    };
    let seen = run(&mut plan, &records(&keyed), Encoding::Json);
    seen.into_iter().map(order).collect()
}

// Promise: the made-up values of the row before a delete order nothing: such a delete counts as it
// arrives, unless the row is said to be whole
#[test]
fn a_column_of_a_deleted_row_orders_only_where_the_row_is_whole() {
    let debezium = [
        r#"{"before":{"id":1,"n":1},"after":{"id":1,"n":7},"op":"u"}"#.to_owned(),
        r#"{"before":{"id":1,"n":0},"after":null,"op":"d"}"#.to_owned(),
    ];
    let unwrapped = [
        r#"{"id":1,"n":7,"__deleted":"false"}"#.to_owned(),
        r#"{"id":1,"n":0,"__deleted":"true"}"#.to_owned(),
    ];
    for (preset, texts) in [("debezium", debezium), ("debezium-unwrapped", unwrapped)] {
        let orders = orders_by_column(preset, &texts, false);
        assert!(orders[0].is_some() && orders[1].is_none(), "{preset}");
        let orders = orders_by_column(preset, &texts, true);
        let order = |index: usize| orders[index].as_deref().map(Order::of).expect("an order");
        assert_eq!(order(1).compare(&order(0)), LESS, "{preset}");
    }
}

#[test]
fn an_update_is_never_ordered_by_its_row_before() {
    let text = r#"{"before":{"id":1,"n":1},"after":{"id":1},"op":"u"}"#;
    let columns = [("id", PrimitiveType::Long), ("n", PrimitiveType::Long)];
    let mut plan = planned(ordered("debezium", &["n"]), table(&columns, 1));
    let seen = run(&mut plan, &records(&[("", text)]), Encoding::Java);
    assert_eq!(seen, [Seen::Refused(0, "CHANGE_ORDER_MISSING")]);
}

// Promise: columns order the changes of Canal too, whose rows are in lists and whose values are all texts
#[test]
fn columns_order_rows_in_lists() {
    let row = |n: i64| format!(r#"{{"data":[{{"id":"1","n":"{n}"}}],"old":null,"type":"UPDATE"}}"#);
    let orders = orders_by_column("canal", &[row(9), row(10)], false);
    let order = |index: usize| orders[index].as_deref().map(Order::of).expect("an order");
    assert_eq!(order(0).compare(&order(1)), LESS);
}

/// A struct as Connect has it, with an order by a timestamp.
#[test]
fn structs_are_ordered_by_what_their_schema_says() {
    let columns = [
        ("id", PrimitiveType::Long),
        ("at", PrimitiveType::Timestamp),
    ];
    let mut plan = planned(ordered("upsert", &["at"]), table(&columns, 1));
    let long = || SourceSchema::scalar(SourceKind::Int64);
    let schema = SourceSchema::structure([
        ("id", long()),
        ("at", long().named("io.debezium.time.MicroTimestamp")),
    ]);
    let row = |offset: i64, at: i64| {
        let fields = vec![Value::Int64(1), Value::Int64(at)];
        Row::new("t", 0, offset).value(Value::Struct(fields))
    };
    let built = FrameBuilder::with_value_schema(7, schema).rows([row(0, -1), row(1, 1)]);
    let bytes = built.encode();
    let frame = Frame::decode(&bytes, &built.schemas()).unwrap();
    let mut changes = crate::change::Changes::default();
    plan.evaluate(&frame, &[0, 1], &mut changes).unwrap();
    let order = |index: usize| changes.order(&changes.changes()[index]).unwrap();
    assert_eq!(order(0).compare(&order(1)), LESS);
    // Nanoseconds in 16 bytes, between the domain and the mark of a change.
    assert_eq!(order(0).bytes().len(), 8 + 16 + 1);
}

// Promise: a column that orders changes is found by the names that the row is found by
#[test]
fn a_renamed_column_orders_under_its_old_name() {
    let columns = [
        ("id", PrimitiveType::Long),
        ("version", PrimitiveType::Long),
    ];
    let mapping = r#"[{"field-id":2,"names":["v"]}]"#;
    let mut config = ordered("upsert", &["version"]);
    config.case_insensitive = true;
    let mut plan = planned(config, table(&columns, 1).mapped(mapping));
    let rows = [
        ("1", r#"{"id":1,"v":9}"#),
        ("1", r#"{"id":1,"VERSION":10}"#),
        ("1", r#"{"id":1,"V":10}"#),
    ];
    let seen = run(&mut plan, &records(&rows), Encoding::Java);
    let order = |index: usize| match &seen[index] {
        Seen::Change(shown) => shown.order.as_deref().map(Order::of).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(order(0).compare(&order(1)), LESS);
    // The names of the mapping count exactly.
    assert_eq!(seen[2], Seen::Refused(2, "CHANGE_ORDER_MISSING"));
}
