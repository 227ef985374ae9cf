//! A seeded simulation: engines on hosts with clocks of their own, over in-memory servers with clocks
//! of their own, and a network that delays, loses, cuts and reconnects, with programs that do anything
//! at any time. The servers are one that is alone, those of a cluster, or the three to seven members of a
//! quorum. Each step is checked against what `leasehold` promises (I1, I2 and I4 to I8 of the design), that
//! nobody starves, and that each operation goes to the server that has its keys, as far as can be known.
//!
//! That dropping an acquisition is safe at any moment is part of it: programs cancel at random, and
//! at the end of each run, and neither a lock nor a place in line may remain of what was given up.
//! In calm runs, where nothing but clients fails, it must be gone at once, and nobody may wait for
//! longer than `drain` says, even if no push ever comes.
//!
//! The members of a quorum freeze and act late, are out of reach, lose their data, or go back to older
//! data; but fewer than a majority within the time that a lease may live. Such a member may begin with a
//! clock that is hours behind, and that is set while it may not vote. There no two hosts may have a valid
//! lease of one name at one true moment (I1), tokens grow in the order in which leases begin (I2), and in
//! calm runs nobody is overtaken in line (I7).
//!
//! A run follows from its seed alone. A failure prints it; `LEASEHOLD_SEED=123` then runs that one
//! with a trace, and `LEASEHOLD_SEEDS=100000` runs that many; sooner with `--release`.

mod boasts;
mod book;
mod checks;
mod clock;
mod controls;
mod drain;
mod end;
mod faults;
mod handoffs;
mod host;
mod line;
mod network;
mod plan;
mod program;
mod pushes;
mod quorum;
mod random;
mod readers;
mod sabotage;
mod seeds;
mod servers;
mod slewing;
mod stats;
mod taken;
mod told;
mod watch;
mod world;

use plan::Plan;
use random::Random;
use sabotage::Sabotage;
use world::World;

/// Each of these must happen in some run of each kind, or the simulation does not see what it should.
const SEEN: [&str; 22] = [
    "acquired",
    "renewed",
    "at risk",
    "released",
    "release expired",
    "reclaimed",
    "force-released",
    "failed over",
    "lost: expired",
    "lost: superseded",
    "lost: shutdown",
    "came late",
    "executed after a reconnect",
    "paused",
    "cancelled",
    "lost: revoked",
    "told its place",
    "push came",
    "push lost",
    "subscription broke",
    "crashed",
    "a line was served to its end",
];

/// The same of one server and of clusters.
const SEEN_AT_SERVERS: [&str; 27] = [
    "executed twice",
    "granted",
    "deleted",
    "flushed",
    "lost: deleted",
    "two leases at once after an operator's act",
    "message lost",
    "waited in line",
    "lost its place",
    "the dead were passed over",
    "handed over",
    "handed over in the reply",
    "handed over unheard",
    "handed over to the dead",
    "push to the dead",
    "told by another server",
    "knew at once",
    "subscribed",
    "half-open subscription",
    "left at once",
    "a line was served without any push",
    "had its whole time",
    "told of a forced release at once",
    "told of what was missed at once",
    "keys were read",
    "heard of a change at once",
    "heard of a change in vain",
];

/// The same of clusters.
const SEEN_AT_CLUSTERS: [&str; 6] = [
    "asked a cluster",
    "asked for a slot that it could not name",
    "a server's clock was asked for",
    "a slot moved",
    "a lock moved with its slot",
    "sent on to another server",
];

/// The same of quorums.
const SEEN_AT_QUORUMS: [&str; 25] = [
    "granted by all",
    "granted by most",
    "granted by a bare majority",
    "raised",
    "short of a majority",
    "stood in line",
    "taken in again",
    "cancelled in doubt",
    "served in order",
    "cut",
    "a server was out of reach",
    "a server was frozen",
    "frozen server acted late",
    "a server was flushed",
    "a server came back empty",
    "a server came back with old data",
    "a server came back with its data",
    "a server said that it forgot",
    "the clock of a server that forgot was set forward",
    "taken from a holder",
    "overtook those who wait",
    "a link was slow",
    "a link was one-sided",
    "told of a quarantine",
    "told that it is over",
];

#[test]
fn every_promise_is_kept_by_one_server() {
    keeps_every_promise(2_000, Plan::single, &[&SEEN_AT_SERVERS]);
}

#[test]
fn every_promise_is_kept_by_clusters() {
    keeps_every_promise(2_000, Plan::cluster, &[&SEEN_AT_SERVERS, &SEEN_AT_CLUSTERS]);
}

#[test]
fn every_promise_is_kept_by_quorums() {
    keeps_every_promise(1_000, Plan::quorum, &[&SEEN_AT_QUORUMS]);
}

fn keeps_every_promise(most: u64, plan: fn(&mut Random, Sabotage) -> Plan, seen: &[&[&str]]) {
    let run = |seed, tracing| World::run(plan, seed, Sabotage::None, tracing);
    if let Some((seeds, stats)) = seeds::run_all(most, run)
        && seeds >= most
    {
        for what in seen.iter().copied().flatten().chain(&SEEN) {
            assert!(stats.count(what) > 0, "never seen: {what}");
        }
    }
}

#[test]
fn a_seed_says_it_all() {
    for seed in 0..5 {
        for plan in [Plan::single, Plan::cluster, Plan::quorum] {
            let run = || World::run(plan, seed, Sabotage::None, false);
            assert_eq!(run(), run(), "seed {seed}");
        }
    }
}
