//! All locks of a locker: acquisitions, tenures and releases.

use super::Renewal;
use super::Wanted;
use super::backend::{Acquisition, Backend, Keeping, Lease, Next, Phase, Releases};
use super::callers::Caller;
use super::contender::Contender;
use super::handle::{Handle, Handles};
use super::tenure::{Tenure, lost, not_held};
use super::who::Who;
use crate::engine::ctx::Ctx;
use crate::engine::io::{Acquired, Answer, CallId, LockId};
use crate::engine::spec::LockSpec;
use crate::engine::table::Table;
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{HalfId, LeaseId};
use crate::time::Timestamp;

/// The contenders, handles and releases of a locker. The key of contenders and releases is the first half of
/// the lease ID. These halves are random and do not collide in practice; if two do, the second is refused.
#[derive(Debug)]
pub(crate) struct Locks<B: Backend> {
    pub(crate) contenders: Table<HalfId, Contender<B>>,
    pub(crate) handles: Handles,
    pub(crate) releases: B::Releases,
}

impl<B: Backend> Default for Locks<B> {
    fn default() -> Self {
        Self {
            contenders: Table::default(),
            handles: Handles::default(),
            releases: B::Releases::default(),
        }
    }
}

/// Held locks.
impl<B: Backend> Locks<B> {
    pub(crate) fn all_held(&self, now: Timestamp) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        let contenders = self.contenders.values();
        contenders.filter_map(move |contender| contender.held(now))
    }

    pub(crate) fn held(
        &self,
        now: Timestamp,
        lock: LockId,
    ) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        let held = self.handles.holders(lock);
        held.filter_map(move |id| self.contenders.get(&id)?.held(now))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.contenders.is_empty() && self.are_released()
    }

    /// True if the store has confirmed all releases.
    pub(crate) fn are_released(&self) -> bool {
        self.releases.len() == 0
    }

    /// True if a contender or a release uses this ID.
    pub(crate) fn use_id(&self, id: HalfId) -> bool {
        self.contenders.contains_key(&id) || self.releases.contains(id)
    }

    /// The number of contenders and releases, each of which may have a timer.
    pub(crate) fn len(&self) -> usize {
        self.contenders.len() + self.releases.len()
    }

    pub(crate) fn contender_wake(&self, id: HalfId) -> Option<Timestamp> {
        self.contenders.get(&id).map(|contender| contender.wake)
    }

    /// The contender that holds this lease.
    fn holder(&mut self, lease: LeaseId) -> Option<&mut Contender<B>> {
        let contender = self.contenders.get_mut(&lease.half())?;
        let holds = contender.who().lease == lease && !contender.is_acquiring();
        holds.then_some(contender)
    }
}

/// Calls of the program.
impl<B: Backend> Locks<B> {
    pub(crate) fn acquire(&mut self, env: &mut B, wanted: Wanted) {
        let Wanted {
            call,
            lock,
            spec,
            lease,
            wait,
            reclaims,
            accepts,
        } = wanted;
        let asked = env.cx().now;
        let caller = Caller { call, wait, asked };
        let shared = self.handles.get(lock).and_then(Handle::shared);
        if let Some(contender) = shared.and_then(|id| self.contenders.get_mut(&id)) {
            if accepts.is_some() {
                let message =
                    "a re-entrant handle that is in use cannot accept a ticket; make another one";
                return caller.fail(env.cx(), Error::new(ErrorKind::Config, message));
            }
            return contender.join(env, caller);
        }
        if caller.is_too_late(env.cx()) {
            return;
        }
        let id = lease.half();
        if self.use_id(id) {
            let error = Error::new(ErrorKind::Config, "the lease ID is already in use");
            return caller.fail(env.cx(), error);
        }
        self.handles.enter(lock, id, spec.reentrant);
        env.cx().counts.wanted();
        let (lease, acquiring, next) =
            env.begin(Who { lease, lock, spec }, caller, (reclaims, accepts));
        let mut contender = Contender::new(lease, acquiring);
        contender.settle(env.cx());
        self.contenders.insert(id, contender);
        self.follow(env, id, next);
    }

    /// Cancels a call that acquires or renews with this handle and lease ID.
    pub(crate) fn cancel(&mut self, env: &mut B, call: CallId, (lock, lease): (LockId, LeaseId)) {
        let own = Some(lease.half()).filter(|id| self.contenders.contains_key(id));
        let shared = || self.handles.get(lock).and_then(Handle::shared);
        if let Some(id) = own.or_else(shared) {
            self.step(env, id, |contender, _| contender.cancel(call));
        }
    }

