//! How a run ends: everything works again, everybody is served, and nothing remains.

use std::time::Duration;

use leasehold::protocol::LeaseId;
use leasehold::time::ServerTime;

use crate::clock::{MILLI, Moment, SECOND};
use crate::plan::Faults;
use crate::server::lease_of_claim;
use crate::world::World;

/// How long what was delayed while things went wrong may be under way, and how long retries may be
/// backed off.
const SETTLE: Moment = 10 * SECOND;

/// How long the engines may take to come to rest once nobody wants anything.
const REST: Moment = 20 * SECOND;

/// How often it is looked.
const PACE: Moment = 20 * MILLI;

impl World {
    pub(crate) fn end(&mut self) {
        if self.failed() {
            return;
        }
        self.repair();
        self.drain();
        for host in 0..self.hosts.len() {
            self.give_everything_up(host);
        }
        let until = self.now + REST;
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
        // The hosts' clocks are ahead of the expiry by the drift margin.
        self.advance(self.now + self.drift() + 50 * MILLI);
        self.check_ghosts();
        self.advance(self.now + self.longest() + self.behind());
        for server in 0..self.servers.len() {
            for key in self.plan.keys() {
                let (stored, waits) = (self.stored(server, &key), self.places(server, &key));
                let gone = stored.is_none() && waits.is_empty();
                self.checks.ensure("I6", gone, || {
                    format!("server {server}: {stored:?} and {waits:?} outlive their time")
                });
            }
        }
    }

    /// Nothing goes wrong from now on.
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

    /// Nobody asks anew and holders let go soon: everybody who waits must be served. Where nobody is
    /// told of anything, each of them may have to wait for its heartbeat, 5 s at the most.
    fn drain(&mut self) {
        let waiting = self.hosts.iter().map(|host| host.book.waiting().len());
        let waiting = Moment::try_from(waiting.sum::<usize>()).unwrap_or(0);
        let each = if self.plan.pushes { SECOND } else { 6 * SECOND };
        let bound = SETTLE + 5 * nanos(self.plan.longest) + (waiting + 1) * each;
        let until = self.now + bound + self.behind();
        while !self.failed() && self.now < until && self.anybody_waits() {
            self.advance(self.now + PACE);
            self.let_go();
        }
        let served = !self.anybody_waits();
        self.checks.ensure("liveness", served, || {
            "somebody waits in vain though everything works".to_owned()
        });
        if waiting > 0 {
            self.checks.saw("a line was served to its end");
        }
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

    fn is_at_rest(&self) -> bool {
        self.hosts.iter().all(|host| host.engine.is_idle()) && !self.anything_on_its_way()
    }

    /// How long what a crashed host left may stay.
    fn longest(&self) -> Moment {
        let ttl = self.plan.longest_lease();
        let window = (ttl / 2).clamp(Duration::from_secs(1), Duration::from_secs(5)) * 12 / 5;
        // A server's clock may be slow, and a renewal asks for what was promised with twice the margin.
        let longest = nanos(ttl.max(window));
        longest + longest / 100 + self.drift() + 2 * MILLI
    }

    /// Twice the time by which a lease's deadline is earlier.
    fn drift(&self) -> Moment {
        nanos(self.plan.longest) / 1_000_000 * 2 * u64::from(self.plan.drift_margin)
    }

    fn behind(&self) -> Moment {
        self.servers.iter().map(|server| server.behind).sum()
    }

    /// In calm runs a server has nothing that no engine holds or wants; in others it may have, until it
    /// expires, what could not be given back in time.
    fn check_ghosts(&mut self) {
        if !self.plan.calm {
            return;
        }
        for server in 0..self.servers.len() {
            for key in self.plan.keys() {
                let stored = self.stored(server, &key).map(|(lease, _)| lease);
                let left = stored.into_iter().chain(self.places(server, &key));
                let unknown: Vec<_> = left.collect();
                self.checks.ensure("I6", unknown.is_empty(), || {
                    format!("nobody wants {key:?}, and server {server} has {unknown:?}")
                });
            }
        }
    }

    /// Whoever counts as alive in a line.
    fn places(&self, server: usize, key: &leasehold::protocol::LockKey) -> Vec<LeaseId> {
        let now = self.time_of(server);
        let line = self.servers[server].store.line_value(now, key);
        let members = line.map(|(members, _)| members).unwrap_or_default();
        // The engine's clock, by which it stopped to give up its place, may be a little fast.
        let alive = |until: ServerTime| until > now + Duration::from_millis(50);
        let alive = members.iter().filter(|(_, _, until)| alive(*until));
        alive
            .filter_map(|(claim, ..)| lease_of_claim(claim))
            .collect()
    }
}

fn nanos(duration: Duration) -> Moment {
    Moment::try_from(duration.as_nanos()).unwrap_or(Moment::MAX)
}
