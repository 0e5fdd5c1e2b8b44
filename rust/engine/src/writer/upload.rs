//! Streams the bytes of one file to its store.
//!
//! A file below one part is a single `put`. A larger one is a multipart upload whose parts all
//! have the same size but the last, which Cloudflare R2 insists on. Bytes that wait for the
//! network are counted, so that the writer's owner can see and bound them.
//!
//! Then one `head` asks for the length that is stored. What a store answers to a `put` has none,
//! its tag is a digest of the bytes with some kinds of encryption and not with others, and a proxy
//! that cuts a body and acknowledges it all the same is what `tests/chaos` injects: a table would
//! name a file that nobody can read. It costs a request for each file, and no memory.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use frazil_core::{Result, SinkError};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::failpoint;
use crate::memory::Meter;
use crate::storage::{TableStorage, may_pass, store_error, whole};

/// Bytes of each part of a multipart upload.
pub(super) const PART_BYTES: usize = 8 << 20;
/// Parts of one file that are on their way at once.
const PARTS_IN_FLIGHT_MAX: usize = 4;

/// Finds the store of a file by its absolute location.
pub trait FileStore: fmt::Debug + Send + Sync {
    /// Returns the client for `location`, and the path to give it.
    fn store(&self, location: &str) -> Result<(Arc<dyn ObjectStore>, Path)>;

    /// Turns what the store said about `location` into an error without secrets.
    fn error(&self, location: &str, error: &object_store::Error) -> SinkError;
}

impl FileStore for TableStorage {
    fn store(&self, location: &str) -> Result<(Arc<dyn ObjectStore>, Path)> {
        TableStorage::store(self, location)
    }

    fn error(&self, location: &str, error: &object_store::Error) -> SinkError {
        may_pass(store_error(location, error))
    }
}

/// What the uploads of one table writer share.
#[derive(Debug)]
pub(super) struct Uploads {
    store: Arc<dyn FileStore>,
    runtime: Handle,
    in_flight: Meter,
    turns: Arc<Semaphore>,
    failure: Arc<Failure>,
}

impl Uploads {
    /// Uploads to `store`, with as many requests at a time as there are `turns`.
    pub(super) fn new(
        store: Arc<dyn FileStore>,
        runtime: Handle,
        in_flight: Meter,
        turns: Arc<Semaphore>,
    ) -> Self {
        Uploads {
            store,
            runtime,
            in_flight,
            turns,
            failure: Arc::default(),
        }
    }

    /// Returns the bytes that were handed over and are not stored yet.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Returns what counts them, which goes on when this is gone.
    pub(super) fn in_flight_counter(&self) -> Meter {
        self.in_flight.clone()
    }

    /// Fails once any upload has failed.
    pub(super) fn check(&self) -> Result<()> {
        match self.failure.get() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Begins the upload of `location`.
    pub(super) fn start(&self, location: &str) -> Result<Upload> {
        let (store, path) = self.store.store(location)?;
        let (sender, receiver) = unbounded_channel();
        let (files, failure) = (self.store.clone(), self.failure.clone());
        let (location, turns) = (location.to_string(), self.turns.clone());
        let work = async move {
            let stored = match run(&*store, &path, &turns, receiver).await {
                Ok(None) => return Ok(()),
                Ok(Some(length)) => {
                    let found = in_turn(&turns, store.head(&path)).await;
                    found.map(|found| (length, found.size))
                }
                Err(error) => Err(error),
            };
            stored
                .map_err(|error| files.error(&location, &error))
                .and_then(|(sent, kept)| whole(&location, sent, kept))
                .inspect_err(|error| failure.set(error))
        };
        // Boxed, so that what only the upload needs is gone with it: its result waits for the seal.
        let task = self.runtime.spawn(Box::pin(work));
        Ok(Upload {
            sender,
            task: Some(task),
            buffer: Vec::new(),
            written: 0,
            in_flight: self.in_flight.clone(),
        })
    }
}

/// The first upload that failed.
#[derive(Debug, Default)]
struct Failure(Mutex<Option<SinkError>>);

impl Failure {
    fn set(&self, error: &SinkError) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| copy(error));
    }

    fn get(&self) -> Option<SinkError> {
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.as_ref().map(copy)
    }
}

/// Returns an error that says the same; the causes become text.
fn copy(error: &SinkError) -> SinkError {
    let mut copied = SinkError::new(error.kind(), error.code(), error.message());
    for (name, value) in error.context() {
        copied = copied.with(name, value);
    }
    copied
}

/// Bytes on their way, which count as held until they are dropped.
#[derive(Debug)]
struct Part {
    bytes: Bytes,
    held: Held,
}

#[derive(Debug)]
struct Held {
    bytes: usize,
    in_flight: Meter,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.in_flight.sub(self.bytes);
    }
}

#[derive(Debug)]
enum Message {
    /// Exactly [`PART_BYTES`], and more will follow.
    Part(Part),
    /// The rest of the file, at most [`PART_BYTES`].
    Last(Part),
}

/// The writing end of one file. Dropped before [`Upload::finish`], it aborts the upload.
#[derive(Debug)]
pub(super) struct Upload {
    sender: UnboundedSender<Message>,
    task: Option<JoinHandle<Result<()>>>,
    buffer: Vec<u8>,
    written: u64,
    in_flight: Meter,
}

impl Upload {
    /// Returns the bytes that wait for a full part.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Ends the file. The task ends when all of it is durable.
    pub(super) fn finish(&mut self) -> Result<JoinHandle<Result<()>>> {
        let last = self.take_part();
        // A closed channel means that the task has failed already, and it says why.
        drop(self.sender.send(Message::Last(last)));
        let task = self.task.take();
        task.ok_or_else(|| SinkError::internal("an upload was finished twice"))
    }

