//! Tokens only ever grow (I2).

use leasehold::{FencingToken, Lock};
use leasehold_tests::{Admin, RedisServer};

use crate::{connect, lock_key};

async fn token_of(lock: &Lock) -> FencingToken {
    let lease = lock.acquire().await.expect("the lock becomes free");
    let token = lease.token();
    lease.release().await.expect("a held lock");
    token
}

/// The scenarios `rising_tokens` and `tokens_after_flushall` show the same for everything else.
#[tokio::test]
async fn tokens_grow_over_a_restart_without_persistence() {
    let mut server = RedisServer::start().await;
    let locker = connect(&server).await;
    let lock = locker.lock("x").expect("a valid name");
    let before = token_of(&lock).await;
    server.restart().await;
    assert!(token_of(&lock).await > before);
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
