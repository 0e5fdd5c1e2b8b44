//! A table with changes as the tests make it: rows written by the writer, keys in runs, commits by a
//! committer, and a map that says what the table has to hold. What it holds is read from its
//! manifests and files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use frazil_core::change::pending::pending_schema;
use frazil_core::change::{Order, PendingFile};
use frazil_core::commit::plan;
use frazil_core::commit::summary::{counters, operation};
use frazil_core::control::segment::FileCounts;
use frazil_core::index::{KeyForm, KeyHasher, KeyNumber, Location};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{
    Snapshot, SnapshotReference, SnapshotRetention, Summary, Transform, UnboundPartitionSpec,
};
use iceberg::{TableRequirement, TableUpdate};
use serde_json::json;

use super::super::list::{old_manifests, write_manifest_list};
use super::*;
use crate::catalog::{CommitOutcome, TableCommit};
use crate::commit::{ChangedTable, Removed, ReplacePlace, replace_entries};
use crate::delete::{FileDeletes, KnownDeletes, LiveFiles, write_deletes};
use crate::index::read_key_columns;
use crate::keyrun::{Effect, KeyRun, KeyRunIdentity, RunChange, write_key_run};
use crate::memory::{Account, Memory};
use crate::test_config::sound_config;
use crate::writer::{TableWriter, TableWriterConfig};

/// `(id, part, v)`.
pub(super) type Row = (i64, i32, i64);

/// A change, and what orders it in its source.
#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) id: i64,
    /// Its new row; none is a delete.
    pub(super) row: Option<Row>,
    /// Whether the source's table was emptied.
    pub(super) empties: bool,
    /// Whether the source left `v` out of the row.
    pub(super) lacks: bool,
    pub(super) order: Option<Vec<u8>>,
}

/// An upsert.
pub(super) fn put(row: Row) -> Op {
    Op {
        id: row.0,
        row: Some(row),
        empties: false,
        lacks: false,
        order: None,
    }
}

/// An upsert without `v`.
pub(super) fn lacking(id: i64, part: i32) -> Op {
    Op {
        lacks: true,
        ..put((id, part, 0))
    }
}

/// A delete.
pub(super) fn delete(id: i64) -> Op {
    Op {
        id,
        row: None,
        empties: false,
        lacks: false,
        order: None,
    }
}

/// A truncation.
pub(super) fn truncate() -> Op {
    Op {
        empties: true,
        ..delete(0)
    }
}

impl Op {
    /// Gives it the place `number` in the order of the source `domain`.
    pub(super) fn at(mut self, domain: u8, number: u8) -> Op {
        self.order = Some(vec![0, 0, 0, 0, 0, 0, 0, domain, number, 1]);
        self
    }
}

/// A table of the key `id`, partitioned by `part`, with its committer and a map of what it holds.
pub(super) struct Changed {
    pub(super) world: World,
    pub(super) committer: TableCommitter,
    pub(super) model: BTreeMap<i64, Row>,
    /// The next offset of each source partition.
    offsets: BTreeMap<i32, i64>,
    /// The next segment of each session.
    seqs: BTreeMap<u128, u64>,
    files: u32,
    /// What segments say of partitions without rows.
    pub(super) idle: Vec<SourceRange>,
    /// The metadata file and the rows after each commit.
    pub(super) steps: Vec<serde_json::Value>,
}

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What the configuration says of the table.
pub(super) fn key_of_it() -> ChangedTable {
    ChangedTable {
        id_columns: vec!["id".into()],
        ..ChangedTable::default()
    }
}

/// Gives the table a committer with a pool of its own.
pub(super) fn with_memory(table: &mut Changed) -> Arc<Memory> {
    let memory = Memory::new(None);
    let (catalog, ident) = (table.world.catalog.clone(), table.world.ident.clone());
    table.committer = committer(catalog, &ident, WID).with_changes(key_of_it(), memory.clone());
    memory
}

/// As [`with_memory`], of which a task has its guarantee, and as much is left.
pub(super) fn with_pool(table: &mut Changed) -> (Arc<Memory>, Account) {
    let memory = with_memory(table);
    let config = sound_config(&[("frazil.memory.max.bytes", "67108864")]);
    let account = memory.join(&config).unwrap();
    (memory, account)
}

impl Changed {
    pub(super) async fn new(name: &str, version: FormatVersion) -> Changed {
        Self::new_in(tempfile::tempdir().unwrap(), name, version).await
    }

