//! Calls that wait for the engine's answer, and the tenures they get.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::clock::Clock;
use super::{CallId, Input, LockId, Shared};
use crate::engine::{self, Acquired, HolderInfo, Inspection};
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::name::Name;
use crate::protocol::LeaseId;
use crate::time::Timestamp;
use crate::token::FencingToken;

/// What a call got.
pub(crate) enum Answer {
    Acquired(Hold),
    Busy,
    Done,
    Inspected(Inspection),
    ForceReleased(Option<HolderInfo>),
    Listed(Option<u64>, Vec<Name>),
}

/// One lease of a tenure. Dropping it gives it up in the background.
pub(crate) struct Hold {
    pub(crate) state: Arc<HoldState>,
    /// How long the call waited for it.
    pub(crate) waited: Duration,
    shared: Arc<Shared>,
    lock: LockId,
    given_up: bool,
}

/// What a tenure's leases know of it without asking the engine.
pub(crate) struct HoldState {
    lease: LeaseId,
    pub(crate) token: FencingToken,
    began: Timestamp,
    clock: Clock,
    deadline: AtomicU64,
    /// 0 while it is held, else one more than the index of the reason.
    lost: AtomicU8,
    /// How many leases there are that were not given up.
    leases: AtomicU32,
    changed: Notify,
}

const REASONS: [LossReason; 5] = [
    LossReason::Expired,
    LossReason::Deleted,
    LossReason::Superseded,
    LossReason::Revoked,
    LossReason::Shutdown,
];

type Sender = oneshot::Sender<Result<Answer, Error>>;

#[derive(Default)]
pub(super) struct Calls(BTreeMap<CallId, Sender>);

/// An answer on its way. It is delivered with nothing locked: if nobody waits for it any more, a
/// lease in it is given up, and that locks.
pub(super) struct Delivery(Sender, Result<Answer, Error>);

impl Delivery {
    pub(super) fn deliver(self) {
        let _ = self.0.send(self.1);
    }

    /// The engine of a dead locker was shut down; the reason says more.
    pub(super) fn or_dead(self, reason: Option<&Error>) -> Self {
        match (self, reason) {
            (Self(sender, Err(error)), Some(reason)) if error.kind() == ErrorKind::Shutdown => {
                Self(sender, Err(reason.clone()))
            }
            (delivery, _) => delivery,
        }
    }
}

impl Calls {
    pub(super) fn finish(
        &mut self,
        call: CallId,
        answer: engine::Answer,
        holds: &mut BTreeMap<LeaseId, Arc<HoldState>>,
        shared: &Arc<Shared>,
    ) -> Option<Delivery> {
        let sender = self.0.remove(&call)?;
        let answer = match answer {
            engine::Answer::Acquire(result) => result.map(|acquired| {
                acquired.map_or(Answer::Busy, |acquired| {
                    let state = holds
                        .entry(acquired.lease)
                        .or_insert_with(|| HoldState::of(acquired, &shared.clock))
                        .clone();
                    state.leases.fetch_add(1, Ordering::AcqRel);
                    Answer::Acquired(Hold {
                        state,
                        waited: acquired.waited,
                        shared: shared.clone(),
                        lock: acquired.lock,
                        given_up: false,
                    })
                })
            }),
            engine::Answer::Renew(result) | engine::Answer::Release(result) => {
                result.map(|()| Answer::Done)
            }
            engine::Answer::Shutdown => Ok(Answer::Done),
            engine::Answer::Inspect(result) => result.map(Answer::Inspected),
            engine::Answer::ForceRelease(result) => result.map(Answer::ForceReleased),
            engine::Answer::List(result) => {
                result.map(|listing| Answer::Listed(listing.cursor, listing.names))
            }
        };
        Some(Delivery(sender, answer))
    }

    /// The same error to everyone.
    pub(super) fn fail_all(&mut self, error: &Error) -> Vec<Delivery> {
        let calls = std::mem::take(&mut self.0).into_values();
        let failed = calls.map(|sender| Delivery(sender, Err(error.clone())));
        failed.collect()
    }
}

impl Shared {
    /// Makes a call and waits for its answer. Dropping the future cancels the call.
    pub(crate) fn call(
        self: &Arc<Self>,
        of: Option<(LockId, LeaseId)>,
        input: impl FnOnce(CallId) -> Input,
    ) -> Pending {
        let (sender, receiver) = oneshot::channel();
        let call = CallId(self.next_id());
        let input = input(call);
        let mut sends = self.step_with(|state| {
            state.calls.0.insert(call, sender);
            input
        });
        // What concerns others too must not wait for this caller to poll.
        let own = sends.pop_if(|outgoing| outgoing.batch.len() == 1);
        // What comes before it leaves before it.
        self.spawn_all(sends);
        let own = own.map(|outgoing| -> Execution { Box::pin(self.execute(outgoing)) });
        Pending {
            shared: self.clone(),
            of,
            call,
            own,
            receiver: Some(receiver),
        }
    }
}

type Execution = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The future of a call.
pub(crate) struct Pending {
    shared: Arc<Shared>,
    /// What it acquires or renews.
    of: Option<(LockId, LeaseId)>,
    call: CallId,
    /// The batch that this call's own task sends.
    own: Option<Execution>,
    /// `None` once the answer was taken.
    receiver: Option<oneshot::Receiver<Result<Answer, Error>>>,
}

