//! Where the writer's state is kept: in a table property, or in the summaries of snapshots.
//!
//! A property is the better place: it is written once, while every snapshot that a table keeps
//! repeats its summary. Some catalogs take no properties of their clients, or throw them away. There
//! the summary of each commit carries what the property would hold, whole and under the same name,
//! and the newest commit of the writer says what counts. A tag of that name stands on it and keeps
//! it from expiring: foreign commits and an expiry would take it away otherwise, and the writer
//! would pass for a new one.

use iceberg::spec::{SnapshotRef, TableMetadata};

use super::recover::{entry, history, wid_of};
use super::state::{MAIN_BRANCH, WriterState, property_key};

/// Where the state is to be kept: `frazil.state.location`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateLocation {
    /// Where it is; in both places with the first commit, which shows whether the catalog stores
    /// properties.
    #[default]
    Auto,
    /// In a table property.
    Property,
    /// In the summary of each snapshot.
    Summary,
}

/// Where a state was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoredIn {
    /// In no place of its own: it is new, or was put together from the offsets of many snapshots.
    #[default]
    Nowhere,
    /// In a table property.
    Property,
    /// In the summary of one snapshot.
    Summary,
}

/// Where one commit writes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// In a table property.
    Property,
    /// In the snapshot's summary.
    Summary,
    /// In both.
    Both,
}

impl Keep {
    /// Tells whether the commit sets table properties.
    pub fn in_property(self) -> bool {
        self != Keep::Summary
    }

    /// Tells whether the snapshot's summary carries the state.
    pub fn in_summary(self) -> bool {
        self != Keep::Property
    }
}

impl StateLocation {
    /// Reads a value of `frazil.state.location`; `None` when it is none.
    pub fn parse(word: &str) -> Option<StateLocation> {
        let known = [
            ("auto", StateLocation::Auto),
            ("property", StateLocation::Property),
            ("summary", StateLocation::Summary),
        ];
        let mut known = known.into_iter();
        known
            .find(|(name, _)| word.eq_ignore_ascii_case(name))
            .map(|(_, location)| location)
    }

    /// Returns where the next commit writes the state of a writer whose state is `state` now.
    pub fn keep(self, state: Option<&WriterState>) -> Keep {
        match (self, state.map(|state| state.stored_in)) {
            (StateLocation::Property, _) => Keep::Property,
            (StateLocation::Summary, _) => Keep::Summary,
            (StateLocation::Auto, Some(StoredIn::Property)) => Keep::Property,
            (StateLocation::Auto, Some(StoredIn::Summary)) => Keep::Summary,
            (StateLocation::Auto, Some(StoredIn::Nowhere) | None) => Keep::Both,
        }
    }
}

/// The newest commit of a writer that counts for a branch.
pub(super) struct Newest<'a> {
    pub(super) snapshot: &'a SnapshotRef,
    /// The state that its summary carries.
    pub(super) state: Option<&'a str>,
}

/// Finds the newest commit of `wid` in the history of `branch`, or a newer one that its tag keeps: the
/// snapshots between may have expired, or the branch was rolled back, and T goes back by neither.
pub(super) fn newest<'a>(
    metadata: &'a TableMetadata,
    wid: &str,
    branch: &str,
) -> Option<Newest<'a>> {
    let own = |snapshot: &&SnapshotRef| wid_of(snapshot) == Some(wid);
    let kept = metadata.snapshot_for_ref(&property_key(wid, branch));
    let snapshot = history(metadata, branch)
        .find(own)
        .into_iter()
        .chain(kept.filter(own))
        .max_by_key(|snapshot| snapshot.sequence_number())?;
    Some(Newest {
        snapshot,
        state: carried(snapshot, wid),
    })
}

/// Returns the state that the summary of `snapshot` carries: a summary is of one branch, and its
/// state is named as that of the main branch.
fn carried<'a>(snapshot: &'a SnapshotRef, wid: &str) -> Option<&'a str> {
    entry(snapshot, &property_key(wid, MAIN_BRANCH))
}
