//! Single cases of resolving; random ones are in `model_tests`.

use super::*;
use crate::index::KeyForm;

fn key(number: u64) -> KeyNumber {
    KeyNumber(u128::from(number) << 40)
}

fn file(name: &str, rows: u64) -> IndexedFile {
    IndexedFile::new(name, rows).unwrap()
}

fn at(file: u32, row: u32) -> Location {
    Location { file, row }
}

fn upsert(number: u64, file: u32, row: u32) -> KeyChange<i32> {
    ordered(number, Change::Upsert(at(file, row)), 0)
}

fn delete(number: u64) -> KeyChange<i32> {
    ordered(number, Change::Delete, 0)
}

fn ordered(number: u64, change: Change, order: i32) -> KeyChange<i32> {
    KeyChange {
        key: key(number),
        order,
        change,
    }
}

/// An index of the keys 0 to 4 in one file and 5 to 9 in another.
fn index() -> Index {
    let mut index = Index::new(KeyForm::Exact);
    for (name, first) in [("a", 0), ("b", 5)] {
        let file = index.add_file(file(name, 5)).unwrap();
        let keys = (0..5).map(|row| (key(first + u64::from(row)), Some(at(file, row))));
        let keys: Vec<_> = keys.collect();
        index.put(&keys).unwrap();
    }
    index
}

type Vectors = BTreeMap<u32, DeletionVector>;

fn resolved(
    index: &Index,
    new: Vec<IndexedFile>,
    runs: &[&[KeyChange<i32>]],
    vectors: &Vectors,
) -> Resolution {
    let located = locate(index, new, runs, &|one: &i32, two: &i32| one < two, |_| ()).unwrap();
    let asked = located.files();
    located
        .resolve(index, |file| {
            assert!(
                asked.contains(&file) || file >= 2,
                "file {file} was not asked for"
            );
            vectors.get(&file)
        })
        .unwrap()
}

fn changes_of(resolution: &Resolution) -> Vec<(KeyNumber, Option<Location>)> {
    let changes = resolution.delta.changes.iter().flatten();
    changes.map(Moved::entry).collect()
}

fn rows(resolution: &Resolution, file: u32) -> Vec<u64> {
    resolution.deletes[&file].vector.positions().collect()
}

#[test]
fn the_last_change_of_a_key_counts() {
    let index = index();
    let runs: [&[KeyChange<i32>]; 2] = [
        &[
            upsert(1, 0, 0),
            upsert(1, 0, 1),
            delete(7),
            upsert(20, 0, 2),
            delete(20),
        ],
        &[upsert(1, 1, 0), upsert(7, 1, 1), delete(30)],
    ];
    let new = vec![file("n", 3), file("m", 2)];
    let made = resolved(&index, new, &runs, &Vectors::new());
    assert_eq!(rows(&made, 0), [1]);
    assert_eq!(rows(&made, 1), [2]);
    assert_eq!(
        made.unneeded,
        [0],
        "all rows of the first new file are void"
    );
    assert!(!made.deletes.contains_key(&2) && !made.deletes.contains_key(&3));
    let counts = Counts {
        inserted: 0,
        updated: 2,
        deleted: 0,
        missing: 2,
        superseded: 4,
        ..Counts::default()
    };
    assert_eq!(made.counts, counts);
    let mut index = index;
    index.apply(made.delta).unwrap();
    assert_eq!(index.get(key(1)), Some(at(3, 0)));
    assert_eq!(index.get(key(7)), Some(at(3, 1)));
    assert_eq!(index.get(key(20)), None);
    assert_eq!(index.files().number("n"), None);
}

