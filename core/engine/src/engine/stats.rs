//! The statistics of a locker.

mod counts;
mod prometheus;

use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::event::{LossReason, as_millis};
pub use counts::Counts;
use counts::{BOUNDS, BUCKETS, at};

/// The statistics of a locker since it was created: two gauges, counters that never fall, and histograms.
///
/// Each tenure counts as `acquired`. Then it is `held`, is being released, or counts as `released` or `lost`.
/// Calls that the program canceled are in no counter of calls.
///
/// At a quorum, the numbers about locks are those of the quorum, and `script_calls`, `operations`,
/// `timeouts`, `pushes` and `round_trips` are sums over its servers.
///
/// In JSON, fields are in camel case and durations are whole milliseconds.
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
    /// The number of tenures held now. A gauge.
    pub held: u64,
    /// The number of acquisitions in progress: in line, or not answered yet. Calls that wait through one
    /// re-entrant handle count as one. A gauge.
    pub waiting: u64,
    /// The number of tenures that began.
    pub acquired: u64,
    /// The number of calls that did not get the lock because another holder has it: at once, or after their
    /// wait.
    pub busy: u64,
    /// The number of calls to acquire that failed with an error.
    pub failed: u64,
    /// The number of tenures whose release the store has confirmed, or that were passed on.
    pub released: u64,
    /// The number of lost tenures, by reason.
    pub lost: Losses,
    /// The number of renewals that extended a lease.
    pub renewals: u64,
    /// The number of [`AtRisk`](crate::LeaseEvent::AtRisk) events: for renewals that failed, and for warnings
    /// that the store cannot be reached.
    pub renewal_failures: u64,
    /// The number of turns that completed their tick.
    pub ticks_completed: u64,
    /// The number of turns of a schedule whose tick an earlier turn had begun and not completed, as far as the
    /// runner saw when it asked for the tick.
    pub ticks_repeated: u64,
    /// The sum of the [`Missed`](crate::LeaseEvent::Missed) events: ticks that nobody completed before the turns.
    /// If such a turn fails, the next runner counts its missed ticks again.
    pub ticks_missed: u64,
    /// How long calls waited for the lock that they got. Calls that joined an existing tenure are not
    /// included.
    pub waiting_times: Histogram,
    /// How long tenures lasted that have ended, by release or by loss.
    pub holding_times: Histogram,
    /// The number of script calls, including those that only ask for the server's clock.
    pub script_calls: u64,
    /// The number of operations in these calls, such as acquisitions and renewals.
    pub operations: u64,
    /// The number of script calls without a reply in time.
    pub timeouts: u64,
    /// The number of messages on the client's channel: grants and losses.
    pub pushes: u64,
    /// How long script calls took that were answered, as measured by the locker.
    pub round_trips: Histogram,
}

impl Stats {
    /// Returns the average number of operations in a script call; 0 without calls.
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

/// The number of losses by [`LossReason`].
#[non_exhaustive]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Losses {
    /// The losses by [`LossReason::Expired`].
    pub expired: u64,
    /// The losses by [`LossReason::Deleted`].
    pub deleted: u64,
    /// The losses by [`LossReason::Superseded`].
    pub superseded: u64,
    /// The losses by [`LossReason::Revoked`].
    pub revoked: u64,
    /// The losses by [`LossReason::Shutdown`].
    pub shutdown: u64,
    /// The losses by [`LossReason::Overheld`].
    pub overheld: u64,
}

impl Losses {
    /// Returns the losses by one reason.
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
            LossReason::Overheld => self.overheld,
        }
    }

    /// Returns the losses by all reasons.
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

/// A histogram of durations, with fixed bounds.
///
/// In JSON a histogram is `{"count", "sum", "bounds", "buckets"}`. The sum is in whole milliseconds. The bounds are in
/// milliseconds: 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250 and 500, and then 1, 2.5, 5, 10, 30, 60,
/// 300, 900 and 3600 seconds.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    /// The number of durations.
    pub count: u64,
    /// The sum of the durations.
    pub sum: Duration,
    /// The number of durations in each bucket: at most its [bound](Self::BOUNDS) and above the bound before.
    /// The last bucket counts the durations above all bounds.
    pub buckets: [u64; BUCKETS],
}

impl Histogram {
    /// The upper bound of each bucket except the last, which has none.
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
                overheld: lost(LossReason::Overheld),
            },
            renewals: numbers[at::RENEWALS],
            renewal_failures: numbers[at::RENEWAL_FAILURES],
            ticks_completed: numbers[at::TICKS_COMPLETED],
            ticks_repeated: numbers[at::TICKS_REPEATED],
            ticks_missed: numbers[at::TICKS_MISSED],
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
