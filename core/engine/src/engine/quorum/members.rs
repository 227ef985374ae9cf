//! The members of a quorum: its servers, each with an engine of its own, and the calls to them.

use std::sync::Arc;
use std::time::Duration;

use super::calls::{Asked, Calls};
use crate::engine::ctx::Ctx;
use crate::engine::front::{Front, ServerSide as _, Wanted};
use crate::engine::io::{Answer, CallId, Input, LockId, Output, ServerId, Suspicion, Wait};
use crate::engine::settings::Settings;
use crate::engine::single::{EntryNews, Single};
use crate::engine::spec::LockSpec;
use crate::engine::stats::Counts;
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::protocol::{BatchReply, Enter, LeaseId, Reclaim};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

/// All members. A member is named by its index.
#[derive(Debug)]
pub(super) struct Members {
    all: Vec<Member>,
    calls: Calls,
}

#[derive(Debug)]
struct Member {
    engine: Front<Single>,
    /// When the member's engine must be told the time.
    wake: Timestamp,
    /// The engine got input since its outputs were last taken.
    fed: bool,
    /// The member cannot be reached, or is not expected to answer until it does again.
    down: bool,
    silent: bool,
    /// When the member last answered.
    heard: Timestamp,
}

/// An output of a member's engine.
#[derive(Debug)]
pub(super) enum MemberNews {
    /// The answer to a call of the quorum.
    Answer(Asked, Answer),
    Event {
        lease: LeaseId,
        event: LeaseEvent,
        deadline: Option<Timestamp>,
    },
    /// The member stopped answering.
    Silent,
    /// News of the member's incarnation.
    Handshake(EntryNews),
}

