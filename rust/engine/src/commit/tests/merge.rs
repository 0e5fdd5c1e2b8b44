//! Lists of manifests stay short, and nothing that they say of a file changes.

use iceberg::spec::ManifestEntryRef;
use iceberg::{TableRequirement, TableUpdate};

use super::faults::{Fault, Faulty};
use super::*;
use crate::catalog::{CommitOutcome, TableCommit};
use crate::memory::Memory;
use crate::test_config::sound_config;

/// What a reader knows of a file: who added it, its sequence numbers, the id of its first row, and
/// its rows.
type Known = (i64, i64, i64, Option<i64>, u64);

impl World {
    async fn change(&self, updates: Vec<TableUpdate>) {
        let commit = TableCommit {
            requirements: Vec::<TableRequirement>::new(),
            updates,
            idempotency_key: Uuid::now_v7(),
        };
        let changed = self.catalog.commit(&self.load().await, commit).await;
        assert!(
            matches!(changed, CommitOutcome::Committed(_)),
            "{changed:?}"
        );
    }

    async fn set(&self, properties: &[(&str, &str)]) {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let updates = properties.iter().map(text).collect();
        self.change(vec![TableUpdate::SetProperties { updates }])
            .await;
    }

    async fn entries(&self) -> Vec<(ManifestFile, Vec<ManifestEntryRef>)> {
        let io = self.load().await.storage.file_io();
        let mut all = Vec::new();
        for manifest in self.manifests("main").await {
            let (entries, _) = manifest.load_manifest(&io).await.unwrap().into_parts();
            all.push((manifest, entries));
        }
        all
    }

    /// What a reader knows of each file, with what it inherits as Iceberg's specification says.
    async fn known(&self) -> BTreeMap<String, Known> {
        let mut known = BTreeMap::new();
        for (manifest, entries) in self.entries().await {
            let mut next = manifest.first_row_id.map(|id| id as i64);
            for entry in entries {
                let file = entry.data_file();
                let inherited = next.filter(|_| file.first_row_id().is_none());
                if let (Some(next), Some(_)) = (&mut next, inherited) {
                    *next += file.record_count() as i64;
                }
                let of_file = (
                    entry.snapshot_id().unwrap(),
                    entry.sequence_number().unwrap(),
                    entry.file_sequence_number.unwrap(),
                    file.first_row_id().or(inherited),
                    file.record_count(),
                );
                let twice = known.insert(file.file_path().to_owned(), of_file);
                assert_eq!(twice, None, "{} is listed twice", file.file_path());
            }
        }
        known
    }

    /// Commits the rows `[number * 5, number * 5 + 5)` of two partitions, a segment each.
    async fn commit(&self, committer: &TableCommitter, number: i64) {
        let (start, end) = (number * 5, number * 5 + 5);
        let seq = number as u64;
        let batch = vec![
            self.segment(1, seq, &[(0, start, end)]).await,
            self.segment(2, seq, &[(1, start, end)]).await,
        ];
        assert_eq!(letters(&committer.commit(batch).await), "DD");
    }

    async fn files_named(&self, part: &str) -> usize {
        use futures::TryStreamExt;
        let loaded = self.load().await;
        let listed = loaded.storage.list(loaded.metadata.location()).unwrap();
        let listed: Vec<_> = listed.try_collect().await.unwrap();
        let named = |file: &&crate::storage::ListedFile| file.location.contains(part);
        listed.iter().filter(named).count()
    }
}

const FEW: [(&str, &str); 1] = [("commit.manifest.min-count-to-merge", "5")];

// Promise: Manifests are merged as Iceberg's table properties say, and every file keeps its snapshot, its sequence numbers and its row ids.
#[tokio::test]
async fn manifests_are_merged_and_say_the_same() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let world = World::new(version).await;
        world.set(&FEW).await;
        let committer = world.committer(WID);
        let mut before = BTreeMap::new();
        for number in 0..30 {
            world.commit(&committer, number).await;
            let known = world.known().await;
            for (path, of_file) in &before {
                assert_eq!(known.get(path), Some(of_file), "{path} after {number}");
            }
            assert_eq!(known.len() as i64, 2 * (number + 1));
            before = known;
            let listed = world.manifests("main").await.len();
            assert!(listed <= 12, "{listed} manifests after {number} commits");
        }
        world
            .assert_exactly_once("main", &[(0, 150), (1, 150)])
            .await;
        let merged = world.entries().await;
        let most = merged.iter().map(|(_, entries)| entries.len()).max();
        assert!(most >= Some(24), "merged ones are merged again: {most:?}");
        if version == FormatVersion::V3 {
            let next = world.load().await.metadata.next_row_id();
            assert_eq!(next, 300, "a merge gives out no row ids");
            let ids = before.values().map(|known| (known.3.unwrap(), known.4));
            let spans: BTreeMap<i64, u64> = ids.collect();
            let mut due = 0;
            for (first, rows) in spans {
                assert_eq!(first, due);
                due += rows as i64;
            }
            assert_eq!(due, 300);
        }
    }
}

#[tokio::test]
async fn the_table_may_forbid_it_and_is_left_alone_below_the_count() {
    for (properties, most) in [
        (vec![FEW[0], ("commit.manifest-merge.enabled", "false")], 24),
        (vec![], 24),
        (vec![FEW[0]], 12),
    ] {
        let world = World::new(FormatVersion::V2).await;
        world.set(&[&properties[..], &[("a", "b")]].concat()).await;
        let committer = world.committer(WID);
        for number in 0..12 {
            world.commit(&committer, number).await;
        }
        let listed = world.manifests("main").await.len();
        assert!(listed <= most && (most < 24 || listed == 24), "{listed}");
        world.assert_exactly_once("main", &[(0, 60), (1, 60)]).await;
    }
}

