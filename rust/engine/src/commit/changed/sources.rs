//! Reads the rows that others take values from, as many at a time as there is memory for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::SchemaRef as ArrowSchemaRef;
use frazil_core::change::Lacks;
use frazil_core::change::pending::{LACKS, LACKS_ID};
use frazil_core::commit::validate::RejectReason;
use frazil_core::index::bases::{Base, Incomplete};
use frazil_core::index::{KeyNumber, Location};
use frazil_core::memory::Use;
use frazil_core::schema::arrow::arrow_schema;
use frazil_core::{Result, SinkError};
use iceberg::spec::{NestedFieldRef, SchemaRef};

use super::Unbuilt;
use super::aligned::{UNREADABLE, aligned};
use super::complete::{Making, Row};
use super::deletes::path_of;
use crate::index::{ROW_MISSING, RowFile};
use crate::memory::Draw;
use crate::redact;

/// What a row takes beside its values while it is made, about: its place, and what it lacks.
const ROW_BYTES: usize = 256;
/// What a store says of a file that is not there.
const GONE: &str = "STORAGE_NOT_FOUND";
/// What is said of files that are not what they should be.
const DAMAGED: &str = "KEY_RUN_UNUSABLE";
const UNPARSED: &str = "INDEX_FILE_UNREADABLE";

/// A file with rows that others take values from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// By segment and place there.
    Pending(u32, u32),
    /// By segment and place there.
    New(u32, u32),
    /// By its number in the index.
    Table(u32),
    /// By the key that its row had. The table may have let go of it.
    Left(u128),
}

/// A row in one.
pub(super) type RowAt = (Place, u32);

impl Place {
    /// Returns the place of a base and the row there.
    pub(super) fn of(base: Base) -> RowAt {
        match base {
            Base::New(segment, at) => (Place::New(segment, at.file), at.row),
            Base::Pending(segment, at) => (Place::Pending(segment, at.file), at.row),
            Base::Table(at) => (Place::Table(at.file), at.row),
            Base::Left(key, row) => (Place::Left(key.0), row),
        }
    }

    /// Returns the place of the pending row itself.
    pub(super) fn own(of: &Incomplete) -> RowAt {
        (Place::Pending(of.segment, of.at.file), of.at.row)
    }
}

/// The columns of the table as it is now.
pub(super) struct Columns {
    schema: SchemaRef,
    pub(super) arrow: ArrowSchemaRef,
}

impl Columns {
    pub(super) fn of(schema: &SchemaRef) -> Result<Self> {
        let arrow = arrow_schema(schema)?;
        Ok(Columns {
            schema: Arc::clone(schema),
            arrow,
        })
    }

    pub(super) fn fields(&self) -> &[NestedFieldRef] {
        self.schema.as_struct().fields()
    }
}

/// What the pending rows of an attempt lack. Few of them lack different columns.
#[derive(Debug, Default)]
pub(super) struct AllLacks {
    kinds: Vec<Lacks>,
    /// The kind of each row, file by file.
    rows: BTreeMap<Place, Vec<u32>>,
}

impl AllLacks {
    /// Returns what a pending row lacks.
    pub(super) fn of(&self, (place, row): RowAt) -> Result<&Lacks> {
        let kind = self
            .rows
            .get(&place)
            .and_then(|rows| rows.get(row as usize));
        let lacks = kind.and_then(|kind| self.kinds.get(*kind as usize));
        lacks.ok_or_else(|| SinkError::internal("it is not known what a pending row lacks"))
    }

    fn memory_bytes(&self) -> usize {
        let rows = self.rows.values().map(Vec::capacity);
        rows.sum::<usize>() * size_of::<u32>()
    }
}

/// Rows that were read.
#[derive(Default)]
pub(super) struct Loaded {
    /// The columns of each batch, as far as they were wanted.
    pub(super) batches: Vec<Vec<Option<ArrayRef>>>,
    /// Where each row is in these.
    rows: BTreeMap<RowAt, (usize, usize)>,
    /// Files that the table had let go of already.
    gone: BTreeSet<Place>,
    bytes: usize,
}

impl Loaded {
    /// Returns the batch of a row and its place there.
    pub(super) fn find(&self, at: RowAt) -> Option<(usize, usize)> {
        self.rows.get(&at).copied()
    }

