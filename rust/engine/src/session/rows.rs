//! Rows of a frame and the offsets that they stand for.

use std::collections::BTreeSet;

use frazil_core::config::{BreakingPolicy, TableConfig};
use frazil_core::control::task::TaskMachine;
use frazil_core::control::writer::TableIndex;
use frazil_core::convert::Stop;
use frazil_core::wire::{Frame, Run};
use frazil_core::{Result, SinkError};

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
        // Offsets of a run rise.
        if rows.first().is_none_or(|row| run.offset_of(*row) >= bound) {
            beyond.extend_from_slice(rows);
            continue;
        }
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

/// A record tells of a change that the table cannot follow: blocks the table.
///
/// # Errors
///
/// The change, when the policy is that the task stops.
pub(super) fn stop_at(
    machine: &mut TaskMachine,
    config: &TableConfig,
    table: TableIndex,
    frame: &Frame<'_>,
    stop: Stop,
) -> Result<()> {
    let mut error = SinkError::fatal(stop.error.code(), stop.error.message().to_owned());
    for (key, value) in stop.error.context() {
        error = error.with(key, value);
    }
    if let Some((run, offset)) = frame.source(stop.row as usize) {
        error = error
            .with("partition", &run.partition)
            .with("offset", offset);
    }
    if config.evolution.breaking == BreakingPolicy::Fail {
        return Err(error.with("table", &config.name));
    }
    machine.block(table, error.report());
    Ok(())
}

/// Notes that `table`, which is blocked, was to get `rows`.
pub(super) fn await_rows(
    machine: &mut TaskMachine,
    table: TableIndex,
    frame: &Frame<'_>,
    rows: &[u32],
) {
    let awaited = AppendRows { frame, rows };
    for (run, rows) in awaited.runs() {
        if let Some(lowest) = rows.first() {
            machine.awaits(table, &run.partition, run.offset_of(*lowest));
        }
    }
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
