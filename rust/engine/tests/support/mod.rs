//! The conformance suite: what every catalog must do, whichever it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use frazil_core::commit::anchor::Anchor;
use frazil_core::commit::location::Keep;
use frazil_core::commit::plan::{self, Attempt, CommitIdentity};
use frazil_core::commit::recover::state_of;
use frazil_core::commit::state::WriterState;
use frazil_core::limits::STATE_BYTES_MAX;
use frazil_core::offsets::TopicPartition;
use frazil_engine::catalog::{Catalog, CommitOutcome, CreateTable, LoadedTable, TableCommit};
use futures::future::join_all;
use iceberg::spec::{
    FormatVersion, NestedField, PrimitiveType, Schema, SnapshotReference, SnapshotRetention,
    Transform, Type, UnboundPartitionField, UnboundPartitionSpec,
};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use uuid::Uuid;

const WID: &str = "00112233445566ff";

/// A catalog under test; each suite works in namespaces of its own.
pub(crate) struct Subject {
    pub(crate) catalog: Arc<dyn Catalog>,
    /// A second client of the same catalog.
    pub(crate) other: Arc<dyn Catalog>,
    /// Catalogs that answer a second creation with the table that is there.
    pub(crate) creates_twice: bool,
    /// Catalogs that make a table whose namespace is not there.
    pub(crate) makes_namespaces: bool,
    /// Whether any name may be used, or only those that make good paths everywhere.
    pub(crate) any_name: bool,
    /// A unique part of every namespace.
    pub(crate) run: String,
}

impl Subject {
    pub(crate) fn namespace(&self, name: &str) -> NamespaceIdent {
        NamespaceIdent::new(format!("{name}_{}", self.run))
    }

    /// Runs every case; a failure names its case by its panic.
    pub(crate) async fn conforms(&self) {
        self.catalog.check().await.expect("the catalog answers");
        self.a_table_is_made_loaded_and_dropped().await;
        self.what_is_not_there_is_told_apart().await;
        self.versions_and_partitions_are_kept().await;
        self.a_commit_is_applied_once_and_seen_by_others().await;
        self.a_stale_requirement_is_a_conflict_and_changes_nothing()
            .await;
        self.of_concurrent_committers_one_wins_each_base().await;
        self.a_request_held_back_over_a_rollback_to_its_base_is_refused()
            .await;
        self.names_are_names_and_not_paths().await;
        self.namespaces_nest().await;
        self.files_of_a_table_can_be_written_and_read().await;
    }

    async fn new_table(&self, ident: &TableIdent) -> LoadedTable {
        self.catalog
            .create_namespace(&ident.namespace)
            .await
            .unwrap();
        self.catalog.create_table(ident, create()).await.unwrap()
    }

    async fn a_table_is_made_loaded_and_dropped(&self) {
        let namespace = self.namespace("made");
        let ident = TableIdent::new(namespace.clone(), "t".into());
        assert!(!self.catalog.namespace_exists(&namespace).await.unwrap());
        let made = self.new_table(&ident).await;
        assert!(self.other.namespace_exists(&namespace).await.unwrap());
        self.catalog
            .create_namespace(&namespace)
            .await
            .expect("again is no error");
        let loaded = self.other.load_table(&ident).await.unwrap();
        assert_eq!(loaded.metadata.uuid(), made.metadata.uuid());
        assert_eq!(loaded.metadata_location, made.metadata_location);
        assert!(loaded.metadata_location.is_some());
        assert_eq!(
            loaded.metadata.properties().get("k").map(String::as_str),
            Some("v")
        );
        match self.other.create_table(&ident, create()).await {
            Err(error) => assert_eq!(error.code(), "TABLE_EXISTS"),
            Ok(table) => {
                assert!(self.creates_twice, "a second creation was let through");
                assert_eq!(table.metadata.uuid(), made.metadata.uuid());
            }
        }
        self.catalog.drop_table(&ident).await.unwrap();
        let error = self.other.load_table(&ident).await.unwrap_err();
        assert_eq!(error.code(), "TABLE_NOT_FOUND");
    }

    async fn what_is_not_there_is_told_apart(&self) {
        let nowhere = TableIdent::new(self.namespace("nowhere"), "t".into());
        assert_eq!(
            self.catalog.load_table(&nowhere).await.unwrap_err().code(),
            "TABLE_NOT_FOUND"
        );
        assert_eq!(
            self.catalog.drop_table(&nowhere).await.unwrap_err().code(),
            "TABLE_NOT_FOUND"
        );
        match self.catalog.create_table(&nowhere, create()).await {
            Err(error) => assert_eq!(error.code(), "NAMESPACE_NOT_FOUND"),
            Ok(_) => assert!(self.makes_namespaces, "a table without a namespace"),
        }
    }

