//! How a plain and a guarded write are compared, and how that is shown.

use std::fs;
use std::future::Future;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::options::{Options, STORES};
use crate::{gate, object, redis, sql};

/// How many pairs a round has at the least, however long they take. It is even, so that each kind of write
/// is first equally often.
const LEAST_PAIRS: usize = 10;
/// How much longer than its rounds a store may take: for its start, and for slow writes.
const SLACK: Duration = Duration::from_secs(120);
/// How many rows of the table a store has at the most.
const MOST_ROWS: u32 = 4;

/// The measuring, and the table that it prints.
pub(crate) struct Bench {
    options: Options,
}

impl Bench {
    pub(crate) fn new(options: Options) -> Self {
        Self { options }
    }

    /// Measures all that the options ask for. An error if a store does not finish in time.
    pub(crate) async fn run(&self) -> Result<(), String> {
        let Options { rounds, round, .. } = self.options;
        warn_of_load();
        if self.options.control {
            println!("control: guarded is the plain write too");
        }
        let (what, plain, guarded) = ("median of a write", "plain, µs", "guarded, µs");
        println!(
            "{what:<42} {plain:>10} {guarded:>12} {:>7}  of the rounds",
            "ratio"
        );
        let limit = round * (rounds + 1) * MOST_ROWS * 2 + SLACK;
        for store in STORES.into_iter().filter(|store| self.options.wants(store)) {
            eprintln!("… {store}");
            // The databases' clients make it large.
            let measured = timeout(limit, Box::pin(self.measure(store))).await;
            measured.map_err(|_| format!("{store} was not done after {limit:?}"))?;
        }
        Ok(())
    }

    async fn measure(&self, store: &str) {
        match store {
            "gate" => gate::measure(self).await,
            "redis" => redis::measure(self).await,
            "postgres" => sql::postgres(self).await,
            "mariadb" => sql::mariadb(self).await,
            "sqlite" => sql::sqlite(self).await,
            "memory" => object::memory(self).await,
            "s3" => object::s3(self).await,
            _ => unreachable!("all of STORES are here"),
        }
    }

    /// Prints one line of the table. Each kind of write returns how many microseconds it took.
    pub(crate) async fn compare(
        &self,
        what: &str,
        plain: impl AsyncFn() -> f64,
        guarded: impl AsyncFn() -> f64,
    ) {
        let rounds = if self.options.control {
            self.rounds(&plain, &plain).await
        } else {
            self.rounds(&plain, &guarded).await
        };
        let of = |pick: fn(&Round) -> f64| median(rounds.iter().map(pick).collect());
        let (plain, guarded) = (of(|round| round.plain), of(|round| round.guarded));
        let ratio = of(Round::ratio);
        let ratios = || rounds.iter().map(Round::ratio);
        let lowest = ratios().fold(f64::INFINITY, f64::min);
        let highest = ratios().fold(0.0, f64::max);
        println!(
            "{what:<42} {:>10} {:>12} {ratio:>7.2}  {lowest:.2} to {highest:.2}",
            figure(plain),
            figure(guarded),
        );
    }

    async fn rounds(
        &self,
        plain: &impl AsyncFn() -> f64,
        guarded: &impl AsyncFn() -> f64,
    ) -> Vec<Round> {
        let mut rounds = Vec::new();
        for number in 0..=self.options.rounds {
            let round = self.round(plain, guarded).await;
            // The first round warms up.
            if number > 0 {
                rounds.push(round);
            }
        }
        rounds
    }

    /// Pairs of writes until the time is over: plain, guarded, guarded, plain, and so on. So both kinds
    /// meet alike what a write leaves behind (a warm cache, a dirty page, a busy core).
    async fn round(&self, plain: &impl AsyncFn() -> f64, guarded: &impl AsyncFn() -> f64) -> Round {
        let (mut plains, mut guardeds) = (Vec::new(), Vec::new());
        let began = Instant::now();
        while plains.len() < LEAST_PAIRS
            || plains.len() % 2 == 1
            || began.elapsed() < self.options.round
        {
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
        Round {
            plain: median(plains),
            guarded: median(guardeds),
        }
    }
}

/// The medians of a round's writes, in microseconds.
struct Round {
    plain: f64,
    guarded: f64,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.guarded / self.plain
    }
}

/// How many microseconds the work takes.
pub(crate) async fn micros(work: impl Future<Output = ()>) -> f64 {
    let began = Instant::now();
    work.await;
    began.elapsed().as_secs_f64() * 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Waiting for a processor takes many times as long as most writes.
fn warn_of_load() {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse().ok());
    let load: f64 = load.unwrap_or_default();
    if load > 0.5 {
        eprintln!("the machine is busy (its load is {load}), which blurs the ratios");
    }
}

/// A figure with three digits at the least.
fn figure(micros: f64) -> String {
    let digits = match micros {
        ..1.0 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{micros:.digits$}")
}
