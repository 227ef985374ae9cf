//! What one host's program knows: its locks, its calls, its leases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::FencingToken;
use leasehold_engine::engine::{CallId, LockId, LockSpec, Wait};
use leasehold_engine::protocol::{LeaseId, LockKey};
use leasehold_engine::time::Timestamp;

#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) lease: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) deadline: Timestamp,
    pub(crate) leases: u32,
    /// When the deadline was told.
    pub(crate) since: Timestamp,
    /// The longest time that its program ever asked for.
    pub(crate) longest: Duration,
}

/// Who contends for a lock: a re-entrant handle, or one acquisition through another one.
#[derive(Debug)]
pub(crate) struct LockState {
    /// As the engine knows it.
    pub(crate) handle: LockId,
    pub(crate) spec: Arc<LockSpec>,
    pub(crate) held: Option<Tenure>,
    /// Given up by the program, and not yet confirmed.
    pub(crate) releasing: Option<Tenure>,
    /// The acquisition that is under way, or was the last.
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
    /// Whose: a key of [`Book::locks`].
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
    Release,
    Query,
    Shutdown,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) call: Call,
    pub(crate) since: Timestamp,
}

/// The moment at which a host looks.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Look {
    pub(crate) now: Timestamp,
    /// The host was paused until now, and could not do anything earlier.
    pub(crate) excused: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) host: usize,
    /// The longest that a call may take which does not wait for a lock.
    pub(crate) limit: Duration,
    pub(crate) handles: BTreeMap<LockId, Handle>,
    /// By the handle if that is re-entrant, else by a number of each acquisition's own.
    pub(crate) locks: BTreeMap<LockId, LockState>,
    pub(crate) calls: BTreeMap<CallId, Pending>,
    pub(crate) attempts: BTreeMap<LeaseId, Attempt>,
    pub(crate) ended: BTreeSet<LeaseId>,
    /// Those whose release the server had not confirmed when they expired.
    pub(crate) unconfirmed: BTreeSet<LeaseId>,
    /// Acquisitions that nobody wants any more, and that did not succeed.
    pub(crate) left: Vec<(LockKey, LeaseId)>,
    pub(crate) shutdown: bool,
    /// When it was told last that the clocks drift.
    pub(crate) noticed: Option<Timestamp>,
}

/// What the program does.
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

    /// The calls that a program may give up.
    pub(crate) fn cancellable(&self) -> Vec<(CallId, Option<(LockId, LeaseId)>)> {
        let handle = |lock| self.locks.get(&lock).map(|lock| lock.handle);
        let lock = |(id, pending): (&CallId, &Pending)| match pending.call {
            Call::Acquire { lock, lease, .. } | Call::Renew { lock, lease } => {
                Some((*id, Some((handle(lock)?, lease))))
            }
            Call::Query => Some((*id, None)),
            Call::Release | Call::Shutdown => None,
        };
        self.calls.iter().filter_map(lock).collect()
    }

    pub(crate) fn cancel(&mut self, call: CallId) {
        if let Some(Pending { call, .. }) = self.calls.remove(&call) {
            self.leaves(call);
        }
    }

    /// A call that is over did not get its lock; if it was the last, nobody wants it.
    pub(crate) fn leaves(&mut self, call: Call) {
        let Call::Acquire { lock: id, .. } = call else {
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

    /// Who contends with this lease id.
    pub(crate) fn contender(&self, lease: LeaseId) -> Option<LockId> {
        self.attempts.get(&lease).map(|attempt| attempt.lock)
    }

    /// The acquisition that a server knows by this id. Each member of a quorum has an id of its own for
    /// it, of which half is the same.
    pub(crate) fn whole(&self, lease: LeaseId) -> Option<LeaseId> {
        let from = LeaseId(lease.0 >> 64 << 64);
        let mut from = self.attempts.range(from..).map(|(lease, _)| *lease);
        from.next().filter(|found| found.half() == lease.half())
    }

    pub(crate) fn is_pending(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
    }

    /// The locks that a call waits for, with what they are.
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

    /// One lease of a held lock is given up.
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

    /// The program asks for another time to live of what it holds.
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

    /// A caller wants a lock: it begins an acquisition, or joins the one that is under way.
    pub(crate) fn acquire(&mut self, id: LockId, lease: LeaseId, wait: Wait, now: Timestamp) {
        // The engine looks at what is over before it takes in the new call.
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
        // Those that it joins may just have ended, as the engine sees it: then it begins one.
        let wanted = if joins { Timestamp::NEVER } else { until };
        self.attempts.insert(lease, Attempt { lock: id, wanted });
        let current = *lock.attempt.get_or_insert(lease);
        match self.attempts.get_mut(&current) {
            Some(attempt) if joins => attempt.wanted = attempt.wanted.max(until),
            _ => lock.attempt = Some(lease),
        }
    }

    /// Calls that are late because the host was paused are not to blame.
    pub(crate) fn excuse(&mut self, now: Timestamp) {
        for pending in self.calls.values_mut() {
            pending.since = now;
        }
    }
}
