use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use frazil_core::commit::location::{StateLocation, StoredIn};
use frazil_core::{Result, SinkError};
use iceberg::TableUpdate;
use iceberg::spec::TableMetadata;

use super::*;
use crate::catalog::{CommitOutcome, TableCommit};
use crate::commit::Cancel;
use crate::commit::create::evolve_schema;

/// What happens to one submission.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// Passed on, answered as it is.
    None,
    ConflictBefore,
    /// Called a conflict, but for a reason that no waiting cures.
    ConflictForEver,
    /// Applied, then a proxy sent the request again and passed on the second answer.
    ConflictAfter,
    UnknownBefore,
    UnknownAfter,
    Refused,
    /// Another writer commits; the catalog answers 400 to the stale sequence number.
    RefusedStale,
    /// Another writer commits; the request is passed on.
    ForeignFirst,
    /// Refused although it is applied.
    RefusedAfter,
    Unauthorized,
    /// Held back, and applied right before the next load.
    LateBeforeLoad,
    /// Held back, and applied right before the next submission.
    LateBeforeNext,
    /// Held back, and applied after the next submission.
    LateAfterNext,
    /// Applied without its table properties and without Frazil's entries of the summary.
    Stripped,
    /// Refused when it sets table properties.
    NoProperties,
    /// Not allowed when it sets table properties.
    NoRightToProperties,
    /// Applied without its table properties.
    Dropped,
    /// The next three loads fail, as with a catalog that is down.
    LoadsFail,
}

/// A catalog that fails on command.
#[derive(Debug)]
pub(super) struct Faulty {
    inner: Arc<dyn Catalog>,
    script: Mutex<VecDeque<Fault>>,
    /// What happens when the script is over.
    then: Fault,
    held: tokio::sync::Mutex<Vec<(Fault, LoadedTable, TableCommit)>>,
    /// Held requests that were applied late, and those that were not.
    late: AtomicU32,
    too_late: AtomicU32,
    failing_loads: AtomicU32,
    submissions: AtomicU32,
    other: TableCommitter,
    pub(super) foreign: Mutex<Vec<Segment>>,
}

impl Faulty {
    pub(super) fn new(world: &World, script: &[Fault]) -> Faulty {
        Faulty {
            inner: world.catalog.clone(),
            script: Mutex::new(script.iter().copied().collect()),
            then: Fault::None,
            held: Default::default(),
            late: AtomicU32::new(0),
            too_late: AtomicU32::new(0),
            failing_loads: AtomicU32::new(0),
            submissions: AtomicU32::new(0),
            other: world.committer("other"),
            foreign: Mutex::default(),
        }
    }

