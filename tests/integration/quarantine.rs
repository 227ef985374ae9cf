//! Servers of a quorum that forget, and new servers.

use std::time::{Duration, Instant};

use futures::future::join_all;
use leasehold::{ErrorKind, LeaseEvent, Locker};
use leasehold_tests::{Admin, RedisServer, Stopwatch, eventually, next_event};

use crate::quorum::{TIMEOUT, held_at, start};
use crate::{LIMIT, millis};

const TTL: Duration = Duration::from_secs(4);
const LONGEST: Duration = Duration::from_secs(5);

/// A way in which a server forgets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Loss {
    Flushed,
    Restarted,
    /// Its clock is two minutes behind when it starts, and is set later, as NTP does.
    ClockSetAfterStart,
}

async fn locker(servers: &[RedisServer]) -> Locker {
    let builder = Locker::builder()
        .command_timeout(TIMEOUT)
        .patience(millis(1_500))
        .longest_ttl(LONGEST);
    let locker = builder.quorum(servers.iter().map(RedisServer::url)).await;
    locker.expect("a majority is up")
}

/// Catches a second holder, by the vote of a server that no longer knows the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_does_not_vote_until_every_forgotten_lease_is_over() {
    for loss in [Loss::Flushed, Loss::Restarted, Loss::ClockSetAfterStart] {
        let mut servers = start(3).await;
        if loss == Loss::ClockSetAfterStart {
            servers[1] = RedisServer::config().clock_off(0).start().await;
        }
        let (one, other) = (locker(&servers).await, locker(&servers).await);
        // The last locker asks no server before its first lock.
        let later = locker(&servers).await;
        let lock = |locker: &Locker| locker.lock("x").expect("valid").ttl(TTL);
        // Lockers know that no server has forgotten anything.
        for locker in [&one, &other] {
            let lease = lock(locker).acquire().await.expect("all are up");
            lease.release().await.expect("all are up");
        }
        let mut events = other.events();
        servers[2].pause();
        // A fixed lease is not renewed, so the third server does not get it later.
        let lease = lock(&one).fixed().acquire().await.expect("two are up");
        // From now on only the first server knows the holder, and no client can reach it.
        servers[0].pause();
        let forgot = Instant::now();
        let is_out =
            |event: &LeaseEvent| matches!(event, LeaseEvent::Quarantined { server: 2, .. });
        match loss {
            Loss::Flushed => Admin::connect(&servers[1]).await.flushall().await,
            Loss::Restarted => servers[1].restart().await,
            Loss::ClockSetAfterStart => {
                servers[1].set_clock_off(-120);
                servers[1].restart().await;
            }
        }
        servers[2].resume();
        if loss == Loss::ClockSetAfterStart {
            // The server has begun its incarnation by the clock that is behind.
            next_event(&mut events, LIMIT, is_out).await;
            servers[1].set_clock_off(0);
            // This locker sees only the age that the server now reports for itself.
            let answer = lock(&later).try_acquire().await;
            let got = answer.is_ok_and(|lease| lease.is_some());
            assert!(!got || !lease.is_valid(), "two hold it: {loss:?}");
        }
        let tries = Stopwatch::start();
        while tries.elapsed() < TTL / 2 {
            let answer = lock(&other).try_acquire().await;
            let got = answer.is_ok_and(|lease| lease.is_some());
            let is_early = forgot.elapsed() < LONGEST || lease.is_valid();
            assert!(!got || !is_early, "two hold it: {loss:?}");
        }
        if loss != Loss::ClockSetAfterStart {
            next_event(&mut events, LIMIT, is_out).await;
        }
        servers[0].resume();
        drop(lease);
        // The others go on.
        let lease = lock(&other).acquire().await.expect("two are up");
        let votes = |event: &LeaseEvent| matches!(event, LeaseEvent::Readmitted { server: 2 });
        next_event(&mut events, LIMIT, votes).await;
        assert!(forgot.elapsed() >= LONGEST, "{:?}", forgot.elapsed());
        let everywhere = async || held_at(&servers).await == 3;
        eventually(LIMIT, "all servers have the lock", everywhere).await;
        lease.release().await.expect("all are up");
    }
}

