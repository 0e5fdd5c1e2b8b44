use super::*;

/// Four processes commit twenty segments each, all with the same writer id and to the same table,
/// as four workers with local coordination do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_committers_commit_every_segment_once() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let world = Arc::new(World::new(version).await);
        let mut tasks = Vec::new();
        for process in 0..4 {
            let world = world.clone();
            tasks.push(tokio::spawn(async move {
                let committer = world.committer(WID);
                for round in 0..10 {
                    let mut batch = Vec::new();
                    for seq in [2 * round, 2 * round + 1] {
                        let start = seq as i64 * 3;
                        let ranges = [(process, start, start + 3)];
                        batch.push(world.segment(process as u128 + 1, seq, &ranges).await);
                    }
                    assert_eq!(letters(&committer.commit(batch).await), "DD");
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(world.snapshots().await, 40);
        world
            .assert_exactly_once("main", &[(0, 60), (1, 60), (2, 60), (3, 60)])
            .await;
        if version == FormatVersion::V3 {
            assert_row_ids(&world, 240).await;
        }
    }
}

/// A zombie and its successor hold the same offsets; each resolves by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_believers_of_one_partition_never_both_commit() {
    for _ in 0..5 {
        let world = Arc::new(World::new(FormatVersion::V2).await);
        let zombie = world.segment(1, 0, &[(0, 0, 10)]).await;
        let successor = world.segment(2, 0, &[(0, 0, 7)]).await;
        let one = {
            let world = world.clone();
            tokio::spawn(async move { world.committer(WID).commit(vec![zombie]).await })
        };
        let two = {
            let world = world.clone();
            tokio::spawn(async move { world.committer(WID).commit(vec![successor]).await })
        };
        let both = letters(&one.await.unwrap()) + &letters(&two.await.unwrap());
        // Ten offsets cover seven; seven do not cover ten.
        assert!(["DC", "RD"].contains(&both.as_str()), "{both}");
        let end = if both == "DC" { 10 } else { 7 };
        world.assert_exactly_once("main", &[(0, end)]).await;
        assert_eq!(world.snapshots().await, 1);
    }
}

/// Checks that the row ids of a v3 table were given out without gap or overlap.
pub(super) async fn assert_row_ids(world: &World, rows: u64) {
    let loaded = world.load().await;
    assert_eq!(loaded.metadata.next_row_id(), rows);
    let mut spans: Vec<(u64, u64)> = world
        .manifests("main")
        .await
        .iter()
        .map(|manifest| {
            let first = manifest
                .first_row_id
                .expect("a data manifest has a first row id");
            (first, first + manifest.added_rows_count.unwrap())
        })
        .collect();
    spans.sort_unstable();
    let mut next = 0;
    for (first, end) in spans {
        assert_eq!(first, next);
        next = end;
    }
    assert_eq!(next, rows);
}
