//! The state of a name in the store, and lists of names, as an inspection and a walk return them.

use std::time::Duration;

use serde::Serialize;

use crate::event::as_millis;
use crate::name::{Name, Owner};
use crate::share::Sharing;
use crate::token::FencingToken;

/// The store's state of a lock. As JSON, fields are in camel case and durations are whole milliseconds.
///
/// ```
/// # use leasehold_engine as leasehold;
/// # fn show(found: &leasehold::Inspection) {
/// match &found.holder {
///     Some(holder) => println!("{:?} has it for {:?}, {} wait", holder.owner, holder.remaining, found.waiting),
///     None => println!("it is free"),
/// }
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The holder; `None` if the lock is free, or if the name is [shared](Self::shared).
    pub holder: Option<HolderInfo>,
    /// The last token of the name, if the store still remembers one.
    pub last_token: Option<FencingToken>,
    /// The ticks, if the name is a job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobInfo>,
    /// The capacity and the holders, if the name is a semaphore's, a quota's, or for readers and writers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<Box<SharedInfo>>,
    /// The number of waiters in line.
    pub waiting: u32,
    /// The waiters among the first 100 places of the line, in order.
    pub line: Vec<WaiterInfo>,
    /// The pending request to the holder to yield, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<WantedInfo>,
    /// The server's clock, in milliseconds since 1970.
    pub server_time: u64,
}

/// The capacity and the holders of a shared name.
///
/// ```
/// # use leasehold_engine as leasehold;
/// # fn show(shared: &leasehold::SharedInfo) {
/// println!("{} of {} are held", shared.used, shared.capacity);
/// for permit in &shared.holders {
///     println!("{} has {} (slots {:?})", permit.by, permit.weight, permit.slots);
/// }
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedInfo {
    /// How the name is shared.
    pub sharing: Sharing,
    /// The capacity of the name: its slots or units. For readers and writers it is 1,000,000,000, of which a writer
    /// takes all.
    pub capacity: u32,
    /// How often the capacity was set, from 1.
    pub epoch: u32,
    /// The token of the last writer, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<FencingToken>,
    /// The slots or units that are held.
    pub used: u32,
    /// The number of holders.
    pub held: u32,
    /// The first 100 holders, the soonest to expire first.
    pub holders: Vec<PermitInfo>,
}

/// A holder of a part of a shared name.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermitInfo {
    /// The permit's token.
    pub token: FencingToken,
    /// The time until the permit expires unless it is renewed.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Duration,
    /// The number of slots or units.
    pub weight: u32,
    /// The slots, if the name has slots.
    pub slots: Box<[u16]>,
    /// The holder's owner or label.
    pub by: String,
}

/// The ticks of a job.
///
/// ```
/// # use leasehold_engine as leasehold;
/// # fn show(job: &leasehold::JobInfo) {
/// match &job.completed {
///     Some(done) => println!("{} completed tick {} {:?} ago", done.by, done.tick, done.ago),
///     None => println!("no tick is completed"),
/// }
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobInfo {
    /// The greatest tick that was completed, if the store remembers one.
    pub completed: Option<CompletedInfo>,
    /// The tick of the last turn, unless it was completed or given back. If nobody holds the name, its runner
    /// died or lost its lease.
    pub begun: Option<u64>,
}

/// A tick that was completed.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompletedInfo {
    /// The tick.
    pub tick: u64,
    /// The token of the turn that completed it.
    pub token: FencingToken,
    /// How long ago it was completed.
    #[serde(serialize_with = "as_millis")]
    pub ago: Duration,
    /// The label of its runner.
    pub by: String,
}

/// A request to the holder of a lock to release it soon.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedInfo {
    /// The owner or label of the locker that asked.
    pub by: String,
    /// The time that is left to the holder.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Duration,
}

/// A waiter in a lock's line.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaiterInfo {
    /// The waiter's owner or label.
    pub owner: Owner,
    /// How long the waiter has waited.
    #[serde(serialize_with = "as_millis")]
    pub waited: Duration,
}

/// The holder of a lock.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderInfo {
    /// The holder's token. At a quorum each server has its own, and this value combines the answers. It
    /// mostly equals the lease's token: show it to people, and do not compare it.
    pub token: FencingToken,
    /// The time until the lock expires unless it is renewed.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Duration,
    /// The holder's owner or label.
    pub owner: Owner,
}

/// One step of a walk over the held locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// The cursor of the next step; `None` at the end.
    pub cursor: Option<u64>,
    /// The names of the locks. A walk may return a name more than once.
    pub names: Vec<Name>,
}
