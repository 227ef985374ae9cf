//! Acquire.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Form, Lua, Operation, WORDS};
use crate::error::Error;
use crate::protocol::claim::Claim;
use crate::protocol::key::LockKey;
use crate::protocol::reply::{Grant, Reply};
use crate::protocol::wire::{Arguments, Fields, unexpected};
use crate::token::FencingToken;

/// Takes the lock if it is free, this lease's already, or has the tenure that it may reclaim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acquire {
    /// The lock's keys.
    pub key: LockKey,
    /// Who asks.
    pub claim: Claim,
    /// How long the lock is held unless it is renewed; whole milliseconds count.
    pub ttl: Duration,
    /// Whether it takes a place in line, or confirms it, if the lock is not free.
    pub waits: bool,
    /// Whether it takes the lock over from its own owner at another client.
    pub reclaims: Reclaim,
}

/// What an acquisition may take over from its own owner at another client. It names the tenure, so
/// that one that comes late, or twice, never takes over a tenure that began after it was asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// Nothing yet; the reply names what it could take over.
    Ask,
    /// This tenure, and no other.
    From(FencingToken),
    /// Nothing: it found the lock taken by somebody else.
    Never,
}

impl Operation for Acquire {
    const FORM: Form = Form {
        name: "acquire",
        keys: LockKey::ALL,
        args: 4,
    };
    const LUA: Lua = Lua {
        common: Some(include_str!("acquire.lua")),
        rest: Some(include_str!("acquire_rest.lua")),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn push_args(&self, args: &mut Arguments<'_>) {
        args.push(&self.claim);
        args.millis(self.ttl);
        args.push(if self.waits { '1' } else { '0' });
        match self.reclaims {
            Reclaim::Ask => args.push('?'),
            Reclaim::From(token) => args.push(token),
            Reclaim::Never => args.push('0'),
        }
    }

    fn text_size(&self) -> usize {
        WORDS + self.claim.owner.label().len()
    }

    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error> {
        Ok(match status {
            "held" => Reply::Held(Grant {
                token: fields.token()?,
                expires: fields.millis()?,
            }),
            "busy" => Reply::Busy {
                expires: fields.expiry()?,
                place: NonZeroU32::new(fields.count()?),
            },
            "reclaimable" => Reply::Reclaimable {
                token: fields.token()?,
            },
            "full" => Reply::Full {
                waiting: fields.count()?,
            },
            _ => return Err(unexpected()),
        })
    }
}
