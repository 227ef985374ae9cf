//! A cluster of one node, which refuses keys of different slots as a large one does.

use leasehold::ErrorKind;
use leasehold_guard_tests::conformance::token;
use leasehold_tests::{Admin, RedisServer, eventually};

use super::{LIMIT, kind, refusal};

/// Starts the node. Returns it with a URL for a client that knows clusters.
pub(crate) async fn node() -> (RedisServer, String) {
    let args = [
        "--cluster-enabled",
        "yes",
        "--cluster-announce-ip",
        "127.0.0.1",
    ];
    let server = RedisServer::config().args(args).start().await;
    let mut admin = Admin::connect(&server).await;
    admin.ok(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    eventually(LIMIT, "the cluster is up", async || {
        let info = admin.string(&["CLUSTER", "INFO"]).await;
        info.is_some_and(|info| info.contains("cluster_state:ok"))
    })
    .await;
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    (server, url)
}

/// Catches a fence on another slot than its resource: the server would answer CROSSSLOT.
#[tokio::test]
async fn a_key_named_as_the_resource_is_always_on_its_slot() {
    let (_server, url) = node().await;
    let redis = super::guard(&url).await;
    for name in [
        "orders/42",
        "orders:{42}",
        "{a}{b}",
        "a}b",
        "}",
        "{}x",
        "}{",
        "{{é}} %",
    ] {
        let newer = redis.resource(name, token(2)).expect("a valid name");
        newer
            .set(name, "1")
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let older = redis.resource(name, token(1)).expect("a valid name");
        assert_eq!(refusal(older.set(name, "2").await), (1, 2));
    }
}

#[tokio::test]
async fn keys_of_other_slots_are_an_error_before_anything_is_sent() {
    let (server, url) = node().await;
    let redis = super::guard(&url).await;
    let order = redis
        .resource("{orders/42}", token(1))
        .expect("a valid name");
    order
        .set("{orders/42}:state", "paid")
        .await
        .expect("the tag is the same");
    order
        .set("orders/42", "paid")
        .await
        .expect("the slot is the same");

    let mut admin = Admin::connect(&server).await;
    admin.reset_stats().await;
    let error = order
        .set("orders/43", "paid")
        .await
        .expect_err("the key is on another slot");
    assert_eq!(error.kind(), ErrorKind::Config);
    // redis-rs does not say that it uses a cluster, and the server does not name the key.
    let named = if super::BY_REDIS_RS {
        "{orders/42}:fence"
    } else {
        "\"orders/43\""
    };
    assert!(error.to_string().contains(named), "{error}");
    let keys = vec!["{orders/42}:state", "elsewhere"];
    let copy = "return redis.call('COPY', KEYS[1], KEYS[2])";
    let copied = order.script::<(), _>(copy, keys, ()).await;
    assert_eq!(kind(copied), ErrorKind::Config);
    assert_eq!(admin.script_calls().await, 0);
}

/// Catches another kind of error if the client does not know the cluster: then the server itself refuses.
#[tokio::test]
async fn the_refusal_of_the_server_has_the_same_kind() {
    let (server, _) = node().await;
    let redis = super::guard(&server.url()).await;
    let order = redis.resource("orders/42", token(1)).expect("a valid name");
    order
        .set("orders/42", 1)
        .await
        .expect("the slot is the same");
    let error = order
        .set("orders/43", 1)
        .await
        .expect_err("the key is on another slot");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("{orders/42}:fence"), "{error}");
}

#[tokio::test]
async fn a_lone_server_accepts_any_keys() {
    let store = super::Store::start().await;
    let redis = store.under(1);
    redis.set("orders/42", 1).await.expect("any key will do");
    redis.set("orders/43", 1).await.expect("any key will do");
}
