//! Retry pacing: backoff and jitter.

use std::time::Duration;

use crate::protocol::LeaseId;
use crate::time::Timestamp;

/// The backoff while the store does not answer: the first pause and the longest.
pub(super) const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Returns the first and the longest pause between attempts that each wait for `patience`. No pause is longer
/// than an attempt. With a wide drift margin, `not_after` is early by a part of the pause, so after a longer
/// pause each attempt would arrive too late.
pub(super) fn retry(patience: Duration) -> (Duration, Duration) {
    (RETRY.0, patience.clamp(RETRY.0, RETRY.1))
}

/// The time of the next attempt and the number of failures in a row.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    pub(super) next: Timestamp,
    pub(super) failures: u32,
}

impl Pace {
    pub(super) fn due_at(next: Timestamp) -> Self {
        Self { next, failures: 0 }
    }

    /// Backs off: the first retry comes after about `base`, and each later one after twice the pause before,
    /// up to `most`.
    pub(super) fn back_off(
        &mut self,
        now: Timestamp,
        (base, most): (Duration, Duration),
        seed: LeaseId,
    ) {
        let wait = base.saturating_mul(1 << self.failures.min(16)).min(most);
        self.failures = self.failures.saturating_add(1);
        self.next = now + jitter(wait, seed, self.failures);
    }
}

/// Returns 85 to 100 % of a duration. `round` varies the result.
fn jitter(duration: Duration, seed: LeaseId, round: u32) -> Duration {
    let [high, low] =
        [seed.0 >> 64, seed.0].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0));
    let mixed = mix(high ^ low ^ u64::from(round));
    let parts = 850 + u32::try_from(mixed % 151).unwrap_or(0);
    duration / 1_000 * parts
}

/// Returns 85 to 100 % of a duration as [`jitter`] does. The time `now` varies the result.
pub(super) fn jitter_at(duration: Duration, seed: LeaseId, now: Timestamp) -> Duration {
    let round = u32::try_from(now.as_nanos() % u64::from(u32::MAX)).unwrap_or(0);
    jitter(duration, seed, round)
}

/// The finalizer of `SplitMix64` (Steele, Lea and Flood, 2014).
pub(super) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::{Anchor, Margin};
    use crate::time::ServerTime;

    #[test]
    fn jitter_spreads_over_the_last_15_percent() {
        let whole = Duration::from_secs(10);
        let times: Vec<_> = (0..1_000).map(|i| jitter(whole, LeaseId(77), i)).collect();
        assert!(
            times
                .iter()
                .all(|time| *time >= whole * 85 / 100 && *time <= whole)
        );
        assert!(times.iter().any(|time| *time < whole * 88 / 100));
        assert!(times.iter().any(|time| *time > whole * 96 / 100));
    }

    /// Catches an attempt that the server refuses as too late, because its `not_after` comes from a reply
    /// before the pause.
    #[test]
    fn no_pause_makes_the_next_attempt_late() {
        for millis in [60, 150, 1_000, 2_000, 60_000] {
            let patience = Duration::from_millis(millis);
            let (_, longest) = retry(patience);
            let received = Timestamp::from_nanos(5_000_000_000);
            let anchor = Anchor::new(ServerTime::from_millis(9_000), received, received);
            let sent = received + longest;
            let bound = anchor.not_after(sent + patience, Margin::MOST);
            assert!(
                bound > ServerTime::from_millis(9_000) + longest,
                "{patience:?}"
            );
        }
    }

    #[test]
    fn backing_off_doubles_up_to_a_limit() {
        let mut pace = Pace::due_at(Timestamp::from_nanos(0));
        let mut waits = Vec::new();
        for _ in 0..40 {
            let (base, most) = (Duration::from_millis(50), Duration::from_secs(1));
            pace.back_off(Timestamp::from_nanos(0), (base, most), LeaseId(1));
            waits.push(pace.next.since(Timestamp::from_nanos(0)));
        }
        assert!(waits[0] >= Duration::from_millis(40) && waits[0] <= Duration::from_millis(50));
        assert!(waits[1] >= Duration::from_millis(80) && waits[1] <= Duration::from_millis(100));
        assert!(waits[39] >= Duration::from_millis(800) && waits[39] <= Duration::from_secs(1));
    }
}
