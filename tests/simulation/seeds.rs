//! Which seeds are run: those of a test, or what the environment says.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::stats::{Stats, Violation};

/// So often the first thread says how far it is.
const PROGRESS: u64 = 10_000;

/// After so many seeds that break a promise a thread looks no further.
const MOST_BROKEN: usize = 10;

/// Runs so many seeds, or as many as `LEASEHOLD_SEEDS` says, on all cores; how many, and what was
/// seen. `None` if `LEASEHOLD_SEED` names the one to run, with a trace. Panics with the seeds that
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

/// One thread's share of the seeds: what was seen, and the first seeds that broke a promise.
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
