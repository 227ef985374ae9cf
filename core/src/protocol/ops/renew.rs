//! Renew.

use std::time::Duration;

use super::{Form, Lua, Operation};
use crate::error::Error;
use crate::protocol::claim::LeaseId;
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Arguments, Fields, unexpected};
use crate::token::FencingToken;

/// Extends the lock if it is still this lease's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renew {
    /// The lock's keys.
    pub key: LockKey,
    /// The lease to extend.
    pub lease: LeaseId,
    /// The tenure to extend: a late command may have taken the lock for this lease again.
    pub token: FencingToken,
    /// The new time to live, from now.
    pub ttl: Duration,
}

impl Operation for Renew {
    const FORM: Form = Form {
        name: "renew",
        keys: &[LockKey::LOCK],
        args: 3,
    };
    const LUA: Lua = Lua {
        common: Some(include_str!("renew.lua")),
        rest: None,
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn push_args(&self, args: &mut Arguments<'_>) {
        args.push(self.lease);
        args.push(self.token);
        args.millis(self.ttl);
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
            "gone" => Reply::Gone,
            "taken" => Reply::Taken,
            _ => return Err(unexpected()),
        })
    }
}
