//! What the tables say of the connector's offsets, for people, and the repair of what they cannot
//! say any more.

use frazil_core::commit::anchor::Anchor;
use frazil_core::commit::location::{Keep, StateLocation, StoredIn};
use frazil_core::commit::recover::{rebuilt_state_of, state_of, stored_state_of};
use frazil_core::commit::state::{MAIN_BRANCH, PropertyChange, WriterState};
use frazil_core::config::TableConfig;
use frazil_core::{Result, SinkError};
use iceberg::{TableIdent, TableRequirement, TableUpdate};
use uuid::Uuid;

use super::{Admin, RESET_WAIT, not_stored};
use crate::catalog::{CommitOutcome, LoadedTable, TableCommit};
use crate::commit::carry;

/// What one table says.
#[derive(Debug)]
pub struct TableState {
    /// The table's name in the configuration.
    pub name: String,
    /// The branch.
    pub branch: String,
    /// The state as the last commit left it; `None` when this writer never committed.
    pub stored: Result<Option<WriterState>>,
    /// The state that counts, with offset resets.
    pub effective: Result<Option<WriterState>>,
    /// The resets.
    pub anchor: Result<Anchor>,
}

/// What a repair came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// There was nothing to repair.
    Sound,
    /// The property was written anew from the summaries of the snapshots.
    Rebuilt,
    /// The property was taken away and every partition reset: all of it is read again.
    Discarded,
}

impl Admin {
    /// Reads what every table of the connector says, as far as it exists.
    ///
    /// # Errors
    ///
    /// What the catalog says; a state that is not understood is part of the answer.
    pub fn states(&self) -> Result<Vec<TableState>> {
        let wid = &self.config.wid;
        let loading = self.each_table(|table, loaded| {
            let metadata = &loaded.metadata;
            Ok(TableState {
                name: table.name.clone(),
                branch: table.branch.clone(),
                stored: stored_state_of(metadata, wid, &table.branch),
                effective: state_of(metadata, wid, &table.branch),
                anchor: Anchor::of(metadata, wid),
            })
        });
        self.runtime.wait("loading the tables", RESET_WAIT, loading)
    }

    /// Puts the state of a table right: completes resets that did not reach it, and writes its
    /// property anew where it is lost or not readable. What the snapshots cannot prove is given up
    /// only with `discard`: then the connector reads everything again.
    ///
    /// # Errors
    ///
    /// `STATE_LOST` without `discard`; what the catalog says.
    pub fn repair(&self, name: &str, discard: bool) -> Result<Repair> {
        let table = self.configured(name)?;
        let table = &table;
        let Some(loaded) = self.load(table)? else {
            return Ok(Repair::Sound);
        };
        let (wid, branch) = (&self.config.wid, &table.branch);
        let rebuilt = match stored_state_of(&loaded.metadata, wid, branch) {
            Ok(None) => return Ok(Repair::Sound),
            Ok(Some(state)) if state.stored_in != StoredIn::Nowhere => return Ok(Repair::Sound),
            Ok(rebuilt) => Ok(rebuilt),
            Err(error) if matches!(error.code(), "STATE_INVALID" | "STATE_LOST") => {
                rebuilt_state_of(&loaded.metadata, wid, branch)
            }
            Err(error) => return Err(error),
        };
        match rebuilt {
            Ok(Some(state)) => {
                self.store(table, &loaded, &state)?;
                Ok(Repair::Rebuilt)
            }
            Ok(None) | Err(_) if discard => {
                self.take_away(table, &loaded)?;
                self.reset([])?;
                Ok(Repair::Discarded)
            }
            Ok(None) => Err(SinkError::fatal(
                "STATE_LOST",
                "the table property with the writer state is not readable and no snapshot is of this connector; run `frazil state repair --discard` to let it read everything again",
            )),
            Err(error) => Err(error),
        }
    }

    fn configured(&self, name: &str) -> Result<TableConfig> {
        let fixed = self.config.tables.iter().find(|table| table.name == name);
        let named = || {
            let ident = TableIdent::from_strs(name.split('.')).ok()?;
            self.config.dynamic.as_ref()?.at(&ident)
        };
        fixed.cloned().or_else(named).ok_or_else(|| {
            SinkError::config(
                "TABLE_MISSING",
                "the configuration has no such table; name one of `iceberg.tables`, or one that \
                 records may name",
            )
        })
    }

