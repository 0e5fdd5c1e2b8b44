//! A log of changes, read in the order of its records, partition by partition.
//!
//! Within a partition, files are opened by the lowest offset that they have of it, and those whose offsets overlap
//! are merged: of each a batch is in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::SchemaRef as ArrowSchemaRef;
use frazil_core::commit::plan;
use frazil_core::commit::recover::state_of;
use frazil_core::commit::state::WriterState;
use frazil_core::config::table::MetadataSource;
use frazil_core::config::{SinkConfig, TableConfig};
use frazil_core::limits::BLOCK_ROWS_MAX;
use frazil_core::offsets::TopicPartition;
use frazil_core::schema::arrow::arrow_schema;
use frazil_core::wire::SourceSchema;
use frazil_core::wire::replay::{keys_of, schema_of};
use frazil_core::{Result, SinkError};
use iceberg::spec::{NestedFieldRef, Operation, SchemaRef, TableMetadata};

use crate::catalog::LoadedTable;
use crate::commit::manifests_of;
use crate::delete::LiveFiles;
use crate::index::{WholeRows, read_key_columns, whole_rows};
use crate::rows::aligned;
use crate::storage::TableStorage;

/// Files of one partition whose offsets may overlap.
const OPEN_MAX: usize = 256;

/// The offsets of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) lowest: i64,
    pub(super) highest: i64,
    pub(super) rows: u64,
}

impl Extent {
    fn join(&mut self, other: Extent) {
        self.lowest = self.lowest.min(other.lowest);
        self.highest = self.highest.max(other.highest);
        self.rows += other.rows;
    }

    fn with(extent: Option<Extent>, offset: i64) -> Extent {
        let extent = extent.unwrap_or(Extent {
            lowest: offset,
            highest: offset,
            rows: 0,
        });
        Extent {
            lowest: extent.lowest.min(offset),
            highest: extent.highest.max(offset),
            rows: extent.rows + 1,
        }
    }
}

#[derive(Debug)]
struct LogFile {
    path: Arc<str>,
    bytes: u64,
    extents: BTreeMap<TopicPartition, Extent>,
}

/// Where the columns of a record's place are among those of the log.
#[derive(Debug, Clone, Copy)]
struct Places {
    topic: usize,
    partition: usize,
    offset: usize,
    key: Option<usize>,
}

/// A log whose offsets are known.
pub(super) struct Log {
    storage: TableStorage,
    /// The schema of its table, and the same in Arrow.
    schema: SchemaRef,
    arrow: ArrowSchemaRef,
    places: Places,
    /// The columns that are the values of records.
    values: Vec<usize>,
    value_schema: SourceSchema,
    files: Vec<LogFile>,
    state: WriterState,
    pub(super) extents: BTreeMap<TopicPartition, Extent>,
}

/// Records that follow each other in one file.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) columns: Vec<ArrayRef>,
    pub(super) keys: Option<ArrayRef>,
    /// Rows of these with their offsets.
    pub(super) rows: Vec<(usize, i64)>,
}

fn not_whole(why: impl Into<String>) -> SinkError {
    SinkError::fatal(
        "LOG_NOT_WHOLE",
        format!(
            "the log does not have all changes from the beginning: {}",
            why.into()
        ),
    )
}

