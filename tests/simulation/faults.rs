//! What goes wrong, and how a run ends.

use std::time::Duration;

use leasehold::engine::Input;
use leasehold::protocol::{ClientId, LeaseId, LockKey};
use leasehold::time::ServerTime;
use leasehold::{Error, ErrorKind};

use crate::clock::{MILLI, Moment, SECOND};
use crate::drain::nanos;
use crate::line::lease_of_claim;
use crate::plan::{Faults, Sabotage};
use crate::world::{Happening, World};

/// How long the engines may take to come to rest once everything works again: the longest stall
/// of a connection and a command's time, with some retries.
const REST: Moment = 16 * SECOND;

/// How often something may go wrong.
const TROUBLE: Moment = 40 * MILLI;

/// Troubles.
impl World {
    pub(crate) fn trouble(&mut self) {
        let faults = self.plan.faults.clone();
        for host in 0..self.hosts.len() {
            self.read_some(host);
            if self.random.chance(faults.pauses) && self.random.chance(40) {
                self.pause(host);
            }
            for server in 0..self.servers.len() {
                self.trouble_link(&faults, host, server);
            }
            if self.random.chance(faults.broken_subscriptions) && self.random.chance(40) {
                self.break_ear(host);
            }
            if self.random.chance(faults.crashes) && self.random.chance(40) {
                self.crash(host);
            }
        }
        for server in 0..self.servers.len() {
            if self.random.chance(faults.failovers) {
                self.fail_over(server);
            }
            if self.random.chance(faults.flushes) && self.random.chance(50) {
                self.flush(server);
            }
        }
        if self.random.chance(faults.deletions) {
            self.delete();
        }
        if self.is_cluster() && self.random.chance(faults.moves) {
            self.move_slot();
        }
        self.change_nothing();
        self.audit();
        let next = self.now + TROUBLE;
        self.schedule(next, Happening::Trouble);
    }

    fn trouble_link(&mut self, faults: &Faults, host: usize, server: usize) {
        let link = &self.hosts[host].links[server];
        let connection = link.connection;
        if self.random.chance(faults.cuts) && self.random.chance(30) {
            self.cut(host, server, connection);
        }
        if self.random.chance(faults.black_holes) && self.random.chance(30) {
            let until = self.now + self.random.between(50, 3_000) * MILLI;
            self.hosts[host].links[server].black_hole = until;
            self.trace(|_| {
                format!("host {host}: nothing comes through to server {server} until {until}")
            });
        }
    }

    fn read_some(&mut self, host: usize) {
        let most = if self.random.chance(10) { 5 } else { 0 };
        let Self { hosts, checks, .. } = self;
        let host = &mut hosts[host];
        let now = host.clock.at(self.now);
        host.readers.read_some(checks, (&host.engine, now), most);
    }

    /// A client is gone, without a word; another begins in its place. What is on its way may
    /// still arrive, and its subscription may linger.
    fn crash(&mut self, host: usize) {
        self.trace(|_| format!("host {host} crashes"));
        let Self { checks, hosts, .. } = self;
        checks.dead.extend(hosts[host].book.attempts.keys());
        let (client, heard) = (hosts[host].client, hosts[host].ear.server);
        for server in 0..self.servers.len() {
            let connection = self.hosts[host].links[server].connection;
            if self.random.chance(50) {
                self.take_arrivals(host, (server, connection));
            }
        }
        let Self {
            hosts,
            plan,
            random,
            ..
        } = self;
        hosts[host].restarted(plan, random);
        self.hang_up(client, heard, 20_000);
        self.restore_all(host, 30 * MILLI);
        self.checks.saw("crashed");
    }

    fn pause(&mut self, host: usize) {
        if self.hosts[host].paused {
            return;
        }
        let length = match self.random.below(3) {
            0 => self.random.between(5, 100),
            1 => self.random.between(100, 800),
            _ => self.random.between(500, 4_000),
        };
        self.hosts[host].paused = true;
        let until = self.now + length * MILLI;
        self.trace(|_| format!("host {host} is paused until {until}"));
        self.schedule(until, Happening::Resume { host });
        self.checks.saw("paused");
    }

