//! The forms in which the pages and /api/locks get things. Times are in milliseconds.

use std::time::{Duration, Instant};

use leasehold::{FencingToken, Name, Owner};
use serde::Serialize;

use super::board::{Board, Store};
use super::look::{Change, Kind, Look};
use super::tally::{Histogram, Tally};

/// A lock, as `leasehold list --json` has it, and a little more.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row<'a> {
    name: &'a Name,
    holder: Option<Holder<'a>>,
    last_token: Option<FencingToken>,
    waiting: u32,
    line: Vec<Waiter<'a>>,
    /// How long ago it was looked at; nothing if it was not yet.
    age: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Holder<'a> {
    token: FencingToken,
    remaining: u64,
    owner: &'a Owner,
    /// The most that was left at any look.
    fullest: u64,
    /// How long it has had the lock, if its token says so.
    held: Option<u64>,
    /// How long ago it was last seen to be renewed.
    renewed: Option<u64>,
}

#[derive(Serialize)]
struct Waiter<'a> {
    owner: &'a Owner,
    waited: u64,
}

impl<'a> Row<'a> {
    /// With this many of those who wait.
    pub(super) fn new(
        (name, look, trouble): (&'a Name, Option<&'a Look>, Option<&'a str>),
        now: Instant,
        named: usize,
    ) -> Self {
        let since = look.map(|look| now.saturating_duration_since(look.at));
        let ago = since.unwrap_or_default();
        let holder = look.and_then(|look| {
            let holder = look.found.holder.as_ref()?;
            Some(Holder {
                token: holder.token,
                remaining: millis(holder.remaining.saturating_sub(ago)),
                owner: &holder.owner,
                fullest: millis(look.fullest),
                held: look.held.map(|held| millis(held + ago)),
                renewed: look
                    .renewed
                    .map(|at| millis(now.saturating_duration_since(at))),
            })
        });
        let line = look.map_or(&[][..], |look| &look.found.line);
        let line = line.iter().take(named).map(|waiter| Waiter {
            owner: &waiter.owner,
            waited: millis(waiter.waited + ago),
        });
        Self {
            name,
            holder,
            last_token: look.and_then(|look| look.found.last_token),
            waiting: look.map_or(0, |look| look.found.waiting),
            line: line.collect(),
            age: since.map(millis),
            trouble,
        }
    }
}

/// Something that happened to a lock.
#[derive(Serialize)]
pub(super) struct Happened<'a> {
    name: &'a Name,
    kind: Kind,
    token: FencingToken,
    owner: &'a str,
    ago: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited: Option<u64>,
}

impl<'a> Happened<'a> {
    pub(super) fn new(name: &'a Name, change: &'a Change, now: Instant, seen: Instant) -> Self {
        Self {
            name,
            kind: change.kind,
            token: change.token,
            owner: &change.owner,
            ago: millis(now.saturating_duration_since(seen) + change.ago),
            waited: change.waited.map(millis),
        }
    }
}

/// All locks together.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sum<'a> {
    pub(super) held: u64,
    pub(super) waiting: u64,
    pub(super) longest: Option<(&'a Name, u32)>,
    /// With milliseconds.
    pub(super) oldest: Option<(&'a Name, u64)>,
    /// How long those have waited who wait.
    pub(super) line: Histogram,
    pub(super) tally: &'a Tally,
    pub(super) store: &'a Store,
    pub(super) unlisted: Option<&'a str>,
    pub(super) follows: bool,
    pub(super) overflown: bool,
    pub(super) looks: u64,
    pub(super) steps: u64,
}

type Longest<'a> = Option<(&'a Name, u32)>;
type Oldest<'a> = Option<(&'a Name, Duration)>;

impl<'a> Sum<'a> {
    pub(super) fn new(
        board: &'a Board,
        (held, waiting, line): (u64, u64, Histogram),
        (longest, oldest): (Longest<'a>, Oldest<'a>),
    ) -> Self {
        Self {
            held,
            waiting,
            longest,
            oldest: oldest.map(|(name, held)| (name, millis(held))),
            line,
            tally: &board.tally,
            store: &board.store,
            unlisted: board.unlisted.as_deref(),
            follows: board.follows,
            overflown: board.overflown,
            looks: board.looks,
            steps: board.steps,
        }
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
