//! One locker on one store: a server, or a cluster of them that has each lock once.

use super::attempt::Outcome;
use super::ctx::{Origin, Whose};
#[cfg(feature = "quorum")]
use super::entry::{Entry, EntryNews};
use super::env::Env;
use super::lock::{Locks, Wanted};
use super::query::Queries;
use super::servers::Replied;
use super::timers::Timed;
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
#[cfg(feature = "quorum")]
use crate::protocol::Enter;
use crate::protocol::{BatchReply, LeaseId, Reclaim, Reply};
use crate::time::{ServerTime, Timestamp};

use super::io::{Answer, CallId, Input, LockId, Output, RequestId, ServerId};
use super::settings::Settings;
use super::stats::Counts;
/// The state of one locker on one store: its locks, calls, leases, servers and timers.
#[derive(Debug)]
pub(super) struct Single {
    pub(super) env: Env,
    pub(super) locks: Locks,
    queries: Queries,
    #[cfg(feature = "quorum")]
    entry: Entry,
    shutdown: Option<Shutdown>,
}

#[derive(Debug)]
struct Shutdown {
    /// Who waits for its end.
    calls: Vec<CallId>,
    ended: bool,
    wake: Timestamp,
}

/// Inputs and outputs.
impl Single {
    /// An engine that is not connected yet.
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            env: Env::new(settings),
            locks: Locks::default(),
            queries: Queries::default(),
            #[cfg(feature = "quorum")]
            entry: Entry::default(),
            shutdown: None,
        }
    }

    /// Takes in what happened. Time never goes back: an earlier `now` counts as the latest seen.
    pub(super) fn handle(&mut self, now: Timestamp, input: Input) {
        self.env.cx.now = self.env.cx.now.max(now);
        // What is over is over before anything else is looked at.
        self.run_due();
        self.take_in(input);
        self.settle_shutdown();
        self.tidy_timers();
    }

    /// The next thing for the host to do; [`Output::Wait`] if there is none. What is to be sent
    /// comes last: a host that takes in several inputs before it polls sends their operations
    /// together.
    pub(super) fn poll(&mut self) -> Output {
        if !self.env.cx.has_outputs() {
            self.flush();
        }
        self.poll_unsent()
    }

    /// As [`poll`](Self::poll), but what is to be sent waits for that.
    pub(super) fn poll_unsent(&mut self) -> Output {
        match self.env.cx.next_output() {
            Some(output) => output,
            None => Output::Wait {
                until: self.wake_at(),
            },
        }
    }

    /// Whether it is worth to let those who were just answered go on before the next [`poll`](Self::poll):
    /// they are likely to ask again, and what they ask then leaves in one batch with what waits. Until
    /// then [`poll_unsent`](Self::poll_unsent) has all else that there is to do.
    pub(super) fn expects_more(&self) -> bool {
        self.env.servers.expect_more(&self.env.cx.settings)
    }

    /// Whether something waits to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.env.servers.has_unsent()
    }

    /// The same moment by another server's clock, or an earlier one.
    pub(super) fn no_later(
        &self,
        time: ServerTime,
        from: ServerId,
        to: ServerId,
    ) -> Option<ServerTime> {
        self.env.servers.no_later(time, from, to)
    }

    /// Whether nothing is held, under way or waiting for an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.locks.is_idle() && self.queries.len() == 0
    }

    /// Whether an acquisition with this id is under way, held or being given back.
    #[cfg(feature = "quorum")]
    pub(super) fn uses(&self, lease: LeaseId) -> bool {
        self.locks.use_id(lease.half())
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.env.cx.counts
    }

    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.env.cx.timers.first()
    }
}

/// What a quorum asks of the engine of one of its servers.
#[cfg(feature = "quorum")]
impl Single {
    /// Acquires a lock.
    pub(super) fn acquire(&mut self, now: Timestamp, wanted: Wanted) {
        self.handle(now, Input::Tick);
        self.locks.acquire(&mut self.env, wanted);
        self.tidy_timers();
    }

    /// About what the server's clock says now, if that is known.
    pub(super) fn clock(&self, now: Timestamp) -> Option<ServerTime> {
        self.env.servers.clock(ServerId::ONLY, now)
    }

    /// Asks the server in which incarnation it is.
    pub(super) fn enter(&mut self, enter: Enter, give_up: Timestamp) {
        self.entry.begin(&mut self.env, enter, give_up);
    }

    /// There was no answer in time; why.
    pub(super) fn give_up_entry(&mut self) -> Option<Error> {
        self.entry.give_up(&mut self.env)
    }

    /// From now on acquisitions are only for this incarnation of the server.
    pub(super) fn mean(&mut self, check: Option<Enter>) {
        self.env.servers.mean(check);
    }

    pub(super) fn take_entry_news(&mut self) -> Option<EntryNews> {
        self.entry.take_news()
    }
}

