//! The engine of [Leasehold](https://docs.rs/leasehold), a distributed lock, without any I/O.
//!
//! This crate is for hosts: the crate `leasehold` and its bindings. Its API may change in any release, as
//! `quinn-proto` does for `quinn`. Programs use `leasehold`, which re-exports the types that they see.
//!
//! - [`engine`] makes all decisions and does no I/O. Its documentation shows how to drive it.
//! - [`protocol`] has the engine's commands to a store, and the store's replies.
//! - [`time`] has a host's time and a server's time, which are never compared.
//! - [`MemoryServer`] is an in-memory store: a model of the lock script.
//!
//! The other types at the root are those that programs see.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod advice;
mod digits;
pub mod engine;
mod error;
mod event;
mod every;
mod finding;
#[doc(hidden)]
pub mod limits;
mod memory;
mod name;
pub mod protocol;
#[doc(hidden)]
pub mod rows;
mod share;
mod stale;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
mod tick;
mod ticket;
pub mod time;
mod token;

pub use engine::{
    CompletedInfo, Histogram, HolderInfo, Inspection, JobInfo, Losses, PermitInfo, SharedInfo,
    Stats, WaiterInfo, WantedInfo,
};
pub use error::{Error, ErrorKind};
pub use event::{LeaseEvent, LossReason};
pub use finding::Finding;
pub use memory::{MemoryServer, StoredTenure};
pub use name::{Name, Owner};
pub use share::{Share, Sharing};
pub use stale::StaleToken;
pub use tick::Tick;
pub use ticket::{Passed, Ticket};
pub use token::FencingToken;

/// Reads test vectors that every language shares. At run time, because a published crate does not contain them.
#[cfg(test)]
fn vectors(file: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors");
    std::fs::read_to_string(std::path::Path::new(folder).join(file)).expect(file)
}