    async fn release(&self, when: Fault) {
        let mut held = self.held.lock().await;
        let (now, later) = held.drain(..).partition(|(fault, _, _)| *fault == when);
        *held = later;
        drop(held);
        let now: Vec<(Fault, LoadedTable, TableCommit)> = now;
        for (_, base, commit) in now {
            let counter = match self.inner.commit(&base, commit).await {
                CommitOutcome::Committed(_) => &self.late,
                _ => &self.too_late,
            };
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn submit(
        &self,
        fault: Fault,
        base: &LoadedTable,
        mut commit: TableCommit,
    ) -> CommitOutcome {
        let error = || SinkError::retriable("INJECTED", "injected");
        match fault {
            Fault::None => self.inner.commit(base, commit).await,
            Fault::ConflictBefore => CommitOutcome::Conflict(error()),
            Fault::ConflictForEver => {
                CommitOutcome::Conflict(SinkError::fatal("INJECTED", "injected"))
            }
            Fault::UnknownBefore => CommitOutcome::Unknown(error()),
            Fault::Refused => CommitOutcome::Refused(error()),
            Fault::Unauthorized => CommitOutcome::Unauthorized(error()),
            Fault::ConflictAfter | Fault::UnknownAfter | Fault::RefusedAfter => {
                let applied = self.inner.commit(base, commit).await;
                assert!(matches!(applied, CommitOutcome::Committed(_)));
                match fault {
                    Fault::ConflictAfter => CommitOutcome::Conflict(error()),
                    Fault::UnknownAfter => CommitOutcome::Unknown(error()),
                    _ => CommitOutcome::Refused(error()),
                }
            }
            Fault::RefusedStale => {
                let foreign = self.foreign.lock().unwrap().pop().unwrap();
                assert_eq!(letters(&self.other.commit(vec![foreign]).await), "D");
                CommitOutcome::Refused(error())
            }
            Fault::ForeignFirst => {
                let foreign = self.foreign.lock().unwrap().pop().unwrap();
                assert_eq!(letters(&self.other.commit(vec![foreign]).await), "D");
                self.inner.commit(base, commit).await
            }
            Fault::LateBeforeLoad | Fault::LateBeforeNext | Fault::LateAfterNext => {
                self.held.lock().await.push((fault, base.clone(), commit));
                CommitOutcome::Unknown(error())
            }
            Fault::Stripped => {
                commit.updates.retain(|update| !is_properties(update));
                for update in &mut commit.updates {
                    if let TableUpdate::AddSnapshot { snapshot } = update {
                        let mut summary = snapshot.summary().clone();
                        summary.additional_properties.clear();
                        *snapshot = iceberg::spec::Snapshot::builder()
                            .with_snapshot_id(snapshot.snapshot_id())
                            .with_sequence_number(snapshot.sequence_number())
                            .with_timestamp_ms(snapshot.timestamp_ms())
                            .with_manifest_list(snapshot.manifest_list())
                            .with_summary(summary)
                            .build();
                    }
                }
                self.inner.commit(base, commit).await
            }
            Fault::NoProperties if sets_properties(&commit) => CommitOutcome::Refused(error()),
            Fault::NoRightToProperties if sets_properties(&commit) => {
                CommitOutcome::Unauthorized(error())
            }
            Fault::NoProperties | Fault::NoRightToProperties => {
                self.inner.commit(base, commit).await
            }
            Fault::Dropped => {
                commit.updates.retain(|update| !is_properties(update));
                self.inner.commit(base, commit).await
            }
            Fault::LoadsFail => {
                self.failing_loads.store(3, Ordering::SeqCst);
                CommitOutcome::Unknown(error())
            }
        }
    }
}

fn is_properties(update: &TableUpdate) -> bool {
    matches!(update, TableUpdate::SetProperties { .. })
}

fn sets_properties(commit: &TableCommit) -> bool {
    commit.updates.iter().any(is_properties)
}

#[async_trait]
impl Catalog for Faulty {
    async fn load_table(&self, ident: &TableIdent) -> Result<LoadedTable> {
        self.release(Fault::LateBeforeLoad).await;
        let count = |left: u32| left.checked_sub(1);
        if self
            .failing_loads
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, count)
            .is_ok()
        {
            return Err(SinkError::retriable("INJECTED", "injected"));
        }
        self.inner.load_table(ident).await
    }

    async fn create_table(&self, ident: &TableIdent, table: CreateTable) -> Result<LoadedTable> {
        self.inner.create_table(ident, table).await
    }

    async fn create_namespace(&self, namespace: &NamespaceIdent) -> Result<()> {
        self.inner.create_namespace(namespace).await
    }

    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> Result<bool> {
        self.inner.namespace_exists(namespace).await
    }

    async fn list_tables(&self, below: &[String]) -> Result<Vec<TableIdent>> {
        self.inner.list_tables(below).await
    }

    async fn commit(&self, base: &LoadedTable, commit: TableCommit) -> CommitOutcome {
        self.submissions.fetch_add(1, Ordering::SeqCst);
        let fault = self.script.lock().unwrap().pop_front();
        self.release(Fault::LateBeforeNext).await;
        let late = !self.held.lock().await.is_empty();
        let outcome = self.submit(fault.unwrap_or(self.then), base, commit).await;
        if late {
            self.release(Fault::LateAfterNext).await;
        }
        outcome
    }

    async fn drop_table(&self, ident: &TableIdent) -> Result<()> {
        self.inner.drop_table(ident).await
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}

#[tokio::test]
async fn every_fault_ends_with_one_snapshot_for_the_batch() {
    use Fault::*;
    // The script, the submissions it takes, and how many held requests came through late or not.
    let cases: [(&[Fault], u32, u32, u32); 14] = [
        (&[], 1, 0, 0),
        (&[ConflictBefore; 7], 8, 0, 0),
        (&[ConflictAfter], 1, 0, 0),
        (&[UnknownBefore], 2, 0, 0),
        (&[UnknownBefore; 5], 6, 0, 0),
        (&[UnknownAfter], 1, 0, 0),
        (&[RefusedAfter], 1, 0, 0),
        (&[Unauthorized], 2, 0, 0),
        (&[LateBeforeLoad], 1, 1, 0),
        (&[LateBeforeNext], 2, 1, 0),
        (&[LateAfterNext], 2, 0, 1),
        (&[LateAfterNext, LateAfterNext], 2, 1, 1),
        (&[LoadsFail], 2, 0, 0),
        (
            &[LoadsFail, ConflictBefore, UnknownBefore, UnknownAfter],
            4,
            0,
            0,
        ),
    ];
    for version in [FormatVersion::V2, FormatVersion::V3] {
        for (script, submissions, late, too_late) in cases {
            let world = World::new(version).await;
            let faulty = Arc::new(Faulty::new(&world, script));
            let batch = vec![
                world.segment(1, 0, &[(0, 0, 10), (1, 0, 3)]).await,
                world.segment(1, 1, &[(0, 10, 12)]).await,
                world.segment(2, 0, &[(2, 0, 4)]).await,
            ];
            let committer = committer(faulty.clone(), &world.ident, WID);
            let outcomes = committer.commit(batch.clone()).await;
            assert_eq!(letters(&outcomes), "DDD", "{script:?}");
            assert_eq!(world.snapshots().await, 1, "{script:?}");
            world
                .assert_exactly_once("main", &[(0, 12), (1, 3), (2, 4)])
                .await;
            let seen = |counter: &AtomicU32| counter.load(Ordering::SeqCst);
            assert_eq!(seen(&faulty.submissions), submissions, "{script:?}");
            let held = (seen(&faulty.late), seen(&faulty.too_late));
            assert_eq!(held, (late, too_late), "{script:?}");
            // The same segments again, as a resend or a new coordinator would bring them.
            assert_eq!(letters(&committer.commit(batch).await), "CCC");
            assert_eq!(world.snapshots().await, 1);
        }
    }
}

#[tokio::test]
async fn a_refusal_of_a_stale_base_is_a_lost_race() {
    let world = World::new(FormatVersion::V2).await;
    let faulty = Arc::new(Faulty::new(&world, &[Fault::RefusedStale]));
    let foreign = world.segment(9, 0, &[(7, 0, 5)]).await;
    faulty.foreign.lock().unwrap().push(foreign);
    let batch = vec![world.segment(1, 0, &[(0, 0, 10)]).await];
    let committer = committer(faulty.clone(), &world.ident, WID);
    assert_eq!(letters(&committer.commit(batch).await), "D");
    assert_eq!(world.snapshots().await, 2);
    assert_eq!(world.offsets("main").await.len(), 15);
}

/// A commit to another branch leaves the head that the request asserts where it is, but takes its
/// sequence number and, in format version 3, its row ids. A server may answer 400.
// Promise: A commit by somebody else to another branch between load and submit, answered with 400 or not, costs one more attempt and blocks nothing.
#[tokio::test]
async fn a_foreign_commit_on_another_branch_is_a_lost_race() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        for fault in [Fault::RefusedStale, Fault::ForeignFirst] {
            let world = World::new(version).await;
            let before = vec![world.segment(1, 0, &[(0, 0, 10)]).await];
            assert_eq!(letters(&world.committer(WID).commit(before).await), "D");
            let mut faulty = Faulty::new(&world, &[fault]);
            let catalog = world.catalog.clone();
            faulty.other =
                TableCommitter::new(catalog, world.ident.clone(), "audit", "other", "audit");
            let mut foreign = world.segment(9, 0, &[(7, 0, 5)]).await;
            foreign.branch = "audit".into();
            faulty.foreign.lock().unwrap().push(foreign);
            let faulty = Arc::new(faulty);
            let batch = vec![world.segment(1, 1, &[(0, 10, 20)]).await];
            let outcomes = committer(faulty.clone(), &world.ident, WID)
                .commit(batch)
                .await;
            assert_eq!(letters(&outcomes), "D", "{version:?} {fault:?}");
            assert_eq!(faulty.submissions.load(Ordering::SeqCst), 2);
            assert_eq!(world.snapshots().await, 3);
            world.assert_exactly_once("main", &[(0, 20)]).await;
            assert_eq!(world.offsets("audit").await.len(), 15);
        }
    }
}

