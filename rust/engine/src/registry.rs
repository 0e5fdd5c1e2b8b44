//! The client of a schema registry: Confluent's API, as Karapace and Apicurio's `ccompat` speak it
//! too, and Apicurio's own.
//!
//! A schema that has an id never changes, so it is kept. That an id is unknown, and which schema of
//! a subject is the newest, is kept for as long as the configuration says. A registry that does not
//! answer is an error that another try may cure: nothing of the batch is taken, and Connect delivers
//! it again. An id that the registry does not know is an error of the records that name it.
//!
//! Bounded: requests by time and tries ([`http`](crate::http)), answers by bytes, references by
//! number, what is kept by number and bytes.

mod apicurio;
mod cache;
mod client;
mod confluent;
mod references;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use frazil_core::config::RegistryConfig;
use frazil_core::decode::confluent::SchemaKey;
use frazil_core::decode::registered::RegistrySchema;
use frazil_core::{ErrorKind, Result, SinkError};

use cache::Cache;
use client::Client;

/// One schema registry, as one task sees it.
#[derive(Debug)]
pub struct Registry {
    client: Client,
    api: Api,
    latest_ttl: Duration,
    missing_ttl: Duration,
    cache: Mutex<Cache>,
}

/// Which API is spoken at the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Confluent,
    /// Confluent's, by an Apicurio registry, whose own API is beside it.
    Ccompat,
    /// Apicurio's own, of version 2 or 3.
    Apicurio(u8),
}

impl Api {
    fn of(url: &str) -> Api {
        if url.contains("/apis/registry/v3") {
            Api::Apicurio(3)
        } else if url.contains("/apis/registry/v2") {
            Api::Apicurio(2)
        } else if url.contains("/apis/ccompat/") {
            Api::Ccompat
        } else {
            Api::Confluent
        }
    }
}

impl Registry {
    /// Makes a client; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// Of kind `Config`: `REGISTRY_TLS_FILE`, `REGISTRY_PROPERTY_INVALID`.
    pub fn open(config: &RegistryConfig) -> Result<Registry> {
        let url = config.urls.first().map(String::as_str).unwrap_or_default();
        Ok(Registry {
            api: Api::of(url),
            client: Client::new(config)?,
            latest_ttl: config.latest_ttl,
            missing_ttl: config.missing_ttl,
            cache: Mutex::default(),
        })
    }

    /// Asks the registry for something that every one has.
    ///
    /// # Errors
    ///
    /// As [`Self::schema`].
    pub async fn check(&self) -> Result<()> {
        let path: &[&str] = match self.api {
            // No right on any subject is needed for it.
            Api::Confluent | Api::Ccompat => &["schemas", "types"],
            Api::Apicurio(_) => &["system", "info"],
        };
        let answer = self.client.get(path).await?;
        match answer.is_success() {
            true => Ok(()),
            false => Err(client::refused(&answer)),
        }
    }

    /// Returns a schema with all that it refers to.
    ///
    /// # Errors
    ///
    /// Of kind `Data` when the registry does not know it (`REGISTRY_SCHEMA_UNKNOWN`) or it has too
    /// many references; `Retriable` when the registry does not answer; `Config` when it refuses us.
    pub async fn schema(&self, key: &SchemaKey) -> Result<RegistrySchema> {
        if let Some(known) = self.lock(|cache| cache.get(key, Instant::now())) {
            return known.map(|schema| RegistrySchema::clone(&schema));
        }
        let fetched = match self.api {
            Api::Confluent => confluent::schema(&self.client, key).await,
            Api::Ccompat => match key {
                SchemaKey::GlobalId(_) | SchemaKey::ContentId(_) => {
                    apicurio::schema(&self.client.sibling()?, 2, key).await
                }
                _ => confluent::schema(&self.client, key).await,
            },
            Api::Apicurio(version) => apicurio::schema(&self.client, version, key).await,
        };
        self.keep(key, &fetched);
        fetched
    }

    fn keep(&self, key: &SchemaKey, fetched: &Result<RegistrySchema>) {
        let now = Instant::now();
        match fetched {
            Ok(schema) => {
                let until = match key {
                    SchemaKey::Subject(_) => Some(now + self.latest_ttl),
                    _ => None,
                };
                self.lock(|cache| cache.keep(key, Arc::new(schema.clone()), until));
            }
            Err(error) if error.kind() == ErrorKind::Data => {
                let until = now + self.missing_ttl;
                self.lock(|cache| cache.miss(key, error, until));
            }
            Err(_) => {}
        }
    }

    fn lock<T>(&self, run: impl FnOnce(&mut Cache) -> T) -> T {
        // What is kept is whole at each step, also after a panic.
        run(&mut self.cache.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The error of records that name a schema which the registry does not know.
fn unknown(key: &SchemaKey) -> SinkError {
    let error = SinkError::data(
        "REGISTRY_SCHEMA_UNKNOWN",
        "the schema registry does not know the record's schema: check that it is the registry that \
         the producer used",
    );
    match key {
        SchemaKey::Id(id) => error.with("schema_id", id),
        SchemaKey::LongId(id) => error.with("schema_id", id),
        SchemaKey::GlobalId(id) => error.with("global_id", id),
        SchemaKey::ContentId(id) => error.with("content_id", id),
        SchemaKey::Guid(guid) => error.with("guid", uuid::Uuid::from_bytes(*guid)),
        SchemaKey::Subject(subject) => error.with("subject", subject),
        SchemaKey::Digest(_) => error,
    }
}
