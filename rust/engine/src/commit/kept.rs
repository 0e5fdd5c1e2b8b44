//! What a committer keeps from one commit of its table to the next, so that it asks neither catalog
//! nor storage for what it has just written itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use frazil_core::limits::{LISTS_KEPT_BYTES_MAX, SEEN_SEGMENTS_MAX};
use uuid::Uuid;

/// How long a manifest that was seen in the storage need not be looked for. A look just before the
/// request says as little of the time after it.
const SEEN_FOR: Duration = Duration::from_secs(2);

/// What a process knows of the manifests of a segment, for it has written or read them itself.
#[derive(Debug, Clone, Copy)]
pub struct Sight {
    /// They were all in the storage then, or later.
    pub at: Instant,
    /// The newest schema that their files were written with.
    pub schema_id: i32,
}

impl Sight {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < SEEN_FOR
    }
}

/// The segments of which that is known.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<BTreeMap<(Uuid, u64), Sight>>);

impl Seen {
    /// Takes in what is known of the segment `seq` of `session`.
    pub(super) fn add(&self, session: Uuid, seq: u64, sight: Sight) {
        let mut seen = lock(&self.0);
        if seen.len() >= SEEN_SEGMENTS_MAX {
            seen.retain(|_, sight| sight.is_fresh());
        }
        if seen.len() < SEEN_SEGMENTS_MAX {
            seen.insert((session, seq), sight);
        }
    }

    /// Forgets the segments of `session`.
    pub(super) fn forget(&self, session: Uuid) {
        lock(&self.0).retain(|(of, _), _| *of != session);
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Returns the number of segments.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Returns the newest schema of its files, if that is known.
    pub(super) fn schema(&self, session: Uuid, seq: u64) -> Option<i32> {
        lock(&self.0)
            .get(&(session, seq))
            .map(|sight| sight.schema_id)
    }

    /// Tells whether its manifests need not be looked for, and forgets them.
    pub(super) fn take(&self, session: Uuid, seq: u64) -> bool {
        let sight = lock(&self.0).remove(&(session, seq));
        sight.is_some_and(|sight| sight.is_fresh())
    }
}

/// The manifest lists of the tables of a process that their next commits go on with, as far as they
/// are small enough to be kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lists {
    held: Arc<AtomicUsize>,
}

impl Lists {
    /// Returns the place for the list of one table.
    pub(super) fn of_a_table(&self) -> KeptList {
        KeptList {
            held: Arc::clone(&self.held),
            list: Mutex::default(),
        }
    }
}

/// The manifest list that a table's last commit wrote.
#[derive(Debug)]
pub(super) struct KeptList {
    held: Arc<AtomicUsize>,
    list: Mutex<Option<(String, Bytes)>>,
}

impl KeptList {
    /// Keeps the list at `location` in place of the one before, if there is room.
    pub(super) fn set(&self, location: String, bytes: Bytes) {
        let mut list = lock(&self.list);
        self.let_go(&mut list);
        let before = self.held.fetch_add(bytes.len(), Ordering::Relaxed);
        if before.saturating_add(bytes.len()) > LISTS_KEPT_BYTES_MAX {
            self.held.fetch_sub(bytes.len(), Ordering::Relaxed);
            return;
        }
        *list = Some((location, bytes));
    }

    /// Returns the list at `location`, if that is the one that is kept.
    pub(super) fn get(&self, location: &str) -> Option<Bytes> {
        let list = lock(&self.list);
        let (_, bytes) = list.as_ref().filter(|(kept, _)| kept == location)?;
        Some(bytes.clone())
    }

    fn let_go(&self, list: &mut Option<(String, Bytes)>) {
        if let Some((_, bytes)) = list.take() {
            self.held.fetch_sub(bytes.len(), Ordering::Relaxed);
        }
    }
}

impl Drop for KeptList {
    fn drop(&mut self) {
        let mut list = std::mem::take(&mut *lock(&self.list));
        self.let_go(&mut list);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Changed in single steps: a panic elsewhere leaves the data whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Sight {
        Sight {
            at: Instant::now(),
            schema_id: 3,
        }
    }

    fn long_ago() -> Sight {
        Sight {
            at: Instant::now().checked_sub(SEEN_FOR).unwrap(),
            ..now()
        }
    }

    #[test]
    fn a_manifest_is_seen_for_a_moment_and_once() {
        let (seen, session) = (Seen::default(), Uuid::from_u128(1));
        seen.add(session, 0, now());
        seen.add(session, 1, long_ago());
        assert_eq!(
            (seen.schema(session, 1), seen.schema(session, 2)),
            (Some(3), None)
        );
        assert!(!seen.take(session, 1), "that was long ago");
        assert!(!seen.take(Uuid::from_u128(2), 0), "another session");
        assert!(seen.take(session, 0));
        assert!(!seen.take(session, 0), "a second attempt looks");
    }

    #[test]
    fn segments_that_are_never_committed_are_forgotten() {
        let (seen, session) = (Seen::default(), Uuid::from_u128(1));
        (0..SEEN_SEGMENTS_MAX as u64).for_each(|seq| seen.add(session, seq, long_ago()));
        seen.add(session, u64::MAX, now());
        assert_eq!(lock(&seen.0).len(), 1);
        (0..SEEN_SEGMENTS_MAX as u64 + 9).for_each(|seq| seen.add(session, seq, now()));
        assert_eq!(lock(&seen.0).len(), SEEN_SEGMENTS_MAX);
    }

    #[test]
    fn segments_of_a_session_that_ended_are_forgotten() {
        let (seen, session, other) = (Seen::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        for (session, seq) in [(session, 0), (other, 0), (session, 1)] {
            seen.add(session, seq, now());
        }
        seen.forget(session);
        assert_eq!((seen.len(), seen.take(other, 0)), (1, true));
        seen.add(other, 1, now());
        seen.clear();
        assert_eq!(seen.len(), 0);
    }

    #[test]
    fn the_lists_of_a_process_share_their_room() {
        let lists = Lists::default();
        let (one, other) = (lists.of_a_table(), lists.of_a_table());
        let most = Bytes::from(vec![0; LISTS_KEPT_BYTES_MAX - 10]);
        one.set("a".into(), most.clone());
        assert_eq!(one.get("a"), Some(most));
        assert_eq!(one.get("b"), None);
        other.set("c".into(), Bytes::from(vec![0; 11]));
        assert_eq!(other.get("c"), None, "there is no room");
        other.set("c".into(), Bytes::from(vec![0; 10]));
        assert!(other.get("c").is_some());
        one.set("d".into(), Bytes::from(vec![0; 20]));
        assert_eq!(one.get("a"), None, "the one before");
        drop((one, other));
        assert_eq!(lists.held.load(Ordering::Relaxed), 0);
    }
}
