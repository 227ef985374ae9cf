//! A seeded simulation of engines on hosts, over in-memory servers and a faulty network.
//!
//! Each host and each server has its own clock. The network delays, loses, cuts and reconnects, and the
//! programs do anything at any time. The servers are a lone server, the nodes of a cluster, or the three to
//! seven members of a quorum. Each step is checked against the promises of `leasehold` (I1, I2 and I4 to I8
//! of the design). No waiter may starve, and each operation must go to the server that has its keys, as far
//! as that can be known.
//!
//! Dropping an acquisition must be safe at any moment. So programs cancel at random and at the end of each
//! run, and what was given up may leave neither a lock nor a place in line. In calm runs, where only clients
//! fail, it must be gone at once, and no waiter may wait for longer than `drain` says, even if no push ever
//! arrives.
//!
//! The members of a quorum freeze and act late, are out of reach, lose their data or return to older data,
//! but fewer than a majority within the time that a lease may live. Such a member may begin with a clock that
//! is hours behind and that is set while it may not vote. For a quorum this is checked:
//! 1. No two hosts have a valid lease of one name at one true moment (I1).
//! 2. Tokens grow in the order in which leases begin (I2).
//! 3. In calm runs no waiter is overtaken in line (I7).
//!
//! Names may also be shared: see [`shared`].
//!
//! A run follows from its seed alone, which a failure prints. `LEASEHOLD_SEED=123` runs that seed with a
//! trace; `LEASEHOLD_SEEDS=100000` runs that many, faster with `--release`.

mod ages;
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
mod passes;
mod plan;
mod program;
mod pushes;
mod quorum;
// The library of the tests has it, too. Depending on that would compile a Redis client.
#[path = "../src/random.rs"]
#[expect(unreachable_pub, reason = "that library exports it")]
mod random;
mod readers;
mod sabotage;
mod seeds;
mod servers;
mod shared;
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

/// Events that must happen in some run of each kind; otherwise the simulation misses what it should see.
const SEEN: [&str; 24] = [
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
    "asked to yield",
    "told that it is wanted",
];

/// Events that must happen in some run of a lone server or a cluster.
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

/// Events that must happen in some run of a cluster.
const SEEN_AT_CLUSTERS: [&str; 6] = [
    "asked a cluster",
    "asked for a slot that it could not name",
    "a server's clock was asked for",
    "a slot moved",
    "a lock moved with its slot",
    "sent on to another server",
];

/// Events that must happen in some run of locks with ages at a lone server or a cluster.
const SEEN_WITH_AGES: [&str; 3] = [
    "lost: overheld",
    "kept a name",
    "a name was free after its age",
];

/// Events that must happen in some run whose programs pass leases on.
const SEEN_WITH_PASSES: [&str; 5] = [
    "passed on",
    "accepted",
    "accepted again",
    "a ticket was refused",
    "lost: overheld",
];

/// Events that must happen in some run of shared names.
const SEEN_WITH_PARTS: [&str; 20] = [
    "granted a part",
    "several permits were valid",
    "a writer was admitted",
    "a writer became a reader",
    "told of the last writer",
    "told of no writer",
    "resized",
    "shrank below what is held",
    "told of another capacity",
    "refused for the capacity",
    "a permit was ended by force",
    "a part was handed over",
    "handed over",
    "handed over in the reply",
    "a waiter that never fits left",
    "the dead were passed over",
    "knew at once",
    "all of a name was taken in the end",
    "lost: expired",
    "lost: overheld",
];

/// Events that must happen in some run of a quorum.
const SEEN_AT_QUORUMS: [&str; 26] = [
    "granted by all",
    "granted by most",
    "granted by a bare majority",
    "raised",
    "short of a majority",
    "stood in line",
    "taken in again",
    "cancelled in doubt",
    "served in order",
    "missed its turn",
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
    keeps_every_promise(1_000, Plan::single, &[&SEEN_AT_SERVERS]);
}

#[test]
fn every_promise_is_kept_by_clusters() {
    keeps_every_promise(1_000, Plan::cluster, &[&SEEN_AT_SERVERS, &SEEN_AT_CLUSTERS]);
}

#[test]
fn every_promise_is_kept_by_quorums() {
    keeps_every_promise(500, Plan::quorum, &[&SEEN_AT_QUORUMS]);
}

#[test]
fn ages_are_kept_by_servers_and_clusters() {
    for plan in [Plan::aged, Plan::aged_cluster] {
        sees(300, plan, &SEEN_WITH_AGES);
    }
}

#[test]
fn leases_are_passed_on_once_by_servers_and_clusters() {
    for plan in [Plan::passing, Plan::passing_cluster] {
        sees(300, plan, &SEEN_WITH_PASSES);
    }
}

#[test]
fn shared_names_keep_their_promises_at_servers_and_clusters() {
    for plan in [Plan::sharing, Plan::sharing_cluster] {
        sees(90, plan, &SEEN_WITH_PARTS);
    }
}

#[test]
fn ages_are_kept_by_quorums() {
    let seen = ["lost: overheld", "served in order after a name was kept"];
    sees(200, Plan::aged_quorum, &seen);
}

fn keeps_every_promise(most: u64, plan: fn(&mut Random, Sabotage) -> Plan, seen: &[&[&str]]) {
    let seen: Vec<_> = seen
        .iter()
        .copied()
        .flatten()
        .chain(&SEEN)
        .copied()
        .collect();
    sees(most, plan, &seen);
}

/// Runs many seeds, in which all of this must happen.
fn sees(most: u64, plan: fn(&mut Random, Sabotage) -> Plan, seen: &[&str]) {
    let run = |seed, tracing| World::run(plan, seed, Sabotage::None, tracing);
    if let Some((seeds, stats)) = seeds::run_all(most, run)
        && seeds >= most
    {
        for what in seen {
            assert!(stats.count(what) > 0, "never seen: {what}");
        }
    }
}

#[test]
fn a_run_follows_from_its_seed() {
    for seed in 0..5 {
        for plan in [Plan::single, Plan::cluster, Plan::quorum, Plan::sharing] {
            let run = || World::run(plan, seed, Sabotage::None, false);
            assert_eq!(run(), run(), "seed {seed}");
        }
    }
}