    async fn versions_and_partitions_are_kept(&self) {
        let namespace = self.namespace("kept");
        self.catalog.create_namespace(&namespace).await.unwrap();
        for version in [FormatVersion::V2, FormatVersion::V3] {
            let ident = TableIdent::new(namespace.clone(), format!("v{}", version as u8));
            let field = UnboundPartitionField::builder()
                .source_id(1)
                .name("id_bucket".into())
                .transform(Transform::Bucket(4))
                .build();
            let spec = UnboundPartitionSpec::builder()
                .add_partition_fields([field])
                .unwrap()
                .build();
            let table = CreateTable {
                partition_spec: Some(spec),
                format_version: version,
                ..create()
            };
            let made = self.catalog.create_table(&ident, table).await.unwrap();
            assert_eq!(made.metadata.format_version(), version);
            let spec = made.metadata.default_partition_spec();
            assert_eq!(spec.fields().len(), 1);
            assert_eq!(spec.fields()[0].transform, Transform::Bucket(4));
            frazil_core::commit::plan::check_table(&made.metadata).unwrap();
        }
    }

    async fn a_commit_is_applied_once_and_seen_by_others(&self) {
        let ident = TableIdent::new(self.namespace("commit"), "t".into());
        let made = self.new_table(&ident).await;
        let committed = committed(self.catalog.commit(&made, set(&made, "n", "1")).await);
        assert_eq!(property(&committed, "n"), "1");
        assert_ne!(committed.metadata_location, made.metadata_location);
        let seen = self.other.load_table(&ident).await.unwrap();
        assert_eq!(seen.metadata_location, committed.metadata_location);
        assert_eq!(property(&seen, "n"), "1");
        assert_eq!(property(&seen, "k"), "v");
    }

    async fn a_stale_requirement_is_a_conflict_and_changes_nothing(&self) {
        let ident = TableIdent::new(self.namespace("stale"), "t".into());
        let made = self.new_table(&ident).await;
        let stale = [
            TableRequirement::UuidMatch {
                uuid: Uuid::now_v7(),
            },
            TableRequirement::CurrentSchemaIdMatch {
                current_schema_id: 7,
            },
            TableRequirement::RefSnapshotIdMatch {
                r#ref: "main".into(),
                snapshot_id: Some(7),
            },
        ];
        for requirement in stale {
            let mut commit = set(&made, "n", "lost");
            commit.requirements.push(requirement.clone());
            match self.catalog.commit(&made, commit).await {
                CommitOutcome::Conflict(error) => assert_eq!(error.code(), "COMMIT_CONFLICT"),
                outcome => panic!("{requirement:?}: {outcome:?}"),
            }
        }
        let after = self.other.load_table(&ident).await.unwrap();
        assert_eq!(after.metadata_location, made.metadata_location);
        assert!(!after.metadata.properties().contains_key("n"));
    }

    /// Each committer adds a column to the base it loaded and asserts the base's schema id, so of
    /// those with the same base one can win.
    async fn of_concurrent_committers_one_wins_each_base(&self) {
        const COLUMNS: i32 = 4;
        let ident = TableIdent::new(self.namespace("race"), "t".into());
        self.new_table(&ident).await;
        let race = async |catalog: &Arc<dyn Catalog>, name: &str| {
            let mut done = 0;
            let mut conflicts = 0;
            while done < COLUMNS {
                let base = catalog.load_table(&ident).await.unwrap();
                match catalog
                    .commit(&base, add_column(&base, &format!("{name}{done}")))
                    .await
                {
                    CommitOutcome::Committed(_) => done += 1,
                    CommitOutcome::Conflict(_) => conflicts += 1,
                    outcome => panic!("{outcome:?}"),
                }
                assert!(conflicts < 200, "no progress");
            }
        };
        join_all([race(&self.catalog, "a"), race(&self.other, "b")]).await;
        let table = self.catalog.load_table(&ident).await.unwrap();
        let schema = table.metadata.current_schema();
        assert_eq!(
            schema.as_struct().fields().len() as i32,
            1 + 2 * COLUMNS,
            "{schema}"
        );
        for name in ["a", "b"] {
            for number in 0..COLUMNS {
                assert!(schema.field_by_name(&format!("{name}{number}")).is_some());
            }
        }
    }

