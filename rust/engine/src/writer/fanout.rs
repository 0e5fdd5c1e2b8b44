//! Spreads the rows of a table over the files of its partitions.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use frazil_core::layout::sort::FileOrder;
use frazil_core::limits::UPLOAD_REQUESTS;
use frazil_core::partition::{PartitionKey, Partitioner, refuse_uuid};
use frazil_core::{Result, SinkError};
use iceberg::spec::{DataFile, PartitionSpec, Schema};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::encoding::Lessons;
use super::file::{DataFileWriter, FinishedFile, Format};
use super::location::Locations;
use super::properties::FileProperties;
use super::schema::FileSchema;
use super::upload::{FileStore, Uploads};
use crate::memory::Meter;

/// Rows and bytes of one partition that are worth encoding.
const GATHER_ROWS: usize = frazil_core::limits::BATCH_ROWS;
const GATHER_BYTES: usize = frazil_core::limits::BATCH_BYTES;
/// Pieces of one partition, of about the same size, that are joined: tiny Arrow arrays are mostly
/// overhead. What was joined is joined again with its like, so that each row is copied a few times only.
const PIECES_ALIKE: usize = 8;
/// Bytes of one partition that are sorted together: a run. Each becomes a row group, or several.
const RUN_BYTES: usize = 4 * GATHER_BYTES;
/// Bytes of a partition beside its rows: key, path, places in tables.
const PARTITION_BYTES: usize = 768;
/// Bytes of a column of a batch beside what Arrow counts: what shares its buffers.
const COLUMN_BYTES: usize = 160;
/// Rows between two looks at the size of a file.
const ENCODE_ROWS: usize = 8_192;

/// Files that are open at once and still get delta encodings.
const DELTA_FILES: usize = 16;

/// What a table writer needs to know.
#[derive(Debug, Clone)]
pub struct TableWriterConfig {
    /// The schema of the batches and files.
    pub schema: Arc<Schema>,
    /// The partition spec that files are written with.
    pub spec: Arc<PartitionSpec>,
    /// The table's location.
    pub location: String,
    /// The table's properties.
    pub properties: HashMap<String, String>,
    /// What file names begin with, such as `frazil-<wid>-<session>-<seq>`. Must be unique: a
    /// second writer with the same prefix would overwrite files.
    pub file_prefix: String,
    /// The size at which a file ends, where the table does not say.
    pub target_file_bytes: u64,
    /// The zstd level, where the table does not say.
    pub zstd_level: i32,
    /// Parquet files that are open at once.
    pub writers_max_open: usize,
    /// The order of rows within files; `None` for the order in which they come.
    pub order: Option<Arc<FileOrder>>,
    /// Bytes of one partition that are sorted together.
    pub run_bytes: usize,
    /// Counts the bytes of files that are on their way to the storage.
    pub in_flight: Meter,
    /// The turns of requests to the storage: what shares them has as many at a time as there are.
    pub turns: Arc<Semaphore>,
    /// Bytes of a row group at most, whatever the table says.
    pub row_group_bytes: usize,
    /// What earlier writers of the table learned about its columns, for this one to use and add to.
    pub lessons: Arc<Lessons>,
    /// Whether the last column of batches is no column of the schema but numbers of their rows, of
    /// type `UInt32`: [`SealedFiles::wait_numbered`] says where each row has come to lie.
    pub numbered: bool,
}

impl TableWriterConfig {
    /// Describes a writer with defaults: 256 MiB files, zstd level 1, 64 open files.
    pub fn new(
        schema: Arc<Schema>,
        spec: Arc<PartitionSpec>,
        location: impl Into<String>,
        file_prefix: impl Into<String>,
    ) -> Self {
        TableWriterConfig {
            schema,
            spec,
            location: location.into(),
            properties: HashMap::new(),
            file_prefix: file_prefix.into(),
            target_file_bytes: 256 << 20,
            zstd_level: 1,
            writers_max_open: 64,
            order: None,
            run_bytes: RUN_BYTES,
            in_flight: Meter::detached(),
            turns: Arc::new(Semaphore::new(UPLOAD_REQUESTS)),
            row_group_bytes: usize::MAX,
            lessons: Arc::default(),
            numbered: false,
        }
    }
}

