//! What a locker counts while it works, with names.

mod counts;
mod prometheus;

use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::event::{LossReason, as_millis};
pub use counts::Counts;
use counts::{BOUNDS, BUCKETS, at};

/// What a locker has done since it was made: two gauges, counters that never fall, and histograms.
///
/// Of tenures, each was `acquired` and then `released`, or `lost` for a reason, or it is `held`, or its
/// release is under way. Calls that the program gave up are in no counter of calls.
///
/// Of a quorum what is said of locks is said of the quorum, and `script_calls`, `operations`, `timeouts`,
/// `pushes` and `round_trips` are the sums over its servers.
///
/// As JSON its fields are in camel case, and durations are whole milliseconds.
///
/// ```
/// # use leasehold_engine as leasehold;
/// use leasehold::Stats;
///
/// let stats = Stats::default(); // or what `locker.stats()` returns
/// println!("{} held, {} acquired, {} lost", stats.held, stats.acquired, stats.lost.total());
/// assert!(serde_json::to_string(&stats)?.starts_with(r#"{"held":0,"waiting":0,"acquired":0,"#));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Tenures that are held now. A gauge.
    pub held: u64,
    /// Acquisitions that are under way now: in line, or not answered yet. Calls that wait through one
    /// re-entrant handle are one. A gauge.
    pub waiting: u64,
    /// Tenures that began.
    pub acquired: u64,
    /// Calls that were answered that somebody else has the lock: at once, or when their time to wait was over.
    pub busy: u64,
    /// Calls to acquire that failed with an error.
    pub failed: u64,
    /// Tenures whose release the store has confirmed.
    pub released: u64,
    /// Tenures that were lost, by reason.
    pub lost: Losses,
    /// Renewals that lengthened a lease.
    pub renewals: u64,
    /// Renewals that failed, and times that a holder was warned because the store cannot be reached: the
    /// events [`AtRisk`](crate::LeaseEvent::AtRisk).
    pub renewal_failures: u64,
    /// How long calls that got a lock had waited for it. A call that shares a tenure that there is already
    /// is not among them.
    pub waiting_times: Histogram,
    /// How long tenures lasted that are over, whether they were released or lost.
    pub holding_times: Histogram,
    /// Calls of the script, questions for the server's clock among them.
    pub script_calls: u64,
    /// Operations in these calls, such as an acquisition or a renewal.
    pub operations: u64,
    /// Script calls that were not answered in time.
    pub timeouts: u64,
    /// Messages that were heard on the client's channel: grants, and what was taken away.
    pub pushes: u64,
    /// How long script calls took that were answered, as the locker sees it.
    pub round_trips: Histogram,
}

impl Stats {
    /// Operations in a script call, on average; 0 if there were none.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// let mut stats = leasehold::Stats::default();
    /// (stats.operations, stats.script_calls) = (5, 2);
    /// assert_eq!(stats.operations_per_call(), 2.5);
    /// ```
    #[allow(clippy::cast_precision_loss)]
    pub fn operations_per_call(&self) -> f64 {
        self.operations as f64 / self.script_calls.max(1) as f64
    }
}

/// Counts by [`LossReason`].
#[non_exhaustive]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Losses {
    /// [`LossReason::Expired`].
    pub expired: u64,
    /// [`LossReason::Deleted`].
    pub deleted: u64,
    /// [`LossReason::Superseded`].
    pub superseded: u64,
    /// [`LossReason::Revoked`].
    pub revoked: u64,
    /// [`LossReason::Shutdown`].
    pub shutdown: u64,
}

impl Losses {
    /// Those for one reason.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::{LossReason, Stats};
    ///
    /// let mut stats = Stats::default();
    /// stats.lost.revoked = 1;
    /// assert_eq!(stats.lost.of(LossReason::Revoked), 1);
    /// ```
    pub fn of(&self, reason: LossReason) -> u64 {
        match reason {
            LossReason::Expired => self.expired,
            LossReason::Deleted => self.deleted,
            LossReason::Superseded => self.superseded,
            LossReason::Revoked => self.revoked,
            LossReason::Shutdown => self.shutdown,
        }
    }

