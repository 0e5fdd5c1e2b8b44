//! A table's files, on whatever store its location names.
//!
//! One client and one set of keys per bucket and credential scope serve all operations, in a
//! table and, where the keys are the catalog's, in all of its tables.

mod cloud;
mod credentials;
mod errors;
mod iceberg_io;
mod location;
mod refreshing;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use frazil_core::{Result, SinkError};
use futures::StreamExt;
use futures::stream::BoxStream;
use iceberg::io::{FileIO, FileIOBuilder};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

pub use credentials::{CredentialScope, CredentialSource, Credentials};
pub use errors::store_error;

pub(crate) use cloud::{ca_file, has_static_s3_keys};
pub(crate) use credentials::{is_credential_property, is_expiry_property};
pub(crate) use errors::{copy as copy_error, find_sink_error, may_pass};

use crate::metrics::counted;
use credentials::{VendedAws, VendedAzure, VendedGcp, VendedKeys};
use iceberg_io::IcebergStorage;
use location::{Location, Scheme};
use refreshing::RefreshingStore;

/// Bytes of a file that is read in one piece (metadata, manifests).
const READ_BYTES_MAX: u64 = 1 << 30;

/// In-memory stores by name, for tests: like a bucket, one is there for every table of the process.
static MEMORY: LazyLock<Mutex<BTreeMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

/// What tells one client from another: properties, scheme, bucket, and scope of vended keys.
type StoreKey = (BTreeMap<String, String>, Scheme, String, Option<String>);

/// Open clients; a catalog shares one cache among its tables.
#[derive(Clone, Default)]
pub(crate) struct StoreCache(Arc<Mutex<BTreeMap<StoreKey, Arc<dyn ObjectStore>>>>);

impl fmt::Debug for StoreCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreCache")
    }
}

/// The files of one table. Cloning is cheap; clones share clients.
#[derive(Clone)]
pub struct TableStorage {
    inner: Arc<Inner>,
}

struct Inner {
    location: String,
    properties: BTreeMap<String, String>,
    credentials: Option<Arc<dyn CredentialSource>>,
    /// Clients on the catalog's own keys.
    shared: StoreCache,
    /// Clients on keys vended for this table.
    vended: StoreCache,
}

/// A file found by [`TableStorage::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    /// The absolute location, in the notation of the listed prefix.
    pub location: String,
    /// The length.
    pub bytes: u64,
    /// When it was last written, in milliseconds since 1970.
    pub modified_ms: i64,
}

impl fmt::Debug for TableStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableStorage")
            .field("location", &self.inner.location)
            .field("vended", &self.inner.credentials.is_some())
            .finish_non_exhaustive()
    }
}

impl TableStorage {
    /// Opens the storage of the table at `location` with Iceberg's storage properties, such as
    /// `s3.endpoint`. Vended `credentials` take the place of keys among the properties.
    pub fn open(
        location: &str,
        properties: &BTreeMap<String, String>,
        credentials: Option<Arc<dyn CredentialSource>>,
    ) -> Result<TableStorage> {
        Self::open_shared(location, properties, credentials, &StoreCache::default())
    }

