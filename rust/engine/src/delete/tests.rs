//! Delete files as they are written, and files that are none.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use bytes::Bytes;
use iceberg::metadata_columns::{
    RESERVED_FIELD_ID_DELETE_FILE_PATH as PATH, RESERVED_FIELD_ID_DELETE_FILE_POS as POS,
};
use iceberg::spec::{DataContentType, Datum, Literal};
use parquet::arrow::ArrowWriter;
use parquet::file::reader::{FileReader, SerializedFileReader};
use uuid::Uuid;

use super::*;
use crate::commit::EntryKey;

fn storage() -> (TableStorage, String) {
    let location = format!("memory://delete-{}/t", Uuid::now_v7());
    let storage = TableStorage::open(&location, &Default::default(), None).unwrap();
    (storage, location)
}

fn deletes(name: &str, rows: &[u64]) -> FileDeletes {
    FileDeletes {
        data_file: format!("memory://b/{name}.parquet"),
        spec_id: 0,
        partition: Struct::from_iter([Some(Literal::int(7))]),
        vector: rows.iter().copied().collect(),
    }
}

// Case: 23
#[tokio::test]
async fn all_vectors_of_a_commit_are_in_one_file() {
    let (storage, location) = storage();
    let all = [
        deletes("a", &[1, 2, 9]),
        deletes("b", &[0]),
        deletes("c", &[70_000]),
    ];
    let prefix = format!("{location}/data/x");
    let entries = write_deletes(&storage, FormatVersion::V3, &prefix, &all)
        .await
        .unwrap();
    let puffin = format!("{prefix}-deletes.puffin");
    let length = storage.length(&puffin).await.unwrap();
    for (entry, one) in entries.iter().zip(&all) {
        assert_eq!(entry.file_path(), puffin);
        assert_eq!(entry.file_size_in_bytes(), length);
        assert_eq!(entry.content_type(), DataContentType::PositionDeletes);
        assert_eq!(entry.file_format(), DataFileFormat::Puffin);
        assert_eq!(entry.referenced_data_file().as_ref(), Some(&one.data_file));
        assert_eq!(entry.record_count(), one.vector.len());
        assert_eq!(entry.partition(), &one.partition);
        assert_eq!((entry.sort_order_id(), entry.first_row_id()), (None, None));
        let read = load_vector(&storage, entry, 70_001).await.unwrap();
        assert_eq!(read, one.vector);
    }
    let error = load_vector(&storage, &entries[2], 70_000)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "DELETION_VECTOR_CORRUPT");
    let context: BTreeSet<&str> = error.context().iter().map(|(name, _)| *name).collect();
    assert!(
        context.is_superset(&["file", "offset", "byte"].into()),
        "{error:?}"
    );
    let mut bytes = storage.get(&puffin).await.unwrap().to_vec();
    bytes[entries[1].content_offset().unwrap() as usize + 9] ^= 1;
    storage.put(&puffin, Bytes::from(bytes)).await.unwrap();
    let error = load_vector(&storage, &entries[1], 10).await.unwrap_err();
    assert_eq!(error.code(), "DELETION_VECTOR_CORRUPT");
    load_vector(&storage, &entries[0], 10).await.unwrap();
    let positions = deletes("a", &[1]).entry(&puffin, DataFileFormat::Puffin, 9);
    let nowhere = load_vector(&storage, &described(&positions).unwrap(), 10).await;
    assert_eq!(nowhere.unwrap_err().code(), "DELETE_FILE_UNUSABLE");
}

// Promise: A position delete file is about one data file, and says so: both bounds of its path are that path, its rows are in order, and its columns have the field ids of Iceberg's specification.
#[tokio::test]
async fn a_position_delete_file_is_about_one_data_file() {
    let (storage, location) = storage();
    let long = "ä".repeat(100);
    let rows: Vec<u64> = (0..20_000).map(|row| row * 3).collect();
    let one = deletes(&long, &rows);
    let prefix = format!("{location}/data/x");
    let entries = write_deletes(
        &storage,
        FormatVersion::V2,
        &prefix,
        std::slice::from_ref(&one),
    );
    let entries = entries.await.unwrap();
    let entry = &entries[0];
    let path = Datum::string(&one.data_file);
    for bounds in [entry.lower_bounds(), entry.upper_bounds()] {
        assert_eq!(bounds[&PATH], path);
    }
    assert_eq!(entry.lower_bounds()[&POS], Datum::long(0));
    assert_eq!(entry.upper_bounds()[&POS], Datum::long(59_997));
    assert_eq!(entry.record_count(), 20_000);
    assert_eq!(entry.content_type(), DataContentType::PositionDeletes);
    assert_eq!(entry.referenced_data_file().as_ref(), Some(&one.data_file));
    let bytes = storage.get(entry.file_path()).await.unwrap();
    assert_eq!(entry.file_size_in_bytes(), bytes.len() as u64);
    assert!(bytes.len() < 300_000, "a path is not stored for each row");
    let reader = SerializedFileReader::new(bytes).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let described: Vec<_> = columns
        .iter()
        .map(|column| {
            let info = column.self_type().get_basic_info();
            (
                column.name().to_owned(),
                info.id(),
                column.self_type().is_optional(),
            )
        })
        .collect();
    let wanted = [("file_path", PATH), ("pos", POS)];
    let wanted = wanted.map(|(name, id)| (name.to_owned(), id, false));
    assert_eq!(described, wanted);
    let found = load_positions(&storage, entry, |_| true).await.unwrap();
    assert_eq!(found, [(one.data_file.clone(), one.vector.clone())].into());
    let none = load_positions(&storage, entry, |_| false).await.unwrap();
    assert!(none.is_empty());
    let empty = deletes("e", &[]);
    let refused = write_positions(&storage, &prefix, &empty)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), "INTERNAL");
}

