//! Assembles the requirements and updates of a request to the catalog.
//!
//! Everything is derived from one metadata object. Nothing here rebases: a request whose
//! requirements fail is planned anew from newer metadata, after the offsets were judged again.

use iceberg::spec::{
    FormatVersion, Schema, Snapshot, SnapshotRef, SnapshotReference, SnapshotRetention, Summary,
    TableMetadata,
};
use iceberg::{TableRequirement, TableUpdate};
use uuid::Uuid;

use super::anchor::Anchor;
use super::location::Keep;
use super::recover::parent_of;
use super::state::{WriterState, property_key};
use super::summary::{FileChanges, summary};
use crate::control::segment::Segment;
use crate::error::{Result, SinkError};
use crate::schema::contract::{MAPPING_PROPERTY, check_mapping};

/// What the catalog has to check and to change, as one atomic request.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitPlan {
    /// What must still hold.
    pub requirements: Vec<TableRequirement>,
    /// What changes.
    pub updates: Vec<TableUpdate>,
}

/// Where a new snapshot goes.
#[derive(Debug, Clone)]
pub struct Base {
    /// The snapshot that the new one builds on.
    pub parent: Option<SnapshotRef>,
    /// The head of the branch; `None` when the branch does not exist. Asserted by the request.
    pub head: Option<i64>,
    /// The new snapshot's sequence number.
    pub sequence_number: i64,
    /// The first row id that the new snapshot may give out; `None` below format version 3.
    pub first_row_id: Option<u64>,
    /// The table's format version.
    pub format_version: FormatVersion,
}

impl Base {
    /// Returns the id of the parent snapshot.
    pub fn parent_id(&self) -> Option<i64> {
        self.parent.as_ref().map(|parent| parent.snapshot_id())
    }
}

/// The names under which commits are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitIdentity {
    /// The writer's id: 16 hexadecimal digits.
    pub wid: String,
    /// The connector's name.
    pub connector: String,
    /// The process that commits.
    pub hub_id: String,
    /// The branch that is committed to.
    pub branch: String,
    /// The longest property that may hold the state; a longer one is cut into shards. A summary is
    /// not cut.
    pub state_bytes_max: usize,
}

impl CommitIdentity {
    /// Returns `state` as the commit `commit_id`, made by this identity at `now_ms`, leaves it in
    /// the table.
    pub fn sign(
        &self,
        mut state: WriterState,
        commit_id: Uuid,
        snapshot_id: i64,
        now_ms: i64,
    ) -> WriterState {
        state.commit_id = commit_id;
        state.snapshot_id = snapshot_id;
        state.committed_ms = now_ms;
        state.connector.clone_from(&self.connector);
        state.hub_id.clone_from(&self.hub_id);
        state
    }
}

/// One attempt to commit a batch.
#[derive(Debug, Clone)]
pub struct Attempt<'a> {
    /// Who commits.
    pub identity: &'a CommitIdentity,
    /// The commit's id, the same for all attempts of a batch.
    pub commit_id: Uuid,
    /// The snapshot's id, another one for each attempt.
    pub snapshot_id: i64,
    /// The time, in milliseconds since the epoch.
    pub now_ms: i64,
    /// The segments of the batch.
    pub segments: &'a [&'a Segment],
    /// What becomes of the table's files, where that is not just that the segments' come.
    pub files: Option<&'a FileChanges>,
    /// The writer's state after the commit, as [`super::batch::choose`] returned it.
    pub state: WriterState,
    /// Where the state goes.
    pub keep: Keep,
    /// The resets to hand on where the state goes into the summary.
    pub anchor: &'a Anchor,
    /// The location of the manifest list.
    pub manifest_list: String,
    /// The first row id and the number of row ids given out; required in format version 3.
    pub row_range: Option<(u64, u64)>,
}

