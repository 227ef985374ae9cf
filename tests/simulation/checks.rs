//! The promises that are checked, and the counts of what was seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_engine::engine::LockId;
use leasehold_engine::protocol::{
    Accept, Acquire, Admit, ClientId, Command, ForceRelease, Grant, HalfId, LeaseId, LockKey, Op,
    Reclaim, Release, Renew, Reply, Retire,
};
use leasehold_engine::time::{ServerTime, Timestamp};
use leasehold_engine::{Error, FencingToken, Passed};

use crate::book::Call;
use crate::clock::Moment;
use crate::line::{Lines, Step};
use crate::network::lease_of;
use crate::quorum::seized::Seized;
use crate::quorum::votes::{Lingering, Missed};
use crate::sabotage::Sabotage;
use crate::shared::Known;
use crate::stats::{Stats, Violation};
use crate::world::World;

/// A token that a server granted, or the token of a quorum's lease whose beginning was reported.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) lease: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) at: Moment,
    /// When an operator, a loss of data or the owner's next incarnation took the lock away.
    disturbed: Option<Moment>,
    /// True if the lock had been taken away already when its holder was told.
    pub(crate) is_late: bool,
}

/// A lease under which its program may act.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Valid {
    pub(crate) host: usize,
    pub(crate) lock: LockId,
    pub(crate) lease: LeaseId,
    pub(crate) token: FencingToken,
}

/// The holder and the token that the lock's key has.
pub(crate) type Stored = Option<(LeaseId, FencingToken)>;

#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) now: Moment,
    pub(crate) violation: Option<Violation>,
    pub(crate) stats: Stats,
    /// The leases of each lock, in the order in which they began.
    granted: BTreeMap<LockKey, Vec<Granted>>,
    pub(crate) lines: Lines,
    /// The tick that each claim is for, and the greatest completed tick of each job.
    ticks: BTreeMap<LeaseId, u64>,
    completed: BTreeMap<LockKey, u64>,
    /// When each acquisition that knew the lock's holder first asked again.
    pub(crate) answered: BTreeMap<LeaseId, Moment>,
    /// Acquisitions of crashed hosts.
    pub(crate) dead: BTreeSet<LeaseId>,
    /// Acquisitions that were given up, and that another server than the one asked then executed: its clock
    /// decides.
    pub(crate) stray: BTreeSet<LeaseId>,
    /// Clients that a server counts as subscribed.
    pub(crate) listeners: BTreeSet<(usize, ClientId)>,
    /// True if the server's clock is slewed beyond the drift margin.
    pub(crate) slewed: bool,
    /// True if the clock still gets faster.
    pub(crate) slews_faster: bool,
    /// How many requests to yield each tenure has had that its holder was not told of.
    requests: BTreeMap<(LockKey, Option<FencingToken>), u32>,
    /// When each waiter asked.
    pub(crate) asked: BTreeMap<LeaseId, Moment>,
    /// The turns that a member of a quorum gave to waiters that did not hear of it.
    pub(crate) missed: BTreeMap<(usize, LeaseId), Missed>,
    pub(crate) lingering: Vec<Lingering>,
    /// The last tenure of each lock whose release was told, and until when its name stays taken at least.
    pub(crate) released: BTreeMap<LockKey, (FencingToken, Moment)>,
    /// When somebody last freed a name by force.
    pub(crate) forced: BTreeMap<LockKey, Moment>,
    /// Until when some server keeps a name taken whose lock was released.
    pub(crate) kept_until: BTreeMap<LockKey, Moment>,
    /// The latest tickets, and the tenures whose tickets a server has accepted.
    pub(crate) tickets: Vec<Passed>,
    pub(crate) accepted: BTreeSet<(LeaseId, FencingToken)>,
    /// The lease that each accept is of, and when the longest time of each lease is over.
    pub(crate) from: BTreeMap<LeaseId, LeaseId>,
    pub(crate) ends: BTreeMap<LeaseId, Moment>,
    /// A quorum's leases that some server took away.
    pub(crate) seized: BTreeMap<HalfId, Seized>,
    /// The permits of shared names.
    pub(crate) known: Known,
}

impl Checks {
    /// Keeps the first violation, which ends the run.
    pub(crate) fn ensure(
        &mut self,
        promise: &'static str,
        holds: bool,
        message: impl FnOnce() -> String,
    ) {
        if !holds && self.violation.is_none() {
            let (at, message) = (self.now, message());
            self.violation = Some(Violation {
                promise,
                at,
                message,
            });
        }
    }

    /// Notes that the server has a request to the tenure with this token to yield. Servers of a quorum know a
    /// lease by tokens of their own.
    pub(crate) fn requested(&mut self, key: &LockKey, token: Option<FencingToken>) {
        *self.requests.entry((key.clone(), token)).or_default() += 1;
    }

