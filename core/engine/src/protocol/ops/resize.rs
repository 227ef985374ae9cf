//! The `Resize` operation.

use super::{Form, Lua, Operation};
use crate::error::Error;
use crate::protocol::claim::Counter;
use crate::protocol::key::LockKey;
use crate::protocol::limits::UNITS_LENGTH;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::share::Sharing;

/// Changes the capacity of a shared name. It ends no permit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resize {
    /// The keys of the name.
    pub key: LockKey,
    /// How the name is shared.
    pub sharing: Sharing,
    /// The new capacity.
    pub capacity: u32,
    /// How tokens are counted, and how long the capacity is kept.
    pub counter: Counter,
}

impl Operation for Resize {
    const FORM: Form = Form {
        name: "resize",
        letters: b"Z",
        keys: LockKey::SHARED,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("resize.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.retention(self.counter);
        text.text(self.sharing.kind());
        text.number(self.capacity.into(), UNITS_LENGTH);
    }

    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error> {
        Ok(match status {
            "resized" => Reply::Resized {
                epoch: fields.count()?,
            },
            _ => return Err(unexpected()),
        })
    }
}
