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
mod servers;
mod slewing;
mod taken;
mod told;
mod watch;
mod world;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use checks::{Stats, Violation};
use plan::Sabotage;
use world::World;

const SEEDS: u64 = 10_000;

/// After so many seeds that break a promise a thread looks no further.
const MOST_BROKEN: usize = 10;

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
    if let Some(seed) = variable("LEASEHOLD_SEED") {
        let result = World::run(seed, Sabotage::None, true);
        return assert!(result.is_ok(), "seed {seed}: {result:#?}");
    }
    let seeds = variable("LEASEHOLD_SEEDS").unwrap_or(SEEDS);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (stats, broken) = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || run_every(first, threads, seeds)))
            .collect();
        let (mut all, mut broken) = (Stats::default(), Vec::new());
        for thread in threads {
            let (stats, more) = thread.join().expect("a run's panic is caught");
            all.merge(&stats);
            broken.extend(more);
        }
        (all, broken)
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    println!("{seeds} seeds: {stats:#?}");
    if seeds >= SEEDS {
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

/// One thread's share of the seeds: what was seen, and the first seeds that broke a promise.
fn run_every(first: usize, step: usize, seeds: u64) -> (Stats, Vec<String>) {
    let (mut all, mut broken) = (Stats::default(), Vec::new());
    let first = u64::try_from(first).unwrap_or(0);
    for seed in (first..seeds).step_by(step) {
        let run = || World::run(seed, Sabotage::None, false);
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(stats)) => all.merge(&stats),
            Ok(Err(Violation {
                promise,
                at,
                message,
            })) => broken.push(format!(
                "LEASEHOLD_SEED={seed}: {promise} broken at {at} ns: {message}"
            )),
            Err(_) => broken.push(format!("LEASEHOLD_SEED={seed}: a panic, see above")),
        }
        if broken.len() >= MOST_BROKEN {
            break;
        }
    }
    (all, broken)
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("the variable is a number"))
}
