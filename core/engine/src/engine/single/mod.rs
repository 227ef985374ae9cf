//! Locks at one store: a server, or a cluster, where one server has each lock.

mod acquiring;
mod attempt;
mod entry;
mod line;
mod locks;
mod manual;
mod query;
mod release;
mod renewing;
mod watch;
mod watched;

use std::time::Duration;

use super::ctx::{Ctx, Origin, Whose};
use super::front::{
    Backend, Caller, Front, Handles, Lease, Locks, Next, Phase, Queried, Queries, Question,
    Renewal, ServerSide, Tenure, Who, overheld,
};
use super::io::{CallId, Input, RequestId, ServerId};
use super::servers::{Replied, Servers};
use super::settings::Settings;
use super::spec::LockSpec;
use super::stats::Counts;
use super::timers::Timed;
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{BatchReply, Reclaim};
use crate::ticket::Passed;
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;
use acquiring::{Acquiring, HandedOver};
pub(super) use attempt::{Failure, Outcome};
use entry::Entry;
pub(super) use entry::EntryNews;
use query::SingleQuery;
use release::Releases;
use renewing::Renewing;
use watch::Watch;
#[cfg(test)]
pub(super) use watch::{MOST_CHECKS, MOST_KEYS};

/// The parts that all locks of one store share.
#[derive(Debug)]
pub(super) struct Single {
    pub(super) cx: Ctx,
    pub(super) servers: Servers,
    pub(super) watch: Watch,
    pub(super) entry: Entry,
}

impl Single {
    /// Creates a backend that is not connected yet.
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            servers: Servers::new(&settings),
            cx: Ctx::new(settings),
            watch: Watch::default(),
            entry: Entry::default(),
        }
    }
}

impl Lease for Who {
    fn who(&self) -> &Who {
        self
    }
}

impl Backend for Single {
    type Lease = Who;
    type Acquiring = Acquiring;
    type Keeping = Renewing;
    type Releases = Releases;

    fn cx(&mut self) -> &mut Ctx {
        &mut self.cx
    }

    fn check(&self, spec: &LockSpec) -> Result<(), Error> {
        spec.check_share()
    }

    fn check_ttl(&self, _: Duration) -> Result<(), Error> {
        Ok(())
    }

    fn check_passing(&self, spec: &LockSpec) -> Result<(), Error> {
        let message = if spec.owner.tick().is_some() {
            "a turn of a job cannot be passed on: give it back, and another runner gets the tick"
        } else if spec.owner.share().is_some() {
            "a permit cannot be passed on: give it back, and the next waiter gets it"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Config, message))
    }

    fn begin(
        &mut self,
        who: Who,
        caller: Caller,
        mut takes: (Reclaim, Option<Box<Passed>>),
    ) -> (Who, Acquiring, Next<Self>) {
        if let (_, Some(passed)) = &mut takes
            && who.spec.at_most.is_some()
        {
            // The accepting side sets an age of its own.
            passed.ends = None;
        }
        let mut acquiring = Acquiring::new(self.cx.now, caller, takes);
        acquiring.ask(self, &who);
        (who, acquiring, Next::Stay)
    }

    fn join(&mut self, who: &mut Who, acquiring: &mut Acquiring, caller: Caller) {
        acquiring.join(self, who, caller);
    }

    fn time(&mut self, who: &mut Who, phase: &mut Phase<Self>) -> Next<Self> {
        match phase {
            Phase::Acquiring(acquiring) => acquiring.time(self, who),
            Phase::Held(tenure) => tenure.time(self, who),
        }
    }

    fn confirm(
        &mut self,
        (releases, handles): (&mut Releases, &mut Handles),
        who: &Who,
        token: FencingToken,
    ) {
        // A handle of a shared name may have several permits, so a new one proves nothing.
        if who.spec.owner.share().is_none() {
            releases.confirm(self, handles, who.lock, token);
        }
    }

    fn held(
        &mut self,
        who: &mut Who,
        acquiring: &mut Acquiring,
        tenure: &mut Tenure<Renewing>,
    ) -> Option<LossReason> {
        let server = self.servers.of(&who.spec.key);
        self.servers.want_pushes(&mut self.cx, server);
        if acquiring.accepts() && tenure.is_overheld(&who.spec) {
            tenure.emit_at_risk(&mut self.cx, who, (overheld(&who.spec), None));
        }
        let taken_away = acquiring.was_taken_away(tenure.token);
        if taken_away.is_some() {
            tenure.kept.doubt_push(self.cx.now);
        } else if tenure.kept.unconfirmed {
            tenure.renew(self, who);
        } else {
            tenure.watch(self, who);
        }
        taken_away
    }

    fn is_held(who: &Who, tenure: &Tenure<Renewing>, now: Timestamp) -> bool {
        !tenure.is_over(&who.spec, now)
    }

    fn wake_at(who: &Who, tenure: &Tenure<Renewing>) -> Timestamp {
        tenure.wake_at(&who.spec)
    }

    fn renew(&mut self, who: &mut Who, tenure: &mut Tenure<Renewing>, renewal: Renewal) {
        tenure.renew_by_hand(self, who, renewal);
    }

    fn passed(&self, who: &Who, tenure: &Tenure<Renewing>) -> Result<Passed, Error> {
        let server = self.servers.of(&who.spec.key);
        let ends = || self.servers.not_after(server, tenure.ends(&who.spec));
        let ends = who.spec.at_most.map(|_| ends().ok_or_else(no_clock));
        Ok(Passed {
            name: who.spec.name.clone(),
            lease: who.lease,
            token: tenure.token,
            ttl: tenure.kept.manual.wanted_ttl(&who.spec),
            ends: ends.transpose()?,
        })
    }

    fn pass(&mut self, (who, mut tenure): (Who, Tenure<Renewing>)) {
        tenure.kept.watched.end(self, &who);
        // An earlier attempt to acquire that is in doubt may still join the line, for its window at most. A release
        // would take it out, and might free the lock before the ticket is accepted.
        tenure.kept.attempt.abandon(&mut self.servers);
    }

    fn give_up(&mut self, releases: &mut Releases, (who, acquiring): (Who, Box<Acquiring>)) {
        releases.give_up(self, who, *acquiring);
    }

    fn lost(
        &mut self,
        releases: &mut Releases,
        (who, tenure): (Who, Tenure<Renewing>),
        reason: LossReason,
    ) {
        tenure.kept.watched.end(self, &who);
        if let Some(remains) = tenure.remains(&who, reason) {
            releases.give_back(self, who, remains, None);
        }
    }

    fn release(
        &mut self,
        (releases, _): (&mut Releases, &mut Handles),
        (who, tenure): (Who, Tenure<Renewing>),
        call: Option<CallId>,
    ) {
        tenure.kept.watched.end(self, &who);
        releases.end_tenure(self, (who, &tenure), call);
    }
}

