//! Writes the rows of some files of one partition into new ones.
//!
//! All of it is streamed: a batch of rows is read, deleted rows are left out, and the rest goes to the
//! writer that tasks have too. The files that come of it are listed by nobody yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use frazil_core::config::TableConfig;
use frazil_core::layout::sort;
use frazil_core::maintain::moved::{Moved, MovedFile};
use frazil_core::memory::Use;
use frazil_core::schema::arrow::arrow_schema;
use frazil_core::{Result, SinkError};
use iceberg::spec::{DataFile, FormatVersion, PartitionSpec, Struct, TableMetadata};
use tokio::runtime::Handle;

use super::lineage::{COLUMNS, with_lineage};
use super::pace::Pace;
use super::read::{FileRows, Input, RowForm};
use crate::commit::Cancel;
use crate::delete::is_same_partition;
use crate::memory::{Draw, Memory};
use crate::rows::numbered;
use crate::runtime::compute;
use crate::storage::TableStorage;
use crate::writer::{TableWriter, TableWriterConfig};

/// Bytes that may be on their way to the storage before the next rows are read.
const IN_FLIGHT_MAX: usize = 32 << 20;
/// Memory beside the open file: rows that are read, and those that wait for their file.
const READ_BYTES: u64 = 48 << 20;
const UPLOAD_PAUSE: Duration = Duration::from_millis(10);

/// What is written again.
pub(super) struct Rewriting {
    pub(super) metadata: Arc<TableMetadata>,
    pub(super) storage: TableStorage,
    pub(super) spec: Arc<PartitionSpec>,
    /// The partition of all files.
    pub(super) partition: Struct,
    pub(super) inputs: Vec<Input>,
    pub(super) config: TableConfig,
    /// What the names of new files begin with.
    pub(super) file_prefix: String,
    pub(super) memory: Arc<Memory>,
    pub(super) pace: Pace,
    pub(super) cancel: Cancel,
}

/// What came of it.
pub(super) struct Rewritten {
    pub(super) files: Vec<DataFile>,
    pub(super) moved: Moved,
}

/// Returns about how much memory it takes to write `bytes` of files again.
pub(super) fn needs(bytes: u64) -> u64 {
    const OPEN_FILE_MAX: u64 = 160 << 20;
    bytes.saturating_mul(2).min(OPEN_FILE_MAX) + READ_BYTES
}

impl Rewriting {
    /// Writes the files, on a thread of its own: it is mostly computing.
    ///
    /// # Errors
    ///
    /// `COMPACTION_FILE_UNFIT`, `COMPACTION_UNEVEN`, `MAINTENANCE_CANCELLED`, what the table's properties are
    /// refused with, or what the store says.
    pub(super) async fn run(self) -> Result<Rewritten> {
        let runtime = Handle::current();
        let work = tokio::task::spawn_blocking(move || runtime.block_on(self.write()));
        work.await.unwrap_or_else(|error| {
            Err(SinkError::internal("a compaction ended without a result").caused_by(error))
        })
    }

    async fn write(self) -> Result<Rewritten> {
        let form = self.form()?;
        let mut writer = self.writer(&form)?;
        let is_sorted = writer.is_sorted();
        let mut held = self.memory.draw(Use::Rewrites, READ_BYTES);
        let mut read = 0usize;
        for input in &self.inputs {
            let mut rows = FileRows::open(&self.storage, input, &form).await?;
            loop {
                let turn = self.pace.turn().await;
                let Some(mut batch) = rows.next().await? else {
                    break;
                };
                if self.cancel.is_cancelled() {
                    return Err(cancelled());
                }
                let count = batch.num_rows();
                if is_sorted {
                    batch = numbered(&batch, numbers(read, count)?)?;
                }
                read += count;
                compute(|| writer.write(batch)).await?;
                held.resize(READ_BYTES + writer.bytes() as u64);
                self.let_uploads_catch_up(&mut writer, &mut held).await?;
                self.pace.rest(turn).await;
            }
        }
        let sealed = compute(|| writer.seal()).await?;
        held.resize(READ_BYTES + (sealed.described_bytes() + sealed.in_flight()) as u64);
        let waiting = sealed.wait_numbered();
        let files = self.cancel.or(waiting).await.ok_or_else(cancelled)??;
        self.described(files, is_sorted)
    }

