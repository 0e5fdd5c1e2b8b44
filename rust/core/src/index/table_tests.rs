//! The index against a map: puts, drops, moves, growth.

use proptest::prelude::*;

use super::*;

fn key(number: u64) -> KeyNumber {
    // Spread over all bits, as real ones are.
    KeyNumber((u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 1) | 1)
}

fn at(file: u32, row: u32) -> Location {
    Location { file, row }
}

fn file(name: u32, rows: u64) -> IndexedFile {
    IndexedFile::new(format!("s3://bucket/table/data/{name}.parquet"), rows).unwrap()
}

fn check(index: &Index, model: &BTreeMap<KeyNumber, Location>) {
    let all: Vec<_> = index.iter().collect();
    assert!(
        all.iter()
            .copied()
            .eq(model.iter().map(|(key, at)| (*key, *at)))
    );
    for (key, at) in model {
        assert_eq!(index.get(*key), Some(*at));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn an_index_is_a_map(
        form in prop::sample::select(vec![KeyForm::Exact, KeyForm::Hashed]),
        commits in prop::collection::vec(
            prop::collection::btree_map(0u64..3_000, any::<bool>(), 1..1_500),
            1..8,
        ),
        compact_at in 0usize..8,
        drop_at in 0usize..8,
    ) {
        let mut index = Index::new(form).with_shard_keys_max(500);
        let mut model = BTreeMap::new();
        let spread = form.bits() - 65;
        for (number, commit) in commits.iter().enumerate() {
            let new = index.add_file(file(number as u32, 1_500)).unwrap();
            let mut changes: Vec<(KeyNumber, Option<Location>)> = commit
                .iter()
                .zip(0u32..)
                .map(|((name, is_kept), row)| {
                    (KeyNumber(key(*name).0 << spread), is_kept.then_some(at(new, row)))
                })
                .collect();
            changes.sort();
            for (key, at) in &changes {
                match at {
                    Some(at) => model.insert(*key, *at),
                    None => model.remove(key),
                };
            }
            index.put(&changes).unwrap();
            if number == drop_at {
                let first = index.files().iter().next().map(|(number, _)| number).unwrap();
                index.drop_file(first);
                model.retain(|_, at: &mut Location| at.file != first);
            }
            if number == compact_at {
                let numbers: BTreeMap<u32, u32> =
                    index.files().iter().map(|(number, _)| number).zip(0..).collect();
                index.compact().unwrap();
                model.values_mut().for_each(|at| at.file = numbers[&at.file]);
                prop_assert_eq!(index.entries(), model.len());
            }
            check(&index, &model);
        }
        prop_assert!(index.shards.iter().all(|shard| shard.len() <= 500));
    }
}

// Case: 43
#[test]
fn rows_that_moved_are_found_where_they_are() {
    let mut index = Index::new(KeyForm::Exact);
    let (a, b) = (
        index.add_file(file(0, 10)).unwrap(),
        index.add_file(file(1, 10)).unwrap(),
    );
    let stays = index.add_file(file(2, 10)).unwrap();
    let rows = |file: u32, first: u64| {
        (0..10).map(move |row| (key(first + u64::from(row)), Some(at(file, row))))
    };
    let mut changes: Vec<_> = rows(a, 0)
        .chain(rows(b, 10))
        .chain(rows(stays, 20))
        .collect();
    changes.sort();
    index.put(&changes).unwrap();
    let new = index.add_file(file(3, 15)).unwrap();
    let span = |row, count, to| Span {
        row,
        count,
        to: at(new, to),
    };
    let mut moves = Moves::default();
    // Rows 3 to 5 of the first file were deleted; the second was written before it.
    moves.add(a, vec![span(0, 3, 8), span(6, 4, 11)]).unwrap();
    moves.add(b, vec![span(1, 8, 0)]).unwrap();
    index.remap(&moves).unwrap();
    let found = |name: u64| index.get(key(name));
    assert_eq!(found(0), Some(at(new, 8)));
    assert_eq!(found(2), Some(at(new, 10)));
    assert_eq!([found(3), found(4), found(5)], [None; 3]);
    assert_eq!(found(6), Some(at(new, 11)));
    assert_eq!(found(9), Some(at(new, 14)));
    assert_eq!(found(10), None);
    assert_eq!(found(11), Some(at(new, 0)));
    assert_eq!(found(18), Some(at(new, 7)));
    assert_eq!(found(19), None);
    assert_eq!(found(20), Some(at(stays, 0)));
    assert_eq!(index.files().len(), 2);
    let overlap = vec![span(0, 3, 0), span(2, 1, 5)];
    assert_eq!(moves.add(a, overlap).unwrap_err().code(), "INTERNAL");
}

#[test]
fn a_delta_belongs_to_one_state() {
    let mut index = Index::new(KeyForm::Exact);
    let delta = Delta {
        generation: index.generation(),
        added: vec![file(0, 1)],
        dropped: vec![],
        changes: vec![vec![Moved::of(key(1), Some(at(0, 0)))]],
    };
    index.apply(delta.clone()).unwrap();
    assert_eq!(index.get(key(1)), Some(at(0, 0)));
    assert_eq!(index.apply(delta.clone()).unwrap_err().code(), "INTERNAL");
    let Delta { generation, .. } = delta;
    assert_ne!(index.generation(), generation);
}

#[test]
fn an_index_that_would_not_fit_is_refused_before_the_commit() {
    let mut index = Index::new(KeyForm::Exact);
    index.add_file(file(0, 100_000)).unwrap();
    let mut changes: Vec<_> = (0..100_000u32)
        .map(|row| (key(row.into()), Some(at(0, row))))
        .collect();
    changes.sort();
    let changes = changes.into_iter();
    let changes: Vec<_> = changes.map(|(key, to)| Moved::of(key, to)).collect();
    let delta = Delta {
        generation: index.generation(),
        added: vec![],
        dropped: vec![],
        changes: vec![changes],
    };
    let allowed = |now, ever| Allowed { now, ever };
    let needed = index.bytes_with(delta.len());
    let error = check_bytes(needed, allowed(1 << 20, 1 << 20)).unwrap_err();
    assert_eq!(error.code(), "INDEX_TOO_LARGE");
    let error = check_bytes(needed, allowed(1 << 20, 4 << 20)).unwrap_err();
    assert_eq!(error.code(), "INDEX_WAITS_FOR_MEMORY");
    check_bytes(needed, allowed(4 << 20, 4 << 20)).unwrap();
    index.apply(delta).unwrap();
    let none = Delta {
        generation: index.generation(),
        added: vec![],
        dropped: vec![],
        changes: vec![],
    };
    let memory = index.memory().heap;
    assert!(memory < 1_100_000, "{memory}");
    assert!(index.bytes_with(none.len()) > memory as u64);
    let expected = Index::bytes_for(KeyForm::Exact, 100_000, 1, 100_000);
    let near = expected / 4..expected;
    assert!(near.contains(&(memory as u64)), "{memory} of {expected}");
}
