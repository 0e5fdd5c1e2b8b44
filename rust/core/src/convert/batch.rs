//! The rows of many frames, gathered for one table.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef as ArrowSchemaRef;
use iceberg::spec::{PrimitiveType, SchemaRef, Type};

use super::column::{Column, SCHEMALESS, StructSlots, key_is_not_text, misfit};
use super::fast::Rows;
use super::json;
use super::misfit::{Misfit, Reason};
use super::shape::{Record, Rules, Shape, Source};
use crate::error::{Result, SinkError};
use crate::limits::{BATCH_BYTES, BATCH_ROWS};
use crate::route::source::walk;
use crate::schema::arrow::arrow_schema;
use crate::schema::evolve::{
    BreakingPolicy, Comparison, EvolutionLimits, EvolutionMode, EvolutionRules, Probe, TableFacts,
};
use crate::schema::metadata::{MetadataColumn, MetadataSource, schema_at, type_of_column};
use crate::wire::{Cell, Frame, MapCell, SourceColumn, SourceKind, SourceSchema};

/// How records meet one table.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// Whether names match whatever their case.
    pub case_insensitive: bool,
    /// How the table follows its records. Unless it is off, fields that the table lacks are errors
    /// (ask [`TableConverter::evolution`] first); else they are dropped.
    pub evolution: EvolutionMode,
    /// How many columns may come.
    pub limits: EvolutionLimits,
    /// What becomes of a record that tells of a change which the table cannot follow.
    pub breaking: BreakingPolicy,
    /// What else the table's metadata say about names and types.
    pub facts: TableFacts,
    /// Whether fields inside of new structs are optional.
    pub force_optional: bool,
    /// Columns that are filled from where the record came from.
    pub metadata_columns: Vec<MetadataColumn>,
}

/// How the values of one source schema meet the table.
#[derive(Debug, Clone)]
enum Plan {
    /// Structs, column by column.
    Columns(Arc<Record>),
    /// Maps, row by row; a shape per column when the values have a schema.
    Entries(Arc<[Shape]>),
}

/// Gathers rows for one table; see [`TableConverter::append`].
#[derive(Debug)]
pub struct TableConverter {
    pub(super) schema: SchemaRef,
    arrow: ArrowSchemaRef,
    pub(super) options: ConvertOptions,
    pub(super) evolution_rules: EvolutionRules,
    /// Finds what asks for a change of the table; `None` when nothing can.
    pub(super) probe: Option<Probe>,
    pub(super) table: StructSlots,
    pub(super) metadata: Vec<Option<MetadataColumn>>,
    /// By value schema id; 0 is the plan of values without a schema.
    plans: BTreeMap<u32, Plan>,
    /// By value schema id.
    pub(super) comparisons: BTreeMap<u32, Arc<Comparison>>,
    /// For each slot of the columns, whether its row stays.
    keep: Vec<bool>,
    rejected_count: usize,
    /// Bytes of memory that the batch before held.
    bytes_before: usize,
    /// The row that the table may go no further than, with the reason.
    stop: Option<Stop>,
    /// Whether the rows are those that the source deleted.
    deleted: bool,
}

/// A record that tells of a change which its table cannot follow, where the policy stops there.
#[derive(Debug)]
pub struct Stop {
    /// The row: neither it nor any behind it was taken.
    pub row: u32,
    /// What changed.
    pub error: SinkError,
}

/// The first misfit of each row of one call.
pub(super) struct Outcome {
    misfits: Vec<(usize, Misfit)>,
    bad: Vec<bool>,
}

impl Outcome {
    fn new(rows: usize) -> Self {
        Outcome {
            misfits: Vec::new(),
            bad: vec![false; rows],
        }
    }

    pub(super) fn is_bad(&self, index: usize) -> bool {
        self.bad.get(index).copied().unwrap_or(true)
    }

    pub(super) fn note(&mut self, index: usize, outcome: Result<(), Misfit>) {
        let Err(misfit) = outcome else {
            return;
        };
        if let Some(bad @ false) = self.bad.get_mut(index) {
            *bad = true;
            self.misfits.push((index, misfit));
        }
    }
}

