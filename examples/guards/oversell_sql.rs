//! Buyers in several processes and a stock in SQL: without a lock, with one, and with a guard too.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use leasehold::{FencingToken, Locker};
use leasehold_examples::cli::{self, Interrupt, Outcome, promise};
use leasehold_examples::screen::{Screen, time};
use leasehold_guard_examples::crowd::{Crowd, Member};
use leasehold_guard_examples::database::{Database, Folder};
use leasehold_guard_examples::redis::Locks;
use leasehold_guard_examples::stock::{Act, Buyer, STOCK, Stock, TTL};
use leasehold_guard_examples::table::Table;
use tokio::time::timeout;

/// How long a buyer may take to say anything.
const LIMIT: Duration = Duration::from_secs(20);
/// The buyer that is paused.
const PAUSED: u16 = 1;

/// Several processes want an article of which there are five: without a lock (too many are sold), with a
/// lock and a buyer that is paused past its lease (again too many), and the same with a guard in the
/// database, which refuses that buyer. Exits with 1 if it came otherwise.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {
    #[arg(
        long,
        help = "The server of the locks, redis://host:port or unix:///path/to/socket; without it \
                a redis-server is started. memory:// makes the buyers tasks of one process"
    )]
    url: Option<String>,
    #[arg(
        long,
        help = "The database of the stock: postgres://…, mysql://… or sqlite:file; without it a \
                temporary SQLite file. Nothing is left in it but the guard's table, \
                leasehold_fence"
    )]
    database: Option<String>,
    /// How many buyers there are
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(6..=40))]
    buyers: u16,
    /// Be the buyer with this number: the program starts itself with it
    #[arg(long, hide = true, requires_all = ["act", "namespace", "url", "database"])]
    buyer: Option<u16>,
    #[arg(long, hide = true, requires = "buyer")]
    act: Option<u8>,
    #[arg(long, hide = true, requires = "buyer")]
    namespace: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> Outcome {
    let mut interrupt = Interrupt::catch()?;
    if let Args {
        url: Some(url),
        database: Some(database),
        buyer: Some(number),
        act: Some(act),
        namespace: Some(namespace),
        ..
    } = &args
    {
        let connect = Box::pin(Buyer::connect(url, database, namespace, *number, *act));
        return be(connect, &mut interrupt).await;
    }
    let screen = Screen::new();
    // Before servers are started or connected to, which may take long.
    screen.say(format!("{} buyers, {STOCK} in stock.", args.buyers))?;
    let locks = interrupt.or(Locks::open(args.url.as_deref())).await?;
    let outcome = with_database(screen, &args, &locks, &mut interrupt).await;
    locks.stop().await.and(outcome)
}

/// What each of the processes does. The rest of this file is the parent's.
async fn be(connect: impl Future<Output = Outcome<Buyer>>, interrupt: &mut Interrupt) -> Outcome {
    let buyer = interrupt.or(connect).await?;
    let (locker, stock) = (buyer.locker.clone(), buyer.stock.clone());
    let outcome = interrupt.or(buyer.buy(Member::of_this_process())).await;
    interrupt.shut_down(&locker).await;
    stock.close().await;
    outcome
}

async fn with_database(
    screen: Screen,
    args: &Args,
    locks: &Locks,
    interrupt: &mut Interrupt,
) -> Outcome {
    // Dropping it at the end removes the file.
    let folder = Folder::new()?;
    let url = args.database.clone().unwrap_or_else(|| folder.url());
    if url.contains(":memory:") {
        return Err("several processes cannot share SQLite in memory: give a file".into());
    }
    let namespace = cli::namespace("oversell_sql")?;
    let database = interrupt.or(Database::connect(&url)).await?;
    let locker = interrupt.or(cli::connect(locks.url(), &namespace)).await?;
    screen.say(format!(
        "The stock is in {}. The buyers are {}.",
        database.shown(),
        match locks {
            Locks::Redis(redis) => format!("processes, and their locks in {}", redis.shown()),
            Locks::Memory => "tasks of this program, and the locks in its memory".to_owned(),
        }
    ))?;
    let mut shop = Shop {
        screen,
        buyers: args.buyers,
        args: [locks.url().to_owned(), url, namespace.clone()],
        stock: Stock::new(database, &namespace),
        locker: locker.clone(),
        crowd: Crowd::new(locks.are_shared()),
        read: BTreeSet::new(),
        done: BTreeMap::new(),
    };
    let outcome = interrupt.or(shop.all_acts()).await;
    // Ends all buyers, also those that an error or an interruption left running.
    let ended = interrupt.or(shop.crowd.end()).await;
    // If that was interrupted again, this kills them.
    drop(shop.crowd);
    let removed = interrupt.or(shop.stock.remove()).await;
    interrupt.shut_down(&locker).await;
    shop.stock.close().await;
    outcome.and(ended).and(removed)
}

/// What the parent knows.
struct Shop {
    screen: Screen,
    buyers: u16,
    /// The URLs of locks and database, and the namespace.
    args: [String; 3],
    stock: Stock,
    locker: Locker,
    crowd: Crowd,
    /// Who has read the stock and is thinking.
    read: BTreeSet<u16>,
    /// Who is done, and with what.
    done: BTreeMap<u16, String>,
}

