//! A distributed lock in Redis with fencing tokens and a stream of lease events.
//!
//! A program takes a named lock and gets a [`FencingToken`], which only ever grows. It reads what happens to
//! its lease from a stream: acquired, renewed, at risk, lost. The storage that it writes to checks the token,
//! so a client that was paused, partitioned or replaced can do no harm.
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
//! - Two leases on one name are never both valid by their own deadlines. This holds while the clocks' rates
//!   differ by less than the [drift margin](Builder::drift_margin) (1 in 500), the store keeps its data, and
//!   nobody takes the lock over by its [owner](Lock::owner), force-releases it or deletes its key.
//! - A holder learns of such an intervention at once: of a takeover or a forced release by a push, and of a
//!   deleted key through `CLIENT TRACKING`. If neither reaches it, it learns at its next renewal.
//! - A later acquisition has a strictly greater token, even if the store lost its data, if the store's clock
//!   is not behind the last token. [Dense tokens](Lock::dense_tokens) are the exception.
//! - A lease reports that it is invalid no later than its deadline, without any I/O.
//! - Live waiters get the lock in the order in which they asked.
//! - A lost lease is never silently reacquired. A call that was canceled, dropped or timed out does nothing
//!   later.
//!
//! # What it does not promise
//!
//! A lease alone cannot stop a process that was paused past its deadline from finishing a write. Only the
//! storage can, by refusing a token smaller than one it has seen: see [`fence`].
//!
//! # Where to look
//!
//! [`Locker`] connects. [`Lock`] is a name with its options, [`Lease`] is the right to it, and
//! [`LeaseEvents`] is the stream of its events. [`fence`] has the guards for storage. [`MemoryStore`] injects
//! faults in tests.
//!
//! | task | items |
//! |---|---|
//! | acquire, work and release | [`Lock::using`] |
//! | stop when the lease is lost | [`Lease::run`], [`Lease::lost`] |
//! | lead for as long as the program runs | [`Lock::hold`] |
//! | hold several names at once | [`Locker::all`] |
//! | find held names | [`Locker::list`], a stream; [`Locker::inspect`] for one name's holder |
//! | export metrics | [`Locker::stats`], and [`Stats::to_prometheus`] with your own labels |
//! | log events | [`LeaseEvent`] displays as one line; all traces have the target `leasehold` |
//! | survive the loss of a server | [`Locker::quorum`] |
//! | refuse stale holders in front of an HTTP service | `fence::http::FenceLayer`, with the feature `http` |
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `native` | on | the client, on tokio and fred; without it only the guards that need no Redis client are left |
//! | `tls-rustls` | on | `rediss://` by rustls and ring, which needs a C compiler: see [`Tls`] |
//! | `redis-rs` | off | `adapter::RedisRs`: locks through a connection of redis-rs |
//! | `cron` | off | `Job::cron`: jobs that are due by a cron text in a time zone |
//! | `metrics` | off | `Locker::record_metrics`: reports counts to the crate `metrics` |
//! | `postgres`, `mysql`, `sqlite`, `object-store`, `http` | off | guards for these storages, in [`fence`] |
//!
//! To run locks on a runtime other than tokio, use the crate `leasehold-engine`, which makes all decisions
//! and does no I/O. Its API is not stable. This crate re-exports those of its types that programs see.
//!
//! The book, in the repository's folder `docs/book`, has guides, recipes and the limits. It also shows the calls of other
//! locks beside ours.

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
pub use client::{
    Builder, Bundle, Claimed, Job, Lease, LeaseEvents, Lock, LockSet, Locker, Lost, MemoryStore,
    Missed, Observer, Permit, Permits, Run, RwLock, RwPart, Semaphore, Tenures, Turn, Turns,
    YieldRequest,
};
#[doc(inline)]
pub use leasehold_engine::{
    CompletedInfo, Error, ErrorKind, FencingToken, Finding, Histogram, HolderInfo, Inspection,
    JobInfo, LeaseEvent, LossReason, Losses, Name, Owner, PermitInfo, SharedInfo, Sharing, Stats,
    Ticket, WaiterInfo, WantedInfo,
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
