//! The result of a run: a broken promise, or the counts of what was seen.

use std::collections::BTreeMap;

use crate::clock::Moment;
use crate::random::mix;

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Violation {
    /// The promise: `I1` to `I9`, `liveness`, `calls`, `progress`, `route`, `age`, `pass` or `yield`; of shared names
    /// also `capacity`, `resize`, `slots` or `generation`.
    pub(crate) promise: &'static str,
    pub(crate) at: Moment,
    pub(crate) message: String,
}

/// How often each event happened: a run in which nothing happens proves nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stats {
    counts: BTreeMap<&'static str, u64>,
    /// A digest of all events and their times.
    digest: u64,
}

impl Stats {
    pub(crate) fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn saw(&mut self, now: Moment, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
        let bytes = what
            .bytes()
            .fold(now, |sum, byte| sum * 31 % (1 << 56) + u64::from(byte));
        self.digest = mix(self.digest ^ bytes);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
        self.digest ^= other.digest;
    }
}
