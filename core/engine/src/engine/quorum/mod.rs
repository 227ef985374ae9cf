//! A lock at several independent servers, of which a majority decides.
//!
//! Each server has an engine of its own, which does all that concerns one server: asking,
//! renewing, hearing, giving back, and keeping to its clock. The quorum looks at none of that. It asks the
//! engines, and puts together what they answer: a lease is held while a majority of them has it.
//!
//! It exists for stores that must outlive the loss of some of their servers; see
//! [Redlock](https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), which gives no tokens.

mod acquiring;
mod admission;
mod calls;
mod contender;
mod entries;
mod env;
mod leased;
mod line;
mod locks;
pub(super) mod members;
mod proposal;
mod query;
mod release;
mod tenure;
#[cfg(test)]
mod tests;
mod votes;

use super::ctx::Ctx;
use super::entry::EntryNews;
use super::io::{Answer, CallId, Input, LockId, Output, ServerId};
use super::settings::Settings;
use super::stats::Counts;
use super::timers::Timed;
use crate::error::Error;
use crate::event::LeaseEvent;
use crate::protocol::{Counter, LeaseId};
use crate::time::Timestamp;
use calls::Asked;
use entries::Entries;
use env::Env;
use locks::Locks;
use members::{Members, News, check_members};
use proposal::Proposals;
use query::Queries;

/// The state of one locker on several servers.
#[derive(Debug)]
pub(super) struct Quorum {
    env: Env,
    locks: Locks,
    queries: Queries,
    shutdown: Option<Shutdown>,
}

#[derive(Debug)]
struct Shutdown {
    /// Who waits for its end.
    calls: Vec<CallId>,
    /// How many members are not at their end.
    pending: usize,
}

/// Inputs and outputs.
impl Quorum {
    /// One that is not connected yet. [`ErrorKind::Config`] if there is no number of members of which a
    /// majority outlives the loss of one: 3, 5 or 7 are right.
    pub(super) fn new(settings: Settings, members: usize) -> Result<Self, Error> {
        check_members(members)?;
        let entries = Entries::new(&settings, members);
        let members = Members::new(&settings, members);
        Ok(Self {
            env: Env {
                entries,
                cx: Ctx::new(settings),
                members,
                proposals: Proposals::default(),
            },
            locks: Locks::default(),
            queries: Queries::default(),
            shutdown: None,
        })
    }

    /// Takes in what happened. Time never goes back: an earlier `now` counts as the latest seen.
    pub(super) fn handle(&mut self, now: Timestamp, input: Input) {
        self.env.cx.now = self.env.cx.now.max(now);
        self.env.members.tick(self.env.cx.now);
        self.hear_all();
        self.run_due();
        self.take_in(input);
        self.hear_all();
        self.tidy_timers();
    }

    /// The next thing for the host to do; [`Output::Wait`] if there is none.
    pub(super) fn poll(&mut self) -> Output {
        if !self.env.cx.has_outputs() {
            self.env.members.mark_all();
            while let Some((at, news)) = self.env.members.next_news_of_sending(&mut self.env.cx) {
                self.hear(at, news);
            }
            self.tidy_timers();
        }
        self.poll_unsent()
    }

    /// As [`poll`](Self::poll), but what is to be sent waits for that.
    pub(super) fn poll_unsent(&mut self) -> Output {
        let timer = self.env.cx.timers.first().unwrap_or(Timestamp::NEVER);
        let at = timer.min(self.env.members.wake_at());
        let until = (at != Timestamp::NEVER).then_some(at);
        self.env.cx.next_output().unwrap_or(Output::Wait { until })
    }

    /// What was counted: of locks by itself, of servers by its members.
    pub(super) fn counts(&self) -> Counts {
        self.env.cx.counts.with(self.env.members.counts())
    }

    pub(super) fn expects_more(&self) -> bool {
        self.env.members.expect_more()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.env.members.has_unsent()
    }

    /// Whether nothing is held, under way or waiting for an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.locks.is_idle() && self.queries.len() == 0 && self.env.members.is_idle()
    }
}

/// What there is to know of it, for readers that begin or that missed something.
impl Quorum {
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

