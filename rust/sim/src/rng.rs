//! The only source of chance: a seed gives the same run on every machine.

/// xorshift64* over a state that splitmix64 made from the seed.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Begins the sequence of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring sequences.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Rng((z ^ (z >> 31)) | 1)
    }

    /// Returns 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`, which must not be 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an index below `bound`.
    #[inline]
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// Returns a number from `low` to `high`, both included.
    #[inline]
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Is true `chance` times of 1,024.
    #[inline]
    pub(crate) fn chance(&mut self, chance: u32) -> bool {
        chance > 0 && self.below(1_024) < u64::from(chance)
    }

    /// Returns one of `choices`.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Returns an index with the weights `weights`; `None` when all are 0.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> Option<usize> {
        let total: u32 = weights.iter().sum();
        if total == 0 {
            return None;
        }
        let mut left = self.below(u64::from(total)) as u32;
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return Some(index);
            }
            left -= weight;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence_and_its_neighbour_another() {
        let three = |seed| {
            let mut rng = Rng::new(seed);
            [rng.bits(), rng.bits(), rng.bits()]
        };
        assert_eq!(three(7), three(7));
        assert_ne!(three(7), three(8));
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 3];
        for _ in 0..200 {
            let number = rng.between(5, 7);
            assert!((5..=7).contains(&number));
            seen[(number - 5) as usize] = true;
            assert_eq!(rng.weighted(&[0, 3, 0]), Some(1));
        }
        assert_eq!(seen, [true; 3]);
        assert_eq!(rng.weighted(&[0, 0]), None);
        assert!(!rng.chance(0) && rng.chance(1_024));
    }
}