impl Members {
    pub(super) fn new(settings: &Settings, members: usize) -> Self {
        let member = || Member {
            engine: Front::new(Single::new(settings.clone())),
            wake: Timestamp::NEVER,
            fed: false,
            down: false,
            silent: false,
            heard: Timestamp::from_nanos(0),
        };
        Self {
            all: std::iter::repeat_with(member).take(members).collect(),
            calls: Calls::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns how many members are a majority.
    pub(super) fn majority(&self) -> usize {
        majority(self.all.len())
    }

    /// Returns true if the member is likely to answer.
    pub(super) fn is_able(&self, at: usize) -> bool {
        let member = &self.all[at];
        !member.down && !member.silent
    }

    pub(super) fn able(&self) -> usize {
        (0..self.all.len()).filter(|at| self.is_able(*at)).count()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.all.iter().all(|member| member.engine.is_idle())
    }

    pub(super) fn expect_more(&self) -> bool {
        self.all
            .iter()
            .any(|member| member.engine.env.expects_more())
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.all.iter().any(|member| member.engine.env.has_unsent())
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = &Counts> {
        self.all.iter().map(|member| &member.engine.env.cx.counts)
    }

    /// Returns about what each known server clock says now.
    pub(super) fn clocks(&self, now: Timestamp) -> impl Iterator<Item = ServerTime> {
        let all = self.all.iter();
        all.filter_map(move |member| member.engine.env.servers.clock(ServerId::ONLY, now))
    }

    pub(super) fn clock_drift(&self) -> Option<LeaseEvent> {
        self.all
            .iter()
            .find_map(|member| member.engine.env.clock_drift())
    }

    pub(super) fn wake_at(&self) -> Timestamp {
        let wakes = self.all.iter().map(|member| member.wake);
        wakes.min().unwrap_or(Timestamp::NEVER)
    }
}

/// Inputs.
impl Members {
    /// Passes an input to the engine of one server.
    pub(super) fn input(&mut self, now: Timestamp, server: ServerId, input: Input) {
        let at = super::place_of(server);
        let Some(member) = self.all.get_mut(at) else {
            return;
        };
        match &input {
            Input::Connected { .. } => (member.down, member.silent) = (false, false),
            Input::Disconnected { .. } => member.down = true,
            Input::Reply {
                result: Ok(BatchReply { .. }),
                ..
            } => (member.silent, member.heard) = (false, now),
            _ => {}
        }
        member.feed(now, input);
    }

    /// Passes an input to the engines of all servers.
    pub(super) fn input_to_all(&mut self, now: Timestamp, input: &Input) {
        for member in &mut self.all {
            member.feed(now, input.clone());
        }
    }

    /// Ticks the engines whose time has come.
    pub(super) fn tick(&mut self, now: Timestamp) {
        for member in self.all.iter_mut().filter(|member| member.wake <= now) {
            member.feed(now, Input::Tick);
        }
    }

    /// Asks for the lock at one member. Returns the call, with which to cancel it.
    pub(super) fn acquire(
        &mut self,
        cx: &Ctx,
        at: usize,
        (lock, lease, spec): (LockId, LeaseId, &Arc<LockSpec>),
        (wait, reclaims): (Wait, Reclaim),
    ) -> CallId {
        let call = self.calls.begin(Asked::Acquire(lease.half(), wait));
        let member = &mut self.all[at];
        let wanted = Wanted {
            call,
            lock,
            spec: spec.clone(),
            lease,
            wait,
            reclaims,
            accepts: None,
        };
        member.act(cx.now, |engine| engine.acquire(wanted));
        call
    }

    /// Returns true if the member still gives back something that was requested with this lease ID.
    pub(super) fn uses(&self, at: usize, lease: LeaseId) -> bool {
        self.all[at].engine.locks.use_id(lease.half())
    }

    /// Cancels a request, and releases the lease in case the member granted it.
    pub(super) fn cancel(&mut self, cx: &Ctx, at: usize, call: CallId, of: (LockId, LeaseId)) {
        self.calls.forget(call);
        let (lease, of) = (of.1, Some(of));
        self.all[at].feed(cx.now, Input::Cancel { call, of });
        // The answer with the grant may be on its way, and nobody handles it any more.
        self.give_back(cx, at, lease);
    }

    /// Renews a lease at one member, and raises the member's token counter to the floor.
    pub(super) fn renew(
        &mut self,
        cx: &Ctx,
        at: usize,
        (asked, lease): (Asked, LeaseId),
        (ttl, floor): (Option<Duration>, Option<FencingToken>),
    ) {
        self.call(cx, at, asked, |call| Input::Renew {
            call,
            lease,
            ttl,
            floor,
        });
    }

    /// Limits the age of a lease at one member, which counts from the local time `began`.
    pub(super) fn limit(
        &mut self,
        cx: &Ctx,
        at: usize,
        lease: LeaseId,
        limit: (Timestamp, Duration),
    ) {
        self.all[at].act(cx.now, |Front { env, locks, .. }| {
            locks.limit(env, lease, limit);
        });
    }

    /// Asks a member for a waiter's lock at once, instead of at the waiter's next heartbeat.
    pub(super) fn ask_now(&mut self, cx: &Ctx, at: usize, lease: LeaseId) {
        self.all[at].act(cx.now, |Front { env, locks, .. }| {
            locks.ask_now(env, lease);
        });
    }

    /// Releases a lease at one member, for its holder. The lease began at the local time `began`.
    pub(super) fn release(
        &mut self,
        cx: &Ctx,
        at: usize,
        (asked, lease): (Asked, LeaseId),
        began: Timestamp,
    ) {
        self.all[at].engine.locks.holds_since(lease, Some(began));
        self.call(cx, at, asked, |call| Input::Release {
            call: Some(call),
            lease,
        });
    }

    /// Frees at once what a member has of a lease.
    pub(super) fn give_back(&mut self, cx: &Ctx, at: usize, lease: LeaseId) {
        self.all[at].engine.locks.holds_since(lease, None);
        self.all[at].feed(cx.now, Input::Release { call: None, lease });
    }

    /// Sends a member a request that is not about a lease.
    pub(super) fn ask(
        &mut self,
        cx: &Ctx,
        at: usize,
        asked: Asked,
        input: impl FnOnce(CallId) -> Input,
    ) {
        self.call(cx, at, asked, input);
    }

    /// Asks a member for its incarnation.
    pub(super) fn enter(&mut self, cx: &Ctx, at: usize, (enter, give_up): (Enter, Timestamp)) {
        let member = &mut self.all[at];
        // The engine must know the time.
        member.feed(cx.now, Input::Tick);
        let env = &mut member.engine.env;
        env.entry
            .begin(&mut env.cx, &mut env.servers, (enter, give_up));
    }

    /// Gives up asking for the incarnation after the timeout. Returns the reason for the silence, if the
    /// engine knows one.
    pub(super) fn give_up_entry(&mut self, at: usize) -> Option<Error> {
        let env = &mut self.all[at].engine.env;
        env.entry.give_up(&mut env.servers)
    }

    /// Sets the incarnation check that precedes later acquisitions at this member.
    pub(super) fn check_before_acquiring(&mut self, at: usize, check: Option<Enter>) {
        self.all[at].engine.env.servers.mean(check);
    }

    fn call(
        &mut self,
        cx: &Ctx,
        at: usize,
        asked: Asked,
        input: impl FnOnce(CallId) -> Input,
    ) -> CallId {
        let call = self.calls.begin(asked);
        self.all[at].feed(cx.now, input(call));
        call
    }
}

/// Outputs.
impl Members {
    /// Returns the next news of any member, and passes on outputs for the host.
    pub(super) fn next_news(&mut self, cx: &mut Ctx) -> Option<(usize, MemberNews)> {
        self.take(cx, Front::poll_unsent)
    }

    /// Returns the next news as [`next_news`](Self::next_news) does, and also sends all pending operations.
    pub(super) fn next_news_of_sending(&mut self, cx: &mut Ctx) -> Option<(usize, MemberNews)> {
        self.take(cx, Front::poll)
    }

    /// Marks all members, so that their engines are asked for batches to send.
    pub(super) fn mark_all(&mut self) {
        self.all.iter_mut().for_each(|member| member.fed = true);
    }

    fn take(
        &mut self,
        cx: &mut Ctx,
        poll: impl Fn(&mut Front<Single>) -> Output,
    ) -> Option<(usize, MemberNews)> {
        for (at, member) in self.all.iter_mut().enumerate() {
            while member.fed {
                if let Some(news) = member.engine.env.entry.take_news() {
                    return Some((at, MemberNews::Handshake(news)));
                }
                let output = poll(&mut member.engine);
                if let Some(news) = member.hear(cx, (at, &mut self.calls), output) {
                    return Some((at, news));
                }
            }
        }
        None
    }
}

impl Member {
    /// Has the engine do something, after which it may have outputs.
    fn act(&mut self, now: Timestamp, act: impl FnOnce(&mut Front<Single>)) {
        self.engine.begin(now);
        act(&mut self.engine);
        self.engine.end();
        self.fed = true;
    }

    fn feed(&mut self, now: Timestamp, input: Input) {
        self.engine.handle(now, input.for_one());
        self.fed = true;
    }

    fn hear(
        &mut self,
        cx: &mut Ctx,
        (at, calls): (usize, &mut Calls),
        output: Output,
    ) -> Option<MemberNews> {
        let server = ServerId(u32::try_from(at).unwrap_or(u32::MAX));
        match output {
            Output::Wait { until } => {
                self.wake = until.unwrap_or(Timestamp::NEVER);
                self.fed = false;
            }
            Output::Answer { call, answer } => {
                let asked = calls.end(call);
                // A renewal or release may end with its lease, and an acquisition with its caller's wait,
                // before there was time for an answer. So a timeout then does not mean that the member is
                // silent. A reply that the request came too late shows that the member answers.
                let has_time = match (&answer, asked) {
                    (Answer::Renew(_) | Answer::Release(_), _) => false,
                    (_, Some(Asked::Acquire(_, Wait::Until(until)))) => until > cx.now,
                    _ => true,
                };
                let is_silent = has_time && self.heard < cx.now;
                self.silent |= is_silent && answer.error().is_some_and(Error::is_timeout);
                return asked.map(|asked| MemberNews::Answer(asked, answer));
            }
            Output::Event {
                lease,
                event,
                deadline,
                ..
            } => {
                return Some(MemberNews::Event {
                    lease,
                    event,
                    deadline,
                });
            }
            Output::Suspect { why, .. } => {
                cx.push(Output::Suspect { server, why });
                if matches!(why, Suspicion::Silent) {
                    self.silent = true;
                    return Some(MemberNews::Silent);
                }
            }
            Output::Send {
                request,
                batch,
                durability,
                give_up,
                ..
            } => {
                cx.push(Output::Send {
                    server,
                    request,
                    batch,
                    durability,
                    give_up,
                });
            }
            Output::Subscribe { .. } => cx.push(Output::Subscribe { server }),
            Output::Watch { keys, .. } => cx.push(Output::Watch { server, keys }),
            notice @ Output::Notice { .. } => cx.push(notice),
            // The quorum has its own handles.
            Output::Closed { .. } => {}
        }
        None
    }
}

impl Input {
    /// Returns the input for an engine that knows only one server.
    fn for_one(self) -> Self {
        let only = ServerId::ONLY;
        match self {
            Self::Connected { .. } => Self::Connected { server: only },
            Self::Disconnected { error, .. } => Self::Disconnected {
                server: only,
                error,
            },
            Self::Reply {
                request, result, ..
            } => Self::Reply {
                server: only,
                request,
                result,
            },
            Self::Push { push, .. } => Self::Push {
                server: Some(only),
                push,
            },
            Self::Subscribed { .. } => Self::Subscribed { server: only },
            Self::Unsubscribed { .. } => Self::Unsubscribed { server: only },
            Self::Watching { .. } => Self::Watching { server: only },
            input => input,
        }
    }
}

/// Returns [`ErrorKind::Config`] unless the number of members is 3, 5 or 7.
pub fn check_members(members: usize) -> Result<(), Error> {
    if [3, 5, 7].contains(&members) {
        return Ok(());
    }
    let rule = format!("must have 3, 5 or 7 servers, not {members}");
    Err(Error::bad_option("quorum", rule))
}

/// Returns how many members are a majority.
pub fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// Returns the error for too few answers, with the reason of each missing member.
pub fn too_few<E: std::fmt::Display>(
    (needed, of): (usize, usize),
    why: impl Iterator<Item = (usize, E)>,
) -> Error {
    let why: Vec<_> = why
        .map(|(at, error)| format!("server {}: {error}", at + 1))
        .collect();
    let (missing, why) = (why.len(), why.join("; "));
    let message = format!("{missing} of {of} servers are missing, and {needed} are needed: {why}");
    Error::new(ErrorKind::Unavailable, message)
}
