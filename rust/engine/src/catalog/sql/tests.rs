use super::*;
use iceberg::spec::{FormatVersion, NestedField, PrimitiveType, Schema, Type};
use iceberg::{TableRequirement, TableUpdate};
use rusqlite::Connection;
use uuid::Uuid;

pub(super) fn schema() -> Schema {
    Schema::builder()
        .with_fields([Arc::new(NestedField::optional(
            1,
            "id",
            Type::Primitive(PrimitiveType::Long),
        ))])
        .build()
        .unwrap()
}

fn table() -> CreateTable {
    CreateTable {
        schema: schema(),
        partition_spec: None,
        sort_order: None,
        location: None,
        properties: BTreeMap::new(),
        format_version: FormatVersion::V2,
    }
}

fn catalog(dir: &tempfile::TempDir) -> SqlCatalog {
    let path = dir.path().to_str().unwrap();
    let properties = BTreeMap::from([
        ("uri".to_string(), format!("sqlite:{path}/catalog.db")),
        ("warehouse".to_string(), format!("{path}/wh")),
    ]);
    SqlCatalog::new("test", &properties).unwrap()
}

async fn with_table(dir: &tempfile::TempDir) -> (SqlCatalog, LoadedTable) {
    let catalog = catalog(dir);
    let ident = TableIdent::from_strs(["db", "t"]).unwrap();
    catalog.create_namespace(&ident.namespace).await.unwrap();
    let table = catalog.create_table(&ident, table()).await.unwrap();
    (catalog, table)
}

fn set_property(value: &str) -> TableCommit {
    TableCommit {
        requirements: Vec::new(),
        updates: vec![TableUpdate::SetProperties {
            updates: [("k".to_string(), value.to_string())].into(),
        }],
        idempotency_key: Uuid::now_v7(),
    }
}

#[tokio::test]
async fn the_layout_is_the_one_of_the_jdbc_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let (catalog, created) = with_table(&dir).await;
    let outcome = catalog.commit(&created, set_property("1")).await;
    let CommitOutcome::Committed(table) = outcome else {
        panic!("{outcome:?}");
    };
    let database = Connection::open(dir.path().join("catalog.db")).unwrap();
    let row: [String; 6] = database
        .query_row(
            "SELECT catalog_name, table_namespace, table_name, metadata_location, \
             previous_metadata_location, iceberg_type FROM iceberg_tables",
            [],
            |row| {
                Ok([
                    row.get(0)?,
                    row.get(1)?,
                    row.get(2)?,
                    row.get(3)?,
                    row.get(4)?,
                    row.get(5)?,
                ])
            },
        )
        .unwrap();
    assert_eq!(row[..3], ["test", "db", "t"].map(String::from));
    assert_eq!(Some(&row[3]), table.metadata_location.as_ref());
    assert_eq!(Some(&row[4]), created.metadata_location.as_ref());
    assert_eq!(row[5], "TABLE");
    assert!(row[3].contains("/wh/db/t/metadata/00001-"), "{}", row[3]);
    let properties: String = database
        .query_row(
            "SELECT property_key FROM iceberg_namespace_properties",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(properties, "exists");
}

#[tokio::test]
async fn a_view_is_no_table_but_keeps_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (catalog, _) = with_table(&dir).await;
    let database = Connection::open(dir.path().join("catalog.db")).unwrap();
    database
        .execute(
            "INSERT INTO iceberg_tables VALUES ('test', 'db', 'v', 'x', NULL, 'VIEW')",
            [],
        )
        .unwrap();
    let view = TableIdent::from_strs(["db", "v"]).unwrap();
    assert_eq!(
        catalog.load_table(&view).await.unwrap_err().code(),
        "TABLE_NOT_FOUND"
    );
    assert_eq!(
        catalog
            .create_table(&view, table())
            .await
            .unwrap_err()
            .code(),
        "TABLE_EXISTS"
    );
    assert_eq!(
        catalog.drop_table(&view).await.unwrap_err().code(),
        "TABLE_NOT_FOUND"
    );
}

#[tokio::test]
async fn the_old_layout_without_types_is_served_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    Connection::open(dir.path().join("catalog.db"))
        .unwrap()
        .execute_batch(
            "CREATE TABLE iceberg_tables (catalog_name TEXT, table_namespace TEXT, table_name TEXT, \
             metadata_location TEXT, previous_metadata_location TEXT, \
             PRIMARY KEY (catalog_name, table_namespace, table_name));",
        )
        .unwrap();
    let (catalog, created) = with_table(&dir).await;
    assert!(matches!(
        catalog.commit(&created, set_property("1")).await,
        CommitOutcome::Committed(_)
    ));
    let loaded = catalog.load_table(&created.ident).await.unwrap();
    assert_eq!(loaded.metadata.properties()["k"], "1");
}

