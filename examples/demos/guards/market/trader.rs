//! Sellers and buyers of a market, and three ways of keeping out of each other's way.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fred::clients::{Client, Transaction};
use fred::interfaces::{
    HashesInterface, KeysInterface, SetsInterface, SortedSetsInterface, TransactionInterface,
};
use leasehold::{Lease, Locker};
use leasehold_demos::Outcome;
use tokio::time::{sleep, timeout};

use super::marketplace::{Market, Tally};

const HIGHEST_PRICE: u64 = 100;
/// How many items a seller gets at a time, before it lists them one by one.
const BATCH: u64 = 100;
/// How long a buyer waits before it looks again at a market that was empty.
const EMPTY: Duration = Duration::from_millis(1);

/// How sellers and buyers keep out of each other's way.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Nobody is kept out: what was read is watched, and if it changes, the transaction is tried again.
    Watch,
    /// One lock for the whole market.
    MarketLock,
    /// A lock for each item.
    ItemLock,
}

/// The outcome of one attempt to sell or buy.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Attempt {
    Bought,
    /// Somebody else has it by now.
    Gone,
    /// Something that was watched has changed.
    Overtaken,
    /// The time was over before it was this one's turn.
    TooLate,
}

/// A seller or a buyer, with connections of its own as if it were a program of its own.
#[derive(Debug)]
pub(crate) struct Trader {
    /// Its name.
    pub(crate) name: String,
    /// The market that it trades on.
    pub(crate) market: Market,
    /// How it keeps out of the way of others.
    pub(crate) way: Way,
    /// Its own, because what is watched belongs to the connection.
    pub(crate) client: Client,
    /// Its own, so that the others wait for it.
    pub(crate) locker: Locker,
    /// The time at which it stops.
    pub(crate) end: Instant,
}

impl Trader {
    /// Lists one item after the other.
    pub(crate) async fn sell(self) -> Outcome<Tally> {
        let mut tally = Tally::default();
        let inventory = self.market.inventory(&self.name);
        while self.remaining() > Duration::ZERO {
            let first = tally.listed;
            if first.is_multiple_of(BATCH) {
                let item = |number: u64| format!("{number}.{}", self.name);
                let items: Vec<_> = (first..first + BATCH).map(item).collect();
                let () = self.client.sadd(&inventory, items).await?;
            }
            let item = format!("{first}.{}", self.name);
            let price = 1 + first % HIGHEST_PRICE;
            match self.list(&item, price, &inventory).await? {
                Attempt::Bought => tally.listed += 1,
                Attempt::Overtaken | Attempt::TooLate => {}
                Attempt::Gone => return Err(format!("{} does not own {item}", self.name).into()),
            }
        }
        Ok(tally)
    }

    /// Buys one item after the other.
    pub(crate) async fn buy(self) -> Outcome<Tally> {
        let mut tally = Tally::default();
        while self.remaining() > Duration::ZERO {
            let offers = self.market.offers();
            let chosen = Some((1, true));
            let offer: BTreeMap<String, f64> = self.client.zrandmember(offers, chosen).await?;
            let Some((item, price)) = offer.into_iter().next() else {
                sleep(EMPTY).await;
                continue;
            };
            let began = Instant::now();
            let mut attempt = self.purchase(&item, price).await?;
            while attempt == Attempt::Overtaken {
                tally.retries += 1;
                if self.remaining().is_zero() {
                    break;
                }
                attempt = self.purchase(&item, price).await?;
            }
            match attempt {
                Attempt::Bought => {
                    tally.bought += 1;
                    tally.waited += began.elapsed();
                }
                Attempt::Gone => tally.gone += 1,
                Attempt::Overtaken | Attempt::TooLate => {}
            }
        }
        Ok(tally)
    }

    /// Moves an item from its seller to the market.
    async fn list(&self, item: &str, price: u64, inventory: &str) -> Outcome<Attempt> {
        let Some(turn) = self.turn(item, vec![inventory.to_owned()]).await? else {
            return Ok(Attempt::TooLate);
        };
        let owned: bool = self.client.sismember(inventory, item).await?;
        if !owned {
            turn.over(&self.client).await?;
            return Ok(Attempt::Gone);
        }
        let change = self.client.multi();
        // An exact number: prices are small.
        #[allow(clippy::cast_precision_loss)]
        let offer = (price as f64, item);
        let offers = self.market.offers();
        let () = change.zadd(offers, None, None, false, false, offer).await?;
        let () = change.srem(inventory, item).await?;
        turn.make(&change).await
    }

    /// Moves an item to this buyer, and money to its seller, if it is still to be had.
    async fn purchase(&self, item: &str, price: f64) -> Outcome<Attempt> {
        let (offers, buyer) = (self.market.offers(), self.market.user(&self.name));
        let (_, seller) = item.split_once('.').ok_or("an item of nobody")?;
        let watched = vec![offers.clone(), buyer.clone()];
        let Some(turn) = self.turn(item, watched).await? else {
            return Ok(Attempt::TooLate);
        };
        let look = self.client.pipeline();
        let () = look.zscore(&offers, item).await?;
        let () = look.hget(&buyer, "money").await?;
        let (asked, money): (Option<f64>, i64) = look.all().await?;
        #[allow(clippy::cast_possible_truncation)]
        let amount = price as i64;
        if asked != Some(price) || money < amount {
            turn.over(&self.client).await?;
            return Ok(Attempt::Gone);
        }
        let change = self.client.multi();
        let paid = self.market.user(seller);
        let () = change.hincrby(paid, "money", amount).await?;
        let () = change.hincrby(buyer, "money", -amount).await?;
        let () = change.sadd(self.market.inventory(&self.name), item).await?;
        let () = change.zrem(offers, item).await?;
        turn.make(&change).await
    }

    /// Takes the lock, or watches the keys, so that nobody else comes between, or it is noticed. `None` if
    /// the lock was not free in time.
    async fn turn(&self, item: &str, watched: Vec<String>) -> Outcome<Option<Turn>> {
        let name = match self.way {
            Way::Watch => {
                let () = self.client.watch(watched).await?;
                return Ok(Some(Turn(None)));
            }
            Way::MarketLock => "market".to_owned(),
            Way::ItemLock => format!("item/{item}"),
        };
        let lock = self.locker.lock(name)?;
        // Not `acquire_within`: for that it is an error if the store did not reply in time.
        match timeout(self.remaining(), lock.acquire()).await {
            Ok(lease) => Ok(Some(Turn(Some(lease?)))),
            Err(_) => Ok(None),
        }
    }

    fn remaining(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}

/// Somebody's turn to change something: under a lease, or else by what is watched.
struct Turn(Option<Lease>);

impl Turn {
    /// Changes all of it at once, or nothing if something that was watched has changed.
    async fn make(self, change: &Transaction) -> Outcome<Attempt> {
        let answers: Option<Vec<i64>> = change.exec(true).await?;
        if let Some(lease) = self.0 {
            lease.release().await?;
        }
        Ok(answers.map_or(Attempt::Overtaken, |_| Attempt::Bought))
    }

    /// Changes nothing.
    async fn over(self, client: &Client) -> Outcome {
        match self.0 {
            Some(lease) => Ok(lease.release().await?),
            None => Ok(client.unwatch().await?),
        }
    }
}
