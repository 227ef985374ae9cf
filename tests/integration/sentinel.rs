//! One primary, two replicas and three sentinels, by URL and by a client of the program's.

use fred::interfaces::ClientLike;
use leasehold::{ErrorKind, LeaseEvent, Locker};
use leasehold_tests::{Admin, RedisServer, RedisService, eventually, next_event};

use crate::LIMIT;

/// Catches a locker that stays with a primary that is gone, and one that keeps its tokens from it.
#[tokio::test]
async fn a_failover_is_followed_while_a_lease_is_held() {
    let mut all = RedisService::start().await;
    let locker = Locker::connect(all.url())
        .await
        .expect("the primary is found");
    let lock = locker.lock("x").expect("valid");
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("it is free");
    let mut admin = Admin::connect(&all.primary).await;
    assert_eq!(admin.keys("*").await.len(), 1, "it is at the primary");
    let replicated = async || admin.int(&["WAIT", "2", "100"]).await == 2;
    eventually(LIMIT, "both replicas to have it", replicated).await;
    all.primary.kill();
    let at_risk = |event: &LeaseEvent| matches!(event, LeaseEvent::AtRisk { .. });
    next_event(&mut events, LIMIT, at_risk).await;
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, LIMIT, renewed).await;
    assert!(lease.is_valid());
    let token = lease.token();
    lease
        .release()
        .await
        .expect("it is held at the new primary");
    let next = lock.acquire().await.expect("it is free");
    assert!(next.token() > token, "{} after {token}", next.token());
    assert_eq!(all.replicas.len(), 2);
}

/// Catches errors that do not say which of the parts is missing.
#[tokio::test]
async fn what_is_missing_is_named() {
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
        .expect_err("it is no sentinel");
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(error.to_string().contains("is no sentinel"), "{error}");
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
    client.init().await.expect("one is there");
    for locker in [Locker::connect(&url).await, Locker::with_fred(client).await] {
        let locker = locker.expect("the primary is found");
        let lease = locker
            .lock("x")
            .expect("valid")
            .acquire()
            .await
            .expect("it is free");
        lease.release().await.expect("it is held");
    }
    all.sentinels.iter_mut().for_each(RedisServer::kill);
    let error = Locker::connect(&url).await.expect_err("none is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("all sentinel nodes"), "{error}");
}
