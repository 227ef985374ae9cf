//! Slots that move: which nodes a locker asks then, and how often. A locker that only asks one node more than it needs
//! works all the same, so these tests count what the nodes refused.

use std::time::Duration;

use leasehold::{Lease, Locker};
use leasehold_tests::{Admin, RedisCluster, RedisServer};

use crate::{LIMIT, held, lock_key};

/// The number of renewals that are counted.
const RENEWALS: u64 = 10;

/// Between two looks at the nodes.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects as a user of its own, whose rights a test may change. Without tracking, a key that moves away is not
/// noticed and checked in the background, so all calls are those of the test.
async fn locker(cluster: &RedisCluster) -> Locker {
    for master in &cluster.masters {
        let all = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
        Admin::connect(master).await.ok(&all).await;
    }
    let url = cluster.url().replace("//", "//app:pw@");
    let locker = Locker::builder().tracking(false).connect(url).await;
    locker.expect("the cluster is up")
}

async fn renew(lease: &Lease, times: u64) {
    for _ in 0..times {
        lease.renew().await.expect("the lease is held");
    }
}

/// Returns how many requests the server refused with this code.
async fn refused(server: &RedisServer, code: &str) -> u64 {
    let mut admin = Admin::connect(server).await;
    let count = admin.info("errorstats", &format!("errorstat_{code}")).await;
    count.map_or(0, |count| {
        let count = count.strip_prefix("count=").expect("a count");
        count.trim().parse().expect("a number")
    })
}

/// Returns how often the nodes were asked for the slot map, as long as nothing else asks about the cluster.
async fn map_reads(cluster: &RedisCluster) -> u64 {
    let mut reads = 0;
    for master in &cluster.masters {
        let mut admin = Admin::connect(master).await;
        reads += admin.command_calls("cluster|slots").await;
    }
    reads
}

/// Returns this many names of other slots than this one at the first master.
async fn other_names(cluster: &RedisCluster, than: u16, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for number in 0.. {
        let name = format!("another/{number}");
        let slot = cluster.slot(&lock_key(&name)).await;
        if slot != than && cluster.master_of(slot).await == 0 {
            names.push(name);
        }
        if names.len() == count {
            break;
        }
    }
    names
}

/// Catches a locker that takes ASK for a move: it would ask the new node for what has not moved yet.
#[tokio::test]
async fn a_slot_that_is_being_migrated_stays() {
    let cluster = RedisCluster::start().await;
    let locker = locker(&cluster).await;
    let (name, slot) = cluster.name_at(0).await;
    let lease = held(&locker, &name).await;
    renew(&held(&locker, &cluster.name_at(1).await.0).await, 1).await;
    cluster.half_move_slot(slot, 0, 1, &lock_key(&name)).await;
    renew(&lease, RENEWALS).await;
    let asked = refused(&cluster.masters[0], "ASK").await;
    assert!(asked >= RENEWALS, "{asked}");
    assert_eq!(refused(&cluster.masters[1], "MOVED").await, 0);
}

/// Catches a locker that follows MOVED and forgets it: each request would take two calls until the map is read.
#[tokio::test]
async fn a_slot_that_moved_is_asked_for_at_its_new_node() {
    let cluster = RedisCluster::start().await;
    let locker = locker(&cluster).await;
    let (name, slot) = cluster.name_at(0).await;
    let lease = held(&locker, &name).await;
    renew(&held(&locker, &cluster.name_at(1).await.0).await, 1).await;
    // So that nothing but MOVED says where the slot is.
    for master in &cluster.masters {
        let no_map = ["ACL", "SETUSER", "app", "-cluster|slots"];
        Admin::connect(master).await.ok(&no_map).await;
    }
    let before = refused(&cluster.masters[0], "MOVED").await;
    cluster.move_slot(slot, 0, 1).await;
    renew(&lease, RENEWALS).await;
    let refused = refused(&cluster.masters[0], "MOVED").await - before;
    assert!((1..RENEWALS / 2).contains(&refused), "{refused}");
}

/// Catches a locker that learns from MOVED of one slot alone: each other slot that moved would cost a call more.
#[tokio::test]
async fn a_moved_slot_has_the_map_read() {
    let cluster = RedisCluster::start().await;
    let locker = locker(&cluster).await;
    let (name, slot) = cluster.name_at(0).await;
    let lease = held(&locker, &name).await;
    renew(&held(&locker, &cluster.name_at(1).await.0).await, 1).await;
    let mut is_read = false;
    // While a locker connects to the nodes it reads the map anyway, and may know of a move before it asks.
    for (from, to) in [(0, 1), (1, 0), (0, 1)] {
        // Moving a slot reads the map, too.
        cluster.move_slot(slot, from, to).await;
        let before = map_reads(&cluster).await;
        renew(&lease, 1).await;
        let read = async {
            while map_reads(&cluster).await == before {
                tokio::time::sleep(PAUSE).await;
            }
        };
        is_read |= tokio::time::timeout(LIMIT / 5, read).await.is_ok();
    }
    assert!(is_read, "no move had the map read");
}

/// Catches a request whose `not_after` is by the clock of another node: the node that it is redirected to would find
/// it late. Catches a reply that is taken for one of the node that was asked: its next requests would be late.
#[tokio::test]
async fn the_clocks_of_nodes_may_differ() {
    // Longer than any request may take, and shorter than the lease.
    const APART: f64 = 25.0;
    for (to, clock) in [(1, APART), (2, -APART)] {
        let cluster = RedisCluster::with_clocks_off(&[0.0, APART, -APART]).await;
        let locker = locker(&cluster).await;
        let (name, slot) = cluster.name_at(0).await;
        let lock = locker.lock(&name).expect("valid");
        let lease = lock.ttl(LIMIT * 6).acquire().await.expect("a free lock");
        // The clocks of both nodes are known from then on.
        renew(&held(&locker, &cluster.name_at(to).await.0).await, 1).await;
        let other = held(&locker, &other_names(&cluster, slot, 1).await[0]).await;
        cluster.half_move_slot(slot, 0, to, &lock_key(&name)).await;
        let mut admin = Admin::connect(&cluster.masters[0]).await;
        let before = admin.script_calls().await;
        for _ in 0..RENEWALS {
            renew(&lease, 1).await;
            renew(&other, 1).await;
        }
        let calls = admin.script_calls().await - before;
        let what = format!("{calls} calls; the other node's clock is {clock} s ahead");
        assert!(calls < RENEWALS * 3 / 2, "{what}");
    }
}

/// Catches a request of several slots whose refused part is only tried again after a pause, as after a failure.
#[tokio::test]
async fn a_refused_part_of_a_request_is_asked_again_at_once() {
    let cluster = RedisCluster::start().await;
    let locker = locker(&cluster).await;
    let (name, slot) = cluster.name_at(0).await;
    let mut leases = Vec::new();
    for name in other_names(&cluster, slot, 8).await.iter().chain([&name]) {
        leases.push(held(&locker, name).await);
    }
    renew(&held(&locker, &cluster.name_at(1).await.0).await, 1).await;
    cluster.move_slot(slot, 0, 1).await;
    let before = locker.stats().script_calls;
    let renewed = leases.iter().map(Lease::renew);
    futures::future::try_join_all(renewed)
        .await
        .expect("both are held");
    // They leave in one call or several, and the refused one once more.
    let calls = locker.stats().script_calls - before;
    assert!(calls <= 10, "{calls}");
    assert_eq!(locker.stats().renewal_failures, 0);
}
