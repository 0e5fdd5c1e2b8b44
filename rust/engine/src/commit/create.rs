//! Makes tables and adds columns, also while other tasks do the same.

use std::time::Duration;

use frazil_core::commit::outcome::has_moved;
use frazil_core::commit::plan;
use frazil_core::error::ErrorKind;
use frazil_core::{Result, SinkError};
use iceberg::spec::{Schema, TableMetadata};
use iceberg::{NamespaceIdent, TableIdent};
use uuid::Uuid;

use super::wait::pause;
use crate::catalog::{Catalog, CommitOutcome, CreateTable, LoadedTable, TableCommit};

/// Failed attempts to make a table.
const CREATE_ATTEMPTS: u32 = 3;
/// Attempts to add columns that other writers may win.
const EVOLVE_ATTEMPTS: u32 = 20;
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

/// Changes the table's schema to what `wanted` returns for its metadata, until it returns `None`:
/// then the table is as it should be and is returned. `wanted` is asked again after every lost
/// race and every unclear answer, so it has to look at the metadata it gets.
pub async fn evolve_schema(
    catalog: &dyn Catalog,
    ident: &TableIdent,
    mut wanted: impl FnMut(&TableMetadata) -> Result<Option<Schema>>,
) -> Result<LoadedTable> {
    let mut refused: Option<(LoadedTable, SinkError)> = None;
    for attempt in 1..=EVOLVE_ATTEMPTS {
        let loaded = catalog.load_table(ident).await?;
        plan::check_table(&loaded.metadata)?;
        let Some(schema) = wanted(&loaded.metadata)? else {
            return Ok(loaded);
        };
        if let Some((base, error)) = refused.take()
            && !has_moved(&base.metadata, &loaded.metadata)
        {
            return Err(error);
        }
        let plan = plan::add_columns(&loaded.metadata, schema);
        let commit = TableCommit {
            requirements: plan.requirements,
            updates: plan.updates,
            idempotency_key: Uuid::now_v7(),
        };
        match catalog.commit(&loaded, commit).await {
            CommitOutcome::Committed(loaded) => return Ok(loaded),
            CommitOutcome::Refused(error) => refused = Some((loaded, error)),
            CommitOutcome::Unauthorized(error) => return Err(error),
            CommitOutcome::Conflict(error) | CommitOutcome::Unknown(error) => {
                tracing::info!(table = %ident, code = error.code(), "columns are added anew");
                tokio::time::sleep(pause(attempt, PAUSE_MIN, PAUSE_MAX)).await;
            }
        }
    }
    Err(SinkError::retriable(
        "SCHEMA_CONFLICTS",
        "other writers won every race to change the table's schema; try again",
    )
    .with("table", ident)
    .with("attempts", EVOLVE_ATTEMPTS))
}
