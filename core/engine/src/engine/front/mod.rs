//! The front of a locker is the same at one server and at a quorum: it takes in what the program says, keeps tables
//! of contenders, handles and queries, runs timers, and shuts down.

mod backend;
mod callers;
mod contender;
mod handle;
mod locks;
mod queries;
mod tenure;
mod who;

use std::sync::Arc;
use std::time::Duration;

use super::ctx::Ctx;
use super::io::{Answer, CallId, Input, LockId, LockSpec, Output, Wait};
use super::stats::Counts;
use super::timers::Timed;
use crate::error::Error;
use crate::event::LeaseEvent;
use crate::protocol::{LeaseId, Reclaim};
use crate::time::Timestamp;
use crate::token::FencingToken;
pub(super) use backend::{Acquisition, Backend, Keeping, Lease, Next, Phase, Releases};
pub(super) use callers::{Caller, Callers};
pub(super) use contender::Contender;
pub(super) use handle::{Handle, Handles};
pub(super) use locks::Locks;
pub(super) use queries::{Queried, Queries, Query, Question};
pub(super) use tenure::{Tenure, lead, lost};
pub(super) use who::Who;

/// The part of an engine that faces its servers: it takes in what they say, and sends what waits.
pub(super) trait ServerSide: Queried {
    /// The context, how many things of its own may have a timer, and what each of these is set for.
    fn timers(&mut self) -> (&mut Ctx, usize, impl Fn(Timed) -> Option<Timestamp>);

    /// Begins to end what the locker has at the store.
    fn shut_down(&mut self);

    /// True if all is ended that [`shut_down`](Self::shut_down) began.
    fn is_shut_down(&self, locks: &Locks<Self>) -> bool;

    /// True if nothing is under way besides what the front knows of.
    fn is_idle(&self) -> bool;

    /// When it has to be told the time.
    fn next_wake(&self) -> Timestamp;

    /// True if the callers that were just answered are likely to ask again.
    fn expects_more(&self) -> bool;

    /// True if something waits to be sent.
    fn has_unsent(&self) -> bool;

    /// The counts of this locker.
    fn counts(&self) -> Counts;

    /// The drift margin, if it had to be widened.
    fn clock_drift(&self) -> Option<LeaseEvent>;

    /// Takes in what the host says of servers, and that time has passed.
    fn input(front: &mut Front<Self>, input: Input);

    /// The time has come for a timer that is no contender's and no query's.
    fn own_time(front: &mut Front<Self>, what: Timed);

    /// Time has passed, before anything else is looked at.
    fn tick(front: &mut Front<Self>);

    /// Takes in what follows from what was just done.
    fn settle(front: &mut Front<Self>);

    /// Hands to the host what waits to be sent.
    fn flush(front: &mut Front<Self>);
}

/// The state of one locker.
#[derive(Debug)]
pub(super) struct Front<B: ServerSide> {
    pub(super) env: B,
    pub(super) locks: Locks<B>,
    pub(super) queries: Queries<B>,
    shutdown: Option<Shutdown>,
}

#[derive(Debug)]
struct Shutdown {
    /// The calls that wait for its end.
    calls: Vec<CallId>,
    ended: bool,
    wake: Timestamp,
}

/// A lock that the program asks for.
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

/// A renewal that the program asks for.
#[derive(Copy, Clone, Debug)]
pub(super) struct Renewal {
    pub(super) call: CallId,
    pub(super) ttl: Option<Duration>,
    pub(super) floor: Option<FencingToken>,
}

/// Inputs and outputs.
impl<B: ServerSide> Front<B> {
    /// One that is not connected yet.
    pub(super) fn new(env: B) -> Self {
        Self {
            env,
            locks: Locks::default(),
            queries: Queries::default(),
            shutdown: None,
        }
    }

    /// Takes in what happened. Time never goes back: an earlier `now` counts as the latest seen.
    pub(super) fn handle(&mut self, now: Timestamp, input: Input) {
        self.begin(now);
        self.take_in(input);
        self.end();
    }

    /// Time has passed: what is over is over before anything else is looked at.
    pub(super) fn begin(&mut self, now: Timestamp) {
        let cx = self.env.cx();
        cx.now = cx.now.max(now);
        B::tick(self);
        self.run_due();
    }

    /// All is taken in.
    pub(super) fn end(&mut self) {
        B::settle(self);
        self.settle_shutdown();
        self.tidy_timers();
    }

    /// The next thing for the host to do; [`Output::Wait`] if there is none. What is to be sent
    /// comes last: a host that takes in several inputs before it polls sends their operations
    /// together.
    pub(super) fn poll(&mut self) -> Output {
        if !self.env.cx().has_outputs() {
            B::flush(self);
        }
        self.poll_unsent()
    }

    /// As [`poll`](Self::poll), but what is to be sent waits for that.
    pub(super) fn poll_unsent(&mut self) -> Output {
        let output = self.env.cx().next_output();
        output.unwrap_or_else(|| {
            let at = self.env.next_wake();
            let until = (at != Timestamp::NEVER).then_some(at);
            Output::Wait { until }
        })
    }

    /// True if nothing is held, under way or waiting for an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.locks.is_idle() && self.queries.len() == 0 && self.env.is_idle()
    }
}

