//! What a task does about a table that is partitioned otherwise than configured.
//!
//! It looks once, when it begins to write the table, so that two tasks with different
//! configurations never change a table back and forth, and whoever changes the partitioning in the
//! middle of a run is obeyed. Files that are open are closed before: the segment goes on over both
//! specs.

use frazil_core::Result;
use frazil_core::config::{EvolutionMode, SpecPolicy};
use frazil_core::layout::spec::{Standing, describe, plan_change, standing};
use frazil_core::layout::{check_existing, evolves_spec};

use super::table::{SessionContext, TableSlot};
use crate::catalog::LoadedTable;
use crate::commit::change_table;

/// How far a task is with the partitioning of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SpecSettled {
    /// It has not looked yet.
    #[default]
    No,
    /// It waits for a column, and has said so.
    Waiting,
    /// It writes with whatever the table has.
    Yes,
}

impl TableSlot {
    /// Compares the partitioning of the table with the configured one, once, and does what the
    /// policy says.
    pub(super) fn settle_spec(
        &self,
        context: &SessionContext,
        loaded: LoadedTable,
    ) -> Result<LoadedTable> {
        let config = &self.config;
        if self.spec_settled.get() == SpecSettled::Yes {
            return Ok(loaded);
        }
        match standing(&loaded.metadata, config) {
            Standing::Same => {}
            Standing::ColumnMissing(column)
                if evolves_spec(config) && config.evolution.mode != EvolutionMode::Off =>
            {
                if self.spec_settled.replace(SpecSettled::Waiting) == SpecSettled::No {
                    self.notify(format!(
                        "the partitioning of table {} waits for a record that brings column \
                         `{column}`",
                        config.name
                    ));
                }
                return Ok(loaded);
            }
            Standing::Differs if config.layout.spec_policy == SpecPolicy::Evolve => {
                return self.evolve_spec(context, &loaded);
            }
            Standing::Differs | Standing::ColumnMissing(_)
                if config.layout.spec_policy == SpecPolicy::Keep =>
            {
                self.notify(format!(
                    "table {} is partitioned otherwise than `partition-by` says, and stays so \
                     ({}); `iceberg.tables.partition-spec-policy=evolve` would change it",
                    config.name,
                    describe(&loaded.metadata)
                ));
            }
            Standing::Differs | Standing::ColumnMissing(_) => {
                check_existing(&loaded.metadata, config)?;
            }
        }
        self.spec_settled.set(SpecSettled::Yes);
        Ok(loaded)
    }

    fn evolve_spec(&self, context: &SessionContext, before: &LoadedTable) -> Result<LoadedTable> {
        let config = &self.config;
        let work = change_table(&*context.catalog, &config.ident, |metadata| {
            plan_change(metadata, config)
        });
        let loaded = context.wait("changing the partitioning", work)?;
        self.spec_settled.set(SpecSettled::Yes);
        self.notify(format!(
            "the partitioning of table {} was changed from {} to {}; files that are there stay as \
             they are",
            config.name,
            describe(&before.metadata),
            describe(&loaded.metadata)
        ));
        Ok(loaded)
    }

    fn notify(&self, notice: String) {
        self.notices.borrow_mut().push(notice);
    }
}
