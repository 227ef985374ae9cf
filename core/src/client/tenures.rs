use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use leasehold_engine::{Error, ErrorKind, Share as Part};
use pin_project::pin_project;

use super::persist::persist;
use super::{Lease, Lock};

/// A stream of leases that holds a lock for as long as the program runs.
///
/// It waits in line for the lock and yields the lease. When that lease is lost or released, the next poll
/// waits again. While the store cannot be reached it retries. It ends when the locker is shut down, and after an
/// error that a retry does not fix, such as a bad option or a password that is refused at the first connection. A
/// password that is refused later is an outage, since it may be changed at the server first.
///
/// Nothing happens unless it is polled. Dropping it leaves the line. A lease that it yielded belongs to the
/// program and stays held.
///
/// # Cancel safety
///
/// Waiting for the next lease is cancel-safe: the place in line is kept.
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use futures::TryStreamExt;
///
/// let locker = leasehold::Locker::in_memory();
/// let mut tenures = locker.lock("leader")?.hold();
/// let mut terms = 0;
/// while let Some(lease) = tenures.try_next().await? {
///     // A loss drops the work; then the loop waits for the next lease.
///     let _ = lease.run(async { println!("leading with token {}", lease.token()) }).await;
///     terms += 1;
///     if terms == 3 {
///         break;
///     }
/// }
/// # Ok(()) }
/// ```
#[pin_project]
#[must_use = "streams do nothing unless they are polled"]
pub struct Tenures {
    lock: Lock,
    /// The part of a shared name to take.
    part: Option<Part>,
    state: State,
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum State {
    Idle,
    Acquiring(Boxed<Result<Lease, Error>>),
    /// Resolves when the tenure is over.
    Held(Boxed<()>),
    Ended,
}

impl Tenures {
    pub(super) fn new(lock: Lock, part: Option<Part>) -> Self {
        Self {
            lock,
            part,
            state: State::Idle,
        }
    }
}

impl Stream for Tenures {
    type Item = Result<Lease, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        loop {
            match this.state {
                State::Idle => {
                    let acquiring = acquire(this.lock.clone(), *this.part);
                    *this.state = State::Acquiring(Box::pin(acquiring));
                }
                State::Acquiring(acquiring) => {
                    let acquired = ready!(acquiring.as_mut().poll(context));
                    *this.state = match &acquired {
                        Ok(lease) => State::Held(Box::pin(lease.until_over())),
                        Err(_) => State::Ended,
                    };
                    let shut_down = |error: &Error| error.kind() == ErrorKind::Shutdown;
                    return Poll::Ready(match acquired {
                        Err(error) if shut_down(&error) => None,
                        acquired => Some(acquired),
                    });
                }
                State::Held(over) => {
                    ready!(over.as_mut().poll(context));
                    *this.state = State::Idle;
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl fmt::Debug for Tenures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = &self.lock;
        f.debug_struct("Tenures")
            .field("lock", lock)
            .finish_non_exhaustive()
    }
}

async fn acquire(lock: Lock, part: Option<Part>) -> Result<Lease, Error> {
    persist("cannot acquire the lock", async || match part {
        Some(part) => lock.acquire_part(part).await,
        None => lock.acquire().await,
    })
    .await
}
