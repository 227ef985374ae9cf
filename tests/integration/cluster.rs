//! Real clusters: the server of each slot, changes of that, and faults.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fred::interfaces::ClientLike;
use futures::{StreamExt, TryStreamExt};
use leasehold::{ErrorKind, LeaseEvent, Locker};
use leasehold_tests::{
    Admin, Authority, RedisCluster, RedisServer, Stopwatch, eventually, next_event,
};
use tokio::task::JoinSet;

use crate::{LIMIT, connect, held, in_line, millis};

/// How long replicas may take to agree on a successor: if votes are missed once, they wait for eight seconds.
const FAILOVER: Duration = Duration::from_secs(30);

async fn locker(cluster: &RedisCluster) -> Locker {
    Locker::connect(cluster.url())
        .await
        .expect("the cluster can be reached")
}

fn key(name: &str) -> String {
    format!("{{leasehold:{name}}}")
}

/// Returns how many messages the masters sent to one another for publications to the whole cluster.
async fn forwarded(cluster: &RedisCluster) -> u64 {
    let mut all = 0;
    for master in &cluster.masters {
        let mut admin = Admin::connect(master).await;
        let info = admin.string(&["CLUSTER", "INFO"]).await.unwrap_or_default();
        let sent = info
            .lines()
            .find_map(|line| line.strip_prefix("cluster_stats_messages_publish_sent:"));
        all += sent.map_or(0, |sent| sent.trim().parse::<u64>().expect("a number"));
    }
    all
}

/// Catches grants that go to every node of the cluster, which costs each of them bytes and time.
#[tokio::test]
async fn grants_stay_with_the_node_of_the_lock() {
    let cluster = RedisCluster::start().await;
    let lockers = [locker(&cluster).await, locker(&cluster).await];
    let before = forwarded(&cluster).await;
    let granted = || {
        lockers
            .iter()
            .map(|locker| locker.stats().pushes)
            .sum::<u64>()
    };
    let mut tasks = JoinSet::new();
    for locker in &lockers {
        let lock = locker.lock("handed/on").expect("valid");
        tasks.spawn(async move {
            loop {
                let lease = lock.acquire().await.expect("its turn");
                lease.release().await.expect("an answer");
            }
        });
    }
    // On a busy machine they may each have several turns without the other.
    let enough = async || granted() > 60;
    eventually(LIMIT * 3, "60 waiters are notified", enough).await;
    tasks.shutdown().await;
    // The first grant to each locker comes before the node knows the subscriber; and a locker tests its
    // subscription now and then.
    let (forwarded, granted) = (forwarded(&cluster).await - before, granted());
    assert!(
        forwarded <= granted / 2,
        "{forwarded} messages for {granted}"
    );
}

/// Catches an operation that goes to a node without its slot, and a walk that leaves out a node.
#[tokio::test]
async fn locks_are_where_their_slots_are() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (locker(&cluster).await, locker(&cluster).await);
    let names: Vec<String> = (0..60).map(|number| format!("many/{number}")).collect();
    let leases = futures::stream::iter(&names).map(async |name| {
        let lock = one.lock(name).expect("valid");
        lock.acquire().await.expect("a free lock")
    });
    let leases: Vec<_> = leases.buffer_unordered(20).collect().await;
    let mut counts = Vec::new();
    for master in &cluster.masters {
        let mut admin = Admin::connect(master).await;
        counts.push(admin.keys("*many*").await.len());
    }
    assert_eq!(counts.iter().sum::<usize>(), 60);
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
    let listed: BTreeSet<String> = other
        .list("many/*")
        .map_ok(|name| name.as_str().to_owned())
        .try_collect()
        .await
        .expect("all are up");
    assert_eq!(listed, names.iter().cloned().collect());
    for lease in &leases[..3] {
        let seen = other
            .inspect(lease.name().as_str())
            .await
            .expect("an answer");
        assert_eq!(seen.holder.map(|holder| holder.token), Some(lease.token()));
        let freed = other
            .force_release(lease.name().as_str())
            .await
            .expect("an answer");
        assert_eq!(freed.map(|holder| holder.token), Some(lease.token()));
        tokio::time::timeout(LIMIT, lease.lost())
            .await
            .expect("the holder hears of it");
    }
    for lease in leases.into_iter().skip(3) {
        lease.release().await.expect("a held lock");
    }
    assert!(one.findings().is_empty(), "{:?}", one.findings());
}