    /// Tells whether it is known what a row takes its values from.
    pub(super) fn has_all(&self, row: &Row<'_>) -> bool {
        let is_here = |at: &RowAt| self.rows.contains_key(at) || self.gone.contains(&at.0);
        row.needs.iter().all(|need| is_here(&need.at))
    }

    /// Returns the number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes >= bytes_max && !self.rows.is_empty()
    }

    fn add(&mut self, place: Place, rows: &[u32], columns: Vec<Option<ArrayRef>>) {
        let batch = self.batches.len();
        for (row, at) in rows.iter().zip(0..) {
            self.rows.insert((place, *row), (batch, at));
        }
        let bytes = columns.iter().flatten();
        let bytes: usize = bytes.map(|column| column.get_array_memory_size()).sum();
        self.bytes += bytes + rows.len() * ROW_BYTES;
        self.batches.push(columns);
    }
}

/// Reads rows of an attempt.
pub(super) struct Sources<'a> {
    making: Making<'a>,
    columns: &'a Columns,
    /// The file that was read last.
    last: Option<(Place, Arc<RowFile>)>,
    /// What is read, twice: a row that is made is a copy.
    held: Draw,
    /// What is held of it for longer than a load.
    own_bytes: usize,
}

impl<'a> Sources<'a> {
    pub(super) fn new(making: Making<'a>, columns: &'a Columns) -> Self {
        Sources {
            making,
            columns,
            last: None,
            held: making.memory.draw(Use::Commits, 0),
            own_bytes: 0,
        }
    }

    /// Reads what the pending rows lack that are to be made, and those below them; counts it in `held`.
    pub(super) async fn lacks(
        &mut self,
        incomplete: &[Incomplete],
        held: &mut Draw,
    ) -> Result<AllLacks, Unbuilt> {
        let own = incomplete.iter().map(|of| Place::own(of).0);
        let below = incomplete.iter().flat_map(|of| &of.bases);
        let below = below.map(|base| Place::of(*base).0);
        let is_pending = |place: &Place| matches!(place, Place::Pending(..));
        let places: BTreeSet<Place> = own.chain(below.filter(is_pending)).collect();
        let before = held.bytes();
        let (mut all, mut kinds) = (AllLacks::default(), BTreeMap::new());
        for place in places {
            let (path, _) = self.making.file(place)?;
            let read = self.lacks_of(place, &path, &mut all, &mut kinds).await;
            read.map_err(|error| self.unread(place, &path, error))?;
            held.resize(before + all.memory_bytes() as u64);
        }
        Ok(all)
    }

    async fn lacks_of(
        &mut self,
        place: Place,
        path: &str,
        all: &mut AllLacks,
        kinds: &mut BTreeMap<String, u32>,
    ) -> Result<()> {
        let file = self.open(place).await?;
        // Its key run names each of so many rows.
        let count = u32::try_from(file.rows()).ok();
        let count = count.filter(|_| Some(file.rows()) == self.making.pending_rows(place));
        let count = count.ok_or_else(|| damaged(path))?;
        let rows: Vec<u32> = (0..count).collect();
        let mut found = Vec::with_capacity(rows.len());
        let is_lacks = |id: i32| id == LACKS_ID;
        while let Some(rest) = rows.get(found.len()..).filter(|rest| !rest.is_empty()) {
            let fit = file.fit(rest, is_lacks, self.making.budget.read);
            self.count(fit.bytes);
            let some = rest.get(..fit.rows).unwrap_or(rest);
            let mut batches = file.read(some, is_lacks, fit)?;
            while let Some(batch) = batches.next().await? {
                let texts = batch.column_by_name(LACKS);
                let texts = texts.and_then(|texts| texts.as_string_opt::<i32>());
                for text in texts.ok_or_else(|| damaged(path))?.iter() {
                    let text = text.ok_or_else(|| damaged(path))?;
                    let kind = match kinds.get(text) {
                        Some(kind) => *kind,
                        None => {
                            let lacks = Lacks::from_text(text).ok_or_else(|| damaged(path))?;
                            let kind = u32::try_from(all.kinds.len()).unwrap_or(u32::MAX);
                            all.kinds.push(lacks);
                            kinds.insert(text.to_owned(), kind);
                            kind
                        }
                    };
                    found.push(kind);
                }
            }
        }
        all.rows.insert(place, found);
        Ok(())
    }