#[tokio::test]
async fn a_refusal_without_a_reason_in_the_table_blocks() {
    let world = World::new(FormatVersion::V2).await;
    for (script, submissions) in [
        (&[Fault::Refused][..], 1),
        (&[Fault::Unauthorized, Fault::Unauthorized], 2),
    ] {
        let faulty = Arc::new(Faulty::new(&world, script));
        let batch = vec![world.segment(1, 0, &[(0, 0, 10)]).await];
        let committer = committer(faulty.clone(), &world.ident, WID)
            .with_state_location(StateLocation::Property);
        let outcomes = committer.commit(batch.clone()).await;
        let [(0, SegmentOutcome::Blocked(error))] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(error.code(), "INJECTED");
        assert_eq!(faulty.submissions.load(Ordering::SeqCst), submissions);
        assert_eq!(world.snapshots().await, 0);
    }
    // Nothing was lost: the same segment is committed once the catalog takes it.
    let again = vec![world.segment(1, 0, &[(0, 0, 10)]).await];
    assert_eq!(letters(&world.committer(WID).commit(again).await), "D");
}

#[tokio::test]
async fn endless_conflicts_give_up_for_now() {
    let world = World::new(FormatVersion::V2).await;
    let mut faulty = Faulty::new(&world, &[]);
    faulty.then = Fault::ConflictBefore;
    let batch = vec![world.segment(1, 0, &[(0, 0, 10)]).await];
    let committer = committer(Arc::new(faulty), &world.ident, WID).with_settings(CommitSettings {
        conflicts_max: 3,
        conflict_pause_min: Duration::from_millis(1),
        ..CommitSettings::default()
    });
    let outcomes = committer.commit(batch).await;
    let [(0, SegmentOutcome::Blocked(error))] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.code(), "COMMIT_CONFLICTS");
}