/// Dispatch: the only place that looks things up and hands them on.
impl<B: ServerSide> Front<B> {
    fn take_in(&mut self, input: Input) {
        let refused = self.shutdown.as_ref().and_then(|_| input.refused());
        if let Some((call, answer)) = refused {
            return self.env.cx().answer(call, answer);
        }
        let Self {
            env,
            locks,
            queries,
            ..
        } = self;
        match input {
            Input::Acquire {
                call,
                lock,
                spec,
                lease,
                wait,
            } => match env.check(&spec) {
                Ok(()) => self.acquire(Wanted {
                    call,
                    lock,
                    spec,
                    lease,
                    wait,
                    reclaims: Reclaim::Ask,
                }),
                Err(error) => env.cx().answer(call, Answer::Acquire(Err(error))),
            },
            Input::Renew {
                call,
                lease,
                ttl,
                floor,
            } => locks.renew(env, lease, Renewal { call, ttl, floor }),
            Input::Release { call, lease } => locks.release(env, call, lease),
            Input::Close { lock } => locks.close(env.cx(), lock),
            Input::Inspect { call, key } => env.ask(queries, call, Question::Inspect(key)),
            Input::ForceRelease { call, key, token } => {
                env.ask(queries, call, Question::ForceRelease(key, token));
            }
            Input::List {
                call,
                pattern,
                cursor,
            } => env.ask(queries, call, Question::List(pattern, cursor)),
            Input::Cancel { call, of: None } => queries.cancel(env, call),
            Input::Cancel { call, of: Some(of) } => locks.cancel(env, call, of),
            Input::Shutdown { call } => self.shut_down(call),
            input => B::input(self, input),
        }
    }

    /// Acquires a lock.
    pub(super) fn acquire(&mut self, wanted: Wanted) {
        self.locks.acquire(&mut self.env, wanted);
    }

    fn run_due(&mut self) {
        // A timer stays set until the thing that it is of moves it.
        while let Some(what) = self.next_due() {
            match what {
                Timed::Contender(id) => self.locks.time(&mut self.env, id),
                Timed::Query(call) => self.queries.time(&mut self.env, call),
                Timed::Shutdown => self.end_shutdown(),
                what => B::own_time(self, what),
            }
            B::settle(self);
        }
    }

    fn next_due(&mut self) -> Option<Timed> {
        let now = self.env.cx().now;
        self.env.cx().timers.due(now)?;
        // Unless it was left behind.
        self.tidy_timers();
        self.env.cx().timers.due(now)
    }

    pub(super) fn tidy_timers(&mut self) {
        let Self {
            env,
            locks,
            queries,
            shutdown,
        } = self;
        let (cx, things, own) = env.timers();
        let set_for = |what| match what {
            Timed::Contender(id) => locks.contender_wake(id),
            Timed::Release(id) => locks.releases.wake(id),
            Timed::Query(call) => queries.wake(call),
            Timed::Shutdown => shutdown.as_ref().map(|shutdown| shutdown.wake),
            Timed::Server(_) | Timed::Watch => own(what),
        };
        let set_for = |what| set_for(what).unwrap_or(Timestamp::NEVER);
        let (things, now) = (things + locks.len() + queries.len(), cx.now);
        cx.timers.tidy(things, now, set_for);
    }
}

/// Shutting down.
impl<B: ServerSide> Front<B> {
    fn shut_down(&mut self, call: CallId) {
        match &mut self.shutdown {
            Some(Shutdown { ended: true, .. }) => {
                return self.env.cx().answer(call, Answer::Shutdown);
            }
            Some(shutdown) => return shutdown.calls.push(call),
            None => {}
        }
        let mut shutdown = Shutdown {
            calls: vec![call],
            ended: false,
            wake: Timestamp::NEVER,
        };
        let cx = self.env.cx();
        let until = cx.now + cx.settings.patience;
        cx.timers.set(Timed::Shutdown, &mut shutdown.wake, until);
        self.shutdown = Some(shutdown);
        self.locks.shut_down(&mut self.env);
        self.queries.fail_all(&mut self.env, &Error::shutdown());
        self.env.shut_down();
    }

    fn settle_shutdown(&mut self) {
        if self.shutdown.is_some() && self.env.is_shut_down(&self.locks) {
            self.end_shutdown();
        }
    }

    /// Nobody waits any longer for what the store has not confirmed; it is tried on.
    fn end_shutdown(&mut self) {
        let (cx, Some(shutdown)) = (self.env.cx(), &mut self.shutdown) else {
            return;
        };
        cx.timers
            .set(Timed::Shutdown, &mut shutdown.wake, Timestamp::NEVER);
        shutdown.ended = true;
        for call in std::mem::take(&mut shutdown.calls) {
            cx.answer(call, Answer::Shutdown);
        }
    }
}

impl Input {
    /// The call that it begins, if that is refused once the locker was shut down.
    fn refused(&self) -> Option<(CallId, Answer)> {
        let error = Error::shutdown;
        match self {
            Self::Acquire { call, .. } => Some((*call, Answer::Acquire(Err(error())))),
            Self::Renew { call, .. } => Some((*call, Answer::Renew(Err(error())))),
            Self::Inspect { call, .. } => Some((*call, Answer::Inspect(Err(error())))),
            Self::List { call, .. } => Some((*call, Answer::List(Err(error())))),
            Self::ForceRelease { call, .. } => Some((*call, Answer::ForceRelease(Err(error())))),
            _ => None,
        }
    }
}
