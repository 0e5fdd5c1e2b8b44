//! A loaded table with its open rows: in builders, in open files, in files that were closed early.

use std::sync::Arc;

use frazil_core::Result;
use frazil_core::config::TableConfig;
use frazil_core::control::task::TaskMachine;
use frazil_core::control::writer::TableIndex;
use frazil_core::convert::{ConvertOptions, TableConverter};
use frazil_core::layout::sort::{self, FileOrder};
use frazil_core::memory::Use;
use frazil_core::schema::evolve::{EvolutionLimits, TableFacts};
use iceberg::spec::TableMetadata;
use uuid::Uuid;

use super::changes::OpenChanges;
use super::pending::PendingRows;
use super::sealing::ClosedFiles;
use super::table::SessionContext;
use crate::catalog::LoadedTable;
use crate::writer::{Lessons, TableWriter, TableWriterConfig};

/// Makes what converts records to rows of a table.
///
/// # Errors
///
/// When its schema or its name mapping cannot be used.
pub(crate) fn converter(metadata: &TableMetadata, config: &TableConfig) -> Result<TableConverter> {
    let options = convert_options(metadata, config)?;
    TableConverter::new(Arc::clone(metadata.current_schema()), &options)
}

/// Returns how records meet a table.
///
/// # Errors
///
/// When its name mapping cannot be used.
pub(super) fn convert_options(
    metadata: &TableMetadata,
    config: &TableConfig,
) -> Result<ConvertOptions> {
    Ok(ConvertOptions {
        case_insensitive: config.case_insensitive,
        evolution: config.evolution.mode,
        limits: EvolutionLimits {
            per_commit: config.evolution.columns_per_commit,
            in_all: config.evolution.columns_max,
        },
        breaking: config.evolution.breaking,
        facts: TableFacts::of(metadata)?,
        force_optional: config.force_optional,
        metadata_columns: config.metadata_columns.clone(),
    })
}

/// A loaded table and the rows that are open.
#[derive(Debug)]
pub(super) struct OpenTable {
    pub(super) loaded: LoadedTable,
    pub(super) converter: TableConverter,
    /// The order of rows within files.
    order: Option<Arc<FileOrder>>,
    pub(super) writer: Option<TableWriter>,
    /// What is known of changes; `None` when rows are appended.
    pub(super) changes: Option<OpenChanges>,
    /// Rows that the commit finishes.
    pub(super) pending: PendingRows,
    /// Files of the open segment that were closed early, for a new schema or spec.
    pub(super) closed: Vec<ClosedFiles>,
    /// The commit interval in which the oldest open row came.
    pub(super) opened_round: Option<u64>,
    pub(super) rows: u64,
    /// What the files of the table have taught, whatever its schema.
    lessons: Arc<Lessons>,
}

impl OpenTable {
    /// Opens a table for rows.
    ///
    /// # Errors
    ///
    /// When its schema is one that cannot be written.
    pub(super) fn new(loaded: LoadedTable, config: &TableConfig) -> Result<OpenTable> {
        let converter = converter(&loaded.metadata, config)?;
        Ok(OpenTable {
            order: file_order(&loaded, config),
            changes: OpenChanges::new(&loaded, config)?,
            pending: PendingRows::default(),
            loaded,
            converter,
            writer: None,
            closed: Vec::new(),
            opened_round: None,
            rows: 0,
            lessons: Arc::default(),
        })
    }

    /// Takes over what was open of the same table under another schema or spec.
    ///
    /// # Errors
    ///
    /// When changes of rows cannot go on.
    pub(super) fn continues(&mut self, before: OpenTable) -> Result<()> {
        if let (Some(changes), Some(before)) = (&mut self.changes, before.changes) {
            changes.continues(before)?;
        }
        self.pending.continues(before.pending);
        self.closed = before.closed;
        self.opened_round = before.opened_round;
        self.rows = before.rows;
        self.lessons = before.lessons;
        Ok(())
    }

