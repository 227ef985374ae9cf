//! The promises of a quorum's leases. Each member knows its own vote only.

use leasehold_engine::engine::{LockId, Wait};
use leasehold_engine::protocol::{Acquire, Command, LeaseId, LockKey, Release};
use leasehold_engine::{FencingToken, LeaseEvent};

use crate::book::{Call, LockState};
use crate::checks::{Checks, Valid};
use crate::clock::{MILLI, Moment};
use crate::drain::nanos;
use crate::line::Step;
use crate::plan::Pushes;
use crate::quorum::seized::Holder;
use crate::sabotage::Sabotage;
use crate::world::World;

/// How much earlier a waiter must have asked to be surely before another in line: each asks all servers first
/// and joins the line then.
pub(crate) const SURELY: Moment = 200 * MILLI;

/// A lease that is over and that its program keeps as long as a server has it. Only a sabotaged run has
/// these.
#[derive(Clone, Debug)]
pub(crate) struct Lingering {
    key: LockKey,
    valid: Valid,
}

/// A turn at a member that its waiter did not hear of. While the waiter does not know that it may take the
/// lock, those behind it have turns at other members only.
#[derive(Debug)]
pub(crate) struct Missed {
    key: LockKey,
    asked: Moment,
    /// When the turn expires, or when the waiter asked there, and a little later.
    until: Moment,
}

/// A member's state before an operation: the lock's holder, and the last token that it knew.
pub(crate) type Former = (Option<Holder>, Option<u64>);

impl Checks {
    /// Returns the token with which this lease was reported to have begun.
    pub(crate) fn token_of(&self, key: &LockKey, lease: LeaseId) -> Option<FencingToken> {
        let mut granted = self.all_granted(key).iter().rev();
        let of = granted.find(|granted| granted.lease.half() == lease.half())?;
        Some(of.token)
    }

    /// True if part of the lease was freed by force before its holder knew that it has it.
    fn is_early(&self, lease: LeaseId) -> bool {
        let seized = self.seized.get(&lease.half());
        seized.is_some_and(|seized| seized.is_forced_early)
    }

    pub(crate) fn asks(&mut self, lease: LeaseId) {
        let now = self.now;
        self.asked.entry(lease).or_insert(now);
    }

    /// True if a waiter that asked at this moment may be overtaken: it, or one before it, missed a turn.
    fn may_be_overtaken(&self, key: &LockKey, asked: Moment) -> bool {
        let is_before = |missed: &Missed| missed.key == *key && missed.asked <= asked;
        let mut missed = self.missed.values();
        missed.any(|missed| is_before(missed) && self.now <= missed.until)
    }
}

/// The acts of a member.
impl World {
    pub(crate) fn former(&self, server: usize, key: &LockKey) -> Option<Former> {
        let store = &self.servers[server].store;
        let last = store.last_token(self.time_of(server), key);
        let is_member = self.plan.is_quorum();
        is_member.then(|| (self.holder(server, key), last))
    }

    /// Checks the effect of an operation at a member.
    pub(crate) fn follow_vote(&mut self, host: usize, step: &Step, (holder, last): Former) {
        self.look_at_taking(step, holder);
        let Some(key) = step.command.key() else {
            return;
        };
        let server = step.server;
        // The grant may come from its own request, or from another one's handover.
        if let Some((lease, _)) = step.granted() {
            self.is_given(server, key, lease);
            self.look_at_turn(step, lease);
        }
        match step.command {
            Command::Enter(_) => {
                if let Ok(reply) = step.reply {
                    self.look_at_entry(server, reply);
                }
            }
            Command::Acquire(Acquire { claim, waits, .. }) => {
                if *waits {
                    self.checks.saw("stood in line");
                }
                if let Some(missed) = self.checks.missed.get_mut(&(server, claim.lease)) {
                    missed.until = missed.until.min(self.now + SURELY);
                }
                if step.granted().is_some_and(|(by, _)| by == claim.lease) {
                    self.look_at_grant(host, claim.lease);
                }
            }
            Command::Renew(_) if self.servers[server].store.last_token(step.time, key) > last => {
                self.checks.saw("raised");
            }
            Command::Release(Release { claim, .. })
                if step.before.is_some_and(|(by, _)| by == claim.lease) =>
            {
                self.look_at_return(host, claim.lease);
            }
            _ => {}
        }
    }