impl TableConverter {
    /// Prepares for a table with `schema`. Fails when a metadata column is missing or has another
    /// type, when names are ambiguous or when a column cannot be written.
    pub fn new(schema: SchemaRef, options: &ConvertOptions) -> Result<Self> {
        let fields = schema.as_struct().fields();
        let table = StructSlots::new(schema.as_struct(), rules(options))?;
        let mut metadata = vec![None; fields.len()];
        for column in &options.metadata_columns {
            let index = fields.iter().position(|field| field.name == *column.name());
            let field_type = index.and_then(|index| fields.get(index));
            match index.and_then(|index| metadata.get_mut(index)) {
                Some(slot) if field_type.is_some_and(|field| takes(column, &field.field_type)) => {
                    *slot = Some(column.clone());
                }
                _ => return Err(metadata_column_missing(column)),
            }
        }
        let evolution_rules = evolution_rules(options);
        let probe = match options.evolution {
            EvolutionMode::Off => None,
            _ => Probe::new(&evolution_rules, &schema),
        };
        Ok(TableConverter {
            arrow: arrow_schema(&schema)?,
            schema,
            options: options.clone(),
            evolution_rules,
            probe,
            table,
            metadata,
            plans: BTreeMap::new(),
            comparisons: BTreeMap::new(),
            keep: Vec::new(),
            rejected_count: 0,
            bytes_before: 0,
            stop: None,
            deleted: false,
        })
    }

    /// As it is, for rows that the source deleted and that stay, if `deleted`.
    #[must_use]
    pub fn of_deleted(self, deleted: bool) -> Self {
        TableConverter { deleted, ..self }
    }

    /// Returns the field id of the column that a field called `name` of a record is for.
    pub fn column_id(&self, name: &str) -> Option<i32> {
        let index = self.table.find(name)?;
        let field = self.schema.as_struct().fields().get(index)?;
        Some(field.id)
    }

    /// Returns the field ids of the columns that are filled from where a record came from.
    pub fn metadata_ids(&self) -> impl Iterator<Item = i32> {
        let fields = self.schema.as_struct().fields().iter();
        let filled = fields.zip(&self.metadata);
        filled.filter_map(|(field, metadata)| metadata.is_some().then_some(field.id))
    }

    /// Returns the table's schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the schema of the batches.
    pub fn arrow_schema(&self) -> &ArrowSchemaRef {
        &self.arrow
    }

    /// Returns the number of rows that the next batch will have.
    pub fn rows(&self) -> usize {
        self.keep.len() - self.rejected_count
    }

    /// Tells whether it is time to finish a batch.
    pub fn is_full(&self) -> bool {
        self.keep.len() >= BATCH_ROWS || self.bytes() >= BATCH_BYTES
    }

    /// Returns how many bytes of memory the rows hold.
    pub fn bytes(&self) -> usize {
        let columns: usize = self.table.columns.iter().map(Column::bytes).sum();
        columns + self.keep.capacity()
    }

    /// Returns the column called `name`; `found` remembers those of interned names.
    fn find(
        &self,
        name: &str,
        name_index: Option<usize>,
        found: &mut [Option<Option<usize>>],
    ) -> Option<usize> {
        match name_index.and_then(|index| found.get_mut(index)) {
            Some(Some(column)) => *column,
            Some(unknown) => *unknown.insert(self.table.find(name)),
            None => self.table.find(name),
        }
    }

