//! The `Release` operation.

use std::time::Duration;

use super::{Form, Lua, Operation, WORDS};
use crate::error::Error;
use crate::protocol::claim::Claim;
use crate::protocol::key::LockKey;
use crate::protocol::reply::{Grant, Reply};
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// Frees the lock for the next waiter if this lease has it; otherwise removes the claim from the line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// The lock's keys.
    pub key: LockKey,
    /// The claim whose lease or place in line ends.
    pub claim: Claim,
    /// The token of the lease, if it is known. It makes the release faster and changes nothing else.
    pub token: Option<FencingToken>,
    /// True if the claim is a runner's and its tick is completed from now on.
    pub completes: bool,
}

impl Operation for Release {
    const FORM: Form = Form {
        name: "release",
        letters: b"DC",
        keys: LockKey::ALL,
    };
    const LUA: Lua = Lua {
        common: Some(include_str!("release.lua")),
        rest: include_str!("release_rest.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    /// A turn's release looks at the ticks of the waiters, which the common case does not.
    fn is_common(&self) -> bool {
        self.claim.owner.tick().is_none()
    }

    fn letter(&self) -> u8 {
        if self.completes { b'C' } else { b'D' }
    }

    fn ttl(&self) -> Duration {
        self.claim.ttl
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.terms(&self.claim);
        text.lease(self.claim.lease);
        text.token(self.token);
        text.who(&self.claim);
    }

    fn text_size(&self) -> usize {
        WORDS + self.claim.owner.label().len()
    }

    fn common_reply(&self, _: Option<ServerTime>) -> Result<Reply, Error> {
        Ok(Reply::Released)
    }

    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error> {
        Ok(match status {
            "released" => Reply::Released,
            "handed_over" => Reply::HandedOver {
                lease: fields.text()?.parse().map_err(|_| unexpected())?,
                grant: Grant::read(fields)?,
                admission: None,
            },
            "completed" => Reply::Completed,
            "gone" => Reply::Gone,
            "taken" => Reply::Taken,
            _ => return Err(unexpected()),
        })
    }
}
