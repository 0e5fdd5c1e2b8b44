//! Makes the rows of a commit that lack values: each from its pending row, and from the rows below it.
//!
//! ```text
//!  pending row:  id 7, note ─, size 3        lacks note
//!  table's row:  id 7, note a, size 2
//!  data file:    id 7, note a, size 3        of this commit, in the partition of these values
//! ```
//!
//! The rows below are those of the very snapshot that the commit builds on. An attempt that is not applied
//! leaves data files that nobody lists, and the next one makes the rows anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use arrow_select::interleave::interleave;
use frazil_core::change::pending::LACKS;
use frazil_core::change::window::KnownOrders;
use frazil_core::change::{AbsentPolicy, Lacks};
use frazil_core::commit::validate::RejectReason;
use frazil_core::index::bases::{Base, Incomplete};
use frazil_core::index::{KeyNumber, Location};
use frazil_core::limits::ABSENT_RECORDS_MAX;
use frazil_core::memory::Use;
use frazil_core::offsets::TopicPartition;
use frazil_core::schema::arrow::arrow_schema;
use frazil_core::{Result, SinkError};
use iceberg::spec::{DataFile, NestedFieldRef};

use super::aligned::aligned;
use super::deletes::{Known, path_of};
use super::{ChangedAttempt, ChangedTable, SegmentChanges, Unbuilt};
use crate::index::{Tracked, key_columns, read_rows};
use crate::memory::Memory;
use crate::redact;
use crate::runtime::compute;
use crate::writer::{TableWriter, TableWriterConfig};

/// Rows that are made at once, as long as it is not known how large they are.
const ROWS_FIRST: usize = 256;
const ROWS_MIN: usize = 16;
const ROWS_MAX: usize = 8_192;
/// Bytes of rows that are read at once, about.
const READ_BYTES: usize = 32 << 20;

/// The rows that were made.
#[derive(Debug, Default)]
pub(super) struct Completed {
    /// The data files that have them, not listed yet.
    pub(super) files: Vec<DataFile>,
    /// Where the row of each key lies, by these files.
    pub(super) rows: BTreeMap<KeyNumber, Location>,
    /// Values that became null because no row has them.
    pub(super) nulled: u64,
}

/// What the rows are made for.
#[derive(Clone, Copy)]
pub(super) struct Making<'a> {
    pub(super) table: &'a ChangedTable,
    pub(super) memory: &'a Arc<Memory>,
    pub(super) tracked: &'a Tracked,
    pub(super) attempt: &'a ChangedAttempt<'a>,
    pub(super) parts: &'a [&'a SegmentChanges],
    /// The deleted rows of the table's files.
    pub(super) known: &'a Known,
    /// What is remembered of earlier commits.
    pub(super) orders: &'a KnownOrders,
}

/// A file with rows that others take values from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// By segment and place there.
    Pending(u32, u32),
    /// By segment and place there.
    New(u32, u32),
    /// By its number in the index.
    Table(u32),
    /// By the key that its row had.
    Left(u128),
}

type RowAt = (Place, u32);

/// What a store says of a file that is not there.
const GONE: &str = "STORAGE_NOT_FOUND";

/// Tells whether a file may be gone.
fn is_left(place: Place) -> bool {
    matches!(place, Place::Left(_))
}

/// A row to make, and where to look for its values: its own row, then the others.
struct Row<'i> {
    of: &'i Incomplete,
    sources: Vec<RowAt>,
}

/// Rows that were read.
struct Loaded {
    /// For each column of the table, what was read of it; the first is a null.
    columns: Vec<Vec<ArrayRef>>,
    /// Where each row is in these, and what it lacks.
    rows: BTreeMap<RowAt, ((usize, usize), Option<Lacks>)>,
    bytes: usize,
}

/// Records whose values no row has.
#[derive(Default)]
struct Absent {
    /// The segment of the first, by its index in the attempt.
    segment: Option<u32>,
    records: BTreeSet<(TopicPartition, i64)>,
    columns: BTreeSet<String>,
}

