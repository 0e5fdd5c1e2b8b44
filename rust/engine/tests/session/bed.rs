//! A catalog and a warehouse of one test, tasks on them, and a reader of their tables.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use frazil_core::Result;
use frazil_core::config::SinkConfig;
use frazil_core::memory::{Limit, LimitKind};
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::testing::{FrameBuilder, Row, Value, decode_effects, encode_request};
use frazil_core::wire::{Effects, Request, SourceKind, SourceSchema};
use frazil_engine::Session;
use frazil_engine::admin::Admin;
use frazil_engine::catalog::{self, Catalog, CommitOutcome, LoadedTable, TableCommit};
use frazil_engine::commit::manifests_of;
use frazil_engine::memory::Memory;
use frazil_engine::runtime::Runtime;
use iceberg::spec::{DataFile, SnapshotReference, SnapshotRetention};
use iceberg::{TableIdent, TableUpdate};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

pub(crate) const TOPIC: &str = "orders";
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) struct Bed {
    directory: TempDir,
    settings: BTreeMap<String, String>,
    runtime: Arc<Runtime>,
    /// A pool of its own: tests run side by side.
    pub(crate) memory: Arc<Memory>,
}

impl Bed {
    /// A connector that makes `tables` and commits each second.
    pub(crate) fn new(tables: &str) -> Bed {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap().to_owned();
        let name = path.rsplit('/').next().unwrap().to_owned();
        let bed = Bed {
            settings: BTreeMap::new(),
            runtime: Runtime::shared().unwrap(),
            memory: Memory::new(Some(Limit {
                bytes: 8 << 30,
                kind: LimitKind::Machine,
            })),
            directory,
        };
        bed.with("name", &name)
            .with("topics", TOPIC)
            .with("iceberg.catalog.type", "sql")
            .with("iceberg.catalog.uri", &format!("sqlite:{path}/catalog.db"))
            .with(
                "iceberg.catalog.warehouse",
                &format!("file://{path}/warehouse"),
            )
            .with("iceberg.tables", tables)
            .with("iceberg.tables.auto-create-enabled", "true")
            .with("iceberg.control.commit.interval-ms", "1000")
    }

    pub(crate) fn with(mut self, key: &str, value: &str) -> Bed {
        self.settings.insert(key.to_owned(), value.to_owned());
        self
    }

    /// A commit only by rows, revocation or the end.
    pub(crate) fn slow(self) -> Bed {
        self.with("iceberg.control.commit.interval-ms", "2000000000")
    }

    pub(crate) fn open(&self) -> Result<Task> {
        self.open_with(&[])
    }

    pub(crate) fn settings(&self, more: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut settings = self.settings.clone();
        for (key, value) in more {
            settings.insert((*key).to_owned(), (*value).to_owned());
        }
        settings
    }

    pub(crate) fn open_with(&self, more: &[(&str, &str)]) -> Result<Task> {
        let session = Session::open_in(&self.memory, self.settings(more))?;
        let schema = session.register_schema(&order_schema().to_bytes())?;
        Ok(Task { session, schema })
    }

    /// The connector's own access to its tables.
    pub(crate) fn admin(&self) -> Arc<Admin> {
        Admin::open(&self.settings).expect("the configuration is sound")
    }

    /// What Connect's `validate` is answered.
    pub(crate) fn validate(&self) -> Vec<u8> {
        frazil_engine::validate(&self.settings)
    }

    /// A task of the epoch that tasks have which start now.
    pub(crate) fn task_of_now(&self) -> Task {
        let epoch = self.admin().epoch().expect("the catalog answers");
        self.task_with(&[("frazil.internal.epoch", &epoch.to_string())])
    }

    /// Sets (`Some`) or removes a table property, as a person would.
    pub(crate) fn set_property(&self, table: &str, key: &str, value: Option<&str>) {
        let update = match value {
            Some(value) => TableUpdate::SetProperties {
                updates: [(key.to_owned(), value.to_owned())].into(),
            },
            None => TableUpdate::RemoveProperties {
                removals: vec![key.to_owned()],
            },
        };
        self.change(table, update);
    }

    /// Makes the oldest snapshot the head of the main branch again, as a person would.
    pub(crate) fn roll_back(&self, table: &str) {
        let metadata = self.load(table).metadata;
        let mut snapshots: Vec<_> = metadata.snapshots().collect();
        snapshots.sort_by_key(|snapshot| snapshot.sequence_number());
        let oldest = snapshots[0].snapshot_id();
        let retention = SnapshotRetention::branch(None, None, None);
        self.change(
            table,
            TableUpdate::SetSnapshotRef {
                ref_name: "main".to_owned(),
                reference: SnapshotReference::new(oldest, retention),
            },
        );
    }

