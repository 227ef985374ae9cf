//! Connecting to the nodes of a cluster, and asking them for the slot map.

use std::time::Duration;

use ::fred::clients::Client;
use ::fred::interfaces::ClientLike;
use ::fred::types::config::{ClusterDiscoveryPolicy, Config, Server, ServerConfig};
use ::fred::types::{RespVersion, Value};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use leasehold_engine::protocol::LockKey;
use leasehold_engine::{Error, ErrorKind};

use super::endpoint::Endpoint;
use super::target::config_of;
use super::tls::{self, TlsClient};
use super::{Dial, Fred, Target, custom};
use crate::adapter::slots::{Map, Stretch};
use crate::clock::Clock;
use crate::url::{Node, StoreUrl};

/// After this time without an answer, the next node is asked as well.
const SLOW: Duration = Duration::from_millis(300);

/// The addresses and settings of a cluster.
pub(crate) struct Nodes {
    /// The nodes to ask first.
    pub(crate) seeds: Vec<Node>,
    /// The settings of each node, except its address.
    pub(super) config: Config,
    tls: Option<TlsClient>,
    timeout: Duration,
}

impl Nodes {
    pub(crate) fn new(url: StoreUrl, dial: Dial<'_>) -> Result<Self, Error> {
        // Replaced for each node.
        let server = ServerConfig::new_clustered(Vec::<(String, u16)>::new());
        Ok(Self {
            config: config_of(&url, server),
            tls: dial.tls_of(&url)?,
            seeds: url.nodes,
            timeout: dial.timeout,
        })
    }

    /// Takes the addresses and settings of a cluster client of the program's.
    pub(crate) fn of_program(client: &Client, timeout: Duration) -> Self {
        let mut config = client.client_config();
        // With RESP3, changes of held keys could not be heard.
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

    /// Returns the target of one client for the whole cluster.
    pub(crate) fn whole(self) -> Target {
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
        Target {
            config,
            endpoint: None,
            shown: "the cluster".to_owned(),
            timeout: self.timeout,
        }
    }

    pub(crate) fn node(&self, node: &Node) -> Target {
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
        // The CAs that a program's own client trusts are not known here.
        let looks = self.tls.is_some() || !self.config.uses_tls();
        Target {
            config,
            endpoint: looks.then_some(endpoint),
            shown: format!("node {node} of the cluster"),
            timeout: self.timeout,
        }
    }

    /// Asks the nodes, one after the other, for the slot map. Returns the first that answers.
    pub(crate) async fn find(&self) -> Result<(Node, Fred, Map), Error> {
        let seeds = self.seeds.clone().into_iter();
        first_of(seeds.map(|seed| self.find_by(seed))).await
    }

    async fn find_by(&self, seed: Node) -> Result<(Node, Fred, Map), Error> {
        let (target, mut map) = (self.node(&seed), Map::default());
        let shown = target.shown.clone();
        let client = Fred::make(target, true)?;
        let asking = client.open(&shown, async || {
            map = client.ask_for_map(&seed).await?;
            Ok(())
        });
        // Boxed, because the future is large and exists once per locker.
        Box::pin(asking).await?;
        Ok((seed, client, map))
    }
}

impl Fred {
    /// Asks the node at address `asked` for the slot map.
    pub(crate) async fn ask_for_map(&self, asked: &Node) -> Result<Map, Error> {
        let said: Result<Value, _> = self.client.custom(custom("CLUSTER"), vec!["SLOTS"]).await;
        let said = said.map_err(|error| {
            if error.details().contains("cluster support disabled") {
                let message = "the server is not a cluster node; connect to redis://";
                return Error::new(ErrorKind::Config, message);
            }
            self.secrets.convert(&error)
        })?;
        let map = read(&said, asked);
        if map.0.is_empty() {
            let message = "the cluster serves no slots yet";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(map)
    }
}

/// Reads a slot map. Leaves out what is invalid.
fn read(said: &Value, asked: &Node) -> Map {
    let Value::Array(said) = said else {
        return Map::default();
    };
    let stretches = said.iter().take(usize::from(LockKey::SLOTS));
    let stretches = stretches.filter_map(|stretch| read_stretch(stretch, asked));
    Map::new(stretches.collect())
}

/// Reads `[first, last, [host, port, …], replicas…]`.
fn read_stretch(said: &Value, asked: &Node) -> Option<Stretch> {
    let Value::Array(said) = said else {
        return None;
    };
    let slot = |at: usize| u16::try_from(said.get(at)?.as_i64()?).ok();
    let (first, last) = (slot(0)?, slot(1)?);
    let Value::Array(node) = said.get(2)? else {
        return None;
    };
    let host = match node.first()? {
        // Null stands for the address at which the node was asked.
        Value::Null => String::new(),
        host => host.as_string()?,
    };
    let port = u16::try_from(node.get(1)?.as_i64()?).ok()?;
    Stretch::new((first, last), (&host, port), asked)
}

/// Returns the result of the first attempt that succeeds. Starts each attempt once the one before it has failed or is
/// slow.
pub(crate) async fn first_of<T, F>(tries: impl IntoIterator<Item = F>) -> Result<T, Error>
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
            // A permanent error is more useful than that of a node that is down.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16) -> Node {
        let host = host.into();
        Node { host, port }
    }

    fn stretch(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = Value::Array(vec![host, port.into(), "id".into(), Value::Array(vec![])]);
        Value::Array(vec![first.into(), last.into(), node])
    }

    /// Catches a slot that stays with its former node because the address is written differently.
    #[test]
    fn a_map_is_read_as_servers_write_it() {
        let said = Value::Array(vec![
            stretch(10_000, 16_383, "::1".into(), 7_002),
            stretch(0, 99, Value::Null, 7_000),
            stretch(100, 200, "".into(), 7_001),
            // These are invalid.
            stretch(300, 400, "?".into(), 7_001),
            stretch(300, 16_384, "h".into(), 7_001),
            stretch(300, 299, "h".into(), 7_001),
            stretch(300, 400, "h".into(), 0),
            Value::Array(vec![]),
            Value::Null,
        ]);
        let map = read(&said, &node("seed", 1));
        let expected = [
            (0, 99, node("seed", 7_000)),
            (100, 200, node("seed", 7_001)),
            (10_000, 16_383, node("::1", 7_002)),
        ];
        let stretches = expected.map(|(first, last, node)| Stretch { first, last, node });
        assert_eq!(map.0, stretches);
        assert_eq!(map.gaps(), [(201, 9_999)]);
        assert_eq!(map.nodes().len(), 3);
        assert_eq!(Map::default().gaps(), [(0, 16_383)]);
        assert_eq!(read(&Value::Null, &node("h", 1)), Map::default());
    }
}