    pub(crate) fn resume(&mut self, host: usize) {
        if !self.hosts[host].paused {
            return;
        }
        self.trace(|_| format!("host {host} goes on"));
        let local = self.hosts[host].clock.at(self.now);
        let state = &mut self.hosts[host];
        state.paused = false;
        state.resumed = self.now;
        state.book.excuse(local);
        let inbox = std::mem::take(&mut state.inbox);
        // Whether a driver looks at its timer or at its connection first is not said.
        if self.random.chance(50) {
            self.tick(host);
        }
        for input in inbox {
            self.feed(host, input);
        }
        self.tick(host);
    }

    /// A connection is lost. What was on its way is lost too, or still comes through, later.
    pub(crate) fn cut(&mut self, host: usize, server: usize, connection: u64) {
        let link = &self.hosts[host].links[server];
        if !link.up || link.connection != connection {
            return;
        }
        let under_way = self.take_arrivals(host, (server, connection));
        if self.random.chance(70) {
            let later = match self.random.below(3) {
                0 => 0,
                1 => self.random.below(500) * MILLI,
                _ => self.random.below(2_500) * MILLI,
            };
            for (at, sent) in under_way {
                self.schedule(at + later, Happening::Arrival(sent));
            }
        }
        let link = &mut self.hosts[host].links[server];
        link.up = false;
        link.connection += 1;
        let told = self.random.chance(85);
        self.trace(|_| format!("host {host}: the connection to {server} is cut, told: {told}"));
        let long = self.random.chance(15);
        let down = if !told {
            0
        } else if long {
            self.random.between(500, 3_000) * MILLI
        } else {
            self.random.between(0, 150) * MILLI
        };
        let at = self.now + down;
        if told {
            let error = Error::new(ErrorKind::Unavailable, "the connection was lost");
            let name = self.name_of(server);
            let input = Input::Disconnected {
                server: name,
                error,
            };
            self.input(host, input);
            let connection = connection + 1;
            let restore = Happening::Restore {
                host,
                server,
                connection,
            };
            self.schedule(at, restore);
        } else {
            self.restore(host, server, connection + 1);
        }
        self.checks.saw("cut");
    }

    pub(crate) fn restore_all(&mut self, host: usize, most: Moment) {
        for server in 0..self.servers.len() {
            let connection = self.hosts[host].links[server].connection;
            let at = self.now + self.random.below(most);
            let restore = Happening::Restore {
                host,
                server,
                connection,
            };
            self.schedule(at, restore);
        }
    }

    pub(crate) fn restore(&mut self, host: usize, server: usize, connection: u64) {
        let now = self.now;
        let link = &mut self.hosts[host].links[server];
        if link.up || link.connection != connection {
            return;
        }
        link.up = true;
        link.connection += 1;
        link.last_arrival = now;
        link.last_reply = now;
        let server = self.name_of(server);
        self.input(host, Input::Connected { server });
        self.begin_watch(host, server);
        if self.is_cluster() {
            self.cluster_found(host);
        }
    }

    /// Another server takes over, with the same data and a clock that is behind. What was under
    /// way to the old one is lost.
    fn fail_over(&mut self, server: usize) {
        let step = self.random.below(400_000);
        self.trace(|_| format!("another one for server {server}, its clock is {step} µs behind"));
        self.forget_arrivals(server);
        for host in 0..self.hosts.len() {
            self.cut(host, server, self.hosts[host].links[server].connection);
            if self.hosts[host].ear.server == server {
                self.break_ear(host);
            }
        }
        let Self {
            checks, servers, ..
        } = self;
        let listens = |(at, _): &(usize, ClientId)| *at == server;
        let lost: Vec<_> = checks.listeners.iter().copied().filter(listens).collect();
        let server = &mut servers[server];
        for (at, client) in lost {
            checks.listeners.remove(&(at, client));
            server.store.unsubscribe(client);
        }
        server.clock.origin_micros -= step;
        server.behind += step * 1_000;
        self.checks.saw("failed over");
    }

    /// An operator deletes a lock's key.
    fn delete(&mut self) {
        let keys = self.plan.keys();
        let which = usize::from(self.random.chance(50)).min(keys.len() - 1);
        let stored = self.stored(&keys[which]);
        self.trace(|_| format!("DEL {:?}, which is {stored:?}", keys[which]));
        self.checks.disturb(&keys[which], stored);
        let server = self.server_of(&keys[which]);
        self.servers[server].store.delete(&keys[which]);
        self.changed(&keys[which]);
        self.checks.saw("deleted");
    }

