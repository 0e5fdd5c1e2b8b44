//! What the commit loop asks of the world, and what it is told: the values that cross the edge of
//! [`CommitMachine`](super::attempt::CommitMachine).

use iceberg::TableIdent;
use uuid::Uuid;

use super::location::{Keep, StateLocation};
use super::outcome::SegmentOutcome;
use super::plan::CommitIdentity;
use super::state::WriterState;
use super::validate::RejectReason;
use crate::error::{Result, SinkError};
use crate::limits::COMMIT_CHANGES_MAX;

/// How long and how often the loop tries; times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitLimits {
    /// Lost races in one call before it gives up for now.
    pub conflicts_max: u32,
    /// The first pause after a lost race.
    pub conflict_pause_min_ms: u64,
    /// The longest pause after a lost race.
    pub conflict_pause_max_ms: u64,
    /// The first pause when the catalog or the storage gave no clear answer.
    pub unknown_pause_min_ms: u64,
    /// The longest pause when the catalog or the storage gave no clear answer.
    pub unknown_pause_max_ms: u64,
    /// Attempts in a row that could not be built before it gives up for now; `None` goes on.
    pub unbuilt_max: Option<u32>,
    /// Changes of one commit, unless a segment alone has more.
    pub changes_max: u64,
    /// Whether the table may have one committer only, so that another one is an error.
    pub one_owner: bool,
    /// What to do when the writer's last commit was rolled back.
    pub rollback: RollbackPolicy,
    /// Where the writer's state is kept.
    pub state_location: StateLocation,
}

/// What to do when a branch was rolled back behind the writer's last commit. The offsets of the
/// rows that went stay covered: only an offset reset writes them again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RollbackPolicy {
    /// Say so and go on with the next records.
    #[default]
    Warn,
    /// Commit nothing more.
    Fail,
}

impl Default for CommitLimits {
    fn default() -> Self {
        CommitLimits {
            conflicts_max: 60,
            conflict_pause_min_ms: 50,
            conflict_pause_max_ms: 2_000,
            unknown_pause_min_ms: 1_000,
            unknown_pause_max_ms: 60_000,
            unbuilt_max: None,
            changes_max: COMMIT_CHANGES_MAX,
            one_owner: false,
            rollback: RollbackPolicy::Warn,
            state_location: StateLocation::Auto,
        }
    }
}

/// The table that is committed to, the name under which, and the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSetup {
    /// The table.
    pub table: TableIdent,
    /// Who commits, and to which branch.
    pub identity: CommitIdentity,
    /// How long and how often the loop tries.
    pub limits: CommitLimits,
}

/// Where the loop's random numbers come from.
pub trait Entropy {
    /// Returns a UUID that was never returned before, anywhere.
    fn uuid(&mut self) -> Uuid;

    /// Returns a random positive number.
    fn snapshot_id(&mut self) -> i64;

    /// Returns a random number out of the whole range.
    fn jitter(&mut self) -> u32;
}

/// What is to be done next. Each but the last is answered by a call of the machine.
#[derive(Debug)]
pub enum Action<V> {
    /// Load the table: `loaded` or `load_failed`.
    Load,
    /// Look whether the manifests of these segments are as they were sealed: `checked`.
    CheckManifests(Vec<usize>),
    /// Build the commit, and submit it once: `answered`.
    Submit(Submission<V>),
    /// Wait: `slept`.
    Sleep {
        /// How long, in milliseconds.
        ms: u64,
    },
    /// Nothing: this became of each segment, by its index.
    Done(Vec<(usize, SegmentOutcome)>),
}

/// A commit that is to be made.
#[derive(Debug, Clone)]
pub struct Submission<V> {
    /// The table on which the offsets were judged. The request is built on it and asserts its head
    /// (rule R1).
    pub base: V,
    /// The commit's id, the same for all attempts of a batch.
    pub commit_id: Uuid,
    /// The snapshot's id, another one for each attempt.
    pub snapshot_id: i64,
    /// The number of the attempt, from 1, for the names of its files.
    pub attempt: u32,
    /// The segments, by index, in their order.
    pub batch: Vec<usize>,
    /// The state after the commit, to be signed by [`CommitIdentity::sign`].
    pub state: WriterState,
    /// Where the state goes.
    pub keep: Keep,
}

/// What came of a submission.
#[derive(Debug)]
pub enum Answer<V> {
    /// Applied; the table as it is now.
    Committed(V),
    /// Not applied: the table is not what the requirements say, or the catalog is busy.
    Conflict(SinkError),
    /// Not applied: the catalog takes no such commit.
    Refused(SinkError),
    /// Not applied: the catalog does not let us in.
    Unauthorized(SinkError),
    /// Applied or not.
    Unknown(SinkError),
    /// The request could not be built and was not sent.
    NotSent(SinkError),
    /// The same, for the files of the segment of this index: it can never be committed.
    Unusable(usize, RejectReason),
}

/// What a look at the manifests of one segment said: why they may not be committed, if so.
pub type Checked = (usize, Result<Option<RejectReason>>);

/// Something that happened and is worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A batch is in the table.
    Committed {
        /// Its segments.
        batch: Vec<usize>,
        /// Its snapshot.
        snapshot_id: i64,
        /// How many attempts it took.
        attempts: u32,
    },
    /// A segment will never be committed.
    Rejected {
        /// The segment.
        index: usize,
        /// Why.
        reason: RejectReason,
    },
    /// The branch was rolled back behind the writer's last commit.
    RolledBack {
        /// The snapshot of that commit.
        snapshot_id: i64,
    },
    /// The catalog refused the first commit of this writer, which sets table properties; it is made
    /// without them.
    PropertiesRefused {
        /// The refusal.
        report: String,
    },
    /// There was no clear answer; the table is read again after a pause.
    Unclear {
        /// The code of the failure.
        code: &'static str,
        /// The failure.
        report: String,
        /// The number of such answers so far.
        attempt: u32,
        /// The pause.
        pause_ms: u64,
    },
}

/// Returns the pause before attempt `attempt` (from 1): `min_ms` doubled each time up to `max_ms`,
/// then a part of that by `jitter`, at least half.
pub fn pause_ms(attempt: u32, min_ms: u64, max_ms: u64, jitter: u32) -> u64 {
    let doubled = min_ms.saturating_mul(1 << attempt.saturating_sub(1).min(20));
    let whole = doubled.min(max_ms);
    let half = whole / 2;
    let part = u128::from(whole - half) * u128::from(jitter) / u128::from(u32::MAX);
    half + u64::try_from(part).unwrap_or(whole - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit() {
        for (attempt, whole) in [
            (1, 1_000),
            (2, 2_000),
            (3, 4_000),
            (6, 32_000),
            (7, 60_000),
            (4_000, 60_000),
        ] {
            let pause = |jitter| pause_ms(attempt, 1_000, 60_000, jitter);
            assert_eq!((pause(0), pause(u32::MAX)), (whole / 2, whole), "{attempt}");
        }
    }
}
