//! Commits against a table in memory that applies one change after the other.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::change::is_older;

/// An order of the number, with the domain 0.
fn order(number: u8) -> [u8; 9] {
    [0, 0, 0, 0, 0, 0, 0, 0, number]
}

fn stored(order: &[u8; 9]) -> Option<Stored<'_>> {
    Some(Stored {
        has_row: true,
        order: Some(Order::of(order)),
    })
}

/// Resolves without a table.
fn alone<'a>(squash: Squash<'a>) -> Resolution<'a> {
    let grouped = squash.group();
    let nothing = vec![None; grouped.keys().len()];
    grouped.resolve(&nothing)
}

fn rows(resolution: &Resolution<'_>) -> Vec<(Vec<u8>, Option<u32>, bool)> {
    let shown = |outcome: &Outcome<'_>| (outcome.key.to_vec(), outcome.row, outcome.removes_stored);
    resolution.outcomes.iter().map(shown).collect()
}

#[test]
fn the_last_change_of_a_key_counts() {
    let orders: Vec<[u8; 9]> = (0..9).map(order).collect();
    let at = |number: usize| Some(Order::of(&orders[number]));
    let mut squash = Squash::default();
    squash.put(b"k", at(1), 10);
    squash.put(b"k", at(3), 11);
    squash.put(b"k", at(2), 12);
    squash.put(b"other", None, 13);
    let resolution = alone(squash);
    assert_eq!(
        rows(&resolution),
        [
            (b"k".to_vec(), Some(11), false),
            (b"other".to_vec(), Some(13), false)
        ]
    );
    assert_eq!(resolution.dropped, [10, 12]);
}

// Promise: of c, d, c with one timestamp, the last that arrived stands (an order that ties)
#[test]
fn equal_orders_go_by_arrival() {
    let same = order(7);
    let at = Some(Order::of(&same));
    let mut squash = Squash::default();
    squash.put(b"k", at, 1);
    squash.delete(b"k", at);
    squash.put(b"k", at, 2);
    let resolution = alone(squash);
    assert_eq!(rows(&resolution), [(b"k".to_vec(), Some(2), false)]);
    assert_eq!(resolution.dropped, [1]);
}

#[test]
fn a_row_that_comes_and_goes_in_one_commit_removes_only_what_was_there() {
    let (five, six, seven) = (order(5), order(6), order(7));
    for (has_row, removes) in [(true, true), (false, false)] {
        let mut squash = Squash::default();
        squash.put(b"k", Some(Order::of(&six)), 1);
        squash.delete(b"k", Some(Order::of(&seven)));
        let known = Stored {
            has_row,
            order: Some(Order::of(&five)),
        };
        let resolution = squash.group().resolve(&[Some(known)]);
        assert_eq!(rows(&resolution), [(b"k".to_vec(), None, removes)]);
        assert_eq!(resolution.dropped, [1]);
    }
}

// Promise: a change that is older than the table's row, or than the row's delete, changes nothing and
// is counted
#[test]
fn older_changes_stay_below_what_the_table_knows() {
    let (five, six) = (order(5), order(6));
    for has_row in [true, false] {
        let mut squash = Squash::default();
        squash.put(b"k", Some(Order::of(&five)), 1);
        let known = Stored {
            has_row,
            order: Some(Order::of(&six)),
        };
        let resolution = squash.group().resolve(&[Some(known)]);
        assert!(resolution.outcomes.is_empty());
        assert_eq!(
            (resolution.dropped.as_slice(), resolution.stale_count),
            (&[1][..], 1)
        );
    }
}

// Promise: a change without an order, or with that of another source, does not hide that a later one is
// older than what came before it
#[test]
fn an_older_change_stays_below_what_cannot_be_compared() {
    let (ten, three, mut other) = (order(10), order(3), order(1));
    other[0] = 1;
    for between in [None, Some(Order::of(&other))] {
        let mut squash = Squash::default();
        squash.put(b"k", Some(Order::of(&ten)), 1);
        squash.put(b"k", between, 2);
        squash.put(b"k", Some(Order::of(&three)), 3);
        let resolution = alone(squash);
        assert_eq!(rows(&resolution), [(b"k".to_vec(), Some(2), false)]);
        assert_eq!(resolution.dropped, [3, 1]);
    }
    // The table's row counts too.
    let mut squash = Squash::default();
    squash.put(b"k", None, 2);
    squash.put(b"k", Some(Order::of(&three)), 3);
    let resolution = squash.group().resolve(&[stored(&ten)]);
    assert_eq!(rows(&resolution), [(b"k".to_vec(), Some(2), true)]);
    assert_eq!(resolution.stale_count, 1);
}

