//! What is checked before the first row: the configuration, the catalog, the tables.
//!
//! The same checks serve Connect's `validate`, where each problem is an error on its key (REST 400),
//! and the start of a task, where the first one is a `ConfigException`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use frazil_core::commit::plan::check_table;
use frazil_core::commit::recover::stored_state_of;
use frazil_core::config::{ConfigProblem, Level, SinkConfig, TableConfig};
use frazil_core::layout::check_existing;
use frazil_core::wire::effects::{self, ValidationLevel};
use frazil_core::{ErrorKind, Result, SinkError};

use crate::catalog::{self, Catalog};
use crate::runtime::Runtime;

/// How long the checks against the catalog may take. Connect's REST answers within 90 s.
const VALIDATE_WAIT: Duration = Duration::from_secs(20);
/// Where the consumer begins without a group's offset; Connect's key, not ours.
const OFFSET_RESET: &str = "consumer.override.auto.offset.reset";

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
    if let (Some(config), true) = (config, sound)
        && let Err(error) = check_online(&config, settings)
    {
        problems.push(ConfigProblem {
            key: key_of(&error, settings),
            level: Level::Error,
            message: error.report(),
        });
    }
    effects::encode_validation(problems.iter().map(|problem| {
        let level = match problem.level {
            Level::Error => ValidationLevel::Error,
            Level::Warning => ValidationLevel::Warning,
        };
        (problem.key.as_str(), level, problem.message.as_str())
    }))
}

fn check_online(config: &SinkConfig, settings: &BTreeMap<String, String>) -> Result<()> {
    let runtime = Runtime::shared()?;
    runtime.wait("checking the catalog", VALIDATE_WAIT, async {
        let catalog = catalog::open(&config.catalog)?;
        check_tables(config, &catalog).await?;
        match settings.get(OFFSET_RESET).map(|word| word.trim()) {
            Some("latest") => check_latest(config, &catalog).await,
            _ => Ok(()),
        }
    })
}

/// Refuses to begin at the end of the topics with tables that were written before: once the group
/// has expired, every record since would be skipped, and nobody would know.
async fn check_latest(config: &SinkConfig, catalog: &Arc<dyn Catalog>) -> Result<()> {
    for table in &config.tables {
        let loaded = match catalog.load_table(&table.ident).await {
            Err(error) if error.code() == "TABLE_NOT_FOUND" => continue,
            loaded => loaded?,
        };
        let state = stored_state_of(&loaded.metadata, &config.wid, &table.branch)?;
        if state.is_some_and(|state| state.bounds().next().is_some()) {
            return Err(SinkError::config(
                "LATEST_SKIPS",
                format!(
                    "`latest` would skip records if the consumer group is gone, and table `{}` has \
                     records of this connector already: take the key away. Where the group stands \
                     counts, and without a group the records that the tables hold are skipped",
                    table.name
                ),
            ));
        }
    }
    Ok(())
}

/// Checks that the catalog answers and that every table exists or may be created.
///
/// # Errors
///
/// `TABLE_MISSING` naming the table and the remedies; what the catalog says otherwise.
pub async fn check_tables(config: &SinkConfig, catalog: &Arc<dyn Catalog>) -> Result<()> {
    catalog.check().await?;
    for table in &config.tables {
        match catalog.load_table(&table.ident).await {
            Ok(loaded) => {
                check_table(&loaded.metadata)
                    .and_then(|()| check_existing(&loaded.metadata, table))
                    .map_err(|error| error.with("table", &table.name))?;
            }
            Err(error) if error.code() == "TABLE_NOT_FOUND" => check_creatable(table)?,
            Err(error) => return Err(error.with("table", &table.name)),
        }
    }
    Ok(())
}

fn check_creatable(table: &TableConfig) -> Result<()> {
    if table.auto_create {
        return Ok(());
    }
    Err(SinkError::config(
        "TABLE_MISSING",
        format!(
            "table `{}` does not exist; create it, or set `iceberg.tables.auto-create-enabled=true`",
            table.name
        ),
    ))
}

/// Returns the configuration key that a failed check belongs to.
fn key_of(error: &SinkError, settings: &BTreeMap<String, String>) -> String {
    // The table's own key when it is set, else the one for all tables.
    let of_table = |own: &str, common: &str| {
        let table = error.context().iter().find(|(name, _)| *name == "table");
        let own = table.map(|(_, table)| format!("iceberg.table.{table}.{own}"));
        own.filter(|own| settings.contains_key(own))
            .unwrap_or_else(|| format!("iceberg.tables.{common}"))
    };
    match error.code() {
        "LATEST_SKIPS" => OFFSET_RESET.to_owned(),
        "TABLE_MISSING" | "TABLE_FORMAT_V1" => "iceberg.tables".to_owned(),
        "ID_COLUMN_MISSING" | "ID_COLUMNS_INVALID" => of_table("id-columns", "default-id-columns"),
        "SORT_COLUMN_MISSING" | "SORT_BY_INVALID" | "SORT_UNSUPPORTED" => {
            of_table("sort-by", "default-sort-by")
        }
        "PARTITION_COLUMN_MISSING"
        | "PARTITION_BY_INVALID"
        | "PARTITION_SPEC_DIFFERS"
        | "PARTITION_UNSUPPORTED" => of_table("partition-by", "default-partition-by"),
        _ if error.kind() == ErrorKind::Config && error.message().contains("credential") => {
            "iceberg.catalog.credential".to_owned()
        }
        _ => "iceberg.catalog.uri".to_owned(),
    }
}
