//! Questions that concern no lease of this locker: looking at locks, and freeing other people's.

use std::fmt::Debug;

use super::backend::Backend;
use crate::engine::ctx::Ctx;
use crate::engine::io::{Answer, CallId};
use crate::engine::table::Table;
use crate::engine::timers::Timed;
use crate::error::Error;
use crate::protocol::{LockKey, Pattern};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// A question of the program.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Inspect(LockKey),
    /// A step of a walk, from this cursor on.
    List(Pattern, u64),
    /// The lock is to be freed, whoever has it, or of the tenure with this token alone.
    ForceRelease(LockKey, Option<FencingToken>),
}

impl Question {
    pub(crate) fn failed(&self, error: Error) -> Answer {
        match self {
            Self::Inspect(_) => Answer::Inspect(Err(error)),
            Self::List(..) => Answer::List(Err(error)),
            Self::ForceRelease(..) => Answer::ForceRelease(Err(error)),
        }
    }
}

/// One question that is under way.
pub(crate) trait Query<B>: Debug {
    /// The time of its timer has come. Returns the answer if that ends it.
    fn time(&mut self, env: &mut B) -> Option<Answer>;

    /// Nobody waits for it any more.
    fn close(&mut self, env: &mut B);

    fn question(&self) -> &Question;

    fn wake_at(&self) -> Timestamp;
}

/// A store that can be asked.
pub(crate) trait Queried: Backend {
    type Query: Query<Self>;

    /// Asks a question that concerns no lease of this locker.
    fn ask(&mut self, queries: &mut Queries<Self>, call: CallId, question: Question);
}

/// The questions that are under way.
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

    /// Does something with one, which is over once that returns an answer.
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

    /// The call is given up.
    pub(crate) fn cancel(&mut self, env: &mut B, call: CallId) {
        if let Some(mut query) = self.take(env.cx(), call) {
            query.close(env);
        }
    }

    /// Ends all of them with this error.
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
