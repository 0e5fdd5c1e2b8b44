//! The crate `iceberg`'s view of a [`TableStorage`]: it reads and writes manifests through this.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use iceberg::io::{
    FileMetadata, FileRead, FileWrite, InputFile, OutputFile, Storage, StorageConfig,
    StorageFactory,
};
use iceberg::{Error, ErrorKind, Result};
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use super::TableStorage;
use frazil_core::SinkError;

/// Bytes of one part of a large metadata file; all parts but the last are equally long, which
/// some stores insist on.
const PART_BYTES: usize = 8 << 20;

/// A storage for `iceberg`. It serialises to nothing, for the crate's traits want serialisation
/// but a storage holds keys; a deserialised one answers every call with an error.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct IcebergStorage {
    #[serde(skip)]
    pub(super) storage: Option<TableStorage>,
}

#[typetag::serde(name = "FrazilStorageFactory")]
impl StorageFactory for IcebergStorage {
    fn build(&self, _: &StorageConfig) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

/// Wraps our error, so that it can be taken out again on the other side of the crate.
fn wrap(error: SinkError) -> Error {
    Error::new(ErrorKind::Unexpected, error.to_string()).with_source(error)
}

impl IcebergStorage {
    fn storage(&self) -> Result<&TableStorage> {
        self.storage.as_ref().ok_or_else(|| {
            wrap(SinkError::internal(
                "a storage was used after serialisation",
            ))
        })
    }

    fn store(&self, path: &str) -> Result<(Arc<dyn ObjectStore>, Path)> {
        self.storage()?.store(path).map_err(wrap)
    }
}

#[async_trait]
#[typetag::serde(name = "FrazilStorage")]
impl Storage for IcebergStorage {
    async fn exists(&self, path: &str) -> Result<bool> {
        self.storage()?.exists(path).await.map_err(wrap)
    }

    async fn metadata(&self, path: &str) -> Result<FileMetadata> {
        let (store, key) = self.store(path)?;
        let meta = store
            .head(&key)
            .await
            .map_err(|error| wrap(super::store_error(path, &error)))?;
        Ok(FileMetadata { size: meta.size })
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        self.storage()?.get(path).await.map_err(wrap)
    }

    async fn reader(&self, path: &str) -> Result<Box<dyn FileRead>> {
        let (store, key) = self.store(path)?;
        Ok(Box::new(Reader {
            store,
            key,
            location: path.to_string(),
        }))
    }

    async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.storage()?.put(path, bytes).await.map_err(wrap)
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWrite>> {
        let (store, key) = self.store(path)?;
        Ok(Box::new(Writer {
            inner: Some(BufWriter::with_capacity(store, key, PART_BYTES).with_max_concurrency(4)),
            location: path.to_string(),
        }))
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.storage()?.delete(path).await.map_err(wrap)
    }

    async fn delete_prefix(&self, path: &str) -> Result<()> {
        let storage = self.storage()?;
        let mut files = storage.list(path).map_err(wrap)?;
        while let Some(file) = files.next().await {
            let file = file.map_err(wrap)?;
            storage.delete(&file.location).await.map_err(wrap)?;
        }
        Ok(())
    }

    async fn delete_stream(&self, mut paths: BoxStream<'static, String>) -> Result<()> {
        while let Some(path) = paths.next().await {
            self.delete(&path).await?;
        }
        Ok(())
    }

    fn new_input(&self, path: &str) -> Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.to_string()))
    }

    fn new_output(&self, path: &str) -> Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.to_string()))
    }
}

struct Reader {
    store: Arc<dyn ObjectStore>,
    key: Path,
    location: String,
}

#[async_trait]
impl FileRead for Reader {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.store
            .get_range(&self.key, range)
            .await
            .map_err(|error| wrap(super::store_error(&self.location, &error)))
    }
}

struct Writer {
    inner: Option<BufWriter>,
    location: String,
}

impl Writer {
    fn open(&mut self) -> Result<&mut BufWriter> {
        self.inner.as_mut().ok_or_else(|| {
            wrap(SinkError::internal(
                "a metadata file was used after its close",
            ))
        })
    }
}

#[async_trait]
impl FileWrite for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let outcome = self.open()?.put(bytes).await;
        outcome.map_err(|error| wrap(super::store_error(&self.location, &error)))
    }

    async fn close(&mut self) -> Result<()> {
        let outcome = self.open()?.shutdown().await;
        self.inner = None;
        // `BufWriter` speaks `std::io`; the store's error is inside.
        outcome.map_err(|error| {
            let error = match error.downcast::<object_store::Error>() {
                Ok(error) => error,
                Err(error) => object_store::Error::Generic {
                    store: "upload",
                    source: Box::new(error),
                },
            };
            wrap(super::store_error(&self.location, &error))
        })
    }
}
