//! The suite.

use std::collections::BTreeSet;
use std::iter::once;
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::{join_all, try_join_all};
use leasehold::{ErrorKind, FencingToken, Finding, Lease, LeaseEvent, Lock, Locker, LossReason};
use leasehold_tests::{Admin, RedisServer, Resp, Stopwatch, eventually, next_event, within};

use crate::kinds::{Kind, Place};

const LIMIT: Duration = Duration::from_secs(10);
/// Less than the second after which a client without pushes asks again.
const TOLD: Duration = Duration::from_millis(700);

async fn locker<K: Kind>(place: &Place) -> Locker {
    let locker = K::locker(Locker::builder(), place).await;
    locker.expect("the store can be reached")
}

/// Returns a connection of an administrator to each running server.
async fn admins(place: &Place) -> Vec<Admin> {
    let running = place.servers().into_iter();
    let running = running.filter(|server| server.is_running());
    let connecting = running.map(Admin::connect);
    futures::future::join_all(connecting).await
}

/// Starts a server, with a connection of an administrator.
async fn server<K: Kind>() -> (Place, Admin) {
    let place = K::place().await;
    let admin = Admin::connect(place.server().expect("the store is a lone server")).await;
    (place, admin)
}

fn lock(locker: &Locker, name: &str) -> Lock {
    locker.lock(name).expect("a valid name")
}

async fn stand_in_line(locker: &Locker, name: &str) {
    eventually(LIMIT, "a waiter is in line", async || {
        locker
            .inspect(name)
            .await
            .is_ok_and(|seen| seen.waiting == 1)
    })
    .await;
}

/// Waits until the server is used again.
async fn can_lock_again(locker: &Locker) {
    eventually(LIMIT, "the server is used again", async || {
        lock(locker, "job")
            .try_acquire()
            .await
            .is_ok_and(|lease| lease.is_some())
    })
    .await;
}

/// Waits until this many lockers are subscribed. In memory they are at once.
async fn hear<K: Kind>(place: &Place, lockers: usize) {
    let mut admins = admins(place).await;
    if !K::HEARS || admins.is_empty() {
        return;
    }
    eventually(LIMIT, "subscriptions", async || {
        let mut heard = BTreeSet::new();
        for admin in &mut admins {
            let channels = admin.command(&["PUBSUB", "CHANNELS", "leasehold:*"]).await;
            let Resp::Array(channels) = channels else {
                return false;
            };
            heard.extend(channels.iter().filter_map(Resp::as_string));
        }
        heard.len() == lockers
    })
    .await;
}

/// Catches a reply that is taken for another's, and words that are cut or joined on the way.
pub(crate) async fn one_holds_and_tokens_grow<K: Kind>() {
    let place = K::place().await;
    let (one, two) = (locker::<K>(&place).await, locker::<K>(&place).await);
    let longest = "x".repeat(512);
    let mut last: Option<FencingToken> = None;
    for name in ["orders/42", "a b\r\n$3\r\nabc", "\0€🔒}%", longest.as_str()] {
        for locker in [&one, &two, &one] {
            let lease = lock(locker, name).try_acquire().await.expect("an answer");
            let lease = lease.expect("a free lock");
            for other in [&one, &two] {
                let refused = lock(other, name).try_acquire().await;
                assert!(refused.expect("an answer").is_none(), "{name:?} is held");
            }
            assert!(last < Some(lease.token()) || name != "orders/42");
            last = Some(lease.token());
            let seen = two.inspect(name).await.expect("an answer");
            assert_eq!(seen.holder.map(|holder| holder.token), last);
            lease.renew().await.expect("a held lock");
            lease.release().await.expect("a held lock");
        }
    }
}

/// Catches replies in another order than their calls.
pub(crate) async fn many_at_once<K: Kind>() {
    let place = K::place().await;
    let locker = locker::<K>(&place).await;
    for _ in 0..2 {
        let acquiring = (0..500).map(|number| {
            let lock = lock(&locker, &format!("job/{number}"));
            async move { lock.acquire().await.expect("a free lock") }
        });
        let leases = futures::future::join_all(acquiring).await;
        let held: Result<BTreeSet<_>, _> = locker.list("job/*").try_collect().await;
        match held {
            Ok(held) => assert_eq!(held.len(), 500),
            Err(error) => {
                assert!(!K::LISTS);
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            }
        }
        let releasing = leases.into_iter().map(leasehold::Lease::release);
        let released = futures::future::join_all(releasing).await;
        assert!(released.iter().all(Result::is_ok));
    }
}

