//! The `Acquire` operation.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Form, Lua, Operation, WORDS, expiry};
use crate::error::Error;
use crate::protocol::claim::{Claim, Counter};
use crate::protocol::key::LockKey;
use crate::protocol::reply::{Grant, Reply};
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// Takes the lock if it is free, if this lease already has it, or if the claim may reclaim its current
/// tenure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire {
    /// The lock's keys.
    pub key: LockKey,
    /// The claim that asks for the lock.
    pub claim: Claim,
    /// True if the claim takes a place in line, or confirms it, if the lock is not free.
    pub waits: bool,
    /// The tenure of its own owner at another client that the claim may take over, or the token that it
    /// proposes.
    pub reclaims: Reclaim,
}

/// How an acquisition treats a lock that its own owner holds at another client, or the token that it
/// proposes. A takeover names the tenure: so a late or repeated request never takes over a tenure that began
/// after it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// Takes over nothing yet. The reply names the tenure that could be reclaimed.
    Ask,
    /// Takes over this tenure, and no other.
    From(FencingToken),
    /// Takes over nothing: an earlier reply said that somebody else has the lock.
    Never,
    /// Takes over nothing, and proposes a token for a free lock. The lock gets this token, or the successor
    /// of the last token if that is not smaller. A proposal that is far from the server's clock is ignored.
    /// The servers of a quorum, whose clocks differ, give out equal tokens this way.
    Propose(FencingToken),
}

/// Stands in the place of a token to ask which tenure could be reclaimed.
const ASK: &str = "????????????????";

impl Operation for Acquire {
    const FORM: Form = Form {
        name: "acquire",
        letters: b"AP",
        keys: LockKey::ALL,
    };
    const LUA: Lua = Lua {
        common: Some(include_str!("acquire.lua")),
        rest: include_str!("acquire_rest.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn is_common(&self) -> bool {
        self.claim.counter.is_common(self.claim.ttl)
            && self.claim.counter != Counter::Dense
            && self.claim.owner.tick().is_none()
    }

    fn letter(&self) -> u8 {
        match self.reclaims {
            Reclaim::Propose(_) => b'P',
            Reclaim::Ask | Reclaim::From(_) | Reclaim::Never => b'A',
        }
    }

    fn ttl(&self) -> Duration {
        self.claim.ttl
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.text(if self.waits { "1" } else { "0" });
        match self.reclaims {
            Reclaim::Ask => text.text(ASK),
            Reclaim::From(token) | Reclaim::Propose(token) => text.token(Some(token)),
            Reclaim::Never => text.token(None),
        }
        text.terms(&self.claim);
        text.lease(self.claim.lease);
        text.who(&self.claim);
    }

    fn text_size(&self) -> usize {
        WORDS + self.claim.owner.label().len()
    }

    fn common_reply(&self, time: Option<ServerTime>) -> Result<Reply, Error> {
        let time = time.ok_or_else(unexpected)?;
        let token = match self.reclaims {
            Reclaim::Propose(token) => token,
            Reclaim::Ask | Reclaim::From(_) | Reclaim::Never => {
                FencingToken::new(time.as_micros()).map_err(|_| unexpected())?
            }
        };
        let expires = expiry(time, self.claim.ttl);
        Ok(Reply::Held(Grant { token, expires }))
    }

    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error> {
        Ok(match status {
            "held" => Reply::Held(Grant::read(fields)?),
            "busy" => Reply::Busy {
                expires: fields.millis()?,
                place: NonZeroU32::new(fields.count()?),
            },
            "reclaimable" => Reply::Reclaimable {
                token: fields.token()?,
            },
            "full" => Reply::Full {
                waiting: fields.count()?,
            },
            "completed" => Reply::Completed,
            _ => return Err(unexpected()),
        })
    }
}
