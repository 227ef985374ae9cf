//! Each command does its work once, and not under a stale token.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_tests::{Monitor, Resp};

use super::{FENCE, Store, kind, refusal};

const STALE: (u64, u64) = (33, 34);

#[tokio::test]
async fn strings() {
    let mut store = Store::start().await;
    let (new, old) = (store.under(34), store.under(33));
    new.set("k", "one").await.expect("it passes");
    assert_eq!(refusal(old.set("k", "late").await), STALE);
    assert_eq!(store.get("k").await.as_deref(), Some("one"));

    let binary: &[u8] = b"\xff\r\n\0";
    new.set("k", binary).await.expect("it passes");
    let read = store.admin.command(&["GET", "k"]).await;
    assert_eq!(read, Resp::Bulk(Some(binary.to_vec())));

    new.set("k", i64::MIN).await.expect("it passes");
    assert_eq!(store.get("k").await, Some(i64::MIN.to_string()));
    new.set("", "").await.expect("Redis has such a key");
    assert_eq!(store.get("").await.as_deref(), Some(""));
}

#[tokio::test]
async fn strings_with_an_expiry() {
    let mut store = Store::start().await;
    let (new, old) = (store.under(34), store.under(33));
    let hour = Duration::from_secs(3600);
    new.set_for("k", "one", hour).await.expect("it passes");
    let left = store.admin.int(&["PTTL", "k"]).await;
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    assert_eq!(refusal(old.set_for("k", "late", hour).await), STALE);
    assert_eq!(store.get("k").await.as_deref(), Some("one"));

    // A fence that expires would admit the old holder again.
    assert_eq!(store.admin.int(&["PTTL", FENCE]).await, -1);
    assert_eq!(store.get(FENCE).await.as_deref(), Some("34"));

    new.set("k", "two").await.expect("it passes");
    assert_eq!(store.admin.int(&["PTTL", "k"]).await, -1, "as with SET");
    for bad in [Duration::ZERO, Duration::MAX] {
        assert_eq!(kind(new.set_for("k", "bad", bad).await), ErrorKind::Config);
    }
    let years = Duration::from_millis(1 << 53);
    new.set_for("k", "long", years)
        .await
        .expect("Redis takes it");
}

#[tokio::test]
async fn deletions() {
    let mut store = Store::start().await;
    let (new, old) = (store.under(34), store.under(33));
    assert_eq!(new.del("k").await, Ok(false));
    new.set("k", "one").await.expect("it passes");
    assert_eq!(refusal(old.del("k").await), STALE);
    assert_eq!(store.get("k").await.as_deref(), Some("one"));
    assert_eq!(new.del("k").await, Ok(true));
    assert_eq!(store.get("k").await, None);
    // Catches a fence that is deleted together with the key.
    assert_eq!(refusal(old.set("k", "late").await), STALE);
}

#[tokio::test]
async fn hashes() {
    let mut store = Store::start().await;
    let (new, old) = (store.under(34), store.under(33));
    assert_eq!(new.hset("h", "f", 1).await, Ok(true));
    assert_eq!(new.hset("h", "f", 2.5).await, Ok(false));
    assert_eq!(refusal(old.hset("h", "f", "late").await), STALE);
    assert_eq!(refusal(old.hdel("h", "f").await), STALE);
    let read = store.admin.string(&["HGET", "h", "f"]).await;
    assert_eq!(read.as_deref(), Some("2.5"));
    assert_eq!(new.hdel("h", "f").await, Ok(true));
    assert_eq!(new.hdel("h", "f").await, Ok(false));
}

#[tokio::test]
async fn numbers() {
    let mut store = Store::start().await;
    let (new, old) = (store.under(34), store.under(33));
    assert_eq!(new.incr_by("n", 5).await, Ok(5));
    assert_eq!(new.incr_by("n", -7).await, Ok(-2));
    assert_eq!(refusal(old.incr_by("n", 1).await), STALE);
    assert_eq!(store.get("n").await.as_deref(), Some("-2"));
    // Catches a sum that was a Lua number on the way, which is exact only up to 2^53.
    new.set("n", i64::MAX - 1).await.expect("it passes");
    let sum = new.incr_by("n", 1).await;
    assert_eq!(store.get("n").await, Some(i64::MAX.to_string()));
    assert!(sum.is_ok(), "{sum:?}");
    assert_eq!(kind(new.incr_by("n", 1).await), ErrorKind::Store);
}

#[tokio::test]
async fn lists() {
    let mut store = Store::start().await;
    let (new, old) = (store.under(34), store.under(33));
    assert_eq!(new.push("l", "a").await, Ok(1));
    assert_eq!(new.push("l", "b").await, Ok(2));
    assert_eq!(refusal(old.push("l", "late").await), STALE);
    let read = store.admin.command(&["LRANGE", "l", "0", "-1"]).await;
    let bulk = |text: &str| Resp::Bulk(Some(text.into()));
    assert_eq!(read, Resp::Array(vec![bulk("a"), bulk("b")]));
}

/// Catches a check that is a call of its own, a needless write, and a script whose text is sent each time.
#[tokio::test]
async fn a_write_is_one_call() {
    let mut store = Store::start().await;
    store.under(1).set("k", 1).await.expect("it passes");
    store.admin.reset_stats().await;
    let mut monitor = Monitor::start(&store.server).await;
    store.under(2).set("k", 2).await.expect("it passes");
    assert_eq!(monitor.matching("lua] \"SET\"").await.len(), 2);
    monitor.clear().await;
    store.under(2).set("k", 3).await.expect("it passes");
    let lines = monitor.lines().await;
    assert_eq!(lines.len(), 3, "EVALSHA, GET and SET: {lines:?}");
    assert_eq!(store.admin.command_calls("EVALSHA").await, 2);
    assert_eq!(store.admin.command_calls("EVAL").await, 0);
}

#[tokio::test]
async fn invalid_arguments_are_not_sent() {
    let mut store = Store::start().await;
    let redis = store.under(1);
    let none: Option<String> = None;
    assert_eq!(kind(redis.set("k", none).await), ErrorKind::Config);
    assert_eq!(
        kind(redis.push("k", vec!["a", "b"]).await),
        ErrorKind::Config
    );
    assert_eq!(
        kind(redis.hset("k", "f", u64::MAX).await),
        ErrorKind::Config
    );
    // These would lower or spoil the fence.
    let error = redis
        .set(FENCE, "9")
        .await
        .expect_err("the call is refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains(FENCE), "{error}");
    assert!(store.admin.keys("*").await.is_empty());
}
