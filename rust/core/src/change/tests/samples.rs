//! The records that Debezium wrote (`tests/debezium`), in each of their encodings.

use std::collections::BTreeMap;

use super::fixture::{
    Encoding, IdBytes, Sample, Seen, Shown, lines, orders_key, plan, run, samples,
};
use crate::change::resolve::{Base, Squash};
use crate::change::{ChangePlan, Image, OldRow, Order, Skip};

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/debezium/",
            $name
        ))
    };
}

/// What the statements of the bed do to `shop.orders`, by offset.
const ORDERS: [&str; 27] = [
    "0 r 1/1",
    "1 r 1/2",
    "2 r 2/1",
    "3 c 3/1",
    "4 u 1/1 without payload",
    "5 u 1/1",
    "6 d 1/1",
    "7 skip tombstone",
    "8 c 1/101 from 1/1 without payload",
    "9 d 2/1",
    "10 skip tombstone",
    "11 c 2/999 from 2/1 without note",
    "12 d 2/999",
    "13 skip tombstone",
    "14 c 2/1 from 2/999 without note",
    "15 c 4/1",
    "16 u 4/1",
    "17 u 4/1",
    "18 d 4/1",
    "19 skip tombstone",
    "20 c 4/1",
    "21 d 1/2",
    "22 skip tombstone",
    "23 c 5/1",
    "24 u 3/1",
    "25 u 3/1",
    "26 u 3/1",
];

fn debezium() -> ChangePlan {
    plan("debezium", orders_key())
}

fn seen(text: &str, encoding: Encoding<'_>) -> Vec<Seen> {
    run(&mut debezium(), &samples(text), encoding)
}

fn changes<'s>(seen: &'s [Seen]) -> Vec<&'s Shown> {
    let change = |seen: &'s Seen| match seen {
        Seen::Change(shown) => Some(shown),
        _ => None,
    };
    seen.iter().filter_map(change).collect()
}

// Promise: Debezium's records are read as JSON with and without schemas, by Java's converter and by
// this library's, with one outcome
#[test]
fn orders_come_to_the_same_changes_in_each_encoding() {
    for (text, encoding) in [
        (sample!("pn.shop.orders.jsonl"), Encoding::Java),
        (sample!("pn.shop.orders.jsonl"), Encoding::Json),
        (sample!("px.shop.orders.jsonl"), Encoding::Java),
        (sample!("px.shop.orders.jsonl"), Encoding::Json),
        (sample!("ps.shop.orders.jsonl"), Encoding::Envelope),
    ] {
        assert_eq!(lines(&seen(text, encoding)), ORDERS, "{encoding:?}");
    }
}

// Promise: rows that ExtractNewRecordState flattened are read like the envelopes that they were
#[test]
fn unwrapped_orders_come_to_the_same_changes() {
    let expected: Vec<String> = ORDERS
        .iter()
        .map(|line| match line.strip_suffix(" skip tombstone") {
            // There it is the only sign of a delete, where the transform leaves out the other.
            Some(offset) => {
                let before = ORDERS[offset.parse::<usize>().unwrap() - 1];
                format!("{offset} d {}", before.rsplit(' ').next().unwrap())
            }
            None => (*line).to_owned(),
        })
        .collect();
    for (text, encoding) in [
        (sample!("pu.shop.orders.jsonl"), Encoding::Java),
        (sample!("pu.shop.orders.jsonl"), Encoding::Json),
        (sample!("pus.shop.orders.jsonl"), Encoding::Envelope),
    ] {
        let mut plan = plan("debezium-unwrapped", orders_key());
        let seen = run(&mut plan, &samples(text), encoding);
        assert_eq!(lines(&seen), expected, "{encoding:?}");
        for change in changes(&seen) {
            let own = change.fields.keys().find(|name| name.starts_with("__"));
            assert_eq!(own, None, "offset {}", change.offset);
        }
    }
}

