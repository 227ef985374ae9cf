//! The seeds of a test: its own number, or the ones that the environment names.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::stats::{Stats, Violation};

/// The number of seeds between two progress reports of the first thread.
const PROGRESS: u64 = 10_000;

/// A thread stops after this many seeds that break a promise.
const MOST_BROKEN: usize = 10;

/// Runs this many seeds, or as many as `LEASEHOLD_SEEDS` says, on all cores. Returns how many, and what they
/// saw; `None` if `LEASEHOLD_SEED` names a single seed, which runs with a trace. Panics with the seeds that
/// break a promise.
pub(crate) fn run_all(
    seeds: u64,
    run: impl Fn(u64, bool) -> Result<Stats, Violation> + Sync,
) -> Option<(u64, Stats)> {
    if let Some(seed) = variable("LEASEHOLD_SEED") {
        let result = run(seed, true);
        assert!(result.is_ok(), "seed {seed}: {result:#?}");
        return None;
    }
    let seeds = variable("LEASEHOLD_SEEDS").unwrap_or(seeds);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (stats, broken) = thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || run_every((first, threads), seeds, run)))
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
    Some((seeds, stats))
}

/// Runs one thread's share of the seeds. Returns what they saw, and the first seeds that broke a promise.
fn run_every(
    (first, step): (usize, usize),
    seeds: u64,
    run: &(impl Fn(u64, bool) -> Result<Stats, Violation> + Sync),
) -> (Stats, Vec<String>) {
    let (mut all, mut broken) = (Stats::default(), Vec::new());
    let first = u64::try_from(first).unwrap_or(0);
    for seed in (first..seeds).step_by(step) {
        if seed > 0 && seed % PROGRESS == 0 {
            println!("seed {seed} of {seeds}");
        }
        let run = || run(seed, false);
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
