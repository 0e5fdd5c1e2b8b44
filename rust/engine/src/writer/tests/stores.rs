//! Stores for tests: a directory, and one that records and fails.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use frazil_core::{Result, SinkError};
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, UploadPart,
};

use crate::writer::FileStore;

/// Serves locations below a root from one store.
#[derive(Debug, Clone)]
pub(super) struct Rooted {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) root: &'static str,
}

impl FileStore for Rooted {
    fn store(&self, location: &str) -> Result<(Arc<dyn ObjectStore>, Path)> {
        let key = location.strip_prefix(self.root);
        let key = key.ok_or_else(|| SinkError::internal("outside the table"))?;
        let path = Path::parse(key).map_err(|error| SinkError::internal(error.to_string()))?;
        Ok((self.store.clone(), path))
    }

    fn error(&self, location: &str, error: &object_store::Error) -> SinkError {
        SinkError::retriable("TEST_STORE", error.to_string()).with("location", location)
    }
}

/// What a [`Recorder`] saw and shall do.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) parts: Mutex<Vec<Bytes>>,
    pub(super) puts: AtomicUsize,
    pub(super) completed: AtomicBool,
    pub(super) aborted: AtomicBool,
    /// Fails the part with this number.
    pub(super) fail_part: Option<usize>,
    pub(super) fail_put: bool,
    /// Bytes that are acknowledged and not kept.
    pub(super) lost: u64,
    /// Bytes that were acknowledged.
    pub(super) taken: AtomicU64,
}

/// A store that takes uploads and keeps a record of them.
#[derive(Debug, Clone)]
pub(super) struct Recorder(pub(super) Arc<Record>);

impl std::fmt::Display for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

fn failure() -> object_store::Error {
    object_store::Error::Generic {
        store: "recorder",
        source: "refused".into(),
    }
}

fn done() -> PutResult {
    PutResult {
        e_tag: None,
        version: None,
        extensions: Default::default(),
    }
}

#[async_trait]
impl MultipartUpload for Recorder {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let mut parts = self.0.parts.lock().unwrap();
        let fails = self.0.fail_part == Some(parts.len());
        self.0
            .taken
            .fetch_add(data.content_length() as u64, Ordering::SeqCst);
        parts.push(Bytes::from(data));
        Box::pin(async move { if fails { Err(failure()) } else { Ok(()) } })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        self.0.completed.store(true, Ordering::SeqCst);
        Ok(done())
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.0.aborted.store(true, Ordering::SeqCst);
        Ok(())
    }
}

#[async_trait]
impl ObjectStore for Recorder {
    async fn put_opts(
        &self,
        _: &Path,
        data: PutPayload,
        _: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.0.puts.fetch_add(1, Ordering::SeqCst);
        self.0
            .taken
            .fetch_add(data.content_length() as u64, Ordering::SeqCst);
        if self.0.fail_put {
            Err(failure())
        } else {
            Ok(done())
        }
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(self.clone()))
    }

    async fn get_opts(&self, path: &Path, asked: GetOptions) -> object_store::Result<GetResult> {
        if !asked.head {
            return Err(failure());
        }
        let size = self.0.taken.load(Ordering::SeqCst) - self.0.lost;
        Ok(GetResult {
            payload: GetResultPayload::Stream(Box::pin(futures::stream::empty())),
            meta: ObjectMeta {
                location: path.clone(),
                last_modified: Default::default(),
                size,
                e_tag: None,
                version: None,
            },
            range: 0..size,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        Box::pin(futures::stream::empty())
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        Box::pin(futures::stream::empty())
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> object_store::Result<ListResult> {
        Err(failure())
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        Err(failure())
    }
}
