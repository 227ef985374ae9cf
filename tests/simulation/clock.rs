//! The true time of a run, and the clocks that disagree about it.

use leasehold_engine::time::{ServerTime, Timestamp};

use crate::random::Random;

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

/// The most by which a host's clock is off, in parts per million: bounds on how long something takes are
/// in true time, and a wide drift margin does not stretch them.
const MOST_OFF: u64 = 20_000;

impl HostClock {
    /// One whose rate is off by half of the drift margin at the most, and often by exactly that.
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

    /// The first moment at which the clock has reached a time.
    pub(crate) fn when(self, time: Timestamp) -> Moment {
        let passed = time.as_nanos().saturating_sub(self.origin);
        if passed > FAR {
            return Moment::MAX;
        }
        (passed * 1_000_000).div_ceil(self.rate)
    }
}

/// A server's wall clock. Of one that is alone it runs at the true rate, unless it is slewed; hosts
/// are measured against it.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct ServerClock {
    pub(crate) origin_micros: u64,
    /// How many of its seconds pass in a million true ones.
    pub(crate) rate: u64,
    pub(crate) slewing: Option<Slewing>,
}

/// From a moment on a clock runs faster and faster, and then goes on so.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Slewing {
    pub(crate) from: Moment,
    /// How long it takes to get to its rate.
    pub(crate) gradually: Moment,
    /// By how many parts in a million it is fast in the end.
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
        // At half of the rate on average.
        let while_begun = begun / 1_000 * (begun / 1_000) / (2 * self.gradually / 1_000_000).max(1);
        (while_begun + (slewed - begun)) / 1_000 * self.rate / 1_000
    }
}
