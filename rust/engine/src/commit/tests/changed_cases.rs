//! Commits to tables with changes, case by case.

use std::fs;
use std::path::{Path, PathBuf};

use frazil_core::commit::outcome::final_code;
use frazil_core::commit::validate::RejectReason;
use frazil_core::config::SinkConfig;
use frazil_core::layout::identifier::key_plan;
use frazil_core::memory::Use;
use iceberg::TableUpdate;
use iceberg::spec::{SnapshotReference, SnapshotRetention};

use super::changed::{Changed, Op, committer_of, delete, key_of_it, put, truncate};
use super::changed_races::{Racing, Turn};
use super::*;
use crate::index::audit;
use crate::memory::Memory;

fn rows(ids: std::ops::Range<i64>, value: i64) -> Vec<Op> {
    ids.map(|id| put((id, (id % 2) as i32, value))).collect()
}

async fn filled(version: FormatVersion) -> Changed {
    let mut table = Changed::new("t", version).await;
    table.commit(&rows(0..10, 1)).await;
    table.commit(&[delete(8), put((9, 0, 2))]).await;
    table
}

// Promise: Another writer's append, compaction or delete between two attempts to commit changes is followed: the changes are resolved again on its snapshot, and each key has one row.
// Case: 34
#[tokio::test]
async fn changes_are_resolved_again_on_the_snapshot_that_won() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        for what in ["append", "compaction", "delete", "two"] {
            let mut table = filled(version).await;
            let racing = Racing::before(&mut table);
            // The index is there before the race.
            table.commit(&[put((1, 1, 10))]).await;
            let ops = [
                put((1, 0, 20)),
                delete(2),
                put((3, 1, 20)),
                put((50, 0, 20)),
            ];
            let segment = table.segment(1, 0, &ops).await;
            let foreign = match what {
                "append" => table.foreign_append(&[(50, 1, 30), (51, 1, 30)]).await,
                "compaction" | "two" => table.foreign_compaction().await,
                _ => table.foreign_delete(&[1, 2, 4]).await,
            };
            let effect = foreign.effect().to_vec();
            let mut turns = vec![Turn::Foreign(foreign)];
            if what == "two" {
                turns.extend([Turn::Conflict, Turn::UnknownAfter]);
            }
            racing.next(turns);
            let outcomes = table.committer.commit(vec![segment]).await;
            assert_eq!(letters(&outcomes), "D", "{what}");
            assert!(racing.is_over(), "{what}");
            table.expect(&effect);
            table.expect(&ops);
            table.check().await;
            // What was followed by difference is right for the next commit, too.
            table.commit(&rows(0..10, 40)).await;
            table.commit(&[delete(50), delete(51)]).await;
        }
    }
}

// Promise: A commit of changes whose answer is lost is found in the table, or made once more, and a request that the catalog applies late does no harm.
// Case: 33
#[tokio::test]
async fn a_lost_answer_neither_loses_nor_repeats_changes() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        for turns in [
            vec![Turn::UnknownBefore],
            vec![Turn::UnknownAfter],
            vec![Turn::LateBeforeLoad],
            vec![Turn::LateBeforeNext],
            vec![Turn::LateBeforeNext, Turn::UnknownAfter],
        ] {
            let mut table = filled(version).await;
            let racing = Racing::before(&mut table);
            let said = format!("{turns:?}");
            racing.next(turns);
            let before = table.world.snapshots().await;
            table
                .commit(&[put((1, 0, 20)), delete(2), put((50, 0, 20))])
                .await;
            assert_eq!(table.world.snapshots().await, before + 1, "{said}");
            table
                .commit(&[put((50, 1, 30)), put((2, 0, 30)), delete(1)])
                .await;
        }
    }
}

