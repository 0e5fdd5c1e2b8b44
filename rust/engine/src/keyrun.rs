//! Key runs: which key each change of a segment is about, and where its new row lies.
//!
//! A task writes the rows of upserts into data files and does not know which rows they replace. At the
//! seal it writes one file more, in order of the keys, which the coordinator resolves with the index
//! of the table when it commits.
//!
//! | column | type | holds |
//! |---|---|---|
//! | `key` | fixed\[16\] | the key's number, big-endian |
//! | `order` | binary, optional | what orders the change in its source |
//! | `flags` | int | 1: the key has a new row; 2: it is what a snapshot of the source found; 4: the source's table was emptied, and there is no key; 8: the row is pending (with 1), or only marks the key's row as deleted; 16: the row goes because it gets another key, which another record tells; 32: which its record tells, and the row lacks values |
//! | `partition` | int | the source partition, by its place among the segment's ranges |
//! | `offset` | long | the record's offset |
//! | `file`, `row` | int, optional | the new row: the file's place among the segment's (manifests in their order, entries in theirs; a pending row's among its pending files) and the row's in the file |
//!
//! Changes of one key stand in the order in which they came. What the keys are numbers of stands in
//! the file, and is checked: numbers of another form or of other columns are other keys. So do the places of
//! the pending files ([`frazil_core::change::pending`]), as `[[path, bytes, rows], …]`.

mod owner;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, FixedSizeBinaryBuilder, PrimitiveBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, Int32Array, Int64Array};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
pub use frazil_core::change::keyrun::{Effect, KeyRun, RunChange};
use frazil_core::change::{Order, PendingFile};
use frazil_core::control::message::Ranges;
use frazil_core::control::segment::KeyRunRef;
use frazil_core::index::pieces::MoreChanges;
use frazil_core::index::{KeyForm, KeyNumber, Location};
use frazil_core::limits::{KEY_RUN_BYTES_MAX, KEY_RUN_ROWS_MAX, ORDER_BYTES_MAX};
use frazil_core::{Result, SinkError};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::redact;
use crate::storage::TableStorage;

pub use owner::{KeyRunOwner, read_owner};

/// How the name of a key run ends.
pub const NAME_ENDS: &str = "-keys.parquet";

const UPSERT: i32 = 1;
const SNAPSHOT: i32 = 2;
const TRUNCATION: i32 = 4;
const PENDING: i32 = 8;
const LEAVES: i32 = 16;
const MOVES: i32 = 32;
const MARK_OF_MOVE: i32 = PENDING | MOVES;
const PENDING_ROW: i32 = UPSERT | PENDING;
const KEY_BYTES: i32 = 16;
const BATCH_ROWS: usize = 8_192;
/// Changes of one page: a commit holds a page of each of its runs.
const PAGE_ROWS: usize = 4_096;

/// Entries of the file's metadata.
const TABLE: &str = "frazil.table-uuid";
const WID: &str = "frazil.wid";
const SESSION: &str = "frazil.session";
const SEQUENCE: &str = "frazil.seq";
const FORM: &str = "frazil.key-form";
const KEY: &str = "frazil.key";
const RANGES_DIGEST: &str = "frazil.ranges-sha256";
const RANGES: &str = "frazil.ranges";
const PENDING_FILES: &str = "frazil.pending";

/// Whose changes a run has, and what its keys are; part of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRunIdentity {
    /// The table's UUID.
    pub table: Uuid,
    /// The writer's id.
    pub wid: String,
    /// The session.
    pub session: Uuid,
    /// The segment's number.
    pub seq: u64,
    /// How keys become numbers.
    pub form: KeyForm,
    /// The columns of the key and their classes (`KeyPlan::fingerprint`).
    pub key: String,
    /// The offsets of the segment, which the run vouches for. They stand in it when they are too long
    /// for a message.
    pub ranges: Ranges,
}

