//! Many readers share prices that one writer changes now and then. A reader learns the token of the last writer, and so rejects a
//! cache that is older. With `LEASEHOLD_URL=redis://127.0.0.1:6379` the lock is on a server.

use std::error::Error;

use leasehold::Locker;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("LEASEHOLD_URL").unwrap_or("memory://".into());
    let locker = Locker::connect(url).await?;
    let lock = locker.rw_lock("prices")?;
    // The data, with the token of the writer that wrote it.
    let (mut cache, mut store) = ((None, 0), (None, 0));
    for price in [10, 12] {
        let writer = lock.write().acquire().await?;
        cache = store; // It misses the last write.
        store = (Some(writer.token()), price);
        writer.release().await?;
    }
    let mut readers = JoinSet::new();
    for reader in 1..=5 {
        let lock = lock.clone();
        readers.spawn(async move {
            let permit = lock.read().acquire().await?;
            let is_old = cache.0 < permit.generation();
            let price = if is_old { store.1 } else { cache.1 };
            println!("reader {reader}: {price}, the cache was old: {is_old}");
            permit.release().await
        });
    }
    while let Some(read) = readers.join_next().await {
        read??;
    }
    Ok(())
}
