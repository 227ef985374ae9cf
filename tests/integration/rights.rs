//! Users with few rights: the documented rights suffice, and an error names the missing one.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use leasehold::{Error, ErrorKind, FencingToken, Locker, LossReason, Name};
use leasehold_engine::protocol::{LockKey, Rights};
use leasehold_tests::{Admin, Proxy, RedisServer, Resp, eventually};

use crate::{LIMIT, millis};

/// The patterns of the default namespace.
const KEYS: &str = "~{leasehold:*";
const CHANNELS: &str = "&leasehold:leasehold:*";
pub(crate) const LIST: &str = Rights::LIST;
/// Without this right waiters take the slow path, and each leaves a denial in the server's log.
const QUIET: &str = "+zcard";

/// Returns the rights for locks and pushes.
pub(crate) fn named() -> Vec<&'static str> {
    let words = [KEYS, Rights::LOCKS, CHANNELS, Rights::PUSHES];
    words.iter().flat_map(|words| words.split(' ')).collect()
}

/// Returns the rights for locks and pushes in another namespace.
pub(crate) fn named_for(namespace: &str) -> Vec<String> {
    let rights = Rights::new(namespace);
    let rest = named().into_iter().filter(|right| right.starts_with('+'));
    let patterns = [rights.keys(), rights.channels()];
    rest.map(str::to_owned).chain(patterns).collect()
}

/// Makes a user with these rights. Returns the URL.
pub(crate) async fn user(
    server: &RedisServer,
    admin: &mut Admin,
    name: &str,
    rights: &[&str],
) -> String {
    let mut command = vec!["ACL", "SETUSER", name, "on", ">s3cret"];
    command.extend(rights);
    admin.ok(&command).await;
    format!("redis://{name}:s3cret@127.0.0.1:{}", server.port())
}

/// Catches a command that no documented right covers and that fails silently: a waiter then takes the slow
/// path, and the server logs a denial each time.
#[tokio::test]
async fn a_waiter_is_handed_the_lock_without_a_denial() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for taken in [None, Some(QUIET)] {
        let rights = [Rights::TRACKING, "+info +ping"];
        let rights = rights.iter().flat_map(|rights| rights.split(' '));
        let rights = named().into_iter().chain(rights);
        let rights: Vec<_> = rights.filter(|right| Some(*right) != taken).collect();
        let name = format!("waits{}", taken.is_some());
        let url = user(&server, &mut admin, &name, &rights).await;
        admin.ok(&["ACL", "LOG", "RESET"]).await;
        let [holder, waiter] = [Locker::connect(&url).await, Locker::connect(&url).await]
            .map(|locker| locker.expect("the rights are enough"));
        let held = holder.lock(&name).expect("valid").acquire().await;
        let next = waiter.lock(&name).expect("valid");
        let waits = tokio::spawn(async move { next.acquire().await });
        while holder.inspect(&name).await.expect("an answer").waiting == 0 {
            tokio::time::sleep(millis(10)).await;
        }
        held.expect("a free lock")
            .release()
            .await
            .expect("a held lock");
        let handed = waits.await.expect("no panic");
        let handed = handed.expect("the waiter is handed the lock");
        handed.release().await.expect("a held lock");
        let denied: Vec<_> = denials(&mut admin).await.into_keys().collect();
        let expected = taken.map(|right| right.trim_start_matches('+').to_owned());
        assert_eq!(denied, Vec::from_iter(expected), "without {taken:?}");
    }
}

async fn connections(admin: &mut Admin) -> u64 {
    let count = admin.info("stats", "total_connections_received").await;
    let count = count.and_then(|count| count.parse().ok());
    count.expect("the server counts them")
}

/// Catches a check of the push connection by a command that this user may not run: every 10 s the refusal was
/// taken for a dead connection.
#[tokio::test]
async fn the_documented_rights_suffice() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let url = user(&server, &mut admin, "readme", &named()).await;
    let locker = Locker::connect(url).await.expect("the rights are enough");
    let lock = locker.lock("x").expect("valid");
    let _lease = lock.acquire().await.expect("a free lock");
    let asked = async |admin: &mut Admin| admin.command_calls("pubsub").await;
    let subscribed = async || asked(&mut admin).await == 1;
    eventually(LIMIT, "the push connection is checked", subscribed).await;
    // Forgets the refusals during connecting: those of fred and of the check of the version.
    admin.ok(&["ACL", "LOG", "RESET"]).await;
    let before = connections(&mut admin).await;
    let checked = async || asked(&mut admin).await >= 3;
    let limit = Duration::from_secs(60);
    eventually(limit, "two checks of that connection", checked).await;
    assert_eq!(connections(&mut admin).await, before, "none was replaced");
    let refused = admin.command(&["ACL", "LOG"]).await;
    assert_eq!(refused, Resp::Array(Vec::new()));
}

