//! Users who may do little: what is enough is enough, and what is missing is named.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::{ErrorKind, Locker};
use leasehold_tests::{Admin, Proxy, RedisServer, Resp, eventually};

use crate::{LIMIT, millis};

/// What the documentation says that a user needs.
const NAMED: [&str; 8] = [
    "~{leasehold:*",
    "&leasehold:*",
    "-@all",
    "+@scripting",
    "+@read",
    "+@write",
    "+time",
    "+@pubsub",
];

/// Makes a user with these rights; returns the URL.
async fn user(server: &RedisServer, admin: &mut Admin, name: &str, rights: &[&str]) -> String {
    let mut command = vec!["ACL", "SETUSER", name, "on", ">s3cret"];
    command.extend(rights);
    admin.ok(&command).await;
    format!("redis://{name}:s3cret@127.0.0.1:{}", server.port())
}

async fn connections(admin: &mut Admin) -> u64 {
    let count = admin.info("stats", "total_connections_received").await;
    let count = count.and_then(|count| count.parse().ok());
    count.expect("the server counts them")
}

/// Catches a check of the connection for pushes that asks what this user may not ask: the server's
/// refusal was taken for a dead connection every 10 s.
#[tokio::test]
async fn the_rights_that_are_named_are_enough() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let url = user(&server, &mut admin, "readme", &NAMED).await;
    let locker = Locker::connect(url).await.expect("the rights are enough");
    let lock = locker.lock("x").expect("valid");
    let _lease = lock.acquire().await.expect("it is free");
    let asked = async |admin: &mut Admin| admin.command_calls("pubsub").await;
    let subscribed = async || asked(&mut admin).await == 1;
    eventually(LIMIT, "the connection for pushes", subscribed).await;
    // What fred and the check of the version asked for in vain.
    admin.ok(&["ACL", "LOG", "RESET"]).await;
    let before = connections(&mut admin).await;
    let checked = async || asked(&mut admin).await >= 3;
    let limit = Duration::from_secs(60);
    eventually(limit, "two checks of that connection", checked).await;
    assert_eq!(connections(&mut admin).await, before, "none was replaced");
    let refused = admin.command(&["ACL", "LOG"]).await;
    assert_eq!(refused, Resp::Array(Vec::new()));
}

/// What the server logged of commands that a user may not run, and how often.
async fn denials(admin: &mut Admin) -> BTreeMap<String, i64> {
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

/// Catches questions that are asked though the answer is known to be no: each is a denial in the
/// server's log, which people watch. What fred asks on its own on each connection is left.
#[tokio::test]
async fn connecting_asks_for_nothing_that_was_refused_before() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let url = user(&server, &mut admin, "readme", &NAMED).await;
    let subscribed = async |locker: &Locker| {
        let lock = locker.lock("x").expect("valid");
        drop(lock.acquire().await.expect("it is free"));
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
    // Those whom they disturb may allow them.
    user(&server, &mut admin, "readme", &["+info", "+client|id"]).await;
    admin.ok(&["ACL", "LOG", "RESET"]).await;
    let locker = Locker::connect(&url).await.expect("the rights are enough");
    subscribed(&locker).await;
    assert_eq!(denials(&mut admin).await, BTreeMap::new());
}

/// Catches a healthy link that is replaced since a PING is not allowed on it.
#[tokio::test]
async fn a_link_on_which_a_ping_is_refused_is_kept() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    user(&server, &mut admin, "readme", &NAMED).await;
    let proxy = Proxy::start(server.port()).await;
    let url = format!("redis://readme:s3cret@127.0.0.1:{}", proxy.port());
    let locker = Locker::connect(url).await.expect("the rights are enough");
    let lock = locker.lock("x").expect("valid");
    let lease = lock.acquire().await.expect("it is free");
    let subscribes = async || proxy.connections() == 2;
    eventually(LIMIT, "the connection for pushes", subscribes).await;
    // Callers in a hurry get no answer in time.
    proxy.latency(millis(30));
    let hasty = locker.lock("other").expect("valid");
    let refused = async || {
        let _ = hasty.acquire_within(millis(10)).await;
        let stats = admin.string(&["INFO", "commandstats"]).await;
        let stats = stats.expect("INFO answers with a text");
        let mut lines = stats.lines();
        lines.any(|line| line.starts_with("cmdstat_ping:") && !line.contains("rejected_calls=0"))
    };
    eventually(LIMIT, "a PING that is refused", refused).await;
    // Its answer is on its way, and what would follow it.
    let patient = locker.lock("third").expect("valid");
    for _ in 0..5 {
        let lease = patient.acquire().await.expect("an answer");
        lease.release().await.expect("it is held");
    }
    assert_eq!(proxy.connections(), 2, "none was replaced");
    lease.release().await.expect("it is held");
}

#[tokio::test]
async fn a_database_takes_one_right_more_which_is_named() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let url = user(&server, &mut admin, "readme", &NAMED).await + "/1";
    let error = Locker::connect(&url).await.expect_err("it may not select");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    assert!(error.to_string().contains("+select"), "{error}");
    user(&server, &mut admin, "readme", &["+select"]).await;
    Locker::connect(&url).await.expect("the rights are enough");
}

#[tokio::test]
async fn a_right_that_is_missing_inside_the_script_is_named() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for missing in ["-set", "-time", "-@sortedset", "resetkeys"] {
        let rights: Vec<_> = NAMED.into_iter().chain([missing]).collect();
        let name = missing.trim_start_matches(['-', '@']);
        let url = user(&server, &mut admin, name, &rights).await;
        let used = async {
            let locker = Locker::connect(url).await?;
            let lock = locker.lock("x")?;
            let lease = lock.try_acquire().await?;
            // Whoever waits needs sorted sets.
            let other = locker.lock("x")?;
            other.acquire_within(Duration::from_secs(2)).await?;
            drop(lease);
            Ok::<_, leasehold::Error>(())
        };
        let error = used.await.expect_err(missing);
        assert_eq!(error.kind(), ErrorKind::Auth, "{missing}: {error:?}");
        assert!(error.to_string().contains("+@write"), "{missing}: {error}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        admin.flushall().await;
    }
}

/// Catches a reason that is hidden since the password is a word of it.
#[tokio::test]
async fn a_wrong_password_that_is_a_common_word_does_not_hide_the_reason() {
    let server = RedisServer::config().password("s3cret").start().await;
    for password in ["password", "pass", "user", "invalid", "a"] {
        for name in ["", "nobody"] {
            let url = format!("redis://{name}:{password}@127.0.0.1:{}", server.port());
            let error = Locker::connect(url).await.expect_err("it is wrong");
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