/// Catches a waiter that hears pushes of one node only, and a holder that hears of no change there.
#[tokio::test]
async fn grants_and_changes_are_heard_at_every_node() {
    let cluster = RedisCluster::start().await;
    let (one, other) = (locker(&cluster).await, locker(&cluster).await);
    for master in 0..3 {
        let (name, _) = cluster.name_at(master).await;
        let lease = held(&one, &name).await;
        let waiter = other.lock(&name).expect("valid");
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        in_line(&one, &name).await;
        // The waiter subscribes a little later.
        let mut admin = Admin::connect(&cluster.masters[master]).await;
        let hears = async || admin.hearing_lockers().await == 2;
        eventually(LIMIT, "both hear this node", hears).await;
        let watch = Stopwatch::start();
        lease.release().await.expect("a held lock");
        let lease = waiting.await.expect("no panic").expect("its turn");
        assert!(watch.elapsed() < millis(500), "{:?}", watch.elapsed());
        // The key is read a moment after the lock was taken.
        let is_read =
            async || admin.info("stats", "tracking_total_keys").await.as_deref() == Some("1");
        eventually(LIMIT, "the lock's key is read", is_read).await;
        let watch = Stopwatch::start();
        assert_eq!(admin.int(&["DEL", &key(&name)]).await, 1);
        tokio::time::timeout(LIMIT, lease.lost())
            .await
            .expect("a lost lease");
        assert!(watch.elapsed() < millis(1_500), "{:?}", watch.elapsed());
    }
    assert!(one.findings().is_empty() && other.findings().is_empty());
}

/// Catches a lease that is lost in a half-done move that lasts longer than the lease: the node only lets renewals
/// through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlasts_a_half_done_move_of_its_slot() {
    let cluster = RedisCluster::start().await;
    let one = locker(&cluster).await;
    let ((name, slot), ttl) = (cluster.name_at(0).await, millis(3_000));
    let lock = one.lock(&name).expect("valid").ttl(ttl);
    let lease = lock.acquire().await.expect("a free lock");
    let mut events = lock.events();
    cluster.half_move_slot(slot, 0, 1, &key(&name)).await;
    let begin = Instant::now();
    while begin.elapsed() < ttl + millis(1_000) {
        let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
        next_event(&mut events, LIMIT, renewed).await;
    }
    assert!(lease.is_valid());
    let token = lease.token();
    cluster
        .give_slot(&slot.to_string(), &cluster.masters[1])
        .await;
    lease.release().await.expect("a held lock");
    assert!(held(&one, &name).await.token() > token);
}

/// Catches operations on several slots of one node that cost a call each. While slots move, catches an
/// operation that is delayed, lost or done twice because others of its call were refused: two clients or none
/// would get the lock, or its tokens would fall.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_of_one_node_leave_together() {
    const CALLERS: usize = 32;
    let cluster = RedisCluster::start().await;
    let lockers = [locker(&cluster).await, locker(&cluster).await];
    let names: Vec<String> = (0..CALLERS).map(|at| format!("together/{at}")).collect();
    let before = script_calls(&cluster).await;
    let pairs = names.iter().map(async |name| {
        for _ in 0..20 {
            let lease = lockers[0].lock(name).expect("valid").acquire().await;
            lease
                .expect("a free lock")
                .release()
                .await
                .expect("a held lock");
        }
    });
    futures::future::join_all(pairs).await;
    let calls = script_calls(&cluster).await - before;
    println!("{calls} calls for {} operations", CALLERS * 20 * 2);
    assert!(calls < (CALLERS * 20 * 3 / 2) as u64, "{calls}");

    // Two lockers contend for each name.
    let is_over = Arc::new(AtomicBool::new(false));
    let mut contenders = JoinSet::new();
    for name in &names {
        let last = Arc::new(tokio::sync::Mutex::new((0, None)));
        for locker in &lockers {
            let lock = locker.lock(name).expect("valid");
            let (last, is_over) = (last.clone(), is_over.clone());
            contenders.spawn(async move {
                let mut turns = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let lease = lock.acquire().await.expect("its turn");
                    let mut last = last.try_lock().expect("no other task has the lock");
                    assert!(
                        Some(lease.token()) > last.1,
                        "{} after {:?}",
                        lease.token(),
                        last.1
                    );
                    *last = (last.0 + 1, Some(lease.token()));
                    drop(last);
                    tokio::task::yield_now().await;
                    lease.release().await.expect("a held lock");
                    turns += 1;
                }
                turns
            });
        }
    }
    let moved = [0, 1, 2, 3].map(|at| &names[at]);
    for _ in 0..4 {
        for name in moved {
            let slot = cluster.slot(&key(name)).await;
            let at = cluster.master_of(slot).await;
            cluster.move_slot(slot, at, (at + 1) % 3).await;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let turns: Vec<usize> = contenders.join_all().await;
    println!("{} turns while slots moved", turns.iter().sum::<usize>());
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
}

async fn script_calls(cluster: &RedisCluster) -> u64 {
    let mut calls = 0;
    for master in &cluster.masters {
        calls += Admin::connect(master).await.script_calls().await;
    }
    calls
}

/// Catches a locker that stays with a dead master, and one whose other locks wait for it.
#[tokio::test]
async fn a_replica_takes_over_while_leases_are_held() {
    let mut cluster = RedisCluster::with_replicas().await;
    let one = locker(&cluster).await;
    let ((name, _), (elsewhere, _)) = (cluster.name_at(1).await, cluster.name_at(2).await);
    let lock = one.lock(&name).expect("valid").ttl(FAILOVER * 2);
    let mut events = lock.events();
    let lease = lock.acquire().await.expect("a free lock");
    cluster.replicas[1].has_all_of(&cluster.masters[1]).await;
    cluster.masters[1].kill();
    let at_risk = |event: &LeaseEvent| matches!(event, LeaseEvent::AtRisk { .. });
    next_event(&mut events, LIMIT, at_risk).await;
    // Other masters serve before a replica takes over.
    let other = one.lock(&elsewhere).expect("valid").acquire().await;
    other
        .expect("a free lock")
        .release()
        .await
        .expect("a held lock");
    let begin = Instant::now();
    cluster.allow_failover().await;
    let mut admin = Admin::connect(&cluster.replicas[1]).await;
    let leads = async || admin.info("replication", "role").await.as_deref() == Some("master");
    eventually(FAILOVER, "the replica takes over", leads).await;
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, LIMIT, renewed).await;
    println!(
        "renewed {:?} after the replica was allowed to take over",
        begin.elapsed()
    );
    let token = lease.token();
    lease
        .release()
        .await
        .expect("the lock is held at the new master");
    let next = lock.acquire().await.expect("a free lock");
    assert!(next.token() > token);
}

