//! From wanting a lock to having it at a majority, or not.
//!
//! Waiters stand in line at a majority of the servers, the first in the [order](super::line::Order) in which all lockers
//! rank them for a name, as far as these can be used. The first server below is the first that can. A locker has its
//! *turn* at a server that gave it the lock, because a server gives its lock to nobody but the first in its line.
//!
//! **Why nobody overtakes.**
//!
//! 1. A locker takes the lock with its turn at the first server. All lockers that can use that server are served in the
//!    order of its line, and `try_` forms get no turn there while anybody waits.
//! 2. A locker that has its turn at a later server alone *yields*: it keeps that turn, gives everything else back, and
//!    asks again after a pause. The locker with the turn at the first server stands in line everywhere else by then, so
//!    it gets what the other gave back. If the rest is free again and again, nobody is there who could take the lock: the
//!    first server is held by a client that died, or does not answer.
//! 3. A first server that takes much longer than a majority is passed over: then the next decides.
//! 4. A locker that cannot use the first server needs its turn at the next, where the others stand too.
//!
//! Two kinds of lockers are not ordered: those of which each misses another one of these servers, and a locker that
//! reaches none of them. A waiter that hears of its turn later than the pause takes may be overtaken, too.
//!
//! **Why nobody waits in a circle.** A locker that falls short of a majority gives back what it has, unless it has its
//! turn at the first server of all. Only one locker has that. Should lockers not agree which server is the first,
//! because it restarted and one of them cannot reach it, that one gives its turn back after [`MOST_KEPT`] attempts.
//!
//! Exclusion and tokens do not depend on any of that: they are the [votes'](super::votes::Votes), whoever has a turn.

use std::time::Duration;

use super::Quorum;
use super::calls::Asked;
use super::leased::Leased;
use super::line::{Lines, Order};
use super::votes::Vote;
use crate::engine::ctx::Ctx;
use crate::engine::front::{self, Acquisition, Caller, Callers, Tenure};
use crate::engine::io::{Answer, Wait};
use crate::engine::pace::{Pace, RETRY};
use crate::error::Error;
use crate::time::Timestamp;

/// Members that are a little later than the majority are waited for at least so long, before counters
/// are raised.
const LEAST_GRACE: Duration = Duration::from_millis(1);

/// A server where the line stands is passed over when it takes so many times as long as a majority took, and at
/// least so long.
const TIMES_SLOWER: u32 = 3;
const LEAST_SLOW: Duration = Duration::from_millis(10);

/// How long a locker that has its turn at a later server alone yields, at least and at most.
const YIELD: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));

/// So often it yields although a majority gave the lock: that may be free for a moment between two others' leases.
const YIELDS: u32 = 2;

/// So often it tries again before it stands in line elsewhere than where a place is still being given back.
const PATIENT_RESTS: u32 = 3;

/// So often a turn at the first server is kept, with pauses that get longer, before it is given back.
const MOST_KEPT: u32 = 10;

#[derive(Debug)]
pub(in crate::engine) struct QuorumAcquiring {
    callers: Callers,
    stage: Stage,
    /// How all lockers rank the servers for this name.
    order: Order,
    /// When it is tried anew, while it rests or yields.
    pace: Pace,
    /// How many members gave the lock when it began to rest.
    kept: usize,
    /// How often a majority gave the lock, and it yielded all the same to whoever has the turn at the first server.
    yielded: u32,
    /// When the counters are raised, if the members that are still asked make that no needless one.
    raise_at: Timestamp,
    /// When a server of the line that has not answered is passed over, and whether that is so.
    slow_at: Timestamp,
    is_slow: bool,
    /// How long it took a majority to answer last.
    took: Duration,
    /// Since when no majority has answered, and why.
    silence: Option<(Timestamp, Error)>,
    /// Somebody else has the lock, as a majority last said.
    refused: bool,
}

type Next = front::Next<Quorum>;

/// How it is tried.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// All members are asked where it does not stand in line.
    Together,
    /// It stands in line, and asks the others when it has its turn.
    InLine,
    /// It has its turn at a later server alone. It keeps that, and asks the others in a while.
    Yielding,
    /// It tries again in a while, or when it gets a turn.
    Resting,
}

