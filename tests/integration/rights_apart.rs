//! Rights beyond those for locks: for replicas, sentinels, changes by others, and guards. Each suffices, and
//! each is needed.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::Config;
use leasehold::fence::redis::FencedRedis;
use leasehold::{ErrorKind, FencingToken, Finding, Locker, LossReason};
use leasehold_engine::protocol::Rights;
use leasehold_tests::{Admin, RedisServer, eventually};

use crate::rights::{named, statistic, user};
use crate::{LIMIT, lock_key, millis};

/// For locks with replicas, and from 7.2 on with the disk.
const REPLICAS: &str = "+wait";
/// At the sentinels, for a user of theirs.
const SENTINELS: &str = "+sentinel|get-master-addr-by-name +sentinel|sentinels";
/// At the primary that the sentinels name.
const PRIMARY: &str = "+role";
/// To hear of changes of a held lock at once, through a client of the program.
const OF_PROGRAM: &str = "+client|getredir";
/// For guards in Redis: the check and the write after it, on the resource's keys.
const GUARD: &str = "+eval +evalsha +get +set";
const GUARDED: &str = "~{orders/42}:fence ~orders/42";

/// Returns the rights without one of them.
fn without<'a>(rights: &[&'a str], taken: &str) -> Vec<&'a str> {
    let rights = rights.iter().filter(|right| **right != taken);
    rights.copied().collect()
}

/// Catches a right for replicas that is documented and insufficient, and a missing one that no error names.
#[tokio::test]
async fn waiting_for_replicas_needs_one_more_right() {
    let server = RedisServer::start().await;
    let replica = RedisServer::config().replica_of(&server).start().await;
    let mut admin = Admin::connect(&server).await;
    let acknowledges = async || admin.int(&["WAIT", "1", "100"]).await == 1;
    eventually(LIMIT, "the replica is in sync", acknowledges).await;
    let url = user(&server, &mut admin, "readme", &named()).await;
    let locker = Locker::connect(url).await.expect("the rights are enough");
    let lock = locker.lock("x").expect("valid");
    let lock = lock.replicas(1, Duration::from_secs(3));
    let error = lock.acquire().await.expect_err("the user may not wait");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    assert!(error.to_string().contains("wait"), "{error}");
    let key = lock_key("x");
    let given_back = async || admin.int(&["HLEN", &key]).await <= 1;
    eventually(LIMIT, "the lock is released", given_back).await;
    user(&server, &mut admin, "readme", &[REPLICAS]).await;
    let lease = lock.acquire().await.expect("the rights are enough");
    lease.release().await.expect("a held lock");
    drop(replica);
}

