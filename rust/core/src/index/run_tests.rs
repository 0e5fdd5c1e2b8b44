//! Runs against a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn built(key_bits: u32, entries: &BTreeMap<u128, Option<Location>>, slack: usize) -> Run {
    let highest =
        entries
            .values()
            .flatten()
            .fold(Location { file: 0, row: 0 }, |highest, location| Location {
                file: highest.file.max(location.file),
                row: highest.row.max(location.row),
            });
    let mut builder = RunBuilder::new(key_bits, entries.len() + slack, highest).unwrap();
    for (key, location) in entries {
        builder.push((*key, *location)).unwrap();
    }
    builder.finish()
}

fn reopened(run: &Run) -> Run {
    let region = Region::Shared(Bytes::copy_from_slice(run.bytes()));
    Run::open(run.packing(), run.len(), region).unwrap()
}

fn at(file: u32, row: u32) -> Option<Location> {
    Some(Location { file, row })
}

#[test]
fn the_widest_entries_fit() {
    let top = (1u128 << 96) - 1;
    let entries = BTreeMap::from([
        (0, at(u32::MAX - 1, u32::MAX)),
        (1, None),
        (top - 1, at(0, 0)),
        (top, at(u32::MAX - 1, 0)),
    ]);
    let run = built(96, &entries, 0);
    assert!(run.iter().eq(entries.clone()));
    for (key, location) in &entries {
        assert_eq!(run.get(*key), Some(*location));
    }
    assert_eq!(run.get(2), None);
    assert!(reopened(&run).iter().eq(entries));
}

#[test]
fn an_entry_out_of_order_is_refused() {
    let highest = Location { file: 1, row: 1 };
    let mut builder = RunBuilder::new(65, 10, highest).unwrap();
    builder.push((5, at(1, 1))).unwrap();
    for (key, location) in [
        (5, at(0, 0)),
        (4, at(0, 0)),
        (1 << 65, at(0, 0)),
        (6, at(0, 2)),
        (6, at(3, 0)),
    ] {
        assert_eq!(
            builder.push((key, location)).unwrap_err().code(),
            "INTERNAL"
        );
    }
    builder.push((6, None)).unwrap();
    assert_eq!(builder.finish().len(), 2);
}

#[test]
fn bytes_that_are_no_run_are_refused() {
    let entries: BTreeMap<_, _> = (0..2_000u128)
        .map(|key| (key << 50, at(3, key as u32)))
        .collect();
    let run = built(65, &entries, 0);
    assert!(run.packing().bucket_bits > 2);
    let open = |packing, count, bytes: Vec<u8>| {
        Run::open(packing, count, Region::Owned(bytes)).map(|run| run.len())
    };
    let (packing, bytes) = (run.packing(), run.bytes().to_vec());
    assert_eq!(open(packing, 2_000, bytes.clone()).unwrap(), 2_000);
    let mut unordered = bytes.clone();
    unordered[4..8].copy_from_slice(&9_999u32.to_le_bytes());
    let mut late = bytes.clone();
    late[0] = 1;
    let wide = Packing {
        row_bits: 33,
        ..packing
    };
    for (packing, count, bytes) in [
        (packing, 2_000, bytes[1..].to_vec()),
        (packing, 1_990, bytes.clone()),
        (packing, 0, bytes.clone()),
        (packing, 2_000, unordered),
        (packing, 2_000, late),
        (wide, 2_000, bytes.clone()),
    ] {
        assert_eq!(
            open(packing, count, bytes).unwrap_err().code(),
            "INDEX_CORRUPT"
        );
    }
}

#[test]
fn a_bucket_that_somebody_filled_is_searched_by_halves() {
    // All keys begin alike, so all lie in one bucket.
    let entries: BTreeMap<_, _> = (0..50_000u128)
        .map(|key| (key, at(0, key as u32)))
        .collect();
    let run = built(65, &entries, 0);
    for key in [0, 1, 24_999, 49_999] {
        assert_eq!(run.get(key), Some(at(0, key as u32)));
    }
    assert_eq!(run.get(50_000), None);
}

proptest! {
    #[test]
    fn a_run_is_a_map(
        key_bits in 40u32..=96,
        raw in prop::collection::btree_map(any::<u128>(), prop::option::of((0u32..70_000, any::<u32>())), 0..400),
        near in prop::collection::btree_set(0u128..1_000, 0..100),
        slack in 0usize..5_000,
    ) {
        let mut entries: BTreeMap<u128, Option<Location>> = raw
            .into_iter()
            .map(|(key, place)| (key >> (128 - key_bits), place.and_then(|(file, row)| at(file, row))))
            .collect();
        entries.extend(near.iter().map(|key| (*key, at(7, *key as u32))));
        let run = built(key_bits, &entries, slack);
        prop_assert!(run.iter().eq(entries.clone()));
        for run in [&run, &reopened(&run)] {
            for (key, location) in &entries {
                prop_assert_eq!(run.get(*key), Some(*location));
                let next = key + 1;
                if next >> key_bits == 0 {
                    prop_assert_eq!(run.get(next), entries.get(&next).copied());
                }
            }
        }
        prop_assert_eq!(run.packing().bytes(run.len()).unwrap_or(0) , if run.is_empty() { run.packing().bytes(0).unwrap_or(0) } else { run.bytes().len() });
    }
}
