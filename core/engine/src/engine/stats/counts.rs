//! The counters of a locker in one array, so that counting never allocates and a host in another language can
//! read them all at once.

use crate::error::ErrorKind;
use crate::event::LeaseEvent;
use crate::time::Timestamp;

/// The counters of an engine in one array, for hosts in other languages. Their order is that of the fields of
/// [`Stats`](crate::Stats). A histogram is the sum in microseconds, followed by its buckets.
///
/// ```
/// use leasehold_engine::engine::{Engine, Settings, Stats};
/// use leasehold_engine::protocol::ClientId;
///
/// let engine = Engine::new(Settings::new(ClientId(1)));
/// assert!(engine.counts().numbers().iter().all(|number| *number == 0));
/// assert_eq!(Stats::from(engine.counts()), Stats::default());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts(pub(super) [u64; LEN]);

/// The index of each number. Those from [`SCRIPT_CALLS`](at::SCRIPT_CALLS) on are about servers, and those
/// before about locks.
pub(super) mod at {
    use super::BUCKETS;

    pub(in super::super) const HELD: usize = 0;
    pub(in super::super) const WAITING: usize = 1;
    pub(in super::super) const ACQUIRED: usize = 2;
    pub(in super::super) const BUSY: usize = 3;
    pub(in super::super) const FAILED: usize = 4;
    pub(in super::super) const RELEASED: usize = 5;
    /// One number for each reason, in the order of [`LossReason`].
    pub(in super::super) const LOST: usize = 6;
    pub(in super::super) const RENEWALS: usize = 12;
    pub(in super::super) const RENEWAL_FAILURES: usize = 13;
    pub(in super::super) const TICKS_COMPLETED: usize = 14;
    pub(in super::super) const TICKS_REPEATED: usize = 15;
    pub(in super::super) const TICKS_MISSED: usize = 16;
    pub(in super::super) const WAITING_TIMES: usize = 17;
    pub(in super::super) const HOLDING_TIMES: usize = WAITING_TIMES + 1 + BUCKETS;
    pub(in super::super) const SCRIPT_CALLS: usize = HOLDING_TIMES + 1 + BUCKETS;
    pub(in super::super) const OPERATIONS: usize = SCRIPT_CALLS + 1;
    pub(in super::super) const TIMEOUTS: usize = SCRIPT_CALLS + 2;
    pub(in super::super) const PUSHES: usize = SCRIPT_CALLS + 3;
    pub(in super::super) const ROUND_TRIPS: usize = SCRIPT_CALLS + 4;
}

const LEN: usize = at::ROUND_TRIPS + 1 + BUCKETS;
pub(super) const BUCKETS: usize = BOUNDS.len() + 1;

/// The upper bound of each bucket except the last, in microseconds.
pub(super) const BOUNDS: [u32; 21] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
];

impl Counts {
    /// Returns all numbers.
    pub fn numbers(&self) -> &[u64] {
        &self.0
    }
}

/// Counting.
impl Counts {
    /// Creates counts from all their numbers.
    #[cfg(test)]
    pub(in crate::engine) fn of(numbers: &[u64]) -> Self {
        let mut counts = Self::new();
        counts.0.copy_from_slice(numbers);
        counts
    }

    pub(in crate::engine) fn new() -> Self {
        Self([0; LEN])
    }

