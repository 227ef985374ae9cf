//! How the waiters are served once nothing goes wrong any more.
//!
//! The bounds follow from the engine's `line.rs`:
//! 1. A waiter asks again one heartbeat after the last answer at the latest. The heartbeat is half of its
//!    time to live, between 1 s and 5 s; the bound ignores jitter, which only shortens it.
//! 2. Say a lock becomes free, by a release or by its expiry. The first live waiter knows that it has the
//!    lock one heartbeat and a round trip later, even if no push comes and no one else asks: its own next
//!    request is granted the lock, or finds that the lock was handed over to it.
//! 3. A dead waiter before it counts as alive for one window (12/5 heartbeats, so at most 12 s) after its
//!    last request. If it is handed the lock in that time, it keeps it for another window, or for half of one
//!    if no client listens.
//! 4. All dead waiters together cost at most two windows, since those that are handed nothing within the
//!    first are skipped.
//! 5. A dead holder costs the rest of its time to live.

use std::time::Duration;

use leasehold_engine::FencingToken;
use leasehold_engine::protocol::{LeaseId, LockKey};

use crate::clock::{MILLI, Moment, SECOND};
use crate::line::{Step, lease_of_claim};
use crate::plan::Pushes;
use crate::world::{Happening, World};

/// The time that the network, late timers and the auditor's own interval may add.
const SLACK: Moment = 300 * MILLI;

/// How long answers that were delayed during faults may be in flight, and how long retries may back off.
const SETTLE: Moment = 9 * SECOND;
const SETTLE_OF_QUORUM: Moment = 10 * SECOND;

/// How soon a subscribed waiter knows of a handover in calm runs: by a push, or by asking once its earlier
/// request is answered.
pub(crate) const AT_ONCE: Moment = 15 * MILLI;

/// The interval at which the end of a run checks its progress.
pub(crate) const PACE: Moment = 20 * MILLI;

/// A free lock that someone wants.
#[derive(Debug)]
pub(crate) struct Idle {
    since: Moment,
    granted: Option<LeaseId>,
    /// The longest heartbeat of those who wanted the lock meanwhile.
    heartbeat: Duration,
}

/// The holder of a lock in the store.
pub(crate) enum Whose {
    /// The program holds the lock, or has given it up and its release is not confirmed.
    User,
    /// The lock was handed to a lease that does not know yet. True if that lease still wants it.
    Unaware(bool),
    Dead,
}

impl World {
    /// Starts no new calls and lets holders release soon: every waiter must be served.
    pub(crate) fn drain(&mut self) {
        let waiting = self.hosts.iter().map(|host| host.book.waiting().len());
        let waiting = Moment::try_from(waiting.sum::<usize>()).unwrap_or(0);
        let until = self.now + self.longest_drain(waiting);
        if !self.plan.is_quorum() {
            self.calm_since = self.calm_since.or(Some(self.now + SETTLE));
        }
        while !self.failed() && self.now < until && self.anybody_waits() {
            self.advance(self.now + PACE);
            self.let_go();
            self.audit();
        }
        let served = !self.anybody_waits();
        self.checks.ensure("liveness", served, || {
            "a waiter is not served though everything works".to_owned()
        });
        if waiting > 0 {
            self.checks.saw(if self.plan.pushes == Pushes::Lost {
                "a line was served without any push"
            } else {
                "a line was served to its end"
            });
        }
    }

    /// Returns the longest time until this many waiters are served. At a quorum each waiter may have to wait
    /// for its heartbeat, at most 5 s, if no push arrives.
    fn longest_drain(&self, waiting: Moment) -> Moment {
        let (ttl, window) = (self.plan.longest_lease(), self.plan.longest_window());
        let (settle, dead, each) = if self.plan.is_quorum() {
            let silent = self.plan.pushes == Pushes::Lost;
            let each = if silent { 6 * SECOND } else { SECOND };
            (SETTLE_OF_QUORUM, 5 * ttl, each)
        } else {
            let each = nanos(self.plan.longest_heartbeat()) + SLACK + SECOND;
            (SETTLE, ttl.max(window) + 2 * window, each)
        };
        settle + nanos(dead) + (waiting + 1) * each + self.behind()
    }

