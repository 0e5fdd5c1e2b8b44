use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use bytes::Bytes;
use frazil_core::commit::state::property_key;
use frazil_core::commit::validate::RejectReason;
use futures::TryStreamExt;
use iceberg::spec::Operation;
use iceberg::table::Table;
use parquet::arrow::ArrowWriter;

use super::races::assert_row_ids;
use super::*;
use crate::catalog::CommitOutcome;
use crate::catalog::TableCommit;

fn summary(loaded: &LoadedTable, branch: &str, key: &str) -> Option<String> {
    let head = loaded.metadata.snapshot_for_ref(branch).unwrap();
    head.summary().additional_properties.get(key).cloned()
}

#[tokio::test]
async fn a_commit_holds_snapshot_state_and_summary() {
    let world = World::new(FormatVersion::V2).await;
    let batch = vec![
        world.segment(1, 0, &[(0, 0, 10), (1, 0, 3)]).await,
        world.segment(1, 1, &[(0, 10, 12)]).await,
    ];
    let outcomes = world.committer(WID).commit(batch).await;
    let loaded = world.load().await;
    let head = loaded.metadata.current_snapshot().unwrap();
    for (_, outcome) in &outcomes {
        assert!(
            matches!(outcome, SegmentOutcome::Durable { snapshot_id } if *snapshot_id == head.snapshot_id())
        );
    }
    assert_eq!(head.summary().operation, Operation::Append);
    for (key, value) in [
        ("added-data-files", "3"),
        ("added-records", "15"),
        ("total-records", "15"),
        ("added-files-size", "30"),
        ("changed-partition-count", "1"),
        ("frazil.wid", WID),
        ("frazil.segments", "2"),
        ("frazil.offsets", "n:t:0=0-12,1=0-3"),
        ("engine-name", "frazil"),
    ] {
        assert_eq!(
            summary(&loaded, "main", key).as_deref(),
            Some(value),
            "{key}"
        );
    }
    let (_, state) = world.committer(WID).load().await.unwrap();
    let state = state.unwrap();
    assert_eq!(
        (state.snapshot_id, state.hub_id.as_str()),
        (head.snapshot_id(), "host-1")
    );
    assert_eq!(
        summary(&loaded, "main", "frazil.commit-id"),
        Some(state.commit_id.to_string())
    );
    // The property is readable by people and other tools.
    let text = &loaded.metadata.properties()[&property_key(WID, "main")];
    assert!(text.contains(r#""t":{"n:t":{"n":"t","o":[12,3]"#), "{text}");
}

#[tokio::test]
async fn manifests_name_their_session_and_follow_write_metadata_path() {
    let world = World::new(FormatVersion::V3).await;
    let first = world.segment(1, 4, &[(0, 0, 10)]).await;
    let path = &first.manifests[0].manifest.manifest_path;
    let session = Uuid::from_u128(1);
    assert!(
        path.ends_with(&format!("/metadata/frazil-{WID}-{session}-4-0-m.avro")),
        "{path}"
    );
    let loaded = world.load().await;
    let bytes = loaded.storage.get(path).await.unwrap();
    assert_eq!(
        bytes.len() as i64,
        first.manifests[0].manifest.manifest_length
    );
    let text = String::from_utf8_lossy(&bytes[..400]).into_owned();
    for part in [
        "frazil.table-uuid",
        "frazil.wid",
        WID,
        "frazil.session",
        "frazil.seq",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let elsewhere = format!("{}/elsewhere/", loaded.metadata.location());
    let updates = vec![iceberg::TableUpdate::SetProperties {
        updates: [("write.metadata.path".to_string(), elsewhere.clone())].into(),
    }];
    let commit = TableCommit {
        requirements: vec![],
        updates,
        idempotency_key: Uuid::now_v7(),
    };
    let set = world.catalog.commit(&loaded, commit).await;
    assert!(matches!(set, CommitOutcome::Committed(_)), "{set:?}");
    let second = world.segment(1, 5, &[(0, 10, 20)]).await;
    let path = &second.manifests[0].manifest.manifest_path;
    assert!(path.starts_with(&format!("{elsewhere}frazil-")), "{path}");
    assert_eq!(
        letters(&world.committer(WID).commit(vec![first, second]).await),
        "DD"
    );
    world.assert_exactly_once("main", &[(0, 20)]).await;
}

#[tokio::test]
async fn foreign_commits_and_the_state_survive_each_other() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let world = World::new(version).await;
        let (own, other) = (world.committer(WID), world.committer("other"));
        let mut rows = 0;
        for round in 0..4i64 {
            let ours = world
                .segment(1, round as u64, &[(0, round * 5, round * 5 + 5)])
                .await;
            assert_eq!(letters(&own.commit(vec![ours]).await), "D");
            let theirs = world
                .segment(2, round as u64, &[(8, round * 2, round * 2 + 2)])
                .await;
            assert_eq!(letters(&other.commit(vec![theirs]).await), "D");
            rows += 7;
        }
        assert_eq!(world.offsets("main").await.len() as u64, rows);
        let (loaded, state) = own.load().await.unwrap();
        assert_eq!(state.unwrap().bound(&TopicPartition::new("t", 0)), Some(20));
        assert_eq!(
            summary(&loaded, "main", "total-records"),
            Some(rows.to_string())
        );
        if version == FormatVersion::V3 {
            assert_row_ids(&world, rows).await;
        }
    }
}

#[tokio::test]
async fn a_branch_is_begun_at_the_main_branch_and_leaves_it_alone() {
    let world = World::new(FormatVersion::V2).await;
    let first = world.segment(1, 0, &[(0, 0, 10)]).await;
    assert_eq!(
        letters(&world.committer(WID).commit(vec![first]).await),
        "D"
    );
    let mut committer = world.committer(WID);
    committer.identity.branch = "audit".into();
    let mut covered = world.segment(2, 0, &[(0, 0, 10)]).await;
    let mut next = world.segment(3, 0, &[(0, 10, 15)]).await;
    covered.branch = "audit".into();
    next.branch = "audit".into();
    // What the branch inherits with the main branch's rows, it does not take again.
    assert_eq!(letters(&committer.commit(vec![covered, next]).await), "CD");
    world.assert_exactly_once("audit", &[(0, 15)]).await;
    world.assert_exactly_once("main", &[(0, 10)]).await;
    let stray = world.segment(4, 0, &[(0, 15, 16)]).await;
    assert_eq!(letters(&committer.commit(vec![stray]).await), "B");
}

#[tokio::test]
async fn rows_and_deletes_are_one_snapshot() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let world = World::new(version).await;
        let deletes = file_of("del-0", 2, DataContentType::PositionDeletes);
        let manifests = vec![vec![file("0_0_10", 10)], vec![deletes]];
        let segment = world.segment_of(1, 0, &[(0, 0, 10)], manifests).await;
        assert_eq!(
            letters(&world.committer(WID).commit(vec![segment]).await),
            "D"
        );
        let loaded = world.load().await;
        let head = loaded.metadata.current_snapshot().unwrap();
        assert_eq!(head.summary().operation, Operation::Overwrite);
        let count = |key| summary(&loaded, "main", key);
        assert_eq!(count("added-position-deletes"), Some("2".into()));
        assert_eq!(count("total-delete-files"), Some("1".into()));
        let lists = world.manifests("main").await;
        let firsts: Vec<Option<u64>> = lists.iter().map(|m| m.first_row_id).collect();
        let first = (version == FormatVersion::V3).then_some(0);
        assert_eq!(firsts, [first, None]);
        let io = loaded.storage.file_io();
        for manifest in &lists {
            for entry in manifest.load_manifest(&io).await.unwrap().entries() {
                assert_eq!(entry.snapshot_id(), Some(head.snapshot_id()));
                assert_eq!(entry.sequence_number(), Some(head.sequence_number()));
            }
        }
    }
}