// Promise: Debezium's Avro is read with the schema's id in a header and in front
#[test]
fn avro_orders_come_to_changes() {
    let header = Encoding::Avro(sample!("pa.schemas.json"), IdBytes::Header);
    let snapshot = ["0 r 2/1", "1 r 4/1", "2 r 5/1", "3 r 3/1", "4 r 1/101"];
    let seen_in_header = seen(sample!("pa.shop.orders.avro.jsonl"), header);
    assert_eq!(lines(&seen_in_header), snapshot);
    let front = Encoding::Avro(sample!("pb.schemas.json"), IdBytes::Frame);
    let mut expected = snapshot.to_vec();
    expected.extend([
        "5 c 9/1",
        "6 u 1/101 without payload",
        "7 d 9/1",
        "8 skip tombstone",
        "9 c 9/2 from 9/1",
        "10 u 9/2",
        "11 d 9/2",
        "12 skip tombstone",
    ]);
    assert_eq!(
        lines(&seen(sample!("pb.shop.orders.avro.jsonl"), front)),
        expected
    );
}

// Promise: what MySQL's connector sends is read the same way
#[test]
fn orders_of_the_mysql_connector_come_to_changes() {
    let with_java = seen(sample!("my.shop.orders.jsonl"), Encoding::Java);
    let natively = seen(sample!("my.shop.orders.jsonl"), Encoding::Json);
    assert_eq!(lines(&with_java), lines(&natively));
    assert_eq!(
        lines(&with_java)[..12],
        [
            "0 r 1/1",
            "1 r 1/2",
            // The largest unsigned BIGINT, as it arrives by default.
            "2 r 2/-1",
            "3 c 3/1",
            "4 u 1/1",
            "5 d 1/1",
            "6 skip tombstone",
            "7 c 1/101 from 1/1",
            "8 c 4/1",
            "9 u 4/1",
            "10 d 4/1",
            "11 skip tombstone",
        ]
    );
    // There the largest unsigned BIGINT is a decimal, which a long cannot hold.
    let text = sample!("mys.shop.orders.jsonl");
    let refused = |seen: &[Seen]| {
        let refused = |seen: &&Seen| matches!(seen, Seen::Refused(..));
        seen.iter()
            .filter(refused)
            .map(Seen::line)
            .collect::<Vec<_>>()
    };
    let with_long = seen(text, Encoding::Envelope);
    assert_eq!(refused(&with_long), ["1 refuse VALUE_OUT_OF_RANGE"]);
    let decimal = iceberg::spec::PrimitiveType::Decimal {
        precision: 20,
        scale: 0,
    };
    let tenant = ("tenant_id", iceberg::spec::PrimitiveType::Int);
    let key = super::fixture::key(&[tenant, ("order_no", decimal)]);
    let with_decimal = run(
        &mut plan("debezium", key),
        &samples(text),
        Encoding::Envelope,
    );
    assert!(refused(&with_decimal).is_empty());
    assert_eq!(changes(&with_decimal).len(), changes(&with_long).len() + 1);
}