    pub(in crate::engine) fn happened(&mut self, event: &LeaseEvent) {
        let what = match event {
            LeaseEvent::Acquired { .. } => {
                self.less(at::WAITING);
                self.add(at::HELD, 1);
                at::ACQUIRED
            }
            LeaseEvent::Renewed { .. } => at::RENEWALS,
            // A lease that reaches its age is at risk without a failure.
            LeaseEvent::AtRisk { error, .. } if error.kind() == ErrorKind::Overheld => return,
            LeaseEvent::AtRisk { .. } => at::RENEWAL_FAILURES,
            LeaseEvent::Lost { reason, .. } => at::LOST + *reason as usize,
            LeaseEvent::Released { .. } | LeaseEvent::Passed { .. } => at::RELEASED,
            LeaseEvent::Completed { .. } => at::TICKS_COMPLETED,
            LeaseEvent::Missed { ticks, .. } => return self.add(at::TICKS_MISSED, *ticks),
            LeaseEvent::Waiting { .. }
            | LeaseEvent::Begun { .. }
            | LeaseEvent::CapacityDiffers { .. }
            | LeaseEvent::Wanted { .. }
            | LeaseEvent::ClockDrift { .. }
            | LeaseEvent::Quarantined { .. }
            | LeaseEvent::Readmitted { .. }
            | LeaseEvent::Lagged { .. } => return,
        };
        self.add(what, 1);
    }

    /// Counts a turn whose tick an earlier turn had begun.
    pub(in crate::engine) fn repeated(&mut self) {
        self.add(at::TICKS_REPEATED, 1);
    }

    /// Counts the start of an acquisition.
    pub(in crate::engine) fn wanted(&mut self) {
        self.add(at::WAITING, 1);
    }

    /// Counts the end of an acquisition, or of a tenure that began at `held_since`.
    pub(in crate::engine) fn over(&mut self, now: Timestamp, held_since: Option<Timestamp>) {
        match held_since {
            Some(began) => {
                self.less(at::HELD);
                self.took(at::HOLDING_TIMES, now, began);
            }
            None => self.less(at::WAITING),
        }
    }

    /// Counts a call that got its lock, for which it asked at `asked`.
    pub(in crate::engine) fn got(&mut self, now: Timestamp, asked: Timestamp) {
        self.took(at::WAITING_TIMES, now, asked);
    }

    /// Counts a call that did not get its lock.
    pub(in crate::engine) fn got_none(&mut self, failed: bool) {
        self.add(if failed { at::FAILED } else { at::BUSY }, 1);
    }

    /// Counts a batch with this number of operations.
    pub(in crate::engine) fn sent(&mut self, operations: usize) {
        self.add(at::SCRIPT_CALLS, 1);
        self.add(at::OPERATIONS, operations as u64);
    }

    pub(in crate::engine) fn timed_out(&mut self, requests: usize) {
        self.add(at::TIMEOUTS, requests as u64);
    }

    pub(in crate::engine) fn heard(&mut self) {
        self.add(at::PUSHES, 1);
    }

    /// Counts a reply to a request that left at `sent`.
    pub(in crate::engine) fn replied(&mut self, now: Timestamp, sent: Timestamp) {
        self.took(at::ROUND_TRIPS, now, sent);
    }

    /// Adds a duration to a histogram, whose last bucket has no bound.
    fn took(&mut self, histogram: usize, now: Timestamp, since: Timestamp) {
        let micros = now.as_nanos().saturating_sub(since.as_nanos()) / 1_000;
        // Most times are short, so this ends soon.
        let is_below = |bound: &&u32| u64::from(**bound) < micros;
        let below = BOUNDS.iter().take_while(is_below).count();
        self.add(histogram, micros);
        self.add(histogram + 1 + below, 1);
    }

    // Uses `get_mut`, because a browser would have to load the panic message of an index out of bounds.
    fn add(&mut self, at: usize, more: u64) {
        if let Some(number) = self.0.get_mut(at) {
            *number = number.saturating_add(more);
        }
    }

    fn less(&mut self, gauge: usize) {
        if let Some(number) = self.0.get_mut(gauge) {
            *number = number.saturating_sub(1);
        }
    }

    /// Returns these counts with those of the other engines' servers added.
    pub(in crate::engine) fn with<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = self.clone();
        for other in others {
            let sums = all.0.iter_mut().zip(other.0).skip(at::SCRIPT_CALLS);
            sums.for_each(|(sum, number)| *sum = sum.saturating_add(number));
        }
        all
    }
}
