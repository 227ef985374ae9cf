//! The part of a locker that is the same for one server and for a quorum. It takes in the program's calls,
//! keeps tables of contenders, handles and queries, runs timers, and shuts down.

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
use super::io::{Answer, CallId, Input, LockId, Output, Wait};
use super::spec::LockSpec;
use super::stats::Counts;
use super::timers::Timed;
use crate::error::Error;
use crate::event::LeaseEvent;
use crate::protocol::{LeaseId, Reclaim};
use crate::ticket::Passed;
use crate::time::{Timestamp, YEAR};
use crate::token::FencingToken;
pub(super) use backend::{Acquisition, Backend, Keeping, Lease, Next, Phase, Releases};
pub(super) use callers::{Caller, Callers};
pub(super) use contender::Contender;
pub(super) use handle::{Handle, Handles};
pub(super) use locks::Locks;
pub(super) use queries::{Queried, Queries, Query, Question};
pub(super) use tenure::{Tenure, lead, lost, overheld, used_up};
pub(super) use who::Who;

/// The part of an engine that faces the servers: it takes in their replies and pushes, and sends what is
/// pending.
pub(super) trait ServerSide: Queried {
    /// Returns the context, the number of timers that the servers use, and the time that each of those is set
    /// for.
    fn timers(&mut self) -> (&mut Ctx, usize, impl Fn(Timed) -> Option<Timestamp>);

    /// Starts to end what the locker has at the store.
    fn shut_down(&mut self);

    /// True if everything that [`shut_down`](Self::shut_down) started has ended.
    fn is_shut_down(&self, locks: &Locks<Self>) -> bool;

    /// True if the servers have no work besides that of the front's tables.
    fn is_idle(&self) -> bool;

    /// Returns when the engine has to be told the time.
    fn next_wake(&self) -> Timestamp;

    /// True if the callers that were just answered are likely to ask again.
    fn expects_more(&self) -> bool;

    /// True if operations are pending.
    fn has_unsent(&self) -> bool;

    /// The counts of this locker.
    fn counts(&self) -> Counts;

    /// The drift margin, if it had to be widened.
    fn clock_drift(&self) -> Option<LeaseEvent>;

    /// Takes in an input about servers, or a tick.
    fn input(front: &mut Front<Self>, input: Input);

    /// Handles a timer that belongs to neither a contender nor a query.
    fn own_time(front: &mut Front<Self>, what: Timed);

    /// Updates what depends on the time, before any other step.
    fn tick(front: &mut Front<Self>);

    /// Takes in the consequences of the last step.
    fn settle(front: &mut Front<Self>);

    /// Hands the pending operations to the host.
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
    /// The shutdown calls that wait for an answer.
    calls: Vec<CallId>,
    ended: bool,
    wake: Timestamp,
}

