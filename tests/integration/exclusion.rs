//! Exclusion, and the release of locks.

use leasehold_tests::{Child, RedisServer, Stopwatch, eventually};
use std::path::Path;

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
