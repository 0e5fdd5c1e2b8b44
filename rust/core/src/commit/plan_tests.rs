use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg::TableCreation;
use iceberg::spec::{
    NestedField, PrimitiveType, SnapshotReference, SnapshotRetention, TableMetadataBuilder, Type,
};

use proptest::prelude::*;

use super::*;
use crate::commit::anchor::{Anchor, ResetOffsets, anchor_key};
use crate::commit::location::{StateLocation, StoredIn};
use crate::commit::recover::{rebuilt_state_of, state_of, stored_state_of};
use crate::commit::test_support::{range, segment};
use crate::commit::{batch, outcome};
use crate::offsets::TopicPartition;

/// A clock that runs far behind the table's.
const NOW: i64 = 1_000;

fn schema(columns: &[&str]) -> Schema {
    let fields = (1..).zip(columns).map(|(id, name)| {
        Arc::new(NestedField::optional(
            id,
            *name,
            Type::Primitive(PrimitiveType::Long),
        ))
    });
    Schema::builder().with_fields(fields).build().unwrap()
}

fn table(version: FormatVersion) -> TableMetadata {
    let creation = TableCreation::builder()
        .name("t".into())
        .location("memory:///t".into())
        .schema(schema(&["a"]))
        .format_version(version)
        .build();
    let metadata = TableMetadataBuilder::from_table_creation(creation)
        .unwrap()
        .build()
        .unwrap()
        .metadata;
    metadata
        .into_builder(None)
        .assign_uuid(Uuid::from_u128(7))
        .build()
        .unwrap()
        .metadata
}

fn identity(branch: &str) -> CommitIdentity {
    CommitIdentity {
        wid: "w1".into(),
        connector: "c".into(),
        hub_id: "h".into(),
        branch: branch.into(),
        state_bytes_max: 700,
    }
}

fn plan(metadata: &TableMetadata, branch: &str, id: i64, segments: &[&Segment]) -> CommitPlan {
    plan_in(metadata, branch, id, segments, Keep::Property)
}

fn plan_in(
    metadata: &TableMetadata,
    branch: &str,
    id: i64,
    segments: &[&Segment],
    keep: Keep,
) -> CommitPlan {
    let state = state_of(metadata, "w1", branch).unwrap();
    let choice = batch::choose(
        metadata.uuid(),
        state.as_ref(),
        &identity(branch).connector,
        segments,
        &mut Default::default(),
    )
    .unwrap();
    assert_eq!(choice.batch.len(), segments.len());
    let base = base(metadata, branch);
    let rows: u64 = segments.iter().map(|s| s.rows).sum();
    let attempt = Attempt {
        identity: &identity(branch),
        commit_id: Uuid::from_u128(id as u128),
        snapshot_id: id,
        now_ms: NOW + id,
        segments,
        files: None,
        state: choice.state,
        keep,
        anchor: &Anchor::of(metadata, "w1").unwrap(),
        manifest_list: format!("memory:///t/metadata/{id}.avro"),
        row_range: base.first_row_id.map(|first| (first, rows)),
    };
    commit(metadata, &base, &attempt).unwrap()
}

fn apply(metadata: &TableMetadata, plan: &CommitPlan) -> TableMetadata {
    for requirement in &plan.requirements {
        requirement.check(Some(metadata)).unwrap();
    }
    let mut builder = metadata.clone().into_builder(None);
    for update in plan.updates.clone() {
        builder = update.apply(builder).unwrap();
    }
    builder.build().unwrap().metadata
}

fn committed(
    metadata: &TableMetadata,
    branch: &str,
    id: i64,
    start: i64,
    end: i64,
) -> TableMetadata {
    let one = segment(id as u64, vec![range("t", 0, start, end, Some(start))]);
    apply(metadata, &plan(metadata, branch, id, &[&one]))
}

fn bound(metadata: &TableMetadata, branch: &str) -> Option<i64> {
    state_of(metadata, "w1", branch)
        .unwrap()?
        .bound(&TopicPartition::new("t", 0))
}

fn without(metadata: &TableMetadata, keys: &[&str]) -> TableMetadata {
    let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
    metadata
        .clone()
        .into_builder(None)
        .remove_properties(&keys)
        .unwrap()
        .build()
        .unwrap()
        .metadata
}

