//! Rows of a frame and the offsets that they stand for.

use std::collections::BTreeSet;

use frazil_core::Result;
use frazil_core::control::task::TaskMachine;
use frazil_core::control::writer::TableIndex;
use frazil_core::wire::{Frame, Run};

/// New rows of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct AppendRows<'a> {
    pub(super) frame: &'a Frame<'a>,
    pub(super) rows: &'a [u32],
}

/// Returns the rows that the table does not hold yet.
///
/// # Errors
///
/// When those that it holds cannot be the rows that it got at these offsets.
pub(super) fn rows_beyond_bounds(
    machine: &mut TaskMachine,
    table: TableIndex,
    new: &AppendRows<'_>,
) -> Result<Vec<u32>> {
    let mut beyond = Vec::with_capacity(new.rows.len());
    for (run, rows) in new.runs() {
        let bound = machine.bound(table, &run.partition).unwrap_or(i64::MIN);
        let (covered, rest): (Vec<u32>, Vec<u32>) =
            rows.iter().partition(|row| run.offset_of(**row) < bound);
        if let Some(first) = covered.first() {
            let oldest_ms = covered
                .iter()
                .filter_map(|row| new.frame.timestamp(*row as usize))
                .min();
            machine.covered(table, &run.partition, run.offset_of(*first), oldest_ms)?;
        }
        beyond.extend(rest);
    }
    Ok(beyond)
}

/// Tells `machine` which offsets have rows in the table now, and returns how many rows they are.
pub(super) fn note_written(
    machine: &mut TaskMachine,
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
        machine.wrote(table, &run.partition, (lowest, highest), newest);
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
