//! The five of a family want a reward at the same moment, which may be taken once. Each looks whether it
//! was taken, and takes it: five times if nothing keeps them apart; once with a lock, and a guard in the
//! database in case a lease was lost.
//!
//! It exits with 1 if the story ends otherwise. With `LEASEHOLD_URL=redis://…` the lock is on a server.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Lock;
use leasehold::fence::sql;
use leasehold_demos::{Outcome, connect, log, promise, run};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

const FAMILY: [&str; 5] = ["Ada", "Ben", "Cleo", "Dan", "Eve"];
const REWARD: &str = "reward";
/// How long giving the reward takes, say a call of another service.
const GIVING: Duration = Duration::from_millis(50);
const COUNT: &str = "SELECT COUNT(*) FROM reward";
const TAKE: &str = "INSERT INTO reward VALUES ($1)";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(acts()).await
}

async fn acts() -> Outcome {
    // The line comes before the connection, which may take long.
    println!("{} of one family want a reward.", FAMILY.len());
    let locker = connect().await?;
    // Each connection to memory would be a database of its own.
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await?;
    sqlx::query("CREATE TABLE reward (taker TEXT NOT NULL)")
        .execute(&pool)
        .await?;
    sql::create_table(&pool).await?;

    println!("\nAct 1: each looks whether it was taken, and takes it");
    let all_have_looked = Arc::new(Barrier::new(FAMILY.len()));
    let taken = all(&pool, |name| {
        without_lock(pool.clone(), all_have_looked.clone(), name)
    })
    .await?;
    promise(taken == 5, "act 1 was to go wrong")?;

    println!("\nAct 2: each does the same with a lease, and its token for the database");
    sqlx::query("DELETE FROM reward").execute(&pool).await?;
    let lock = locker.lock(REWARD)?;
    let taken = all(&pool, |name| with_lock(pool.clone(), lock.clone(), name)).await?;
    promise(taken == 1, "act 2 was to give one reward")?;
    println!("\nOne reward, one record, whoever comes first.");
    Ok(())
}

/// Lets all of them try, and returns how often the reward was taken.
async fn all<T>(pool: &SqlitePool, take: impl Fn(&'static str) -> T) -> Outcome<i64>
where
    T: Future<Output = Outcome> + Send + 'static,
{
    let mut family: JoinSet<_> = FAMILY.into_iter().map(take).collect();
    while let Some(done) = family.join_next().await {
        done??;
    }
    let records = sqlx::query_scalar(COUNT).fetch_one(pool).await?;
    println!("=> records: {records}");
    Ok(records)
}

/// Takes the reward after all have looked, which would happen by chance without the barrier.
async fn without_lock(pool: SqlitePool, all_have_looked: Arc<Barrier>, name: &str) -> Outcome {
    let taken: i64 = sqlx::query_scalar(COUNT).fetch_one(&pool).await?;
    all_have_looked.wait().await;
    sleep(GIVING).await;
    if taken == 0 {
        sqlx::query(TAKE).bind(name).execute(&pool).await?;
        log(format_args!("{name} took it, because nobody had"));
    }
    Ok(())
}

async fn with_lock(pool: SqlitePool, lock: Lock, name: &str) -> Outcome {
    let lease = lock.acquire().await?;
    let token = lease.token();
    // From now on the guard refuses whoever has an older token, who could otherwise still change what is read.
    let mut read = sql::begin(&pool, REWARD, token).await?;
    let times: i64 = sqlx::query_scalar(COUNT).fetch_one(&mut *read).await?;
    read.commit().await?;
    if times == 0 {
        // If the lease is lost meanwhile, this is dropped.
        lease.run(sleep(GIVING)).await?;
        let mut write = sql::begin(&pool, REWARD, token).await?;
        sqlx::query(TAKE).bind(name).execute(&mut *write).await?;
        write.commit().await?;
        log(format_args!(
            "{name} took it with token {token}, because nobody had"
        ));
    } else {
        log(format_args!("{name} with token {token} is too late"));
    }
    Ok(lease.release().await?)
}
