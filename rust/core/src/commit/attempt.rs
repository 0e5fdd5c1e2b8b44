//! The commit loop of one table and branch, for one batch of segments, without I/O.
//!
//! ```text
//! LOAD ──► VALIDATE ──► CHECK ──► SUBMIT ──► done
//!   ▲         │ (nothing left: done)  │
//!   └─────────┴──────── RESOLVE ◄─────┘ conflict, refused, unknown
//! ```
//!
//! A process that remembers the table as its last commit left it may begin with that in place of a
//! LOAD. The request asserts its head, so the catalog tells when somebody else has changed it; what
//! the catalog would not check, any verdict but "goes into the table", is left to a table that was
//! loaded now.
//!
//! The machine says what to do next ([`Action`]) and is told what came of it. It neither waits nor
//! draws lots nor talks to anyone, so a worker and the simulator run the same code.
//!
//! Rules it keeps: the offsets are judged on the very table that the request asserts (R1); one
//! attempt for each submission, and no answer but "applied" is believed: the table is read again
//! and asked for the commit's id and offsets; a lost session is dead (R15); the files of a given-up
//! attempt stay (R10).

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::action::{
    Action, Answer, Checked, CommitSetup, Entropy, Note, RollbackPolicy, Submission, pause_ms,
};
use super::batch::{Choice, choose_at_most, order};
use super::location::Keep;
use super::outcome::{SegmentOutcome, is_made_by, rolled_back};
use super::owner::{OwnerWatch, Ownership, owned_elsewhere};
use super::state::WriterState;
use super::validate::{RejectReason, Verdict, is_before_reset};
use super::view::TableView;
use crate::control::segment::Segment;
use crate::error::{ErrorKind, Result, SinkError};
use crate::rules::{Rule, enforced};

#[derive(Debug, Default)]
struct Counts {
    conflicts: u32,
    unknown: u32,
    /// Attempts in a row that were not sent.
    unbuilt: u32,
    unauthorized: u32,
}

/// A batch on its way into the table, until the table says that it is there.
#[derive(Debug)]
struct Pending<V> {
    commit_id: Uuid,
    batch: Vec<usize>,
    state: WriterState,
    /// The table that the last attempt was built on.
    base: V,
    /// Where the last attempt put the state.
    keep: Keep,
    /// The answer of the last attempt if it was a refusal.
    refused: Option<SinkError>,
    /// Whether it was the catalog that refused.
    by_catalog: bool,
    /// Whether the last attempt had no clear answer.
    unclear: bool,
}

/// A batch that was chosen on `table`, whose manifests are being looked at.
#[derive(Debug)]
struct Chosen<V> {
    table: V,
    state: Option<WriterState>,
    choice: Choice,
}

/// What the machine waits for.
#[derive(Debug)]
enum Phase<V> {
    New,
    Loading,
    Checking(Box<Chosen<V>>),
    Submitted,
    Sleeping,
    Over,
}

/// The commit loop for some segments of one table and branch.
#[derive(Debug)]
pub struct CommitMachine<V, E> {
    setup: CommitSetup,
    segments: Vec<Segment>,
    entropy: E,
    watch: OwnerWatch,
    phase: Phase<V>,
    outcomes: Vec<Option<SegmentOutcome>>,
    /// Why the segments without an outcome have none, once it is over.
    blocked: Option<Arc<SinkError>>,
    order: Vec<usize>,
    dead: BTreeSet<Uuid>,
    /// Segments whose manifests were seen in the storage.
    present: BTreeSet<usize>,
    pending: Option<Pending<V>>,
    /// Snapshots that were submitted, with their segments.
    submitted: Vec<(i64, Vec<usize>)>,
    counts: Counts,
    /// The catalog was seen to refuse table properties.
    without_properties: bool,
    /// The table as the process remembers it, until the loop begins.
    remembered: Option<V>,
    /// What waits was built on the remembered table.
    on_remembered: bool,
    remembered_was: Option<Remembered>,
    notes: Vec<Note>,
}

/// What the remembered table turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    /// The newest: the commit that was built on it was applied.
    Current,
    /// Of the past: the catalog did not take the commit.
    Stale,
}