// Promise: a delete without an order, such as the null after a delete, leaves the order of the key as it
// was: a late change does not bring the row back
#[test]
fn a_delete_without_an_order_keeps_the_order_of_the_key() {
    let (five, nine) = (order(5), order(9));
    let mut squash = Squash::default();
    squash.delete(b"k", Some(Order::of(&nine)));
    squash.delete(b"k", None);
    let resolution = squash.group().resolve(&[stored(&five)]);
    assert_eq!(rows(&resolution), [(b"k".to_vec(), None, true)]);
    assert_eq!(resolution.outcomes[0].order, Some(Order::of(&nine)));
    // And that of the table.
    for put in [true, false] {
        let mut squash = Squash::default();
        match put {
            true => squash.put(b"k", None, 1),
            false => squash.delete(b"k", None),
        }
        let resolution = squash.group().resolve(&[stored(&five)]);
        assert_eq!(resolution.outcomes[0].order, Some(Order::of(&five)));
    }
}

#[test]
fn orders_of_another_source_do_not_hold_changes_back() {
    let (nine, mut other) = (order(9), order(1));
    other[0] = 1;
    let mut squash = Squash::default();
    squash.put(b"k", Some(Order::of(&other)), 1);
    let resolution = squash.group().resolve(&[stored(&nine)]);
    assert_eq!(rows(&resolution), [(b"k".to_vec(), Some(1), true)]);
}

// Promise: an update of the key is one delete of the old row and one new row
#[test]
fn a_row_that_gets_another_key_leaves_its_old_one() {
    let (five, six) = (order(5), order(6));
    let mut squash = Squash::default();
    squash.move_row((b"a", b"b"), Some(Order::of(&six)), 1, false);
    let grouped = squash.group();
    assert_eq!(grouped.keys().collect::<Vec<_>>(), [b"a", b"b"]);
    let resolution = grouped.resolve(&[stored(&five), None]);
    assert_eq!(
        rows(&resolution),
        [(b"a".to_vec(), None, true), (b"b".to_vec(), Some(1), false)]
    );
}

// Promise: a value that the source left out comes from the row before, in the same commit or in the
// table, also when the row changed its key
// Case: 18
#[test]
fn values_left_out_come_from_the_row_below() {
    static ORDERS: [[u8; 9]; 2] = [[0, 0, 0, 0, 0, 0, 0, 0, 4], [0, 0, 0, 0, 0, 0, 0, 0, 5]];
    let late = |number: usize| Some(Order::of(&ORDERS[number - 4]));
    let bases = |squash: Squash<'static>, known: &[Option<Stored<'static>>]| {
        let grouped = squash.group();
        let count = grouped.keys().len();
        let known: Vec<_> = (0..count)
            .map(|index| known.get(index).copied().flatten())
            .collect();
        let resolution = grouped.resolve(&known);
        let last = resolution.outcomes.last().cloned().expect("an outcome");
        (last.row, last.bases)
    };
    let table = Stored {
        has_row: true,
        order: None,
    };
    let mut squash = Squash::default();
    squash.put(b"k", None, 1);
    squash.put_partial(b"k", None, 2);
    assert_eq!(bases(squash, &[Some(table)]), (Some(2), vec![Base::Row(1)]));
    let mut squash = Squash::default();
    squash.put_partial(b"k", None, 1);
    squash.put_partial(b"k", None, 2);
    let expected = vec![Base::Row(1), Base::Table(b"k")];
    assert_eq!(bases(squash, &[Some(table)]), (Some(2), expected));
    let mut squash = Squash::default();
    squash.put(b"k", None, 1);
    squash.delete(b"k", None);
    squash.put_partial(b"k", None, 2);
    assert_eq!(bases(squash, &[Some(table)]), (Some(2), vec![]));
    // By order, not by arrival.
    let mut squash = Squash::default();
    squash.put_partial(b"k", late(5), 2);
    squash.put(b"k", late(4), 1);
    assert_eq!(bases(squash, &[]), (Some(2), vec![Base::Row(1)]));
    // As Debezium sends it: the delete of the old key, then the new row, which names the old key.
    let mut squash = Squash::default();
    squash.put(b"a", late(4), 1);
    squash.delete(b"a", late(5));
    squash.move_row((b"a", b"b"), late(5), 2, true);
    assert_eq!(bases(squash, &[]), (Some(2), vec![Base::Row(1)]));
    let mut squash = Squash::default();
    squash.delete(b"a", late(5));
    squash.move_row((b"a", b"b"), late(5), 2, true);
    assert_eq!(
        bases(squash, &[Some(table)]),
        (Some(2), vec![Base::Table(b"a")])
    );
    // Once more, when the table has both changes already.
    let gone = Stored {
        has_row: false,
        order: late(5),
    };
    let moved = Stored {
        has_row: true,
        order: late(5),
    };
    let mut squash = Squash::default();
    squash.delete(b"a", late(5));
    squash.move_row((b"a", b"b"), late(5), 2, true);
    let known = [Some(gone), Some(moved)];
    assert_eq!(bases(squash, &known), (Some(2), vec![Base::Table(b"b")]));
}