/// An acquisition that the program asks for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) call: CallId,
    pub(super) lock: LockId,
    pub(super) spec: Arc<LockSpec>,
    pub(super) lease: LeaseId,
    pub(super) wait: Wait,
    /// The tenure of its own owner that the acquisition may take over.
    pub(super) reclaims: Reclaim,
    /// The tenure that its holder passed on, if the acquisition accepts one.
    pub(super) accepts: Option<Box<Passed>>,
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
    /// Creates a front that is not connected yet.
    pub(super) fn new(env: B) -> Self {
        Self {
            env,
            locks: Locks::default(),
            queries: Queries::default(),
            shutdown: None,
        }
    }

    /// Takes in an input. Time never goes back: an earlier `now` counts as the latest seen.
    pub(super) fn handle(&mut self, now: Timestamp, input: Input) {
        self.begin(now);
        self.take_in(input);
        self.end();
    }

    /// Advances the time and runs all due timers, so that a lease that expired ends before any other step.
    pub(super) fn begin(&mut self, now: Timestamp) {
        let cx = self.env.cx();
        cx.now = cx.now.max(now);
        B::tick(self);
        self.run_due();
    }

    /// Finishes taking in inputs.
    pub(super) fn end(&mut self) {
        B::settle(self);
        self.settle_shutdown();
        self.tidy_timers();
    }

    /// Returns the next thing for the host to do; [`Output::Wait`] if there is none. Batches come last, so
    /// that a host that takes in several inputs before it polls sends their operations together.
    pub(super) fn poll(&mut self) -> Output {
        if !self.env.cx().has_outputs() {
            B::flush(self);
        }
        self.poll_unsent()
    }

    /// Returns the next output as [`poll`](Self::poll) does, except that pending operations stay queued until
    /// `poll`.
    pub(super) fn poll_unsent(&mut self) -> Output {
        let output = self.env.cx().next_output();
        output.unwrap_or_else(|| {
            let at = self.env.next_wake();
            let until = (at != Timestamp::NEVER).then_some(at);
            Output::Wait { until }
        })
    }

    /// True if no lock is held, no operation is in flight and no call waits for an answer.
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
                    accepts: None,
                }),
                Err(error) => env.cx().answer(call, Answer::Acquire(Err(error))),
            },
            Input::Pass { call, lease } => locks.pass(env, call, lease),
            Input::Accept {
                call,
                lock,
                spec,
                lease,
                passed,
            } => match env.check(&spec).and_then(|()| env.check_passing(&spec)) {
                Ok(()) => self.acquire(Wanted {
                    call,
                    lock,
                    spec,
                    lease,
                    // A lost reply must not lose the lock, so it asks again.
                    wait: Wait::Forever,
                    reclaims: Reclaim::Never,
                    accepts: Some(passed),
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
            Input::Complete { call, lease } => locks.complete(env, call, lease),
            Input::Close { lock } => locks.close(env.cx(), lock),
            Input::Inspect { call, key } => env.ask(queries, call, Question::Inspect(key)),
            Input::ForceRelease { call, key, token } => {
                env.ask(queries, call, Question::ForceRelease(key, token));
            }
            Input::RequestYield {
                call,
                key,
                by,
                within,
            } => {
                let what = "the time to yield within";
                match Error::check_range(what, within, Duration::ZERO, YEAR) {
                    Ok(()) => env.ask(queries, call, Question::RequestYield(key, by, within)),
                    Err(error) => env.cx().answer(call, Answer::RequestYield(Err(error))),
                }
            }
            Input::List {
                call,
                pattern,
                cursor,
            } => env.ask(queries, call, Question::List(pattern, cursor)),
            Input::Resize {
                call,
                key,
                sharing,
                capacity,
                counter,
            } => match sharing.check(capacity).and_then(|()| counter.check()) {
                Ok(()) => {
                    env.ask(
                        queries,
                        call,
                        Question::Resize(key, sharing, capacity, counter),
                    );
                }
                Err(error) => env.cx().answer(call, Answer::Resize(Err(error))),
            },
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
        // A timer stays set until its owner moves it.
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
        // The timer may be left over from one that was moved.
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

    /// Answers the shutdown calls. Releases that the store has not confirmed are still retried.
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
    /// Returns the call that this input starts and the error for it, if a locker that was shut down refuses
    /// such calls.
    fn refused(&self) -> Option<(CallId, Answer)> {
        let error = Error::shutdown;
        match self {
            Self::Acquire { call, .. } | Self::Accept { call, .. } => {
                Some((*call, Answer::Acquire(Err(error()))))
            }
            Self::Pass { call, .. } => Some((*call, Answer::Pass(Err(error())))),
            Self::Renew { call, .. } => Some((*call, Answer::Renew(Err(error())))),
            Self::Inspect { call, .. } => Some((*call, Answer::Inspect(Err(error())))),
            Self::List { call, .. } => Some((*call, Answer::List(Err(error())))),
            Self::ForceRelease { call, .. } => Some((*call, Answer::ForceRelease(Err(error())))),
            Self::RequestYield { call, .. } => Some((*call, Answer::RequestYield(Err(error())))),
            Self::Resize { call, .. } => Some((*call, Answer::Resize(Err(error())))),
            _ => None,
        }
    }
}