/// What there is to know of it, for readers that begin or that missed something.
impl Single {
    /// The leases that are held now, in no order, each with an `Acquired` event that says so.
    pub(super) fn all_held(&self, now: Timestamp) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        self.locks.all_held(now)
    }

    /// As [`all_held`](Self::all_held), of one handle.
    pub(super) fn held(
        &self,
        now: Timestamp,
        lock: LockId,
    ) -> impl Iterator<Item = (LeaseId, LeaseEvent)> {
        self.locks.held(now, lock)
    }

    /// The drift margin, if it had to be widened: an event for readers of all locks.
    pub(super) fn clock_drift(&self) -> Option<LeaseEvent> {
        self.env.servers.drift(&self.env.cx.settings)
    }
}

/// Dispatch: the only place that looks things up and hands them on.
impl Single {
    fn take_in(&mut self, input: Input) {
        let refused = self.shutdown.as_ref().and_then(|_| input.refused());
        if let Some((call, answer)) = refused {
            return self.env.cx.answer(call, answer);
        }
        let Self {
            env,
            locks,
            queries,
            ..
        } = self;
        match input {
            Input::Connected { server } => self.connected(server),
            Input::Disconnected { server, error } => self.disconnected(server, error),
            Input::Slots { slots, server } => env.servers.route(&env.cx, &slots, server),
            Input::Reply {
                server,
                request,
                result,
            } => self.replied(server, (request, None), result),
            Input::Part {
                server,
                request,
                places,
                result,
            } => self.replied(server, (request, Some(&places)), result),
            Input::Push { server, push } => {
                env.cx.counts.heard();
                locks.pushed(env, (server, &push));
            }
            Input::Subscribed { server } => {
                env.servers.subscribed(&env.cx, server);
                locks.subscribed(env, server);
            }
            Input::Unsubscribed { server } => {
                if env.servers.unsubscribed(server) {
                    locks.unsubscribed(env, server);
                }
            }
            Input::Watching { server } => {
                env.watch.begin(server);
                locks.watch_all(env, server);
            }
            Input::Changed { key } => locks.changed(env, key.as_ref()),
            Input::Tick => {}
            Input::Acquire {
                call,
                lock,
                spec,
                lease,
                wait,
            } => locks.acquire(
                env,
                Wanted {
                    call,
                    lock,
                    spec,
                    lease,
                    wait,
                    reclaims: Reclaim::Ask,
                },
            ),
            Input::Renew {
                call,
                lease,
                ttl,
                floor,
            } => locks.renew(env, lease, (call, ttl, floor)),
            Input::Release { call, lease } => locks.release(env, call, lease),
            Input::Close { lock } => locks.close(&mut env.cx, lock),
            Input::Inspect { call, key } => queries.inspect(env, call, key),
            Input::ForceRelease { call, key, token } => {
                queries.force_release(env, call, (key, token));
            }
            Input::List {
                call,
                pattern,
                cursor,
            } => queries.list(env, call, (pattern, cursor)),
            Input::Cancel { call, of: None } => queries.cancel(env, call),
            Input::Cancel { call, of: Some(of) } => locks.cancel(env, call, of),
            Input::Shutdown { call } => self.shut_down(call),
        }
    }

    fn connected(&mut self, server: ServerId) {
        let (lost, error) = self.env.servers.connected(&mut self.env.cx, server);
        self.fail(server, lost, &error);
        let Self {
            env,
            locks,
            queries,
            ..
        } = self;
        locks.retry_all(env, server);
        queries.retry_all(env);
    }

    fn disconnected(&mut self, server: ServerId, error: Error) {
        let (lost, error) = self
            .env
            .servers
            .disconnected(&mut self.env.cx, server, error);
        self.fail(server, lost, &error);
        let Self { env, locks, .. } = self;
        locks.warn_holders(env, (server, &error));
    }

    /// To a request, or to what stands at these places of it.
    fn replied(
        &mut self,
        server: ServerId,
        asked: (RequestId, Option<&[usize]>),
        result: Result<BatchReply, Error>,
    ) {
        let replied = self
            .env
            .servers
            .replied(&mut self.env.cx, server, asked, result);
        let Replied {
            origins,
            sent,
            result,
            drifted,
            #[cfg(feature = "quorum")]
            forgot,
            ..
        } = replied;
        #[cfg(feature = "quorum")]
        if let Some(incarnation) = forgot {
            self.entry.forgot(incarnation);
        }
        match result {
            Ok(BatchReply { time, replies }) => {
                // It is only left out where nothing depends on it.
                let time = time.unwrap_or(ServerTime::from_micros(0));
                let mut in_turn = replies.into_iter();
                for origin in origins {
                    let reply = in_turn.next().unwrap_or_else(|| Err(too_short()));
                    let outcome = Outcome {
                        attempt: origin.attempt,
                        server,
                        left: Some(sent),
                        result: reply.map(|reply| (reply, time)),
                    };
                    self.deliver(origin.whose, outcome);
                }
                // Who asked for these waits no more, but who was next in line does.
                for reply in in_turn {
                    if let Ok(Reply::HandedOver { lease, grant }) = reply {
                        let Self { env, locks, .. } = self;
                        // Nobody knows any more when it left.
                        locks.handed_over(env, (server, None), (lease, grant, time));
                    }
                }
            }
            Err(error) => self.fail(server, origins, &error),
        }
        self.env.watch.flush(&mut self.env.cx);
        if drifted {
            let Self { env, locks, .. } = self;
            locks.keep_promises(env, server);
        }
    }

