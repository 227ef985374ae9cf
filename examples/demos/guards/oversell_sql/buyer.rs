//! A buyer, in a process of its own.

use std::env;
use std::io::stdin;

use leasehold::fence::sql;
use leasehold::{FencingToken, Lease};
use leasehold_demos::{Outcome, connect};
use sqlx::sqlite::SqlitePool;
use sqlx::{Sqlite, Transaction};

use crate::{Act, TTL, database};

/// The guard's name for the stock. The tokens of one resource must come from one lock.
const ARTICLE: &str = "article";

/// Reads the stock, prints it, waits for a line of input, and writes one less. The last line says how that ended.
pub(crate) async fn buy(act: Act) -> Outcome {
    let (locker, database) = (connect().await?, database(env::var("STOCK")?).await?);
    let lease = match act {
        Act::NoLock => None,
        Act::Lock | Act::Guard => Some(locker.lock(ARTICLE)?.ttl(TTL).acquire().await?),
    };
    let guard = lease
        .as_ref()
        .map(Lease::token)
        .filter(|_| act == Act::Guard);
    let mut look = begin(&database, guard).await?;
    let seen: i64 = sqlx::query_scalar("SELECT amount FROM stock")
        .fetch_one(&mut *look)
        .await?;
    look.commit().await?;
    println!("reads that {seen} are left");
    stdin().read_line(&mut String::new())?;

    let over = lease.as_ref().is_some_and(|lease| !lease.is_valid());
    let told = if seen == 0 {
        "is too late".to_owned()
    } else {
        match sell(&database, guard, seen - 1).await {
            Ok(()) if over => "bought, although its lease is over".to_owned(),
            Ok(()) => "bought".to_owned(),
            Err(error) => format!("is refused: {}", refusal(error)?),
        }
    };
    if let Some(lease) = lease {
        // The one that was paused has lost its lease, which is an error.
        let _ = lease.release().await;
    }
    println!("{told}");
    Ok(())
}

/// Begins a transaction. With a token the guard checks that, and refuses older ones from then on.
async fn begin(
    database: &SqlitePool,
    guard: Option<FencingToken>,
) -> Outcome<Transaction<'static, Sqlite>> {
    let mut transaction = database.begin_with("BEGIN IMMEDIATE").await?;
    if let Some(token) = guard {
        sql::check(&mut *transaction, ARTICLE, token).await?;
    }
    Ok(transaction)
}

/// Books a sale and writes how many are left.
async fn sell(database: &SqlitePool, guard: Option<FencingToken>, left: i64) -> Outcome {
    let mut write = begin(database, guard).await?;
    let update = "UPDATE stock SET amount = $1, sold = sold + 1";
    sqlx::query(update).bind(left).execute(&mut *write).await?;
    Ok(write.commit().await?)
}

/// Returns the guard's refusal; any other error stays one.
fn refusal(error: Box<dyn std::error::Error + Send + Sync>) -> Outcome<Box<leasehold::Error>> {
    let refused = error.downcast::<leasehold::Error>()?;
    match refused.stale_token() {
        Some(_) => Ok(refused),
        None => Err(refused),
    }
}
