//! From wanting a lock to having it at a majority, or not.

use std::time::Duration;

use super::calls::Asked;
use super::env::Env;
use super::leased::{Leased, Next};
use super::votes::Vote;
use crate::engine::ctx::Ctx;
use crate::engine::io::{Answer, CallId, Wait};
use crate::engine::lock::callers::{Caller, Callers};
use crate::engine::pace::{Pace, RETRY};
use crate::error::Error;
use crate::time::Timestamp;

/// Members that are a little later than the majority are waited for at least so long, before counters
/// are raised.
const LEAST_GRACE: Duration = Duration::from_millis(1);

/// So often it tries again before it stands in line elsewhere than where a place is still being given back.
const PATIENT_RESTS: u32 = 3;

#[derive(Debug)]
pub(super) struct Acquiring {
    pub(super) callers: Callers,
    stage: Stage,
    /// When it is tried anew, while it rests.
    pace: Pace,
    /// When the counters are raised, if the members that are still asked make that no needless one.
    raise_at: Timestamp,
    /// Since when no majority has answered, and why.
    silence: Option<(Timestamp, Error)>,
    /// Somebody else has the lock, as a majority last said.
    refused: bool,
}

/// How it is tried.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// All members are asked, none of them for a place in line.
    Together,
    /// It stands in line at this member, and asks the others when it has its turn.
    InLine(usize),
    /// It tries again in a while.
    Resting,
}

/// What the program says.
impl Acquiring {
    pub(super) fn new(now: Timestamp, caller: Caller) -> Self {
        Self {
            callers: Callers::of(caller),
            stage: Stage::Resting,
            pace: Pace::due_at(now),
            raise_at: Timestamp::NEVER,
            silence: None,
            refused: false,
        }
    }

    /// A further call through a re-entrant handle.
    pub(super) fn join(&mut self, cx: &mut Ctx, caller: Caller) {
        if caller.is_too_late(cx) {
            return;
        }
        match self.callers.is_full() {
            Some(full) => caller.fail(cx, full),
            // The line may be long.
            None if caller.wait == Wait::Never && self.is_in_line() => {
                cx.answer(caller.call, Answer::Acquire(Ok(None)));
            }
            None => self.callers.add(caller),
        }
    }

    pub(super) fn cancel(&mut self, call: CallId) -> Next {
        self.callers.remove(|caller| caller.call == call);
        self.unless_nobody_wants_it()
    }

    /// The place in line is that at this member.
    pub(super) fn is_in_line_at(&self, at: usize) -> bool {
        self.stage == Stage::InLine(at)
    }

    pub(super) fn is_in_line(&self) -> bool {
        matches!(self.stage, Stage::InLine(_))
    }

    pub(super) fn wake_at(&self) -> Timestamp {
        let own = match self.stage {
            Stage::Together => self.raise_at,
            Stage::InLine(_) => Timestamp::NEVER,
            Stage::Resting => self.pace.next,
        };
        own.min(self.callers.soonest)
    }

    pub(super) fn time(&mut self, env: &mut Env, lease: &mut Leased) -> Next {
        let now = env.cx.now;
        let over = self.callers.remove(|caller| caller.until() <= now);
        for caller in over {
            let answer = match &self.silence {
                Some((_, error)) => Err(error.clone()),
                None if self.refused => Ok(None),
                None => Err(Error::no_answer()),
            };
            env.cx.answer(caller.call, Answer::Acquire(answer));
        }
        if self.callers.is_empty() {
            return Next::Leave;
        }
        if self.stage == Stage::Resting && self.pace.next <= now {
            self.ask_all(env, lease);
        }
        let next = self.judge(env, lease);
        // What else is waited for now will be judged when it comes.
        if self.raise_at <= now {
            self.raise_at = Timestamp::NEVER;
        }
        next
    }

    fn unless_nobody_wants_it(&self) -> Next {
        if self.callers.is_empty() {
            Next::Leave
        } else {
            Next::Stay
        }
    }
}

/// Whether a majority has answered, and the lease is not to be had without one that is away: somebody else has
/// the lock, or a release is on its way to some, and no answer would come before the attempt timed out.
fn is_refused(env: &Env, lease: &Leased) -> bool {
    let count = |is: &dyn Fn(usize, &Vote) -> bool| {
        let all = 0..env.members.len();
        all.filter(|at| is(*at, lease.votes.get(*at))).count()
    };
    let said = count(&|_, vote| matches!(vote, Vote::Has(_) | Vote::Busy));
    let hoped = count(&|at, vote| match vote {
        Vote::Has(_) => true,
        Vote::Asked(_) => env.members.is_able(at),
        _ => false,
    });
    let majority = env.members.majority();
    said >= majority && hoped < majority
}

/// Asking, and what the members say.
impl Acquiring {
    pub(super) fn ask_all(&mut self, env: &mut Env, lease: &mut Leased) {
        self.stage = Stage::Together;
        self.raise_at = Timestamp::NEVER;
        lease.begin_anew(env.cx.now);
        for at in 0..env.members.len() {
            if lease.who.spec.fixed && matches!(lease.votes.get(at), Vote::Has(_)) {
                lease.keep(env, at);
            }
            lease.ask(env, at, Wait::Never);
        }
    }

    /// What follows from the votes.
    pub(super) fn judge(&mut self, env: &mut Env, lease: &mut Leased) -> Next {
        match self.stage {
            Stage::Together => self.judge_together(env, lease),
            Stage::InLine(desk) => self.judge_line(env, lease, desk),
            Stage::Resting => Next::Stay,
        }
    }

