//! Everything of a table that may fail for reasons outside the records: loading it, creating it,
//! following its schema, reading its offsets.

use std::sync::Arc;

use frazil_core::commit::partitions;
use frazil_core::commit::plan::check_table;
use frazil_core::commit::recover::state_of;
use frazil_core::commit::state::WriterState;
use frazil_core::config::EvolutionMode;
use frazil_core::control::task::{Held, LoadDue, Standing, TaskMachine};
use frazil_core::layout::changed;
use frazil_core::metrics::TableMetric;
use frazil_core::offsets::TopicPartition;
use frazil_core::schema::evolve::Evolution;
use frazil_core::schema::metadata::resolved;
use frazil_core::wire::Frame;
use frazil_core::{Result, SinkError};
use iceberg::spec::TableMetadata;

use super::creation::creation_of;
use super::open::{OpenTable, converter};
use super::table::{SessionContext, TableSlot};
use crate::catalog::LoadedTable;
use crate::commit::create::{evolve_schema, load_or_create};
use crate::hub::After;

impl TableSlot {
    /// Does whatever may fail for reasons outside the records: loads or creates the table, follows
    /// its schema, reads its offsets. No offset has moved when this fails.
    pub(crate) fn prepare(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<()> {
        let prepared = match self.reading.is_some() {
            true => self.prepare_changes(context, machine, frame, rows),
            false => self.with_mask(frame, rows, |table, frame, rows| {
                table.prepare_table(context, machine, frame, rows)
            }),
        };
        prepared.map_err(|error| error.with("table", &self.config.name))
    }

    fn prepare_table(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<()> {
        if self.is_to_open(context, machine)? {
            self.open_table(context, machine, frame, rows)?;
        }
        self.follow_schema(context, machine, frame, rows)
    }

    /// Reads the table's offsets again when that is due; tells whether it is to be opened.
    pub(super) fn is_to_open(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
    ) -> Result<bool> {
        match machine.load_due(self.index) {
            LoadDue::Offsets => self.refresh_state(context, machine)?,
            LoadDue::Table => {
                self.open = None;
                self.newer = None;
            }
            LoadDue::No if machine.progress().has_open(self.index) => {}
            LoadDue::No => {
                if let Some(newer) = self.newer.take() {
                    self.open = Some(self.opened(context, machine, newer)?);
                }
            }
        }
        Ok(self.open.is_none())
    }

    /// Opens the table; creates it from the first record that has a schema.
    pub(super) fn open_table(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<()> {
        if let Some(loaded) = self.load_or_create(context, frame, rows)? {
            self.open = Some(self.opened(context, machine, loaded)?);
        }
        Ok(())
    }

    /// Reads the offsets that the table has now, while rows are open: those of partitions that came
    /// from other tasks count.
    fn refresh_state(&mut self, context: &SessionContext, machine: &mut TaskMachine) -> Result<()> {
        let catalog = &context.catalog;
        let loaded = context.wait("loading a table", catalog.load_table(&self.config.ident));
        let loaded = match loaded {
            Err(error) if error.code() == "TABLE_NOT_FOUND" && self.config.auto_create => {
                let replaced = machine.replaced(self.index, "it was dropped");
                return Err(replaced.caused_by(error));
            }
            Err(error) if error.code() == "TABLE_NOT_FOUND" => return Err(table_missing(error)),
            loaded => loaded?,
        };
        self.note_loaded(context, machine, &loaded)?;
        self.committed(machine, After::Table(Box::new(loaded)));
        Ok(())
    }

    /// Tells the machine which table was loaded, and which offsets it holds.
    fn note_loaded(
        &self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        loaded: &LoadedTable,
    ) -> Result<()> {
        machine.require_same(self.index, loaded.metadata.uuid())?;
        let state = state_of(&loaded.metadata, &context.config.wid, &self.config.branch)?;
        let valid_through_ms = state.as_ref().and_then(WriterState::valid_through_ms);
        let values = self.hub().metrics().values();
        values.set_since(TableMetric::ValidThrough, valid_through_ms);
        let held = |partition: &TopicPartition| match &state {
            None => Held::default(),
            Some(state) => {
                let id = context.topic_ids.borrow().get(&partition.topic).copied();
                Held {
                    bound: state.bound_of(partition, id),
                    watermark: state.watermark(partition, id),
                    newest_ms: state.newest_ms(partition, id),
                }
            }
        };
        let standing = Standing {
            uuid: loaded.metadata.uuid(),
            epoch: state.as_ref().map_or(0, |state| state.epoch),
            held: &held,
        };
        if let Some(reading) = &self.reading {
            let changes = self.config.changes.as_ref();
            // Rows that are added once are the same whatever comes first.
            if changes.is_some_and(|changes| changes.once_within.is_none()) {
                check_partitions(context, state.as_ref())?;
            }
            let bounds = state.iter().flat_map(WriterState::bounds);
            let partitions = bounds.map(|(partition, _)| partition);
            let mut sources = reading.sources.borrow_mut();
            sources.loaded(loaded.metadata.uuid(), partitions);
        }
        machine.table_loaded(self.index, &standing)
    }

    fn opened(
        &self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        loaded: LoadedTable,
    ) -> Result<OpenTable> {
        check_table(&loaded.metadata)?;
        changed::check(&loaded.metadata, &self.config)?;
        let loaded = self.settle_spec(context, loaded)?;
        self.note_loaded(context, machine, &loaded)?;
        OpenTable::new(loaded, &self.config)
    }

    /// Returns the table; creates it from the first record that has a schema. `None` when it does
    /// not exist and no record of the frame says what it should look like.
    fn load_or_create(
        &self,
        context: &SessionContext,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<Option<LoadedTable>> {
        let catalog = &*context.catalog;
        let ident = &self.config.ident;
        let loaded = match context.wait("loading a table", catalog.load_table(ident)) {
            Ok(loaded) => loaded,
            Err(error) if error.code() != "TABLE_NOT_FOUND" => return Err(error),
            Err(error) if !self.config.auto_create => return Err(table_missing(error)),
            Err(_) => {
                let Some(creation) = creation_of(&self.config, frame, rows)? else {
                    return Ok(None);
                };
                let work = load_or_create(catalog, ident, || Ok(creation.clone()));
                let created = context.wait("creating a table", work)?;
                tracing::info!(connector = %context.config.connector, table = %self.config.name,
                    uuid = %created.metadata.uuid(), "table created");
                self.hub().metrics().add(TableMetric::Created, 1);
                created
            }
        };
        let columns = &self.config.metadata_columns;
        let shown = rows.iter().map(|row| resolved(columns, frame, *row));
        let shown = shown
            .filter(|(_, complete)| *complete)
            .map(|(shown, _)| shown);
        let missing = Evolution::for_metadata(
            loaded.metadata.current_schema(),
            &shown.into_iter().next().unwrap_or_else(|| columns.clone()),
        );
        if missing.is_empty() || self.config.evolution.mode == EvolutionMode::Off {
            return Ok(Some(loaded));
        }
        self.evolve(context, |_| Ok(Some(missing.clone())))
            .map(Some)
    }

    /// Makes the table gain what the frame's records need, as far as it is allowed. Limits may ask
    /// for more than one change.
    pub(super) fn follow_schema(
        &mut self,
        context: &SessionContext,
        machine: &mut TaskMachine,
        frame: &Frame<'_>,
        rows: &[u32],
    ) -> Result<()> {
        if machine.is_blocked(self.index) {
            return Ok(());
        }
        for _ in 0..=rows.len() {
            let Some(open) = &mut self.open else {
                return Ok(());
            };
            if open.converter.evolution(frame, rows).is_none() {
                return Ok(());
            }
            // Asked again of each metadata that the catalog gives: other tasks change it too.
            let config = Arc::clone(&self.config);
            let loaded = self.evolve(context, |metadata| {
                Ok(converter(metadata, &config)?.evolution(frame, rows))
            })?;
            machine.require_same(self.index, loaded.metadata.uuid())?;
            self.close_files(context, machine)?;
            // The session works on with the bounds it has: they are as old as its rows.
            let mut open = self.opened(context, machine, loaded)?;
            if let Some(before) = self.open.take() {
                open.continues(before)?;
            }
            self.open = Some(open);
        }
        Ok(())
    }

    /// Changes the schema by what `wanted` says of the table's metadata, until that is nothing.
    fn evolve(
        &self,
        context: &SessionContext,
        mut wanted: impl FnMut(&TableMetadata) -> Result<Option<Evolution>>,
    ) -> Result<LoadedTable> {
        let mut changes = Vec::new();
        let work = evolve_schema(&*context.catalog, &self.config.ident, |metadata| {
            let evolution = wanted(metadata)?.unwrap_or_default();
            let before = metadata.current_schema();
            let after = evolution.apply(before, metadata.last_column_id())?;
            changes = evolution.changes;
            Ok((after.as_struct() != before.as_struct()).then_some(after))
        });
        let loaded = context.wait("changing a schema", work)?;
        let metrics = self.hub().metrics();
        metrics.add(TableMetric::SchemaChanges, changes.len() as u64);
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        tracing::info!(connector = %context.config.connector, table = %self.config.name,
            schema = loaded.metadata.current_schema_id(), changes = %changes.join(", "),
            "the table follows its records");
        Ok(loaded)
    }
}

/// Checks that the topics have the partitions that they had when the table's changes were read last.
fn check_partitions(context: &SessionContext, state: Option<&WriterState>) -> Result<()> {
    let ids = context.topic_ids.borrow();
    let counts = context.topic_partitions.borrow();
    let accepted = context.config.control.partitions_accepted;
    let known = state
        .into_iter()
        .flat_map(|state| counts.iter().map(move |of| (state, of)));
    for (state, (topic, partitions)) in known {
        let id = ids.get(topic).copied();
        partitions::check(state, (topic, id), *partitions, accepted)?;
    }
    Ok(())
}

fn table_missing(error: SinkError) -> SinkError {
    SinkError::config(
        "TABLE_MISSING",
        "the table is gone; create it again, or set `iceberg.tables.auto-create-enabled=true`",
    )
    .caused_by(error)
}
