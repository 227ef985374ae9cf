//! The line of waiters, on the client's side: the terms of an acquisition, and the times of its requests.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::engine::pace::jitter_at;
use crate::engine::spec::LockSpec;
use crate::protocol::{Claim, ClientId, LeaseId};
use crate::time::Timestamp;

/// The bounds of the interval at which a waiter confirms its place in line, which is half of the lock's
/// time to live.
pub(super) const FASTEST_HEARTBEAT: Duration = Duration::from_secs(1);
const SLOWEST_HEARTBEAT: Duration = Duration::from_secs(5);

/// The extra delay per place when waiters ask because the holder's lease should have expired. If the first
/// waiters are dead, the next few take over, and the many behind them need not ask at all.
const STAGGER: Duration = Duration::from_millis(100);

pub(super) fn heartbeat(ttl: Duration) -> Duration {
    (ttl / 2).clamp(FASTEST_HEARTBEAT, SLOWEST_HEARTBEAT)
}

/// Returns how long a place in line lasts without a heartbeat: two heartbeats may fail. Half of it is
/// longer than one heartbeat, because a grant that nobody hears is valid for that half.
pub(super) fn window(ttl: Duration) -> Duration {
    heartbeat(ttl) * 12 / 5
}

/// Returns the least time that a pushed grant promises. The store does not know who heard the push.
pub(super) fn promised(ttl: Duration) -> Duration {
    ttl.min(window(ttl) / 2)
}

impl LockSpec {
    /// Returns the claim of an acquisition of this lock.
    pub(super) fn claim(&self, client: ClientId, lease: LeaseId) -> Claim {
        Claim {
            lease,
            client,
            owner: self.owner.clone(),
            counter: self.counter,
            ttl: self.ttl,
            window: window(self.ttl),
        }
    }
}

/// Returns when a waiter that knows its place asks again. `hears` is true if the waiter would hear of a
/// grant.
pub(super) fn next_ask(
    now: Timestamp,
    (ttl, lease): (Duration, LeaseId),
    hears: bool,
    at_expiry: Option<Timestamp>,
    place: Option<NonZeroU32>,
) -> Timestamp {
    let pause = if hears {
        heartbeat(ttl)
    } else {
        FASTEST_HEARTBEAT
    };
    let heartbeat = now + jitter_at(pause, lease, now);
    let ahead = place.map_or(0, |place| place.get() - 1);
    let turn = at_expiry.map_or(Timestamp::NEVER, |at| at + STAGGER * ahead);
    heartbeat.min(turn)
}
