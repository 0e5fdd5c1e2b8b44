//! What a commit costs after thousands of them, on a REST catalog that the environment names as in
//! `catalog_conformance_rest.rs`. It runs by `./x test --only e2e --all -- tests/scale/test_history.py`,
//! which counts the bytes on their way to the catalog; the last line on the standard output has what is
//! seen from here, as JSON.
//!
//! Snapshots are expired every hundred commits, as the owner of a table does: what a catalog answers
//! has all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::control::message::Ranges;
use frazil_core::control::segment::Segment;
use frazil_core::offsets::{SourceRange, TopicPartition};
use frazil_engine::catalog::{
    Catalog, CommitOutcome, CreateTable, LoadedTable, TableCommit, open_rest,
};
use frazil_engine::commit::{
    Layout, ManifestIdentity, Sight, TableCommitter, manifests_of, write_manifest,
};
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, FormatVersion, NestedField,
    PrimitiveType, Schema, Struct, Type,
};
use iceberg::{NamespaceIdent, TableIdent, TableUpdate};
use serde_json::json;
use uuid::Uuid;

const WID: &str = "00112233445566ff";
const PARTITIONS: i32 = 8;
/// Offsets of ten digits, which do not get longer.
const FIRST_OFFSET: i64 = 5_000_000_000;
const ROWS: i64 = 1_000;
const EXPIRE_EVERY: u64 = 100;
const SNAPSHOTS_KEPT: usize = 20;

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().expect("a number"))
}

struct Table {
    catalog: Arc<dyn Catalog>,
    ident: TableIdent,
    session: Uuid,
}

impl Table {
    async fn make(catalog: Arc<dyn Catalog>) -> (Table, LoadedTable) {
        let namespace = NamespaceIdent::new(format!("cost_{}", Uuid::now_v7().simple()));
        let ident = TableIdent::new(namespace, "t".into());
        catalog.create_namespace(ident.namespace()).await.unwrap();
        let column = NestedField::optional(1, "id", Type::Primitive(PrimitiveType::Long));
        let schema = Schema::builder().with_fields([Arc::new(column)]);
        let create = CreateTable {
            schema: schema.build().unwrap(),
            partition_spec: None,
            sort_order: None,
            location: None,
            properties: BTreeMap::new(),
            format_version: FormatVersion::V2,
        };
        let made = catalog.create_table(&ident, create).await.unwrap();
        let session = Uuid::now_v7();
        (
            Table {
                catalog,
                ident,
                session,
            },
            made,
        )
    }

    /// A segment of a task that reads all partitions: one file, in one manifest.
    async fn segment(&self, made: &LoadedTable, seq: u64) -> Segment {
        let start = FIRST_OFFSET + seq as i64 * ROWS;
        let range = |partition| SourceRange {
            partition: TopicPartition::new("orders", partition),
            start: Some(start),
            end: start + ROWS,
            lowest: Some(start),
            timestamp_max_ms: Some(1_790_000_000_000 + seq as i64),
        };
        let mut segment = Segment {
            session: self.session,
            seq,
            first_unacked: seq,
            epoch: 0,
            table: self.ident.clone(),
            table_uuid: made.metadata.uuid(),
            branch: "main".into(),
            ranges: (0..PARTITIONS).map(range).collect(),
            watermarks: BTreeMap::new(),
            topic_ids: BTreeMap::new(),
            rows: (ROWS * i64::from(PARTITIONS)) as u64,
            bytes: 100_000,
            manifests: Vec::new(),
            key_run: None,
        };
        let identity = ManifestIdentity {
            wid: WID.into(),
            session: segment.session,
            seq,
            index: 0,
            ranges: Ranges::of(&segment),
        };
        let (metadata, files) = (&made.metadata, vec![file(made, seq)]);
        let layout = Layout::of(metadata);
        let written = write_manifest(&made.storage, metadata, layout, files, &identity).await;
        segment.manifests.push(written.unwrap());
        segment
    }

    /// Expires all but the newest snapshots.
    async fn expire(&self) {
        let loaded = self.catalog.load_table(&self.ident).await.unwrap();
        let mut known: Vec<_> = loaded.metadata.snapshots().collect();
        known.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.sequence_number()));
        let old = known.iter().skip(SNAPSHOTS_KEPT);
        let snapshot_ids = old.map(|snapshot| snapshot.snapshot_id()).collect();
        let commit = TableCommit {
            requirements: Vec::new(),
            updates: vec![TableUpdate::RemoveSnapshots { snapshot_ids }],
            idempotency_key: Uuid::now_v7(),
        };
        let expired = self.catalog.commit(&loaded, commit).await;
        assert!(
            matches!(expired, CommitOutcome::Committed(_)),
            "{expired:?}"
        );
    }
}

fn file(made: &LoadedTable, seq: u64) -> DataFile {
    let folder = made.metadata.location();
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(format!("{folder}/data/{seq:09}.parquet"))
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::empty())
        .record_count((ROWS * i64::from(PARTITIONS)) as u64)
        .file_size_in_bytes(100_000)
        .build()
        .unwrap()
}

fn median_ms(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2].as_secs_f64() * 1_000.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a REST catalog: ./x test --only e2e --all -- tests/scale/test_history.py"]
async fn a_commit_costs_the_same_after_thousands() {
    let uri = std::env::var("FRAZIL_TEST_REST_URI").expect("the address of a catalog");
    let catalog = open_rest(&BTreeMap::from([("uri".to_owned(), uri)])).unwrap();
    let commits = number("FRAZIL_TEST_COMMITS", 1_000);
    let (table, made) = Table::make(catalog.clone()).await;
    let committer = TableCommitter::new(catalog, table.ident.clone(), "main", WID, "orders-sink")
        .with_hub_id("host/00000000");
    let mut times = Vec::new();
    let (mut listed_most, mut list_bytes_most) = (0, 0);
    for seq in 0..commits {
        let segment = table.segment(&made, seq).await;
        let sight = Sight {
            at: Instant::now(),
            schema_id: made.metadata.current_schema_id(),
        };
        committer.saw(segment.session, seq, sight);
        let began = Instant::now();
        let outcomes = committer.commit(vec![segment]).await;
        times.push(began.elapsed());
        let durable = matches!(&outcomes[..], [(0, SegmentOutcome::Durable { .. })]);
        assert!(durable, "{outcomes:?}");
        if seq % EXPIRE_EVERY == EXPIRE_EVERY - 1 {
            let latest = committer.latest().unwrap();
            let head = latest.metadata.current_snapshot().unwrap();
            let listed = manifests_of(&latest.storage, head, FormatVersion::V2)
                .await
                .unwrap();
            let bytes = latest.storage.get(head.manifest_list()).await.unwrap();
            listed_most = listed_most.max(listed.len());
            list_bytes_most = list_bytes_most.max(bytes.len());
            let files: u32 = listed
                .iter()
                .map(|one| {
                    one.added_files_count.unwrap_or(0) + one.existing_files_count.unwrap_or(0)
                })
                .sum();
            assert_eq!(u64::from(files), seq + 1, "every file is listed once");
            table.expire().await;
        }
    }
    let tenth = times.len() / 10;
    let told = json!({
        "commits": commits,
        "first tenth, median ms": median_ms(&times[..tenth]),
        "last tenth, median ms": median_ms(&times[times.len() - tenth..]),
        "manifests in a list, most": listed_most,
        "bytes of a list, most": list_bytes_most,
    });
    println!("\n{told}");
}
