//! A distributed lock that tells the truth.
//!
//! A program takes a named lock in Redis and gets a [`FencingToken`] that only ever grows. It
//! reads a stream of what happens to its lease: acquired, renewed, at risk, lost. The storage that
//! it writes to checks the token, so a holder that was paused, cut off or replaced can do no harm.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use leasehold::Locker;
//!
//! let locker = Locker::connect("memory://").await?; // or redis://127.0.0.1:6379
//! let lock = locker.lock("orders/42")?.ttl(Duration::from_secs(10));
//! let lease = lock.acquire().await?;
//! let token = lease.token();
//! lease.run(async { println!("writing with token {token}") }).await?;
//! lease.release().await?;
//! # Ok(()) }
//! ```
//!
//! # What it promises
//!
//! - Two leases on one name are never both valid by their own deadlines, as long as the clocks' rates
//!   differ by less than 1 in 500, the store keeps its data, and nobody takes the lock over by its
//!   [owner](Lock::owner), force-releases it or deletes its key. The holder learns of a takeover or a
//!   forced release at once, by a push, and of a deleted key at once through `CLIENT TRACKING`. If neither
//!   reaches it, it learns of them at its next renewal.
//! - A later acquisition has a strictly greater token, even if the store lost its data, as long as its
//!   clock is not behind the last token. (Not with [`Lock::dense_tokens`].)
//! - A lease says that it is invalid no later than its deadline, without any I/O.
//! - Those who wait and are alive get the lock in the order in which they asked.
//! - A lease that is lost is never silently taken again, and a call that was given up or dropped
//!   does nothing later.
//!
//! # What it does not
//!
//! A lease alone cannot stop a process that was paused past its deadline from finishing a write
//! that it had begun. Only the storage can, by refusing a token smaller than one it has seen.
//!
//! # Where to look
//!
//! [`Locker`] connects, [`Lock`] is a name with its options, [`Lease`] is the right to it,
//! [`LeaseEvents`] is the stream of what happens, and [`fence`] has the guards. [`MemoryStore`] takes a store
//! in memory away, to try what a program does when a server of its locks fails.
//!
//! | to do | |
//! |---|---|
//! | acquire, do the work, and release | [`Lock::using`] |
//! | stop at the loss | [`Lease::run`], [`Lease::lost`] |
//! | find which names are held | [`Locker::list`], a stream; [`Locker::inspect`] says who holds one |
//! | count, for Prometheus | [`Locker::stats`] and [`Stats::to_prometheus`], with labels of your own |
//! | log what happens | [`LeaseEvent`] prints as a line; all traces have the target `leasehold` |
//! | refuse stale holders in front of an HTTP service | `fence::http::FenceLayer`, by the feature `http` |
//!
//! Without the default feature `native` the crate has only the guards that need no client of Redis.
//!
//! To run locks on something other than tokio, use the crate `leasehold-engine`: it decides everything and does
//! no I/O. Its API is not stable. This crate re-exports those of its types that a program sees.
//!
//! # Features
//!
//! | feature | | |
//! |---|---|---|
//! | `native` | on | the client, on tokio and fred |
//! | `tls-rustls` | on | `rediss://`, by rustls and ring, which needs a C compiler: see [`Tls`] |
//! | `redis-rs` | off | `adapter::RedisRs`: locks through a connection of that client |
//! | `metrics` | off | `Locker::record_metrics`: what a locker counts, for the crate `metrics` |
//! | `postgres`, `mysql`, `sqlite`, `object-store`, `http` | off | guards of these storages, in [`fence`] |
//!
//! `docs/coming-from.md` in the repository has each call of redlock, redis-semaphore, Redisson and
//! redsync beside ours, and says how to move a fleet while it runs.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "native")]
pub mod adapter;
#[cfg(feature = "native")]
mod client;
#[cfg(feature = "native")]
mod clock;
#[cfg(feature = "native")]
mod driver;
pub mod fence;
#[cfg(feature = "native")]
mod rt;
#[cfg(feature = "native")]
mod tls;
#[cfg(feature = "native")]
mod url;

#[cfg(feature = "native")]
pub use client::{Builder, Lease, LeaseEvents, Lock, Locker, Lost, MemoryStore, Run, Tenures};
#[doc(inline)]
pub use leasehold_engine::{
    Error, ErrorKind, FencingToken, Finding, Histogram, HolderInfo, Inspection, LeaseEvent,
    LossReason, Losses, Name, Owner, Stats, WaiterInfo,
};
#[cfg(feature = "native")]
pub use tls::Tls;

/// Reads test vectors that every language shares. At run time, because a published crate does not contain them.
#[cfg(test)]
fn vectors(file: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors");
    std::fs::read_to_string(std::path::Path::new(folder).join(file)).expect(file)
}

/// The program in the README is compiled and run as a test.
#[cfg(all(doctest, feature = "native"))]
#[doc = include_str!("../README.md")]
struct Readme;
