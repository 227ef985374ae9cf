//! What was measured.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::peer::Peer;
use crate::stats::{Ratio, median, ratio};

/// By side, in the order of the plan.
#[derive(Serialize)]
pub(crate) struct Results {
    pub(crate) sides: Vec<Measured>,
}

/// What is known of a side.
#[derive(Serialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) language: String,
    pub(crate) version: String,
    /// The side that it is compared with.
    pub(crate) base: String,
    /// Whether it stopped to answer at some time.
    pub(crate) failed: bool,
    /// Where its rounds still differed after the longest warm-up.
    pub(crate) unsettled: Vec<String>,
    /// Pairs a second by callers, of each round.
    pub(crate) pairs: BTreeMap<usize, Vec<f64>>,
    pub(crate) handoff: BTreeMap<String, Handoff>,
    pub(crate) held: Option<Held>,
    /// Milliseconds from a DEL to the news of it, if it comes at all.
    pub(crate) loss: Option<Loss>,
}

/// Of tasks that want one name.
#[derive(Default, Serialize)]
pub(crate) struct Handoff {
    /// Tenures a second, of each round.
    pub(crate) per_second: Vec<f64>,
    /// Those of the side that it is compared with, in the same rounds.
    pub(crate) base_per_second: Vec<f64>,
    /// Commands at the server for each, those in scripts included.
    pub(crate) commands: Vec<f64>,
    /// Tenures of the task that had the fewest, as a share of those of the one with the most.
    pub(crate) least_to_most: Vec<f64>,
    /// Tenures of the latter.
    pub(crate) most: Vec<f64>,
}

/// Of leases that are held.
#[derive(Serialize)]
pub(crate) struct Held {
    pub(crate) leases: usize,
    pub(crate) seconds: f64,
    pub(crate) commands: f64,
    /// Per cent of a core.
    pub(crate) client_cpu: f64,
    pub(crate) server_cpu: f64,
}

#[derive(Serialize)]
pub(crate) struct Loss {
    /// `None` if nothing was heard in this time.
    pub(crate) millis: Option<f64>,
    pub(crate) waited_millis: f64,
}

impl Results {
    pub(crate) fn new(peers: &[Peer]) -> Self {
        let sides = peers.iter().map(|peer| Measured {
            name: peer.side.name.clone(),
            language: peer.side.language.clone(),
            version: peer.version.clone(),
            base: peer.side.base.clone(),
            failed: false,
            unsettled: Vec::new(),
            pairs: BTreeMap::new(),
            handoff: BTreeMap::new(),
            held: None,
            loss: None,
        });
        Self {
            sides: sides.collect(),
        }
    }

    pub(crate) fn base_of(&self, side: &Measured) -> Option<&Measured> {
        self.sides.iter().find(|other| other.name == side.base)
    }

    /// How many times the pairs of this side its base makes.
    pub(crate) fn pairs_ratio(&self, side: &Measured, callers: usize) -> Option<Ratio> {
        let base = self.base_of(side)?.pairs.get(&callers)?;
        ratio(base, side.pairs.get(&callers)?)
    }
}

impl Measured {
    pub(crate) fn is_base(&self) -> bool {
        self.name == self.base
    }

    /// Whether it is Leasehold, on whatever client.
    pub(crate) fn is_own(&self) -> bool {
        self.name.starts_with("leasehold")
    }

    pub(crate) fn pairs(&self, callers: usize) -> Option<f64> {
        median(self.pairs.get(&callers)?)
    }
}

impl Handoff {
    pub(crate) fn per_second(&self) -> Option<f64> {
        median(&self.per_second)
    }

    /// Whether a task had less than a tenth of the tenures of another, which had ten or more: of fewer,
    /// nothing can be said.
    pub(crate) fn starves(&self) -> bool {
        let is_told = median(&self.most).is_some_and(|most| most >= 10.0);
        is_told && median(&self.least_to_most).is_some_and(|share| share < 0.1)
    }

    /// How many times the tenures of this side its base has.
    pub(crate) fn ratio(&self) -> Option<Ratio> {
        ratio(&self.base_per_second, &self.per_second)
    }
}
