//! Locks: who wants one, who has one, and who gives one back.

mod acquiring;
pub(super) mod callers;
mod contender;
mod contenders;
pub(super) mod handle;
mod line;
mod release;
pub(super) mod tenure;
mod watched;
pub(super) mod who;

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Outcome;
use super::ctx::{Ctx, Serial};
use super::env::Env;
use super::io::{Answer, CallId, LockId, LockSpec, ServerId, Wait};
use super::servers::Servers;
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{Grant, HalfId, LeaseId, LockKey, News, Push, Reclaim, Reply};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;
use acquiring::{Acquiring, Granted, Next};
use callers::Caller;
use contender::{Contender, Phase};
use contenders::Contenders;
use tenure::{Tenure, not_held};
use who::Who;

/// All of one locker.
#[derive(Debug, Default)]
pub(super) struct Locks(Contenders);

/// What the program asks for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) call: CallId,
    pub(super) lock: LockId,
    pub(super) spec: Arc<LockSpec>,
    pub(super) lease: LeaseId,
    pub(super) wait: Wait,
    /// What it may take over from its own owner.
    pub(super) reclaims: Reclaim,
}

/// What is held.
impl Locks {
    pub(super) fn all_held(&self, now: Timestamp) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        let contenders = self.0.all.values();
        contenders.filter_map(move |contender| contender.held(now))
    }

    pub(super) fn held(
        &self,
        now: Timestamp,
        lock: LockId,
    ) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        let held = self.0.handles.holders(lock);
        held.filter_map(move |id| self.0.all.get(&id)?.held(now))
    }

    /// How many want a lock or have one.
    #[cfg(test)]
    pub(super) fn contenders(&self) -> usize {
        self.0.all.len()
    }

    /// Somebody who wants a lock, if anybody does.
    #[cfg(test)]
    pub(super) fn acquiring(&self) -> Option<LeaseId> {
        let mut contenders = self.0.all.values();
        let acquiring = contenders.find(|contender| contender.is_acquiring());
        acquiring.map(|contender| contender.who.lease)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.0.all.is_empty() && self.0.releases.len() == 0
    }

    /// Whether somebody contends with this id, or gives back what that got.
    pub(super) fn use_id(&self, id: HalfId) -> bool {
        self.0.all.contains_key(&id) || self.0.releases.contains(id)
    }

    /// Whether the store has confirmed all releases.
    pub(super) fn are_released(&self) -> bool {
        self.0.releases.len() == 0
    }

    /// How many things may have a timer.
    pub(super) fn len(&self) -> usize {
        self.0.all.len() + self.0.releases.len()
    }

    pub(super) fn contender_wake(&self, id: HalfId) -> Option<Timestamp> {
        self.0.all.get(&id).map(|contender| contender.wake)
    }

    pub(super) fn release_wake(&self, id: HalfId) -> Option<Timestamp> {
        self.0.releases.wake(id)
    }
}

/// Calls of the program.
impl Locks {
    pub(super) fn acquire(&mut self, env: &mut Env, wanted: Wanted) {
        let Wanted {
            call,
            lock,
            spec,
            lease,
            wait,
            reclaims,
        } = wanted;
        let asked = env.cx.now;
        let caller = Caller { call, wait, asked };
        let shared = self.0.handles.get(lock).and_then(handle::Handle::shared);
        if let Some(contender) = shared.and_then(|id| self.0.all.get_mut(&id)) {
            let who = &contender.who;
            match &mut contender.phase {
                Phase::Held(tenure) => tenure.join(&mut env.cx, who, call),
                Phase::Acquiring(acquiring) => acquiring.join(env, who, caller),
            }
            return contender.settle(&mut env.cx);
        }
        if caller.is_too_late(&mut env.cx) {
            return;
        }
        let id = lease.half();
        if self.use_id(id) {
            let error = Error::new(ErrorKind::Config, "the lease id is in use already");
            return caller.fail(&mut env.cx, error);
        }
        self.0.handles.enter(lock, id, spec.reentrant);
        env.cx.counts.wanted();
        let who = Who { lease, lock, spec };
        let mut acquiring = Acquiring::new(env.cx.now, caller, reclaims);
        acquiring.ask(env, &who);
        let mut contender = Contender::new(who, acquiring);
        contender.settle(&mut env.cx);
        self.0.all.insert(id, contender);
    }

