//! A catalog behind Iceberg's REST protocol.
//!
//! Reading requests are repeated after transient failures. A commit is sent once, and what is not
//! known about it is said to be unknown.

mod answers;
mod auth;
mod config;
mod credentials;
mod http;
mod listing;
mod paths;
mod renew;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use frazil_core::{Result, SinkError};
use iceberg::{NamespaceIdent, TableIdent, TableRequirement, TableUpdate};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::{
    Catalog, CommitOutcome, CreateTable, LoadedTable, TableCommit, metadata, namespace_not_found,
    table_exists, table_not_found,
};
use crate::failpoint;
use crate::storage::{CredentialScope, CredentialSource, StoreCache, TableStorage};
use answers::TableAnswer;
use credentials::TableCredentials;
use session::Session;

/// The property of a table that says where its keys are renewed.
const CREDENTIALS_ROUTE: &str = "client.refresh-credentials-endpoint";

/// Tables whose open storages are kept; more are opened anew at each load.
const TABLES_MAX: usize = 4_096;

/// See the module.
pub struct RestCatalog {
    session: Arc<Session>,
    tables: Mutex<HashMap<TableIdent, OpenTable>>,
    stores: StoreCache,
}

/// A table's storage, kept from load to load so that clients and keys are.
struct OpenTable {
    found: FoundTable,
    credentials: Option<Arc<TableCredentials>>,
    storage: TableStorage,
}

/// What a load says about a table's storage, but for the keys.
#[derive(PartialEq, Eq)]
struct FoundTable {
    uuid: Uuid,
    location: String,
    credentials_route: Option<String>,
    properties: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct CommitRequest<'a> {
    identifier: &'a TableIdent,
    requirements: &'a [TableRequirement],
    updates: &'a [TableUpdate],
}

impl fmt::Debug for RestCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RestCatalog").field(&self.session).finish()
    }
}

impl RestCatalog {
    /// Makes a client; nothing is asked of the catalog before it is needed.
    ///
    /// Properties: `uri`, `warehouse`, `prefix`, `token`, `credential`, `oauth2-server-uri`,
    /// `scope`, `audience`, `resource`, `rest.auth.type`, `header.*`, `tls.ca-file`,
    /// `rest.client.connection-timeout-ms`, `rest.client.socket-timeout-ms`, and those of the
    /// storage. Where the storage's keys are not among them, the catalog is asked to vend some.
    pub fn new(properties: &BTreeMap<String, String>) -> Result<RestCatalog> {
        Ok(RestCatalog {
            session: Arc::new(Session::new(properties)?),
            tables: Mutex::default(),
            stores: StoreCache::default(),
        })
    }

    async fn loaded(&self, ident: &TableIdent, answer: &http::Answer) -> Result<LoadedTable> {
        let answer: TableAnswer = answer.parse("table")?;
        let metadata =
            metadata::parse_value(&answer.metadata).map_err(|error| error.with("table", ident))?;
        let config = self.session.config().await?;
        let table_config = answer.config.unwrap_or_default();
        let scopes = if self.session.wants_keys {
            credentials::scopes(
                &table_config,
                answer.storage_credentials.unwrap_or_default(),
            )
        } else {
            Vec::new()
        };
        let is_vended = !scopes.is_empty();
        let found = FoundTable {
            uuid: metadata.uuid(),
            location: metadata.location().to_string(),
            credentials_route: table_config.get(CREDENTIALS_ROUTE).cloned(),
            properties: config::storage_properties(
                config,
                &table_config,
                &self.session.user,
                is_vended,
            ),
        };
        let storage = self
            .storage(ident, found, scopes)
            .map_err(|error| error.with("table", ident))?;
        Ok(LoadedTable {
            ident: ident.clone(),
            metadata: Arc::new(metadata),
            metadata_location: answer.metadata_location,
            storage,
        })
    }

    /// Returns the storage of a table, with the keys of this load.
    fn storage(
        &self,
        ident: &TableIdent,
        found: FoundTable,
        scopes: Vec<CredentialScope>,
    ) -> Result<TableStorage> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = tables.get(ident)
            && open.found == found
            && open.credentials.is_some() != scopes.is_empty()
        {
            if let Some(credentials) = &open.credentials {
                credentials.set(scopes);
            }
            return Ok(open.storage.clone());
        }
        let credentials = (!scopes.is_empty()).then(|| {
            let route = found.credentials_route.clone();
            TableCredentials::new(self.session.clone(), ident.clone(), route, scopes)
        });
        let source = credentials
            .clone()
            .map(|credentials| credentials as Arc<dyn CredentialSource>);
        let (location, properties) = (&found.location, &found.properties);
        let storage = TableStorage::open_shared(location, properties, source, &self.stores)?;
        if tables.len() < TABLES_MAX || tables.contains_key(ident) {
            tables.insert(
                ident.clone(),
                OpenTable {
                    found,
                    credentials,
                    storage: storage.clone(),
                },
            );
        }
        Ok(storage)
    }

    async fn try_commit(
        &self,
        base: &LoadedTable,
        commit: &TableCommit,
    ) -> Result<http::Answer, SinkError> {
        let url = self.session.table_url(&base.ident).await?;
        let takes_keys = self.session.config().await?.takes_idempotency_keys;
        let request = CommitRequest {
            identifier: &base.ident,
            requirements: &commit.requirements,
            updates: &commit.updates,
        };
        let key = takes_keys.then_some(commit.idempotency_key);
        self.session.post(url, &request, false, key).await
    }
}

/// Whether an answer to a load or creation says that the namespace is not there.
fn is_missing_namespace(error: &SinkError) -> bool {
    error.code() == "NAMESPACE_NOT_FOUND"
}

