//! Tokens only ever grow (I2).

use leasehold::{FencingToken, Lock};
use leasehold_tests::{Admin, RedisServer};

use crate::{connect, lock_key, millis};

async fn token_of(lock: &Lock) -> FencingToken {
    let lease = lock.acquire().await.expect("the lock becomes free");
    let token = lease.token();
    lease.release().await.expect("a held lock");
    token
}

#[tokio::test]
async fn tokens_grow_whatever_happens_to_the_store() {
    let mut server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let lock = locker.lock("x").expect("a valid name");
    let mut tokens = vec![("the first", token_of(&lock).await)];
    tokens.push(("a release", token_of(&lock).await));

    let short = locker
        .lock("x")
        .expect("a valid name")
        .ttl(millis(50))
        .fixed();
    let lease = short.acquire().await.expect("a free lock");
    tokens.push(("a release", lease.token()));
    lease.lost().await;
    tokens.push(("an expiry", token_of(&lock).await));

    let stuck = locker
        .lock("x")
        .expect("a valid name")
        .acquire()
        .await
        .expect("a free lock");
    tokens.push(("a release", stuck.token()));
    let holder = locker.force_release("x").await.expect("the server answers");
    assert_eq!(holder.map(|holder| holder.token), Some(stuck.token()));
    tokens.push(("a forced release", token_of(&lock).await));

    admin.int(&["DEL", &lock_key("x")]).await;
    tokens.push(("the counter's loss", token_of(&lock).await));

    admin.flushall().await;
    tokens.push(("FLUSHALL", token_of(&lock).await));

    server.restart().await;
    tokens.push(("a restart without persistence", token_of(&lock).await));

    for pair in tokens.windows(2) {
        assert!(pair[1].1 > pair[0].1, "after {}: {pair:?}", pair[1].0);
    }
}

/// Catches a locker with tokens by the clock that lets the counter of dense tokens expire. It would start
/// again at 1, and a guard would take the old holder for the newer one.
#[tokio::test]
async fn a_dense_counter_never_expires() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let (dense, clock) = (connect(&server).await, connect(&server).await);
    let dense = dense.lock("x").expect("a valid name").dense_tokens();
    let clock = clock.lock("x").expect("a valid name");
    assert_eq!(token_of(&dense).await.get(), 1);
    let mut last = 1;
    // First the counter is small, and later it has a value by the clock.
    for lock in [&clock, &clock, &dense, &clock] {
        let token = token_of(lock).await.get();
        assert!(token > last, "{token} after {last}");
        assert_eq!(admin.int(&["PTTL", &lock_key("x")]).await, -1);
        last = token;
    }
    // Control: a counter without a dense lock does expire.
    admin.flushall().await;
    for _ in 0..2 {
        token_of(&clock).await;
        assert!(admin.int(&["PTTL", &lock_key("x")]).await > 0);
    }
}