/// The rows of one partition: some encoded, some gathered.
struct Partition {
    key: PartitionKey,
    path: String,
    pieces: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    file: Option<DataFileWriter>,
    /// The memory of `file` when it was last looked at.
    file_bytes: usize,
    /// The row that was encoded last, in a sorted table.
    last_row: Option<RecordBatch>,
    /// The call of `write` that last touched the partition.
    touched: u64,
}

impl Partition {
    fn held(&self) -> usize {
        self.bytes + self.file_bytes
    }
}

/// Writes batches of one table, for one segment.
///
/// After an error the writer is of no use: drop it, which aborts its uploads.
pub struct TableWriter {
    format: Format,
    partitioner: Partitioner,
    order: Option<Arc<FileOrder>>,
    run_bytes: usize,
    locations: Locations,
    uploads: Uploads,
    writers_max_open: usize,
    partitions: HashMap<PartitionKey, Partition>,
    open: usize,
    held: usize,
    /// The part of `held` that open files have.
    held_by_files: usize,
    /// What is known of files that ended.
    ended: usize,
    /// The bytes of these files.
    ended_data: u64,
    rows: u64,
    calls: u64,
    /// Set while rows move, so that an error on their way cannot be forgotten.
    broken: bool,
    finished: Vec<FinishedFile>,
}

impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter")
            .field("rows", &self.rows)
            .field("bytes", &self.bytes())
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl TableWriter {
    /// Creates a writer whose uploads run on `runtime`.
    pub fn new(
        config: TableWriterConfig,
        store: impl FileStore + 'static,
        runtime: Handle,
    ) -> Result<Self> {
        refuse_uuid(&config.spec, &config.schema)?;
        let mut properties = FileProperties::read(
            &config.properties,
            config.target_file_bytes,
            config.zstd_level,
        )?;
        properties.row_group_bytes = properties.row_group_bytes.min(config.row_group_bytes);
        let schema = FileSchema::new(&config.schema)?;
        properties.check(&schema)?;
        let schema = match config.numbered {
            true => schema.with_numbers(),
            false => schema,
        };
        Ok(TableWriter {
            partitioner: Partitioner::new(&config.spec, &config.schema)?,
            locations: Locations::new(&config.location, &config.properties, &config.file_prefix)?,
            uploads: Uploads::new(Arc::new(store), runtime, config.in_flight, config.turns),
            writers_max_open: config.writers_max_open.max(1),
            order: config.order,
            run_bytes: config.run_bytes,
            format: Format {
                schema,
                properties,
                spec_id: config.spec.spec_id(),
                lessons: config.lessons,
            },
            partitions: HashMap::new(),
            open: 0,
            held: 0,
            held_by_files: 0,
            ended: 0,
            ended_data: 0,
            rows: 0,
            calls: 0,
            broken: false,
            finished: Vec::new(),
        })
    }

    /// Returns the rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Tells whether files have an order of their rows.
    pub fn is_sorted(&self) -> bool {
        self.order.is_some()
    }

    /// Returns the bytes of memory held: gathered rows, open files, and uploads on their way.
    pub fn bytes(&self) -> usize {
        self.held + self.uploads.in_flight()
    }

    /// Returns about how many bytes of data there are, in files that ended, in open ones, and in
    /// gathered rows.
    pub fn data_bytes(&self) -> u64 {
        let open = self.partitions.values().map(|partition| {
            let file = partition.file.as_ref().map_or(0, DataFileWriter::size);
            partition.bytes as u64 + file
        });
        self.ended_data + open.sum::<u64>()
    }

    /// Returns the bytes that gathered rows hold.
    pub fn gathered_bytes(&self) -> usize {
        self.held - self.held_by_files
    }

    /// Returns the bytes that open files hold.
    pub fn file_bytes(&self) -> usize {
        self.held_by_files
    }

    /// Returns the bytes that describe the files that ended. Only a seal begins to give them back.
    pub fn ended_bytes(&self) -> usize {
        self.ended
    }

    /// Returns the part of [`TableWriter::bytes`] that is on its way to the storage.
    pub fn in_flight(&self) -> usize {
        self.uploads.in_flight()
    }

    /// Takes the rows of `batch`, whose columns are those of the schema in its order.
    pub fn write(&mut self, batch: RecordBatch) -> Result<()> {
        self.guarded(|writer| writer.take(batch))
    }

    /// Runs what moves rows. After it failed once, rows may be missing: nothing works any more.
    fn guarded(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.uploads.check()?;
        if self.broken {
            return Err(SinkError::internal(
                "a table writer was used after it failed",
            ));
        }
        self.broken = true;
        run(self)?;
        self.broken = false;
        Ok(())
    }

    fn take(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = self.format.schema.align(batch)?;
        self.calls += 1;
        self.rows += batch.num_rows() as u64;
        if self.partitioner.is_unpartitioned() {
            return self.gather(PartitionKey::unpartitioned(), batch);
        }
        for (key, rows) in self.partitioner.split(&batch)? {
            if rows.len() == batch.num_rows() {
                return self.gather(key, batch);
            }
            // A copy and not a view, which would keep the whole batch in memory.
            let piece = take_record_batch(&batch, &UInt32Array::from(rows)).map_err(arrow_error)?;
            self.gather(key, piece)?;
        }
        Ok(())
    }

    /// Ends files, those that hold most memory first, until gathered rows and open files hold at most
    /// `bytes`. Uploads are left out: they need time, and not smaller files.
    pub fn shrink_to(&mut self, bytes: usize) -> Result<()> {
        self.guarded(|writer| writer.end_largest(bytes))
    }

    fn end_largest(&mut self, bytes: usize) -> Result<()> {
        while self.held > bytes {
            let largest = self
                .partitions
                .values()
                .max_by_key(|partition| partition.held());
            let Some(key) = largest.map(|partition| partition.key.clone()) else {
                break;
            };
            self.end(&key)?;
        }
        Ok(())
    }

    /// Ends all files.
    pub fn seal(mut self) -> Result<SealedFiles> {
        self.guarded(Self::end_all)?;
        self.uploads.check()?;
        Ok(SealedFiles {
            files: self.finished,
            rows: self.rows,
            described: self.ended,
            in_flight: self.uploads.in_flight_counter(),
        })
    }

    fn end_all(&mut self) -> Result<()> {
        let partitions = self.partitions.values();
        let mut keys: Vec<_> = partitions
            .map(|partition| (partition.path.clone(), partition.key.clone()))
            .collect();
        // In a fixed order, so that the same rows give the same file names.
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        keys.iter().try_for_each(|(_, key)| self.end(key))
    }

    fn gather(&mut self, key: PartitionKey, piece: RecordBatch) -> Result<()> {
        let mut partition = match self.partitions.remove(&key) {
            Some(partition) => partition,
            None => Partition {
                path: self.partitioner.path(&key),
                key,
                pieces: Vec::new(),
                rows: 0,
                bytes: 0,
                file: None,
                file_bytes: 0,
                last_row: None,
                touched: 0,
            },
        };
        let mut bytes = self.batch_bytes(&piece);
        if partition.bytes == 0 && partition.file.is_none() {
            bytes += PARTITION_BYTES;
        }
        partition.touched = self.calls;
        partition.rows += piece.num_rows();
        partition.bytes += bytes;
        partition.pieces.push(piece);
        self.held += bytes;
        let is_due = match self.order {
            None => partition.rows >= GATHER_ROWS || partition.bytes >= GATHER_BYTES,
            // The more rows are sorted together, the more a reader can leave out.
            Some(_) => partition.bytes >= self.run_bytes,
        };
        if is_due {
            self.encode(&mut partition)?;
        } else {
            self.join_alike(&mut partition)?;
        }
        self.partitions.insert(partition.key.clone(), partition);
        Ok(())
    }

    fn batch_bytes(&self, batch: &RecordBatch) -> usize {
        batch.get_array_memory_size() + COLUMN_BYTES * self.format.schema.parquet.num_columns()
    }

    /// Joins the last pieces of a partition for as long as none of them is larger than all behind it.
    fn join_alike(&mut self, partition: &mut Partition) -> Result<()> {
        while partition.pieces.len() >= PIECES_ALIKE {
            let tail = partition.pieces.len() - PIECES_ALIKE;
            let pieces = &partition.pieces[tail..];
            let rows: usize = pieces.iter().map(RecordBatch::num_rows).sum();
            if 2 * pieces[0].num_rows() > rows {
                break;
            }
            let joined =
                concat_batches(&self.format.schema.gathered, pieces).map_err(arrow_error)?;
            let before: usize = pieces.iter().map(|piece| self.batch_bytes(piece)).sum();
            let after = self.batch_bytes(&joined);
            self.held = self.held - before + after;
            partition.bytes = partition.bytes - before + after;
            partition.pieces.truncate(tail);
            partition.pieces.push(joined);
        }
        Ok(())
    }

    /// Makes one batch of a partition's pieces.
    fn join(&mut self, partition: &mut Partition) -> Result<()> {
        // Above a few gathers' worth, 32-bit string offsets might not hold all pieces together.
        if partition.pieces.len() > 1 && partition.bytes <= 2 * RUN_BYTES {
            let joined = concat_batches(&self.format.schema.gathered, &partition.pieces)
                .map_err(arrow_error)?;
            let bytes = self.batch_bytes(&joined);
            self.held = self.held - partition.bytes + bytes;
            partition.bytes = bytes;
            partition.pieces = vec![joined];
        }
        Ok(())
    }

    /// Encodes what a partition has gathered.
    fn encode(&mut self, partition: &mut Partition) -> Result<()> {
        self.join(partition)?;
        for piece in std::mem::take(&mut partition.pieces) {
            let piece = self.sorted(piece, partition)?;
            for start in (0..piece.num_rows()).step_by(ENCODE_ROWS) {
                let rows = ENCODE_ROWS.min(piece.num_rows() - start);
                self.encode_slice(partition, &piece.slice(start, rows))?;
            }
            self.end_run(partition, &piece)?;
        }
        self.held -= partition.bytes;
        partition.bytes = 0;
        partition.rows = 0;
        Ok(())
    }

    /// Puts the rows of a run into their order, and notes whether the open file stays in order with
    /// them.
    fn sorted(&self, run: RecordBatch, partition: &mut Partition) -> Result<RecordBatch> {
        let Some(order) = &self.order else {
            return Ok(run);
        };
        let run = match order.rows.sort(&run)? {
            Some(indices) => take_record_batch(&run, &indices).map_err(arrow_error)?,
            None => run,
        };
        if let (Some(file), Some(last)) = (&mut partition.file, &partition.last_row)
            && run.num_rows() > 0
        {
            let seam = [last, &run.slice(0, 1)];
            let seam = concat_batches(&self.format.schema.gathered, seam).map_err(arrow_error)?;
            if order.rows.sort(&seam)?.is_some() {
                file.break_order();
            }
        }
        Ok(run)
    }

    /// Ends a sorted run: its rows and the next ones must not share a row group.
    fn end_run(&mut self, partition: &mut Partition, run: &RecordBatch) -> Result<()> {
        if self.order.is_none() || run.num_rows() == 0 {
            return Ok(());
        }
        let last = u32::try_from(run.num_rows() - 1)
            .map_err(|_| SinkError::internal("a batch of more than 2^32 rows"))?;
        // A copy and not a view, which would keep the whole run in memory.
        let row = take_record_batch(run, &UInt32Array::from(vec![last])).map_err(arrow_error)?;
        partition.last_row = Some(row);
        let Some(file) = &mut partition.file else {
            return Ok(());
        };
        file.end_row_group()?;
        let bytes = file.memory();
        self.count_file(partition, bytes);
        Ok(())
    }

    fn count_file(&mut self, partition: &mut Partition, bytes: usize) {
        self.held = self.held - partition.file_bytes + bytes;
        self.held_by_files = self.held_by_files - partition.file_bytes + bytes;
        partition.file_bytes = bytes;
    }

    fn encode_slice(&mut self, partition: &mut Partition, batch: &RecordBatch) -> Result<()> {
        let numbered = self.format.schema.numbers(batch)?;
        let (batch, numbers) = match &numbered {
            Some((batch, numbers)) => (batch, Some(numbers)),
            None => (batch, None),
        };
        let mut file = match partition.file.take() {
            Some(file) => file,
            None => self.open(&partition.path, batch)?,
        };
        file.write(&self.format, batch, numbers)?;
        let is_full = file.size() >= self.format.properties.target_file_bytes;
        let bytes = file.memory();
        self.count_file(partition, bytes);
        partition.file = Some(file);
        if is_full {
            self.finish(partition)?;
        }
        Ok(())
    }

    fn open(&mut self, path: &str, sample: &RecordBatch) -> Result<DataFileWriter> {
        while self.open >= self.writers_max_open {
            self.evict()?;
        }
        let location = self.locations.next(path);
        let upload = self.uploads.start(&location)?;
        let many = self.open >= DELTA_FILES;
        let file = DataFileWriter::open(&self.format, location, upload, sample, many)?;
        self.open += 1;
        Ok(file)
    }

    /// Ends one open file, with what its partition has gathered: the largest of those that the
    /// current batch has not touched, so that the files that end early are worth having.
    fn evict(&mut self) -> Result<()> {
        let calls = self.calls;
        let victim = self
            .partitions
            .values()
            .filter(|partition| partition.file.is_some())
            .max_by_key(|partition| {
                let size = partition.file.as_ref().map_or(0, DataFileWriter::size);
                (partition.touched < calls, size)
            })
            .map(|partition| partition.key.clone());
        match victim {
            Some(key) => self.end(&key),
            None => Err(SinkError::internal("open files are counted wrongly")),
        }
    }

    /// Encodes all that a partition has gathered, ends its file and forgets it.
    fn end(&mut self, key: &PartitionKey) -> Result<()> {
        if let Some(mut partition) = self.partitions.remove(key) {
            self.encode(&mut partition)?;
            self.finish(&mut partition)?;
        }
        Ok(())
    }

    fn finish(&mut self, partition: &mut Partition) -> Result<()> {
        let Some(file) = partition.file.take() else {
            return Ok(());
        };
        self.open -= 1;
        self.count_file(partition, 0);
        let order_id = self.order.as_ref().and_then(|order| order.id);
        let finished = file.finish(&self.format, partition.key.values(), order_id)?;
        let numbers = finished.numbers.len() * size_of::<u32>();
        self.ended += described_bytes(&finished.data_file) + numbers;
        self.ended_data += finished.data_file.file_size_in_bytes();
        self.finished.push(finished);
        Ok(())
    }
}

