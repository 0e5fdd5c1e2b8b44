//! Rows of a frame and the offsets that they stand for.

use std::collections::BTreeSet;

use frazil_core::control::writer::{TableIndex, WriterProgress};
use frazil_core::wire::{Frame, Run};

/// New rows of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct AppendRows<'a> {
    pub(super) frame: &'a Frame<'a>,
    pub(super) rows: &'a [u32],
}

/// Returns the rows that the table does not hold yet.
pub(super) fn rows_beyond_bounds(
    progress: &WriterProgress,
    table: TableIndex,
    new: &AppendRows<'_>,
) -> Vec<u32> {
    let mut beyond = Vec::with_capacity(new.rows.len());
    for (run, rows) in new.runs() {
        let bound = progress
            .bound(table, &run.partition)
            .flatten()
            .unwrap_or(i64::MIN);
        beyond.extend(
            rows.iter()
                .copied()
                .filter(|row| run.offset_of(*row) >= bound),
        );
    }
    beyond
}

/// Tells `progress` which offsets have rows in the table now, and returns how many rows they are.
pub(super) fn note_written(
    progress: &mut WriterProgress,
    table: TableIndex,
    written: &AppendRows<'_>,
    refused: &BTreeSet<u32>,
) -> u64 {
    let mut count = 0;
    for (run, rows) in written.runs() {
        let mut kept = rows.iter().filter(|row| !refused.contains(row)).peekable();
        let Some(lowest) = kept.peek().map(|row| run.offset_of(**row)) else {
            continue;
        };
        let (mut highest, mut newest) = (lowest, None);
        for row in kept {
            highest = run.offset_of(*row);
            newest = newest.max(written.frame.timestamp(*row as usize));
            count += 1;
        }
        progress.wrote(table, &run.partition, (lowest, highest), newest);
    }
    count
}

impl<'a> AppendRows<'a> {
    /// Returns each run of the frame with those of the rows that belong to it. Rows are ascending.
    fn runs(&self) -> impl Iterator<Item = (&'a Run<'a>, &'a [u32])> {
        let rows = self.rows;
        self.frame.runs().iter().map(move |run| {
            let first = rows.partition_point(|row| (*row as usize) < run.first_row);
            let end = rows.partition_point(|row| (*row as usize) < run.first_row + run.rows);
            (run, rows.get(first..end).unwrap_or_default())
        })
    }
}
