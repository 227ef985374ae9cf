//! Connecting, and what is left of it if it is given up.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Locker};
use leasehold_tests::{Admin, FakeServer, RedisServer, eventually};
use tokio::runtime::Handle;

use crate::{LIMIT, millis};

/// Waits until neither the server has a connection but that of `admin`, nor this runtime a task.
async fn nothing_is_left(admin: &mut Admin) {
    let alone = async || admin.info("clients", "connected_clients").await.as_deref() == Some("1");
    eventually(LIMIT, "the connections to be closed", alone).await;
    let ended = async || Handle::current().metrics().num_alive_tasks() == 0;
    eventually(LIMIT, "the tasks to end", ended).await;
}

/// Catches connections and tasks that live on until the process ends when the program gives up
/// connecting: nothing else would end them.
#[tokio::test]
async fn connecting_that_is_given_up_leaves_nothing_behind() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let mut given_up = 0;
    for turn in 0..150 {
        // From 0 to 6 ms, the shorter ones more often.
        let time = Duration::from_micros(turn * turn * 6_000 / (150 * 150));
        let connected = tokio::time::timeout(time, Locker::connect(server.url())).await;
        given_up += u32::from(connected.is_err());
    }
    assert!(given_up > 20, "only {given_up} were given up");
    nothing_is_left(&mut admin).await;
}

/// The same for a locker that is dropped as soon as it was made, while it connects for pushes.
#[tokio::test]
async fn a_locker_that_is_dropped_early_leaves_nothing_behind() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for turn in 0..50 {
        let locker = Locker::connect(server.url()).await.expect("it is there");
        let lock = locker.lock("x").expect("valid");
        let lease = lock.acquire().await.expect("it is free");
        lease.release().await.expect("it is held");
        tokio::time::sleep(Duration::from_micros(turn * 40)).await;
    }
    nothing_is_left(&mut admin).await;
}

/// Catches a task that goes on connecting to a server which accepts and never answers.
#[tokio::test]
async fn connecting_to_a_server_that_never_answers_ends_with_the_call() {
    let server = FakeServer::start(|_| String::new()).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let connected = tokio::time::timeout(millis(200), Locker::connect(server.url())).await;
    connected.expect_err("it waits for an answer");
    let ended = async || tasks() == before;
    eventually(millis(2_000), "the tasks to end", ended).await;
}

/// Catches a look at the server that goes on past the time-out, and a time-out of one of the requests that is
/// another one.
#[tokio::test]
async fn connecting_ends_with_its_time_out() {
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
            let error = error.expect_err("there is no answer");
            assert_eq!(error.kind(), ErrorKind::Timeout, "{silent}: {error:?}");
            let took = start.elapsed();
            // By default it is at least 3 s.
            assert!(
                took >= timeout && took < millis(2_900),
                "{silent} {timeout:?}: {took:?}"
            );
        }
    }
}

/// Catches a connection that is given up as slow while it is lazily made, and never tried again.
#[tokio::test]
async fn a_short_time_out_connects_all_the_same() {
    let server = RedisServer::start().await;
    let settings = || Locker::builder().connect_timeout(millis(500));
    let locker = settings().connect(server.url()).await.expect("it is there");
    let held = locker.lock("x").expect("valid").acquire().await;
    let later = settings().connect_lazily(server.url()).expect("valid");
    let busy = later.lock("x").expect("valid").try_acquire().await;
    assert!(busy.expect("it is there").is_none());
    drop(held);
    // The bounds themselves are good.
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

/// Catches "whether it acted is unknown" in the error of a request that does not act.
#[tokio::test]
async fn a_server_that_falls_silent_did_not_answer() {
    for silent in ["PING", "EVALSHA"] {
        let server = FakeServer::start(move |command| match &*command[0] {
            command if command == silent => String::new(),
            "PING" => "+PONG\r\n".to_owned(),
            _ => "-NOPERM no\r\n".to_owned(),
        });
        let server = server.await;
        let error = Locker::connect(server.url()).await;
        let error = error.expect_err("there is no answer");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{silent}: {error:?}");
        let text = format!("{}: the server did not answer in time", server.url());
        assert_eq!(error.to_string(), text, "{silent}");
    }
}

/// Catches a cause that is dropped: a program may want more than the words.
#[tokio::test]
async fn the_client_s_own_error_is_the_cause() {
    let mut server = RedisServer::start().await;
    server.kill();
    let error = Locker::connect(server.url()).await;
    let error = error.expect_err("nobody is there");
    let cause = std::error::Error::source(&error).expect("fred's error");
    let cause = cause.downcast_ref::<fred::error::Error>();
    assert_eq!(
        cause.expect("fred's error").kind(),
        &fred::error::ErrorKind::IO
    );
}
