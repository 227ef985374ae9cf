//! Asking a server of a quorum in which incarnation it is: one question at a time.

use super::attempt::{Failure, Outcome};
use super::ctx::{Origin, Whose};
use super::env::Env;
use super::io::ServerId;
use super::servers::{Flight, Queued};
use crate::error::Error;
use crate::protocol::{Command, Enter, Entered, Incarnation, Reply};
use crate::time::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Entry {
    under_way: Option<Flight>,
    news: Option<EntryNews>,
}

/// What a server says of its incarnation.
#[derive(Debug)]
pub(super) enum EntryNews {
    Entered(Result<Entered, Error>),
    /// The question reached it too late, by a clock that was set perhaps; it did nothing.
    Late,
    /// It is not in this one any more.
    Forgot(Incarnation),
}

impl Entry {
    /// Asks, with whatever is under way given up.
    pub(super) fn begin(&mut self, env: &mut Env, enter: Enter, give_up: Timestamp) {
        self.give_up(env);
        let (attempt, sent) = (env.cx.next_serial(), env.cx.now);
        let whose = Whose::Entry;
        let origin = Origin { whose, attempt };
        let queued = Queued {
            origin,
            command: Command::Enter(enter),
            durability: None,
            give_up,
        };
        let server = env.servers.send(&env.cx, queued, ServerId::ONLY);
        self.under_way = Some(Flight {
            attempt,
            server,
            sent,
            give_up,
        });
    }

    /// Nobody waits for it any longer; why there was no answer, if there was a question.
    pub(super) fn give_up(&mut self, env: &mut Env) -> Option<Error> {
        let flight = self.under_way.take()?;
        let error = env.servers.why_no_answer(flight);
        env.servers.unsend(flight);
        Some(error)
    }

    pub(super) fn landed(&mut self, outcome: Outcome) {
        let is_this = |flight: &mut Flight| flight.attempt == outcome.attempt;
        if self.under_way.take_if(is_this).is_none() {
            return;
        }
        self.news = Some(match outcome.result {
            Ok((Reply::Entered(entered), _)) => EntryNews::Entered(Ok(entered)),
            Ok((Reply::Late, _)) => EntryNews::Late,
            Ok(_) => EntryNews::Entered(Err(Failure::mismatch().into_error())),
            Err(error) => EntryNews::Entered(Err(error)),
        });
    }

    pub(super) fn forgot(&mut self, incarnation: Incarnation) {
        // What the question says is newer.
        if self.news.is_none() {
            self.news = Some(EntryNews::Forgot(incarnation));
        }
    }

    pub(super) fn take_news(&mut self) -> Option<EntryNews> {
        self.news.take()
    }
}
