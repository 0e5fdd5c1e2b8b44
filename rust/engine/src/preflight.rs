//! What is checked before the first row: the configuration, the catalog, the tables.
//!
//! The same checks serve Connect's `validate`, where each problem is an error on its key (REST 400),
//! and the start of a task, where the first one is a `ConfigException`.

mod keys;
mod online;

use std::collections::BTreeMap;
use std::sync::Arc;

use frazil_core::commit::location::StoredIn;
use frazil_core::commit::plan::check_table;
use frazil_core::commit::recover::stored_state_of;
use frazil_core::config::{ConfigProblem, Level, SinkConfig, TableConfig};
use frazil_core::layout::{changed, check_existing};
use frazil_core::wire::effects::{self, ValidationLevel};
use frazil_core::{Result, SinkError};

use crate::catalog::{Catalog, LoadedTable};
use crate::memory::Memory;

/// Reads the configuration of a task.
///
/// # Errors
///
/// `CONFIG_INVALID` with every problem in its message.
pub fn start(settings: &BTreeMap<String, String>) -> Result<SinkConfig> {
    let (config, warnings) = SinkConfig::start(settings)?;
    for warning in &warnings {
        tracing::warn!(connector = %config.connector, key = %warning.key, "{}", warning.message);
    }
    Ok(config)
}

/// Checks a configuration as Connect's `validate` does and returns the problems, encoded for Java.
///
/// The catalog is asked only when the configuration alone has no errors.
pub fn validate(settings: &BTreeMap<String, String>) -> Vec<u8> {
    let (config, mut problems) = SinkConfig::parse(settings);
    let sound = problems.iter().all(|problem| problem.level != Level::Error);
    if let (Some(config), true) = (config, sound) {
        problems.extend(Memory::of_process().check(&config));
        problems.extend(online::check(&config, settings));
    }
    effects::encode_validation(problems.iter().map(|problem| {
        let level = match problem.level {
            Level::Error => ValidationLevel::Error,
            Level::Warning => ValidationLevel::Warning,
        };
        (problem.key.as_str(), level, problem.message.as_str())
    }))
}

/// Checks that the catalog answers and that every table exists or may be created. Returns what is
/// worth knowing about tables that are fine.
///
/// # Errors
///
/// `TABLE_MISSING` naming the table and the remedies; what the catalog says otherwise.
pub async fn check_tables(
    config: &SinkConfig,
    catalog: &Arc<dyn Catalog>,
) -> Result<Vec<ConfigProblem>> {
    catalog.check().await?;
    let mut notices = Vec::new();
    for table in &config.tables {
        match catalog.load_table(&table.ident).await {
            Ok(loaded) => {
                check_table(&loaded.metadata)
                    .and_then(|()| check_existing(&loaded.metadata, table))
                    .map_err(|error| error.with("table", &table.name))?;
                notices.extend(kept_in_summary(config, table, &loaded));
                notices.extend(nullable_key(table, &loaded));
            }
            Err(error) if error.code() == "TABLE_NOT_FOUND" => check_creatable(table)?,
            Err(error) => return Err(error.with("table", &table.name)),
        }
    }
    Ok(notices)
}

/// Tells of a table that keeps the offsets in its snapshots, which costs more than a property. What is
/// wrong with its state is for the tasks to say.
fn kept_in_summary(
    config: &SinkConfig,
    table: &TableConfig,
    loaded: &LoadedTable,
) -> Option<ConfigProblem> {
    let state = stored_state_of(&loaded.metadata, &config.wid, &table.branch).ok()??;
    (state.stored_in == StoredIn::Summary).then(|| ConfigProblem {
        key: "frazil.state.location".to_owned(),
        level: Level::Warning,
        message: format!(
            "table `{}` keeps the connector's offsets in the summaries of its snapshots, not in a \
             property; expire old snapshots, since each repeats them",
            table.name
        ),
    })
}

/// Tells of columns of the key that may be null: a record without its key is an error.
fn nullable_key(table: &TableConfig, loaded: &LoadedTable) -> Option<ConfigProblem> {
    let plan = changed::change_plan(&loaded.metadata, table).ok()??;
    let schema = loaded.metadata.current_schema();
    let columns = plan.key().field_ids();
    let columns = columns.filter(|id| schema.field_by_id(*id).is_some_and(|field| !field.required));
    let names: Vec<String> = columns
        .filter_map(|id| Some(format!("`{}`", schema.name_by_field_id(id)?)))
        .collect();
    (!names.is_empty()).then(|| ConfigProblem {
        key: format!("iceberg.table.{}.id-columns", table.name),
        level: Level::Warning,
        message: format!(
            "column {} of the key of table `{}` may be null, and a record without its key is an error \
             (`CHANGE_KEY_NULL`); rows of other writers without it are never changed",
            names.join(", "),
            table.name
        ),
    })
}

fn check_creatable(table: &TableConfig) -> Result<()> {
    if table.auto_create {
        return changed::check_new(table).map_err(|error| error.with("table", &table.name));
    }
    Err(SinkError::config(
        "TABLE_MISSING",
        format!(
            "table `{}` does not exist; create it, or set `iceberg.tables.auto-create-enabled=true`",
            table.name
        ),
    ))
}