    /// A call is given up that acquires or renews by this handle and lease id.
    pub(super) fn cancel(&mut self, env: &mut Env, call: CallId, (lock, lease): (LockId, LeaseId)) {
        let own = Some(lease.half()).filter(|id| self.0.all.contains_key(id));
        let shared = || self.0.handles.get(lock).and_then(handle::Handle::shared);
        if let Some(id) = own.or_else(shared) {
            self.0.step(env, id, |contender, _| contender.cancel(call));
        }
    }

    pub(super) fn renew(
        &mut self,
        env: &mut Env,
        lease: LeaseId,
        (call, ttl, floor): (CallId, Option<Duration>, Option<FencingToken>),
    ) {
        if let Some(Err(error)) = ttl.map(LockSpec::check_ttl) {
            return env.cx.answer(call, Answer::Renew(Err(error)));
        }
        let Some(contender) = self.0.holder(lease) else {
            return env.cx.answer(call, Answer::Renew(Err(not_held())));
        };
        if let Some((who, tenure)) = contender.tenure() {
            tenure.renew_by_hand(env, who, (call, ttl, floor));
        }
        contender.settle(&mut env.cx);
    }

    /// One lease of a tenure is given up by its holder.
    pub(super) fn release(&mut self, env: &mut Env, call: Option<CallId>, lease: LeaseId) {
        let answer = |cx: &mut Ctx, result| {
            if let Some(call) = call {
                cx.answer(call, Answer::Release(result));
            }
        };
        let Some((_, tenure)) = self.0.holder(lease).and_then(Contender::tenure) else {
            return answer(&mut env.cx, Err(not_held()));
        };
        tenure.leases = tenure.leases.saturating_sub(1);
        if tenure.leases > 0 {
            return answer(&mut env.cx, Ok(()));
        }
        let id = lease.half();
        let Some((who, Phase::Held(mut tenure))) = self.0.take(env, id) else {
            return;
        };
        let message = "the lease is not held: it was released";
        let released = || Error::new(ErrorKind::NotHeld, message);
        tenure.refuse_renewals(&mut env.cx, released);
        self.0.handles.await_release(who.lock, id);
        self.0.releases.end_tenure(env, (who, &tenure), call);
    }

    pub(super) fn close(&mut self, cx: &mut Ctx, lock: LockId) {
        self.0.handles.close(cx, lock);
    }

    /// Ends everything.
    pub(super) fn shut_down(&mut self, env: &mut Env) {
        for id in self.0.those(&Contender::is_acquiring) {
            self.0
                .step(env, id, |contender, env| match &mut contender.phase {
                    Phase::Acquiring(acquiring) => acquiring.fail(&mut env.cx, &Error::shutdown()),
                    Phase::Held(_) => Next::Stay,
                });
        }
        for id in self.0.those(&|_| true) {
            self.0
                .step(env, id, |_, _| Next::Lose(LossReason::Shutdown));
        }
    }
}

/// What the store says, and the time.
impl Locks {
    pub(super) fn contender_time(&mut self, env: &mut Env, id: HalfId) {
        self.0.step(env, id, Contender::time);
    }

    pub(super) fn release_time(&mut self, env: &mut Env, id: HalfId) {
        self.0.releases.time(env, &mut self.0.handles, id);
    }

    pub(super) fn contender_landed(&mut self, env: &mut Env, (id, outcome): (HalfId, Outcome)) {
        let contender = self.0.all.get_mut(&id);
        match contender.filter(|contender| contender.awaits(outcome.attempt)) {
            Some(contender) => match contender.landed(env, outcome) {
                Next::Stay => contender.settle(&mut env.cx),
                next => self.0.follow(env, id, next),
            },
            None => {
                if let Ok((reply, _)) = outcome.result {
                    self.resolve_doubt(env, id, (outcome.attempt, &reply));
                }
            }
        }
    }