/// Catches a lock that counts although no replica of its own master has it; one that is kept then; and, after
/// a move of its slot, one whose copies are requested at the wrong node.
#[tokio::test]
async fn a_lock_counts_once_the_replicas_of_its_master_have_it() {
    let mut cluster = RedisCluster::with_replicas().await;
    let one = locker(&cluster).await;
    let ((name, slot), ttl) = (cluster.name_at(1).await, FAILOVER * 2);
    let enough = Duration::from_secs(3);
    let lock = one.lock(&name).expect("valid").ttl(ttl);
    let error = lock.clone().replicas(2, millis(200)).try_acquire().await;
    let error = error.expect_err("the master has one replica");
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error:?}");
    assert!(error.to_string().contains("1 of 2 replicas"), "{error}");
    let lock = lock.replicas(1, enough);
    let lease = lock.acquire().await.expect("the lock was given back");
    lease.renew().await.expect("the server is up");
    for (from, to) in [(1, 2), (2, 1)] {
        cluster.move_slot(slot, from, to).await;
        lease
            .renew()
            .await
            .expect("the new master has a replica, too");
        cluster.replicas[to].pause();
        let error = lease.renew().await.expect_err("no replica acknowledges");
        assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error:?}");
        cluster.replicas[to].resume();
        lease.renew().await.expect("the replica is up again");
    }
    lease.release().await.expect("a held lock");
    let lease = lock.acquire().await.expect("a free lock");
    cluster.masters[1].kill();
    cluster.allow_failover().await;
    let mut admin = Admin::connect(&cluster.replicas[1]).await;
    let leads = async || admin.info("replication", "role").await.as_deref() == Some("master");
    eventually(FAILOVER, "the replica takes over", leads).await;
    let token = lease.token();
    lease
        .release()
        .await
        .expect("the lock is held at the new master");
    let next = held(&one, &name).await;
    assert!(next.token() > token);
}

/// Catches a program's own client that is refused, or that is taken for one of a lone server.
#[tokio::test]
async fn a_cluster_client_of_the_program_is_accepted() {
    let cluster = RedisCluster::start().await;
    let hosts = cluster.masters.iter().map(RedisServer::port);
    let hosts = hosts.map(|port| ("127.0.0.1".to_owned(), port)).collect();
    let client = fred::types::Builder::from_config(fred::types::config::Config {
        server: fred::types::config::ServerConfig::new_clustered(hosts),
        ..Default::default()
    });
    let client = client.build().expect("valid");
    client.init().await.expect("the cluster is up");
    let locker = Locker::with_fred(client)
        .await
        .expect("the client is accepted");
    for number in 0..20 {
        let lock = locker.lock(format!("own/{number}")).expect("valid");
        let lease = lock.acquire().await.expect("a free lock");
        lease.release().await.expect("a held lock");
    }
}

