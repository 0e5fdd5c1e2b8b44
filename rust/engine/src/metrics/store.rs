//! An object store whose requests are counted.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use frazil_core::metrics::WorkerMetric as Metric;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};

use super::WORKER;

/// Returns `store` with its requests counted.
pub(crate) fn counted(store: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
    Arc::new(CountedStore(store))
}

struct CountedStore(Arc<dyn ObjectStore>);

async fn count<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    WORKER.add(Metric::StoreRequests, 1);
    let begun = Instant::now();
    let done = work.await;
    WORKER.add_time(Metric::StoreTime, begun.elapsed());
    note(&done);
    done
}

/// Counts a failure, unless whoever asked is ready for it.
fn note<T>(done: &Result<T>) {
    match done {
        Ok(_) | Err(Error::NotFound { .. } | Error::AlreadyExists { .. }) => {}
        Err(_) => WORKER.add(Metric::StoreErrors, 1),
    }
}

fn sent(payload: &PutPayload) {
    WORKER.add(Metric::StoreBytesSent, payload.content_length() as u64);
}

impl fmt::Debug for CountedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for CountedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[async_trait]
impl ObjectStore for CountedStore {
    async fn put_opts(
        &self,
        at: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        sent(&payload);
        count(self.0.put_opts(at, payload, opts)).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = count(self.0.put_multipart_opts(at, opts)).await?;
        Ok(Box::new(CountedUpload(upload)))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let found = count(self.0.get_opts(at, options)).await?;
        if !is_head {
            let bytes = found.range.end.saturating_sub(found.range.start);
            WORKER.add(Metric::StoreBytesRead, bytes);
        }
        Ok(found)
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let found = count(self.0.get_ranges(at, ranges)).await?;
        let bytes: usize = found.iter().map(Bytes::len).sum();
        WORKER.add(Metric::StoreBytesRead, bytes as u64);
        Ok(found)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let deleted = self.0.delete_stream(paths);
        let counted = deleted.inspect(|done| {
            WORKER.add(Metric::StoreRequests, 1);
            note(done);
        });
        counted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        WORKER.add(Metric::StoreRequests, 1);
        self.0.list(prefix).inspect(note).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        WORKER.add(Metric::StoreRequests, 1);
        let listed = self.0.list_with_offset(prefix, offset);
        listed.inspect(note).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        count(self.0.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        count(self.0.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        count(self.0.rename_opts(from, to, options)).await
    }
}

struct CountedUpload(Box<dyn MultipartUpload>);

impl fmt::Debug for CountedUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl MultipartUpload for CountedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        sent(&data);
        count(self.0.put_part(data)).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        count(self.0.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        count(self.0.abort()).await
    }
}
