//! Leases that programs pass on, and accept: at any host, twice, and late.

use std::sync::Arc;

use leasehold_engine::Passed;
use leasehold_engine::engine::{Answer, Input, LockId, LockSpec, Wait};
use leasehold_engine::protocol::{Accept, Grant, LeaseId, LockKey};

use crate::book::{Book, Call, Handle};
use crate::checks::{Checks, Stored};
use crate::clock::Moment;
use crate::drain::nanos;
use crate::plan::Plan;
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::world::World;

/// The most tickets that are kept: programs also try used and expired ones.
const TICKETS: usize = 6;

/// Plans whose programs pass leases on. No waiter is sure to be served in time, because tickets go ahead of it.
impl Plan {
    pub(crate) fn passing(random: &mut Random, sabotage: Sabotage) -> Self {
        Self::single(random, sabotage).with_passes(random)
    }

    pub(crate) fn passing_cluster(random: &mut Random, sabotage: Sabotage) -> Self {
        Self::cluster(random, sabotage).with_passes(random)
    }

    fn with_passes(self, random: &mut Random) -> Self {
        let sabotage = self.sabotage;
        Self {
            passes: true,
            ages: random.chance(40) || sabotage == Sabotage::TicketsAgeless,
            jobs: false,
            calm: false,
            drains: false,
            ..self
        }
    }
}

/// The programs.
impl World {
    /// Passes a lease on, or accepts one.
    pub(crate) fn pass_or_accept(&mut self, host: usize) {
        let tickets: Vec<_> = (0..self.checks.tickets.len()).collect();
        match self.random.pick(&tickets) {
            Some(at) if self.random.chance(70) => {
                let ticket = self.checks.tickets[at].clone();
                self.accept(host, &ticket);
            }
            _ => self.pass(host),
        }
    }

    fn pass(&mut self, host: usize) {
        let held = self.hosts[host].book.held();
        let Some(lock) = self.random.pick(&held) else {
            return;
        };
        let state = self.hosts[host].book.locks.get(&lock);
        let Some(lease) = state.and_then(|state| Some(state.held.as_ref()?.lease)) else {
            return;
        };
        let call = self.new_call(host, Call::Pass { lock });
        self.input(host, Input::Pass { call, lease });
    }

    fn accept(&mut self, host: usize, ticket: &Passed) {
        let any = self.plan.spec(&mut self.random, host, self.now);
        let mut options = any.options.clone();
        // A handle that others use meanwhile would share the tenure.
        Arc::make_mut(&mut options).reentrant = false;
        let spec = Arc::new(LockSpec {
            key: key_of(ticket),
            name: ticket.name.clone(),
            options,
        });
        self.last_id += 1;
        let (handle, closing) = (LockId(self.last_id), false);
        let state = Handle {
            spec: spec.clone(),
            closing,
        };
        self.hosts[host].book.handles.insert(handle, state);
        let lock = self.contender(host, handle, &spec);
        let lease =
            LeaseId(u128::from(self.random.number()) << 64 | u128::from(self.random.number()));
        self.checks.from.insert(lease, ticket.lease);
        let now = self.hosts[host].clock.at(self.now);
        let book = &mut self.hosts[host].book;
        book.acquire(lock, lease, Wait::Forever, now);
        let call = self.new_call(host, Call::Accept { lock, lease });
        let accept = Input::Accept {
            call,
            lock: handle,
            spec: self.plan.given(&spec),
            lease,
            passed: Box::new(Passed {
                ends: ticket
                    .ends
                    .filter(|_| self.plan.sabotage != Sabotage::TicketsAgeless),
                ..ticket.clone()
            }),
        };
        self.input(host, accept);
    }
}

impl World {
    /// True if the lease was passed on: it stays at the store until somebody accepts it or it expires.
    pub(crate) fn is_passed(&self, lease: LeaseId) -> bool {
        let mut passed = self.hosts.iter().flat_map(|host| &host.book.passed);
        passed.any(|(_, held)| held.lease == lease)
    }
}

fn key_of(ticket: &Passed) -> LockKey {
    LockKey::new("sim", &ticket.name).expect("the namespace is short")
}

/// Checks of the answers and events that the programs get.
impl Book {
    /// Returns true if the answer to a pass is one that may be.
    pub(crate) fn passes(&mut self, checks: &mut Checks, call: Call, answer: &Answer) -> bool {
        match (call, answer) {
            (Call::Pass { .. }, Answer::Pass(Ok(passed))) => {
                checks.saw("passed on");
                if checks.tickets.len() >= TICKETS {
                    checks.tickets.remove(0);
                }
                checks.tickets.push(Passed::clone(passed));
                self.passed
                    .iter()
                    .any(|(_, held)| held.lease == passed.lease)
            }
            (Call::Pass { lock }, Answer::Pass(Err(error))) => {
                let held = self.locks.get(&lock).and_then(|lock| lock.held.as_ref());
                let is_shared = held.is_some_and(|held| held.leases > 1);
                error.is_not_held() && held.is_none() || error.is_config() == is_shared
            }
            _ => false,
        }
    }
}

/// The age of a lease, which goes on with its ticket.
impl Checks {
    /// Returns when the longest time of a lease that begins now is over at the latest.
    pub(crate) fn ends(&mut self, spec: &LockSpec, lease: LeaseId) -> Option<Moment> {
        // The host's clock may be slow, by the widest drift margin.
        let own = spec.at_most.map(|most| self.now + nanos(most * 5 / 4));
        let passed = self.from.get(&lease).and_then(|from| self.ends.get(from));
        let ends = own.or(passed.copied());
        self.ends.extend(ends.map(|ends| (lease, ends)));
        ends
    }
}

/// Checks of the operations that the server executes.
impl Checks {
    /// Checks that an accept takes only the tenure that was passed on, and that only once.
    pub(crate) fn accepts(&mut self, accept: &Accept, before: Stored, held: &Grant) {
        let Accept {
            lease,
            token,
            claim,
            ..
        } = accept;
        if let Some((_, old)) = before.filter(|(holder, _)| *holder == claim.lease) {
            self.saw("accepted again");
            return self.ensure("I2", held.token == old, || {
                format!(
                    "the same accept, {}, got {old} and then {}",
                    claim.lease, held.token
                )
            });
        }
        self.ensure("I1", before == Some((*lease, *token)), || {
            format!(
                "{} accepted {lease} with {token}, and took {before:?}",
                claim.lease
            )
        });
        let once = self.accepted.insert((*lease, *token)) || self.stats.count("failed over") > 0;
        self.ensure("pass", once, || {
            format!("the ticket of {lease} with {token} was used twice")
        });
        self.saw("accepted");
    }
}