    /// Takes `rows` of `frame`. A row that does not fit is given to `reject`, in the order of
    /// `rows`, and leaves no trace. Skip tombstones before (`Frame::is_tombstone`): here they are
    /// rejected as values that are no records.
    ///
    /// An error is a bug or a table that cannot be written; no row was taken then.
    pub fn append(
        &mut self,
        frame: &Frame<'_>,
        rows: &[u32],
        reject: &mut dyn FnMut(u32, SinkError),
    ) -> Result<()> {
        let plan = self.plan(frame)?;
        // A batch ends by what it has room for, too.
        if self.keep.is_empty() && self.bytes_before <= BATCH_BYTES / 2 {
            self.table.columns.iter_mut().for_each(Column::reserve);
        }
        let mut outcome = Outcome::new(rows.len());
        let asked = if frame.may_have_tombstones() {
            rows
        } else {
            &[]
        };
        for (index, row) in asked.iter().enumerate() {
            let row = index_of(*row);
            if frame.is_tombstone(row) {
                outcome.note(index, Err(Misfit::new(Reason::NotARecord, "null")));
            }
        }
        match (plan, frame.columns()) {
            (Plan::Columns(record), Some(columns)) => {
                let from_keys = frame.values_are_keys();
                self.append_columns(columns, &record, rows, &mut outcome, from_keys);
            }
            // A frame of nothing but tombstones has no columns.
            (Plan::Columns(_), None) => self.append_values(frame, &[], rows, &mut outcome),
            (Plan::Entries(shapes), _) => {
                let done = match frame.maps() {
                    Some(maps) => self.append_maps(maps, rows, &mut outcome),
                    None => false,
                };
                if !done {
                    self.append_values(frame, &shapes, rows, &mut outcome);
                }
            }
        }
        self.append_metadata(frame, rows, &mut outcome)?;
        outcome.misfits.sort_by_key(|(index, _)| *index);
        let mut end = rows.len();
        for (index, misfit) in outcome.misfits {
            let Some(row) = rows.get(index) else {
                continue;
            };
            let (error, is_break) = self.explain(frame, *row, misfit);
            if is_break && self.options.breaking != BreakingPolicy::Dlq {
                self.stop = Some(Stop { row: *row, error });
                end = index;
                break;
            }
            reject(*row, error);
        }
        for (index, bad) in outcome.bad.iter().enumerate() {
            let keep = !bad && index < end;
            self.keep.push(keep);
            self.rejected_count += usize::from(!keep);
        }
        Ok(())
    }

    /// Returns, once, where the table has to stop by its [policy](ConvertOptions::breaking).
    pub fn take_stop(&mut self) -> Option<Stop> {
        self.stop.take()
    }

