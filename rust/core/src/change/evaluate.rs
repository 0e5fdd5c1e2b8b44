//! What each record of a block changes.

mod keys;

use super::changes::{Change, Changes, Image, OldRow, Span};
use super::columns::ColumnNames;
use super::envelope::{Envelope, Meaning, Op, OpRule, Skip};
use super::key::Scratch;
use super::keyed::KeySource;
use super::order::{Binding, BoundOrder, Ordered};
use super::place::{Located, Place, only_row};
use super::plan::{ChangePlan, Shape, TruncatePolicy, foreign_record};
use super::unavailable::Placeholder;
use crate::error::{Result, SinkError};
use crate::wire::{Cell, Frame, SourceKind};

impl ChangePlan {
    /// Works out what `rows` of `frame` change, in place of what is in `out`.
    ///
    /// # Errors
    ///
    /// What is wrong with one record is in `out`; an error of the call is a bug.
    pub fn evaluate(&mut self, frame: &Frame<'_>, rows: &[u32], out: &mut Changes) -> Result<()> {
        out.clear();
        let shape = self.shape(frame);
        let mut scratch = std::mem::take(&mut self.scratch);
        let evaluator = Evaluator::new(self, frame, &shape);
        for row in rows {
            match evaluator.row(*row, &mut scratch, &mut out.bytes) {
                Ok(Outcome::Change(change)) => out.changes.push(change),
                Ok(Outcome::Skip(skip)) => out.skipped.push((*row, skip)),
                Err(error) => out.refused.push((*row, error)),
            }
        }
        evaluator.mark(out);
        self.scratch = scratch;
        Ok(())
    }
}

enum Outcome {
    Change(Change),
    Skip(Skip),
}

/// A field that tells the operation, in one frame.
struct OpAt<'f> {
    rule: &'f OpRule,
    tells_reads: bool,
    located: Located<'f>,
}

struct Evaluator<'f> {
    plan: &'f ChangePlan,
    frame: &'f Frame<'f>,
    shape: &'f Shape,
    ops: Vec<OpAt<'f>>,
    after: KeySource<'f>,
    deleted: Option<KeySource<'f>>,
    before: Option<KeySource<'f>>,
    key: Option<KeySource<'f>>,
    old_key: Option<Located<'f>>,
    new_key: Option<Located<'f>>,
    connectors: Vec<Located<'f>>,
    order: OrderAt<'f>,
}

/// What orders the changes, in one frame.
enum OrderAt<'f> {
    Source(BoundOrder<'f>),
    /// Columns of the rows; of deletes, where these are whole.
    Columns(KeySource<'f>, Option<KeySource<'f>>),
}

impl<'f> Evaluator<'f> {
    fn new(plan: &'f ChangePlan, frame: &'f Frame<'f>, shape: &'f Shape) -> Self {
        let envelope = &plan.config.envelope;
        let locate = |place: &'f Place| place.locate(frame);
        let columns = |place: &'f Place, names: &'f [ColumnNames]| {
            KeySource::new(place.locate(frame), names, envelope.rows_are_lists)
        };
        let source = |place: &'f Place| columns(place, &plan.key_names);
        let order = match plan.order.is_empty() {
            true => OrderAt::Source(envelope.order.bind(
                frame,
                Binding {
                    epoch: &plan.config.order_epoch,
                    connectors: &envelope.connectors,
                },
            )),
            false => {
                let names = plan.order.names();
                let deleted = envelope
                    .deleted_row()
                    .filter(|_| plan.config.deleted_is_whole);
                let deleted = deleted.map(|place| columns(place, names));
                OrderAt::Columns(columns(&envelope.after, names), deleted)
            }
        };
        Evaluator {
            plan,
            frame,
            shape,
            ops: envelope
                .op
                .iter()
                .map(|rule| OpAt {
                    rule,
                    tells_reads: rule.tells_reads(),
                    located: rule.at.locate(frame),
                })
                .collect(),
            after: source(&envelope.after),
            deleted: envelope.deleted_row().map(source),
            before: envelope.before.as_ref().map(source),
            key: envelope
                .key
                .as_ref()
                .map(|place| source(place).bare(envelope.bare_key)),
            old_key: envelope.old_key.as_ref().map(locate),
            new_key: envelope.new_key.as_ref().map(locate),
            connectors: envelope.connectors.iter().map(locate).collect(),
            order,
        }
    }

