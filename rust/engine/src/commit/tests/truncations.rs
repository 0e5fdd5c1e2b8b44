//! What a truncation of the source's table does to a table, and when it does nothing.

use frazil_core::commit::validate::RejectReason;

use super::changed::{Changed, Op, delete, put, truncate};
use super::*;

/// Commits `ops` of the source partition `partition`.
async fn commit(table: &mut Changed, (session, partition): (u128, i32), ops: &[Op]) {
    let segment = table.segment(session, partition, ops).await;
    assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
    table.expect(ops);
    table.check().await;
}

fn unsure(outcome: &SegmentOutcome) -> Option<(i32, i32)> {
    match outcome {
        SegmentOutcome::Rejected(RejectReason::TruncationUnsure { partition, other }) => {
            Some((partition.partition, other.partition))
        }
        _ => None,
    }
}

// Promise: A truncation removes no row of a table with changes of several partitions: of those of another one nobody knows whether they came before it.
#[tokio::test]
async fn a_table_with_changes_of_several_partitions_is_not_emptied() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        for order in [None, Some(5)] {
            let mut table = Changed::new("t", version).await;
            let at = |op: Op, number: u8| match order {
                Some(_) => op.at(0, number),
                None => op,
            };
            commit(&mut table, (1, 0), &[at(put((1, 0, 1)), 1)]).await;
            commit(&mut table, (2, 1), &[at(put((2, 0, 1)), 9)]).await;
            // The orders are forgotten.
            table.restart();
            let emptied = [at(truncate(), 5), at(put((3, 0, 1)), 6)];
            let segment = table.segment(1, 0, &emptied).await;
            let outcomes = table.committer.commit(vec![segment]).await;
            assert_eq!(unsure(&outcomes[0].1), Some((0, 1)), "{outcomes:?}");
            table.check().await;
            commit(&mut table, (3, 0), &[at(put((3, 0, 1)), 6)]).await;
        }
    }
}

// Promise: A truncation is not applied in one commit with changes of another partition that have no place in its order; these are committed.
#[tokio::test]
async fn changes_of_another_partition_need_a_place_in_the_order() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = Changed::new("t", version).await;
        commit(&mut table, (1, 0), &[put((1, 0, 1)).at(0, 1)]).await;
        // Of another source, and without an order.
        for other in [put((2, 0, 2)).at(1, 9), put((2, 0, 2))] {
            let emptied = table.segment(1, 0, &[truncate().at(0, 5)]).await;
            let others = table.segment(2, 1, std::slice::from_ref(&other)).await;
            let before = table.world.snapshots().await;
            let run = table.committer.commit(vec![emptied, others]);
            let outcomes = run.await;
            assert_eq!(letters(&outcomes), "RD");
            assert_eq!(unsure(&outcomes[0].1), Some((0, 1)), "{outcomes:?}");
            assert_eq!(table.world.snapshots().await, before + 1);
            table.expect(&[other]);
            table.check().await;
            table = Changed::new("t", version).await;
            commit(&mut table, (1, 0), &[put((1, 0, 1)).at(0, 1)]).await;
        }
        // Those that have one stay, or go.
        let one = [truncate().at(0, 5), put((3, 0, 3)).at(0, 7)];
        let two = [put((4, 0, 4)).at(0, 4), put((6, 1, 6)).at(0, 6)];
        let one = table.segment(1, 0, &one).await;
        let two = table.segment(2, 1, &two).await;
        let outcomes = table.committer.commit(vec![one, two]).await;
        assert_eq!(letters(&outcomes), "DD");
        table.model = [(3, (3, 0, 3)), (6, (6, 1, 6))].into();
        table.check().await;
    }
}

// Promise: After a truncation without an order, as where a column orders the rows, keys begin anew: a row with a lower order than one that went is not lost.
#[tokio::test]
async fn after_a_truncation_without_an_order_keys_begin_anew() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = Changed::new("t", version).await;
        let old = [put((1, 0, 7)).at(0, 7), put((2, 0, 7)).at(0, 7)];
        table.commit(&old).await;
        // In the same commit, and in a later one.
        table.commit(&[truncate(), put((1, 0, 1)).at(0, 1)]).await;
        table.commit(&[put((2, 0, 2)).at(0, 2)]).await;
        // From then on they are ordered again, and what stands before the truncation as well.
        let late = [put((2, 1, 1)).at(0, 1)];
        let segment = table.segment(1, 0, &late).await;
        assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
        table.check().await;
        table
            .commit(&[put((1, 1, 3)).at(0, 3), delete(2).at(0, 3)])
            .await;
    }
}
