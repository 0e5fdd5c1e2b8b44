use super::*;
use crate::change::Order;
use crate::change::window::{KnownOrders, LeftRow};
use crate::index::KeyForm;
use crate::index::changed::LocatedChanges;
use crate::index::files::IndexedFile;
use crate::index::table::{Delta, Moved};
use crate::offsets::{SourceRange, TopicPartition};

/// The bytes of an order; `mention` is what a record says of the key that its row had before.
fn order(number: u8, is_mention: bool) -> Vec<u8> {
    vec![0, 0, 0, 0, 0, 0, 0, 0, number, u8::from(!is_mention)]
}

const TABLE: u32 = 0;

fn row(file: u32, row: u32) -> Location {
    Location { file, row }
}

/// An index of a table whose file has the rows of the keys, key by key.
fn index(keys: &[u128]) -> Index {
    let mut index = Index::new(KeyForm::Exact);
    let rows = (0u32..).zip(keys);
    let rows = rows.map(|(at, key)| (KeyNumber(*key), Some(row(TABLE, at))));
    let delta = Delta {
        generation: index.generation(),
        added: vec![IndexedFile::new("table", keys.len().max(1) as u64).unwrap()],
        dropped: Vec::new(),
        changes: vec![rows.map(|(key, to)| Moved::of(key, to)).collect()],
    };
    index.apply(delta).unwrap();
    index
}

type Change = (u128, Effect, i64, Option<Vec<u8>>);

fn change(key: u128, effect: Effect, offset: i64, order: Option<Vec<u8>>) -> Change {
    (key, effect, offset, order)
}

fn put(key: u128, at: u32, offset: i64) -> Change {
    let order = Some(order(offset as u8, false));
    change(key, Effect::Upsert(row(0, at)), offset, order)
}

fn lacking(key: u128, at: u32, offset: i64) -> Change {
    let order = Some(order(offset as u8, false));
    change(key, Effect::Pending(row(0, at)), offset, order)
}

fn delete(key: u128, offset: i64) -> Change {
    change(
        key,
        Effect::Delete,
        offset,
        Some(order(offset as u8, false)),
    )
}

/// What a row at `offset` that had the key says of it.
fn mention(key: u128, offset: i64) -> Change {
    change(key, Effect::Delete, offset, Some(order(offset as u8, true)))
}

fn find(index: &Index, known: &KnownOrders, changes: &[Change]) -> Vec<(u128, Vec<Base>)> {
    let located = locate(index, known, changes, &[]);
    let found = located.incomplete().iter();
    found.map(|one| (one.key.0, one.bases.clone())).collect()
}

/// The rows of the keys `leaving` get other keys with their deletes.
fn locate(
    index: &Index,
    known: &KnownOrders,
    changes: &[Change],
    leaving: &[u128],
) -> LocatedChanges {
    let mut run = KeyRun::default();
    for (key, effect, offset, order) in changes {
        let is_mention = order.as_deref().and_then(<[u8]>::last) == Some(&0);
        let change = RunChange::new(KeyNumber(*key), *effect, (0, *offset));
        let leaves = leaving.contains(key) && *effect == Effect::Delete && !is_mention;
        let change = change.moving(is_mention).leaving(leaves);
        run.push(&change, order.as_deref().map(Order::of)).unwrap();
    }
    run.sort();
    let rows = changes.iter();
    let rows = rows.filter(|(_, effect, ..)| matches!(effect, Effect::Upsert(_)));
    let files = match rows.count() {
        0 => Vec::new(),
        rows => vec![IndexedFile::new("new", rows as u64).unwrap()],
    };
    let ranges = [range()];
    let parts = [SegmentChanges {
        run: &run,
        ranges: &ranges,
        files: &files,
    }];
    let mut located = LocatedChanges::begin(index, files.clone());
    located.add(index, known, &parts).unwrap();
    located.finish();
    located
}

fn nothing_known() -> KnownOrders {
    KnownOrders::new(1_000, 1 << 20)
}

const OF_TABLE: Base = Base::Table(Location {
    file: TABLE,
    row: 0,
});

