//! What a run is like: drawn from its seed, so that each seed stresses something else.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{LockSpec, Settings};
use leasehold::protocol::{ClientId, Counter, LockKey};
use leasehold::{Name, Owner};

use crate::clock::{HostClock, MILLI, Moment, SECOND, ServerClock};
use crate::random::Random;

/// A promise broken on purpose, to see that the checks notice.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sabotage {
    /// None: the promises must hold.
    None,
    /// The server acts however late a command comes.
    NotAfterIgnored,
    /// The program goes on for one time to live after its deadline.
    DeadlinesIgnored,
    /// A host's clock runs slower than the drift margin allows for.
    SlowClocks,
    /// A renewal takes a lock that is gone or somebody else's.
    RenewalsTake,
    /// Tokens are counted from 1 again after the store lost its data.
    TokensFallBack,
    /// The host is told of time half a second late.
    TicksWithheld,
    /// The host sends no release that nobody waits for.
    ReleasesForgotten,
}

/// Chances of faults, in per cent of what they may happen to; 0 turns one off.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) slow: u64,
    pub(crate) stall: u64,
    pub(crate) lost_requests: u64,
    pub(crate) lost_replies: u64,
    pub(crate) refusals: u64,
    pub(crate) cuts: u64,
    pub(crate) black_holes: u64,
    pub(crate) pauses: u64,
    pub(crate) deletions: u64,
    pub(crate) flushes: u64,
    pub(crate) failovers: u64,
    pub(crate) force_releases: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) sabotage: Sabotage,
    pub(crate) hosts: usize,
    pub(crate) names: Vec<Name>,
    pub(crate) locks_per_host: u64,
    pub(crate) ttls: Vec<Duration>,
    pub(crate) counter: Counter,
    pub(crate) reclaimable: u64,
    pub(crate) timeout: Duration,
    pub(crate) patience: Duration,
    /// How long the program runs and things go wrong.
    pub(crate) chaos: Moment,
    /// The mean time between two acts of one host's program.
    pub(crate) pace: Moment,
    pub(crate) faults: Faults,
    pub(crate) server_clock: ServerClock,
}

impl Plan {
    pub(crate) fn new(random: &mut Random, sabotage: Sabotage) -> Self {
        let mut faults = Faults::new(random, sabotage);
        let names = ["a", "b"]
            .into_iter()
            .take(if random.chance(60) { 1 } else { 2 });
        let retention = match random.below(3) {
            0 => Duration::from_millis(20),
            1 => Duration::from_secs(1),
            _ => Duration::from_secs(7 * 24 * 60 * 60),
        };
        let keeps_data = faults.flushes == 0 && random.chance(20);
        let dense = keeps_data || sabotage == Sabotage::TokensFallBack;
        let forgets = retention < Duration::from_secs(60) && !dense;
        if forgets || faults.flushes > 0 {
            // The new primary's clock may be behind the last token only if it knows that token.
            faults.failovers = 0;
        }
        let millis = Duration::from_millis;
        Self {
            sabotage,
            hosts: if random.chance(50) {
                2
            } else {
                3 + usize::from(random.chance(40))
            },
            names: names
                .map(|name| Name::new(name).expect("the name is short"))
                .collect(),
            locks_per_host: random.between(1, 3),
            ttls: match random.below(4) {
                0 => vec![millis(100), millis(300)],
                1 => vec![millis(500)],
                2 => vec![millis(250), millis(1_000), millis(30_000)],
                _ => vec![millis(2_000)],
            },
            counter: if dense {
                Counter::Dense
            } else {
                Counter::ClockFloor { retention }
            },
            reclaimable: if random.chance(25) { 60 } else { 0 },
            timeout: Duration::from_millis(random.between(150, 2_000)),
            patience: Duration::from_millis(random.between(500, 4_000)),
            chaos: random.between(1_500, 4_500) * MILLI,
            pace: random.between(25, 250) * MILLI,
            faults,
            server_clock: ServerClock {
                origin_micros: 1_700_000_000_000_000 + random.below(1_000_000_000),
            },
        }
    }

    pub(crate) fn clock(&self, random: &mut Random) -> HostClock {
        let any = random.below(2_001);
        let off = random.pick(&[0, any, 2_000]).unwrap_or(any);
        let rate = match self.sabotage {
            Sabotage::SlowClocks => 900_000,
            _ => 999_000 + off,
        };
        HostClock {
            origin: random.below(1_000 * SECOND),
            rate,
        }
    }

    pub(crate) fn settings(&self, client: ClientId) -> Settings {
        let mut settings = Settings::new(client);
        settings.command_timeout = self.timeout;
        settings.patience = self.patience;
        settings
    }

    /// How late a host is told the time: less than what the engine allows for at the shortest
    /// time to live, a twentieth of it.
    pub(crate) fn lateness(&self, random: &mut Random) -> Moment {
        let late = random.below(4 * MILLI);
        match self.sabotage {
            Sabotage::TicksWithheld => 500 * MILLI,
            _ => late * random.below(2),
        }
    }

    pub(crate) fn spec(&self, random: &mut Random, host: usize) -> Arc<LockSpec> {
        let name = &self.names[if random.chance(50) {
            0
        } else {
            self.names.len() - 1
        }];
        let owner = if random.chance(self.reclaimable) {
            Owner::reclaimable("job")
        } else {
            Owner::labelled(format!("host-{host}"))
        };
        Arc::new(LockSpec {
            name: name.clone(),
            key: LockKey::new("sim", name).expect("the namespace is short"),
            ttl: random
                .pick(&self.ttls)
                .expect("every plan has times to live"),
            fixed: random.chance(20),
            owner: owner.expect("the label is short"),
            counter: self.counter,
        })
    }

    pub(crate) fn keys(&self) -> Vec<LockKey> {
        let key = |name| LockKey::new("sim", name).expect("the namespace is short");
        self.names.iter().map(key).collect()
    }
}

impl Faults {
    fn new(random: &mut Random, sabotage: Sabotage) -> Self {
        let cutting = if random.chance(30) { 6 } else { 1 };
        let mut some = |percent| if random.chance(50) { percent } else { 0 };
        let mut faults = Self {
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
        };
        if sabotage == Sabotage::TokensFallBack {
            faults.flushes = 5;
        }
        faults
    }

    /// Everything works from now on.
    pub(crate) fn none() -> Self {
        Self {
            slow: 0,
            stall: 0,
            lost_requests: 0,
            lost_replies: 0,
            refusals: 0,
            cuts: 0,
            black_holes: 0,
            pauses: 0,
            deletions: 0,
            flushes: 0,
            failovers: 0,
            force_releases: 0,
        }
    }
}
