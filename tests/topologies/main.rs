//! Contended handoffs between processes, Rust and JavaScript together, while a cluster's slots move, and
//! while masters are killed or stand still: they go on within a bound, tokens never fall, nobody who waits is
//! forgotten, and a guard refuses every stale write.
//!
//! The long ones: `cargo test -p leasehold-tests --test topologies -- --ignored --nocapture --test-threads=1`

mod cluster;
mod crowd;
mod sentinel;

use std::time::{Duration, Instant};

use leasehold_tests::{Admin, RedisServer, Resp};

const TTL: Duration = Duration::from_millis(1_500);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How long one of these takes to become a primary, from now on. They are asked in the background.
fn promoted(replicas: &[RedisServer]) -> tokio::task::JoinHandle<Duration> {
    let ports: Vec<_> = replicas.iter().map(RedisServer::port).collect();
    let begin = Instant::now();
    tokio::spawn(async move {
        loop {
            for port in &ports {
                // Sentinels close the connections of whom they promote.
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

/// When this server learns that it is none any more, since 1970. It is asked in the background.
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
