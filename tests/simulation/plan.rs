//! The plan of a run, drawn from its seed so that each seed stresses different parts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::engine::{Backlog, Engine, LockOptions, LockSpec, Settings};
use leasehold_engine::protocol::{ClientId, Counter, LockKey};
use leasehold_engine::{Name, Owner, Tick};

use crate::clock::{HostClock, MILLI, Moment, ServerClock};
use crate::drain::{heartbeat, nanos};
use crate::faults::Faults;
use crate::pushes::Subscription;
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::shared::Kind;

/// The servers that make up the store.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Topology {
    /// A lone server.
    Single,
    /// The nodes of a cluster; each has some of the names.
    Cluster,
    /// The members of a quorum; each has all names.
    Quorum,
}

/// The fate of pushes that no fault affects.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pushes {
    Come,
    /// They come through another server of a group, so the publishing server counts no subscriber.
    Uncounted,
    /// No push arrives, without notice.
    Lost,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent")]
pub(crate) struct Plan {
    pub(crate) topology: Topology,
    pub(crate) sabotage: Sabotage,
    pub(crate) hosts: usize,
    pub(crate) names: Vec<Name>,
    pub(crate) locks_per_host: u64,
    pub(crate) ttls: Vec<Duration>,
    /// How long a member of a quorum that forgot does not vote.
    pub(crate) longest: Duration,
    pub(crate) counter: Counter,
    /// The percentage of lock handles whose leases are not renewed.
    pub(crate) fixed: u64,
    /// The percentage of re-entrant handles.
    pub(crate) reentrant: u64,
    /// The percentage of handles whose owner reclaims its own leases, and the number of such owners. Two
    /// hosts with the same owner take over from one another.
    pub(crate) reclaimable: u64,
    pub(crate) owners: usize,
    /// True if the names are jobs: each handle claims a tick.
    pub(crate) jobs: bool,
    pub(crate) timeout: Duration,
    pub(crate) patience: Duration,
    /// The drift margin of the hosts, in parts per million.
    pub(crate) drift_margin: u32,
    /// True if the only faults are crashes of clients of a lone server or a cluster, so that every waiter
    /// must be served in time.
    pub(crate) calm: bool,
    pub(crate) pushes: Pushes,
    /// True if the server reports later expiries than it keeps: no host may rely on more than was asked for.
    pub(crate) boasts: bool,
    /// How often, in percent, a host hears that a lock may have changed. If above 0, it also hears of real
    /// changes.
    pub(crate) changes: u64,
    /// True if locks have a longest time, and names stay taken for a shortest time.
    pub(crate) ages: bool,
    /// True if programs pass leases on.
    pub(crate) passes: bool,
    /// How each shared name is shared. Other names are locks.
    pub(crate) kinds: BTreeMap<LockKey, Kind>,
    /// True if the waiters at the end are served before everything is given up.
    pub(crate) drains: bool,
    /// The shortest and longest delay of a slow push, in milliseconds.
    pub(crate) slow_push: (u64, u64),
    /// How long the program runs and faults last.
    pub(crate) chaos: Moment,
    /// The mean time between two acts of one host's program.
    pub(crate) pace: Moment,
    pub(crate) faults: Faults,
    /// The clock of each server.
    pub(crate) clocks: Vec<ServerClock>,
}

/// The plans of each kind of store.
impl Plan {
    /// How long a store remembers tokens at most; longer than any run.
    pub(crate) const LONG_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    pub(crate) fn single(random: &mut Random, sabotage: Sabotage) -> Self {
        Self::of_servers(Topology::Single, random, sabotage)
    }

    pub(crate) fn cluster(random: &mut Random, sabotage: Sabotage) -> Self {
        Self::of_servers(Topology::Cluster, random, sabotage)
    }