    /// Checks that a holder is told only of requests to itself, and no more often than there were any.
    pub(crate) fn told_of_request(&mut self, key: &LockKey, token: FencingToken) {
        let mut is_told_once = false;
        for of in [Some(token), None] {
            if let Some(left) = self.requests.get_mut(&(key.clone(), of))
                && *left > 0
                && !is_told_once
            {
                *left -= 1;
                is_told_once = true;
            }
        }
        // A server with old data has an earlier request again.
        let excused = self.stats.count("failed over") > 0;
        self.ensure("yield", is_told_once || excused, || {
            format!(
                "the holder of {key:?} with token {token} is told of a request that nobody made"
            )
        });
    }

    pub(crate) fn saw(&mut self, what: &'static str) {
        self.stats.saw(self.now, what);
    }

    /// True if the lease's host cannot be asked to give it back.
    pub(crate) fn is_orphan(&self, lease: LeaseId) -> bool {
        self.dead.contains(&lease) || self.stray.contains(&lease)
    }

    /// Returns all leases of a lock in the order in which they began.
    pub(crate) fn all_granted(&self, key: &LockKey) -> &[Granted] {
        self.granted.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn granted(&self, key: &LockKey, token: FencingToken) -> Option<&Granted> {
        let mut granted = self.all_granted(key).iter().rev();
        granted.find(|granted| granted.token == token)
    }

    /// Notes that someone who may do so took the lock away from its holder.
    pub(crate) fn disturb(&mut self, key: &LockKey, stored: Stored) {
        let now = self.now;
        let Some((_, token)) = stored else { return };
        let granted = self.granted.get_mut(key).into_iter().flatten().rev();
        if let Some(granted) = granted.into_iter().find(|granted| granted.token == token) {
            granted.disturbed = granted.disturbed.or(Some(now));
        }
    }

    /// True if the lease was taken away, perhaps at one of a quorum's servers only, or if such a server may
    /// have forgotten it.
    pub(crate) fn is_disturbed(&self, key: &LockKey, token: FencingToken) -> bool {
        let granted = self.granted(key, token);
        let is_seized = |granted: &Granted| self.seized.contains_key(&granted.lease.half());
        granted.is_some_and(|granted| granted.disturbed.is_some() || is_seized(granted))
            || self.stats.count("a server forgot") > 0
    }

    /// True if the older lease was taken away before the newer one began.
    pub(crate) fn was_disturbed(
        &self,
        key: &LockKey,
        old: FencingToken,
        new: FencingToken,
    ) -> bool {
        let since = self.granted(key, new).map_or(0, |granted| granted.at);
        let disturbed = self.granted(key, old).and_then(|granted| granted.disturbed);
        disturbed.is_some_and(|at| at <= since)
    }

    /// Checks I1 for two leases that are both valid now by their own deadlines.
    pub(crate) fn both_valid(&mut self, key: &LockKey, one: Valid, other: Valid) {
        let (old, new) = if one.token < other.token {
            (one, other)
        } else {
            (other, one)
        };
        let allowed = self.was_disturbed(key, old.token, new.token);
        self.saw("two leases at once after an operator's act");
        self.ensure("I1", allowed, || {
            format!("{old:?} and {new:?} both hold a valid lease on {key:?}")
        });
        self.ensure("I2", old.token != new.token, || {
            format!("{old:?} and {new:?} share a token")
        });
    }

    /// Checks a command that the server executed in time.
    pub(crate) fn executed(&mut self, step: &Step, remembers: bool) {
        if let Some(change) = step.change {
            return self.executed_shared(step, change, remembers);
        }
        let (before, after) = (step.before, step.after);
        if let Command::Acquire(acquire) = step.command
            && let Some(tick) = acquire.claim.owner.tick()
        {
            self.ticks.insert(acquire.claim.lease, tick);
        }
        match (step.command, step.reply) {
            (Command::Acquire(acquire), Ok(Reply::Held(held))) => {
                self.acquired(acquire, before, held);
            }
            (Command::Acquire(acquire), Ok(_)) => {
                let (lease, own) = (acquire.claim.lease, |(holder, _)| {
                    holder == acquire.claim.lease
                });
                self.ensure("I1", !after.is_some_and(own), || {
                    format!("{lease} has the lock, and its reply says otherwise")
                });
                self.ensure("I1", before.is_none() || after == before, || {
                    format!("{lease} asked and freed {before:?}")
                });
            }
            (Command::Accept(accept), Ok(Reply::Held(held))) => self.accepts(accept, before, held),
            (Command::Accept(Accept { claim, .. }), _) => {
                self.ensure("I1", after == before, || {
                    format!("a refused accept of {} changed {before:?}", claim.lease)
                });
            }
            (Command::Renew(Renew { lease, .. }), _) => {
                let created = after.is_some() && after != before;
                self.ensure("I5", !created, || {
                    format!("a renewal of {lease} changed the lock from {before:?} to {after:?}")
                });
            }
            (Command::Release(release), reply) => {
                let claim = &release.claim;
                self.completes(release, reply);
                let foreign = before.is_some_and(|(holder, _)| holder != claim.lease);
                self.ensure("I1", !foreign || after == before, || {
                    format!("a release of {} freed {before:?}", claim.lease)
                });
            }
            (Command::Retire(Retire { lease, .. }), _) => {
                let ours = [*lease, Retire::NO_LEASE];
                let foreign = before.is_some_and(|(holder, _)| !ours.contains(&holder));
                self.ensure("I1", !foreign || after == before, || {
                    format!("a retirement of {lease} ended {before:?}")
                });
            }
            (Command::ForceRelease(ForceRelease { key, token }), _) => {
                let other = before.is_some_and(|(_, holder)| holder != *token);
                self.ensure("I1", !other || after == before, || {
                    format!("a forced release of {token} freed {before:?}")
                });
                if !other {
                    self.disturb(key, before);
                    self.saw("force-released");
                }
            }
            _ => {}
        }
        if let (Some((lease, token)), Some(key)) = (step.granted(), step.command.key()) {
            self.grants(key, lease, token);
        }
        self.follow_line(step);
    }

    fn acquired(&mut self, acquire: &Acquire, before: Stored, held: &Grant) {
        let token = held.token;
        if let Some((lease, old)) = before
            && lease == acquire.claim.lease
        {
            return self.ensure("I2", token == old, || {
                format!("the same acquisition, {lease}, got {old} and then {token}")
            });
        }
        if before.is_some() {
            let legal = acquire.claim.owner.is_reclaimable();
            let lease = acquire.claim.lease;
            self.ensure("I1", legal, || format!("{lease} took {before:?}"));
            let began = before
                .and_then(|(_, token)| self.granted(&acquire.key, token))
                .map(|granted| granted.at);
            let asked = self.answered.get(&lease).copied();
            let older = began
                .zip(asked)
                .is_some_and(|(began, asked)| began <= asked);
            self.ensure("I1", older, || {
                format!("{lease}, which knew the holder at {asked:?}, took {before:?}, which began at {began:?}")
            });
            self.disturb(&acquire.key, before);
            self.saw("reclaimed");
        }
    }

    /// Returns the greatest completed tick of a job, or 0.
    pub(crate) fn completed(&self, key: &LockKey) -> u64 {
        self.completed.get(key).copied().unwrap_or(0)
    }

    /// Notes that the store lost the data of a name.
    pub(crate) fn forget_ticks(&mut self, key: &LockKey) {
        self.completed.remove(key);
    }

    /// True if some name's data was lost.
    pub(crate) fn has_lost_data(&self) -> bool {
        self.stats.count("flushed") + self.stats.count("deleted") > 0
    }

    fn completes(&mut self, release: &Release, reply: &Result<Reply, Error>) {
        let tick = release.claim.owner.tick().filter(|_| release.completes);
        if let (Ok(Reply::Released | Reply::HandedOver { .. }), Some(tick)) = (reply, tick) {
            let greatest = self.completed.entry(release.key.clone()).or_default();
            *greatest = (*greatest).max(tick);
            self.saw("tick completed");
        }
    }

    fn grants(&mut self, key: &LockKey, lease: LeaseId, token: FencingToken) {
        if let Some(tick) = self.ticks.get(&lease).copied() {
            let completed = self.completed(key);
            self.ensure("I9", tick > completed, || {
                format!("tick {tick} was given to {lease}, and {completed} is completed")
            });
            self.saw("tick begun");
        }
        let last = self.all_granted(key).last();
        let last = last.map(|granted| granted.token);
        self.ensure("I2", last.is_none_or(|last| last < token), || {
            format!("token {token} was granted after {last:?} on {key:?}")
        });
        self.begins(key, (lease, token), false);
        self.saw("granted");
    }

    pub(crate) fn begins(
        &mut self,
        key: &LockKey,
        (lease, token): (LeaseId, FencingToken),
        is_late: bool,
    ) {
        let granted = Granted {
            lease,
            token,
            at: self.now,
            disturbed: None,
            is_late,
        };
        self.granted.entry(key.clone()).or_default().push(granted);
    }

    /// Checks I6: a command must have no effect once its host has given it up.
    pub(crate) fn in_time(&mut self, command: &Command, now: Timestamp, bound: Timestamp) {
        self.ensure("I6", now <= bound, || {
            let late = now.since(bound);
            format!("the server executed {command:?} {late:?} after it was given up")
        });
    }
}

/// Checks of all hosts together.
impl World {
    /// Checks I1 for one host's leases against all others. Only the beginning of a lease can break it, and
    /// that is some host's step.
    pub(crate) fn check_exclusion(&mut self, host: usize) {
        let mut of_key = BTreeMap::<_, Vec<_>>::new();
        let lingering = self.lingering();
        let valid = (0..self.hosts.len()).flat_map(|host| self.valid_leases(host));
        for (key, lease) in valid.chain(lingering) {
            of_key.entry(key).or_default().push(lease);
        }
        for (key, mut leases) in of_key {
            if self.plan.is_quorum() {
                self.check_holders(&key, leases);
                continue;
            }
            if self.plan.kind(&key).is_some() {
                self.check_permits(host, &key, leases);
                continue;
            }
            leases.sort_by_key(|lease| lease.token);
            let newer = leases.iter().enumerate();
            let pairs =
                newer.flat_map(|(place, new)| leases[..place].iter().map(|old| (*old, *new)));
            for (old, new) in pairs.filter(|(old, new)| [old.host, new.host].contains(&host)) {
                self.meet(&key, old, new);
            }
        }
    }

