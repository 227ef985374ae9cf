//! Tenures, and the leases that share them.

use std::future::Future;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_engine::engine::{Acquired, Table};
use leasehold_engine::protocol::{HalfId, LeaseId};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{FencingToken, LeaseEvent, LossReason};
use tokio::sync::Notify;

use super::{Driver, Input, LockId};
use crate::clock::Clock;

/// One lease's share in a tenure. Dropping it gives it up in the background.
pub(crate) struct Share {
    pub(crate) tenure: Arc<SharedTenure>,
    /// When the tenure began.
    began: Timestamp,
    /// How many nanoseconds the call waited for it.
    waited: u64,
    pub(super) driver: Arc<Driver>,
    pub(super) lock: LockId,
    pub(super) given_up: bool,
}

/// What a tenure's leases know of it without asking the engine.
pub(crate) struct SharedTenure {
    pub(super) lease: LeaseId,
    pub(crate) token: FencingToken,
    deadline: AtomicU64,
    /// The place of the reason in the list of all of them; `HELD` if it is not lost.
    lost: AtomicU8,
    /// How many leases there are that were not given up.
    leases: AtomicU32,
    /// Made by the first who waits for a change: of most leases nobody does.
    changed: OnceLock<Box<Notify>>,
}

const HELD: u8 = u8::MAX;

/// What is held, by the engine's lease ids, of which no two begin alike.
pub(super) type SharedTenures = Table<HalfId, Arc<SharedTenure>>;

impl Share {
    /// What a call got: one more share in the tenure, or the first.
    pub(super) fn of(
        acquired: Acquired,
        tenures: &mut SharedTenures,
        driver: &Arc<Driver>,
    ) -> Self {
        let new = || SharedTenure::of(acquired);
        let tenure = tenures.get_or_insert_with(acquired.lease.half(), new);
        tenure.leases.fetch_add(1, Ordering::AcqRel);
        Self {
            tenure: tenure.clone(),
            began: acquired.began,
            waited: u64::try_from(acquired.waited.as_nanos()).unwrap_or(u64::MAX),
            driver: driver.clone(),
            lock: acquired.lock,
            given_up: false,
        }
    }

    /// How long ago the tenure began.
    pub(crate) fn age(&self) -> Duration {
        self.driver.now().since(self.began)
    }

    /// How long the call waited for it.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }

    /// Why the lease is over, if it is: as the engine said, or because the clock says so.
    pub(crate) fn lost(&self) -> Option<LossReason> {
        self.tenure.lost(&self.driver.clock)
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self.lost() {
            Some(_) => Duration::ZERO,
            None => self.tenure.deadline().since(self.driver.now()),
        }
    }

    /// Waits until the lease is lost.
    pub(crate) async fn until_lost(&self) -> LossReason {
        self.tenure.until(|_| self.lost()).await
    }

    /// Waits until the lease is lost, or all that share the tenure were given up.
    pub(crate) fn until_over(&self) -> impl Future<Output = ()> + Send + 'static {
        let (tenure, clock) = (self.tenure.clone(), self.driver.clock.clone());
        let over = move |tenure: &SharedTenure| {
            let given_up = tenure.leases() == 0;
            (given_up || tenure.lost(&clock).is_some()).then_some(())
        };
        async move { tenure.until(over).await }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.given_up {
            self.tenure.give_up();
            let lease = self.tenure.lease;
            self.driver.feed(Input::Release { call: None, lease });
        }
    }
}

impl SharedTenure {
    fn of(acquired: Acquired) -> Arc<Self> {
        Arc::new(Self {
            lease: acquired.lease,
            token: acquired.token,
            deadline: AtomicU64::new(acquired.deadline.as_nanos()),
            lost: AtomicU8::new(HELD),
            leases: AtomicU32::new(0),
            changed: OnceLock::new(),
        })
    }

    /// How many leases share the tenure that were not given up.
    pub(crate) fn leases(&self) -> u32 {
        self.leases.load(Ordering::Acquire)
    }

    fn lost(&self, clock: &Clock) -> Option<LossReason> {
        let expired = || (clock.now() >= self.deadline()).then_some(LossReason::Expired);
        let lost = usize::from(self.lost.load(Ordering::Acquire));
        LossReason::ALL.get(lost).copied().or_else(expired)
    }

    async fn until<T>(&self, condition: impl Fn(&Self) -> Option<T>) -> T {
        let notify = self.changed.get_or_init(Box::default);
        // Either this sees the change, or who makes it sees that somebody waits: see `wake`.
        fence(Ordering::SeqCst);
        loop {
            let mut changed = std::pin::pin!(notify.notified());
            changed.as_mut().enable();
            if let Some(value) = condition(self) {
                return value;
            }
            changed.await;
        }
    }

    pub(super) fn give_up(&self) {
        if self.leases.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake();
        }
    }

    /// Keeps the tenures up to date with what the engine says happened. Returns one that was
    /// lost: who waits for that is to be woken with nothing locked.
    pub(super) fn follow(
        tenures: &mut SharedTenures,
        lease: LeaseId,
        event: &LeaseEvent,
        deadline: Option<Timestamp>,
    ) -> Option<Arc<Self>> {
        let id = lease.half();
        match event {
            LeaseEvent::Renewed { .. } => {
                let tenure = tenures.get(&id)?;
                let deadline = deadline.map_or(0, Timestamp::as_nanos);
                tenure.deadline.fetch_max(deadline, Ordering::AcqRel);
            }
            // Some of the servers that it stands on have taken it away.
            LeaseEvent::AtRisk { .. } => {
                let tenure = tenures.get(&id)?;
                let deadline = deadline.unwrap_or(Timestamp::NEVER).as_nanos();
                tenure.deadline.fetch_min(deadline, Ordering::AcqRel);
            }
            LeaseEvent::Lost { reason, .. } => {
                let tenure = tenures.take(&id)?;
                tenure.lose(*reason);
                return Some(tenure);
            }
            LeaseEvent::Released { .. } => drop(tenures.take(&id)),
            _ => {}
        }
        None
    }

    fn lose(&self, reason: LossReason) {
        let place = LossReason::ALL.iter().position(|other| *other == reason);
        let place = place.and_then(|place| u8::try_from(place).ok());
        self.lost.store(place.unwrap_or(0), Ordering::Release);
    }

    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if let Some(notify) = self.changed.get() {
            notify.notify_waiters();
        }
    }

    fn deadline(&self) -> Timestamp {
        Timestamp::from_nanos(self.deadline.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred thousand leases may be held: with its counters this has to fit into 72 bytes.
    #[test]
    fn a_tenure_is_small() {
        assert!(
            size_of::<SharedTenure>() <= 56,
            "{}",
            size_of::<SharedTenure>()
        );
    }
}
