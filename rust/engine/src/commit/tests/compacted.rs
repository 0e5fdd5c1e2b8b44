//! Compactions of real files beside commits of changes, and what may come between their steps.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use frazil_core::commit::location::StateLocation;
use frazil_core::commit::summary::{MAINTENANCE, WRITER};
use frazil_core::config::{SinkConfig, TableConfig};
use iceberg::TableUpdate;
use iceberg::spec::{
    Literal, NestedFieldRef, Operation, SnapshotReference, SnapshotRetention, Transform,
    UnboundPartitionSpec,
};

use super::changed::{Changed, Op, Random, committer_of, delete, key_of_it, put};
use super::changed_races::{Racing, Turn};
use super::*;
use crate::commit::Sight;
use crate::hub::{Hub, HubConfig, TableIdentKey, TableKey};
use crate::index::read_key_columns;
use crate::maintain::{GroupOutcome, Maintenance, Pace, Report, run};
use crate::memory::Memory;
use crate::runtime::Runtime;

/// How the tests look after a table; `more` keys of its configuration.
fn maintenance(more: &[(&str, &str)]) -> Maintenance {
    Maintenance {
        config: table_config(more),
        hot_commits: 0,
        dry_run: false,
        pace: Pace::full(),
        memory: Memory::new(None),
    }
}

fn table_config(more: &[(&str, &str)]) -> TableConfig {
    configs(more).1
}

/// The configuration of a connector, and of its table.
fn configs(more: &[(&str, &str)]) -> (SinkConfig, TableConfig) {
    let settings = [
        ("name", "test-sink"),
        ("topics", "t"),
        ("iceberg.catalog.type", "sql"),
        ("iceberg.catalog.uri", "sqlite:/nowhere/catalog.db"),
        ("iceberg.catalog.warehouse", "file:///nowhere"),
        ("iceberg.tables", "db.t"),
    ];
    let settings = settings.iter().chain(more);
    let settings = settings.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let (config, _) = SinkConfig::start(&settings.collect()).unwrap();
    let table = config.tables[0].clone();
    (config, table)
}

/// A pace that stops before the first rows: the test is told, and says when it goes on.
fn stopping() -> (Pace, Receiver<()>, Sender<()>) {
    let ((reads, told), (go, gone_on)) = (channel(), channel::<()>());
    let once = Mutex::new(Some((reads, gone_on)));
    let pace = Pace::beside(100, move || {
        if let Some((reads, gone_on)) = once.lock().unwrap().take() {
            reads.send(()).unwrap();
            // A test that ends without a word lets it go on as well.
            let _ = gone_on.recv();
        }
        false
    });
    (pace, told, go)
}

fn rows(ids: std::ops::Range<i64>, value: i64) -> Vec<Op> {
    ids.map(|id| put((id, (id % 2) as i32, value))).collect()
}

/// Six small files in each of two partitions, some of their rows deleted.
async fn filled(version: FormatVersion) -> Changed {
    let mut table = Changed::new("t", version).await;
    for commit in 0..6 {
        table.commit(&rows(commit * 10..commit * 10 + 10, 1)).await;
    }
    table
        .commit(&[delete(8), delete(9), put((11, 0, 2)), put((32, 0, 2))])
        .await;
    table
}

async fn compact(table: &Changed) -> Report {
    run(&table.committer, &maintenance(&[])).await.unwrap()
}

fn outcomes(report: &Report) -> String {
    let outcomes = report.groups.iter().map(|one| match &one.outcome {
        GroupOutcome::Planned => "planned".to_owned(),
        GroupOutcome::Done { carried, .. } => format!("done {carried}"),
        GroupOutcome::Dropped(why) => (*why).to_owned(),
        GroupOutcome::Failed(error) => error.code().to_owned(),
    });
    outcomes.collect::<Vec<_>>().join(", ")
}

async fn files(table: &Changed) -> usize {
    table.live().await.1.data.len()
}

