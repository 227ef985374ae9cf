//! The attempts at one operation until its outcome is known: the one in flight, the time of the next, and
//! earlier ones that may still take effect. Every operation for the store goes through this.

use super::Single;
use crate::engine::ctx::{Origin, Serial, Whose};
use crate::engine::io::ServerId;
use crate::engine::pace::Pace;
use crate::engine::servers::{Flight, Queued, Servers};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Command, Durability, Reply};
use crate::time::{ServerTime, Timestamp};

/// The result of one attempt.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) attempt: Serial,
    /// The server that replied.
    pub(super) server: ServerId,
    /// When the attempt left, if there is a reply.
    pub(super) left: Option<Timestamp>,
    pub(super) result: Result<(Reply, ServerTime), Error>,
}

/// Attempts with an unknown outcome: until a given time they may still take effect.
#[derive(Copy, Clone, Debug)]
pub(super) struct Doubt {
    /// The attempt, if its reply may still arrive and settle the doubt.
    pub(super) attempt: Option<Serial>,
    pub(super) until: Timestamp,
}

impl Doubt {
    /// Creates a doubt about attempts whose replies will never arrive.
    pub(super) fn until(until: Timestamp) -> Self {
        Self {
            attempt: None,
            until,
        }
    }
}

/// The action that an operation's timer calls for.
#[derive(Copy, Clone, Debug)]
pub(super) enum Due {
    /// The reply is overdue, perhaps because the attempt has not left yet.
    Late(Flight),
    /// The next attempt is due.
    Now,
    Later,
}

/// The reason why no reply gives the operation's result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server reports that it did nothing.
    Idle(Error),
    /// The server may have acted, unless the error is a refusal.
    Unknown(Error),
}

#[derive(Debug)]
pub(super) struct Attempt {
    under_way: Option<Flight>,
    pub(super) pace: Pace,
    /// Attempts without a reply may act until this time.
    doubt: Timestamp,
}

const NO_DOUBT: Timestamp = Timestamp::from_nanos(0);

impl Attempt {
    /// Creates an operation whose first attempt is due at this time.
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

    /// Returns the action that is due.
    pub(super) fn due(&self, now: Timestamp) -> Due {
        match self.under_way {
            Some(flight) if flight.give_up <= now => Due::Late(flight),
            None if self.pace.next <= now => Due::Now,
            _ => Due::Later,
        }
    }

    /// Returns the time of the next timer.
    pub(super) fn wake_at(&self) -> Timestamp {
        self.under_way
            .map_or(self.pace.next, |flight| flight.give_up)
    }

    /// Starts an attempt and forgets the one in flight.
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

    /// Starts an attempt as [`begin`](Self::begin) does. A command without a key goes to this server.
    pub(super) fn begin_at(
        &mut self,
        env: &mut Single,
        whose: Whose,
        (command, server): (Command, ServerId),
        give_up: Timestamp,
    ) {
        self.send(env, whose, (command, None, server), give_up);
    }

    /// Starts an attempt as [`begin`](Self::begin) does. The command counts only once these copies exist.
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

    /// Ends the attempt in flight if this is its outcome, and returns its flight.
    pub(super) fn land(&mut self, outcome: &Outcome) -> Option<Flight> {
        let flight = self
            .under_way
            .take_if(|flight| flight.attempt == outcome.attempt)?;
        let sent = outcome.left.unwrap_or(flight.sent);
        Some(Flight { sent, ..flight })
    }

    /// Forgets the attempt in flight, for which no call waits any more.
    pub(super) fn forget_flight(&mut self) -> Option<Flight> {
        self.under_way.take()
    }

    /// Handles an overdue reply. If the attempt has not left yet, it keeps its place among the pending
    /// operations until `longer`, if given. Otherwise this forgets the attempt and returns the error.
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

    /// Records that an attempt failed. Returns true if the attempt may have acted anyway, or may still act.
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
                ErrorKind::WrongType
                    | ErrorKind::Auth
                    | ErrorKind::ReadOnly
                    | ErrorKind::Config
                    | ErrorKind::Unsupported
            ),
        };
        let acts = !unsent && !refused && flight.give_up > flight.sent;
        if acts {
            self.doubt = self.doubt.max(flight.give_up);
        }
        acts
    }

    /// True if an attempt that was never answered may have acted.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt > NO_DOUBT
    }

    /// Ends the doubt about attempts that could no longer take effect at this time.
    pub(super) fn settle_doubt(&mut self, before: Timestamp) {
        if self.doubt <= before {
            self.doubt = NO_DOUBT;
        }
    }

    /// Gives the operation up. Returns the attempts that may still act: the one in flight and earlier ones
    /// that were never answered.
    pub(super) fn abandon(&mut self, servers: &mut Servers) -> Option<Doubt> {
        let under_way = self.under_way.take();
        let under_way = under_way.filter(|flight| !servers.unsend(*flight));
        let earlier = self.unanswered();
        let until = under_way.map(|flight| flight.give_up).max(earlier)?;
        // The answer to the last attempt does not settle the doubt about earlier ones.
        let attempt = under_way
            .filter(|_| earlier.is_none())
            .map(|flight| flight.attempt);
        Some(Doubt { attempt, until })
    }

    /// Returns the time until which attempts without an answer may act.
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

    /// Returns the failure of a request that reached the store after its `not_after`.
    pub(crate) fn late() -> Self {
        Self::Idle(Error::new(
            ErrorKind::Timeout,
            "the request reached the store too late, so the store did nothing",
        ))
    }

    /// Returns the failure of a reply that does not fit the operation.
    pub(crate) fn mismatch() -> Self {
        Self::Unknown(Error::new(
            ErrorKind::Store,
            "the store sent a reply that does not match the operation",
        ))
    }
}
