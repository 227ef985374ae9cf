use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use leasehold_engine::LeaseEvent;
use leasehold_engine::engine::ReaderId;
use pin_project::{pin_project, pinned_drop};

use crate::driver::Driver;

/// A stream of what happens to one lock, or to all locks of a locker.
///
/// - It begins with the current state: an `Acquired` for each held lock. A stream of all locks first yields a
///   `ClockDrift` if the drift margin was widened before.
/// - It coalesces unread renewals: only the newest of a lock is kept.
/// - A reader with more than 1,024 unread events gets `Lagged` with the number of missed events. Then come
///   the `Lost` events that it has not read (the latest 512, if there are more), and the current state.
/// - `Lost` comes no later than the deadline, if the runtime fires its timer in time.
/// - The stream of one lock ends when the lock's last handle and lease are dropped. All streams end when the
///   locker is shut down or dropped.
///
/// Each reader gets all events. A slow reader delays neither other readers nor the locks.
///
/// # Cancel safety
///
/// Waiting for an event is cancel-safe: no event is lost.
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// # let locker = leasehold::Locker::in_memory();
/// use futures::StreamExt;
/// use leasehold::LeaseEvent;
///
/// let lock = locker.lock("orders/42")?;
/// let lease = lock.acquire().await?;
/// let mut events = lock.events();
/// match events.next().await {
///     Some(LeaseEvent::Acquired { token, .. }) => assert_eq!(token, lease.token()),
///     other => unreachable!("{other:?}: the current state comes first"),
/// }
/// # Ok(()) }
/// ```
#[pin_project(PinnedDrop)]
#[must_use = "streams do nothing unless they are polled"]
pub struct LeaseEvents {
    driver: Arc<Driver>,
    reader: ReaderId,
}

impl LeaseEvents {
    pub(super) fn new(driver: Arc<Driver>, lock: Option<leasehold_engine::engine::LockId>) -> Self {
        let reader = driver.subscribe(lock);
        Self { driver, reader }
    }
}

impl Stream for LeaseEvents {
    type Item = LeaseEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<LeaseEvent>> {
        let this = self.project();
        this.driver.poll_event(*this.reader, context.waker())
    }
}

#[pinned_drop]
impl PinnedDrop for LeaseEvents {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        this.driver.unsubscribe(*this.reader);
    }
}

impl fmt::Debug for LeaseEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseEvents").finish_non_exhaustive()
    }
}
