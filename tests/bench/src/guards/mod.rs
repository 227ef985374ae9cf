//! The cost of the guards: a guarded write as a ratio to the same write without a guard, on the same store.

mod gate;
mod object;
mod redis;
mod sql;

use std::fs;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::stats::{median, number, spread};
use crate::{Options, Result};

/// The stores, in the order of measurement.
const STORES: [&str; 7] = [
    "gate", "redis", "postgres", "mariadb", "sqlite", "memory", "s3",
];
/// The least number of pairs in a round, however long they take. It is even, so that each kind of write is
/// first equally often.
const LEAST_PAIRS: usize = 10;
/// How much longer than its rounds a store may take: for its start, and for slow writes.
const SLACK: Duration = Duration::from_secs(120);
/// The most rows that a store has in the table.
const MOST_ROWS: u32 = 4;

/// The state of the measurement, and the table that it prints.
struct Bench {
    rounds: usize,
    round: Duration,
    control: bool,
}

/// Measures everything that the options ask for. Returns an error if a store does not finish in time.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let only = &options.only;
    if let Some(store) = only.iter().find(|store| !STORES.contains(&store.as_str())) {
        return Err(format!("--only: {store:?} is none of {STORES:?}").into());
    }
    let bench = Bench {
        rounds: options.rounds(),
        round: Duration::from_millis(options.millis),
        control: options.control,
    };
    warn_of_load();
    if bench.control {
        println!("control: guarded is the plain write too");
    }
    let (what, plain, guarded) = ("median of a write", "plain, µs", "guarded, µs");
    println!("{what:<42} {plain:>10} {guarded:>12}  ratio (of the rounds)");
    let limit = bench.round * (u32::try_from(bench.rounds)? + 1) * MOST_ROWS * 2 + SLACK;
    let wanted = |store: &&str| only.is_empty() || only.iter().any(|only| only == store);
    for store in STORES.into_iter().filter(wanted) {
        eprintln!("… {store}");
        // The databases' clients make the future large.
        let measured = timeout(limit, Box::pin(bench.measure(store))).await;
        measured.map_err(|_| format!("{store} was not done after {limit:?}"))?;
    }
    Ok(())
}

impl Bench {
    async fn measure(&self, store: &str) {
        match store {
            "gate" => gate::measure(self).await,
            "redis" => Box::pin(redis::measure(self)).await,
            "postgres" => sql::postgres(self).await,
            "mariadb" => sql::mariadb(self).await,
            "sqlite" => sql::sqlite(self).await,
            "memory" => object::memory(self).await,
            "s3" => object::s3(self).await,
            _ => unreachable!("all of STORES are here"),
        }
    }

    /// Prints one line of the table. Each kind of write returns how many microseconds it took.
    async fn compare(
        &self,
        what: &str,
        plain: impl AsyncFn() -> f64,
        guarded: impl AsyncFn() -> f64,
    ) {
        let [mut plains, mut guardeds, mut ratios] = [const { Vec::new() }; 3];
        for round in 0..=self.rounds {
            let [plain, guarded] = if self.control {
                self.round(&plain, &plain).await
            } else {
                self.round(&plain, &guarded).await
            };
            // The first round warms up.
            if round > 0 {
                plains.push(plain);
                guardeds.push(guarded);
                ratios.push(guarded / plain);
            }
        }
        let [plain, guarded] = [plains, guardeds].map(|times| number(median(&times)));
        println!("{what:<42} {plain:>10} {guarded:>12}  {}", spread(&ratios));
    }

    /// Runs pairs of writes until the time is over: plain, guarded, guarded, plain, and so on. So both kinds
    /// meet the effects of earlier writes (a warm cache, a dirty page, a busy core) equally. Returns the
    /// median of each.
    async fn round(
        &self,
        plain: &impl AsyncFn() -> f64,
        guarded: &impl AsyncFn() -> f64,
    ) -> [f64; 2] {
        let (mut plains, mut guardeds) = (Vec::new(), Vec::new());
        let began = Instant::now();
        while plains.len() < LEAST_PAIRS || plains.len() % 2 == 1 || began.elapsed() < self.round {
            if plains.len() % 2 == 0 {
                plains.push(plain().await);
                guardeds.push(guarded().await);
            } else {
                guardeds.push(guarded().await);
                plains.push(plain().await);
            }
            // Without this, writes that never wait would let no timer run, and so no time limit.
            tokio::task::yield_now().await;
        }
        [median(&plains), median(&guardeds)]
    }
}

/// Returns how many microseconds the work takes.
async fn micros(work: impl Future<Output = ()>) -> f64 {
    let began = Instant::now();
    work.await;
    began.elapsed().as_secs_f64() * 1e6
}

/// Warns of a busy machine: waiting for a processor takes many times as long as most writes.
fn warn_of_load() {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse().ok());
    let load: f64 = load.unwrap_or_default();
    if load > 0.5 {
        eprintln!("the machine is busy (its load is {load}), which blurs the ratios");
    }
}
