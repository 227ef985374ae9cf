//! Leases that are taken from their holders: by force, or by their own owner at another client.

use std::collections::BTreeSet;

use leasehold_engine::protocol::{Acquire, Command, LeaseId, LockKey, Reply};
use leasehold_engine::{FencingToken, Owner};

use crate::clock::{MILLI, Moment};
use crate::line::Step;
use crate::world::World;

/// The time within which the servers that one forced release asks execute it, unless something is slow.
const TOGETHER: Moment = 20 * MILLI;

/// The losses of one lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seized {
    /// The servers where it was taken away and not granted again.
    servers: BTreeSet<usize>,
    /// The servers where it was taken away by force, and when.
    forced: Vec<(usize, Moment)>,
    /// True if that was before its holder knew that it has the lease.
    pub(crate) is_forced_early: bool,
    /// Since when a majority has been taken away at once.
    gone: Option<Moment>,
    /// Since when fewer than a majority back it, before its holder has heard so. Later grants only count if
    /// the servers show by their tokens that there was no later lease.
    over: Option<Moment>,
    /// The tokens that it had when it lost a majority before its holder heard that it has it.
    over_early: BTreeSet<FencingToken>,
}

/// The holder of a lock at a server.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    lease: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) owner: Owner,
}

impl World {
    pub(crate) fn holder(&self, server: usize, key: &LockKey) -> Option<Holder> {
        let store = &self.servers[server].store;
        let tenure = store.tenure(self.time_of(server), key)?;
        Some(Holder {
            lease: tenure.lease,
            token: tenure.token,
            owner: tenure.owner.clone(),
        })
    }

    /// Returns the servers that granted this lease. They know it by IDs with one half in common.
    fn holders_of(&self, key: &LockKey, lease: LeaseId) -> impl Iterator<Item = (usize, Holder)> {
        let all = 0..self.servers.len();
        let holders = all.filter_map(|server| Some((server, self.holder(server, key)?)));
        holders.filter(move |(_, holder)| holder.lease.half() == lease.half())
    }

    /// Checks whether an operation took the lock from a holder, and whether it may.
    pub(crate) fn look_at_taking(&mut self, step: &Step, before: Option<Holder>) {
        let Some((before, key)) = before.zip(step.command.key()) else {
            return;
        };
        let (server, after) = (step.server, step.after);
        let is_kept = after.is_some_and(|(lease, _)| lease == before.lease);
        match step.command {
            Command::ForceRelease(force) if !is_kept => {
                self.checks.ensure("I1", force.token == before.token, || {
                    format!("a forced release of {} freed {before:?}", force.token)
                });
                self.checks.saw("force-released");
                self.taken(server, key, &before, true);
            }
            Command::Acquire(Acquire { claim, .. })
                if !is_kept && matches!(step.reply, Ok(Reply::Held(_))) =>
            {
                let is_own = claim.owner.is_reclaimable() && claim.owner == before.owner;
                self.checks
                    .ensure("I1", is_own, || format!("{} took {before:?}", claim.lease));
                self.checks.saw("reclaimed");
                self.taken(server, key, &before, false);
            }
            _ => {}
        }
    }

    /// Notes that a server granted the lock to this lease, perhaps again.
    pub(crate) fn is_given(&mut self, server: usize, key: &LockKey, lease: LeaseId) {
        let Some(taken) = self.checks.seized.get(&lease.half()) else {
            return;
        };
        // Servers whose token is not greater than the lease's own did not back a later lease, unless its
        // owner reclaims from itself, or they forgot the later lease.
        let (own, over) = (self.checks.token_of(key, lease), taken.over);
        let shows_that = |(server, holder): &(usize, Holder)| {
            let forgot = self.servers[*server]
                .lost
                .is_some_and(|at| over <= Some(at));
            !forgot && !holder.owner.is_reclaimable() && own >= Some(holder.token)
        };
        let have = self.holders_of(key, lease).filter(shows_that);
        let is_back = have.count() >= self.plan.majority();
        if let Some(taken) = self.checks.seized.get_mut(&lease.half()) {
            taken.servers.remove(&server);
            taken.over = taken.over.filter(|_| !is_back);
        }
    }

    fn taken(&mut self, server: usize, key: &LockKey, before: &Holder, by_force: bool) {
        let (now, majority) = (self.now, self.plan.majority());
        let have = self.servers_with(key, before.lease);
        let (is_over, ends_now) = (have < majority, have + 1 == majority);
        let others = self.holders_of(key, before.lease);
        let tokens: Vec<_> = others
            .map(|(_, other)| other.token)
            .chain([before.token])
            .collect();
        let lease = before.lease.half();
        let mut locks = self.hosts.iter().flat_map(|host| host.book.locks.values());
        let is_held = locks.any(|lock| {
            let held = lock.held.as_ref();
            held.is_some_and(|held| held.lease.half() == lease)
        });
        let taken = self.checks.seized.entry(lease).or_default();
        taken.servers.insert(server);
        taken.is_forced_early |= by_force && !is_held;
        if is_over && is_held {
            taken.over.get_or_insert(now);
        } else if ends_now {
            taken.over_early.extend(tokens);
        }
        if by_force && is_held {
            taken.forced.retain(|(_, at)| at + TOGETHER > now);
            taken.forced.push((server, now));
            let servers: BTreeSet<_> = taken.forced.iter().map(|(server, _)| server).collect();
            if servers.len() >= majority {
                taken.gone.get_or_insert(now);
            }
        }
    }

    /// True if servers were taken from a lease, so that its holder goes on only until it hears.
    pub(crate) fn is_taken(&self, key: &LockKey, lease: LeaseId) -> bool {
        let few = || self.servers_with(key, lease) < self.plan.majority();
        let taken = self.checks.seized.get(&lease.half());
        taken.is_some_and(|taken| taken.over.is_some() || !taken.servers.is_empty() && few())
    }

    /// True if so few servers backed the lease with this token that it was over before its holder heard that
    /// it has it.
    pub(crate) fn was_over(&self, lease: LeaseId, token: FencingToken) -> bool {
        let of = self.checks.seized.get(&lease.half());
        of.is_some_and(|taken| taken.over_early.contains(&token))
    }

    /// Notes that a lease was reported to have begun and is over already.
    pub(crate) fn began_late(&mut self, lease: LeaseId) {
        let now = self.now;
        if let Some(taken) = self.checks.seized.get_mut(&lease.half()) {
            taken.over.get_or_insert(now);
        }
    }

    /// Checks that a lease ends with its deadline at the latest once fewer than a majority back it (I2), or
    /// once it was taken from a majority by force (I4).
    pub(crate) fn check_taken(&mut self, lease: LeaseId) {
        let Some(taken) = self.checks.seized.get(&lease.half()) else {
            return;
        };
        let (gone, over) = (taken.gone, taken.over);
        let (now, longest) = (self.now, self.plan.longest_held());
        let ends = over.is_none_or(|over| now - over <= longest);
        self.checks.ensure("I2", ends, || {
            format!("{lease} is still held, and fewer than a majority backed it at {over:?}")
        });
        let Some(gone) = gone else { return };
        let since = self.now - gone;
        self.checks.ensure("I4", since <= longest, || {
            format!(
                "{lease} was taken by force {} ms ago, and is held",
                since / MILLI
            )
        });
    }
}
