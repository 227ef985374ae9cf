//! Futures that wait for a resource, and permits that hold it.

use std::future::Future;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use leasehold_engine::{Error, FencingToken};

use super::Gate;
use super::seen::Place;
use crate::fence::check_resource;

/// The future of a [`Permit`], for a borrowed or a shared gate.
pub(in crate::fence) struct Entering<G: Deref<Target = Gate>, R> {
    gate: G,
    resource: R,
    token: FencingToken,
    /// The place in line, while it waits.
    place: Option<Place>,
}

impl<G: Deref<Target = Gate>, R> Entering<G, R> {
    pub(in crate::fence) fn new(gate: G, resource: R, token: FencingToken) -> Self {
        Self {
            gate,
            resource,
            token,
            place: None,
        }
    }
}

impl<G, R> Future for Entering<G, R>
where
    G: Deref<Target = Gate> + Clone + Unpin,
    R: AsRef<str> + Unpin,
{
    type Output = Result<Permit<G>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (resource, token) = (this.resource.as_ref(), this.token);
        // Declared before the guard of the lock, so it is dropped after it.
        let mut retired = None;
        let mut seen = this.gate.lock();
        let permit = |slot| Permit {
            gate: this.gate.clone(),
            slot,
            wrote: true,
        };
        let asked = (resource, token);
        this.place
            .take_if(|place| seen.overtaken_by_nothing(*place, asked));
        let turn = if let Some(place) = this.place {
            let turn = seen.turn(place, asked, context.waker(), &mut retired);
            turn.map(|slot| slot.map(permit))
        } else {
            check_resource(resource)?;
            let admitted = seen.admit(resource, token, false)?;
            let turn = match seen.begin(&admitted) {
                Some(slot) => Ok(Some(permit(slot))),
                None => seen.wait(&admitted, context.waker()).map(|place| {
                    this.place = Some(place);
                    None
                }),
            };
            drop(seen);
            // The permit owns the slot by now and gives it back even if a waker panics.
            admitted.wake_overtaken();
            turn
        };
        match turn {
            Ok(Some(permit)) => {
                this.place = None;
                Poll::Ready(Ok(permit))
            }
            Ok(None) => Poll::Pending,
            Err(error) => {
                this.place = None;
                Poll::Ready(Err(error))
            }
        }
    }
}

impl<G: Deref<Target = Gate>, R> Drop for Entering<G, R> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let mut retired = None;
            let next = self.gate.lock().leave(place, &mut retired);
            next.inspect(Waker::wake_by_ref);
        }
    }
}

/// Exclusive write access to a resource until this is dropped.
pub(in crate::fence) struct Permit<G: Deref<Target = Gate>> {
    gate: G,
    slot: usize,
    wrote: bool,
}

impl<G: Deref<Target = Gate>> Permit<G> {
    /// Ends a write that changed nothing. The gate forgets the resource, unless it remembered it before or
    /// another write follows.
    #[cfg(any(feature = "http", test))]
    pub(in crate::fence) fn withdraw(mut self) {
        self.wrote = false;
    }
}

impl<G: Deref<Target = Gate>> Drop for Permit<G> {
    fn drop(&mut self) {
        let next = self.gate.lock().end(self.slot, self.wrote);
        next.inspect(Waker::wake_by_ref);
    }
}

/// Blocks the thread until the future is ready. The first poll does not allocate.
pub(in crate::fence) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let first = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(output) = first {
        return output;
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