    fn meet(&mut self, key: &LockKey, old: Valid, new: Valid) {
        let book = &self.hosts[old.host].book;
        let lock = book.locks.get(&old.lock);
        let held = lock.and_then(|lock| lock.held.as_ref());
        if held.is_some_and(|held| self.checks.nobody_could_know(book, held)) {
            self.checks
                .saw("two leases at once before slewing was noticed");
        } else {
            self.checks.both_valid(key, old, new);
        }
    }

    fn valid_leases(&self, id: usize) -> impl Iterator<Item = (LockKey, Valid)> + '_ {
        let host = &self.hosts[id];
        let now = host.clock.at(self.now);
        let ignored = self.plan.sabotage == Sabotage::DeadlinesIgnored;
        let goes_on = self.plan.sabotage == Sabotage::SendersGoOn;
        let passed = host.book.passed.iter().filter(move |_| goes_on);
        let passed =
            passed.filter_map(|(lock, held)| Some((lock, host.book.locks.get(lock)?, held)));
        let held = host.book.locks.iter();
        let held = held.filter_map(|(lock, state)| Some((lock, state, state.held.as_ref()?)));
        held.chain(passed).filter_map(move |(lock, state, held)| {
            let more = if ignored {
                state.spec.ttl
            } else {
                Duration::ZERO
            };
            let valid = Valid {
                host: id,
                lock: *lock,
                lease: held.lease,
                token: held.token,
            };
            (now < held.deadline + more).then(|| (state.spec.key.clone(), valid))
        })
    }