/// Writes a position delete file as another engine may.
async fn foreign(
    storage: &TableStorage,
    path: &str,
    columns: [&str; 2],
    rows: &[(&str, i64)],
) -> DataFile {
    let paths: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0)));
    let positions: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
    let batch = RecordBatch::try_from_iter([(columns[0], paths), (columns[1], positions)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let bytes = writer.into_inner().unwrap();
    let length = bytes.len() as u64;
    storage.put(path, Bytes::from(bytes)).await.unwrap();
    let mut entry = deletes("a", &[]).entry(path, DataFileFormat::Parquet, length);
    entry
        .record_count(rows.len() as u64)
        .referenced_data_file(None);
    described(&entry).unwrap()
}

#[tokio::test]
async fn a_delete_file_that_is_none_is_refused() {
    let (storage, location) = storage();
    let named = ["file_path", "pos"];
    let path = format!("{location}/p.parquet");
    let code = |columns: [&'static str; 2], rows: &'static [(&'static str, i64)], count: u64| {
        let (storage, path) = (&storage, &path);
        async move {
            let entry = foreign(storage, path, columns, rows).await;
            let mut changed =
                deletes("a", &[]).entry(path, DataFileFormat::Parquet, entry.file_size_in_bytes());
            changed.record_count(count);
            let entry = described(&changed).unwrap();
            load_positions(storage, &entry, |_| true)
                .await
                .unwrap_err()
                .code()
        }
    };
    assert_eq!(
        code(["path", "pos"], &[("a", 1)], 1).await,
        "DELETE_FILE_UNUSABLE"
    );
    assert_eq!(code(named, &[("a", -1)], 1).await, "DELETE_FILE_UNUSABLE");
    assert_eq!(code(named, &[("a", 1)], 2).await, "DELETE_FILE_UNUSABLE");
    let entry = foreign(&storage, &path, named, &[("a", 1)]).await;
    storage
        .put(&path, Bytes::from_static(b"PAR1 it is not"))
        .await
        .unwrap();
    let error = load_positions(&storage, &entry, |_| true)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "DELETE_FILE_UNUSABLE");
}

fn data(name: &str, rows: u64) -> DataFile {
    let mut file = DataFileBuilder::default();
    file.content(DataContentType::Data)
        .file_path(format!("memory://b/{name}.parquet"))
        .file_format(DataFileFormat::Parquet)
        .partition(deletes("a", &[]).partition)
        .record_count(rows)
        .file_size_in_bytes(1);
    file.build().unwrap()
}

// Promise: Position deletes of another writer count for data files from before the column of their partition was promoted.
// Case: 27
#[tokio::test]
async fn deletes_count_for_files_of_before_a_promotion() {
    let (storage, location) = storage();
    let path = format!("{location}/later.parquet");
    let rows = [("memory://b/a.parquet", 1)];
    let entry = foreign(&storage, &path, ["file_path", "pos"], &rows).await;
    let cases = [
        (Literal::int(7), Literal::long(7), true),
        (Literal::long(7), Literal::int(7), true),
        (Literal::int(7), Literal::long(8), false),
        (
            Literal::float(0.1),
            Literal::double(f64::from(0.1f32)),
            true,
        ),
        (Literal::float(0.1), Literal::double(0.1), false),
        (Literal::int(7), Literal::string("7"), false),
        (Literal::long(7), Literal::long(7), true),
    ];
    for (of_data, of_deletes, applies) in cases {
        let said = format!("{of_data:?} {of_deletes:?}");
        let with = |file: &DataFile, value: Literal| {
            let mut changed = DataFileBuilder::default();
            changed
                .content(file.content_type())
                .file_path(file.file_path().to_owned())
                .file_format(file.file_format())
                .partition(Struct::from_iter([Some(value)]))
                .record_count(file.record_count())
                .file_size_in_bytes(file.file_size_in_bytes());
            changed.build().unwrap()
        };
        let all = live(&[
            (with(&data("a", 10), of_data), 0, 5),
            (with(&entry, of_deletes), 0, 6),
        ]);
        let paths = [Arc::from("memory://b/a.parquet")].into();
        let known = all.deletes_of(&storage, &paths, |_| None).await.unwrap();
        assert_eq!(known.len(), usize::from(applies), "{said}");
    }
}

fn live(files: &[(DataFile, i32, i64)]) -> LiveFiles {
    let mut live = LiveFiles::default();
    live.follow(&[], vec![Entries::of("m", files)]).unwrap();
    live
}

// Promise: Position deletes of other writers are kept: a file of several data files stays, one of a single data file goes with its new delete file, and one that is older than a data file does not touch it.
#[tokio::test]
async fn deletes_of_others_are_folded() {
    let (storage, location) = storage();
    let named = ["file_path", "pos"];
    let (a, b) = ("memory://b/a.parquet", "memory://b/b.parquet");
    let mut listed = vec![(data("a", 10), 0, 5), (data("b", 10), 0, 5)];
    let files = [
        ("both", vec![(a, 1), (b, 2)], 6, 0),
        ("alone", vec![(a, 3)], 5, 0),
        ("older", vec![(a, 4), (b, 4)], 4, 0),
        ("elsewhere", vec![(a, 5)], 9, 1),
    ];
    for (name, rows, sequence, spec_id) in files {
        let path = format!("{location}/{name}.parquet");
        let file = foreign(&storage, &path, named, &rows).await;
        listed.push((file, spec_id, sequence));
    }
    let paths = |paths: &[&str]| -> BTreeSet<Arc<str>> {
        paths.iter().map(|path| Arc::from(*path)).collect()
    };
    let nothing = |_: &str| None;
    let all = live(&listed);
    let both = paths(&[a, b]);
    let known = all.deletes_of(&storage, &both, nothing);
    let known = known.await.unwrap();
    let rows = |path: &str| known[path].vector.positions().collect::<Vec<_>>();
    assert_eq!((rows(a), rows(b)), (vec![1, 3], vec![2]));
    let alone = EntryKey::of_file(format!("{location}/alone.parquet"));
    assert_eq!(known[a].replaced, [alone].into());
    assert!(known[b].replaced.is_empty());
    // What is kept of delete files is believed of these very files alone.
    let kept = |_: &str| Some(known[a].clone());
    let same = all.deletes_of(&storage, &paths(&[b]), kept).await.unwrap();
    assert_eq!(same[b].vector, known[b].vector);
    // A vector has the rows of older position deletes, which no longer count.
    let prefix = format!("{location}/v");
    let one = [deletes("a", &[8])];
    let vectors = write_deletes(&storage, FormatVersion::V3, &prefix, &one);
    let vector = vectors.await.unwrap().remove(0);
    let key = EntryKey::of_vector(vector.file_path(), a);
    listed.push((vector, 0, 7));
    let (all, one) = (live(&listed), paths(&[a]));
    let known = all.deletes_of(&storage, &one, nothing);
    let known = known.await.unwrap();
    assert_eq!(known[a].vector, [8].into_iter().collect());
    assert_eq!(known[a].replaced, [key].into());
    // A row that the data file does not have is damage.
    listed[1].0 = data("b", 2);
    let (all, one) = (live(&listed), paths(&[b]));
    let error = all.deletes_of(&storage, &one, nothing);
    assert_eq!(error.await.unwrap_err().code(), "METADATA_FORMAT");
}

// Promise: A table with changes reads a manifest once: from one snapshot to the next only what is new is read, and files of manifests that are gone are gone.
// Case: 43
#[test]
fn files_are_followed_by_their_manifests() {
    let (a, b) = ("memory://b/a.parquet", "memory://b/b.parquet");
    let mut all = live(&[(data("a", 10), 0, 5), (data("b", 10), 0, 5)]);
    let one = all.memory_bytes();
    assert!(one > 0);
    // A rewritten manifest has the same files again.
    let again = Entries::of("n", &[(data("a", 10), 0, 5)]);
    all.follow(&[], vec![again]).unwrap();
    assert!(all.data.contains_key(a) && !all.data.contains_key(b));
    assert!(all.memory_bytes() < one);
    let twice = Entries::of("o", &[(data("a", 10), 0, 5), (data("a", 10), 0, 6)]);
    let error = all.follow(&[], vec![twice]).unwrap_err();
    assert_eq!(error.code(), "METADATA_FORMAT");
}
