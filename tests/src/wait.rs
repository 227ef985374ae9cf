//! Waiting for a condition instead of for a fixed time.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use leasehold::{LeaseEvent, LeaseEvents};
use tokio::time::sleep;
use tokio_stream::StreamExt;

use crate::{Stopwatch, within};

const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// A result that a condition of [`eventually`] may have: `bool`, or an `Option` of what it found.
pub trait Condition {
    /// The value that [`eventually`] returns when the condition holds.
    type Found;

    /// Returns the finding if the condition holds.
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

/// Reads events up to the first wanted one, and returns that.
///
/// Panics with all events that came if none is wanted within `limit`, or if the stream ends. Time in which
/// the machine stood still does not count.
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
        panic!("the event did not come within {limit:?}; these came: {came:?}");
    };
    event
}

/// Checks `condition` every few milliseconds until it holds, and returns what it found.
///
/// Panics after `limit` and names `what`, also if one call of `condition` takes that long. Time in which the
/// machine stood still does not count.
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
        // One more check covers what came in the last moment.
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

/// Returns a name that no other test, process or run uses.
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
    async fn eventually_returns_what_the_condition_found() {
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
    async fn a_timeout_names_the_condition() {
        eventually(Duration::from_millis(20), "the impossible", async || false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "an answer (during a check")]
    async fn a_condition_that_hangs_is_a_failure() {
        let hang = async || std::future::pending::<bool>().await;
        eventually(Duration::from_millis(20), "an answer", hang).await;
    }

    #[test]
    fn unique_names_differ() {
        assert_ne!(unique_name("a"), unique_name("a"));
    }
}
