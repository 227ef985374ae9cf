//! Servers with sentinels that watch them.

use std::time::Duration;

use crate::{Admin, RedisServer, eventually};

const LIMIT: Duration = Duration::from_secs(10);

/// One primary, two replicas and three sentinels that watch them as `mymaster`.
#[derive(Debug)]
pub struct RedisService {
    /// The server that is the primary at first.
    pub primary: RedisServer,
    /// The primary's replicas.
    pub replicas: Vec<RedisServer>,
    /// The sentinels; two of them have to agree.
    pub sentinels: Vec<RedisServer>,
}

impl RedisService {
    /// Starts the servers and waits until all know one another.
    pub async fn start() -> Self {
        let primary = RedisServer::start().await;
        let (mut replicas, mut sentinels) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let replica = RedisServer::config().replica_of(&primary).start().await;
            replica.in_sync().await;
            replicas.push(replica);
        }
        for _ in 0..3 {
            sentinels.push(RedisServer::config().sentinel_of(&primary, 2).start().await);
        }
        for sentinel in &sentinels {
            let mut admin = Admin::connect(sentinel).await;
            let knows = async || {
                let state = admin.info("sentinel", "master0").await.unwrap_or_default();
                state.contains("slaves=2,sentinels=3")
            };
            eventually(LIMIT, "the sentinel knows all servers", knows).await;
        }
        Self {
            primary,
            replicas,
            sentinels,
        }
    }

    /// Returns a `redis-sentinel://` URL with all sentinels.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis-sentinel://{}/mymaster", hosts.join(","))
    }
}
