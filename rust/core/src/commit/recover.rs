//! Finds the writer state of a branch, also when its property is missing.
//!
//! What the newest commit of the writer wrote decides: the property, or the summary of its snapshot
//! when that carries the state ([`super::location`]). Without either, on the first use of a branch or
//! after the property was removed or not stored, the state is put together from the summaries of the
//! branch's own history, newest first, until the digest in the newest one proves that nothing is
//! missing. Otherwise the answer is an error: an empty state would write every row again.
//!
//! Whatever is found is read through the anchor: the answer is what counts after the offset resets
//! that the table has not followed yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg::spec::{SnapshotRef, TableMetadata};
use uuid::Uuid;

use super::anchor::Anchor;
use super::location::{Newest, newest};
use super::state::{MAIN_BRANCH, WriterState, property_key, topic_key};
use super::summary::{COMMIT_ID, EPOCH, OFFSETS, STATE_DIGEST, WRITER, parse_offsets};
use crate::error::{Result, SinkError};

/// Returns the state of writer `wid` for `branch` as it counts now, offset resets included; `None`
/// when the writer never committed to the branch and its offsets were never reset.
pub fn state_of(metadata: &TableMetadata, wid: &str, branch: &str) -> Result<Option<WriterState>> {
    let anchor = Anchor::of(metadata, wid)?;
    let stored = find(metadata, &anchor, wid, branch)?;
    Ok(anchor.effective(stored, metadata.uuid()))
}

/// Returns the state of writer `wid` for `branch` as the last commit left it, before any reset that
/// came after that; `None` when the writer never committed to the branch.
pub fn stored_state_of(
    metadata: &TableMetadata,
    wid: &str,
    branch: &str,
) -> Result<Option<WriterState>> {
    find(metadata, &Anchor::of(metadata, wid)?, wid, branch)
}

/// Returns the state of writer `wid` for `branch` as the summaries of the branch's snapshots tell
/// it, whatever the property says; `None` when no snapshot is of this writer.
///
/// # Errors
///
/// `STATE_LOST` when the snapshots left cannot prove the state to be whole.
pub fn rebuilt_state_of(
    metadata: &TableMetadata,
    wid: &str,
    branch: &str,
) -> Result<Option<WriterState>> {
    let anchor = Anchor::of(metadata, wid)?;
    match newest(metadata, wid, branch) {
        None => Ok(None),
        Some(Newest {
            state: Some(text), ..
        }) => WriterState::read_summary(text, wid, metadata.uuid()),
        Some(newest) => rebuild(metadata, &anchor, wid, branch, newest.snapshot).map(Some),
    }
}

fn find(
    metadata: &TableMetadata,
    anchor: &Anchor,
    wid: &str,
    branch: &str,
) -> Result<Option<WriterState>> {
    let property = |key: &str| metadata.properties().get(key).map(String::as_str);
    let read = |branch: &str| WriterState::read(property, wid, branch, metadata.uuid());
    let Some(newest) = newest(metadata, wid, branch) else {
        return read(branch);
    };
    let snapshot = newest.snapshot;
    let is_of_newest = |state: &WriterState| state.snapshot_id == snapshot.snapshot_id();
    let stored = read(branch);
    // T goes back by no rollback: a property of a later commit counts, though the branch has it no more.
    // One of an earlier commit does not: the catalog did not store that of the newest.
    let counts = |state: &WriterState| {
        let known = metadata.snapshot_by_id(state.snapshot_id);
        known.is_some_and(|known| known.sequence_number() >= snapshot.sequence_number())
    };
    match stored? {
        Some(state) if counts(&state) => return Ok(Some(state)),
        // A property that was copied from another table.
        None if newest.state.is_none() && property(&property_key(wid, branch)).is_some() => {
            return Ok(None);
        }
        _ => {}
    }
    // Of a branch that this one began from, or that was published to it.
    let other_branches = property_key(wid, "");
    let branches = metadata.properties().keys();
    let branches = branches.filter_map(|key| key.strip_prefix(&other_branches));
    for branch in branches.chain([MAIN_BRANCH]) {
        if let Some(state) = read(branch).ok().flatten().filter(is_of_newest) {
            return Ok(Some(state));
        }
    }
    match newest.state {
        Some(text) => WriterState::read_summary(text, wid, metadata.uuid()),
        None => rebuild(metadata, anchor, wid, branch, snapshot).map(Some),
    }
}

