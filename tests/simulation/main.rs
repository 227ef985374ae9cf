//! A seeded simulation: engines on hosts with clocks of their own, over one in-memory server and
//! a network that delays, loses and reconnects, with programs that do anything at any time. Each
//! step is checked against what `leasehold` promises (I1 to I6 of the design).
//!
//! A run follows from its seed alone. A failure prints it; `LEASEHOLD_SEED=123` then runs that one
//! with a trace, and `LEASEHOLD_SEEDS=100000` runs that many.

mod book;
mod checks;
mod clock;
mod faults;
mod host;
mod network;
mod plan;
mod program;
mod random;
mod told;
mod world;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use checks::{Stats, Violation};
use plan::Sabotage;
use world::World;

const SEEDS: u64 = 10_000;

/// Each of these must happen in some run, or the simulation does not see what it should.
const SEEN: [&str; 21] = [
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
];

#[test]
fn every_promise_is_kept() {
    if let Some(seed) = variable("LEASEHOLD_SEED") {
        let result = World::run(seed, Sabotage::None, true);
        return assert!(result.is_ok(), "seed {seed}: {result:#?}");
    }
    let seeds = variable("LEASEHOLD_SEEDS").unwrap_or(SEEDS);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let stats = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || run_every(first, threads, seeds)))
            .collect();
        let mut all = Stats::default();
        for thread in threads {
            all.merge(
                &thread
                    .join()
                    .expect("a run with a failing seed prints it and panics"),
            );
        }
        all
    });
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

#[test]
fn a_server_that_acts_late_is_caught() {
    must_be_caught(Sabotage::NotAfterIgnored, "I6");
}

#[test]
fn a_program_that_goes_on_after_its_deadline_is_caught() {
    must_be_caught(Sabotage::DeadlinesIgnored, "I1");
}

#[test]
fn clocks_that_drift_apart_are_caught() {
    must_be_caught(Sabotage::SlowClocks, "I1");
}

#[test]
fn renewals_that_take_the_lock_again_are_caught() {
    must_be_caught(Sabotage::RenewalsTake, "I5");
}

#[test]
fn tokens_that_fall_back_are_caught() {
    must_be_caught(Sabotage::TokensFallBack, "I2");
}

#[test]
fn a_loss_that_is_told_late_is_caught() {
    must_be_caught(Sabotage::TicksWithheld, "I4");
}

#[test]
fn locks_that_are_not_given_back_are_caught() {
    must_be_caught(Sabotage::ReleasesForgotten, "I6");
}

/// The checks see a promise broken, within a few runs.
fn must_be_caught(sabotage: Sabotage, promise: &str) {
    let violations = (0..200).filter_map(|seed| World::run(seed, sabotage, false).err());
    let mut others = Vec::new();
    for violation in violations {
        if violation.promise == promise {
            return;
        }
        others.push(violation);
    }
    panic!("{sabotage:?} went unnoticed; instead: {others:#?}");
}

/// One thread's share of the seeds.
fn run_every(first: usize, step: usize, seeds: u64) -> Stats {
    let mut all = Stats::default();
    let first = u64::try_from(first).unwrap_or(0);
    for seed in (first..seeds).step_by(step) {
        let run = || World::run(seed, Sabotage::None, false);
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(stats)) => all.merge(&stats),
            Ok(Err(Violation {
                promise,
                at,
                message,
            })) => {
                panic!("LEASEHOLD_SEED={seed}: {promise} broken at {at} ns: {message}")
            }
            Err(panic) => {
                eprintln!("LEASEHOLD_SEED={seed}: the panic above");
                resume_unwind(panic)
            }
        }
    }
    all
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("the variable is a number"))
}
