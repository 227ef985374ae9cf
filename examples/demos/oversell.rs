//! Ten buyers at once want an article of which there are five: without a lock (too many are sold), with
//! leases whose tokens the shop checks (exactly five), and with a buyer that is paused past its lease.
//!
//! It exits with 1 if the story ends otherwise. With `LEASEHOLD_URL=redis://…` the locks are on a server.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::fence::Gate;
use leasehold::{ErrorKind, FencingToken, Lock};
use leasehold_demos::{Outcome, connect, log, promise, run};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

const BUYERS: usize = 10;
const STOCK: u32 = 5;
/// How long a buyer thinks between reading the stock and writing it.
const THINKING: Duration = Duration::from_millis(20);
const SHORT_TTL: Duration = Duration::from_millis(300);

/// A storage that knows nothing of locks. Its gate remembers the greatest token that it has seen, and
/// refuses a write with a smaller one: whoever comes with that was replaced, whether it knows or not.
#[derive(Default)]
struct Shop {
    gate: Gate,
    books: Mutex<Books>,
}

struct Books {
    stock: u32,
    sold: u32,
}

impl Default for Books {
    fn default() -> Self {
        let (stock, sold) = (STOCK, 0);
        Self { stock, sold }
    }
}

impl Shop {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Books a sale, and takes the new stock from whoever writes.
    fn sell(&self, left: u32) {
        let mut books = self.books();
        books.stock = left;
        books.sold += 1;
    }

    fn sell_guarded(&self, token: FencingToken, left: u32) -> Result<(), leasehold::Error> {
        self.gate.guard("article", token, || self.sell(left))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(acts()).await
}

async fn acts() -> Outcome {
    // The line comes before the connection, which may take long.
    println!("{BUYERS} buyers, {STOCK} in stock.");
    let locker = connect().await?;
    let lock = locker.lock("oversell")?;
    without_a_lock().await?;
    let mut tokens = with_leases(&lock).await?;
    tokens.extend(paused(&lock).await?);
    let acquired = BUYERS + 3;
    promise(tokens.len() == acquired, "two leases had the same token")?;
    println!(
        "\nEverything went as expected: each of {acquired} leases had a greater token than the one before."
    );
    locker.shutdown().await;
    Ok(())
}

/// Sells without a lock. Nobody writes before all have read: that may happen by chance, and here it certainly does.
async fn without_a_lock() -> Outcome {
    println!("\nAct 1: without a lock. Each buyer reads the stock, thinks, and writes one less.");
    let (shop, all_have_read) = (Arc::new(Shop::default()), Arc::new(Barrier::new(BUYERS)));
    let mut buyers = JoinSet::new();
    for number in 1..=BUYERS {
        let (shop, all_have_read) = (shop.clone(), all_have_read.clone());
        buyers.spawn(async move {
            let seen = shop.books().stock;
            sleep(THINKING).await;
            all_have_read.wait().await;
            shop.sell(seen - 1);
            log(format_args!(
                "buyer {number} read {seen}, wrote {}",
                seen - 1
            ));
        });
    }
    buyers.join_all().await;
    let Books { stock, sold } = *shop.books();
    println!("=> sold {sold} of {STOCK}, and the shop believes that {stock} are left");
    promise(sold > STOCK, "act 1 was to sell too many")
}

/// Sells under leases, and returns their tokens.
async fn with_leases(lock: &Lock) -> Outcome<BTreeSet<FencingToken>> {
    println!(
        "\nAct 2: with leases, and a shop that checks tokens. Who releases hands the lock to the next."
    );
    let shop = Arc::new(Shop::default());
    let mut buyers = JoinSet::new();
    for number in 1..=BUYERS {
        let (lock, shop) = (lock.clone(), shop.clone());
        buyers.spawn(async move { buy(&lock, &[&shop], number).await });
    }
    let mut tokens = BTreeSet::new();
    while let Some(bought) = buyers.join_next().await {
        tokens.insert(bought??);
    }
    let Books { stock, sold } = *shop.books();
    println!("=> sold {sold} of {STOCK}, {stock} left");
    promise(
        sold == STOCK && stock == 0,
        "act 2 was to sell what was there",
    )?;
    Ok(tokens)
}

/// Buys an article at each shop that has one, under a lease, and returns its token.
async fn buy(lock: &Lock, shops: &[&Shop], number: usize) -> Outcome<FencingToken> {
    let lease = lock.acquire().await?;
    let token = lease.token();
    for shop in shops {
        let seen = shop.books().stock;
        sleep(THINKING).await;
        if seen > 0 {
            // The gate refuses a token that is smaller than an earlier one, so this checks that tokens grow.
            shop.sell_guarded(token, seen - 1)?;
        }
        log(format_args!(
            "buyer {number} with token {token} read {seen}"
        ));
    }
    lease.release().await?;
    Ok(token)
}

/// Pauses a buyer past its lease, and returns the tokens of all three leases.
async fn paused(lock: &Lock) -> Outcome<[FencingToken; 3]> {
    println!(
        "\nAct 3: buyer 1 reads the stock and is paused past its lease; buyers 2 and 3 buy meanwhile."
    );
    println!("A second shop, which checks no tokens, gets the same writes.");
    let (guarded, unguarded) = (Shop::default(), Shop::default());
    let lease = lock.clone().ttl(SHORT_TTL).fixed().acquire().await?;
    let (stale, seen) = (lease.token(), guarded.books().stock);
    log(format_args!(
        "buyer 1 with token {stale} read {seen}, and is paused"
    ));
    let second = buy(lock, &[&guarded, &unguarded], 2).await?;
    let third = buy(lock, &[&guarded, &unguarded], 3).await?;
    log(format_args!(
        "buyer 1 resumes; its lease says valid: {}",
        lease.is_valid()
    ));
    promise(!lease.is_valid(), "two leases were valid")?;

    unguarded.sell(seen - 1);
    let Err(refused) = guarded.sell_guarded(stale, seen - 1) else {
        return Err("the shop took the write of a buyer that had lost its lease".into());
    };
    log(format_args!("buyer 1 is refused: {refused}"));
    let [with, without] =
        [("with the check", guarded), ("without it", unguarded)].map(|(how, shop)| {
            let Books { stock, sold } = *shop.books();
            println!(
                "=> {how}: sold {sold}, {stock} left: {} of {STOCK}",
                sold + stock
            );
            sold + stock
        });
    promise(refused.kind() == ErrorKind::StaleToken, &refused)?;
    promise(with == STOCK, "the shop that checks tokens went wrong")?;
    promise(without != STOCK, "the shop without a check was to go wrong")?;
    Ok([stale, second, third])
}