impl KeyRunIdentity {
    fn entries(&self) -> [(&'static str, String); 7] {
        [
            (TABLE, self.table.to_string()),
            (WID, self.wid.clone()),
            (SESSION, self.session.to_string()),
            (SEQUENCE, self.seq.to_string()),
            (FORM, self.form.code().to_string()),
            (KEY, self.key.clone()),
            (RANGES_DIGEST, self.ranges.digest()),
        ]
    }
}

/// What the changes of a run may name.
#[derive(Debug, Clone)]
pub struct KeyRunBounds {
    /// How many ranges the segment has.
    pub partitions: usize,
    /// The rows of each of the segment's files.
    pub file_rows: Arc<[u64]>,
}

/// Sorts `run`, writes it to `location` and says how to find it again.
///
/// # Errors
///
/// What the store says.
pub async fn write_key_run(
    storage: &TableStorage,
    location: &str,
    run: &mut KeyRun,
    identity: &KeyRunIdentity,
) -> Result<KeyRunRef> {
    // Millions of changes take seconds, which others need not wait for.
    let (mut sorted, owner) = (std::mem::take(run), identity.clone());
    let encoded = tokio::task::spawn_blocking(move || {
        sorted.sort();
        let bytes = encode(&sorted, &owner);
        (sorted, bytes)
    });
    let encoded = encoded.await.map_err(|error| {
        SinkError::internal("the keys of changes could not be encoded").caused_by(error)
    })?;
    *run = encoded.0;
    let bytes = encoded.1?;
    let made = KeyRunRef {
        path: location.to_owned(),
        len: bytes.len() as u64,
        sha256: Sha256::digest(&bytes).into(),
        rows: run.len() as u64,
        topic_partitions: BTreeMap::new(),
    };
    storage.put(location, Bytes::from(bytes)).await?;
    Ok(made)
}

/// Fetches the run that `announced` names, and nothing but that one: its bytes and its owner are checked.
///
/// # Errors
///
/// `KEY_RUN_UNUSABLE`, or what the store says.
pub async fn fetch_key_run(
    storage: &TableStorage,
    announced: &KeyRunRef,
    identity: &KeyRunIdentity,
    bounds: KeyRunBounds,
) -> Result<StoredRun> {
    let mut run = StoredRun {
        pending: Vec::new(),
        pending_rows: Vec::new(),
        bytes: fetch(storage, announced).await?,
        path: announced.path.clone(),
        rows: announced.rows,
        form: identity.form,
        bounds,
    };
    match run.check_owner(identity) {
        Ok(()) => Ok(run),
        Err(error) => Err(run.named(error)),
    }
}

/// A run as it was stored, to be read from its beginning as often as is needed.
#[derive(Debug, Clone)]
pub struct StoredRun {
    bytes: Bytes,
    path: String,
    rows: u64,
    form: KeyForm,
    bounds: KeyRunBounds,
    /// The files with pending rows.
    pending: Vec<PendingFile>,
    /// Their rows.
    pending_rows: Vec<u64>,
}

impl StoredRun {
    /// Returns the files with pending rows, by whose places changes name their rows.
    pub fn pending(&self) -> &[PendingFile] {
        &self.pending
    }

    /// Returns the bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.bounds.file_rows.len() * size_of::<u64>()
    }

    /// Begins to read its changes, `step` at a time. Its numbers are checked as they are read.
    ///
    /// # Errors
    ///
    /// `KEY_RUN_UNUSABLE`.
    pub fn changes(&self, step: usize) -> Result<StoredChanges<'_>> {
        let reader = self.open(step).map_err(|error| self.named(error))?;
        Ok(StoredChanges {
            run: self,
            reader,
            last: 0,
            count: 0,
        })
    }

    fn check_owner(&mut self, identity: &KeyRunIdentity) -> Result<()> {
        let builder = open(self.bytes.clone())?;
        let count = builder.metadata().file_metadata().num_rows();
        if u64::try_from(count) != Ok(self.rows) {
            return Err(unusable("it has another number of changes than announced"));
        }
        for (key, value) in identity.entries() {
            if said(builder.metadata(), key) != Some(&value) {
                return Err(
                    unusable("it belongs to another segment, or has other keys").with("entry", key)
                );
            }
        }
        self.pending = pending_files(builder.metadata())?;
        self.pending_rows = self.pending.iter().map(|file| file.rows).collect();
        Ok(())
    }

    fn open(&self, step: usize) -> Result<ParquetRecordBatchReader> {
        let reader = open(self.bytes.clone())?.with_batch_size(step).build();
        let reader = reader.map_err(|error| damaged(&error))?;
        let columns = reader.schema();
        let expected = schema();
        let pairs = columns.fields().iter().zip(expected.fields());
        let mut same = pairs
            .map(|(one, other)| one.name() == other.name() && one.data_type() == other.data_type());
        match columns.fields().len() == expected.fields().len() && same.all(|same| same) {
            true => Ok(reader),
            false => Err(unusable("it does not have the columns of one")),
        }
    }

    fn named(&self, error: SinkError) -> SinkError {
        error.with("file", redact::foreign(&self.path))
    }
}