#[tokio::test]
async fn each_segment_with_equality_deletes_is_a_snapshot_of_its_own() {
    let world = World::new(FormatVersion::V2).await;
    let mut batch = Vec::new();
    for seq in 0..3i64 {
        let mut manifests = vec![vec![file(&format!("0_{seq}_{}", seq + 1), 1)]];
        if seq != 1 {
            let name = format!("eq-{seq}");
            manifests.push(vec![file_of(&name, 1, DataContentType::EqualityDeletes)]);
        }
        let ranges = [(0, seq, seq + 1)];
        batch.push(world.segment_of(1, seq as u64, &ranges, manifests).await);
    }
    assert_eq!(letters(&world.committer(WID).commit(batch).await), "DDD");
    assert_eq!(world.snapshots().await, 3);
    world.assert_exactly_once("main", &[(0, 3)]).await;
}

#[tokio::test]
async fn a_manifest_that_is_gone_or_cut_kills_its_session_only() {
    let world = World::new(FormatVersion::V2).await;
    let gone = world.segment(1, 0, &[(0, 0, 10)]).await;
    let after = world.segment(1, 1, &[(0, 10, 20)]).await;
    let cut = world.segment(2, 0, &[(1, 0, 10)]).await;
    let good = world.segment(3, 0, &[(2, 0, 10)]).await;
    let storage = world.load().await.storage;
    let path = |segment: &Segment| segment.manifests[0].manifest.manifest_path.clone();
    storage.delete(&path(&gone)).await.unwrap();
    let whole = storage.get(&path(&cut)).await.unwrap();
    storage.put(&path(&cut), whole.slice(..100)).await.unwrap();
    let outcomes = world
        .committer(WID)
        .commit(vec![gone, after, cut, good])
        .await;
    assert_eq!(letters(&outcomes), "RRRD");
    assert!(matches!(
        &outcomes[0].1,
        SegmentOutcome::Rejected(RejectReason::ManifestChanged { .. })
    ));
    assert!(matches!(
        &outcomes[1].1,
        SegmentOutcome::Rejected(RejectReason::SessionRejected)
    ));
    world.assert_exactly_once("main", &[(2, 10)]).await;
}