/// Makes the rows of `incomplete` and writes them.
///
/// # Errors
///
/// A segment is unusable when no row has what a record lacks, and that may not become null; or what the
/// store says.
pub(super) async fn complete(
    making: Making<'_>,
    incomplete: &[Incomplete],
) -> Result<Completed, Unbuilt> {
    let mut completed = Completed::default();
    if incomplete.is_empty() {
        return Ok(completed);
    }
    let metadata = &making.attempt.loaded.metadata;
    let schema = metadata.current_schema();
    let arrow = arrow_schema(schema)?;
    let fields = schema.as_struct().fields();
    let mut rows: Vec<Row<'_>> = incomplete.iter().filter_map(|of| making.row(of)).collect();
    // Those of one file together: it is read once, or a few times.
    rows.sort_by_key(|row| row.sources.last().copied());
    let mut writer = making.writer()?;
    let mut absent = Absent::default();
    let (mut at, mut count) = (0, ROWS_FIRST);
    while at < rows.len() {
        let end = rows.len().min(at.saturating_add(count));
        let some = rows.get(at..end).unwrap_or_default();
        let loaded = making.load(some, &arrow).await?;
        let _drawn = making.memory.draw(Use::Commits, 2 * loaded.bytes as u64);
        let made =
            compute(|| making.make(some, at, &loaded, (fields, &arrow), &mut absent)).await?;
        if let (Some((batch, nulled)), None) = (made, absent.segment) {
            completed.nulled += nulled;
            compute(|| writer.write(batch)).await?;
        }
        let each = (loaded.bytes / some.len().max(1)).max(1);
        count = (READ_BYTES / each).clamp(ROWS_MIN, ROWS_MAX);
        at = end;
    }
    if let Some(segment) = absent.segment {
        return Err(making.refused(segment, absent));
    }
    for (file, (described, numbers)) in (0u32..).zip(writer.seal()?.wait_numbered().await?) {
        for (row, number) in (0u32..).zip(numbers) {
            let of = rows.get(number as usize);
            let of = of.ok_or_else(|| SinkError::internal("a row was made for no key"))?;
            completed.rows.insert(of.of.key, Location { file, row });
        }
        completed.files.push(described);
    }
    Ok(completed)
}

