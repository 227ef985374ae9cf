//! All locks of a quorum: who wants one, who has one, and who gives one back.

use std::sync::Arc;
use std::time::Duration;

use super::acquiring::Acquiring;
use super::contender::{Contender, Phase};
use super::entries::Standing;
use super::env::Env;
use super::leased::{Leased, Next};
use super::release::Release;
use super::tenure::Tenure;
use super::votes::{Has, Vote};
use crate::engine::io::{Acquired, Answer, CallId, LockId, LockSpec, Wait};
use crate::engine::lock::callers::Caller;
use crate::engine::lock::handle::{Handle, Handles};
use crate::engine::lock::tenure::{lost, not_held};
use crate::engine::lock::who::Who;
use crate::engine::table::Table;
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{HalfId, LeaseId, LockKey};
use crate::time::Timestamp;
use crate::token::FencingToken;

#[derive(Debug, Default)]
pub(super) struct Locks {
    contenders: Table<HalfId, Box<Contender>>,
    releases: Table<HalfId, Box<Release>>,
    handles: Handles,
}

impl Locks {
    pub(super) fn all_held(&self, now: Timestamp) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        let contenders = self.contenders.values();
        contenders.filter_map(move |contender| contender.held(now))
    }

    pub(super) fn held(
        &self,
        now: Timestamp,
        lock: LockId,
    ) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        let holders = self.handles.holders(lock);
        let contenders = holders.filter_map(|id| self.contenders.get(&id));
        contenders.filter_map(move |contender| contender.held(now))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.contenders.is_empty() && self.releases.is_empty()
    }

    /// How many things have a timer.
    pub(super) fn len(&self) -> usize {
        self.contenders.len()
    }

    pub(super) fn wake(&self, id: HalfId) -> Option<Timestamp> {
        self.contenders.get(&id).map(|contender| contender.wake)
    }

    pub(super) fn time(&mut self, env: &mut Env, id: HalfId) {
        self.step(env, id, Contender::time);
    }
}

/// What the program says.
impl Locks {
    pub(super) fn acquire(
        &mut self,
        env: &mut Env,
        (call, wait): (CallId, Wait),
        (lock, lease, spec): (LockId, LeaseId, Arc<LockSpec>),
    ) {
        let asked = env.cx.now;
        let caller = Caller { call, wait, asked };
        let shared = self.handles.get(lock).and_then(Handle::shared);
        if let Some(contender) = shared.and_then(|id| self.contenders.get_mut(&id)) {
            match &mut contender.phase {
                Phase::Held(tenure) => tenure.join(&mut env.cx, &contender.lease, call),
                Phase::Acquiring(acquiring) => acquiring.join(&mut env.cx, caller),
            }
            return contender.settle(&mut env.cx);
        }
        if caller.is_too_late(&mut env.cx) {
            return;
        }
        let id = lease.half();
        if self.contenders.contains_key(&id) || self.releases.contains_key(&id) {
            let error = Error::new(ErrorKind::Config, "the lease id is in use already");
            return caller.fail(&mut env.cx, error);
        }
        self.handles.enter(lock, id, spec.reentrant);
        env.cx.counts.wanted();
        let mut lease = Leased::new(Who { lease, lock, spec }, env.members.len());
        let mut acquiring = Acquiring::new(env, &lease, caller);
        acquiring.ask_all(env, &mut lease);
        let phase = Phase::Acquiring(acquiring);
        let wake = Timestamp::NEVER;
        let contender = Contender { lease, phase, wake };
        self.contenders.insert(id, Box::new(contender));
        // Of members that do not vote the answer is here.
        self.step(env, id, |contender, env| {
            contender.judge(env, LossReason::Expired)
        });
    }

    pub(super) fn cancel(&mut self, env: &mut Env, call: CallId, (lock, lease): (LockId, LeaseId)) {
        let own = Some(lease.half()).filter(|id| self.contenders.contains_key(id));
        let shared = || self.handles.get(lock).and_then(Handle::shared);
        if let Some(id) = own.or_else(shared) {
            self.step(env, id, |contender, _| match &mut contender.phase {
                Phase::Acquiring(acquiring) => acquiring.cancel(call),
                Phase::Held(tenure) => {
                    tenure.cancel_renewal(call);
                    Next::Stay
                }
            });
        }
    }

