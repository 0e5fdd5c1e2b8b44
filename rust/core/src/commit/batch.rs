//! Chooses which waiting segments go into the next commit of a table.
//!
//! A verdict against the table's own state is final. A segment that only clashes with another one
//! of the same batch waits for the next round: as long as that commit is not made, "covered" would
//! be a promise.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::state::WriterState;
use super::validate::{RejectReason, Verdict, covered_by_another, verdict};
use crate::control::segment::Segment;
use crate::error::Result;
use crate::limits::COMMIT_CHANGES_MAX;
use crate::rules::{Rule, enforced};

/// The outcome of [`choose`]; indexes are those of the waiting segments.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Final verdicts, none of them [`Verdict::Commit`].
    pub decided: Vec<(usize, Verdict)>,
    /// The segments of the next commit, in their order; empty when nothing is left to commit.
    pub batch: Vec<usize>,
    /// The state after that commit, still with the identity of the last one.
    pub state: WriterState,
}

/// Judges `waiting` segments in their order against the table with `table_uuid` and `state`, and
/// chooses the next batch. `dead` are the sessions that lost a segment before; sessions that lose
/// one now are added. They are segments of `connector`.
pub fn choose(
    table_uuid: Uuid,
    state: Option<&WriterState>,
    connector: &str,
    waiting: &[&Segment],
    dead: &mut BTreeSet<Uuid>,
) -> Result<Choice> {
    let of = (table_uuid, connector);
    choose_at_most(of, state, waiting, dead, COMMIT_CHANGES_MAX)
}

/// Does what [`choose`] says, of the table with this UUID and this connector; the next batch has at most
/// `changes_max` changes, or one segment.
pub fn choose_at_most(
    (table_uuid, connector): (Uuid, &str),
    state: Option<&WriterState>,
    waiting: &[&Segment],
    dead: &mut BTreeSet<Uuid>,
    changes_max: u64,
) -> Result<Choice> {
    let mut decided = Vec::new();
    let mut open = Vec::new();
    // Metadata from before a reset does not show it; a segment that was sealed after it does.
    let epoch = waiting.iter().map(|segment| segment.epoch).max();
    for (index, segment) in waiting.iter().enumerate() {
        let judged = match verdict(table_uuid, state, segment) {
            Verdict::Covered => covered(state, segment, connector),
            Verdict::Commit if enforced(Rule::DeadSession) && dead.contains(&segment.session) => {
                Verdict::Rejected(RejectReason::SessionRejected)
            }
            Verdict::Commit if epoch > Some(segment.epoch) => Verdict::Fenced {
                epoch: epoch.unwrap_or_default(),
            },
            other => other,
        };
        match judged {
            Verdict::Commit => open.push((index, *segment)),
            Verdict::Covered => decided.push((index, Verdict::Covered)),
            lost => {
                dead.insert(segment.session);
                decided.push((index, lost));
            }
        }
    }
    let mut state = state
        .cloned()
        .unwrap_or_else(|| WriterState::new(table_uuid));
    let mut batch: Vec<usize> = Vec::new();
    let mut changes = 0u64;
    let mut held = BTreeSet::new();
    for (index, segment) in open {
        // Rule R8: a delete does not reach rows of its own commit.
        let alone = enforced(Rule::DeletesAlone) && segment.has_equality_deletes();
        let more = segment.changes();
        let is_full = changes > 0 && changes.saturating_add(more) > changes_max;
        if (alone || is_full) && !batch.is_empty() {
            break;
        }
        if held.contains(&segment.session)
            || verdict(table_uuid, Some(&state), segment) != Verdict::Commit
        {
            // Rule R2: nothing of a session passes an earlier segment of it.
            if enforced(Rule::SessionOrder) {
                held.insert(segment.session);
            }
            continue;
        }
        state.advance(segment)?;
        changes = changes.saturating_add(more);
        batch.push(index);
        if alone {
            break;
        }
    }
    Ok(Choice {
        decided,
        batch,
        state,
    })
}

/// Judges a segment whose rows the table has. What it has, it has, whatever happened to the session.
fn covered(state: Option<&WriterState>, segment: &Segment, connector: &str) -> Verdict {
    match covered_by_another(state, segment, connector) {
        Some(reason) => Verdict::Rejected(reason),
        None => Verdict::Covered,
    }
}

/// Returns the indexes of `segments` in the order in which they are to be judged: sessions in the
/// order of their first segment, and the segments of each by `seq` (rule R9).
pub fn order(segments: &[Segment]) -> Vec<usize> {
    let mut sessions: Vec<Uuid> = Vec::new();
    for segment in segments {
        if !sessions.contains(&segment.session) {
            sessions.push(segment.session);
        }
    }
    let mut order: Vec<(usize, u64, usize)> = segments
        .iter()
        .enumerate()
        .map(|(index, segment)| {
            let session = sessions.iter().position(|known| *known == segment.session);
            let seq = match enforced(Rule::SegmentOrder) {
                true => segment.seq,
                false => 0,
            };
            (session.unwrap_or(usize::MAX), seq, index)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, _, index)| index).collect()
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