    fn take_part(&mut self) -> Part {
        let mut buffer = std::mem::take(&mut self.buffer);
        // The last part of a file has room for a whole one, and keeps it until it is stored.
        buffer.shrink_to_fit();
        let held = buffer.capacity();
        self.in_flight.add(held);
        Part {
            held: Held {
                bytes: held,
                in_flight: self.in_flight.clone(),
            },
            bytes: Bytes::from(buffer),
        }
    }
}

impl io::Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        self.written += taken as u64;
        if self.buffer.len() == PART_BYTES {
            let part = self.take_part();
            drop(self.sender.send(Message::Part(part)));
            self.buffer.reserve_exact(PART_BYTES);
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends a request once it is its turn.
async fn in_turn<T>(turns: &Semaphore, request: impl Future<Output = T>) -> T {
    // A semaphore that is never closed gives a permit always.
    let _turn = turns.acquire().await;
    request.await
}

/// Stores what arrives and returns its length. A channel that closes before the last part means:
/// abandon.
async fn run(
    store: &dyn ObjectStore,
    path: &Path,
    turns: &Semaphore,
    mut messages: UnboundedReceiver<Message>,
) -> object_store::Result<Option<u64>> {
    let first = match messages.recv().await {
        None => return Ok(None),
        Some(Message::Last(part)) => {
            in_turn(turns, store.put(path, part.bytes.clone().into())).await?;
            let length = part.bytes.len() as u64;
            drop(part.held);
            return Ok(Some(length));
        }
        Some(Message::Part(part)) => part,
    };
    let mut upload = in_turn(turns, store.put_multipart(path)).await?;
    let result = match send_parts(&mut *upload, turns, first, &mut messages).await {
        Ok(Some(length)) => {
            let completed = in_turn(turns, upload.complete()).await;
            completed.map(|_| Some(length))
        }
        other => other,
    };
    if matches!(result, Ok(Some(_))) {
        return result;
    }
    if let Err(error) = upload.abort().await {
        // The parts are invisible and end by the bucket's lifecycle rule; the first error counts.
        tracing::warn!(%path, %error, "could not abort a multipart upload");
    }
    result
}

/// Sends parts until the last one is stored, and returns their length; `None` when the writer is
/// gone.
async fn send_parts(
    upload: &mut dyn MultipartUpload,
    turns: &Semaphore,
    first: Part,
    messages: &mut UnboundedReceiver<Message>,
) -> object_store::Result<Option<u64>> {
    let mut length = 0;
    let mut running = FuturesUnordered::new();
    let mut next = Some(Message::Part(first));
    let mut last_is_sent = false;
    loop {
        if let Some(message) = next.take() {
            let part = match message {
                Message::Part(part) => part,
                Message::Last(part) => {
                    last_is_sent = true;
                    part
                }
            };
            failpoint::cut("upload.before-part");
            length += part.bytes.len() as u64;
            if !part.bytes.is_empty() {
                let sending = upload.put_part(part.bytes.clone().into());
                running.push(async move {
                    let result = in_turn(turns, sending).await;
                    drop(part);
                    result
                });
            }
        }
        tokio::select! {
            biased;
            Some(done) = running.next(), if !running.is_empty() => done?,
            message = messages.recv(), if !last_is_sent && running.len() < PARTS_IN_FLIGHT_MAX => {
                match message {
                    Some(message) => next = Some(message),
                    None => return Ok(None),
                }
            }
            else => return Ok(Some(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[derive(Debug)]
    struct Anywhere;

    impl FileStore for Anywhere {
        fn store(&self, location: &str) -> Result<(Arc<dyn ObjectStore>, Path)> {
            Ok((Arc::new(InMemory::new()), Path::from(location)))
        }

        fn error(&self, _: &str, error: &object_store::Error) -> SinkError {
            SinkError::internal(error.to_string())
        }
    }

    // Promise: what an upload counts is what its parts hold, also of the last one of a file
    #[tokio::test]
    async fn parts_hold_what_they_count() {
        let meter = Meter::detached();
        let (store, runtime) = (Arc::new(Anywhere), Handle::current());
        let uploads = Uploads::new(store, runtime, meter.clone(), Arc::new(Semaphore::new(1)));
        for written in [100, 70_000, PART_BYTES, PART_BYTES + 100_000] {
            let mut upload = uploads.start("f").unwrap();
            let mut parts = Vec::new();
            // Chunks that no power of two is a multiple of.
            for chunk in vec![7; written].chunks(70_001) {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let room = PART_BYTES - upload.buffer.len();
                    let (now, later) = rest.split_at(rest.len().min(room));
                    upload.buffer.extend_from_slice(now);
                    rest = later;
                    if upload.buffer.len() == PART_BYTES {
                        parts.push(upload.take_part());
                        upload.buffer.reserve_exact(PART_BYTES);
                    }
                }
            }
            parts.push(upload.take_part());
            assert_eq!(upload.buffered(), 0);
            let counted = meter.get();
            assert!(counted <= written + 64, "{counted} for {written}");
            let mut held = 0;
            for Part { bytes, held: _held } in parts {
                // Alone, it shows what it was made of; an empty one is made of nothing.
                if !bytes.is_empty() {
                    held += bytes.try_into_mut().expect("alone").capacity();
                }
            }
            assert_eq!(held, counted, "of {written}");
            assert_eq!(meter.get(), 0);
        }
    }
}