    pub(super) fn renew(
        &mut self,
        env: &mut Env,
        lease: LeaseId,
        (call, ttl): (CallId, Option<Duration>),
    ) {
        if let Some(Err(error)) = ttl.map(LockSpec::check_ttl) {
            return env.cx.answer(call, Answer::Renew(Err(error)));
        }
        match self.holder(lease) {
            Some((leased, tenure)) => tenure.renew(env, leased, (call, ttl)),
            None => env.cx.answer(call, Answer::Renew(Err(not_held()))),
        }
    }

    pub(super) fn release(&mut self, env: &mut Env, call: Option<CallId>, lease: LeaseId) {
        let answer = |env: &mut Env, result| {
            if let Some(call) = call {
                env.cx.answer(call, Answer::Release(result));
            }
        };
        let Some((_, tenure)) = self.holder(lease) else {
            return answer(env, Err(not_held()));
        };
        tenure.leases = tenure.leases.saturating_sub(1);
        if tenure.leases > 0 {
            return answer(env, Ok(()));
        }
        let id = lease.half();
        if let Some((lease, Phase::Held(mut tenure))) = self.take(env, id) {
            let message = "the lease is not held: it was released";
            let released = || Error::new(ErrorKind::NotHeld, message);
            tenure.refuse_renewals(&mut env.cx, released);
            self.handles.await_release(lease.who.lock, id);
            let release = Release::new(env, lease, &tenure, call);
            self.releases.insert(id, Box::new(release));
            self.end_release(env, id);
        }
    }

    pub(super) fn close(&mut self, env: &mut Env, lock: LockId) {
        self.handles.close(&mut env.cx, lock);
    }

    /// Ends everything.
    pub(super) fn shut_down(&mut self, env: &mut Env) {
        for id in self.those(&|_| true) {
            self.step(env, id, |contender, env| match &mut contender.phase {
                Phase::Acquiring(acquiring) => {
                    acquiring.callers.fail(&mut env.cx, &Error::shutdown());
                    Next::Leave
                }
                Phase::Held(_) => Next::Lose(LossReason::Shutdown),
            });
        }
    }

    /// The tenure that this lease is of.
    fn holder(&mut self, lease: LeaseId) -> Option<(&Leased, &mut Tenure)> {
        let contender = self.contenders.get_mut(&lease.half())?;
        let Contender {
            lease: leased,
            phase,
            ..
        } = &mut **contender;
        match phase {
            Phase::Held(tenure) if leased.who.lease == lease => Some((leased, tenure)),
            Phase::Held(_) | Phase::Acquiring(_) => None,
        }
    }
}

/// What a member says.
impl Locks {
    pub(super) fn acquired(
        &mut self,
        env: &mut Env,
        (id, at): (HalfId, usize),
        result: Result<Option<Acquired>, Error>,
    ) {
        self.step(env, id, |contender, env| {
            let Contender { lease, phase, .. } = contender;
            let vote = match result {
                Ok(Some(acquired)) => Vote::Has(Has::new(&acquired, &lease.who.spec)),
                Ok(None) => Vote::Busy,
                Err(error) => Vote::Failed(error),
            };
            let were_few = lease.has() < env.members.majority();
            lease.votes.set(at, vote);
            match phase {
                Phase::Held(tenure) => tenure.comes_late(env, lease, at),
                Phase::Acquiring(_) if were_few && lease.who.spec.owner.is_reclaimable() => {
                    lease.votes.forget_floors();
                }
                Phase::Acquiring(_) => {}
            }
            contender.judge(env, LossReason::Expired)
        });
    }

    pub(super) fn raised(
        &mut self,
        env: &mut Env,
        (id, at): (HalfId, usize),
        result: Result<(), Error>,
    ) {
        self.step(env, id, |contender, env| {
            let Some(has) = contender.lease.votes.has_mut(at) else {
                return Next::Stay;
            };
            match result {
                Ok(()) => has.was_raised(),
                Err(error) => {
                    contender.lease.give_back(env, at);
                    contender.lease.votes.set(at, Vote::gone(&error));
                }
            }
            contender.judge(env, LossReason::Expired)
        });
    }

