//! What stores' URLs name.

mod grammar;

use std::time::Duration;

use ::fred::types::config::{Config, Server, ServerConfig};

pub(super) use self::grammar::Node;
use self::grammar::{Kind, StoreUrl};
use super::cluster::ClusterTarget;
use super::endpoint::Endpoint;
use super::tls::TlsClient;
use crate::client::Tls;
use crate::error::{Error, ErrorKind};

/// What a URL names.
pub(super) enum Target {
    Memory(String),
    Redis(Box<RedisTarget>),
    Cluster(Box<ClusterTarget>),
}

/// How connections are made that are this crate's.
#[derive(Clone, Copy)]
pub(crate) struct Dial<'a> {
    pub(crate) tls: Option<&'a Tls>,
    /// For a connection, and for the reply to each of the requests that it begins with.
    pub(crate) timeout: Duration,
}

/// A server, and how to connect to it.
pub(super) struct RedisTarget {
    pub(super) config: Config,
    /// Where it can be looked at if connecting fails; not of a socket.
    pub(super) endpoint: Option<Endpoint>,
    /// The server's address for errors, without credentials.
    pub(super) shown: String,
    /// Whether it is a node of a cluster.
    pub(super) of_cluster: bool,
    pub(super) timeout: Duration,
}

/// What is supported.
const FORMS: &str = "redis://[user:password@]host[:port][/database] (rediss:// for TLS), \
                     unix:///path/to/socket[?db=database], \
                     redis-cluster://host[:port],host[:port],…, \
                     redis-sentinel://host[:port],host[:port],…/service[/database] or memory://[name]";

/// Reads a URL, and the files that it or the builder names.
pub(super) fn parse(text: &str, Dial { tls, timeout }: Dial<'_>) -> Result<Target, Error> {
    let url = grammar::parse(text).map_err(|wrong| bad(&wrong))?;
    if tls.is_some() && !url.tls {
        return Err(bad("TLS is set, and the store's URL is not of TLS"));
    }
    let server = match url.kind {
        Kind::Memory => return Ok(Target::Memory(url.name)),
        // Each node has its own.
        Kind::Cluster => ServerConfig::new_clustered(Vec::<(String, u16)>::new()),
        Kind::Sentinel => ServerConfig::Sentinel {
            hosts: url.nodes.iter().map(server_of).collect(),
            service_name: url.name.clone(),
            username: url.sentinel_username.clone(),
            password: url.sentinel_password.clone(),
        },
        Kind::Socket => ServerConfig::Unix {
            path: url.name.clone().into(),
        },
        Kind::Server => ServerConfig::Centralized {
            server: server_of(&url.nodes[0]),
        },
    };
    let shown = url.to_string();
    let tls = url.tls.then(|| TlsClient::new(&merged(&url, tls)));
    let tls = tls.transpose().map_err(|error| error.of(&shown))?;
    let mut config = Config {
        server,
        username: url.username,
        password: url.password,
        database: url.database,
        ..Config::default()
    };
    if url.kind == Kind::Cluster {
        return Ok(Target::Cluster(Box::new(ClusterTarget {
            seeds: url.nodes,
            config,
            tls,
            timeout,
        })));
    }
    if let Some(tls) = &tls {
        tls.configure(&mut config);
    }
    let node = url.nodes.into_iter().next();
    let endpoint = node.map(|node| Endpoint {
        host: node.host,
        port: node.port,
        tls,
    });
    Ok(Target::Redis(Box::new(RedisTarget {
        config,
        endpoint,
        shown,
        of_cluster: false,
        timeout,
    })))
}

/// Whether it is a URL of a cluster.
pub(super) fn is_of_cluster(text: &str) -> bool {
    grammar::parse(text).is_ok_and(|url| url.kind == Kind::Cluster)
}

fn server_of(node: &Node) -> Server {
    Server::new(node.host.clone(), node.port)
}

/// What the URL says goes before what the builder does.
fn merged(url: &StoreUrl, tls: Option<&Tls>) -> Tls {
    let mut tls = tls.cloned().unwrap_or_default();
    if let Some(ca) = &url.ca {
        tls = tls.ca_file(ca);
    }
    if let (Some(cert), Some(key)) = (&url.cert, &url.key) {
        tls = tls.client_files(cert, key);
    }
    if let Some(name) = &url.server_name {
        tls = tls.server_name(name);
    }
    tls
}

fn bad(what: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("{what}; it is of the form {FORMS}"),
    )
}

#[cfg(test)]
mod tests;
