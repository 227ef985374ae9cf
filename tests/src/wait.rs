//! Waiting for a condition instead of sleeping and hoping.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use leasehold::{LeaseEvent, LeaseEvents};
use tokio::time::sleep;
use tokio_stream::StreamExt;

use crate::{Stopwatch, within};

const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// What a condition of [`eventually`] may return: `bool`, or an `Option` of what it found.
pub trait Condition {
    /// What [`eventually`] returns when the condition holds.
    type Found;

    /// The finding, if the condition holds.
    fn found(self) -> Option<Self::Found>;
}

impl Condition for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Condition for Option<T> {
    type Found = T;

    fn found(self) -> Option<T> {
        self
    }
}

/// Reads events up to the first one that is wanted, and returns that.
///
/// Panics with all that came if it does not come within `limit`, or if the stream ends. Time in
/// which the machine stood still does not count.
pub async fn next_event(
    events: &mut LeaseEvents,
    limit: Duration,
    wanted: impl Fn(&LeaseEvent) -> bool,
) -> LeaseEvent {
    let mut came = Vec::new();
    let found = within(limit, async {
        while let Some(event) = events.next().await {
            if wanted(&event) {
                return Some(event);
            }
            came.push(event);
        }
        None
    });
    let Some(Some(event)) = found.await else {
        panic!("the event did not come within {limit:?}; what came: {came:?}");
    };
    event
}

/// Asks `condition` every few milliseconds until it holds, and returns what it found.
///
/// Panics after `limit`, naming `what`; also if one call of `condition` hangs that long. Time in
/// which the machine stood still does not count.
///
/// ```
/// # use std::time::Duration;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().expect("rt").block_on(async {
/// let mut calls = 0;
/// leasehold_tests::eventually(Duration::from_secs(5), "three calls", async || {
///     calls += 1;
///     calls == 3
/// })
/// .await;
/// # });
/// ```
pub async fn eventually<C, R>(limit: Duration, what: &str, mut condition: C) -> R::Found
where
    C: AsyncFnMut() -> R,
    R: Condition,
{
    let watch = Stopwatch::start();
    loop {
        // One more look, for what came in the last moment.
        let is_last = watch.elapsed() >= limit;
        match within(limit, condition()).await {
            None => panic!("not within {limit:?}: {what} (during a check)"),
            Some(answer) => {
                if let Some(found) = answer.found() {
                    return found;
                }
            }
        }
        assert!(!is_last, "not within {limit:?}: {what}");
        sleep(POLL_INTERVAL).await;
    }
}

/// A name that no other test, process or run uses.
pub fn unique_name(prefix: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("the clock is past 1970")
        .as_micros();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{now}-{count}", process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_what_was_found() {
        let mut left = 3;
        let found = eventually(Duration::from_secs(5), "a finding", async || {
            left -= 1;
            (left == 0).then_some("here")
        })
        .await;
        assert_eq!(found, "here");
    }

    #[tokio::test]
    #[should_panic(expected = "not within 20ms: the impossible")]
    async fn names_what_did_not_happen() {
        eventually(Duration::from_millis(20), "the impossible", async || false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "an answer (during a check")]
    async fn a_check_that_hangs_is_a_failure() {
        let hang = async || std::future::pending::<bool>().await;
        eventually(Duration::from_millis(20), "an answer", hang).await;
    }

    #[test]
    fn names_differ() {
        assert_ne!(unique_name("a"), unique_name("a"));
    }
}
