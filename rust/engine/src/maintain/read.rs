//! Reads the rows of a data file for a compaction: as the table has its columns now, without deleted
//! rows, in format version 3 with what is kept of each row's history.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use frazil_core::delete::DeletionVector;
use frazil_core::{Result, SinkError};
use futures::TryStreamExt;
use iceberg::spec::Schema;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::ParquetRecordBatchStream;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::Type as ParquetType;

use super::lineage::{LAST_UPDATED, ROW_ID};
use crate::index::column_of;
use crate::redact;
use crate::rows::{StoredFile, aligned};
use crate::storage::{TableStorage, find_sink_error};

/// Bytes of rows that are read at once, about, as their file says before compression.
const BATCH_BYTES: u64 = 8 << 20;
const BATCH_ROWS_MIN: u64 = 16;
const BATCH_ROWS_MAX: u64 = 8_192;

/// A data file that is read.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) path: Arc<str>,
    pub(super) bytes: u64,
    /// Its rows, deleted ones included.
    pub(super) rows: u64,
    pub(super) deleted: DeletionVector,
    /// The id of its first row, where it has one.
    pub(super) first_row_id: Option<u64>,
    /// Its data sequence number.
    pub(super) sequence: i64,
}

/// What rows are read as.
#[derive(Debug, Clone)]
pub(super) struct RowForm {
    /// The table's schema.
    pub(super) schema: Arc<Schema>,
    /// Its Arrow form.
    pub(super) arrow: SchemaRef,
    /// The same with the columns of row lineage, where the table has them.
    pub(super) with_lineage: Option<SchemaRef>,
}

/// The rows of one file, batch by batch.
pub(super) struct FileRows<'a> {
    input: &'a Input,
    form: &'a RowForm,
    batches: ParquetRecordBatchStream<StoredFile>,
    /// The next row, deleted ones counted.
    next: u64,
}

impl<'a> FileRows<'a> {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// `COMPACTION_FILE_UNFIT`, or what the store says.
    pub(super) async fn open(
        storage: &TableStorage,
        input: &'a Input,
        form: &'a RowForm,
    ) -> Result<Self> {
        let unfit = |error: ParquetError| unreadable(input, error);
        let file = StoredFile::new(storage, &input.path, input.bytes);
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchStreamBuilder::new_with_options(file, options).await;
        let builder = builder.map_err(unfit)?;
        let file = builder.parquet_schema();
        let roots = file.root_schema().get_fields();
        check_columns(roots, &form.schema).map_err(|what| unfit_file(input, &what))?;
        let wanted = |root: &ParquetType| {
            let id = root.get_basic_info().id();
            let is_lineage = form.with_lineage.is_some() && [ROW_ID, LAST_UPDATED].contains(&id);
            let mut own = form.schema.as_struct().fields().iter();
            is_lineage || own.any(|field| field.id == id)
        };
        let numbered = roots.iter().enumerate();
        let numbered = numbered.filter(|(_, root)| wanted(root));
        let mask = ProjectionMask::roots(file, numbered.map(|(at, _)| at).collect::<Vec<_>>());
        let rows = batch_rows(builder.metadata());
        let builder = builder.with_projection(mask).with_batch_size(rows);
        Ok(FileRows {
            input,
            form,
            batches: builder.build().map_err(unfit)?,
            next: 0,
        })
    }

