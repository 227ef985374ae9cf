//! The native lock on real Redis servers. Every test starts its own.

mod bad_input;
mod cancel;
mod cluster;
mod cluster_moves;
mod connect;
mod crowds;
mod eviction;
mod exclusion;
mod faults;
mod garbled;
mod hostile;
mod jobs;
mod lazy;
mod link;
mod memory;
mod observer;
mod outage;
mod paused;
mod quarantine;
mod quorum;
mod quorum_cases;
mod reasons;
mod refusals;
mod replicas;
mod rights;
mod rights_apart;
mod rights_cluster;
mod round_trips;
mod runtimes;
mod sentinel;
mod several;
mod shared;
mod shared_cluster;
mod shared_fenced;
mod shared_peers;
mod tenants;
mod tls;
mod tokens;
mod tracking;
mod wakes;
mod yields;

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::Config;
use leasehold::{Builder, Lease, Locker};
use leasehold_tests::RedisServer;

/// The longest wait for an expected event; a test that waits in vain fails after this.
const LIMIT: Duration = Duration::from_secs(10);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn connect(server: &RedisServer) -> Locker {
    connect_with(Locker::builder(), &server.url()).await
}

async fn connect_with(builder: Builder, url: &str) -> Locker {
    builder
        .connect(url)
        .await
        .expect("the server can be reached")
}

/// Takes a free lock.
async fn held(locker: &Locker, name: &str) -> Lease {
    let lock = locker.lock(name).expect("a valid name");
    lock.acquire().await.expect("a free lock")
}

/// Waits until this lock has a waiter.
async fn in_line(locker: &Locker, name: &str) {
    let waits = async || {
        locker
            .inspect(name)
            .await
            .is_ok_and(|seen| seen.waiting == 1)
    };
    leasehold_tests::eventually(LIMIT, "a waiter is in line", waits).await;
}

/// Returns a fred client of the program, on the calling runtime.
async fn own_client(server: &RedisServer) -> Client {
    let config = Config::from_url(&server.url()).expect("a valid URL");
    let client = fred::types::Builder::from_config(config)
        .build()
        .expect("valid settings");
    client.init().await.expect("the server is up");
    client
}

/// Returns the key of a lock in the default namespace.
fn lock_key(name: &str) -> String {
    format!("{{leasehold:{name}}}")
}
