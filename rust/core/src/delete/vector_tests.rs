//! Vectors against those of Iceberg's Java library, and against damage.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::delete::puffin::{Tail, read_footer};

/// Written by `tests/bed/java/vectors`.
const GOLDEN: &[u8] = include_bytes!("../../../../tests/wire/vectors.puffin");

fn golden_cases() -> Vec<(&'static str, Vec<u64>)> {
    vec![
        ("one", vec![0]),
        ("few", vec![1, 2, 3, 7, 1_000, 70_000]),
        ("run", (100..60_000).collect()),
        ("runs", (0..20_000).filter(|row| row % 100 < 60).collect()),
        ("every-second", (0..12_000).step_by(2).collect()),
        ("scattered", (0..900).map(|row| row * row * 37).collect()),
        ("far", vec![5, (1 << 32) - 1, 1 << 32, (1 << 32) + 9]),
    ]
}

// Promise: A deletion vector has the bytes that Iceberg's Java library writes for the same rows: single rows, runs, every second row, and rows beyond 2^32.
// Case: 23
#[test]
fn vectors_are_those_of_iceberg_java() {
    let Tail::Footer(footer) = read_footer(GOLDEN, GOLDEN.len() as u64).unwrap() else {
        panic!("the whole file was given");
    };
    assert_eq!(footer.blobs.len(), golden_cases().len());
    for (name, positions) in golden_cases() {
        let blob = footer.blobs.iter();
        let blob = blob
            .filter(|blob| blob.properties["referenced-data-file"] == name)
            .collect::<Vec<_>>();
        let [blob] = blob[..] else {
            panic!("{name} is not there once");
        };
        let golden = &GOLDEN[blob.offset as usize..(blob.offset + blob.length) as usize];
        let ours: DeletionVector = positions.iter().copied().collect();
        assert_eq!(ours.to_blob().unwrap(), golden, "{name}");
        let expected = Expected {
            cardinality: blob.properties["cardinality"].parse().ok(),
            rows: positions.last().map(|last| last + 1),
        };
        let read = DeletionVector::parse(golden, &expected).unwrap();
        assert_eq!(read, ours, "{name}");
    }
}

fn code(blob: &[u8], expected: &Expected) -> &'static str {
    DeletionVector::parse(blob, expected).unwrap_err().code()
}

// Promise: A deletion vector that is damaged, cut, longer than it says, or not that of its data file is an error and deletes nothing.
#[test]
fn damage_is_found() {
    let vector: DeletionVector = [1, 5, 70_000, 1 << 33].into_iter().collect();
    let blob = vector.to_blob().unwrap();
    let any = Expected::default();
    assert_eq!(DeletionVector::parse(&blob, &any).unwrap(), vector);
    for length in 0..blob.len() {
        assert_eq!(code(&blob[..length], &any), "DELETION_VECTOR_CORRUPT");
    }
    for bit in 0..blob.len() * 8 {
        let mut bad = blob.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(code(&bad, &any), "DELETION_VECTOR_CORRUPT", "bit {bit}");
    }
    let longer = [&blob[..], &[0]].concat();
    assert_eq!(code(&longer, &any), "DELETION_VECTOR_CORRUPT");
    let expected = |cardinality, rows| Expected { cardinality, rows };
    assert_eq!(
        code(&blob, &expected(Some(5), None)),
        "DELETION_VECTOR_CORRUPT"
    );
    assert_eq!(
        code(&blob, &expected(None, Some(1 << 33))),
        "DELETION_VECTOR_CORRUPT"
    );
    let right = expected(Some(4), Some((1 << 33) + 1));
    assert_eq!(DeletionVector::parse(&blob, &right).unwrap(), vector);
}

/// Puts length, magic and a right checksum around bitmaps.
fn framed(bitmaps: &[u8]) -> Vec<u8> {
    let body = [&MAGIC[..], bitmaps].concat();
    let crc = crc32fast::hash(&body).to_be_bytes();
    [&(body.len() as u32).to_be_bytes()[..], &body, &crc].concat()
}

#[test]
fn bitmaps_that_are_no_vector_are_refused_whatever_their_checksum() {
    let one: RoaringBitmap = [1u32, 2].into_iter().collect();
    let mut bitmap = Vec::new();
    one.serialize_into(&mut bitmap).unwrap();
    let keyed = |key: u32| [&key.to_le_bytes()[..], &bitmap].concat();
    let count = |count: u64| count.to_le_bytes();
    let good = framed(&[&count(2)[..], &keyed(0), &keyed(3)].concat());
    let any = Expected::default();
    let read = DeletionVector::parse(&good, &any).unwrap();
    let rows: Vec<u64> = read.positions().collect();
    assert_eq!(rows, [1, 2, (3 << 32) + 1, (3 << 32) + 2]);
    for bitmaps in [
        [&count(2)[..], &keyed(3), &keyed(3)].concat(),
        [&count(2)[..], &keyed(3), &keyed(0)].concat(),
        [&count(1)[..], &keyed(0), &keyed(3)].concat(),
        [&count(u64::MAX)[..], &keyed(0)].concat(),
        [&count(1)[..], &keyed(u32::MAX)].concat(),
        count(1)[..7].to_vec(),
    ] {
        assert_eq!(code(&framed(&bitmaps), &any), "DELETION_VECTOR_CORRUPT");
    }
}

#[test]
fn a_position_has_63_bits() {
    let mut vector = DeletionVector::new();
    assert!(vector.insert(POSITION_MAX).unwrap());
    assert!(!vector.insert(POSITION_MAX).unwrap());
    assert_eq!(
        vector.insert(POSITION_MAX + 1).unwrap_err().code(),
        "INTERNAL"
    );
    assert_eq!(vector.len(), 1);
}

proptest! {
    #[test]
    fn vectors_go_out_as_they_come_in(
        near in prop::collection::btree_set(0u64..200_000, 0..300),
        far in prop::collection::btree_set(0u64..1 << 40, 0..20),
        run in (0u64..100_000, 0u64..5_000),
    ) {
        let mut rows: BTreeSet<u64> = near;
        let mut vector: DeletionVector = rows.iter().copied().collect();
        let other: DeletionVector = far.iter().copied().chain(run.0..run.0 + run.1).collect();
        vector.union(&other);
        rows.extend(far);
        rows.extend(run.0..run.0 + run.1);
        prop_assert_eq!(vector.len(), rows.len() as u64);
        prop_assert!(vector.positions().eq(rows.iter().copied()));
        let expected = Expected {
            cardinality: Some(rows.len() as u64),
            rows: rows.last().map(|last| last + 1),
        };
        let read = DeletionVector::parse(&vector.to_blob().unwrap(), &expected).unwrap();
        prop_assert_eq!(read, vector);
    }
}