    /// The branch's head is what the request asserts once more, but what was committed in between
    /// moved the offsets: were the request let in, they would go back. The sequence number that it
    /// was built with is what gives it away.
    async fn a_request_held_back_over_a_rollback_to_its_base_is_refused(&self) {
        let namespace = self.namespace("rollback");
        self.catalog.create_namespace(&namespace).await.unwrap();
        for version in [FormatVersion::V2, FormatVersion::V3] {
            let ident = TableIdent::new(namespace.clone(), format!("v{}", version as u8));
            let table = CreateTable {
                format_version: version,
                ..create()
            };
            let made = self.catalog.create_table(&ident, table).await.unwrap();
            let base = committed(self.catalog.commit(&made, append(&made, 10)).await);
            let held = append(&base, 20);
            let newer = committed(self.catalog.commit(&base, append(&base, 30)).await);
            let back = rollback(&newer, head(&base));
            let rolled_back = committed(self.catalog.commit(&newer, back).await);
            assert_eq!(head(&rolled_back), head(&base));
            match self.other.commit(&base, held).await {
                CommitOutcome::Conflict(_) | CommitOutcome::Refused(_) => {}
                outcome => panic!("{version:?}: {outcome:?}"),
            }
            let after = self.other.load_table(&ident).await.unwrap();
            assert_eq!(after.metadata_location, rolled_back.metadata_location);
            assert_eq!((bound(&after), head(&after)), (Some(30), head(&base)));
        }
    }

    async fn names_are_names_and_not_paths(&self) {
        let namespace = self.namespace("names");
        let plain = TableIdent::new(namespace.clone(), "a".into());
        let plain_table = self.new_table(&plain).await;
        let names: &[&str] = if self.any_name {
            &["a#b", "a?b=c", "a%41", "a b", "été", "a&b", "a+b"]
        } else {
            &["a_b", "a2"]
        };
        for name in names {
            let ident = TableIdent::new(namespace.clone(), name.to_string());
            let made = self.catalog.create_table(&ident, create()).await;
            let made = made.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            let committed = committed(self.catalog.commit(&made, set(&made, "n", name)).await);
            let loaded = self.other.load_table(&ident).await.unwrap();
            assert_eq!(loaded.metadata.uuid(), committed.metadata.uuid(), "{name}");
            assert_eq!(property(&loaded, "n"), *name);
            self.catalog.drop_table(&ident).await.unwrap();
        }
        let after = self.other.load_table(&plain).await.unwrap();
        assert_eq!(after.metadata_location, plain_table.metadata_location);
    }

    async fn namespaces_nest(&self) {
        let outer = self.namespace("outer");
        let inner = NamespaceIdent::from_strs([outer[0].as_str(), "inner"]).unwrap();
        self.catalog.create_namespace(&outer).await.unwrap();
        assert!(!self.catalog.namespace_exists(&inner).await.unwrap());
        let ident = TableIdent::new(inner.clone(), "t".into());
        let made = self.new_table(&ident).await;
        assert!(self.other.namespace_exists(&inner).await.unwrap());
        let loaded = self.other.load_table(&ident).await.unwrap();
        assert_eq!(loaded.metadata.uuid(), made.metadata.uuid());
    }

    async fn files_of_a_table_can_be_written_and_read(&self) {
        let ident = TableIdent::new(self.namespace("files"), "t".into());
        let made = self.new_table(&ident).await;
        let seen = self.other.load_table(&ident).await.unwrap();
        let location = format!(
            "{}/data/f-{}.parquet",
            made.metadata.location(),
            Uuid::now_v7()
        );
        made.storage
            .put(&location, Bytes::from_static(b"rows"))
            .await
            .unwrap();
        assert_eq!(seen.storage.get(&location).await.unwrap(), "rows");
        // 12 MiB go in parts.
        let manifest = format!(
            "{}/metadata/m-{}.avro",
            made.metadata.location(),
            Uuid::now_v7()
        );
        let output = made.storage.file_io().new_output(&manifest).unwrap();
        let mut writer = output.writer().await.unwrap();
        for _ in 0..3 {
            writer.write(Bytes::from(vec![1; 4 << 20])).await.unwrap();
        }
        writer.close().await.unwrap();
        assert_eq!(seen.storage.get(&manifest).await.unwrap().len(), 12 << 20);
        let missing = format!("{}/data/none.parquet", made.metadata.location());
        assert!(!seen.storage.exists(&missing).await.unwrap());
        assert_eq!(
            seen.storage.get(&missing).await.unwrap_err().code(),
            "STORAGE_NOT_FOUND"
        );
    }
}

fn long(id: i32, name: &str) -> Arc<NestedField> {
    Arc::new(NestedField::optional(
        id,
        name,
        Type::Primitive(PrimitiveType::Long),
    ))
}

