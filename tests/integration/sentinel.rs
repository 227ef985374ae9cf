//! One primary, two replicas and three sentinels, by URL and by a client of the program.

use std::time::Duration;

use fred::interfaces::ClientLike;
use leasehold::{ErrorKind, LeaseEvent, Locker};
use leasehold_tests::{Admin, RedisServer, RedisService, Resp, eventually, next_event};

use crate::{LIMIT, held};

/// How long sentinels may take to agree on a successor: if votes are missed once, they wait for six seconds.
const FAILOVER: Duration = Duration::from_secs(30);

/// Catches a locker that stays with a dead primary, and one whose tokens fall at the new one.
#[tokio::test]
async fn a_failover_is_followed_while_a_lease_is_held() {
    let mut all = RedisService::start().await;
    let locker = Locker::connect(all.url())
        .await
        .expect("the primary is found");
    let lock = locker.lock("x").expect("valid").ttl(FAILOVER * 2);
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("a free lock");
    let mut admin = Admin::connect(&all.primary).await;
    assert_eq!(admin.keys("*").await.len(), 1, "the lock is at the primary");
    for replica in &all.replicas {
        replica.has_all_of(&all.primary).await;
    }
    all.primary.kill();
    let at_risk = |event: &LeaseEvent| matches!(event, LeaseEvent::AtRisk { .. });
    next_event(&mut events, LIMIT, at_risk).await;
    let leads = async || leader(&all).await.is_some();
    eventually(FAILOVER, "a replica takes over", leads).await;
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, LIMIT, renewed).await;
    assert!(lease.is_valid());
    let token = lease.token();
    lease
        .release()
        .await
        .expect("the lock is held at the new primary");
    let next = lock.acquire().await.expect("a free lock");
    assert!(next.token() > token, "{} after {token}", next.token());
    assert_eq!(all.replicas.len(), 2);
}

/// Returns the replica that took over.
async fn leader(all: &RedisService) -> Option<&RedisServer> {
    for replica in &all.replicas {
        // Sentinels close the connections of a server that they promote.
        let mut admin = Admin::connect(replica).await;
        if let Ok(Resp::Array(role)) = admin.try_command(&["ROLE"]).await
            && role.first().and_then(Resp::as_string).as_deref() == Some("master")
        {
            return Some(replica);
        }
    }
    None
}

/// Catches a locker that takes locks at a primary that was deposed while it was paused: for some ten seconds
/// it still claims to be the primary to clients that had begun to connect.
#[tokio::test]
async fn a_primary_that_goes_on_after_a_failover_is_left() {
    let all = RedisService::start().await;
    let builder = Locker::builder().command_timeout(Duration::from_millis(200));
    let locker = builder.connect(&all.url()).await;
    let locker = locker.expect("the primary is found");
    let lock = locker.lock("before").expect("valid");
    lock.acquire()
        .await
        .expect("a free lock")
        .release()
        .await
        .expect("a held lock");
    all.primary.pause();
    let asking = tokio::spawn(async move { lock.acquire_within(FAILOVER).await });
    let leader = eventually(FAILOVER, "a replica takes over", async || {
        leader(&all).await
    })
    .await;
    for sentinel in &all.sentinels {
        let mut admin = Admin::connect(sentinel).await;
        let asked = ["SENTINEL", "get-master-addr-by-name", "mymaster"];
        let named = async || {
            let port = Resp::Bulk(Some(leader.port().to_string().into_bytes()));
            matches!(admin.command(&asked).await, Resp::Array(named) if named.get(1) == Some(&port))
        };
        eventually(FAILOVER, "the sentinel names the new primary", named).await;
    }
    all.primary.resume();
    let lock = locker.lock("after").expect("valid");
    let lease = lock.acquire_within(FAILOVER).await;
    let _lease = lease.expect("there is a primary").expect("a free lock");
    let mut admin = Admin::connect(leader).await;
    assert_eq!(
        admin.keys("*after*").await.len(),
        1,
        "the lock is at the new primary"
    );
    let before = asking.await.expect("no panic");
    assert!(before.expect("there is a primary").is_some());
}

/// Catches errors that do not name the missing part.
#[tokio::test]
async fn the_missing_part_is_named() {
    let mut all = RedisService::start().await;
    let url = all.url();
    let wrong = url.replace("mymaster", "nobody");
    let error = Locker::connect(&wrong)
        .await
        .expect_err("there is no such service");
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(
        error.to_string().contains("know no service of this name"),
        "{error}"
    );
    let plain = format!("redis-sentinel://127.0.0.1:{}/mymaster", all.primary.port());
    let error = Locker::connect(&plain)
        .await
        .expect_err("the server is no sentinel");
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(error.to_string().contains("is not a sentinel"), "{error}");
    // One sentinel is enough.
    all.sentinels[0].kill();
    let mut config = fred::types::config::Config::from_url(&format!(
        "redis-sentinel://127.0.0.1:{}?sentinelServiceName=mymaster&node=127.0.0.1:{}",
        all.sentinels[0].port(),
        all.sentinels[1].port()
    ))
    .expect("valid");
    config.fail_fast = true;
    let client = fred::types::Builder::from_config(config)
        .build()
        .expect("valid");
    client.init().await.expect("one server is up");
    for locker in [Locker::connect(&url).await, Locker::with_fred(client).await] {
        let locker = locker.expect("the primary is found");
        let lease = held(&locker, "x").await;
        lease.release().await.expect("a held lock");
    }
    all.sentinels.iter_mut().for_each(RedisServer::kill);
    let error = Locker::connect(&url).await.expect_err("no server is up");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    for sentinel in &all.sentinels {
        let cause = format!("127.0.0.1:{} (Connection refused)", sentinel.port());
        assert!(error.to_string().contains(&cause), "{error}");
    }
}

/// Catches an error that only names the sentinels though these are healthy.
#[tokio::test]
async fn the_obstacle_behind_healthy_sentinels_is_named() {
    let mut primary = RedisServer::start().await;
    let sentinel = RedisServer::config().sentinel_of(&primary, 1).start().await;
    let url = format!("redis-sentinel://127.0.0.1:{}/mymaster", sentinel.port());
    Locker::connect(&url).await.expect("the primary is found");
    primary.kill();
    let error = Locker::connect(&url).await.expect_err("the server is down");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let cause = format!(
        "127.0.0.1:{}, does not serve (Connection refused)",
        primary.port()
    );
    assert!(error.to_string().contains(&cause), "{error}");
    // A locker that connects in the background reports the same.
    let locker = Locker::builder().patience(Duration::from_secs(4));
    let locker = locker.connect_lazily(&url).expect("the URL is valid");
    let error = locker.inspect("x").await.expect_err("the server is down");
    assert!(error.to_string().contains(&cause), "{error}");
    primary.restart().await;
    let mut admin = Admin::connect(&sentinel).await;
    let user = ["ACL", "SETUSER", "default", "resetpass", ">s3cret"];
    admin.ok(&user).await;
    let wrong = format!("{url}?sentinelPassword=wr0ng");
    let error = Locker::connect(&wrong)
        .await
        .expect_err("the password is wrong");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    let cause = format!("127.0.0.1:{} (it refuses", sentinel.port());
    assert!(error.to_string().contains(&cause), "{error}");
    assert!(!format!("{error:?}").contains("wr0ng"), "{error:?}");
}
