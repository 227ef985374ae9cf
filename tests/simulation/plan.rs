//! What a run is like: drawn from its seed, so that each seed stresses something else.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{LockOptions, LockSpec, Settings};
use leasehold::protocol::{ClientId, Counter, LockKey};
use leasehold::{Name, Owner};

use crate::clock::{HostClock, MILLI, Moment, ServerClock};
use crate::drain::heartbeat;
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
    /// Renewals by hand ask the engine for twice as long as the program wants.
    RenewalsForLonger,
    /// A renewal takes a lock that is gone or somebody else's.
    RenewalsTake,
    /// Tokens are counted from 1 again after the store lost its data.
    TokensFallBack,
    /// The host is told of time half a second late.
    TicksWithheld,
    /// No release reaches the server, and all are confirmed.
    ReleasesForgotten,
    /// A release hands the lock to whoever came last.
    LastFirst,
    /// The host's notion of the server's clock is 0.9 seconds behind; and no renewal is in time, so
    /// that it matters. Grants are short, as nobody is counted who hears of them: one that is believed that much longer ends
    /// after the lock has gone on, where otherwise half of the window would make up for it.
    WrongAnchor,
    /// Who leaves the line is not taken out of it.
    LeavesForgotten,
    /// Nothing that a waiter asks reaches the server after its first ask, nor any push a waiter.
    HeartbeatsForgotten,
    /// The subscription is reported, and then made.
    EarlyBarrier,
    /// A forced release frees whoever has the lock by then.
    ForceReleasesAnybody,
    /// An owner takes over whatever tenure its owner has by then.
    ReclaimsAnyTenure,
    /// The answers of each server of a cluster are said to be another one's.
    AnswersMisnamed,
    /// The pushes of each of two servers are said to be the other one's, whose clock is 0.9 seconds
    /// away; and the rest is as in `WrongAnchor`.
    PushesMisnamed,
}

impl Sabotage {
    /// Whether nothing else may go wrong for it to show, or must.
    fn calm(self) -> Option<bool> {
        match self {
            Self::None => None,
            Self::LastFirst
            | Self::LeavesForgotten
            | Self::HeartbeatsForgotten
            | Self::EarlyBarrier => Some(true),
            _ => Some(false),
        }
    }

    /// Whether it needs programs that hold on to locks, and renewals that come too late.
    pub(crate) fn holds_long(self) -> bool {
        matches!(self, Self::WrongAnchor | Self::PushesMisnamed)
    }

    /// Between how many servers it may have.
    fn servers(self) -> Option<(u64, u64)> {
        match self {
            Self::None => None,
            Self::AnswersMisnamed => Some((2, 4)),
            Self::PushesMisnamed => Some((2, 2)),
            _ => Some((1, 1)),
        }
    }

    fn pushes(self) -> Option<Pushes> {
        match self {
            Self::HeartbeatsForgotten => Some(Pushes::Lost),
            Self::WrongAnchor | Self::PushesMisnamed => Some(Pushes::Uncounted),
            _ => None,
        }
    }

    /// Which of the times to live it needs.
    fn ttl(self) -> Option<u64> {
        match self {
            Self::WrongAnchor | Self::PushesMisnamed => Some(5),
            Self::EarlyBarrier => Some(4),
            _ => None,
        }
    }
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
    pub(crate) slow_pushes: u64,
    pub(crate) lost_pushes: u64,
    pub(crate) broken_subscriptions: u64,
    pub(crate) crashes: u64,
    /// Batches that reach the server twice.
    pub(crate) repeats: u64,
    /// Slots of a cluster that go to another server.
    pub(crate) moves: u64,
}

/// What becomes of pushes that nothing else happens to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pushes {
    Come,
    /// They come by way of another server of a group: this one counts nobody who hears.
    Uncounted,
    /// None ever comes, and nobody notices.
    Lost,
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
    /// The drift margin of the hosts, in parts per million.
    pub(crate) drift_margin: u32,
    /// Nothing goes wrong but crashes of clients, so that everybody must be served in time.
    pub(crate) calm: bool,
    pub(crate) pushes: Pushes,
    /// The server says of everything that it lasts longer than it does: nobody may count on more than
    /// was asked for.
    pub(crate) boasts: bool,
    /// How often a host hears, in per cent, that a lock may have changed; if ever, also when it has.
    pub(crate) changes: u64,
    /// Whether those who wait at the end are served before everything is given up.
    pub(crate) drains: bool,
    /// How long a slow push is under way at the least and at the most, in milliseconds.
    pub(crate) slow_push: (u64, u64),
    /// How long the program runs and things go wrong.
    pub(crate) chaos: Moment,
    /// The mean time between two acts of one host's program.
    pub(crate) pace: Moment,
    pub(crate) faults: Faults,
    /// Of each server: of one that is alone, or of those of a cluster.
    pub(crate) clocks: Vec<ServerClock>,
}

