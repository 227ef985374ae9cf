//! `cargo xtask bench`: what the lock costs. The measuring is done by a program of the tests.

use anyhow::Result;
use clap::ValueEnum;

use crate::run::Cmd;
use crate::setup::Need;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Benchmark {
    /// A sequential acquire and release, as a ratio to two bare round trips.
    Roundtrip,
    /// Acquire and release on distinct names by 1 to 256 callers, as a ratio to bare script calls.
    Pairs,
    /// The bytes that each held lease takes in the process.
    Memory,
}

pub(crate) fn main(benchmark: Benchmark) -> Result<()> {
    Need::Redis.ensure()?;
    let name = match benchmark {
        Benchmark::Roundtrip => "roundtrip",
        Benchmark::Pairs => "pairs",
        Benchmark::Memory => "memory",
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