// Case: 18
#[test]
fn a_change_that_comes_again_takes_its_values_from_itself() {
    // After an older row without an order, which comes again too.
    let nine = order(9);
    let mut squash = Squash::default();
    squash.put(b"k", None, 1);
    squash.put_partial(b"k", Some(Order::of(&nine)), 2);
    let resolution = squash.group().resolve(&[stored(&nine)]);
    assert_eq!(rows(&resolution), [(b"k".to_vec(), Some(2), true)]);
    assert_eq!(resolution.outcomes[0].bases, [Base::Table(b"k")]);
    // A later change takes them from that row.
    let ten = order(10);
    let mut squash = Squash::default();
    squash.put(b"k", None, 1);
    squash.put_partial(b"k", Some(Order::of(&ten)), 2);
    let resolution = squash.group().resolve(&[stored(&nine)]);
    assert_eq!(resolution.outcomes[0].bases, [Base::Row(1)]);
}

#[test]
fn a_row_that_moves_to_its_own_key_is_a_row_as_any_other() {
    let mut squash = Squash::default();
    squash.put(b"k", None, 1);
    squash.move_row((b"k", b"k"), None, 2, true);
    squash.move_row((b"k", b"k"), None, 3, true);
    let resolution = alone(squash);
    assert_eq!(rows(&resolution), [(b"k".to_vec(), Some(3), false)]);
    let bases = &resolution.outcomes[0].bases;
    assert_eq!(bases, &[Base::Row(2), Base::Row(1)]);
}

#[test]
fn keys_that_change_places_without_an_order_end() {
    let mut squash = Squash::default();
    squash.move_row((b"a", b"b"), None, 1, true);
    squash.move_row((b"b", b"a"), None, 2, true);
    let resolution = alone(squash);
    assert_eq!(
        rows(&resolution),
        [
            (b"a".to_vec(), Some(2), false),
            (b"b".to_vec(), None, false)
        ]
    );
}

// Promise: a soft delete keeps the row as it was; of a row that is not there it does nothing
#[test]
fn a_row_that_is_marked_as_deleted_keeps_its_values() {
    let mut squash = Squash::default();
    squash.mark_deleted(b"k", None, 1);
    squash.mark_deleted(b"none", None, 2);
    let known = Stored {
        has_row: true,
        order: None,
    };
    let resolution = squash.group().resolve(&[Some(known), None]);
    assert_eq!(
        rows(&resolution),
        [
            (b"k".to_vec(), Some(1), true),
            (b"none".to_vec(), None, false)
        ]
    );
    assert_eq!(resolution.outcomes[0].bases, [Base::Table(b"k")]);
    assert_eq!(resolution.dropped, [2]);
    // Inserted again, it is a row as any other.
    let mut squash = Squash::default();
    squash.mark_deleted(b"k", None, 1);
    squash.put(b"k", None, 2);
    let resolution = squash.group().resolve(&[Some(known)]);
    assert_eq!(rows(&resolution), [(b"k".to_vec(), Some(2), true)]);
}

