//! How many manifests a process reads, or looks for, at the same time, and how many tables it
//! commits.
//!
//! Once an interval the segments of all tasks and tables come together at who commits for all:
//! 48 workers of 4 tasks have 3,840 of them for 20 tables, and each is read once and looked for
//! once. Few at a time would take longer than the interval; all at once would take the memory and
//! the connections of everything else. One table has only so many turns of them, so that those of a
//! table whose store hangs leave some for the others.
//!
//! The commits of many tables are due at the same moment, for they share their interval. A catalog
//! that gets 500 requests at once makes most of them wait, and their clients wait no longer than a
//! minute.

use std::sync::Arc;

use frazil_core::limits::{COMMITS_AT_ONCE, MANIFEST_MERGES, MANIFEST_TABLE_TURNS, MANIFEST_TURNS};
use once_cell::sync::Lazy;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that are read in one turn; a larger manifest takes several.
const TURN_BYTES: u64 = 1 << 20;

/// The turns of one table, and what it shares with the others of its process.
#[derive(Debug, Clone)]
pub(crate) struct Looks {
    process: Arc<Semaphore>,
    table: Arc<Semaphore>,
    merges: Arc<Semaphore>,
    commits: Arc<Semaphore>,
}

/// A manifest may be looked at, for as long as this lives.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn {
    // Semaphores that are never closed give a permit always.
    _table: Option<OwnedSemaphorePermit>,
    _process: Option<OwnedSemaphorePermit>,
}

impl Default for Looks {
    fn default() -> Self {
        Looks {
            process: Arc::new(Semaphore::new(MANIFEST_TURNS)),
            table: Arc::new(Semaphore::new(MANIFEST_TABLE_TURNS)),
            merges: Arc::new(Semaphore::new(MANIFEST_MERGES)),
            commits: Arc::new(Semaphore::new(COMMITS_AT_ONCE)),
        }
    }
}

impl Looks {
    /// Returns the turns of a connector. All connectors of a process merge manifests in turn: the memory
    /// that it takes is the process's.
    pub(crate) fn of_a_connector() -> Self {
        static MERGES: Lazy<Arc<Semaphore>> = Lazy::new(|| Looks::default().merges);
        Looks {
            merges: Arc::clone(&MERGES),
            ..Looks::default()
        }
    }

    /// Returns the turns of another table of the connector.
    #[must_use]
    pub(crate) fn of_another_table(&self) -> Self {
        Looks {
            process: Arc::clone(&self.process),
            merges: Arc::clone(&self.merges),
            commits: Arc::clone(&self.commits),
            ..Looks::default()
        }
    }

    /// Returns whether manifests may be merged now: for as long as what is returned lives.
    pub(super) fn merge(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.merges).try_acquire_owned().ok()
    }

    /// Waits for a turn to ask the catalog for a table or a commit, and does `work` then.
    pub(super) async fn in_turn<T>(&self, work: impl Future<Output = T>) -> T {
        // A semaphore that is never closed gives a permit always.
        let _turn = self.commits.acquire().await;
        work.await
    }

    /// Waits for a turn to read `bytes`; none when the file is only looked for.
    pub(crate) async fn turn(&self, bytes: u64) -> Turn {
        let most = MANIFEST_TABLE_TURNS as u64;
        let turns = (bytes / TURN_BYTES).saturating_add(1).min(most) as u32;
        let table = Arc::clone(&self.table).acquire_many_owned(turns).await;
        let process = Arc::clone(&self.process).acquire_many_owned(turns).await;
        Turn {
            _table: table.ok(),
            _process: process.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Takes turns until there are none.
    fn take(looks: &Looks, bytes: u64) -> Vec<Turn> {
        std::iter::from_fn(|| looks.turn(bytes).now_or_never()).collect()
    }

    // Promise: A table whose store hangs leaves other tables turns to read manifests, and large manifests are read fewer at a time.
    #[test]
    fn a_table_takes_only_its_own_turns() {
        let looks = Looks::default();
        let first = take(&looks, 0);
        assert_eq!(first.len(), MANIFEST_TABLE_TURNS);
        let other = looks.of_another_table();
        assert_eq!(take(&other, 0).len(), MANIFEST_TABLE_TURNS);
        assert_eq!(take(&other, 7 << 20).len(), 2, "eight turns each");
        assert_eq!(take(&other, u64::MAX).len(), 1);
        let all: Vec<_> = (0..20)
            .map(|_| looks.of_another_table())
            .flat_map(|table| take(&table, 0))
            .collect();
        assert_eq!(all.len() + first.len(), MANIFEST_TURNS);
        drop(all);
        assert_eq!(take(&other, 0).len(), MANIFEST_TABLE_TURNS);
    }

    // Promise: However many tables are due at once, a process has at most 64 commits with the catalog at a time.
    #[tokio::test]
    async fn so_many_commits_are_made_at_once() {
        let looks = Looks::default();
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let tables: Vec<Looks> = (0..500).map(|_| looks.of_another_table()).collect();
        let commits = tables.iter().map(|table| {
            table.in_turn(async {
                let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                most.fetch_max(now, Ordering::Relaxed);
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::Relaxed);
            })
        });
        futures::future::join_all(commits).await;
        assert_eq!(most.into_inner(), COMMITS_AT_ONCE);
    }
}
