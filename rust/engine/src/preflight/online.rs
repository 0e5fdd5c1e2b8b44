//! The checks of `validate` that ask the catalog and the storage, all within a time limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use frazil_core::commit::partitions;
use frazil_core::commit::plan::check_table;
use frazil_core::commit::recover::stored_state_of;
use frazil_core::config::{ConfigProblem, SinkConfig, TableConfig, nearest};
use frazil_core::layout::{changed, identifier, sort, spec};
use frazil_core::{Result, SinkError};
use futures::StreamExt;
use iceberg::spec::{Schema, TableMetadata};

use super::keys::{Keys, OFFSET_RESET};
use crate::catalog::{self, Catalog, LoadedTable};
use crate::registry::Registry;
use crate::runtime::Runtime;

/// How long all checks may take. Connect's REST answers within 90 s.
const WAIT: Duration = Duration::from_secs(20);
/// How long the storage of one table may take: it retries for longer than that.
const STORAGE_WAIT: Duration = Duration::from_secs(10);
/// Tables that are looked at at once.
const TABLES_AT_ONCE: usize = 8;
/// Letters in which a column's name may differ from the one that was meant.
const EDITS_MAX: usize = 2;

/// Asks the catalog about each table and returns what is wrong, each on its key.
pub(super) fn check(
    config: &SinkConfig,
    settings: &BTreeMap<String, String>,
) -> Vec<ConfigProblem> {
    let keys = Keys { settings };
    let mut problems = check_registry(keys, config);
    let asked = Runtime::shared().and_then(|runtime| {
        runtime.wait("checking the catalog", WAIT, async {
            let catalog = catalog::open(&config.catalog)?;
            catalog.check().await?;
            let tables = futures::stream::iter(&config.tables)
                .map(|table| check_one(keys, config, table, &catalog))
                .buffered(TABLES_AT_ONCE);
            Ok(tables.collect::<Vec<_>>().await.concat())
        })
    });
    problems.extend(asked.unwrap_or_else(|error| vec![keys.problem(&error)]));
    problems
}

/// Asks the schema registry, where formats need one, for something that every one has.
fn check_registry(keys: Keys<'_>, config: &SinkConfig) -> Vec<ConfigProblem> {
    let Some(registry) = &config.registry else {
        return Vec::new();
    };
    let asked = Registry::open(registry).and_then(|registry| {
        let runtime = Runtime::shared()?;
        runtime.wait("checking the schema registry", WAIT, registry.check())
    });
    let problem = asked.err().map(|error| keys.registry_problem(&error));
    problem.into_iter().collect()
}

async fn check_one(
    keys: Keys<'_>,
    config: &SinkConfig,
    table: &TableConfig,
    catalog: &Arc<dyn Catalog>,
) -> Vec<ConfigProblem> {
    let loaded = match catalog.load_table(&table.ident).await {
        Ok(loaded) => loaded,
        Err(error) if error.code() == "TABLE_NOT_FOUND" => {
            let creatable = super::check_creatable(table);
            let problem = |error: &SinkError| match error.code() {
                "CHANGE_KEY_MISSING" => {
                    let key = keys.of_table(&table.name, "id-columns");
                    ConfigProblem::error(key, error.report())
                }
                "DELETE_MODE_UNFIT" => {
                    let key = keys.of_table(&table.name, "delete-mode");
                    ConfigProblem::error(key, error.report())
                }
                "ENGINE_READS_NO_DELETES" => {
                    ConfigProblem::error(keys.engines_of(&table.name), error.report())
                }
                _ => keys.problem(error),
            };
            return creatable.err().iter().map(problem).collect();
        }
        Err(error) => return vec![keys.problem(&error.with("table", &table.name))],
    };
    let mut problems = Vec::new();
    let outcomes = [
        check_table(&loaded.metadata),
        check_reset(keys, config, table, &loaded),
        check_storage(&loaded).await,
    ];
    for error in outcomes.into_iter().filter_map(Result::err) {
        problems.push(keys.problem(&error.with("table", &table.name)));
    }
    problems.extend(super::kept_in_summary(config, table, &loaded));
    problems.extend(super::nullable_key(table, &loaded));
    problems.extend(check_partitions(keys, config, table, &loaded));
    check_layout(keys, table, &loaded.metadata, &mut problems);
    problems
}