    pub(crate) fn renew(&mut self, env: &mut B, lease: LeaseId, renewal: Renewal) {
        let call = renewal.call;
        let check = |ttl| LockSpec::check_ttl(ttl).and_then(|()| env.check_ttl(ttl));
        if let Some(Err(error)) = renewal.ttl.map(check) {
            return env.cx().answer(call, Answer::Renew(Err(error)));
        }
        let Some(contender) = self.holder(lease) else {
            return env.cx().answer(call, Answer::Renew(Err(not_held())));
        };
        if let Some((lease, tenure)) = contender.tenure() {
            env.renew(lease, tenure, renewal);
        }
        contender.settle(env.cx());
    }

    /// Gives up one lease of a tenure. The last one releases the lock.
    pub(crate) fn release(&mut self, env: &mut B, call: Option<CallId>, lease: LeaseId) {
        self.end(env, call, (lease, false));
    }

    /// Releases a turn and completes its tick.
    pub(crate) fn complete(&mut self, env: &mut B, call: CallId, lease: LeaseId) {
        let is_turn = |holder: &mut Contender<B>| holder.who().spec.owner.tick().is_some();
        if self.holder(lease).is_none_or(is_turn) {
            return self.end(env, Some(call), (lease, true));
        }
        let error = Error::new(ErrorKind::Config, "the lease is not a turn of a job");
        env.cx().answer(call, Answer::Release(Err(error)));
    }

    fn end(&mut self, env: &mut B, call: Option<CallId>, (lease, completes): (LeaseId, bool)) {
        let answer = |cx: &mut Ctx, result| {
            if let Some(call) = call {
                cx.answer(call, Answer::Release(result));
            }
        };
        let Some((_, tenure)) = self.holder(lease).and_then(Contender::tenure) else {
            return answer(env.cx(), Err(not_held()));
        };
        tenure.leases = tenure.leases.saturating_sub(1);
        if tenure.leases > 0 {
            return answer(env.cx(), Ok(()));
        }
        let id = lease.half();
        let Some((lease, Phase::Held(mut tenure))) = self.take(env, id) else {
            return;
        };
        let message = "the lease is not held: it was released";
        let released = || Error::new(ErrorKind::NotHeld, message);
        tenure.completes = completes;
        refuse_renewals(env.cx(), tenure.kept.take_renewals(), &released);
        self.handles.await_release(lease.who().lock, id);
        let to = (&mut self.releases, &mut self.handles);
        env.release(to, (lease, tenure), call);
    }

    /// Ends a tenure that its holder passes on. It stays at the store.
    pub(crate) fn pass(&mut self, env: &mut B, call: CallId, lease: LeaseId) {
        let passed = match self.holder(lease).and_then(Contender::tenure) {
            None => Err(not_held()),
            Some((_, tenure)) if tenure.leases > 1 => {
                let message = "other leases share the tenure; release them before you pass it on";
                Err(Error::new(ErrorKind::Config, message))
            }
            Some((lease, tenure)) => env
                .check_passing(&lease.who().spec)
                .and_then(|()| env.passed(lease, tenure)),
        };
        if passed.is_ok()
            && let Some((lease, Phase::Held(mut tenure))) = self.take(env, lease.half())
        {
            let message = "the lease is not held: it was passed on";
            let over = || Error::new(ErrorKind::NotHeld, message);
            refuse_renewals(env.cx(), tenure.kept.take_renewals(), &over);
            lease.who().emit_passed(env.cx(), tenure.token);
            let lock = lease.who().lock;
            env.pass((lease, tenure));
            self.handles.leave(env.cx(), lock);
        }
        env.cx().answer(call, Answer::Pass(passed.map(Box::new)));
    }

    /// Sets since when a lease of a quorum's member counts as held. With `None` it is a vote that is given
    /// back, whose release frees the name at once.
    pub(crate) fn holds_since(&mut self, lease: LeaseId, began: Option<Timestamp>) {
        if let Some((_, tenure)) = self.holder(lease).and_then(Contender::tenure) {
            tenure.is_vote = began.is_none();
            tenure.began = began.unwrap_or(tenure.began);
        }
    }

    pub(crate) fn close(&mut self, cx: &mut Ctx, lock: LockId) {
        self.handles.close(cx, lock);
    }

    /// Ends all acquisitions and all tenures.
    pub(crate) fn shut_down(&mut self, env: &mut B) {
        for id in self.those(&Contender::is_acquiring) {
            self.step(env, id, |contender, env| match &mut contender.phase {
                Phase::Acquiring(acquiring) => {
                    acquiring.callers().fail(env.cx(), &Error::shutdown());
                    Next::Leave
                }
                Phase::Held(_) => Next::Stay,
            });
        }
        for id in self.those(&|_| true) {
            self.step(env, id, |_, _| Next::Lose(LossReason::Shutdown));
        }
    }
}

impl<B: Backend> Contender<B> {
    /// Adds a call through a re-entrant handle.
    fn join(&mut self, env: &mut B, caller: Caller) {
        match &mut self.phase {
            Phase::Held(tenure) => tenure.join(env.cx(), self.lease.who(), caller.call),
            Phase::Acquiring(acquiring) => {
                if !caller.is_too_late(env.cx()) {
                    match acquiring.callers().is_full() {
                        Some(full) => caller.fail(env.cx(), full),
                        None => env.join(&mut self.lease, acquiring, caller),
                    }
                }
            }
        }
        self.settle(env.cx());
    }
}