    /// The drift margin of a server, if it had to be widened: an event for readers of all locks.
    pub(super) fn clock_drift(&self) -> Option<LeaseEvent> {
        self.env.members.clock_drift()
    }
}

/// What the host says.
impl Quorum {
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
            Input::Tick | Input::Slots { .. } | Input::Part { .. } => {}
            Input::Acquire {
                call,
                lock,
                spec,
                lease,
                wait,
            } => {
                if spec.counter == Counter::Dense {
                    let rule = "cannot be kept by a quorum, whose tokens have gaps";
                    let error = Error::bad_option("dense_tokens", rule);
                    return env.cx.answer(call, Answer::Acquire(Err(error)));
                }
                if spec.durability.is_some() {
                    let rule = "cannot be waited for by a quorum, which has copies of its own";
                    let error = Error::bad_option("replicas", rule);
                    return env.cx.answer(call, Answer::Acquire(Err(error)));
                }
                if let Err(error) = check_ttl(&env.cx, spec.ttl) {
                    return env.cx.answer(call, Answer::Acquire(Err(error)));
                }
                if env.entries.begin(env.cx.now, &spec.key) {
                    stand(env, locks);
                }
                locks.acquire(env, (call, wait), (lock, lease, spec));
            }
            Input::Renew {
                call, lease, ttl, ..
            } => match ttl.map_or(Ok(()), |ttl| check_ttl(&env.cx, ttl)) {
                Ok(()) => locks.renew(env, lease, (call, ttl)),
                Err(error) => env.cx.answer(call, Answer::Renew(Err(error))),
            },
            Input::Release { call, lease } => locks.release(env, call, lease),
            Input::Close { lock } => locks.close(env, lock),
            Input::Cancel { call, of: None } => queries.cancel(env, call),
            Input::Cancel { call, of: Some(of) } => locks.cancel(env, call, of),
            Input::Inspect { call, key } => queries.inspect(env, call, &key),
            Input::ForceRelease { call, key, token } => {
                queries.force_release(env, call, (&key, token));
            }
            Input::List {
                call,
                pattern,
                cursor,
            } => queries.list(env, call, (pattern, cursor)),
            Input::Shutdown { call } => self.shut_down(call),
            changed @ Input::Changed { .. } => env.members.input_to_all(env.cx.now, &changed),
            input => {
                if let Some(server) = input
                    .server()
                    .filter(|server| place_of(*server) < env.members.len())
                {
                    self.take_in_of(server, input);
                }
            }
        }
    }

    /// What is about one server.
    fn take_in_of(&mut self, server: ServerId, input: Input) {
        let Self { env, locks, .. } = self;
        let at = place_of(server);
        let (mut down, mut up) = (false, false);
        match &input {
            Input::Connected { .. } => {
                up = true;
                env.entries.connected(env.cx.now, at);
            }
            Input::Disconnected { error, .. } => {
                down = true;
                env.entries.disconnected(at, error.clone());
            }
            _ => {}
        }
        env.members.input(env.cx.now, server, input);
        if up || down {
            stand(env, locks);
        }
        if down {
            locks.went_away(env);
        }
    }

    fn shut_down(&mut self, call: CallId) {
        if let Some(shutdown) = &mut self.shutdown {
            match shutdown.pending {
                0 => self.env.cx.answer(call, Answer::Shutdown),
                _ => shutdown.calls.push(call),
            }
            return;
        }
        let pending = self.env.members.len();
        self.shutdown = Some(Shutdown {
            calls: vec![call],
            pending,
        });
        self.locks.shut_down(&mut self.env);
        self.queries.fail_all(&mut self.env, &Error::shutdown());
        for at in 0..pending {
            let ask = |call| Input::Shutdown { call };
            self.env.members.ask(&self.env.cx, at, Asked::Shutdown, ask);
        }
    }

    fn is_shut_down(&mut self) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.pending = shutdown.pending.saturating_sub(1);
            if shutdown.pending == 0 {
                for call in std::mem::take(&mut shutdown.calls) {
                    self.env.cx.answer(call, Answer::Shutdown);
                }
            }
        }
    }
}

/// What the members say.
impl Quorum {
    fn hear_all(&mut self) {
        while let Some((at, news)) = self.env.members.next_news(&mut self.env.cx) {
            self.hear(at, news);
        }
    }