impl Log {
    /// Reads where the records of the log came from.
    ///
    /// # Errors
    ///
    /// `LOG_COLUMNS_MISSING`, `LOG_NOT_WHOLE`, `REPLAY_TYPE_UNSUPPORTED`, or what the table or the store says.
    pub(super) async fn open(
        config: &SinkConfig,
        table: &TableConfig,
        loaded: &LoadedTable,
    ) -> Result<Log> {
        let LoadedTable {
            metadata, storage, ..
        } = loaded;
        let (places, values) = places_of(table, metadata)?;
        let state = state_of(metadata, &config.wid, &table.branch)?;
        let state = state.ok_or_else(|| not_whole("this connector has written nothing to it"))?;
        check_history(metadata, &table.branch)?;
        let head = plan::base(metadata, &table.branch).parent;
        let head = head.ok_or_else(|| not_whole("it has no rows"))?;
        let manifests = manifests_of(storage, &head, metadata.format_version()).await?;
        let live = LiveFiles::read(storage, &manifests).await?;
        let paths: BTreeSet<Arc<str>> = live.data.keys().cloned().collect();
        let known = live.deletes_of(storage, &paths, |_| None).await?;
        if live.equality_deletes > 0 || known.values().any(|known| !known.vector.is_empty()) {
            return Err(not_whole("somebody has deleted rows of it"));
        }
        let fields = metadata.current_schema().as_struct().fields();
        let ids = [places.topic, places.partition, places.offset];
        let ids: Vec<i32> = ids
            .iter()
            .filter_map(|at| Some(fields.get(*at)?.id))
            .collect();
        let mut log = Log {
            storage: storage.clone(),
            schema: Arc::clone(metadata.current_schema()),
            arrow: arrow_schema(metadata.current_schema())?,
            places,
            value_schema: value_schema(fields, &values)?,
            values,
            files: Vec::with_capacity(live.data.len()),
            state,
            extents: BTreeMap::new(),
        };
        for (path, file) in &live.data {
            let mut extents = BTreeMap::new();
            read_key_columns(storage, path, file.bytes, &ids, |_, columns| {
                count(columns, &mut extents)
            })
            .await?;
            for (partition, extent) in &extents {
                let all = log.extents.entry(partition.clone());
                all.and_modify(|all| all.join(*extent)).or_insert(*extent);
            }
            log.files.push(LogFile {
                path: Arc::clone(path),
                bytes: file.bytes,
                extents,
            });
        }
        Ok(log)
    }

    /// Returns the schema of the records' values.
    pub(super) fn value_schema(&self) -> &SourceSchema {
        &self.value_schema
    }

    /// Tells whether records have their keys.
    pub(super) fn has_keys(&self) -> bool {
        self.places.key.is_some()
    }

    /// Checks that each partition is there from its beginning, or from where `target` has it on, and up to the
    /// offset that the log itself says it has.
    ///
    /// # Errors
    ///
    /// `LOG_NOT_WHOLE`.
    pub(super) fn check_whole(&self, target: Option<&WriterState>, from_first: bool) -> Result<()> {
        for (partition, extent) in &self.extents {
            let has = target.and_then(|state| state.bound(partition)).unwrap_or(0);
            if extent.lowest > has && !from_first {
                let why = format!(
                    "its first row of the partition has offset {}; when the topic began there, or what came \
                     before were no changes, say `--from-first`",
                    extent.lowest
                );
                return Err(not_whole(why).with("partition", partition));
            }
        }
        for (partition, bound) in self.state.bounds() {
            let highest = self.extents.get(&partition).map(|extent| extent.highest);
            if highest.and_then(|highest| highest.checked_add(1)) != Some(bound) {
                let why = format!("its state says that it has the partition up to offset {bound}");
                let last = highest.map_or("none".to_owned(), |last| last.to_string());
                return Err(not_whole(why)
                    .with("partition", partition)
                    .with("last", last));
            }
        }
        Ok(())
    }

    /// Begins to read a partition.
    pub(super) fn read(&self, partition: &TopicPartition) -> Merge<'_> {
        let files = self.files.iter();
        let mut waiting: Vec<(Extent, &LogFile)> = files
            .filter_map(|file| Some((*file.extents.get(partition)?, file)))
            .collect();
        waiting.sort_by_key(|(extent, file)| (extent.lowest, Arc::clone(&file.path)));
        Merge {
            log: self,
            partition: partition.clone(),
            waiting: waiting.into(),
            open: Vec::new(),
            last: None,
        }
    }
}

