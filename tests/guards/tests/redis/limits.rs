//! The documented limits of the guard.

use leasehold::ErrorKind;

use super::{FENCE, Store, kind, refusal};

/// Documents that the fence is lost with the data, and that the next holder's write closes it again.
#[tokio::test]
async fn after_flushall_an_old_token_passes_until_the_next_holder_writes() {
    let mut store = Store::start().await;
    store.under(34).set("k", "new").await.expect("it passes");
    assert_eq!(refusal(store.under(33).set("k", "late").await), (33, 34));
    store.admin.flushall().await;
    store
        .under(33)
        .set("k", "late")
        .await
        .expect("the server has forgotten 34");
    store.under(35).set("k", "newest").await.expect("it passes");
    assert_eq!(refusal(store.under(33).set("k", "late").await), (33, 35));
    assert_eq!(refusal(store.under(34).set("k", "late").await), (34, 35));
    assert_eq!(store.get("k").await.as_deref(), Some("newest"));
}

/// Catches a fence that is lost though the data outlives the server.
#[tokio::test]
async fn a_server_that_keeps_its_data_keeps_its_fences() {
    let server = leasehold_tests::RedisServer::config().append_only();
    let mut store = Store::of(server.start().await).await;
    store.under(34).set("k", "new").await.expect("it passes");
    store.server.restart().await;
    let store = Store::of(store.server).await;
    assert_eq!(refusal(store.under(33).set("k", "late").await), (33, 34));
}

#[tokio::test]
async fn a_write_that_fails_keeps_the_token() {
    let mut store = Store::start().await;
    store.under(33).set("k", "text").await.expect("it passes");
    let error = store.under(34).hset("k", "f", 1).await;
    let error = error.expect_err("a string is no hash");
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    assert!(
        !error.to_string().contains("namespace"),
        "advice on locks: {error}"
    );
    assert_eq!(store.get("k").await.as_deref(), Some("text"));
    assert_eq!(store.get(FENCE).await.as_deref(), Some("34"));
    assert_eq!(refusal(store.under(33).set("k", "late").await), (33, 34));
    store.under(34).set("k", "later").await.expect("it passes");
    let counted = store.under(34).incr_by("k", 1).await;
    assert_eq!(kind(counted), ErrorKind::WrongType);
}

/// Catches a token that is kept, or a first key that is written, though memory is too short for the whole
/// write.
#[tokio::test]
async fn a_server_without_memory_writes_nothing() {
    let mut store = Store::start().await;
    store.under(33).set("a", "old").await.expect("it passes");
    store.under(33).set("b", "old").await.expect("it passes");
    store.admin.ok(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let both = "redis.call('SET', KEYS[1], 'new') redis.call('SET', KEYS[2], 'new')";
    for number in [33, 34] {
        let keys = vec!["a", "b"];
        let written: Result<(), _> = store.under(number).script(both, keys, ()).await;
        assert_eq!(kind(written), ErrorKind::Unavailable);
    }
    assert_eq!(kind(store.under(34).del("a").await), ErrorKind::Unavailable);
    for key in ["a", "b"] {
        assert_eq!(store.get(key).await.as_deref(), Some("old"));
    }
    assert_eq!(store.get(FENCE).await.as_deref(), Some("33"));
    // A holder whose token was seen already can still delete keys, and a stale one is still refused.
    assert_eq!(refusal(store.under(32).del("a").await), (32, 33));
    assert_eq!(store.under(33).del("a").await, Ok(true));
    store.admin.ok(&["CONFIG", "SET", "maxmemory", "0"]).await;
    store.under(34).set("a", "new").await.expect("it passes");
}

/// Catches a guard that overwrites or compares a foreign value in the fence's key.
#[tokio::test]
async fn a_foreign_value_in_the_fence_key_is_kept() {
    let mut store = Store::start().await;
    store.admin.ok(&["SET", "k", "old"]).await;
    let most = "9007199254740992";
    for junk in [
        "",
        "abc",
        "007",
        "-1",
        "1.5",
        "1e3",
        " 5",
        "5\n",
        "0",
        most,
        "99999999999999999",
    ] {
        store.admin.ok(&["SET", FENCE, junk]).await;
        let error = store.under(34).set("k", "new").await;
        let error = error.expect_err("the value is no token");
        assert_eq!(error.kind(), ErrorKind::WrongType, "{junk:?}: {error}");
        assert!(error.to_string().contains(FENCE), "{error}");
        assert_eq!(store.get(FENCE).await.as_deref(), Some(junk));
    }
    store.admin.int(&["DEL", FENCE]).await;
    store.admin.int(&["RPUSH", FENCE, "34"]).await;
    let error = store.under(34).set("k", "new").await;
    let error = error.expect_err("the key has a list");
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert!(error.to_string().contains(FENCE), "{error}");
    assert_eq!(store.get("k").await.as_deref(), Some("old"));
}
