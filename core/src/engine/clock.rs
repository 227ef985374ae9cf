//! What one clock says of another: all time arithmetic that exclusion rests on.
//!
//! Take a reply with server time S to a request sent at local time t0 and received at t1. When
//! the server's clock said S, the local clock was between t0 and t1. Nothing is assumed of the
//! clocks' values; only their *rates* may differ by no more than the drift margin.

use std::time::Duration;

use crate::time::{ServerTime, Timestamp};

/// One part in 500, or 2,000 parts per million: clock discipline slews by 500 at most, so two
/// clocks that are steered in opposite directions differ by half of this margin.
const DRIFT_PARTS: u32 = 500;

/// How far two clocks may come apart while this much time passes.
pub(super) fn drift(elapsed: Duration) -> Duration {
    elapsed / DRIFT_PARTS
}

/// The local moment by which a lease with this expiry must be treated as gone: the server's
/// expiry is never earlier.
pub(super) fn deadline(sent: Timestamp, time: ServerTime, expires: ServerTime) -> Timestamp {
    let left = expires.since(time);
    sent + left.saturating_sub(drift(left))
}

/// A moment at which both clocks are known.
#[derive(Copy, Clone, Debug)]
pub(super) struct Anchor {
    server: ServerTime,
    received: Timestamp,
}

impl Anchor {
    pub(super) fn new(server: ServerTime, received: Timestamp) -> Self {
        Self { server, received }
    }

    /// The better of this anchor and a newer one. Both bound the server's clock from below, if it
    /// was not set back in between; the older one says more if the newer answer took its time.
    pub(super) fn refreshed(self, server: ServerTime, sent: Timestamp, now: Timestamp) -> Self {
        let known = self.not_after(now);
        if known > server && known <= server + now.since(sent) {
            return Self::new(known, now);
        }
        Self::new(server, now)
    }

    /// A server time that the server reaches no later than the local clock reaches `at`.
    pub(super) fn not_after(&self, at: Timestamp) -> ServerTime {
        let elapsed = at.since(self.received);
        self.server + elapsed.saturating_sub(drift(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn local(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_deadline_counts_from_before_the_request_and_leaves_a_margin() {
        let time = ServerTime::from_millis(1_700_000_000_000);
        let expires = time + Duration::from_secs(30);
        assert_eq!(deadline(local(1_000), time, expires), local(31_000 - 60));
        assert_eq!(
            deadline(local(1_000), expires, time),
            local(1_000),
            "already over"
        );
    }

    #[test]
    fn not_after_counts_from_the_reply_and_leaves_a_margin() {
        let anchor = Anchor::new(ServerTime::from_millis(9_000), local(500));
        assert_eq!(
            anchor.not_after(local(1_500)),
            ServerTime::from_millis(9_998)
        );
        assert_eq!(anchor.not_after(local(100)), ServerTime::from_millis(9_000));
    }

    /// Whatever the delays and the drift within the margin, the server's clock passes
    /// `not_after` before the local clock passes the moment it was made from, and the deadline
    /// comes before the server's expiry.
    #[test]
    fn both_hold_for_any_delay_and_drift() {
        // The server's clock runs at 1 ± 1/1000 of the local one; it said S at local time `at`.
        for rate in [999_u64, 1_000, 1_001] {
            for (t0, at, t1) in [(0, 0, 0), (0, 0, 900), (0, 900, 900), (0, 450, 900)] {
                let server_start = 5_000_000_000_u64;
                let server_at = |millis: u64| server_start + (millis - at) * rate;
                let anchor = Anchor::new(ServerTime::from_micros(server_start), local(t1));
                let give_up = t1 + 2_000;
                let bound = anchor.not_after(local(give_up));
                assert!(
                    bound.as_micros() <= server_at(give_up),
                    "{rate} {t0} {at} {t1}"
                );

                let expires = ServerTime::from_micros(server_start) + Duration::from_secs(10);
                let deadline = deadline(local(t0), ServerTime::from_micros(server_start), expires);
                let deadline = deadline.as_nanos() / 1_000_000;
                assert!(server_at(deadline.max(at)) <= expires.as_micros());
            }
        }
    }
}
