//! `cargo xtask bench`: what the lock costs. The measuring is done by a program of the tests,
//! which has options of its own.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::npm;
use crate::package;
use crate::run::Cmd;
use crate::setup::Need;

#[derive(Args)]
pub(crate) struct Options {
    /// What to measure.
    benchmark: Benchmark,
    /// Options of the benchmark: `--rounds N`, `--leases N`, `--ttl SECONDS`, … (`-- --help` lists
    /// them all).
    #[arg(last = true)]
    options: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Benchmark {
    /// A sequential acquire and release, as a ratio to two bare round trips.
    Roundtrip,
    /// From a release to the next waiter's lease, as a ratio to one PING; 2 and 16 contenders.
    Handoff,
    /// 100,000 leases held for 30 s: script calls, CPU and bytes of memory for each.
    Many,
    /// Acquire and release on distinct names by 1 to 256 callers, as a ratio to bare script
    /// calls, to `SET NX PX` with a compare-and-delete, and to redis-benchmark with those.
    Pairs,
    /// A write under each guard, as a ratio to the same write without.
    Guards,
    /// The npm package beside redlock, redis-semaphore and bare commands on ioredis: pairs of
    /// acquire and release, handoff, CPU, sizes.
    Node,
}

const NODE: &str = "bindings/node/bench";

pub(crate) fn main(options: &Options) -> Result<()> {
    Need::Redis.ensure()?;
    let (package, program, name) = match options.benchmark {
        Benchmark::Roundtrip => ("leasehold-tests", "bench", Some("roundtrip")),
        Benchmark::Handoff => ("leasehold-tests", "bench", Some("handoff")),
        Benchmark::Many => ("leasehold-tests", "bench", Some("many")),
        Benchmark::Pairs => ("leasehold-tests", "bench", Some("pairs")),
        Benchmark::Guards => ("leasehold-guard-tests", "overhead", None),
        Benchmark::Node => return node(&options.options),
    };
    if matches!(options.benchmark, Benchmark::Guards) {
        Need::Postgres.ensure()?;
        Need::MariaDb.ensure()?;
        Need::Venv.ensure()?;
    }
    let run = ["run", "--release", "--locked", "--quiet"];
    let mut args = Vec::from(run);
    args.extend(["-p", package, "--bin", program, "--"]);
    args.extend(name);
    args.extend(options.options.iter().map(String::as_str));
    Cmd::cargo(&args).run()
}

/// Makes the package as it is shipped, and measures that.
fn node(options: &[String]) -> Result<()> {
    if !options.iter().any(|option| option == "--help") {
        package::main()?;
        npm::install(NODE)?;
    }
    let mut args = vec!["main.mjs"];
    args.extend(options.iter().map(String::as_str));
    Cmd::new("node", &args).at(NODE).run()
}
