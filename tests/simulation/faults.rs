//! What goes wrong, and how a run ends.

use std::time::Duration;

use leasehold::engine::{Input, ServerId};
use leasehold::protocol::{LeaseId, LockKey};
use leasehold::time::ServerTime;
use leasehold::{Error, ErrorKind};

use crate::clock::{MILLI, Moment, SECOND};
use crate::drain::nanos;
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
            if self.random.chance(faults.cuts) && self.random.chance(30) {
                self.cut(host, self.hosts[host].link.connection);
            }
            if self.random.chance(faults.black_holes) && self.random.chance(30) {
                let until = self.now + self.random.between(50, 3_000) * MILLI;
                self.hosts[host].link.black_hole = until;
                self.trace(|_| format!("host {host}: nothing comes through until {until}"));
            }
            if self.random.chance(faults.broken_subscriptions) && self.random.chance(40) {
                self.break_ear(host);
            }
            if self.random.chance(faults.crashes) && self.random.chance(40) {
                self.crash(host);
            }
        }
        if self.random.chance(faults.failovers) {
            self.fail_over();
        }
        if self.random.chance(faults.deletions) {
            self.delete();
        }
        if self.random.chance(faults.flushes) && self.random.chance(50) {
            self.flush();
        }
        self.audit();
        let next = self.now + TROUBLE;
        self.schedule(next, Happening::Trouble);
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
        let (client, connection) = (hosts[host].client, hosts[host].link.connection);
        if self.random.chance(50) {
            self.take_arrivals(host, connection);
        }
        let Self {
            hosts,
            plan,
            random,
            ..
        } = self;
        hosts[host].restarted(plan, random);
        self.hang_up(client, 20_000);
        let connection = self.hosts[host].link.connection;
        let at = self.now + self.random.below(30) * MILLI;
        self.schedule(at, Happening::Restore { host, connection });
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
    pub(crate) fn cut(&mut self, host: usize, connection: u64) {
        let link = &self.hosts[host].link;
        if !link.up || link.connection != connection {
            return;
        }
        let under_way = self.take_arrivals(host, connection);
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
        let link = &mut self.hosts[host].link;
        link.up = false;
        link.connection += 1;
        let told = self.random.chance(85);
        self.trace(|_| format!("host {host}: the connection is cut, told: {told}"));
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
            self.input(
                host,
                Input::Disconnected {
                    server: ServerId::ONLY,
                    error,
                },
            );
            self.schedule(
                at,
                Happening::Restore {
                    host,
                    connection: connection + 1,
                },
            );
        } else {
            self.restore(host, connection + 1);
        }
        self.checks.saw("cut");
    }

    pub(crate) fn restore(&mut self, host: usize, connection: u64) {
        let now = self.now;
        let link = &mut self.hosts[host].link;
        if link.up || link.connection != connection {
            return;
        }
        link.up = true;
        link.connection += 1;
        link.last_arrival = now;
        link.last_reply = now;
        self.input(
            host,
            Input::Connected {
                server: ServerId::ONLY,
            },
        );
    }

    /// Another server takes over, with the same data and a clock that is behind. What was under
    /// way to the old one is lost.
    fn fail_over(&mut self) {
        let step = self.random.below(400_000);
        self.trace(|_| format!("another server takes over, its clock is {step} µs behind"));
        self.forget_arrivals();
        for host in 0..self.hosts.len() {
            self.cut(host, self.hosts[host].link.connection);
            self.break_ear(host);
        }
        for client in std::mem::take(&mut self.checks.listeners) {
            self.server.unsubscribe(client);
        }
        self.server_clock.origin_micros -= step;
        self.behind += step * 1_000;
        self.checks.saw("failed over");
    }

    /// An operator deletes a lock's key.
    fn delete(&mut self) {
        let keys = self.plan.keys();
        let which = usize::from(self.random.chance(50)).min(keys.len() - 1);
        let stored = self.stored(&keys[which]);
        self.trace(|_| format!("DEL {:?}, which is {stored:?}", keys[which]));
        self.checks.disturb(&keys[which], stored);
        self.server.delete(&keys[which]);
        self.checks.saw("deleted");
    }

    /// The store loses its data; its clock may have gone on meanwhile, but not back.
    fn flush(&mut self) {
        for key in self.plan.keys() {
            let stored = self.stored(&key);
            self.checks.disturb(&key, stored);
        }
        self.server.flush();
        self.checks.lines.forget();
        let step = self.random.between(1, 3_000_000) * self.random.below(2) + 1;
        self.server_clock.origin_micros += step;
        self.trace(|_| format!("FLUSHALL, and the clock steps by {step} µs"));
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
            self.hosts[host].link.black_hole = 0;
            self.resume(host);
            let connection = self.hosts[host].link.connection;
            let at = self.now + self.random.below(200 * MILLI);
            self.schedule(at, Happening::Restore { host, connection });
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
        let longest = nanos(self.plan.longest_ttl().max(self.plan.longest_window()));
        self.advance(self.now + longest + self.behind + 2 * MILLI);
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
        if self.behind > 0 {
            return;
        }
        for key in self.plan.keys() {
            let waits = self.live_places(&key);
            let known = waits.iter().all(|lease| self.checks.dead.contains(lease));
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
            let known = self.checks.dead.contains(&lease)
                || hosts.any(|host| host.book.unconfirmed.contains(&lease));
            self.checks.ensure("I6", known, || {
                format!("nobody holds a lock, and the store has {stored:?} of host {owner:?}")
            });
        }
    }

    /// Whoever counts as alive in the line, and would be handed the lock.
    fn live_places(&self, key: &LockKey) -> Vec<LeaseId> {
        let now = self.server_clock.at(self.now);
        let line = self.server.line_value(now, key);
        let members = line.map(|(members, _)| members).unwrap_or_default();
        // The engine's clock, by which it stopped to give up its place, may be a little fast.
        let alive = |until: ServerTime| until > now + Duration::from_millis(50);
        let alive = members.iter().filter(|(_, _, until)| alive(*until));
        let lease = |text: &str| text.split(':').next().and_then(|lease| lease.parse().ok());
        alive.filter_map(|(text, ..)| lease(text)).collect()
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
