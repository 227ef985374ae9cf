//! The program's calls: futures that wait for the engine's answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use leasehold_engine::engine::{
    Acquired, Answer, HolderInfo, Inspection, Listing, LockSpec, Table, Wait,
};
use leasehold_engine::protocol::{Counter, LeaseId, LockKey, Pattern};
use leasehold_engine::{Error, ErrorKind, FencingToken, Owner, Passed, Sharing};

use super::shared_tenure::Share;
use super::{Batch, Batches, CallId, Deliveries, Driver, Input, LockId};

/// Starts the program's calls.
impl Driver {
    /// Acquires a lock. Resolves to `None` if it is not free within the wait.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        lock: LockId,
        spec: Arc<LockSpec>,
        lease: LeaseId,
        wait: Wait,
    ) -> Pending<Option<Share>> {
        self.call(Some((lock, lease)), |call| Input::Acquire {
            call,
            lock,
            spec,
            lease,
            wait,
        })
    }

    /// Acquires locks that are free. All requests leave together. A lock that is not free resolves to `None`.
    pub(crate) fn try_acquire_all(
        self: &Arc<Self>,
        asked: impl IntoIterator<Item = (LockId, Arc<LockSpec>, LeaseId)>,
    ) -> Vec<Pending<Option<Share>>> {
        let wait = Wait::Never;
        let calls = asked.into_iter().map(|(lock, spec, lease)| {
            let input = move |call| Input::Acquire {
                call,
                lock,
                spec,
                lease,
                wait,
            };
            ((lock, lease), input)
        });
        self.call_all(calls)
    }

    /// Accepts a lease that was passed on.
    pub(crate) fn accept(
        self: &Arc<Self>,
        lock: LockId,
        spec: Arc<LockSpec>,
        lease: LeaseId,
        passed: Passed,
    ) -> Pending<Option<Share>> {
        self.call(Some((lock, lease)), |call| Input::Accept {
            call,
            lock,
            spec,
            lease,
            passed: Box::new(passed),
        })
    }

    pub(super) fn renew(
        self: &Arc<Self>,
        of: (LockId, LeaseId),
        (ttl, floor): (Option<Duration>, Option<FencingToken>),
    ) -> Pending<()> {
        let lease = of.1;
        self.call(Some(of), |call| Input::Renew {
            call,
            lease,
            ttl,
            floor,
        })
    }

    pub(super) fn release(self: &Arc<Self>, of: (LockId, LeaseId)) -> Pending<()> {
        let lease = of.1;
        self.call(Some(of), |call| Input::Release {
            call: Some(call),
            lease,
        })
    }

    pub(super) fn complete(self: &Arc<Self>, of: (LockId, LeaseId)) -> Pending<()> {
        let lease = of.1;
        self.call(Some(of), |call| Input::Complete { call, lease })
    }

    pub(crate) fn inspect(self: &Arc<Self>, key: LockKey) -> Pending<Inspection> {
        self.call(None, |call| Input::Inspect { call, key })
    }

    pub(crate) fn list(self: &Arc<Self>, pattern: Pattern, cursor: u64) -> Pending<Listing> {
        self.call(None, |call| Input::List {
            call,
            pattern,
            cursor,
        })
    }

    /// Releases a lock by force; with a token, only the tenure that has it.
    pub(crate) fn force_release(
        self: &Arc<Self>,
        key: LockKey,
        token: Option<FencingToken>,
    ) -> Pending<Option<HolderInfo>> {
        self.call(None, |call| Input::ForceRelease { call, key, token })
    }

    /// Asks a lock's holder to yield.
    pub(crate) fn request_yield(
        self: &Arc<Self>,
        key: LockKey,
        by: Owner,
        within: Duration,
    ) -> Pending<Option<HolderInfo>> {
        self.call(None, |call| Input::RequestYield {
            call,
            key,
            by,
            within,
        })
    }

    /// Changes the capacity of a shared name. Resolves to the capacity's epoch.
    pub(crate) fn resize(
        self: &Arc<Self>,
        key: LockKey,
        (sharing, capacity): (Sharing, u32),
        counter: Counter,
    ) -> Pending<u32> {
        self.call(None, |call| Input::Resize {
            call,
            key,
            sharing,
            capacity,
            counter,
        })
    }

    pub(crate) fn shutdown(self: &Arc<Self>) -> Pending<()> {
        self.call(None, |call| Input::Shutdown { call })
    }

    /// Makes a call. Dropping the future cancels it.
    fn call<T: Kind>(
        self: &Arc<Self>,
        of: Option<(LockId, LeaseId)>,
        input: impl FnOnce(CallId) -> Input,
    ) -> Pending<T> {
        let slot = Arc::new(Slot::new());
        let call = CallId(self.next_id());
        let input = input(call);
        let sends = self.step_with(|state| {
            T::waiting(&mut state.calls).insert(call, slot.clone());
            input
        });
        Pending {
            driver: self.clone(),
            of,
            call,
            own: self.send(sends),
            slot: Some(slot),
        }
    }

    /// Makes calls about leases, in one step of the engine: their requests leave in one batch.
    fn call_all<T: Kind, I: FnOnce(CallId) -> Input>(
        self: &Arc<Self>,
        calls: impl IntoIterator<Item = ((LockId, LeaseId), I)>,
    ) -> Vec<Pending<T>> {
        let (mut pending, mut inputs) = (Vec::new(), Vec::new());
        for (of, input) in calls {
            let call = CallId(self.next_id());
            inputs.push(input(call));
            pending.push(Pending {
                driver: self.clone(),
                of: Some(of),
                call,
                own: None,
                slot: Some(Arc::new(Slot::new())),
            });
        }
        let Some(last) = inputs.pop() else {
            return pending;
        };
        let sends = self.step_with(|state| {
            let waiting = T::waiting(&mut state.calls);
            for Pending { call, slot, .. } in &pending {
                if let Some(slot) = slot {
                    waiting.insert(*call, slot.clone());
                }
            }
            for input in inputs {
                state.engine.handle(self.now(), input);
            }
            last
        });
        self.spawn_all(sends);
        pending
    }

    /// Sends batches. Returns the part that the caller's own task executes.
    fn send(self: &Arc<Self>, mut sends: Batches) -> Option<Execution> {
        // The clients of servers need a runtime, and the caller may be polled outside of any.
        if self.stores.are_remote() && !sends.is_empty() && !self.is_at_home() {
            self.spawn_all(sends);
            return None;
        }
        // Batches that concern others must not wait until this caller polls.
        if sends.len() > 1 && sends.iter().all(Batch::is_of_one) {
            // One batch to each of several servers: every reply wakes this caller's task, so no other task is
            // needed.
            let all: FuturesUnordered<_> = sends.into_iter().map(|own| self.execute(own)).collect();
            return Some(Box::pin(all.collect()));
        }
        let is_own = sends.last().is_some_and(|batch| batch.ops.len() == 1);
        let own = is_own.then(|| sends.pop()).flatten();
        // Earlier batches leave first.
        self.spawn_all(sends);
        Some(Box::pin(self.execute(own?)))
    }
}

