//! Leases that are passed on between processes and languages, while their sender goes on.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fred::interfaces::ClientLike;
use fred::types::{Builder, config::Config};
use leasehold::fence::redis::FencedRedis;
use leasehold::{ErrorKind, FencingToken, Lease, Ticket};
use leasehold_tests::{Child, RedisServer};

use crate::{LIMIT, SLACK, connect, held, lock, millis, served, waiting};

async fn guard(server: &RedisServer) -> FencedRedis {
    let config = Config::from_url(&server.url()).expect("a valid URL");
    let client = Builder::from_config(config)
        .build()
        .expect("valid settings");
    client.init().await.expect("the server is up");
    FencedRedis::new(client)
}

/// Writes with a token. Returns false if the guard refuses it.
async fn writes(guard: &FencedRedis, token: FencingToken) -> bool {
    let written = guard
        .resource("resource", token)
        .expect("a short name is valid");
    match written.push("log", format!("rust {token}")).await {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::StaleToken => false,
        Err(error) => panic!("{error}"),
    }
}

async fn pass(lease: Lease) -> Ticket {
    lease.pass().await.expect("it is held")
}

/// Starts `passer.mjs`. Returns `None` without the npm package.
async fn passer(locks: &RedisServer, guard: &RedisServer) -> Option<Child> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !tests.join("../bindings/node/dist/index.js").exists() {
        println!("the npm package is not built: no lease is passed to JavaScript");
        return None;
    }
    let urls = [locks.url(), guard.url()].map(PathBuf::from);
    let args = [tests.join("handoff/passer.mjs")].into_iter().chain(urls);
    let mut child = Child::spawn(Path::new("node"), args);
    child.wait_line("ready", LIMIT).await;
    Some(child)
}

/// Tells the process a line, and returns the rest of its answer, which must begin with this word.
async fn tell(child: &mut Child, line: &str, word: &str) -> String {
    child.write_line(line);
    let answer = child.wait_line(word, LIMIT).await;
    answer.trim_start_matches(word).trim().to_owned()
}

/// Catches a ticket that only its own language reads, a token that does not grow, a sender whose writes still pass, and
/// a sender's late requests that end the new lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_goes_from_rust_to_javascript_and_back() {
    let (server, guarded) = (RedisServer::start().await, RedisServer::start().await);
    let Some(mut node) = passer(&server, &guarded).await else {
        return;
    };
    let (locker, guard) = (connect(&server).await, guard(&guarded).await);
    let lease = held(&lock(&locker, "import", "rust").ttl(millis(3_000))).await;
    let first = lease.token();
    assert!(writes(&guard, first).await);
    let waiter = waiting(&lock(&connect(&server).await, "import", "waiter"));

    let ticket = pass(lease).await;
    let second = tell(&mut node, &format!("accept {ticket}"), "held").await;
    let second: FencingToken = second.parse().expect("a token");
    assert!(second > first);
    assert!(!writes(&guard, first).await, "the sender is fenced off");
    let again = tell(&mut node, &format!("accept {ticket}"), "refused").await;
    assert_eq!(again, "notHeld");
    // It is renewed there, and the sender's locker, which goes on, does not end it.
    tokio::time::sleep(millis(4_000)).await;
    assert_eq!(tell(&mut node, "write", "written").await, "");

    let back: Ticket = tell(&mut node, "pass", "ticket")
        .await
        .parse()
        .expect("a ticket");
    assert_eq!((back.token(), back.name().as_str()), (second, "import"));
    let lease = locker.accept(&back).await.expect("nobody accepted it");
    assert!(lease.token() > second && writes(&guard, lease.token()).await);
    assert_eq!(tell(&mut node, "write", "stale").await, "");
    assert!(!waiter.is_finished(), "a waiter overtook the ticket");
    let third = lease.token();
    lease.release().await.expect("it is held");
    assert!(served(waiter, LIMIT).await.token() > third);
}

/// Catches a ticket that outlives its lease, or one that ends with its sender.
#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_outlives_its_sender_and_ends_with_its_lease() {
    let server = RedisServer::start().await;
    let (sender, other) = (connect(&server).await, connect(&server).await);
    let ttl = millis(2_000);
    let ticket = pass(held(&lock(&sender, "x", "one").ttl(ttl)).await).await;
    sender.shutdown().await;
    let lease = other.accept(&ticket).await.expect("the lock is still held");
    let (began, ticket) = (Instant::now(), pass(lease).await);
    let waiter = waiting(&lock(&connect(&server).await, "x", "next"));
    let next = served(waiter, ttl + SLACK).await;
    assert!(began.elapsed() + millis(100) > ttl, "{:?}", began.elapsed());
    let error = other.accept(&ticket).await.expect_err("it expired");
    assert_eq!(error.kind(), ErrorKind::NotHeld);
    drop(next);
}

/// Catches a ticket that another server or namespace takes for its own.
#[tokio::test]
async fn a_ticket_is_for_one_server_and_one_namespace() {
    let (server, elsewhere) = (RedisServer::start().await, RedisServer::start().await);
    let (sender, stranger) = (connect(&server).await, connect(&elsewhere).await);
    let taken = held(&lock(&stranger, "x", "stranger")).await;
    let ticket = pass(held(&lock(&sender, "x", "one")).await).await;
    let error = stranger.accept(&ticket).await.expect_err("another server");
    assert_eq!(error.kind(), ErrorKind::NotHeld);
    assert!(taken.is_valid());
    let shop = leasehold::Locker::builder()
        .namespace("shop")
        .connect(server.url())
        .await;
    let shop = shop.expect("the server is up");
    let error = shop.accept(&ticket).await.expect_err("another namespace");
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(
        text.contains("leasehold") && text.contains("shop"),
        "{text}"
    );
    let secret = ticket.to_string();
    let secret = secret
        .rsplit(':')
        .next()
        .expect("it ends with the lease's ID");
    assert!(!text.contains(secret) && !format!("{error:?} {ticket:?}").contains(secret));
    // None of that used the ticket up.
    assert!(sender.accept(&ticket).await.is_ok());
}
