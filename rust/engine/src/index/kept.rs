//! What a table with changes keeps from one commit to the next, so that it need not be read again:
//! manifests that this process wrote or read itself, and the deleted rows of data files.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use frazil_core::limits::CHANGES_KEPT_BYTES_MAX;

use crate::delete::KnownDeletes;

/// What an entry takes beside its contents, about.
const ENTRY_BYTES: usize = 256;

#[derive(Debug)]
enum What {
    Manifest(Bytes),
    Deletes(KnownDeletes),
}

/// The newest of what was kept, up to a number of bytes.
#[derive(Debug)]
pub(crate) struct Kept {
    bytes_max: usize,
    bytes: usize,
    /// By the location of the manifest or data file, each with the number of its place in the queue.
    known: BTreeMap<Arc<str>, (u64, usize, What)>,
    queue: VecDeque<(u64, Arc<str>)>,
    next: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Kept::new(CHANGES_KEPT_BYTES_MAX)
    }
}

impl Kept {
    fn new(bytes_max: usize) -> Self {
        Kept {
            bytes_max,
            bytes: 0,
            known: BTreeMap::new(),
            queue: VecDeque::new(),
            next: 0,
        }
    }

    /// Returns the bytes of the manifest at `path`.
    pub(crate) fn manifest(&self, path: &str) -> Option<Bytes> {
        match self.known.get(path) {
            Some((_, _, What::Manifest(bytes))) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Returns the deleted rows of the data file at `path`, and by which delete files they are.
    pub(crate) fn deletes(&self, path: &str) -> Option<KnownDeletes> {
        match self.known.get(path) {
            Some((_, _, What::Deletes(known))) => Some(known.clone()),
            _ => None,
        }
    }

    pub(crate) fn keep_manifest(&mut self, path: &str, bytes: Bytes) {
        let length = bytes.len();
        self.keep(Arc::from(path), length, What::Manifest(bytes));
    }

    pub(crate) fn keep_deletes(&mut self, path: Arc<str>, known: KnownDeletes) {
        let length = known.vector.memory_bytes();
        self.keep(path, length, What::Deletes(known));
    }

    /// Returns about how many bytes of memory are used.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    fn keep(&mut self, path: Arc<str>, length: usize, what: What) {
        self.forget(&path);
        let bytes = length + 2 * path.len() + ENTRY_BYTES;
        if bytes > self.bytes_max {
            return;
        }
        self.bytes += bytes;
        self.known
            .insert(Arc::clone(&path), (self.next, bytes, what));
        self.queue.push_back((self.next, path));
        self.next += 1;
        while self.bytes > self.bytes_max || self.queue.len() > 2 * self.known.len() + 16 {
            let Some((number, path)) = self.queue.pop_front() else {
                break;
            };
            // It may have been kept anew since.
            let is_meant = self
                .known
                .get(&path)
                .is_some_and(|(own, ..)| *own == number);
            if is_meant {
                self.forget(&path);
            }
        }
    }

    fn forget(&mut self, path: &str) {
        if let Some((_, bytes, _)) = self.known.remove(path) {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Bytes {
        Bytes::from(vec![0; length])
    }

    #[test]
    fn the_newest_are_kept_within_the_limit() {
        let mut kept = Kept::new(3 * (ENTRY_BYTES + 100));
        for path in ["a", "b", "c"] {
            kept.keep_manifest(path, bytes(90));
        }
        assert!(kept.manifest("a").is_some());
        kept.keep_manifest("a", bytes(91));
        kept.keep_manifest("d", bytes(90));
        assert!(kept.manifest("b").is_none(), "the oldest");
        assert_eq!(kept.manifest("a").unwrap().len(), 91);
        assert!(kept.deletes("a").is_none(), "it is a manifest");
        kept.keep_manifest("large", bytes(9_000));
        assert!(kept.manifest("large").is_none());
        assert!(kept.memory_bytes() <= 3 * (ENTRY_BYTES + 100));
        for _ in 0..1_000 {
            kept.keep_manifest("d", bytes(1));
        }
        assert!(kept.queue.len() < 50 && kept.manifest("d").is_some());
    }
}
