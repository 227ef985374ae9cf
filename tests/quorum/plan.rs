//! What a run is like: drawn from its seed, so that each seed stresses something else.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{LockOptions, LockSpec, Settings};
use leasehold::protocol::{ClientId, Counter, LockKey};
use leasehold::{Name, Owner};

use crate::clock::{HostClock, MILLI, Moment, ServerClock};
use crate::random::Random;

/// A promise broken on purpose, to see that the checks notice.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sabotage {
    /// None: the promises must hold.
    None,
    /// Programs go on for as long as any server still has their lease.
    LatestDeadline,
    /// Renewals raise no counter, and say so of none.
    NothingRaised,
    /// A server takes what a host asks it for anew for what it gave back before.
    ReleasesMixedUp,
    /// The servers' clocks run faster than the drift margin allows for.
    FastServers,
    /// No release reaches a server, and all are confirmed.
    ReleasesForgotten,
    /// The servers act however late a command comes.
    NotAfterIgnored,
    /// The host is told of time half a second late.
    TicksWithheld,
    /// Each server hands its lock to whoever came last.
    LastFirst,
    /// A server that forgot says that it did so long ago.
    NoQuarantine,
    /// The others say of a server that forgot for how long it has been there by its own clock.
    OneClock,
    /// What a server forgot it only says to those who connect.
    NothingChecked,
    /// A server that begins anew with old data takes itself for the one before.
    ProcessesMixedUp,
    /// A forced release frees whoever has the lock by then.
    ForcesAnyTenure,
    /// An owner takes the lock from whoever has it.
    ReclaimsAnyTenure,
}

impl Sabotage {
    /// Whether nothing else may go wrong for it to show, or must.
    fn calm(self) -> Option<bool> {
        match self {
            Self::None => None,
            Self::LastFirst | Self::ReleasesForgotten => Some(true),
            _ => Some(false),
        }
    }

    /// Whether servers have to forget for it to show.
    fn loses(self) -> bool {
        matches!(
            self,
            Self::NoQuarantine | Self::OneClock | Self::NothingChecked | Self::ProcessesMixedUp
        )
    }
}

/// Chances of faults, in per cent of what they may happen to; 0 turns one off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) slow: u64,
    pub(crate) stall: u64,
    pub(crate) lost_requests: u64,
    pub(crate) lost_replies: u64,
    pub(crate) refusals: u64,
    /// Of one host's link to one server.
    pub(crate) cuts: u64,
    pub(crate) black_holes: u64,
    /// A server cannot be reached by anybody for a while.
    pub(crate) outages: u64,
    /// A server does nothing for a while, and then all that came meanwhile.
    pub(crate) freezes: u64,
    /// A server's clock is set back.
    pub(crate) steps_back: u64,
    /// A server forgets what it had, or goes back to what it had before.
    pub(crate) losses: u64,
    /// One that comes back empty begins with a clock that is behind, which is set while it may not vote.
    pub(crate) late_clocks: u64,
    pub(crate) pauses: u64,
    pub(crate) crashes: u64,
    pub(crate) force_releases: u64,
    pub(crate) slow_pushes: u64,
    pub(crate) lost_pushes: u64,
    pub(crate) broken_subscriptions: u64,
    pub(crate) bad_link: Option<BadLink>,
}

/// A link to one server that is bad for as long as things go wrong.
#[derive(Copy, Clone, Debug)]
pub(crate) struct BadLink {
    /// Whose; that of all hosts, if `None`.
    host: Option<usize>,
    server: usize,
    /// How much longer each way takes.
    slower: Moment,
    /// Requests come through, and nothing comes back.
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

