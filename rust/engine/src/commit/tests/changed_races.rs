//! A catalog between the committer and the table, in which things happen to submissions.

use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;
use frazil_core::limits::COMMITS_AT_ONCE;
use frazil_core::{Result, SinkError};

use super::changed::{Changed, Foreign, committer_of};
use super::*;
use crate::catalog::{CommitOutcome, TableCommit};
use crate::commit::Looks;

/// What happens to one submission.
#[derive(Debug)]
pub(super) enum Turn {
    Pass,
    Conflict,
    UnknownBefore,
    UnknownAfter,
    /// Held back, and applied right before the next load.
    LateBeforeLoad,
    /// Held back, and applied right before the next submission.
    LateBeforeNext,
    /// Another writer commits first.
    Foreign(Foreign),
}

/// The catalog.
#[derive(Debug)]
pub(super) struct Racing {
    inner: Arc<dyn Catalog>,
    turns: Mutex<VecDeque<Turn>>,
    held: tokio::sync::Mutex<Vec<(bool, LoadedTable, TableCommit)>>,
    pub(super) submissions: Mutex<u32>,
    /// Whose turns are all taken, by others, once the table is loaded.
    pub(super) taken: Mutex<Option<Looks>>,
    takers: Mutex<Vec<tokio::task::AbortHandle>>,
}

impl Racing {
    /// Puts one before the table of `changed`, whose committer goes through it from now on.
    pub(super) fn before(changed: &mut Changed) -> Arc<Racing> {
        let racing = Arc::new(Racing {
            inner: changed.world.catalog.clone(),
            turns: Mutex::default(),
            held: Default::default(),
            submissions: Mutex::default(),
            taken: Mutex::default(),
            takers: Mutex::default(),
        });
        changed.committer = committer_of(racing.clone(), &changed.world.ident);
        racing
    }

    /// Says what happens to the next submissions.
    pub(super) fn next(&self, turns: impl IntoIterator<Item = Turn>) {
        self.turns.lock().unwrap().extend(turns);
    }

    /// Tells whether everything happened that was to happen.
    pub(super) fn is_over(&self) -> bool {
        self.turns.lock().unwrap().is_empty()
    }

    /// What has not happened yet does not happen.
    pub(super) fn forget(&self) {
        self.turns.lock().unwrap().clear();
    }

    /// Lets others have all turns of the catalog, also the one of the caller when it ends.
    async fn take_turns(&self) {
        let Some(looks) = self.taken.lock().unwrap().take() else {
            return;
        };
        for _ in 0..COMMITS_AT_ONCE {
            let looks = looks.clone();
            let taker = async move { looks.in_turn(std::future::pending::<()>()).await };
            let taker = tokio::spawn(taker).abort_handle();
            self.takers.lock().unwrap().push(taker);
        }
        // On a runtime of one thread all of them have asked then.
        tokio::task::yield_now().await;
    }

    /// Gives them back.
    pub(super) fn give_turns(&self) {
        let takers = std::mem::take(&mut *self.takers.lock().unwrap());
        takers.iter().for_each(tokio::task::AbortHandle::abort);
    }

    async fn release(&self, before_load: bool) {
        let mut held = self.held.lock().await;
        let (now, later): (Vec<_>, Vec<_>) = held
            .drain(..)
            .partition(|(at_load, ..)| *at_load == before_load);
        *held = later;
        drop(held);
        for (_, base, commit) in now {
            // It may be too late for it.
            let _ = self.inner.commit(&base, commit).await;
        }
    }
}

#[async_trait]
impl Catalog for Racing {
    async fn load_table(&self, ident: &TableIdent) -> Result<LoadedTable> {
        self.release(true).await;
        self.take_turns().await;
        self.inner.load_table(ident).await
    }

    async fn commit(&self, base: &LoadedTable, commit: TableCommit) -> CommitOutcome {
        *self.submissions.lock().unwrap() += 1;
        let turn = self.turns.lock().unwrap().pop_front();
        self.release(false).await;
        let error = || SinkError::retriable("INJECTED", "injected");
        match turn.unwrap_or(Turn::Pass) {
            Turn::Pass => self.inner.commit(base, commit).await,
            Turn::Conflict => CommitOutcome::Conflict(error()),
            Turn::UnknownBefore => CommitOutcome::Unknown(error()),
            Turn::UnknownAfter => {
                // Another one that came late may have been first.
                let _ = self.inner.commit(base, commit).await;
                CommitOutcome::Unknown(error())
            }
            Turn::LateBeforeLoad => {
                self.held.lock().await.push((true, base.clone(), commit));
                CommitOutcome::Unknown(error())
            }
            Turn::LateBeforeNext => {
                self.held.lock().await.push((false, base.clone(), commit));
                CommitOutcome::Unknown(error())
            }
            Turn::Foreign(change) => {
                change.commit(&self.inner, &base.ident).await;
                self.inner.commit(base, commit).await
            }
        }
    }

    async fn create_table(&self, ident: &TableIdent, table: CreateTable) -> Result<LoadedTable> {
        self.inner.create_table(ident, table).await
    }

    async fn create_namespace(&self, namespace: &NamespaceIdent) -> Result<()> {
        self.inner.create_namespace(namespace).await
    }

    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> Result<bool> {
        self.inner.namespace_exists(namespace).await
    }

    async fn list_tables(&self, below: &[String]) -> Result<Vec<TableIdent>> {
        self.inner.list_tables(below).await
    }

    async fn drop_table(&self, ident: &TableIdent) -> Result<()> {
        self.inner.drop_table(ident).await
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}