// Promise: Small files are merged beside the writer: a compaction leaves one file in each partition and no delete file, rows and source offsets stay as they are, and changes go on after reading the keys of the new files alone.
// Complaint: 25
#[tokio::test]
async fn small_files_become_one() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = filled(version).await;
        let before = table.world.load().await;
        let state = state_of(&before.metadata, WID, "main").unwrap().unwrap();
        let report = compact(&table).await;
        assert_eq!(outcomes(&report), "done 0, done 0");
        assert_eq!((report.files, files(&table).await), (13, 2));
        let (after, live) = table.live().await;
        assert_eq!(live.vectors.len() + live.positions().count(), 0);
        // Those of the snapshots that the groups were read at: later deletes of others apply.
        let first = before.metadata.last_sequence_number();
        let mut sequences: Vec<i64> = live.data.values().map(|file| file.sequence).collect();
        sequences.sort_unstable();
        assert_eq!(sequences, [first, first + 1]);
        assert_eq!(state_of(&after.metadata, WID, "main").unwrap(), Some(state));
        assert_eq!(after.metadata.properties(), before.metadata.properties());
        let head = after.metadata.current_snapshot().unwrap().summary();
        assert_eq!(head.operation, Operation::Replace);
        let said = |key: &str| head.additional_properties.get(key).map(String::as_str);
        assert_eq!(
            (said(MAINTENANCE), said(WRITER)),
            (Some("rewrite_data_files"), None)
        );
        table.check().await;
        let indexed = table.committer.index_counts().await;
        table
            .commit(&[put((1, 0, 5)), put((70, 1, 5)), delete(2)])
            .await;
        let now = table.committer.index_counts().await;
        assert_eq!(
            (now.built, now.files_read),
            (indexed.built, indexed.files_read + 2)
        );
        assert_eq!(outcomes(&compact(&table).await), "");
        table.restart();
        table.commit(&[put((3, 0, 6)), delete(70)]).await;
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let table = filled(FormatVersion::V2).await;
    let dry = Maintenance {
        dry_run: true,
        ..maintenance(&[])
    };
    let report = run(&table.committer, &dry).await.unwrap();
    assert_eq!(outcomes(&report), "planned, planned");
    assert_eq!(table.world.snapshots().await, 7);
    let hot = Maintenance {
        hot_commits: 3,
        ..dry
    };
    let report = run(&table.committer, &hot).await.unwrap();
    assert_eq!(outcomes(&report), "planned, planned", "for their deletes");
    let empty = Changed::new("empty", FormatVersion::V2).await;
    assert_eq!(compact(&empty).await.files, 0);
}

/// Compacts, and lets `meanwhile` happen while the rows of the first group are read.
async fn compact_while(
    table: &mut Changed,
    more: &[(&str, &str)],
    meanwhile: impl AsyncFnOnce(&mut Changed),
) -> Report {
    let (pace, told, go) = stopping();
    let maintenance = Maintenance {
        pace,
        ..maintenance(more)
    };
    let committer = Arc::new(committer_of(
        table.world.catalog.clone(),
        &table.world.ident,
    ));
    let running = tokio::spawn(async move { run(&committer, &maintenance).await.unwrap() });
    tokio::task::spawn_blocking(move || told.recv().unwrap())
        .await
        .unwrap();
    meanwhile(table).await;
    drop(go);
    running.await.unwrap()
}

// Promise: A row that is deleted or replaced while its file is compacted stays so in the new file.
// Case: 40
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_deleted_meanwhile_stay_deleted() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        for more in [
            &[][..],
            &[("iceberg.table.db.t.sort-by", "v desc, id desc")],
        ] {
            let mut table = filled(version).await;
            let report = compact_while(&mut table, more, async |table| {
                let ops = [
                    delete(10),
                    put((12, 0, 7)),
                    put((13, 0, 7)),
                    delete(41),
                    put((80, 1, 7)),
                ];
                table.commit(&ops).await;
                let foreign = table.foreign_delete(&[0, 1, 59]).await;
                table.commit_foreign(foreign).await;
            });
            let report = report.await;
            // The second group is read after that.
            assert_eq!(outcomes(&report), "done 3, done 0");
            table.check().await;
            table
                .commit(&[delete(14), put((15, 0, 8)), put((10, 0, 8))])
                .await;
            table.restart();
            table.commit(&[delete(16), put((17, 0, 8))]).await;
        }
    }
}

