//! Reads the keys of data files into an index, several files at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use frazil_core::change::KeyPlan;
use frazil_core::delete::DeletionVector;
use frazil_core::index::catch_up::{CatchUp, Caught, PENDING_MAX};
use frazil_core::index::{Index, KeyHasher, KeyNumber, Location};
use frazil_core::limits::INDEX_READS;
use frazil_core::{Result, SinkError};
use once_cell::sync::Lazy;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::keys::{BATCH_ROWS, KeyColumns, unreadable};
use crate::runtime::{compute, cores};
use crate::storage::TableStorage;

/// Batches of keys of one file that are read ahead at most: 4 files of them are 33 MB.
const BATCHES_AHEAD: usize = 64;
/// What a batch of keys takes.
const BATCH_BYTES: u64 = (BATCH_ROWS * size_of::<KeyNumber>()) as u64;
/// Keys that are gathered at least before they are put into the index.
const PENDING_MIN: u64 = 64 << 10;

/// A data file whose keys are to be read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// Its number in the index.
    pub(crate) number: u32,
    /// Its location.
    pub(crate) path: Arc<str>,
    /// Its length.
    pub(crate) bytes: u64,
    /// Its rows, deleted ones included.
    pub(crate) rows: u64,
}

/// How keys are read.
pub(crate) struct Reader<'a> {
    pub(crate) storage: &'a TableStorage,
    pub(crate) plan: &'a Arc<KeyPlan>,
    pub(crate) hasher: &'a KeyHasher,
    pub(crate) ahead: Ahead,
}

/// How much is held of keys that are on their way into the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Batches of each file.
    batches: usize,
    /// Keys that wait to be put into the index.
    pending: usize,
}

impl Ahead {
    /// Returns what a part of `room` bytes is enough for, and the largest of `files` needs.
    pub(crate) fn within(room: u64, files: &[Reading]) -> Self {
        let largest = files.iter().map(|file| file.rows).max().unwrap_or_default();
        let wanted = largest.div_ceil(BATCH_ROWS as u64).saturating_add(1);
        let batches = (room / 8 / (INDEX_READS as u64 * BATCH_BYTES)).min(wanted);
        let pending = room / 8 / size_of::<(KeyNumber, Location)>() as u64;
        Ahead {
            batches: batches.clamp(2, BATCHES_AHEAD as u64) as usize,
            pending: pending.clamp(PENDING_MIN, PENDING_MAX as u64) as usize,
        }
    }

    /// Returns the bytes of the batches of all files that are read at a time, which have `rows` rows.
    pub(crate) fn batch_bytes(self, rows: u64) -> u64 {
        let most = (self.batches * INDEX_READS) as u64 * BATCH_BYTES;
        most.min(rows.saturating_mul(size_of::<KeyNumber>() as u64))
    }

    /// Returns the bytes of the keys that wait, of `rows`.
    pub(crate) fn pending_bytes(self, rows: u64) -> u64 {
        let keys = rows.min(self.pending as u64);
        keys.saturating_mul(2 * size_of::<(KeyNumber, Location)>() as u64)
    }
}

type Keys = Result<(u64, Vec<KeyNumber>)>;

/// Puts the keys of `files`, the oldest first, into `index`, which has these files already. Rows that
/// `vectors` has, by the number of their file, are left out. `check` is asked every now and then
/// whether an index of so many bytes may go on growing. `whole` is the number of files whose keys are all
/// in the index, also after an error.
///
/// # Errors
///
/// What a file or the store says, or what `check` says.
pub(crate) async fn catch_up(
    reader: &Reader<'_>,
    index: &mut Index,
    files: Vec<Reading>,
    vectors: &BTreeMap<u32, &DeletionVector>,
    check: impl FnMut(usize) -> Result<()>,
    whole: &mut usize,
) -> Result<Caught> {
    let catch = CatchUp::new(index, |number| vectors.get(&number).copied());
    let mut catch = catch.with_pending_max(reader.ahead.pending);
    let read = read_files(reader, &mut catch, files, check, whole).await;
    let caught = catch.finish().inspect_err(|_| *whole = 0)?;
    read.map(|()| caught)
}

