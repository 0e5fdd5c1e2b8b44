//! The checks of `validate` that ask the catalog and the storage, all within a time limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use frazil_core::commit::plan::check_table;
use frazil_core::commit::recover::stored_state_of;
use frazil_core::config::{ConfigProblem, SinkConfig, TableConfig, nearest};
use frazil_core::{Result, SinkError};
use futures::StreamExt;
use iceberg::spec::{NestedFieldRef, PrimitiveType, Schema, Type};

use super::keys::{Keys, OFFSET_RESET};
use crate::catalog::{self, Catalog, LoadedTable};
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
    asked.unwrap_or_else(|error| vec![keys.problem(&error)])
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
            return creatable
                .err()
                .iter()
                .map(|error| keys.problem(error))
                .collect();
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
    check_columns(keys, table, loaded.metadata.current_schema(), &mut problems);
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

/// Compares the columns that the configuration names with those of the table. A key of this table
/// that names others is an error; one for all tables may be meant for those to be created.
fn check_columns(
    keys: Keys<'_>,
    table: &TableConfig,
    schema: &Schema,
    problems: &mut Vec<ConfigProblem>,
) {
    let ids = keys.of_table(
        &table.name,
        "id-columns",
        "iceberg.tables.default-id-columns",
    );
    for column in &table.id_columns {
        let fault = match field(table, schema, column) {
            None => Some(missing(table, schema, column)),
            Some(field) if !identifies(&field.field_type) => Some(format!(
                "column `{column}` of table `{}` cannot identify rows: it is a {}",
                table.name, field.field_type
            )),
            Some(_) => None,
        };
        problems.extend(fault.map(|fault| problem(&ids, fault)));
    }
    let parts = keys.of_table(
        &table.name,
        "partition-by",
        "iceberg.tables.default-partition-by",
    );
    for term in &table.partition_by {
        if field(table, schema, &term.column).is_none() && !table.evolve {
            problems.push(problem(&parts, missing(table, schema, &term.column)));
        }
    }
}

fn problem((key, own): &(String, bool), message: String) -> ConfigProblem {
    match own {
        true => ConfigProblem::error(key, message),
        false => ConfigProblem::warning(key, message),
    }
}

fn field<'a>(table: &TableConfig, schema: &'a Schema, column: &str) -> Option<&'a NestedFieldRef> {
    match table.case_insensitive {
        true => schema.field_by_name_case_insensitive(column),
        false => schema.field_by_name(column),
    }
}

fn missing(table: &TableConfig, schema: &Schema, column: &str) -> String {
    let mut message = format!("table `{}` has no column `{column}`", table.name);
    let columns = schema.as_struct().fields();
    let names = columns.iter().map(|field| field.name.as_str());
    if let Some(meant) = nearest(column, names, EDITS_MAX) {
        message.push_str(&format!("; did you mean `{meant}`?"));
    }
    message
}

fn identifies(column: &Type) -> bool {
    match column {
        Type::Primitive(kind) => !matches!(kind, PrimitiveType::Float | PrimitiveType::Double),
        _ => false,
    }
}