impl Making<'_> {
    /// Returns what a row is made of; `None` when there is no row that could be marked.
    fn row<'i>(&self, of: &'i Incomplete) -> Option<Row<'i>> {
        let mut sources = vec![(Place::Pending(of.segment, of.at.file), of.at.row)];
        for base in &of.bases {
            sources.push(match *base {
                Base::New(segment, at) => (Place::New(segment, at.file), at.row),
                Base::Pending(segment, at) => (Place::Pending(segment, at.file), at.row),
                Base::Table(at) if self.is_deleted(at) => continue,
                Base::Table(at) => (Place::Table(at.file), at.row),
                Base::Left(key, row) => (Place::Left(key.0), row),
            });
        }
        (!of.is_mark || sources.len() > 1).then_some(Row { of, sources })
    }

    fn is_deleted(&self, at: Location) -> bool {
        let path = path_of(self.tracked, at.file);
        let known = path.and_then(|path| self.known.get(&path));
        known.is_some_and(|known| known.vector.contains(u64::from(at.row)))
    }

    fn writer(&self) -> Result<TableWriter> {
        let ChangedAttempt {
            loaded,
            wid,
            commit_id,
            snapshot_id,
            ..
        } = self.attempt;
        let metadata = &loaded.metadata;
        let mut settings = TableWriterConfig::new(
            Arc::clone(metadata.current_schema()),
            Arc::clone(metadata.default_partition_spec()),
            metadata.location(),
            format!("frazil-{wid}-{commit_id}-{snapshot_id}-rows"),
        );
        settings.properties = metadata.properties().clone();
        settings.properties.extend(self.table.write_props.clone());
        settings.numbered = true;
        let runtime = tokio::runtime::Handle::current();
        TableWriter::new(settings, loaded.storage.clone(), runtime)
    }

    /// Returns the location and the length of a file.
    fn file(&self, place: Place) -> Result<(String, u64)> {
        let lost = || SinkError::internal("a row takes values from a file that is not known");
        let part = |segment: u32| self.parts.get(segment as usize).ok_or_else(lost);
        match place {
            Place::Pending(segment, file) => {
                let files = part(segment)?.run.pending();
                let file = files.get(file as usize).ok_or_else(lost)?;
                Ok((file.path.clone(), file.bytes))
            }
            Place::New(segment, file) => {
                let file = part(segment)?.data_file(file).ok_or_else(lost)?;
                Ok((file.file_path().to_owned(), file.file_size_in_bytes()))
            }
            Place::Table(number) => {
                let path = path_of(self.tracked, number).ok_or_else(lost)?;
                let live = self.tracked.live.data.get(&path).ok_or_else(lost)?;
                Ok((path.to_string(), live.bytes))
            }
            Place::Left(key) => {
                let left = self.orders.left(KeyNumber(key)).ok_or_else(lost)?;
                Ok((left.path.to_string(), left.bytes))
            }
        }
    }

    /// Reads the rows that some rows are made of.
    async fn load(&self, some: &[Row<'_>], arrow: &SchemaRef) -> Result<Loaded, Unbuilt> {
        let mut wanted: BTreeMap<Place, BTreeSet<u32>> = BTreeMap::new();
        for (place, row) in some.iter().flat_map(|row| &row.sources) {
            wanted.entry(*place).or_default().insert(*row);
        }
        let nulls = arrow.fields().iter();
        let nulls = nulls.map(|field| vec![new_null_array(field.data_type(), 1)]);
        let mut loaded = Loaded {
            columns: nulls.collect(),
            rows: BTreeMap::new(),
            bytes: 0,
        };
        for (place, rows) in wanted {
            let (path, bytes) = self.file(place)?;
            let rows: Vec<u32> = rows.into_iter().collect();
            let batches = read_rows(&self.attempt.loaded.storage, &path, bytes, &rows).await;
            let batches = match batches {
                // The table had let go of it already.
                Err(error) if is_left(place) && error.code() == GONE => continue,
                batches => batches.map_err(|error| self.unread(place, &path, error))?,
            };
            let mut rows = rows.into_iter();
            for batch in batches {
                let lacks = match place {
                    Place::Pending(..) => Some(lacks_of(&batch, &path)?),
                    Place::New(..) | Place::Table(_) | Place::Left(_) => None,
                };
                let columns = aligned(&batch, arrow)
                    .map_err(|error| error.with("file", redact::foreign(&path)))?;
                let number = loaded.columns.first().map_or(0, Vec::len);
                for (all, column) in loaded.columns.iter_mut().zip(columns) {
                    loaded.bytes += column.get_array_memory_size();
                    all.push(column);
                }
                for (row, at) in rows.by_ref().take(batch.num_rows()).zip(0..) {
                    let lacks = lacks.as_ref().and_then(|lacks| lacks.get(at).cloned());
                    loaded.rows.insert((place, row), ((number, at), lacks));
                }
            }
        }
        Ok(loaded)
    }

    /// No waiting brings a pending file back: then its session writes the rows again.
    fn unread(&self, place: Place, path: &str, error: SinkError) -> Unbuilt {
        let (Place::Pending(segment, _) | Place::New(segment, _)) = place else {
            return Unbuilt::Failed(error);
        };
        let is_gone = error.code() == GONE;
        match self.attempt.segments.get(segment as usize) {
            Some((index, _)) if is_gone => {
                let reason = RejectReason::KeysUnusable {
                    path: path.to_owned(),
                    reason: error.report(),
                };
                Unbuilt::Unusable(*index, reason)
            }
            _ => Unbuilt::Failed(error),
        }
    }

    /// Makes some rows, which are numbered from `first`, and counts the values that became null.
    fn make(
        &self,
        some: &[Row<'_>],
        first: usize,
        loaded: &Loaded,
        (fields, arrow): (&[NestedFieldRef], &SchemaRef),
        absent: &mut Absent,
    ) -> Result<Option<(RecordBatch, u64)>> {
        let lost = || SinkError::internal("a row that others take values from was not read");
        let mut nulled = 0;
        let mut indices: Vec<Vec<(usize, usize)>> = vec![Vec::new(); fields.len()];
        for row in some {
            let sources = row.sources.iter();
            let sources = sources.filter(|at| !is_left(at.0) || loaded.rows.contains_key(at));
            let sources = sources.map(|at| loaded.rows.get(at));
            let sources = sources.collect::<Option<Vec<_>>>().ok_or_else(lost)?;
            for (field, indices) in fields.iter().zip(&mut indices) {
                let has = |lacks: &Option<Lacks>| {
                    !lacks.as_ref().is_some_and(|lacks| lacks.has(field.id))
                };
                let found = sources.iter().find(|(_, lacks)| has(lacks));
                if found.is_none() {
                    match self.table.absent {
                        AbsentPolicy::Null if !field.required => nulled += 1,
                        AbsentPolicy::Null | AbsentPolicy::Fail => {
                            self.note(row.of, &field.name, absent)?;
                        }
                    }
                }
                indices.push(found.map_or((0, 0), |(at, _)| *at));
            }
        }
        if absent.segment.is_some() {
            return Ok(None);
        }
        let columns = loaded
            .columns
            .iter()
            .zip(&indices)
            .map(|(arrays, indices)| {
                let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
                interleave(&arrays, indices).map_err(|error| unfit().caused_by(error))
            });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let batch = RecordBatch::try_new(Arc::clone(arrow), columns);
        let batch = batch.map_err(|error| unfit().caused_by(error))?;
        self.check_keys(&batch, some)?;
        numbered(&batch, first).map(|batch| Some((batch, nulled)))
    }

    fn note(&self, of: &Incomplete, column: &str, absent: &mut Absent) -> Result<()> {
        let segment = *absent.segment.get_or_insert(of.segment);
        if segment != of.segment || absent.records.len() >= ABSENT_RECORDS_MAX {
            return Ok(());
        }
        let (partition, offset) = of.record;
        let segments = self.attempt.segments;
        let range = segments.get(segment as usize);
        let range = range.and_then(|(_, segment)| segment.ranges.get(partition as usize));
        let range = range.ok_or_else(|| SinkError::internal("a change is of no range"))?;
        absent.records.insert((range.partition.clone(), offset));
        absent.columns.insert(column.to_owned());
        Ok(())
    }

    fn refused(&self, segment: u32, absent: Absent) -> Unbuilt {
        let Some((index, _)) = self.attempt.segments.get(segment as usize) else {
            return SinkError::internal("a row is of no segment").into();
        };
        let reason = RejectReason::ValueAbsent {
            columns: absent.columns.into_iter().collect(),
            records: absent.records,
        };
        Unbuilt::Unusable(*index, reason)
    }

    /// Checks that the rows have the keys that they are made for: by these they will be found.
    fn check_keys(&self, batch: &RecordBatch, some: &[Row<'_>]) -> Result<()> {
        let plan = self.tracked.plan();
        let columns = key_columns(batch, plan.field_ids());
        let columns = columns.ok_or_else(unfit)?;
        let keys = plan.rows(&columns)?;
        let mut bytes = Vec::new();
        for (row, one) in some.iter().enumerate() {
            let key = self
                .tracked
                .hasher()
                .number(keys.encode(row, &mut bytes)?)?;
            if key != one.of.key {
                let (_, offset) = one.of.record;
                return Err(SinkError::fatal(
                    "CHANGE_KEY_DIFFERS",
                    "a row that took values from another one has another key than its record: two fields \
                     of the record have the name of a column of the key; correct the names",
                )
                .with("offset", offset));
            }
        }
        Ok(())
    }
}

/// Reads what the rows of a pending file lack.
fn lacks_of(batch: &RecordBatch, path: &str) -> Result<Vec<Lacks>> {
    let unusable = || {
        SinkError::fatal(
            "KEY_RUN_UNUSABLE",
            "the file with the pending rows of a segment does not say what they lack",
        )
        .with("file", redact::foreign(path))
    };
    let texts = batch.column_by_name(LACKS).ok_or_else(unusable)?;
    let texts = texts.as_string_opt::<i32>().ok_or_else(unusable)?;
    let lacks = texts.iter().map(|text| Lacks::from_text(text?));
    lacks.collect::<Option<Vec<_>>>().ok_or_else(unusable)
}

/// Puts numbers from `first` behind the columns of a batch.
fn numbered(batch: &RecordBatch, first: usize) -> Result<RecordBatch> {
    let first = u32::try_from(first).map_err(|_| SinkError::internal("too many rows"))?;
    let numbers: UInt32Array = (first..)
        .take(batch.num_rows())
        .collect::<Vec<u32>>()
        .into();
    let number = Arc::new(Field::new("number", DataType::UInt32, false));
    let fields = batch.schema_ref().fields().iter().cloned().chain([number]);
    let schema = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    let numbers: ArrayRef = Arc::new(numbers);
    let columns = batch.columns().iter().cloned().chain([numbers]);
    RecordBatch::try_new(schema, columns.collect()).map_err(|error| unfit().caused_by(error))
}

fn unfit() -> SinkError {
    SinkError::internal("the values of a row do not fit together")
}