impl Acquisition for QuorumAcquiring {
    fn callers(&mut self) -> &mut Callers {
        &mut self.callers
    }

    fn wake_at(&self) -> Timestamp {
        let own = match self.stage {
            Stage::Together => self.raise_at.min(self.slow_at),
            Stage::InLine => Timestamp::NEVER,
            Stage::Yielding | Stage::Resting => self.pace.next,
        };
        own.min(self.callers.soonest)
    }
}

/// What the program says.
impl QuorumAcquiring {
    pub(super) fn new(env: &Quorum, lease: &Leased, caller: Caller) -> Self {
        Self {
            callers: Callers::of(caller),
            stage: Stage::Resting,
            order: Self::order(env, lease),
            pace: Pace::due_at(env.cx.now),
            kept: 0,
            yielded: 0,
            raise_at: Timestamp::NEVER,
            slow_at: Timestamp::NEVER,
            is_slow: false,
            took: Duration::ZERO,
            silence: None,
            refused: false,
        }
    }

    /// A further call through a re-entrant handle.
    pub(super) fn join(&mut self, cx: &mut Ctx, caller: Caller) {
        // The line may be long.
        if caller.wait == Wait::Never && self.stage == Stage::InLine {
            cx.answer(caller.call, Answer::Acquire(Ok(None)));
        } else {
            self.callers.add(caller);
        }
    }

    /// Whether its place in line is the one at this member, or at another one.
    pub(super) fn is_place(&self, env: &Quorum, lease: &Leased, at: usize) -> bool {
        let stands = |at| matches!(lease.votes.get(at), Vote::InLine(_)) && env.members.is_able(at);
        self.order.iter().find(|at| stands(*at)) == Some(at)
    }

    pub(super) fn time(&mut self, env: &mut Quorum, lease: &mut Leased) -> Next {
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
        let is_idle = matches!(self.stage, Stage::Yielding | Stage::Resting);
        if is_idle && self.pace.next <= now {
            self.ask_all(env, lease);
        }
        if self.slow_at <= now {
            (self.slow_at, self.is_slow) = (Timestamp::NEVER, true);
        }
        let next = self.judge(env, lease);
        // What else is waited for now will be judged when it comes.
        if self.raise_at <= now {
            self.raise_at = Timestamp::NEVER;
        }
        next
    }
}

/// Whether a majority has answered, and the lease is not to be had without one that is away: somebody else has
/// the lock, or a release is on its way to some, and no answer would come before the attempt timed out.
fn is_refused(env: &Quorum, lease: &Leased) -> bool {
    let count = |is: &dyn Fn(usize, &Vote) -> bool| {
        let all = 0..env.members.len();
        all.filter(|at| is(*at, lease.votes.get(*at))).count()
    };
    let said = count(&|_, vote| matches!(vote, Vote::Has(_) | Vote::Busy | Vote::InLine(_)));
    let hoped = count(&|at, vote| match vote {
        Vote::Has(_) => true,
        Vote::Asked(_) => env.members.is_able(at),
        _ => false,
    });
    let majority = env.members.majority();
    said >= majority && hoped < majority
}

/// Where it stands in line.
impl QuorumAcquiring {
    fn order(env: &Quorum, lease: &Leased) -> Order {
        Order::new(&lease.who.spec.key, env.entries.incarnations())
    }

    /// The members where it stands in line, best first, or would if it had to wait.
    fn lines(&self, env: &Quorum, lease: &Leased) -> Lines {
        self.order.lines(|at| {
            let is_usable = match lease.votes.get(at) {
                // What came too late there is asked again.
                Vote::Failed(error) => error.is_timeout(),
                // It may be one that does nothing any more, as a read-only replica.
                Vote::Leaving => self.pace.failures < PATIENT_RESTS,
                Vote::Asked(_) | Vote::Open => !self.is_slow,
                Vote::None | Vote::InLine(_) | Vote::Has(_) | Vote::Busy => true,
            };
            is_usable && env.members.is_able(at)
        })
    }

