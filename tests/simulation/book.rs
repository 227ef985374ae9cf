//! The state of one host's program: its locks, its calls and its leases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::FencingToken;
use leasehold_engine::engine::{CallId, LockId, LockSpec, Wait};
use leasehold_engine::protocol::{LeaseId, LockKey};
use leasehold_engine::time::Timestamp;

use crate::clock::Moment;

#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) lease: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) deadline: Timestamp,
    pub(crate) leases: u32,
    /// When the program was told the deadline.
    pub(crate) since: Timestamp,
    /// The longest time that its program ever asked for.
    pub(crate) longest: Duration,
    /// When it began, as its program was told.
    pub(crate) began: Timestamp,
    /// When the longest time that its lock allows is over at the latest, also if it was passed on.
    pub(crate) ends: Option<Moment>,
    /// True once the program was warned that its longest time ends.
    pub(crate) is_warned: bool,
}

/// The state of one contender for a lock: a re-entrant handle, or a single acquisition through another
/// handle.
#[derive(Debug)]
pub(crate) struct LockState {
    /// The lock's ID in the engine.
    pub(crate) handle: LockId,
    pub(crate) spec: Arc<LockSpec>,
    pub(crate) held: Option<Tenure>,
    /// A tenure that the program has given up, and whose end is not confirmed yet.
    pub(crate) releasing: Option<Tenure>,
    /// The acquisition in progress, or the latest one.
    pub(crate) attempt: Option<LeaseId>,
}

#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) spec: Arc<LockSpec>,
    pub(crate) closing: bool,
}

/// An acquisition.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Attempt {
    /// The contender: a key of [`Book::locks`].
    pub(crate) lock: LockId,
    /// The last moment at which any of its callers wanted the lock.
    pub(crate) wanted: Timestamp,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Acquire {
        lock: LockId,
        lease: LeaseId,
        wait: Wait,
    },
    Renew {
        lock: LockId,
        lease: LeaseId,
    },
    Pass {
        lock: LockId,
    },
    Accept {
        lock: LockId,
        lease: LeaseId,
    },
    Release,
    Query,
    Shutdown,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) call: Call,
    pub(crate) since: Timestamp,
}

/// The moment at which a host acts.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Look {
    pub(crate) now: Timestamp,
    /// True if the host was paused until now and could not act earlier.
    pub(crate) excused: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) host: usize,
    /// The longest that a call may take if it does not wait for a lock.
    pub(crate) limit: Duration,
    pub(crate) handles: BTreeMap<LockId, Handle>,
    /// The contenders, by handle if the handle is re-entrant, otherwise by a number of the acquisition's own.
    pub(crate) locks: BTreeMap<LockId, LockState>,
    pub(crate) calls: BTreeMap<CallId, Pending>,
    pub(crate) attempts: BTreeMap<LeaseId, Attempt>,
    pub(crate) ended: BTreeSet<LeaseId>,
    /// The tenures that were passed on, and their locks.
    pub(crate) passed: Vec<(LockId, Tenure)>,
    /// Leases whose release the server had not confirmed when they expired.
    pub(crate) unconfirmed: BTreeSet<LeaseId>,
    /// Unsuccessful acquisitions that no caller wants any more.
    pub(crate) left: Vec<(LockKey, LeaseId)>,
    pub(crate) shutdown: bool,
    /// When the engine last reported that the clocks drift.
    pub(crate) noticed: Option<Timestamp>,
}

/// The acts of the program.
impl Book {
    pub(crate) fn new(host: usize, limit: Duration) -> Self {
        Self {
            host,
            limit,
            ..Self::default()
        }
    }

    pub(crate) fn begin(&mut self, id: CallId, call: Call, since: Timestamp) {
        self.calls.insert(id, Pending { call, since });
    }

    /// Returns the calls that the program may cancel.
    pub(crate) fn cancellable(&self) -> Vec<(CallId, Option<(LockId, LeaseId)>)> {
        let handle = |lock| self.locks.get(&lock).map(|lock| lock.handle);
        let lock = |(id, pending): (&CallId, &Pending)| match pending.call {
            Call::Acquire { lock, lease, .. }
            | Call::Accept { lock, lease }
            | Call::Renew { lock, lease } => Some((*id, Some((handle(lock)?, lease)))),
            Call::Query => Some((*id, None)),
            Call::Pass { .. } | Call::Release | Call::Shutdown => None,
        };
        self.calls.iter().filter_map(lock).collect()
    }

    pub(crate) fn cancel(&mut self, call: CallId) {
        if let Some(Pending { call, .. }) = self.calls.remove(&call) {
            self.leaves(call);
        }
    }

