//! Makes tables and adds columns, also while other tasks do the same.

use std::time::Duration;

use frazil_core::commit::plan;
use frazil_core::error::ErrorKind;
use frazil_core::{Result, SinkError};
use iceberg::spec::{Schema, TableMetadata};
use iceberg::{NamespaceIdent, TableIdent};

use super::change::race;
use super::wait::pause;
use crate::catalog::{Catalog, CreateTable, LoadedTable};

/// Failed attempts to make a table.
const CREATE_ATTEMPTS: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Loads the table, or makes it from `table` with the namespaces it needs. When another task makes
/// it first, that one is loaded.
pub async fn load_or_create(
    catalog: &dyn Catalog,
    ident: &TableIdent,
    table: impl Fn() -> Result<CreateTable>,
) -> Result<LoadedTable> {
    let mut attempt = 1;
    loop {
        let error = match load_or_create_once(catalog, ident, &table).await {
            Ok(loaded) => return Ok(loaded),
            Err(error) => error,
        };
        if attempt == CREATE_ATTEMPTS || error.kind() != ErrorKind::Retriable {
            return Err(error);
        }
        tokio::time::sleep(pause(attempt, PAUSE_MIN, PAUSE_MAX)).await;
        attempt += 1;
    }
}

async fn load_or_create_once(
    catalog: &dyn Catalog,
    ident: &TableIdent,
    table: &impl Fn() -> Result<CreateTable>,
) -> Result<LoadedTable> {
    match catalog.load_table(ident).await {
        Err(error) if error.code() == "TABLE_NOT_FOUND" => {}
        loaded => return loaded,
    }
    let wanted = table()?;
    let made = match catalog.create_table(ident, wanted.clone()).await {
        Err(error) if error.code() == "NAMESPACE_NOT_FOUND" => {
            create_namespaces(catalog, ident.namespace()).await?;
            catalog.create_table(ident, wanted).await
        }
        made => made,
    };
    match made {
        Err(error) if error.code() == "TABLE_EXISTS" => catalog.load_table(ident).await,
        made => made,
    }
}

/// Makes the namespace and those above it that are not there.
async fn create_namespaces(catalog: &dyn Catalog, namespace: &NamespaceIdent) -> Result<()> {
    for depth in 1..=namespace.len() {
        let level = NamespaceIdent::from_strs(namespace.iter().take(depth)).map_err(|error| {
            SinkError::config(
                "NAMESPACE_INVALID",
                "the table's namespace is empty; give the table a name with a namespace",
            )
            .caused_by(error)
        })?;
        if !catalog.namespace_exists(&level).await? {
            catalog.create_namespace(&level).await?;
        }
    }
    Ok(())
}

/// Changes the table's schema to what `wanted` returns for its metadata, until it returns `None`, as
/// [`change_table`](super::change_table) does.
pub async fn evolve_schema(
    catalog: &dyn Catalog,
    ident: &TableIdent,
    mut wanted: impl FnMut(&TableMetadata) -> Result<Option<Schema>>,
) -> Result<LoadedTable> {
    let plan = |metadata: &TableMetadata| {
        let schema = wanted(metadata)?;
        Ok(schema.map(|schema| plan::add_columns(metadata, schema)))
    };
    let lost = || {
        SinkError::retriable(
            "SCHEMA_CONFLICTS",
            "other writers won every race to change the table's schema; try again",
        )
    };
    race(catalog, ident, plan, lost).await
}
