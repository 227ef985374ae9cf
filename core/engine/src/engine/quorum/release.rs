//! Giving a tenure back at all members.

use super::calls::Asked;
use super::env::Env;
use super::leased::Leased;
use super::tenure::Tenure;
use super::votes::Vote;
use crate::engine::io::{Answer, CallId};
use crate::engine::lock::who::Who;
use crate::error::Error;
use crate::event::{LeaseEvent, LossReason};
use crate::token::FencingToken;

/// A release that not enough members have confirmed yet. Each tries it until that or its expiry.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) who: Who,
    token: FencingToken,
    call: Option<CallId>,
    /// How many members do not have the lease.
    free: usize,
    pending: usize,
    error: Option<Error>,
}

impl Release {
    pub(super) fn new(
        env: &mut Env,
        mut lease: Leased,
        tenure: &Tenure,
        call: Option<CallId>,
    ) -> Self {
        let (mut free, mut pending) = (0, 0);
        for at in 0..env.members.len() {
            match lease.votes.get(at) {
                Vote::Has(_) => {
                    let (id, asked) = (lease.id_at(at), Asked::Release(lease.who.id()));
                    env.members.release(&env.cx, at, Some(asked), id);
                    pending += 1;
                }
                Vote::Asked(_) | Vote::InLine(_) => lease.give_back(env, at),
                Vote::None | Vote::Open | Vote::Leaving | Vote::Busy | Vote::Failed(_) => free += 1,
            }
        }
        Self {
            who: lease.who,
            token: tenure.token,
            call,
            free,
            pending,
            error: None,
        }
    }

    /// A member has given it back, or not.
    pub(super) fn landed(&mut self, result: Result<(), Error>) {
        self.pending = self.pending.saturating_sub(1);
        match result {
            Err(error) if !error.is_not_held() => self.error = Some(error),
            // What it does not have any more is free.
            Ok(()) | Err(_) => self.free += 1,
        }
    }

    /// Somebody else got it.
    pub(super) fn is_over(&mut self, env: &Env) {
        self.free = self.free.max(env.members.majority());
    }

    /// Whether it is at its end; if so it was said.
    pub(super) fn ends(&mut self, env: &mut Env) -> bool {
        let majority = env.members.majority();
        let (name, token) = (self.who.spec.name.clone(), self.token);
        let (answer, event) = if self.free >= majority {
            (Ok(()), LeaseEvent::Released { name, token })
        } else if self.free + self.pending >= majority {
            return false;
        } else {
            let error = self.error.take().unwrap_or_else(Error::no_answer);
            let reason = LossReason::Expired;
            (
                Err(error),
                LeaseEvent::Lost {
                    name,
                    token,
                    reason,
                },
            )
        };
        self.who.emit(&mut env.cx, event, None);
        if let Some(call) = self.call {
            env.cx.answer(call, Answer::Release(answer));
        }
        true
    }
}