#[tokio::test]
async fn a_catalog_that_drops_properties_is_found_out() {
    for script in [
        &[Fault::Stripped][..],
        &[Fault::Stripped, Fault::ConflictBefore],
    ] {
        let world = World::new(FormatVersion::V2).await;
        let faulty = Arc::new(Faulty::new(&world, script));
        let batch = vec![world.segment(1, 0, &[(0, 0, 10)]).await];
        let outcomes = committer(faulty, &world.ident, WID).commit(batch).await;
        let [(0, SegmentOutcome::Blocked(error))] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(error.code(), "STATE_NOT_STORED");
        assert_eq!(world.snapshots().await, 1);
    }
}

// Promise: On a catalog that refuses table properties, forbids them or throws them away, offsets are kept in the snapshots' summaries, and every row is in the table once through lost answers and new starts.
#[tokio::test]
async fn a_catalog_that_stores_no_properties_is_written_exactly_once() {
    for then in [
        Fault::NoProperties,
        Fault::NoRightToProperties,
        Fault::Dropped,
    ] {
        for first in [then, Fault::UnknownAfter] {
            let world = World::new(FormatVersion::V3).await;
            let mut start = 0;
            for round in 0..4 {
                // Each round is another process, which knows nothing but the table.
                let mut faulty = Faulty::new(&world, &[]);
                if round > 0 {
                    // Only the first commit sets properties, so that others may be applied unheard.
                    faulty.script.lock().unwrap().push_back(first);
                }
                faulty.then = then;
                let faulty = Arc::new(faulty);
                let committer = committer(faulty, &world.ident, WID);
                let session = 1 + round as u128;
                let batch = vec![world.segment(session, 0, &[(0, start, start + 10)]).await];
                let outcomes = committer.commit(batch.clone()).await;
                assert_eq!(letters(&outcomes), "D", "{then:?} {round}");
                assert_eq!(letters(&committer.commit(batch).await), "C");
                start += 10;
                let late = vec![world.segment(90, round, &[(0, start - 5, start)]).await];
                assert_eq!(letters(&committer.commit(late).await), "C", "a zombie");
                world.assert_exactly_once("main", &[(0, start)]).await;
            }
            let loaded = world.load().await;
            let state = state_of(&loaded.metadata, WID, "main").unwrap().unwrap();
            assert_eq!(state.stored_in, StoredIn::Summary, "{then:?}");
            assert!(
                loaded
                    .metadata
                    .properties()
                    .keys()
                    .all(|key| !key.starts_with("frazil"))
            );
            assert_eq!(world.snapshots().await, 4);
        }
    }
}

