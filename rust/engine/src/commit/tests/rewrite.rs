//! Manifests of other engines lose entries and nothing else.

use apache_avro::types::Value;
use apache_avro::{Codec, DeflateSettings, Reader, Schema as AvroSchema, Writer};
use iceberg::spec::{Manifest, ManifestStatus, ManifestWriterBuilder};
use serde_json::json;

use super::*;
use crate::commit::{EntryKey, avro, rewrite};

const SNAPSHOT: i64 = 77;

/// A manifest of two files as another engine may write it: compressed, with a column that nobody else
/// knows.
async fn foreign() -> (ManifestFile, Vec<u8>) {
    let world = World::new(FormatVersion::V2).await;
    let files = vec![vec![file("a", 4), file("b", 6)]];
    let segment = world.segment_of(1, 0, &[(0, 0, 10)], files).await;
    let mut listed = segment.manifests[0].manifest.clone();
    listed.sequence_number = 5;
    listed.added_snapshot_id = 50;
    let bytes = world
        .load()
        .await
        .storage
        .get(&listed.manifest_path)
        .await
        .unwrap();
    let header = avro::metadata(&bytes).unwrap();
    let mut schema: serde_json::Value = serde_json::from_str(&header["avro.schema"]).unwrap();
    let fields = schema["fields"].as_array_mut().unwrap();
    let of_file = fields
        .iter_mut()
        .find(|field| field["name"] == "data_file")
        .unwrap();
    let columns = of_file["type"]["fields"].as_array_mut().unwrap();
    columns.push(json!({"name": "note", "type": ["null", "string"], "field-id": 9_999}));
    let schema = AvroSchema::parse(&schema).unwrap();
    let codec = Codec::Deflate(DeflateSettings::default());
    let mut writer = Writer::with_codec(&schema, Vec::new(), codec);
    for (key, value) in header.iter().filter(|(key, _)| !key.starts_with("avro.")) {
        writer.add_user_metadata(key.clone(), value).unwrap();
    }
    for value in Reader::new(&bytes[..]).unwrap() {
        let Value::Record(mut fields) = value.unwrap() else {
            panic!("an entry is no record");
        };
        for (name, value) in &mut fields {
            if let (true, Value::Record(columns)) = (name == "data_file", value) {
                let note = Value::Union(1, Box::new(Value::String("kept".into())));
                columns.push(("note".into(), note));
            }
        }
        writer.append(Value::Record(fields)).unwrap();
    }
    (listed, writer.into_inner().unwrap())
}

fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    let Value::Record(fields) = value else {
        panic!("{value:?} is no record");
    };
    let found = &fields.iter().find(|(field, _)| field == name).unwrap().1;
    match found {
        Value::Union(_, inner) => inner,
        found => found,
    }
}

// Promise: A manifest of another engine that loses an entry keeps the others with all that they say, unknown columns too.
#[tokio::test]
async fn a_foreign_manifest_loses_nothing_else() {
    let (listed, bytes) = foreign().await;
    let gone = EntryKey::of_file("file:///nowhere/a.parquet");
    let is_gone = |key: &EntryKey| *key == gone;
    let made = rewrite(&listed, &bytes, FormatVersion::V2, SNAPSHOT, is_gone);
    let made = made.unwrap().unwrap();
    assert_eq!(made.removed, std::slice::from_ref(&gone));
    assert_eq!(
        (
            made.counts.data_files,
            made.counts.records,
            made.counts.bytes
        ),
        (1, 4, 10)
    );
    let manifest = &made.manifest;
    assert_eq!(
        (manifest.existing_files_count, manifest.existing_rows_count),
        (Some(1), Some(6))
    );
    assert_eq!(
        (manifest.deleted_files_count, manifest.deleted_rows_count),
        (Some(1), Some(4))
    );
    assert_eq!(
        (manifest.added_files_count, manifest.added_snapshot_id),
        (Some(0), SNAPSHOT)
    );
    assert_eq!(
        (manifest.sequence_number, manifest.min_sequence_number),
        (-1, 5)
    );
    let entries = Reader::new(&made.bytes[..]).unwrap();
    let entries: Vec<Value> = entries.map(|entry| entry.unwrap()).collect();
    for (entry, (status, snapshot, rows)) in entries.iter().zip([(2, SNAPSHOT, 4), (0, 50, 6)]) {
        assert_eq!(*field(entry, "status"), Value::Int(status));
        assert_eq!(*field(entry, "snapshot_id"), Value::Long(snapshot));
        for number in ["sequence_number", "file_sequence_number"] {
            assert_eq!(*field(entry, number), Value::Long(5));
        }
        let file = field(entry, "data_file");
        assert_eq!(*field(file, "record_count"), Value::Long(rows));
        assert_eq!(*field(file, "note"), Value::String("kept".into()));
    }
    let read = Manifest::parse_avro(&made.bytes).unwrap();
    assert_eq!(read.entries().len(), 2);
    assert_eq!(avro::metadata(&made.bytes).unwrap().get("frazil.wid"), None);
    // Once gone, an entry is not written again.
    let mut listed = made.manifest;
    listed.sequence_number = 6;
    let b = |key: &EntryKey| key.path.ends_with("b.parquet");
    let last = rewrite(&listed, &made.bytes, FormatVersion::V2, 78, b)
        .unwrap()
        .unwrap();
    assert_eq!(
        Manifest::parse_avro(&last.bytes).unwrap().entries().len(),
        1
    );
    assert_eq!(last.manifest.min_sequence_number, -1);
    let none = rewrite(&listed, &last.bytes, FormatVersion::V2, 79, |_| true).unwrap();
    assert!(none.is_none(), "there is nothing to remove");
}