    /// Takes every snapshot and its rows away.
    pub(crate) fn forget_snapshots(&self, table: &str) {
        let metadata = self.load(table).metadata;
        let snapshot_ids = metadata.snapshots().map(|s| s.snapshot_id()).collect();
        let ref_name = "main".to_owned();
        self.change(table, TableUpdate::RemoveSnapshotRef { ref_name });
        self.change(table, TableUpdate::RemoveSnapshots { snapshot_ids });
    }

    pub(crate) fn change(&self, table: &str, update: TableUpdate) {
        let loaded = self.load(table);
        let commit = TableCommit {
            requirements: vec![],
            updates: vec![update],
            idempotency_key: uuid::Uuid::now_v7(),
        };
        let catalog = self.catalog();
        let outcome = self.wait(catalog.commit(&loaded, commit));
        assert!(
            matches!(outcome, CommitOutcome::Committed(_)),
            "{outcome:?}"
        );
    }

    /// An open task that owns partition 0.
    pub(crate) fn task(&self) -> Task {
        self.task_with(&[])
    }

    pub(crate) fn task_with(&self, more: &[(&str, &str)]) -> Task {
        let task = self.open_with(more).expect("the task starts");
        task.assign(&[0]);
        task
    }

    pub(crate) fn config(&self) -> SinkConfig {
        SinkConfig::start(&self.settings).unwrap().0
    }

    pub(crate) fn catalog(&self) -> Arc<dyn Catalog> {
        catalog::open(&self.config().catalog).unwrap()
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.handle().block_on(work)
    }

    pub(crate) fn load(&self, table: &str) -> LoadedTable {
        let catalog = self.catalog();
        self.wait(catalog.load_table(&ident(table)))
            .expect("the table is there")
    }

    pub(crate) fn exists(&self, table: &str) -> bool {
        let catalog = self.catalog();
        self.wait(catalog.load_table(&ident(table))).is_ok()
    }

    pub(crate) fn snapshots(&self, table: &str) -> usize {
        match self.exists(table) {
            true => self.load(table).metadata.snapshots().len(),
            false => 0,
        }
    }

    /// The catalog's own tables.
    pub(crate) fn catalog_file(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.directory.path().join("catalog.db")).unwrap()
    }

    /// Locks the catalog's file until the result is dropped.
    pub(crate) fn lock_catalog(&self) -> rusqlite::Connection {
        let connection = self.catalog_file();
        connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
        connection
    }

    /// The live data files of a branch.
    pub(crate) fn files(&self, table: &str, branch: &str) -> Vec<DataFile> {
        let loaded = self.load(table);
        let Some(snapshot) = loaded.metadata.snapshot_for_ref(branch) else {
            return Vec::new();
        };
        self.wait(async {
            let version = loaded.metadata.format_version();
            let manifests = manifests_of(&loaded.storage, snapshot, version)
                .await
                .unwrap();
            let io = loaded.storage.file_io();
            let mut files = Vec::new();
            for manifest in manifests {
                let manifest = manifest.load_manifest(&io).await.unwrap();
                files.extend(manifest.entries().iter().map(|e| e.data_file().clone()));
            }
            files
        })
    }

    pub(crate) fn batches(&self, table: &str, branch: &str) -> Vec<RecordBatch> {
        let storage = self.load(table).storage;
        let mut batches = Vec::new();
        for file in self.files(table, branch) {
            let bytes = self.wait(storage.get(file.file_path())).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
            let read: Vec<_> = reader
                .build()
                .unwrap()
                .map(|batch| batch.unwrap())
                .collect();
            let rows: usize = read.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows as u64, file.record_count());
            batches.extend(read);
        }
        batches
    }

    /// The values of a long column on the main branch, sorted; nulls last.
    pub(crate) fn longs(&self, table: &str, column: &str) -> Vec<i64> {
        let mut values = Vec::new();
        for batch in self.batches(table, "main") {
            let Some(column) = batch.column_by_name(column) else {
                continue;
            };
            values.extend(column.as_primitive::<Int64Type>().iter().flatten());
        }
        values.sort_unstable();
        values
    }

    /// The ids of all rows, sorted.
    pub(crate) fn ids(&self, table: &str) -> Vec<i64> {
        match self.exists(table) {
            true => self.longs(table, "id"),
            false => Vec::new(),
        }
    }

    pub(crate) fn texts(&self, table: &str, name: &str) -> Vec<Option<String>> {
        let mut values = Vec::new();
        for batch in self.batches(table, "main") {
            match batch.column_by_name(name) {
                None => values.extend(vec![None; batch.num_rows()]),
                Some(column) => {
                    let texts = column.as_string::<i32>();
                    values.extend(texts.iter().map(|text| text.map(str::to_owned)));
                }
            }
        }
        values.sort();
        values
    }

    /// The URI of a directory of this bed.
    pub(crate) fn place(&self, name: &str) -> String {
        format!("file://{}/{name}/", self.directory.path().display())
    }

    /// The file that the catalog takes for the table's metadata.
    pub(crate) fn metadata_file(&self, table: &str) -> std::path::PathBuf {
        let location = self.load(table).metadata_location.unwrap();
        std::path::PathBuf::from(location.strip_prefix("file://").unwrap())
    }

    pub(crate) fn data_directory(&self, table: &str) -> std::path::PathBuf {
        let location = self.load(table).metadata.location().to_owned();
        std::path::Path::new(location.strip_prefix("file://").unwrap()).join("data")
    }
}

