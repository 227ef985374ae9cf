//! The numbers by which the host knows tenures.

use leasehold::engine::{Acquired, CallId, Table};
use leasehold::protocol::LeaseId;

use crate::convert::{id, number};

/// What is held, by lease id and by number: that of the first call that got it.
#[derive(Default)]
pub(super) struct Tenures {
    /// By the first half of the lease id, no two of which are alike in one engine.
    numbers: Table<u64, u64>,
    held: Table<u64, LeaseId>,
}

impl Tenures {
    /// The number of a tenure that a call got, perhaps after others.
    pub(super) fn acquired(&mut self, call: CallId, grant: &Acquired) -> f64 {
        let numbers = &mut self.numbers;
        let number = *numbers.get_or_insert_with(grant.lease.half().0, || call.0);
        self.held.insert(number, grant.lease);
        id(number)
    }

    /// The lease id of a tenure; of one that is over, an id that no tenure ever has.
    pub(super) fn lease(&self, tenure: f64) -> LeaseId {
        let held = self.held.get(&number(tenure));
        held.copied().unwrap_or(LeaseId(0))
    }

    pub(super) fn number(&self, lease: LeaseId) -> Option<f64> {
        self.numbers.get(&lease.half().0).map(|number| id(*number))
    }

    /// The number of a tenure that is over from now on.
    pub(super) fn ended(&mut self, lease: LeaseId) -> Option<f64> {
        let number = self.numbers.take(&lease.half().0)?;
        self.held.take(&number);
        Some(id(number))
    }
}