// Promise: a truncation removes what came before it, and rows with a later order survive it
#[test]
fn a_truncation_spares_what_is_newer() {
    let orders: Vec<[u8; 9]> = (0..9).map(order).collect();
    let at = |number: usize| Some(Order::of(&orders[number]));
    let mut squash = Squash::default();
    squash.put(b"before", at(3), 1);
    squash.put(b"newer", at(6), 2);
    squash.truncate(at(5));
    squash.put(b"after", at(7), 3);
    squash.put(b"late", at(4), 4);
    let resolution = alone(squash);
    assert_eq!(
        rows(&resolution),
        [
            (b"after".to_vec(), Some(3), false),
            (b"before".to_vec(), None, false),
            (b"late".to_vec(), None, false),
            (b"newer".to_vec(), Some(2), false),
        ]
    );
    assert_eq!(resolution.dropped, [1, 4]);
    assert_eq!(resolution.truncations, [at(5)]);
}

/// One change of a random stream.
#[derive(Debug, Clone, Copy)]
enum Step {
    Put { key: u8, partial: bool },
    Delete { key: u8 },
    Move { from: u8, to: u8, partial: bool },
    Truncate,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0_u8..4;
    prop_oneof![
        6 => (key(), any::<bool>()).prop_map(|(key, partial)| Step::Put { key, partial }),
        2 => key().prop_map(|key| Step::Delete { key }),
        2 => (key(), key(), any::<bool>())
            .prop_filter("another key", |(from, to, _)| from != to)
            .prop_map(|(from, to, partial)| Step::Move { from, to, partial }),
        1 => Just(Step::Truncate),
    ]
}

/// The number of the change that wrote a row, and the one whose value its second column has.
type Row = (u8, Option<u8>);

/// What the source has after its changes, which are numbered from 1.
fn source(steps: &[Step]) -> BTreeMap<u8, Row> {
    let mut table: BTreeMap<u8, Row> = BTreeMap::new();
    for (step, number) in steps.iter().zip(1_u8..) {
        let value = |partial: bool, old: Option<Row>| match partial {
            true => old.and_then(|(_, value)| value),
            false => Some(number),
        };
        match *step {
            Step::Put { key, partial } => {
                let old = table.get(&key).copied();
                table.insert(key, (number, value(partial, old)));
            }
            Step::Delete { key } => {
                table.remove(&key);
            }
            Step::Move { from, to, partial } => {
                let old = table.remove(&from);
                table.insert(to, (number, value(partial, old)));
            }
            Step::Truncate => table.clear(),
        }
    }
    table
}

/// A table that commits by resolutions.
#[derive(Default)]
struct Table {
    rows: BTreeMap<u8, Row>,
    orders: BTreeMap<u8, [u8; 9]>,
}

impl Table {
    /// Commits the changes with these numbers; with `ordered`, they may be out of order.
    fn commit(&mut self, steps: &[Step], numbers: &[u8], ordered: bool) {
        let keys: Vec<[u8; 1]> = (0..4).map(|key| [key]).collect();
        let orders: Vec<[u8; 9]> = (0..=u8::MAX).map(order).collect();
        let known_orders = self.orders.clone();
        let mut squash = Squash::default();
        let key = |key: u8| &keys[usize::from(key)][..];
        for number in numbers {
            let order = ordered.then(|| Order::of(&orders[usize::from(*number)]));
            let row = u32::from(*number);
            match steps[usize::from(*number) - 1] {
                Step::Put {
                    key: at,
                    partial: false,
                } => squash.put(key(at), order, row),
                Step::Put {
                    key: at,
                    partial: true,
                } => squash.put_partial(key(at), order, row),
                Step::Delete { key: at } => squash.delete(key(at), order),
                Step::Move { from, to, partial } => {
                    squash.move_row((key(from), key(to)), order, row, partial);
                }
                Step::Truncate => squash.truncate(order),
            }
        }
        let grouped = squash.group();
        let known: Vec<Option<Stored<'_>>> = grouped
            .keys()
            .map(|key| {
                let key = key[0];
                let order = known_orders.get(&key);
                let has_row = self.rows.contains_key(&key);
                let order = order.filter(|_| ordered).map(|order| Order::of(order));
                (has_row || order.is_some()).then_some(Stored { has_row, order })
            })
            .collect();
        let resolution = grouped.resolve(&known);
        self.apply(steps, &resolution, ordered);
    }

