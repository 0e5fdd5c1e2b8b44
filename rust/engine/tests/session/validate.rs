//! What Connect's `validate` is answered about tables, columns and the catalog.

use frazil_core::wire::effects::ValidationLevel;
use frazil_core::wire::testing::decode_validation;

use crate::bed::Bed;

const TABLE: &str = "db.orders";

type Problems = Vec<(String, ValidationLevel, String)>;

fn problems(bed: &Bed) -> Problems {
    decode_validation(&bed.validate()).expect("it follows the format")
}

/// A connector whose table is there, with some rows.
fn with_table() -> Bed {
    let bed = Bed::new(TABLE);
    let task = bed.task();
    task.put(0..3);
    task.until_durable(3);
    bed
}

fn assert_only(problems: &Problems, key: &str, level: ValidationLevel, parts: &[&str]) {
    let [(found, weight, message)] = problems.as_slice() else {
        panic!("one problem: {problems:#?}");
    };
    assert_eq!((found.as_str(), *weight), (key, level), "{problems:#?}");
    for part in parts {
        assert!(message.contains(part), "{message}");
    }
}

// Promise: columns that the configuration names and the table lacks are refused at `validate`, on their key, with the name that was meant
// Complaint: 17
#[test]
fn columns_that_the_table_lacks_are_refused() {
    const IDS: &str = "iceberg.table.db.orders.id-columns";
    const SORT: &str = "iceberg.table.db.orders.sort-by";
    let bed = with_table().with(IDS, "ld");
    let parts = ["column `ld`", "table=db.orders", "did you mean `id`?"];
    assert_only(&problems(&bed), IDS, ValidationLevel::Error, &parts);
    let bed = bed
        .with(IDS, "id")
        .with("iceberg.tables.default-sort-by", "nope");
    let parts = ["column `nope`"];
    assert_only(
        &problems(&bed),
        "iceberg.tables.default-sort-by",
        ValidationLevel::Error,
        &parts,
    );
    let bed = bed.with(SORT, "id");
    assert_eq!(problems(&bed), []);
}

#[test]
fn another_partitioning_is_refused_when_the_policy_says_so() {
    const PARTS: &str = "iceberg.tables.default-partition-by";
    const POLICY: &str = "iceberg.tables.partition-spec-policy";
    let bed = with_table()
        .with(PARTS, "bucket(id, 4)")
        .with(POLICY, "fail");
    let found = problems(&bed);
    assert_only(
        &found,
        PARTS,
        ValidationLevel::Error,
        &["PARTITION_SPEC_DIFFERS"],
    );
    assert_eq!(problems(&bed.with(POLICY, "keep")), []);
}

// Promise: every table that is missing and may not be created is named at `validate`
#[test]
fn every_missing_table_is_named() {
    let bed = Bed::new("db.a,db.b").with("iceberg.tables.auto-create-enabled", "false");
    let found = problems(&bed);
    assert_eq!(found.len(), 2, "{found:#?}");
    for ((key, level, message), table) in found.iter().zip(["db.a", "db.b"]) {
        assert_eq!(
            (key.as_str(), *level),
            ("iceberg.tables", ValidationLevel::Error)
        );
        assert!(message.contains(&format!("`{table}`")), "{message}");
    }
}

// Promise: a catalog that cannot be reached is an error on its address at `validate`, without a secret
#[test]
fn a_catalog_that_does_not_answer_is_an_error_on_its_address() {
    let bed = Bed::new(TABLE)
        .with("iceberg.catalog.type", "rest")
        .with("iceberg.catalog.uri", "http://127.0.0.1:1/")
        .with("iceberg.catalog.warehouse", "lake")
        .with("iceberg.catalog.token", "canary-4711");
    let found = problems(&bed);
    let parts = ["CATALOG_UNAVAILABLE"];
    assert_only(
        &found,
        "iceberg.catalog.uri",
        ValidationLevel::Error,
        &parts,
    );
    assert!(!format!("{found:?}").contains("canary"));
}

#[test]
fn a_catalog_file_that_is_not_there_is_an_error_on_its_address() {
    let bed = with_table().with("iceberg.catalog.uri", "sqlite:/no/such/folder/catalog.db");
    let found = problems(&bed);
    assert_only(
        &found,
        "iceberg.catalog.uri",
        ValidationLevel::Error,
        &["CATALOG_UNAVAILABLE"],
    );
}

// Promise: a table with changes is refused at `validate` and at the start of a task when one of its engines is not known to read its deletes
// Case: 29
#[test]
fn an_engine_that_reads_no_deletes_is_told_before_the_first_row() {
    const ENGINES: &str = "frazil.engines";
    const OWN: &str = "iceberg.table.db.orders.engines";
    let bed = Bed::new(TABLE)
        .with("iceberg.tables.default-mode", "upsert")
        .with("iceberg.tables.default-id-columns", "id")
        .with("iceberg.tables.auto-create-props.format-version", "3")
        .with(ENGINES, "duckdb, athena");
    let parts = ["ENGINE_READS_NO_DELETES", "athena", "format-version=2"];
    assert_only(&problems(&bed), ENGINES, ValidationLevel::Error, &parts);
    let Err(refused) = bed.open() else {
        panic!("the task starts");
    };
    assert_eq!(refused.code(), "ENGINE_READS_NO_DELETES");
    // What is said of the table counts before what is said of all.
    let bed = bed.with(OWN, "duckdb");
    assert_eq!(problems(&bed), []);
    bed.open().expect("it starts").session.close();
    let bed = bed.with(OWN, "athena");
    assert_only(&problems(&bed), OWN, ValidationLevel::Error, &parts);
}

// Promise: a column of the key that may be null is warned of at `validate`
#[test]
fn columns_of_the_key_that_may_be_null_are_told() {
    const IDS: &str = "iceberg.table.db.orders.id-columns";
    let bed = with_table().with("iceberg.tables.default-mode", "upsert");
    assert_eq!(problems(&bed.with(IDS, "id")), []);
    let bed = with_table()
        .with("iceberg.tables.default-mode", "upsert")
        .with(IDS, "note");
    let parts = ["`note`", "may be null", "`db.orders`", "CHANGE_KEY_NULL"];
    assert_only(&problems(&bed), IDS, ValidationLevel::Warning, &parts);
    bed.open().expect("it starts").session.close();
}

#[test]
fn deletes_of_another_kind_than_the_table_has_are_told_on_their_key() {
    const OWN: &str = "iceberg.table.db.orders.delete-mode";
    const ALL: &str = "iceberg.tables.default-delete-mode";
    let bed = Bed::new(TABLE)
        .with("iceberg.tables.default-mode", "upsert")
        .with("iceberg.tables.default-id-columns", "id")
        .with(ALL, "vector");
    let parts = ["DELETE_MODE_UNFIT", "format version 3", "delete-mode=auto"];
    // Of a table that is to be made, and of one that is there.
    assert_only(&problems(&bed), ALL, ValidationLevel::Error, &parts);
    let bed = bed.with(OWN, "position");
    assert_eq!(problems(&bed), []);
    let task = bed.task();
    task.put(0..3);
    task.until_durable(3);
    task.session.close();
    let bed = bed.with(OWN, "vector");
    assert_only(&problems(&bed), OWN, ValidationLevel::Error, &parts);
    let Err(refused) = bed.open() else {
        panic!("the task starts");
    };
    assert_eq!(refused.code(), "DELETE_MODE_UNFIT");
}