    pub(super) async fn new_in(
        dir: tempfile::TempDir,
        name: &str,
        version: FormatVersion,
    ) -> Changed {
        let catalog = open_catalog(&dir);
        let ident = TableIdent::new(NamespaceIdent::new("db".into()), name.into());
        catalog.create_namespace(ident.namespace()).await.unwrap();
        let table = table_of(version);
        catalog.create_table(&ident, table).await.unwrap();
        let world = World {
            _dir: dir,
            catalog,
            ident,
        };
        Changed {
            committer: committer_of(world.catalog.clone(), &world.ident),
            world,
            model: BTreeMap::new(),
            offsets: BTreeMap::new(),
            seqs: BTreeMap::new(),
            files: 0,
            idle: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Drops the table and makes another one of its name.
    pub(super) async fn replace(&mut self, version: FormatVersion) {
        let World { catalog, ident, .. } = &self.world;
        catalog.drop_table(ident).await.unwrap();
        catalog
            .create_table(ident, table_of(version))
            .await
            .unwrap();
        self.model.clear();
    }

    /// The process ends and another one begins, which knows nothing but the table.
    pub(super) fn restart(&mut self) {
        self.committer = committer_of(self.world.catalog.clone(), &self.world.ident);
    }

    /// The same, by way of another catalog.
    pub(super) fn restart_through(&mut self, catalog: &Arc<super::changed_races::Racing>) {
        self.committer = committer_of(catalog.clone(), &self.world.ident);
    }

    /// The files of the table, read anew.
    pub(super) async fn live(&self) -> (LoadedTable, LiveFiles) {
        let loaded = self.world.load().await;
        let base = plan::base(&loaded.metadata, "main");
        let old = old_manifests(&loaded.storage, &base, None).await.unwrap();
        let live = LiveFiles::read(&loaded.storage, &old).await.unwrap();
        (loaded, live)
    }

    /// Writes rows into files, as a task does.
    pub(super) async fn write(&mut self, rows: &[Row]) -> Vec<DataFile> {
        if rows.is_empty() {
            return Vec::new();
        }
        self.files += 1;
        let loaded = self.world.load().await;
        let metadata = &loaded.metadata;
        let schema = metadata.current_schema().clone();
        let arrow = Arc::new(schema_to_arrow_schema(&schema).unwrap());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
            Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2))),
        ];
        let config = TableWriterConfig::new(
            schema,
            metadata.default_partition_spec().clone(),
            metadata.location(),
            format!("frazil-w-{}", self.files),
        );
        let runtime = tokio::runtime::Handle::current();
        let mut writer = TableWriter::new(config, loaded.storage.clone(), runtime).unwrap();
        writer
            .write(RecordBatch::try_new(arrow, columns).unwrap())
            .unwrap();
        writer.seal().unwrap().wait().await.unwrap()
    }

    /// Writes rows that lack `v`, as a task does.
    async fn write_pending(&mut self, rows: &[Row]) -> Vec<PendingFile> {
        if rows.is_empty() {
            return Vec::new();
        }
        self.files += 1;
        let loaded = self.world.load().await;
        let metadata = &loaded.metadata;
        let schema = Arc::new(pending_schema(metadata.current_schema()).unwrap());
        let arrow = Arc::new(schema_to_arrow_schema(&schema).unwrap());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
            Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1))),
            Arc::new(Int64Array::new_null(rows.len())),
            Arc::new(StringArray::from(vec!["3"; rows.len()])),
        ];
        let spec = Arc::new(iceberg::spec::PartitionSpec::unpartition_spec());
        let name = format!("frazil-w-{}-pending", self.files);
        let config = TableWriterConfig::new(schema, spec, metadata.location(), name);
        let runtime = tokio::runtime::Handle::current();
        let mut writer = TableWriter::new(config, loaded.storage.clone(), runtime).unwrap();
        let batch = RecordBatch::try_new(arrow, columns).unwrap();
        writer.write(batch).unwrap();
        let files = writer.seal().unwrap().wait().await.unwrap();
        let files = files.iter().map(|file| PendingFile {
            path: file.file_path().to_owned(),
            bytes: file.file_size_in_bytes(),
            rows: file.record_count(),
        });
        files.collect()
    }

    /// Seals the changes of `session`, read from the source partition `partition`.
    pub(super) async fn segment(&mut self, session: u128, partition: i32, ops: &[Op]) -> Segment {
        let rows = ops.iter().filter(|op| !op.lacks);
        let rows: Vec<Row> = rows.filter_map(|op| op.row).collect();
        let files = self.write(&rows).await;
        let lacking = ops.iter().filter(|op| op.lacks);
        let lacking: Vec<Row> = lacking.filter_map(|op| op.row).collect();
        let pending = self.write_pending(&lacking).await;
        let mut next_pending = 0..;
        let loaded = self.world.load().await;
        // Where each row went; equal rows are told by their order.
        let mut places: BTreeMap<Row, VecDeque<Location>> = BTreeMap::new();
        for (number, file) in (0..).zip(&files) {
            for (row, values) in (0..).zip(read_rows(&loaded, file).await) {
                let at = Location { file: number, row };
                places.entry(values).or_default().push_back(at);
            }
        }
        let start = *self.offsets.entry(partition).or_default();
        let end = start + ops.len() as i64;
        self.offsets.insert(partition, end);
        let mut run = KeyRun::default();
        run.set_pending(pending);
        let hasher = KeyHasher::new(KeyForm::Exact, loaded.metadata.uuid());
        for (offset, op) in (start..).zip(ops) {
            let effect = match &op.row {
                None if op.empties => Effect::Truncate,
                None => Effect::Delete,
                Some(_) if op.lacks => Effect::Pending(Location {
                    file: 0,
                    row: next_pending.next().unwrap(),
                }),
                Some(row) => Effect::Upsert(places.get_mut(row).unwrap().pop_front().unwrap()),
            };
            let key = match op.empties {
                true => KeyNumber(0),
                false => hasher.number(&key_bytes(op.id)).unwrap(),
            };
            let change = RunChange::new(key, effect, (0, offset));
            run.push(&change, op.order.as_deref().map(Order::of))
                .unwrap();
        }
        let seq = self.seqs.entry(session).or_default();
        let (number, manifests) = (
            *seq,
            if files.is_empty() {
                vec![]
            } else {
                vec![files]
            },
        );
        *seq += 1;
        let ranges = [(partition, start, end)];
        let world = &self.world;
        let mut segment = world.segment_of(session, number, &ranges, manifests).await;
        segment.ranges.extend(self.idle.iter().cloned());
        let identity = KeyRunIdentity {
            table: loaded.metadata.uuid(),
            wid: WID.into(),
            session: segment.session,
            seq: number,
            form: KeyForm::Exact,
            key: "1:integer".into(),
            ranges: Ranges::of(&segment),
        };
        let place = loaded.metadata.location();
        let path = format!("{place}/data/frazil-{session}-{number}-keys.parquet");
        let made = write_key_run(&loaded.storage, &path, &mut run, &identity).await;
        segment.key_run = Some(made.unwrap());
        segment.rows = ops.len() as u64;
        segment
    }

    /// Takes in what `ops` do, each later than those before.
    pub(super) fn expect(&mut self, ops: &[Op]) {
        for op in ops {
            match op.row {
                None if op.empties => self.model.clear(),
                Some((id, part, _)) if op.lacks => {
                    let (.., v) = self.model[&id];
                    self.model.insert(id, (id, part, v));
                }
                Some(row) => drop(self.model.insert(op.id, row)),
                None => drop(self.model.remove(&op.id)),
            }
        }
    }

    /// Commits changes of one session, and checks what the table holds then.
    pub(super) async fn commit(&mut self, ops: &[Op]) {
        let segment = self.segment(1, 0, ops).await;
        assert_eq!(letters(&self.committer.commit(vec![segment]).await), "D");
        self.expect(ops);
        self.check().await;
    }

    /// Another writer commits now.
    pub(super) async fn commit_foreign(&mut self, change: Foreign) {
        let model = change.commit(&self.world.catalog, &self.world.ident).await;
        self.expect(&model);
    }

    /// Changes the table's metadata.
    pub(super) async fn change(&self, updates: Vec<TableUpdate>) {
        let loaded = self.world.load().await;
        change(&self.world.catalog, &loaded, updates).await;
    }

    /// What another writer does that appends rows.
    pub(super) async fn foreign_append(&mut self, rows: &[Row]) -> Foreign {
        Foreign {
            data: self.write(rows).await,
            deletes: Vec::new(),
            removed: Removed::default(),
            model: rows.iter().copied().map(put).collect(),
            updates: Vec::new(),
        }
    }

    /// What another writer does that deletes the rows of some keys, as the format version has it.
    pub(super) async fn foreign_delete(&self, ids: &[i64]) -> Foreign {
        let (loaded, live) = self.live().await;
        let known = known_of(&loaded, &live).await;
        let mut removed = Removed::default();
        let mut deletes = Vec::new();
        for (path, file) in &live.data {
            let before = known.get(path).cloned().unwrap_or_default();
            let mut vector = before.vector.clone();
            for (row, (id, ..)) in (0..).zip(rows_at(&loaded, path, file.bytes).await) {
                if ids.contains(&id) {
                    vector.insert(row).unwrap();
                }
            }
            if vector != before.vector {
                removed.deletes.extend(before.replaced);
                deletes.push(FileDeletes {
                    data_file: path.to_string(),
                    spec_id: file.layout.spec_id,
                    partition: file.partition.clone(),
                    vector,
                });
            }
        }
        let version = loaded.metadata.format_version();
        let prefix = format!(
            "{}/data/foreign-{}",
            loaded.metadata.location(),
            Uuid::now_v7()
        );
        let files = write_deletes(&loaded.storage, version, &prefix, &deletes).await;
        Foreign {
            data: Vec::new(),
            deletes: files.unwrap(),
            removed,
            model: ids.iter().copied().map(delete).collect(),
            updates: Vec::new(),
        }
    }

    /// What a writer does that leaves a data file with two delete files: it deletes a key more.
    pub(super) async fn foreign_second_delete(&self, id: i64) -> Foreign {
        let mut one = self.foreign_delete(&[id]).await;
        one.removed = Removed::default();
        one
    }

    /// What another writer does that deletes rows of several data files of the partition `part` by one
    /// position delete file, as engines do in format version 2.
    pub(super) async fn foreign_shared_delete(&self, part: i32, ids: &[i64]) -> Foreign {
        let (loaded, live) = self.live().await;
        let mut rows = Vec::new();
        let mut partition = None;
        for (path, file) in &live.data {
            for (row, values) in (0..).zip(rows_at(&loaded, path, file.bytes).await) {
                if ids.contains(&values.0) && values.1 == part {
                    rows.push((Arc::clone(path), row));
                    partition = Some(file.partition.clone());
                }
            }
        }
        let name = format!("foreign-{}.parquet", Uuid::now_v7());
        let path = format!("{}/data/{name}", loaded.metadata.location());
        let bytes = shared_positions(&rows);
        let mut file = DataFileBuilder::default();
        file.content(DataContentType::PositionDeletes)
            .file_path(path.clone())
            .file_format(DataFileFormat::Parquet)
            .partition(partition.unwrap())
            .record_count(rows.len() as u64)
            .file_size_in_bytes(bytes.len() as u64);
        loaded.storage.put(&path, bytes).await.unwrap();
        Foreign {
            data: Vec::new(),
            deletes: vec![file.build().unwrap()],
            removed: Removed::default(),
            model: ids.iter().copied().map(delete).collect(),
            updates: Vec::new(),
        }
    }

    /// What another writer does that writes all rows into new files, in another order, and lists these
    /// alone.
    pub(super) async fn foreign_compaction(&mut self) -> Foreign {
        let (loaded, live) = self.live().await;
        let known = known_of(&loaded, &live).await;
        let mut removed = Removed::default();
        for path in live.data.keys() {
            removed
                .data
                .insert(crate::commit::EntryKey::of_file(&**path));
        }
        removed
            .deletes
            .extend(known.into_values().flat_map(|known| known.replaced));
        let rows: Vec<Row> = self.model.values().rev().copied().collect();
        Foreign {
            data: self.write(&rows).await,
            deletes: Vec::new(),
            removed,
            model: Vec::new(),
            updates: Vec::new(),
        }
    }

    /// Compares the table, as its files say, with the map.
    pub(super) async fn check(&mut self) {
        let (loaded, live) = self.live().await;
        let known = known_of(&loaded, &live).await;
        let mut found = BTreeMap::new();
        for (path, file) in &live.data {
            let vector = known.get(path).map(|known| &known.vector);
            let count = vector.map_or(0, |vector| vector.len());
            let own = live.own_deletes(path);
            let is_ours = own.iter().all(|key| key.path.contains("/frazil-"));
            assert!(
                count < file.rows || !is_ours,
                "a file without rows is there"
            );
            for (row, values) in (0..).zip(rows_at(&loaded, path, file.bytes).await) {
                if !vector.is_some_and(|vector| vector.contains(row)) {
                    let twice = found.insert(values.0, values);
                    assert_eq!(twice, None, "key {} is there twice", values.0);
                }
            }
        }
        assert_eq!(found, self.model);
        assert_eq!(live.equality_deletes, 0);
        let own = live
            .positions()
            .filter(|one| one.file.file_path().contains("/frazil-"));
        let scoped = own.map(|one| one.file.referenced_data_file().unwrap());
        let scoped: Vec<String> = scoped.collect();
        let once: BTreeSet<&String> = scoped.iter().collect();
        assert_eq!(once.len(), scoped.len(), "one delete file for a data file");
        check_summary(&loaded, &live);
        let rows: Vec<_> = self.model.values().collect();
        let metadata = loaded.metadata_location.clone().unwrap();
        self.steps
            .push(json!({ "metadata": metadata, "rows": rows }));
    }
}

