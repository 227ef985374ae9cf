//! A run's true time, and the clocks that differ from it.

use leasehold_engine::time::{ServerTime, Timestamp};

use crate::random::Random;

/// True time in nanoseconds since the run began. Only the simulation sees it.
pub(crate) type Moment = u64;

pub(crate) const MILLI: Moment = 1_000_000;
pub(crate) const SECOND: Moment = 1_000 * MILLI;

/// A moment beyond the end of any run.
const FAR: Moment = 10_000 * SECOND;

/// A host's monotonic clock, with its own origin and a rate that is slightly off.
#[derive(Copy, Clone, Debug)]
pub(crate) struct HostClock {
    pub(crate) origin: u64,
    /// How many of the clock's seconds pass in a million true ones.
    pub(crate) rate: u64,
}

/// The most by which a host's clock is off, in parts per million. Time limits are in true time, so a wide
/// drift margin must not stretch them.
const MOST_OFF: u64 = 20_000;

impl HostClock {
    /// Returns a clock whose rate is off by at most half of the drift margin, often by exactly half.
    pub(crate) fn within(margin: u32, random: &mut Random) -> Self {
        let half = (u64::from(margin) / 2).min(MOST_OFF);
        let any = random.below(2 * half + 1);
        let off = random.pick(&[0, any, 2 * half]).unwrap_or(any);
        Self {
            origin: random.below(1_000 * SECOND),
            rate: 1_000_000 - half + off,
        }
    }

    pub(crate) fn at(self, moment: Moment) -> Timestamp {
        Timestamp::from_nanos(self.origin + moment * self.rate / 1_000_000)
    }

    /// Returns the first moment at which the clock has reached a time.
    pub(crate) fn when(self, time: Timestamp) -> Moment {
        let passed = time.as_nanos().saturating_sub(self.origin);
        if passed > FAR {
            return Moment::MAX;
        }
        (passed * 1_000_000).div_ceil(self.rate)
    }
}

/// A server's wall clock. A lone server's clock runs at the true rate unless it is slewed; hosts are measured
/// against it.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct ServerClock {
    pub(crate) origin_micros: u64,
    /// How many of the clock's seconds pass in a million true ones.
    pub(crate) rate: u64,
    pub(crate) slewing: Option<Slewing>,
}

/// A clock that runs faster and faster from a moment on, and then keeps its rate.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Slewing {
    pub(crate) from: Moment,
    /// How long the clock takes to reach its final rate.
    pub(crate) gradually: Moment,
    /// How fast the clock is in the end, in parts per million.
    pub(crate) rate: u64,
}

impl ServerClock {
    pub(crate) fn at(self, moment: Moment) -> ServerTime {
        let ahead = self.slewing.map_or(0, |slewing| slewing.ahead(moment));
        let passed = moment * self.rate / 1_000_000;
        ServerTime::from_micros(self.origin_micros + (passed + ahead) / 1_000)
    }
}

impl Slewing {
    fn ahead(self, moment: Moment) -> Moment {
        let slewed = moment.saturating_sub(self.from);
        let begun = slewed.min(self.gradually);
        // The clock gains half of the rate on average.
        let while_begun = begun / 1_000 * (begun / 1_000) / (2 * self.gradually / 1_000_000).max(1);
        (while_begun + (slewed - begun)) / 1_000 * self.rate / 1_000
    }
}
