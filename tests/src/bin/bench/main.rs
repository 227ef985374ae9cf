//! What the lock costs, on a server of its own: `cargo xtask bench --help`.

#![allow(clippy::cast_precision_loss)]

mod clients;
mod cluster_handoff;
mod handoff;
mod many;
mod options;
mod pairs;
mod plain;
mod quorum;
mod quorum_sides;
mod ring;
mod roundtrip;
mod stats;
mod topologies;

use std::error::Error;
use std::process::ExitCode;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::{Builder, config::Config};
use leasehold_tests::RedisServer;
use options::{Options, USAGE};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] | ["help" | "-h" | "--help", ..] | [_, "-h" | "--help", ..] => {
            print!("{USAGE}");
            Ok(())
        }
        // A further process of `handoff`.
        ["contend", ref ring @ ..] => ring::child(ring).await,
        [benchmark, ref options @ ..] => {
            let options = Options::parse(options)?;
            match benchmark {
                "roundtrip" => roundtrip::run(&options).await,
                "handoff" => handoff::run(&options).await,
                "many" => many::run(&options).await,
                "pairs" => pairs::run(&options).await,
                "cluster-handoff" => cluster_handoff::run(&options).await,
                "clients" => clients::run(&options).await,
                "quorum" => quorum::run(&options).await,
                "topologies" => topologies::run(&options).await,
                _ => Err(format!("there is no benchmark {benchmark:?}\n\n{USAGE}").into()),
            }
        }
    }
}

/// A client that knows nothing of locks.
async fn bare_client(server: &RedisServer) -> Result<Client> {
    let config = Config::from_url(&server.url())?;
    let client = Builder::from_config(config).build()?;
    client.init().await?;
    Ok(client)
}