#[tokio::test]
async fn a_manifest_of_version_2_gets_row_ids_in_a_table_of_version_3() {
    let (mut listed, bytes) = foreign().await;
    listed.first_row_id = Some(100);
    let a = |key: &EntryKey| key.path.ends_with("a.parquet");
    let made = rewrite(&listed, &bytes, FormatVersion::V3, SNAPSHOT, a)
        .unwrap()
        .unwrap();
    let ids = Reader::new(&made.bytes[..]).unwrap().map(|entry| {
        let entry = entry.unwrap();
        field(field(&entry, "data_file"), "first_row_id").clone()
    });
    assert_eq!(
        ids.collect::<Vec<_>>(),
        [Value::Long(100), Value::Long(104)]
    );
    assert_eq!(made.manifest.first_row_id, Some(100));
    assert_eq!(avro::metadata(&made.bytes).unwrap()["format-version"], "3");
}

// Promise: A data file that an older manifest of format version 1 lists, as in a table that was upgraded, can go: the manifest becomes one of version 2, and its other files stay as they are.
#[tokio::test]
async fn a_manifest_of_version_1_loses_entries() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let (mut listed, bytes) = version_1().await;
        listed.first_row_id = (version == FormatVersion::V3).then_some(100);
        let before = Manifest::parse_avro(&bytes).unwrap();
        let a = |key: &EntryKey| key.path.ends_with("a.parquet");
        let made = rewrite(&listed, &bytes, version, SNAPSHOT, a);
        let made = made.unwrap().unwrap();
        let after = Manifest::parse_avro(&made.bytes).unwrap();
        assert_eq!(after.metadata().format_version(), &version);
        for (entry, old) in after.entries().iter().zip(before.entries()) {
            assert_eq!(entry.sequence_number(), Some(0));
            assert_eq!(entry.file_sequence_number, Some(0));
            assert_eq!(entry.content_type(), DataContentType::Data);
            assert_eq!(entry.file_path(), old.file_path());
            assert_eq!(entry.record_count(), old.record_count());
        }
        let of = |entry: &iceberg::spec::ManifestEntry| (entry.status(), entry.snapshot_id());
        let entries: Vec<_> = after.entries().iter().map(|entry| of(entry)).collect();
        assert_eq!(
            entries,
            [
                (ManifestStatus::Deleted, Some(SNAPSHOT)),
                (ManifestStatus::Existing, Some(50))
            ]
        );
        assert_eq!(made.manifest.min_sequence_number, 0);
        assert_eq!(made.counts.records, 4);
    }
}

/// A manifest of two files as an engine wrote it to a table of format version 1.
async fn version_1() -> (ManifestFile, Vec<u8>) {
    let world = World::new(FormatVersion::V2).await;
    let loaded = world.load().await;
    let io = loaded.storage.file_io();
    let path = format!("{}/metadata/v1-m.avro", loaded.metadata.location());
    let metadata = &loaded.metadata;
    let mut writer = ManifestWriterBuilder::new(
        io.new_output(&path).unwrap(),
        Some(50),
        metadata.current_schema().clone(),
        metadata.default_partition_spec().as_ref().clone(),
    )
    .build_v1();
    for one in [file("a", 4), file("b", 6)] {
        writer.add_file(one, 0).unwrap();
    }
    let mut listed = writer.write_manifest_file().await.unwrap();
    listed.sequence_number = 0;
    listed.min_sequence_number = 0;
    let bytes = loaded.storage.get(&path).await.unwrap();
    (listed, bytes.to_vec())
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_is_an_error() {
    let (listed, bytes) = foreign().await;
    let all = |_: &EntryKey| true;
    for bytes in [
        &b""[..],
        b"PAR1",
        &bytes[..bytes.len() / 2],
        &bytes[..bytes.len() - 20],
    ] {
        let made = rewrite(&listed, bytes, FormatVersion::V2, SNAPSHOT, all);
        assert_eq!(made.unwrap_err().code(), "METADATA_FORMAT");
    }
}