/// The steps of contenders.
impl<B: Backend> Locks<B> {
    /// Handles a contender's timer.
    pub(crate) fn time(&mut self, env: &mut B, id: HalfId) {
        self.step(env, id, |contender, env| {
            env.time(&mut contender.lease, &mut contender.phase)
        });
    }

    /// Acts on a contender and carries out the step that follows.
    pub(crate) fn step(
        &mut self,
        env: &mut B,
        id: HalfId,
        act: impl FnOnce(&mut Contender<B>, &mut B) -> Next<B>,
    ) {
        if let Some(contender) = self.contenders.get_mut(&id) {
            match act(contender, env) {
                Next::Stay => contender.settle(env.cx()),
                next => self.follow(env, id, next),
            }
        }
    }

    /// Carries out the next step of a contender.
    pub(crate) fn follow(&mut self, env: &mut B, id: HalfId, next: Next<B>) {
        match next {
            Next::Stay => {}
            Next::Hold(tenure) => self.hold(env, id, tenure),
            Next::Lose(reason) => self.lose(env, id, reason),
            Next::Leave => self.leave(env, id),
        }
    }

    /// Starts the tenure, with a lease for each caller.
    fn hold(&mut self, env: &mut B, id: HalfId, mut tenure: Tenure<B::Keeping>) {
        let Some(contender) = self.contenders.get_mut(&id) else {
            return;
        };
        let Phase::Acquiring(acquiring) = &mut contender.phase else {
            return;
        };
        let who = contender.lease.who();
        let callers = acquiring.callers().take();
        let admission = acquiring.admission();
        tenure.leases = u32::try_from(callers.len()).unwrap_or(u32::MAX);
        let ended = (&mut self.releases, &mut self.handles);
        env.confirm(ended, who, tenure.token);
        let event = tenure.acquired(&who.spec, env.cx().now);
        who.emit(env.cx(), event, Some(tenure.deadline));
        who.emit_begun(env.cx(), tenure.token);
        who.emit_capacity(env.cx(), tenure.token, admission.as_deref());
        for caller in callers {
            let admission = admission.clone();
            let lease = tenure.lease(who);
            caller.succeed(env.cx(), Acquired { admission, ..lease });
        }
        self.handles.hold(who.lock, id);
        let over = env.held(&mut contender.lease, acquiring, &mut tenure);
        contender.phase = Phase::Held(tenure);
        match over {
            Some(reason) => self.lose(env, id, reason),
            None => contender.settle(env.cx()),
        }
    }

    /// Ends a tenure that its holder did not release.
    fn lose(&mut self, env: &mut B, id: HalfId, reason: LossReason) {
        let Some((lease, Phase::Held(mut tenure))) = self.take(env, id) else {
            return;
        };
        let who = lease.who();
        who.emit_end(env.cx(), tenure.token, Some(reason));
        refuse_renewals(env.cx(), tenure.kept.take_renewals(), &|| lost(reason));
        let lock = who.lock;
        env.lost(&mut self.releases, (lease, tenure), reason);
        self.handles.leave(env.cx(), lock);
    }

    /// Ends an acquisition that no caller wants any more.
    fn leave(&mut self, env: &mut B, id: HalfId) {
        let Some((lease, Phase::Acquiring(acquiring))) = self.take(env, id) else {
            return;
        };
        let lock = lease.who().lock;
        env.give_up(&mut self.releases, (lease, acquiring));
        self.handles.leave(env.cx(), lock);
    }

    /// Removes a contender. The caller has to leave its handle.
    fn take(&mut self, env: &mut B, id: HalfId) -> Option<(B::Lease, Phase<B>)> {
        let mut contender = self.contenders.take(&id)?;
        let cx = env.cx();
        contender.set_timer(cx, Timestamp::NEVER);
        let held_since = contender.tenure().map(|(_, tenure)| tenure.began);
        cx.counts.over(cx.now, held_since);
        self.handles.give_up(contender.who().lock, id);
        Some((contender.lease, contender.phase))
    }

    /// Returns the IDs of the contenders that match, so that the caller can change them one by one.
    pub(crate) fn those(&self, are: &dyn Fn(&Contender<B>) -> bool) -> Vec<HalfId> {
        let those = self.contenders.iter();
        let those = those.filter(|(_, contender)| are(contender));
        those.map(|(id, _)| id).collect()
    }
}

/// Fails the calls that wait for a renewal of a tenure that ended.
fn refuse_renewals(cx: &mut Ctx, calls: Vec<CallId>, why: &dyn Fn() -> Error) {
    for call in calls {
        cx.answer(call, Answer::Renew(Err(why())));
    }
}
