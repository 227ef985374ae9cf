//! The clocks that lockers use.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_engine::time::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::rt;

/// How long a [`tick`] takes. A real thread sleeps, because tokio's timers do not wait while its time is
/// paused.
const REAL_NAP: Duration = Duration::from_millis(50);
/// A timer may fire early by less than this. If it fires earlier, tokio's time is paused.
const TOO_EARLY: Duration = Duration::from_millis(2);

/// The source of a locker's time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's clock.
    Machine,
    /// The machine's clock, or tokio's on this runtime while the program has paused it. Only for in-memory
    /// stores, because a server's time cannot be paused.
    Runtime(Arc<Handle>),
}

impl Clock {
    /// Returns the clock of an in-memory store.
    pub(super) fn of_this_runtime() -> Self {
        Self::Runtime(Arc::new(Handle::current()))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Machine => rt::now(),
            Self::Runtime(runtime) => paused(runtime).unwrap_or_else(rt::now),
        }
    }

    /// Sleeps by this clock. If tokio's time is paused and this clock is not, tokio's timers fire at once,
    /// and a loop that slept only by those would keep a core busy.
    pub(super) async fn sleep(&self, time: Duration) {
        let until = self.now() + time;
        tokio::time::sleep(time).await;
        while until.since(self.now()) >= TOO_EARLY {
            tick().await;
        }
    }
}

/// Returns tokio's time if it differs from the machine's. Only `tokio::time::pause`, of tokio's feature
/// `test-util`, makes it differ.
fn paused(runtime: &Handle) -> Option<Timestamp> {
    static ORIGIN: LazyLock<(Instant, Timestamp)> = LazyLock::new(|| (Instant::now(), rt::now()));
    let (origin, at_origin) = *ORIGIN;
    let before = Instant::now();
    let told = tokio_now(runtime)?;
    if (before..=Instant::now()).contains(&told) {
        return None;
    }
    let ago = origin.saturating_duration_since(told);
    Some(at_origin - ago + told.saturating_duration_since(origin))
}

fn tokio_now(runtime: &Handle) -> Option<Instant> {
    let _there = match Handle::try_current() {
        Ok(here) if here.id() == runtime.id() => None,
        // This thread is ending and can no longer enter a runtime.
        Err(error) if error.is_thread_local_destroyed() => return None,
        _ => Some(runtime.enter()),
    };
    Some(tokio::time::Instant::now().into_std())
}

/// Waits a short while of the machine's time. One thread sleeps for all callers together.
async fn tick() {
    static SLEEPS: AtomicBool = AtomicBool::new(false);
    static TICK: Notify = Notify::const_new();
    let mut ticked = pin!(TICK.notified());
    // From here on a notification reaches this future, so it cannot miss the one from the thread below.
    ticked.as_mut().enable();
    if !SLEEPS.swap(true, Ordering::AcqRel) {
        let sleeper = thread::Builder::new().spawn(|| {
            thread::sleep(REAL_NAP);
            SLEEPS.store(false, Ordering::Release);
            TICK.notify_waiters();
        });
        if sleeper.is_err() {
            SLEEPS.store(false, Ordering::Release);
            return;
        }
    }
    ticked.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a clock that differs from the machine's although the program has not paused tokio's time.
    #[tokio::test]
    async fn time_that_is_not_paused_is_the_machine_s() {
        let clock = Clock::of_this_runtime();
        for _ in 0..10_000 {
            let (before, now, after) = (rt::now(), clock.now(), rt::now());
            assert!((before..=after).contains(&now));
        }
    }
}
