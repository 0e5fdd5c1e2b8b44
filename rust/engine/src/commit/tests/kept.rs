//! What a committer asks catalog and storage for when it commits again and again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::*;
use crate::catalog::{CommitOutcome, TableCommit};
use crate::commit::Sight;
use crate::commit::create::evolve_schema;
use crate::hub::{Hub, HubConfig, TableHub, TableIdentKey, TableKey};
use crate::runtime::Runtime;
use crate::test_config::sound_config;
use async_trait::async_trait;
use frazil_core::Result;

/// A catalog that counts what it is asked.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Catalog>,
    loads: AtomicU32,
    commits: AtomicU32,
}

impl Counting {
    /// Returns the loads and the commits since the last call.
    fn counts(&self) -> (u32, u32) {
        let count = |counter: &AtomicU32| counter.swap(0, Ordering::Relaxed);
        (count(&self.loads), count(&self.commits))
    }
}

#[async_trait]
impl Catalog for Counting {
    async fn load_table(&self, ident: &TableIdent) -> Result<LoadedTable> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.inner.load_table(ident).await
    }

    async fn commit(&self, base: &LoadedTable, commit: TableCommit) -> CommitOutcome {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.inner.commit(base, commit).await
    }

    async fn create_table(&self, ident: &TableIdent, table: CreateTable) -> Result<LoadedTable> {
        self.inner.create_table(ident, table).await
    }

    async fn create_namespace(&self, namespace: &NamespaceIdent) -> Result<()> {
        self.inner.create_namespace(namespace).await
    }

    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> Result<bool> {
        self.inner.namespace_exists(namespace).await
    }

    async fn list_tables(&self, below: &[String]) -> Result<Vec<TableIdent>> {
        self.inner.list_tables(below).await
    }

    async fn drop_table(&self, ident: &TableIdent) -> Result<()> {
        self.inner.drop_table(ident).await
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}

async fn counted(version: FormatVersion) -> (World, Arc<Counting>, TableCommitter) {
    let world = World::new(version).await;
    let counting = Arc::new(Counting {
        inner: world.catalog.clone(),
        loads: AtomicU32::new(0),
        commits: AtomicU32::new(0),
    });
    let committer = committer(counting.clone(), &world.ident, WID);
    (world, counting, committer)
}

impl World {
    /// What a process knows of a segment that it has written just now.
    async fn sight(&self) -> Sight {
        Sight {
            at: Instant::now(),
            schema_id: self.load().await.metadata.current_schema_id(),
        }
    }

    /// Commits `[seq * 10, seq * 10 + 10)` of partition 0.
    async fn ten_more(&self, committer: &TableCommitter, seq: u64) -> String {
        let start = seq as i64 * 10;
        let segment = self.segment(1, seq, &[(0, start, start + 10)]).await;
        committer.saw(segment.session, seq, self.sight().await);
        letters(&committer.commit(vec![segment]).await)
    }
}

// Promise: A commit by the only writer of a table is one request to the catalog; one that meets a change by another writer is two and a load.
#[tokio::test]
async fn the_only_writer_loads_its_table_once() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let (world, counting, ours) = counted(version).await;
        for seq in 0..5 {
            assert_eq!(world.ten_more(&ours, seq).await, "D");
            assert_eq!(counting.counts(), (u32::from(seq == 0), 1), "{seq}");
        }
        let theirs = world.committer("other");
        let foreign = world.segment(9, 0, &[(7, 0, 1)]).await;
        assert_eq!(letters(&theirs.commit(vec![foreign]).await), "D");
        let (mut loads, mut commits) = (0, 0);
        for seq in 5..10 {
            assert_eq!(world.ten_more(&ours, seq).await, "D");
            let counts = counting.counts();
            (loads, commits) = (loads + counts.0, commits + counts.1);
        }
        assert_eq!((loads, commits), (2, 6), "it is looked at once more");
        assert_eq!(world.snapshots().await, 11);
        let offsets = world.offsets("main").await;
        assert_eq!(offsets.len(), 101);
        assert!(offsets.values().all(|times| *times == 1));
    }
}

// Promise: Writers that always change a table before each other learn to load it: in the end one commit in 65 is a request in vain.
#[tokio::test]
async fn writers_of_one_table_learn_to_load_it() {
    let (world, counting, ours) = counted(FormatVersion::V2).await;
    let theirs = world.committer("other");
    for seq in 0..60 {
        assert_eq!(world.ten_more(&ours, seq).await, "D");
        let at = seq as i64;
        let foreign = world.segment(9, seq, &[(7, at, at + 1)]).await;
        assert_eq!(letters(&theirs.commit(vec![foreign]).await), "D");
    }
    let (_, commits) = counting.counts();
    assert!((60..=64).contains(&commits), "{commits}");
}

