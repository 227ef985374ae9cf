//! The only source of randomness: everything in a run follows from its seed.

pub(crate) use leasehold_tests::{Random, mix};
