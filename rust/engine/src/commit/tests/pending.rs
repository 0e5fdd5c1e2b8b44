//! Rows that the commit finishes: attempts that are lost, owners that come and go, files that are gone.

use frazil_core::commit::validate::RejectReason;

use super::changed::{Changed, delete, lacking, put};
use super::changed_races::{Racing, Turn};
use super::*;

async fn table() -> Changed {
    let mut table = Changed::new("t", FormatVersion::V3).await;
    let ops = [put((1, 0, 10)), put((2, 0, 20)), put((3, 1, 30))];
    table.commit(&ops).await;
    table
}

#[tokio::test]
async fn a_row_takes_its_value_from_the_row_below() {
    let mut table = table().await;
    table.commit(&[lacking(1, 1), lacking(1, 2)]).await;
    assert_eq!(table.model[&1], (1, 2, 10));
    table.commit(&[put((2, 0, 21)), lacking(2, 1)]).await;
    assert_eq!(table.model[&2], (2, 1, 21));
    // Over segments of one commit.
    let first = table.segment(1, 0, &[put((3, 0, 31))]).await;
    let second = table.segment(2, 1, &[lacking(3, 2)]).await;
    let outcomes = table.committer.commit(vec![first, second]).await;
    assert_eq!(letters(&outcomes), "DD");
    table.expect(&[put((3, 0, 31)), lacking(3, 2)]);
    table.check().await;
}

// Promise: a row that lacks values is made on the very snapshot that its commit builds on, whatever another writer did meanwhile
#[tokio::test]
async fn a_row_is_made_anew_on_the_snapshot_that_won() {
    let mut table = table().await;
    let racing = Racing::before(&mut table);
    for turn in [
        Turn::Conflict,
        Turn::UnknownBefore,
        Turn::UnknownAfter,
        Turn::LateBeforeLoad,
        Turn::LateBeforeNext,
    ] {
        racing.next([turn]);
        table.commit(&[lacking(1, 1), lacking(2, 2)]).await;
        assert!(racing.is_over());
    }
    let compacted = table.foreign_compaction().await;
    racing.next([Turn::Foreign(compacted)]);
    table.commit(&[lacking(1, 0), lacking(3, 0)]).await;
    assert!(racing.is_over());
}

#[tokio::test]
async fn another_owner_makes_the_rows_of_a_segment() {
    let mut table = table().await;
    let segment = table.segment(1, 0, &[lacking(1, 2), put((4, 0, 40))]).await;
    table.restart();
    assert_eq!(
        letters(&table.committer.commit(vec![segment.clone()]).await),
        "D"
    );
    table.expect(&[lacking(1, 2), put((4, 0, 40))]);
    table.check().await;
    // Handed over again it is covered.
    table.restart();
    table.committer.commit(vec![segment]).await;
    table.check().await;
}

#[tokio::test]
async fn a_row_that_another_writer_deleted_has_no_value() {
    let mut table = table().await;
    let gone = table.foreign_delete(&[1]).await;
    table.commit_foreign(gone).await;
    let segment = table.segment(1, 0, &[lacking(1, 1), put((2, 0, 22))]).await;
    let outcomes = table.committer.commit(vec![segment]).await;
    let (_, SegmentOutcome::Rejected(reason)) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    let RejectReason::ValueAbsent { records, .. } = reason else {
        panic!("{reason}");
    };
    let offsets: Vec<i64> = records.iter().map(|(_, offset)| *offset).collect();
    assert_eq!(offsets, [3], "{reason}");
    table.check().await;
    table.commit(&[delete(1)]).await;
}

#[tokio::test]
async fn a_pending_file_that_is_gone_rejects_its_segment() {
    let mut table = table().await;
    let segment = table.segment(1, 0, &[lacking(1, 1)]).await;
    let loaded = table.world.load().await;
    let location = loaded
        .metadata
        .location()
        .trim_start_matches("file://")
        .to_owned();
    let data = std::fs::read_dir(format!("{location}/data")).unwrap();
    let paths = data.map(|entry| entry.unwrap().path());
    let pending = paths.filter(|path| path.to_string_lossy().contains("-pending"));
    let gone: Vec<_> = pending.collect();
    assert_eq!(gone.len(), 1);
    std::fs::remove_file(&gone[0]).unwrap();
    let outcomes = table.committer.commit(vec![segment]).await;
    assert_eq!(letters(&outcomes), "R", "{outcomes:?}");
    table.check().await;
}

/// Puts a file of fewer rows in the place of another, of the same length.
fn shorten(path: &str, by: &str) -> Vec<u8> {
    let long = std::fs::read(path).unwrap();
    let short = std::fs::read(by).unwrap();
    let end = short.len() - 8;
    let footer = u32::from_le_bytes(short[end..end + 4].try_into().unwrap()) as usize + 8;
    let (data, footer) = short.split_at(short.len() - footer);
    let mut shortened = data.to_vec();
    // Columns are found by where they begin.
    shortened.resize(long.len() - footer.len(), 0);
    shortened.extend(footer);
    assert_eq!(shortened.len(), long.len());
    std::fs::write(path, shortened).unwrap();
    long
}

// Promise: Where the index of a table names a row that its file does not have, the index is built anew, without a restart.
#[tokio::test]
async fn an_index_that_names_a_row_that_is_not_there_is_built_anew() {
    let mut table = Changed::new("t", FormatVersion::V3).await;
    let many: Vec<_> = (1..2_000).map(|id| put((id, 0, id))).collect();
    table.commit(&many).await;
    table.commit(&[put((5_000, 1, 1))]).await;
    let (_, live) = table.live().await;
    let of_part = |rows| {
        let mut files = live.data.iter();
        let found = files.find(|(_, file)| file.rows == rows);
        found.unwrap().0.trim_start_matches("file://").to_owned()
    };
    let path = of_part(1_999);
    let whole = shorten(&path, &of_part(1));
    let segment = table.segment(1, 0, &[lacking(1_500, 1)]).await;
    let built = table.committer.index_counts().await.built;
    let outcomes = table.committer.commit(vec![segment.clone()]).await;
    assert_eq!(letters(&outcomes), "B", "{outcomes:?}");
    assert!(table.committer.index_counts().await.built > built);
    std::fs::write(&path, whole).unwrap();
    assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
    table.expect(&[lacking(1_500, 1)]);
    table.check().await;
}
