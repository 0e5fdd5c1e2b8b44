//! Rows that only the commit can finish: a source left values out of them, or deleted a row that stays.
//!
//! ```text
//!  changes ─► landings ─► final rows ─► converter of the table ─► data files
//!                └──────► pending rows ─► converters that let columns be missing ─► pending files
//! ```
//!
//! What a pending row lacks is in the table's own row, or in another one of the same commit, and which row
//! that is only the commit knows. So the task writes the row as it has it, with what it lacks, and the key
//! run says which key it is of (`frazil_core::change::pending`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use arrow_select::filter::filter_record_batch;
use frazil_core::change::pending::{pending_schema, relaxed};
use frazil_core::change::{Change, Changes, Lacks, OldRow, Op};
use frazil_core::config::TableConfig;
use frazil_core::convert::{Stop, TableConverter};
use frazil_core::wire::Frame;
use frazil_core::{Result, SinkError};
use iceberg::spec::{PartitionSpec, Schema, TableMetadata};

use super::open::convert_options;
use crate::writer::{SealedFiles, TableWriter, TableWriterConfig};

/// Converters that are kept from one frame to the next. Few columns are left out, and the same ones.
const CONVERTERS_MAX: usize = 16;

/// What becomes of the row of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Landing {
    /// There is none.
    None,
    /// The table gets it as it is.
    Final,
    /// It lacks values.
    Pending(Lacks),
    /// The row that the key has is marked as deleted.
    Mark,
}

/// A change that the table does not have yet.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) change: Change,
    pub(super) landing: Landing,
    /// Whether the row of the key that it had before is marked as deleted.
    pub(super) marks_old: bool,
}

/// What pending rows are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The row as it is afterwards.
    After,
    /// The row that is deleted.
    Deleted,
    /// Nothing of the record but where it came from.
    Mark,
}

/// Rows that one converter takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sort {
    part: Part,
    /// The required columns that they may lack.
    may_lack: BTreeSet<i32>,
}

/// The pending rows of the open segment.
#[derive(Debug, Default)]
pub(super) struct PendingRows {
    writer: Option<TableWriter>,
    closed: Vec<SealedFiles>,
    converters: BTreeMap<Sort, TableConverter>,
}

/// Pending rows of one frame, until it is known which of them are taken.
#[derive(Debug, Default)]
pub(super) struct Block {
    groups: Vec<Group>,
    pub(super) refused: BTreeMap<u32, SinkError>,
    pub(super) stop: Option<Stop>,
}

#[derive(Debug)]
struct Group {
    sort: Sort,
    /// The rows that the converter has, with what they lack.
    rows: Vec<(u32, Lacks)>,
}

/// The frames that pending rows come from.
pub(super) struct Frames<'f> {
    pub(super) after: &'f Frame<'f>,
    pub(super) deleted: Option<&'f Frame<'f>>,
    pub(super) nothing: &'f Frame<'f>,
}

/// The numbers of the changes that pending rows belong to.
pub(super) type Numbers = BTreeMap<(Part, u32), u32>;

impl Landing {
    /// Tells what becomes of the row of a change in the table of `converter`.
    ///
    /// # Errors
    ///
    /// `CHANGE_VALUE_UNAVAILABLE` when the source left out what nobody can look up: a column of the key, or
    /// one that orders changes.
    pub(super) fn of(
        changes: &Changes,
        change: &Change,
        converter: &TableConverter,
        needed: &Needed<'_>,
    ) -> Result<Landing> {
        let is_delete = match change.op {
            Op::Truncate => return Ok(Landing::None),
            Op::Delete if !needed.is_soft => return Ok(Landing::None),
            Op::Delete if change.old_row == OldRow::Whole => return Ok(Landing::Mark),
            Op::Delete => true,
            Op::Insert | Op::Read | Op::Update => false,
        };
        let mut lacks = BTreeSet::new();
        if change.old_row != OldRow::NotNeeded {
            for name in changes.unavailable(change) {
                let Some(id) = converter.column_id(name) else {
                    continue;
                };
                if needed.key.contains(&id) || (needed.orders)(name) {
                    return Err(unavailable(&[name]));
                }
                lacks.insert(id);
            }
        }
        Ok(match lacks.is_empty() && !is_delete {
            true => Landing::Final,
            false => Landing::Pending(Lacks::Only(lacks)),
        })
    }

    /// Returns what its pending row is made of.
    pub(super) fn part(&self, change: &Change) -> Option<Part> {
        match self {
            Landing::None | Landing::Final => None,
            Landing::Mark => Some(Part::Mark),
            Landing::Pending(_) if change.op == Op::Delete => Some(Part::Deleted),
            Landing::Pending(_) => Some(Part::After),
        }
    }
}