/// Catches a rolling restart by the documented rule that ends held leases, also while others try to get the
/// locks all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_restart_one_at_a_time_end_no_lease() {
    let mut servers = start(3).await;
    let locker = locker(&servers).await;
    let mut events = locker.events();
    let locks = (0..50).map(|number| locker.lock(format!("lock {number}")).expect("valid"));
    let locks: Vec<_> = locks.map(|lock| lock.ttl(TTL)).collect();
    let leases = join_all(locks.iter().map(leasehold::Lock::acquire)).await;
    let leases: Vec<_> = leases
        .into_iter()
        .map(|lease| lease.expect("all are up"))
        .collect();
    let other = self::locker(&servers).await;
    let others = (0..leases.len()).map(|number| other.lock(format!("lock {number}")));
    let others: Vec<_> = others.map(|lock| lock.expect("valid").ttl(TTL)).collect();
    let tries = tokio::spawn(async move {
        loop {
            join_all(others.iter().map(leasehold::Lock::try_acquire)).await;
            tokio::time::sleep(TTL / 100).await;
        }
    });
    for (number, says) in [(0, 1), (1, 2), (2, 3), (0, 1)] {
        servers[number].restart().await;
        let is_back = |event: &LeaseEvent| {
            assert!(!matches!(event, LeaseEvent::Lost { .. }), "{event:?}");
            matches!(event, LeaseEvent::Readmitted { server } if *server == says)
        };
        next_event(&mut events, LIMIT, is_back).await;
    }
    tries.abort();
    assert!(leases.iter().all(leasehold::Lease::is_valid));
    for lease in leases {
        lease.release().await.expect("all are up");
    }
}

/// Catches lockers whose leases live longer than the quarantine of a server that forgot them, and an error
/// without the right advice.
#[tokio::test]
async fn a_locker_with_another_longest_ttl_is_refused_until_the_old_one_is_deleted() {
    let servers = start(3).await;
    let first = locker(&servers).await;
    let lock = first.lock("x").expect("valid").ttl(TTL);
    let lease = lock.acquire().await.expect("all are up");
    lease.release().await.expect("all are up");
    let other = Locker::builder()
        .command_timeout(TIMEOUT)
        .longest_ttl(TTL)
        .quorum(servers.iter().map(RedisServer::url));
    let other = other.await.expect("all are up");
    let lock = other.lock("x").expect("valid").ttl(TTL);
    for wait in [true, false] {
        let error = if wait {
            lock.acquire().await.expect_err("the call is refused")
        } else {
            lock.try_acquire().await.expect_err("the call is refused")
        };
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert_eq!(error.option(), Some("longest_ttl"), "{error}");
        let text = error.to_string();
        let says = ["4s", "5s", "{leasehold:}"];
        assert!(says.iter().all(|said| text.contains(said)), "{text}");
    }
    first.shutdown().await;
    tokio::time::sleep(LONGEST).await;
    for server in &servers {
        let mut admin = Admin::connect(server).await;
        admin.int(&["DEL", "{leasehold:}"]).await;
    }
    // The locker checks again by itself.
    let is_taken = async || lock.try_acquire().await.is_ok_and(|lease| lease.is_some());
    eventually(LIMIT, "the locker is accepted", is_taken).await;
}

/// Catches a new quorum, or a new server, that has to wait before its first vote.
#[tokio::test]
async fn new_servers_vote_at_once() {
    let mut servers = start(5).await;
    servers[1].kill();
    servers[3].kill();
    let locker = locker(&servers).await;
    let mut events = locker.events();
    let lock = locker.lock("x").expect("valid").ttl(TTL);
    let watch = Stopwatch::start();
    let lease = lock.acquire().await.expect("three are up");
    assert!(watch.elapsed() < LONGEST / 2, "{:?}", watch.elapsed());
    servers[1].restart().await;
    servers[3].restart().await;
    let everywhere = async || held_at(&servers).await == 5;
    eventually(LIMIT, "all servers have the lock", everywhere).await;
    assert!(watch.elapsed() < LONGEST, "{:?}", watch.elapsed());
    lease.release().await.expect("all are up");
    let unwanted = |event: &LeaseEvent| {
        assert!(
            !matches!(event, LeaseEvent::Quarantined { .. }),
            "{event:?}"
        );
        matches!(event, LeaseEvent::Released { .. })
    };
    next_event(&mut events, LIMIT, unwanted).await;
}
