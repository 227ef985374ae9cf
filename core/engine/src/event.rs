//! Lease events.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::error::Error;
use crate::name::Name;
use crate::time::{MILLIS, in_parts};
use crate::token::FencingToken;

/// An event of a lock of this locker, or of the locker itself.
///
/// In JSON an event is an object with a `type` in camel case. Durations are whole milliseconds, rounded down.
///
/// ```
/// # use leasehold_engine as leasehold;
/// use leasehold::{FencingToken, LeaseEvent, LossReason, Name};
///
/// let event = LeaseEvent::Lost {
///     name: Name::new("orders/42")?,
///     token: FencingToken::new(34)?,
///     reason: LossReason::Deleted,
/// };
/// assert_eq!(
///     serde_json::to_string(&event).unwrap(),
///     r#"{"type":"lost","name":"orders/42","token":34,"reason":"deleted"}"#,
/// );
/// # Ok::<(), leasehold::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum LeaseEvent {
    /// Another client holds the lock, and a caller waits in line for it.
    ///
    /// Emitted when the caller joins the line, and when one of its heartbeats, every 1 to 5 s, finds its
    /// position changed.
    Waiting {
        /// The lock.
        name: Name,
        /// The position in line, from 1. Absent where the store keeps no line.
        #[serde(skip_serializing_if = "Option::is_none")]
        position: Option<u32>,
    },
    /// The lock is held, or was held already when this reader started.
    ///
    /// A lock that was handed over has 6 s or less remaining at first, and is renewed at once.
    Acquired {
        /// The lock.
        name: Name,
        /// The tenure's fencing token.
        token: FencingToken,
        /// The time until the deadline.
        #[serde(serialize_with = "as_millis")]
        remaining: Duration,
    },
    /// A turn of a job has begun: this runner has the tick.
    ///
    /// Follows the `Acquired` of its lease.
    Begun {
        /// The job.
        name: Name,
        /// The turn's fencing token.
        token: FencingToken,
        /// The tick.
        tick: u64,
    },
    /// Ticks of a job's schedule were missed: nobody completed them before the tick of this turn.
    ///
    /// Follows the `Begun` of a turn that the runner of a schedule gets, if there are any. If that turn does not
    /// complete its tick, the next runner of the tick finds and emits them, too.
    Missed {
        /// The job.
        name: Name,
        /// The turn's fencing token.
        token: FencingToken,
        /// The first missed tick.
        first: u64,
        /// The number of missed ticks; at most 10,000 for a cron text.
        ticks: u64,
    },
    /// A shared name has another capacity than this locker's handle asks for. The name's capacity is in force.
    ///
    /// Follows the `Acquired` of its lease. It is normal while a deployment changes the capacity.
    CapacityDiffers {
        /// The semaphore or quota.
        name: Name,
        /// The permit's fencing token.
        token: FencingToken,
        /// The capacity of the name.
        capacity: u32,
        /// The capacity that the handle asks for.
        wanted: u32,
    },
    /// A turn has completed its tick, and the store confirmed it.
    ///
    /// The `Released` of its lease follows.
    Completed {
        /// The job.
        name: Name,
        /// The turn's fencing token.
        token: FencingToken,
        /// The tick.
        tick: u64,
    },
    /// The lease was extended.
    Renewed {
        /// The lock.
        name: Name,
        /// The tenure's fencing token.
        token: FencingToken,
        /// The time until the new deadline.
        #[serde(serialize_with = "as_millis")]
        remaining: Duration,
    },
    /// A renewal failed, or the store cannot be reached. Time remains, and the locker retries.
    ///
    /// Also emitted once, with [`ErrorKind::Overheld`](crate::ErrorKind::Overheld), when the deadline has
    /// reached the age that `at_most` allows. The lease is not renewed any more.
    AtRisk {
        /// The lock.
        name: Name,
        /// The tenure's fencing token.
        token: FencingToken,
        /// The time until the deadline.
        #[serde(serialize_with = "as_millis")]
        remaining: Duration,
        /// The failure; in JSON its code and message.
        #[serde(serialize_with = "Error::in_event")]
        error: Error,
    },
    /// Somebody asked the holder to release the lock soon: `Locker::request_yield`.
    ///
    /// Emitted once for each request: at once if this locker hears pushes, otherwise at its next renewal. The
    /// lease goes on; whether it ends early is up to the holder.
    Wanted {
        /// The lock.
        name: Name,
        /// The tenure's fencing token.
        token: FencingToken,
        /// The owner or label of the locker that asked.
        by: Box<str>,
        /// The time that is left to release the lock. Zero if the request was heard too late.
        #[serde(serialize_with = "as_millis")]
        within: Duration,
    },
    /// The lease ended without a confirmed release. The holder must not act under it any more.
    ///
    /// It was lost, or the store did not confirm its release before the deadline.
    Lost {
        /// The lock.
        name: Name,
        /// The tenure's fencing token.
        token: FencingToken,
        /// Why the lease was lost.
        reason: LossReason,
    },
    /// The holder released the lock, and the store confirmed it.
    Released {
        /// The lock.
        name: Name,
        /// The tenure's fencing token.
        token: FencingToken,
    },
    /// The holder passed the lease on: `Lease::pass`. The lock stays held at the store, for whoever accepts the
    /// ticket.
    Passed {
        /// The lock.
        name: Name,
        /// The tenure's fencing token.
        token: FencingToken,
    },
    /// The store's clock and this machine's run at rates that differ by more than the drift margin
    /// (`Builder::drift_margin`).
    ///
    /// One of them is being steered, for example slewed, or is wrong. The margin is wider from now on, and
    /// never shrinks while the locker lives. The locker checks all held leases with the store at once. Until
    /// the store replies, and for fixed leases, a deadline may be later than the expiry at the store. Only
    /// readers of all locks get this event, each time the margin grows.
    ClockDrift {
        /// The margin from now on, in parts per million.
        #[serde(rename = "driftMargin")]
        drift_margin: u32,
    },
    /// A server of a quorum may have forgotten locks: it restarted, was flushed, or was replaced.
    ///
    /// It does not vote on new leases until none is left that it may have forgotten. Leases that it has go
    /// on. Only readers of all locks get this event.
    Quarantined {
        /// The server's place in the list, from 1.
        server: u32,
        /// The time until it votes again.
        #[serde(serialize_with = "as_millis")]
        remaining: Duration,
    },
    /// A quarantined server of a quorum votes again, and again supports the leases of this locker, except
    /// those whose lock another client has there.
    ///
    /// Fixed leases (`Lock::fixed`) that began during the quarantine are over. It is now safe to restart the
    /// next server. Only readers of all locks get this event.
    Readmitted {
        /// The server's place in the list, from 1.
        server: u32,
    },
    /// This reader was too slow and missed events.
    ///
    /// The losses that it has not read follow (the latest 512), and an `Acquired` for each lock that is held
    /// now.
    Lagged {
        /// The number of missed events.
        missed: u64,
    },
}