// Promise: A process that takes a table with changes over builds its index from the key columns of the live rows, and goes on where the other one ended.
// Case: 50
#[tokio::test]
async fn a_new_process_builds_the_index_from_the_files() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = filled(version).await;
        table.restart();
        table.commit(&rows(5..15, 3)).await;
        table.restart();
        table.commit(&[delete(9), delete(14), put((8, 0, 4))]).await;
        let (_, live) = table.live().await;
        assert!(live.data.len() >= 4);
    }
}

// Promise: A data file none of whose rows is left goes with its delete file, and a new file none of whose rows counts is never listed.
#[tokio::test]
async fn files_without_rows_are_left_out() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = filled(version).await;
        let ops = [rows(0..10, 5), rows(0..10, 6)].concat();
        table.commit(&ops).await;
        let (_, live) = table.live().await;
        // All rows from before are replaced; of the new ones half are void.
        assert_eq!(live.data.len(), 2);
        let gone: Vec<Op> = (0..10).map(delete).collect();
        table.commit(&[rows(20..22, 7), gone].concat()).await;
        let (_, live) = table.live().await;
        assert_eq!(live.data.len(), 2);
        assert_eq!(live.vectors.len() + live.positions().count(), 0);
        // Two files of one segment, of which one has no row that counts.
        table
            .commit(&[
                put((30, 0, 1)),
                put((30, 1, 2)),
                put((31, 1, 3)),
                delete(31),
            ])
            .await;
        let (_, live) = table.live().await;
        assert_eq!(live.data.len(), 3);
        // A file that nobody needs at all.
        table.commit(&[put((40, 2, 1)), delete(40)]).await;
        assert_eq!(table.live().await.1.data.len(), 3);
    }
}

// Promise: Changes of one key by two sessions in one commit end in one row, that of the later change by order, or else of the one that comes later.
#[tokio::test]
async fn two_sessions_may_change_one_key() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = filled(version).await;
        let one = table
            .segment(1, 0, &[put((1, 0, 100)), put((2, 0, 100))])
            .await;
        let two = table.segment(2, 1, &[put((1, 1, 200)), delete(2)]).await;
        let outcomes = table.committer.commit(vec![one, two]).await;
        assert_eq!(letters(&outcomes), "DD");
        table.expect(&[put((1, 1, 200)), delete(2)]);
        table.check().await;
        // By their orders the first one is later.
        let one = [put((1, 0, 300)).at(0, 9), delete(3).at(0, 9)];
        let two = [put((1, 1, 400)).at(0, 8), put((3, 1, 400)).at(0, 7)];
        let first = table.segment(1, 0, &one).await;
        let second = table.segment(2, 1, &two).await;
        let outcomes = table.committer.commit(vec![first, second]).await;
        assert_eq!(letters(&outcomes), "DD");
        table.expect(&one);
        table.check().await;
    }
}

// Promise: A change that is older by its order than the last one of its key is void, in a later commit as well and after a delete, as long as the process lives.
// Case: 5
#[tokio::test]
async fn an_older_change_in_a_later_commit_is_void() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = filled(version).await;
        table
            .commit(&[put((1, 0, 50)).at(0, 5), delete(2).at(0, 5)])
            .await;
        let late = [
            put((1, 1, 40)).at(0, 4),
            put((2, 1, 40)).at(0, 4),
            // Another source says nothing about the first.
            put((3, 1, 40)).at(1, 1),
        ];
        let segment = table.segment(1, 0, &late).await;
        assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
        table.expect(&late[2..]);
        table.check().await;
        // The same place again replaces: what is sent again ends in the same rows.
        table.commit(&[put((1, 0, 51)).at(0, 5)]).await;
        // A lost answer does not lose the orders.
        let racing = Racing::before(&mut table);
        racing.next([Turn::UnknownAfter]);
        table.commit(&[put((4, 0, 60)).at(0, 6)]).await;
        let segment = table.segment(1, 0, &[delete(4).at(0, 5)]).await;
        assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
        table.check().await;
        // A new process knows no order.
        table.restart();
        table.commit(&[delete(4).at(0, 5)]).await;
    }
}

