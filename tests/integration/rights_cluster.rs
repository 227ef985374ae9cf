//! The rights of a user on a cluster: together they suffice, and each is needed.

use std::time::Duration;

use futures::TryStreamExt;
use leasehold::{Error, ErrorKind, Locker};
use leasehold_tests::{Admin, RedisCluster, RedisServer};

use crate::lock_key;
use crate::rights::{
    LIST, everything, named, names_the_missing_right, pushes_are_needed, user, without_each,
};
use crate::rights_apart::changes_are_heard;

/// The rights beyond those for locks and pushes.
const CLUSTER: &str = "+cluster|slots +asking";

/// Starts a cluster with all slots at one master, which an administrator can read like a lone server.
async fn start() -> (RedisCluster, Admin) {
    let cluster = RedisCluster::start_with(&RedisServer::config(), 1, false).await;
    let admin = Admin::connect(&cluster.masters[0]).await;
    (cluster, admin)
}

/// Makes a user with these rights and those for a cluster. Returns the URL.
async fn member(cluster: &RedisCluster, admin: &mut Admin, name: &str, rights: &[&str]) -> String {
    let more = CLUSTER.split_whitespace();
    let rights: Vec<_> = rights.iter().copied().chain(more).collect();
    let url = user(&cluster.masters[0], admin, name, &rights).await;
    of_cluster(&url)
}

fn of_cluster(url: &str) -> String {
    url.replace("redis://", "redis-cluster://")
}

/// Uses names of several slots, whose operations leave together.
async fn many(url: &str) -> Result<(), Error> {
    let locker = Locker::connect(url).await?;
    let locks = (0..24).map(|at| locker.lock(format!("many/{at}")));
    let locks: Vec<_> = locks.collect::<Result<_, _>>()?;
    for _ in 0..3 {
        let acquired = locks.iter().map(leasehold::Lock::acquire);
        for lease in futures::future::try_join_all(acquired).await? {
            lease.release().await?;
        }
    }
    Ok(())
}

/// Catches an undocumented right that a cluster needs, and a missing one that no error names; also for
/// operations of several slots that leave together.
#[tokio::test]
async fn each_right_is_needed_on_a_cluster() {
    let (cluster, mut admin) = start().await;
    let all = member(&cluster, &mut admin, "all", &named()).await;
    let done = everything(&all, &mut admin).await;
    done.expect("the rights are enough");
    many(&all).await.expect("the rights are enough");
    for (taken, name, rest) in without_each() {
        let url = member(&cluster, &mut admin, &name, &rest).await;
        let error = everything(&url, &mut admin).await.expect_err(taken);
        names_the_missing_right(&error, taken);
        if let Err(error) = many(&url).await {
            names_the_missing_right(&error, taken);
        }
    }
    pushes_are_needed(&mut admin, &all, async |admin, name, rights| {
        member(&cluster, admin, name, rights).await
    })
    .await;
    changes_are_heard(&mut admin, async |admin, name, rights| {
        member(&cluster, admin, &format!("changes-{name}"), rights).await
    })
    .await;
    let locker = Locker::connect(&all).await.expect("the rights are enough");
    let _lease = locker.lock("x").expect("valid").acquire().await;
    let listed: Result<Vec<_>, _> = locker.list("x").try_collect().await;
    names_the_missing_right(&listed.expect_err("the user may not scan"), LIST);
    member(&cluster, &mut admin, "all", &[LIST]).await;
    let listed: Vec<_> = locker.list("x").try_collect().await.expect("the user may");
    assert_eq!(listed.len(), 1);
    let text = include_str!("../../docs/book/src/acl.md").replace("\\|", "|");
    assert!(text.contains(CLUSTER), "the page names {CLUSTER:?}");
}

/// Catches an error that does not name the missing right: to read the slots, or to ask a node that takes a
/// slot over.
#[tokio::test]
async fn a_cluster_needs_two_more_rights_that_are_named() {
    let cluster = RedisCluster::start().await;
    let (name, slot) = cluster.name_at(0).await;
    for (round, taken) in ["+cluster|slots", "+asking", ""].into_iter().enumerate() {
        let rights = named().into_iter().chain(CLUSTER.split_whitespace());
        let rights: Vec<_> = rights.filter(|right| *right != taken).collect();
        let user_name = format!("without{}", taken.replace(['+', '|'], "-"));
        let mut url = String::new();
        for master in &cluster.masters {
            let mut admin = Admin::connect(master).await;
            url = user(master, &mut admin, &user_name, &rights).await;
        }
        let used = async {
            let locker = Locker::builder().patience(Duration::from_secs(3));
            let locker = locker.connect(&of_cluster(&url)).await?;
            let lock = locker.lock(&name)?.ttl(Duration::from_secs(60));
            let lease = lock.acquire().await?;
            cluster
                .half_move_slot(slot, round - 1, round, &lock_key(&name))
                .await;
            // A check that was on its way before the key moved may answer the first call.
            let renewed = match lease.renew().await {
                Ok(()) => lease.renew().await,
                Err(error) => Err(error),
            };
            let (slot, to) = (slot.to_string(), &cluster.masters[round]);
            cluster.give_slot(&slot, to).await;
            lease.release().await?;
            renewed
        };
        let used = used.await;
        if taken.is_empty() {
            used.expect("the rights are enough");
        } else {
            let error = used.expect_err(taken);
            assert_eq!(error.kind(), ErrorKind::Auth, "{taken}: {error:?}");
            let command = taken.trim_start_matches('+');
            assert!(error.to_string().contains(command), "{taken}: {error}");
        }
    }
}
