//! Tables whose rows records change: from records to the rows that readers see.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use frazil_core::change::KeyPlan;
use frazil_core::delete::DeletionVector;
use frazil_core::delete::vector::Expected;
use frazil_core::index::{KeyForm, KeyHasher};
use frazil_core::wire::testing::{FrameBuilder, Row, Value};
use frazil_core::wire::{Effects, SourceSchema};
use frazil_engine::commit::manifests_of;
use iceberg::spec::{DataContentType, DataFileFormat, ManifestStatus};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::bed::{Bed, TOPIC, Task};

mod grown;
mod once;
mod pending;
mod refusals;
mod rows;
mod tables;
mod truncations;
mod ways;

const TABLE: &str = "db.orders";
const MODE: &str = "iceberg.tables.default-mode";
const VERSION: &str = "iceberg.tables.auto-create-props.format-version";

pub(crate) fn bed(mode: &str) -> Bed {
    Bed::new(TABLE)
        .with(MODE, mode)
        .with("iceberg.tables.default-id-columns", "id")
}

fn tolerant(bed: Bed) -> Bed {
    bed.with("errors.tolerance", "all")
        .with("errors.deadletterqueue.topic.name", "dead")
}

/// The row `id`, and its key alone.
fn row(id: i64, note: &str) -> Value {
    Value::object([("id", Value::Int64(id)), ("note", Value::text(note))])
}

fn at(partition: i32, offset: i64) -> Row {
    Row::new(TOPIC, partition, offset).timestamp(1_700_000_000_000 + offset)
}

/// A record of the mode `upsert`; without a note it removes the row.
fn upsert(offset: i64, id: i64, note: Option<&str>) -> Row {
    upsert_at((0, offset), id, note)
}

pub(crate) fn upsert_at((partition, offset): (i32, i64), id: i64, note: Option<&str>) -> Row {
    let record = at(partition, offset).key(Value::object([("id", Value::Int64(id))]));
    match note {
        Some(note) => record.value(row(id, note)),
        None => record,
    }
}

