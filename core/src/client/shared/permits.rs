use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use leasehold_engine::Error;

use super::Permit;
use crate::client::Tenures;

/// A stream of permits that holds a part of a shared name for as long as the program runs.
///
/// It is to a [`Semaphore`](super::Semaphore) or an [`RwPart`](super::RwPart) what [`Tenures`] is to a lock: after a permit is lost or released, the next
/// poll waits in line again, maybe for another slot. It retries, ends and is cancel-safe as described there.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use futures::TryStreamExt;
///
/// let locker = leasehold::Locker::in_memory();
/// let mut permits = locker.semaphore("partitions", 8)?.hold();
/// for _ in 0..3 {
///     let permit = permits.try_next().await?.expect("the locker was not shut down");
///     println!("partition {:?} with token {}", permit.slot(), permit.token());
///     permit.release().await?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "streams do nothing unless they are polled"]
pub struct Permits {
    tenures: Tenures,
}

impl Permits {
    pub(super) fn new(tenures: Tenures) -> Self {
        Self { tenures }
    }
}

impl Stream for Permits {
    type Item = Result<Permit, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = Pin::new(&mut self.tenures).poll_next(context);
        next.map(|next| next.map(|lease| lease.map(Permit::new)))
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").finish_non_exhaustive()
    }
}