    /// None of these is answered.
    fn fail(&mut self, server: ServerId, origins: Vec<Origin>, error: &Error) {
        for Origin { whose, attempt } in origins {
            let outcome = Outcome {
                attempt,
                server,
                left: None,
                result: Err(error.clone()),
            };
            self.deliver(whose, outcome);
        }
    }

    fn deliver(&mut self, whose: Whose, outcome: Outcome) {
        let Self {
            env,
            locks,
            queries,
            ..
        } = self;
        match whose {
            Whose::Contender(id) => locks.contender_landed(env, (id, outcome)),
            Whose::Release(id) => locks.release_landed(env, (id, outcome)),
            Whose::Query(call) => queries.landed(env, (call, outcome)),
            #[cfg(feature = "quorum")]
            Whose::Entry => self.entry.landed(outcome),
        }
    }

    /// Sends what waits; who waits in vain is answered.
    fn flush(&mut self) {
        let refused = self.env.servers.flush(&mut self.env.cx);
        if refused.is_empty() {
            return;
        }
        for (origins, server, error) in refused {
            for origin in origins {
                self.fail(server, vec![origin], &error);
                self.env.servers.take_back(server, origin);
            }
        }
        self.tidy_timers();
    }

    fn run_due(&mut self) {
        // A timer stays set until the thing that it is of moves it.
        while let Some(what) = self.next_due() {
            let Self {
                env,
                locks,
                queries,
                ..
            } = self;
            match what {
                Timed::Server(server) => env.servers.time(&mut env.cx, server),
                Timed::Contender(id) => locks.contender_time(env, id),
                Timed::Release(id) => locks.release_time(env, id),
                Timed::Query(call) => queries.time(env, call),
                Timed::Watch => locks.read_due(env),
                Timed::Shutdown => self.end_shutdown(),
            }
        }
    }

    fn next_due(&mut self) -> Option<Timed> {
        let now = self.env.cx.now;
        self.env.cx.timers.due(now)?;
        // Unless it was left behind.
        self.tidy_timers();
        self.env.cx.timers.due(now)
    }

    fn tidy_timers(&mut self) {
        let Self {
            env,
            locks,
            queries,
            shutdown,
            ..
        } = self;
        let Env { cx, servers, watch } = env;
        let things = locks.len() + queries.len() + servers.len();
        let set_for = |what| match what {
            Timed::Server(server) => servers.wake(server),
            Timed::Contender(id) => locks.contender_wake(id),
            Timed::Release(id) => locks.release_wake(id),
            Timed::Query(call) => queries.wake(call),
            Timed::Watch => Some(watch.wake),
            Timed::Shutdown => shutdown.as_ref().map(|shutdown| shutdown.wake),
        };
        let set_for = |what| set_for(what).unwrap_or(Timestamp::NEVER);
        let now = cx.now;
        cx.timers.tidy(things, now, set_for);
    }
}

/// Shutting down.
impl Single {
    fn shut_down(&mut self, call: CallId) {
        match &mut self.shutdown {
            Some(Shutdown { ended: true, .. }) => {
                return self.env.cx.answer(call, Answer::Shutdown);
            }
            Some(shutdown) => return shutdown.calls.push(call),
            None => {}
        }
        let Self {
            env,
            locks,
            queries,
            ..
        } = self;
        let mut shutdown = Shutdown {
            calls: vec![call],
            ended: false,
            wake: Timestamp::NEVER,
        };
        let until = env.cx.now + env.cx.settings.patience;
        env.cx
            .timers
            .set(Timed::Shutdown, &mut shutdown.wake, until);
        self.shutdown = Some(shutdown);
        locks.shut_down(env);
        queries.fail_all(env, &Error::shutdown());
    }

    fn settle_shutdown(&mut self) {
        if self.shutdown.is_some() && self.locks.are_released() {
            self.end_shutdown();
        }
    }

    /// Nobody waits any longer for what the store has not confirmed; it is tried on.
    fn end_shutdown(&mut self) {
        let (cx, Some(shutdown)) = (&mut self.env.cx, &mut self.shutdown) else {
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
    pub(super) fn refused(&self) -> Option<(CallId, Answer)> {
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

fn too_short() -> Error {
    let message = "the server answered less than was asked";
    Error::new(ErrorKind::Store, message)
}
