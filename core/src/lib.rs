//! A distributed lock that tells the truth.

#[cfg(feature = "native")]
mod client;
#[cfg(feature = "native")]
mod driver;
pub mod engine;
mod error;
mod event;
mod memory;
mod name;
pub mod protocol;
#[cfg(feature = "native")]
mod rt;
pub mod time;
mod token;

#[cfg(feature = "native")]
pub use client::{Builder, Lease, LeaseEvents, Lock, Locker, Lost, Run};
pub use engine::{HolderInfo, Inspection};
pub use error::{Error, ErrorKind};
pub use event::{LeaseEvent, LossReason};
pub use memory::MemoryServer;
pub use name::{Name, Owner};
pub use token::FencingToken;