impl Shop {
    async fn all_acts(&mut self) -> Outcome {
        let screen = self.screen;
        self.stock.prepare().await?;
        let columns = [
            "",
            "sold",
            "left, as the stock says",
            "the buyer that was paused",
        ];
        let mut table = Table::new(&columns);
        for act in [Act::NoLock, Act::Lock, Act::Guard] {
            screen.title(act.title())?;
            self.stock.fill().await?;
            self.read.clear();
            self.done.clear();
            self.crowd = self.crowd.another();
            match act {
                Act::NoLock => self.all_at_once().await?,
                Act::Lock | Act::Guard => self.one_is_paused(act).await?,
            }
            self.crowd.end().await?;
            let (sold, left) = (self.stock.sold().await?, self.stock.left().await?);
            screen.say(format!("=> sold {sold} of {STOCK}, and {left} are left"))?;
            let paused = match act {
                Act::NoLock => "-",
                Act::Lock | Act::Guard => self.done.get(&PAUSED).map_or("-", String::as_str),
            };
            self.check(act, sold, left, paused)?;
            table.row(&[&act.title(), &format!("{sold} of {STOCK}"), &left, &paused]);
        }
        screen.title("All came as it should")?;
        for line in table.lines() {
            screen.say(line)?;
        }
        Ok(())
    }

    /// Nobody writes before all have read. Without that order it would happen by chance.
    async fn all_at_once(&mut self) -> Outcome {
        for number in 1..=self.buyers {
            self.start(number, Act::NoLock)?;
        }
        let all = usize::from(self.buyers);
        self.until(|shop| shop.read.len() == all, false).await?;
        for number in 1..=self.buyers {
            self.crowd.order(number).await?;
        }
        self.until(|shop| shop.done.len() == all, false).await
    }

    async fn one_is_paused(&mut self, act: Act) -> Outcome {
        self.start(PAUSED, act)?;
        self.until(|shop| shop.read.contains(&PAUSED), false)
            .await?;
        self.crowd.pause(PAUSED)?;
        let how = match self.crowd {
            Crowd::Processes(..) => "by SIGSTOP",
            Crowd::Tasks(_) => "does not look at its lease",
        };
        let details = format!("{how}; its lease lives {} longer at the most", time(TTL));
        self.screen.step(&who(PAUSED), "paused", None, details)?;
        for number in 2..=self.buyers {
            self.start(number, act)?;
        }
        let others = usize::from(self.buyers - 1);
        self.until(|shop| shop.done.len() == others, true).await?;
        self.screen
            .step(&who(PAUSED), "goes on", None, "where it was")?;
        self.crowd.order(PAUSED).await?;
        self.crowd.go_on(PAUSED)?;
        self.until(|shop| shop.done.contains_key(&PAUSED), false)
            .await
    }

    fn start(&mut self, number: u16, act: Act) -> Outcome {
        let (number_text, act_text) = (number.to_string(), act.number().to_string());
        let [url, database, namespace] = &self.args;
        let args = [
            ["--url", url],
            ["--database", database],
            ["--namespace", namespace],
            ["--buyer", &number_text],
            ["--act", &act_text],
        ];
        let (stock, locker) = (&self.stock, &self.locker);
        self.crowd.start(number, args.as_flattened(), |member| {
            let buyer = Buyer {
                number,
                act,
                stock: stock.clone(),
                locker: locker.clone(),
            };
            buyer.buy(member)
        })
    }

    /// Shows what the buyers say, until the condition holds. With `at_once` those who have read are ordered
    /// to write at once.
    async fn until(&mut self, done: impl Fn(&Self) -> bool, at_once: bool) -> Outcome {
        let heard = async {
            while !done(self) {
                let (number, line) = self.crowd.hear().await?;
                let reads = self.hear(number, &line)?;
                if reads && at_once {
                    self.crowd.order(number).await?;
                }
            }
            Ok(())
        };
        let heard = timeout(LIMIT, heard).await;
        heard.unwrap_or_else(|_| Err(format!("the buyers say nothing for {}", time(LIMIT)).into()))
    }

    /// Shows a line of a buyer: what it did, its token or `-`, and details. Returns whether it has read.
    fn hear(&mut self, number: u16, line: &str) -> Outcome<bool> {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (did, token, details) = (word(), word(), word());
        let token = match token {
            "-" => None,
            digits => Some(digits.parse::<FencingToken>()?),
        };
        self.screen.step(&who(number), did, token, details)?;
        if did == "failed" {
            return Err(details.into());
        }
        let reads = did == "read";
        if reads {
            self.read.insert(number);
        } else {
            self.done.insert(number, did.to_owned());
        }
        Ok(reads)
    }

    fn check(&self, act: Act, sold: i64, left: i64, paused: &str) -> Outcome {
        let came = || format!("{}: {sold} of {STOCK} sold, {left} left", act.title());
        match act {
            Act::NoLock => promise(sold == i64::from(self.buyers), came),
            Act::Lock => promise(sold > STOCK && left > 0 && paused == "bought", came),
            Act::Guard => promise(sold == STOCK && left == 0 && paused == "refused", came),
        }
    }
}

fn who(number: u16) -> String {
    format!("buyer {number}")
}
