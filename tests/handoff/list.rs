//! Lists of many names.

use std::time::Duration;

use futures::TryStreamExt;
use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};

use crate::{LIMIT, held, lock, millis};

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