async fn read_files<'v, F: Fn(u32) -> Option<&'v DeletionVector>>(
    reader: &Reader<'_>,
    catch: &mut CatchUp<'v, F>,
    files: Vec<Reading>,
    mut check: impl FnMut(usize) -> Result<()>,
    whole: &mut usize,
) -> Result<()> {
    let mut files = files.into_iter();
    let mut running = VecDeque::new();
    loop {
        while running.len() < INDEX_READS && files.len() > 0 {
            // One that has begun a file never waits to begin another: it would keep that one waiting.
            let Some(turn) = turn(running.is_empty()).await else {
                break;
            };
            let Some(file) = files.next() else {
                break;
            };
            running.push_back((file.clone(), reader.begin(file, turn)));
        }
        let Some((file, mut keys)) = running.pop_front() else {
            break;
        };
        let mut rows = 0;
        while let Some(batch) = keys.recv().await {
            let (first, keys) = batch?;
            let first = u32::try_from(first).map_err(|_| unreadable(&file.path))?;
            rows += keys.len() as u64;
            let has_grown = compute(|| catch.add(file.number, first, &keys)).await?;
            if has_grown {
                check(catch.heap_bytes())?;
            }
        }
        if rows != file.rows {
            return Err(unreadable(&file.path)
                .with("rows", rows)
                .with("expected", file.rows));
        }
        *whole += 1;
    }
    Ok(())
}

/// Returns a turn to read a file, of which the process has so many; waits for one if it `waits`.
async fn turn(waits: bool) -> Option<SemaphorePermit<'static>> {
    static TURNS: Lazy<Semaphore> = Lazy::new(|| Semaphore::new(INDEX_READS.max(2 * cores())));
    match waits {
        // A semaphore that is never closed gives a permit always.
        true => TURNS.acquire().await.ok(),
        false => TURNS.try_acquire().ok(),
    }
}

impl Reader<'_> {
    /// Begins to read a file, as far ahead as there is room for: on a thread of its own, for it is mostly
    /// computing.
    fn begin(&self, file: Reading, turn: SemaphorePermit<'static>) -> mpsc::Receiver<Keys> {
        let (to, keys) = mpsc::channel(self.ahead.batches);
        let (storage, plan) = (self.storage.clone(), Arc::clone(self.plan));
        let hasher = self.hasher.clone();
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            runtime.block_on(async move {
                let read = send_keys(&storage, &plan, &hasher, &file, &to).await;
                if let Err(error) = read {
                    // Without a receiver nobody needs to know.
                    let _ = to.send(Err(error)).await;
                }
            });
        });
        keys
    }
}

async fn send_keys(
    storage: &TableStorage,
    plan: &KeyPlan,
    hasher: &KeyHasher,
    file: &Reading,
    to: &mpsc::Sender<Keys>,
) -> Result<()> {
    let field_ids: Vec<i32> = plan.field_ids().collect();
    let mut columns = KeyColumns::open(storage, &file.path, file.bytes, &field_ids).await?;
    let mut bytes = Vec::new();
    while let Some((first, columns)) = columns.next().await? {
        let count = columns.first().map_or(0, |column| column.len());
        let rows = plan.rows(&columns).map_err(|error| foreign(error, file))?;
        let mut keys = Vec::with_capacity(count);
        for row in 0..count {
            let key = rows.encode(row, &mut bytes);
            let key = key.map_err(|error| foreign(error, file))?;
            keys.push(hasher.number(key)?);
        }
        if to.send(Ok((first, keys))).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// A value of another writer that is no key stops the table: its row could never be found.
fn foreign(error: SinkError, file: &Reading) -> SinkError {
    unreadable(&file.path).caused_by(error)
}