/// Returns the snapshot that a commit to `branch` builds on: its head, or for a branch that does
/// not exist yet the head of the main branch.
pub fn parent_of<'a>(metadata: &'a TableMetadata, branch: &str) -> Option<&'a SnapshotRef> {
    metadata
        .snapshot_for_ref(branch)
        .or_else(|| metadata.snapshot_for_ref(MAIN_BRANCH))
}

/// Returns the head of `branch` and its ancestors, newest first.
pub(super) fn history<'a>(
    metadata: &'a TableMetadata,
    branch: &str,
) -> impl Iterator<Item = &'a SnapshotRef> + use<'a> {
    std::iter::successors(parent_of(metadata, branch), |snapshot| {
        snapshot
            .parent_snapshot_id()
            .and_then(|parent| metadata.snapshot_by_id(parent))
    })
}

pub(super) fn entry<'a>(snapshot: &'a SnapshotRef, key: &str) -> Option<&'a str> {
    snapshot
        .summary()
        .additional_properties
        .get(key)
        .map(String::as_str)
}

pub(super) fn wid_of(snapshot: &SnapshotRef) -> Option<&str> {
    entry(snapshot, WRITER)
}

fn rebuild(
    metadata: &TableMetadata,
    anchor: &Anchor,
    wid: &str,
    branch: &str,
    newest: &SnapshotRef,
) -> Result<WriterState> {
    let lost = || {
        SinkError::fatal(
            "STATE_LOST",
            "the table property with the writer state is gone and the snapshots left cannot replace it; restore the property from an older metadata file, or stop the connector and run `frazil state repair --discard`, which lets it read everything again",
        )
        .with("property", property_key(wid, branch))
        .with("snapshot", newest.snapshot_id())
    };
    let mut state = WriterState::new(metadata.uuid());
    let epoch_of = |snapshot| entry(snapshot, EPOCH)?.parse::<u64>().ok();
    state.epoch = epoch_of(newest).ok_or_else(lost)?;
    if anchor.forgets(state.epoch) {
        // Whatever it was, nothing of it counts.
        return Ok(state);
    }
    let digest = entry(newest, STATE_DIGEST).ok_or_else(lost)?;
    state.commit_id = entry(newest, COMMIT_ID)
        .and_then(|id| Uuid::parse_str(id).ok())
        .ok_or_else(lost)?;
    state.snapshot_id = newest.snapshot_id();
    state.committed_ms = newest.timestamp_ms();
    let mut known: BTreeMap<Arc<str>, String> = BTreeMap::new();
    for snapshot in history(metadata, branch).filter(|snapshot| wid_of(snapshot) == Some(wid)) {
        let offsets = entry(snapshot, OFFSETS).ok_or_else(lost)?;
        let epochs = (epoch_of(snapshot).ok_or_else(lost)?, state.epoch);
        for (key, partition, end) in parse_offsets(offsets).ok_or_else(lost)? {
            let named = topic_key(&partition.topic);
            // The newest commit tells which topic has the name; what stood under the name alone was
            // moved to it, and another topic that had the name counts for nothing.
            let live = known
                .entry(Arc::clone(&partition.topic))
                .or_insert_with(|| key.clone());
            if key != *live && key != named {
                continue;
            }
            if let Some(end) = anchor.remains(&partition, live, epochs, end) {
                state.raise_under(live, &partition, end)?;
            }
        }
        if state.digest() == digest {
            return Ok(state);
        }
    }
    Err(lost())
}