    /// A member that was asked in this round whether it still has a lease has it, or not.
    pub(super) fn proved(
        &mut self,
        env: &mut Env,
        (id, at, round): (HalfId, usize, u64),
        result: &Result<(), Error>,
    ) {
        self.step(env, id, |contender, env| {
            let Contender { lease, phase, .. } = contender;
            if let Phase::Held(tenure) = phase {
                tenure.proved();
                if result.is_ok() {
                    lease.votes.prove((at, round), env.members.majority());
                }
            }
            contender.judge(env, LossReason::Expired)
        });
    }

    pub(super) fn renewed(
        &mut self,
        env: &mut Env,
        (id, call): (HalfId, CallId),
        result: Result<(), Error>,
    ) {
        let contender = self.contenders.get_mut(&id);
        if let Some(Contender {
            lease,
            phase: Phase::Held(tenure),
            ..
        }) = contender.map(|held| &mut **held)
        {
            tenure.renewed(env, lease, call, result);
        }
    }

    pub(super) fn released(&mut self, env: &mut Env, id: HalfId, result: Result<(), Error>) {
        if let Some(release) = self.releases.get_mut(&id) {
            release.landed(result);
            self.end_release(env, id);
        }
    }

    /// Something happened to a lease there.
    pub(super) fn happened(
        &mut self,
        env: &mut Env,
        (id, at): (HalfId, usize),
        (event, deadline): (LeaseEvent, Option<Timestamp>),
    ) {
        self.step(env, id, |contender, env| {
            let votes = &mut contender.lease.votes;
            let mut reason = LossReason::Expired;
            match (event, votes.has_mut(at)) {
                (LeaseEvent::Renewed { .. }, Some(has)) => {
                    has.deadline = deadline.unwrap_or(has.deadline);
                    has.trouble = None;
                }
                (LeaseEvent::AtRisk { error, .. }, Some(has)) => has.trouble = Some(error),
                (LeaseEvent::Lost { reason: why, .. }, Some(_)) => {
                    votes.set(at, Vote::gone(&lost(why)));
                    reason = why;
                    if let Phase::Held(tenure) = &mut contender.phase {
                        tenure.rest(env.cx.now, &contender.lease);
                    }
                }
                (waiting @ LeaseEvent::Waiting { .. }, _) => {
                    if let Phase::Acquiring(acquiring) = &contender.phase
                        && acquiring.is_place(env, &contender.lease, at)
                    {
                        contender.lease.who.emit(&mut env.cx, waiting, None);
                    }
                    return Next::Stay;
                }
                _ => return Next::Stay,
            }
            contender.judge(env, reason)
        });
    }

    /// A server does not answer. Waiters in line there have another place, or look for one, and nobody waits for its
    /// answer.
    pub(super) fn went_away(&mut self, env: &mut Env) {
        for id in self.those(&|contender| matches!(contender.phase, Phase::Acquiring(_))) {
            self.step(env, id, |contender, env| {
                contender.judge(env, LossReason::Expired)
            });
        }
    }
}

/// Who may vote.
impl Locks {
    /// That has changed of this member.
    pub(super) fn stood(&mut self, env: &mut Env, at: usize) {
        let votes = env.entries.standing(at) == Standing::Votes;
        let waits = |contender: &Contender| match (contender.lease.votes.get(at), &contender.phase)
        {
            (Vote::Open | Vote::Asked(_) | Vote::InLine(_), _) => true,
            (_, Phase::Held(_)) => votes && !contender.lease.stands_on(at),
            // It has its place there from now on.
            (Vote::Failed(_), Phase::Acquiring(_)) => votes,
            (_, Phase::Acquiring(_)) => false,
        };
        for (turn, id) in self.those(&waits).into_iter().enumerate() {
            self.step(env, id, |contender, env| {
                let Contender { lease, phase, .. } = &mut *contender;
                lease.stood(env, at, matches!(phase, Phase::Held(_)));
                if let Phase::Held(tenure) = phase {
                    tenure.ask_in_turn(env.cx.now, (lease, at), turn);
                }
                contender.judge(env, LossReason::Expired)
            });
        }
    }

    /// True if all leases stand on this member. A fixed lease that did not at once never does: it has to end before.
    pub(super) fn stand_on(&self, at: usize) -> bool {
        let held = self.contenders.values();
        let mut held = held.filter(|contender| matches!(contender.phase, Phase::Held(_)));
        held.all(|contender| contender.lease.is_settled_at(at))
    }
}

