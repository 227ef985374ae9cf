//! Compiles with the default features of every client that programs bring; `cargo xtask test` checks that.

use std::sync::Arc;

use leasehold::fence::{http::FenceLayer, object::FencedStore, redis::FencedRedis};
use leasehold::{Locker, adapter::RedisRs};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locker = Locker::in_memory();
    let lease = locker.lock("orders/42")?.acquire().await?;
    let token = lease.token();

    let store = FencedStore::new(Arc::new(object_store::memory::InMemory::new()));
    store.put(&"reports/today".into(), token, "7 sold").await?;

    let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
    leasehold::fence::sql::create_table(&pool).await?;
    let tx = leasehold::fence::sql::begin(&pool, "orders/42", token).await?;
    tx.commit().await?;

    let gate = Arc::new(leasehold::fence::Gate::new());
    let guarded = axum::Router::<()>::new()
        .layer(FenceLayer::new(gate, |parts| Some(parts.uri.path().to_owned())));
    let guards = (FencedRedis::new(fred::clients::Client::default()), guarded);
    println!("compiled with {}", std::any::type_name_of_val(&guards));
    let _ = RedisRs::<redis::aio::MultiplexedConnection>::new;
    lease.release().await?;
    Ok(())
}
