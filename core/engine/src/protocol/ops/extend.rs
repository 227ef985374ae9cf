//! The `Extend` operation.

use std::time::Duration;

use super::{Form, Lua, Operation, Renew};
use crate::error::Error;
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};

/// Extends the permit of a lease at a shared name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extend {
    /// The renewal. Its floor is ignored.
    pub renew: Renew,
    /// True if the permit is a writer's and becomes a reader's. A retry changes nothing.
    pub reads: bool,
}

impl Operation for Extend {
    const FORM: Form = Form {
        name: "extend",
        letters: b"XW",
        keys: LockKey::SHARED,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("extend.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        self.renew.key()
    }

    fn letter(&self) -> u8 {
        if self.reads { b'W' } else { b'X' }
    }

    fn ttl(&self) -> Duration {
        self.renew.ttl()
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.retention(self.renew.counter);
        text.lease(self.renew.lease);
        text.token(Some(self.renew.token));
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
            _ => return Err(unexpected()),
        })
    }
}
