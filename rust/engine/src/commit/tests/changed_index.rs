//! What commits do with the index that they find rows by: how often it is built, what is read for it, and
//! what it is told.

use frazil_core::config::SinkConfig;
use frazil_core::memory::Use;
use iceberg::TableUpdate;

use super::changed::{Changed, Op, committer_of, delete, key_of_it, put, truncate};
use super::changed_races::{Racing, Turn};
use super::*;
use crate::commit::Looks;
use crate::commit::changed::IndexCounts;
use crate::memory::{Account, Memory};

fn rows(ids: std::ops::Range<i64>, value: i64) -> Vec<Op> {
    ids.map(|id| put((id, (id % 2) as i32, value))).collect()
}

/// A table with four files and an index of them.
async fn indexed(version: FormatVersion) -> (Changed, Arc<Racing>) {
    let mut table = Changed::new("t", version).await;
    table.commit(&rows(0..10, 1)).await;
    let racing = Racing::before(&mut table);
    table.commit(&rows(10..20, 1)).await;
    assert_eq!(
        table.committer.index_counts().await,
        IndexCounts {
            built: 1,
            files_read: 2,
            applied: 1,
        }
    );
    (table, racing)
}

// Promise: The primary-key index outlives commits that are lost: after conflicts, refusals and lost answers, however many, nothing of it is built anew, and of other writers' snapshots only the keys of new files are read.
#[tokio::test]
async fn an_index_outlives_lost_attempts() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let (mut table, racing) = indexed(version).await;
        let conflicts = || (0..5).map(|_| Turn::Conflict);
        racing.next(conflicts().chain([Turn::UnknownBefore, Turn::UnknownAfter]));
        table.commit(&[put((1, 0, 2)), delete(2)]).await;
        assert!(racing.is_over());
        let counts = table.committer.index_counts().await;
        assert_eq!((counts.built, counts.files_read), (1, 2), "{counts:?}");
        // Another writer wins twice, with one file for each partition.
        for id in [40, 50] {
            let foreign = table.foreign_append(&[(id, 0, 7), (id + 1, 1, 7)]).await;
            let effect = foreign.effect().to_vec();
            racing.next([Turn::Foreign(foreign)].into_iter().chain(conflicts()));
            let ops = [put((id, 1, 8)), put((3, 0, id))];
            let segment = table.segment(1, 0, &ops).await;
            assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
            table.expect(&effect);
            table.expect(&ops);
            table.check().await;
        }
        let counts = table.committer.index_counts().await;
        assert_eq!((counts.built, counts.files_read), (1, 6), "{counts:?}");
        // A request that is applied late: its own files are read as those of another writer.
        racing.next([Turn::LateBeforeLoad, Turn::LateBeforeNext, Turn::Conflict]);
        table.commit(&[put((4, 0, 9)), delete(5)]).await;
        table.commit(&[put((5, 0, 9)), delete(4)]).await;
        table.commit(&rows(0..20, 10)).await;
        assert_eq!(table.committer.index_counts().await.built, 1);
    }
}

// Promise: A commit that cannot be built, because a file is gone for a while, costs the primary-key index nothing: it goes on with the files whose keys were not read yet.
#[tokio::test]
async fn an_index_goes_on_where_reading_failed() {
    let (mut table, _) = indexed(FormatVersion::V3).await;
    table.restart();
    let (_, live) = table.live().await;
    let mut files: Vec<_> = live.data.iter().collect();
    files.sort_by_key(|(path, file)| (file.sequence, Arc::clone(path)));
    let last = files.last().unwrap().0.trim_start_matches("file://");
    let hidden = format!("{last}.hidden");
    std::fs::rename(last, &hidden).unwrap();
    let ops = [put((1, 0, 2)), put((11, 0, 2)), delete(12)];
    let segment = table.segment(1, 0, &ops).await;
    let outcomes = table.committer.commit(vec![segment.clone()]).await;
    assert_eq!(letters(&outcomes), "B");
    let counts = table.committer.index_counts().await;
    assert_eq!((counts.built, counts.files_read), (1, 3), "{counts:?}");
    std::fs::rename(&hidden, last).unwrap();
    assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
    table.expect(&ops);
    table.check().await;
    let counts = table.committer.index_counts().await;
    assert_eq!((counts.built, counts.files_read), (1, 4), "{counts:?}");
}