#[tokio::test]
async fn overlapping_segments_of_one_call_are_settled_one_after_the_other() {
    let world = World::new(FormatVersion::V2).await;
    let batch = vec![
        world.segment(1, 1, &[(0, 10, 20)]).await,
        world.segment(2, 0, &[(0, 0, 15)]).await,
        world.segment(1, 0, &[(0, 0, 10)]).await,
        world.segment(3, 0, &[(0, 0, 20)]).await,
        world.segment(2, 1, &[(0, 15, 30)]).await,
    ];
    let outcomes = world.committer(WID).commit(batch).await;
    // Session 1 goes first; 2 overlaps it and is dead; 3 has nothing new.
    assert_eq!(letters(&outcomes), "DCDCR");
    world.assert_exactly_once("main", &[(0, 20)]).await;
}

#[tokio::test]
async fn a_table_that_was_replaced_rejects_the_old_files() {
    let world = World::new(FormatVersion::V2).await;
    let old = world.segment(1, 0, &[(0, 0, 10)]).await;
    world.catalog.drop_table(&world.ident).await.unwrap();
    let gone = world.committer(WID).commit(vec![old.clone()]).await;
    let [(0, SegmentOutcome::Blocked(error))] = &gone[..] else {
        panic!("{gone:?}");
    };
    assert_eq!(error.code(), "TABLE_NOT_FOUND");
    let table = create_table(FormatVersion::V2);
    world
        .catalog
        .create_table(&world.ident, table)
        .await
        .unwrap();
    let outcomes = world.committer(WID).commit(vec![old]).await;
    assert!(matches!(
        &outcomes[0].1,
        SegmentOutcome::Rejected(RejectReason::TableReplaced { .. })
    ));
}

#[tokio::test]
async fn a_session_from_before_a_reset_is_fenced() {
    let world = World::new(FormatVersion::V2).await;
    let mut new = world.segment(1, 0, &[(0, 0, 10)]).await;
    new.epoch = 2;
    let old = world.segment(2, 0, &[(1, 0, 10)]).await;
    let outcomes = world.committer(WID).commit(vec![new, old]).await;
    assert_eq!(letters(&outcomes), "DF");
}

#[tokio::test]
async fn real_rows_are_read_back() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let world = World::new(version).await;
        let loaded = world.load().await;
        let id = Field::new("id", DataType::Int64, true)
            .with_metadata([("PARQUET:field_id".to_string(), "1".to_string())].into());
        let schema = Arc::new(ArrowSchema::new(vec![id]));
        let column = Arc::new(Int64Array::from_iter_values(0..1_000));
        let batch = RecordBatch::try_new(schema.clone(), vec![column]).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, None).unwrap();
        writer.write(&batch).unwrap();
        let bytes = writer.into_inner().unwrap();
        let path = format!("{}/data/0_0_1000.parquet", loaded.metadata.location());
        let file = DataFileBuilder::default()
            .content(DataContentType::Data)
            .file_path(path.clone())
            .file_format(DataFileFormat::Parquet)
            .record_count(1_000)
            .file_size_in_bytes(bytes.len() as u64)
            .build()
            .unwrap();
        loaded.storage.put(&path, Bytes::from(bytes)).await.unwrap();
        let segment = world
            .segment_of(1, 0, &[(0, 0, 1_000)], vec![vec![file]])
            .await;
        assert_eq!(
            letters(&world.committer(WID).commit(vec![segment]).await),
            "D"
        );
        let loaded = world.load().await;
        let table = Table::builder()
            .identifier(loaded.ident.clone())
            .metadata(loaded.metadata.clone())
            .file_io(loaded.storage.file_io())
            .runtime(iceberg::Runtime::current())
            .build()
            .unwrap();
        let scan = table.scan().build().unwrap();
        let read: Vec<RecordBatch> = scan.to_arrow().await.unwrap().try_collect().await.unwrap();
        let mut sum = 0;
        for batch in &read {
            let ids = batch
                .column(0)
                .as_any()
                .downcast_ref::<Int64Array>()
                .unwrap();
            sum += ids.values().iter().sum::<i64>();
        }
        assert_eq!(sum, 499_500);
    }
}

#[tokio::test]
async fn a_v1_table_is_refused() {
    let world = World::new(FormatVersion::V2).await;
    let segment = world.segment(1, 0, &[(0, 0, 10)]).await;
    world.catalog.drop_table(&world.ident).await.unwrap();
    let table = create_table(FormatVersion::V1);
    let made = world.catalog.create_table(&world.ident, table).await;
    made.unwrap();
    let outcomes = world.committer(WID).commit(vec![segment]).await;
    let [(0, SegmentOutcome::Blocked(error))] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.code(), "TABLE_FORMAT_V1");
    assert_eq!(world.snapshots().await, 0);
}
