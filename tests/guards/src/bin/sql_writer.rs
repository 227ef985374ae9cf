//! Writes under a fence and does not commit: the test kills it.
//!
//! `sql_writer URL RESOURCE TOKEN` prints "written" once it has written.

use leasehold::fence;
use leasehold_guard_tests::{conformance, sql};
use sqlx::{MySqlPool, PgPool, Pool, SqlitePool};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, resource, token] = &args[..] else {
        panic!("sql_writer URL RESOURCE TOKEN");
    };
    let token = token.parse().expect("a number");
    let connects = "the database takes connections";
    match url.split(':').next() {
        Some("postgres") => {
            let pool = PgPool::connect(url).await.expect(connects);
            write(pool, resource, token).await;
        }
        Some("mysql") => {
            let pool = MySqlPool::connect(url).await.expect(connects);
            write(pool, resource, token).await;
        }
        _ => {
            let pool = SqlitePool::connect(url).await.expect(connects);
            write(pool, resource, token).await;
        }
    }
}

async fn write<DB: sql::Db>(pool: Pool<DB>, resource: &str, number: u64) {
    let token = conformance::token(number);
    let mut tx = fence::sql::begin(&pool, resource, token)
        .await
        .expect("the newest token");
    sql::write::<DB>(&mut tx, resource, number, 1)
        .await
        .expect("the tables exist");
    println!("written");
    std::future::pending::<()>().await;
    drop(tx);
}
