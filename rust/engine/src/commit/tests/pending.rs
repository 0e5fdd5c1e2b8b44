//! Rows that the commit finishes: attempts that are lost, owners that come and go, files that are gone.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use frazil_core::commit::validate::RejectReason;
use frazil_core::memory::Use;
use iceberg::TableUpdate;
use iceberg::spec::Literal;

use super::changed::{Changed, delete, lacking, put};
use super::changed_index::{with_memory, with_pool};
use super::changed_races::{Racing, Turn};
use super::*;
use crate::index::read_key_columns;

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

// Promise: The rows that a commit has finished are not read and written again when another writer wins, unless it moved or deleted a row that one of them comes from.
#[tokio::test]
async fn rows_are_made_once_for_all_attempts() {
    let mut table = table().await;
    let racing = Racing::before(&mut table);
    let appended = table.foreign_append(&[(9, 0, 9)]).await;
    racing.next([Turn::Conflict, Turn::Foreign(appended), Turn::UnknownBefore]);
    table.expect(&[put((9, 0, 9))]);
    table.commit(&[lacking(1, 1), lacking(2, 1)]).await;
    assert!(racing.is_over());
    assert_eq!(files_with(&table, "-rows").await.len(), 1);
    let compacted = table.foreign_compaction().await;
    racing.next([Turn::Foreign(compacted)]);
    table.commit(&[lacking(1, 0), lacking(3, 0)]).await;
    assert!(racing.is_over());
    assert_eq!(files_with(&table, "-rows").await.len(), 3);
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

/// The files of the table whose names have `part` in them.
async fn files_with(table: &Changed, part: &str) -> Vec<String> {
    let loaded = table.world.load().await;
    let location = loaded.metadata.location().trim_start_matches("file://");
    let (mut folders, mut found) = (vec![format!("{location}/data").into()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir::<std::path::PathBuf>(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains(part) {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found
}

// Promise: A file of rows that lack values that is gone or damaged rejects its segment, whose session writes the rows again; the table goes on.
#[tokio::test]
async fn a_pending_file_that_is_of_no_use_rejects_its_segment() {
    let mut table = table().await;
    for (number, damage) in (10..).zip(["gone", "zeros", "fewer rows", "a data file"]) {
        let ops: Vec<_> = (0..300).map(|part| lacking(1, part)).collect();
        let one = table.segment(2, 1, &[lacking(2, 0)]).await;
        let short = files_with(&table, "-pending").await.pop().unwrap();
        let segment = table.segment(number as u128, number, &ops).await;
        let mut pending = files_with(&table, "-pending").await;
        pending.retain(|path| *path != short);
        assert_eq!(pending.len(), 1);
        let path = pending.pop().unwrap();
        match damage {
            "gone" => std::fs::remove_file(&path).unwrap(),
            "zeros" => {
                let length = std::fs::read(&path).unwrap().len();
                std::fs::write(&path, vec![0; length]).unwrap();
            }
            "fewer rows" => drop(shorten(&path, &short)),
            _ => {
                let (_, live) = table.live().await;
                let data = live.data.keys().next().unwrap();
                drop(shorten(&path, data.trim_start_matches("file://")));
            }
        }
        let outcomes = table.committer.commit(vec![segment, one]).await;
        assert_eq!(letters(&outcomes), "RD", "{damage}: {outcomes:?}");
        let (_, SegmentOutcome::Rejected(RejectReason::KeysUnusable { .. })) = &outcomes[0] else {
            panic!("{damage}: {outcomes:?}");
        };
        table.expect(&[lacking(2, 0)]);
        table.check().await;
        for path in files_with(&table, "-pending").await {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[tokio::test]
async fn a_row_that_is_older_than_a_column_has_its_default() {
    let mut table = table().await;
    let segment = table.segment(1, 0, &[lacking(1, 1)]).await;
    let schema = table.world.load().await.metadata.current_schema().clone();
    let status = NestedField::optional(4, "status", Type::Primitive(PrimitiveType::String))
        .with_initial_default(Literal::string("open"));
    let fields = schema.as_struct().fields().iter().cloned();
    let schema = Schema::builder().with_fields(fields.chain([Arc::new(status)]));
    let schema = schema.build().unwrap();
    table
        .change(vec![
            TableUpdate::AddSchema { schema },
            TableUpdate::SetCurrentSchema { schema_id: -1 },
        ])
        .await;
    assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
    table.expect(&[lacking(1, 1)]);
    table.check().await;
    let (loaded, live) = table.live().await;
    let mut found = Vec::new();
    for (path, file) in &live.data {
        let each = |_: u64, columns: &[ArrayRef]| {
            let texts = columns[0].as_string::<i32>().iter();
            found.extend(texts.map(|text| text.map(str::to_owned)));
            Ok(())
        };
        // Files from before have no such column.
        let read = read_key_columns(&loaded.storage, path, file.bytes, &[4], each).await;
        assert!(read.is_ok() || read.is_err_and(|error| error.code() == "INDEX_KEY_MISSING"));
    }
    assert_eq!(found, [Some("open".to_owned())]);
}

// Promise: However many rows of a commit lack values, they are made a part at a time, and what is held of them is accounted.
#[tokio::test]
async fn rows_are_made_a_part_at_a_time() {
    const ROWS: i64 = 3_000;
    let mut table = Changed::new("t", FormatVersion::V3).await;
    let memory = with_memory(&mut table);
    for first in [0, ROWS / 2] {
        let ids = first..first + ROWS / 2;
        let ops: Vec<_> = ids.map(|id| put((id, 0, 7 * id))).collect();
        table.commit(&ops).await;
    }
    // In another order than the rows are in, and some of them more than once.
    let ids = (0..ROWS).map(|number| (number * 1_001) % ROWS);
    let mut ops: Vec<_> = ids.map(|id| lacking(id, 1)).collect();
    ops.extend((0..ROWS / 10).map(|id| lacking(id * 7, 1)));
    ops.extend((0..40).map(|_| lacking(5, 1)));
    let segment = table.segment(1, 0, &ops).await;
    let before = memory.usage();
    assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
    table.expect(&ops);
    table.check().await;
    let after = memory.usage();
    let more = after.peak - before.held;
    assert!(more < 2_000_000, "{more} bytes");
    assert!(!after.uses.contains("commits="), "{after:?}");
}

#[tokio::test]
async fn nothing_is_written_where_the_index_has_no_room() {
    let mut table = table().await;
    let (memory, _account) = with_pool(&mut table);
    let mut ops: Vec<_> = (100..3_000).map(|id| put((id, 0, 1))).collect();
    ops.push(lacking(1, 1));
    let segment = table.segment(1, 0, &ops).await;
    let others = memory.draw(Use::Rewrites, memory.room() - 40_000);
    let outcomes = table.committer.commit(vec![segment.clone()]).await;
    let [(0, SegmentOutcome::Blocked(error))] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.code(), "INDEX_WAITS_FOR_MEMORY");
    assert_eq!(files_with(&table, "-rows").await, [""; 0]);
    drop(others);
    assert_eq!(letters(&table.committer.commit(vec![segment]).await), "D");
    table.expect(&ops);
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
