//! Executes what the commit loop of `frazil_core::commit::attempt` asks for: loads the table, looks
//! at manifests, builds and submits the request, and waits. It decides nothing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use frazil_core::commit::action::{
    Action, Answer, Checked, CommitSetup, Entropy, Note, Submission,
};
use frazil_core::commit::anchor::Anchor;
use frazil_core::commit::attempt::CommitMachine;
use frazil_core::commit::location::Keep;
use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::commit::plan::{self, Attempt, Base, CommitIdentity, CommitPlan};
use frazil_core::commit::state::WriterState;
use frazil_core::commit::summary::FileChanges;
use frazil_core::commit::validate::RejectReason;
use frazil_core::commit::view::TableView;
use frazil_core::control::segment::{FileCounts, Segment};
use frazil_core::limits::MANIFEST_TABLE_TURNS;
use frazil_core::metrics::TableMetric;
use frazil_core::{Result, SinkError};
use futures::StreamExt;
use iceberg::spec::ManifestFile;
use object_store::ObjectStoreExt;
use uuid::Uuid;

use super::changed::{Built, ChangedAttempt, Read, Unbuilt};
use super::committer::TableCommitter;
use super::list::{old_manifests, write_manifest_list};
use super::looks::Looks;
use super::manifest::metadata_location;
use super::merge::{Merger, Place};
use super::wait::Random;
use crate::catalog::{CommitOutcome, LoadedTable, TableCommit};
use crate::failpoint;
use crate::metrics::{CommitEvent, Phases};
use crate::storage::{TableStorage, store_error};

impl TableView for LoadedTable {
    fn uuid(&self) -> Uuid {
        self.metadata.uuid()
    }

    fn check(&self) -> Result<()> {
        self.metadata.check()
    }

    fn writer_state(&self, wid: &str, branch: &str) -> Result<Option<WriterState>> {
        self.metadata.writer_state(wid, branch)
    }

    fn has_moved(&self, now: &Self) -> bool {
        self.metadata.has_moved(&now.metadata)
    }

    fn is_in_history(&self, branch: &str, snapshot_id: i64) -> bool {
        self.metadata.is_in_history(branch, snapshot_id)
    }

    fn has_snapshot(&self, snapshot_id: i64) -> bool {
        self.metadata.has_snapshot(snapshot_id)
    }

    fn has_spec(&self, spec_id: i32) -> bool {
        self.metadata.has_spec(spec_id)
    }
}

/// One call of [`TableCommitter::commit`].
pub(super) struct Run<'a> {
    committer: &'a TableCommitter,
    machine: CommitMachine<LoadedTable, Random>,
    /// The storage of the table that was loaded last.
    storage: Option<TableStorage>,
    merger: Merger,
    /// The manifest list of the attempt under way, and where it is.
    written: Option<(String, Bytes)>,
    /// What was read of segments with changes.
    changes: Read,
    course: Course,
}

/// What there is to tell of a commit, as far as it has come.
#[derive(Default)]
struct Course {
    phases: Phases,
    /// When the commit began that is told next.
    begun: Option<Instant>,
    /// What the last attempt would add, and how far the table would be true.
    added: FileCounts,
    valid_through_ms: Option<i64>,
}

