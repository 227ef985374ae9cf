//! Faults of one server of a quorum. Of these, only a loss of data is invisible to others.

use leasehold_engine::MemoryServer;
use leasehold_engine::protocol::{Command, Enter, Entered, Incarnation, Op, Reply, Terms};

use crate::clock::{MILLI, Moment};
use crate::drain::nanos;
use crate::faults::Faults;
use crate::sabotage::Sabotage;
use crate::world::{Happening, World};

/// A number that no process has.
const FIRST: u64 = 1 << 32;

impl World {
    /// Lets something go wrong at one of a quorum's servers.
    pub(crate) fn trouble_member(&mut self, faults: &Faults, server: usize) {
        if self.random.chance(faults.outages) && self.random.chance(40) {
            self.outage(server);
        }
        if self.random.chance(faults.freezes) && self.random.chance(40) {
            self.freeze(server);
        }
        if self.random.chance(faults.failovers) && self.random.chance(40) {
            self.fail_over(server);
        }
        if self.random.chance(faults.losses) && self.random.chance(40) {
            self.lose(server);
        }
        if self.random.chance(faults.losses) && self.random.chance(80) {
            let server = &mut self.servers[server];
            server.saved = Some(server.store.clone());
        }
    }

    /// Makes a server unreachable for a while.
    fn outage(&mut self, server: usize) {
        let until = self.now + self.random.between(50, 4_000) * MILLI;
        self.trace(|_| format!("server {server} is unreachable until {until}"));
        self.servers[server].out_until = until;
        self.cut_all(server);
        self.checks.saw("a server was out of reach");
    }

    /// Stops a server for a while.
    fn freeze(&mut self, server: usize) {
        if std::mem::replace(&mut self.servers[server].frozen, true) {
            return;
        }
        let until = self.now + self.random.between(50, 4_000) * MILLI;
        self.trace(|_| format!("server {server} is frozen until {until}"));
        self.schedule(until, Happening::Thaw(server));
        self.checks.saw("a server was frozen");
    }

    /// Returns true if this server may lose data now. A quorum is promised that fewer than a majority forget
    /// within the time that a lease may live; servers that no host knew yet count, too.
    fn may_lose(&self, server: usize) -> bool {
        let since = self.plan.longest_held();
        let forgetful = self.servers.iter().enumerate().filter(|(other, state)| {
            let lately = state.lost.is_some_and(|lost| lost + since > self.now);
            *other == server || lately || !state.is_known
        });
        forgetful.count() < self.plan.majority()
    }

    /// True if some server may have forgotten a live lease.
    pub(crate) fn forgot_lately(&self) -> bool {
        let since = self.plan.longest_held();
        let lost = |lost: Moment| lost + since > self.now;
        let mut servers = self.servers.iter();
        servers.any(|server| server.lost.is_some_and(lost))
    }

    fn lose(&mut self, server: usize) {
        if !self.may_lose(server) {
            return;
        }
        let saved = self.servers[server].saved.clone();
        let how = match self.plan.sabotage {
            Sabotage::ProcessesMixedUp => 2,
            Sabotage::OneClock => 1,
            _ => self.random.below(4),
        };
        match (how, saved) {
            (0, _) => self.forget(server),
            (1, _) => {
                let votes = self.is_known_to_all(server);
                self.restart(server, "a server came back empty", MemoryServer::new());
                if votes && self.random.chance(self.plan.faults.late_clocks) {
                    self.begin_late(server);
                }
            }
            (2, Some(saved)) => self.restart(server, "a server came back with old data", saved),
            _ => self.restart_with_its_data(server),
        }
    }

    pub(crate) fn restart_with_its_data(&mut self, server: usize) {
        let store = self.servers[server].store.clone();
        self.restart(server, "a server came back with its data", store);
    }

    /// Restarts a server with the data of this store.
    pub(crate) fn restart(&mut self, server: usize, what: &'static str, store: MemoryServer) {
        self.trace(|_| format!("{what}: {server}"));
        self.forget_arrivals(server);
        self.last_id += 1;
        let process = FIRST + self.last_id;
        let away = self.random.below(200) * MILLI;
        let is_told = self.plan.sabotage != Sabotage::ProcessesMixedUp;
        self.servers[server].store = store;
        self.drop_listeners(server);
        let state = &mut self.servers[server];
        if is_told {
            state.store.begin_anew(process);
        }
        state.store.take_pushes();
        state.frozen = false;
        state.inbox.clear();
        state.out_until = self.now + 1 + away;
        self.was_lost(server);
        self.cut_all(server);
        self.checks.saw(what);
    }

