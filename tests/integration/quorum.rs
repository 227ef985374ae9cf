//! One lock on several real servers, decided by a majority.

use std::time::Duration;

use futures::future::join_all;
use leasehold::{ErrorKind, Locker};
use leasehold_tests::{Admin, RedisServer, eventually};

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
