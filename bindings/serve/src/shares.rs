//! Sums over the shared names, for /metrics.

use leasehold::{Inspection, Sharing};

/// The sums over the shared names of each kind.
#[derive(Default)]
pub(crate) struct Shares {
    pub(crate) slots: Share,
    pub(crate) units: Share,
    pub(crate) access: Share,
}

/// A sum over the shared names of one kind.
#[derive(Default)]
pub(crate) struct Share {
    pub(crate) permits: u64,
    pub(crate) waiting: u64,
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    /// The part in use of the name with the greatest one; above 1 after its capacity was made smaller.
    pub(crate) fullest: f64,
}

impl Shares {
    /// Adds a name, if it is shared.
    pub(crate) fn add(&mut self, found: &Inspection) {
        let Some(shared) = &found.shared else {
            return;
        };
        let sum = match shared.sharing {
            Sharing::Slots => &mut self.slots,
            Sharing::Units => &mut self.units,
            Sharing::Access => &mut self.access,
        };
        sum.permits += u64::from(shared.held);
        sum.waiting += u64::from(found.waiting);
        sum.used += u64::from(shared.used);
        sum.capacity += u64::from(shared.capacity);
        let part = f64::from(shared.used) / f64::from(shared.capacity.max(1));
        sum.fullest = sum.fullest.max(part);
    }
}
