//! The results of the measurements.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::latency;
use crate::peer::Peer;
use crate::stats::{median, ratios};

/// The results by side, in the order of the plan.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) sides: Vec<Measured>,
    /// Latencies at fixed rates, of the sides that can be asked for them.
    pub(super) latency: Vec<latency::Side>,
}

/// The results of a side.
#[derive(Default, Serialize)]
pub(super) struct Measured {
    pub(super) name: &'static str,
    pub(super) language: &'static str,
    pub(super) version: String,
    /// The side that it is compared with.
    pub(super) base: &'static str,
    /// True if it stopped answering at some time.
    pub(super) failed: bool,
    /// The measurements whose rounds still differed after the longest warm-up.
    pub(super) unsettled: Vec<String>,
    /// Pairs per second by callers, for each round.
    pub(super) pairs: BTreeMap<usize, Vec<f64>>,
    pub(super) handoff: BTreeMap<String, Handoff>,
    pub(super) held: Option<Held>,
    /// The time from a DEL to the news of it, if the news comes.
    pub(super) loss: Option<Loss>,
}

/// The results of tasks that want one name, for each round.
#[derive(Default, Serialize)]
pub(super) struct Handoff {
    /// Tenures per second.
    pub(super) per_second: Vec<f64>,
    /// Tenures per second of the side's base in the same rounds.
    pub(super) base_per_second: Vec<f64>,
    /// Commands at the server for each tenure, including those in scripts.
    pub(super) commands: Vec<f64>,
    /// Tenures of the task with the fewest, as a share of those of the task with the most.
    pub(super) least_to_most: Vec<f64>,
    /// Tenures of the task with the most.
    pub(super) most: Vec<f64>,
}

/// The results of held leases.
#[derive(Serialize)]
pub(super) struct Held {
    pub(super) seconds: f64,
    pub(super) commands: f64,
    /// Percent of a core.
    pub(super) client_cpu: f64,
    pub(super) server_cpu: f64,
}

#[derive(Serialize)]
pub(super) struct Loss {
    /// `None` if no news came in this time.
    pub(super) millis: Option<f64>,
    pub(super) waited_millis: f64,
}

impl Results {
    pub(super) fn new(peers: &[Peer]) -> Self {
        let sides = peers.iter().map(|peer| Measured {
            name: peer.program.name,
            language: peer.program.language,
            version: peer.process.version.clone(),
            base: peer.program.base,
            ..Measured::default()
        });
        Self {
            sides: sides.collect(),
            latency: Vec::new(),
        }
    }

    /// Returns the ratio of the base's pairs to this side's, by round.
    pub(super) fn pairs_ratios(&self, side: &Measured, callers: usize) -> Vec<f64> {
        let base = self.sides.iter().find(|other| other.name == side.base);
        match (
            base.and_then(|base| base.pairs.get(&callers)),
            side.pairs.get(&callers),
        ) {
            (Some(base), Some(own)) => ratios(base, own),
            _ => Vec::new(),
        }
    }
}

impl Measured {
    pub(super) fn is_base(&self) -> bool {
        self.name == self.base
    }

    /// Returns true if the side is Leasehold, on any client.
    pub(super) fn is_own(&self) -> bool {
        self.name.starts_with("leasehold")
    }

    /// Returns thousand pairs per second; NaN if they were not measured.
    pub(super) fn thousand_pairs(&self, callers: usize) -> f64 {
        median(self.pairs.get(&callers).map_or(&[], Vec::as_slice)) / 1e3
    }
}

impl Handoff {
    /// Returns true if a task had less than a tenth of the tenures of another that had ten or more; fewer
    /// prove nothing.
    pub(super) fn starves(&self) -> bool {
        median(&self.most) >= 10.0 && median(&self.least_to_most) < 0.1
    }

    /// Returns the ratio of the base's tenures to this side's, by round.
    pub(super) fn ratios(&self) -> Vec<f64> {
        ratios(&self.base_per_second, &self.per_second)
    }
}