/// Catches a missing script text for a server without the script, at first or later.
pub(crate) async fn a_script_that_was_flushed<K: Kind>() {
    let place = K::place().await;
    let mut admins = admins(&place).await;
    let locker = locker::<K>(&place).await;
    for _ in 0..3 {
        for admin in &mut admins {
            admin.ok(&["SCRIPT", "FLUSH"]).await;
        }
        let lease = lock(&locker, "job").acquire().await.expect("a free lock");
        lease.release().await.expect("a held lock");
    }
}

/// Catches a refusal of the server that is taken for a broken connection, or that loses its text.
pub(crate) async fn refusals_keep_their_text<K: Kind>() {
    let place = K::place().await;
    let mut admins = admins(&place).await;
    let locker = locker::<K>(&place).await;
    for admin in &mut admins {
        // On a cluster all nodes except one refuse this.
        let set = ["SET", "{leasehold:job}", "not a lock"];
        admin.command(&set).await;
    }
    let error = lock(&locker, "job")
        .try_acquire()
        .await
        .expect_err("another type");
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert!(error.to_string().contains("job"), "{error}");

    for admin in &mut admins {
        admin.ok(&["CONFIG", "SET", "maxmemory", "1"]).await;
    }
    let error = lock(&locker, "other")
        .acquire_within(TOLD)
        .await
        .expect_err("no memory");
    assert!(
        error.to_string().contains("OOM"),
        "{:?} {error}",
        error.kind()
    );
}

/// Catches a replica that is taken for a primary.
pub(crate) async fn a_replica_is_refused<K: Kind>() {
    let primary = RedisServer::start().await;
    let replica = RedisServer::config().replica_of(&primary).start().await;
    let error = K::locker(Locker::builder(), &Place::Server(replica))
        .await
        .expect_err("a replica");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("primary"), "{error}");
}

/// Catches pushes that are lost, or that reach the wrong client.
pub(crate) async fn a_waiter_is_notified<K: Kind>() {
    let place = K::place().await;
    let (one, two) = (locker::<K>(&place).await, locker::<K>(&place).await);
    for turn in 0..5 {
        let held = lock(&one, "job").acquire().await.expect("a free lock");
        let waiting = lock(&two, "job");
        let waiting = tokio::spawn(async move { waiting.acquire_within(LIMIT).await });
        stand_in_line(&one, "job").await;
        hear::<K>(&place, 2).await;
        held.release().await.expect("a held lock");
        let watch = Stopwatch::start();
        let lease = waiting.await.expect("no panic").expect("an answer");
        let lease = lease.expect("a free lock");
        let took = watch.elapsed();
        assert!(!K::HEARS || took < TOLD, "turn {turn} took {took:?}");
        lease.release().await.expect("a held lock");
    }
}

/// Catches a holder that learns of a forced release only at its next renewal.
pub(crate) async fn a_holder_is_notified_of_its_loss<K: Kind>() {
    let place = K::place().await;
    let (one, two) = (locker::<K>(&place).await, locker::<K>(&place).await);
    let held = lock(&one, "job").acquire().await.expect("a free lock");
    hear::<K>(&place, 1).await;
    two.force_release("job").await.expect("an answer");
    let watch = Stopwatch::start();
    if K::HEARS {
        assert_eq!(held.lost().await.reason, LossReason::Revoked);
        assert!(watch.elapsed() < TOLD, "it took {:?}", watch.elapsed());
    } else {
        held.renew().await.expect_err("a lost lease");
    }
}

/// Waits until the servers track this many keys.
async fn read(admins: &mut [Admin], keys: u64) {
    eventually(LIMIT, "the key is read", async || {
        let mut tracked = 0;
        for admin in &mut *admins {
            let keys = admin.info("stats", "tracking_total_keys").await;
            tracked += keys.and_then(|keys| keys.parse().ok()).unwrap_or(0);
        }
        tracked == keys
    })
    .await;
}

