//! A host's monotonic clock and a server's wall clock, which are never compared.

use std::time::Duration;

/// The longest time that a setting accepts: 366 days.
pub(crate) const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Parts of a second.
pub(crate) const MILLIS: u32 = 1_000;
pub(crate) const MICROS: u32 = 1_000_000;
const NANOS: u32 = 1_000_000_000;

/// Returns the number of whole parts of a second in a duration, saturating after some centuries of
/// nanoseconds.
///
/// In 64 bits, because WebAssembly calls a function for each larger product.
pub(crate) const fn in_parts(duration: Duration, parts: u32) -> u64 {
    let (seconds, parts) = (duration.as_secs(), parts as u64);
    if seconds >= u64::MAX / NANOS as u64 {
        return u64::MAX;
    }
    seconds * parts + duration.subsec_nanos() as u64 / (NANOS as u64 / parts)
}

/// A moment on the host's monotonic clock: nanoseconds from an origin that the host chooses.
///
/// ```
/// use std::time::Duration;
/// use leasehold_engine::time::Timestamp;
///
/// let start = Timestamp::from_nanos(5);
/// let later = start + Duration::from_nanos(7);
/// assert_eq!(later.since(start), Duration::from_nanos(7));
/// assert_eq!(start.since(later), Duration::ZERO);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment that never comes.
    pub const NEVER: Timestamp = Timestamp(u64::MAX);

    /// Makes a moment from nanoseconds since the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since an earlier moment; zero if it is not earlier.
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at [`Timestamp::NEVER`].
impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(in_parts(duration, NANOS)))
    }
}

/// Saturates at the origin.
impl std::ops::Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(in_parts(duration, NANOS)))
    }
}

/// A moment on a server's wall clock: microseconds since 1970.
///
/// ```
/// use std::time::Duration;
/// use leasehold_engine::time::ServerTime;
///
/// let now = ServerTime::from_micros(1_000_500);
/// assert_eq!(now.millis(), 1_000);
/// assert_eq!((now + Duration::from_millis(2)).as_micros(), 1_002_500);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerTime(u64);

impl ServerTime {
    /// Makes a moment from microseconds since 1970.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Makes a moment from milliseconds since 1970.
    pub const fn from_millis(millis: u64) -> Self {
        // Not by `saturating_mul`, whose product WebAssembly computes in 128 bits.
        Self(if millis < u64::MAX / 1_000 {
            millis * 1_000
        } else {
            u64::MAX
        })
    }

    /// Returns microseconds since 1970.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns whole milliseconds since 1970, the unit of expiries in Redis.
    pub const fn millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the time since an earlier moment; zero if it is not earlier.
    pub const fn since(self, earlier: ServerTime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at the latest moment.
impl std::ops::Add<Duration> for ServerTime {
    type Output = ServerTime;

    fn add(self, duration: Duration) -> ServerTime {
        ServerTime(self.0.saturating_add(in_parts(duration, MICROS)))
    }
}
