//! Guards: storage that refuses a stale token.
//!
//! A lease alone cannot stop a process that was paused past its deadline from finishing a write. The storage
//! can, with one rule, applied atomically with the write itself:
//!
//! - A write with token *t* is refused if a greater token was seen for the resource.
//! - An equal token passes, because a holder writes many times.
//! - Once *t* was accepted, nothing smaller ever passes.
//!
//! (Martin Kleppmann, "How to do distributed locking", 2016.)
//!
//! A *resource* is whatever one sequence of tokens protects, most often the thing that the lock is named
//! after. Its name has 1 to 512 bytes of UTF-8. The tokens of one resource must come from one lock.
//!
//! | guard | for | feature |
//! |---|---|---|
//! | [`Gate`] | a service that keeps its own state, in memory | |
//! | `redis::FencedRedis` | keys of a Redis server | `native`, or `redis-rs` for that client |
//! | `sql::begin` | rows of Postgres, MySQL, MariaDB or SQLite, through `sqlx` 0.9 | `postgres`, `mysql`,
//! `sqlite` |
//! | [`statements`] | the same databases, through any client or version | |
//! | `object::FencedStore` | objects of an object store, through `object_store` 0.14 | `object-store` |
//! | [`write_if_newer`] | any storage with conditional writes, through any client or version | |
//! | `http::FenceLayer` | anything behind an HTTP service | `http` |
//!
//! *Show the token before you read.* Suppose a holder reads first, without a guard, and only its write is
//! guarded. Until the guard sees its token, an older holder can still change what was read. In SQL, read
//! inside the transaction. Elsewhere, write something under the token first, or read and write in one script.
//!
//! A guard remembers each resource forever (a [`Gate`] only within its capacity). To make it forget one,
//! delete the row or key, but only when nobody can still hold a token for that resource.
//!
//! A refusal is an [`Error`] of kind [`StaleToken`](crate::ErrorKind::StaleToken), with
//! [details](Error::stale_token). It is not transient: the lease is over, so stop the work.

mod conditional;
mod gate;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "object-store")]
pub mod object;
#[cfg(any(
    feature = "postgres",
    feature = "mysql",
    feature = "sqlite",
    feature = "object-store"
))]
mod random;
#[cfg(feature = "native")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod sql;

pub mod statements;

pub use conditional::{Before, CONDITIONAL_ATTEMPTS, write_if_newer};
pub use gate::{Entered, Gate};

pub use leasehold_engine::StaleToken;

use leasehold_engine::{Error, Name};

/// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if the name is empty or longer than 512 bytes.
fn check_resource(resource: &str) -> Result<(), Error> {
    Error::check_length("a resource's name", resource, Name::MAX_BYTES)
}
