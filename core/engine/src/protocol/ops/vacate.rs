//! The `Vacate` operation.

use std::sync::Arc;
use std::time::Duration;

use super::{Admission, Form, Lua, Operation, Release};
use crate::error::Error;
use crate::protocol::key::LockKey;
use crate::protocol::reply::{Grant, Reply};
use crate::protocol::wire::{Fields, Writer, unexpected};

/// Ends the permit of a lease at a shared name, or removes its claim from the line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vacate(pub Release);

impl Operation for Vacate {
    const FORM: Form = Form {
        name: "vacate",
        letters: b"V",
        keys: LockKey::SHARED,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("vacate.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        self.0.key()
    }

    fn ttl(&self) -> Duration {
        self.0.ttl()
    }

    fn write(&self, text: &mut Writer<'_>) {
        self.0.write(text);
    }

    fn text_size(&self) -> usize {
        self.0.text_size()
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
                admission: Some(Arc::new(Admission::read(fields)?)),
            },
            "gone" => Reply::Gone,
            _ => return Err(unexpected()),
        })
    }
}
