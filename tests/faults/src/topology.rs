//! The servers of a round, and the links of the clients to them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use leasehold_tests::{Admin, Proxy, RedisCluster, RedisServer, RedisService, Resp};
use tokio::time::timeout;

/// How long a server may take to answer a command of the nemesis.
const ANSWER: Duration = Duration::from_millis(1_500);

/// A deployment of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server, which writes to disk before each answer.
    One,
    /// A primary, two replicas and three sentinels.
    Sentinel,
    /// Three masters, each with a replica.
    Cluster,
    /// Five servers, of which a majority decides.
    Quorum,
}

impl Topology {
    /// All of them, in the order of rounds.
    pub const ALL: [Self; 4] = [Self::One, Self::Quorum, Self::Sentinel, Self::Cluster];

    /// Returns true if a server may take over for another one without having all of its data.
    pub fn fails_over(self) -> bool {
        matches!(self, Self::Sentinel | Self::Cluster)
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "one",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Quorum => "quorum",
        })
    }
}

impl FromStr for Topology {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|topology| topology.to_string() == text)
            .ok_or_else(|| format!("unknown topology `{text}`: one, sentinel, cluster or quorum"))
    }
}

#[derive(Debug)]
enum Processes {
    Plain(Vec<RedisServer>),
    Sentinel(RedisService),
    Cluster(RedisCluster),
}

/// The servers of a round.
#[derive(Debug)]
pub struct Servers {
    /// Their deployment.
    pub topology: Topology,
    processes: Processes,
    /// The links of each client to each server; empty where clients learn the addresses from the servers.
    proxies: Vec<Vec<Proxy>>,
}

impl Servers {
    /// Starts the servers, and a link to each for each client if they are plain servers. If `clocks`, the clocks of
    /// plain servers can be set.
    pub async fn start(topology: Topology, clients: usize, clocks: bool) -> Self {
        let plain = async |count: usize| {
            let mut servers = Vec::new();
            for _ in 0..count {
                let mut config = RedisServer::config().append_only();
                if clocks {
                    config = config.clock_off(0);
                }
                servers.push(config.start().await);
            }
            Processes::Plain(servers)
        };
        let processes = match topology {
            Topology::One => plain(1).await,
            Topology::Quorum => plain(5).await,
            Topology::Sentinel => Processes::Sentinel(RedisService::start().await),
            Topology::Cluster => {
                let config = RedisServer::config().append_only();
                let cluster = RedisCluster::start_with(&config, 3, true).await;
                cluster.allow_failover().await;
                Processes::Cluster(cluster)
            }
        };
        let mut proxies = Vec::new();
        if let Processes::Plain(servers) = &processes {
            for _ in 0..clients {
                let mut links = Vec::new();
                for server in servers {
                    links.push(Proxy::start(server.port()).await);
                }
                proxies.push(links);
            }
        }
        Self {
            topology,
            processes,
            proxies,
        }
    }

    /// Returns the URLs by which a client connects.
    pub fn urls(&self, client: usize) -> Vec<String> {
        match self.proxies.get(client) {
            Some(links) => links.iter().map(Proxy::url).collect(),
            None => self.direct(),
        }
    }

    /// Returns the URLs by which one connects without links that fail.
    pub fn direct(&self) -> Vec<String> {
        match &self.processes {
            Processes::Plain(servers) => servers.iter().map(RedisServer::url).collect(),
            Processes::Sentinel(service) => vec![service.url()],
            Processes::Cluster(cluster) => vec![cluster.url()],
        }
    }

    /// Returns the number of servers with data.
    pub fn count(&self) -> usize {
        match &self.processes {
            Processes::Plain(servers) => servers.len(),
            Processes::Sentinel(service) => 1 + service.replicas.len(),
            Processes::Cluster(cluster) => cluster.servers().count(),
        }
    }

    /// Returns a server with data.
    pub fn server(&mut self, at: usize) -> &mut RedisServer {
        match &mut self.processes {
            Processes::Plain(servers) => &mut servers[at],
            Processes::Sentinel(service) => match at.checked_sub(1) {
                None => &mut service.primary,
                Some(at) => &mut service.replicas[at],
            },
            Processes::Cluster(cluster) => match at.checked_sub(cluster.masters.len()) {
                None => &mut cluster.masters[at],
                Some(at) => &mut cluster.replicas[at],
            },
        }
    }

    /// Returns the link of a client to a server, if there is one.
    pub fn link(&self, client: usize, server: usize) -> Option<&Proxy> {
        self.proxies.get(client)?.get(server)
    }

    /// Runs a command on a server. Returns `None` if it does not answer in time.
    pub async fn command(&mut self, at: usize, args: &[&str]) -> Option<Resp> {
        let server = self.server(at);
        if !server.is_running() {
            return None;
        }
        ask(server.port(), args).await
    }

    /// Asks the sentinels for a failover. Returns false if they refuse.
    pub async fn sentinel_failover(&mut self) -> bool {
        let Processes::Sentinel(service) = &self.processes else {
            return false;
        };
        let failover = ["SENTINEL", "FAILOVER", "mymaster"];
        let answer = ask(service.sentinels[0].port(), &failover).await;
        matches!(answer, Some(Resp::Simple(_)))
    }

    /// Moves the slot of a lock's key to another master. Returns false if the first masters do not lead.
    pub async fn move_slot(&mut self, key: &str, shift: usize) -> bool {
        for at in 0..3 {
            if !self.leads(at).await {
                return false;
            }
        }
        let Processes::Cluster(cluster) = &self.processes else {
            return false;
        };
        let slot = cluster.slot(key).await;
        let from = cluster.master_of(slot).await;
        cluster
            .move_slot(slot, from, (from + 1 + shift % 2) % 3)
            .await;
        true
    }

    /// Returns true if this server is a primary.
    pub async fn leads(&mut self, at: usize) -> bool {
        let role = self.command(at, &["ROLE"]).await;
        let Some(Resp::Array(role)) = role else {
            return false;
        };
        role.first().and_then(Resp::as_string).as_deref() == Some("master")
    }

    /// Restarts a server without its data.
    pub async fn wipe(&mut self, at: usize) {
        let server = self.server(at);
        server.kill();
        // The folder exists only if the server writes to disk.
        drop(std::fs::remove_dir_all(
            server.folder().join("appendonlydir"),
        ));
        server.restart().await;
    }
}

async fn ask(port: u16, args: &[&str]) -> Option<Resp> {
    let work = async {
        let mut admin = Admin::try_connect(port, None).await.ok()?;
        admin.try_command(args).await.ok()
    };
    timeout(ANSWER, work).await.ok().flatten()
}

/// Returns true if libfaketime is installed, which sets the clocks of servers.
pub fn has_faketime() -> bool {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib",
        "/usr/lib64",
    ];
    let mut libraries = folders
        .iter()
        .map(|folder| Path::new(folder).join("faketime/libfaketime.so.1"));
    libraries.any(|library| library.exists())
}