    /// Takes a place in line where somebody else has the lock, or the lock if that is free by now.
    fn stand_if_busy(&self, env: &mut Quorum, lease: &mut Leased, at: usize) {
        if !matches!(lease.votes.get(at), Vote::Busy) {
            return;
        }
        let latest = self.callers.latest;
        let wait = if latest == Timestamp::NEVER {
            Wait::Forever
        } else {
            Wait::Until(latest)
        };
        lease.ask(env, at, wait);
    }

    /// True if it will be told of its turn wherever it may get one. Where something is still being given back it has no
    /// place, and has to ask again.
    fn is_in_line(lease: &Leased, lines: Lines) -> bool {
        let stands = |at| matches!(lease.votes.get(at), Vote::InLine(_));
        lines[0].is_some()
            && lines.into_iter().flatten().all(stands)
            && lease.votes.count(|vote| matches!(vote, Vote::Leaving)) == 0
    }
}

/// Asking, and what the members say.
impl QuorumAcquiring {
    pub(super) fn ask_all(&mut self, env: &mut Quorum, lease: &mut Leased) {
        self.stage = Stage::Together;
        self.order = Self::order(env, lease);
        self.raise_at = Timestamp::NEVER;
        (self.slow_at, self.is_slow) = (Timestamp::NEVER, false);
        lease.begin_anew(env.cx.now);
        for at in 0..env.members.len() {
            if lease.who.spec.fixed && matches!(lease.votes.get(at), Vote::Has(_)) {
                lease.keep(env, at);
            }
            lease.ask(env, at, Wait::Never);
        }
    }

    /// What follows from the votes.
    pub(super) fn judge(&mut self, env: &mut Quorum, lease: &mut Leased) -> Next {
        if !self.order.is_agreed() {
            // More may be known by now.
            self.order = Self::order(env, lease);
        }
        match self.stage {
            Stage::Together => self.judge_together(env, lease),
            Stage::InLine | Stage::Yielding => self.judge_line(env, lease),
            // It got a turn.
            Stage::Resting if lease.has() > self.kept => self.ask_others(env, lease),
            Stage::Resting => {
                self.kept = lease.has();
                Next::Stay
            }
        }
    }

    fn ask_others(&mut self, env: &mut Quorum, lease: &mut Leased) -> Next {
        self.ask_all(env, lease);
        self.judge_together(env, lease)
    }