    fn envelope(&self) -> &'f Envelope {
        &self.plan.config.envelope
    }

    fn row(&self, row: u32, scratch: &mut Scratch, bytes: &mut Vec<u8>) -> Result<Outcome> {
        let index = usize::try_from(row).unwrap_or(usize::MAX);
        let (meaning, is_told) = match self.frame.is_tombstone(index) {
            true => (self.envelope().tombstone, true),
            false => self.meaning(index)?,
        };
        let start = bytes.len();
        let outcome = match meaning {
            Meaning::Op(Op::Truncate) => self.truncate(row, index, scratch, bytes),
            Meaning::Op(op) => {
                let record = Ordered {
                    row: index,
                    op,
                    is_told,
                };
                self.change(row, record, scratch, bytes)
            }
            Meaning::Skip(skip) => Ok(Outcome::Skip(skip)),
            Meaning::Next => Err(no_op()),
        };
        if outcome.is_err() {
            bytes.truncate(start);
        }
        outcome
    }

    /// Tells what a record with a value stands for, and whether it would say if it was of a snapshot.
    fn meaning(&self, row: usize) -> Result<(Meaning, bool)> {
        if let Some(skip) = self.shape.foreign {
            return Ok((Meaning::Skip(skip), true));
        }
        for at in &self.ops {
            let rule = at.rule;
            let word = match at.located.cell(self.frame, row) {
                Cell::Null => continue,
                Cell::String(word) => word,
                Cell::Bool(true) => "true",
                Cell::Bool(false) => "false",
                other => return Err(op_unknown(&other)),
            };
            let meaning = match rule.any_case {
                false => rule.words.get(word),
                true => {
                    let mut words = rule.words.iter();
                    let found = words.find(|(known, _)| known.eq_ignore_ascii_case(word));
                    found.map(|(_, meaning)| meaning)
                }
            };
            match meaning {
                Some(meaning) if meaning.is_next() => {}
                Some(meaning) => return Ok((*meaning, self.would_tell_reads(at, row))),
                None => return Err(op_unknown(&Cell::String(word))),
            }
        }
        if self.shape.may_be_foreign
            && let Some(skip) =
                foreign_record(&self.envelope().foreign, &self.frame.value(row), || {
                    self.frame.key(row)
                })
        {
            return Ok((Meaning::Skip(skip), true));
        }
        match self.envelope().otherwise {
            Some(meaning) => Ok((meaning, false)),
            None if self.shape.is_unknown => Err(unknown(self.envelope())),
            None => Err(no_op()),
        }
    }

    /// Tells whether a record whose operation `decided` told would have told, too, that a snapshot found
    /// its row: of several fields only one may be able to, and not be there.
    fn would_tell_reads(&self, decided: &OpAt<'f>, row: usize) -> bool {
        let mut others = self.ops.iter().filter(|at| at.tells_reads).peekable();
        decided.tells_reads
            || others.peek().is_none()
            || others.any(|at| !at.located.cell(self.frame, row).is_null())
    }

    fn truncate(
        &self,
        row: u32,
        index: usize,
        scratch: &mut Scratch,
        bytes: &mut Vec<u8>,
    ) -> Result<Outcome> {
        match self.plan.config.truncate {
            TruncatePolicy::Ignore => return Ok(Outcome::Skip(Skip::Truncate)),
            TruncatePolicy::Fail => {
                return Err(SinkError::data(
                    "CHANGE_TRUNCATE",
                    "the source table was truncated, and the table is configured to stop there: \
                     apply or ignore truncations",
                ));
            }
            TruncatePolicy::Apply => {}
        }
        let start = bytes.len();
        let record = Ordered {
            row: index,
            op: Op::Truncate,
            is_told: true,
        };
        let order = self.order_of(record, scratch, bytes)?;
        Ok(Outcome::Change(Change {
            row,
            op: Op::Truncate,
            image: Image::None,
            old_row: OldRow::NotNeeded,
            awaits_new_key: false,
            key: Span { start, length: 0 },
            old_key: None,
            old_order: None,
            order,
        }))
    }

    fn order_of(
        &self,
        record: Ordered,
        scratch: &mut Scratch,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Span>> {
        let start = bytes.len();
        let written = match &self.order {
            OrderAt::Source(order) => order.write(self.frame, record, bytes)?,
            OrderAt::Columns(after, deleted) => self.plan.order.write(
                (after, deleted.as_ref()),
                (self.frame, &self.plan.config.order_epoch),
                record,
                scratch,
                bytes,
            )?,
        };
        let length = bytes.len() - start;
        Ok(written.then_some(Span { start, length }))
    }

    fn change(
        &self,
        row: u32,
        record: Ordered,
        scratch: &mut Scratch,
        bytes: &mut Vec<u8>,
    ) -> Result<Outcome> {
        let Ordered { row: index, op, .. } = record;
        let image = match op.is_upsert() {
            true => self.image_after(index)?,
            false => self.image_of_delete(index),
        };
        let order = self.order_of(record, scratch, bytes)?;
        if !op.is_upsert() {
            self.check_deleted(index)?;
        }
        let sources = match op.is_upsert() {
            true => [Some(&self.after), self.key.as_ref()],
            false => [self.key.as_ref(), self.deleted.as_ref()],
        };
        self.check_key_is_read(index, op)?;
        let key = self.encode(index, &sources, op.is_upsert(), scratch, bytes)?;
        if op.is_upsert() {
            self.check_record_key(index, key, scratch, bytes)?;
        }
        let old = match op.is_upsert() {
            true => self.old_key(index, (op, key, order), scratch, bytes)?,
            false => None,
        };
        let (old_key, old_order) = old.map_or((None, None), |(key, order)| (Some(key), order));
        let tells = |place: &Option<Located<'f>>| {
            place.is_some_and(|place| !place.cell(self.frame, index).is_null())
        };
        let config = &self.plan.config;
        let is_soft = op == Op::Delete && config.soft_delete.is_some();
        let has_row = config.deleted_is_whole && image == Image::Deleted;
        let old_row = match is_soft && !has_row {
            true => OldRow::Whole,
            false => OldRow::NotNeeded,
        };
        Ok(Outcome::Change(Change {
            row,
            op,
            image,
            old_row,
            awaits_new_key: op == Op::Delete && tells(&self.new_key),
            key,
            old_key,
            old_order,
            order,
        }))
    }

    fn image_after(&self, row: usize) -> Result<Image> {
        let cell = self.after.base.cell(self.frame, row);
        let cell = match (&cell, self.envelope().rows_are_lists) {
            (Cell::Array(list), true) if list.len() == 1 => only_row(cell),
            (Cell::Array(list), true) => {
                let message = "the record has more than one row, or none: let the source send one \
                               row in each message";
                return Err(
                    SinkError::data("CHANGE_ROWS_NOT_ONE", message).with("rows", list.len())
                );
            }
            _ => cell,
        };
        match cell {
            Cell::Struct(_) | Cell::Map(_) => Ok(Image::After),
            Cell::Null => Err(SinkError::data(
                "CHANGE_ROW_MISSING",
                "the record says that a row was written, and has none",
            )),
            other => Err(SinkError::data(
                "CHANGE_ROW_NOT_A_RECORD",
                "the row of the change is neither a struct nor a map: where the source sends rows as \
                 text (Debezium for MongoDB), use its transform that takes them apart \
                 (ExtractNewDocumentState)",
            )
            .with("source_type", other.type_name())),
        }
    }

    fn image_of_delete(&self, row: usize) -> Image {
        let is_record = |cell| matches!(cell, Cell::Struct(_) | Cell::Map(_) | Cell::Array(_));
        let deleted = self.deleted.as_ref();
        if deleted.is_some_and(|deleted| is_record(deleted.base.cell(self.frame, row))) {
            return Image::Deleted;
        }
        match self.frame.key(row).is_null() {
            true => Image::None,
            false => Image::Key,
        }
    }

    /// Marks the values of rows that the source left out, also of rows that it deleted.
    fn mark(&self, out: &mut Changes) {
        let Some(placeholder) = &self.plan.placeholder else {
            return;
        };
        if self.envelope().leaves_values_out.is_empty() {
            return;
        }
        self.mark_rows(placeholder, Image::After, &self.after, out);
        if let Some(deleted) = &self.deleted {
            self.mark_rows(placeholder, Image::Deleted, deleted, out);
        }
        let (marks, changes) = (&mut out.marks, &mut out.changes);
        marks.sort_unstable();
        marks.dedup();
        let is_soft = self.plan.config.soft_delete.is_some();
        for (row, _) in marks {
            let index = changes.binary_search_by_key(row, |change| change.row);
            let change = index.ok().and_then(|index| changes.get_mut(index));
            // The row of a delete is only written where deleted rows stay.
            if let Some(change) = change.filter(|c| c.image == Image::After || is_soft)
                && change.old_row == OldRow::NotNeeded
            {
                change.old_row = OldRow::Columns;
            }
        }
    }

    fn mark_rows(
        &self,
        placeholder: &Placeholder,
        image: Image,
        source: &KeySource<'f>,
        out: &mut Changes,
    ) {
        if !out.changes.iter().any(|change| change.image == image) {
            return;
        }
        match source.base {
            Located::Column(column, "") if column.schema().kind() == SourceKind::Struct => {
                for (index, name) in &self.shape.of_image(image).candidates {
                    let Some(child) = column.children().get(*index) else {
                        continue;
                    };
                    placeholder.rows(child, |row| {
                        if out.is_of(row, image) && self.leaves_out(row) {
                            out.mark(row, name);
                        }
                    });
                }
            }
            _ => self.mark_maps(placeholder, (image, &source.base), out),
        }
    }

    fn mark_maps(
        &self,
        placeholder: &Placeholder,
        (image, base): (Image, &Located<'f>),
        out: &mut Changes,
    ) {
        for index in 0..out.changes.len() {
            let change = out.changes.get(index).filter(|c| c.image == image);
            let Some(row) = change.and_then(|change| usize::try_from(change.row).ok()) else {
                continue;
            };
            let mut cell = base.cell(self.frame, row);
            if self.envelope().rows_are_lists {
                cell = only_row(cell);
            }
            let Cell::Map(map) = cell else {
                continue;
            };
            for entry in map.entries() {
                let Cell::String(name) = entry.key else {
                    continue;
                };
                if placeholder.is(entry.value) && self.leaves_out(row) {
                    out.mark(row, name);
                }
            }
        }
    }

    /// Tells whether the source of a row leaves values out at all.
    fn leaves_out(&self, row: usize) -> bool {
        let mut connectors = self.connectors.iter();
        let connector = connectors.find_map(|place| match place.cell(self.frame, row) {
            Cell::String(name) => Some(name),
            _ => None,
        });
        let mut names = self.envelope().leaves_values_out.iter();
        connector.is_none_or(|connector| names.any(|known| known == connector))
    }
}

fn op_unknown(cell: &Cell<'_>) -> SinkError {
    let message = "the record's operation is none that the change format has: name the format that \
                   the topic really has, or leave the record out with a transform";
    let error = SinkError::data("CHANGE_OP_UNKNOWN", message).with("source_type", cell.type_name());
    match cell {
        Cell::String(word) => error.with("length", word.len()),
        _ => error,
    }
}

fn no_op() -> SinkError {
    SinkError::data(
        "CHANGE_OP_MISSING",
        "the record does not say what it does: its operation field has no value",
    )
}

fn unknown(envelope: &Envelope) -> SinkError {
    let message = format!(
        "the record is no change of the format `{}`, nor anything else that comes with it: route \
         such records elsewhere, or name their format",
        envelope.name
    );
    SinkError::data("CHANGE_ENVELOPE_UNKNOWN", message)
}