// Promise: The primary-key index outlives that the snapshot is expired on which it was used last, as long as the table shows that it descends from it.
#[tokio::test]
async fn an_index_outlives_an_expired_snapshot() {
    let (mut table, _) = indexed(FormatVersion::V2).await;
    let loaded = table.world.load().await;
    let head = loaded.metadata.current_snapshot().unwrap().snapshot_id();
    let foreign = table.foreign_append(&[(40, 0, 7)]).await;
    table.commit_foreign(foreign).await;
    let loaded = table.world.load().await;
    let old = loaded.metadata.snapshots().map(|one| one.snapshot_id());
    let new = loaded.metadata.current_snapshot().unwrap().snapshot_id();
    let snapshot_ids: Vec<i64> = old.filter(|id| *id != new).collect();
    assert!(snapshot_ids.contains(&head));
    table
        .change(vec![TableUpdate::RemoveSnapshots { snapshot_ids }])
        .await;
    table.commit(&[put((1, 0, 2)), delete(40)]).await;
    let counts = table.committer.index_counts().await;
    assert_eq!((counts.built, counts.files_read), (1, 3), "{counts:?}");
}

// Promise: While a primary-key index is built, its table holds none of the turns that the tables of a process have with the catalog.
#[tokio::test]
async fn an_index_is_built_without_a_turn_with_the_catalog() {
    let (mut table, racing) = indexed(FormatVersion::V3).await;
    let looks = Looks::default();
    let catalog: Arc<dyn Catalog> = racing.clone();
    let fresh = committer_of(catalog, &table.world.ident).with_looks(looks.clone());
    table.committer = fresh;
    let ops = [put((1, 0, 2)), delete(2)];
    let segment = table.segment(1, 0, &ops).await;
    *racing.taken.lock().unwrap() = Some(looks);
    {
        let mut commit = std::pin::pin!(table.committer.commit(vec![segment]));
        let waits = tokio::time::timeout(Duration::from_secs(2), &mut commit).await;
        assert!(waits.is_err(), "{waits:?}");
        let counts = table.committer.index_counts().await;
        assert_eq!((counts.built, counts.files_read), (1, 4), "{counts:?}");
        racing.give_turns();
        assert_eq!(letters(&commit.await), "D");
    }
    table.expect(&ops);
    table.check().await;
}

// Promise: A segment that the table has already changes neither the table nor the primary-key index once more, whether it comes again later or twice in one commit.
#[tokio::test]
async fn a_segment_that_comes_again_changes_nothing() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let (mut table, racing) = indexed(version).await;
        let first = [put((1, 0, 2)), delete(2), put((30, 0, 2))];
        let segment = table.segment(1, 0, &first).await;
        racing.next([Turn::UnknownAfter]);
        let twice = vec![segment.clone(), segment.clone()];
        let outcomes = table.committer.commit(twice).await;
        assert_eq!(letters(&outcomes), "DC");
        table.expect(&first);
        table.check().await;
        let second = [put((2, 0, 3)), delete(1), put((30, 1, 3))];
        let next = table.segment(1, 0, &second).await;
        let snapshots = table.world.snapshots().await;
        // What comes again is older than what comes with it.
        let outcomes = table.committer.commit(vec![segment.clone(), next]).await;
        assert_eq!(letters(&outcomes), "CD");
        table.expect(&second);
        table.check().await;
        let outcomes = table.committer.commit(vec![segment]).await;
        assert_eq!(letters(&outcomes), "C");
        assert_eq!(table.world.snapshots().await, snapshots + 1);
        let counts = table.committer.index_counts().await;
        assert_eq!((counts.built, counts.files_read), (1, 2), "{counts:?}");
        assert_eq!(counts.applied, 3, "each commit once");
        table.commit(&rows(0..40, 4)).await;
    }
}

/// Gives the table a committer with a pool of its own.
pub(super) fn with_memory(table: &mut Changed) -> Arc<Memory> {
    let memory = Memory::new(None);
    let (catalog, ident) = (table.world.catalog.clone(), table.world.ident.clone());
    table.committer = committer(catalog, &ident, WID).with_changes(key_of_it(), memory.clone());
    memory
}