fn places_of(table: &TableConfig, metadata: &TableMetadata) -> Result<(Places, Vec<usize>)> {
    let fields = metadata.current_schema().as_struct().fields();
    let place = |name: &str| fields.iter().position(|field| field.name == name);
    let column = |source: &MetadataSource| {
        let mut columns = table.metadata_columns.iter();
        let column = columns.find(|column| column.source == *source)?;
        place(&column.name)
    };
    let needed = |source: MetadataSource, name: &str| {
        column(&source).ok_or_else(|| {
            let message = format!(
                "the log does not say where its records came from: `{name}` has to be among \
                 `iceberg.tables.metadata-columns` from its first row on"
            );
            SinkError::config("LOG_COLUMNS_MISSING", message).with("table", &table.name)
        })
    };
    let places = Places {
        topic: needed(MetadataSource::Topic, "_topic")?,
        partition: needed(MetadataSource::Partition, "_partition")?,
        offset: needed(MetadataSource::Offset, "_offset")?,
        key: column(&MetadataSource::Key),
    };
    let own: BTreeSet<usize> = table
        .metadata_columns
        .iter()
        .filter_map(|column| place(&column.name))
        .collect();
    let values = (0..fields.len()).filter(|at| !own.contains(at));
    Ok((places, values.collect()))
}

fn value_schema(fields: &[NestedFieldRef], values: &[usize]) -> Result<SourceSchema> {
    let fields = values.iter().filter_map(|at| fields.get(*at));
    let fields = fields.map(|field| Ok((field.name.as_str(), schema_of(field)?)));
    Ok(SourceSchema::structure(fields.collect::<Result<Vec<_>>>()?))
}

/// Checks that nobody has removed rows, as far as the history goes.
fn check_history(metadata: &TableMetadata, branch: &str) -> Result<()> {
    let mut snapshot = metadata.snapshot_for_ref(branch).cloned();
    while let Some(one) = snapshot {
        let operation = &one.summary().operation;
        if !matches!(operation, Operation::Append | Operation::Replace) {
            let why = format!("a snapshot of it is no append but `{}`", operation.as_str());
            return Err(not_whole(why).with("snapshot", one.snapshot_id()));
        }
        let parent = one.parent_snapshot_id();
        snapshot = parent.and_then(|id| metadata.snapshot_by_id(id)).cloned();
    }
    Ok(())
}

/// Counts the offsets of rows, whose topics, partitions and offsets these are.
fn count(columns: &[ArrayRef], into: &mut BTreeMap<TopicPartition, Extent>) -> Result<()> {
    let [topics, partitions, offsets] = columns else {
        return Err(malformed());
    };
    let mut last: Option<(TopicPartition, Extent)> = None;
    for row in 0..offsets.len() {
        let (partition, offset) = place(topics, partitions, offsets, row).ok_or_else(malformed)?;
        let is_same = last
            .as_ref()
            .is_some_and(|(last, _)| *last.topic == *partition.0 && last.partition == partition.1);
        if !is_same {
            if let Some((of, extent)) = last.take() {
                into.insert(of, extent);
            }
            let of = TopicPartition::new(partition.0, partition.1);
            let before = into.get(&of).copied();
            last = Some((of, Extent::with(before, offset)));
        } else if let Some((_, extent)) = &mut last {
            *extent = Extent::with(Some(*extent), offset);
        }
    }
    if let Some((of, extent)) = last {
        into.insert(of, extent);
    }
    Ok(())
}