#[async_trait]
impl Catalog for RestCatalog {
    async fn load_table(&self, ident: &TableIdent) -> Result<LoadedTable> {
        let mut url = self.session.table_url(ident).await?;
        url.query_pairs_mut().append_pair("snapshots", "all");
        let answer = self.session.get(url, true).await?;
        match answer.status {
            200..=299 => self.loaded(ident, &answer).await,
            404 => Err(table_not_found(ident)),
            _ => Err(answers::error(&answer).with("table", ident)),
        }
    }

    async fn create_table(&self, ident: &TableIdent, table: CreateTable) -> Result<LoadedTable> {
        let config = self.session.config().await?;
        let path = paths::tables(
            config.prefix.as_deref(),
            &config.separator,
            &ident.namespace,
        )?;
        let url = paths::append(&config.base, &path)?;
        let (version, mut properties) = table.version_and_properties()?;
        // Catalogs take the version from the property alone.
        properties.insert("format-version".into(), (version as u8).to_string());
        let mut body = json!({
            "name": ident.name,
            "schema": table.schema,
            "stage-create": false,
            "properties": properties,
        });
        if let Some(location) = &table.location {
            body["location"] = json!(location);
        }
        if let Some(spec) = table.partition_spec {
            body["partition-spec"] = json!(spec.with_spec_id(0));
        }
        if let Some(order) = &table.sort_order {
            body["write-order"] = json!(order);
        }
        let answer = self.session.post(url, &body, true, None).await?;
        match answer.status {
            200..=299 => self.loaded(ident, &answer).await,
            409 => Err(table_exists(ident)),
            _ => {
                let error = answers::error(&answer);
                if is_missing_namespace(&error) || answer.status == 404 {
                    return Err(namespace_not_found(&ident.namespace));
                }
                Err(error.with("table", ident))
            }
        }
    }

    async fn create_namespace(&self, namespace: &NamespaceIdent) -> Result<()> {
        let config = self.session.config().await?;
        let url = paths::append(&config.base, &paths::namespaces(config.prefix.as_deref())?)?;
        let body = json!({"namespace": namespace, "properties": {}});
        let answer = self.session.post(url, &body, false, None).await?;
        match answer.status {
            200..=299 | 409 => Ok(()),
            _ => Err(answers::error(&answer).with("namespace", namespace)),
        }
    }

    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> Result<bool> {
        let config = self.session.config().await?;
        let path = paths::namespace(config.prefix.as_deref(), &config.separator, namespace)?;
        let answer = self
            .session
            .get(paths::append(&config.base, &path)?, false)
            .await?;
        match answer.status {
            200..=299 => Ok(true),
            404 => Ok(false),
            _ => Err(answers::error(&answer).with("namespace", namespace)),
        }
    }

    async fn list_tables(&self, below: &[String]) -> Result<Vec<TableIdent>> {
        listing::tables(&self.session, below).await
    }

    async fn commit(&self, base: &LoadedTable, commit: TableCommit) -> CommitOutcome {
        let ident = &base.ident;
        let answered = match failpoint::pass("catalog.before-commit") {
            Ok(()) => self.try_commit(base, &commit).await,
            Err(error) => Err(error),
        };
        let known = answered.and_then(|answer| {
            failpoint::pass("catalog.after-commit")?;
            Ok(answer)
        });
        match known {
            Ok(answer) if answer.is_success() => committed(base, &answer),
            Ok(answer) => answers::commit_outcome(ident, &answer),
            // Wrong credentials and wrong names were found before the commit was sent.
            Err(error) if error.code() == "CATALOG_UNAUTHORIZED" => {
                CommitOutcome::Unauthorized(error.with("table", ident))
            }
            Err(error) if error.kind() == frazil_core::ErrorKind::Config => {
                CommitOutcome::Refused(error.with("table", ident))
            }
            Err(error) => CommitOutcome::Unknown(
                SinkError::retriable("COMMIT_UNKNOWN", "the catalog did not answer a commit")
                    .with("table", ident)
                    .with("reason", error.report()),
            ),
        }
    }

    async fn drop_table(&self, ident: &TableIdent) -> Result<()> {
        let mut url = self.session.table_url(ident).await?;
        url.query_pairs_mut().append_pair("purgeRequested", "false");
        let answer = self.session.delete(url).await?;
        match answer.status {
            200..=299 => {
                let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
                tables.remove(ident);
                Ok(())
            }
            404 => Err(table_not_found(ident)),
            _ => Err(answers::error(&answer).with("table", ident)),
        }
    }

    async fn check(&self) -> Result<()> {
        let config = self.session.config().await?;
        let path = paths::namespaces(config.prefix.as_deref())?;
        // Some catalogs give their configuration to anybody; a listing shows whether the token is
        // good. The right to list is not needed for anything else.
        let answer = self
            .session
            .get(paths::append(&config.base, &path)?, false)
            .await?;
        match answer.status {
            200..=299 | 403 => Ok(()),
            _ => Err(answers::error(&answer)),
        }
    }
}

/// The table after a commit. Its answer carries no keys, so the storage is the one of `base`.
fn committed(base: &LoadedTable, answer: &http::Answer) -> CommitOutcome {
    let parsed = answer.parse::<TableAnswer>("table").and_then(|answer| {
        let metadata = metadata::parse_value(&answer.metadata)?;
        Ok((metadata, answer.metadata_location))
    });
    match parsed {
        Ok((metadata, metadata_location)) => CommitOutcome::Committed(LoadedTable {
            ident: base.ident.clone(),
            metadata: Arc::new(metadata),
            metadata_location,
            storage: base.storage.clone(),
        }),
        Err(_) => answers::commit_outcome(&base.ident, answer),
    }
}

#[cfg(test)]
mod tests;