/// The changes of a run, as far as they were read.
pub struct StoredChanges<'r> {
    run: &'r StoredRun,
    reader: ParquetRecordBatchReader,
    /// The last key.
    last: u128,
    count: u64,
}

impl StoredChanges<'_> {
    fn read(&mut self, into: &mut KeyRun) -> Result<bool> {
        let Some(batch) = self.reader.next() else {
            return match self.count == self.run.rows {
                true => Ok(false),
                false => Err(unusable("it is not complete")),
            };
        };
        let batch = batch.map_err(|error| damaged(&error))?;
        let part = Part::of(&batch).ok_or_else(|| unusable("a value is missing"))?;
        for row in 0..batch.num_rows() {
            let key = part.read(row, self.run, into)?;
            if key < self.last {
                return Err(unusable("its keys are not in order"));
            }
            self.last = key;
        }
        self.count += batch.num_rows() as u64;
        Ok(true)
    }
}

impl MoreChanges for StoredChanges<'_> {
    fn more(&mut self, run: &mut KeyRun) -> Result<bool> {
        self.read(run).map_err(|error| self.run.named(error))
    }
}

async fn fetch(storage: &TableStorage, announced: &KeyRunRef) -> Result<Bytes> {
    check_length(storage, announced).await?;
    let bytes = storage.get(&announced.path).await?;
    let digest: [u8; 32] = Sha256::digest(&bytes).into();
    if bytes.len() as u64 != announced.len || digest != announced.sha256 {
        let error = unusable("its bytes are not those that were announced");
        return Err(error.with("file", redact::foreign(&announced.path)));
    }
    Ok(bytes)
}

/// Checks that the run is no longer than one may be, and as long as was announced.
async fn check_length(storage: &TableStorage, announced: &KeyRunRef) -> Result<()> {
    let unusable = |what: &str| unusable(what).with("file", redact::foreign(&announced.path));
    if announced.len > KEY_RUN_BYTES_MAX || announced.rows > KEY_RUN_ROWS_MAX as u64 {
        return Err(unusable("it is longer than a segment's may be"));
    }
    let length = storage.length(&announced.path).await?;
    match length == announced.len {
        true => Ok(()),
        false => Err(unusable("it has another length than was announced")),
    }
}

fn unusable(what: &str) -> SinkError {
    SinkError::fatal(
        "KEY_RUN_UNUSABLE",
        format!("the file with the keys of a segment's changes cannot be used: {what}"),
    )
}

fn schema() -> SchemaRef {
    let column = Field::new;
    Arc::new(Schema::new(vec![
        column("key", DataType::FixedSizeBinary(KEY_BYTES), false),
        column("order", DataType::Binary, true),
        column("flags", DataType::Int32, false),
        column("partition", DataType::Int32, false),
        column("offset", DataType::Int64, false),
        column("file", DataType::Int32, true),
        column("row", DataType::Int32, true),
    ]))
}