/// Refuses tables that Frazil does not write.
pub fn check_table(metadata: &TableMetadata) -> Result<()> {
    if metadata.format_version() == FormatVersion::V1 {
        return Err(SinkError::fatal(
            "TABLE_FORMAT_V1",
            "the table has format version 1; set its property `format-version` to 2 with another engine first",
        ));
    }
    if metadata.properties().contains_key("encryption.key-id")
        || metadata.encryption_keys_iter().len() > 0
    {
        return Err(SinkError::fatal(
            "TABLE_ENCRYPTED",
            "the table is encrypted, which Frazil does not support; write to a table without `encryption.key-id`",
        ));
    }
    check_mapping(metadata.properties().get(MAPPING_PROPERTY))
}

/// Returns where the next snapshot of `branch` goes.
pub fn base(metadata: &TableMetadata, branch: &str) -> Base {
    let version = metadata.format_version();
    Base {
        parent: parent_of(metadata, branch).cloned(),
        head: metadata.snapshot_for_ref(branch).map(|s| s.snapshot_id()),
        sequence_number: metadata.next_sequence_number(),
        first_row_id: (version >= FormatVersion::V3).then(|| metadata.next_row_id()),
        format_version: version,
    }
}

/// Plans the commit of a batch on `metadata`.
pub fn commit(metadata: &TableMetadata, base: &Base, attempt: &Attempt<'_>) -> Result<CommitPlan> {
    let identity = attempt.identity;
    let state = identity.sign(
        attempt.state.clone(),
        attempt.commit_id,
        attempt.snapshot_id,
        attempt.now_ms,
    );
    let parent_summary = base.parent.as_ref().map(|parent| parent.summary());
    let appended = || FileChanges::of_segments(attempt.segments);
    let files = attempt.files.cloned().unwrap_or_else(appended);
    let wid = &identity.wid;
    let mut summary = summary(wid, &state, attempt.segments, &files, parent_summary);
    carry(&mut summary, &state, attempt)?;
    let placed = Placed {
        snapshot_id: attempt.snapshot_id,
        now_ms: attempt.now_ms,
        manifest_list: &attempt.manifest_list,
        row_range: attempt.row_range,
    };
    let snapshot = snapshot(metadata, base, &placed, summary)?;
    let mut updates = snapshot_updates(metadata, snapshot, attempt)?;
    if attempt.keep.in_property() {
        let stored = |key: &str| metadata.properties().contains_key(key);
        let shards = WriterState::shards(stored, &identity.wid, &identity.branch);
        let limit = identity.state_bytes_max;
        let change = state.write_within(&identity.wid, &identity.branch, shards, limit)?;
        updates.push(TableUpdate::SetProperties {
            updates: change.set.into_iter().collect(),
        });
        if !change.remove.is_empty() {
            updates.push(TableUpdate::RemoveProperties {
                removals: change.remove,
            });
        }
    }
    Ok(CommitPlan {
        requirements: requirements(metadata, base, &identity.branch),
        updates,
    })
}

/// Returns what must hold of the table when a snapshot that builds on `base` comes to `branch`.
pub(super) fn requirements(
    metadata: &TableMetadata,
    base: &Base,
    branch: &str,
) -> Vec<TableRequirement> {
    vec![
        TableRequirement::UuidMatch {
            uuid: metadata.uuid(),
        },
        TableRequirement::RefSnapshotIdMatch {
            r#ref: branch.to_owned(),
            snapshot_id: base.head,
        },
        // The snapshot says which schema the table had.
        TableRequirement::CurrentSchemaIdMatch {
            current_schema_id: metadata.current_schema_id(),
        },
    ]
}

/// Puts the state and the resets into the summary, where they go.
fn carry(summary: &mut Summary, state: &WriterState, attempt: &Attempt<'_>) -> Result<()> {
    if !attempt.keep.in_summary() {
        return Ok(());
    }
    let wid = &attempt.identity.wid;
    let written = state.write_summary(wid, attempt.identity.state_bytes_max);
    let (key, text) = match written {
        // The property holds it, in parts.
        Err(_) if attempt.keep.in_property() => return Ok(()),
        written => written?,
    };
    let entries = &mut summary.additional_properties;
    entries.insert(key, text);
    entries.extend(attempt.anchor.write_summary(wid)?);
    Ok(())
}