/// Returns the commands that the server logged as refused, and how often.
pub(crate) async fn denials(admin: &mut Admin) -> BTreeMap<String, i64> {
    let Resp::Array(entries) = admin.command(&["ACL", "LOG"]).await else {
        panic!("the log is a list");
    };
    let of = |entry: &Resp, field: &str| {
        let Resp::Array(fields) = entry else {
            panic!("an entry is a list of fields");
        };
        let name = fields
            .chunks(2)
            .find(|pair| pair[0].as_string().as_deref() == Some(field));
        name.expect("every entry has it")[1].clone()
    };
    let mut denials = BTreeMap::new();
    for entry in &entries {
        let object = of(entry, "object").as_string().expect("a text");
        *denials.entry(object).or_default() += of(entry, "count").as_int().expect("a number");
    }
    denials
}

/// Catches requests that are sent though they are known to be refused: each is a denial in the server's log,
/// which operators watch. Only the commands that fred sends by itself on each connection remain.
#[tokio::test]
async fn connecting_repeats_no_refused_command() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let url = user(&server, &mut admin, "readme", &named()).await;
    let subscribed = async |locker: &Locker| {
        let lock = locker.lock("x").expect("valid");
        drop(lock.acquire().await.expect("a free lock"));
        let mut admin = Admin::connect(&server).await;
        let hears = async || {
            let list = admin.string(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
            list.is_some_and(|list| !list.is_empty())
        };
        eventually(LIMIT, "the connection for pushes", hears).await;
    };
    let locker = Locker::connect(&url).await.expect("the rights are enough");
    subscribed(&locker).await;
    let found = denials(&mut admin).await;
    assert_eq!(
        found,
        BTreeMap::from([("client|id".to_owned(), 2), ("info".to_owned(), 2)])
    );
    locker.shutdown().await;
    // A user may permit these commands to keep the log clean.
    let permitted = ["+info", "+client|id", "+client|tracking", "+client|caching"];
    user(&server, &mut admin, "readme", &permitted).await;
    admin.ok(&["ACL", "LOG", "RESET"]).await;
    let locker = Locker::connect(&url).await.expect("the rights are enough");
    subscribed(&locker).await;
    assert_eq!(denials(&mut admin).await, BTreeMap::new());
}

/// Catches a healthy connection that is replaced because a PING is not allowed on it.
#[tokio::test]
async fn a_connection_that_refuses_a_ping_is_kept() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    user(&server, &mut admin, "readme", &named()).await;
    let proxy = Proxy::start(server.port()).await;
    let url = format!("redis://readme:s3cret@127.0.0.1:{}", proxy.port());
    let locker = Locker::connect(url).await.expect("the rights are enough");
    let lock = locker.lock("x").expect("valid");
    let lease = lock.acquire().await.expect("a free lock");
    let subscribes = async || proxy.connections() == 2;
    eventually(LIMIT, "the connection for pushes", subscribes).await;
    // Callers with short timeouts get no answer, and the connection is silent long enough to be suspicious.
    proxy.latency(millis(100));
    let hasty = locker.lock("other").expect("valid");
    let refused = async || {
        let _ = hasty.acquire_within(millis(10)).await;
        let stats = admin.string(&["INFO", "commandstats"]).await;
        let stats = stats.expect("INFO answers with a text");
        let mut lines = stats.lines();
        lines.any(|line| line.starts_with("cmdstat_ping:") && !line.contains("rejected_calls=0"))
    };
    eventually(LIMIT, "a PING is refused", refused).await;
    // The refusal has arrived or arrives now. If it caused a reconnection, that would follow.
    let patient = locker.lock("third").expect("valid");
    for _ in 0..5 {
        let lease = patient.acquire().await.expect("an answer");
        lease.release().await.expect("a held lock");
    }
    assert_eq!(proxy.connections(), 2, "none was replaced");
    lease.release().await.expect("a held lock");
}