    /// Checks the new files and brings them together with the old ones.
    fn described(self, files: Vec<(DataFile, Vec<u32>)>, is_sorted: bool) -> Result<Rewritten> {
        let (files, numbers): (Vec<DataFile>, Vec<Vec<u32>>) = files.into_iter().unzip();
        let is_there = |file: &DataFile| is_same_partition(file.partition(), &self.partition);
        if !files.iter().all(is_there) {
            return Err(SinkError::fatal(
                "COMPACTION_FILE_UNFIT",
                "data files cannot be compacted: their rows are of another partition than the table says; \
                 rewrite them with another engine",
            )
            .with("spec", self.spec.spec_id()));
        }
        let inputs = self.inputs.into_iter().map(|input| MovedFile {
            rows: input.rows,
            deleted: input.deleted,
        });
        let outputs = files.iter().map(DataFile::record_count).collect();
        let moved = Moved::new(inputs.collect(), outputs, is_sorted.then_some(numbers))?;
        Ok(Rewritten { files, moved })
    }

    fn form(&self) -> Result<RowForm> {
        let schema = Arc::clone(self.metadata.current_schema());
        let with_lineage = match self.has_lineage() {
            true => Some(arrow_schema(&with_lineage(&schema)?)?),
            false => None,
        };
        Ok(RowForm {
            arrow: arrow_schema(&schema)?,
            schema,
            with_lineage,
        })
    }

    fn has_lineage(&self) -> bool {
        self.metadata.format_version() >= FormatVersion::V3
    }

    fn writer(&self, form: &RowForm) -> Result<TableWriter> {
        let metadata = &self.metadata;
        let schema = match form.with_lineage {
            Some(_) => Arc::new(with_lineage(&form.schema)?),
            None => Arc::clone(&form.schema),
        };
        let mut settings = TableWriterConfig::new(
            schema,
            Arc::clone(&self.spec),
            metadata.location(),
            self.file_prefix.clone(),
        );
        settings.properties = metadata.properties().clone();
        settings.properties.extend(self.config.write_props.clone());
        if self.has_lineage() {
            let metrics = COLUMNS.map(|name| format!("write.metadata.metrics.column.{name}"));
            let none = metrics.map(|key| (key, "none".to_owned()));
            settings.properties.extend(BTreeMap::from(none));
        }
        settings.order = sort::of_table(metadata, &self.config)?.map(Arc::new);
        settings.numbered = settings.order.is_some();
        TableWriter::new(settings, self.storage.clone(), Handle::current())
    }

    /// Waits for a store that is slower than the reading.
    async fn let_uploads_catch_up(&self, writer: &mut TableWriter, held: &mut Draw) -> Result<()> {
        while writer.in_flight() > IN_FLIGHT_MAX {
            let pause = tokio::time::sleep(UPLOAD_PAUSE);
            self.cancel.or(pause).await.ok_or_else(cancelled)?;
        }
        held.resize(READ_BYTES + writer.bytes() as u64);
        Ok(())
    }
}

/// Returns the numbers of `count` rows that come behind `read` others.
fn numbers(read: usize, count: usize) -> Result<Vec<u32>> {
    let (first, end) = (
        u32::try_from(read),
        u32::try_from(read.saturating_add(count)),
    );
    match (first, end) {
        (Ok(first), Ok(end)) => Ok((first..end).collect()),
        _ => Err(SinkError::internal("too many rows")),
    }
}

pub(super) fn cancelled() -> SinkError {
    SinkError::retriable(
        "MAINTENANCE_CANCELLED",
        "the maintenance of a table ended with its connector; what it has written so far counts for nothing",
    )
}
