//! A market of items in Redis, after the one of "Redis in Action" (chapters 4 and 6).
//!
//! The offers are a sorted set of items by price; each user has a set of items and a hash with money. A
//! sale changes four keys, so it must not mix with another sale of the same item.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::{HashesInterface, SetsInterface, SortedSetsInterface};
use leasehold_demos::{Outcome, promise};

/// The money that every user begins with: enough to buy for as long as any run lasts.
const MONEY: i64 = 1_000_000_000;

/// The work of one trader, or of all together.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Tally {
    /// Items that were put on the market.
    pub(crate) listed: u64,
    /// Items that were sold.
    pub(crate) bought: u64,
    /// Transactions of buyers that were undone and tried again.
    pub(crate) retries: u64,
    /// Items that somebody else had bought by the time a buyer came to it.
    pub(crate) gone: u64,
    /// How long all purchases together took, each from the choice of the item on.
    pub(crate) waited: Duration,
}

impl Tally {
    /// The sum of both.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            listed: self.listed + other.listed,
            bought: self.bought + other.bought,
            retries: self.retries + other.retries,
            gone: self.gone + other.gone,
            waited: self.waited + other.waited,
        }
    }
}

/// The keys of one market, apart from those of any other.
#[derive(Clone, Debug)]
pub(crate) struct Market {
    prefix: String,
}

impl Market {
    /// An empty market; nothing is written yet.
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// Gives money to these users.
    pub(crate) async fn open(&self, client: &Client, users: &[String]) -> Outcome {
        for user in users {
            let () = client.hset(self.user(user), ("money", MONEY)).await?;
        }
        Ok(())
    }

    /// Checks that all money and every item is where it must be after that many sales.
    pub(crate) async fn audit(&self, client: &Client, users: &[String], tally: &Tally) -> Outcome {
        let offered: u64 = client.zcard(self.offers()).await?;
        let mut money = 0;
        let mut owned = 0;
        for user in users {
            let has: i64 = client.hget(self.user(user), "money").await?;
            money += has;
            if user.starts_with("buyer") {
                let items: u64 = client.scard(self.inventory(user)).await?;
                owned += items;
            }
        }
        let Tally { listed, bought, .. } = *tally;
        promise(listed > 0, "nothing was listed")?;
        promise(
            owned == bought,
            format_args!("{bought} were bought, and the buyers own {owned}"),
        )?;
        let came =
            format_args!("{listed} were listed and {bought} bought, but {offered} are offered");
        promise(offered + bought == listed, came)?;
        let total = MONEY * i64::try_from(users.len())?;
        promise(
            money == total,
            format_args!("there was {total} of money, and there is {money}"),
        )
    }

    pub(crate) fn offers(&self) -> String {
        format!("{}/market", self.prefix)
    }

    pub(crate) fn inventory(&self, user: &str) -> String {
        format!("{}/inventory/{user}", self.prefix)
    }

    pub(crate) fn user(&self, user: &str) -> String {
        format!("{}/user/{user}", self.prefix)
    }
}
