//! The changes of a segment, key by key, as its task wrote them down: what the coordinator resolves with the
//! index of the table. The file of them is the engine's.

use super::order::Order;
use super::pending::PendingFile;
use crate::error::{Result, SinkError};
use crate::index::{KeyNumber, Location};
use crate::limits::KEY_RUN_ROWS_MAX;

/// What a change does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The row of the key goes.
    Delete,
    /// The row of the key is now this one of the segment's files.
    Upsert(Location),
    /// The row of the key is now this one of the segment's pending files, once the commit has filled in
    /// what it lacks.
    Pending(Location),
    /// The row of the key stays and is marked as deleted; it is this one of the segment's pending files,
    /// whose values are those that the row had. Without a row there is nothing to mark.
    Mark(Location),
    /// All rows go that are not known to be newer. The key is 0 and means nothing.
    Truncate,
}

/// One change of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunChange {
    /// The key.
    pub key: KeyNumber,
    /// What happens.
    pub effect: Effect,
    /// Whether it is what a snapshot of the source found.
    pub is_snapshot: bool,
    /// Whether the row goes because it gets another key, which the source tells in another record.
    pub leaves: bool,
    /// Whether the row goes because the record gives it another key, under which it lacks values.
    pub moves: bool,
    /// The source partition, by its place among the segment's ranges.
    pub partition: u32,
    /// The offset of the record.
    pub offset: i64,
    order: Option<(u32, u32)>,
}

/// The changes of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRun {
    changes: Vec<RunChange>,
    /// The orders of all changes, behind one another.
    orders: Vec<u8>,
    /// The files with pending rows.
    pending: Vec<PendingFile>,
}

impl KeyRun {
    /// Adds a change that came after all those before.
    ///
    /// # Errors
    ///
    /// `INTERNAL` beyond the bounds of a run, which its segment has to end before.
    pub fn push(&mut self, change: &RunChange, order: Option<Order<'_>>) -> Result<()> {
        let order = order.map(|order| order.bytes());
        let start = u32::try_from(self.orders.len());
        let (Ok(start), true) = (start, self.changes.len() < KEY_RUN_ROWS_MAX) else {
            return Err(SinkError::internal("a segment has too many changes"));
        };
        let length = |order: &[u8]| u32::try_from(order.len()).unwrap_or(u32::MAX);
        self.changes.push(RunChange {
            order: order.map(|order| (start, length(order))),
            ..*change
        });
        self.orders.extend_from_slice(order.unwrap_or_default());
        Ok(())
    }

    /// Takes a change of another run.
    ///
    /// # Errors
    ///
    /// Those of [`KeyRun::push`].
    pub fn take(&mut self, from: &KeyRun, change: &RunChange) -> Result<()> {
        self.push(change, from.order(change))
    }

    /// Forgets all changes, and keeps their memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.orders.clear();
    }

    /// Returns the changes, in the order in which they came until they are [sorted](Self::sort).
    pub fn changes(&self) -> &[RunChange] {
        &self.changes
    }

    /// Returns the changes of a key, in a run that is [sorted](Self::sort).
    pub fn of_key(&self, key: KeyNumber) -> impl Iterator<Item = &RunChange> {
        let first = self.changes.partition_point(|change| change.key < key);
        let from = self.changes.iter().skip(first);
        from.take_while(move |change| change.key == key)
    }

    /// Returns the changes, to number their files and partitions anew.
    pub fn changes_mut(&mut self) -> &mut [RunChange] {
        &mut self.changes
    }

    /// Returns what orders a change of this run.
    pub fn order(&self, change: &RunChange) -> Option<Order<'_>> {
        let (start, length) = change.order?;
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        self.orders.get(start..end).map(Order::of)
    }

    /// Returns the files with pending rows, by whose places changes name their rows.
    pub fn pending(&self) -> &[PendingFile] {
        &self.pending
    }

    /// Sets the files with pending rows.
    pub fn set_pending(&mut self, files: Vec<PendingFile>) {
        self.pending = files;
    }

    /// Brings the changes of each key together; those of one key stay as they came.
    pub fn sort(&mut self) {
        self.changes.sort_by_key(|change| change.key);
    }

    /// Returns how many changes there are.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Tells whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns about how many bytes of memory the changes take.
    pub fn memory_bytes(&self) -> usize {
        self.changes.capacity() * size_of::<RunChange>() + self.orders.capacity()
    }
}

impl RunChange {
    /// Describes a change without an order.
    pub fn new(key: KeyNumber, effect: Effect, (partition, offset): (u32, i64)) -> Self {
        RunChange {
            key,
            effect,
            is_snapshot: false,
            leaves: false,
            moves: false,
            partition,
            offset,
            order: None,
        }
    }

    /// Returns the record that it came in, by its source partition and its offset.
    pub fn record(&self) -> (u32, i64) {
        (self.partition, self.offset)
    }

    /// As it is, but of a row that gets another key if `leaves`.
    #[must_use]
    pub fn leaving(self, leaves: bool) -> Self {
        RunChange { leaves, ..self }
    }

    /// As it is, but of a row that its record gives another key, under which it lacks values, if `moves`.
    #[must_use]
    pub fn moving(self, moves: bool) -> Self {
        RunChange { moves, ..self }
    }

    /// As it is, but what a snapshot of the source found if `is_snapshot`.
    #[must_use]
    pub fn of_snapshot(self, is_snapshot: bool) -> Self {
        RunChange {
            is_snapshot,
            ..self
        }
    }
}
