//! The line on real servers: who gets the lock next, how soon, and at what cost (I7).
//!
//! `cargo test -p leasehold-tests --test handoff -- --nocapture` prints the figures.

mod bursts;
mod cancel;
mod dead;
mod jobs;
mod list;
mod order;
mod passed;
mod processes;
mod pushes;
mod script_calls;
mod told;
mod traces;

use std::time::Duration;

use leasehold::{Lease, Lock, Locker};
use leasehold_tests::{Admin, RedisServer, eventually, within};
use tokio::task::JoinHandle;

/// The longest wait for anything that should happen soon; a test that waits in vain fails after this.
const LIMIT: Duration = Duration::from_secs(10);
/// How far a busy machine may exceed a promised time.
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

/// Takes a free lock.
async fn held(lock: &Lock) -> Lease {
    let lease = lock.try_acquire().await.expect("an answer");
    lease.expect("a free lock")
}

/// Waits in line in a task of its own.
fn waiting(lock: &Lock) -> JoinHandle<Lease> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await.expect("its turn") })
}

/// Returns the lease of a waiter that gets its turn within this time.
async fn served(waiter: JoinHandle<Lease>, limit: Duration) -> Lease {
    let lease = within(limit, waiter).await;
    lease
        .expect("the waiter is served in time")
        .expect("no panic")
}

/// Returns the key of a lock in the default namespace.
fn lock_key(name: &str) -> String {
    format!("{{leasehold:{name}}}")
}

/// Returns the key of a lock's line.
fn line_key(name: &str) -> String {
    format!("{{leasehold:{name}}}:line")
}

/// The offsets of these parts of a claim: three times and the lease come before the client, and the kind
/// comes after it.
const CLAIM_CLIENT: usize = 11 + 5 + 11 + 32;
const CLAIM_KIND: usize = CLAIM_CLIENT + 16;

/// Returns the labels of the waiters in order, as the server has them.
async fn line(admin: &mut Admin, name: &str) -> Vec<String> {
    let claims = claims(admin, name).await;
    let label = |claim: String| claim.get(CLAIM_KIND + 1..).map(str::to_owned);
    claims.into_iter().filter_map(label).collect()
}

/// Returns the claims of the waiters in order.
async fn claims(admin: &mut Admin, name: &str) -> Vec<String> {
    // The arrivals, which are greater than the times until which claims count as alive.
    let arrivals = ["ZRANGEBYSCORE", &line_key(name), "1e15", "+inf"];
    let leasehold_tests::Resp::Array(claims) = admin.command(&arrivals).await else {
        panic!("ZRANGEBYSCORE answers with an array");
    };
    let claims = claims.iter().filter_map(leasehold_tests::Resp::as_string);
    claims.collect()
}

/// Waits until this many waiters are in line.
async fn in_line(admin: &mut Admin, name: &str, count: usize) {
    let line = line_key(name);
    let what = format!("{count} waiters are in line");
    let count = i64::try_from(count).expect("not that many");
    let are_in_line = async || admin.int(&["ZCOUNT", &line, "1e15", "+inf"]).await == count;
    eventually(LIMIT * 3, &what, are_in_line).await;
}

/// Waits until this many lockers have confirmed their subscriptions.
async fn subscribed(admin: &mut Admin, count: usize) {
    let are_subscribed = async || admin.hearing_lockers().await == count;
    eventually(LIMIT, "all lockers are subscribed", are_subscribed).await;
}
