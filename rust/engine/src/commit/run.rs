//! The commit loop of one table and branch, for one call.
//!
//! ```text
//! LOAD ──► VALIDATE ──► BUILD ──► SUBMIT ──► done
//!   ▲         │ (nothing left: done)  │
//!   └─────────┴──────── RESOLVE ◄─────┘ conflict, refused, unknown
//! ```
//!
//! Rules it keeps (numbers of the protocol): the offsets are judged on the very metadata object
//! that the request asserts (R1); one attempt for each submission, and no answer but "applied" is
//! believed: the table is read again and asked for the commit's id and offsets; a lost session is
//! dead (R15); the files of a given-up attempt stay (R10).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frazil_core::commit::batch::{Choice, choose, order};
use frazil_core::commit::outcome::{SegmentOutcome, has_moved, is_in_history, is_made_by};
use frazil_core::commit::plan::{self, Attempt};
use frazil_core::commit::recover::state_of;
use frazil_core::commit::state::WriterState;
use frazil_core::commit::validate::{RejectReason, Verdict};
use frazil_core::control::segment::Segment;
use frazil_core::error::ErrorKind;
use frazil_core::{Result, SinkError};
use futures::StreamExt;
use iceberg::spec::TableMetadata;
use object_store::ObjectStoreExt;
use uuid::Uuid;

use super::committer::TableCommitter;
use super::list::write_manifest_list;
use super::manifest::metadata_location;
use super::wait::{pause, random_snapshot_id};
use crate::catalog::{CommitOutcome, LoadedTable, TableCommit};
use crate::storage::{TableStorage, store_error};

/// Manifests that are looked at at the same time.
const MANIFEST_CHECKS: usize = 8;

#[derive(Debug, Default)]
struct Counts {
    conflicts: u32,
    unknown: u32,
    unauthorized: u32,
}

/// A batch on its way into the table, until the table says that it is there.
#[derive(Debug)]
struct Pending {
    commit_id: Uuid,
    batch: Vec<usize>,
    /// The metadata that the last attempt was built on.
    base: Arc<TableMetadata>,
    /// The answer of the last attempt if it was a refusal.
    refused: Option<SinkError>,
}

/// What one attempt led to.
enum Step {
    Applied(Box<LoadedTable>),
    Conflict(SinkError),
    Refused(SinkError),
    Unauthorized(SinkError),
    /// Submitted or not, applied or not: worth another look later.
    Unknown(SinkError),
}

/// One call of [`TableCommitter::commit`].
pub(super) struct Run<'a> {
    committer: &'a TableCommitter,
    segments: &'a [Segment],
    outcomes: Vec<Option<SegmentOutcome>>,
    order: Vec<usize>,
    dead: BTreeSet<Uuid>,
    /// Segments whose manifests were seen in the storage.
    present: BTreeSet<usize>,
    pending: Option<Pending>,
    /// Snapshots that were submitted, with their segments.
    submitted: Vec<(i64, Vec<usize>)>,
    counts: Counts,
}