    /// Returns the rows taken so far as one batch and starts over.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.bytes_before = self.bytes();
        let keep = std::mem::take(&mut self.keep);
        let rejected_count = std::mem::take(&mut self.rejected_count);
        let arrays = self.table.finish(self.arrow.fields())?;
        let batch = RecordBatch::try_new(Arc::clone(&self.arrow), arrays);
        let batch = match rejected_count {
            0 => batch,
            _ => batch.and_then(|batch| {
                arrow_select::filter::filter_record_batch(&batch, &BooleanArray::from(keep))
            }),
        };
        batch.map_err(|error| {
            SinkError::internal("the columns of a batch do not fit together").caused_by(error)
        })
    }

    fn plan(&mut self, frame: &Frame<'_>) -> Result<Plan> {
        let id = frame.value_schema_id();
        if let Some(plan) = self.plans.get(&id) {
            return Ok(plan.clone());
        }
        let plan = self.new_plan(frame.value_schema().map(AsRef::as_ref))?;
        self.plans.insert(id, plan.clone());
        Ok(plan)
    }

    fn new_plan(&self, source: Option<&SourceSchema>) -> Result<Plan> {
        let table = self.schema.as_struct();
        Ok(match source {
            Some(source) if source.kind() == SourceKind::Struct => {
                Plan::Columns(Arc::new(Record::of(table, source, rules(&self.options))?))
            }
            Some(source) if source.kind() == SourceKind::Map => {
                let value = source.value().map(AsRef::as_ref);
                let rules = rules(&self.options);
                let shapes = table.fields().iter();
                let shapes = shapes.map(|field| Shape::of(&field.field_type, value, rules));
                Plan::Entries(shapes.collect::<Result<_>>()?)
            }
            _ => Plan::Entries(Arc::new([])),
        })
    }

    fn append_columns(
        &mut self,
        sources: &[SourceColumn<'_>],
        record: &Record,
        rows: &[u32],
        outcome: &mut Outcome,
        from_keys: bool,
    ) {
        let columns = self.table.columns.iter_mut().zip(&self.metadata);
        let whole = Rows::of(rows);
        for ((column, metadata), source) in columns.zip(&record.fields) {
            match (metadata, source) {
                (Some(_), Source::Missing) => {}
                // It is filled from the same key.
                (Some(_), _) if from_keys => {}
                (Some(_), _) => {
                    for index in 0..rows.len() {
                        outcome.note(index, Err(name_is_taken(column.name())));
                    }
                }
                (None, Source::Missing) => {
                    for index in 0..rows.len() {
                        outcome.note(index, column.append_missing());
                    }
                }
                (None, Source::Ambiguous) => {
                    for index in 0..rows.len() {
                        outcome.note(index, column.append_ambiguous());
                    }
                }
                (None, Source::Field(field, shape)) => {
                    let Some(values) = sources.get(*field) else {
                        (0..rows.len()).for_each(|_| column.append_placeholder());
                        continue;
                    };
                    if column.append_rows(values, shape, &whole) {
                        continue;
                    }
                    for (index, row) in rows.iter().enumerate() {
                        if outcome.is_bad(index) {
                            column.append_placeholder();
                        } else {
                            let cell = values.cell(index_of(*row));
                            outcome.note(index, column.append(cell, shape, 1));
                        }
                    }
                }
            }
        }
        if rules(&self.options).refuse_unknown {
            refuse_unknown(sources, record, rows, outcome);
        }
    }

    fn append_values(
        &mut self,
        frame: &Frame<'_>,
        shapes: &[Shape],
        rows: &[u32],
        outcome: &mut Outcome,
    ) {
        // The column of each interned name, once it was looked up.
        let mut found: Vec<Option<Option<usize>>> = vec![None; frame.names().len()];
        for (index, row) in rows.iter().enumerate() {
            let value = frame.value(index_of(*row));
            match value {
                Cell::Map(map) => {
                    let appended =
                        self.append_map(&map, shapes, &mut found, frame.values_are_keys());
                    outcome.note(index, appended);
                }
                value => {
                    let not_a_record = misfit(Reason::NotARecord, value);
                    outcome.note(index, Err(not_a_record));
                    self.append_placeholders();
                }
            }
        }
    }

    fn append_map(
        &mut self,
        map: &MapCell<'_>,
        shapes: &[Shape],
        found: &mut [Option<Option<usize>>],
        from_keys: bool,
    ) -> Result<(), Misfit> {
        self.table.begin_entries(&self.metadata);
        let mut outcome = Ok(());
        for entry in map.entries() {
            let Cell::String(name) = entry.key else {
                outcome = outcome.and(Err(key_is_not_text(entry.key)));
                continue;
            };
            let column = self.find(name, entry.name_index, found);
            let metadata = column.and_then(|column| self.metadata.get(column));
            if from_keys && metadata.is_some_and(Option::is_some) {
                continue;
            }
            let shape = column.and_then(|column| shapes.get(column));
            let shape = shape.unwrap_or(&SCHEMALESS);
            outcome = outcome.and(self.table.append_entry(column, name, entry.value, shape, 0));
        }
        outcome.and(self.table.fill_the_rest())
    }

    fn append_placeholders(&mut self) {
        for (column, metadata) in self.table.columns.iter_mut().zip(&self.metadata) {
            if metadata.is_none() {
                column.append_placeholder();
            }
        }
    }

    fn append_metadata(
        &mut self,
        frame: &Frame<'_>,
        rows: &[u32],
        outcome: &mut Outcome,
    ) -> Result<()> {
        let fields = self.schema.as_struct().fields();
        let columns = self.table.columns.iter_mut().zip(fields);
        for ((column, field), metadata) in columns.zip(&self.metadata) {
            let Some(metadata) = metadata else {
                continue;
            };
            let schema = match &metadata.source {
                MetadataSource::Key => frame.key_schema().map(AsRef::as_ref),
                MetadataSource::KeyField(path) => frame
                    .key_schema()
                    .and_then(|schema| schema_at(schema, path)),
                _ => None,
            };
            let shape = Shape::of(&field.field_type, schema, rules(&self.options))?;
            let mut text = String::new();
            for (index, row) in rows.iter().enumerate() {
                if outcome.is_bad(index) {
                    column.append_placeholder();
                    continue;
                }
                match metadata_cell(metadata, (frame, self.deleted), index_of(*row), &mut text) {
                    Ok(cell) => outcome.note(index, column.append(cell, &shape, 1)),
                    Err(misfit) => {
                        column.append_placeholder();
                        outcome.note(index, Err(misfit.inside(&metadata.name)));
                    }
                }
            }
        }
        Ok(())
    }
}

pub(super) fn rules(options: &ConvertOptions) -> Rules<'_> {
    Rules {
        case_insensitive: options.case_insensitive,
        aliases: &options.facts.aliases,
        refuse_unknown: options.evolution != EvolutionMode::Off,
    }
}

fn evolution_rules(options: &ConvertOptions) -> EvolutionRules {
    let metadata = options.metadata_columns.iter();
    EvolutionRules {
        mode: options.evolution,
        case_insensitive: options.case_insensitive,
        force_optional: options.force_optional,
        limits: options.limits,
        filled_elsewhere: metadata.map(|column| column.name().to_owned()).collect(),
        facts: options.facts.clone(),
    }
}

