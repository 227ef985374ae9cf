//! Contended handoffs between processes in Rust and JavaScript while a cluster's slots move, and while
//! masters are killed or paused. They go on within a bound, tokens never fall, no waiter is forgotten, and a
//! guard refuses every stale write.
//!
//! The long tests: `cargo test -p leasehold-tests --test topologies -- --ignored --nocapture
//! --test-threads=1`

mod cluster;
mod crowd;
mod quorum;
mod sentinel;

use std::time::{Duration, Instant};

use leasehold_tests::{Admin, RedisServer, Resp};

const TTL: Duration = Duration::from_millis(1_500);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns how long it takes from now on until one of these becomes a primary. A background task asks them.
fn promoted(replicas: &[RedisServer]) -> tokio::task::JoinHandle<Duration> {
    let ports: Vec<_> = replicas.iter().map(RedisServer::port).collect();
    let begin = Instant::now();
    tokio::spawn(async move {
        loop {
            for port in &ports {
                // Sentinels close the connections of a server that they promote.
                let mut admin = Admin::connect_port(*port).await;
                let Ok(Resp::Array(role)) = admin.try_command(&["ROLE"]).await else {
                    continue;
                };
                let role = role.first().and_then(Resp::as_string);
                if role.as_deref() == Some("master") {
                    return begin.elapsed();
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
}

/// Returns when this server learns that it was demoted, since 1970. A background task asks it.
fn demoted(primary: &RedisServer) -> tokio::task::JoinHandle<Duration> {
    let port = primary.port();
    tokio::spawn(async move {
        loop {
            let mut admin = Admin::connect_port(port).await;
            if let Ok(Resp::Array(role)) = admin.try_command(&["ROLE"]).await
                && role.first().and_then(Resp::as_string).as_deref() == Some("slave")
            {
                return crowd::now();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
}
