//! Records without a schema that lie in columns: whole columns at a time where they fit.
//!
//! Keeps: each row comes to what it would if it were walked entry by entry, as maps that Java sent
//! are; only which of several misfits of a row is named may differ.

use super::batch::{Outcome, TableConverter, index_of, rules};
use super::column::{SCHEMALESS, misfit};
use super::fast::Rows;
use super::misfit::Reason;
use crate::schema::types::shows_type;
use crate::wire::MapRows;

impl TableConverter {
    /// Takes `rows` of `maps`. Does nothing and returns false when two fields are for one column.
    pub(super) fn append_maps(
        &mut self,
        maps: &MapRows<'_>,
        rows: &[u32],
        outcome: &mut Outcome,
    ) -> bool {
        let mut sources: Vec<Option<usize>> = vec![None; self.table.columns.len()];
        let mut unknown = Vec::new();
        for (index, name) in maps.names().iter().enumerate() {
            match self.table.find(name).and_then(|at| sources.get_mut(at)) {
                Some(Some(_)) => return false,
                Some(free) => *free = Some(index),
                None => unknown.push(index),
            }
        }
        let whole = Rows::of(rows);
        let targets = self.table.columns.iter_mut().zip(&self.metadata);
        for ((column, metadata), source) in targets.zip(sources) {
            let source = source.and_then(|index| Some((index, maps.columns().get(index)?)));
            let Some((index, source)) = source else {
                if metadata.is_none() {
                    (0..rows.len()).for_each(|row| outcome.note(row, column.append_missing()));
                }
                continue;
            };
            if metadata.is_some() {
                note_present(maps, index, rows, outcome, Reason::Ambiguous);
                continue;
            }
            let all = column.missing_is_null()
                || source.is_always_present()
                || rows.iter().all(|row| source.is_present(index_of(*row)));
            if let (true, Some(values)) = (all, maps.typed(index))
                && column.append_rows(values, &SCHEMALESS, &whole)
            {
                continue;
            }
            for (at, row) in rows.iter().enumerate() {
                let row = index_of(*row);
                if outcome.is_bad(at) {
                    column.append_placeholder();
                } else if source.is_present(row) {
                    let cell = maps.cell(index, row);
                    outcome.note(at, column.append(cell, &SCHEMALESS, 1));
                } else {
                    outcome.note(at, column.append_missing());
                }
            }
        }
        if rules(&self.options).refuse_unknown {
            for index in unknown {
                note_present(maps, index, rows, outcome, Reason::UnknownField);
            }
        }
        true
    }
}

/// Refuses rows that have a field which they may not have, and for one that the table has not,
/// also a value that shows a type.
fn note_present(
    maps: &MapRows<'_>,
    index: usize,
    rows: &[u32],
    outcome: &mut Outcome,
    reason: Reason,
) {
    let (Some(column), Some(name)) = (maps.columns().get(index), maps.names().get(index)) else {
        return;
    };
    for (at, row) in rows.iter().enumerate() {
        let row = index_of(*row);
        let cell = maps.cell(index, row);
        if column.is_present(row) && (reason == Reason::Ambiguous || shows_type(cell)) {
            outcome.note(at, Err(misfit(reason, cell).inside(name)));
        }
    }
}
