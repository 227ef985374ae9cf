//! Random numbers that follow from a seed.

/// A source of random numbers: `SplitMix64` (Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Makes a source that returns the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        // Neighboring seeds must not give similar runs.
        let mut random = Self(seed.wrapping_mul(0xd134_2543_de82_ef95));
        random.number();
        random
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number from 0 to less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true in this percentage of calls.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of these items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let count = u64::try_from(items.len()).ok()?;
        let index = usize::try_from(self.below(count)).ok()?;
        items.get(index).copied()
    }
}

/// Spreads a number's bits over all 64.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