/// Attempts of one commit list the same merged manifest, each as of its own snapshot.
#[tokio::test]
async fn a_merge_survives_lost_races() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let world = World::new(version).await;
        world.set(&FEW).await;
        let committer = world.committer(WID);
        for number in 0..3 {
            world.commit(&committer, number).await;
        }
        let before = world.known().await;
        let script = [
            Fault::ConflictBefore,
            Fault::UnknownBefore,
            Fault::ForeignFirst,
        ];
        let faulty = Arc::new(Faulty::new(&world, &script));
        let foreign = world.segment(9, 0, &[(7, 0, 5)]).await;
        faulty.foreign.lock().unwrap().push(foreign);
        let racing = super::committer(faulty.clone(), &world.ident, WID);
        world.commit(&racing, 3).await;
        // Ours was written once for all attempts; the foreign commit, which was first, has its own.
        assert_eq!(world.files_named("-merged-").await, 2);
        let known = world.known().await;
        for (path, of_file) in &before {
            assert_eq!(known.get(path), Some(of_file), "{path}");
        }
        assert_eq!(known.len(), 9);
        let head = world.load().await.metadata.current_snapshot_id().unwrap();
        let lists = world.manifests("main").await;
        let own = lists.iter().filter(|one| one.added_snapshot_id == head);
        assert_eq!(own.count(), 2, "the segments of the last commit");
        let offsets = world.offsets("main").await;
        assert!(offsets.len() == 45 && offsets.values().all(|times| *times == 1));
    }
}

// Promise: the list of a table stays short also where the tasks are sure of all the memory there is
#[tokio::test]
async fn manifests_are_merged_without_room_in_the_pool() {
    let memory = Memory::new(None);
    let config = sound_config(&[("frazil.memory.max.bytes", "33554432")]);
    let task = memory.join(&config).unwrap();
    assert_eq!(memory.room(), 0);
    let world = World::new(FormatVersion::V2).await;
    world
        .set(&[("commit.manifest.min-count-to-merge", "40")])
        .await;
    let committer = world.committer(WID).with_memory(Arc::clone(&memory));
    for number in 0..20 {
        world.commit(&committer, number).await;
    }
    let manifests = world.manifests("main").await;
    assert_eq!(manifests.len(), 40);
    let bytes: i64 = manifests.iter().map(|one| one.manifest_length).sum();
    // More than what the pool lets anybody have.
    assert!(8 * bytes > 1 << 20, "{bytes} bytes");
    world.commit(&committer, 20).await;
    assert_eq!(world.manifests("main").await.len(), 3);
    assert!(memory.usage().peak > 1 << 20, "it was counted");
    assert_eq!(memory.usage().held, 0);
    drop(task);
    world
        .assert_exactly_once("main", &[(0, 105), (1, 105)])
        .await;
}

#[tokio::test]
async fn what_cannot_be_read_is_listed_as_it_was() {
    let world = World::new(FormatVersion::V2).await;
    world.set(&FEW).await;
    let committer = world.committer(WID);
    for number in 0..3 {
        world.commit(&committer, number).await;
    }
    let oldest = world.manifests("main").await.pop().unwrap();
    let storage = world.load().await.storage;
    let whole = storage.get(&oldest.manifest_path).await.unwrap();
    let cut = whole.slice(..whole.len() / 2);
    storage.put(&oldest.manifest_path, cut).await.unwrap();
    world.commit(&committer, 3).await;
    assert_eq!(world.manifests("main").await.len(), 8);
    storage.put(&oldest.manifest_path, whole).await.unwrap();
    world.commit(&committer, 4).await;
    let listed = world.manifests("main").await.len();
    assert_eq!(listed, 10, "the next commits do not try");
    // Another process has no reason to wait.
    world.commit(&world.committer(WID), 5).await;
    assert_eq!(world.manifests("main").await.len(), 3);
    world.assert_exactly_once("main", &[(0, 30), (1, 30)]).await;
}

#[tokio::test]
async fn manifests_of_two_schemas_become_two() {
    let world = World::new(FormatVersion::V2).await;
    world.set(&FEW).await;
    let committer = world.committer(WID);
    world.commit(&committer, 0).await;
    world.commit(&committer, 1).await;
    let metadata = world.load().await.metadata;
    let schema = metadata.current_schema();
    let column = NestedField::optional(2, "later", Type::Primitive(PrimitiveType::String));
    let fields = schema.as_struct().fields().iter().cloned();
    let schema = Schema::builder()
        .with_fields(fields.chain([Arc::new(column)]))
        .build()
        .unwrap();
    world
        .change(vec![
            TableUpdate::AddSchema { schema },
            TableUpdate::SetCurrentSchema { schema_id: -1 },
        ])
        .await;
    world.commit(&committer, 2).await;
    world.commit(&committer, 3).await;
    let mut schemas: Vec<(i32, usize)> = Vec::new();
    let io = world.load().await.storage.file_io();
    for manifest in world.manifests("main").await {
        let read = manifest.load_manifest(&io).await.unwrap();
        schemas.push((read.metadata().schema_id(), read.entries().len()));
    }
    assert_eq!(schemas, [(1, 1), (1, 1), (1, 2), (0, 4)]);
    world.assert_exactly_once("main", &[(0, 20), (1, 20)]).await;
}
