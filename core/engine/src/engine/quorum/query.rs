//! Looking at locks, and freeing other people's, at a majority.

use std::mem;
use std::time::Duration;

use super::calls::Asked;
use super::env::Env;
use super::members::too_few;
use crate::engine::io::{Answer, CallId, HolderInfo, Input, Inspection, Listing};
use crate::engine::table::Table;
use crate::engine::timers::Timed;
use crate::error::{Error, ErrorKind};
use crate::protocol::{LockKey, Pattern};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// After a majority has answered the others have at least so much longer.
const LEAST_GRACE: Duration = Duration::from_millis(5);

/// A walk names the member that it is at in the highest bits of its cursor.
const CURSOR_BITS: u32 = 56;

/// The questions that are under way.
#[derive(Debug, Default)]
pub(super) struct Queries(Table<CallId, Query>);

#[derive(Debug)]
struct Query {
    call: CallId,
    goal: Goal,
    asked: Timestamp,
    /// Who was asked: a bit for each member.
    members: u8,
    answers: Vec<(usize, Answer)>,
    errors: Vec<(usize, Error)>,
    wake: Timestamp,
}

#[derive(Debug)]
enum Goal {
    Look,
    Free,
    /// It is looked at who has the lock, to free it if that is of this token.
    Find(LockKey, FencingToken),
    /// A step of a walk, at this member.
    List(u64),
}

impl Queries {
    pub(super) fn inspect(&mut self, env: &mut Env, call: CallId, key: &LockKey) {
        self.look(env, (call, Goal::Look), key);
    }

    pub(super) fn force_release(
        &mut self,
        env: &mut Env,
        call: CallId,
        (key, token): (&LockKey, Option<FencingToken>),
    ) {
        if let Some(token) = token {
            return self.look(env, (call, Goal::Find(key.clone(), token)), key);
        }
        self.ask_all(env, (call, Goal::Free), |call| Input::ForceRelease {
            call,
            key: key.clone(),
            token,
        });
    }

    /// One member after the other is walked through.
    pub(super) fn list(&mut self, env: &mut Env, call: CallId, (pattern, cursor): (Pattern, u64)) {
        let (member, cursor) = (cursor >> CURSOR_BITS, cursor & ((1 << CURSOR_BITS) - 1));
        let at = usize::try_from(member).unwrap_or(usize::MAX);
        if at >= env.members.len() {
            let answer = Listing {
                cursor: None,
                names: Vec::new(),
            };
            return env.cx.answer(call, Answer::List(Ok(answer)));
        }
        let mut query = Query::new(env, call, Goal::List(member));
        // The others can do without one that is silent: it has the time of one command, not the call's.
        query.set_timer(env, env.cx.now + env.cx.settings.command_timeout);
        self.0.insert(call, query);
        let ask = |call| Input::List {
            call,
            pattern,
            cursor,
        };
        env.members.ask(&env.cx, at, Asked::Query(call), ask);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn wake(&self, call: CallId) -> Option<Timestamp> {
        self.0.get(&call).map(|query| query.wake)
    }

    pub(super) fn cancel(&mut self, env: &mut Env, call: CallId) {
        self.take(env, call);
    }

    pub(super) fn fail_all(&mut self, env: &mut Env, error: &Error) {
        let calls: Vec<_> = self.0.keys().collect();
        for call in calls {
            if let Some(query) = self.take(env, call) {
                env.cx.answer(call, query.failed(error.clone()));
            }
        }
    }

    /// The others had time enough to answer, too.
    pub(super) fn time(&mut self, env: &mut Env, call: CallId) {
        if let Some(mut query) = self.take(env, call) {
            if matches!(query.goal, Goal::Find(..))
                && query.answers.len() >= env.members.majority()
                && let Goal::Find(key, token) = mem::replace(&mut query.goal, Goal::Free)
            {
                return self.free(env, query, (&key, token));
            }
            let answer = query.answer(env);
            env.cx.answer(call, answer);
        }
    }

    /// A member has answered.
    pub(super) fn landed(&mut self, env: &mut Env, (call, at): (CallId, usize), answer: Answer) {
        let majority = env.members.majority();
        let Some(query) = self.0.get_mut(&call) else {
            return;
        };
        let of = query.members.count_ones() as usize;
        if query.members & bit(at) == 0 {
            // It is late to say who has the lock.
            return;
        }
        match answer.error() {
            Some(error) => query.errors.push((at, error.clone())),
            None => query.answers.push((at, answer)),
        }
        let (answers, errors) = (query.answers.len(), query.errors.len());
        let is_walk = matches!(query.goal, Goal::List(_));
        if is_walk || answers + errors == of || errors > of - majority {
            return self.time(env, call);
        }
        if answers == majority {
            let grace = env.cx.now.since(query.asked).max(LEAST_GRACE);
            query.set_timer(env, env.cx.now + grace);
        }
    }

    /// Frees it of what each member was seen to have, if that is of this token at all of them together.
    fn free(&mut self, env: &mut Env, mut query: Query, (key, token): (&LockKey, FencingToken)) {
        let call = query.call;
        let seen = query
            .answers
            .drain(..)
            .filter_map(|(at, answer)| match answer {
                Answer::Inspect(Ok(seen)) => Some((at, seen.holder?)),
                _ => None,
            });
        let seen: Vec<_> = seen.collect();
        let all = seen.iter().map(|(_, holder)| holder.clone()).collect();
        let found = holder(all, env.members.majority());
        let Some(found) = found.filter(|found| found.token == token) else {
            return env.cx.answer(call, Answer::ForceRelease(Ok(None)));
        };
        query.errors.clear();
        query.members = 0;
        for (at, holder) in seen {
            if holder.owner == found.owner {
                query.members |= bit(at);
                let (key, token) = (key.clone(), Some(holder.token));
                let free = |call| Input::ForceRelease { call, key, token };
                env.members.ask(&env.cx, at, Asked::Query(call), free);
            }
        }
        self.0.insert(call, query);
    }

    fn look(&mut self, env: &mut Env, query: (CallId, Goal), key: &LockKey) {
        self.ask_all(env, query, |call| Input::Inspect {
            call,
            key: key.clone(),
        });
    }

    fn ask_all(
        &mut self,
        env: &mut Env,
        (call, goal): (CallId, Goal),
        input: impl Fn(CallId) -> Input,
    ) {
        self.0.insert(call, Query::new(env, call, goal));
        for at in 0..env.members.len() {
            env.members.ask(&env.cx, at, Asked::Query(call), &input);
        }
    }

    fn take(&mut self, env: &mut Env, call: CallId) -> Option<Query> {
        let mut query = self.0.take(&call)?;
        query.set_timer(env, Timestamp::NEVER);
        Some(query)
    }
}

impl Query {
    fn new(env: &Env, call: CallId, goal: Goal) -> Self {
        Self {
            call,
            goal,
            asked: env.cx.now,
            members: u8::MAX >> (8 - env.members.len()),
            answers: Vec::new(),
            errors: Vec::new(),
            wake: Timestamp::NEVER,
        }
    }

