//! The `ForceRelease` operation.

use super::{Form, Lua, Operation};
use crate::error::Error;
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::token::FencingToken;

/// Frees the lock for the next waiter if the tenure with this token has it, even if another client holds it.
/// The holder gets a push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForceRelease {
    /// The lock's keys.
    pub key: LockKey,
    /// The tenure to end. A command that runs twice must not hit the next tenure.
    pub token: FencingToken,
}

impl Operation for ForceRelease {
    const FORM: Form = Form {
        name: "force_release",
        letters: b"F",
        keys: LockKey::SHARED,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("force_release.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn write(&self, text: &mut Writer<'_>) {
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
