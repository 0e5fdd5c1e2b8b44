//! Makes the rows of a commit that lack values: each from its pending row, and from the rows below it.
//!
//! ```text
//!  pending row:  id 7, note ─, size 3        lacks note
//!  table's row:  id 7, note a, size 2
//!  data file:    id 7, note a, size 3        of this commit, in the partition of these values
//! ```
//!
//! What each pending row lacks is read first: from then on it is known which row each value comes from, and whether
//! one has it at all. Then the pending files are read from their beginning to their end, as many rows at a time as
//! there is memory for; of these rows, what others have of them, in the order of the files where it is, a part at
//! a time. The values that a row has itself are not looked for elsewhere.
//!
//! The rows below are those of the very snapshot that the commit builds on. An attempt that is not applied
//! leaves data files that nobody lists; the next one of the same call takes them where each row comes from the same
//! ones, and makes all anew otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use arrow_select::interleave::interleave;
use frazil_core::change::window::KnownOrders;
use frazil_core::change::{AbsentPolicy, Lacks};
use frazil_core::commit::validate::RejectReason;
use frazil_core::index::bases::{Base, Incomplete};
use frazil_core::index::{KeyNumber, Location};
use frazil_core::limits::ABSENT_RECORDS_MAX;
use frazil_core::memory::Use;
use frazil_core::offsets::TopicPartition;
use frazil_core::{Result, SinkError};
use iceberg::spec::{DataFile, NestedFieldRef};
use sha2::{Digest, Sha256};

use super::deletes::Known;
use super::sources::{AllLacks, Columns, Loaded, Place, RowAt, Sources};
use super::{ChangedAttempt, ChangedTable, SegmentChanges, Unbuilt};
use crate::index::{Tracked, key_columns};
use crate::memory::{Draw, Memory};
use crate::runtime::compute;
use crate::writer::{TableWriter, TableWriterConfig};

/// Pending rows that are held at once, and rows that others are looked up for.
const OWN_ROWS_MAX: usize = if cfg!(test) { 40 } else { 64 << 10 };
const ROWS_MAX: usize = if cfg!(test) { 16 } else { 8_192 };
/// What is known of a row from the first to the last, about: its turn, where it has come to lie, and its number in
/// its file.
const LISTED_BYTES: usize = 96;
/// Bytes of files on their way to the storage for which the next rows wait.
const IN_FLIGHT_MAX: usize = 32 << 20;
const IN_FLIGHT_PAUSE: Duration = Duration::from_millis(5);

/// The rows that were made.
#[derive(Debug)]
pub(in super::super) struct Completed {
    /// What they were made of.
    of: [u8; 32],
    /// The data files that have them, not listed yet.
    pub(super) files: Vec<DataFile>,
    /// Where the row of each key lies, by these files.
    pub(super) rows: BTreeMap<KeyNumber, Location>,
    /// Values that became null because no row has them.
    pub(super) nulled: u64,
    /// What all of that takes.
    _held: Draw,
}

/// Bytes of rows that are held at once: a part of the free memory, and not more than helps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// Of pending rows.
    pub(super) own: usize,
    /// Of rows that these take values from.
    pub(super) read: usize,
    /// Of files that are being written.
    written: usize,
}

impl Budget {
    /// Takes a part of `room`. Tests see many reads.
    pub(super) fn of(room: u64) -> Self {
        let part = |parts: u64, least: usize, most: usize| {
            let part = usize::try_from(room / parts).unwrap_or(usize::MAX);
            part.clamp(least, most)
        };
        if cfg!(test) {
            return Budget {
                own: 4 << 10,
                read: 2 << 10,
                written: 8 << 20,
            };
        }
        // What is read counts twice.
        Budget {
            own: part(16, 2 << 20, 32 << 20),
            read: part(16, 2 << 20, 32 << 20),
            written: part(4, 8 << 20, 128 << 20),
        }
    }
}

