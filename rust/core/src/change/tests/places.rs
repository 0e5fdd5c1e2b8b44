//! Changes of a key over several partitions, and places that say less than they seem to.

use iceberg::spec::PrimitiveType;

use super::fixture::{Encoding, Sample, Seen, Shown, Table, key, plan, run};
use crate::change::Order;
use crate::change::resolve::{Resolution, Squash};

fn id() -> Table {
    key(&[("id", PrimitiveType::Long)])
}

/// A record of Debezium: operation, key, and the key that its row had before.
fn moved(source: &str, (op, id): (&str, i64), old: Option<i64>) -> Sample {
    let row = format!(r#"{{"id":{id},"v":"x"}}"#);
    let (before, after) = match op {
        "d" => (&*row, "null"),
        _ => ("null", &*row),
    };
    let text =
        format!(r#"{{"before":{before},"after":{after},"source":{{{source}}},"op":"{op}"}}"#);
    let old = old.map(|id| ("__debezium.oldkey".to_owned(), format!(r#"{{"id":{id}}}"#)));
    Sample {
        key: Some(format!(r#"{{"id":{id}}}"#).into_bytes()),
        value: Some(text.into_bytes()),
        headers: old.into_iter().collect(),
        ..Sample::default()
    }
}

fn shown(seen: Vec<Seen>) -> Vec<Shown> {
    let shown = |seen| match seen {
        Seen::Change(shown) => shown,
        other => panic!("{other:?}"),
    };
    seen.into_iter().map(shown).collect()
}

/// The keys that have a row after a commit of these changes, as they arrive.
fn keys_left(changes: &[Shown]) -> Vec<Vec<u8>> {
    let mut squash = Squash::default();
    for (change, row) in changes.iter().zip(0..) {
        let order = change.order.as_deref().map(Order::of);
        if let Some(old) = &change.old_key {
            squash.delete(old, change.old_order.as_deref().map(Order::of));
        }
        match change.op {
            "d" => squash.delete(&change.key, order),
            _ => squash.put(&change.key, order, row),
        }
    }
    let grouped = squash.group();
    let unknown = vec![None; grouped.keys().len()];
    let Resolution { outcomes, .. } = grouped.resolve(&unknown);
    let left = outcomes.iter().filter(|outcome| outcome.row.is_some());
    left.map(|outcome| outcome.key.to_vec()).collect()
}

// Promise: rows whose keys move up by one in a transaction, all at one place of the source, are all there,
// whichever partition arrives first
#[test]
fn keys_that_move_up_in_one_transaction_lose_no_row() {
    for source in [
        r#""connector":"mariadb","name":"s","gtid":"0-1-7","server_id":1,"file":"m.1","pos":4,"row":0"#,
        r#""connector":"oracle","name":"s","commit_scn":"9","scn":"7","ssn":0"#,
        // What had no order has none: only the deletes of the source itself count.
        r#""connector":"mongodb","name":"s""#,
    ] {
        // UPDATE t SET id = id + 1 ORDER BY id DESC, of the rows 1 and 2.
        let of_two = [
            moved(source, ("d", 2), None),
            moved(source, ("c", 2), Some(1)),
        ];
        let of_others = [
            moved(source, ("c", 3), Some(2)),
            moved(source, ("d", 1), None),
        ];
        let moved = shown(run(&mut plan("debezium", id()), &of_two, Encoding::Java));
        let order = |order: &Option<Vec<u8>>| order.clone().unwrap_or_default();
        let (put, removed) = (order(&moved[1].order), order(&moved[1].old_order));
        let at_place = Order::of(&put).is_at_place_of(&Order::of(&removed));
        assert_eq!(at_place, moved[1].order.is_some());
        for parts in [[&of_two, &of_others], [&of_others, &of_two]] {
            let samples: Vec<Sample> = parts
                .into_iter()
                .flatten()
                .cloned()
                .zip(0..)
                .map(|(sample, offset)| Sample { offset, ..sample })
                .collect();
            let seen = run(&mut plan("debezium", id()), &samples, Encoding::Java);
            assert_eq!(
                run(&mut plan("debezium", id()), &samples, Encoding::Json),
                seen
            );
            assert_eq!(keys_left(&shown(seen)), [vec![2], vec![3]], "{source}");
        }
    }
}

// A removal by the row before is the only one that the source tells of.
#[test]
fn a_removal_by_the_row_before_has_the_order_of_its_change() {
    let text = r#"{"before":{"id":1},"after":{"id":2},
        "source":{"connector":"oracle","commit_scn":"9","scn":"7"},"op":"u"}"#;
    let sample = Sample {
        key: Some(br#"{"id":2}"#.to_vec()),
        value: Some(text.as_bytes().to_vec()),
        ..Sample::default()
    };
    let seen = run(&mut plan("debezium", id()), &[sample], Encoding::Java);
    let change = &shown(seen)[0];
    assert_eq!(change.old_key.as_deref(), Some(&[1][..]));
    assert!(change.order.is_some() && change.order == change.old_order);
}

// Promise: where rows do not say their operation, a row that a transaction deletes and inserts again stays
#[test]
fn a_row_that_comes_back_without_its_operation_stays() {
    let sequence = |lsn: i64| format!(r#""__source_sequence":"[\"5\",\"{lsn}\"]""#);
    let place = |lsn: i64| format!(r#""__source_lsn":{lsn}"#);
    let text = |deleted: bool, order: String| {
        format!(r#"{{"id":1,"__deleted":"{deleted}","__source_connector":"postgresql",{order}}}"#)
    };
    for (texts, has_order) in [
        ([text(true, sequence(7)), text(false, sequence(8))], true),
        // The place alone says nothing of rows that may be of a snapshot.
        ([text(true, place(7)), text(false, place(8))], false),
    ] {
        let keyed = texts.each_ref().map(|text| (r#"{"id":1}"#, &**text));
        for encoding in [Encoding::Java, Encoding::Json] {
            let mut plan = plan("debezium-unwrapped", id());
            let seen = shown(run(&mut plan, &super::fixture::records(&keyed), encoding));
            assert_eq!(seen[0].op, "d");
            assert!(
                seen.iter()
                    .all(|change| change.order.is_some() == has_order)
            );
            assert_eq!(keys_left(&seen), [vec![1]]);
        }
    }
}
