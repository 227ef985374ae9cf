//! A claim on a lock: the IDs, options and owner of one acquisition.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::limits;
use super::wire::Writer;
use crate::error::Error;
use crate::name::Owner;
use crate::time::YEAR;

/// A lease ID: 128 random bits, new for each acquisition. It makes retries of the acquisition idempotent.
///
/// Printed as 32 hexadecimal digits, which is also its form in the store.
// `packed`, because the alignment of a `u128` would pad every struct that contains one to a multiple of 16
// bytes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(Rust, packed(8))]
pub struct LeaseId(pub u128);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", { self.0 })
    }
}

impl FromStr for LeaseId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({self})")
    }
}

/// The first 16 digits of a lease ID, which are public: a push names its lease by them. Only the store and
/// the client that made the ID know the other digits.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HalfId(pub u64);

impl LeaseId {
    /// Returns the public half of the ID.
    pub fn half(self) -> HalfId {
        HalfId(u64::try_from(self.0 >> 64).unwrap_or(0))
    }
}

impl fmt::Display for HalfId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for HalfId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HalfId({self})")
    }
}

/// 64 random bits that tell one locker from every other.
///
/// Printed as 16 hexadecimal digits, which is also its form in the store.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The highest bit, set in the IDs of clients that subscribe to shard channels.
    const AT_SHARDS: u64 = 1 << (u64::BITS - 1);

    /// Makes an ID from random bits, for a client that receives pushes only on its [channel](super::channel).
    #[must_use]
    pub fn new(random: u64) -> Self {
        Self(random & !Self::AT_SHARDS)
    }

    /// Makes an ID from random bits, for a cluster client that also receives pushes on the [channels of
    /// locks](super::shard_channel). The script publishes there first, and to the whole
    /// cluster only if no subscriber received that.
    #[must_use]
    pub fn at_shards(random: u64) -> Self {
        Self(random | Self::AT_SHARDS)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

/// How the tokens of a name are counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Tokens follow the server's clock, so they grow even if the store loses its data. The counter is kept
    /// for the retention after its last use. It never expires if the name ever had dense tokens.
    ClockFloor {
        /// How long the counter is kept; at least one millisecond.
        retention: Duration,
    },
    /// Tokens are 1, 2, 3, …. The counter never expires, and tokens start again if the store loses it.
    Dense,
}

impl Counter {
    /// Returns true if the script's common case handles the expiry of the key of a tenure with this time to
    /// live.
    pub(super) fn is_common(self, ttl: Duration) -> bool {
        let least = Duration::from_millis(limits::LEAST_PLAIN_RETENTION_MS);
        match self {
            Self::ClockFloor { retention } => {
                retention >= least && ttl <= Duration::from_millis(limits::MOST_PLAIN_TTL_MS)
            }
            Self::Dense => true,
        }
    }

    /// Returns [`ErrorKind::Config`](crate::ErrorKind::Config) if the retention is not from 1 s to a year.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Self::ClockFloor { retention } => {
                Error::check_range("token_retention", retention, Duration::from_secs(1), YEAR)
            }
            Self::Dense => Ok(()),
        }
    }
}

/// One acquisition's request for a lock. The line of waiters stores it as its entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The ID of the acquisition.
    pub lease: LeaseId,
    /// The locker that asks. It gets the push when the lock is granted.
    pub client: ClientId,
    /// The holder's owner or label, as others see it.
    pub owner: Owner,
    /// How tokens are counted, and how long the counter is kept.
    pub counter: Counter,
    /// How long the lock is held unless it is renewed, in whole milliseconds.
    pub ttl: Duration,
    /// How long a waiter counts as alive after each request, and how long it has to confirm a granted lock. A
    /// push promises half of this; the waiter has all of it if a subscriber received the push. In whole
    /// milliseconds, up to [`LONGEST_WINDOW`](Self::LONGEST_WINDOW).
    pub window: Duration,
}

impl Claim {
    /// The longest window: no waiter delays those behind it for longer.
    pub const LONGEST_WINDOW: Duration = Duration::from_millis(limits::LONGEST_WINDOW_MS);

    /// Returns true if the store would treat both claims as one. The store truncates times to whole
    /// milliseconds.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.lease == other.lease && self.to_string() == other.to_string()
    }
}

/// Formats the claim as the store has it.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        let mut writer = Writer(&mut text);
        writer.millis(self.ttl);
        writer.terms(self);
        writer.lease(self.lease);
        writer.who(self);
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::claim_for;

    #[test]
    fn the_highest_bit_of_a_client_tells_where_it_subscribes() {
        for random in [0, 5, u64::MAX] {
            assert_eq!(ClientId::new(random).0, random & (u64::MAX >> 1));
            assert_eq!(ClientId::at_shards(random).0, random | 1 << 63);
        }
    }

    #[test]
    fn counters_are_kept_for_a_second_to_a_year() {
        let second = Duration::from_secs(1);
        for (retention, is_valid) in [
            (Duration::ZERO, false),
            (Duration::from_nanos(999_999_999), false),
            (second, true),
            (YEAR, true),
            (YEAR + second, false),
        ] {
            let checked = Counter::ClockFloor { retention }.check();
            assert_eq!(checked.is_ok(), is_valid, "{retention:?}: {checked:?}");
        }
        assert_eq!(Counter::Dense.check(), Ok(()));
    }

    /// Catches a counter whose key expires before its tenure, or sooner than it should.
    #[test]
    fn the_common_case_is_for_long_retentions_and_short_tenures() {
        let hour = Duration::from_secs(3_600);
        for (retention, ttl, is_common) in [
            (hour, hour, true),
            (Duration::from_secs(3_599), hour, false),
            (YEAR, Duration::from_secs(3_601), false),
        ] {
            let counter = Counter::ClockFloor { retention };
            assert_eq!(counter.is_common(ttl), is_common, "{retention:?} {ttl:?}");
        }
        assert!(Counter::Dense.is_common(YEAR));
    }

    #[test]
    fn claims_are_the_same_to_the_millisecond() {
        let claim = claim_for(Duration::from_secs(1));
        let ttl = claim.ttl + Duration::from_micros(999);
        assert!(claim.is_same(&Claim {
            ttl,
            ..claim.clone()
        }));
        let ttl = claim.ttl + Duration::from_millis(1);
        assert!(!claim.is_same(&Claim {
            ttl,
            ..claim.clone()
        }));
        let lease = LeaseId(8);
        assert!(!claim.is_same(&Claim {
            lease,
            ..claim.clone()
        }));
    }
}
