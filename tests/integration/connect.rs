//! Connecting, and what remains of it after the program gives up.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Locker};
use leasehold_tests::{Admin, FakeServer, RedisServer, eventually};
use tokio::runtime::Handle;

use crate::{LIMIT, millis};

/// Waits until the server has only `admin`'s connection and this runtime has no task.
async fn wait_until_nothing_is_left(admin: &mut Admin) {
    let alone = async || admin.info("clients", "connected_clients").await.as_deref() == Some("1");
    eventually(LIMIT, "the connections are closed", alone).await;
    let ended = async || Handle::current().metrics().num_alive_tasks() == 0;
    eventually(LIMIT, "the tasks end", ended).await;
}

/// Catches connections and tasks that live until the process ends when the program gives up connecting.
#[tokio::test]
async fn a_dropped_connect_leaves_nothing_behind() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let mut given_up = 0;
    for turn in 0..150 {
        // From 0 to 6 ms, the shorter times more often.
        let time = Duration::from_micros(turn * turn * 6_000 / (150 * 150));
        let connected = tokio::time::timeout(time, Locker::connect(server.url())).await;
        given_up += u32::from(connected.is_err());
    }
    assert!(given_up > 20, "only {given_up} attempts were dropped");
    wait_until_nothing_is_left(&mut admin).await;
}

/// Catches connections and tasks of a locker that is dropped at once, while it still connects for pushes.
#[tokio::test]
async fn a_locker_dropped_early_leaves_nothing_behind() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for turn in 0..50 {
        let locker = Locker::connect(server.url())
            .await
            .expect("the server is up");
        let lock = locker.lock("x").expect("valid");
        let lease = lock.acquire().await.expect("a free lock");
        lease.release().await.expect("a held lock");
        tokio::time::sleep(Duration::from_micros(turn * 40)).await;
    }
    wait_until_nothing_is_left(&mut admin).await;
}

/// Catches a task that goes on connecting to a server that accepts and never answers.
#[tokio::test]
async fn connecting_to_a_server_that_never_answers_ends_with_the_call() {
    let server = FakeServer::start(|_| String::new()).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let connected = tokio::time::timeout(millis(200), Locker::connect(server.url())).await;
    connected.expect_err("the call waits for a reply");
    let ended = async || tasks() == before;
    eventually(millis(2_000), "the tasks end", ended).await;
}

/// Catches a check of the server that outlasts the timeout, and a request of it with another timeout.
#[tokio::test]
async fn connecting_ends_at_its_timeout() {
    for silent in ["", "EVALSHA"] {
        let server = FakeServer::start(move |command| match &*command[0] {
            command if silent.is_empty() || command == silent => String::new(),
            "PING" => "+PONG\r\n".to_owned(),
            _ => "-NOPERM no\r\n".to_owned(),
        });
        let server = server.await;
        for timeout in [millis(100), millis(700)] {
            let start = Instant::now();
            let connecting = Locker::builder().connect_timeout(timeout);
            let error = connecting.connect(server.url()).await;
            let error = error.expect_err("no reply arrives");
            assert_eq!(error.kind(), ErrorKind::Timeout, "{silent}: {error:?}");
            let took = start.elapsed();
            // The default is at least 3 s.
            assert!(
                took >= timeout && took < millis(2_900),
                "{silent} {timeout:?}: {took:?}"
            );
        }
    }
}

/// Catches a lazy connection that is dropped as too slow and never tried again.
#[tokio::test]
async fn a_short_timeout_still_connects() {
    let server = RedisServer::start().await;
    let settings = || Locker::builder().connect_timeout(millis(500));
    let locker = settings()
        .connect(server.url())
        .await
        .expect("the server is up");
    let held = locker.lock("x").expect("valid").acquire().await;
    let later = settings().connect_lazily(server.url()).expect("valid");
    let busy = later.lock("x").expect("valid").try_acquire().await;
    assert!(busy.expect("the server is up").is_none());
    drop(held);
    // The bounds themselves are valid.
    for timeout in [millis(1), millis(60_000)] {
        let locker = Locker::builder().connect_timeout(timeout).in_memory();
        locker.expect("within bounds");
    }
    for timeout in [Duration::ZERO, millis(60_001)] {
        let error = Locker::builder().connect_timeout(timeout).in_memory();
        let error = error.expect_err("out of bounds");
        assert_eq!(error.option(), Some("connect_timeout"));
    }
}

/// Catches "whether it acted is unknown" in the error of a request that changes nothing.
#[tokio::test]
async fn a_silent_server_is_reported_as_not_answering() {
    for silent in ["PING", "EVALSHA"] {
        let server = FakeServer::start(move |command| match &*command[0] {
            command if command == silent => String::new(),
            "PING" => "+PONG\r\n".to_owned(),
            _ => "-NOPERM no\r\n".to_owned(),
        });
        let server = server.await;
        let error = Locker::connect(server.url()).await;
        let error = error.expect_err("no reply arrives");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{silent}: {error:?}");
        let text = format!("{}: the server did not answer in time", server.url());
        assert_eq!(error.to_string(), text, "{silent}");
    }
}

/// Catches a cause that is dropped: a program may need more than the text.
#[tokio::test]
async fn the_error_of_the_client_is_the_cause() {
    let mut server = RedisServer::start().await;
    server.kill();
    let error = Locker::connect(server.url()).await;
    let error = error.expect_err("no server is up");
    let cause = std::error::Error::source(&error).expect("fred's error");
    let cause = cause.downcast_ref::<fred::error::Error>();
    assert_eq!(
        cause.expect("fred's error").kind(),
        &fred::error::ErrorKind::IO
    );
}