impl LeaseEvent {
    /// Returns the name of the event's lock; `None` for `ClockDrift`, `Quarantined`, `Readmitted` and
    /// `Lagged`.
    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::Waiting { name, .. }
            | Self::Acquired { name, .. }
            | Self::Renewed { name, .. }
            | Self::AtRisk { name, .. }
            | Self::Wanted { name, .. }
            | Self::Lost { name, .. }
            | Self::Begun { name, .. }
            | Self::Missed { name, .. }
            | Self::Completed { name, .. }
            | Self::CapacityDiffers { name, .. }
            | Self::Passed { name, .. }
            | Self::Released { name, .. } => Some(name),
            Self::ClockDrift { .. }
            | Self::Quarantined { .. }
            | Self::Readmitted { .. }
            | Self::Lagged { .. } => None,
        }
    }

    /// Returns the tenure's token; `None` for `Waiting` and for events that are not about a lock.
    pub fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Acquired { token, .. }
            | Self::Renewed { token, .. }
            | Self::AtRisk { token, .. }
            | Self::Wanted { token, .. }
            | Self::Lost { token, .. }
            | Self::Begun { token, .. }
            | Self::Missed { token, .. }
            | Self::Completed { token, .. }
            | Self::CapacityDiffers { token, .. }
            | Self::Passed { token, .. }
            | Self::Released { token, .. } => Some(*token),
            Self::Waiting { .. }
            | Self::ClockDrift { .. }
            | Self::Quarantined { .. }
            | Self::Readmitted { .. }
            | Self::Lagged { .. } => None,
        }
    }
}