    fn is(&self, host: usize, server: usize) -> bool {
        self.server == server && self.host.is_none_or(|own| own == host)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) sabotage: Sabotage,
    pub(crate) hosts: usize,
    pub(crate) names: Vec<Name>,
    pub(crate) locks_per_host: u64,
    pub(crate) ttls: Vec<Duration>,
    /// For so long a server that forgot does not vote.
    pub(crate) longest: Duration,
    pub(crate) counter: Counter,
    /// How many in a hundred have leases that are not renewed.
    pub(crate) fixed: u64,
    /// How many in a hundred have an owner who takes over what is its own.
    pub(crate) reclaimable: u64,
    pub(crate) timeout: Duration,
    pub(crate) patience: Duration,
    /// The drift margin of the hosts, in parts per million.
    pub(crate) drift_margin: u32,
    /// Nothing goes wrong, so that everybody must be served in order.
    pub(crate) calm: bool,
    /// Whether servers tell anything without being asked.
    pub(crate) pushes: bool,
    /// How long the program runs and things go wrong.
    pub(crate) chaos: Moment,
    /// The mean time between two acts of one host's program.
    pub(crate) pace: Moment,
    pub(crate) faults: Faults,
    /// Of each server.
    pub(crate) clocks: Vec<ServerClock>,
}

impl Plan {
    pub(crate) fn new(random: &mut Random, sabotage: Sabotage) -> Self {
        let calm = sabotage.calm().unwrap_or_else(|| random.chance(20));
        let faults = if calm {
            Faults::default()
        } else {
            Faults::new(random, sabotage.loses())
        };
        let millis = Duration::from_millis;
        let ttls = match random.below(4) {
            0 => vec![millis(500)],
            1 => vec![millis(300), millis(1_500)],
            2 => vec![millis(2_000)],
            _ => vec![millis(4_000)],
        };
        let names: &[&str] = if random.chance(25) {
            &["a", "b"]
        } else {
            &["a"]
        };
        let name = |name: &&str| Name::new(*name).expect("the name is short");
        let slow = random.between(1, 3);
        let longest = ttls.iter().max().copied().unwrap_or_default() + millis(random.below(300));
        let clocks = clocks(random, (sabotage, faults.losses > 0));
        let reclaims = random.chance(30) || sabotage == Sabotage::ReclaimsAnyTenure;
        Self {
            longest,
            sabotage,
            hosts: usize::try_from(random.between(2, 4)).unwrap_or(2),
            names: names.iter().map(name).collect(),
            locks_per_host: random.between(1, 3),
            ttls,
            // A quorum has no dense tokens.
            counter: Counter::ClockFloor {
                retention: Duration::from_secs(7 * 24 * 60 * 60),
            },
            fixed: 15,
            reclaimable: if reclaims && !calm { 60 } else { 0 },
            timeout: millis(random.between(150, 1_000)),
            patience: millis(random.between(500, 4_000)),
            drift_margin: match sabotage {
                Sabotage::None => random.pick(&MARGINS).unwrap_or(DRIFT_MARGIN),
                _ => DRIFT_MARGIN,
            },
            calm,
            pushes: random.chance(85),
            chaos: random.between(2_000, 5_000) * MILLI * slow,
            pace: random.between(40, 250) * MILLI * slow,
            faults,
            clocks,
        }
    }

