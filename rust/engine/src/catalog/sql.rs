//! A catalog in an SQLite file, in the table layout of Iceberg's JDBC catalog (`V1`), which
//! Iceberg Java, pyiceberg and others share.
//!
//! A commit writes the new metadata file and then swaps one row's `metadata_location`, if it still
//! is what was loaded. Whether the swap's COMMIT succeeded is checked: a lost batch was reported
//! as written in a client that did not.

mod database;
mod names;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use frazil_core::{ErrorKind, Result, SinkError};
use iceberg::spec::{TableMetadata, TableMetadataBuilder};
use iceberg::{MetadataLocation, NamespaceIdent, TableCreation, TableIdent};

use super::{
    Catalog, CommitOutcome, CreateTable, LoadedTable, TableCommit, iceberg_error, metadata,
    namespace_not_found, required, table_exists, table_not_found,
};
use crate::storage::{StoreCache, TableStorage};
use database::{Database, Swap};
use names::{directory_name, namespace_column, next_metadata_location, sqlite_path};

/// The first bytes of a compressed metadata file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// See the module.
pub struct SqlCatalog {
    name: String,
    database: Database,
    warehouse: Option<String>,
    properties: BTreeMap<String, String>,
    stores: StoreCache,
}

/// The properties hold secrets.
impl fmt::Debug for SqlCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlCatalog")
            .field("name", &self.name)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl SqlCatalog {
    /// Opens the catalog named `name`; the file and its tables are made at the first use.
    ///
    /// Properties: `uri` (`sqlite:/path` or `jdbc:sqlite:/path`), `warehouse` (where new tables
    /// go), and those of the storage.
    pub fn new(name: &str, properties: &BTreeMap<String, String>) -> Result<SqlCatalog> {
        let path = sqlite_path(required(properties, "uri")?)?;
        let warehouse = properties
            .get("warehouse")
            .map(|warehouse| warehouse.trim_end_matches('/').to_string());
        Ok(SqlCatalog {
            name: name.to_string(),
            database: Database::new(path),
            warehouse,
            properties: properties.clone(),
            stores: StoreCache::default(),
        })
    }

    /// Runs a blocking database operation where it may block.
    async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Database) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let database = self.database.clone();
        tokio::task::spawn_blocking(move || operation(&database))
            .await
            .map_err(|error| SinkError::internal("a catalog operation panicked").caused_by(error))?
    }

    fn storage(&self, location: &str) -> Result<TableStorage> {
        TableStorage::open_shared(location, &self.properties, None, &self.stores)
    }

    async fn current_location(&self, ident: &TableIdent) -> Result<Option<String>> {
        let key = self.key(ident)?;
        self.run(move |database| database.metadata_location(&key))
            .await
    }

    /// The row's key: catalog, namespace, table.
    fn key(&self, ident: &TableIdent) -> Result<[String; 3]> {
        Ok([
            self.name.clone(),
            namespace_column(&ident.namespace)?,
            ident.name.clone(),
        ])
    }

    async fn read(&self, ident: &TableIdent, location: String) -> Result<LoadedTable> {
        let storage = self.storage(&location)?;
        let bytes = storage.get(&location).await?;
        let metadata = if bytes.starts_with(&GZIP) {
            TableMetadata::read_from(&storage.file_io(), &location)
                .await
                .map_err(|error| {
                    iceberg_error(
                        "TABLE_METADATA_INVALID",
                        "the table's metadata cannot be read",
                        &error,
                    )
                })?
        } else {
            metadata::parse(&bytes).map_err(|error| error.with("table", ident))?
        };
        Ok(LoadedTable {
            ident: ident.clone(),
            storage: self.storage(metadata.location())?,
            metadata: Arc::new(metadata),
            metadata_location: Some(location),
        })
    }

    fn default_location(&self, ident: &TableIdent) -> Result<String> {
        let warehouse = self.warehouse.as_deref().ok_or_else(|| {
            SinkError::config(
                "CATALOG_PROPERTY_MISSING",
                "`iceberg.catalog.warehouse` is missing: set it to where new tables shall go",
            )
        })?;
        let mut location = warehouse.to_string();
        for part in ident.namespace.iter().chain([&ident.name]) {
            location.push('/');
            location.push_str(&directory_name(part));
        }
        Ok(location)
    }

    /// Checks and applies a commit to `current` and writes the metadata that results.
    async fn prepare(
        &self,
        current: &LoadedTable,
        commit: TableCommit,
    ) -> Result<LoadedTable, CommitOutcome> {
        for requirement in &commit.requirements {
            requirement
                .check(Some(&current.metadata))
                .map_err(|error| {
                    CommitOutcome::Conflict(
                        SinkError::retriable("COMMIT_CONFLICT", "the table has changed meanwhile")
                            .with("table", &current.ident)
                            .with("reason", crate::redact::foreign(error.message())),
                    )
                })?;
        }
        let refused = |error: &iceberg::Error| {
            CommitOutcome::Refused(
                iceberg_error("COMMIT_REFUSED", "the change does not fit the table", error)
                    .with("table", &current.ident),
            )
        };
        let mut builder =
            TableMetadata::clone(&current.metadata).into_builder(current.metadata_location.clone());
        for update in commit.updates {
            builder = update.apply(builder).map_err(|error| refused(&error))?;
        }
        let metadata = builder.build().map_err(|error| refused(&error))?.metadata;
        let storage = self
            .storage(metadata.location())
            .map_err(CommitOutcome::Refused)?;
        let location = next_metadata_location(&metadata, current.metadata_location.as_deref());
        // Nothing names the file yet: whatever happened to it, nothing was applied.
        write_metadata(&storage, &metadata, &location)
            .await
            .map_err(not_applied)?;
        Ok(LoadedTable {
            ident: current.ident.clone(),
            metadata: Arc::new(metadata),
            metadata_location: Some(location),
            storage,
        })
    }

    /// Loads a table to write its metadata anew.
    async fn load_to_rewrite(&self, ident: &TableIdent) -> Result<LoadedTable> {
        let table = self.load_table(ident).await?;
        if let Some(location) = &table.metadata_location {
            let json = table.storage.get(location).await?;
            // Compressed metadata is the work of few writers, none of which adds fields.
            if !json.starts_with(&GZIP) {
                metadata::require_kept(&json).map_err(|error| error.with("table", ident))?;
            }
        }
        Ok(table)
    }

    async fn try_commit(
        &self,
        ident: &TableIdent,
        commit: TableCommit,
    ) -> Result<LoadedTable, CommitOutcome> {
        // Until the swap, an error means that nothing was applied.
        let current = self.load_to_rewrite(ident).await.map_err(not_applied)?;
        let next = self.prepare(&current, commit).await?;
        let key = self.key(ident).map_err(CommitOutcome::Refused)?;
        let (old, new) = (current.metadata_location, next.metadata_location.clone());
        let swap = self
            .run(move |database| {
                Ok(database.swap(
                    &key,
                    old.as_deref().unwrap_or(""),
                    new.as_deref().unwrap_or(""),
                ))
            })
            .await
            .map_err(CommitOutcome::Unknown)?;
        match swap {
            Swap::Done => Ok(next),
            Swap::Lost => Err(CommitOutcome::Conflict(
                SinkError::retriable("COMMIT_CONFLICT", "another writer has committed meanwhile")
                    .with("table", ident),
            )),
            Swap::NotDone(error) => Err(not_applied(error.with("table", ident))),
            Swap::Unknown(error) => Err(CommitOutcome::Unknown(error.with("table", ident))),
        }
    }
}

