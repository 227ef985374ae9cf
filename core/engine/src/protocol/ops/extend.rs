//! The `Extend` operation.

use std::time::Duration;

use super::{Form, Lua, Operation, Renew};
use crate::error::Error;
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};

/// Extends the permit of a lease at a shared name. It ignores a floor for tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extend(pub Renew);

impl Operation for Extend {
    const FORM: Form = Form {
        name: "extend",
        letters: b"X",
        keys: LockKey::SHARED,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("extend.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        self.0.key()
    }

    fn ttl(&self) -> Duration {
        self.0.ttl()
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.retention(self.0.counter);
        text.lease(self.0.lease);
        text.token(Some(self.0.token));
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
