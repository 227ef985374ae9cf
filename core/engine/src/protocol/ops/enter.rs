//! The `Enter` operation.

use std::time::Duration;

use super::{Form, Lua, Operation};
use crate::error::Error;
use crate::protocol::incarnation::Incarnation;
use crate::protocol::key::LockKey;
use crate::protocol::limits::LEASE_LENGTH;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::time::ServerTime;

/// Asks a server of a quorum for its [incarnation](Incarnation), or checks that the incarnation has not
/// changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enter {
    /// The key where the server stores its incarnation: [`LockKey::mark`].
    pub key: LockKey,
    /// The incarnation that the server must still be in, or the one to begin if it has none.
    pub incarnation: Incarnation,
    /// The locker's own data, to enter. Without it, this only checks the incarnation. If that has changed,
    /// this operation and those after it in the batch do nothing, and every reply is [`Reply::Forgot`].
    pub terms: Option<Terms>,
}

/// Data that a locker gives to a server of a quorum to store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The longest time to live that this locker may ask for. A server that may vote keeps the value that it
    /// has. If that differs from this one, it ignores all of these terms.
    pub longest: Duration,
    /// Incarnations of any servers of the quorum that may vote. If there are too many, the server drops those
    /// that were reported longest ago.
    pub remember: Vec<Incarnation>,
    /// Incarnations in quarantine. The server measures how long ago each was first reported.
    pub watch: Vec<Incarnation>,
    /// Incarnations that have ended.
    pub forget: Vec<Incarnation>,
}

/// A server's reply to [`Enter`]: its own incarnation and the others that it knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entered {
    /// The server's current incarnation.
    pub incarnation: Incarnation,
    /// The age of that incarnation.
    pub age: Duration,
    /// The longest time to live that lockers of this quorum may ask for.
    pub longest: Duration,
    /// The incarnations that may vote, or could before they ended, in ascending order.
    pub known: Vec<Incarnation>,
    /// The incarnations in quarantine, in ascending order, and how long the server has watched each.
    pub watched: Vec<(Incarnation, Duration)>,
}

impl Operation for Enter {
    const FORM: Form = Form {
        name: "enter",
        letters: b"E",
        keys: &[LockKey::LOCK],
    };
    const LUA: Lua = Lua {
        common: Some(include_str!("enter.lua")),
        rest: include_str!("enter_rest.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn is_common(&self) -> bool {
        self.terms.is_none()
    }

    fn ttl(&self) -> Duration {
        let terms = self.terms.as_ref();
        terms.map_or(Duration::ZERO, |terms| terms.longest)
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.incarnation(self.incarnation);
        let Some(terms) = &self.terms else { return };
        let Terms {
            remember,
            watch,
            forget,
            ..
        } = terms;
        for (letter, incarnations) in [(b'+', remember), (b'?', watch), (b'-', forget)] {
            for incarnation in incarnations {
                text.letter(letter);
                text.incarnation(*incarnation);
            }
        }
    }

    fn text_size(&self) -> usize {
        let terms = self.terms.as_ref();
        let named = terms.map_or(0, |terms| {
            terms.remember.len() + terms.watch.len() + terms.forget.len()
        });
        named * (1 + LEASE_LENGTH)
    }

    fn common_reply(&self, _: Option<ServerTime>) -> Result<Reply, Error> {
        match self.terms {
            None => Ok(Reply::Intact),
            Some(_) => Err(unexpected()),
        }
    }

    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error> {
        // Without this test, a browser page would load the parser even if it has no quorums.
        if !cfg!(feature = "quorum") || status != "entered" || self.terms.is_none() {
            return Err(unexpected());
        }
        let incarnation = fields.incarnation()?;
        let age = Duration::from_millis(fields.number()?);
        let longest = Duration::from_millis(fields.number()?);
        let (known, watched) = fields.rest_as_incarnations()?;
        Ok(Reply::Entered(Entered {
            incarnation,
            age,
            longest,
            known,
            watched,
        }))
    }
}