/// Deletes the lock of `job` on whichever server has it.
async fn delete(admins: &mut [Admin]) {
    let mut deleted = false;
    for admin in admins {
        let reply = admin.command(&["DEL", "{leasehold:job}"]).await;
        deleted |= reply.as_int() == Some(1);
    }
    assert!(deleted);
}

/// Catches a holder that learns only at its next renewal that its lock was deleted, and one that renews a
/// lock that it no longer has.
pub(crate) async fn a_change_is_reported<K: Kind>() {
    let place = K::place().await;
    let mut admins = admins(&place).await;
    let locker = locker::<K>(&place).await;
    let ttl = Duration::from_secs(if K::PAIRS { 30 } else { 3 });
    let held = lock(&locker, "job").ttl(ttl).acquire().await;
    let held = held.expect("a free lock");
    if K::PAIRS {
        read(&mut admins, 1).await;
    }
    delete(&mut admins).await;
    let watch = Stopwatch::start();
    assert_eq!(held.lost().await.reason, LossReason::Deleted);
    let took = watch.elapsed();
    assert!(
        took < if K::PAIRS { TOLD } else { ttl / 2 },
        "it took {took:?}"
    );
    let untracked = |finding: &Finding| matches!(finding, Finding::Untracked { .. });
    let is_found = locker.findings().iter().any(untracked);
    assert!(!K::PAIRS || !is_found, "{:?}", locker.findings());
}

/// Catches a replaced connection that does not track.
pub(crate) async fn changes_are_reported_after_a_reconnect<K: Kind>() {
    let (place, mut admin) = server::<K>().await;
    let locker = locker::<K>(&place).await;
    let holder = lock(&locker, "job").ttl(Duration::from_secs(6));
    let mut events = holder.events();
    let held = holder.acquire().await.expect("a free lock");
    for _ in 0..2 {
        read(std::slice::from_mut(&mut admin), 1).await;
        admin.kill_clients().await;
        // By then there is a new connection.
        let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
        next_event(&mut events, LIMIT, renewed).await;
    }
    read(std::slice::from_mut(&mut admin), 1).await;
    delete(std::slice::from_mut(&mut admin)).await;
    let watch = Stopwatch::start();
    assert_eq!(held.lost().await.reason, LossReason::Deleted);
    assert!(watch.elapsed() < TOLD, "it took {:?}", watch.elapsed());
}

/// Catches holders whose loss was among more pushes than the client has room for. Their next renewal is 8 s
/// away.
pub(crate) async fn a_burst_of_changes_is_reported<K: Kind>() {
    const BURST: u64 = 1_000;
    let (place, mut admin) = server::<K>().await;
    let locker = locker::<K>(&place).await;
    let locks = (0..BURST).map(|number| lock(&locker, &number.to_string()));
    let locks: Vec<_> = locks.collect();
    let leases = try_join_all(locks.iter().map(Lock::acquire)).await;
    let leases = leases.expect("free locks");
    let mut reported = 0;
    // The second burst comes when there is more room.
    let (first, second) = leases.split_at(leases.len() / 2);
    for burst in [first, second] {
        let tracked = BURST - reported;
        read(std::slice::from_mut(&mut admin), tracked).await;
        let keys = burst
            .iter()
            .map(|lease| format!("{{leasehold:{}}}", lease.name()));
        let delete: Vec<_> = once("UNLINK".to_owned()).chain(keys).collect();
        admin.command(&delete).await;
        let lost = join_all(burst.iter().map(Lease::lost));
        let lost = within(TOLD * 4, lost)
            .await
            .expect("every holder hears of it");
        assert!(lost.iter().all(|lost| lost.reason == LossReason::Deleted));
        reported += BURST / 2;
    }
}

