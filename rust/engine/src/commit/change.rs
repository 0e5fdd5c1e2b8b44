//! Changes of a table's metadata that other writers may race with.

use std::time::Duration;

use frazil_core::commit::outcome::has_moved;
use frazil_core::commit::plan::{CommitPlan, check_table};
use frazil_core::{ErrorKind, Result, SinkError};
use iceberg::TableIdent;
use iceberg::spec::TableMetadata;
use uuid::Uuid;

use super::wait::pause;
use crate::catalog::{Catalog, CommitOutcome, LoadedTable, TableCommit};

/// Attempts that other writers may win.
const ATTEMPTS: u32 = 20;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Changes the table by the plan that `wanted` returns for its metadata, until it returns `None`:
/// then the table is as it should be and is returned. `wanted` is asked again after every lost
/// race and every unclear answer, so it has to look at the metadata it gets.
pub async fn change_table(
    catalog: &dyn Catalog,
    ident: &TableIdent,
    wanted: impl FnMut(&TableMetadata) -> Result<Option<CommitPlan>>,
) -> Result<LoadedTable> {
    let lost = || {
        SinkError::retriable(
            "TABLE_CHANGE_CONFLICTS",
            "other writers won every race to change the table; try again",
        )
    };
    race(catalog, ident, wanted, lost).await
}

/// Does what [`change_table`] says; `lost` is the error when others won every race.
pub(super) async fn race(
    catalog: &dyn Catalog,
    ident: &TableIdent,
    mut wanted: impl FnMut(&TableMetadata) -> Result<Option<CommitPlan>>,
    lost: impl FnOnce() -> SinkError,
) -> Result<LoadedTable> {
    let mut refused: Option<(LoadedTable, SinkError)> = None;
    let mut last = None;
    for attempt in 1..=ATTEMPTS {
        let loaded = catalog.load_table(ident).await?;
        check_table(&loaded.metadata)?;
        let Some(plan) = wanted(&loaded.metadata)? else {
            return Ok(loaded);
        };
        if let Some((base, error)) = refused.take()
            && !has_moved(&base.metadata, &loaded.metadata)
        {
            return Err(error);
        }
        let commit = TableCommit {
            requirements: plan.requirements,
            updates: plan.updates,
            idempotency_key: Uuid::now_v7(),
        };
        match catalog.commit(&loaded, commit).await {
            CommitOutcome::Committed(loaded) => return Ok(loaded),
            CommitOutcome::Refused(error) => refused = Some((loaded, error)),
            CommitOutcome::Unauthorized(error) => return Err(error),
            // Others won no race: the catalog or the store cannot do it.
            CommitOutcome::Conflict(error) if error.kind() != ErrorKind::Retriable => {
                return Err(error);
            }
            CommitOutcome::Conflict(error) | CommitOutcome::Unknown(error) => {
                tracing::info!(table = %ident, code = error.code(), "the change is made anew");
                tokio::time::sleep(pause(attempt, PAUSE_MIN, PAUSE_MAX)).await;
                last = Some(error);
            }
        }
    }
    let lost = lost().with("table", ident).with("attempts", ATTEMPTS);
    Err(match last.or(refused.map(|(_, error)| error)) {
        Some(last) => lost.caused_by(last),
        None => lost,
    })
}