    fn apply(&mut self, steps: &[Step], resolution: &Resolution<'_>, ordered: bool) {
        let old = self.rows.clone();
        let touched: Vec<u8> = resolution
            .outcomes
            .iter()
            .map(|outcome| outcome.key[0])
            .collect();
        for truncation in &resolution.truncations {
            let spared = |key: &u8| {
                let known = self.orders.get(key).map(|order| Order::of(order));
                let is_newer =
                    ordered && known.is_some_and(|known| is_older(*truncation, Some(known)));
                touched.contains(key) || is_newer
            };
            let kept: Vec<u8> = self.rows.keys().copied().filter(spared).collect();
            self.rows.retain(|key, _| kept.contains(key));
        }
        for outcome in &resolution.outcomes {
            let key = outcome.key[0];
            assert_eq!(outcome.removes_stored, old.contains_key(&key));
            self.rows.remove(&key);
            if let Some(order) = outcome.order {
                self.orders
                    .insert(key, order.bytes().try_into().expect("9 bytes"));
            }
            if let Some(row) = outcome.row {
                let number = u8::try_from(row).expect("small");
                let value = completed(steps, number, &outcome.bases, &old);
                self.rows.insert(key, (number, value));
            }
        }
    }
}

fn is_partial(steps: &[Step], number: u8) -> bool {
    matches!(
        steps[usize::from(number) - 1],
        Step::Put { partial: true, .. } | Step::Move { partial: true, .. }
    )
}

fn completed(
    steps: &[Step],
    number: u8,
    bases: &[Base<'_>],
    old: &BTreeMap<u8, Row>,
) -> Option<u8> {
    if !is_partial(steps, number) {
        return Some(number);
    }
    for base in bases {
        match base {
            Base::Row(row) => {
                let number = u8::try_from(*row).expect("small");
                if !is_partial(steps, number) {
                    return Some(number);
                }
            }
            Base::Table(key) => return old[&key[0]].1,
        }
    }
    None
}

proptest! {
    // Promise: however changes are cut into commits, the table is what the source is
    #[test]
    fn commits_of_any_size_end_in_the_source(
        steps in proptest::collection::vec(step(), 1..40),
        cuts in proptest::collection::vec(1_usize..6, 1..40),
        ordered in any::<bool>(),
    ) {
        let numbers: Vec<u8> = (1..=u8::try_from(steps.len()).unwrap()).collect();
        let (mut table, mut rest) = (Table::default(), numbers.as_slice());
        for cut in cuts.iter().cycle() {
            let (commit, after) = rest.split_at((*cut).min(rest.len()));
            table.commit(&steps, commit, ordered);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(table.rows, source(&steps));
    }

    // Promise: changes that come again, from any point on, leave the table as it is
    #[test]
    fn changes_that_are_sent_again_change_nothing(
        steps in proptest::collection::vec(step(), 1..30),
        from in 0_usize..30,
        cut in 1_usize..6,
    ) {
        let numbers: Vec<u8> = (1..=u8::try_from(steps.len()).unwrap()).collect();
        let mut table = Table::default();
        for commit in numbers.chunks(cut) {
            table.commit(&steps, commit, true);
        }
        let rows = table.rows.clone();
        prop_assert_eq!(&rows, &source(&steps));
        for commit in numbers[from.min(numbers.len())..].chunks(cut + 1) {
            table.commit(&steps, commit, true);
        }
        prop_assert_eq!(table.rows, rows);
    }

    // Promise: with an order, the changes of one commit may arrive in any order
    #[test]
    fn changes_of_a_commit_may_arrive_in_any_order(
        (steps, numbers) in proptest::collection::vec(step(), 1..30).prop_flat_map(|steps| {
            let numbers: Vec<u8> = (1..=u8::try_from(steps.len()).unwrap()).collect();
            (Just(steps), Just(numbers).prop_shuffle())
        }),
    ) {
        let mut table = Table::default();
        table.commit(&steps, &numbers, true);
        prop_assert_eq!(table.rows, source(&steps));
    }
}
