//! A stock in an SQL database, and its buyers.

use std::time::Duration;

use leasehold::{Error, FencingToken, Lease, Locker};
use leasehold_examples::cli::{self, Outcome};

use crate::crowd::Member;
use crate::database::{Database, Fence};

/// How many articles there are.
pub const STOCK: i64 = 5;
/// How long a buyer's lease lives unless it is renewed.
pub const TTL: Duration = Duration::from_secs(1);
const ARTICLE: &str = "article";

/// What keeps the buyers apart.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Nothing.
    NoLock,
    /// A lock; the database accepts every write.
    Lock,
    /// A lock, and a guard in the database.
    Guard,
}

impl Act {
    /// By its number, from 1.
    pub fn of(number: u8) -> Outcome<Self> {
        let acts = [Self::NoLock, Self::Lock, Self::Guard];
        let act = acts.into_iter().find(|act| act.number() == number);
        act.ok_or_else(|| "there are three acts".into())
    }

    /// Its number, from 1.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::NoLock => "Act 1: no lock",
            Self::Lock => "Act 2: a lock, and a buyer paused past its lease",
            Self::Guard => "Act 3: the same, with a guard",
        }
    }
}

/// A stock of one article, and a list of the sales, in tables of their own.
#[derive(Clone, Debug)]
pub struct Stock {
    database: Database,
    /// The guard's name for it. The tokens of one resource must come from one lock.
    resource: String,
    amounts: String,
    sales: String,
}

impl Stock {
    /// The stock of this run of the example. Nothing is written yet.
    pub fn new(database: Database, namespace: &str) -> Self {
        let run = namespace.rsplit('/').next().unwrap_or_default();
        let run = run.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        Self {
            database,
            resource: format!("{namespace}/{ARTICLE}"),
            amounts: format!("leasehold_example_stock_{run}"),
            sales: format!("leasehold_example_sales_{run}"),
        }
    }

    /// Makes the tables.
    pub async fn prepare(&self) -> Outcome {
        self.database.prepare_guard().await?;
        let Self { amounts, sales, .. } = self;
        for table in [
            format!("CREATE TABLE {amounts} (amount BIGINT NOT NULL)"),
            format!("CREATE TABLE {sales} (buyer BIGINT NOT NULL)"),
            format!("INSERT INTO {amounts} VALUES (0)"),
        ] {
            self.database.write(None, &[table]).await?;
        }
        Ok(())
    }

    /// Begins anew, with nothing sold.
    pub async fn fill(&self) -> Outcome {
        let Self { amounts, sales, .. } = self;
        let fill = format!("UPDATE {amounts} SET amount = {STOCK}");
        let forget = format!("DELETE FROM {sales}");
        self.database.write(None, &[fill, forget]).await
    }

    /// Removes all of it.
    pub async fn remove(&self) -> Outcome {
        self.database.settled().await;
        for table in [&self.amounts, &self.sales] {
            let drop = format!("DROP TABLE IF EXISTS {table}");
            self.database.write(None, &[drop]).await?;
        }
        self.database.forget(&self.resource).await
    }

    /// How many are left, as the stock says.
    pub async fn left(&self) -> Outcome<i64> {
        self.look(None).await
    }

    /// How many were sold, by the list of sales.
    pub async fn sold(&self) -> Outcome<i64> {
        let query = format!("SELECT COUNT(*) FROM {}", self.sales);
        self.database.read(None, query).await
    }

    /// Reads the stock; with a token behind the guard, which from then on refuses older ones.
    async fn look(&self, token: Option<FencingToken>) -> Outcome<i64> {
        let query = format!("SELECT amount FROM {}", self.amounts);
        self.database.read(self.fence(token), query).await
    }

    /// Books a sale and writes how many are left; with a token only if the guard lets it pass.
    async fn sell(&self, token: Option<FencingToken>, buyer: u16, left: i64) -> Outcome {
        let Self { amounts, sales, .. } = self;
        let write = format!("UPDATE {amounts} SET amount = {left}");
        let note = format!("INSERT INTO {sales} VALUES ({buyer})");
        self.database.write(self.fence(token), &[write, note]).await
    }

    /// Closes its connections.
    pub async fn close(&self) {
        self.database.close().await;
    }

    fn fence(&self, token: Option<FencingToken>) -> Option<Fence<'_>> {
        token.map(|token| (self.resource.as_str(), token))
    }
}

/// Somebody who wants an article.
#[derive(Debug)]
pub struct Buyer {
    /// From 1.
    pub number: u16,
    /// What it does about the others.
    pub act: Act,
    /// What it buys from.
    pub stock: Stock,
    /// Where it gets its lock.
    pub locker: Locker,
}

impl Buyer {
    /// In a process of its own, with connections of its own.
    pub async fn connect(
        url: &str,
        database: &str,
        namespace: &str,
        number: u16,
        act: u8,
    ) -> Outcome<Self> {
        Ok(Self {
            number,
            act: Act::of(act)?,
            stock: Stock::new(Database::connect(database).await?, namespace),
            locker: cli::connect(url, namespace).await?,
        })
    }

    /// Reads the stock, thinks until it gets an order to go on, and writes one less. Ends when the orders
    /// end.
    pub async fn buy(self, mut member: Member) -> Outcome {
        let lease = match self.act {
            Act::NoLock => None,
            Act::Lock | Act::Guard => {
                let lock = self.locker.lock(ARTICLE)?.ttl(TTL);
                // A process that is stopped by a signal renews no lease. A task could, and must not.
                let pauses = self.number == 1 && !member.is_process();
                let lock = if pauses { lock.fixed() } else { lock };
                tokio::select! {
                    lease = lock.acquire() => Some(lease?),
                    _ = member.order() => return Ok(()),
                }
            }
        };
        let token = lease.as_ref().map(Lease::token);
        let guarded = token.filter(|_| self.act == Act::Guard);
        let shown = token.map_or_else(|| "-".to_owned(), |token| token.to_string());

        let seen = self.stock.look(guarded).await?;
        member.tell(&format!("read {shown} {seen} in stock")).await;
        if member.order().await.is_none() {
            return Ok(());
        }
        let valid = match &lease {
            Some(lease) if !lease.is_valid() => ", and its lease is over",
            _ => "",
        };
        let told = if seen == 0 {
            format!("late {shown} nothing is left")
        } else {
            let left = seen - 1;
            match self.stock.sell(guarded, self.number, left).await {
                Ok(()) => format!("bought {shown} wrote {left}{valid}"),
                Err(error) => format!("refused {shown} {}", refusal(error)?),
            }
        };
        if let Some(lease) = lease {
            // The one that was paused has lost its lease, which is an error.
            let _ = lease.release().await;
        }
        member.tell(&told).await;
        while member.order().await.is_some() {}
        Ok(())
    }
}

/// What the guard said, if it was that.
fn refusal(error: Box<dyn std::error::Error + Send + Sync>) -> Outcome<String> {
    match error.downcast_ref::<Error>().and_then(Error::stale_token) {
        Some(stale) => Ok(format!("the guard has seen {}", stale.highest)),
        None => Err(error),
    }
}