// Promise: Position deletes of another writer that are about several data files stay and count, and after an upgrade to format version 3 each of these files gets its own vector with its first change.
#[tokio::test]
async fn shared_position_deletes_of_others_count() {
    let mut table = Changed::new("t", FormatVersion::V2).await;
    let part = |ids: std::ops::Range<i64>, value| -> Vec<Op> {
        ids.map(|id| put((id, 0, value))).collect()
    };
    table.commit(&part(0..5, 1)).await;
    table.commit(&part(5..10, 1)).await;
    let foreign = table.foreign_shared_delete(0, &[1, 2, 6]).await;
    table.commit_foreign(foreign).await;
    table.commit(&[put((1, 0, 2)), delete(3)]).await;
    let (_, live) = table.live().await;
    assert_eq!(
        live.positions().count(),
        2,
        "the shared one, and one of the first file"
    );
    table.restart();
    table.commit(&[put((6, 0, 3))]).await;
    let format_version = FormatVersion::V3;
    table
        .change(vec![TableUpdate::UpgradeFormatVersion { format_version }])
        .await;
    table.commit(&[delete(0), delete(7)]).await;
    let (_, live) = table.live().await;
    assert_eq!((live.vectors.len(), live.positions().count()), (2, 1));
}

// Promise: After a rollback of the table to an older snapshot, its rows from then are found: a key whose row came back is not there twice.
#[tokio::test]
async fn a_rollback_is_noticed() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = filled(version).await;
        let loaded = table.world.load().await;
        let snapshot_id = loaded.metadata.current_snapshot().unwrap().snapshot_id();
        let before = table.model.clone();
        table.commit(&[delete(1), put((2, 0, 9))]).await;
        roll_back(&table, snapshot_id).await;
        table.model = before;
        table.check().await;
        table.commit(&[put((1, 0, 10)), put((2, 1, 10))]).await;
    }
}

// Promise: After a rollback of a table with changes its rows are as new as they are, and not as those were that went: a change in between is not taken for an old one.
#[tokio::test]
async fn orders_go_back_with_the_table() {
    let mut table = Changed::new("t", FormatVersion::V3).await;
    let first = [put((1, 0, 5)).at(0, 5), put((2, 0, 5)).at(0, 5)];
    table.commit(&first).await;
    let loaded = table.world.load().await;
    let snapshot_id = loaded.metadata.current_snapshot().unwrap().snapshot_id();
    let before = table.model.clone();
    let newer = [put((1, 0, 9)).at(0, 9), delete(2).at(0, 9)];
    table.commit(&newer).await;
    roll_back(&table, snapshot_id).await;
    table.model = before;
    table.check().await;
    let between = [delete(1).at(0, 7), put((2, 0, 7)).at(0, 7)];
    table.commit(&between).await;
}

async fn roll_back(table: &Changed, snapshot_id: i64) {
    let retention = SnapshotRetention::Branch {
        min_snapshots_to_keep: None,
        max_snapshot_age_ms: None,
        max_ref_age_ms: None,
    };
    let to = TableUpdate::SetSnapshotRef {
        ref_name: "main".into(),
        reference: SnapshotReference::new(snapshot_id, retention),
    };
    table.change(vec![to]).await;
}

// Promise: When another writer adds a second row of a key and deletes it again, the next change of the key still replaces the first.
#[tokio::test]
async fn the_first_row_of_a_key_counts_again_when_a_second_one_went() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = filled(version).await;
        let before = table.model.clone();
        let second = table.foreign_append(&[(1, 0, 99)]).await;
        table.commit_foreign(second).await;
        // The keys of its file are read.
        let segment = table.segment(1, 0, &[put((30, 1, 1))]).await;
        assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
        let gone = table.foreign_drop(&[(1, 0, 99)]).await;
        table.commit_foreign(gone).await;
        table.model = before;
        table.model.insert(30, (30, 1, 1));
        table.check().await;
        table.commit(&[put((1, 1, 100))]).await;
    }
}

