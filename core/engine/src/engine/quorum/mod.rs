//! A lock at several independent servers, the *members* of a quorum, of which a majority decides.
//!
//! Each member has an engine of its own, which does everything that concerns one server: it acquires, renews,
//! receives pushes, releases and keeps track of the server's clock. The quorum does none of that. It asks the
//! engines and combines their answers: a lease is held while a majority of the members has it.
//!
//! A quorum is for stores that must survive the loss of some of their servers. See
//! [Redlock](https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), which gives no tokens.
//!
//! # What is proven where
//!
//! - Exclusion and growing tokens: [`votes::Votes`]; for members that join a held lease: [`votes::Late`].
//! - No clock needs to be trusted for tokens: [`proposal`].
//! - A server that lost its data does not give a lock twice: [`admission`].
//! - Nobody overtakes, and no waiters block each other: [`acquiring`].

mod acquiring;
mod admission;
mod calls;
mod handshakes;
mod leased;
mod line;
mod locks;
pub(super) mod members;
mod proposal;
mod query;
mod release;
mod support;
#[cfg(test)]
mod tests;
mod votes;

use std::time::Duration;

use super::ctx::Ctx;
use super::front::{
    Backend, Caller, Front, Handles, Locks, Next, Phase, Queried, Queries, Question, Renewal,
    ServerSide, Tenure, Who,
};
use super::io::{Answer, CallId, Input, ServerId};
use super::settings::Settings;
use super::single::EntryNews;
use super::spec::LockSpec;
use super::stats::Counts;
use super::timers::Timed;
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{Counter, Reclaim};
use crate::ticket::Passed;
use crate::time::Timestamp;
use crate::token::FencingToken;
use acquiring::QuorumAcquiring;
use calls::Asked;
use handshakes::{Handshakes, Standing};
use leased::Leased;
use members::{MemberNews, Members, check_members};
use proposal::Proposals;
use query::QuorumQuery;
use release::{QuorumRelease, QuorumReleases};
use support::Support;

/// The state that all locks of a quorum share.
#[derive(Debug)]
pub(super) struct Quorum {
    cx: Ctx,
    members: Members,
    handshakes: Handshakes,
    proposals: Proposals,
    /// How many members have not finished their shutdown yet.
    ending: usize,
}

impl Quorum {
    /// Makes a quorum that is not connected yet. Returns [`ErrorKind::Config`](crate::ErrorKind::Config)
    /// unless it has 3, 5 or 7 members.
    pub(super) fn new(settings: Settings, members: usize) -> Result<Self, Error> {
        check_members(members)?;
        Ok(Self {
            handshakes: Handshakes::new(&settings, members),
            members: Members::new(&settings, members),
            cx: Ctx::new(settings),
            proposals: Proposals::default(),
            ending: 0,
        })
    }

    /// Returns true if only holders ask this member for now, because the others suffice for everybody else.
    pub(super) fn is_for_holders(&self, at: usize) -> bool {
        let is_reserved = |at| self.handshakes.is_reserved(self.cx.now, at);
        let is_for_all = |at: &usize| {
            let votes = self.handshakes.standing(*at) == Standing::Votes;
            votes && self.members.is_able(*at) && !is_reserved(*at)
        };
        let all = 0..self.members.len();
        is_reserved(at) && all.filter(is_for_all).count() >= self.members.majority()
    }

    /// Returns a token to propose to all members. `given` is the token that one of them may have given
    /// already.
    pub(super) fn propose(&mut self, given: Option<FencingToken>) -> Option<FencingToken> {
        let clocks = self.members.clocks(self.cx.now);
        self.proposals.next(clocks, given)
    }
}

/// Returns the error for a lease that is to be passed on or accepted. A ticket would have to name the tenure at each
/// server, and an acceptance by less than a majority would end the lease for both sides.
fn cannot_pass() -> Error {
    let message = "a lease of a quorum cannot be passed on: its servers would accept it one by one, and some \
                   without the others; ask the holder to yield";
    Error::new(ErrorKind::Unsupported, message)
}

/// Returns the error for a shared name. Each server would admit other claims, and none of them might get a majority.
fn cannot_share() -> Error {
    let message = "a quorum has no semaphores, quotas or locks for readers and writers: each of its servers would \
                   admit other clients, and slots would differ; use one server";
    Error::new(ErrorKind::Unsupported, message)
}

impl Backend for Quorum {
    type Lease = Leased;
    type Acquiring = QuorumAcquiring;
    type Keeping = Support;
    type Releases = QuorumReleases;

    fn cx(&mut self) -> &mut Ctx {
        &mut self.cx
    }