impl Pending {
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Answer, Error>> {
        let Some(receiver) = &mut self.receiver else {
            return Poll::Pending;
        };
        let Poll::Ready(answer) = Pin::new(receiver).poll(context) else {
            return Poll::Pending;
        };
        self.receiver = None;
        Poll::Ready(answer.unwrap_or_else(|_| Err(Error::shutdown())))
    }
}

impl Future for Pending {
    type Output = Result<Answer, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(own) = &mut self.own
            && own.as_mut().poll(context).is_ready()
        {
            self.own = None;
        }
        self.poll_answer(context)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            let (of, call) = (self.of, self.call);
            let mut sender = None;
            let sends = self.shared.step_with(|state| {
                sender = state.calls.0.remove(&call);
                Input::Cancel { call, of }
            });
            self.shared.spawn_all(sends);
            // Only now, with nothing locked: both may run the program's code, and a lease that is
            // in the receiver already is given up.
            drop((sender, receiver));
        }
        // What was sent is awaited all the same: its answer may concern others.
        if let Some(own) = self.own.take() {
            self.shared.runtime.spawn(own);
        }
    }
}

impl Hold {
    /// Gives the lease up and waits for the store to confirm it.
    pub(crate) fn release(mut self) -> Pending {
        self.given_up = true;
        self.state.give_up();
        let lease = self.state.lease;
        let input = move |call| Input::Release {
            call: Some(call),
            lease,
        };
        self.shared.call(Some((self.lock, lease)), input)
    }

    /// Extends the lease now; by another time to live from now on, if one is given.
    pub(crate) fn renew(&self, ttl: Option<Duration>) -> Pending {
        let lease = self.state.lease;
        let input = move |call| Input::Renew { call, lease, ttl };
        self.shared.call(Some((self.lock, lease)), input)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.given_up {
            self.state.give_up();
            let lease = self.state.lease;
            self.shared.feed(Input::Release { call: None, lease });
        }
    }
}

impl HoldState {
    fn of(grant: Acquired, clock: &Clock) -> Arc<Self> {
        Arc::new(Self {
            lease: grant.lease,
            token: grant.token,
            began: grant.began,
            clock: clock.clone(),
            deadline: AtomicU64::new(grant.deadline.as_nanos()),
            lost: AtomicU8::new(0),
            leases: AtomicU32::new(0),
            changed: Notify::new(),
        })
    }

    /// How many leases share the tenure that were not given up.
    pub(crate) fn leases(&self) -> u32 {
        self.leases.load(Ordering::Acquire)
    }

    /// Why the lease is over, if it is: as the engine said, or because the clock says so.
    pub(crate) fn lost(&self) -> Option<LossReason> {
        let told = usize::from(self.lost.load(Ordering::Acquire));
        match told.checked_sub(1).and_then(|index| REASONS.get(index)) {
            Some(reason) => Some(*reason),
            None if self.clock.now() >= self.deadline() => Some(LossReason::Expired),
            None => None,
        }
    }

    /// Waits until the lease is lost.
    pub(crate) async fn until_lost(&self) -> LossReason {
        self.until(Self::lost).await
    }

    /// Waits until the lease is lost, or all that share the tenure were given up.
    pub(crate) async fn until_over(&self) {
        let over = |state: &Self| {
            let given_up = state.leases() == 0;
            (given_up || state.lost().is_some()).then_some(())
        };
        self.until(over).await;
    }

    async fn until<T>(&self, condition: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(value) = condition(self) {
                return value;
            }
            changed.await;
        }
    }

    fn give_up(&self) {
        if self.leases.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake();
        }
    }

    /// How long ago the tenure began.
    pub(crate) fn age(&self) -> Duration {
        self.clock.now().since(self.began)
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self.lost() {
            Some(_) => Duration::ZERO,
            None => self.deadline().since(self.clock.now()),
        }
    }

    /// Keeps the tenures up to date with what the engine says happened. Returns one that was
    /// lost: who waits for that is to be woken with nothing locked.
    pub(super) fn follow(
        holds: &mut BTreeMap<LeaseId, Arc<HoldState>>,
        lease: LeaseId,
        event: &LeaseEvent,
        deadline: Option<Timestamp>,
    ) -> Option<Arc<Self>> {
        let hold = holds.get(&lease)?;
        match event {
            LeaseEvent::Renewed { .. } => {
                let deadline = deadline.map_or(0, Timestamp::as_nanos);
                hold.deadline.fetch_max(deadline, Ordering::AcqRel);
            }
            LeaseEvent::Lost { reason, .. } => {
                let index = REASONS
                    .iter()
                    .position(|known| known == reason)
                    .unwrap_or(0);
                hold.lost
                    .store(u8::try_from(index + 1).unwrap_or(1), Ordering::Release);
                return holds.remove(&lease);
            }
            LeaseEvent::Released { .. } => drop(holds.remove(&lease)),
            _ => {}
        }
        None
    }

    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    fn deadline(&self) -> Timestamp {
        Timestamp::from_nanos(self.deadline.load(Ordering::Acquire))
    }
}