impl<V: TableView, E: Entropy> CommitMachine<V, E> {
    /// Creates the loop that commits `segments`.
    pub fn new(setup: CommitSetup, segments: Vec<Segment>, entropy: E) -> Self {
        CommitMachine {
            setup,
            entropy,
            watch: OwnerWatch::default(),
            phase: Phase::New,
            outcomes: vec![None; segments.len()],
            blocked: None,
            order: order(&segments),
            segments,
            dead: BTreeSet::new(),
            present: BTreeSet::new(),
            pending: None,
            submitted: Vec::new(),
            counts: Counts::default(),
            without_properties: false,
            remembered: None,
            on_remembered: false,
            remembered_was: None,
            notes: Vec::new(),
        }
    }

    /// Sets the table as the process remembers it: the first attempt is built on that, if it may be.
    #[must_use]
    pub fn with_remembered(mut self, table: Option<V>) -> Self {
        self.remembered = table;
        self
    }

    /// Returns what the remembered table turned out to be; `None` when nothing showed it.
    pub fn remembered_was(&self) -> Option<Remembered> {
        self.remembered_was
    }

    /// Sets what the owner of the table saw in earlier calls of the same term.
    #[must_use]
    pub fn with_watch(mut self, watch: OwnerWatch) -> Self {
        self.watch = watch;
        self
    }

    /// Returns what the owner saw, for the next call.
    pub fn into_watch(self) -> OwnerWatch {
        self.watch
    }

    /// Returns the segments.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the table, the identity and the limits.
    pub fn setup(&self) -> &CommitSetup {
        &self.setup
    }

    /// Returns what happened since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Begins.
    pub fn start(&mut self) -> Action<V> {
        if !matches!(self.phase, Phase::New) {
            return self.out_of_turn();
        }
        let fits = |segment: &Segment| {
            segment.table == self.setup.table && segment.branch == self.setup.identity.branch
        };
        if !self.segments.iter().all(fits) {
            return self.stop(SinkError::internal(
                "a segment was handed to the committer of another table or branch",
            ));
        }
        match self.remembered.take() {
            Some(table) if self.takes_all(&table).unwrap_or(false) => {
                self.on_remembered = true;
                self.judge(table).unwrap_or_else(|_| self.look())
            }
            _ => self.look(),
        }
    }

    /// Tells whether every segment may go into `table`, which was not loaded just now.
    fn takes_all(&self, table: &V) -> Result<bool> {
        table.check()?;
        let identity = &self.setup.identity;
        let state = table.writer_state(&identity.wid, &identity.branch)?;
        self.check_reset(state.as_ref())?;
        let in_order = self.order.iter();
        let waiting: Vec<&Segment> = in_order.filter_map(|at| self.segments.get(*at)).collect();
        let (uuid, connector) = (table.uuid(), &identity.connector);
        let dead = &mut BTreeSet::new();
        let changes_max = self.setup.limits.changes_max;
        let of = (uuid, connector.as_str());
        let choice = choose_at_most(of, state.as_ref(), &waiting, dead, changes_max)?;
        let manifests = waiting.iter().flat_map(|segment| &segment.manifests);
        let mut specs = manifests.map(|sealed| sealed.manifest.partition_spec_id);
        Ok(choice.decided.is_empty() && specs.all(|spec_id| table.has_spec(spec_id)))
    }

    /// The table was loaded.
    pub fn loaded(&mut self, table: V) -> Action<V> {
        if !matches!(self.phase, Phase::Loading) {
            return self.out_of_turn();
        }
        self.judge(table).unwrap_or_else(|error| self.stop(error))
    }

    /// The table could not be loaded.
    pub fn load_failed(&mut self, error: SinkError) -> Action<V> {
        if !matches!(self.phase, Phase::Loading) {
            return self.out_of_turn();
        }
        match error.kind() {
            ErrorKind::Retriable => self.unanswered(error),
            _ => self.stop(error),
        }
    }