    /// Memory by use, without uploads, which count themselves.
    pub(super) fn uses(&self) -> [(Use, u64); 4] {
        let writers = || self.writer.iter().chain(self.pending.writer());
        let of_writer = |bytes: fn(&TableWriter) -> usize| writers().map(bytes).sum::<usize>();
        let builders = self.converter.bytes() + self.pending.builder_bytes();
        [
            (Use::Builders, builders as u64),
            (Use::Gathered, of_writer(TableWriter::gathered_bytes) as u64),
            (Use::OpenFiles, of_writer(TableWriter::file_bytes) as u64),
            (Use::EndedFiles, self.ended_bytes()),
        ]
    }

    /// Memory that ending files begins to give back.
    pub(super) fn resident_bytes(&self) -> u64 {
        let uses = self.uses().into_iter();
        let resident = uses.filter(|(what, _)| *what != Use::EndedFiles);
        resident.map(|(_, bytes)| bytes).sum()
    }

    /// Memory that only a seal begins to give back.
    pub(super) fn ended_bytes(&self) -> u64 {
        let writer = self.writer.as_ref().map_or(0, TableWriter::ended_bytes);
        let closed = self.closed.iter().map(|one| one.files.described_bytes());
        let changes = self.changes.as_ref().map_or(0, OpenChanges::bytes);
        (writer + changes + closed.sum::<usize>() + self.pending.ended_bytes()) as u64
    }

    /// Bytes of the open segment, in memory or in files.
    pub(super) fn data_bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|closed| closed.files.bytes()).sum();
        let writer = self.writer.as_ref().map_or(0, TableWriter::data_bytes);
        self.converter.bytes() as u64 + writer + closed + self.pending.data_bytes()
    }
}

/// Returns the order of the table's files. One that cannot be followed is no reason to write
/// nothing: files that say nothing of an order are right in every table.
fn file_order(loaded: &LoadedTable, config: &TableConfig) -> Option<Arc<FileOrder>> {
    match sort::of_table(&loaded.metadata, config) {
        Ok(order) => order.map(Arc::new),
        Err(error) => {
            tracing::warn!(table = %config.name, reason = %error.report(),
                "the table's sort order cannot be followed; its files are written unsorted");
            None
        }
    }
}

/// Returns what the names of a segment's files begin with.
pub(super) fn segment_name(context: &SessionContext, session: Uuid, sequence: u64) -> String {
    let wid = &context.config.wid;
    format!("frazil-{wid}-{}-{sequence}", session.simple())
}

pub(super) fn writer_settings(
    context: &SessionContext,
    config: &TableConfig,
    open: &OpenTable,
    machine: &TaskMachine,
    table: TableIndex,
) -> TableWriterConfig {
    let metadata = &open.loaded.metadata;
    let sequence = machine.progress().next_sequence(table);
    let segment = segment_name(context, machine.session(), sequence);
    let file_prefix = format!("{segment}-{}", open.closed.len());
    let mut settings = TableWriterConfig::new(
        Arc::clone(metadata.current_schema()),
        Arc::clone(metadata.default_partition_spec()),
        metadata.location(),
        file_prefix,
    );
    settings.properties = metadata.properties().clone();
    settings.properties.extend(config.write_props.clone());
    settings.order = open.order.clone();
    settings.in_flight = context.account.meter(Use::Uploads);
    settings.turns = Arc::clone(&context.turns);
    settings.row_group_bytes = row_group_bytes(context.account.memory().share());
    settings.lessons = Arc::clone(&open.lessons);
    settings.numbered = open.changes.is_some();
    // The limit is the task's, and its tables share it.
    let tables = context.tables.get().max(1);
    settings.writers_max_open = (context.config.writers_open_max / tables).max(1);
    settings
}

/// Returns the bytes that a row group of a task may have whose share of the memory is so large. A row group
/// is in memory as a whole, and once more while it becomes parts of an upload.
fn row_group_bytes(share: u64) -> usize {
    const PART_OF_SHARE: u64 = 4;
    /// A task that has no place in the memory yet has no share either.
    const LEAST: u64 = 1 << 20;
    usize::try_from((share / PART_OF_SHARE).max(LEAST)).unwrap_or(usize::MAX)
}
