//! A hash map of ids.

use std::hash::Hash;
use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};

use rustc_hash::FxHashMap;

use crate::protocol::LeaseId;

/// Up to this capacity no memory is given back.
const SMALL: usize = 64;

/// The first half of a lease id: by chance no two of one locker are alike, and if they are, the
/// second is refused.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Short(NonZeroU64);

impl Short {
    pub(super) fn of(lease: LeaseId) -> Self {
        let half = u64::try_from(lease.0 >> 64).unwrap_or(0);
        Self(NonZeroU64::new(half).unwrap_or(NonZeroU64::MIN))
    }
}

/// A hash map that gives its memory back after a burst. Its hash is a quick one: keys are ids that
/// the engine or its host counts, or random bits, so that nobody can choose them to collide. It
/// iterates in an order without a meaning, but in the same one in every run.
#[derive(Debug)]
pub(super) struct Table<K, V>(FxHashMap<K, V>);

impl<K: Hash + Eq, V> Table<K, V> {
    /// Removes an entry.
    pub(super) fn take(&mut self, key: &K) -> Option<V> {
        let value = self.0.remove(key);
        let (length, capacity) = (self.0.len(), self.0.capacity());
        if capacity > SMALL && length < capacity / 8 {
            self.0.shrink_to(capacity / 4);
        }
        value
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K, V> Deref for Table<K, V> {
    type Target = FxHashMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K, V> DerefMut for Table<K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a burst whose memory is kept for as long as the locker lives.
    #[test]
    fn a_burst_gives_its_memory_back() {
        let mut table = Table::<u64, u64>::default();
        for key in 0..100_000 {
            table.insert(key, key);
        }
        for key in 1..100_000 {
            assert_eq!(table.take(&key), Some(key));
        }
        assert_eq!(table.take(&1), None);
        assert_eq!((table.len(), table.get(&0)), (1, Some(&0)));
        assert!(table.capacity() < 2 * SMALL, "{}", table.capacity());
    }
}