    /// Notes that a call ended without its lock. If it was the last caller, no caller wants the lock any
    /// more.
    pub(crate) fn leaves(&mut self, call: Call) {
        let (Call::Acquire { lock: id, .. } | Call::Accept { lock: id, .. }) = call else {
            return;
        };
        let of =
            |pending: &Pending| matches!(pending.call, Call::Acquire { lock, .. } if lock == id);
        let Some(lock) = self.locks.get(&id) else {
            return;
        };
        let gone = lock.held.is_none() && !self.calls.values().any(of);
        let lease = lock
            .attempt
            .filter(|lease| gone && !self.ended.contains(lease));
        self.left
            .extend(lease.map(|lease| (lock.spec.key.clone(), lease)));
    }

    /// Returns the contender that uses this lease ID.
    pub(crate) fn contender(&self, lease: LeaseId) -> Option<LockId> {
        self.attempts.get(&lease).map(|attempt| attempt.lock)
    }

    /// Returns the acquisition that a server knows by this ID. Each member of a quorum has its own ID for it;
    /// half of the ID is common to all.
    pub(crate) fn whole(&self, lease: LeaseId) -> Option<LeaseId> {
        let from = LeaseId(lease.0 >> 64 << 64);
        let mut from = self.attempts.range(from..).map(|(lease, _)| *lease);
        from.next().filter(|found| found.half() == lease.half())
    }

    pub(crate) fn is_pending(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
    }

    /// Returns the locks that a call waits for, with their specifications.
    pub(crate) fn waiting(&self) -> Vec<(LockId, &LockSpec)> {
        let waits = |call: &Call| match call {
            Call::Acquire { lock, wait, .. } if *wait != Wait::Never => Some(*lock),
            _ => None,
        };
        let locks = self
            .calls
            .values()
            .filter_map(|pending| waits(&pending.call));
        let spec = |id| Some((id, &*self.locks.get(&id)?.spec));
        locks.filter_map(spec).collect()
    }

    pub(crate) fn pending(&self) -> usize {
        self.calls.len()
    }

    /// Gives up one lease of a held lock.
    pub(crate) fn release(&mut self, lock: LockId) -> Option<LeaseId> {
        let lock = self.locks.get_mut(&lock)?;
        let tenure = lock.held.as_mut()?;
        tenure.leases -= 1;
        let lease = tenure.lease;
        if tenure.leases == 0 {
            lock.releasing = lock.held.take();
        }
        Some(lease)
    }

    /// Notes that the program asks for another time to live of a held lock.
    pub(crate) fn asks_for(&mut self, lock: LockId, ttl: Option<Duration>) {
        let lock = self.locks.get_mut(&lock);
        if let Some(tenure) = lock.and_then(|lock| lock.held.as_mut()) {
            tenure.longest = tenure.longest.max(ttl.unwrap_or_default());
        }
    }

    pub(crate) fn held(&self) -> Vec<LockId> {
        let held = |(id, lock): (&LockId, &LockState)| lock.held.is_some().then_some(*id);
        self.locks.iter().filter_map(held).collect()
    }

    /// Notes that a caller wants a lock: it begins an acquisition, or joins the one in progress.
    pub(crate) fn acquire(&mut self, id: LockId, lease: LeaseId, wait: Wait, now: Timestamp) {
        // The engine ends expired calls before it takes in the new one.
        let of = |pending: &Pending| match pending.call {
            Call::Acquire { lock, wait, .. } if lock == id => match wait {
                Wait::Until(until) => until > now,
                Wait::Never | Wait::Forever => true,
            },
            _ => false,
        };
        let joins = self.calls.values().any(of);
        let Some(lock) = self.locks.get_mut(&id) else {
            return;
        };
        let until = match wait {
            Wait::Until(until) => until,
            Wait::Never | Wait::Forever => Timestamp::NEVER,
        };
        // The calls to join may just have ended, as the engine sees it. Then this call begins an acquisition.
        let wanted = if joins { Timestamp::NEVER } else { until };
        self.attempts.insert(lease, Attempt { lock: id, wanted });
        let current = *lock.attempt.get_or_insert(lease);
        match self.attempts.get_mut(&current) {
            Some(attempt) if joins => attempt.wanted = attempt.wanted.max(until),
            _ => lock.attempt = Some(lease),
        }
    }

    /// Restarts the time of pending calls: a pause of the host makes them late, and that is allowed.
    pub(crate) fn excuse(&mut self, now: Timestamp) {
        for pending in self.calls.values_mut() {
            pending.since = now;
        }
    }
}
