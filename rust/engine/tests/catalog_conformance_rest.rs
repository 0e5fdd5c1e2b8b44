//! A REST catalog passes the conformance suite.
//!
//! It is named by the environment, so the tests run by `./x test --only e2e -- tests/catalogs`:
//! - `FRAZIL_TEST_REST_URI`: its address;
//! - `FRAZIL_TEST_REST_PROPERTIES`: more catalog properties, `key=value`, one a line;
//! - `FRAZIL_TEST_REST_FLAGS`: words out of `creates-twice` (creating a table again returns it),
//!   `makes-namespaces` (a table may come before its namespace), `plain-names` (names become
//!   paths), `vends` (keys must come from the catalog), `open` (it lets everybody in),
//!   `faults` (it can be told to fail).

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use frazil_engine::catalog::open_rest;
use support::Subject;

fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn properties() -> BTreeMap<String, String> {
    let uri = environment("FRAZIL_TEST_REST_URI");
    assert!(
        !uri.is_empty(),
        "FRAZIL_TEST_REST_URI is not set: run `./x test --only e2e -- tests/catalogs`"
    );
    let mut properties = BTreeMap::from([("uri".to_string(), uri)]);
    for line in environment("FRAZIL_TEST_REST_PROPERTIES").lines() {
        let (key, value) = line.split_once('=').expect("a line is `key=value`");
        properties.insert(key.trim().to_string(), value.trim().to_string());
    }
    properties
}

fn has_flag(flag: &str) -> bool {
    environment("FRAZIL_TEST_REST_FLAGS")
        .split_whitespace()
        .any(|word| word == flag)
}

fn run() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    format!("{:x}", now.as_millis())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a REST catalog: ./x test --only e2e -- tests/catalogs"]
async fn a_rest_catalog() {
    let properties = properties();
    let subject = Subject {
        catalog: open_rest(&properties).unwrap(),
        other: open_rest(&properties).unwrap(),
        creates_twice: has_flag("creates-twice"),
        makes_namespaces: has_flag("makes-namespaces"),
        any_name: !has_flag("plain-names"),
        run: run(),
    };
    subject.conforms().await;
}

#[tokio::test]
#[ignore = "needs a REST catalog: ./x test --only e2e -- tests/catalogs"]
async fn keys_are_vended_where_they_are_wanted() {
    let catalog = open_rest(&properties()).unwrap();
    let ident = iceberg::TableIdent::from_strs([format!("vend_{}", run()), "t".into()]).unwrap();
    catalog.create_namespace(&ident.namespace).await.unwrap();
    let made = catalog
        .create_table(&ident, support::create())
        .await
        .unwrap();
    assert_eq!(made.storage.is_vended(), has_flag("vends"));
    let loaded = catalog.load_table(&ident).await.unwrap();
    assert_eq!(loaded.storage.is_vended(), has_flag("vends"));
}

#[tokio::test]
#[ignore = "needs a REST catalog: ./x test --only e2e -- tests/catalogs"]
async fn wrong_credentials_are_told() {
    let mut properties = properties();
    properties.insert("credential".to_string(), "nobody:wrong-secret".to_string());
    let checked = open_rest(&properties).unwrap().check().await;
    if has_flag("open") {
        checked.expect("a catalog that lets everybody in");
        return;
    }
    let error = checked.unwrap_err();
    assert_eq!(error.code(), "CATALOG_UNAUTHORIZED");
    assert!(
        !error.report().contains("wrong-secret"),
        "{}",
        error.report()
    );
}

/// Runs for `FRAZIL_TEST_REST_SECONDS` (default 5): longer than the catalog's keys live.
#[tokio::test]
#[ignore = "needs a REST catalog: ./x test --only e2e -- tests/catalogs"]
async fn a_storage_outlives_its_keys() {
    let seconds = environment("FRAZIL_TEST_REST_SECONDS").parse().unwrap_or(5);
    let catalog = open_rest(&properties()).unwrap();
    let ident = iceberg::TableIdent::from_strs([format!("keys_{}", run()), "t".into()]).unwrap();
    catalog.create_namespace(&ident.namespace).await.unwrap();
    let table = catalog
        .create_table(&ident, support::create())
        .await
        .unwrap();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut files = Vec::new();
    while Instant::now() < end {
        let file = format!(
            "{}/data/{:05}.parquet",
            table.metadata.location(),
            files.len()
        );
        table.storage.put(&file, "rows".into()).await.unwrap();
        files.push(file);
        tokio::time::sleep(Duration::from_millis(500 + seconds * 20)).await;
    }
    assert!(files.len() > 2);
    for file in files {
        assert!(table.storage.exists(&file).await.unwrap(), "{file}");
    }
}

/// Arms one fault of the next commit, in the reference catalog of the test bed.
async fn arm(mode: &str, delay_ms: u64) -> bool {
    let uri = environment("FRAZIL_TEST_REST_URI");
    let url = format!("{uri}/bed/fault?op=commit&mode={mode}&n=1&ms={delay_ms}");
    let answer = reqwest::Client::new().post(url).send().await.unwrap();
    answer.status().is_success()
}

#[tokio::test]
#[ignore = "needs a REST catalog: ./x test --only e2e -- tests/catalogs"]
async fn faults_of_a_commit_are_told_apart() {
    if !has_flag("faults") {
        assert!(
            !arm("before", 0).await,
            "the catalog takes faults: set the flag"
        );
        return;
    }
    let catalog = open_rest(&properties()).unwrap();
    let ident = iceberg::TableIdent::from_strs([format!("faults_{}", run()), "t".into()]).unwrap();
    catalog.create_namespace(&ident.namespace).await.unwrap();
    catalog
        .create_table(&ident, support::create())
        .await
        .unwrap();
    for (mode, delay_ms, outcome, is_applied) in [
        ("before", 0, "Unknown", false),
        ("after", 0, "Unknown", true),
        ("conflict", 0, "Conflict", false),
        ("delay", 300, "Committed", true),
    ] {
        let base = catalog.load_table(&ident).await.unwrap();
        assert!(arm(mode, delay_ms).await);
        let got = catalog.commit(&base, support::set(&base, mode, "1")).await;
        assert!(format!("{got:?}").starts_with(outcome), "{mode}: {got:?}");
        let after = catalog.load_table(&ident).await.unwrap();
        let has_property = after.metadata.properties().contains_key(mode);
        assert_eq!(has_property, is_applied, "{mode}");
    }
}
