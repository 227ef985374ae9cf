//! The `Inspect` operation.

use super::admit::slots;
use super::{Form, Lua, Operation, YieldRequest};
use crate::error::Error;
use crate::name::Owner;
use crate::protocol::key::LockKey;
use crate::protocol::reply::Reply;
use crate::protocol::wire::{Fields, Writer, unexpected};
use crate::share::Sharing;
use crate::tick::Tick;
use crate::time::ServerTime;
use crate::token::FencingToken;

/// Asks for the holder of a lock and its waiters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspect {
    /// The lock's keys.
    pub key: LockKey,
}

/// The state of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspected {
    /// The holder, if there is one.
    pub holder: Option<Holder>,
    /// The last token of the name, if the server remembers it.
    pub last_token: Option<FencingToken>,
    /// The ticks, if the name is a job's.
    pub job: Option<JobState>,
    /// The holders, if the name is shared. It has no other holder then.
    pub shared: Option<Box<SharedState>>,
    /// The number of live waiters.
    pub waiting: u32,
    /// The live waiters among the first [`Inspect::MOST_NAMED`] places, in order.
    pub line: Vec<Waiter>,
    /// The pending request to the holder to yield, if there is one.
    pub wanted: Option<YieldRequest>,
}

/// The state of a shared name, as the store knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedState {
    /// How the name is shared.
    pub sharing: Sharing,
    /// The capacity of the name.
    pub capacity: u32,
    /// How often the capacity was set, from 1.
    pub epoch: u32,
    /// The token of the last writer, if there was one.
    pub generation: Option<FencingToken>,
    /// The units that are held.
    pub used: u32,
    /// The number of holders.
    pub held: u32,
    /// The first [`Inspect::MOST_NAMED`] holders by the expiry of their permits.
    pub holders: Vec<PermitState>,
}

/// A holder of a part of a name, as the store knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PermitState {
    /// The permit's token.
    pub token: FencingToken,
    /// When the permit expires unless it is renewed.
    pub expires: ServerTime,
    /// The number of units.
    pub weight: u32,
    /// The slots, if the name has slots.
    pub slots: Box<[u16]>,
    /// The label of the holder.
    pub by: String,
}

/// The ticks of a job, as the store knows them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobState {
    /// The greatest tick that was completed, if there is one.
    pub completed: Option<CompletedTick>,
    /// The tick of the last turn, unless that was completed or given back. The turn may have expired.
    pub begun: Option<Tick>,
}

/// A tick that was completed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompletedTick {
    /// The tick.
    pub tick: Tick,
    /// The token of the turn that completed it.
    pub token: FencingToken,
    /// The server's clock when it was completed.
    pub at: ServerTime,
    /// The label of its runner.
    pub by: String,
}

/// The holder of a lock, as the store knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The holder's token.
    pub token: FencingToken,
    /// When the lock expires unless it is renewed.
    pub expires: ServerTime,
    /// The holder's owner or label.
    pub owner: Owner,
}

/// A waiter for a lock, as the store knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// The waiter's owner or label.
    pub owner: Owner,
    /// When the waiter joined the line.
    pub since: ServerTime,
}

impl Inspect {
    /// How many places of the line an inspection reads.
    pub const MOST_NAMED: usize = 100;
}

/// The number of digits of the number of places.
const PLACES_LENGTH: usize = 3;

impl Operation for Inspect {
    const FORM: Form = Form {
        name: "inspect",
        letters: b"I",
        keys: LockKey::SHARED,
    };
    const LUA: Lua = Lua {
        common: None,
        rest: include_str!("inspect.lua"),
    };

    fn key(&self) -> Option<&LockKey> {
        Some(&self.key)
    }

    fn write(&self, text: &mut Writer<'_>) {
        text.number(Self::MOST_NAMED as u64, PLACES_LENGTH);
    }

    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error> {
        let mut status = status;
        let mut job = None;
        if status == "job" {
            job = Some(job_state(fields)?);
            status = fields.text()?;
        }
        let mut shared = None;
        if status == "shared" {
            shared = Some(Box::new(shared_state(fields)?));
            status = fields.text()?;
        }
        let holder = match status {
            "held" => Some(holder(fields)?),
            "free" => None,
            _ => return Err(unexpected()),
        };
        let last_token = match &holder {
            Some(holder) => Some(holder.token),
            None => fields.token_or_none()?,
        };
        let waiting = fields.count()?;
        let named = fields.number()?;
        if named > Self::MOST_NAMED as u64 {
            return Err(unexpected());
        }
        let mut line = Vec::new();
        for _ in 0..named {
            line.push(waiter(fields)?);
        }
        let is_wanted = holder.is_some() && !fields.is_empty();
        let wanted = is_wanted.then(|| YieldRequest::read(fields)).transpose()?;
        Ok(Reply::Inspected(Inspected {
            holder,
            last_token,
            job,
            shared,
            waiting,
            line,
            wanted,
        }))
    }
}

fn job_state<F: AsRef<[u8]>>(fields: &mut Fields<'_, F>) -> Result<JobState, Error> {
    let completed = match fields.tick_or_none()? {
        None => None,
        Some(tick) => Some(CompletedTick {
            tick,
            token: fields.token()?,
            at: fields.millis()?,
            by: fields.lossy()?,
        }),
    };
    let begun = fields.tick_or_none()?;
    Ok(JobState { completed, begun })
}

fn shared_state<F: AsRef<[u8]>>(fields: &mut Fields<'_, F>) -> Result<SharedState, Error> {
    let sharing = Sharing::of_kind(fields.text()?).ok_or_else(unexpected)?;
    let (capacity, epoch) = (fields.count()?, fields.count()?);
    let generation = FencingToken::new(fields.number()?).ok();
    let (used, held, named) = (fields.count()?, fields.count()?, fields.number()?);
    if named > Inspect::MOST_NAMED as u64 {
        return Err(unexpected());
    }
    let mut holders = Vec::new();
    for _ in 0..named {
        holders.push(PermitState {
            token: fields.token()?,
            expires: fields.millis()?,
            weight: fields.count()?,
            slots: slots(fields.text()?)?,
            by: fields.lossy()?,
        });
    }
    Ok(SharedState {
        sharing,
        capacity,
        epoch,
        generation,
        used,
        held,
        holders,
    })
}

fn holder<F: AsRef<[u8]>>(fields: &mut Fields<'_, F>) -> Result<Holder, Error> {
    Ok(Holder {
        token: fields.token()?,
        expires: fields.millis()?,
        owner: fields.owner()?,
    })
}

fn waiter<F: AsRef<[u8]>>(fields: &mut Fields<'_, F>) -> Result<Waiter, Error> {
    Ok(Waiter {
        owner: fields.owner()?,
        since: ServerTime::from_micros(fields.number()?),
    })
}