impl Course {
    /// An attempt is built that leaves `state` behind.
    fn builds(&mut self, files: Option<&FileChanges>, segments: &[&Segment], state: &WriterState) {
        self.added = match files {
            Some(files) => files.added,
            None => FileChanges::of_segments(segments).added,
        };
        self.valid_through_ms = state.valid_through_ms();
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(committer: &'a TableCommitter, segments: Vec<Segment>) -> Self {
        let setup = CommitSetup {
            table: committer.ident.clone(),
            identity: committer.identity.clone(),
            limits: committer.limits(),
        };
        let remembered = committer.remembered(&segments);
        Run {
            storage: remembered.as_ref().map(|table| table.storage.clone()),
            machine: CommitMachine::new(setup, segments, Random)
                .with_watch(committer.watch())
                .with_remembered(remembered),
            committer,
            merger: Merger::default(),
            written: None,
            changes: Read::default(),
            course: Course::default(),
        }
    }

    /// Runs the loop and returns an outcome for every segment, by its index.
    pub(super) async fn outcomes(mut self) -> Vec<(usize, SegmentOutcome)> {
        self.course.begun = Some(Instant::now());
        let mut action = self.machine.start();
        loop {
            self.log();
            let begun = Instant::now();
            action = match action {
                Action::Load => {
                    let next = self.load().await;
                    self.course.phases.load += begun.elapsed();
                    next
                }
                Action::CheckManifests(indexes) => {
                    let found = self.check(indexes).await;
                    self.course.phases.check += begun.elapsed();
                    self.machine.checked(found)
                }
                Action::Submit(submission) => self.submit(submission).await,
                Action::Sleep { ms } => {
                    let sleeping = tokio::time::sleep(Duration::from_millis(ms));
                    let slept = self.committer.cancel.or(sleeping).await;
                    self.course.phases.pause += begun.elapsed();
                    match slept {
                        Some(()) => self.machine.slept(),
                        None => self.machine.cancelled(),
                    }
                }
                Action::Done(outcomes) => {
                    if let Some(changes) = &self.committer.changes {
                        changes.ended().await;
                    }
                    self.committer.learn(self.machine.remembered_was());
                    self.committer.keep_watch(self.machine.into_watch());
                    return outcomes;
                }
            };
        }
    }

    async fn load(&mut self) -> Action<LoadedTable> {
        let committer = self.committer;
        let loading = committer.catalog.load_table(&committer.ident);
        let loading = committer.looks.in_turn(loading);
        let Some(loaded) = committer.cancel.or(loading).await else {
            return self.machine.cancelled();
        };
        match loaded.and_then(|loaded| failpoint::pass("commit.after-load").map(|()| loaded)) {
            Ok(loaded) => {
                self.keep(&loaded);
                self.machine.loaded(loaded)
            }
            Err(error) => self.machine.load_failed(error),
        }
    }

    fn keep(&mut self, loaded: &LoadedTable) {
        if loaded.check().is_ok() {
            self.committer.remember(loaded);
        }
        self.storage = Some(loaded.storage.clone());
    }

    /// Looks at the manifests of `indexes`, several at a time, until something cannot be told.
    async fn check(&self, indexes: Vec<usize>) -> Vec<Checked> {
        let looks: Vec<_> = indexes.into_iter().map(|index| self.look(index)).collect();
        let mut looks = futures::stream::iter(looks).buffered(MANIFEST_TABLE_TURNS);
        let mut found = Vec::new();
        while let Some((index, looked)) = looks.next().await {
            let go_on = looked.is_ok();
            found.push((index, looked));
            if !go_on {
                break;
            }
        }
        found
    }

    async fn look(&self, index: usize) -> Checked {
        let segment = self.machine.segments().get(index);
        // Rows of a table with changes are changes, and others have none.
        let with_changes = self.committer.changes.is_some();
        if segment.is_some_and(|segment| segment.key_run.is_some() != with_changes) {
            return (index, Ok(Some(RejectReason::Inconsistent)));
        }
        let seen = &self.committer.seen;
        if segment.is_some_and(|segment| seen.take(segment.session, segment.seq)) {
            return (index, Ok(None));
        }
        let looked = match (&self.storage, segment) {
            (Some(storage), Some(segment)) => {
                changed_manifest(storage, segment, &self.committer.looks).await
            }
            _ => Err(SinkError::internal("there is nothing to look at")),
        };
        (index, looked)
    }

    async fn submit(&mut self, submission: Submission<LoadedTable>) -> Action<LoadedTable> {
        let committer = self.committer;
        let mut old = None;
        if committer.changes.is_some() {
            match committer.cancel.or(self.prepare(&submission)).await {
                None => return self.machine.cancelled(),
                Some(Err(error)) => return self.machine.answered(Answer::NotSent(error)),
                Some(Ok(manifests)) => old = Some(manifests),
            }
        }
        let submitting = self.build_and_send(submission, old);
        committer.looks.in_turn(submitting).await
    }

    /// Brings the index of a table with changes to the snapshot that the commit builds on, and returns the
    /// manifests of that.
    async fn prepare(&self, submission: &Submission<LoadedTable>) -> Result<Vec<ManifestFile>> {
        let committer = self.committer;
        let identity = &committer.identity;
        let LoadedTable {
            metadata, storage, ..
        } = &submission.base;
        let base = plan::base(metadata, &identity.branch);
        let old = old_manifests(storage, &base, Some(&committer.list)).await?;
        if let Some(changes) = &committer.changes {
            let attempt = ChangedAttempt {
                loaded: &submission.base,
                base: &base,
                wid: &identity.wid,
                branch: &identity.branch,
                commit_id: submission.commit_id,
                snapshot_id: submission.snapshot_id,
                segments: &[],
            };
            changes.prepare(&attempt, &old).await?;
        }
        Ok(old)
    }

    /// Returns the manifests of the base, if they are not `known`.
    async fn old(
        &self,
        storage: &TableStorage,
        base: &Base,
        known: Option<Vec<ManifestFile>>,
    ) -> Result<Vec<ManifestFile>> {
        match known {
            Some(known) => Ok(known),
            None => old_manifests(storage, base, Some(&self.committer.list)).await,
        }
    }

    /// BUILD and SUBMIT; `old` are the manifests of the base where they are known.
    async fn build_and_send(
        &mut self,
        submission: Submission<LoadedTable>,
        old: Option<Vec<ManifestFile>>,
    ) -> Action<LoadedTable> {
        let committer = self.committer;
        let cancel = &committer.cancel;
        let begun = Instant::now();
        let built = cancel.or(self.build(&submission, old)).await;
        self.course.phases.build += begun.elapsed();
        let commit = match built {
            None => return self.machine.cancelled(),
            Some(Err(Unbuilt::Failed(error))) => {
                return self.machine.answered(Answer::NotSent(error));
            }
            Some(Err(Unbuilt::Unusable(index, reason))) => {
                return self.machine.answered(Answer::Unusable(index, reason));
            }
            Some(Ok(commit)) => commit,
        };
        let submitting = committer.catalog.commit(&submission.base, commit);
        let begun = Instant::now();
        let outcome = cancel.or(submitting).await;
        self.course.phases.submit += begun.elapsed();
        let Some(outcome) = outcome else {
            return self.machine.cancelled();
        };
        if let Err(error) = failpoint::pass("commit.after-submit") {
            return self.machine.answered(Answer::Unknown(error));
        }
        let answer = match outcome {
            CommitOutcome::Committed(loaded) => {
                self.keep(&loaded);
                self.committer.committed();
                if let Some((location, bytes)) = self.written.take() {
                    self.committer.list.set(location, bytes);
                }
                if let Some(changes) = &committer.changes {
                    let identity = &committer.identity;
                    let (wid, branch) = (&identity.wid, &identity.branch);
                    changes.settle(&loaded.metadata, wid, branch).await;
                }
                Answer::Committed(loaded)
            }
            CommitOutcome::Conflict(error) => Answer::Conflict(error),
            CommitOutcome::Refused(error) => Answer::Refused(error),
            CommitOutcome::Unauthorized(error) => Answer::Unauthorized(error),
            CommitOutcome::Unknown(error) => Answer::Unknown(error),
        };
        self.machine.answered(answer)
    }

    async fn build(
        &mut self,
        submission: &Submission<LoadedTable>,
        old: Option<Vec<ManifestFile>>,
    ) -> Result<TableCommit, Unbuilt> {
        let committer = self.committer;
        let LoadedTable {
            metadata, storage, ..
        } = &submission.base;
        let identity = &committer.identity;
        let base = plan::base(metadata, &identity.branch);
        let (commit_id, snapshot_id) = (submission.commit_id, submission.snapshot_id);
        let old = self.old(storage, &base, old).await?;
        let (all, batch) = (self.machine.segments(), submission.batch.iter());
        let segments: Vec<(usize, &Segment)> = batch
            .filter_map(|index| Some((*index, all.get(*index)?)))
            .collect();
        let Lists { new, old, files } = match &committer.changes {
            None => Lists::of_segments(&segments, old),
            Some(changes) => {
                let attempt = ChangedAttempt {
                    loaded: &submission.base,
                    base: &base,
                    wid: &identity.wid,
                    branch: &identity.branch,
                    commit_id,
                    snapshot_id,
                    segments: &segments,
                };
                Lists::of_changes(changes.build(&attempt, old, &mut self.changes).await?)
            }
        };
        let place = Place {
            storage,
            metadata,
            looks: &committer.looks,
            pause: &committer.merge_pause,
            memory: &committer.memory,
            wid: &identity.wid,
            commit_id,
            snapshot_id,
        };
        let old = self.merger.merge(&place, old).await;
        let manifest_list = format!(
            "{}/snap-{snapshot_id}-{}-{commit_id}.avro",
            metadata_location(metadata),
            submission.attempt
        );
        let written =
            write_manifest_list(storage, &base, snapshot_id, new, old, &manifest_list).await?;
        failpoint::pass("commit.after-manifest-list")?;
        self.written = Some((manifest_list.clone(), written.bytes));
        let segments: Vec<&Segment> = segments.into_iter().map(|(_, segment)| segment).collect();
        self.course
            .builds(files.as_ref(), &segments, &submission.state);
        let attempt = Attempt {
            identity,
            commit_id,
            snapshot_id,
            now_ms: now_ms(),
            segments: &segments,
            files: files.as_ref(),
            state: submission.state.clone(),
            keep: submission.keep,
            anchor: &Anchor::of(metadata, &identity.wid)?,
            manifest_list,
            row_range: written.row_range,
        };
        Ok(request(plan::commit(metadata, &base, &attempt)?))
    }

    /// Counts a commit that came through.
    fn tell(&mut self, batch: &[usize], snapshot_id: i64, attempts: u32) {
        let course = std::mem::take(&mut self.course);
        let all = self.machine.segments();
        let segments = || batch.iter().filter_map(|index| all.get(*index));
        self.committer.metrics.committed(&CommitEvent {
            branch: &self.committer.identity.branch,
            snapshot_id,
            segments: batch.len(),
            ranges: segments().map(|segment| segment.ranges.len()).sum(),
            rows: segments().map(|segment| segment.rows).sum(),
            added: course.added,
            valid_through_ms: course.valid_through_ms,
            attempts,
            phases: Phases {
                all: course.begun.map_or(Duration::ZERO, |begun| begun.elapsed()),
                ..course.phases
            },
        });
        // The next one of this call begins where this one ends.
        self.course.begun = Some(Instant::now());
    }

    fn log(&mut self) {
        let table = &self.committer.ident;
        for note in self.machine.take_notes() {
            match note {
                Note::Committed {
                    batch,
                    snapshot_id,
                    attempts,
                } => {
                    let all = self.machine.segments();
                    let segments = || batch.iter().filter_map(|index| all.get(*index));
                    tracing::info!(
                        %table,
                        branch = self.committer.identity.branch,
                        snapshot_id,
                        segments = batch.len(),
                        rows = segments().map(|segment| segment.rows).sum::<u64>(),
                        bytes = segments().map(|segment| segment.bytes).sum::<u64>(),
                        attempts,
                        "committed"
                    );
                    self.tell(&batch, snapshot_id, attempts);
                }
                Note::RolledBack { snapshot_id } => {
                    self.committer.metrics.add(TableMetric::RolledBack, 1);
                    tracing::warn!(
                        %table,
                        branch = self.committer.identity.branch,
                        snapshot_id,
                        "the branch was rolled back behind the last commit of this connector; its \
                         rows are not written again unless the connector's offsets are reset"
                    );
                }
                Note::PropertiesRefused { report } => tracing::warn!(
                    %table,
                    branch = self.committer.identity.branch,
                    "the catalog refused the first commit, perhaps for its table properties; it is \
                     tried once more with the offsets in the snapshot's summary: {report}"
                ),
                Note::Rejected { reason, .. } => {
                    self.committer.metrics.add(TableMetric::SegmentsLost, 1);
                    tracing::warn!(%table, "segment rejected: {reason}");
                }
                Note::Unclear {
                    code,
                    report,
                    attempt,
                    pause_ms,
                } => {
                    self.committer.metrics.add(TableMetric::CommitUnclear, 1);
                    tracing::warn!(
                        %table,
                        code,
                        attempt,
                        pause_ms,
                        "no clear answer; the table is read again: {report}"
                    );
                }
            }
        }
    }
}

/// The manifests of a new snapshot.
struct Lists {
    new: Vec<ManifestFile>,
    /// Those of the parent, or what takes their place.
    old: Vec<ManifestFile>,
    /// What becomes of the files, where they are not just those of the segments.
    files: Option<FileChanges>,
}

impl Lists {
    fn of_segments(segments: &[(usize, &Segment)], old: Vec<ManifestFile>) -> Self {
        let sealed = segments.iter().flat_map(|(_, segment)| &segment.manifests);
        Lists {
            new: sealed.map(|sealed| sealed.manifest.clone()).collect(),
            old,
            files: None,
        }
    }

