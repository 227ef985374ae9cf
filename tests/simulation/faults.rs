//! The faults of a run.

use leasehold_engine::engine::{Input, ServerId};
use leasehold_engine::{Error, ErrorKind};

use crate::clock::{MILLI, Moment};
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::world::{Happening, World};

/// Chances of faults, in percent of the events that they may affect; 0 turns a fault off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) slow: u64,
    pub(crate) stall: u64,
    pub(crate) lost_requests: u64,
    pub(crate) lost_replies: u64,
    pub(crate) refusals: u64,
    /// Cuts of one host's link to one server: at any time, and while sending.
    pub(crate) cuts: u64,
    pub(crate) cuts_at_sending: u64,
    pub(crate) black_holes: u64,
    pub(crate) pauses: u64,
    pub(crate) crashes: u64,
    pub(crate) force_releases: u64,
    pub(crate) slow_pushes: u64,
    pub(crate) lost_pushes: u64,
    pub(crate) broken_subscriptions: u64,
    pub(crate) deletions: u64,
    pub(crate) flushes: u64,
    /// Another server takes over, with a clock that is behind.
    pub(crate) failovers: u64,
    /// Batches that reach the server twice.
    pub(crate) repeats: u64,
    /// Slots of a cluster that move to another server.
    pub(crate) moves: u64,
    /// A quorum's member that no client can reach for a while.
    pub(crate) outages: u64,
    /// A member that stops for a while and then executes all that arrived meanwhile.
    pub(crate) freezes: u64,
    /// A member that forgets its data, or returns to older data.
    pub(crate) losses: u64,
    /// A member that comes back empty with a clock that is behind; the clock is set while it may not vote.
    pub(crate) late_clocks: u64,
    pub(crate) bad_link: Option<BadLink>,
}

/// A link to one server that is bad while faults last.
#[derive(Copy, Clone, Debug)]
pub(crate) struct BadLink {
    /// The host; all hosts if `None`.
    host: Option<usize>,
    server: usize,
    /// The delay that this link adds each way.
    slower: Moment,
    /// True if requests arrive and no reply comes back.
    one_sided: bool,
}

impl BadLink {
    fn new(random: &mut Random) -> Self {
        let host = usize::try_from(random.below(3)).ok();
        Self {
            host: host.filter(|_| random.chance(60)),
            server: usize::try_from(random.below(3)).unwrap_or(0),
            slower: random.between(5, 400) * MILLI,
            one_sided: random.chance(40),
        }
    }
}

impl Faults {
    pub(crate) fn of_servers(random: &mut Random, sabotage: Sabotage, calm: bool) -> Self {
        let mut faults = Self::some(random, 1);
        faults.cuts_at_sending = faults.cuts;
        match sabotage {
            Sabotage::TokensFallBack => faults.flushes = 5,
            // Slow pushes are the only fault.
            _ if sabotage.holds_long() => {
                faults = Self {
                    slow_pushes: 100,
                    ..Self::default()
                };
            }
            _ => {}
        }
        if calm {
            return Self {
                force_releases: faults.force_releases,
                crashes: faults.crashes,
                ..Self::default()
            };
        }
        faults
    }

    pub(crate) fn of_quorum(random: &mut Random, must_forget: bool) -> Self {
        let losses = if must_forget {
            6
        } else if random.chance(40) {
            3
        } else {
            0
        };
        // With bad links, one host gets just the members that it needs, and others get the last one.
        let bad_links = if must_forget { 100 } else { 30 };
        let faults = Self::some(random, 2);
        let mut some = |percent| if random.chance(50) { percent } else { 0 };
        Self {
            deletions: 0,
            flushes: 0,
            repeats: 0,
            moves: 0,
            outages: some(2),
            freezes: some(2),
            // Tokens begin at the clock where they were forgotten.
            failovers: if losses > 0 { 0 } else { some(1) },
            losses,
            late_clocks: some(60).max(if must_forget { 100 } else { 0 }),
            bad_link: random.chance(bad_links).then(|| BadLink::new(random)),
            ..faults
        }
    }