type Execution = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls of a lease.
impl Share {
    /// Releases the lease. Resolves once the store has confirmed it.
    pub(crate) fn release(&mut self) -> Pending<()> {
        self.given_up = true;
        self.tenure.give_up();
        self.driver.release((self.lock, self.tenure.lease))
    }

    /// Releases several leases of one locker, as [`release`](Self::release) does one.
    pub(crate) fn release_all(shares: &mut [Self]) -> Vec<Pending<()>> {
        let Some(driver) = shares.first().map(|share| share.driver.clone()) else {
            return Vec::new();
        };
        let calls = shares.iter_mut().map(|share| {
            share.given_up = true;
            share.tenure.give_up();
            let lease = share.tenure.lease;
            let input = move |call| Input::Release {
                call: Some(call),
                lease,
            };
            ((share.lock, lease), input)
        });
        driver.call_all(calls)
    }

    /// Releases a turn's lease and completes its tick.
    pub(crate) fn complete(&mut self) -> Pending<()> {
        self.given_up = true;
        self.tenure.give_up();
        self.driver.complete((self.lock, self.tenure.lease))
    }

    /// Passes the lease on. The engine answers at once.
    pub(crate) async fn pass(&mut self) -> Result<Passed, Error> {
        let (lease, of) = (self.tenure.lease, (self.lock, self.tenure.lease));
        let passed = self
            .driver
            .call(Some(of), |call| Input::Pass { call, lease });
        let passed = passed.await?;
        self.given_up = true;
        self.tenure.give_up();
        Ok(passed)
    }