#[test]
fn the_first_row_of_a_key_stays_where_rows_are_added_once() {
    let index = index();
    let runs: [&[KeyChange<i32>]; 2] = [
        &[
            upsert(1, 0, 0),
            upsert(2, 0, 1),
            upsert(20, 0, 2),
            upsert(20, 0, 3),
        ],
        &[upsert(1, 1, 0), upsert(20, 1, 1)],
    ];
    let new = vec![file("n", 4), file("m", 2)];
    let mut located = Located::begin(&index, new).keeping_first(true);
    located
        .add(&index, &runs, &|_: &i32, _: &i32| false, |_| ())
        .unwrap();
    // Somebody has deleted the row of the key 2: it is not there any more.
    let mut deleted = DeletionVector::new();
    deleted.insert(2).unwrap();
    let made = located
        .resolve(&index, |file| (file == 0).then_some(&deleted))
        .unwrap();
    assert!(!made.deletes.contains_key(&0), "a row of the table stays");
    assert_eq!(rows(&made, 2), [0, 3]);
    assert_eq!(
        (made.unneeded.as_slice(), made.dropped.as_slice()),
        (&[1][..], &[][..])
    );
    let counts = Counts {
        inserted: 2,
        repeated: 4,
        ..Counts::default()
    };
    assert_eq!(made.counts, counts);
    let mut index = index;
    index.apply(made.delta).unwrap();
    assert_eq!(index.get(key(1)), Some(at(0, 1)));
    assert_eq!(index.get(key(2)), Some(at(2, 1)));
    assert_eq!(index.get(key(20)), Some(at(2, 2)));
}

// Promise: An older change of a key that arrives later in the same commit does not replace the newer one.
#[test]
fn what_is_older_does_not_win_by_coming_later() {
    let index = index();
    let newer = [ordered(1, Change::Upsert(at(0, 0)), 9)];
    let older = [ordered(1, Change::Upsert(at(1, 0)), 3)];
    let new = || vec![file("n", 1), file("m", 1)];
    let made = resolved(&index, new(), &[&newer, &older], &Vectors::new());
    assert_eq!(made.unneeded, [1]);
    assert_eq!(changes_of(&made), [(key(1), Some(at(2, 0)))]);
    let older = [ordered(1, Change::Upsert(at(1, 0)), 9)];
    let made = resolved(&index, new(), &[&newer, &older], &Vectors::new());
    assert_eq!(made.unneeded, [0], "of two alike the later one counts");
}

#[test]
fn a_vector_keeps_what_was_deleted_before() {
    let index = index();
    let vectors = Vectors::from([(0, [0, 2].into_iter().collect())]);
    let made = resolved(&index, vec![], &[&[delete(2), delete(3)]], &vectors);
    assert_eq!(rows(&made, 0), [0, 2, 3]);
    assert_eq!(made.deletes[&0].added, 1);
    assert_eq!((made.counts.deleted, made.counts.missing), (1, 1));
    let both = vec![(key(2), None), (key(3), None)];
    assert_eq!(
        changes_of(&made),
        both,
        "a row that others deleted is forgotten too"
    );
}

#[test]
fn a_file_without_rows_is_dropped() {
    let index = index();
    let vectors = Vectors::from([(1, [0, 1, 4].into_iter().collect())]);
    let run = [upsert(7, 0, 0), delete(8)];
    let made = resolved(&index, vec![file("n", 1)], &[&run], &vectors);
    assert_eq!(made.dropped, [1]);
    assert!(made.deletes.is_empty());
    let mut index = index;
    index.apply(made.delta).unwrap();
    assert_eq!(index.files().number("b"), None);
    assert_eq!(index.get(key(9)), None, "its other keys are gone as well");
    assert_eq!(index.get(key(7)), Some(at(2, 0)));
}

#[test]
fn runs_that_do_not_fit_their_files_are_refused() {
    let index = index();
    let cases: [(u64, &[KeyChange<i32>]); 5] = [
        (1, &[]),
        (2, &[upsert(1, 0, 0)]),
        (1, &[upsert(1, 0, 1)]),
        (1, &[upsert(1, 1, 0)]),
        (2, &[upsert(2, 0, 0), upsert(1, 0, 1)]),
    ];
    for (rows, run) in cases {
        let new = vec![file("n", rows)];
        let error = locate(
            &index,
            new,
            &[run],
            &|one: &i32, two: &i32| one < two,
            |_| (),
        )
        .unwrap_err();
        assert_eq!(error.code(), "INTERNAL");
    }
}