/// What a snapshot is beside its summary.
pub(super) struct Placed<'a> {
    pub(super) snapshot_id: i64,
    pub(super) now_ms: i64,
    pub(super) manifest_list: &'a str,
    /// Required in format version 3.
    pub(super) row_range: Option<(u64, u64)>,
}

pub(super) fn snapshot(
    metadata: &TableMetadata,
    base: &Base,
    placed: &Placed<'_>,
    summary: Summary,
) -> Result<Snapshot> {
    // Catalogs refuse a snapshot that is a minute older than the last one, so a slow clock must not
    // stop the commits.
    let timestamp_ms = placed.now_ms.max(metadata.last_updated_ms());
    let builder = Snapshot::builder()
        .with_snapshot_id(placed.snapshot_id)
        .with_parent_snapshot_id(base.parent_id())
        .with_sequence_number(base.sequence_number)
        .with_timestamp_ms(timestamp_ms)
        .with_manifest_list(placed.manifest_list.to_owned())
        .with_summary(summary)
        .with_schema_id(metadata.current_schema_id());
    match (base.first_row_id, placed.row_range) {
        (None, _) => Ok(builder.build()),
        (Some(_), Some((first, count))) => Ok(builder.with_row_range(first, count).build()),
        (Some(_), None) => Err(SinkError::internal(
            "a v3 snapshot needs a range of row ids",
        )),
    }
}

/// Returns the updates that add `snapshot` to the branch and keep the branch's retention. Where the
/// summary alone has the state, a tag keeps the snapshot from expiring; elsewhere there is none.
fn snapshot_updates(
    metadata: &TableMetadata,
    snapshot: Snapshot,
    attempt: &Attempt<'_>,
) -> Result<Vec<TableUpdate>> {
    let branch = attempt.identity.branch.as_str();
    let tag = property_key(&attempt.identity.wid, branch);
    // Without an age of its own a tag would have that of the table's properties.
    let retention = SnapshotRetention::Tag {
        max_ref_age_ms: Some(i64::MAX),
    };
    let reference = SnapshotReference::new(attempt.snapshot_id, retention);
    // Only the builder of `iceberg` can see a branch's retention, so it makes the updates.
    let built = metadata
        .clone()
        .into_builder(None)
        .set_branch_snapshot(snapshot, branch)
        .and_then(|builder| match attempt.keep {
            Keep::Summary => builder.set_ref(&tag, reference),
            Keep::Property | Keep::Both => Ok(builder.remove_ref(&tag)),
        })
        .and_then(|builder| builder.build())
        .map_err(|error| refused(branch, error))?;
    Ok(built.changes)
}

pub(super) fn refused(branch: &str, error: iceberg::Error) -> SinkError {
    SinkError::fatal(
        "SNAPSHOT_REFUSED",
        "the table's metadata takes no new snapshot on the branch; check that the branch is not a tag and that the metadata is valid",
    )
    .with("branch", branch)
    .caused_by(error)
}

/// Plans to make `schema` the current schema of the table, as a change of the very schema that
/// `metadata` has.
pub fn add_columns(metadata: &TableMetadata, schema: Schema) -> CommitPlan {
    CommitPlan {
        requirements: vec![
            TableRequirement::UuidMatch {
                uuid: metadata.uuid(),
            },
            TableRequirement::CurrentSchemaIdMatch {
                current_schema_id: metadata.current_schema_id(),
            },
            TableRequirement::LastAssignedFieldIdMatch {
                last_assigned_field_id: metadata.last_column_id(),
            },
        ],
        updates: vec![
            TableUpdate::AddSchema { schema },
            TableUpdate::SetCurrentSchema { schema_id: -1 },
        ],
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
