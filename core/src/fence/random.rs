//! Randomness for those who should not meet again.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The standard library seeds its hash maps with random bits of the operating system.
pub(super) fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}
