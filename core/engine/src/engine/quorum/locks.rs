//! Votes of members on leases, and changes in which members may vote.

use super::Quorum;
use super::handshakes::Standing;
use super::votes::{Has, Vote};
use crate::engine::front::{Contender, Locks, Next, Phase, lost};
use crate::engine::io::{Acquired, CallId};
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::HalfId;
use crate::time::Timestamp;

impl Contender<Quorum> {
    /// Judges again after a change in the votes or in which members can be reached.
    fn judge(&mut self, env: &mut Quorum, reason: LossReason) -> Next<Quorum> {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.judge(env, &mut self.lease),
            Phase::Held(tenure) => tenure.judge(env, &self.lease, reason),
        }
    }
}

/// Votes of members.
impl Locks<Quorum> {
    pub(super) fn acquired(
        &mut self,
        env: &mut Quorum,
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
                Phase::Held(tenure) => {
                    lease.limit(env, at, tenure.began);
                    tenure.joins_late(env, lease, at);
                }
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
        env: &mut Quorum,
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

    /// Handles the reply of a member that was asked in this round whether it still has the lease.
    pub(super) fn proved(
        &mut self,
        env: &mut Quorum,
        (id, at, round): (HalfId, usize, u64),
        result: &Result<(), Error>,
    ) {
        self.step(env, id, |contender, env| {
            let Contender { lease, phase, .. } = contender;
            if let Phase::Held(tenure) = phase {
                tenure.kept.proved();
                if result.is_ok() {
                    lease.votes.prove((at, round), env.members.majority());
                }
            }
            contender.judge(env, LossReason::Expired)
        });
    }

    pub(super) fn renewed(
        &mut self,
        env: &mut Quorum,
        (id, call): (HalfId, CallId),
        result: Result<(), Error>,
    ) {
        self.step(env, id, |contender, env| {
            if let Some((lease, tenure)) = contender.tenure() {
                tenure.renewed(env, lease, call, result);
            }
            Next::Stay
        });
    }

    pub(super) fn released(&mut self, env: &mut Quorum, id: HalfId, result: Result<(), Error>) {
        self.releases.landed(env, &mut self.handles, (id, result));
    }

    /// Handles an event of a lease at one member.
    pub(super) fn happened(
        &mut self,
        env: &mut Quorum,
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
                (LeaseEvent::AtRisk { error, .. }, Some(has))
                    if error.kind() == ErrorKind::Overheld =>
                {
                    has.is_overheld = true;
                }
                (LeaseEvent::AtRisk { error, .. }, Some(has)) => has.trouble = Some(error),
                (LeaseEvent::Lost { reason: why, .. }, Some(_)) => {
                    votes.set(at, Vote::gone(&lost(why)));
                    reason = why;
                    if let Phase::Held(tenure) = &mut contender.phase {
                        tenure.kept.rest(env.cx.now, &contender.lease);
                    }
                }
                (LeaseEvent::Wanted { by, within, .. }, Some(_)) => {
                    if let Some((lease, tenure)) = contender.tenure() {
                        tenure.wanted(env, lease, (by, within));
                    }
                    return Next::Stay;
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

    /// Judges all acquisitions again after a server stopped answering. Waiters in line there report another
    /// place or find one, and no attempt waits for its answer.
    pub(super) fn went_away(&mut self, env: &mut Quorum) {
        for id in self.those(&|contender| matches!(contender.phase, Phase::Acquiring(_))) {
            self.step(env, id, |contender, env| {
                contender.judge(env, LossReason::Expired)
            });
        }
    }
}

/// Changes in which members may vote.
impl Locks<Quorum> {
    /// Handles a change in whether this member may vote.
    pub(super) fn standing_changed(&mut self, env: &mut Quorum, at: usize) {
        let votes = env.handshakes.standing(at) == Standing::Votes;
        let waits =
            |contender: &Contender<Quorum>| match (contender.lease.votes.get(at), &contender.phase)
            {
                (Vote::Open | Vote::Asked(_) | Vote::InLine(_), _) => true,
                (_, Phase::Held(_)) => votes && !contender.lease.stands_on(at),
                // From now on, the claim has its place in line there.
                (Vote::Failed(_), Phase::Acquiring(_)) => votes,
                (_, Phase::Acquiring(_)) => false,
            };
        for (turn, id) in self.those(&waits).into_iter().enumerate() {
            self.step(env, id, |contender, env| {
                let Contender { lease, phase, .. } = &mut *contender;
                lease.standing_changed(env, at, matches!(phase, Phase::Held(_)));
                if let Phase::Held(tenure) = phase {
                    tenure.kept.ask_in_turn(env.cx.now, (lease, at), turn);
                }
                contender.judge(env, LossReason::Expired)
            });
        }
    }

    /// Returns true if all leases stand on this member. A fixed lease that did not at once never will, and
    /// must end first.
    pub(super) fn all_stand_on(&self, at: usize) -> bool {
        let held = self.contenders.values();
        let mut held = held.filter(|contender| matches!(contender.phase, Phase::Held(_)));
        held.all(|contender| contender.lease.is_settled_at(at))
    }
}
