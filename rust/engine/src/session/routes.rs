//! Which tables of the session the rows of a frame go to, and tables that a record names first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frazil_core::config::{NullValues, too_many_tables};
use frazil_core::control::writer::TableIndex;
use frazil_core::route::{Group, NamedTable, RoutePlan, Router, To, Unmatched};
use frazil_core::wire::{Effects, Frame, LogLevel};
use frazil_core::{Result, SinkError};

use super::Inner;
use super::table::TableSlot;

/// How long a table that does not exist is not asked for again.
const MISSING_WAIT: Duration = Duration::from_secs(30);
/// Names of missing tables that are remembered.
const MISSING_MAX: usize = 10_000;

/// The routes of a session.
#[derive(Debug)]
pub(super) struct Routes {
    router: Router,
    /// The tables that records have named.
    slots: BTreeMap<String, TableIndex>,
    /// Tables that were named, do not exist and may not be created; since when this is known.
    missing: BTreeMap<String, Instant>,
    left_out: LeftOut,
}

/// Records that were left out as the configuration says: since it was last said, and in all.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    nulls: u64,
    unmatched: u64,
    nulls_before: u64,
    unmatched_before: u64,
    /// Records of changes that change nothing, by the reason.
    unchanging: BTreeMap<&'static str, (u64, u64)>,
    said: Option<Instant>,
}

impl LeftOut {
    pub(super) fn unmatched(&self) -> u64 {
        self.unmatched + self.unmatched_before
    }

    pub(super) fn nulls(&self) -> u64 {
        self.nulls + self.nulls_before
    }

    pub(super) fn unchanging(&self) -> u64 {
        self.unchanging
            .values()
            .map(|(now, before)| now + before)
            .sum()
    }

    /// Returns what there is to say, which is then said.
    fn say(&mut self) -> Option<String> {
        let unchanging = self.say_unchanging();
        if self.nulls == 0 && self.unmatched == 0 {
            return unchanging;
        }
        self.nulls_before += self.nulls;
        self.unmatched_before += self.unmatched;
        let line = format!(
            "records were left out as configured: {} without a table, {} without a value; since the \
             task started: {} and {}",
            self.unmatched, self.nulls, self.unmatched_before, self.nulls_before
        );
        (self.nulls, self.unmatched, self.said) = (0, 0, Some(Instant::now()));
        Some(match unchanging {
            Some(more) => format!("{line}; {more}"),
            None => line,
        })
    }

    fn say_unchanging(&mut self) -> Option<String> {
        let mut counts = Vec::new();
        for (reason, (new, before)) in &mut self.unchanging {
            if *new > 0 {
                *before += *new;
                counts.push(format!("{new} {reason} ({before} since the task started)"));
                *new = 0;
            }
        }
        if counts.is_empty() {
            return None;
        }
        self.said = Some(Instant::now());
        Some(format!("records changed nothing: {}", counts.join(", ")))
    }
}

/// The rows of a frame by the tables that take them.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Each table at most once.
    pub(super) rows: Vec<(TableIndex, Vec<u32>)>,
    /// Records without a value that become rows of their keys.
    pub(super) key_rows: Vec<(TableIndex, Vec<u32>)>,
    /// Rows that have no table, or may not be null, with the reason.
    pub(super) refused: BTreeMap<u32, SinkError>,
}

/// What came of a table that a record named.
enum Named {
    Slot(TableIndex),
    Missing,
    TooMany,
}

impl Routes {
    pub(super) fn new(plan: &Arc<RoutePlan>) -> Routes {
        Routes {
            router: Router::new(Arc::clone(plan)),
            slots: BTreeMap::new(),
            missing: BTreeMap::new(),
            left_out: LeftOut::default(),
        }
    }

    pub(super) fn left_out(&self) -> &LeftOut {
        &self.left_out
    }
}

impl Inner {
    /// Says where the rows go that have values and those that have none. Tables that a record names
    /// for the first time are looked up. No offset has moved when this fails.
    pub(super) fn shares(
        &mut self,
        frame: &Frame<'_>,
        rows: &[u32],
        nulls: &[u32],
    ) -> Result<Shares> {
        let mut shares = Shares::default();
        if !rows.is_empty() {
            let routed = self.routes.router.route(frame, rows);
            shares.refused.extend(routed.refused);
            self.unmatched(routed.unmatched, &mut shares);
            for group in routed.groups {
                for (table, rows) in self.places(group, &mut shares)? {
                    add_rows(&mut shares.rows, table, rows);
                }
            }
        }
        if !nulls.is_empty() {
            self.share_nulls(frame, nulls, &mut shares)?;
        }
        Ok(shares)
    }