/// Catches a lock that counts though no replica has it, and a client that claims a durability that it cannot
/// know.
pub(crate) async fn a_lock_counts_only_with_its_replicas<K: Kind>() {
    let (place, mut admin) = server::<K>().await;
    let locker = locker::<K>(&place).await;
    let wait = Duration::from_millis(300);
    let replicated = || lock(&locker, "job").replicas(1, wait);
    let error = replicated().try_acquire().await.expect_err("no replica");
    if !K::PAIRS {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        return;
    }
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    let fsynced = lock(&locker, "job").fsynced().try_acquire().await;
    let error = fsynced.expect_err("there is no append-only file");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let primary = place.server().expect("the store is a lone server");
    let _replica = RedisServer::config().replica_of(primary).start().await;
    eventually(LIMIT, "the replica is in sync", async || {
        let status = admin.info("replication", "slave0").await;
        status.is_some_and(|status| status.contains("state=online"))
    })
    .await;
    admin.ok(&["SCRIPT", "FLUSH"]).await;
    let mut held = None;
    eventually(LIMIT, "the replica has the lock in time", async || {
        held = replicated().try_acquire().await.ok().flatten();
        held.is_some()
    })
    .await;
    let held = held.expect("a held lock");
    held.renew().await.expect("the replica is up");
    held.release().await.expect("a held lock");
}

/// Catches a lease that ends with its connection, and pushes that stop after a reconnection.
pub(crate) async fn a_connection_that_breaks<K: Kind>() {
    let (place, mut admin) = server::<K>().await;
    let (one, two) = (locker::<K>(&place).await, locker::<K>(&place).await);
    let waiter = lock(&two, "job");
    let holder = lock(&one, "job").ttl(Duration::from_secs(2));
    let mut events = holder.events();
    let held = holder.acquire().await.expect("a free lock");
    for _ in 0..3 {
        admin.kill_clients().await;
        let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
        next_event(&mut events, LIMIT, renewed).await;
    }
    let waiting = tokio::spawn(async move { waiter.acquire_within(LIMIT).await });
    stand_in_line(&one, "job").await;
    hear::<K>(&place, 2).await;
    held.release().await.expect("a held lock");
    let watch = Stopwatch::start();
    let lease = waiting.await.expect("no panic").expect("an answer");
    assert!(lease.is_some());
    assert!(
        !K::HEARS || watch.elapsed() < TOLD,
        "it took {:?}",
        watch.elapsed()
    );
}

/// Catches calls that hang while the server is down, and a server that is not found again.
pub(crate) async fn a_server_that_restarts<K: Kind>() {
    let builder = Locker::builder()
        .command_timeout(Duration::from_millis(500))
        .patience(Duration::from_secs(1));
    let mut place = Place::Server(RedisServer::start().await);
    let locker = K::locker(builder, &place).await.expect("the server is up");
    lock(&locker, "job")
        .acquire()
        .await
        .expect("a free lock")
        .release()
        .await
        .expect("a held lock");
    place.server_mut().kill();
    let watch = Stopwatch::start();
    let error = lock(&locker, "job")
        .acquire()
        .await
        .expect_err("the server is down");
    assert!(error.is_transient(), "{:?} {error}", error.kind());
    assert!(
        watch.elapsed() < Duration::from_secs(3),
        "it took {:?}",
        watch.elapsed()
    );
    place.server_mut().restart().await;
    can_lock_again(&locker).await;
}

/// Catches a reply that is waited for past the call's time, and a lease that outlives its deadline.
pub(crate) async fn a_server_that_is_paused<K: Kind>() {
    let builder = Locker::builder()
        .command_timeout(Duration::from_millis(300))
        .patience(Duration::from_millis(600));
    let mut place = Place::Server(RedisServer::start().await);
    let locker = K::locker(builder, &place).await.expect("the server is up");
    let held = lock(&locker, "held").ttl(Duration::from_secs(1));
    let held = held.acquire().await.expect("a free lock");
    place.server_mut().pause();
    let watch = Stopwatch::start();
    let error = lock(&locker, "job").acquire().await.expect_err("no answer");
    assert!(error.is_transient(), "{:?} {error}", error.kind());
    assert!(
        watch.elapsed() < Duration::from_secs(2),
        "it took {:?}",
        watch.elapsed()
    );
    assert_eq!(held.lost().await.reason, LossReason::Expired);
    assert!(
        watch.elapsed() < Duration::from_millis(1_500),
        "it took {:?}",
        watch.elapsed()
    );
    place.server_mut().resume();
    if K::RECONNECTS {
        can_lock_again(&locker).await;
    }
}