/// What a change needs beside its row.
pub(super) struct Needed<'n> {
    pub(super) is_soft: bool,
    /// The columns of the key.
    pub(super) key: &'n [i32],
    /// Tells whether a field orders changes.
    pub(super) orders: &'n dyn Fn(&str) -> bool,
}

/// The error of a record whose values the source left out, when nobody has them.
pub(super) fn unavailable(columns: &[&str]) -> SinkError {
    SinkError::data(
        "CHANGE_VALUE_UNAVAILABLE",
        "the source left values out that the change did not touch, and the table has no row to take them \
         from: let the source send whole rows (`REPLICA IDENTITY FULL` in PostgreSQL, or Debezium's \
         `ReselectColumnsPostProcessor`), or set `iceberg.table.<name>.unavailable-values=null`",
    )
    .with("columns", columns.join(", "))
}

impl PendingRows {
    /// Converts the pending rows among `wanted`; they are written once it is known which are taken.
    ///
    /// # Errors
    ///
    /// A bug, or a table that cannot be written.
    pub(super) fn convert(
        &mut self,
        (metadata, config): (&TableMetadata, &TableConfig),
        wanted: &[Wanted],
        frames: &Frames<'_>,
        main: &TableConverter,
    ) -> Result<Block> {
        let mut groups: BTreeMap<Sort, Vec<(u32, Lacks)>> = BTreeMap::new();
        let schema = metadata.current_schema();
        let marked = || Lacks::AllBut(main.metadata_ids().collect());
        let mut add = |part: Part, row: u32, lacks: Lacks| {
            let fields = schema.as_struct().fields().iter();
            let required = fields.filter(|field| field.required && lacks.has(field.id));
            let may_lack = required.map(|field| field.id).collect();
            let rows = groups.entry(Sort { part, may_lack }).or_default();
            rows.push((row, lacks));
        };
        for Wanted {
            change,
            landing,
            marks_old,
        } in wanted
        {
            match (landing.part(change), landing) {
                (Some(part), Landing::Pending(lacks)) => add(part, change.row, lacks.clone()),
                (Some(part), _) => add(part, change.row, marked()),
                (None, _) => {}
            }
            if *marks_old {
                add(Part::Mark, change.row, marked());
            }
        }
        let mut block = Block::default();
        for (sort, rows) in groups {
            let frame = match sort.part {
                Part::After => frames.after,
                Part::Deleted => frames
                    .deleted
                    .ok_or_else(|| SinkError::internal("a deleted row has no frame"))?,
                Part::Mark => frames.nothing,
            };
            let converter = self.converter(&sort, schema, (metadata, config))?;
            block.append(converter, frame, sort, rows)?;
        }
        Ok(block)
    }

    fn converter(
        &mut self,
        sort: &Sort,
        schema: &Schema,
        (metadata, config): (&TableMetadata, &TableConfig),
    ) -> Result<&mut TableConverter> {
        if self.converters.len() >= CONVERTERS_MAX && !self.converters.contains_key(sort) {
            // Those that hold rows of this frame must stay.
            self.converters.retain(|_, converter| converter.rows() > 0);
        }
        match self.converters.entry(sort.clone()) {
            std::collections::btree_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                let relaxed = relaxed(schema, |id| sort.may_lack.contains(&id))?;
                let options = convert_options(metadata, config)?;
                let made = TableConverter::new(Arc::new(relaxed), &options)?;
                Ok(place.insert(made.of_deleted(sort.part != Part::After)))
            }
        }
    }

    /// Writes the rows of `block` that are before `end` and not `refused`; `settings` are those of the
    /// table's own files.
    ///
    /// # Errors
    ///
    /// What the store says, or a bug; rows may be missing then.
    pub(super) fn write(
        &mut self,
        block: Block,
        numbers: &Numbers,
        is_taken: impl Fn(u32) -> bool,
        writer: impl Fn(usize) -> Result<TableWriter>,
    ) -> Result<()> {
        for group in block.groups {
            let converter = self.converters.get_mut(&group.sort);
            let converter =
                converter.ok_or_else(|| SinkError::internal("pending rows lost their place"))?;
            let batch = converter.finish()?;
            let taken: Vec<bool> = group.rows.iter().map(|(row, _)| is_taken(*row)).collect();
            let rows = group.rows.iter().filter(|(row, _)| is_taken(*row));
            let (mut lacks, mut of_rows) = (Vec::new(), Vec::new());
            for (row, lacked) in rows {
                let number = numbers.get(&(group.sort.part, *row));
                of_rows
                    .push(*number.ok_or_else(|| {
                        SinkError::internal("a pending row belongs to no change")
                    })?);
                lacks.push(lacked.to_text());
            }
            let batch = filter_record_batch(&batch, &BooleanArray::from(taken));
            let batch = batch.map_err(|error| unfit().caused_by(error))?;
            let batch = with_columns(&batch, lacks, of_rows)?;
            let open = match &mut self.writer {
                Some(open) => open,
                None => self.writer.insert(writer(self.closed.len())?),
            };
            open.write(batch)?;
        }
        Ok(())
    }

    /// Ends the open file; it stays part of the open segment. What follows may have another schema.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub(super) fn close(&mut self) -> Result<()> {
        self.converters.clear();
        if let Some(writer) = self.writer.take() {
            self.closed.push(writer.seal()?);
        }
        Ok(())
    }

    /// Takes over the files of the same table under another schema.
    pub(super) fn continues(&mut self, before: PendingRows) {
        self.closed = before.closed;
    }

    /// Takes the files of the segment that is sealed.
    pub(super) fn take(&mut self) -> Vec<SealedFiles> {
        std::mem::take(&mut self.closed)
    }

    pub(super) fn writer(&self) -> Option<&TableWriter> {
        self.writer.as_ref()
    }

    pub(super) fn writer_mut(&mut self) -> Option<&mut TableWriter> {
        self.writer.as_mut()
    }

    /// Returns the bytes of memory of rows that are no batch yet.
    pub(super) fn builder_bytes(&self) -> usize {
        self.converters.values().map(TableConverter::bytes).sum()
    }

    /// Returns the bytes of memory that describe files that ended.
    pub(super) fn ended_bytes(&self) -> usize {
        let writer = self.writer.as_ref().map_or(0, TableWriter::ended_bytes);
        let closed = self.closed.iter().map(SealedFiles::described_bytes);
        writer + closed.sum::<usize>()
    }

    /// Returns the bytes of all files of the segment.
    pub(super) fn data_bytes(&self) -> u64 {
        let writer = self.writer.as_ref().map_or(0, TableWriter::data_bytes);
        writer + self.closed.iter().map(SealedFiles::bytes).sum::<u64>()
    }
}

