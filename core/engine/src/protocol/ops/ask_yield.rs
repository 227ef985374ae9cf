//! The `AskYield` operation.

use std::time::Duration;

use super::{Form, Lua, Operation, WORDS};
use crate::error::Error;
use crate::name::Owner;
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// Asks the holder of a lock to release it, if the tenure with this token has it. The holder gets a push, and
/// its renewals report the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskYield {
    /// The lock's keys.
    pub key: LockKey,
    /// The tenure to ask. A command that runs twice must not ask the next tenure.
    pub token: FencingToken,
    /// How long the holder has. In whole milliseconds.
    pub within: Duration,
    /// The asking client. The store keeps only its label.
    pub by: Owner,
}

/// A request to yield, as the store keeps it with the tenure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YieldRequest {
    /// When the holder should have released the lock.
    pub until: ServerTime,
    /// The label of the client that asked.
    pub by: String,
}

impl Operation for AskYield {
    const FORM: Form = Form {
        name: "ask_yield",
        letters: b"Y",
        keys: &[LockKey::LOCK],
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("ask_yield.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn ttl(&self) -> Duration {
        self.within
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.token(Some(self.token));
        text.text(self.by.label());
    }

    fn text_size(&self) -> usize {
        WORDS + self.by.label().len()
    }

    fn reply<F: AsRef<[u8]>>(&self, status: &str, _: &mut Fields<'_, F>) -> Result<Reply, Error> {
        Ok(match status {
            "asked" => Reply::Asked,
            "gone" => Reply::Gone,
            "taken" => Reply::Taken,
            _ => return Err(unexpected()),
        })
    }
}

impl YieldRequest {
    pub(super) fn read<F: AsRef<[u8]>>(fields: &mut Fields<'_, F>) -> Result<Self, Error> {
        let until = fields.millis()?;
        let by = Owner::labelled(fields.lossy()?).map_err(|_| unexpected())?;
        let by = by.label().to_owned();
        Ok(Self { until, by })
    }
}
