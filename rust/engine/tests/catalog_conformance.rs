//! The SQL catalog on SQLite passes the conformance suite, on files and in memory.

mod support;

use std::collections::BTreeMap;

use frazil_engine::catalog::open_sql;
use support::Subject;

async fn conforms(dir: &tempfile::TempDir, warehouse: String, run: &str) {
    let properties = BTreeMap::from([
        (
            "uri".to_string(),
            format!("jdbc:sqlite:{}/catalog.db", dir.path().display()),
        ),
        ("warehouse".to_string(), warehouse),
    ]);
    let subject = Subject {
        catalog: open_sql("iceberg", &properties).unwrap(),
        other: open_sql("iceberg", &properties).unwrap(),
        creates_twice: false,
        makes_namespaces: false,
        any_name: true,
        run: run.to_string(),
    };
    subject.conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_with_local_files() {
    let dir = tempfile::tempdir().unwrap();
    let warehouse = format!("file://{}/my warehouse", dir.path().display());
    conforms(&dir, warehouse, "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_with_files_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    conforms(&dir, "memory://conformance/wh".to_string(), "2").await;
}

#[tokio::test]
async fn catalogs_of_different_names_share_a_file_and_no_tables() {
    let dir = tempfile::tempdir().unwrap();
    let properties = BTreeMap::from([
        (
            "uri".to_string(),
            format!("sqlite:{}/catalog.db", dir.path().display()),
        ),
        ("warehouse".to_string(), dir.path().display().to_string()),
    ]);
    let ident = iceberg::TableIdent::from_strs(["db", "t"]).unwrap();
    let one = open_sql("one", &properties).unwrap();
    one.create_namespace(&ident.namespace).await.unwrap();
    one.create_table(&ident, support::create()).await.unwrap();
    let two = open_sql("two", &properties).unwrap();
    assert!(!two.namespace_exists(&ident.namespace).await.unwrap());
    assert_eq!(
        two.load_table(&ident).await.unwrap_err().code(),
        "TABLE_NOT_FOUND"
    );
}