// Promise: heartbeats, transaction records, statements that change schemas and logical messages are
// recognised in every encoding, and make no rows
#[test]
fn records_that_are_no_changes_are_skipped_by_what_they_are() {
    let files = [
        (
            sample!("__debezium-heartbeat.px.jsonl"),
            Encoding::Java,
            Skip::Heartbeat,
            3,
        ),
        (
            sample!("__debezium-heartbeat.px.jsonl"),
            Encoding::Json,
            Skip::Heartbeat,
            3,
        ),
        (
            sample!("px.transaction.jsonl"),
            Encoding::Java,
            Skip::Transaction,
            34,
        ),
        (
            sample!("px.transaction.jsonl"),
            Encoding::Json,
            Skip::Transaction,
            34,
        ),
        (
            sample!("my.ddl.jsonl"),
            Encoding::Java,
            Skip::SchemaChange,
            17,
        ),
        (
            sample!("my.ddl.jsonl"),
            Encoding::Json,
            Skip::SchemaChange,
            17,
        ),
        (
            sample!("mys.ddl.jsonl"),
            Encoding::Envelope,
            Skip::SchemaChange,
            6,
        ),
        (
            sample!("pn.message.jsonl"),
            Encoding::Java,
            Skip::Message,
            1,
        ),
        (
            sample!("px.message.jsonl"),
            Encoding::Json,
            Skip::Message,
            1,
        ),
        (
            sample!("ps.message.jsonl"),
            Encoding::Envelope,
            Skip::Message,
            1,
        ),
        (
            sample!("pu.message.jsonl"),
            Encoding::Java,
            Skip::Message,
            1,
        ),
        (
            sample!("pus.message.jsonl"),
            Encoding::Envelope,
            Skip::Message,
            1,
        ),
    ];
    for preset in ["debezium", "debezium-unwrapped"] {
        for (text, encoding, skip, count) in files {
            let seen = run(&mut plan(preset, orders_key()), &samples(text), encoding);
            assert_eq!(seen.len(), count, "{preset} {skip:?}");
            let others = seen
                .iter()
                .find(|seen| !matches!(seen, Seen::Skipped(_, found) if *found == skip));
            assert_eq!(others, None, "{preset} {encoding:?}");
        }
    }
}

// Promise: a table without a primary key in the source has no key: its changes are refused, not guessed
#[test]
fn records_of_a_table_without_a_key_are_refused() {
    for (text, encoding) in [
        (sample!("pn.shop.nokey.jsonl"), Encoding::Java),
        (sample!("ps.shop.nokey.jsonl"), Encoding::Envelope),
    ] {
        let expected = ["0 refuse CHANGE_KEY_NULL", "1 refuse CHANGE_KEY_NULL"];
        assert_eq!(lines(&seen(text, encoding)), expected);
    }
    let truncated = lines(&seen(sample!("px.shop.nokey.jsonl"), Encoding::Java));
    assert_eq!(truncated[2], "2 refuse CHANGE_TRUNCATE");
}

// Promise: the row before a delete is not trusted (under REPLICA IDENTITY DEFAULT it holds made-up
// values): a soft delete takes the table's row
#[test]
fn the_row_of_a_delete_is_only_believed_when_it_is_said_to_be_whole() {
    let mut config = debezium().config().clone();
    config.soft_delete = Some("_deleted".to_owned());
    let text = samples(sample!("pn.shop.orders.jsonl"));
    let mut plan = super::fixture::planned(config.clone(), orders_key());
    let deleted = |seen: &[Seen]| {
        changes(seen)
            .iter()
            .find(|c| c.op == "d")
            .map(|c| c.old_row)
    };
    assert_eq!(
        deleted(&run(&mut plan, &text, Encoding::Java)),
        Some(OldRow::Whole)
    );
    config.deleted_is_whole = true;
    let mut plan = super::fixture::planned(config, orders_key());
    assert_eq!(
        deleted(&run(&mut plan, &text, Encoding::Java)),
        Some(OldRow::NotNeeded)
    );
}

// Promise: under REPLICA IDENTITY FULL nothing is left out, and a delete has its row
#[test]
fn whole_rows_come_with_replica_identity_full() {
    for (text, encoding) in [
        (sample!("pn.shop.orders_full.jsonl"), Encoding::Java),
        (sample!("px.shop.orders_full.jsonl"), Encoding::Json),
        (sample!("ps.shop.orders_full.jsonl"), Encoding::Envelope),
    ] {
        let seen = seen(text, encoding);
        assert!(
            changes(&seen)
                .iter()
                .all(|change| change.unavailable.is_empty())
        );
        let mut deletes = changes(&seen);
        deletes.retain(|change| change.op == "d");
        assert!(!deletes.is_empty());
        for delete in deletes {
            assert_eq!(delete.image, Image::Deleted);
            assert_ne!(delete.fields["amount"], "null");
        }
    }
}