/// Returns what a metadata column says of `row`, which the source has or `is_deleted`; `text` holds what
/// is made for it.
fn metadata_cell<'c>(
    column: &MetadataColumn,
    (frame, is_deleted): (&'c Frame<'_>, bool),
    row: usize,
    text: &'c mut String,
) -> Result<Cell<'c>, Misfit> {
    let source = || frame.source(row);
    Ok(match &column.source {
        MetadataSource::Topic => {
            source().map_or(Cell::Null, |(run, _)| Cell::String(&run.partition.topic))
        }
        MetadataSource::Partition => {
            source().map_or(Cell::Null, |(run, _)| Cell::Int32(run.partition.partition))
        }
        MetadataSource::Offset => source().map_or(Cell::Null, |(_, offset)| Cell::Int64(offset)),
        MetadataSource::Timestamp => {
            let timestamp = frame.timestamp(row);
            timestamp.map_or(Cell::Null, |ms| Cell::Timestamp { ms })
        }
        MetadataSource::Deleted => Cell::Bool(is_deleted),
        MetadataSource::Key => frame.key(row),
        MetadataSource::KeyField(path) => {
            let key = frame.key(row);
            walk(key, path).map_err(|_| misfit(Reason::NotARecord, key))?
        }
        MetadataSource::Headers => {
            text.clear();
            write_headers(frame, row, text).map_err(|reason| Misfit::new(reason, "map"))?;
            Cell::String(text)
        }
    })
}

/// Writes the headers in their order; names may repeat.
fn write_headers(frame: &Frame<'_>, row: usize, out: &mut String) -> Result<(), Reason> {
    out.push('[');
    let entries = frame
        .headers(row)
        .into_iter()
        .flat_map(|headers| headers.entries());
    for (index, entry) in entries.enumerate() {
        out.push_str(if index == 0 {
            "{\"key\":"
        } else {
            ",{\"key\":"
        });
        json::write(entry.key, None, out, 1)?;
        out.push_str(",\"value\":");
        json::write(entry.value, None, out, 1)?;
        out.push('}');
    }
    out.push(']');
    Ok(())
}

/// Refuses rows with a value for a field that the table has not and evolution could not add.
fn refuse_unknown(
    sources: &[SourceColumn<'_>],
    record: &Record,
    rows: &[u32],
    outcome: &mut Outcome,
) {
    for (field, name) in &record.unknown {
        let Some(values) = sources.get(*field) else {
            continue;
        };
        for (index, row) in rows.iter().enumerate() {
            let cell = values.cell(index_of(*row));
            if !cell.is_null() {
                outcome.note(index, Err(misfit(Reason::UnknownField, cell).inside(name)));
            }
        }
    }
}

fn name_is_taken(name: &str) -> Misfit {
    Misfit::new(Reason::Ambiguous, "struct")
        .detail("the record has a field with the name of a metadata column")
        .inside(name)
}

/// Tells whether a metadata column can live in a column of the table.
fn takes(column: &MetadataColumn, field_type: &Type) -> bool {
    let Type::Primitive(primitive) = field_type else {
        return matches!(column.source, MetadataSource::KeyField(_));
    };
    match column.source {
        MetadataSource::Topic | MetadataSource::Headers => *primitive == PrimitiveType::String,
        MetadataSource::Partition => {
            matches!(primitive, PrimitiveType::Int | PrimitiveType::Long)
        }
        MetadataSource::Offset => *primitive == PrimitiveType::Long,
        MetadataSource::Timestamp => {
            matches!(
                primitive,
                PrimitiveType::Timestamp | PrimitiveType::Timestamptz
            )
        }
        MetadataSource::Deleted => *primitive == PrimitiveType::Boolean,
        MetadataSource::Key | MetadataSource::KeyField(_) => true,
    }
}

fn metadata_column_missing(column: &MetadataColumn) -> SinkError {
    SinkError::config(
        "METADATA_COLUMN_MISSING",
        format!(
            "the table has no column `{} {}`: add it, set `iceberg.tables.evolve-schema-enabled` \
             to true, or do not ask for the metadata column",
            column.name(),
            type_of_column(column)
        ),
    )
    .with("column", column.name())
}

pub(super) fn index_of(row: u32) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}