    /// Draws the faults that may affect any server. A number of servers that fail together share them.
    fn some(random: &mut Random, share: u64) -> Self {
        let cutting = if random.chance(30) { 6 } else { 1 };
        let mut some = |percent: u64| {
            if random.chance(50) {
                percent.div_ceil(share)
            } else {
                0
            }
        };
        Self {
            slow: some(15),
            stall: some(2),
            lost_requests: some(5),
            lost_replies: some(8),
            refusals: some(3),
            cuts: some(6) * cutting,
            black_holes: some(4),
            pauses: some(8),
            deletions: some(3),
            flushes: some(2),
            failovers: some(2),
            force_releases: some(4),
            slow_pushes: some(15),
            lost_pushes: some(20),
            broken_subscriptions: some(4),
            crashes: some(1),
            repeats: some(20),
            moves: some(4),
            ..Self::default()
        }
    }

    fn bad_link(&self, host: usize, server: usize) -> Option<BadLink> {
        let is = |bad: &BadLink| bad.server == server && bad.host.is_none_or(|own| own == host);
        self.bad_link.filter(is)
    }

    /// Returns the delay that this link adds each way.
    pub(crate) fn slower(&self, host: usize, server: usize) -> Moment {
        self.bad_link(host, server).map_or(0, |bad| bad.slower)
    }

    /// True if no reply comes back on this link.
    pub(crate) fn is_one_sided(&self, host: usize, server: usize) -> bool {
        self.bad_link(host, server).is_some_and(|bad| bad.one_sided)
    }
}

/// The interval at which something may go wrong.
const TROUBLE: Moment = 40 * MILLI;

impl World {
    pub(crate) fn trouble(&mut self) {
        let faults = self.plan.faults.clone();
        for host in 0..self.hosts.len() {
            self.trouble_host(&faults, host);
        }
        for server in 0..self.servers.len() {
            if self.plan.is_quorum() {
                self.trouble_member(&faults, server);
                continue;
            }
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
        self.schedule(self.now + TROUBLE, Happening::Trouble);
    }
}

/// Faults of hosts.
impl World {
    fn trouble_host(&mut self, faults: &Faults, host: usize) {
        self.read_some(host);
        if self.random.chance(faults.pauses) && self.random.chance(40) {
            self.pause(host);
        }
        for server in 0..self.servers.len() {
            self.trouble_link(faults, host, server);
        }
        for subscription in 0..self.hosts[host].subscriptions.len() {
            if self.random.chance(faults.broken_subscriptions) && self.random.chance(40) {
                self.break_subscription(host, subscription);
            }
        }
        if self.random.chance(faults.crashes) && self.random.chance(40) {
            self.crash(host);
        }
    }

    fn read_some(&mut self, host: usize) {
        let most = if self.random.chance(10) { 5 } else { 0 };
        let Self { hosts, checks, .. } = self;
        let host = &mut hosts[host];
        let now = host.clock.at(self.now);
        host.readers.read_some(checks, (&host.engine, now), most);
    }

    /// Replaces a client without notice. Its requests may still arrive, and its subscriptions may linger.
    fn crash(&mut self, host: usize) {
        self.trace(|_| format!("host {host} crashes"));
        let Self { checks, hosts, .. } = self;
        checks.dead.extend(hosts[host].book.attempts.keys());
        let client = hosts[host].client;
        let heard: Vec<_> = hosts[host]
            .subscriptions
            .iter()
            .map(|subscription| subscription.server)
            .collect();
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
        for server in heard {
            self.hang_up(client, server, 20_000);
        }
        self.restore_all(host, 30 * MILLI);
        self.checks.saw("crashed");
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
        self.schedule(until, Happening::Resume(host));
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
        // Drivers may look at the timer or at the connection first.
        if self.random.chance(50) {
            self.tick(host);
        }
        for input in inbox {
            self.feed(host, input);
        }
        self.tick(host);
    }
}

/// Faults of connections.
impl World {
    fn trouble_link(&mut self, faults: &Faults, host: usize, server: usize) {
        let connection = self.hosts[host].links[server].connection;
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

    /// Breaks a connection. Messages in flight are lost, or still arrive later.
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
        let told = self.random.chance(85) || self.servers[server].out_until > self.now;
        self.trace(|_| format!("host {host}: the connection to {server} is cut, notified: {told}"));
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
            let name = self.name_of(host, server);
            let input = Input::Disconnected {
                server: name,
                error,
            };
            self.input(host, input);
            self.schedule(at, Happening::Restore(host, server, connection + 1));
        } else {
            self.restore(host, server, connection + 1);
        }
        self.checks.saw("cut");
    }

