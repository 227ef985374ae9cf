//! Who wants a lock or has it, and through which handle.

use std::sync::Arc;

use super::Engine;
use super::acquiring::Acquiring;
use super::io::{CallId, LockId, LockSpec, Output};
use super::table::Short;
use super::tenure::Tenure;
use super::timers::Timed;
use crate::event::LeaseEvent;
use crate::protocol::LeaseId;
use crate::time::Timestamp;

/// One acquisition, from wanting the lock to the end of its tenure. All calls of a re-entrant handle
/// have one together, every other call has its own.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) lock: LockId,
    pub(super) spec: Arc<LockSpec>,
    pub(super) phase: Phase,
    pub(super) wake: Timestamp,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// In a box, since most contenders of a large locker hold their lock.
    Acquiring(Box<Acquiring>),
    Held(Tenure),
}

/// A handle that somebody contends through, or whose last release is not confirmed.
#[derive(Debug, Default)]
pub(super) struct Lock {
    /// How many contenders and unconfirmed releases it has.
    uses: usize,
    /// Of a re-entrant handle: whose tenure all its calls share.
    pub(super) shared: Option<Short>,
    /// Who has the lock, and who else believes so, since the store forgot who had it.
    held: Option<Short>,
    forgotten: Vec<Short>,
    /// The release of its last tenure, while that is not confirmed.
    pub(super) releasing: Option<Short>,
    closed: bool,
}

impl Contender {
    pub(super) fn new(lock: LockId, spec: Arc<LockSpec>, acquiring: Acquiring) -> Self {
        Self {
            lock,
            spec,
            phase: Phase::Acquiring(Box::new(acquiring)),
            wake: Timestamp::NEVER,
        }
    }

    fn held(&self, now: Timestamp) -> Option<(LeaseId, LeaseEvent)> {
        let Phase::Held(tenure) = &self.phase else {
            return None;
        };
        let event = LeaseEvent::Acquired {
            name: self.spec.name.clone(),
            token: tenure.token,
            remaining: tenure.deadline.since(now),
        };
        (!tenure.is_over(&self.spec, now)).then_some((tenure.lease, event))
    }
}

/// What is held.
impl Engine {
    /// The leases that are held now, in no order, each with an `Acquired` event that says so; for
    /// readers that begin or that missed something.
    pub fn all_held(&self, now: Timestamp) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        let contenders = self.contenders.values();
        contenders.filter_map(move |contender| contender.held(now))
    }

    /// As [`all_held`](Self::all_held), of one handle.
    pub fn held(
        &self,
        now: Timestamp,
        lock: LockId,
    ) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        let held = self.locks.get(&lock).into_iter();
        let held = held.flat_map(|lock| lock.held.iter().chain(&lock.forgotten));
        held.filter_map(move |id| self.contenders.get(id)?.held(now))
    }
}

/// Handles and their contenders.
impl Engine {
    pub(super) fn add_contender(&mut self, id: Short, contender: Contender) {
        let lock = self.locks.get_or_insert_with(contender.lock, Lock::default);
        lock.uses += 1;
        if contender.spec.reentrant {
            lock.shared = Some(id);
        }
        self.contenders.insert(id, Box::new(contender));
    }

    /// Whom a call concerns that was made through this handle with this lease id.
    pub(super) fn contender_of(&self, lock: LockId, lease: LeaseId) -> Option<Short> {
        let own = Short::of(lease);
        if self.contenders.contains_key(&own) {
            return Some(own);
        }
        self.locks.get(&lock)?.shared
    }

    /// It has the lock from now on.
    pub(super) fn hold(&mut self, id: Short, tenure: Tenure) {
        if let Some(contender) = self.contenders.get_mut(&id) {
            contender.phase = Phase::Held(tenure);
            let lock = self.locks.get_or_insert_with(contender.lock, Lock::default);
            lock.forgotten.extend(lock.held.replace(id));
        }
    }