#[test]
fn a_state_beyond_the_configured_limit_is_cut_into_shards_and_read_back() {
    let empty = table(FormatVersion::V2);
    let ranges = (0..200).map(|p| range("t", p, 0, 1_000_000, Some(0)));
    let wide = segment(0, ranges.collect());
    let after = apply(&empty, &plan(&empty, "main", 1, &[&wide]));
    let state = |key: &&String| key.starts_with("frazil.w.w1");
    let sizes: Vec<usize> = after
        .properties()
        .iter()
        .filter(|(key, _)| state(key))
        .map(|(_, value)| value.len())
        .collect();
    assert!(sizes.len() > 2, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 700), "{sizes:?}");
    let read = state_of(&after, "w1", "main").unwrap().unwrap();
    assert_eq!(read.bound(&TopicPartition::new("t", 199)), Some(1_000_000));
}

#[test]
fn a_request_asserts_table_and_head_and_sets_snapshot_and_state_together() {
    let empty = table(FormatVersion::V2);
    let one = segment(0, vec![range("t", 0, 0, 10, Some(0))]);
    let first = plan(&empty, "main", 1, &[&one]);
    assert_eq!(
        first.requirements,
        [
            TableRequirement::UuidMatch {
                uuid: Uuid::from_u128(7)
            },
            TableRequirement::RefSnapshotIdMatch {
                r#ref: "main".into(),
                snapshot_id: None
            },
            TableRequirement::CurrentSchemaIdMatch {
                current_schema_id: 0,
            },
        ]
    );
    assert!(matches!(
        &first.updates[..],
        [
            TableUpdate::AddSnapshot { .. },
            TableUpdate::SetSnapshotRef { .. },
            TableUpdate::SetProperties { .. }
        ]
    ));
    let after = apply(&empty, &first);
    assert_eq!(bound(&after, "main"), Some(10));
    let state = state_of(&after, "w1", "main").unwrap().unwrap();
    assert!(outcome::is_made_by(Some(&state), Uuid::from_u128(1)));
    assert_eq!((state.snapshot_id, state.hub_id.as_str()), (1, "h"));
    assert!(outcome::has_moved(&empty, &after) && !outcome::has_moved(&after, &after));
    // A late copy of the request fails on the head that it asserts.
    assert!(first.requirements[1].check(Some(&after)).is_err());
}

#[test]
fn the_snapshot_is_never_older_than_the_table() {
    let first = committed(&table(FormatVersion::V2), "main", 100, 0, 10);
    let one = segment(1, vec![range("t", 0, 10, 20, Some(10))]);
    assert!(first.last_updated_ms() > NOW + 100);
    let next = apply(&first, &plan(&first, "main", 1, &[&one]));
    let timestamp_ms = next.current_snapshot().unwrap().timestamp_ms();
    assert_eq!(timestamp_ms, first.last_updated_ms());
}

#[test]
fn row_ids_are_given_out_once_in_v3() {
    let first = committed(&table(FormatVersion::V3), "main", 1, 0, 10);
    let second = committed(&first, "main", 2, 10, 25);
    assert_eq!(
        second.current_snapshot().unwrap().row_range(),
        Some((10, 15))
    );
    assert_eq!(second.next_row_id(), 25);
}

#[test]
fn a_new_branch_continues_the_main_branch_and_its_offsets() {
    let main = committed(&table(FormatVersion::V2), "main", 1, 0, 10);
    assert_eq!(bound(&main, "audit"), Some(10));
    let both = committed(&main, "audit", 2, 10, 20);
    assert_eq!(
        (bound(&both, "main"), bound(&both, "audit")),
        (Some(10), Some(20))
    );
    let head = both.snapshot_for_ref("audit").unwrap();
    assert_eq!(head.parent_snapshot_id(), Some(1));
    assert_eq!(both.current_snapshot_id(), Some(1));
    // The main branch went on before the second branch began: its property says too much.
    let later = committed(&both, "main", 3, 10, 30);
    let branched = later
        .clone()
        .into_builder(None)
        .set_ref(
            "old",
            SnapshotReference::new(1, SnapshotRetention::branch(None, None, None)),
        )
        .unwrap()
        .build()
        .unwrap()
        .metadata;
    assert_eq!(bound(&branched, "old"), Some(10));
}

