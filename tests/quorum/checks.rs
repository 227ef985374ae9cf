//! What must be true of all hosts together, and what was seen.

use std::collections::BTreeMap;

use leasehold::FencingToken;
use leasehold::engine::{LockId, Wait};
use leasehold::protocol::{HalfId, LeaseId, LockKey};

use crate::book::{Book, Call, Tenure};
use crate::clock::{MILLI, Moment};
use crate::host::Host;
use crate::plan::Sabotage;
use crate::stats::{Stats, Violation};
use crate::taken::Taken;
use crate::world::World;

/// By so much earlier one must have asked than another to be surely before it in line: each asks all
/// servers first, and stands in line then.
const SURELY: Moment = 200 * MILLI;

/// A tenure that was told to have begun.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) lease: LeaseId,
    pub(crate) token: FencingToken,
    /// It was taken away already.
    is_late: bool,
}

/// A lease that its program may act under.
#[derive(Copy, Clone, Debug)]
struct Valid {
    host: usize,
    lock: LockId,
    lease: LeaseId,
    token: FencingToken,
}

/// A lease that is over, and that its program does not let go of as long as a server has it. Only of
/// a run that is to do it wrong.
#[derive(Clone, Debug)]
pub(crate) struct Lingering {
    key: LockKey,
    lease: LeaseId,
    valid: Valid,
}

#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) now: Moment,
    pub(crate) violation: Option<Violation>,
    pub(crate) stats: Stats,
    /// In the order in which they began.
    granted: BTreeMap<LockKey, Vec<Granted>>,
    /// When those who wait asked.
    asked: BTreeMap<LeaseId, Moment>,
    lingering: Vec<Lingering>,
    /// Leases that were taken away at some server.
    pub(crate) taken: BTreeMap<HalfId, Taken>,
}

impl Checks {
    /// Keeps the first violation; the run ends with it.
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

    pub(crate) fn saw(&mut self, what: &'static str) {
        self.stats.saw(self.now, what);
    }

    pub(crate) fn granted(&self, key: &LockKey, token: FencingToken) -> Option<&Granted> {
        let mut granted = self.granted.get(key)?.iter().rev();
        granted.find(|granted| granted.token == token)
    }

    /// By which token this lease was told to have begun.
    pub(crate) fn token_of(&self, key: &LockKey, lease: LeaseId) -> Option<FencingToken> {
        let mut granted = self.granted.get(key)?.iter().rev();
        let of = granted.find(|granted| granted.lease.half() == lease.half())?;
        Some(of.token)
    }

    /// A server may have forgotten the lock, or it was taken away there.
    pub(crate) fn is_disturbed(&self, key: &LockKey, token: FencingToken) -> bool {
        let lease = self.granted(key, token).map(|granted| granted.lease);
        let is_taken = lease.is_some_and(|lease| self.taken.contains_key(&lease.half()));
        is_taken || self.stats.count("a server forgot") > 0
    }

    /// No clock is slewed by more than is said.
    #[expect(clippy::unused_self, reason = "the other simulation slews clocks")]
    pub(crate) fn nobody_could_know(&self, _: &Book, _: &Tenure) -> bool {
        false
    }

    /// Some of it was freed by force before anybody knew that it is held.
    fn is_early(&self, lease: LeaseId) -> bool {
        let taken = self.taken.get(&lease.half());
        taken.is_some_and(|taken| taken.is_forced_early)
    }

    pub(crate) fn asks(&mut self, lease: LeaseId) {
        let now = self.now;
        self.asked.entry(lease).or_insert(now);
    }
}

/// As a host's program is told that it holds a lock.
impl World {
    /// I2, in the order in which tenures begin.
    pub(crate) fn begins(&mut self, key: &LockKey, lease: LeaseId, token: FencingToken) {
        let granted = self.checks.granted.get(key).map(Vec::as_slice);
        let granted = granted.unwrap_or_default();
        let last = granted.iter().max_by_key(|granted| granted.token).copied();
        // What was taken away before its holder heard that it has it comes too late; and who counts on what was
        // freed by force meanwhile, and has not heard of it, may have too low a token.
        let grows = last.is_none_or(|last| last.token < token);
        let is_taken = self.is_taken(key, lease) || !grows && self.was_over(lease, token);
        if is_taken {
            self.began_late(lease);
        }
        let is_late = self.checks.is_early(lease) || is_taken;
        self.checks.ensure("I2", grows || is_late, || {
            format!("{lease} has token {token}, and before it was {last:?}")
        });
        let granted = self.checks.granted.entry(key.clone()).or_default();
        granted.push(Granted {
            lease,
            token,
            is_late,
        });
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
        // One that gave it may have forgotten that by now, also before everything was repaired, or it was taken away.
        let is_taken = self.checks.taken.contains_key(&lease.half());
        let enough = have >= majority || !looks || is_taken || self.forgot_lately();
        self.checks.ensure("I1", enough, || {
            format!("{lease} began, and only {have} servers have it")
        });
    }

