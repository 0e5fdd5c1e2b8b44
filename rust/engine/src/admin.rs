//! Offset resets and epochs: what the connector itself, not one of its tasks, asks of the tables.
//!
//! A reset is one property, the anchor, on every table of the connector. It is written in any
//! order and by anyone who finds a table without the newest one, so a reset that was cut off in the
//! middle is completed by the next call. No snapshot changes, and no offset in a table moves before
//! the first commit of a task of the new epoch.

mod homes;
mod states;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frazil_core::commit::anchor::{Anchor, ResetOffsets, anchor_key};
use frazil_core::commit::home::home_key;
use frazil_core::commit::location::Keep;
use frazil_core::commit::plan::CommitIdentity;
use frazil_core::commit::recover::stored_state_of;
use frazil_core::commit::state::{MAIN_BRANCH, WriterState};
use frazil_core::config::{SinkConfig, TableConfig};
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::{Effects, Request};
use frazil_core::{ErrorKind, Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::{TableRequirement, TableUpdate};
use uuid::Uuid;

pub use states::{Repair, TableState};

use crate::catalog::{self, Catalog, CommitOutcome, LoadedTable, TableCommit};
use crate::commit::{carry, now_ms, pause};
use crate::runtime::Runtime;
use crate::{failpoint, logs, preflight};

/// How long a reset may take. Connect's REST gives up after 90 s.
const RESET_WAIT: Duration = Duration::from_secs(60);
/// How long the epoch may take: the worker's own thread waits for it.
const EPOCH_WAIT: Duration = Duration::from_secs(30);
/// Tables that are asked at the same time.
const TABLES_AT_ONCE: usize = 8;
/// How many tables of others are loaded to find the connector's own.
const TABLES_LISTED_MAX: usize = 10_000;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The connector's access to the offsets in its tables.
#[derive(Debug)]
pub struct Admin {
    config: SinkConfig,
    runtime: Arc<Runtime>,
    catalog: Arc<dyn Catalog>,
    /// Tables loaded to find the connector's own.
    loaded: AtomicUsize,
    /// Those of them that could not be read, and so may be the connector's all the same.
    unread: AtomicUsize,
}

/// A table that exists, with the resets that it knows.
struct Known {
    table: TableConfig,
    anchor: Anchor,
    /// The epoch of the last commit of this writer.
    epoch: u64,
    /// Whether it says that it knows the resets of all tables.
    is_home: bool,
}

impl Admin {
    /// Reads the configuration and prepares for the catalog; asks nothing yet.
    ///
    /// # Errors
    ///
    /// `CONFIG_INVALID`, or what the catalog's settings are refused with.
    pub fn open(settings: &BTreeMap<String, String>) -> Result<Arc<Admin>> {
        logs::install();
        let config = preflight::start(settings)?;
        let runtime = Runtime::shared()?;
        let opening = async { catalog::open(&config.catalog) };
        let catalog = runtime.wait("opening the catalog", EPOCH_WAIT, opening)?;
        Ok(Arc::new(Admin {
            config,
            runtime,
            catalog,
            loaded: AtomicUsize::new(0),
            unread: AtomicUsize::new(0),
        }))
    }

    /// Returns how many tables were loaded since it was opened: what the questions asked of it cost the
    /// catalog.
    pub fn tables_loaded(&self) -> usize {
        self.loaded.load(Ordering::Relaxed)
    }

    /// Answers a control request with effects: kinds ALTER_OFFSETS and EPOCH.
    ///
    /// # Errors
    ///
    /// As [`Admin::reset`] and [`Admin::epoch`].
    pub fn control(&self, request: &[u8]) -> Result<Vec<u8>> {
        let epoch = match Request::decode(request)? {
            Request::AlterOffsets(offsets) => self.reset(offsets)?,
            Request::Epoch => self.epoch()?,
            _ => {
                return Err(SinkError::internal(
                    "a task's request was sent to a handle that is no task's",
                ));
            }
        };
        let epoch = i64::try_from(epoch).map_err(|_| SinkError::internal("epoch overflow"))?;
        let mut effects = Effects {
            durable: vec![(TopicPartition::new("", 0), epoch)],
            ..Effects::default()
        };
        logs::drain_into(&mut effects);
        Ok(effects.encode())
    }

    /// Makes tasks that start from now on read `offsets` again, from the beginning where the
    /// offset is `None`, and every partition when there are none at all. Returns the new epoch, or
    /// the one there is when this very reset was made before and no task has followed it.
    ///
    /// # Errors
    ///
    /// `OFFSETS_INVALID`; `RESET_CONFLICT` when another reset is made at the same time; what the
    /// catalog says. The reset may then stand on some of the tables: make it again.
    pub fn reset(
        &self,
        offsets: impl IntoIterator<Item = (TopicPartition, Option<i64>)>,
    ) -> Result<u64> {
        let offsets = ResetOffsets::new(offsets)?;
        self.runtime
            .wait("resetting offsets", RESET_WAIT, self.write_reset(offsets))
    }

    async fn write_reset(&self, offsets: ResetOffsets) -> Result<u64> {
        let known = self.known().await?;
        let (mut anchor, seen) = newest(&known);
        if known.is_empty() {
            // No table has an offset that could be reset.
            return Ok(0);
        }
        let at_ms = now_ms();
        let is_new = anchor.append(offsets, at_ms, seen);
        self.leave_homes(&known).await?;
        self.spread(&known, &anchor).await?;
        // Two resets at the same time overwrite each other: both have to look.
        let named = self.named().await?;
        let tables = named.len();
        let known = self.known_of(named).await?;
        if let Some(other) = known.iter().find(|known| known.anchor != anchor) {
            return Err(reset_conflict().with("table", &other.table.name));
        }
        self.settle_homes_of_all(tables, &known, anchor.epoch())
            .await;
        tracing::info!(connector = %self.config.connector, wid = %self.config.wid,
            epoch = anchor.epoch(), new = is_new, "offsets reset");
        Ok(anchor.epoch())
    }

    /// Returns the epoch of tasks that start now: the highest that any table knows. Completes a
    /// reset that did not reach every table. Of many tables that records have named only a few are
    /// asked, when the newest reset is known to have reached all.
    ///
    /// # Errors
    ///
    /// What the catalog says; never a guess.
    pub fn epoch(&self) -> Result<u64> {
        self.runtime
            .wait("asking for the writer epoch", EPOCH_WAIT, async {
                let mut named = self.named().await?;
                let looked = self.look_for_a_home(&named).await?;
                if let Some(epoch) = looked.epoch {
                    return Ok(epoch);
                }
                let tables = named.len();
                require_few(tables, self.config.routes.tables_max)?;
                let mut known = looked.known;
                known.extend(self.known_of(named.split_off(looked.tables)).await?);
                let (anchor, seen) = newest(&known);
                self.spread(&known, &anchor).await?;
                if seen <= anchor.epoch() {
                    for known in &mut known {
                        known.anchor = anchor.clone();
                    }
                    self.settle_homes_of_all(tables, &known, anchor.epoch())
                        .await;
                }
                Ok(anchor.epoch().max(seen))
            })
    }

    /// Loads the connector's tables, as far as they exist.
    async fn known(&self) -> Result<Vec<Known>> {
        self.known_of(self.named().await?).await
    }

    async fn known_of(&self, named: Vec<TableConfig>) -> Result<Vec<Known>> {
        require_few(named.len(), self.config.routes.tables_max)?;
        let look = |table, loaded: &LoadedTable| self.know(table, loaded);
        let mut known = self.each_fixed(look).await?;
        known.extend(self.each(named, look).await?);
        Ok(known)
    }

    /// Lists the tables that records may have named, in the order in which a start looks at them.
    async fn named(&self) -> Result<Vec<TableConfig>> {
        let mut named = Vec::new();
        if let Some(dynamic) = &self.config.dynamic {
            for below in dynamic.plan().namespaces() {
                for ident in self.catalog.list_tables(&below).await? {
                    named.extend(dynamic.at(&ident));
                }
            }
        }
        homes::in_order(&mut named);
        Ok(named)
    }

    /// Looks at the tables of the configuration, and at those that records have named: there the
    /// connector has left its traces.
    async fn each_table<T>(
        &self,
        look: impl Fn(TableConfig, &LoadedTable) -> Result<T>,
    ) -> Result<Vec<T>> {
        let named = self.named().await?;
        require_few(named.len(), self.config.routes.tables_max)?;
        let mut found = self.each_fixed(&look).await?;
        found.extend(self.each(named, look).await?);
        Ok(found)
    }

    async fn each_fixed<T>(
        &self,
        look: impl Fn(TableConfig, &LoadedTable) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.look_at(self.config.tables.clone(), true, look).await
    }

    async fn each<T>(
        &self,
        named: Vec<TableConfig>,
        look: impl Fn(TableConfig, &LoadedTable) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.look_at(named, false, look).await
    }

    /// Loads `tables` and keeps of each what `look` makes of it.
    async fn look_at<T>(
        &self,
        tables: Vec<TableConfig>,
        is_ours: bool,
        look: impl Fn(TableConfig, &LoadedTable) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut loading = futures::stream::iter(tables)
            .map(|table| self.load_if_ours(table, is_ours))
            .buffered(TABLES_AT_ONCE);
        let mut found = Vec::new();
        while let Some(next) = loading.try_next().await? {
            let Some((table, loaded)) = next else {
                continue;
            };
            let name = table.name.clone();
            found.push(look(table, &loaded).map_err(|error| error.with("table", name))?);
        }
        Ok(found)
    }

    async fn load_if_ours(
        &self,
        table: TableConfig,
        is_ours: bool,
    ) -> Result<Option<(TableConfig, LoadedTable)>> {
        self.loaded.fetch_add(1, Ordering::Relaxed);
        let loaded = match self.catalog.load_table(&table.ident).await {
            Ok(loaded) => loaded,
            Err(error) if error.code() == "TABLE_NOT_FOUND" => return Ok(None),
            // What is not ours may be what we cannot read.
            Err(error) if !is_ours && error.kind() != ErrorKind::Retriable => {
                self.unread.fetch_add(1, Ordering::Relaxed);
                return Ok(None);
            }
            Err(error) => return Err(error.with("table", &table.name)),
        };
        if is_ours || has_traces(&loaded, &self.config.wid) {
            return Ok(Some((table, loaded)));
        }
        Ok(None)
    }

    fn know(&self, table: TableConfig, loaded: &LoadedTable) -> Result<Known> {
        let state = stored_state_of(&loaded.metadata, &self.config.wid, &table.branch);
        let epoch = match state {
            Ok(state) => state.map_or(0, |state| state.epoch),
            // A reset is the remedy for these, so they must not stand in its way; the epoch of
            // such a state is that of some reset, and other tables or the anchor know it.
            Err(error) if matches!(error.code(), "STATE_LOST" | "STATE_INVALID") => 0,
            Err(error) => return Err(error),
        };
        Ok(Known {
            table,
            anchor: Anchor::of(&loaded.metadata, &self.config.wid)?,
            epoch,
            is_home: (loaded.metadata.properties()).contains_key(&home_key(&self.config.wid)),
        })
    }

    /// Writes `anchor` on every table that has another one.
    async fn spread(&self, known: &[Known], anchor: &Anchor) -> Result<()> {
        futures::stream::iter(known.iter().filter(|table| table.anchor != *anchor))
            .map(|known| async move {
                self.write(&known.table, anchor)
                    .await
                    .map_err(|error| error.with("table", &known.table.name))
            })
            .buffer_unordered(TABLES_AT_ONCE)
            .try_collect::<()>()
            .await
    }

    /// Writes `anchor` on one table, however often other writers win the race for it.
    async fn write(&self, table: &TableConfig, anchor: &Anchor) -> Result<()> {
        let wid = &self.config.wid;
        let mut refused = false;
        for attempt in 1.. {
            let loaded = match self.catalog.load_table(&table.ident).await {
                Err(error) if error.code() == "TABLE_NOT_FOUND" => return Ok(()),
                loaded => loaded?,
            };
            let now = Anchor::of(&loaded.metadata, wid)?;
            if now == *anchor {
                return Ok(());
            }
            if now.epoch() >= anchor.epoch() {
                return Err(reset_conflict());
            }
            // Where the table keeps the offsets, or in a property if the catalog stores it.
            let keep = self.keep(table, &loaded);
            let may_carry = keep == Keep::Both && !refused;
            failpoint::pass("reset.before-anchor")?;
            let commit = match keep == Keep::Summary || refused {
                true => self.carried(table, &loaded, anchor, Keep::Summary).await?,
                false => self.anchored(table, &loaded, anchor).await?,
            };
            match self.catalog.commit(&loaded, commit).await {
                // A property that the catalog throws away is no reset.
                CommitOutcome::Committed(after) if Anchor::of(&after.metadata, wid)? == *anchor => {
                    failpoint::pass("reset.after-anchor")?;
                    return Ok(());
                }
                CommitOutcome::Committed(_)
                | CommitOutcome::Refused(_)
                | CommitOutcome::Unauthorized(_)
                    if may_carry =>
                {
                    refused = true;
                }
                CommitOutcome::Committed(_) => return Err(not_stored()),
                CommitOutcome::Refused(error) | CommitOutcome::Unauthorized(error) => {
                    return Err(error);
                }
                CommitOutcome::Conflict(error) | CommitOutcome::Unknown(error) => {
                    tracing::info!(table = %table.ident, code = error.code(),
                        "the reset is written anew");
                    self.pause(attempt).await;
                }
            }
        }
        Ok(())
    }

    async fn pause(&self, attempt: u32) {
        tokio::time::sleep(pause(attempt, PAUSE_MIN, PAUSE_MAX)).await;
    }

    /// Returns where a change of the table's offsets goes; where they are not known, as with the first
    /// commit.
    fn keep(&self, table: &TableConfig, loaded: &LoadedTable) -> Keep {
        let state = stored_state_of(&loaded.metadata, &self.config.wid, &table.branch);
        let location = self.config.control.state_location;
        location.keep(state.ok().flatten().as_ref())
    }

    /// Builds the commit that leaves the resets in a property. Where this writer has committed it moves
    /// the branch, too: a commit of a task that has not heard of the reset may be on its way, and
    /// a property alone would not keep the catalog from accepting it.
    async fn anchored(
        &self,
        table: &TableConfig,
        loaded: &LoadedTable,
        anchor: &Anchor,
    ) -> Result<TableCommit> {
        let wid = &self.config.wid;
        let updates = [(anchor_key(wid), anchor.write()?)].into();
        let update = TableUpdate::SetProperties { updates };
        let stored = stored_state_of(&loaded.metadata, wid, &table.branch);
        let has_committed = match &stored {
            Ok(state) => state.is_some(),
            Err(_) => anchor.begins_anew(),
        };
        if !has_committed {
            return Ok(request(loaded, update));
        }
        let carried = self.carried(table, loaded, anchor, Keep::Property);
        let mut commit = carried.await?;
        commit.updates.push(update);
        Ok(commit)
    }

    /// Builds the commit without rows that leaves the offsets as they are where `keep` says, and the
    /// resets beside them in a summary.
    async fn carried(
        &self,
        table: &TableConfig,
        loaded: &LoadedTable,
        anchor: &Anchor,
        keep: Keep,
    ) -> Result<TableCommit> {
        let uuid = loaded.metadata.uuid();
        let state = match stored_state_of(&loaded.metadata, &self.config.wid, &table.branch) {
            Ok(state) => state.unwrap_or_else(|| WriterState::new(uuid)),
            // Whatever it was, nothing of it counts.
            Err(_) if anchor.begins_anew() => WriterState::new(uuid),
            Err(error) => return Err(error),
        };
        carry(loaded, &self.identity(table), state, anchor, keep).await
    }

    fn identity(&self, table: &TableConfig) -> CommitIdentity {
        CommitIdentity {
            wid: self.config.wid.clone(),
            connector: self.config.connector.clone(),
            // No committer did it.
            hub_id: String::new(),
            branch: table.branch.clone(),
            state_bytes_max: self.config.control.state_bytes_max,
        }
    }
}

/// Tells whether a table has properties or snapshots of the writer `wid`.
fn has_traces(loaded: &LoadedTable, wid: &str) -> bool {
    let metadata = &loaded.metadata;
    let has_wid = |key: &String| key.starts_with("frazil.") && key.contains(wid);
    let in_summary = metadata.snapshots().any(|snapshot| {
        let properties = &snapshot.summary().additional_properties;
        properties.keys().any(has_wid) || properties.values().any(|value| value == wid)
    });
    metadata.properties().keys().any(has_wid) || in_summary
}

/// Returns the anchor with the highest epoch, and the highest epoch of a commit.
fn newest(known: &[Known]) -> (Anchor, u64) {
    let anchor = known
        .iter()
        .map(|table| &table.anchor)
        .max_by_key(|anchor| anchor.epoch());
    let seen = known.iter().map(|table| table.epoch).max();
    (anchor.cloned().unwrap_or_default(), seen.unwrap_or(0))
}

/// Builds a change of the properties of one table. Catalogs cannot assert a property, so the request
/// asserts what it can, and [`Admin::write_reset`] reads again.
fn request(loaded: &LoadedTable, update: TableUpdate) -> TableCommit {
    let metadata = &loaded.metadata;
    let head = metadata.snapshot_for_ref(MAIN_BRANCH);
    TableCommit {
        requirements: vec![
            TableRequirement::UuidMatch {
                uuid: metadata.uuid(),
            },
            TableRequirement::RefSnapshotIdMatch {
                r#ref: MAIN_BRANCH.to_owned(),
                snapshot_id: head.map(|snapshot| snapshot.snapshot_id()),
            },
        ],
        updates: vec![update],
        idempotency_key: Uuid::now_v7(),
    }
}

fn not_stored() -> SinkError {
    SinkError::fatal(
        "STATE_NOT_STORED",
        "the catalog took a change of the table without its properties; set `frazil.state.location=summary`, which keeps the offsets in the snapshots",
    )
}

/// Refuses to load more tables than a start can: `allowed` are those of one worker.
fn require_few(found: usize, allowed: usize) -> Result<()> {
    let most = allowed.max(TABLES_LISTED_MAX);
    if found <= most {
        return Ok(());
    }
    Err(SinkError::config(
        "CATALOG_LISTING_TOO_LONG",
        "the catalog has too many tables to look through for those of this connector; name theirs, \
         or their namespaces, in `iceberg.tables.dynamic-allow`",
    )
    .with("tables", found)
    .with("allowed", most))
}

fn reset_conflict() -> SinkError {
    SinkError::retriable(
        "RESET_CONFLICT",
        "another offset reset of the connector was made at the same time; make yours again",
    )
}
