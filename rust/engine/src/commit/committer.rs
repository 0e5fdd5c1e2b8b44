//! The committer of one table and branch: what callers hold.

use std::sync::Arc;
use std::time::Duration;

use frazil_core::Result;
use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::commit::plan::{self, CommitIdentity};
use frazil_core::commit::recover::state_of;
use frazil_core::commit::state::WriterState;
use frazil_core::control::segment::Segment;
use frazil_core::limits::STATE_BYTES_MAX;
use iceberg::TableIdent;

use super::run::Run;
use super::wait::Cancel;
use crate::catalog::{Catalog, LoadedTable};

/// How long and how often the loop tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSettings {
    /// Lost races in one call before it gives up for now.
    pub conflicts_max: u32,
    /// The first pause after a lost race.
    pub conflict_pause_min: Duration,
    /// The longest pause after a lost race.
    pub conflict_pause_max: Duration,
    /// The first pause when the catalog or the storage gave no clear answer.
    pub unknown_pause_min: Duration,
    /// The longest pause when the catalog or the storage gave no clear answer.
    pub unknown_pause_max: Duration,
}

impl Default for CommitSettings {
    fn default() -> Self {
        CommitSettings {
            conflicts_max: 60,
            conflict_pause_min: Duration::from_millis(50),
            conflict_pause_max: Duration::from_secs(2),
            unknown_pause_min: Duration::from_secs(1),
            unknown_pause_max: Duration::from_secs(60),
        }
    }
}

/// Commits the segments of one writer to one branch of one table.
#[derive(Debug)]
pub struct TableCommitter {
    pub(super) catalog: Arc<dyn Catalog>,
    pub(super) ident: TableIdent,
    pub(super) identity: CommitIdentity,
    pub(super) settings: CommitSettings,
    pub(super) cancel: Cancel,
    /// One commit at a time: two of one process would only race each other.
    turn: tokio::sync::Mutex<()>,
    /// The table as it was seen last.
    latest: std::sync::Mutex<Option<LoadedTable>>,
}

impl TableCommitter {
    /// Creates a committer of writer `wid` for `branch` of the table `ident`.
    pub fn new(
        catalog: Arc<dyn Catalog>,
        ident: TableIdent,
        branch: impl Into<String>,
        wid: impl Into<String>,
        connector: impl Into<String>,
    ) -> Self {
        TableCommitter {
            catalog,
            ident,
            identity: CommitIdentity {
                wid: wid.into(),
                connector: connector.into(),
                hub_id: String::new(),
                branch: branch.into(),
                state_bytes_max: STATE_BYTES_MAX,
            },
            settings: CommitSettings::default(),
            cancel: Cancel::default(),
            turn: tokio::sync::Mutex::new(()),
            latest: std::sync::Mutex::default(),
        }
    }

    /// Sets the id of the process, which each commit leaves in the table.
    #[must_use]
    pub fn with_hub_id(mut self, hub_id: impl Into<String>) -> Self {
        self.identity.hub_id = hub_id.into();
        self
    }

    /// Sets the longest property that may hold the state.
    #[must_use]
    pub fn with_state_bytes_max(mut self, bytes: usize) -> Self {
        self.identity.state_bytes_max = bytes;
        self
    }

    /// Sets what ends the waiting of this committer.
    #[must_use]
    pub fn with_cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }

    /// Sets how long and how often the loop tries.
    #[must_use]
    pub fn with_settings(mut self, settings: CommitSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Returns the table.
    pub fn ident(&self) -> &TableIdent {
        &self.ident
    }

    /// Returns the table as the last commit left it or found it; `None` before the first.
    pub fn latest(&self) -> Option<LoadedTable> {
        self.latest
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    pub(super) fn remember(&self, table: &LoadedTable) {
        *self
            .latest
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(table.clone());
    }

    /// Returns the branch.
    pub fn branch(&self) -> &str {
        &self.identity.branch
    }

    /// Loads the table and returns it with the writer's state of the branch: where T comes from.
    pub async fn load(&self) -> Result<(LoadedTable, Option<WriterState>)> {
        let loaded = self.catalog.load_table(&self.ident).await?;
        plan::check_table(&loaded.metadata)?;
        let state = state_of(&loaded.metadata, &self.identity.wid, &self.identity.branch)?;
        Ok((loaded, state))
    }

    /// Commits `segments` and says of each, by its index, what became of it. Waits through failures
    /// of catalog and storage that may pass, until it is cancelled.
    pub async fn commit(&self, segments: Vec<Segment>) -> Vec<(usize, SegmentOutcome)> {
        let _turn = self.turn.lock().await;
        Run::new(self, &segments).outcomes().await
    }

    pub(super) fn fits(&self, segment: &Segment) -> bool {
        segment.table == self.ident && segment.branch == self.identity.branch
    }
}
