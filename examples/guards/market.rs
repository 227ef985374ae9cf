//! A market in Redis: one lock for all of it, a lock for each item, or optimistic transactions.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use fred::clients::Client;
use fred::interfaces::ClientLike;
use leasehold::Locker;
use leasehold_examples::cli::{self, Interrupt, Outcome, promise};
use leasehold_examples::screen::Screen;
use leasehold_guard_examples::marketplace::{Market, Tally};
use leasehold_guard_examples::redis::Redis;
use leasehold_guard_examples::table::Table;
use leasehold_guard_examples::trader::{Trader, Way};
use tokio::task::JoinSet;

const WAYS: [(Way, &str, &str); 3] = [
    (
        Way::Watch,
        "Optimistic: WATCH, MULTI and EXEC; who was overtaken begins anew (beside table 6-1)",
        "watch",
    ),
    (
        Way::MarketLock,
        "One lock for the whole market (beside table 6-2)",
        "one-lock",
    ),
    (
        Way::ItemLock,
        "A lock for each item (beside table 6-3)",
        "item-locks",
    ),
];
const CROWDS: [(u16, u16); 3] = [(1, 1), (5, 1), (5, 5)];

/// Lets sellers list items and buyers buy them for some seconds, in three ways of keeping out of
/// each other's way: what "Redis in Action" measures in its tables 6-1 to 6-3, in the same
/// columns, with one more for items that somebody else had bought by then. After each run it counts
/// all items and all money, and exits with 1 if any was lost or doubled.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {
    #[arg(
        long,
        help = "The server of the market and of the locks, redis://host:port or \
                unix:///path/to/socket; without it a redis-server is started"
    )]
    url: Option<String>,
    /// How many seconds each of the nine runs lasts; those in the book last 60
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Only one way: watch, one-lock or item-locks
    #[arg(long, value_parser = ["watch", "one-lock", "item-locks"])]
    only: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    cli::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> Outcome {
    let mut interrupt = Interrupt::catch()?;
    let screen = Screen::new();
    // Before the server is started or connected to, which may take long.
    screen.say(format!(
        "Sellers and buyers on a market, for {} s each time.",
        args.seconds
    ))?;
    let redis = interrupt.or(Redis::at_or_own(args.url.as_deref())).await?;
    let outcome = measure(screen, &redis, &args, &mut interrupt).await;
    redis.stop().await.and(outcome)
}

async fn measure(screen: Screen, redis: &Redis, args: &Args, interrupt: &mut Interrupt) -> Outcome {
    screen.say(format!("The market is in {}.", redis.shown()))?;
    let chosen = |code: &str| args.only.as_deref().is_none_or(|only| only == code);
    for (way, title, code) in WAYS.into_iter().filter(|(_, _, code)| chosen(code)) {
        screen.title(title)?;
        let mut table = Table::new(&[
            "sellers, buyers",
            "listed items",
            "bought items",
            "purchase retries",
            "average wait per purchase",
            "gone by then",
        ]);
        for (sellers, buyers) in CROWDS {
            let length = Duration::from_secs(args.seconds);
            let mut cell = Cell::new(redis, way, code, (sellers, buyers)).await?;
            let outcome = interrupt.or(cell.run(redis, length)).await;
            let closed = cell.close(interrupt).await;
            let tally = outcome?;
            closed?;
            add(&mut table, &format!("{sellers}, {buyers}"), &tally);
        }
        for line in table.lines() {
            screen.say(line)?;
        }
    }
    screen.say("\nAfter each run all items and all money were where they must be.")?;
    Ok(())
}

fn add(table: &mut Table, crowd: &str, tally: &Tally) {
    let purchases = u32::try_from(tally.bought).unwrap_or(u32::MAX);
    let wait = tally.waited.checked_div(purchases);
    let wait = wait.map_or_else(
        || "-".to_owned(),
        |wait| format!("{:.2} ms", wait.as_secs_f64() * 1e3),
    );
    let Tally {
        listed,
        bought,
        retries,
        gone,
        ..
    } = tally;
    table.row(&[&crowd, listed, bought, retries, &wait, gone]);
}

/// One run, on a market of its own.
struct Cell {
    market: Market,
    way: Way,
    sellers: Vec<String>,
    buyers: Vec<String>,
    /// To set the market up and look at it.
    client: Client,
    namespace: String,
    lockers: Vec<Locker>,
}

impl Cell {
    async fn new(
        redis: &Redis,
        way: Way,
        code: &str,
        (sellers, buyers): (u16, u16),
    ) -> Outcome<Self> {
        let namespace = format!("{}/{code}-{sellers}-{buyers}", cli::namespace("market")?);
        let names = |who: &str, count| (1..=count).map(|n| format!("{who}{n}")).collect();
        Ok(Self {
            market: Market::new(&namespace),
            way,
            sellers: names("seller", sellers),
            buyers: names("buyer", buyers),
            client: redis.client().await?,
            namespace,
            lockers: Vec::new(),
        })
    }

    async fn run(&mut self, redis: &Redis, length: Duration) -> Outcome<Tally> {
        let users = self.users();
        self.market.open(&self.client, &users).await?;
        let mut clients = Vec::new();
        for _ in &users {
            clients.push(redis.client().await?);
            self.lockers
                .push(cli::connect(redis.url(), &self.namespace).await?);
        }
        let end = Instant::now() + length;
        let mut traders = JoinSet::new();
        for ((name, client), locker) in users.iter().zip(clients).zip(&self.lockers) {
            let trader = Trader {
                name: name.clone(),
                market: self.market.clone(),
                way: self.way,
                client,
                locker: locker.clone(),
                end,
            };
            if self.sellers.contains(name) {
                traders.spawn(trader.sell());
            } else {
                traders.spawn(trader.buy());
            }
        }
        let mut tally = Tally::default();
        while let Some(done) = traders.join_next().await {
            tally = tally.and(done??);
        }
        self.market.audit(&self.client, &users, &tally).await?;
        promise(tally.listed > 0, || "nothing was listed".to_owned())?;
        Ok(tally)
    }

    fn users(&self) -> Vec<String> {
        [&self.sellers[..], &self.buyers[..]].concat()
    }

    /// Leaves nothing behind but the locks' last tokens, for a minute.
    async fn close(self, interrupt: &mut Interrupt) -> Outcome {
        for locker in &self.lockers {
            interrupt.shut_down(locker).await;
        }
        let closed = self.market.close(&self.client, &self.users()).await;
        self.client.quit().await?;
        closed
    }
}
