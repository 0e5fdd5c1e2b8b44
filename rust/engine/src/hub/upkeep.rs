//! Looks after the files of a table now and then, beside its commits.
//!
//! Nothing that goes wrong here stops a task: it is logged, counted, and tried again after the next
//! interval.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use frazil_core::Result;
use frazil_core::config::TableConfig;
use frazil_core::metrics::TableMetric;
use frazil_core::panics::panic_error;
use futures::FutureExt;
use once_cell::sync::Lazy;
use tokio::sync::Semaphore;

use super::Hub;
use super::table::TableHub;
use crate::maintain::{GroupOutcome, Maintenance, Pace, Report, run};
use crate::memory::Memory;

/// Files of the last commits that are left alone: changes reach them most.
const HOT_COMMITS: i64 = 2;
/// Hundredths of the time that is worked.
const SHARE: u32 = 50;

/// All tables of a process are looked after one after another.
static TURN: Lazy<Semaphore> = Lazy::new(|| Semaphore::new(1));

/// Looks after one table.
pub(super) struct Keeper {
    pub(super) hub: Weak<Hub>,
    pub(super) table: Arc<TableHub>,
    pub(super) config: TableConfig,
    pub(super) interval: Duration,
}

impl Keeper {
    pub(super) async fn run(self) {
        let committer = self.table.committer();
        // As of which snapshot there is nothing to do.
        let mut seen = None;
        loop {
            let waiting = tokio::time::sleep(self.interval);
            if committer.cancel_or(waiting).await.is_none() || self.hub.strong_count() == 0 {
                return;
            }
            let sequence = || {
                let latest = committer.latest()?;
                Some(latest.metadata.last_sequence_number())
            };
            // A table that this process does not commit is somebody else's to look after.
            if !self.table.is_owner() || sequence().is_none() || sequence() == seen {
                continue;
            }
            // A semaphore that is never closed gives a permit always.
            let Some(_turn) = committer.cancel_or(TURN.acquire()).await else {
                return;
            };
            seen = sequence();
            let busy = Arc::clone(&self.table);
            let maintenance = Maintenance {
                config: self.config.clone(),
                hot_commits: HOT_COMMITS,
                dry_run: false,
                pace: Pace::beside(SHARE, move || busy.committer().is_committing()),
                memory: Memory::of_process(),
            };
            let running = AssertUnwindSafe(run(committer, &maintenance)).catch_unwind();
            let ran = running.await;
            let ran = ran.unwrap_or_else(|panic| Err(panic_error(&*panic, None)));
            self.count(&ran);
            if ran.is_ok_and(|report| report.done() > 0) {
                // What it has done itself is nothing new.
                seen = sequence();
            }
        }
    }

    fn count(&self, ran: &Result<Report>) {
        let metrics = self.table.metrics();
        metrics.add(TableMetric::MaintenanceRuns, 1);
        let report = match ran {
            Ok(report) => report,
            Err(error) => {
                metrics.add(TableMetric::MaintenanceFailures, 1);
                tracing::warn!(table = %self.config.name, code = error.code(),
                    reason = %error.report(), "the files of the table cannot be looked after now");
                return;
            }
        };
        if let Some(why) = report.skipped {
            tracing::warn!(table = %self.config.name, "the files of the table are not looked after: {why}");
        }
        for one in &report.groups {
            match &one.outcome {
                GroupOutcome::Done { .. } => {
                    metrics.add(TableMetric::FilesCompacted, one.group.files.len() as u64);
                    metrics.add(TableMetric::BytesCompacted, one.group.bytes);
                }
                GroupOutcome::Failed(_) => metrics.add(TableMetric::MaintenanceFailures, 1),
                GroupOutcome::Planned | GroupOutcome::Dropped(_) => {}
            }
        }
    }
}
