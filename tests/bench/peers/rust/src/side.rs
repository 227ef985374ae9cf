//! The locks by name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fred::prelude::*;
use leasehold::{Lease, Locker};
use redis::aio::MultiplexedConnection;
use rslock::LockManager;

use crate::Result;

const TTL: Duration = Duration::from_secs(30);
const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                                  return redis.call('DEL', KEYS[1]) end return 0";

/// A script that sets a handwritten lock and counts its token: the least that a lock with tokens costs.
const SET_AND_COUNT: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then \
                             return redis.call('INCR', KEYS[1] .. ':token') end return 0";

pub(crate) enum Side {
    Leasehold(Locker),
    /// The usual handwritten lock: `SET NX PX` and a script that compares and deletes.
    Fred(Client, String),
    /// A handwritten lock with tokens, by two scripts: one acquires and one releases.
    FredTokens(Client, [String; 2]),
    RedisRs(MultiplexedConnection, String),
    Rslock(LockManager),
}

pub(crate) enum Held {
    Lease(Lease),
    Value(String, String),
    Rslock(rslock::Lock),
}

impl Side {
    pub(crate) async fn connect(port: u16, side: &str) -> Result<Self> {
        let url = format!("redis://127.0.0.1:{port}");
        Ok(match side {
            "leasehold" => Self::Leasehold(Locker::connect(&url).await?),
            "leasehold-redis-rs" => {
                let client = redis::Client::open(url)?;
                let connection = client.get_multiplexed_async_connection().await?;
                Self::Leasehold(Locker::with_redis(connection, client).await?)
            }
            "fred" => {
                let client = Builder::from_config(Config::from_url(&url)?).build()?;
                client.init().await?;
                let sha = client.script_load(COMPARE_AND_DELETE).await?;
                Self::Fred(client, sha)
            }
            "fred-tokens" => {
                let client = Builder::from_config(Config::from_url(&url)?).build()?;
                client.init().await?;
                let acquire = client.script_load(SET_AND_COUNT).await?;
                let release = client.script_load(COMPARE_AND_DELETE).await?;
                Self::FredTokens(client, [acquire, release])
            }
            "redis-rs" => {
                let client = redis::Client::open(url)?;
                let mut connection = client.get_multiplexed_async_connection().await?;
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(COMPARE_AND_DELETE);
                let sha = load.query_async(&mut connection).await?;
                Self::RedisRs(connection, sha)
            }
            "rslock" => Self::Rslock(LockManager::new(vec![url])),
            "rslock-tuned" => {
                let mut manager = LockManager::new(vec![url]);
                manager.set_retry(1_000, Duration::from_millis(1));
                Self::Rslock(manager)
            }
            other => return Err(format!("there is no side {other:?}").into()),
        })
    }

    pub(crate) fn version(&self) -> String {
        let package = match self {
            Self::Leasehold(_) => "leasehold",
            Self::Fred(..) | Self::FredTokens(..) => "fred",
            Self::RedisRs(..) => "redis",
            Self::Rslock(_) => "rslock",
        };
        let mut lines = include_str!("../../../Cargo.lock").lines();
        let name = format!("name = \"{package}\"");
        let version = lines.find(|line| *line == name).and_then(|_| lines.next());
        let version = version.and_then(|line| line.strip_prefix("version = "));
        format!(
            "{package} {}",
            version.unwrap_or_default().trim_matches('"')
        )
    }

    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Leasehold(_) | Self::Rslock(_))
    }

    pub(crate) fn renews(&self) -> bool {
        matches!(self, Self::Leasehold(_))
    }

    pub(crate) fn tells(&self) -> bool {
        matches!(self, Self::Leasehold(_))
    }

    pub(crate) async fn acquire(&self, name: &str) -> Result<Held> {
        match self {
            Self::Leasehold(locker) => Ok(Held::Lease(locker.lock(name)?.acquire().await?)),
            Self::Fred(client, _) => {
                let (name, value) = (name.to_owned(), value());
                let (expire, only) = (Some(Expiration::PX(30_000)), Some(SetOptions::NX));
                let set: Option<String> = client.set(&name, &value, expire, only, false).await?;
                set.ok_or("the lock is taken")?;
                Ok(Held::Value(name, value))
            }
            Self::FredTokens(client, [acquire, _]) => {
                let (name, value) = (name.to_owned(), value());
                let token: i64 = client.evalsha(acquire, &name, &value).await?;
                (token > 0).then_some(()).ok_or("the lock is taken")?;
                Ok(Held::Value(name, value))
            }
            Self::RedisRs(connection, _) => {
                let (name, value) = (name.to_owned(), value());
                let mut set = redis::cmd("SET");
                set.arg(&name).arg(&value).arg("NX").arg("PX").arg(30_000);
                let set: Option<String> = set.query_async(&mut connection.clone()).await?;
                set.ok_or("the lock is taken")?;
                Ok(Held::Value(name, value))
            }
            Self::Rslock(manager) => {
                let lock = loop {
                    match manager.lock(name, TTL).await {
                        Ok(lock) => break lock,
                        Err(rslock::LockError::Unavailable) => {}
                        Err(error) => return Err(error.into()),
                    }
                };
                Ok(Held::Rslock(lock))
            }
        }
    }

    pub(crate) async fn release(&self, held: Held) -> Result<()> {
        match (self, held) {
            (_, Held::Lease(lease)) => Ok(lease.release().await?),
            (
                Self::Fred(client, sha) | Self::FredTokens(client, [_, sha]),
                Held::Value(name, value),
            ) => {
                let deleted: i64 = client.evalsha(sha, name, value).await?;
                (deleted == 1).then_some(()).ok_or("it was lost".into())
            }
            (Self::RedisRs(connection, sha), Held::Value(name, value)) => {
                let mut delete = redis::cmd("EVALSHA");
                delete.arg(sha).arg(1).arg(name).arg(value);
                let deleted: i64 = delete.query_async(&mut connection.clone()).await?;
                (deleted == 1).then_some(()).ok_or("it was lost".into())
            }
            (Self::Rslock(manager), Held::Rslock(lock)) => {
                manager.unlock(&lock).await;
                Ok(())
            }
            _ => Err("held by another side".into()),
        }
    }
}

impl Held {
    pub(crate) async fn lost(&self) {
        if let Self::Lease(lease) = self {
            lease.lost().await;
        }
    }
}

/// Returns a different value each time, as long as a random one.
fn value() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let (process, count) = (std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
    format!("{process:016x}{count:016x}")
}
