//! Looking at locks, and freeing other people's.

use super::attempt::{Attempt, Due, Failure, Outcome};
use super::ctx::{Ctx, Whose};
use super::env::Env;
use super::io::{Answer, CallId, HolderInfo, Inspection, Listing, ServerId, WaiterInfo};
use super::pace::retry;
use super::servers::Flight;
use super::table::Table;
use super::timers::Timed;
use crate::error::Error;
use crate::protocol::{
    Command, ForceRelease, Holder, Inspect, Inspected, LeaseId, List, LockKey, Pattern, Reply,
};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

/// The questions to the store that are under way.
#[derive(Debug, Default)]
pub(super) struct Queries(Table<CallId, Query>);

#[derive(Debug)]
struct Query {
    call: CallId,
    goal: Goal,
    until: Timestamp,
    attempt: Attempt,
    error: Option<Error>,
    wake: Timestamp,
}

/// What the program wants.
#[derive(Debug)]
enum Goal {
    Look(LockKey),
    List(Pattern, Place),
    /// The lock is to be freed, whoever turns out to have it, or of this tenure alone.
    Free(LockKey, Option<FencingToken>),
    /// It is being freed of this holder.
    FreeOf(LockKey, HolderInfo),
}

/// Where a walk is. Its cursor names the server of a cluster in the highest bits.
#[derive(Copy, Clone, Debug)]
struct Place {
    server: ServerId,
    cursor: u64,
}

/// What becomes of a query.
enum Next {
    Stay,
    End(Answer),
}

impl Queries {
    pub(super) fn inspect(&mut self, env: &mut Env, call: CallId, key: LockKey) {
        self.start(env, call, Goal::Look(key));
    }

    pub(super) fn list(&mut self, env: &mut Env, call: CallId, (pattern, cursor): (Pattern, u64)) {
        let place = Place::of(cursor, env.cx.settings.clustered);
        self.start(env, call, Goal::List(pattern, place));
    }

    pub(super) fn force_release(
        &mut self,
        env: &mut Env,
        call: CallId,
        (key, token): (LockKey, Option<FencingToken>),
    ) {
        self.start(env, call, Goal::Free(key, token));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn wake(&self, call: CallId) -> Option<Timestamp> {
        self.0.get(&call).map(|query| query.wake)
    }

    pub(super) fn time(&mut self, env: &mut Env, call: CallId) {
        self.step(env, call, Query::time);
    }

    /// There is a new link: what failed before is tried at once.
    pub(super) fn retry_all(&mut self, env: &mut Env) {
        for call in self.calls() {
            self.step(env, call, |query, env| {
                if query.attempt.pace.failures == 0 {
                    return Next::Stay;
                }
                query.attempt.pace.next = env.cx.now;
                query.time(env)
            });
        }
    }

    pub(super) fn landed(&mut self, env: &mut Env, (call, outcome): (CallId, Outcome)) {
        self.step(env, call, |query, env| query.landed(env, outcome));
    }

    /// The call is given up.
    pub(super) fn cancel(&mut self, env: &mut Env, call: CallId) {
        if let Some(query) = self.0.take(&call) {
            query.close(env);
        }
    }

    /// Ends all of them with this error.
    pub(super) fn fail_all(&mut self, env: &mut Env, error: &Error) {
        for call in self.calls() {
            if let Some(query) = self.0.take(&call) {
                let answer = query.goal.failed(error.clone());
                query.close(env);
                env.cx.answer(call, answer);
            }
        }
    }

    fn calls(&self) -> Vec<CallId> {
        self.0.keys().collect()
    }

    fn start(&mut self, env: &mut Env, call: CallId, goal: Goal) {
        let mut query = Query {
            call,
            goal,
            until: env.cx.now + env.cx.settings.patience,
            attempt: Attempt::due_at(env.cx.now),
            error: None,
            wake: Timestamp::NEVER,
        };
        query.ask(env);
        query.settle(&mut env.cx);
        self.0.insert(call, query);
    }

    fn step(
        &mut self,
        env: &mut Env,
        call: CallId,
        act: impl FnOnce(&mut Query, &mut Env) -> Next,
    ) {
        let Some(query) = self.0.get_mut(&call) else {
            return;
        };
        match act(query, env) {
            Next::Stay => query.settle(&mut env.cx),
            Next::End(answer) => {
                query.set_timer(&mut env.cx, Timestamp::NEVER);
                self.0.take(&call);
                env.cx.answer(call, answer);
            }
        }
    }
}

impl Query {
    fn ask(&mut self, env: &mut Env) {
        let give_up = (env.cx.now + env.cx.settings.command_timeout).min(self.until);
        let whose = Whose::Query(self.call);
        let (command, place) = (self.goal.command(), self.goal.place());
        self.attempt
            .begin_at(env, whose, (command, place.server), give_up);
    }

    fn time(&mut self, env: &mut Env) -> Next {
        match self.attempt.due(env.cx.now) {
            Due::Late(flight) => match self.attempt.late(&mut env.servers, env.cx.now, None) {
                Some(error) => self.failed(env, flight, Failure::Unknown(error)),
                None => Next::Stay,
            },
            Due::Now if self.until <= env.cx.now => {
                let error = self.error.clone().unwrap_or_else(Error::no_answer);
                Next::End(self.goal.failed(error))
            }
            Due::Now => {
                self.ask(env);
                Next::Stay
            }
            Due::Later => Next::Stay,
        }
    }