fn kept(metadata: &TableMetadata, keep: Keep, id: i64, start: i64, end: i64) -> TableMetadata {
    let one = segment(id as u64, vec![range("t", 0, start, end, Some(start))]);
    apply(metadata, &plan_in(metadata, "main", id, &[&one], keep))
}

fn stored_in(metadata: &TableMetadata) -> StoredIn {
    stored_state_of(metadata, "w1", "main")
        .unwrap()
        .unwrap()
        .stored_in
}

fn foreign(metadata: &TableMetadata, id: i64) -> TableMetadata {
    let plan = plan(metadata, "main", id, &[]);
    let mut builder = metadata.clone().into_builder(None);
    for update in plan.updates {
        let update = match update {
            TableUpdate::AddSnapshot { snapshot } => TableUpdate::AddSnapshot {
                snapshot: Snapshot::builder()
                    .with_snapshot_id(id)
                    .with_parent_snapshot_id(snapshot.parent_snapshot_id())
                    .with_sequence_number(snapshot.sequence_number())
                    .with_timestamp_ms(snapshot.timestamp_ms())
                    .with_manifest_list(snapshot.manifest_list())
                    .with_summary(Summary {
                        operation: iceberg::spec::Operation::Append,
                        additional_properties: Default::default(),
                    })
                    .build(),
            },
            TableUpdate::SetProperties { .. } | TableUpdate::RemoveSnapshotRef { .. } => continue,
            other => other,
        };
        builder = update.apply(builder).unwrap();
    }
    builder.build().unwrap().metadata
}

fn expired(metadata: TableMetadata, ids: &[i64]) -> TableMetadata {
    let builder = metadata.into_builder(None).remove_snapshots(ids);
    builder.build().unwrap().metadata
}

#[test]
fn a_state_in_the_summary_needs_no_property_and_is_kept_by_a_tag() {
    let first = kept(&table(FormatVersion::V2), Keep::Summary, 1, 0, 10);
    let second = kept(&first, Keep::Summary, 2, 10, 20);
    assert!(second.properties().is_empty(), "{:?}", second.properties());
    assert_eq!(
        (bound(&second, "main"), stored_in(&second)),
        (Some(20), StoredIn::Summary)
    );
    let state = state_of(&second, "w1", "main").unwrap().unwrap();
    assert!(outcome::is_made_by(Some(&state), Uuid::from_u128(2)));
    let tag = |metadata: &TableMetadata| metadata.snapshot_for_ref("frazil.w.w1").cloned();
    assert_eq!(tag(&second).unwrap().snapshot_id(), 2);
    assert_eq!(
        bound(&second, "audit"),
        Some(20),
        "a branch begins from what it shows"
    );
    assert_eq!(state_of(&second, "other", "main").unwrap(), None);
    // Others commit, and everything but the newest snapshot and what a tag keeps expires.
    let later = foreign(&foreign(&second, 3), 4);
    assert_eq!(bound(&later, "main"), Some(20));
    let kept_by_tag = expired(later.clone(), &[1, 3]);
    assert_eq!(bound(&kept_by_tag, "main"), Some(20));
    assert!(
        outcome::is_in_history(&kept_by_tag, "main", 2),
        "nothing was rolled back"
    );
    let third = kept(&kept_by_tag, Keep::Summary, 5, 20, 30);
    assert_eq!(bound(&third, "main"), Some(30));
    // Back in a property, no snapshot is kept from expiring.
    let moved = kept(&third, Keep::Property, 6, 30, 40);
    assert_eq!(
        (bound(&moved, "main"), stored_in(&moved)),
        (Some(40), StoredIn::Property)
    );
    assert_eq!(tag(&moved), None);
    let back = kept(&moved, Keep::Summary, 7, 40, 50);
    assert_eq!(
        (bound(&back, "main"), stored_in(&back)),
        (Some(50), StoredIn::Summary)
    );
}