    fn of_servers(topology: Topology, random: &mut Random, sabotage: Sabotage) -> Self {
        let calm = sabotage.calm(topology).unwrap_or_else(|| random.chance(30));
        let mut faults = Faults::of_servers(random, sabotage, calm);
        let crowded = random.chance(20);
        let clocks = clocks_of_servers(topology, random, sabotage);
        // A cluster has so many names that each server has some.
        let names = if clocks.len() > 1 {
            names(usize::try_from(random.between(2, 5)).unwrap_or(2))
        } else {
            names(1 + usize::from(random.chance(40)))
        };
        let retention = match random.below(3) {
            0 => Duration::from_millis(20),
            1 => Duration::from_secs(1),
            _ => Self::LONG_RETENTION,
        };
        // A deletion also removes the last token, as a loss of data does.
        let keeps_data = faults.flushes == 0 && faults.deletions == 0;
        let dense = keeps_data && random.chance(40) || sabotage == Sabotage::TokensFallBack;
        let forgets = retention < Duration::from_secs(60) && !dense;
        // The new primary's clock may be behind the last token only if it knows that token. The same holds
        // for a server that a slot moves to.
        if forgets || faults.flushes > 0 || faults.deletions > 0 && random.chance(50) {
            (faults.failovers, faults.moves) = (0, 0);
        } else if faults.failovers + faults.moves > 0 {
            faults.deletions = 0;
        }
        let jobs = sabotage.jobs().unwrap_or_else(|| random.chance(25));
        let millis = Duration::from_millis;
        let slow = if sabotage.holds_long() { 20 } else { 1 };
        let hosts = if random.chance(50) {
            2
        } else {
            3 + usize::from(random.chance(40))
        };
        Self {
            topology,
            sabotage,
            hosts: hosts * if crowded { 3 } else { 1 },
            names,
            locks_per_host: random.between(1, 3),
            ttls: ttls(random, sabotage),
            longest: Duration::ZERO,
            counter: if dense {
                Counter::Dense
            } else if jobs {
                // The store must not forget a completed tick during the run.
                Counter::ClockFloor {
                    retention: Self::LONG_RETENTION,
                }
            } else {
                Counter::ClockFloor { retention }
            },
            fixed: 20,
            reentrant: if jobs { 0 } else { 40 },
            jobs,
            owners: 1,
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
            drift_margin: drift_margin(random, sabotage),
            calm,
            pushes: sabotage.pushes().unwrap_or(match random.below(5) {
                0 => Pushes::Lost,
                1 => Pushes::Uncounted,
                _ => Pushes::Come,
            }),
            boasts: random.chance(20),
            changes: random.pick(&[0, 2, 30]).unwrap_or(0),
            slow_push: if slow > 1 { (900, 1_200) } else { (100, 5_000) },
            ages: false,
            passes: false,
            kinds: BTreeMap::new(),
            drains: calm || random.chance(40),
            chaos: random.between(1_500, 4_500)
                * MILLI
                * if calm { random.between(1, 3) } else { slow },
            pace: random.between(25, 250) * MILLI * slow,
            faults,
            clocks,
        }
    }

    pub(crate) fn quorum(random: &mut Random, sabotage: Sabotage) -> Self {
        let calm = sabotage
            .calm(Topology::Quorum)
            .unwrap_or_else(|| random.chance(20));
        let faults = if calm {
            Faults::default()
        } else {
            Faults::of_quorum(random, sabotage.loses())
        };
        let millis = Duration::from_millis;
        let ttls = match random.below(4) {
            0 => vec![millis(500)],
            1 => vec![millis(300), millis(1_500)],
            2 => vec![millis(2_000)],
            _ => vec![millis(4_000)],
        };
        let slow = random.between(1, 3);
        let longest = ttls.iter().max().copied().unwrap_or_default() + millis(random.below(300));
        let reclaims = random.chance(30) || sabotage == Sabotage::ReclaimsAnyTenure;
        Self {
            topology: Topology::Quorum,
            sabotage,
            hosts: usize::try_from(random.between(2, 4)).unwrap_or(2),
            names: names(1 + usize::from(random.chance(25))),
            locks_per_host: random.between(1, 3),
            ttls,
            longest,
            // A quorum has no dense tokens.
            counter: Counter::ClockFloor {
                retention: Self::LONG_RETENTION,
            },
            fixed: 15,
            reentrant: 20,
            jobs: false,
            owners: 2,
            reclaimable: if reclaims && !calm { 60 } else { 0 },
            timeout: millis(random.between(150, 1_000)),
            patience: millis(random.between(500, 4_000)),
            drift_margin: drift_margin(random, sabotage),
            calm,
            pushes: if random.chance(85) {
                Pushes::Come
            } else {
                Pushes::Lost
            },
            boasts: false,
            changes: 0,
            ages: false,
            passes: false,
            kinds: BTreeMap::new(),
            drains: true,
            slow_push: (100, 5_000),
            chaos: random.between(2_000, 5_000) * MILLI * slow,
            pace: random.between(40, 250) * MILLI * slow,
            clocks: clocks_of_quorum(random, sabotage, faults.losses > 0),
            faults,
        }
    }

