//! Sections are read as they were written, and damage is found.

use uuid::Uuid;

use super::*;
use crate::index::{KeyHasher, Location};

/// An index of 5,000 keys in 5 files, in more than one shard, and its sections.
fn stored() -> (Index, Vec<u8>, Vec<Bytes>) {
    let mut index = Index::new(KeyForm::Hashed).with_shard_keys_max(2_000);
    let hasher = KeyHasher::new(KeyForm::Hashed, Uuid::from_u128(1));
    for number in 0..6 {
        let file = IndexedFile::new(format!("s3://b/t/data/ü-{number}.parquet"), 1_000).unwrap();
        let file = index.add_file(file).unwrap();
        let mut changes: Vec<_> = (0..1_000u32)
            .map(|row| {
                let key = format!("key {number} of row {row}");
                let key = hasher.number(key.as_bytes()).unwrap();
                (key, Some(Location { file, row }))
            })
            .collect();
        changes.sort();
        index.put(&changes).unwrap();
    }
    files_section(&index).unwrap();
    index.drop_file(2).unwrap();
    assert_eq!(files_section(&index).unwrap_err().code(), "INTERNAL");
    index.compact().unwrap();
    let files = files_section(&index).unwrap();
    let shards = 0..1 << index.shard_bits();
    let shards: Vec<Bytes> = shards
        .map(|number| shard_section(&index, number).unwrap().into())
        .collect();
    assert_eq!(shards.len(), 4);
    (index, files, shards)
}

fn load(files: &[u8], shards: &[Bytes], keep: Keep) -> Result<Index> {
    let mut loader = Loader::new(files)?;
    for shard in shards {
        loader.add(shard, keep)?;
    }
    loader.finish()
}

#[test]
fn an_index_is_read_as_it_was_written() {
    let (index, files, shards) = stored();
    for keep in [Keep::Mapped, Keep::Copied] {
        let read = load(&files, &shards, keep).unwrap();
        assert_eq!(read.files(), index.files());
        assert!(read.iter().eq(index.iter()));
        assert_eq!(read.entries(), 5_000);
        let memory = read.memory();
        assert_eq!(memory.shared > 0, keep == Keep::Mapped);
        assert_eq!(memory.heap > 5_000 * 12, keep == Keep::Copied);
    }
    let mut mapped = load(&files, &shards, Keep::Mapped).unwrap();
    let (key, _) = index.iter().nth(77).unwrap();
    let to = Location { file: 0, row: 5 };
    mapped.put(&[(key, Some(to))]).unwrap();
    assert_eq!(mapped.get(key), Some(to));
    assert_eq!(files_section(&mapped).unwrap(), files);
    assert!(
        (0..4).any(|shard| shard_section(&mapped, shard).is_err()),
        "a shard with recent changes cannot be stored"
    );
}

// Promise: A stored primary-key index with any wrong bit, a part missing, twice, or of another index is not used.
// Case: 50
#[test]
fn damage_of_a_stored_index_is_found() {
    let (_, files, shards) = stored();
    let code = |files: &[u8], shards: &[Bytes]| {
        load(files, shards, Keep::Mapped)
            .map(|_| ())
            .unwrap_err()
            .code()
    };
    for bit in 0..files.len() * 8 {
        let mut bad = files.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(code(&bad, &shards), "INDEX_CORRUPT", "bit {bit}");
    }
    for byte in (0..shards[1].len())
        .step_by(97)
        .chain([0, 4, 5, 6, 7, 8, 9, 12, 16, 20])
    {
        let mut bad = shards[1].to_vec();
        bad[byte] ^= 0x10;
        let bad = [
            shards[0].clone(),
            bad.into(),
            shards[2].clone(),
            shards[3].clone(),
        ];
        assert_eq!(code(&files, &bad), "INDEX_CORRUPT", "byte {byte}");
    }
    for length in [0, 3, 19, shards[1].len() - 1] {
        let cut = [shards[0].clone(), shards[1].slice(..length)];
        assert_eq!(code(&files, &cut), "INDEX_CORRUPT");
    }
    for length in 0..files.len() {
        assert_eq!(code(&files[..length], &shards), "INDEX_CORRUPT");
    }
    assert_eq!(code(&files, &shards[..3]), "INDEX_CORRUPT");
    let twice = [&shards[..], &shards[..1]].concat();
    assert_eq!(code(&files, &twice), "INDEX_CORRUPT");
    let swapped = [&shards[..3], &[files.clone().into()][..]].concat();
    assert_eq!(code(&files, &swapped), "INDEX_CORRUPT");
}

/// Makes a section with a right checksum out of `body`.
fn forged(body: &[u8]) -> Vec<u8> {
    signed(body.to_vec())
}

#[test]
fn sections_with_right_checksums_are_checked_too() {
    let (_, files, shards) = stored();
    let body = |section: &[u8]| section[..section.len() - 4].to_vec();
    let with = |section: &[u8], at: usize, byte: u8| {
        let mut body = body(section);
        body[at] = byte;
        forged(&body)
    };
    // Version, form, shard bits, the number of files, the length of the first path.
    for (at, byte) in [
        (4, 2),
        (5, 1),
        (5, 9),
        (6, 1),
        (6, 99),
        (8, 4),
        (8, 6),
        (11, 0xff),
        (16, 0xff),
    ] {
        let files = with(&files, at, byte);
        let error = load(&files, &shards, Keep::Mapped).map(|_| ()).unwrap_err();
        assert_eq!(error.code(), "INDEX_CORRUPT", "byte {at}");
    }
    // Version, form, shard bits, the packing, the shard's number, the number of keys.
    for (at, byte) in [
        (4, 2),
        (5, 1),
        (6, 3),
        (7, 31),
        (8, 60),
        (9, 40),
        (12, 1),
        (12, 9),
        (16, 0),
    ] {
        let bad = Bytes::from(with(&shards[0], at, byte));
        let all = [&[bad], &shards[1..]].concat();
        let error = load(&files, &all, Keep::Copied).map(|_| ()).unwrap_err();
        assert_eq!(error.code(), "INDEX_CORRUPT", "byte {at}");
    }
}