// Promise: A truncation that is applied removes all rows that are not known to be newer, whole files at a time, and changes from before it do not come back.
#[tokio::test]
async fn a_truncation_empties_the_table() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = filled(version).await;
        // Without an order: what came before it in its partition goes.
        table
            .commit(&[put((20, 0, 1)), truncate(), put((21, 0, 1))])
            .await;
        let (_, live) = table.live().await;
        let deletes = live.vectors.len() + live.positions().count();
        assert_eq!((live.data.len(), deletes), (1, 1));
        table.commit(&[truncate()]).await;
        assert!(table.live().await.1.data.is_empty());
        // By its order: rows that are newer stay, whenever they came.
        let ops = [
            put((1, 0, 2)).at(0, 4),
            put((2, 0, 2)).at(0, 8),
            put((3, 1, 2)).at(0, 4),
        ];
        table.commit(&ops).await;
        let ops = [
            truncate().at(0, 6),
            put((4, 0, 3)).at(0, 5),
            put((5, 0, 3)).at(0, 7),
        ];
        let segment = table.segment(1, 0, &ops).await;
        assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
        table.model = [(2, (2, 0, 2)), (5, (5, 0, 3))].into();
        table.check().await;
        // What comes late, or again, changes nothing.
        let late = [
            put((3, 1, 2)).at(0, 4),
            truncate().at(0, 6),
            truncate().at(0, 3),
        ];
        let segment = table.segment(1, 0, &late).await;
        assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
        table.check().await;
        table
            .commit(&[put((2, 1, 9)).at(0, 9), delete(5).at(0, 9)])
            .await;
    }
}

/// Moves all that a commit could read but did not write just now out of the way.
struct Hidden(Vec<(PathBuf, PathBuf)>);

impl Hidden {
    fn all(root: &Path) -> Hidden {
        let mut found = Vec::new();
        let mut folders = vec![root.join("warehouse")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.to_string_lossy().into_owned();
                if path.is_dir() {
                    folders.push(path);
                } else if name.ends_with(".avro") || name.contains("/data/") {
                    found.push((path, PathBuf::from(format!("{name}.hidden"))));
                }
            }
        }
        for (from, to) in &found {
            fs::rename(from, to).unwrap();
        }
        Hidden(found)
    }

    fn show(self) {
        for (from, to) in self.0 {
            fs::rename(to, from).unwrap();
        }
    }
}

// Promise: A commit of changes reads the keys and manifests of its own segments and nothing else: neither manifests nor deletes nor rows of earlier commits of the process.
// Case: 43
#[tokio::test]
async fn nothing_is_read_twice() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = filled(version).await;
        let root = table.world._dir.path().to_owned();
        for value in 10..16 {
            let hidden = Hidden::all(&root);
            assert!(hidden.0.len() > 5);
            let ops = [rows(value - 10..value - 5, value), vec![delete(value - 6)]].concat();
            let segment = table.segment(1, 0, &ops).await;
            let outcomes = table.committer.commit(vec![segment]).await;
            assert_eq!(letters(&outcomes), "D", "{value} {outcomes:?}");
            hidden.show();
            table.expect(&ops);
            table.check().await;
        }
    }
}

// Promise: The manifests of a table with changes stay few, those of deletes among them.
#[tokio::test]
async fn manifests_of_deletes_stay_few() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = Changed::new("t", version).await;
        let updates = [("commit.manifest.min-count-to-merge".into(), "4".into())].into();
        table
            .change(vec![TableUpdate::SetProperties { updates }])
            .await;
        for commit in 0..24 {
            // The older of the last two rows goes: each file keeps one, and its delete file.
            let id = 2 * commit + 2;
            let ops = [put((id, 0, 1)), put((id + 1, 0, 1)), delete(id - 2)];
            table.commit(&ops).await;
        }
        let manifests = table.world.manifests("main").await;
        assert!(manifests.len() < 16, "{}", manifests.len());
        let (_, live) = table.live().await;
        assert_eq!(live.data.len(), 24);
        assert_eq!(live.vectors.len() + live.positions().count(), 23);
    }
}

