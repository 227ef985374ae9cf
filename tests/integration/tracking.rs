//! A holder hears at once when another client has changed its lock.

use std::time::Duration;

use fred::interfaces::{ClientInterface, ClientLike};
use fred::types::RespVersion;
use fred::types::config::Config;
use leasehold::adapter::{Adapter, Calling, Command, Hearing, Pairing, RedisRs, Task};
use leasehold::{Finding, Lease, Locker, LossReason};
use leasehold_tests::{Admin, RedisServer, Resp, Stopwatch, eventually, within};

use crate::rights::{named_for, statistic, user};
use crate::{LIMIT, connect, connect_with, lock_key, millis};

/// On an idle machine it takes a few milliseconds; the next renewal is 8 s away.
const AT_ONCE: Duration = Duration::from_millis(500);

/// Acquires a default lock of 30 s and waits until the server tracks its key.
async fn tracked(server: &RedisServer, locker: &Locker) -> Lease {
    let lease = locker.lock("x").expect("valid").acquire().await;
    let mut admin = Admin::connect(server).await;
    let read = async || keys(&mut admin).await == 1;
    eventually(LIMIT, "the key is read", read).await;
    lease.expect("a free lock")
}

/// Returns how many keys the server tracks.
async fn keys(admin: &mut Admin) -> u64 {
    let keys = admin.info("stats", "tracking_total_keys").await;
    keys.and_then(|keys| keys.parse().ok())
        .expect("the server counts them")
}

/// Returns how often a key was read to be tracked.
async fn reads(admin: &mut Admin) -> u64 {
    statistic(admin, "client|caching", "calls").await
}

async fn lost_at_once(lease: &Lease, reason: LossReason, what: &str) {
    let begin = Stopwatch::start();
    let lost = within(AT_ONCE, lease.lost()).await;
    assert_eq!(lost.map(|lost| lost.reason), Some(reason), "{what}");
    println!("{what}: lost after {:.1?}", begin.elapsed());
}

/// Catches a server that reports the locker's own renewals, each of which would cost a check.
#[tokio::test]
async fn own_renewals_are_not_reported() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let lease = tracked(&server, &locker).await;
    let before = locker.stats().script_calls;
    for _ in 0..10 {
        lease.renew().await.expect("the lease is held");
        // Its key is read again, after which a report would come.
        locker.inspect("y").await.expect("the server is up");
    }
    assert_eq!(locker.stats().script_calls, before + 20);
}

/// Catches a loss that is only reported at the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_loss_is_reported_at_once() {
    let key = &lock_key("x");
    let ways: [(&[&str], LossReason); 7] = [
        (&["DEL", key], LossReason::Deleted),
        (&["UNLINK", key], LossReason::Deleted),
        (&["FLUSHALL"], LossReason::Deleted),
        (&["FLUSHDB", "ASYNC"], LossReason::Deleted),
        (&["PEXPIREAT", key, "1"], LossReason::Deleted),
        (&["RENAME", key, "elsewhere"], LossReason::Deleted),
        (&["LPUSH", key, "mine"], LossReason::Superseded),
    ];
    for (command, reason) in ways {
        let server = RedisServer::start().await;
        let mut admin = Admin::connect(&server).await;
        let lease = tracked(&server, &connect(&server).await).await;
        if command[0] == "LPUSH" {
            // In one transaction; otherwise the key would be found missing.
            let (delete, push) = (["DEL", key], command);
            admin.ok(&["MULTI"]).await;
            admin.command(&delete).await;
            admin.command(push).await;
            admin.command(&["EXEC"]).await;
        } else {
            admin.command(command).await;
        }
        lost_at_once(&lease, reason, command[0]).await;
    }
}

/// Catches a holder that believes in a lock that the server gives to others, or the reverse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortened_lock_is_kept_or_lost() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let lease = tracked(&server, &connect(&server).await).await;
    admin.int(&["PEXPIRE", &lock_key("x"), "200"]).await;
    tokio::time::sleep(millis(200) + AT_ONCE).await;
    let is_there = admin.int(&["EXISTS", &lock_key("x")]).await == 1;
    assert_eq!(lease.is_valid(), is_there);
}

