//! The JSON of the pages and of /api/locks. Times are in milliseconds.

use std::time::{Duration, Instant};

use leasehold::{FencingToken, Name, Owner, SharedInfo};
use leasehold_observe::{Change, ChangeKind, Observation};
use serde::Serialize;

use crate::counts::{Counts, Histogram};
use crate::shares::Shares;

/// The state of the connection to the store.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub(crate) enum Store {
    Up,
    Away { error: String },
}

/// A lock, with the fields that `leasehold list --json` prints and a few more.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row<'a> {
    name: &'a Name,
    holder: Option<Holder<'a>>,
    last_token: Option<FencingToken>,
    waiting: u32,
    line: Vec<Waiter<'a>>,
    /// The pending request to the holder to yield, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<Wanted<'a>>,
    /// The ticks, if the name is a job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Job<'a>>,
    /// The capacity and the holders of a shared name, at its inspection.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<Shared<'a>>,
    /// How long ago it was inspected, if it was.
    age: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<&'a str>,
}

#[derive(Serialize)]
struct Shared<'a> {
    #[serde(flatten)]
    info: &'a SharedInfo,
    /// How much of it is held, for people.
    summary: String,
}

impl<'a> Shared<'a> {
    fn new(info: &'a SharedInfo) -> Self {
        let summary = leasehold_observe::summary(info);
        Self { info, summary }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Holder<'a> {
    token: FencingToken,
    remaining: u64,
    owner: &'a Owner,
    /// The longest remaining time at any inspection.
    fullest: u64,
    /// How long it has held the lock, if its token tells.
    held: Option<u64>,
    /// How long ago it was last seen to be renewed.
    renewed: Option<u64>,
}

#[derive(Serialize)]
struct Waiter<'a> {
    owner: &'a Owner,
    waited: u64,
}

#[derive(Serialize)]
struct Wanted<'a> {
    by: &'a str,
    remaining: u64,
}

#[derive(Serialize)]
struct Job<'a> {
    completed: Option<Completed<'a>>,
    /// The tick of the last turn, unless it was completed or given back.
    begun: Option<u64>,
}

#[derive(Serialize)]
struct Completed<'a> {
    tick: u64,
    token: FencingToken,
    by: &'a str,
    ago: u64,
    /// How long the turn lasted, if its token tells.
    took: Option<u64>,
}

impl<'a> Job<'a> {
    fn new(seen: &'a Observation, since: Duration) -> Option<Self> {
        let job = seen.inspection.job.as_ref()?;
        let completed = job.completed.as_ref().map(|done| Completed {
            tick: done.tick,
            token: done.token,
            by: &done.by,
            ago: millis(done.ago + since),
            took: seen.ran_for.map(millis),
        });
        let begun = job.begun;
        Some(Self { completed, begun })
    }
}

impl<'a> Row<'a> {
    /// Makes the row of a lock, with this many of its waiters.
    pub(crate) fn new(
        (name, seen, trouble): (&'a Name, Option<&'a Observation>, Option<&'a str>),
        now: Instant,
        waiters: usize,
    ) -> Self {
        let since = seen.map(|seen| now.saturating_duration_since(seen.at));
        let ago = since.unwrap_or_default();
        let holder = seen.and_then(|seen| {
            let holder = seen.inspection.holder.as_ref()?;
            Some(Holder {
                token: holder.token,
                remaining: millis(holder.remaining.saturating_sub(ago)),
                owner: &holder.owner,
                fullest: millis(seen.max_remaining),
                held: seen.held_for.map(|held| millis(held + ago)),
                renewed: seen
                    .renewed_at
                    .map(|at| millis(now.saturating_duration_since(at))),
            })
        });
        let line = seen.map_or(&[][..], |seen| &seen.inspection.line);
        let line = line.iter().take(waiters).map(|waiter| Waiter {
            owner: &waiter.owner,
            waited: millis(waiter.waited + ago),
        });
        let wanted = seen.and_then(|seen| {
            let wanted = seen.inspection.wanted.as_ref()?;
            let left = wanted.remaining.checked_sub(ago)?;
            let (by, remaining) = (wanted.by.as_str(), millis(left));
            Some(Wanted { by, remaining })
        });
        Self {
            name,
            holder,
            last_token: seen.and_then(|seen| seen.inspection.last_token),
            waiting: seen.map_or(0, |seen| seen.inspection.waiting),
            line: line.collect(),
            wanted,
            job: seen.and_then(|seen| Job::new(seen, ago)),
            shared: seen
                .and_then(|seen| seen.inspection.shared.as_deref())
                .map(Shared::new),
            age: since.map(millis),
            trouble,
        }
    }
}

/// Something that happened to a lock.
#[derive(Serialize)]
pub(crate) struct LockEvent<'a> {
    name: &'a Name,
    kind: ChangeKind,
    token: FencingToken,
    owner: &'a str,
    ago: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited: Option<u64>,
}

impl<'a> LockEvent<'a> {
    pub(crate) fn new(name: &'a Name, change: &'a Change, now: Instant, observed: Instant) -> Self {
        Self {
            name,
            kind: change.kind,
            token: change.token,
            owner: &change.owner,
            ago: millis(now.saturating_duration_since(observed) + change.ago),
            waited: change.waited.map(millis),
        }
    }
}

/// All locks together.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sum<'a> {
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    /// The shared names, for /metrics.
    #[serde(skip)]
    pub(crate) shares: Shares,
    pub(crate) longest: Option<(&'a Name, u32)>,
    /// The holder with the longest tenure.
    pub(crate) oldest: Option<(&'a Name, u64)>,
    /// How long the waiters have waited so far.
    pub(crate) line: Histogram,
    pub(crate) counts: &'a Counts,
    pub(crate) store: &'a Store,
    pub(crate) unlisted: Option<&'a str>,
    pub(crate) follows: bool,
    pub(crate) overflown: bool,
    pub(crate) looks: u64,
    pub(crate) steps: u64,
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