    fn check(&self, spec: &LockSpec) -> Result<(), Error> {
        if spec.counter == Counter::Dense {
            let rule = "cannot be used with a quorum, whose tokens have gaps";
            return Err(Error::bad_option("dense_tokens", rule));
        }
        if spec.durability.is_some() {
            let rule = "cannot be used with a quorum, which has copies of its own";
            return Err(Error::bad_option("replicas", rule));
        }
        if spec.owner.tick().is_some() {
            let message = "a quorum cannot run jobs: servers that restart one after another would forget a \
                           completed tick, which must be remembered for longer than any lease";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if spec.owner.share().is_some() {
            return Err(cannot_share());
        }
        if spec.max_line.is_some() {
            let rule = "cannot be used with a quorum, which keeps no line";
            return Err(Error::bad_option("max_line", rule));
        }
        self.check_ttl(spec.ttl)
    }

    /// The limit exists because a server that forgot a longer lease would vote too early.
    fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        let longest = self.cx.settings.longest_ttl;
        if ttl <= longest {
            return Ok(());
        }
        let rule = format!("allows a quorum lease at most {longest:?}; got {ttl:?}");
        Err(Error::bad_option("longest_ttl", rule))
    }

    fn check_passing(&self, _: &LockSpec) -> Result<(), Error> {
        Err(cannot_pass())
    }

    fn begin(
        &mut self,
        who: Who,
        caller: Caller,
        _: (Reclaim, Option<Box<Passed>>),
    ) -> (Leased, QuorumAcquiring, Next<Self>) {
        if self.handshakes.begin(self.cx.now, &who.spec.key) {
            // This is the locker's first lock, so no other lock is affected.
            self.handshakes.settle(&mut self.cx, &mut self.members);
        }
        let mut lease = Leased::new(who, self.members.len());
        let mut acquiring = QuorumAcquiring::new(self, &lease, caller);
        acquiring.ask_all(self, &mut lease);
        // The votes of members that cannot be asked are known already.
        let next = acquiring.judge(self, &mut lease);
        (lease, acquiring, next)
    }

    fn join(&mut self, _: &mut Leased, acquiring: &mut QuorumAcquiring, caller: Caller) {
        acquiring.join(&mut self.cx, caller);
    }

    fn time(&mut self, lease: &mut Leased, phase: &mut Phase<Self>) -> Next<Self> {
        match phase {
            Phase::Acquiring(acquiring) => acquiring.time(self, lease),
            Phase::Held(tenure) => tenure.time(self, lease),
        }
    }

    fn confirm(
        &mut self,
        (releases, handles): (&mut QuorumReleases, &mut Handles),
        who: &Who,
        _: FencingToken,
    ) {
        releases.end_those_of(self, handles, &who.spec.key);
    }

    fn held(
        &mut self,
        lease: &mut Leased,
        _: &mut QuorumAcquiring,
        tenure: &mut Tenure<Support>,
    ) -> Option<LossReason> {
        for at in 0..self.members.len() {
            lease.limit(self, at, tenure.began);
        }
        match tenure.judge(self, lease, LossReason::Expired) {
            Next::Lose(reason) => Some(reason),
            Next::Stay | Next::Hold(_) | Next::Leave => None,
        }
    }

    fn is_held(_: &Leased, tenure: &Tenure<Support>, now: Timestamp) -> bool {
        now < tenure.deadline
    }

    fn wake_at(lease: &Leased, tenure: &Tenure<Support>) -> Timestamp {
        tenure.wake_at(lease)
    }

    fn renew(&mut self, lease: &mut Leased, tenure: &mut Tenure<Support>, renewal: Renewal) {
        tenure.kept.renew(self, lease, renewal);
    }

    fn passed(&self, _: &Leased, _: &Tenure<Support>) -> Result<Passed, Error> {
        Err(cannot_pass())
    }

    fn pass(&mut self, _: (Leased, Tenure<Support>)) {}

    fn give_up(&mut self, _: &mut QuorumReleases, (mut lease, _): (Leased, Box<QuorumAcquiring>)) {
        lease.give_back_all(self);
    }

    fn lost(
        &mut self,
        _: &mut QuorumReleases,
        (mut lease, _): (Leased, Tenure<Support>),
        _: LossReason,
    ) {
        lease.give_back_all(self);
    }

    fn release(
        &mut self,
        (releases, handles): (&mut QuorumReleases, &mut Handles),
        (lease, tenure): (Leased, Tenure<Support>),
        call: Option<CallId>,
    ) {
        let release = QuorumRelease::new(self, lease, &tenure, call);
        releases.start(self, handles, release);
    }
}

impl Queried for Quorum {
    type Query = QuorumQuery;

    fn ask(&mut self, queries: &mut Queries<Self>, call: CallId, question: Question) {
        queries.ask(self, call, question);
    }
}

impl ServerSide for Quorum {
    fn timers(&mut self) -> (&mut Ctx, usize, impl Fn(Timed) -> Option<Timestamp>) {
        let Self {
            cx,
            members,
            handshakes,
            ..
        } = self;
        let set_for = |what| match what {
            Timed::Server(server) => handshakes.wake(server),
            _ => None,
        };
        (cx, members.len(), set_for)
    }