/// Catches a holder that hears only of the change after a forced release, asks, and reports its lock as
/// deleted or superseded. The release is published before the key changes.
#[tokio::test]
async fn the_reason_of_a_forced_release_comes_before_the_change() {
    let server = RedisServer::start().await;
    let (holder, manager) = (connect(&server).await, connect(&server).await);
    let lease = tracked(&server, &holder).await;
    let waiter = holder.lock("x").expect("valid");
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    let mut listener = Admin::connect(&server).await;
    let mut reader = Admin::connect(&server).await;
    let key = lock_key("x");
    let mut inspected = Admin::connect(&server).await;
    let queued = async || !inspected.keys("*}:line").await.is_empty();
    eventually(LIMIT, "the waiter is in line", queued).await;
    let id = listener.int(&["CLIENT", "ID"]).await.to_string();
    listener.command(&["PSUBSCRIBE", "leasehold:*"]).await;
    reader
        .ok(&["CLIENT", "TRACKING", "ON", "REDIRECT", &id])
        .await;
    reader.int(&["EXISTS", &key]).await;
    manager.force_release("x").await.expect("a held lock");
    let (mut reason, mut change) = (None, None);
    for number in 1.. {
        let message = within(LIMIT, listener.next_value()).await;
        let message = message.expect("in time").expect("the client is connected");
        let Resp::Array(parts) = message else {
            panic!("expected a message, got {message:?}")
        };
        match parts.last() {
            Some(Resp::Array(_)) => change = Some(number),
            Some(text)
                if text
                    .as_string()
                    .is_some_and(|text| text.starts_with("revoked")) =>
            {
                reason = Some(number);
            }
            _ => {}
        }
        if reason.is_some() && change.is_some() {
            break;
        }
    }
    assert!(reason < change, "{reason:?} and {change:?}");
    assert!(waiter.await.expect("the call ends").is_ok());
    assert_eq!(lease.lost().await.reason, LossReason::Revoked);
}

/// The negative control: without tracking the holder learns of the loss at the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tracking_the_next_renewal_reports_a_loss() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect_with(Locker::builder().tracking(false), &server.url()).await;
    let lock = locker.lock("x").expect("valid").ttl(millis(6_000));
    let lease = lock.acquire().await.expect("a free lock");
    tokio::time::sleep(millis(200)).await;
    admin.command(&["DEL", &lock_key("x")]).await;
    assert_eq!(within(AT_ONCE, lease.lost()).await, None);
    let lost = within(LIMIT, lease.lost()).await;
    assert_eq!(lost.map(|lost| lost.reason), Some(LossReason::Deleted));
    assert_eq!((reads(&mut admin).await, keys(&mut admin).await), (0, 0));
    assert_eq!(locker.findings(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_eviction_is_reported_at_once() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let lease = tracked(&server, &connect(&server).await).await;
    let used = admin.info("memory", "used_memory").await;
    let used: u64 = used.and_then(|used| used.parse().ok()).expect("a number");
    let most = (used + 1_000_000).to_string();
    admin
        .ok(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .await;
    admin.ok(&["CONFIG", "SET", "maxmemory", &most]).await;
    let value = "v".repeat(20_000);
    for number in 0.. {
        admin.ok(&["SET", &format!("other{number}"), &value]).await;
        if admin.int(&["EXISTS", &lock_key("x")]).await == 0 {
            break;
        }
        assert!(number < 10_000, "the key is never evicted");
    }
    lost_at_once(&lease, LossReason::Deleted, "evicted").await;
}

/// Catches a change that ends a lease without need: waiters write, and an operator may only touch the expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harmless_change_ends_no_lease() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let lease = tracked(&server, &connect(&server).await).await;
    for _ in 0..50 {
        let hour = ["PEXPIRE", &lock_key("x"), "3600000"];
        assert_eq!(admin.int(&hour).await, 1);
        tokio::time::sleep(millis(5)).await;
    }
    assert!(lease.is_valid());
    let calls = admin.command_calls("evalsha").await;
    assert!(calls < 15, "{calls} calls: the holder checks every change");
    lease.release().await.expect("a held lock");
    eventually(LIMIT, "the key is no longer tracked", async || {
        keys(&mut admin).await == 0
    })
    .await;
}

/// Catches a client whose own tracking is changed, or whose replies are mixed up by pushes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_tracks_or_speaks_resp3_is_left_alone() {
    let server = RedisServer::start().await;
    for (version, why) in [
        (RespVersion::RESP2, "tracks keys itself"),
        (RespVersion::RESP3, "speaks RESP3"),
    ] {
        let mut config = Config::from_url(&server.url()).expect("a valid URL");
        config.version = version.clone();
        let client = fred::types::Builder::from_config(config)
            .build()
            .expect("valid settings");
        client.init().await.expect("the server is up");
        if version == RespVersion::RESP2 {
            let id: i64 = client.client_id().await.expect("an id");
            let on = client.client_tracking::<(), _, _>(
                fred::types::client::Toggle::On,
                Some(id),
                Vec::<String>::new(),
                true,
                false,
                false,
                false,
            );
            on.await.expect("tracking may be turned on");
        }
        let locker = Locker::with_fred(client)
            .await
            .expect("the client is connected");
        let _lease = locker.lock("x").expect("valid").acquire().await;
        let reason = untracked(&locker).await;
        assert!(reason.contains(why), "{reason}");
    }
}

