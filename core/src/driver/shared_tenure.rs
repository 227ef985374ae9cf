//! Tenures, and the leases that share them.

use std::future::Future;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_engine::engine::{Acquired, Table};
use leasehold_engine::protocol::{Admission, HalfId, LeaseId};
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
    /// How long the call waited for it, in nanoseconds.
    waited: u64,
    /// The slots and the state of a shared name.
    pub(crate) admission: Option<Arc<Admission>>,
    pub(super) driver: Arc<Driver>,
    pub(super) lock: LockId,
    pub(super) given_up: bool,
}

/// The state of a tenure that its leases read without the engine.
pub(crate) struct SharedTenure {
    pub(super) lease: LeaseId,
    pub(crate) token: FencingToken,
    deadline: AtomicU64,
    /// The index of the loss reason in [`LossReason::ALL`], or `HELD`.
    lost: AtomicU8,
    /// The number of leases that were not given up.
    leases: AtomicU32,
    /// Created by the first task that waits for a change; most tenures never need it.
    changed: OnceLock<Box<Notify>>,
}

const HELD: u8 = u8::MAX;

/// The tenures that are held. The first halves of the engine's lease IDs are unique.
pub(super) type SharedTenures = Table<HalfId, Arc<SharedTenure>>;

impl Share {
    /// Creates a call's share in a tenure, and the tenure if it is new.
    pub(super) fn of(
        acquired: Acquired,
        tenures: &mut SharedTenures,
        driver: &Arc<Driver>,
    ) -> Self {
        let new = || SharedTenure::of(&acquired);
        let tenure = tenures.get_or_insert_with(acquired.lease.half(), new);
        tenure.leases.fetch_add(1, Ordering::AcqRel);
        Self {
            tenure: tenure.clone(),
            began: acquired.began,
            waited: u64::try_from(acquired.waited.as_nanos()).unwrap_or(u64::MAX),
            driver: driver.clone(),
            lock: acquired.lock,
            admission: acquired.admission,
            given_up: false,
        }
    }

    /// Returns how long ago the tenure began.
    pub(crate) fn age(&self) -> Duration {
        self.driver.now().since(self.began)
    }

    /// Returns how long the call waited for it.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }

    /// Returns why the lease is over, by the engine's report or by the clock; `None` while it is held.
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

    /// Waits until the lease is lost, or every share in the tenure was given up.
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
    fn of(acquired: &Acquired) -> Arc<Self> {
        Arc::new(Self {
            lease: acquired.lease,
            token: acquired.token,
            deadline: AtomicU64::new(acquired.deadline.as_nanos()),
            lost: AtomicU8::new(HELD),
            leases: AtomicU32::new(0),
            changed: OnceLock::new(),
        })
    }

    /// Returns the number of leases that were not given up.
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
        // Pairs with the fence in `wake`: either this sees the change, or `wake` sees the `Notify`.
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

    /// Updates the tenures with an event of the engine. Returns a tenure that was lost; wake its waiters with
    /// nothing locked.
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
            // Some members of the quorum have taken the lease away, which brings the deadline forward.
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
            LeaseEvent::Released { .. } | LeaseEvent::Passed { .. } => drop(tenures.take(&id)),
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
    use leasehold_engine::{Error, Name};

    use super::*;

    /// Catches a lease of a quorum that counts until its former deadline after some members have taken it away, and a
    /// renewal that brings the deadline forward.
    #[test]
    fn a_deadline_moves_as_the_engine_says() {
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let lease: LeaseId = "0123456789abcdef0123456789abcdef".parse().expect("digits");
        let token = FencingToken::new(34).expect("it is a token");
        let mut tenures = SharedTenures::default();
        let tenure = SharedTenure::of(&Acquired {
            lock: LockId(1),
            lease,
            token,
            deadline: at(30),
            began: at(0),
            waited: Duration::ZERO,
            admission: None,
        });
        let tenure = tenures.get_or_insert_with(lease.half(), || tenure).clone();
        let (name, remaining) = (Name::new("a").expect("valid"), Duration::ZERO);
        let at_risk = LeaseEvent::AtRisk {
            name: name.clone(),
            token,
            remaining,
            error: Error::no_answer(),
        };
        let renewed = LeaseEvent::Renewed {
            name,
            token,
            remaining,
        };
        for (event, deadline, then) in [
            (&at_risk, None, 30),
            (&renewed, Some(at(40)), 40),
            (&renewed, Some(at(35)), 40),
            (&at_risk, Some(at(50)), 40),
            (&at_risk, Some(at(20)), 20),
        ] {
            SharedTenure::follow(&mut tenures, lease, event, deadline);
            assert_eq!(tenure.deadline(), at(then), "{event:?}");
        }
    }

    /// A hundred thousand leases may be held. With the counters of its `Arc` a tenure has to fit into 72
    /// bytes.
    #[test]
    fn a_tenure_is_small() {
        assert!(
            size_of::<SharedTenure>() <= 56,
            "{}",
            size_of::<SharedTenure>()
        );
    }
}