#[async_trait]
impl Catalog for SqlCatalog {
    async fn load_table(&self, ident: &TableIdent) -> Result<LoadedTable> {
        match self.current_location(ident).await? {
            Some(location) => self.read(ident, location).await,
            None => Err(table_not_found(ident)),
        }
    }

    async fn create_table(&self, ident: &TableIdent, table: CreateTable) -> Result<LoadedTable> {
        let key = self.key(ident)?;
        if !self.namespace_exists(&ident.namespace).await? {
            return Err(namespace_not_found(&ident.namespace));
        }
        if self.current_location(ident).await?.is_some() {
            return Err(table_exists(ident));
        }
        let (format_version, properties) = table.version_and_properties()?;
        let location = match table.location {
            Some(location) => location.trim_end_matches('/').to_string(),
            None => self.default_location(ident)?,
        };
        let storage = self.storage(&location)?;
        let creation = TableCreation {
            name: ident.name.clone(),
            location: Some(location),
            schema: table.schema,
            partition_spec: table.partition_spec,
            sort_order: table.sort_order,
            properties: properties.into_iter().collect(),
            format_version,
        };
        let metadata = TableMetadataBuilder::from_table_creation(creation)
            .and_then(TableMetadataBuilder::build)
            .map_err(|error| {
                iceberg_error(
                    "TABLE_CREATE_REFUSED",
                    "no table can be made of this",
                    &error,
                )
                .with("table", ident)
            })?
            .metadata;
        let metadata_location = next_metadata_location(&metadata, None);
        write_metadata(&storage, &metadata, &metadata_location).await?;
        let inserted = metadata_location.clone();
        if !self
            .run(move |database| database.insert(&key, &inserted))
            .await?
        {
            return Err(table_exists(ident));
        }
        Ok(LoadedTable {
            ident: ident.clone(),
            metadata: Arc::new(metadata),
            metadata_location: Some(metadata_location),
            storage,
        })
    }

