//! The clocks that lockers live by.

use std::pin::pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::rt;
use crate::time::Timestamp;

/// How long a thread sleeps at once for timers that do not.
const REAL_NAP: Duration = Duration::from_millis(50);
/// Timers fire late, and never earlier than by this.
const TOO_EARLY: Duration = Duration::from_millis(2);

/// What a locker takes for the time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's.
    Machine,
    /// The machine's, unless the program has paused tokio's time: then tokio's on this runtime. For
    /// stores in this process alone, since a server's time goes on.
    Runtime(Handle),
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Machine => rt::now(),
            Self::Runtime(runtime) => paused(runtime).unwrap_or_else(rt::now),
        }
    }

    /// Sleeps by this clock. Where tokio's time is paused and this is not, tokio's timers fire at
    /// once, and whoever sleeps again and again would keep a core busy.
    pub(super) async fn sleep(&self, time: Duration) {
        let until = self.now() + time;
        tokio::time::sleep(time).await;
        while until.since(self.now()) >= TOO_EARLY {
            tick().await;
        }
    }
}

/// tokio's time, if that is not the machine's: which only `tokio::time::pause` does, of tokio's
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
        // The thread ends, and a runtime cannot be entered any more.
        Err(error) if error.is_thread_local_destroyed() => return None,
        _ => Some(runtime.enter()),
    };
    Some(tokio::time::Instant::now().into_std())
}

/// Returns after a short while of the machine's time. One thread sleeps, for all who wait.
async fn tick() {
    static SLEEPS: AtomicBool = AtomicBool::new(false);
    static TICK: Notify = Notify::const_new();
    let mut ticked = pin!(TICK.notified());
    // From here on it is woken.
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

    /// Catches a production in which the clock is not the machine's.
    #[tokio::test]
    async fn time_that_is_not_paused_is_the_machine_s() {
        let clock = Clock::Runtime(Handle::current());
        for _ in 0..10_000 {
            let (before, now, after) = (rt::now(), clock.now(), rt::now());
            assert!((before..=after).contains(&now));
        }
    }
}