    fn judge_together(&mut self, env: &mut Quorum, lease: &mut Leased) -> Next {
        let majority = env.members.majority();
        let (has, asked) = (lease.has(), lease.asked());
        let may_do = has + asked >= majority && !is_refused(env, lease);
        let lines = self.lines(env, lease);
        let votes = || lines.into_iter().flatten().map(|at| lease.votes.get(at));
        let (is_first, later) = Self::turns(lease, lines);
        let has_turn = is_first || later.is_some() && self.yielded >= YIELDS;
        let is_awaited = votes().any(|vote| match vote {
            // Waiters have to know whether they may stand in line there.
            Vote::Asked(_) => may_do || self.callers.wait(),
            Vote::Open => may_do,
            _ => false,
        });
        // Where all are silent, whoever answers first is no longer.
        let is_awaited = is_awaited || lines[0].is_none() && may_do && asked > 0;
        if is_awaited && !(has_turn && may_do) {
            self.expect_answers(env, lease);
            return Next::Stay;
        }
        if !may_do || !is_first && later.is_none() {
            return self.fall_short(env, lease, lines);
        }
        if !has_turn {
            if has >= majority {
                self.took = env.cx.now.since(lease.asked_at);
                self.yields(env, lease, lines);
                self.yielded += 1;
            }
            return Next::Stay;
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
            return Tenure::begin(env, lease, token).map_or(Next::Stay, Next::Hold);
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

    /// A server of the line is waited for a little longer than a majority of all.
    fn expect_answers(&mut self, env: &Quorum, lease: &Leased) {
        let (now, members) = (env.cx.now, env.members.len());
        let answered = members - lease.asked();
        if answered >= env.members.majority() && self.slow_at == Timestamp::NEVER && !self.is_slow {
            let took = now.since(lease.asked_at);
            self.slow_at = now + (took * TIMES_SLOWER).max(LEAST_SLOW);
        }
    }

    fn judge_line(&mut self, env: &mut Quorum, lease: &mut Leased) -> Next {
        let lines = self.lines(env, lease);
        let (is_first, later) = Self::turns(lease, lines);
        let waits_at_first =
            lines[0].is_some_and(|at| matches!(lease.votes.get(at), Vote::InLine(_)));
        match self.stage {
            Stage::Yielding if later.is_some() && !is_first => {}
            _ if later.is_some() && waits_at_first => self.yields(env, lease, lines),
            _ if lease.has() > 0 => return self.ask_others(env, lease),
            _ if Self::is_in_line(lease, lines) => self.stage = Stage::InLine,
            _ => self.rest(env, lease, RETRY.0),
        }
        Next::Stay
    }

    /// True if a turn at this server is kept for as long as it takes to get a majority: no other locker can keep one
    /// elsewhere that sees all servers too. Others may, for a while.
    fn may_keep(&self, env: &Quorum, at: Option<usize>) -> bool {
        let sees_all = self.order.is_agreed() && env.members.able() == env.members.len();
        at == Some(self.order.first()) && (sees_all || self.pace.failures < MOST_KEPT)
    }

    /// Whether it has its turn at the first server, and the best of the others where it has.
    fn turns(lease: &Leased, lines: Lines) -> (bool, Option<usize>) {
        let has_turn = |at: &usize| matches!(lease.votes.get(*at), Vote::Has(_));
        let later = lines[1..].iter().flatten().copied().find(has_turn);
        (lines[0].as_ref().is_some_and(has_turn), later)
    }

    /// Keeps its turn at one later server, and lets whoever has the turn at the first ask the others meanwhile.
    fn yields(&mut self, env: &mut Quorum, lease: &mut Leased, lines: Lines) {
        let (_, later) = Self::turns(lease, lines);
        lease.give_back_unless(env, &|at| Some(at) == later);
        for at in lines.into_iter().flatten().filter(|_| self.callers.wait()) {
            self.stand_if_busy(env, lease, at);
        }
        self.stage = Stage::Yielding;
        self.pace.next = env.cx.now + (self.took * 2).clamp(YIELD.0, YIELD.1);
    }

    /// No majority can be had now. What was got is given back, unless it has the turn at the first server of all: then
    /// nobody can wait for it in a circle, and it stands in line for all that it lacks.
    fn fall_short(&mut self, env: &mut Quorum, lease: &mut Leased, lines: Lines) -> Next {
        let error = lease.unavailable(env);
        let (has_turn, _) = Self::turns(lease, lines);
        let keeps = has_turn && self.callers.wait() && self.may_keep(env, lines[0]);
        lease.give_back_unless(env, &|_| keeps);
        self.took = env.cx.now.since(lease.asked_at);
        self.yielded = 0;
        let is_open = error.is_none();
        self.answer_impatient(&mut env.cx, lease.asked_at, error);
        if self.callers.is_empty() {
            return Next::Leave;
        }
        if !is_open {
            self.rest(env, lease, RETRY.0);
            return Next::Stay;
        }
        for at in 0..env.members.len() {
            if keeps || lines.contains(&Some(at)) {
                self.stand_if_busy(env, lease, at);
            }
        }
        if has_turn {
            // Only those are in its way who asked for all at once, and they give back soon.
            self.rest(env, lease, self.took.clamp(LEAST_GRACE, RETRY.0));
        } else if Self::is_in_line(lease, self.lines(env, lease)) {
            self.stage = Stage::InLine;
            self.pace.failures = 0;
        } else {
            self.rest(env, lease, RETRY.0);
        }
        Next::Stay
    }

    fn rest(&mut self, env: &Quorum, lease: &Leased, base: Duration) {
        (self.stage, self.kept) = (Stage::Resting, lease.has());
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
