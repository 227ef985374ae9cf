//! The line of waiters for one lock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::keys::expiry;
use crate::protocol::limits::{LINGER_MS, MAX_WAITERS, MOST_CLEARED, MOST_SKIPPED};
use crate::protocol::{Claim, Inspect, Waiter};
use crate::time::ServerTime;

/// The first live waiter of a line.
pub(super) enum First {
    Nobody,
    Alive(Claim),
    /// The line begins with so many dead waiters that another operation must continue.
    Unknown,
}

/// The waiting claims in order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Line {
    members: VecDeque<WaitingClaim>,
    expires: ServerTime,
}

#[derive(Clone, Debug)]
struct WaitingClaim {
    claim: Claim,
    /// In microseconds; unique in the line.
    arrival: u64,
    live_until: ServerTime,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            members: VecDeque::new(),
            expires: ServerTime::from_micros(0),
        }
    }
}

impl Line {
    /// Takes a place in line, or confirms it. Returns the place, from 1, or the number of waiters as `Err` if
    /// the line is full.
    pub(super) fn wait(&mut self, now: ServerTime, claim: &Claim) -> Result<u32, u32> {
        let window = claim.window.min(Claim::LONGEST_WINDOW);
        let live_until = expiry(now, window);
        let mut places = self.members.iter();
        let place = match places.position(|member| member.claim.is_same(claim)) {
            Some(place) => place,
            None => self.join(now, claim)?,
        };
        self.members[place].live_until = live_until;
        self.expires = expiry(now, window + Duration::from_millis(LINGER_MS));
        Ok(count(place + 1))
    }

    /// Returns the first live waiter that does not wait for a completed tick, and drops the waiters before it.
    pub(super) fn first(
        &mut self,
        now: ServerTime,
        mut is_over: impl FnMut(&Claim) -> bool,
    ) -> First {
        for _ in 0..MOST_SKIPPED {
            match self.members.front() {
                None => return First::Nobody,
                Some(member) if !member.is_dead(now) && !is_over(&member.claim) => {
                    return First::Alive(member.claim.clone());
                }
                Some(_) => self.members.pop_front(),
            };
        }
        First::Unknown
    }

    pub(super) fn leave(&mut self, claim: &Claim) {
        self.members.retain(|member| !member.claim.is_same(claim));
    }

    /// Returns the number of live waiters, and the first of them.
    pub(super) fn look(&self, now: ServerTime) -> (u32, Vec<Waiter>) {
        let alive = |member: &&WaitingClaim| !member.is_dead(now);
        let first = self.members.iter().take(Inspect::MOST_NAMED).filter(alive);
        let line = first.map(|member| Waiter {
            owner: member.claim.owner.clone(),
            since: ServerTime::from_micros(member.arrival),
        });
        (
            count(self.members.iter().filter(alive).count()),
            line.collect(),
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn expires(&self) -> ServerTime {
        self.expires
    }

    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut ServerTime> {
        let members = self.members.iter_mut();
        let alive = members.map(|member| &mut member.live_until);
        alive.chain([&mut self.expires])
    }

    pub(super) fn members(&self) -> Vec<(String, u64, ServerTime)> {
        let members = self.members.iter();
        members
            .map(|member| (member.claim.to_string(), member.arrival, member.live_until))
            .collect()
    }

    fn join(&mut self, now: ServerTime, claim: &Claim) -> Result<usize, u32> {
        self.clear(now);
        if self.members.len() >= MAX_WAITERS {
            return Err(count(self.members.len()));
        }
        let last = self.members.back().map_or(0, |member| member.arrival + 1);
        self.members.push_back(WaitingClaim {
            claim: claim.clone(),
            arrival: last.max(now.as_micros()),
            live_until: now,
        });
        Ok(self.members.len() - 1)
    }

    /// Drops dead claims, up to a limit, in the order in which they died.
    fn clear(&mut self, now: ServerTime) {
        let dead = self.members.iter().filter(|member| member.is_dead(now));
        let mut dead: BinaryHeap<_> = dead
            .map(|dead| Reverse((dead.live_until, dead.claim.to_string(), dead.arrival)))
            .collect();
        let first = std::iter::from_fn(|| dead.pop()).take(MOST_CLEARED);
        let dead: Vec<_> = first.map(|Reverse((_, _, arrival))| arrival).collect();
        self.members
            .retain(|member| !dead.contains(&member.arrival));
    }
}

impl WaitingClaim {
    fn is_dead(&self, now: ServerTime) -> bool {
        self.live_until.millis() < now.millis()
    }
}

fn count(members: usize) -> u32 {
    u32::try_from(members).unwrap_or(u32::MAX)
}