/// Returns about how many bytes describe a file: a name, its task, and by column six numbers and two
/// bounds, in hash tables that are half full.
fn described_bytes(file: &DataFile) -> usize {
    const FILE: usize = 1_536;
    const COLUMN: usize = 320;
    FILE + COLUMN * file.value_counts().len() + 2 * file.file_path().len()
}

fn arrow_error(error: ArrowError) -> SinkError {
    SinkError::internal("rows could not be gathered by partition").caused_by(error)
}

/// Files whose encoding has ended.
#[derive(Debug)]
pub struct SealedFiles {
    files: Vec<FinishedFile>,
    rows: u64,
    described: usize,
    in_flight: Meter,
}

impl SealedFiles {
    /// Returns the rows of all files.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the bytes that are in memory still, on their way to the storage.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Returns the bytes of memory that describe the files.
    pub fn described_bytes(&self) -> usize {
        self.described
    }

    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        let sizes = self
            .files
            .iter()
            .map(|file| file.data_file.file_size_in_bytes());
        sizes.sum()
    }

    /// Waits until every file is durable and returns what describes them. Fails if one upload did.
    pub async fn wait(self) -> Result<Vec<DataFile>> {
        let files = self.wait_numbered().await?;
        Ok(files.into_iter().map(|(file, _)| file).collect())
    }

    /// As [`wait`](Self::wait), with the numbers of the rows of each file in their order, where
    /// batches had some.
    pub async fn wait_numbered(self) -> Result<Vec<(DataFile, Vec<u32>)>> {
        let mut files = Vec::with_capacity(self.files.len());
        let mut failed = None;
        // All are awaited, so that nothing of this writer goes on after an error was returned.
        for file in self.files {
            let result = file.upload.await.unwrap_or_else(|error| {
                Err(SinkError::internal("an upload ended without a result").caused_by(error))
            });
            match result {
                Ok(()) => files.push((file.data_file, file.numbers)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(files), Err)
    }
}