#[test]
fn an_index_that_changed_meanwhile_is_not_resolved_on() {
    let mut index = index();
    let run: [KeyChange<i32>; 1] = [delete(1)];
    let located = locate(
        &index,
        vec![],
        &[&run],
        &|one: &i32, two: &i32| one < two,
        |_| (),
    )
    .unwrap();
    index.drop_file(0);
    let refused = located.resolve(&index, |_| None).unwrap_err();
    assert_eq!(refused.code(), "INTERNAL");
}

// Promise: Two keys whose hashes begin alike are two keys: the right row is deleted.
// Case: 51
#[test]
fn hashes_that_agree_in_64_bits_do_not_collide() {
    let mut index = Index::new(KeyForm::Hashed);
    let file = index.add_file(file("a", 3)).unwrap();
    let alike = |rest: u128| KeyNumber((0x1234_5678_9abc_def0 << 32) | rest);
    let keys = (0..3).map(|row| (alike(row.into()), Some(at(file, row))));
    index.put(&keys.collect::<Vec<_>>()).unwrap();
    let run = [KeyChange {
        key: alike(1),
        order: 0,
        change: Change::Delete,
    }];
    let made = resolved(&index, vec![], &[&run], &Vectors::new());
    assert_eq!(rows(&made, file), [1]);
    let unknown = [KeyChange {
        key: alike(3),
        ..run[0]
    }];
    let made = resolved(&index, vec![], &[&unknown], &Vectors::new());
    assert_eq!(made.counts.missing, 1);
    assert!(made.deletes.is_empty());
}

/// Orders of several sources: the hundreds tell the source; that of 7 gives none. Below 3 of source 9 is stale, and the
/// table was emptied at 50 of source 0.
struct Sources;

impl Ranking<i32> for Sources {
    fn is_older(&self, one: &i32, than: &i32) -> bool {
        self.is_alike(one, than) && one < than
    }

    fn is_alike(&self, one: &i32, other: &i32) -> bool {
        one / 100 == other / 100
    }

    fn has_order(&self, order: &i32) -> bool {
        order / 100 != 7
    }

    fn is_stale(&self, _: KeyNumber, order: &i32) -> bool {
        (900..903).contains(order)
    }

    fn is_emptied(&self, order: &i32) -> bool {
        *order < 50
    }
}

// A change is compared with all that came before it, not with the last one alone: what another source
// says in between makes it no newer.
#[test]
fn an_older_change_loses_whatever_came_in_between() {
    let index = index();
    let upsert = |row, order| ordered(1, Change::Upsert(at(0, row)), order);
    let run = [
        upsert(0, 107),
        upsert(1, 203),
        upsert(2, 105),
        upsert(3, 901),
    ];
    let new = vec![file("c", 4)];
    let mut orders = Vec::new();
    let each = |found: Found<'_, i32>| {
        orders.extend(found.orders.iter().map(|order| (found.key, **order)));
    };
    let located = locate(&index, new, &[&run], &Sources, each).unwrap();
    assert_eq!(orders, [(key(1), 107), (key(1), 203)], "of each source");
    let made = located.resolve(&index, |_| None).unwrap();
    assert_eq!(rows(&made, 2), [0, 2, 3]);
    assert_eq!(rows(&made, 0), [1]);
    assert_eq!((made.counts.superseded, made.counts.stale), (2, 1));
    assert_eq!(made.counts.updated, 1);
}

