//! A seeded simulation of quorums: engines on hosts with clocks of their own, over three to seven
//! in-memory servers with clocks of their own, and a network that delays, loses, cuts and restores.
//! Servers freeze and act late, begin anew with a clock that is behind, and are out of reach; hosts
//! pause and crash; programs do anything at any time, free each other's locks, and take over their own. Servers lose their data, or go back to older ones;
//! but fewer than a majority within the time that a lease may live. Such a server may begin with a clock that is hours
//! behind, and that is set while the server may not vote.
//!
//! What must hold: no two hosts have a valid lease of one name at one true moment (I1), tokens grow
//! in the order in which leases begin (I2), a loss is told no later than the deadline (I4), nothing
//! remains (I6), in calm runs nobody is overtaken in line (I7), each call is answered once; and once
//! everything works again everybody who waits is served.
//!
//! A run follows from its seed alone. A failure prints it; `LEASEHOLD_SEED=123` then runs that one
//! with a trace, and `LEASEHOLD_SEEDS=100000` runs that many; sooner with `--release`.

#[path = "../simulation/book.rs"]
mod book;
mod checks;
#[path = "../simulation/clock.rs"]
mod clock;
mod controls;
mod end;
mod faults;
mod host;
mod losses;
mod network;
mod plan;
#[path = "../simulation/program.rs"]
mod program;
#[path = "../simulation/random.rs"]
mod random;
mod rolling;
#[path = "../simulation/seeds.rs"]
mod seeds;
mod server;
#[path = "../simulation/stats.rs"]
mod stats;
mod taken;
#[path = "../simulation/told.rs"]
mod told;
mod world;

use plan::Sabotage;
use world::World;

const SEEDS: u64 = 1_000;

/// Each of these must happen in some run, or the simulation does not see what it should.
const SEEN: [&str; 47] = [
    "granted by all",
    "granted by most",
    "granted by a bare majority",
    "raised",
    "short of a majority",
    "stood in line",
    "taken in again",
    "acquired",
    "renewed",
    "at risk",
    "released",
    "release expired",
    "lost: expired",
    "lost: shutdown",
    "cancelled",
    "cancelled in doubt",
    "told its place",
    "served in order",
    "host crashed",
    "paused",
    "cut",
    "a server was out of reach",
    "a server was frozen",
    "frozen server acted late",
    "a server's clock was set back",
    "came late",
    "executed after a reconnect",
    "push came",
    "push lost",
    "subscription broke",
    "a line was served to its end",
    "a server was flushed",
    "a server came back empty",
    "a server came back with old data",
    "a server came back with its data",
    "a server said that it forgot",
    "the clock of a server that forgot was set forward",
    "force-released",
    "lost: revoked",
    "reclaimed",
    "lost: superseded",
    "taken from a holder",
    "overtook those who wait",
    "a link was slow",
    "a link was one-sided",
    "told of a quarantine",
    "told that it is over",
];

#[test]
fn every_promise_is_kept() {
    let run = |seed, tracing| World::run(seed, Sabotage::None, tracing);
    if let Some((seeds, stats)) = seeds::run_all(SEEDS, run)
        && seeds >= SEEDS
    {
        for what in SEEN {
            assert!(stats.count(what) > 0, "never seen: {what}");
        }
    }
}

#[test]
fn a_seed_says_it_all() {
    for seed in 0..5 {
        let run = || World::run(seed, Sabotage::None, false);
        assert_eq!(run(), run(), "seed {seed}");
    }
}
