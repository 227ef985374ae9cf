//! What was measured.

use std::collections::BTreeMap;

use serde::Serialize;

use super::peer::Peer;
use crate::stats::{median, ratios};

/// By side, in the order of the plan.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) sides: Vec<Measured>,
}

/// What is known of a side.
#[derive(Default, Serialize)]
pub(super) struct Measured {
    pub(super) name: &'static str,
    pub(super) language: &'static str,
    pub(super) version: String,
    /// The side that it is compared with.
    pub(super) base: &'static str,
    /// Whether it stopped to answer at some time.
    pub(super) failed: bool,
    /// Where its rounds still differed after the longest warm-up.
    pub(super) unsettled: Vec<String>,
    /// Pairs a second by callers, of each round.
    pub(super) pairs: BTreeMap<usize, Vec<f64>>,
    pub(super) handoff: BTreeMap<String, Handoff>,
    pub(super) held: Option<Held>,
    /// From a DEL to the news of it, if it comes at all.
    pub(super) loss: Option<Loss>,
}

/// Of tasks that want one name; each of each round.
#[derive(Default, Serialize)]
pub(super) struct Handoff {
    /// Tenures a second.
    pub(super) per_second: Vec<f64>,
    /// Those of the side that it is compared with, in the same rounds.
    pub(super) base_per_second: Vec<f64>,
    /// Commands at the server for each, those in scripts included.
    pub(super) commands: Vec<f64>,
    /// Tenures of the task that had the fewest, as a share of those of the one with the most.
    pub(super) least_to_most: Vec<f64>,
    /// Tenures of the latter.
    pub(super) most: Vec<f64>,
}

/// Of leases that are held.
#[derive(Serialize)]
pub(super) struct Held {
    pub(super) seconds: f64,
    pub(super) commands: f64,
    /// Per cent of a core.
    pub(super) client_cpu: f64,
    pub(super) server_cpu: f64,
}

#[derive(Serialize)]
pub(super) struct Loss {
    /// `None` if nothing was heard in this time.
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
        }
    }

    /// How many times the pairs of this side its base makes, by round.
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

    /// Whether it is Leasehold, on whatever client.
    pub(super) fn is_own(&self) -> bool {
        self.name.starts_with("leasehold")
    }

    /// Thousand pairs a second; NaN if they were not measured.
    pub(super) fn thousand_pairs(&self, callers: usize) -> f64 {
        median(self.pairs.get(&callers).map_or(&[], Vec::as_slice)) / 1e3
    }
}

impl Handoff {
    /// Whether a task had less than a tenth of the tenures of another, which had ten or more: of fewer,
    /// nothing can be said.
    pub(super) fn starves(&self) -> bool {
        median(&self.most) >= 10.0 && median(&self.least_to_most) < 0.1
    }

    /// How many times the tenures of this side its base has, by round.
    pub(super) fn ratios(&self) -> Vec<f64> {
        ratios(&self.base_per_second, &self.per_second)
    }
}