fn place<'a>(
    topics: &'a ArrayRef,
    partitions: &ArrayRef,
    offsets: &ArrayRef,
    row: usize,
) -> Option<((&'a str, i32), i64)> {
    let topics = topics.as_string_opt::<i32>()?;
    let partitions = partitions.as_primitive_opt::<Int32Type>()?;
    let offsets = offsets.as_primitive_opt::<Int64Type>()?;
    let is_there = topics.is_valid(row) && partitions.is_valid(row) && offsets.is_valid(row);
    is_there.then(|| {
        let partition = (topics.value(row), partitions.value(row));
        (partition, offsets.value(row))
    })
}

fn malformed() -> SinkError {
    not_whole("a row of it does not say from which topic, partition and offset it came")
}

/// A file that is being read.
struct Open {
    batches: WholeRows,
    columns: Vec<ArrayRef>,
    keys: Option<ArrayRef>,
    rows: VecDeque<(usize, i64)>,
}

/// The records of one partition, in their order.
pub(super) struct Merge<'l> {
    log: &'l Log,
    partition: TopicPartition,
    waiting: VecDeque<(Extent, &'l LogFile)>,
    open: Vec<Open>,
    last: Option<i64>,
}

impl Merge<'_> {
    /// Returns the next records, as many as a frame has at most; `None` after the last.
    ///
    /// # Errors
    ///
    /// `LOG_OUT_OF_ORDER`, or what the store says.
    pub(super) async fn next(&mut self) -> Result<Option<Records>> {
        self.open_next().await?;
        let heads = self.open.iter().enumerate();
        let heads = heads.filter_map(|(at, open)| Some((open.rows.front()?.1, at)));
        let mut heads: Vec<(i64, usize)> = heads.collect();
        heads.sort_unstable();
        let Some((_, first)) = heads.first().copied() else {
            return Ok(None);
        };
        let others = heads.get(1).map(|(offset, _)| *offset);
        let closed = self.waiting.front().map(|(extent, _)| extent.lowest);
        let end = others.into_iter().chain(closed).min().unwrap_or(i64::MAX);
        let mut rows = Vec::new();
        let Some(open) = self.open.get_mut(first) else {
            return Ok(None);
        };
        while let Some((row, offset)) = open.rows.front().copied()
            && (offset < end || rows.is_empty())
            && rows.len() < BLOCK_ROWS_MAX
        {
            if self.last.is_some_and(|last| last >= offset) {
                return Err(out_of_order()
                    .with("partition", &self.partition)
                    .with("offset", offset));
            }
            self.last = Some(offset);
            open.rows.pop_front();
            rows.push((row, offset));
        }
        Ok(Some(Records {
            columns: open.columns.clone(),
            keys: open.keys.clone(),
            rows,
        }))
    }

    /// Opens the files that have the next offset or may have one before it; goes on in those that are open.
    async fn open_next(&mut self) -> Result<()> {
        let mut kept = Vec::with_capacity(self.open.len());
        for mut open in std::mem::take(&mut self.open) {
            if self.refill(&mut open).await? {
                kept.push(open);
            }
        }
        self.open = kept;
        loop {
            let heads = self.open.iter().filter_map(|open| open.rows.front());
            let head = heads.map(|(_, offset)| *offset).min();
            let is_due =
                |(extent, _): &(Extent, &LogFile)| head.is_none_or(|head| extent.lowest <= head);
            if !self.waiting.front().is_some_and(is_due) {
                return Ok(());
            }
            let Some((_, file)) = self.waiting.pop_front() else {
                return Ok(());
            };
            if self.open.len() >= OPEN_MAX {
                return Err(out_of_order()
                    .with("partition", &self.partition)
                    .with("files", OPEN_MAX));
            }
            let batches = whole_rows(&self.log.storage, &file.path, file.bytes).await?;
            let mut open = Open {
                batches,
                columns: Vec::new(),
                keys: None,
                rows: VecDeque::new(),
            };
            if self.refill(&mut open).await? {
                self.open.push(open);
            }
        }
    }

    /// Reads on until there is a row of the partition; tells whether there is one.
    async fn refill(&self, open: &mut Open) -> Result<bool> {
        let Places {
            topic,
            partition,
            offset,
            key,
        } = self.log.places;
        while open.rows.is_empty() {
            let Some(batch) = open.batches.try_next().await? else {
                return Ok(false);
            };
            let fields = self.log.schema.as_struct().fields().iter();
            let fields = fields.zip(self.log.arrow.fields());
            let columns = aligned(&batch, fields.map(|(of, field)| (of, &**field)))?;
            let (Some(topics), Some(partitions), Some(offsets)) = (
                columns.get(topic),
                columns.get(partition),
                columns.get(offset),
            ) else {
                return Err(malformed());
            };
            for row in 0..batch.num_rows() {
                let (of, offset) = place(topics, partitions, offsets, row).ok_or_else(malformed)?;
                if of == (&*self.partition.topic, self.partition.partition) {
                    open.rows.push_back((row, offset));
                }
            }
            let values = self.log.values.iter();
            open.keys = key.and_then(|key| columns.get(key)).map(keys_of);
            open.columns = values.filter_map(|at| columns.get(*at).cloned()).collect();
        }
        Ok(true)
    }
}

fn out_of_order() -> SinkError {
    SinkError::fatal(
        "LOG_OUT_OF_ORDER",
        "the rows of the log do not lie in the order in which they were written, so nobody knows which change \
         came later: it was sorted by another column, compacted into files that mix its rows, or read twice",
    )
}