/// Catches an unencrypted connection to a node that the URL does not name.
#[tokio::test]
async fn every_node_is_reached_by_tls() {
    let ca = Authority::new("ours");
    let config = RedisServer::config().tls_cluster(&ca);
    let cluster = RedisCluster::start_with(&config, 3, false).await;
    let url = cluster.tls_url(&ca.file);
    let (seeds, query) = url.split_once('?').expect("the URL has a CA");
    let one = seeds.split(',').next().expect("the URL has nodes");
    let locker = Locker::connect(format!("{one}?{query}")).await;
    let locker = locker.expect("the certificate is trusted");
    for server in &cluster.masters {
        let mut admin = Admin::connect(server).await;
        admin.ok(&["CONFIG", "SET", "port", "0"]).await;
    }
    for number in 0..20 {
        let lock = locker.lock(format!("tls/{number}")).expect("valid");
        let lease = lock.acquire().await.expect("a free lock");
        lease.release().await.expect("a held lock");
    }
    let stranger = Authority::new("a stranger");
    let error = Locker::connect(cluster.tls_url(&stranger.file)).await;
    let error = error.expect_err("the certificate is not trusted");
    assert_eq!(error.kind(), ErrorKind::Tls, "{error:?}");
    assert!(error.to_string().starts_with("node 127.0.0.1:"), "{error}");
}

/// Catches a service that does not start while its cluster is down, and one that never finds it later.
#[tokio::test]
async fn a_cluster_may_start_later() {
    let mut cluster =
        RedisCluster::start_with(&RedisServer::config().append_only(), 1, false).await;
    cluster.masters[0].kill();
    let locker = Locker::builder().connect_lazily(cluster.url());
    let locker = locker.expect("no node has to be up");
    let lock = locker.lock("later").expect("valid");
    let error = lock
        .acquire_within(millis(300))
        .await
        .expect_err("no server is up");
    assert!(error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    cluster.masters[0].restart().await;
    let lease = lock.acquire().await.expect("the cluster is up now");
    lease.release().await.expect("a held lock");
}

/// Catches errors that do not name the fault, or the node.
#[tokio::test]
async fn errors_name_the_fault_and_the_node() {
    let standalone = RedisServer::start().await;
    let url = format!("redis-cluster://127.0.0.1:{}", standalone.port());
    let error = Locker::connect(url)
        .await
        .expect_err("the server is no cluster");
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(error.to_string().contains("not a cluster node"), "{error}");

    let config = RedisServer::config().password("secret");
    let mut cluster = RedisCluster::start_with(&config, 3, false).await;
    let error = Locker::connect(cluster.masters[0].url())
        .await
        .expect_err("a cluster needs another URL");
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");

    let wrong = cluster.url().replace("secret", "s3cret");
    let error = Locker::connect(wrong).await.expect_err("a wrong password");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");

    let mut admin = Admin::connect(&cluster.masters[2]).await;
    admin.ok(&["CONFIG", "SET", "requirepass", "another"]).await;
    let error = Locker::connect(cluster.url())
        .await
        .expect_err("one node's is another");
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    let port = cluster.masters[2].port().to_string();
    assert!(error.to_string().contains(&port), "{error}");
    admin.ok(&["CONFIG", "SET", "requirepass", "secret"]).await;

    // A node that is down or paused does not keep the others from serving.
    cluster.masters[2].pause();
    let watch = Stopwatch::start();
    let locker = Locker::connect(cluster.url()).await.expect("two are up");
    assert!(
        watch.elapsed() < Duration::from_secs(7),
        "{:?}",
        watch.elapsed()
    );
    let (name, _) = cluster.name_at(0).await;
    let lock = locker.lock(name).expect("valid");
    let lease = lock.acquire().await.expect("its node is up");
    lease.release().await.expect("a held lock");
    cluster.masters[2].resume();

    let url = cluster.url();
    cluster.masters.iter_mut().for_each(RedisServer::kill);
    let watch = Stopwatch::start();
    let error = Locker::connect(&url).await.expect_err("no server is up");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    assert!(
        watch.elapsed() < Duration::from_secs(6),
        "{:?}",
        watch.elapsed()
    );

    let members = [url.as_str(), "redis://127.0.0.1:1", "redis://127.0.0.1:2"];
    let error = Locker::builder()
        .quorum(members)
        .await
        .expect_err("one is a cluster");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(
        error.to_string().contains("server 1 of the quorum"),
        "{error}"
    );
    drop(connect(&standalone).await);
}
