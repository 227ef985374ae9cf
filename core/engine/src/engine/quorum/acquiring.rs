//! Acquiring a lock at a majority of the members.
//!
//! Waiters stand in line at a majority of the servers: the first ones in the [order](super::line::Order) in
//! which all lockers rank the servers for a name, as far as these can be used. "The first server" below is
//! the first usable one. A locker has its *turn* at a server once that gave it the lock, because a server
//! gives its lock only to the first in its line.
//!
//! # Why nobody overtakes
//!
//! 1. A locker takes the lock with its turn at the first server. That serves all lockers that can use it in
//!    the order of its line, and gives `try_` forms no turn while anybody waits.
//! 2. A locker that has its turn only at a later server *yields*: it keeps that turn, gives everything else
//!    back, and asks again after a pause. By then, the locker with the turn at the first server stands in
//!    line everywhere else, so it gets what the other gave back. If the rest is free again and again, no
//!    locker can take the lock by (1): the first server does not answer, or gave its lock to a client that
//!    died.
//! 3. A first server that takes much longer than a majority is skipped: then the next one decides.
//! 4. A locker that cannot use the first server needs its turn at the next one, where the others stand, too.
//! 5. A locker that was not notified of its turn at the first server asks there after it yielded.
//!
//! These are not ordered:
//! - lockers that each miss a different one of these servers;
//! - a locker that reaches none of them;
//! - until its next heartbeat, a locker that was not notified of its turn at the first server and has no turn
//!   elsewhere, and those behind it.
//!
//! # Why no waiters block each other
//!
//! 1. A locker that falls short of a majority gives back what it has, unless it has its turn at the first
//!    server of all.
//! 2. Only one locker has that turn, so no two lockers keep what the other needs.
//! 3. Lockers may disagree which server is the first, because it restarted and one of them cannot reach it.
//!    So a locker that does not see all servers gives this turn back, too, after [`MOST_KEPT`] attempts.
//!
//! Exclusion and tokens depend on none of this: [`Votes`](super::votes::Votes) guarantees them, whoever has a
//! turn.

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

/// How long to wait at least for members that are a little slower than the majority, before counters are
/// raised.
const LEAST_GRACE: Duration = Duration::from_millis(1);

/// A server of the line is skipped if it takes this many times as long as the majority, and at least
/// [`LEAST_SLOW`].
const TIMES_SLOWER: u32 = 3;
const LEAST_SLOW: Duration = Duration::from_millis(10);

/// How long a locker yields, at least and at most, if it has its turn only at a later server.
const YIELD: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));

/// How many times a locker yields although a majority gave it the lock. Once is not enough: the lock may be
/// free for a moment between two leases of others.
const YIELDS: u32 = 2;

/// How many times to retry before standing in line elsewhere, if the release of an old place is still
/// unfinished.
const PATIENT_RESTS: u32 = 3;

/// How many attempts keep a turn at the first server, with growing pauses, before it is given back.
const MOST_KEPT: u32 = 10;

#[derive(Debug)]
pub(in crate::engine) struct QuorumAcquiring {
    callers: Callers,
    stage: Stage,
    /// How all lockers rank the servers for this name.
    order: Order,
    /// When to try again while resting or yielding.
    pace: Pace,
    /// How many members had granted the lock when the pause began.
    kept: usize,
    /// How many times a majority gave the lock, and it yielded to the locker with the turn at the first
    /// server.
    yielded: u32,
    /// When to raise the counters, unless answers that are still due make this unnecessary.
    raise_at: Timestamp,
    /// When to skip a server of the line that has not answered, and whether that time has passed.
    slow_at: Timestamp,
    is_slow: bool,
    /// How long a majority took to answer last time.
    took: Duration,
    /// Since when no majority has answered, and why.
    silence: Option<(Timestamp, Error)>,
    /// True if a majority last said that somebody else has the lock.
    refused: bool,
}

type Next = front::Next<Quorum>;

/// The stage of an attempt.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// It asks all members at which it does not stand in line.
    Together,
    /// It stands in line, and asks the others when it gets its turn.
    InLine,
    /// It has its turn only at a later server, keeps that, and asks the others after a pause.
    Yielding,
    /// It tries again after a pause, or when it gets a turn.
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

/// Calls of the program.
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

    /// Adds another call through a re-entrant handle.
    pub(super) fn join(&mut self, cx: &mut Ctx, caller: Caller) {
        // Waiting in line may take long.
        if caller.wait == Wait::Never && self.stage == Stage::InLine {
            cx.answer(caller.call, Answer::Acquire(Ok(None)));
        } else {
            self.callers.add(caller);
        }
    }

    /// Returns true if the position in line to report is the one at this member: the first in the order where
    /// it stands in line.
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
            let has_yielded = self.stage == Stage::Yielding;
            self.ask_all(env, lease);
            if has_yielded {
                self.ask_first(env, lease);
            }
        }
        if self.slow_at <= now {
            (self.slow_at, self.is_slow) = (Timestamp::NEVER, true);
        }
        let next = self.judge(env, lease);
        // Other answers that are due are judged when they arrive.
        if self.raise_at <= now {
            self.raise_at = Timestamp::NEVER;
        }
        next
    }
}