/// A snapshot of another writer: what it adds and removes, and what that does to the rows.
#[derive(Debug)]
pub(super) struct Foreign {
    data: Vec<DataFile>,
    deletes: Vec<DataFile>,
    removed: Removed,
    model: Vec<Op>,
    /// What else it does to the table.
    pub(super) updates: Vec<TableUpdate>,
}

impl Foreign {
    /// What it does to the rows.
    pub(super) fn effect(&self) -> &[Op] {
        &self.model
    }

    /// Commits it on whatever is there, and tells what it does to the rows.
    pub(super) async fn commit(self, catalog: &Arc<dyn Catalog>, ident: &TableIdent) -> Vec<Op> {
        let Foreign {
            data,
            deletes,
            removed,
            model,
            updates: more,
        } = self;
        let loaded = catalog.load_table(ident).await.unwrap();
        let (metadata, storage) = (&loaded.metadata, &loaded.storage);
        let snapshot_id = (Uuid::now_v7().as_u128() >> 66) as i64;
        let id = Uuid::now_v7();
        let mut added = FileCounts::default();
        let mut new = Vec::new();
        for (index, files) in (0..).zip([data, deletes]) {
            if files.is_empty() {
                continue;
            }
            files
                .iter()
                .for_each(|file| added.add(&FileCounts::of_file(file)));
            let identity = ManifestIdentity {
                wid: "foreign".into(),
                session: id,
                seq: 0,
                index,
                ranges: Ranges::default(),
            };
            let layout = Layout::of(metadata);
            let sealed = write_manifest(storage, metadata, layout, files, &identity)
                .await
                .unwrap();
            new.push(sealed.manifest);
        }
        let base = plan::base(metadata, "main");
        let old = old_manifests(storage, &base, None).await.unwrap();
        let place = ReplacePlace {
            storage,
            metadata,
            commit_id: id,
            snapshot_id,
            among: None,
            kept: &|_| None,
        };
        let replaced = replace_entries(&place, old, &removed).await.unwrap();
        let list = format!("{}/metadata/snap-{snapshot_id}.avro", metadata.location());
        let rows = write_manifest_list(storage, &base, snapshot_id, new, replaced.manifests, &list);
        let rows = rows.await.unwrap();
        let parent = base.parent.as_ref().map(|parent| parent.summary());
        let entries = counters(&added, &replaced.counts, parent);
        let entries = entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value));
        let builder = Snapshot::builder()
            .with_snapshot_id(snapshot_id)
            .with_parent_snapshot_id(base.parent_id())
            .with_sequence_number(base.sequence_number)
            .with_timestamp_ms(metadata.last_updated_ms() + 1)
            .with_manifest_list(list)
            .with_summary(Summary {
                operation: operation(&added, &replaced.counts),
                additional_properties: entries.collect(),
            })
            .with_schema_id(metadata.current_schema_id());
        let snapshot = match rows.row_range {
            Some((first, count)) => builder.with_row_range(first, count).build(),
            None => builder.build(),
        };
        let retention = SnapshotRetention::Branch {
            min_snapshots_to_keep: None,
            max_snapshot_age_ms: None,
            max_ref_age_ms: None,
        };
        let mut updates = more;
        updates.extend([
            TableUpdate::AddSnapshot { snapshot },
            TableUpdate::SetSnapshotRef {
                ref_name: "main".into(),
                reference: SnapshotReference::new(snapshot_id, retention),
            },
        ]);
        change(catalog, &loaded, updates).await;
        model
    }
}

