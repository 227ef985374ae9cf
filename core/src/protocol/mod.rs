//! What a lock says to its store, and what the store answers.
//!
//! A host sends a batch of [`Op`]s in one call of one Lua [`SCRIPT`] and feeds the answer back
//! as a [`BatchReply`]; [`MemoryServer`](crate::MemoryServer) executes the same operations
//! without a server.
//!
//! ```
//! use leasehold::protocol::{self, Command, Inspect, LockKey, Op};
//! use leasehold::time::ServerTime;
//! use leasehold::Name;
//!
//! let key = LockKey::new("shop", &Name::new("orders/42")?)?;
//! let op = Op {
//!     command: Command::Inspect(Inspect { key }),
//!     not_after: ServerTime::from_micros(1_800_000_000_000_000),
//! };
//! let call = protocol::encode(&[op]);
//! assert_eq!(call.keys().next(), Some("{shop:orders/42}:lock"));
//! assert_eq!(call.args().next(), Some("inspect"));
//! # Ok::<(), leasehold::Error>(())
//! ```

mod command;
mod decode;
mod encode;
mod key;
mod pattern;
mod push;
mod script;
mod server_error;

pub use command::{
    Acquire, BatchReply, Claim, ClientId, Command, Counter, ForceRelease, Grant, HalfId, Holder,
    Inspect, Inspected, LeaseId, List, Op, Reclaim, Release, Renew, Reply, Waiter,
};
pub use decode::decode;
pub use encode::{ScriptCall, encode};
pub use key::LockKey;
pub use pattern::Pattern;
pub use push::{News, Push, channel, decode_push};
pub use script::{SCRIPT, SCRIPT_SHA, script_is_missing};
#[cfg(feature = "native")]
pub(crate) use server_error::credentials_refused;
pub use server_error::{check_server, info_is_withheld, server_error};
pub(crate) use server_error::{info_field, printable};