    /// Reads the pending rows of `order`, which are rows to be made in the order of their files: the first of
    /// them, as many as `rows_max` and the memory for them. Each file is read from its beginning to its end.
    pub(super) async fn own(
        &mut self,
        order: &[u32],
        incomplete: &[Incomplete],
        rows_max: usize,
    ) -> Result<Loaded, Unbuilt> {
        let every = vec![true; self.columns.fields().len()];
        let mut loaded = Loaded::default();
        self.own_bytes = 0;
        let bytes_max = self.making.budget.own;
        let places = order.iter().take(rows_max);
        let places = places.filter_map(|number| incomplete.get(*number as usize).map(Place::own));
        let places: Vec<RowAt> = places.collect();
        for of_file in places.chunk_by(|one, two| one.0 == two.0) {
            let Some((place, _)) = of_file.first() else {
                continue;
            };
            let rows: Vec<u32> = of_file.iter().map(|(_, row)| *row).collect();
            self.read(*place, &rows, &every, bytes_max, &mut loaded)
                .await?;
            if loaded.is_full(bytes_max) {
                break;
            }
        }
        self.own_bytes = loaded.bytes;
        self.count(0);
        Ok(loaded)
    }

    /// Reads what some rows take values from, in the order of the files, until it is `bytes_max` bytes: at least
    /// one row.
    pub(super) async fn load(
        &mut self,
        some: &[Row<'_>],
        bytes_max: usize,
    ) -> Result<Loaded, Unbuilt> {
        let mut wanted: BTreeMap<Place, (BTreeSet<u32>, Vec<bool>)> = BTreeMap::new();
        for need in some.iter().flat_map(|row| &row.needs) {
            let (place, row) = need.at;
            let none = || (BTreeSet::new(), vec![false; self.columns.fields().len()]);
            let (rows, fields) = wanted.entry(place).or_insert_with(none);
            rows.insert(row);
            for field in &need.fields {
                if let Some(wanted) = fields.get_mut(*field) {
                    *wanted = true;
                }
            }
        }
        let mut loaded = Loaded::default();
        for (place, (rows, fields)) in wanted {
            if loaded.is_full(bytes_max) {
                break;
            }
            let rows: Vec<u32> = rows.into_iter().collect();
            self.read(place, &rows, &fields, bytes_max, &mut loaded)
                .await?;
        }
        self.count(loaded.bytes);
        Ok(loaded)
    }

    /// Reads rows of one file until `loaded` has `bytes_max` bytes.
    async fn read(
        &mut self,
        place: Place,
        rows: &[u32],
        wanted: &[bool],
        bytes_max: usize,
        loaded: &mut Loaded,
    ) -> Result<(), Unbuilt> {
        let (path, _) = self.making.file(place)?;
        let read = self.read_of((place, &path), rows, wanted, bytes_max, loaded);
        match read.await {
            Err(error) if matches!(place, Place::Left(_)) && error.code() == GONE => {
                loaded.gone.insert(place);
                Ok(())
            }
            Err(error) => Err(self.unread(place, &path, error)),
            Ok(()) => Ok(()),
        }
    }

    async fn read_of(
        &mut self,
        (place, path): (Place, &str),
        rows: &[u32],
        wanted: &[bool],
        bytes_max: usize,
        loaded: &mut Loaded,
    ) -> Result<()> {
        let file = self.open(place).await?;
        let columns = self.columns;
        let fields = || columns.fields().iter().zip(wanted);
        let ids: BTreeSet<i32> = fields()
            .filter(|(_, is)| **is)
            .map(|(of, _)| of.id)
            .collect();
        let is_wanted = |id: i32| ids.contains(&id);
        let mut rest = rows;
        while !rest.is_empty() && !loaded.is_full(bytes_max) {
            let fit = file.fit(rest, is_wanted, bytes_max.saturating_sub(loaded.bytes));
            // Before they are read: others are to know of it.
            self.count(loaded.bytes + fit.bytes + file.memory_bytes());
            let some = rest.get(..fit.rows).unwrap_or(rest);
            let mut batches = file.read(some, is_wanted, fit)?;
            while let Some(batch) = batches.next().await? {
                let (these, others) = rest
                    .split_at_checked(batch.num_rows())
                    .unwrap_or((rest, &[]));
                rest = others;
                let columns = self.columns_of(&batch, wanted);
                let named = |error: SinkError| error.with("file", redact::foreign(path));
                loaded.add(place, these, columns.map_err(named)?);
                self.count(loaded.bytes + fit.bytes + file.memory_bytes());
                if loaded.is_full(bytes_max) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn columns_of(&self, batch: &RecordBatch, wanted: &[bool]) -> Result<Vec<Option<ArrayRef>>> {
        let fields = self
            .columns
            .fields()
            .iter()
            .zip(self.columns.arrow.fields());
        let fields = fields.zip(wanted).filter(|(_, is_wanted)| **is_wanted);
        let made = aligned(batch, fields.map(|((of, field), _)| (of, &**field)))?;
        let mut made = made.into_iter();
        let all = wanted.iter().map(|is| if *is { made.next() } else { None });
        Ok(all.collect())
    }

    fn count(&mut self, more: usize) {
        let bytes = 2 * (self.own_bytes + more);
        self.held.resize(bytes as u64);
    }

    async fn open(&mut self, place: Place) -> Result<Arc<RowFile>> {
        if let Some((_, file)) = self.last.as_ref().filter(|(last, _)| *last == place) {
            return Ok(Arc::clone(file));
        }
        let (path, bytes) = self.making.file(place)?;
        let storage = &self.making.attempt.loaded.storage;
        let file = Arc::new(RowFile::open(storage, &path, bytes).await?);
        self.last = Some((place, Arc::clone(&file)));
        Ok(file)
    }

    /// No waiting brings a pending file back, or mends it: then its session writes the rows again.
    fn unread(&self, place: Place, path: &str, error: SinkError) -> Unbuilt {
        let (segment, no_waiting) = match place {
            Place::Pending(segment, _) => (
                segment,
                &[GONE, DAMAGED, UNPARSED, UNREADABLE, ROW_MISSING][..],
            ),
            Place::New(segment, _) => (segment, &[GONE][..]),
            Place::Table(_) | Place::Left(_) => return Unbuilt::Failed(error),
        };
        match self.making.attempt.segments.get(segment as usize) {
            Some((index, _)) if no_waiting.contains(&error.code()) => {
                let reason = RejectReason::KeysUnusable {
                    path: path.to_owned(),
                    reason: error.report(),
                };
                Unbuilt::Unusable(*index, reason)
            }
            _ => Unbuilt::Failed(error),
        }
    }
}

impl Making<'_> {
    /// Returns the location and the length of a file.
    pub(super) fn file(&self, place: Place) -> Result<(String, u64)> {
        let lost = || SinkError::internal("a row takes values from a file that is not known");
        let Making {
            parts,
            tracked,
            orders,
            ..
        } = self;
        let part = |segment: u32| parts.get(segment as usize).ok_or_else(lost);
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
                let path = path_of(tracked, number).ok_or_else(lost)?;
                let live = tracked.live.data.get(&path).ok_or_else(lost)?;
                Ok((path.to_string(), live.bytes))
            }
            Place::Left(key) => {
                let left = orders.left(KeyNumber(key)).ok_or_else(lost)?;
                Ok((left.path.to_string(), left.bytes))
            }
        }
    }

    /// Returns how many rows a pending file has.
    fn pending_rows(&self, place: Place) -> Option<u64> {
        let Place::Pending(segment, file) = place else {
            return None;
        };
        let files = self.parts.get(segment as usize)?.run.pending();
        files.get(file as usize).map(|file| file.rows)
    }

    /// Tells whether a row of the table was deleted.
    pub(super) fn is_deleted(&self, at: Location) -> bool {
        let path = path_of(self.tracked, at.file);
        let known = path.and_then(|path| self.known.get(&path));
        known.is_some_and(|known| known.vector.contains(u64::from(at.row)))
    }
}

fn damaged(path: &str) -> SinkError {
    SinkError::fatal(
        DAMAGED,
        "the file with the pending rows of a segment does not say what they lack",
    )
    .with("file", redact::foreign(path))
}
