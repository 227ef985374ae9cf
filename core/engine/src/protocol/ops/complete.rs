//! The `Complete` operation.

use super::{Form, Lua, Operation};
use crate::error::Error;
use crate::protocol::claim::{ClientId, LeaseId};
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer};
use crate::token::FencingToken;

/// Records that the tick of this turn is completed, and frees the job for the next waiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complete {
    /// The job's keys.
    pub key: LockKey,
    /// The lease of the turn.
    pub lease: LeaseId,
    /// The token of the turn. It also tells a repeated request from another turn's.
    pub token: FencingToken,
    /// The client that asks. If the next waiter is its own, the reply tells of the grant.
    pub client: ClientId,
}

impl Operation for Complete {
    const FORM: Form = Form {
        name: "complete",
        letters: b"C",
        keys: LockKey::ALL,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("complete.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.lease(self.lease);
        text.token(Some(self.token));
        text.client(self.client);
    }

    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error> {
        super::release::ended(status, fields)
    }
}
