//! Bounds on a server's clock by the local clock: all time arithmetic that exclusion rests on.
//!
//! Take a reply with server time S to a request sent at local time t0 and received at t1. When the server's
//! clock said S, the local clock was between t0 and t1. Nothing is assumed about the clocks' values. Their
//! *rates* may differ by at most the drift margin; `servers/rates.rs` checks that.

use std::time::Duration;

use crate::limits;
use crate::time::{ServerTime, Timestamp};

/// The greatest difference between the rates of two clocks, in parts per million.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Margin(u32);

impl Margin {
    /// The margin for clock discipline that slews by at most 500 ppm, in opposite directions.
    pub(crate) const LEAST: Self = Self(1_000);
    /// Twice the least margin, or 1 part in 500.
    pub(crate) const DEFAULT: Self = Self(limits::count("driftMargin"));
    /// The margin for slewing by 83,333 ppm, chrony's default, in opposite directions, and half as much
    /// again. With a wider one, a lease would be of little use.
    pub(crate) const MOST: Self = Self(250_000);

    /// Creates a margin, clamped to the bounds.
    pub(crate) fn new(parts_per_million: u32) -> Self {
        Self(parts_per_million).clamp(Self::LEAST, Self::MOST)
    }

    pub(crate) fn parts_per_million(self) -> u32 {
        self.0
    }

    /// Returns how far two clocks may drift apart during this time.
    fn drift(self, elapsed: Duration) -> Duration {
        elapsed.saturating_mul(self.0) / 1_000_000
    }

    /// Returns the local deadline of a lease with this expiry. The server's expiry is never earlier.
    pub(crate) fn deadline(
        self,
        sent: Timestamp,
        time: ServerTime,
        expires: ServerTime,
    ) -> Timestamp {
        let left = expires.since(time);
        sent + left.saturating_sub(self.drift(left))
    }

    /// Returns the least time to live to ask the server for. It is `wanted`, unless that could expire by the
    /// server's clock before `left` has passed by the local one: then it is longer, to keep what the holder
    /// was promised. The holder may still count on no more than `wanted`.
    pub(crate) fn covering(self, left: Duration, wanted: Duration) -> Duration {
        if wanted.saturating_sub(self.drift(wanted)) >= left {
            return wanted;
        }
        self.outlasting(left)
    }

    /// Returns a time to live that does not expire by the server's clock before `left` has passed by the local
    /// one.
    pub(crate) fn outlasting(self, left: Duration) -> Duration {
        left + self.drift(left) * 2 + Duration::from_millis(1)
    }
}

/// Bounds on a server's clock from both sides, each known at some time.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Anchor {
    /// The least time of the server's clock when the local clock said `received`.
    server: ServerTime,
    received: Timestamp,
    /// The least local time when the server's clock said `answered`.
    sent: Timestamp,
    answered: ServerTime,
}

impl Anchor {
    pub(crate) fn new(server: ServerTime, sent: Timestamp, received: Timestamp) -> Self {
        Self {
            server,
            received,
            sent,
            answered: server,
        }
    }

    /// Returns an anchor with the better of the old and the new value for each bound. The older bound is the
    /// tighter one if the newer reply was slow. It is dropped if the server's clock was set since.
    pub(crate) fn refreshed(
        self,
        server: ServerTime,
        (sent, now): (Timestamp, Timestamp),
        margin: Margin,
    ) -> Self {
        let mut fresh = Self::new(server, sent, now);
        let known = self.not_after(now, margin);
        if known > server && known <= server + now.since(sent) {
            fresh.server = known;
        }
        let known = self.not_before(server, margin);
        if known > sent && known <= now {
            fresh.sent = known;
        }
        fresh
    }

    /// Returns a time that the server's clock reaches no later than the local clock reaches `at`.
    pub(crate) fn not_after(&self, at: Timestamp, margin: Margin) -> ServerTime {
        let elapsed = at.since(self.received);
        self.server + elapsed.saturating_sub(margin.drift(elapsed))
    }

