//! The `Retire` operation.

use std::time::Duration;

use super::{Form, Lua, Operation};
use crate::error::Error;
use crate::protocol::claim::{ClientId, Counter, LeaseId};
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::token::FencingToken;

/// Ends the tenure and keeps its name taken for a while.
///
/// The name is then held by a tenure of the same token and label that has neither a lease nor a client:
/// nobody renews, releases or reclaims it. A repetition of the operation changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retire {
    /// The lock's keys.
    pub key: LockKey,
    /// The lease to end.
    pub lease: LeaseId,
    /// The tenure's token.
    pub token: FencingToken,
    /// How the token was counted, and how long the counter is kept.
    pub counter: Counter,
    /// How long the name stays taken, counted from now.
    pub ttl: Duration,
}

impl Retire {
    /// The lease ID of a retired tenure. No acquisition has it.
    pub const NO_LEASE: LeaseId = LeaseId(0);
    /// The client of a retired tenure. No locker has it.
    pub const NO_CLIENT: ClientId = ClientId(0);
}

impl Operation for Retire {
    const FORM: Form = Form {
        name: "retire",
        letters: b"T",
        keys: &[LockKey::LOCK],
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("retire.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.retention(self.counter);
        text.lease(self.lease);
        text.token(Some(self.token));
    }

    fn reply<F: AsRef<[u8]>>(&self, status: &str, _: &mut Fields<'_, F>) -> Result<Reply, Error> {
        Ok(match status {
            "released" => Reply::Released,
            "gone" => Reply::Gone,
            "taken" => Reply::Taken,
            _ => return Err(unexpected()),
        })
    }
}
