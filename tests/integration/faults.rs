//! Servers and connections that fail and recover.

use std::time::Duration;

use leasehold::{ErrorKind, LeaseEvent, Locker};
use leasehold_tests::{Admin, Proxy, RedisServer, Stopwatch, eventually, next_event, within};

use crate::{LIMIT, connect, connect_with, held, in_line, millis};

#[tokio::test]
async fn an_outage_shorter_than_the_lease_only_puts_it_at_risk() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let builder = Locker::builder().command_timeout(millis(200));
    let locker = connect_with(builder, &proxy.url()).await;
    let lock = locker.lock("x").expect("valid").ttl(millis(6_000));
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("a free lock");
    let watch = Stopwatch::start();
    proxy.refuse(true);
    proxy.cut().await;
    let at_risk = |event: &LeaseEvent| matches!(event, LeaseEvent::AtRisk { .. });
    let event = next_event(&mut events, LIMIT, at_risk).await;
    let LeaseEvent::AtRisk {
        remaining, error, ..
    } = event
    else {
        unreachable!("the event was selected")
    };
    assert!(
        remaining + watch.stalled() > millis(2_000),
        "the warning came too late: {remaining:?} remain"
    );
    assert!(error.is_transient(), "{error:?}");
    proxy.refuse(false);
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, LIMIT, renewed).await;
    assert!(lease.is_valid());
    lease.release().await.expect("a held lock");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_an_error_after_the_patience() {
    let server = RedisServer::start().await;
    let builder = Locker::builder()
        .command_timeout(millis(200))
        .patience(millis(600));
    let locker = connect_with(builder, &server.url()).await;
    let lock = locker.lock("x").expect("valid");
    server.pause();
    let timed = async |limits: std::ops::Range<Duration>,
                       result: Result<(), ErrorKind>,
                       begin: Stopwatch| {
        let (took, stalled) = (begin.elapsed(), begin.stalled());
        assert!(
            matches!(result, Err(ErrorKind::Timeout | ErrorKind::Unavailable)),
            "{result:?}"
        );
        let in_time = took < limits.end && took + stalled >= limits.start;
        assert!(in_time, "it took {took:?} and {stalled:?}, not {limits:?}");
    };
    let begin = Stopwatch::start();
    let tried = lock
        .try_acquire()
        .await
        .map(drop)
        .map_err(|error| error.kind());
    timed(millis(190)..millis(600), tried, begin).await;
    let begin = Stopwatch::start();
    let within = lock
        .acquire_within(millis(400))
        .await
        .map(drop)
        .map_err(|error| error.kind());
    timed(millis(390)..millis(700), within, begin).await;
    let begin = Stopwatch::start();
    let acquired = lock.acquire().await.map(drop).map_err(|error| error.kind());
    timed(millis(590)..millis(2_500), acquired, begin).await;
    let begin = Stopwatch::start();
    let looked = locker
        .inspect("x")
        .await
        .map(drop)
        .map_err(|error| error.kind());
    timed(millis(590)..millis(2_500), looked, begin).await;
    server.resume();
    let back = async || lock.try_acquire().await.is_ok();
    eventually(LIMIT, "the server is back", back).await;
}

#[tokio::test]
async fn an_unconfirmed_release_is_an_error_and_is_sent_again() {
    let server = RedisServer::start().await;
    let builder = Locker::builder()
        .command_timeout(millis(200))
        .patience(millis(400));
    let locker = connect_with(builder, &server.url()).await;
    let lease = held(&locker, "x").await;
    server.pause();
    let error = lease
        .release()
        .await
        .expect_err("the release is not confirmed");
    assert!(error.is_transient(), "{error:?}");
    server.resume();
    let next = connect(&server)
        .await
        .lock("x")
        .expect("valid")
        .acquire_within(LIMIT)
        .await;
    assert!(
        next.expect("an answer").is_some(),
        "the lock is free long before the 30 s of the lease"
    );
}

#[tokio::test]
async fn a_waiter_survives_a_restart_of_the_server() {
    let mut server = RedisServer::start().await;
    let locker = connect(&server).await;
    let rival = connect(&server).await;
    let _held = held(&rival, "x").await;
    let lock = locker.lock("x").expect("valid");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    in_line(&rival, "x").await;
    server.restart().await;
    let lease = within(LIMIT, waiting)
        .await
        .expect("in time")
        .expect("no panic");
    assert!(lease.expect("the server forgot the holder").is_valid());
}

#[tokio::test]
async fn the_script_is_sent_again_to_a_server_that_forgot_it() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let mut admin = Admin::connect(&server).await;
    admin.command(&["SCRIPT", "FLUSH"]).await;
    let lock = locker.lock("x").expect("valid");
    let lease = lock.try_acquire().await.expect("an answer");
    lease
        .expect("a free lock")
        .release()
        .await
        .expect("a held lock");
    assert_eq!(
        admin.command_calls("eval").await,
        2,
        "the script is sent at first and after the flush"
    );
}