impl Queried for Single {
    type Query = SingleQuery;

    fn ask(&mut self, queries: &mut Queries<Self>, call: CallId, question: Question) {
        let query = SingleQuery::new(self, call, question);
        queries.start(self, call, query);
    }
}

impl ServerSide for Single {
    fn timers(&mut self) -> (&mut Ctx, usize, impl Fn(Timed) -> Option<Timestamp>) {
        let Self {
            cx, servers, watch, ..
        } = self;
        let set_for = |what| match what {
            Timed::Server(server) => servers.wake(server),
            Timed::Watch => Some(watch.wake),
            _ => None,
        };
        (cx, servers.len(), set_for)
    }

    fn shut_down(&mut self) {}

    fn is_shut_down(&self, locks: &Locks<Self>) -> bool {
        locks.are_released()
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn next_wake(&self) -> Timestamp {
        self.cx.timers.first().unwrap_or(Timestamp::NEVER)
    }

    fn expects_more(&self) -> bool {
        self.servers.expect_more(&self.cx.settings)
    }

    fn has_unsent(&self) -> bool {
        self.servers.has_unsent()
    }

    fn counts(&self) -> Counts {
        self.cx.counts.clone()
    }

    fn clock_drift(&self) -> Option<LeaseEvent> {
        self.servers.drift(&self.cx.settings)
    }

    fn input(front: &mut Front<Self>, input: Input) {
        front.hear(input);
    }

    fn own_time(front: &mut Front<Self>, what: Timed) {
        let Front { env, locks, .. } = front;
        match what {
            Timed::Server(server) => env.servers.time(&mut env.cx, server),
            Timed::Release(id) => locks.release_time(env, id),
            Timed::Watch => locks.read_due(env),
            _ => {}
        }
    }

    fn tick(_: &mut Front<Self>) {}

    fn settle(_: &mut Front<Self>) {}

    fn flush(front: &mut Front<Self>) {
        front.flush();
    }
}

/// Inputs from the servers.
impl Front<Single> {
    fn hear(&mut self, input: Input) {
        let Self { env, locks, .. } = self;
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
                let was_heard = env.servers.unsubscribed(server);
                if was_heard {
                    locks.unsubscribed(env, server);
                }
            }
            Input::Watching { server } => {
                env.watch.begin(server);
                locks.watch_all(env, server);
            }
            Input::Changed { key } => locks.changed(env, key.as_ref()),
            // The front handles the program's inputs, and `Tick` has already advanced the time.
            _ => {}
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

    /// Takes in the reply to a request, or to its operations at these places.
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
            forgot,
            ..
        } = replied;
        if let Some(incarnation) = forgot {
            self.env.entry.forgot(incarnation);
        }
        match result {
            Ok(BatchReply { time, replies }) => {
                // The store omits the time only if nothing depends on it.
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
                // No call waits for the remaining replies. A release among them may have handed the lock to a
                // waiter, which has to know.
                for reply in in_turn {
                    let handed = reply.ok().and_then(|reply| HandedOver::read(&reply, time));
                    if let Some(handed) = handed {
                        let Self { env, locks, .. } = self;
                        // The time at which the release left is no longer known.
                        locks.handed_over(env, (server, None), handed);
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

    /// Fails all of these operations.
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
            Whose::Entry => self.env.entry.landed(outcome),
        }
    }

    /// Sends the pending operations, and fails those that cannot be sent.
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
}

fn no_clock() -> Error {
    let message =
        "the store's clock, by which the ticket ends at the age of `at_most`, is not known for now";
    Error::new(ErrorKind::Unavailable, message)
}

fn too_short() -> Error {
    let message = "the server sent fewer replies than the batch has operations";
    Error::new(ErrorKind::Store, message)
}
