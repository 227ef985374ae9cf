//! The checks of what one host's program is told against what it did.

use std::collections::BTreeSet;

use leasehold_engine::engine::{Answer, CallId, LockId, Wait};
use leasehold_engine::protocol::LeaseId;
use leasehold_engine::time::Timestamp;
use leasehold_engine::{ErrorKind, FencingToken, LeaseEvent, LossReason};

use crate::book::{Book, Call, Look, Pending, Tenure};
use crate::checks::Checks;

/// The answers and events that the program gets.
impl Book {
    pub(crate) fn completed(&mut self, checks: &mut Checks, at: Look, id: CallId, answer: &Answer) {
        let host = self.host;
        let Some(Pending { call, .. }) = self.calls.remove(&id) else {
            let message = || format!("host {host}: {id:?}, over or cancelled, got {answer:?}");
            return checks.ensure("calls", false, message);
        };
        let fits = match (call, answer) {
            (
                Call::Acquire { lock, .. } | Call::Accept { lock, .. },
                Answer::Acquire(Ok(Some(acquired))),
            ) => {
                let lock = self.locks.get_mut(&lock);
                let lock = lock.and_then(|lock| Some((&lock.spec, lock.held.as_mut()?)));
                let told = (acquired.lease, acquired.token, acquired.deadline);
                if let Some((spec, _)) = &lock {
                    checks.told_of_part(spec, acquired);
                }
                lock.is_some_and(|(spec, held)| {
                    held.leases += 1;
                    held.began = held.began.min(acquired.began);
                    checks.check_age((host, at.now), spec, held);
                    told == (held.lease, held.token, held.deadline)
                })
            }
            (Call::Acquire { wait, lock, .. }, Answer::Acquire(Ok(None))) => match wait {
                Wait::Never => true,
                Wait::Until(until) if until <= at.now => true,
                Wait::Until(_) | Wait::Forever => self.is_completed(checks, lock),
            },
            (Call::Renew { lock, .. }, Answer::Renew(Ok(()))) => self
                .locks
                .get(&lock)
                .is_some_and(|lock| lock.held.is_some()),
            (Call::Renew { .. }, Answer::Renew(Err(error)))
            | (Call::Release, Answer::Release(Err(error)))
                if error.is_not_held() =>
            {
                true
            }
            (Call::Release, Answer::Release(Ok(())))
            | (
                Call::Query,
                Answer::Inspect(Ok(_))
                | Answer::ForceRelease(Ok(_))
                | Answer::RequestYield(Ok(_))
                | Answer::Resize(Ok(_))
                | Answer::List(Ok(_)),
            )
            | (Call::Shutdown, Answer::Shutdown) => true,
            (Call::Pass { .. }, Answer::Pass(_)) => self.passes(checks, call, answer),
            (Call::Accept { .. }, Answer::Acquire(Err(error)))
                if matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Overheld) =>
            {
                checks.saw("a ticket was refused");
                true
            }
            (Call::Acquire { .. } | Call::Accept { .. }, Answer::Acquire(Err(error)))
            | (Call::Renew { .. }, Answer::Renew(Err(error)))
            | (Call::Release, Answer::Release(Err(error)))
            | (
                Call::Query,
                Answer::Inspect(Err(error))
                | Answer::ForceRelease(Err(error))
                | Answer::RequestYield(Err(error))
                | Answer::Resize(Err(error))
                | Answer::List(Err(error)),
            ) => match error.kind() {
                ErrorKind::Shutdown => self.shutdown,
                ErrorKind::Overheld => matches!(call, Call::Renew { .. }),
                ErrorKind::Config => self.may_refuse(checks, call),
                _ => error.is_transient(),
            },
            _ => false,
        };
        if !matches!(answer, Answer::Acquire(Ok(Some(_)))) {
            self.leaves(call);
        }
        checks.saw(if has_failed(answer) {
            "call failed"
        } else {
            "call done"
        });
        checks.ensure("calls", fits, || {
            format!("host {host}: {call:?} got {answer:?}")
        });
    }

    /// True if the store may refuse a call for the capacity of its name. A shared name has several holders, of
    /// which a forced release must name one.
    fn may_refuse(&self, checks: &mut Checks, call: Call) -> bool {
        let Call::Acquire { lock, .. } = call else {
            return call == Call::Query;
        };
        checks.saw("refused for the capacity");
        let spec = self.locks.get(&lock).map(|lock| &lock.spec);
        spec.is_some_and(|spec| checks.may_refuse(spec))
    }

    /// True if the tick that a lock claims is completed, or if the store has lost data since.
    fn is_completed(&self, checks: &Checks, lock: LockId) -> bool {
        let spec = self.locks.get(&lock).map(|lock| &lock.spec);
        spec.is_some_and(|spec| {
            let tick = spec.owner.tick();
            tick.is_some_and(|tick| checks.has_lost_data() || tick <= checks.completed(&spec.key))
        })
    }

    pub(crate) fn event(
        &mut self,
        checks: &mut Checks,
        at: Look,
        (handle, lease): (LockId, LeaseId),
        event: &LeaseEvent,
        deadline: Option<Timestamp>,
    ) {
        let host = self.host;
        let id = self.contender(lease).unwrap_or(handle);
        let lock = self.locks.get_mut(&id);
        let Some(lock) = lock.filter(|lock| lock.handle == handle) else {
            let message = || format!("host {host}: {handle:?} was closed, and then {event:?}");
            return checks.ensure("I5", false, message);
        };
        let held = lock
            .held
            .as_mut()
            .filter(|held| Some(held.token) == event.token());
        let not_held = || format!("host {host}: not held, and {event:?}");
        match event {
            LeaseEvent::Acquired { token, .. } => {
                let deadline = deadline.unwrap_or(at.now);
                self.acquired(checks, at, id, (*token, deadline));
            }
            LeaseEvent::Renewed { .. } => {
                let old = held.as_ref().map(|held| held.deadline);
                let kept = old.is_some_and(|old| deadline >= Some(old) && at.now < old);
                if let (Some(held), Some(deadline)) = (held, deadline) {
                    (held.deadline, held.since) = (deadline, at.now);
                    checks.check_age((host, at.now), &lock.spec, held);
                }
                checks.saw("renewed");
                checks.ensure("I4", kept, not_held);
            }
            LeaseEvent::AtRisk { error, .. } => {
                let is_overheld = error.kind() == ErrorKind::Overheld;
                // The time is told first, and then that the program gives the lease up.
                let given_up = lock.releasing.as_ref().map(|tenure| tenure.token);
                // A quorum's member may have taken away a vote that was counted on.
                let held = held.map(|held| {
                    held.is_warned |= is_overheld;
                    held.deadline = deadline.map_or(held.deadline, |at| held.deadline.min(at));
                });
                let held = held.is_some() || given_up == event.token();
                checks.saw("at risk");
                checks.ensure("I4", held, not_held);
            }
            LeaseEvent::Waiting { position, .. } => {
                let idle = lock.held.is_none() && position.is_some_and(|place| place > 0);
                checks.saw("told its place");
                checks.ensure("calls", idle, || {
                    format!("host {host}: held, and {event:?}")
                });
            }
            LeaseEvent::Wanted { token, .. } => {
                checks.saw("told that it is wanted");
                checks.ensure("yield", held.is_some(), not_held);
                checks.told_of_request(&lock.spec.key, *token);
            }
            LeaseEvent::Lost { reason, .. } => self.lost(checks, at, id, event, *reason),
            LeaseEvent::Released { .. } => {
                let token = event.token();
                let given_up = lock.releasing.take_if(|tenure| Some(tenure.token) == token);
                self.ended
                    .extend(given_up.as_ref().map(|tenure| tenure.lease));
                checks.saw("released");
                if let Some(tenure) = &given_up {
                    checks.told_of_release(&lock.spec, tenure, at.now);
                }
                checks.ensure("I4", given_up.is_some(), || {
                    format!("host {host}: not given up, and {event:?}")
                });
            }
            LeaseEvent::Passed { .. } => {
                let passed = lock.held.take_if(|held| Some(held.token) == event.token());
                checks.ensure("I4", passed.is_some(), not_held);
                self.ended.extend(passed.as_ref().map(|held| held.lease));
                self.passed.extend(passed.map(|held| (id, held)));
            }
            LeaseEvent::Begun { tick, .. } => {
                let fits = held.is_some() && lock.spec.owner.tick() == Some(*tick);
                checks.ensure("I9", fits, || {
                    format!("host {host}: not begun, and {event:?}")
                });
            }
            LeaseEvent::Missed { first, ticks, .. } => {
                let backlog = lock.spec.backlog.filter(|_| held.is_some());
                let fits = backlog.is_some_and(|own| (own.first, own.missed) == (*first, *ticks));
                checks.saw("told of missed ticks");
                checks.ensure("I9", fits, || {
                    format!("host {host}: {backlog:?} before its turn, and {event:?}")
                });
            }
            LeaseEvent::Completed { tick, .. } => {
                let completed = checks.completed(&lock.spec.key);
                let is_lost = checks.has_lost_data();
                checks.saw("told that a tick is completed");
                checks.ensure("I9", *tick <= completed || is_lost, || {
                    format!("host {host}: only {completed} is completed, and {event:?}")
                });
            }
            LeaseEvent::CapacityDiffers { .. } => {
                let share = lock.spec.owner.share().filter(|_| held.is_some());
                checks.told_of_capacity(host, share, event);
            }
            other => checks.ensure("calls", false, || format!("host {host}: {other:?}")),
        }
    }

    pub(crate) fn notice(&mut self, checks: &mut Checks, at: Look, event: &LeaseEvent) {
        let host = self.host;
        self.noticed = Some(at.now);
        let what = match event {
            LeaseEvent::ClockDrift { .. } => Some("told that clocks drift"),
            LeaseEvent::Quarantined { .. } => Some("told of a quarantine"),
            LeaseEvent::Readmitted { .. } => Some("told that it is over"),
            _ => None,
        };
        if let Some(what) = what {
            checks.saw(what);
        }
        checks.ensure("calls", what.is_some(), || {
            format!("host {host}: {event:?}")
        });
    }

    fn acquired(
        &mut self,
        checks: &mut Checks,
        at: Look,
        id: LockId,
        (token, deadline): (FencingToken, Timestamp),
    ) {
        let host = self.host;
        let Some(lock) = self.locks.get_mut(&id) else {
            return;
        };
        let granted = checks.granted(&lock.spec.key, token);
        let lease = granted.map_or(LeaseId(0), |granted| granted.lease);
        let attempt = self.attempts.get(&lease);
        let own = attempt.is_some_and(|attempt| attempt.lock == id);
        let idle = lock.held.is_none() && lock.releasing.is_none();
        lock.held = Some(Tenure {
            lease,
            token,
            deadline,
            leases: 0,
            since: at.now,
            longest: lock.spec.ttl,
            began: at.now,
            ends: checks.ends(&lock.spec, lease),
            is_warned: false,
        });
        checks.told_of_lease(&lock.spec, token);
        let fresh = own && idle && !self.ended.contains(&lease);
        checks.saw("acquired");
        checks.ensure("I4", fresh && at.now < deadline, || {
            format!("host {host}: {id:?} was acquired out of place or in the past, token {token}")
        });
    }

    fn lost(
        &mut self,
        checks: &mut Checks,
        at: Look,
        id: LockId,
        event: &LeaseEvent,
        reason: LossReason,
    ) {
        let (host, token) = (self.host, event.token());
        let Some(lock) = self.locks.get_mut(&id) else {
            return;
        };
        let is_job = lock.spec.owner.tick().is_some();
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
            LossReason::Overheld => "lost: overheld",
            LossReason::Revoked => "lost: revoked",
            _ => "lost: otherwise",
        });
        if let Some(tenure) = held.as_ref().filter(|_| reason == LossReason::Overheld) {
            let is_told = tenure.is_warned && tenure.ends.is_some();
            checks.ensure("age", is_told, || {
                format!("host {host}: {event:?} without a warning")
            });
        }
        if let Some(tenure) = &held {
            let in_time = at.now <= tenure.deadline || at.excused;
            checks.ensure("I4", in_time, || {
                let late = at.now.since(tenure.deadline);
                format!("host {host}: told {late:?} after the deadline: {event:?}")
            });
        } else if reason == LossReason::Expired {
            self.unconfirmed
                .extend(given_up.as_ref().map(|tenure| tenure.lease));
        }
        let tenure = held.or(given_up);
        let by_others = matches!(
            reason,
            LossReason::Deleted | LossReason::Superseded | LossReason::Revoked
        );
        let disturbed = |tenure: &Tenure| checks.is_disturbed(&key, tenure.token);
        let expired = |tenure: &Tenure| checks.nobody_could_know(self, tenure);
        // A repeated request finds no record of the first one, which completed the tick.
        let forgotten = is_job && checks.has_lost_data();
        let excused = |tenure| forgotten || disturbed(tenure) || expired(tenure);
        let cause = !by_others || tenure.as_ref().is_none_or(excused);
        checks.ensure("I4", cause, || {
            format!("host {host}: the lock was not touched, and {event:?}")
        });
        checks.ensure("I4", tenure.is_some(), || {
            format!("host {host}: not held, and {event:?}")
        });
        self.ended.extend(tenure.map(|tenure| tenure.lease));
    }

    pub(crate) fn closed(&mut self, checks: &mut Checks, id: LockId) {
        let host = self.host;
        let closing = self
            .handles
            .remove(&id)
            .is_some_and(|handle| handle.closing);
        let mut contenders = self.locks.values().filter(|lock| lock.handle == id);
        let over = contenders.all(|lock| lock.held.is_none() && lock.releasing.is_none());
        self.locks.retain(|_, lock| lock.handle != id);
        checks.ensure("calls", closing && over, || {
            format!("host {host}: {id:?} was closed too early, twice or without a request")
        });
    }

    /// Checks what must hold whenever a host has nothing left to do.
    pub(crate) fn settled(
        &self,
        checks: &mut Checks,
        now: Timestamp,
        (known, wake): (BTreeSet<LeaseId>, Option<Timestamp>),
    ) {
        let host = self.host;
        let wake = wake.unwrap_or(Timestamp::NEVER);
        let held = self.locks.values().filter_map(|lock| lock.held.as_ref());
        let told = held.map(|held| held.lease).collect();
        checks.ensure("I4", known == told, || {
            format!("host {host} was told of {told:?}, and the engine knows {known:?}")
        });
        for (id, lock) in &self.locks {
            let deadline = lock.held.as_ref().map(|held| held.deadline);
            let watched = deadline.is_none_or(|deadline| now < deadline && wake <= deadline);
            checks.ensure("I4", watched, || {
                format!(
                    "host {host}: {id:?} ends at {deadline:?}, and no timer is set for it: {wake:?}"
                )
            });
            if let Some(held) = &lock.held {
                let left = held.deadline.since(now);
                checks.ensure("I8", left <= held.longest, || {
                    format!(
                        "host {host}: of {:?} at the most {left:?} is left: {held:?}",
                        held.longest
                    )
                });
            }
        }
        for (id, Pending { call, since }) in &self.calls {
            let in_time = match call {
                Call::Acquire {
                    wait: Wait::Until(until),
                    ..
                } => wake <= *until,
                Call::Acquire {
                    wait: Wait::Forever,
                    ..
                } => true,
                _ => now.since(*since) <= self.limit,
            };
            checks.ensure("calls", in_time, || {
                format!("host {host}: {id:?} is not answered: {call:?}")
            });
        }
    }
}

fn has_failed(answer: &Answer) -> bool {
    answer.error().is_some()
}
