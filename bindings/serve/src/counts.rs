//! Counts of observations, for the page and for /metrics.

use std::time::Duration;

use leasehold_observe::{Change, ChangeKind};
use serde::Serialize;

/// The upper bounds of the buckets of waiting times. One more bucket is for longer times.
pub(crate) const UP_TO: [Duration; 6] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
];

/// Times, counted by their lengths.
#[derive(Clone, Default, Debug, Serialize)]
pub(crate) struct Histogram {
    pub(crate) buckets: [u64; UP_TO.len() + 1],
    #[serde(skip)]
    pub(crate) sum: Duration,
}

impl Histogram {
    pub(crate) fn add(&mut self, time: Duration) {
        let bucket = UP_TO.iter().position(|up_to| time <= *up_to);
        self.buckets[bucket.unwrap_or(UP_TO.len())] += 1;
        self.sum = self.sum.saturating_add(time);
    }
}

/// Counts since the page was started.
#[derive(Clone, Default, Debug, Serialize)]
pub(crate) struct Counts {
    pub(crate) acquired: u64,
    /// Acquisitions by a waiter that had been seen in line.
    pub(crate) handoffs: u64,
    /// The ends of tenures, in the order of [`ChangeKind::ENDS`].
    pub(crate) ends: [u64; ChangeKind::ENDS.len()],
    /// How long waiters waited until they got the lock.
    pub(crate) waits: Histogram,
}

impl Counts {
    pub(crate) fn add(&mut self, change: &Change) {
        if change.kind == ChangeKind::Acquired {
            self.acquired += 1;
        } else if let Some(end) = ChangeKind::ENDS
            .iter()
            .position(|kind| *kind == change.kind)
        {
            self.ends[end] += 1;
        }
        if let Some(waited) = change.waited {
            self.handoffs += 1;
            self.waits.add(waited);
        }
    }
}