    async fn create_namespace(&self, namespace: &NamespaceIdent) -> Result<()> {
        let (catalog, namespace) = (self.name.clone(), namespace_column(namespace)?);
        self.run(move |database| database.create_namespace(&catalog, &namespace))
            .await
    }

    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> Result<bool> {
        let (catalog, namespace) = (self.name.clone(), namespace_column(namespace)?);
        self.run(move |database| database.namespace_exists(&catalog, &namespace))
            .await
    }

    async fn list_tables(&self, below: &[String]) -> Result<Vec<TableIdent>> {
        let catalog = self.name.clone();
        let rows = self.run(move |database| database.tables(&catalog)).await?;
        let tables = rows.into_iter().filter_map(|(namespace, name)| {
            let levels: Vec<String> = namespace.split('.').map(str::to_owned).collect();
            let is_below = levels.starts_with(below);
            let namespace = NamespaceIdent::from_vec(levels).ok()?;
            is_below.then(|| TableIdent::new(namespace, name))
        });
        Ok(tables.collect())
    }

    async fn commit(&self, base: &LoadedTable, commit: TableCommit) -> CommitOutcome {
        match self.try_commit(&base.ident, commit).await {
            Ok(table) => CommitOutcome::Committed(table),
            Err(outcome) => outcome,
        }
    }

    async fn drop_table(&self, ident: &TableIdent) -> Result<()> {
        let key = self.key(ident)?;
        if self.run(move |database| database.delete(&key)).await? {
            Ok(())
        } else {
            Err(table_not_found(ident))
        }
    }

    async fn check(&self) -> Result<()> {
        if let Some(warehouse) = &self.warehouse {
            self.storage(warehouse)?;
        }
        self.run(|database| database.check()).await
    }
}

/// Nothing was applied: what may pass is tried again, as after a lost race; anything else is told at
/// once.
fn not_applied(error: SinkError) -> CommitOutcome {
    match error.kind() {
        ErrorKind::Retriable => CommitOutcome::Conflict(error),
        _ => CommitOutcome::Refused(error),
    }
}

async fn write_metadata(
    storage: &TableStorage,
    metadata: &TableMetadata,
    location: &str,
) -> Result<()> {
    let failed = |error: &iceberg::Error| {
        iceberg_error(
            "TABLE_METADATA_INVALID",
            "the table's metadata cannot be written",
            error,
        )
    };
    if location.ends_with(".gz.metadata.json") {
        let location: MetadataLocation = location.parse().map_err(|error| failed(&error))?;
        return metadata
            .write_to(&storage.file_io(), &location)
            .await
            .map_err(|error| failed(&error));
    }
    let json = serde_json::to_vec(metadata).map_err(|error| {
        SinkError::internal("table metadata cannot be serialised").caused_by(error)
    })?;
    storage.put(location, json.into()).await
}

#[cfg(test)]
mod tests;