/// What Debezium writes; `lsn` is the change's place in the source.
fn change(place: (i32, i64), op: &str, before: Value, after: Value, lsn: i64) -> Row {
    let id = |value: &Value| match value {
        Value::Map(fields) => fields.first().map(|(_, id)| id.clone()),
        _ => None,
    };
    let key = id(&after).or_else(|| id(&before)).expect("a row");
    let source = Value::object([
        ("connector", Value::text("postgresql")),
        ("name", Value::text("px")),
        ("lsn", Value::Int64(lsn)),
        ("sequence", Value::text(&format!(r#"["{lsn}","{lsn}"]"#))),
    ]);
    let value = Value::object([
        ("before", before),
        ("after", after),
        ("source", source),
        ("op", Value::text(op)),
        ("ts_ms", Value::Int64(1_700_000_000_000 + lsn)),
    ]);
    at(place.0, place.1)
        .key(Value::object([("id", key)]))
        .value(value)
}

fn created(offset: i64, id: i64, note: &str) -> Row {
    change((0, offset), "c", Value::Null, row(id, note), offset)
}

fn updated(offset: i64, id: i64, note: &str) -> Row {
    change((0, offset), "u", Value::Null, row(id, note), offset)
}

fn removed(offset: i64, id: i64) -> Row {
    let before = Value::object([("id", Value::Int64(id))]);
    change((0, offset), "d", before, Value::Null, offset)
}

pub(crate) fn put(task: &Task, rows: impl IntoIterator<Item = Row>) -> Effects {
    let begun = task.tick();
    assert_eq!(begun.rewinds, vec![], "no rewind was expected");
    let frame = FrameBuilder::schemaless()
        .in_columns()
        .with_headers()
        .rows(rows);
    task.try_put(&frame).expect("the frame is taken")
}

/// Puts records whose values and keys have schemas, which it registers once.
struct Typed<'a> {
    task: &'a Task,
    value: (u32, SourceSchema),
    key: (u32, SourceSchema),
}

impl<'a> Typed<'a> {
    fn new(task: &'a Task, value: SourceSchema, key: SourceSchema) -> Self {
        let register = |schema: SourceSchema| {
            let registered = task.session.register_schema(&schema.to_bytes());
            (registered.expect("registered"), schema)
        };
        Typed {
            task,
            value: register(value),
            key: register(key),
        }
    }

    fn put(&self, rows: impl IntoIterator<Item = Row>) -> Effects {
        self.task.tick();
        let frame = FrameBuilder::with_value_schema(self.value.0, self.value.1.clone())
            .key_schema(self.key.0, self.key.1.clone())
            .with_headers()
            .rows(rows);
        self.task.try_put(&frame).expect("taken")
    }
}

fn rejected(effects: &Effects) -> Vec<(i64, &str)> {
    let rejected = effects.rejected.iter();
    rejected
        .map(|one| (one.offset, one.code.as_str()))
        .collect()
}

/// What readers see: the notes by id. Read from data and delete files by the rules of Iceberg alone.
pub(crate) fn seen(bed: &Bed, table: &str) -> BTreeMap<i64, String> {
    let mut rows = BTreeMap::new();
    for (id, note) in visible(bed, table) {
        let twice = rows.insert(id, note);
        assert_eq!(twice, None, "row {id} is there twice");
    }
    rows
}

/// The rows that readers see, those with one id too.
fn visible(bed: &Bed, table: &str) -> Vec<(i64, String)> {
    let (data, deletes) = live(bed, table);
    let storage = bed.load(table).storage;
    let mut rows = Vec::new();
    for file in data {
        let bytes = bed.wait(storage.get(&file)).expect("a data file");
        let deleted = deletes.get(&file);
        let mut place = 0;
        for batch in batches(bytes) {
            let ids = batch.column_by_name("id").expect("a column").clone();
            let notes = batch.column_by_name("note").expect("a column").clone();
            for index in 0..batch.num_rows() {
                if !deleted.is_some_and(|deleted| deleted.contains(place)) {
                    let id = ids.as_primitive::<Int64Type>().value(index);
                    rows.push((id, notes.as_string::<i32>().value(index).to_owned()));
                }
                place += 1;
            }
        }
    }
    rows
}

fn batches(bytes: bytes::Bytes) -> Vec<RecordBatch> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("Parquet");
    let reader = reader.build().expect("Parquet");
    reader.map(|batch| batch.expect("a batch")).collect()
}

/// The live data files, and the deleted rows of each. At most one delete file counts for each.
fn live(bed: &Bed, table: &str) -> (Vec<String>, BTreeMap<String, DeletionVector>) {
    let loaded = bed.load(table);
    let Some(snapshot) = loaded.metadata.snapshot_for_ref("main") else {
        return Default::default();
    };
    let version = loaded.metadata.format_version();
    let (storage, mut data, mut deletes) = (&loaded.storage, Vec::new(), BTreeMap::new());
    bed.wait(async {
        let manifests = manifests_of(storage, snapshot, version)
            .await
            .expect("manifests");
        for manifest in manifests {
            let manifest = manifest
                .load_manifest(&storage.file_io())
                .await
                .expect("a manifest");
            let entries = manifest.entries().iter();
            for entry in entries.filter(|entry| entry.status() != ManifestStatus::Deleted) {
                let file = entry.data_file();
                let path = file.file_path();
                match (file.content_type(), file.file_format()) {
                    (DataContentType::Data, _) => data.push(path.to_owned()),
                    (DataContentType::PositionDeletes, DataFileFormat::Puffin) => {
                        let start = file.content_offset().expect("an offset") as u64;
                        let length = file.content_size_in_bytes().expect("a length") as u64;
                        let blob = storage.get_range(path, start..start + length).await;
                        let vector =
                            DeletionVector::parse(&blob.expect("a blob"), &Expected::default());
                        let of = file.referenced_data_file().expect("a data file");
                        let twice = deletes.insert(of, vector.expect("a vector"));
                        assert!(twice.is_none(), "two vectors of one file");
                    }
                    (DataContentType::PositionDeletes, _) => {
                        for batch in batches(storage.get(path).await.expect("a delete file")) {
                            let of = batch.column_by_name("file_path").expect("paths").clone();
                            let rows = batch.column_by_name("pos").expect("rows").clone();
                            let rows = rows.as_primitive::<Int64Type>().values();
                            for (of, row) in of.as_string::<i32>().iter().flatten().zip(rows) {
                                let vector: &mut DeletionVector =
                                    deletes.entry(of.to_owned()).or_default();
                                vector.insert(*row as u64).expect("a row");
                            }
                        }
                    }
                    (DataContentType::EqualityDeletes, _) => panic!("an equality delete"),
                }
            }
        }
    });
    (data, deletes)
}

fn notes(pairs: &[(i64, &str)]) -> BTreeMap<i64, String> {
    pairs
        .iter()
        .map(|(id, note)| (*id, (*note).to_owned()))
        .collect()
}

/// A change of a key run: key, flags, offset, place.
type Run = Vec<(u128, i32, i64, Option<(i32, i32)>)>;

/// The key runs of a table, in the order of their names.
fn key_runs(bed: &Bed, table: &str) -> Vec<Run> {
    let mut paths: Vec<_> = std::fs::read_dir(bed.data_directory(table))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().ends_with("-keys.parquet"))
        .collect();
    paths.sort();
    let read = |path| {
        let bytes = bytes::Bytes::from(std::fs::read(path).expect("a file"));
        let mut run = Vec::new();
        for batch in batches(bytes) {
            let column = |name: &str| batch.column_by_name(name).expect("a column").clone();
            let (keys, flags, offsets) = (column("key"), column("flags"), column("offset"));
            let (files, rows) = (column("file"), column("row"));
            for index in 0..batch.num_rows() {
                let int = |array: &dyn Array| {
                    let array = array.as_primitive::<Int32Type>();
                    (!array.is_null(index)).then(|| array.value(index))
                };
                let key = keys.as_fixed_size_binary().value(index);
                run.push((
                    u128::from_be_bytes(key.try_into().expect("16 bytes")),
                    int(&flags).expect("flags"),
                    offsets.as_primitive::<Int64Type>().value(index),
                    int(&files).zip(int(&rows)),
                ));
            }
        }
        run
    };
    paths.into_iter().map(read).collect()
}

/// The number of the key `id`.
fn number(bed: &Bed, table: &str, id: i64) -> u128 {
    let metadata = bed.load(table).metadata;
    let schema = metadata.current_schema();
    let plan = KeyPlan::of(schema, schema.identifier_field_ids()).expect("a key");
    let plan = plan.expect("identifier fields");
    let form = KeyForm::of(plan.bytes_max());
    assert_eq!(form, KeyForm::Exact);
    let column: arrow_array::ArrayRef =
        std::sync::Arc::new(arrow_array::Int64Array::from(vec![id]));
    let mut bytes = Vec::new();
    let columns = [column];
    let keys = plan.rows(&columns).expect("a column");
    let key = keys.encode(0, &mut bytes).expect("a key");
    KeyHasher::new(form, metadata.uuid())
        .number(key)
        .expect("a number")
        .0
}
