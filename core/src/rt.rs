//! Platform differences: clocks, randomness, the machine's name.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_engine::time::{ServerTime, Timestamp};
use leasehold_engine::{Error, ErrorKind, Owner};

/// Returns the time of the monotonic clock. It counts through the machine's sleep, so leases that expired
/// meanwhile are found lost.
#[cfg(unix)]
pub(crate) fn now() -> Timestamp {
    use rustix::time::{ClockId, clock_gettime};

    // CLOCK_MONOTONIC counts through sleep on Apple's systems and the BSDs, but not on Linux.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Timestamp::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Returns the time of the monotonic clock. `QueryPerformanceCounter` counts through sleep.
#[cfg(not(unix))]
pub(crate) fn now() -> Timestamp {
    use std::sync::LazyLock;
    use std::time::Instant;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    Timestamp::from_nanos(0) + ORIGIN.elapsed()
}

/// Returns the time of the wall clock.
pub(crate) fn wall_clock() -> ServerTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    ServerTime::from_micros(0) + since
}

/// Returns random bits from the operating system.
pub(crate) fn random_bits() -> Result<u128, Error> {
    RandomSource::default().bits()
}

/// Random bits from the operating system, drawn many at once: a draw costs as much as everything else that
/// happens before an acquisition is sent. Each locker has its own, so a source never crosses processes.
#[derive(Default)]
pub(crate) struct RandomSource {
    left: Vec<u128>,
    /// How many the next draw returns.
    next: usize,
}

/// A draw of up to 256 bytes is never partial (`getrandom(2)`).
const MOST_AT_ONCE: usize = 16;

impl RandomSource {
    pub(crate) fn bits(&mut self) -> Result<u128, Error> {
        if let Some(bits) = self.left.pop() {
            return Ok(bits);
        }
        // The first draw is small, because many lockers take only one lock.
        self.next = (2 * self.next).clamp(1, MOST_AT_ONCE);
        let mut bytes = [0; 16 * MOST_AT_ONCE];
        let bytes = &mut bytes[..16 * self.next];
        getrandom::fill(bytes).map_err(|error| {
            let message = "cannot get random bits for an id from the operating system";
            Error::with_source(ErrorKind::Unavailable, message, error.to_string())
        })?;
        let (chunks, _) = bytes.as_chunks();
        self.left
            .extend(chunks.iter().copied().map(u128::from_ne_bytes));
        let bits = self.left.pop();
        Ok(bits.expect("at least one was drawn"))
    }
}

/// Returns `machine/process`, a label for people who look at a lock's holder.
pub(crate) fn default_owner() -> Owner {
    let process = std::process::id();
    let machine = machine_name();
    let machine: String = machine.chars().take(64).collect();
    Owner::labelled(format!("{machine}/{process}"))
        .or_else(|_| Owner::labelled(process.to_string()))
        .expect("a process id is a short label")
}

#[cfg(unix)]
fn machine_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(not(unix))]
fn machine_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward() {
        let before = now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(now().since(before) >= Duration::from_millis(2));
    }

    #[test]
    fn the_wall_clock_is_of_this_century() {
        assert!(wall_clock() > ServerTime::from_millis(1_700_000_000_000));
    }
}