    /// Notes that a server gave a waiter its turn, and that no push tells the waiter.
    fn look_at_turn(&mut self, step: &Step, lease: LeaseId) {
        let mut hosts = self.hosts.iter();
        let found = hosts.find_map(|host| Some((host, host.book.whole(lease)?)));
        let (Some((host, whole)), Some(key)) = (found, step.command.key()) else {
            return;
        };
        let hears = self.plan.pushes == Pushes::Come && host.subscriptions[step.server].up;
        if hears || step.asker() == Some(lease) || step.tells_of(lease) {
            return;
        }
        let left = step.expires.map_or(0, |at| nanos(at.since(step.time)));
        let missed = Missed {
            key: key.clone(),
            asked: self.checks.asked.get(&whole).copied().unwrap_or(self.now),
            until: self.now + left + SURELY,
        };
        self.checks.missed.insert((step.server, lease), missed);
        self.checks.saw("missed its turn");
    }

    /// Notes that a server granted its lock to a host.
    fn look_at_grant(&mut self, host: usize, lease: LeaseId) {
        let book = &self.hosts[host].book;
        let Some(lease) = book.whole(lease) else {
            return;
        };
        let of = |lock: &LockState| {
            let held = lock.held.as_ref();
            held.is_some_and(|held| held.lease == lease)
        };
        let contender = book.contender(lease).and_then(|id| book.locks.get(&id));
        let gave_up = book.left.iter().any(|(_, left)| *left == lease);
        if contender.is_some_and(of) {
            self.checks.saw("taken in again");
        } else if gave_up {
            self.checks.saw("cancelled in doubt");
        }
    }

    /// Notes that a server got back a vote of an acquisition that never became a lease.
    fn look_at_return(&mut self, host: usize, lease: LeaseId) {
        let book = &self.hosts[host].book;
        let Some(lease) = book.whole(lease) else {
            return;
        };
        let contender = book.contender(lease).and_then(|id| book.locks.get(&id));
        let is_used = contender.is_some_and(|lock| lock.held.is_some() || lock.releasing.is_some());
        if !is_used && !book.ended.contains(&lease) {
            self.checks.saw("short of a majority");
        }
    }
}

/// The moment at which a host's program is told that it holds a lock.
impl World {
    /// Checks an event before a host's program gets it.
    pub(crate) fn before_event(
        &mut self,
        id: usize,
        (lock, lease): (LockId, LeaseId),
        event: &LeaseEvent,
    ) {
        let book = &self.hosts[id].book;
        let contender = book.contender(lease).unwrap_or(lock);
        let Some(key) = book.locks.get(&contender).map(|lock| lock.spec.key.clone()) else {
            return;
        };
        match event {
            LeaseEvent::Acquired { token, .. } => {
                self.begins(&key, lease, *token);
                self.look_at_overtaking(id, &key, lease);
                if self.plan.calm {
                    self.check_order(id, lease);
                }
            }
            LeaseEvent::Lost { .. } if self.plan.sabotage == Sabotage::LatestDeadline => {
                self.lingers(id, &key, lease);
            }
            _ => {}
        }
    }

    /// Checks I2 in the order in which tenures begin.
    fn begins(&mut self, key: &LockKey, lease: LeaseId, token: FencingToken) {
        let granted = self.checks.all_granted(key).iter();
        let last = granted.max_by_key(|granted| granted.token).copied();
        // A lease that was taken away before its holder heard of it comes too late. A holder that counts on a
        // vote which was freed by force meanwhile, and has not heard of it, may have too low a token.
        let grows = last.is_none_or(|last| last.token < token);
        let is_taken = self.is_taken(key, lease) || !grows && self.was_over(lease, token);
        if is_taken {
            self.began_late(lease);
        }
        let is_late = self.checks.is_early(lease) || is_taken;
        self.checks.ensure("I2", grows || is_late, || {
            format!("{lease} has token {token}, and the latest lease before was {last:?}")
        });
        self.checks.begins(key, (lease, token), is_late);
        let have = self.servers_with(key, lease);
        let (all, majority) = (self.servers.len(), self.plan.majority());
        self.checks.saw(match have {
            _ if have >= all => "granted by all",
            _ if have > majority => "granted by most",
            _ => "granted by a bare majority",
        });
        let looks = matches!(
            self.plan.sabotage,
            Sabotage::None | Sabotage::ReleasesMixedUp
        );
        // A server that granted it may have forgotten it by now, also before everything was repaired, or it
        // was taken away.
        let is_taken = self.checks.seized.contains_key(&lease.half());
        let enough = have >= majority || !looks || is_taken || self.forgot_lately();
        self.checks.ensure("I1", enough, || {
            format!("{lease} began, and only {have} servers back it")
        });
    }

    /// Returns how many servers have a lock for this lease. They know it by IDs with one half in common.
    pub(crate) fn servers_with(&self, key: &LockKey, lease: LeaseId) -> usize {
        let stored = (0..self.servers.len()).filter_map(|server| self.stored_at(server, key));
        stored
            .filter(|(holder, _)| holder.half() == lease.half())
            .count()
    }

