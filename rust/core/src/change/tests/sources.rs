//! Envelopes of sources that have no records in `tests/debezium`, made by hand after Debezium's
//! documentation, and what orders their changes.

use std::cmp::Ordering;

use iceberg::spec::PrimitiveType;

use super::fixture::{Encoding, Seen, key, lines, plan, records, run};
use crate::change::Order;

fn envelope(op: &str, source: &str) -> String {
    let (before, after) = match op {
        "d" => (r#"{"id":1}"#, "null"),
        _ => ("null", r#"{"id":1,"v":"x"}"#),
    };
    format!(r#"{{"before":{before},"after":{after},"source":{{{source}}},"op":"{op}","ts_ms":1}}"#)
}

/// The orders of changes of key 1 from these sources, each by its operation.
fn orders(changes: &[(&str, &str)]) -> Vec<Option<Vec<u8>>> {
    let texts: Vec<String> = changes
        .iter()
        .map(|(op, source)| envelope(op, source))
        .collect();
    let keyed: Vec<(&str, &str)> = texts.iter().map(|text| (r#"{"id":1}"#, &**text)).collect();
    let mut plan = plan("debezium", key(&[("id", PrimitiveType::Long)]));
    let natively = run(&mut plan, &records(&keyed), Encoding::Json);
    let seen = run(&mut plan, &records(&keyed), Encoding::Java);
    assert_eq!(natively, seen);
    let order = |seen: Seen| match seen {
        Seen::Change(shown) => shown.order,
        other => panic!("{other:?}"),
    };
    seen.into_iter().map(order).collect()
}

/// Compares the orders of two changes.
fn compared(first: (&str, &str), second: (&str, &str)) -> Option<Ordering> {
    let orders = orders(&[first, second]);
    let order = |index: usize| orders[index].as_deref().map(Order::of).expect("an order");
    order(0).compare(&order(1))
}

const LESS: Option<Ordering> = Some(Ordering::Less);
const EQUAL: Option<Ordering> = Some(Ordering::Equal);

/// A change of PostgreSQL: where the last transaction was committed, and where it is itself.
fn postgres(commit: Option<i64>, lsn: i64) -> String {
    let commit = commit.map_or("null".to_owned(), |commit| format!(r#"\"{commit}\""#));
    format!(r#""connector":"postgresql","name":"s","sequence":"[{commit},\"{lsn}\"]","lsn":{lsn}"#)
}

// Promise: PostgreSQL's changes are ordered by the commits before them and then by their place: one that
// is sent later is never the older one, though its place in the log may be before
#[test]
fn postgresql_is_ordered_by_commit_and_place() {
    let at = |commit: i64, lsn: i64| postgres(Some(commit), lsn);
    assert_eq!(compared(("c", &at(100, 300)), ("u", &at(200, 250))), LESS);
    assert_eq!(compared(("u", &at(100, 255)), ("d", &at(100, 256))), LESS);
    assert_eq!(compared(("d", &at(100, 300)), ("c", &at(100, 300))), EQUAL);
    // An update of the transaction that follows the last commit of which a snapshot's row knows.
    assert_eq!(compared(("r", &at(100, 900)), ("u", &at(100, 250))), LESS);
    assert_eq!(compared(("u", &at(100, 900)), ("r", &at(200, 200))), LESS);
    // Before any commit: of the transaction that follows a snapshot.
    let first = |lsn: i64| postgres(None, lsn);
    assert_eq!(compared(("c", &first(90)), ("u", &first(91))), LESS);
    assert_eq!(compared(("c", &first(90)), ("u", &at(100, 80))), LESS);
    // Of the transaction that follows a second snapshot, after the log was lost.
    assert_eq!(compared(("u", &at(100, 120)), ("u", &first(150))), LESS);
}

// Promise: nothing is dropped for a row of a snapshot of which PostgreSQL does not tell the commit before
#[test]
fn rows_of_snapshots_have_no_order_without_a_commit() {
    let first = postgres(None, 900);
    let alone = r#""connector":"postgresql","name":"s","lsn":900"#;
    assert_eq!(orders(&[("r", &first), ("r", alone)]), [None, None]);
    // Old versions of Debezium write no commit; the place orders the changes of a row.
    let at = |lsn: i64| format!(r#""connector":"postgresql","name":"s","lsn":{lsn}"#);
    assert_eq!(compared(("c", &at(9)), ("u", &at(10))), LESS);
    assert_eq!(compared(("d", &at(7)), ("c", &at(7))), EQUAL);
    let mixed = orders(&[("u", &at(9)), ("u", &postgres(Some(8), 10))]);
    let order = |index: usize| mixed[index].as_deref().map(Order::of).expect("an order");
    assert_eq!(order(0).compare(&order(1)), None);
}

// Promise: the orders of two sources are never compared, so a new source does not lose its changes to an
// old one
#[test]
fn orders_of_two_sources_are_not_compared() {
    let at =
        |name: &str, lsn: i64| format!(r#""connector":"postgresql","name":"{name}","lsn":{lsn}"#);
    assert_eq!(compared(("c", &at("a", 9)), ("u", &at("b", 10))), None);
}

/// A change of MySQL: its transaction, server, and place in the binlog.
fn mysql(gtid: Option<&str>, server: i64, (file, pos): (&str, i64)) -> String {
    let gtid = gtid.map_or("null".to_owned(), |gtid| format!("\"{gtid}\""));
    format!(
        r#""connector":"mysql","name":"s","server_id":{server},"gtid":{gtid},"file":"{file}","pos":{pos},"row":0"#
    )
}

// Promise: MySQL's changes are ordered by binlog file and position of one server; what a transaction does
// to a row counts as it arrives
#[test]
fn mysql_is_ordered_by_the_position_of_one_server() {
    let position = |file: &str, pos: i64| mysql(None, 1, (file, pos));
    let nine = position("bin.000009", 900);
    assert_eq!(
        compared(("c", &nine), ("u", &position("bin.000010", 4))),
        LESS
    );
    assert_eq!(
        compared(("u", &nine), ("u", &position("bin.000009", 901))),
        LESS
    );
    assert_eq!(
        compared(("u", &nine), ("u", &position("bin.1000000", 4))),
        LESS
    );
    let other = mysql(None, 2, ("bin.000001", 4));
    assert_eq!(compared(("u", &nine), ("u", &other)), None);
    // A snapshot has the place of its reading, on whichever server that was.
    assert_eq!(orders(&[("r", &nine)]), [None]);
    let nowhere = nine.replace(r#""server_id":1,"#, "");
    assert_eq!(orders(&[("u", &nowhere)]), [None]);
}

// Promise: the numbers of MySQL's transactions order nothing, for the members of a group take them from
// blocks of their own: a later change with a smaller number is not dropped
#[test]
fn the_numbers_of_mysqls_transactions_order_nothing() {
    let group = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    for (first, second) in [
        (format!("{group}:1000001"), format!("{group}:7")),
        (format!("{group}:tag:9"), format!("{group}:10")),
    ] {
        // After the failover the place is in another member's binlog.
        let changes = [
            mysql(Some(&first), 1, ("bin.000009", 900)),
            mysql(Some(&second), 1, ("bin.000002", 4)),
        ];
        assert_eq!(
            orders(&[("c", &changes[0]), ("u", &changes[1])]),
            [None, None]
        );
    }
}

// Promise: MariaDB's changes are ordered by the number of their transaction in its domain; what a
// transaction does to a row counts as it arrives
#[test]
fn mariadb_is_ordered_by_transaction() {
    let at = |gtid: &str, pos: i64| {
        format!(
            r#""connector":"mariadb","name":"s","server_id":1,"gtid":"{gtid}","file":"m.1","pos":{pos},"row":0"#
        )
    };
    assert_eq!(
        compared(("c", &at("0-1-9", 900)), ("u", &at("0-2-10", 4))),
        LESS
    );
    // The same transaction from another server, whose places are others: as it arrives.
    assert_eq!(
        compared(("c", &at("0-1-9", 900)), ("u", &at("0-1-9", 4))),
        EQUAL
    );
    assert_eq!(
        compared(("r", &at("0-1-9", 4)), ("u", &at("0-1-9", 4))),
        LESS
    );
    assert_eq!(
        compared(("c", &at("0-1-9", 4)), ("u", &at("1-1-2", 4))),
        None
    );
    let mysql = at("0-1-9", 4).replace("mariadb", "mysql");
    assert_eq!(
        compared(("c", &mysql), ("u", &mysql.replace("0-1-9", "0-1-10"))),
        LESS
    );
}

// Promise: SQL Server's changes are ordered by commit, change and event
#[test]
fn sql_server_is_ordered_by_commit_change_and_event() {
    let at = |commit: &str, change: &str, event: &str| {
        format!(
            r#""connector":"sqlserver","name":"s","commit_lsn":"{commit}","change_lsn":{change},"event_serial_no":{event}"#
        )
    };
    let (nine, ten) = ("00000027:00000ac0:0009", "00000027:00000ac0:000a");
    let quoted = |lsn: &str| format!("\"{lsn}\"");
    assert_eq!(
        compared(
            ("c", &at(nine, &quoted(ten), "1")),
            ("u", &at(ten, &quoted(nine), "1"))
        ),
        LESS
    );
    assert_eq!(
        compared(
            ("c", &at(nine, &quoted(nine), "1")),
            ("u", &at(nine, &quoted(ten), "1"))
        ),
        LESS
    );
    assert_eq!(
        compared(
            ("c", &at(nine, &quoted(nine), "1")),
            ("u", &at(nine, &quoted(nine), "2"))
        ),
        LESS
    );
    assert_eq!(
        compared(
            ("r", &at(nine, "null", "null")),
            ("u", &at(nine, &quoted(nine), "1"))
        ),
        LESS
    );
}

// Promise: Oracle's changes are ordered by the SCN of their commit, then by their own
#[test]
fn oracle_is_ordered_by_scn() {
    let at = |commit: &str, scn: &str, ssn: i64| {
        format!(
            r#""connector":"oracle","name":"s","commit_scn":{commit},"scn":"{scn}","ssn":{ssn}"#
        )
    };
    assert_eq!(
        compared(
            ("c", &at("\"99\"", "90", 0)),
            ("u", &at("\"100\"", "80", 0))
        ),
        LESS
    );
    assert_eq!(
        compared(("c", &at("\"99\"", "90", 0)), ("u", &at("\"99\"", "91", 0))),
        LESS
    );
    // The number inside of a redo record begins again with the next one.
    assert_eq!(
        compared(("c", &at("\"99\"", "90", 5)), ("u", &at("\"99\"", "90", 0))),
        EQUAL
    );
    assert_eq!(
        compared(("r", &at("null", "99", 0)), ("u", &at("\"99\"", "98", 0))),
        LESS
    );
}

// Promise: MongoDB's changes count as they arrive, for its times may go back; its rows that are texts are
// refused with the transform to use
#[test]
fn mongodb_counts_as_it_arrives() {
    let at =
        |ts: i64, ord: i64| format!(r#""connector":"mongodb","name":"s","ts_ms":{ts},"ord":{ord}"#);
    let seen = orders(&[("c", &at(2_000, 9)), ("u", &at(1_000, 1))]);
    assert_eq!(seen, [None, None]);
    let text = r#"{"before":null,"after":"{\"_id\":1}","source":{"ts_ms":1,"ord":1},"op":"c"}"#;
    let mut plan = plan("debezium", key(&[("id", PrimitiveType::Long)]));
    let seen = run(
        &mut plan,
        &records(&[(r#"{"id":"1"}"#, text)]),
        Encoding::Java,
    );
    assert_eq!(lines(&seen), ["0 refuse CHANGE_ROW_NOT_A_RECORD"]);
}

#[test]
fn what_is_not_of_the_form_of_its_source_is_refused() {
    let mut plan = plan("debezium", key(&[("id", PrimitiveType::Long)]));
    for (connector, fields) in [
        ("postgresql", r#""lsn":1.5"#),
        ("postgresql", r#""lsn":"12x""#),
        ("postgresql", r#""sequence":"[\"1\"]","lsn":1"#),
        ("postgresql", r#""sequence":"[\"1\",\"x\"]","lsn":1"#),
        ("postgresql", r#""sequence":"1","lsn":1"#),
        ("postgresql", r#""sequence":7,"lsn":1"#),
        ("sqlserver", r#""commit_lsn":"00000027:00000ac0""#),
        ("sqlserver", r#""commit_lsn":"00000027:00000ac0:0002:1""#),
        ("sqlserver", r#""commit_lsn":"0000002g:00000ac0:0002""#),
        ("mysql", r#""gtid":"x","pos":1"#),
        ("mariadb", r#""gtid":"a-b-c-1","pos":1"#),
        ("mysql", r#""server_id":1,"file":"binlog","pos":1"#),
        ("oracle", r#""scn":"99999999999999999999""#),
        // A name is a text or a number.
        ("postgresql", r#""name":[1],"lsn":1"#),
    ] {
        let text = envelope("u", &format!(r#""connector":"{connector}",{fields}"#));
        let seen = run(
            &mut plan,
            &records(&[(r#"{"id":1}"#, &text)]),
            Encoding::Java,
        );
        assert_eq!(lines(&seen), ["0 refuse CHANGE_ORDER_INVALID"], "{fields}");
    }
    // Without any, changes count as they come.
    assert_eq!(orders(&[("u", r#""connector":"x""#)]), [None]);
}

// Promise: a source that writes fields of another's names in forms of its own (Db2, Informix, Cassandra)
// is read all the same; its changes count as they arrive
#[test]
fn fields_of_another_source_order_nothing() {
    let fields = [
        r#""commit_lsn":"00000000:00000000:00000000:0000a1b2","change_lsn":"00000000:0000a1b2""#,
        r#""commit_lsn":"120259166840","change_lsn":"120259166724","begin_lsn":"1""#,
        r#""file":"CommitLog-6-1706.log","pos":32"#,
    ];
    for (connector, fields) in ["db2", "informix", "cassandra"].iter().zip(fields) {
        for source in [
            format!(r#""connector":"{connector}",{fields}"#),
            fields.to_owned(),
        ] {
            assert_eq!(orders(&[("u", &source)]), [None], "{source}");
        }
    }
    // What has the form of a source is taken for it where nothing tells the source.
    let sql_server =
        r#""commit_lsn":"00000027:00000ac0:0002","change_lsn":"00000027:00000ac0:0002""#;
    assert!(orders(&[("u", sql_server)])[0].is_some());
    let other = format!(r#""connector":"db2",{sql_server}"#);
    assert_eq!(orders(&[("u", &other)]), [None]);
}

// Promise: a source that was set up anew and numbers its changes from the beginning can be told apart
#[test]
fn another_epoch_makes_orders_incomparable() {
    let mut config = plan("debezium", key(&[("id", PrimitiveType::Long)]))
        .config()
        .clone();
    let text = envelope("u", r#""name":"s","lsn":5"#);
    let sample = records(&[(r#"{"id":1}"#, &text)]);
    let mut order = |epoch: &str| {
        config.order_epoch = epoch.to_owned();
        let mut plan = super::fixture::planned(config.clone(), key(&[("id", PrimitiveType::Long)]));
        match run(&mut plan, &sample, Encoding::Java).remove(0) {
            Seen::Change(shown) => shown.order.expect("an order"),
            other => panic!("{other:?}"),
        }
    };
    let (first, second) = (order("1"), order("2"));
    assert_eq!(Order::of(&first).compare(&Order::of(&second)), None);
    assert_eq!(Order::of(&first).compare(&Order::of(&first)), EQUAL);
}