    /// Returns about what the server's clock says when a request that leaves at this time arrives.
    pub(crate) fn about(&self, at: Timestamp) -> ServerTime {
        self.answered + at.since(self.sent)
    }

    /// Returns a local time no later than the one at which the server's clock said `time`.
    pub(crate) fn not_before(&self, time: ServerTime, margin: Margin) -> Timestamp {
        let later = time.since(self.answered);
        let earlier = self.answered.since(time);
        self.sent + later.saturating_sub(margin.drift(later)) - (earlier + margin.drift(earlier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: Margin = Margin::DEFAULT;

    const fn local(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_deadline_counts_from_before_the_request_and_leaves_a_margin() {
        let time = ServerTime::from_millis(1_700_000_000_000);
        let expires = time + Duration::from_secs(30);
        assert_eq!(
            MARGIN.deadline(local(1_000), time, expires),
            local(31_000 - 60)
        );
        assert_eq!(
            MARGIN.deadline(local(1_000), expires, time),
            local(1_000),
            "the lease is already over"
        );
    }

    #[test]
    fn not_after_counts_from_the_reply_and_leaves_a_margin() {
        let anchor = Anchor::new(ServerTime::from_millis(9_000), local(400), local(500));
        assert_eq!(
            anchor.not_after(local(1_500), MARGIN),
            ServerTime::from_millis(9_998)
        );
        assert_eq!(
            anchor.not_after(local(100), MARGIN),
            ServerTime::from_millis(9_000)
        );
    }

    /// For all delays and all drift within the margin: the server's clock passes `not_after` before the local
    /// clock passes the time it was made from. The deadline comes before the server's expiry.
    #[test]
    fn both_bounds_hold_for_any_delay_and_drift() {
        // The server's clock runs at 1 ± 1/1000 of the local one. It said S at local time `at`.
        for rate in [999_u64, 1_000, 1_001] {
            for (t0, at, t1) in [(0, 0, 0), (0, 0, 900), (0, 900, 900), (0, 450, 900)] {
                let server_start = 5_000_000_000_u64;
                let server_at = |millis: u64| server_start + (millis - at) * rate;
                let server = ServerTime::from_micros(server_start);
                let anchor = Anchor::new(server, local(t0), local(t1));
                let give_up = t1 + 2_000;
                let bound = anchor.not_after(local(give_up), MARGIN);
                assert!(
                    bound.as_micros() <= server_at(give_up),
                    "{rate} {t0} {at} {t1}"
                );

                // Events at the server whose times later or earlier replies report.
                for millis in [at, at + 1_500] {
                    let time = ServerTime::from_micros(server_at(millis));
                    assert!(anchor.not_before(time, MARGIN) <= local(millis));
                    let before = ServerTime::from_micros(server_start - millis * rate);
                    assert!(anchor.not_before(before, MARGIN) <= local(at.saturating_sub(millis)));
                }

                let expires = ServerTime::from_micros(server_start) + Duration::from_secs(10);
                let deadline =
                    MARGIN.deadline(local(t0), ServerTime::from_micros(server_start), expires);
                let deadline = deadline.as_nanos() / 1_000_000;
                assert!(server_at(deadline.max(at)) <= expires.as_micros());
            }
        }
    }

    /// The store counts whole milliseconds of the time that it is asked for, by a clock that may be fast.
    #[test]
    fn the_time_to_ask_for_covers_what_is_left() {
        for margin in [Margin::LEAST, MARGIN, Margin::MOST] {
            for left in [0, 999, 9_970_000, 9_990_000, 10_000_000, 60_000_000] {
                let left = Duration::from_micros(left);
                for wanted in [Duration::ZERO, Duration::from_secs(10)] {
                    let asked = margin.covering(left, wanted);
                    let kept = Duration::from_millis(asked.as_millis().try_into().expect("small"));
                    assert!(kept.saturating_sub(margin.drift(kept)) >= left && asked >= wanted);
                }
            }
        }
    }

    const fn server(millis: u64) -> ServerTime {
        ServerTime::from_millis(millis)
    }

    /// A request that took long to arrive says little of when the server answered it. A reply that took long
    /// to return says little of the server's time now. The older reply gives better bounds on both.
    #[test]
    fn a_slow_answer_does_not_undo_the_bounds_of_a_quick_one() {
        let quick = Anchor::new(server(10_000), local(1_000), local(1_000));
        let slow_there = quick.refreshed(server(12_000), (local(2_000), local(3_000)), MARGIN);
        assert_eq!(
            slow_there.not_before(server(12_000), MARGIN),
            local(3_000 - 4)
        );
        assert_eq!(slow_there.not_after(local(3_000), MARGIN), server(12_000));
        let slow_back = quick.refreshed(server(11_000), (local(2_000), local(3_000)), MARGIN);
        assert_eq!(slow_back.not_before(server(11_000), MARGIN), local(2_000));
        assert_eq!(
            slow_back.not_after(local(3_000), MARGIN),
            server(12_000 - 4)
        );
        // A bound that is kept grows looser as it ages.
        let slower = slow_there.refreshed(server(22_000), (local(4_000), local(13_000)), MARGIN);
        assert_eq!(
            slower.not_before(server(22_000), MARGIN),
            local(13_000 - 4 - 20),
            "the bound is still that of the quick answer"
        );
    }

    #[test]
    fn a_quick_answer_is_better_than_an_old_one() {
        let old = Anchor::new(server(10_000), local(900), local(1_100));
        let fresh = old.refreshed(server(110_000), (local(101_000), local(101_000)), MARGIN);
        assert_eq!(fresh.not_before(server(110_000), MARGIN), local(101_000));
        assert_eq!(fresh.not_after(local(101_000), MARGIN), server(110_000));
    }

    /// Catches an anchor that trusts a clock which was set, and takes a grant of now for one of an hour ago
    /// or ahead.
    #[test]
    fn the_bounds_on_a_clock_that_was_set_are_forgotten() {
        let hour = 3_600_000;
        for before in [10 * hour, 0] {
            let old = Anchor::new(server(5 * hour + before), local(1_000), local(1_000));
            let now = server(10 * hour + 2_000);
            let fresh = old.refreshed(now, (local(2_000), local(3_000)), MARGIN);
            assert_eq!(fresh.not_before(now, MARGIN), local(2_000));
            assert_eq!(fresh.not_after(local(3_000), MARGIN), now);
        }
    }

    /// After any replies, with any delays and drift within the margin, both bounds hold and are no looser
    /// than those of the last reply alone.
    #[test]
    fn the_bounds_hold_however_often_they_are_refreshed() {
        let start = 5_000_000_000_u64;
        for rate in [999_u64, 1_000, 1_001] {
            let server_at = |millis: u64| ServerTime::from_micros(start + millis * rate);
            let mut seed = rate;
            let mut random = |below: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) % below
            };
            let mut now = 0;
            let mut anchor = Anchor::new(server_at(0), local(0), local(0));
            for _ in 0..1_000 {
                let sent = now + random(3_000);
                let at = sent + random(2) * random(1_500);
                now = at + random(2) * random(1_500);
                anchor = anchor.refreshed(server_at(at), (local(sent), local(now)), MARGIN);
                let alone = Anchor::new(server_at(at), local(sent), local(now));
                let later = now + random(60_000);
                let (after, before) = (anchor.not_after(local(later), MARGIN), server_at(later));
                assert!(after <= before && after >= alone.not_after(local(later), MARGIN));
                for happened in [at, later, at.saturating_sub(random(10_000))] {
                    let (time, local) = (server_at(happened), local(happened));
                    let bound = anchor.not_before(time, MARGIN);
                    assert!(bound <= local, "{rate}: {bound:?} and {local:?}");
                    assert!(bound >= alone.not_before(time, MARGIN));
                }
            }
        }
    }
}
