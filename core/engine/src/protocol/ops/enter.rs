//! Enter.

use std::time::Duration;

use super::{Form, Lua, Operation};
use crate::error::Error;
use crate::protocol::incarnation::Incarnation;
use crate::protocol::key::LockKey;
use crate::protocol::limits::LEASE_LENGTH;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::time::ServerTime;

/// Asks a server of a quorum in which [incarnation](Incarnation) it is, or checks that it is still the
/// same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enter {
    /// Where the server has the mark of it: [`LockKey::mark`].
    pub key: LockKey,
    /// The one that it is to be still; or the one to begin, if there is none.
    pub incarnation: Incarnation,
    /// What is said to enter. Without it that is only checked: if it is another one, this and what stands
    /// behind it in the batch is not done, and every reply is [`Reply::Forgot`].
    pub terms: Option<Terms>,
}

/// What a server of a quorum is to keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The longest time to live that this locker may ask for. A server that may vote keeps what it was told before;
    /// if that is another, it does nothing with the rest.
    pub longest: Duration,
    /// Incarnations of all servers of the quorum that may vote. Too many take the place of those that were told
    /// longest ago.
    pub remember: Vec<Incarnation>,
    /// Incarnations that may not vote yet: the server measures from now on how long that is.
    pub watch: Vec<Incarnation>,
    /// Those that are over.
    pub forget: Vec<Incarnation>,
}

/// What a server of a quorum says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entered {
    /// In which incarnation it is.
    pub incarnation: Incarnation,
    /// For how long that has been.
    pub age: Duration,
    /// The longest time to live that lockers may ask for.
    pub longest: Duration,
    /// The incarnations that it knows, in order: those that may vote, or might once.
    pub known: Vec<Incarnation>,
    /// The incarnations that it watches, in order, and for how long it has.
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
        // A page in a browser must not load what reads this, unless it has quorums.
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