#[tokio::test]
async fn a_cancellation_ends_the_waiting_and_loses_nothing() {
    let world = World::new(FormatVersion::V2).await;
    let mut faulty = Faulty::new(&world, &[Fault::UnknownAfter]);
    faulty.then = Fault::UnknownBefore;
    let faulty = Arc::new(faulty);
    let batch = vec![world.segment(1, 0, &[(0, 0, 10)]).await];
    let cancel = Cancel::default();
    let committer = committer(faulty.clone(), &world.ident, WID)
        .with_cancel(cancel.clone())
        .with_settings(CommitSettings {
            unknown_pause_min: Duration::from_secs(600),
            unknown_pause_max: Duration::from_secs(600),
            ..CommitSettings::default()
        });
    let waiting = committer.commit(batch.clone());
    let cancelling = async {
        while world.snapshots().await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
    };
    let (outcomes, ()) = tokio::join!(waiting, cancelling);
    let [(0, SegmentOutcome::Blocked(error))] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.code(), "COMMIT_CANCELLED");
    assert_eq!(letters(&world.committer(WID).commit(batch).await), "C");
    world.assert_exactly_once("main", &[(0, 10)]).await;
}

fn with_column(metadata: &TableMetadata) -> Result<Option<Schema>> {
    let schema = metadata.current_schema();
    if schema.field_by_name("more").is_some() {
        return Ok(None);
    }
    let id = metadata.last_column_id() + 1;
    let more = NestedField::optional(id, "more", Type::Primitive(PrimitiveType::String));
    let mut fields = schema.as_struct().fields().to_vec();
    fields.push(Arc::new(more));
    Ok(Some(Schema::builder().with_fields(fields).build().unwrap()))
}

// Promise: a change of a table that the catalog refuses fails at once, with what the catalog says
#[tokio::test]
async fn a_change_that_the_catalog_refuses_is_told_at_once() {
    for fault in [Fault::Refused, Fault::Unauthorized, Fault::ConflictForEver] {
        let world = World::new(FormatVersion::V2).await;
        let mut faulty = Faulty::new(&world, &[]);
        faulty.then = fault;
        let changed = evolve_schema(&faulty, &world.ident, with_column).await;
        assert_eq!(changed.unwrap_err().code(), "INJECTED", "{fault:?}");
        assert_eq!(faulty.submissions.load(Ordering::SeqCst), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_change_is_made_once_whatever_the_answers() {
    use Fault::*;
    for script in [
        &[ConflictBefore][..],
        &[UnknownBefore],
        &[UnknownAfter],
        &[RefusedAfter],
    ] {
        let world = World::new(FormatVersion::V2).await;
        let faulty = Faulty::new(&world, script);
        evolve_schema(&faulty, &world.ident, with_column)
            .await
            .unwrap();
        let metadata = world.load().await.metadata;
        assert!(with_column(&metadata).unwrap().is_none(), "{script:?}");
        assert_eq!(metadata.last_column_id(), 2, "{script:?}");
    }
}