fn encode(run: &KeyRun, identity: &KeyRunIdentity) -> Result<Vec<u8>> {
    let failed = |error: &(dyn std::error::Error + Send + Sync)| {
        let message = "the keys of changes could not be encoded as Parquet";
        SinkError::fatal("PARQUET_ENCODE_FAILED", message).with("reason", error.to_string())
    };
    let long = Some(&identity.ranges).filter(|ranges| !ranges.fit());
    let long = long.map(|ranges| (RANGES, ranges.to_text()));
    let pending = Some(run.pending()).filter(|files| !files.is_empty());
    let pending = pending.map(|files| (PENDING_FILES, pending_text(files)));
    let entries = identity.entries().into_iter().chain(long).chain(pending);
    let entries = entries.map(|(key, value)| KeyValue::new(key.to_owned(), value));
    let level = ZstdLevel::try_new(1).map_err(|error| failed(&error))?;
    let properties = WriterProperties::builder()
        .set_created_by(concat!("frazil version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(entries.collect()))
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_data_page_row_count_limit(PAGE_ROWS)
        // No key is there often.
        .set_column_dictionary_enabled("key".into(), false)
        .build();
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        .with_skip_arrow_metadata(true);
    let mut bytes = Vec::new();
    let writer = ArrowWriter::try_new_with_options(&mut bytes, schema(), options);
    let mut writer = writer.map_err(|error| failed(&error))?;
    for changes in run.changes().chunks(BATCH_ROWS) {
        let batch = batch(run, changes)?;
        writer.write(&batch).map_err(|error| failed(&error))?;
    }
    writer.close().map_err(|error| failed(&error))?;
    Ok(bytes)
}

fn pending_text(files: &[PendingFile]) -> String {
    let files = files
        .iter()
        .map(|file| json!([file.path, file.bytes, file.rows]));
    Value::from_iter(files).to_string()
}

fn pending_files(footer: &ParquetMetaData) -> Result<Vec<PendingFile>> {
    let Some(text) = said(footer, PENDING_FILES) else {
        return Ok(Vec::new());
    };
    let files: Vec<(String, u64, u64)> =
        serde_json::from_str(text).map_err(|_| unusable("its pending files are malformed"))?;
    let files = files
        .into_iter()
        .map(|(path, bytes, rows)| PendingFile { path, bytes, rows });
    Ok(files.collect())
}

fn batch(run: &KeyRun, changes: &[RunChange]) -> Result<RecordBatch> {
    let internal = |error| SinkError::internal("keys of changes make no batch").caused_by(error);
    let count = changes.len();
    let mut keys = FixedSizeBinaryBuilder::with_capacity(count, KEY_BYTES);
    let mut orders = BinaryBuilder::with_capacity(count, 0);
    let number = || PrimitiveBuilder::<Int32Type>::with_capacity(count);
    let (mut files, mut rows) = (number(), number());
    let small = |number: u32| {
        i32::try_from(number).map_err(|_| SinkError::internal("a segment has too many rows"))
    };
    for change in changes {
        keys.append_value(change.key.0.to_be_bytes())
            .map_err(internal)?;
        orders.append_option(run.order(change).map(|order| order.bytes()));
        let at = match change.effect {
            Effect::Upsert(at) | Effect::Pending(at) | Effect::Mark(at) => {
                Some((small(at.file)?, small(at.row)?))
            }
            Effect::Delete | Effect::Truncate => None,
        };
        files.append_option(at.map(|(file, _)| file));
        rows.append_option(at.map(|(_, row)| row));
    }
    let partitions = changes.iter().map(|change| small(change.partition));
    let partitions = partitions.collect::<Result<Vec<i32>>>()?;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(keys.finish()),
        Arc::new(orders.finish()),
        Arc::new(Int32Array::from_iter_values(changes.iter().map(flags_of))),
        Arc::new(Int32Array::from(partitions)),
        Arc::new(Int64Array::from_iter_values(
            changes.iter().map(|change| change.offset),
        )),
        Arc::new(files.finish()),
        Arc::new(rows.finish()),
    ];
    RecordBatch::try_new(schema(), columns).map_err(internal)
}

fn flags_of(change: &RunChange) -> i32 {
    let effect = match change.effect {
        Effect::Delete => 0,
        Effect::Upsert(_) => UPSERT,
        Effect::Pending(_) => PENDING_ROW,
        Effect::Mark(_) => PENDING,
        Effect::Truncate => TRUNCATION,
    };
    let snapshot = if change.is_snapshot { SNAPSHOT } else { 0 };
    let leaves = if change.leaves { LEAVES } else { 0 };
    let moves = if change.moves { MOVES } else { 0 };
    effect | snapshot | leaves | moves
}

type Builder = ParquetRecordBatchReaderBuilder<Bytes>;

fn open(bytes: Bytes) -> Result<Builder> {
    let length = bytes.len() as u64;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = Builder::try_new_with_options(bytes, options);
    let builder = builder.map_err(|error| damaged(&error))?;
    // The reader takes these for granted.
    let groups = builder.metadata().row_groups().iter();
    let mut columns = groups.flat_map(|group| group.columns());
    let lies_inside = columns.all(|column| {
        let start = column.dictionary_page_offset().unwrap_or_default();
        let places = [start, column.data_page_offset(), column.compressed_size()];
        let places = places.map(|place| u64::try_from(place).unwrap_or(u64::MAX));
        places.iter().all(|place| *place <= length)
    });
    match lies_inside {
        true => Ok(builder),
        false => Err(unusable("its columns are not in it")),
    }
}

fn damaged(error: &dyn std::error::Error) -> SinkError {
    unusable("it is no Parquet file that can be read").with("reason", error)
}

/// Returns an entry of the file's metadata.
fn said<'f>(footer: &'f ParquetMetaData, key: &str) -> Option<&'f String> {
    let entries = footer.file_metadata().key_value_metadata();
    let found = entries.into_iter().flatten().find(|entry| entry.key == key);
    found.and_then(|entry| entry.value.as_ref())
}

