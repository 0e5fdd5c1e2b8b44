//! What a block of records comes to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::envelope::{Op, Skip};
use super::images::ImageRows;
use super::order::Order;
use super::plan::ChangePlan;
use crate::error::{Result, SinkError};
use crate::wire::Frame;

/// Which part of a record is the row of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// There is none.
    None,
    /// The row as it is afterwards.
    After,
    /// The row that is removed, as far as the record has it.
    Deleted,
    /// The record's key.
    Key,
}

/// Whether the table's own row is needed to finish the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldRow {
    /// The new row is complete.
    NotNeeded,
    /// For the columns that are [unavailable](Changes::unavailable).
    Columns,
    /// For all columns but those of the key: of a soft delete.
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) length: usize,
}

/// A change. Its topic, partition and offset are those of its row in the frame
/// ([`Frame::source`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The row of the frame.
    pub row: u32,
    /// What it does.
    pub op: Op,
    /// Where the row stands.
    pub image: Image,
    /// Whether the table's row is needed.
    pub old_row: OldRow,
    /// Whether the row is removed because its key changes: the new row comes next, and may lack values
    /// that only the removed row has. Both should be in one commit.
    pub awaits_new_key: bool,
    pub(super) key: Span,
    pub(super) old_key: Option<Span>,
    pub(super) old_order: Option<Span>,
    pub(super) order: Option<Span>,
}

impl Change {
    /// Tells whether it is what a snapshot of the source found.
    pub fn is_snapshot(&self) -> bool {
        self.op == Op::Read
    }
}

/// The changes of a block. Its memory is used again where it is handed in again.
#[derive(Debug, Default)]
pub struct Changes {
    pub(super) changes: Vec<Change>,
    pub(super) skipped: Vec<(u32, Skip)>,
    pub(super) refused: Vec<(u32, SinkError)>,
    pub(super) bytes: Vec<u8>,
    /// Rows and columns that are unavailable, sorted.
    pub(super) marks: Vec<(u32, u32)>,
    names: Vec<Arc<str>>,
    /// Where each name is in `names`.
    indexes: BTreeMap<Arc<str>, u32>,
}

impl Changes {
    /// Returns the changes in the order of their rows.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the rows that change nothing, with the reason.
    pub fn skipped(&self) -> &[(u32, Skip)] {
        &self.skipped
    }

    /// Tells whether a row is an error.
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Takes the rows that are errors.
    pub fn take_refused(&mut self) -> Vec<(u32, SinkError)> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the bytes of the key; none for a truncation.
    pub fn key(&self, change: &Change) -> &[u8] {
        self.span(change.key)
    }

    /// Returns the bytes of the key that the row had before, when this change gave it another one.
    pub fn old_key(&self, change: &Change) -> Option<&[u8]> {
        change.old_key.map(|span| self.span(span))
    }

    /// Returns the order in which the row of the old key goes. Where the record only mentions that key, it
    /// is before all changes at the place of this one: the source tells itself what became of the key there,
    /// and another row may have it.
    pub fn old_order(&self, change: &Change) -> Option<Order<'_>> {
        change.old_order.map(|span| Order::of(self.span(span)))
    }

    /// Returns the order of the change in its source, when it has one.
    pub fn order(&self, change: &Change) -> Option<Order<'_>> {
        change.order.map(|span| Order::of(self.span(span)))
    }

    /// Returns the names of the row's fields whose values the source left out.
    pub fn unavailable(&self, change: &Change) -> impl Iterator<Item = &str> {
        let row = change.row;
        self.marks_of(usize::try_from(row).unwrap_or(usize::MAX))
            .filter_map(|name| self.names.get(name))
            .map(|name| &**name)
    }

    /// Returns the rows of `image` as records of their own; those of other rows are null or have no
    /// meaning. `plan` and `frame` are those that the changes were made of.
    ///
    /// # Errors
    ///
    /// `INTERNAL` when the values outgrow a frame.
    pub fn image(
        &self,
        plan: &mut ChangePlan,
        frame: &Frame<'_>,
        image: Image,
    ) -> Result<ImageRows> {
        ImageRows::of(self, plan, frame, image)
    }

    pub(super) fn marks_of(&self, row: usize) -> impl Iterator<Item = usize> {
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        let start = self.marks.partition_point(|(marked, _)| *marked < row);
        let marks = self.marks.get(start..).unwrap_or_default().iter();
        marks
            .take_while(move |(marked, _)| *marked == row)
            .map(|(_, name)| usize::try_from(*name).unwrap_or(usize::MAX))
    }

    pub(super) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    pub(super) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    fn span(&self, span: Span) -> &[u8] {
        let end = span.start.saturating_add(span.length);
        self.bytes.get(span.start..end).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.changes.clear();
        self.skipped.clear();
        self.refused.clear();
        self.bytes.clear();
        self.marks.clear();
        self.names.clear();
        self.indexes.clear();
    }

    /// Tells whether a row of the frame is a change whose row is this image.
    pub(super) fn is_of(&self, row: usize, image: Image) -> bool {
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        let found = self.changes.binary_search_by_key(&row, |change| change.row);
        let change = found.ok().and_then(|index| self.changes.get(index));
        change.is_some_and(|change| change.image == image)
    }

    pub(super) fn mark(&mut self, row: usize, name: &str) {
        let index = match self.indexes.get(name) {
            Some(index) => *index,
            None => {
                let index = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                let name: Arc<str> = Arc::from(name);
                self.names.push(Arc::clone(&name));
                self.indexes.insert(name, index);
                index
            }
        };
        self.marks
            .push((u32::try_from(row).unwrap_or(u32::MAX), index));
    }
}
