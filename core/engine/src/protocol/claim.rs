//! Who asks for a lock, and how the store knows them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::limits;
use super::wire::Writer;
use crate::error::Error;
use crate::name::Owner;
use crate::time::YEAR;

/// 128 random bits, new for each acquisition: they make a retry of it idempotent.
///
/// Printed as 32 hexadecimal digits, which is also its form in the store.
// As a number of 128 bits it would make all that has it a multiple of 16 bytes long.
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

/// The first 16 digits of a lease id, which are no secret: a push names its lease by them. The
/// others are known to the store and to who made it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HalfId(pub u64);

impl LeaseId {
    /// The half of it that anybody may know.
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
    /// The first bit of those that listen at shards.
    const AT_SHARDS: u64 = 1 << (u64::BITS - 1);

    /// The id of a client that hears pushes on its [channel](super::channel) alone, of random bits.
    #[must_use]
    pub fn new(random: u64) -> Self {
        Self(random & !Self::AT_SHARDS)
    }

    /// The id of a client at a cluster that also hears pushes on the [channels of locks](super::shard_channel).
    /// The script publishes there first, and to the whole cluster only if nobody heard that.
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

/// How a name's tokens are counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Lifted to the server's clock: grows even if the store loses its data. The counter is kept
    /// this long after its last use, or for ever if it counted densely before.
    ClockFloor {
        /// How long, at least a millisecond.
        retention: Duration,
    },
    /// 1, 2, 3, …: the counter never expires, and tokens fall back if the store loses it.
    Dense,
}

impl Counter {
    /// Whether the key of a tenure of this time to live is kept as is common.
    pub(super) fn is_common(self, ttl: Duration) -> bool {
        let least = Duration::from_millis(limits::LEAST_PLAIN_RETENTION_MS);
        match self {
            Self::ClockFloor { retention } => {
                retention >= least && ttl <= Duration::from_millis(limits::MOST_PLAIN_TTL_MS)
            }
            Self::Dense => true,
        }
    }

    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the retention is not from 1 s to a year.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Self::ClockFloor { retention } => {
                Error::check_range("token_retention", retention, Duration::from_secs(1), YEAR)
            }
            Self::Dense => Ok(()),
        }
    }
}

/// Who asks for a lock, and how it gets it: what a place in line consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The acquisition.
    pub lease: LeaseId,
    /// The locker that asks, and that gets the push when the lock is granted.
    pub client: ClientId,
    /// The holder as others see it.
    pub owner: Owner,
    /// How the token is made.
    pub counter: Counter,
    /// How long the lock is held unless it is renewed; whole milliseconds count.
    pub ttl: Duration,
    /// How long it counts as alive after it asked, and how long it has to take up a lock that was
    /// granted to it: the push promises it half of this, and it has the whole if somebody heard the
    /// push. Whole milliseconds count, up to [`LONGEST_WINDOW`](Self::LONGEST_WINDOW).
    pub window: Duration,
}

impl Claim {
    /// No claim holds up those behind it for longer.
    pub const LONGEST_WINDOW: Duration = Duration::from_millis(limits::LONGEST_WINDOW_MS);

    /// Whether the store takes both for one: it counts whole milliseconds.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.lease == other.lease && self.to_string() == other.to_string()
    }
}

/// The claim as the store has it.
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