pub(crate) fn create() -> CreateTable {
    CreateTable {
        schema: Schema::builder()
            .with_fields([long(1, "id")])
            .build()
            .unwrap(),
        partition_spec: None,
        sort_order: None,
        location: None,
        properties: BTreeMap::from([("k".to_string(), "v".to_string())]),
        format_version: FormatVersion::V2,
    }
}

pub(crate) fn set(base: &LoadedTable, key: &str, value: &str) -> TableCommit {
    TableCommit {
        requirements: vec![TableRequirement::UuidMatch {
            uuid: base.metadata.uuid(),
        }],
        updates: vec![TableUpdate::SetProperties {
            updates: [(key.to_string(), value.to_string())].into(),
        }],
        idempotency_key: Uuid::now_v7(),
    }
}

/// A commit that adds a snapshot without files, after which the writer stands at `end`.
fn append(base: &LoadedTable, end: i64) -> TableCommit {
    let metadata = &base.metadata;
    let identity = CommitIdentity {
        wid: WID.into(),
        connector: "conformance".into(),
        hub_id: "here/1".into(),
        branch: "main".into(),
        state_bytes_max: STATE_BYTES_MAX,
    };
    let state = state_of(metadata, WID, "main").unwrap();
    let mut state = state.unwrap_or_else(|| WriterState::new(metadata.uuid()));
    state.raise(&TopicPartition::new("t", 0), end).unwrap();
    let place = plan::base(metadata, "main");
    let snapshot_id = metadata.last_sequence_number() * 1_000 + end;
    let attempt = Attempt {
        identity: &identity,
        commit_id: Uuid::now_v7(),
        snapshot_id,
        now_ms: metadata.last_updated_ms(),
        segments: &[],
        files: None,
        state,
        keep: Keep::Property,
        anchor: &Anchor::default(),
        manifest_list: format!("{}/metadata/snap-{snapshot_id}.avro", metadata.location()),
        row_range: place.first_row_id.map(|first| (first, 5)),
    };
    let plan = plan::commit(metadata, &place, &attempt).unwrap();
    TableCommit {
        requirements: plan.requirements,
        updates: plan.updates,
        idempotency_key: Uuid::now_v7(),
    }
}

fn rollback(base: &LoadedTable, to: Option<i64>) -> TableCommit {
    let retention = SnapshotRetention::branch(None, None, None);
    TableCommit {
        requirements: vec![TableRequirement::RefSnapshotIdMatch {
            r#ref: "main".into(),
            snapshot_id: head(base),
        }],
        updates: vec![TableUpdate::SetSnapshotRef {
            ref_name: "main".into(),
            reference: SnapshotReference::new(to.unwrap(), retention),
        }],
        idempotency_key: Uuid::now_v7(),
    }
}

fn head(table: &LoadedTable) -> Option<i64> {
    let head = table.metadata.snapshot_for_ref("main");
    head.map(|snapshot| snapshot.snapshot_id())
}

fn bound(table: &LoadedTable) -> Option<i64> {
    let state = state_of(&table.metadata, WID, "main").unwrap()?;
    state.bound(&TopicPartition::new("t", 0))
}

fn add_column(base: &LoadedTable, name: &str) -> TableCommit {
    let current = base.metadata.current_schema();
    let mut fields = current.as_struct().fields().to_vec();
    fields.push(long(base.metadata.last_column_id() + 1, name));
    let schema_id = base
        .metadata
        .schemas_iter()
        .map(|schema| schema.schema_id())
        .max();
    let schema = Schema::builder()
        .with_schema_id(schema_id.unwrap_or(0) + 1)
        .with_fields(fields)
        .build()
        .unwrap();
    TableCommit {
        requirements: vec![
            TableRequirement::UuidMatch {
                uuid: base.metadata.uuid(),
            },
            TableRequirement::CurrentSchemaIdMatch {
                current_schema_id: base.metadata.current_schema_id(),
            },
            TableRequirement::LastAssignedFieldIdMatch {
                last_assigned_field_id: base.metadata.last_column_id(),
            },
        ],
        updates: vec![
            TableUpdate::AddSchema { schema },
            TableUpdate::SetCurrentSchema { schema_id: -1 },
        ],
        idempotency_key: Uuid::now_v7(),
    }
}

fn committed(outcome: CommitOutcome) -> LoadedTable {
    match outcome {
        CommitOutcome::Committed(table) => table,
        outcome => panic!("{outcome:?}"),
    }
}

fn property<'a>(table: &'a LoadedTable, key: &str) -> &'a str {
    table
        .metadata
        .properties()
        .get(key)
        .map_or("", String::as_str)
}