#[tokio::test]
async fn a_database_needs_one_more_right_that_is_named() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let url = user(&server, &mut admin, "readme", &named()).await + "/1";
    let error = Locker::connect(&url)
        .await
        .expect_err("the user may not select");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    assert!(error.to_string().contains(Rights::DATABASE), "{error}");
    user(&server, &mut admin, "readme", &[Rights::DATABASE]).await;
    Locker::connect(&url).await.expect("the rights are enough");
}

/// Does everything that a user of locks can do, on every path through the script. Returns the first
/// unexpected error.
pub(crate) async fn everything(url: &str, admin: &mut Admin) -> Result<(), Error> {
    everything_in("leasehold", url, admin).await
}

async fn everything_in(namespace: &str, url: &str, admin: &mut Admin) -> Result<(), Error> {
    admin.flushall().await;
    admin.ok(&["SCRIPT", "FLUSH"]).await;
    let ttl = Duration::from_secs(6);
    let connect = async || Locker::builder().namespace(namespace).connect(url).await;
    let lockers = [connect().await?, connect().await?];
    let lock_key = |name: &str| {
        let name = Name::new(name).expect("a valid name");
        let key = LockKey::new(namespace, &name).expect("a valid namespace");
        key.lock().to_owned()
    };
    let lock = |number: usize| Ok::<_, Error>(lockers[number].lock("x")?.ttl(ttl));
    // Tokens by the clock, by a counter ahead of it, dense tokens, and a used-up counter.
    lock(0)?.acquire().await?.release().await?;
    lock(0)?.acquire().await?.release().await?;
    let hour = (SystemTime::now() + Duration::from_secs(3_600)).duration_since(UNIX_EPOCH);
    let ahead = hour
        .expect("the time is after 1970")
        .as_micros()
        .to_string();
    admin.int(&["HSET", &lock_key("x"), "t", &ahead]).await;
    lock(0)?.acquire().await?.release().await?;
    lock(0)?.dense_tokens().acquire().await?.release().await?;
    let most = FencingToken::MAX.to_string();
    admin.int(&["HSET", &lock_key("full"), "t", &most]).await;
    let used_up = lockers[0].lock("full")?.acquire().await;
    let used_up = used_up.expect_err("there is no token left");
    if used_up.kind() != ErrorKind::Store {
        return Err(used_up);
    }
    // A holder, a caller that does not wait, one that gives up, and a waiter that is handed the lock.
    let lease = lock(0)?.acquire().await?;
    lease.renew().await?;
    assert!(lock(1)?.try_acquire().await?.is_none());
    assert!(lock(1)?.acquire_within(millis(200)).await?.is_none());
    // The waiter that gave up has left the line, or counts as dead there if it lacks the right to leave.
    while lockers[0].inspect("x").await?.waiting > 0 {
        tokio::time::sleep(millis(10)).await;
    }
    let next = lock(1)?;
    let waits = tokio::spawn(async move { next.acquire().await });
    let waiting = async || Ok::<_, Error>(lockers[0].inspect("x").await?.waiting == 1);
    while !waiting().await? && !waits.is_finished() {
        tokio::time::sleep(millis(10)).await;
    }
    let looked = lockers[0].inspect("x").await?;
    assert!(looked.line.len() == 1 || waits.is_finished());
    lease.release().await?;
    let _held = waits.await.expect("no panic")?;
    lockers[0].force_release("x").await.map(drop)
}

/// Catches an undocumented right that a server of a quorum needs.
#[tokio::test]
async fn a_quorum_needs_two_more_rights_that_are_named() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(RedisServer::start().await);
    }
    for (missing, error) in [
        ("", None),
        ("+lastsave", None),
        ("+info", Some(ErrorKind::Auth)),
    ] {
        let rights = Rights::QUORUM.split_whitespace().chain(named());
        let rights: Vec<_> = rights.filter(|right| *right != missing).collect();
        let name = format!("without{}", missing.replace('+', "-"));
        let mut urls = Vec::new();
        for server in &servers {
            let mut admin = Admin::connect(server).await;
            urls.push(user(server, &mut admin, &name, &rights).await);
        }
        let locker = Locker::quorum(&urls).await.expect("the URLs are valid");
        let acquired = locker.lock("x").expect("valid").acquire().await;
        assert_eq!(
            acquired.as_ref().err().map(Error::kind),
            error,
            "{acquired:?}"
        );
        match acquired {
            // Without the cheaper right, the more expensive command runs each time.
            Ok(lease) => lease.release().await.expect("all are up"),
            Err(error) => assert!(error.to_string().contains(missing), "{error}"),
        }
    }
}