/// As [`with_memory`], of which a task has its guarantee, and as much is left.
pub(super) fn with_pool(table: &mut Changed) -> (Arc<Memory>, Account) {
    let memory = with_memory(table);
    let settings = [
        ("name", "orders"),
        ("topics", "orders"),
        ("iceberg.catalog.type", "sql"),
        ("iceberg.catalog.uri", "sqlite:/tmp/catalog.db"),
        ("iceberg.catalog.warehouse", "file:///tmp/warehouse"),
        ("iceberg.tables", "db.orders"),
        ("frazil.memory.max.bytes", "67108864"),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let config = SinkConfig::start(&settings.into()).unwrap().0;
    let account = memory.join(&config).unwrap();
    (memory, account)
}

// Promise: A primary-key index gives memory back when the source's table is truncated, or another writer drops files.
#[tokio::test]
async fn an_index_shrinks() {
    let mut table = Changed::new("t", FormatVersion::V2).await;
    let memory = with_memory(&mut table);
    table.commit(&rows(0..10, 1)).await;
    let small = memory.usage().held;
    let many = rows(10..6_000, 1);
    table.commit(&many).await;
    let large = memory.usage().held;
    assert!(large > small + 30_000, "{small} {large}");
    table.commit(&[truncate()]).await;
    table.commit(&rows(0..10, 2)).await;
    let emptied = memory.usage().held;
    assert!(emptied < large / 2, "{small} {large} {emptied}");
    // Files that another writer drops are noticed with the next commit.
    table.commit(&many).await;
    let before = memory.usage().held;
    table.model.clear();
    let foreign = table.foreign_compaction().await;
    table.commit_foreign(foreign).await;
    table.commit(&[put((1, 0, 3))]).await;
    let dropped = memory.usage().held;
    assert!(dropped < before / 2, "{before} {dropped}");
}

// Promise: A commit of changes takes as many of the waiting segments as there is memory for, and the others come with the next one.
#[tokio::test]
async fn a_commit_has_as_many_changes_as_there_is_memory_for() {
    let mut table = Changed::new("t", FormatVersion::V3).await;
    let (memory, _account) = with_pool(&mut table);
    let mut all = Vec::new();
    for value in 0..3 {
        let ops = rows(0..300, value);
        all.push(table.segment(1, 0, &ops).await);
        table.expect(&ops);
    }
    let before = table.world.snapshots().await;
    let others = memory.draw(Use::Rewrites, memory.room() - 400 * 320);
    assert_eq!(letters(&table.committer.commit(all).await), "DDD");
    assert_eq!(table.world.snapshots().await, before + 3);
    drop(others);
    table.check().await;
    let mut all = Vec::new();
    for value in 3..6 {
        let ops = rows(0..300, value);
        all.push(table.segment(1, 0, &ops).await);
        table.expect(&ops);
    }
    assert_eq!(letters(&table.committer.commit(all).await), "DDD");
    assert_eq!(table.world.snapshots().await, before + 4);
    table.check().await;
}

// Promise: What a commit of changes has read is let go when it is over, also where many commits follow in one go.
#[tokio::test]
async fn a_commit_lets_go_what_the_one_before_has_read() {
    let mut table = Changed::new("t", FormatVersion::V3).await;
    let (memory, _account) = with_pool(&mut table);
    // Fifty files for each segment, which are known while its commit is made.
    let ops = |value| -> Vec<Op> {
        (0..2_000)
            .map(|id| put((id, (id % 50) as i32, value)))
            .collect()
    };
    table.commit(&ops(0)).await;
    let mut all = Vec::new();
    for value in 1..=8 {
        all.push(table.segment(1, 0, &ops(value)).await);
        table.expect(&ops(value));
    }
    let before = table.world.snapshots().await;
    let others = memory.draw(Use::Rewrites, memory.room() - 1_200_000);
    let held = memory.usage().held;
    assert_eq!(letters(&table.committer.commit(all).await), "DDDDDDDD");
    assert_eq!(table.world.snapshots().await, before + 8);
    let more = memory.usage().peak - held;
    assert!(more < 700_000, "{more} bytes");
    drop(others);
    table.check().await;
}

// Promise: What a commit of changes holds is part of the accounted memory: the stored keys of its segments, a piece of them at a time, and 28 bytes of each key; when the commit is over it is given back.
#[tokio::test]
async fn a_commit_of_many_changes_is_accounted() {
    let mut table = Changed::new("t", FormatVersion::V3).await;
    let memory = with_memory(&mut table);
    table.commit(&rows(0..6_000, 1)).await;
    let before = memory.usage();
    let ops: Vec<Op> = (0..6_000)
        .map(|id| put((id, (id % 2) as i32, 2)).at(0, 1))
        .collect();
    let segment = table.segment(1, 0, &ops).await;
    let keys = segment.key_run.as_ref().unwrap().len;
    assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
    table.expect(&ops);
    table.check().await;
    let after = memory.usage();
    let more = after.peak - before.held;
    let orders = 6_000 * 110;
    assert!(more > 28 * 6_000 + keys + orders, "{more} bytes");
    assert!(
        more < 28 * 6_000 + keys + 2 * orders + 150_000,
        "{more} bytes"
    );
    assert!(!after.uses.contains("commits="), "{after:?}");
}