// Promise: a delete without an order after one that has it, as Debezium sends them, leaves the order of its
// key: a change of before does not bring the row back
#[test]
fn a_delete_without_an_order_leaves_the_order_of_its_key() {
    let index = index();
    let run = [
        ordered(1, Change::Delete, 107),
        ordered(1, Change::Delete, 700),
        ordered(2, Change::Delete, 700),
    ];
    let mut orders = Vec::new();
    let each = |found: Found<'_, i32>| {
        orders.extend(found.orders.iter().map(|order| (found.key, **order)));
    };
    locate(&index, vec![], &[&run], &Sources, each).unwrap();
    assert_eq!(orders, [(key(1), 107)]);
}

// A key of which all changes are stale stays as it is, and their rows go.
#[test]
fn stale_changes_change_nothing() {
    let index = index();
    let run = [
        ordered(1, Change::Upsert(at(0, 0)), 901),
        ordered(2, Change::Delete, 902),
    ];
    let located = locate(&index, vec![file("c", 1)], &[&run], &Sources, |_| ()).unwrap();
    assert!(located.files().is_empty());
    let made = located.resolve(&index, |_| None).unwrap();
    assert_eq!((made.unneeded, made.counts.stale), (vec![0], 2));
    assert!(made.deletes.is_empty() && made.delta.is_empty());
}

#[test]
fn an_emptied_table_keeps_only_what_is_newer() {
    let mut index = index();
    let run = [
        ordered(3, Change::Upsert(at(0, 0)), 40),
        ordered(4, Change::Upsert(at(0, 1)), 60),
    ];
    let mut located = locate(&index, vec![file("c", 2)], &[&run], &Sources, |_| ()).unwrap();
    // Keys 1 and 4 of the first file are newer; 4 is replaced all the same.
    located.empty([at(0, 1), at(0, 4)]);
    assert_eq!(located.files(), [0].into());
    let before: DeletionVector = [0].into_iter().collect();
    let vectors: Vectors = [(0, before)].into();
    let made = located.resolve(&index, |file| vectors.get(&file)).unwrap();
    assert!(made.counts.emptied);
    assert_eq!(made.dropped, [1]);
    assert_eq!(rows(&made, 0), [0, 2, 3, 4]);
    assert_eq!(rows(&made, 2), [0]);
    assert_eq!(made.deletes[&0].added, 3);
    index.apply(made.delta).unwrap();
    // Of ten rows one was deleted before, one stays, and one is replaced.
    let mut counts = made.counts;
    let of = |records, position_deletes| FileCounts {
        records,
        position_deletes,
        ..FileCounts::default()
    };
    counts.count_emptied(&FileChanges {
        added: of(2, 5),
        removed: of(5, 1),
        ..FileChanges::default()
    });
    assert_eq!((counts.updated, counts.emptied_rows), (1, 7));
    assert_eq!(index.get(key(1)), Some(at(0, 1)));
    assert_eq!(index.get(key(4)), Some(at(2, 1)));
    assert_eq!(index.get(key(6)), None);
}

// A row with two keys would go with the older one, and one without any would stay for ever.
#[test]
fn each_new_row_belongs_to_one_change() {
    let index = index();
    let by_arrival = |one: &i32, two: &i32| one < two;
    for run in [
        vec![upsert(1, 0, 0)],
        vec![upsert(1, 0, 0), upsert(2, 0, 0)],
        vec![upsert(1, 0, 0), upsert(2, 0, 2)],
        vec![upsert(1, 0, 0), upsert(2, 1, 0)],
        vec![upsert(2, 0, 0), upsert(1, 0, 1)],
    ] {
        let located = locate(&index, vec![file("c", 2)], &[&run], &by_arrival, |_| ());
        assert_eq!(located.unwrap_err().code(), "INTERNAL");
    }
    let run = [upsert(1, 0, 1), upsert(2, 0, 0)];
    locate(&index, vec![file("c", 2)], &[&run], &by_arrival, |_| ()).unwrap();
}
