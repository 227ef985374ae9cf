//! Servers that are slow, down, or refuse.

use std::time::{Duration, Instant};

use leasehold::ErrorKind;
use leasehold_guard_tests::conformance::token;
use leasehold_tests::{Admin, Direction, Mode, Proxy, RedisServer, eventually};

use super::{LIMIT, Store, guard, kind, refusal};

/// Documents that the outcome of a timeout is unknown; here the write was done. It is safe to repeat `set`,
/// not `incr_by`.
#[tokio::test]
async fn after_a_timeout_the_write_may_have_been_done() {
    let mut store = Store::start().await;
    store.under(33).set("k", 0).await.expect("it passes");
    let limit = Duration::from_millis(300);
    let hasty = store.redis.clone().timeout(limit);
    let hasty = hasty.resource("r", token(34)).expect("a valid name");
    store.server.pause();
    let began = Instant::now();
    let (set, sum) = tokio::join!(hasty.set("k", 1), hasty.incr_by("n", 1));
    assert_eq!(kind(set), ErrorKind::Timeout);
    assert_eq!(kind(sum), ErrorKind::Timeout);
    assert!(began.elapsed() >= limit && began.elapsed() < LIMIT);
    store.server.resume();
    eventually(LIMIT, "the unconfirmed writes are done", async || {
        store.get("k").await.as_deref() == Some("1") && store.get("n").await.is_some()
    })
    .await;
    store
        .under(34)
        .set("k", 1)
        .await
        .expect("a repeated write passes");
    assert_eq!(store.get("k").await.as_deref(), Some("1"));
    assert_eq!(
        store.under(34).incr_by("n", 1).await,
        Ok(2),
        "counted twice"
    );
    assert_eq!(refusal(store.under(33).set("k", 9).await), (33, 34));
}

/// Catches a client that resends a write by itself, as fred does by default.
#[tokio::test]
async fn a_write_is_sent_once() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let redis = guard(&proxy.url()).await;
    let redis = redis.resource("r", token(1)).expect("a valid name");
    assert_eq!(redis.incr_by("n", 1).await, Ok(1));
    let mut admin = Admin::connect(&server).await;
    for done in 2..=4 {
        // The server executes it, and the connection is cut before the reply arrives.
        proxy.set(Direction::Down, Mode::Hold);
        let lost = redis.incr_by("n", 1);
        let cut = async {
            eventually(LIMIT, "the write", async || {
                admin.int(&["GET", "n"]).await == done
            })
            .await;
            // This also drops a reply that is still on its way to the proxy.
            proxy.cut().await;
            proxy.set(Direction::Down, Mode::Pass);
        };
        let (lost, ()) = tokio::join!(lost, cut);
        let error = lost.expect_err("the answer is lost");
        assert!(error.is_transient(), "{error}");
        // A resent write would come before this one, on the same connection.
        eventually(LIMIT, "the server answers", async || {
            redis.set("k", 1).await.is_ok()
        })
        .await;
        assert_eq!(admin.int(&["GET", "n"]).await, done);
    }
}

#[tokio::test]
async fn a_stopped_server_is_unavailable() {
    let mut store = Store::start().await;
    let redis = store.redis.clone().timeout(Duration::from_millis(500));
    let redis = redis.resource("r", token(1)).expect("a valid name");
    store.server.kill();
    let error = redis.set("k", 1).await.expect_err("there is no server");
    assert!(error.is_transient(), "{error}");
    store.server.restart().await;
    eventually(LIMIT, "the connection", async || {
        redis.set("k", 1).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_replica_takes_no_writes() {
    let store = Store::start().await;
    store.under(34).set("k", "new").await.expect("it passes");
    let config = RedisServer::config().replica_of(&store.server);
    let mut replica = Store::of(config.start().await).await;
    eventually(LIMIT, "the replica's copy", async || {
        replica.get("k").await.is_some()
    })
    .await;
    for number in [34, 35] {
        let written = replica.under(number).set("k", "x").await;
        assert_eq!(kind(written), ErrorKind::ReadOnly);
    }
}

#[tokio::test]
async fn a_missing_right_is_reported_without_the_password() {
    let mut store = Store::start().await;
    let password = "hunter2hunter2";
    let rights = [">hunter2hunter2", "on", "~allowed*", "+@all"];
    let user = ["ACL", "SETUSER", "limited"];
    store.admin.ok(&[&user[..], &rights[..]].concat()).await;
    let url = format!(
        "redis://limited:{password}@127.0.0.1:{}",
        store.server.port()
    );
    let redis = guard(&url).await;
    let redis = redis.resource("r", token(1)).expect("a valid name");
    let error = redis
        .set("k", 1)
        .await
        .expect_err("the user has no right to the key");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    for shown in [format!("{error:?}"), format!("{redis:?}")] {
        assert!(!shown.contains(password), "{shown}");
    }
}
