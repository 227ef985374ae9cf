//! One operation, tried until its outcome is known: what is under way, when it is tried again, and
//! what earlier attempts may still do. Everything that asks the store for something does it by this.

use super::Single;
use crate::engine::ctx::{Origin, Serial, Whose};
use crate::engine::io::ServerId;
use crate::engine::pace::Pace;
use crate::engine::servers::{Flight, Queued, Servers};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Command, Durability, Reply};
use crate::time::{ServerTime, Timestamp};

/// What came of one attempt.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) attempt: Serial,
    /// Who replied.
    pub(super) server: ServerId,
    /// When it left, if there is a reply.
    pub(super) left: Option<Timestamp>,
    pub(super) result: Result<(Reply, ServerTime), Error>,
}

/// An operation whose outcome is not known: until then it may still take effect.
#[derive(Copy, Clone, Debug)]
pub(super) struct Doubt {
    /// The attempt, if its reply may still come and settle the matter.
    pub(super) attempt: Option<Serial>,
    pub(super) until: Timestamp,
}

impl Doubt {
    /// About attempts whose replies do not come any more.
    pub(super) fn until(until: Timestamp) -> Self {
        Self {
            attempt: None,
            until,
        }
    }
}

/// What the time has come for.
#[derive(Copy, Clone, Debug)]
pub(super) enum Due {
    /// There was no reply in time; perhaps because the attempt has not left yet.
    Late(Flight),
    /// To be tried.
    Now,
    Later,
}

/// Why there is no reply that says what happened.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server says that it did nothing.
    Idle(Error),
    /// It may have acted, unless the error is a refusal.
    Unknown(Error),
}

#[derive(Debug)]
pub(super) struct Attempt {
    under_way: Option<Flight>,
    pub(super) pace: Pace,
    /// Attempts that never got a reply may act until then.
    doubt: Timestamp,
}

const NO_DOUBT: Timestamp = Timestamp::from_nanos(0);

