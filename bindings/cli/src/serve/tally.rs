//! Numbers for the page and for /metrics.

use std::time::Duration;

use serde::Serialize;

use super::look::{Change, Kind};

/// The upper ends of the buckets of waiting times; one more is for what is longer.
pub(super) const UP_TO: [Duration; 6] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
];

/// Times, counted by their lengths.
#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct Histogram {
    pub(super) counts: [u64; UP_TO.len() + 1],
    #[serde(skip)]
    pub(super) sum: Duration,
}

impl Histogram {
    pub(super) fn add(&mut self, time: Duration) {
        let bucket = UP_TO.iter().position(|up_to| time <= *up_to);
        self.counts[bucket.unwrap_or(UP_TO.len())] += 1;
        self.sum = self.sum.saturating_add(time);
    }
}

/// What was seen to happen since the command was started.
#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct Tally {
    pub(super) acquired: u64,
    /// Those of them by somebody who had been seen in line.
    pub(super) handoffs: u64,
    /// By [`Kind::ENDS`].
    pub(super) ends: [u64; Kind::ENDS.len()],
    /// How long those waited who got the lock.
    pub(super) waits: Histogram,
}

impl Tally {
    pub(super) fn add(&mut self, change: &Change) {
        if change.kind == Kind::Acquired {
            self.acquired += 1;
        } else if let Some(end) = Kind::ENDS.iter().position(|kind| *kind == change.kind) {
            self.ends[end] += 1;
        }
        if let Some(waited) = change.waited {
            self.handoffs += 1;
            self.waits.add(waited);
        }
    }
}