#[test]
fn a_rollback_moves_no_t_wherever_the_state_is() {
    for keep in [Keep::Property, Keep::Both, Keep::Summary] {
        let first = kept(&table(FormatVersion::V2), Keep::Both, 1, 0, 10);
        let second = kept(&first, keep, 2, 10, 20);
        let back = SnapshotReference::new(1, SnapshotRetention::branch(None, None, None));
        let builder = second.into_builder(None).set_ref("main", back).unwrap();
        let rolled_back = builder.build().unwrap().metadata;
        let state = state_of(&rolled_back, "w1", "main").unwrap().unwrap();
        assert_eq!(state.snapshot_id, 2, "{keep:?}");
        assert_eq!(bound(&rolled_back, "main"), Some(20), "{keep:?}");
        assert!(!outcome::is_in_history(&rolled_back, "main", 2));
    }
}

#[test]
fn a_first_commit_in_both_places_shows_what_the_catalog_stores() {
    let empty = table(FormatVersion::V2);
    let ranges = vec![range("t", 0, 0, 10, Some(0)), range("t", 1, 0, 5, Some(0))];
    let two = segment(1, ranges);
    let both = apply(&empty, &plan_in(&empty, "main", 1, &[&two], Keep::Both));
    assert_eq!(stored_in(&both), StoredIn::Property);
    assert!(both.snapshot_for_ref("frazil.w.w1").is_none());
    let dropped = without(&both, &["frazil.w.w1"]);
    assert_eq!(
        (bound(&dropped, "main"), stored_in(&dropped)),
        (Some(10), StoredIn::Summary)
    );
    // A catalog that stores properties no more is found out by the next commit.
    let stored = kept(&both, Keep::Property, 2, 10, 20);
    let third = kept(&stored, Keep::Property, 3, 20, 30);
    let key = "frazil.w.w1";
    let stale = stored.properties()[key].clone();
    let builder = third
        .into_builder(None)
        .set_properties([(key.into(), stale)].into());
    let behind = builder.unwrap().build().unwrap().metadata;
    assert_eq!(
        (bound(&behind, "main"), stored_in(&behind)),
        (Some(30), StoredIn::Nowhere)
    );
    let lost = expired(behind, &[1]);
    let error = state_of(&lost, "w1", "main").unwrap_err();
    assert_eq!(
        error.code(),
        "STATE_LOST",
        "a part of the offsets is nowhere"
    );
}

#[test]
fn a_state_too_large_for_a_summary_is_refused_or_left_to_the_property() {
    let empty = table(FormatVersion::V2);
    let ranges = (0..200).map(|p| range("t", p, 0, 1_000_000, Some(0)));
    let wide = segment(0, ranges.collect());
    let both = apply(&empty, &plan_in(&empty, "main", 1, &[&wide], Keep::Both));
    assert_eq!(stored_in(&both), StoredIn::Property);
    let summary = both.current_snapshot().unwrap().summary();
    assert!(!summary.additional_properties.contains_key("frazil.w.w1"));
    let state = state_of(&both, "w1", "main").unwrap().unwrap();
    let error = state.write_summary("w1", 700).unwrap_err();
    assert_eq!(error.code(), "STATE_TOO_LARGE");
}

#[test]
fn resets_are_handed_on_by_the_summaries() {
    let first = kept(&table(FormatVersion::V2), Keep::Summary, 1, 0, 100);
    let mut again = segment(2, vec![range("t", 0, 40, 50, Some(40))]);
    again.epoch = 1;
    let before = reset(&first, &[(0, Some(40))]);
    let after = apply(
        &before,
        &plan_in(&before, "main", 2, &[&again], Keep::Summary),
    );
    let lost = without(&after, &[&anchor_key("w1")]);
    let anchor = Anchor::of(&lost, "w1").unwrap();
    assert_eq!(anchor.epoch(), 1);
    let newer = reset(&lost, &[(0, None)]);
    assert_eq!(Anchor::of(&newer, "w1").unwrap().epoch(), 2);
    assert_eq!(bound(&newer, "main"), None);
}

