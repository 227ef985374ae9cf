//! Servers of a quorum that forget, and new servers.

use std::time::{Duration, Instant};

use leasehold::{LeaseEvent, Locker};
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
