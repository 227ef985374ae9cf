//! `cargo xtask bench`: what the lock costs. The measuring is done by a program of the tests,
//! which has options of its own.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::npm;
use crate::package;
use crate::peers;
use crate::report;
use crate::run::{Cmd, in_release};
use crate::setup::Need;

#[derive(Args)]
pub(crate) struct Options {
    /// What to measure.
    benchmark: Benchmark,
    /// `report`: less of everything, in under ten minutes once the peers are built.
    #[arg(long)]
    quick: bool,
    /// `report`: put the main table and one plot into README.md.
    #[arg(long)]
    readme: bool,
    /// Options of the benchmark: `--rounds N`, `--leases N`, `--ttl SECONDS`, … (`-- --help` lists
    /// them all).
    #[arg(last = true, value_name = "OPTIONS")]
    rest: Vec<String>,
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
    /// Acquire and release at 3 and 5 servers, as a ratio to one of them, and beside redlock in Node and
    /// redsync in Go.
    Quorum,
    /// Pairs and handoffs by TLS and on a cluster, as ratios to a plain server; the first lease in round trips.
    Topologies,
    /// What the nodes of a cluster of 3, 6 and 12 masters do for one handoff: bytes, processor time, and the
    /// messages from node to node.
    ClusterHandoff,
    /// A write under each guard, as a ratio to the same write without.
    Guards,
    /// The npm package beside redlock, redis-semaphore and bare commands on ioredis: pairs of
    /// acquire and release, handoff, CPU, sizes.
    Node,
    /// All of it beside its peers in Rust, Node, Java, Go and Python, whose toolchains are there: Markdown,
    /// JSON and plots in target/bench. What the peers need is fetched from the package registries.
    Report,
}

pub(crate) fn main(options: &Options) -> Result<()> {
    Need::Redis.ensure()?;
    let (package, program, name) = match options.benchmark {
        Benchmark::Roundtrip => ("leasehold-tests", "bench", Some("roundtrip")),
        Benchmark::Handoff => ("leasehold-tests", "bench", Some("handoff")),
        Benchmark::Many => ("leasehold-tests", "bench", Some("many")),
        Benchmark::Pairs => ("leasehold-tests", "bench", Some("pairs")),
        Benchmark::Quorum => ("leasehold-tests", "bench", Some("quorum")),
        Benchmark::Topologies => ("leasehold-tests", "bench", Some("topologies")),
        Benchmark::ClusterHandoff => ("leasehold-tests", "bench", Some("cluster-handoff")),
        Benchmark::Guards => ("leasehold-guard-tests", "overhead", None),
        Benchmark::Node => return node(&options.rest),
        Benchmark::Report => {
            let (quick, readme) = (options.quick, options.readme);
            return report::main(report::Options { quick, readme });
        }
    };
    if matches!(options.benchmark, Benchmark::Guards) {
        ensure_stores()?;
    }
    let peers = if matches!(options.benchmark, Benchmark::Quorum) {
        peers::of_several_servers()
    } else {
        Vec::new()
    };
    let options = options.rest.iter().chain(&peers).map(String::as_str);
    let options: Vec<_> = name.into_iter().chain(options).collect();
    Cmd::cargo(&program_of(package, program, &options)).run()
}

/// What the benchmark of guards prints.
pub(crate) fn guards(options: &[&str]) -> Result<String> {
    ensure_stores()?;
    Cmd::cargo(&program_of("leasehold-guard-tests", "overhead", options)).output()
}

fn ensure_stores() -> Result<()> {
    for need in [Need::Postgres, Need::MariaDb, Need::Venv] {
        need.ensure()?;
    }
    Ok(())
}

/// The arguments of cargo that run a program in release mode.
fn program_of<'a>(package: &'a str, program: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    in_release(
        "run",
        package,
        &[&["--bin", program, "--"], options].concat(),
    )
}

/// Makes the package as it is shipped, and measures that.
fn node(options: &[String]) -> Result<()> {
    if !options.iter().any(|option| option == "--help") {
        package::main()?;
        npm::install(peers::NODE)?;
    }
    let mut args = vec!["main.mjs"];
    args.extend(options.iter().map(String::as_str));
    Cmd::new("node", &args).at(peers::NODE).run()
}