    /// Returns the plan of a quorum whose servers restart one after another, without other faults. Programs
    /// hold what they acquire.
    pub(crate) fn rolling(random: &mut Random) -> Self {
        let ttl = Duration::from_secs(4);
        // Clocks of servers that may forget are close to one another.
        let plan = Self::quorum(random, Sabotage::NoQuarantine);
        Self {
            sabotage: Sabotage::None,
            names: names(6),
            locks_per_host: 6,
            faults: Faults::default(),
            ttls: vec![ttl],
            longest: ttl,
            fixed: 0,
            reclaimable: 0,
            chaos: 0,
            ..plan
        }
    }
}

impl Plan {
    pub(crate) fn is_quorum(&self) -> bool {
        self.topology == Topology::Quorum
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.topology == Topology::Cluster
    }

    /// True if each name is at one server and every waiter must be served at once.
    pub(crate) fn is_prompt(&self) -> bool {
        self.calm && !self.is_quorum()
    }

    /// Returns the size of a majority.
    pub(crate) fn majority(&self) -> usize {
        self.clocks.len() / 2 + 1
    }

    pub(crate) fn clock(&self, random: &mut Random) -> HostClock {
        let mut clock = HostClock::within(self.drift_margin, random);
        if self.sabotage == Sabotage::SlowClocks {
            clock.rate = 900_000;
        }
        clock
    }

    /// Returns the servers in one host's order. Hosts need not list a quorum's members in the same order.
    pub(crate) fn list(&self, random: &mut Random) -> Vec<usize> {
        let mut list: Vec<_> = (0..self.clocks.len()).collect();
        if self.is_quorum() {
            for at in (1..list.len()).rev() {
                let below = u64::try_from(at + 1).unwrap_or(1);
                list.swap(at, usize::try_from(random.below(below)).unwrap_or(0));
            }
        }
        list
    }

    /// Returns one subscription for all servers, or one for each member of a quorum.
    pub(crate) fn subscriptions(&self) -> Vec<Subscription> {
        let members = if self.is_quorum() {
            self.clocks.len()
        } else {
            1
        };
        (0..members).map(Subscription::new).collect()
    }

    pub(crate) fn engine(&self, client: ClientId) -> Engine {
        let mut settings = Settings::new(client);
        settings.command_timeout = self.timeout;
        settings.patience = self.patience;
        settings.drift_margin = self.drift_margin;
        settings.clustered = self.is_cluster();
        if !self.is_quorum() {
            return Engine::new(settings);
        }
        settings.longest_ttl = self.longest;
        Engine::quorum(settings, self.clocks.len()).expect("an odd number of members")
    }

    /// The longest that a call may take if it does not wait for a lock. At a quorum each of its rounds may
    /// have to wait for a silent member.
    pub(crate) fn limit(&self) -> Duration {
        let rounds = if self.is_quorum() { 2 } else { 1 };
        self.patience + (3 * self.timeout + Duration::from_secs(1)) * rounds
    }

    /// Returns how late a host is told the time: less than the engine allows for at the shortest time to
    /// live, a twentieth of it.
    pub(crate) fn lateness(&self, random: &mut Random) -> Moment {
        let late = random.below(4 * MILLI);
        match self.sabotage {
            Sabotage::TicksWithheld => 500 * MILLI,
            _ => late * random.below(2),
        }
    }

    /// Returns the lock of a new handle. At a job it claims one of the last ticks that are due, of which a run has
    /// about a dozen.
    pub(crate) fn spec(&self, random: &mut Random, host: usize, now: Moment) -> Arc<LockSpec> {
        let name = random.below(u64::try_from(self.names.len()).unwrap_or(1));
        let name = &self.names[usize::try_from(name).unwrap_or(0)];
        let owner = if self.jobs {
            let due = 3 + 10 * now / self.chaos.max(1);
            let tick = Tick::new(due - random.below(3)).expect("a small tick is valid");
            Owner::runner(format!("host-{host}"), tick)
        } else if random.chance(self.reclaimable) {
            Owner::reclaimable(format!("job-{}", host % self.owners))
        } else {
            Owner::labelled(format!("host-{host}"))
        };
        let ttl = random.pick(&self.ttls);
        let ttl = ttl.expect("every plan has times to live");
        let (at_most, at_least) = self.ages_of(random, ttl);
        let owner = owner.expect("the label is short");
        let backlog = owner.tick().map(|tick| Backlog {
            first: 1,
            missed: tick - 1,
            again: false,
        });
        let (name, key) = (name.clone(), LockKey::new("sim", name));
        let key = key.expect("the namespace is short");
        let kind = self.kind(&key);
        // Only locks stay taken after a release, and then no waiter is sure to be served in time.
        let at_least = at_least.filter(|_| self.kinds.is_empty());
        let part = kind.map(|kind| kind.part(random, host));
        let (owner, strict) = part.unwrap_or((owner, false));
        let options = Arc::new(LockOptions {
            ttl,
            fixed: random.chance(self.fixed),
            reentrant: random.chance(self.reentrant) && kind.is_none(),
            owner,
            counter: self.counter,
            durability: None,
            at_most,
            at_least,
            backlog,
            max_line: None,
            strict,
        });
        Arc::new(LockSpec { name, key, options })
    }