/// What the rows are made for.
#[derive(Clone, Copy)]
pub(super) struct Making<'a> {
    pub(super) table: &'a ChangedTable,
    pub(super) memory: &'a Arc<Memory>,
    pub(super) budget: Budget,
    pub(super) tracked: &'a Tracked,
    pub(super) attempt: &'a ChangedAttempt<'a>,
    pub(super) parts: &'a [&'a SegmentChanges],
    /// The deleted rows of the table's files.
    pub(super) known: &'a Known,
    /// What is remembered of earlier commits.
    pub(super) orders: &'a KnownOrders,
}

/// A row to make.
pub(super) struct Row<'i> {
    of: &'i Incomplete,
    /// Its place among all that are to be made.
    number: u32,
    /// Where the values are that its pending row lacks.
    pub(super) needs: Vec<Need>,
    /// The columns that no row has, by their places.
    absent: Vec<usize>,
}

/// Values that a row takes from another one.
pub(super) struct Need {
    pub(super) at: RowAt,
    /// The columns, by their places.
    pub(super) fields: Vec<usize>,
}

/// Records whose values no row has.
#[derive(Default)]
struct Absent {
    /// The segment of the first, by its index in the attempt.
    segment: Option<u32>,
    records: BTreeSet<(TopicPartition, i64)>,
    columns: BTreeSet<String>,
    /// Values that become null instead.
    nulled: u64,
}

/// Makes the rows of `incomplete` and writes them. What an earlier attempt of the same commit has `made` of the
/// same rows is as good: a row of a file never changes.
///
/// # Errors
///
/// A segment is unusable when no row has what a record lacks, and that may not become null; or what the
/// store says.
pub(super) async fn complete<'m>(
    making: Making<'_>,
    incomplete: &[Incomplete],
    made: &'m mut Option<Completed>,
) -> Result<Option<&'m Completed>, Unbuilt> {
    if incomplete.is_empty() {
        *made = None;
        return Ok(None);
    }
    let of = compute(|| making.made_of(incomplete)).await?;
    let known = made.take().filter(|made| made.of == of);
    let completed = match known {
        Some(known) => known,
        None => make((making, of), incomplete).await?,
    };
    Ok(Some(made.insert(completed)))
}

async fn make(
    (making, of): (Making<'_>, [u8; 32]),
    incomplete: &[Incomplete],
) -> Result<Completed, Unbuilt> {
    let mut held = making.memory.draw(Use::Commits, 0);
    let (mut files, mut rows) = (Vec::new(), BTreeMap::new());
    held.resize((incomplete.len() * LISTED_BYTES) as u64);
    let columns = Columns::of(making.attempt.loaded.metadata.current_schema())?;
    let mut sources = Sources::new(making, &columns);
    let lacks = sources.lacks(incomplete, &mut held).await?;
    let plan = Plan {
        making,
        incomplete,
        lacks: &lacks,
        fields: columns.fields(),
    };
    let mut absent = Absent::default();
    let order = compute(|| plan.order(&mut absent)).await?;
    // Before anything is read or written for it.
    if let Some(segment) = absent.segment {
        return Err(making.refused(segment, absent));
    }
    let mut writing = Writing {
        making,
        writer: making.writer()?,
        held: making.memory.draw(Use::Commits, 0),
    };
    let mut rest = &order[..];
    while !rest.is_empty() {
        let own = sources.own(rest, incomplete, OWN_ROWS_MAX).await?;
        let (some, others) = rest.split_at_checked(own.rows()).unwrap_or((rest, &[]));
        if some.is_empty() {
            return Err(SinkError::internal("no pending row was read").into());
        }
        rest = others;
        let made = Made {
            making,
            columns: &columns,
            own: &own,
        };
        let some = compute(|| plan.rows(some)).await?;
        made.write(&some, &mut sources, &mut writing, &mut absent)
            .await?;
    }
    if let Some(segment) = absent.segment {
        return Err(making.refused(segment, absent));
    }
    for (file, (described, numbers)) in (0u32..).zip(writing.end().await?) {
        for (row, number) in (0u32..).zip(numbers) {
            let of = incomplete.get(number as usize);
            let of = of.ok_or_else(|| SinkError::internal("a row was made for no key"))?;
            rows.insert(of.key, Location { file, row });
        }
        files.push(described);
    }
    Ok(Completed {
        of,
        files,
        rows,
        nulled: absent.nulled,
        _held: held,
    })
}

/// Tells where values come from.
struct Plan<'a> {
    making: Making<'a>,
    incomplete: &'a [Incomplete],
    lacks: &'a AllLacks,
    fields: &'a [NestedFieldRef],
}