/// Checks that the error names this missing right.
pub(crate) fn names_the_missing_right(error: &Error, taken: &str) {
    assert_eq!(error.kind(), ErrorKind::Auth, "{taken}: {error:?}");
    assert!(
        error.to_string().contains(taken) || taken == KEYS,
        "{taken}: {error}"
    );
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
}

/// Catches a right that is documented and not needed, and one whose absence no error names.
#[tokio::test]
async fn each_documented_right_is_needed_and_named_when_missing() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let url = user(&server, &mut admin, "all", &named()).await;
    let done = everything(&url, &mut admin).await;
    done.expect("the rights are enough");
    for (taken, name, rest) in without_each() {
        let url = user(&server, &mut admin, &name, &rest).await;
        let error = everything(&url, &mut admin).await.expect_err(taken);
        names_the_missing_right(&error, taken);
    }
    let text = include_str!("../../docs/book/src/acl.md");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.replace("NAMESPACE", "leasehold").replace("\\|", "|");
    let locks = [KEYS, Rights::LOCKS].join(" ");
    let pushes = [CHANNELS, Rights::PUSHES].join(" ");
    let user = [KEYS, CHANNELS, Rights::LOCKS, Rights::PUSHES].join(" ");
    for rights in [
        &*user,
        &*locks,
        &*pushes,
        LIST,
        Rights::QUORUM,
        Rights::DATABASE,
        Rights::TRACKING,
    ] {
        assert!(text.contains(rights), "the page names {rights:?}");
    }
}

/// Catches advice with a pattern that covers keys outside the namespace, or that the server refuses.
#[tokio::test]
async fn advice_is_correct_for_any_namespace() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for (number, namespace) in [
        "shop:eu",
        "a%b",
        "x}y",
        "st*r",
        "q?",
        "br[a]ck",
        r"back\slash",
        "my shop",
        "it's",
        "é",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("user{number}");
        // The user may run scripts without any command in them, and then gets the rights that the error
        // advises.
        let url = user(&server, &mut admin, &name, &["+eval", "+evalsha"]).await;
        let error = everything_in(namespace, &url, &mut admin).await;
        let error = error.expect_err("the user may not").to_string();
        let advised = error.split([' ', ';', ',']).filter(|word| {
            ["~", "&", "+"].iter().any(|sign| word.starts_with(sign)) && word.len() > 1
        });
        let advised: Vec<_> = advised.collect();
        let patterns = Rights::new(namespace);
        assert!(advised.contains(&&*patterns.keys()), "{error}");
        assert!(advised.contains(&&*patterns.channels()), "{error}");
        let url = user(&server, &mut admin, &name, &advised).await;
        let done = everything_in(namespace, &url, &mut admin).await;
        done.unwrap_or_else(|error| panic!("{namespace}: {error}"));
        let locker = Locker::builder().namespace(namespace);
        let locker = locker.connect(&url).await.expect("the user may");
        let _lease = locker.lock("x").expect("valid").acquire().await;
        let listed: Vec<_> = locker.list("*").try_collect().await.expect("the user may");
        assert!(listed.iter().any(|name| name.as_str() == "x"), "{listed:?}");
    }
}

/// Returns each right for locks whose absence is an error, with a user name and the remaining rights.
pub(crate) fn without_each() -> impl Iterator<Item = (&'static str, String, Vec<&'static str>)> {
    let rights = [KEYS].into_iter().chain(Rights::LOCKS.split(' '));
    rights.filter(|right| *right != QUIET).map(|taken| {
        let mut rest = named();
        rest.retain(|right| *right != taken);
        let name = format!("without{}", taken.replace(['+', '~', '{', '*', ':'], "-"));
        (taken, name, rest)
    })
}

