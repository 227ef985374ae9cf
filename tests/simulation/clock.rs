//! The true time of a run, and the clocks that disagree about it.

use leasehold::time::{ServerTime, Timestamp};

/// True time: nanoseconds since the run began. Only the simulation sees it.
pub(crate) type Moment = u64;

pub(crate) const MILLI: Moment = 1_000_000;
pub(crate) const SECOND: Moment = 1_000 * MILLI;

/// Further away than any run lasts.
const FAR: Moment = 10_000 * SECOND;

/// A host's monotonic clock: an origin of its own, and a rate that is a little off.
#[derive(Copy, Clone, Debug)]
pub(crate) struct HostClock {
    pub(crate) origin: u64,
    /// How many of its seconds pass in a million true ones.
    pub(crate) rate: u64,
}

impl HostClock {
    pub(crate) fn at(self, moment: Moment) -> Timestamp {
        Timestamp::from_nanos(self.origin + moment * self.rate / 1_000_000)
    }

    /// The first moment at which the clock has reached a time.
    pub(crate) fn when(self, time: Timestamp) -> Moment {
        let passed = time.as_nanos().saturating_sub(self.origin);
        if passed > FAR {
            return Moment::MAX;
        }
        (passed * 1_000_000).div_ceil(self.rate)
    }
}

/// The server's wall clock. It runs at the true rate; hosts are measured against it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ServerClock {
    pub(crate) origin_micros: u64,
}

impl ServerClock {
    pub(crate) fn at(self, moment: Moment) -> ServerTime {
        ServerTime::from_micros(self.origin_micros + moment / 1_000)
    }
}
