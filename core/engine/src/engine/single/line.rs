//! Waiting in line: what an acquisition asks with, and when it asks again.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::engine::io::LockSpec;
use crate::engine::pace::jitter_at;
use crate::protocol::{Claim, ClientId, LeaseId};
use crate::time::Timestamp;

/// How often a place in line is confirmed: half of the lock's time to live, within these bounds.
pub(super) const FASTEST_HEARTBEAT: Duration = Duration::from_secs(1);
const SLOWEST_HEARTBEAT: Duration = Duration::from_secs(5);

/// Those behind the first ask so much later each when the holder's lease should be over, so that
/// the first few do if it is dead too, and the many do not at all.
const STAGGER: Duration = Duration::from_millis(100);

pub(super) fn heartbeat(ttl: Duration) -> Duration {
    (ttl / 2).clamp(FASTEST_HEARTBEAT, SLOWEST_HEARTBEAT)
}

/// Two heartbeats may fail before a place in line is lost. Half of it is longer than one, because a
/// grant of which nobody hears is good for that.
pub(super) fn window(ttl: Duration) -> Duration {
    heartbeat(ttl) * 12 / 5
}

/// What a grant that is pushed promises at the least: the store does not know who heard of it.
pub(super) fn promised(ttl: Duration) -> Duration {
    ttl.min(window(ttl) / 2)
}

impl LockSpec {
    /// What an acquisition of this lock asks with.
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

/// When a waiter that knows its place asks again. `hears` is whether it would hear of a grant.
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