// Promise: the row of a change has the columns of the source and nothing of the envelope; a value that
// was left out is null in it
#[test]
fn rows_come_out_of_their_envelopes() {
    for (text, encoding) in [
        (sample!("pn.shop.orders.jsonl"), Encoding::Java),
        (sample!("pn.shop.orders.jsonl"), Encoding::Json),
        (sample!("ps.shop.orders.jsonl"), Encoding::Envelope),
    ] {
        let seen = seen(text, encoding);
        let at = |offset: i64| {
            let found = changes(&seen)
                .into_iter()
                .find(|change| change.offset == offset);
            &found.expect("a change").fields
        };
        let names: Vec<&str> = at(3).keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "amount",
                "b",
                "created_at",
                "d",
                "f4",
                "flag",
                "iv",
                "local_ts",
                "mood",
                "note",
                "order_no",
                "payload",
                "qty",
                "rate",
                "ratio",
                "status",
                "t",
                "tags",
                "tenant_id",
                "ts3",
                "uid"
            ]
        );
        assert_eq!(at(3)["note"], "\"n\"");
        assert_eq!(at(4)["status"], "\"paid\"");
        assert_eq!(at(4)["payload"], "null");
        assert_eq!(at(4)["note"], "\"short note\"");
        assert!(at(5)["payload"].starts_with("\"{"));
        assert_eq!(at(25)["remark"], "\"r\"");
        assert!(!at(26).contains_key("ratio"));
    }
}

