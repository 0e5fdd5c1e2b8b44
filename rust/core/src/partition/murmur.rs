//! Murmur3, x86 variant, 32 bits, seed 0: the hash of Iceberg's bucket transform.

const C1: u32 = 0xcc9e_2d51;
const C2: u32 = 0x1b87_3593;

/// Returns the 32-bit Murmur3 hash of `bytes` with seed 0.
pub fn murmur3(bytes: &[u8]) -> i32 {
    let mut hash = 0u32;
    let mut blocks = bytes.chunks_exact(4);
    for block in &mut blocks {
        hash ^= mix(block);
        hash = hash
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
    }
    hash ^= mix(blocks.remainder());
    // The algorithm is defined on the length modulo 2^32.
    hash ^= bytes.len() as u32;
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^= hash >> 16;
    hash as i32
}

/// Mixes up to four bytes, little endian; no bytes mix to zero, which changes nothing.
fn mix(block: &[u8]) -> u32 {
    let word = block
        .iter()
        .rev()
        .fold(0u32, |word, byte| (word << 8) | u32::from(*byte));
    word.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2)
}

/// Returns the hash of an int, long, date, time or timestamp: all hash as a long.
pub(super) fn hash_long(value: i64) -> i32 {
    murmur3(&value.to_le_bytes())
}

/// Returns the hash of a decimal: its unscaled value in the fewest big-endian bytes.
pub(super) fn hash_decimal(unscaled: i128) -> i32 {
    let bytes = unscaled.to_be_bytes();
    let sign = if unscaled < 0 { 0xff } else { 0 };
    // A leading byte can go while the next byte still carries the sign.
    let surplus = bytes
        .iter()
        .zip(bytes.iter().skip(1))
        .take_while(|(byte, next)| **byte == sign && (**next ^ sign) & 0x80 == 0)
        .count();
    murmur3(bytes.get(surplus..).unwrap_or(&bytes))
}

/// Returns the bucket of a hash among `buckets`.
pub(super) fn bucket(hash: i32, buckets: i32) -> i32 {
    (hash & i32::MAX) % buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the Iceberg specification, appendix B.
    #[test]
    fn hashes_are_those_of_the_specification() {
        assert_eq!(hash_long(34), 2_017_239_379);
        assert_eq!(hash_decimal(1420), -500_754_589);
        assert_eq!(hash_long(17_486), -653_330_422);
        assert_eq!(hash_long(81_068_000_000), -662_762_989);
        assert_eq!(hash_long(1_510_871_468_000_000), -2_047_944_441);
        assert_eq!(hash_long(1_510_871_468_000_001), -1_207_196_810);
        assert_eq!(murmur3(b"iceberg"), 1_210_000_089);
        let uuid = 0xf79c_3e09_677c_4bbd_a479_3f34_9cb7_85e7u128.to_be_bytes();
        assert_eq!(murmur3(&uuid), 1_488_055_340);
        assert_eq!(murmur3(&[0, 1, 2, 3]), -188_683_207);
    }

    #[test]
    fn decimals_hash_in_their_fewest_bytes() {
        for (unscaled, bytes) in [
            (0i128, &[0u8][..]),
            (127, &[0x7f]),
            (128, &[0, 0x80]),
            (-1, &[0xff]),
            (-128, &[0x80]),
            (-129, &[0xff, 0x7f]),
        ] {
            assert_eq!(hash_decimal(unscaled), murmur3(bytes), "{unscaled}");
        }
        assert_eq!(hash_decimal(i128::MIN), murmur3(&i128::MIN.to_be_bytes()));
    }
}
