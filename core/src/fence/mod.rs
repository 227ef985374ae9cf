//! Guards: storage that refuses a stale token.
//!
//! A lease alone cannot stop a process that was paused past its deadline from finishing a write
//! that it had begun. The storage can, by one rule: *a write with token t to a resource is refused
//! if a greater token was seen for it; an equal one passes, because a holder writes many times; after
//! t was accepted nothing smaller ever passes*, atomically with the write itself. (Martin Kleppmann,
//! "How to do distributed locking", 2016.)
//!
//! A *resource* is whatever one sequence of tokens protects, most often what the lock is named
//! after: 1 to 512 bytes of UTF-8. The tokens of one resource must come from one lock.
//!
//! | guard | for | feature |
//! |---|---|---|
//! | [`Gate`] | a service that owns its state, in memory | |
//! | `redis::FencedRedis` | keys of a Redis server | `native`; by redis-rs `redis-rs` |
//! | `sql::begin` | rows of Postgres, MySQL or MariaDB, SQLite, by `sqlx` 0.9 | `postgres`, `mysql`, `sqlite` |
//! | [`statements`] | the same databases, by any client or version of one | |
//! | `object::FencedStore` | objects of an object store, by `object_store` 0.14 | `object-store` |
//! | [`write_if_newer`] | any storage with conditional writes, by any client or version of one | |
//! | `http::FenceLayer` | whatever is behind an HTTP service | `http` |
//!
//! *Show the token before you read.* A holder that reads first, without a guard, and only writes
//! behind one may decide on what an older holder, of whom the guard has not yet heard that it is
//! older, still changes in between. In SQL read inside the transaction; elsewhere write something
//! under the token first, or read and write in one script.
//!
//! What a guard remembers of a resource it remembers for ever ([`Gate`] within its capacity). Forget
//! one, by deleting its row or key, only when nobody can have a token for it any more.
//!
//! A refusal is an [`Error`] of kind [`StaleToken`](crate::ErrorKind::StaleToken), with the
//! [details](Error::stale_token). It is not transient: the lease is over, and so is the work.

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

/// [`ErrorKind::Config`] if it is empty or over-long.
fn check_resource(resource: &str) -> Result<(), Error> {
    Error::check_length("a resource's name", resource, Name::MAX_BYTES)
}