/// A reader's lock lets everything happen but the COMMIT: the fault of a client that reported
/// success for a commit that was rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_meets_a_readers_lock_is_not_reported_as_done() {
    let dir = tempfile::tempdir().unwrap();
    let (catalog, created) = with_table(&dir).await;
    let reader = Connection::open(dir.path().join("catalog.db")).unwrap();
    reader
        .execute_batch("BEGIN; SELECT * FROM iceberg_tables;")
        .unwrap();
    let outcome = catalog.commit(&created, set_property("1")).await;
    let CommitOutcome::Conflict(error) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(error.code(), "CATALOG_BUSY");
    reader.execute_batch("ROLLBACK").unwrap();
    let loaded = catalog.load_table(&created.ident).await.unwrap();
    assert_eq!(loaded.metadata_location, created.metadata_location);
    assert!(matches!(
        catalog.commit(&loaded, set_property("2")).await,
        CommitOutcome::Committed(_)
    ));
}

#[tokio::test]
async fn compressed_metadata_is_written_and_read_when_the_table_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (catalog, created) = with_table(&dir).await;
    let compress = TableCommit {
        updates: vec![TableUpdate::SetProperties {
            updates: [(
                "write.metadata.compression-codec".to_string(),
                "gzip".to_string(),
            )]
            .into(),
        }],
        ..set_property("")
    };
    let outcome = catalog.commit(&created, compress).await;
    let CommitOutcome::Committed(table) = outcome else {
        panic!("{outcome:?}");
    };
    let location = table.metadata_location.clone().unwrap();
    assert!(location.ends_with(".gz.metadata.json"), "{location}");
    assert!(
        table
            .storage
            .get(&location)
            .await
            .unwrap()
            .starts_with(&[0x1f, 0x8b])
    );
    let outcome = catalog.commit(&table, set_property("1")).await;
    assert!(
        matches!(outcome, CommitOutcome::Committed(_)),
        "{outcome:?}"
    );
    let loaded = catalog.load_table(&table.ident).await.unwrap();
    assert_eq!(loaded.metadata.properties()["k"], "1");
}

#[tokio::test]
async fn an_impossible_change_is_refused_and_a_missing_table_named() {
    let dir = tempfile::tempdir().unwrap();
    let (catalog, created) = with_table(&dir).await;
    let bad = TableCommit {
        requirements: vec![TableRequirement::UuidMatch {
            uuid: created.metadata.uuid(),
        }],
        updates: vec![TableUpdate::SetCurrentSchema { schema_id: 77 }],
        idempotency_key: Uuid::now_v7(),
    };
    let outcome = catalog.commit(&created, bad).await;
    assert!(
        matches!(&outcome, CommitOutcome::Refused(error) if error.code() == "COMMIT_REFUSED"),
        "{outcome:?}"
    );
    catalog.drop_table(&created.ident).await.unwrap();
    let outcome = catalog.commit(&created, set_property("1")).await;
    assert!(
        matches!(&outcome, CommitOutcome::Refused(error) if error.code() == "TABLE_NOT_FOUND"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("catalog.db"),
        "no database, but long enough to be one",
    )
    .unwrap();
    let error = catalog(&dir).check().await.unwrap_err();
    assert_eq!(error.code(), "CATALOG_UNAVAILABLE");
    let nowhere = BTreeMap::from([("uri".to_string(), "sqlite:/no/such/dir/c.db".to_string())]);
    let error = SqlCatalog::new("test", &nowhere)
        .unwrap()
        .check()
        .await
        .unwrap_err();
    assert_eq!(error.code(), "CATALOG_UNAVAILABLE");
}

#[tokio::test]
async fn a_swap_from_a_location_that_is_gone_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (catalog, created) = with_table(&dir).await;
    let key = catalog.key(&created.ident).unwrap();
    let current = created.metadata_location.as_deref().unwrap();
    let swap = |old, new| catalog.database.swap(&key, old, new);
    assert!(matches!(swap("gone", "theirs"), Swap::Lost));
    assert!(matches!(swap(current, "ours"), Swap::Done));
    assert!(matches!(swap(current, "theirs"), Swap::Lost));
    let location = catalog.current_location(&created.ident).await.unwrap();
    assert_eq!(location.as_deref(), Some("ours"));
}
