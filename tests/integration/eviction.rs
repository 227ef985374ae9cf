//! Servers that evict held locks when their memory is full.

use leasehold::{Finding, Locker};
use leasehold_tests::{Admin, RedisServer};

use crate::{connect, connect_with, own_client};

/// Catches a missing warning about a server that would give a held lock to a second client.
#[tokio::test]
async fn a_server_that_evicts_keys_is_found_when_connecting() {
    for policy in ["volatile-ttl", "volatile-lru", "allkeys-lru"] {
        let args = ["--maxmemory", "100mb", "--maxmemory-policy", policy];
        let server = RedisServer::config().args(args).start().await;
        let found = Finding::Eviction {
            policy: policy.to_owned(),
        };
        let locker = connect(&server).await;
        assert_eq!(locker.findings(), std::slice::from_ref(&found));
        assert!(locker.lock("x").expect("valid").acquire().await.is_ok());
        let locker = Locker::with_fred(own_client(&server).await).await;
        assert_eq!(locker.expect("the client is connected").findings(), [found]);
    }
}

#[tokio::test]
async fn a_safe_or_unreadable_policy_causes_no_finding() {
    let server = RedisServer::config()
        .args(["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"])
        .start()
        .await;
    assert_eq!(connect(&server).await.findings(), []);
    assert_eq!(Locker::in_memory().findings(), []);
    let mut admin = Admin::connect(&server).await;
    admin
        .ok(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .await;
    let rights = ["~*", "&*", "+@all", "-info"];
    let mut user = vec!["ACL", "SETUSER", "shy", "on", ">s3cret"];
    user.extend(rights);
    admin.ok(&user).await;
    let url = format!("redis://shy:s3cret@127.0.0.1:{}", server.port());
    let locker = connect_with(Locker::builder(), &url).await;
    assert_eq!(locker.findings(), [], "connecting succeeds, too");
}
