//! Servers that forget: that is all that they do wrong which others cannot see.

use leasehold::MemoryServer;
use leasehold::protocol::{Enter, Reply};

use crate::clock::{MILLI, Moment};
use crate::plan::Sabotage;
use crate::world::World;

/// Nobody has this as a process.
const FIRST: u64 = 1 << 32;

impl World {
    pub(crate) fn trouble_data(&mut self) {
        let losses = self.plan.faults.losses;
        for server in 0..self.servers.len() {
            if self.random.chance(losses) && self.random.chance(40) {
                self.lose(server);
            }
            if self.random.chance(losses) && self.random.chance(80) {
                let server = &mut self.servers[server];
                server.saved = Some(server.store.clone());
            }
        }
    }

    /// Fewer than a majority forget within the time that a lease may live, and those that nobody knew
    /// yet count, too: that is what a quorum is promised.
    fn may_lose(&self, server: usize) -> bool {
        let since = nanos(self.plan.longest) / 100 * 101 + 10 * MILLI;
        let forgetful = self.servers.iter().enumerate().filter(|(other, state)| {
            let lately = state.lost.is_some_and(|lost| lost + since > self.now);
            *other == server || lately || !state.is_known
        });
        forgetful.count() < self.plan.majority()
    }

    /// Some may have forgotten a lease that lives.
    pub(crate) fn forgot_lately(&self) -> bool {
        let since = nanos(self.plan.longest) / 100 * 101 + 10 * MILLI;
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
            _ => self.random.below(4),
        };
        let (what, store) = match (how, saved) {
            (0, _) => return self.flush(server),
            (1, _) => ("a server came back empty", MemoryServer::new()),
            (2, Some(saved)) => ("a server came back with old data", saved),
            _ => (
                "a server came back with its data",
                self.servers[server].store.clone(),
            ),
        };
        self.trace(|_| format!("{what}: {server}"));
        self.forget_arrivals(server);
        self.last_id += 1;
        let process = FIRST + self.last_id;
        let away = self.random.below(200) * MILLI;
        let is_told = self.plan.sabotage != Sabotage::ProcessesMixedUp;
        let state = &mut self.servers[server];
        state.store = store;
        if is_told {
            state.store.begin_anew(process);
        }
        for host in &self.hosts {
            state.store.unsubscribe(host.client);
        }
        state.store.take_pushes();
        state.frozen = false;
        state.inbox.clear();
        state.out_until = self.now + 1 + away;
        self.was_lost(server);
        self.cut_all(server);
        self.checks.saw(what);
    }

    /// Nobody notices, unless it asks.
    fn flush(&mut self, server: usize) {
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

    /// Whether it votes, as far as it says.
    pub(crate) fn look_at_entry(&mut self, server: usize, reply: &Reply) {
        if let Reply::Entered(entered) = reply {
            let is_known = entered.known.contains(&entered.incarnation);
            self.servers[server].is_known |= is_known;
        }
    }

    /// What it says of itself, if that is to be wrong.
    pub(crate) fn mistaken(&self, enter: &Enter, reply: Reply) -> Reply {
        match (self.plan.sabotage, enter.terms.is_some(), reply) {
            (Sabotage::NothingChecked, false, _) => Reply::Intact,
            (Sabotage::NoQuarantine, true, Reply::Entered(mut entered)) => {
                entered.age += self.plan.longest * 2;
                Reply::Entered(entered)
            }
            (_, _, reply) => reply,
        }
    }
}

fn nanos(duration: std::time::Duration) -> Moment {
    Moment::try_from(duration.as_nanos()).unwrap_or(Moment::MAX)
}