    /// The manifests were looked at. A segment that is left out is asked for again.
    pub fn checked(&mut self, found: Vec<Checked>) -> Action<V> {
        let Phase::Checking(chosen) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return self.out_of_turn();
        };
        for (index, found) in found {
            match found {
                Ok(None) => {
                    self.present.insert(index);
                }
                // The table must never name a file that is not there.
                Ok(Some(reason)) => self.reject(index, reason),
                Err(error) => return self.stop(error),
            }
        }
        let Chosen {
            table,
            state,
            choice,
        } = *chosen;
        let next = if self.is_complete(&choice.batch) {
            self.submit(table, choice.batch, choice.state)
        } else {
            self.validate(table, state)
        };
        next.unwrap_or_else(|error| self.stop(error))
    }

    /// The submission came to an end.
    pub fn answered(&mut self, answer: Answer<V>) -> Action<V> {
        if !matches!(self.phase, Phase::Submitted) {
            return self.out_of_turn();
        }
        let on_remembered = std::mem::take(&mut self.on_remembered);
        if on_remembered {
            self.remembered_was = match answer {
                Answer::Committed(_) => Some(Remembered::Current),
                Answer::Conflict(_) | Answer::Refused(_) => Some(Remembered::Stale),
                Answer::NotSent(ref error) if error.kind() != ErrorKind::Retriable => {
                    Some(Remembered::Stale)
                }
                _ => None,
            };
        }
        let unbuilt = std::mem::take(&mut self.counts.unbuilt);
        match answer {
            Answer::Committed(table) => self.judge(table).unwrap_or_else(|error| self.stop(error)),
            // No race was lost and nothing is wrong for certain: the newest table was not looked at.
            Answer::Conflict(_) | Answer::Refused(_) if on_remembered => self.look(),
            Answer::NotSent(error) if on_remembered && error.kind() != ErrorKind::Retriable => {
                self.look()
            }
            Answer::Conflict(error) => self.lost_race(error),
            Answer::Refused(error) => {
                if let Some(pending) = &mut self.pending {
                    pending.by_catalog = true;
                }
                self.refused(error)
            }
            Answer::Unauthorized(error) => {
                self.counts.unauthorized += 1;
                // Some catalogs have a right of its own for properties.
                match self.counts.unauthorized == 1 || self.does_without_properties(&error) {
                    true => self.look(),
                    false => self.stop(error),
                }
            }
            Answer::Unknown(error) => {
                if let Some(pending) = &mut self.pending {
                    pending.unclear = true;
                }
                self.unanswered(error)
            }
            Answer::NotSent(error) if error.kind() == ErrorKind::Retriable => {
                self.counts.unbuilt = unbuilt + 1;
                let most = self.setup.limits.unbuilt_max;
                match most.is_some_and(|most| self.counts.unbuilt > most) {
                    true => self.stop(error),
                    false => self.unanswered(error),
                }
            }
            // A stale base may be the reason; the next look tells.
            Answer::NotSent(error) => self.refused(error),
            Answer::Unusable(index, reason) => {
                self.reject(index, reason);
                self.look()
            }
        }
    }

    /// The pause is over.
    pub fn slept(&mut self) -> Action<V> {
        if !matches!(self.phase, Phase::Sleeping) {
            return self.out_of_turn();
        }
        self.look()
    }

    /// The task stops: whatever was submitted stays submitted.
    pub fn cancelled(&mut self) -> Action<V> {
        self.stop(SinkError::retriable(
            "COMMIT_CANCELLED",
            "the commit was cancelled while the task stopped; the next session finds out what became of it",
        ))
    }

    fn look(&mut self) -> Action<V> {
        if self.outcomes.iter().all(Option::is_some) {
            return self.done();
        }
        self.phase = Phase::Loading;
        self.on_remembered = false;
        Action::Load
    }

    fn judge(&mut self, table: V) -> Result<Action<V>> {
        table.check()?;
        let identity = &self.setup.identity;
        let state = table.writer_state(&identity.wid, &identity.branch)?;
        if !enforced(Rule::Resolve) && self.pending.as_ref().is_some_and(|p| p.unclear) {
            return self.submit_unresolved(table, state);
        }
        self.resolve(&table, state.as_ref())?;
        self.check_owner(state.as_ref())?;
        self.check_reset(state.as_ref())?;
        self.check_rollback(&table, state.as_ref())?;
        if !enforced(Rule::OneBase)
            && let Some(pending) = &self.pending
        {
            let (batch, state) = (pending.batch.clone(), pending.state.clone());
            return self.submit(table, batch, state);
        }
        self.validate(table, state)
    }

    /// RESOLVE: asks the table what became of the last attempt.
    fn resolve(&mut self, table: &V, state: Option<&WriterState>) -> Result<()> {
        let Some(pending) = &mut self.pending else {
            return Ok(());
        };
        if is_made_by(state, pending.commit_id) {
            let snapshot_id = state.map_or(-1, |state| state.snapshot_id);
            let batch = std::mem::take(&mut pending.batch);
            for index in &batch {
                self.decide(*index, SegmentOutcome::Durable { snapshot_id });
            }
            self.notes.push(Note::Committed {
                batch,
                snapshot_id,
                attempts: self.attempt_number(),
            });
            self.pending = None;
            self.counts = Counts::default();
        } else if let Some(refused) = pending.refused.take()
            && !pending.base.has_moved(table)
        {
            let by_catalog = pending.by_catalog;
            if !(by_catalog && self.does_without_properties(&refused)) {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Decides whether a commit that the catalog refused is tried once more without table properties:
    /// it is when that commit was to show whether the catalog stores any.
    fn does_without_properties(&mut self, refused: &SinkError) -> bool {
        let is_first = self.pending.as_ref().map(|pending| pending.keep) == Some(Keep::Both);
        if is_first && !self.without_properties {
            self.without_properties = true;
            let report = refused.report();
            self.notes.push(Note::PropertiesRefused { report });
            return true;
        }
        false
    }

    /// Refuses a table that does not say what its offsets were reset to: what it says of them is
    /// void, and neither "covered" nor a new state may come of it.
    fn check_reset(&self, state: Option<&WriterState>) -> Result<()> {
        let open = self.segments.iter().zip(&self.outcomes);
        let mut open = open.filter(|(_, outcome)| outcome.is_none());
        match open.any(|(segment, _)| is_before_reset(state, segment)) {
            true => Err(SinkError::retriable(
                "RESET_UNSEEN",
                "the table's offsets were reset, and its metadata does not say so yet; it is read again",
            )),
            false => Ok(()),
        }
    }

    fn check_owner(&mut self, state: Option<&WriterState>) -> Result<()> {
        if !self.setup.limits.one_owner {
            return Ok(());
        }
        let own = &self.setup.identity.hub_id;
        match self.watch.look(state, own) {
            Ownership::Ok => Ok(()),
            Ownership::ForeignOwner { hub_id, connector } => {
                Err(owned_elsewhere(own, &hub_id, &connector))
            }
        }
    }

    /// Notices that the writer's last commit is still in the table, and not on its branch any more.
    /// The next commit takes the place of it, so nobody could notice later.
    fn check_rollback(&mut self, table: &V, state: Option<&WriterState>) -> Result<()> {
        let branch = &self.setup.identity.branch;
        let last = state.map(|state| state.snapshot_id);
        let Some(snapshot_id) =
            last.filter(|id| table.has_snapshot(*id) && !table.is_in_history(branch, *id))
        else {
            return Ok(());
        };
        if self.setup.limits.rollback == RollbackPolicy::Fail {
            return Err(rolled_back(snapshot_id).with("branch", branch));
        }
        let note = Note::RolledBack { snapshot_id };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
        Ok(())
    }

    /// VALIDATE: settles what the table settles, and goes on with the next batch.
    fn validate(&mut self, table: V, state: Option<WriterState>) -> Result<Action<V>> {
        loop {
            let waiting: Vec<usize> = self
                .order
                .iter()
                .copied()
                .filter(|index| self.is_open(*index))
                .collect();
            let segments: Vec<&Segment> = waiting
                .iter()
                .filter_map(|index| self.segments.get(*index))
                .collect();
            let of = (table.uuid(), self.setup.identity.connector.as_str());
            let changes_max = self.setup.limits.changes_max;
            let dead = &mut self.dead;
            let mut choice = choose_at_most(of, state.as_ref(), &segments, dead, changes_max)?;
            // From places among the waiting to places among all segments.
            let place = |at: usize| waiting.get(at).copied().unwrap_or(usize::MAX);
            choice.batch = choice.batch.into_iter().map(place).collect();
            for (at, verdict) in std::mem::take(&mut choice.decided) {
                self.settle(place(at), verdict);
            }
            if choice.batch.is_empty() {
                return Ok(self.look());
            }
            self.reject_without_spec(&table, &choice.batch);
            let unseen: Vec<usize> = choice
                .batch
                .iter()
                .copied()
                .filter(|index| self.is_open(*index) && !self.present.contains(index))
                .collect();
            if !unseen.is_empty() {
                self.phase = Phase::Checking(Box::new(Chosen {
                    table,
                    state,
                    choice,
                }));
                return Ok(Action::CheckManifests(unseen));
            }
            if self.is_complete(&choice.batch) {
                return self.submit(table, choice.batch, choice.state);
            }
        }
    }

    fn reject_without_spec(&mut self, table: &V, batch: &[usize]) {
        for index in batch {
            let specs = self.segments.get(*index).map(|segment| &segment.manifests);
            let removed = specs
                .into_iter()
                .flatten()
                .map(|sealed| sealed.manifest.partition_spec_id)
                .find(|spec_id| !table.has_spec(*spec_id));
            if let Some(spec_id) = removed {
                self.reject(*index, RejectReason::SpecRemoved { spec_id });
            }
        }
    }

    /// Refuses to go on with a catalog that took a snapshot and threw its properties away: every
    /// further attempt would write the rows once more.
    fn check_stored(&self, table: &V, batch: &[usize]) -> Result<()> {
        let branch = &self.setup.identity.branch;
        for (snapshot_id, segments) in &self.submitted {
            if segments.iter().any(|index| batch.contains(index))
                && table.is_in_history(branch, *snapshot_id)
            {
                return Err(SinkError::fatal(
                    "STATE_NOT_STORED",
                    "the catalog took a snapshot without the table properties of the same request; set `frazil.state.location=summary`, which keeps the offsets in the snapshots",
                )
                .with("snapshot", snapshot_id));
            }
        }
        Ok(())
    }

    /// SUBMIT `batch`, which was judged on `table` (rule R1: nothing else reaches the request).
    fn submit(&mut self, table: V, batch: Vec<usize>, state: WriterState) -> Result<Action<V>> {
        self.check_stored(&table, &batch)?;
        Ok(self.send(table, batch, state))
    }

    fn send(&mut self, table: V, batch: Vec<usize>, state: WriterState) -> Action<V> {
        let keep = match self.without_properties {
            true => Keep::Summary,
            false => self.setup.limits.state_location.keep(Some(&state)),
        };
        // Another batch is another commit: an id stands for one set of segments.
        let same = self.pending.take().filter(|p| p.batch == batch);
        let commit_id = same.map_or_else(|| self.entropy.uuid(), |pending| pending.commit_id);
        let mut snapshot_id = self.entropy.snapshot_id();
        while table.has_snapshot(snapshot_id) {
            snapshot_id = self.entropy.snapshot_id();
        }
        self.pending = Some(Pending {
            commit_id,
            batch: batch.clone(),
            state: state.clone(),
            base: table.clone(),
            keep,
            refused: None,
            by_catalog: false,
            unclear: false,
        });
        self.submitted.push((snapshot_id, batch.clone()));
        self.phase = Phase::Submitted;
        Action::Submit(Submission {
            base: table,
            commit_id,
            snapshot_id,
            attempt: self.attempt_number(),
            batch,
            state,
            keep,
        })
    }

    /// What a writer does that takes an unclear answer for "not applied". Only a build that
    /// switches the rule off gets here.
    fn submit_unresolved(&mut self, table: V, state: Option<WriterState>) -> Result<Action<V>> {
        let batch = match &self.pending {
            Some(pending) => pending.batch.clone(),
            None => return self.validate(table, state),
        };
        let mut state = state.unwrap_or_else(|| WriterState::new(table.uuid()));
        for segment in batch.iter().filter_map(|index| self.segments.get(*index)) {
            state.advance(segment)?;
        }
        Ok(self.send(table, batch, state))
    }

    fn lost_race(&mut self, error: SinkError) -> Action<V> {
        self.counts.conflicts += 1;
        let limits = &self.setup.limits;
        if self.counts.conflicts > limits.conflicts_max {
            return self.stop(
                SinkError::retriable(
                    "COMMIT_CONFLICTS",
                    "other writers won every race for this commit; raise the commit interval of the writers of this table",
                )
                .with("attempts", self.counts.conflicts)
                .caused_by(error),
            );
        }
        let (min, max) = (limits.conflict_pause_min_ms, limits.conflict_pause_max_ms);
        self.sleep(self.counts.conflicts, min, max)
    }

    fn refused(&mut self, error: SinkError) -> Action<V> {
        if let Some(pending) = &mut self.pending {
            pending.refused = Some(error);
        }
        self.look()
    }

    fn unanswered(&mut self, error: SinkError) -> Action<V> {
        self.counts.unknown += 1;
        let limits = &self.setup.limits;
        let (min, max) = (limits.unknown_pause_min_ms, limits.unknown_pause_max_ms);
        let action = self.sleep(self.counts.unknown, min, max);
        if let Action::Sleep { ms } = action {
            self.notes.push(Note::Unclear {
                code: error.code(),
                report: error.report(),
                attempt: self.counts.unknown,
                pause_ms: ms,
            });
        }
        action
    }

    fn sleep(&mut self, attempt: u32, min_ms: u64, max_ms: u64) -> Action<V> {
        self.phase = Phase::Sleeping;
        Action::Sleep {
            ms: pause_ms(attempt, min_ms, max_ms, self.entropy.jitter()),
        }
    }

    fn attempt_number(&self) -> u32 {
        let stale = u32::from(self.remembered_was == Some(Remembered::Stale));
        1 + stale + self.counts.conflicts + self.counts.unknown + self.counts.unauthorized
    }

    fn is_open(&self, index: usize) -> bool {
        matches!(self.outcomes.get(index), Some(None))
    }

    /// Tells whether every segment of `batch` may go into the table's files as it is.
    fn is_complete(&self, batch: &[usize]) -> bool {
        batch
            .iter()
            .all(|index| self.is_open(*index) && self.present.contains(index))
    }

    fn reject(&mut self, index: usize, reason: RejectReason) {
        if let Some(segment) = self.segments.get(index) {
            self.dead.insert(segment.session);
        }
        self.settle(index, Verdict::Rejected(reason));
    }

    fn settle(&mut self, index: usize, verdict: Verdict) {
        let outcome = match verdict {
            Verdict::Covered => SegmentOutcome::Covered,
            Verdict::Rejected(reason) => {
                self.notes.push(Note::Rejected {
                    index,
                    reason: reason.clone(),
                });
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

    fn out_of_turn(&mut self) -> Action<V> {
        self.stop(SinkError::internal(
            "the commit loop was told something that it had not asked for",
        ))
    }

    /// Gives up: the segments without an outcome are blocked by `error`.
    fn stop(&mut self, error: SinkError) -> Action<V> {
        let blocked = error.with("table", &self.setup.table);
        self.blocked.get_or_insert_with(|| Arc::new(blocked));
        self.done()
    }

    fn done(&mut self) -> Action<V> {
        self.phase = Phase::Over;
        let blocked = &self.blocked;
        let outcome = |outcome: &Option<SegmentOutcome>| {
            let unknown = || Arc::new(SinkError::internal("a segment was left without an outcome"));
            outcome
                .clone()
                .unwrap_or_else(|| SegmentOutcome::Blocked(blocked.clone().unwrap_or_else(unknown)))
        };
        Action::Done(self.outcomes.iter().map(outcome).enumerate().collect())
    }
}

#[cfg(test)]
#[path = "attempt_tests.rs"]
mod tests;