    fn load(&self, table: &TableConfig) -> Result<Option<LoadedTable>> {
        let loading = self.catalog.load_table(&table.ident);
        match self.runtime.wait("loading a table", RESET_WAIT, loading) {
            Ok(loaded) => Ok(Some(loaded)),
            Err(error) if error.code() == "TABLE_NOT_FOUND" => Ok(None),
            Err(error) => Err(error.with("table", &table.name)),
        }
    }

    /// Writes a state that was put together from many snapshots where it can be read at once.
    fn store(&self, table: &TableConfig, loaded: &LoadedTable, state: &WriterState) -> Result<()> {
        let (wid, branch) = (&self.config.wid, &table.branch);
        let location = self.config.control.state_location;
        if location != StateLocation::Summary {
            let shards = self.shards(table, loaded);
            let limit = self.config.control.state_bytes_max;
            let change = state.write_within(wid, branch, shards, limit)?;
            let changed = self.change(loaded, change).and_then(|after| {
                let stored = stored_state_of(&after.metadata, wid, branch)?;
                match stored.map(|state| state.stored_in) {
                    Some(StoredIn::Property) => Ok(()),
                    _ => Err(not_stored()),
                }
            });
            if changed.is_ok() || location == StateLocation::Property {
                return changed;
            }
        }
        let anchor = Anchor::of(&loaded.metadata, wid)?;
        let identity = self.identity(table);
        let building = carry(loaded, &identity, state.clone(), &anchor, Keep::Summary);
        let commit = self
            .runtime
            .wait("writing a commit", RESET_WAIT, building)?;
        self.submit(loaded, commit).map(drop)
    }

    fn take_away(&self, table: &TableConfig, loaded: &LoadedTable) -> Result<()> {
        let (wid, branch) = (&self.config.wid, &table.branch);
        // An empty state names every property that a full one had.
        let shards = self.shards(table, loaded);
        let empty = WriterState::new(loaded.metadata.uuid()).write(wid, branch, shards)?;
        let mut remove = empty.remove;
        remove.extend(empty.set.into_keys());
        remove.retain(|key| loaded.metadata.properties().contains_key(key));
        if remove.is_empty() {
            return Ok(());
        }
        self.change(
            loaded,
            PropertyChange {
                remove,
                ..PropertyChange::default()
            },
        )
        .map(drop)
    }

    fn shards(&self, table: &TableConfig, loaded: &LoadedTable) -> u32 {
        let stored = |key: &str| loaded.metadata.properties().contains_key(key);
        WriterState::shards(stored, &self.config.wid, &table.branch)
    }

    /// Changes properties of a table that nobody else changes meanwhile.
    fn change(&self, loaded: &LoadedTable, change: PropertyChange) -> Result<LoadedTable> {
        let metadata = &loaded.metadata;
        let head = metadata.snapshot_for_ref(MAIN_BRANCH);
        let mut updates = Vec::new();
        if !change.set.is_empty() {
            updates.push(TableUpdate::SetProperties {
                updates: change.set.into_iter().collect(),
            });
        }
        if !change.remove.is_empty() {
            updates.push(TableUpdate::RemoveProperties {
                removals: change.remove,
            });
        }
        let commit = TableCommit {
            requirements: vec![
                TableRequirement::UuidMatch {
                    uuid: metadata.uuid(),
                },
                TableRequirement::RefSnapshotIdMatch {
                    r#ref: MAIN_BRANCH.to_owned(),
                    snapshot_id: head.map(|snapshot| snapshot.snapshot_id()),
                },
            ],
            updates,
            idempotency_key: Uuid::now_v7(),
        };
        self.submit(loaded, commit)
    }

    fn submit(&self, loaded: &LoadedTable, commit: TableCommit) -> Result<LoadedTable> {
        let committing = async { Ok(self.catalog.commit(loaded, commit).await) };
        match self
            .runtime
            .wait("changing a table", RESET_WAIT, committing)?
        {
            CommitOutcome::Committed(after) => Ok(after),
            CommitOutcome::Conflict(error)
            | CommitOutcome::Refused(error)
            | CommitOutcome::Unauthorized(error)
            | CommitOutcome::Unknown(error) => Err(error),
        }
    }
}