/// Catches connections that stay open after their locker.
pub(crate) async fn nothing_stays_behind<K: Kind>() {
    let place = K::place().await;
    let mut admins = admins(&place).await;
    let before = connections(&mut admins).await;
    let (one, two) = (locker::<K>(&place).await, locker::<K>(&place).await);
    let held = lock(&one, "job").acquire().await.expect("a free lock");
    hear::<K>(&place, 1).await;
    one.shutdown().await;
    drop((one, held));
    let free = lock(&two, "job").try_acquire().await.expect("an answer");
    free.expect("a locker that ends releases its leases")
        .release()
        .await
        .expect("a held lock");
    two.shutdown().await;
    drop(two);
    eventually(LIMIT, "all connections end", async || {
        connections(&mut admins).await == before + 2 * K::LEFT
    })
    .await;
}

async fn connections(admins: &mut [Admin]) -> usize {
    let mut count = 0;
    for admin in admins {
        let clients = admin.string(&["CLIENT", "LIST"]).await.expect("a list");
        count += clients.lines().count();
    }
    count
}

/// Catches a lease that is lost because its slot moves, a line that is forgotten, and tokens that fall.
pub(crate) async fn a_slot_that_moves<K: Kind>() {
    let mut place = K::place().await;
    let (one, two) = (locker::<K>(&place).await, locker::<K>(&place).await);
    let (name, slot) = place.cluster_mut().name_at(0).await;
    let holder = lock(&one, &name).ttl(Duration::from_millis(1_500));
    let held = holder.acquire().await.expect("a free lock");
    let waiter = lock(&two, &name);
    let waiting = tokio::spawn(async move { waiter.acquire_within(LIMIT).await });
    stand_in_line(&one, &name).await;
    hear::<K>(&place, 2).await;
    for round in 0..5 {
        let cluster = place.cluster_mut();
        cluster.move_slot(slot, round % 3, (round + 1) % 3).await;
        held.renew().await.expect("a held lock");
    }
    let token = held.token();
    held.release().await.expect("a held lock");
    let watch = Stopwatch::start();
    let next = waiting.await.expect("no panic").expect("an answer");
    assert!(next.expect("its turn").token() > token);
    assert!(watch.elapsed() < TOLD, "it took {:?}", watch.elapsed());
}

/// Catches a client that stays with a dead master, or that gets no pushes from the new one.
pub(crate) async fn a_master_that_fails<K: Kind>() {
    let mut place = K::place().await;
    let (one, two) = (locker::<K>(&place).await, locker::<K>(&place).await);
    let (name, _) = place.cluster_mut().name_at(0).await;
    let holder = lock(&one, &name).ttl(Duration::from_secs(20));
    let mut events = holder.events();
    let held = holder.acquire().await.expect("a free lock");
    let cluster = place.cluster_mut();
    let mut admin = Admin::connect(&cluster.replicas[0]).await;
    admin.ok(&["READONLY"]).await;
    let key = format!("{{leasehold:{name}}}");
    eventually(LIMIT, "the replica has the lock", async || {
        admin.int(&["EXISTS", &key]).await == 1
    })
    .await;
    cluster.allow_failover().await;
    cluster.masters[0].kill();
    let watch = Stopwatch::start();
    let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
    next_event(&mut events, 2 * LIMIT, renewed).await;
    println!("renewed {:?} after its master was killed", watch.elapsed());
    let (mut token, mut held) = (held.token(), Some(held));
    let waiter = lock(&two, &name);
    eventually(LIMIT, "a push arrives", async || {
        let (waiter, first) = (waiter.clone(), held.take());
        let first = match first {
            Some(held) => held,
            None => holder.acquire().await.expect("a free lock"),
        };
        let waiting = tokio::spawn(async move { waiter.acquire_within(LIMIT).await });
        stand_in_line(&one, &name).await;
        first
            .release()
            .await
            .expect("the lock is held at the new master");
        let watch = Stopwatch::start();
        let next = waiting.await.expect("no panic").expect("an answer");
        let took = watch.elapsed();
        let next = next.expect("its turn");
        assert!(next.token() > token);
        token = next.token();
        next.release().await.expect("a held lock");
        took < TOLD
    })
    .await;
}