impl Plan {
    pub(crate) fn new(random: &mut Random, sabotage: Sabotage) -> Self {
        let calm = sabotage.calm().unwrap_or_else(|| random.chance(30));
        let mut faults = Faults::new(random, sabotage, calm);
        let crowded = random.chance(20);
        let clocks = clocks(random, sabotage);
        let names = names(random, clocks.len() > 1);
        let retention = match random.below(3) {
            0 => Duration::from_millis(20),
            1 => Duration::from_secs(1),
            _ => Duration::from_secs(7 * 24 * 60 * 60),
        };
        // A deletion takes the last token along, as a loss of data does.
        let keeps_data = faults.flushes == 0 && faults.deletions == 0;
        let dense = keeps_data && random.chance(40) || sabotage == Sabotage::TokensFallBack;
        let forgets = retention < Duration::from_secs(60) && !dense;
        // The new primary's clock may be behind the last token only if it knows that token, and so may
        // that of the server that a slot goes to.
        if forgets || faults.flushes > 0 || faults.deletions > 0 && random.chance(50) {
            (faults.failovers, faults.moves) = (0, 0);
        } else if faults.failovers + faults.moves > 0 {
            faults.deletions = 0;
        }
        let millis = Duration::from_millis;
        let slow = if sabotage.holds_long() { 20 } else { 1 };
        let hosts = if random.chance(50) {
            2
        } else {
            3 + usize::from(random.chance(40))
        };
        Self {
            sabotage,
            hosts: hosts * if crowded { 3 } else { 1 },
            names,
            locks_per_host: random.between(1, 3),
            ttls: ttls(random, sabotage),
            counter: if dense {
                Counter::Dense
            } else {
                Counter::ClockFloor { retention }
            },
            reclaimable: if random.chance(25) || sabotage == Sabotage::ReclaimsAnyTenure {
                60
            } else {
                0
            },
            timeout: match sabotage {
                _ if sabotage.holds_long() => millis(2_000),
                _ => millis(random.between(150, 2_000)),
            },
            patience: Duration::from_millis(random.between(500, 4_000)),
            drift_margin: match sabotage {
                Sabotage::None => random.pick(&MARGINS).unwrap_or(DRIFT_MARGIN),
                _ => DRIFT_MARGIN,
            },
            calm,
            pushes: sabotage.pushes().unwrap_or(match random.below(5) {
                0 => Pushes::Lost,
                1 => Pushes::Uncounted,
                _ => Pushes::Come,
            }),
            boasts: random.chance(20),
            changes: random.pick(&[0, 2, 30]).unwrap_or(0),
            slow_push: if slow > 1 { (900, 1_200) } else { (100, 5_000) },
            drains: calm || random.chance(40),
            chaos: random.between(1_500, 4_500)
                * MILLI
                * if calm { random.between(1, 3) } else { slow },
            pace: random.between(25, 250) * MILLI * slow,
            faults,
            clocks,
        }
    }

    pub(crate) fn clock(&self, random: &mut Random) -> HostClock {
        let mut clock = HostClock::within(self.drift_margin, random);
        if self.sabotage == Sabotage::SlowClocks {
            clock.rate = 900_000;
        }
        clock
    }

    pub(crate) fn settings(&self, client: ClientId) -> Settings {
        let mut settings = Settings::new(client);
        settings.command_timeout = self.timeout;
        settings.patience = self.patience;
        settings.drift_margin = self.drift_margin;
        settings.clustered = self.clocks.len() > 1;
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
        let name = random.below(u64::try_from(self.names.len()).unwrap_or(1));
        let name = &self.names[usize::try_from(name).unwrap_or(0)];
        let owner = if random.chance(self.reclaimable) {
            Owner::reclaimable("job")
        } else {
            Owner::labelled(format!("host-{host}"))
        };
        let options = Arc::new(LockOptions {
            ttl: random
                .pick(&self.ttls)
                .expect("every plan has times to live"),
            fixed: random.chance(20),
            reentrant: random.chance(40),
            owner: owner.expect("the label is short"),
            counter: self.counter,
            durability: None,
        });
        let (name, key) = (name.clone(), LockKey::new("sim", name));
        let key = key.expect("the namespace is short");
        Arc::new(LockSpec { name, key, options })
    }

