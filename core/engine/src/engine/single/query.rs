//! Looking at locks, and freeing other people's.

use super::Single;
use super::attempt::{Attempt, Due, Failure, Outcome};
use crate::engine::ctx::Whose;
use crate::engine::front::{self, Queries, Question};
use crate::engine::io::{Answer, CallId, HolderInfo, Inspection, Listing, ServerId, WaiterInfo};
use crate::engine::pace::retry;
use crate::engine::servers::Flight;
use crate::error::Error;
use crate::protocol::{
    Command, ForceRelease, Holder, Inspect, Inspected, LeaseId, List, LockKey, Pattern, Reply,
};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

/// One question to the store that is under way.
#[derive(Debug)]
pub(in crate::engine) struct SingleQuery {
    call: CallId,
    goal: Goal,
    until: Timestamp,
    attempt: Attempt,
    error: Option<Error>,
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

impl Queries<Single> {
    /// There is a new link: what failed before is tried at once.
    pub(super) fn retry_all(&mut self, env: &mut Single) {
        for call in self.calls() {
            self.step(env, call, |query, env| {
                if query.attempt.pace.failures == 0 {
                    return None;
                }
                query.attempt.pace.next = env.cx.now;
                front::Query::time(query, env)
            });
        }
    }

    pub(super) fn landed(&mut self, env: &mut Single, (call, outcome): (CallId, Outcome)) {
        self.step(env, call, |query, env| query.landed(env, outcome));
    }
}

impl front::Query<Single> for SingleQuery {
    fn time(&mut self, env: &mut Single) -> Option<Answer> {
        match self.attempt.due(env.cx.now) {
            Due::Late(flight) => match self.attempt.late(&mut env.servers, env.cx.now, None) {
                Some(error) => self.fell_short(env, flight, Failure::Unknown(error)),
                None => None,
            },
            Due::Now if self.until <= env.cx.now => {
                let error = self.error.clone().unwrap_or_else(Error::no_answer);
                Some(self.goal.failed(error))
            }
            Due::Now => {
                self.ask(env);
                None
            }
            Due::Later => None,
        }
    }

    fn close(&mut self, env: &mut Single) {
        self.attempt.abandon(&mut env.servers);
    }

    fn failed(&self, error: Error) -> Answer {
        self.goal.failed(error)
    }

    fn wake_at(&self) -> Timestamp {
        self.attempt.wake_at()
    }
}

impl SingleQuery {
    pub(super) fn new(env: &mut Single, call: CallId, question: Question) -> Self {
        let goal = match question {
            Question::Inspect(key) => Goal::Look(key),
            Question::List(pattern, cursor) => {
                Goal::List(pattern, Place::of(cursor, env.cx.settings.clustered))
            }
            Question::ForceRelease(key, token) => Goal::Free(key, token),
        };
        let mut query = Self {
            call,
            goal,
            until: env.cx.now + env.cx.settings.patience,
            attempt: Attempt::due_at(env.cx.now),
            error: None,
        };
        query.ask(env);
        query
    }

    fn ask(&mut self, env: &mut Single) {
        let give_up = (env.cx.now + env.cx.settings.command_timeout).min(self.until);
        let whose = Whose::Query(self.call);
        let (command, place) = (self.goal.command(), self.goal.place());
        self.attempt
            .begin_at(env, whose, (command, place.server), give_up);
    }

    fn landed(&mut self, env: &mut Single, outcome: Outcome) -> Option<Answer> {
        let Some(flight) = self.attempt.land(&outcome) else {
            return None;
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
                        return None;
                    }
                    None => Answer::ForceRelease(Ok(None)),
                }
            }
            // If it is not there any more, an earlier attempt freed the lock, or it ended by itself.
            (Ok((Reply::Released | Reply::Gone | Reply::Taken, _)), Goal::FreeOf(_, holder)) => {
                Answer::ForceRelease(Ok(Some(holder.clone())))
            }
            (Ok((Reply::Late, _)), _) => {
                return self.fell_short(env, flight, Failure::late());
            }
            (Ok(_), _) => return self.fell_short(env, flight, Failure::mismatch()),
            (Err(error), _) => {
                return self.fell_short(env, flight, Failure::Unknown(error));
            }
        };
        Some(answer)
    }

    fn fell_short(&mut self, env: &mut Single, flight: Flight, failure: Failure) -> Option<Answer> {
        self.attempt.failed(&mut env.servers, flight, &failure);
        let error = failure.into_error();
        if !error.is_transient() || self.until <= env.cx.now {
            return Some(self.goal.failed(error));
        }
        // The seed only spreads retries; the call's number does for that.
        let seed = LeaseId(u128::from(self.call.0));
        let between = retry(env.cx.settings.command_timeout);
        self.attempt.pace.back_off(env.cx.now, between, seed);
        self.attempt.pace.next = self.attempt.pace.next.min(self.until);
        self.error = Some(error);
        None
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
