//! The operations of the protocol. Each has a file `NAME.rs` with its struct, its keys and text, and the
//! replies it accepts. Its Lua is beside it in `NAME.lua`. If an operation has a common case, `NAME.lua` has
//! only the statements of that, and `NAME_rest.lua` has all other cases.
//!
//! To add an operation, write these files, its `mod` line, and its entry in the list below. [`Command`], its
//! handling in this crate, and the script's dispatch are generated from the list. Add its replies, if they
//! are new, to [`Reply`], and the operation to the model, [`MemoryServer`](crate::MemoryServer), which does
//! not compile without it.

mod accept;
mod acquire;
pub(crate) mod admit;
mod ask_yield;
mod enter;
mod extend;
mod force_release;
mod inspect;
mod list;
mod release;
mod renew;
mod resize;
mod retire;
mod vacate;

use std::time::Duration;

use super::key::LockKey;
use super::reply::Reply;
use super::wire::{Fields, Writer, unexpected};
use crate::error::Error;
use crate::time::{MILLIS, ServerTime, in_parts};

pub use acquire::Reclaim;
pub use admit::Admission;
pub use ask_yield::YieldRequest;
pub use enter::{Entered, Terms};
pub use inspect::{CompletedTick, Holder, Inspected, JobState, PermitState, SharedState, Waiter};

/// A command and the time, on the server's clock, after which it must do nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// The command to execute.
    pub command: Command,
    /// The server refuses to act later than this. In a batch, the earliest of these times counts for all.
    pub not_after: ServerTime,
}

/// How an operation is encoded and its reply decoded.
pub(super) trait Operation {
    const FORM: Form;
    const LUA: Lua;

    /// Returns the keys of the lock that the operation is about, or `None` if it is not about one.
    fn key(&self) -> Option<&LockKey>;

    /// Returns true if the script's common case can execute this operation.
    fn is_common(&self) -> bool {
        false
    }

    /// Returns the letter for this operation, one of [`Form::letters`].
    fn letter(&self) -> u8 {
        Self::FORM.letters[0]
    }

    /// Returns the time to live that the operation asks for, or zero if it asks for none.
    fn ttl(&self) -> Duration {
        Duration::ZERO
    }

    /// Writes the parts after the letter and the time to live, as the header of its Lua file lists them.
    fn write(&self, text: &mut Writer<'_>);

    /// Returns about how many bytes the variable-length parts have.
    fn text_size(&self) -> usize {
        0
    }

    /// Returns the reply that a common outcome at this server time stands for.
    fn common_reply(&self, _: Option<ServerTime>) -> Result<Reply, Error> {
        Err(unexpected())
    }

    /// Reads the reply that begins with `status`. The caller handles statuses that any operation may get.
    fn reply<F: AsRef<[u8]>>(
        &self,
        status: &str,
        fields: &mut Fields<'_, F>,
    ) -> Result<Reply, Error>;
}

/// The name, letters and keys of an operation, for the wire and the script.
pub(super) struct Form {
    /// The operation's name, which is also the name of its Lua function.
    pub(super) name: &'static str,
    /// The capital letters that its text may begin with. The lower-case form of a letter requests the common
    /// case.
    pub(super) letters: &'static [u8],
    /// The suffixes of the operation's keys.
    pub(super) keys: &'static [&'static str],
}

/// The Lua of an operation. It is not part of [`Form`], because only the script's assembly may refer to it:
/// otherwise every program would contain the sources once more, with comments.
pub(super) struct Lua {
    /// The statements of the common case, if there is one.
    pub(super) common: Option<&'static str>,
    /// The Lua function for all other cases, which the script defines only when needed.
    pub(super) rest: &'static str,
}

macro_rules! operations {
    ($($file:ident::$name:ident,)*) => {
        $(pub use $file::$name;)*

        /// One operation of the protocol; a batch consists of these.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Command {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name),)*
        }

        pub(super) const OPERATIONS: &[(Form, Lua)] = &[$(($name::FORM, $name::LUA),)*];

        impl Command {
            /// Returns the keys of the lock that the command is about, or `None` if it is not about one.
            pub fn key(&self) -> Option<&LockKey> {
                match self { $(Self::$name(operation) => operation.key(),)* }
            }

            pub(super) fn form(&self) -> &'static Form {
                match self { $(Self::$name(_) => const { &$name::FORM },)* }
            }

            pub(super) fn write(&self, text: &mut Writer<'_>) {
                match self { $(Self::$name(operation) => write(operation, text),)* }
            }

            pub(super) fn common_reply(&self, time: Option<ServerTime>) -> Result<Reply, Error> {
                match self { $(Self::$name(operation) => operation.common_reply(time),)* }
            }

            fn text_size(&self) -> usize {
                match self { $(Self::$name(operation) => operation.text_size(),)* }
            }

            pub(super) fn reply<F: AsRef<[u8]>>(
                &self,
                status: &str,
                fields: &mut Fields<'_, F>,
            ) -> Result<Reply, Error> {
                match self { $(Self::$name(operation) => operation.reply(status, fields),)* }
            }
        }
    };
}

// In the order in which the script tests the letters: most operations are renewals.
operations! {
    renew::Renew,
    acquire::Acquire,
    release::Release,
    enter::Enter,
    force_release::ForceRelease,
    ask_yield::AskYield,
    inspect::Inspect,
    list::List,
    retire::Retire,
    accept::Accept,
    admit::Admit,
    extend::Extend,
    vacate::Vacate,
    resize::Resize,
}

fn write<T: Operation>(operation: &T, text: &mut Writer<'_>) {
    let letter = operation.letter();
    let letter = if operation.is_common() {
        letter.to_ascii_lowercase()
    } else {
        letter
    };
    text.letter(letter);
    text.millis(operation.ttl());
    operation.write(text);
}

/// Returns the expiry of a lease that begins at this time of the server.
fn expiry(time: ServerTime, ttl: Duration) -> ServerTime {
    ServerTime::from_millis(time.millis()) + Duration::from_millis(in_parts(ttl, MILLIS))
}

impl Command {
    /// Returns about how many bytes the command takes on the wire.
    pub(crate) fn size(&self) -> usize {
        let keys = self.form().keys.len();
        WORDS + self.text_size() + keys * self.key().map_or(0, LockKey::size)
    }
}

/// About how many bytes the fixed-length parts of a command, or of a claim, take.
const WORDS: usize = 128;