/// Changes the metadata of a table.
async fn change(catalog: &Arc<dyn Catalog>, loaded: &LoadedTable, updates: Vec<TableUpdate>) {
    let commit = TableCommit {
        requirements: vec![TableRequirement::UuidMatch {
            uuid: loaded.metadata.uuid(),
        }],
        updates,
        idempotency_key: Uuid::now_v7(),
    };
    let done = catalog.commit(loaded, commit).await;
    assert!(matches!(done, CommitOutcome::Committed(_)), "{done:?}");
}

/// What the table is made of.
fn table_of(version: FormatVersion) -> CreateTable {
    let column = |id, name, kind| Arc::new(NestedField::required(id, name, Type::Primitive(kind)));
    let schema = Schema::builder()
        .with_fields([
            column(1, "id", PrimitiveType::Long),
            column(2, "part", PrimitiveType::Int),
            column(3, "v", PrimitiveType::Long),
        ])
        .build()
        .unwrap();
    let spec = UnboundPartitionSpec::builder()
        .add_partition_field(2, "part", Transform::Identity)
        .unwrap()
        .build();
    CreateTable {
        schema,
        partition_spec: Some(spec),
        ..create_table(version)
    }
}

/// Makes a committer of a table with changes.
pub(super) fn committer_of(catalog: Arc<dyn Catalog>, ident: &TableIdent) -> TableCommitter {
    committer(catalog, ident, WID).with_changes(key_of_it(), Memory::new(None))
}