    fn judge_together(&mut self, env: &mut Env, lease: &mut Leased) -> Next {
        let majority = env.members.majority();
        let (has, asked) = (lease.has(), lease.asked());
        // Who waits has its turn at the desk, so that nobody overtakes those who stand in line there.
        let desk = self.desk(env, lease);
        let turn = match desk.map(|desk| lease.votes.get(desk)) {
            None | Some(Vote::Has(_)) => true,
            Some(Vote::Asked(_)) => return Next::Stay,
            Some(Vote::Open) if has + asked >= majority => return Next::Stay,
            Some(Vote::None | Vote::Open | Vote::Leaving | Vote::Busy | Vote::Failed(_)) => false,
        };
        if !turn || has + asked < majority || is_refused(env, lease) {
            return self.fall_short(env, lease, desk);
        }
        let token = if lease.who.spec.owner.is_reclaimable() {
            lease.votes.greatest_token(majority)
        } else {
            lease.votes.token(majority)
        };
        let Some(token) = token else {
            return Next::Stay;
        };
        if lease.votes.at_least(token) >= majority {
            return Next::Hold(token);
        }
        let now = env.cx.now;
        if self.raise_at == Timestamp::NEVER {
            self.raise_at = now + now.since(lease.asked_at).max(LEAST_GRACE);
        }
        if asked == 0 || self.raise_at <= now {
            self.raise_at = Timestamp::NEVER;
            for at in lease.votes.below(token) {
                let (id, what) = (lease.id_at(at), Asked::Raise(lease.who.id()));
                env.members
                    .renew(&env.cx, at, (what, id), (None, Some(token)));
                if let Some(has) = lease.votes.has_mut(at) {
                    has.raising = Some(token);
                }
            }
        }
        Next::Stay
    }

    fn judge_line(&mut self, env: &mut Env, lease: &mut Leased, desk: usize) -> Next {
        match lease.votes.get(desk) {
            Vote::Asked(_) if env.members.is_able(desk) => Next::Stay,
            Vote::Has(_) => {
                self.ask_all(env, lease);
                self.judge_together(env, lease)
            }
            _ => {
                lease.give_back(env, desk);
                self.rest(env, lease, RETRY.0);
                Next::Stay
            }
        }
    }

    /// The member at which those who wait stand in line; none if nobody waits.
    fn desk(&self, env: &Env, lease: &Leased) -> Option<usize> {
        let failed = |at| match lease.votes.get(at) {
            // What came too late there is asked again.
            Vote::Failed(error) => !error.is_timeout(),
            // It may be one that does nothing any more, as a read-only replica.
            Vote::Leaving => self.pace.failures >= PATIENT_RESTS,
            Vote::None | Vote::Open | Vote::Asked(_) | Vote::Has(_) | Vote::Busy => false,
        };
        env.members.desk(failed).filter(|_| self.callers.wait())
    }

    /// No majority can be had now. What was got is given back, but for a place at the desk that all
    /// others go to first: there nobody can wait for another in a circle.
    fn fall_short(&mut self, env: &mut Env, lease: &mut Leased, desk: Option<usize>) -> Next {
        let error = lease.unavailable(env);
        let desk_is_busy = desk.is_some_and(|desk| matches!(lease.votes.get(desk), Vote::Busy));
        let keeps = desk == Some(0) && matches!(lease.votes.get(0), Vote::Has(_));
        lease.give_back_all(env, keeps.then_some(0));
        let is_open = error.is_none();
        self.answer_impatient(&mut env.cx, lease.asked_at, error);
        if self.callers.is_empty() {
            return Next::Leave;
        }
        match desk.filter(|_| is_open && desk_is_busy) {
            Some(desk) => {
                self.stage = Stage::InLine(desk);
                self.pace.failures = 0;
                let latest = self.callers.latest;
                let wait = if latest == Timestamp::NEVER {
                    Wait::Forever
                } else {
                    Wait::Until(latest)
                };
                lease.ask(env, desk, wait);
                if !matches!(lease.votes.get(desk), Vote::Asked(_)) {
                    self.rest(env, lease, RETRY.0);
                }
            }
            // With its turn at the desk only those are in its way who asked for all at once, and they give back
            // as soon as they know of the desk.
            None if keeps && is_open => {
                let round_trip = env.cx.now.since(lease.asked_at);
                self.rest(env, lease, round_trip.clamp(LEAST_GRACE, RETRY.0));
            }
            None => self.rest(env, lease, RETRY.0),
        }
        Next::Stay
    }

    fn rest(&mut self, env: &Env, lease: &Leased, base: Duration) {
        self.stage = Stage::Resting;
        // What it has of a fixed lease must not be over before that.
        let most = (lease.who.spec.ttl / 3).clamp(RETRY.0, RETRY.1);
        self.pace
            .back_off(env.cx.now, (base, most), lease.who.lease);
    }

    /// Those who do not wait have their answer; those who do have patience for as long as the locker has.
    fn answer_impatient(&mut self, cx: &mut Ctx, asked_at: Timestamp, error: Option<Error>) {
        let (now, patience) = (cx.now, cx.settings.patience);
        let Some(error) = error else {
            (self.refused, self.silence) = (true, None);
            for caller in self.callers.remove(|caller| caller.wait == Wait::Never) {
                cx.answer(caller.call, Answer::Acquire(Ok(None)));
            }
            return;
        };
        if !error.is_transient() {
            return self.callers.fail(cx, &error);
        }
        let since = self.silence.as_ref().map_or(asked_at, |(since, _)| *since);
        self.silence = Some((since, error.clone()));
        let impatient = self.callers.remove(|caller| match caller.wait {
            Wait::Never => true,
            Wait::Forever => now.since(since.max(caller.asked)) >= patience,
            Wait::Until(_) => false,
        });
        for caller in impatient {
            caller.fail(cx, error.clone());
        }
    }
}
