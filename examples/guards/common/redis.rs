//! The Redis server of an example: one of its own, or the one of `--url`.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::Builder;
use fred::types::config::Config;
use leasehold::Locker;
use leasehold_examples::cli::{self, Outcome};
use leasehold_examples::server::Server;
use tokio::time::timeout;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A server with its address. Dropping it kills it, if it is the example's own.
#[derive(Debug)]
pub struct Redis {
    url: String,
    own: Option<Box<Server>>,
}

impl Redis {
    /// The server of that URL, or else a new one.
    pub async fn at_or_own(url: Option<&str>) -> Outcome<Self> {
        if let Some(url) = url {
            return Self::at(url).await;
        }
        let own = Server::start().await?;
        let url = own.url();
        Ok(Self {
            url,
            own: Some(Box::new(own)),
        })
    }

    /// The server of that URL, if it answers.
    async fn at(url: &str) -> Outcome<Self> {
        if url.starts_with("memory:") {
            return Err("this needs a Redis server: give --url redis://host:port, or none".into());
        }
        let probe = cli::connect(url, "leasehold-examples").await?;
        probe.shutdown().await;
        let (url, own) = (url.to_owned(), None);
        Ok(Self { url, own })
    }

    /// Where it answers; this may hold a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it is, for people; without the URL.
    pub fn shown(&self) -> &'static str {
        match self.own {
            Some(_) => "a redis-server that this program started",
            None => "the server of --url",
        }
    }

    /// A client with a connection of its own. It does not reconnect: a transaction that watches keys
    /// would no longer watch them, and not notice.
    pub async fn client(&self) -> Outcome<Client> {
        // The errors could show the URL, which may hold a password.
        let config = Config::from_url(&self.url).map_err(
            |_| "the --url is not one of a Redis server, such as redis://127.0.0.1:6379",
        )?;
        let client = Builder::from_config(config)
            .with_connection_config(|connection| connection.max_command_attempts = 1)
            .build()?;
        match timeout(CONNECT_LIMIT, client.init()).await {
            Ok(Ok(_)) => Ok(client),
            Ok(Err(error)) => Err(format!("the Redis server: {error}").into()),
            Err(_) => {
                Err(format!("the Redis server did not answer within {CONNECT_LIMIT:?}").into())
            }
        }
    }

    /// Ends the example's own server.
    pub async fn stop(self) -> Outcome {
        match self.own {
            Some(mut server) => Ok(server.kill().await?),
            None => Ok(()),
        }
    }
}

/// Where locks are: in a server, or in the memory of this program.
#[derive(Debug)]
pub enum Locks {
    /// Other processes do not see them.
    Memory,
    /// All who connect share them.
    Redis(Redis),
}

impl Locks {
    /// At the URL; without one in a new server, or in memory if no redis-server is installed.
    pub async fn open(url: Option<&str>) -> Outcome<Self> {
        if url.is_some_and(|url| url.starts_with("memory:")) {
            return Ok(Self::Memory);
        }
        match Redis::at_or_own(url).await {
            Ok(redis) => Ok(Self::Redis(redis)),
            Err(error) if error.to_string().contains("not installed") => {
                eprintln!("{error}");
                Ok(Self::Memory)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether other processes can share them.
    pub fn are_shared(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    /// A locker of its own.
    pub async fn connect(&self, namespace: &str) -> Outcome<Locker> {
        cli::connect(self.url(), namespace).await
    }

    /// The URL; this may hold a password.
    pub fn url(&self) -> &str {
        match self {
            Self::Memory => "memory://",
            Self::Redis(redis) => redis.url(),
        }
    }

    /// Where they are, for people; without the URL.
    pub fn shown(&self) -> &'static str {
        match self {
            Self::Memory => "the memory of this program",
            Self::Redis(redis) => redis.shown(),
        }
    }

    /// Ends the example's own server, if there is one.
    pub async fn stop(self) -> Outcome {
        match self {
            Self::Memory => Ok(()),
            Self::Redis(redis) => redis.stop().await,
        }
    }
}