#[test]
fn a_lost_property_is_rebuilt_only_when_the_history_proves_it_whole() {
    let mut metadata = table(FormatVersion::V2);
    for (id, start, end) in [(1, 0, 10), (2, 10, 15), (3, 15, 30)] {
        metadata = committed(&metadata, "main", id, start, end);
    }
    let other = segment(9, vec![range("u", 4, 0, 8, Some(0))]);
    let whole = apply(&metadata, &plan(&metadata, "main", 4, &[&other]));
    let lost = without(&whole, &["frazil.w.w1"]);
    let rebuilt = state_of(&lost, "w1", "main").unwrap().unwrap();
    assert_eq!(
        rebuilt.digest(),
        state_of(&whole, "w1", "main").unwrap().unwrap().digest()
    );
    assert_eq!(
        (rebuilt.snapshot_id, rebuilt.commit_id),
        (4, Uuid::from_u128(4))
    );
    let expired = lost
        .into_builder(None)
        .remove_snapshots(&[1, 2, 3])
        .build()
        .unwrap()
        .metadata;
    assert_eq!(
        state_of(&expired, "w1", "main").unwrap_err().code(),
        "STATE_LOST"
    );
    assert_eq!(state_of(&expired, "other", "main").unwrap(), None);
    // Once everything is to be read again, it does not matter any more.
    let mut anchor = Anchor::default();
    assert!(anchor.append(ResetOffsets::default(), NOW, 0));
    let property = [(anchor_key("w1"), anchor.write().unwrap())].into();
    let forgotten = expired.into_builder(None).set_properties(property).unwrap();
    let forgotten = forgotten.build().unwrap().metadata;
    let state = state_of(&forgotten, "w1", "main").unwrap().unwrap();
    assert_eq!((state.epoch, state.bounds().count()), (1, 0));
}

fn reset(metadata: &TableMetadata, offsets: &[(i32, Option<i64>)]) -> TableMetadata {
    let mut anchor = Anchor::of(metadata, "w1").unwrap();
    let asked = offsets
        .iter()
        .map(|(p, to)| (TopicPartition::new("t", *p), *to));
    assert!(anchor.append(ResetOffsets::new(asked).unwrap(), NOW, 0));
    metadata
        .clone()
        .into_builder(None)
        .set_properties([(anchor_key("w1"), anchor.write().unwrap())].into())
        .unwrap()
        .build()
        .unwrap()
        .metadata
}

fn committed_in(
    metadata: &TableMetadata,
    epoch: u64,
    id: i64,
    from: i64,
    to: i64,
) -> TableMetadata {
    let mut one = segment(id as u64, vec![range("t", 0, from, to, Some(from))]);
    one.epoch = epoch;
    apply(metadata, &plan(metadata, "main", id, &[&one]))
}

// Promise: the first commit after an offset reset stores the lowered offsets and the new epoch with the snapshot, on every branch for itself
#[test]
fn the_first_commit_of_an_epoch_stores_what_the_reset_left() {
    let before = committed(&table(FormatVersion::V2), "main", 1, 0, 100);
    let before = committed(&before, "audit", 2, 100, 120);
    let after = reset(&before, &[(0, Some(40))]);
    assert_eq!(
        (bound(&after, "main"), bound(&after, "audit")),
        (Some(40), Some(40))
    );
    let again = committed_in(&after, 1, 3, 40, 60);
    let stored = stored_state_of(&again, "w1", "main").unwrap().unwrap();
    assert_eq!((stored.epoch, bound(&again, "main")), (1, Some(60)));
    let other = stored_state_of(&again, "w1", "audit").unwrap().unwrap();
    assert_eq!((other.epoch, bound(&again, "audit")), (0, Some(40)));
}

#[test]
fn a_state_is_rebuilt_over_resets() {
    let mut metadata = committed(&table(FormatVersion::V2), "main", 1, 0, 100);
    let other = segment(
        2,
        vec![range("t", 1, 0, 70, Some(0)), range("t", 2, 0, 9, Some(0))],
    );
    metadata = apply(&metadata, &plan(&metadata, "main", 2, &[&other]));
    metadata = reset(&metadata, &[(0, Some(40)), (1, None)]);
    metadata = committed_in(&metadata, 1, 3, 40, 50);
    metadata = reset(&metadata, &[(0, None)]);
    for metadata in [&metadata, &committed_in(&metadata, 2, 4, 0, 5)] {
        let whole = state_of(metadata, "w1", "main").unwrap().unwrap();
        let lost = without(metadata, &["frazil.w.w1"]);
        let rebuilt = state_of(&lost, "w1", "main").unwrap().unwrap();
        assert_eq!(rebuilt.digest(), whole.digest());
        let told = rebuilt_state_of(metadata, "w1", "main").unwrap().unwrap();
        let stored = stored_state_of(metadata, "w1", "main").unwrap().unwrap();
        assert_eq!(told.digest(), stored.digest());
        let without_anchor = without(&lost, &["frazil.a.w1"]);
        assert_eq!(
            state_of(&without_anchor, "w1", "main").unwrap_err().code(),
            "STATE_LOST"
        );
    }
}

