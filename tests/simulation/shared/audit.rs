//! Shared names are not free for long while somebody waits, waiters learn of their permits, and nothing is left.

use std::time::Duration;

use leasehold_engine::protocol::{
    Acquire, Admit, ClientId, Command, LeaseId, LockKey, Op, Reclaim, Release, Reply, Vacate,
};
use leasehold_engine::{Owner, Share, Sharing};

use super::plan::Kind;
use super::state::weight_of_claim;
use crate::drain::{AT_ONCE, Offer, Whose};
use crate::line::Step;
use crate::world::{Happening, World};

impl World {
    /// Returns true if nobody uses as much of a shared name as any waiter needs; also the last lease that got a
    /// part.
    pub(crate) fn is_part_idle(&self, key: &LockKey) -> (bool, Option<LeaseId>) {
        let (state, now) = (self.state_of(key), self.time_at(key));
        let permits = state.iter().flat_map(|state| state.living(now));
        let mut living: Vec<_> = permits.collect();
        living.sort_by_key(|(_, permit)| permit.token);
        let last = living.last().map(|(lease, _)| **lease);
        let used = living.iter().filter(|(lease, _)| {
            let whose = self.whose(**lease);
            matches!(whose, Whose::User | Whose::Dead)
        });
        let used: u32 = used.map(|(_, permit)| permit.weight).sum();
        let waiting = self.hosts.iter().flat_map(|host| host.book.waiting());
        let shares = waiting.filter(|(_, spec)| spec.key == *key);
        let shares: Vec<_> = shares.filter_map(|(_, spec)| spec.owner.share()).collect();
        // The first in line may be dead, and needs as much as it asked for.
        let line = self.store_of(key).line_value(now, key);
        let line = line.map(|(members, _)| members).unwrap_or_default();
        let asked = line.iter().filter_map(|(claim, ..)| weight_of_claim(claim));
        let most = shares.iter().map(|share| share.weight()).chain(asked).max();
        let asked_for = shares.iter().map(|share| share.capacity()).min();
        let capacity = state.as_ref().map(|state| state.capacity).or(asked_for);
        let fits = capacity
            .zip(most)
            .is_some_and(|(capacity, most)| used.saturating_add(most) <= capacity);
        (fits, last)
    }

    /// Checks that no live waiter misses a permit that it was given.
    pub(crate) fn audit_parts(&mut self, key: &LockKey) {
        let offers = std::mem::take(&mut self.part_offers);
        for (of, offer) in offers {
            if of != *key {
                self.part_offers.push((of, offer));
                continue;
            }
            let wasted = !self.has(key, offer)
                && matches!(self.whose(offer.0), Whose::Unaware(true))
                && !self.checks.is_disturbed(key, offer.1);
            self.checks.ensure("I7", !wasted, || {
                format!("{offer:?} was given a part and never learned of it")
            });
        }
        let server = self.server_of(key);
        for offer in self.all_stored(server, key) {
            if matches!(self.whose(offer.0), Whose::Unaware(true)) {
                self.part_offers.push((key.clone(), offer));
            }
        }
    }

    /// Waits for what must follow soon in runs without faults: waiters learn of their permits, and holders of
    /// the loss of theirs.
    pub(crate) fn watch_parts(&mut self, step: &Step) {
        let (Some(change), Some(key)) = (step.change, step.command.key()) else {
            return;
        };
        for (lease, permit) in change.admitted() {
            if step.asker() != Some(lease) {
                self.watch_offer(key, (lease, permit.token));
            }
        }
        if let Command::ForceRelease(_) = step.command {
            for lost in change.ended(step.time) {
                self.watch_lost(lost);
            }
        }
    }

    /// Checks that the store has no permit whose program is gone.
    pub(crate) fn check_no_ghost_permits(&mut self, server: usize, key: &LockKey) {
        if self.plan.kind(key).is_none() {
            return;
        }
        for (lease, token) in self.all_stored(server, key) {
            let mut hosts = self.hosts.iter();
            let known = self.checks.is_orphan(lease)
                || hosts.any(|host| host.book.unconfirmed.contains(&lease));
            self.checks.ensure("I6", known, || {
                format!(
                    "no program holds a part of {key:?}, and server {server} has {lease}, {token}"
                )
            });
        }
    }

    /// Checks that all of a name can be taken once everything is over.
    pub(crate) fn check_whole(&mut self, server: usize, key: &LockKey) {
        let Some(Kind { sharing, capacity }) = self.plan.kind(key) else {
            return;
        };
        let (now, state) = (self.time_of(server), self.state_at(server, key));
        let held = self.all_stored(server, key);
        self.checks.ensure("I6", held.is_empty(), || {
            format!("server {server}: {held:?} outlive their time")
        });
        let capacity = state.map_or(capacity, |state| state.capacity);
        let share = match sharing {
            Sharing::Slots => Share::slots(capacity, capacity),
            Sharing::Units => Share::units(capacity, capacity),
            Sharing::Access => Ok(Share::writer()),
        };
        let owner = share.and_then(|share| Owner::sharing("all", share));
        let mut claim = self.claim(0, ClientId(1));
        claim.owner = owner.expect("a whole name is within the bounds");
        claim.counter = self.plan.counter;
        (claim.ttl, claim.window) = (Duration::from_secs(1), Duration::from_secs(1));
        let acquire = Acquire {
            key: key.clone(),
            claim: claim.clone(),
            waits: false,
            reclaims: Reclaim::Never,
        };
        let command = Command::Admit(Admit(acquire));
        let not_after = now;
        let reply = self.does(now, server, Op { command, not_after });
        let whole = matches!(&reply, Ok(Reply::Admitted(..)));
        self.checks.saw("all of a name was taken in the end");
        self.checks.ensure("I6", whole, || {
            format!("nobody has {key:?}, and {capacity} units cannot be taken: {reply:?}")
        });
        let release = Release {
            key: key.clone(),
            claim,
            token: None,
            completes: false,
        };
        let command = Command::Vacate(Vacate(release));
        let _ = self.does(now, server, Op { command, not_after });
    }

    fn watch_offer(&mut self, key: &LockKey, offer: Offer) {
        if self.hears_at_once() {
            // After the push it asks for its slots, once the request before that is answered.
            let at = self.now + AT_ONCE * 2;
            self.schedule(at, Happening::TakenUp(key.clone(), offer));
        }
    }

    fn watch_lost(&mut self, lost: Offer) {
        if self.hears_at_once() {
            let (since, at) = (self.now, self.now + AT_ONCE);
            self.schedule(at, Happening::TakenAway(lost, since));
        }
    }
}
