//! What goes wrong.

use leasehold::engine::{Input, ServerId};
use leasehold::{Error, ErrorKind};

use crate::clock::{MILLI, Moment};
use crate::host::Host;
use crate::world::{Happening, World};

/// How often something may go wrong.
const TROUBLE: Moment = 40 * MILLI;

impl World {
    pub(crate) fn trouble(&mut self) {
        let faults = self.plan.faults.clone();
        for host in 0..self.hosts.len() {
            if self.random.chance(faults.pauses) && self.random.chance(40) {
                self.pause(host);
            }
            for server in 0..self.servers.len() {
                if self.random.chance(faults.cuts) && self.random.chance(30) {
                    self.cut(host, server);
                }
                if self.random.chance(faults.black_holes) && self.random.chance(30) {
                    let until = self.now + self.random.between(50, 3_000) * MILLI;
                    self.hosts[host].links[server].black_hole = until;
                }
                if self.random.chance(faults.broken_subscriptions) && self.random.chance(30) {
                    self.break_ear(host, server);
                }
            }
            if self.random.chance(faults.crashes) && self.random.chance(40) {
                self.crash(host);
            }
        }
        for server in 0..self.servers.len() {
            if self.random.chance(faults.outages) && self.random.chance(40) {
                self.outage(server);
            }
            if self.random.chance(faults.freezes) && self.random.chance(40) {
                self.freeze(server);
            }
            if self.random.chance(faults.steps_back) && self.random.chance(40) {
                self.step_back(server);
            }
        }
        self.trouble_data();
        let next = self.now + TROUBLE;
        self.schedule(next, Happening::Trouble);
    }
}

/// Hosts.
impl World {
    /// A client is gone, without a word; another begins in its place. What is on its way may still
    /// arrive.
    fn crash(&mut self, host: usize) {
        self.trace(|_| format!("host {host} crashes"));
        for server in 0..self.servers.len() {
            let connection = self.hosts[host].links[server].connection;
            if self.random.chance(50) {
                self.take_arrivals(host, (server, connection));
            }
            self.servers[server]
                .store
                .unsubscribe(self.hosts[host].client);
        }
        let Self {
            hosts,
            plan,
            random,
            ..
        } = self;
        Host::restarted(&mut hosts[host], plan, random);
        self.restore_all(host, 30 * MILLI);
        self.checks.saw("host crashed");
    }

    fn pause(&mut self, host: usize) {
        if std::mem::replace(&mut self.hosts[host].paused, true) {
            return;
        }
        let length = match self.random.below(3) {
            0 => self.random.between(5, 100),
            1 => self.random.between(100, 800),
            _ => self.random.between(500, 4_000),
        };
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
}

/// Links.
impl World {
    /// A connection is lost. What was on its way is lost too, or still comes through, later.
    fn cut(&mut self, host: usize, server: usize) {
        let link = &self.hosts[host].links[server];
        if !link.up {
            return;
        }
        let under_way = self.take_arrivals(host, (server, link.connection));
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
        let connection = link.connection;
        self.checks.saw("cut");
        if self.random.chance(15) && self.servers[server].out_until <= self.now {
            self.trace(|_| format!("host {host}: another connection to {server}"));
            return self.restore(host, server, connection);
        }
        self.trace(|_| format!("host {host}: the connection to {server} is cut"));
        let error = Error::new(ErrorKind::Unavailable, "the connection was lost");
        let name = self.name_of(host, server);
        self.input(
            host,
            Input::Disconnected {
                server: name,
                error,
            },
        );
        let down = if self.random.chance(20) {
            self.random.between(500, 3_000) * MILLI
        } else {
            self.random.between(0, 150) * MILLI
        };
        let restore = Happening::Restore {
            host,
            server,
            connection,
        };
        self.schedule(self.now + down, restore);
    }

    /// The engine takes a connection for dead; a host may replace it.
    pub(crate) fn suspect(&mut self, host: usize, server: ServerId) {
        self.checks.saw("suspected");
        let Some(server) = self.index_of(host, server) else {
            return;
        };
        let link = &mut self.hosts[host].links[server];
        if link.up && self.random.chance(30) {
            link.up = false;
            link.connection += 1;
            let connection = link.connection;
            let restore = Happening::Restore {
                host,
                server,
                connection,
            };
            let at = self.now + self.random.below(50) * MILLI;
            self.schedule(at, restore);
        }
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
        if self.servers[server].out_until > now {
            let at = self.servers[server].out_until + self.random.below(100) * MILLI;
            let restore = Happening::Restore {
                host,
                server,
                connection,
            };
            return self.schedule(at, restore);
        }
        link.up = true;
        link.connection += 1;
        link.last_arrival = now;
        link.last_reply = now;
        let server = self.name_of(host, server);
        self.input(host, Input::Connected { server });
    }
}

/// Servers.
impl World {
    /// Nobody can reach a server.
    fn outage(&mut self, server: usize) {
        let until = self.now + self.random.between(50, 4_000) * MILLI;
        self.trace(|_| format!("nobody can reach server {server} until {until}"));
        self.servers[server].out_until = until;
        self.cut_all(server);
        self.checks.saw("a server was out of reach");
    }

    pub(crate) fn cut_all(&mut self, server: usize) {
        for host in 0..self.hosts.len() {
            self.cut(host, server);
            self.break_ear(host, server);
        }
    }

    /// A server does nothing for a while.
    fn freeze(&mut self, server: usize) {
        if std::mem::replace(&mut self.servers[server].frozen, true) {
            return;
        }
        let until = self.now + self.random.between(50, 4_000) * MILLI;
        self.trace(|_| format!("server {server} is frozen until {until}"));
        self.schedule(until, Happening::Thaw { server });
        self.checks.saw("a server was frozen");
    }

    /// A server's clock is set back, and it drops all connections and what was under way to it.
    fn step_back(&mut self, server: usize) {
        let step = self.random.below(400_000);
        self.trace(|_| format!("server {server} is {step} µs behind"));
        self.forget_arrivals(server);
        let state = &mut self.servers[server];
        state.frozen = false;
        state.inbox.clear();
        state.clock.origin_micros -= step;
        state.behind += step * 1_000;
        state.out_until = self.now + 1;
        self.cut_all(server);
        self.checks.saw("a server's clock was set back");
    }
}
