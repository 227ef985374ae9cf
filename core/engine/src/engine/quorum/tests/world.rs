//! Makes hosts whose lockers share the servers of a quorum.

use std::time::Duration;

use crate::engine::{Engine, Settings};
use crate::event::LeaseEvent;
use crate::protocol::{ClientId, Counter};
pub(super) use crate::testing::*;

/// The longest time to live of a lease.
pub(super) const LONGEST: Duration = Duration::from_secs(120);
/// A time within which every retry happens.
pub(super) const SOON: Duration = Duration::from_millis(1_500);

/// Returns lockers on servers that have been used before, so each server knows the others.
pub(super) fn quorum(lockers: usize, servers: usize) -> Host {
    used(fresh(lockers, servers))
}

/// Returns the same as [`quorum`], with this drift margin.
pub(super) fn with_margin(lockers: usize, servers: usize, drift_margin: u32) -> Host {
    let settings = |locker| Settings {
        drift_margin,
        ..settings(locker)
    };
    used(of(lockers, servers, settings))
}

fn used(mut host: Host) -> Host {
    for locker in 0..host.lockers.len() {
        let lease = host.at(locker).hold(LOCK).lease;
        host.at(locker).release(lease);
    }
    host.forget();
    for server in &mut host.servers {
        server.delete(&key(LOCK));
    }
    host
}

/// Returns new lockers on new servers.
pub(super) fn fresh(lockers: usize, servers: usize) -> Host {
    of(lockers, servers, settings)
}

fn of(lockers: usize, servers: usize, settings: impl Fn(usize) -> Settings) -> Host {
    let mut host = Host::of_servers(servers);
    host.ahead = (0..).map(|at| at * 1_000).take(servers).collect();
    host.reentrant = false;
    host.counter = Counter::ClockFloor {
        retention: Duration::from_secs(86_400),
    };
    for locker in 0..lockers {
        host.enter(settings(locker));
    }
    host
}

pub(super) fn settings(locker: usize) -> Settings {
    let mut settings = Settings::new(ClientId(CLIENT.0 + locker as u64));
    settings.longest_ttl = LONGEST;
    settings
}

impl Host {
    /// Adds a locker that is connected to all servers.
    pub(super) fn enter(&mut self, settings: Settings) -> usize {
        let (locker, client) = (self.lockers.len(), settings.client);
        let engine =
            Engine::quorum(settings, self.servers.len()).expect("the number of servers is valid");
        self.join(client, engine, &format!("host {locker}"));
        for server in 0..self.servers.len() {
            self.at(locker).connect(server);
        }
        locker
    }

    /// Counts the operations that were sent, except those that find out which servers may vote.
    pub(super) fn sent(&self) -> usize {
        self.ops().into_iter().filter(|op| *op != "enter").count()
    }

    /// Returns at how many servers somebody holds the lock, and at how many somebody waits.
    pub(super) fn left(&self) -> (usize, usize) {
        let servers = || self.servers.iter().enumerate();
        let tenures = servers().filter(|(at, server)| {
            let tenure = server.tenure(self.time(*at), &key(LOCK));
            tenure.is_some()
        });
        let lines = servers().filter(|(at, server)| {
            let line = server.line_value(self.time(*at), &key(LOCK));
            line.is_some()
        });
        (tenures.count(), lines.count())
    }

    pub(super) fn last_tokens(&self) -> Vec<Option<u64>> {
        let servers = self.servers.iter().enumerate();
        servers
            .map(|(at, server)| server.last_token(self.time(at), &key(LOCK)))
            .collect()
    }

    /// Returns the names of a locker's events.
    pub(super) fn story(&self, locker: usize) -> Vec<&'static str> {
        let events = self.lockers[locker].events.iter();
        let words = events.map(|told| match told.event {
            LeaseEvent::Waiting { .. } => "waiting",
            LeaseEvent::Acquired { .. } => "acquired",
            LeaseEvent::Renewed { .. } => "renewed",
            LeaseEvent::AtRisk { .. } => "at risk",
            LeaseEvent::Lost { .. } => "lost",
            LeaseEvent::Released { .. } => "released",
            _ => "other",
        });
        words.collect()
    }

    /// Cuts the locker off from this server's pushes.
    pub(super) fn deafen(&mut self, server: usize) {
        let client = self.client;
        self.servers[server].unsubscribe(client);
    }
}