impl Attempt {
    /// To be tried at this moment.
    pub(super) fn due_at(next: Timestamp) -> Self {
        Self {
            under_way: None,
            pace: Pace::due_at(next),
            doubt: NO_DOUBT,
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    pub(super) fn under_way(&self) -> Option<Flight> {
        self.under_way
    }

    /// What the time has come for.
    pub(super) fn due(&self, now: Timestamp) -> Due {
        match self.under_way {
            Some(flight) if flight.give_up <= now => Due::Late(flight),
            None if self.pace.next <= now => Due::Now,
            _ => Due::Later,
        }
    }

    /// When it has to be looked at again.
    pub(super) fn wake_at(&self) -> Timestamp {
        self.under_way
            .map_or(self.pace.next, |flight| flight.give_up)
    }

    /// Asks, with whatever is under way forgotten.
    pub(super) fn begin(
        &mut self,
        env: &mut Single,
        whose: Whose,
        command: Command,
        give_up: Timestamp,
    ) {
        let asked = (command, None, ServerId::ONLY);
        self.send(env, whose, asked, give_up);
    }

    /// The same; without a key it goes to this server.
    pub(super) fn begin_at(
        &mut self,
        env: &mut Single,
        whose: Whose,
        (command, server): (Command, ServerId),
        give_up: Timestamp,
    ) {
        self.send(env, whose, (command, None, server), give_up);
    }

    /// The same of what counts only with these copies.
    pub(super) fn begin_durably(
        &mut self,
        env: &mut Single,
        whose: Whose,
        (command, durability): (Command, Option<Durability>),
        give_up: Timestamp,
    ) {
        let asked = (command, durability, ServerId::ONLY);
        self.send(env, whose, asked, give_up);
    }

    fn send(
        &mut self,
        env: &mut Single,
        whose: Whose,
        (command, durability, keyless): (Command, Option<Durability>, ServerId),
        give_up: Timestamp,
    ) {
        let attempt = env.cx.next_serial();
        let queued = Queued {
            origin: Origin { whose, attempt },
            command,
            durability,
            give_up,
        };
        self.under_way = Some(env.servers.send(&env.cx, queued, keyless));
    }

    /// What an outcome is of, if that is what is under way; nothing is from now on.
    pub(super) fn land(&mut self, outcome: &Outcome) -> Option<Flight> {
        let flight = self
            .under_way
            .take_if(|flight| flight.attempt == outcome.attempt)?;
        let sent = outcome.left.unwrap_or(flight.sent);
        Some(Flight { sent, ..flight })
    }

    /// Nothing is under way any more that anybody waits for.
    pub(super) fn forget_flight(&mut self) -> Option<Flight> {
        self.under_way.take()
    }

    /// There was no answer in time. If it has not left yet it keeps its turn for `longer`, where
    /// that is given; else this says what failed, and nothing is under way.
    pub(super) fn late(
        &mut self,
        servers: &mut Servers,
        now: Timestamp,
        longer: Option<Timestamp>,
    ) -> Option<Error> {
        let flight = self.under_way.as_mut()?;
        let longer = longer.filter(|at| *at > now);
        if let Some(give_up) = longer
            && servers.wait_on(*flight, give_up)
        {
            flight.give_up = give_up;
            return None;
        }
        let error = servers.why_no_answer(*flight);
        self.under_way = None;
        Some(error)
    }

    /// An attempt failed. Returns whether it may have acted all the same, or may still.
    pub(super) fn failed(
        &mut self,
        servers: &mut Servers,
        flight: Flight,
        failure: &Failure,
    ) -> bool {
        let unsent = servers.unsend(flight);
        let refused = match failure {
            Failure::Idle(_) => true,
            Failure::Unknown(error) => matches!(
                error.kind(),
                ErrorKind::WrongType | ErrorKind::Auth | ErrorKind::ReadOnly
            ),
        };
        let acts = !unsent && !refused && flight.give_up > flight.sent;
        if acts {
            self.doubt = self.doubt.max(flight.give_up);
        }
        acts
    }

    /// Whether an attempt was never answered, and may have acted.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt > NO_DOUBT
    }

    /// What could not take effect any more at that moment is in no doubt.
    pub(super) fn settle_doubt(&mut self, before: Timestamp) {
        if self.doubt <= before {
            self.doubt = NO_DOUBT;
        }
    }

    /// Gives the operation up: which attempts may still do something, the last, if it is under way,
    /// and those before it that were never answered.
    pub(super) fn abandon(&mut self, servers: &mut Servers) -> Option<Doubt> {
        let under_way = self.under_way.take();
        let under_way = under_way.filter(|flight| !servers.unsend(*flight));
        let earlier = self.unanswered();
        let until = under_way.map(|flight| flight.give_up).max(earlier)?;
        // The answer to the last attempt says nothing of earlier ones.
        let attempt = under_way
            .filter(|_| earlier.is_none())
            .map(|flight| flight.attempt);
        Some(Doubt { attempt, until })
    }

    /// Until when attempts that were never answered may act.
    pub(super) fn unanswered(&self) -> Option<Timestamp> {
        Some(self.doubt).filter(|until| *until > NO_DOUBT)
    }
}

impl Failure {
    pub(crate) fn error(&self) -> &Error {
        match self {
            Self::Idle(error) | Self::Unknown(error) => error,
        }
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Idle(error) | Self::Unknown(error) => error,
        }
    }

    /// The request reached the store past its `not_after`.
    pub(crate) fn late() -> Self {
        Self::Idle(Error::new(
            ErrorKind::Timeout,
            "the request reached the store too late, and it did nothing",
        ))
    }

    /// The reply is not one to this operation.
    pub(crate) fn mismatch() -> Self {
        Self::Unknown(Error::new(
            ErrorKind::Store,
            "the store answered something else than was asked",
        ))
    }
}
