//! What a process remembers of the orders of changes, and when it forgets it.
//!
//! An order says how new the table's row of a key is, and no table keeps it. So what is remembered is of use
//! only as long as the table is the one that the process has made:
//!
//! | what happens | what becomes of the orders |
//! |---|---|
//! | another writer commits rows, deletes or compactions | they count: the source's changes are as old as they were |
//! | another process commits changes | forgotten: it may have emptied the table, and its orders are not known |
//! | a commit whose answer was lost is there after all | its orders count, unless another one was begun meanwhile: then the same |
//! | the table is rolled back behind the last commit | forgotten: the table does not have what they are of |
//! | the snapshot of the last commit expires | kept, while it can be told from what is left that there was no rollback |
//! | the catalog answers with a table from before the last commit | nothing: no commit can be built on that |
//! | the table is replaced, or its key gets other columns | forgotten: they are of other keys |
//! | the offsets are reset | kept, but for truncations that were applied: rows of before them come again |

use std::collections::VecDeque;

use uuid::Uuid;

use super::changed::Noted;
use super::key::KeyForm;
use crate::change::window::KnownOrders;
use crate::commit::outcome::is_made_by;
use crate::commit::state::WriterState;
use crate::commit::view::TableView;
use crate::error::Result;
use crate::rules::{Rule, enforced};

/// What the numbers of keys are numbers of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The table.
    pub table: Uuid,
    /// How keys become numbers.
    pub form: KeyForm,
    /// The columns of the key and their classes (`KeyPlan::fingerprint`).
    pub key: String,
}

/// The orders of the last changes of a table, as far as they are known.
#[derive(Debug)]
pub struct Orders {
    known: KnownOrders,
    /// The table as it was when they were looked at last.
    seen: Option<Seen>,
    /// The snapshot of the last commit whose orders are among them.
    snapshot: Option<i64>,
    /// A later one of which it is known to be an ancestor, and which expires later.
    head: Option<i64>,
    /// The last commits of this process, the newest last.
    own: VecDeque<Uuid>,
    /// What a commit changes that the table does not have yet, and may come to have.
    expected: Option<(Uuid, Noted)>,
}

/// Commits of which the process knows that they are its own.
const OWN_MAX: usize = 16;

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    keys: Keys,
    /// The last commit of the writer.
    commit_id: Option<Uuid>,
    epoch: u64,
}

impl Orders {
    /// Keeps orders for `window_ms`, in about `bytes_max` bytes.
    pub fn new(window_ms: i64, bytes_max: usize) -> Self {
        Orders {
            known: KnownOrders::new(window_ms, bytes_max),
            seen: None,
            snapshot: None,
            head: None,
            own: VecDeque::new(),
            expected: None,
        }
    }

    /// Returns them.
    pub fn known(&self) -> &KnownOrders {
        &self.known
    }

    /// Becomes true to `table`, whose keys are `keys` and whose branch has the head `head`: forgets what is not of this table any more, and what
    /// is older than the window.
    ///
    /// # Errors
    ///
    /// The table's state cannot be read.
    pub fn follow<V: TableView>(
        &mut self,
        table: &V,
        (wid, branch, head): (&str, &str, Option<i64>),
        keys: Keys,
        now_ms: i64,
    ) -> Result<()> {
        let state = table.writer_state(wid, branch)?;
        self.find_expected(state.as_ref(), now_ms);
        let now = Seen {
            keys,
            commit_id: state.as_ref().map(|state| state.commit_id),
            epoch: state.as_ref().map_or(0, |state| state.epoch),
        };
        if self.is_from_before(table, now.commit_id) {
            return Ok(());
        }
        if let Some(before) = &self.seen {
            let by_another = before.commit_id != now.commit_id && enforced(Rule::OrdersOfOthers);
            if before.keys != now.keys || by_another || self.is_rolled_back(table, branch) {
                self.known.forget();
                self.snapshot = None;
            } else if before.epoch < now.epoch && enforced(Rule::OrdersOfReset) {
                self.known.expect_again();
            }
        }
        self.seen = Some(now);
        self.head = self.snapshot.and(head);
        self.known.expire(now_ms);
        Ok(())
    }

    /// Tells whether `table` is as it was before the last commit of this process: its own commit before that
    /// was the last one, and the snapshot of the last is not there yet.
    fn is_from_before<V: TableView>(&self, table: &V, commit_id: Option<Uuid>) -> bool {
        let of_past = self.own.iter().rev().skip(1);
        let is_past = commit_id.is_none_or(|id| of_past.clone().any(|own| *own == id));
        is_past && self.snapshot.is_some_and(|id| !table.has_snapshot(id))
    }

    fn is_rolled_back<V: TableView>(&self, table: &V, branch: &str) -> bool {
        let is_there = |id: &i64| table.descends_from(branch, *id);
        let is_gone = |id: i64| {
            let mut all = [Some(id), self.head].into_iter().flatten();
            !all.any(|id| is_there(&id))
        };
        self.snapshot.is_some_and(is_gone) && enforced(Rule::OrdersOfRollback)
    }

    /// Keeps what the commit `commit_id` changes until the table shows it, or another one.
    pub(super) fn expect(&mut self, commit_id: Uuid, noted: Noted) {
        self.expected = Some((commit_id, noted));
    }

    fn find_expected(&mut self, state: Option<&WriterState>, now_ms: i64) {
        let made = |(id, _): &mut (Uuid, Noted)| is_made_by(state, *id);
        let snapshot_id = state.map(|state| state.snapshot_id);
        if let Some((id, noted)) = self.expected.take_if(made)
            && let Some(snapshot_id) = snapshot_id
        {
            self.commit(id, snapshot_id, &noted, now_ms);
        }
    }

    /// Takes in that the table has the commit `commit_id`, whose snapshot is `snapshot_id`, with what is
    /// `noted` of it.
    pub(super) fn commit(&mut self, commit_id: Uuid, snapshot_id: i64, noted: &Noted, now_ms: i64) {
        self.expected = None;
        if let Some(seen) = &mut self.seen {
            seen.commit_id = Some(commit_id);
        }
        self.own.push_back(commit_id);
        if self.own.len() > OWN_MAX {
            self.own.pop_front();
        }
        (self.snapshot, self.head) = (Some(snapshot_id), None);
        noted.note(&mut self.known, now_ms);
    }

    /// Returns about how many bytes of memory they take.
    pub fn memory_bytes(&self) -> usize {
        let expected = self.expected.as_ref();
        self.known.memory_bytes() + expected.map_or(0, |(_, noted)| noted.memory_bytes())
    }
}

#[cfg(test)]
#[path = "orders_tests.rs"]
pub(super) mod tests;