    fn set_timer(&mut self, env: &mut Env, at: Timestamp) {
        env.cx
            .timers
            .set(Timed::Query(self.call), &mut self.wake, at);
    }

    fn failed(&self, error: Error) -> Answer {
        match self.goal {
            Goal::Look => Answer::Inspect(Err(error)),
            Goal::Free | Goal::Find(..) => Answer::ForceRelease(Err(error)),
            Goal::List(_) => Answer::List(Err(error)),
        }
    }

    /// What the members say together.
    fn answer(mut self, env: &Env) -> Answer {
        let (majority, of) = (env.members.majority(), env.members.len());
        if let Goal::List(member) = self.goal {
            return self.next_step(member, env);
        }
        if self.answers.len() < majority {
            let error = too_few(
                (majority, of),
                self.errors.iter().map(|(at, error)| (*at, error)),
            );
            return self.failed(error);
        }
        let answers = mem::take(&mut self.answers).into_iter();
        let answers = answers.map(|(_, answer)| answer);
        if let Goal::Free = self.goal {
            let holders = answers.filter_map(|answer| match answer {
                Answer::ForceRelease(Ok(holder)) => holder,
                _ => None,
            });
            return Answer::ForceRelease(Ok(holder(holders.collect(), majority)));
        }
        let seen = answers.filter_map(|answer| match answer {
            Answer::Inspect(Ok(seen)) => Some(seen),
            _ => None,
        });
        Answer::Inspect(Ok(together(seen.collect(), majority)))
    }

    /// A member that does not answer is left out of the walk, if the others are enough.
    fn next_step(&mut self, member: u64, env: &Env) -> Answer {
        let answer = self.answers.pop();
        let (cursor, names) = match answer {
            Some((_, Answer::List(Ok(listing)))) => (listing.cursor, listing.names),
            _ => (None, Vec::new()),
        };
        let enough = env.members.able() >= env.members.majority();
        if let Some((_, error)) = self.errors.pop().filter(|_| !enough) {
            return Answer::List(Err(error));
        }
        if cursor.is_some_and(|cursor| cursor >> CURSOR_BITS != 0) {
            let message = "a server's cursor is too large for a walk through several";
            return Answer::List(Err(Error::new(ErrorKind::Unsupported, message)));
        }
        let is_last = member + 1 >= u64::try_from(env.members.len()).unwrap_or(u64::MAX);
        let next = (!is_last).then_some((member + 1) << CURSOR_BITS);
        let cursor = cursor.map_or(next, |cursor| Some(member << CURSOR_BITS | cursor));
        Answer::List(Ok(Listing { cursor, names }))
    }
}

/// Members are seven at the most.
fn bit(at: usize) -> u8 {
    1 << at
}

/// Who has the lock at so many members.
fn holder(mut seen: Vec<HolderInfo>, majority: usize) -> Option<HolderInfo> {
    let owners = seen.iter().map(|holder| holder.owner.clone());
    let of = |owner: &crate::Owner| seen.iter().filter(|other| other.owner == *owner).count();
    let owner = owners.into_iter().find(|owner| of(owner) >= majority)?;
    seen.retain(|holder| holder.owner == owner);
    let mut tokens: Vec<_> = seen.iter().map(|holder| holder.token).collect();
    let mut remaining: Vec<_> = seen.iter().map(|holder| holder.remaining).collect();
    tokens.sort_unstable();
    remaining.sort_unstable_by(|one, other| other.cmp(one));
    Some(HolderInfo {
        token: tokens[majority - 1],
        remaining: remaining[majority - 1],
        owner,
    })
}

fn together(seen: Vec<Inspection>, majority: usize) -> Inspection {
    let holders = seen.iter().filter_map(|seen| seen.holder.clone());
    let holder = holder(holders.collect(), majority);
    let last_token = seen.iter().filter_map(|seen| seen.last_token).max();
    // Each stands in line at several members, but perhaps not at all that answered.
    let longest = seen.into_iter().max_by_key(|seen| seen.waiting);
    let (waiting, line) = longest.map_or_else(Default::default, |seen| (seen.waiting, seen.line));
    Inspection {
        holder,
        last_token,
        waiting,
        line,
    }
}
