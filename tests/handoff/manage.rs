//! Reclaims, forced releases, inspections, `hold` and shutdowns.

use std::time::Duration;

use futures::TryStreamExt;
use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer, eventually, within};

use crate::{LIMIT, connect, held, in_line, lock, millis, served, subscribed, waiting};

/// Well before the next renewal of a lock with the default time to live of 30 s.
const AT_ONCE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspecting_shows_the_holder_and_the_line() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let holder = held(&lock(&one, "x", "holder")).await;
    let mut waiters = Vec::new();
    for (i, label) in ["first", "second:with a colon", "third"].iter().enumerate() {
        waiters.push(waiting(&lock(&other, "x", label)));
        in_line(&mut admin, "x", i + 1).await;
        tokio::time::sleep(millis(60)).await;
    }
    let seen = one.inspect("x").await.expect("an answer");
    let who = seen.holder.expect("a held lock");
    assert_eq!((who.owner.label(), who.token), ("holder", holder.token()));
    assert!(who.remaining > millis(15_000));
    assert_eq!(seen.waiting, 3);
    let labels: Vec<_> = seen
        .line
        .iter()
        .map(|waiter| waiter.owner.label())
        .collect();
    assert_eq!(labels, ["first", "second:with a colon", "third"]);
    for pair in seen.line.windows(2) {
        let (before, after) = (pair[0].waited, pair[1].waited);
        assert!(before >= after + millis(50), "{before:?}, then {after:?}");
    }
    assert!(seen.line[0].waited < LIMIT);

    waiters.remove(0).abort();
    let two = async || one.inspect("x").await.expect("an answer").waiting == 2;
    eventually(AT_ONCE, "the line is shorter", two).await;
    holder.release().await.expect("a held lock");
    let lease = served(waiters.remove(0), LIMIT).await;
    let seen = one.inspect("x").await.expect("an answer");
    assert_eq!(seen.holder.expect("a held lock").token, lease.token());
    assert_eq!((seen.waiting, seen.line.len()), (1, 1));
}

/// Returns how long the server's main thread has run.
async fn processor_time(admin: &mut Admin) -> Duration {
    let mut all = Duration::ZERO;
    for field in ["used_cpu_user_main_thread", "used_cpu_sys_main_thread"] {
        let seconds = admin.info("cpu", field).await.expect("INFO has the field");
        all += Duration::from_secs_f64(seconds.parse().expect("a number"));
    }
    all
}

/// Catches a walk whose single steps take long, here over many other keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_three_thousand_names_leaves_the_server_responsive() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let fill = "for i = 1, 10000 do redis.call('SET', ARGV[1] .. i, i) end return 1";
    for part in 0..20 {
        let prefix = format!("other:{part}:");
        admin.int(&["EVAL", fill, "0", &prefix]).await;
    }
    // A slow machine takes long for three thousand acquisitions at once.
    let builder = Locker::builder().command_timeout(LIMIT);
    let locker = builder.connect(server.url()).await;
    let locker = locker.expect("the server can be reached");
    let acquire = (0..3_000).map(|i| {
        let what = if i % 3 == 0 { "orders" } else { "users" };
        let lock = lock(&locker, &format!("{what}/{i}"), "holder");
        async move { held(&lock).await }
    });
    let leases = futures::future::join_all(acquire).await;
    admin.reset_stats().await;
    let before = processor_time(&mut admin).await;
    for (pattern, what) in [("*", ""), ("orders/*", "orders/"), ("*/2*9", "/2")] {
        let listed: Vec<_> = locker.list(pattern).try_collect().await.expect("answers");
        let mut listed: Vec<_> = listed.iter().map(|name| name.as_str().to_owned()).collect();
        listed.sort();
        listed.dedup();
        let names = leases.iter().map(|lease| lease.name().as_str());
        let mut expected: Vec<_> = names
            .filter(|name| name.contains(what) && (what != "/2" || name.ends_with('9')))
            .map(str::to_owned)
            .collect();
        expected.sort();
        assert_eq!(listed, expected, "{pattern}");
    }
    let pages = admin.command_calls("scan").await;
    assert!(
        pages > 300,
        "{pages} steps through 206,000 keys, three times"
    );
    // The server's processor time, which does not depend on other load.
    let all = processor_time(&mut admin).await.saturating_sub(before);
    let calls = admin.command_calls("evalsha").await;
    let each = all / u32::try_from(calls).expect("not that many");
    println!("{pages} steps through 206,000 keys, {each:.0?} each");
    assert!(each < millis(10), "{each:?}");
    assert_eq!(admin.command_calls("keys").await, 0);
    let one = locker.list("users/1").try_collect::<Vec<_>>().await;
    assert_eq!(one.expect("an answer").len(), 1);
    assert!(
        locker
            .list("")
            .try_next()
            .await
            .expect_err("empty")
            .is_config()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_leaves_every_line_and_hands_its_locks_on() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let (ends, stays) = (connect(&server).await, connect(&server).await);
    let (mut held_by, mut next, mut given_up) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..5 {
        let (mine, theirs) = (format!("mine{i}"), format!("theirs{i}"));
        held_by.push(held(&lock(&ends, &mine, "ends")).await);
        next.push(waiting(&lock(&stays, &mine, "stays")));
        in_line(&mut admin, &mine, 1).await;
        held_by.push(held(&lock(&stays, &theirs, "stays")).await);
        let waits = lock(&ends, &theirs, "ends");
        given_up.push(tokio::spawn(async move { waits.acquire().await }));
        in_line(&mut admin, &theirs, 1).await;
    }
    subscribed(&mut admin, 2).await;
    let handed_on = within(AT_ONCE, async {
        ends.shutdown().await;
        for waiter in next {
            assert!(waiter.await.expect("no panic").is_valid());
        }
    });
    handed_on.await.expect("at once");
    for call in given_up {
        let error = within(LIMIT, call).await.expect("the request is answered");
        let error = error.expect("no panic").map(drop);
        let kind = error.map_err(|error| error.kind());
        assert_eq!(kind, Err(leasehold::ErrorKind::Shutdown));
    }
    assert_eq!(admin.keys("*}:line").await, Vec::<String>::new());
    let mut left = async || admin.string(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    let one = async || left().await.unwrap_or_default().lines().count() == 1;
    eventually(LIMIT, "its push connection is closed", one).await;
}
