//! The numbers by which the host knows tenures.

use leasehold::engine::{CallId, Grant};
use leasehold::protocol::LeaseId;
use rustc_hash::FxHashMap;

use crate::convert::{id, number};

/// What is held, by lease id and by number: that of the first call that got it.
#[derive(Default)]
pub(super) struct Tenures {
    numbers: FxHashMap<LeaseId, u64>,
    held: FxHashMap<u64, LeaseId>,
}

impl Tenures {
    /// The number of a tenure that a call got, perhaps after others.
    pub(super) fn acquired(&mut self, call: CallId, grant: &Grant) -> f64 {
        let number = *self.numbers.entry(grant.lease).or_insert(call.0);
        self.held.insert(number, grant.lease);
        id(number)
    }

    /// The lease id of a tenure; of one that is over, an id that no tenure ever has.
    pub(super) fn lease(&self, tenure: f64) -> LeaseId {
        self.held
            .get(&number(tenure))
            .copied()
            .unwrap_or(LeaseId(0))
    }

    pub(super) fn number(&self, lease: LeaseId) -> Option<f64> {
        self.numbers.get(&lease).map(|number| id(*number))
    }

    /// The number of a tenure that is over from now on.
    pub(super) fn ended(&mut self, lease: LeaseId) -> Option<f64> {
        let number = self.numbers.remove(&lease)?;
        self.held.remove(&number);
        Some(id(number))
    }
}