// Promise: A compaction ends well when all rows of its files are deleted meanwhile, and none of them comes back.
// Case: 41
#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_emptied_meanwhile_do_not_come_back() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        // Another writer marks all rows of one partition, and the files stay.
        let mut table = filled(version).await;
        let ids: Vec<i64> = (0..60).filter(|id| id % 2 == 0).chain([11]).collect();
        let report = compact_while(&mut table, &[], async |table| {
            let foreign = table.foreign_delete(&ids).await;
            table.commit_foreign(foreign).await;
        });
        let report = report.await;
        assert!(
            outcomes(&report).starts_with("done "),
            "{}",
            outcomes(&report)
        );
        table.check().await;
        assert_eq!(files(&table).await, 1, "nothing is left of one partition");
        // A commit of our own takes an emptied file off the table.
        let mut table = filled(version).await;
        let report = compact_while(&mut table, &[], async |table| {
            let ops: Vec<Op> = (20..30).map(delete).collect();
            table.commit(&ops).await;
        });
        let gone = "a file was replaced or emptied meanwhile";
        assert_eq!(outcomes(&report.await), format!("{gone}, {gone}"));
        table.check().await;
        assert_eq!(outcomes(&compact(&table).await), "done 0, done 0");
        table.check().await;
    }
}

// Promise: Whatever becomes of the request of a compaction (lost answers, late requests, another writer's compaction, append or delete), each row is there once.
#[tokio::test]
async fn whatever_happens_to_its_request_each_row_is_there_once() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        for what in 0..8 {
            let mut table = filled(version).await;
            let racing = Racing::before(&mut table);
            let turn = match what {
                0 => Turn::Conflict,
                1 => Turn::UnknownBefore,
                2 => Turn::UnknownAfter,
                3 => Turn::LateBeforeLoad,
                4 => Turn::LateBeforeNext,
                5 => Turn::Foreign(table.foreign_compaction().await),
                6 => Turn::Foreign(table.foreign_append(&[(90, 0, 1), (91, 1, 1)]).await),
                _ => Turn::Foreign(table.foreign_delete(&[4, 5, 6]).await),
            };
            let effect = match &turn {
                Turn::Foreign(foreign) => foreign.effect().to_vec(),
                _ => Vec::new(),
            };
            racing.next([turn]);
            let report = compact(&table).await;
            let gone = "a file was replaced or emptied meanwhile";
            let expected = match what {
                5 => format!("{gone}, {gone}"),
                7 => "done 2, done 0".to_owned(),
                _ => "done 0, done 0".to_owned(),
            };
            assert_eq!(outcomes(&report), expected, "{version} {what}");
            assert!(racing.is_over());
            table.expect(&effect);
            table.check().await;
            table.commit(&[put((1, 0, 9)), delete(2)]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_was_rolled_back_keeps_its_rows() {
    let mut table = filled(FormatVersion::V3).await;
    let loaded = table.world.load().await;
    let parent = loaded
        .metadata
        .current_snapshot()
        .unwrap()
        .parent_snapshot_id();
    let report = compact_while(&mut table, &[], async |table| {
        let retention = SnapshotRetention::Branch {
            min_snapshots_to_keep: None,
            max_snapshot_age_ms: None,
            max_ref_age_ms: None,
        };
        let back = TableUpdate::SetSnapshotRef {
            ref_name: "main".into(),
            reference: SnapshotReference::new(parent.unwrap(), retention),
        };
        table.change(vec![back]).await;
    });
    let back = "the branch was rolled back, done 0";
    assert_eq!(outcomes(&report.await), back);
    table.model = (0..60).map(|id| (id, (id, (id % 2) as i32, 1))).collect();
    table.check().await;
}

// Promise: Changes go on beside compactions, round after round: each key has one row, no compaction fails, and the files stay few.
// Case: 42
#[tokio::test(flavor = "multi_thread")]
async fn changes_go_on_beside_compactions() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = Changed::new("t", version).await;
        let mut random = Random(7);
        let (mut done, mut most) = (0, 0);
        for round in 0..40 {
            let mut ops = Vec::new();
            for _ in 0..6 {
                let id = random.below(60) as i64;
                ops.push(match random.below(5) {
                    0 => delete(id),
                    _ => put((id, random.below(2) as i32, round)),
                });
            }
            let segment = table.segment(1, 0, &ops).await;
            let hot = Maintenance {
                hot_commits: 2,
                ..maintenance(&[])
            };
            let (committed, report) = tokio::join!(
                table.committer.commit(vec![segment]),
                run(&table.committer, &hot)
            );
            assert_eq!(letters(&committed), "D");
            let report = report.unwrap();
            assert!(!report.has_failed(), "{}", outcomes(&report));
            done += report.done();
            table.expect(&ops);
            table.check().await;
            most = most.max(files(&table).await);
        }
        assert!(done >= 10, "{done} compactions");
        assert!(most <= 16, "{most} files");
    }
}

