//! Notices that two processes commit one table for the same writer.
//!
//! Appends may: the offsets keep them apart. A table with changes, maintenance or lineage has
//! exactly one owner. Each commit leaves the id of its process in the writer's state, so an owner
//! sees the other one there. A process that was replaced may still have one request under way, which
//! is applied after its successor began; so one commit of another process says nothing, and the
//! second one of the same process says that it lives. No clock is asked: clocks of two hosts differ.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::state::WriterState;
use crate::error::SinkError;

/// Commits of one other process, since this one became the owner, that prove it alive.
const COMMITS_OF_A_LIVING: u32 = 2;

/// What the state of a table says about its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// Nothing speaks against this process.
    Ok,
    /// Another process commits to the table too.
    ForeignOwner {
        /// The other process.
        hub_id: String,
        /// The connector that it works for.
        connector: String,
    },
}

/// What an owner saw of its table since it became the owner. A new term begins with a new value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerWatch {
    /// The last commit that was seen; the one before the term began is history.
    last: Option<Uuid>,
    began: bool,
    /// How often the table was found with another commit of a process.
    foreign: BTreeMap<String, u32>,
}

impl OwnerWatch {
    /// Looks at the writer's state of the table, as loaded just now.
    pub fn look(&mut self, state: Option<&WriterState>, own_hub: &str) -> Ownership {
        let before = std::mem::replace(&mut self.last, state.map(|state| state.commit_id));
        let began = std::mem::replace(&mut self.began, true);
        let Some(state) = state else {
            return Ownership::Ok;
        };
        // A state put together from summaries names no process.
        let is_foreign = !state.hub_id.is_empty() && state.hub_id != own_hub;
        if !is_foreign || !began || before == Some(state.commit_id) {
            return Ownership::Ok;
        }
        let seen = self.foreign.entry(state.hub_id.clone()).or_default();
        *seen = seen.saturating_add(1);
        if *seen < COMMITS_OF_A_LIVING {
            return Ownership::Ok;
        }
        Ownership::ForeignOwner {
            hub_id: state.hub_id.clone(),
            connector: state.connector.clone(),
        }
    }
}

/// Returns the error of a table that another process commits to as well.
pub fn owned_elsewhere(own_hub: &str, other_hub: &str, other_connector: &str) -> SinkError {
    SinkError::fatal(
        "TABLE_OWNED_ELSEWHERE",
        format!(
            "the table may have one committer, and both this process (`{own_hub}`) and `{other_hub}` of connector `{other_connector}` commit to it as the same writer; stop one of them, give it another `frazil.writer.id`, or set `frazil.coordination=topic` for a connector of several tasks"
        ),
    )
    .with("hub", own_hub)
    .with("other_hub", other_hub)
    .with("other_connector", other_connector)
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
