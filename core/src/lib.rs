//! A distributed lock that tells the truth.

pub mod engine;
mod error;
mod event;
mod memory;
mod name;
pub mod protocol;
pub mod time;
mod token;

pub use error::{Error, ErrorKind};
pub use event::{LeaseEvent, LossReason};
pub use memory::MemoryServer;
pub use name::{Name, Owner};
pub use token::FencingToken;
