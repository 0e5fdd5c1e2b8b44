//! A store on vended keys that renews them once when they are refused.
//!
//! Keys are renewed before they end; this is for stores and catalogs whose clocks disagree, for
//! keys that were revoked, and for a host that slept.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use super::credentials::CredentialSource;
use super::errors::is_refused_key;

/// See the module. Listing and deleting do not renew: they are not on the data path and their
/// callers start over.
pub(super) struct RefreshingStore {
    pub(super) inner: Arc<dyn ObjectStore>,
    /// The same store where its parts can be numbered, so that one part can be sent again.
    pub(super) parts: Option<Arc<AmazonS3>>,
    pub(super) credentials: Arc<dyn CredentialSource>,
}

/// Runs an operation, and once more if the first run met refused keys.
async fn twice<T, F>(credentials: &dyn CredentialSource, operation: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let generation = credentials.latest().generation;
    match operation().await {
        Err(error) if is_refused_key(&error) => {
            if let Err(error) = credentials.refused(generation).await {
                return Err(object_store::Error::Generic {
                    store: "vended credentials",
                    source: Box::new(error),
                });
            }
            operation().await
        }
        outcome => outcome,
    }
}

impl fmt::Debug for RefreshingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefreshingStore({})", self.inner)
    }
}

impl fmt::Display for RefreshingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for RefreshingStore {
    async fn put_opts(
        &self,
        at: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        twice(&*self.credentials, || {
            self.inner.put_opts(at, payload.clone(), opts.clone())
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let Some(store) = &self.parts else {
            return twice(&*self.credentials, || {
                self.inner.put_multipart_opts(at, opts.clone())
            })
            .await;
        };
        let id = twice(&*self.credentials, || {
            store.create_multipart_opts(at, opts.clone())
        })
        .await?;
        Ok(Box::new(RefreshingUpload {
            state: Arc::new(UploadState {
                store: store.clone(),
                credentials: self.credentials.clone(),
                at: at.clone(),
                id,
                parts: Mutex::default(),
            }),
            next: 0,
        }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        twice(&*self.credentials, || {
            self.inner.get_opts(at, options.clone())
        })
        .await
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        twice(&*self.credentials, || self.inner.get_ranges(at, ranges)).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        twice(&*self.credentials, || {
            self.inner.list_with_delimiter(prefix)
        })
        .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        twice(&*self.credentials, || {
            self.inner.copy_opts(from, to, options.clone())
        })
        .await
    }
}

struct UploadState {
    store: Arc<AmazonS3>,
    credentials: Arc<dyn CredentialSource>,
    at: Path,
    id: MultipartId,
    parts: Mutex<Vec<(usize, PartId)>>,
}

/// A multipart upload whose parts have numbers of their own, so that a part can be sent again.
struct RefreshingUpload {
    state: Arc<UploadState>,
    next: usize,
}

impl fmt::Debug for RefreshingUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RefreshingUpload({}, {} parts)",
            self.state.at, self.next
        )
    }
}

#[async_trait]
impl MultipartUpload for RefreshingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let index = self.next;
        self.next += 1;
        let state = self.state.clone();
        Box::pin(async move {
            let part = twice(&*state.credentials, || {
                state
                    .store
                    .put_part(&state.at, &state.id, index, data.clone())
            })
            .await?;
            let mut parts = state.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.push((index, part));
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let state = &self.state;
        let mut parts =
            std::mem::take(&mut *state.parts.lock().unwrap_or_else(PoisonError::into_inner));
        if parts.len() != self.next {
            return Err(object_store::Error::Generic {
                store: "S3",
                source: "the upload was completed before all of its parts were".into(),
            });
        }
        parts.sort_unstable_by_key(|(index, _)| *index);
        let ids: Vec<PartId> = parts.into_iter().map(|(_, id)| id).collect();
        twice(&*state.credentials, || {
            let copies = ids
                .iter()
                .map(|id| PartId {
                    content_id: id.content_id.clone(),
                })
                .collect();
            state.store.complete_multipart(&state.at, &state.id, copies)
        })
        .await
    }

    async fn abort(&mut self) -> Result<()> {
        let state = &self.state;
        twice(&*state.credentials, || {
            state.store.abort_multipart(&state.at, &state.id)
        })
        .await
    }
}
