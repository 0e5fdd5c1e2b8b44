//! What a start asks of a catalog when records have named many tables.

use std::sync::Arc;

use frazil_core::commit::anchor::{Anchor, anchor_key};
use frazil_core::commit::home::home_key;
use frazil_core::wire::testing::{Row, Value};
use frazil_engine::admin::Admin;

use crate::bed::{Bed, TOPIC, Task, p};

const TABLES: i64 = 40;

fn table(number: i64) -> String {
    format!("lake.t{number}")
}

/// A record for the table of its number.
fn record(offset: i64) -> Row {
    let note = Value::text(&format!("t{}", offset % TABLES));
    Row::new(TOPIC, 0, offset)
        .value(Value::Struct(vec![Value::Int64(offset), note]))
        .timestamp(1_700_000_000_000 + offset)
}

fn put(task: &Task, offsets: std::ops::Range<i64>) {
    task.tick();
    let frame = task.frame().rows(offsets.map(record));
    let effects = task.try_put(&frame).expect("the frame is taken");
    assert_eq!(effects.rejected, vec![]);
}

/// A connector whose records have named `TABLES` tables.
fn many() -> Bed {
    let bed = Bed::new("").with("iceberg.tables.name-template", "lake.${value.note}");
    let task = bed.task();
    put(&task, 0..TABLES);
    task.until_durable(TABLES);
    task.session.close();
    bed
}

/// The epoch of a start, and how many tables it loaded.
fn start(bed: &Bed) -> (u64, usize) {
    let admin: Arc<Admin> = bed.admin();
    (
        admin.epoch().expect("the catalog answers"),
        admin.tables_loaded(),
    )
}

fn homes(bed: &Bed) -> Vec<String> {
    let key = home_key(&bed.config().wid);
    let is_home = |name: &String| bed.load(name).metadata.properties().contains_key(&key);
    (0..TABLES).map(table).filter(is_home).collect()
}

// Promise: a connector that has named very many tables does not load them all when it starts: a few of them
// know that the newest offset reset has reached all
#[test]
fn a_start_loads_few_of_many_tables() {
    let bed = many();
    assert_eq!(start(&bed), (0, TABLES as usize), "nobody knows yet");
    assert_eq!(homes(&bed).len(), 4);
    let (epoch, loaded) = start(&bed);
    assert!(epoch == 0 && loaded <= 8, "{loaded} tables");
    // A reset loads all, and so reaches all; starts after it are as quick.
    assert_eq!(bed.admin().reset([(p(0), Some(10))]).unwrap(), 1);
    let wid = bed.config().wid;
    for number in 0..TABLES {
        let loaded = bed.load(&table(number));
        assert_eq!(Anchor::of(&loaded.metadata, &wid).unwrap().epoch(), 1);
    }
    let (epoch, loaded) = start(&bed);
    assert!(epoch == 1 && loaded <= 8, "{loaded} tables");
    let task = bed.task_of_now();
    put(&task, 10..TABLES + 1);
    task.until_durable(TABLES + 1);
    assert_eq!(bed.ids("lake.t9"), [9]);
    assert_eq!(bed.ids("lake.t10"), [10, 10]);
    assert_eq!(bed.ids("lake.t0"), [0, TABLES]);
}

// Promise: an offset reset that was cut off is completed by the next start, however many tables there are
#[test]
fn a_reset_that_was_cut_off_is_completed_over_many_tables() {
    let bed = many();
    start(&bed);
    let wid = bed.config().wid;
    let mut anchor = Anchor::default();
    assert!(anchor.append(Default::default(), 1, 0));
    // What it leaves after its first anchor: no home, and one table that knows.
    for home in homes(&bed) {
        bed.set_property(&home, &home_key(&wid), None);
    }
    bed.set_property("lake.t7", &anchor_key(&wid), Some(&anchor.write().unwrap()));
    assert_eq!(start(&bed), (1, TABLES as usize));
    for number in 0..TABLES {
        let loaded = bed.load(&table(number));
        assert_eq!(Anchor::of(&loaded.metadata, &wid).unwrap(), anchor);
    }
    let (epoch, loaded) = start(&bed);
    assert!(epoch == 1 && loaded <= 8, "{loaded} tables");
}

#[test]
fn a_home_that_cannot_be_sure_is_none() {
    let bed = many();
    start(&bed);
    let key = home_key(&bed.config().wid);
    let homes = homes(&bed);
    let value = bed.load(&homes[0]).metadata.properties()[&key].clone();
    let all = TABLES as usize;
    // Of another table, of no known layout, and none at all.
    for wrong in [value.as_str(), "{\"v\":2}", "damaged"] {
        for home in &homes {
            bed.set_property(home, &key, None);
        }
        let at = homes.iter().find(|name| *name != &homes[0]).unwrap();
        bed.set_property(at, &key, Some(wrong));
        assert_eq!(start(&bed), (0, all), "{wrong}");
    }
    // Where tables are looked for in more places than before, it knows nothing of these.
    start(&bed);
    let wider = bed.with("iceberg.tables.dynamic-allow", "lake.*,other.*");
    assert_eq!(start(&wider), (0, all));
    assert!(start(&wider).1 <= 8);
}

#[test]
fn there_is_no_home_while_a_table_cannot_be_read() {
    let bed = many();
    let wid = bed.config().wid;
    // Whether this one has what the others have nobody can tell.
    bed.set_property("lake.t5", &anchor_key(&wid), Some("{}"));
    assert!(
        bed.admin().epoch().is_err(),
        "a reset that is not understood is not taken for none"
    );
    assert_eq!(homes(&bed), Vec::<String>::new());
    bed.set_property("lake.t5", &anchor_key(&wid), None);
    let metadata = bed.metadata_file("lake.t5");
    let whole = std::fs::read(&metadata).unwrap();
    std::fs::write(&metadata, "no metadata").unwrap();
    assert_eq!(start(&bed), (0, TABLES as usize));
    std::fs::write(&metadata, whole).unwrap();
    assert_eq!(homes(&bed), Vec::<String>::new());
    assert_eq!(start(&bed), (0, TABLES as usize));
    assert_eq!(homes(&bed).len(), 4);
}

#[test]
fn a_table_that_knows_of_a_later_reset_overrules_a_home() {
    let bed = many();
    start(&bed);
    let wid = bed.config().wid;
    let mut anchor = Anchor::default();
    assert!(anchor.append(Default::default(), 1, 0));
    // As after somebody restored old metadata of the others.
    let first = &homes(&bed)[0];
    bed.set_property(first, &anchor_key(&wid), Some(&anchor.write().unwrap()));
    assert_eq!(start(&bed).0, 1);
}

#[test]
fn few_tables_have_no_homes() {
    let bed = Bed::new("").with("iceberg.tables.name-template", "lake.${value.note}");
    let task = bed.task();
    put(&task, 0..5);
    task.until_durable(5);
    task.session.close();
    assert_eq!(start(&bed), (0, 5));
    assert_eq!(start(&bed), (0, 5));
    let key = home_key(&bed.config().wid);
    assert!(!bed.load("lake.t0").metadata.properties().contains_key(&key));
}