    /// Nothing goes wrong, except that servers restart one after another; and what is acquired is held.
    pub(crate) fn rolling(random: &mut Random) -> Self {
        let ttl = Duration::from_secs(4);
        let name = |name| Name::new(name).expect("the name is short");
        // Clocks of servers that may forget are not far apart.
        let plan = Self::new(random, Sabotage::NoQuarantine);
        Self {
            sabotage: Sabotage::None,
            names: ["a", "b", "c", "d", "e", "f"].map(name).to_vec(),
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

    /// Of so many members one is enough for a majority with the others.
    pub(crate) fn majority(&self) -> usize {
        self.clocks.len() / 2 + 1
    }

    pub(crate) fn clock(&self, random: &mut Random) -> HostClock {
        HostClock::within(self.drift_margin, random)
    }

    /// The servers as one host lists them: nobody has to list them in the order of another.
    pub(crate) fn list(&self, random: &mut Random) -> Vec<usize> {
        let mut list: Vec<_> = (0..self.clocks.len()).collect();
        for at in (1..list.len()).rev() {
            let below = u64::try_from(at + 1).unwrap_or(1);
            list.swap(at, usize::try_from(random.below(below)).unwrap_or(0));
        }
        list
    }

    pub(crate) fn settings(&self, client: ClientId) -> Settings {
        let mut settings = Settings::new(client);
        settings.command_timeout = self.timeout;
        settings.patience = self.patience;
        settings.drift_margin = self.drift_margin;
        settings.longest_ttl = self.longest;
        settings
    }

    /// How late a host is told the time: less than what the engine allows for.
    pub(crate) fn lateness(&self, random: &mut Random) -> Moment {
        let late = random.below(4 * MILLI) * random.below(2);
        match self.sabotage {
            Sabotage::TicksWithheld => 500 * MILLI,
            _ => late,
        }
    }

    pub(crate) fn spec(&self, random: &mut Random, host: usize) -> Arc<LockSpec> {
        let all: Vec<_> = self.names.iter().collect();
        let name = random.pick(&all).expect("every plan has a name");
        let owner = if random.chance(self.reclaimable) {
            // Two that are alive with the same owner take over from one another.
            Owner::reclaimable(format!("job-{}", host % 2))
        } else {
            Owner::labelled(format!("host-{host}"))
        };
        let options = Arc::new(LockOptions {
            ttl: random
                .pick(&self.ttls)
                .expect("every plan has times to live"),
            fixed: random.chance(self.fixed),
            reentrant: random.chance(20),
            owner: owner.expect("the label is short"),
            counter: self.counter,
            durability: None,
        });
        let (name, key) = (name.clone(), LockKey::new("sim", name));
        let key = key.expect("the namespace is short");
        Arc::new(LockSpec { name, key, options })
    }

    /// The longest time that a program asks for: a renewal by hand may want more than its lock has.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.longest
    }

    /// Returns the time that an engine is asked for when a program wants a renewal for this one.
    #[expect(
        clippy::unused_self,
        reason = "the other simulation does that wrong on purpose"
    )]
    pub(crate) fn renewal(&self, wanted: Duration) -> Duration {
        wanted
    }

    pub(crate) fn keys(&self) -> Vec<LockKey> {
        let key = |name| LockKey::new("sim", name).expect("the namespace is short");
        self.names.iter().map(key).collect()
    }
}

impl Faults {
    fn new(random: &mut Random, must_forget: bool) -> Self {
        let losses = if must_forget || random.chance(40) {
            3
        } else {
            0
        };
        let cutting = if random.chance(30) { 6 } else { 1 };
        let mut some = |percent| if random.chance(50) { percent } else { 0 };
        Self {
            slow: some(10),
            stall: some(1),
            lost_requests: some(4),
            lost_replies: some(6),
            refusals: some(3),
            cuts: some(2) * cutting,
            black_holes: some(2),
            outages: some(2),
            freezes: some(2),
            // Tokens begin at the clock where they were forgotten.
            steps_back: if losses > 0 { 0 } else { some(1) },
            losses,
            late_clocks: some(60).max(if must_forget { 100 } else { 0 }),
            pauses: some(3),
            crashes: some(1),
            force_releases: some(4),
            slow_pushes: some(15),
            lost_pushes: some(20),
            broken_subscriptions: some(3),
            bad_link: random.chance(30).then(|| BadLink::new(random)),
        }
    }

    /// How much longer each way of this link takes.
    pub(crate) fn slower(&self, host: usize, server: usize) -> Moment {
        let bad = self.bad_link.filter(|bad| bad.is(host, server));
        bad.map_or(0, |bad| bad.slower)
    }

    /// Whether nothing comes back on this link.
    pub(crate) fn is_one_sided(&self, host: usize, server: usize) -> bool {
        let mut bad = self.bad_link.iter();
        bad.any(|bad| bad.one_sided && bad.is(host, server))
    }
}

/// The default, twice; what the documentation has for clocks that chrony slews, and almost all that
/// may be set.
const MARGINS: [u32; 4] = [DRIFT_MARGIN, DRIFT_MARGIN, 90_000, 170_000];
const DRIFT_MARGIN: u32 = 2_000;

/// As far apart as nobody cares for; each pair of a server and a host is within the drift margin.
fn clocks(random: &mut Random, (sabotage, loses): (Sabotage, bool)) -> Vec<ServerClock> {
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
    let apart = random.pick(apart).unwrap_or(1);
    let clock = |_| ServerClock {
        origin_micros: 1_700_000_000_000_000 + random.below(apart),
        rate: match sabotage {
            Sabotage::FastServers => 1_300_000,
            _ => random.between(999_100, 1_000_900),
        },
        slewing: None,
    };
    (0..servers).map(clock).collect()
}