    /// Extends the lease now, by the given time to live if there is one.
    pub(crate) fn renew(&self, ttl: Option<Duration>) -> Pending<()> {
        let of = (self.lock, self.tenure.lease);
        self.driver.renew(of, (ttl, None))
    }

    /// Makes the writer of a shared name a reader.
    pub(crate) fn downgrade(&self) -> Pending<()> {
        let of = (self.lock, self.tenure.lease);
        self.driver.renew(of, (None, Some(self.tenure.token)))
    }
}

/// The future of a call.
pub(crate) struct Pending<T: Kind> {
    driver: Arc<Driver>,
    /// The lock and lease to acquire or renew.
    of: Option<(LockId, LeaseId)>,
    call: CallId,
    /// The batch that this call's own task sends.
    own: Option<Execution>,
    /// `None` once the answer was taken.
    slot: Option<Arc<Slot<T>>>,
}

impl<T: Kind> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { own, slot, .. } = &mut *self;
        if let Some(execution) = own {
            // An answer that arrives during this poll need not wake the task: it is taken below.
            drop(slot.as_ref().and_then(|slot| slot.forget_waker()));
            if execution.as_mut().poll(context).is_ready() {
                *own = None;
            }
        }
        let answer = match slot {
            Some(slot) => ready!(slot.poll(context)),
            None => return Poll::Pending,
        };
        self.slot = None;
        Poll::Ready(answer)
    }
}

impl<T: Kind> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            let (of, call) = (self.of, self.call);
            let mut listed = None;
            let sends = self.driver.step_with(|state| {
                listed = T::waiting(&mut state.calls).take(&call);
                Input::Cancel { call, of }
            });
            self.driver.spawn_all(sends);
            // Last, with nothing locked: dropping a waker may run the program's code, and dropping a lease
            // that is already in the slot gives it up.
            drop((listed, slot));
        }
        // Finish the batch in the background: its reply may concern others.
        if let Some(own) = self.own.take() {
            self.driver.runtime.spawn(own);
        }
    }
}

/// The place where a call's answer arrives.
pub(crate) struct Slot<T>(Mutex<SlotState<T>>);

