//! The `Accept` operation.

use std::time::Duration;

use super::{Form, Lua, Operation, WORDS};
use crate::error::Error;
use crate::protocol::claim::{Claim, LeaseId};
use crate::protocol::key::LockKey;
use crate::protocol::reply::{Grant, Reply};
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::token::FencingToken;

/// Takes over the tenure that its holder passed on: ends it and gives the lock to the claim, with the next token.
///
/// The claim goes ahead of the line. If it already has the lock, only the expiry changes, so a retry is harmless.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    /// The lock's keys.
    pub key: LockKey,
    /// The lease of the tenure. Only its holder and the store know the whole ID, so it proves the right to the
    /// lock.
    pub lease: LeaseId,
    /// The tenure's token.
    pub token: FencingToken,
    /// The claim that gets the lock.
    pub claim: Claim,
}

impl Operation for Accept {
    const FORM: Form = Form {
        name: "accept",
        letters: b"H",
        keys: LockKey::ALL,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("accept.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn ttl(&self) -> Duration {
        self.claim.ttl
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.lease(self.lease);
        text.token(Some(self.token));
        text.terms(&self.claim);
        text.lease(self.claim.lease);
        text.who(&self.claim);
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
            "held" => Reply::Held(Grant::read(fields)?),
            "gone" => Reply::Gone,
            "taken" => Reply::Taken,
            _ => return Err(unexpected()),
        })
    }
}