    pub(super) fn release_landed(&mut self, env: &mut Env, landed: (HalfId, Outcome)) {
        let (server, asked) = (landed.1.server, landed.1.left);
        let next = match &landed.1.result {
            Ok((Reply::HandedOver { lease, grant }, time)) => Some((*lease, *grant, *time)),
            _ => None,
        };
        self.0.releases.landed(env, &mut self.0.handles, landed);
        if let Some(next) = next {
            self.handed_over(env, (server, asked), next);
        }
    }

    /// The answer to an attempt to take a lock has come that was in doubt.
    fn resolve_doubt(&mut self, env: &mut Env, id: HalfId, (attempt, reply): (Serial, &Reply)) {
        let contender = self.0.all.get_mut(&id);
        if let Some((_, tenure)) = contender.and_then(|contender| contender.tenure()) {
            tenure.resolve_doubt(env.cx.now, attempt, reply);
        }
        self.0
            .releases
            .resolve_doubt(env, &mut self.0.handles, attempt);
    }

    pub(super) fn pushed(&mut self, env: &mut Env, (server, push): (Option<ServerId>, &Push)) {
        let id = push.lease;
        let contender = self.0.all.get(&id).map(|contender| &contender.who);
        let lease = contender.map(|who| who.lease);
        let Some(lease) = lease.or_else(|| self.0.releases.lease(id)) else {
            return;
        };
        let only = |who: &Who| env.servers.of(&who.spec.key);
        let server = server
            .or_else(|| contender.map(only))
            .unwrap_or(ServerId::ONLY);
        // What does not open was made by a stranger: anybody may publish.
        match push.open(lease) {
            Some(News::Granted { grant, time }) => {
                self.handed_over(env, (server, None), (lease, grant, time));
            }
            Some(News::Revoked { token }) => {
                self.taken_away(env, id, (token, LossReason::Revoked));
            }
            Some(News::Superseded { token }) => {
                self.taken_away(env, id, (token, LossReason::Superseded));
            }
            None => {}
        }
    }

    /// The lock was handed to this lease, as a push says, or the reply to a request of that moment.
    pub(super) fn handed_over(
        &mut self,
        env: &mut Env,
        (server, asked): (ServerId, Option<Timestamp>),
        (lease, grant, time): (LeaseId, Grant, ServerTime),
    ) {
        let granted = Granted {
            server,
            grant,
            time,
            asked,
        };
        let id = lease.half();
        if !self.0.all.contains_key(&id) {
            // It was cancelled, and a late attempt of it was handed the lock.
            return self.0.releases.hasten(env, &mut self.0.handles, id);
        }
        self.0
            .step(env, id, |contender, env| match &mut contender.phase {
                Phase::Acquiring(acquiring) if contender.who.lease == lease => {
                    acquiring.granted(env, &contender.who, granted)
                }
                Phase::Acquiring(_) | Phase::Held(_) => Next::Stay,
            });
    }

    /// The server says from now on when a key is changed that is read.
    pub(super) fn watch_all(&mut self, env: &mut Env, server: ServerId) {
        let held = |contender: &Contender| !contender.is_acquiring();
        for id in self.contenders_of(&env.servers, server, &held) {
            if let Some((who, tenure)) = self.0.all.get_mut(&id).and_then(|held| held.tenure()) {
                tenure.watch(env, who);
            }
        }
    }

    /// The time has come to read keys.
    pub(super) fn read_due(&mut self, env: &mut Env) {
        for id in env.watch.take_due(&mut env.cx) {
            if let Some((who, tenure)) = self.0.all.get_mut(&id).and_then(|held| held.tenure()) {
                tenure.read(env, who);
            }
        }
        env.watch.flush(&mut env.cx);
    }

    /// Somebody else may have changed this lock, or any.
    pub(super) fn changed(&mut self, env: &mut Env, key: Option<&LockKey>) {
        let those = match key {
            Some(key) => env.watch.changed(key).into_iter().collect(),
            None => env.watch.all_changed(),
        };
        for id in those {
            self.0.step(env, id, |contender, env| {
                if let Some((who, tenure)) = contender.tenure() {
                    tenure.changed(env, who);
                }
                Next::Stay
            });
        }
    }