    /// Counts the waiters that were overtaken. In runs with faults a caller that does not wait may come
    /// before waiters. Each waiter still has its turn; the end of a run checks that.
    fn look_at_overtaking(&mut self, host: usize, key: &LockKey, lease: LeaseId) {
        if self.hosts[host].book.contender(lease).is_none()
            || self.checks.asked.contains_key(&lease)
        {
            return;
        }
        let mut hosts = self.hosts.iter();
        if hosts.any(|host| host.book.waiting().iter().any(|(_, spec)| spec.key == *key)) {
            self.checks.saw("overtook those who wait");
        }
    }

    /// Checks I7 in calm runs: no caller that asked later is served before a waiter, in whatever order each
    /// lists the servers. A caller that does not wait asked just now. A waiter that does not know of its turn,
    /// and those behind it, may be overtaken.
    fn check_order(&mut self, host: usize, lease: LeaseId) {
        let asked = self.checks.asked.get(&lease).copied();
        let asked = asked.unwrap_or(self.now);
        let of = self.hosts[host].book.contender(lease);
        let Some(spec) = of.and_then(|id| Some(self.hosts[host].book.locks.get(&id)?.spec.clone()))
        else {
            return;
        };
        if spec.reentrant {
            return;
        }
        let mut passed = None;
        for host in &self.hosts {
            let now = host.clock.at(self.now);
            for pending in host.book.calls.values() {
                let Call::Acquire { lock, lease, wait } = pending.call else {
                    continue;
                };
                let waits = match wait {
                    Wait::Never => false,
                    Wait::Until(until) => now < until,
                    Wait::Forever => true,
                };
                let other = host.book.locks.get(&lock).map(|lock| &lock.spec);
                let same = other.is_some_and(|other| {
                    other.key == spec.key && !other.reentrant && self.checks.knows_it_is_free(other)
                });
                let since = self.checks.asked.get(&lease).copied();
                // At first a server may not be connected yet, and its state is unknown then.
                let before = |since| since > SURELY && since + SURELY < asked;
                let behind = |since| self.checks.may_be_overtaken(&spec.key, since);
                if waits && same && since.is_some_and(|since| before(since) && !behind(since)) {
                    passed = Some((lease, since));
                }
            }
        }
        self.checks.saw("served in order");
        if self.checks.kept_until.contains_key(&spec.key) && self.checks.knows_it_is_free(&spec) {
            self.checks.saw("served in order after a name was kept");
        }
        self.checks.ensure("I7", passed.is_none(), || {
            format!("{lease} asked at {asked} and is served before {passed:?}")
        });
    }
}

/// Checks of I1.
impl World {
    pub(crate) fn lingering(&self) -> Vec<(LockKey, Valid)> {
        let lingering = self.checks.lingering.iter();
        lingering
            .filter(|lost| self.servers_with(&lost.key, lost.valid.lease) > 0)
            .map(|lost| (lost.key.clone(), lost.valid))
            .collect()
    }

    /// Checks that at most one holder is valid by its own deadline, not counting holders that are still to
    /// hear of a loss.
    pub(crate) fn check_holders(&mut self, key: &LockKey, mut leases: Vec<Valid>) {
        for valid in &leases {
            self.check_taken(valid.lease);
        }
        let all = leases.len();
        leases.retain(|valid| !self.is_taken(key, valid.lease));
        if leases.len() < all {
            self.checks.saw("taken from a holder");
        }
        self.checks.ensure("I1", leases.len() < 2, || {
            format!("several leases on {key:?} are valid: {leases:?}")
        });
        for valid in &leases {
            self.check_latest(key, valid);
        }
    }

    /// Checks I2: no holder goes on, or takes the lock back, once there is a later lease.
    fn check_latest(&mut self, key: &LockKey, valid: &Valid) {
        let mut granted = self.checks.all_granted(key).iter();
        let later = granted.rfind(|granted| !granted.is_late && granted.token > valid.token);
        let (later, is_excused) = (later.copied(), self.checks.is_early(valid.lease));
        self.checks.ensure("I2", later.is_none() || is_excused, || {
            format!("{valid:?} is still held after a later lease: {later:?}")
        });
    }

    /// Keeps a lost lease in a sabotaged run whose program ignores the loss.
    fn lingers(&mut self, host: usize, key: &LockKey, lease: LeaseId) {
        let mut locks = self.hosts[host].book.locks.iter();
        let held = locks.find_map(|(lock, state)| {
            let held = state.held.as_ref().filter(|held| held.lease == lease)?;
            Some((*lock, held.token))
        });
        if let Some((lock, token)) = held {
            let valid = Valid {
                host,
                lock,
                lease,
                token,
            };
            let key = key.clone();
            self.checks.lingering.push(Lingering { key, valid });
        }
    }
}
