//! When the orders of changes are remembered, and when they are forgotten.

use super::*;
use crate::change::Order;
use crate::commit::state::WriterState;
use crate::index::KeyNumber;
use crate::index::changed::{Noted, Pending};
use crate::index::resolve::Counts;
use crate::index::table::Delta;

/// A table by what is asked of it here.
#[derive(Debug, Clone, Default)]
pub(in crate::index) struct Table {
    /// The branch, oldest first.
    pub(in crate::index) branch: Vec<i64>,
    /// What was there before it, oldest first.
    pub(in crate::index) expired: Vec<i64>,
    /// Snapshots that the table has beside it.
    pub(in crate::index) others: Vec<i64>,
    pub(in crate::index) state: Option<WriterState>,
}

impl TableView for Table {
    fn uuid(&self) -> Uuid {
        Uuid::from_u128(7)
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn writer_state(&self, _wid: &str, _branch: &str) -> Result<Option<WriterState>> {
        Ok(self.state.clone())
    }

    fn has_moved(&self, _now: &Self) -> bool {
        false
    }

    fn is_in_history(&self, _branch: &str, snapshot_id: i64) -> bool {
        self.branch.contains(&snapshot_id)
    }

    fn has_snapshot(&self, snapshot_id: i64) -> bool {
        self.branch.contains(&snapshot_id) || self.others.contains(&snapshot_id)
    }

    fn descends_from(&self, branch: &str, snapshot_id: i64) -> bool {
        let is_there = self.has_snapshot(snapshot_id);
        let is_parent = self.expired.last() == Some(&snapshot_id);
        match is_there {
            true => self.is_in_history(branch, snapshot_id),
            false => is_parent && !self.branch.is_empty(),
        }
    }

    fn has_spec(&self, _spec_id: i32) -> bool {
        true
    }
}

const W: (&str, &str) = ("w", "main");
const K: KeyNumber = KeyNumber(7);

fn id(number: i64) -> Uuid {
    Uuid::from_u128(number as u128)
}

fn order(number: u8) -> [u8; 10] {
    [0, 0, 0, 0, 0, 0, 0, 0, number, 1]
}

pub(in crate::index) fn keys(key: &str) -> Keys {
    Keys {
        table: id(7),
        form: KeyForm::Exact,
        key: key.to_owned(),
    }
}

impl Table {
    /// Makes a commit of the writer, whose snapshot has its number.
    fn commit(&mut self, number: i64) {
        self.branch.push(number);
        let state = self.state.get_or_insert_with(|| WriterState::new(id(7)));
        (state.commit_id, state.snapshot_id) = (id(number), number);
    }
}

fn follow(orders: &mut Orders, table: &Table, (key, now_ms): (&str, i64)) {
    let head = table.branch.last().copied();
    let (wid, branch) = W;
    let followed = orders.follow(table, (wid, branch, head), keys(key), now_ms);
    followed.unwrap();
}

/// The process commits a change of the key at this place of its source, and the table has it.
fn change(orders: &mut Orders, table: &mut Table, number: u8) {
    follow(orders, table, ("1", 0));
    table.commit(number.into());
    let snapshot_id = number.into();
    let noted = Noted::of([(K, &order(number))]);
    orders.commit(id(snapshot_id), snapshot_id, &noted, 0);
    follow(orders, table, ("1", 0));
}

fn knows(orders: &Orders, number: u8) -> bool {
    orders.known().is_stale(K, Order::of(&order(number)))
}

fn begun() -> (Orders, Table) {
    let (mut orders, mut table) = (Orders::new(1_000, 1 << 20), Table::default());
    change(&mut orders, &mut table, 5);
    change(&mut orders, &mut table, 9);
    (orders, table)
}

#[test]
fn orders_stay_while_others_add_rows() {
    let (mut orders, mut table) = begun();
    assert!(knows(&orders, 8) && !knows(&orders, 9));
    table.branch.push(100);
    follow(&mut orders, &table, ("1", 1_000));
    assert!(knows(&orders, 8));
    // Also without a commit they are kept for the window and no longer.
    follow(&mut orders, &table, ("1", 1_001));
    assert!(!knows(&orders, 8));
}

// Promise: After a rollback of a table with changes, a change that is newer than the row that came back counts, though an even newer one was rolled back.
#[test]
fn orders_of_a_rolled_back_commit_are_forgotten() {
    for is_expired in [false, true] {
        let (mut orders, mut table) = begun();
        table.branch.pop();
        if !is_expired {
            table.others.push(9);
        }
        table.branch.push(100);
        follow(&mut orders, &table, ("1", 0));
        assert!(!knows(&orders, 7));
    }
}

// Promise: What is known of the order of changes outlives the expiry of the snapshot that had them.
#[test]
fn orders_outlive_the_snapshot_that_brought_them() {
    let (mut orders, mut table) = begun();
    table.branch = vec![100, 101];
    table.expired = vec![5, 9];
    follow(&mut orders, &table, ("1", 0));
    assert!(knows(&orders, 8), "it is the parent of the oldest");
    table.branch = vec![102];
    table.expired = vec![5, 9, 100, 101];
    follow(&mut orders, &table, ("1", 0));
    assert!(knows(&orders, 8), "what descends from it was seen");
    table.branch = vec![104];
    table.expired = vec![5, 9, 100, 101, 102, 103];
    follow(&mut orders, &table, ("1", 0));
    assert!(!knows(&orders, 8), "nobody can tell");
}

#[test]
fn orders_are_forgotten_when_another_process_has_committed() {
    let (mut orders, mut table) = begun();
    table.commit(10);
    follow(&mut orders, &table, ("1", 0));
    assert!(!knows(&orders, 8));
}

#[test]
fn orders_of_other_keys_are_forgotten() {
    let (mut orders, table) = begun();
    follow(&mut orders, &table, ("2", 0));
    assert!(!knows(&orders, 8));
}

// A catalog may answer with what was the newest a while ago: the commit is refused, and tried again.
#[test]
fn a_table_of_the_past_makes_nothing_forgotten() {
    let (mut orders, table) = begun();
    let mut past = table.clone();
    past.branch.pop();
    past.state.as_mut().unwrap().commit_id = id(5);
    follow(&mut orders, &past, ("1", 0));
    follow(&mut orders, &table, ("1", 0));
    assert!(knows(&orders, 8));
}

// Promise: After an offset reset a truncation is applied again, so that rows of before it that came again do not stay; a change that is older than what the table has is still told.
#[test]
fn after_a_reset_a_truncation_counts_again() {
    let (mut orders, mut table) = begun();
    let twelve = order(12);
    table.commit(12);
    orders.commit(id(12), 12, &Noted::of_truncation(&twelve), 0);
    follow(&mut orders, &table, ("1", 0));
    assert!(orders.known().knows_truncation(Order::of(&twelve)));
    table.state.as_mut().unwrap().epoch = 1;
    follow(&mut orders, &table, ("1", 0));
    assert!(!orders.known().knows_truncation(Order::of(&twelve)));
    assert!(knows(&orders, 8) && knows(&orders, 11));
}

fn pending(number: i64) -> Pending {
    Pending {
        commit_id: id(number),
        snapshot_id: number,
        delta: Delta {
            generation: 0,
            added: vec![],
            dropped: vec![],
            changes: vec![],
        },
        noted: Noted::of([(K, &order(12))]),
        counts: Counts::default(),
    }
}

// An answer was lost, and before the next commit the table has moved on.
#[test]
fn the_orders_of_a_commit_count_when_the_table_has_it() {
    // As attempted; by another attempt of the same commit; behind a commit of another process; not at all.
    let cases = [
        (12, 12, true, true),
        (12, 13, false, true),
        (14, 12, true, false),
        (9, 9, false, false),
    ];
    for (last, snapshot, is_there, is_known) in cases {
        let (mut orders, mut table) = begun();
        if snapshot != 9 {
            table.commit(snapshot);
        }
        let state = table.state.as_mut().unwrap();
        state.commit_id = id(last);
        let settled = pending(12).settle(&table, W, &mut orders, 0).unwrap();
        follow(&mut orders, &table, ("1", 0));
        assert_eq!(
            (settled, knows(&orders, 10)),
            (is_there, is_known),
            "{last} {snapshot}"
        );
    }
}

// Promise: What is known of the order of changes is not lost where the answer to a commit is, and it lands behind a further try.
#[test]
fn the_orders_of_a_commit_that_lands_late_count() {
    let (mut orders, mut table) = begun();
    assert!(!pending(12).settle(&table, W, &mut orders, 0).unwrap());
    let bytes = orders.memory_bytes();
    follow(&mut orders, &table, ("1", 0));
    assert!(!knows(&orders, 10));
    // The next try failed before it was sent.
    table.commit(12);
    follow(&mut orders, &table, ("1", 0));
    assert!(knows(&orders, 10));
    assert!(bytes > orders.memory_bytes(), "it is not held twice");
    // Another commit was begun meanwhile, and not made.
    let (mut orders, mut table) = begun();
    pending(12).settle(&table, W, &mut orders, 0).unwrap();
    table.commit(12);
    pending(13).settle(&table, W, &mut orders, 0).unwrap();
    follow(&mut orders, &table, ("1", 0));
    assert!(knows(&orders, 10));
    // Another commit was made in its place.
    let (mut orders, mut table) = begun();
    pending(12).settle(&table, W, &mut orders, 0).unwrap();
    change(&mut orders, &mut table, 11);
    table.commit(12);
    follow(&mut orders, &table, ("1", 0));
    assert!(!knows(&orders, 9) && !knows(&orders, 10));
}

// After a reset the table does not say which of the attempts of a commit was made.
#[test]
fn the_orders_of_a_commit_that_lands_late_count_after_a_reset() {
    let landed = || {
        let (mut orders, mut table) = begun();
        pending(12).settle(&table, W, &mut orders, 0).unwrap();
        table.commit(12);
        let state = table.state.as_mut().unwrap();
        (state.epoch, state.snapshot_id) = (1, -1);
        // The last of two attempts, which was not made.
        let mut last = pending(12);
        last.snapshot_id = 13;
        assert!(!last.settle(&table, W, &mut orders, 0).unwrap());
        (orders, table)
    };
    let (mut orders, mut table) = landed();
    table.branch.push(14);
    follow(&mut orders, &table, ("1", 0));
    assert!(knows(&orders, 10));
    // It went with a rollback, before or after it was seen.
    table.branch.retain(|id| *id < 12);
    table.others.push(12);
    follow(&mut orders, &table, ("1", 0));
    assert!(!knows(&orders, 10));
    let (mut orders, mut table) = begun();
    pending(12).settle(&table, W, &mut orders, 0).unwrap();
    table.commit(12);
    table.branch.retain(|id| *id < 12);
    table.others.push(12);
    let state = table.state.as_mut().unwrap();
    (state.epoch, state.snapshot_id) = (1, -1);
    follow(&mut orders, &table, ("1", 0));
    assert!(!knows(&orders, 10));
}

// Also where nothing is committed.
#[test]
fn truncations_and_rows_that_left_are_kept_for_the_window_and_no_longer() {
    let (mut orders, mut table) = begun();
    let (twelve, left) = (order(12), KeyNumber(8));
    table.commit(12);
    orders.commit(id(12), 12, &Noted::of_truncation(&twelve), 0);
    table.commit(13);
    orders.commit(id(13), 13, &Noted::of_left(left, &twelve), 0);
    follow(&mut orders, &table, ("1", 1_000));
    assert!(orders.known().knows_truncation(Order::of(&twelve)));
    assert!(orders.known().left(left).is_some());
    follow(&mut orders, &table, ("1", 1_001));
    assert!(!orders.known().knows_truncation(Order::of(&twelve)));
    assert!(orders.known().left(left).is_none() && orders.memory_bytes() == 0);
}