/// Returns true if a majority has answered and the lease needs a member that is not available: somebody else
/// has the lock, or an earlier lease's release is still under way, and no further answer will come before the
/// attempt times out.
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

/// The servers where the claim stands in line.
impl QuorumAcquiring {
    fn order(env: &Quorum, lease: &Leased) -> Order {
        Order::new(&lease.who.spec.key, env.handshakes.incarnations())
    }

    /// Returns the members where the claim stands in line, or would stand if it had to wait, best first.
    fn lines(&self, env: &Quorum, lease: &Leased) -> Lines {
        self.order.lines(|at| {
            let is_usable = match lease.votes.get(at) {
                // A request that arrived too late is repeated.
                Vote::Failed(error) => error.is_timeout(),
                // The release may never finish, for example at a read-only replica.
                Vote::Leaving => self.pace.failures < PATIENT_RESTS,
                Vote::Asked(_) | Vote::Open => !self.is_slow,
                Vote::None | Vote::InLine(_) | Vote::Has(_) | Vote::Busy => true,
            };
            is_usable && env.members.is_able(at)
        })
    }

    /// Takes a place in line where somebody else has the lock, or takes the lock if it is free by now.
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

    /// Asks the first server, if the claim stands in line there, whether it has its turn by now. The locker
    /// hears nothing of its turn before it is subscribed, or if a push is lost. Until it knows, it yields like
    /// the lockers behind it, and one of these may take the lock first.
    fn ask_first(&self, env: &mut Quorum, lease: &Leased) {
        let first = self.lines(env, lease)[0];
        let stands = |at: &usize| matches!(lease.votes.get(*at), Vote::InLine(_));
        if let Some(at) = first.filter(stands) {
            env.members.ask_now(&env.cx, at, lease.id_at(at));
        }
    }

    /// Returns true if the locker will be notified of every turn that it can get. Where an earlier release is
    /// unfinished it has no place, and must ask again.
    fn is_in_line(lease: &Leased, lines: Lines) -> bool {
        let stands = |at| matches!(lease.votes.get(at), Vote::InLine(_));
        lines[0].is_some()
            && lines.into_iter().flatten().all(stands)
            && lease.votes.count(|vote| matches!(vote, Vote::Leaving)) == 0
    }
}

/// Asking the members and judging their answers.
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

    /// Decides the next step from the votes.
    pub(super) fn judge(&mut self, env: &mut Quorum, lease: &mut Leased) -> Next {
        if !self.order.is_agreed() {
            // More incarnations may be known by now.
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
            // Waiters must know whether they can stand in line there.
            Vote::Asked(_) => may_do || self.callers.wait(),
            Vote::Open => may_do,
            _ => false,
        });
        // If no server is usable, it waits for any answer: a server that answers is usable again.
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

    /// Sets how long to wait for a slow server of the line, once a majority of all members has answered.
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

    /// Returns true if a locker may keep its turn at this server until it has a majority. A locker that sees
    /// all servers may: no other such locker keeps a turn at another server. Any other locker may only for a
    /// limited number of attempts.
    fn may_keep(&self, env: &Quorum, at: Option<usize>) -> bool {
        let sees_all = self.order.is_agreed() && env.members.able() == env.members.len();
        at == Some(self.order.first()) && (sees_all || self.pace.failures < MOST_KEPT)
    }

    /// Returns true if the locker has its turn at the first server, and the best later server where it has one.
    fn turns(lease: &Leased, lines: Lines) -> (bool, Option<usize>) {
        let has_turn = |at: &usize| matches!(lease.votes.get(*at), Vote::Has(_));
        let later = lines[1..].iter().flatten().copied().find(has_turn);
        (lines[0].as_ref().is_some_and(has_turn), later)
    }

    /// Keeps its turn at one later server only, so that the locker with the turn at the first server can get
    /// the others.
    fn yields(&mut self, env: &mut Quorum, lease: &mut Leased, lines: Lines) {
        let (_, later) = Self::turns(lease, lines);
        lease.give_back_unless(env, &|at| Some(at) == later);
        for at in lines.into_iter().flatten().filter(|_| self.callers.wait()) {
            self.stand_if_busy(env, lease, at);
        }
        self.stage = Stage::Yielding;
        self.pace.next = env.cx.now + (self.took * 2).clamp(YIELD.0, YIELD.1);
    }

    /// Ends an attempt that cannot get a majority now. Gives back what it got, unless it has its turn at the
    /// first server of all and stands in line for the rest: see "Why no waiters block each other" in the
    /// [module](self).
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
            // Only lockers that asked all servers at once are in its way, and they give back soon.
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
        // The part of a fixed lease that it has must not expire before the retry.
        let most = (lease.who.spec.ttl / 3).clamp(RETRY.0, RETRY.1);
        self.pace
            .back_off(env.cx.now, (base, most), lease.who.lease);
    }

    /// Answers the callers that do not wait, and those that have waited as long as the locker's patience.
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