    fn hear(&mut self, at: usize, news: News) {
        let Self { env, locks, .. } = self;
        match news {
            News::Answer(asked, answer) => self.answered(at, asked, answer),
            News::Event {
                lease,
                event,
                deadline,
            } => {
                locks.happened(env, (lease.half(), at), (event, deadline));
            }
            News::Silent => locks.went_away(env),
            News::Entry(news) => {
                match news {
                    EntryNews::Entered(result) => env.entries.entered(&env.cx, at, result),
                    EntryNews::Late => env.entries.was_late(&env.cx, at),
                    EntryNews::Forgot(incarnation) => {
                        env.entries.forgot(env.cx.now, at, incarnation);
                    }
                }
                stand(env, locks);
            }
        }
    }

    fn answered(&mut self, at: usize, asked: Asked, answer: Answer) {
        let Self {
            env,
            locks,
            queries,
            ..
        } = self;
        match (asked, answer) {
            (Asked::Acquire(id, _), Answer::Acquire(result)) => {
                locks.acquired(env, (id, at), result);
            }
            (Asked::Raise(id), Answer::Renew(result)) => locks.raised(env, (id, at), result),
            (Asked::Prove(id, round), Answer::Renew(result)) => {
                locks.proved(env, (id, at, round), &result);
            }
            (Asked::Renew(id, call), Answer::Renew(result)) => {
                locks.renewed(env, (id, call), result);
            }
            (Asked::Release(id), Answer::Release(result)) => locks.released(env, id, result),
            (Asked::Query(call), answer) => queries.landed(env, (call, at), answer),
            (Asked::Shutdown, _) => self.is_shut_down(),
            _ => {}
        }
    }

    fn run_due(&mut self) {
        while let Some(what) = self.next_due() {
            match what {
                Timed::Contender(id) => self.locks.time(&mut self.env, id),
                Timed::Query(call) => self.queries.time(&mut self.env, call),
                Timed::Server(server) => {
                    let Self { env, locks, .. } = self;
                    let Env {
                        cx,
                        members,
                        entries,
                        ..
                    } = env;
                    entries.time(cx, members, place_of(server));
                    stand(env, locks);
                }
                Timed::Release(_) | Timed::Watch | Timed::Shutdown => {}
            }
            self.hear_all();
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
            ..
        } = self;
        let set_for = |what| match what {
            Timed::Contender(id) => locks.wake(id),
            Timed::Query(call) => queries.wake(call),
            Timed::Server(server) => env.entries.wake(server),
            Timed::Release(_) | Timed::Watch | Timed::Shutdown => None,
        };
        let set_for = |what| set_for(what).unwrap_or(Timestamp::NEVER);
        let things = locks.len() + queries.len() + env.members.len();
        let now = env.cx.now;
        env.cx.timers.tidy(things, now, set_for);
    }
}

/// Something is known of who may vote.
fn stand(env: &mut Env, locks: &mut Locks) {
    let Env {
        cx,
        members,
        entries,
        ..
    } = env;
    for at in entries.settle(cx, members) {
        locks.stood(env, at);
    }
    for at in 0..env.members.len() {
        if env.entries.is_back(at) && locks.stand_on(at) {
            env.entries.readmit(&mut env.cx, at);
        }
    }
}

/// A server that forgot a longer lease would vote too early.
fn check_ttl(cx: &Ctx, ttl: std::time::Duration) -> Result<(), Error> {
    let longest = cx.settings.longest_ttl;
    if ttl <= longest {
        return Ok(());
    }
    let rule = format!("is {longest:?}, and a lease of a quorum may not live for {ttl:?}");
    Err(Error::bad_option("longest_ttl", rule))
}

impl Input {
    /// The one server that it is about.
    fn server(&self) -> Option<ServerId> {
        match self {
            Self::Connected { server }
            | Self::Disconnected { server, .. }
            | Self::Reply { server, .. }
            | Self::Subscribed { server }
            | Self::Unsubscribed { server }
            | Self::Watching { server } => Some(*server),
            Self::Push { server, .. } => *server,
            _ => None,
        }
    }
}

/// The place of a member among all.
fn place_of(server: ServerId) -> usize {
    usize::try_from(server.0).unwrap_or(usize::MAX)
}