    /// Takes one out that neither wants the lock any more nor has it. Its handle has to be
    /// [left](Self::leave) once all is told that there is to tell.
    pub(super) fn take_contender(&mut self, id: Short) -> Option<Contender> {
        let mut contender = *self.contenders.take(&id)?;
        let wake = &mut contender.wake;
        self.timers
            .set(Timed::Contender(id), wake, Timestamp::NEVER);
        if let Some(lock) = self.locks.get_mut(&contender.lock) {
            if lock.held == Some(id) {
                lock.held = lock.forgotten.pop();
            } else {
                lock.forgotten.retain(|held| *held != id);
            }
            lock.shared.take_if(|shared| *shared == id);
        }
        Some(contender)
    }

    /// The handle waits for the release of this tenure before it can be closed.
    pub(super) fn await_release(&mut self, lock: LockId, id: Short) {
        let lock = self.locks.get_or_insert_with(lock, Lock::default);
        lock.uses += 1;
        lock.releasing = Some(id);
    }

    /// A contender of the handle, or the release of its tenure, is at its end.
    pub(super) fn leave(&mut self, id: LockId) {
        let Some(lock) = self.locks.get_mut(&id) else {
            return;
        };
        lock.uses -= 1;
        if lock.uses == 0 {
            let closed = lock.closed;
            self.locks.take(&id);
            if closed {
                self.outputs.push_back(Output::Closed { lock: id });
            }
        }
    }

    pub(super) fn close(&mut self, id: LockId) {
        match self.locks.get_mut(&id) {
            Some(lock) => lock.closed = true,
            None => self.outputs.push_back(Output::Closed { lock: id }),
        }
    }

    pub(super) fn cancel(&mut self, id: Short, call: CallId) {
        match self.contenders.get_mut(&id).map(|found| &mut found.phase) {
            Some(Phase::Acquiring(acquiring)) => {
                acquiring.remove(|caller| caller.call == call);
                if acquiring.callers.is_empty() {
                    self.end_acquiring(id);
                }
            }
            Some(Phase::Held(tenure)) => tenure.forget_renewal(call),
            None => {}
        }
        self.settle(id);
    }

    pub(super) fn contender_time(&mut self, id: Short) {
        match self.contenders.get(&id).map(|found| &found.phase) {
            Some(Phase::Acquiring(_)) => self.acquiring_time(id),
            Some(Phase::Held(_)) => self.tenure_time(id),
            None => {}
        }
        self.settle(id);
    }

    /// Sets a contender's timer to what its phase needs.
    pub(super) fn settle(&mut self, id: Short) {
        let Some(contender) = self.contenders.get_mut(&id) else {
            return;
        };
        let at = match &contender.phase {
            Phase::Acquiring(acquiring) => acquiring.wake_at(),
            Phase::Held(tenure) => tenure.wake_at(&contender.spec),
        };
        self.timers
            .set(Timed::Contender(id), &mut contender.wake, at);
    }

    pub(super) fn acquiring(&mut self, id: Short) -> Option<(&Arc<LockSpec>, &mut Acquiring)> {
        let contender = self.contenders.get_mut(&id)?;
        match &mut contender.phase {
            Phase::Acquiring(acquiring) => Some((&contender.spec, acquiring)),
            Phase::Held(_) => None,
        }
    }

    pub(super) fn tenure(&mut self, id: Short) -> Option<(&LockSpec, &mut Tenure)> {
        let contender = self.contenders.get_mut(&id)?;
        match &mut contender.phase {
            Phase::Held(tenure) => Some((&contender.spec, tenure)),
            Phase::Acquiring(_) => None,
        }
    }

    /// All who acquire, or all who hold, to be gone through one by one.
    pub(super) fn contenders_that(&self, are: impl Fn(&Phase) -> bool) -> Vec<Short> {
        let all = self.contenders.iter();
        all.filter(|(_, contender)| are(&contender.phase))
            .map(|(id, _)| *id)
            .collect()
    }
}