    pub(crate) fn cut_all(&mut self, server: usize) {
        for host in 0..self.hosts.len() {
            self.cut(host, server, self.hosts[host].links[server].connection);
            for subscription in 0..self.hosts[host].subscriptions.len() {
                if self.hosts[host].subscriptions[subscription].server == server {
                    self.break_subscription(host, subscription);
                }
            }
        }
    }

    /// The engine considers a connection dead; a quorum's host may replace it.
    pub(crate) fn suspect(&mut self, host: usize, server: ServerId) {
        let server = self.index_of(host, server);
        let Some(server) = server.filter(|_| self.plan.is_quorum()) else {
            return;
        };
        self.checks.saw("suspected");
        let link = &mut self.hosts[host].links[server];
        if link.up && self.random.chance(30) {
            link.up = false;
            link.connection += 1;
            let restore = Happening::Restore(host, server, link.connection);
            let at = self.now + self.random.below(50) * MILLI;
            self.schedule(at, restore);
        }
    }

    pub(crate) fn restore_all(&mut self, host: usize, most: Moment) {
        for server in 0..self.servers.len() {
            let connection = self.hosts[host].links[server].connection;
            let at = self.now + self.random.below(most);
            self.schedule(at, Happening::Restore(host, server, connection));
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
            return self.schedule(at, Happening::Restore(host, server, connection));
        }
        link.up = true;
        link.connection += 1;
        link.last_arrival = now;
        link.last_reply = now;
        let server = self.name_of(host, server);
        self.input(host, Input::Connected { server });
        self.begin_watch(host, server);
        if self.is_cluster() {
            self.cluster_found(host);
        }
    }
}

/// Faults of servers.
impl World {
    /// Lets another server take over, with the same data and a clock that is behind. Requests to the old one
    /// are lost.
    pub(crate) fn fail_over(&mut self, server: usize) {
        let step = self.random.below(400_000);
        self.trace(|_| {
            format!("another server replaces server {server}; its clock is {step} µs behind")
        });
        self.forget_arrivals(server);
        let state = &mut self.servers[server];
        state.frozen = false;
        state.inbox.clear();
        if self.plan.is_quorum() {
            state.out_until = self.now + 1;
        }
        self.cut_all(server);
        self.drop_listeners(server);
        let state = &mut self.servers[server];
        state.clock.origin_micros -= step;
        state.behind += step * 1_000;
        self.checks.saw("failed over");
    }

    /// Deletes a lock's key, as an operator may.
    fn delete(&mut self) {
        let keys = self.plan.keys();
        let which = usize::from(self.random.chance(50)).min(keys.len() - 1);
        let (key, server) = (&keys[which], self.server_of(&keys[which]));
        let stored = self.all_stored(server, key);
        self.trace(|_| format!("DEL {key:?}, which is {stored:?}"));
        for stored in stored {
            self.checks.disturb(key, Some(stored));
        }
        self.checks.forget_ticks(key);
        if self.plan.kind(key).is_some() && self.random.chance(30) {
            self.servers[server].store.delete_holders(key);
            let state = self.state_of(key);
            self.checks.knows(key, state);
            self.checks.saw("holders were deleted");
        } else {
            self.servers[server].store.delete(key);
            self.checks.forget_name(key);
        }
        self.changed(&keys[which]);
        self.checks.saw("deleted");
    }

    /// Deletes the data of a server. Its clock may have gone on meanwhile, never back.
    fn flush(&mut self, server: usize) {
        for key in self.plan.keys() {
            if self.server_of(&key) == server {
                for stored in self.all_stored(server, &key) {
                    self.checks.disturb(&key, Some(stored));
                }
                self.checks.forget_name(&key);
                self.checks.forget_ticks(&key);
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