#[test]
fn a_row_takes_values_from_the_rows_below_it() {
    let known = nothing_known();
    let seven = index(&[7]);
    let of = |changes: &[Change]| find(&seven, &known, changes);
    assert_eq!(of(&[lacking(7, 0, 1)]), [(7, vec![OF_TABLE])]);
    assert_eq!(
        of(&[lacking(7, 0, 1), lacking(7, 1, 2)]),
        [(7, vec![Base::Pending(0, row(0, 0)), OF_TABLE])]
    );
    // What is in the commit is nearer than the table.
    assert_eq!(
        of(&[put(7, 0, 1), lacking(7, 0, 2)]),
        [(7, vec![Base::New(0, row(0, 0))])]
    );
    // Nothing is below a delete, and a complete row takes nothing.
    assert_eq!(of(&[delete(7, 1), lacking(7, 0, 2)]), [(7, vec![])]);
    assert_eq!(of(&[lacking(7, 0, 1), put(7, 0, 2)]), []);
    assert_eq!(of(&[lacking(8, 0, 1)]), [(8, vec![])]);
}

#[test]
fn a_change_that_arrives_late_is_below_newer_ones() {
    let known = nothing_known();
    let late = [lacking(7, 0, 5), put(7, 0, 3)];
    assert_eq!(
        find(&index(&[7]), &known, &late),
        [(7, vec![Base::New(0, row(0, 0))])]
    );
    // One that is older than what the table has is below the table's row.
    let mut known = nothing_known();
    known.note(KeyNumber(7), Order::of(&order(4, false)), 0);
    assert_eq!(find(&index(&[7]), &known, &late), [(7, vec![OF_TABLE])]);
}

#[test]
fn marks_have_the_values_of_the_row_below_them() {
    let known = nothing_known();
    let mark = |at, offset| {
        let order = Some(order(offset as u8, false));
        change(7, Effect::Mark(row(0, at)), offset, order)
    };
    let marked = [lacking(7, 0, 1), mark(1, 2)];
    let bases = vec![Base::Pending(0, row(0, 0)), OF_TABLE];
    assert_eq!(find(&index(&[7]), &known, &marked), [(7, bases.clone())]);
    let twice = [lacking(7, 0, 1), mark(1, 2), mark(2, 3)];
    assert_eq!(find(&index(&[7]), &known, &twice), [(7, bases)]);
    assert_eq!(find(&index(&[]), &known, &[mark(0, 1)]), [(7, vec![])]);
}

#[test]
fn a_row_that_changed_its_key_takes_values_from_where_it_left_it() {
    let known = nothing_known();
    // The source deletes the old key itself, and mentions it once more in the record of the new row.
    let moved = [delete(1, 5), lacking(2, 0, 5), mention(1, 5)];
    let debezium: Vec<Change> = moved.to_vec();
    assert_eq!(find(&index(&[1]), &known, &debezium), [(2, vec![OF_TABLE])]);
    // Also where the row was changed before, and where another row got the key since.
    let changed = [
        lacking(1, 0, 4),
        delete(1, 5),
        mention(1, 5),
        lacking(2, 1, 5),
        put(1, 0, 7),
    ];
    let bases = vec![Base::Pending(0, row(0, 0)), OF_TABLE];
    assert_eq!(find(&index(&[1]), &known, &changed), [(2, bases)]);
    let swapped = [
        mention(1, 5),
        lacking(2, 0, 5),
        mention(2, 6),
        lacking(1, 1, 6),
    ];
    let found = find(&index(&[1, 2]), &known, &swapped);
    // The row of 1 is the one that 2 had, which is the one that 1 had.
    let last = found.iter().find(|(key, _)| *key == 1).unwrap();
    assert_eq!(last.1, [Base::Pending(0, row(0, 0)), OF_TABLE]);
}

#[test]
fn a_move_that_is_delivered_again_takes_values_from_its_own_row() {
    let mut known = nothing_known();
    let five = order(5, false);
    known.note(KeyNumber(2), Order::of(&five), 0);
    known.note(KeyNumber(1), Order::of(&five), 0);
    let again = [lacking(2, 0, 5), mention(1, 5)];
    assert_eq!(find(&index(&[2]), &known, &again), [(2, vec![OF_TABLE])]);
    // Also where nobody knows its order any more.
    let found = find(&index(&[2]), &nothing_known(), &again);
    assert_eq!(found, [(2, vec![OF_TABLE])]);
}