// Promise: An index that does not fit the memory of the process refuses the commit before anything is written, says how much it needs, and the commit is made when there is room.
#[tokio::test]
async fn an_index_without_memory_refuses_the_commit() {
    let mut table = filled(FormatVersion::V3).await;
    let memory = Memory::new(None);
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
    let _account = memory.join(&config).unwrap();
    let (catalog, ident) = (table.world.catalog.clone(), table.world.ident.clone());
    table.committer = committer(catalog, &ident, WID).with_changes(key_of_it(), memory.clone());
    let room = memory.room();
    let ops = rows(100..3_000, 1);
    let segment = table.segment(1, 0, &ops).await;
    let before = table.world.snapshots().await;
    // What another index has is not given back; what else is held may be.
    for (what, code) in [
        (Use::KeyIndex, "INDEX_TOO_LARGE"),
        (Use::Rewrites, "INDEX_WAITS_FOR_MEMORY"),
    ] {
        let others = memory.draw(what, room - 40_000);
        let outcomes = table.committer.commit(vec![segment.clone()]).await;
        let [(0, SegmentOutcome::Blocked(error))] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(error.code(), code);
        assert!(error.report().contains("bytes="), "{}", error.report());
        assert_eq!(table.world.snapshots().await, before);
        let is_final = code == "INDEX_TOO_LARGE";
        assert_eq!(final_code(error.code()).is_some(), is_final);
        drop(others);
        if is_final {
            assert_eq!(memory.usage().held, 0, "{:?}", memory.usage());
        }
    }
    assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
    table.expect(&ops);
    table.check().await;
    let held = memory.usage();
    assert!(held.uses.contains("key-index="), "{held:?}");
}

// Promise: A process that does not commit a table with changes any more gives back the memory of its index, also where it was building it.
#[tokio::test]
async fn an_index_that_another_process_has_taken_over_is_let_go() {
    let mut table = filled(FormatVersion::V3).await;
    let memory = Memory::new(None);
    let (catalog, ident) = (table.world.catalog.clone(), table.world.ident.clone());
    table.committer = committer(catalog, &ident, WID).with_changes(key_of_it(), memory.clone());
    let segment = table.segment(1, 0, &[put((1, 0, 7))]).await;
    let (_, live) = table.live().await;
    let path = live.data.keys().last().unwrap();
    let path = path.trim_start_matches("file://");
    let bytes = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    // The commit is under way then, and does not come to its end.
    table.committer.end_term();
    let outcomes = table.committer.commit(vec![segment.clone()]).await;
    assert_eq!(letters(&outcomes), "B", "{outcomes:?}");
    assert_eq!(memory.usage().held, 0, "{:?}", memory.usage());
    std::fs::write(path, bytes).unwrap();
    table.committer.begin_term();
    assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
    table.expect(&[put((1, 0, 7))]);
    table.check().await;
    assert!(memory.usage().held > 0);
}

// Promise: A table with changes has one owner: a process that finds a second commit of another living one of its writer id ends, and names both hosts.
// Case: 34
#[tokio::test]
async fn a_second_owner_is_found() {
    let mut table = filled(FormatVersion::V2).await;
    let (catalog, ident) = (table.world.catalog.clone(), table.world.ident.clone());
    let other = committer_of(catalog, &ident).with_hub_id("host-2");
    let mut owned = String::new();
    for round in 0..4 {
        let ops = [put((1, 0, round))];
        let segment = table.segment(2, 1, &ops).await;
        assert_eq!(letters(&other.commit(vec![segment]).await), "D");
        table.expect(&ops);
        let ops = [put((2, 0, round))];
        let segment = table.segment(1, 0, &ops).await;
        let outcomes = table.committer.commit(vec![segment]).await;
        match &outcomes[..] {
            [(0, SegmentOutcome::Blocked(error))] => {
                owned = error.report();
                break;
            }
            _ => table.expect(&ops),
        }
        table.check().await;
    }
    for part in ["TABLE_OWNED_ELSEWHERE", "host-1", "host-2"] {
        assert!(owned.contains(part), "{owned}");
    }
}