/// What becomes of contenders.
impl Locks {
    fn step(
        &mut self,
        env: &mut Env,
        id: HalfId,
        act: impl FnOnce(&mut Contender, &mut Env) -> Next,
    ) {
        let Some(contender) = self.contenders.get_mut(&id) else {
            return;
        };
        match act(contender, env) {
            Next::Stay => contender.settle(&mut env.cx),
            Next::Hold(token) => self.hold(env, id, token),
            Next::Leave => self.leave(env, id),
            Next::Lose(reason) => self.lose(env, id, reason),
        }
    }

    fn hold(&mut self, env: &mut Env, id: HalfId, token: FencingToken) {
        let key = self
            .contenders
            .get(&id)
            .map(|held| held.lease.who.spec.key.clone());
        self.end_releases_of(env, key.as_ref());
        let Some(contender) = self.contenders.get_mut(&id) else {
            return;
        };
        let Contender { lease, phase, .. } = &mut **contender;
        let Phase::Acquiring(acquiring) = phase else {
            return;
        };
        let Some(mut tenure) = Tenure::new(env, lease, token) else {
            return contender.settle(&mut env.cx);
        };
        let callers = acquiring.callers.take();
        tenure.leases = u32::try_from(callers.len()).unwrap_or(u32::MAX);
        let event = tenure.acquired(lease, env.cx.now);
        lease.who.emit(&mut env.cx, event, Some(tenure.deadline));
        for caller in callers {
            caller.succeed(&mut env.cx, tenure.lease(lease));
        }
        self.handles.hold(lease.who.lock, id);
        tenure.tell_risk(env, lease, tenure.deadline);
        *phase = Phase::Held(tenure);
        contender.settle(&mut env.cx);
    }

    fn leave(&mut self, env: &mut Env, id: HalfId) {
        if let Some((mut lease, _)) = self.take(env, id) {
            lease.give_back_all(env);
            self.handles.leave(&mut env.cx, lease.who.lock);
        }
    }

    fn lose(&mut self, env: &mut Env, id: HalfId, reason: LossReason) {
        let Some((mut lease, Phase::Held(mut tenure))) = self.take(env, id) else {
            return;
        };
        let event = LeaseEvent::Lost {
            name: lease.who.spec.name.clone(),
            token: tenure.token,
            reason,
        };
        lease.who.emit(&mut env.cx, event, None);
        tenure.refuse_renewals(&mut env.cx, || lost(reason));
        lease.give_back_all(env);
        self.handles.leave(&mut env.cx, lease.who.lock);
    }

    /// Takes one out. Its handle has to be left.
    fn take(&mut self, env: &mut Env, id: HalfId) -> Option<(Leased, Phase)> {
        let mut contender = *self.contenders.take(&id)?;
        contender.set_timer(&mut env.cx, Timestamp::NEVER);
        let held_since = match &contender.phase {
            Phase::Held(tenure) => Some(tenure.began),
            Phase::Acquiring(_) => None,
        };
        env.cx.counts.over(env.cx.now, held_since);
        self.handles.give_up(contender.lease.who.lock, id);
        Some((contender.lease, contender.phase))
    }

    fn end_release(&mut self, env: &mut Env, id: HalfId) {
        let release = self.releases.get_mut(&id);
        if release.is_some_and(|release| release.ends(env))
            && let Some(release) = self.releases.take(&id)
        {
            self.handles.released(&mut env.cx, release.who.lock, id);
        }
    }

    /// What a majority gave anew is not held any more, even if nobody has confirmed that.
    fn end_releases_of(&mut self, env: &mut Env, key: Option<&LockKey>) {
        let releases = self.releases.iter();
        let over = releases.filter(|(_, release)| Some(&release.who.spec.key) == key);
        let over: Vec<_> = over.map(|(id, _)| id).collect();
        for id in over {
            if let Some(release) = self.releases.get_mut(&id) {
                release.is_over(env);
            }
            self.end_release(env, id);
        }
    }

    /// Those that a condition holds for, to be gone through one by one.
    fn those(&self, are: &dyn Fn(&Contender) -> bool) -> Vec<HalfId> {
        let those = self
            .contenders
            .iter()
            .filter(|(_, contender)| are(contender));
        those.map(|(id, _)| id).collect()
    }
}