/// The id and the last change of each row that is live, by its key.
async fn histories(table: &Changed) -> BTreeMap<i64, (i64, i64)> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    let (loaded, live) = table.live().await;
    let paths = live.data.keys().cloned().collect();
    let known = live
        .deletes_of(&loaded.storage, &paths, |_| None)
        .await
        .unwrap();
    let mut found = BTreeMap::new();
    for (path, file) in &live.data {
        let columns = [1, 2_147_483_540, 2_147_483_539];
        for columns in [&columns[..], &columns[..1]] {
            let first_id = file.first_row_id.unwrap() as i64;
            let each = |first: u64, read: &[arrow_array::ArrayRef]| {
                for (at, id) in read[0]
                    .as_primitive::<Int64Type>()
                    .values()
                    .iter()
                    .enumerate()
                {
                    let row = first + at as u64;
                    let vector = known.get(path).map(|known| &known.vector);
                    if vector.is_some_and(|vector| vector.contains(row)) {
                        continue;
                    }
                    let own = |column: usize| read[column].as_primitive::<Int64Type>().value(at);
                    let history = match read.len() {
                        1 => (first_id + row as i64, file.sequence),
                        _ => (own(1), own(2)),
                    };
                    assert_eq!(found.insert(*id, history), None);
                }
                Ok(())
            };
            let read = read_key_columns(&loaded.storage, path, file.bytes, columns, each).await;
            match read {
                Ok(_) => break,
                Err(error) => assert_eq!(error.code(), "INDEX_KEY_MISSING"),
            }
        }
    }
    found
}

// Case: 25
// Promise: A row of format version 3 keeps its id and the sequence number of its last change through compactions.
#[tokio::test]
async fn rows_keep_their_history() {
    let mut table = filled(FormatVersion::V3).await;
    let before = histories(&table).await;
    assert_eq!(before.len(), table.model.len());
    compact(&table).await;
    assert_eq!(files(&table).await, 2);
    assert_eq!(histories(&table).await, before);
    // Of compacted files as well, beside new ones.
    for commit in 0..4 {
        table
            .commit(&rows(100 + commit * 10..110 + commit * 10, 1))
            .await;
    }
    table.commit(&(0..30).map(delete).collect::<Vec<_>>()).await;
    let before = histories(&table).await;
    assert!(compact(&table).await.done() > 0);
    assert_eq!(histories(&table).await, before);
    let loaded = table.world.load().await;
    let ids: std::collections::BTreeSet<i64> = before.values().map(|(id, _)| *id).collect();
    assert_eq!(ids.len(), before.len());
    assert!(ids.last().unwrap() < &(loaded.metadata.next_row_id() as i64));
}

/// Gives the table another column, with what `field` says.
async fn add_column(table: &Changed, field: NestedField) {
    let loaded = table.world.load().await;
    let own = loaded.metadata.current_schema().as_struct().fields();
    let fields = own.iter().cloned().chain([NestedFieldRef::new(field)]);
    let schema = Schema::builder().with_fields(fields).build().unwrap();
    let added = TableUpdate::AddSchema { schema };
    let current = TableUpdate::SetCurrentSchema { schema_id: -1 };
    table.change(vec![added, current]).await;
}

#[tokio::test]
async fn files_from_before_a_column_are_compacted() {
    let mut table = filled(FormatVersion::V3).await;
    let long = Type::Primitive(PrimitiveType::Long);
    add_column(&table, NestedField::optional(4, "w", long.clone())).await;
    assert_eq!(outcomes(&compact(&table).await), "done 0, done 0");
    table.check().await;
    // What rows have as the default of a column would become null.
    let default = NestedField::optional(5, "d", long).with_initial_default(Literal::long(7));
    add_column(&table, default).await;
    let deletes: Vec<Op> = (20..40).map(delete).collect();
    table.commit(&deletes).await;
    let unfit = "COMPACTION_FILE_UNFIT";
    assert_eq!(
        outcomes(&compact(&table).await),
        format!("{unfit}, {unfit}")
    );
    table.check().await;
}

#[tokio::test]
async fn files_keep_the_partition_spec_of_their_rows() {
    let mut table = filled(FormatVersion::V2).await;
    let loaded = table.world.load().await;
    let old = loaded.metadata.default_partition_spec_id();
    let spec = UnboundPartitionSpec::builder()
        .add_partition_field(1, "id_bucket", Transform::Bucket(2))
        .unwrap()
        .build();
    let added = TableUpdate::AddSpec { spec };
    let default = TableUpdate::SetDefaultSpec { spec_id: -1 };
    table.change(vec![added, default]).await;
    table.commit(&rows(100..110, 1)).await;
    assert_eq!(outcomes(&compact(&table).await), "done 0, done 0");
    table.check().await;
    let (_, live) = table.live().await;
    let of_old = live.data.values().filter(|file| file.layout.spec_id == old);
    assert_eq!((of_old.count(), live.data.len()), (2, 4));
}

