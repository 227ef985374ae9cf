//! One lock on several real servers, decided by a majority.

use std::time::Duration;

use futures::future::join_all;
use leasehold::{ErrorKind, FencingToken, LeaseEvent, Locker};
use leasehold_tests::{Admin, RedisServer, Stopwatch, eventually, next_event};

use crate::{LIMIT, lock_key, millis};

pub(crate) const TTL: Duration = Duration::from_secs(2);
/// How long a silent server is waited for before the others decide alone.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(300);

pub(crate) async fn start(servers: usize) -> Vec<RedisServer> {
    join_all((0..servers).map(|_| RedisServer::start())).await
}

pub(crate) fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(RedisServer::url).collect()
}

async fn locker(servers: &[RedisServer]) -> Locker {
    let builder = Locker::builder().command_timeout(TIMEOUT);
    let locker = builder.patience(millis(1_500)).quorum(urls(servers)).await;
    locker.expect("a majority is up")
}

/// Returns at how many of these servers the lock is held.
pub(crate) async fn held_at(servers: impl IntoIterator<Item = &RedisServer>) -> usize {
    let mut held = 0;
    for server in servers {
        let tenure = Admin::connect(server).await.tenure(&lock_key("x")).await;
        held += usize::from(tenure.is_some());
    }
    held
}

/// A fault of a server.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Fault {
    Down,
    Paused,
    ReadOnly,
    Emptied,
}

pub(crate) async fn fail(server: &mut RedisServer, fault: Fault) {
    match fault {
        Fault::Down => server.kill(),
        Fault::Paused => server.pause(),
        Fault::ReadOnly => {
            let mut admin = Admin::connect(server).await;
            admin.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
        }
        Fault::Emptied => Admin::connect(server).await.flushall().await,
    }
}

/// Catches a minority that delays the majority, or whose failure undoes its work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_two_of_five_may_fail() {
    for fault in [Fault::Down, Fault::Paused, Fault::ReadOnly, Fault::Emptied] {
        let mut servers = start(5).await;
        let (one, other) = (locker(&servers).await, locker(&servers).await);
        let lock = one.lock("x").expect("valid").ttl(TTL);
        let mut events = lock.events();
        let first = lock.acquire().await.expect("all are up");
        // Whichever two of five fail, the line may stand at none, one or both of them.
        for server in &mut servers[..2] {
            fail(server, fault).await;
        }
        let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
        for _ in 0..3 {
            next_event(&mut events, LIMIT, renewed).await;
        }
        assert!(first.is_valid(), "{fault:?}");
        let waits = tokio::spawn({
            let lock = other.lock("x").expect("valid").ttl(TTL);
            async move { lock.acquire().await }
        });
        let (token, watch) = (first.token(), Stopwatch::start());
        first
            .release()
            .await
            .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let second = waits.await.expect("no panic");
        let second = second.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(
            watch.elapsed() < TTL * 2,
            "{fault:?}: {:?}",
            watch.elapsed()
        );
        assert!(second.token() > token, "{fault:?}");
        second
            .release()
            .await
            .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        if let Fault::Paused = fault {
            servers[..2].iter().for_each(RedisServer::resume);
        }
    }
}

/// Catches remains of a failed acquisition.
#[tokio::test]
async fn too_few_servers_are_named_and_leave_nothing_behind() {
    let mut servers = start(5).await;
    let locker = locker(&servers).await;
    for at in [0, 2, 4] {
        servers[at].kill();
    }
    let watch = Stopwatch::start();
    let lock = locker.lock("x").expect("valid").ttl(TTL);
    let error = lock.try_acquire().await.expect_err("two are too few");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains("3 of 5 servers are missing"), "{text}");
    for server in ["server 1:", "server 3:", "server 5:"] {
        assert!(text.contains(server), "{text}");
    }
    assert!(watch.elapsed() < millis(2_000), "{:?}", watch.elapsed());
    let rest = [&servers[1], &servers[3]];
    let nothing = async || held_at(rest).await == 0;
    eventually(LIMIT, "nothing is left", nothing).await;
    let error = lock.acquire().await.expect_err("the patience ends");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// Catches a token that a later majority of other servers does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_while_servers_fail_and_return() {
    let servers = start(5).await;
    let lockers = join_all((0..3).map(|_| locker(&servers))).await;
    // None of the servers is new: each knows the others.
    for locker in &lockers {
        let lease = locker.lock("x").expect("valid").acquire().await;
        let released = lease.expect("all are up").release().await;
        released.expect("all are up");
    }
    let mut last = None::<FencingToken>;
    for round in 0..60 {
        let (one, other) = (round % 5, (round * 2 + 1) % 5);
        for at in [one, other] {
            servers[at].pause();
        }
        let lock = lockers[round % 3].lock("x").expect("valid").ttl(TTL);
        let lease = lock.acquire().await.expect("three are up");
        assert!(
            Some(lease.token()) > last,
            "{} after {last:?}",
            lease.token()
        );
        last = Some(lease.token());
        for at in [one, other] {
            servers[at].resume();
        }
        lease.release().await.expect("a majority is up");
    }
}

#[tokio::test]
async fn a_server_that_starts_later_joins() {
    let mut servers = start(3).await;
    servers[1].kill();
    let locker = locker(&servers).await;
    let lock = locker.lock("x").expect("valid").ttl(TTL);
    let lease = lock.acquire().await.expect("two are up");
    servers[1].restart().await;
    let everywhere = async || held_at(&servers).await == 3;
    eventually(LIMIT, "all servers have the lock", everywhere).await;
    lease.release().await.expect("all are up");
}

#[tokio::test]
async fn an_invalid_quorum_is_refused_with_the_reason() {
    let servers = start(3).await;
    let protected = RedisServer::config().password("s3cret").start().await;
    let good = urls(&servers);
    let with = |at: usize, url: &str| {
        let mut urls = good.clone();
        url.clone_into(&mut urls[at]);
        urls
    };
    let protected = format!("redis://:wrong@127.0.0.1:{}", protected.port());
    for (urls, kind, says) in [
        (vec![], ErrorKind::Config, "not 0"),
        (good[..1].to_vec(), ErrorKind::Config, "not 1"),
        (good[..2].to_vec(), ErrorKind::Config, "not 2"),
        (
            with(2, &good[0]),
            ErrorKind::Config,
            "server 3 of the quorum is server 1",
        ),
        (
            with(1, "memory://m"),
            ErrorKind::Config,
            "all Redis, or all in memory",
        ),
        (
            with(1, "http://x"),
            ErrorKind::Config,
            "server 2 of the quorum",
        ),
        (
            with(2, &protected),
            ErrorKind::Auth,
            "server 3 of the quorum",
        ),
    ] {
        let error = Locker::quorum(&urls)
            .await
            .expect_err("the call is refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    let twice = Locker::quorum(["memory://a", "memory://b", "memory://a"]).await;
    assert!(twice.expect_err("the call is refused").is_config());
    let locker = Locker::quorum(&good).await.expect("the URLs are valid");
    let dense = locker.lock("x").expect("valid").dense_tokens();
    let error = dense.try_acquire().await.expect_err("there would be gaps");
    assert_eq!(error.option(), Some("dense_tokens"), "{error}");
}

#[tokio::test]
async fn too_few_servers_at_the_start_are_an_error() {
    let mut servers = start(3).await;
    servers[0].kill();
    servers[2].kill();
    let error = Locker::quorum(urls(&servers))
        .await
        .expect_err("one is too few");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("server 1:") && text.contains("server 3:"),
        "{text}"
    );
}
