//! Exclusion, and the release of locks.

use leasehold::LeaseEvent;
use leasehold_tests::{Child, RedisServer, Stopwatch, eventually, within};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_stream::StreamExt;

use crate::{LIMIT, connect, millis};

fn holder() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_holder"))
}

/// Starts three processes that visit one critical section, each this many times.
fn visitors(server: &RedisServer, rounds: u32, how: &str) -> Vec<Child> {
    let file = server.folder().join("inside");
    let (url, file, rounds) = (server.url(), file.to_string_lossy(), rounds.to_string());
    let args = ["visit", &url, "room", &file, &rounds, how];
    (0..3).map(|_| Child::spawn(holder(), args)).collect()
}

#[tokio::test]
async fn processes_exclude_each_other() {
    let server = RedisServer::start().await;
    for mut child in visitors(&server, 60, "lock") {
        assert_eq!(child.wait_line("", LIMIT * 3).await, "done");
    }
}

/// The negative control: without the lock the same processes overlap.
#[tokio::test]
async fn processes_without_the_lock_meet() {
    let server = RedisServer::start().await;
    // They go on until they overlap, however late one of them begins.
    let mut children = visitors(&server, 1_000_000, "bare");
    let met = async || {
        let mut lines = children.iter_mut().flat_map(Child::unread_lines);
        lines.any(|line| line == "overlap")
    };
    eventually(LIMIT * 3, "two processes overlap", met).await;
}

/// Catches a handle that lets all its clones in at once. The test is what a user of tokio's mutex would
/// write.
#[tokio::test]
async fn a_handle_shared_among_tasks_admits_one_at_a_time() {
    let server = RedisServer::start().await;
    let lock = connect(&server).await.lock("x").expect("a valid name");
    let inside = Arc::new(AtomicU32::new(0));
    let tasks = (0..20).map(|_| {
        let (lock, inside) = (lock.clone(), inside.clone());
        tokio::spawn(async move {
            let lease = lock.acquire().await.expect("its turn");
            assert_eq!(
                inside.fetch_add(1, Ordering::SeqCst),
                0,
                "another task is inside"
            );
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            lease.release().await.expect("a held lock");
        })
    });
    let done = within(LIMIT, futures::future::try_join_all(tasks)).await;
    done.expect("every task had its turn")
        .expect("no task panics");
}

#[tokio::test]
async fn a_killed_process_frees_its_lock_by_the_time_to_live() {
    let server = RedisServer::start().await;
    let url = server.url();
    // Long enough to survive if the machine stands still for two seconds before the kill.
    let ttl = millis(3_000);
    let mut child = Child::spawn(holder(), ["hold", &url, "x", "3000"]);
    let token = child.wait_line("held ", LIMIT).await;
    let locker = connect(&server).await;
    let lock = locker.lock("x").expect("a valid name");
    assert!(
        lock.try_acquire()
            .await
            .expect("the server answers")
            .is_none()
    );

    child.kill9();
    let killed = Stopwatch::start();
    let lease = lock
        .acquire_within(LIMIT)
        .await
        .expect("the server answers");
    let lease = lease.expect("the lease expires");
    let took = killed.elapsed();
    assert!(took < ttl + millis(1_000), "it took {took:?}");
    let former = token
        .trim_start_matches("held ")
        .parse()
        .expect("the process printed a token");
    assert!(lease.token() > former);
}

#[tokio::test]
async fn renewals_keep_a_lock_for_three_times_its_life() {
    let server = RedisServer::start().await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    // Long enough to survive if the machine stands still for two seconds.
    let ttl = millis(3_000);
    let lock = one.lock("x").expect("a valid name").ttl(ttl);
    let events = lock.events();
    let lease = lock.acquire().await.expect("a free lock");
    let rival = other.lock("x").expect("a valid name");
    let begin = std::time::Instant::now();
    while begin.elapsed() < ttl * 3 {
        assert!(
            rival
                .try_acquire()
                .await
                .expect("the server answers")
                .is_none()
        );
        assert!(lease.is_valid());
        tokio::time::sleep(millis(20)).await;
    }
    let token = lease.token();
    lease.release().await.expect("a held lock");
    drop(lock);
    let told: Vec<_> = events.collect().await;
    assert!(
        told.iter().all(|event| event.token() == Some(token)),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|event| matches!(event, LeaseEvent::Renewed { .. })),
        "{told:?}"
    );
    assert!(
        matches!(told.last(), Some(LeaseEvent::Released { .. })),
        "{told:?}"
    );
}

/// The negative control of the test above: without renewals the same lease ends after its time to live.
#[tokio::test]
async fn a_fixed_lease_is_only_renewed_manually() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    // Long enough to survive if the machine stands still for two seconds.
    let ttl = millis(3_000);
    let lock = locker.lock("x").expect("a valid name").ttl(ttl).fixed();
    let lease = lock.acquire().await.expect("a free lock");
    tokio::time::sleep(millis(500)).await;
    let begin = Stopwatch::start();
    lease.renew().await.expect("a held lock");
    let remaining = lease.remaining();
    let since = begin.elapsed() + begin.stalled();
    let all = remaining + since + millis(200);
    assert!(all > ttl, "{remaining:?} remain after {since:?}");
    let lost = within(LIMIT, lease.lost()).await;
    assert_eq!(
        lost.map(|lost| lost.reason),
        Some(leasehold::LossReason::Expired)
    );
    let took = begin.elapsed();
    assert!(took < ttl, "it was lost after {took:?}");
    assert!(lease.renew().await.expect_err("a lost lease").is_not_held());
}