    /// Checks I5: nothing is sent for leases that are over. Checks I6: no query is sent without a caller.
    pub(crate) fn check_sent(&mut self, host: usize, op: &Op) {
        let command = &op.command;
        // This operation is too late by any clock. It only returns the time of the server that has the keys.
        let probes = op.not_after == ServerTime::from_micros(0);
        if probes && self.is_cluster() && matches!(command, Command::Inspect(_)) {
            return self.checks.saw("a server's clock was asked for");
        }
        if let Command::ForceRelease(_)
        | Command::AskYield(_)
        | Command::Inspect(_)
        | Command::Resize(_)
        | Command::List(_) = command
        {
            // Slow members of a quorum are still asked after the others have answered.
            let mut calls = self.hosts[host].book.calls.values();
            let wanted = self.plan.is_quorum() || calls.any(|pending| pending.call == Call::Query);
            return self.checks.ensure("I6", wanted, || {
                format!("host {host} sends a command without a caller: {command:?}")
            });
        }
        let book = &self.hosts[host].book;
        if let Some(lease) = lease_of(command) {
            let is_passed = book.passed.iter().any(|(_, held)| held.lease == lease);
            self.checks.ensure("pass", !is_passed, || {
                format!("host {host} passed {lease} on, and sends {command:?}")
            });
        }
        let (Command::Acquire(acquire) | Command::Admit(Admit(acquire))) = command else {
            return;
        };
        if acquire.reclaims != Reclaim::Ask {
            let first = self.checks.answered.entry(acquire.claim.lease);
            first.or_insert(self.now);
        }
        let book = &self.hosts[host].book;
        let whole = book.whole(acquire.claim.lease);
        let over = whole.is_some_and(|lease| book.ended.contains(&lease));
        self.checks.ensure("I5", !over, || {
            format!("host {host} asks again for {acquire:?}")
        });
    }
}
