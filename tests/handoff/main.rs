//! The line on real servers: who gets the lock next, how soon, and at what cost (I7).
//!
//! `cargo test -p leasehold-tests --test handoff -- --nocapture` prints the figures.

mod cancel;
mod dead;
mod manage;
mod order;
mod processes;
mod pushes;
mod script_calls;
mod told;
mod traces;

use std::time::Duration;

use leasehold::{Lease, Lock, Locker};
use leasehold_tests::{Admin, RedisServer, eventually, within};
use tokio::task::JoinHandle;

/// Long enough for anything that is to happen soon; a test that waits for it in vain fails after this.
const LIMIT: Duration = Duration::from_secs(10);
/// By how much a busy machine may exceed a time that is promised.
const SLACK: Duration = Duration::from_secs(2);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn connect(server: &RedisServer) -> Locker {
    connect_url(&server.url()).await
}

async fn connect_url(url: &str) -> Locker {
    Locker::connect(url)
        .await
        .expect("the server can be reached")
}

fn lock(locker: &Locker, name: &str, label: &str) -> Lock {
    locker.lock(name).expect("a valid name").owner(label)
}

/// Takes a lock that is free.
async fn held(lock: &Lock) -> Lease {
    let lease = lock.try_acquire().await.expect("an answer");
    lease.expect("it is free")
}

/// Waits in line in a task of its own.
fn waiting(lock: &Lock) -> JoinHandle<Lease> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await.expect("its turn comes") })
}

/// The lease of one whose turn comes within this time.
async fn served(waiter: JoinHandle<Lease>, limit: Duration) -> Lease {
    let lease = within(limit, waiter).await;
    lease.expect("it is served in time").expect("no panic")
}

/// The key of a lock in the default namespace.
fn lock_key(name: &str) -> String {
    format!("{{leasehold:{name}}}")
}

/// The key of those who wait for it.
fn line_key(name: &str) -> String {
    format!("{{leasehold:{name}}}:line")
}

/// Where these parts of a claim begin: three times and the lease are before the client, and the kind
/// behind it.
const CLAIM_CLIENT: usize = 11 + 5 + 11 + 32;
const CLAIM_KIND: usize = CLAIM_CLIENT + 16;

/// The labels of those who wait, in order, as the server has them.
async fn line(admin: &mut Admin, name: &str) -> Vec<String> {
    let claims = claims(admin, name).await;
    let label = |claim: String| claim.get(CLAIM_KIND + 1..).map(str::to_owned);
    claims.into_iter().filter_map(label).collect()
}

/// The claims of those who wait, in order.
async fn claims(admin: &mut Admin, name: &str) -> Vec<String> {
    // The arrivals, which are greater than the times until which claims count as alive.
    let arrivals = ["ZRANGEBYSCORE", &line_key(name), "1e15", "+inf"];
    let leasehold_tests::Resp::Array(claims) = admin.command(&arrivals).await else {
        panic!("ZRANGEBYSCORE answers with an array");
    };
    let claims = claims.iter().filter_map(leasehold_tests::Resp::as_string);
    claims.collect()
}

/// Waits until this many are in line.
async fn in_line(admin: &mut Admin, name: &str, count: usize) {
    let line = line_key(name);
    let what = format!("{count} to be in line");
    let count = i64::try_from(count).expect("not that many");
    let are_in_line = async || admin.int(&["ZCOUNT", &line, "1e15", "+inf"]).await == count;
    eventually(LIMIT * 3, &what, are_in_line).await;
}

/// Waits until this many lockers have subscribed, and have checked that they are.
async fn subscribed(admin: &mut Admin, count: usize) {
    let are_subscribed = async || admin.hearing_lockers().await == count;
    eventually(LIMIT, "all lockers to be subscribed", are_subscribed).await;
}
