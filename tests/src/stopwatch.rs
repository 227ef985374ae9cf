//! A clock that stops while the machine stands still.
//!
//! A busy or virtual machine stands still for a second now and then. Nothing can happen meanwhile, so a test
//! that expects something within a time limit does not count that second.

use std::fs;
use std::future::{Future, poll_fn};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::timeout;

/// The interval at which an otherwise idle thread looks at the clock.
const TICK: Duration = Duration::from_millis(5);

/// How many attempts [`steady`] makes, and how many threads per processor justify another attempt.
const ATTEMPTS: u32 = 5;
const CROWD: u32 = 2;

/// Measures the time in which the machine ran.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts a measurement.
    pub fn start() -> Self {
        drop(ticks());
        Self(Instant::now())
    }

    /// Returns the time since the start, less [`Self::stalled`].
    pub fn elapsed(&self) -> Duration {
        let now = Instant::now();
        let all = now.saturating_duration_since(self.0);
        all.saturating_sub(stalled_between(self.0, now))
    }

    /// Returns how long the machine stood still since the start.
    pub fn stalled(&self) -> Duration {
        stalled_between(self.0, Instant::now())
    }
}

/// Returns how long the machine stood still between two moments. This is known only for the time since the
/// first [`Stopwatch::start`].
pub fn stalled_between(from: Instant, to: Instant) -> Duration {
    let ticks = ticks();
    let present = ticks.gap(Instant::now());
    let gaps = ticks.gaps.iter().chain(&present).rev();
    gaps.take_while(|(_, end)| *end > from)
        .map(|(begin, end)| end.min(&to).saturating_duration_since(*begin.max(&from)))
        .sum()
}

/// Returns the number of runnable threads per processor now, at least 1. Work that depends on the processors
/// alone takes this many times as long.
pub fn crowding() -> u32 {
    // The file reads `0.20 0.18 0.12 9/280 11206` if nine of 280 threads are runnable.
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running = load.split([' ', '/']).nth(3);
    let running: u32 = running.and_then(|text| text.parse().ok()).unwrap_or(1);
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    (running / u32::try_from(processors).unwrap_or(u32::MAX)).max(1)
}

/// Runs an attempt that must be on time. A failed attempt proves nothing if other threads wanted the
/// processors too, so it is repeated. A failure without such load is final.
pub async fn steady(attempt: impl AsyncFn()) {
    for left in (0..ATTEMPTS).rev() {
        let before = crowding();
        let mut work = pin!(attempt());
        let ended = poll_fn(|context| {
            let poll = AssertUnwindSafe(|| work.as_mut().poll(context).map(Ok));
            catch_unwind(poll).unwrap_or_else(|panic| Poll::Ready(Err(panic)))
        });
        let Err(panic) = ended.await else {
            return;
        };
        let crowd = before.max(crowding());
        if left == 0 || crowd < CROWD {
            resume_unwind(panic);
        }
        println!("repeated, since {crowd} threads want each processor");
    }
}

/// Works like [`tokio::time::timeout`], without counting time in which the machine stood still.
pub async fn within<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    let watch = Stopwatch::start();
    let mut work = pin!(work);
    loop {
        let left = limit.saturating_sub(watch.elapsed());
        if let Ok(done) = timeout(left, work.as_mut()).await {
            return Some(done);
        }
        if watch.elapsed() >= limit {
            return None;
        }
    }
}

/// The observations of the thread.
struct Ticks {
    last: Instant,
    /// The times in which the thread was due and did not run.
    gaps: Vec<(Instant, Instant)>,
}

impl Ticks {
    fn gap(&self, now: Instant) -> Option<(Instant, Instant)> {
        // A timer may be one tick late without a stall.
        (now.saturating_duration_since(self.last) > TICK * 2).then(|| (self.last + TICK, now))
    }
}

fn ticks() -> MutexGuard<'static, Ticks> {
    static TICKS: LazyLock<Mutex<Ticks>> = LazyLock::new(|| {
        // The thread ends with the process.
        thread::spawn(|| {
            loop {
                thread::sleep(TICK);
                let mut ticks = ticks();
                let now = Instant::now();
                let gap = ticks.gap(now);
                ticks.gaps.extend(gap);
                ticks.last = now;
            }
        });
        Mutex::new(Ticks {
            last: Instant::now(),
            gaps: Vec::new(),
        })
    });
    TICKS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_only_between_its_two_moments() {
        let watch = Stopwatch::start();
        // While this test holds the lock the thread cannot note anything, as if the machine stood still.
        let held = ticks();
        thread::sleep(Duration::from_millis(300));
        drop(held);
        let (stalled, elapsed) = (watch.stalled(), watch.elapsed());
        assert!(stalled >= Duration::from_millis(280), "{stalled:?}");
        assert!(elapsed + stalled >= Duration::from_millis(300));
        let half = watch.0 + Duration::from_millis(150);
        let until = stalled_between(watch.0, half);
        assert!(until <= Duration::from_millis(150), "{until:?}");
        let after = watch.0 + Duration::from_secs(3_600);
        assert_eq!(stalled_between(after, after + TICK), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_limit_does_not_count_stalls() {
        let limit = Duration::from_millis(200);
        let slow = async {
            let held = ticks();
            thread::sleep(limit * 2);
            drop(held);
            tokio::time::sleep(limit / 4).await;
            "done"
        };
        assert_eq!(within(limit, slow).await, Some("done"));
        let never = std::future::pending::<()>();
        assert_eq!(within(limit / 10, never).await, None);
    }
}