    /// How many servers have a lock for this lease. They know it by ids of which half is the same.
    pub(crate) fn servers_with(&self, key: &LockKey, lease: LeaseId) -> usize {
        let stored = (0..self.servers.len()).filter_map(|server| self.stored(server, key));
        stored
            .filter(|(holder, _)| holder.half() == lease.half())
            .count()
    }

    /// In runs in which something goes wrong who does not wait may come before those who do, but each of them has its
    /// turn: see the end of a run.
    pub(crate) fn look_at_overtaking(&mut self, host: usize, key: &LockKey, lease: LeaseId) {
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

    /// I7, in calm runs: nobody who asked later is served before one who waits, in whatever order each lists the
    /// servers. Whoever does not wait asked just now.
    pub(crate) fn check_order(&mut self, host: usize, lease: LeaseId) {
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
        // A waiter that does not hear of its turn is late, and may be overtaken.
        let hears = |host: &&Host| {
            let mut ears = host.ears.iter();
            self.plan.pushes && ears.all(|ear| ear.up || !ear.wanted)
        };
        for host in self.hosts.iter().filter(hears) {
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
                let same = other.is_some_and(|other| other.key == spec.key && !other.reentrant);
                let since = self.checks.asked.get(&lease).copied();
                // In the beginning a server may not be connected yet, and nobody knows then what it is.
                let before = |since| since > SURELY && since + SURELY < asked;
                if waits && same && since.is_some_and(before) {
                    passed = Some((lease, since));
                }
            }
        }
        self.checks.saw("served in order");
        self.checks.ensure("I7", passed.is_none(), || {
            format!("{lease} asked at {asked} and is served before {passed:?}")
        });
    }
}

/// I1.
impl World {
    /// Of one host's leases with everybody else's. Only a lease's beginning can break it, and that is
    /// somebody's step.
    pub(crate) fn check_exclusion(&mut self) {
        let mut of_key = BTreeMap::<_, Vec<_>>::new();
        for (key, valid) in (0..self.hosts.len()).flat_map(|host| self.valid_leases(host)) {
            of_key.entry(key).or_default().push(valid);
        }
        for lingering in &self.checks.lingering {
            if self.servers_with(&lingering.key, lingering.lease) > 0 {
                let key = lingering.key.clone();
                of_key.entry(key).or_default().push(lingering.valid);
            }
        }
        for (key, leases) in of_key {
            for valid in &leases {
                self.check_taken(valid.lease);
            }
            // Whom it was taken from has not heard of it yet.
            let all = leases.len();
            let is_taken = |valid: &Valid| self.is_taken(&key, valid.lease);
            let leases: Vec<_> = leases
                .into_iter()
                .filter(|valid| !is_taken(valid))
                .collect();
            if leases.len() < all {
                self.checks.saw("taken from a holder");
            }
            let holders = leases
                .iter()
                .map(|valid| (valid.host, valid.lock, valid.token));
            let holders: Vec<_> = holders.collect();
            self.checks.ensure("I1", holders.len() < 2, || {
                format!("these hosts, locks and tokens hold a valid lease on {key:?}: {holders:?}")
            });
            for valid in &leases {
                self.check_latest(&key, valid);
            }
        }
    }

    /// I2: nobody goes on, or takes the lock back, once there is a later lease.
    fn check_latest(&mut self, key: &LockKey, valid: &Valid) {
        let granted = self.checks.granted.get(key).map(Vec::as_slice);
        let mut granted = granted.unwrap_or_default().iter();
        let later = granted.rfind(|granted| !granted.is_late && granted.token > valid.token);
        let (later, is_excused) = (later.copied(), self.checks.is_early(valid.lease));
        self.checks.ensure("I2", later.is_none() || is_excused, || {
            format!("{valid:?} goes on, and later there was {later:?}")
        });
    }

    fn valid_leases(&self, id: usize) -> impl Iterator<Item = (LockKey, Valid)> + '_ {
        let host = &self.hosts[id];
        let now = host.clock.at(self.now);
        host.book.locks.iter().filter_map(move |(lock, state)| {
            let held = state.held.as_ref()?;
            let valid = Valid {
                host: id,
                lock: *lock,
                lease: held.lease,
                token: held.token,
            };
            (now < held.deadline).then(|| (state.spec.key.clone(), valid))
        })
    }

    /// A lease is lost, and its program will not have it, in a run that is to do it wrong.
    pub(crate) fn lingers(&mut self, host: usize, key: &LockKey, lease: LeaseId) {
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
            self.checks.lingering.push(Lingering { key, lease, valid });
        }
    }
}