/// Returns how often a command was called, or its `rejected_calls`.
pub(crate) async fn statistic(admin: &mut Admin, command: &str, what: &str) -> u64 {
    let stats = admin
        .info("commandstats", &format!("cmdstat_{command}"))
        .await;
    let stats = stats.unwrap_or_default();
    let mut fields = stats.split(',').filter_map(|field| field.split_once('='));
    let value = fields.find(|(field, _)| *field == what);
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Catches a right to channels that is documented and not needed.
#[tokio::test]
async fn without_a_channel_right_the_next_renewal_reports_a_loss() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let all = user(&server, &mut admin, "all", &named()).await;
    pushes_are_needed(&mut admin, &all, async |admin, name, rights| {
        user(&server, admin, name, rights).await
    })
    .await;
}

/// Checks users without each of the rights to channels, made by `user`.
pub(crate) async fn pushes_are_needed(
    admin: &mut Admin,
    all: &str,
    user: impl AsyncFn(&mut Admin, &str, &[&str]) -> String,
) {
    admin.reset_stats().await;
    let missing = [None].into_iter().chain(
        [CHANNELS]
            .into_iter()
            .chain(Rights::PUSHES.split(' '))
            .map(Some),
    );
    for (number, taken) in missing.enumerate() {
        let rest: Vec<_> = named()
            .into_iter()
            .filter(|right| Some(*right) != taken)
            .collect();
        let name = format!("user{number}");
        let url = user(admin, &name, &rest).await;
        // The publisher is the client that frees the lock; the other rights are for the holder, which is to
        // hear of it.
        let (hears, tells) = match taken {
            Some("+publish") => (all, &url[..]),
            _ => (&url[..], all),
        };
        let holder = Locker::connect(hears).await.expect("the user may connect");
        let teller = Locker::connect(tells).await.expect("the user may connect");
        let lock = holder
            .lock(&name)
            .expect("valid")
            .ttl(Duration::from_secs(3));
        let lease = lock.acquire().await.expect("a free lock");
        // Time to subscribe, or to be refused.
        let (command, answer) = match taken {
            None | Some("+publish") => ("pubsub|numsub", "calls"),
            Some("+pubsub|numsub") => ("pubsub|numsub", "rejected_calls"),
            Some(_) => ("subscribe", "rejected_calls"),
        };
        let asked = async || statistic(admin, command, answer).await > 0;
        eventually(LIMIT, "the subscription is answered", asked).await;
        teller.force_release(&name).await.expect("an answer");
        let reason = tokio::time::timeout(LIMIT, lease.lost()).await;
        let expected = match taken {
            None => LossReason::Revoked,
            Some(_) => LossReason::Deleted,
        };
        assert_eq!(
            reason.map(|lost| lost.reason),
            Ok(expected),
            "without {taken:?}"
        );
        holder.shutdown().await;
        admin.reset_stats().await;
    }
}

/// Catches a list that is empty because the user may not list.
#[tokio::test]
async fn a_list_needs_one_more_right_that_is_named() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let url = user(&server, &mut admin, "readme", &named()).await;
    let locker = Locker::connect(&url).await.expect("the rights are enough");
    let _lease = locker.lock("x").expect("valid").acquire().await;
    let listed: Result<Vec<_>, _> = locker.list("*").try_collect().await;
    let error = listed.expect_err("the user may not scan");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    assert!(error.to_string().contains(LIST), "{error}");
    user(&server, &mut admin, "readme", &[LIST]).await;
    let listed: Vec<_> = locker.list("*").try_collect().await.expect("the user may");
    assert_eq!(listed.len(), 1);
}

/// Catches a reason that is redacted because the password is a word of it.
#[tokio::test]
async fn a_wrong_password_that_is_a_common_word_does_not_hide_the_reason() {
    let server = RedisServer::config().password("s3cret").start().await;
    for password in ["password", "pass", "user", "invalid", "a"] {
        for name in ["", "nobody"] {
            let url = format!("redis://{name}:{password}@127.0.0.1:{}", server.port());
            let error = Locker::connect(url)
                .await
                .expect_err("the password is wrong");
            assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
            let hint = "(WRONGPASS); check the user and password in the URL";
            assert!(error.to_string().ends_with(hint), "{error}");
        }
    }
    let url = format!("redis://127.0.0.1:{}", server.port());
    let error = Locker::connect(url).await.expect_err("there is none");
    let hint = "(NOAUTH); give the user and password in the URL";
    assert!(error.to_string().ends_with(hint), "{error}");
}
