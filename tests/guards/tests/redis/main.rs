//! The guard of Redis keys on real servers: by fred, and by redis-rs in `redis_rs.rs`. It needs
//! `redis-server` (`apt-get install redis-server`).

mod cluster;
mod commands;
mod conforms;
mod faults;
mod killed;
mod limits;
mod scripts;

use std::time::Duration;

use fred::prelude::*;
use leasehold::fence::redis::{Fenced, FencedRedis};
use leasehold::{Error, ErrorKind};
use leasehold_guard_tests::conformance::token;
use leasehold_tests::{Admin, RedisServer};

/// The longest wait of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A server, a plain connection to inspect it, and a guard.
pub(crate) struct Store {
    pub(crate) server: RedisServer,
    pub(crate) admin: Admin,
    pub(crate) redis: FencedRedis,
}

impl Store {
    pub(crate) async fn start() -> Self {
        Self::of(RedisServer::start().await).await
    }

    pub(crate) async fn of(server: RedisServer) -> Self {
        Self {
            admin: Admin::connect(&server).await,
            redis: guard(&server.url()).await,
            server,
        }
    }

    /// Returns the writes under a token to the resource `r`, whose fence is [`FENCE`].
    pub(crate) fn under(&self, number: u64) -> Fenced {
        self.redis
            .resource("r", token(number))
            .expect("a valid name")
    }

    pub(crate) async fn get(&mut self, key: &str) -> Option<String> {
        self.admin.string(&["GET", key]).await
    }
}

/// The key of the fence of the resource `r`.
pub(crate) const FENCE: &str = "{r}:fence";

/// True if the guard uses redis-rs.
const BY_REDIS_RS: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"redis_rs");

/// Returns a guard with a client of its own.
pub(crate) async fn guard(url: &str) -> FencedRedis {
    if !BY_REDIS_RS {
        return FencedRedis::new(client(url).await);
    }
    if let Some(node) = url.strip_prefix("redis-cluster://") {
        let client = redis::cluster::ClusterClient::new([format!("redis://{node}")]);
        let connection = client.expect("a valid URL").get_async_connection().await;
        return FencedRedis::with_redis(connection.expect("an object"));
    }
    let client = redis::Client::open(url).expect("a valid URL");
    let config = redis::aio::ConnectionManagerConfig::new().set_response_timeout(None);
    let connection = client.get_connection_manager_with_config(config).await;
    FencedRedis::with_redis(connection.expect("an object"))
}

/// Returns a client with the settings of most programs: three attempts, no timeout.
pub(crate) async fn client(url: &str) -> Client {
    let config = Config::from_url(url).expect("the URL of a test is valid");
    let client = Builder::from_config(config)
        .set_policy(ReconnectPolicy::new_constant(0, 20))
        .build()
        .expect("the settings are valid");
    client
        .init()
        .await
        .unwrap_or_else(|error| panic!("connecting to {url}: {error}"));
    client
}

/// Returns the two tokens of a refusal. Panics if the write was not refused as stale.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> (u64, u64) {
    let error = result.expect_err("a stale token is refused");
    assert_eq!(error.kind(), ErrorKind::StaleToken, "{error}");
    let stale = error.stale_token().expect("a refusal has its details");
    (stale.offered.get(), stale.highest.get())
}

/// Returns the kind of the error. Panics if the call succeeded.
pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.expect_err("the call fails").kind()
}
