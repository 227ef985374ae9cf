//! The clients on which a guard runs its scripts.

use std::time::Duration;

use fred::clients::Client;
use fred::error::Error as FredError;
use fred::interfaces::ClientLike;
use fred::types::Value;
use futures::future::{BoxFuture, Either};

use crate::adapter::fred::{Secrets, send_script};

/// The program's client. Cheap to clone.
#[derive(Clone)]
pub(super) enum Runner {
    Fred(Client),
    #[cfg(feature = "redis-rs")]
    RedisRs(super::redis_rs::Connection),
}

impl Runner {
    /// Sends a script call once and waits up to `left` for its reply.
    ///
    /// The arguments are the script or its hash, the number of keys and the keys. The first key chooses a
    /// cluster's node.
    pub(super) fn run<'a>(
        &'a self,
        command: &'static str,
        args: Vec<Value>,
        left: Duration,
    ) -> impl Future<Output = Result<Value, FredError>> + Send + 'a {
        // Not an async block, which would store the future and its arguments a second time.
        let running: Either<_, BoxFuture<'a, _>> = match self {
            Self::Fred(client) => Either::Left(send_script(client, command, args, left)),
            #[cfg(feature = "redis-rs")]
            Self::RedisRs(connection) => {
                Either::Right(Box::pin(connection.run(command, args, left)))
            }
        };
        running
    }

    /// Returns true if the client is known to be of a cluster. Otherwise the server itself refuses keys of
    /// several slots.
    pub(super) fn is_clustered(&self) -> bool {
        match self {
            Self::Fred(client) => client.is_clustered(),
            #[cfg(feature = "redis-rs")]
            Self::RedisRs(_) => false,
        }
    }

    /// Returns the secrets that must not appear in errors.
    pub(super) fn secrets(&self) -> Secrets {
        match self {
            Self::Fred(client) => Secrets::of(client),
            // redis-rs does not expose its passwords.
            #[cfg(feature = "redis-rs")]
            Self::RedisRs(_) => Secrets::unknown(),
        }
    }
}
