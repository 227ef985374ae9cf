//! Connecting in the background: a program may start while its server is down.

use std::time::{Duration, Instant};

use leasehold::{Builder, ErrorKind, Finding, LeaseEvent, Locker};
use leasehold_tests::{Admin, Authority, RedisServer, Stopwatch, eventually, next_event};
use tokio::runtime::Handle;

use crate::{LIMIT, millis};

fn lazily(builder: Builder, url: &str) -> Locker {
    builder.connect_lazily(url).expect("the URL is valid")
}

/// Catches a locker that gives up on a server that starts later, or that connects only during calls.
#[tokio::test]
async fn a_server_that_starts_later_is_used_once_it_is_up() {
    let mut server = RedisServer::config()
        .args(["--maxmemory-policy", "allkeys-lru"])
        .start()
        .await;
    server.kill();
    let locker = lazily(Locker::builder(), &server.url());
    let lock = locker.lock("x").expect("valid");
    // Calls wait or fail as they do after a lost connection.
    let (begin, watch) = (Instant::now(), Stopwatch::start());
    let mut error = lock
        .acquire_within(millis(300))
        .await
        .expect_err("no server is up");
    assert!(begin.elapsed() >= millis(300), "{:?}", begin.elapsed());
    assert!(watch.elapsed() < millis(2_000), "{:?}", watch.elapsed());
    // A client that is slow to find the reason first reports that no answer came.
    let refused = async || {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let is_said = error.to_string().contains("Connection refused");
        error = lock
            .acquire_within(millis(300))
            .await
            .expect_err("no server is up");
        is_said
    };
    eventually(LIMIT, "the error names the reason", refused).await;
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    assert!(locker.findings().is_empty());
    server.restart().await;
    let lease = waiting.await.expect("no panic").expect("the server came");
    assert!(lease.is_valid());
    let policy = "allkeys-lru".to_owned();
    assert!(
        locker.findings().contains(&Finding::Eviction { policy }),
        "{:?}",
        locker.findings()
    );
    // From then on the locker is like any other: it hears pushes and replaces a lost connection.
    let mut admin = Admin::connect(&server).await;
    let hears = async || admin.hearing_lockers().await == 1;
    eventually(LIMIT, "the locker is subscribed", hears).await;
    let mut events = lock.events();
    admin.kill_clients().await;
    let at_risk = |event: &LeaseEvent| matches!(event, LeaseEvent::AtRisk { .. });
    next_event(&mut events, LIMIT, at_risk).await;
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, LIMIT, renewed).await;
}

/// Catches a first call that fails, though the server is up, because it was faster than the connection.
#[tokio::test]
async fn the_first_calls_wait_for_the_first_connection() {
    let server = RedisServer::start().await;
    for _ in 0..20 {
        let locker = lazily(Locker::builder(), &server.url());
        let lease = locker.lock("x").expect("valid").try_acquire().await;
        lease
            .expect("the server is up")
            .expect("a free lock")
            .release()
            .await
            .expect("a held lock");
    }
    let locker = lazily(Locker::builder(), "memory://");
    assert!(
        locker
            .lock("x")
            .expect("valid")
            .try_acquire()
            .await
            .expect("the server is up")
            .is_some()
    );
}

/// Catches a fault that `connect` would have reported, and calls that wait in vain for it to pass.
#[tokio::test]
async fn a_misconfigured_server_fails_the_calls() {
    let ca = Authority::new("ours");
    let server = RedisServer::config().password("s3cret");
    let pair = ca.server(&["redis.internal"]);
    let server = server
        .tls(&pair.certificate, &pair.key, &ca.file, false)
        .start()
        .await;
    let (port, tls_port) = (server.port(), server.tls_port());
    let tls = format!("?ca={}", ca.file.display());
    let cases = [
        (
            format!("redis://:wr0ng@127.0.0.1:{port}"),
            ErrorKind::Auth,
            "(WRONGPASS)",
        ),
        (
            format!("redis://:s3cret@127.0.0.1:{port}/99"),
            ErrorKind::Config,
            "the database in the URL does not exist",
        ),
        (
            format!("redis://:s3cret@127.0.0.1:{tls_port}"),
            ErrorKind::Config,
            "the server speaks TLS",
        ),
        (
            format!("rediss://:s3cret@127.0.0.1:{tls_port}{tls}"),
            ErrorKind::Tls,
            "is for redis.internal",
        ),
        (
            format!("rediss://:s3cret@127.0.0.1:{port}{tls}"),
            ErrorKind::Config,
            "does not speak TLS",
        ),
    ];
    let calls = cases.map(async |(url, kind, says)| {
        let locker = lazily(Locker::builder(), &url);
        let fails = async || {
            let error = locker.inspect("x").await.err()?;
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
            (error.kind() == kind && error.to_string().contains(says)).then_some(())
        };
        eventually(LIMIT, says, fails).await;
    });
    futures::future::join_all(calls).await;
}

/// Catches a replica that is kept as the server, and one that is dropped though it was promoted.
#[tokio::test]
async fn calls_wait_until_a_replica_is_promoted() {
    let primary = RedisServer::start().await;
    let replica = RedisServer::config().replica_of(&primary).start().await;
    let locker = lazily(
        Locker::builder().patience(Duration::from_secs(60)),
        &replica.url(),
    );
    let lock = locker.lock("x").expect("valid");
    let read_only = async || {
        let error = lock.acquire_within(millis(200)).await.err()?;
        (error.kind() == ErrorKind::ReadOnly).then_some(())
    };
    eventually(LIMIT, "the error names the replica", read_only).await;
    let mut admin = Admin::connect(&replica).await;
    admin.ok(&["REPLICAOF", "NO", "ONE"]).await;
    assert!(
        lock.acquire_within(LIMIT)
            .await
            .expect("the replica was promoted")
            .is_some()
    );
}

/// Catches a task that goes on connecting for a dropped locker.
#[tokio::test]
async fn a_dropped_locker_stops_connecting() {
    let mut server = RedisServer::start().await;
    server.kill();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let locker = lazily(Locker::builder(), &server.url());
    assert!(tasks() > before);
    drop(locker);
    let ended = async || tasks() == before;
    eventually(LIMIT, "the tasks end", ended).await;
    let locker = lazily(Locker::builder(), &server.url());
    locker.shutdown().await;
    eventually(LIMIT, "the tasks end", ended).await;
}

#[tokio::test]
async fn an_invalid_url_is_refused_at_once() {
    for url in ["", "redis://", "redis-cluster://h/1", "http://h"] {
        assert!(Locker::connect_lazily(url).expect_err(url).is_config());
    }
}