enum SlotState<T> {
    Empty,
    /// The call waits and is not being polled.
    Waiting(Waker),
    Answered(Result<T, Error>),
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self(Mutex::new(SlotState::Empty))
    }

    /// Takes the answer, or stores the waker.
    fn poll(&self, context: &Context<'_>) -> Poll<Result<T, Error>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, SlotState::Empty) {
            SlotState::Answered(answer) => Poll::Ready(answer),
            former => {
                *state = SlotState::Waiting(context.waker().clone());
                drop(state);
                // With nothing locked: dropping a waker may run the program's code.
                drop(former);
                Poll::Pending
            }
        }
    }

    /// Removes and returns the waker.
    fn forget_waker(&self) -> Option<Waker> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, SlotState::Empty) {
            SlotState::Waiting(waker) => Some(waker),
            other => {
                *state = other;
                None
            }
        }
    }

    fn put(&self, answer: Result<T, Error>) {
        let before = std::mem::replace(&mut *self.state(), SlotState::Answered(answer));
        if let SlotState::Waiting(waker) = before {
            waker.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Waiting<T> = Table<CallId, Arc<Slot<T>>>;

/// A type of answer, and with it a kind of call.
pub(crate) trait Kind: Sized {
    /// Returns the table of the calls that wait for such an answer.
    fn waiting(calls: &mut Calls) -> &mut Waiting<Self>;
    fn delivery(slot: Arc<Slot<Self>>, answer: Result<Self, Error>) -> Delivery;
}

/// Each kind has its own table, so that no call can get another kind's answer.
macro_rules! kinds {
    ($($kind:ident($table:ident): $answer:ty,)*) => {
        /// The waiting calls.
        #[derive(Default)]
        pub(crate) struct Calls {
            $($table: Waiting<$answer>,)*
        }

        impl Calls {
            /// Fails all calls with the same error.
            pub(super) fn fail_all(&mut self, error: &Error) -> Deliveries {
                let mut failed = Deliveries::new();
                $(
                    let waiting = std::mem::take(&mut self.$table);
                    let slots = waiting.values().cloned();
                    failed.extend(slots.map(|slot| Delivery::$kind(slot, Err(error.clone()))));
                )*
                failed
            }
        }

        /// An answer to be delivered with nothing locked: if no call waits for it any more, a lease in it is
        /// given up, which takes the lock.
        pub(crate) enum Delivery {
            $($kind(Arc<Slot<$answer>>, Result<$answer, Error>),)*
        }

        impl Delivery {
            pub(super) fn deliver(self) {
                match self {
                    $(Self::$kind(slot, answer) => slot.put(answer),)*
                }
            }
        }

        $(impl Kind for $answer {
            fn waiting(calls: &mut Calls) -> &mut Waiting<Self> {
                &mut calls.$table
            }

            fn delivery(slot: Arc<Slot<Self>>, answer: Result<Self, Error>) -> Delivery {
                Delivery::$kind(slot, answer)
            }
        })*
    };
}

kinds! {
    Acquired(acquisitions): Option<Share>,
    Inspected(inspections): Inspection,
    Listed(walks): Listing,
    Passed(passes): Passed,
    // A forced release or a request to yield.
    Found(holders): Option<HolderInfo>,
    // The epoch of a capacity.
    Resized(resizes): u32,
    // A renewal, a release or the shutdown.
    Done(others): (),
}

impl Calls {
    /// Prepares the engine's answer for delivery, if a call waits for it. If the locker is `dead`, a shutdown
    /// error says why.
    pub(super) fn answer(
        &mut self,
        call: CallId,
        answer: Answer,
        dead: Option<&Error>,
        share: impl FnOnce(Acquired) -> Share,
    ) -> Option<Delivery> {
        match answer {
            Answer::Acquire(result) => self.deliver(call, dead, || Ok(result?.map(share))),
            Answer::Renew(result) | Answer::Release(result) => self.deliver(call, dead, || result),
            Answer::Resize(result) => self.deliver(call, dead, || result),
            Answer::Shutdown => self.deliver(call, dead, || Ok(())),
            Answer::Inspect(result) => self.deliver(call, dead, || Ok(*result?)),
            Answer::List(result) => self.deliver(call, dead, || result),
            Answer::Pass(result) => self.deliver(call, dead, || Ok(*result?)),
            Answer::ForceRelease(result) | Answer::RequestYield(result) => {
                self.deliver(call, dead, || result)
            }
        }
    }

    /// Creates the answer only if a call waits: dropping a share here would take the lock again.
    fn deliver<T: Kind>(
        &mut self,
        call: CallId,
        dead: Option<&Error>,
        answer: impl FnOnce() -> Result<T, Error>,
    ) -> Option<Delivery> {
        let slot = T::waiting(self).take(&call)?;
        let answer = answer().map_err(|error| match dead {
            Some(reason) if error.kind() == ErrorKind::Shutdown => reason.clone(),
            _ => error,
        });
        Some(T::delivery(slot, answer))
    }
}
