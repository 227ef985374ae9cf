//! The `Renew` operation.

use std::time::Duration;

use super::{Form, Lua, Operation, YieldRequest, expiry};
use crate::error::Error;
use crate::protocol::claim::{Counter, LeaseId};
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// Extends the lock if this tenure still has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renew {
    /// The lock's keys.
    pub key: LockKey,
    /// The lease to extend.
    pub lease: LeaseId,
    /// The tenure's token. The lease ID alone does not suffice: a late command may have taken the lock for
    /// this lease again.
    pub token: FencingToken,
    /// How the token was counted, and how long the counter is kept.
    pub counter: Counter,
    /// The new time to live, counted from now.
    pub ttl: Duration,
    /// Raises the last token of the name to this, unless it is already as high. The tenure keeps its own
    /// token. Nothing is raised if the tenure has lost the lock.
    pub floor: Option<FencingToken>,
}

impl Operation for Renew {
    const FORM: Form = Form {
        name: "renew",
        letters: b"R",
        keys: &[LockKey::LOCK],
    };
    const LUA: Lua = Lua {
        common: Some(include_str!("renew.lua")),
        rest: include_str!("renew_rest.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn is_common(&self) -> bool {
        self.floor.is_none() && self.counter.is_common(self.ttl)
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.retention(self.counter);
        text.lease(self.lease);
        text.token(Some(self.token));
        if self.floor.is_some() {
            text.token(self.floor);
        }
    }

    fn common_reply(&self, time: Option<ServerTime>) -> Result<Reply, Error> {
        let time = time.ok_or_else(unexpected)?;
        let expires = expiry(time, self.ttl);
        Ok(Reply::Renewed { expires })
    }

    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error> {
        Ok(match status {
            "renewed" => Reply::Renewed {
                expires: fields.millis()?,
            },
            "wanted" => Reply::Wanted {
                expires: fields.millis()?,
                request: YieldRequest::read(fields)?,
            },
            "gone" => Reply::Gone,
            "taken" => Reply::Taken,
            _ => return Err(unexpected()),
        })
    }
}
