//! Rows by their places, of a file in which a few are as large as all others together.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::properties::WriterProperties;

use super::*;

const SMALL: u32 = 2_000;
const LARGE: u32 = 30;
const LARGE_BYTES: usize = 64 << 10;
/// Rows after which a page may end.
const PAGE_ROWS: usize = 4;

fn text(row: u32) -> String {
    let length = if row < SMALL { 100 } else { LARGE_BYTES };
    let mut text = format!("{row:08} ");
    let mut seed = u64::from(row) + 1;
    while text.len() < length {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push_str(&format!("{seed:016x}"));
    }
    text.truncate(length);
    text
}

async fn file(dir: &tempfile::TempDir) -> RowFile {
    let field = |id: i32, name: &str, kind| {
        let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]);
        Field::new(name, kind, false).with_metadata(id)
    };
    let schema = Arc::new(Schema::new(vec![
        field(1, "id", DataType::Int64),
        field(2, "note", DataType::Utf8),
    ]));
    let rows = || 0..SMALL + LARGE;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows().map(i64::from))),
        Arc::new(StringArray::from_iter_values(rows().map(text))),
    ];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let properties = WriterProperties::builder()
        .set_data_page_size_limit(16 << 10)
        .set_write_batch_size(PAGE_ROWS)
        .set_dictionary_enabled(false)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let location = format!("file://{}", dir.path().display());
    let storage = TableStorage::open(&location, &Default::default(), None).unwrap();
    let (location, length) = (format!("{location}/rows.parquet"), bytes.len() as u64);
    storage.put(&location, bytes.into()).await.unwrap();
    RowFile::open(&storage, &location, length).await.unwrap()
}

#[tokio::test]
async fn rows_are_read_by_their_places() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir).await;
    assert_eq!(file.rows(), u64::from(SMALL + LARGE));
    let wanted = [0, 1, 700, 1_999, 2_000, SMALL + LARGE - 1];
    let fit = file.fit(&wanted, |_| true, usize::MAX);
    assert_eq!(fit.rows, wanted.len());
    for of in [None, Some(1), Some(2)] {
        let is_wanted = |id: i32| of.is_none_or(|of| of == id);
        let mut rows = file.read(&wanted, is_wanted, fit).unwrap();
        let mut found = 0;
        while let Some(batch) = rows.next().await.unwrap() {
            let count = batch.num_rows();
            let expected = wanted.iter().skip(found).take(count);
            if let Some(ids) = batch.column_by_name("id") {
                let ids = ids.as_primitive::<Int64Type>().values();
                let expected: Vec<i64> = expected.clone().map(|row| i64::from(*row)).collect();
                assert_eq!(ids, &expected[..]);
            }
            if let Some(texts) = batch.column_by_name("note") {
                let texts = texts.as_string::<i32>().iter().flatten();
                assert!(texts.eq(expected.map(|row| text(*row))));
            }
            assert_eq!(batch.num_columns(), if of.is_none() { 2 } else { 1 });
            found += count;
        }
        assert_eq!(found, wanted.len());
    }
    // Of columns that the file does not have, only the number of rows is known.
    let mut rows = file.read(&wanted, |id| id == 3, fit).unwrap();
    let mut found = 0;
    while let Some(batch) = rows.next().await.unwrap() {
        found += batch.num_rows();
    }
    assert_eq!(found, wanted.len());
    let error = file.read(&[SMALL + LARGE], |_| true, fit).err().unwrap();
    assert_eq!(error.code(), ROW_MISSING);
}

// Promise: How many rows are read at once goes by how large they are, not by how large those before were.
#[tokio::test]
async fn a_read_is_bounded_by_bytes_whatever_the_rows_before_were() {
    const BYTES_MAX: usize = 256 << 10;
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir).await;
    let all: Vec<u32> = (0..SMALL + LARGE).collect();
    let (mut rest, mut reads) = (&all[..], 0);
    while !rest.is_empty() {
        let fit = file.fit(rest, |_| true, BYTES_MAX);
        let mut rows = file.read(&rest[..fit.rows], |_| true, fit).unwrap();
        let mut bytes = 0;
        while let Some(batch) = rows.next().await.unwrap() {
            let notes = batch.column(1).as_string::<i32>().iter().flatten();
            bytes += notes.map(str::len).sum::<usize>();
        }
        // A page may have small rows and large ones.
        let most = BYTES_MAX + PAGE_ROWS * LARGE_BYTES;
        assert!(bytes <= most, "{bytes} bytes of {fit:?}");
        rest = &rest[fit.rows..];
        reads += 1;
    }
    // And not by many more requests than that takes.
    let least = (SMALL as usize * 100 + LARGE as usize * LARGE_BYTES) / BYTES_MAX;
    assert!(reads <= 3 * least, "{reads} reads, {least} at least");
    // The pages of rows that are far from one another count whole.
    let far: Vec<u32> = all.iter().copied().step_by(150).collect();
    let fit = file.fit(&far, |id| id == 2, 64 << 10);
    assert!(fit.rows < 8, "{fit:?}");
}