/// The columns of a batch that was read.
struct Part<'b> {
    keys: &'b FixedSizeBinaryArray,
    orders: &'b BinaryArray,
    flags: &'b Int32Array,
    partitions: &'b Int32Array,
    offsets: &'b Int64Array,
    files: &'b Int32Array,
    rows: &'b Int32Array,
}

impl<'b> Part<'b> {
    fn of(batch: &'b RecordBatch) -> Option<Self> {
        let [keys, orders, flags, partitions, offsets, files, rows] = batch.columns() else {
            return None;
        };
        let required = [keys, flags, partitions, offsets];
        if required.iter().any(|column| column.null_count() > 0) {
            return None;
        }
        Some(Part {
            keys: keys.as_fixed_size_binary_opt()?,
            orders: orders.as_binary_opt()?,
            flags: flags.as_primitive_opt::<Int32Type>()?,
            partitions: partitions.as_primitive_opt::<Int32Type>()?,
            offsets: offsets.as_primitive_opt::<Int64Type>()?,
            files: files.as_primitive_opt::<Int32Type>()?,
            rows: rows.as_primitive_opt::<Int32Type>()?,
        })
    }

    fn read(
        &self,
        row: usize,
        StoredRun {
            form,
            bounds,
            pending_rows,
            ..
        }: &StoredRun,
        run: &mut KeyRun,
    ) -> Result<u128> {
        let key = <[u8; KEY_BYTES as usize]>::try_from(self.keys.value(row));
        let key = key.map(u128::from_be_bytes).unwrap_or(u128::MAX);
        if key >> form.bits() != 0 {
            return Err(unusable("its keys are not in order"));
        }
        let flags = self.flags.value(row);
        let is_null = (self.files.is_null(row), self.rows.is_null(row));
        let effect = match (flags & !SNAPSHOT, is_null) {
            (0 | LEAVES | MOVES, (true, true)) => Effect::Delete,
            (TRUNCATION, (true, true)) if key == 0 => Effect::Truncate,
            (UPSERT, (false, false)) => {
                let at = (self.files.value(row), self.rows.value(row));
                Effect::Upsert(location(at, &bounds.file_rows)?)
            }
            (PENDING_ROW, (false, false)) => {
                let at = (self.files.value(row), self.rows.value(row));
                Effect::Pending(location(at, pending_rows)?)
            }
            (PENDING | MARK_OF_MOVE, (false, false)) => {
                let at = (self.files.value(row), self.rows.value(row));
                Effect::Mark(location(at, pending_rows)?)
            }
            _ => return Err(unusable("a change does what there is not").with("flags", flags)),
        };
        let partition = u32::try_from(self.partitions.value(row)).ok();
        let partition = partition.filter(|one| (*one as usize) < bounds.partitions);
        let (Some(partition), offset @ 0..) = (partition, self.offsets.value(row)) else {
            return Err(unusable("a change is of no record of its segment"));
        };
        let order = match self.orders.is_null(row) {
            true => None,
            false => Some(self.orders.value(row)),
        };
        if order.is_some_and(|order| order.is_empty() || order.len() > ORDER_BYTES_MAX) {
            return Err(unusable("the order of a change has a wrong length"));
        }
        let change = RunChange::new(KeyNumber(key), effect, (partition, offset));
        let change = change.of_snapshot(flags & SNAPSHOT != 0);
        let change = change
            .leaving(flags & LEAVES != 0)
            .moving(flags & MOVES != 0);
        run.push(&change, order.map(Order::of))?;
        Ok(key)
    }
}

fn location((file, row): (i32, i32), file_rows: &[u64]) -> Result<Location> {
    let at = u32::try_from(file).ok().zip(u32::try_from(row).ok());
    let at = at.filter(|(file, row)| {
        let rows = file_rows.get(usize::try_from(*file).unwrap_or(usize::MAX));
        rows.is_some_and(|rows| u64::from(*row) < *rows)
    });
    at.map(|(file, row)| Location { file, row })
        .ok_or_else(|| unusable("a row is in no file of its segment"))
}

#[cfg(test)]
#[path = "keyrun_tests.rs"]
mod tests;
