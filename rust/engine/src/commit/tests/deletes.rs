//! Tables with changes, from key runs to files: the index says what to delete, the deletes are written
//! and listed, and what is read back equals a map. `tests/interop/test_deletes.py` lets other engines
//! read what [`tables_for_other_readers`] leaves in `FRAZIL_TABLES_DIR`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use frazil_core::commit::plan;
use iceberg::TableUpdate;
use iceberg::spec::Operation;

use super::super::list::old_manifests;
use super::changed::{Changed, Op, Random, Row, delete, put};
use super::*;
use crate::commit::{EntryKey, Removed, ReplacePlace, replace_entries};

impl Changed {
    /// Random changes of few keys in a few partitions, and commits that delete alone.
    async fn random(&mut self, random: &mut Random, commits: u32) {
        for commit in 0..i64::from(commits) {
            let mut ops = Vec::new();
            let deletes_only = random.below(4) == 0;
            for id in 0..40 {
                match random.below(9) {
                    0 | 1 if !deletes_only => {
                        let part = random.below(3) as i32;
                        ops.push(put((id, part, commit * 100 + id)));
                    }
                    2 => ops.push(delete(id)),
                    _ => {}
                }
            }
            if ops.is_empty() {
                ops.push(delete(0));
            }
            self.commit(&ops).await;
        }
    }

    async fn head(&self) -> (Operation, BTreeMap<String, String>) {
        let loaded = self.world.load().await;
        let summary = loaded
            .metadata
            .current_snapshot()
            .unwrap()
            .summary()
            .clone();
        let entries = summary.additional_properties.into_iter();
        (summary.operation, entries.collect())
    }
}

fn puts(rows: impl IntoIterator<Item = Row>) -> Vec<Op> {
    rows.into_iter().map(put).collect()
}

fn deletes(ids: impl IntoIterator<Item = i64>) -> Vec<Op> {
    ids.into_iter().map(delete).collect()
}

async fn all_gone(table: &mut Changed) {
    table.commit(&puts([(1_000, 0, 1), (1_001, 0, 2)])).await;
    let before = table.live().await.1.data.len();
    table.commit(&deletes([1_000, 1_001, 5_000])).await;
    let (operation, said) = table.head().await;
    assert_eq!(operation, Operation::Delete);
    assert_eq!(said["deleted-data-files"], "1");
    assert_eq!(said.get("added-delete-files"), None);
    assert_eq!(table.live().await.1.data.len(), before - 1);
}

// Promise: A table with changes holds one row for each key in both format versions: a data file has at most one delete file, a file without rows goes, and totals are right in every snapshot.
#[tokio::test]
async fn a_table_with_changes_is_what_its_files_say() {
    for (version, seed) in [(FormatVersion::V2, 1), (FormatVersion::V3, 2)] {
        let mut table = Changed::new("t", version).await;
        table.random(&mut Random(seed), 12).await;
        all_gone(&mut table).await;
        let (_, live) = table.live().await;
        assert_eq!(live.vectors.is_empty(), version == FormatVersion::V2);
        assert_eq!(live.positions().count() == 0, version == FormatVersion::V3);
    }
}

// Promise: A snapshot of a table with changes says what it does: only new rows are an append, only deletes a delete, anything else an overwrite; the delete entry that a new one stands for goes in the same snapshot.
#[tokio::test]
async fn the_operation_says_what_a_commit_did() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = Changed::new("t", version).await;
        table.commit(&puts((0..10).map(|id| (id, 0, id)))).await;
        let (operation, said) = table.head().await;
        assert_eq!(operation, Operation::Append);
        assert_eq!(
            (&*said["added-records"], &*said["total-records"]),
            ("10", "10")
        );
        table.commit(&deletes([3])).await;
        let (operation, said) = table.head().await;
        assert_eq!(operation, Operation::Delete);
        assert_eq!(said["added-position-deletes"], "1");
        table.commit(&puts([(4, 1, 400)])).await;
        let (operation, said) = table.head().await;
        assert_eq!(operation, Operation::Overwrite);
        let counts = [
            "added-delete-files",
            "removed-delete-files",
            "total-delete-files",
        ];
        assert_eq!(counts.map(|key| &*said[key]), ["1", "1", "1"]);
        let counts = ["added-position-deletes", "removed-position-deletes"];
        assert_eq!(counts.map(|key| &*said[key]), ["2", "1"]);
        assert_eq!(said["changed-partition-count"], "2");
        // Neither a row nor a delete: the offsets move all the same.
        table.commit(&deletes([77])).await;
        assert_eq!(table.head().await.0, Operation::Append);
    }
}

