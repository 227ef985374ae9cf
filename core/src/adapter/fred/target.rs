//! The connection settings for the server of a URL.

use std::time::Duration;

use ::fred::clients::Client;
use ::fred::types::config::{Config, Server, ServerConfig};
use leasehold_engine::Error;

use super::endpoint::Endpoint;
use super::tls::TlsClient;
use super::{Secrets, client_of};
use crate::tls::Tls;
use crate::url::{self, Kind, Node, StoreUrl};

/// Settings for all connections that this crate makes.
#[derive(Clone, Copy)]
pub(crate) struct Dial<'a> {
    pub(crate) tls: Option<&'a Tls>,
    /// The timeout of connecting, and of each of the first requests.
    pub(crate) timeout: Duration,
}

/// A server and its connection settings.
pub(crate) struct Target {
    pub(super) config: Config,
    /// The address to examine if connecting fails; `None` for a socket.
    pub(super) endpoint: Option<Endpoint>,
    /// The server's address for errors, without credentials.
    pub(crate) shown: String,
    pub(crate) timeout: Duration,
}

impl Dial<'_> {
    /// Parses a URL, and checks that it fits these settings.
    pub(crate) fn url(&self, text: &str) -> Result<StoreUrl, Error> {
        let url = url::parse(text)?;
        if self.tls.is_some() && !url.tls {
            return Err(url::bad(
                "TLS is set, but the store's URL does not use it; connect to rediss://",
            ));
        }
        Ok(url)
    }

    /// Returns a URL's TLS settings, with the files that it or these settings name.
    pub(super) fn tls_of(&self, url: &StoreUrl) -> Result<Option<TlsClient>, Error> {
        let tls = url.tls.then(|| TlsClient::new(&merged(url, self.tls)));
        tls.transpose().map_err(|error| error.of(url))
    }
}

impl Target {
    /// Returns the target for a standalone server, or for the primary that sentinels name.
    pub(crate) fn new(url: StoreUrl, dial: Dial<'_>) -> Result<Self, Error> {
        let (tls, shown) = (dial.tls_of(&url)?, url.to_string());
        let server = match url.kind {
            Kind::Sentinel => ServerConfig::Sentinel {
                hosts: url.nodes.iter().map(server_of).collect(),
                service_name: url.name.clone(),
                username: url.sentinel_username.clone(),
                password: url.sentinel_password.clone(),
            },
            #[cfg(unix)]
            Kind::Socket => ServerConfig::Unix {
                path: url.name.clone().into(),
            },
            #[cfg(not(unix))]
            Kind::Socket => {
                return Err(url::bad("this system has no Unix sockets; use redis://"));
            }
            Kind::Server | Kind::Cluster | Kind::Memory => {
                let node = url
                    .nodes
                    .first()
                    .ok_or_else(|| url::bad("the store's URL names no standalone server"))?;
                ServerConfig::Centralized {
                    server: server_of(node),
                }
            }
        };
        let mut config = config_of(&url, server);
        if let Some(tls) = &tls {
            tls.configure(&mut config);
        }
        let node = url.nodes.into_iter().next();
        let endpoint = node.map(|node| Endpoint {
            host: node.host,
            port: node.port,
            tls,
        });
        Ok(Self {
            config,
            endpoint,
            shown,
            timeout: dial.timeout,
        })
    }

    /// Creates a client that is not connected yet.
    pub(crate) fn client(&self, fail_fast: bool) -> Result<Client, Error> {
        let client = client_of(self.config.clone(), self.timeout, fail_fast);
        let shown = |error| Secrets::in_config(&self.config).convert(&error);
        client.map_err(|error| shown(error).of(&self.shown))
    }
}

/// Returns a configuration with the URL's credentials.
pub(super) fn config_of(url: &StoreUrl, server: ServerConfig) -> Config {
    Config {
        server,
        username: url.username.clone(),
        password: url.password.clone(),
        database: url.database,
        ..Config::default()
    }
}

fn server_of(node: &Node) -> Server {
    Server::new(node.host.clone(), node.port)
}

/// Merges TLS settings. The URL takes precedence over the builder.
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

#[cfg(test)]
mod tests {
    use super::super::Nodes;
    use super::*;

    fn dial(tls: Option<&Tls>) -> Dial<'_> {
        let timeout = Duration::from_secs(1);
        Dial { tls, timeout }
    }

    fn target(url: &str) -> Target {
        let url = dial(None).url(url).expect("valid");
        Target::new(url, dial(None)).expect("valid")
    }

    #[test]
    fn a_cluster_is_connected_to_as_its_url_says() {
        let url = dial(None).url("redis-cluster://me:p%40ss@a:7000,b");
        let nodes = Nodes::new(url.expect("valid"), dial(None)).expect("valid");
        let seeds = nodes.seeds.iter().map(ToString::to_string);
        assert_eq!(seeds.collect::<Vec<_>>(), ["a:7000", "b:6379"]);
        assert_eq!(nodes.config.username.as_deref(), Some("me"));
        assert_eq!(nodes.config.password.as_deref(), Some("p@ss"));
    }

    #[test]
    fn a_server_is_connected_to_as_its_url_says() {
        let parsed = target("redis://me:p%40ss@example.org:7000/5");
        assert_eq!(parsed.config.username.as_deref(), Some("me"));
        assert_eq!(parsed.config.password.as_deref(), Some("p@ss"));
        assert_eq!(parsed.config.database, Some(5));
        let server = ServerConfig::new_centralized("example.org", 7000);
        assert_eq!(parsed.config.server, server);
    }

    #[cfg(unix)]
    #[test]
    fn a_socket_is_connected_to_as_its_url_says() {
        let socket = target("unix:///run/redis%20a.sock?db=3");
        let path = "/run/redis a.sock".into();
        assert_eq!(socket.config.server, ServerConfig::Unix { path });
        assert_eq!(socket.config.database, Some(3));
    }

    /// Catches a locker that was told to use TLS and sends everything in the clear.
    #[test]
    fn tls_that_is_set_is_not_left_out() {
        for url in ["redis://host", "unix:///socket", "memory://"] {
            let Err(error) = dial(Some(&Tls::new())).url(url) else {
                panic!("{url} was taken");
            };
            assert!(
                error.is_config() && error.to_string().starts_with("TLS is set, but"),
                "{error}"
            );
        }
    }
}
