//! Queries that concern no lease of this locker: inspecting and listing locks, force-releasing those of
//! others, and asking their holders to yield.

use std::fmt::Debug;
use std::time::Duration;

use super::backend::Backend;
use crate::engine::ctx::Ctx;
use crate::engine::inspection::HolderInfo;
use crate::engine::io::{Answer, CallId};
use crate::engine::table::Table;
use crate::engine::timers::Timed;
use crate::error::Error;
use crate::name::Owner;
use crate::protocol::{Counter, LockKey, Pattern};
use crate::share::Sharing;
use crate::time::Timestamp;
use crate::token::FencingToken;

/// A query of the program.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Inspect(LockKey),
    /// One step of a walk over the held locks, starting at this cursor.
    List(Pattern, u64),
    /// Frees the lock, whoever holds it. With a token, only if the tenure with that token holds it.
    ForceRelease(LockKey, Option<FencingToken>),
    /// Asks the holder to release the lock, for this owner and within this time.
    RequestYield(LockKey, Owner, Duration),
    /// Changes the capacity of a shared name.
    Resize(LockKey, Sharing, u32, Counter),
}

impl Question {
    pub(crate) fn failed(&self, error: Error) -> Answer {
        match self {
            Self::Inspect(_) => Answer::Inspect(Err(error)),
            Self::List(..) => Answer::List(Err(error)),
            Self::ForceRelease(..) => Answer::ForceRelease(Err(error)),
            Self::RequestYield(..) => Answer::RequestYield(Err(error)),
            Self::Resize(..) => Answer::Resize(Err(error)),
        }
    }

    /// Returns the answer to a question about one holder.
    pub(crate) fn found(&self, holder: Option<HolderInfo>) -> Answer {
        match self {
            Self::RequestYield(..) => Answer::RequestYield(Ok(holder)),
            _ => Answer::ForceRelease(Ok(holder)),
        }
    }
}

/// A query in progress.
pub(crate) trait Query<B>: Debug {
    /// Handles the query's timer. Returns the answer if the query is over.
    fn time(&mut self, env: &mut B) -> Option<Answer>;

    /// Gives the query up: no call waits for it any more.
    fn close(&mut self, env: &mut B);

    fn question(&self) -> &Question;

    fn wake_at(&self) -> Timestamp;
}

/// A store that answers queries.
pub(crate) trait Queried: Backend {
    type Query: Query<Self>;

    /// Starts a query that concerns no lease of this locker.
    fn ask(&mut self, queries: &mut Queries<Self>, call: CallId, question: Question);
}

/// The queries in progress.
#[derive(Debug)]
pub(crate) struct Queries<B: Queried>(Table<CallId, (B::Query, Timestamp)>);

impl<B: Queried> Default for Queries<B> {
    fn default() -> Self {
        Self(Table::default())
    }
}

impl<B: Queried> Queries<B> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn wake(&self, call: CallId) -> Option<Timestamp> {
        self.0.get(&call).map(|(_, wake)| *wake)
    }

    pub(crate) fn calls(&self) -> Vec<CallId> {
        self.0.keys().collect()
    }

    pub(crate) fn start(&mut self, env: &mut B, call: CallId, query: B::Query) {
        let mut query = (query, Timestamp::NEVER);
        Self::settle(env.cx(), call, &mut query);
        self.0.insert(call, query);
    }

    pub(crate) fn time(&mut self, env: &mut B, call: CallId) {
        self.step(env, call, B::Query::time);
    }

    /// Acts on a query, and ends it if the action returns an answer.
    pub(crate) fn step(
        &mut self,
        env: &mut B,
        call: CallId,
        act: impl FnOnce(&mut B::Query, &mut B) -> Option<Answer>,
    ) {
        let Some(query) = self.0.get_mut(&call) else {
            return;
        };
        match act(&mut query.0, env) {
            None => Self::settle(env.cx(), call, query),
            Some(answer) => {
                self.take(env.cx(), call);
                env.cx().answer(call, answer);
            }
        }
    }

    /// Cancels the query of this call.
    pub(crate) fn cancel(&mut self, env: &mut B, call: CallId) {
        if let Some(mut query) = self.take(env.cx(), call) {
            query.close(env);
        }
    }

    /// Fails all queries with this error.
    pub(crate) fn fail_all(&mut self, env: &mut B, error: &Error) {
        for call in self.calls() {
            if let Some(mut query) = self.take(env.cx(), call) {
                query.close(env);
                env.cx()
                    .answer(call, query.question().failed(error.clone()));
            }
        }
    }

    fn take(&mut self, cx: &mut Ctx, call: CallId) -> Option<B::Query> {
        let (query, mut wake) = self.0.take(&call)?;
        cx.timers
            .set(Timed::Query(call), &mut wake, Timestamp::NEVER);
        Some(query)
    }

    fn settle(cx: &mut Ctx, call: CallId, (query, wake): &mut (B::Query, Timestamp)) {
        cx.timers.set(Timed::Query(call), wake, query.wake_at());
    }
}