#[tokio::test]
async fn a_state_in_summaries_is_still_found() {
    let mut table = filled(FormatVersion::V2).await;
    table.committer = committer_of(table.world.catalog.clone(), &table.world.ident)
        .with_state_location(StateLocation::Summary);
    table.commit(&[put((1, 0, 5))]).await;
    let state = |loaded: LoadedTable| state_of(&loaded.metadata, WID, "main").unwrap();
    let before = state(table.world.load().await);
    assert!(compact(&table).await.done() > 0);
    assert_eq!(state(table.world.load().await), before);
    table.commit(&[put((2, 0, 5))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_ends_with_its_connector() {
    let mut table = filled(FormatVersion::V2).await;
    let cancel = crate::commit::Cancel::default();
    table.committer =
        committer_of(table.world.catalog.clone(), &table.world.ident).with_cancel(cancel.clone());
    let (pace, told, go) = stopping();
    let maintenance = Maintenance {
        pace,
        ..maintenance(&[])
    };
    let stop = async {
        tokio::task::spawn_blocking(move || told.recv().unwrap())
            .await
            .unwrap();
        cancel.cancel();
        drop(go);
    };
    let (report, ()) = tokio::join!(run(&table.committer, &maintenance), stop);
    assert_eq!(outcomes(&report.unwrap()), "MAINTENANCE_CANCELLED");
    assert_eq!(table.world.snapshots().await, 7);
    table.restart();
    table.check().await;
    assert_eq!(outcomes(&compact(&table).await), "done 0, done 0");
}

#[tokio::test]
async fn a_table_with_equality_deletes_is_left_alone() {
    let table = filled(FormatVersion::V2).await;
    let mut foreign = table.foreign_delete(&[]).await;
    foreign.add_equality_delete();
    foreign
        .commit(&table.world.catalog, &table.world.ident)
        .await;
    let report = compact(&table).await;
    assert!(report.skipped.unwrap().contains("equality deletes"));
    assert_eq!(outcomes(&report), "");
}

#[tokio::test]
async fn a_table_whose_rows_are_added_once_is_left_alone() {
    let table = filled(FormatVersion::V2).await;
    let once = maintenance(&[("iceberg.table.db.t.mode", "append-once")]);
    let report = run(&table.committer, &once).await.unwrap();
    assert!(report.skipped.unwrap().contains("added once"));
    assert_eq!(outcomes(&report), "");
}

// Promise: With maintenance on, the process that commits a table merges its small files by itself, and the commits go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_looks_after_its_tables() {
    let mut table = filled(FormatVersion::V2).await;
    let (sink, config) = configs(&[
        ("iceberg.maintenance.enabled", "true"),
        ("iceberg.maintenance.interval-ms", "1000"),
    ]);
    let of_hub = HubConfig {
        wid: WID.into(),
        ..HubConfig::of(&sink)
    };
    let catalog = table.world.catalog.clone();
    let hub = Hub::join(of_hub, &Runtime::shared().unwrap(), catalog);
    let key = TableKey {
        ident: TableIdentKey(table.world.ident.clone()),
        branch: "main".to_owned(),
    };
    let part = hub.table(key, Duration::from_secs(3_600), Some(key_of_it()));
    hub.look_after(&part, &config);
    let ops = [put((1, 1, 10)), delete(2)];
    let segment = table.segment(7, 0, &ops).await;
    part.join(segment.session, 0, 0, Box::new(|_| {}));
    let sight = Sight {
        at: std::time::Instant::now(),
        schema_id: 0,
    };
    part.submit(segment, sight, true);
    let is_done = |loaded: &LoadedTable| {
        let head = loaded.metadata.current_snapshot().unwrap().summary();
        head.additional_properties.contains_key(MAINTENANCE)
    };
    let begun = std::time::Instant::now();
    while !is_done(&table.world.load().await) {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "nobody looks after it"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    table.expect(&ops);
    table.check().await;
    let segment = table.segment(7, 0, &[delete(3)]).await;
    part.submit(segment, sight, true);
    table.expect(&[delete(3)]);
    while !table.offsets_are_committed().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "no commit");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    table.check().await;
}