async fn untracked(locker: &Locker) -> String {
    let found = async || {
        let findings = locker.findings();
        let findings = findings.iter();
        let mut reasons = findings.filter_map(|finding| match finding {
            Finding::Untracked { reason } => Some(reason.clone()),
            _ => None,
        });
        reasons.next()
    };
    eventually(LIMIT, "the finding", found).await
}

/// The documented rights of a user whose locker hears of changes at once.
const TRACKING: [&str; 3] = ["+client|id", "+client|tracking", "+client|caching"];

/// Catches an undocumented right, and an error where one is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_tracking_right_is_a_finding_and_no_error() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for missing in [None].into_iter().chain(TRACKING.map(Some)) {
        let mut rights = named_for("leasehold");
        let others = TRACKING.into_iter().filter(|right| Some(*right) != missing);
        rights.extend(others.map(str::to_owned));
        let rights: Vec<_> = rights.iter().map(String::as_str).collect();
        let name = format!(
            "without{}",
            missing.unwrap_or_default().replace(['+', '|'], "-")
        );
        let url = user(&server, &mut admin, &name, &rights).await;
        let locker = connect_with(Locker::builder(), &url).await;
        let Some(missing) = missing else {
            let lease = tracked(&server, &locker).await;
            admin.command(&["DEL", &lock_key("x")]).await;
            lost_at_once(&lease, LossReason::Deleted, "all rights").await;
            assert_eq!(locker.findings(), []);
            continue;
        };
        let lease = locker.lock("x").expect("valid").acquire().await;
        let reason = untracked(&locker).await;
        let right = missing.trim_start_matches('+');
        assert!(reason.contains(right), "{missing}: {reason}");
        lease
            .expect("a free lock")
            .release()
            .await
            .expect("a held lock");
    }
    let text = include_str!("../../docs/book/src/acl.md").replace("\\|", "|");
    assert!(text.contains(&TRACKING.join(" ")), "the page names them");
}