    fn anybody_waits(&self) -> bool {
        let mut hosts = self.hosts.iter();
        hosts.any(|host| !host.book.waiting().is_empty())
    }

    fn let_go(&mut self) {
        for host in 0..self.hosts.len() {
            for lock in self.hosts[host].book.held() {
                if self.random.chance(20) && !self.failed() {
                    self.release(host, lock);
                }
            }
        }
    }

    /// Checks that no lock is free for longer than a heartbeat while a live waiter wants it, and that no live
    /// waiter misses its grant.
    pub(crate) fn audit(&mut self) {
        if self.failed() || self.calm_since.is_none_or(|since| self.now < since) {
            return;
        }
        for key in self.plan.keys() {
            self.audit_idle(&key);
            if self.plan.kind(&key).is_some() {
                self.audit_parts(&key);
            } else {
                self.audit_offer(&key);
            }
        }
    }

    fn audit_idle(&mut self, key: &LockKey) {
        let granted = self.stored(key).map(|(lease, _)| lease);
        let used = match granted.map(|lease| self.whose(lease)) {
            Some(Whose::User | Whose::Dead) => true,
            Some(Whose::Unaware(_)) | None => false,
        };
        let (used, granted) = if self.plan.kind(key).is_some() {
            let (is_idle, last) = self.is_part_idle(key);
            (!is_idle, last)
        } else {
            (used, granted)
        };
        let waiting = self.hosts.iter().flat_map(|host| host.book.waiting());
        let wanted = waiting.filter(|(_, spec)| spec.key == *key);
        let heartbeat = wanted.map(|(_, spec)| heartbeat(spec.ttl)).max();
        let Some(heartbeat) = heartbeat.filter(|_| !used) else {
            self.idle.remove(key);
            return;
        };
        let now = self.now;
        let idle = self.idle.entry(key.clone()).or_insert(Idle {
            since: now,
            granted,
            heartbeat,
        });
        // The lock was handed on by someone who did not want it, so the next waiter has a heartbeat's time;
        // or others had it since the last audit.
        if idle.granted != granted {
            (idle.since, idle.heartbeat) = (now, heartbeat);
        }
        idle.granted = granted;
        idle.heartbeat = idle.heartbeat.max(heartbeat);
        let long = Duration::from_nanos(now - idle.since);
        let bound = idle.heartbeat + Duration::from_nanos(SLACK);
        self.checks.ensure("liveness", long <= bound, || {
            format!("{key:?} has waiters and is free for {long:?}; it was handed to {granted:?}")
        });
    }

    fn audit_offer(&mut self, key: &LockKey) {
        let stored = self.stored(key);
        if let Some((lease, token)) = self.offers.remove(key)
            && stored != Some((lease, token))
        {
            let wasted = matches!(self.whose(lease), Whose::Unaware(true))
                && !self.checks.is_disturbed(key, token);
            self.checks.ensure("I7", !wasted, || {
                format!("{lease} was handed the lock, with {token}, and never learned of it")
            });
        }
        if let Some(offer) = stored.filter(|(lease, _)| self.is_wanted(*lease)) {
            self.offers.insert(key.clone(), offer);
        }
    }

    fn is_wanted(&self, lease: LeaseId) -> bool {
        matches!(self.whose(lease), Whose::Unaware(true))
    }

    pub(crate) fn whose(&self, lease: LeaseId) -> Whose {
        let books = self.hosts.iter().map(|host| &host.book);
        let mut found = books.filter_map(|book| Some((book, book.attempts.get(&lease)?.lock)));
        let Some((book, lock)) = found.next() else {
            return Whose::Dead;
        };
        if self.checks.stray.contains(&lease) {
            return Whose::Dead;
        }
        let Some(state) = book.locks.get(&lock) else {
            return Whose::Unaware(false);
        };
        let mut tenures = state.held.iter().chain(&state.releasing);
        if tenures.any(|tenure| tenure.lease == lease) {
            return Whose::User;
        }
        let wants = book.waiting().iter().any(|(id, _)| *id == lock);
        Whose::Unaware(wants && state.attempt == Some(lease))
    }
}