    fn landed(&mut self, env: &mut Env, outcome: Outcome) -> Next {
        let Some(flight) = self.attempt.land(&outcome) else {
            return Next::Stay;
        };
        let answer = match (outcome.result, &self.goal) {
            (Ok((Reply::Inspected(seen), time)), Goal::Look(_)) => {
                Answer::Inspect(Ok(inspection(seen, time)))
            }
            (Ok((Reply::Listed { cursor, names }, _)), Goal::List(_, place)) => {
                let cursor = cursor.map(|cursor| place.at(cursor));
                Answer::List(Ok(Listing { cursor, names }))
            }
            (Ok((Reply::Inspected(seen), time)), Goal::Free(key, token)) => {
                let is_meant = |holder: &Holder| token.is_none_or(|token| token == holder.token);
                match seen.holder.filter(is_meant) {
                    Some(holder) => {
                        // Now it is freed of exactly that one.
                        self.goal = Goal::FreeOf(key.clone(), holder_info(holder, time));
                        self.ask(env);
                        return Next::Stay;
                    }
                    None => Answer::ForceRelease(Ok(None)),
                }
            }
            // If it is not there any more, an earlier attempt freed the lock, or it ended by itself.
            (Ok((Reply::Released | Reply::Gone | Reply::Taken, _)), Goal::FreeOf(_, holder)) => {
                Answer::ForceRelease(Ok(Some(holder.clone())))
            }
            (Ok((Reply::Late, _)), _) => {
                return self.failed(env, flight, Failure::late());
            }
            (Ok(_), _) => return self.failed(env, flight, Failure::mismatch()),
            (Err(error), _) => {
                return self.failed(env, flight, Failure::Unknown(error));
            }
        };
        Next::End(answer)
    }

    fn failed(&mut self, env: &mut Env, flight: Flight, failure: Failure) -> Next {
        self.attempt.failed(&mut env.servers, flight, &failure);
        let error = failure.into_error();
        if !error.is_transient() || self.until <= env.cx.now {
            return Next::End(self.goal.failed(error));
        }
        // The seed only spreads retries; the call's number does for that.
        let seed = LeaseId(u128::from(self.call.0));
        let between = retry(env.cx.settings.command_timeout);
        self.attempt.pace.back_off(env.cx.now, between, seed);
        self.attempt.pace.next = self.attempt.pace.next.min(self.until);
        self.error = Some(error);
        Next::Stay
    }

    /// Nobody waits for it any more.
    fn close(mut self, env: &mut Env) {
        self.attempt.abandon(&mut env.servers);
        self.set_timer(&mut env.cx, Timestamp::NEVER);
    }

    fn settle(&mut self, cx: &mut Ctx) {
        self.set_timer(cx, self.attempt.wake_at());
    }

    fn set_timer(&mut self, cx: &mut Ctx, at: Timestamp) {
        cx.timers.set(Timed::Query(self.call), &mut self.wake, at);
    }
}

impl Place {
    fn of(cursor: u64, clustered: bool) -> Self {
        if !clustered {
            let server = ServerId::ONLY;
            return Self { server, cursor };
        }
        let server = u32::try_from(cursor >> ServerId::CURSOR_BITS).unwrap_or(0);
        Self {
            server: ServerId(server),
            cursor: cursor & ((1 << ServerId::CURSOR_BITS) - 1),
        }
    }

    /// The same server, further on.
    fn at(self, cursor: u64) -> u64 {
        self.server.walk() | cursor
    }
}

impl Goal {
    fn command(&self) -> Command {
        match self {
            Self::Look(key) | Self::Free(key, _) => Command::Inspect(Inspect { key: key.clone() }),
            Self::List(pattern, place) => Command::List(List {
                pattern: pattern.clone(),
                cursor: place.cursor,
            }),
            Self::FreeOf(key, holder) => Command::ForceRelease(ForceRelease {
                key: key.clone(),
                token: holder.token,
            }),
        }
    }

    fn place(&self) -> Place {
        match self {
            Self::List(_, place) => *place,
            _ => Place::of(0, false),
        }
    }

    fn failed(&self, error: Error) -> Answer {
        match self {
            Self::Look(_) => Answer::Inspect(Err(error)),
            Self::List(..) => Answer::List(Err(error)),
            Self::Free(..) | Self::FreeOf(..) => Answer::ForceRelease(Err(error)),
        }
    }
}

fn inspection(seen: Inspected, time: ServerTime) -> Inspection {
    let line = seen.line.into_iter().map(|waiter| WaiterInfo {
        owner: waiter.owner,
        waited: time.since(waiter.since),
    });
    Inspection {
        holder: seen.holder.map(|holder| holder_info(holder, time)),
        last_token: seen.last_token,
        waiting: seen.waiting,
        line: line.collect(),
    }
}

fn holder_info(holder: Holder, time: ServerTime) -> HolderInfo {
    let Holder {
        token,
        expires,
        owner,
    } = holder;
    HolderInfo {
        token,
        remaining: expires.since(time),
        owner,
    }
}
