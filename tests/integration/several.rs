//! Several names at once.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use futures::future::join_all;
use leasehold::{Bundle, Error, LockSet, Locker, LossReason, MemoryStore, Name};
use leasehold_tests::{Admin, Proxy, RedisCluster, RedisServer, eventually, unique_name, within};
use tokio::time::sleep;

use crate::{LIMIT, connect, connect_with, held, in_line, millis};

/// The two ways to acquire several names.
const WAYS: [fn(&Locker, &[&str]) -> LockSet; 2] = [
    |locker, names| locker.all(names).expect("valid"),
    |locker, names| locker.all_at_once(names).expect("valid"),
];

async fn acquired(set: LockSet) -> Bundle {
    set.acquire().await.expect("a bundle")
}

async fn is_free(locker: &Locker, name: &str) -> bool {
    let seen = locker.inspect(name).await.expect("an answer");
    seen.holder.is_none()
}

/// Catches a request for each name by itself.
#[tokio::test]
async fn free_names_of_one_server_are_one_script_call() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    drop(held(&locker, "first").await);
    let subscribed = async || admin.hearing_lockers().await == 1;
    eventually(LIMIT, "the subscription is checked", subscribed).await;
    for (way, most) in WAYS.iter().flat_map(|way| [(way, 3), (way, 24)]) {
        let names: Vec<_> = (0..most).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let before = admin.script_calls().await;
        let bundle = acquired(way(&locker, &names)).await;
        assert_eq!(admin.script_calls().await - before, 1, "{most} names");
        let released = bundle.release().await.expect("it was held");
        assert_eq!(admin.script_calls().await - before, 2, "{most} names");
        assert_eq!(released.len(), most);
    }
}

/// A peer's bug: each caller got its first name and waited for ever for the other's.
#[tokio::test(flavor = "multi_thread")]
async fn two_callers_that_lock_a_b_and_b_a_both_get_both() {
    let server = RedisServer::start().await;
    let inside = Arc::new(AtomicUsize::new(0));
    for way in WAYS {
        let callers = [["a", "b"], ["b", "a"], ["b", "c"], ["c", "a"]].map(|names| {
            let (url, inside) = (server.url(), inside.clone());
            tokio::spawn(async move {
                let locker = connect_with(Locker::builder(), &url).await;
                for _ in 0..25 {
                    let bundle = acquired(way(&locker, &names)).await;
                    // Any two of the lists have a name in common.
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    bundle.release().await.expect("it was held");
                }
            })
        });
        let ended = within(LIMIT * 2, join_all(callers)).await;
        for caller in ended.expect("no caller waits for ever") {
            caller.expect("no panic");
        }
    }
}

/// A peer's bug: a bundle that did not wait (`waitTime = 0`) released names that others held.
#[tokio::test]
async fn a_bundle_with_a_wait_of_zero_releases_only_what_it_held() {
    let server = RedisServer::start().await;
    let (locker, other) = (connect(&server).await, connect(&server).await);
    for holder in [&locker, &other] {
        let b = held(holder, "b").await;
        for way in WAYS {
            let set = way(&locker, &["c", "b", "a"]);
            for _ in 0..3 {
                let zero = set.acquire_within(Duration::ZERO).await.expect("an answer");
                assert!(zero.is_none());
                assert!(set.try_acquire().await.expect("an answer").is_none());
                let brief = set.acquire_within(millis(300)).await.expect("an answer");
                assert!(brief.is_none());
            }
        }
        let seen = locker.inspect("b").await.expect("an answer");
        assert_eq!(seen.holder.map(|it| it.token), Some(b.token()));
        assert!(b.is_valid());
        for name in ["a", "c"] {
            let free = async || is_free(&locker, name).await;
            eventually(LIMIT, "what was held in vain is free", free).await;
        }
        b.release().await.expect("nobody took it");
    }
}

/// Catches names that are held out of order, or not at all, while another one is awaited.
#[tokio::test]
async fn only_earlier_names_are_held_while_one_is_awaited() {
    for (way, keeps_a) in WAYS.into_iter().zip([true, false]) {
        let url = format!("memory://{}", unique_name("several"));
        let locker = Locker::connect(&url).await.expect("a store in memory");
        let other = Locker::connect(&url).await.expect("a store in memory");
        let b = held(&other, "b").await;
        let waits = tokio::spawn(acquired(way(&locker, &["c", "a", "b"])));
        in_line(&other, "b").await;
        assert_ne!(is_free(&other, "a").await, keeps_a);
        assert!(is_free(&other, "c").await);
        b.release().await.expect("it was held");
        let bundle = waits.await.expect("no panic");
        let names = bundle.tokens().map(|(name, _)| name.as_str());
        assert!(names.eq(["a", "b", "c"]));
    }
}

