//! Hosts whose lockers have a quorum each, over the same few servers.

use std::time::Duration;

use crate::engine::{Engine, Settings};
use crate::event::LeaseEvent;
use crate::protocol::{ClientId, Counter};
pub(super) use crate::testing::*;

/// The longest that a lease may live.
pub(super) const LONGEST: Duration = Duration::from_secs(120);
/// How long a retry takes, at the most, and then some.
pub(super) const SOON: Duration = Duration::from_millis(1_500);

/// So many lockers, on servers that have been used before, so that each knows the others.
pub(super) fn quorum(lockers: usize, servers: usize) -> Host {
    used(fresh(lockers, servers))
}

/// As [`quorum`], with lockers of this drift margin.
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

/// Servers that are new, as are the lockers to them.
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
    /// One more locker, which is connected to all servers.
    pub(super) fn enter(&mut self, settings: Settings) -> usize {
        let (locker, client) = (self.lockers.len(), settings.client);
        let engine = Engine::quorum(settings, self.servers.len()).expect("it is odd");
        self.join(client, engine, &format!("host {locker}"));
        for server in 0..self.servers.len() {
            self.at(locker).connect(server);
        }
        locker
    }

    /// How many operations were sent, except for those that find out who may vote.
    pub(super) fn sent(&self) -> usize {
        self.ops().into_iter().filter(|op| *op != "enter").count()
    }

    /// At how many servers somebody has the lock, and stands in line.
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

    /// What happened to a locker's leases, by the names of the events.
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

    /// The locker hears nothing that this server says by itself.
    pub(super) fn deafen(&mut self, server: usize) {
        let client = self.client;
        self.servers[server].unsubscribe(client);
    }
}