impl<'a> Plan<'a> {
    /// Returns the rows that are to be made, by their places among all, in the order of the pending files; notes
    /// what no row has.
    fn order(&self, absent: &mut Absent) -> Result<Vec<u32>> {
        let mut order = Vec::with_capacity(self.incomplete.len());
        for number in (0u32..).take(self.incomplete.len()) {
            let Some(row) = self.row(number)? else {
                continue;
            };
            for field in &row.absent {
                if let Some(field) = self.fields.get(*field) {
                    self.making.lacks(row.of, field, absent)?;
                }
            }
            order.push(number);
        }
        let place = |number: &u32| self.incomplete.get(*number as usize).map(Place::own);
        order.sort_unstable_by_key(place);
        Ok(order)
    }

    /// Returns these rows, those together that take values from one file.
    fn rows(&self, order: &[u32]) -> Result<Vec<Row<'a>>> {
        let rows = order.iter().map(|number| self.row(*number));
        let mut rows: Vec<Row<'a>> = rows.filter_map(Result::transpose).collect::<Result<_>>()?;
        rows.sort_by_key(|row| row.needs.last().map(|need| need.at));
        Ok(rows)
    }

    /// Finds the row that has each value; `None` when there is no row that could be marked.
    fn row(&self, number: u32) -> Result<Option<Row<'a>>> {
        let of = self.incomplete.get(number as usize);
        let of = of.ok_or_else(|| SinkError::internal("a row is not to be made"))?;
        let own = self.lacks.of(Place::own(of))?;
        let fields = self.fields.iter().enumerate();
        let lacked = fields.filter(|(_, field)| own.has(field.id));
        let mut absent: Vec<usize> = lacked.map(|(place, _)| place).collect();
        let (mut needs, mut has_base) = (Vec::new(), false);
        for base in &of.bases {
            let at = Place::of(*base);
            let lacks = match base {
                Base::Table(row) if self.making.is_deleted(*row) => continue,
                Base::Pending(..) => Some(self.lacks.of(at)?),
                Base::New(..) | Base::Table(_) | Base::Left(..) => None,
            };
            has_base = true;
            let fields = self.take(&mut absent, lacks);
            if !fields.is_empty() {
                needs.push(Need { at, fields });
            }
            if absent.is_empty() {
                break;
            }
        }
        Ok((!of.is_mark || has_base).then_some(Row {
            of,
            number,
            needs,
            absent,
        }))
    }

    /// Takes the columns out of `absent` that a row has.
    fn take(&self, absent: &mut Vec<usize>, lacks: Option<&Lacks>) -> Vec<usize> {
        let Some(lacks) = lacks else {
            return std::mem::take(absent);
        };
        let id = |place: &usize| self.fields.get(*place).map(|field| field.id);
        let has = |place: &usize| id(place).is_some_and(|id| !lacks.has(id));
        let found = absent.iter().copied().filter(|place| has(place)).collect();
        absent.retain(|place| !has(place));
        found
    }
}

/// The files that rows are written into.
struct Writing<'a> {
    making: Making<'a>,
    writer: TableWriter,
    /// What is on its way.
    held: Draw,
}