    pub(crate) fn longest_ttl(&self) -> Duration {
        self.ttls.iter().max().copied().unwrap_or_default()
    }

    /// The longest time that a program asks for: a renewal by hand may want more than its lock has.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.longest_ttl() * 2
    }

    /// Returns the time that an engine is asked for when a program wants a renewal for this one.
    pub(crate) fn renewal(&self, wanted: Duration) -> Duration {
        match self.sabotage {
            Sabotage::RenewalsForLonger => wanted * 2,
            _ => wanted,
        }
    }

    pub(crate) fn longest_heartbeat(&self) -> Duration {
        heartbeat(self.longest_ttl())
    }

    /// How long a claim counts as alive after it asked.
    pub(crate) fn longest_window(&self) -> Duration {
        self.longest_heartbeat() * 12 / 5
    }

    pub(crate) fn keys(&self) -> Vec<LockKey> {
        let key = |name| LockKey::new("sim", name).expect("the namespace is short");
        self.names.iter().map(key).collect()
    }
}

impl Faults {
    fn new(random: &mut Random, sabotage: Sabotage, calm: bool) -> Self {
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
            slow_pushes: some(15),
            lost_pushes: some(20),
            broken_subscriptions: some(4),
            crashes: some(1),
            repeats: some(20),
            moves: some(4),
        };
        match sabotage {
            Sabotage::TokensFallBack => faults.flushes = 5,
            // Nothing but slow pushes.
            _ if sabotage.holds_long() => {
                faults = Self {
                    slow_pushes: 100,
                    ..Self::none()
                };
            }
            _ => {}
        }
        if calm {
            let (crashes, force_releases) = (faults.crashes, faults.force_releases);
            return Self {
                force_releases,
                crashes,
                ..Self::none()
            };
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
            slow_pushes: 0,
            lost_pushes: 0,
            broken_subscriptions: 0,
            crashes: 0,
            repeats: 0,
            moves: 0,
        }
    }
}

/// The default, twice; what the documentation has for clocks that chrony slews, and almost all that
/// may be set.
const MARGINS: [u32; 4] = [DRIFT_MARGIN, DRIFT_MARGIN, 90_000, 170_000];
pub(crate) const DRIFT_MARGIN: u32 = 2_000;

/// How often a run has a cluster, in per cent.
const CLUSTERS: u64 = 30;

/// Those of a cluster may be as far apart as nobody cares for them, and run at rates of their own.
fn clocks(random: &mut Random, sabotage: Sabotage) -> Vec<ServerClock> {
    let (least, most) = match sabotage.servers() {
        Some(bounds) => bounds,
        None if random.chance(CLUSTERS) => (2, 4),
        None => (1, 1),
    };
    let servers = random.between(least, most);
    let apart = random
        .pick(&[20_000, 3_000_000, 1_000_000_000])
        .unwrap_or(1);
    let clock = |server| ServerClock {
        origin_micros: 1_700_000_000_000_000
            + match sabotage {
                Sabotage::PushesMisnamed => 900_000 * server,
                _ if servers == 1 => random.below(1_000_000_000),
                _ => random.below(apart),
            },
        rate: if servers == 1 {
            1_000_000
        } else {
            random.between(999_100, 1_000_900)
        },
        slewing: None,
    };
    (0..servers).map(clock).collect()
}

/// In a cluster so many that each server has some.
fn names(random: &mut Random, clustered: bool) -> Vec<Name> {
    let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let count = if clustered {
        usize::try_from(random.between(2, 5)).unwrap_or(2)
    } else {
        1 + usize::from(random.chance(40))
    };
    let name = |name: &&str| Name::new(*name).expect("the name is short");
    all.iter().take(count).map(name).collect()
}

fn ttls(random: &mut Random, sabotage: Sabotage) -> Vec<Duration> {
    let millis = Duration::from_millis;
    match sabotage.ttl().unwrap_or_else(|| random.below(5)) {
        0 => vec![millis(100), millis(300)],
        1 => vec![millis(500)],
        2 => vec![millis(250), millis(1_000), millis(30_000)],
        3 => vec![millis(2_000)],
        5 => vec![millis(2_500)],
        _ => vec![millis(30_000)],
    }
}