/// Documents the behavior of the server that tracking relies on.
#[tokio::test]
async fn a_server_reports_changes_by_others_of_keys_that_were_read() {
    let server = RedisServer::start().await;
    let mut ear = Admin::connect(&server).await;
    let mut reader = Admin::connect(&server).await;
    let mut other = Admin::connect(&server).await;
    let id = ear.int(&["CLIENT", "ID"]).await.to_string();
    ear.command(&["SUBSCRIBE", "any"]).await;
    let on = [
        "CLIENT", "TRACKING", "ON", "REDIRECT", &id, "OPTIN", "NOLOOP",
    ];
    reader.ok(&on).await;
    let mut said = async || {
        let said = tokio::time::timeout(millis(100), ear.next_value()).await;
        said.ok().map(|said| said.expect("the client is connected"))
    };
    let script = "redis.call('GET', KEYS[1]) redis.call('SET', KEYS[2], 1)";
    let cases: [(&str, &[&str], &[&str], bool); 9] = [
        ("read", &["EXISTS", "k"], &["DEL", "k"], true),
        ("set anew", &["EXISTS", "k"], &["SET", "k", "2"], true),
        (
            "of others",
            &["EXISTS", "k"],
            &["PEXPIRE", "k", "9999"],
            true,
        ),
        ("all", &["EXISTS", "k"], &["FLUSHALL"], true),
        (
            "not there",
            &["EXISTS", "none"],
            &["SET", "none", "1"],
            true,
        ),
        (
            "read-only",
            &["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "k"],
            &["DEL", "k"],
            true,
        ),
        (
            "only read by a script",
            &["EVAL", script, "2", "k", "l"],
            &["DEL", "k"],
            true,
        ),
        (
            "written by a script",
            &["EVAL", script, "2", "k", "k"],
            &["DEL", "k"],
            false,
        ),
        ("something else", &["EXISTS", "l"], &["DEL", "k"], false),
    ];
    for (what, read, change, is_said) in cases {
        other.ok(&["SET", "k", "1"]).await;
        reader.ok(&["CLIENT", "CACHING", "YES"]).await;
        reader.command(read).await;
        other.command(change).await;
        assert_eq!(said().await.is_some(), is_said, "{what}");
        other.command(&["SET", "k", "3"]).await;
        assert_eq!(said().await, None, "{what}: the change is reported once");
    }
    // The reader's own write ends the tracking, and a read without CACHING never begins it.
    reader.ok(&["CLIENT", "CACHING", "YES"]).await;
    reader.command(&["EXISTS", "k"]).await;
    reader.ok(&["SET", "k", "4"]).await;
    other.command(&["DEL", "k"]).await;
    assert_eq!(said().await, None);
    assert_eq!(reader.command(&["EXISTS", "k"]).await, Resp::Integer(0));
    other.ok(&["SET", "k", "5"]).await;
    assert_eq!(said().await, None);
}

/// An adapter whose locks are deleted just before the server begins to track their keys.
struct TooLate {
    inner: RedisRs<redis::aio::MultiplexedConnection>,
    port: u16,
}

impl Adapter for TooLate {
    fn call(&self, command: Command) -> Calling<'_> {
        self.inner.call(command)
    }

    fn pair(&self, first: Command, second: Command) -> Option<Pairing<'_>> {
        let reading = self.inner.pair(first, second)?;
        Some(Box::pin(async move {
            let mut admin = Admin::connect_port(self.port).await;
            admin.int(&["DEL", &lock_key("x")]).await;
            reading.await
        }))
    }

    fn listen(&self, channel: String, hearing: Hearing) -> Task<'_> {
        self.inner.listen(channel, hearing)
    }
}

/// Catches a key that was gone before it was read, which the server has nothing to report of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_gone_before_it_was_read_is_a_loss() {
    let server = RedisServer::start().await;
    let client = redis::Client::open(server.url()).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    let locker = Locker::with_adapter(TooLate {
        inner: RedisRs::new(connection.expect("the server is up")).hearing_by(client),
        port: server.port(),
    });
    let locker = locker.await.expect("the server is up");
    let lock = locker.lock("x").expect("valid");
    let lease = lock.acquire().await.expect("a free lock");
    // The next renewal is 8 s away.
    let lost = within(Duration::from_secs(4), lease.lost()).await;
    assert_eq!(lost.map(|lost| lost.reason), Some(LossReason::Deleted));
}