    fn share_nulls(&mut self, frame: &Frame<'_>, nulls: &[u32], shares: &mut Shares) -> Result<()> {
        if self.config.skips_nulls {
            self.routes.left_out.nulls += nulls.len() as u64;
            return Ok(());
        }
        let routed = self.routes.router.route(frame, nulls);
        shares.refused.extend(routed.refused);
        self.unmatched(routed.unmatched, shares);
        for group in routed.groups {
            for (table, rows) in self.places(group, shares)? {
                let slot = self.tables.get(table);
                if slot.is_some_and(TableSlot::takes_tombstones) {
                    add_rows(&mut shares.rows, table, rows);
                    continue;
                }
                let behavior = self.tables.get(table).map(TableSlot::null_values);
                match behavior.unwrap_or_default() {
                    NullValues::Skip => self.routes.left_out.nulls += rows.len() as u64,
                    NullValues::KeyRow => add_rows(&mut shares.key_rows, table, rows),
                    NullValues::Fail => {
                        for row in rows {
                            shares.refused.entry(row).or_insert_with(null_value);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn unmatched(&mut self, rows: Vec<u32>, shares: &mut Shares) {
        match self.config.routes.unmatched {
            Unmatched::Drop => self.routes.left_out.unmatched += rows.len() as u64,
            Unmatched::Fail => {
                let error = |row| (row, self.routes.router.unmatched_error());
                shares.refused.extend(rows.into_iter().map(error));
            }
        }
    }

    /// Returns the tables of the session that a group goes to.
    fn places(&mut self, group: Group, shares: &mut Shares) -> Result<Vec<(TableIndex, Vec<u32>)>> {
        let Group { to, rows } = group;
        let named = match to {
            To::Every => {
                let tables = 0..self.config.tables.len();
                return Ok(tables.map(|table| (table, rows.clone())).collect());
            }
            To::Configured(table) => return Ok(vec![(table, rows)]),
            To::Named(named) => named,
        };
        match self.named(&named)? {
            Named::Slot(table) => return Ok(vec![(table, rows)]),
            Named::Missing => self.unmatched(rows, shares),
            Named::TooMany => {
                let most = self.config.routes.tables_max;
                let error = |row| (row, too_many_tables(most));
                shares.refused.extend(rows.into_iter().map(error));
            }
        }
        Ok(Vec::new())
    }

    /// Returns the slot of a table that a record named; opens one when there is a table, or may be.
    fn named(&mut self, named: &NamedTable) -> Result<Named> {
        if let Some(table) = self.routes.slots.get(&named.name) {
            return Ok(Named::Slot(*table));
        }
        let now = Instant::now();
        let since = self.routes.missing.get(&named.name);
        if since.is_some_and(|since| now.duration_since(*since) < MISSING_WAIT) {
            return Ok(Named::Missing);
        }
        let Some(dynamic) = &self.config.dynamic else {
            return Err(SinkError::internal(
                "a record named a table of a static route",
            ));
        };
        let config = dynamic.table(&named.name, &named.ident)?;
        if !self.hub.may_open(&named.ident, &config.branch) {
            return Ok(Named::TooMany);
        }
        if !config.auto_create {
            let catalog = Arc::clone(&self.context.catalog);
            let found = self
                .context
                .wait("looking for a table", catalog.load_table(&named.ident));
            match found {
                Ok(_) => {}
                Err(error) if error.code() == "TABLE_NOT_FOUND" => {
                    let missing = &mut self.routes.missing;
                    if missing.len() >= MISSING_MAX {
                        missing.clear();
                    }
                    missing.insert(named.name.clone(), now);
                    return Ok(Named::Missing);
                }
                Err(error) => return Err(error),
            }
        }
        self.routes.missing.remove(&named.name);
        let index = self.machine.add_table(&named.name);
        let slot = TableSlot::new(index, Arc::new(config), &self.hub);
        slot.join(self.machine.session(), &self.context);
        self.tables.push(slot);
        self.context.tables.set(self.tables.len());
        self.routes.slots.insert(named.name.clone(), index);
        tracing::info!(connector = %self.config.connector, task = self.config.task,
            table = %named.name, "a record named this table for the first time");
        Ok(Named::Slot(index))
    }

    fn gather_unchanging(&mut self) {
        for table in &mut self.tables {
            for (reason, count) in table.take_skipped() {
                self.routes.left_out.unchanging.entry(reason).or_default().0 += count;
            }
        }
    }

    /// Says how many records were left out: at once, and then once per commit interval.
    pub(super) fn say_left_out(&mut self, effects: &mut Effects) {
        self.gather_unchanging();
        let left_out = &mut self.routes.left_out;
        let interval = Duration::from_millis(self.config.control.commit_interval_ms);
        if left_out.said.is_some_and(|said| said.elapsed() < interval) {
            return;
        }
        if let Some(line) = left_out.say() {
            let (connector, task) = (&self.config.connector, self.config.task);
            let line = format!("{line} connector={connector} task={task}");
            effects.log.push((LogLevel::Info, line));
        }
    }

    /// Says how many records were left out since it was last said: the task ends.
    pub(super) fn say_last_left_out(&mut self) {
        self.gather_unchanging();
        if let Some(line) = self.routes.left_out.say() {
            tracing::info!(connector = %self.config.connector, task = self.config.task, "{line}");
        }
    }
}

/// Adds `rows` to those of `table`. They stay ascending.
fn add_rows(shares: &mut Vec<(TableIndex, Vec<u32>)>, table: TableIndex, rows: Vec<u32>) {
    match shares.iter_mut().find(|(known, _)| *known == table) {
        // Two names of one table never come to the same slot, but one row may come by two ways.
        Some((_, known)) => {
            known.extend(rows);
            known.sort_unstable();
            known.dedup();
        }
        None => shares.push((table, rows)),
    }
}

fn null_value() -> SinkError {
    SinkError::data(
        "VALUE_NULL",
        "the record has no value; see `iceberg.tables.null-value-behavior`, or keep such records \
         out by a transform",
    )
}

#[cfg(test)]
mod tests {
    use super::LeftOut;

    #[test]
    fn what_was_left_out_is_said_once_and_added_up() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.say(), None);
        (left_out.unmatched, left_out.nulls) = (2, 0);
        let line = left_out.say().unwrap();
        assert!(
            line.contains("2 without a table, 0 without a value;"),
            "{line}"
        );
        assert_eq!(left_out.say(), None);
        (left_out.unmatched, left_out.nulls) = (1, 7);
        let line = left_out.say().unwrap();
        assert!(
            line.contains("1 without a table, 7 without a value;"),
            "{line}"
        );
        assert!(line.ends_with("since the task started: 3 and 7"), "{line}");
    }
}