// Promise: `frazil verify` finds a key that a table with changes has twice, and a second delete file of a data file.
#[tokio::test]
async fn an_audit_finds_what_is_not_promised() {
    let mut table = filled(FormatVersion::V2).await;
    let loaded = table.world.load().await;
    let plan = key_plan(loaded.metadata.current_schema(), &["id".to_owned()], false).unwrap();
    let found = audit(&loaded, "main", &plan).await.unwrap();
    assert_eq!((found.rows, found.deleted, found.doubled), (9, 2, 0));
    assert!(!found.is_bad());
    let twice = table.foreign_append(&[(1, 0, 7)]).await;
    table.commit_foreign(twice).await;
    let other = table.foreign_second_delete(2).await;
    table.commit_foreign(other).await;
    let loaded = table.world.load().await;
    let found = audit(&loaded, "main", &plan).await.unwrap();
    assert_eq!((found.doubled, found.several_deletes.len()), (1, 1));
    assert!(found.is_bad());
    assert_eq!(found.named.len(), 1);
}

async fn rejected(table: &Changed, segment: Segment) -> RejectReason {
    let outcomes = table.committer.commit(vec![segment]).await;
    match outcomes.into_iter().next() {
        Some((_, SegmentOutcome::Rejected(reason))) => reason,
        other => panic!("{other:?}"),
    }
}

// Promise: Keys of changes that were damaged, are gone or are keys of something else reject their segment, and never delete a row.
#[tokio::test]
async fn keys_that_are_of_no_use_reject_their_segment() {
    let mut table = filled(FormatVersion::V2).await;
    let sound = table.segment(1, 0, &[put((1, 0, 9))]).await;
    let broken = |change: &dyn Fn(&mut Segment)| {
        let mut segment = sound.clone();
        change(&mut segment);
        segment
    };
    let cases = [
        broken(&|segment| segment.key_run.as_mut().unwrap().sha256[0] ^= 1),
        broken(&|segment| segment.key_run.as_mut().unwrap().len += 1),
        broken(&|segment| segment.key_run.as_mut().unwrap().path += "x"),
        broken(&|segment| segment.key_run.as_mut().unwrap().path = "file:///etc/x".into()),
        broken(&|segment| segment.manifests[0].sha256[0] ^= 1),
        broken(&|segment| segment.key_run = None),
        broken(&|segment| segment.manifests.clear()),
    ];
    let before = table.world.snapshots().await;
    for (number, segment) in cases.into_iter().enumerate() {
        let reason = rejected(&table, segment).await;
        let fits = match number {
            0..4 | 6 => matches!(reason, RejectReason::KeysUnusable { .. }),
            4 => matches!(reason, RejectReason::ManifestChanged { .. }),
            _ => reason == RejectReason::Inconsistent,
        };
        assert!(fits, "{number}: {reason:?}");
    }
    // Rows that no change names would be there for ever.
    let other = table.segment(1, 0, &[put((1, 0, 9)), put((2, 0, 9))]).await;
    let mut mixed = broken(&|_| {});
    mixed.manifests = other.manifests;
    assert!(matches!(
        rejected(&table, mixed).await,
        RejectReason::KeysUnusable { .. }
    ));
    assert_eq!(table.world.snapshots().await, before);
    // A table that is appended to takes no changes.
    let appends = table.world.committer(WID);
    let outcomes = appends.commit(vec![sound.clone()]).await;
    assert!(matches!(
        &outcomes[..],
        [(0, SegmentOutcome::Rejected(RejectReason::Inconsistent))]
    ));
    assert_eq!(letters(&table.committer.commit(vec![sound]).await), "D");
    table.expect(&[put((1, 0, 9))]);
    table.check().await;
}