    /// Sets the server's clock back; it is set right before the server may vote again.
    fn begin_late(&mut self, server: usize) {
        let late_by = self.random.between(100, 3 * 3_600 * 1_000) * 1_000;
        let state = &mut self.servers[server];
        if state.late_by > 0 {
            return;
        }
        state.late_by = late_by;
        state.clock.origin_micros -= late_by;
        let least = nanos(self.plan.longest) / 10 * 9;
        // The clock is often set before some hosts have connected again.
        let most = if self.random.chance(60) {
            100 * MILLI
        } else {
            least
        };
        let at = self.servers[server].out_until + self.random.below(most);
        self.trace(|_| format!("server {server} has a clock {late_by} µs behind until {at}"));
        self.schedule(at, Happening::SetForward(server));
    }

    /// Sets the clock of a server that began late right.
    pub(crate) fn set_forward(&mut self, server: usize) {
        let state = &mut self.servers[server];
        let late_by = std::mem::take(&mut state.late_by);
        state.clock.origin_micros += late_by;
        self.trace(|_| format!("the clock of server {server} is right again"));
        self.checks
            .saw("the clock of a server that forgot was set forward");
    }

    /// True if all servers know this one, so that none takes it for new when it comes back.
    fn is_known_to_all(&self, server: usize) -> bool {
        let own = self.says(server).incarnation;
        (0..self.servers.len()).all(|at| self.says(at).known.contains(&own))
    }

    /// Returns what a server would report of itself.
    fn says(&self, server: usize) -> Entered {
        let key = self.plan.keys().remove(0).mark();
        let terms = Terms {
            longest: self.plan.longest,
            remember: Vec::new(),
            watch: Vec::new(),
            forget: Vec::new(),
        };
        let enter = Enter {
            key,
            incarnation: Incarnation(0),
            terms: Some(terms),
        };
        let (command, not_after) = (Command::Enter(enter), self.time_of(server));
        let op = Op { command, not_after };
        let mut store = self.servers[server].store.clone();
        match store.execute(not_after, &[op]).replies.remove(0) {
            Ok(Reply::Entered(entered)) => entered,
            other => panic!("a server does not report its state: {other:?}"),
        }
    }

    /// Deletes a server's data. No host notices unless it asks.
    fn forget(&mut self, server: usize) {
        self.trace(|_| format!("server {server} is flushed"));
        self.servers[server].store.flush();
        self.was_lost(server);
        self.checks.saw("a server was flushed");
    }

    fn was_lost(&mut self, server: usize) {
        let state = &mut self.servers[server];
        (state.lost, state.is_known) = (Some(self.now), false);
        self.checks.saw("a server forgot");
    }

    /// Notes whether a server votes, by its own report.
    pub(crate) fn look_at_entry(&mut self, server: usize, reply: &Reply) {
        if let Reply::Entered(entered) = reply {
            let is_known = entered.known.contains(&entered.incarnation);
            self.servers[server].is_known |= is_known;
        }
    }

    /// Returns the server's report of itself, made wrong if the sabotage says so.
    pub(crate) fn mistaken(&self, enter: &Enter, reply: Reply) -> Reply {
        match (self.plan.sabotage, enter.terms.is_some(), reply) {
            (Sabotage::NothingChecked, false, _) => Reply::Intact,
            (Sabotage::NoQuarantine, true, Reply::Entered(mut entered)) => {
                entered.age += self.plan.longest * 2;
                for (_, age) in &mut entered.watched {
                    *age += self.plan.longest * 2;
                }
                Reply::Entered(entered)
            }
            (Sabotage::OneClock, true, Reply::Entered(mut entered)) => {
                for (incarnation, age) in &mut entered.watched {
                    let mut servers = (0..self.servers.len()).map(|server| self.says(server));
                    let own = servers.find(|says| says.incarnation == *incarnation);
                    *age = own.map_or(*age, |says| says.age);
                }
                Reply::Entered(entered)
            }
            (_, _, reply) => reply,
        }
    }
}
