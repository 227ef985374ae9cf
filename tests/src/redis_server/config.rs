//! The configuration of a server.

use std::path::Path;

use super::{Launch, PORT_ATTEMPTS, RedisServer};
use crate::{Authority, ports};

/// The configuration of a [`RedisServer`].
#[derive(Clone, Debug, Default)]
pub struct RedisConfig {
    pub(super) args: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) unix_socket: bool,
    pub(super) append_only: bool,
    pub(super) tls: Option<Vec<String>>,
    pub(super) watches: Option<String>,
    pub(super) clock_off: Option<f64>,
}

impl RedisConfig {
    /// Adds arguments for `redis-server`, such as `["--databases", "4"]`.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Requires this password from clients (`--requirepass`). [`RedisServer::url`] carries it.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        assert!(
            password.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "the URL would need escapes for the password {password:?}"
        );
        self.password = Some(password.to_owned());
        self
    }

    /// Also listens on a Unix socket: [`RedisServer::socket_path`].
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Also listens for TLS on [`RedisServer::tls_port`], with the files of a certificate, its key, and the
    /// CA of the clients. It requires client certificates only if `asks`.
    #[must_use]
    pub fn tls(mut self, certificate: &Path, key: &Path, ca: &Path, asks: bool) -> Self {
        let [certificate, key, ca] = [certificate, key, ca].map(|path| path.display().to_string());
        let asks = if asks { "yes" } else { "no" };
        let args = [
            ("--tls-cert-file", &*certificate),
            ("--tls-key-file", &*key),
            ("--tls-ca-cert-file", &*ca),
            ("--tls-auth-clients", asks),
        ];
        let args = args
            .iter()
            .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]);
        self.tls = Some(args.collect());
        self
    }

    /// Configures TLS for the nodes of a cluster, which tell TLS clients their TLS ports.
    #[must_use]
    pub fn tls_cluster(self, ca: &Authority) -> Self {
        let (server, client) = (ca.server(&["127.0.0.1"]), ca.client());
        let [certificate, key] =
            [&client.certificate, &client.key].map(|path| path.display().to_string());
        // The nodes are clients of one another.
        let args = [
            ("--tls-cluster", "yes"),
            ("--tls-client-cert-file", &*certificate),
            ("--tls-client-key-file", &*key),
        ];
        let args = args.map(|(name, value)| [name.to_owned(), value.to_owned()]);
        self.tls(&server.certificate, &server.key, &ca.file, false)
            .args(args.into_iter().flatten())
    }

    /// Sets the server's clock this many seconds ahead of the machine's, or behind if negative (libfaketime).
    #[must_use]
    pub fn clock_off(mut self, seconds: impl Into<f64>) -> Self {
        self.clock_off = Some(seconds.into());
        self
    }

    /// Makes it a sentinel that watches `primary` as the service `mymaster`. `quorum` sentinels have to agree
    /// that the primary is down.
    #[must_use]
    pub fn sentinel_of(self, primary: &RedisServer, quorum: u8) -> Self {
        self.sentinel_at(primary.port, quorum)
    }

    /// Makes it a sentinel that watches a primary on this loopback port.
    #[must_use]
    pub fn sentinel_at(mut self, port: u16, quorum: u8) -> Self {
        self.watches = Some(format!(
            "sentinel monitor mymaster 127.0.0.1 {port} {quorum}\n\
             sentinel down-after-milliseconds mymaster 1000\n\
             sentinel failover-timeout mymaster 3000\n"
        ));
        self
    }

    /// Makes it a replica of `primary`. Replication takes a moment to begin: wait for [`RedisServer::in_sync`].
    #[must_use]
    pub fn replica_of(self, primary: &RedisServer) -> Self {
        let config = self.args(["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
        match &primary.config.password {
            Some(password) => config.args(["--masterauth", password]),
            None => config,
        }
    }

    /// Writes to disk before each answer, so that data survives [`RedisServer::kill`]. Without this a
    /// restarted server is empty.
    #[must_use]
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Starts the server and waits until it answers.
    pub async fn start(self) -> RedisServer {
        let folder = tempfile::Builder::new()
            .prefix("leasehold-redis-")
            .tempdir()
            .unwrap_or_else(|error| panic!("making a folder for redis-server: {error}"));
        let mut server = RedisServer {
            folder,
            config: self,
            port: 0,
            tls_port: 0,
            child: None,
        };
        for _ in 0..PORT_ATTEMPTS {
            server.port = ports::free_port();
            server.tls_port = ports::free_port();
            if server.launch().await == Launch::Answers {
                return server;
            }
        }
        panic!(
            "other processes took {PORT_ATTEMPTS} ports: {}",
            server.log_tail()
        );
    }
}
