//! Injects faults into real servers and clients, and judges what the clients saw: `cargo xtask faults`.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Parser, Subcommand};
use leasehold_faults::topology::Topology;
use leasehold_faults::usage::Use;
use leasehold_faults::{Options, client, command, run};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(name = "cargo xtask faults", bin_name = "cargo xtask faults")]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    args: Args,
}

/// Injects faults into real servers and clients, and judges what the clients saw.
#[derive(clap::Args)]
struct Args {
    /// How long to inject faults; rounds of a minute take turns
    #[arg(long, default_value_t = 4.0)]
    minutes: f64,
    /// The seed of the faults; that of a round is printed at its start
    #[arg(long)]
    seed: Option<u64>,
    /// Only this deployment: one, sentinel, cluster or quorum; may be given several times
    #[arg(long)]
    topology: Vec<Topology>,
    /// Use the names as locks, as a semaphore, or for readers and writers (the last two only on one server)
    #[arg(long = "use", default_value_t = Use::Locks, value_name = "USE")]
    usage: Use,
    /// The store takes every write: the judges must find lost writes
    #[arg(long)]
    unguarded: bool,
    /// Clients in Node use a namespace of their own: the own checks must find too many holders
    #[arg(long)]
    divided: bool,
    /// The folder of histories and report
    #[arg(long, default_value = "target/faults")]
    folder: PathBuf,
}

#[derive(Subcommand)]
enum Role {
    /// A client in Rust
    #[command(hide = true)]
    Client { settings: String },
    /// The program that `leasehold run` runs
    #[command(hide = true)]
    Work {
        settings: String,
        name: String,
        op: u64,
        hold: u64,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let threads = if cli.role.is_some() { 1 } else { 4 };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build();
    let result = runtime.and_then(|runtime| {
        runtime.block_on(async {
            match cli.role {
                None => judged(cli.args).await,
                Some(Role::Client { settings }) => {
                    client::run(serde_json::from_str(&settings)?).await?;
                    Ok(ExitCode::SUCCESS)
                }
                Some(Role::Work {
                    settings,
                    name,
                    op,
                    hold,
                }) => {
                    let settings = serde_json::from_str(&settings)?;
                    command::work(settings, &name, op, Duration::from_millis(hold)).await?;
                    Ok(ExitCode::SUCCESS)
                }
            }
        })
    });
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

async fn judged(args: Args) -> io::Result<ExitCode> {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let options = Options {
        time: Duration::try_from_secs_f64(args.minutes * 60.0).map_err(io::Error::other)?,
        seed: args.seed.unwrap_or(since.as_secs()),
        topologies: match args.topology {
            none if none.is_empty() && args.usage != Use::Locks => vec![Topology::One],
            none if none.is_empty() => Topology::ALL.to_vec(),
            some => some,
        },
        usage: args.usage,
        guarded: !args.unguarded,
        divided: args.divided,
        folder: args.folder,
        program: std::env::current_exe()?,
    };
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let summary = tokio::select! {
        summary = run(&options) => summary?,
        // Whatever runs is killed when the run is dropped.
        _ = interrupt.recv() => return Ok(ExitCode::from(130)),
        _ = terminate.recv() => return Ok(ExitCode::from(143)),
    };
    let (is_ok, said) = if options.divided {
        let found = summary.violations.iter().any(|text| text.contains("I1: "));
        (found, "the own checks judged clients that do not contend")
    } else if !options.guarded {
        let found = summary.stale_writes > 0 && summary.refused_histories > 0;
        (found, "both judges judged a store without a guard")
    } else {
        return Ok(exit(summary.is_ok()));
    };
    // A negative control.
    let found = if is_ok {
        "and found it"
    } else {
        "and found nothing: run for longer"
    };
    println!("{said}, {found}");
    Ok(exit(is_ok))
}

fn exit(is_ok: bool) -> ExitCode {
    if is_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
