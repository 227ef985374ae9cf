//! The `Admit` operation.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Serialize;

use super::{Acquire, Form, Lua, Operation};
use crate::digits;
use crate::error::Error;
use crate::protocol::key::LockKey;
use crate::protocol::limits::{MOST_SLOTS_AT_ONCE, SLOT_LENGTH};
use crate::protocol::reply::{Grant, Reply};
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::token::FencingToken;

/// Takes a part of a shared name. Its claim's owner says which part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admit(pub Acquire);

/// The state of a shared name when a holder was admitted, and the slots of that holder.
///
/// As JSON, it is an object with these fields.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Admission {
    /// The capacity of the name, which need not be the claim's.
    pub capacity: u32,
    /// How often the capacity was set, from 1.
    pub epoch: u32,
    /// The token of the last writer, if there was one.
    pub generation: Option<FencingToken>,
    /// The slots of the permit, if the name has slots.
    pub slots: Box<[u16]>,
}

impl Operation for Admit {
    const FORM: Form = Form {
        name: "admit",
        letters: b"M",
        keys: LockKey::SHARED,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("admit.lua"),
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
            "admitted" => Reply::Admitted(Grant::read(fields)?, Admission::read(fields)?),
            "busy" => Reply::Busy {
                expires: fields.millis()?,
                place: NonZeroU32::new(fields.count()?),
            },
            "full" => Reply::Full {
                waiting: fields.count()?,
            },
            "excess" => Reply::Excess {
                capacity: fields.count()?,
            },
            _ => return Err(unexpected()),
        })
    }
}

impl Admission {
    /// Reads the next fields of a reply as the state of a shared name.
    pub(super) fn read<F: AsRef<[u8]>>(fields: &mut Fields<'_, F>) -> Result<Self, Error> {
        Ok(Self {
            capacity: fields.count()?,
            epoch: fields.count()?,
            generation: FencingToken::new(fields.number()?).ok(),
            slots: slots(fields.text()?)?,
        })
    }

    /// Returns the slots as they are stored.
    pub(crate) fn stored_slots(&self) -> String {
        stored_slots(&self.slots)
    }
}

/// Returns slots as they are stored.
pub(crate) fn stored_slots(slots: &[u16]) -> String {
    let text = String::with_capacity(slots.len() * SLOT_LENGTH);
    slots
        .iter()
        .fold(text, |text, slot| text + &format!("{slot:0SLOT_LENGTH$}"))
}

pub(super) fn slots(text: &str) -> Result<Box<[u16]>, Error> {
    let most = MOST_SLOTS_AT_ONCE as usize * SLOT_LENGTH;
    let (mut slots, mut rest) = (Vec::new(), text);
    while !rest.is_empty() && text.len() <= most {
        let (slot, others) = rest.split_at_checked(SLOT_LENGTH).ok_or_else(unexpected)?;
        let slot = digits::plain(slot).and_then(|slot| u16::try_from(slot).ok());
        slots.push(slot.ok_or_else(unexpected)?);
        rest = others;
    }
    if rest.is_empty() {
        Ok(slots.into())
    } else {
        Err(unexpected())
    }
}
