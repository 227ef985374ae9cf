//! The end of a run: everything works again, every program gives everything up, and nothing remains.

use std::time::Duration;

use leasehold_engine::protocol::{LeaseId, LockKey};
use leasehold_engine::time::ServerTime;

use crate::clock::{MILLI, Moment, SECOND};
use crate::drain::{PACE, nanos};
use crate::faults::Faults;
use crate::line::lease_of_claim;
use crate::sabotage::Sabotage;
use crate::world::World;

/// How long the engines may take to come to rest once everything works again: the longest stall of a
/// connection, a command's timeout and some retries. A quorum's retries go to several servers.
const REST: Moment = 16 * SECOND;
const REST_OF_QUORUM: Moment = 20 * SECOND;

impl World {
    pub(crate) fn end(&mut self) {
        if self.failed() {
            return;
        }
        self.repair();
        if self.plan.drains {
            self.drain();
        }
        for host in 0..self.hosts.len() {
            self.give_everything_up(host);
            self.catch_up(host);
        }
        self.come_to_rest();
        if self.plan.is_quorum() {
            // The hosts' clocks are ahead of the expiry by the drift margin.
            self.advance(self.now + self.promised() + 50 * MILLI);
        }
        self.check_ghosts();
        self.shut_down_all();
        let longest = self.longest();
        // A server's clock may be slow.
        let slow = longest / 1_000;
        self.advance(self.now + longest + slow + self.promised() + self.behind() + 2 * MILLI);
        for (server, key) in self.places() {
            let (stored, waits) = (self.stored_at(server, &key), self.live(server, &key));
            self.checks.ensure("I6", stored.is_none(), || {
                format!("server {server}: {stored:?} outlives its time")
            });
            self.checks.ensure("I6", waits.is_empty(), || {
                format!("server {server}: {waits:?} outlive their time in line")
            });
            self.check_whole(server, &key);
        }
    }

    /// Ends all faults.
    fn repair(&mut self) {
        self.trace(|_| "everything works again".to_owned());
        self.plan.faults = Faults::default();
        for server in 0..self.servers.len() {
            self.servers[server].out_until = 0;
            self.thaw(server);
        }
        for host in 0..self.hosts.len() {
            for link in &mut self.hosts[host].links {
                link.black_hole = 0;
            }
            self.resume(host);
            self.restore_all(host, 200 * MILLI);
        }
    }

    fn come_to_rest(&mut self) {
        let most = if self.plan.is_quorum() {
            REST_OF_QUORUM
        } else {
            REST
        };
        let until = self.now + most;
        while !self.failed() && self.now < until && !self.is_at_rest() {
            self.advance(self.now + PACE);
        }
        for (id, host) in self.hosts.iter().enumerate() {
            let (idle, pending) = (host.engine.is_idle(), host.book.pending());
            self.checks
                .ensure("I6", idle, || format!("host {id} does not come to rest"));
            self.checks.ensure("calls", pending == 0, || {
                format!("host {id} owes {pending} calls")
            });
        }
    }

    fn is_at_rest(&self) -> bool {
        self.hosts.iter().all(|host| host.engine.is_idle()) && !self.anything_on_its_way()
    }

    /// Returns how long an entry that no one wants may stay.
    fn longest(&self) -> Moment {
        nanos(self.plan.longest_lease().max(self.plan.longest_window()))
    }

    /// Returns the time that a shorter renewal may add: it asks for what is left of the earlier promise, plus
    /// twice the margin.
    fn promised(&self) -> Moment {
        self.longest() / 1_000_000 * 2 * u64::from(self.plan.drift_margin)
    }

    /// Returns where each name may be: at the server that has its keys, or at each member of a quorum.
    fn places(&self) -> Vec<(usize, LockKey)> {
        let mut places = Vec::new();
        for key in self.plan.keys() {
            let servers = (0..self.servers.len()).filter(|server| self.serves(*server, &key));
            places.extend(servers.map(|server| (server, key.clone())));
        }
        places
    }

    /// Checks that the store has nothing once no engine holds or wants anything. An entry may remain only if
    /// its release was not confirmed before the lease was over anyway, or if a failover extended it beyond
    /// what any host could know. Members of a quorum may keep what could not be given back in time, unless
    /// nothing went wrong.
    fn check_ghosts(&mut self) {
        if self.behind() > 0 || self.plan.is_quorum() && !self.plan.calm {
            return;
        }
        for (server, key) in self.places() {
            let waits = self.live(server, &key);
            // A late attempt of a lease that was passed on may have joined: a release could free the passed lock.
            let known = |lease: &LeaseId| self.checks.is_orphan(*lease) || self.is_passed(*lease);
            let known = waits.iter().all(known);
            self.checks.ensure("I6", known, || {
                format!("the line at server {server} has {waits:?} without any waiting call")
            });
            self.check_no_ghost_permits(server, &key);
            let stored = self.stored_at(server, &key);
            let Some((lease, _)) = stored.filter(|_| !self.is_kept(server, &key)) else {
                continue;
            };
            let mut hosts = self.hosts.iter();
            let owner = hosts.position(|host| host.book.attempts.contains_key(&lease));
            let mut hosts = self.hosts.iter();
            let known = self.checks.is_orphan(lease)
                || self.is_passed(lease)
                || hosts.any(|host| host.book.unconfirmed.contains(&lease));
            self.checks.ensure("I6", known, || {
                format!(
                    "no program holds a lock, and server {server} has {stored:?} of host {owner:?}"
                )
            });
        }
    }

    /// Returns the waiters that count as alive in the line and may be handed the lock.
    fn live(&self, server: usize, key: &LockKey) -> Vec<LeaseId> {
        let now = self.time_of(server);
        let line = self.servers[server].store.line_value(now, key);
        let members = line.map(|(members, _)| members).unwrap_or_default();
        // The engine's clock, by which it stopped giving up its place, may be slightly fast.
        let alive = |until: ServerTime| until > now + Duration::from_millis(50);
        let alive = members.iter().filter(|(_, _, until)| alive(*until));
        alive
            .filter_map(|(claim, ..)| lease_of_claim(claim))
            .collect()
    }

    fn catch_up(&mut self, host: usize) {
        let Self { hosts, checks, .. } = self;
        let host = &mut hosts[host];
        let now = host.clock.at(self.now);
        host.readers.catch_up(checks, &host.engine, now);
    }

    fn shut_down_all(&mut self) {
        for host in 0..self.hosts.len() {
            if !self.failed() && self.plan.sabotage == Sabotage::None {
                self.shut_down(host);
                let pending = self.hosts[host].book.pending();
                self.checks.ensure("calls", pending == 0, || {
                    format!("host {host} has nothing to end, and its shutdown is still pending")
                });
            }
        }
    }
}
