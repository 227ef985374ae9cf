//! All contenders of a locker, and what becomes of each.

use super::acquiring::Next;
use super::contender::{Contender, Phase};
use super::handle::Handles;
use super::release::Releases;
use super::tenure::{Tenure, lost};
use super::who::Who;
use crate::engine::env::Env;
use crate::engine::table::Table;
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{HalfId, LeaseId};
use crate::time::Timestamp;

/// Contenders are found by the first half of the lease id, as releases are: by chance no two of one
/// locker are alike, and if they are, the second is refused.
#[derive(Debug, Default)]
pub(super) struct Contenders {
    pub(super) all: Table<HalfId, Contender>,
    pub(super) handles: Handles,
    pub(super) releases: Releases,
}

impl Contenders {
    /// Does something with a contender, and what follows from it.
    pub(super) fn step(
        &mut self,
        env: &mut Env,
        id: HalfId,
        act: impl FnOnce(&mut Contender, &mut Env) -> Next,
    ) {
        if let Some(contender) = self.all.get_mut(&id) {
            match act(contender, env) {
                Next::Stay => contender.settle(&mut env.cx),
                next => self.follow(env, id, next),
            }
        }
    }

    /// What follows from what was done with a contender.
    pub(super) fn follow(&mut self, env: &mut Env, id: HalfId, next: Next) {
        match next {
            Next::Stay => {}
            Next::Hold(tenure) => self.hold(env, id, tenure),
            Next::Lose(reason) => self.lose(env, id, reason),
            Next::Leave => self.leave(env, id),
        }
    }

    /// The lock is held, by all who called for it.
    fn hold(&mut self, env: &mut Env, id: HalfId, mut tenure: Tenure) {
        let Some(contender) = self.all.get_mut(&id) else {
            return;
        };
        let (who, token) = (&contender.who, tenure.token);
        let Phase::Acquiring(acquiring) = &mut contender.phase else {
            return;
        };
        let callers = acquiring.callers.take();
        let taken_away = acquiring.was_taken_away(token);
        tenure.leases = u32::try_from(callers.len()).unwrap_or(u32::MAX);
        // That the lock could be taken proves that the tenure before is over.
        self.releases
            .confirm(env, &mut self.handles, who.lock, token);
        let event = tenure.acquired(&who.spec, env.cx.now);
        who.emit(&mut env.cx, event, Some(tenure.deadline));
        for caller in callers {
            caller.succeed(&mut env.cx, tenure.lease(who));
        }
        self.handles.hold(who.lock, id);
        let server = env.servers.of(&who.spec.key);
        env.servers.want_pushes(&mut env.cx, server);
        if taken_away.is_some() {
            tenure.doubt_push(env.cx.now);
        } else if tenure.unconfirmed {
            tenure.renew(env, who);
        } else {
            tenure.watch(env, who);
        }
        contender.phase = Phase::Held(tenure);
        match taken_away {
            Some(reason) => self.lose(env, id, reason),
            None => contender.settle(&mut env.cx),
        }
    }

    /// A tenure ends without a release by its holder.
    fn lose(&mut self, env: &mut Env, id: HalfId, reason: LossReason) {
        let Some((who, Phase::Held(mut tenure))) = self.take(env, id) else {
            return;
        };
        let event = LeaseEvent::Lost {
            name: who.spec.name.clone(),
            token: tenure.token,
            reason,
        };
        who.emit(&mut env.cx, event, None);
        tenure.refuse_renewals(&mut env.cx, || lost(reason));
        let lock = who.lock;
        if let Some(remains) = tenure.remains(&who, reason) {
            self.releases.give_back(env, who, remains, None);
        }
        self.handles.leave(&mut env.cx, lock);
    }

    /// Nobody wants the lock any more. If it may have been taken all the same, it is given back; and
    /// its place in line is given up.
    fn leave(&mut self, env: &mut Env, id: HalfId) {
        let Some((who, Phase::Acquiring(mut acquiring))) = self.take(env, id) else {
            return;
        };
        let doubt = acquiring.attempt.abandon(&mut env.servers);
        let lock = who.lock;
        if doubt.is_some() || acquiring.may_be_known() {
            let (remains, proposed) = ((doubt, who.spec.ttl), acquiring.proposed());
            self.releases.give_back(env, who, remains, proposed);
        }
        self.handles.leave(&mut env.cx, lock);
    }

    /// The contender that holds its lock by this lease.
    pub(super) fn holder(&mut self, lease: LeaseId) -> Option<&mut Contender> {
        let contender = self.all.get_mut(&lease.half())?;
        let holds = contender.who.lease == lease && !contender.is_acquiring();
        holds.then_some(contender)
    }

    /// Takes one out that neither wants the lock any more nor has it. Its handle has to be left.
    pub(super) fn take(&mut self, env: &mut Env, id: HalfId) -> Option<(Who, Phase)> {
        let mut contender = self.all.take(&id)?;
        contender.set_timer(&mut env.cx, Timestamp::NEVER);
        let mut held_since = None;
        if let Some((who, tenure)) = contender.tenure() {
            tenure.watched.end(env, who);
            held_since = Some(tenure.began);
        }
        env.cx.counts.over(env.cx.now, held_since);
        self.handles.give_up(contender.who.lock, id);
        Some((contender.who, contender.phase))
    }

    /// Those that a condition holds for, to be gone through one by one.
    pub(super) fn those(&self, are: &dyn Fn(&Contender) -> bool) -> Vec<HalfId> {
        let those = self.all.iter().filter(|(_, contender)| are(contender));
        those.map(|(id, _)| id).collect()
    }
}