    fn shut_down(&mut self) {
        self.ending = self.members.len();
        for at in 0..self.ending {
            let ask = |call| Input::Shutdown { call };
            self.members.ask(&self.cx, at, Asked::Shutdown, ask);
        }
    }

    fn is_shut_down(&self, _: &Locks<Self>) -> bool {
        self.ending == 0
    }

    fn is_idle(&self) -> bool {
        self.members.is_idle()
    }

    fn next_wake(&self) -> Timestamp {
        let timer = self.cx.timers.first().unwrap_or(Timestamp::NEVER);
        timer.min(self.members.wake_at())
    }

    fn expects_more(&self) -> bool {
        self.members.expect_more()
    }

    fn has_unsent(&self) -> bool {
        self.members.has_unsent()
    }

    /// Counts locks itself; the members count what concerns servers.
    fn counts(&self) -> Counts {
        self.cx.counts.with(self.members.counts())
    }

    fn clock_drift(&self) -> Option<LeaseEvent> {
        self.members.clock_drift()
    }

    fn input(front: &mut Front<Self>, input: Input) {
        let members = &mut front.env.members;
        if let changed @ Input::Changed { .. } = input {
            members.input_to_all(front.env.cx.now, &changed);
        } else if let Some(server) = input.server().filter(|at| place_of(*at) < members.len()) {
            front.take_in_of(server, input);
        }
    }

    fn own_time(front: &mut Front<Self>, what: Timed) {
        if let Timed::Server(server) = what {
            let Quorum {
                cx,
                members,
                handshakes,
                ..
            } = &mut front.env;
            handshakes.time(cx, members, place_of(server));
            apply_standings(&mut front.env, &mut front.locks);
        }
    }

    fn tick(front: &mut Front<Self>) {
        front.env.members.tick(front.env.cx.now);
        front.hear_all();
    }

    fn settle(front: &mut Front<Self>) {
        front.hear_all();
    }

    fn flush(front: &mut Front<Self>) {
        front.env.members.mark_all();
        while let Some((at, news)) = front.env.members.next_news_of_sending(&mut front.env.cx) {
            front.hear(at, news);
        }
        front.tidy_timers();
    }
}

/// Inputs about servers, from the host and from the members.
impl Front<Quorum> {
    /// Handles an input about one server.
    fn take_in_of(&mut self, server: ServerId, input: Input) {
        let Self { env, locks, .. } = self;
        let at = place_of(server);
        let (mut down, mut up) = (false, false);
        match &input {
            Input::Connected { .. } => {
                up = true;
                env.handshakes.connected(env.cx.now, at);
            }
            Input::Disconnected { error, .. } => {
                down = true;
                env.handshakes.disconnected(at, error.clone());
            }
            _ => {}
        }
        env.members.input(env.cx.now, server, input);
        if up || down {
            apply_standings(env, locks);
        }
        if down {
            locks.went_away(env);
        }
    }

    fn hear_all(&mut self) {
        while let Some((at, news)) = self.env.members.next_news(&mut self.env.cx) {
            self.hear(at, news);
        }
    }

    fn hear(&mut self, at: usize, news: MemberNews) {
        let Self { env, locks, .. } = self;
        match news {
            MemberNews::Answer(asked, answer) => self.answered(at, asked, answer),
            MemberNews::Event {
                lease,
                event,
                deadline,
            } => {
                locks.happened(env, (lease.half(), at), (event, deadline));
            }
            MemberNews::Silent => locks.went_away(env),
            MemberNews::Handshake(news) => {
                match news {
                    EntryNews::Entered(result) => env.handshakes.entered(&env.cx, at, result),
                    EntryNews::Late => env.handshakes.was_late(&env.cx, at),
                    EntryNews::Forgot(incarnation) => {
                        env.handshakes.forgot(env.cx.now, at, incarnation);
                    }
                }
                apply_standings(env, locks);
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
            (Asked::Shutdown, _) => env.ending = env.ending.saturating_sub(1),
            _ => {}
        }
    }
}

/// Applies changes in which members may vote.
fn apply_standings(env: &mut Quorum, locks: &mut Locks<Quorum>) {
    let Quorum {
        cx,
        members,
        handshakes,
        ..
    } = env;
    for at in handshakes.settle(cx, members) {
        locks.standing_changed(env, at);
    }
    for at in 0..env.members.len() {
        if env.handshakes.is_back(at) && locks.all_stand_on(at) {
            env.handshakes.readmit(&mut env.cx, at);
        }
    }
}

impl Input {
    /// Returns the server that the input is about, if it is about one server.
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

/// Returns the index of a member.
fn place_of(server: ServerId) -> usize {
    usize::try_from(server.0).unwrap_or(usize::MAX)
}
