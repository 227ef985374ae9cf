//! Lost connections: calls wait for the next one as long as their time allows.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LeaseEvent, Locker};
use leasehold_tests::{Admin, Direction, Mode, Proxy, RedisServer, eventually, next_event, within};

use crate::{LIMIT, connect, connect_with, held, millis};

/// Closes all connections except `admin`'s, as a server does with idle ones.
async fn close_all(admin: &mut Admin) {
    admin.command(&["CLIENT", "KILL", "SKIPME", "yes"]).await;
}

/// Catches calls that fail because the server has closed an idle connection, though nothing was sent yet or
/// another attempt would succeed.
#[tokio::test]
async fn a_call_on_a_closed_connection_waits_for_the_next_one() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    for turn in 0..60 {
        let lock = locker.lock(format!("x{turn}")).expect("valid");
        close_all(&mut admin).await;
        tokio::time::sleep(Duration::from_micros(turn * 1_000)).await;
        let lease = lock.try_acquire().await;
        let lease = lease.unwrap_or_else(|error| panic!("in turn {turn}: {error}"));
        drop(lease.expect("a free lock"));
    }
}

#[tokio::test]
async fn a_manual_renewal_on_a_closed_connection_waits_for_the_next_one() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let lock = locker.lock("x").expect("valid").fixed();
    let lease = lock.acquire().await.expect("a free lock");
    // The events of this lease tell the test that the closed connection was noticed.
    let other = locker.lock("y").expect("valid");
    let mut events = other.events();
    let _other = other.acquire().await.expect("a free lock");
    for turn in 0..10 {
        close_all(&mut admin).await;
        let at_risk = |event: &LeaseEvent| matches!(event, LeaseEvent::AtRisk { .. });
        next_event(&mut events, LIMIT, at_risk).await;
        let renewed = lease.renew().await;
        renewed.unwrap_or_else(|error| panic!("in turn {turn}: {error}"));
        let renewed = |event: &LeaseEvent| matches!(event, LeaseEvent::Renewed { .. });
        next_event(&mut events, LIMIT, renewed).await;
    }
}

/// Catches a password that is refused during a reconnection and then fails every call at once, even after it
/// is valid again.
#[tokio::test]
async fn calls_wait_while_a_reconnection_is_refused_its_password() {
    let server = RedisServer::config().password("s3cret").start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect_with(Locker::builder(), &server.url()).await;
    let lock = locker.lock("x").expect("valid");
    admin.ok(&["CONFIG", "SET", "requirepass", "other"]).await;
    close_all(&mut admin).await;
    let begin = Instant::now();
    let refused = async || {
        let error = lock.acquire_within(millis(100)).await.err()?;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        error.to_string().contains("(WRONGPASS)").then_some(())
    };
    eventually(LIMIT, "the reason", refused).await;
    assert!(
        begin.elapsed() >= millis(100),
        "a call waits for its whole time"
    );
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire_within(LIMIT).await }
    });
    tokio::time::sleep(millis(500)).await;
    assert!(!waiting.is_finished(), "the call waits");
    admin.ok(&["CONFIG", "SET", "requirepass", "s3cret"]).await;
    let lease = waiting.await.expect("no panic").expect("an answer");
    assert!(lease.is_some(), "the password is valid again");
}

/// Catches an "unknown" outcome in the error of an operation that was never sent.
#[tokio::test]
async fn a_stopped_server_is_unavailable_for_every_call() {
    let mut server = RedisServer::start().await;
    let builder = Locker::builder()
        .command_timeout(millis(300))
        .patience(millis(600));
    let locker = connect_with(builder, &server.url()).await;
    server.kill();
    let lock = locker.lock("x").expect("valid");
    let gone = async || {
        let error = lock.try_acquire().await.expect_err("no server is up");
        error.to_string().contains("Connection refused")
    };
    eventually(LIMIT, "the client notices", gone).await;
    let errors = [
        lock.try_acquire().await.err(),
        lock.acquire_within(millis(200)).await.err(),
        lock.acquire().await.err(),
        locker.inspect("x").await.err(),
        locker.force_release("x").await.err(),
    ];
    for error in errors {
        let error = error.expect("no server is up");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.to_string().contains("Connection refused"), "{error}");
    }
}

/// Catches a connection that is kept without replies for as long as TCP takes to notice.
#[tokio::test]
async fn a_half_open_connection_is_replaced() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let builder = Locker::builder().command_timeout(millis(200));
    let locker = connect_with(builder, &proxy.url()).await;
    let (links, sent) = (proxy.connections(), proxy.bytes(Direction::Up));
    proxy.set_both(Mode::BlackHole);
    let inspection = tokio::spawn(async move { locker.inspect("x").await });
    let is_lost = async || proxy.bytes(Direction::Up) > sent;
    eventually(LIMIT, "the request is lost", is_lost).await;
    // A direction that lost bytes stays half-open: the answer comes over another connection.
    proxy.set_both(Mode::Pass);
    let inspection = within(LIMIT, inspection).await.expect("the call ends");
    let inspection = inspection.expect("no panic").expect("an answer");
    assert!(inspection.holder.is_none());
    assert!(proxy.connections() > links, "there is another connection");
}

/// Catches a subscription that is kept although nothing arrives on its connection: without its own echo, a locker
/// cannot tell that from a quiet store.
#[tokio::test]
async fn a_subscription_that_hears_nothing_is_replaced() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let locker = connect_with(Locker::builder(), &proxy.url()).await;
    // The first lock has the locker subscribe.
    let lease = held(&locker, "x").await;
    let hears = async || admin.hearing_lockers().await == 1;
    eventually(LIMIT, "the locker has subscribed", hears).await;
    let links = proxy.connections();
    proxy.only(links - 1);
    proxy.set(Direction::Down, Mode::BlackHole);
    // It is checked every 10 s.
    let is_replaced = async || proxy.connections() > links;
    eventually(LIMIT * 2, "another subscription", is_replaced).await;
    assert!(lease.is_valid());
}

/// Catches a connection that is kept because it answers, though its name leads to another server by now.
#[tokio::test]
async fn a_connection_to_a_demoted_server_is_replaced() {
    let (primary, server) = (RedisServer::start().await, RedisServer::start().await);
    let proxy = Proxy::start(server.port()).await;
    let locker = connect_with(Locker::builder(), &proxy.url()).await;
    let mut admin = Admin::connect(&server).await;
    let port = primary.port().to_string();
    admin.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    let replica = async || admin.info("replication", "role").await.as_deref() == Some("slave");
    eventually(LIMIT, "the server is a replica", replica).await;
    let links = proxy.connections();
    let error = locker.lock("x").expect("valid").try_acquire().await;
    assert_eq!(error.expect_err("read-only").kind(), ErrorKind::ReadOnly);
    let is_replaced = async || proxy.connections() > links;
    eventually(LIMIT, "another link", is_replaced).await;
}
