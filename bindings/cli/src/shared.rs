//! Shared names: `--slots`, `--read` and `--write`, `leasehold resize`, and how holders are shown.

use std::time::Duration;

use leasehold::{
    Error, FencingToken, Inspection, LeaseEvents, Locker, Permit, PermitInfo, Permits, RwLock,
};
use leasehold::{RwPart, Semaphore, SharedInfo, Sharing};
use leasehold_observe::{escaped, summary};
use serde::Serialize;

use crate::args::{LeaseArgs, PartArgs, ResizeArgs};
use crate::exit::Failure;
use crate::out;
use crate::say::Voice;
use crate::times::show;

/// The part of a shared name that a command holds.
pub(crate) enum Shared {
    /// Slots of a semaphore, and how many.
    Slots(Semaphore, u32),
    Access(RwLock, RwPart),
}

impl Shared {
    /// Returns the part that the command line asks for, if it asks for one.
    pub(crate) fn of(
        locker: &Locker,
        name: &str,
        part: &PartArgs,
        lease: &LeaseArgs,
    ) -> Result<Option<Self>, Failure> {
        if !part.is_given() {
            return Ok(None);
        }
        if lease.at_least.is_some() {
            let what = "--at-least does not go with --slots, --read and --write";
            return Err(Failure::usage(what));
        }
        /// Sets the options that both kinds have.
        macro_rules! with_options {
            ($handle:expr) => {{
                let mut handle = $handle.ttl(lease.ttl);
                if let Some(owner) = &lease.owner {
                    handle = handle.owner(owner);
                }
                if let Some(age) = lease.at_most {
                    handle = handle.at_most(age);
                }
                handle
            }};
        }
        if let Some(slots) = part.slots {
            let semaphore = locker.semaphore(name, slots)?;
            let weight = part.weight.unwrap_or(1);
            return Ok(Some(Self::Slots(with_options!(semaphore), weight)));
        }
        let lock = with_options!(locker.rw_lock(name)?);
        let part = if part.read { lock.read() } else { lock.write() };
        Ok(Some(Self::Access(lock, part)))
    }

    pub(crate) fn events(&self) -> LeaseEvents {
        match self {
            Self::Slots(semaphore, _) => semaphore.events(),
            Self::Access(lock, _) => lock.events(),
        }
    }

    /// Acquires the part; `None` if that took longer than this.
    pub(crate) async fn acquire(&self, within: Option<Duration>) -> Result<Option<Permit>, Error> {
        Ok(match (self, within) {
            (Self::Slots(semaphore, weight), None) => Some(semaphore.acquire_many(*weight).await?),
            (Self::Slots(semaphore, weight), Some(left)) => {
                semaphore.acquire_many_within(*weight, left).await?
            }
            (Self::Access(_, part), None) => Some(part.acquire().await?),
            (Self::Access(_, part), Some(left)) => part.acquire_within(left).await?,
        })
    }

    /// Returns one permit after another.
    pub(crate) fn hold(&self) -> Result<Permits, Error> {
        match self {
            Self::Slots(semaphore, weight) => semaphore.hold_many(*weight),
            Self::Access(_, part) => Ok(part.hold()),
        }
    }
}

#[derive(Serialize)]
struct Resized<'a> {
    name: &'a str,
    capacity: u32,
    epoch: u32,
}

pub(crate) fn resize(args: &ResizeArgs, voice: &Voice) -> Result<u8, Failure> {
    crate::block_on(async {
        let ResizeArgs { name, capacity, .. } = args;
        let locker = args.store.connect(None, voice).await?;
        let shared = locker.inspect(name).await?.shared;
        let handle = match shared.map(|shared| shared.sharing) {
            Some(Sharing::Slots) => locker.semaphore(name, *capacity)?,
            Some(Sharing::Units) => locker.quota(name, *capacity)?,
            _ => {
                let what = format!("{} is no semaphore or quota at this store", escaped(name));
                let advice = "the first holder makes one, with the capacity of its program";
                return Err(Failure::usage(what).advise(advice));
            }
        };
        let epoch = handle.resize(*capacity).await?;
        if args.json {
            return out::json(&Resized {
                name,
                capacity: *capacity,
                epoch,
            });
        }
        out::text(&format!(
            "{} has the capacity {capacity} now\n",
            escaped(name)
        ))
    })
}

/// Returns the holder with this token, or without one the only holder.
pub(crate) fn holding(
    found: &Inspection,
    token: Option<FencingToken>,
) -> Result<Option<PermitInfo>, Failure> {
    let holders = found.shared.iter().flat_map(|shared| &shared.holders);
    let mut holders = holders.filter(|permit| token.is_none_or(|token| token == permit.token));
    let first = holders.next().cloned();
    if holders.next().is_some() {
        let what = "the name has several holders";
        let advice = "give --token, as shown by leasehold inspect";
        return Err(Failure::usage(what).advise(advice));
    }
    Ok(first)
}

/// Returns the row of a shared name for `leasehold list`: the tokens of a single holder, and the soonest expiry.
pub(crate) fn row(shared: &SharedInfo) -> [String; 3] {
    let first = shared.holders.first();
    let only = first.filter(|_| shared.held == 1);
    let token = only.map_or("-".to_owned(), |permit| permit.token.to_string());
    let left = first.map_or("-".to_owned(), |permit| show(permit.remaining));
    let by = only.map(|permit| format!(", {}", escaped(&permit.by)));
    [token, left, summary(shared) + &by.unwrap_or_default()]
}

/// Returns the lines of `leasehold inspect` about a shared name.
pub(crate) fn told(name: &str, shared: &SharedInfo) -> Vec<String> {
    let mut lines = vec![if shared.held == 0 {
        format!("{name} is free")
    } else {
        format!("{name} is held: {}", summary(shared))
    }];
    if shared.sharing == Sharing::Access {
        let last = shared.generation;
        lines.extend(last.map(|token| format!("  last writer's token {token}")));
    } else {
        let (capacity, epoch) = (shared.capacity, shared.epoch);
        lines.push(format!("  capacity {capacity}, epoch {epoch}"));
    }
    lines.extend(shared.holders.iter().map(|permit| {
        let part = match (&*permit.slots, shared.sharing) {
            ([], Sharing::Units) => format!("{} units ", permit.weight),
            ([], _) => String::new(),
            (slots, _) => {
                let slots: Vec<_> = slots.iter().map(u16::to_string).collect();
                format!("slot {} ", slots.join(", "))
            }
        };
        let (by, left) = (escaped(&permit.by), show(permit.remaining));
        format!("  {part}by {by}, token {}, expires in {left}", permit.token)
    }));
    if shared.holders.len() < shared.held as usize {
        lines.push("  …".to_owned());
    }
    lines
}
