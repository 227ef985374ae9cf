//! The clocks that lockers go by.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_engine::time::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::rt;

/// How long [`tick`] takes: a sleep of a real thread, where tokio's timers do not wait.
const REAL_NAP: Duration = Duration::from_millis(50);
/// A timer may fire early by less than this. By more, tokio's time is paused.
const TOO_EARLY: Duration = Duration::from_millis(2);

/// Where a locker gets the time from.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's.
    Machine,
    /// The machine's, unless the program has paused tokio's time: then tokio's on this runtime. Only
    /// for stores in this process, because a server's time cannot be paused.
    Runtime(Arc<Handle>),
}

impl Clock {
    /// Of a store in this process.
    pub(super) fn of_this_runtime() -> Self {
        Self::Runtime(Arc::new(Handle::current()))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Machine => rt::now(),
            Self::Runtime(runtime) => paused(runtime).unwrap_or_else(rt::now),
        }
    }

    /// Sleeps by this clock. Where tokio's time is paused and this clock is not, tokio's timers fire at
    /// once: a loop that only slept by those would keep a core busy.
    pub(super) async fn sleep(&self, time: Duration) {
        let until = self.now() + time;
        tokio::time::sleep(time).await;
        while until.since(self.now()) >= TOO_EARLY {
            tick().await;
        }
    }
}

/// tokio's time, if it differs from the machine's. Only `tokio::time::pause` makes it differ, of tokio's
/// feature `test-util`.
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
        // This thread is ending, and can enter no runtime any more.
        Err(error) if error.is_thread_local_destroyed() => return None,
        _ => Some(runtime.enter()),
    };
    Some(tokio::time::Instant::now().into_std())
}

/// Returns after a short while of the machine's time. One thread sleeps for all callers together.
async fn tick() {
    static SLEEPS: AtomicBool = AtomicBool::new(false);
    static TICK: Notify = Notify::const_new();
    let mut ticked = pin!(TICK.notified());
    // From here on a notification reaches it, so it cannot miss that of the thread below.
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

    /// Catches a program whose time is not paused and goes by another clock than the machine's.
    #[tokio::test]
    async fn time_that_is_not_paused_is_the_machine_s() {
        let clock = Clock::of_this_runtime();
        for _ in 0..10_000 {
            let (before, now, after) = (rt::now(), clock.now(), rt::now());
            assert!((before..=after).contains(&now));
        }
    }
}
