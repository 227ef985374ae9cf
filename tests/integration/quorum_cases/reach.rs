//! Clients that each reach only some of the servers.

use std::time::Instant;

use leasehold::ErrorKind;
use leasehold_tests::{Stopwatch, eventually, steady};

use super::{BOUND, Reach};
use crate::quorum::{TTL, start};
use crate::{LIMIT, millis};

/// Catches a holder by a minority, and a client that such a holder blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_needs_three_of_five_servers_to_hold_a_lock() {
    let servers = start(5).await;
    let (few, many) = (Reach::of(&servers).await, Reach::of(&servers).await);
    let (two, three) = (few.locker().await, many.locker().await);
    let (two, three) = (two.lock("x"), three.lock("x"));
    let (two, three) = (two.expect("valid").ttl(TTL), three.expect("valid").ttl(TTL));
    few.lose(&[2, 3, 4]).await;
    many.lose(&[0, 1]).await;
    for _ in 0..5 {
        let (none, one) = tokio::join!(two.try_acquire(), three.acquire());
        let error = none.expect_err("two are too few");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        one.expect("three are enough")
            .release()
            .await
            .expect("three are enough");
    }
}

/// Catches a holder that goes on after its majority has turned to another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_from_three_servers_loses_the_lock_before_another_gets_it() {
    steady(loses_it_before_another_gets_it).await;
}

async fn loses_it_before_another_gets_it() {
    let servers = start(5).await;
    let (few, many) = (Reach::of(&servers).await, Reach::of(&servers).await);
    let (two, three) = (few.locker().await, many.locker().await);
    let (two, three) = (two.lock("x"), three.lock("x"));
    let (two, three) = (two.expect("valid").ttl(TTL), three.expect("valid").ttl(TTL));
    let first = two.acquire().await.expect("all are up");
    few.lose(&[2, 3, 4]).await;
    many.lose(&[0, 1]).await;
    let watch = Stopwatch::start();
    let gets = tokio::spawn(async move {
        let lease = three.acquire().await.expect("three are enough");
        (lease, Instant::now())
    });
    let reason = first.lost().await.reason;
    let lost = Instant::now();
    let (second, got) = gets.await.expect("no panic");
    // The event of a loss may be slightly late; the lease itself never is.
    assert!(got + millis(50) >= lost, "{:?} early, {reason}", lost - got);
    assert!(!first.is_valid() && second.is_valid());
    assert!(second.token() > first.token());
    assert!(watch.elapsed() < TTL + BOUND, "{:?}", watch.elapsed());
    // The servers that it could not reach do not block it once they are back.
    few.regain();
    many.regain();
    let refused = async || matches!(two.try_acquire().await, Ok(None));
    eventually(LIMIT, "a refusal by a majority", refused).await;
    assert!(second.is_valid());
    second.release().await.expect("all are back");
    let again = two.acquire_within(LIMIT).await.expect("all are back");
    assert!(again.expect("a free lock").token() > first.token());
}

/// Catches a client that cannot have a majority and keeps a server at which others have to wait in line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_reaches_too_few_servers_blocks_no_other() {
    let servers = start(5).await;
    let (few, many) = (Reach::of(&servers).await, Reach::of(&servers).await);
    let (two, four) = (few.locker().await, many.locker().await);
    let (two, four) = (two.lock("x"), four.lock("x"));
    let (two, four) = (two.expect("valid").ttl(TTL), four.expect("valid").ttl(TTL));
    few.lose(&[2, 3, 4]).await;
    many.lose(&[1]).await;
    let in_vain = tokio::spawn(async move {
        loop {
            let error = two.acquire().await.expect_err("two are too few");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    });
    tokio::time::sleep(millis(300)).await;
    let mut most = millis(0);
    for _ in 0..10 {
        let watch = Stopwatch::start();
        let lease = four.acquire().await.expect("four are enough");
        most = most.max(watch.elapsed());
        lease.release().await.expect("four are enough");
    }
    println!("beside one that reaches two and waits: {most:?} at the most");
    assert!(most <= TTL, "{most:?}");
    assert!(!in_vain.is_finished());
    in_vain.abort();
}
