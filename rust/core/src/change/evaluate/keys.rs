//! The keys of records: of the row that a change is about, and of the one that it had before.

use std::ops::Range;

use super::Evaluator;
use crate::change::changes::Span;
use crate::change::columns::ColumnNames;
use crate::change::envelope::Op;
use crate::change::key::{KeyPlan, Scratch};
use crate::change::keyed::{KeySource, NOTHING};
use crate::change::order::put_before_changes;
use crate::change::place::field;
use crate::error::{Result, SinkError};
use crate::schema::semantic::Semantic;
use crate::wire::Cell;

impl<'f> Evaluator<'f> {
    /// Encodes the key, each column from the first of the sources that has it. The key of a new row must
    /// be in the row, the first source, or in a column of it that is filled from the record's key.
    pub(super) fn encode(
        &self,
        row: usize,
        sources: &[Option<&KeySource<'f>>],
        is_new_row: bool,
        scratch: &mut Scratch,
        bytes: &mut Vec<u8>,
    ) -> Result<Span> {
        let start = bytes.len();
        let cell = |index| {
            let mut found = NOTHING;
            let all = !is_new_row || self.plan.is_filled(index);
            let count = if all { sources.len() } else { 1 };
            for source in sources.iter().take(count).flatten() {
                found = source.cell(self.frame, row, index);
                if !found.0.is_null() {
                    break;
                }
            }
            found
        };
        self.plan.key.encode_cells(cell, scratch, bytes)?;
        let length = bytes.len() - start;
        Ok(Span { start, length })
    }

    /// Checks that the key of a delete needs no value that the source may have made up: another row may have
    /// that key.
    pub(super) fn check_deleted(&self, row: usize) -> Result<()> {
        let (Some(deleted), true) = (&self.deleted, self.plan.config.is_before_unsure()) else {
            return Ok(());
        };
        let is_unsure = |index: &usize| {
            let key = self.key.as_ref();
            !key.is_some_and(|key| key.has(self.frame, row, *index))
                && deleted.has(self.frame, row, *index)
        };
        match (0..self.plan.key_names.len()).find(is_unsure) {
            Some(index) => Err(self.unsure(index)),
            None => Ok(()),
        }
    }

    /// Checks that a key that is no record, or has the columns of the key, is that of its row: by what it
    /// says the row would be deleted.
    pub(super) fn check_record_key(
        &self,
        row: usize,
        key: Span,
        scratch: &mut Scratch,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let envelope = self.envelope();
        let told = self.key.as_ref().filter(|_| envelope.bare_key);
        let is_read = !self.frame.key(row).is_null() && !self.is_in_bytes(row);
        let Some(told) = told.filter(|_| is_read) else {
            return Ok(());
        };
        let start = bytes.len();
        let cell = |index| told.cell(self.frame, row, index);
        // One that cannot be read, or not as a whole, finds no other row.
        if self.plan.key.encode_cells(cell, scratch, bytes).is_err() {
            return Ok(());
        }
        let same = bytes.get(start..) == bytes.get(range(key));
        bytes.truncate(start);
        match same {
            true => Ok(()),
            false => Err(key_not_of_row()),
        }
    }

    /// Checks that a key that the change needs is no bytes that nobody read.
    pub(super) fn check_key_is_read(&self, row: usize, op: Op) -> Result<()> {
        let needs_key = || !op.is_upsert() || !self.after.has(self.frame, row, 0);
        match self.is_in_bytes(row) && needs_key() {
            true => Err(key_in_bytes()),
            false => Ok(()),
        }
    }

    /// Tells whether the record's key is bytes that nobody read, though it would be the value of a column
    /// that holds no bytes.
    fn is_in_bytes(&self, row: usize) -> bool {
        self.envelope().bare_key
            && self.plan.key_names.len() == 1
            && !self.plan.key.takes_bytes(0)
            && matches!(self.frame.key(row), Cell::Bytes(_))
    }

    fn unsure(&self, index: usize) -> SinkError {
        let path = self.plan.key.paths().nth(index);
        let path = path.map_or("", |path| &**path);
        let message = format!(
            "column `{path}` is part of the key and the record's key does not have it; of the row before a \
             change the source may have made it up: take only columns of the record's key, or let the \
             source log whole rows and say so with `iceberg.table.<name>.before-is-whole`"
        );
        SinkError::data("CHANGE_KEY_UNSURE", message).with("column", path)
    }

    /// Finds the key that an update took from its row, and the order in which it went.
    pub(super) fn old_key(
        &self,
        row: usize,
        (op, key, order): (Op, Span, Option<Span>),
        scratch: &mut Scratch,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<(Span, Option<Span>)>> {
        let plan: &KeyPlan = &self.plan.key;
        let count = plan.paths().len();
        let start = bytes.len();
        let before = self.before.as_ref().filter(|_| op == Op::Update);
        let has = |source: &KeySource<'f>, index| source.has(self.frame, row, index);
        let mut is_unsure = false;
        let mut is_told = false;
        let found = match before {
            Some(before) if self.envelope().before_is_partial => {
                let changed = (0..count).any(|index| has(before, index));
                let sources = [Some(before), Some(&self.after), self.key.as_ref()];
                match changed {
                    true => Some(self.encode(row, &sources, false, scratch, bytes)?),
                    false => None,
                }
            }
            Some(before) if (0..count).all(|index| has(before, index)) => {
                is_unsure = self.plan.config.is_before_unsure();
                Some(self.encode(row, &[Some(before)], false, scratch, bytes)?)
            }
            _ => match (&self.old_key, order) {
                // Without an order it could undo what came to the old key since.
                (Some(place), Some(_)) => {
                    is_told = true;
                    self.told_old_key(place.cell(self.frame, row), scratch, bytes)
                }
                _ => None,
            },
        };
        let Some(old) = found else {
            return Ok(None);
        };
        if bytes.get(range(old)) == bytes.get(range(key)) {
            bytes.truncate(start);
            return Ok(None);
        }
        let lacks = |index| !self.key.as_ref().is_some_and(|key| has(key, index));
        if let Some(index) = (0..count).find(|index| is_unsure && lacks(*index)) {
            return Err(self.unsure(index));
        }
        let old_order = match order.filter(|_| is_told) {
            None => order,
            Some(order) => {
                let start = bytes.len();
                put_before_changes(range(order), bytes);
                let length = bytes.len() - start;
                Some(Span { start, length })
            }
        };
        Ok(Some((old, old_order)))
    }

    /// Encodes an old key that stands by itself in the record, without a schema. One that does not tell
    /// all columns for certain (a text may be the base64 of a decimal) is left to the delete that the
    /// source sends for it.
    fn told_old_key(
        &self,
        told: Cell<'f>,
        scratch: &mut Scratch,
        bytes: &mut Vec<u8>,
    ) -> Option<Span> {
        let told = match field(&told, "payload") {
            Some(payload) if field(&told, "schema").is_some() => payload,
            _ => told,
        };
        let plan = &self.plan.key;
        let cell = |index| {
            let names = self.plan.key_names.get(index);
            let cell = names.map_or(Cell::Null, |names: &ColumnNames| names.cell(told));
            (cell, Semantic::Schemaless)
        };
        let is_certain = |index| match cell(index).0 {
            Cell::Null => false,
            Cell::String(_) => plan.is_text(index),
            _ => true,
        };
        if !(0..plan.paths().len()).all(is_certain) {
            return None;
        }
        let start = bytes.len();
        plan.encode_cells(cell, scratch, bytes).ok()?;
        let length = bytes.len() - start;
        Some(Span { start, length })
    }
}

fn range(span: Span) -> Range<usize> {
    span.start..span.start.saturating_add(span.length)
}

fn key_in_bytes() -> SinkError {
    SinkError::data(
        "CHANGE_KEY_BYTES",
        "the record's key is bytes, and the column of the key holds none: say with `frazil.key.format` what \
         they are, or set `key.converter` to one that reads them",
    )
}

fn key_not_of_row() -> SinkError {
    SinkError::data(
        "CHANGE_KEY_CONTRADICTS",
        "the record's key is another one than that of its row, and a record without a value would delete \
         by it: key the topic by the columns of the key, or take keys of another meaning away with a \
         transform",
    )
}
