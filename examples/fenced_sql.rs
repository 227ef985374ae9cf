//! Writes to a database behind a guard, which refuses a holder that was replaced and does not know it yet.
//!
//! In `Cargo.toml`: sqlx, and leasehold with the feature `sqlite`, `postgres` or `mysql`.
//! `cargo run -p leasehold-guard-demos --example fenced_sql`; with `LEASEHOLD_URL=redis://…` on a server.

use std::error::Error;

use leasehold::{FencingToken, Locker, fence::sql};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("memory://".into());
    let lock = Locker::connect(url).await?.lock("account/7")?;
    // Each connection to `:memory:` would have a database of its own.
    let pool = SqlitePoolOptions::new().max_connections(1);
    let pool = pool.connect("sqlite::memory:").await?;
    sql::create_table(&pool).await?; // Where the guard keeps tokens. Once, such as in a migration.
    sqlx::raw_sql("CREATE TABLE account (id, balance); INSERT INTO account VALUES (7, 100)")
        .execute(&pool)
        .await?;

    // Suppose that this holder is paused for too long: others get the lock meanwhile.
    let stale = lock.acquire().await?.token();
    let lease = lock.acquire().await?;
    println!("balance: {}", withdraw(&pool, lease.token()).await?);
    println!("late: {:?}", withdraw(&pool, stale).await);
    Ok(lease.release().await?)
}

/// Reads and writes in one transaction, which checks the account's token at its start.
async fn withdraw(pool: &SqlitePool, token: FencingToken) -> Result<i64, Box<dyn Error>> {
    let mut tx = sql::begin(pool, "account/7", token).await?;
    let change = "UPDATE account SET balance = balance - 30 WHERE id = 7 RETURNING balance";
    let balance = sqlx::query_scalar(change).fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(balance)
}
