//! Runs one tick's work and does not complete it at the store: the test kills it.
//!
//! `sql_runner REDIS DATABASE NAME TICK TTL_MS recorded|unrecorded` prints "committed" once it has committed.

use std::time::Duration;

use leasehold::fence::sql::TickRecord;
use leasehold::{Claimed, Locker, fence};
use leasehold_guard_tests::sql;
use sqlx::{MySqlPool, PgPool, Pool, SqlitePool};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [redis, url, name, tick, ttl, how] = &args[..] else {
        panic!("sql_runner REDIS DATABASE NAME TICK TTL_MS recorded|unrecorded");
    };
    let ttl = Duration::from_millis(ttl.parse().expect("a number"));
    let locker = Locker::connect(redis).await.expect("Redis answers");
    let job = locker.job(name).expect("a valid name").ttl(ttl);
    let tick = tick.parse().expect("a number");
    let Ok(Claimed::Turn(turn)) = job.claim(tick).await else {
        panic!("the tick is free");
    };
    let is_recorded = how == "recorded";
    let connects = "the database takes connections";
    match url.split(':').next() {
        Some("postgres") => {
            let pool = PgPool::connect(url).await.expect(connects);
            work(pool, &turn, is_recorded).await;
        }
        Some("mysql") => {
            let pool = MySqlPool::connect(url).await.expect(connects);
            work(pool, &turn, is_recorded).await;
        }
        _ => {
            let pool = SqlitePool::connect(url).await.expect(connects);
            work(pool, &turn, is_recorded).await;
        }
    }
}

async fn work<DB: sql::Db>(pool: Pool<DB>, turn: &leasehold::Turn, is_recorded: bool) {
    let (name, token) = (turn.name().as_str(), turn.token());
    let mut tx = fence::sql::begin(&pool, name, token)
        .await
        .expect("the newest token");
    if is_recorded {
        let record = turn.done_in(&mut *tx).await.expect("the newest token");
        assert_eq!(record, TickRecord::Written);
    }
    let note = "INSERT INTO history (resource, token, value) VALUES (?, ?, ?)";
    let args = [name.into(), token.get().into(), turn.tick().into()];
    <DB as sql::Db>::run(&mut tx, note, &args)
        .await
        .expect("a write");
    tx.commit().await.expect("it commits");
    println!("committed");
    std::future::pending::<()>().await;
}