#[test]
fn retention_of_a_branch_is_kept_and_a_tag_is_refused() {
    let main = committed(&table(FormatVersion::V2), "main", 1, 0, 10);
    let kept = SnapshotRetention::branch(Some(3), Some(7), None);
    let tag = SnapshotRetention::Tag {
        max_ref_age_ms: None,
    };
    let metadata = main
        .into_builder(None)
        .set_ref("audit", SnapshotReference::new(1, kept.clone()))
        .unwrap()
        .set_ref("v1", SnapshotReference::new(1, tag))
        .unwrap()
        .build()
        .unwrap()
        .metadata;
    let one = segment(1, vec![range("t", 0, 10, 20, Some(10))]);
    let set = plan(&metadata, "audit", 2, &[&one])
        .updates
        .into_iter()
        .find_map(|update| match update {
            TableUpdate::SetSnapshotRef { reference, .. } => Some(reference),
            _ => None,
        });
    assert_eq!(set, Some(SnapshotReference::new(2, kept)));
    let base = base(&metadata, "v1");
    let attempt = Attempt {
        identity: &identity("v1"),
        commit_id: Uuid::nil(),
        snapshot_id: 5,
        now_ms: NOW,
        segments: &[&one],
        files: None,
        state: WriterState::new(metadata.uuid()),
        keep: Keep::Property,
        anchor: &Anchor::default(),
        manifest_list: String::new(),
        row_range: None,
    };
    assert_eq!(
        commit(&metadata, &base, &attempt).unwrap_err().code(),
        "SNAPSHOT_REFUSED"
    );
}

#[test]
fn old_and_encrypted_tables_are_refused() {
    assert_eq!(
        check_table(&table(FormatVersion::V1)).unwrap_err().code(),
        "TABLE_FORMAT_V1"
    );
    let encrypted = table(FormatVersion::V3)
        .into_builder(None)
        .set_properties([("encryption.key-id".into(), "k".into())].into())
        .unwrap()
        .build()
        .unwrap()
        .metadata;
    assert_eq!(
        check_table(&encrypted).unwrap_err().code(),
        "TABLE_ENCRYPTED"
    );
    assert!(check_table(&table(FormatVersion::V2)).is_ok());
    assert!(check_table(&table(FormatVersion::V3)).is_ok());
}

#[test]
fn columns_are_added_only_to_the_schema_that_was_seen() {
    let before = table(FormatVersion::V2);
    let first = add_columns(&before, schema(&["a", "b"]));
    let after = apply(&before, &first);
    assert_eq!(after.current_schema().as_struct().fields().len(), 2);
    assert_eq!(after.last_column_id(), 2);
    assert!(first.requirements[1].check(Some(&after)).is_err());
    assert!(first.requirements[2].check(Some(&after)).is_err());
}

/// What a catalog makes of table properties.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stores {
    All,
    Nothing,
    Refuses,
}

/// One step in the life of a table.
#[derive(Debug, Clone, Copy)]
enum Step {
    Commit,
    ForeignCommit,
    RollBack,
    Expire,
    Locate(StateLocation),
    Catalog(Stores),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use StateLocation::{Auto, Property, Summary};
    let locations = prop_oneof![Just(Auto), Just(Auto), Just(Property), Just(Summary)];
    let catalogs = prop_oneof![
        Just(Stores::All),
        Just(Stores::Nothing),
        Just(Stores::Refuses)
    ];
    let step = prop_oneof![
        6 => Just(Step::Commit),
        2 => Just(Step::ForeignCommit),
        1 => Just(Step::RollBack),
        1 => Just(Step::Expire),
        1 => locations.prop_map(Step::Locate),
        1 => catalogs.prop_map(Step::Catalog),
    ];
    prop::collection::vec(step, 0..40)
}

/// A table, and what whoever looks at it from outside knows.
struct Life {
    metadata: TableMetadata,
    location: StateLocation,
    stores: Stores,
    /// One past the newest row that each snapshot shows.
    shown: BTreeMap<i64, i64>,
    ids: i64,
}

