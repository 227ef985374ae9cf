//! Poisson arrivals at a fixed rate: a side's program reads them from a socket, as a server reads requests.
//!
//! Arrivals wait for no answers, so a slow side does not lower the rate. Latency counts from when an arrival was
//! due. So neither a late generator nor a busy program hides a delay.

use std::io::Write;
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use leasehold_tests::Random;
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::UnixListener;
use tokio::time::timeout;

use crate::Result;

/// Longer than a program takes to connect, and to read on.
const LIMIT: Duration = Duration::from_secs(10);
/// The time that a program has to prepare, in microseconds.
const START: f64 = 20_000.0;

/// Arrivals in a second, for how long, and the seed: the same one gives the same times.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rate: u32,
    pub(crate) length: Duration,
    pub(crate) seed: u64,
}

/// Listens at a path until a program connects, and sends it the arrivals, each when it is due: its time in
/// microseconds of `CLOCK_MONOTONIC`, as 8 little-endian bytes of a float. Returns how many microseconds late each
/// one was sent.
pub(crate) async fn serve(path: &Path, plan: Plan) -> Result<Vec<f64>> {
    let listener = UnixListener::bind(path)?;
    let connected = timeout(LIMIT, listener.accept()).await;
    std::fs::remove_file(path)?;
    let (stream, _) = connected.map_err(|_| "no program asked for arrivals")??;
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(LIMIT))?;
    tokio::task::spawn_blocking(move || send(stream, plan)).await?
}

fn send(mut stream: UnixStream, plan: Plan) -> Result<Vec<f64>> {
    // Otherwise the kernel lets this thread sleep 50 µs longer.
    set_current_timer_slack(NonZeroU64::new(1))?;
    let mut gaps = Gaps::new(plan);
    let (mut late, mut bytes) = (Vec::new(), Vec::new());
    let begin = now() + START;
    let end = begin + plan.length.as_secs_f64() * 1e6;
    let mut due = begin + gaps.next();
    while due < end {
        let time = now();
        if due > time {
            std::thread::sleep(Duration::from_secs_f64((due - time) / 1e6));
            continue;
        }
        bytes.clear();
        while due <= time && due < end {
            bytes.extend_from_slice(&due.to_le_bytes());
            late.push(time - due);
            due += gaps.next();
        }
        stream.write_all(&bytes)?;
    }
    Ok(late)
}

/// The time from one arrival to the next, in microseconds.
struct Gaps {
    random: Random,
    mean: f64,
}

impl Gaps {
    fn new(plan: Plan) -> Self {
        Self {
            random: Random::new(plan.seed),
            mean: 1e6 / f64::from(plan.rate),
        }
    }

    fn next(&mut self) -> f64 {
        // From 0 to less than 1, to 53 bits: what a float holds.
        let uniform = (self.random.number() >> 11) as f64 / (1_u64 << 53) as f64;
        -(1.0 - uniform).ln() * self.mean
    }
}

/// Returns the microseconds of a clock that all programs of this machine share.
fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Gaps, Plan};

    /// Catches a rate that is wrong, and arrivals that are even or come in bursts.
    #[test]
    fn gaps_have_the_mean_and_the_spread_of_poisson_arrivals() {
        const COUNT: usize = 100_000;
        let plan = |seed| Plan {
            rate: 5_000,
            length: Duration::from_secs(1),
            seed,
        };
        let gaps = |seed| {
            let mut gaps = Gaps::new(plan(seed));
            (0..COUNT).map(move |_| gaps.next()).collect::<Vec<f64>>()
        };
        let first = gaps(1);
        let mean = first.iter().sum::<f64>() / COUNT as f64;
        let variance = first.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / COUNT as f64;
        // The standard deviation of exponential times is their mean.
        assert!((mean - 200.0).abs() < 4.0, "{mean}");
        assert!((variance.sqrt() - 200.0).abs() < 6.0, "{variance}");
        assert!(first.iter().all(|gap| *gap >= 0.0));
        let same = |one: &[f64], other: &[f64]| {
            one.iter()
                .zip(other)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        };
        assert!(same(&first, &gaps(1)));
        assert!(!same(&first, &gaps(2)));
    }
}