    /// Opens a storage whose clients on the catalog's own keys are shared through `cache`.
    pub(crate) fn open_shared(
        location: &str,
        properties: &BTreeMap<String, String>,
        credentials: Option<Arc<dyn CredentialSource>>,
        cache: &StoreCache,
    ) -> Result<TableStorage> {
        Location::parse(location)?;
        let properties = properties
            .iter()
            .filter(|(key, _)| is_storage_property(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let storage = TableStorage {
            inner: Arc::new(Inner {
                location: location.to_string(),
                properties,
                credentials,
                shared: cache.clone(),
                vended: StoreCache::default(),
            }),
        };
        // Bad properties shall fail here and not at the first write.
        storage.store(location)?;
        Ok(storage)
    }

    /// Returns the location that this storage was opened for.
    pub fn location(&self) -> &str {
        &self.inner.location
    }

    /// Returns whether the keys are vended by the catalog.
    pub fn is_vended(&self) -> bool {
        self.inner.credentials.is_some()
    }

    /// Returns the client for an absolute location, and the path to give it.
    pub fn store(&self, location: &str) -> Result<(Arc<dyn ObjectStore>, Path)> {
        let parsed = Location::parse(location)?;
        let path = parsed.path()?;
        let scope = self.scope(location, parsed.scheme)?;
        let cache = match scope {
            Some(_) => &self.inner.vended,
            None => &self.inner.shared,
        };
        let key = (
            self.inner.properties.clone(),
            parsed.scheme,
            parsed.authority.to_string(),
            scope,
        );
        let mut stores = cache.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(&key) {
            return Ok((store.clone(), path));
        }
        let store = counted(self.build(&parsed, key.3.as_deref())?);
        stores.insert(key, store.clone());
        Ok((store, path))
    }

    /// Returns the prefix of the vended keys for a location.
    fn scope(&self, location: &str, scheme: Scheme) -> Result<Option<String>> {
        let Some(credentials) = &self.inner.credentials else {
            return Ok(None);
        };
        if matches!(scheme, Scheme::File | Scheme::Memory) {
            return Ok(None);
        }
        let latest = credentials.latest();
        match latest.scope_of(location) {
            Some(scope) => Ok(Some(scope.prefix.clone())),
            // Never the worker's own keys for a place that the catalog did not give keys for.
            None => Err(
                credentials::missing("the catalog vends no credential for this location")
                    .with("location", crate::redact::foreign(location)),
            ),
        }
    }

    fn build(&self, at: &Location<'_>, scope: Option<&str>) -> Result<Arc<dyn ObjectStore>> {
        let properties = &self.inner.properties;
        let vended = match (scope, &self.inner.credentials) {
            (Some(prefix), Some(source)) => Some((prefix.to_string(), source.clone())),
            _ => None,
        };
        let keys = |account: Option<(String, String)>| {
            vended.clone().map(|(prefix, source)| VendedKeys {
                source,
                prefix,
                account,
            })
        };
        let mut parts = None;
        let inner: Arc<dyn ObjectStore> = match at.scheme {
            // Files are synced before a commit may name them, as an object store would do.
            Scheme::File => return Ok(Arc::new(LocalFileSystem::new().with_fsync(true))),
            Scheme::Memory => return Ok(memory(at.authority)),
            Scheme::S3 => {
                let provider = keys(None).map(|keys| Arc::new(VendedAws(keys)) as _);
                let store = cloud::s3(at.authority, properties, provider)?;
                parts = Some(store.clone());
                store
            }
            Scheme::Gcs => {
                let provider = keys(None).map(|keys| Arc::new(VendedGcp(keys)) as _);
                cloud::gcs(at.authority, properties, provider)?
            }
            Scheme::Azure => {
                let (_, account, host) = cloud::azure_authority(at.authority)?;
                let account = Some((account.to_string(), host.to_string()));
                let provider = keys(account).map(|keys| Arc::new(VendedAzure(keys)) as _);
                cloud::azure(at.authority, properties, provider)?
            }
        };
        Ok(match vended {
            None => inner,
            Some((_, credentials)) => Arc::new(RefreshingStore {
                inner,
                parts,
                credentials,
            }),
        })
    }

    /// Returns the crate `iceberg`'s view of this storage.
    pub fn file_io(&self) -> FileIO {
        FileIOBuilder::new(Arc::new(IcebergStorage {
            storage: Some(self.clone()),
        }))
        .build()
    }

    /// Writes a whole file; readers see all of it or nothing.
    ///
    /// # Errors
    ///
    /// Retriable, when the store took the file and has another length of it.
    pub async fn put(&self, location: &str, bytes: Bytes) -> Result<()> {
        let (store, path) = self.store(location)?;
        let sent = bytes.len() as u64;
        let stored = match store.put(&path, bytes.into()).await {
            Ok(_) => store.head(&path).await,
            Err(error) => Err(error),
        };
        let stored = stored.map_err(|error| store_error(location, &error))?;
        whole(location, sent, stored.size)
    }

    /// Reads a whole file of at most 1 GiB.
    pub async fn get(&self, location: &str) -> Result<Bytes> {
        let (store, path) = self.store(location)?;
        let found = store
            .get(&path)
            .await
            .map_err(|error| store_error(location, &error))?;
        if found.meta.size > READ_BYTES_MAX {
            return Err(SinkError::fatal(
                "STORAGE_FILE_TOO_LARGE",
                "the file is larger than 1 GiB: expire snapshots to make the metadata smaller",
            )
            .with("location", crate::redact::foreign(location)));
        }
        found
            .bytes()
            .await
            .map_err(|error| store_error(location, &error))
    }

    /// Reads a part of a file.
    ///
    /// # Errors
    ///
    /// Also when the file ends before the part does.
    pub async fn get_range(&self, location: &str, range: Range<u64>) -> Result<Bytes> {
        let (store, path) = self.store(location)?;
        let length = range.end.saturating_sub(range.start);
        let bytes = store.get_range(&path, range).await;
        let bytes = bytes.map_err(|error| store_error(location, &error))?;
        whole(location, length, bytes.len() as u64).map(|()| bytes)
    }

    /// Returns the length of a file.
    pub async fn length(&self, location: &str) -> Result<u64> {
        let (store, path) = self.store(location)?;
        let found = store.head(&path).await;
        found
            .map(|found| found.size)
            .map_err(|error| store_error(location, &error))
    }

    /// Returns whether a file is there.
    pub async fn exists(&self, location: &str) -> Result<bool> {
        let (store, path) = self.store(location)?;
        match store.head(&path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(store_error(location, &error)),
        }
    }

    /// Deletes a file; one that is not there is no error.
    pub async fn delete(&self, location: &str) -> Result<()> {
        let (store, path) = self.store(location)?;
        match store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(store_error(location, &error)),
        }
    }

    /// Lists all files under a directory-like prefix.
    pub fn list(&self, prefix: &str) -> Result<BoxStream<'static, Result<ListedFile>>> {
        let (store, path) = self.store(prefix)?;
        let root = Location::parse(prefix)?.root.to_string();
        let prefix = prefix.to_string();
        let files = store.list(Some(&path)).map(move |file| match file {
            Ok(file) => Ok(ListedFile {
                location: format!("{root}{}", file.location),
                bytes: file.size,
                modified_ms: file.last_modified.timestamp_millis(),
            }),
            Err(error) => Err(store_error(&prefix, &error)),
        });
        Ok(files.boxed())
    }
}

/// Fails when a store has another length of a file than was sent: whatever lies between may cut a
/// body and acknowledge it all the same, and a table must not name such a file.
pub(crate) fn whole(location: &str, sent: u64, stored: u64) -> Result<()> {
    if sent == stored {
        return Ok(());
    }
    Err(SinkError::retriable(
        "STORAGE_FILE_CUT",
        "the store acknowledged a file and has another length of it",
    )
    .with("location", crate::redact::foreign(location))
    .with("sent", sent)
    .with("stored", stored))
}

fn memory(name: &str) -> Arc<dyn ObjectStore> {
    let mut stores = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    stores.entry(name.to_string()).or_default().clone()
}

fn is_storage_property(key: &str) -> bool {
    ["s3.", "client.", "gcs.", "adls."]
        .iter()
        .any(|prefix| key.starts_with(prefix))
        || key == "tls.ca-file"
}

#[cfg(test)]
mod tests;