/// Displays the event as one line of English, for logs.
///
/// ```
/// # use leasehold_engine as leasehold;
/// use leasehold::{FencingToken, LeaseEvent, LossReason, Name};
///
/// let (name, token) = (Name::new("orders/42")?, FencingToken::new(34)?);
/// let event = LeaseEvent::Lost { name, token, reason: LossReason::Expired };
/// assert_eq!(event.to_string(), "lock \"orders/42\": the lease with token 34 was lost: it expired");
/// # Ok::<(), leasehold::Error>(())
/// ```
impl std::fmt::Display for LeaseEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = |time: &Duration| Duration::from_millis(in_parts(*time, MILLIS));
        if let Some(name) = self.name() {
            write!(f, "lock {name:?}: ")?;
        }
        if let Some(token) = self.token() {
            write!(f, "the lease with token {token} ")?;
        }
        match self {
            Self::Waiting { position, .. } => match position {
                Some(position) => write!(f, "a caller waits in line at position {position}"),
                None => f.write_str("a caller waits in line"),
            },
            Self::Acquired { remaining, .. } => {
                write!(f, "is held for another {:?}", rounded(remaining))
            }
            Self::Renewed { remaining, .. } => {
                write!(f, "was renewed for {:?}", rounded(remaining))
            }
            Self::AtRisk {
                remaining, error, ..
            } => {
                let remaining = rounded(remaining);
                write!(f, "is at risk, with {remaining:?} remaining: {error}")
            }
            Self::Wanted { by, within, .. } => {
                write!(f, "is wanted by {by:?} within {:?}", rounded(within))
            }
            Self::Lost { reason, .. } => write!(f, "was lost: {reason}"),
            Self::Begun { tick, .. } => write!(f, "has begun tick {tick}"),
            Self::Missed { first, ticks, .. } => {
                write!(f, "has found {ticks} missed ticks, from {first} on")
            }
            Self::Completed { tick, .. } => write!(f, "has completed tick {tick}"),
            Self::CapacityDiffers {
                capacity, wanted, ..
            } => write!(f, "found a capacity of {capacity}, not {wanted}"),
            Self::Released { .. } => f.write_str("was released"),
            Self::Passed { .. } => f.write_str("was passed on"),
            Self::ClockDrift { drift_margin } => write!(
                f,
                "the store's clock and this machine's run at different rates; the drift margin is now \
                 {drift_margin} ppm"
            ),
            Self::Quarantined { server, remaining } => write!(
                f,
                "server {server} of the quorum may have forgotten locks and does not vote for {:?}",
                rounded(remaining)
            ),
            Self::Readmitted { server } => {
                write!(f, "server {server} of the quorum votes again")
            }
            Self::Lagged { missed } => {
                write!(f, "this reader was too slow and missed {missed} events")
            }
        }
    }
}

/// Why a lease was lost.
#[non_exhaustive]
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum LossReason {
    /// The deadline passed without a successful renewal, or the lease was fixed.
    Expired,
    /// The lock's key was gone from the store: deleted, flushed, or lost in a failover.
    ///
    /// Also the reason after a forced release if no push reached the holder.
    Deleted,
    /// Another client holds the lock now, or its key has a value of another kind.
    Superseded,
    /// The lock was force-released by `Locker::force_release`.
    ///
    /// Without a push the reason is `Deleted` or `Superseded`, at the next renewal.
    Revoked,
    /// The locker was shut down.
    Shutdown,
    /// The lease was held for as long as `at_most` allows.
    Overheld,
}

impl LossReason {
    /// All reasons, in the order of their definition.
    #[doc(hidden)]
    pub const ALL: &'static [Self] =
        crate::every::every!(LossReason: Expired, Deleted, Superseded, Revoked, Shutdown, Overheld);

    /// Returns the reason as a short code, as in the JSON of events.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// assert_eq!(leasehold::LossReason::Superseded.code(), "superseded");
    /// ```
    pub fn code(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Superseded => "superseded",
            Self::Revoked => "revoked",
            Self::Shutdown => "shutdown",
            Self::Overheld => "overheld",
        }
    }
}

impl Serialize for LossReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

impl std::fmt::Display for LossReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Expired => "it expired",
            Self::Deleted => "its key was deleted",
            Self::Superseded => "somebody else holds the lock",
            Self::Revoked => "the lock was force-released",
            Self::Shutdown => "the locker was shut down",
            Self::Overheld => "it was held for the longest time allowed",
        })
    }
}

/// Serializes a duration as whole milliseconds, rounded down.
pub(crate) fn as_millis<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(in_parts(*duration, MILLIS))
}

#[cfg(test)]
mod tests;
