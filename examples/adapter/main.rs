//! The lock through a Redis client of one's own: [`client`] is the smallest that the lock can rely on.

mod client;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use client::Client;
use futures::TryFutureExt;
use leasehold::{FencingToken, Locker};
use leasehold_examples::cli::{self, Interrupt, Outcome, promise};
use leasehold_examples::screen::Screen;
use leasehold_examples::server::Server;

const NAME: &str = "orders/42";
/// In the first the connection for pushes may not be there yet.
const TURNS: usize = 3;
const LIMIT: Duration = Duration::from_secs(5);
/// Who is not told asks every second.
const SOON: Duration = Duration::from_millis(900);

/// Two lockers on a Redis client of some two hundred lines that is in this example, with its adapter. The
/// second waits for the lock that the first has, and is told when it is free. Exits with 1 if it came otherwise.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {
    #[arg(
        long,
        value_parser = address,
        help = "The server of the lock, redis://host:port, without password; without it a redis-server \
                is started"
    )]
    url: Option<String>,
}

fn address(url: &str) -> Result<String, &'static str> {
    let address = url
        .strip_prefix("redis://")
        .filter(|rest| rest.contains(':') && !rest.contains(['@', '/']));
    address
        .map(ToOwned::to_owned)
        .ok_or("this client takes redis://host:port and nothing more")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> Outcome {
    let mut interrupt = Interrupt::catch()?;
    let screen = Screen::new();
    screen.say("One locker holds a lock, another waits for it, both through a client of this example's own.")?;
    let Some(address) = args.url else {
        let mut server = interrupt.or(Server::start()).await?;
        let outcome = interrupt.or(show(screen, server.address())).await;
        server.kill().await?;
        return outcome;
    };
    interrupt.or(show(screen, address)).await
}

async fn show(screen: Screen, address: String) -> Outcome {
    let namespace = cli::namespace("adapter")?;
    let connect = async || {
        let client = Client::connect(address.clone());
        let builder = cli::builder(namespace.clone());
        builder
            .with_adapter(client)
            .map_err(|error| format!("{address}: {error}"))
            .await
    };
    let (first, second): (Locker, Locker) = (connect().await?, connect().await?);
    let mut last = (None, Duration::MAX);
    for _ in 0..TURNS {
        last = hand_over(&screen, &first, &second, last.0).await?;
    }
    promise(last.1 < SOON, || {
        format!("the second was told only after {:?}", last.1)
    })?;
    first.shutdown().await;
    second.shutdown().await;
    Ok(())
}

/// Returns the token that the second got, and how long that took.
async fn hand_over(
    screen: &Screen,
    first: &Locker,
    second: &Locker,
    before: Option<FencingToken>,
) -> Outcome<(Option<FencingToken>, Duration)> {
    let held = first.lock(NAME)?.acquire().await?;
    let token = held.token();
    screen.say(format!(
        "The first holds it with token {token}, the second stands in line."
    ))?;
    let lock = second.lock(NAME)?;
    let waiting = tokio::spawn(async move { lock.acquire_within(LIMIT).await });
    while first.inspect(NAME).await?.waiting == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    held.release().await?;
    let released = Instant::now();
    let lease = waiting.await??.ok_or("the second did not get it")?;
    let took = released.elapsed();
    screen.say(format!(
        "It was released, and the second had it {:.1} ms later with token {}.",
        took.as_secs_f64() * 1_000.0,
        lease.token()
    ))?;
    let grew = before < Some(token) && token < lease.token();
    promise(grew, || {
        format!("{token} is not between {before:?} and {}", lease.token())
    })?;
    let token = lease.token();
    lease.release().await?;
    Ok((Some(token), took))
}