pub(crate) fn ident(table: &str) -> TableIdent {
    TableIdent::from_strs(table.split('.')).unwrap()
}

pub(crate) fn order_schema() -> SourceSchema {
    SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("note", SourceSchema::scalar(SourceKind::String).optional()),
    ])
}

/// A record whose id is its offset.
pub(crate) fn order(partition: i32, offset: i64) -> Row {
    let value = Value::Struct(vec![Value::Int64(offset), Value::text("fine")]);
    Row::new(TOPIC, partition, offset)
        .value(value)
        .timestamp(1_700_000_000_000 + offset)
}

/// A record that fits no column.
pub(crate) fn bad_order(partition: i32, offset: i64) -> Row {
    let value = Value::object([("id", Value::text("no number"))]);
    Row::new(TOPIC, partition, offset).value(value)
}

/// A record without a schema that fits.
pub(crate) fn loose_order(partition: i32, offset: i64) -> Row {
    let value = Value::object([("id", Value::Int64(offset)), ("note", Value::text("fine"))]);
    Row::new(TOPIC, partition, offset).value(value)
}

pub(crate) fn p(partition: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition)
}

pub(crate) struct Task {
    pub(crate) session: Arc<Session>,
    pub(crate) schema: u32,
}

impl Task {
    pub(crate) fn control(&self, request: &Request) -> Result<Effects> {
        let bytes = self.session.control(&encode_request(request))?;
        assert!(!bytes.is_empty());
        decode_effects(&bytes)
    }

    pub(crate) fn assign(&self, partitions: &[i32]) {
        let partitions = partitions.iter().map(|partition| p(*partition)).collect();
        self.control(&Request::Assign(partitions)).unwrap();
    }

    pub(crate) fn revoke(&self, partitions: &[i32]) {
        let partitions = partitions.iter().map(|partition| p(*partition)).collect();
        self.control(&Request::Revoke(partitions)).unwrap();
    }

    pub(crate) fn tick(&self) -> Effects {
        self.control(&Request::Tick).expect("the task lives")
    }

    pub(crate) fn pre_commit(&self, partition: i32, asked: i64) -> Option<i64> {
        let asked = vec![(p(partition), asked)];
        let effects = self.control(&Request::PreCommit(asked)).unwrap();
        effects.durable.first().map(|(_, durable)| *durable)
    }

    pub(crate) fn try_put(&self, frame: &FrameBuilder) -> Result<Effects> {
        let bytes = self.session.put(&frame.encode())?;
        assert!(!bytes.is_empty());
        decode_effects(&bytes)
    }

    pub(crate) fn frame(&self) -> FrameBuilder {
        FrameBuilder::with_value_schema(self.schema, order_schema())
    }

    pub(crate) fn try_orders(&self, partition: i32, offsets: Range<i64>) -> Result<Effects> {
        let rows = offsets.map(|offset| order(partition, offset));
        self.try_put(&self.frame().rows(rows))
    }

    /// One put of Connect: the tick, and a frame of orders of partition 0.
    pub(crate) fn put(&self, offsets: Range<i64>) -> Effects {
        let begun = self.tick();
        assert_eq!(begun.rewinds, vec![], "no rewind was expected");
        self.try_orders(0, offsets).expect("the frame is taken")
    }