    pub(crate) fn longest_ttl(&self) -> Duration {
        self.ttls.iter().max().copied().unwrap_or_default()
    }

    /// Returns the longest time that a program asks for: a manual renewal may want more than the lock's own
    /// time to live.
    pub(crate) fn longest_lease(&self) -> Duration {
        match self.topology {
            Topology::Quorum => self.longest,
            Topology::Single | Topology::Cluster => self.longest_ttl() * 2,
        }
    }

    /// Returns how long a quorum's lease lasts at most, by the slowest clock.
    pub(crate) fn longest_held(&self) -> Moment {
        nanos(self.longest) / 100 * 101 + 10 * MILLI
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

    /// Returns how long a claim counts as alive after a request.
    pub(crate) fn longest_window(&self) -> Duration {
        self.longest_heartbeat() * 12 / 5
    }

    pub(crate) fn keys(&self) -> Vec<LockKey> {
        let key = |name| LockKey::new("sim", name).expect("the namespace is short");
        self.names.iter().map(key).collect()
    }
}

/// The default, twice; the value that the documentation gives for clocks that chrony slews; and nearly the
/// largest allowed value.
const MARGINS: [u32; 4] = [DRIFT_MARGIN, DRIFT_MARGIN, 90_000, 170_000];
pub(crate) const DRIFT_MARGIN: u32 = 2_000;

fn drift_margin(random: &mut Random, sabotage: Sabotage) -> u32 {
    match sabotage {
        Sabotage::None => random.pick(&MARGINS).unwrap_or(DRIFT_MARGIN),
        _ => DRIFT_MARGIN,
    }
}

/// Returns the servers' clocks. Those of a cluster may be any distance apart and run at their own rates.
fn clocks_of_servers(
    topology: Topology,
    random: &mut Random,
    sabotage: Sabotage,
) -> Vec<ServerClock> {
    let servers = match (topology, sabotage) {
        (Topology::Single, _) => 1,
        (_, Sabotage::PushesMisnamed) => 2,
        _ => random.between(2, 4),
    };
    clocks(
        random,
        sabotage,
        (servers, &[20_000, 3_000_000, 1_000_000_000]),
    )
}

/// Returns the clocks of a quorum: any distance apart unless members may forget.
fn clocks_of_quorum(random: &mut Random, sabotage: Sabotage, loses: bool) -> Vec<ServerClock> {
    let servers = match random.below(100) {
        0..60 => 3,
        60..90 => 5,
        _ => 7,
    };
    let apart: &[u64] = if loses {
        &[200, 20_000, 200_000]
    } else {
        &[200, 20_000, 3_000_000, 1_000_000_000]
    };
    clocks(random, sabotage, (servers, apart))
}

/// Returns clocks such that each pair of a server and a host is within the drift margin.
fn clocks(
    random: &mut Random,
    sabotage: Sabotage,
    (servers, apart): (u64, &[u64]),
) -> Vec<ServerClock> {
    let apart = random.pick(apart).unwrap_or(1);
    let clock = |server| ServerClock {
        origin_micros: 1_700_000_000_000_000
            + match sabotage {
                Sabotage::PushesMisnamed => 900_000 * server,
                _ if servers == 1 => random.below(1_000_000_000),
                _ => random.below(apart),
            },
        rate: match sabotage {
            Sabotage::FastServers => 1_300_000,
            _ if servers == 1 => 1_000_000,
            _ => random.between(999_100, 1_000_900),
        },
        slewing: None,
    };
    (0..servers).map(clock).collect()
}

fn names(count: usize) -> Vec<Name> {
    let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
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
