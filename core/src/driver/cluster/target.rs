//! How the nodes of a cluster are connected to.

use std::time::Duration;

use ::fred::clients::Client;
use ::fred::interfaces::ClientLike;
use ::fred::types::RespVersion;
use ::fred::types::config::{ClusterDiscoveryPolicy, Config, Server, ServerConfig};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::map::{Map, no_map};
use crate::driver::clock::Clock;
use crate::driver::endpoint::Endpoint;
use crate::driver::fred::FredStore;
use crate::driver::tls::{self, TlsClient};
use crate::driver::url::{Node, RedisTarget};
use crate::error::{Error, ErrorKind};

/// A node that has not answered for so long has another one asked beside it.
const SLOW: Duration = Duration::from_millis(300);

/// A cluster, and how to connect to it.
pub(in crate::driver) struct ClusterTarget {
    /// Some of its nodes.
    pub(in crate::driver) seeds: Vec<Node>,
    /// For each node, but for its address.
    pub(in crate::driver) config: Config,
    pub(in crate::driver) tls: Option<TlsClient>,
    pub(in crate::driver) timeout: Duration,
}

impl ClusterTarget {
    /// That of a client of the program's.
    pub(super) fn of(client: &Client, timeout: Duration) -> Self {
        let mut config = client.client_config();
        // By RESP3 changes of held keys could not be heard.
        config.version = RespVersion::RESP2;
        let seeds = config.server.hosts().into_iter().map(|server| Node {
            host: server.host.to_string(),
            port: server.port,
        });
        Self {
            seeds: seeds.collect(),
            config,
            tls: None,
            timeout,
        }
    }

    /// All of it by one client.
    pub(in crate::driver) fn whole(self) -> RedisTarget {
        let mut config = self.config;
        let hosts = self.seeds.into_iter();
        config.server = ServerConfig::Clustered {
            hosts: hosts
                .map(|node| Server::new(node.host, node.port))
                .collect(),
            policy: ClusterDiscoveryPolicy::default(),
        };
        if let Some(tls) = &self.tls {
            tls.configure(&mut config);
        }
        RedisTarget {
            config,
            endpoint: None,
            shown: "the cluster".to_owned(),
            of_cluster: true,
            timeout: self.timeout,
        }
    }

    pub(super) fn node(&self, node: &Node) -> RedisTarget {
        let mut config = self.config.clone();
        let mut server = Server::new(node.host.clone(), node.port);
        if self.tls.is_none() {
            let seed = self.seeds.first().map_or("", |seed| &seed.host);
            tls::name_node(&config, &mut server, seed);
        }
        config.server = ServerConfig::Centralized { server };
        if let Some(tls) = &self.tls {
            tls.configure(&mut config);
        }
        let endpoint = Endpoint {
            host: node.host.clone(),
            port: node.port,
            tls: self.tls.clone(),
        };
        // Whom a client of the program's trusts is not known here.
        let looks = self.tls.is_some() || !self.config.uses_tls();
        RedisTarget {
            config,
            endpoint: looks.then_some(endpoint),
            shown: format!("node {node} of the cluster"),
            of_cluster: true,
            timeout: self.timeout,
        }
    }

    /// Asks its nodes, one after the other, who serves what. Returns the first that says so.
    pub(super) async fn find(&self) -> Result<(Node, FredStore, Map), Error> {
        let seeds = self.seeds.clone().into_iter();
        first_of(seeds.map(|seed| self.find_by(seed))).await
    }

    async fn find_by(&self, seed: Node) -> Result<(Node, FredStore, Map), Error> {
        let mut map = Map::default();
        let store = FredStore::reach(self.node(&seed), async |store| {
            map = ask(store, &seed).await?;
            Ok(())
        });
        let store = store.await?;
        Ok((seed, store, map))
    }
}

/// Has a node say who serves what.
pub(super) async fn ask(store: &FredStore, node: &Node) -> Result<Map, Error> {
    let link = store.link();
    let asked = Map::ask(&link.client, node).await;
    let map = asked.map_err(|error| no_map(&error, link.secrets.convert(&error)))?;
    if map.0.is_empty() {
        let message = "the cluster serves no slots yet";
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    Ok(map)
}

/// What the first of them comes to that does not fail. Each is begun once the one before it has failed, or
/// is slow.
pub(super) async fn first_of<T, F>(tries: impl IntoIterator<Item = F>) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut waiting = tries.into_iter();
    let mut begun: FuturesUnordered<F> = waiting.next().into_iter().collect();
    let mut failed: Option<Error> = None;
    loop {
        let slow = Clock::Machine.sleep(SLOW);
        let ended = tokio::select! {
            biased;
            Some(result) = begun.next() => Some(result),
            () = slow, if waiting.size_hint().1 != Some(0) => None,
            else => break,
        };
        match ended {
            Some(Ok(value)) => return Ok(value),
            // One that says what is to be mended says more than one that is away.
            Some(Err(error)) => match &failed {
                Some(first) if !first.is_transient() || error.is_transient() => {}
                _ => failed = Some(error),
            },
            None => {}
        }
        begun.extend(waiting.next());
    }
    let message = "no node of the cluster is known";
    Err(failed.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, message)))
}