impl Block {
    /// Tells whether there is no row.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    fn append(
        &mut self,
        converter: &mut TableConverter,
        frame: &Frame<'_>,
        sort: Sort,
        mut rows: Vec<(u32, Lacks)>,
    ) -> Result<()> {
        let of_frame: Vec<u32> = rows.iter().map(|(row, _)| *row).collect();
        let mut refused = BTreeMap::new();
        converter.append(frame, &of_frame, &mut |row, error| {
            refused.insert(row, error);
        })?;
        if let Some(stop) = converter.take_stop() {
            rows.retain(|(row, _)| *row < stop.row);
            if self.stop.as_ref().is_none_or(|known| stop.row < known.row) {
                self.stop = Some(stop);
            }
        }
        rows.retain(|(row, _)| !refused.contains_key(row));
        self.refused.append(&mut refused);
        self.groups.push(Group { sort, rows });
        Ok(())
    }
}

/// Returns how the pending files of a table are written, whose own files are written by `settings`.
///
/// # Errors
///
/// The columns do not make a schema.
pub(super) fn pending_settings(
    settings: TableWriterConfig,
    segment: &str,
    number: usize,
) -> Result<TableWriterConfig> {
    let schema = Arc::new(pending_schema(&settings.schema)?);
    Ok(TableWriterConfig {
        schema,
        spec: Arc::new(PartitionSpec::unpartition_spec()),
        file_prefix: format!("{segment}-pending{number}"),
        order: None,
        lessons: Arc::default(),
        numbered: true,
        ..settings
    })
}

/// Puts what the rows lack, and the numbers of their changes, behind the columns of a batch.
fn with_columns(batch: &RecordBatch, lacks: Vec<String>, numbers: Vec<u32>) -> Result<RecordBatch> {
    let fields = batch.schema_ref().fields().iter().cloned();
    let more = [
        Arc::new(Field::new("lacks", DataType::Utf8, false)),
        Arc::new(Field::new("number", DataType::UInt32, false)),
    ];
    let schema = ArrowSchema::new(fields.chain(more).collect::<Vec<_>>());
    let columns = batch.columns().iter().cloned();
    let more: [ArrayRef; 2] = [
        Arc::new(StringArray::from(lacks)),
        Arc::new(UInt32Array::from(numbers)),
    ];
    RecordBatch::try_new(Arc::new(schema), columns.chain(more).collect())
        .map_err(|error| unfit().caused_by(error))
}

fn unfit() -> SinkError {
    SinkError::internal("pending rows do not fit together")
}

/// The deleted rows of a frame, where they are to stay.
pub(super) fn has_deleted_rows(changes: &Changes) -> bool {
    let mut changes = changes.changes().iter();
    changes.any(|change| change.op == Op::Delete && change.old_row != OldRow::Whole)
}
