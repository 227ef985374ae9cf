//! Measures Leasehold, alone and beside its peers: `cargo xtask bench --help`.

#![allow(clippy::cast_precision_loss)]

mod batcher;
mod cluster_handoff;
#[cfg(feature = "guards")]
mod guards;
mod handoff;
mod languages;
mod latency;
mod lockers;
mod many;
mod overload;
mod pairs;
mod peer;
mod quorum;
mod report;
mod shared;
mod sides;
mod stats;
mod svg;
mod topologies;

use std::error::Error;
use std::process::ExitCode;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::{Builder, config::Config};
use leasehold_tests::RedisServer;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Measures Leasehold on servers of its own.
///
/// Figures are medians of rounds, in which the compared sides take turns. Ratios are computed per round, so
/// that other load on the machine cancels out.
#[derive(Parser)]
#[command(
    bin_name = "cargo xtask bench",
    after_help = "`cargo xtask bench node` measures the npm package: `cargo xtask bench node --help`."
)]
// Flags of a command line.
#[allow(clippy::struct_excessive_bools)]
struct Options {
    benchmark: Benchmark,
    /// Rounds after one that warms up; not of `many`, `overload` and `report`. 11, or 5 of `latency`.
    #[arg(long, value_name = "N", value_parser = some())]
    rounds: Option<usize>,
    /// `pairs`, `quorum`, `lockers`, `shared`: only this many callers.
    #[arg(long, value_name = "N", value_parser = some())]
    callers: Option<usize>,
    /// `pairs`, `quorum`, `lockers`: nothing but the lock, for a profiler.
    #[arg(long)]
    alone: bool,
    /// `many`: how many leases.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = some())]
    leases: usize,
    /// `guards`: how long a round takes.
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    millis: u64,
    /// `guards`: compare each plain write with itself, which must give ratios near 1.
    #[arg(long)]
    control: bool,
    /// `latency`: pairs that become due in a second, 1000,5000,20000 by default, and 1000,5000 with `--node`.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
    /// `latency`: how long a side's turn takes.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    seconds: u32,
    /// Worker threads, of each side in Rust with `latency`; 1 is a runtime of a single thread. Not of `guards`.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = some())]
    threads: usize,
    /// `latency`: the sides in Node.
    #[arg(long)]
    node: bool,
    /// `report`: only sides in this language; `guards`: only this store; `overload`: only `stopped`, `readers`, `line` or `lockers`; `latency`: only this side, by its name or the
    /// one in its program (`leasehold`, `fred`, `redis-rs`). May be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// `report`: less of everything, in under ten minutes once the peers are built. `latency`: 3 rounds of 1 s.
    #[arg(long)]
    quick: bool,
    /// `report`: put the main table and one plot into the book's page of measurements. `latency`: put the figures and
    /// plots of both languages there, at more rates.
    #[arg(long)]
    book: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Benchmark {
    /// Acquire and release on distinct names by 1 to 256 callers, beside bare round trips, bare script calls, `SET NX
    /// PX` with a compare-and-delete, the least script that could lock, and redis-benchmark.
    Pairs,
    /// From a release to the next waiter's lease, beside one PING and one message; 2 and 16 contenders.
    Handoff,
    /// 100,000 leases held for 30 s: script calls, CPU and bytes of memory for each.
    Many,
    /// 100,000 calls on a stopped server, 10,000 streams that nobody reads, a line of 50,000, and 1,000 lockers that
    /// reconnect at once: memory, how the calls end, and the time until all is well again.
    Overload,
    /// 100 lockers in one process: memory, connections, tasks; pairs by 16 lockers, beside one locker and 16
    /// clients without the lock.
    Lockers,
    /// A semaphore of 10, readers of one name, and three names at once, by 64 callers, beside Redisson and
    /// redis-semaphore.
    Shared,
    /// Pairs at 3 and 5 servers, beside one of them, and beside redlock in Node and redsync in Go.
    Quorum,
    /// Pairs and handoffs by TLS and on a cluster, beside a plain server; the first lease in round trips.
    Topologies,
    /// The work of the nodes of a cluster of 3, 6 and 12 masters for one handoff: bytes, processor time, and
    /// messages between nodes.
    ClusterHandoff,
    /// Acquire and release at fixed rates, with arrivals that wait for nothing (an open loop), beside `SET NX PX`
    /// with a compare-and-delete: latency since each pair was due, to p99.9.
    Latency,
    /// A write under each guard, beside the same write without.
    Guards,
    /// All of it beside peers in Rust, Node, Java, Go and Python, whose toolchains are there: Markdown, JSON and
    /// plots in target/bench. What the peers need is fetched from the package registries.
    Report,
}

impl Options {
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(11)
    }
}

/// Returns a parser for numbers from 1.
fn some() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

fn main() -> ExitCode {
    match measure_or_serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a benchmark, or a side in Rust, which a benchmark starts as a process of its own.
fn measure_or_serve() -> Result<()> {
    let args: Vec<_> = std::env::args().collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match &args[..] {
        [_, languages::PEER, args @ ..] => leasehold_peers::main(args),
        _ => measure(&Options::parse()),
    }
}

fn measure(options: &Options) -> Result<()> {
    let mut runtime = match options.benchmark {
        // A single thread: to wake another one can take longer than a guarded write, and a different time
        // each time. So these ratios are about the greatest possible ones.
        Benchmark::Guards => tokio::runtime::Builder::new_current_thread(),
        _ if options.threads == 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime
        .worker_threads(options.threads)
        .enable_all()
        .build()?
        .block_on(run(options))
}

async fn run(options: &Options) -> Result<()> {
    match options.benchmark {
        Benchmark::Pairs => pairs::run(options).await,
        Benchmark::Handoff => handoff::run(options.rounds()).await,
        Benchmark::Many => many::run(options.leases).await,
        Benchmark::Overload => overload::run(&options.only).await,
        Benchmark::Lockers => lockers::run(options).await,
        Benchmark::Shared => shared::run(options).await,
        Benchmark::Quorum => quorum::run(options).await,
        Benchmark::Topologies => topologies::run(options.rounds()).await,
        Benchmark::ClusterHandoff => cluster_handoff::run(options.rounds()).await,
        Benchmark::Latency => latency::run(options).await,
        #[cfg(feature = "guards")]
        Benchmark::Guards => guards::run(options).await,
        #[cfg(not(feature = "guards"))]
        Benchmark::Guards => {
            Err("guards need --features guards, as `cargo xtask bench` gives".into())
        }
        Benchmark::Report => report::run(options).await,
    }
}

/// Connects a client without any locks.
async fn bare_client(server: &RedisServer) -> Result<Client> {
    let config = Config::from_url(&server.url())?;
    let client = Builder::from_config(config).build()?;
    client.init().await?;
    Ok(client)
}
