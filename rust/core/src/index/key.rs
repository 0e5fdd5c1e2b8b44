//! Keys as numbers, which the index sorts, cuts and compares.
//!
//! The number decides which row is deleted, so two keys must not have the same one. A key of at most
//! 8 bytes *is* its number, mixed so that neighbours lie far apart: nothing is lost. A longer one is
//! 96 bits of SHA-256: among a thousand million keys two are alike with a probability of about
//! 6 in 10^12, and nobody can make two that are. The UUID of the table is hashed before it.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Result, SinkError};

/// The longest key that is kept exactly.
pub const EXACT_BYTES_MAX: usize = 8;

/// How the keys of a table become numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyForm {
    /// All keys have at most 8 bytes and are kept exactly, with 65 bits.
    Exact,
    /// 96 bits of a hash.
    Hashed,
}

impl KeyForm {
    /// Chooses the form for keys of at most `bytes_max` bytes; `None` when they may be any number.
    pub fn of(bytes_max: Option<usize>) -> Self {
        match bytes_max {
            Some(0..=EXACT_BYTES_MAX) => KeyForm::Exact,
            _ => KeyForm::Hashed,
        }
    }

    /// Returns how many bits a number has.
    pub fn bits(self) -> u32 {
        match self {
            KeyForm::Exact => 65,
            KeyForm::Hashed => 96,
        }
    }

    /// Returns the number of the form in stored bytes.
    pub fn code(self) -> u8 {
        match self {
            KeyForm::Exact => 1,
            KeyForm::Hashed => 2,
        }
    }

    /// Returns the form with this number.
    pub fn of_code(code: u8) -> Option<Self> {
        [KeyForm::Exact, KeyForm::Hashed]
            .into_iter()
            .find(|form| form.code() == code)
    }
}

/// A key, as a number of [`KeyForm::bits`] bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyNumber(pub u128);

/// Makes numbers of the keys of one table.
#[derive(Debug, Clone)]
pub struct KeyHasher {
    form: KeyForm,
    /// A hash that has seen the table.
    seeded: Sha256,
}

impl KeyHasher {
    /// Makes the hasher of a table.
    pub fn new(form: KeyForm, table: Uuid) -> Self {
        KeyHasher {
            form,
            seeded: Sha256::new_with_prefix(table.as_bytes()),
        }
    }

    /// Returns the number of a key, given by its canonical bytes.
    ///
    /// # Errors
    ///
    /// The key is longer than the form allows.
    pub fn number(&self, key: &[u8]) -> Result<KeyNumber> {
        match self.form {
            KeyForm::Exact => exact(key),
            KeyForm::Hashed => {
                let digest = self.seeded.clone().chain_update(key).finalize();
                let first = digest.iter().take(12);
                let number = first.fold(0u128, |number, byte| (number << 8) | u128::from(*byte));
                Ok(KeyNumber(number))
            }
        }
    }
}

/// Mixes a key of at most 8 bytes. One of 8 is its own number; a shorter one has a 1 before its
/// bytes, which tells lengths apart, and the last bit tells these two kinds apart.
fn exact(key: &[u8]) -> Result<KeyNumber> {
    let is_full = key.len() == EXACT_BYTES_MAX;
    if key.len() > EXACT_BYTES_MAX {
        return Err(
            SinkError::internal("a key is longer than the index of its table takes")
                .with("length", key.len()),
        );
    }
    let start = u64::from(!is_full);
    let number = key
        .iter()
        .fold(start, |number, byte| (number << 8) | u64::from(*byte));
    Ok(KeyNumber(
        (u128::from(mix(number)) << 1) | u128::from(is_full),
    ))
}

/// Spreads the bits of a number; no two numbers become one.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn hasher(form: KeyForm) -> KeyHasher {
        KeyHasher::new(form, Uuid::from_u128(7))
    }

    #[test]
    fn short_keys_keep_what_tells_them_apart() {
        let hasher = hasher(KeyForm::Exact);
        let mut keys: Vec<Vec<u8>> = vec![vec![], vec![1; 7], vec![1; 8]];
        for length in 1..=8 {
            keys.extend((0..=255u8).map(|byte| [vec![0; length - 1], vec![byte]].concat()));
            keys.extend((1..=255u8).map(|byte| [vec![byte], vec![0; length - 1]].concat()));
        }
        let keys: BTreeSet<Vec<u8>> = keys.into_iter().collect();
        let numbers: BTreeSet<u128> = keys
            .iter()
            .map(|key| hasher.number(key).unwrap().0)
            .collect();
        assert_eq!(numbers.len(), keys.len());
        assert!(
            numbers
                .iter()
                .all(|number| *number < 1 << KeyForm::Exact.bits())
        );
        let long = hasher.number(&[0; 9]).unwrap_err();
        assert_eq!(long.code(), "INTERNAL");
    }

    #[test]
    fn mixing_can_be_undone() {
        // Each step is undone in turn, so no two numbers become one.
        for number in [0, 1, 2, u64::MAX, 0x9e37_79b9_7f4a_7c15, 1 << 63] {
            let unshift = |value: u64, by: u32| {
                let mut back = value;
                for _ in 0..64 / by {
                    back = value ^ (back >> by);
                }
                back
            };
            let back = unshift(mix(number), 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
            let back = unshift(back, 27).wrapping_mul(0x96de_1b17_3f11_9089);
            let back = unshift(back, 30).wrapping_sub(0x9e37_79b9_7f4a_7c15);
            assert_eq!(back, number);
        }
    }

    #[test]
    fn long_keys_are_hashed_with_their_table() {
        let number = |table: u128, key: &[u8]| {
            let hasher = KeyHasher::new(KeyForm::Hashed, Uuid::from_u128(table));
            hasher.number(key).unwrap().0
        };
        let key = b"a key of more than eight bytes";
        assert_eq!(number(7, key), number(7, key));
        assert_ne!(number(7, key), number(8, key));
        assert_ne!(number(7, b""), number(7, b"\0"));
        assert!(number(7, key) < 1 << 96);
        let mut table = Sha256::new();
        table.update(Uuid::from_u128(7).as_bytes());
        table.update(key);
        let digest = table.finalize();
        assert_eq!(&number(7, key).to_be_bytes()[4..], &digest[..12]);
    }

    #[test]
    fn the_form_follows_the_longest_key() {
        assert_eq!(KeyForm::of(Some(8)), KeyForm::Exact);
        assert_eq!(KeyForm::of(Some(9)), KeyForm::Hashed);
        assert_eq!(KeyForm::of(None), KeyForm::Hashed);
        for form in [KeyForm::Exact, KeyForm::Hashed] {
            assert_eq!(KeyForm::of_code(form.code()), Some(form));
        }
        assert_eq!(KeyForm::of_code(0), None);
    }
}