#[test]
fn a_row_that_left_its_key_in_an_earlier_commit_is_found_where_it_was_marked() {
    let mut known = nothing_known();
    let five = order(5, false);
    known.note(KeyNumber(1), Order::of(&five), 0);
    let moved = [mention(1, 5), lacking(2, 0, 5)];
    assert_eq!(find(&index(&[1]), &known, &moved), [(2, vec![OF_TABLE])]);
    // Or where it was, when it was not kept.
    let gone = LeftRow {
        path: "gone".into(),
        bytes: 9,
        row: 3,
    };
    known.note_left(KeyNumber(1), Order::of(&five), Some(gone), 0);
    let left = [(2, vec![Base::Left(KeyNumber(1), 3)])];
    assert_eq!(find(&index(&[]), &known, &moved), left);
    // A later row of the key is another one.
    let mut known = nothing_known();
    known.note(KeyNumber(1), Order::of(&order(6, false)), 0);
    assert_eq!(find(&index(&[1]), &known, &moved), [(2, vec![])]);
}

// Promise: A row may have any number of changes that lack values in one commit: they are followed one by one.
#[test]
fn a_key_may_have_any_number_of_changes_that_lack_values() {
    const CHANGES: u32 = 200_000;
    let mut run = KeyRun::default();
    for number in 0..CHANGES {
        let change = RunChange::new(
            KeyNumber(7),
            Effect::Pending(row(0, number)),
            (0, number.into()),
        );
        run.push(&change, None).unwrap();
    }
    let ranges = [range()];
    let parts = [SegmentChanges {
        run: &run,
        ranges: &ranges,
        files: &[],
    }];
    let mut located = LocatedChanges::begin(&index(&[7]), Vec::new());
    located.add(&index(&[7]), &nothing_known(), &parts).unwrap();
    located.finish();
    let [found] = located.incomplete() else {
        panic!("one row is to be made");
    };
    let below = (0..CHANGES - 1).rev();
    let below = below.map(|number| Base::Pending(0, row(0, number)));
    assert!(found.bases.iter().copied().eq(below.chain([OF_TABLE])));
}

// A commit in which many rows change their keys has room for those whose new rows come later.
#[test]
fn rows_are_kept_in_mind_whose_new_row_is_not_in_the_commit() {
    let left = |changes: &[Change], leaving: &[u128]| {
        let mut located = locate(&index(&[1, 2, 3]), &nothing_known(), changes, leaving);
        let left = located.take_leaving().into_iter();
        left.map(|one| (one.key.0, one.row)).collect::<Vec<_>>()
    };
    let of_table = |at| Some(Base::Table(row(TABLE, at)));
    let moved = [
        delete(3, 4),
        delete(1, 5),
        mention(1, 5),
        lacking(9, 0, 5),
        delete(2, 6),
    ];
    // In the order of their records.
    let both = [(3, of_table(2)), (2, of_table(1))];
    assert_eq!(left(&moved, &[1, 2, 3]), both);
    // The row of another change of the key answers nothing.
    let other = [delete(1, 5), mention(1, 4), lacking(9, 0, 4)];
    assert_eq!(left(&other, &[1]).len(), 1);
    // A row that only goes is not asked for.
    assert_eq!(left(&moved, &[]), []);
    // What the key had then, not what the table had.
    let changed = [put(1, 0, 4), delete(1, 5)];
    let new = Some(Base::New(0, row(0, 0)));
    assert_eq!(left(&changed, &[1]), [(1, new)]);
    let lacked = [lacking(1, 0, 4), delete(1, 5)];
    assert_eq!(left(&lacked, &[1]), [(1, None)]);
    let gone = [delete(1, 4), delete(1, 5)];
    assert_eq!(left(&gone, &[1]), [(1, None)]);
}

