//! Connecting in the background: a program may start while its server is away.

use std::time::{Duration, Instant};

use leasehold::{Builder, ErrorKind, Finding, LeaseEvent, Locker};
use leasehold_tests::{Admin, Authority, RedisServer, Stopwatch, eventually, next_event};
use tokio::runtime::Handle;

use crate::{LIMIT, millis};

fn lazily(builder: Builder, url: &str) -> Locker {
    builder.connect_lazily(url).expect("the URL is valid")
}

/// Catches a locker that gives up on a server that comes later, or that tries only when it is called.
#[tokio::test]
async fn a_server_that_comes_later_is_used_once_it_is_there() {
    let mut server = RedisServer::config()
        .args(["--maxmemory-policy", "allkeys-lru"])
        .start()
        .await;
    server.kill();
    let locker = lazily(Locker::builder(), &server.url());
    let lock = locker.lock("x").expect("valid");
    // Calls wait or fail as they do once a link is lost.
    let (begin, watch) = (Instant::now(), Stopwatch::start());
    let mut error = lock
        .acquire_within(millis(300))
        .await
        .expect_err("nobody is there");
    assert!(begin.elapsed() >= millis(300), "{:?}", begin.elapsed());
    assert!(watch.elapsed() < millis(2_000), "{:?}", watch.elapsed());
    // Whoever is slow to find out why says first that it has no answer.
    let refused = async || {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let is_said = error.to_string().contains("Connection refused");
        error = lock
            .acquire_within(millis(300))
            .await
            .expect_err("nobody is there");
        is_said
    };
    eventually(LIMIT, "the reason to be told", refused).await;
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
    // From then on it is like any other: pushes are heard, and a link that is lost is made again.
    let mut admin = Admin::connect(&server).await;
    let hears = async || admin.hearing_lockers().await == 1;
    eventually(LIMIT, "it to hear", hears).await;
    let mut events = lock.events();
    admin.kill_clients().await;
    let at_risk = |event: &LeaseEvent| matches!(event, LeaseEvent::AtRisk { .. });
    next_event(&mut events, LIMIT, at_risk).await;
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, LIMIT, renewed).await;
}

/// Catches a first call that fails although the server is there, because it was faster than the link.
#[tokio::test]
async fn calls_right_after_it_wait_for_the_first_connection() {
    let server = RedisServer::start().await;
    for _ in 0..20 {
        let locker = lazily(Locker::builder(), &server.url());
        let lease = locker.lock("x").expect("valid").try_acquire().await;
        lease
            .expect("the server is there")
            .expect("free")
            .release()
            .await
            .expect("held");
    }
    let locker = lazily(Locker::builder(), "memory://");
    assert!(
        locker
            .lock("x")
            .expect("valid")
            .try_acquire()
            .await
            .expect("there")
            .is_some()
    );
}

/// Catches what `connect` would have found wrong, and calls that wait in vain for it to pass.
#[tokio::test]
async fn what_is_wrong_with_a_server_fails_the_calls() {
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

/// Catches a replica that is taken for good, and one that is left though it was promoted.
#[tokio::test]
async fn a_replica_is_waited_for_to_be_promoted() {
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
    eventually(LIMIT, "the replica to be found out", read_only).await;
    let mut admin = Admin::connect(&replica).await;
    admin.ok(&["REPLICAOF", "NO", "ONE"]).await;
    assert!(
        lock.acquire_within(LIMIT)
            .await
            .expect("it was promoted")
            .is_some()
    );
}

/// Catches a task that connects for ever to a server for nobody.
#[tokio::test]
async fn a_locker_that_is_dropped_connects_no_more() {
    let mut server = RedisServer::start().await;
    server.kill();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let locker = lazily(Locker::builder(), &server.url());
    assert!(tasks() > before);
    drop(locker);
    let ended = async || tasks() == before;
    eventually(LIMIT, "the tasks to end", ended).await;
    let locker = lazily(Locker::builder(), &server.url());
    locker.shutdown().await;
    eventually(LIMIT, "the tasks to end", ended).await;
}

#[tokio::test]
async fn a_url_that_is_not_valid_is_refused_at_once() {
    for url in ["", "redis://", "redis-cluster://h/1", "http://h"] {
        assert!(Locker::connect_lazily(url).expect_err(url).is_config());
    }
}