    /// The store loses its data; its clock may have gone on meanwhile, but not back.
    fn flush(&mut self, server: usize) {
        for key in self.plan.keys() {
            if self.server_of(&key) == server {
                let stored = self.stored(&key);
                self.checks.disturb(&key, stored);
                self.checks.lines.forget(&key);
                self.changed(&key);
            }
        }
        self.servers[server].store.flush();
        let step = self.random.between(1, 3_000_000) * self.random.below(2) + 1;
        self.servers[server].clock.origin_micros += step;
        self.trace(|_| format!("FLUSHALL at server {server}, and its clock steps by {step} µs"));
        self.checks.saw("flushed");
    }
}

/// The end.
impl World {
    /// Everything works again, everybody gives everything up; and nothing must remain.
    pub(crate) fn end(&mut self) {
        if self.failed() {
            return;
        }
        self.trace(|_| "everything works again".to_owned());
        self.plan.faults = Faults::none();
        for host in 0..self.hosts.len() {
            for link in &mut self.hosts[host].links {
                link.black_hole = 0;
            }
            self.resume(host);
            self.restore_all(host, 200 * MILLI);
        }
        if self.plan.drains {
            self.drain();
        }
        for host in 0..self.hosts.len() {
            self.give_everything_up(host);
            self.catch_up(host);
        }
        let until = self.now + REST;
        while !self.failed() && self.now < until && !self.at_rest() {
            self.advance(self.now + 20 * MILLI);
        }
        for id in 0..self.hosts.len() {
            let host = &self.hosts[id];
            let (idle, pending) = (host.engine.is_idle(), host.book.pending());
            self.checks
                .ensure("I6", idle, || format!("host {id} does not come to rest"));
            self.checks.ensure("calls", pending == 0, || {
                format!("host {id} owes {pending} calls")
            });
        }
        self.check_ghosts();
        self.shut_down_all();
        let longest = nanos(self.plan.longest_lease().max(self.plan.longest_window()));
        // The clock of a cluster's server may be slow.
        let slow = longest / 1_000;
        // A renewal for less than was promised before asks for what is left, with twice the margin.
        let promised = longest / 1_000_000 * 2 * u64::from(self.plan.drift_margin);
        self.advance(self.now + longest + slow + promised + self.behind() + 2 * MILLI);
        for key in self.plan.keys() {
            let stored = self.stored(&key);
            self.checks.ensure("I6", stored.is_none(), || {
                format!("{stored:?} outlives its time")
            });
            let waits = self.live_places(&key);
            self.checks.ensure("I6", waits.is_empty(), || {
                format!("{waits:?} outlive their time in line")
            });
        }
    }

    fn at_rest(&self) -> bool {
        self.hosts.iter().all(|host| host.engine.is_idle()) && !self.anything_on_its_way()
    }

    /// No engine holds or wants anything: what the store still has, nobody knows of. It may be
    /// there only if its release was not confirmed before the lease was over anyway, or a failover
    /// made it live longer than anybody could know.
    fn check_ghosts(&mut self) {
        if self.behind() > 0 {
            return;
        }
        for key in self.plan.keys() {
            let waits = self.live_places(&key);
            let known = waits.iter().all(|lease| self.checks.is_orphan(*lease));
            self.checks.ensure("I6", known, || {
                format!("nobody waits, and the line has {waits:?}")
            });
            let stored = self.stored(&key);
            let Some((lease, _)) = stored else { continue };
            let owner = self
                .hosts
                .iter()
                .position(|host| host.book.attempts.contains_key(&lease));
            let mut hosts = self.hosts.iter();
            let known = self.checks.is_orphan(lease)
                || hosts.any(|host| host.book.unconfirmed.contains(&lease));
            self.checks.ensure("I6", known, || {
                format!("nobody holds a lock, and the store has {stored:?} of host {owner:?}")
            });
        }
    }

    /// Whoever counts as alive in the line, and would be handed the lock.
    fn live_places(&self, key: &LockKey) -> Vec<LeaseId> {
        let now = self.time_at(key);
        let line = self.store_of(key).line_value(now, key);
        let members = line.map(|(members, _)| members).unwrap_or_default();
        // The engine's clock, by which it stopped to give up its place, may be a little fast.
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
                    format!("host {host} had nothing to end, and its shutdown waits")
                });
            }
        }
    }
}