/// Reads the length of the table's metadata file: the storage's address and keys are good then.
async fn check_storage(loaded: &LoadedTable) -> Result<()> {
    let Some(location) = &loaded.metadata_location else {
        return Ok(());
    };
    match tokio::time::timeout(STORAGE_WAIT, loaded.storage.exists(location)).await {
        Ok(found) => found.map(|_| ()),
        Err(_) => Err(SinkError::retriable(
            "STORAGE_UNAVAILABLE",
            format!(
                "the storage of the table did not answer within {} s",
                STORAGE_WAIT.as_secs()
            ),
        )),
    }
}

/// Refuses to begin at the end of the topics with tables that were written before: once the group
/// has expired, every record since would be skipped, and nobody would know.
fn check_reset(
    keys: Keys<'_>,
    config: &SinkConfig,
    table: &TableConfig,
    loaded: &LoadedTable,
) -> Result<()> {
    let word = keys.settings.get(OFFSET_RESET).map(|word| word.trim());
    if word != Some("latest") {
        return Ok(());
    }
    let state = stored_state_of(&loaded.metadata, &config.wid, &table.branch)?;
    if state.is_none_or(|state| state.bounds().next().is_none()) {
        return Ok(());
    }
    Err(SinkError::config(
        "LATEST_SKIPS",
        format!(
            "`latest` would skip records if the consumer group is gone, and table `{}` has records \
             of this connector already: take the key away. Where the group stands counts, and \
             without a group the records that the tables hold are skipped",
            table.name
        ),
    ))
}

/// Checks that the topics of a table with changes have the partitions that they had, as far as the connector
/// was told. What is wrong with the table's state is for the tasks to say.
fn check_partitions(
    keys: Keys<'_>,
    config: &SinkConfig,
    table: &TableConfig,
    loaded: &LoadedTable,
) -> Option<ConfigProblem> {
    let changes = table.changes.as_ref();
    changes.filter(|changes| changes.once_within.is_none())?;
    let told = keys.settings.get("frazil.internal.topic-partitions")?;
    let state = stored_state_of(&loaded.metadata, &config.wid, &table.branch).ok()??;
    let accepted = config.control.partitions_accepted;
    let error = told.split(',').find_map(|topic| {
        let (topic, count) = topic.trim().rsplit_once('=')?;
        let count = count.parse().ok()?;
        partitions::check(&state, (topic, None), count, accepted).err()
    })?;
    let error = error.with("table", &table.name);
    Some(ConfigProblem::error(
        "frazil.partitions.accept",
        error.report(),
    ))
}

/// Compares what the configuration says of the table's layout with the table, each key for itself.
fn check_layout(
    keys: Keys<'_>,
    table: &TableConfig,
    metadata: &TableMetadata,
    problems: &mut Vec<ConfigProblem>,
) {
    let schema = metadata.current_schema();
    let checks = [
        (identifier::check(schema, table), "id-columns"),
        (check_changed(metadata, table), "id-columns"),
        (sort::check(schema, table), "sort-by"),
        (spec::check(metadata, table), "partition-by"),
    ];
    for (checked, own) in checks {
        if let Err(error) = checked {
            let meant = meant(schema, &error);
            let error = error.with("table", &table.name);
            let own = match error.code() {
                "CHANGE_MODE_UNSUPPORTED" => "mode",
                "DELETE_MODE_UNFIT" => "delete-mode",
                "CHANGE_ORDER_UNSUPPORTED" | "ORDER_COLUMN_MISSING" => "order-columns",
                _ => own,
            };
            let key = match error.code() {
                "ENGINE_READS_NO_DELETES" => keys.engines_of(&table.name),
                _ => keys.of_table(&table.name, own),
            };
            problems.push(ConfigProblem::error(key, error.report() + &meant));
        }
    }
}

/// Checks what the id columns do not say by themselves.
fn check_changed(metadata: &TableMetadata, table: &TableConfig) -> Result<()> {
    match identifier::check(metadata.current_schema(), table) {
        Ok(()) => changed::check(metadata, table),
        // It is said of the id columns.
        Err(_) => Ok(()),
    }
}

/// Suggests the column whose name is nearest to the one that an error misses.
fn meant(schema: &Schema, error: &SinkError) -> String {
    let named = error.context().iter().find(|(name, _)| *name == "column");
    let columns = schema.as_struct().fields();
    let names = columns.iter().map(|field| field.name.as_str());
    match named.and_then(|(_, column)| nearest(column, names, EDITS_MAX)) {
        Some(meant) if error.code().ends_with("_COLUMN_MISSING") => {
            format!("; did you mean `{meant}`?")
        }
        _ => String::new(),
    }
}