impl Life {
    fn shown(&self) -> i64 {
        let head = self.metadata.current_snapshot();
        head.map_or(0, |head| self.shown[&head.snapshot_id()])
    }

    /// Commits ten rows from `start` on, as the commit loop would; a catalog may refuse it.
    fn commit(&mut self, state: Option<&WriterState>, start: i64) {
        let one = segment(0, vec![range("t", 0, start, start + 10, Some(start))]);
        let mut keep = self.location.keep(state);
        if self.stores == Stores::Refuses && keep == Keep::Both {
            keep = Keep::Summary;
        }
        if self.stores == Stores::Refuses && keep.in_property() {
            return;
        }
        let mut plan = plan_in(&self.metadata, "main", self.ids, &[&one], keep);
        if self.stores == Stores::Nothing {
            let is_property = |update: &_| matches!(update, TableUpdate::SetProperties { .. });
            plan.updates.retain(|update| !is_property(update));
        }
        self.metadata = apply(&self.metadata, &plan);
        self.shown.insert(self.ids, start + 10);
    }

    fn step(&mut self, step: Step, state: Option<&WriterState>, bound: i64) {
        self.ids += 1;
        match step {
            Step::Commit => self.commit(state, bound),
            Step::ForeignCommit => {
                let shown = self.shown();
                self.metadata = foreign(&self.metadata, self.ids);
                self.shown.insert(self.ids, shown);
            }
            Step::RollBack => {
                let head = self.metadata.current_snapshot();
                let parent = head.and_then(|head| head.parent_snapshot_id());
                if let Some(parent) =
                    parent.filter(|id| self.metadata.snapshot_by_id(*id).is_some())
                {
                    let retention = SnapshotRetention::branch(None, None, None);
                    let back = SnapshotReference::new(parent, retention);
                    let builder = self.metadata.clone().into_builder(None);
                    let builder = builder.set_ref("main", back).unwrap();
                    self.metadata = builder.build().unwrap().metadata;
                }
            }
            Step::Expire => {
                let tag = self.metadata.snapshot_for_ref("frazil.w.w1");
                let safe = state.is_none_or(|state| match state.stored_in {
                    StoredIn::Property => true,
                    // What only one snapshot has is safe from the next commit on.
                    StoredIn::Summary => {
                        tag.is_some_and(|tag| tag.snapshot_id() == state.snapshot_id)
                    }
                    StoredIn::Nowhere => false,
                });
                let named = [self.metadata.current_snapshot(), tag];
                let is_named =
                    |id: i64| named.iter().flatten().any(|kept| kept.snapshot_id() == id);
                let ids = self
                    .metadata
                    .snapshots()
                    .map(|snapshot| snapshot.snapshot_id());
                let old: Vec<i64> = ids.filter(|id| !is_named(*id)).collect();
                if safe {
                    self.metadata = expired(self.metadata.clone(), &old);
                }
            }
            Step::Locate(location) => self.location = location,
            Step::Catalog(stores) => self.stores = stores,
        }
        // Nobody insists on properties with a catalog that throws them away.
        if self.stores == Stores::Nothing && self.location == StateLocation::Property {
            self.location = StateLocation::Auto;
        }
    }
}

proptest! {
    // Promise: Wherever the offsets are kept, and whatever a catalog makes of table properties, no rollback, expiry or foreign commit lets a row that the table shows be written again.
    #[test]
    fn a_state_never_says_less_than_the_table_shows(steps in steps()) {
        let mut life = Life {
            metadata: table(FormatVersion::V2),
            location: StateLocation::Auto,
            stores: Stores::All,
            shown: BTreeMap::new(),
            ids: 0,
        };
        for step in steps {
            let state = match state_of(&life.metadata, "w1", "main") {
                Ok(state) => state,
                Err(error) => {
                    // Nothing is written then.
                    prop_assert_eq!(error.code(), "STATE_LOST");
                    break;
                }
            };
            let partition = TopicPartition::new("t", 0);
            let bound = state.as_ref().and_then(|state| state.bound(&partition)).unwrap_or(0);
            prop_assert!(bound >= life.shown(), "{} < {}", bound, life.shown());
            let highest = life.shown.values().max().copied().unwrap_or(0);
            prop_assert!(bound <= highest, "{bound} > {highest}");
            life.step(step, state.as_ref(), bound);
        }
    }
}
