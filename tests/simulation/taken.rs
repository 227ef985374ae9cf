//! A holder keeps a lock for its whole time to live and hears when the lock is taken away, in runs without
//! faults.

use std::time::Duration;

use leasehold_engine::protocol::{Command, LeaseId};

use crate::book::Tenure;
use crate::clock::{MILLI, Moment};
use crate::drain::{AT_ONCE, Offer};
use crate::line::Step;
use crate::world::{Happening, World};

/// How much earlier the server granted a lease than its holder was told.
const ON_ITS_WAY: Duration = Duration::from_millis(10);

/// A handed-over lock first lasts for the time to take it up only, until it is renewed.
impl World {
    pub(crate) fn watch_acquired(&mut self, host: usize, lease: LeaseId) {
        if self.plan.is_prompt() {
            let (since, at) = (self.now, self.now + AT_ONCE);
            self.schedule(at, Happening::Confirmed(host, lease, since));
        }
    }

    pub(crate) fn check_confirmed(&mut self, host: usize, lease: LeaseId, since: Moment) {
        let book = &self.hosts[host].book;
        let Some((state, held)) = book
            .contender(lease)
            .and_then(|contender| book.locks.get(&contender))
            .and_then(|state| Some((state, state.held.as_ref()?)))
        else {
            return;
        };
        let (key, ttl, offer) = (
            state.spec.key.clone(),
            state.spec.ttl,
            (held.lease, held.token),
        );
        if self.stored(&key) != Some(offer) {
            return;
        }
        let tenure = self.store_of(&key).tenure(self.time_at(&key), &key);
        let due =
            self.servers[self.server_of(&key)].clock.at(since) + ttl.saturating_sub(ON_ITS_WAY);
        let expires = tenure.map(|tenure| tenure.expires);
        self.checks.saw("had its whole time");
        self.checks.ensure("I4", expires >= Some(due), || {
            format!("{offer:?} was told that it has {key:?}, and it ends before its time to live")
        });
    }
}

/// A holder that no push reaches asks once it is subscribed.
impl World {
    pub(crate) fn watch_holder(&mut self, step: &Step) {
        let taken = match step.command {
            Command::ForceRelease(_) => step.before != step.after,
            _ => step.is_reclaim() && step.granted().is_some(),
        };
        if let (Some(lost), true) = (step.before, taken && self.hears_at_once()) {
            let (since, at) = (self.now, self.now + AT_ONCE);
            self.schedule(at, Happening::TakenAway(lost, since));
        }
    }

    pub(crate) fn check_taken_away(&mut self, lost: Offer, since: Moment) {
        let (lease, _) = lost;
        let mut hosts = self.hosts.iter();
        let Some(host) = hosts.find(|host| host.book.attempts.contains_key(&lease)) else {
            return;
        };
        let mut locks = host.book.locks.values();
        let is_it = |held: &Tenure| (held.lease, held.token) == lost;
        let holds = locks.find(|lock| lock.held.as_ref().is_some_and(is_it));
        let missed = host.subscriptions[0].reported.is_none_or(|at| at > since);
        let Some(lock) = holds else {
            return self.checks.saw(if missed {
                "told of what was missed at once"
            } else {
                "told of a forced release at once"
            });
        };
        // Only its program asks about a fixed lease.
        if missed && lock.spec.fixed {
            return;
        }
        let due = host.subscriptions[0]
            .reported
            .unwrap_or(self.now)
            .max(since)
            + AT_ONCE;
        if due > self.now {
            return self.schedule(due, Happening::TakenAway(lost, since));
        }
        self.checks.ensure("I4", false, || {
            let millis = (self.now - since) / MILLI;
            format!("{lease} was taken away {millis} ms ago, its holder is subscribed, and does not know")
        });
    }
}