    fn of_changes(built: Built) -> Self {
        Lists {
            new: built.new,
            old: built.old,
            files: Some(built.files),
        }
    }
}

fn request(plan: CommitPlan) -> TableCommit {
    TableCommit {
        requirements: plan.requirements,
        updates: plan.updates,
        idempotency_key: Uuid::now_v7(),
    }
}

/// Returns a commit without rows, which leaves `state` where `keep` says, and `anchor` as well where
/// that is the summary of its snapshot: what an offset reset or a repair does. It moves the branch, so
/// that no commit that was built before it is accepted after it.
pub(crate) async fn carry(
    table: &LoadedTable,
    identity: &CommitIdentity,
    state: WriterState,
    anchor: &Anchor,
    keep: Keep,
) -> Result<TableCommit> {
    let metadata = &table.metadata;
    let base = plan::base(metadata, &identity.branch);
    let (commit_id, snapshot_id) = (Uuid::now_v7(), Random.snapshot_id());
    let folder = metadata_location(metadata);
    let manifest_list = format!("{folder}/snap-{snapshot_id}-1-{commit_id}.avro");
    let (storage, old) = (
        &table.storage,
        old_manifests(&table.storage, &base, None).await?,
    );
    let new = Vec::new();
    let written =
        write_manifest_list(storage, &base, snapshot_id, new, old, &manifest_list).await?;
    let attempt = Attempt {
        identity,
        commit_id,
        snapshot_id,
        now_ms: now_ms(),
        segments: &[],
        files: None,
        state,
        keep,
        anchor,
        manifest_list,
        row_range: written.row_range,
    };
    Ok(request(plan::commit(metadata, &base, &attempt)?))
}

/// Returns the first manifest of the segment that is gone or has another length.
async fn changed_manifest(
    storage: &TableStorage,
    segment: &Segment,
    looks: &Looks,
) -> Result<Option<RejectReason>> {
    for sealed in &segment.manifests {
        let manifest = &sealed.manifest;
        let (location, length) = (&manifest.manifest_path, manifest.manifest_length);
        let _turn = looks.turn(0).await;
        if let Some(reason) = check_length(storage, location, length).await? {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

/// Returns why the manifest at `location` is not the one of `length` bytes that was sealed.
async fn check_length(
    storage: &TableStorage,
    location: &str,
    length: i64,
) -> Result<Option<RejectReason>> {
    let (store, path) = storage.store(location)?;
    let intact = match store.head(&path).await {
        Ok(found) => i64::try_from(found.size) == Ok(length),
        Err(object_store::Error::NotFound { .. }) => false,
        Err(error) => return Err(store_error(location, &error)),
    };
    let path = location.to_owned();
    Ok((!intact).then_some(RejectReason::ManifestChanged { path }))
}

/// Returns the time, in milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    // A clock before 1970 only makes the timestamp the table's own last one.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}
