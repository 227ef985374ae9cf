//! `cargo xtask bench`: what the lock costs. The measuring is done by a program of the tests,
//! which has options too: `cargo run --release -p leasehold-tests --bin bench -- --help`.

use anyhow::Result;
use clap::ValueEnum;

use crate::run::Cmd;
use crate::setup::Need;

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
}

pub(crate) fn main(benchmark: Benchmark) -> Result<()> {
    Need::Redis.ensure()?;
    let name = match benchmark {
        Benchmark::Roundtrip => "roundtrip",
        Benchmark::Handoff => "handoff",
        Benchmark::Many => "many",
        Benchmark::Pairs => "pairs",
    };
    let args = [
        "run",
        "--release",
        "--locked",
        "--quiet",
        "-p",
        "leasehold-tests",
        "--bin",
        "bench",
        "--",
        name,
    ];
    Cmd::cargo(&args).run()
}