    /// Returns the next rows that are not deleted, perhaps none of a batch; `None` after the last.
    ///
    /// # Errors
    ///
    /// `COMPACTION_FILE_UNFIT`, `ROW_UNREADABLE`, or what the store says.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let read = self.batches.try_next().await;
        let Some(batch) = read.map_err(|error| unreadable(self.input, error))? else {
            return match self.next == self.input.rows {
                true => Ok(None),
                false => Err(unfit_file(
                    self.input,
                    "it has another number of rows than the table says",
                )
                .with("rows", self.next)
                .with("expected", self.input.rows)),
            };
        };
        let first = self.next;
        self.next += batch.num_rows() as u64;
        let rows = self.whole(&batch, first)?;
        let kept = (first..self.next).map(|row| !self.input.deleted.contains(row));
        let kept: BooleanArray = kept.map(Some).collect();
        let kept = match kept.true_count() == rows.num_rows() {
            true => Ok(rows),
            false => filter_record_batch(&rows, &kept),
        };
        let unfit = |error| SinkError::internal("rows cannot be left out").caused_by(error);
        kept.map(Some).map_err(unfit)
    }

    /// Returns the rows of `batch`, the first of which is row `first` of the file, with all columns.
    fn whole(&self, batch: &RecordBatch, first: u64) -> Result<RecordBatch> {
        let named = |error: SinkError| error.with("file", redact::foreign(&self.input.path));
        let fields = self.form.schema.as_struct().fields().iter();
        let fields = fields.zip(self.form.arrow.fields());
        let columns = aligned(batch, fields.map(|(of, field)| (of, &**field)));
        let mut columns = columns.map_err(named)?;
        let schema = match &self.form.with_lineage {
            None => &self.form.arrow,
            Some(schema) => {
                columns.extend(self.lineage(batch, first)?);
                schema
            }
        };
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let whole = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
        whole.map_err(|error| {
            unfit_file(self.input, "it lacks a value of a required column").caused_by(error)
        })
    }

    /// Returns the id of each row and the sequence number of its last change: its own, or what it inherits
    /// from its file. Rows from before the table's upgrade may have none yet.
    fn lineage(&self, batch: &RecordBatch, first: u64) -> Result<[ArrayRef; 2]> {
        let own = |id: i32| match column_of(batch, id) {
            None => Ok(None),
            Some(column) => match column.as_primitive_opt::<Int64Type>() {
                Some(numbers) => Ok(Some(numbers.clone())),
                None => Err(unfit_file(self.input, "its row ids are no long numbers")),
            },
        };
        let (ids, changed) = (own(ROW_ID)?, own(LAST_UPDATED)?);
        let first_id = self.input.first_row_id.map(|id| id.saturating_add(first));
        let inherited = |at: usize| {
            let id = first_id?.saturating_add(at as u64);
            i64::try_from(id).ok()
        };
        let sequence = first_id.map(|_| self.input.sequence);
        let number = |own: &Option<Int64Array>, at: usize, inherited: Option<i64>| match own {
            Some(own) if own.is_valid(at) => Some(own.value(at)),
            _ => inherited,
        };
        let rows = 0..batch.num_rows();
        let row_ids = rows.clone().map(|at| number(&ids, at, inherited(at)));
        let row_ids: Int64Array = row_ids.collect();
        let changes: Int64Array = rows.map(|at| number(&changed, at, sequence)).collect();
        Ok([Arc::new(row_ids), Arc::new(changes)])
    }
}

/// Says why rows of a file with these columns cannot be written with `schema`.
fn check_columns(roots: &[Arc<ParquetType>], schema: &Schema) -> Result<(), String> {
    if roots.iter().any(|root| !root.get_basic_info().has_id()) {
        return Err("its columns have no field ids".to_owned());
    }
    let mut ids = Vec::new();
    for root in roots {
        ids_of(root, &mut ids);
    }
    for (id, field) in schema.field_id_to_fields() {
        if field.initial_default.is_some() && !ids.contains(id) {
            let name = &field.name;
            return Err(format!(
                "it is from before the column `{name}`, whose default its rows have"
            ));
        }
    }
    Ok(())
}

fn ids_of(column: &ParquetType, ids: &mut Vec<i32>) {
    let info = column.get_basic_info();
    ids.extend(info.has_id().then(|| info.id()));
    if column.is_group() {
        for inner in column.get_fields() {
            ids_of(inner, ids);
        }
    }
}

fn batch_rows(file: &ParquetMetaData) -> usize {
    let bytes = file
        .row_groups()
        .iter()
        .map(|group| group.total_byte_size());
    let bytes: u64 = bytes.map(i64::unsigned_abs).sum();
    let rows = file.file_metadata().num_rows().unsigned_abs();
    let each = (bytes / rows.max(1)).max(1);
    (BATCH_BYTES / each).clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX) as usize
}

fn unreadable(input: &Input, error: ParquetError) -> SinkError {
    match find_sink_error(&error) {
        Some(store) => store.again(),
        None => unfit_file(input, "it is no Parquet file that can be read").caused_by(error),
    }
}

fn unfit_file(input: &Input, what: &str) -> SinkError {
    SinkError::fatal(
        "COMPACTION_FILE_UNFIT",
        format!("a data file cannot be compacted: {what}; rewrite it with another engine"),
    )
    .with("file", redact::foreign(&input.path))
}