/// The deleted rows of all data files.
async fn known_of(loaded: &LoadedTable, live: &LiveFiles) -> BTreeMap<Arc<str>, KnownDeletes> {
    let paths: BTreeSet<Arc<str>> = live.data.keys().cloned().collect();
    let known = live.deletes_of(&loaded.storage, &paths, |_| None);
    known.await.unwrap()
}

async fn read_rows(loaded: &LoadedTable, file: &DataFile) -> Vec<Row> {
    rows_at(loaded, file.file_path(), file.file_size_in_bytes()).await
}

async fn rows_at(loaded: &LoadedTable, path: &str, bytes: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    let each = |_: u64, columns: &[ArrayRef]| {
        let ids = columns[0].as_primitive::<Int64Type>().values();
        let parts = columns[1].as_primitive::<Int32Type>().values();
        let values = columns[2].as_primitive::<Int64Type>().values();
        let all = ids.iter().zip(parts).zip(values);
        rows.extend(all.map(|((id, part), value)| (*id, *part, *value)));
        Ok(())
    };
    let read = read_key_columns(&loaded.storage, path, bytes, &[1, 2, 3], each);
    assert_eq!(read.await.unwrap(), rows.len() as u64);
    rows
}

/// A position delete file of these rows.
fn shared_positions(rows: &[(Arc<str>, i64)]) -> bytes::Bytes {
    let paths = StringArray::from_iter_values(rows.iter().map(|(path, _)| path));
    let positions = Int64Array::from_iter_values(rows.iter().map(|(_, row)| *row));
    let columns: [(&str, ArrayRef); 2] =
        [("file_path", Arc::new(paths)), ("pos", Arc::new(positions))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes.into()
}

/// The bytes of a key: a whole number in as few as hold it.
fn key_bytes(id: i64) -> Vec<u8> {
    assert!(id >= 0);
    let bytes = id.to_be_bytes();
    let first = (0..8).find(|at| bytes[*at] != 0).unwrap_or(8);
    let sign = usize::from(first < 8 && bytes[first] >= 0x80);
    bytes[first - sign..].to_vec()
}

fn check_summary(loaded: &LoadedTable, live: &LiveFiles) {
    let head = loaded.metadata.current_snapshot().unwrap();
    let said = |key: &str| head.summary().additional_properties.get(key).cloned();
    let number = |number: usize| Some(number.to_string());
    assert_eq!(said("total-data-files"), number(live.data.len()));
    let deletes = live.vectors.len() + live.positions().count();
    assert_eq!(said("total-delete-files"), number(deletes));
    let rows = live.data.values().map(|file| file.rows);
    assert_eq!(said("total-records"), number(rows.sum::<u64>() as usize));
    let all = live.vectors.values().chain(live.positions());
    let deleted = all.map(|delete| delete.file.record_count());
    assert_eq!(
        said("total-position-deletes"),
        number(deleted.sum::<u64>() as usize)
    );
}
