//! Where tables are found, made and committed to: one trait over all catalogs.
//!
//! A commit is submitted once. Its outcome says what is known about it, and the caller decides:
//! nothing here repeats a commit, rebases one, or takes silence for failure.

mod metadata;
pub mod rest;
pub mod sql;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use frazil_core::config::{CatalogConfig, CatalogKind};
use frazil_core::{Result, SinkError};
use iceberg::spec::{FormatVersion, Schema, SortOrder, TableMetadata, UnboundPartitionSpec};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use uuid::Uuid;

use crate::storage::{self, TableStorage};

/// A table as one load, creation or commit found it.
#[derive(Debug, Clone)]
pub struct LoadedTable {
    /// The name by which it was loaded.
    pub ident: TableIdent,
    /// The metadata of that moment.
    pub metadata: Arc<TableMetadata>,
    /// Where that metadata is written, if the catalog tells.
    pub metadata_location: Option<String>,
    /// The table's files.
    pub storage: TableStorage,
}

/// A table to be made.
#[derive(Debug, Clone)]
pub struct CreateTable {
    /// The columns; the catalog assigns the field ids.
    pub schema: Schema,
    /// The partitioning, by column ids of `schema`; none for an unpartitioned table.
    pub partition_spec: Option<UnboundPartitionSpec>,
    /// The order of rows within files, by column ids of `schema`.
    pub sort_order: Option<SortOrder>,
    /// Where the table goes; the catalog chooses if this is `None`.
    pub location: Option<String>,
    /// Table properties. `format-version` among them wins over the field below.
    pub properties: BTreeMap<String, String>,
    /// The format version.
    pub format_version: FormatVersion,
}

impl CreateTable {
    /// Takes the format version out of the properties, where users of other catalogs put it.
    fn version_and_properties(&self) -> Result<(FormatVersion, BTreeMap<String, String>)> {
        let mut properties = self.properties.clone();
        let version = match properties.remove("format-version").as_deref() {
            None => self.format_version,
            Some("2") => FormatVersion::V2,
            Some("3") => FormatVersion::V3,
            Some(_) => {
                return Err(SinkError::config(
                    "TABLE_FORMAT_UNSUPPORTED",
                    "the table property `format-version` must be 2 or 3",
                ));
            }
        };
        Ok((version, properties))
    }
}

/// A change of one table that is applied as a whole or not at all.
#[derive(Debug, Clone)]
pub struct TableCommit {
    /// What must hold of the table when the change is applied.
    pub requirements: Vec<TableRequirement>,
    /// The change.
    pub updates: Vec<TableUpdate>,
    /// Sent where the server promises to apply one key once.
    pub idempotency_key: Uuid,
}

/// What is known after a commit was submitted.
#[derive(Debug)]
pub enum CommitOutcome {
    /// Applied; the table as it is now.
    Committed(LoadedTable),
    /// Not applied, for the table is not what the requirements say, or the catalog is busy:
    /// load it and decide again.
    Conflict(SinkError),
    /// Not applied: the catalog takes no such commit (400, 404, 422).
    Refused(SinkError),
    /// Not applied: the catalog does not let us in, also with a new token.
    Unauthorized(SinkError),
    /// Applied or not: only the table itself can tell.
    Unknown(SinkError),
}

/// A catalog of Iceberg tables.
#[async_trait]
pub trait Catalog: Send + Sync + Debug {
    /// Loads a table; code `TABLE_NOT_FOUND` if there is none.
    async fn load_table(&self, ident: &TableIdent) -> Result<LoadedTable>;

    /// Makes a table; code `TABLE_EXISTS` if there is one, `NAMESPACE_NOT_FOUND` if its namespace
    /// is not there.
    async fn create_table(&self, ident: &TableIdent, table: CreateTable) -> Result<LoadedTable>;

    /// Makes a namespace; one that is there already is no error.
    async fn create_namespace(&self, namespace: &NamespaceIdent) -> Result<()>;

    /// Returns whether a namespace is there.
    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> Result<bool>;

    /// Returns the tables of the namespace with these levels and of all namespaces below it; of the
    /// whole catalog without levels. A namespace that is not there has none.
    async fn list_tables(&self, below: &[String]) -> Result<Vec<TableIdent>>;

    /// Submits a change of the table `base` once.
    async fn commit(&self, base: &LoadedTable, commit: TableCommit) -> CommitOutcome;

    /// Takes a table out of the catalog; its files stay.
    async fn drop_table(&self, ident: &TableIdent) -> Result<()>;

    /// Checks address, credentials and schema of the catalog without changing anything.
    async fn check(&self) -> Result<()>;
}

/// Opens the catalog that the connector is configured with.
pub fn open(config: &CatalogConfig) -> Result<Arc<dyn Catalog>> {
    match config.kind {
        CatalogKind::Rest => open_rest(&config.properties),
        CatalogKind::Sql => open_sql(&config.name, &config.properties),
    }
}

/// Opens the REST catalog that `properties` describe (`uri`, `warehouse`, `credential`, …).
pub fn open_rest(properties: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    Ok(Arc::new(rest::RestCatalog::new(properties)?))
}

/// Opens the SQL catalog that `properties` describe (`uri`, `warehouse`).
pub fn open_sql(name: &str, properties: &BTreeMap<String, String>) -> Result<Arc<dyn Catalog>> {
    Ok(Arc::new(sql::SqlCatalog::new(name, properties)?))
}

/// Returns the value of a property, or an error that names its key as the user wrote it.
fn required<'a>(properties: &'a BTreeMap<String, String>, key: &str) -> Result<&'a str> {
    match properties.get(key) {
        Some(value) if !value.trim().is_empty() => Ok(value.trim()),
        _ => Err(SinkError::config(
            "CATALOG_PROPERTY_MISSING",
            format!("`iceberg.catalog.{key}` is missing: set it"),
        )),
    }
}

fn table_not_found(ident: &TableIdent) -> SinkError {
    SinkError::config(
        "TABLE_NOT_FOUND",
        "the table does not exist: create it, or set `iceberg.tables.auto-create-enabled=true`",
    )
    .with("table", ident)
}

fn table_exists(ident: &TableIdent) -> SinkError {
    SinkError::retriable("TABLE_EXISTS", "the table exists already").with("table", ident)
}

fn namespace_not_found(namespace: &NamespaceIdent) -> SinkError {
    SinkError::config(
        "NAMESPACE_NOT_FOUND",
        "the namespace does not exist: create it",
    )
    .with("namespace", namespace)
}

/// Turns an error of the crate `iceberg` into ours; one of ours inside it comes out as it went in.
fn iceberg_error(code: &'static str, message: &str, error: &iceberg::Error) -> SinkError {
    match storage::find_sink_error(error) {
        Some(ours) => storage::copy_error(ours),
        None => SinkError::fatal(code, message)
            .with("reason", crate::redact::foreign(&error.to_string())),
    }
}