impl Writing<'_> {
    async fn write(&mut self, batch: RecordBatch) -> Result<()> {
        let (writer, bytes_max) = (&mut self.writer, self.making.budget.written);
        compute(|| {
            writer.write(batch)?;
            writer.shrink_to(bytes_max)
        })
        .await?;
        self.held.resize(self.writer.bytes() as u64);
        // A store may be slower than rows are made. An upload that failed has let go of its bytes.
        while self.writer.in_flight() > IN_FLIGHT_MAX {
            tokio::time::sleep(IN_FLIGHT_PAUSE).await;
        }
        self.held.resize(self.writer.bytes() as u64);
        Ok(())
    }

    /// Waits until all is durable.
    async fn end(mut self) -> Result<Vec<(DataFile, Vec<u32>)>> {
        let writer = self.writer;
        let sealed = compute(|| writer.seal()).await?;
        let bytes = sealed.in_flight() + sealed.described_bytes();
        self.held.resize(bytes as u64);
        sealed.wait_numbered().await
    }
}

/// Makes rows of the pending rows that were read.
struct Made<'a> {
    making: Making<'a>,
    columns: &'a Columns,
    own: &'a Loaded,
}

impl Made<'_> {
    /// Reads what `rows` take from others, a part at a time, and writes them.
    async fn write(
        &self,
        rows: &[Row<'_>],
        sources: &mut Sources<'_>,
        writing: &mut Writing<'_>,
        absent: &mut Absent,
    ) -> Result<(), Unbuilt> {
        let (mut rest, mut step) = (rows, ROWS_MAX);
        while !rest.is_empty() {
            let some = rest.get(..step.min(rest.len())).unwrap_or(rest);
            let mut loaded = sources.load(some, self.making.budget.read).await?;
            let ready = some.iter().take_while(|row| loaded.has_all(row)).count();
            // What did not fit is read with the next ones. One row may be larger than all there is for them.
            let made = match ready {
                0 => {
                    loaded = sources
                        .load(some.get(..1).unwrap_or(some), usize::MAX)
                        .await?;
                    1
                }
                ready => ready,
            };
            step = match made < some.len() {
                true => made,
                false => (2 * step).min(ROWS_MAX),
            };
            let (some, others) = rest.split_at_checked(made).unwrap_or((rest, &[]));
            rest = others;
            let batch = compute(|| self.batch(some, &loaded, absent)).await?;
            drop(loaded);
            if let Some(batch) = batch {
                writing.write(batch).await?;
            }
        }
        Ok(())
    }

    /// Makes rows; `None` once one was found that cannot be made.
    fn batch(
        &self,
        rows: &[Row<'_>],
        loaded: &Loaded,
        absent: &mut Absent,
    ) -> Result<Option<RecordBatch>> {
        let lost = || SinkError::internal("a row that others take values from was not read");
        let fields = self.columns.fields();
        // The first array of each column is a null.
        let mut arrays: Vec<Vec<ArrayRef>> = Vec::with_capacity(fields.len());
        for field in self.columns.arrow.fields() {
            arrays.push(vec![new_null_array(field.data_type(), 1)]);
        }
        let own = numbers(&self.own.batches, &mut arrays);
        let others = numbers(&loaded.batches, &mut arrays);
        let mut indices = vec![Vec::with_capacity(rows.len()); fields.len()];
        for row in rows {
            let (batch, at) = self.own.find(Place::own(row.of)).ok_or_else(lost)?;
            for (place, indices) in indices.iter_mut().enumerate() {
                let array = number(&own, batch, place).ok_or_else(lost)?;
                indices.push((array, at));
            }
            let mut set = |place: usize, from: (usize, usize)| {
                let index = indices.get_mut(place).and_then(|all| all.last_mut());
                index.map(|index| *index = from).ok_or_else(lost)
            };
            for place in &row.absent {
                set(*place, (0, 0))?;
            }
            for need in &row.needs {
                let found = loaded.find(need.at);
                for place in &need.fields {
                    let Some((batch, at)) = found else {
                        let field = fields.get(*place).ok_or_else(lost)?;
                        self.making.lacks(row.of, field, absent)?;
                        set(*place, (0, 0))?;
                        continue;
                    };
                    set(
                        *place,
                        (number(&others, batch, *place).ok_or_else(lost)?, at),
                    )?;
                }
            }
        }
        if absent.segment.is_some() {
            return Ok(None);
        }
        let columns = arrays.iter().zip(&indices).map(|(arrays, indices)| {
            let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
            interleave(&arrays, indices).map_err(|error| unfit().caused_by(error))
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&self.columns.arrow), columns);
        let batch = batch.map_err(|error| unfit().caused_by(error))?;
        self.making.check_keys(&batch, rows)?;
        numbered(&batch, rows).map(Some)
    }
}

/// Puts the arrays of batches behind those of their columns, and returns the number of each there.
fn numbers(
    batches: &[Vec<Option<ArrayRef>>],
    arrays: &mut [Vec<ArrayRef>],
) -> Vec<Vec<Option<usize>>> {
    let of_batch = |batch: &Vec<Option<ArrayRef>>| {
        let columns = batch.iter().zip(&mut *arrays);
        let numbers = columns.map(|(column, all)| {
            all.push(Arc::clone(column.as_ref()?));
            Some(all.len() - 1)
        });
        numbers.collect()
    };
    batches.iter().map(of_batch).collect()
}

fn number(numbers: &[Vec<Option<usize>>], batch: usize, place: usize) -> Option<usize> {
    *numbers.get(batch)?.get(place)?
}

impl Making<'_> {
    /// Returns what stands for all that `incomplete` are made of: the commit, the table's columns, and the rows.
    fn made_of(&self, incomplete: &[Incomplete]) -> Result<[u8; 32]> {
        let metadata = &self.attempt.loaded.metadata;
        let mut all = Sha256::new();
        all.update(self.attempt.commit_id.as_bytes());
        all.update(metadata.current_schema_id().to_be_bytes());
        all.update(metadata.default_partition_spec_id().to_be_bytes());
        for of in incomplete {
            let segment = self.attempt.segments.get(of.segment as usize);
            let index = segment.map(|(index, _)| *index as u64).unwrap_or(u64::MAX);
            all.update(of.key.0.to_be_bytes());
            all.update(index.to_be_bytes());
            all.update([u8::from(of.is_mark)]);
            let bases = of.bases.iter();
            let bases =
                bases.filter(|base| !matches!(base, Base::Table(at) if self.is_deleted(*at)));
            let places = bases.map(|base| Place::of(*base));
            for (place, row) in [Place::own(of)].into_iter().chain(places) {
                let (path, bytes) = self.file(place)?;
                all.update(row.to_be_bytes());
                all.update(bytes.to_be_bytes());
                all.update(path.len().to_be_bytes());
                all.update(path);
            }
            all.update([0]);
        }
        Ok(all.finalize().into())
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

    /// Notes that no row has a value: it becomes null where it may, else its segment is refused.
    fn lacks(&self, of: &Incomplete, field: &NestedFieldRef, absent: &mut Absent) -> Result<()> {
        if self.table.absent == AbsentPolicy::Null && !field.required {
            absent.nulled += 1;
            return Ok(());
        }
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
        absent.columns.insert(field.name.clone());
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
    fn check_keys(&self, batch: &RecordBatch, rows: &[Row<'_>]) -> Result<()> {
        let plan = self.tracked.plan();
        let columns = key_columns(batch, plan.field_ids());
        let columns = columns.ok_or_else(unfit)?;
        let keys = plan.rows(&columns)?;
        let mut bytes = Vec::new();
        for (row, one) in rows.iter().enumerate() {
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

/// Puts the numbers of the rows behind the columns of their batch.
fn numbered(batch: &RecordBatch, rows: &[Row<'_>]) -> Result<RecordBatch> {
    let numbers: UInt32Array = rows
        .iter()
        .map(|row| row.number)
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