/// Catches leases that expire while a later name is awaited.
#[tokio::test(start_paused = true)]
async fn names_that_are_held_are_renewed_while_another_is_awaited() {
    let locker = Locker::in_memory();
    let b = held(&locker, "b").await;
    let set = locker.all(["a", "b"]).expect("valid");
    let waits = tokio::spawn(acquired(set.ttl(Duration::from_secs(2))));
    in_line(&locker, "b").await;
    let token = async || {
        let seen = locker.inspect("a").await.expect("an answer");
        seen.holder.map(|holder| holder.token)
    };
    let first = token().await;
    assert!(first.is_some());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(token().await, first);
    b.release().await.expect("it was held");
    let bundle = waits.await.expect("no panic");
    assert_eq!(bundle.token("a"), first);
    assert!(bundle.is_valid() && bundle.remaining() > Duration::from_secs(1));
}

/// Catches a bundle with a name that was lost before the last one was there.
#[tokio::test]
async fn a_name_that_is_lost_while_another_is_awaited_is_acquired_again() {
    let server = RedisServer::start().await;
    let (locker, other) = (connect(&server).await, connect(&server).await);
    let b = held(&other, "b").await;
    let waits = tokio::spawn(acquired(locker.all(["a", "b"]).expect("valid")));
    in_line(&other, "b").await;
    let next = other.lock("a").expect("valid");
    let next = tokio::spawn(async move { next.acquire().await });
    in_line(&other, "a").await;
    let freed = other.force_release("a").await.expect("an answer");
    let first = freed.expect("it was held").token;
    // The waiter has it now, so the bundle waits for that name first.
    let a = within(LIMIT, next).await.expect("in time");
    let a = a.expect("no panic").expect("it was freed");
    let left = async || other.inspect("b").await.expect("an answer").waiting == 0;
    eventually(LIMIT, "nobody waits for a later name", left).await;
    b.release().await.expect("it was held");
    a.release().await.expect("it was held");
    let bundle = within(LIMIT, waits)
        .await
        .expect("in time")
        .expect("no panic");
    assert!(bundle.is_valid());
    assert!(bundle.token("a").expect("it has it") > first);
}