#[tokio::test]
async fn the_list_of_the_last_commit_is_not_read_again() {
    let (world, _, ours) = counted(FormatVersion::V3).await;
    assert_eq!(world.ten_more(&ours, 0).await, "D");
    let list = {
        let loaded = world.load().await;
        let head = loaded.metadata.current_snapshot().unwrap().clone();
        head.manifest_list().to_owned()
    };
    // What is gone cannot be read.
    std::fs::remove_file(list.strip_prefix("file://").unwrap()).unwrap();
    assert_eq!(world.ten_more(&ours, 1).await, "D");
    assert_eq!(world.manifests("main").await.len(), 2);
    // A committer that does not have it says so, and writes no list without the older files.
    let other = committer(world.catalog.clone(), &world.ident, WID);
    let list = world
        .load()
        .await
        .metadata
        .current_snapshot()
        .unwrap()
        .manifest_list()
        .to_owned();
    std::fs::remove_file(list.strip_prefix("file://").unwrap()).unwrap();
    assert_eq!(world.ten_more(&other, 2).await, "B");
}

#[tokio::test]
async fn manifests_that_were_just_seen_are_not_looked_for() {
    let (world, _, ours) = counted(FormatVersion::V2).await;
    let gone = |segment: &Segment| {
        let path = segment.manifests[0].manifest.manifest_path.clone();
        std::fs::remove_file(path.strip_prefix("file://").unwrap()).unwrap();
    };
    let one = world.segment(1, 0, &[(0, 0, 10)]).await;
    gone(&one);
    ours.saw(one.session, one.seq, world.sight().await);
    assert_eq!(letters(&ours.commit(vec![one]).await), "D", "nobody looked");
    let two = world.segment(1, 1, &[(0, 10, 20)]).await;
    gone(&two);
    let long_ago = Sight {
        at: Instant::now().checked_sub(Duration::from_secs(3)).unwrap(),
        ..world.sight().await
    };
    ours.saw(two.session, two.seq, long_ago);
    assert_eq!(letters(&ours.commit(vec![two]).await), "R");
}

/// The hub of a connector, and its part for the table, which commits once an hour.
fn hub(world: &World, name: &str, over_topic: bool) -> (Arc<Hub>, Arc<TableHub>) {
    let config = sound_config(&[("name", name), ("iceberg.tables", "db.t")]);
    let config = HubConfig {
        over_topic,
        ..HubConfig::of(&config)
    };
    let hub = Hub::join(config, &Runtime::shared().unwrap(), world.catalog.clone());
    let key = TableKey {
        ident: TableIdentKey(world.ident.clone()),
        branch: "main".to_owned(),
    };
    let table = hub.table(key, Duration::from_secs(3_600), None);
    (hub, table)
}

// Promise: a worker remembers nothing of segments that another one commits, nor of sessions that have ended
#[tokio::test]
async fn only_segments_that_this_process_commits_are_remembered() {
    let world = World::new(FormatVersion::V2).await;
    let session = Uuid::from_u128(1);
    let mut seq = 0;
    let mut submit = async |table: &TableHub| {
        let at = seq as i64 * 10;
        let segment = world.segment(1, seq, &[(0, at, at + 10)]).await;
        seq += 1;
        table.submit(segment, world.sight().await, false);
        table.known_segments()
    };
    let (_alone, table) = hub(&world, "kept-alone", false);
    assert_eq!(submit(&table).await, 0, "it has not joined");
    table.join(session, 0, 0, Box::new(drop));
    assert_eq!(submit(&table).await, 1);
    table.leave(session);
    assert_eq!(table.known_segments(), 0);

    let (hub, table) = hub(&world, "kept-of-many", true);
    table.join(session, 0, 0, Box::new(drop));
    assert_eq!(submit(&table).await, 0, "another process commits it");
    hub.exchange(true, &[]);
    assert_eq!(submit(&table).await, 1);
    hub.exchange(false, &[]);
    assert_eq!(
        table.known_segments(),
        0,
        "another process commits from now on"
    );
}

// Promise: The first commit after a column was added says that the table has it, to readers who ask for that snapshot.
#[tokio::test]
async fn a_commit_after_a_new_column_is_built_on_the_newest_table() {
    let (world, counting, ours) = counted(FormatVersion::V2).await;
    assert_eq!(world.ten_more(&ours, 0).await, "D");
    assert_eq!(world.ten_more(&ours, 1).await, "D");
    let wider = |metadata: &iceberg::spec::TableMetadata| {
        let columns = metadata.current_schema().as_struct().fields().to_vec();
        if columns.len() == 2 {
            return Ok(None);
        }
        let note = NestedField::optional(2, "note", Type::Primitive(PrimitiveType::String));
        let columns = columns.into_iter().chain([Arc::new(note)]);
        let builder = Schema::builder().with_schema_id(-1);
        Ok(Some(builder.with_fields(columns).build().unwrap()))
    };
    evolve_schema(&*world.catalog, &world.ident, wider)
        .await
        .unwrap();
    counting.counts();
    assert_eq!(world.ten_more(&ours, 2).await, "D");
    assert_eq!(counting.counts(), (1, 1), "the newest was loaded");
    let loaded = world.load().await;
    let head = loaded.metadata.current_snapshot().unwrap();
    let current = loaded.metadata.current_schema_id();
    assert_eq!((head.schema_id(), current), (Some(1), 1));
    assert_eq!(world.ten_more(&ours, 3).await, "D");
    assert_eq!(counting.counts(), (0, 1));
}