// Promise: A table that is upgraded from format version 2 to 3 keeps its deleted rows: the first change of a data file folds its position deletes into its vector.
// Case: 24
#[tokio::test]
async fn an_upgrade_folds_position_deletes_into_vectors() {
    let mut table = Changed::new("t", FormatVersion::V2).await;
    table
        .commit(&puts((0..20).map(|id| (id, (id % 2) as i32, id))))
        .await;
    table.commit(&deletes([0, 1, 2, 3])).await;
    upgrade(&table).await;
    table.commit(&deletes([4])).await;
    let (_, live) = table.live().await;
    assert_eq!((live.vectors.len(), live.positions().count()), (1, 1));
    let vector = live.vectors.values().next().unwrap();
    assert_eq!(vector.file.record_count(), 3);
    table.commit(&puts([(5, 0, 500)])).await;
    let (_, live) = table.live().await;
    assert_eq!((live.vectors.len(), live.positions().count()), (2, 0));
}

async fn upgrade(table: &Changed) {
    let format_version = FormatVersion::V3;
    table
        .change(vec![TableUpdate::UpgradeFormatVersion { format_version }])
        .await;
}

/// The id of the first row of each live data file.
async fn row_ids(table: &Changed) -> BTreeMap<String, i64> {
    let loaded = table.world.load().await;
    let base = plan::base(&loaded.metadata, "main");
    let mut first = BTreeMap::new();
    for listed in old_manifests(&loaded.storage, &base, None).await.unwrap() {
        let manifest = listed.load_manifest(&loaded.storage.file_io()).await;
        let mut next = listed.first_row_id;
        for entry in manifest.unwrap().entries() {
            let file = entry.data_file();
            if !entry.is_alive() || entry.content_type() != DataContentType::Data {
                continue;
            }
            let inherited = next.filter(|_| file.first_row_id().is_none());
            if let Some(id) = inherited {
                next = Some(id + file.record_count());
            }
            let id = file.first_row_id().or(inherited.map(|id| id as i64));
            first.insert(file.file_path().to_owned(), id.unwrap());
        }
    }
    first
}

// Row ids of version 3 stay what they are when a manifest loses entries.
// Case: 25
#[tokio::test]
async fn row_ids_stay_when_files_go() {
    let mut table = Changed::new("t", FormatVersion::V3).await;
    table
        .commit(&puts((0..30).map(|id| (id, (id % 3) as i32, id))))
        .await;
    let before = row_ids(&table).await;
    assert_eq!(
        before.values().copied().collect::<BTreeSet<_>>(),
        [0, 10, 20].into()
    );
    table
        .commit(&deletes((0..30).filter(|id| id % 3 == 1)))
        .await;
    let after = row_ids(&table).await;
    assert_eq!(after.len(), 2);
    for (path, id) in after {
        assert_eq!(before[&path], id);
    }
    assert_eq!(table.world.load().await.metadata.next_row_id(), 30);
}

#[tokio::test]
async fn entries_that_are_gone_are_noticed() {
    let mut table = Changed::new("t", FormatVersion::V2).await;
    table.commit(&puts([(1, 0, 1)])).await;
    let (loaded, live) = table.live().await;
    let base = plan::base(&loaded.metadata, "main");
    let old = old_manifests(&loaded.storage, &base, None).await.unwrap();
    let path = live.data.keys().next().unwrap();
    let removed = Removed {
        data: [EntryKey::of_file(&**path), EntryKey::of_file("gone")].into(),
        deletes: BTreeSet::new(),
    };
    let place = ReplacePlace {
        storage: &loaded.storage,
        metadata: &loaded.metadata,
        commit_id: Uuid::nil(),
        snapshot_id: 7,
        among: None,
        kept: &|_| None,
    };
    let made = replace_entries(&place, old, &removed).await;
    assert_eq!(made.unwrap_err().code(), "COMMIT_ENTRIES_GONE");
}

// Run by `tests/interop/test_deletes.py` with a directory, else in one of its own.
#[tokio::test]
async fn tables_for_other_readers() {
    let kept = std::env::var_os("FRAZIL_TABLES_DIR").map(PathBuf::from);
    let mut tables = serde_json::Map::new();
    for (name, version) in [
        ("positions", FormatVersion::V2),
        ("vectors", FormatVersion::V3),
        ("upgraded", FormatVersion::V2),
    ] {
        let mut builder = tempfile::Builder::new();
        builder.prefix(name).disable_cleanup(kept.is_some());
        let dir = match &kept {
            Some(kept) => builder.tempdir_in(kept).unwrap(),
            None => builder.tempdir().unwrap(),
        };
        let mut table = Changed::new_in(dir, name, version).await;
        let mut random = Random(name.len() as u64);
        table.random(&mut random, 5).await;
        all_gone(&mut table).await;
        if name == "upgraded" {
            upgrade(&table).await;
            table.random(&mut random, 4).await;
        }
        let (_, live) = table.live().await;
        assert!(live.vectors.len() + live.positions().count() > 0);
        tables.insert(name.to_owned(), std::mem::take(&mut table.steps).into());
    }
    if let Some(kept) = kept {
        let text = serde_json::to_vec(&tables).unwrap();
        std::fs::write(kept.join("tables.json"), text).unwrap();
    }
}
