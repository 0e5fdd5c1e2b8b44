//! What several tests of the index are made of.

/// Numbers that are the same on every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Returns the next number, of 31 bits.
    pub(super) fn next_u32(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// Returns the next number, below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        u64::from(self.next_u32()) % end
    }
}
