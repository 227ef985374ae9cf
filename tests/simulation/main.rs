//! A seeded simulation: engines on hosts with clocks of their own, over in-memory servers with clocks
//! of their own, one alone or a cluster, and a network that delays, loses and reconnects, with programs
//! that do anything at any time. Each step is checked against what `leasehold` promises (I1, I2 and
//! I4 to I7 of the design), that nobody starves, and that each operation goes to the server that has
//! its keys, as far as can be known.
//!
//! That dropping an acquisition is safe at any moment is part of it: programs cancel at random, and
//! at the end of each run, and neither a lock nor a place in line may remain of what was given up.
//! In calm runs, where nothing but clients fails, it must be gone at once, and nobody may wait for
//! longer than `drain` says, even if no push ever comes.
//!
//! A run follows from its seed alone. A failure prints it; `LEASEHOLD_SEED=123` then runs that one
//! with a trace, and `LEASEHOLD_SEEDS=100000` runs that many; sooner with `--release`.

mod boasts;
mod book;
mod checks;
mod clock;
mod controls;
mod drain;
mod faults;
mod handoffs;
mod host;
mod line;
mod network;
mod plan;
mod program;
mod pushes;
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

use plan::Sabotage;
use world::World;

const SEEDS: u64 = 10_000;

/// Each of these must happen in some run, or the simulation does not see what it should.
const SEEN: [&str; 55] = [
    "executed twice",
    "granted",
    "acquired",
    "renewed",
    "at risk",
    "released",
    "release expired",
    "reclaimed",
    "force-released",
    "deleted",
    "flushed",
    "failed over",
    "lost: expired",
    "lost: deleted",
    "lost: superseded",
    "lost: shutdown",
    "two leases at once after an operator's act",
    "came late",
    "executed after a reconnect",
    "message lost",
    "paused",
    "cancelled",
    "lost: revoked",
    "waited in line",
    "told its place",
    "lost its place",
    "the dead were passed over",
    "handed over",
    "handed over in the reply",
    "handed over unheard",
    "handed over to the dead",
    "push came",
    "push lost",
    "push to the dead",
    "told by another server",
    "knew at once",
    "subscribed",
    "subscription broke",
    "half-open subscription",
    "crashed",
    "left at once",
    "a line was served to its end",
    "a line was served without any push",
    "had its whole time",
    "told of a forced release at once",
    "told of what was missed at once",
    "asked a cluster",
    "asked for a slot that it could not name",
    "a server's clock was asked for",
    "a slot moved",
    "a lock moved with its slot",
    "sent on to another server",
    "keys were read",
    "heard of a change at once",
    "heard of a change in vain",
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
