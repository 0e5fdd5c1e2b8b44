//! Reads the keys of data files into an index, several files at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use frazil_core::change::KeyPlan;
use frazil_core::delete::DeletionVector;
use frazil_core::index::catch_up::{CatchUp, Caught};
use frazil_core::index::follow::NewFile;
use frazil_core::index::{Index, KeyHasher, KeyNumber};
use frazil_core::limits::INDEX_READS;
use frazil_core::{Result, SinkError};
use tokio::sync::mpsc;

use super::keys::{KeyColumns, unreadable};
use crate::storage::TableStorage;

/// Batches of keys of one file that are read ahead: 4 files of them are 33 MB.
const BATCHES_AHEAD: usize = 64;

/// A data file whose keys are to be read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) file: NewFile,
    /// Its length.
    pub(crate) bytes: u64,
}

/// How keys are read.
pub(crate) struct Reader<'a> {
    pub(crate) storage: &'a TableStorage,
    pub(crate) plan: &'a Arc<KeyPlan>,
    pub(crate) hasher: &'a KeyHasher,
}

type Keys = Result<(u64, Vec<KeyNumber>)>;

/// Puts the keys of `files`, the oldest first, into `index`, which has these files already. Rows that
/// `vectors` has, by the number of their file, are left out. `check` is asked every now and then
/// whether an index of so many bytes may go on growing.
///
/// # Errors
///
/// What a file or the store says, or what `check` says; some of the keys are in the index then.
pub(crate) async fn catch_up(
    reader: &Reader<'_>,
    index: &mut Index,
    files: Vec<Reading>,
    vectors: &BTreeMap<u32, &DeletionVector>,
    check: impl Fn(usize) -> Result<()>,
) -> Result<Caught> {
    let mut catch = CatchUp::new(index, |number| vectors.get(&number).copied());
    let mut files = files.into_iter();
    let mut running = VecDeque::new();
    loop {
        while running.len() < INDEX_READS {
            let Some(file) = files.next() else {
                break;
            };
            running.push_back((file.file.clone(), reader.begin(file)));
        }
        let Some((file, mut keys)) = running.pop_front() else {
            break;
        };
        let mut rows = 0;
        while let Some(batch) = keys.recv().await {
            let (first, keys) = batch?;
            let first = u32::try_from(first).map_err(|_| unreadable(&file.path))?;
            rows += keys.len() as u64;
            if catch.add(file.number, first, &keys)? {
                check(catch.heap_bytes())?;
            }
        }
        if rows != file.rows {
            return Err(unreadable(&file.path)
                .with("rows", rows)
                .with("expected", file.rows));
        }
    }
    catch.finish()
}

impl Reader<'_> {
    /// Begins to read a file, as far ahead as there is room for.
    fn begin(&self, file: Reading) -> mpsc::Receiver<Keys> {
        let (to, keys) = mpsc::channel(BATCHES_AHEAD);
        let (storage, plan) = (self.storage.clone(), Arc::clone(self.plan));
        let hasher = self.hasher.clone();
        tokio::spawn(async move {
            let read = send_keys(&storage, &plan, &hasher, &file, &to).await;
            if let Err(error) = read {
                // Without a receiver nobody needs to know.
                let _ = to.send(Err(error)).await;
            }
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
    let mut columns = KeyColumns::open(storage, &file.file.path, file.bytes, &field_ids).await?;
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
    unreadable(&file.file.path).caused_by(error)
}