impl<'a> Run<'a> {
    pub(super) fn new(committer: &'a TableCommitter, segments: &'a [Segment]) -> Self {
        Run {
            committer,
            outcomes: vec![None; segments.len()],
            order: order(segments),
            segments,
            dead: BTreeSet::new(),
            present: BTreeSet::new(),
            pending: None,
            submitted: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Runs the loop and returns an outcome for every segment, by its index.
    pub(super) async fn outcomes(mut self) -> Vec<(usize, SegmentOutcome)> {
        let blocked = match self.run().await {
            Ok(()) => SinkError::internal("a segment was left without an outcome"),
            Err(error) => error.with("table", &self.committer.ident),
        };
        let blocked = Arc::new(blocked);
        self.outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(|| SegmentOutcome::Blocked(blocked.clone())))
            .enumerate()
            .collect()
    }

    async fn run(&mut self) -> Result<()> {
        if !self.segments.iter().all(|s| self.committer.fits(s)) {
            return Err(SinkError::internal(
                "a segment was handed to the committer of another table or branch",
            ));
        }
        let mut fresh = None;
        while self.outcomes.iter().any(Option::is_none) {
            let loaded = match fresh.take() {
                Some(loaded) => loaded,
                None => self.load().await?,
            };
            plan::check_table(&loaded.metadata)?;
            self.committer.remember(&loaded);
            let identity = &self.committer.identity;
            let state = state_of(&loaded.metadata, &identity.wid, &identity.branch)?;
            self.resolve(&loaded.metadata, state.as_ref())?;
            let Some(choice) = self.validate(&loaded, state.as_ref()).await? else {
                continue;
            };
            self.check_stored(&loaded.metadata, &choice.batch)?;
            match self.attempt(&loaded, choice).await {
                Step::Applied(loaded) => fresh = Some(*loaded),
                Step::Conflict(error) => self.lost_race(error).await?,
                Step::Refused(error) => self.refused(error),
                Step::Unauthorized(error) => {
                    self.counts.unauthorized += 1;
                    if self.counts.unauthorized > 1 {
                        return Err(error);
                    }
                }
                Step::Unknown(error) => self.unanswered(error).await?,
            }
        }
        Ok(())
    }

    /// LOAD, through failures that may pass.
    async fn load(&mut self) -> Result<LoadedTable> {
        loop {
            let catalog = &self.committer.catalog;
            let loading = catalog.load_table(&self.committer.ident);
            match self.committer.cancel.or(loading).await {
                None => return Err(cancelled()),
                Some(Ok(loaded)) => return Ok(loaded),
                Some(Err(error)) if error.kind() == ErrorKind::Retriable => {
                    self.unanswered(error).await?;
                }
                Some(Err(error)) => return Err(error),
            }
        }
    }

    /// RESOLVE: asks the table what became of the last attempt.
    fn resolve(&mut self, metadata: &TableMetadata, state: Option<&WriterState>) -> Result<()> {
        let Some(pending) = &mut self.pending else {
            return Ok(());
        };
        if is_made_by(state, pending.commit_id) {
            let snapshot_id = state.map_or(-1, |state| state.snapshot_id);
            let batch = std::mem::take(&mut pending.batch);
            self.log_commit(&batch, snapshot_id);
            for index in batch {
                self.decide(index, SegmentOutcome::Durable { snapshot_id });
            }
            self.pending = None;
            self.counts = Counts::default();
        } else if let Some(refused) = pending.refused.take()
            && !has_moved(&pending.base, metadata)
        {
            return Err(refused);
        }
        Ok(())
    }

    /// VALIDATE: settles what the table settles, and returns the next batch. `None` means: look
    /// again, for a segment fell out.
    async fn validate(
        &mut self,
        loaded: &LoadedTable,
        state: Option<&WriterState>,
    ) -> Result<Option<Choice>> {
        loop {
            let waiting: Vec<usize> = self
                .order
                .iter()
                .copied()
                .filter(|index| matches!(self.outcomes.get(*index), Some(None)))
                .collect();
            let segments: Vec<&Segment> = waiting
                .iter()
                .filter_map(|index| self.segments.get(*index))
                .collect();
            let uuid = loaded.metadata.uuid();
            let mut choice = choose(uuid, state, &segments, &mut self.dead)?;
            // From places among the waiting to places among all segments.
            let place = |at: usize| waiting.get(at).copied().unwrap_or(usize::MAX);
            choice.batch = choice.batch.into_iter().map(place).collect();
            for (at, verdict) in std::mem::take(&mut choice.decided) {
                self.settle(place(at), verdict);
            }
            if choice.batch.is_empty() {
                return Ok(None);
            }
            if self.drop_changed(loaded, &choice.batch).await? == 0 {
                return Ok(Some(choice));
            }
        }
    }

    /// Rejects the segments of `batch` whose manifests are not as they were sealed: the table must
    /// never name a file that is not there. Returns how many.
    async fn drop_changed(&mut self, loaded: &LoadedTable, batch: &[usize]) -> Result<usize> {
        let mut dropped = 0;
        for index in batch {
            let Some(segment) = self.segments.get(*index) else {
                continue;
            };
            let mut reason = missing_spec(&loaded.metadata, segment);
            if reason.is_none() && !self.present.contains(index) {
                reason = changed_manifest(&loaded.storage, segment).await?;
            }
            match reason {
                None => {
                    self.present.insert(*index);
                }
                Some(reason) => {
                    dropped += 1;
                    self.dead.insert(segment.session);
                    self.settle(*index, Verdict::Rejected(reason));
                }
            }
        }
        Ok(dropped)
    }

    /// Refuses to go on with a catalog that took a snapshot and threw its properties away: every
    /// further attempt would write the rows once more.
    fn check_stored(&self, metadata: &TableMetadata, batch: &[usize]) -> Result<()> {
        let branch = &self.committer.identity.branch;
        for (snapshot_id, segments) in &self.submitted {
            if segments.iter().any(|index| batch.contains(index))
                && is_in_history(metadata, branch, *snapshot_id)
            {
                return Err(SinkError::fatal(
                    "STATE_NOT_STORED",
                    "the catalog took a snapshot without the table properties of the same request; use a catalog that applies commits as a whole",
                )
                .with("snapshot", snapshot_id));
            }
        }
        Ok(())
    }

    /// BUILD and SUBMIT.
    async fn attempt(&mut self, loaded: &LoadedTable, choice: Choice) -> Step {
        // Another batch is another commit: an id stands for one set of segments.
        let same = self.pending.take().filter(|p| p.batch == choice.batch);
        let commit_id = same.map_or_else(Uuid::now_v7, |pending| pending.commit_id);
        self.pending = Some(Pending {
            commit_id,
            batch: choice.batch.clone(),
            base: loaded.metadata.clone(),
            refused: None,
        });
        let mut snapshot_id = random_snapshot_id();
        while loaded.metadata.snapshot_by_id(snapshot_id).is_some() {
            snapshot_id = random_snapshot_id();
        }
        let batch = choice.batch.clone();
        let built = self.build(loaded, choice, commit_id, snapshot_id);
        let commit = match self.committer.cancel.or(built).await {
            None => Err(cancelled()),
            Some(built) => built,
        };
        let commit = match commit {
            Ok(commit) => commit,
            Err(error) if error.kind() == ErrorKind::Retriable => return Step::Unknown(error),
            // A stale base may be the reason; the next look tells.
            Err(error) => return Step::Refused(error),
        };
        self.submitted.push((snapshot_id, batch));
        let submitting = self.committer.catalog.commit(loaded, commit);
        match self.committer.cancel.or(submitting).await {
            None => Step::Unknown(cancelled()),
            Some(CommitOutcome::Committed(loaded)) => Step::Applied(Box::new(loaded)),
            Some(CommitOutcome::Conflict(error)) => Step::Conflict(error),
            Some(CommitOutcome::Refused(error)) => Step::Refused(error),
            Some(CommitOutcome::Unauthorized(error)) => Step::Unauthorized(error),
            Some(CommitOutcome::Unknown(error)) => Step::Unknown(error),
        }
    }

    async fn build(
        &self,
        loaded: &LoadedTable,
        choice: Choice,
        commit_id: Uuid,
        snapshot_id: i64,
    ) -> Result<TableCommit> {
        let metadata = &loaded.metadata;
        let identity = &self.committer.identity;
        let segments: Vec<&Segment> = choice
            .batch
            .iter()
            .filter_map(|index| self.segments.get(*index))
            .collect();
        let new = segments
            .iter()
            .flat_map(|segment| &segment.manifests)
            .map(|sealed| sealed.manifest.clone())
            .collect();
        let base = plan::base(metadata, &identity.branch);
        let manifest_list = format!(
            "{}/snap-{snapshot_id}-{}-{commit_id}.avro",
            metadata_location(metadata),
            self.attempt_number()
        );
        let row_range =
            write_manifest_list(&loaded.storage, &base, snapshot_id, new, &manifest_list).await?;
        let attempt = Attempt {
            identity,
            commit_id,
            snapshot_id,
            now_ms: now_ms(),
            segments: &segments,
            state: choice.state,
            manifest_list,
            row_range,
        };
        let plan = plan::commit(metadata, &base, &attempt)?;
        Ok(TableCommit {
            requirements: plan.requirements,
            updates: plan.updates,
            idempotency_key: Uuid::now_v7(),
        })
    }

    fn attempt_number(&self) -> u32 {
        1 + self.counts.conflicts + self.counts.unknown + self.counts.unauthorized
    }

    async fn lost_race(&mut self, error: SinkError) -> Result<()> {
        self.counts.conflicts += 1;
        let settings = &self.committer.settings;
        if self.counts.conflicts > settings.conflicts_max {
            return Err(SinkError::retriable(
                "COMMIT_CONFLICTS",
                "other writers won every race for this commit; raise the commit interval of the writers of this table",
            )
            .with("attempts", self.counts.conflicts)
            .caused_by(error));
        }
        let (min, max) = (settings.conflict_pause_min, settings.conflict_pause_max);
        self.sleep(pause(self.counts.conflicts, min, max)).await
    }

    fn refused(&mut self, error: SinkError) {
        if let Some(pending) = &mut self.pending {
            pending.refused = Some(error);
        }
    }

    async fn unanswered(&mut self, error: SinkError) -> Result<()> {
        if self.committer.cancel.is_cancelled() {
            return Err(cancelled());
        }
        self.counts.unknown += 1;
        let settings = &self.committer.settings;
        let (min, max) = (settings.unknown_pause_min, settings.unknown_pause_max);
        let pause = pause(self.counts.unknown, min, max);
        tracing::warn!(
            table = %self.committer.ident,
            code = error.code(),
            attempt = self.counts.unknown,
            pause_ms = pause.as_millis() as u64,
            "no clear answer; the table is read again: {}",
            error.report()
        );
        self.sleep(pause).await
    }

    async fn sleep(&self, pause: Duration) -> Result<()> {
        let sleeping = tokio::time::sleep(pause);
        let slept = self.committer.cancel.or(sleeping).await;
        slept.ok_or_else(cancelled)
    }

    fn settle(&mut self, index: usize, verdict: Verdict) {
        let outcome = match verdict {
            Verdict::Covered => SegmentOutcome::Covered,
            Verdict::Rejected(reason) => {
                tracing::warn!(table = %self.committer.ident, "segment rejected: {reason}");
                SegmentOutcome::Rejected(reason)
            }
            Verdict::Fenced { epoch } => SegmentOutcome::Fenced { epoch },
            Verdict::Commit => return,
        };
        self.decide(index, outcome);
    }

    fn decide(&mut self, index: usize, outcome: SegmentOutcome) {
        if let Some(slot) = self.outcomes.get_mut(index) {
            *slot = Some(outcome);
        }
    }

    fn log_commit(&self, batch: &[usize], snapshot_id: i64) {
        let segments = || batch.iter().filter_map(|index| self.segments.get(*index));
        tracing::info!(
            table = %self.committer.ident,
            branch = self.committer.identity.branch,
            snapshot_id,
            segments = batch.len(),
            rows = segments().map(|segment| segment.rows).sum::<u64>(),
            bytes = segments().map(|segment| segment.bytes).sum::<u64>(),
            attempts = self.attempt_number(),
            "committed"
        );
    }
}

fn cancelled() -> SinkError {
    SinkError::retriable(
        "COMMIT_CANCELLED",
        "the commit was cancelled while the task stopped; the next session finds out what became of it",
    )
}

fn missing_spec(metadata: &TableMetadata, segment: &Segment) -> Option<RejectReason> {
    segment
        .manifests
        .iter()
        .map(|sealed| sealed.manifest.partition_spec_id)
        .find(|spec_id| metadata.partition_spec_by_id(*spec_id).is_none())
        .map(|spec_id| RejectReason::SpecRemoved { spec_id })
}

/// Returns the first manifest of the segment that is gone or has another length.
async fn changed_manifest(
    storage: &TableStorage,
    segment: &Segment,
) -> Result<Option<RejectReason>> {
    let sealed: Vec<(String, i64)> = segment
        .manifests
        .iter()
        .map(|sealed| &sealed.manifest)
        .map(|manifest| (manifest.manifest_path.clone(), manifest.manifest_length))
        .collect();
    let mut checks = futures::stream::iter(sealed)
        .map(|(location, length)| check_length(storage.clone(), location, length))
        .buffer_unordered(MANIFEST_CHECKS);
    while let Some(changed) = checks.next().await {
        if let Some(reason) = changed? {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

/// Returns why the manifest at `location` is not the one of `length` bytes that was sealed.
async fn check_length(
    storage: TableStorage,
    location: String,
    length: i64,
) -> Result<Option<RejectReason>> {
    let (store, path) = storage.store(&location)?;
    let intact = match store.head(&path).await {
        Ok(found) => i64::try_from(found.size) == Ok(length),
        Err(object_store::Error::NotFound { .. }) => false,
        Err(error) => return Err(store_error(&location, &error)),
    };
    Ok((!intact).then_some(RejectReason::ManifestChanged { path: location }))
}

fn now_ms() -> i64 {
    // A clock before 1970 only makes the timestamp the table's own last one.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}