    /// Those for any reason.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// let mut stats = leasehold::Stats::default();
    /// (stats.lost.expired, stats.lost.revoked) = (2, 1);
    /// assert_eq!(stats.lost.total(), 3);
    /// ```
    pub fn total(&self) -> u64 {
        let reasons = LossReason::ALL.iter();
        reasons.map(|reason| self.of(*reason)).sum()
    }
}

/// How long something took, as counts in buckets with fixed bounds.
///
/// As JSON it is `{"count", "sum", "bounds", "buckets"}`; the sum is in whole milliseconds, the bounds are
/// in milliseconds: 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, and in seconds 1, 2.5, 5, 10, 30,
/// 60, 300, 900 and 3600.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    /// How many there were.
    pub count: u64,
    /// How long they took together.
    pub sum: Duration,
    /// How many took no longer than each of the [bounds](Self::BOUNDS), and longer than the one before; and
    /// how many took longer than the last.
    pub buckets: [u64; BUCKETS],
}

impl Histogram {
    /// The longest time of each bucket but the last, which has none.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::Histogram;
    ///
    /// assert_eq!(Histogram::BOUNDS[3], std::time::Duration::from_millis(1));
    /// assert_eq!(Histogram::default().buckets.len(), Histogram::BOUNDS.len() + 1);
    /// ```
    pub const BOUNDS: [Duration; BUCKETS - 1] = {
        let (mut bounds, mut at) = ([Duration::ZERO; BUCKETS - 1], 0);
        while at < bounds.len() {
            bounds[at] = Duration::from_micros(BOUNDS[at] as u64);
            at += 1;
        }
        bounds
    };
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Sum(#[serde(serialize_with = "as_millis")] Duration);
        let bounds = BOUNDS.map(|micros| f64::from(micros) / 1_000.0);
        let mut histogram = serializer.serialize_struct("Histogram", 4)?;
        histogram.serialize_field("count", &self.count)?;
        histogram.serialize_field("sum", &Sum(self.sum))?;
        histogram.serialize_field("bounds", &bounds)?;
        histogram.serialize_field("buckets", &self.buckets)?;
        histogram.end()
    }
}

impl From<Counts> for Stats {
    fn from(Counts(numbers): Counts) -> Self {
        let histogram = |at: usize| {
            let mut buckets = [0; BUCKETS];
            buckets.copy_from_slice(&numbers[at + 1..=at + BUCKETS]);
            Histogram {
                count: buckets.iter().sum(),
                sum: Duration::from_micros(numbers[at]),
                buckets,
            }
        };
        let lost = |reason: LossReason| numbers[at::LOST + reason as usize];
        Self {
            held: numbers[at::HELD],
            waiting: numbers[at::WAITING],
            acquired: numbers[at::ACQUIRED],
            busy: numbers[at::BUSY],
            failed: numbers[at::FAILED],
            released: numbers[at::RELEASED],
            lost: Losses {
                expired: lost(LossReason::Expired),
                deleted: lost(LossReason::Deleted),
                superseded: lost(LossReason::Superseded),
                revoked: lost(LossReason::Revoked),
                shutdown: lost(LossReason::Shutdown),
            },
            renewals: numbers[at::RENEWALS],
            renewal_failures: numbers[at::RENEWAL_FAILURES],
            waiting_times: histogram(at::WAITING_TIMES),
            holding_times: histogram(at::HOLDING_TIMES),
            script_calls: numbers[at::SCRIPT_CALLS],
            operations: numbers[at::OPERATIONS],
            timeouts: numbers[at::TIMEOUTS],
            pushes: numbers[at::PUSHES],
            round_trips: histogram(at::ROUND_TRIPS),
        }
    }
}