    /// Lets time pass, as Connect does, until the offset of partition 0 is `offset`.
    pub(crate) fn until_durable(&self, offset: i64) {
        self.until_all_durable(&[(p(0), offset)]);
    }

    /// Lets time pass, as Connect does, until each partition's offset is the one that is asked for.
    pub(crate) fn until_all_durable(&self, asked: &[(TopicPartition, i64)]) {
        let limit = Instant::now() + PATIENCE;
        loop {
            let effects = self.tick();
            assert_eq!(effects.rewinds, vec![], "no rewind was expected");
            let request = Request::PreCommit(asked.to_vec());
            let mut durable = self.control(&request).unwrap().durable;
            durable.sort();
            if durable == asked {
                return;
            }
            assert!(Instant::now() < limit, "still at {durable:?} of {asked:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets time pass until the offset of partition 0 is `offset`, and a while longer: of `asked`
    /// records that were read no more become durable.
    pub(crate) fn until_durable_at_most(&self, asked: i64, offset: i64) {
        let mut since = None;
        let limit = Instant::now() + PATIENCE;
        while since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(3)) {
            assert_eq!(self.tick().rewinds, vec![], "no rewind was expected");
            let durable = self.pre_commit(0, asked).unwrap_or(i64::MIN);
            assert!(durable <= offset, "{durable} is beyond {offset}");
            if durable == offset {
                since.get_or_insert_with(Instant::now);
            }
            assert!(Instant::now() < limit, "still at {durable} of {offset}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets time pass until the offset of partition 0, which is read up to `end`, is `offset`.
    pub(crate) fn until_durable_of(&self, offset: i64, end: i64) {
        let limit = Instant::now() + PATIENCE;
        while self.pre_commit(0, end) != Some(offset) {
            assert_eq!(self.tick().rewinds, vec![], "no rewind was expected");
            assert!(Instant::now() < limit, "not at {offset}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets time pass until the session says something.
    pub(crate) fn tick_until_logged(&self, text: &str) {
        let limit = Instant::now() + PATIENCE;
        while !self.tick().log.iter().any(|(_, line)| line.contains(text)) {
            assert!(Instant::now() < limit, "nothing said: {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets time pass until the session wants partition 0 to be read again.
    pub(crate) fn until_rewound(&self) -> (i64, Effects) {
        let effects = self.until(|effects| !effects.rewinds.is_empty());
        let (partition, offset) = &effects.rewinds[0];
        assert_eq!(*partition, p(0));
        (*offset, effects)
    }

    /// Lets time pass until the session says `text`.
    pub(crate) fn until_it_says(&self, text: &str) -> Effects {
        self.until(|effects| effects.log.iter().any(|(_, line)| line.contains(text)))
    }

    fn until(&self, is_there: impl Fn(&Effects) -> bool) -> Effects {
        let limit = Instant::now() + PATIENCE;
        loop {
            let effects = self.tick();
            if is_there(&effects) {
                return effects;
            }
            assert!(Instant::now() < limit, "it never came: {effects:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Does what Connect does with partition 0 from offset `position`: delivers, rewinds, retries,
    /// until `end` is durable.
    pub(crate) fn deliver(&self, position: i64, end: i64) {
        self.deliver_frames(position, end, |offsets| {
            self.frame().rows(offsets.map(|offset| order(0, offset)))
        });
    }

    /// As [`deliver`](Self::deliver), of the records that `frame` makes of offsets.
    pub(crate) fn deliver_frames(
        &self,
        mut position: i64,
        end: i64,
        frame: impl Fn(Range<i64>) -> FrameBuilder,
    ) {
        let limit = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < limit, "still at {position} of {end}");
            let mut rewinds = self.tick().rewinds;
            if rewinds.is_empty() && position < end {
                let next = end.min(position + 3);
                match self.try_put(&frame(position..next)) {
                    Ok(effects) => {
                        rewinds = effects.rewinds;
                        position = next;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), frazil_core::ErrorKind::Retriable, "{error:?}");
                    }
                }
            }
            if let Some((_, offset)) = rewinds.first() {
                position = *offset;
                continue;
            }
            if self.pre_commit(0, position) == Some(end) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// As [`deliver`](Self::deliver), for a connector whose interval is too long to wait for.
    pub(crate) fn deliver_by_closing(&self, position: i64, end: i64) {
        let begun = self.tick();
        assert_eq!(begun.rewinds, vec![]);
        let effects = self.try_orders(0, position..end).unwrap();
        assert_eq!(effects.rewinds, vec![]);
        self.session.close();
    }
}