/// Leaving the line takes effect at once.
impl World {
    /// Checks that a lease that was just given up is soon gone from the server, if nothing goes wrong.
    pub(crate) fn watch_leaving(&mut self, host: usize) {
        if !self.plan.is_prompt() {
            return;
        }
        for (key, lease) in std::mem::take(&mut self.hosts[host].book.left) {
            // The time for earlier requests, for the request itself, and for the answers that it may have to
            // wait for.
            let at = self.now + 60 * MILLI;
            self.schedule(at, Happening::Gone(key, lease));
        }
    }

    pub(crate) fn check_gone(&mut self, key: &LockKey, lease: LeaseId) {
        if self.checks.dead.contains(&lease) {
            return;
        }
        let stored = self.stored(key);
        let waits = self.arrival(self.server_of(key), key, lease).is_some();
        let held = self.all_stored(self.server_of(key), key);
        let gone = held.iter().all(|(holder, _)| *holder != lease) && !waits;
        self.checks.ensure("I6", gone, || {
            format!("{lease} was given up, and is still there: {stored:?}, in line: {waits}")
        });
        self.checks.saw("left at once");
    }

    /// Returns when this lease arrived by the server's own line, in microseconds.
    pub(crate) fn arrival(&self, server: usize, key: &LockKey, lease: LeaseId) -> Option<u64> {
        let store = &self.servers[server].store;
        let (line, _) = store.line_value(self.time_of(server), key)?;
        let mut line = line.iter();
        line.find(|(claim, ..)| lease_of_claim(claim) == Some(lease))
            .map(|(_, arrival, _)| *arrival)
    }
}

/// A waiter learns of a handover at once.
impl World {
    pub(crate) fn watch_handover(&mut self, step: &Step) {
        let handed = |(lease, _): &Offer| step.asker() != Some(*lease);
        let (offer, key) = (step.granted().filter(handed), step.command.key());
        let hears = self.hears_at_once();
        if let (Some(offer), Some(key), true) = (offer, key, hears) {
            let key = key.clone();
            self.schedule(self.now + AT_ONCE, Happening::TakenUp(key, offer));
        }
    }

    /// True if no push is lost and nothing delays one.
    pub(crate) fn hears_at_once(&self) -> bool {
        self.plan.is_prompt() && self.plan.pushes != Pushes::Lost
    }

    /// Checks that no heartbeat is needed to learn of a grant where no push is lost. Either the push comes
    /// after the subscription, or the waiter asks when it is told of the subscription. A gap between the two
    /// shows here.
    pub(crate) fn check_taken_up(&mut self, key: &LockKey, offer: Offer) {
        let (lease, token) = offer;
        if !self.has(key, offer) || !self.is_wanted(lease) {
            return self.checks.saw("knew at once");
        }
        let mut hosts = self.hosts.iter();
        let host = hosts.find(|host| host.book.attempts.contains_key(&lease));
        let reported = host.and_then(|host| host.subscriptions[0].reported);
        let due = reported.unwrap_or(self.now) + AT_ONCE;
        if due > self.now {
            let key = key.clone();
            return self.schedule(due, Happening::TakenUp(key, offer));
        }
        self.checks.ensure("I7", false, || {
            format!("{lease} was handed the lock, with {token}, is subscribed, and does not know")
        });
    }
}

/// Returns the longest time between two requests of a waiter.
pub(crate) fn heartbeat(ttl: Duration) -> Duration {
    (ttl / 2).clamp(Duration::from_secs(1), Duration::from_secs(5))
}

pub(crate) fn nanos(duration: Duration) -> Moment {
    Moment::try_from(duration.as_nanos()).unwrap_or(Moment::MAX)
}

/// A lock that was handed over to a lease that does not know of it yet.
pub(crate) type Offer = (LeaseId, FencingToken);
