//! Asking a server of a quorum in which incarnation it is: one question at a time.

use super::attempt::{Failure, Outcome};
use crate::engine::ctx::{Ctx, Origin, Whose};
use crate::engine::io::ServerId;
use crate::engine::servers::{Flight, Queued, Servers};
use crate::error::Error;
use crate::protocol::{Command, Enter, Entered, Incarnation, Reply};
use crate::time::Timestamp;

/// Only a quorum asks. Without it the compiler leaves out what comes of the answer, which a browser need not load.
const IS_ASKED: bool = cfg!(feature = "quorum");

#[derive(Debug, Default)]
pub(crate) struct Entry {
    under_way: Option<Flight>,
    news: Option<EntryNews>,
}

/// What a server says of its incarnation.
#[derive(Debug)]
pub(crate) enum EntryNews {
    Entered(Result<Entered, Error>),
    /// The question reached it too late, by a clock that was set perhaps; it did nothing.
    Late,
    /// It is not in this one any more.
    Forgot(Incarnation),
}

impl Entry {
    /// Asks, with whatever is under way given up.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Ctx,
        servers: &mut Servers,
        (enter, give_up): (Enter, Timestamp),
    ) {
        self.give_up(servers);
        let attempt = cx.next_serial();
        let whose = Whose::Entry;
        let origin = Origin { whose, attempt };
        let queued = Queued {
            origin,
            command: Command::Enter(enter),
            durability: None,
            give_up,
        };
        self.under_way = Some(servers.send(cx, queued, ServerId::ONLY));
    }

    /// Nobody waits for it any longer; why there was no answer, if there was a question.
    pub(crate) fn give_up(&mut self, servers: &mut Servers) -> Option<Error> {
        let flight = self.under_way.take()?;
        let error = servers.why_no_answer(flight);
        servers.unsend(flight);
        Some(error)
    }

    pub(crate) fn landed(&mut self, outcome: Outcome) {
        let is_this = |flight: &mut Flight| flight.attempt == outcome.attempt;
        if !IS_ASKED || self.under_way.take_if(is_this).is_none() {
            return;
        }
        self.news = Some(match outcome.result {
            Ok((Reply::Entered(entered), _)) => EntryNews::Entered(Ok(entered)),
            Ok((Reply::Late, _)) => EntryNews::Late,
            Ok(_) => EntryNews::Entered(Err(Failure::mismatch().into_error())),
            Err(error) => EntryNews::Entered(Err(error)),
        });
    }

    pub(crate) fn forgot(&mut self, incarnation: Incarnation) {
        // What the question says is newer.
        if IS_ASKED && self.news.is_none() {
            self.news = Some(EntryNews::Forgot(incarnation));
        }
    }

    pub(crate) fn take_news(&mut self) -> Option<EntryNews> {
        self.news.take()
    }
}