#[test]
fn a_truncation_leaves_nothing_below() {
    let known = nothing_known();
    let emptied = [
        change(0, Effect::Truncate, 3, Some(order(3, false))),
        lacking(7, 0, 4),
    ];
    assert_eq!(find(&index(&[7]), &known, &emptied), [(7, vec![])]);
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A change of a random stream: its number is its offset and that of its row.
#[derive(Debug, Clone)]
struct Step {
    key: u8,
    kind: u64,
    from: Option<u8>,
    order: Option<Vec<u8>>,
}

fn stream(random: &mut Random) -> Vec<Step> {
    let is_ordered = random.below(3) > 0;
    let mut steps: Vec<Step> = Vec::new();
    for number in 0..3 + random.below(6) {
        // One place of the source has one change, which may be delivered again.
        if random.below(5) == 0 && !steps.is_empty() {
            let again = random.below(steps.len() as u64) as usize;
            steps.push(steps[again].clone());
            continue;
        }
        let key = random.below(3) as u8 + 1;
        let kind = random.below(5);
        let from = random.below(3) as u8 + 1;
        let late = random.below(2) * random.below(4);
        let place = number.saturating_sub(late) * 12 + number;
        steps.push(Step {
            key,
            kind,
            from: (kind == 4 && from != key).then_some(from),
            order: is_ordered.then(|| order(place as u8, false)),
        });
    }
    steps
}

// The model decides over whole rows, and of keys that it is told all of.
#[test]
fn rows_take_their_values_from_where_the_model_says() {
    use crate::change::resolve::{Base as Expected, Squash, Stored};
    let mut compared = 0;
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let steps = stream(&mut random);
        let names = [[0_u8], [1], [2], [3]];
        let mut squash = Squash::default();
        let mut changes = Vec::new();
        let mut marks = BTreeSet::new();
        for (number, step) in (0u32..).zip(&steps) {
            let name = &names[usize::from(step.key)][..];
            let order = step.order.as_deref().map(Order::of);
            let (key, offset) = (u128::from(step.key), i64::from(number));
            let at = row(0, number);
            let effect = match step.kind {
                0 => {
                    squash.delete(name, order);
                    Effect::Delete
                }
                1 => {
                    squash.mark_deleted(name, order, number);
                    marks.insert(number);
                    Effect::Mark(at)
                }
                2 => {
                    squash.put(name, order, number);
                    Effect::Upsert(at)
                }
                _ => {
                    match step.from {
                        Some(from) => {
                            let from = &names[usize::from(from)][..];
                            squash.move_row((from, name), order, number, true);
                        }
                        None => squash.put_partial(name, order, number),
                    }
                    Effect::Pending(at)
                }
            };
            if let Some(from) = step.from {
                let removed = (u128::from(from), Effect::Delete, offset, step.order.clone());
                changes.push((removed, true));
            }
            changes.push(((key, effect, offset, step.order.clone()), false));
        }
        let stored = Stored {
            has_row: true,
            order: None,
        };
        let grouped = squash.group();
        let stored: Vec<_> = grouped.keys().map(|_| Some(stored)).collect();
        let expected = grouped.resolve(&stored);
        for one in found(&changes) {
            let name = &names[one.key.0 as usize][..];
            let outcome = expected.outcomes.iter().find(|outcome| outcome.key == name);
            let outcome = outcome.expect("an outcome");
            let wanted = outcome.bases.iter().filter(|base| match base {
                Expected::Row(row) => !marks.contains(row),
                Expected::Table(_) => true,
            });
            let wanted: Vec<Expected<'_>> = wanted.copied().collect();
            let bases = one.bases.iter().map(|base| match base {
                Base::New(_, at) | Base::Pending(_, at) => Expected::Row(at.row),
                Base::Table(at) => Expected::Table(&names[at.row as usize + 1][..]),
                Base::Left(..) => panic!("nothing left before"),
            });
            let bases: Vec<Expected<'_>> = bases.collect();
            // Behind what the model says may come what the key itself had.
            assert!(
                bases.starts_with(&wanted),
                "{seed}: {steps:?} {bases:?} {wanted:?}"
            );
            compared += 1;
        }
    }
    assert!(compared > 3_000, "{compared}");
}

/// Finds the bases of changes without files: of what is new only the number counts.
fn found(changes: &[(Change, bool)]) -> Vec<Incomplete> {
    let mut run = KeyRun::default();
    for ((key, effect, offset, order), moves) in changes {
        let change = RunChange::new(KeyNumber(*key), *effect, (0, *offset)).moving(*moves);
        run.push(&change, order.as_deref().map(Order::of)).unwrap();
    }
    run.sort();
    let ranges = [range()];
    let parts = [SegmentChanges {
        run: &run,
        ranges: &ranges,
        files: &[],
    }];
    let (index, known) = (index(&[1, 2, 3]), nothing_known());
    let ranks = Ranks::new(&parts, &known, &[]);
    let mut bases = Bases::default();
    bases.add(&index, &ranks, &parts);
    let keys: BTreeSet<KeyNumber> = run.changes().iter().map(|change| change.key).collect();
    for key in keys {
        // The last that counts is the topmost.
        let laid = lay_out(key, None, &[&run], &ranks);
        let record = laid.last().and_then(|version| version.record);
        let mut all = run.changes().iter().filter(|change| change.key == key);
        if let Some(change) = all.find(|one| record == Some((0, one.record().0, one.record().1))) {
            bases.add_incomplete(key, 0, change);
        }
    }
    bases.finish()
}

fn range() -> SourceRange {
    SourceRange {
        partition: TopicPartition::new("t", 0),
        start: Some(0),
        end: 100,
        lowest: Some(0),
        timestamp_max_ms: None,
    }
}