/// Catches a right at the sentinels that is documented and not needed, or needed and not documented.
#[tokio::test]
async fn sentinels_need_few_rights() {
    let primary = RedisServer::start().await;
    let sentinel = RedisServer::config().sentinel_of(&primary, 1).start().await;
    let mut admin = Admin::connect(&primary).await;
    user(&primary, &mut admin, "few", &named()).await;
    user(&primary, &mut admin, "locks", &named()).await;
    user(&primary, &mut admin, "locks", &[PRIMARY]).await;
    let mut watcher = Admin::connect(&sentinel).await;
    let rights: Vec<_> = SENTINELS.split_whitespace().collect();
    let url = |name: &str| {
        let port = sentinel.port();
        let there = format!("sentinelUsername={name}&sentinelPassword=s3cret");
        format!("redis-sentinel://locks:s3cret@127.0.0.1:{port}/mymaster?{there}")
    };
    user(&sentinel, &mut watcher, "all", &rights).await;
    let locker = Locker::connect(url("all")).await;
    let locker = locker.expect("the rights are enough");
    let lease = locker.lock("x").expect("valid").acquire().await;
    drop(lease.expect("a free lock"));
    for (number, taken) in rights.iter().enumerate() {
        let name = format!("without{number}");
        let rest = without(&rights, taken);
        user(&sentinel, &mut watcher, &name, &rest).await;
        let error = Locker::connect(url(&name)).await.expect_err(taken);
        assert_eq!(error.kind(), ErrorKind::Auth, "{taken}: {error:?}");
        assert!(error.to_string().contains(SENTINELS), "{error}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
    let few = url("all").replace("locks:", "few:");
    let error = Locker::connect(few)
        .await
        .expect_err("the user may not ask");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    assert!(error.to_string().contains(PRIMARY), "{error}");
}

/// Catches a right to hear of changes that is documented and not needed, or needed and not documented.
#[tokio::test]
async fn hearing_of_changes_needs_three_more_rights() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    changes_are_heard(&mut admin, async |admin, name, rights| {
        user(&server, admin, name, rights).await
    })
    .await;
}

/// Checks users without each of the rights to hear of changes, made by `user`.
pub(crate) async fn changes_are_heard(
    admin: &mut Admin,
    user: impl AsyncFn(&mut Admin, &str, &[&str]) -> String,
) {
    let rights: Vec<_> = Rights::TRACKING.split_whitespace().collect();
    let missing = [None].into_iter().chain(rights.iter().copied().map(Some));
    for (number, taken) in missing.enumerate() {
        let name = format!("user{number}");
        let own = without(&rights, taken.unwrap_or_default());
        let all: Vec<_> = named().into_iter().chain(own).collect();
        let url = user(admin, &name, &all).await;
        let locker = Locker::connect(url).await.expect("the user may connect");
        let lock = locker.lock(&name).expect("valid");
        let lease = lock.acquire().await.expect("a free lock");
        let Some(taken) = taken else {
            let tracked =
                async || admin.info("stats", "tracking_total_keys").await != Some("0".into());
            eventually(LIMIT, "the key is read", tracked).await;
            admin.int(&["DEL", &lock_key(&name)]).await;
            let lost = tokio::time::timeout(millis(5_000), lease.lost()).await;
            let reason = lost.map(|lost| lost.reason);
            assert_eq!(
                reason,
                Ok(LossReason::Deleted),
                "the loss is reported long before the renewal"
            );
            assert!(locker.findings().is_empty(), "{:?}", locker.findings());
            continue;
        };
        let untracked = async || {
            let findings = locker.findings();
            let found = |finding: &Finding| matches!(finding, Finding::Untracked { .. });
            findings.iter().any(found)
        };
        eventually(LIMIT, taken, untracked).await;
        assert!(lease.is_valid(), "the lease stays valid");
    }
}

async fn client_of(url: &str) -> Client {
    let config = Config::from_url(url).expect("a valid URL");
    let client = fred::types::Builder::from_config(config).build();
    let client = client.expect("valid settings");
    client.init().await.expect("the server is up");
    client
}

/// Catches a client of the program whose state is not checked before tracking is turned on.
#[tokio::test]
async fn a_client_of_the_program_needs_one_more_right_to_hear_of_changes() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for permitted in [false, true] {
        let rights = Rights::TRACKING.split_whitespace();
        let rights = rights.chain(permitted.then_some(OF_PROGRAM));
        let rights: Vec<_> = named().into_iter().chain(rights).collect();
        let url = user(&server, &mut admin, &format!("of{permitted}"), &rights).await;
        let locker = Locker::with_fred(client_of(&url).await).await;
        let locker = locker.expect("the rights are enough");
        let _lease = locker.lock("x").expect("valid").acquire().await;
        if permitted {
            let on = async || statistic(&mut admin, "client|tracking", "calls").await > 0;
            eventually(LIMIT, "tracking is turned on", on).await;
            assert!(locker.findings().is_empty(), "{:?}", locker.findings());
        } else {
            let untracked = async || !locker.findings().is_empty();
            eventually(LIMIT, "the missing right is reported", untracked).await;
        }
    }
}

/// Catches a guard that needs an undocumented right, and one that writes without its fence.
#[tokio::test]
async fn a_guard_needs_rights_to_its_fence_and_its_writes() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let rights: Vec<_> = GUARD
        .split_whitespace()
        .chain(GUARDED.split_whitespace())
        .collect();
    let missing = [None].into_iter().chain(rights.iter().copied().map(Some));
    for (number, taken) in missing.enumerate() {
        admin.flushall().await;
        admin.ok(&["SCRIPT", "FLUSH"]).await;
        let rest = without(&rights, taken.unwrap_or_default());
        let name = format!("user{number}");
        let url = user(&server, &mut admin, &name, &rest).await;
        let redis = FencedRedis::new(client_of(&url).await);
        let token = FencingToken::new(7).expect("valid");
        let order = redis.resource("orders/42", token).expect("valid");
        let written = order.set("orders/42", "paid").await;
        let there = admin.int(&["EXISTS", "orders/42"]).await;
        match taken {
            None => written.expect("the rights are enough"),
            Some(right) => {
                let error = written.expect_err(right);
                assert_eq!(error.kind(), ErrorKind::Auth, "{right}: {error:?}");
            }
        }
        assert_eq!(there == 1, taken.is_none(), "without {taken:?}");
    }
}

/// Catches a locker that hears nothing and tells nobody: its waiters only poll.
#[tokio::test]
async fn a_user_who_may_hear_no_channel_has_a_finding_until_it_may() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let deaf = ["~*", "+@all", "resetchannels"];
    let url = user(&server, &mut admin, "deaf", &deaf).await;
    let locker = Locker::connect(url).await.expect("the rights are enough");
    let lease = locker.lock("x").expect("valid").acquire().await;
    let lease = lease.expect("the lock is free");
    let is_found = |finding: &Finding| matches!(finding, Finding::Untracked { reason } if reason.contains("&leasehold:*"));
    let found = async || locker.findings().iter().any(is_found);
    eventually(LIMIT, "a finding", found).await;
    user(&server, &mut admin, "deaf", &["allchannels"]).await;
    let gone = async || locker.findings().is_empty();
    eventually(LIMIT, "the finding goes", gone).await;
    lease.release().await.expect("a held lock");
}
