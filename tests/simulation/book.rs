//! What one host's program was told: its calls, its leases, and whether that makes sense.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{CallId, Done, Engine, LockId, LockSpec, Wait};
use leasehold::protocol::LeaseId;
use leasehold::time::Timestamp;
use leasehold::{Error, ErrorKind, FencingToken, LeaseEvent, LossReason};

use crate::checks::Checks;

#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) lease: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) deadline: Timestamp,
    pub(crate) leases: u32,
}

#[derive(Debug)]
pub(crate) struct LockState {
    pub(crate) spec: Arc<LockSpec>,
    pub(crate) held: Option<Tenure>,
    /// Given up by the program, and not yet confirmed.
    pub(crate) releasing: Option<Tenure>,
    pub(crate) closing: bool,
    /// The acquisition that is under way, or was the last.
    pub(crate) attempt: Option<LeaseId>,
}

/// An acquisition.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) lock: LockId,
    /// The last moment at which any of its callers wanted the lock.
    pub(crate) wanted: Timestamp,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Acquire { lock: LockId, wait: Wait },
    Renew { lock: LockId },
    Release,
    Query,
    Shutdown,
}

#[derive(Debug)]
struct Pending {
    call: Call,
    since: Timestamp,
}

/// The moment at which a host looks.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Look {
    pub(crate) now: Timestamp,
    /// The host was paused until now, and could not do anything earlier.
    pub(crate) excused: bool,
}

#[derive(Debug)]
pub(crate) struct Book {
    host: usize,
    /// The longest that a call may take which does not wait for a lock.
    limit: Duration,
    pub(crate) locks: BTreeMap<LockId, LockState>,
    calls: BTreeMap<CallId, Pending>,
    pub(crate) attempts: BTreeMap<LeaseId, Attempt>,
    pub(crate) ended: BTreeSet<LeaseId>,
    /// Those whose release the server had not confirmed when they expired.
    pub(crate) unconfirmed: BTreeSet<LeaseId>,
    pub(crate) shutdown: bool,
}

/// What the program does.
impl Book {
    pub(crate) fn new(host: usize, limit: Duration) -> Self {
        Self {
            host,
            limit,
            locks: BTreeMap::new(),
            calls: BTreeMap::new(),
            attempts: BTreeMap::new(),
            ended: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            shutdown: false,
        }
    }

    pub(crate) fn calls(&mut self, id: CallId, call: Call, since: Timestamp) {
        self.calls.insert(id, Pending { call, since });
    }

    /// The calls that a program may give up.
    pub(crate) fn cancellable(&self) -> Vec<(CallId, Option<LockId>)> {
        let lock = |(id, pending): (&CallId, &Pending)| match pending.call {
            Call::Acquire { lock, .. } | Call::Renew { lock } => Some((*id, Some(lock))),
            Call::Query => Some((*id, None)),
            Call::Release | Call::Shutdown => None,
        };
        self.calls.iter().filter_map(lock).collect()
    }

    pub(crate) fn cancel(&mut self, call: CallId) {
        self.calls.remove(&call);
    }