#[tokio::test]
async fn a_loss_names_its_key_and_a_release_says_what_was_released() {
    for way in WAYS {
        let locker = Locker::in_memory();
        let bundle = acquired(way(&locker, &["a", "b", "c"])).await;
        let token = bundle.token("b").expect("it has it");
        let work = bundle.run(async {
            locker.force_release("b").await.expect("an answer");
            std::future::pending::<()>().await;
        });
        let lost = work.await.expect_err("it was lost");
        assert_eq!((lost.name.as_str(), lost.token), ("b", token));
        assert_eq!(lost.reason, LossReason::Revoked);
        assert!(!bundle.is_valid() && bundle.remaining().is_zero());
        assert!(!is_free(&locker, "a").await, "it is held until the release");
        let error = bundle.release().await.expect_err("one was lost");
        assert!(error.is_not_held());
        let source = std::error::Error::source(&error).expect("the loss");
        assert_eq!(source.to_string(), lost.to_string());
        let message = error.to_string();
        assert!(message.contains(r#"released only ["a", "c"]"#), "{message}");
        assert!(message.contains(r#"lock "b""#), "{message}");
        assert!(is_free(&locker, "a").await && is_free(&locker, "c").await);
    }
}

#[tokio::test]
async fn a_bad_list_is_refused_with_its_culprit() {
    let locker = Locker::in_memory();
    let message = |set: Result<LockSet, Error>| {
        let error = set.expect_err("it is refused");
        assert!(error.is_config());
        error.to_string()
    };
    let none: [&str; 0] = [];
    let thousand = || (0..1_000).map(|n| format!("name-{n}"));
    let all = |names: Vec<String>| [locker.all(&names), locker.all_at_once(&names)].map(message);
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (messages, culprit) in [
        (all(list(&none)), "empty"),
        (all(list(&["a", "b", "a"])), "\"a\""),
        (all(thousand().collect()), "\"name-64\""),
        (all(thousand().collect()), "64 names"),
        (all(list(&["a", ""])), "name"),
    ] {
        for message in messages {
            assert!(message.contains(culprit), "{message}");
        }
    }
    let most = locker.all(thousand().take(LockSet::MAX_NAMES));
    assert!(acquired(most.expect("64 names")).await.is_valid());
    let bad = locker.all(["a", "b"]).expect("valid").ttl(Duration::ZERO);
    assert!(bad.acquire().await.expect_err("no such time").is_config());
    // The order is that of the bytes, in every language.
    let set = locker.all(["😀", "\u{ffff}", "z"]).expect("valid");
    assert!(set.names().map(Name::as_str).eq(["z", "\u{ffff}", "😀"]));
}

async fn wait_until_nothing_is_left(admin: &mut Admin) {
    let condition = async || admin.in_use().await.is_empty();
    eventually(LIMIT, "no lock and no place in line are left", condition).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_dropped_at_any_time_leave_nothing() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let proxy = Proxy::start(server.port()).await;
    proxy.latency(millis(1));
    let locker = connect_with(Locker::builder(), &proxy.url()).await;
    let mut dropped = 0;
    for (n, micros) in (0..12_000).step_by(60).enumerate() {
        let set = WAYS[n % 2](&locker, &["a", "b", "c"]);
        // Every third time one of the names is busy at first.
        let busy = match n % 3 {
            0 => Some(held(&locker, ["a", "b", "c"][n / 3 % 3]).await),
            _ => None,
        };
        let free = async {
            sleep(Duration::from_micros(micros / 2)).await;
            drop(busy);
        };
        let limit = Duration::from_micros(micros);
        let (acquired, ()) = tokio::join!(tokio::time::timeout(limit, set.acquire()), free);
        dropped += usize::from(acquired.is_err());
    }
    assert!(
        dropped > 10,
        "only {dropped} were dropped before they ended"
    );
    wait_until_nothing_is_left(&mut admin).await;
    for polls in 0..40 {
        let set = WAYS[polls % 2](&locker, &["a", "b", "c"]);
        let mut acquire = pin!(set.acquire());
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..polls / 2 % 5 {
            if acquire.as_mut().poll(&mut context).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    wait_until_nothing_is_left(&mut admin).await;
}

/// Catches a call that gives up at once while the store is away, or waits for longer than it may.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_moment_is_waited_for() {
    let name = unique_name("several");
    let store = MemoryStore::named(&name);
    let locker = Locker::connect(format!("memory://{name}")).await;
    let locker = locker.expect("a store in memory");
    for way in WAYS {
        let set = way(&locker, &["a", "b"]);
        store.cut_off();
        let error = set.try_acquire().await.expect_err("it is away");
        assert!(error.is_transient(), "{error}");
        let brief = within(millis(900), set.acquire_within(millis(500))).await;
        let error = brief.expect("in time").expect_err("it is away");
        assert!(error.is_transient(), "{error}");
        let waits = tokio::spawn(acquired(set));
        sleep(Duration::from_secs(2)).await;
        store.reconnect();
        let bundle = within(LIMIT, waits).await.expect("in time");
        bundle
            .expect("no panic")
            .release()
            .await
            .expect("it is back");
    }
}

#[tokio::test]
async fn bundles_work_at_quorums_and_on_clusters() {
    let names = ["one", "two", "three"].map(unique_name);
    let urls = names.map(|name| format!("memory://{name}"));
    let quorum = async || Locker::quorum(&urls).await.expect("stores in memory");
    let cluster = RedisCluster::start().await;
    let on_cluster = async || Locker::connect(cluster.url()).await.expect("it is up");
    for (one, other) in [
        (quorum().await, quorum().await),
        (on_cluster().await, on_cluster().await),
    ] {
        for way in WAYS {
            let bundle = acquired(way(&one, &["a", "b", "c"])).await;
            let second = tokio::spawn(acquired(way(&other, &["c", "b"])));
            in_line(&one, "b").await;
            let first = bundle.token("b").expect("it has it");
            bundle.release().await.expect("it was held");
            let second = within(LIMIT, second).await.expect("in time");
            let second = second.expect("no panic");
            assert!(second.token("b").expect("it has it") > first);
            assert_eq!(second.release().await.expect("it was held").len(), 2);
        }
    }
}
