//! Random numbers from the standard library.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns random bits. The standard library seeds its hash maps from the operating system's random source.
pub(super) fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}
