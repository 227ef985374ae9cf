//! Sellers list items and buyers buy them for some seconds, in three ways of keeping out of each other's
//! way: what "Redis in Action" measures in its tables 6-1 to 6-3, in the same columns, with one more for
//! items that somebody else had bought by then. After each run it counts all items and all money.
//!
//! It exits with 1 if any was lost or doubled. `-- 60` makes each of the nine runs as long as in the book, in
//! seconds.

mod marketplace;
mod trader;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use fred::clients::Client;
use fred::interfaces::ClientLike;
use leasehold::Locker;
use leasehold_demos::{Outcome, Server, print_table, run};
use marketplace::{Market, Tally};
use tokio::task::JoinSet;
use trader::{Trader, Way};

const WAYS: [(Way, &str); 3] = [
    (
        Way::Watch,
        "WATCH, MULTI and EXEC; who was overtaken begins anew (beside table 6-1)",
    ),
    (
        Way::MarketLock,
        "One lock for the whole market (beside table 6-2)",
    ),
    (Way::ItemLock, "A lock for each item (beside table 6-3)"),
];
const CROWDS: [(u16, u16); 3] = [(1, 1), (5, 1), (5, 5)];
const COLUMNS: [&str; 6] = [
    "sellers, buyers",
    "listed items",
    "bought items",
    "purchase retries",
    "average wait per purchase",
    "gone by then",
];

#[tokio::main]
async fn main() -> ExitCode {
    run(measure()).await
}

async fn measure() -> Outcome {
    let seconds = std::env::args()
        .nth(1)
        .map_or(Ok(2), |seconds| seconds.parse())?;
    println!("Sellers and buyers on a market, for {seconds} s each time.");
    let server = Server::start().await?;
    for (way, title) in WAYS {
        println!("\n{title}");
        let mut table = vec![COLUMNS.map(str::to_owned)];
        for crowd in CROWDS {
            let tally = trade(&server.url(), way, crowd, Duration::from_secs(seconds)).await?;
            table.push(row(crowd, &tally));
        }
        print_table(&table);
    }
    println!("\nAfter each run all items and all money were where they must be.");
    Ok(())
}

/// Runs one crowd on a market of its own.
async fn trade(url: &str, way: Way, crowd: (u16, u16), length: Duration) -> Outcome<Tally> {
    let names = |who: &str, count| (1..=count).map(|n| format!("{who}{n}")).collect::<Vec<_>>();
    let users = [names("seller", crowd.0), names("buyer", crowd.1)].concat();
    let market = Market::new(format!("{way:?}/{}-{}", crowd.0, crowd.1));
    let client = connect(url).await?;
    market.open(&client, &users).await?;
    let mut links = Vec::new();
    for _ in &users {
        links.push((connect(url).await?, Locker::connect(url).await?));
    }
    let end = Instant::now() + length;
    let mut traders = JoinSet::new();
    for (name, (client, locker)) in users.iter().cloned().zip(links) {
        let sells = name.starts_with("seller");
        let market = market.clone();
        let trader = Trader {
            name,
            market,
            way,
            client,
            locker,
            end,
        };
        if sells {
            traders.spawn(trader.sell());
        } else {
            traders.spawn(trader.buy());
        }
    }
    let mut tally = Tally::default();
    while let Some(done) = traders.join_next().await {
        tally = tally.and(done??);
    }
    market.audit(&client, &users, &tally).await?;
    Ok(tally)
}

async fn connect(url: &str) -> Outcome<Client> {
    let client = Locker::builder().fred_client(url)?;
    client.init().await?;
    Ok(client)
}

fn row((sellers, buyers): (u16, u16), tally: &Tally) -> [String; 6] {
    let wait = tally
        .waited
        .checked_div(tally.bought.try_into().unwrap_or(u32::MAX));
    [
        format!("{sellers}, {buyers}"),
        tally.listed.to_string(),
        tally.bought.to_string(),
        tally.retries.to_string(),
        wait.map_or_else(
            || "-".to_owned(),
            |wait| format!("{:.2} ms", wait.as_secs_f64() * 1e3),
        ),
        tally.gone.to_string(),
    ]
}