/// A table in memory: what commits of the samples leave.
#[derive(Default)]
struct Table {
    rows: BTreeMap<Vec<u8>, BTreeMap<String, String>>,
    orders: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Table {
    fn commit(&mut self, shown: &[&Shown]) {
        let known = self.orders.clone();
        let mut squash = Squash::default();
        for (change, row) in shown.iter().zip(0..) {
            let order = change.order.as_deref().map(Order::of);
            let partial = change.old_row == OldRow::Columns;
            match (change.op, &change.old_key, partial) {
                ("d", ..) => squash.delete(&change.key, order),
                (_, Some(old), _) => squash.move_row((old, &change.key), order, row, partial),
                (_, None, true) => squash.put_partial(&change.key, order, row),
                (_, None, false) => squash.put(&change.key, order, row),
            }
        }
        let grouped = squash.group();
        let stored: Vec<_> = grouped
            .keys()
            .map(|key| {
                let has_row = self.rows.contains_key(key);
                let order = known.get(key).map(|order| Order::of(order));
                let is_known = has_row || order.is_some();
                is_known.then_some(crate::change::resolve::Stored { has_row, order })
            })
            .collect();
        let old = self.rows.clone();
        for outcome in grouped.resolve(&stored).outcomes {
            self.rows.remove(outcome.key);
            if let Some(order) = outcome.order {
                self.orders
                    .insert(outcome.key.to_vec(), order.bytes().to_vec());
            }
            let Some(row) = outcome.row else { continue };
            let change = shown[row as usize];
            let mut fields = change.fields.clone();
            for name in &change.unavailable {
                fields.insert(name.clone(), found(name, &outcome.bases, shown, &old));
            }
            self.rows.insert(outcome.key.to_vec(), fields);
        }
    }
}

fn found(
    name: &str,
    bases: &[Base<'_>],
    shown: &[&Shown],
    old: &BTreeMap<Vec<u8>, BTreeMap<String, String>>,
) -> String {
    for base in bases {
        match base {
            Base::Row(row) => {
                let change = shown[*row as usize];
                if !change.unavailable.iter().any(|left| left == name) {
                    return change.fields[name].clone();
                }
            }
            Base::Table(key) => return old[*key][name].clone(),
        }
    }
    panic!("no row has `{name}`");
}

// Promise: a value that the source left out is the one that the row had, in one commit or over several,
// and through updates of the key
#[test]
fn the_table_ends_as_the_source_in_commits_of_any_size() {
    for (text, encoding) in [
        (sample!("pn.shop.orders.jsonl"), Encoding::Java),
        (sample!("px.shop.orders.jsonl"), Encoding::Json),
        (sample!("ps.shop.orders.jsonl"), Encoding::Envelope),
    ] {
        let seen = seen(text, encoding);
        let all = changes(&seen);
        let mut expected = None;
        for size in [1, 2, 3, 5, 8, all.len()] {
            let mut table = Table::default();
            // A row that changes its key comes in two records, which one commit has to have: the
            // values that the second leaves out are those of the row that the first removes.
            let mut rest = all.as_slice();
            while !rest.is_empty() {
                let mut end = size.min(rest.len());
                while rest[end - 1].awaits_new_key {
                    end += 1;
                }
                table.commit(&rest[..end]);
                rest = &rest[end..];
            }
            let keys: Vec<String> = table
                .rows
                .keys()
                .map(|key| super::fixture::numbers(key))
                .collect();
            assert_eq!(keys, ["1/101", "2/1", "3/1", "4/1", "5/1"], "{size}");
            let row = table
                .rows
                .values()
                .find(|row| row["order_no"] == "Int64(101)");
            let row = row.expect("the row that changed its key");
            assert!(row["payload"].starts_with("\"{"), "{}", row["payload"]);
            assert!(row["payload"].contains("\\\"k\\\": 2"));
            let swapped = table.rows.values().find(|row| row["mood"] == "\"busy\"");
            assert!(swapped.expect("the row that came back")["note"].len() > 1_000);
            // All of it once more.
            let rows = table.rows.clone();
            table.commit(&all);
            assert_eq!(table.rows, rows);
            let expected = expected.get_or_insert(rows);
            assert_eq!(&table.rows, expected);
        }
    }
}

// Promise: an update of the key has one order for both of its records, and rows of a snapshot have one or
// none: an order says something about a key alone
#[test]
fn orders_rise_with_each_change_of_a_key() {
    for (text, encoding) in [
        (sample!("pn.shop.orders.jsonl"), Encoding::Java),
        (sample!("ps.shop.orders.jsonl"), Encoding::Envelope),
        (sample!("my.shop.orders.jsonl"), Encoding::Json),
        (sample!("mys.shop.orders.jsonl"), Encoding::Envelope),
    ] {
        let seen = seen(text, encoding);
        let mut last: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
        let mut orders = Vec::new();
        for change in changes(&seen) {
            // A snapshot's row of PostgreSQL is sent before a commit is known.
            let Some(order) = change.order.as_deref() else {
                assert_eq!(change.op, "r", "{}", change.offset);
                continue;
            };
            if let Some(before) = last.insert(&change.key, order) {
                let compared = Order::of(order).compare(&Order::of(before));
                assert_eq!(
                    compared,
                    Some(std::cmp::Ordering::Greater),
                    "{}",
                    change.offset
                );
            }
            orders.push((change.op, order));
        }
        let ties = orders.windows(2).filter(|pair| pair[0].1 == pair[1].1);
        let ties: Vec<(&str, &str)> = ties.map(|pair| (pair[0].0, pair[1].0)).collect();
        assert!(
            ties.contains(&("d", "c")) || ties.contains(&("r", "r")),
            "{ties:?}"
        );
        assert!(
            ties.iter()
                .all(|tie| matches!(tie, ("d", "c") | ("r", "r"))),
            "{ties:?}"
        );
    }
}

#[test]
fn headers_of_the_context_are_no_key() {
    let mut all: Vec<Sample> = samples(sample!("pn.shop.orders.jsonl"));
    for sample in &mut all {
        sample
            .headers
            .retain(|(name, _)| !name.starts_with("__debezium.oldkey"));
    }
    let seen = run(&mut debezium(), &all, Encoding::Java);
    assert!(changes(&seen).iter().all(|change| change.old_key.is_none()));
}