    pub(crate) fn is_pending(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
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

    pub(crate) fn held(&self) -> Vec<LockId> {
        let held = |(id, lock): (&LockId, &LockState)| lock.held.is_some().then_some(*id);
        self.locks.iter().filter_map(held).collect()
    }

    /// A caller wants a lock: it begins an acquisition, or joins the one that is under way.
    pub(crate) fn acquire(&mut self, id: LockId, lease: LeaseId, wait: Wait) {
        let of = |pending: &Pending| matches!(pending.call, Call::Acquire { lock, .. } if lock == id);
        let joins = self.calls.values().any(of);
        let Some(lock) = self.locks.get_mut(&id) else { return };
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

/// What the program is told.
impl Book {
    pub(crate) fn completed(
        &mut self,
        checks: &mut Checks,
        look: Look,
        id: CallId,
        result: &Result<Done, Error>,
    ) {
        let host = self.host;
        let Some(Pending { call, .. }) = self.calls.remove(&id) else {
            let message = || format!("host {host}: {id:?}, over or cancelled, got {result:?}");
            return checks.ensure("calls", false, message);
        };
        let fits = match (call, result) {
            (Call::Acquire { lock, .. }, Ok(Done::Acquired(grant))) => {
                let held = self.locks.get_mut(&lock).and_then(|lock| lock.held.as_mut());
                let told = (grant.lease, grant.token, grant.deadline);
                held.is_some_and(|held| {
                    held.leases += 1;
                    told == (held.lease, held.token, held.deadline)
                })
            }
            (Call::Acquire { wait, .. }, Ok(Done::Busy)) => match wait {
                Wait::Never => true,
                Wait::Until(until) => until <= look.now,
                Wait::Forever => false,
            },
            (Call::Renew { lock }, Ok(Done::Renewed)) => {
                self.locks.get(&lock).is_some_and(|lock| lock.held.is_some())
            }
            (Call::Renew { .. } | Call::Release, Err(error)) if error.is_not_held() => true,
            (Call::Release, Ok(Done::Released))
            | (Call::Query, Ok(Done::Inspected(_) | Done::ForceReleased(_)))
            | (Call::Shutdown, Ok(Done::ShutDown)) => true,
            (Call::Shutdown, _) => false,
            (_, Err(error)) if error.kind() == ErrorKind::Shutdown => self.shutdown,
            (_, Err(error)) => error.is_transient(),
            (_, Ok(_)) => false,
        };
        checks.saw(if result.is_ok() { "call done" } else { "call failed" });
        checks.ensure("calls", fits, || format!("host {host}: {call:?} got {result:?}"));
    }

    pub(crate) fn event(
        &mut self,
        checks: &mut Checks,
        look: Look,
        id: LockId,
        event: &LeaseEvent,
        deadline: Option<Timestamp>,
    ) {
        let host = self.host;
        let Some(lock) = self.locks.get_mut(&id) else {
            let message = || format!("host {host}: {id:?} was closed, and then {event:?}");
            return checks.ensure("I5", false, message);
        };
        let held = lock.held.as_mut().filter(|held| Some(held.token) == event.token());
        match event {
            LeaseEvent::Acquired { token, .. } => {
                let granted = checks.granted(&lock.spec.key, *token).map(|granted| granted.lease);
                let lease = granted.unwrap_or(LeaseId(0));
                let own = self.attempts.get(&lease).is_some_and(|attempt| attempt.lock == id);
                let idle = lock.held.is_none() && lock.releasing.is_none();
                let deadline = deadline.unwrap_or(look.now);
                lock.held = Some(Tenure { lease, token: *token, deadline, leases: 0 });
                let fresh = own && idle && !self.ended.contains(&lease);
                checks.saw("acquired");
                checks.ensure("I4", fresh && look.now < deadline, || {
                    format!("host {host}: out of place, or of the past: {event:?}")
                });
            }
            LeaseEvent::Renewed { .. } => {
                let old = held.as_ref().map(|held| held.deadline);
                let kept = old.is_some_and(|old| deadline >= Some(old) && look.now < old);
                if let (Some(held), Some(deadline)) = (held, deadline) {
                    held.deadline = deadline;
                }
                checks.saw("renewed");
                checks.ensure("I4", kept, || format!("host {host}: not held, and {event:?}"));
            }
            LeaseEvent::AtRisk { .. } => {
                // The time is told first, and then that the program gives the lease up.
                let given_up = lock.releasing.as_ref().map(|tenure| tenure.token);
                let held = held.is_some() || given_up == event.token();
                checks.saw("at risk");
                checks.ensure("I4", held, || format!("host {host}: not held, and {event:?}"));
            }
            LeaseEvent::Waiting { .. } => {
                let idle = lock.held.is_none();
                checks.ensure("calls", idle, || format!("host {host}: held, and {event:?}"));
            }
            LeaseEvent::Lost { reason, .. } => self.lost(checks, look, id, event, *reason),
            LeaseEvent::Released { .. } => {
                let token = event.token();
                let given_up = lock.releasing.take_if(|tenure| Some(tenure.token) == token);
                self.ended.extend(given_up.as_ref().map(|tenure| tenure.lease));
                checks.saw("released");
                checks.ensure("I4", given_up.is_some(), || {
                    format!("host {host}: not given up, and {event:?}")
                });
            }
            other => checks.ensure("calls", false, || format!("host {host}: {other:?}")),
        }
    }

    fn lost(
        &mut self,
        checks: &mut Checks,
        look: Look,
        id: LockId,
        event: &LeaseEvent,
        reason: LossReason,
    ) {
        let (host, token) = (self.host, event.token());
        let Some(lock) = self.locks.get_mut(&id) else { return };
        let of = |tenure: &mut Tenure| Some(tenure.token) == token;
        let held = lock.held.take_if(of);
        let given_up = lock.releasing.take_if(of);
        let key = lock.spec.key.clone();
        checks.saw(match reason {
            LossReason::Expired if given_up.is_some() => "release expired",
            LossReason::Expired => "lost: expired",
            LossReason::Deleted => "lost: deleted",
            LossReason::Superseded => "lost: superseded",
            LossReason::Shutdown => "lost: shutdown",
            _ => "lost: otherwise",
        });
        if let Some(tenure) = &held {
            let in_time = look.now <= tenure.deadline || look.excused;
            checks.ensure("I4", in_time, || {
                let late = look.now.since(tenure.deadline);
                format!("host {host}: told {late:?} after the deadline: {event:?}")
            });
        } else if reason == LossReason::Expired {
            self.unconfirmed.extend(given_up.as_ref().map(|tenure| tenure.lease));
        }
        let tenure = held.or(given_up);
        let by_others = matches!(reason, LossReason::Deleted | LossReason::Superseded);
        let disturbed = |tenure: &Tenure| checks.is_disturbed(&key, tenure.token);
        let cause = !by_others || tenure.as_ref().is_none_or(disturbed);
        checks.ensure("I4", cause, || {
            format!("host {host}: nobody touched the lock, and {event:?}")
        });
        checks.ensure("I4", tenure.is_some(), || format!("host {host}: not held, and {event:?}"));
        self.ended.extend(tenure.map(|tenure| tenure.lease));
    }

    pub(crate) fn closed(&mut self, checks: &mut Checks, id: LockId) {
        let host = self.host;
        let lock = self.locks.remove(&id);
        let over = |lock: LockState| {
            lock.closing && lock.held.is_none() && lock.releasing.is_none()
        };
        checks.ensure("calls", lock.is_some_and(over), || {
            format!("host {host}: {id:?} was closed too early, twice or unasked")
        });
    }

    /// What must hold whenever a host has done all that there is to do.
    pub(crate) fn settled(&self, checks: &mut Checks, now: Timestamp, engine: &Engine) {
        let host = self.host;
        let wake = engine.wake_at().unwrap_or(Timestamp::NEVER);
        for (id, lock) in &self.locks {
            let deadline = lock.held.as_ref().map(|held| held.deadline);
            let known = engine.held(now, *id).is_some() == deadline.is_some();
            checks.ensure("I4", known, || {
                format!("host {host}: the engine and the events differ on {id:?}")
            });
            let watched = deadline.is_none_or(|deadline| now < deadline && wake <= deadline);
            checks.ensure("I4", watched, || {
                format!("host {host}: {id:?} ends at {deadline:?}, and nobody looks: {wake:?}")
            });
        }
        for (id, Pending { call, since }) in &self.calls {
            let in_time = match call {
                Call::Acquire { wait: Wait::Until(until), .. } => wake <= *until,
                Call::Acquire { wait: Wait::Forever, .. } => true,
                _ => now.since(*since) <= self.limit,
            };
            checks.ensure("calls", in_time, || {
                format!("host {host}: {id:?} is not answered: {call:?}")
            });
        }
    }
}
