//! The clients by which a guard runs its scripts.

use std::time::Duration;

use fred::clients::Client;
use fred::error::Error as FredError;
use fred::interfaces::ClientLike;
use fred::types::Value;
use futures::future::{BoxFuture, Either};

use crate::adapter::fred::{Secrets, send_script};

/// A client of the program's. Cheap to clone.
#[derive(Clone)]
pub(super) enum Runner {
    Fred(Client),
    #[cfg(feature = "redis-rs")]
    RedisRs(super::redis_rs::Connection),
}

impl Runner {
    /// Sends a script's call, once, and waits so long for its reply. The script or its hash comes first, then
    /// the number of keys, then the keys, of which the first decides on a cluster's node.
    pub(super) fn run<'a>(
        &'a self,
        command: &'static str,
        args: Vec<Value>,
        left: Duration,
    ) -> impl Future<Output = Result<Value, FredError>> + Send + 'a {
        // Neither is kept in a future of this one's own.
        let running: Either<_, BoxFuture<'a, _>> = match self {
            Self::Fred(client) => Either::Left(send_script(client, command, args, left)),
            #[cfg(feature = "redis-rs")]
            Self::RedisRs(connection) => {
                Either::Right(Box::pin(connection.run(command, args, left)))
            }
        };
        running
    }

    /// Whether it is known to be of a cluster. Else a server of one refuses keys of several slots itself.
    pub(super) fn is_clustered(&self) -> bool {
        match self {
            Self::Fred(client) => client.is_clustered(),
            #[cfg(feature = "redis-rs")]
            Self::RedisRs(_) => false,
        }
    }

    /// What must not be shown of its errors.
    pub(super) fn secrets(&self) -> Secrets {
        match self {
            Self::Fred(client) => Secrets::of(client),
            // It keeps its passwords to itself.
            #[cfg(feature = "redis-rs")]
            Self::RedisRs(_) => Secrets::unknown(),
        }
    }
}
