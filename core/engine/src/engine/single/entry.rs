//! Asks a server of a quorum for its incarnation, one request at a time.

use super::attempt::{Failure, Outcome};
use crate::engine::ctx::{Ctx, Origin, Whose};
use crate::engine::io::ServerId;
use crate::engine::servers::{Flight, Queued, Servers};
use crate::error::Error;
use crate::protocol::{Command, Enter, Entered, Incarnation, Reply};
use crate::time::Timestamp;

/// True in builds with quorums, the only ones that ask. In other builds the compiler drops the handling of
/// answers, so that a browser does not load it.
const IS_ASKED: bool = cfg!(feature = "quorum");

#[derive(Debug, Default)]
pub(crate) struct Entry {
    under_way: Option<Flight>,
    news: Option<EntryNews>,
}

/// A server's report on its incarnation.
#[derive(Debug)]
pub(crate) enum EntryNews {
    Entered(Result<Entered, Error>),
    /// The request arrived too late by the server's clock, which may have been set. The server did nothing.
    Late,
    /// The server has left this incarnation.
    Forgot(Incarnation),
}

impl Entry {
    /// Sends a request, and gives up the one in flight.
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

    /// Gives up the request in flight. Returns why it had no answer, if there was one.
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
        // The answer to a request is newer.
        if IS_ASKED && self.news.is_none() {
            self.news = Some(EntryNews::Forgot(incarnation));
        }
    }

    pub(crate) fn take_news(&mut self) -> Option<EntryNews> {
        self.news.take()
    }
}

#[cfg(all(test, feature = "quorum"))]
mod tests {
    use super::*;
    use crate::engine::settings::Settings;
    use crate::name::Name;
    use crate::protocol::{ClientId, LockKey};
    use crate::time::ServerTime;

    /// Catches an earlier answer that is taken for the answer to a later request.
    #[test]
    fn only_the_answer_to_the_request_in_flight_is_news() {
        let settings = Settings::new(ClientId(1));
        let (mut servers, mut cx) = (Servers::new(&settings), Ctx::new(settings));
        let name = Name::new("n").expect("a short name is valid");
        let key = LockKey::new("ns", &name).expect("a short namespace is valid");
        let mut entry = Entry::default();
        let asked = [(); 2].map(|()| {
            let enter = Enter {
                key: key.mark(),
                incarnation: Incarnation(5),
                terms: None,
            };
            entry.begin(&mut cx, &mut servers, (enter, Timestamp::NEVER));
            entry.under_way.expect("a request is in flight").attempt
        });
        let mut news_of = |attempt| {
            entry.landed(Outcome {
                attempt,
                server: ServerId::ONLY,
                left: None,
                result: Ok((Reply::Late, ServerTime::from_micros(1))),
            });
            entry.take_news()
        };
        assert!(news_of(asked[0]).is_none());
        assert!(matches!(news_of(asked[1]), Some(EntryNews::Late)));
        assert!(news_of(asked[1]).is_none());
    }
}
