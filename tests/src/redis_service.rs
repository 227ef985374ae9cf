//! Servers that sentinels watch.

use std::time::Duration;

use crate::{Admin, RedisServer, eventually};

const LIMIT: Duration = Duration::from_secs(10);

/// One primary, two replicas and three sentinels, which watch them as `mymaster`.
#[derive(Debug)]
pub struct RedisService {
    /// The primary at first.
    pub primary: RedisServer,
    /// Its replicas.
    pub replicas: Vec<RedisServer>,
    /// Two of them have to agree.
    pub sentinels: Vec<RedisServer>,
}

impl RedisService {
    /// Starts them, and waits until all know of all.
    pub async fn start() -> Self {
        let primary = RedisServer::start().await;
        let (mut replicas, mut sentinels) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let replica = RedisServer::config().replica_of(&primary).start().await;
            let mut admin = Admin::connect(&replica).await;
            let synced = async || {
                let status = admin.info("replication", "master_link_status").await;
                status.as_deref() == Some("up")
            };
            eventually(LIMIT, "the replica to be in sync", synced).await;
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
            eventually(LIMIT, "the sentinel to know all", knows).await;
        }
        Self {
            primary,
            replicas,
            sentinels,
        }
    }

    /// `redis-sentinel://` with all sentinels.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis-sentinel://{}/mymaster", hosts.join(","))
    }
}
