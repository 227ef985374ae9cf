//! The protocol between a locker and its Redis server: operations, replies, pushes and the Lua script.
//!
//! A host sends a batch of [`Op`]s in one call of one Lua [`SCRIPT`]. It feeds the script's reply to the
//! engine as a [`BatchReply`]. [`MemoryServer`](crate::MemoryServer) executes the same operations without a
//! server.
//!
//! ```
//! use leasehold_engine::protocol::{self, Command, Inspect, LockKey, Op};
//! use leasehold_engine::time::ServerTime;
//! use leasehold_engine::Name;
//!
//! let key = LockKey::new("shop", &Name::new("orders/42")?)?;
//! let op = Op {
//!     command: Command::Inspect(Inspect { key }),
//!     not_after: ServerTime::from_micros(1_800_000_000_000_000),
//! };
//! let call = protocol::encode(&[op]);
//! assert_eq!(call.keys().next(), Some("{shop:orders/42}"));
//! assert_eq!(call.args().next(), Some("1800000000000000"));
//! # Ok::<(), leasehold_engine::Error>(())
//! ```

mod claim;
mod durability;
mod incarnation;
mod key;
pub(crate) mod limits;
pub(crate) mod ops;
mod pattern;
mod push;
mod reply;
pub(crate) mod rights;
mod script;
mod server_error;
mod sha1;
mod wire;

pub use claim::{Claim, ClientId, Counter, HalfId, LeaseId};
pub use durability::Durability;
pub use incarnation::Incarnation;
pub use key::LockKey;
pub use ops::{
    Accept, Acquire, Admission, Admit, AskYield, Command, CompletedTick, Enter, Entered, Extend,
    ForceRelease, Holder, Inspect, Inspected, JobState, List, Op, PermitState, Reclaim, Release,
    Renew, Resize, Retire, SharedState, Terms, Vacate, Waiter, YieldRequest,
};
pub use pattern::Pattern;
pub use push::{News, Push, channel, decode_push, shard_channel};
pub use reply::{BatchReply, Grant, Reply};
pub use rights::Rights;
pub use script::{NODE_SCRIPT, NODE_SCRIPT_SHA};
pub use script::{SCRIPT, SCRIPT_SHA, script_is_missing};
pub use server_error::{
    check_server, credentials_refused, info_field, info_is_withheld, printable, server_error,
    server_error_in,
};
pub(crate) use wire::is_timeless;
pub use wire::{ScriptCall, decode, encode};
pub(crate) use wire::{read_call, write_reply};