    fn taken_away(
        &mut self,
        env: &mut Env,
        id: HalfId,
        (token, reason): (FencingToken, LossReason),
    ) {
        self.0.step(env, id, |contender, env| {
            match &mut contender.phase {
                Phase::Acquiring(acquiring) => acquiring.taken_away(token, reason),
                Phase::Held(tenure) if tenure.token == token => {
                    tenure.doubt_push(env.cx.now);
                    return Next::Lose(reason);
                }
                Phase::Held(_) => {}
            }
            Next::Stay
        });
    }
}

/// What happens to a server concerns all whose locks it has.
impl Locks {
    /// There is a new link: everything that was waiting to try again does so now, and every lease is
    /// renewed, because the server may have lost its data.
    pub(super) fn retry_all(&mut self, env: &mut Env, server: ServerId) {
        for id in self.contenders_of(&env.servers, server, &|contender| !contender.is_acquiring()) {
            self.0.step(env, id, |contender, env| {
                if let Some((_, tenure)) = contender.tenure() {
                    tenure.attempt.pace.next = env.cx.now;
                }
                contender.time(env)
            });
        }
        // Releases first: what is wanted may be what they free.
        for id in self.0.releases.of(|key| env.servers.of(key) == server) {
            self.0.releases.retry(env, &mut self.0.handles, id);
        }
        self.ask_again(env, server);
    }

    /// Whoever holds a lock learns now that there is no link, and not at its next renewal.
    pub(super) fn warn_holders(&mut self, env: &mut Env, (server, error): (ServerId, &Error)) {
        let unwarned = |contender: &Contender| match &contender.phase {
            Phase::Held(tenure) => {
                tenure.is_renewed(&contender.who.spec) && tenure.attempt.pace.failures == 0
            }
            Phase::Acquiring(_) => false,
        };
        for id in self.contenders_of(&env.servers, server, &unwarned) {
            self.0.step(env, id, |contender, env| {
                if let Some((who, tenure)) = contender.tenure() {
                    tenure.failed(env, who, None, error.clone());
                }
                Next::Stay
            });
        }
    }

    /// The server can be heard, for the first time, or again after something may have been missed:
    /// waiters ask, and holders look.
    pub(super) fn subscribed(&mut self, env: &mut Env, server: ServerId) {
        self.ask_again(env, server);
        let now = env.cx.now;
        self.look(env, server, &|tenure| tenure.began < now);
    }

    /// Nothing is heard for now: waiters ask soon, though not at once, as this may come often.
    pub(super) fn unsubscribed(&mut self, env: &mut Env, server: ServerId) {
        let soon = env.cx.now + line::FASTEST_HEARTBEAT;
        for id in self.contenders_of(&env.servers, server, &Contender::is_acquiring) {
            self.0.step(env, id, |contender, _| {
                if let Phase::Acquiring(acquiring) = &mut contender.phase {
                    acquiring.ask_by(soon);
                }
                Next::Stay
            });
        }
    }

    /// What holders were promised by a margin that was too small: the store is asked for it once
    /// more, and for as much as it takes by the new one.
    pub(super) fn keep_promises(&mut self, env: &mut Env, server: ServerId) {
        self.look(env, server, &|_| true);
    }

    /// Holders learn whether the store still has their locks.
    fn look(&mut self, env: &mut Env, server: ServerId, which: &dyn Fn(&Tenure) -> bool) {
        let which = |contender: &Contender| match &contender.phase {
            Phase::Held(tenure) => which(tenure),
            Phase::Acquiring(_) => false,
        };
        for id in self.contenders_of(&env.servers, server, &which) {
            self.0.step(env, id, |contender, env| {
                if let Some((who, tenure)) = contender.tenure() {
                    tenure.look(env, who);
                }
                Next::Stay
            });
        }
    }

    /// Everyone who wants a lock asks now.
    fn ask_again(&mut self, env: &mut Env, server: ServerId) {
        for id in self.contenders_of(&env.servers, server, &Contender::is_acquiring) {
            self.0.step(env, id, Contender::ask_again);
        }
    }

    fn contenders_of(
        &self,
        servers: &Servers,
        server: ServerId,
        are: &dyn Fn(&Contender) -> bool,
    ) -> Vec<HalfId> {
        self.0
            .those(&|contender| are(contender) && servers.of(&contender.who.spec.key) == server)
    }
}
